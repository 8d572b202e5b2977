"""The tool that plants errors: what it plants, what it leaves alone, and that counting changes nothing."""

import importlib
import json
import sys
from types import ModuleType

import pytest

from architecture.source import ROOT

SOURCE = '''"""A text with 1 + 1."""
from typing import Any

WEIGHTS = (0.5, 2.0)


def largest(a: float, b: float = 1.0) -> float:
    """Of two numbers, -1 at least."""
    if a < 0 and not b == 0:
        raise ValueError(f"a must be {0 + 1}")
    c = max(a - b, a * WEIGHTS[0])
    return c if c > -1 else -1.0
'''


@pytest.fixture(scope="module")
def sites() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("mutant_sites")
    finally:
        sys.path.pop(0)


def test_errors_are_those_of_the_operators_and_texts_are_left_alone(sites: ModuleType) -> None:
    planted = {m.name.removeprefix("f.py::") for site in sites.Sites("f.py", SOURCE).sites for m in site}
    for wanted in (
        "largest::a < 0 -> (a <= 0) (0)",
        "largest::not b == 0 -> (b == 0) (0)",
        "largest::a - b -> (a + b) (0)",
        "largest::a - b -> a (0)",
        "largest::max(a - b, a * WEIGHTS[0]) -> min(a - b, a * WEIGHTS[0]) (0)",
        "largest::1.0 -> 2.0 (0)",
        "largest::c if c > -1 else -1.0 -> ((-1.0) if (c > -1) else c) (0)",
        "module::0.5 -> 1.0 (0)",
    ):
        assert wanted in planted
    assert not any("0 + 1" in name or "float" in name.split("::")[1] for name in planted)


def test_a_seed_draws_the_same_errors_when_another_place_changes(sites: ModuleType) -> None:
    first = sites.mutants({"f.py": SOURCE}, 6, 1)
    later = sites.mutants({"f.py": SOURCE.replace('"""Of two numbers', '"""More words.\n\n    Of two numbers')}, 6, 1)
    assert [m.name for m in first] == [m.name for m in later] and len({m.name for m in first}) == 6
    assert [m.line + 2 for m in first if m.line] == [m.line for m in later if m.line]
    for mutant in first:
        assert mutant.plant(SOURCE).count("\n") == SOURCE.count("\n") and mutant.plant(SOURCE) != SOURCE


def test_a_counting_copy_computes_the_same(sites: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    hits: list[int] = []
    module = ModuleType("deeplinear_hits")
    module.hit = hits.append
    monkeypatch.setitem(sys.modules, "deeplinear_hits", module)
    names: dict = {}
    exec(sites.counted(SOURCE, lambda line: line), names)
    assert names["__doc__"] == "A text with 1 + 1." and hits == []
    assert names["largest"](3.0) == 2.0 and hits == [9, 11, 12]


def test_every_equivalent_error_has_its_reason() -> None:
    reasons = json.loads((ROOT / "tools" / "mutants_equivalent.json").read_text(encoding="utf-8"))
    for name, reason in reasons.items():
        path = ROOT / name.split("::")[0]
        assert path.exists() and " -> " in name and reason.endswith("."), name
