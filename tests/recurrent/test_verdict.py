"""Verdicts on students that were made to deceive: each hypothesis planted and missed, bounds against what happens."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.recurrent import (
    ExtrapolationVerdict,
    SpectralMeasure,
    balanced_teacher,
    certificate,
    delay_teacher,
    extrapolation_verdict,
    impulse_response,
    non_extrapolating_student,
    sharpness_student,
)
from deeplinear.recurrent._verdict import _certified

ATOMS, WEIGHTS = np.array([0.9, -0.5]), np.array([0.6, 0.4])

ROUNDING = 1e-12
"""Of quantities that are sums of a few products of order 1."""


def system(atoms: Any, weights: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A diagonal balanced network with a given measure."""
    column = np.sqrt(np.asarray(weights, dtype=float))[:, None]
    return np.diag(np.asarray(atoms, dtype=float)), column, column.T


def moments(atoms: Any, weights: Any, count: int) -> np.ndarray:
    return np.asarray(weights) @ np.asarray(atoms)[:, None] ** np.arange(count)


def missed(found: ExtrapolationVerdict) -> list[str]:
    return [condition.statement for condition in found.failed]


TEACHER = system(ATOMS, WEIGHTS)


@pytest.mark.covers("rnn:F23", "rnn:S12")
@pytest.mark.parametrize("given", ["system", "response", "rotated"])
def test_a_balanced_student_is_certified(given: str) -> None:
    """The constants at the horizon are those of the table: K_49 = 65.6; the leak is one product, by hand."""
    teacher: Any = TEACHER
    if given == "response":
        teacher = moments(ATOMS, WEIGHTS, 50)
    if given == "rotated":  # not symmetric any more, the same response
        change = np.array([[1.0, 0.3], [0.2, 1.5]])
        teacher = (change @ TEACHER[0] @ np.linalg.inv(change), change @ TEACHER[1], TEACHER[2] @ np.linalg.inv(change))
    found = extrapolation_verdict(
        system([0.9, -0.5, 0.2, 1.0], [0.6, 0.4, 1e-5, 1e-7]), teacher, 5, horizon=50, converged=1e-6
    )
    residuals = 1e-5 * 0.2 ** np.arange(5) + 1e-7
    assert found.theorem == "certificate" and found.outcome == "extrapolates" and found.certified
    assert missed(found) == [] and found.order == 2 and found.radius == 1
    assert found.leak == pytest.approx(1e-5 * (0.7 * 0.7) ** 2 + 1e-7 * (0.1 * 1.5) ** 2, rel=1e-6)
    assert found.prior_error == pytest.approx(65.6 * np.linalg.norm(residuals), rel=2e-3)
    assert found.observed.error == pytest.approx(1e-7, rel=5e-2)
    assert found.observed.training_loss == pytest.approx(0.5 * np.sum(residuals**2), rel=1e-6)
    assert found.certified_error is not None and found.prior_error is not None
    assert found.observed.error <= found.certified_error <= found.prior_error
    assert "The certificate applies (k = 5, 2n + 1 = 5)" in str(found)
    assert "better than the zero student" in str(found)


@pytest.mark.covers("rnn:F23", "rnn:S9")
def test_without_loss_a_balanced_student_is_the_teacher() -> None:
    angle = 0.7  # the first atom split over two states, and rotated
    a, b, _ = system([0.9, 0.9, -0.5], [0.2, 0.4, 0.4])
    turn = np.array([[math.cos(angle), 0, -math.sin(angle)], [0, 1, 0], [math.sin(angle), 0, math.cos(angle)]])
    student = (turn @ a @ turn.T, turn @ b, (turn @ b).T)
    found = extrapolation_verdict(student, TEACHER, 5, horizon=40)
    assert found.theorem == "uniqueness" and found.certified
    assert found.observed.error < ROUNDING
    assert found.certified_error is not None and found.observed.error <= found.certified_error < ROUNDING
    assert "so the response is the teacher's" in str(found)


@pytest.mark.covers("rnn:F23", "rnn:S3")
def test_an_unbalanced_student_without_loss_is_not_believed() -> None:
    w = moments(ATOMS, WEIGHTS, 9)
    found = extrapolation_verdict(non_extrapolating_student(w, 1.0), TEACHER, 8, horizon=40)
    assert missed(found) == ["student: no negative spectral weight"]
    assert found.theorem == "none" and found.bounds is None and found.certified_error is None
    assert found.trained and found.outcome == "does not extrapolate" and not found.certified
    assert found.observed.error >= 1.0 - 1e-9
    assert str(found).startswith("Does not extrapolate") and "No theorem applies" in str(found)


