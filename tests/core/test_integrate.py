"""Integration of numbers and in programs: outputs, events, corrections, failures that are told; by closed forms."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from deeplinear.core import Integral, integrate, xp
from deeplinear.core._integrate import Method

TIMES = (0.0, 0.3, 1.0, 2.0)

STEPS = 1e-10
"""What steps at a relative tolerance of 1e-11 add up to; the method of order eight is as good at outputs."""


ways = pytest.mark.parametrize("way", [lambda run: run, jax.jit], ids=["numbers", "program"])
"""The same integration in NumPy and as a program."""


def oscillator(y: Any) -> Any:
    """The circle, once in 2π."""
    return xp.stack([y[..., 1], -y[..., 0]], axis=-1)


def exact(times: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(times), -np.sin(times)], axis=-1)


@ways
def test_outputs_events_and_corrections(way: Callable) -> None:
    """States come back onto the circle after each step; the event ends the run after a step, outputs end with it."""

    @way
    def run(start: Any, times: Any, begin: float) -> Integral:
        return integrate(
            oscillator,
            start,
            times,
            begin=begin,
            rtol=1e-11,
            events=(lambda y: y[0] > 5.0, lambda y: y[0] < -0.9),
            after=lambda y: y / xp.linalg.norm(y),
        )

    start = np.array([1.0, 0.0])
    found = run(start, np.asarray(TIMES), 0.0)
    np.testing.assert_allclose(found.states, exact(np.array(TIMES)), atol=STEPS)
    assert np.linalg.norm(found.end) == pytest.approx(1, abs=1e-15)
    assert bool(found.finished) and int(found.event) == -1 and float(found.time) == 2.0
    stopped = run(start, np.array([0.0, 0.3, 1.0, 9.0]), 0.0)
    assert bool(stopped.finished) and int(stopped.event) == 1
    assert np.arccos(-0.9) <= float(stopped.time) < 4.5
    assert np.isinf(stopped.states[-1]).all() and np.isfinite(stopped.states[:-1]).all()
    np.testing.assert_allclose(stopped.end, exact(np.asarray(stopped.time)), atol=STEPS)
    nowhere = run(start, np.full(4, 7.0), 7.0)
    np.testing.assert_array_equal(nowhere.states, np.broadcast_to(start, (4, 2)))
    assert bool(nowhere.finished) and int(nowhere.steps) == 0


@ways
def test_a_singularity_is_told(way: Callable) -> None:
    """y' = y² escapes at time 1, where the steps shrink to rounding."""
    found = way(lambda times: integrate(lambda y: y**2, np.ones(()), times))(np.array([0.5, 2.0]))
    assert not bool(found.finished) and int(found.steps) < 10_000
    assert float(found.time) == pytest.approx(1, abs=1e-9) and float(found.states[0]) == pytest.approx(2, rel=1e-9)


def test_members_of_a_batch_have_steps_of_their_own() -> None:
    """The stiffest runs out of steps, and says so; the others reach their end, in fewer."""
    rates = jnp.asarray([1.0, 30.0, 3000.0])

    def solve(rate: jax.Array) -> Integral:
        times = jnp.asarray((0.1, 1.0))
        return integrate(lambda y: -rate * (y - 1), jnp.zeros(()), times, method="tsit5", rtol=1e-8, steps=300)

    together = jax.jit(jax.vmap(solve))(rates)
    wanted = 1 - np.exp(-np.outer(rates, (0.1, 1.0)))
    np.testing.assert_allclose(together.states[:2], wanted[:2], atol=1e-6)
    np.testing.assert_array_equal(together.finished, [True, True, False])
    assert int(together.steps[0]) < int(together.steps[1]) < int(together.steps[2]) == 300


@ways
def test_a_first_step_that_overflows_is_made_smaller(way: Callable) -> None:
    """y' = -y⁵ from 10: a step of one leaves the finite numbers; the solution is (y₀⁻⁴ + 4t)^(-1/4)."""

    @way
    def run(first: Any) -> Integral:
        return integrate(lambda y: -(y**5), np.array([10.0]), np.ones(1), first=first, method="tsit5", steps=4000)

    found = run(np.asarray(1.0))
    assert bool(found.finished)
    np.testing.assert_allclose(found.end[0], (1e-4 + 4.0) ** -0.25, rtol=1e-7)


