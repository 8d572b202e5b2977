"""The saddles a run visited, drawn over its loss."""

from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import Trajectory
from deeplinear.landscape import Itinerary
from deeplinear.plots._style import COLOURS, PANEL, REST, need_matplotlib, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NARROW = 0.02
"""Plateaus shorter than this share of the axis have their names written upright."""


def plot_itinerary(
    trajectory: Trajectory, found: Itinerary, *, logarithmic: bool = False, title: str | None = None
) -> "Figure":
    """Loss of a run with its plateaus shaded and named, critical values as dotted levels, and the gradient below.

    Args:
        trajectory: A single run with the probe `loss`, and `gradient_norm` for the lower panel.
        found: Its itinerary.
        logarithmic: Whether time is drawn logarithmically.
        title: Heading of the figure.

    Returns:
        Figure of matplotlib; see `save_figure`.

    Raises:
        ImportError: If matplotlib, of the extra `report`, is not installed.
    """
    need_matplotlib("plot_itinerary")
    from matplotlib.figure import Figure

    if "loss" not in trajectory.values:
        raise ValueError(f"plot_itinerary: trajectory must hold the probe 'loss', but holds {list(trajectory.values)}.")
    both = "gradient_norm" in trajectory.values
    unit = str(trajectory.info.get("clock", "time"))
    with paper_style():
        figure = Figure(figsize=(2.0 * PANEL[0], (2.3 if both else 1.4) * PANEL[1]), layout="constrained")
        axes = np.ravel(figure.subplots(1 + both, 1, sharex=True, squeeze=False))
        draw_itinerary(axes[0], trajectory.times, trajectory["loss"], found, logarithmic=logarithmic)
        if both:
            sizes = np.where(trajectory["gradient_norm"] > 0, trajectory["gradient_norm"], np.nan)
            axes[1].plot(trajectory.times, sizes, color=COLOURS[0])
            axes[1].set_yscale("log")
            axes[1].set_ylabel("gradient norm")
            _shade(axes[1], found)
        axes[-1].set_xlabel(unit)
        if title is not None:
            figure.suptitle(title)
    return figure


def draw_itinerary(
    axes: "Axes", times: np.ndarray, losses: np.ndarray, found: Itinerary, *, logarithmic: bool = False
) -> None:
    """The loss with named plateaus, on given axes."""
    axes.plot(times, losses, color=COLOURS[0], zorder=4)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(np.min(times[times > 0]), times[-1])
    else:
        axes.set_xlim(times[0], times[-1])
    top = float(np.max(losses))
    axes.set_ylim(min(0.0, float(np.min(losses))) - 0.03 * top, 1.35 * top)
    for level in sorted({visit.level for visit in found.visits if visit.level is not None}):
        axes.axhline(level, color=REST, linestyle=":", linewidth=0.9, zorder=1)
    _shade(axes, found)
    axes.set_ylabel("loss")
    transform = axes.get_xaxis_transform()
    to_axes = axes.transData + axes.transAxes.inverted()
    for visit in found.visits:
        low, high = (float(to_axes.transform((max(x, axes.get_xlim()[0]), 0.0))[0]) for x in (visit.start, visit.end))
        low, high = max(low, 0.0), min(high, 1.0)
        upright = high - low < NARROW + 0.012 * len(visit.name)
        axes.text(
            float((axes.transAxes + axes.transData.inverted()).transform(((low + high) / 2, 0.0))[0]),
            0.97,
            visit.name,
            transform=transform,
            ha="center",
            va="top",
            rotation=90 if upright else 0,
            fontsize="small",
            zorder=5,
        )


def _shade(axes: "Axes", found: Itinerary) -> None:
    for place, visit in enumerate(found.visits):
        axes.axvspan(visit.start, visit.end, color=COLOURS[4 if place % 2 else 5], alpha=0.18, linewidth=0, zorder=0)
