"""Every specified item is covered by a test or says why not. Markers are read from the sources; no test is run."""

import ast
import functools
import tomllib
from pathlib import Path

import pytest

from architecture.source import TESTS, syntax


@functools.cache
def specified() -> dict[str, dict[str, str]]:
    """Title, and reason where one is given, of each item by its id `specification:item`."""
    tables = tomllib.loads((TESTS / "specified.toml").read_text(encoding="utf-8"))
    return {
        f"{table}:{item}": {"title": entry} if isinstance(entry, str) else entry
        for table, entries in tables.items()
        for item, entry in entries.items()
    }


def markers(path: Path) -> list[tuple[str | None, int]]:
    """Ids of all `pytest.mark.covers(...)` of a file with their lines; `None` for one that is not a plain string."""
    return [
        (str(argument.value) if isinstance(argument, ast.Constant) else None, node.lineno)
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "covers"
        and ast.unparse(node.func) == "pytest.mark.covers"
        for argument in (*node.args, *(keyword.value for keyword in node.keywords))
    ]


@functools.cache
def covered() -> dict[str, list[str]]:
    """Places of the markers by id."""
    places: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        for item, line in markers(path):
            places.setdefault(str(item), []).append(f"{path.relative_to(TESTS)}:{line}")
    return places


@pytest.mark.parametrize("item", specified())
def test_item_has_a_test_or_a_reason(item: str) -> None:
    entry = specified()[item]
    assert set(entry) <= {"title", "reason"}
    assert entry["title"].strip()
    if item in covered():
        assert "reason" not in entry, f"{item} has a test ({covered()[item][0]}); the reason in specified.toml is stale"
    else:
        assert entry.get("reason", "").strip(), f"{item} ({entry['title']}) has neither a covering test nor a reason"


def test_markers_name_specified_items() -> None:
    unknown = {item: places for item, places in covered().items() if item not in specified()}
    assert unknown == {}, "add these to tests/specified.toml, or correct the markers"
