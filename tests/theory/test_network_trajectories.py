"""Statements on runs near the origin, and the printed one on the norm of the product."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.theory import STATUS, verify
from deeplinear.theory.network._trajectories import CHECKS, LEARNT_STAYS, NORM_OF_PRODUCT, PLATEAU_LEVELS


@pytest.mark.covers("network:C44", "network:C48", "network:E10")
def test_checks_hold_and_their_violations_are_noticed() -> None:
    for check in CHECKS:
        outcome = verify(check, instances=3)
        wanted = STATUS.holds if check.printed is None else STATUS.erratum
        assert outcome.status is wanted, outcome.message
        assert all(trial.caught for trial in outcome.trials)


@pytest.mark.covers("network:E10")
def test_two_weights_of_opposite_signs_pass_through_zero() -> None:
    """The product of (1, -2) falls from 2 to 0 in size and grows to 3, while the loss falls: SciPy, no code of ours."""
    run = solve_ivp(
        lambda _, w: (3 - w[0] * w[1]) * w[::-1], (0, 20), [1.0, -2.0], rtol=1e-11, atol=1e-13, dense_output=True
    )
    product = np.prod(run.sol(np.linspace(0, 20, 2001)), axis=0)
    assert np.all(np.diff(product) > -1e-9)
    np.testing.assert_allclose([product[0], product[-1]], [-2.0, 3.0], atol=1e-6)
    # c = w₁² - w₂² = -3 stays, so the second weight keeps its sign and the first one turns: the product meets zero.
    assert np.abs(product).min() < 0.1 and np.sign(product[0]) != np.sign(product[-1])


def test_networks_a_statement_does_not_speak_of_are_refused() -> None:
    rng = np.random.default_rng(0)
    for check in (PLATEAU_LEVELS, LEARNT_STAYS):
        assert check.sized is not None
        with pytest.raises(ValueError, match="at least 3 layers"):
            check.sized(rng, (3, 3, 2))
    assert NORM_OF_PRODUCT.sized is not None
    with pytest.raises(ValueError, match="narrower than the output"):
        NORM_OF_PRODUCT.sized(rng, (3, 1, 2))
