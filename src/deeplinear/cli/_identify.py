"""`dln identify`: a linear system from a table of inputs and outputs."""

import csv
import math
from pathlib import Path
from typing import Any

from deeplinear.cli._limits import ENTRIES, STATES, TRAINED
from deeplinear.cli._options import count, number, read_kind
from deeplinear.cli._shell import Code, UsageError, estimators, numerics, output_kept_pure, print_json, print_table, say
from deeplinear.cli._tables import check_columns, column_places, read_table, with_own_names, without_gaps
from deeplinear.cli._written import Written

LEAST = 10
"""Rows of the shortest table that is worth a try."""


def identify_command(
    file: str,
    inputs: str | None,
    outputs: str,
    order: str | None,
    memory: str | None,
    states: str,
    steps: str,
    test: str,
    rest: bool,
    no_feed_through: bool,
    horizon: str | None,
    header: bool,
    seed: str | None,
    out: str,
    no_plot: bool,
    force: bool,
    as_json: bool,
) -> Code:
    """Identify a system, say what it is and how well it predicts, write it; gives the exit code."""
    settings: dict[str, Any] = {
        "order": None if order is None else read_kind(count(at_least=0, at_most=STATES), order, "--order"),
        "memory": None if memory is None else read_kind(count(at_least=2, at_most=ENTRIES), memory, "--memory"),
        "states": read_kind(count(at_most=STATES), states, "--states"),
        "steps": read_kind(count(at_most=TRAINED), steps, "--steps"),
        "horizon": None if horizon is None else read_kind(count(at_least=2, at_most=ENTRIES), horizon, "--horizon"),
        "random_state": 0 if seed is None else read_kind(count(at_least=0, at_most=2**32 - 1), seed, "--seed"),
        "start": "rest" if rest else "unknown",
        "feed_through": not no_feed_through,
    }
    share = read_kind(number(at_least=0, at_most=0.9), test, "--test")
    of_inputs, of_outputs, u, y = _read(file, inputs, outputs, header)
    numerics()
    from deeplinear.cli._interrupt import interrupts_raise
    from deeplinear.cli._shell import folder, pictures
    from deeplinear.report import progress_bar

    stem = folder(out) / Path(file).stem
    drawn = pictures(_picture(stem))
    may = [*_files(stem), *(() if no_plot else drawn)]
    written = Written("identify", may, force=force, read={"DATA": file}, others=drawn)
    seen = len(u) - (max(1, round(share * len(u))) if share > 0 else 0)
    check_columns(u, of_inputs, "DATA")
    check_columns(y, of_outputs, "DATA")
    from deeplinear.core import NumericalError

    interrupts_raise()
    try:
        with output_kept_pure(), progress_bar("identifying") as progress:
            model = estimators().LinearStateSpace(**settings, progress=progress).fit(u[:seen], y[:seen])
            predicted = model.predict(u, initial_state=model.initial_state_[0])
            found = model.certificate_
            bounds, trouble = _bounds(model, found)
    except NumericalError as error:
        say(f"dln: {error}")
        return Code.numerical
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(_named(str(error), of_inputs)) from None
    scores = {name: _score(y[seen:, i], predicted[seen:, i]) for i, name in enumerate(of_outputs)}
    files = written.write(lambda to: _write(to / stem.name, model, of_inputs, of_outputs, y, predicted, seen))
    if not no_plot:
        files += _draw(written, stem.name, Path(file).name, model, of_inputs, of_outputs, y, predicted, seen, bounds)
    written.finish(files)
    if as_json:
        print_json(_payload(file, model, found, bounds, scores, seen, len(u), files))
        return Code.fine
    _tell(file, model, of_inputs, of_outputs, len(u), seen)
    print_table(_quality(model, scores), title="how well it predicts", header=("output", "R²", "on"))
    print_table(_orders(model), title="error on rows held out", header=("states", "share of the variance", ""))
    print_table(_certificate(model, found, bounds, trouble), title="extrapolation of the response")
    print_table([("written", str(item)) for item in files])
    return Code.fine


# --- Reading ----------------------------------------------------------------------------------------------------------


