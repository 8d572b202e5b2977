"""Training of recurrent networks against a plain re-implementation: descent, Adam, milestones, stopping, masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import RESULTS
from deeplinear.dynamics import Adam, GradientDescent, Milestones, ensemble, simulate, until
from deeplinear.models import Completion, LinearRNN, Problem, SquaredDistance
from deeplinear.probes import loss

REFERENCE = 1e-10
"""Sums in another order, over some hundred steps of well-conditioned training."""

LENGTH = 4
TARGET = np.array([1.0, 0.9, -0.3, 0.5, 0.7, -0.2, 0.4, 0.1])
"""Response of no small system, so that the residuals stay of order one."""

Layers = list[np.ndarray]


def reference_response(form: str, layers: Layers, length: int) -> np.ndarray:
    if form == "general":
        first, inner, output = layers
        return np.array([(output @ np.linalg.matrix_power(inner, j) @ first)[0, 0] for j in range(length)])
    first, inner = layers[0][:, 0], layers[1][:, 0]
    output = first if form == "tied" else layers[2][0]
    return np.array([np.sum(output * inner**j * first) for j in range(length)])


def reference_gradient(form: str, layers: Layers, target: np.ndarray) -> Layers:
    """Gradient of the plain sum of squares: the triple sum for a full matrix, residual polynomials for a diagonal."""
    residual = 2 * (reference_response(form, layers, len(target)) - target)
    if form == "general":
        first, inner, output = layers
        powers = [np.linalg.matrix_power(inner.T, j) for j in range(len(target))]
        on_first = sum(g * powers[i] @ output.T for i, g in enumerate(residual))
        on_output = sum(g * first.T @ powers[i] for i, g in enumerate(residual))
        on_inner = sum(
            g * powers[q] @ output.T @ first.T @ powers[i - 1 - q] for i, g in enumerate(residual) for q in range(i)
        )
        return [np.asarray(on_first), np.asarray(on_inner), np.asarray(on_output)]
    first, inner = layers[0][:, 0], layers[1][:, 0]
    value = np.polyval(residual[::-1], inner)
    slope = np.polyval(np.polyder(residual[::-1]), inner)
    if form == "tied":
        return [(2 * first * value)[:, None], (first**2 * slope)[:, None]]
    output = layers[2][0]
    return [(output * value)[:, None], (output * first * slope)[:, None], (first * value)[None]]


def reference_descent(form: str, layers: Layers, target: np.ndarray, rates: list[float]) -> list[Layers]:
    """States after every step of descent on half the sum of squares."""
    states = [layers]
    for rate in rates:
        half = [g / 2 for g in reference_gradient(form, states[-1], target)]
        states.append([w - rate * g for w, g in zip(states[-1], half, strict=True)])
    return states


def reference_adam(form: str, layers: Layers, target: np.ndarray, steps: int, lr: float) -> list[Layers]:
    """States after every step of Adam on the plain sum of squares, with 1e-8 outside the root."""
    mean, square = [np.zeros_like(w) for w in layers], [np.zeros_like(w) for w in layers]
    states = [layers]
    for n in range(1, steps + 1):
        gradient = reference_gradient(form, states[-1], target)
        mean = [0.9 * m + 0.1 * g for m, g in zip(mean, gradient, strict=True)]
        square = [0.999 * v + 0.001 * g**2 for v, g in zip(square, gradient, strict=True)]
        states.append(
            [
                w - lr * (m / (1 - 0.9**n)) / (np.sqrt(v / (1 - 0.999**n)) + 1e-8)
                for w, m, v in zip(states[-1], mean, square, strict=True)
            ]
        )
    return states


def begin(model: LinearRNN, seed: int, scale: float = 0.4) -> Layers:
    rng = np.random.default_rng([seed, 7])
    return [scale * rng.standard_normal(shape) for shape in model.shapes]


def problem_of(form: str, states: int = 3, length: int = LENGTH) -> Problem:
    return Problem(LinearRNN(states, length, form=form), SquaredDistance(TARGET[None, :length]))


def distance(found: tuple, expected: Layers) -> float:
    return max(float(np.abs(np.asarray(f) - e).max()) for f, e in zip(found, expected, strict=True))


@pytest.mark.covers("rnn:F7")
@pytest.mark.parametrize("form", ["general", "diagonal", "tied"])
def test_descent_and_adam_follow_a_plain_implementation(form: str, seed: int) -> None:
    problem = problem_of(form)
    layers = begin(problem.model, seed)
    states = reference_descent(form, layers, TARGET[:LENGTH], [0.03] * 100)
    run = simulate(problem, layers, GradientDescent(0.03), times=[100])
    assert run.result is RESULTS.completed
    assert distance(run.params, states[100]) < REFERENCE
    # Adam on half the loss with half the epsilon is Adam on the loss.
    states = reference_adam(form, layers, TARGET[:LENGTH], 300, 0.01)
    run = simulate(problem, layers, Adam(0.01, eps=5e-9), times=[100, 300])
    assert distance(run.params, states[300]) < REFERENCE
    # Losses are half of the sums of squares.
    sums = [np.sum((reference_response(form, states[n], LENGTH) - TARGET[:LENGTH]) ** 2) for n in (100, 300)]
    np.testing.assert_allclose(run["loss"][-2:], np.array(sums) / 2, rtol=1e-9, atol=REFERENCE)


@pytest.mark.covers("rnn:F7")
def test_adam_keeps_the_transpose_bit_for_bit(seed: int) -> None:
    problem = problem_of("diagonal")
    first, inner = begin(problem.model, seed)[:2]
    run = simulate(problem, [first, inner, first.T], Adam(0.01, eps=5e-9), times=[100, 300])
    assert np.array_equal(run.params[0], run.params[2].T)
    assert not np.array_equal(run.params[0], first)


@pytest.mark.covers("rnn:F7")
def test_the_rate_falls_after_the_milestone_and_not_before() -> None:
    method = Milestones(Adam(1e-3), [5000, 10_000, 15_000, 30_000], 0.1)
    expected = {0: 1e-3, 4999: 1e-3, 5000: 1e-4, 9999: 1e-4, 10_000: 1e-5, 15_000: 1e-6, 30_000: 1e-7}
    assert [float(method.rate(step)) for step in expected] == pytest.approx(list(expected.values()), rel=1e-14)
    # Along a run: the update with number 4999, counted from 0, is the last with the first rate. The rate is so small
    # that the student is far from its rest, where a step of another length would not be seen.
    problem = problem_of("tied", states=2, length=3)
    layers = begin(problem.model, 0)
    states = reference_descent("tied", layers, TARGET[:3], [1e-4] * 5000 + [1e-5] * 2)
    run = simulate(problem, layers, Milestones(GradientDescent(1e-4), [5000, 10_000], 0.1), times=[4999, 5000, 5001])
    assert distance(run.params, states[5001]) < REFERENCE
    before = simulate(problem, layers, Milestones(GradientDescent(1e-4), [5000, 10_000], 0.1), times=[4999, 5000])
    assert distance(before.params, states[5000]) < REFERENCE
    sizes = [np.linalg.norm(b[0] - a[0]) for a, b in ((states[4999], states[5000]), (states[5000], states[5001]))]
    found = np.linalg.norm(run.params[0] - before.params[0])
    assert found == pytest.approx(sizes[1], rel=1e-6)
    assert sizes[1] == pytest.approx(0.1 * sizes[0], rel=1e-3)


@pytest.mark.covers("rnn:F7")
def test_a_run_stops_at_the_first_step_with_the_loss_asked_for() -> None:
    problem = problem_of("general")
    layers = begin(problem.model, 1)
    states = reference_descent("general", layers, TARGET[:LENGTH], [0.03] * 100)
    losses = [np.sum((reference_response("general", s, LENGTH) - TARGET[:LENGTH]) ** 2) / 2 for s in states]
    threshold = (losses[60] + losses[61]) / 2  # population loss, far from ties
    first = next(n for n, value in enumerate(losses) if value <= threshold)
    run = simulate(problem, layers, GradientDescent(0.03), times=[100], until=until(loss, below=threshold))
    assert run.result is RESULTS.stopped
    assert int(run.final_time) == first
    assert distance(run.params, states[first]) < REFERENCE


@pytest.mark.covers("rnn:F7")
def test_a_rate_that_is_too_large_ends_with_the_step_named() -> None:
    problem = problem_of("general")
    layers = begin(problem.model, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        states = reference_descent("general", layers, TARGET[:LENGTH], [5.0] * 30)
    finite = [all(np.isfinite(w).all() for w in s) for s in states]
    last = finite.index(False) - 1
    run = simulate(problem, layers, GradientDescent(5.0), times=[100])
    assert run.result is RESULTS.diverged
    assert int(run.final_time) == last
    assert all(np.isfinite(layer).all() for layer in run.params)
    # The other members of an ensemble go on.
    both = ensemble(problem, [layers, layers], [GradientDescent(5.0), GradientDescent(0.03)], times=[100])
    assert both.failed == (0,) and [int(t) for t in both.final_time] == [last, 100]


@pytest.mark.covers("rnn:F8")
def test_masks_in_one_program_are_the_single_runs(seed: int) -> None:
    longest = len(TARGET)
    model = LinearRNN(5, longest, form="tied")
    lengths, starts = (3, 6), [begin(model, seed, 0.3), begin(model, seed + 100, 0.3)]
    members = [(length, layers) for length in lengths for layers in starts]
    problems = [
        Problem(model, Completion(np.where(np.arange(longest) < k, TARGET, np.nan)[None], [np.arange(longest) < k]))
        for k, _ in members
    ]
    method = Adam(0.01)
    many = ensemble(problems, [layers for _, layers in members], method, times=[200], key=jax.random.key(0))
    for row, (length, layers) in enumerate(members):
        single = simulate(problem_of("tied", states=5, length=length), layers, method, times=[200])
        found = tuple(layer[row] for layer in many.params)
        assert distance(found, [np.asarray(w) for w in single.params]) < REFERENCE
        assert float(many.final("loss")[row]) == pytest.approx(float(single.final("loss")), abs=REFERENCE)
    assert jnp.asarray(many.params[0]).shape == (4, 5, 1)
