r"""Networks seen at chosen entries of their product only: completion of matrices too large to be written down.

With the layers cut at the narrowest hidden width, $W_{L:1} = UV$, an observed entry is $u_{i_k}\cdot v_{j_k}$, a dot
product of a row of $U$ and a column of $V$. Values, gradients and Hessian products then cost a multiple of (number of
entries) x (narrowest width), and neither the product nor one vector for every entry is ever formed.
"""

import functools
import operator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int32

from deeplinear.core import (
    Array,
    Matrix,
    Params,
    add_at,
    as_array,
    check_shape,
    entry,
    is_concrete,
    is_program,
    scan,
    xp,
)
from deeplinear.models._base import AbstractModel
from deeplinear.models._losses import SquaredDistance
from deeplinear.models._networks import DeepLinear, PrefixProducts
from deeplinear.models._problem import Problem

LENGTHS = (4, 8, 16, 32)
"""Lengths a segment may have. Sums over a segment are written out, so longer ones compile slowly."""
OVERHEAD = 4
"""Cost of a segment besides its slots, in slots."""
CHUNK = 131_072
"""Slots that are worked on at a time, so many that their part of the products fits into the cache."""
LANES = 16
"""Numbers of a row that are gathered and multiplied at a time on a CPU."""


class Tiles(eqx.Module):
    r"""A sparsity pattern, line by line, in segments of one length.

    The entries of each line (row or column) are cut into segments; the last of a line is filled up, and so is the last
    chunk of segments. A long line is many segments, so it costs no more than its entries.

    Attributes:
        line: The line of every segment, in increasing order.
        across: For every slot the index across the line; 0 where filled up.
        entry: For every slot the number of its entry; the number of all entries where filled up.
        lines: Number of lines.
    """

    line: Int32[Array, "chunks segments"]
    across: Int32[Array, "chunks segments length"]
    entry: Int32[Array, "chunks segments length"]
    lines: int = eqx.field(static=True)

    def sums(self, weights: Float[Array, " entries"], vectors: Float[Array, "others width"]) -> Matrix:
        r"""$\sum_k g_k\, x_{j_k}$ over the entries of each line: a sparse matrix with weights $g$ times a dense one."""
        padded, vectors = xp.append(weights, 0.0), _by_rows(vectors)

        def chunk(total: Matrix, part: tuple[Array, Array, Array]) -> tuple[Matrix, None]:
            # One expression for all slots of a segment is one loop over the numbers of a row, which the compiler makes
            # into vector instructions; a contraction of gathered rows would write and read all of them.
            line, across, entry = part
            slots = _take(padded, entry)
            terms = (slots[:, slot, None] * _take(vectors, across[:, slot]) for slot in range(slots.shape[1]))
            sums = functools.reduce(operator.add, terms)
            return add_at(total, line, sums, mode="promise_in_bounds", indices_are_sorted=True), None

        total = xp.zeros((self.lines, vectors.shape[1]), vectors.dtype)
        return _by_rows(scan(chunk, total, (self.line, self.across, self.entry))[0])

    def dots(
        self, vectors: Float[Array, "lines width"], others: Float[Array, "others width"]
    ) -> Float[Array, " slots"]:
        r"""$u_{i}\cdot x_{j}$ for every slot; numbers without meaning where filled up."""
        if jax.default_backend() != "cpu":  # gather, product and sum are one kernel there
            rows = _take(vectors, self.line)[..., None, :]
            return xp.sum(rows * _take(others, self.across), axis=-1).ravel()
        lanes = min(LANES, vectors.shape[1])
        missing = -vectors.shape[1] % lanes
        vectors, others = (xp.pad(x, ((0, 0), (0, missing))) for x in (vectors, others))
        vectors = _by_rows(vectors)
        strips = tuple(_by_rows(others[:, at : at + lanes]) for at in range(0, others.shape[1], lanes))
        ones = xp.ones(lanes, others.dtype)

        def chunk(part: tuple[Array, Array]) -> Array:
            line, across = part
            row = _take(vectors, line)[:, None]
            terms = (_take(x, across) * row[..., at * lanes : (at + 1) * lanes] for at, x in enumerate(strips))
            return functools.reduce(operator.add, terms).reshape(-1, lanes) @ ones

        return jax.lax.map(chunk, (self.line, self.across)).ravel()


