"""A response and how it goes on, as a picture."""

from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.plots._recurrent import plot_responses
from deeplinear.plots._style import COLOURS, PANEL, need_matplotlib, paper_style
from deeplinear.recurrent import Continuation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOM = 3.0
"""How far the axis may grow for the band of balanced networks, in each direction and in spans of the curves."""


def plot_continuation(
    found: Continuation, *, given: Any = None, student: Any = None, title: str | None = None
) -> "Figure":
    """The least network's response, what other balanced networks with the same numbers may do, and a student's.

    Args:
        found: From `continuation`.
        given: The true response as far as it is given; its first numbers, those that were known, are marked.
        student: Response of a student.
        title: Heading.

    Returns:
        Figure of matplotlib; see `save_figure`.

    Raises:
        ImportError: If matplotlib, of the extra `report`, is not installed.
    """
    need_matplotlib("plot_continuation")
    from matplotlib.figure import Figure

    curves: dict[str, Any] = {"continued": np.asarray(found.response)}
    beyond = given is not None and len(given) > found.known
    if beyond:
        curves = {"true": np.asarray(given)[: len(found.response)], **curves}
    if student is not None:
        curves["student"] = np.asarray(student)
    with paper_style():
        figure = Figure(figsize=(1.8 * PANEL[0], PANEL[1]), layout="constrained")
        axes = figure.subplots()
        plot_responses(curves, lengths=found.known, ax=axes, legend=False, title=title)
        if found.lower is not None and found.upper is not None:
            bottom, top = axes.get_ylim()
            room, gap = ROOM * (top - bottom), 0.05 * (top - bottom)
            index = np.arange(found.known - 1, len(found.response))
            low, high = (np.asarray(values)[found.known - 1 :] for values in (found.lower, found.upper))
            axes.fill_between(
                index, low, high, color=COLOURS[1], alpha=0.25, linewidth=0, label="balanced networks", zorder=0.5
            )
            axes.set_ylim(max(bottom - room, min(bottom, low.min() - gap)), min(top + room, max(top, high.max() + gap)))
        if beyond:
            axes.plot(curves["true"][: found.known], "ko", fillstyle="none", markersize=10, label="known")
        axes.legend(loc="best")
    return figure
