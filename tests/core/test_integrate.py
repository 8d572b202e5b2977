"""Integration in one compiled call: outputs, events, corrections, failures that are told, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import Integral, integrate

TIMES = (0.0, 0.3, 1.0, 2.0)

STEPS = 1e-10
"""What steps at a relative tolerance of 1e-11 add up to; the method of order eight is as good at outputs."""


def oscillator(y: jax.Array) -> jax.Array:
    """The circle, once in 2π."""
    return jnp.stack([y[1], -y[0]])


def exact(times: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(times), -np.sin(times)], axis=-1)


def test_outputs_events_and_corrections() -> None:
    """States come back onto the circle after each step; the event ends the run after a step, outputs end with it."""

    @jax.jit
    def run(start: jax.Array, times: jax.Array, begin: float) -> Integral:
        return integrate(
            oscillator,
            start,
            times,
            begin=begin,
            rtol=1e-11,
            events=(lambda y: y[0] > 5.0, lambda y: y[0] < -0.9),
            after=lambda y: y / jnp.linalg.norm(y),
        )

    start = jnp.array([1.0, 0.0])
    found = run(start, jnp.asarray(TIMES), 0.0)
    np.testing.assert_allclose(found.states, exact(np.array(TIMES)), atol=STEPS)
    assert np.linalg.norm(found.end) == pytest.approx(1, abs=1e-15)
    assert bool(found.finished) and int(found.event) == -1 and float(found.time) == 2.0
    stopped = run(start, jnp.asarray((0.0, 0.3, 1.0, 9.0)), 0.0)
    assert bool(stopped.finished) and int(stopped.event) == 1
    assert np.arccos(-0.9) <= float(stopped.time) < 4.5
    assert np.isinf(stopped.states[-1]).all() and np.isfinite(stopped.states[:-1]).all()
    np.testing.assert_allclose(stopped.end, exact(np.asarray(stopped.time)), atol=STEPS)
    nowhere = run(start, jnp.full(4, 7.0), 7.0)
    np.testing.assert_array_equal(nowhere.states, jnp.broadcast_to(start, (4, 2)))
    assert bool(nowhere.finished) and int(nowhere.steps) == 0


def test_a_singularity_is_told() -> None:
    """y' = y² escapes at time 1, where the steps shrink to rounding."""
    found = jax.jit(lambda times: integrate(lambda y: y**2, jnp.ones(()), times))(jnp.asarray((0.5, 2.0)))
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


def test_a_first_step_that_overflows_is_made_smaller() -> None:
    """y' = -y⁵ from 10: a step of one leaves the finite numbers; the solution is (y₀⁻⁴ + 4t)^(-1/4)."""

    @jax.jit
    def run(first: jax.Array) -> Integral:
        return integrate(lambda y: -(y**5), jnp.asarray([10.0]), jnp.ones(1), first=first, method="tsit5", steps=4000)

    found = run(jnp.asarray(1.0))
    assert bool(found.finished)
    np.testing.assert_allclose(found.end[0], (1e-4 + 4.0) ** -0.25, rtol=1e-7)
