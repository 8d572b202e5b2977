r"""The Langevin function $\coth u - 1/u$ and its derivative, at zero as well."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from deeplinear.core import entry

SERIES = (1 / 3, -1 / 45, 2 / 945, -1 / 4725, 2 / 93555, -1382 / 638512875, 4 / 18243225)
"""Coefficients of $u, u^3, \\dots, u^{13}$ of the Langevin function."""

SMALL = 0.3
"""Below this the series is exact to rounding."""


@entry
def langevin(u: Any) -> Float[Array, "..."]:
    r"""$\coth u - 1/u$, exact to rounding for every $u$.

    Example:
        >>> float(langevin(0.0)), round(float(langevin(1.0)), 12)
        (0.0, 0.313035285499)
    """
    return _langevin(jnp.asarray(u, dtype=float))


@jax.jit
def _langevin(x: Float[Array, "..."]) -> Float[Array, "..."]:
    size = jnp.abs(x)
    near = size < SMALL
    far = jnp.where(near, 1.0, size)
    close = jnp.where(near, x, 0.0)
    series = close * jnp.polyval(jnp.asarray(SERIES[::-1]), close**2)
    value = 1 + 2 * jnp.exp(-2 * far) / -jnp.expm1(-2 * far) - 1 / far
    return jnp.where(near, series, jnp.sign(x) * value)


@entry
def langevin_slope(u: Any) -> Float[Array, "..."]:
    r"""$1/u^2 - 1/\sinh^2 u$, the derivative of the Langevin function.

    Example:
        >>> round(float(langevin_slope(0.0)), 12)
        0.333333333333
    """
    return _langevin_slope(jnp.asarray(u, dtype=float))


@jax.jit
def _langevin_slope(x: Float[Array, "..."]) -> Float[Array, "..."]:
    size = jnp.abs(x)
    near = size < SMALL
    far = jnp.where(near, 1.0, size)
    close = jnp.where(near, x, 0.0)
    slopes = [c * (2 * k + 1) for k, c in enumerate(SERIES)]
    decay = jnp.exp(-2 * far)
    return jnp.where(
        near, jnp.polyval(jnp.asarray(slopes[::-1]), close**2), 1 / far**2 - 4 * decay / jnp.expm1(-2 * far) ** 2
    )
