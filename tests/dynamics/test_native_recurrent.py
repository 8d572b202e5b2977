"""Flows of recurrent networks on the native engine: slopes, curvatures, and symmetries kept to the last bit."""

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import deeplinear.engine as engine
from deeplinear.core import Exponential, Stabilised
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.models import Completion, LinearRNN, Problem, Regression, SquaredDistance
from deeplinear.probes import loss, weights

pytestmark = pytest.mark.skipif(not engine.available(), reason="the engine is not compiled")

SIZES = {"general": (3, 4, 2, 3), "symmetric": (3, 4, 2, 1), "upper": (3, 5, 1, 2), "diagonal": (4, 4, 2, 3)}
SIZES |= {"tied": (3, 5, 2, 2), "scalar": (1, 1, 1, 1)}  # states, length, inputs, outputs
forms = pytest.mark.parametrize("form", list(SIZES))

MARGIN = 1.1  # of the law of step control, on the spectral radius


def problem_of(form: str, l2: float, seed: int) -> tuple[Problem, list[np.ndarray]]:
    states, length, inputs, outputs = SIZES[form]
    kind: Any = "general" if form == "scalar" else form
    model = LinearRNN(states, length, inputs=inputs, outputs=outputs, form=kind)
    rng = np.random.default_rng(seed)
    target = rng.standard_normal(model.product_shape)
    mask = (rng.random(model.product_shape) < 0.7).astype(float)
    mask[0, 0] = 1.0
    x = rng.standard_normal((model.product_shape[1], 30))
    chosen = list(SIZES).index(form) % 3
    found = (SquaredDistance(target), Completion(target, mask), Regression.from_data(x, target @ x))[chosen]
    params = [0.5 * rng.standard_normal(shape) for shape in model.shapes]
    if form == "symmetric":
        params[1] = (params[1] + params[1].T) / 2
    return Problem(model, found, l2), params


def matrices(form: str, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B, C by hand."""
    states, _, inputs, outputs = SIZES[form]
    first, rest = flat[: states * inputs].reshape(states, inputs), flat[states * inputs :]
    if form == "tied":
        return np.diag(rest), first, first.T
    cut = len(rest) - outputs * states
    inner, last = rest[:cut], rest[cut:].reshape(outputs, states)
    if form == "diagonal":
        return np.diag(inner), first, last
    if form == "upper":
        square = np.zeros((states, states))
        square[np.triu_indices(states)] = inner
        return square + np.triu(square, 1).T, first, last
    square = inner.reshape(states, states)
    return (square + square.T) / 2 if form == "symmetric" else square, first, last


def value(form: str, problem: Problem, flat: np.ndarray) -> float:
    """The loss by hand."""
    a, b, c = matrices(form, flat)
    product = np.concatenate([c @ np.linalg.matrix_power(a, k) @ b for k in range(SIZES[form][1])], axis=1)
    found: Any = problem.loss
    if isinstance(found, Regression):
        gap = product - np.asarray(found.solution)
        fit = 0.5 * float(np.sum(gap @ np.asarray(found.sxx) * gap)) + float(found.offset)
    else:
        mask = np.asarray(getattr(found, "mask", 1.0))
        fit = 0.5 * float(np.sum(mask * (product - np.asarray(found.target)) ** 2))
    return fit + 0.5 * float(problem.l2) * float(flat @ flat)


def slope(form: str, problem: Problem, flat: np.ndarray, h: float = 1e-3) -> np.ndarray:
    """Minus the gradient, by differences of the fourth order."""
    found = np.zeros(len(flat))
    for i, unit in enumerate(np.eye(len(flat))):
        near, far = (value(form, problem, flat + s * unit) - value(form, problem, flat - s * unit) for s in (h, 2 * h))
        found[i] = -(8 * near - far) / (12 * h)
    return found


@forms
def test_flows_follow_differences_of_the_loss(form: str) -> None:
    problem, params = problem_of(form, 0.1, 0)
    flat = np.concatenate([np.ravel(layer) for layer in params])
    times = [0.0, 0.1, 0.4]
    run = simulate(problem, params, GradientFlow(1e-10), times=times, probes=[loss, weights])
    assert run.info["engine"].startswith("native")
    found = solve_ivp(lambda _, y: slope(form, problem, y), (0, 0.4), flat, t_eval=times, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(run["weights"], found.y.T, atol=2e-6)
    np.testing.assert_allclose(run["loss"], [value(form, problem, row) for row in run["weights"]], rtol=1e-12)


@forms
def test_the_spectral_radius_is_that_of_the_jacobian(form: str) -> None:
    """Three power iterations from the slope, on a Jacobian by differences."""
    problem, params = problem_of(form, 0.1, 1)
    flat = np.concatenate([np.ravel(layer) for layer in params])
    state: Any = simulate(problem, params, GradientFlow(1e-8), horizon=1.0, max_steps=1).state
    h = 1e-3
    columns = [slope(form, problem, flat + h * u) - slope(form, problem, flat - h * u) for u in np.eye(len(flat))]
    jacobian = np.stack(columns, axis=1) / (2 * h)
    v = slope(form, problem, flat)
    bound = 0.0
    for _ in range(3):
        v = v / np.linalg.norm(v)
        w = jacobian @ v
        bound = abs(v @ w) + np.linalg.norm(w - (v @ w) * v)
        v = w
    assert float(state[1]) == pytest.approx(MARGIN * bound, rel=1e-3)


@pytest.mark.parametrize("form", ["general", "upper", "tied"])
@pytest.mark.parametrize("integrator", [Stabilised(), Exponential()], ids=["stabilised", "exponential"])
def test_methods_for_stiff_ends_go_the_same_way(form: str, integrator: Any) -> None:
    problem, params = problem_of(form, 0.0, 2)
    ends = [
        simulate(problem, params, GradientFlow(1e-9, integrator=one), times=[0.0, 0.5], probes=[weights])["weights"][-1]
        for one in (None, integrator)
    ]
    np.testing.assert_allclose(ends[1], ends[0], atol=1e-6)


@pytest.mark.parametrize("form", ["symmetric", "diagonal"])
def test_balance_is_kept_to_the_last_bit(form: Any) -> None:
    """From B = Cᵀ and a symmetric A with one input and output: both maps move alike."""
    model, rng = LinearRNN(4, 6, form=form), np.random.default_rng(0)
    first = 0.5 * rng.standard_normal((4, 1))
    inner = np.diag(rng.uniform(-0.8, 0.8, 4))
    params = (first, np.diag(inner)[:, None] if form == "diagonal" else inner, first.T)
    run = simulate(Problem(model, SquaredDistance(rng.standard_normal((1, 6)))), params, horizon=5.0)
    np.testing.assert_array_equal(run.params[0], run.params[2].T)


def test_both_engines_go_the_same_way() -> None:
    problem, params = problem_of("general", 0.1, 3)
    runs = [
        simulate(problem, params, GradientFlow(1e-10), times=[0.0, 1.0], probes=[loss, weights], engine=engine)
        for engine in ("native", "xla")
    ]
    for name in ("loss", "weights"):
        np.testing.assert_allclose(runs[0][name], runs[1][name], atol=1e-8)
