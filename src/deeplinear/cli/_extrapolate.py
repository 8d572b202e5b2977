"""`dln extrapolate`: how an impulse response goes on, and whether a student does."""

import csv
import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path
from typing import Any

from deeplinear.cli._files import read_array, read_named
from deeplinear.cli._limits import ENTRIES
from deeplinear.cli._options import count, number, read_kind
from deeplinear.cli._shell import Code, UsageError, numerics, output_kept_pure, print_json, print_table, say
from deeplinear.cli._written import Written

MANY = 100
"""More entries than this are told to take time."""

REACH = 100.0
"""Largest eigenvalue that networks to compare with may have."""

GUESSED = (
    "The numbers do not decide what follows them: there the student is compared with the system of the fewest states "
    "that has the numbers, which is a guess."
)

LEAST = 50
"""Entries of a continuation, if no horizon is given."""


def extrapolate_command(
    file: str,
    known: str | None,
    horizon: str | None,
    tolerance: str,
    reach: str | None,
    student: str | None,
    out: str,
    no_plot: bool,
    force: bool,
    as_json: bool,
) -> Code:
    """Say how the numbers go on and what decides it, judge a student, write table and picture; gives the exit code."""
    accuracy = read_kind(number(above=0, at_most=1), tolerance, "--tolerance")
    length = None if known is None else read_kind(count(at_least=2, at_most=ENTRIES), known, "--known")
    radius = None if reach is None else read_kind(number(above=0, at_most=REACH), reach, "--reach")
    values = read_array(file, "RESPONSE")
    if values.ndim == 2 and 1 in values.shape:
        values = values.ravel()
    if values.ndim != 1:
        raise UsageError(f"RESPONSE must hold one row or one column of numbers, but has shape {values.shape}.")
    if len(values) < 2:
        raise UsageError(f"RESPONSE must hold at least 2 numbers, but {file} holds {len(values)}.")
    if not all(map(math.isfinite, values)):
        raise UsageError(f"RESPONSE must be finite, but {file} holds NaN or infinite numbers.")
    length = len(values) if length is None else length
    if length >= ENTRIES:
        raise UsageError(f"RESPONSE must hold fewer than {ENTRIES} known numbers, but holds {length}; give --known.")
    if length > len(values):
        raise UsageError(f"--known must be from 2 to the {len(values)} numbers of RESPONSE, but is {length}.")
    wanted = (
        min(max(LEAST, 2 * length), ENTRIES)
        if horizon is None
        else read_kind(count(at_least=2, at_most=ENTRIES), horizon, "--horizon")
    )
    if wanted <= length:
        raise UsageError(f"--horizon must be more than the {length} known numbers, but is {wanted}; or give --known.")
    system = None if student is None else _student(student)
    numerics()
    from deeplinear.cli._shell import folder, pictures

    stem = folder(out) / f"{Path(file).stem}-continued"
    table = stem.with_name(f"{stem.name}.csv")
    drawn = pictures(stem)
    may = [table, *(() if no_plot else drawn)]
    written = Written("extrapolate", may, force=force, read={"RESPONSE": file, "--student": student}, others=drawn)
    if wanted - length > MANY:
        say(f"Bounds on {wanted - length} numbers take linear programmes each, some minutes for hundreds of them.")
    import numpy as np

    from deeplinear.recurrent import continuation, extrapolation_verdict, impulse_response

    try:
        with output_kept_pure():
            found = continuation(values[:length], wanted, tolerance=accuracy, reach=radius)
            judged, played = None, None
            if system is not None:
                played = impulse_response(system, wanted)
                teacher = np.concatenate([values, np.asarray(found.response)[len(values) :]])
                judged = extrapolation_verdict(system, teacher, length, horizon=wanted, order_tolerance=accuracy)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    files = written.write(lambda to: [_write(to / table.name, found, values, played)])
    if not no_plot:
        files += _draw(written, stem.name, Path(file).name, found, values, played)
    written.finish(files)
    if as_json:
        print_json(_payload(file, found, judged, _guessed(found, values), files))
        return Code.fine
    _tell(file, found, values)
    if judged is not None:
        words = [line for line in str(judged).splitlines() if not line.startswith("  ")]
        if _guessed(found, values):
            words.append(GUESSED)
        print_table([(line,) for line in words], title=f"student {student}")
        rows = [
            ("holds" if c.holds else "fails", c.statement, f"{c.residual:.1e}", "" if c.needed else "no")
            for c in judged.conditions
        ]
        print_table(rows, title="hypotheses", header=("", "", "residual", "needed"))
    print_table([("written", str(item)) for item in files])
    return Code.fine


