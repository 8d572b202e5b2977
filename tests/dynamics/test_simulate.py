"""`simulate` and `resume`: accuracy against closed forms, recording, stopping rules, limits and refusals."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import RESULTS, NumericalError, tsit5
from deeplinear.dynamics import (
    Adam,
    GradientDescent,
    GradientFlow,
    Minibatch,
    Momentum,
    _driver,
    resume,
    simulate,
    steady,
    until,
)
from deeplinear.models import Completion, DeepLinear, Problem, SquaredDistance, WarmStart
from deeplinear.probes import gradient_norm, loss, product, singular_values
from systems import aligned_modes, completion_example, escape_time, linear_decay, scalar_logistic
from zoo import ALL_INTEGRATORS

DECAY = linear_decay()


# --- Accuracy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ALL_INTEGRATORS, ids=lambda case: case.name)
def test_every_integrator_meets_its_tolerance(case) -> None:
    """On the logistic curve the error is some multiple of the tolerance, from a start of 1e-6 through the sigmoid."""
    system = scalar_logistic()
    rtol = 1e-5 if case.order == 2 else 1e-8
    times = [0.0, 1.0, 3.0, 4.0, 8.0]
    run = simulate(
        system.problem, system.params, GradientFlow(rtol, integrator=case.integrator), times=times, probes=[product]
    )
    exact = np.array([system.product(t) for t in times])
    # Escape amplifies early relative errors by one power; a hundred tolerances is generous for a few dozen steps.
    assert np.max(np.abs(run["product"] - exact) / exact) < 100 * rtol


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-10])
def test_plateau_of_a_tiny_start_is_crossed_at_the_right_time(depth: int, size: float) -> None:
    """From weights of size 1e-10 the escape takes up to 1e19 time units and a few hundred steps."""
    target = 1.5
    problem = Problem(DeepLinear((1,) * (depth + 1)), SquaredDistance([[target]]))
    params = (jnp.full((1, 1), size),) * depth
    half = until(product_value, above=target / 2)
    run = simulate(problem, params, GradientFlow(1e-10), until=half, probes=[product])
    assert run.result is RESULTS.stopped
    assert run.stats["accepted_steps"] < 3000
    reached = float(run["product"][-1, 0, 0]) ** (1 / depth)
    expected = escape_time(depth, size, reached, target)
    assert float(run.final_time) == pytest.approx(expected, rel=1e-7)


def product_value(t, params, problem):
    """The only entry of a one-by-one product."""
    return problem.product(params)[0, 0]


def test_modes_of_very_different_size_are_followed_in_a_rotated_basis() -> None:
    """Saddle to saddle: modes that start at 1e-2 and 1e-5 are hidden below the learnt one, and yet come out in time."""
    rng = np.random.default_rng(3)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    system = aligned_modes(3, np.array([1e-1, 1e-2, 1e-3]), np.array([3.0, 2.0, 1.0]), rotation)
    times = [0.0, 5.0, 40.0, 300.0, 900.0, 1100.0]
    run = simulate(system.problem, system.params, GradientFlow(1e-10), times=times, probes=[product])
    for t, recorded in zip(times, run["product"], strict=True):
        exact = system.product(t)
        assert np.abs(recorded - exact).max() < 1e-6, t


@pytest.mark.covers("completion:F5", "completion:X2")
def test_reference_example_of_depth_three() -> None:
    """Product and loss at t = 3, known from extended precision."""
    problem, params = completion_example()
    run = simulate(problem, params, GradientFlow(1e-12), times=[0.0, 3.0], probes=[loss, product])
    expected = [[0.9901020651034, 0.0084531308609], [0.0144704061867, 0.0168734744194]]
    assert np.abs(run["product"][-1] - expected).max() < 1e-10
    assert run["loss"][-1] == pytest.approx(0.4833178672077, abs=1e-10)


# --- Recording ------------------------------------------------------------------------------------------------------


def test_records_stand_at_the_requested_times() -> None:
    times = np.concatenate([[0.0], np.geomspace(1e-3, 20.0, 150)])  # more than one window of snapshots
    run = simulate(DECAY.problem, DECAY.params, GradientFlow(1e-9), times=times, probes=[product])
    assert np.array_equal(run.times, times)
    exact = np.array([DECAY.product(t) for t in times])
    assert np.abs(run["product"] - exact).max() < 1e-8


def test_steps_are_recorded_when_no_times_are_given() -> None:
    run = simulate(DECAY.problem, DECAY.params, GradientFlow(1e-9), horizon=3.0, every=2, probes=[product])
    assert run.times[0] == 0.0 and run.times[-1] == 3.0 and np.all(np.diff(run.times) > 0)
    exact = np.array([DECAY.product(t) for t in run.times])
    assert np.abs(run["product"] - exact).max() < 1e-8


def test_updates_are_recorded_at_steps() -> None:
    """Gradient descent on a depth-1 quadratic is a geometric sequence."""
    run = simulate(DECAY.problem, DECAY.params, GradientDescent(0.1), times=[0, 3, 100], probes=[product])
    target, start = np.asarray(DECAY.problem.loss.target), np.asarray(DECAY.params[0])
    exact = np.array([target + (start - target) * 0.9**k for k in (0, 3, 100)])
    assert np.abs(run["product"] - exact).max() < 1e-14
    spaced = simulate(DECAY.problem, DECAY.params, GradientDescent(0.1), horizon=10, every=4)
    assert spaced.times.tolist() == [0, 4, 8, 10]


def test_user_probes_are_plain_functions() -> None:
    def corner(t, params, problem):
        return problem.product(params)[:1, :1] + t

    run = simulate(DECAY.problem, DECAY.params, times=[0.0, 1.0], probes=[corner, loss])
    assert run["corner"].shape == (2, 1, 1)
    assert run["corner"][1, 0, 0] == pytest.approx(DECAY.product(1.0)[0, 0] + 1.0, abs=1e-7)
    assert run.to_xarray()["corner"].dims == ("time", "corner_0", "corner_1")


# --- Stopping -------------------------------------------------------------------------------------------------------


def test_a_rule_stops_within_one_per_cent_of_its_threshold() -> None:
    rules = [until(loss, below=1e-6), until(gradient_norm, below=1e-12)]
    run = simulate(DECAY.problem, DECAY.params, GradientFlow(1e-9), until=rules)
    assert run.result is RESULTS.stopped and run.rule == "loss below 1e-06"
    assert 0.99e-6 <= run.final("loss") <= 1e-6
    start = float(run["loss"][0])
    assert float(run.final_time) == pytest.approx(0.5 * np.log(start / float(run.final("loss"))), rel=1e-7)


@pytest.mark.parametrize("settings", [{}, {"engine": "xla"}, {"method": GradientDescent(0.1)}], ids=str)
def test_a_run_that_is_over_at_the_start_stops_at_once(settings) -> None:
    rule = until(loss, below=1e9)
    ends = {
        RESULTS.stopped: simulate(DECAY.problem, DECAY.params, horizon=5.0, until=rule, **settings),
        RESULTS.completed: simulate(DECAY.problem, DECAY.params, times=[0.0], **settings),
    }
    for result, run in ends.items():
        assert run.result is result
        assert float(run.final_time) == 0.0 and run.stats["accepted_steps"] == 0


def test_a_rule_ends_updates() -> None:
    run = simulate(DECAY.problem, DECAY.params, GradientDescent(0.1), until=until(loss, below=1e-3))
    values = float(run["loss"][0]) * 0.81 ** np.arange(1000)
    assert run.result is RESULTS.stopped and run.final_time == np.argmax(values <= 1e-3)


def test_steady_state_and_rest_points() -> None:
    run = simulate(DECAY.problem, DECAY.params, GradientFlow(1e-9), until=steady(1e-7))
    assert run.rule is not None and run.rule.startswith("gradient_norm")
    still = simulate(DECAY.problem, (DECAY.problem.loss.target,), times=[0.0, 5.0, 7.0])
    assert still.result is RESULTS.steady
    assert still.times.tolist() == [0.0, 5.0, 7.0]
    assert np.all(still["loss"] == 0)


def test_an_interrupt_keeps_what_there_is() -> None:
    calls = []

    def impatient(report):
        calls.append(report)
        if len(calls) == 3:
            raise KeyboardInterrupt

    run = simulate(DECAY.problem, DECAY.params, GradientDescent(1e-6), horizon=10**9, every=10, progress=impatient)
    assert run.result is RESULTS.interrupted
    assert np.all(np.diff(run.times) > 0)
    assert run.final_time == run.stats["accepted_steps"]


def test_limits_keep_the_state_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    few = simulate(DECAY.problem, DECAY.params, GradientFlow(1e-9), horizon=50.0, max_steps=5)
    assert few.result is RESULTS.step_limit and few.stats["accepted_steps"] == 5
    assert np.abs(few.params[0] - DECAY.product(float(few.final_time))).max() < 1e-8
    looks = itertools.count()  # at a clock on which the limit has passed when it is looked at for the seventh time
    clock = SimpleNamespace(monotonic=lambda: 0.0 if next(looks) < 6 else 1e12)
    monkeypatch.setattr(_driver, "time", clock)
    brief = simulate(
        DECAY.problem, DECAY.params, GradientDescent(1e-9), horizon=1e15, every=10**9, max_steps=10**15, wall_limit=0.5
    )
    assert brief.result is RESULTS.wall_limit and brief.stats["accepted_steps"] > 0
    assert "wall-clock" in brief.summary()


def test_divergence_is_reported_with_the_last_finite_state() -> None:
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.eye(2)))
    params = (jnp.eye(2) * 2, jnp.eye(2) * 2)
    run = simulate(problem, params, GradientDescent(5.0), horizon=1000)
    assert run.result is RESULTS.diverged and run.result.failed
    assert all(np.all(np.isfinite(layer)) for layer in run.params)
    assert "learning rate" in run.summary()
    with pytest.raises(NumericalError, match="non-finite"):
        simulate(problem, params, GradientDescent(5.0), horizon=1000, throw=True)


def test_an_energy_unbounded_below_is_reported() -> None:
    from deeplinear.models import Energy

    run = simulate(Problem(DeepLinear((1, 1)), Energy(falling)), (jnp.ones((1, 1)),), times=[0.0, 10.0])
    assert run.result.failed
    assert all(np.all(np.isfinite(layer)) for layer in run.params)


def falling(matrix):
    """Energy whose flow x' = x^2 escapes in finite time."""
    return -jnp.sum(matrix**3) / 3


