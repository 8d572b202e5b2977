"""One mode of a network of any depth: against quadrature of the time in 30 digits, SciPy, and formulas by hand."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.exact import balanced_mode, balanced_mode_time, layer_mode, layer_mode_time, mode_strength

TIME = 1e-13  # relative error of the time at which the state found is reached; measured 2.4e-15
ROUNDING = 1e-12
COUNT = 6
"""Times of every call below, so that they share compiled code."""


def elapsed(strengths, target: float, smallest: float):
    """Time from the start to the state with a given smallest layer: the integral of dy / ((s - yP) P), in 30 digits."""
    with mpmath.workdps(30):
        a = [mpmath.mpf(float(x)) for x in strengths]
        m = min(range(len(a)), key=lambda i: abs(a[i]))
        c = [x**2 - a[m] ** 2 for i, x in enumerate(a) if i != m]
        s = mpmath.mpf(float(target)) * mpmath.fprod(mpmath.sign(x) for i, x in enumerate(a) if i != m)
        start, end = a[m], mpmath.mpf(float(smallest))

        def speed(y):
            others = mpmath.fprod(mpmath.sqrt(y**2 + x) for x in c)
            return (s - y * others) * others

        def logarithmic(low, high, origin=0):
            """Integral in ln|y - origin|, in pieces of length about 2."""
            side, first, last = mpmath.sign(low - origin), mpmath.log(abs(low - origin)), mpmath.log(abs(high - origin))
            pieces = max(1, int(abs(last - first) / 2) + 1)
            return mpmath.quad(
                lambda x: side * mpmath.exp(x) / speed(origin + side * mpmath.exp(x)),
                [first + (last - first) * k / pieces for k in range(pieces + 1)],
            )

        total, here = mpmath.mpf(0), start
        if start == 0 or start * end < 0:  # through zero: a straight line where y is tiny
            tiny = mpmath.mpf(10) ** -25 * min([mpmath.sqrt(x) for x in c] + [abs(s)])
            sides = [mpmath.sign(start), mpmath.sign(end)] if start != 0 else [mpmath.sign(end)]
            total = sum(abs(tiny / speed(0)) for _ in sides)
            if start != 0:
                total += logarithmic(start, sides[0] * tiny)
            here = sides[-1] * tiny
        if s * end <= 0:
            return total + logarithmic(here, end)
        log_limit = mpmath.findroot(
            lambda x: x + sum(mpmath.log(mpmath.exp(2 * x) + y) for y in c) / 2 - mpmath.log(abs(s)),
            mpmath.log(abs(s)) / len(a),
        )
        limit = mpmath.sign(s) * mpmath.exp(log_limit)
        middle = limit / 2 if abs(here) < abs(limit) else limit * 3 / 2
        between = (here - middle) * (end - middle) < 0
        if between:
            return total + logarithmic(here, middle) + logarithmic(middle, end, limit)
        near = abs(here - limit) <= abs(middle - limit)
        return total + logarithmic(here, end, limit if near else 0)


# strengths, target and times that see every part of the way
CASES = {
    "plain": ([0.2, 0.3, 0.5], 1.0, [0.01, 1, 3, 5, 10, 12]),
    "one layer through zero": ([-0.3], 1.0, [0.1, 0.26, 0.27, 1, 5, 20]),
    "two layers": ([1e-7, 1e-7], 2.0, [1, 5, 8, 9, 10, 12]),
    "a plateau of 1e20": ([1e-20] * 3, 1.3, [1e5, 1e10, 1e18, 5e19, 7.6e19, 7.6923e19]),
    "a plateau in pieces": ([1e-10, 1e-9, 1e-3, -1.0], 0.7, [1, 1e2, 1e3, 4e3, 8e3, 1e4]),
    "from above": ([2.0, 3.0, 1.5], 1.0, [1e-3, 0.01, 0.1, 0.2, 0.3, 0.5]),
    "from far above to a small target": ([30.0, 20.0, 10.0, 25.0], 1e-3, [1e-12, 1e-10, 1e-9, 1e-8, 3e-8, 1e-7]),
    "stuck": ([0.5, 0.5, -0.5], 1.0, [0.1, 1, 10, 1e2, 1e4, 1e10]),
    "target zero, ties": ([0.5, 0.5, 0.5], 0.0, [0.1, 1, 10, 1e2, 1e4, 1e10]),
    "target zero": ([0.5, 0.6, -0.8], 0.0, [0.01, 1, 10, 20, 50, 100]),
    "through zero": ([0.3, -0.5, 0.7], 1.0, [0.1, 1, 2, 3, 4, 8]),
    "through zero, nearly tied": ([1e-3, -1e-3 * (1 + 1e-9), 0.5], 1.0, [1, 20, 25, 30, 40, 50]),
    "from zero": ([0.0, 0.5, 0.7, 0.9], -1.0, [1e-12, 1e-6, 1e-3, 0.1, 1, 5]),
    "slow end": ([1.5, 1.5001, 1.5002], 1e-8, [1e-3, 1, 100, 1e4, 1e6, 1e7]),
}


@pytest.mark.parametrize("name", CASES)
def test_every_state_is_reached_at_its_time(name):
    strengths, target, times = CASES[name]
    states = np.asarray(layer_mode(np.array(times), strengths, target))
    m = int(np.argmin(np.abs(strengths)))
    squares = np.asarray(strengths) ** 2
    largest = np.maximum(np.max(states**2, axis=-1), np.max(squares))[:, None]
    assert np.all(np.abs((states**2 - states[:, m : m + 1] ** 2) - (squares - squares[m])) <= 4e-16 * largest)
    for t, state in zip(times, states, strict=True):
        speed = abs((target - np.prod(state)) * np.prod(np.delete(state, m)))
        if abs(state[m]) <= 1e11 * speed * t:  # else it is at its end, to rounding
            unknown = abs(float(elapsed(strengths, target, state[m]) - t))
            # what a state rounded to double precision may be off in time, and what the time may be off itself
            assert unknown <= TIME * t + 1e-14 * abs(state[m]) / speed


def test_deep_and_tiny():
    """Depth 6, layers 1e-20: from sigma' = 6 sigma^(5/3) s on the plateau, sigma^(-2/3) falls by 4 s t."""
    times = np.array([1e60, 1e70, 1e79, 1.9e79, 1e81, np.inf])
    state = np.asarray(layer_mode(times, [1e-20] * 6, 1.3))
    plateau = (1e80 - 4 * 1.3 * times[:4]) ** -0.25
    np.testing.assert_allclose(state[:4], np.repeat(plateau[:, None], 6, axis=1), rtol=1e-12)
    np.testing.assert_allclose(np.prod(state[4:], axis=-1), 1.3, rtol=1e-14)


