"""Figure 2: gated recurrent units taught by smaller ones."""

import dataclasses

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.rnn._gru import EXPERIMENTS, shown_lengths
from deeplinear.plots import paper_style


@pytest.mark.covers("rnn:fig2")
def test_figure_2_small() -> None:
    (figure,) = EXPERIMENTS
    smaller = {"states": 8, "batch": 20, "steps": 200, "lr": 2e-2, "seeds": 2, "sequences": 50}
    spec = dataclasses.replace(figure.preset("quick"), **smaller)
    heard: list[float] = []
    dataset = figure.run(spec, Context(progress=lambda fraction, text: heard.append(fraction)))
    assert heard[-1] == 1.0
    claims = figure.claims(dataset, spec)
    assert len(claims) == 4
    assert [f"{claim.statement}: {claim.measured}" for claim in claims if claim.holds is False] == []
    with paper_style():
        drawn = figure.plot(dataset, spec)
    assert len(drawn.axes) == 4 and all(axis.get_xlabel() and axis.get_ylabel() for axis in drawn.axes)
    # The loss told beside the error is that of the last output, on sequences that were not trained on.
    assert (dataset["loss"] < dataset["losses"].isel(step=0)).all() and np.isfinite(dataset["error"]).all()


def test_presets_are_those_of_the_paper_and_scaled() -> None:
    (figure,) = EXPERIMENTS
    paper, large = figure.preset("paper"), figure.preset("large")
    assert (paper.teacher_states, paper.states, paper.horizon, paper.steps, paper.lr) == (4, 32, 60, 2000, 3e-3)
    assert (large.teacher_states, large.states, large.seeds) == (10, 100, 10) and large.steps >= 10_000
    assert shown_lengths(large) == (10, 30, 60) and shown_lengths(paper) == (4, 12, 24)
