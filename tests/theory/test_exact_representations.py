"""Checks of the statements on representations, the tangent kernel and convergence of balanced two-layer networks."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.exact import _convergence, _kernel, _large_lambda, _recovery, _training_end

MODULES = (_recovery, _training_end, _large_lambda, _kernel, _convergence)
CHECKS = {c.id: c for module in MODULES for c in module.CHECKS}
INSTANCES = 3
STATEMENTS = (
    pytest.param("exact/theorem-5.2", marks=pytest.mark.covers("exact:S15"), id="exact/theorem-5.2"),
    pytest.param("exact/theorem-c3", marks=pytest.mark.covers("exact:S16"), id="exact/theorem-c3"),
    pytest.param("exact/erratum-limit-rank", marks=pytest.mark.covers("exact:E22"), id="exact/erratum-limit-rank"),
    pytest.param("exact/similarity-identity", marks=pytest.mark.covers("exact:S34"), id="exact/similarity-identity"),
    pytest.param("exact/erratum-similarities", marks=pytest.mark.covers("exact:E29"), id="exact/erratum-similarities"),
    pytest.param("exact/theorem-c4", marks=pytest.mark.covers("exact:S17"), id="exact/theorem-c4"),
    pytest.param("exact/erratum-equation-164", marks=pytest.mark.covers("exact:E18"), id="exact/erratum-equation-164"),
    pytest.param("exact/kernel-distance", marks=pytest.mark.covers("exact:S20"), id="exact/kernel-distance"),
    pytest.param(
        "exact/erratum-kernel-change",
        marks=pytest.mark.covers("exact:S18", "exact:E19"),
        id="exact/erratum-kernel-change",
    ),
    pytest.param("exact/kernel-fourth-power", marks=pytest.mark.covers("exact:S19"), id="exact/kernel-fourth-power"),
    pytest.param(
        "exact/erratum-kernel-identity", marks=pytest.mark.covers("exact:E32"), id="exact/erratum-kernel-identity"
    ),
    pytest.param("exact/late-rate", marks=pytest.mark.covers("exact:S23"), id="exact/late-rate"),
    pytest.param("exact/erratum-late-rate", marks=pytest.mark.covers("exact:E23"), id="exact/erratum-late-rate"),
    pytest.param("exact/overlap-bound", marks=pytest.mark.covers("exact:S24"), id="exact/overlap-bound"),
    pytest.param(
        "exact/determinant-obstruction", marks=pytest.mark.covers("exact:S25"), id="exact/determinant-obstruction"
    ),
    pytest.param(
        "exact/erratum-rich-guarantee", marks=pytest.mark.covers("exact:E30"), id="exact/erratum-rich-guarantee"
    ),
    pytest.param("exact/bottleneck-limit", marks=pytest.mark.covers("exact:S25"), id="exact/bottleneck-limit"),
)
"""Every check of these modules, each with what it holds."""


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_holds_and_its_violations_are_caught(name: str, seed: int) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES, seed=seed)
    expected = STATUS.erratum if "erratum" in name else STATUS.holds
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def test_every_check_is_run() -> None:
    assert {entry if isinstance(entry, str) else entry.values[0] for entry in STATEMENTS} == set(CHECKS)


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
