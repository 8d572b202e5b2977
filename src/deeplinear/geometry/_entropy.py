r"""Entropy: the logarithm of the volume of a fibre, and how it changes with the spectrum.

The balanced layers with one product $X$ of full rank are an orbit of $L - 1$ orthogonal groups. Its volume is
$\mathrm{vol}(O_d)^{L-1}\,e^{S_L}$ with

$$S_L(s) = \tfrac12 \sum_{j<k} \ln \lambda_L(s_j, s_k),$$

$\lambda_L$ being the eigenvalues of the metric. $S_L - \tfrac{d(d-1)}4 \ln L \to S_\infty$ as the depth grows. All
derivatives are written with the Langevin function $\coth u - 1/u$ of $u = \ln(s_i/s_j)$, so that equal singular values
are no special case.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from deeplinear.core import (
    HypothesisError,
    Matrix,
    check_count,
    check_finite,
    check_x64,
    checked_layer,
    is_concrete,
)
from deeplinear.geometry._metric import checked_depth, checked_point, metric_eigenvalue

SERIES = (1 / 3, -1 / 45, 2 / 945, -1 / 4725, 2 / 93555, -1382 / 638512875, 4 / 18243225)
"""Coefficients of $u, u^3, \\dots, u^{13}$ of the Langevin function."""

SMALL = 0.3
"""Below this the series is exact to rounding."""


def langevin(u: Any) -> Float[Array, "..."]:
    r"""$\coth u - 1/u$, exact to rounding for every $u$.

    Example:
        >>> float(langevin(0.0)), round(float(langevin(1.0)), 12)
        (0.0, 0.313035285499)
    """
    x = jnp.asarray(u, dtype=float)
    size = jnp.abs(x)
    near = size < SMALL
    far = jnp.where(near, 1.0, size)
    close = jnp.where(near, x, 0.0)
    series = close * jnp.polyval(jnp.asarray(SERIES[::-1]), close**2)
    value = 1 + 2 * jnp.exp(-2 * far) / -jnp.expm1(-2 * far) - 1 / far
    return jnp.where(near, series, jnp.sign(x) * value)


def langevin_slope(u: Any) -> Float[Array, "..."]:
    r"""$1/u^2 - 1/\sinh^2 u$, the derivative of the Langevin function.

    Example:
        >>> round(float(langevin_slope(0.0)), 12)
        0.333333333333
    """
    x = jnp.asarray(u, dtype=float)
    size = jnp.abs(x)
    near = size < SMALL
    far = jnp.where(near, 1.0, size)
    close = jnp.where(near, x, 0.0)
    slopes = [c * (2 * k + 1) for k, c in enumerate(SERIES)]
    decay = jnp.exp(-2 * far)
    return jnp.where(
        near, jnp.polyval(jnp.asarray(slopes[::-1]), close**2), 1 / far**2 - 4 * decay / jnp.expm1(-2 * far) ** 2
    )


def entropy(spectrum: Any, depth: float) -> Float[Array, "*batch"]:
    r"""$S_L(s) = \tfrac12\sum_{j<k}\ln\lambda_L(s_j, s_k)$.

    $S_L(cs) = S_L(s) + \tfrac{d(d-1)}2(1 - \tfrac1L)\ln c$. Concave in $s$; at a fixed sum of the singular values
    largest where they are equal, at a fixed product smallest there.

    Args:
        spectrum: Singular values, positive; leading dimensions are a batch.
        depth: $L$, a positive integer or infinity.

    Returns:
        One number for each spectrum.

    Example:
        >>> round(float(entropy([3.0, 1.2, 0.4], 2)), 12)
        1.564431793079
    """
    s = _spectrum("entropy", spectrum, depth)
    j, k = np.triu_indices(s.shape[-1], 1)
    return 0.5 * jnp.sum(jnp.log(metric_eigenvalue(s[..., j], s[..., k], depth)), axis=-1)


def entropy_gradient(spectrum: Any, depth: float) -> Float[Array, "*batch modes"]:
    r"""$\partial S_L/\partial s_i = \sum_{j \ne i} (c_L + w_L(u_{ij}))/(2 s_i)$.

    With $c_L = 1 - 1/L$, $w_L(u) = \mathcal L(u) - \mathcal L(u/L)/L$, $\mathcal L$ the Langevin function and
    $u_{ij} = \ln(s_i/s_j)$.

    Args:
        spectrum: Singular values, positive; leading dimensions are a batch.
        depth: $L$, a positive integer or infinity.

    Returns:
        The gradient of each spectrum.

    Example:
        >>> entropy_gradient([3.0, 1.2, 0.4], math.inf).round(9)
        Array([0.47158217, 0.85423544, 1.40042742], dtype=float64)
    """
    s = _spectrum("entropy_gradient", spectrum, depth)
    slope, _ = _pairs(s, depth)
    others = 1 - jnp.eye(s.shape[-1])
    return jnp.sum(others * (_constant(depth) + slope), axis=-1) / (2 * s)


def entropy_hessian(spectrum: Any, depth: float) -> Float[Array, "*batch modes modes"]:
    r"""Second derivatives of the entropy: $-w_L'(u_{ij})/(2 s_i s_j)$ beside the diagonal.

    On it, $\sum_{j\ne i}(w_L'(u_{ij}) - c_L - w_L(u_{ij}))/(2 s_i^2)$.

    Args:
        spectrum: Singular values, positive; leading dimensions are a batch.
        depth: $L$, a positive integer or infinity.

    Returns:
        The Hessian of each spectrum.

    Example:
        >>> float(entropy_hessian([3.0, 1.2, 0.4], math.inf)[0, 1].round(9))
        -0.039448597
    """
    s = _spectrum("entropy_hessian", spectrum, depth)
    slope, curve = _pairs(s, depth)
    others = 1 - jnp.eye(s.shape[-1])
    diagonal = jnp.sum(others * (curve - _constant(depth) - slope), axis=-1) / (2 * s**2)
    beside = -others * curve / (2 * s[..., :, None] * s[..., None, :])
    return beside + diagonal[..., None] * jnp.eye(s.shape[-1])


def entropy_force(point: Any, depth: float) -> Matrix:
    r"""Gradient $U\,\mathrm{diag}(\partial S_L/\partial s)\,V^\top$ of the entropy as a function of the matrix.

    Args:
        point: Square matrix of full rank.
        depth: $L$, a positive integer or infinity.

    Returns:
        The gradient, of the shape of the matrix.
    """
    where = "entropy_force"
    matrix = checked_point(where, "point", point)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{where}: point must be square, but has shape {matrix.shape}.")
    left, values, right_t = jnp.linalg.svd(matrix)
    return (left * entropy_gradient(values, depth)) @ right_t


def log_orthogonal_volume(size: int) -> float:
    r"""Logarithm of the volume of the orthogonal group $O_d$ in the Frobenius metric.

    $2^{d(d-1)/4}\prod_{k=1}^d 2\pi^{k/2}/\Gamma(k/2)$.

    Example:
        >>> round(log_orthogonal_volume(3), 12)
        6.101769264778
    """
    check_count("log_orthogonal_volume", "size", size, at_least=1)
    spheres = sum(math.log(2) + k / 2 * math.log(math.pi) - math.lgamma(k / 2) for k in range(1, size + 1))
    return size * (size - 1) / 4 * math.log(2) + spheres


def log_fibre_volume(spectrum: Any, depth: int) -> Float[Array, "*batch"]:
    r"""Logarithm of the volume of the balanced layers with a given product.

    $(L - 1)\ln\mathrm{vol}(O_d) + S_L(s)$.

    Args:
        spectrum: Singular values of the product, positive; leading dimensions are a batch.
        depth: $L$, a positive integer.

    Returns:
        One number for each spectrum.

    Example:
        >>> round(float(log_fibre_volume([3.0, 1.2, 0.4], 3)), 11)
        14.50518156039
    """
    checked_depth("log_fibre_volume", depth, finite=True)
    s = _spectrum("log_fibre_volume", spectrum, depth)
    return (depth - 1) * log_orthogonal_volume(s.shape[-1]) + entropy(s, depth)


def _constant(depth: float) -> float:
    return 1 - 1 / depth


def _pairs(s: Float[Array, "*batch modes"], depth: float) -> tuple[Array, Array]:
    """$w_L$ and its derivative for all pairs."""
    high, low = jnp.maximum(s[..., :, None], s[..., None, :]), jnp.minimum(s[..., :, None], s[..., None, :])
    share = (high - low) / high
    near = share < 0.5
    size = jnp.where(near, -jnp.log1p(-jnp.where(near, share, 0.0)), jnp.log(high / low))
    u = jnp.where(s[..., :, None] >= s[..., None, :], size, -size)
    if math.isinf(depth):
        return langevin(u), langevin_slope(u)
    return langevin(u) - langevin(u / depth) / depth, langevin_slope(u) - langevin_slope(u / depth) / depth**2


def _spectrum(where: str, spectrum: Any, depth: float) -> Float[Array, "*batch modes"]:
    check_x64(where)
    checked_depth(where, depth)
    s = jnp.asarray(checked_layer(where, "spectrum", spectrum), dtype=float)
    check_finite(where, "spectrum", s)
    if s.ndim == 0 or s.shape[-1] == 0:
        raise ValueError(f"{where}: spectrum must hold at least one singular value, but has shape {s.shape}.")
    if is_concrete(s) and np.any(np.asarray(s) <= 0):
        raise HypothesisError(
            "positive singular values",
            float(np.sum(np.asarray(s) <= 0)),
            0.0,
            "The number of others is told; the entropy of a matrix that is not of full rank is minus infinity.",
        )
    return s