# --- Continuing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", [Adam(0.05), Momentum(0.01), Minibatch(GradientDescent(0.05), batch=1)], ids=lambda m: type(m).__name__
)
def test_a_resumed_update_equals_an_uninterrupted_one(method) -> None:
    """Moments and the random stream go on: the two halves equal the whole to the last bit."""
    problem = Problem(DeepLinear((2, 2, 2)), Completion(np.ones((2, 2)), np.eye(2)))
    params = (jnp.eye(2) * 0.3, jnp.eye(2) * 0.4)
    key = jax.random.key(5)
    whole = simulate(problem, params, method, times=[0, 7, 20], key=key)
    half = simulate(problem, params, method, times=[0, 7], key=key)
    rest = resume(half, problem, method, times=[20])
    assert rest.times.tolist() == [20]
    for a, b in zip(whole.params, rest.params, strict=True):
        assert np.array_equal(a, b)


def test_a_resumed_flow_goes_on_from_disk(tmp_path) -> None:
    half = simulate(DECAY.problem, DECAY.params, GradientFlow(1e-10), times=[0.0, 1.0])
    half.save(tmp_path / "half")
    rest = resume(type(half).load(tmp_path / "half"), DECAY.problem, GradientFlow(1e-10), times=[2.0], probes=[product])
    assert np.abs(rest["product"][-1] - DECAY.product(2.0)).max() < 1e-9
    assert 0 < rest.stats["accepted_steps"] < 100
    with pytest.raises(ValueError, match="same kind"):
        resume(half, DECAY.problem, Adam(), horizon=10)


