"""What the architecture tests know of the source tree: its modules, read as syntax, never by importing."""

import ast
import functools
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "deeplinear"
TESTS = ROOT / "tests"


@functools.cache
def modules() -> dict[str, Path]:
    """Dotted name and file of every module of the package."""
    names = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


@functools.cache
def syntax(path: Path) -> ast.Module:
    """Syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@functools.cache
def subpackages() -> list[str]:
    """Names of the sub-packages, without the leading package name."""
    return sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def subpackage(module: str) -> str | None:
    """Sub-package a module belongs to; `None` for the top of the package."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in subpackages() else None


def layers() -> list[list[str]]:
    """Layers from highest to lowest, as the import contract in pyproject.toml states them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


@functools.cache
def imports(module: str) -> list[tuple[str, int]]:
    """Everything of this package a module imports, at any depth of nesting, with its line.

    `from deeplinear.core import Params` counts as `deeplinear.core.Params`.
    """
    found = []
    for node in ast.walk(syntax(modules()[module])):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            found += [(f"{origin}.{alias.name}", node.lineno) for alias in node.names]
    return [(name, line) for name, line in found if name.split(".")[0] in ("deeplinear", "")]


@functools.cache
def exports(module: str) -> dict[str, str]:
    """Names that the `__init__` of a package re-exports as `X as X`, each with the module it comes from."""
    nodes = [node for node in ast.walk(syntax(modules()[module])) if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in nodes for alias in node.names if alias.asname == alias.name}