@pytest.mark.covers("rnn:F23", "rnn:X1")
def test_one_entry_too_few() -> None:
    student = sharpness_student((ATOMS, WEIGHTS), coupling=0.5).system
    found = extrapolation_verdict(student, TEACHER, 4, horizon=40)
    assert missed(found) == ["length at least 2n + 1 = 5"]
    assert found.theorem == "none" and found.outcome == "does not extrapolate"
    assert found.observed.training_loss < 1e-30
    more = extrapolation_verdict(student, TEACHER, 5, horizon=40)  # now it has a loss, and the theorem applies
    assert more.theorem == "certificate" and more.outcome == "not trained" and not more.certified
    gap = 0.5**2 * 0.6 * 0.4 * 1.4**2  # coupling² times the variance of the measure
    assert more.observed.training_loss == pytest.approx(gap**2 / 2, rel=1e-10)
    assert more.certified_error is not None and more.certified_error >= more.observed.error
    assert "which proves nothing here" in str(more)


@pytest.mark.covers("rnn:F23", "rnn:F14", "rnn:E16")
@pytest.mark.parametrize("length", [12, 20, 25])
def test_a_stuck_student_never_extrapolates(length: int) -> None:
    """The zero student continues a delay without error, to rounding; that is no merit."""
    small = np.full((5, 1), 1e-3)
    found = extrapolation_verdict((0.1 * np.eye(5), small, small.T), delay_teacher(10), length, horizon=40)
    assert found.observed.error < 1e-16 and found.observed.degenerate and found.observed.reference == 1
    assert found.outcome == "not trained" and not found.extrapolates and not found.certified
    text = str(found)
    assert text.startswith(
        "Not trained: training loss 0.5, that of the zero student 0.5, of which it is more than 0.001"
    )
    assert "xtrapolates:" not in text and "The tail of the teacher vanishes" in text


@pytest.mark.covers("rnn:F23", "rnn:F14")
def test_other_students_of_a_delay() -> None:
    whole = extrapolation_verdict(delay_teacher(10), delay_teacher(10), 21, horizon=40)
    assert whole.outcome == "extrapolates" and whole.theorem == "none" and whole.order == 10
    assert missed(whole) == [
        "student: symmetric transition matrix",
        "student: balanced, B = Cᵀ",
        "teacher: Hankel matrix not negative",
    ]
    # Before the pulse the zero student has no loss: it is trained, and misses the pulse.
    zero = (np.zeros((2, 2)), np.zeros((2, 1)), np.zeros((1, 2)))
    early = extrapolation_verdict(zero, delay_teacher(10), 8, horizon=40)
    assert early.trained and early.outcome == "does not extrapolate" and early.observed.ratio == 1


@pytest.mark.covers("rnn:F23")
def test_students_that_explode() -> None:
    growing = extrapolation_verdict(system([0.9, -0.5, 1.6], [0.6, 0.4, 1e-9]), TEACHER, 5, horizon=80)
    assert growing.trained and growing.outcome == "does not extrapolate" and not growing.certified
    assert growing.theorem == "certificate" and missed(growing) == []
    assert growing.observed.error == pytest.approx(1e-9 * 1.6**79, rel=1e-6)
    assert growing.certified_error is not None and growing.certified_error >= growing.observed.error
    (stable,) = (c for c in growing.conditions if c.statement.startswith("stable"))
    assert not stable.holds and not stable.needed and stable.residual == pytest.approx(0.6, rel=ROUNDING)
    # Mass so far out that the known entries do not show it in double precision, and the response overflows.
    hidden = extrapolation_verdict(system([0.9, -0.5, 1e9], [0.6, 0.4, 1e-60]), TEACHER, 5, horizon=80)
    assert hidden.observed.training_loss == 0 and math.isinf(hidden.observed.error)
    assert hidden.theorem == "certificate" and not hidden.certified and hidden.certified_error == math.inf
    assert hidden.outcome == "does not extrapolate"
    assert "the response is the teacher's" not in str(hidden)


@pytest.mark.covers("rnn:F23")
def test_bounds_hold_for_any_balanced_student(seed: int) -> None:
    """Near and far ones, with weights that are negative by rounding, of teachers with one to three atoms."""
    rng = np.random.default_rng(seed)
    for n in (1, 2, 3):
        for _ in range(6):
            atoms, weights = np.linspace(-0.8, 0.9, 2 * n)[::2] + 0.1 * rng.uniform(size=n), rng.uniform(0.2, 1.0, n)
            spread = 10.0 ** rng.uniform(-6, 0)
            x = np.concatenate([atoms + spread * rng.normal(size=n), rng.uniform(-1.05, 1.05, 2)])
            p = np.concatenate([weights * np.exp(spread * rng.normal(size=n)), spread * rng.uniform(size=2)])
            a, b, c = system(x, p)
            c[0, -1] *= 1 if rng.uniform() < 0.5 else -1e-13
            found = extrapolation_verdict((a, b, c), system(atoms, weights), 2 * n + 1, horizon=30)
            assert found.theorem != "none"
            errors = np.abs(moments(x, c[0] * b[:, 0], 30) - moments(atoms, weights, 30))[2 * n + 1 :]
            assert np.all(errors <= np.asarray(found.bounds))
            assert np.all(errors <= np.asarray(found.prior_bounds))


