"""Tables of users: text files with a header line, names of rows, and gaps."""

import csv
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from deeplinear._about import read_float
from deeplinear.cli._files import read_array
from deeplinear.cli._lines import GAPS, TEXT, as_number, read_lines
from deeplinear.cli._shell import UsageError


@dataclasses.dataclass(frozen=True)
class Table:
    """Numbers with what stands around them.

    Attributes:
        values: Numbers, NaN where there is none.
        columns: Names of the columns; made up (`1`, `2`, …) if the file has none.
        labels: Names of the rows, or `None`.
        corner: What stands above the names of the rows.
        cells: The cells as they were written, or `None` for files of numbers.
        named: Whether the file has a header line.
        comma: What separates cells.
        words: Of columns that hold text, by place: where the first stands and what it is.
    """

    values: np.ndarray
    columns: tuple[str, ...]
    labels: tuple[str, ...] | None = None
    corner: str = ""
    cells: tuple[tuple[str, ...], ...] | None = None
    named: bool = False
    comma: str = ","
    words: Mapping[int, str] = dataclasses.field(default_factory=dict)


def read_table(
    path: str, where: str, *, gaps: bool = False, text: bool = False, header: bool | None = None, index: bool = False
) -> Table:
    """The table of a file: .csv, .tsv or .txt with or without a header line and names of rows, .npy or .npz.

    A first line of names is a header; above names of rows also one of numbers behind a name, and any whose first cell
    is empty. Names beside numbers in the first line are refused. A first column in which some cell is no number holds
    the names of the rows. All other cells must be numbers, or gaps or text where these are welcome.

    Args:
        path: The file.
        where: What it is called in messages.
        gaps: Whether cells may be empty.
        text: Whether cells may hold text; their values are NaN, and `without_gaps` refuses their columns.
        header: The first line is a header even if it looks like numbers; `None` where users cannot say so.
        index: The first column holds names even if they look like numbers.
    """
    if Path(path).suffix.lower() not in TEXT:
        values = read_array(path, where)
        if values.ndim != 2:
            raise UsageError(f"{where}: {path} must hold a matrix, but holds an array of shape {values.shape}.")
        if not gaps and np.isnan(values).any():
            row, column = np.argwhere(np.isnan(values))[0]
            raise UsageError(f"{where}: {path} must have no gaps, but row {row + 1}, column {column + 1} is NaN.")
        return Table(values, tuple(str(column + 1) for column in range(values.shape[1])))
    lines, comma = read_lines(path, where)
    named = header or _is_header(lines, f"{where}: the first line of {path}", header is not None)
    head, body = (lines[0][1] if named else []), lines[1:] if named else lines
    if not body:
        raise UsageError(f"{where}: {path} must hold numbers below its header line, but holds none.")
    width = len(head) if named else len(body[0][1])
    if named and all(len(cells) == width + 1 for _, cells in body):  # names of rows without a name above them
        head, width = ["", *head], width + 1
    for line, cells in body:
        if len(cells) != width:
            raise UsageError(f"{where}: each line of {path} must have {width} cells, but line {line} has {len(cells)}.")
    labelled = width > 1 and (index or any(_is_name(cells[0]) for _, cells in body))
    first = 1 if labelled else 0
    values = np.empty((len(body), width - first))
    words: dict[int, str] = {}
    names = tuple(head[first:]) if named else tuple(str(column + 1) for column in range(width - first))
    for place, (line, cells) in enumerate(body):
        for column, cell in enumerate(cells[first:]):
            number = _number(cell)
            if number is None or (not gaps and np.isnan(number)):
                found = f"line {line}, column '{names[column]}' holds '{cell}'"
                if number is not None or not text:
                    wanted = "a number or empty" if gaps else "a number"
                    raise UsageError(f"{where}: cells of {path} must be {wanted}, but {found}.")
                words.setdefault(column, found)
            values[place, column] = np.nan if number is None else number
    others = [name for column, name in enumerate(names) if column not in words]
    if named and not header and words and others and all(_number(name) is not None for name in others):
        raise UsageError(
            f"{where}: {path} must have a header line of names, as it holds text, but line {lines[0][0]} names columns "
            f"of numbers by numbers, such as '{others[0]}'; write names above them."
        )
    return Table(
        values,
        names,
        tuple(cells[0] for _, cells in body) if labelled else None,
        head[0] if named and labelled else "",
        tuple(tuple(cells[first:]) for _, cells in body),
        named,
        comma,
        words,
    )


