"""Checks on closed forms of geodesics, on the printed curve that is none, and on the distance."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory import examine, verify
from deeplinear.theory._check import STATUS, Check
from deeplinear.theory.geometry import _distances, _explicit
from deeplinear.theory.geometry._explicit import TIMES, first_variation
from deeplinear.theory.geometry._explicit_errata import COUNTEREXAMPLE, REMARK, THEOREM, Pair


@pytest.mark.covers("geometry:S25", "geometry:S27")
@pytest.mark.parametrize(
    ("check", "instances"),
    [(_explicit.EXPLICIT_GEODESICS, 4), (_distances.LOWER_BOUND, 2), (_distances.IS_DISTANCE, 2)],
    ids=lambda value: getattr(value, "id", ""),
)
def test_statements_hold_and_violations_are_noticed(check: Check, instances: int, seed: int) -> None:
    outcome = verify(check, instances=instances, seed=seed)
    assert outcome.status is STATUS.holds, outcome.message
    assert all(trial.caught for trial in outcome.trials)


@pytest.mark.covers("geometry:S24", "geometry:S26", "geometry:E1", "geometry:E2")
@pytest.mark.parametrize("check", [THEOREM, REMARK, _explicit.COROLLARY], ids=lambda check: check.id)
def test_printed_statements_are_missed(check: Check, seed: int) -> None:
    outcome = verify(check, instances=3, seed=seed)
    assert outcome.status is STATUS.erratum, outcome.message
    assert all(trial.caught for trial in outcome.trials)


@pytest.mark.covers("geometry:E1", "geometry:S24")
def test_the_counterexample() -> None:
    """Depth two: geodesic 1.374493, printed curve 1.377145, line above it 1.414214, defect 0.316."""
    (verdict,) = THEOREM.judge([Pair(*COUNTEREXAMPLE, 2)])
    assert verdict.status is STATUS.erratum and verdict.printed is not None and verdict.printed.residual > 1e-3
    wanted = {
        "defect": 0.316,
        "length of the geodesic": 1.374493,
        "length of the printed curve": 1.377145,
        "length of the line above": 1.414214,
    }
    for name, number in wanted.items():
        assert verdict.facts[name] == pytest.approx(number, abs=5e-4 if name == "defect" else 1e-6)


def test_the_first_variation_sees_what_is_no_geodesic() -> None:
    """Of numbers: a² with a linear in time is a geodesic of depth two, a linear one is not."""
    t = TIMES[:, None, None]
    assert first_variation((1 + t) ** 2, 2 * (1 + t), 2) < 1e-10
    assert first_variation(1 + 3 * t, 3 + 0 * t, 2) > 1e-2
    assert first_variation(np.exp(t), np.exp(t), math.inf) < 1e-10


def test_given_layers_are_examined() -> None:
    layers = (jnp.array([[1.0, 0.2], [0.1, 0.9]]), jnp.array([[0.8, -0.3], [0.2, 1.1]]))
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.eye(2)))
    for verdict in examine(problem, layers, _distances.CHECKS):
        assert verdict.status is STATUS.holds, verdict.message
    wide = Problem(DeepLinear((3, 3)), SquaredDistance(jnp.eye(3)))
    assert all(v.status is STATUS.unmet for v in examine(wide, (jnp.eye(3),), _distances.CHECKS))
