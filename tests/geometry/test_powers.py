"""Divided differences: of powers and of the eigenvalues of the metric, against high precision and differences."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.geometry import gram_power_derivative, power_derivative, power_difference
from deeplinear.geometry._pair_eigenvalues import eigenvalue_difference

DEPTHS = (1, 2, 3, 5, 1000, math.inf)

ROUNDING = 1e-13

QUOTIENT = 1e-8
"""What symmetric difference quotients with step 1e-5, once extrapolated, leave."""


def eigenvalue(x: Any, y: Any, depth: float) -> Any:
    """Normalised, of squared singular values."""
    if depth == 1:
        return mpmath.mpf(1)
    if x == y:
        return x if math.isinf(depth) else x ** (1 - mpmath.mpf(1) / depth)
    if math.isinf(depth):
        return (x - y) / mpmath.log(x / y)
    power = mpmath.mpf(1) / int(depth)
    return power * (x - y) / (x**power - y**power)


def difference(a: float, b: float, c: float, depth: float) -> tuple[float, float]:
    """T and its natural scale, the largest of the two eigenvalues over the larger of the two squares."""
    with mpmath.workdps(60):
        x, y, z = (mpmath.mpf(v) ** 2 for v in (a, b, c))
        scale = max(eigenvalue(x, z, depth), eigenvalue(y, z, depth)) / max(x, y)
        if x == y:
            step = x * mpmath.mpf(10) ** -20
            x, y = x + step, y - step
        return float((eigenvalue(x, z, depth) - eigenvalue(y, z, depth)) / (x - y)), float(scale)


@pytest.mark.covers("geometry:F20")
@pytest.mark.parametrize("depth", DEPTHS)
def test_differences_of_eigenvalues_to_rounding(depth: float) -> None:
    """For gaps of any size; relative to eigenvalue over square, which is what enters the equations."""
    gaps = (0.0, 1e-15, 1e-9, 1e-4, 0.1, 0.14, 0.149999, 0.150001, 0.16, 1.0, math.log(1e3), math.log(1e6))
    values = np.array([1.3 * math.exp(-gap) for gap in gaps])
    found = np.asarray(jax.jit(eigenvalue_difference)(jnp.asarray(values), 1 / depth))
    np.testing.assert_array_equal(found, np.swapaxes(found, 0, 1))
    worst = 0.0
    for i in range(len(gaps)):
        for j in range(i, len(gaps)):
            for k in range(len(gaps)):
                wanted, scale = difference(values[i], values[j], values[k], depth)
                worst = max(worst, abs(found[i, j, k] - wanted) / scale)
    assert worst < ROUNDING


@pytest.mark.covers("geometry:F19")
def test_differences_of_powers_to_rounding() -> None:
    for exponent in (0.0, 0.25, 0.5, 1.0, -0.7, 2.0):
        for a, b in ((4.0, 9.0), (1.0, 1.0), (1.0, 1 + 1e-9), (1e-12, 3.0)):
            with mpmath.workdps(50):
                x, y, p = mpmath.mpf(a), mpmath.mpf(b), mpmath.mpf(exponent)
                wanted = float(p * x ** (p - 1) if x == y else (x**p - y**p) / (x - y))
            assert float(power_difference(a, b, exponent)) == pytest.approx(wanted, rel=ROUNDING, abs=1e-300)


def power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * values**exponent) @ vectors.T


def extrapolated(function: Callable[[np.ndarray], np.ndarray], direction: np.ndarray, step: float = 1e-3) -> np.ndarray:
    """Derivative by symmetric difference quotients with steps h and h/2."""
    coarse, fine = ((function(h * direction) - function(-h * direction)) / (2 * h) for h in (step, step / 2))
    return (4 * fine - coarse) / 3


@pytest.mark.covers("geometry:F19", "geometry:S18")
@pytest.mark.parametrize("repeated", [False, True])
def test_derivatives_of_powers(repeated: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2))
    values = np.array([1.5, 1.5, 0.8]) if repeated else np.array([1.7, 1.2, 0.7])
    z = rng.standard_normal((3, 3))
    square, x = (left * values) @ left.T, (left * values) @ right
    for exponent in (1 / 3, 0.5, -0.4):
        wanted = extrapolated(lambda h, p=exponent: power(square + h, p), z + z.T)
        np.testing.assert_allclose(power_derivative(square, z + z.T, exponent), wanted, atol=QUOTIENT)
        outer, inner = gram_power_derivative(x, z, exponent)
        wanted = extrapolated(lambda h, p=exponent: power((x + h) @ (x + h).T, p), z)
        np.testing.assert_allclose(outer, wanted, atol=QUOTIENT)
        wanted = extrapolated(lambda h, p=exponent: power((x + h).T @ (x + h), p), z)
        np.testing.assert_allclose(inner, wanted, atol=QUOTIENT)


@pytest.mark.covers("geometry:F47")
def test_refusals() -> None:
    with pytest.raises(HypothesisError, match="matrix is positive definite"):
        power_derivative(-jnp.eye(2), jnp.eye(2), 0.5)
    with pytest.raises(HypothesisError, match="full rank"):
        gram_power_derivative(jnp.diag(jnp.array([1.0, 0.0])), jnp.eye(2), 0.5)
    with pytest.raises(ValueError, match="direction must have shape"):
        power_derivative(jnp.eye(2), jnp.eye(3), 0.5)
