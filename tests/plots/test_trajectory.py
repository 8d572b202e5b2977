"""Figures of trajectories: what is on them, not how they look."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from deeplinear.core import RESULTS, Trajectory
from deeplinear.dynamics import Progress
from deeplinear.plots import COLOURS, plot_trajectory, save_figure
from deeplinear.report import progress_bar

DIMS = {
    "loss": (),
    "singular_values": ("mode",),
    "drift": ("pair",),
    "product": ("row", "column"),
    "absent": (),
    "empty": ("pair",),
}


def record(times: np.ndarray, modes: int = 3) -> dict[str, np.ndarray]:
    """Values such as a run leaves: decades of loss, a staircase, zeros, matrices, nothing but NaN, no curves at all."""
    values = np.tanh(times[:, None] / np.arange(1, modes + 1))
    return {
        "loss": np.exp(-20 * times),
        "singular_values": values,
        "drift": 1e-14 * np.outer(times, [1.0, 2.0]),
        "product": values[:, :, None] * np.ones(2),
        "absent": np.full_like(times, np.nan),
        "empty": np.zeros((len(times), 0)),
    }


def single(times: np.ndarray, *, steps: bool = False, modes: int = 3) -> Trajectory:
    return Trajectory(
        times=times,
        values=record(times, modes),
        dims=DIMS,
        params=(np.eye(2),),
        results=np.asarray(int(RESULTS.completed)),
        fired=np.asarray(0),
        rules=(),
        lengths=np.asarray(len(times)),
        stats={"accepted_steps": 5},
        info={"clock": "steps"} if steps else {"clock": "time"},
    )


def many(last: RESULTS = RESULTS.stopped) -> Trajectory:
    """Five members, the last of which ended half-way and is padded with NaN."""
    times = np.linspace(0, 1, 21)
    grid, lengths = np.tile(times, (5, 1)), np.array([21, 21, 21, 21, 11])
    values = {name: np.stack([(k + 1) * v for k in range(5)]) for name, v in record(times).items()}
    grid[-1, 11:] = np.nan
    for value in values.values():
        value[-1, 11:] = np.nan
    return Trajectory(
        times=grid,
        values=values,
        dims=DIMS,
        params=(np.tile(np.eye(2), (5, 1, 1)),),
        results=np.array([int(RESULTS.completed)] * 4 + [int(last)]),
        fired=np.zeros(5, int),
        rules=(),
        lengths=lengths,
        stats={"accepted_steps": np.full(5, 5), "rejected_steps": np.zeros(5, int)},
        info={},
    )


def panels(figure: Figure) -> dict:
    return {axes.get_ylabel(): axes for axes in figure.axes}


def legend(axes) -> list[str]:
    found = axes.get_legend()
    return [] if found is None else [text.get_text() for text in found.get_texts()]


def test_panels_labels_and_legends() -> None:
    figure = plot_trajectory(single(np.linspace(0, 1, 21)), title="A run")
    found = panels(figure)
    assert list(found) == ["loss", "singular values", "drift of invariants", "norm of product"]
    assert {axes.get_xlabel() for axes in found.values()} == {"time"}
    assert legend(found["singular values"]) == ["mode 1", "mode 2", "mode 3"]
    assert legend(found["drift of invariants"]) == ["layers 1, 2", "layers 2, 3"]
    assert legend(found["loss"]) == []
    scales = {label: axes.get_yscale() for label, axes in found.items()}
    assert scales == {
        "loss": "log",
        "singular values": "linear",
        "drift of invariants": "linear",
        "norm of product": "linear",
    }
    assert figure.get_suptitle() == "A run"


@pytest.mark.parametrize("trajectory", [single(np.linspace(0, 1, 21)), many()], ids=["single", "ensemble"])
def test_every_panel_shows_something(trajectory: Trajectory) -> None:
    for axes in plot_trajectory(trajectory).axes:
        assert any(np.isfinite(np.asarray(line.get_ydata(), dtype=float)).any() for line in axes.get_lines())


def test_legends_stand_outside_of_the_axes_and_no_panels_overlap() -> None:
    figure = plot_trajectory(single(np.linspace(0, 1, 21)), title="A run")
    figure.draw_without_rendering()
    boxes = [box for axes in figure.axes if (box := axes.get_tightbbox()) is not None]
    assert len(boxes) == 4
    for axes in figure.axes:
        beside = axes.get_legend()
        assert beside is None or beside.get_window_extent().x0 >= axes.get_window_extent().x1
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1 + 1  # a pixel of rounding


def test_units_of_an_update_are_steps() -> None:
    figure = plot_trajectory(single(np.arange(5.0), steps=True))
    assert {axes.get_xlabel() for axes in figure.axes} == {"steps"}
    figure = plot_trajectory(single(np.arange(5.0)))
    assert {axes.get_xlabel() for axes in figure.axes} == {"time"}


def test_time_axis_follows_the_spacing_of_the_records_or_the_wish() -> None:
    even, early = single(np.linspace(0, 1, 21)), single(np.append(0, np.geomspace(1e-4, 1, 20)))
    assert {axes.get_xscale() for axes in plot_trajectory(even).axes} == {"linear"}
    assert {axes.get_xscale() for axes in plot_trajectory(early).axes} == {"log"}
    assert {axes.get_xscale() for axes in plot_trajectory(even, time_scale="log").axes} == {"log"}


def test_more_curves_than_colours_share_one_label() -> None:
    axes = panels(plot_trajectory(single(np.linspace(0, 1, 5), modes=12)))["singular values"]
    assert len(axes.get_lines()) == 12
    assert legend(axes) == [f"mode {k}" for k in range(1, len(COLOURS) + 1)] + ["further"]


@pytest.mark.parametrize(("last", "factor"), [(RESULTS.stopped, 3.0), (RESULTS.interrupted, 2.5)])
def test_ensemble_shows_median_and_band(last: RESULTS, factor: float) -> None:
    """Members are 1 to 5 times one record. The last one ends half-way, then stays on top of the others or leaves."""
    axes = panels(plot_trajectory(many(last), quantiles=(0.25, 0.75)))["loss"]
    assert legend(axes) == ["median", "25–75 %"]
    line = axes.get_lines()[0]
    times = np.asarray(line.get_xdata())
    expected = np.where(times <= 0.5, 3.0, factor) * np.exp(-20 * times)
    np.testing.assert_allclose(np.asarray(line.get_ydata()), expected, rtol=1e-12)


def test_chosen_probes_and_their_order() -> None:
    figure = plot_trajectory(single(np.linspace(0, 1, 5)), probes=["drift", "loss"])
    assert [axes.get_ylabel() for axes in figure.axes] == ["drift of invariants", "loss"]


@pytest.mark.parametrize(("records", "marker"), [(1, "o"), (5, "o"), (100, "")])
def test_few_records_are_marked(records: int, marker: str) -> None:
    figure = plot_trajectory(single(np.linspace(0, 1, records)), probes=["loss"])
    assert figure.axes[0].get_lines()[0].get_marker() == marker


def test_rounding_is_not_shown_as_movement() -> None:
    values = {"layer_norms": 2 + 1e-12 * np.sin(np.arange(5.0))[:, None] * np.ones(2)}
    run = dataclasses.replace(single(np.arange(5.0)), values=values, dims={"layer_norms": ("layer",)})
    assert plot_trajectory(run).axes[0].get_ylim() == pytest.approx((1.8, 2.2))


def test_bad_arguments() -> None:
    run = single(np.linspace(0, 1, 5))
    with pytest.raises(ValueError, match="'linear'"):
        plot_trajectory(run, time_scale="linaer")
    with pytest.raises(ValueError, match="quantiles"):
        plot_trajectory(run, quantiles=(0.9, 0.1))
    with pytest.raises(KeyError, match="'loss'"):
        plot_trajectory(run, probes=["los"])
    with pytest.raises(ValueError, match="finite"):
        plot_trajectory(run, probes=["absent"])


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"deeplinear\[report\]"):
        plot_trajectory(single(np.linspace(0, 1, 5)))


def test_save_figure(tmp_path: Path) -> None:
    trajectory = single(np.linspace(0, 1, 5))
    files = save_figure(plot_trajectory(trajectory), tmp_path / "a" / "run.one")
    assert [file.name for file in files] == ["run.one.png", "run.one.svg"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    again = save_figure(plot_trajectory(trajectory), tmp_path / "b")
    assert files[1].read_bytes() == again[1].read_bytes()  # no dates or random names inside


@pytest.mark.parametrize("fraction", [0.0, 0.5])
def test_progress_bar_is_drawn_on_terminals_only(fraction: float) -> None:
    import io

    from rich.console import Console

    shown = {}
    for terminal in (True, False):
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=terminal, width=120)
        with progress_bar("working", console=console) as update:
            update(Progress(members=3, ended=1, steps=1200, t=2.5, fraction=fraction))
        shown[terminal] = stream.getvalue()
    assert "1/3 ended, 1,200 steps, t = 2.5" in shown[True]
    assert shown[False] == ""