def test_many_layers_from_far_above():
    """Thirty equal layers, far above the target: y^-58 grows by 58 t, and time changes by orders within one panel."""
    fractions = np.linspace(0.97, 0.02, 48)[[0, 8, 15, 29, 36, 41]]
    with mpmath.workdps(40):
        times = [float((mpmath.mpf(y) ** -58 - mpmath.mpf(1e3) ** -58) / 58) for y in 1e3 * fractions]
    found = np.asarray(layer_mode(np.array(times), [1e3] * 30, 1.3))
    np.testing.assert_allclose(found, np.tile(1e3 * fractions[:, None], (1, 30)), rtol=1e-13)


def test_two_layers_are_the_closed_form(seed):
    rng = np.random.default_rng(seed)
    times = np.array([1e-3, 0.3, 1.0, 3.0, 10.0, 1e6])
    for _ in range(12):
        first, second = rng.choice([-1, 1], 2) * 10 ** rng.uniform(-6, 1, 2)
        target = rng.choice([-1, 1]) * 10 ** rng.uniform(-1, 1)
        sign, lam = np.sign(target), (second - first) * (second + first)
        wanted = sign * np.asarray(mode_strength(times, sign * first * second, abs(target), lam))
        found = np.prod(np.asarray(layer_mode(times, [first, second], target)), axis=-1)
        speed = np.abs(2 * (target - wanted) * np.hypot(wanted, lam / 2))
        assert np.all(np.abs(found - wanted) <= ROUNDING * (np.abs(wanted) + times * speed))


def test_against_scipy(seed):
    rng = np.random.default_rng(seed)
    times = np.array([0.0, 0.1, 0.5, 1.0, 2.0, 4.0])
    for depth in (1, 3, 4):
        start, target = rng.uniform(-1.5, 1.5, depth), rng.uniform(-2, 2)

        def field(_, a, target=target):
            return (target - np.prod(a)) * np.array([np.prod(np.delete(a, k)) for k in range(len(a))])

        run = solve_ivp(field, (0, 4), start, method="DOP853", rtol=1e-12, atol=1e-14, t_eval=times)
        found = np.asarray(layer_mode(times, start, target))
        assert np.all(found[0] == start)
        np.testing.assert_allclose(found, run.y.T, rtol=1e-9, atol=1e-10)


