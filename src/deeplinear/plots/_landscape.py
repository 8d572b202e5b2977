"""The graph of critical values and the arcs between critical points, drawn."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.landscape import KIND, CriticalGraph, Signature, arc_kind, arc_loss, arc_minimum, set_name
from deeplinear.plots._style import COLOURS, PANEL, REST, THIN, need_matplotlib, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = {
    KIND.non_strict_saddle: ("s", COLOURS[4]),
    KIND.strict_saddle: ("o", COLOURS[0]),
    KIND.global_minimum: ("D", COLOURS[2]),
}
"""Marker and colour of every kind of critical point."""

GREEDY = COLOURS[1]
"""Colour of the path that learns the modes by size."""

HEIGHT = 4.4
"""Height of the graph in inches."""

LINE = 0.19
"""Height of a label, and width of a marker with its room, in inches."""

LETTER = 0.065
"""Width of a letter of a label in inches."""

BETWEEN = 0.75
"""Room between two columns in inches."""

MOST_NAMED = 5
"""Graphs of more modes have no room for labels, except on the greedy path."""


def _places(graph: CriticalGraph) -> tuple[dict[Signature, tuple[float, float]], list[float], float]:
    """Where the nodes stand, x in inches and y in losses; the middle of every column; and the whole width.

    Nodes of a column whose labels would touch stand beside each other.
    """
    values = [node.value for node in graph.nodes]
    gap = LINE / (0.8 * HEIGHT) * (max(values) - min(values))
    places, middles, left = {}, [], 0.0
    for rank in sorted({node.rank for node in graph.nodes}):
        column = sorted((node for node in graph.nodes if node.rank == rank), key=lambda node: -node.value)
        named = len(graph.sigma) <= MOST_NAMED
        step = LINE + (LETTER * len(column[0].name) if named else 0.0)
        lowest: list[float] = []
        for node in column:
            lane = next((k for k, value in enumerate(lowest) if value - node.value >= gap), len(lowest))
            lowest[lane : lane + 1] = [node.value]
            places[node.signature] = (left + lane * step, node.value)
        middles.append(left + 0.5 * (len(lowest) - 1) * step)
        left += len(lowest) * step + BETWEEN
    return places, middles, left - BETWEEN


def draw_critical_graph(
    axes: "Axes",
    graph: CriticalGraph,
    *,
    transitions: Mapping[tuple[Signature, Signature], float] | None = None,
) -> None:
    """Draw the graph of critical values into axes; see `plot_critical_graph`."""
    from matplotlib.patheffects import withStroke

    places, middles, width = _places(graph)
    steps = set(itertools.pairwise(graph.greedy))
    faint = transitions is not None
    first = {"cover": True, "greedy": True}
    for edge in graph.covers:
        (x0, y0), (x1, y1) = places[edge.start], places[edge.end]
        greedy = (edge.start, edge.end) in steps and not faint
        kind = "greedy" if greedy else "cover"
        axes.plot(
            [x0, x1],
            [y0, y1],
            color=GREEDY if greedy else REST,
            linewidth=2.2 if greedy else THIN,
            zorder=2 if greedy else 1,
            label={"cover": "one mode is learnt", "greedy": "greedy path"}[kind] if first.pop(kind, False) else "_",
        )
    for (start, end), share in (transitions or {}).items():
        axes.annotate(
            "",
            places[end],
            places[start],
            arrowprops={
                "arrowstyle": "-|>",
                "color": GREEDY,
                "linewidth": 0.7 + 2.3 * share,
                "shrinkA": 4,
                "shrinkB": 4,
                # Names stand to the upper right of their nodes: passages within a column bend to the left of it.
                "connectionstyle": f"arc3,rad={0.12 if len(start) == len(end) else -0.12}",
                "mutation_scale": 8,
            },
            zorder=2,
        )
    if faint:
        axes.plot([], [], color=GREEDY, linewidth=1.8, label="flows (width: share of flows)")
    greedy_nodes = set(graph.greedy)
    for kind, (marker, colour) in MARKS.items():
        nodes = [node for node in graph.nodes if node.kind is kind]
        if not nodes:
            continue
        x, y = zip(*(places[node.signature] for node in nodes), strict=True)
        axes.plot(x, y, marker, color=colour, markersize=5.5, label=kind.value, zorder=4)
        for node in nodes:
            if len(graph.sigma) > MOST_NAMED and node.signature not in greedy_nodes:
                continue
            axes.annotate(
                node.name,
                places[node.signature],
                xytext=(3, 3),
                textcoords="offset points",
                va="bottom",
                fontsize=8,
                zorder=5,
                path_effects=[withStroke(linewidth=1.6, foreground="white")],
            )
    axes.set_xticks(middles, [str(rank) for rank in range(len(middles))])
    axes.set_xlabel("modes learnt")
    axes.set_ylabel("critical value of the loss")
    low, high = (f(value for _, value in places.values()) for f in (min, max))
    room = 0.05 * (high - low)
    axes.set_ylim(low - room, high + room)
    axes.set_xlim(-0.3, width + 0.35)
    axes.grid(False, axis="x")


def graph_width(graph: CriticalGraph) -> float:
    """Width in inches that the graph needs for its labels not to touch."""
    return max(_places(graph)[2] + 1.7, PANEL[0])


def plot_critical_graph(
    graph: CriticalGraph,
    *,
    transitions: Mapping[tuple[Signature, Signature], float] | None = None,
    title: str | None = None,
) -> "Figure":
    """Figure of the graph of critical values.

    The height of a node is its value, its column the number of modes learnt, its colour and shape the kind of its
    simplest critical point. Lines join signatures that differ by one mode; the greedy path, which learns the modes by
    size, is thick. Nodes are named up to 5 modes.

    Args:
        graph: The graph.
        transitions: Pairs of signatures between which flows were seen to pass, with the share of flows, from 0 to 1:
            they are drawn as arrows in place of the greedy path.
        title: Heading of the figure.

    Returns:
        Figure of matplotlib; see `save_figure`.

    Raises:
        ImportError: If matplotlib, of the extra `report`, is not installed.
    """
    need_matplotlib("plot_critical_graph")
    from matplotlib.figure import Figure

    with paper_style():
        figure = Figure(figsize=(graph_width(graph), HEIGHT + 0.4), layout="constrained")
        axes = figure.subplots()
        draw_critical_graph(axes, graph, transitions=transitions)
        axes.legend(loc="upper right")
        if title is not None:
            figure.suptitle(title)
    return figure


def draw_arc(axes: "Axes", sigma: Sequence[float] | np.ndarray, start: Sequence[int], end: Sequence[int]) -> None:
    """Draw the loss on one arc into axes, with its ends named and a minimum inside marked."""
    places = np.linspace(0.0, 1.0, 201)
    losses = np.asarray(arc_loss(sigma, start, end, places))
    axes.plot(places, losses, color=COLOURS[0], zorder=3)
    axes.plot([0.0, 1.0], losses[[0, -1]], "o", color=COLOURS[1], zorder=4, clip_on=False)
    kind = arc_kind(start, end)
    if kind == "mixed":
        found = arc_minimum(sigma, start, end)
        place, least = float(found.alpha), float(found.value)
        axes.plot([place], [least], "D", color=COLOURS[2], zorder=4)
        axes.annotate(
            f"{least:.4g} at {place:.2g}",
            (place, least),
            xytext=(0, 16),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
        )
    low, high = min(losses.min(), 0.9 * losses.max()), losses.max()
    room = 0.12 * (high - low) if high > 0 else 0.1
    axes.set_ylim(low - room, high + room)
    axes.set_xlabel(r"place on the arc, $\alpha$")
    axes.set_ylabel("loss")
    axes.set_title(f"{set_name(tuple(sorted(start)))} to {set_name(tuple(sorted(end)))}: {kind}")


def plot_arcs(
    sigma: Sequence[float] | np.ndarray,
    arcs: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    title: str | None = None,
) -> "Figure":
    """Figure with the loss along arcs between critical points, one panel for each.

    Args:
        sigma: Singular values of the task.
        arcs: Pairs of signatures, start and end.
        title: Heading of the figure.

    Returns:
        Figure of matplotlib; see `save_figure`.

    Raises:
        ImportError: If matplotlib, of the extra `report`, is not installed.
    """
    need_matplotlib("plot_arcs")
    from matplotlib.figure import Figure

    if not arcs:
        raise ValueError("plot_arcs: arcs must hold at least one pair of signatures, but is empty.")
    columns = min(2, len(arcs))
    rows = -(-len(arcs) // columns)
    with paper_style():
        figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout="constrained")
        grid: Any = np.ravel(figure.subplots(rows, columns, squeeze=False))
        for axes in grid[len(arcs) :]:
            axes.remove()
        for axes, (start, end) in zip(grid, arcs, strict=False):
            draw_arc(axes, sigma, start, end)
        if title is not None:
            figure.suptitle(title)
    return figure
