"""Derivatives of singular values and vectors, against finite differences of NumPy's decomposition."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from deeplinear.core import HypothesisError, Matrix
from deeplinear.geometry import FreeEnergy, Metric, PowerEnergy, Scaled, singular_derivative
from deeplinear.geometry._charts import descent
from deeplinear.geometry._singular import orthonormalised, seen_gradient, singular_field
from deeplinear.models import AbstractLoss, Completion

DIFFERENCES = 1e-8
"""Central differences of order four with gaps of a third and more."""

ROUNDING = 1e-12


field = eqx.filter_jit(singular_field)


@eqx.filter_jit
def derivative(metric: Metric, energy: AbstractLoss, point: Matrix, vector: Matrix) -> tuple[Matrix, Array]:
    """Of the velocity and the speed of the flow."""
    return jax.jvp(lambda p: descent(metric, energy, p), (point,), (vector,))[1]


def point_of(rng: np.random.Generator, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A matrix with these singular values, and its vectors."""
    left, right = (np.linalg.qr(rng.standard_normal((len(values), len(values))))[0] for _ in range(2))
    return (left * values) @ right.T, left, right


def aligned(matrix: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decomposition whose left vectors have the signs of given ones."""
    u, s, vt = np.linalg.svd(matrix)
    signs = np.sign(np.sum(u * left, axis=0))
    return u * signs, s, vt.T * signs


@pytest.mark.covers("geometry:F17", "geometry:S28")
def test_derivatives_are_those_of_the_decomposition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, _, _ = point_of(rng, np.array([2.5, 1.6, 1.0, 0.4]))
    z = rng.standard_normal((4, 4))
    u, _, vt = np.linalg.svd(x)
    found = jax.jit(singular_derivative)(jnp.asarray(x), jnp.asarray(z))
    h, weights = 1e-3, {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}
    parts = [aligned(x + k * h * z, u) for k in weights]
    du, ds, dv = (sum(w * p[i] for w, p in zip(weights.values(), parts, strict=True)) / h for i in range(3))
    np.testing.assert_allclose(found.values, ds, atol=DIFFERENCES)
    np.testing.assert_allclose(found.left, u.T @ du, atol=DIFFERENCES)
    np.testing.assert_allclose(found.right, vt @ dv, atol=DIFFERENCES)
    np.testing.assert_allclose(found.left + found.left.T, 0, atol=ROUNDING)


@pytest.mark.covers("geometry:F17", "geometry:F47")
def test_repeated_and_vanishing_values_are_refused() -> None:
    with pytest.raises(HypothesisError, match="distinct singular values"):
        singular_derivative(2 * np.eye(3), np.ones((3, 3)))
    with pytest.raises(HypothesisError, match="full rank"):
        singular_derivative(np.diag([2.0, 1.0, 0.0]), np.ones((3, 3)))
    with pytest.raises(ValueError, match="velocity must have shape"):
        singular_derivative(np.eye(3), np.ones((2, 2)))
    with pytest.raises(ValueError, match="point must have shape"):
        singular_derivative(np.ones((3, 2)), np.ones((3, 2)))


@pytest.mark.covers("geometry:S29", "geometry:F15")
@pytest.mark.parametrize("depth", [2, 3, math.inf])
def test_the_field_in_singular_coordinates_is_the_flow(depth: float, seed: int) -> None:
    """Put together it is −A[X](∇E), by the sum over layers or the integral; energies of every make."""
    rng = np.random.default_rng(seed)
    values = np.array([2.5, 1.6, 0.3])
    x, left, right = point_of(rng, values)
    loss = Completion(rng.standard_normal((3, 3)), np.array([[1, 1, 0], [0, 1, 0], [1, 0, 1]]))
    for energy in (loss, Scaled(FreeEnergy(loss, 0.7, depth), 2.0), PowerEnergy(1.5)):
        force = np.asarray(energy.gradient(jnp.asarray(x)))
        seen = seen_gradient(energy, jnp.asarray(left), jnp.asarray(values), jnp.asarray(right))
        np.testing.assert_allclose(left @ seen @ right.T, force, atol=ROUNDING)
        du, dlogs, dv, speed = map(
            np.asarray,
            field(Metric(depth), energy, jnp.asarray(left), jnp.log(values), jnp.asarray(right)),
        )
        powers = [(0.5 + 0.5 * t, 0.5 * w) for t, w in zip(*np.polynomial.legendre.leggauss(40), strict=True)]
        if math.isfinite(depth):
            powers = [((k - 1) / (depth - 1) if depth > 1 else 0.0, 1.0) for k in range(1, int(depth) + 1)]
        share = 1 - 1 / depth
        moved = sum(
            w
            * (
                (left * values ** (2 * share * (1 - t)))
                @ left.T
                @ force
                @ (right * values ** (2 * share * t))
                @ right.T
            )
            for t, w in powers
        )
        together = (du * values) @ right.T + (left * (values * dlogs)) @ right.T + (left * values) @ dv.T
        np.testing.assert_allclose(together, -moved, atol=1e-11)
        assert float(speed) == pytest.approx(np.sqrt(np.sum(force * moved)), rel=1e-11)


@pytest.mark.parametrize("depth", [2, 3, math.inf])
def test_the_jacobian_of_the_flow_where_values_coincide(depth: float, seed: int) -> None:
    """Against differences of the definition by fractional powers, at equal values too."""
    rng = np.random.default_rng(seed)
    energy = Completion(rng.standard_normal((3, 3)), np.array([[1, 1, 0], [0, 1, 0], [1, 0, 1]]))
    metric, direction = Metric(depth), rng.standard_normal((3, 3))
    for values in (np.array([2.5, 1.6, 0.3]), np.array([1.2, 1.2, 0.3]), np.array([0.8, 0.8, 0.8])):
        x, _, _ = point_of(rng, values)
        found, rise = derivative(metric, energy, jnp.asarray(x), jnp.asarray(direction))

        def flow(p: np.ndarray) -> tuple[np.ndarray, float]:
            force = np.asarray(energy.mask) * (p - np.asarray(energy.target))
            u, s, vt = np.linalg.svd(p)
            t, w = np.polynomial.legendre.leggauss(40)
            nodes = (0.5 + t / 2, w / 2) if math.isinf(depth) else (np.arange(depth) / (depth - 1), np.ones(int(depth)))
            share = 1 - 1 / depth
            table = sum(
                b * np.outer(s ** (2 * share * (1 - a)), s ** (2 * share * a)) for a, b in zip(*nodes, strict=True)
            )
            seen = u.T @ force @ vt.T
            return -(u @ (table * seen) @ vt), float(np.sqrt(np.sum(table * seen**2)))

        h, weights = 1e-3, {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}
        parts = [(w / h, flow(x + k * h * direction)) for k, w in weights.items()]
        np.testing.assert_allclose(found, sum(w * p[0] for w, p in parts), atol=1e-7)
        assert float(rise) == pytest.approx(sum(w * p[1] for w, p in parts), abs=1e-7)


@pytest.mark.covers("geometry:F15")
def test_orthonormalising(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = np.linalg.qr(rng.standard_normal((6, 6)))[0] + 1e-7 * rng.standard_normal((6, 6))
    again = np.asarray(orthonormalised(jnp.asarray(frame)))
    assert np.linalg.norm(again.T @ again - np.eye(6)) < 1e-10