def test_modes_that_cannot_move():
    times = np.array([0.0, 1.0, 10.0, 1e3, 1e6, np.inf])
    for start, target in (([0.0, 0.0, 1.0], 1.0), ([0.0, 0.5, 1.0], 0.0)):
        assert np.all(np.asarray(layer_mode(times, start, target)) == np.array(start))
    assert np.isinf(layer_mode_time([0.0, 0.0, 1.0], 1.0, fraction=0.1))
    stuck = np.asarray(layer_mode(times, [0.5, -0.5, 1.0], 1.0))
    np.testing.assert_allclose(stuck[-1], [0.0, 0.0, np.sqrt(0.75)], atol=1e-15)
    assert np.all(np.prod(stuck, axis=-1) <= 0)
    # the end itself: a start there stays
    np.testing.assert_allclose(layer_mode(times, [1.0, 1.0, 2.0], 2.0), np.tile([1.0, 1.0, 2.0], (6, 1)), rtol=1e-15)


def test_learning_times():
    """Depth 3 from rest: the time of one fraction by hand, the others by going there."""
    strengths = np.array([[0.1, 0.1, 0.1], [0.3, -0.5, 0.7], [2.0, 1.0, 1.5], [1e-8, 0.2, 0.2]])
    targets = np.array([1.0, 1.0, 0.5, -2.0])
    levels = np.array([1e-9, 0.1, 0.5, 0.9, 1 - 1e-9])
    times = np.array(
        [[layer_mode_time(a, s, fraction=x) for x in levels] for a, s in zip(strengths, targets, strict=True)]
    )
    assert np.all(np.diff(times, axis=1) > 0)
    assert jax.eval_shape(lambda x: layer_mode_time(strengths, targets, fraction=x), levels).shape == (4, 5)
    for start, target, row in zip(strengths, targets, times, strict=True):
        for level, t in zip(levels, row, strict=True):
            product = np.prod(start) + level * (target - np.prod(start))
            state = np.asarray(layer_mode(np.full(COUNT, t), start, target))[0]
            assert np.prod(state) == pytest.approx(product, rel=1e-11, abs=1e-12)
    # sigma' = 3 sigma^(4/3)(1 - sigma): with u = sigma^(1/3), t is the integral of du / (u^2 (1 - u^3))
    by_hand = mpmath.quad(lambda u: 1 / (u**2 * (1 - u**3)), [0.1, 0.3, mpmath.mpf(0.5005) ** (mpmath.mpf(1) / 3)])
    assert float(times[0, 2]) == pytest.approx(float(by_hand), rel=1e-13)
    same = layer_mode_time(strengths[0], 1.0, product=0.5005)
    assert float(same) == pytest.approx(float(times[0, 2]), rel=1e-13)
    assert float(layer_mode_time(strengths[0], 1.0, product=1e-3)) == 0


def test_balanced_modes():
    """Depth 1, 2 and 4 by their formulas; the plateau of depth 4 ends at 1/(2 s sqrt(sigma_0))."""
    times, start, target = np.array([0.0, 0.1, 0.5, 1.0, 3.0, 10.0]), np.array([0.01, 0.5, 3.0]), 1.5
    one, two = (np.array([balanced_mode(times, x, target, depth) for x in start]) for depth in (1, 2))
    np.testing.assert_allclose(one, target + (start[:, None] - target) * np.exp(-times), rtol=1e-13)
    grown = np.exp(2 * target * times) * start[:, None]
    np.testing.assert_allclose(two, target * grown / (target - start[:, None] + grown), rtol=1e-13)
    # sigma' = 4 sigma^(3/2)(s - sigma), u = sqrt(sigma): t = (artanh(u/r)/r - 1/u)/(2 r^2) with r^2 = s
    u, r = np.sqrt([1e-10, 0.75]), np.sqrt(target)
    first, last = (np.arctanh(u / r) / r - 1 / u) / (2 * r**2)
    found = float(balanced_mode_time(1e-10, target, 4, product=0.75))
    assert found == pytest.approx(last - first, rel=1e-13)
    assert found == pytest.approx(1 / (2 * target * 1e-5), rel=1e-4)
    assert np.isinf(balanced_mode_time(-0.1, 1.0, 4, fraction=0.5))


