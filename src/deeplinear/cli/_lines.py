"""Lines of text files of numbers, cut into cells."""

import csv
import re
from pathlib import Path

from deeplinear._about import read_float
from deeplinear.cli._shell import UsageError
from deeplinear.readers import Source

TEXT = (".csv", ".tsv", ".txt")
"""Endings of text files."""

GAPS = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-", "."})
"""What a cell without a number may hold, in small letters."""

DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+(e[+-]?[0-9]+)?", re.IGNORECASE)
"""A number with a comma where a point belongs."""


def read_lines(path: str, where: str, *, comments: bool = False) -> tuple[list[tuple[int, list[str]]], str]:
    """Numbered lines that are not empty, cut into cells, and what separates these.

    The first line tells what separates cells: commas, semicolons or tabs, of which it has most; in a .txt without any
    of them spaces do, and those at the ends of lines separate nothing. A mark of the byte order is passed over.
    Cells with decimal commas are refused.

    Args:
        path: The file.
        where: What it is called in messages.
        comments: What follows `#` is not read, and white space of any kind separates cells of a .txt.
    """
    rows = Source.of(path, where).text().splitlines()
    spaced = Path(path).suffix.lower() == ".txt"
    if comments:
        rows = [row.partition("#")[0] for row in rows]
    first = next((row for row in rows if row.strip()), "")
    counts = {mark: first.count(mark) for mark in (",", ";", "\t")}
    if comments and spaced:
        del counts["\t"]
    comma = max(counts, key=lambda mark: counts[mark])
    if not counts[comma]:
        comma = " " if spaced else ","
    if comma == ",":
        comma = next((mark for mark in (";", "\t", " ") if _has_decimal_commas(first, mark)), comma)
    if comma == " ":
        rows = [" ".join(row.split()) if comments else row.strip() for row in rows]
    reader = csv.reader(rows, delimiter=comma, skipinitialspace=True)
    try:
        found = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if _says(cells)]
    except csv.Error as error:
        raise UsageError(f"{where}: {path} must be a table, but line {reader.line_num} is none: {error}.") from None
    if not found:
        raise UsageError(f"{where}: {path} must hold a table, but is empty.")
    for line, cells in found:
        for place, cell in enumerate(cells):
            if "," in cell and DECIMAL_COMMA.fullmatch(cell):
                above = found[0][1][place : place + 1]
                name = f" ('{above[0]}')" if line > found[0][0] and above and as_number(above[0]) is None else ""
                raise UsageError(
                    f"{where}: numbers of {path} must have decimal points and no commas, but line {line}, column "
                    f"{place + 1}{name} holds '{cell}'; write 1.5 for 1,5."
                )
    return found, comma


def as_number(text: str) -> float | None:
    """The finite number that a text is, if it is one."""
    try:
        value = read_float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def _has_decimal_commas(line: str, mark: str) -> bool:
    """Whether a line that is cut at a mark is numbers, some of them with decimal commas."""
    cells = [cell.strip() for cell in line.split(mark) if cell.strip()]
    commas = [cell for cell in cells if DECIMAL_COMMA.fullmatch(cell)]
    return len(cells) > 1 and bool(commas) and all(cell in commas or as_number(cell) is not None for cell in cells)


def _says(cells: list[str]) -> bool:
    """Whether a line is not empty; one of separators alone has gaps."""
    return bool("".join(cells).strip() or cells[1:])
