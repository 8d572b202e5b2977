"""Checks of the statements on the metric, and of what is printed otherwise."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.geometry import _metric, _metric_errata
from deeplinear.theory.geometry._metric import plain_eigenvalue

CHECKS = {check.id: check for module in (_metric, _metric_errata) for check in module.CHECKS}
INSTANCES = 3

STATEMENTS = (
    pytest.param("geometry/theorem-2.2.1", marks=pytest.mark.covers("geometry:S9", "geometry:F10")),
    pytest.param("geometry/theorem-2.2.2", marks=pytest.mark.covers("geometry:S10", "geometry:F10", "geometry:F12")),
    pytest.param("geometry/remark-2.2.3", marks=pytest.mark.covers("geometry:S11", "geometry:F10")),
    pytest.param("geometry/isometries", marks=pytest.mark.covers("geometry:F12")),
    pytest.param("geometry/rectangular-operator", marks=pytest.mark.covers("geometry:F11")),
    pytest.param("geometry/erratum-partial-products", marks=pytest.mark.covers("geometry:E8")),
    pytest.param("geometry/erratum-parametrisation", marks=pytest.mark.covers("geometry:E8")),
    pytest.param("geometry/erratum-fractional-powers", marks=pytest.mark.covers("geometry:E10")),
    pytest.param("geometry/erratum-definite", marks=pytest.mark.covers("geometry:E10", "geometry:S9")),
    pytest.param("geometry/erratum-relative-imbalance", marks=pytest.mark.covers("geometry:E13", "geometry:S6")),
    pytest.param("geometry/erratum-all-times", marks=pytest.mark.covers("geometry:E14")),
)
"""Every check of these modules, each with what it holds."""


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_holds_and_its_violations_are_caught(name: str) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES)
    expected = STATUS.erratum if "erratum" in name else STATUS.holds
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def test_every_check_is_run() -> None:
    assert {statement.values[0] for statement in STATEMENTS} == set(CHECKS)


def test_statements_speak_of_a_given_problem() -> None:
    """Those with a place ask for a square product of full rank; the operator of other shapes for balance."""
    rng = np.random.default_rng(3)
    frames = [np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(3)]
    layers = tuple(jnp.asarray((above * [1.4, 1.0, 0.7]) @ below.T) for below, above in itertools.pairwise(frames))
    problem = Problem(DeepLinear((3, 3, 3)), SquaredDistance(jnp.eye(3)))
    assert {verdict.status for verdict in examine(problem, layers, CHECKS.values())} == {STATUS.holds}
    uneven = {v.check: v.status for v in examine(problem, (2 * layers[0], layers[1]), CHECKS.values())}
    assert uneven["geometry/rectangular-operator"] is STATUS.unmet
    assert uneven["geometry/theorem-2.2.1"] is STATUS.holds


def test_products_that_are_rectangular_or_zero_are_refused_by_name() -> None:
    rng = np.random.default_rng(4)
    wide = Problem(DeepLinear((5, 4, 4)), SquaredDistance(jnp.ones((4, 5))))
    layers = jnp.asarray(rng.standard_normal((4, 5))), jnp.asarray(rng.standard_normal((4, 4)))
    told = {v.check: v for v in examine(wide, layers, _metric.CHECKS)}
    assert {v.status for v in told.values()} == {STATUS.unmet}
    for name in ("theorem-2.2.1", "theorem-2.2.2", "remark-2.2.3", "isometries"):
        assert told[f"geometry/{name}"].message == "Not met: a square product: 1 (not ≤ 0)."
    square = Problem(DeepLinear((3, 3, 3)), SquaredDistance(jnp.eye(3)))
    nothing = {v.check: v for v in examine(square, (jnp.zeros((3, 3)),) * 2, _metric.CHECKS)}
    assert {v.status for v in nothing.values()} == {STATUS.unmet}
    assert "a product that is not zero" in nothing["geometry/rectangular-operator"].message


def test_a_large_condition_costs_no_digits_and_an_error_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Powers of XXᵀ are taken of singular values, so κ² does not enter; a gradient that is off by 1e-10 is caught."""
    turn = np.linalg.qr(np.random.default_rng(5).standard_normal((3, 3)))[0]
    layers = tuple(jnp.asarray(layer) for layer in (np.diag([1.0, 1e-2, 1.2e-3]) @ turn.T, turn))
    problem = Problem(DeepLinear((3, 3, 3)), SquaredDistance(jnp.ones((3, 3))))
    (held,) = examine(problem, layers, [_metric.RIEMANNIAN])
    assert held.status is STATUS.holds
    exact = _metric.operator
    monkeypatch.setattr(_metric, "operator", lambda *given: exact(*given) * (1 + 1e-10))
    (missed,) = examine(problem, layers, [_metric.RIEMANNIAN])
    assert missed.status is STATUS.fails


def test_the_plain_side_has_its_values() -> None:
    assert plain_eigenvalue(1.5, 0.5, 2) == pytest.approx(2.0, rel=1e-14)
    assert plain_eigenvalue(1.5, 0.5, 3) == pytest.approx(2.9394034390457, rel=1e-13)
    assert plain_eigenvalue(1.5, 0.5, math.inf) == pytest.approx(0.910239226626837, rel=1e-13)
