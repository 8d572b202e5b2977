"""A new feature taught on one item: the row that training finds, the semantic task, the limits."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from deeplinear.core import HypothesisError
from deeplinear.exact import generalisation_loss, new_feature_response, transfer_kernel, transfer_target
from deeplinear.models import semantic_hierarchy

ROUNDING = 1e-12
THREE_DIGITS = 5e-4  # of numbers given to three places


def hierarchy(perturbed: bool = False) -> np.ndarray:
    x, y = semantic_hierarchy(perturbed=perturbed)
    return np.asarray(y @ x.T) / 8


@jax.jit
def answers(sigma, lams):
    """Responses of networks trained on the task, one row for each λ."""
    return jax.vmap(lambda lam: new_feature_response(transfer_kernel(sigma, lam), 0))(lams)


LAMS = jnp.linspace(-10, 10, 41)


@pytest.mark.covers("exact:F29", "exact:S31")
def test_response_is_that_of_a_trained_row(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, inputs, small = rng.normal(size=(3, 4)), rng.normal(size=(4, 6)), 1e-9 * rng.normal(size=3)
    seen = first @ inputs[:, 2]
    # dw/dt = (1 - w·h) h, a linear equation: its exact solution after a long time.
    field = np.zeros((4, 4))
    field[:3, :3], field[:3, 3] = -np.outer(seen, seen), seen
    row = (expm(60.0 / (seen @ seen) * field) @ np.append(small, 1.0))[:3]
    found = new_feature_response(jnp.asarray(first.T @ first), 2, inputs)
    np.testing.assert_allclose(found, row @ first @ inputs, atol=1e-8)  # of the size of the start
    assert float(found[2]) == pytest.approx(1.0, abs=ROUNDING)


@pytest.mark.covers("exact:F29", "exact:fig13", "exact:E34")
def test_semantic_task_has_its_recorded_responses() -> None:
    expected = transfer_target(hierarchy(), 0)
    np.testing.assert_allclose(expected, [1, 0.5, 0.25, 0.25, 0, 0, 0, 0], atol=ROUNDING)
    found = np.asarray(answers(hierarchy(), LAMS))[[0, 20, 40]]
    plants = [0.0] * 4
    recorded = [[1, 0.018, 0.009, 0.009], [1, 0.261, 0.108, 0.108], [1, 0.484, 0.236, 0.236]]
    np.testing.assert_allclose(found, [row + plants for row in recorded], atol=THREE_DIGITS)
    losses = [float(generalisation_loss(jnp.asarray(row), expected, 0)) for row in found]
    np.testing.assert_allclose(losses, [0.1745, 0.0486, 0.0003], atol=5e-5)
    # λ = 0 transfers, so that no transfer belongs to λ < 0 alone, and only in the limit.
    assert found[1, 1] > 10 * found[0, 1]
    tilted = np.asarray(answers(hierarchy(True), LAMS))[[0, 20, 40], 1:3]
    np.testing.assert_allclose(tilted, [[0.020, 0.010], [0.255, 0.105], [0.461, 0.221]], atol=THREE_DIGITS)


@pytest.mark.covers("exact:F29")
def test_loss_falls_with_lambda_whatever_the_hierarchical_target() -> None:
    responses = np.asarray(answers(hierarchy(), LAMS))
    for near, far in ((0.5, 0.25), (1.0, 0.5), (1.0, 1.0), (0.8, 0.4)):
        wanted = np.array([1, near, far, far, 0, 0, 0, 0])
        losses = [float(generalisation_loss(jnp.asarray(row), jnp.asarray(wanted), 0)) for row in responses[::4]]
        np.testing.assert_allclose(losses, 0.5 * np.sum((responses[::4, 1:] - wanted[1:]) ** 2, axis=1), atol=ROUNDING)
        assert np.all(np.diff(losses) < 0)


@pytest.mark.covers("exact:F29")
def test_limits_of_the_kernel(seed: int) -> None:
    sigma = np.random.default_rng(seed).normal(size=(3, 4)) + 2 * np.eye(3, 4)
    _, values, right_t = np.linalg.svd(sigma, full_matrices=False)
    limits = {-math.inf: right_t.T @ right_t, 0.0: (right_t.T * values) @ right_t, math.inf: sigma.T @ sigma}
    for lam, wanted in limits.items():
        np.testing.assert_allclose(transfer_kernel(sigma, lam), wanted, atol=ROUNDING)
    for lam in (-1e6, 1e6):
        near, far = (np.asarray(transfer_kernel(sigma, value)) for value in (lam, math.copysign(math.inf, lam)))
        np.testing.assert_allclose(near / near[0, 0], far / far[0, 0], atol=1e-9)  # corrections of order s²/λ²
    # A trained network has this kernel in its first layer.
    strengths = np.sqrt(np.sqrt(values**2 + 0.36) + 0.6)  # of the first layer at λ = -1.2
    first = strengths[:, None] * right_t
    np.testing.assert_allclose(transfer_kernel(sigma, -1.2), first.T @ first, atol=ROUNDING)


@pytest.mark.covers("exact:F35")
def test_refusals() -> None:
    with pytest.raises(HypothesisError, match="represents the item"):
        new_feature_response(jnp.diag(jnp.array([1.0, 0.0])), 1)
    with pytest.raises(ValueError, match="item must be at most 1, but is 2"):
        new_feature_response(jnp.eye(2), 2)
    with pytest.raises(ValueError, match="column 0 that is not zero"):
        transfer_target(np.zeros((2, 2)), 0)
    with pytest.raises(ValueError, match="lam must be a number"):
        transfer_kernel(np.eye(2), math.nan)
    with pytest.raises(ValueError, match="expected must have shape"):
        generalisation_loss(jnp.ones(2), jnp.ones(3), 0)
