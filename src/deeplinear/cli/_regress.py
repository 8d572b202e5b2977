"""`dln regress`: columns of a table from others, by a deep linear network that is stopped in time."""

import csv
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from deeplinear.cli._limits import LAYERS, REPEATS, SIDE, TIME, check_memory
from deeplinear.cli._options import choice, count, number, read_kind
from deeplinear.cli._shell import (
    Code,
    UsageError,
    estimators,
    numerics,
    one_line,
    output_kept_pure,
    print_json,
    print_table,
    say,
)
from deeplinear.cli._tables import Table, check_columns, column_places, read_table, with_own_names, without_gaps
from deeplinear.cli._written import Written

SHOWN = 12
"""Modes and columns that a table shows at most."""

MODEL = ("layers.npz", "regression.npz", "coefficients.csv")
"""Files of the model."""

PREDICTED = "predictions.csv"
"""File of what is predicted."""

PICTURE = "regression"
"""Stem of the picture."""


def regress_command(
    file: str,
    targets: str,
    features: str | None,
    depth: str,
    width: str | None,
    scale: str,
    method: str,
    whiten: bool,
    raw: bool,
    held_out: str,
    folds: str,
    time: str | None,
    seed: str | None,
    predict: str | None,
    header: bool,
    out: str,
    no_plot: bool,
    force: bool,
    as_json: bool,
) -> Code:
    """Fit, say what was learnt and when, write model, path and predictions; gives the exit code."""
    settings: dict[str, Any] = {
        "depth": read_kind(count(at_most=LAYERS), depth, "--depth"),
        "width": None if width is None else read_kind(count(at_most=SIDE), width, "--width"),
        "scale": read_kind(number(above=0, at_most=1), scale, "--scale"),
        "method": read_kind(choice("auto", "flow", "closed-form"), method, "--method").replace("-", " "),
        "whiten": True if whiten else "auto",
        "held_out": read_kind(number(at_least=0, at_most=0.9), held_out, "--held-out"),
        "folds": read_kind(count(at_most=REPEATS), folds, "--folds"),
        "time": None if time is None else read_kind(number(above=0, at_most=TIME), time, "--time"),
        "random_state": read_kind(count(at_least=0, at_most=2**32 - 1), seed or "0", "--seed"),
    }
    check_memory((settings["width"] or 0) ** 2 * settings["depth"], "a smaller --width or --depth")
    table = _checked(file, "DATA", header)
    wanted = _columns(table, targets, "--targets")
    given = [name for name in table.columns if name not in wanted]
    given = given if features is None else _columns(table, features, "--features")
    both = [name for name in given if name in wanted]
    if both:
        raise UsageError(f"--features must not name a target, but names {both[0]!r}.")
    if not given:
        raise UsageError(f"DATA must hold a column besides the targets, but {file} holds {_list(table.columns)}.")
    X = _numbers(table, given, file, "DATA", "--features" if features is None else None)
    Y = _numbers(table, wanted, file, "DATA")
    new = None if predict is None else _numbers(_checked(predict, "--predict", header), given, predict, "--predict")
    numerics()
    from deeplinear.cli._shell import folder, pictures

    place = folder(out)
    others = [place / PREDICTED, *pictures(place / PICTURE)]
    may = [place / name for name in (*MODEL, *(() if new is None else (PREDICTED,)))]
    may += [] if no_plot else pictures(place / PICTURE)
    written = Written("regress", may, force=force, read={"DATA": file, "--predict": predict}, others=others)
    from deeplinear.core import NumericalError

    if not raw:
        check_columns(X, given, "DATA")
        check_columns(Y, wanted, "DATA")
    units = Units.of(X, Y, wanted, raw)

    try:
        model, notes = _fit(units.inner(X), units.inner_targets(Y), settings)
    except NumericalError as error:
        say(f"dln: {error}")
        return Code.numerical
    coef, intercept = units.outer(model)
    files = written.write(lambda to: _write(to, model, units, coef, intercept, given, wanted))
    if new is not None:
        values = new @ coef.T + intercept
        files += written.write(lambda to: [_predictions(to / PREDICTED, values, wanted)])
    if not no_plot:
        files += _draw(written, model, Path(file).name)
    written.finish(files)
    if as_json:
        print_json(_payload(file, model, coef, intercept, given, wanted, len(X), notes, files))
    else:
        inner = units.inner(X)
        last = model.predict(inner, time=model.times_[-1])
        scores = [_score(units.inner_targets(Y), found) for found in (model.predict(inner), last)]
        _tell(file, model, given, wanted, scores, len(X), files)
    for note in notes:
        say(f"dln: {note}")
    return Code.fine


# --- Columns ----------------------------------------------------------------------------------------------------------


def _columns(table: Table, wanted: str, flag: str) -> list[str]:
    """Names of the columns that are meant."""
    return [table.columns[place] for place in column_places(table, wanted, flag)]


