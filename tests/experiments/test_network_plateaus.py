"""Saddles that runs from near the origin visit, named by two independent means."""

import dataclasses
import math

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.network._plateaus import EXPERIMENTS, Plateaus, named_by_loss
from deeplinear.plots import paper_style

(PLATEAUS,) = EXPERIMENTS


@pytest.mark.covers("network:F37")
def test_plateaus_are_found_where_the_loss_says() -> None:
    """Two modes in three layers: the origin, the stronger mode, both, in every run; the levels by hand."""
    spec = dataclasses.replace(PLATEAUS.preset("quick"), inp=3, hidden=2, out=2, runs=3)
    dataset = PLATEAUS.run(spec, Context())
    claims = PLATEAUS.claims(dataset, spec)
    assert len(claims) == 4 and [claim.statement for claim in claims if not claim.holds] == []
    assert dataset["found"].to_numpy().tolist() == [[[0, 1, 3]] * 3]  # modes as bits
    np.testing.assert_array_equal(dataset["found"], dataset["by_loss"])
    # On the plateau between both modes the loss is half the square of the weaker one.
    first, second = dataset["example_sigma"].to_numpy()
    losses, sizes = dataset["example_loss"].to_numpy(), dataset["example_gradient"].to_numpy()
    between = (losses < 0.5 * second**2 + 0.1 * first**2) & (losses > 0.4 * second**2)
    quiet = np.flatnonzero(between)[np.argmin(sizes[between])]
    assert losses[quiet] == pytest.approx(0.5 * second**2, rel=0.01)
    with paper_style():
        figure = PLATEAUS.plot(dataset, spec)
    assert [axes.get_title() for axes in figure.axes][:2] == ["one run of depth 3", "saddles visited"]
    assert PLATEAUS.preset("paper") == Plateaus()
    # A run whose saddles are told wrongly is seen.
    wrong = dataset.copy(deep=True)
    wrong["agree"][0, 0] = False
    assert not all(claim.holds for claim in PLATEAUS.claims(wrong, spec)[:2])


def test_valleys_of_the_gradient_are_named_by_their_loss() -> None:
    """Losses of (3, 2): 6.5 at the origin, 2 with the first mode, 0 with both; 5.9 is no critical value."""
    sizes = np.array([1e-3, 1.0, 1e-2, 1.0, 1e-3])
    sigma = np.array([3.0, 2.0])
    assert named_by_loss(np.array([6.5, 4.0, 2.0, 1.0, 0.0]), sizes, sigma) == [(), (1,), (1, 2)]
    assert named_by_loss(np.array([6.5, 6.0, 5.9, 1.0, 0.0]), sizes, sigma) == [(), None, (1, 2)]
    assert named_by_loss(np.array([6.5, 6.0, 4.5, 1.0, 0.0]), sizes, sigma) == [(), (2,), (1, 2)]
    shallow = np.array([1e-3, 1.0, 0.9, 1.0, 1e-3])
    assert named_by_loss(np.array([6.5, 4.0, 2.0, 1.0, 0.0]), shallow, sigma) == [(), (1, 2)]


def test_specs_that_cannot_be_run_are_refused() -> None:
    with pytest.raises(ValueError, match="one number for each of the 1 depths"):
        Plateaus(depths=(3,))
    with pytest.raises(ValueError, match="out must be at most 2"):
        Plateaus(out=3, hidden=2)
    with pytest.raises(ValueError, match="least_step must be"):
        Plateaus(least_step=math.inf)
