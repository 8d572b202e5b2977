r"""Systems to learn from, and balanced systems to start from.

What is drawn comes from the generator that is passed in; the same generator gives the same system. A teacher may also
be any three matrices, or the response of one.
"""

import math
from typing import Any, Literal, get_args

import numpy as np

from deeplinear.core import as_array, check_count, check_number, check_x64, entry, near_name
from deeplinear.models import System

Spread = Literal["even", "random"]

MODES = (0.6, 1.05)
"""Interval of the eigenvalues of a balanced teacher."""


def balanced_teacher(
    states: int,
    rng: np.random.Generator,
    *,
    low: float = MODES[0],
    high: float = MODES[1],
    spread: Spread = "even",
) -> System:
    r"""Diagonal teacher with $C = B^\top$ and $CB = 1$.

    The eigenvalues fill an interval. The entries of $B$ are drawn from $N(0.5, 1)$ and divided by its length. With the
    default interval the largest eigenvalue is above 1, so that the response grows in the end.

    Args:
        states: Size of the state.
        rng: Generator of what is drawn.
        low: Least eigenvalue.
        high: Largest eigenvalue.
        spread: `"even"`: equally spaced eigenvalues; `"random"`: uniform draws, in rising order.

    Example:
        >>> teacher = balanced_teacher(4, np.random.default_rng(0))
        >>> np.diag(teacher.transition), round(float(np.vdot(teacher.output, teacher.input)), 12)
        (array([0.6 , 0.75, 0.9 , 1.05]), 1.0)
    """
    where = "balanced_teacher"
    _check_states(where, states, rng)
    check_number(where, "low", low)
    check_number(where, "high", high, at_least=low)
    if spread not in get_args(Spread):
        options = get_args(Spread)
        raise ValueError(f"{where}: spread is '{spread}'. {near_name(spread, options)}")
    eigenvalues = np.linspace(low, high, states) if spread == "even" else np.sort(rng.uniform(low, high, states))
    column = rng.normal(0.5, 1.0, (states, 1))
    column /= np.linalg.norm(column)
    return _system(np.diag(eigenvalues), column, column.T)


def delay_teacher(states: int) -> System:
    r"""Delay line: $A$ shifts, $B = e_{d}$, $C = e_1^\top$, so that the response is 1 at index $d - 1$ and else 0.

    Args:
        states: Size $d$ of the state.

    Example:
        >>> delay_teacher(2).transition
        array([[0., 1.],
               [0., 0.]])
    """
    where = "delay_teacher"
    check_x64(where)
    check_count(where, "states", states, at_least=1)
    return _system(np.eye(states, k=1), *_ends(states))


def unbalanced_teacher(states: int, rng: np.random.Generator) -> System:
    r"""Random delay: $A$ has the diagonal $N(0, 0.1^2)$ and the superdiagonal $N(0.7, 0.1^2)$.

    With $B = e_d$ and $C = e_1^\top$ the first $d - 1$ entries of the response vanish, and the next is the product of
    the superdiagonal.

    Args:
        states: Size $d$ of the state.
        rng: Generator of what is drawn.

    Example:
        >>> teacher = unbalanced_teacher(2, np.random.default_rng(0))
        >>> float((teacher.output @ teacher.transition @ teacher.input)[0, 0]) == float(teacher.transition[0, 1])
        True
    """
    _check_states("unbalanced_teacher", states, rng)
    diagonal = rng.normal(0.0, 0.1, states)
    above = rng.normal(0.7, 0.1, states - 1)
    return _system(np.diag(diagonal) + np.diag(above, k=1), *_ends(states))


@entry(instead="call it outside of jit, vmap and grad, or use a System of arrays")
def memoryless_teacher(weight: Any, states: int = 1) -> System:
    r"""Teacher with the response $(w_0, 0, 0, \dots)$: $A = 0$, $B = \sqrt{|w_0|}\,e_1$, $C = \pm B^\top$.

    Balanced for $w_0 \ge 0$.

    Args:
        weight: $w_0$.
        states: Size of the state.

    Example:
        >>> teacher = memoryless_teacher(-4.0)
        >>> float(teacher.input[0, 0]), float(teacher.output[0, 0])
        (2.0, -2.0)
    """
    where = "memoryless_teacher"
    check_x64(where)
    check_number(where, "weight", weight)
    check_count(where, "states", states, at_least=1)
    column = np.zeros((states, 1))
    column[0] = math.sqrt(abs(float(weight)))
    return _system(np.zeros((states, states)), column, np.copysign(1.0, float(weight)) * column.T)


@entry(instead="call it outside of jit, vmap and grad, or draw with scale 1 and multiply")
def balanced_student(
    states: int, scale: Any, rng: np.random.Generator, *, form: Literal["diagonal", "symmetric"] = "diagonal"
) -> System:
    r"""Random symmetric system with $C = B^\top$.

    The entries of $B$ and the diagonal of $A$ are drawn from $N(0, s^2)$. In the symmetric form
    $A = (G + G^\top)/\sqrt2$ with such entries in $G$: variance $s^2$ off the diagonal and $2s^2$ on it.

    Args:
        states: Size of the state.
        scale: $s$.
        rng: Generator of what is drawn.
        form: `"diagonal"` or `"symmetric"`.

    Example:
        >>> student = balanced_student(3, 0.1, np.random.default_rng(0), form="symmetric")
        >>> np.array_equal(student.transition, student.transition.T), np.array_equal(student.input, student.output.T)
        (True, True)
    """
    where = "balanced_student"
    _check_states(where, states, rng)
    check_number(where, "scale", scale, above=0)
    if form not in ("diagonal", "symmetric"):
        raise ValueError(f"{where}: form must be 'diagonal' or 'symmetric', but is {form!r}.")
    if form == "diagonal":
        transition = np.diag(rng.normal(0.0, scale, states))
    else:
        square = rng.normal(0.0, scale, (states, states))
        transition = (square + square.T) / math.sqrt(2)
    column = rng.normal(0.0, scale, (states, 1))
    return _system(transition, column, column.T)


def _ends(states: int) -> tuple[np.ndarray, np.ndarray]:
    return np.eye(states)[:, -1:], np.eye(states)[:1]


def _system(transition: np.ndarray, first: np.ndarray, output: np.ndarray) -> System:
    return System(*(as_array(matrix, float) for matrix in (transition, first, output)))


def _check_states(where: str, states: int, rng: Any) -> None:
    check_x64(where)
    check_count(where, "states", states, at_least=1)
    if not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"{where}: rng must be a numpy.random.Generator, but is {rng!r}; make one by default_rng(seed)."
        )
