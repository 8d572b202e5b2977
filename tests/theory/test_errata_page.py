"""The page of printed errors: its parts and the checks name each other, and every error has its number."""

import re
from pathlib import Path

import pytest

from deeplinear.experiments import experiments
from deeplinear.theory import checks

WHOLE = (Path(__file__).parents[2] / "docs" / "errata.md").read_text(encoding="utf-8")

PARTS = {
    "network": ("Gradient flow in deep linear networks", 22),
    "geometry": ("Geodesics and low rank in the deep linear network", 19),
    "rnn": ("Low dimensional state spaces with recurrent networks", 18),
}
"""Heading and number of errors by paper; the part on exact solutions has tests of its own."""


def part(paper: str) -> str:
    """From the heading of a paper to that of the next."""
    below = WHOLE[WHOLE.index(f"\n## {PARTS[paper][0]}") + 1 :]
    return below.split("\n## ")[0]


@pytest.mark.covers("rnn:F30")
@pytest.mark.parametrize("paper", PARTS)
def test_page_and_checks_name_each_other(paper: str) -> None:
    printed = {check.id for check in checks(paper) if check.printed is not None}
    named = set(re.findall(rf"`({paper}/[^`]*)`", part(paper)))
    known = {check.id for check in checks(paper)} | {one.id for one in experiments()}
    assert named <= known, named - known
    assert printed <= named, printed - named


@pytest.mark.parametrize("paper", PARTS)
def test_page_numbers_every_error_once(paper: str) -> None:
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", part(paper), flags=re.MULTILINE)]
    assert sorted(numbers) == list(range(1, PARTS[paper][1] + 1))
