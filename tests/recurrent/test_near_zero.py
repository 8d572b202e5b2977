"""Small recurrent networks leave zero balanced: exponents of flows integrated by SciPy, closed forms, chi-square."""

import math

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from deeplinear.core import HypothesisError
from deeplinear.recurrent import (
    escape_time,
    linearised_flow,
    linearised_ratios,
    measured_exponents,
    near_zero_ratios,
    near_zero_system,
    norm_event,
    predicted_exponents,
)

SCALES = (1e-3, 1e-4, 1e-5, 1e-6)
TARGET = 0.6 * 0.9 ** np.arange(5) + 0.4 * (-0.5) ** np.arange(5)

Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]


def flow(start: Matrices, w: np.ndarray, time: float, *, symmetric: bool, factor: float = 1.0) -> Matrices:
    """Gradient flow of `factor` times half the sum of squares."""
    d, k = len(start[0]), len(w)
    index = np.add.outer(np.arange(k), np.arange(k)) + 1

    def field(_: float, y: np.ndarray) -> np.ndarray:
        a, b, c = y[: d * d].reshape(d, d), y[d * d : -d], y[-d:]
        left, right = [c], [b]
        for _ in range(k - 1):
            left.append(left[-1] @ a)
            right.append(a @ right[-1])
        u, v = np.array(left), np.array(right)
        r = v @ c - w
        on_a = u.T @ np.append(r, np.zeros(k))[index] @ v
        on_a = (on_a + on_a.T) / 2 if symmetric else on_a
        return -factor * np.concatenate([on_a.ravel(), u.T @ r, v.T @ r])

    y = np.concatenate([matrix.ravel() for matrix in start])
    end = scipy.integrate.solve_ivp(field, (0, time), y, method="DOP853", rtol=1e-10, atol=1e-17).y[:, -1]
    return end[: d * d].reshape(d, d), end[d * d : -d, None], end[None, -d:]


def unit_draw(seed: int, d: int, *, symmetric: bool) -> Matrices:
    drawn = near_zero_system(d, 1.0, np.random.default_rng(seed), symmetric=symmetric)
    a, b, c = (np.asarray(matrix) for matrix in drawn)
    return a, b, c


def ladder(draw: Matrices, w: np.ndarray, fraction: float, *, symmetric: bool) -> list[Matrices]:
    """One draw at every scale, each at its escape time."""
    ends = []
    for scale in SCALES:
        a, b, c = (scale * matrix for matrix in draw)
        ends.append(flow((a, b, c), w, escape_time(w[0], scale, fraction=fraction), symmetric=symmetric))
    return ends


@pytest.mark.covers("rnn:F11", "rnn:S16", "rnn:S17")
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("fraction", "tolerance"), [(0.25, 0.01), (0.5, 0.02)])
def test_exponents_at_the_escape_time(fraction: float, tolerance: float, symmetric: bool) -> None:
    draw = unit_draw(0, 21, symmetric=symmetric)
    ends = ladder(draw, TARGET, fraction, symmetric=symmetric)
    found = measured_exponents(SCALES, ends, TARGET[0])
    expected = predicted_exponents(fraction, symmetric=symmetric)
    assert expected.imbalance == 2 * fraction
    np.testing.assert_allclose(found, expected, atol=tolerance)
    if fraction == 0.25:
        sizes = [
            [np.linalg.norm(b) / e**0.75, np.linalg.norm(a) / e] for (a, b, _), e in zip(ends, SCALES, strict=True)
        ]
        assert np.max(sizes) < 2 and np.ptp(np.log(sizes), axis=0).max() < 0.02


@pytest.mark.covers("rnn:F11")
def test_late_the_antisymmetric_part_limits_the_imbalance_and_the_transition_is_driven() -> None:
    fraction = 0.75
    for symmetric in (False, True):
        ends = ladder(unit_draw(1, 6, symmetric=symmetric), TARGET, fraction, symmetric=symmetric)
        found = measured_exponents(SCALES, ends, TARGET[0])
        expected = predicted_exponents(fraction, symmetric=symmetric)
        assert (expected.imbalance, expected.transition) == (1.5 if symmetric else 1.0, 0.25)
        np.testing.assert_allclose(found, expected, atol=0.06)