def _take(array: Array, index: Array) -> Array:
    """Rows of an array; the indices were checked when the tiles were made."""
    if not is_program(array, index):
        return array[index]
    return jax.numpy.asarray(array).at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _by_rows(array: Matrix) -> Matrix:
    """The same matrix with its rows one after the other in memory.

    Otherwise the compiler makes no copy of a transpose, and every row that is looked up is spread over the memory.
    """
    return jax.lax.optimization_barrier(array.ravel()).reshape(array.shape)


def _tiles(lines: int, line: np.ndarray, across: np.ndarray) -> tuple[Tiles, np.ndarray]:
    """Tiles of entries, and the slot of every entry."""
    counts = np.bincount(line, minlength=lines)
    length = min(LENGTHS, key=lambda size: int((-(-counts // size)).sum()) * (size + OVERHEAD))
    segments = -(-counts // length)
    total = int(segments.sum())
    chunks = -(-total * length // CHUNK)
    each = -(-total // chunks)
    order = np.argsort(line, kind="stable")
    within = np.arange(len(line)) - np.repeat(np.cumsum(counts) - counts, counts)
    slots = np.repeat(np.cumsum(segments) - segments, counts) * length + within
    owners = np.full(chunks * each, lines - 1, np.int32)
    owners[:total] = np.repeat(np.arange(lines), segments)
    indices, entries = np.zeros(owners.size * length, np.int32), np.full(owners.size * length, len(line), np.int32)
    indices[slots], entries[slots] = across[order], order
    place = np.empty(len(line), np.int32)
    place[order] = slots
    shape = (chunks, each, length)
    tiles = Tiles(
        as_array(owners.reshape(shape[:2])),
        as_array(indices.reshape(shape)),
        as_array(entries.reshape(shape)),
        lines,
    )
    return tiles, place


class Halves(NamedTuple):
    """Memo of a forward pass: those of the layers after and before the cut, which end in $U$ and $V$."""

    after: PrefixProducts
    before: PrefixProducts


class NetworkEntries(AbstractModel[Halves]):
    r"""Chosen entries $(W_{i_kj_k})_k$ of the product $W = W_L \cdots W_1$, as a matrix of one row.

    Layers are those of `DeepLinear(widths)`. They are cut at the narrowest hidden width $r$ into $W = UV$; then
    $p_k = \sum_a U_{i_ka}V_{aj_k}$, and a gradient $g$ on the entries is the sparse matrix
    $G = \sum_k g_k e_{i_k}e_{j_k}^\top$, of which the halves see $GV^\top$ and $U^\top G$. One gradient costs about
    $6nr$ operations for $n$ entries, in chunks of a fixed number of entries.

    An entry may be chosen several times: each time is an observation of its own. The end-to-end object is the row of
    entries in the order they were given, so that whatever looks at the product (its rank, say) looks at that row;
    quantities of the layers are those of the network.

    Args:
        widths: $(d_0, d_1, \dots, d_L)$, input width first; at least one hidden layer.
        rows: $i_k$, from 0 to $d_L - 1$.
        columns: $j_k$, from 0 to $d_0 - 1$.

    Example:
        >>> model = NetworkEntries((3, 1, 2), rows=[0, 1], columns=[2, 0])
        >>> model.forward((jnp.array([[1.0, 2.0, 3.0]]), jnp.array([[10.0], [20.0]])))[0]
        Array([[30., 20.]], dtype=float64)
    """

    widths: tuple[int, ...] = eqx.field(static=True)
    by_row: Tiles
    by_column: Tiles
    place: Int32[Array, " entries"]

    @entry
    def __init__(self, widths: tuple[int, ...] | list[int], rows: Any, columns: Any) -> None:
        network = DeepLinear(widths)
        if network.depth < 2:
            raise ValueError(
                f"NetworkEntries: widths must have a hidden layer, but is {network.widths}; the entries of one layer "
                "are independent numbers, for which no network is needed."
            )
        out, inp = network.product_shape
        i = _checked_index("rows", rows, out)
        j = _checked_index("columns", columns, inp)
        check_shape("NetworkEntries", "columns", j, i.shape)
        self.widths = network.widths
        self.by_row, place = _tiles(out, i, j)
        self.by_column, _ = _tiles(inp, j, i)
        self.place = as_array(place)

    @property
    def network(self) -> DeepLinear:
        """The whole network, whose product is the matrix."""
        return DeepLinear(self.widths)

    @property
    def cut(self) -> int:
        """The narrowest hidden layer, the first of them: layers up to it make $V$, the others $U$."""
        hidden = self.widths[1:-1]
        return 1 + hidden.index(min(hidden))

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shape of every layer, first-acting first."""
        return self.network.shapes

    @property
    def product_shape(self) -> tuple[int, int]:
        """(1, number of entries)."""
        return (1, self.place.shape[-1])

    def at(self, rows: Any, columns: Any) -> "NetworkEntries":
        """The same network at other entries, to predict them.

        Args:
            rows: As for the class.
            columns: As for the class.

        Example:
            >>> model = NetworkEntries((3, 1, 2), rows=[0, 1], columns=[2, 0]).at([1], [1])
            >>> float(model.forward((jnp.array([[1.0, 2.0, 3.0]]), jnp.array([[10.0], [20.0]])))[0][0, 0])
            40.0
        """
        return NetworkEntries(self.widths, rows, columns)

    def forward(self, params: Params) -> tuple[Matrix, Halves]:
        """The row of entries, and the prefixes of both halves."""
        before, after = self._halves()
        right, right_memo = before.forward(params[: self.cut])
        left, left_memo = after.forward(params[self.cut :])
        return self._at_entries(left, right), Halves(left_memo, right_memo)

    def pullback(self, params: Params, memo: Halves, cotangent: Matrix) -> Params:
        """Gradient on every layer from the gradient on the entries."""
        before, after = self._halves()
        on_right, on_left = self._spread(memo, cotangent)
        of_right = before.pullback(params[: self.cut], memo.before, on_right)
        return (*of_right, *after.pullback(params[self.cut :], memo.after, on_left))

    def pushforward(self, params: Params, memo: Halves, tangent: Params) -> tuple[Matrix, Halves]:
        r"""$\dot UV + U\dot V$ at the entries, and the tangents of the prefixes."""
        before, after = self._halves()
        left, right = memo.after.prefixes[-1], memo.before.prefixes[-1]
        moved_right, right_memo = before.pushforward(params[: self.cut], memo.before, tangent[: self.cut])
        moved_left, left_memo = after.pushforward(params[self.cut :], memo.after, tangent[self.cut :])
        both = xp.concatenate([moved_left, left], axis=1), xp.concatenate([right, moved_right])
        return self._at_entries(*both), Halves(left_memo, right_memo)

    def pullback_derivative(
        self, params: Params, memo: Halves, cotangent: Matrix, tangent: Params, memo_tangent: Halves
    ) -> Params:
        """Derivative of `pullback` in the layers, the gradient on the entries held fixed."""
        before, after = self._halves()
        first, last = params[: self.cut], params[self.cut :]
        on_right, on_left = self._spread(memo, cotangent)
        moved_right, moved_left = self._spread(memo_tangent, cotangent)
        of_right = _total(
            before.pullback(first, memo.before, moved_right),
            before.pullback_derivative(first, memo.before, on_right, tangent[: self.cut], memo_tangent.before),
        )
        of_left = _total(
            after.pullback(last, memo.after, moved_left),
            after.pullback_derivative(last, memo.after, on_left, tangent[self.cut :], memo_tangent.after),
        )
        return (*of_right, *of_left)

    def check(self, params: Params, where: str) -> None:
        """Refuse layers whose number or shapes differ from the widths."""
        self.network.check(params, where)

    def _halves(self) -> tuple[DeepLinear, DeepLinear]:
        """The network before the cut, with product $V$, and that after it, with product $U$."""
        return DeepLinear(self.widths[: self.cut + 1]), DeepLinear(self.widths[self.cut :])

    def _at_entries(self, left: Matrix, right: Matrix) -> Matrix:
        """The entries of a product $UV$, in their order."""
        return _take(self.by_row.dots(left, right.T), self.place)[None]

    def _spread(self, memo: Halves, cotangent: Matrix) -> tuple[Matrix, Matrix]:
        r"""$U^\top G$ and $GV^\top$, the gradients on $V$ and on $U$."""
        left, right = memo.after.prefixes[-1], memo.before.prefixes[-1]
        return self.by_column.sums(cotangent[0], left).T, self.by_row.sums(cotangent[0], right.T)


def _total(one: Params, other: Params) -> Params:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _checked_index(name: str, index: Any, bound: int, where: str = "NetworkEntries") -> np.ndarray:
    """Indices as integers, or a refusal."""
    if not is_concrete(index):
        raise TypeError(f"{where}: {name} must be known now, but is traced; make the model outside the transformation.")
    array = np.asarray(index)
    check_shape(where, name, array, (None,))
    if array.size == 0:
        raise ValueError(f"{where}: {name} must hold at least one index, but is empty.")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{where}: {name} must hold integers, but holds {array.dtype}.")
    if array.size >= 2**30:
        raise ValueError(f"{where}: {name} must hold fewer than 2**30 indices, but holds {array.size}.")
    outside = np.flatnonzero((array < 0) | (array >= bound))
    if outside.size:
        first = int(outside[0])
        raise ValueError(f"{where}: {name} must lie in 0..{bound - 1}, but entry {first} is {array[first]}.")
    return array


@entry
def sparse_completion(rows: Any, columns: Any, values: Any, widths: tuple[int, ...] | list[int]) -> Problem:
    r"""Completion of a large matrix in factored form: $\tfrac12\sum_k (W_{i_kj_k} - y_k)^2$ for a deep network $W$.

    The same function of the layers as with the loss `EntryCompletion`, at a cost that grows with the number of
    observations instead of the size of the matrix. An entry that was observed several times counts as often. The
    product of the problem is the row of observed entries sorted by rows and then by columns; for others take
    `model.at`.

    Args:
        rows: $i_k$.
        columns: $j_k$.
        values: $y_k$.
        widths: Of the network, input width first: (number of columns, hidden widths, number of rows).

    Returns:
        The problem, of the model `NetworkEntries` and the loss `SquaredDistance` on its row.

    Example:
        A matrix `a` of `scipy.sparse` is given as `coo = a.tocoo()` and `(coo.row, coo.col, coo.data)`.

        >>> problem = sparse_completion([0, 1], [2, 0], [30.0, 21.0], (3, 1, 2))
        >>> float(problem.value((jnp.array([[1.0, 2.0, 3.0]]), jnp.array([[10.0], [20.0]]))))
        0.5
    """
    where = "sparse_completion"
    for name, index in (("rows", rows), ("columns", columns), ("values", values)):
        check_shape(where, name, index, np.shape(rows))
        check_shape(where, name, index, (None,))
    out, inp = DeepLinear(widths).product_shape
    i, j = _checked_index("rows", rows, out, where), _checked_index("columns", columns, inp, where)
    order = np.lexsort((j, i))  # neighbours in memory are then neighbours in the matrix
    model = NetworkEntries(widths, i[order], j[order])
    observed = as_array(values, float)
    return Problem(model, SquaredDistance((np.asarray(observed) if is_concrete(observed) else observed)[order][None]))
