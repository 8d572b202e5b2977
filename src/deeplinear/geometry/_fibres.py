r"""Balanced layers over a matrix: lifts, and the directions that the product sees and does not see.

Square balanced layers of full rank are $W_l = Q_l \Lambda Q_{l-1}^\top$ with orthogonal $Q_l$ and common strengths
$\Lambda = S^{1/L}$; their product is $Q_L S Q_0^\top$. The layers over one product are an orbit of $L - 1$ orthogonal
groups. Tangents of that orbit are *vertical*, $K_l W_l - W_l K_{l-1}$ with skew $K_l$, $K_0 = K_L = 0$; orthogonal to
them are the *horizontal* ones, $W_{L:l+1}^\top C\, W_{l-1:1}^\top$. The product map is an isometry from horizontal
tangents to matrices with the metric of depth $L$.

Layers of rank $r$ below the width make up a stratum of their own: the same with $r$ strengths, and with the pairs of
singular directions of which at least one belongs to them. It is asked for by `rank`.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    Params,
    add_scaled,
    as_array,
    check_count,
    check_finite,
    check_shape,
    checked_layer,
    checked_params,
    entry,
    formula,
    is_concrete,
    no_gradient,
    norm,
    over,
    xp,
)
from deeplinear.geometry._metric import LARGEST_CONDITION, checked_depth, checked_point
from deeplinear.geometry._pair_eigenvalues import pair_eigenvalue
from deeplinear.models import DeepLinear, balancedness

ORTHOGONAL = 1e-8
"""Largest distance of $Q^\\top Q$ from the identity."""

BALANCED = 1e-8
"""Largest imbalance, relative to the squared norm of the layers."""

SINGULAR = 1e-12
"""Singular values of the layers, relative to the largest, below which they are zero."""


@entry
def balanced_layers(strengths: Any, turns: Sequence[Any]) -> Params:
    r"""Layers $W_l = Q_l\,\mathrm{diag}(\lambda)\,Q_{l-1}^\top$.

    Args:
        strengths: $\lambda$, positive: the singular values of every layer.
        turns: $Q_0, Q_1, \dots, Q_L$, orthogonal.

    Returns:
        The layers, first-acting first.

    Example:
        >>> balanced_layers([2.0], [jnp.eye(1)] * 4)[2]
        array([[2.]])
    """
    where = "balanced_layers"
    values = as_array(checked_layer(where, "strengths", strengths), float)
    check_shape(where, "strengths", values, (None,))
    check_finite(where, "strengths", values)
    if is_concrete(values) and float(np.min(seen := np.asarray(values), initial=math.inf)) <= 0:
        raise HypothesisError("positive strengths", float(np.sum(seen <= 0)), 0.0, "The number of others is told.")
    if len(turns) < 2:
        raise ValueError(f"{where}: turns must hold at least 2 matrices, one more than layers, but holds {len(turns)}.")
    size = values.shape[0]
    frames = [_orthogonal(where, f"turns[{k}]", turn, size) for k, turn in enumerate(turns)]
    return _between(values, frames)


@entry
def balanced_lift(point: Any, depth: int, turns: Sequence[Any] | None = None, *, rank: int | None = None) -> Params:
    r"""Balanced layers with a given product.

    Args:
        point: $X$, square and of full rank unless `rank` tells another.
        depth: $L$, a positive integer.
        turns: $Q_1, \dots, Q_{L-1}$, orthogonal; identities by default.
        rank: Rank of $X$ where it is lower than its size: the layers have that rank too.

    Returns:
        The layers; of all layers with this product they have the least norm, $L\sum_i s_i^{2/L}$ squared.

    Example:
        >>> first, second = balanced_lift(jnp.diag(jnp.array([4.0, 9.0])), 2)
        >>> (second @ first).round(12)
        array([[4., 0.],
               [0., 9.]])
    """
    where = "balanced_lift"
    depth = int(checked_depth(where, depth, finite=True))
    matrix = checked_point(where, "point", point)
    check_shape(where, "point", matrix, (matrix.shape[0], matrix.shape[0]))
    advice = "singular vectors have no derivative at equal singular values; minimal_fibre_norm has one"
    left, values, right_t = xp.linalg.svd(no_gradient("geometry.balanced_lift", "point", matrix, instead=advice))
    size = matrix.shape[0]
    if is_concrete(values):
        seen = np.asarray(values)
        if rank is not None:
            _check_rank(where, rank, seen)
        elif seen[-1] <= 0:
            lacking = float(np.sum(seen <= 0))
            raise HypothesisError("a matrix of full rank", lacking, 0.0, "The residual is the rank that lacks.")
    if rank is not None:
        values = xp.where(xp.arange(size) < rank, values, 0.0)
    inner = [np.eye(matrix.shape[0])] * (depth - 1) if turns is None else list(turns)
    if len(inner) != depth - 1:
        raise ValueError(f"{where}: turns must hold {depth - 1} matrices, but holds {len(inner)}.")
    hidden = [_orthogonal(where, f"turns[{k}]", turn, size) for k, turn in enumerate(inner)]
    return _between(values ** (1 / depth), [right_t.T, *hidden, left])


@entry
def minimal_fibre_norm(point: Any, depth: int) -> Float[Array, ""]:
    r"""Least squared norm $L\sum_i s_i^{2/L}$ of $L$ layers with a given product.

    The balanced layers with this product, and only they, have it. Hidden layers must be as wide as the rank.

    Args:
        point: $X$, of any shape and rank.
        depth: $L$, a positive integer.

    Example:
        >>> float(minimal_fibre_norm(jnp.diag(jnp.array([4.0, 9.0])), 2))
        26.0
    """
    where = "minimal_fibre_norm"
    depth = int(checked_depth(where, depth, finite=True))
    matrix = checked_point(where, "point", point)
    return _least_norm(matrix, depth)


def manifold_dimension(size: int, depth: int, rank: int | None = None) -> int:
    r"""Dimension $d^2 + (L-1)\,d(d-1)/2$ of the balanced layers of full rank.

    Of rank $r$ it is $r + (L+1)(dr - r(r+1)/2)$: the strengths, and $L + 1$ frames of $r$ vectors.

    Example:
        >>> manifold_dimension(3, 4), manifold_dimension(3, 4, rank=2)
        (18, 17)
    """
    where = "manifold_dimension"
    check_count(where, "size", size, at_least=1)
    check_count(where, "depth", depth, at_least=1)
    r = size if rank is None else rank
    check_count(where, "rank", r, at_least=1, at_most=size)
    return r + (depth + 1) * (size * r - r * (r + 1) // 2)


@entry(instead="call it outside of jit, vmap and grad, or multiply Metric.inverse by the layers")
def horizontal_lift(params: Any, vector: Any, *, rank: int | None = None) -> Params:
    r"""The horizontal tangent of balanced layers over a tangent $Z$ of their product.

    $C = A_L[X]^{-1}(Z)$, then $W_{L:l+1}^\top C\,W_{l-1:1}^\top$ for every layer. Its squared norm is $g_X(Z, Z)$.

    Args:
        params: Balanced layers, square and of full rank unless `rank` tells another.
        vector: $Z$; tangent to the matrices of that rank.
        rank: Rank of the layers, where it is lower than their width.

    Returns:
        A tangent with one matrix for each layer.

    Raises:
        HypothesisError: The layers are not balanced, are of another rank, or $Z$ leads to matrices of higher rank.

    Example:
        >>> moves = horizontal_lift((2.0 * jnp.eye(1), 2.0 * jnp.eye(1)), jnp.eye(1))  # of X = 4
        >>> [float(move[0, 0]) for move in moves]
        [0.25, 0.25]
    """
    where = "horizontal_lift"
    place = _place(where, params, rank)
    z = checked_point(where, "vector", vector)
    check_shape(where, "vector", z, place.product.shape)
    lifted, away, whole = _lifted(place, z)
    if float(away) > BALANCED * float(whole):
        raise HypothesisError(
            "a tangent of the matrices of this rank", float(away) / float(whole), BALANCED, "The part is told."
        )
    return lifted


@entry(instead="call it outside of jit, vmap and grad, or multiply Metric.inverse by the layers")
def horizontal_part(params: Any, tangent: Any, *, rank: int | None = None) -> Params:
    """The horizontal part of a tangent of balanced layers; what is left of it the product does not see.

    Args:
        params: Balanced layers, square and of full rank unless `rank` tells another.
        tangent: One matrix for each layer; tangent to the layers of that rank.
        rank: Rank of the layers, where it is lower than their width.
    """
    where = "horizontal_part"
    place = _place(where, params, rank)
    moves: Params = tuple(
        checked_point(where, f"tangent[{k}]", move) for k, move in enumerate(checked_params(where, "tangent", tangent))
    )
    place.model.check(moves, f"{where}: tangent")
    return _projected(place, moves)


@entry(instead="call it outside of jit, vmap and grad, or multiply Metric.inverse by the layers")
def horizontality_defect(params: Any, tangent: Any, *, rank: int | None = None) -> Float[Array, ""]:
    """Norm of what is not horizontal in a tangent of balanced layers; zero if and only if it is horizontal."""
    seen = horizontal_part(params, tangent, rank=rank)
    return _apart(tuple(xp.asarray(move, dtype=float) for move in tangent), seen)


@entry(instead="call it outside of jit, vmap and grad; it counts singular directions")
def horizontal_basis(params: Any, *, rank: int | None = None) -> tuple[Float[Array, "entries rows columns"], ...]:
    r"""Orthonormal basis of the horizontal tangents, one element for each pair $(k, l)$ of singular directions.

    Layer $m$ of it is $\lambda_k^{L-m}\lambda_l^{m-1} / (\sum_j \lambda_k^{2(L-j)}\lambda_l^{2(j-1)})^{1/2}$ times
    $q_{m,k}q_{m-1,l}^\top$; the product map takes it to $\sqrt{\lambda_L(s_k, s_l)}\,u_k v_l^\top$.

    Args:
        params: Balanced layers, square and of full rank unless `rank` tells another.
        rank: Rank $r$ of the layers, where it is lower than their width $d$.

    Returns:
        For each layer its part of all elements, pairs in row-major order; of rank $r$ there are $r(2d - r)$ of them,
        those with $k \le r$ or $l \le r$.
    """
    place = _place("horizontal_basis", params, rank)
    return _elements(place, *(xp.asarray(index) for index in np.nonzero(np.asarray(place.kept))))


@entry(instead="call it outside of jit, vmap and grad; it checks that the layers are balanced")
def vertical_basis(params: Any, *, rank: int | None = None) -> tuple[Float[Array, "turns rows columns"], ...]:
    r"""Basis of the vertical tangents $K_l W_l - W_l K_{l-1}$: one hidden layer turned in one plane at a time.

    Linearly independent, not orthonormal; its planes are those of the coordinates. Of rank $r$ they are those of
    singular directions of which one at least is not silent.

    Args:
        params: Balanced layers, square and of full rank unless `rank` tells another.
        rank: Rank $r$ of the layers, where it is lower than their width $d$.

    Returns:
        For each layer its part of all $(L-1)d(d-1)/2$ elements, or $(L-1)(dr - r(r+1)/2)$.
    """
    return _turned(_place("vertical_basis", params, rank).layers, rank)


@entry(instead="call it outside of jit, vmap and grad; entropy has its determinant and can be traced")
def vertical_gram(params: Any) -> Float[Array, "turns turns"]:
    r"""Inner products of the vertical tangents of turns of unit length, $(E_{ij} - E_{ji})/\sqrt2$.

    The root of its determinant is the volume of the fibre over that of the orthogonal groups:
    $\tfrac12 \ln\det = S_L(s)$, the entropy. In the singular frames it falls into tridiagonal matrices of size $L - 1$,
    one for each pair $j < k$, with $x + y$ on and $-\sqrt{xy}$ beside the diagonal ($x = s_j^{2/L}$,
    $y = s_k^{2/L}$) and the determinant $\lambda_L(s_j, s_k)$.

    Args:
        params: Balanced layers, square and of full rank.

    Returns:
        A symmetric matrix of size $(L-1)d(d-1)/2$.

    Example:
        >>> layers = balanced_lift(jnp.diag(jnp.array([4.0, 1.0])), 2)  # x + y = 5 is λ₂(4, 1) too
        >>> float(jnp.linalg.det(vertical_gram(layers)).round(12))
        5.0
    """
    return _gram(vertical_basis(params))


@formula(static_argnames="rank")
def _turned(layers: Params, rank: int | None) -> tuple[Float[Array, "turns rows columns"], ...]:
    """The tangents along which one hidden layer is turned in one plane."""
    size, elements = layers[0].shape[0], []
    for hidden in range(1, len(layers)):
        frame = xp.eye(size) if rank is None else xp.linalg.svd(layers[hidden - 1])[0]
        for i, j in itertools.combinations(range(size), 2):
            if rank is not None and i >= rank:
                continue
            turn = xp.outer(frame[:, i], frame[:, j]) - xp.outer(frame[:, j], frame[:, i])
            moves = [xp.zeros_like(layer) for layer in layers]
            moves[hidden - 1] = turn @ layers[hidden - 1]
            moves[hidden] = -layers[hidden] @ turn
            elements.append(moves)
    if not elements:
        return tuple(xp.zeros((0, size, size)) for _ in layers)
    return tuple(xp.stack(parts) for parts in zip(*elements, strict=True))


@formula
def _gram(basis: tuple[Float[Array, "turns rows columns"], ...]) -> Float[Array, "turns turns"]:
    flat = xp.concatenate([part.reshape(part.shape[0], -1) for part in basis], axis=1)
    return flat @ flat.T / 2


@formula
def _between(values: Float[Array, " modes"], frames: list[Matrix]) -> Params:
    return tuple((above * values) @ below.T for below, above in itertools.pairwise(frames))


@formula
def _least_norm(matrix: Matrix, depth: Any) -> Float[Array, ""]:
    return depth * xp.sum(xp.linalg.svd(matrix, compute_uv=False) ** (2 / depth))


@formula
def _apart(first: Params, second: Params) -> Float[Array, ""]:
    return norm(add_scaled(first, -1.0, second))


def _orthogonal(where: str, name: str, value: Any, size: int) -> Matrix:
    matrix = checked_point(where, name, value)
    check_shape(where, name, matrix, (size, size))
    if is_concrete(matrix):
        seen = np.asarray(matrix)
        missed = float(np.max(np.abs(seen.T @ seen - np.eye(size)), initial=0.0))
        if missed > ORTHOGONAL:
            raise HypothesisError(f"{where}: {name} is orthogonal", missed, ORTHOGONAL)
    return matrix


class _Place(NamedTuple):
    """Balanced layers with the frame of their product: singular vectors, the metric's eigenvalues, pairs that count."""

    layers: Params
    model: DeepLinear
    product: Matrix
    memo: Any
    left: Matrix
    right_t: Matrix
    eigenvalues: Matrix
    kept: Bool[Array, "rows columns"]

    def lift(self, seen: Matrix) -> Params:
        """The horizontal tangent over a tangent given in the singular frame."""
        scaled = xp.where(self.kept, seen / xp.where(self.kept, self.eigenvalues, 1.0), 0.0)
        return self.model.pullback(self.layers, self.memo, self.left @ scaled @ self.right_t)


