"""Checks of the statements on the Riccati equation of two layers."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import DeepLinear, Problem, Regression
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.exact import _riccati, _riccati_errata

CHECKS = {check.id: check for module in (_riccati, _riccati_errata) for check in module.CHECKS}
INSTANCES = 3


@pytest.mark.covers(
    "exact:S1",
    "exact:S2",
    "exact:S3",
    "exact:S4",
    "exact:S5",
    "exact:S6",
    "exact:S7",
    "exact:S10",
    "exact:S32",
    "exact:S33",
    "exact:S36",
    "exact:E1",
    "exact:E3",
    "exact:E4",
    "exact:E6",
    "exact:E7",
    "exact:E9",
    "exact:F7",
)
@pytest.mark.parametrize("name", CHECKS)
def test_statement_holds_and_its_violations_are_caught(name: str, seed: int) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES, seed=seed)
    expected = STATUS.erratum if "erratum" in name else STATUS.holds
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def test_a_given_problem_is_examined(seed: int) -> None:
    """A funnel with λ = 0, white inputs or coloured ones, and layers that are not balanced."""
    rng = np.random.default_rng(seed)
    first = np.linalg.qr(rng.normal(size=(4, 2)))[0].T
    second = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    params = (jnp.asarray(first), jnp.asarray(second))
    task = 0.3 * rng.normal(size=(2, 4))
    names = ["exact/theorem-a2", "exact/lemma-4.1", "exact/theorem-4.3"]
    checks = [CHECKS[name] for name in names]
    white = Problem(DeepLinear((4, 2, 2)), Regression(np.eye(4), task))
    coloured = Problem(DeepLinear((4, 2, 2)), Regression(np.diag([0.5, 1.0, 1.5, 2.0]), task))
    assert [verdict.status for verdict in examine(white, params, checks)] == [STATUS.holds] * 3
    assert [verdict.status for verdict in examine(coloured, params, checks)] == [STATUS.holds] + [STATUS.unmet] * 2
    uneven = (params[0], params[1] * jnp.array([1.0, 2.0]))
    kept, equation, theorem = examine(white, uneven, checks)
    assert kept.status is STATUS.holds and equation.status is theorem.status is STATUS.unmet
    assert any(reading.name == "λ-balanced layers" and not reading.holds for reading in theorem.hypotheses)
