"""Random critical points, what they are told to be, and the smallest eigenvalues of their Hessians."""

import dataclasses

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.network._classification import EXPERIMENTS, Saddles
from deeplinear.plots import paper_style

(EXPERIMENT,) = EXPERIMENTS


@pytest.mark.covers("network:C21", "network:F20")
def test_saddles_are_told_rightly() -> None:
    spec = dataclasses.replace(EXPERIMENT.preset("quick"), points=150)
    dataset = EXPERIMENT.run(spec, Context())
    assert dataset.sizes == {"point": 150}
    claims = EXPERIMENT.claims(dataset, spec)
    assert [claim.statement for claim in claims if not claim.holds] == []
    assert set(np.unique(dataset["kind"])) == {0, 1, 2}
    with paper_style():
        figure = EXPERIMENT.plot(dataset, spec)
    assert [axis.get_title() for axis in figure.axes] == [
        "Hessian at critical points",
        "number of points",
        "strict saddles",
    ]
    assert EXPERIMENT.preset("paper").points >= 300
    # A point told wrongly is seen.
    mistaken = dataset.copy(deep=True)
    mistaken["kind"][int(np.argmax(dataset["kind"].to_numpy() == 1))] = 2
    assert not EXPERIMENT.claims(mistaken, spec)[0].holds


def test_points_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="widest must be at least 4"):
        Saddles(narrowest=4, widest=3)
    with pytest.raises(ValueError, match="deepest must be at least 2"):
        Saddles(deepest=1)
