"""The room of matrix completion."""

import itertools
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.core import effective_rank
from deeplinear.dynamics import coupling
from deeplinear.exact import block_limit
from deeplinear.lab._errors import LabError
from deeplinear.lab._figures import Answer
from deeplinear.lab._room import Cancelled, Watch
from deeplinear.lab.rooms._completion import ROOM
from deeplinear.lab.rooms._completion_closed import _coupling, _kernel
from deeplinear.lab.rooms._completion_setting import end_of, setting_of
from deeplinear.models import connectivity
from lab.answers import command_of, fact, tone

PAIR = [[True, False], [False, True]]
FOUR_DIGITS = 3e-4
"""Rounding of the table, and what is left of the flow at the loss where it stops."""


def ask(view: str, **values: Any) -> Answer:
    found = ROOM.view(view)
    return found.answer(found.params(**values), Watch())


def params(view: str, **values: Any) -> Any:
    return ROOM.view(view).params(**values)


def figure(answer: Answer, name: str) -> Any:
    return next(one for one in answer.figures if one.name == name)


def finite(answer: Answer) -> bool:
    cells = [
        row for one in answer.figures if one.type in ("matrix", "map") for row in getattr(one, "z", None) or one.values
    ]
    return all(value is not None for row in cells for value in row)


def line_of(view: str, values: Any) -> str:
    found = command_of(ROOM.view(view), values)
    assert found is not None
    return found


def run_script(view: str, values: Any) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(ROOM.view(view).python(values), names)
    return names


def test_presets_are_within_the_limits_and_closed_ones_answer() -> None:
    for preset in ROOM.presets:
        values = params(preset.view, **preset.values)
        if ROOM.view(preset.view).kind == "closed":
            answer = ROOM.view(preset.view).answer(values, Watch())
            assert answer.figures and answer.facts, preset.title


# ---- The mask --------------------------------------------------------------------------------------------------------


@pytest.mark.covers("completion:F2", "completion:F10")
@pytest.mark.parametrize("start", ["alpha-m", "diagonal", "gaussian"])
def test_verdicts_are_those_of_the_whole_classifier(start: str) -> None:
    """A diagonal start is judged a moment later instead of along its whole flow: the label is the same."""
    for depth, cells in itertools.product((2, 3), itertools.product((False, True), repeat=4)):
        if sum(cells) < 2:
            continue
        mask = [list(cells[:2]), list(cells[2:])]
        task = params("mask", mask=mask, depth=depth, start=start, target="random")
        setting = setting_of(task)
        found, whole = _coupling(task, setting)[0], coupling(setting.problem, setting.layers)
        assert (found.coupled, found.partition) == (whole.coupled, whole.partition), (depth, mask)
        assert found.certified  # no flow was computed, which would take seconds
        verdict = fact(ask("mask", **task.model_dump()), "Dynamics")
        assert verdict.startswith("coupled" if whole.coupled else "decoupled")


def test_pulls_of_entries_are_cosines_of_their_gradients() -> None:
    mask = [[True, False, True], [True, True, False]]
    setting = setting_of(params("mask", mask=mask, depth=3, start="gaussian", scale=0.1))
    places = np.nonzero(setting.mask)

    def entries(layers: Any) -> Any:
        return (layers[2] @ layers[1] @ layers[0])[places]

    slopes = jnp.concatenate([part.reshape(4, -1) for part in jax.jacobian(entries)(setting.layers)], axis=1)
    unit = slopes / jnp.linalg.norm(slopes, axis=1, keepdims=True)
    np.testing.assert_allclose(_kernel(setting)[0], unit @ unit.T, atol=1e-12)


def test_what_a_mask_determines() -> None:
    """At rank one: the entries whose row and column are joined by seen ones, here 2 x 2 and 1 x 1 of 3 x 3."""
    mask = [[True, True, False], [True, False, False], [False, False, True]]
    answer = ask("mask", mask=mask, depth=2, ratio=2.0)
    assert fact(answer, "Pattern") == "2 parts" and fact(answer, "Left open at rank one") == "4 of 9 entries"
    assert figure(answer, "truth").values == [[1.0, 2.0, None], [0.5, 1.0, None], [None, None, 1.0]]
    graph = figure(answer, "graph")
    assert len(graph.edges) == 4 and [node.part for node in graph.nodes] == [0, 0, 1, 0, 0, 1]
    alone = ask("mask", mask=[[True, False], [False, False]], start="gaussian")
    assert [node.part for node in figure(alone, "graph").nodes] == [0, 7, 0, 7]
    assert fact(alone, "Dynamics").startswith("one entry")
    ranked = ask("mask", mask=mask, target="random", rank=2)
    assert fact(ranked, "Seen entries") == "4 for 8 free numbers"


