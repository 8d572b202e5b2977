"""What first moments leave open: widths at and below the threshold, the closed form, clustered spectra, refusals."""

from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.optimize

from deeplinear.core import HypothesisError
from deeplinear.recurrent import continuation, extrapolation_interval, moment_openness, upper_principal_moment

ATOMS, WEIGHTS = [-0.5, 0.3, 0.9], [0.3, 0.3, 0.4]


def moments(atoms: Any, weights: Any, count: int) -> np.ndarray:
    return np.asarray(weights) @ np.asarray(atoms)[:, None] ** np.arange(count)


@pytest.mark.covers("rnn:F20", "rnn:S9")
@pytest.mark.parametrize(("atoms", "weights"), [([0.5], [1.0]), ([0.9, -0.5], [0.6, 0.4]), (ATOMS, WEIGHTS)])
def test_one_moment_more_than_twice_the_order_decides(atoms: list[float], weights: list[float]) -> None:
    n = len(atoms)
    w = moments(atoms, weights, 2 * n + 3)
    enough = extrapolation_interval(w[: 2 * n + 1], 2 * n + 2, low=-1, high=1, atoms=atoms)
    assert enough.tolerance == 0
    assert float(enough.width) < 1e-8
    assert float(enough.upper) == pytest.approx(w[-1], abs=1e-8)
    short = extrapolation_interval(w[: 2 * n], 2 * n + 2, low=-1, high=1, atoms=atoms)
    assert float(short.width) > 1e-2
    assert float(short.lower) - 1e-9 <= w[-1] <= float(short.upper) + 1e-9


def principal_by_digits(atoms: list[float], weights: list[float], low: float, high: float) -> float:
    """The measure with both ends: its inner points are roots of an orthogonal polynomial, its weights from moments."""
    with mpmath.workdps(50):
        x, p = [mpmath.mpf(a) for a in atoms], [mpmath.mpf(v) for v in weights]
        a, b, n = mpmath.mpf(low), mpmath.mpf(high), len(atoms)
        u = [v * (s - a) * (b - s) for s, v in zip(x, p, strict=True)]
        gram = mpmath.matrix(n - 1, n - 1)
        right = mpmath.matrix(n - 1, 1)
        for i in range(n - 1):
            for j in range(n - 1):
                gram[i, j] = mpmath.fsum(v * s ** (i + j) for s, v in zip(x, u, strict=True))
            right[i] = -mpmath.fsum(v * s ** (i + n - 1) for s, v in zip(x, u, strict=True))
        lower = mpmath.lu_solve(gram, right)
        inner = mpmath.polyroots(
            [mpmath.mpf(1), *(lower[n - 2 - i] for i in range(n - 1))], maxsteps=200, extraprec=100
        )
        points = [a, *inner, b]
        square = mpmath.matrix(n + 1, n + 1)
        for i in range(n + 1):
            for j in range(n + 1):
                square[i, j] = points[j] ** i
        target = mpmath.matrix([mpmath.fsum(v * s**i for s, v in zip(x, p, strict=True)) for i in range(n + 1)])
        masses = mpmath.lu_solve(square, target)
        return float(mpmath.fsum(masses[i] * points[i] ** (2 * n) for i in range(n + 1)))


@pytest.mark.covers("rnn:F20")
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-0.7, 1.3)])
def test_the_upper_principal_moment(low: float, high: float) -> None:
    found = float(upper_principal_moment(ATOMS, WEIGHTS, low=low, high=high))
    assert found == pytest.approx(principal_by_digits(ATOMS, WEIGHTS, low, high), rel=1e-13)
    w = moments(ATOMS, WEIGHTS, 7)
    interval = extrapolation_interval(w[:6], 6, low=low, high=high, atoms=ATOMS, points=401)
    assert float(interval.upper) == pytest.approx(found, abs=2e-9)
    assert float(interval.lower) == pytest.approx(w[6], abs=1e-9)


