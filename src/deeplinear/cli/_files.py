"""Numbers from files: .npy, .npz, .csv, .tsv, .txt."""

from pathlib import Path

import numpy as np

from deeplinear._about import read_float
from deeplinear.cli._lines import GAPS, TEXT, read_lines
from deeplinear.cli._shell import UsageError
from deeplinear.readers import Source, StoredArray, check_together, open_arrays

ENDINGS = (".npy", ".npz", *TEXT)

MOST_LAYERS_DIGITS = 9
"""Digits of the number of a layer."""


def flag(where: str) -> str:
    """How a setting is called on the command line; arguments have no dashes, and what has some is called so already."""
    return where if where.isupper() or where.startswith("-") else f"--{where}"


def read_array(path: str, where: str) -> np.ndarray:
    """Return the array of a file, as floating-point numbers; `where` names the setting in messages.

    An .npz with several arrays must hold one that is called like the setting.
    """
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(f"{flag(where)}: file must end in {', '.join(ENDINGS)}, but is {path}.")
    if ending in TEXT:
        return _text(path, where)
    found, own = open_arrays(Source.of(path, flag(where))), where.removeprefix("--")
    if len(found) != 1 and own not in found:
        raise UsageError(
            f"{flag(where)}: {path} must hold one array, or one called '{own}', but holds {_names(found)}."
        )
    return _numbers([found[own] if own in found else next(iter(found.values()))], path, where)[0]


def read_layers(path: str, where: str) -> tuple[np.ndarray, ...]:
    """Return the layers of an .npz, in the order of the numbers in their names, first-acting first."""
    found = _archive(path, where, "an .npz of layers W1, W2, …")
    digits = {name: "".join(c for c in name if "0" <= c <= "9") for name in found}
    short = all(0 < len(number) <= MOST_LAYERS_DIGITS for number in digits.values())
    if not found or not short or len(set(map(int, digits.values()))) < len(found):
        raise UsageError(f"{flag(where)}: {path} must hold layers called W1, W2, …, but holds {_names(found)}.")
    ordered = sorted(found, key=lambda name: int(digits[name]))
    return _numbers([found[name] for name in ordered], path, where)


def read_named(path: str, where: str, names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """Return arrays of an .npz by their names."""
    found = _archive(path, where, f"an .npz of {', '.join(names)}")
    if not set(names) <= set(found):
        raise UsageError(f"{flag(where)}: {path} must hold {', '.join(names)}, but holds {_names(found)}.")
    return _numbers([found[name] for name in names], path, where)


def names_in(path: str, where: str) -> list[str]:
    """Return the names of the arrays of an .npz."""
    return list(_archive(path, where, "an .npz"))


def _archive(path: str, where: str, wanted: str) -> dict[str, StoredArray]:
    found = open_arrays(Source.of(path, flag(where)))
    if any(array.member is None for array in found.values()):
        raise UsageError(f"{flag(where)}: {path} must be {wanted}, but holds one array.")
    return found


def _names(found: dict[str, StoredArray]) -> str:
    """Return the first names of arrays, as a list."""
    some = [name[:40] for name in list(found)[:8]]
    return f"{some}" if len(found) <= len(some) else f"{len(found)} arrays such as {some}"


def _text(path: str, where: str) -> np.ndarray:
    """The numbers of a text file below its header line, if it has one: a first line of names only."""
    lines, _ = read_lines(path, flag(where), comments=True)
    if all(cell[:1].isalpha() and cell.lower() not in GAPS and _real(cell) is None for cell in lines[0][1]):
        lines = lines[1:]
    if not lines:
        raise UsageError(f"{flag(where)}: {path} must hold numbers below its header line, but holds none.")
    values = [[_real(cell) for cell in cells] for _, cells in lines]
    first, width = lines[0][0], len(values[0])
    for (line, cells), row in zip(lines, values, strict=True):
        fault = f"line {line} has {len(row)} numbers, line {first} has {width}" if len(row) != width else ""
        if None in row:
            column = row.index(None)
            fault = f"line {line}, column {column + 1} holds {cells[column]!r}"
        if fault:
            raise UsageError(f"{flag(where)}: {path} must be a well-formed file of numbers, but: {fault}.")
    return np.array(values, dtype=float)


def _real(cell: str) -> float | None:
    """The number of a cell, infinite or NaN ones included; `None` for other text."""
    try:
        return read_float(cell)
    except ValueError:
        return None


def _numbers(arrays: list[StoredArray], path: str, where: str) -> tuple[np.ndarray, ...]:
    """Return real arrays as floating-point numbers; others are refused before they are read."""
    for array in arrays:
        if array.dtype.kind not in "biufO":
            raise UsageError(f"{flag(where)}: {path} must hold real numbers, but holds values of type {array.dtype}.")
    check_together(arrays)
    with np.errstate(invalid="ignore"):  # signalling NaNs become quiet ones
        return tuple(array.read().astype(float) for array in arrays)
