"""Reversed modes: the task, and the time they take against a quadrature."""

import numpy as np
import pytest
from scipy.integrate import quad

from deeplinear.exact import reversal_task, reversal_time

ROUNDING = 1e-12


@pytest.mark.covers("exact:F28")
def test_task_turns_the_chosen_modes_round(seed: int) -> None:
    sigma = np.random.default_rng(seed).normal(size=(3, 4))
    left, values, right_t = np.linalg.svd(sigma, full_matrices=False)
    for modes, signs in ((1, [1, -1, 1]), ((0, 2), [-1, 1, -1]), ((), [1, 1, 1])):
        found = np.asarray(reversal_task(sigma, modes))
        np.testing.assert_allclose(left.T @ found @ right_t.T, np.diag(values * signs), atol=ROUNDING)
        np.testing.assert_allclose(found, left @ np.diag(values * signs) @ right_t, atol=ROUNDING)


@pytest.mark.covers("exact:F28", "exact:S27")
def test_time_is_that_of_the_scalar_flow() -> None:
    for s, lam, fraction in ((1.5, 2.0, 0.9), (0.4, -0.3, 0.5), (2.0, 1e-3, 0.97), (1.0, 5.0, 0.1)):
        # dt = dx / (2 (s - x) sqrt(x² + λ²/4)), with x = |λ|/2 sinh z, where the peak at zero is spread out.
        half = abs(lam) / 2
        ends = np.arcsinh(np.array([-s, -s + 2 * s * fraction]) / half)
        wanted, _ = quad(lambda z, s=s, half=half: 0.5 / (s - half * np.sinh(z)), *ends, epsabs=0, epsrel=1e-12)
        assert float(reversal_time(s, lam, fraction)) == pytest.approx(wanted, rel=1e-10)
    # The time grows like ln(1/λ)/s, without end at λ = 0.
    times = np.asarray(reversal_time(2.0, np.array([1e-7, 1e-8, 0.0]), 0.9))
    assert (times[1] - times[0]) / np.log(10) == pytest.approx(0.5, abs=1e-6)
    assert np.isinf(times[2])


@pytest.mark.covers("exact:F35")
def test_refusals() -> None:
    sigma = np.eye(2)
    with pytest.raises(ValueError, match="modes must be at most 1, but is 2"):
        reversal_task(sigma, 2)
    with pytest.raises(ValueError, match="differ from each other"):
        reversal_task(sigma, (0, 0))
    with pytest.raises(ValueError, match="must be finite"):
        reversal_task(sigma * np.nan, 0)
    with pytest.raises(ValueError, match="strength must be greater than 0"):
        reversal_time(0.0, 1.0, 0.5)
