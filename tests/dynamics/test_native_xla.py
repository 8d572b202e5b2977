"""Both engines on the same runs: the same outcomes, the same laws, and each goes on where the other stopped."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from deeplinear.core import RESULTS, Trajectory
from deeplinear.dynamics import GradientFlow, ensemble, resume, simulate, until
from deeplinear.engine import available
from deeplinear.probes import gradient_norm, loss
from flows import Flow, flat, flow, start

pytestmark = pytest.mark.skipif(not available(), reason="the engine is not compiled on this machine")

ENGINES = ("native", "xla")
WIDTHS = (2, 3, 2)
METHOD = GradientFlow(1e-6)


def case_of(name: str = "distance", widths: tuple[int, ...] = WIDTHS, l2: float = 0.0) -> Flow:
    return flow(name, widths, np.random.default_rng(1), l2)


def begin(size: float, widths: tuple[int, ...] = WIDTHS) -> tuple[np.ndarray, ...]:
    return start(widths, np.random.default_rng(2), size)


def distance(one: Trajectory, other: Trajectory) -> float:
    a, b = flat(one.params), flat(other.params)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def both(case: Flow, params: Any, method: GradientFlow = METHOD, **settings: Any) -> tuple[Trajectory, Trajectory]:
    native, xla = (simulate(case.problem, params, method, engine=engine, **settings) for engine in ENGINES)
    assert native.info["engine"].startswith("native") and xla.info["engine"].startswith("xla")
    return native, xla


@pytest.mark.parametrize(
    ("name", "widths", "sizes"),
    [
        ("distance", WIDTHS, (1e-14, 1e-5, 1.0, 1e3)),
        ("completion", (2, 2, 3, 2), (1e-2, 1.0, 1e2)),
        ("regression", (3, 2, 1, 3, 2), (0.3, 3.0)),
    ],
)
def test_both_engines_take_the_same_steps(name: str, widths: tuple[int, ...], sizes: tuple[float, ...]) -> None:
    """One law: as many steps, tried and refused, up to a few where rounding decides."""
    for size in sizes:
        for l2 in (0.0, 0.05):
            case = case_of(name, widths, l2)
            times = [0.0, 0.2, 3.0, 60.0, 1e3]
            native, xla = both(case, begin(size, widths), times=times, probes=[loss, gradient_norm])
            if native.result is not xla.result:  # rounding decides whether a gradient becomes zero to the last bit
                assert {native.result, xla.result} == {RESULTS.completed, RESULTS.steady}
                assert max(run["gradient_norm"][-1] for run in (native, xla)) < 1e-14
            assert native.times.tolist() == xla.times.tolist() == times
            for key in ("accepted_steps", "rejected_steps", "stabilised_steps", "gradient_evaluations"):
                few = 8 if key.endswith("steps") else 8 * case.problem.model.size + 200
                assert abs(native.stats[key] - xla.stats[key]) <= max(few, 0.1 * xla.stats[key]), (key, size, l2)
            scale = xla["loss"][0]
            np.testing.assert_allclose(native["loss"], xla["loss"], rtol=1e-3, atol=1e-9 * min(scale, 1.0))
            assert distance(native, xla) < 1e-4


@pytest.mark.parametrize("engine", ENGINES)
def test_laws_of_a_flow(engine: str) -> None:
    """A conserved difference of layers, a loss that never rises, an error in proportion to the tolerance."""
    case, params = case_of(), begin(0.7)
    run = simulate(case.problem, params, METHOD, horizon=4.0, every=1, engine=engine)
    (first, second), (below, above) = params, run.params
    difference = second.T @ second - first @ first.T
    np.testing.assert_allclose(above.T @ above - below @ below.T, difference, atol=2e-4)
    assert np.all(np.diff(run["loss"]) <= 1e-12)
    exact = case.at(flat(params), [4.0])[-1]
    errors = []
    for rtol in (1e-4, 1e-6):
        end = simulate(case.problem, params, GradientFlow(rtol), times=[4.0], engine=engine)
        errors.append(np.linalg.norm(flat(end.params) - exact))
    assert errors[1] < 1e-5 and 5 < errors[0] / errors[1] < 2000


@pytest.mark.parametrize("engine", ENGINES)
def test_rules_and_limits_end_a_run(engine: str) -> None:
    case, params = case_of(), begin(0.3)
    for value, slope in ((0.1, 1e-9), (1e-9, 1e-2)):
        rules = [until(loss, below=value), until(gradient_norm, below=slope)]
        run = simulate(case.problem, params, METHOD, until=rules, horizon=100.0, every=7, engine=engine)
        assert run.result is RESULTS.stopped
        y = flat(run.params)
        found = case.value(y) if value > slope else np.linalg.norm(case.slope(y))
        assert max(value, slope) * 0.99 <= found <= max(value, slope)
        assert run.rule == (rules[0].name if value > slope else rules[1].name)
    run = simulate(case.problem, params, METHOD, horizon=100.0, every=3, max_steps=10, engine=engine)
    assert run.result is RESULTS.step_limit and len(run.times) == 5
    rest = simulate(case.problem, begin(0.0), METHOD, times=[0.0, 1.0, 2.0], engine=engine)
    assert rest.result is RESULTS.steady and rest.times.tolist() == [0.0, 1.0, 2.0]
    many = ensemble(case.problem, [params, begin(1e90), params], METHOD, times=[0.0, 1.0], engine=engine)
    assert many.failed == (1,) and many.unfinished == ()


@pytest.mark.parametrize(("first", "second"), [("native", "xla"), ("xla", "native")])
def test_each_engine_goes_on_where_the_other_stopped(first: str, second: str) -> None:
    case, params = case_of(), begin(0.3)
    whole = simulate(case.problem, params, METHOD, times=[0.0, 2.0, 500.0], engine="native")
    part = simulate(case.problem, params, METHOD, times=[0.0, 2.0], engine=first)
    part = resume(part, case.problem, METHOD, times=[500.0], engine=second)
    assert part.result is whole.result
    assert distance(part, whole) < 1e-5
    before = simulate(case.problem, params, METHOD, times=[0.0, 2.0], engine="native").stats["accepted_steps"]
    assert abs(part.stats["accepted_steps"] + before - whole.stats["accepted_steps"]) <= 8


def test_a_new_radius_chooses_the_integrator_at_once() -> None:
    """A stabilised step that is refused because the radius was far too small is not tried again by hundreds of stages.

    The next one is so long in units of the true radius that the exponential method takes it.
    """
    case, params = case_of(), begin(0.7)
    part = simulate(case.problem, params, METHOD, times=[0.0, 12.0], engine="native")
    h, rho, direction, age, stiff, strikes, error, *counts = part.state
    memory = {"h": 1e4, "rho": 1e-3, "age": 31, "stiff": True, "strikes": 0, "error": 1.0}
    wrong = [
        np.asarray(memory[name], old.dtype)
        for name, old in (
            ("h", h),
            ("rho", rho),
            ("age", age),
            ("stiff", stiff),
            ("strikes", strikes),
            ("error", error),
        )
    ]
    state = (wrong[0], wrong[1], direction, *wrong[2:], *counts)
    ready = dataclasses.replace(part, state=tuple(np.asarray(leaf) for leaf in state))
    native, xla = (resume(ready, case.problem, METHOD, times=[1e6], max_steps=2, engine=engine) for engine in ENGINES)
    assert native.stats["rejected_steps"] == xla.stats["rejected_steps"] > 0
    assert native.stats["gradient_evaluations"] == xla.stats["gradient_evaluations"]
    assert distance(native, xla) < 1e-8
