"""What checks and experiments there are, told without importing them: that takes seconds, reading a file does not.

`catalogue.json` beside this file is written by `python -m deeplinear.cli._catalogue`; a test compares it with the
registries. What it does not know, such as a misspelt name, is left to them.
"""

import functools
import importlib.resources
import json
from pathlib import Path
from typing import Any

FILE = "catalogue.json"


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

    types = {key: getattr(kind, "__name__", str(kind)) for key, kind in fields(one.kind).items()}
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
