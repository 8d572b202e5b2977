"""Small pieces of linear algebra that several layers share.

Called outside of a compiled program each of them is one; inside they dissolve (`inline`).
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from deeplinear.core._types import Params

_compiled = functools.partial(jax.jit, inline=True)


@_compiled
def inner(left: Params, right: Params) -> Float[Array, ""]:
    """Frobenius inner product of two lists of matrices."""
    return jnp.sum(jnp.stack([jnp.vdot(a, b) for a, b in zip(left, right, strict=True)]))


@_compiled
def norm(params: Params) -> Float[Array, ""]:
    """Frobenius norm of a list of matrices, with derivative 0 at zeros, where it has a corner."""
    return _root(inner(params, params))


@_compiled
def frobenius(array: Float[Array, "..."]) -> Float[Array, ""]:
    """Root of the sum of squares, with derivative 0 at zeros, where it has a corner."""
    return _root(jnp.sum(array**2))


def _root(squared: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1.0)), squared)


@_compiled
def add_scaled(params: Params, factor: Float[Array, ""] | float, direction: Params) -> Params:
    """`params + factor * direction`, layer by layer."""
    return tuple(p + factor * d for p, d in zip(params, direction, strict=True))


@_compiled
def flatten(params: Params) -> Float[Array, " size"]:
    """All layers as one vector: row-major, layer 1 first."""
    return jnp.concatenate([p.ravel() for p in params])


def unflatten(vector: Float[Array, " size"], shapes: Sequence[tuple[int, int]]) -> Params:
    """Inverse of `flatten` for layers of the given shapes."""
    return (_cut if isinstance(vector, np.ndarray) else _cut_compiled)(vector, tuple(shapes))


def _cut(vector: Any, shapes: tuple[tuple[int, int], ...]) -> tuple[Any, ...]:
    ends = np.cumsum([rows * columns for rows, columns in shapes]).tolist()
    starts = [0, *ends[:-1]]
    return tuple(vector[i:j].reshape(shape) for i, j, shape in zip(starts, ends, shapes, strict=True))


_cut_compiled = _compiled(_cut, static_argnums=1)


@_compiled
def svd(matrix: Float[Array, "*batch rows columns"]) -> tuple[Array, Array, Array]:
    """Thin singular value decomposition; NaN throughout for a matrix with non-finite entries, and no words about it."""
    finite = jnp.all(jnp.isfinite(matrix), axis=(-2, -1), keepdims=True)
    left, values, right = jnp.linalg.svd(jnp.where(finite, matrix, 0.0), full_matrices=False)
    return (
        jnp.where(finite, left, jnp.nan),
        jnp.where(finite[..., 0], values, jnp.nan),
        jnp.where(finite, right, jnp.nan),
    )


@_compiled
def spectrum(matrix: Float[Array, "*batch rows columns"]) -> Float[Array, "*batch modes"]:
    """Singular values, largest first; NaN for a matrix with non-finite entries, and no words about it.

    Example:
        >>> spectrum(jnp.array([[0.0, 2.0], [1.0, 0.0]]))
        Array([2., 1.], dtype=float64)
    """
    finite = jnp.all(jnp.isfinite(matrix), axis=(-2, -1), keepdims=True)
    values = jnp.linalg.svd(jnp.where(finite, matrix, 0.0), compute_uv=False)
    return jnp.where(finite[..., 0], values, jnp.nan)


def random_orthogonal(key: Array, size: int, dtype: jnp.dtype | None = None) -> Float[Array, "size size"]:
    """Orthogonal matrix drawn from Haar measure."""
    return _haar(key, size, jnp.result_type(float) if dtype is None else dtype)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _haar(key: Array, size: int, dtype: Any) -> Array:
    return jax.random.orthogonal(key, size, dtype=dtype)
