"""Printed errors of the paper on exact solutions: the switches show what they say they show."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.exact import block_form, input_noise_loss, noise_optimal_lambda, reversal_mode, weight_noise_loss
from deeplinear.theory import checks

ROUNDING = 1e-14
"""A few operations on numbers of order one."""

pytestmark = pytest.mark.covers("exact:F36")


def test_checks_that_show_them() -> None:
    printed = [check.id for check in checks("exact") if check.printed is not None]
    assert len(printed) == 33 and all(name.startswith("exact/erratum-") for name in printed)


def test_complement() -> None:
    """Layers [0, 1] and 0 on the task [1, 0] have no gradient and λ = −1: they stay, but not in print.

    B = C = 0 and D = 1, so that $W_1^⊤W_1$ has the one entry $e^t/A$ with $A = e^t$, or $A = 2e^{t/2} − 1$ in print.
    """
    params, target, t = (jnp.array([[0.0, 1.0]]), jnp.zeros((1, 1))), jnp.array([[1.0, 0.0]]), 2 * np.log(2.0)
    for as_printed, entry in ((False, 1.0), (True, 4 / 3)):
        found = block_form(params, target, -1.0, t, as_printed=as_printed)
        np.testing.assert_allclose(found.input, [[0.0, 0.0], [0.0, entry]], rtol=0, atol=ROUNDING)
        np.testing.assert_allclose(found.product, [[0.0, 0.0]], rtol=0, atol=ROUNDING)


def test_noise() -> None:
    """Strength 2 and λ = 3 give layers of the squared norms (5 ± 3)/2, that is 4 and 1."""
    for as_printed, at_inputs, at_weights, best in ((False, 0.625, 0.8125, 2.25), (True, 1.25, 1.1875, -2.25)):
        # σ²(4 + 1) with σ = 1/2, halved or not
        assert abs(input_noise_loss([2.0, 1.0], 0.5, as_printed=as_printed) - at_inputs) < ROUNDING
        # (1·4 + 2·1)/8 or (1·1 + 2·4)/8, and 2σ⁴/2
        assert abs(weight_noise_loss([2.0], 3.0, (1, 1, 2), 0.5, as_printed=as_printed) - at_weights) < ROUNDING
        # λ/√(λ² + 9) = ±3/5
        assert abs(noise_optimal_lambda([1.5], (1, 1, 4), as_printed=as_printed) - best) < ROUNDING


def test_reversal() -> None:
    """A mode of strength 2 at λ = 3, with $s_λ = 5/2$, starts at −2 and ends at 2; in print at −7/4 and 5/2.

    The layers have strengths 1 and 2, $h = 1/3$, $g^2 = 9/10$, $b = -2g$, $c = -8g/3$, so that in print the start is
    $\\tfrac52(b^2 - c^2)/4$.
    """
    for as_printed, start, end in ((False, -2.0, 2.0), (True, -1.75, 2.5)):
        found = reversal_mode(jnp.array([0.0, jnp.inf]), 2.0, 2.0, 3.0, as_printed=as_printed)
        np.testing.assert_allclose(found, [start, end], rtol=ROUNDING)