def test_all_sizes_answer() -> None:
    full, diagonal = np.ones((8, 8), bool).tolist(), np.eye(8, dtype=bool).tolist()
    for mask, parts in (([[True]], 1), ([[True] * 8], 1), ([[True]] * 8, 1), (full, 1), (diagonal, 8)):
        answer = ask("mask", mask=mask, depth=5, start="gaussian", scale=1e-10)
        assert fact(answer, "Pattern") == ("connected" if parts == 1 else f"{parts} parts")
        assert None not in np.ravel(figure(answer, "kernel").values)
    far = ask("mask", mask=diagonal, m=1e10, scale=1e-10, depth=5)
    assert fact(far, "Dynamics").startswith("coupled") and None not in np.ravel(figure(far, "end").values)


def test_masks_and_targets_that_are_refused() -> None:
    for values, text in (
        ({"mask": [[False, False]]}, "at least one"),
        ({"mask": [[True, False], [True]]}, "same number"),
        ({"mask": [[True, False]]}, "as many rows as columns"),
        ({"mask": np.ones((8, 8), bool).tolist(), "ratio": 0.1}, "above 1000"),
    ):
        with pytest.raises(LabError, match=text):
            ask("mask", **values)
    for values, text in (
        ({"more": [[False] * 3] * 3}, "Nothing new"),
        ({"mask": [[False]]}, "seen first"),
        ({"mask": [[True, False, True]]}, "as many rows as columns"),
    ):
        with pytest.raises(LabError, match=text):
            ask("warm", **values)


def test_coupled_is_called_low_rank_only_where_it_is() -> None:
    """Three diagonal entries, three layers: the crossover of the ratio m is at 30."""
    words = {}
    for m in (1.1, 30.0, 1e3, 1e10):
        answer = ask("mask", m=m)
        words[m] = fact(answer, "Dynamics"), tone(answer, "Dynamics")
        rank = float(fact(answer, "Effective rank at the end"))
        assert (words[m][1] == "good") == (rank < 1.05) and (words[m][1] == "bad") == (rank > 2.7)
    assert words[1.1] == ("coupled: ends near rank one", "good")
    assert words[1e10] == words[1e3] == ("coupled, but too weakly: ends near rank 3", "bad")
    for corner, word in ((False, "not known"), (True, "zero loss is the target itself")):
        answer = ask("mask", mask=[[True, True], [corner, True]])
        assert (fact(answer, "Dynamics"), tone(answer, "Dynamics")) == ("coupled", "plain")
        assert fact(answer, "Where the flow ends") == word


@pytest.mark.parametrize(
    "values",
    [
        {"m": 7.0},
        {"start": "diagonal", "growth": 0.5, "mask": [[True, False], [False, False]]},
        {"start": "gaussian", "depth": 2, "mask": PAIR, "target": "random"},
    ],
)
def test_script_of_the_mask_gives_the_facts(values: dict[str, Any]) -> None:
    names, answer = run_script("mask", params("mask", **values)), ask("mask", **values)
    np.testing.assert_allclose(figure(answer, "end").values, names["end"], atol=1e-9)
    printed = effective_rank(jnp.asarray(names["end"]))
    assert f"{float(printed):.4g}" == fact(answer, "Effective rank at the end")
    assert fact(answer, "Left open at rank one").startswith(f"{names['left_open']} of")
    assert fact(answer, "Dynamics").startswith("coupled" if names["found"].coupled else "decoupled") or (
        fact(answer, "Dynamics").startswith("one entry")
    )


def test_rows_of_unequal_length_are_refused_by_title() -> None:
    with pytest.raises(LabError, match="Entries that are seen: all rows must have"):
        ask("mask", mask=[[True, False], [True]])


# ---- Limits ----------------------------------------------------------------------------------------------------------

