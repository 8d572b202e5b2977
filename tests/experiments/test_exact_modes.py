"""Figure 3 on two-layer networks, and modes of networks of any depth."""

import dataclasses

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.exact._modes import EXPERIMENTS, DepthSpec, ModesSpec
from deeplinear.plots import paper_style

FIGURE, DEPTHS = EXPERIMENTS


def failures(experiment, dataset, spec):
    return [f"{claim.statement} {claim.measured}" for claim in experiment.claims(dataset, spec) if not claim.holds]


@pytest.mark.covers("exact:fig3", "exact:S11")
def test_two_layers_follow_the_closed_form():
    spec = dataclasses.replace(FIGURE.preset("quick"), every=2000)
    dataset = FIGURE.run(spec, Context())
    assert failures(FIGURE, dataset, spec) == []
    # recorded steps until half of the way at lambda = 0, and the task they belong to
    np.testing.assert_allclose(dataset["target"], [1.545, 1.178, 0.566], atol=5.1e-4)
    np.testing.assert_allclose(dataset["half"].sel(lam=0.0), [10378, 13524, 32410], rtol=1e-4)
    # and by the curves themselves, as far as their grid of steps tells: 1 mode below, 1 above a half at 12000 steps
    late = dataset["descent"].sel(lam=0.0, step=12000) / dataset["target"]
    assert late[0] > 0.5 > late[1] > late[2]
    with paper_style():
        assert len(FIGURE.plot(dataset, spec).axes) == 3
    other = dataclasses.replace(spec, seed=1)
    assert len(FIGURE.claims(dataset, other)) == 3  # without recorded numbers
    with pytest.raises(ValueError, match="samples must be at least 3"):
        ModesSpec(samples=2)


@pytest.mark.slow
def test_any_depth():
    spec = dataclasses.replace(DEPTHS.preset("quick"), depths=(1, 3), simulated=(3,), points=5, times=9)
    dataset = DEPTHS.run(spec, Context())
    assert failures(DEPTHS, dataset, spec) == []
    # depth 1 from a small start: half of the way at ln 2, whatever the start
    np.testing.assert_allclose(dataset["half"].sel(depth=1), np.log(2), rtol=1e-12)
    with paper_style():
        DEPTHS.plot(dataset, spec)
    with pytest.raises(ValueError, match="simulated must be among depths"):
        DepthSpec(depths=(2,), simulated=(3,))