def _is_header(lines: list[tuple[int, list[str]]], what: str, may_say: bool) -> bool:
    """Whether the first line holds names of columns, or a refusal if it holds names and numbers beside each other.

    Args:
        lines: All lines.
        what: What the first line is called in messages.
        may_say: Whether there is an option `--header`.
    """
    number, first = lines[0]
    labels = len(lines) > 1 and any(_is_name(cells[0]) for _, cells in lines[1:])
    if labels and first[0] == "":
        return True
    start = 1 if labels and len(first) > 1 and len(first) == len(lines[1][1]) else 0
    cells = [cell for cell in first[start:] if cell.lower() not in GAPS]
    names = [cell for cell in cells if _is_name(cell)]
    if names and len(names) < len(cells):
        advice = "; give --header if it names them" if may_say else ""
        found = f"line {number}, column {first.index(names[0], start) + 1} holds '{names[0]}' beside numbers"
        raise UsageError(f"{what} must name all columns or none, but {found}{advice}.")
    return bool(names) or (start > 0 and _is_name(first[0]) and None not in map(as_number, cells))


@dataclasses.dataclass(frozen=True)
class EntryList:
    """Entries of a matrix one by one; rows and columns may have any names.

    Attributes:
        names: Names of the row and of the column of each, as they were written.
        values: Value of each; none where places only are listed.
        lines: Line of the file in which each stands.
        head: Header line, if there is one.
    """

    names: tuple[tuple[str, ...], tuple[str, ...]]
    values: np.ndarray
    lines: tuple[int, ...]
    head: tuple[str, ...] = ()


def read_entries(path: str, where: str, *, header: bool = False, like: EntryList | None = None) -> EntryList:
    """A list of row, column, value, or of row, column where `like` is given; further columns are not read.

    The first line is a header if it holds no number and names no row and no column of other lines. Where there are no
    values it is one if it says the same as that of `like`, or row, column, or is text above numbers.

    Args:
        path: The file.
        where: What it is called in messages.
        header: The first line is a header even if it does not look like one.
        like: The entries beside which this list of places belongs.
    """
    wanted = ("row", "column", "value") if like is None else ("row", "column")
    if Path(path).suffix.lower() not in TEXT:
        numbers = read_table(path, where).values
        lines = [(place + 1, [f"{number:.17g}" for number in row]) for place, row in enumerate(numbers)]
    else:
        lines, _ = read_lines(path, where)
    for line, cells in lines:
        if len(cells) < len(wanted):
            raise UsageError(
                f"{where}: each line of {path} must have {', '.join(wanted)}, but line {line} has {len(cells)} "
                f"cell{'s' if len(cells) > 1 else ''}."
            )
    head = tuple(lines[0][1])
    if header or _is_head(head, lines[1:], like):
        lines = lines[1:]
    else:
        head = ()
    if not lines:
        raise UsageError(f"{where}: {path} must hold entries below its header line, but holds none.")
    values = np.zeros(0 if like is not None else len(lines))
    for place, (line, cells) in enumerate(lines):
        for name, cell in zip(wanted[:2], cells, strict=False):
            if not cell:
                raise UsageError(f"{where}: each {name} of {path} must have a name, but that of line {line} is empty.")
        if like is None:
            number = _number(cells[2])
            if number is None or np.isnan(number):
                raise UsageError(
                    f"{where}: each value of {path} must be a number, but line {line} holds {cells[2]!r}; leave out "
                    "entries that are not known."
                )
            values[place] = number
    rows, columns = (tuple(cells[place] for _, cells in lines) for place in range(2))
    return EntryList((rows, columns), values, tuple(line for line, _ in lines), head)