def _read(file: str, inputs: str | None, outputs: str, header: bool) -> tuple[list[str], list[str], Any, Any]:
    """Names and numbers of the inputs and of the outputs."""
    table = with_own_names(read_table(file, "DATA", gaps=True, text=True, header=header), file, "DATA")
    wanted = column_places(table, outputs, "--outputs")
    if inputs is None:
        given = [place for place in range(len(table.columns)) if place not in wanted]
        if not given:
            raise UsageError(f"--inputs must name a column, but {file} has no columns beside those of --outputs.")
    else:
        given = column_places(table, inputs, "--inputs")
    both = sorted(set(given) & set(wanted))
    if both:
        raise UsageError(
            f"--inputs and --outputs must name different columns, but both name '{table.columns[both[0]]}'."
        )
    advice = "fill them in, or cut the record before them"
    u = without_gaps(table, given, file, "DATA", advice, "--inputs" if inputs is None else None)
    y = without_gaps(table, wanted, file, "DATA", advice)
    if len(u) < LEAST:
        raise UsageError(f"DATA: {file} must hold at least {LEAST} rows of numbers, but holds {len(u)}.")
    return [table.columns[place] for place in given], [table.columns[place] for place in wanted], u, y


def _named(message: str, inputs: list[str]) -> str:
    """A refusal of the estimator in the words of the command line."""
    for place, name in enumerate(inputs):
        message = message.replace(f"column {place} of X is constant", f"'{name}' is constant")
    words = {"LinearStateSpace: ": "", "start='rest'": "--rest", "sequences of X": "DATA", "the rows of X": "the rows"}
    for word, other in words.items():
        message = message.replace(word, other)
    return message


# --- Telling ----------------------------------------------------------------------------------------------------------


def _tell(file: str, model: Any, inputs: list[str], outputs: list[str], total: int, seen: int) -> None:
    import numpy as np

    poles = sorted(model.poles_, key=lambda pole: -abs(pole))
    told = ", ".join(_complex(pole) for pole in poles if pole.imag >= 0) or "none"
    rows = [
        ("rows", f"{total}, of which the fit has seen the first {seen}"),
        ("inputs", ", ".join(inputs)),
        ("outputs", ", ".join(outputs)),
        ("order", f"{model.order_}{'' if model.order is None else '   (as asked for)'}"),
        ("poles", told),
        ("stable", f"{'yes' if model.stable_ else 'no'}: spectral radius {model.spectral_radius_:.6g}"),
        ("network", f"{model.states} states, trained on {model.memory_} lags"),
        ("stopped at", f"step {model.path_.times[model.path_.best]:g} of {model.path_.times[-1]:g}"),
    ]
    if not np.isfinite(model.response_error_).all():
        rows.append(("note", "the inputs do not excite all lags: the rows alone do not determine the response"))
    print_table(rows, title=file)


def _quality(model: Any, scores: dict[str, float | None]) -> list[tuple[str, ...]]:
    rows = [(name, _number(score), "rows at the end that the fit has not seen") for name, score in scores.items()]
    return rows + [("all", _number(model.held_out_score_), "rows that chose the order")]


def _orders(model: Any) -> list[tuple[str, ...]]:
    return [
        (str(n), f"{error:.3g}", "chosen" if n == model.order_ else "")
        for n, error in enumerate(model.order_errors_)
        if math.isfinite(error)
    ] or [(str(model.order_), "", "chosen")]


def _certificate(model: Any, found: Any, bounds: Any, trouble: str) -> list[tuple[str, ...]]:
    if not found.applies:
        return [("certificate", f"does not apply: {found.reason}")]
    needed = 2 * found.continuation.order + 1
    rows = [("certificate", f"applies: balanced, and {found.known} lags known, {needed} needed")]
    if bounds is not None:
        spread = float((bounds[1] - bounds[0])[found.known :].max())
        error = float(model.response_error_.max())
        rows.append(("what follows", f"balanced systems with these lags, to {error:.2g}, differ by up to {spread:.3g}"))
    else:
        rows.append(("what follows", f"no bounds: {trouble}"))
    rows.append(("", "of the system found, not of the one that made the data"))
    return rows


def _bounds(model: Any, found: Any) -> tuple[Any, str]:
    """Least and largest values of the response by the certificate, or why there are none."""
    if not found.applies:
        return None, found.reason
    error = float(model.response_error_.max())
    if not math.isfinite(error):
        return None, "the accuracy of the lags is not known"
    try:
        return found.bounds(error), ""
    except ValueError as refusal:
        return None, str(refusal)