@pytest.mark.covers("rnn:X6", "rnn:E11")
def test_every_draw_and_every_size(seed: int) -> None:
    for draw in range(4):
        ends = ladder(unit_draw(10 * seed + draw, 3, symmetric=False), TARGET, 0.25, symmetric=False)
        found = measured_exponents(SCALES[1:], ends[1:], TARGET[0])
        np.testing.assert_allclose(found, predicted_exponents(0.25, symmetric=False), atol=0.05)


@pytest.mark.covers("rnn:F11")
def test_a_negative_target_swaps_the_parts() -> None:
    ends = ladder(unit_draw(2, 6, symmetric=False), -TARGET, 0.25, symmetric=False)
    found = measured_exponents(SCALES, ends, -TARGET[0])
    np.testing.assert_allclose(found, (0.75, 0.5, 0.25), atol=0.02)
    _, b, c = ends[-1]
    assert np.linalg.norm(b + c.T) < 0.02 * np.linalg.norm(b - c.T)


@pytest.mark.covers("rnn:F11", "rnn:S18", "rnn:E1", "rnn:E2", "rnn:E13")
def test_the_clock_of_the_sum_of_squares() -> None:
    """In it the printed time is twice too long: half of it is the one at which the sizes are as stated."""
    scale = 1e-4
    a, b, c = (scale * matrix for matrix in unit_draw(0, 21, symmetric=False))
    less, more = b - c.T, b + c.T
    assert np.sum(less**2) < 4.5 * scale**2 and np.sum(more**2) > 0.5 * scale**2
    time = escape_time(TARGET[0], scale, clock="sum_sq")
    assert time == pytest.approx(math.log(scale**-0.5) / (4 * TARGET[0]), rel=1e-14)
    end = flow((a, b, c), TARGET, time, symmetric=False, factor=2.0)
    growth = math.exp(4 * TARGET[0] * time)
    assert np.sum((end[1] - end[2].T) ** 2) < 4.5 * scale**2 / growth + scale**2.5
    assert np.sum((end[1] + end[2].T) ** 2) > 0.25 * scale**2 * growth
    predicted = linearised_flow((a, b, c), TARGET[0], time, clock="sum_sq")
    for one, two, error in zip(end, predicted, (2e-3, 2e-4, 2e-4), strict=True):  # A moves first
        assert np.linalg.norm(one - two) < error * np.linalg.norm(one)
    half = linearised_flow((a, b, c), TARGET[0], 2 * time)
    np.testing.assert_allclose(half.input, predicted.input, rtol=1e-13)

    late = []
    for e in (1e-3, 1e-5):
        begin = (a * e / scale, b * e / scale, c * e / scale)
        printed = math.log(e**-0.5) / (2 * TARGET[0])
        late.append(np.linalg.norm(flow(begin, TARGET, printed, symmetric=False, factor=2.0)[1]) / e**0.75)
    assert math.log(late[1] / late[0]) / math.log(1e-5 / 1e-3) == pytest.approx(-0.25, abs=0.02)


@pytest.mark.covers("rnn:F11")
def test_ratios_along_the_linearised_flow(seed: int) -> None:
    start = near_zero_system(4, 1e-3, np.random.default_rng(seed))
    times = np.array([[0.0, 0.5], [1.0, 3.0]])
    for first in (0.7, -1.3):
        curves = linearised_ratios(start, first, times)
        for index in np.ndindex(2, 2):
            here = near_zero_ratios(linearised_flow(start, first, times[index]), first)
            for curve, value in zip(curves, here, strict=True):
                assert float(curve[index]) == pytest.approx(float(value), rel=1e-12)
        twice = linearised_ratios(start, first, times / 2, clock="sum_sq")
        np.testing.assert_allclose(twice.imbalance, curves.imbalance, rtol=1e-13)


