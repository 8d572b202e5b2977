"""Figures 4 and 5 on two-layer networks: run, claims and picture, and the numbers of other code at a few points."""

import dataclasses

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.exact._representations import EXPERIMENTS, FUNNEL, Hierarchy, Movement
from deeplinear.plots import paper_style

pytestmark = pytest.mark.slow

FIGURES = {experiment.id: experiment for experiment in EXPERIMENTS}


@pytest.mark.covers("exact:fig4")
def test_semantic_hierarchy() -> None:
    """All claims of the figure, with the recorded cosines, from two Gaussian starts in place of twenty."""
    figure = FIGURES["exact/fig4"]
    spec = dataclasses.replace(figure.preset("quick"), starts=2)
    dataset = figure.run(spec, Context())
    failed = [c for c in figure.claims(dataset, spec) if c.holds is False]
    # Two starts say little about the mean correlation.
    assert not [c for c in failed if "mean correlation" not in c.statement], failed
    # The similarity of the task, by eigenvalues of the Gram matrix.
    target = dataset["target"].to_numpy()
    values, vectors = np.linalg.eigh(target.T @ target)
    assert np.max(np.abs(dataset["task_in"] - (vectors * np.sqrt(values)) @ vectors.T)) < 1e-12
    with paper_style():
        assert len(figure.plot(dataset, spec).subfigs) == 2


@pytest.mark.covers("exact:fig5")
def test_kernel_movement() -> None:
    figure = FIGURES["exact/fig5"]
    spec = dataclasses.replace(figure.preset("quick"), architectures=(FUNNEL,), seeds=2, points=9, overlay=2.0)
    dataset = figure.run(spec, Context())
    claims = figure.claims(dataset, spec)
    assert len(claims) >= 3 and all(c.holds is not False for c in claims), claims
    with paper_style():
        assert len(figure.plot(dataset, spec).axes) == 3


def test_specs_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="lams must be odd"):
        Movement(lams=4)
    with pytest.raises(ValueError, match="Did you mean 'funnel'"):
        Movement(architectures=("funel",))
    with pytest.raises(ValueError, match="lr must be greater than 0"):
        Hierarchy(lr=0.0)
