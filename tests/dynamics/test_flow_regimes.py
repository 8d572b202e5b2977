"""The automatic integrator where flows are hard: endless plateaus, saddles, rounding floors, blow-up, huge weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.core import RESULTS, NumericalError, dopri8, tsit5
from deeplinear.core._stabilised import stabilised_table
from deeplinear.dynamics import GradientDescent, GradientFlow, ensemble, simulate, until
from deeplinear.models import DeepLinear, Energy, Gaussian, Problem, Regression, ScaledIdentity, SquaredDistance
from deeplinear.probes import loss, product

TARGET = np.array([1.0, 0.5])


def identity_start(depth: int, size: float) -> tuple[Problem, tuple]:
    problem = Problem(DeepLinear((2,) * (depth + 1)), SquaredDistance(np.diag(TARGET)))
    return problem, ScaledIdentity(size)(problem.model, jax.random.key(0))


def layer_strengths_at(depth: int, size: float, times: np.ndarray) -> np.ndarray:
    """Each layer's diagonal obeys a' = a^(L-1) (s - a^L): SciPy's Radau in the logarithm, one mode at a time."""
    columns = []
    for s in TARGET:
        solution = solve_ivp(
            lambda _, v, s=s: np.exp((depth - 2) * v) * (s - np.exp(depth * v)),
            (0.0, times[-1]),
            [np.log(size)],
            method="Radau",
            rtol=1e-10,
            atol=1e-12,
            t_eval=times,
        )
        columns.append(np.exp(solution.y[0]))
    return np.stack(columns, axis=1)


def test_an_endless_plateau_is_crossed_and_not_taken_for_a_rest() -> None:
    """The second mode starts to move after the first is learnt to rounding, 1e10 time units later."""
    depth, size = 4, 1e-5
    problem, params = identity_start(depth, size)
    wait = size ** (2 - depth) / ((depth - 2) * TARGET[1])
    times = wait * np.array([0.0, 0.4, 0.7, 0.9, 1.2, 2.0])
    run = simulate(problem, params, GradientFlow(1e-8), times=times, probes=[product])
    assert run.stats["accepted_steps"] < 3000
    exact = layer_strengths_at(depth, size, times) ** depth
    for recorded, diagonal in zip(run["product"], exact, strict=True):
        assert np.abs(np.diag(recorded) - diagonal).max() < 1e-5
        assert recorded[0, 1] == recorded[1, 0] == 0
    # From 1e-9 the wait is so long that its clock cannot tell the steps of the transition from none.
    problem, params = identity_start(depth, 1e-9)
    run = simulate(problem, params, GradientFlow(1e-12), times=times * (size / 1e-9) ** 2, probes=[product])
    assert run.result.finished
    np.testing.assert_allclose(run["product"][-1], np.diag(TARGET), atol=1e-10)


@pytest.mark.parametrize("rtol", [1e-2, 1e-3, 1e-4, 1e-6, 1e-8])
def test_loss_falls_at_any_tolerance_and_the_floor_is_cheap(rtol: float, seed: int) -> None:
    """Long after convergence there is only rounding: it neither raises the loss nor costs steps."""
    rng = np.random.default_rng(seed)
    problem = Problem(DeepLinear((3, 4, 3)), SquaredDistance(rng.normal(size=(3, 3))))
    params = Gaussian(0.3)(problem.model, jax.random.key(seed))
    run = simulate(problem, params, GradientFlow(rtol), horizon=1e4)
    assert run.result.finished
    assert run.stats["accepted_steps"] < 2000
    values = run["loss"]
    real = values[:-1] > 1e-24  # below, rounding of the residual moves the loss
    assert np.all(np.diff(values)[real] <= 1e-9 * values[:-1][real])
    assert values[-1] < 1e-20


def test_a_long_wait_after_convergence_is_cheap() -> None:
    rng = np.random.default_rng(0)
    problem = Problem(DeepLinear((3, 4, 3)), SquaredDistance(rng.normal(size=(3, 3))))
    params = Gaussian(0.3)(problem.model, jax.random.key(0))
    run = simulate(problem, params, GradientFlow(1e-6), times=[0.0, 1e8, 1e9])
    assert run.result.finished
    assert run.times.tolist() == [0.0, 1e8, 1e9]
    assert run.stats["gradient_evaluations"] < 20_000


