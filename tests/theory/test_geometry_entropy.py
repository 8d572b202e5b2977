"""Statements on entropy and free energies: instances hold, violations are caught, printed forms are missed."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory import STATUS, Check, examine, verify
from deeplinear.theory.geometry import _entropy, _entropy_errata, _equilibria

CASES = [
    pytest.param(_entropy.REMARK_VANDERMONDE, marks=pytest.mark.covers("geometry:S33")),
    pytest.param(_entropy.LEMMA_GRADIENT, marks=pytest.mark.covers("geometry:S35", "geometry:E18")),
    pytest.param(_entropy.EQUATION_FORCE, marks=pytest.mark.covers("geometry:S46")),
    pytest.param(_entropy.LEMMA_CONCAVE, marks=pytest.mark.covers("geometry:S36")),
    pytest.param(_entropy.PAIR_CRITERION, marks=pytest.mark.covers("geometry:S37")),
    pytest.param(_entropy.LEMMA_FALLING, marks=pytest.mark.covers("geometry:S39")),
    pytest.param(_entropy.LEMMA_LIMITING, marks=pytest.mark.covers("geometry:S41")),
    pytest.param(_entropy.GAUSSIAN_RANK, marks=pytest.mark.covers("geometry:S49")),
    pytest.param(_entropy_errata.LEMMA_SCALING, marks=pytest.mark.covers("geometry:S34", "geometry:E18")),
    pytest.param(_entropy_errata.DEPTH_LIMIT, marks=pytest.mark.covers("geometry:E11")),
    pytest.param(_entropy_errata.LEMMA_ORDER, marks=pytest.mark.covers("geometry:S40", "geometry:E6")),
    pytest.param(_entropy_errata.EQUATION_DIFFERENCE, marks=pytest.mark.covers("geometry:E6")),
    pytest.param(_entropy_errata.DIAGONAL_DOMINANCE, marks=pytest.mark.covers("geometry:E7")),
    pytest.param(_entropy_errata.STRICT_CONCAVITY, marks=pytest.mark.covers("geometry:S38", "geometry:E7")),
    pytest.param(_entropy_errata.ENTROPY_SPREAD, marks=pytest.mark.covers("geometry:E11")),
    pytest.param(_entropy_errata.INVERSE_TEMPERATURE, marks=pytest.mark.covers("geometry:E17")),
    pytest.param(_entropy_errata.EQUATION_SENSING, marks=pytest.mark.covers("geometry:S48", "geometry:E16")),
    pytest.param(_equilibria.THEOREM_ISOTROPIC, marks=pytest.mark.covers("geometry:S42", "geometry:E5")),
    pytest.param(_equilibria.EQUILIBRIUM_RATES, marks=pytest.mark.covers("geometry:S43")),
    pytest.param(_equilibria.REMARK_CONVEX, marks=pytest.mark.covers("geometry:S44", "geometry:E12")),
    pytest.param(_equilibria.CRITICAL_POWER, marks=pytest.mark.covers("geometry:S45")),
    pytest.param(_equilibria.SPLIT_STATES, marks=pytest.mark.covers("geometry:S45")),
    pytest.param(_equilibria.COMPLETION_UNBOUNDED, marks=pytest.mark.covers("geometry:S47")),
]


@pytest.mark.parametrize("check", CASES, ids=lambda check: check.id)
def test_check(check: Check, seed: int) -> None:
    outcome = verify(check, instances=3, seed=seed)
    assert outcome.status is (STATUS.holds if check.printed is None else STATUS.erratum), outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def test_every_check_is_here() -> None:
    known = {c.id for module in (_entropy, _entropy_errata, _equilibria) for c in module.CHECKS}
    assert known == {case.values[0].id for case in CASES}


@pytest.mark.covers("geometry:E7")
def test_the_counterexample_to_dominance() -> None:
    (found,) = _entropy_errata.DIAGONAL_DOMINANCE.measure([_entropy.Spectrum(np.array([20.0, 1.0]), np.inf)])
    assert found.printed is not None
    assert found.printed / 400 == pytest.approx(5.7e-4, abs=5e-6)


@pytest.mark.covers("geometry:E11")
def test_equal_values_beat_spread_ones_of_the_same_norm() -> None:
    (found,) = _entropy_errata.ENTROPY_SPREAD.measure([_entropy.Spectrum(np.array([1.6, 1.0, 0.4]), np.inf)])
    assert found.printed == pytest.approx(0.209, abs=5e-4)


@pytest.mark.covers("geometry:S47")
def test_the_measured_fall_of_a_completion() -> None:
    case = _equilibria.Unobserved(np.eye(2), np.eye(2), (0, 1), 20.0)
    (found,) = _equilibria.COMPLETION_UNBOUNDED.measure([case])
    assert found.facts["fall"] == pytest.approx(-0.83, abs=0.05)


def test_given_layers_are_examined() -> None:
    problem = Problem(DeepLinear((2, 2, 2, 2)), SquaredDistance(jnp.eye(2)))
    layers = (jnp.diag(jnp.array([2.0, 1.0])),) * 3
    asked = [c for module in (_entropy, _entropy_errata) for c in module.CHECKS if c.adopt is not None]
    verdicts = examine(problem, layers, asked)
    assert len(verdicts) == 6
    assert not any(v.status.bad for v in verdicts)
