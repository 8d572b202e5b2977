"""Checks of the statements on layers above a matrix: invariants, least norm, balancing, submersion, volume."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.geometry import _balance, _fibres

CHECKS = {check.id: check for module in (_balance, _fibres) for check in module.CHECKS}
INSTANCES = 3

STATEMENTS = (
    pytest.param("geometry/equation-1.6", marks=pytest.mark.covers("geometry:S1", "geometry:F2")),
    pytest.param("geometry/theorem-2.1.1", marks=pytest.mark.covers("geometry:S2")),
    pytest.param("geometry/equation-2.2", marks=pytest.mark.covers("geometry:S3", "geometry:F4")),
    pytest.param("geometry/remark-2.1.3", marks=pytest.mark.covers("geometry:S6")),
    pytest.param("geometry/remark-2.1.4", marks=pytest.mark.covers("geometry:S7", "geometry:F6")),
    pytest.param("geometry/balancing-flow", marks=pytest.mark.covers("geometry:S8", "geometry:F7")),
    pytest.param("geometry/ambient-balancing", marks=pytest.mark.covers("geometry:S8", "geometry:F7")),
    pytest.param("geometry/equation-2.8", marks=pytest.mark.covers("geometry:S4", "geometry:F5")),
    pytest.param("geometry/theorem-2.2.6", marks=pytest.mark.covers("geometry:S12", "geometry:F13")),
    pytest.param("geometry/lemma-2.2.7", marks=pytest.mark.covers("geometry:S12", "geometry:F13")),
    pytest.param("geometry/layer-independent-constants", marks=pytest.mark.covers("geometry:S13")),
    pytest.param("geometry/equation-4.26", marks=pytest.mark.covers("geometry:S32", "geometry:F32")),
)
"""Every check of these modules, each with what it holds."""


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_holds_and_its_violations_are_caught(name: str) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES)
    assert outcome.status is STATUS.holds, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def test_every_check_is_run() -> None:
    assert {statement.values[0] for statement in STATEMENTS} == set(CHECKS)


def test_statements_speak_of_a_given_problem(seed: int) -> None:
    """Gradients, invariants, velocity and least norm of any square layers; the flows of four layers of width 3 only."""
    rng = np.random.default_rng(seed)
    problem = Problem(DeepLinear((2, 2, 2, 2)), SquaredDistance(jnp.asarray(rng.standard_normal((2, 2)))))
    layers = tuple(jnp.asarray(0.7 * rng.standard_normal((2, 2))) for _ in range(3))
    verdicts = {verdict.check: verdict.status for verdict in examine(problem, layers, CHECKS.values())}
    flows = {"geometry/balancing-flow", "geometry/ambient-balancing"}
    assert {name for name, status in verdicts.items() if status is STATUS.unmet} == flows
    assert {name for name, status in verdicts.items() if status is STATUS.holds} == {
        "geometry/equation-1.6",
        "geometry/theorem-2.1.1",
        "geometry/equation-2.2",
        "geometry/remark-2.1.4",
    }
