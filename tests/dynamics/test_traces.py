"""Compilation is a resource: numbers that sweep never compile anew."""

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.dynamics import Adam, GradientFlow, ensemble, simulate, until
from deeplinear.models import Completion, DeepLinear, Problem
from deeplinear.probes import loss

compiled: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
)


def sweep(scale: float, rtol: float, threshold: float, count: int, l2: float) -> None:
    rng = np.random.default_rng(0)
    mask = (rng.random((3, 3)) < 0.5 * scale) | np.eye(3, dtype=bool)
    problem = Problem(DeepLinear((3, 3, 3)), Completion(scale * np.ones((3, 3)), mask), l2=l2)
    params = (scale * jnp.eye(3), jnp.eye(3))
    times = np.linspace(0.0, 2.0, count)
    rule = until(loss, below=threshold)
    simulate(problem, params, GradientFlow(rtol), times=times, until=rule)
    simulate(problem, params, Adam(rtol * 1e3), horizon=20, every=count, until=rule)
    ensemble(problem, [params] * 5, GradientFlow(rtol), times=times, until=rule, strategy="threads")


def test_a_sweep_compiles_once() -> None:
    sweep(1.0, 1e-5, 1e-9, 11, 0.0)
    compiled.clear()
    sweep(1.3, 1e-6, 1e-8, 130, 0.01)
    sweep(1.7, 3e-6, 1e-7, 7, 0.02)
    assert compiled == [], f"{len(compiled)} compilations in the repetitions"


def test_the_count_sees_a_compilation() -> None:
    """The listener works: a new shape does compile."""
    compiled.clear()
    jax.jit(lambda x: x * 2 + 1)(jnp.ones(17)).block_until_ready()
    assert compiled
