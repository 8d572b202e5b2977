"""Patterns of observed entries: connectivity, enumeration up to symmetry, named masks. Plain NumPy on the host."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from deeplinear.core import check_count, check_shape, entry, is_concrete
from deeplinear.models._base import AbstractLoss
from deeplinear.models._losses import Completion, EntryCompletion

MOST_ENTRIES = 20
"""Largest matrix, in entries, whose patterns are enumerated: there are $2^{rc}$ of them before symmetry."""
MOST_COLUMNS = 8
"""Widest mask that is brought to canonical form: all permutations of its columns are tried."""

Mask = Bool[np.ndarray, "rows columns"]


class Observations(NamedTuple):
    """Observed entries of a matrix: indices from zero, and values."""

    rows: Int[np.ndarray, " entries"]
    columns: Int[np.ndarray, " entries"]
    values: Float[np.ndarray, " entries"]


def observed_entries(loss: AbstractLoss) -> Observations:
    """Observed entries of a completion loss, as triplets.

    Args:
        loss: `Completion` (its entries come in row-major order) or `EntryCompletion` (in the order given).

    Returns:
        Rows, columns and values.

    Raises:
        TypeError: For a loss that does not observe single entries, and for one under a transformation.

    Example:
        >>> rows, columns, values = observed_entries(Completion([[1.0, 2.0], [3.0, 4.0]], [[0, 1], [1, 0]]))
        >>> rows.tolist(), columns.tolist(), values.tolist()
        ([0, 1], [1, 0], [2.0, 3.0])
    """
    if not isinstance(loss, Completion | EntryCompletion):
        raise TypeError(
            f"observed_entries: loss must observe single entries (Completion or EntryCompletion), but is a "
            f"{type(loss).__name__}."
        )
    pattern = loss.mask if isinstance(loss, Completion) else loss.rows
    if not is_concrete(pattern):
        raise TypeError(
            "observed_entries: loss must hold concrete arrays, but is under a transformation such as jit or vmap; read "
            "the entries before."
        )
    if isinstance(loss, Completion):
        rows, columns = np.nonzero(np.asarray(loss.mask))
        return Observations(rows, columns, np.asarray(loss.target)[rows, columns])
    return Observations(
        np.asarray(loss.rows).astype(np.int64), np.asarray(loss.columns).astype(np.int64), np.asarray(loss.values)
    )


# ---- Connectivity ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Component:
    """One component of an observation graph: its rows, its columns and the observed entries that join them."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    entries: tuple[tuple[int, int], ...]

    @property
    def complete(self) -> bool:
        """Whether every row is observed in every column of the component."""
        return len(self.entries) == len(self.rows) * len(self.columns)


