"""The room of geometry: its numbers against formulas and SciPy, its edges, its scripts."""

import contextlib
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.integrate
from pydantic import ValidationError

from deeplinear.experiments import experiment, override, split_assignments
from deeplinear.lab._figures import Answer
from deeplinear.lab._room import Cancelled, Watch
from deeplinear.lab.rooms._geometry import ROOM
from deeplinear.lab.rooms._geometry_cloud import GRADIENT, CloudParams, cloud_command, cloud_starts
from deeplinear.lab.rooms._geometry_entropy import HIGH, LOW, POINTS, MapParams, RelaxParams
from deeplinear.lab.rooms._geometry_paths import PathParams
from lab.answers import answered, command_of, executed

DIGITS = 2e-6
"""Answers have seven significant digits."""


def ask(view: str, **values: Any) -> tuple[Any, Answer]:
    chosen = ROOM.view(view)
    params = chosen.params(**values)
    return params, chosen.answer(params, Watch())


def preset(title: str) -> dict[str, Any]:
    return next(one.values for one in ROOM.presets if one.title == title)


def figure(answer: Answer, name: str) -> Any:
    return next(one for one in answer.figures if one.name == name)


def series(answer: Answer, name: str, label: str) -> tuple[np.ndarray, np.ndarray]:
    found = [one for one in figure(answer, name).series if one.name == label]
    return tuple(np.array([getattr(one, axis) for one in found], dtype=float) for axis in ("x", "y"))  # type: ignore[return-value]


def fact(answer: Answer, label: str) -> Any:
    return next(one for one in answer.facts if one.label == label)


