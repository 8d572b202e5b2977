"""Figures 1 and 2 of the paper on two layers: gradient descent beside the closed form."""

import dataclasses

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.exact._curves import EXPERIMENTS, Curves
from deeplinear.plots import paper_style

FIGURES = {experiment.id: experiment for experiment in EXPERIMENTS}


@pytest.mark.covers("exact:fig1a", "exact:fig1b", "exact:fig2", "exact:F7", "exact:S36")
def test_figures_1_and_2_have_their_recorded_numbers() -> None:
    """One run serves both; steps ten times the paper's, so that differences are ten times the recorded ones."""
    chosen = FIGURES["exact/fig2"]
    spec = chosen.preset("quick")
    dataset = chosen.run(spec, Context())
    np.testing.assert_allclose(dataset["strength"], [1.14, 0.57], atol=0.005)
    blocks = ["function", "input_correlation", "output_correlation"]
    assert float(dataset["difference"].sel(quantity=blocks).max()) < 1e-2
    assert float(dataset["drift"].max()) < 2.3e-3
    for figure in FIGURES.values():
        assert figure.preset("paper") == Curves()
        claims = figure.claims(dataset, spec)
        assert len(claims) >= 5
        assert [claim.statement for claim in claims if not claim.holds] == []
        with paper_style():
            drawn = figure.plot(dataset, spec)
        assert drawn.axes[-1].get_xlabel() == "step"
    # Steps ten times as long: the difference is ten times as large.
    longer = chosen.run(
        dataclasses.replace(spec, lr=10 * spec.lr, steps=spec.steps // 10, every=spec.every // 10), Context()
    )
    ratio = longer["difference"].sel(quantity=blocks) / dataset["difference"].sel(quantity=blocks)
    np.testing.assert_allclose(ratio, 10.0, atol=1.0)
    # Another seed has no recorded numbers: what is left is the agreement.
    assert len(FIGURES["exact/fig1b"].claims(dataset, dataclasses.replace(spec, seed=1))) == 1


def test_curves_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="hidden width must be the smaller"):
        Curves(widths=(3, 3, 2))
    with pytest.raises(ValueError, match="lr must be greater than 0"):
        Curves(lr=0.0)