@dataclasses.dataclass(frozen=True)
class Connectivity:
    """Components of the graph whose vertices are rows and columns and whose edges are observed entries.

    Attributes:
        shape: Shape of the matrix.
        components: Components with at least one observation, ordered by their first row.
        isolated_rows: Rows without an observation.
        isolated_columns: Columns without an observation.
    """

    shape: tuple[int, int]
    components: tuple[Component, ...]
    isolated_rows: tuple[int, ...]
    isolated_columns: tuple[int, ...]

    @property
    def connected(self) -> bool:
        """Whether there is one component; rows and columns without an observation do not count."""
        return len(self.components) == 1

    @property
    def complete_components(self) -> bool:
        """Whether every component is a complete bipartite graph, as for block-diagonal patterns."""
        return all(component.complete for component in self.components)

    @property
    def partition(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Observed entries, (row, column), by component."""
        return tuple(component.entries for component in self.components)

    def __str__(self) -> str:
        count = len(self.components)
        head = "connected" if self.connected else f"disconnected, {count} components"
        lines = [f"{self.shape[0]} x {self.shape[1]} pattern, {head}"]
        for component in self.components[:8]:
            kind = ", complete" if component.complete else ""
            lines.append(
                f"  rows {_short(component.rows)}, columns {_short(component.columns)}: "
                f"{len(component.entries)} observed{kind}"
            )
        if count > 8:
            lines.append(f"  and {count - 8} more")
        for name, isolated in (("rows", self.isolated_rows), ("columns", self.isolated_columns)):
            if isolated:
                lines.append(f"  {name} without an observation: {_short(isolated)}")
        return "\n".join(lines)


@entry
def connectivity(mask: object) -> Connectivity:
    r"""Components of the observation graph of a mask.

    The graph has a vertex for each row and each column and an edge for each observed entry. A pattern is *connected* if
    all observed entries lie in one component. At depth 2 the entries of different components never influence each
    other, whatever the weights.

    Args:
        mask: True or 1 where observed; at least one entry.

    Returns:
        The components, with rows, columns and entries of each.

    Example:
        >>> found = connectivity([[1, 0, 0], [0, 1, 1]])
        >>> found.connected, [component.columns for component in found.components]
        (False, [(0,), (1, 2)])
        >>> print(found)
        2 x 3 pattern, disconnected, 2 components
          rows 0, columns 0: 1 observed, complete
          rows 1, columns 1 2: 2 observed, complete
    """
    seen = _mask("connectivity", mask)
    rows, columns = np.nonzero(seen)
    if not len(rows):
        raise ValueError("connectivity: mask must mark at least one entry as observed, but marks none.")
    return _connectivity(rows, columns, (seen.shape[0], seen.shape[1]))


@entry
def entry_connectivity(rows: object, columns: object, shape: Sequence[int]) -> Connectivity:
    """Components of the observation graph of a list of entries; for large patterns, whose mask would not fit.

    Time and memory grow with the number of observations and the two sides of the matrix only.

    Args:
        rows: Row index of each observation.
        columns: Column index of each observation.
        shape: Shape (out, in) of the matrix.

    Returns:
        As `connectivity`.

    Example:
        >>> entry_connectivity([0, 999_999], [5, 7], (1_000_000, 1_000_000)).connected
        False
    """
    where = "entry_connectivity"
    if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) != 2:
        raise TypeError(f"{where}: shape must be two widths (out, in), but is {shape!r}.")
    for axis in shape:
        check_count(where, "each width in shape", axis, at_least=1)
    extent = (int(shape[0]), int(shape[1]))
    first, second = np.asarray(rows), np.asarray(columns)
    check_shape(where, "rows", first, (None,))
    check_shape(where, "columns", second, first.shape)
    if not len(first):
        raise ValueError(f"{where}: rows must hold at least one observation, but is empty.")
    for name, index, bound in (("rows", first, extent[0]), ("columns", second, extent[1])):
        if index.dtype.kind not in "iu":
            raise TypeError(f"{where}: {name} must hold integers, but holds {index.dtype}.")
        if index.min() < 0 or index.max() >= bound:
            raise ValueError(
                f"{where}: {name} must lie in 0..{bound - 1}, but reaches from {index.min()} to {index.max()}."
            )
    order = np.lexsort((second, first))
    first, second = first[order].astype(np.int64), second[order].astype(np.int64)
    if np.any((first[1:] == first[:-1]) & (second[1:] == second[:-1])):
        raise ValueError(f"{where}: rows and columns name an entry twice; give each (row, column) once.")
    return _connectivity(first, second, extent)


def _connectivity(
    rows: Int[np.ndarray, " entries"], columns: Int[np.ndarray, " entries"], shape: tuple[int, int]
) -> Connectivity:
    """Components of different entries given in row-major order."""
    from scipy.sparse import coo_array  # Slow to import, and needed here only.
    from scipy.sparse.csgraph import connected_components

    used_rows, row_vertex = np.unique(rows, return_inverse=True)
    used_columns, column_vertex = np.unique(columns, return_inverse=True)
    size = len(used_rows) + len(used_columns)
    edges = coo_array(
        (np.ones(len(rows), dtype=np.int8), (row_vertex, len(used_rows) + column_vertex)), shape=(size, size)
    )
    count, label = connected_components(edges, directed=False)
    # Rows come first among the vertices, so that labels, numbered as found, are ordered by first row.
    by_rows = _grouped(label[: len(used_rows)], used_rows[:, None], count)
    by_columns = _grouped(label[len(used_rows) :], used_columns[:, None], count)
    by_entries = _grouped(label[row_vertex], np.stack([rows, columns], axis=1), count)
    components = tuple(
        Component(tuple(own_rows[:, 0].tolist()), tuple(own_columns[:, 0].tolist()), tuple(map(tuple, pairs.tolist())))
        for own_rows, own_columns, pairs in zip(by_rows, by_columns, by_entries, strict=True)
    )
    isolated = (
        np.setdiff1d(np.arange(side), used) for side, used in zip(shape, (used_rows, used_columns), strict=True)
    )
    isolated_rows, isolated_columns = (tuple(side.tolist()) for side in isolated)
    ordered = tuple(sorted(components, key=lambda component: component.rows[0]))
    return Connectivity(shape, ordered, isolated_rows, isolated_columns)


def _grouped(
    labels: Int[np.ndarray, " items"], items: Int[np.ndarray, "items parts"], count: int
) -> list[Int[np.ndarray, "_ parts"]]:
    """Items by label 0..count-1, their order kept."""
    order = np.argsort(labels, kind="stable")
    return np.split(items[order], np.searchsorted(labels[order], np.arange(1, count)))


@entry
def bipartite_adjacency(mask: object) -> Int[np.ndarray, "vertices vertices"]:
    r"""Adjacency matrix $\begin{pmatrix} 0 & P^\top \\ P & 0 \end{pmatrix}$ of the observation graph.

    The vertices are the columns, then the rows of the mask $P$.

    Args:
        mask: True or 1 where observed.

    Returns:
        Matrix of zeros and ones, of size columns + rows.

    Example:
        >>> bipartite_adjacency(connected_mask()).tolist()
        [[0, 0, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    """
    seen = _mask("bipartite_adjacency", mask).astype(np.int64)
    rows, columns = seen.shape
    return np.block([[np.zeros((columns, columns), np.int64), seen.T], [seen, np.zeros((rows, rows), np.int64)]])


# ---- Patterns up to symmetry -----------------------------------------------------------------------------------------


@entry
def canonical_pattern(mask: object, *, transpose: bool = True) -> Mask:
    """The first, in lexicographic order, of all patterns that permutations of rows and of columns make of a mask.

    Two masks are the same up to permutations exactly if they have the same canonical form.

    Args:
        mask: True or 1 where observed; at most 8 columns.
        transpose: Whether a square mask and its transpose count as the same. Says nothing about other masks.

    Returns:
        The canonical mask.

    Example:
        >>> canonical_pattern([[1, 1], [0, 1]]).astype(int).tolist()
        [[0, 1], [1, 1]]
    """
    seen = _mask("canonical_pattern", mask)
    rows, columns = seen.shape
    if columns > MOST_COLUMNS:
        raise ValueError(
            f"canonical_pattern: mask must have at most {MOST_COLUMNS} columns, as all permutations of them are tried, "
            f"but has {columns}; transpose a mask that has fewer rows."
        )
    powers = 1 << np.arange(columns - 1, -1, -1)
    orders = np.array(list(itertools.permutations(range(columns))))
    variants = [seen, seen.T] if transpose and rows == columns else [seen]
    # For given columns the least order of the rows is the sorted one, each row read as a binary number.
    codes = np.concatenate([np.sort(item[:, orders] @ powers, axis=0).T for item in variants])
    least = codes[np.lexsort(codes.T[::-1])[0]]
    return (least[:, None] & powers).astype(bool)


def unique_patterns(
    rows: int, columns: int, *, transpose: bool = True, least: int = 1, most: int | None = None
) -> list[Mask]:
    r"""All patterns of observed entries up to permutations of rows and of columns.

    One canonical mask for each class (see `canonical_pattern`), in lexicographic order. The classes are found by
    striking out whole orbits from the list of all $2^{rc}$ patterns.

    Args:
        rows: Number of rows.
        columns: Number of columns; the matrix may have at most 20 entries.
        transpose: Whether a square pattern and its transpose count as the same.
        least: Smallest number of observed entries; 0 includes the empty pattern.
        most: Largest number of observed entries; all by default.

    Returns:
        Masks.

    Example:
        >>> len(unique_patterns(3, 3)), len(unique_patterns(3, 3, least=2, most=8))
        (25, 23)
    """
    where = "unique_patterns"
    check_count(where, "rows", rows, at_least=1)
    check_count(where, "columns", columns, at_least=1)
    check_count(where, "least", least)
    if most is not None:
        check_count(where, "most", most, at_least=least)
    size = rows * columns
    if size > MOST_ENTRIES:
        raise ValueError(
            f"{where}: rows * columns must be at most {MOST_ENTRIES}, as all patterns are looked at, but is {size}."
        )
    places = np.arange(size).reshape(rows, columns)
    moves = np.array(
        [
            places[np.ix_(p, q)].ravel()
            for p in itertools.permutations(range(rows))
            for q in itertools.permutations(range(columns))
        ]
    )
    if transpose and rows == columns:
        moves = np.concatenate([moves, moves[:, places.T.ravel()]])
    powers = 1 << np.arange(size - 1, -1, -1)
    struck = bytearray(1 << size)
    view = np.frombuffer(struck, dtype=np.uint8)
    found: list[Mask] = []
    code = 0
    while code >= 0:
        bits = (code & powers).astype(bool)
        view[bits[moves] @ powers] = 1
        if least <= bits.sum() <= (size if most is None else most):
            found.append(bits.reshape(rows, columns))
        code = struck.find(0, code + 1)
    return found


# ---- Named masks -----------------------------------------------------------------------------------------------------


def diagonal_mask(size: int) -> Mask:
    """Observed diagonal of a square matrix: as disconnected as a pattern of so many entries can be.

    Args:
        size: Number of rows and of columns.

    Example:
        >>> int(diagonal_mask(3).sum())
        3
    """
    check_count("diagonal_mask", "size", size, at_least=1)
    return np.eye(size, dtype=bool)


def block_mask(blocks: int, size: int) -> Mask:
    """Observed square blocks along the diagonal of a square matrix; each block is one complete component.

    Args:
        blocks: Number of blocks.
        size: Rows, and columns, of each block.

    Example:
        >>> block_mask(2, 3).shape, len(connectivity(block_mask(2, 3)).components)
        ((6, 6), 2)
    """
    check_count("block_mask", "blocks", blocks, at_least=1)
    check_count("block_mask", "size", size, at_least=1)
    return np.kron(np.eye(blocks, dtype=bool), np.ones((size, size), dtype=bool))


def column_mask(rows: int, columns: int, column: int = 0) -> Mask:
    """One column observed in all its rows: a connected pattern.

    Args:
        rows: Number of rows.
        columns: Number of columns.
        column: The observed one, from zero.

    Example:
        >>> column_mask(2, 3).astype(int).tolist()
        [[1, 0, 0], [1, 0, 0]]
    """
    check_count("column_mask", "rows", rows, at_least=1)
    check_count("column_mask", "columns", columns, at_least=1)
    check_count("column_mask", "column", column, at_most=columns - 1)
    mask = np.zeros((rows, columns), dtype=bool)
    mask[:, column] = True
    return mask


def disconnected_mask() -> Mask:
    """The disconnected 2 x 2 pattern of two entries: the diagonal.

    Example:
        >>> disconnected_mask().astype(int).tolist(), connectivity(disconnected_mask()).connected
        ([[1, 0], [0, 1]], False)
    """
    return diagonal_mask(2)


def connected_mask() -> Mask:
    """The connected 2 x 2 pattern of two entries: the first column.

    Example:
        >>> connected_mask().astype(int).tolist(), connectivity(connected_mask()).connected
        ([[1, 0], [1, 0]], True)
    """
    return column_mask(2, 2)


def _mask(where: str, mask: object) -> Mask:
    """A pattern as a boolean matrix, or a refusal that names it."""
    if not is_concrete(mask):
        raise TypeError(f"{where}: mask must be a concrete array, but is under a transformation such as jit or vmap.")
    try:
        array = np.asarray(mask)
    except ValueError:
        raise TypeError(f"{where}: mask must be a matrix, but its rows are of different lengths.") from None
    check_shape(where, "mask", array, (None, None))
    if 0 in array.shape:
        raise ValueError(f"{where}: mask must have at least one row and one column, but has shape {array.shape}.")
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{where}: mask must hold only 0 and 1 (or False and True), but holds {array.dtype}.")
    strange = ~np.isin(array, (0, 1))
    if np.any(strange):
        raise ValueError(
            f"{where}: mask must hold only 0 and 1 (or False and True), but holds {array[strange][0].item()!r}."
        )
    return array.astype(bool)


def _short(numbers: tuple[int, ...]) -> str:
    """Numbers in a line, the middle of a long list left out."""
    if len(numbers) <= 8:
        return " ".join(map(str, numbers))
    return f"{' '.join(map(str, numbers[:4]))} ... {numbers[-1]} ({len(numbers)})"
