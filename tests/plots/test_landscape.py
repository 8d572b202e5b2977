"""Pictures of the graph of critical values and of arcs."""

import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation

from deeplinear.landscape import critical_graph
from deeplinear.plots import plot_arcs, plot_critical_graph

TOUCH = 1.0
"""Points by which boxes of labels may come close to each other."""


@pytest.mark.parametrize(
    "sigma", [(5.0, 4.0, 3.0, 2.0, 1.0), (1.05, 1.04, 1.03, 1.02, 1.01), (9.0, 2.0, 1.0)], ids=["even", "close", "one"]
)
def test_labels_do_not_overlap(sigma: tuple[float, ...]) -> None:
    """Boxes of all names as they are drawn, also where many values nearly coincide."""
    modes = len(sigma)
    figure = plot_critical_graph(critical_graph(sigma, (modes,) * 4), title="graph")
    FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    names = [text for text in axes.texts if isinstance(text, Annotation) and text.get_text()]
    assert len(names) == 2**modes
    boxes = [text.get_window_extent() for text in names]
    for one, two in itertools.combinations(boxes, 2):
        wide = min(one.x1, two.x1) - max(one.x0, two.x0)
        high = min(one.y1, two.y1) - max(one.y0, two.y0)
        assert wide <= TOUCH or high <= TOUCH
    labels = axes.get_legend_handles_labels()[1]
    assert {"greedy path", "strict saddle", "non-strict saddle", "global minimum"} <= set(labels)


def test_graphs_of_many_modes_name_the_greedy_path_only() -> None:
    graph = critical_graph(np.arange(6.0, 0.0, -1.0), (6, 6, 6, 6))
    (axes,) = plot_critical_graph(graph, transitions={((2,), (1,)): 0.5}).axes
    assert len([text for text in axes.texts if text.get_text()]) == 7
    assert "flows (width: share of flows)" in axes.get_legend_handles_labels()[1]


def test_arcs_are_drawn() -> None:
    figure = plot_arcs([3.0, 2.0, 1.0], [((1,), (1, 2)), ((1,), (2,)), ((1, 2, 3), (1, 2, 3))], title="arcs")
    assert [axes.get_title() for axes in figure.axes] == [
        "{1} to {1,2}: decreasing",
        "{1} to {2}: mixed",
        "{1,2,3} to {1,2,3}: constant",
    ]
    with pytest.raises(ValueError, match="at least one pair"):
        plot_arcs([1.0], [])
