"""The flow of the product alone."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

from deeplinear.core import HypothesisError
from deeplinear.exact import eigensystem, function_space_field, propagate, stacked


def balanced(u: np.ndarray, s: np.ndarray, v: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
    strong = np.sqrt(np.hypot(s, lam / 2) + abs(lam) / 2)
    weak = s / strong
    return ((v * weak).T, u * strong) if lam >= 0 else ((v * strong).T, u * weak)


@pytest.mark.covers("exact:F25", "exact:S33")
@pytest.mark.parametrize(("shape", "lam"), [((3, 3), 2.0), ((2, 4), 1.0), ((4, 2), 1.0), ((4, 2), -1.0)])
def test_field_is_that_of_the_layers(shape: tuple[int, int], lam: float, seed: int) -> None:
    """d(W2 W1)/dt = W2 W2ᵀ E + E W1ᵀ W1, with layers made of the product."""
    rng = np.random.default_rng(seed)
    target, product = rng.normal(size=shape), rng.normal(size=shape)
    u, s, vt = np.linalg.svd(product, full_matrices=False)
    first, second = balanced(u, s, vt.T, lam)
    error = target - second @ first
    wanted = second @ second.T @ error + error @ first.T @ first
    np.testing.assert_allclose(function_space_field(product, target, lam), wanted, rtol=0, atol=1e-12)
    if shape[0] == shape[1]:
        np.testing.assert_allclose(function_space_field(product, target, -lam), wanted, rtol=0, atol=1e-12)
        root = scipy.linalg.sqrtm(product @ product.T + lam**2 / 4 * np.eye(3))
        other = scipy.linalg.sqrtm(product.T @ product + lam**2 / 4 * np.eye(3))
        np.testing.assert_allclose(wanted, (root @ (target - product) + (target - product) @ other).real, atol=1e-12)


@pytest.mark.covers("exact:F25", "exact:S33")
def test_its_solution_is_the_product_of_the_riccati_flow(seed: int) -> None:
    """Integrated by SciPy, from a start near the task, where the rank is kept."""
    rng = np.random.default_rng(seed)
    target = np.linalg.qr(rng.normal(size=(3, 3)))[0] @ np.diag([3.0, 2.0, 1.5])
    start = 0.5 * target + 0.1 * rng.normal(size=(3, 3))
    field = jax.jit(lambda w: function_space_field(w, jnp.asarray(target), -2.0))

    def derivative(t: float, w: np.ndarray) -> np.ndarray:
        return np.asarray(field(jnp.asarray(w.reshape(3, 3)))).ravel()

    run: Any = scipy.integrate.solve_ivp(derivative, (0, 1), start.ravel(), method="DOP853", rtol=1e-11, atol=1e-13)
    u, s, vt = np.linalg.svd(start)
    factor = stacked(tuple(jnp.asarray(layer) for layer in balanced(u, s, vt.T, -2.0)))
    moved = np.asarray(jax.jit(propagate)(factor, eigensystem(target, -2.0), 1.0))
    np.testing.assert_allclose(run.y[:, -1].reshape(3, 3), moved[3:] @ moved[:3].T, rtol=0, atol=1e-9)


def test_products_that_do_not_determine_their_layers_are_refused() -> None:
    with pytest.raises(HypothesisError, match="full rank"):
        function_space_field(np.ones((2, 2)), np.eye(2), 1.0)
    with pytest.raises(HypothesisError, match="full rank"):
        function_space_field(np.zeros((2, 2)), np.eye(2), 1.0)
    with pytest.raises(ValueError, match=r"target must have shape \(2, 2\)"):
        function_space_field(np.eye(2), np.eye(3), 1.0)
    with pytest.raises(ValueError, match="product must be finite"):
        function_space_field(np.full((2, 2), np.inf), np.eye(2), 1.0)
    with pytest.raises(ValueError, match="lam must be finite"):
        function_space_field(np.eye(2), np.eye(2), np.nan)