def _checked(path: str, flag: str, header: bool) -> Table:
    """A table whose columns have different names."""
    return with_own_names(read_table(path, flag, gaps=True, text=True, header=header), path, flag)


def _numbers(table: Table, wanted: list[str], path: str, flag: str, choose: str | None = None) -> Any:
    """The numbers of some columns, (row, column), or a refusal that names the first text or gap; `choose` is the option
    by which columns could have been chosen."""
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        raise UsageError(f"{flag}: {path} must have the column {missing[0]!r}, but has {_list(table.columns)}.")
    places = [table.columns.index(name) for name in wanted]
    advice = "fill them in, for instance by dln complete, or leave them out"
    return without_gaps(table, places, path, flag, advice, choose)


# --- Fitting ----------------------------------------------------------------------------------------------------------


class Units(NamedTuple):
    """Means and spreads of columns, in whose units the network learns."""

    mean_x: Any
    std_x: Any
    mean_y: Any
    std_y: Any

    @staticmethod
    def of(X: Any, Y: Any, targets: list[str], raw: bool) -> "Units":
        """Of data, spreads being 1 where columns are to be left as they are or are constant."""
        import numpy as np

        constant = np.flatnonzero(np.ptp(Y, axis=0) == 0)
        if len(constant):
            raise UsageError(f"--targets: column {targets[constant[0]]!r} must vary, but holds one number only.")
        spreads = [np.ones(part.shape[1]) for part in (X, Y)]
        if not raw:
            spreads = [np.where(np.ptp(part, axis=0) > 0, part.std(axis=0), 1.0) for part in (X, Y)]
        return Units(X.mean(axis=0), spreads[0], Y.mean(axis=0), spreads[1])

    def inner(self, X: Any) -> Any:
        """Features in these units."""
        return (X - self.mean_x) / self.std_x

    def inner_targets(self, Y: Any) -> Any:
        """Targets in these units."""
        return (Y - self.mean_y) / self.std_y

    def outer(self, model: Any) -> tuple[Any, Any]:
        """Coefficients and intercepts for the columns as they are."""
        coef = self.std_y[:, None] * model.coef_ / self.std_x
        return coef, self.mean_y + self.std_y * model.intercept_ - coef @ self.mean_x


def _fit(X: Any, Y: Any, settings: dict[str, Any]) -> tuple[Any, list[str]]:
    """The model, and what is to be said of its fit."""
    from deeplinear.cli._interrupt import interrupts_raise, watched
    from deeplinear.report import progress_bar

    interrupts_raise()
    try:
        with output_kept_pure(), progress_bar("regress") as progress, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = estimators().DeepLinearRegressor(**settings, progress=watched(progress)).fit(X, Y)
    except (ValueError, TypeError) as error:
        raise UsageError(one_line(error)) from None
    return model, [one_line(item.message) for item in caught]


# --- What is left of it -----------------------------------------------------------------------------------------------


def _order(model: Any) -> Any:
    """Modes by the time at which they were learnt."""
    import numpy as np

    return np.argsort(model.learning_times_, kind="stable")


def _score(Y: Any, found: Any) -> float:
    """R², mean over targets."""
    return float((1 - ((Y - found) ** 2).mean(axis=0) / Y.var(axis=0)).mean())


def _tell(
    file: str,
    model: Any,
    features: list[str],
    targets: list[str],
    scores: list[float],
    rows: int,
    files: list[Path],
) -> None:
    table = [
        ("rows", str(rows)),
        ("features", _list(features)),
        ("targets", _list(targets)),
        ("network", " → ".join(map(str, [model.layers_[0].shape[1], *(len(layer) for layer in model.layers_)]))),
        ("found by", model.method_ + (", inputs whitened" if model.whitening_ is not None else "")),
    ]
    if model.validation_path_ is None:
        table.append(("stopped at", f"t = {model.stopping_time_:.6g}, the end of the path"))
    else:
        table.append(("stopped at", f"t = {model.stopping_time_:.6g} of {model.times_[-1]:.6g}"))
        table.append(("R² held out", f"{model.held_out_score_:.4f}   (on the rows that chose the time)"))
    table.append(("R² on all rows", f"{scores[0]:.4f}   (at the end of the path {scores[1]:.4f})"))
    print_table(table, title=f"{file}: regression at depth {len(model.layers_)}")
    best = int(abs(model.times_ - model.stopping_time_).argmin())
    body = []
    for position, mode in enumerate(_order(model)[:SHOWN], start=1):
        when = model.learning_times_[mode]
        late = f"not by {model.times_[-1]:.4g}" if model.limit_modes_[mode] > 0 else "never"
        word = late if math.isinf(when) else f"{when:.4g}"
        word += " (after the stop)" if model.stopping_time_ < when < math.inf else ""
        body.append((str(position), f"{model.strengths_[best, mode]:.4g}", f"{model.limit_modes_[mode]:.4g}", word))
    header = ("mode", "strength", "limit", "half at t")
    print_table(body, title="modes of least squares, as they are learnt", header=header)
    if len(model.learning_times_) > SHOWN:
        print_table([(f"and {len(model.learning_times_) - SHOWN} more, see regression.npz",)])
    print_table([("written", str(item)) for item in files])


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f", … ({len(names)} in all)" if len(names) > SHOWN else "")


