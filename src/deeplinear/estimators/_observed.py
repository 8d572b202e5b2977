"""Observed entries of a matrix, and the part of them that offsets and units explain."""

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse

from deeplinear.core import near_name

OFFSETS = ("auto", "both", "rows", "columns", "mean", "none")
SCALING = ("auto", "columns", "one", "none")
UNEQUAL, APART = 5.0, 1.5
"""Columns have units of their own if their spreads (that of the 90th and of the 10th in a hundred) differ by more than
a factor, or if their means lie further apart than so many spreads."""
SHRINKAGE = 3.0
"""Observations that the offset of a row or a column counts as zero, so that a single one is not believed."""
SMALLEST, LARGEST = 1e-140, 1e140
"""Sizes of the largest value whose square is a number."""
SWEEPS = 50


@dataclasses.dataclass(frozen=True)
class Entries:
    """Observed entries, sorted by rows and then by columns, each once.

    Attributes:
        rows: Row of each.
        columns: Column of each.
        values: Value of each.
        shape: Of the matrix.
    """

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    shape: tuple[int, int]

    def __len__(self) -> int:
        return len(self.values)

    def part(self, chosen: np.ndarray) -> "Entries":
        """Some of them, by a mask or by positions in increasing order."""
        return Entries(self.rows[chosen], self.columns[chosen], self.values[chosen], self.shape)

    def of(self, values: np.ndarray) -> "Entries":
        """The same places with other values."""
        return dataclasses.replace(self, values=values)

    @property
    def places(self) -> np.ndarray:
        """A number for each place in the matrix."""
        return self.rows.astype(np.int64) * self.shape[1] + self.columns


def observed(matrix: Any) -> Entries:
    """Entries of a dense matrix that are not NaN, or the stored ones of a sparse matrix (zeros that are stored count).

    Values that a sparse matrix stores twice for one place are added up, as SciPy does everywhere else.
    """
    if scipy.sparse.issparse(matrix):
        coo = scipy.sparse.coo_array(matrix)
        coo.sum_duplicates()
        rows, columns = (np.asarray(index) for index in coo.coords)
        values = np.asarray(coo.data, dtype=float)
        known = ~np.isnan(values)
        rows, columns, values = rows[known], columns[known], values[known]
        order = np.lexsort((columns, rows))
        return Entries(rows[order], columns[order], values[order], (int(matrix.shape[0]), int(matrix.shape[1])))
    array = np.asarray(matrix, dtype=float)  # None becomes NaN
    rows, columns = np.nonzero(~np.isnan(array))
    return Entries(rows, columns, array[rows, columns], (array.shape[0], array.shape[1]))


def listed(where: str, rows: Any, columns: Any, values: Any, shape: Any = None) -> Entries:
    """Entries given as three lists. A place that is listed twice is refused."""
    numbers = np.asarray(values)
    places = (_whole(where, "rows", rows), _whole(where, "columns", columns))
    least = tuple(max(0, int(np.max(index, initial=-1))) + 1 for index in places)
    if shape is not None and (np.shape(shape) != (2,) or min(shape) < 1):
        raise ValueError(f"{where}: shape must be the numbers of rows and columns, but is {shape!r}.")
    extent = least if shape is None else (int(shape[0]), int(shape[1]))
    row, column = checked_places(where, rows, columns, (extent[0], extent[1]))
    if numbers.shape != row.shape:
        raise ValueError(
            f"{where}: rows, columns and values must be lists of one length, but values has shape {numbers.shape} and "
            f"rows has {row.shape}."
        )
    if not len(row):
        raise ValueError(f"{where}: rows must hold at least one entry, but is empty.")
    numbers = numbers.astype(float)
    if not np.all(np.isfinite(numbers)):
        place = int(np.argmin(np.isfinite(numbers)))
        raise ValueError(f"{where}: values must be finite, but values[{place}] is {numbers[place]}; leave it out.")
    order = np.lexsort((column, row))
    entries = Entries(row[order], column[order], numbers[order], (extent[0], extent[1]))
    twice = np.flatnonzero(np.diff(entries.places) == 0)
    if len(twice):
        row, column = entries.rows[twice[0]], entries.columns[twice[0]]
        raise ValueError(f"{where}: each entry must be given once, but row {row}, column {column} is given twice.")
    return entries


