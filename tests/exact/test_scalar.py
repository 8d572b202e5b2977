"""The scalar equation of balanced diagonal layers: against hypergeometric functions and quadrature in 60 digits."""

from collections.abc import Callable

import jax
import mpmath
import numpy as np
import pytest

from deeplinear.exact import (
    escape_time,
    product_time,
    scalar_curvature,
    scalar_equilibria,
    scalar_speed,
    scalar_state,
    scalar_time,
    transition_width,
)

TIME = 1e-12  # relative; measured 2e-14. Required: 1e-10
REFERENCE = 5e-12  # values of 12 digits

CASES = (
    (1e-6, 0.95, 1.3),
    (1e-6, 2e-6, 1.0),
    (1e-6, 1e-3, 5.0),
    (1e-3, 0.9, 1.3),
    (0.1, 0.999, 2.0),
    (0.3, 0.2, 1.0),
    (2.0, 1.3, 1.0),
    (9.0, 2.0, 0.5),
)
"""Start, end and target: across plateaus, within one, near the end, backwards, from above."""


def count(depth: int) -> tuple[int, int]:
    """Modes and times of every call, the same as in other tests, so that they share compiled code."""
    return (16, 16) if depth <= 4 else (8, 41)


def time_of(function: Callable, depth: int, *columns: object) -> np.ndarray:
    """A function of modes, with as many of them as are compiled for; those that were asked for."""
    modes = max(np.size(column) for column in columns)
    filled = [np.resize(np.asarray(column, dtype=float), count(depth)[0]) for column in columns]
    return np.asarray(function(*filled, depth))[:modes]


def state_of(start: float, sigma: float, depth: int, times: np.ndarray) -> np.ndarray:
    """States of one mode at some times."""
    modes, moments = count(depth)
    found = scalar_state(np.full(modes, start), np.full(modes, sigma), depth, np.resize(times, moments))
    return np.asarray(found)[0, : len(times)]


def by_hypergeometric_functions(start: float, end: float, sigma: float, depth: int) -> float:
    with mpmath.workdps(60):
        value, power = mpmath.mpf(sigma), mpmath.mpf(2) / depth - 1

        def primitive(z: float):
            q = mpmath.mpf(z) ** depth / value
            if depth == 2:
                return mpmath.log(q / (1 - q)) if q < 1 else -mpmath.log(1 - 1 / q)
            if q < 1:
                return q**power / power * mpmath.hyp2f1(1, power, 1 + power, q)
            return q ** (power - 1) / (1 - power) * mpmath.hyp2f1(1, 1 - power, 2 - power, 1 / q)

        return float((primitive(end) - primitive(start)) / (depth * value ** (2 - mpmath.mpf(2) / depth)))


@pytest.mark.covers("network:F33", "network:C38")
def test_times() -> None:
    """Depths up to 4, 8, …, 20 share compiled code: three such groups."""
    start, end, sigma = np.array(CASES).T
    for depth in (2, 3, 4, 5, 6, 7, 8, 17, 20):
        found = time_of(scalar_time, depth, start, end, sigma)
        wanted = [by_hypergeometric_functions(*case, depth) for case in CASES]
        np.testing.assert_allclose(found, wanted, rtol=TIME)
        assert found[5] < 0 < found[6]


def test_the_primitive_is_the_integral() -> None:
    """The oracle above, by quadrature."""
    for depth in (2, 3, 7):
        for start, end, sigma in ((0.1, 0.9, 1.3), (2.0, 1.3, 1.0)):
            quadrature = mpmath.quad(
                lambda z, n=depth, s=sigma: 1 / (z ** (n - 1) * (s - z**n)), mpmath.linspace(start, end, 9)
            )
            assert abs(by_hypergeometric_functions(start, end, sigma, depth) / quadrature - 1) < 1e-11


@pytest.mark.covers("network:F33", "network:C38")
@pytest.mark.parametrize("depth", [2, 3, 20])
def test_states_are_reached_at_their_times(depth: int) -> None:
    """The time at which the state found is reached is the one asked for: a state may be off by what rounding of the
    time makes of it, which is much at the end of a plateau of 1e108."""
    sigma, start = 1.3, 1e-6
    for begin, parts in ((start, (0.3, 0.9, 0.999999)), (1.5, (0.5, 1.0, 2.0))):
        scale = by_hypergeometric_functions(start, 0.9, sigma, depth) if begin == start else 0.02 / depth
        times = scale * np.array(parts)
        states = state_of(begin, sigma, depth, times)
        for t, z in zip(times, states, strict=True):
            assert abs(by_hypergeometric_functions(begin, float(z), sigma, depth) / t - 1) < TIME
    # The last state is at rest.
    last = state_of(0.5, sigma, depth, np.array([0.0, 1.0, np.inf]))[-1]
    assert last == pytest.approx(sigma ** (1 / depth), rel=1e-14)


