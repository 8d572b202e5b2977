"""Members that the native engine moves side by side: each as if it were alone; runs that end early, and go on."""

import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

from deeplinear.core import RESULTS, Exponential, Stabilised, Trajectory, dopri8, tsit5
from deeplinear.dynamics import (
    GradientFlow,
    Progress,
    Switching,
    _native_run,
    _native_spec,
    ensemble,
    resume,
    simulate,
    until,
)
from deeplinear.engine import available
from deeplinear.models import DeepLinear, Problem, Regression, SquaredDistance
from deeplinear.probes import gradient_norm, loss, singular_values
from flows import flat, flow, start

pytestmark = pytest.mark.skipif(not available(), reason="the engine is not compiled on this machine")

WIDTHS = (3, 4, 2)


def of_processors(patch: pytest.MonkeyPatch, count: int) -> None:
    patch.setattr(_native_run, "processors", lambda: count)


def bits(run: Trajectory, member: int, skip: tuple[str, ...] = ()) -> dict[str, bytes]:
    """All numbers of a member, to the last bit."""
    own = run.member(int(member))
    numbers = {f"params {i}": layer for i, layer in enumerate(own.params)} | dict(own.values)
    numbers |= {f"state {i}": leaf for i, leaf in enumerate(own.state)} | {"times": own.times, "result": own.results}
    return {name: np.asarray(value).tobytes() for name, value in numbers.items() if name not in skip}


def stiff_members(count: int) -> tuple[list[Problem], list[tuple], list[GradientFlow]]:
    """Members of every kind: on plateaus, learning, stiff, at rest; inputs whose sizes differ up to a thousandfold."""
    rng = np.random.default_rng(8)
    problems, params, methods = [], [], []
    choice = Switching(dopri8(), Stabilised(), Exponential())
    for i in range(count):
        x = np.geomspace(1.0, 10.0 ** (i % 4), 3)[:, None] * rng.standard_normal((3, 12))
        loss = Regression.from_data(x, rng.standard_normal((2, 12)), reduced=True)
        problems.append(Problem(DeepLinear(WIDTHS), loss, 0.1 * (i % 3 == 1)))
        params.append(start(WIDTHS, rng, 0.0 if i == 5 else 10.0 ** -(i % 5)))
        methods.append(GradientFlow(10.0 ** -(4 + i % 6), integrator=choice))
    return problems, params, methods