def test_warm_start_takes_the_final_parameters() -> None:
    run = simulate(DECAY.problem, DECAY.params, times=[0.0, 1.0])
    params = WarmStart(run)(DECAY.problem.model, jax.random.key(0))
    assert np.array_equal(params[0], run.params[0])


# --- Refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "times, a horizon or a stopping rule"),
        ({"times": [0.0, 0.0]}, "increase strictly"),
        ({"times": [-1.0, 1.0]}, "before the start"),
        ({"times": [0.0, np.nan]}, "finite"),
        ({"times": []}, "at least one"),
        ({"times": [0.0, 1.0], "horizon": 2.0}, "not both"),
        ({"horizon": -1.0}, "horizon must be greater than 0"),
        ({"horizon": 1.0, "every": 0}, "every must be at least 1"),
        ({"horizon": 1.0, "max_steps": 0}, "max_steps must be at least 1"),
        ({"horizon": 1.0, "wall_limit": 0.0}, "wall_limit"),
        ({"horizon": 1.0, "probes": [loss, loss]}, "different names"),
        ({"times": [0.5], "method": Adam()}, "whole numbers"),
    ],
)
def test_bad_arguments_are_refused_by_name(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(DECAY.problem, DECAY.params, **settings)


def test_bad_parameters_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="layer shapes"):
        simulate(DECAY.problem, (jnp.ones((3, 2)),), horizon=1.0)
    with pytest.raises(ValueError, match=r"params\[0\] must be finite"):
        simulate(DECAY.problem, (jnp.full((2, 2), jnp.nan),), horizon=1.0)
    with pytest.raises(ValueError, match="one number"):
        simulate(DECAY.problem, DECAY.params, until=until(singular_values, below=1.0))
    with pytest.raises(ValueError, match="exactly one"):
        until(loss)
    with pytest.raises(ValueError, match="rtol"):
        GradientFlow(rtol=0.0)


