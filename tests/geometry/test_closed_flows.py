"""Closed forms of one singular value, against SciPy, the specification's numbers and their own equations."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from deeplinear.core import HypothesisError
from deeplinear.geometry import learning_time, logistic_mode, power_decay

QUADRATURE = 1e-10
"""SciPy's quadrature of smooth functions."""


@pytest.mark.covers("geometry:F16")
@pytest.mark.parametrize("depth", [1, 2, 3, 7, math.inf])
def test_power_decay_takes_its_time(depth: float) -> None:
    """The time from s_0 to s(t) is the integral of ds/(−ṡ)."""
    power = 3 - 2 / depth
    for time in (0.3, 4.0):
        end = float(power_decay(1.7, depth, time))
        found = quad(lambda s: s**-power, end, 1.7, epsabs=0, epsrel=1e-12)[0]
        assert found == pytest.approx(time, rel=QUADRATURE)


@pytest.mark.covers("geometry:F16")
def test_learning_times() -> None:
    for depth, power in ((2, 1), (math.inf, 2)):
        for start, end, target in ((0.01, 0.6, 1.3), (3.0, 1.5, 1.3)):
            wanted = quad(lambda s: 1 / (2.0 * s**power * (target - s)), start, end, epsabs=0, epsrel=1e-12)[0]  # noqa: B023
            found = float(learning_time(start, end, target, depth, speed=2.0))
            assert found == pytest.approx(wanted, rel=QUADRATURE)
    assert float(learning_time(1e-3, 0.5, 1.0, math.inf)) == pytest.approx(1004.907, abs=5e-4)
    time = learning_time(0.01, 0.6, 1.3, 2, speed=2.0)
    assert float(logistic_mode(0.01, 1.3, time, speed=2.0)) == pytest.approx(0.6, rel=1e-12)
    waits = [float(learning_time(s, 0.5, 1.0, math.inf)) * s for s in (1e-4, 1e-6)]
    np.testing.assert_allclose(waits, 1.0, rtol=2e-3)


@pytest.mark.covers("geometry:F47")
def test_refusals() -> None:
    with pytest.raises(ValueError, match="start must be positive, but reaches -1"):
        power_decay([1.0, -1.0], 2, 1.0)
    with pytest.raises(HypothesisError, match="came from infinity"):
        power_decay(1.0, math.inf, -0.6)
    with pytest.raises(ValueError, match="depth must be 2 or infinity"):
        learning_time(0.1, 0.2, 1.0, 3)
    with pytest.raises(HypothesisError, match="on one side of the target"):
        learning_time(0.1, 2.0, 1.0, 2)
    with pytest.raises(ValueError, match="target must be positive"):
        logistic_mode(0.1, 0.0, 1.0)
    with pytest.raises(ValueError, match="times must be finite"):
        logistic_mode(0.1, 1.0, math.nan)
