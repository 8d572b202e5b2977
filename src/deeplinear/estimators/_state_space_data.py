r"""Records of inputs and outputs, and what of them a fit needs.

A row of the regression is $(1, u_t, u_{t-1}, \dots, u_{t-k})$ beside $y_t$. All rows together enter least squares by
the triangular factor of their QR decomposition, which is as large as a row is long, whatever the number of rows, and
which keeps the digits that a matrix of second moments would lose.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

CHUNK = 8192
"""Rows that are decomposed at a time."""


def several(inputs: Any) -> bool:
    """Whether inputs are several sequences: an array of three dimensions, or a list of matrices."""
    if isinstance(inputs, list | tuple):
        return len(inputs) > 0 and np.ndim(inputs[0]) == 2
    return getattr(inputs, "ndim", 2) == 3


class Units(NamedTuple):
    """Offsets and scales by which inputs and outputs become numbers around 0 of size 1."""

    input_offset: np.ndarray
    input_scale: np.ndarray
    output_offset: np.ndarray
    output_scale: np.ndarray

    @staticmethod
    def of(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], intercept: bool, rest: bool = False) -> "Units":
        """Means and standard deviations over all rows; without an intercept, no means and root mean squares.

        From rest there was no input before the first row, so the inputs are not taken from their means either.
        """
        u, y = np.concatenate(inputs), np.concatenate(outputs)
        centred = ((u, intercept and not rest), (y, intercept))
        middle = [np.mean(part, axis=0) if wanted else np.zeros(part.shape[1]) for part, wanted in centred]
        sizes = [np.sqrt(np.mean((part - m) ** 2, axis=0)) for part, m in zip((u, y), middle, strict=True)]
        idle = sizes[1] <= 1e-13 * np.abs(y).max(axis=0)
        return Units(middle[0], sizes[0], middle[1], np.where(idle, 1.0, sizes[1]))


def usable(where: str, units: Units, inputs: Sequence[np.ndarray]) -> None:
    """Refuse inputs that say nothing: one that never changes."""
    largest = np.max([np.abs(u).max(axis=0) for u in inputs], axis=0)
    idle = np.flatnonzero(units.input_scale <= 1e-12 * largest)
    if idle.size:
        raise ValueError(
            f"{where}: every input must vary, but column {idle[0]} of X is constant, so that its effect cannot be told "
            "from an offset; leave it out."
        )


class Record(NamedTuple):
    """One sequence in these units, with the first of its rows that counts and the first that is held out."""

    inputs: np.ndarray
    outputs: np.ndarray
    first: int
    held: int


class Design(NamedTuple):
    r"""Least squares of one part of the rows: $\|X\theta - Y\|^2$ with what the triangular factor holds.

    Attributes:
        matrix: $X$; the columns are those of the offset and of the feed-through, if there are, then the lags.
        target: $Y$.
        rows: Rows it stands for.
        intercept: Whether there is a column of the offset.
        feed: Columns of the feed-through.
    """

    matrix: np.ndarray
    target: np.ndarray
    rows: int
    intercept: bool
    feed: int

    @property
    def beside(self) -> int:
        """How many columns come before the lags."""
        return int(self.intercept) + self.feed

    @property
    def lags(self) -> tuple[np.ndarray, np.ndarray]:
        """The same for the lags alone, the columns before them being fitted as well as they can."""
        return self.matrix[self.beside :, self.beside :], self.target[self.beside :]

    def besides(self, response: np.ndarray) -> np.ndarray:
        """Best coefficients of the columns before the lags, for given ones of the lags (lags × inputs, outputs)."""
        top = slice(None, self.beside)
        target = self.target[top] - self.matrix[top, self.beside :] @ response
        return np.linalg.lstsq(self.matrix[top, top], target, rcond=None)[0]

    def error(self, coefficients: np.ndarray) -> float:
        """Mean squared error of coefficients of all columns, summed over the outputs."""
        return float(np.sum((self.matrix @ coefficients - self.target) ** 2)) / self.rows

    def standard_errors(self, memory: int) -> np.ndarray:
        """Of the coefficients of the lags, (lags, outputs, inputs); infinite if the rows do not determine them."""
        matrix, target = self.lags
        columns, outputs = matrix.shape[1], target.shape[1]
        spare = self.rows - self.beside - columns
        solution, _, rank, _ = np.linalg.lstsq(matrix, target, rcond=None)
        if spare < 1 or rank < columns:
            return np.full((memory, outputs, columns // memory), np.inf)
        variance = np.sum((matrix @ solution - target) ** 2, axis=0) / spare
        spread = np.sqrt(np.sum(np.linalg.pinv(matrix) ** 2, axis=1))
        return np.moveaxis(np.outer(spread, np.sqrt(variance)).reshape(memory, -1, outputs), 1, 2)


def records(
    inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], units: Units, skip: int, held_out: float
) -> list[Record]:
    """Sequences in the units of the fit, the held-out part marked: the end of one, or the last of several."""
    many, count = len(inputs), 0
    if many > 1 and held_out > 0:
        count = min(many - 1, max(1, round(held_out * many)))
    found = []
    for index, (u, y) in enumerate(zip(inputs, outputs, strict=True)):
        length = len(u)
        if many == 1:
            held = length - (max(1, round(held_out * (length - skip))) if held_out > 0 else 0)
        else:
            held = skip if index >= many - count else length
        scaled = (u - units.input_offset) / units.input_scale, (y - units.output_offset) / units.output_scale
        found.append(Record(*scaled, skip, held))
    return found


def windows(inputs: np.ndarray, memory: int, rows: slice) -> np.ndarray:
    """Inputs at lags 1 to `memory`, newest first, one row for each time; zeros before the start."""
    padded = np.concatenate([np.zeros((memory, inputs.shape[1])), inputs])
    view = np.lib.stride_tricks.sliding_window_view(padded, memory, axis=0)[: len(inputs)]
    return view[rows, :, ::-1].swapaxes(1, 2).reshape(len(range(*rows.indices(len(inputs)))), -1)


def design(parts: Sequence[Record], memory: int, *, intercept: bool, feed: bool, held: bool) -> Design:
    """Least squares of the rows to fit, or of those held out."""
    outputs, factor, count = parts[0].outputs.shape[1], None, 0
    for block in _blocks(parts, memory, intercept, feed, held):
        count += len(block)
        stacked = block if factor is None else np.vstack([factor, block])
        factor = np.linalg.qr(stacked, mode="r")
    columns = int(intercept) + (int(feed) + memory) * parts[0].inputs.shape[1] + outputs
    found = np.zeros((0, columns)) if factor is None else np.asarray(factor)
    columns_of_feed = parts[0].inputs.shape[1] if feed else 0
    return Design(found[:, :-outputs], found[:, -outputs:], count, intercept, columns_of_feed)


def _blocks(parts: Sequence[Record], memory: int, intercept: bool, feed: bool, held: bool) -> Iterator[np.ndarray]:
    for part in parts:
        begin, end = (max(part.held, part.first), len(part.inputs)) if held else (part.first, part.held)
        for start in range(begin, end, CHUNK):
            rows = slice(start, min(end, start + CHUNK))
            pieces: list[Any] = [np.ones((rows.stop - rows.start, 1))] if intercept else []
            pieces += [part.inputs[rows]] if feed else []
            yield np.hstack([*pieces, windows(part.inputs, memory, rows), part.outputs[rows]])
