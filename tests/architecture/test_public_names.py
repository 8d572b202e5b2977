"""Public names are a snapshot, so that a change of the interface is seen when it is read."""

import ast
from pathlib import Path

from architecture.source import modules, subpackages, syntax

SNAPSHOT = Path(__file__).with_name("public_names.txt")
REGENERATE = "PYTHONPATH=tests .venv/bin/python -m architecture.test_public_names"


def public_names() -> list[str]:
    """What each sub-package offers: re-exports and definitions of its `__init__` without a leading underscore."""
    found = set()
    for name in subpackages():
        for node in syntax(modules()[f"deeplinear.{name}"]).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("deeplinear."):
                offered = [alias.asname or alias.name for alias in node.names]
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                offered = [node.name]
            elif isinstance(node, ast.Assign):
                offered = [target.id for target in node.targets if isinstance(target, ast.Name)]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                offered = [node.target.id]
            else:
                offered = []
            found |= {f"deeplinear.{name}.{item}" for item in offered if not item.startswith("_")}
    return sorted(found)


def test_public_names_are_those_of_the_snapshot() -> None:
    listed = SNAPSHOT.read_text(encoding="utf-8").split()
    new, gone = sorted(set(public_names()) - set(listed)), sorted(set(listed) - set(public_names()))
    assert listed == public_names(), (
        f"public names changed: new {new}, gone {gone}. If that is meant, write the snapshot anew with\n"
        f"    {REGENERATE}\nand add a line to CHANGELOG.md."
    )


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(public_names()) + "\n", encoding="utf-8")
    print(f"{len(public_names())} names written to {SNAPSHOT}")
