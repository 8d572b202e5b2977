"""Checks on outputs, losses, students without loss and what the moments of a measure determine."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import Completion, DeepLinear, LinearRNN, Problem, SampleRegression, SquaredDistance, WhiteInputs
from deeplinear.theory._check import STATUS, examine, verify
from deeplinear.theory.rnn import _moments, _realisations, _responses
from deeplinear.theory.rnn._moments import INTERVAL, LEMMA_7, SHARP, Open, Sharp
from deeplinear.theory.rnn._realisations import HO_KALMAN, Realised
from deeplinear.theory.rnn._responses import EQUATION_3_3, LEMMA_C_1, PROPOSITION_3, Adversary
from deeplinear.theory.rnn._systems import (
    Matrices,
    adopt_target,
    draw_atoms,
    draw_weights,
    moments,
    polish,
    split,
    tail_bounds,
)

CHECKS = {check.id: check for module in (_responses, _realisations, _moments) for check in module.CHECKS}
STATEMENTS = [
    pytest.param("rnn/equation-3.3", marks=pytest.mark.covers("rnn:S1")),
    pytest.param("rnn/lemma-c.1", marks=pytest.mark.covers("rnn:S2")),
    pytest.param("rnn/empirical-loss"),
    pytest.param("rnn/proposition-3", marks=pytest.mark.covers("rnn:S3")),
    pytest.param("rnn/lemma-c.3", marks=pytest.mark.covers("rnn:S4")),
    pytest.param("rnn/delay-teacher", marks=pytest.mark.covers("rnn:S21")),
    pytest.param("rnn/ho-kalman", marks=pytest.mark.covers("rnn:X8")),
    pytest.param("rnn/lemma-7", marks=pytest.mark.covers("rnn:S9")),
    pytest.param("rnn/lemma-7-interval", marks=pytest.mark.covers("rnn:S9")),
    pytest.param("rnn/unique-measure", marks=pytest.mark.covers("rnn:S10")),
    pytest.param("rnn/sharp-length", marks=pytest.mark.covers("rnn:X1")),
    pytest.param("rnn/mimo-uniqueness", marks=pytest.mark.covers("rnn:S22")),
]


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_holds_and_its_violations_are_caught(name: str, seed: int) -> None:
    outcome = verify(CHECKS[name], instances=4, seed=seed)
    assert outcome.status is STATUS.holds, outcome.message
    assert outcome.trials and all(trial.caught and trial.unmet for trial in outcome.trials)


def test_every_check_is_run() -> None:
    assert {statement.values[0] for statement in STATEMENTS} == set(CHECKS)


@pytest.mark.covers("rnn:S3")
def test_a_delay_is_continued_at_will() -> None:
    """Samples 0, 0, 1 of a delay, with four states: L = 3.6e-27 in the same construction at k = d - 1."""
    (verdict,) = PROPOSITION_3.judge([Adversary(np.array([0.0, 0.0, 1.0, 0.0]), 1.0, 2.0, 4)])
    assert verdict.status is STATUS.holds
    assert next(r for r in verdict.claim if r.name == _responses.FITTED).residual < 1e-25
    (verdict,) = PROPOSITION_3.judge([Adversary(np.array([0.0, 0.0, 1.0, 0.0]), 1.0, 2.0, 3)])
    assert verdict.status is STATUS.unmet


@pytest.mark.covers("rnn:S9")
def test_measured_intervals() -> None:
    """Three atoms at k = 6 leave h_6 open by 5.3e-2 and nothing at k = 7; one atom leaves h_2 open at k = 2."""
    atoms, weights = np.array([-0.5, 0.3, 0.9]), np.full(3, 1 / 3)
    (verdict,) = INTERVAL.judge([Open(atoms, weights, 7, 8)])
    assert verdict.status is STATUS.holds
    assert next(r for r in verdict.claim if r.name == _moments.WIDTH).residual < 1e-2
    assert verdict.facts["moments were allowed to be off by"] == 0
    (verdict,) = INTERVAL.judge([Open(np.array([0.5]), np.ones(1), 3, 8)])
    # Mass at both ends and mean 1/2: h_2 = 1, against 1/4.
    assert verdict.facts["width at k = 2n"] == pytest.approx(0.75, abs=1e-9)
    (verdict,) = INTERVAL.judge([Open(atoms, weights, 6, 8)])
    assert verdict.status is STATUS.unmet


def test_what_residuals_of_samples_can_become(seed: int) -> None:
    """The atom 1/2 of which a small part sits at 1: q = (x − 1/2)², r_3 = 3x/4 − 1/4, g_3 = x + 1."""
    part = 1e-6
    residuals = part * (1 - 0.5 ** np.arange(4.0))
    bounds = tail_bounds(residuals, np.array([0.5]), 1.0, count=4)
    np.testing.assert_allclose(bounds, part * np.array([0.0, 0.5, 0.5 + 1.25, 0.375 + 2 * 1.25]), atol=1e-18)
    # Any other positive measure, and its moments near those of the atoms.
    rng = np.random.default_rng(seed)
    atoms, points = draw_atoms(rng, 2), rng.uniform(-1, 1, 5)
    weights = draw_weights(rng, 2)
    residuals = part * (moments(points, rng.uniform(0, 1, 5), 50) - moments(atoms, weights, 50))
    assert np.all(np.abs(residuals) <= tail_bounds(residuals[:5], atoms, 1.0))


@pytest.mark.covers("rnn:X1")
def test_the_smallest_student_that_is_not_determined() -> None:
    """One atom x = 1/2 of mass 2, β = 0.3: h_2 - w_2 = 2β² = 0.18."""
    (verdict,) = SHARP.judge([Sharp(np.array([0.5]), np.array([2.0]), 0.3, 0.1, 2)])
    assert verdict.status is STATUS.holds
    assert verdict.facts["gap"] == pytest.approx(0.18, abs=1e-14)


@pytest.mark.covers("rnn:X8")
def test_a_delay_of_ten_states_from_twenty_samples() -> None:
    delay = Matrices(np.eye(10, k=1), np.eye(10)[:, -1:], np.eye(10)[:1])
    (verdict,) = HO_KALMAN.judge([Realised(delay, 10)])
    assert verdict.status is STATUS.holds and verdict.facts["condition number"] == pytest.approx(1.0)
    assert max(reading.residual for reading in verdict.claim) < 3e-12


def test_the_fit_finds_one_atom() -> None:
    """One state, one atom: the only minimum."""
    found = polish(0.6 ** np.arange(3.0)[:, None, None], np.array([0.2]), np.array([[0.5]]))
    assert found.transition[0, 0] == pytest.approx(0.6, abs=1e-14) and abs(found.first[0, 0]) == pytest.approx(1.0)
    shared = split(np.random.default_rng(0), np.array([0.5, -1.0]), np.array([[1.0, 2.0], [0.0, 1.0]]), 5)
    wanted = 0.5**3 * np.outer([1.0, 2.0], [1.0, 2.0]) - np.outer([0.0, 1.0], [0.0, 1.0])
    np.testing.assert_allclose(shared.response(4)[3], wanted, atol=1e-14)


def test_a_given_network_is_spoken_of(seed: int) -> None:
    """A balanced student with the response of a teacher of one atom, seven samples, split over three states."""
    rng = np.random.default_rng(seed)
    student = split(rng, np.array([0.7]), np.array([[1.2]]), 3)
    target = 1.44 * 0.7 ** np.arange(7)[None]
    model = LinearRNN(3, 7, form="symmetric")
    params = tuple(jnp.asarray(m) for m in (student.first, student.transition, student.output))
    for loss in (SquaredDistance(target), WhiteInputs(target), Completion(target, np.arange(7)[None] < 5)):
        verdicts = {v.check: v for v in examine(Problem(model, loss), params, CHECKS.values())}
        assert verdicts[EQUATION_3_3.id].status is STATUS.holds
        assert verdicts[LEMMA_7.id].status is STATUS.holds
        # Three states are fewer than samples.
        assert verdicts[PROPOSITION_3.id].status is STATUS.unmet
    moved = (1.1 * params[0], params[1], params[2])
    verdicts = {v.check: v for v in examine(Problem(model, SquaredDistance(target)), moved, CHECKS.values())}
    assert verdicts[LEMMA_C_1.id].status is STATUS.holds
    assert verdicts[LEMMA_7.id].status is STATUS.unmet
    assert "C = Bᵀ" in verdicts[LEMMA_7.id].message


def test_other_problems_are_not_spoken_of() -> None:
    layers = (jnp.eye(2), jnp.eye(2))
    plain = Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.eye(2)))
    assert all(v.status is STATUS.unmet for v in examine(plain, layers, CHECKS.values()))
    model, one = LinearRNN(1, 3), jnp.ones((1, 1))
    gaps = Problem(model, Completion(np.ones((1, 3)), [[1, 0, 1]]))
    found = {v.check: v for v in examine(gaps, (one, one, one), [LEMMA_C_1, EQUATION_3_3])}
    assert found[LEMMA_C_1.id].status is STATUS.unmet and "without gaps" in found[LEMMA_C_1.id].message
    assert found[EQUATION_3_3.id].status is STATUS.holds
    data = Problem(model, SampleRegression(jnp.eye(3), jnp.ones((1, 3))))
    assert examine(data, (one, one, one), [LEMMA_C_1])[0].status is STATUS.unmet
    wide = LinearRNN(2, 2, inputs=2, outputs=1)
    layout = adopt_target(Problem(wide, SquaredDistance([[1.0, 2.0, 3.0, 4.0]])))
    np.testing.assert_array_equal(layout, [[[1.0, 2.0]], [[3.0, 4.0]]])
