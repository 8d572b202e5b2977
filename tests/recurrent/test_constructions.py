"""Students of zero loss that do not extrapolate, their responses computed with many digits."""

import math

import mpmath
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.models import System
from deeplinear.recurrent import (
    chebyshev_nodes,
    non_extrapolating_student,
    non_extrapolating_twin,
    sharpness_student,
)

SAMPLES_LOSS = 1e-18  # sum of squared residuals, up to 20 samples
GAP_ERROR = 1e-9


def response(system: System, length: int) -> np.ndarray:
    """With the digits of the student as they are, and none lost on the way."""
    a, b, c = (np.asarray(matrix) for matrix in system)
    with mpmath.workdps(40):
        a, block, c = mpmath.matrix(a.tolist()), mpmath.matrix(b.tolist()), mpmath.matrix(c.tolist())
        found = []
        for _ in range(length):
            found.append(float((c * block)[0]))
            block = a * block
    return np.array(found)


def teacher_response(rng: np.random.Generator, length: int) -> np.ndarray:
    a, b, c = rng.normal(size=(4, 4)) / 2.5, rng.normal(size=4), rng.normal(size=4)
    return np.array([c @ np.linalg.matrix_power(a, j) @ b for j in range(length)])


@pytest.mark.covers("rnn:F15", "rnn:S3")
@pytest.mark.parametrize("length", [1, 3, 10, 20])
def test_any_teacher_has_a_student_that_does_not_extrapolate(length: int, seed: int) -> None:
    w = teacher_response(np.random.default_rng(seed), length + 1)
    w = w / max(1.0, np.abs(w).max())
    student = non_extrapolating_student(w, 0.7)
    h = response(student, length + 1)
    assert np.sum((h[:length] - w[:length]) ** 2) < SAMPLES_LOSS
    assert h[length] - w[length] == pytest.approx(0.7, abs=GAP_ERROR)
    np.testing.assert_array_equal(np.abs(student.input[:, 0]), np.abs(student.output[0]))


@pytest.mark.covers("rnn:F15", "rnn:S3")
def test_a_delay_too() -> None:
    delay = np.eye(11)[9]
    student = non_extrapolating_student(delay, 2.0, states=15, nodes=np.linspace(-1, 1, 11))
    h = response(student, 11)
    assert np.sum((h[:10] - delay[:10]) ** 2) < 1e-24
    assert h[10] == pytest.approx(2.0, abs=1e-11)
    assert student.transition.shape == (15, 15) and not np.any(student.transition[11:])
    assert not np.any(student.input[11:]) and not np.any(student.output[:, 11:])


@pytest.mark.covers("rnn:F15", "rnn:S3")
@pytest.mark.parametrize(("atoms", "length"), [([0.9, -0.5], 5), ([0.6, 0.825, 1.05], 12), ([0.0, 1.0], 1), ([], 3)])
def test_a_twin_of_a_symmetric_teacher(atoms: list[float], length: int) -> None:
    weights = np.linspace(0.4, 0.8, len(atoms))
    w = np.array([np.sum(weights * np.array(atoms) ** j) for j in range(length + 1)])
    student = non_extrapolating_twin((atoms, weights), length, 0.3, states=length + 2)
    h = response(student, length + 1)
    assert np.sum((h[:length] - w[:length]) ** 2) < SAMPLES_LOSS
    assert h[length] - w[length] == pytest.approx(0.3, abs=GAP_ERROR)
    assert set(atoms) <= set(np.diag(student.transition).tolist())


@pytest.mark.covers("rnn:F15")
def test_a_twin_on_given_nodes() -> None:
    student = non_extrapolating_twin(([0.5], [1.0]), 2, 0.25, nodes=[-0.5, 0.0])
    np.testing.assert_allclose(np.diag(student.transition), [0.5, -0.5, 0.0])
    weights = student.output[0] * student.input[:, 0]
    np.testing.assert_allclose(weights, [1.5, 0.5, -1.0], rtol=1e-14)  # 1 / ((x - y)(x - z)) is 2, 2, -4


def test_chebyshev_nodes() -> None:
    np.testing.assert_allclose(chebyshev_nodes(7), np.cos((2 * np.arange(7) + 1) * math.pi / 14), atol=1e-15)
    np.testing.assert_array_equal(chebyshev_nodes(6, radius=2.0), -np.asarray(chebyshev_nodes(6, radius=2.0))[::-1])


