"""Figures of trajectories."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from deeplinear.core import RESULTS, Trajectory, near_name, replacing
from deeplinear.plots._style import COLOURS, PANEL, REST, THIN, need_matplotlib, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {
    "loss": "loss",
    "singular_values": "singular values",
    "gradient_norm": "gradient norm",
    "drift": "drift of invariants",
    "layer_balancedness": "norm of invariants",
    "layer_norms": "norms of the layers",
    "product_effective_rank": "effective rank",
    "product_stable_rank": "stable rank",
    "product_nuclear_norm": "nuclear norm",
    "product_numerical_rank": "numerical rank",
    "mode_strengths": "strength in target modes",
    "reconstruction_error": "distance to the target",
    "held_out_error": "error on hidden entries",
}
"""Axis labels of probes; others get their name."""

LINEAR = ("singular_values", "mode_strengths")
"""Probes whose names end so are drawn on a linear axis whatever their range."""

DECADES = 1e3
"""Positive values whose extremes are further apart than this factor get a logarithmic axis."""

EARLY = 0.1
"""With half of the records before this fraction of the last time, the time axis is logarithmic."""

CONSTANT = 1e-6
"""Values that vary by less than this fraction are drawn as the constant they are to the eye."""

FEW = 12
"""Up to so many records are marked, so that what was recorded is told from the line between."""

GRID = 500
"""Number of times at which an ensemble with different records is compared."""

NAMES = {"mode": "mode {0}", "layer": "layer {0}", "pair": "layers {0}, {1}"}
"""Names of curves by the dimension they run over."""

NORM = "Frobenius norm"
"""Name of the curve that stands for a probe of several dimensions."""


class Curves(NamedTuple):
    """What one panel shows: values (time, curve), and for ensembles the band around them."""

    times: np.ndarray
    middle: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    names: list[str]


def _by_member(trajectory: Trajectory, name: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Times and values (time, curve) of every member; probes with several dimensions by their Frobenius norm."""
    runs = [trajectory.member(i) for i in range(trajectory.members)] if trajectory.is_ensemble else [trajectory]
    times, values = [], []
    for run in runs:
        stop = int(run.lengths)
        value = np.asarray(run[name], dtype=float)[:stop]
        if value.ndim > 2:
            value = np.sqrt(np.sum(value**2, axis=tuple(range(1, value.ndim))))
        value = np.where(np.isfinite(value), value, np.nan)
        times.append(np.asarray(run.times)[:stop])
        values.append(value[:, None] if value.ndim == 1 else value)
    return times, values


def _curves(trajectory: Trajectory, name: str, quantiles: tuple[float, float]) -> Curves:
    times, values = _by_member(trajectory, name)
    count = values[0].shape[1]
    dims = trajectory.dims.get(name, ())
    if len(dims) == 1:
        dimension = "mode" if dims[0].endswith("_mode") else dims[0]
        pattern = NAMES.get(dimension, dimension.replace("_", " ") + " {0}")
        names = [pattern.format(i, i + 1) for i in range(1, count + 1)]
    else:
        names = [NORM] if len(dims) > 1 else [""]
    if not trajectory.is_ensemble:
        return Curves(times[0], values[0], None, None, names)
    grid = np.unique(np.concatenate(times))
    if len(grid) > GRID and any(len(t) != len(times[0]) or np.any(t != times[0]) for t in times):
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, GRID).astype(int))]
    finished = [RESULTS(int(code)).finished for code in trajectory.results]
    stacked = np.full((len(times), len(grid), count), np.nan)
    for i, (t, v) in enumerate(zip(times, values, strict=True)):
        for k in range(count):
            stacked[i, :, k] = np.interp(grid, t, v[:, k], left=np.nan, right=v[-1, k] if finished[i] else np.nan)
    enough = 2 * np.sum(np.isfinite(stacked), axis=0) >= len(stacked)
    filled = np.where(enough, stacked, 0.0)
    low, middle, high = (
        np.where(enough, np.nanquantile(filled, q, axis=0), np.nan) for q in (quantiles[0], 0.5, quantiles[1])
    )
    return Curves(grid, middle, low, high, names)


def _logarithmic(name: str, values: np.ndarray) -> bool:
    """Whether a panel needs a logarithmic axis; exact zeros are left out of it."""
    seen = values[np.isfinite(values) & (values != 0)]
    if name.endswith(LINEAR) or seen.size == 0 or np.any(seen < 0):
        return False
    return bool(seen.max() > DECADES * seen.min()) or name == "loss"


def _early(trajectory: Trajectory) -> bool:
    """Whether most records lie close to the start, as with logarithmic spacing."""
    times = np.ravel(trajectory.times)
    times = times[np.isfinite(times) & (times > 0)]
    return times.size > 2 and bool(np.median(times) < EARLY * times.max())