@pytest.mark.covers("rnn:F20")
@pytest.mark.parametrize("index", [4, 5, 7])
def test_the_ends_are_bounds(index: int) -> None:
    """Four known numbers: the ends against measures with the same moments, some of them just beyond a coarse search.

    Gauss' rule is one, mass at both ends with one point between another; the ends belong to them if the index is even.
    """
    x, p = np.array([0.5, -0.3, 0.9, 0.1]), np.array([1.0, 0.7, 0.4, 0.2])
    with mpmath.workdps(40):
        h = [mpmath.fsum(mpmath.mpf(w) * mpmath.mpf(a) ** j for w, a in zip(p, x, strict=True)) for j in range(8)]
        between = (h[3] - h[1]) / (h[2] - h[0])  # 1 - x^2 turns the upper measure into one point
        mass = (h[0] - h[2]) / (1 - between**2)
        rest, tilt = h[0] - mass, h[1] - mass * between
        upper = mass * between**index + (rest + tilt) / 2 + (rest - tilt) / 2 * (-1) ** index
        square = mpmath.matrix([[h[0], h[1]], [h[1], h[2]]])
        c = mpmath.lu_solve(square, mpmath.matrix([-h[2], -h[3]]))
        one, other = mpmath.polyroots([1, c[1], c[0]])
        weight = (h[1] - h[0] * other) / (one - other)
        lower = weight * one**index + (h[0] - weight) * other**index
    found = extrapolation_interval([p @ x**j for j in range(4)], index, low=-1, high=1)
    inner = sorted((float(lower), float(upper)))
    assert found.error < 1e-8
    assert float(found.lower) - found.error <= inner[0] + 1e-14 and inner[1] - 1e-14 <= float(found.upper) + found.error
    if index % 2 == 0:
        assert float(found.lower) == pytest.approx(inner[0], abs=2e-9)
        assert float(found.upper) == pytest.approx(inner[1], abs=2e-9)
    going_on = continuation([p @ x**j for j in range(4)], index + 1)
    assert going_on.lower is not None and going_on.upper is not None
    assert float(going_on.lower[index]) <= inner[0] + 1e-14 and inner[1] - 1e-14 <= float(going_on.upper[index])


@pytest.mark.covers("rnn:F20")
def test_atoms_at_the_ends_leave_nothing_open() -> None:
    w = moments([1.0, 0.2], [0.5, 0.5], 5)
    assert float(upper_principal_moment([1.0, 0.2], [0.5, 0.5], low=-1, high=1)) == pytest.approx(w[4], abs=1e-15)
    found = extrapolation_interval(w[:4], 4, low=-1, high=1, atoms=[1.0, 0.2])
    assert float(found.width) < 1e-8


@pytest.mark.covers("rnn:F20", "rnn:X4")
def test_tolerances_widen_the_interval() -> None:
    atoms, weights = [0.9, -0.5], [0.6, 0.4]
    w = moments(atoms, weights, 21)
    slopes = []
    for tolerance in (1e-3, 1e-4):
        found = extrapolation_interval(w[:5], 20, low=-1, high=1, atoms=atoms, tolerance=tolerance)
        assert found.tolerance == tolerance
        slopes.append((float(found.upper) - w[20]) / tolerance)
    np.testing.assert_allclose(slopes, [65.6, 74.8], atol=0.2)
    scaled = extrapolation_interval(1e3 * w[:5], 20, low=-1, high=1, atoms=atoms, tolerance=1.0)
    assert (float(scaled.upper) - 1e3 * w[20]) == pytest.approx(slopes[0], rel=1e-6)


def ends_by_scipy(response: np.ndarray, index: int, tolerance: float) -> tuple[float, float]:
    """Both ends on a fine even grid of [-1, 1], moments in powers, by SciPy: measures that the bounds must include."""
    x = np.linspace(-1.0, 1.0, 4001)
    powers = x ** np.arange(len(response))[:, None]
    rows, limits = np.vstack([powers, -powers]), np.concatenate([response + tolerance, tolerance - response])
    least, most = (scipy.optimize.linprog(sign * x**index, rows, limits, method="highs-ds").fun for sign in (1, -1))
    return float(least), -float(most)


@pytest.mark.covers("rnn:F20")
@pytest.mark.parametrize(
    ("count", "index", "tolerance", "points"),
    [(4, 6, 0.01, 5), (4, 6, 0.1, 9), (3, 5, 0.01, 9), (4, 8, 0.3, 4), (3, 6, 1e-3, 4), (4, 6, 0.01, 801)],
)
def test_the_error_of_a_tolerant_programme_bounds_what_a_coarse_grid_misses(
    count: int, index: int, tolerance: float, points: int
) -> None:
    response = moments([0.5, -0.3, 0.9], [1.0, 0.7, 0.4], count)
    least, most = ends_by_scipy(response, index, tolerance)
    found = extrapolation_interval(response, index, low=-1, high=1, tolerance=tolerance, points=points)
    assert found.tolerance == tolerance
    assert float(found.lower) - found.error <= least + 1e-9 and most - 1e-9 <= float(found.upper) + found.error
    if points > count + 20:
        assert found.error < 1e-7
        np.testing.assert_allclose([found.lower, found.upper], [least, most], atol=1e-5)


@pytest.mark.covers("rnn:F20")
def test_the_bounds_of_a_tolerant_continuation_include_what_the_tolerance_allows() -> None:
    response = moments([0.5, -0.3, 0.9], [1.0, 0.7, 0.4], 4)
    found = continuation(response, 7, tolerance=1e-2)
    assert found.lower is not None and found.upper is not None
    slack = 1e-2 * float(response.max())
    for index in range(4, 7):
        least, most = ends_by_scipy(response, index, slack)
        assert float(found.lower[index]) <= least + 1e-9 and most - 1e-9 <= float(found.upper[index])
        assert float(found.upper[index]) - float(found.lower[index]) <= most - least + 1e-4