def _payload(
    file: str,
    model: Any,
    coef: Any,
    intercept: Any,
    features: list[str],
    targets: list[str],
    rows: int,
    notes: list[str],
    files: list[Path],
) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return value if math.isfinite(value) else None

    payload: dict[str, Any] = {"ok": True, "command": "regress", "exit_code": 0, "file": file, "rows": rows}
    payload |= {"features": features, "targets": targets, "depth": len(model.layers_), "method": model.method_}
    payload |= {"whitened": model.whitening_ is not None, "converged": bool(model.converged_)}
    payload |= {"stopping_time": model.stopping_time_, "end_time": float(model.times_[-1])}
    payload |= {"held_out_r2": plain(model.held_out_score_), "time_unit": float(model.time_unit_)}
    best = int(abs(model.times_ - model.stopping_time_).argmin())
    payload["modes"] = [
        {
            "strength": float(model.strengths_[best, mode]),
            "least_squares": float(model.limit_modes_[mode]),
            "learning_time": plain(float(model.learning_times_[mode])),
        }
        for mode in _order(model)
    ]
    payload |= {"coefficients": coef.tolist(), "intercept": intercept.tolist()}
    return payload | {"notes": notes, "files": [str(item) for item in files]}


def _write(
    place: Path, model: Any, units: Units, coef: Any, intercept: Any, features: list[str], targets: list[str]
) -> list[Path]:
    """Layers as they learnt, and all that is known of the model, as arrays; coefficients as a table."""
    import numpy as np

    layers, known, table = (place / name for name in MODEL)
    np.savez(layers, **{f"W{i}": layer for i, layer in enumerate(model.layers_, start=1)})
    arrays = {
        "coefficients": coef,
        "intercept": intercept,
        "features": np.array(features),
        "targets": np.array(targets),
    }
    arrays |= {f"units_{name}": value for name, value in units._asdict().items()}
    arrays |= {"times": model.times_, "modes": model.modes_, "limit_modes": model.limit_modes_}
    arrays["strengths"] = model.strengths_
    arrays |= {"learning_times": model.learning_times_, "stopping_time": np.asarray(model.stopping_time_)}
    arrays["training_error"] = model.training_path_
    if model.validation_path_ is not None:
        arrays["held_out_error"] = model.validation_path_
    if model.whitening_ is not None:
        arrays["whitening"] = model.whitening_
    np.savez(known, **arrays)
    with table.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["", *targets])
        writer.writerow(["intercept", *(f"{value:.17g}" for value in intercept)])
        for name, row in zip(features, coef.T, strict=True):
            writer.writerow([name, *(f"{value:.17g}" for value in row)])
    return [layers, known, table]


def _predictions(file: Path, values: Any, targets: list[str]) -> Path:
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(targets)
        writer.writerows([[f"{value:.17g}" for value in row] for row in values])
    return file


def _draw(written: Written, model: Any, name: str) -> list[Path]:
    """Modes and errors over time, with a line at the stop and its name above the panel."""
    import numpy as np

    from deeplinear.core import RESULTS, Trajectory
    from deeplinear.plots import REST, plot_trajectory, save_figure

    values = {"singular_values": model.modes_, "training_error": model.training_path_}
    if model.validation_path_ is not None:
        values["error_on_rows_held_out"] = model.validation_path_
    path = Trajectory(
        times=model.times_,
        values=values,
        dims={key: ("mode",) if key == "singular_values" else () for key in values},
        params=tuple(model.layers_),
        results=np.asarray(int(RESULTS.completed)),
        fired=np.asarray(0),
        rules=(),
        lengths=np.asarray(len(model.times_)),
        stats={},
        info={"clock": "time"},
    )
    try:
        figure = plot_trajectory(path, time_scale="log", title=f"{name}: how the network learns")
        for axes in figure.axes if model.stopping_time_ > 0 else ():
            axes.axvline(model.stopping_time_, color=REST, linestyle="--", zorder=1)
            place = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "bottom", "fontsize": 8}
            axes.text(model.stopping_time_, 1.01, "stopped", **place)
        return written.write(lambda to: save_figure(figure, to / PICTURE))
    except (ImportError, ValueError) as error:
        say(f"dln: the model is written, but there is no picture: {error}")
        return []