def _is_head(head: tuple[str, ...], body: list[tuple[int, list[str]]], like: EntryList | None) -> bool:
    """Whether the first line of a list of entries is a header."""
    others = [{cells[place] for _, cells in body} for place in range(2)]
    if like is None:
        words = all(_is_name(cell) for cell in head[:3])
        return words and not any(name in names for name, names in zip(head, others, strict=False))
    words = [word.lower() for word in head[:2]]
    if words == ["row", "column"] or words == [word.lower() for word in like.head[:2]]:
        return True
    return any(
        as_number(name) is None and names and all(as_number(other) is not None for other in names)
        for name, names in zip(head, others, strict=False)
    )


def column_places(table: Table, wanted: str, flag: str) -> list[int]:
    """Columns given by names or by numbers from 1 on, separated by commas."""
    found = []
    for word in (part.strip() for part in wanted.split(",")):
        if word in table.columns:
            found.append(table.columns.index(word))
        elif word.isascii() and word.isdecimal() and 1 <= int(word) <= len(table.columns):
            found.append(int(word) - 1)
        else:
            known = ", ".join(table.columns[:12]) + (", …" if len(table.columns) > 12 else "")
            raise UsageError(f"{flag}: '{word}' must be a column, by name or by number from 1 on. Known: {known}.")
    if len(set(found)) < len(found):
        raise UsageError(f"{flag}: each column must be named once, but is {wanted}.")
    return found


def with_own_names(table: Table, path: str, where: str) -> Table:
    """The table, if its columns have different names."""
    twice = [name for name in table.columns if table.columns.count(name) > 1]
    if twice:
        raise UsageError(f"{where}: {path} must have different column names, but '{twice[0]}' is there twice.")
    return table


def without_gaps(
    table: Table, places: Sequence[int], path: str, where: str, advice: str, flag: str | None = None
) -> np.ndarray:
    """The numbers of some columns, or a refusal that names the first text or gap and says what to do.

    Args:
        table: What was read.
        places: The columns.
        path: The file.
        where: What it is called in messages.
        advice: What to do about gaps.
        flag: The option by which columns could have been chosen, if they were not.
    """
    for place in places:
        if place in table.words:
            choose = "" if flag is None else f"; name the columns to take by {flag}"
            raise UsageError(f"{where}: cells of {path} must be a number or empty, but {table.words[place]}{choose}.")
    values = table.values[:, list(places)]
    gaps = np.argwhere(np.isnan(values))
    if len(gaps):
        row, column = gaps[0]
        raise UsageError(
            f"{where}: {path} must have no gaps in columns that are used, but row {names_of(table, [row])[0]}, column "
            f"'{table.columns[places[column]]}' is empty or NaN ({len(gaps)} such in all); {advice}."
        )
    return values


def check_columns(values: np.ndarray, names: Sequence[str], where: str) -> None:
    """Refuse columns so large or so small that they cannot be divided by their spreads."""
    from deeplinear.core import check_size

    try:
        for name, column in zip(names, values.T, strict=True):
            check_size(where, f"column '{name}'", column)
    except ValueError as error:
        raise UsageError(str(error)) from None


def write_table(file: Path, values: np.ndarray, like: Table, kept: np.ndarray | None = None) -> Path:
    """Write numbers in the form of a table that was read; cells marked by `kept` as they were written there."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter=like.comma, lineterminator="\n")
        corner = [] if like.labels is None else [like.corner]
        if like.named:
            writer.writerow([*corner, *like.columns])
        for place, row in enumerate(values):
            cells = [f"{number:.10g}" for number in row]
            if kept is not None and like.cells is not None:
                cells = [like.cells[place][j] if kept[place, j] else cell for j, cell in enumerate(cells)]
            writer.writerow([*([] if like.labels is None else [like.labels[place]]), *cells])
    return file


def _number(cell: str) -> float | None:
    """The number of a cell, NaN for a gap, `None` for other text."""
    if cell.lower() in GAPS:
        return float("nan")
    return as_number(cell)


def _is_name(cell: str) -> bool:
    """Whether a cell is neither a number, finite or not, nor a gap."""
    if cell.lower() in GAPS:
        return False
    try:
        read_float(cell)
    except ValueError:
        return True
    return False


def names_of(table: Table, places: Sequence[int] | np.ndarray) -> list[str]:
    """Names of rows, or their numbers from 1 on."""
    return [str(place + 1) if table.labels is None else table.labels[place] for place in places]
