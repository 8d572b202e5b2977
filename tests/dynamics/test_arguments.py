"""Arguments of `simulate`, `ensemble` and `resume`: what is accepted, and one sentence for what is not."""

import dataclasses
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checking import unchecked
from deeplinear.core import Trajectory, describe
from deeplinear.dynamics import Adagrad, Adam, GradientDescent, GradientFlow, RMSProp, ensemble, resume, simulate, until
from deeplinear.models import Completion, DeepLinear, Energy, Problem, SquaredDistance
from deeplinear.probes import as_probes, loss, probe, product
from systems import linear_decay

DECAY = linear_decay()
TIMES = {"times": [0.0, 1.0]}
STEPS = {"method": GradientDescent(0.1), "horizon": 3}
"""Where any run will do: descent compiles to less than a flow."""


def trace(t, params, problem):
    """Sum of the diagonal of the product."""
    return jnp.trace(problem.product(params))


def phase(t, params, problem):
    """A complex number."""
    return jnp.exp(1j * jnp.trace(problem.product(params)))


def two_parts(t, params, problem):
    """A tuple, where one array is wanted."""
    return params[0], params[0][0]


def forgetful(params, problem):
    """A function that takes no time."""
    return params[0]


@probe(dims=("mode",))
def four_modes(t, params, problem):
    """Four numbers along the dimension of the two singular values."""
    return params[0].ravel()


@probe(dims=("mode",))
def two_modes(t, params, problem):
    """Two numbers."""
    return params[0][0]


def rows(matrix):
    """No energy: one number for each row."""
    return jnp.sum(matrix**2, axis=1)


# --- Accepted -------------------------------------------------------------------------------------------------------


def test_a_single_probe_is_one_of_its_kind() -> None:
    assert [item.name for item in as_probes(loss)] == ["loss"]
    run = simulate(DECAY.problem, DECAY.params, **STEPS, probes=trace)
    assert run["trace"][0] == pytest.approx(0.2, abs=1e-15)


def test_nested_lists_are_parameters() -> None:
    lists = [np.asarray(DECAY.params[0]).tolist()]
    run = simulate(DECAY.problem, lists, **TIMES, probes=product)
    np.testing.assert_allclose(run["product"][-1], DECAY.product(1.0), atol=1e-7)
    methods = [GradientFlow(1e-8), GradientFlow(1e-9)]
    many = ensemble(DECAY.problem, lists, methods, **TIMES, probes=product)
    np.testing.assert_allclose(many["product"][:, -1], [DECAY.product(1.0)] * 2, atol=1e-7)


def test_members_may_come_from_a_generator() -> None:
    starts = [DECAY.params, (2 * DECAY.params[0],)]
    many = ensemble((DECAY.problem for _ in range(2)), (start for start in starts), **STEPS)
    single = simulate(DECAY.problem, starts[1], **STEPS)
    np.testing.assert_allclose(many.member(1)["loss"], single["loss"], rtol=1e-9)


# --- Refused --------------------------------------------------------------------------------------------------------

