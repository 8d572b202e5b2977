"""Length and action of curves, and the bound below every length."""

import math

import numpy as np
import pytest
import scipy.integrate

from checking import unchecked
from deeplinear.core import HypothesisError
from deeplinear.geometry import curve_action, curve_length, distance_lower_bound

CENTRE = np.array([[1.0, 0.2], [-0.3, 0.8]])
SWING = np.array([[0.1, -0.4], [0.3, 0.2]])


def curve(t: float) -> np.ndarray:
    return CENTRE + math.sin(2 * t) * SWING


def velocity(t: float) -> np.ndarray:
    return 2 * math.cos(2 * t) * SWING


def speed(t: float, depth: float) -> float:
    """Of the curve, from the printed eigenvalues."""
    left, s, right_t = np.linalg.svd(curve(t))
    seen = left.T @ velocity(t) @ right_t.T
    eigenvalues = np.empty((2, 2))
    for k in range(2):
        for j in range(2):
            if k == j:
                eigenvalues[k, k] = s[k] ** 2 if math.isinf(depth) else depth * s[k] ** (2 - 2 / depth)
            else:
                below = 2 * math.log(s[k] / s[j]) if math.isinf(depth) else s[k] ** (2 / depth) - s[j] ** (2 / depth)
                eigenvalues[k, j] = (s[k] ** 2 - s[j] ** 2) / below
    return math.sqrt(np.sum(seen**2 / eigenvalues))


@pytest.mark.covers("geometry:F26")
@pytest.mark.parametrize("depth", [1, 2, 3, math.inf])
def test_length_and_action_by_quadrature(depth: float) -> None:
    # The velocity vanishes at t = π/4, where the speed has a kink: the curve is taken up to there.
    ends = (0.0, math.pi / 4)
    length = scipy.integrate.quad(speed, *ends, (depth,), epsabs=1e-13)[0]
    action = scipy.integrate.quad(lambda t: speed(t, depth) ** 2 / 2, *ends, epsabs=1e-13)[0]
    assert curve_length(curve, depth, times=ends, velocity=velocity) == pytest.approx(length, abs=1e-11)
    # Without the derivative the one of the polynomial through 48 values is taken: rounding times 48².
    assert curve_length(curve, depth, times=ends) == pytest.approx(length, abs=1e-9)
    assert curve_action(curve, depth, times=ends, velocity=velocity) == pytest.approx(action, abs=1e-11)
    assert action >= length**2 / (2 * ends[1])
    scale = 1.0 if math.isinf(depth) else math.sqrt(depth)
    assert curve_length(curve, depth, times=ends, velocity=velocity, normalised=True) == pytest.approx(scale * length)
    moments = np.linspace(*ends, 65)
    samples, slopes = np.stack([curve(t) for t in moments]), np.stack([velocity(t) for t in moments])
    # Cubic pieces of length 1/80: their derivative is good to the third power of it, its integral to the fourth.
    assert curve_length(samples, depth, times=moments) == pytest.approx(length, abs=1e-6)
    assert curve_length(samples, depth, times=moments, velocity=slopes) == pytest.approx(length, abs=1e-6)


@pytest.mark.covers("geometry:F26", "geometry:R")
def test_the_lower_bound() -> None:
    end = np.array([[0.3, -0.9], [0.8, 0.5]])
    for depth, wanted in ((2, 0.005554606672), (3, 0.004603237130), (math.inf, 0.008232755746)):
        assert distance_lower_bound(CENTRE, end, depth) == pytest.approx(wanted, abs=1e-12)
    assert distance_lower_bound(CENTRE, end, 3, normalised=True) == pytest.approx(math.sqrt(3) * 0.004603237130)


@pytest.mark.covers("geometry:F26", "geometry:S27")
@pytest.mark.parametrize("depth", [2, 3, math.inf])
def test_no_curve_is_shorter(depth: float, seed: int) -> None:
    """Of curves between random matrices, and with equality where the frames are common and sorted."""
    rng = np.random.default_rng(seed)
    for _ in range(3):
        start, end = np.eye(2) + 0.3 * rng.standard_normal((2, 2, 2))
        bend = 0.3 * rng.standard_normal((2, 2))
        length = curve_length(lambda t: start + t * (end - start) + t * (1 - t) * bend, depth)  # noqa: B023
        assert length >= distance_lower_bound(start, end, depth)
    sorted_curve = curve_length(lambda t: np.diag([3.0 + t, 2.0 - t]), depth)
    assert sorted_curve >= distance_lower_bound(np.diag([3.0, 2.0]), np.diag([4.0, 1.0]), depth)


@pytest.mark.covers("geometry:F47")
def test_refusals() -> None:
    with pytest.raises(HypothesisError, match="the curve is of full rank"):
        curve_length(lambda t: np.diag([1.0, 0.0]) + 0 * t, 2)
    with pytest.raises(ValueError, match="curve must be finite"):
        curve_length(lambda t: np.full((2, 2), np.nan), 2)
    with pytest.raises(TypeError, match="velocity must be a function"):
        curve_length(curve, 2, velocity=np.eye(2))
    with pytest.raises(ValueError, match="times must be increasing"):
        curve_length(np.stack([CENTRE, SWING]), 2, times=[1.0, 0.0])
    with pytest.raises(ValueError, match="times must be finite"):
        curve_length(curve, 2, times=[0.0, np.inf])
    with pytest.raises(ValueError, match="at least 2 samples"):
        curve_length(CENTRE[None], 2)
    with pytest.raises(ValueError, match="depth must be a positive integer or infinity"):
        unchecked(distance_lower_bound)(CENTRE, CENTRE, 2.5)
    with pytest.raises(ValueError, match="end must have shape"):
        distance_lower_bound(CENTRE, np.eye(3), 2)
    with pytest.raises(HypothesisError, match="full rank"):
        distance_lower_bound(CENTRE, np.zeros((2, 2)), math.inf)
