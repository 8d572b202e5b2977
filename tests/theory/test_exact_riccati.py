"""Checks of the statements on the Riccati equation of two layers."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import DeepLinear, Problem, Regression
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.exact import _balance, _closed_forms, _consequences, _riccati, _riccati_errata

MODULES = (_balance, _riccati, _closed_forms, _consequences, _riccati_errata)
CHECKS = {check.id: check for module in MODULES for check in module.CHECKS}
INSTANCES = 3
STATEMENTS = (
    pytest.param("exact/theorem-a2", marks=pytest.mark.covers("exact:S1"), id="exact/theorem-a2"),
    pytest.param("exact/balance-under-descent", marks=pytest.mark.covers("exact:S2"), id="exact/balance-under-descent"),
    pytest.param("exact/lemma-4.1", marks=pytest.mark.covers("exact:S3"), id="exact/lemma-4.1"),
    pytest.param("exact/lemma-4.2", marks=pytest.mark.covers("exact:S4"), id="exact/lemma-4.2"),
    pytest.param("exact/lemma-b2", marks=pytest.mark.covers("exact:S5"), id="exact/lemma-b2"),
    pytest.param("exact/theorem-4.3", marks=pytest.mark.covers("exact:S6"), id="exact/theorem-4.3"),
    pytest.param("exact/theorem-b5", marks=pytest.mark.covers("exact:S7"), id="exact/theorem-b5"),
    "exact/propagator",
    pytest.param("exact/any-width", marks=pytest.mark.covers("exact:S10"), id="exact/any-width"),
    pytest.param("exact/mirrors", marks=pytest.mark.covers("exact:S32"), id="exact/mirrors"),
    pytest.param("exact/function-space", marks=pytest.mark.covers("exact:S33"), id="exact/function-space"),
    pytest.param(
        "exact/descent-against-flow", marks=pytest.mark.covers("exact:S36", "exact:F7"), id="exact/descent-against-flow"
    ),
    pytest.param("exact/erratum-overlaps", marks=pytest.mark.covers("exact:E1"), id="exact/erratum-overlaps"),
    pytest.param("exact/erratum-complement", marks=pytest.mark.covers("exact:E3"), id="exact/erratum-complement"),
    pytest.param("exact/erratum-lower-block", marks=pytest.mark.covers("exact:E4"), id="exact/erratum-lower-block"),
    pytest.param("exact/erratum-decaying-form", marks=pytest.mark.covers("exact:E6"), id="exact/erratum-decaying-form"),
    pytest.param("exact/erratum-inverse", marks=pytest.mark.covers("exact:E7"), id="exact/erratum-inverse"),
    pytest.param("exact/erratum-proof-of-a2", marks=pytest.mark.covers("exact:E9"), id="exact/erratum-proof-of-a2"),
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
