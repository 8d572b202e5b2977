"""The registry of errata: every specified one is there, every check of one is named, and names mean something."""

import inspect
import re
import tomllib
from collections import Counter

import pytest

import deeplinear.exact
import deeplinear.geometry
import deeplinear.landscape
from architecture.source import TESTS
from deeplinear.experiments import experiments
from deeplinear.theory import FAULT, SURENESS, Erratum, check, checks, errata, papers

pytestmark = pytest.mark.covers("rnn:F30")

LIBRARY = (deeplinear.exact, deeplinear.geometry, deeplinear.landscape)
"""Where the functions that are named are found."""


def named(entry: Erratum) -> list[str]:
    """What stands between backticks beside the checks."""
    return re.findall(r"`([^`]+)`", entry.also)


def test_every_specified_erratum_is_there_once() -> None:
    tables = tomllib.loads((TESTS / "specified.toml").read_text(encoding="utf-8"))
    specified = [f"{table}:{item}" for table, items in tables.items() for item in items if re.fullmatch(r"E\d+", item)]
    assert len(specified) == 114
    assert Counter(entry.id for entry in errata()) == Counter(specified)


def test_checks_with_a_printed_form_and_errata_name_each_other() -> None:
    printed = {one.id for one in checks() if one.printed is not None}
    told = [one.check for entry in errata() for one in entry.evidence]
    assert len(told) == len(set(told)) and set(told) == printed
    for entry in errata():
        for one in entry.evidence:
            assert one.check.startswith(f"{entry.paper}/")
            assert one.part in ("", *check(one.check).tolerances), one


@pytest.mark.parametrize("paper", papers())
def test_an_erratum_is_whole(paper: str) -> None:
    for entry in errata(paper):
        assert all(text.strip() for text in (entry.section, entry.place, entry.printed, entry.right, entry.because))
        assert entry.kind in FAULT and entry.sureness in SURENESS
        assert bool(entry.evidence) != bool(entry.unchecked.strip()), f"{entry.id}: a check, or why there is none"


def test_what_is_named_beside_the_checks_exists() -> None:
    known = {one.id for one in checks()} | {one.id for one in experiments()}
    for entry in errata():
        for name in named(entry):
            if "/" in name:
                assert name in known, f"{entry.id}: {name}"
            elif name not in ("as_printed=True", "std"):
                assert any(hasattr(part, name) for part in LIBRARY), f"{entry.id}: {name}"


@pytest.mark.covers("exact:F36")
def test_switches_exist() -> None:
    switched = [name for entry in errata("exact") if "as_printed=True" in named(entry) for name in named(entry)]
    functions = [name for name in switched if name != "as_printed=True"]
    assert len(functions) == len(set(functions)) == 13
    for name in functions:
        assert "as_printed" in inspect.signature(getattr(deeplinear.exact, name)).parameters, name


def test_a_paper_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no paper 'netwrk'.*network"):
        errata("netwrk")
