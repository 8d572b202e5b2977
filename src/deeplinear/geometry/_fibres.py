r"""Balanced layers over a matrix: lifts, and the directions that the product sees and does not see.

Square balanced layers of full rank are $W_l = Q_l \Lambda Q_{l-1}^\top$ with orthogonal $Q_l$ and common strengths
$\Lambda = S^{1/L}$; their product is $Q_L S Q_0^\top$. The layers over one product are an orbit of $L - 1$ orthogonal
groups. Tangents of that orbit are *vertical*, $K_l W_l - W_l K_{l-1}$ with skew $K_l$, $K_0 = K_L = 0$; orthogonal to
them are the *horizontal* ones, $W_{L:l+1}^\top C\, W_{l-1:1}^\top$. The product map is an isometry from horizontal
tangents to matrices with the metric of depth $L$.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from deeplinear.core import (
    HypothesisError,
    Matrix,
    Params,
    add_scaled,
    check_finite,
    check_shape,
    checked_layer,
    checked_params,
    norm,
)
from deeplinear.geometry._metric import Metric, checked_depth, checked_point
from deeplinear.models import DeepLinear, balancedness

ORTHOGONAL = 1e-8
"""Largest distance of $Q^\\top Q$ from the identity."""

BALANCED = 1e-8
"""Largest imbalance, relative to the squared norm of the layers."""


def balanced_layers(strengths: Any, turns: Sequence[Any]) -> Params:
    r"""Layers $W_l = Q_l\,\mathrm{diag}(\lambda)\,Q_{l-1}^\top$.

    Args:
        strengths: $\lambda$, positive: the singular values of every layer.
        turns: $Q_0, Q_1, \dots, Q_L$, orthogonal.

    Returns:
        The layers, first-acting first.

    Example:
        >>> balanced_layers([2.0], [jnp.eye(1)] * 4)[2]
        Array([[2.]], dtype=float64)
    """
    where = "balanced_layers"
    values = jnp.asarray(checked_layer(where, "strengths", strengths), dtype=float)
    check_shape(where, "strengths", values, (None,))
    check_finite(where, "strengths", values)
    if float(jnp.min(values, initial=math.inf)) <= 0:
        raise HypothesisError("positive strengths", float(jnp.sum(values <= 0)), 0.0, "The number of others is told.")
    if len(turns) < 2:
        raise ValueError(f"{where}: turns must hold at least 2 matrices, one more than layers, but holds {len(turns)}.")
    size = values.shape[0]
    frames = [_orthogonal(where, f"turns[{k}]", turn, size) for k, turn in enumerate(turns)]
    return tuple((above * values) @ below.T for below, above in itertools.pairwise(frames))


def balanced_lift(point: Any, depth: int, turns: Sequence[Any] | None = None) -> Params:
    r"""Balanced layers with a given product.

    Args:
        point: $X$, square and of full rank.
        depth: $L$, a positive integer.
        turns: $Q_1, \dots, Q_{L-1}$, orthogonal; identities by default.

    Returns:
        The layers; of all layers with this product they have the least norm, $L\sum_i s_i^{2/L}$ squared.

    Example:
        >>> first, second = balanced_lift(jnp.diag(jnp.array([4.0, 9.0])), 2)
        >>> (second @ first).round(12)
        Array([[4., 0.],
               [0., 9.]], dtype=float64)
    """
    where = "balanced_lift"
    checked_depth(where, depth, finite=True)
    matrix = checked_point(where, "point", point)
    check_shape(where, "point", matrix, (matrix.shape[0], matrix.shape[0]))
    left, values, right_t = jnp.linalg.svd(matrix)
    if float(values[-1]) <= 0:
        raise HypothesisError("a matrix of full rank", float(jnp.sum(values <= 0)), 0.0, "The rank that lacks is told.")
    inner = [jnp.eye(matrix.shape[0])] * (depth - 1) if turns is None else list(turns)
    if len(inner) != depth - 1:
        raise ValueError(f"{where}: turns must hold {depth - 1} matrices, but holds {len(inner)}.")
    return balanced_layers(values ** (1 / depth), [right_t.T, *inner, left])


def manifold_dimension(size: int, depth: int) -> int:
    r"""Dimension $d^2 + (L-1)\,d(d-1)/2$ of the balanced layers of full rank.

    Example:
        >>> manifold_dimension(3, 4)
        18
    """
    return size**2 + (depth - 1) * size * (size - 1) // 2


def horizontal_lift(params: Any, vector: Any) -> Params:
    r"""The horizontal tangent of balanced layers over a tangent $Z$ of their product.

    $C = A_L[X]^{-1}(Z)$, then $W_{L:l+1}^\top C\,W_{l-1:1}^\top$ for every layer. Its squared norm is $g_X(Z, Z)$.

    Args:
        params: Balanced layers, square and of full rank.
        vector: $Z$.

    Returns:
        A tangent with one matrix for each layer.
    """
    where = "horizontal_lift"
    layers, model = _balanced(where, params)
    product, memo = model.forward(layers)
    covector = Metric(model.depth).inverse(product, checked_point(where, "vector", vector))
    return model.pullback(layers, memo, covector)


def horizontal_part(params: Any, tangent: Any) -> Params:
    """The horizontal part of a tangent of balanced layers; what is left of it the product does not see.

    Args:
        params: Balanced layers, square and of full rank.
        tangent: One matrix for each layer.
    """
    where = "horizontal_part"
    layers, model = _balanced(where, params)
    moves: Params = tuple(jnp.asarray(move, dtype=float) for move in checked_params(where, "tangent", tangent))
    model.check(moves, f"{where}: tangent")
    _, memo = model.forward(layers)
    return horizontal_lift(layers, model.pushforward(layers, memo, moves)[0])


def horizontality_defect(params: Any, tangent: Any) -> Float[Array, ""]:
    """Norm of what is not horizontal in a tangent of balanced layers; zero if and only if it is horizontal."""
    seen = horizontal_part(params, tangent)
    return norm(add_scaled(tuple(jnp.asarray(move, dtype=float) for move in tangent), -1.0, seen))


def horizontal_basis(params: Any) -> tuple[Float[Array, "entries rows columns"], ...]:
    r"""Orthonormal basis of the horizontal tangents, one element for each pair $(k, l)$ of singular directions.

    Layer $m$ of it is $\lambda_k^{L-m}\lambda_l^{m-1} / (\sum_j \lambda_k^{2(L-j)}\lambda_l^{2(j-1)})^{1/2}$ times
    $q_{m,k}q_{m-1,l}^\top$; the product map takes it to $\sqrt{\lambda_L(s_k, s_l)}\,u_k v_l^\top$.

    Args:
        params: Balanced layers, square and of full rank.

    Returns:
        For each layer its part of all elements, pairs in row-major order.
    """
    layers, model = _balanced("horizontal_basis", params)
    product, memo = model.forward(layers)
    left, values, right_t = jnp.linalg.svd(product)
    eigenvalues = Metric(model.depth).eigenvalues(product)
    size = values.shape[0]

    def element(k: Array, l: Array) -> Params:  # noqa: E741
        return model.pullback(layers, memo, jnp.outer(left[:, k], right_t[l]) / jnp.sqrt(eigenvalues[k, l]))

    k, l = (index.ravel() for index in jnp.meshgrid(jnp.arange(size), jnp.arange(size), indexing="ij"))  # noqa: E741
    return jax.vmap(element)(k, l)


def vertical_basis(params: Any) -> tuple[Float[Array, "turns rows columns"], ...]:
    r"""Basis of the vertical tangents $K_l W_l - W_l K_{l-1}$: one hidden layer turned in one plane at a time.

    Linearly independent, not orthonormal.

    Args:
        params: Balanced layers, square and of full rank.

    Returns:
        For each layer its part of all $(L-1)d(d-1)/2$ elements.
    """
    layers, model = _balanced("vertical_basis", params)
    size = model.widths[0]
    elements = []
    for hidden in range(1, model.depth):
        for i, j in itertools.combinations(range(size), 2):
            turn = jnp.zeros((size, size)).at[i, j].set(1.0).at[j, i].set(-1.0)
            moves = [jnp.zeros_like(layer) for layer in layers]
            moves[hidden - 1] = turn @ layers[hidden - 1]
            moves[hidden] = -layers[hidden] @ turn
            elements.append(moves)
    if not elements:
        return tuple(jnp.zeros((0, size, size)) for _ in layers)
    return tuple(jnp.stack(parts) for parts in zip(*elements, strict=True))


def _orthogonal(where: str, name: str, value: Any, size: int) -> Matrix:
    matrix = checked_point(where, name, value)
    check_shape(where, name, matrix, (size, size))
    missed = float(jnp.max(jnp.abs(matrix.T @ matrix - jnp.eye(size)), initial=0.0))
    if missed > ORTHOGONAL:
        raise HypothesisError(f"{where}: {name} is orthogonal", missed, ORTHOGONAL)
    return matrix


def _balanced(where: str, params: Any) -> tuple[Params, DeepLinear]:
    """Square balanced layers of full rank and their network, or a refusal."""
    layers: Params = tuple(
        checked_point(where, f"params[{k}]", layer) for k, layer in enumerate(checked_params(where, "params", params))
    )
    model = DeepLinear((layers[0].shape[1], *(layer.shape[0] for layer in layers)))
    model.check(layers, where)
    if len(set(model.widths)) > 1:
        raise ValueError(f"{where}: params must be square layers of one width, but the widths are {model.widths}.")
    imbalance = float(np.max(np.asarray(balancedness(layers)), initial=0.0)) / max(float(norm(layers)) ** 2, 1e-300)
    if imbalance > BALANCED:
        raise HypothesisError("balanced layers", imbalance, BALANCED, "balanced_lift of their product gives such.")
    return layers, model
