"""Continuations of responses, against systems written down by hand and against SciPy's linear programmes elsewhere."""

import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.recurrent import continuation, ho_kalman

ATOMS, WEIGHTS = np.array([0.9, -0.5, 0.3]), np.array([0.5, 0.3, 0.2])


def moments(count: int) -> np.ndarray:
    return (WEIGHTS[:, None] * ATOMS[:, None] ** np.arange(count)).sum(0)


@pytest.mark.covers("rnn:F18", "rnn:F20", "rnn:S9")
def test_seven_numbers_decide_three_states_and_six_do_not() -> None:
    """One more number than twice the states: the bounds close, the size is shown."""
    whole = moments(20)
    seven, six = continuation(whole[:7], 20), continuation(whole[:6], 20)
    widths = []
    for found in (seven, six):
        assert found.order == 3 and found.misfit < 1e-14
        np.testing.assert_allclose(found.response, whole, atol=1e-11)
        assert found.measure is not None
        np.testing.assert_allclose(found.measure.atoms, np.sort(ATOMS), atol=1e-10)
        assert found.radius == pytest.approx(0.9, abs=1e-12)
        low, high = np.asarray(found.lower), np.asarray(found.upper)
        np.testing.assert_array_equal(low[: found.known], whole[: found.known])
        assert np.all(low <= whole + 1e-9) and np.all(whole <= high + 1e-9)
        widths.append(high - low)
    assert seven.shown and seven.decided and widths[0].max() < 1e-8
    assert not six.shown and not six.decided and widths[1][6] > 1e-3


@pytest.mark.covers("rnn:X8")
def test_a_delay_has_no_measure() -> None:
    """Four states from eight numbers, exactly; no bounds, for it is not balanced."""
    pulse = np.eye(12)[3]
    found = continuation(pulse[:8], 12)
    assert found.order == 4 and not found.shown and found.measure is None and found.lower is None
    np.testing.assert_allclose(found.response, pulse, atol=1e-14)
    assert continuation(pulse[:9], 12).shown and not found.decided


def test_bounds_may_be_left_out_and_reach_is_checked() -> None:
    assert continuation(moments(7), 9, between=False).lower is None
    with pytest.raises(ValueError, match=r"reach must be at least 0\.9"):
        continuation(moments(7), 9, reach=0.5)


@pytest.mark.parametrize(
    ("numbers", "horizon", "options", "error", "words"),
    [
        ([1.0], 5, {}, ValueError, "response must have at least 2 entries"),
        ([1.0, np.nan], 5, {}, ValueError, "response"),
        ([1.0, 0.5, 0.2], 3, {}, ValueError, "horizon must be at least 4"),
        ([0.0, 0.0, 0.0], 9, {}, HypothesisError, "does not vanish"),
        ([1.0, 0.5, 0.25], 9, {"tolerance": 0.0}, ValueError, "tolerance must be greater than 0"),
        ([1.0, 10.0, 100.0], 400, {}, ValueError, "where the response overflows"),
        ([1.0, 0.5, 3.0], 9, {}, HypothesisError, "a system of 1 state that has the numbers"),
    ],
)
def test_refusals(numbers: list, horizon: int, options: dict, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        continuation(numbers, horizon, **options)


def test_a_growing_system_does_not_decide_itself() -> None:
    """Four numbers of three states, one beyond 1: the least system has two, and the truth lies in wide bounds."""
    atoms, weights = np.array([0.2, 0.9, 1.2]), np.array([0.5, 0.4, 0.1])
    whole = (weights[:, None] * atoms[:, None] ** np.arange(12)).sum(0)
    found = continuation(whole[:4], 12)
    assert found.order == 2 and not found.shown and not found.decided
    assert found.reach == pytest.approx(1.2 * found.radius)
    wide = continuation(whole[:4], 12, reach=1.3)
    assert np.all(np.asarray(wide.lower) <= whole + 1e-9) and np.all(whole <= np.asarray(wide.upper) + 1e-9)


@pytest.mark.covers("rnn:F18")
def test_many_numbers_and_measured_ones(seed: int) -> None:
    """Of many exact numbers 2n + 1 are enough for the bounds; of measured ones all are used."""
    truth = (1 + 0.5 ** np.arange(80)) / 2
    long = continuation(truth[:60], 66)
    assert long.order == 2 and long.shown and long.decided and long.missing == ""
    noisy = truth[:40] + 1e-3 * np.random.default_rng(seed).normal(size=40)
    found = continuation(noisy, 80, tolerance=1e-2, between=False)
    assert found.order == 2 and np.abs(np.asarray(found.response) - truth).max() < 0.05
    first = np.abs(np.asarray(ho_kalman(noisy, 2).transition))
    assert first.shape == (2, 2) and "shown" in repr(found)