@pytest.mark.covers("rnn:F23")
def test_clustered_teachers_as_systems_and_as_responses() -> None:
    """Five atoms as in the figures: what rounding leaves open is of the order of K_49 times 1e-14, and is said."""
    teacher = balanced_teacher(5, np.random.default_rng(0))
    response = np.asarray(impulse_response(teacher, 50).values)
    for given in (teacher, response):
        found = extrapolation_verdict(teacher, given, 11, horizon=50)
        assert found.theorem == "uniqueness" and found.order == 5 and found.radius == pytest.approx(1.05, abs=1e-6)
        assert found.certified_error is not None and 1e-8 < found.certified_error < 1e-2
        assert not found.conditions[-1].holds
    # At a coarse tolerance there seem to be fewer atoms, and they do not have this response.
    coarse = extrapolation_verdict(teacher, response, 11, horizon=50, order_tolerance=1e-3)
    assert coarse.order < 5 and coarse.theorem == "none"
    assert missed(coarse) == [f"teacher: response of {coarse.order} atoms"]


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_balance_is_measured_by_the_size_of_the_weights(unit: float) -> None:
    """B = (1, 0) and C = (0.9, 0) in any unit miss each other by a tenth."""
    student = (np.array([[0.5, 0.3], [0.0, 0.2]]), unit * np.eye(2, 1), 0.9 * unit * np.eye(1, 2))
    found = extrapolation_verdict(student, TEACHER, 5, horizon=9)
    (balanced,) = (c for c in found.conditions if c.statement == "student: balanced, B = Cᵀ")
    assert balanced.residual == pytest.approx(0.1, rel=ROUNDING)
    assert not balanced.holds


@pytest.mark.covers("rnn:F23")
def test_several_inputs_and_refusals() -> None:
    several = (np.diag([0.9, 0.5]), np.eye(2), np.eye(2))
    found = extrapolation_verdict(several, several, 5, horizon=10)
    assert missed(found) == ["one input and one output"] and found.theorem == "none" and found.extrapolates
    with pytest.raises(ValueError, match="same shape"):
        extrapolation_verdict(several, TEACHER, 5, horizon=10)
    with pytest.raises(ValueError, match="horizon must be at least 6"):
        extrapolation_verdict(TEACHER, TEACHER, 5, horizon=5)
    with pytest.raises(ValueError, match="teacher must reach the horizon, 9 entries, but has 6"):
        extrapolation_verdict(TEACHER, np.ones(6), 5, horizon=9)
    with pytest.raises(ValueError, match="converged must be greater than 0"):
        extrapolation_verdict(TEACHER, TEACHER, 5, horizon=9, converged=0.0)
    for tolerance, message in ((0.0, "greater than 0"), (-1e-8, "greater than 0"), (2.0, "at most 1")):
        with pytest.raises(ValueError, match=f"extrapolation_verdict: order_tolerance must be {message}"):
            extrapolation_verdict(TEACHER, np.ones(9), 5, horizon=9, order_tolerance=tolerance)
    with pytest.raises(ValueError, match="horizon must be at most 4, where the teacher overflows"):
        extrapolation_verdict(TEACHER, system([1e100], [1.0]), 3, horizon=9)
    with pytest.raises(HypothesisError, match="not zero"):
        extrapolation_verdict(TEACHER, np.zeros(9), 5, horizon=9)


def test_a_negative_weight_widens_the_bounds_of_the_tail() -> None:
    """The leak counts it with the wrong sign, so that twice as much is added: the true tail stays below."""
    atoms, weights = np.array([0.9, -0.5, 0.2, 0.97]), np.array([0.6, 0.4, 1e-4, -2e-5])
    length, horizon = 6, 40
    student, teacher = (
        SpectralMeasure(jnp.asarray(a), jnp.asarray(w)) for a, w in ((atoms, weights), (ATOMS, WEIGHTS))
    )
    column = np.sqrt(np.abs(weights))[:, None]
    response = impulse_response((np.diag(atoms), column, (np.sign(weights)[:, None] * column).T), horizon)
    target = moments(ATOMS, WEIGHTS, horizon)
    bounds, prior, _ = _certified(response, student, teacher, target, 1.0, length, horizon)
    tail = np.abs(moments(atoms, weights, horizon) - target)[length:]
    assert np.all(tail <= bounds) and np.all(tail <= prior)
    off = 2 * 2e-5 * np.prod((0.97 - ATOMS) ** 2)
    known = certificate(ATOMS, length, horizon, radius=1.0)
    positive = np.asarray(known.bounds((moments(atoms, weights, horizon) - target)[:length]))[length:]
    np.testing.assert_allclose(np.asarray(bounds) - positive, np.asarray(known.remainders)[length:] * off, rtol=1e-6)
