"""A geodesic between two matrices, as a picture."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.geometry import Geodesic
from deeplinear.plots._style import COLOURS, PANEL, REST, need_matplotlib, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMED = 6
"""Up to so many curves of a panel have a colour and a name of their own: those that move most."""

DECADES = 30.0
"""Singular values whose ratio exceeds this are drawn on a logarithmic axis."""


def plot_geodesic(path: Geodesic, *, title: str | None = None) -> "Figure":
    """Entries, singular values and speed along a geodesic, with the straight line between its ends dashed.

    The speed of the straight line is that in the metric: the area below it is its length, as the area below the
    constant speed of the geodesic is the length of the geodesic.

    Args:
        path: The geodesic; at least two of its times.
        title: Heading of the figure.

    Returns:
        Figure of matplotlib; see `save_figure`.

    Raises:
        ImportError: If matplotlib, of the extra `report`, is not installed.
    """
    need_matplotlib("plot_geodesic")
    from matplotlib.figure import Figure

    times = np.asarray(path.times)
    points = np.asarray(path.points)
    seen = np.all(np.isfinite(points), axis=(1, 2))
    if seen.sum() < 2:
        raise ValueError(f"plot_geodesic: path must have at least 2 points, but has {int(seen.sum())}.")
    times, points = times[seen], points[seen]
    share = (times - times[0]) / (times[-1] - times[0])
    line = points[0] + share[:, None, None] * (points[-1] - points[0])
    with paper_style():
        figure = Figure(figsize=(3 * PANEL[0] * 0.9, 1.2 * PANEL[1]), layout="constrained")
        entries, spectra, speeds = figure.subplots(1, 3)
        size = points.shape[1]
        names = [f"$x_{{{i + 1}{j + 1}}}$" for i in range(size) for j in range(size)]
        _curves(entries, times, points.reshape(len(times), -1), line.reshape(len(times), -1), names)
        entries.set(ylabel="entries", title="entries (dashed: straight line)")
        values, straight = (np.linalg.svd(path, compute_uv=False) for path in (points, line))
        _curves(spectra, times, values, straight, [f"$s_{{{i + 1}}}$" for i in range(size)])
        if values.max() > DECADES * values.min():
            spectra.set_yscale("log")
        spectra.set(ylabel="singular values", title="singular values (dashed: straight line)")
        _speeds(speeds, path, times, line)
        for axes in (entries, spectra, speeds):
            axes.set_xlabel("time $t$")
        if title is not None:
            figure.suptitle(title)
    return figure


def _curves(axes: "Axes", times: np.ndarray, curves: np.ndarray, straight: np.ndarray, names: list[str]) -> None:
    """Curves with the straight ones dashed; those that move most in colour, the others grey."""
    named_ones = min(NAMED, len(COLOURS))
    order = np.argsort(-np.ptp(curves, axis=0), kind="stable")
    for place in reversed(order):
        rank = int(np.flatnonzero(order == place)[0])
        named = rank < named_ones
        colour, label = (COLOURS[rank], names[place]) if named else (REST, "others" if rank == named_ones else "_")
        axes.plot(times, straight[:, place], "--", color=colour, linewidth=0.9, alpha=0.8)
        axes.plot(times, curves[:, place], color=colour, label=label)
    handles, labels = axes.get_legend_handles_labels()
    ordered = sorted(zip(labels, handles, strict=True), key=lambda pair: [*names, "others"].index(pair[0]))
    axes.legend(
        [h for _, h in ordered], [label for label, _ in ordered], fontsize="small", ncols=2 if len(ordered) > 3 else 1
    )


def _speeds(axes: "Axes", path: Geodesic, times: np.ndarray, line: np.ndarray) -> None:
    velocity = jnp.asarray((line[-1] - line[0]) / (times[-1] - times[0]))
    with np.errstate(all="ignore"):
        straight = np.asarray(jax.vmap(lambda point: path.metric.norm(point, velocity))(jnp.asarray(line)))
    speed = float(path.speed)
    axes.plot(times, np.full(len(times), speed), color=COLOURS[0], label="geodesic")
    high = 3 * speed
    shown = np.where(np.isfinite(straight), straight, np.nan)
    clipped = bool(np.any(~np.isfinite(straight)) or np.nanmax(shown, initial=0.0) > 2 * high)
    axes.plot(
        times, shown, "--", color=COLOURS[1], label="straight line" + (" (leaves the picture)" if clipped else "")
    )
    top = 2 * high if clipped else 1.25 * max(speed, float(np.nanmax(shown, initial=0.0)))
    axes.set_ylim(0, top if top > 0 else 1.0)
    axes.set(ylabel="speed in the metric", title="speed; areas are lengths")
    axes.legend(fontsize="small", loc="lower left")
