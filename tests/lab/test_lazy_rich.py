"""The room between lazy and rich: numbers against SciPy, scripts and commands against the page, limits."""

import contextlib
import io
import math
import shlex

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.cli._build import build
from deeplinear.cli._options import SIMULATE, resolve
from deeplinear.lab._figures import Curves, Map, Matrix
from deeplinear.lab._room import Cancelled, Watch
from deeplinear.lab.rooms._lazy_rich import ROOM
from deeplinear.lab.rooms._lazy_rich_setting import CurveParams, MapParams, Task, setting_of, spectrum_of
from lab.answers import command_of, executed, fact

CURVES, MAP, SIMULATION = ROOM.views


def series(figure: object, name: str) -> np.ndarray:
    assert isinstance(figure, Curves)
    return np.array(next(one for one in figure.series if one.name == name).y, dtype=float)


def test_curves_are_those_of_the_flow() -> None:
    params = CurveParams(lam=1.5, scale=0.2, horizon=3.0, moment=0.5)
    problem, (first, second) = setting_of(params)
    task = np.asarray(problem.product((first, second)) * 0) + np.asarray(problem.loss.target)
    size = first.size

    def slope(t: float, y: np.ndarray) -> np.ndarray:
        one, two = y[:size].reshape(first.shape), y[size:].reshape(second.shape)
        gap = task - two @ one
        return np.concatenate([(two.T @ gap).ravel(), (gap @ one.T).ravel()])

    start = np.concatenate([np.asarray(first).ravel(), np.asarray(second).ravel()])
    run = solve_ivp(slope, (0, 3.0), start, method="DOP853", rtol=1e-11, atol=1e-13, t_eval=[1.5, 3.0])
    ends = [(y[:size].reshape(first.shape), y[size:].reshape(second.shape)) for y in run.y.T]
    answer = CURVES.answer(params, Watch())
    loss, modes, kernel, inputs, product, outputs = answer.figures
    one, two = ends[1]
    assert series(loss, "two layers")[-1] == pytest.approx(0.5 * np.sum((two @ one - task) ** 2), rel=1e-5)
    values = np.linalg.svd(two @ one, compute_uv=False)
    assert [series(modes, f"mode {i + 1}")[-1] for i in range(3)] == pytest.approx(values, rel=1e-6)
    assert 0 < series(kernel, "distance")[-1] < 1
    one, two = ends[0]
    for figure, wanted in ((inputs, one.T @ one), (product, two @ one), (outputs, two @ two.T)):
        assert isinstance(figure, Matrix)
        assert np.array(figure.values) == pytest.approx(wanted, rel=1e-3, abs=1e-5)


def test_the_map_is_made_of_the_curves() -> None:
    params = MapParams(time=2.0, outputs=3, hidden=3)
    kernel, loss = MAP.answer(params, Watch()).figures
    assert isinstance(kernel, Map) and isinstance(loss, Map)
    row, column = 20, 30
    lam, scale = kernel.xs[column], kernel.ys[row]
    assert lam is not None and scale is not None
    here = CURVES.answer(CurveParams(lam=lam, scale=scale, horizon=2.0), Watch())
    assert kernel.z[row][column] == pytest.approx(series(here.figures[2], "distance")[-1], rel=1e-4)
    assert loss.z[row][column] == pytest.approx(series(here.figures[0], "two layers")[-1], rel=1e-4)
    assert kernel.pick == ("lam", "scale")


def test_facts_tell_the_regime() -> None:
    told = {
        lam: {fact.label: fact.value for fact in CURVES.answer(CurveParams(lam=lam, inputs=4), Watch()).facts}
        for lam in (0.0, 9.0, -9.0)
    }
    assert [told[lam]["Regime"] for lam in (0.0, 9.0, -9.0)] == ["rich", "lazy", "lazy at first, rich late"]


def test_a_regime_that_is_not_determined_is_told() -> None:
    """More hidden units than modes leave the limit open, which is no failure of the page."""
    answer = CURVES.answer(CurveParams(lam=-2.0, inputs=6, outputs=2), Watch())
    regime = next(one for one in answer.facts if one.label == "Regime")
    assert regime.value == "none" and "rank" in regime.note and "residual" not in regime.note


