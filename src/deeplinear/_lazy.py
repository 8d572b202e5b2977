"""Names of a package that are imported when they are first used, so that a program loads only the files it runs."""

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package that re-exports under `if TYPE_CHECKING:`.

    That block is the only declaration of the names: type checkers read its imports, and this function reads the same
    lines as text. A name is imported from its file when it is first asked for, and is an ordinary attribute from then
    on.

    Args:
        package: `__name__` of the package, whose file calls this in the `else` of the block.
    """
    module = sys.modules[package]
    origins = dict(_declared(module))

    def load(name: str) -> Any:
        if name not in origins:
            raise AttributeError(f"module '{package}' has no attribute '{name}'", name=name, obj=module)
        origin = origins[name]
        if origin == package:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(origin), name)
        setattr(module, name, value)
        return value

    return load, lambda: sorted(origins), list(origins)


def _declared(module: Any) -> Iterator[tuple[str, str]]:
    """Names under `if TYPE_CHECKING:` in the source of a module, each with the module that has it."""
    source = module.__spec__.loader.get_source(module.__name__)
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for line in node.body:
                if isinstance(line, ast.ImportFrom):
                    yield from ((alias.name, str(line.module)) for alias in line.names)