def checked_places(where: str, rows: Any, columns: Any, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Two lists of indices of one length that lie in a matrix."""
    first, second = _whole(where, "rows", rows), _whole(where, "columns", columns)
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(
            f"{where}: rows and columns must be lists of one length, but have shapes {first.shape} and {second.shape}."
        )
    for name, index, bound in (("rows", first, shape[0]), ("columns", second, shape[1])):
        if len(index) and (index.min() < 0 or index.max() >= bound):
            raise ValueError(
                f"{where}: {name} must lie in 0..{bound - 1}, but reach from {index.min()} to {index.max()}."
            )
    return first.astype(np.int64), second.astype(np.int64)


def _whole(where: str, name: str, indices: Any) -> np.ndarray:
    """Indices as an array, or a refusal of what is not made of whole numbers."""
    index = np.asarray(indices)
    if index.size and index.dtype.kind not in "iu":
        text = index.dtype.kind in "US" or any(isinstance(item, str) for item in index.flat)
        found = (
            "are text; number your names first, or use dln complete --entries" if text else f"are of type {index.dtype}"
        )
        raise TypeError(f"{where}: {name} must be whole numbers from 0 on, but {found}.")
    return index


@dataclasses.dataclass(frozen=True)
class Frame:
    r"""What is taken off before a network sees the entries: $x_{ij} = c_j + (m + a_i + b_j + s\,w_{ij})\,u_j$.

    Attributes:
        centres: $c_j$, means of columns that have units of their own; zero otherwise.
        units: $u_j$, of the columns; zero for a centred column whose numbers are all the same.
        mean: $m$.
        rows: $a_i$.
        columns: $b_j$.
        scale: $s$.
        scaling: `"columns"`, `"one"` or `"none"`: what was chosen.
        offsets: What was chosen.
    """

    centres: np.ndarray
    units: np.ndarray
    mean: float
    rows: np.ndarray
    columns: np.ndarray
    scale: float
    scaling: str
    offsets: str

    def base(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """What entries are without the network, in the user's units."""
        return self.centres[columns] + (self.mean + self.rows[rows] + self.columns[columns]) * self.units[columns]

    def spreads(self, columns: np.ndarray) -> np.ndarray:
        """What one of the network's units is in those of the user, in some columns."""
        return self.scale * self.units[columns]

    def inner(self, entries: Entries) -> np.ndarray:
        """What is left of entries for the network."""
        left = entries.values - self.base(entries.rows, entries.columns)
        return _over(left, self.spreads(entries.columns))

    def row(self, columns: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A row that was not there: what it is without the network, and what is left of some of its entries."""
        offset = 0.0
        if self.rows.any() and len(columns):
            left = _over(values - self.centres[columns], self.units[columns]) - self.mean - self.columns[columns]
            offset = float(left.sum() / (SHRINKAGE + len(left)))
        level = self.centres + (self.mean + offset + self.columns) * self.units
        return level, _over(values - level[columns], self.spreads(columns))


def _over(values: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Values in units; zero where the unit is."""
    return np.where(units > 0, values / np.where(units > 0, units, 1.0), 0.0)


def framed(where: str, entries: Entries, offsets: str, scaling: str) -> Frame:
    """Find offsets and units.

    Columns that have units of their own are centred and divided by their spreads. What offsets are left minimise the
    squared residual plus `SHRINKAGE` times their own squares, by turns. By themselves (`"auto"`) columns have units of
    their own where they are too unlike to be compared, and rows have offsets where columns can be.
    """
    for name, value, known in (("offsets", offsets, OFFSETS), ("scaling", scaling, SCALING)):
        if value not in known:
            raise ValueError(f"{where}: {name} {value!r} is unknown. {near_name(str(value), known)}")
    largest = float(np.max(np.abs(entries.values)))
    if largest and not SMALLEST < largest < LARGEST:
        raise ValueError(
            f"{where}: the largest number must lie between {SMALLEST:g} and {LARGEST:g} in size, but is {largest:.3g}; "
            "take other units."
        )
    rows, columns, (height, width) = entries.rows, entries.columns, entries.shape
    counts = np.bincount(columns, minlength=width)
    means = np.bincount(columns, entries.values, width) / np.maximum(counts, 1)
    spread = np.sqrt(np.bincount(columns, (entries.values - means[columns]) ** 2, width) / np.maximum(counts, 1))
    varies = (counts > 1) & (spread > 1e-12 * np.abs(means))
    chosen = scaling if scaling != "auto" else "columns" if _unlike(means[varies], spread[varies]) else "one"
    own = chosen == "columns"
    taken = offsets if offsets != "auto" else "columns" if own else "both"
    centred = own and taken in ("both", "columns")
    centres = means if centred else np.zeros(width)
    still = np.where(counts > 1, 0.0, 1.0) if centred else np.where(means != 0, np.abs(means), 1.0)
    units = np.where(varies, spread, still) if own else np.ones(width)
    values = _over(entries.values - centres[columns], units[columns])
    mean = float(values.mean()) if taken != "none" and not centred else 0.0
    left = values - mean
    by_row, by_column = np.zeros(height), np.zeros(width)
    row_counts = np.bincount(rows, minlength=height)
    for _ in range(SWEEPS):
        before = by_row.copy(), by_column.copy()
        if taken in ("both", "columns") and not centred:
            by_column = np.bincount(columns, left - by_row[rows], width) / (SHRINKAGE + counts)
        if taken in ("both", "rows"):
            by_row = np.bincount(rows, left - by_column[columns], height) / (SHRINKAGE + row_counts)
        moved = max(np.max(np.abs(by_row - before[0])), np.max(np.abs(by_column - before[1])))
        if moved <= 1e-10 * np.max(np.abs(left), initial=1e-300):
            break
    left = left - by_row[rows] - by_column[columns]
    scale = float(np.sqrt(np.mean(left**2))) if chosen != "none" else 1.0
    if not scale > 1e-13 * np.max(np.abs(values), initial=1e-300):
        scale = 1.0
    return Frame(centres, units, mean, by_row, by_column, scale, chosen, taken)


def _unlike(means: np.ndarray, spread: np.ndarray) -> bool:
    """Whether columns are too unlike to be compared."""
    if len(means) < 2:
        return False
    low, high = np.percentile(spread, (10, 90))
    return bool(high > UNEQUAL * low or np.std(means) > APART * np.median(spread))
