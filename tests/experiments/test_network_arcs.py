"""Arcs, chords, and the graph of critical values with flows upon it."""

import dataclasses

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.network._arcs import EXPERIMENTS, Arcs, Graph
from deeplinear.plots import paper_style

FIGURES = {experiment.id: experiment for experiment in EXPERIMENTS}


@pytest.mark.covers("network:fig4", "network:F24", "network:E4")
def test_figure_4_has_its_numbers() -> None:
    """Losses by hand: half the squares of the missing modes of (10, 8, 6, 4)."""
    figure = FIGURES["network/fig4"]
    spec = dataclasses.replace(figure.preset("quick"), widths=(4, 4, 4, 4))
    dataset = figure.run(spec, Context())
    np.testing.assert_allclose(
        dataset["loss"].isel(alpha=[0, -1]), [[58, 58], [58, 26], [26, 58], [40, 76]], rtol=1e-12
    )
    np.testing.assert_allclose(dataset["network_loss"], dataset["loss"], rtol=1e-12)
    assert dataset["kind"].to_numpy().tolist() == ["constant", "decreasing", "increasing", "mixed"]
    np.testing.assert_allclose(dataset["best_place"][3], 0.32, rtol=1e-12)
    np.testing.assert_allclose(dataset["chord_loss"].isel(chord=0, alpha=[0, 25, 50]), [2.5, 7.0, 2.5], rtol=1e-12)
    claims = figure.claims(dataset, spec)
    assert len(claims) == 13 and [claim.statement for claim in claims if not claim.holds] == []
    with paper_style():
        drawn = figure.plot(dataset, spec)
    assert [axes.get_title() for axes in drawn.axes][:2] == ["{1} to {1}: constant", "{1} to {1,2}: decreasing"]
    assert figure.preset("paper") == Arcs()
    # Another task has no recorded numbers.
    assert len(figure.claims(dataset, dataclasses.replace(spec, sigma=(9.0, 8.0, 6.0, 4.0), chord_sigma=(4.0,)))) == 9


def test_flows_from_saddles_are_followed() -> None:
    figure = FIGURES["network/graph"]
    spec = dataclasses.replace(figure.preset("quick"), draws=2, records=800, rtol=1e-7)
    dataset = figure.run(spec, Context())
    np.testing.assert_allclose(dataset["value"].sel(node=["∅", "{2}", "{1,2}"]), [7.0, 5.0, 0.5])
    assert dataset.sizes["saddle"] == 7 and float(dataset["final_loss"].max()) <= 1e-12
    claims = figure.claims(dataset, spec)
    assert len(claims) == 8 and [claim.statement for claim in claims if not claim.holds] == []
    # A flow from {2} takes the stronger mode in place of the weaker, to which no decreasing arc leads.
    names = dataset["node"].to_numpy()
    paths = [[str(names[k]) for k in stops if k >= 0] for stops in dataset["visited"].sel(saddle="{2}").to_numpy()]
    assert ["{2}", "{1}", "{1,2}", "{1,2,3}"] in paths
    with paper_style():
        drawn = figure.plot(dataset, spec)
    assert [axes.get_xlabel() for axes in drawn.axes] == ["modes learnt", "time"]
    assert figure.preset("paper") == Graph()


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="points must be at least 11"):
        Arcs(points=3)
    with pytest.raises(ValueError, match="two hidden layers"):
        Arcs(chord_widths=(3, 3, 3))
    with pytest.raises(ValueError, match="at least 3 values"):
        Arcs(sigma=(1.0, 0.5))
    with pytest.raises(ValueError, match="scale must be greater than 0"):
        Graph(scale=0.0)
