"""`dln complete`: fill the gaps of a table."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from deeplinear.cli._limits import LAYERS, REPEATS, SIDE, check_memory
from deeplinear.cli._lines import as_number
from deeplinear.cli._options import choice, count, number, read_kind
from deeplinear.cli._shell import Code, UsageError, estimators, numerics, output_kept_pure, print_json, print_table, say
from deeplinear.cli._tables import EntryList, Table, names_of, read_entries, read_table, write_table
from deeplinear.cli._written import Written

Make = Callable[[Path], list[Path]]
"""Writes files into a folder."""

UNITS = {"columns": "one for each column", "one": "one for all", "none": "those of the data"}
"""What a choice of units is, in words."""

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
    force: bool,
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
        force: Replace files that the command did not write.
        as_json: Tell the result to programs.
    """
    if predict is not None and not entries:
        raise UsageError("--predict goes with --entries: it lists the rows and columns to predict.")
    if entries and predict is None:
        raise UsageError("--entries needs --predict FILE with the rows and columns to predict.")
    if entries and names[1]:
        raise UsageError("--index goes with tables; with --entries rows and columns may have any names.")
    chosen = _settings(settings)
    source: Table | Listed
    if predict is None:
        source = read_table(file, "DATA", gaps=True, header=names[0], index=names[1])
    else:
        known = read_entries(file, "DATA", header=names[0])
        source = _listed(known, read_entries(predict, "--predict", like=known))
    from deeplinear.cli._shell import pictures, to_write

    target = to_write(f"{Path(file).stem}-completed.csv" if out is None else out, "--out", ".csv")
    drawn = pictures(target.with_suffix(""))
    spread = [_spread_file(target)] if predict is None else []
    may = [target, *(spread if chosen.get("restarts", 1) > 1 else ()), *(() if no_plot else drawn)]
    read = {"DATA": file, "--predict": predict}
    written = Written("complete", may, force=force, read=read, others=[*spread, *drawn])
    numerics()
    from deeplinear.core import NumericalError
    from deeplinear.report import state_bar

    try:
        with output_kept_pure(), state_bar("completing") as state:

            def progress(now: Any) -> None:
                again = f"restart {now.restart + 1}/{now.restarts}, " if now.restarts > 1 else ""
                state(f"{again}level {now.level}, error {now.error:.3g}, held out {now.held_out:.3g}")

            fit = estimators().DeepMatrixCompletion(progress=progress, **chosen)
            if isinstance(source, Listed):
                make, pair = _entries(fit, source, target), (None, None)
            else:
                make, filled = _table(fit, source, target)
                pair = (source.values, filled)
    except NumericalError as error:
        say(f"dln: {error}")
        return Code.numerical
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    files = written.write(make)
    if not no_plot:
        files += _draw(fit, *pair, target, Path(file).name, written)
    written.finish(files)
    if as_json:
        print_json(_payload(file, fit, source, files))
        return Code.fine
    _tell(file, fit, source, files)
    return Code.fine


def _settings(given: dict[str, str | None]) -> dict[str, Any]:
    """Settings of the estimator; those that were not given keep its defaults."""
    kinds = {
        "depth": count(at_least=2, at_most=LAYERS),
        "width": count(at_most=SIDE),
        "scale": number(above=0),
        "held_out": number(at_least=0, at_most=0.9),
        "restarts": count(at_most=REPEATS),
        "offsets": choice("auto", "both", "rows", "columns", "mean", "none"),
        "scaling": choice("auto", "columns", "one", "none"),
        "random_state": count(at_least=0, at_most=2**32 - 1),
    }
    flags = {"random_state": "--seed", "held_out": "--held-out"}
    found = {
        name: read_kind(kinds[name], value, flags.get(name, f"--{name}"))
        for name, value in given.items()
        if value is not None
    }
    check_memory(found.get("width", 0) ** 2 * found.get("depth", 2), "a smaller --width or --depth")
    return found


def _spread_file(target: Path) -> Path:
    """Where the spread of restarts is written."""
    return target.with_stem(target.stem + "-spread")


def _table(fit: Any, table: Table, target: Path) -> tuple[Make, Any]:
    """Fill the gaps of a table; returns what writes it, with restarts also how much each entry depends on chance."""
    import numpy as np

    known = ~np.isnan(table.values)
    if known.all():
        say("dln: the table has no gaps; it is written as it is, and the fit says what is in it.")
    filled = fit.fit_transform(table.values)
    spread = fit.complete(return_std=True)[1] if fit.restarts > 1 else None

    def make(to: Path) -> list[Path]:
        files = [write_table(to / target.name, filled, table, known)]
        return files if spread is None else [*files, write_table(to / _spread_file(target).name, spread, table)]

    return make, filled


class Side(NamedTuple):
    """One side of a matrix that is given by entries: names in the order of the matrix, where the entries that are known
    stand, and where those that are asked for."""

    names: list[str]
    known: Any
    asked: Any


class Listed(NamedTuple):
    """A matrix that is given by entries, and the places to predict."""

    rows: Side
    columns: Side
    values: Any
    asked: EntryList


def _listed(known: EntryList, asked: EntryList) -> Listed:
    """Rows and columns by number from 0 on, or a refusal that names what is not known, or known twice."""
    import numpy as np

    rows, columns = (_side(word, known, asked, place) for place, word in enumerate(("row", "column")))
    places = rows.known.astype(np.int64) * len(columns.names) + columns.known
    order = np.argsort(places, kind="stable")
    twice = np.flatnonzero(np.diff(places[order]) == 0)
    if len(twice):
        first, second = order[twice[0]], order[twice[0] + 1]
        raise UsageError(
            f"DATA: each entry must be given once, but row {known.names[0][first]!r}, column {known.names[1][first]!r} "
            f"is in lines {known.lines[first]} and {known.lines[second]}."
        )
    return Listed(rows, columns, known.values, asked)


