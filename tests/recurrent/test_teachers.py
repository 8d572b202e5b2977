"""Teachers and balanced students: their structure, their responses by hand, and that a seed says all."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import System, checked_system
from deeplinear.recurrent import (
    balanced_student,
    balanced_teacher,
    delay_teacher,
    memoryless_teacher,
    unbalanced_teacher,
)


def response(system: System, count: int) -> np.ndarray:
    a, b, c = (np.asarray(matrix) for matrix in system)
    return np.array([(c @ np.linalg.matrix_power(a, j) @ b)[0, 0] for j in range(count)])


@pytest.mark.covers("rnn:F24")
def test_the_balanced_teacher(seed: int) -> None:
    teacher = balanced_teacher(5, np.random.default_rng(seed))
    np.testing.assert_array_equal(teacher.transition, np.diag(np.linspace(0.6, 1.05, 5)))
    np.testing.assert_array_equal(teacher.output, teacher.input.T)
    assert response(teacher, 1)[0] == pytest.approx(1.0, abs=1e-14)
    drawn = np.diag(balanced_teacher(6, np.random.default_rng(seed), low=-0.2, high=0.4, spread="random").transition)
    assert drawn[0] >= -0.2 and drawn[-1] <= 0.4 and np.all(np.diff(drawn) > 0)


@pytest.mark.covers("rnn:F24")
def test_columns_are_drawn_around_a_half() -> None:
    """The direction of B has, before it is divided by its length, mean 0.5 and variance 1 in each entry."""
    column = np.asarray(balanced_teacher(1000, np.random.default_rng(0)).input)[:, 0]
    share = column.mean() / np.sqrt(np.mean(column**2))  # 0.5 / sqrt(1.25)
    assert share == pytest.approx(0.5 / np.sqrt(1.25), abs=4 / np.sqrt(1000))


@pytest.mark.covers("rnn:F24", "rnn:S21")
@pytest.mark.parametrize("states", [1, 2, 10])
def test_the_delay(states: int) -> None:
    np.testing.assert_array_equal(response(delay_teacher(states), 3 * states), np.eye(3 * states)[states - 1])


@pytest.mark.covers("rnn:F24")
def test_the_random_delay(seed: int) -> None:
    teacher = unbalanced_teacher(5, np.random.default_rng(seed))
    a = np.asarray(teacher.transition)
    assert np.all(a[~(np.eye(5, dtype=bool) | np.eye(5, k=1, dtype=bool))] == 0)
    w = response(teacher, 5)
    np.testing.assert_array_equal(w[:4], 0.0)
    assert w[4] == pytest.approx(np.prod(np.diag(a, 1)), rel=1e-14)
    large = np.asarray(unbalanced_teacher(900, np.random.default_rng(seed)).transition)
    above, on = np.diag(large, 1), np.diag(large)
    assert above.mean() == pytest.approx(0.7, abs=0.02) and above.std() == pytest.approx(0.1, rel=0.15)
    assert on.mean() == pytest.approx(0.0, abs=0.02) and on.std() == pytest.approx(0.1, rel=0.15)


@pytest.mark.covers("rnn:F24")
@pytest.mark.parametrize("weight", [2.0, 0.0, -0.3])
def test_no_memory(weight: float) -> None:
    np.testing.assert_allclose(response(memoryless_teacher(weight, 3), 4), [weight, 0, 0, 0], atol=1e-15)
    teacher = memoryless_teacher(2.0)
    np.testing.assert_array_equal(teacher.input, teacher.output.T)


@pytest.mark.covers("rnn:F24")
def test_a_seed_says_all_and_text_keeps_it(seed: int) -> None:
    for make in (balanced_teacher, unbalanced_teacher):
        first, second = (make(4, np.random.default_rng(seed)) for _ in range(2))
        kept = checked_system("test", json.loads(json.dumps([np.asarray(matrix).tolist() for matrix in first])))
        for one, two, three in zip(first, second, kept, strict=True):
            assert bool(jnp.all(one == two)) and bool(jnp.all(one == three))


@pytest.mark.covers("rnn:F24")
def test_balanced_students(seed: int) -> None:
    diagonal = balanced_student(400, 0.3, np.random.default_rng(seed))
    a = np.asarray(diagonal.transition)
    assert np.count_nonzero(a - np.diag(np.diag(a))) == 0
    symmetric = balanced_student(60, 0.3, np.random.default_rng(seed), form="symmetric")
    full = np.asarray(symmetric.transition)
    np.testing.assert_array_equal(full, full.T)
    off = full[np.triu_indices(60, 1)]
    assert off.std() == pytest.approx(0.3, rel=0.1) and np.diag(a).std() == pytest.approx(0.3, rel=0.2)
    for student in (diagonal, symmetric):
        np.testing.assert_array_equal(student.input, student.output.T)
    assert np.asarray(diagonal.input).std() == pytest.approx(0.3, rel=0.2)


def test_refusals() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="states must be at least 1"):
        delay_teacher(0)
    with pytest.raises(ValueError, match=r"high must be at least 0\.6"):
        balanced_teacher(3, rng, high=0.5)
    with pytest.raises(ValueError, match="scale must be greater than 0"):
        balanced_student(3, 0.0, rng)
    with pytest.raises(ValueError, match="weight must be finite"):
        memoryless_teacher(np.inf)
