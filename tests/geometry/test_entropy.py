"""Entropy of a spectrum: against 50 digits at any gap, by differences, and as the volume it is."""

import itertools
import math
from typing import Any

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import quad

from checking import unchecked
from deeplinear.core import HypothesisError, effective_rank
from deeplinear.geometry import (
    entropy,
    entropy_force,
    entropy_gradient,
    entropy_hessian,
    gaussian_rank_share,
    langevin,
    langevin_slope,
    log_fibre_volume,
    log_orthogonal_volume,
)

S = [3.0, 1.2, 0.4]


def exact(s: list[Any], depth: float) -> Any:
    """By its definition; equal values are taken by their limit."""
    total = mpmath.mpf(0)
    for j in range(len(s)):
        for k in range(j + 1, len(s)):
            a, b = s[j], s[k]
            if a == b:
                value = a**2 if math.isinf(depth) else depth * a ** (2 - mpmath.mpf(2) / depth)
            elif math.isinf(depth):
                value = (a**2 - b**2) / (2 * mpmath.log(a / b))
            else:
                value = (a**2 - b**2) / (a ** (mpmath.mpf(2) / depth) - b ** (mpmath.mpf(2) / depth))
            total += mpmath.log(value) / 2
    return total


@pytest.mark.covers("geometry:F31", "geometry:S35")
@pytest.mark.parametrize("depth", [2, 3, math.inf])
@pytest.mark.parametrize("gap", [0.5, 1e-3, 1e-6, 1e-9])
def test_value_and_derivatives_at_any_gap(depth: float, gap: float) -> None:
    """Numerical derivatives with 50 digits."""
    s = [2.3, 0.7 * (1 + gap), 0.7]
    with mpmath.workdps(60):
        point = [mpmath.mpf(x) for x in s]
        step = mpmath.mpf(10) ** -18

        def moved(*places: tuple[int, int]) -> Any:
            other = list(point)
            for place, sign in places:
                other[place] += sign * step
            return exact(other, depth)

        value = float(exact(point, depth))
        gradient = [float((moved((i, 1)) - moved((i, -1))) / (2 * step)) for i in range(3)]
        hessian = [
            [
                float(
                    (moved((i, 1), (j, 1)) - moved((i, 1), (j, -1)) - moved((i, -1), (j, 1)) + moved((i, -1), (j, -1)))
                    / (4 * step**2)
                )
                for j in range(3)
            ]
            for i in range(3)
        ]
    assert float(entropy(s, depth)) == pytest.approx(value, abs=1e-13)
    np.testing.assert_allclose(entropy_gradient(s, depth), gradient, rtol=1e-12)
    np.testing.assert_allclose(entropy_hessian(s, depth), hessian, rtol=1e-9, atol=1e-11)


@pytest.mark.covers("geometry:F31", "geometry:R")
def test_reference_values() -> None:
    np.testing.assert_allclose(
        [entropy(S, depth) for depth in (2, 3, math.inf)],
        [1.56443179307859, 2.30164303083108, 0.83118964089473],
        atol=1e-13,
    )
    np.testing.assert_allclose(entropy_gradient(S, 2), [0.266106442577, 0.431547619048, 0.459558823529], atol=1e-12)
    np.testing.assert_allclose(entropy_gradient(S, 3), [0.342770795152, 0.573706556595, 0.708099366578], atol=1e-12)
    np.testing.assert_allclose(
        entropy_gradient(S, math.inf), [0.471582167669, 0.854235441816, 1.400427417036], atol=1e-12
    )
    assert float(log_orthogonal_volume(3)) == pytest.approx(6.101769264778, abs=1e-12)
    np.testing.assert_allclose(
        entropy_hessian(S, math.inf),
        [
            [-0.131825344092, -0.039448596971, -0.071919547570],
            [-0.039448596971, -0.520867955720, -0.277120260094],
            [-0.071919547570, -0.277120260094, -2.130311155536],
        ],
        atol=1e-12,
    )


@pytest.mark.covers("geometry:S34", "geometry:S33", "geometry:F31")
def test_scaling_equal_values_and_the_vandermonde_form(seed: int) -> None:
    rng = np.random.default_rng(seed)
    s = np.sort(np.exp(rng.uniform(-1, 1, 4)))[::-1]
    for depth in (2, 5, math.inf):
        grown = float(entropy(s, depth)) + 6 * (1 - 1 / depth) * math.log(2.5)
        assert float(entropy(2.5 * s, depth)) == pytest.approx(grown, abs=1e-12)
        np.testing.assert_allclose(entropy_gradient([1.5, 1.5], depth), [(1 - 1 / depth) / 3] * 2, rtol=1e-13)
    ratio = np.linalg.slogdet(np.vander(s**2))[1] - np.linalg.slogdet(np.vander(np.log(s**2)))[1]
    assert float(entropy(s, math.inf)) == pytest.approx(ratio / 2, abs=1e-8)
    batch = np.stack([s, 2 * s])
    np.testing.assert_allclose(entropy_gradient(batch, 3)[1], entropy_gradient(2 * s, 3), rtol=1e-13)


