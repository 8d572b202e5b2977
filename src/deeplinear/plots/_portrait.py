"""Where a network stands, as a picture."""

from typing import TYPE_CHECKING

import numpy as np

from deeplinear.landscape import Portrait, critical_values
from deeplinear.plots._style import COLOURS, PANEL, REST, need_matplotlib, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_MODES = 6
"""Critical values of more modes are too many to draw."""

NAMED = 12
"""Up to so many critical values have their names written."""

WEAK = 1e-9
"""Modes below this share of the strongest one make no critical values of their own."""

LINEAR = 1e-3
"""Share of the largest eigenvalue below which the axis of eigenvalues is linear at the most."""


def plot_portrait(found: Portrait, *, title: str | None = None) -> "Figure":
    """Singular values of layers and product, the ladder of critical values, and the spectrum of the Hessian.

    Args:
        found: The portrait.
        title: Heading of the figure.

    Returns:
        Figure of matplotlib; see `save_figure`.

    Raises:
        ImportError: If matplotlib, of the extra `report`, is not installed.
    """
    need_matplotlib("plot_portrait")
    from matplotlib.figure import Figure

    ladder = found.sigma is not None and found.loss is not None and len(found.sigma) <= MOST_MODES
    panels = [_strengths] + [_ladder] * ladder + [_hessian] * (found.hessian is not None)
    with paper_style():
        figure = Figure(figsize=(PANEL[0] * 0.95 * len(panels), 1.25 * PANEL[1]), layout="constrained")
        for axes, draw in zip(np.ravel(figure.subplots(1, len(panels), squeeze=False)), panels, strict=True):
            draw(axes, found)
        if title is not None:
            figure.suptitle(title)
    return figure


def _strengths(axes: "Axes", found: Portrait) -> None:
    for place, values in enumerate(found.layer_singular_values, start=1):
        axes.plot(
            np.full(len(values), place), values, "o", color=COLOURS[0], alpha=0.7, label="layer" if place == 1 else "_"
        )
    last = len(found.layer_singular_values) + 1
    axes.plot(np.full(len(found.singular_values), last), found.singular_values, "s", color=COLOURS[1], label="product")
    ticks = [*map(str, range(1, last)), "product"]
    compared = found.whitened_singular_values
    if compared is not None and not found.white:
        ticks.append("whitened")  # what the modes of the task compare with
        axes.plot(np.full(len(compared), len(ticks)), compared, "s", color=COLOURS[1], fillstyle="none")
    if found.sigma is not None:
        ticks.append("task")
        axes.plot(np.full(len(found.sigma), len(ticks)), found.sigma, "D", color=COLOURS[2], label="task")
    axes.set_xticks(range(1, len(ticks) + 1), ticks, rotation=0 if len(ticks) < 8 else 90)
    axes.set_xlabel("layer")
    axes.set_ylabel("singular values")
    axes.set_ylim(bottom=-0.03 * max(axes.get_ylim()[1], 1e-300))
    axes.set_title("strengths")


def _ladder(axes: "Axes", found: Portrait) -> None:
    assert found.sigma is not None and found.loss is not None
    positive = found.sigma[found.sigma > WEAK * found.sigma[0]]
    most = min(len(positive), *found.widths)
    left = 0.5 * float(np.sum(found.sigma[len(positive) :] ** 2)) + (found.constant or 0.0)
    table = critical_values(positive) if len(positive) else {(): 0.0}
    least = most if len(found.widths) == 2 else 0  # a single layer has no critical point but the minimum
    values = {signature: value + left for signature, value in table.items() if least <= len(signature) <= most}
    lowest, total = min(values.values()), max(values.values()) - min(values.values())
    labels = {True: "strongest modes first", False: "others"}
    for signature, value in values.items():
        greedy = signature == tuple(range(1, len(signature) + 1))
        colour = COLOURS[0] if greedy else REST
        axes.plot(
            [len(signature) - 0.3, len(signature) + 0.3],
            [value] * 2,
            color=colour,
            linewidth=2,
            label=labels.pop(greedy, "_"),
        )
        if greedy or len(values) <= NAMED:
            name = "{" + ",".join(map(str, signature)) + "}" if signature else "∅"
            axes.annotate(
                name,
                (len(signature), value),
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize="x-small",
            )
    axes.axhline(found.loss, color=COLOURS[1], linestyle="--", label="loss of these weights")
    axes.set_xticks(range(most + 1))
    axes.set_xlabel("number of modes learnt")
    axes.set_ylabel("loss")
    span = max(1.1 * total, 1.05 * (found.loss - lowest)) or abs(lowest) or 1.0
    axes.set_ylim(lowest - 0.05 * span, lowest + 1.4 * span)  # room for the legend above
    axes.legend(loc="upper right", fontsize="small")
    axes.set_title("critical values")


def _hessian(axes: "Axes", found: Portrait) -> None:
    assert found.hessian is not None
    values = found.hessian.values
    edge = (
        found.inertia.threshold if found.inertia is not None else 1e-9 * float(np.max(np.abs(values), initial=1e-300))
    )
    groups = (
        ("negative", values < -edge, COLOURS[1]),
        ("zero", np.abs(values) <= edge, REST),
        ("positive", values > edge, COLOURS[0]),
    )
    place = np.arange(1, len(values) + 1)
    for name, chosen, colour in groups:
        if np.any(chosen):
            axes.plot(
                place[chosen], values[chosen], "o", markersize=3, color=colour, label=f"{name}: {int(chosen.sum())}"
            )
    small = np.abs(values[np.abs(values) > edge])
    if len(small) and small.max() > 100 * small.min():
        edge = max(float(small.min()), LINEAR * float(small.max()))
        axes.set_yscale("symlog", linthresh=10.0 ** np.ceil(np.log10(edge)))
    axes.set_xlabel("number of the eigenvalue")
    axes.set_ylabel("eigenvalue of the Hessian")
    axes.legend(loc="upper left", fontsize="small")
    ends = {"both": ", both ends", "largest": ", upper end", "smallest": ", lower end"}
    axes.set_title("curvature" + ("" if found.hessian.complete else ends[found.hessian.which]))
