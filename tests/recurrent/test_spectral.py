"""The residual polynomial and the gradient in the eigenbasis, against complex steps and plain sums."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.recurrent import residual_polynomial, spectral_gradient

ROUNDING = 1e-12
"""Sums of some dozen products of numbers of order one; the accepted error is 1e-10."""

STATES, LENGTH = 4, 6


def loss(a: np.ndarray, b: np.ndarray, c: np.ndarray, w: np.ndarray) -> Any:
    """Half the sum of squares by plain powers, for complex numbers too."""
    total, column = 0.0, b
    for entry in w:
        total = total + 0.5 * ((c @ column)[0, 0] - entry) ** 2
        column = a @ column
    return total


def student(seed: int, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(STATES, STATES)))[0]
    a = (basis * values) @ basis.T
    return (a + a.T) / 2, rng.normal(size=(STATES, 1)), rng.normal(size=(1, STATES)), rng.normal(size=LENGTH)


@pytest.mark.covers("rnn:F5", "rnn:S5")
@pytest.mark.parametrize("values", [(0.9, 0.2, -0.4, -0.8), (0.7, 0.7, 0.7, -0.3), (0.5, 0.5 + 1e-9, 0.0, 0.0)])
def test_gradient_in_the_eigenbasis(values: tuple[float, ...], seed: int) -> None:
    """Complex steps know nothing of eigenvalues; equal and nearly equal ones make no difference."""
    a, b, c, w = student(seed, np.array(values))
    residual = np.array([(c @ np.linalg.matrix_power(a, j) @ b)[0, 0] for j in range(LENGTH)]) - w
    found = spectral_gradient((a, b, c), residual)
    for position, matrix in enumerate((a, b, c)):
        for entry in np.ndindex(*matrix.shape):
            moved = [part.astype(complex) for part in (a, b, c)]
            moved[position][entry] += 1e-30j
            wanted = loss(*moved, w).imag / 1e-30
            assert found[position][entry] == pytest.approx(wanted, abs=ROUNDING * 100)
    # The imbalance and the sum of the maps move by φ(A).
    powers = sum(r * np.linalg.matrix_power(a, j) for j, r in enumerate(residual))
    on_b, on_c = np.asarray(found.input), np.asarray(found.output)
    np.testing.assert_allclose(-(on_b - on_c.T), powers @ (b - c.T), atol=100 * ROUNDING)
    np.testing.assert_allclose(-(on_b + on_c.T), -powers @ (b + c.T), atol=100 * ROUNDING)


@pytest.mark.covers("rnn:F5")
def test_polynomial_and_modes_of_a_diagonal_student(seed: int) -> None:
    rng = np.random.default_rng(seed)
    residual, points = rng.normal(size=LENGTH), rng.uniform(-1, 1, (2, 3))
    wanted = np.polynomial.Polynomial(residual)
    found = residual_polynomial(residual, points)
    np.testing.assert_allclose(found.value, wanted(points), atol=ROUNDING)
    np.testing.assert_allclose(found.slope, wanted.deriv()(points), atol=ROUNDING)
    # The diagonal of the gradient is b c φ'(a), those of the maps are c φ(a) and b φ(a).
    a, b, c = rng.uniform(-1, 1, STATES), rng.normal(size=STATES), rng.normal(size=STATES)
    gradient = spectral_gradient((np.diag(a), b[:, None], c[None]), residual)
    np.testing.assert_allclose(np.diag(gradient.transition), b * c * wanted.deriv()(a), atol=ROUNDING)
    np.testing.assert_allclose(gradient.input[:, 0], c * wanted(a), atol=ROUNDING)
    np.testing.assert_allclose(gradient.output[0], b * wanted(a), atol=ROUNDING)


def test_under_transformations() -> None:
    a, b, c, w = (jnp.asarray(x) for x in student(0, np.array([0.9, 0.2, -0.4, -0.8])))
    plain = spectral_gradient((a, b, c), w)
    several = jax.vmap(lambda s: spectral_gradient((s * a, b, c), w))(jnp.array([1.0, 0.5]))
    np.testing.assert_allclose(several.transition[0], plain.transition, atol=ROUNDING)
    assert residual_polynomial([2.0], 0.3).slope == 0.0
    np.testing.assert_allclose(spectral_gradient((a, b, c), w[:1]).transition, 0.0)


@pytest.mark.parametrize(
    ("system", "residual", "words"),
    [
        ((np.ones((2, 2)), np.ones((2, 2)), np.ones((1, 2))), [1.0], "one input and one output"),
        ((np.ones((2, 2)), np.ones((2, 1)), np.ones((1, 2))), [], "residual"),
        ((np.ones((2, 2)), np.ones((2, 1)), np.ones((1, 2))), [1.0, np.nan], "residual must be finite"),
        ((np.ones((2, 2)), np.ones((2, 1)), np.ones((1, 2))), [[1.0]], "residual must have shape"),
    ],
)
def test_refusals(system: Any, residual: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        spectral_gradient(system, residual)


def test_a_crooked_system_is_refused() -> None:
    with pytest.raises(HypothesisError, match="symmetric transition matrix"):
        spectral_gradient((np.array([[0.0, 1.0], [0.0, 0.0]]), np.ones((2, 1)), np.ones((1, 2))), [1.0])
