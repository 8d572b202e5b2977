"""What checks and experiments there are, told without importing them: that takes seconds, reading a file does not.

`catalogue.json` beside this file is written by `python -m deeplinear.cli._catalogue`; a test compares it with the
registries. A name that it does not know is refused, unless the registry is loaded already: that may hold others.
"""

import functools
import importlib.resources
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from deeplinear._about import named_figure, near_name
from deeplinear.cli._shell import UsageError, check_asked

FILE = "catalogue.json"

REGISTRIES = {"check": "deeplinear.theory._registry", "experiment": "deeplinear.experiments._registry"}
"""Modules that know what there is, and take seconds to load."""


@functools.cache
def _catalogue() -> dict[str, list[dict[str, Any]]]:
    return json.loads((importlib.resources.files("deeplinear.cli") / FILE).read_text(encoding="utf-8"))


def listed(noun: str, paper: str | None) -> list[dict[str, Any]]:
    """All checks or experiments, or those of one paper."""
    everyone = _catalogue()[noun]
    return everyone if paper is None else [one for one in everyone if one["id"].split("/")[0] == paper]


def known(noun: str, name: str) -> dict[str, Any] | None:
    """One check or experiment."""
    return next((one for one in _catalogue()[noun] if one["id"] == name), None)


def recognised(noun: str, names: Sequence[str], everything: bool, paper: str | None) -> list[dict[str, Any]] | None:
    """What `choose` would find, or its refusal, from the catalogue.

    Args:
        noun: `check` or `experiment`.
        names: As for `choose`.
        everything: As for `choose`.
        paper: As for `choose`.

    Returns:
        What is meant; `None` where the registry is loaded, so that it is to be asked.
    """
    check_asked(noun, names, everything, paper)
    if REGISTRIES[noun] in sys.modules:
        return None
    ids = {one["id"]: one for one in listed(f"{noun}s", None)}
    for name in names:
        if name not in ids:
            sources = {one: found["source"] for one, found in ids.items()}
            guess = named_figure(name, sources) or near_name(name, ids).partition("Known:")[0]
            raise UsageError(
                f"{noun}: there is no {noun} '{name}'. {guess}All are listed by `{noun}s()`, or dln {noun} list."
            )
    if names:
        return [ids[name] for name in dict.fromkeys(names)]
    found = listed(f"{noun}s", paper)
    if not found:
        papers = dict.fromkeys(name.split("/")[0] for name in ids)
        raise UsageError(f"{noun}s: there is no paper '{paper}'. {near_name(str(paper), papers)}")
    return found


def described() -> dict[str, list[dict[str, Any]]]:
    """The catalogue as the registries tell it."""
    from deeplinear._about import use_64_bit

    use_64_bit()
    from deeplinear.experiments import experiments
    from deeplinear.theory import checks

    return {
        "checks": [describe_check(one) for one in checks(None)],
        "experiments": [describe_experiment(one) for one in experiments(None)],
    }


def describe_experiment(one: Any) -> dict[str, Any]:
    """An experiment as plain values, with the types of its settings."""
    from deeplinear.experiments import fields

    types = {key: str(kind) if get_args(kind) else kind.__name__ for key, kind in fields(one.kind).items()}
    return {**one.describe(), "types": types}


def describe_check(one: Any) -> dict[str, Any]:
    """A check as plain values."""
    return {
        "id": one.id,
        "paper": one.paper,
        "source": one.source,
        "statement": one.statement,
        "printed_statement": one.printed,
        "hypotheses": [{"name": h.name, "tolerance": h.tolerance} for h in one.hypotheses],
        "claim": [{"name": name, "tolerance": tolerance} for name, tolerance in one.tolerances.items()],
        "violations": [v.name for v in one.violations],
        "takes_own_problems": one.adopt is not None,
        "takes_widths": one.sized is not None,
        "version": one.version,
    }


def text() -> str:
    """The catalogue as the file has it: one line for each check and experiment."""
    parts = []
    for noun, entries in described().items():
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in entries)
        parts.append(f'"{noun}": [\n{lines}\n]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    Path(__file__).with_name(FILE).write_text(text(), encoding="utf-8")
