"""One mode of two layers, against mpmath with enough digits, SciPy on the scalar equation, and values by hand."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.exact import (
    layer_mode_time,
    learning_time,
    mode_progress,
    mode_progress_lazy,
    mode_progress_printed,
    mode_progress_rich,
    mode_strength,
    reversal_mode,
)

ROUNDING = 1e-12  # asked of the closed form against many digits; measured 1e-15
ODE = 1e-10  # relative, of DOP853 at rtol 1e-12
LAW = 0.02  # of the constants of the limits, over two decades


def exact(t: float, start: float, target: float, lam: float):
    """Progress and strength by the hyperbolic form, with as many digits as its cancellations cost."""
    x = 2 * t * float(np.hypot(target, lam / 2))
    with mpmath.workdps(100 + int(2 * x)):
        t, s0, st, half = mpmath.mpf(t), mpmath.mpf(start), mpmath.mpf(target), mpmath.mpf(lam) / 2
        end, begin = mpmath.sqrt(st**2 + half**2), mpmath.sqrt(s0**2 + half**2)
        if end == 0:
            gamma = 2 * abs(s0) * t / (1 + 2 * abs(s0) * t)
        else:
            p, k, x = end * begin, st * s0 + half**2, 2 * end * t
            common = p * mpmath.sinh(x) + k * mpmath.cosh(x)
            gamma = (common - k) / (common + st * (st - s0))
        return gamma, s0 + gamma * (st - s0)


GRID = [
    (t, sign * size, target, lam)
    for t in (0.0, 1e-8, 0.1, 1.0, 20.0)
    for sign, size in ((1, 1e-20), (1, 0.3), (1, 20.0), (-1, 0.0), (-1, 1e-5), (-1, 1.5))
    for target in (0.0, 1e-6, 1.5)
    for lam in (0.0, 1e-12, -1e-3, 2.0, 1e4)
    if 2 * t * np.hypot(target, lam / 2) < 1500
]


@pytest.mark.covers("exact:F16")
def test_progress_and_strength_have_all_digits():
    arguments = np.array(GRID).T
    gamma, strength = np.asarray(mode_progress(*arguments)), np.asarray(mode_strength(*arguments))
    wanted = [exact(*case) for case in GRID]
    t, _, target, lam = arguments
    gammas = np.array([float(g) for g, _ in wanted])
    strengths = np.array([float(s) for _, s in wanted])
    errors = np.array([float(abs(g - w)) for g, (w, _) in zip(gamma, wanted, strict=True)])
    assert np.all(errors <= ROUNDING * gammas)
    # Where a mode passes through zero its own speed says how well it can be known.
    speed = np.abs(2 * (target - strengths) * np.hypot(strengths, lam / 2))
    errors = np.array([float(abs(s - w)) for s, (_, w) in zip(strength, wanted, strict=True)])
    assert np.all(errors <= ROUNDING * (np.abs(strengths) + t * speed))


@pytest.mark.covers("exact:F16", "exact:S12")
def test_times_far_beyond_the_end_and_stuck_modes():
    for t in (1e6, np.inf):
        assert float(mode_strength(t, 1e-20, 1.5, 1e4)) == 1.5
        assert float(mode_progress(t, -3.0, 1.5, 1e-12)) == 1.0
        assert float(mode_strength(t, -2.0, 1.5, 0.0)) == 0.0
        assert float(mode_progress(t, -2.0, 1.5, 0.0)) == pytest.approx(2 / 3.5, rel=1e-15)
    assert float(mode_progress(1e6, 2.0, 0.0, 0.0)) == pytest.approx(1 - 1 / 4e6, rel=1e-15)
    assert float(mode_strength(3.0, 0.0, 1.0, 0.0)) == 0.0
    # exp(2 s t) growth of a start that no sum could tell from zero
    assert float(mode_strength(5.0, 1e-30, 1.5, 0.0)) == pytest.approx(1e-30 * np.exp(15), rel=1e-14)


@pytest.mark.covers("exact:S11")
def test_scalar_equation(seed):
    rng = np.random.default_rng(seed)
    for _ in range(4):
        start, target, lam = rng.uniform(-2, 3), rng.uniform(0.1, 3), rng.uniform(-5, 5)
        run = solve_ivp(
            lambda _, s, target=target, lam=lam: 2 * (target - s) * np.hypot(s, lam / 2),
            (0, 2),
            [start],
            method="DOP853",
            rtol=1e-12,
            atol=1e-14,
            t_eval=np.linspace(0, 2, 9),
        )
        np.testing.assert_allclose(mode_strength(run.t, start, target, lam), run.y[0], rtol=ODE, atol=ODE)


@pytest.mark.covers("exact:S12")
def test_printed_form_is_the_same_where_it_can_be_computed(seed):
    rng = np.random.default_rng(seed)
    start, target = rng.uniform(0, 3, (50, 1)), rng.uniform(0.1, 3, (50, 1))
    lam, times = rng.uniform(-5, 5, (50, 1)), np.linspace(0, 8, 40)
    gamma = np.asarray(mode_progress(times, start, target, lam))
    np.testing.assert_allclose(mode_progress_printed(times, start, target, lam), gamma, rtol=1e-12, atol=1e-14)
    assert np.all(gamma[:, 0] == 0) and np.all(np.diff(gamma, axis=1) >= 0) and np.all(gamma <= 1)
    np.testing.assert_allclose(mode_progress(1e3, start, target, lam), 1.0, rtol=1e-15)
    with pytest.raises(ValueError, match="at most 700"):
        mode_progress_printed(1e3, 0.3, 1.5, 2.0)
    with pytest.raises(ValueError, match="both be 0"):
        mode_progress_printed(1.0, 0.3, 0.0, 0.0)


@pytest.mark.covers("exact:F16")
def test_learning_time_is_the_inverse(seed):
    rng = np.random.default_rng(seed)
    sizes = 10 ** rng.uniform(-12, 1, 200)
    start = np.where(rng.random(200) < 0.5, -1.0, 1.0) * sizes
    target, lam = 10 ** rng.uniform(-3, 1, 200), rng.choice([-1, 1], 200) * 10 ** rng.uniform(-6, 3, 200)
    fraction = np.concatenate([10 ** rng.uniform(-12, -1, 100), rng.uniform(0.1, 0.999, 100)])
    times = np.asarray(learning_time(fraction, start, target, lam))
    assert np.all(np.isfinite(times)) and np.all(times > 0)
    # d(gamma) = gamma' dt: near a plateau the time is known less well than the progress, never the other way round
    np.testing.assert_allclose(mode_progress(times, start, target, lam), fraction, rtol=ROUNDING)


@pytest.mark.covers("exact:F16")
def test_learning_time_by_hand_and_where_it_is_infinite():
    assert float(learning_time(0.5, 1.0, 0.0, 0.0)) == 0.5
    assert float(learning_time(0.25, 2.0, 0.0, 0.0)) == pytest.approx(1 / 12, rel=1e-15)
    # logistic curve from s0 to 1 at lambda = 0: s = 1/2 at ln(1/s0 - 1)/2
    assert float(learning_time((0.5 - 0.1) / 0.9, 0.1, 1.0, 0.0)) == pytest.approx(np.log(9) / 2, rel=1e-14)
    # a stuck mode ends after the part 2/3.5 of its way
    assert np.isinf(learning_time(0.6, -2.0, 1.5, 0.0)) and np.isfinite(learning_time(0.57, -2.0, 1.5, 0.0))
    assert np.isinf(learning_time(0.1, 0.0, 1.5, 0.0)) and np.isinf(learning_time(0.1, 0.0, 0.0, 0.0))


@pytest.mark.covers("exact:F17", "exact:S13")
def test_limits_with_their_rates():
    start, target = 0.3, 1.5
    times = np.linspace(0, 12, 20001)
    rich = [
        np.max(np.abs(mode_progress(times, start, target, lam) - mode_progress_rich(times, start, target))) / lam**2
        for lam in (1e-1, 1e-2, 1e-3)
    ]
    np.testing.assert_allclose(rich, 0.271, rtol=LAW)
    lazy = []
    for lam in (50.0, 500.0, -5000.0):
        scaled = times / abs(lam)
        error = np.abs(mode_progress(scaled, start, target, lam) - mode_progress_lazy(scaled, lam))
        lazy.append(np.max(error) * lam**2)
    np.testing.assert_allclose(lazy, 0.577, rtol=LAW)
    # the printed limit, by hand
    grown = np.expm1(2 * target * times[:2000])
    np.testing.assert_allclose(
        mode_progress_rich(times[:2000], start, target), grown / (grown + target / start), rtol=1e-13
    )
    assert float(mode_progress_rich(3.0, 2.0, 0.0)) == pytest.approx(12 / 13, rel=1e-15)


@pytest.mark.covers("exact:E24")
def test_a_large_start_at_lambda_zero_decays_like_a_hyperbola():
    target, start = 1.0, 1e6
    times = np.linspace(0, 30, 301) / start
    left = 1 - np.asarray(mode_progress(times, start, target, 0.0))
    assert np.max(np.abs(left - 1 / (1 + 2 * start * times))) < 1e-4
    assert np.max(np.abs(left - np.exp(-2 * start * times))) > 0.1


@pytest.mark.covers("exact:S26", "exact:E25")
def test_explicit_form_of_a_reversal():
    times = np.array([0.0, 0.05, 0.4, 1.0, 3.0, 30.0, 1e6])
    for lam in (0.0, 1e-12, 1e-3, 1.0, 3.0, -2.0):
        for strength, target in ((1.2, 1.2), (0.4, 1.7)):
            for flipped in (True, False):
                got = np.asarray(reversal_mode(times, strength, target, lam, reversed=flipped))
                start = -strength if flipped else strength
                wanted = [float(exact(t, start, target, lam)[1]) for t in times[:-1]]
                speed = np.abs(2 * (target - np.array(wanted)) * np.hypot(wanted, lam / 2))
                assert np.all(np.abs(got[:-1] - wanted) <= 1e-12 * (np.abs(wanted) + times[:-1] * speed))
                assert got[-1] == pytest.approx(0.0 if flipped and lam == 0 else target, abs=1e-12)
    # as printed it starts and ends elsewhere
    printed = np.asarray(reversal_mode(times, 1.2, 1.2, 3.0, as_printed=True))
    assert printed[-1] == pytest.approx(np.hypot(1.2, 1.5), rel=1e-14) and abs(printed[0] + 1.2) > 0.1
    # middle matrix S_lambda^{-1}: at lambda = 0 the printed start is -s^2
    assert float(reversal_mode(0.0, 1.2, 1.2, 0.0, as_printed=True)) == pytest.approx(-1.44, rel=1e-14)


@pytest.mark.covers("exact:S27")
def test_reversal_takes_logarithmically_long():
    strength = 1.3
    lams = np.array([1e-5, 1e-6, 1e-7, 1e-9])
    times = np.asarray(learning_time(0.9, -strength, strength, lams))
    slopes = np.diff(times) / np.diff(np.log(1 / lams))
    np.testing.assert_allclose(slopes, 1 / strength, rtol=1e-5)


def test_derivatives_are_numbers_and_right():
    gradient = jax.jit(jax.vmap(jax.grad(mode_strength, argnums=(0, 1, 2, 3))))
    step = 1e-6
    cases = np.array(
        [(0.5, 0.3, 1.5, 2.0), (2.0, -0.7, 1.0, 0.3), (3.0, 0.2, 0.0, 0.0), (0.5, -1.0, 1.0, 0.0), (1.0, 0.4, 1.0, 0.0)]
    )
    found = np.asarray(gradient(*cases.T)).T
    for case, row in zip(cases, found, strict=True):
        for k in range(4):
            up, down = case.copy(), case.copy()
            up[k] += step
            down[k] -= step
            if up[2] < step * 2 and k == 2:  # a target of 0 has one side only
                quotient = (float(exact(*up)[1]) - float(exact(*case)[1])) / step
                assert row[k] == pytest.approx(quotient, abs=1e-4)
            else:
                quotient = (float(exact(*up)[1]) - float(exact(*down)[1])) / (2 * step)
                assert row[k] == pytest.approx(quotient, abs=1e-8)
    # degenerate points: derivatives are numbers
    corners = np.array([(1.0, 0.0, 0.0, 0.0), (1.0, 0.0, 1.0, 0.0), (1e6, -1.0, 1.0, 0.0), (0.0, 0.3, 1.5, 2.0)])
    assert np.all(np.isfinite(gradient(*corners.T)))
    time = jax.jit(jax.vmap(jax.grad(learning_time, argnums=(0, 1, 2, 3))))
    inner = np.array([(0.5, 0.3, 1.5, 2.0), (0.5, -0.3, 1.5, 1e-3), (0.2, -1.0, 1.0, 0.0), (0.5, 1.0, 0.0, 0.0)])
    assert np.all(np.isfinite(time(*inner.T)))
    stuck = np.array([(0.9, -1.0, 1.0, 0.0)] * len(inner))
    assert not np.any(np.isnan(time(*stuck.T)))


@pytest.mark.covers("exact:F35")
def test_arguments_are_checked():
    with pytest.raises(ValueError, match="mode_strength: t must be at least 0, but is -1"):
        mode_strength(-1.0, 0.3, 1.5, 0.0)
    with pytest.raises(ValueError, match="target must be at least 0"):
        mode_progress(1.0, 0.3, -1.5, 0.0)
    with pytest.raises(ValueError, match="fraction must be greater than 0"):
        learning_time(0.0, 0.3, 1.5, 0.0)
    with pytest.raises(ValueError, match="fraction must be less than 1"):
        learning_time(1.0, 0.3, 1.5, 0.0)
    with pytest.raises(ValueError, match="start must be greater than 0"):
        mode_progress_rich(1.0, 0.0, 1.5)
    with pytest.raises(ValueError, match="lam must not be 0"):
        mode_progress_lazy(1.0, 0.0)
    with pytest.raises(ValueError, match="strength must be at least 0"):
        reversal_mode(1.0, -1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="broadcast"):
        mode_progress(jnp.zeros(2), jnp.zeros(3), 1.0, 0.0)
    with pytest.raises(ValueError, match="lam must be a number"):
        mode_progress(1.0, 0.3, 1.5, np.nan)


@pytest.mark.parametrize("fraction", [2.0, 1.0, 0.0, math.nan])
def test_fractions_beyond_the_way_stop_compiled_programs(fraction):
    with pytest.raises(Exception, match="learning_time: fraction must be between 0 and 1"):
        jax.jit(learning_time)(fraction, 0.3, 1.5, 2.0).block_until_ready()
    with pytest.raises(Exception, match="layer_mode_time: fraction must be between 0 and 1"):
        jax.jit(lambda part: layer_mode_time([0.1, 0.1, 0.1], 1.0, fraction=part))(fraction).block_until_ready()


def test_one_vanishing_imbalance_among_others_is_refused() -> None:
    with pytest.raises(ValueError, match="lam must not be 0"):
        mode_progress_lazy(1.0, np.array([0.0, 1.0]))