@pytest.mark.slow
def test_derivatives():
    """Against difference quotients of the flow by SciPy: below, above, through zero, and all layers tied."""
    times = jnp.array([0.7, 3.0])

    def flow(start: np.ndarray, target: float) -> np.ndarray:
        def field(_, a):
            return (target - np.prod(a)) * np.array([np.prod(np.delete(a, k)) for k in range(len(a))])

        return solve_ivp(field, (0, 3), start, method="DOP853", rtol=1e-13, atol=1e-15, t_eval=np.asarray(times)).y.T

    starts = np.array([[0.4, 0.5, 0.8], [1.4, 1.5, 0.9], [0.3, -0.5, 0.7], [0.5, 0.5, 0.5], [0.0, 0.5, 0.8], [0.5] * 3])
    targets = np.array([1.0, 0.5, 1.0, 1.0, 1.0, 0.0])
    jacobian = jax.jit(jax.vmap(jax.jacfwd(lambda a, s: layer_mode(times, a, s), argnums=(0, 1))))
    by_start, by_target = jacobian(jnp.asarray(starts), jnp.asarray(targets))
    step = 1e-5
    for k, (start, target) in enumerate(zip(starts, targets, strict=True)):
        quotient = (flow(start, target + step) - flow(start, target - step)) / (2 * step)
        np.testing.assert_allclose(by_target[k], quotient, atol=1e-8, rtol=1e-7)
        for layer in range(3):
            shift = step * np.eye(3)[layer]
            quotient = (flow(start + shift, target) - flow(start - shift, target)) / (2 * step)
            np.testing.assert_allclose(by_start[k][..., layer], quotient, atol=1e-8, rtol=1e-7)


def test_the_speed_at_the_change_of_sign():
    """Where the product is zero the layer that vanishes moves by the target times the others, and these rest."""
    start = jnp.array([0.3, -0.5, 0.7])
    crossing = float(layer_mode_time(start, 1.0, product=0.0))
    times = crossing * jnp.array([1 - 1e-9, 1.0, 1 + 1e-9])
    speeds = jax.jit(jax.vmap(jax.jacfwd(lambda t: layer_mode(t, start, 1.0))))(times)
    others = -np.sqrt(0.5**2 - 0.3**2) * np.sqrt(0.7**2 - 0.3**2)
    np.testing.assert_allclose(speeds, np.tile([others, 0.0, 0.0], (3, 1)), atol=1e-7)


@pytest.mark.covers("exact:F35")
def test_arguments_are_checked():
    with pytest.raises(ValueError, match="layer_mode: times must be at least 0"):
        layer_mode(-1.0, [0.1, 0.1], 1.0)
    with pytest.raises(ValueError, match="axis of at least one layer"):
        layer_mode(1.0, 0.1, 1.0)
    with pytest.raises(ValueError, match="one number for each mode"):
        layer_mode(1.0, np.ones((2, 3)), np.ones(3))
    with pytest.raises(ValueError, match="must be 0 or at least 1e-100"):
        layer_mode(1.0, [1e-200, 0.1], 1.0)
    with pytest.raises(ValueError, match="exactly one of fraction and product"):
        layer_mode_time([0.1, 0.1], 1.0)
    with pytest.raises(ValueError, match="fraction must be less than 1"):
        layer_mode_time([0.1, 0.1], 1.0, fraction=1.0)
    with pytest.raises(ValueError, match=r"between the start 0\.01 and the target 1 "):
        layer_mode_time([0.1, 0.1], 1.0, product=2.0)
    with pytest.raises(ValueError, match="depth must be at least 1"):
        balanced_mode(1.0, 0.1, 1.0, 0)


@pytest.mark.parametrize("depth", [2, 3])
def test_times_far_below_the_target_keep_their_digits(depth: int) -> None:
    """Equal layers of 1e-6 doubling: t = ln 2 in two layers and (1 - 1/2)/1e-6 in three, as the target is far away."""
    start = [1e-6] * depth
    expected = {2: np.log(2.0), 3: 0.5e6}[depth]
    found = layer_mode_time(start, 1.0, product=(2e-6) ** depth)
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    # By the part of the way it is the same, to the digits that a part of the way has.
    np.testing.assert_allclose(layer_mode_time(start, 1.0, fraction=(2e-6) ** depth - 1e-6**depth), found, rtol=1e-9)


def test_a_mode_with_two_vanishing_layers_rests() -> None:
    """Of three layers two vanish: the product has no first derivative, and nothing moves."""
    found = layer_mode(np.array([0.0, 1.0, 10.0, 1e3, 1e6, 1e9]), [0.0, 0.0, 1.0], 2.0)
    np.testing.assert_array_equal(found, np.tile([0.0, 0.0, 1.0], (COUNT, 1)))
