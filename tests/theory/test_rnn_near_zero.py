"""Checks of the statements on recurrent networks that start near zero."""

import numpy as np
import pytest
import scipy.integrate

from deeplinear.theory import STATUS, verify
from deeplinear.theory.rnn import _near_zero, _near_zero_bounds, _near_zero_errata
from deeplinear.theory.rnn._near_zero_flows import draw_start, field, flow, ladders

CHECKS = {check.id: check for module in (_near_zero, _near_zero_errata) for check in module.CHECKS}
INSTANCES = 3

STATEMENTS = (
    pytest.param("rnn/lemma-c.10", marks=pytest.mark.covers("rnn:S15", "rnn:F12")),
    pytest.param("rnn/lemma-c.13", marks=pytest.mark.covers("rnn:S17", "rnn:E2")),
    pytest.param("rnn/lemma-c.14", marks=pytest.mark.covers("rnn:S18")),
    pytest.param("rnn/lemma-c.15", marks=pytest.mark.covers("rnn:S18")),
    pytest.param("rnn/linearised-flow", marks=pytest.mark.covers("rnn:F11")),
    pytest.param("rnn/proposition-9", marks=pytest.mark.covers("rnn:S16", "rnn:F11")),
    pytest.param("rnn/proposition-9-every-draw", marks=pytest.mark.covers("rnn:X6", "rnn:E11")),
    pytest.param("rnn/near-zero-exponents", marks=pytest.mark.covers("rnn:F11")),
    pytest.param("rnn/near-zero-training", marks=pytest.mark.covers("rnn:F13")),
    pytest.param("rnn/erratum-c.76", marks=pytest.mark.covers("rnn:E3")),
    pytest.param("rnn/erratum-c.13-probability", marks=pytest.mark.covers("rnn:E9")),
    pytest.param("rnn/erratum-c.11-dimension", marks=pytest.mark.covers("rnn:E11")),
    pytest.param("rnn/erratum-normal-start", marks=pytest.mark.covers("rnn:E10", "rnn:E13")),
    pytest.param("rnn/erratum-c.15-constants", marks=pytest.mark.covers("rnn:E13")),
    pytest.param("rnn/erratum-c.112", marks=pytest.mark.covers("rnn:E14")),
)
"""Every check of these modules, each with what it holds."""


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_holds_and_its_violations_are_caught(name: str, seed: int) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES, seed=seed)
    expected = STATUS.erratum if CHECKS[name].printed else STATUS.holds
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def test_every_check_is_run() -> None:
    assert {statement.values[0] for statement in STATEMENTS} == set(CHECKS)


@pytest.mark.covers("rnn:E2")
def test_the_printed_time_is_missed_by_a_quarter_of_a_power(seed: int) -> None:
    outcome = verify(CHECKS["rnn/lemma-c.13"], instances=INSTANCES, seed=seed)
    assert outcome.printed is not None and outcome.printed.residual == pytest.approx(0.25, abs=0.01)


@pytest.mark.covers("rnn:E9", "rnn:E11")
def test_probabilities_by_hand() -> None:
    """0.802 at d = 21, 0.739 with the event of the sum; at d = 5 the events have 0.797 and their bounds nothing."""
    (large,) = _near_zero_errata.PROBABILITY.measure([21])
    assert large.facts["bound"] == pytest.approx(0.802, abs=5e-4)
    assert large.facts["union bound with ‖B + Cᵀ‖"] == pytest.approx(0.739, abs=5e-4)
    (small,) = _near_zero_errata.DIMENSION.measure([5])
    assert small.facts["probability"] == pytest.approx(0.7978, abs=5e-4) and small.facts["bound"] < 1e-3
    (last,) = _near_zero_errata.DIMENSION.measure([19])
    assert last.printed is not None and last.printed == pytest.approx(0.75 - 0.74262, abs=5e-5)


def test_flows_against_scipy(seed: int) -> None:
    """Fixed steps are as good as 1e-5 in the decaying part too, which is 1e-5 of the other."""
    rng = np.random.default_rng(seed)
    start = draw_start(rng, states=(3,), scales=(1e-5,), fraction=0.5)
    ((a, b, c),) = [ladders([start])[0][-1]]
    time = 0.5 * np.log(1e5) / abs(start.first)

    def slope(_: float, y: np.ndarray) -> np.ndarray:
        rows = (y[None, :9].reshape(1, 3, 3), y[None, 9:12], y[None, 12:], start.target[None])
        return np.concatenate([part.ravel() for part in field(*rows, start.symmetric)])

    begin = 1e-5 * np.concatenate([start.transition.ravel(), start.input, start.output])
    end = scipy.integrate.solve_ivp(slope, (0, time), begin, method="DOP853", rtol=1e-11, atol=1e-19).y[:, -1]
    np.testing.assert_allclose(a.ravel(), end[:9], atol=1e-5 * np.abs(end[:9]).max())
    for sign in (1, -1):
        expected = end[9:12] + sign * end[12:]
        np.testing.assert_allclose(b[0] + sign * c[0], expected, atol=1e-5 * np.abs(expected).max())


def test_the_field_is_minus_the_gradient(seed: int) -> None:
    """Central differences of the loss, for systems of order one."""
    rng = np.random.default_rng(seed)
    y, w, step = 0.6 * rng.standard_normal(15), rng.standard_normal(4), 1e-6

    def loss(y: np.ndarray) -> float:
        a, b, c = y[:9].reshape(3, 3), y[9:12], y[12:]
        return 0.5 * sum((c @ np.linalg.matrix_power(a, j) @ b - w[j]) ** 2 for j in range(4))

    slopes = np.array([(loss(y + step * e) - loss(y - step * e)) / (2 * step) for e in np.eye(15)])
    rows = (y[None, :9].reshape(1, 3, 3), y[None, 9:12], y[None, 12:], w[None])
    found = np.concatenate([part.ravel() for part in field(*rows)])
    np.testing.assert_allclose(found, -slopes, atol=1e-7 * max(1, np.abs(slopes).max()))
    mirrored = field(*rows, True)[0][0]
    np.testing.assert_allclose(mirrored, (found[:9].reshape(3, 3) + found[:9].reshape(3, 3).T) / 2, rtol=1e-12)
    still = flow(rows[:3], w[None], np.zeros(1), False, steps=2, every=1)
    assert len(still) == 3 and np.array_equal(still[-1][0], rows[0])


def test_lemma_c10_counts_its_own_probability() -> None:
    """χ²₁ in (1/4, 9/4) is the error function of 3/2√2 less that of 1/2√2."""
    from math import erf, sqrt

    exact = erf(1.5 / sqrt(2)) - erf(0.5 / sqrt(2))
    assert _near_zero_bounds.Vector(1).probability == pytest.approx(exact, abs=1e-14)