@pytest.mark.covers("network:N3")
def test_recorded_values() -> None:
    assert time_of(scalar_time, 4, 0.1, 1.0, 2.0)[0] == pytest.approx(24.9045562892, rel=REFERENCE)
    for start, sigma, depth, t, wanted in (
        (0.1, 2.0, 4, 24.8, 0.894825078290),
        (0.5, 2.0, 3, 1.0, 1.22806827676),
        (2.0, 1.0, 5, 0.1, 1.10028045798),
    ):
        found = state_of(start, sigma, depth, np.array([0.0, t, np.inf]))
        np.testing.assert_allclose(found, [start, wanted, sigma ** (1 / depth)], rtol=REFERENCE)


@pytest.mark.covers("network:F33", "network:C38")
def test_half_times_sharpness_and_escape() -> None:
    sigma = np.array([4.0, 3.0, 2.0, 1.0] * 2)
    starts = np.array([0.2] * 4 + [0.15, 0.2, 0.3, 0.4])
    wanted = [10.410, 13.879, 20.813, 41.600, 24.686, 13.879, 6.146, 5.081]
    np.testing.assert_allclose(time_of(product_time, 5, starts, sigma), wanted, atol=6e-4)
    widths = [time_of(transition_width, depth, 0.2, 2.0)[0] for depth in (2, 3, 4, 5, 6, 8)]
    np.testing.assert_allclose(widths, [1.129, 0.370, 0.103, 0.0255, 0.0059, 0.0003], atol=6e-4)
    for start, depth in ((1e-4, 3), (1e-2, 5)):
        ratio = float(escape_time(start, 1.0, depth)) / time_of(product_time, depth, start, 1.0)[0]
        assert ratio == pytest.approx(1, abs=5e-4)
    assert float(escape_time(1e-6, 3.0, 2)) == pytest.approx(np.log(np.sqrt(3) / 1e-6) / 3)


@pytest.mark.covers("network:E8")
def test_equilibria_and_curvature() -> None:
    """At ±σ^(1/L), not at ±σ; minus only for even L. The curvature is minus the derivative of the speed."""
    z = np.array([-1.1, -0.3, 0.0, 0.2, 1.4])
    for depth, count in ((1, 1), (2, 3), (3, 2), (4, 3)):
        points = np.asarray(scalar_equilibria(2.0, depth))
        assert points.shape == (count,)
        np.testing.assert_allclose(scalar_speed(points, 2.0, depth), 0, atol=1e-14)
        speed = np.zeros(2 * depth)
        speed[0], speed[depth] = -1.0, 2.0  # -z^(2L - 1) + 2 z^(L - 1), highest power first
        np.testing.assert_allclose(scalar_speed(z, 2.0, depth), np.polyval(speed, z), atol=1e-12)
        np.testing.assert_allclose(scalar_curvature(z, 2.0, depth), -np.polyval(np.polyder(speed), z), atol=1e-12)
    assert abs(float(scalar_speed(2.0, 2.0, 3))) > 1
    assert float(scalar_curvature(0.0, 2.0, 2)) == -2.0


def test_ends_and_batches() -> None:
    np.testing.assert_array_equal(time_of(scalar_time, 3, 0.2, [0.2, 1.0], 1.0), [0.0, np.inf])
    shape = jax.eval_shape(lambda: scalar_state(np.full((2, 1), 0.2), np.ones(3), 3, np.ones(4))).shape
    assert shape == (2, 3, 4)


def test_bad_arguments_are_refused() -> None:
    for function in (scalar_speed, scalar_curvature):
        with pytest.raises(ValueError, match=f"{function.__name__}: depth must be at least 1, but is 0"):
            function(0.5, 1.0, 0)
    with pytest.raises(ValueError, match="scalar_equilibria: depth must be at least 1, but is 0"):
        scalar_equilibria(1.0, 0)
    with pytest.raises(ValueError, match="start must be greater than 0"):
        scalar_time(0.0, 1.0, 2.0, 3)
    with pytest.raises(ValueError, match="sigma must be greater than 0"):
        scalar_state(0.1, -1.0, 3, 1.0)
    with pytest.raises(ValueError, match="one side of sigma"):
        scalar_time(0.5, 1.5, 1.0, 3)
    with pytest.raises(ValueError, match="depth must be at least 2"):
        escape_time(0.1, 1.0, 1)
    with pytest.raises(ValueError, match="times are numbers"):
        scalar_time(1e-50, 0.5, 1.0, 20)
