"""Checks of the statements on changes of basis, fibres and arcs."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.network import _arcs, _fibres

CHECKS = {check.id: check for module in (_fibres, _arcs) for check in module.CHECKS}
INSTANCES = 3
STATEMENTS = (
    pytest.param("network/erratum-factors", marks=pytest.mark.covers("network:E14")),
    pytest.param("network/diagonal-hessian", marks=pytest.mark.covers("network:C34")),
    pytest.param("network/proposition-16", marks=pytest.mark.covers("network:C20", "network:F23")),
    pytest.param("network/erratum-dimension", marks=pytest.mark.covers("network:E5", "network:F22")),
    pytest.param("network/erratum-isolated-origin", marks=pytest.mark.covers("network:E5")),
    pytest.param("network/theorem-24", marks=pytest.mark.covers("network:C25")),
    pytest.param("network/erratum-mixed-arcs", marks=pytest.mark.covers("network:E4")),
    pytest.param("network/erratum-half", marks=pytest.mark.covers("network:E13")),
)
"""Every check of these modules, each with what it holds."""

FLOWS = (
    pytest.param("network/proposition-8", marks=pytest.mark.covers("network:C11", "network:F12")),
    pytest.param("network/unstable-submanifolds"),
)
"""Those that integrate: one seed is enough."""


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_holds_and_its_violations_are_caught(name: str, seed: int) -> None:
    holds(name, seed)


@pytest.mark.parametrize("name", FLOWS)
def test_statement_on_flows_holds_and_its_violations_are_caught(name: str) -> None:
    holds(name, 0)


def holds(name: str, seed: int) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES, seed=seed)
    expected = STATUS.erratum if "erratum" in name else STATUS.holds
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def test_every_check_is_run() -> None:
    assert {statement.values[0] for statement in (*STATEMENTS, *FLOWS)} == set(CHECKS)


def test_other_widths_are_drawn_or_refused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for name in ("network/proposition-16", "network/diagonal-hessian", "network/theorem-24", "network/erratum-half"):
        check = CHECKS[name]
        assert check.sized is not None
        (verdict,) = check.judge([check.sized(rng, (3, 5, 3, 3, 2))])
        assert verdict.status in (STATUS.holds, STATUS.erratum), verdict.message
        with pytest.raises(ValueError, match="hidden layer"):
            check.sized(rng, (3, 2))
    dimension = CHECKS["network/erratum-dimension"]
    assert dimension.sized is not None
    # The printed bound holds for these widths and fails for those.
    verdicts = dimension.judge([dimension.sized(rng, widths) for widths in ((4, 3, 3, 2), (3, 2, 2), (2, 6, 6, 2))])
    assert [verdict.status for verdict in verdicts] == [STATUS.holds, STATUS.holds, STATUS.erratum]
    assert [verdict.facts["dimension"] for verdict in verdicts] == [19, 4, 56]
    with pytest.raises(ValueError, match="narrower than the output"):
        dimension.sized(rng, (4, 2, 3))
    mixed, origin = (CHECKS[f"network/erratum-{name}"].sized for name in ("mixed-arcs", "isolated-origin"))
    assert mixed is not None and origin is not None
    with pytest.raises(ValueError, match="at least two modes"):
        mixed(rng, (2, 2, 1))
    with pytest.raises(ValueError, match="as many inputs as outputs"):
        origin(rng, (3, 3, 2))


def test_a_given_network_is_examined(seed: int) -> None:
    """The speeds only: along with the trajectories they are measured when the statement is verified."""
    rng = np.random.default_rng(seed)
    problem = Problem(DeepLinear((3, 2)), SquaredDistance(rng.standard_normal((2, 3))))
    layer = (jnp.asarray(rng.standard_normal((2, 3))),)
    (verdict,) = examine(problem, layer, [CHECKS["network/proposition-8"]])
    assert verdict.status is STATUS.unmet and "hidden layer" in verdict.message
    turned = _fibres._adopt_turned(
        Problem(DeepLinear((3, 3, 2)), SquaredDistance(rng.standard_normal((2, 3)))),
        (jnp.asarray(rng.standard_normal((3, 3))), jnp.asarray(rng.standard_normal((2, 3)))),
    )
    assert _fibres._defect(turned) < 1e-12
    assert _fibres._defect(dataclasses.replace(turned, factors=(2 * np.eye(3),))) == pytest.approx(3.0)