def _place(where: str, params: Any, rank: int | None) -> _Place:
    """Square balanced layers of the rank that is told, with their network, or a refusal."""
    layers: Params = tuple(
        checked_point(where, f"params[{k}]", layer) for k, layer in enumerate(checked_params(where, "params", params))
    )
    model = DeepLinear((layers[0].shape[1], *(layer.shape[0] for layer in layers)))
    model.check(layers, where)
    if len(set(model.widths)) > 1:
        raise ValueError(f"{where}: params must be square layers of one width, but the widths are {model.widths}.")
    place, found = _framed(model, layers, model.widths[0] if rank is None else rank)
    imbalance, size, least, most = (float(number) for number in found)
    imbalance = imbalance / max(size**2, 1e-300)
    if imbalance > BALANCED:
        raise HypothesisError("balanced layers", imbalance, BALANCED, "balanced_lift of their product gives such.")
    if rank is not None:
        _check_rank(where, rank, np.linalg.svd(layers[0], compute_uv=False))
    if least * LARGEST_CONDITION < most or most == 0:
        raise HypothesisError(
            "layers of full rank" if rank is None else f"layers of rank {rank}",
            most / least if least > 0 else math.inf,
            LARGEST_CONDITION,
            "The ratio of the eigenvalues of the metric is told; rank= asks for layers of lower rank.",
        )
    return place


