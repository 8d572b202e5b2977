"""Figures 4 and 5 on two-layer networks: run, claims and picture, and the numbers of other code at a few points."""

import dataclasses

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.exact._hierarchy import EXPERIMENTS as HIERARCHY, Hierarchy
from deeplinear.experiments.catalog.exact._movement import EXPERIMENTS as MOVEMENT, FUNNEL, Movement
from deeplinear.plots import paper_style

pytestmark = pytest.mark.slow

FIGURES = {experiment.id: experiment for experiment in (*HIERARCHY, *MOVEMENT)}


@pytest.mark.covers("exact:fig4")
def test_semantic_hierarchy() -> None:
    """All claims at full size: twenty Gaussian starts run at once take no longer than two."""
    figure = FIGURES["exact/fig4"]
    spec = figure.preset("paper")
    dataset = figure.run(spec, Context())
    claims = figure.claims(dataset, spec)
    assert [c for c in claims if not c.holds] == []
    unstructured = [c for c in claims if "mean correlation" in c.statement]
    assert len(unstructured) == 2
    # The similarity of the task, by eigenvalues of the Gram matrix.
    target = dataset["target"].to_numpy()
    values, vectors = np.linalg.eigh(target.T @ target)
    assert np.max(np.abs(dataset["task_in"] - (vectors * np.sqrt(values)) @ vectors.T)) < 1e-12
    with paper_style():
        assert len(figure.plot(dataset, spec).subfigs) == 2


@pytest.mark.covers("exact:fig5")
def test_kernel_movement() -> None:
    """The funnel with all seeds and times: recorded means at the end, and times of half the way."""
    figure = FIGURES["exact/fig5"]
    spec = dataclasses.replace(figure.preset("paper"), architectures=(FUNNEL,), labels=False)
    dataset = figure.run(spec, Context())
    claims = figure.claims(dataset, spec)
    assert [c for c in claims if not c.holds] == []
    assert sum("mean kernel distance at the end" in c.statement for c in claims) == 5
    assert sum("median time of half" in c.statement for c in claims) == 4
    # Rich at λ = 0: kernel and loss change together. Rich after a delay at λ = -9: the kernel some 350 times later.
    kernel, loss = (dataset["half"].sel(architecture=FUNNEL, of=of).median("seed") for of in ("kernel", "loss"))
    assert 1 / 2 < float((kernel / loss).sel(end=0.0)) < 2 and 300 < float((kernel / loss).sel(end=-9.0)) < 500
    with paper_style():
        assert len(figure.plot(dataset, spec).axes) == 3


def test_specs_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="lams must be odd"):
        Movement(lams=4)
    with pytest.raises(ValueError, match="Did you mean 'funnel'"):
        Movement(architectures=("funel",))
    with pytest.raises(ValueError, match="lr must be greater than 0"):
        Hierarchy(lr=0.0)
