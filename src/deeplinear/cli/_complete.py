"""`dln complete`: fill the gaps of a table."""

import csv
from pathlib import Path
from typing import Any

from deeplinear.cli._options import choice, count, number, read_kind
from deeplinear.cli._shell import Code, UsageError, estimators, numerics, output_kept_pure, print_json, print_table, say
from deeplinear.cli._tables import Table, names_of, read_table, write_table

SHOWN = 6
"""Rows and columns that are named in a message."""


def complete_command(
    file: str,
    out: str | None,
    entries: bool,
    predict: str | None,
    settings: dict[str, str | None],
    names: tuple[bool, bool],
    no_plot: bool,
    as_json: bool,
) -> Code:
    """Complete a table, or predict entries from entries; write the result; say what was found.

    Args:
        file: Table, or with `entries` a list of row, column, value.
        out: File to write.
        entries: Whether the file is such a list.
        predict: List of row, column to predict, with `entries`.
        settings: Of the estimator, as they were given.
        names: Whether the first line and the first column are names although they look like numbers.
        no_plot: Make no picture.
        as_json: Tell the result to programs.
    """
    if predict is not None and not entries:
        raise UsageError("--predict goes with --entries: it lists the rows and columns to predict.")
    if entries and predict is None:
        raise UsageError("--entries needs --predict FILE with the rows and columns to predict.")
    chosen = _settings(settings)
    table = read_table(file, "DATA", gaps=not entries, header=names[0], index=names[1])
    asked = None if predict is None else read_table(predict, "--predict")
    target = Path(f"{Path(file).stem}-completed.csv" if out is None else out)
    if target.suffix.lower() != ".csv":
        raise UsageError(f"--out must be a file that ends in .csv, but is {target}.")
    from deeplinear.cli._shell import folder

    folder(str(target.parent), "--out")
    numerics()
    from deeplinear.core import NumericalError
    from deeplinear.report import state_bar

    try:
        with output_kept_pure(), state_bar("completing") as state:

            def progress(now: Any) -> None:
                again = f"restart {now.restart + 1}/{now.restarts}, " if now.restarts > 1 else ""
                state(f"{again}level {now.level}, error {now.error:.3g}, held out {now.held_out:.3g}")

            fit = estimators().DeepMatrixCompletion(progress=progress, **chosen)
            if asked is not None:
                files, filled = _entries(fit, table, asked, target), None
            else:
                files, filled = _table(fit, table, target)
    except NumericalError as error:
        say(f"dln: {error}")
        return Code.numerical
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    if not no_plot:
        files += _draw(fit, table.values, filled, target)
    if as_json:
        print_json(_payload(file, fit, table, files))
        return Code.fine
    _tell(file, fit, table, files)
    return Code.fine


def _settings(given: dict[str, str | None]) -> dict[str, Any]:
    """Settings of the estimator; those that were not given keep its defaults."""
    kinds = {
        "depth": count(at_least=2),
        "width": count(),
        "scale": number(above=0),
        "held_out": number(at_least=0, at_most=0.9),
        "restarts": count(),
        "offsets": choice("auto", "both", "rows", "columns", "mean", "none"),
        "scaling": choice("auto", "columns", "one", "none"),
        "random_state": count(at_least=0, at_most=2**32 - 1),
    }
    flags = {"random_state": "--seed", "held_out": "--held-out"}
    return {
        name: read_kind(kinds[name], value, flags.get(name, f"--{name}"))
        for name, value in given.items()
        if value is not None
    }


def _table(fit: Any, table: Table, target: Path) -> tuple[list[Path], Any]:
    """Fill the gaps of a table, and write it; with restarts also how much each entry depends on chance."""
    import numpy as np

    known = ~np.isnan(table.values)
    if known.all():
        say("dln: the table has no gaps; it is written as it is, and the fit says what is in it.")
    filled = fit.fit_transform(table.values)
    files = [write_table(target, filled, table, known)]
    if fit.restarts > 1:
        spread = fit.complete(return_std=True)[1]
        files.append(write_table(target.with_stem(target.stem + "-spread"), spread, table))
    return files, filled


