"""Figures on networks that have learned something before, and phase maps."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from deeplinear.experiments import Claim, Context, Experiment
from deeplinear.experiments.catalog.exact import _phase_maps as phase_maps
from deeplinear.experiments.catalog.exact._continual import FIGURE_11
from deeplinear.experiments.catalog.exact._fine_tuning import FIGURE_14
from deeplinear.experiments.catalog.exact._reversal import FIGURE_12
from deeplinear.experiments.catalog.exact._transfer import FIGURE_13
from deeplinear.plots import paper_style


def made(chosen: Experiment, **changes: Any) -> tuple[Any, list[Claim]]:
    """Arrays and claims of an experiment's quick preset with some settings changed; its picture is drawn too."""
    spec = dataclasses.replace(chosen.preset("quick"), **changes)
    dataset = chosen.run(spec, Context())
    with paper_style():
        figure = chosen.plot(dataset, spec)
    assert figure.axes[0].get_ylabel()
    return dataset, list(chosen.claims(dataset, spec))


def failing(claims: list[Claim]) -> list[str]:
    return [f"{c.statement}: {c.measured} is not {c.expected}" for c in claims if c.holds is False]


@pytest.mark.covers("exact:fig8", "exact:fig9", "exact:fig10", "exact:F31", "exact:E24", "exact:E35")
def test_phase_maps() -> None:
    # One grid size for all three, and that of the probed cells, so that little is compiled.
    grid = {"lams": len(phase_maps.PROBED_LAMS), "scales": len(phase_maps.PROBED_SCALES)}
    widths, recorded = [], 0
    for figure in phase_maps.EXPERIMENTS:
        dataset, claims = made(figure, **grid)
        assert failing(claims) == []
        widths.append(figure.preset("paper").widths)
        recorded += sum("at step" in claim.statement for claim in claims)
        assert np.all(np.asarray(dataset["kernel_distance"]) >= 0)
    assert recorded == 12
    # The square map is of width 2, not of the width 4 of the figure it refers to.
    assert widths == [(2, 2, 2), (2, 2, 4), (4, 2, 2)]


@pytest.mark.slow
@pytest.mark.covers("exact:fig11", "exact:F27", "exact:S30")
def test_figure_11() -> None:
    dataset, claims = made(FIGURE_11, steps=10_000, every=500)
    assert failing(claims) == [] and len(claims) == 8
    assert dataset.sizes["task"] == 4


@pytest.mark.slow
@pytest.mark.covers("exact:fig12", "exact:F28")
def test_figure_12() -> None:
    dataset, claims = made(FIGURE_12, lams=(-5.0, -1.0, -0.1, 0.0, 0.01, 2.0))
    assert failing(claims) == [] and len(claims) == 10
    assert dataset.sizes["lam"] == 6


@pytest.mark.covers("exact:fig13", "exact:F29", "exact:E34")
def test_figure_13() -> None:
    for perturbed, count in ((False, 9), (True, 8)):
        dataset, claims = made(FIGURE_13, lams=5, perturbed=perturbed)
        assert failing(claims) == [] and len(claims) == count
        assert dataset.sizes["lam"] == 5


@pytest.mark.slow
@pytest.mark.covers("exact:fig14", "exact:F30")
def test_figure_14() -> None:
    changes = {"pretrained": (-10.0, 5.0), "tuned": (-10.0, 0.0, 1.0, 2.0, 5.0, 10.0), "pretraining": 3000}
    dataset, claims = made(FIGURE_14, **changes)
    assert failing(claims) == [] and len(claims) == 9
    assert dataset.sizes["tuned"] == 6
