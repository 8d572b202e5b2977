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

import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    as_array,
    check_count,
    check_finite,
    check_x64,
    checked_layer,
    entry,
    formula,
    is_concrete,
    xp,
)
from deeplinear.geometry._langevin import langevin_slope
from deeplinear.geometry._metric import checked_depth, checked_point
from deeplinear.geometry._pair_eigenvalues import log_ratio, pair_eigenvalue, pair_slope


@entry
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
    size = s.shape[-1]
    offset = 0.0 if math.isinf(depth) else size * (size - 1) / 4 * math.log(depth)
    return _offset_entropy(s, 1 / depth, offset)


@entry
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
        array([0.47158217, 0.85423544, 1.40042742])
    """
    return spectrum_slope(_spectrum("entropy_gradient", spectrum, depth), 1 / depth)


@entry(sized=("spectrum",))
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
    return spectrum_curve(_spectrum("entropy_hessian", spectrum, depth), 1 / depth)


@entry
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
    checked_depth(where, depth)
    force, values = _force(matrix, 1 / depth)
    _spectrum(where, values, depth)
    return force


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


@entry
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
    depth = int(checked_depth("log_fibre_volume", depth, finite=True))
    s = _spectrum("log_fibre_volume", spectrum, depth)
    return (depth - 1) * log_orthogonal_volume(s.shape[-1]) + entropy(s, depth)


def gaussian_rank_share() -> float:
    r"""$2e^{4/3}/(3\pi)$: effective rank over width of a large square matrix with independent Gaussian entries.

    The limit of $\tfrac1d\exp(-\sum_i q_i\ln q_i)$, $q = s/\sum s$, when the singular values follow the quarter-circle
    law $\rho(x) = \sqrt{4 - x^2}/\pi$ on $[0, 2]$, of mean $m = 8/(3\pi)$:
    $\exp(-\int \tfrac xm\ln\tfrac xm\,\rho\,dx) = m\,e^{4/3}/4$.

    Example:
        >>> round(gaussian_rank_share(), 6)
        0.805041
    """
    return 2 * math.exp(4 / 3) / (3 * math.pi)


@formula
def spectrum_entropy(s: Float[Array, "*batch modes"], rate: Any) -> Float[Array, "*batch"]:
    r"""$S_L - \tfrac{d(d-1)}4\ln L$ as a function of $r = 1/L$, unchecked: one program for every depth."""
    j, k = np.triu_indices(s.shape[-1], 1)
    # Sizes far from one would leave the range of numbers; they are split off by the scaling law.
    middle = xp.mean(xp.log(s), axis=-1)
    scaled = s / xp.exp(middle)[..., None]
    pairs = 0.5 * xp.sum(xp.log(pair_eigenvalue(scaled[..., j], scaled[..., k], rate)), axis=-1)
    return pairs + len(j) * (1 - xp.asarray(rate, dtype=float)) * middle


@formula
def _offset_entropy(s: Float[Array, "*batch modes"], rate: Any, offset: Any) -> Float[Array, "*batch"]:
    return spectrum_entropy(s, rate) + offset


@formula
def _force(point: Matrix, rate: Any) -> tuple[Matrix, Float[Array, " modes"]]:
    left, values, right_t = xp.linalg.svd(point)
    return (left * spectrum_slope(values, rate)) @ right_t, values


@formula
def spectrum_slope(s: Float[Array, "*batch modes"], rate: Any) -> Float[Array, "*batch modes"]:
    """Gradient of `spectrum_entropy`, unchecked."""
    others = 1 - xp.eye(s.shape[-1])
    return xp.sum(others * pair_slope(_ratios(s), rate), axis=-1) / (2 * s)


@formula
def spectrum_curve(s: Float[Array, "*batch modes"], rate: Any) -> Float[Array, "*batch modes modes"]:
    """Hessian of `spectrum_entropy`, unchecked."""
    u = _ratios(s)
    curve = pair_curve(u, rate)
    others = 1 - xp.eye(s.shape[-1])
    diagonal = xp.sum(others * (curve - pair_slope(u, rate)), axis=-1) / (2 * s**2)
    beside = -others * curve / (2 * s[..., :, None] * s[..., None, :])
    return beside + diagonal[..., None] * xp.eye(s.shape[-1])


def pair_curve(u: Float[Array, "..."], rate: Any) -> Float[Array, "..."]:
    r"""$w_L'(u)$ with $r = 1/L$, the derivative of `pair_slope`.

    Equal to $(h(ru) - h(u))/u^2$ with $h(x) = (x/\sinh x)^2$, which is taken far from zero, where it is small.
    """
    rate = xp.asarray(rate, dtype=float)
    size = xp.maximum(xp.abs(u), 1.0)
    small = (_squeeze(rate * size) - _squeeze(size)) / size**2
    return xp.where(xp.abs(u) > 1, small, langevin_slope(u) - rate**2 * langevin_slope(rate * u))


def _squeeze(x: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""$(x/\sinh x)^2$ for $x \ge 0$."""
    safe = xp.where(x > 0, x, 1.0)
    return xp.where(x > 0, (2 * safe * xp.exp(-safe) / -xp.expm1(-2 * safe)) ** 2, 1.0)


def _ratios(s: Float[Array, "*batch modes"]) -> Float[Array, "*batch modes modes"]:
    """$u_{ij}$ for all pairs."""
    return log_ratio(s[..., :, None], s[..., None, :])


def _spectrum(where: str, spectrum: Any, depth: float) -> Float[Array, "*batch modes"]:
    check_x64(where)
    checked_depth(where, depth)
    s = as_array(checked_layer(where, "spectrum", spectrum), float)
    check_finite(where, "spectrum", s)
    if s.ndim == 0 or s.shape[-1] == 0:
        raise ValueError(f"{where}: spectrum must hold at least one singular value, but has shape {s.shape}.")
    if is_concrete(s) and np.any(np.asarray(s) <= 0):
        raise HypothesisError(
            "positive singular values",
            float(np.sum(np.asarray(s) <= 0)),
            0.0,
            "The number of others is told. Of a matrix give np.linalg.svd(X, compute_uv=False); the entropy of one "
            "that is not of full rank is minus infinity.",
        )
    return s