def _entries(fit: Any, table: Table, asked: Table, target: Path) -> list[Path]:
    """Predict entries from entries; rows and columns may be called by any whole numbers."""
    import numpy as np

    for name, found, least in (("DATA", table, 3), ("--predict", asked, 2)):
        if found.values.shape[1] < least:
            wanted = "row, column, value" if least == 3 else "row, column"
            raise UsageError(f"{name} must have the columns {wanted}, but has {found.values.shape[1]}.")
    sides = []
    for place in range(2):
        known, places = np.unique(table.values[:, place], return_inverse=True)
        wanted = asked.values[:, place]
        index = np.searchsorted(known, wanted).clip(max=len(known) - 1)
        missing = known[index] != wanted
        if missing.any():
            line, word = int(np.argmax(missing)), ("row", "column")[place]
            raise UsageError(
                f"--predict: each {word} must occur in DATA, but {word} {wanted[line]:g} of entry {line + 1} does not; "
                "nothing is known about it."
            )
        sides.append((places, index, len(known)))
    (rows, asked_rows, height), (columns, asked_columns, width) = sides
    fit.fit_entries(rows, columns, table.values[:, 2], shape=(height, width))
    found = fit.predict_entries(asked_rows, asked_columns, return_std=fit.restarts > 1)
    values, spread = found if fit.restarts > 1 else (found, None)
    with target.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow([*("row", "column", "value"), *([] if spread is None else ["spread"])])
        for place, (row, column, *_) in enumerate(asked.values):
            more = [] if spread is None else [f"{spread[place]:.4g}"]
            writer.writerow([f"{row:.15g}", f"{column:.15g}", f"{values[place]:.10g}", *more])
    return [target]


def _draw(fit: Any, known: Any, filled: Any, target: Path) -> list[Path]:
    """Picture of the fit, with the matrix where one was filled."""
    from deeplinear.plots import plot_completion, save_figure

    try:
        figure = plot_completion(fit, known, filled, title=target.stem)
        return save_figure(figure, target.with_suffix(""))
    except (ImportError, ValueError) as error:
        say(f"dln: the table is written, but there is no picture: {error}")
        return []


def _facts(fit: Any) -> dict[str, Any]:
    import math

    error = float(fit.held_out_error_)
    return {
        "rank": int(fit.rank_),
        "effective_rank": float(fit.effective_rank_path_[fit.path_.best]),
        "held_out_error": error if math.isfinite(error) else None,
        "levels": int(fit.n_iter_),
        "method": fit.method_,
        "scaling": fit.scaling_,
    }


def _loose(fit: Any, table: Table) -> tuple[list[str], list[str]]:
    """Names of rows and columns that cannot be determined; of a list of entries, their numbers in increasing order."""
    report = fit.mask_report_
    if table.values.shape == report.connectivity.shape:
        return names_of(table, report.loose_rows), [table.columns[place] for place in report.loose_columns]
    rows, columns = ([str(place + 1) for place in loose] for loose in (report.loose_rows, report.loose_columns))
    return rows, columns


def _payload(file: str, fit: Any, table: Table, files: list[Path]) -> dict[str, Any]:
    rows, columns = _loose(fit, table)
    mask = {"parts": len(fit.mask_report_.connectivity.components), "loose_rows": rows, "loose_columns": columns}
    head = {"ok": True, "command": "complete", "exit_code": 0, "data": file}
    return head | _facts(fit) | {"mask": mask, "files": [str(item) for item in files]}


def _tell(file: str, fit: Any, table: Table, files: list[Path]) -> None:
    facts, report = _facts(fit), fit.mask_report_
    error = facts["held_out_error"]
    height, width = report.connectivity.shape
    observed = sum(len(part.entries) for part in report.connectivity.components)
    rows = [
        ("matrix", f"{height} x {width}, {observed:,} known ({observed / (height * width):.1%})"),
        ("network", f"depth {fit.depth}, trained by {facts['method']}, {facts['levels']} levels of the loss"),
        ("rank", f"{facts['rank']}   (effective rank {facts['effective_rank']:.3g})"),
        ("error", "no entries were held out" if error is None else f"{error:.4g}   (RMS on entries held out)"),
        ("units", "one for each column" if facts["scaling"] == "columns" else "one for all"),
    ]
    parts = len(report.connectivity.components)
    if parts > 1:
        rows.append(("note", f"the known entries fall into {parts} parts that are not joined"))
    if fit.offsets_ == "columns" and fit.offsets == "auto":
        rows.append(("offsets", "of columns only, as these are too unlike to be compared"))
    for word, names in zip(("rows", "columns"), _loose(fit, table), strict=True):
        if names:
            shown = ", ".join(name or "(no name)" for name in names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
            count = f"{len(names)} {word if len(names) > 1 else word[:-1]}"
            rows.append(("note", f"{count} cannot be determined from the rest: {shown}"))
    print_table(rows, title=file)
    print_table([("written", str(item)) for item in files])
