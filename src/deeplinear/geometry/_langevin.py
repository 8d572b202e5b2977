r"""The Langevin function $\coth u - 1/u$ and its derivative, at zero as well."""

from typing import Any

from jaxtyping import Float

from deeplinear.core import Array, entry, formula, xp

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
    return _langevin(xp.asarray(u, dtype=float))


@formula
def _langevin(x: Float[Array, "..."]) -> Float[Array, "..."]:
    size = xp.abs(x)
    near = size < SMALL
    far = xp.where(near, 1.0, size)
    close = xp.where(near, x, 0.0)
    series = close * xp.polyval(xp.asarray(SERIES[::-1]), close**2)
    value = 1 + 2 * xp.exp(-2 * far) / -xp.expm1(-2 * far) - 1 / far
    return xp.where(near, series, xp.sign(x) * value)


@entry
def langevin_slope(u: Any) -> Float[Array, "..."]:
    r"""$1/u^2 - 1/\sinh^2 u$, the derivative of the Langevin function.

    Example:
        >>> round(float(langevin_slope(0.0)), 12)
        0.333333333333
    """
    return _langevin_slope(xp.asarray(u, dtype=float))


@formula
def _langevin_slope(x: Float[Array, "..."]) -> Float[Array, "..."]:
    size = xp.abs(x)
    near = size < SMALL
    far = xp.where(near, 1.0, size)
    close = xp.where(near, x, 0.0)
    slopes = [c * (2 * k + 1) for k, c in enumerate(SERIES)]
    decay = xp.exp(-2 * far)
    return xp.where(
        near, xp.polyval(xp.asarray(slopes[::-1]), close**2), 1 / far**2 - 4 * decay / xp.expm1(-2 * far) ** 2
    )
