"""The room of the loss landscape: numbers against SciPy, NumPy and the tables of the theory; limits and scripts."""

import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.cli._build import build
from deeplinear.cli._options import SIMULATE, resolve
from deeplinear.core import flatten, unflatten
from deeplinear.exact import diagonal_limit
from deeplinear.lab._errors import LabError
from deeplinear.lab._figures import Answer
from deeplinear.lab._room import Cancelled, Watch
from deeplinear.lab.rooms import _landscape_surface
from deeplinear.lab.rooms._landscape import ROOM
from deeplinear.lab.rooms._landscape_critical import Critical, critical, critical_command, critical_script
from deeplinear.lab.rooms._landscape_run import Deep, deep, deep_command, deep_script
from deeplinear.lab.rooms._landscape_surface import Surface, surface, surface_command, surface_script
from deeplinear.landscape import KIND, critical_values, random_critical_point
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from lab.answers import answered, executed, fact

INTEGRATED = 1e-7
"""Both integrators are asked for 1e-8 or better."""

DRAWN = 1e-6
"""Numbers of an answer have seven digits, those of a matrix five."""

SMALL = Deep(inputs=2, hidden=2, outputs=2, depth=2, strongest=3.0, weakest=1.0, scale=0.01, horizon=30.0)


@pytest.fixture(autouse=True)
def _coarse(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A map of times of few starts."""
    _landscape_surface._unit_times.cache_clear()
    monkeypatch.setattr(_landscape_surface, "HALF", 4)
    yield
    _landscape_surface._unit_times.cache_clear()


def series(answer: Answer, figure: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Places and values of one series."""
    found = next(one for one in answer.figures if one.name == figure)
    one = next(one for one in found.series if one.name == name)
    return np.array(one.x, dtype=float), np.array(one.y, dtype=float)


@pytest.mark.covers("network:F44")
@pytest.mark.parametrize(("lower", "upper"), [(1, 1), (2, 1)])
def test_surface_is_the_integrated_flow(lower: int, upper: int) -> None:
    params = Surface(first=0.8, second=1.1, strength=1.3, lower=lower, upper=upper)
    answer = surface(params, Watch())

    def field(t: float, w: np.ndarray) -> list[float]:
        u, v = w
        rest = params.strength - u**lower * v**upper
        return [rest * u ** (lower - 1) * v**upper, rest * u**lower * v ** (upper - 1)]

    times, first = series(answer, "weights", "w₁")
    _, second = series(answer, "weights", "w₂")
    run = solve_ivp(field, (0.0, times[-1]), [0.8, 1.1], t_eval=times, rtol=1e-10, atol=1e-12)
    assert np.abs(run.y - [first, second]).max() < DRAWN
    x, y = series(answer, "surface", "way")
    assert np.allclose(x**2 - y**2, 0.8**2 - 1.1**2, atol=1e-5)
    limit = diagonal_limit([[0.8]] * lower + [[1.1]] * upper, params.strength)
    assert np.allclose([x[-1], y[-1]], [limit.weights[0, 0], limit.weights[-1, 0]], atol=DRAWN)
    assert fact(answer, "Ends at").startswith("a minimum")
    # The half-way time, from the same integration.
    start = 0.8**lower * 1.1**upper
    product = run.y[0] ** lower * run.y[1] ** upper
    half = np.interp(0.5, (product - start) / (params.strength - start), times)
    assert math.isclose(float(fact(answer, "50% of the way")), half, rel_tol=1e-2)


def test_times_of_other_starts_are_those_that_are_told_there() -> None:
    params = Surface(strength=2.0, lower=2)
    found = next(one for one in surface(params, Watch()).figures if one.name == "waits")
    for i, j in ((1, 2), (4, 4), (4, 1)):
        there = surface(params.model_copy(update={"first": found.xs[j], "second": found.ys[i]}), Watch())
        time = found.z[i][j]
        told = fact(there, "99% of the way")
        assert told == "never" if time is None else math.isclose(float(told), time, rel_tol=5e-3)
    assert any(time is None for row in found.z for time in row)


def test_surface_names_saddles() -> None:
    answer = surface(Surface(first=0.7, second=-1.5, lower=2, upper=1), Watch())
    x, y = series(answer, "surface", "end")
    assert x[0] == 0 and math.isclose(y[0], -math.sqrt(1.5**2 - 0.7**2), rel_tol=1e-6)
    assert fact(answer, "Ends at").startswith("a saddle") and fact(answer, "99% of the way") == "never"
    edge = surface(Surface(first=1.5, second=-1.5), Watch())
    assert fact(edge, "Ends at").startswith("a saddle, (0, ") and edge.remarks


def test_surface_at_its_limits() -> None:
    for values in (
        {"first": 0.0, "second": 0.0},
        {"first": 0.0, "second": 2.5, "lower": 3, "upper": 1},
        {"first": 1.0, "second": 1.0},
        {"first": 2.5, "second": -2.5, "strength": 0.5, "lower": 3, "upper": 1},
        {"first": 1e-3, "second": 1e-3, "strength": 3.0, "lower": 2, "upper": 2},
    ):
        answer = surface(Surface(**values), Watch())
        for name in ("w₁", "w₂", "product"):
            assert np.all(np.isfinite(series(answer, "weights", name)[1])), values


def test_surface_script_gives_the_same() -> None:
    params = Surface(first=0.3, second=0.6, lower=2)
    names = executed(surface_script(params))
    assert np.allclose(names["loss"], series(surface(params, Watch()), "loss", "loss")[1], rtol=DRAWN, atol=1e-12)


def test_critical_points_are_those_of_the_table() -> None:
    answer = critical(Critical(learnt="2"), Watch())
    table = next(one for one in answer.figures if one.name == "values")
    assert sorted(float(row[1]) for row in table.rows) == sorted(critical_values([3.0, 2.0, 1.0]).values())
    assert fact(answer, "Kind") == "strict saddle" and fact(answer, "Loss") == "5"
    graph = next(one for one in answer.figures if one.name == "graph")
    assert len(graph.nodes) == 8 and len(graph.edges) == 12
    assert [node.label for node in graph.nodes if node.strong] == ["2"]
    kinds = {"none": "non-strict saddle", "1": "non-strict saddle", "12": "non-strict saddle", "123": "global minimum"}
    for learnt, kind in kinds.items():
        assert fact(critical(Critical(learnt=learnt), Watch()), "Kind") == kind


def test_critical_curvature_is_that_of_the_loss(seed: int) -> None:
    params = Critical(learnt="1", filling="random", seed=seed + 5)
    answer = critical(params, Watch())
    widths, sigma = (3, 4, 4, 3), [3.0, 2.0, 1.0]
    layers = random_critical_point(jax.random.key(seed + 5), sigma, widths, (1,))
    model = DeepLinear(widths)

    def value(flat: jax.Array) -> jax.Array:
        return 0.5 * jnp.sum((jnp.diag(jnp.array(sigma)) - model.product(unflatten(flat, model.shapes))) ** 2)

    eigenvalues = np.linalg.eigvalsh(np.asarray(jax.jit(jax.hessian(value))(flatten(layers))))
    _, drawn = series(answer, "hessian", "eigenvalues")
    assert np.allclose(drawn, eigenvalues, atol=1e-5 * eigenvalues[-1])
    falls = series(answer, "down", "loss")[1]
    assert math.isclose(falls[0], 2.5, rel_tol=1e-6) and falls.min() < 2.5 - 1e-3
    counts = executed(critical_script(params))["counts"]
    assert str(counts.index) == fact(answer, "Falling directions")


@pytest.mark.parametrize(
    "values",
    [{"weakest": 3.0}, {"learnt": "4"}, {"learnt": "12", "hidden": 1}, {"learnt": "234", "modes": 2}],
)
def test_critical_refuses_in_words(values: dict[str, Any]) -> None:
    with pytest.raises(LabError) as caught:
        critical(Critical(**values), Watch())
    assert caught.value.failure.fields and len(str(caught.value)) > 30


def test_critical_at_its_limits() -> None:
    for values in ({"modes": 1, "hidden": 1, "depth": 2, "learnt": "none"}, {"hidden": 1, "learnt": "1"}):
        assert critical(Critical(**values), Watch()).facts


def test_commands_give_the_numbers_of_the_page(tmp_path: Path) -> None:
    params = Surface(first=0.8, second=1.1, strength=1.3)
    (told,) = answered(surface_command(params), tmp_path)
    assert told["final"]["loss"] == pytest.approx(series(surface(params, Watch()), "loss", "loss")[1][-1], rel=1e-5)
    place = Critical(learnt="1", modes=2, hidden=2, filling="random")
    answer = critical(place, Watch())
    (told,) = answered(critical_command(place), tmp_path, "--no-plot")
    found = told["portrait"]["place"]
    assert KIND[found["kind"]].value == fact(answer, "Kind") and f"{found['value']:.6g}" == fact(answer, "Loss")


def test_deep_run_visits_its_saddles() -> None:
    told: list[tuple[float, Answer | None]] = []
    answer = deep(SMALL, Watch(lambda fraction, text, part: told.append((fraction, part))))
    assert fact(answer, "Saddles visited") == "∅ → {1} → global minimum {1,2}"
    assert len(fact(answer, "Times at which they are learnt").split(", ")) == 2
    assert sum(part is not None for _, part in told) > 3
    fractions = [fraction for fraction, _ in told]
    assert fractions == sorted(fractions)
    # The same start, integrated by SciPy.
    settings = resolve(SIMULATE, _flags(deep_command(SMALL)), None)
    run = build(settings)
    problem: Problem = run.problem
    assert isinstance(problem.loss, SquaredDistance)
    target = np.asarray(problem.loss.target)
    assert np.allclose(np.linalg.svd(target, compute_uv=False), [3.0, 1.0])
    start = np.concatenate([np.asarray(layer).ravel() for layer in run.starts[0]])

    def field(t: float, flat: np.ndarray) -> np.ndarray:
        one, two = flat[:4].reshape(2, 2), flat[4:].reshape(2, 2)
        rest = target - two @ one
        return np.concatenate([(two.T @ rest).ravel(), (rest @ one.T).ravel()])

    times, first = series(answer, "modes", "mode 1")
    _, second = series(answer, "modes", "mode 2")
    plain = solve_ivp(field, (0.0, times[-1]), start, t_eval=times, rtol=1e-11, atol=1e-15)
    products = plain.y[4:].T.reshape(-1, 2, 2) @ plain.y[:4].T.reshape(-1, 2, 2)
    values = np.linalg.svd(products, compute_uv=False)
    assert np.abs(values - np.stack([first, second], axis=1)).max() < 10 * INTEGRATED * values.max()
    assert float(fact(answer, "Largest change of what is conserved")) < 1e-6
    names = executed(deep_script(SMALL))
    assert [visit.name for visit in names["itinerary"](names["problem"], names["run"]).visits] == ["∅", "{1}", "{1,2}"]


def _flags(text: str) -> dict[str, str]:
    """Flags of a command that the table of settings reads."""
    run, then = text.splitlines()
    assert then == "dln landscape run"
    words = shlex.split(run)
    assert words[:2] == ["dln", "simulate"]
    return {name.removeprefix("--"): value for name, value in zip(words[2::2], words[3::2], strict=True)}


def test_deep_run_too_far_out_is_refused() -> None:
    with pytest.raises(LabError, match="smaller scale") as caught:
        deep(Deep(scale=1.5, depth=6, hidden=12), Watch())
    assert caught.value.failure.fields == ["scale", "depth"]


def test_deep_run_is_cancelled() -> None:
    with pytest.raises(Cancelled):
        deep(SMALL, Watch(cancelled=lambda: True))


def test_presets_are_values_of_their_views() -> None:
    for preset in ROOM.presets:
        view = ROOM.view(preset.view)
        params = view.params(**preset.values)
        compile(view.python(params), preset.title, "exec")
        if view.name == "deep":
            resolve(SIMULATE, _flags(deep_command(params)), None)
