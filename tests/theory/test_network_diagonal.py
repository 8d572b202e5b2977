"""Checks of the statements on aligned, decoupled and diagonal networks and on those solved by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.network import _aligned, _diagonal, _small

CHECKS = {check.id: check for module in (_aligned, _diagonal, _small) for check in module.CHECKS}
INSTANCES = 3

STATEMENTS = (
    pytest.param("network/proposition-29", marks=pytest.mark.covers("network:C29")),
    pytest.param("network/proposition-30", marks=pytest.mark.covers("network:C29")),
    pytest.param("network/proposition-31", marks=pytest.mark.covers("network:C30")),
    pytest.param("network/proposition-32", marks=pytest.mark.covers("network:C31")),
    pytest.param("network/equation-53", marks=pytest.mark.covers("network:C46")),
    pytest.param("network/section-5.2.2", marks=pytest.mark.covers("network:C34")),
    pytest.param("network/erratum-alignment", marks=pytest.mark.covers("network:E22", "network:C30")),
    pytest.param("network/proposition-33", marks=pytest.mark.covers("network:C32")),
    pytest.param("network/diagonal-limit", marks=pytest.mark.covers("network:C32", "network:F31")),
    pytest.param("network/equation-56", marks=pytest.mark.covers("network:C33")),
    pytest.param("network/equation-57", marks=pytest.mark.covers("network:C33")),
    pytest.param("network/erratum-bracket", marks=pytest.mark.covers("network:E6")),
    pytest.param("network/erratum-one-forms", marks=pytest.mark.covers("network:E7")),
    pytest.param("network/equation-61", marks=pytest.mark.covers("network:C38")),
    pytest.param("network/sequential-learning", marks=pytest.mark.covers("network:C38")),
    pytest.param("network/equation-64", marks=pytest.mark.covers("network:C39", "network:F35")),
    pytest.param("network/equation-66", marks=pytest.mark.covers("network:C39", "network:F34")),
    pytest.param("network/section-6.2.2", marks=pytest.mark.covers("network:C40")),
    pytest.param("network/erratum-equation-64", marks=pytest.mark.covers("network:E14", "network:F35")),
    pytest.param("network/erratum-equilibria", marks=pytest.mark.covers("network:E8")),
    pytest.param("network/erratum-two-nodes", marks=pytest.mark.covers("network:E7")),
    pytest.param("network/erratum-chain", marks=pytest.mark.covers("network:E11", "network:C40")),
)
"""Every check of these modules, each with what it holds."""


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_holds_and_its_violations_are_caught(name: str, seed: int) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES, seed=seed)
    expected = STATUS.erratum if "erratum" in name else STATUS.holds
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def test_every_check_is_run() -> None:
    assert {statement.values[0] for statement in STATEMENTS} == set(CHECKS)


def test_statements_speak_of_given_widths(seed: int) -> None:
    """Every statement about widths takes some, and refuses those it does not speak of."""
    fitting = {"network/erratum-alignment": (3, 3, 3), "network/equation-66": (1, 4, 1)}
    slow = {"network/proposition-32"}  # another depth of the tables is another compilation
    for name, check in CHECKS.items():
        if check.sized is None or name in slow:
            continue
        instance = check.sized(np.random.default_rng(seed), fitting.get(name, (3, 3, 2)))
        (verdict,) = check.judge([instance])
        assert verdict.status in (STATUS.holds, STATUS.erratum), (name, verdict.message)
        with pytest.raises(ValueError, match="widths is"):
            check.sized(np.random.default_rng(seed), (3, 2))


def test_a_given_problem_is_examined() -> None:
    """Diagonal layers, and others."""
    problem = Problem(DeepLinear((3, 2, 2)), SquaredDistance(jnp.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])))
    layers = jnp.array([[0.5, 0.0, 0.0], [0.0, -0.7, 0.0]]), jnp.array([[0.3, 0.0], [0.0, 0.9]])
    checks = [CHECKS[name] for name in ("network/equation-56", "network/equation-57", "network/erratum-bracket")]
    found = [verdict.status for verdict in examine(problem, layers, checks)]
    assert found == [STATUS.holds, STATUS.holds, STATUS.erratum]
    turned = layers[0] + 0.1, layers[1]
    assert [verdict.status for verdict in examine(problem, turned, checks)] == [STATUS.unmet] * 3