def test_the_wrong_sign_is_told() -> None:
    labels = set()
    for seed in range(6):
        params = CurveParams(inputs=3, seed=seed)
        facts = {fact.label: fact for fact in CURVES.answer(params, Watch()).facts}
        problem, layers = setting_of(params)
        signs = np.linalg.det(np.asarray(problem.product(layers))) * np.linalg.det(problem.loss.target)
        assert ("Obstruction" in facts) == (signs < 0)
        labels.add("Obstruction" in facts)
    assert labels == {True, False}


def test_simulation_and_closed_form_agree_and_a_cancelled_one_ends() -> None:
    answer = SIMULATION.answer(CurveParams(horizon=2.0), Watch())
    assert series(answer.figures[1], "difference").max() < 1e-8
    with pytest.raises(Cancelled):
        SIMULATION.answer(CurveParams(horizon=2.0), Watch(cancelled=lambda: True))


def test_scripts_give_the_numbers_of_the_page() -> None:
    """The one layer too, by the closed form of one layer."""
    params = CurveParams(lam=-2.0, scale=0.3, horizon=4.0, moment=0.5)
    text = io.StringIO()
    names = executed(CURVES.python(params))
    with contextlib.redirect_stdout(text):
        exec(MAP.python(MapParams()), {})
        exec(SIMULATION.python(params), {})
    assert float(text.getvalue().split()[-1]) < 1e-8
    answer = CURVES.answer(params, Watch())
    losses, modes, kernel, *states = answer.figures
    assert isinstance(losses, Curves) and isinstance(modes, Curves)
    run, single = names["run"], names["single"]
    assert np.asarray(run["loss"]) == pytest.approx(series(losses, "two layers"), rel=1e-6)
    assert np.asarray(run["kernel_distance"]) == pytest.approx(series(kernel, "distance"), abs=1e-9)
    assert np.asarray(single["loss"]) == pytest.approx(series(losses, "one layer"), rel=1e-9)
    dashed = np.array([one.y for one in modes.series if one.name == "one layer"], dtype=float).T
    assert np.asarray(single["singular_values"]) == pytest.approx(dashed, rel=1e-9)
    for figure, name in zip(states, ("input", "product", "output"), strict=True):
        assert isinstance(figure, Matrix)
        assert np.asarray(getattr(names["now"], name)) == pytest.approx(np.array(figure.values), abs=1e-9)
    assert ", ".join(f"{one:.2g}" for one in names["half_learnt"]) == fact(answer, "Modes half learnt at t")
    assert f"{float(names['found'].rate):.3g}" == fact(answer, "Last rate")


def test_two_small_layers_wait_and_learn_the_strongest_first() -> None:
    """Far horizons make no difference: the times do not depend on where the curves are drawn."""
    told = []
    for horizon in (8.0, 1000.0):
        answer = CURVES.answer(CurveParams(scale=0.01, horizon=horizon), Watch())
        told.append([float(one) for one in fact(answer, "Modes half learnt at t").split(", ")])
    assert told[0] == pytest.approx(told[1], rel=0.05)
    assert math.log(2) < told[0][0] < told[0][1] < told[0][2]
    assert fact(CURVES.answer(CurveParams(horizon=0.1), Watch()), "Modes half learnt at t") == "later, later, later"


def test_commands_begin_from_the_same_layers() -> None:
    params = CurveParams(lam=2.0, scale=0.3, seed=7)
    words = shlex.split(command_of(SIMULATION, params) or "")
    flags = {words[i].removeprefix("--"): words[i + 1] for i in range(2, len(words), 2)}
    run = build(resolve(SIMULATE, flags, None))
    problem, layers = setting_of(params)
    assert np.asarray(run.problem.loss.target) == pytest.approx(np.asarray(problem.loss.target), abs=1e-12)
    for mine, theirs in zip(layers, run.starts[0], strict=True):
        assert np.asarray(theirs) == pytest.approx(np.asarray(mine), abs=1e-12)


@pytest.mark.parametrize("values", [{"inputs": 1, "hidden": 1, "outputs": 1}, {"hidden": 1}, {"ratio": 1.0}])
def test_ends_of_the_limits_are_answered(values: dict[str, float]) -> None:
    for lam in (-10.0, 0.0, 10.0):
        params = CurveParams(**{"lam": lam, "scale": 1e-3, "horizon": 1000.0, **values})
        answer = CURVES.answer(params, Watch())
        assert all(math.isfinite(value) for value in series(answer.figures[0], "two layers"))
    assert len(spectrum_of(Task(inputs=8, outputs=2))) == 2