def steep(matrix):
    """An energy without a lower bound."""
    return -jnp.sum(matrix**4)


def test_blow_up_in_finite_time_is_reported() -> None:
    problem = Problem(DeepLinear((2, 3, 2)), Energy(steep))
    run = simulate(problem, Gaussian(0.5)(problem.model, jax.random.key(0)), horizon=1e4)
    assert run.result.failed
    assert np.all(np.diff(run.times) >= 0)
    assert all(np.all(np.isfinite(layer)) for layer in run.params)


def test_huge_weights_come_down() -> None:
    """From weights of size 1e3 the flow is stiff from the start; SciPy's LSODA with the Hessian is the oracle."""
    problem = Problem(DeepLinear((3, 3, 3)), SquaredDistance(np.eye(3)))
    params = Gaussian(1e3)(problem.model, jax.random.key(0))
    run = simulate(problem, params, GradientFlow(1e-9), times=[0.0, 1e-6, 1e-4], probes=[loss, product])
    target = np.eye(3)

    def field(_, y):
        a, b = y[:9].reshape(3, 3), y[9:].reshape(3, 3)
        gap = b @ a - target
        return -np.concatenate([(b.T @ gap).ravel(), (gap @ a.T).ravel()])

    start = np.concatenate([np.asarray(layer).ravel() for layer in params])
    exact = solve_ivp(field, (0, 1e-4), start, method="LSODA", rtol=1e-11, atol=1e-9, t_eval=[1e-6, 1e-4]).y
    for recorded, y in zip(run["product"][1:], exact.T, strict=True):
        reference = y[9:].reshape(3, 3) @ y[:9].reshape(3, 3)
        assert np.abs(recorded - reference).max() < 1e-5 * max(1.0, np.abs(reference).max())


def cancelling(matrix):
    """Half the squared distance from the target, with rounding of the size of the target's square."""
    return 0.5 * jnp.sum(matrix**2) - jnp.sum(jnp.diagonal(matrix) * TARGET) + 0.5 * TARGET @ TARGET


def test_rounding_of_the_loss_refuses_no_step(seed: int) -> None:
    """From 1e-16 on the value of the loss is noise, while its gradient still tells down from up."""
    problem = Problem(DeepLinear((2, 2, 2)), Energy(cancelling))
    params = Gaussian(0.5)(problem.model, jax.random.key(seed))
    run = simulate(problem, params, GradientFlow(1e-6, integrator=tsit5()), times=[0.0, 1000.0], probes=[product])
    assert run.result is RESULTS.completed
    assert run.stats["accepted_steps"] < 3000 and run.stats["rejected_steps"] < 1000
    np.testing.assert_allclose(run["product"][-1], np.diag(TARGET), atol=1e-9)


def noisy(matrix):
    """Its gradient has noise of 1e-10."""
    return 0.5 * jnp.sum((matrix - jnp.diag(TARGET)) ** 2) + 1e-20 * jnp.sum(jnp.cos(1e10 * matrix))


@pytest.mark.parametrize("strategy", ["threads", "vector"])
def test_a_tolerance_below_the_noise_ends_the_run_and_says_so(strategy: str, seed: int) -> None:
    problem = Problem(DeepLinear((2, 2, 2)), Energy(noisy))
    params = Gaussian(0.5)(problem.model, jax.random.key(seed))
    methods = [GradientFlow(rtol, integrator=dopri8()) for rtol in (1e-14, 1e-9)]
    many = ensemble(problem, [params] * 2, methods, times=[0.0, 20.0], strategy=strategy)
    assert [RESULTS(code) for code in many.results.tolist()] == [RESULTS.step_too_small, RESULTS.completed]
    assert (many.stats["accepted_steps"] + many.stats["rejected_steps"]).max() < 5000
    end, step = float(many.final_time[0]), float(many.stats["step_size"][0])
    assert 0 < end < 20 and 0 < step < 1e-4
    with pytest.raises(NumericalError, match=r"tolerance cannot be reached.*Raise rtol") as caught:
        many.raise_on_failure()
    assert str(caught.value).endswith(f"Members [0] failed, the first at t = {end:.9g} with a step of {step:.3g}.")
    assert "with a step of" in many.member(0).summary()


