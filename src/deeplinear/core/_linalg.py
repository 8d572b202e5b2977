"""Small pieces of linear algebra that several layers share.

Called outside of a compiled program each of them is one; inside they dissolve (`inline`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

import deeplinear.core.random as random
from deeplinear.core._types import Array, Params, RandomKey
from deeplinear.core._xp import formula, xp


@formula
def inner(left: Params, right: Params) -> Float[Array, ""]:
    """Frobenius inner product of two lists of matrices."""
    return xp.sum(xp.stack([xp.vdot(a, b) for a, b in zip(left, right, strict=True)]))


@formula
def norm(params: Params) -> Float[Array, ""]:
    """Frobenius norm of a list of matrices, with derivative 0 at zeros, where it has a corner."""
    return _root(inner(params, params))


@formula
def frobenius(array: Float[Array, "..."]) -> Float[Array, ""]:
    """Root of the sum of squares, with derivative 0 at zeros, where it has a corner."""
    return _root(xp.sum(array**2))


def _root(squared: Float[Array, ""]) -> Float[Array, ""]:
    return xp.where(squared > 0, xp.sqrt(xp.where(squared > 0, squared, 1.0)), squared)


@formula
def add_scaled(params: Params, factor: Float[Array, ""] | float, direction: Params) -> Params:
    """`params + factor * direction`, layer by layer."""
    return tuple(p + factor * d for p, d in zip(params, direction, strict=True))


@formula
def flatten(params: Params) -> Float[Array, " size"]:
    """All layers as one vector: row-major, layer 1 first."""
    return xp.concatenate([p.ravel() for p in params])


def unflatten(vector: Float[Array, " size"], shapes: Sequence[tuple[int, int]]) -> Params:
    """Inverse of `flatten` for layers of the given shapes."""
    return (_cut if isinstance(vector, np.ndarray) else _cut_compiled)(vector, tuple(shapes))


def _cut(vector: Any, shapes: tuple[tuple[int, int], ...]) -> tuple[Any, ...]:
    ends = np.cumsum([rows * columns for rows, columns in shapes]).tolist()
    starts = [0, *ends[:-1]]
    return tuple(vector[i:j].reshape(shape) for i, j, shape in zip(starts, ends, shapes, strict=True))


_cut_compiled = formula(_cut, static_argnums=1)


@formula
def svd(matrix: Float[Array, "*batch rows columns"]) -> tuple[Array, Array, Array]:
    """Thin singular value decomposition; NaN throughout for a matrix with non-finite entries, and no words about it."""
    finite = xp.all(xp.isfinite(matrix), axis=(-2, -1), keepdims=True)
    left, values, right = xp.linalg.svd(xp.where(finite, matrix, 0.0), full_matrices=False)
    return (
        xp.where(finite, left, xp.nan),
        xp.where(finite[..., 0], values, xp.nan),
        xp.where(finite, right, xp.nan),
    )


@formula
def spectrum(matrix: Float[Array, "*batch rows columns"]) -> Float[Array, "*batch modes"]:
    """Singular values, largest first; NaN for a matrix with non-finite entries, and no words about it.

    Example:
        >>> spectrum(jnp.array([[0.0, 2.0], [1.0, 0.0]]))
        array([2., 1.])
    """
    finite = xp.all(xp.isfinite(matrix), axis=(-2, -1), keepdims=True)
    values = xp.linalg.svd(xp.where(finite, matrix, 0.0), compute_uv=False)
    return xp.where(finite[..., 0], values, xp.nan)


def random_orthogonal(key: RandomKey, size: int, dtype: xp.dtype | None = None) -> Float[Array, "size size"]:
    """Orthogonal matrix drawn from Haar measure."""
    return _haar(key, size, xp.result_type(float) if dtype is None else dtype)


@formula(static_argnums=(1, 2))
def _haar(key: RandomKey, size: int, dtype: Any) -> Array:
    return random.orthogonal(key, size, dtype=dtype)