@formula
def _framed(model: DeepLinear, layers: Params, rank: Any) -> tuple[_Place, tuple[Float[Array, ""], ...]]:
    """The place, unchecked; the largest imbalance, the norm, and the smallest and largest eigenvalue that count."""
    product, memo = model.forward(layers)
    left, values, right_t = xp.linalg.svd(product)
    alive = xp.arange(model.widths[0]) < rank
    values = xp.where(alive, values, 0.0)
    eigenvalues = model.depth * pair_eigenvalue(values[:, None], values[None], 1 / model.depth)
    kept = alive[:, None] | alive[None]
    least, most = xp.min(xp.where(kept, eigenvalues, xp.inf)), xp.max(eigenvalues)
    place = _Place(layers, model, product, memo, left, right_t, eigenvalues, kept)
    return place, (xp.max(balancedness(layers), initial=0.0), norm(layers), least, most)


@formula
def _lifted(place: _Place, vector: Matrix) -> tuple[Params, Float[Array, ""], Float[Array, ""]]:
    """The horizontal tangent, the norm of what leads to matrices of higher rank, and that of the whole."""
    seen = place.left.T @ vector @ place.right_t.T
    return place.lift(seen), xp.linalg.norm(xp.where(place.kept, 0.0, seen)), xp.linalg.norm(vector)