TABLE = {
    # (value, blocks, size, m, depth, scale): sigma_1, sigma_2 from fifty digits
    (1.0, 10, 1, 10.0, 2, 1e-2): (3.31193, 0.743119),
    (1.0, 10, 1, 10.0, 3, 1e-2): (9.7209, 0.031011),
    (1.0, 10, 1, 100.0, 5, 1e-4): (9.99147, 9.47635e-4),
    (1.0, 5, 2, 10.0, 3, 1e-2): (9.87567, 0.031083),
    (10.0, 10, 1, 10.0, 4, 1e-2): (99.9039, 0.0106817),
    (1.0, 3, 1, 10.0, 5, 1e-2): (2.97249, 0.013756),
}


@pytest.mark.covers("completion:F12", "completion:F37")
def test_limits_on_blocks() -> None:
    for (value, blocks, size, m, depth, scale), (first, second) in TABLE.items():
        answer = ask("limit", value=value, blocks=blocks, size=size, m=m, depth=depth, scale=scale)
        got = float(fact(answer, "σ₁")), float(fact(answer, "σ₂"))
        np.testing.assert_allclose(got, (first, second), rtol=6e-6)
        share = np.array([first, *[second] * (blocks - 1)]) / (value * blocks * size)
        rank = float(np.exp(-np.sum(share * np.log(share))))
        np.testing.assert_allclose(float(fact(answer, "Effective rank")), rank, rtol=6e-4)
        # The map and the curves go through the same point.
        chart = figure(answer, "map")
        column, row = (int(np.argmin(np.abs(np.log(np.divide(x, y))))) for x, y in ((chart.xs, scale), (chart.ys, m)))
        np.testing.assert_allclose(chart.z[row][column], rank, rtol=0.35)
        series = {one.name: one for one in figure(answer, "spectrum").series}
        curve = series[f"σ₂, L = {depth}"]
        nearest = int(np.argmin(np.abs(np.log(np.divide(curve.x, scale)))))
        np.testing.assert_allclose(curve.y[nearest], second, rtol=1e-5)


def test_edges_of_the_limits() -> None:
    rank_one = ask("limit", m=1.0, depth=2)
    assert fact(rank_one, "Effective rank") == "1" and "m = 1" in rank_one.remarks[-1] and finite(rank_one)
    full = ask("limit", m=1e10, depth=2)
    assert fact(full, "Effective rank") == "10" and figure(full, "map").z[0][0] == 1.0
    for values in ({"scale": 1e-10, "m": 1e10, "depth": 5}, {"scale": 1.0, "value": 0.1, "blocks": 2, "size": 4}):
        assert finite(ask("limit", **values))


@pytest.mark.covers("completion:F13")
def test_script_of_the_limit_gives_the_same() -> None:
    values = params("limit", blocks=4, size=2, m=7.0, depth=4)
    names, answer = run_script("limit", values), ask("limit", **values.model_dump())
    limit = names["limit"]
    assert f"{float(limit.sigma_2):.6g}" == fact(answer, "σ₂")
    assert f"{float(limit.effective_rank):.4g}" == fact(answer, "Effective rank")
    assert f"{float(limit.unobserved):.4g}" == fact(answer, "Entries never seen")
    np.testing.assert_allclose(figure(answer, "limit").values, limit.matrix().dense(), atol=1e-4)
    dashed = [one.y for one in figure(answer, "spectrum").series if one.style == "dash"]
    np.testing.assert_allclose(np.array(dashed, dtype=float), names["over_scales"].sigma_2, rtol=1e-6)
    np.testing.assert_allclose(figure(answer, "map").z, names["ranks"], rtol=1e-9)
    over_m = [one.y for one in figure(answer, "ratio").series]
    np.testing.assert_allclose(over_m, names["over_m"].effective_rank, rtol=1e-9)


# ---- The flow --------------------------------------------------------------------------------------------------------

ENDS = {
    "blocks": {"depth": 2, "m": 5.0},
    "pairs": {"depth": 2, "start": "gaussian", "target": "random", "scale": 1e-2},
    "chains": {"depth": 3, "start": "diagonal", "growth": 0.5, "scale": 1e-2},
    "coupled": {"depth": 3, "m": 5.0, "scale": 1e-2},
}