def _side(word: str, known: EntryList, asked: EntryList, place: int) -> Side:
    """Names of one side; those that are all numbers are compared as such, so that 7 and 7.0 are one."""
    import numpy as np

    numbers = [as_number(name) for name in known.names[place]]
    numeric = None not in numbers
    given = np.array(numbers if numeric else known.names[place])
    found, first, where = np.unique(given, return_index=True, return_inverse=True)
    at = {name: index for index, name in enumerate(found.tolist())}
    wanted = []
    for line, name in zip(asked.lines, asked.names[place], strict=True):
        index = at.get(as_number(name) if numeric else name)
        if index is None:
            raise UsageError(
                f"--predict: each {word} must occur in DATA, but {name!r} of line {line} does not; nothing is known "
                "about it."
            )
        wanted.append(index)
    return Side([known.names[place][index] for index in first], where, np.array(wanted))


def _entries(fit: Any, listed: Listed, target: Path) -> Make:
    """Predict entries from entries; returns what writes them, rows and columns called as they were asked for."""
    rows, columns = listed.rows, listed.columns
    fit.fit_entries(rows.known, columns.known, listed.values, shape=(len(rows.names), len(columns.names)))
    found = fit.predict_entries(rows.asked, columns.asked, return_std=fit.restarts > 1)
    values, spread = found if fit.restarts > 1 else (found, None)

    def make(to: Path) -> list[Path]:
        file = to / target.name
        with file.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow([*("row", "column", "value"), *([] if spread is None else ["spread"])])
            for place, (row, column) in enumerate(zip(*listed.asked.names, strict=True)):
                more = [] if spread is None else [f"{spread[place]:.4g}"]
                writer.writerow([row, column, f"{values[place]:.10g}", *more])
        return [file]

    return make


def _draw(fit: Any, known: Any, filled: Any, target: Path, name: str, written: Written) -> list[Path]:
    """Picture of the fit, with the matrix where one was filled."""
    from deeplinear.plots import plot_completion, save_figure

    try:
        figure = plot_completion(fit, known, filled, title=name)
        return written.write(lambda to: save_figure(figure, to / target.stem))
    except (ImportError, ValueError) as error:
        say(f"dln: the table is written, but there is no picture: {error}")
        return []


def _facts(fit: Any) -> dict[str, Any]:
    import math

    error = float(fit.held_out_error_)
    return {
        "rank": int(fit.rank_),
        "effective_rank": float(fit.effective_rank_),
        "held_out_error": error if math.isfinite(error) else None,
        "levels": int(fit.n_iter_),
        "method": fit.method_,
        "scaling": fit.scaling_,
    }


def _called(source: Table | Listed, rows: Any, columns: Any) -> tuple[list[str], list[str]]:
    """Names of some rows and columns."""
    if isinstance(source, Listed):
        return [source.rows.names[place] for place in rows], [source.columns.names[place] for place in columns]
    return names_of(source, rows), [source.columns[place] for place in columns]


def _doubtful(fit: Any, source: Table | Listed) -> tuple[tuple[str, tuple[list[str], list[str]]], ...]:
    """Names of rows and columns that cannot be determined, and of those that hardly can, each with words."""
    found = fit.mask_report_
    loose = _called(source, found.loose_rows, found.loose_columns)
    thin = _called(source, found.thin_rows, found.thin_columns)
    hardly = "with fewer known entries than the rank, to be read with care"
    return (("cannot be determined from the rest", loose), (hardly, thin))


def _payload(file: str, fit: Any, source: Table | Listed, files: list[Path]) -> dict[str, Any]:
    (_, loose), (_, thin) = _doubtful(fit, source)
    mask = {"parts": fit.mask_report_.parts, "loose_rows": loose[0], "loose_columns": loose[1]}
    mask |= {"thin_rows": thin[0], "thin_columns": thin[1]}
    head = {"ok": True, "command": "complete", "exit_code": 0, "data": file}
    return head | _facts(fit) | {"mask": mask, "files": [str(item) for item in files]}


def _tell(file: str, fit: Any, source: Table | Listed, files: list[Path]) -> None:
    facts, report = _facts(fit), fit.mask_report_
    error = facts["held_out_error"]
    (height, width), observed = report.shape, report.observed
    rows = [
        ("matrix", f"{height} x {width}, {observed:,} known ({observed / (height * width):.1%})"),
        ("network", f"depth {fit.depth}, trained by {facts['method']}, {facts['levels']} levels of the loss"),
        ("rank", f"{facts['rank']}   (effective rank {facts['effective_rank']:.3g})"),
        ("error", "no entries were held out" if error is None else f"{error:.4g}   (RMS on entries held out)"),
        ("units", UNITS[facts["scaling"]]),
    ]
    if report.parts > 1:
        rows.append(("note", f"the known entries fall into {report.parts} parts that are not joined"))
    if fit.offsets_ == "columns" and fit.offsets == "auto":
        rows.append(("offsets", "of columns only, as these are too unlike to be compared"))
    for why, both in _doubtful(fit, source):
        for word, names in zip(("rows", "columns"), both, strict=True):
            if names:
                shown = ", ".join(name or "(no name)" for name in names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
                count = f"{len(names)} {word if len(names) > 1 else word[:-1]}"
                rows.append(("note", f"{count} {why}: {shown}"))
    print_table(rows, title=file)
    print_table([("written", str(item)) for item in files])
