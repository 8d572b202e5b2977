"""Flows that the native engine moves, held to SciPy and to NumPy; no program is compiled here."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from deeplinear.core import RESULTS, Exponential, RungeKutta, Stabilised, dopri8, kvaerno5, tableau, tsit5
from deeplinear.dynamics import GradientFlow, Switching, _flow, _native, _native_spec, ensemble, resume, simulate, until
from deeplinear.engine import available
from deeplinear.models import DeepLinear, Problem, Regression, SampleRegression, SquaredDistance
from deeplinear.probes import gradient_norm, loss
from flows import LOSSES, Flow, flat, flow, start

pytestmark = pytest.mark.skipif(not available(), reason="the engine is not compiled on this machine")

INTEGRATORS = {
    "switching": None,
    "tsit5": tsit5(),
    "dopri8": dopri8(),
    "stabilised": Stabilised(),
    "exponential": Exponential(),
}

WIDTHS = ((3, 2), (4, 1, 3), (1, 5, 1), (3, 4, 2, 3), (2, 3, 5, 2, 2), (1,) * 6, (2, 3, 2, 1, 3, 2, 3), (4, 6, 3))

LAYOUTS = {"lanes": (700, 40.0**3), "wide": (0, 1e300), "BLAS": (0, 1.0)}
"""Weights above which a network is wide, and multiplications from which its products go to BLAS."""


def lay_out(patch: pytest.MonkeyPatch, layout: str) -> None:
    """Move networks of any size one a lane, one at a time, or one at a time with all products by BLAS."""
    wide, least = LAYOUTS[layout]
    patch.setattr(_native_spec, "WIDE", wide)
    patch.setattr(_native_spec, "BLAS", least)


def native(case: Flow, params: Any, method: Any = None, **settings: Any) -> Any:
    return simulate(case.problem, params, method, engine="native", **settings)


def gap(params: Any, expected: np.ndarray, case: Flow) -> float:
    """Largest distance of a layer from what it should be, against the layer."""
    pairs = zip(params, case.layers(expected), strict=True)
    return max(float(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)) for mine, theirs in pairs)


CASES = [
    (name, l2, WIDTHS[(3 * i + 5 * j) % len(WIDTHS)], list(LAYOUTS)[(i + j) % 3])
    for (i, name), (j, l2) in itertools.product(enumerate(LOSSES), enumerate((0.0, 0.3)))
]


@pytest.mark.parametrize(("name", "l2", "widths", "layout"), CASES)
def test_every_integrator_follows_the_flow(
    name: str, l2: float, widths: tuple[int, ...], layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(monkeypatch, layout)
    rng = np.random.default_rng(len(name) + len(widths))
    case, params = flow(name, widths, rng, l2), start(widths, rng)
    expected = case.at(flat(params), (0.0, 0.4, 3.0))
    scale = case.value(flat(params)) + case.energy(np.zeros((widths[-1], widths[0])))
    for label, integrator in INTEGRATORS.items():
        for rtol, times in ((1e-4, [0.0, 0.4, 3.0]), (1e-8, [0.0, 0.4]), (1e-8, [0.0, 0.4, 3.0])):
            method = GradientFlow(rtol, integrator=integrator)
            run = native(case, params, method, times=times, probes=[loss, gradient_norm])
            assert run.result is RESULTS.completed and run.info["engine"].startswith("native")
            assert run.times.tolist() == times
            assert gap(run.params, expected[len(times) - 1], case) < 100 * rtol, label
            state = flat(run.params)
            assert abs(run["loss"][-1] - case.value(state)) < 1e-14 * scale, label
            assert abs(run["gradient_norm"][-1] - np.linalg.norm(case.slope(state))) < 1e-13 * scale, label


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_spectral_radius_is_that_of_a_power_iteration(
    widths: tuple[int, ...], layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three iterations from the slope, at the start: what every product with the Jacobian enters."""
    lay_out(monkeypatch, layout)
    for name, l2 in itertools.product(LOSSES, (0.0, 0.3)):
        rng = np.random.default_rng(len(name))
        case, params = flow(name, widths, rng, l2), start(widths, rng)
        run = native(case, params, times=[0.0, 1.0], max_steps=1)
        h, rho, direction = (np.asarray(leaf) for leaf in run.state[:3])
        y = flat(params)
        v = case.slope(y)
        v /= np.linalg.norm(v)
        bound = 0.0
        for _ in range(3):
            w = case.jacobian(y, v)
            quotient = v @ w
            bound = abs(quotient) + np.linalg.norm(w - quotient * v)
            v = w / np.linalg.norm(w)
        np.testing.assert_allclose(rho, 1.1 * bound, rtol=1e-10, err_msg=f"{name} {l2}")
        np.testing.assert_allclose(direction, v, rtol=1e-8, atol=1e-10)
        assert h > 0


