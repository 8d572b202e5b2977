"""Directions of imports, read from the syntax: nothing hidden in a function escapes."""

import pytest

import deeplinear
from architecture.source import imports, layers, modules, subpackage, subpackages

RANK = {name: rank for rank, layer in enumerate(reversed(layers())) for name in layer}


def test_every_subpackage_has_its_layer() -> None:
    assert set(subpackages()) == set(RANK), "pyproject.toml, [[tool.importlinter.contracts]] 'layers', must name each"


@pytest.mark.parametrize("module", modules())
def test_imports_are_absolute(module: str) -> None:
    assert [f"line {line}: {name}" for name, line in imports(module) if name.startswith(".")] == []


@pytest.mark.parametrize("module", [m for m in modules() if subpackage(m)])
def test_imports_go_down(module: str) -> None:
    """A module imports its own sub-package and lower layers only."""
    home = subpackage(module)
    assert home is not None
    wrong = []
    for name, line in imports(module):
        other = subpackage(name)
        if other not in (None, home) and RANK[other] >= RANK[home]:
            wrong.append(f"line {line}: {name} is not below {home}")
    assert wrong == []


@pytest.mark.parametrize("module", modules())
def test_private_modules_stay_at_home(module: str) -> None:
    """Across sub-packages one imports from the sub-package, not from its files, and no private names."""
    wrong = [
        f"line {line}: {name}"
        for name, line in imports(module)
        if subpackage(name) not in (None, subpackage(module)) and any(part.startswith("_") for part in name.split("."))
    ]
    assert wrong == []


@pytest.mark.parametrize("module", modules())
def test_files_do_not_import_their_own_subpackage(module: str) -> None:
    """Inside a sub-package files import each other, not the `__init__` that imports them: no cycles."""
    home = subpackage(module)
    wrong = [
        f"line {line}: {name}"
        for name, line in imports(module)
        if home is not None and subpackage(name) == home and len(name.split(".")) == 3 and name not in modules()
    ]
    assert wrong == []


def test_every_subpackage_can_be_asked_for() -> None:
    """All but the command line, which is a program, are attributes of the package."""
    assert set(subpackages()) - {"cli"} <= set(dir(deeplinear))
