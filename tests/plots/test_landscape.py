"""Pictures of the graph of critical values and of arcs."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation

from deeplinear.core import RESULTS, Trajectory
from deeplinear.landscape import critical_graph, itinerary, portrait
from deeplinear.models import DeepLinear, Problem, Regression, SquaredDistance
from deeplinear.plots import plot_arcs, plot_critical_graph, plot_itinerary, plot_portrait

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


def test_names_stand_beside_their_nodes() -> None:
    """No box behind a name, which would hide lines; passages within a column leave the side of the names free."""
    graph = critical_graph((3.0, 2.0, 1.0), (4, 3, 3, 3))
    (axes,) = plot_critical_graph(graph, transitions={((2,), (1,)): 0.5, ((1,), (1, 2)): 1.0}).axes
    names = [text for text in axes.texts if isinstance(text, Annotation) and text.get_text()]
    assert {text.get_text() for text in names} == {"∅", "{1}", "{2}", "{3}", "{1,2}", "{1,3}", "{2,3}", "{1,2,3}"}
    assert all(text.get_bbox_patch() is None for text in names)
    heights = {text.get_text(): text.xy[1] for text in names}
    np.testing.assert_allclose([heights["∅"], heights["{2}"], heights["{1,2}"]], [7.0, 5.0, 0.5])
    arrows = [text.arrow_patch for text in axes.texts if isinstance(text, Annotation) and text.arrow_patch]
    assert [arrow.get_connectionstyle().rad > 0 for arrow in arrows] == [True, False]
    assert [arrow.get_linewidth() for arrow in arrows] == pytest.approx([1.85, 3.0])


def test_a_portrait_is_drawn() -> None:
    """Two layers of (2, 1): strengths, four critical values of which three learn the strongest first, curvature."""
    layers = (jnp.array([[1.0, 0.0], [0.0, 0.5]]), jnp.array([[0.5, 0.0], [0.2, 1.0]]))
    found = portrait(layers, Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.diag(jnp.array([2.0, 1.0])))))
    figure = plot_portrait(found, title="two layers")
    strengths, ladder, curvature = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["strengths", "critical values", "curvature"]
    assert [tick.get_text() for tick in strengths.get_xticklabels()] == ["1", "2", "product", "task"]
    labels = ladder.get_legend_handles_labels()[1]
    assert labels == ["strongest modes first", "others", "loss of these weights"]
    levels = [line.get_ydata()[0] for line in ladder.lines]
    product = np.array([[0.5, 0.0], [0.2, 0.5]])
    loss = 0.5 * np.sum((np.diag([2.0, 1.0]) - product) ** 2)
    np.testing.assert_allclose(sorted(levels), sorted([2.5, 0.5, 2.0, 0.0, loss]), rtol=1e-12)
    counts = [int(label.split(": ")[1]) for label in curvature.get_legend_handles_labels()[1]]
    assert sum(counts) == 8


def test_critical_values_start_at_what_no_linear_map_fits() -> None:
    """Weights that are nearly the minimum lie below ∅ and just above {1}: their loss has a constant, and one unit."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 50)) * np.array([[3.0], [1.0]])
    y = np.array([[1.0, 0.3], [0.2, 0.1]]) @ x + rng.standard_normal((2, 50))
    least = np.linalg.lstsq(x.T, y.T, rcond=None)[0].T
    values, vectors = np.linalg.eigh(x @ x.T / 50)
    root = (vectors * np.sqrt(values)) @ vectors.T
    left, sigma, right = np.linalg.svd(least @ root)
    constant = 0.5 * np.sum((least @ x - y) ** 2) / 50
    second = left[:, :1] * sigma[0] * (1 + 1e-4)
    found = portrait(
        (right[:1] @ np.linalg.inv(root), second), Problem(DeepLinear((2, 1, 2)), Regression.from_data(x, y))
    )
    strengths, ladder, _ = plot_portrait(found).axes
    levels = sorted(line.get_ydata()[0] for line in ladder.lines)
    wanted = sorted([constant + 0.5 * np.sum(sigma**2), constant + 0.5 * sigma[1] ** 2, constant + 0.5 * sigma[0] ** 2])
    np.testing.assert_allclose([levels[0], *levels[2:]], wanted, rtol=1e-9)  # no value of both modes behind one unit
    np.testing.assert_allclose(levels[1] - levels[0], 0.5e-8 * sigma[0] ** 2, rtol=1e-3)
    assert ladder.get_ylim()[0] < levels[0]
    assert [tick.get_text() for tick in strengths.get_xticklabels()] == ["1", "2", "product", "whitened", "task"]
    whitened = next(line for line in strengths.lines if list(line.get_xdata()) == [4, 4])
    np.testing.assert_allclose(whitened.get_ydata(), [sigma[0] * (1 + 1e-4), 0.0], atol=1e-9)


def test_a_task_that_vanishes_is_drawn() -> None:
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.zeros((2, 2))))
    _, ladder, _ = plot_portrait(portrait((np.zeros((2, 2)),) * 2, problem)).axes
    assert [line.get_ydata()[0] for line in ladder.lines] == [0.0, 0.0]


def test_an_itinerary_is_drawn() -> None:
    """Two balanced layers with modes of size s: s' = 2s(σ - s), by the logistic function; no flow is run."""
    sigma, first = np.array([3.0, 1.0]), 1e-9
    times = np.linspace(0.0, 20.0, 401)
    sizes = sigma / (1 + (sigma / first - 1) * np.exp(-2 * sigma * times[:, None]))
    rest = sigma - sizes
    values = {
        "loss": 0.5 * np.sum(rest**2, axis=1),
        "product": np.stack([np.diag(s) for s in sizes]),
        "gradient_norm": np.sqrt(np.sum(2 * sizes * rest**2, axis=1)),
    }
    dims = {"loss": (), "product": ("row", "column"), "gradient_norm": ()}
    done, count = np.asarray(int(RESULTS.completed)), np.asarray(len(times))
    run = Trajectory(times, values, dims, (), done, np.asarray(0), (), count, {}, {})
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.diag(jnp.asarray(sigma))))
    found = itinerary(problem, run)
    assert found.signatures == ((), (1,), (1, 2))
    figure = plot_itinerary(run, found, title="two modes")
    above, below = figure.axes
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "gradient norm"] and below.get_xlabel() == "time"
    assert {"∅", "{1}", "{1,2}"} <= {text.get_text() for text in above.texts}
    without = Trajectory(times, {"product": values["product"]}, dims, (), done, np.asarray(0), (), count, {}, {})
    with pytest.raises(ValueError, match="must hold the probe 'loss'"):
        plot_itinerary(without, found)


def test_arcs_are_drawn() -> None:
    figure = plot_arcs([3.0, 2.0, 1.0], [((1,), (1, 2)), ((1,), (2,)), ((1, 2, 3), (1, 2, 3))], title="arcs")
    assert [axes.get_title() for axes in figure.axes] == [
        "{1} to {1,2}: decreasing",
        "{1} to {2}: mixed",
        "{1,2,3} to {1,2,3}: constant",
    ]
    with pytest.raises(ValueError, match="at least one pair"):
        plot_arcs([1.0], [])
