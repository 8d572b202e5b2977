"""Eigenvalues of the operator of the metric, one for each pair of singular values; their slopes and differences."""

from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, formula, put, xp
from deeplinear.geometry._langevin import langevin

NODES, WEIGHTS = np.polynomial.legendre.leggauss(7)
"""Gauss–Legendre rule with which close values are treated."""

CLOSE = 0.15
"""Two singular values are close if the logarithm of their ratio is below this: the rule is then exact to rounding."""


@formula
def pair_eigenvalue(a: Float[Array, "..."], b: Float[Array, "..."], rate: Any) -> Float[Array, "..."]:
    r"""Normalised eigenvalue as a function of $r = 1/L$, unchecked: one program for every depth.

    With $h \ge l$ the two values and $\delta = 2\ln(h/l)$ it is
    $h^{2-2r}\,(1 - e^{-\delta})\,/\,((1 - e^{-r\delta})/r)$, in which $r = 0$ is infinite depth.

    Args:
        a: Singular values, not negative.
        b: Singular values, not negative; broadcast against `a`.
        rate: $r$, in $[0, 1]$.
    """
    rate = xp.asarray(rate, dtype=float)
    high, low = xp.maximum(a, b), xp.minimum(a, b)
    safe = xp.where(high > 0, high, 1.0)
    apart = 2 * log_ratio(safe, xp.where(low > 0, low, safe))
    equal = apart == 0
    gap = xp.where(equal, 1.0, apart)
    shrunk = xp.where(rate > 0, -xp.expm1(-rate * gap) / xp.where(rate > 0, rate, 1.0), gap)
    ratio = xp.where(equal, 1.0, -xp.expm1(-gap) / shrunk)
    ratio = xp.where(low > 0, ratio, rate)
    return xp.where(high > 0, safe ** (2 - 2 * rate) * ratio, xp.where(rate == 1, 1.0, 0.0))


@formula
def log_ratio(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""$\ln(a/b)$ of positive numbers, exact to rounding for close ones too."""
    a, b = xp.broadcast_arrays(a, b)
    high, low = xp.maximum(a, b), xp.minimum(a, b)
    share = (high - low) / high
    near = share < 0.5
    quotient = high / low
    far = xp.where(xp.isfinite(quotient), xp.log(quotient), xp.log(high) - xp.log(low))
    size = xp.where(near, -xp.log1p(-xp.where(near, share, 0.0)), far)
    return xp.where(a >= b, size, -size)


def pair_slope(u: Float[Array, "..."], rate: Any) -> Float[Array, "..."]:
    r"""$c_L + w_L(u)$ with $r = 1/L$: the slope of $\ln\lambda_L(s_i, s_j)$ in $\ln s_i$ at $u = \ln(s_i/s_j)$.

    Equal to $(1 + \coth u) - r(1 + \coth ru)$, which is taken without cancellation far to the left of zero, where it
    is small.
    """
    rate = xp.asarray(rate, dtype=float)
    size = xp.maximum(xp.abs(u), 0.5)
    small = (_bernoulli(2 * rate * size) - _bernoulli(2 * size)) / size
    near = 1 - rate + langevin(u) - rate * langevin(rate * u)
    return xp.where(u < -0.5, small, near)


def _bernoulli(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """$x/(e^x - 1)$ for $x \\ge 0$."""
    safe = xp.where(x > 0, x, 1.0)
    return xp.where(x > 0, safe * xp.exp(-safe) / -xp.expm1(-safe), 1.0)


@formula
def eigenvalue_difference(values: Float[Array, " modes"], rate: Any) -> Float[Array, "modes modes modes"]:
    r"""$T_{ijk} = (\lambda(x_i, x_k) - \lambda(x_j, x_k))/(x_i - x_j)$, with $x = s^2$, of the normalised eigenvalues.

    Where $s_i$ and $s_j$ are close it is the mean of $\partial\lambda/\partial x$ between them, by a Gauss–Legendre
    rule. It holds all that derivatives of the operator need, at a cost that does not depend on the depth. Exact to
    $10^{-13}$ of the larger of the two eigenvalues over the larger of $x_i, x_j$, for any gaps and for ratios of
    singular values up to $10^6$.

    Args:
        values: Singular values, positive.
        rate: $r = 1/L$, in $[0, 1]$.

    Returns:
        The array, symmetric in its first two indices.
    """
    size = values.shape[0]
    squares = values**2
    i, j = np.triu_indices(size)
    one, other = values[i], values[j]
    near = xp.abs(log_ratio(one, other)) < CLOSE
    between = squares[j][:, None] + (squares[i] - squares[j])[:, None] * (0.5 + 0.5 * xp.asarray(NODES))
    between = xp.where(near[:, None], between, squares[i][:, None])
    root = xp.sqrt(between)[:, :, None]
    slopes = pair_eigenvalue(root, values, rate) * pair_slope(log_ratio(root, values), rate) / (2 * root**2)
    mean = xp.einsum("n,pnk->pk", 0.5 * xp.asarray(WEIGHTS), slopes)
    table = pair_eigenvalue(values[:, None], values[None], rate)
    gap = (one - other) * (one + other)
    far = (table[i] - table[j]) / xp.where(near, 1.0, gap)[:, None]
    pairs = xp.where(near[:, None], mean, far)
    return put(put(xp.zeros((size, size, size)), (i, j), pairs), (j, i), pairs)