@formula
def _projected(place: _Place, moves: Params) -> Params:
    moved, _ = place.model.pushforward(place.layers, place.memo, moves)
    return place.lift(place.left.T @ moved @ place.right_t.T)


@formula
def _elements(place: _Place, rows: Array, columns: Array) -> tuple[Float[Array, "entries rows columns"], ...]:
    def element(k: Array, l: Array) -> Params:  # noqa: E741
        scaled = xp.outer(place.left[:, k], place.right_t[l]) / xp.sqrt(place.eigenvalues[k, l])
        return place.model.pullback(place.layers, place.memo, scaled)

    return over(element)(rows, columns)


def _check_rank(where: str, rank: int, values: np.ndarray) -> None:
    """Refuse a rank that singular values do not have."""
    check_count(where, "rank", rank, at_least=1, at_most=values.shape[0])
    relative = np.asarray(values) / max(float(values[0]), 1e-300)
    if relative[rank - 1] <= SINGULAR:
        lacking = float(np.sum(relative[:rank] <= SINGULAR))
        raise HypothesisError(f"{where}: a rank of {rank}", lacking, 0.0, "The rank that lacks is told.")
    if rank < len(relative) and relative[rank] > SINGULAR:
        advice = "The first singular value that should vanish is told, over the largest."
        raise HypothesisError(f"{where}: a rank of {rank}", float(relative[rank]), SINGULAR, advice)
