"""The network as a graph and as one matrix at three moments of a run."""

import dataclasses

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.network._graph_view import EXPERIMENTS, Views
from deeplinear.plots import paper_style

(VIEW,) = EXPERIMENTS


@pytest.mark.covers("network:F44")
def test_views_of_a_run_from_near_the_origin() -> None:
    """Two layers of two modes: small enough for a moment, large enough for a plateau."""
    assert VIEW.preset("paper") == Views()
    spec = dataclasses.replace(VIEW.preset("quick"), widths=(3, 3, 2), sigma=(4.0, 1.0), scale=0.003, horizon=30.0)
    dataset = VIEW.run(spec, Context())
    claims = VIEW.claims(dataset, spec)
    assert [claim.statement for claim in claims if not claim.holds] == []
    matrix = dataset["adjacency"].to_numpy()
    assert matrix.shape == (3, 8, 8) and not np.any(matrix[:, :3]) and not np.any(matrix[:, :, 6:])
    product = matrix[2, 6:, 3:6] @ matrix[2, 3:6, :3]
    np.testing.assert_allclose(product, [[4, 0, 0], [0, 1, 0]], atol=1e-6)
    np.testing.assert_allclose(dataset["radius"][2], np.sqrt(2), rtol=1e-3)  # 2 cos(pi/4)
    with paper_style():
        figure = VIEW.plot(dataset, spec)
    assert len(figure.axes) == 12  # three rows of three, and a scale for each matrix
    graph = figure.axes[0]
    assert len(graph.collections[0].get_linewidths()) == 15  # a line for each weight


def test_views_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="learnt must be at most 3"):
        Views(learnt=4)
    with pytest.raises(ValueError, match="scale must be greater than 0"):
        Views(scale=0.0)
    early = dataclasses.replace(VIEW.preset("quick"), widths=(3, 3, 2), sigma=(4.0, 1.0), scale=0.003, horizon=0.1)
    with pytest.raises(RuntimeError, match="no recorded moment has 1 modes learnt"):
        VIEW.run(early, Context())
