"""Discrete updates on the native engine: PyTorch's published rules in NumPy, records, rules, limits, continuations."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deeplinear.engine as engine
from deeplinear.core import RESULTS
from deeplinear.dynamics import (
    Adagrad,
    Adam,
    GradientDescent,
    Momentum,
    RMSProp,
    ensemble,
    resume,
    simulate,
    steady,
    until,
)
from deeplinear.models import DeepLinear, LinearRNN, Problem, Regression, SquaredDistance
from deeplinear.probes import gradient_norm, loss, weights

pytestmark = pytest.mark.skipif(not engine.available(), reason="the engine is not compiled")

STEPS = 30
ROUNDING = 1e-11  # some dozen steps of contracting maps on numbers of order one

MODEL = DeepLinear((3, 4, 2))
RNG = np.random.default_rng(0)
TARGET = RNG.standard_normal((2, 3))
X = RNG.standard_normal((3, 20))
START = tuple(0.5 * RNG.standard_normal(shape) for shape in MODEL.shapes)
LOSS = Regression.from_data(X, TARGET @ X)
L2 = 0.1


def gradient(flat: np.ndarray) -> np.ndarray:
    """By hand."""
    first, second = flat[:12].reshape(4, 3), flat[12:].reshape(2, 4)
    pull = (second @ first - TARGET) @ (X @ X.T / 20)
    return np.concatenate([(second.T @ pull).ravel(), (pull @ first.T).ravel()]) + L2 * flat


def descent(y: np.ndarray, g: np.ndarray, memory: dict[str, Any]) -> np.ndarray:
    return y - 0.1 * g


def heavy_ball(y: np.ndarray, g: np.ndarray, memory: dict[str, Any]) -> np.ndarray:
    memory["b"] = g if "b" not in memory else 0.7 * memory["b"] + 0.8 * g
    return y - 0.05 * memory["b"]


def nesterov(y: np.ndarray, g: np.ndarray, memory: dict[str, Any]) -> np.ndarray:
    memory["b"] = g if "b" not in memory else 0.7 * memory["b"] + g
    return y - 0.05 * (g + 0.7 * memory["b"])


def adam(y: np.ndarray, g: np.ndarray, memory: dict[str, Any]) -> np.ndarray:
    n = memory["n"] = memory.get("n", 0) + 1
    m = memory["m"] = 0.8 * memory.get("m", 0) + 0.2 * g
    v = memory["v"] = 0.95 * memory.get("v", 0) + 0.05 * g**2
    return y - 0.02 * (m / (1 - 0.8**n)) / (np.sqrt(v / (1 - 0.95**n)) + 1e-6)


def rms(y: np.ndarray, g: np.ndarray, memory: dict[str, Any]) -> np.ndarray:
    memory["v"] = 0.9 * memory.get("v", 0) + 0.1 * g**2
    return y - 0.02 * g / (np.sqrt(memory["v"]) + 1e-6)


def adagrad(y: np.ndarray, g: np.ndarray, memory: dict[str, Any]) -> np.ndarray:
    memory["s"] = memory.get("s", 0) + g**2
    return y - 0.1 * g / (np.sqrt(memory["s"]) + 1e-6)


RULES: dict[str, tuple[Any, Callable[..., np.ndarray]]] = {
    "descent": (GradientDescent(0.1), descent),
    "momentum": (Momentum(0.05, 0.7, 0.2), heavy_ball),
    "nesterov": (Momentum(0.05, 0.7, nesterov=True), nesterov),
    "adam": (Adam(0.02, 0.8, 0.95, 1e-6), adam),
    "rmsprop": (RMSProp(0.02, 0.9, 1e-6), rms),
    "adagrad": (Adagrad(0.1, 1e-6), adagrad),
}
rules = pytest.mark.parametrize("name", list(RULES))


def by_hand(name: str) -> np.ndarray:
    path, memory = [np.concatenate([layer.ravel() for layer in START])], {}
    for _ in range(STEPS):
        path.append(RULES[name][1](path[-1], gradient(path[-1]), memory))
    return np.array(path)


@rules
def test_steps_are_those_of_the_published_rule(name: str) -> None:
    times = [0, 1, 2, 17, STEPS]
    problem, probes = Problem(MODEL, LOSS, L2), [weights, gradient_norm]
    run = simulate(problem, START, RULES[name][0], times=times, probes=probes, engine="native")
    path = by_hand(name)[times]
    np.testing.assert_allclose(run["weights"], path, rtol=ROUNDING, atol=ROUNDING)
    np.testing.assert_allclose(run["gradient_norm"], [np.linalg.norm(gradient(y)) for y in path], rtol=1e-9)
    assert run.result == RESULTS.completed and run.stats["accepted_steps"] == STEPS
    assert run.info["clock"] == "steps" and run.info["engine"].startswith("native")


@rules
def test_a_continued_run_is_the_whole_one(name: str) -> None:
    problem, method = Problem(MODEL, LOSS, L2), RULES[name][0]
    part = simulate(problem, START, method, horizon=11)
    rest = resume(part, problem, method, horizon=STEPS, every=5)
    whole = simulate(problem, START, method, horizon=STEPS)
    for one, other in zip(rest.params, whole.params, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(rest.times, [15, 20, 25, 30])


@pytest.mark.parametrize("name", ["momentum", "adam", "adagrad"])
def test_either_engine_goes_on_where_the_other_ended(name: str) -> None:
    problem, method = Problem(MODEL, LOSS, L2), RULES[name][0]
    first = simulate(problem, START, method, horizon=11, engine="native")
    second = resume(first, problem, method, horizon=20, engine="xla")
    third = resume(second, problem, method, horizon=STEPS, engine="native")
    found = np.concatenate([np.ravel(layer) for layer in third.params])
    np.testing.assert_allclose(found, by_hand(name)[-1], rtol=ROUNDING, atol=ROUNDING)


def test_members_with_rates_and_problems_of_their_own_are_the_single_runs() -> None:
    """Recurrent networks, more of them than lanes; one diverges and the others do not notice."""
    model, rng = LinearRNN(3, 4), np.random.default_rng(1)
    problems = [Problem(model, SquaredDistance(rng.standard_normal((1, 4)))) for _ in range(11)]
    starts = [tuple(0.3 * rng.standard_normal(shape) for shape in model.shapes) for _ in problems]
    methods = [GradientDescent(1e3 if k == 4 else 0.01 * (k + 1)) for k in range(11)]
    many = ensemble(problems, starts, methods, times=range(0, 41, 10), probes=[loss, weights])
    assert list(many.outcomes()).count("diverged") == 1
    for k in (0, 4, 10):
        one, member = (
            simulate(problems[k], starts[k], methods[k], times=range(0, 41, 10), probes=[loss, weights]),
            many.member(k),
        )
        assert one.result == member.result == (RESULTS.diverged if k == 4 else RESULTS.completed)
        np.testing.assert_array_equal(one["weights"], member["weights"])
        np.testing.assert_array_equal(one.times, member.times)
        assert np.all(np.isfinite(one["weights"]))


def test_rules_and_limits_end_a_run() -> None:
    problem, method = Problem(MODEL, LOSS), GradientDescent(0.1)
    run = simulate(problem, START, method, every=1, probes=[loss], until=until(loss, below=1e-3))
    assert run.result == RESULTS.stopped and run["loss"][-1] <= 1e-3 < run["loss"][-2]
    assert len(run.times) == run.final_time + 1
    run = simulate(problem, START, method, horizon=10**6, until=[until(loss, above=1e9), steady(1e-6)])
    assert run.result == RESULTS.stopped and run.rules[int(run.fired)].startswith("gradient_norm")
    run = simulate(problem, START, method, horizon=100, max_steps=7)
    assert run.result == RESULTS.step_limit and run.final_time == 7
    run = simulate(problem, START, method, horizon=10**9, wall_limit=1e-9)
    assert run.result == RESULTS.wall_limit