@pytest.mark.covers("rnn:F19", "rnn:X1")
@pytest.mark.parametrize(
    ("atoms", "weights"), [([0.7], [1.5]), ([0.9, -0.5], [0.6, 0.4]), ([0.95, 0.6, -0.4], [0.2, 0.5, 1.0])]
)
def test_twice_as_many_samples_as_atoms_are_not_enough(atoms: list[float], weights: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = len(atoms)
    coupling, corner = rng.uniform(0.2, 1.0) * rng.choice([-1, 1]), rng.normal()
    student = sharpness_student((atoms, weights), coupling=coupling, corner=corner, states=order + 3)
    with mpmath.workdps(40):
        w = [
            float(mpmath.fsum(mpmath.mpf(p) * mpmath.mpf(x) ** j for p, x in zip(weights, atoms, strict=True)))
            for j in range(2 * order + 1)
        ]
        moments = [
            sum(mpmath.mpf(p) * mpmath.mpf(x) ** j for p, x in zip(weights, atoms, strict=True)) for j in range(9)
        ]
        hankel = mpmath.matrix([[moments[i + j] for j in range(order)] for i in range(order)])
        # The product of M and the squares is the last pivot, a ratio of determinants.
        minor = mpmath.det(hankel[: order - 1, : order - 1]) if order > 1 else mpmath.mpf(1)
        gap = float(mpmath.mpf(coupling) ** 2 * mpmath.det(hankel) / minor)
    h = response(student.system, 2 * order + 1)
    np.testing.assert_allclose(h[: 2 * order], w[: 2 * order], atol=1e-13)
    assert float(student.gap) == pytest.approx(gap, abs=1e-12)
    assert h[-1] - w[-1] == pytest.approx(float(student.gap), abs=1e-12)
    assert student.gap > 1e-4 and student.order == order
    np.testing.assert_array_equal(student.system.transition, student.system.transition.T)
    np.testing.assert_array_equal(student.system.input, student.system.output.T)


@pytest.mark.covers("rnn:F15")
def test_where_double_precision_ends() -> None:
    w = 0.9 ** np.arange(61)
    h = response(non_extrapolating_student(w[:41], 0.7), 41)
    assert np.sum((h[:40] - w[:40]) ** 2) < 1e-8 and h[40] - w[40] == pytest.approx(0.7, abs=1e-5)
    with pytest.raises(HypothesisError, match="weights that double precision resolves"):
        non_extrapolating_student(w, 0.7)
    with pytest.raises(HypothesisError, match="weights that double precision resolves"):
        non_extrapolating_twin(([0.9], [1.0]), 60, 0.7)


@pytest.mark.covers("rnn:F15", "rnn:F19")
def test_refusals() -> None:
    w = np.ones(4)
    with pytest.raises(ValueError, match="states must be at least 4, the number of samples, 3, plus 1, but is 3"):
        non_extrapolating_student(w, 1.0, states=3)
    with pytest.raises(ValueError, match="nodes must be distinct"):
        non_extrapolating_student(w, 1.0, nodes=[0.1, 0.2, 0.2, 0.3])
    with pytest.raises(ValueError, match=r"nodes must have shape \(4\)"):
        non_extrapolating_student(w, 1.0, nodes=[0.1, 0.2])
    with pytest.raises(ValueError, match=r"gap must be greater than 0\.5, but is 0\.5"):
        non_extrapolating_student(w, 0.5, tolerance=0.5)
    with pytest.raises(ValueError, match="response must be finite"):
        non_extrapolating_student([1.0, math.nan], 1.0)
    teacher = ([0.5, 0.7], [1.0, 2.0])
    with pytest.raises(ValueError, match="teacher must have at most 2 atoms, but has 3"):
        non_extrapolating_twin(([0.1, 0.2, 0.3], np.ones(3)), 1, 1.0)
    with pytest.raises(ValueError, match="nodes and atoms must be distinct"):
        non_extrapolating_twin(teacher, 2, 1.0, nodes=[0.7])
    with pytest.raises(ValueError, match="gap must be greater than 0"):
        non_extrapolating_twin(teacher, 2, 0.0)
    with pytest.raises(ValueError, match="coupling must not be zero"):
        sharpness_student(teacher, coupling=0.0)
    with pytest.raises(ValueError, match="states must be at least 3"):
        sharpness_student(teacher, states=2)
    with pytest.raises(ValueError, match="atoms must be distinct"):
        sharpness_student(([0.5, 0.5], [1.0, 2.0]))
    with pytest.raises(ValueError, match="weights must be greater than 0"):
        sharpness_student(([0.5, 0.7], [1.0, 0.0]))