def stiff(y: Any) -> Any:
    """Van der Pol's equation with the parameter 50, of lanes."""
    return xp.stack([y[..., 1], 50 * (1 - y[..., 0] ** 2) * y[..., 1] - y[..., 0]], axis=-1)


def slopes(y: Any) -> Any:
    """Its derivative."""
    one, zero = xp.ones_like(y[..., 0]), xp.zeros_like(y[..., 0])
    rows = [zero, one, -100 * y[..., 0] * y[..., 1] - 1, 50 * (1 - y[..., 0] ** 2)]
    return xp.stack(rows, axis=-1).reshape(*y.shape, 2)


@pytest.mark.parametrize("method", ["tsit5", "dopri8", "kvaerno5"])
def test_numbers_are_followed_as_in_a_program(method: Method) -> None:
    """Steps and states of both, and the states of SciPy's implicit method at a smaller tolerance."""
    times, start = np.array([0.0, 0.5, 3.0, 3.1]), np.array([2.0, 0.1])

    def run(start: Any) -> Integral:
        return integrate(stiff, start, times, method=method, rtol=1e-8, atol=1e-10, jacobian=slopes)

    numbers, program = run(start), jax.jit(run)(start)
    assert isinstance(numbers.states, np.ndarray) and not isinstance(numbers.end, jax.Array)
    assert int(numbers.steps) == int(program.steps)
    np.testing.assert_allclose(numbers.states, program.states, rtol=1e-9)
    known = scipy.integrate.solve_ivp(
        lambda _, y: stiff(y),
        (0, 3.1),
        start,
        "Radau",
        t_eval=times,
        rtol=1e-11,
        atol=1e-13,
        jac=lambda _, y: slopes(y),
    )
    np.testing.assert_allclose(numbers.states, known.y.T, rtol=1e-6)


@pytest.mark.parametrize("method", ["tsit5", "dopri8", "kvaerno5"])
def test_lanes_do_not_see_each_other(method: Method) -> None:
    """Each has the steps, the outputs and the end that it has alone, bit for bit; one rests, one meets an event."""
    times = np.linspace(0.0, 2.0, 9)
    starts = np.array([[2.0, 0.1], [0.5, 1.0], [1.0, 1.0], [0.5, 2.0], [np.inf, 0.0]])
    told: list[float] = []

    def run(starts: np.ndarray, resting: np.ndarray, watch: Any = None) -> Integral:
        ends = (lambda y: y[..., 1] > 2.5,)
        settings = {"rtol": 1e-7, "atol": 1e-9, "events": ends, "jacobian": slopes, "lanes": True, "steps": 3000}
        return integrate(stiff, starts, times, method=method, resting=resting, watch=watch, **settings)

    resting = np.array([False, False, True, False, False])
    together = run(starts, resting, told.append)
    for k in range(len(starts)):
        alone = run(starts[k : k + 1], resting[k : k + 1])
        np.testing.assert_array_equal(together.states[:, k], alone.states[:, 0])
        for name in ("end", "time", "event", "finished", "steps"):
            np.testing.assert_array_equal(getattr(together, name)[k], getattr(alone, name)[0], err_msg=name)
    assert together.event.tolist() == [-1, 0, -1, 0, -1]
    assert together.finished.tolist() == [True, True, True, True, False] and int(together.steps[2]) == 0
    assert told == sorted(told) and told[-1] == 1


def test_a_field_that_cannot_be_evaluated_makes_the_step_smaller() -> None:
    """y' = −1/y by a linear system, singular at zero: y = √(y₀² − 2t) ends at time 1/2, the neighbour goes on."""

    def field(y: Any) -> Any:
        return -np.linalg.solve(np.maximum(y, 0.0)[..., None], np.ones((*y.shape, 1)))[..., 0]

    found = integrate(field, np.array([[1.0], [3.0]]), np.array([0.4, 2.0]), lanes=True, steps=3000)
    assert found.finished.tolist() == [False, True]
    np.testing.assert_allclose(found.states[0, :, 0], np.sqrt([0.2, 8.2]), rtol=1e-9)
    np.testing.assert_allclose(found.end[1, 0], np.sqrt(5.0), rtol=1e-9)
    assert float(found.time[0]) == pytest.approx(0.5, abs=1e-6)