def _draw(axes: "Axes", name: str, curves: Curves, band: str) -> None:
    """The curves of one panel, its labels and its legend, which stands beside it."""
    parts = [part for part in (curves.middle, curves.low, curves.high) if part is not None]
    logarithmic = _logarithmic(name, np.concatenate(parts))

    def visible(values: np.ndarray) -> np.ndarray:
        return np.where(values > 0, values, np.nan) if logarithmic else values

    count = curves.middle.shape[1]
    marker = "o" if np.sum(np.isfinite(curves.middle[:, :1])) <= FEW else ""
    for k in reversed(range(count)):
        colour = COLOURS[k] if k < len(COLOURS) else REST
        label = curves.names[k] if k < len(COLOURS) else "further" if k == len(COLOURS) else ""
        line = visible(curves.middle[:, k])
        label = "median" if curves.low is not None and count == 1 else label
        (drawn,) = axes.plot(curves.times, line, color=colour, marker=marker, label=label or "_", zorder=3 + count - k)
        if k >= len(COLOURS):
            drawn.set_linewidth(THIN)
        if curves.low is not None and curves.high is not None:
            low, high = visible(curves.low[:, k]), visible(curves.high[:, k])
            axes.fill_between(
                curves.times, low, high, color=colour, alpha=0.2, linewidth=0, label=band if k == 0 else "_", zorder=2
            )
    if logarithmic:
        axes.set_yscale("log")
    else:
        top, bottom = (float(f(np.concatenate(parts))) for f in (np.nanmax, np.nanmin))
        if top - bottom < CONSTANT * abs(top):
            axes.set_ylim(top - 0.1 * abs(top), top + 0.1 * abs(top))
    words = LABELS.get(name, name.replace("_", " "))
    axes.set_ylabel(f"norm of {words}" if curves.names == [NORM] else words)
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: (labels[i] == band, -i))
    if count > 1 or curves.low is not None:
        axes.legend(
            [handles[i] for i in order],
            [labels[i] for i in order],
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            borderaxespad=0.0,
        )


def plot_trajectory(
    trajectory: Trajectory,
    *,
    probes: Sequence[str] | None = None,
    time_scale: str = "auto",
    title: str | None = None,
    quantiles: tuple[float, float] = (0.1, 0.9),
) -> "Figure":
    r"""Figure with one panel for each probe over time.

    The loss and positive quantities that span decades get logarithmic axes; probes with one dimension get a curve for
    each component, probes with more their Frobenius norm. An ensemble is shown by median and quantile band at each
    time, as long as at least half of its members have a value: those that reached their end keep their last one, those
    that broke down or met a limit leave. Probes without a finite value are left out.

    Args:
        trajectory: A run or an ensemble.
        probes: Names of the probes to show; all by default.
        time_scale: `"linear"`, `"log"`, or `"auto"`: logarithmic where most records lie close to the start.
        title: Heading of the figure.
        quantiles: Edges of the band of an ensemble.

    Returns:
        Figure of matplotlib; see `save_figure`.

    Raises:
        ImportError: If matplotlib, of the extra `report`, is not installed.
    """
    need_matplotlib("plot_trajectory")
    from matplotlib.figure import Figure

    if time_scale not in ("auto", "linear", "log"):
        options = ("auto", "linear", "log")
        raise ValueError(f"plot_trajectory: time_scale '{time_scale}' is unknown. {near_name(time_scale, options)}")
    if not 0 <= quantiles[0] < quantiles[1] <= 1:
        raise ValueError(f"plot_trajectory: quantiles must increase within 0..1, but are {quantiles}.")
    names = list(trajectory.values) if probes is None else list(probes)
    panels = [(name, _curves(trajectory, name, quantiles)) for name in names]
    panels = [(name, curves) for name, curves in panels if np.any(np.isfinite(curves.middle))]
    if not panels:
        raise ValueError("plot_trajectory: the trajectory must hold a finite value of a probe, but holds none.")
    band = f"{100 * quantiles[0]:g}–{100 * quantiles[1]:g} %"
    unit = str(trajectory.info.get("clock", "time"))
    logarithmic = time_scale == "log" or (time_scale == "auto" and _early(trajectory))
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with paper_style():
        wide = 1.0 if columns == 2 else 1.35
        figure = Figure(figsize=(PANEL[0] * columns * wide, PANEL[1] * rows * wide), layout="constrained")
        grid = np.ravel(figure.subplots(rows, columns, squeeze=False))
        for axes in grid[len(panels) :]:
            axes.remove()
        for axes, (name, curves) in zip(grid, panels, strict=False):
            _draw(axes, name, curves, band)
            axes.set_xlabel(unit)
            if logarithmic and np.sum(curves.times > 0) > 1:
                axes.set_xscale("log")
                axes.set_xlim(curves.times[curves.times > 0].min(), curves.times.max())
        if title is not None:
            figure.suptitle(title)
    return figure


def save_figure(
    figure: "Figure", path: str | os.PathLike[str], *, formats: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write a figure in several formats beside each other: `path.png`, `path.svg`.

    Each file is there as a whole or not at all.

    Args:
        figure: Figure of matplotlib.
        path: Path without the ending.
        formats: Endings of the files to write.

    Returns:
        Paths of the files.
    """
    stem = Path(path)
    written = []
    with paper_style():
        for ending in formats:
            file = stem.with_name(f"{stem.name}.{ending}")
            metadata: dict[str, Any] = {"Date": None} if ending == "svg" else {}
            with replacing(file) as part:
                figure.savefig(part, format=ending, dpi=200, metadata=metadata)
            written.append(file)
    return written
