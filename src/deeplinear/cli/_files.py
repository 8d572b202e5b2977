"""Numbers from files: .npy, .npz, .csv, .txt."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deeplinear.cli._shell import UsageError, one_line

ENDINGS = (".npy", ".npz", ".csv", ".txt")


def flag(where: str) -> str:
    """How a setting is called on the command line; arguments have no dashes."""
    return where if where.isupper() else f"--{where}"


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
            names = list(content.files)
            if len(names) != 1 and where not in names:
                raise UsageError(
                    f"{flag(where)}: {path} must hold one array, or one called '{where}', but holds {names}."
                )
            name = where if where in names else names[0]
            return _numbers(_opened(path, where, lambda: content[name]), path, where)
    comma = "," if ending == ".csv" else None
    return _opened(path, where, lambda: _text(path, comma))


def read_layers(path: str, where: str) -> tuple[np.ndarray, ...]:
    """Layers of an .npz, in the order of the numbers in their names, first-acting first."""
    content = _opened(path, where, lambda: np.load(path, allow_pickle=False))
    if isinstance(content, np.ndarray):
        raise UsageError(f"{flag(where)}: {path} must be an .npz of layers W1, W2, …, but holds one array.")
    with content:
        names = list(content.files)
        digits = {name: "".join(c for c in name if c.isdigit()) for name in names}
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


def _text(path: str, delimiter: str | None) -> np.ndarray:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    if not any(line.split("#")[0].strip() for line in lines):
        raise ValueError("it is empty")
    try:
        return np.loadtxt(lines, delimiter=delimiter, ndmin=2)
    except ValueError as error:
        raise ValueError(_fault(lines, delimiter) or str(error)) from None


def _fault(lines: list[str], delimiter: str | None) -> str:
    """Where a text is no table of numbers, by its lines as an editor counts them."""
    wide = first = 0
    for number, line in enumerate(lines, start=1):
        cells = line.split("#")[0].strip().split(delimiter)
        if cells in ([], [""]):
            continue
        for column, cell in enumerate(cells, start=1):
            try:
                float(cell)
            except ValueError:
                return f"line {number}, column {column} holds {cell.strip()!r}"
        wide, first = (wide, first) if first else (len(cells), number)
        if len(cells) != wide:
            return f"line {number} has {len(cells)} numbers, line {first} has {wide}"
    return ""


def _opened(path: str, where: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except OSError as error:
        raise UsageError(f"{flag(where)}: {path} must be a readable file, but: {error.strerror or error}.") from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        text = "it holds Python objects" if "pickle" in str(error) else one_line(error).rstrip(".")
        raise UsageError(f"{flag(where)}: {path} must be a well-formed file of numbers, but: {text}.") from None


def _numbers(array: np.ndarray, path: str, where: str) -> np.ndarray:
    if array.dtype.kind not in "biuf":
        raise UsageError(f"{flag(where)}: {path} must hold real numbers, but holds values of type {array.dtype}.")
    return array.astype(float)
