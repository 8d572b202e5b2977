"""How a matrix was completed, as a picture."""

from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.plots._style import COLOURS, PANEL, need_matplotlib, paper_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAR = 30.0
"""Factor between the last and the first time from which on powers of ten alone are marked."""
WRITTEN = 4_000_000
"""Entries of a matrix up to which it is drawn."""
LEGEND, BELOW = 0.4, 32 / 72
"""Height of the legend, and how far below the panel it begins, in inches."""


def plot_completion(fit: Any, matrix: Any = None, completed: Any = None, *, title: str | None = None) -> "Figure":
    """Errors and effective rank on the way, singular values, and the matrix before and after.

    Args:
        fit: A fitted `DeepMatrixCompletion`.
        matrix: What was known, NaN elsewhere.
        completed: The same without gaps; drawn beside it if both are given.
        title: Heading.

    Returns:
        Figure of matplotlib; see `save_figure`.

    Raises:
        ImportError: If matplotlib, of the extra `report`, is not installed.
    """
    need_matplotlib("plot_completion")
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    both = matrix is not None and completed is not None and np.size(matrix) <= WRITTEN
    path = fit.path_
    with paper_style():
        shape = (2, 2) if both else (1, 2)
        size = (2 * PANEL[0], shape[0] * PANEL[1] + LEGEND)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(*shape, squeeze=False)
        errors, values = grid[0]
        _draw_errors(errors, path)
        found = np.asarray(fit.singular_values_)
        found = found[found > 1e-6 * found.max(initial=0.0)]
        values.semilogy(np.arange(1, len(found) + 1), found, "o", color=COLOURS[0])
        values.xaxis.set_major_locator(MaxNLocator(integer=True))
        values.set(xlabel="number", ylabel="singular value", title=f"learnt part, rank {fit.rank_}")
        if both:
            known, whole = np.asarray(matrix, dtype=float), np.asarray(completed, dtype=float)
            low, high = np.nanpercentile(whole, (1, 99))
            image: Any = None
            for axes, shown, name in zip(grid[1], (known, whole), ("known", "completed"), strict=True):
                image = axes.imshow(shown, aspect="auto", interpolation="nearest", cmap="viridis", vmin=low, vmax=high)
                axes.set(xlabel="column", ylabel="row", title=name)
                axes.grid(False)
            figure.colorbar(image, ax=grid[1], shrink=0.9)
        if title:
            figure.suptitle(title)
        figure.draw_without_rendering()  # marks change with the size of the panels: a second layout sees the new ones
    return figure


def _draw_errors(axes: Any, path: Any) -> None:
    """Errors over time, the best moment, and the effective rank on an axis of its own; the legend stands below."""
    axes.plot(path.times, path.errors, color=COLOURS[0], label="fitted")
    if np.any(np.isfinite(path.held_out)):
        axes.plot(path.times, path.held_out, color=COLOURS[1], label="held out")
        axes.axvline(path.times[path.best], color="#666666", linewidth=0.8, linestyle=":", label="stopped")
    axes.set(xlabel="time of the flow", ylabel="RMS error / spread", title="errors and rank on the way")
    axes.set_ylim(bottom=0)
    if path.times[0] > 0:
        from matplotlib.ticker import LogLocator, NullFormatter

        axes.set_xscale("log")
        axes.xaxis.set_major_locator(
            LogLocator(subs=(1.0,) if path.times[-1] > FAR * path.times[0] else (1.0, 2.0, 5.0))
        )
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    other = axes.twinx()
    other.plot(path.times, path.ranks, color=COLOURS[2], linestyle="--", label="effective rank")
    other.set_ylabel("effective rank")
    other.set_ylim(bottom=0)
    other.grid(False)
    other.spines["right"].set_visible(True)
    lines = [*axes.get_lines(), *other.get_lines()]
    names = [str(line.get_label()) for line in lines]
    from matplotlib.transforms import ScaledTranslation

    place = axes.transAxes + ScaledTranslation(0, -BELOW, axes.figure.dpi_scale_trans)
    axes.legend(
        lines,
        names,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=place,
        ncols=2,
        borderaxespad=0.0,
    )