def test_tiny_steps_with_a_reason_are_taken() -> None:
    """From a scale of 1e-9, with more outputs within 1e-9 time units than crawling steps would be borne."""
    problem, params = identity_start(2, 1e-9)
    times = np.append(np.linspace(0.0, 1e-9, 1500), [50.0])
    run = simulate(problem, params, GradientFlow(1e-8, integrator=tsit5()), times=times, probes=[product])
    assert run.result is RESULTS.completed
    grown = 1e-18 * np.exp(2 * TARGET * 50.0)
    np.testing.assert_allclose(np.diag(run["product"][-1]), TARGET * grown / (TARGET - 1e-18 + grown), rtol=1e-5)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_a_step_past_a_threshold_is_taken_back_once_whatever_the_unit_of_time(unit: float) -> None:
    """The loss falls as an exponential: where it meets the threshold is known from the ends of the step."""
    problem = Problem(DeepLinear((2, 2)), Regression(unit * np.eye(2), unit * np.diag(TARGET)))
    params, method = (np.ones((2, 2)),), GradientFlow(1e-4, integrator=tsit5())
    threshold = 1e-3 * unit
    run = simulate(problem, params, method, until=until(loss, below=threshold), engine="xla")
    assert run.result is RESULTS.stopped
    assert 0.99 * threshold <= float(run.final("loss")) <= threshold
    plain = simulate(problem, params, method, horizon=float(run.final_time), engine="xla")
    again = run.stats["gradient_evaluations"] - plain.stats["gradient_evaluations"]
    assert again <= 6, "more than one step of six gradients"


def test_steps_of_a_wide_network_that_waits_are_as_long_as_is_stable() -> None:
    """More weights than dense linear algebra is for: the stabilised method has a longest step at a spectral radius."""
    size = 11
    problem = Problem(DeepLinear((size, size, size)), SquaredDistance(np.diag(np.linspace(3.0, 0.1, size))))
    params = Gaussian(0.3)(problem.model, jax.random.key(0))
    run = simulate(problem, params, GradientFlow(1e-4), horizon=1e6, every=1, probes=[loss], engine="xla")
    assert run.result.finished and run.stats["stabilised_steps"] > 0
    radius = float(np.abs(np.linalg.eigvalsh(problem.hessian(tuple(map(jnp.asarray, run.params))))).max())
    assert np.diff(run.times).max() * radius <= stabilised_table().interval[-1]
    assert 4 * run.stats["rejected_steps"] < run.stats["accepted_steps"]  # a step that is tried is seldom too long


def stair(t, params, problem):
    """One until the weight is a half, then zero."""
    return jnp.where(params[0][0, 0] > 0.5, 0.0, 1.0)


@pytest.mark.parametrize("threshold", [0.5, 0.999])
def test_a_rule_whose_value_jumps_is_met_at_the_jump(threshold: float) -> None:
    """The weight is 1 - 0.9 exp(-t)."""
    problem = Problem(DeepLinear((1, 1)), SquaredDistance(np.ones((1, 1))))
    method, rule = GradientFlow(1e-8, integrator=tsit5()), until(stair, below=threshold)
    run = simulate(problem, (np.full((1, 1), 0.1),), method, horizon=10.0, until=rule)
    assert run.result is RESULTS.stopped and run.stats["accepted_steps"] < 1000
    assert float(run.final_time) == pytest.approx(np.log(0.9 / 0.5), abs=1e-7)


@pytest.mark.parametrize("method", [None, GradientDescent(0.1)], ids=["flow", "update"])
def test_times_that_hold_only_the_start(method) -> None:
    problem, params = identity_start(2, 0.5)
    run = simulate(problem, params, method, times=[0])
    assert run.result is RESULTS.completed
    assert run.times.tolist() == [0]