REFUSED = {
    "complex params": ({"params": (1j * jnp.ones((2, 2)),)}, r"params\[0\] must be real, but is complex"),
    "no params": ({"params": None}, "params must be a tuple of matrices, first-acting first, but is None"),
    "a vector as layer": ({"params": ([1.0, 2.0],)}, r"params\[0\] must have shape \(any, any\)"),
    "ragged layer": ({"params": ([[1.0], [1.0, 2.0]],)}, r"params\[0\] must be a matrix, but its rows"),
    "words as layer": ({"params": ("ab",)}, r"params\[0\] must be a matrix of numbers"),
    "no layers": ({"params": ()}, "at least one layer"),
    "entry that is not finite": ({"params": ([[0, 1], [np.nan, 0]],)}, r"params\[0\] must be finite.*entry \(1, 0\)"),
    "loss for a problem": (
        {"problem": SquaredDistance(np.eye(2))},
        "problem must be a Problem, but is SquaredD",
    ),
    "class for a method": ({"method": Adam}, "method must be GradientFlow"),
    "integer for a key": ({"key": 3}, r"key must be one random key, such as jax\.random\.key\(0\), but is 3"),
    "several keys": ({"key": jax.random.split(jax.random.key(0), 2)}, "key must be one random key"),
    "number for a rule": ({"until": 1.0}, r"until must hold rules made by until\(\.\.\.\)"),
    "words for times": ({"times": "abc"}, "times must be a list of real numbers, but is 'abc'"),
    "complex times": ({"times": [0.0, 1j]}, "times must be a list of real numbers"),
    "ragged times": ({"times": [[0.0], [1.0, 2.0]]}, "times must be a list of real numbers"),
    "too many steps": ({"max_steps": 2**70}, "max_steps must be at most"),
    "part of a step": ({"method": Adam(), "times": None, "horizon": 10.5}, "must be whole, but is 10.5"),
    "word for probes": ({"probes": "loss"}, r"probes must be a list of probes such as \[loss\], but is 'loss'"),
    "complex probe": ({"probes": phase}, "probe 'phase' must give real numbers"),
    "probe of two parts": ({"probes": two_parts}, "probe 'two_parts' must give one array, but gives tuple"),
    "probe of two arguments": ({"probes": forgetful}, r"'forgetful' must take three arguments \(t, params, problem\)"),
    "lengths of a dimension": ({"probes": [two_modes, four_modes]}, "dimension 'mode' must have one length"),
    "energy of many values": ({"problem": Problem(DeepLinear((2, 2)), Energy(rows))}, "energy must give one real"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_get_one_sentence(case: str) -> None:
    settings, message = REFUSED[case]
    arguments = {"problem": DECAY.problem, "params": DECAY.params, **TIMES, **settings}
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        unchecked(simulate)(**arguments)
    assert "\n" not in str(caught.value)


REFUSED_MEMBERS = {
    "unequal layers": (
        {"problem": Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.eye(2))), "params": (5, 4)},
        r"same number of members, but have \[5, 4\]",
    ),
    "tolerances across the automatic choice": (
        {"method": [GradientFlow(1e-4), GradientFlow(1e-9)]},
        r"method\[1\] must have the same integrator as method\[0\].*automatic choice.*1e-7",
    ),
    "methods of two kinds": ({"method": [Adam(), GradientDescent(0.1)]}, "same kind as .*Adam, but is GradientDescent"),
    "losses for problems": ({"problem": [SquaredDistance(np.eye(2))]}, r"problem\[0\] must be a Problem"),
    "entry that is not finite": (
        {"params": [DECAY.params, (jnp.full((2, 2), jnp.inf),)]},
        r"params\[0\] \(member, row, column\) must be finite, but entry \(1, 0, 0\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED_MEMBERS)
def test_bad_members_get_one_sentence(case: str) -> None:
    settings, message = REFUSED_MEMBERS[case]
    settings = {"problem": DECAY.problem, "params": DECAY.params, **TIMES, **settings}
    if case == "unequal layers":
        settings["params"] = tuple(jnp.ones((count, 2, 2)) for count in settings["params"])
    with pytest.raises((TypeError, ValueError), match=message):
        unchecked(ensemble)(**settings)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (probe(dims=("time",))(trace), "other than time and member"),
        (probe(dims=("a", "a"))(trace), "different identifiers"),
        (probe(dims=("a.b",))(trace), "different identifiers"),
    ],
)
def test_dimensions_of_the_run_are_not_those_of_a_probe(item, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_probes([item])


def test_probes_may_be_called_like_what_a_file_holds(tmp_path) -> None:
    names = ("results", "time", "stat_seconds", "W1", "member", "t", "state0", "fired", "lengths")
    probes = [probe(name=name)(trace) for name in names]
    run = simulate(DECAY.problem, DECAY.params, **TIMES, probes=probes)
    run.save(tmp_path / "run")
    again = Trajectory.load(tmp_path / "run")
    for name in names:
        np.testing.assert_array_equal(again[name], run[name])
    assert again.result is run.result


THIRTY_TWO = """
import jax, jax.numpy as jnp
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.models import DeepLinear, Problem, SquaredDistance

problem, params = Problem(DeepLinear((1, 1)), SquaredDistance(jnp.ones((1, 1)))), (jnp.zeros((1, 1)),)
try:
    simulate(problem, params, times=[0.0, 1.0])
except ValueError as error:
    print(error)
print(simulate(problem, params, GradientFlow(1e-4), times=[0.0, 1.0]).params[0][0, 0])
"""


@pytest.mark.slow
def test_tolerances_out_of_reach_of_32_bits_are_refused() -> None:
    quiet = [sys.executable, "-W", "error::RuntimeWarning", "-c", THIRTY_TWO]
    run = subprocess.run(quiet, capture_output=True, text=True, check=True)
    refusal, value = run.stdout.splitlines()
    assert "jax_enable_x64" in refusal and "rtol" in refusal
    assert float(value) == pytest.approx(1 - np.exp(-1), abs=1e-3)  # ten times the tolerance


# --- Continuing -----------------------------------------------------------------------------------------------------

WIDE = Problem(DeepLinear((2, 2)), Completion(np.ones((2, 2)), np.eye(2)))


@pytest.mark.parametrize(
    ("problem", "method", "message"),
    [
        (DECAY.problem, RMSProp(), "the method must be of the same kind as in the trajectory, Adagrad, but is RMSProp"),
        (DECAY.problem, GradientFlow(), "the method must be of the same kind as in the trajectory, Adagrad"),
        (WIDE, Adagrad(), "the problem must be of the same kind .*SquaredDistance.* but is .*Completion"),
    ],
)
def test_another_kind_of_method_or_problem_does_not_go_on(problem: Problem, method, message: str) -> None:
    half = simulate(DECAY.problem, DECAY.params, Adagrad(0.1), horizon=5)
    with pytest.raises(ValueError, match=message):
        resume(half, problem, method, horizon=10)


def test_a_member_goes_on_with_other_numbers_and_counts_anew() -> None:
    """Ten steps of 0.1, then five of 0.2, of plain descent towards the target: the gap shrinks by a known factor."""
    methods = [GradientDescent(0.1), GradientDescent(0.3)]
    half = ensemble([DECAY.problem] * 2, DECAY.params, methods, horizon=10).member(0)
    rest = resume(half, DECAY.problem, GradientDescent(0.2), horizon=15, max_steps=5)
    target = np.asarray(DECAY.problem.loss.target)
    expected = target + (np.asarray(DECAY.params[0]) - target) * 0.9**10 * 0.8**5
    np.testing.assert_allclose(rest.params[0], expected, rtol=1e-12)
    assert rest.stats["accepted_steps"] == 5
    assert rest.stats["seconds_per_step"] == pytest.approx(rest.stats["seconds"] / 5)


def test_a_trajectory_without_a_state_does_not_go_on() -> None:
    run = dataclasses.replace(simulate(DECAY.problem, DECAY.params, **STEPS), state=())
    with pytest.raises(ValueError, match="must hold the state of its method"):
        resume(run, DECAY.problem, GradientDescent(0.1), horizon=5)
    with pytest.raises(TypeError, match="trajectory must be a Trajectory"):
        unchecked(resume)(3, DECAY.problem, times=[2.0])


@pytest.mark.parametrize("method", [GradientFlow(), GradientDescent(0.01)])
def test_a_rule_from_above_waits_until_the_value_is_there(method) -> None:
    params = (0.1 * jnp.eye(2),)
    problem = Problem(DeepLinear((2, 2)), SquaredDistance(3.0 * np.eye(2)))
    run = simulate(problem, params, method, until=until(trace, above=2.0))
    end = float(np.trace(run.params[0]))
    assert 2.0 <= end < 2.1 and run.rule == "trace above 2"
    # Of the flow 6 - 5.8 e^{-t}, of descent the same with powers of 0.99.
    rate = 1.0 if isinstance(method, GradientFlow) else -math.log(0.99)
    assert end == pytest.approx(6 - 5.8 * math.exp(-rate * float(run.final_time)), rel=1e-4)


def test_a_run_goes_on_from_a_time_that_is_recorded_already() -> None:
    half = simulate(DECAY.problem, DECAY.params, times=[0.0, 1.0])
    rest = resume(half, DECAY.problem, times=[1.0, 1.5, 2.0])
    np.testing.assert_array_equal(rest.times, [1.5, 2.0])


def test_rules_of_one_kind_and_another() -> None:
    rules = [until(loss, below=1e-30), until(trace, above=2.0)]
    run = simulate(DECAY.problem, DECAY.params, GradientDescent(0.1), until=rules)
    assert run.rule == "trace above 2"


def test_a_method_is_described_in_a_line_without_its_coefficients() -> None:
    text = describe(GradientFlow(1e-8))
    assert text.startswith("GradientFlow(rtol=1e-08") and "RungeKutta(order=8, interval=5.1)" in text
    assert len(text) < 160
