"""The page on performance is what the stored results say."""

import importlib
import sys
from types import ModuleType

import pytest

from architecture.source import ROOT


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    """The script that writes the page; it imports its neighbours as a script does."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module("page")
    finally:
        sys.path.pop(0)


def contestant(name: str, seconds: float, **more: object) -> dict[str, object]:
    return {"contestant": name, "seconds": seconds, "evaluations": None, "error": None, "note": "", **more}


def test_the_page_is_made_from_the_stored_results(writer: ModuleType) -> None:
    written = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert written == writer.page(), "run `python benchmarks/page.py`"


def test_a_faster_peer_is_told(writer: ModuleType) -> None:
    case = {"within": 1e-6, "stiff": True, "why": "Because.", "rows": [contestant("simulate", 2.0, evaluations=100)]}
    case["rows"] += [
        contestant("slow", 5.0, error=1e-7, evaluations=400, kind="explicit"),
        contestant("fast", 1.0, error=1e-7, evaluations=3000, kind="explicit"),
        contestant("rough", 0.1, error=1e-3),
        contestant("capped", 1.5, at_least=True),
        contestant("descent", 1.0, error=0.1, kind="descent"),
    ]
    assert writer.ahead(case) is False
    told = ["Behind fast (0.5 of our time): the aim is missed by a factor of 2.", "Likely reason: Because."]
    assert writer.on_time(case) == told
    assert writer.on_gradients(case) == [
        "The best explicit peer, slow, needs 4 times our gradients: the aim of 10 is missed by a factor of 2.5."
    ]
    assert writer.on_others(case) == [
        "rough did not reach the error and is not counted.",
        "capped was stopped too early to compare.",
        "Descent, which does not follow the flow, takes 0.5 times as long, at an error of 1.0e-01.",
    ]


def test_a_lead_is_told_with_the_nearest_peer(writer: ModuleType) -> None:
    case = {"rows": [contestant("ensemble", 2.0), contestant("ensemble tight", 1.0), contestant("a", 5.0)]}
    case["rows"].append(contestant("b", 8.0, scaled=2.0))
    assert writer.ahead(case) is True
    assert writer.on_time(case) == ["Ahead of every peer: the nearest, a, takes 2.5 times as long."]
