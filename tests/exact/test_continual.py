"""Sequences of tasks against an integration of the weights, and what is forgotten against losses of samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.core import HypothesisError
from deeplinear.exact import Continual, continual, forgetting

INTEGRATED = 1e-9  # DOP853 at rtol 1e-12 over a few time constants
ROUNDING = 1e-12
DURATIONS = np.array([0.7, 1.5, 0.9])
WIDER = (2, 4, 3)  # more hidden units than inputs or outputs: λ = 0 only


def start(seed: int) -> tuple[jax.Array, jax.Array]:
    """Balanced layers of these widths, λ = 0."""
    rng = np.random.default_rng(seed)
    left, right, turn = (np.linalg.qr(rng.normal(size=shape))[0] for shape in ((3, 2), (2, 2), (4, 2)))
    root = np.sqrt(rng.uniform(0.3, 1.0, 2))
    return jnp.asarray((turn * root) @ right.T), jnp.asarray((left * root) @ turn.T)


def weights(params, targets, durations, times):
    """The layers at the times by integrating gradient flow, task after task."""
    shapes = [np.shape(layer) for layer in params]
    cut = shapes[0][0] * shapes[0][1]
    y, begun, found = np.concatenate([np.ravel(layer) for layer in params]), 0.0, []
    for target, duration in zip(targets, durations, strict=True):

        def field(t, y, target=target):
            first, second = y[:cut].reshape(shapes[0]), y[cut:].reshape(shapes[1])
            gap = target - second @ first
            return np.concatenate([(second.T @ gap).ravel(), (gap @ first.T).ravel()])

        inside = [t for t in times if begun <= t < begun + duration]
        ends = np.append(np.array(inside) - begun, duration)
        run = solve_ivp(field, (0, duration), y, "DOP853", t_eval=ends, rtol=1e-12, atol=1e-14)
        found += [run.y[:, k] for k in range(len(inside))]
        y, begun = run.y[:, -1], begun + duration
    return [(v[:cut].reshape(shapes[0]), v[cut:].reshape(shapes[1])) for v in (*found, y)]


@pytest.mark.covers("exact:F27", "exact:S30")
def test_sequence_of_tasks_against_the_weights(seed: int) -> None:
    rng = np.random.default_rng(seed)
    params, targets = start(seed), rng.normal(size=(3, WIDER[2], WIDER[0]))
    solution = continual(params, targets, DURATIONS)
    times = np.array([0.0, 0.3, 0.7, 1.1, 2.2, 2.9, 3.1])
    layers = weights(params, targets, DURATIONS, times[:-1])
    assert float(solution.lam) == pytest.approx(0.0, abs=ROUNDING)
    blocks, losses = solution.correlations(times), solution.losses(times)
    for k, (first, second) in enumerate(layers):
        np.testing.assert_allclose(blocks.product[k], second @ first, atol=INTEGRATED)
        np.testing.assert_allclose(blocks.input[k], first.T @ first, atol=INTEGRATED)
        np.testing.assert_allclose(blocks.output[k], second @ second.T, atol=INTEGRATED)
        plain = [0.5 * np.sum((second @ first - target) ** 2) for target in targets]
        np.testing.assert_allclose(losses[:, k], plain, atol=INTEGRATED)
    # The hidden basis is not determined, the conserved quantity is.
    for factor in np.asarray(solution.factor(times)):
        first, second = factor[: WIDER[0]].T, factor[WIDER[0] :]
        np.testing.assert_allclose(second.T @ second, first @ first.T, atol=ROUNDING)
    assert solution.task([0.0, 0.69, 0.7, 3.1]).tolist() == [0, 0, 1, 2]
    np.testing.assert_allclose(solution.products[-1], blocks.product[-1], atol=ROUNDING)


@pytest.mark.covers("exact:F27", "exact:S30", "exact:E26")
def test_forgetting_is_the_rise_of_the_loss_of_the_samples(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.linalg.qr(rng.normal(size=(7, 2)))[0].T * np.sqrt(7)
    y, before, after = rng.normal(size=(3, 7)), rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    target = y @ x.T / 7
    constant = 0.5 * np.trace(y @ y.T) / 7 - 0.5 * np.sum(target**2)
    early, late = (0.5 * np.sum((f @ x - y) ** 2) / 7 for f in (before, after))
    assert 0.5 * np.sum((after - target) ** 2) + constant == pytest.approx(late, abs=ROUNDING)
    assert float(forgetting(before, after, target)) == pytest.approx(late - early, abs=ROUNDING)
    # Small changes keep their digits: d/dε of ½|F - Σ|² along F.
    small = float(forgetting(jnp.asarray(before), jnp.asarray(before) * (1 + 1e-13), jnp.asarray(target)))
    assert small == pytest.approx(1e-13 * np.sum(before * (before - target)), rel=0.02)


@pytest.mark.covers("exact:F27")
def test_forgetting_matrix_after_full_training(seed: int) -> None:
    rng = np.random.default_rng(seed)
    targets = rng.normal(size=(3, 3, 2)) + 2 * np.eye(3, 2)
    solution = continual(start(seed), targets, 2000.0)
    wanted = [
        [0.5 * np.sum((b - a) ** 2) if j >= i else 0.0 for j, b in enumerate(targets)] for i, a in enumerate(targets)
    ]
    np.testing.assert_allclose(solution.forgetting_matrix, wanted, atol=1e-6)


@pytest.mark.covers("exact:F35")
def test_refusals() -> None:
    rng = np.random.default_rng(0)
    unbalanced = (jnp.asarray(rng.normal(size=(4, 2))), jnp.asarray(rng.normal(size=(3, 4))))
    balance = np.asarray(unbalanced[1].T @ unbalanced[1] - unbalanced[0] @ unbalanced[0].T)
    size = sum(float(jnp.sum(layer**2)) for layer in unbalanced)
    residual = np.linalg.norm(balance - np.trace(balance) / 4 * np.eye(4)) / size
    targets = np.ones((3, 3, 2))
    with pytest.raises(HypothesisError, match="λ-balanced") as refusal:
        continual(unbalanced, targets, 1.0)
    assert refusal.value.residual == pytest.approx(residual, rel=1e-12)
    admitted = continual(unbalanced, targets, 1.0, tolerance=10.0)
    assert isinstance(admitted, Continual) and float(admitted.residual) == pytest.approx(residual, rel=1e-12)
    balanced = start(0)
    with pytest.raises(HypothesisError, match="λ-balanced"):
        continual(balanced, targets, 1.0, lam=0.1)
    with pytest.raises(ValueError, match=r"targets\[1\] must have shape \(3, 2\)"):
        continual(balanced, [np.ones((3, 2)), np.ones((2, 3))], 1.0)
    with pytest.raises(ValueError, match="at least one task"):
        continual(balanced, [], 1.0)
    with pytest.raises(ValueError, match="durations must be at least 0"):
        continual(balanced, targets, [1.0, 1.0, -1.0])
    with pytest.raises(ValueError, match="between 0 and the end of the last task, 3"):
        admitted.losses([0.0, 3.5])
