"""Numbers from files: .npy, .npz, .csv, .tsv, .txt."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deeplinear._about import read_float
from deeplinear.cli._lines import GAPS, TEXT, read_lines
from deeplinear.cli._shell import UsageError, one_line

ENDINGS = (".npy", ".npz", *TEXT)


def flag(where: str) -> str:
    """How a setting is called on the command line; arguments have no dashes, and what has some is called so already."""
    return where if where.isupper() or where.startswith("-") else f"--{where}"


def read_array(path: str, where: str) -> np.ndarray:
    """The array of a file, as floating-point numbers; `where` names the setting in messages.

    An .npz with several arrays must hold one that is called like the setting.
    """
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(f"{flag(where)}: file must end in {', '.join(ENDINGS)}, but is {path}.")
    if ending in (".npy", ".npz"):
        content = _opened(path, where, lambda: np.load(path, allow_pickle=False))
        if isinstance(content, np.ndarray):
            return _numbers(content, path, where)
        with content:
            names, own = list(content.files), where.removeprefix("--")
            if len(names) != 1 and own not in names:
                raise UsageError(
                    f"{flag(where)}: {path} must hold one array, or one called '{own}', but holds {names}."
                )
            name = own if own in names else names[0]
            return _numbers(_opened(path, where, lambda: content[name]), path, where)
    return _text(path, where)


def read_layers(path: str, where: str) -> tuple[np.ndarray, ...]:
    """Layers of an .npz, in the order of the numbers in their names, first-acting first."""
    content = _opened(path, where, lambda: np.load(path, allow_pickle=False))
    if isinstance(content, np.ndarray):
        raise UsageError(f"{flag(where)}: {path} must be an .npz of layers W1, W2, …, but holds one array.")
    with content:
        names = list(content.files)
        digits = {name: "".join(c for c in name if "0" <= c <= "9") for name in names}
        if not names or not all(digits.values()) or len(set(map(int, digits.values()))) < len(names):
            raise UsageError(f"{flag(where)}: {path} must hold layers called W1, W2, …, but holds {names}.")
        ordered = sorted(names, key=lambda name: int(digits[name]))
        return tuple(_numbers(_opened(path, where, lambda n=name: content[n]), path, where) for name in ordered)


def read_named(path: str, where: str, names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """Arrays of an .npz by their names."""
    content = _opened(path, where, lambda: np.load(path, allow_pickle=False))
    if isinstance(content, np.ndarray):
        raise UsageError(f"{flag(where)}: {path} must be an .npz of {', '.join(names)}, but holds one array.")
    with content:
        if not set(names) <= set(content.files):
            raise UsageError(f"{flag(where)}: {path} must hold {', '.join(names)}, but holds {content.files}.")
        return tuple(_numbers(_opened(path, where, lambda n=name: content[n]), path, where) for name in names)


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


def _opened(path: str, where: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except OSError as error:
        raise UsageError(f"{flag(where)}: {path} must be a readable file, but: {error.strerror or error}.") from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        text = one_line(error).rstrip(".")
        if "pickle" in text:  # NumPy takes what is none of its own files for Python objects.
            text = "it holds Python objects" if _made_by_numpy(path) else "it is no file of NumPy"
        raise UsageError(f"{flag(where)}: {path} must be a well-formed file of numbers, but: {text}.") from None


def _made_by_numpy(path: str) -> bool:
    """Whether a file begins as an array or an archive of arrays does."""
    with open(path, "rb") as file:
        return file.read(6).startswith((b"\x93NUMPY", b"PK"))


def _numbers(array: np.ndarray, path: str, where: str) -> np.ndarray:
    if array.dtype.kind not in "biuf":
        raise UsageError(f"{flag(where)}: {path} must hold real numbers, but holds values of type {array.dtype}.")
    return array.astype(float)
