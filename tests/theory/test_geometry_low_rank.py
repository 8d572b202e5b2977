"""Checks on the attraction to low rank: completions of a unit diagonal, determinants, and two printed errors."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import Completion, DeepLinear, Problem, SquaredDistance
from deeplinear.theory import examine, verify
from deeplinear.theory._check import STATUS
from deeplinear.theory.geometry import _low_rank
from deeplinear.theory.geometry._low_rank import AXIS, CHECKS, COMPLETIONS, CURVE, DETERMINANTS, DIVERGENCE


@pytest.mark.covers("geometry:S50")
@pytest.mark.parametrize("check", [COMPLETIONS, CURVE, DETERMINANTS], ids=lambda check: check.id)
def test_statements_hold_and_violations_are_noticed(check: _low_rank.Check, seed: int) -> None:
    outcome = verify(check, instances=3, seed=seed)
    assert outcome.status is STATUS.holds, outcome.message
    assert all(trial.caught for trial in outcome.trials)


@pytest.mark.covers("geometry:E15")
def test_the_axis_is_the_dimension(seed: int) -> None:
    outcome = verify(AXIS, instances=3, seed=seed)
    assert outcome.status is STATUS.erratum, outcome.message
    # The rank falls with the depth, so the printed slope of 3/5 in the depth is missed by more than 3/5.
    assert outcome.printed is not None and outcome.printed.residual > 0.6


@pytest.mark.covers("geometry:E19")
def test_entropy_makes_completions_diverge(seed: int) -> None:
    outcome = verify(DIVERGENCE, instances=3, seed=seed)
    assert outcome.status is STATUS.erratum, outcome.message
    assert outcome.printed is not None and outcome.printed.residual > 0.8


@pytest.mark.covers("geometry:S50")
def test_rank_one_by_hand() -> None:
    """u = (2, 1), v = (1/2, 1): entries 1, 2, 1/2, 1 and s₁ = |u||v| = √5 · √5/2 = 5/2, with 25/4 = 4 + (2 - 1/2)²."""
    (verdict,) = COMPLETIONS.judge([np.array([[1.0, 2.0], [0.5, 1.0]])])
    assert verdict.status is STATUS.holds
    assert verdict.facts["s₁"] == pytest.approx(2.5, rel=1e-14)
    (equal,) = COMPLETIONS.judge([np.outer([1.0, -1.0, 1.0], [1.0, -1.0, 1.0])])
    assert equal.facts["s₁"] == pytest.approx(3.0, rel=1e-14)
    # The identity completes the diagonal with s₁ = 1, but not at rank one.
    (unmet,) = COMPLETIONS.judge([np.eye(3)])
    assert unmet.status is STATUS.unmet


def test_plain_flow_against_closed_forms() -> None:
    """ds/dt = -s^a s with a = 2 - 2/L gives s = (s₀^-a + a t)^(-1/a), for several depths."""
    start = np.diag([2.0, 1.0])[None]
    for depth in (2, 3, math.inf):
        end = _low_rank._flow(start, lambda x: x, depth, 1.0, 100)[-1, 0]
        a = 2 - 2 / depth
        np.testing.assert_allclose(np.diag(end), (np.array([2.0, 1.0]) ** -a + a) ** (-1 / a), rtol=1e-7)
        np.testing.assert_allclose(end, np.diag(np.diag(end)), atol=1e-15)
    # Beside a singular value of 0: a^p/L at the pair with a, a^p on the diagonal as always, and 0 at a pair of zeros.
    np.testing.assert_allclose(_low_rank._weights(np.array([8.0, 0.0]), 3), [[16, 16 / 3], [16 / 3, 0]], rtol=1e-10)
    np.testing.assert_allclose(_low_rank._weights(np.array([8.0, 0.0]), math.inf), [[64, 0], [0, 0]], rtol=1e-10)
    # The derivative of the entropy of two singular values, by a central difference.
    values, step = np.array([1.7, 0.4]), 1e-6
    slope = [(_low_rank._entropy(values + e) - _low_rank._entropy(values - e)) / (2 * step) for e in step * np.eye(2)]
    np.testing.assert_allclose(_low_rank._entropy_force(values), slope, rtol=1e-8)


def test_a_given_problem_is_spoken_of() -> None:
    model = DeepLinear((2, 2, 2))
    layers = (jnp.array([[1.0, 1.0], [0.0, 0.0]]), jnp.array([[1.0, 0.0], [1.0, 0.0]]))
    verdicts = {v.check: v for v in examine(Problem(model, Completion(np.eye(2), np.eye(2))), layers, CHECKS)}
    assert verdicts[COMPLETIONS.id].status is STATUS.holds
    left, values, right = np.linalg.svd(np.array([[1.0, 0.2], [0.1, 0.8]]))
    first, second = jnp.asarray(np.sqrt(values)[:, None] * right), jnp.asarray(left * np.sqrt(values))
    problem = Problem(model, SquaredDistance(np.diag([1.0, -0.5])))
    verdicts = {v.check: v for v in examine(problem, (first, second), CHECKS)}
    assert verdicts[COMPLETIONS.id].status is STATUS.unmet
    assert verdicts[DETERMINANTS.id].status is STATUS.holds
    assert verdicts[DETERMINANTS.id].facts["distance to the target"] >= 0.5
    # Layers that are not balanced have another flow.
    verdicts = {v.check: v for v in examine(problem, (2 * first, second / 2), CHECKS)}
    assert verdicts[DETERMINANTS.id].status is STATUS.unmet
