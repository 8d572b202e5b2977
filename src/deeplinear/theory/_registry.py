"""All checks, found by id. The files of a paper are imported when one of its checks is first asked for."""

import functools
import importlib
from collections.abc import Sequence

from deeplinear.core import near_name
from deeplinear.theory._check import Check

PAPERS = ("completion", "exact", "network", "geometry", "rnn")
"""Short names of the papers, which are also those of their folders, in the order of lists."""

_ALL: dict[str, Check] = {}
"""Checks of the papers that are loaded, by id."""


@functools.cache
def _load(paper: str) -> None:
    """Import the checks of a paper."""
    found: tuple[Check, ...] = importlib.import_module(f"deeplinear.theory.{paper}").CHECKS
    for one in found:
        _ALL.setdefault(one.id, one)


def checks(paper: str | None = None) -> tuple[Check, ...]:
    """Every check, or those of one paper, in the order of the papers."""
    if paper is not None and paper not in PAPERS:
        raise ValueError(f"checks: there is no paper '{paper}'. {near_name(paper, PAPERS)}")
    wanted = PAPERS if paper is None else (paper,)
    for one in wanted:
        _load(one)
    return tuple(check for one in wanted for check in _ALL.values() if check.paper == one)


def check(name: str) -> Check:
    """The check with an id."""
    paper = name.partition("/")[0]
    if paper in PAPERS:
        _load(paper)
    if name not in _ALL:
        guess = near_name(name, [one.id for one in checks()]).partition("Known:")[0]
        raise ValueError(f"check: there is no check '{name}'. {guess}All are listed by `checks()`, or dln check list.")
    return _ALL[name]


def papers() -> Sequence[str]:
    """Short names of the papers that have checks."""
    return PAPERS
