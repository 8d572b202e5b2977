r"""Block-shift matrices: the whole network as one matrix, without ever writing it down.

The nodes of a network of widths $d_0, \dots, d_L$ make $L + 1$ groups, and a matrix that connects nodes has
$(L+1) \times (L+1)$ blocks. Where only the blocks $(m + k, m)$ differ from zero it is a *shift* by $k$; shifts add
under products and change sign under transposition. The adjacency matrix of a network has shift 1, its $L$-th power
shift $L$.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    Params,
    as_array,
    check_count,
    check_finite,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    formula,
    inner,
    is_concrete,
    norm,
    put,
    xp,
)
from deeplinear.landscape._arguments import checked_chain, checked_network
from deeplinear.models import DeepLinear

OFF_PATTERN = 1e-12
"""Largest entry off the pattern, relative to the largest of all, that is taken for rounding."""


class BlockShift(eqx.Module):
    r"""Matrix whose only blocks are those at block row $m + k$ and block column $m$.

    With shift $k \ge 0$ it is $\mathrm{blk}_k(F_1, \dots, F_{L+1-k})$, block $(m + k, m)$ being $F_m$; a negative shift
    is the transpose of a positive one. `+`, `-`, `*` and `/` by a number, `@`, `**` by an integer and `.T` work block
    by block. A shift beyond $\pm L$ leaves no room for a block: such a matrix has none and is zero, which is how
    $A^{L+1} = 0$ comes out.

    Args:
        blocks: The blocks, in the order of their columns.
        widths: $(d_0, \dots, d_L)$.
        shift: $k$.

    Example:
        >>> a = BlockShift((jnp.ones((2, 1)), jnp.ones((1, 2))), (1, 2, 1), 1)
        >>> (a @ a).blocks[0], (a @ a @ a).blocks
        (Array([[2.]], dtype=float64), ())
    """

    blocks: Params
    widths: tuple[int, ...] = eqx.field(static=True)
    shift: int = eqx.field(static=True)

    @entry(empty=True)
    def __init__(self, blocks: Sequence[Matrix], widths: tuple[int, ...], shift: int) -> None:
        where = "BlockShift"
        self.widths = DeepLinear(widths).widths
        depth = len(self.widths) - 1
        check_count(where, "shift", shift, at_least=-(10**9))
        self.shift = int(shift)
        columns = self._columns
        if len(blocks) != len(columns):
            raise ValueError(
                f"{where}: blocks must hold {len(columns)} matrices for shift {shift} and depth {depth}, but holds "
                f"{len(blocks)}."
            )
        for position, (block, column) in enumerate(zip(blocks, columns, strict=True)):
            check_shape(where, f"blocks[{position}]", block, (self.widths[column + shift], self.widths[column]))
        self.blocks = tuple(blocks)

    # --- What it is ---------------------------------------------------------------------------------------------------

    @property
    def _columns(self) -> range:
        """Block columns that hold a block, counted from 0."""
        depth = len(self.widths) - 1
        return range(max(0, -self.shift), min(depth, depth - self.shift) + 1)

    @property
    def nodes(self) -> int:
        r"""Number of rows, $n_v = \sum_l d_l$."""
        return sum(self.widths)

    @property
    def depth(self) -> int:
        """Number of layers $L$."""
        return len(self.widths) - 1

    @property
    def layers(self) -> Params:
        """The layers, first-acting first; of a matrix with shift 1 only."""
        if self.shift != 1:
            raise ValueError(f"BlockShift.layers: only a matrix with shift 1 holds layers, but shift is {self.shift}.")
        return self.blocks

    def block(self, row: int, column: int) -> Matrix:
        """Block at a block row and block column, counted from 0; zero off the pattern."""
        check_count("BlockShift.block", "row", row, at_most=self.depth)
        check_count("BlockShift.block", "column", column, at_most=self.depth)
        if row - column != self.shift:
            return xp.zeros((self.widths[row], self.widths[column]), self._dtype)
        return self.blocks[column - self._columns.start]

    def dense(self) -> Float[Array, "nodes nodes"]:
        """The matrix written out, zeros and all; for pictures and small networks."""
        return _dense(self)

    @property
    def _dtype(self) -> Any:
        return xp.result_type(*(block.dtype for block in self.blocks)) if self.blocks else xp.zeros(()).dtype

    def __repr__(self) -> str:
        shapes = ", ".join("x".join(map(str, np.shape(block))) for block in self.blocks)
        held = f"blocks {shapes}" if self.blocks else "no blocks: zero"
        return f"BlockShift(shift {self.shift}, widths {self.widths}, {held})"

    # --- Algebra ------------------------------------------------------------------------------------------------------

    @property
    def T(self) -> "BlockShift":
        """Transpose: the shift changes its sign."""
        return BlockShift(tuple(block.T for block in self.blocks), self.widths, -self.shift)

    def __add__(self, other: Any) -> "BlockShift":
        """Sum with a matrix of the same shift; one without blocks is zero and fits any."""
        self._same_widths("+", other)
        if not other.blocks:
            return self
        if not self.blocks:
            return other
        if other.shift != self.shift:
            raise ValueError(
                f"BlockShift: only matrices of one shift can be added, but the shifts are {self.shift} and "
                f"{other.shift}; add their dense forms."
            )
        return BlockShift(tuple(a + b for a, b in zip(self.blocks, other.blocks, strict=True)), self.widths, self.shift)

    def __sub__(self, other: Any) -> "BlockShift":
        self._same_widths("-", other)
        return self + (-other)

    def __neg__(self) -> "BlockShift":
        return BlockShift(tuple(-block for block in self.blocks), self.widths, self.shift)

    def __mul__(self, factor: Any) -> "BlockShift":
        if isinstance(factor, BlockShift) or np.ndim(factor) != 0:
            raise TypeError("BlockShift: * takes a number; the product of matrices is @.")
        return BlockShift(tuple(factor * block for block in self.blocks), self.widths, self.shift)

    def __rmul__(self, factor: Any) -> "BlockShift":
        return self * factor

    def __truediv__(self, divisor: Any) -> "BlockShift":
        if isinstance(divisor, BlockShift) or np.ndim(divisor) != 0:
            raise TypeError("BlockShift: / takes a number.")
        return BlockShift(tuple(block / divisor for block in self.blocks), self.widths, self.shift)

    def __pow__(self, exponent: int) -> "BlockShift":
        return self.power(exponent)

    def __matmul__(self, other: Any) -> Any:
        """Product with a block-shift matrix (shifts add), or with an array of as many rows as there are nodes."""
        if not isinstance(other, BlockShift):
            return self._apply(xp.asarray(other))
        self._same_widths("@", other)
        shift = self.shift + other.shift
        depth, start = self.depth, other._columns.start
        blocks = []
        for column in range(max(0, -shift), min(depth, depth - shift) + 1):
            middle, row = column + other.shift, column + shift
            if 0 <= middle <= depth:
                blocks.append(self.blocks[middle - self._columns.start] @ other.blocks[column - start])
            else:
                blocks.append(xp.zeros((self.widths[row], self.widths[column]), self._dtype))
        return BlockShift(tuple(blocks), self.widths, shift)

    def _apply(self, array: Float[Array, "nodes *columns"]) -> Float[Array, "nodes *columns"]:
        if array.ndim not in (1, 2) or array.shape[0] != self.nodes:
            raise ValueError(
                f"BlockShift: @ takes an array with {self.nodes} rows, one per node, but its shape is {array.shape}."
            )
        parts = xp.split(array, np.cumsum(self.widths)[:-1])
        result = [xp.zeros_like(part) for part in parts]
        for block, column in zip(self.blocks, self._columns, strict=True):
            result[column + self.shift] = block @ parts[column]
        return xp.concatenate(result)

    def power(self, exponent: int) -> "BlockShift":
        r"""$A^k$, $k \ge 0$; for layers $\mathrm{blk}_k(W_{k:1}, W_{k+1:2}, \dots, W_{L:L+1-k})$."""
        check_count("BlockShift.power", "exponent", exponent)
        result = BlockShift(tuple(xp.eye(width, dtype=self._dtype) for width in self.widths), self.widths, 0)
        for _ in range(exponent):
            result = self @ result
        return result

    def commutator(self, other: "BlockShift") -> "BlockShift":
        """$[A, B] = AB - BA$."""
        return self @ other - other @ self

    def inner(self, other: "BlockShift") -> Float[Array, ""]:
        r"""$\langle A, B\rangle = \mathrm{tr}(A^\top B)$; zero for matrices of different shifts."""
        self._same_widths("inner", other)
        if other.shift != self.shift or not self.blocks:
            return xp.zeros((), self._dtype)
        return inner(self.blocks, other.blocks)

    @property
    def norm(self) -> Float[Array, ""]:
        """Frobenius norm."""
        return norm(self.blocks) if self.blocks else xp.zeros((), self._dtype)

    def _same_widths(self, operation: str, other: Any) -> None:
        if not isinstance(other, BlockShift):
            raise TypeError(f"BlockShift: {operation} takes another BlockShift, but the operand is {other!r}.")
        if other.widths != self.widths:
            raise ValueError(
                f"BlockShift: {operation} takes matrices of one network, but the widths are {self.widths} and "
                f"{other.widths}."
            )


@formula
def _dense(matrix: BlockShift) -> Float[Array, "nodes nodes"]:
    edges = np.concatenate([[0], np.cumsum(matrix.widths)])
    result = xp.zeros((matrix.nodes, matrix.nodes), matrix._dtype)
    for block, column in zip(matrix.blocks, matrix._columns, strict=True):
        row = column + matrix.shift
        place = slice(edges[row], edges[row + 1]), slice(edges[column], edges[column + 1])
        result = put(result, place, block)
    return result


# --- Making them ------------------------------------------------------------------------------------------------------


@entry
def adjacency(params: Iterable[Any]) -> BlockShift:
    r"""Adjacency matrix $A = \mathrm{blk}_1(W_1, \dots, W_L)$ of a network.

    Node $i$ of group $l$ and node $j$ of group $l - 1$ are joined by the weight $(W_l)_{ij}$. $A$ is nilpotent, and
    $A^L = \mathrm{blk}_L(W_{L:1})$ holds the end-to-end map.

    Args:
        params: Layers, first-acting first.

    Returns:
        A matrix with shift 1; `.layers` are the layers again.

    Example:
        >>> adjacency((jnp.array([[2.0]]), jnp.array([[3.0]]))).dense()
        array([[0., 0., 0.],
               [2., 0., 0.],
               [0., 3., 0.]])
    """
    layers = checked_chain("adjacency", params)
    return BlockShift(layers, (layers[0].shape[1], *(layer.shape[0] for layer in layers)), 1)


@entry
def embedded(target: Any, widths: tuple[int, ...]) -> BlockShift:
    r"""$E = \mathrm{blk}_L(\Sigma)$: an end-to-end map as a matrix that joins the input nodes with the output nodes.

    Args:
        target: $\Sigma$, (out, in).
        widths: $(d_0, \dots, d_L)$.

    Returns:
        A matrix with shift $L$.

    Example:
        >>> embedded(jnp.eye(2), (2, 3, 3, 2)).shift
        3
    """
    where = "embedded"
    check_x64(where)
    network = checked_network(where, widths)
    matrix = checked_layer(where, "target", target)
    check_shape(where, "target", matrix, network.product_shape)
    check_finite(where, "target", matrix)
    return BlockShift((as_array(matrix, float),), network.widths, network.depth)


@entry
def from_dense(matrix: ArrayLike, widths: tuple[int, ...], shift: int = 1) -> BlockShift:
    r"""Read the blocks of one shift from a matrix that has no others.

    Args:
        matrix: Square, as many rows as there are nodes.
        widths: $(d_0, \dots, d_L)$.
        shift: $k$.

    Returns:
        The block-shift matrix.

    Raises:
        HypothesisError: There are entries off the pattern (beyond $10^{-12}$ of the largest entry). Under a
            transformation, where they cannot be seen, they are dropped.

    Example:
        >>> from_dense(jnp.array([[0.0, 0.0], [3.0, 0.0]]), (1, 1)).layers
        (array([[3.]]),)
    """
    where = "from_dense"
    check_x64(where)
    network = checked_network(where, widths)
    check_count(where, "shift", shift, at_least=-network.depth, at_most=network.depth)
    nodes = sum(network.widths)
    dense = as_array(checked_layer(where, "matrix", matrix), float)
    check_shape(where, "matrix", dense, (nodes, nodes))
    check_finite(where, "matrix", dense)
    edges = np.concatenate([[0], np.cumsum(network.widths)])
    columns = range(max(0, -shift), min(network.depth, network.depth - shift) + 1)
    result = BlockShift(
        tuple(dense[edges[c + shift] : edges[c + shift + 1], edges[c] : edges[c + 1]] for c in columns),
        network.widths,
        shift,
    )
    if is_concrete(dense):
        rest = float(xp.max(xp.abs(dense - result.dense())))
        tolerance = OFF_PATTERN * float(xp.max(xp.abs(dense)))
        if rest > tolerance:
            raise HypothesisError(
                f"blocks of shift {shift} only",
                rest,
                tolerance,
                f"The matrix has entries of this size elsewhere: it is no block-shift matrix of widths {widths}.",
            )
    return result
