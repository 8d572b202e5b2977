"""Reading answers and running scripts, for the tests of rooms."""

import contextlib
import io
from typing import Any

from deeplinear.lab._figures import Answer


def fact(answer: Answer, label: str) -> str:
    """What a fact says."""
    return next(one.value for one in answer.facts if one.label == label)


def executed(script: str) -> dict[str, Any]:
    """The names of a script after it has run."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(script, names)
    return names
