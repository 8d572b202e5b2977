"""Checks of the statements on aligned, decoupled and diagonal networks and on those solved by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.network import _aligned, _diagonal, _small

CHECKS = {check.id: check for module in (_aligned, _diagonal, _small) for check in module.CHECKS}
INSTANCES = 4

COVERED = {
    "network/proposition-29": ("network:C29",),
    "network/proposition-30": ("network:C29",),
    "network/proposition-31": ("network:C30",),
    "network/proposition-32": ("network:C31",),
    "network/equation-53": ("network:C46",),
    "network/section-5.2.2": ("network:C34",),
    "network/erratum-alignment": ("network:E22", "network:C30"),
    "network/proposition-33": ("network:C32",),
    "network/diagonal-limit": ("network:C32", "network:F31"),
    "network/equation-56": ("network:C33",),
    "network/equation-57": ("network:C33",),
    "network/erratum-bracket": ("network:E6",),
    "network/erratum-one-forms": ("network:E7",),
    "network/equation-61": ("network:C38",),
    "network/sequential-learning": ("network:C38",),
    "network/equation-64": ("network:C39", "network:F35"),
    "network/equation-66": ("network:C39", "network:F34"),
    "network/section-6.2.2": ("network:C40",),
    "network/erratum-equilibria": ("network:E8",),
    "network/erratum-two-nodes": ("network:E7",),
    "network/erratum-chain": ("network:E11", "network:C40"),
}
"""Every check of these modules, each with what it holds."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.covers(*items), id=name) for name, items in COVERED.items()]
)
def test_statement_holds_and_its_violations_are_caught(name: str, seed: int) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES, seed=seed)
    expected = STATUS.erratum if "erratum" in name else STATUS.holds
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def test_every_check_is_run() -> None:
    assert set(COVERED) == set(CHECKS)


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
