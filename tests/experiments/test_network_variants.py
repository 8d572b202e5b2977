"""Experiments on variants of the flow: small runs, all claims, a picture of each."""

import dataclasses

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.network._bottleneck import EXPERIMENTS as BOTTLENECK, Bottleneck
from deeplinear.experiments.catalog.network._descent import EXPERIMENTS as DESCENT, Descent
from deeplinear.experiments.catalog.network._low_rank import EXPERIMENTS as LOW_RANK, LowRank
from deeplinear.experiments.catalog.network._skip import EXPERIMENTS as SKIP, Skip
from deeplinear.plots import paper_style

CATALOG = {experiment.id: experiment for experiment in (*LOW_RANK, *DESCENT, *SKIP, *BOTTLENECK)}


def carried_out(name: str, **changes):
    """Run, all claims, the picture."""
    experiment = CATALOG[name]
    spec = dataclasses.replace(experiment.preset("quick"), **changes)
    dataset = experiment.run(spec, Context())
    claims = experiment.claims(dataset, spec)
    assert [f"{c.statement}: {c.measured:g}" for c in claims if not c.holds] == []
    with paper_style():
        figure = experiment.plot(dataset, spec)
    assert all(axis.get_xlabel() for axis in figure.axes)
    return dataset, claims


@pytest.mark.covers("network:completion", "network:F39")
def test_depth_completes_a_matrix_of_low_rank() -> None:
    dataset, claims = carried_out("network/completion", points=6)
    assert len(claims) == 11
    end = dataset.isel(point=-1)
    np.testing.assert_allclose(end["unseen_error"], [1.0, 0.232, 0.0024], rtol=0.03)
    np.testing.assert_allclose(end["effective_rank"], [3.81, 1.13, 1.004], rtol=0.005)
    # Other specs have fewer claims, not the recorded numbers of this one.
    experiment = CATALOG["network/completion"]
    two = dataclasses.replace(experiment.preset("rank-2"), points=6, rtol=1e-6)
    wrong = experiment.claims(dataset.sel(depth=[3]), two)
    assert [claim.holds for claim in wrong] == [False] and "rank 2" in wrong[0].statement
    second = experiment.run(two, Context())
    np.testing.assert_allclose(second["unseen_error"].isel(point=-1), [9.6e-4], rtol=0.05)
    assert len(experiment.claims(dataset, dataclasses.replace(experiment.preset("quick"), seed=1))) == 4


@pytest.mark.covers("network:gd-drift", "network:F38", "network:C41")
def test_descent_drifts_with_the_square_of_its_step() -> None:
    dataset, claims = carried_out("network/gd-drift", halvings=2)
    assert len(claims) == 7
    np.testing.assert_allclose(dataset["error"][:-1].to_numpy() / dataset["error"][1:].to_numpy(), 2.0, atol=0.2)


@pytest.mark.covers("network:skip", "network:F40")
def test_a_skip_breaks_the_laws_at_its_ends_only() -> None:
    dataset, claims = carried_out("network/skip", points=5)
    assert len(claims) == 7
    first, between, last = dataset["drift"].sel(kind="skip").isel(time=-1).to_numpy()
    assert between < 1e-12 < 0.01 < first
    assert last == pytest.approx(first, rel=1e-9)


@pytest.mark.covers("network:bottleneck", "network:F41")
def test_a_bottleneck_learns_the_largest_modes() -> None:
    dataset, _ = carried_out("network/bottleneck", points=5, starts=4)
    np.testing.assert_allclose(dataset["singular_value"].isel(time=-1)[:, :2], [[3.0, 2.0]] * 4, atol=1e-6)
    np.testing.assert_allclose(dataset["loss"].isel(time=-1), 0.5, atol=1e-6)


def test_specs_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="must be of one length"):
        LowRank(depths=(1, 2))
    with pytest.raises(ValueError, match="must have a hidden layer"):
        Descent(widths=(4, 2))
    with pytest.raises(ValueError, match="equal width"):
        Skip(widths=(4, 3, 5, 4, 2))
    with pytest.raises(ValueError, match="fewer units than both ends"):
        Bottleneck(widths=(4, 3, 3))
    with pytest.raises(ValueError, match="sigma must hold 3 positive numbers"):
        Bottleneck(sigma=(1.0, 2.0, 3.0))