@pytest.mark.covers("rnn:F11", "rnn:E10")
def test_the_two_scales(seed: int) -> None:
    rng = np.random.default_rng(seed)
    norm = near_zero_system(300, 1e-3, rng)
    for matrix in norm:  # 300 entries or more: the norm is within 25 % of the scale, six standard deviations
        assert np.linalg.norm(matrix) == pytest.approx(1e-3, rel=0.25)
    entry = near_zero_system(300, 1e-3, rng, size="entry", inputs=2, outputs=3)
    assert [matrix.shape for matrix in entry] == [(300, 300), (300, 2), (3, 300)]
    for matrix in entry:
        assert np.linalg.norm(matrix) / math.sqrt(matrix.size) == pytest.approx(1e-3, rel=0.25)
    mirrored = near_zero_system(5, 1e-3, rng, symmetric=True)
    np.testing.assert_array_equal(mirrored.transition, mirrored.transition.T)
    assert float(jnp.linalg.norm(mirrored.input - mirrored.output.T)) > 0


@pytest.mark.covers("rnn:F12", "rnn:S15")
def test_the_norm_event() -> None:
    for n in range(1, 400):
        found = norm_event(n)
        assert found.exact >= found.bound
        assert found.bound == pytest.approx(1 - 2 * math.exp(-9 * n / 64), abs=1e-15)
        assert found.exact == pytest.approx(
            scipy.stats.chi2.cdf(2.25 * n, n) - scipy.stats.chi2.cdf(n / 4, n), abs=1e-12
        )
    for n in (1, 7, 21, 100):
        with mpmath.workdps(40):
            exact = mpmath.gammainc(mpmath.mpf(n) / 2, mpmath.mpf(n) / 8, 9 * mpmath.mpf(n) / 8, regularized=True)
        assert norm_event(n).exact == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.covers("rnn:E9")
def test_the_probabilities_of_three_events() -> None:
    assert norm_event(20).bound ** 3 == pytest.approx(0.681, abs=5e-4)
    for d, joint in ((20, 0.774), (21, 0.802)):
        assert norm_event(d).bound ** 2 * norm_event(d * d).bound == pytest.approx(joint, abs=5e-4)
        assert norm_event(d).exact ** 2 * norm_event(d * d).exact > 0.99


@pytest.mark.covers("rnn:F11")
def test_refusals() -> None:
    column = jnp.ones((2, 1))
    start = (jnp.eye(2), column, column.T)
    for call in (
        lambda: linearised_flow(start, 0.0, 1.0),
        lambda: escape_time(0.0, 1e-3),
        lambda: near_zero_ratios(start, 0.0),
        lambda: measured_exponents([1e-2, 1e-3], [start, start], 0.0),
    ):
        with pytest.raises(HypothesisError, match="w_0"):
            call()
    with pytest.raises(HypothesisError, match=r"growing part B \+ C\^T"):
        near_zero_ratios((jnp.eye(2), column, -column.T), 1.0)
    with pytest.raises(ValueError, match="scale must be greater than 0"):
        near_zero_system(4, 0.0, np.random.default_rng(0))
    with pytest.raises(HypothesisError, match=r"growing part B - C\^T"):
        linearised_ratios(start, -1.0, [0.0])
    with pytest.raises(HypothesisError, match="sizes that are not zero"):
        measured_exponents([1e-2, 1e-3], [start, start], 1.0)
    with pytest.raises(ValueError, match="scale must be greater than 0"):
        escape_time(1.0, 0.0)
    with pytest.raises(ValueError, match="scale must be less than 1"):
        escape_time(1.0, 2.0)
    with pytest.raises(ValueError, match="fraction must be less than 1"):
        predicted_exponents(1.0, symmetric=True)
    with pytest.raises(ValueError, match="one input and one output"):
        linearised_flow((jnp.eye(2), jnp.ones((2, 2)), column.T), 1.0, 1.0)
    with pytest.raises(ValueError, match="two different positive numbers"):
        measured_exponents([1e-2], [start], 1.0)
    with pytest.raises(ValueError, match="entries must be at least 1"):
        norm_event(0)
