"""Checks of the statements on representations, the tangent kernel and convergence of balanced two-layer networks."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.exact import _convergence, _representations

CHECKS = {c.id: c for module in (_representations, _convergence) for c in module.CHECKS}
INSTANCES = 4


@pytest.mark.covers(
    "exact:S15",
    "exact:S16",
    "exact:S17",
    "exact:S18",
    "exact:S19",
    "exact:S20",
    "exact:S23",
    "exact:S24",
    "exact:S25",
    "exact:S34",
    "exact:E18",
    "exact:E19",
    "exact:E22",
    "exact:E23",
    "exact:E29",
    "exact:E30",
    "exact:E32",
)
@pytest.mark.parametrize("name", CHECKS)
def test_statement_holds_and_its_violations_are_caught(name: str, seed: int) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES, seed=seed)
    expected = STATUS.erratum if "erratum" in name else STATUS.holds
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def test_network_of_a_user(seed: int) -> None:
    """A balanced start is taken as it is, an unbalanced one and another loss are turned away with a residual."""
    check = CHECKS["exact/theorem-c3"]
    case = _convergence.draw_case(np.random.default_rng(seed), architectures=((4, 2, 2),), lams=(-2.0,))
    problem = Problem(DeepLinear((4, 2, 2)), SquaredDistance(jnp.asarray(case.target)))
    (verdict,) = examine(problem, case.params, [check])
    assert verdict.status is STATUS.holds
    (verdict,) = examine(problem, (case.params[0], 2 * case.params[1]), [check])
    assert verdict.status is STATUS.unmet and verdict.hypotheses[0].name == "λ-balanced layers"
    (verdict,) = examine(dataclasses.replace(problem, l2=jnp.asarray(0.1)), case.params, [check])
    assert verdict.status is STATUS.unmet and verdict.hypotheses[0].name == "no penalty on the weights"