def test_progress_is_reported() -> None:
    seen = []
    simulate(DECAY.problem, DECAY.params, times=[0.0, 1.0], progress=seen.append)
    assert seen[-1].ended == 1 and seen[-1].fraction == 1.0 and seen[-1].members == 1


def test_chunks_grow_while_they_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that stands still each chunk has twice the steps of the last, and all are reported on the way."""
    monkeypatch.setattr(_driver, "time", SimpleNamespace(monotonic=lambda: 0.0))
    seen = []
    plan = {"horizon": 5000, "every": 10**9, "engine": "xla"}
    simulate(DECAY.problem, DECAY.params, GradientDescent(1e-6), progress=seen.append, **plan)
    steps = [state.steps for state in seen]
    assert sorted(set(steps) - {0}) == [200, 600, 1400, 3000, 5000]
    np.testing.assert_allclose([state.fraction for state in seen], np.array(steps) / 5000, rtol=1e-12)


@pytest.mark.parametrize("rtol", [1e-4, 1e-9])
def test_the_controller_takes_no_step_back_on_a_smooth_flow(rtol: float) -> None:
    """Its steps grow by little when the last one was near the tolerance: counted, not timed."""
    problem = Problem(DeepLinear((3, 3, 3)), SquaredDistance(np.diag([3.0, 2.0, 1.0])))
    start = (0.1 * jnp.eye(3) + 0.02 * jnp.asarray(np.random.default_rng(0).normal(size=(3, 3))), 0.1 * jnp.eye(3))
    run = simulate(problem, start, GradientFlow(rtol, integrator=tsit5()), horizon=2.0)
    assert run.stats["accepted_steps"] >= 10 and run.stats["rejected_steps"] == 0
