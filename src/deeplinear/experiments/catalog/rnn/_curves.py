"""Curves of extrapolation errors and training losses over the training length."""

from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.experiments.catalog.rnn._training import CAP, summaries
from deeplinear.plots import COLOURS

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

FLOOR = 1e-3
"""Least ratio of errors that is drawn; what is below stands on the floor as a triangle."""

LEAST_LOSS = 1e-16
"""Least training loss that is drawn."""

BLACK, GREY = COLOURS[-1], "#888888"


def draw_ratios(
    axes: "Axes", ratios: "xarray.DataArray", colour: str, label: str, *, along: str = "length", mean: bool = True
) -> None:
    """Median over draws with the range of all draws, and the mean of the capped ratios as dots.

    Args:
        axes: Where to draw.
        ratios: $E/E_0$ with the axis `draw` and one more.
        colour: Of all of it.
        label: Of the median.
        along: That other axis.
        mean: Whether to draw the mean.
    """
    found = summaries(ratios)
    places = found[along].to_numpy()
    low, high = (np.clip(found[name].to_numpy(), FLOOR, CAP) for name in ("least", "most"))
    axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    _floored(axes, places, found["median"].to_numpy(), color=colour, marker="o", label=label)
    if mean:
        shown = np.clip(found["mean"].to_numpy(), FLOOR, CAP)
        axes.plot(places, shown, color=colour, linestyle=":", linewidth=1.1)


def draw_baseline(axes: "Axes", ratios: "xarray.DataArray", label: str = "Ho–Kalman") -> None:
    """Median of the subspace baseline, broken and black."""
    medians = ratios.median("draw")
    _floored(
        axes,
        medians["length"].to_numpy(),
        medians.to_numpy(),
        color=BLACK,
        linestyle="--",
        linewidth=1.0,
        marker="s",
        markersize=2.5,
        label=label,
    )


def draw_losses(axes: "Axes", losses: "xarray.DataArray", colour: str, label: str) -> None:
    """Median training loss with the range over draws; what is below the least loss stands on it."""
    places = losses["length"].to_numpy()
    low, middle, high = (np.maximum(losses.quantile(share, "draw").to_numpy(), LEAST_LOSS) for share in (0.0, 0.5, 1.0))
    axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(places, middle, color=colour, marker="o", label=label)


def finish_panels(top: "Axes", bottom: "Axes", border: float | None = None) -> None:
    """Logarithmic axes, the lines of the zero student and of the length at which the theory sets in."""
    from matplotlib.ticker import MaxNLocator

    top.axhline(1.0, color=GREY, linewidth=0.8, zorder=1)
    if border is not None:
        top.axvline(border, color=GREY, linewidth=0.9, linestyle="-.", zorder=1, label=r"$k = 2\hat d$")
        bottom.axvline(border, color=GREY, linewidth=0.9, linestyle="-.", zorder=1)
    top.set(yscale="log", ylim=(0.7 * FLOOR, 1.3 * CAP))
    bottom.set(yscale="log", xlabel="training length $k$")
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))


def _floored(axes: "Axes", places: np.ndarray, values: np.ndarray, **style: Any) -> None:
    """A line that stays within the picture, with triangles where it would leave it."""
    style.setdefault("markersize", 3.0)
    shown, inside = np.clip(values, FLOOR, CAP), (values >= FLOOR) & (values <= CAP)
    axes.plot(places, shown, markevery=np.flatnonzero(inside).tolist(), **style)
    for outside, shape in ((values < FLOOR, "v"), (values > CAP, "^")):
        if np.any(outside):
            axes.plot(places[outside], shown[outside], shape, color=style["color"], markersize=4.5)