def _payload(
    file: str, model: Any, found: Any, bounds: Any, scores: dict[str, float | None], seen: int, total: int, files: Any
) -> dict[str, Any]:
    payload: dict[str, Any] = {"ok": True, "command": "identify", "exit_code": 0, "file": file}
    payload |= {"rows": total, "rows_fitted": seen, "order": model.order_, "stable": bool(model.stable_)}
    payload |= {"poles": [[float(pole.real), float(pole.imag)] for pole in model.poles_]}
    payload |= {"spectral_radius": model.spectral_radius_, "memory": model.memory_, "states": model.states}
    payload |= {"r2_unseen": scores, "r2_held_out": _finite(model.held_out_score_)}
    payload |= {"errors_by_order": [_finite(float(error)) for error in model.order_errors_]}
    payload |= {"stopped_at": float(model.path_.times[model.path_.best]), "refined": bool(model.refined_)}
    payload["system"] = {name: getattr(model, f"{name}_").tolist() for name in "ABCD"}
    payload["system"] |= {n: getattr(model, f"{n}_").tolist() for n in ("input_offset", "output_offset")}
    payload["impulse_response"] = model.impulse_response_.tolist()
    constants = None if found.constants is None else [_finite(float(value)) for value in found.constants]
    payload["certificate"] = {"applies": found.applies, "reason": found.reason or None, "constants": constants}
    for name, place in (("lower", 0), ("upper", 1)):
        payload["certificate"][name] = None if bounds is None else bounds[place].tolist()
    return payload | {"files": [str(item) for item in files]}


def _score(truth: Any, guess: Any) -> float | None:
    """R², or nothing where there is no variance to explain."""
    import numpy as np

    spread = float(np.sum((truth - truth.mean()) ** 2)) if len(truth) else 0.0
    return 1 - float(np.sum((truth - guess) ** 2)) / spread if spread > 0 else None


def _number(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.4f}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _complex(value: complex) -> str:
    return f"{value.real:.4g}" if value.imag == 0 else f"{value.real:.4g} ± {abs(value.imag):.4g}i"


# --- Writing ----------------------------------------------------------------------------------------------------------


def _files(stem: Path) -> list[Path]:
    """Where model, response and predictions are written."""
    return [stem.with_name(f"{stem.name}-{part}") for part in ("model.npz", "response.csv", "predicted.csv")]


def _picture(stem: Path) -> Path:
    """Stem of the picture."""
    return stem.with_name(f"{stem.name}-identified")


def _write(
    stem: Path, model: Any, inputs: list[str], outputs: list[str], y: Any, predicted: Any, seen: int
) -> list[Path]:
    """The matrices, the response without feed-through, and measured beside predicted outputs."""
    import numpy as np

    files = _files(stem)
    offsets = {"input_offset": model.input_offset_, "output_offset": model.output_offset_}
    np.savez(files[0], A=model.A_, B=model.B_, C=model.C_, D=model.D_, **offsets)
    pairs = ",".join(f"{o} from {i}" for o in outputs for i in inputs)
    response = model.impulse_response_[1:].reshape(len(model.impulse_response_) - 1, -1)
    np.savetxt(files[1], response, delimiter=",", fmt="%.17g", header=f"C A^j B, row by row: {pairs}", encoding="utf-8")
    with files[2].open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["row", "seen", *outputs, *(f"{name} predicted" for name in outputs)])
        for index, (truth, guess) in enumerate(zip(y.tolist(), predicted.tolist(), strict=True)):
            writer.writerow([index + 1, int(index < seen), *(f"{value:.17g}" for value in (*truth, *guess))])
    return files


def _draw(
    written: Written,
    stem: str,
    name: str,
    model: Any,
    inputs: list[str],
    outputs: list[str],
    y: Any,
    predicted: Any,
    seen: int,
    bounds: Any,
) -> list[Path]:
    from deeplinear.plots import plot_identification, save_figure

    shown = model.impulse_response_
    drawn = None
    if bounds is not None:  # those of C A^j B, one entry later
        low, high = ([shown[0, 0, 0], *part[: len(shown) - 1]] for part in bounds)
        drawn = (low, high)
    try:
        figure = plot_identification(
            shown,
            y,
            predicted,
            inputs=inputs,
            outputs=outputs,
            known=model.memory_ + 1,
            test_from=seen,
            bounds=drawn,
            title=f"{name}: {model.order_} {'state' if model.order_ == 1 else 'states'}",
        )
        return written.write(lambda to: save_figure(figure, _picture(to / stem)))
    except (ImportError, ValueError) as error:
        say(f"dln: the tables are written, but there is no picture: {error}")
        return []
