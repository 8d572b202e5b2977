"""Learning times: crossings of thresholds found by hand, many runs at once, padding, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from deeplinear.landscape import learning_times

ROUNDING = 1e-13
"""A few operations on numbers of order one."""


@pytest.mark.covers("network:F37")
def test_crossings_of_lines_are_exact_and_those_of_curves_of_second_order() -> None:
    times = np.array([0.0, 1.0, 3.0, 4.0])
    values = np.stack([2.0 * times, 5.0 - times, np.full(4, 0.1), np.array([0.0, 1.0, 0.0, 1.0])], axis=1)
    # half of 5 is met by 2t at 1.25; 5 - t is above half of 6 from the start; 0.1 never is; 1 is met first at 0.9
    found = learning_times(times, values, np.array([5.0, 6.0, 4.0, 1.8]))
    np.testing.assert_allclose(found, [1.25, 0.0, np.nan, 0.9], rtol=ROUNDING)

    def curve(t: np.ndarray | float) -> np.ndarray:
        return np.asarray(3 / (1 + np.exp(-2 * (np.asarray(t) - 4.1))))

    errors = []
    wanted = brentq(lambda t: float(curve(t)) - 0.7 * 3, 0, 10, xtol=1e-14)
    for count in (41, 81, 161):
        grid = np.linspace(0, 10.3, count)
        time = learning_times(grid, curve(grid)[:, None], np.array([3.0]), fraction=0.7)
        errors.append(abs(float(time[0]) - wanted))
    assert errors[-1] < 1e-3
    assert errors[-1] < errors[0] / 4


def test_many_runs_at_once_are_each_by_itself(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(0.1, 1.0, (3, 20)), axis=1)
    values = np.cumsum(rng.uniform(0.0, 1.0, (3, 20, 2)), axis=1)
    sigma = np.array([7.0, 30.0])
    ended = times.copy(), values.copy()
    ended[0][1, 15:], ended[1][1, 15:] = np.nan, np.nan
    found = np.asarray(learning_times(*ended, sigma))
    assert found.shape == (3, 2)
    for k in range(3):
        length = 15 if k == 1 else 20
        for mode in range(2):
            above = np.flatnonzero(values[k, :length, mode] >= sigma[mode] / 2)
            if not above.size:
                assert np.isnan(found[k, mode])
                continue
            last = above[0]
            pair = slice(last - 1, last + 1)
            by_hand = np.interp(sigma[mode] / 2, values[k, pair, mode], times[k, pair]) if last else times[k, 0]
            np.testing.assert_allclose(found[k, mode], by_hand, rtol=ROUNDING)
    mapped = jax.jit(jax.vmap(lambda t, s: learning_times(t, s, jnp.asarray(sigma))))(*map(jnp.asarray, ended))
    np.testing.assert_allclose(mapped, found, rtol=ROUNDING)
    # One axis of times serves all runs.
    shared = learning_times(times[0], values, sigma)
    np.testing.assert_allclose(shared[2], learning_times(times[0], values[2], sigma), rtol=ROUNDING)


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="sigma must have shape"):
        learning_times(np.zeros(3), np.zeros((3, 2)), np.ones(3))
    with pytest.raises(ValueError, match="times must have one entry"):
        learning_times(np.zeros(4), np.zeros((3, 2)), np.ones(2))
    with pytest.raises(ValueError, match="axes"):
        learning_times(np.zeros(3), np.zeros(3), np.ones(3))
    with pytest.raises(ValueError, match="fraction must be greater than 0"):
        learning_times(np.zeros(3), np.zeros((3, 2)), np.ones(2), fraction=0.0)