@pytest.mark.parametrize("shared", [False, True], ids=["problems of their own", "one problem"])
def test_a_member_is_moved_as_if_it_were_alone(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any company, any order and on any number of threads, to the last bit."""
    problems, params, methods = stiff_members(50)
    settings = {
        "times": [0.0, 0.5, 30.0, 1e5],
        "until": until(gradient_norm, below=1e-9),
        "probes": [loss],
        "engine": "native",
    }

    def move(ids: Any) -> Trajectory:
        problem = problems[1] if shared else [problems[i] for i in ids]
        return ensemble(problem, [params[i] for i in ids], [methods[i] for i in ids], **settings)

    of_processors(monkeypatch, 1)
    every = np.arange(50)
    whole = move(every)
    expected = [bits(whole, i) for i in every]
    stats = whole.stats
    assert stats["stabilised_steps"].max() > 0 and whole.failed == ()
    rng = np.random.default_rng(0)
    for processors, ids in [
        (1, every[::-1]),
        (1, rng.permutation(50)[:8]),
        (1, rng.permutation(50)[:3]),
        (2, every),
        (2, rng.permutation(50)),
        (2, rng.permutation(50)[:17]),
        *((1, [i]) for i in (0, 3, 5, 7, 11, 49)),
    ]:
        of_processors(monkeypatch, processors)
        run = move(ids)
        for place, i in enumerate(ids):
            assert bits(run, place) == expected[i], (processors, ids, i)


@pytest.mark.parametrize(
    "integrator", [tsit5(), Stabilised(), Exponential()], ids=["tsit5", "stabilised", "exponential"]
)
def test_so_it_is_with_every_integrator_and_wide_networks(integrator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    problems, params, _ = stiff_members(11)
    methods = [GradientFlow(10.0 ** -(4 + i % 3), integrator=integrator) for i in range(11)]
    for wide in (700, 0):
        monkeypatch.setattr(_native_spec, "WIDE", wide)
        of_processors(monkeypatch, 2)
        settings = {"times": [0.0, 0.01, 0.1], "engine": "native", "probes": [loss, singular_values]}
        many = ensemble(problems, params, methods, **settings)
        of_processors(monkeypatch, 1)
        for i in (0, 4, 10):
            one = ensemble(problems[i : i + 1], params[i : i + 1], methods[i : i + 1], **settings)
            assert bits(one, 0) == bits(many, i)


def test_small_rooms_for_records_lose_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of every member, with the weights, through windows that are full again and again."""
    problems, params, methods = stiff_members(9)
    settings = {"horizon": 0.02, "every": 1, "probes": [loss, singular_values], "engine": "native"}
    plain = ensemble(problems, params, methods, **settings)
    monkeypatch.setattr(_native_run, "WINDOW_BYTES", 1)
    narrow = ensemble(problems, params, methods, **settings)
    for i in range(9):
        assert bits(narrow, i) == bits(plain, i)
        own = narrow.member(i)
        assert np.all(np.diff(own.times) > 0)
        assert len(own.times) == own.stats["accepted_steps"] + 1


# --- Failures and limits ----------------------------------------------------------------------------------------------


def test_members_that_fail_are_kept_and_named() -> None:
    """One blows up beyond all numbers, another stands still on noise; their neighbours do not notice."""
    rng = np.random.default_rng(1)
    case = flow("distance", (2, 2, 2, 2), rng)
    good, huge = start(case.widths, rng), start(case.widths, rng, 1e90)
    run = ensemble(case.problem, [good, huge, good], GradientFlow(1e-6), times=[0.0, 1.0], engine="native")
    assert run.failed == (1,)
    assert bits(run, 0) == bits(run, 2)
    assert RESULTS(int(run.results[1])) in (RESULTS.diverged, RESULTS.step_too_small)
    assert all(np.isfinite(layer).all() for layer in run.member(1).params)


def test_limits_end_a_run_and_keep_its_state() -> None:
    rng = np.random.default_rng(1)
    case, params = flow("distance", WIDTHS, rng), start(WIDTHS, rng)
    run = simulate(case.problem, params, horizon=5.0, every=3, max_steps=10, engine="native")
    assert run.result is RESULTS.step_limit and run.stats["accepted_steps"] == 10
    assert len(run.times) == 5  # the start, three times three steps, and the end
    endless, begin, method = endless_run(WIDTHS)
    run = simulate(endless, begin, method, times=[0.0, 1e6], wall_limit=0.1, engine="native")
    assert run.result is RESULTS.wall_limit and run.times[-1] == run.final_time < 1e6


def test_what_rests_is_recorded_to_the_end() -> None:
    rng = np.random.default_rng(1)
    case = flow("completion", (3, 3, 3), rng)
    run = simulate(case.problem, start(case.widths, rng, 0.0), times=[0.0, 1.0, 7.5], engine="native")
    assert run.result is RESULTS.steady and run.times.tolist() == [0.0, 1.0, 7.5]
    assert np.ptp(run["loss"]) == 0


def test_a_conserved_difference_and_the_fall_of_the_loss() -> None:
    """W_2^T W_2 - W_1 W_1^T stays, and decays as exp(-2 l2 t) with a penalty; the loss never rises."""
    rng = np.random.default_rng(2)
    for name in ("distance", "singular", "completion"):
        for l2 in (0.0, 0.2):
            case, params = flow(name, (3, 4, 2, 3), rng, l2), start((3, 4, 2, 3), rng, 0.8)
            run = simulate(case.problem, params, GradientFlow(1e-10), horizon=4.0, every=1, engine="native")
            ends = run.params
            for below, above, first, last in zip(params, params[1:], ends, ends[1:], strict=False):
                before, after = above.T @ above - below @ below.T, last.T @ last - first @ first.T
                np.testing.assert_allclose(after, np.exp(-8 * l2) * before, atol=1e-8)
            assert np.all(np.diff(run["loss"]) <= 1e-12)


@pytest.mark.parametrize(("probe", "below"), [(loss, True), (gradient_norm, True), (gradient_norm, False)])
def test_stopping_rules_are_met_within_one_per_cent(probe: Any, below: bool) -> None:
    """On the way from one value to another; a gradient grows from small weights, the loss always falls."""
    rng = np.random.default_rng(6)
    ways = 0
    for size in (1e-2, 0.5, 4.0):
        case, params = flow("reduced", (3, 4, 3), rng), start((3, 4, 3), rng, size)
        settings = {"probes": [probe], "engine": "native"}
        path = simulate(case.problem, params, GradientFlow(1e-6), horizon=8.0, every=1, **settings)[probe.name]
        end = path.max() if probe is gradient_norm and not below else path[-1]
        if end == path[0] or bool(end < path[0]) is not below:
            continue
        ways += 1
        for share in (0.2, 0.5, 0.9):
            threshold = path[0] ** (1 - share) * end**share
            rule = until(probe, below=threshold) if below else until(probe, above=threshold)
            run = simulate(case.problem, params, GradientFlow(1e-6), until=rule, horizon=8.0, **settings)
            assert run.result is RESULTS.stopped and run.rule == rule.name
            y = flat(run.params)
            value = case.value(y) if probe is loss else np.linalg.norm(case.slope(y))
            assert value == pytest.approx(threshold, rel=0.01)
            assert value <= threshold if below else value >= threshold
    assert ways


# --- Going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["distance", "regression", "completion"])
@pytest.mark.parametrize("wide", [700, 0], ids=["lanes", "wide"])
def test_a_continued_run_is_the_run_that_went_on(name: str, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, through explicit, stabilised and exponential steps."""
    monkeypatch.setattr(_native_spec, "WIDE", wide)
    rng = np.random.default_rng(9)
    case, params = flow(name, WIDTHS, rng, 0.05), start(WIDTHS, rng, 0.1)
    times = [0.0, 0.3, 2.0, 40.0, 3e3, 1e5]
    whole = simulate(case.problem, params, GradientFlow(1e-6), times=times, engine="native")
    assert whole.stats["stabilised_steps"] > 0
    for cut in range(1, 6):
        part = simulate(case.problem, params, GradientFlow(1e-6), times=times[: cut + 1], engine="native")
        if cut < 5:
            part = resume(part, case.problem, GradientFlow(1e-6), times=times[cut + 1 :], engine="native")
        for mine, theirs in zip(part.params, whole.params, strict=True):
            assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes(), cut
        assert [np.asarray(leaf).tobytes() for leaf in part.state] == [np.asarray(x).tobytes() for x in whole.state]


# --- Interrupts -------------------------------------------------------------------------------------------------------


def endless_run(widths: tuple[int, ...]) -> tuple[Problem, tuple, GradientFlow]:
    """An explicit method on inputs of very different size: some 1e11 steps to the end."""
    rng = np.random.default_rng(3)
    x = np.geomspace(1.0, 300.0, widths[0])[:, None] * rng.standard_normal((widths[0], 3 * widths[0]))
    loss = Regression.from_data(x, rng.standard_normal((widths[-1], 3 * widths[0])))
    return Problem(DeepLinear(widths), loss), start(widths, rng, 0.1), GradientFlow(1e-8, integrator=tsit5())


@pytest.mark.parametrize("kind", ["small", "wide", "ensemble", "threads"])
@pytest.mark.parametrize("cause", ["progress", "timer"])
def test_an_interrupt_ends_a_run_and_keeps_its_state(kind: str, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of_processors(monkeypatch, 2 if kind == "threads" else 1)
    problem, params, method = endless_run((40, 30, 20) if kind == "wide" else WIDTHS)
    settings: dict[str, Any] = {"times": [0.0, 1e6], "engine": "native"}
    if cause == "progress":

        def progress(now: Any) -> None:
            if now.steps > 0 and not over:
                over.append(now)
                signal.raise_signal(signal.SIGINT)

        over: list[Any] = []
        settings["progress"] = progress
        timer = None
    else:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
    try:
        if kind in ("small", "wide"):
            run = simulate(problem, params, method, **settings)
            results, times = [run.result], [run.final_time]
        else:
            run = ensemble(problem, [params] * 40, method, **settings)
            results, times = run.results, run.final_time
            assert run.outcomes() == {"interrupted": tuple(range(40))}
    finally:
        if timer is not None:
            timer.join()
    assert all(RESULTS(int(result)) is RESULTS.interrupted for result in results)
    assert np.all(np.asarray(times) < 1e5)
    assert all(np.isfinite(layer).all() for layer in run.params)


def test_an_interrupt_before_the_first_step_keeps_the_start() -> None:
    def interrupted(_: Progress) -> None:
        if not calls:
            calls.append(None)
            raise KeyboardInterrupt

    calls: list[None] = []
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.eye(2)))
    layers = (0.5 * np.eye(2), 0.5 * np.eye(2))
    run = simulate(problem, layers, GradientFlow(1e-6), horizon=5.0, progress=interrupted)
    assert run.result is RESULTS.interrupted and run.stats["accepted_steps"] == 0
    np.testing.assert_array_equal(run.params[0], layers[0])