def _student(path: str) -> tuple[Any, ...]:
    """A, B and C of a file, which fit one input and one output."""
    if Path(path).suffix.lower() != ".npz":
        raise UsageError(f"--student must be an .npz with the matrices A, B, C, but is {path}.")
    transition, first, output = read_named(path, "student", ("A", "B", "C"))
    size = len(transition) if transition.ndim == 2 else 0
    shapes = ((size, size), (size, 1), (1, size))
    for name, matrix, shape in zip("ABC", (transition, first, output), shapes, strict=True):
        if size == 0 or matrix.shape != shape:
            wanted = "square" if name == "A" else f"of shape {shape}"
            raise UsageError(f"--student: {name} of {path} must be {wanted}, but has shape {matrix.shape}.")
        if not all(map(math.isfinite, matrix.ravel())):
            raise UsageError(f"--student: {name} of {path} must be finite.")
    return transition, first, output


def _guessed(found: Any, values: Any) -> bool:
    """Whether the tail of the teacher is neither among the numbers nor decided by them."""
    return len(values) < len(found.response) and not found.decided


def _sure(found: Any) -> str:
    """What the numbers say of the number of states: only of balanced systems do a few of them show it."""
    if not found.shown:
        return "or more: the numbers do not say"
    return "shown by the numbers" if found.decided else "the fewest that have the numbers; others go on otherwise"


def _tell(file: str, found: Any, values: Any) -> None:
    import numpy as np

    rows = [
        ("numbers known", str(found.known)),
        ("states", f"{found.order}   ({_sure(found)})"),
        ("spectral radius", f"{found.radius:.6g}"),
        ("numbers missed by", f"{found.misfit:.1e}"),
    ]
    later = np.abs(np.asarray(found.response)[found.known : len(values)] - values[found.known : len(found.response)])
    if later.size:
        rows.append(("later numbers missed by", f"{later.max():.2e}"))
    if not found.shown and found.known >= 8:
        rows.append(("", "if the numbers are measured, give their accuracy by --tolerance"))
    if found.measure is None:
        rows.append(("kind", "not the response of a balanced system"))
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
            rows.append(("", f"of those with eigenvalues in [-{found.reach:.4g}, {found.reach:.4g}]"))
        else:
            rows.append(("what follows", f"no bounds on other balanced systems: {found.missing}"))
        if found.tolerance:
            rows.append(("", f"found with the numbers allowed to be off by {found.tolerance:.1g}"))
    print_table(rows, title=file)


def _payload(file: str, found: Any, judged: Any, guessed: bool, files: list[Path]) -> dict[str, Any]:
    import numpy as np

    def numbers(values: Any) -> Any:
        return None if values is None else np.asarray(values).tolist()

    payload: dict[str, Any] = {"ok": True, "command": "extrapolate", "exit_code": 0, "file": file}
    payload |= {"known": found.known, "order": found.order, "order_shown": found.shown, "misfit": found.misfit}
    payload |= {"decided": found.decided, "radius": found.radius, "reach": found.reach, "tolerance": found.tolerance}
    payload |= {"no_bounds": found.missing or None}
    payload |= {"system": {name: numbers(getattr(found.system, name)) for name in found.system._fields}}
    payload |= {name: numbers(getattr(found, name)) for name in ("response", "lower", "upper")}
    measure = found.measure
    payload["measure"] = None if measure is None else {n: numbers(getattr(measure, n)) for n in measure._fields}
    if judged is not None:
        payload["student"] = {
            "outcome": judged.outcome,
            "theorem": judged.theorem,
            "tail_known": not guessed,
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
        written = [_outwards(name) if name in ("least", "largest") else "{:.17g}".format for name in columns]
        for index in range(len(found.response)):
            cells = (write(c[index]) if index < len(c) else "" for write, c in zip(written, lists, strict=True))
            writer.writerow([index, *cells])
    return file


def _outwards(name: str) -> Callable[[float], str]:
    """How a bound is written: with the ten digits that are known of it, rounded away from what it bounds."""
    context = Context(prec=10, rounding=ROUND_FLOOR if name == "least" else ROUND_CEILING)
    return lambda value: str(context.create_decimal_from_float(value))


def _draw(written: Written, stem: str, name: str, found: Any, values: Any, played: Any) -> list[Path]:
    from deeplinear.plots import plot_continuation, save_figure

    try:
        figure = plot_continuation(
            found, given=values, student=None if played is None else played.values, title=f"{name}: how it goes on"
        )
        return written.write(lambda to: save_figure(figure, to / stem))
    except (ImportError, ValueError) as error:
        say(f"dln: the table is written, but there is no picture: {error}")
        return []