@pytest.mark.parametrize("name", ENDS)
def test_flows_end_where_the_closed_forms_and_scipy_say(name: str) -> None:
    values = params("flow", mask=PAIR, below=1e-14, **ENDS[name])
    setting = setting_of(values)
    answer = ROOM.view("flow").answer(values, Watch())
    shapes = [layer.shape for layer in setting.layers]

    def product(y: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        layers = [part.reshape(2, 2) for part in np.split(y, len(shapes))]
        return layers, np.linalg.multi_dot(layers[::-1])

    def field(t: float, y: np.ndarray) -> np.ndarray:
        layers, whole = product(y)
        error = setting.mask * (whole - setting.target)
        slopes = []
        for k in range(len(layers)):
            left, right = np.eye(2), np.eye(2)
            for layer in layers[k + 1 :]:
                left = layer @ left
            for layer in layers[:k]:
                right = layer @ right
            slopes.append(-left.T @ error @ right.T)
        return np.concatenate([slope.ravel() for slope in slopes])

    start = np.concatenate([np.asarray(layer).ravel() for layer in setting.layers])
    end = product(solve_ivp(field, (0, 300), start, method="LSODA", rtol=1e-11, atol=1e-14).y[:, -1])[1]
    np.testing.assert_allclose(figure(answer, "completed").values, end, atol=2e-5)
    closed = end_of(values, setting).matrix
    assert closed is not None
    np.testing.assert_allclose(closed, end, atol=1e-6)
    assert float(fact(answer, "Distance from the closed form")) < 1e-5
    share = np.linalg.svd(end, compute_uv=False) / np.linalg.svd(end, compute_uv=False).sum()
    rank = np.exp(-np.sum(share * np.log(np.maximum(share, 1e-300))))
    np.testing.assert_allclose(float(fact(answer, "Effective rank")), rank, rtol=1e-3)
    losses = figure(answer, "loss").series[0].y
    assert all(b <= a * (1 + 1e-6) for a, b in itertools.pairwise(losses)) and losses[-1] <= 1.1e-14


def test_blocks_may_be_interleaved() -> None:
    """Rows and columns 1, 3 and 2, 4: the limit on blocks of two, in another order."""
    order = [0, 2, 1, 3]
    mask = np.kron(np.eye(2, dtype=bool), np.ones((2, 2), bool))[np.ix_(order, order)]
    for start, m in (("alpha-m", 20.0), ("diagonal", np.inf)):
        values = params("mask", mask=mask.tolist(), start=start, m=20.0, value=2.0)
        matrix = end_of(values, setting_of(values)).matrix
        limit = block_limit(3, 0.1, m, blocks=2, size=2, value=2.0).matrix().dense()
        np.testing.assert_allclose(matrix, np.asarray(limit)[np.ix_(order, order)], atol=1e-12)
    uneven = params("mask", mask=np.kron(np.eye(2), np.ones((2, 2))).astype(bool).tolist(), ratio=1.5)
    assert end_of(uneven, setting_of(uneven)).matrix is None


def test_wrong_sign_is_told_as_a_saddle() -> None:
    """Equal layers, even depth and a negative target: the entry ends at zero, not at its target."""
    base = {"mask": PAIR, "depth": 2, "start": "diagonal", "target": "random", "scale": 1e-2}
    draws = [params("flow", **base, seed=seed) for seed in range(20)]
    values = next(draw for draw in draws if np.diag(setting_of(draw).target).min() < 0)
    setting = setting_of(values)
    end = end_of(values, setting)
    assert end.stuck and end.matrix is not None
    np.testing.assert_allclose(np.diag(end.matrix), np.maximum(np.diag(setting.target), 0.0), atol=1e-12)
    answer = ROOM.view("flow").answer(values, Watch())
    assert not any(one.label == "Loss" for one in answer.facts)


def test_script_and_command_of_the_flow_give_the_same(tmp_path: Path) -> None:
    values = params("flow", mask=PAIR, below=1e-14, **ENDS["coupled"])
    names, answer = run_script("flow", values), ask("flow", **values.model_dump())
    np.testing.assert_allclose(figure(answer, "completed").values, names["completed"], atol=1e-5)

    from deeplinear.cli._build import build
    from deeplinear.cli._options import SIMULATE, resolve

    for kind in ENDS.values():
        values = params("flow", mask=PAIR, **kind)
        *files, run = line_of("flow", values).split("\n")
        for line in files:
            subprocess.run(line, shell=True, check=True, cwd=tmp_path)
        words = [str(tmp_path / word) if word.endswith(".csv") else word for word in run.split()[2:]]
        flags = {words[k].removeprefix("--"): words[k + 1] for k in range(0, len(words), 2)}
        made, setting = build(resolve(SIMULATE, flags, None)), setting_of(values)
        np.testing.assert_allclose(made.problem.loss.mask * made.problem.loss.target, setting.mask * setting.target)
        for one, other in zip(made.starts[0], setting.layers, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10)


def test_pieces_are_told_and_a_cancelled_run_ends() -> None:
    told: list[Any] = []
    values = params("flow", mask=PAIR, below=1e-14, **ENDS["coupled"])
    ROOM.view("flow").answer(values, Watch(lambda fraction, text, answer: told.append((fraction, answer))))
    parts = [answer for _, answer in told if answer is not None]
    assert parts and all(0 <= fraction <= 1 for fraction, _ in told)
    assert len(figure(parts[0], "loss").series[0].x) == 64
    calls = iter(range(100))
    with pytest.raises(Cancelled):
        ROOM.view("flow").answer(values, Watch(cancelled=lambda: next(calls) > 0))
    with pytest.raises(Cancelled):
        ROOM.view("warm").answer(params("warm"), Watch(cancelled=lambda: True))


# ---- Warm and cold ---------------------------------------------------------------------------------------------------

CORNERS = {
    # (growth, ratio): {m: (warm, cold) effective ranks}
    (1.0, 0.5): {"2": (1.5298, 1.0577), "10": (1.8864, 1.1465), "100": (1.9381, 1.1705), "∞": (1.9429, 1.1733)},
    (2.0, 0.5): {"2": (1.5566, 1.1548), "10": (1.8259, 1.2318), "100": (1.8633, 1.2437), "∞": (1.8667, 1.2449)},
}
"""Computed independently at a tolerance of 1e-13."""


@pytest.mark.covers("completion:F34")
@pytest.mark.parametrize("case", CORNERS)
def test_warm_and_cold_two_by_two(case: tuple[float, float]) -> None:
    growth, ratio = case
    preset = next(one for one in ROOM.presets if one.title == "Figure 31")
    values = params("warm", **{**preset.values, "growth": growth, "ratio": ratio, "m": 2.0})
    answer = ROOM.view("warm").answer(values, Watch())
    lines = figure(answer, "table").rows
    assert lines[0][0] == "2" and answer.remarks == []
    assert len({line[0] for line in lines}) == len(lines) == 8
    for m, wanted in CORNERS[case].items():
        row = next(line for line in lines if line[0] == m)
        np.testing.assert_allclose([float(row[2]), float(row[3])], wanted, atol=FOUR_DIGITS)
    assert fact(answer, "Plasticity") == "lost"
    assert len(figure(answer, "ratio").series[0].x) == 7


@pytest.mark.covers("completion:F21", "completion:F22")
def test_theorem_and_script_of_the_warm_start() -> None:
    preset = next(one for one in ROOM.presets if one.title.startswith("Theorem"))
    values = params("warm", **preset.values)
    answer = ROOM.view("warm").answer(values, Watch())
    told = next(one for one in answer.facts if one.label == "Stable rank, warm")
    assert abs(float(told.value) - 1.818884) < 1e-3 and "1.449" in told.note and "1.819" in told.note
    names = run_script("warm", values)
    np.testing.assert_allclose(figure(answer, "warm").values, names["found"].products["warm"], atol=1e-4)
    np.testing.assert_allclose(figure(answer, "cold").values, names["found"].products["cold"], atol=1e-4)
    assert names["found"].products["warm"][1, 0] < 0


def test_command_of_the_warm_start_is_one() -> None:
    from deeplinear.experiments import experiment, override, split_assignments

    preset = next(one for one in ROOM.presets if one.title == "Figure 33")
    words = line_of("warm", params("warm", **preset.values)).split()
    spec = override(experiment(words[3]).presets["quick"], split_assignments(words[4:], "test"), "test")
    assert (spec.first, spec.second, spec.revealed, spec.completion) == (1.0, 2.0, 0.5, 4.0)
    np.testing.assert_allclose(spec.alpha, 1e-3)
    assert command_of(ROOM.view("warm"), params("warm")) is None
    assert ROOM.view("mask").command is None and ROOM.view("limit").command is None


def test_grids_of_different_sizes_are_fitted() -> None:
    values = params("warm", mask=PAIR)  # the other grid is 3 x 3
    names: dict[str, Any] = {}
    source = ROOM.view("warm").python(values).split("found = plasticity")[0]
    exec(source, names)
    assert names["mask"].tolist() == [[True, True], [False, True]] and connectivity(names["mask"]).connected