@pytest.mark.covers("geometry:S46", "geometry:F31")
@pytest.mark.parametrize("depth", [2, math.inf])
def test_the_force_is_the_gradient_in_the_matrix(depth: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, z = rng.standard_normal((2, 3, 3))
    step = 1e-5

    def value(t: float) -> float:
        return float(entropy(np.linalg.svd(x + t * z, compute_uv=False), depth))

    slope = (value(step) - value(-step)) / (2 * step)
    assert float(jnp.sum(entropy_force(x, depth) * z)) == pytest.approx(slope, rel=1e-6, abs=1e-7)


def test_the_volume_of_a_fibre() -> None:
    """Two by two, two layers: the fibre is two circles, W_1 → R W_1, W_2 → W_2 Rᵀ; their length is measured."""
    s = np.array([2.0, 0.5])
    root = np.diag(np.sqrt(s))
    angles = np.linspace(0, 2 * np.pi, 20_001)
    turns = np.stack([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]]).transpose(2, 0, 1)
    path = np.concatenate(
        [(turns @ root).reshape(len(angles), -1), (root @ turns.transpose(0, 2, 1)).reshape(len(angles), -1)], axis=1
    )
    length = 2 * np.sum(np.linalg.norm(np.diff(path, axis=0), axis=1))
    assert float(log_fibre_volume(s, 2)) == pytest.approx(math.log(length), abs=1e-6)
    assert log_orthogonal_volume(1) == pytest.approx(math.log(2), abs=1e-14)
    assert float(log_fibre_volume(S, 3)) == pytest.approx(14.505181560388, abs=1e-11)


def test_the_langevin_function_against_many_digits() -> None:
    points = [0.0, 1e-12, 0.01, 0.29999, 0.30001, 1.0, 20.0, 400.0, -0.2, -3.0]
    for u in points:
        with mpmath.workdps(50):
            x = mpmath.mpf(u)
            value = float(mpmath.coth(x) - 1 / x) if u else 0.0
            slope = float(1 / x**2 - 1 / mpmath.sinh(x) ** 2) if u else 1 / 3
        assert float(langevin(u)) == pytest.approx(value, rel=3e-14)
        assert float(langevin_slope(u)) == pytest.approx(slope, rel=1e-12)


@pytest.mark.covers("geometry:F30", "geometry:S49")
def test_the_effective_rank_of_large_gaussian_matrices(seed: int) -> None:
    """The integral over the quarter-circle law by quadrature; bounds of the effective rank, zeros among the values."""
    mean = 8 / (3 * math.pi)

    def density(x: float) -> float:
        share = x / mean
        return -share * math.log(share) * math.sqrt(4 - x**2) / math.pi if x > 0 else 0.0

    integral = quad(density, 0, 2, epsabs=1e-12, epsrel=1e-12, limit=200)[0]
    assert gaussian_rank_share() == pytest.approx(math.exp(integral), abs=1e-9)
    assert gaussian_rank_share() == pytest.approx(0.805041, abs=1e-6)
    matrix = np.random.default_rng(seed).standard_normal((160, 160))
    assert float(effective_rank(matrix)) / 160 == pytest.approx(gaussian_rank_share(), abs=8e-3)
    values = np.array([3.0, 1.2, 0.4, 0.0])
    assert float(effective_rank(np.diag(values[:3]))) == pytest.approx(2.32027412951507, abs=1e-13)
    assert float(effective_rank(np.diag(values))) == pytest.approx(2.32027412951507, abs=1e-13)
    assert float(effective_rank(np.diag([2.0, 0.0, 0.0, 0.0]))) == pytest.approx(1.0, abs=1e-14)
    assert float(effective_rank(np.diag([2.0, 2.0, 2.0, 2.0]))) == pytest.approx(4.0, abs=1e-13)


def test_refusals() -> None:
    with pytest.raises(HypothesisError, match="positive singular values"):
        entropy([1.0, 0.0], 2)
    with pytest.raises(ValueError, match="depth must be a positive integer"):
        unchecked(log_fibre_volume)([1.0, 2.0], math.inf)
    with pytest.raises(ValueError, match="point must be square"):
        entropy_force(np.ones((2, 3)), 2)
    with pytest.raises(ValueError, match="spectrum must hold at least one"):
        entropy([], 2)


def test_entropy_of_tiny_and_huge_values() -> None:
    """The scaling law holds where the eigenvalues themselves leave the range of numbers."""
    for depth, factor in itertools.product((2, math.inf), (1e-200, 1e200)):
        wanted = entropy([1.0, 2.0], depth) + (1 - 1 / depth) * math.log(factor)
        np.testing.assert_allclose(entropy([factor, 2 * factor], depth), wanted, rtol=1e-13)
