"""`dln extrapolate`: how an impulse response goes on, and whether a student does."""

import csv
import math
from pathlib import Path
from typing import Any

from deeplinear.cli._files import read_array, read_named
from deeplinear.cli._options import count, number, read_kind
from deeplinear.cli._shell import Code, UsageError, numerics, output_kept_pure, print_json, print_table, say

NAME = "response"
"""Stem of the files that are written."""


def extrapolate_command(
    file: str,
    known: str | None,
    horizon: str,
    tolerance: str,
    student: str | None,
    out: str,
    no_plot: bool,
    as_json: bool,
) -> Code:
    """Say how the numbers go on and what decides it, judge a student, write table and picture; gives the exit code."""
    wanted = read_kind(count(at_least=2), horizon, "--horizon")
    accuracy = read_kind(number(above=0, at_most=1), tolerance, "--tolerance")
    length = None if known is None else read_kind(count(at_least=2), known, "--known")
    values = read_array(file, "RESPONSE")
    if values.ndim == 2 and 1 in values.shape:
        values = values.ravel()
    if values.ndim != 1:
        raise UsageError(f"RESPONSE must hold one row or one column of numbers, but has shape {values.shape}.")
    length = len(values) if length is None else length
    if not 2 <= length <= len(values):
        raise UsageError(f"--known must be from 2 to the {len(values)} numbers of RESPONSE, but is {length}.")
    system = None if student is None else read_named(student, "student", ("A", "B", "C"))
    numerics()
    from deeplinear.cli._output import folder
    from deeplinear.recurrent import continuation, extrapolation_verdict, impulse_response

    place = folder(out)
    try:
        with output_kept_pure():
            found = continuation(values[:length], wanted, tolerance=accuracy)
            judged, played = None, None
            if system is not None:
                played = impulse_response(system, wanted)
                teacher = values if len(values) >= wanted else found.response
                judged = extrapolation_verdict(system, teacher, length, horizon=wanted)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    files = [_write(place / f"{NAME}.csv", found, values, played)]
    if not no_plot:
        files += _draw(place, Path(file).name, found, values, played)
    if as_json:
        print_json(_payload(file, found, judged, files))
        return Code.fine
    _tell(file, found)
    if judged is not None:
        words = [line for line in str(judged).splitlines() if not line.startswith("  ")]
        print_table([(line,) for line in words], title=f"student {student}")
        rows = [
            ("holds" if c.holds else "fails", c.statement, f"{c.residual:.1e}", "" if c.needed else "no")
            for c in judged.conditions
        ]
        print_table(rows, title="hypotheses", header=("", "", "residual", "needed"))
    print_table([("written", str(item)) for item in files])
    return Code.fine


def _tell(file: str, found: Any) -> None:
    import numpy as np

    rows = [
        ("numbers known", str(found.known)),
        ("states", f"{found.order}   ({'shown by the numbers' if found.shown else 'or more: the numbers do not say'})"),
        ("spectral radius", f"{found.radius:.6g}"),
        ("numbers missed by", f"{found.misfit:.1e}"),
    ]
    if found.measure is None:
        rows.append(("kind", "not the response of a balanced system: no bounds on other continuations"))
    else:
        atoms = ", ".join(
            f"{atom:.6g} ({weight:.4g})"
            for atom, weight in zip(np.asarray(found.measure.atoms), np.asarray(found.measure.weights), strict=True)
        )
        rows.append(("kind", "balanced"))
        rows.append(("eigenvalues", f"{atoms}   (weights in brackets)"))
        if found.lower is not None:
            spread = np.asarray(found.upper - found.lower)[found.known :]
            word = "decided" if found.decided else "open"
            rows.append(("what follows", f"{word}: balanced systems differ by up to {spread.max():.3g}"))
        if found.tolerance:
            rows.append(("", f"found with the numbers allowed to be off by {found.tolerance:.1g}"))
    print_table(rows, title=file)


def _payload(file: str, found: Any, judged: Any, files: list[Path]) -> dict[str, Any]:
    import numpy as np

    def numbers(values: Any) -> Any:
        return None if values is None else np.asarray(values).tolist()

    payload: dict[str, Any] = {"ok": True, "command": "extrapolate", "exit_code": 0, "file": file}
    payload |= {"known": found.known, "order": found.order, "order_shown": found.shown, "misfit": found.misfit}
    payload |= {"decided": found.decided, "radius": found.radius, "tolerance": found.tolerance}
    payload |= {"system": {name: numbers(getattr(found.system, name)) for name in found.system._fields}}
    payload |= {name: numbers(getattr(found, name)) for name in ("response", "lower", "upper")}
    measure = found.measure
    payload["measure"] = None if measure is None else {n: numbers(getattr(measure, n)) for n in measure._fields}
    if judged is not None:
        payload["student"] = {
            "outcome": judged.outcome,
            "theorem": judged.theorem,
            "training_loss": float(judged.observed.training_loss),
            "error": _finite(float(judged.observed.error)),
            "reference": float(judged.observed.reference),
            "certified_error": _finite(judged.certified_error),
            "conditions": [
                {"statement": c.statement, "residual": _finite(c.residual), "tolerance": c.tolerance, "holds": c.holds}
                for c in judged.conditions
            ],
        }
    return payload | {"files": [str(item) for item in files]}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _write(file: Path, found: Any, values: Any, played: Any) -> Path:
    """Index, given numbers, continuation, bounds and the student's response, empty where there is none."""
    import numpy as np

    columns = {"given": values, "continued": found.response, "least": found.lower, "largest": found.upper}
    columns["student"] = None if played is None else played.values
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["j", *columns])
        lists = [[] if column is None else np.asarray(column).tolist() for column in columns.values()]
        for index in range(len(found.response)):
            writer.writerow([index, *(f"{c[index]:.17g}" if index < len(c) else "" for c in lists)])
    return file


def _draw(place: Path, name: str, found: Any, values: Any, played: Any) -> list[Path]:
    from deeplinear.plots import plot_continuation, save_figure

    try:
        figure = plot_continuation(
            found, given=values, student=None if played is None else played.values, title=f"{name}: how it goes on"
        )
        return save_figure(figure, place / NAME)
    except (ImportError, ValueError) as error:
        say(f"dln: the table is written, but there is no picture: {error}")
        return []