def printed(view: str, params: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(ROOM.view(view).python(params), {})
    return out.getvalue()


def test_presets_fit_their_views() -> None:
    for one in ROOM.presets:
        ROOM.view(one.view).params(**one.values)
    assert len({one.title for one in ROOM.presets}) == len(ROOM.presets)


def test_names_that_views_share_mean_the_same() -> None:
    """The page keeps the value of a name from view to view."""
    seen: dict[str, Any] = {}
    for view in ROOM.views:
        for name, field in view.params.model_json_schema()["properties"].items():
            assert seen.setdefault(name, field) == field, name


# --- Shortest paths ---------------------------------------------------------------------------------------------------


def test_the_command_finds_the_same_paths(tmp_path: Path) -> None:
    params, answer = ask("geodesics")
    told = answered(command_of(ROOM.view("geodesics"), params), tmp_path, "--no-plot")
    assert [one["depth"] for one in told] == [1, 2, 3, 5, "infinity"]
    for row, one in zip(figure(answer, "table").rows, told, strict=True):
        assert float(row[2]) == pytest.approx(one["length"], rel=DIGITS)
        assert float(row[3]) == pytest.approx(one["lower_bound"], rel=DIGITS)


@pytest.fixture(scope="module")
def paths() -> tuple[PathParams, Answer]:
    return ask("geodesics", normalised=False)


def test_lengths_are_the_reference_values(paths: tuple[PathParams, Answer]) -> None:
    rows = figure(paths[1], "table").rows
    assert [row[0] for row in rows] == ["1", "2", "3", "5", "∞"]
    lengths = {row[0]: float(row[2]) for row in rows}
    assert lengths["1"] == pytest.approx(math.sqrt(0.49 + 1.21 + 1.21 + 0.09), rel=1e-5)
    assert lengths["2"] == pytest.approx(1.343979019434, rel=1e-5)
    assert lengths["3"] == pytest.approx(1.122235286352, rel=1e-5)
    assert lengths["∞"] == pytest.approx(2.007791976012, rel=1e-5)
    bounds = {row[0]: float(row[3]) for row in rows}
    assert bounds["2"] == pytest.approx(0.005554606672, rel=1e-5)
    assert all(bounds[name] <= lengths[name] for name in lengths)
    # A straight line between the same ends is no shorter.
    straight = {row[0]: float(row[4]) for row in rows if row[4] != "–"}
    assert straight and all(straight[name] >= lengths[name] * (1 - 1e-6) for name in straight)


def test_paths_keep_what_geodesics_keep(paths: tuple[PathParams, Answer]) -> None:
    """Squared norms of layers are parabolas in time; at infinite depth the logarithm of the determinant is a line."""
    for depth in (2, 3, 5):
        t, values = series(paths[1], "spectrum", f"depth {depth}")
        norm = np.sum(values ** (2 / depth), axis=0)
        assert np.polynomial.Polynomial.fit(t[0], norm, 2)(t[0]) == pytest.approx(norm, abs=DIGITS)
    t, values = series(paths[1], "determinant", "depth ∞")
    assert np.log(values[0]) == pytest.approx(np.interp(t[0], [0, 1], np.log(values[0][[0, -1]])), abs=DIGITS)
    start, end = (np.array(one) for one in (paths[0].start, paths[0].end))
    for depth in ("1", "2", "3", "5", "∞"):
        x, y = series(paths[1], "plane", f"depth {depth}")
        assert np.stack([x[:, 0], y[:, 0]]) == pytest.approx(start, abs=DIGITS)
        assert np.stack([x[:, -1], y[:, -1]]) == pytest.approx(end, abs=DIGITS)


def test_a_bound_that_says_nothing_is_not_drawn(paths: tuple[PathParams, Answer]) -> None:
    """Here it is a hundredth of the length; at depth one the length itself is exact."""
    assert not [one for one in figure(paths[1], "lengths").series if one.name == "no curve is shorter"]
    _, answer = ask("geodesics", **preset("A common frame"))
    places, bounds = (one[0] for one in series(answer, "lengths", "no curve is shorter"))
    assert np.isnan(bounds[places == 1]).all()
    assert bounds[places < 1] == pytest.approx([float(row[3]) for row in figure(answer, "table").rows[1:]], rel=1e-6)


def test_path_script_prints_the_same(paths: tuple[PathParams, Answer]) -> None:
    text = printed("geodesics", paths[0])
    assert "numeric 1.34397901" in text and "numeric 1.12223528" in text and "numeric 2.00779197" in text


@pytest.mark.covers("geometry:F25")
def test_the_printed_curve_is_longer() -> None:
    _, answer = ask("geodesics", normalised=False, **preset("A positive pair, and the printed curve"))
    rows = {row[0]: [float(one) for one in row[1:]] for row in figure(answer, "printed").rows}
    assert rows["2"] == pytest.approx([1.374493, 1.377145, 1.414214, 0.316228], abs=2e-6)
    assert rows["3"][:3] == pytest.approx([0.982462, 0.985193, 1.017408], abs=2e-6)
    assert "positive pair (depth 2)" in fact(answer, "Closed form").value


def test_a_common_frame_is_closed_at_every_depth() -> None:
    _, answer = ask("geodesics", **preset("A common frame"))
    rows = {row[0]: row for row in figure(answer, "table").rows}
    assert {rows[name][1] for name in ("2", "3", "5", "∞")} == {"common frame"}
    assert float(rows["∞"][2]) == pytest.approx(math.hypot(math.log(4), math.log(3)), rel=1e-5)
    assert float(rows["3"][2]) == pytest.approx(3 * math.hypot(4 ** (1 / 3) - 1, 3 ** (1 / 3) - 1), rel=1e-5)
    assert not any(one.name == "printed" for one in answer.figures)


@pytest.mark.parametrize(
    ("start", "end", "word"),
    [
        ([[1.0, 0.2], [-0.3, 0.8]], [[0.3, 0.9], [0.8, 0.5]], "infinitely far apart"),
        ([[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], "singular"),
        ([[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]], "singular"),
    ],
)
def test_ends_without_a_path_are_told(start: Any, end: Any, word: str) -> None:
    params, answer = ask("geodesics", start=start, end=end)
    assert word in fact(answer, "Determinants").value and fact(answer, "Determinants").tone == "bad"
    assert {one.name for one in figure(answer, "plane").series} == {"depth 1", "A", "B"}
    (remark,) = answer.remarks
    assert ("opposite signs" if word == "infinitely far apart" else "A is singular") in remark
    assert "residual" not in remark
    assert "HypothesisError" not in printed("geodesics", params)


def test_steep_and_far_ends_are_answered() -> None:
    _, answer = ask("geodesics", start=[[100.0, 0.0], [0.0, 1e-9]], end=[[1.0, 0.0], [0.0, 1.0]])
    assert any("differ by more than" in text for text in answer.remarks)
    _, answer = ask("geodesics", start=[[1.0, 0.0], [0.0, 1.0]], end=[[-2.0, 0.1], [0.0, -1.0]])
    assert fact(answer, "Turn of the polar factors").tone == "warning"
    with pytest.raises(ValidationError, match="two rows of two"):
        PathParams(start=[[1.0, 2.0]])


# --- Entropy ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def entropies() -> tuple[MapParams, Answer]:
    return ask("entropy", until=30.0)


def test_maps_are_the_formulas(entropies: tuple[MapParams, Answer]) -> None:
    _, answer = entropies
    surface, free = (figure(answer, name) for name in ("entropy", "free-energy"))
    a, b = np.meshgrid(surface.xs, surface.ys)
    with np.errstate(invalid="ignore", divide="ignore"):
        formula = np.where(a == b, np.log(a), 0.5 * np.log((a**2 - b**2) / (2 * np.log(a / b))))
    assert np.array(surface.z) == pytest.approx(formula, abs=1e-4)
    assert np.array(free.z) == pytest.approx((a**2 + b**2) / 2 - formula, abs=1e-4)
    assert (surface.x.low, surface.x.high) == (LOW, HIGH)
    assert fact(answer, "Equal singular values").value == f"s = {math.sqrt(0.5):.5g}, stable"


def test_the_flow_is_that_of_scipy(entropies: tuple[MapParams, Answer]) -> None:
    params, answer = entropies

    def slope(s: np.ndarray) -> np.ndarray:
        u = math.log(s[0] / s[1])
        turn = 1 / math.tanh(u) - 1 / u if abs(u) > 1e-6 else u / 3
        return np.array([1 + turn, 1 - turn]) / (2 * s)

    times = np.concatenate([[0.0], np.geomspace(params.until / 1000, params.until, POINTS)])
    found = scipy.integrate.solve_ivp(
        lambda t, s: s**2 * (slope(s) / params.beta - s),
        (0, params.until),
        [params.first, params.second],
        t_eval=times,
        rtol=1e-9,
        atol=1e-12,
    )
    x, y = series(answer, "free-energy", "flow")
    assert np.concatenate([x, y]) == pytest.approx(found.y, abs=1e-5)
    assert found.y[:, -1] == pytest.approx(math.sqrt(0.5), abs=1e-6)


def test_two_values_part_at_a_low_power() -> None:
    _, answer = ask("entropy", **preset("Two values part (p = 0.6)"))
    assert fact(answer, "Equal singular values").tone == "bad"
    assert fact(answer, "Split state, stable").value == "0.6458 and 0.08682"


def test_the_force_of_the_entropy_is_compared() -> None:
    """Half the logarithm of the sum at depth two, so the same on both; at infinite depth the smaller one feels more."""
    words = [
        fact(ask("entropy", **values)[1], "Force of the entropy").note
        for values in ({"depth": "2"}, {"first": 1.0, "second": 1.0}, {}, {"first": 0.4, "second": 2.2})
    ]
    assert words == ["The same on both."] * 2 + ["Stronger on the smaller one."] * 2


def test_map_script_finds_maps_and_split_state() -> None:
    params, answer = ask("entropy", power=0.6)
    names = executed(ROOM.view("entropy").python(params))
    for name, values in (("entropy", "surface"), ("free-energy", "heights")):
        assert np.array(figure(answer, name).z) == pytest.approx(np.asarray(names[values]), rel=1e-9)
    (split,) = names["split"]
    told = fact(answer, "Split state, stable").value
    assert told == " and ".join(f"{one:.4g}" for one in split.spectrum) and split.stable


def test_the_critical_power_of_depth_two_is_neutral() -> None:
    _, answer = ask("entropy", depth="2", power=1.0)
    assert fact(answer, "Equal singular values").value.endswith("neutral")


def test_edges_of_the_map_are_answered() -> None:
    for first, second, power, beta in ((LOW, HIGH, 0.2, 0.05), (HIGH, LOW, 3.0, 50.0), (1.0, 1.0, 0.2, 50.0)):
        _, answer = ask("entropy", first=first, second=second, power=power, beta=beta, until=100.0)
        assert all(one is not None for row in figure(answer, "free-energy").z for one in row)


def test_map_script_prints_the_same(entropies: tuple[MapParams, Answer]) -> None:
    text = printed("entropy", entropies[0])
    assert fact(entropies[1], "Entropy here").value[:6] in text and "0.70710678" in text


def test_ten_values_become_equal_at_the_predicted_rate() -> None:
    params, answer = ask("relaxation", **preset("Figure 4.5a"))
    values = np.array([one.y for one in figure(answer, "spectrum").series], dtype=float)
    assert values.shape[0] == 10 and values[:, -1] == pytest.approx(math.sqrt(4.5), abs=1e-4)
    assert float(fact(answer, "Rate, measured").value) == pytest.approx(22 / 3, rel=0.01)
    assert "2.12132" in printed("relaxation", params)
    # Equal values and one that splits off meet at the critical power d/(3(d-1)).
    powers, equal = series(answer, "powers", "split: the others")
    near = int(np.nanargmin(np.abs(powers[0] - 10 / 27)))
    assert equal[0, near] == pytest.approx(4.5 ** (27 / 10), rel=0.02)


# --- Low rank ---------------------------------------------------------------------------------------------------------

SMALL = {"starts": 10, "deviation": 0.5, "horizon": 5.0}


@pytest.fixture(scope="module")
def cloud() -> tuple[CloudParams, Answer, list[float]]:
    told: list[float] = []
    view = ROOM.view("cloud")
    params = CloudParams(**SMALL)
    answer = view.answer(params, Watch(lambda fraction, text, partial: told.append(fraction) if partial else None))
    return params, answer, told


def velocity(x: np.ndarray) -> np.ndarray:
    """Minus the operator of infinite depth on the gradient of the completion of a unit diagonal."""
    left, s, right = np.linalg.svd(x)
    a, b = np.meshgrid(s, s, indexing="ij")
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(a == b, a * b, (a**2 - b**2) / (2 * np.log(a / b)))
    return -left @ (means * (left.T @ np.diag(np.diag(x) - 1) @ right.T)) @ right


def test_the_cloud_is_where_scipy_puts_it(cloud: tuple[CloudParams, Answer, list[float]]) -> None:
    params, answer, _ = cloud
    x, y = series(answer, "cloud", "now")
    for k, start in enumerate(cloud_starts(params)[:3]):
        found = scipy.integrate.solve_ivp(
            lambda t, z: velocity(z.reshape(2, 2)).ravel(), (0, params.horizon), start.ravel(), rtol=1e-9, atol=1e-12
        )
        assert np.linalg.svd(found.y[:, -1].reshape(2, 2), compute_uv=False) == pytest.approx(
            [x[0, k], y[0, k]], abs=1e-4
        )
    assert fact(answer, "Kept the sign of the determinant").value == "100%"


def test_the_cloud_moves_on_the_way(cloud: tuple[CloudParams, Answer, list[float]]) -> None:
    told = cloud[2]
    assert len(told) > 10 and told == sorted(told) and told[-1] < 1


def test_cloud_script_prints_the_same(cloud: tuple[CloudParams, Answer, list[float]]) -> None:
    mean = fact(cloud[1], "Mean effective rank").value.split("→ ")[1]
    assert printed("cloud", cloud[0]).startswith(mean[:4])


def test_a_cancelled_cloud_ends() -> None:
    with pytest.raises(Cancelled):
        ROOM.view("cloud").answer(CloudParams(**SMALL), Watch(cancelled=lambda: True))


def test_parameters_have_limits() -> None:
    for kind, values in ((CloudParams, {"starts": 1000}), (RelaxParams, {"modes": "50"}), (MapParams, {"first": 0.0})):
        with pytest.raises(ValidationError):
            kind(**values)


def test_the_cloud_is_an_experiment_too() -> None:
    """The command has the same starts; where there is no such experiment there is none."""
    params = CloudParams(starts=15, deviation=0.3, horizon=20.0, seed=4)
    words = str(cloud_command(params)).split()
    spec = override(experiment(words[3]).presets["quick"], split_assignments(words[4:], "test"), "test")
    assert (spec.factor, spec.horizon, spec.gradient) == (1.0, 20.0, GRADIENT)
    starts = np.random.default_rng(spec.seed).standard_normal((spec.seeds, 2, 2)) * spec.deviation
    assert np.array_equal(starts, cloud_starts(params))
    for other in ({"size": 3}, {"layers": "2"}, {"temperature": 0.1}):
        assert cloud_command(CloudParams(**other)) is None


def test_a_flow_that_has_arrived_stays() -> None:
    """Hot and long: the integrator stops where the forces balance, and the picture goes on."""
    _, answer = ask("relaxation", power=3.0, beta=0.05, duration=100.0)
    rest = (4.5 / 0.05) ** (1 / 3)
    values = np.array([one.y for one in figure(answer, "spectrum").series], dtype=float)
    assert np.all(np.isfinite(values)) and values[:, -1] == pytest.approx(rest, rel=1e-5)
    assert np.isnan(series(answer, "spread", "largest − smallest")[1][0, -1]) and answer.remarks == []
