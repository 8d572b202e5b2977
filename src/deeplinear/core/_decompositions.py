"""Singular value decompositions with derivatives, and a way to refuse a derivative where there is none."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from deeplinear.core._linalg import svd
from deeplinear.core._types import Array
from deeplinear.core._xp import differentiable, formula, is_program, put, xp

TIED = 1e-12
"""Singular values closer than this share of the largest count as equal."""


def refused_derivative(value: Array, where: Bool[Array, "..."] | bool, message: str) -> Array:
    """Return an array as it is, and refuse to differentiate it where a condition holds.

    The refusal comes when the derivative is computed, also inside a compiled program.

    Args:
        value: The array.
        where: The condition, such as "singular values coincide".
        message: Function, what has no derivative there, and what to use instead.
    """
    return _refused(message, value, xp.any(where)) if is_program(value, where) else value


def _refused(message: str, value: Array, condition: Array) -> Array:
    @jax.custom_jvp
    def same(array: Array, bad: Array) -> Array:
        return array

    @same.defjvp
    def _(primals: tuple[Array, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
        import equinox as eqx

        one = eqx.error_if(xp.ones((), primals[0].dtype), primals[1], message)
        return primals[0], one * tangents[0]

    return same(value, condition)


def full_svd(matrix: Float[Array, "rows columns"]) -> tuple[Array, Array, Array]:
    r"""Singular value decomposition $(U, s, V^\top)$ with square $U$ and $V$, and derivatives.

    Vectors of different singular values turn towards each other as perturbation theory says. Vectors that no singular
    value belongs to turn as little as possible, and so do those of equal singular values: there, vectors have no
    derivative of their own (see `are_tied`).
    """
    return _full_svd(matrix)


@differentiable
def _full_svd(matrix: Float[Array, "rows columns"]) -> tuple[Array, Array, Array]:
    finite = xp.all(xp.isfinite(matrix))
    parts = xp.linalg.svd(xp.where(finite, matrix, 0.0), full_matrices=True)
    left, values, right_t = (xp.where(finite, part, xp.nan) for part in parts)
    return left, values, right_t


@_full_svd.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
    left, values, right_t = _full_svd(*primals)
    (rows, columns), modes = primals[0].shape, values.shape[0]
    seen = left.T @ tangents[0] @ right_t.T
    square = seen[:modes, :modes]
    total, gap = values[None, :] + values[:, None], values[None, :] - values[:, None]
    apart = (xp.abs(gap) > 0) & (total > 0)
    both = xp.where(apart, total * gap, 1.0)
    turn_left = xp.where(apart, (square * values[None, :] + values[:, None] * square.T) / both, 0.0)
    turn_right = xp.where(apart, (values[:, None] * square + square.T * values[None, :]) / both, 0.0)
    inverse = xp.where(values > 0, 1 / xp.where(values > 0, values, 1.0), 0.0)
    turn_left = _with_rest(turn_left, seen[modes:, :modes] * inverse, rows)
    turn_right = _with_rest(turn_right, seen[:modes, modes:].T * inverse, columns)
    moved = left @ turn_left, xp.diag(square), (right_t.T @ turn_right).T
    return (left, values, right_t), moved


def _with_rest(turn: Array, rest: Array, size: int) -> Array:
    """A turn of the modes and one of the complement towards them, as one skew matrix."""
    modes = turn.shape[0]
    whole = put(xp.zeros((size, size), turn.dtype), (slice(modes), slice(modes)), turn)
    below, above = (slice(modes, None), slice(modes)), (slice(modes), slice(modes, None))
    return put(put(whole, below, rest), above, -rest.T)


@formula(static_argnums=1)
def are_tied(values: Float[Array, " modes"], shape: tuple[int, int]) -> Bool[Array, ""]:
    """Whether singular vectors have no derivative: values coincide, or one vanishes beside a null space."""
    least = TIED * values[0]
    tied = xp.any(values[:-1] - values[1:] <= least)
    return tied | (values[-1] <= least) if shape[0] != shape[1] else tied | (values[0] == 0)


@differentiable
def polar(matrix: Float[Array, "*batch rows columns"]) -> Float[Array, "*batch rows columns"]:
    """Return the matrix with orthonormal columns closest to a given one; its derivative does not mind equal values."""
    left, _, right_t = svd(matrix)
    return left @ right_t


@polar.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """Directions that two vanishing singular values leave open do not turn."""
    left, values, right_t = svd(primals[0])
    left_t, right = xp.swapaxes(left, -1, -2), xp.swapaxes(right_t, -1, -2)
    moved = left_t @ tangents[0] @ right
    sums = values[..., :, None] + values[..., None, :]
    vanish = sums <= np.finfo(float).tiny
    turned = xp.where(vanish, 0.0, moved - xp.swapaxes(moved, -1, -2)) / xp.where(vanish, 1.0, sums)
    moved = left @ turned @ right_t
    if left.shape[-2] > left.shape[-1]:  # columns leave the space they span
        shares = xp.where(values > 0, 1 / xp.where(values > 0, values, 1.0), 0.0)
        outside = tangents[0] - left @ (left_t @ tangents[0])
        moved = moved + (outside @ right * shares[..., None, :]) @ right_t
    return left @ right_t, moved