@pytest.mark.parametrize(
    "widths",
    [(1, 90, 90, 1), (90, 1, 90), (28, 25), (28, 26), (30, 30, 30), (45, 44, 43), (2, 300, 300, 1), (1, 701), (701, 1)],
    ids=str,
)
def test_sizes_about_the_bounds_of_lanes_and_of_blas(widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    params = start(widths, rng, 0.5 / np.sqrt(max(widths)))
    for name, l2 in (("distance", 0.0), ("regression", 0.1), ("completion", 0.0)):
        case = flow(name, widths, rng, l2)
        y = flat(params)
        times = [0.0, 0.2 / np.linalg.norm(case.slope(y))]
        run = native(case, params, GradientFlow(1e-9), times=times, probes=[loss, gradient_norm])
        lanes = run.info["engine"].rsplit(maxsplit=1)[-1]
        assert (lanes == "1") is (len(y) > 700)
        np.testing.assert_allclose(run["loss"][0], case.value(y), rtol=1e-12)
        np.testing.assert_allclose(run["gradient_norm"][0], np.linalg.norm(case.slope(y)), rtol=1e-12)
        assert gap(run.params, case.at(y, times)[-1], case) < 1e-8


@pytest.mark.parametrize("size", [1e-14, 1e-6, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("widths", [(2, 3), (2, 3, 2), (2, 2, 2, 2)])
def test_starts_of_any_size(size: float, widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    case, params = flow("distance", widths, rng), start(widths, rng, size)
    depth, y = len(widths) - 1, flat(params)
    # Small ones of depth 2 leave the plateau, those of depth 3 begin to move; large ones move at once.
    horizon = 2 * size ** (2 - 2 * depth) if size > 1 else 0.05 / size if depth == 3 else 1.0 + 0.5 * np.log(1 / size)
    expected = case.at(y, [horizon], atol=1e-14 * min(size, 1.0))[-1]
    for label, integrator in INTEGRATORS.items():
        if label == "exponential" and size > 1:
            continue
        run = native(case, params, GradientFlow(1e-8, integrator=integrator), times=[0.0, horizon])
        assert run.result is RESULTS.completed, label
        assert gap(run.params, expected, case) < 1e-5, label


def test_stiff_ends_are_followed() -> None:
    """Inputs of very different size: after the fast directions are learnt, stability bounds explicit steps."""
    rng = np.random.default_rng(5)
    widths = (4, 3, 3)
    x, y = np.diag([1.0, 0.3, 30.0, 100.0]) @ rng.standard_normal((4, 20)), rng.standard_normal((3, 20))
    case = Flow(
        Problem(DeepLinear(widths), Regression.from_data(x, y)),
        lambda p: 0.5 * np.sum((p @ x - y) ** 2) / 20,
        lambda p: (p @ x - y) @ x.T / 20,
        widths,
        0.0,
    )
    params = start(widths, rng)
    times = [0.0, 0.1, 3.0]
    expected = case.at(flat(params), times, method="LSODA", atol=1e-13)
    run = native(case, params, GradientFlow(1e-8), times=times)
    assert run.stats["stabilised_steps"] > 0
    assert gap(run.params, expected[-1], case) < 1e-5
    explicit = native(case, params, GradientFlow(1e-8, integrator=dopri8()), times=times)
    assert run.stats["gradient_evaluations"] < 0.3 * explicit.stats["gradient_evaluations"]
    assert gap(explicit.params, expected[-1], case) < 1e-5


# --- The law of step control, in NumPy once more ----------------------------------------------------------------------


def walk(case: Flow, y: np.ndarray, pair: RungeKutta, rtol: float, horizon: float, floor: float) -> np.ndarray:
    """Times of the steps that an explicit pair takes."""
    lower, weights = tableau(pair)
    p, eps, t, last, times = pair.error_order, np.finfo(float).eps, 0.0, 1.0, [0.0]
    limit = (float(np.prod(np.arange(1.0, p + 2))) * rtol) ** (1 / (p + 1))
    f = case.slope(y)
    h = 0.05 * min(np.linalg.norm(f) / np.linalg.norm(case.jacobian(y, f)), np.linalg.norm(y) / np.linalg.norm(f))
    direction, age, rho = f / np.linalg.norm(f), 32, 0.0
    while t < horizon:
        if age >= 32:
            for _ in range(3):
                w = case.jacobian(y, direction)
                quotient = direction @ w
                rho = 1.1 * (abs(quotient) + np.linalg.norm(w - quotient * direction))
                direction = w / np.linalg.norm(w)
            age = 0
        left = horizon - t
        step = left if left <= 1.001 * h else left / 2 if left < 2 * h else h
        slopes = [f]
        for row in lower[1:]:
            slopes.append(case.slope(y + step * sum(a * k for a, k in zip(row, slopes, strict=False))))
        new, error = (y + step * sum(a * k for a, k in zip(row, slopes, strict=True)) for row in (lower[-1], weights))
        error = error - y
        ratio = 0.0
        for mine, before, after in zip(case.layers(error), case.layers(y), case.layers(new), strict=True):
            size = max(np.linalg.norm(before), np.linalg.norm(after))
            ratio = max(ratio, np.linalg.norm(mine) / (size * max(rtol, floor * eps)))
        speed, now, size = np.linalg.norm(f), np.linalg.norm(slopes[-1]), np.linalg.norm(y)
        noise = 1e3 * eps * rho * size
        if noise < now > speed:
            ratio = max(ratio, (np.log(now / speed) / limit) ** p)
        old, value = case.value(y), case.value(new)
        quiet = value - old < 16 * eps * (old + rho * size**2) and (f + slopes[-1]) @ (new - y) > 0
        if value - old > 1e-9 * old and not quiet and speed > noise:
            ratio = max(ratio, 2.0**p)
        ratio = np.clip(ratio, 1e-10, 1e10)
        age += 1
        if ratio <= 1:
            factor = np.clip(0.9 * ratio ** (-0.7 / p) * last ** (0.4 / p), 0.2, 5.0)
            h = max(h, step * factor) if step < h else step * factor
            t, y, f, last = (horizon if step == left else t + step), new, slopes[-1], max(ratio, 1e-4)
            times.append(t)
        else:
            h = step * np.clip(0.9 * ratio ** (-1 / p), 0.1, 0.9)
    return np.array(times)


@pytest.mark.parametrize("pair", [tsit5(), dopri8()], ids=["tsit5", "dopri8"])
@pytest.mark.parametrize(
    ("size", "rtol", "horizon", "l2"),
    [(1.0, 1e-6, 2.0, 0.1), (1e-5, 1e-5, 20.0, 0.0), (3.0, 1e-3, 2.0, 0.0), (0.5, 1e-4, 25.0, 0.0)],
    ids=["moving", "plateau", "rejections", "quiet"],
)
@pytest.mark.parametrize("floor", [None, 1e10])
def test_steps_obey_the_law(
    pair: RungeKutta,
    size: float,
    rtol: float,
    horizon: float,
    l2: float,
    floor: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every single step is as long as the law says: weights of the error, bound on growth, floor, landing.

    Tolerances are above the floor, so it is raised here to be seen.
    """
    rng = np.random.default_rng(2)
    widths = (2, 3, 2)
    case, params = flow("distance", widths, rng, l2), start(widths, rng, size)
    if floor is not None:
        monkeypatch.setattr(_flow, "FLOOR", floor)
        monkeypatch.setattr(_native_spec, "law", _native_spec.law.__wrapped__)
    run = native(case, params, GradientFlow(rtol, integrator=pair), horizon=horizon, every=1)
    assert run.result is RESULTS.completed
    expected = walk(case, flat(params), pair, rtol, horizon, floor or 8)
    assert len(run.times) == len(expected)
    np.testing.assert_allclose(run.times, expected, rtol=1e-3)


@pytest.mark.parametrize("rtol", [1e-3, 1e-6, 1e-9])
def test_rounding_of_a_quiet_gradient_costs_no_steps(rtol: float) -> None:
    rng = np.random.default_rng(2)
    for name in ("distance", "regression", "completion"):
        case, params = flow(name, (3, 4, 3), rng), start((3, 4, 3), rng)
        run = native(
            case, params, GradientFlow(rtol), times=[0.0, 1e4, 1e9], probes=[loss, gradient_norm], max_steps=2000
        )
        assert run.result in (RESULTS.completed, RESULTS.steady)
        assert run.times.tolist() == [0.0, 1e4, 1e9]
        assert run["gradient_norm"][-1] < 1e-12
        assert run.stats["rejected_steps"] < 200


@pytest.mark.parametrize(("integrator", "order"), [(tsit5(), 5), (dopri8(), 8), (Stabilised(), 4), (Exponential(), 4)])
def test_one_step_has_the_order_of_its_method(integrator: Any, order: int) -> None:
    """A step of a given length, forced through the memory of a run: its error falls with a power of the length."""
    rng = np.random.default_rng(4)
    widths = (3, 2, 3)
    case, params = flow("regression", widths, rng, 0.2), start(widths, rng)
    method = GradientFlow(0.1, integrator=integrator)
    begun = native(case, params, method, times=[0.0, 1.0], max_steps=1)
    lengths, errors = (0.1, 0.05), []
    for length in lengths:
        ready = dataclasses.replace(begun, state=(np.asarray(length), *begun.state[1:]))
        after = resume(ready, case.problem, method, horizon=1e3, max_steps=1, engine="native")
        step = float(after.final_time - begun.final_time)
        assert step == pytest.approx(length, rel=1e-12)
        exact = case.at(flat(begun.params), [step], rtol=1e-13)[-1]
        errors.append(np.linalg.norm(flat(after.params) - exact))
    assert np.log2(errors[0] / errors[1]) > order  # order + 1 in the limit


def test_parts_that_the_engine_does_not_have_are_left_to_xla() -> None:
    """An automatic choice among other integrators is not made into one among those of the engine."""
    problem = Problem(DeepLinear((2, 2)), SquaredDistance(np.eye(2)))
    for switching in (
        Switching(tsit5(), kvaerno5(), Exponential()),
        Switching(tsit5(), Stabilised(), Stabilised()),
        Switching(Stabilised(), Stabilised(), Exponential()),
    ):
        with pytest.raises(ValueError, match="native engine cannot move this run: the integrator"):
            simulate(problem, [np.eye(2)], GradientFlow(integrator=switching), horizon=1.0, engine="native")


def test_what_would_outgrow_the_engine_is_left_to_xla() -> None:
    """A covariance of thousands of inputs for a few samples, or a decomposition that nothing could interrupt."""
    ones = np.ones((2001, 3))
    many = Problem(DeepLinear((2001, 1, 2)), SampleRegression(ones, ones[:2]))
    assert "too many inputs" in str(_native.refused_run(many, GradientFlow(), ()))
    assert _native.refused_run(Problem(many.model, SquaredDistance(np.ones((2, 2001)))), GradientFlow(), ()) is None
    for width, fits in ((10, True), (11, False)):
        square = Problem(DeepLinear((width, width, width)), SquaredDistance(np.eye(width)))
        refused = _native.refused_run(square, GradientFlow(integrator=Exponential()), ())
        assert (refused is None) is fits
        assert _native.refused_run(square, GradientFlow(), ()) is None


def test_the_engine_has_room_for_eight_rules() -> None:
    problem = Problem(DeepLinear((2, 2)), SquaredDistance(np.eye(2)))
    rules = tuple(until(loss, below=10.0**-k) for k in range(9))
    assert _native.refused_run(problem, GradientFlow(), rules[:8]) is None
    assert _native.refused_run(problem, GradientFlow(), rules) == "there are more than 8 stopping rules"
    run = simulate(problem, [np.zeros((2, 2))], GradientFlow(1e-8), until=rules[:0:-1], engine="native")
    assert run.rule == "loss below 0.1" and float(run.final("loss")) == pytest.approx(0.1, rel=0.01)


def test_batched_numbers_of_every_loss_reach_their_members() -> None:
    """Members with problems of their own end where they end alone."""
    widths = (3, 2, 3)
    for name in LOSSES:
        rng = np.random.default_rng(7)
        cases = [flow(name, widths, rng, 0.1 * i) for i in range(5)]
        if name == "entries":  # as many observations in all
            cases = [case for case in cases if len(case.problem.loss.values) == len(cases[0].problem.loss.values)]
        params = [start(widths, rng) for _ in cases]
        run = ensemble([case.problem for case in cases], params, GradientFlow(1e-8), times=[1.0], engine="native")
        for i, (case, own) in enumerate(zip(cases, params, strict=True)):
            assert gap(run.member(i).params, case.at(flat(own), [1.0])[-1], case) < 1e-6, name
