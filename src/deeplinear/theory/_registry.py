"""All checks, found by id."""

from collections.abc import Sequence

from deeplinear.core import near_name
from deeplinear.theory._check import Check
from deeplinear.theory.completion import CHECKS as COMPLETION
from deeplinear.theory.exact import CHECKS as EXACT
from deeplinear.theory.geometry import CHECKS as GEOMETRY
from deeplinear.theory.network import CHECKS as NETWORK
from deeplinear.theory.rnn import CHECKS as RNN

_ALL: dict[str, Check] = {check.id: check for check in (*COMPLETION, *EXACT, *NETWORK, *GEOMETRY, *RNN)}


def checks(paper: str | None = None) -> tuple[Check, ...]:
    """Every check, or those of one paper, in the order of the papers."""
    if paper is not None and paper not in papers():
        raise ValueError(f"checks: there is no paper '{paper}'. {near_name(paper, papers())}")
    return tuple(check for check in _ALL.values() if paper in (None, check.paper))


def check(name: str) -> Check:
    """The check with an id."""
    if name not in _ALL:
        guess = near_name(name, _ALL).partition("Known:")[0]
        raise ValueError(f"check: there is no check '{name}'. {guess}All are listed by `checks()`, or dln check list.")
    return _ALL[name]


def papers() -> Sequence[str]:
    """Short names of the papers that have checks."""
    return tuple(dict.fromkeys(c.paper for c in _ALL.values()))
