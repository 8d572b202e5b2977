"""Figure 2: gated recurrent units taught by smaller ones."""

import dataclasses
import json

import numpy as np
import pytest
import xarray

from architecture.source import ROOT
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
    assert len(claims) == 5
    assert [f"{claim.statement}: {claim.measured}" for claim in claims if claim.holds is False] == []
    with paper_style():
        drawn = figure.plot(dataset, spec)
    assert len(drawn.axes) == 4 and all(axis.get_xlabel() and axis.get_ylabel() for axis in drawn.axes)
    # The loss told beside the error is that of the last output, on sequences that were not trained on.
    assert (dataset["loss"] < dataset["losses"].isel(step=0)).all() and np.isfinite(dataset["error"]).all()


def test_the_preset_paper_has_the_size_of_the_paper() -> None:
    (figure,) = EXPERIMENTS
    paper, small = figure.preset("paper"), figure.preset("small")
    assert (paper.teacher_states, paper.states, paper.seeds, paper.steps, paper.batch) == (10, 100, 10, 50_000, 100)
    assert (paper.teacher_scale, paper.teacher_steps) == (1e-6, 1000) and {30, 60} <= set(paper.lengths)
    assert (small.teacher_states, small.states, small.horizon, small.steps, small.lr) == (4, 32, 60, 2000, 3e-3)
    assert shown_lengths(paper) == (10, 30, 60) and shown_lengths(small) == (4, 12, 24)


@pytest.mark.covers("rnn:E20")
def test_the_full_size_has_no_step_at_four_times_the_states_of_the_teacher() -> None:
    """The stored run of the preset `paper`: the numbers of the notes and of the errata page, and claims on them."""
    (figure,) = EXPERIMENTS
    stored = json.loads((ROOT / "benchmarks" / "results" / "gru-nvidia-h200.json").read_text(encoding="utf-8"))
    (run,) = (one for one in stored["runs"] if one["steps"] == 50_000)
    spec = figure.preset("paper")
    assert run["length"] == list(spec.lengths)
    rows = {name: (("draw", "length"), np.array(run[name])) for name in ("error", "trivial", "loss")}
    misfit = {"teacher_misfit": ("draw", np.array(run["teacher_misfit"])), "target": ("time", spec.target())}
    dataset = xarray.Dataset({**rows, **misfit}, coords={"length": run["length"]})
    shares = np.median(np.array(run["error"]) / np.array(run["trivial"]), axis=0)
    np.testing.assert_allclose(shares, [0.35, 0.08, 0.06, 0.06, 0.05, 0.09], atol=0.005)
    claims = figure.claims(dataset, spec)
    assert [claim.statement for claim in claims if claim.holds is False] == []
    said = {claim.expected: claim.measured for claim in claims if claim.holds is None}
    assert said["high"] < 0.1 and 0.9 < said["a step"] < 1.1  # low before the threshold, and no step at it