@pytest.mark.covers("rnn:F20")
@pytest.mark.parametrize("n", [4, 5])
def test_clustered_spectra_fall_back_to_a_tolerance_that_is_named(n: int) -> None:
    atoms, weights = np.linspace(0.6, 1.05, n), np.full(n, 1 / n)
    w = moments(atoms, weights, 2 * n + 5)
    found = extrapolation_interval(w[: 2 * n + 1], 2 * n + 4, low=-1.1, high=1.1, atoms=atoms)
    assert 0 <= found.tolerance <= 2e-6
    assert float(found.lower) - 1e-6 <= w[-1] <= float(found.upper) + 1e-6
    assert float(found.width) < 1e-2
    wide = extrapolation_interval(w[: 2 * n + 1], 2 * n + 4, low=-1.1, high=1.1, atoms=atoms, tolerance=1e-2)
    assert wide.tolerance == 1e-2
    assert float(wide.width) > float(found.width)


@pytest.mark.covers("rnn:F20")
def test_refusals() -> None:
    with pytest.raises(HypothesisError, match=r"moments of a positive measure on the grid.*residual 5\.000e-01"):
        extrapolation_interval([1.0, 2.0, 1.0], 5, low=-1, high=1)  # a mean of 2 on [-1, 1]: off by ½ at best
    with pytest.raises(HypothesisError, match="give the atoms"):
        extrapolation_interval([1.0, 0.123, 0.123**2], 5, low=-1, high=1, fall_back=False)
    with pytest.raises(ValueError, match=r"high must be greater than 1"):
        extrapolation_interval([1.0], 5, low=1, high=1)
    with pytest.raises(ValueError, match=r"atoms must lie in \[-1, 1\]"):
        extrapolation_interval([1.0], 5, low=-1, high=1, atoms=[1.2])
    with pytest.raises(ValueError, match=r"index must be less than 9000 on \[-1\.1, 1\.1\]; the moment overflows"):
        extrapolation_interval([1.0], 9000, low=-1.1, high=1.1)
    with pytest.raises(ValueError, match="response must be finite"):
        extrapolation_interval([1.0, np.nan], 5, low=-1, high=1)
    with pytest.raises(HypothesisError, match="positive weights"):
        upper_principal_moment([0.1, 0.2], [1.0, 0.0], low=-1, high=1)
    with pytest.raises(HypothesisError, match="distinct atoms"):
        upper_principal_moment([0.1, 0.1], [1.0, 1.0], low=-1, high=1)
    zero = extrapolation_interval([0.0, 0.0], 7, low=-1, high=1)
    assert float(zero.width) == 0 and float(zero.upper) == 0


def test_a_programme_the_solver_gives_up_is_tried_on_a_finer_grid() -> None:
    """Five clustered atoms at tolerance 1e-3: HiGHS has no answer on 801 points, and one on more."""
    atoms = np.linspace(0.6, 1.05, 5)
    moments = np.sum(atoms[:, None] ** np.arange(11), axis=0)
    found = extrapolation_interval(moments / 5, 20, low=0.0, high=1.05, atoms=atoms, tolerance=1e-3)
    true = float(np.mean(atoms**20))
    assert found.tolerance == 1e-3 and float(found.lower) <= true <= float(found.upper)


@pytest.mark.parametrize(("atoms", "weights"), [([0.5], [1.0]), ([0.9, -0.5], [0.6, 0.4]), (ATOMS, WEIGHTS)])
def test_openness_is_the_width_of_the_next_interval(atoms: list[float], weights: list[float]) -> None:
    """Against the linear programme on a fine grid, and the closed form of the last interval that is open."""
    n, w = len(atoms), moments(atoms, weights, 2 * len(atoms) + 1)
    found = moment_openness(atoms, weights, low=-1.1, high=1.1)
    assert len(found) == 2 * n + 1 and found[-1] == 0
    for k in range(1, 2 * n + 1):
        programme = extrapolation_interval(w[:k], k, low=-1.1, high=1.1, atoms=atoms)
        assert found[k - 1] == pytest.approx(float(programme.width), abs=5e-5)
    last = float(upper_principal_moment(atoms, weights, low=-1.1, high=1.1)) - w[2 * n]
    assert found[2 * n - 1] == pytest.approx(last, rel=1e-12)


def test_openness_at_the_ends_and_of_no_measure() -> None:
    """An atom at an end leaves less open; what is no measure is refused."""
    assert moment_openness([0.0], [2.0], low=0.0, high=1.0).tolist() == [2.0, 0.0, 0.0]
    with pytest.raises(HypothesisError, match="distinct atoms"):
        moment_openness([0.1, 0.1], [1.0, 1.0], low=0.0, high=1.0)
    with pytest.raises(HypothesisError, match="positive weights"):
        moment_openness([0.1, 0.2], [1.0, -1.0], low=0.0, high=1.0)
