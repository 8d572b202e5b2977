"""Students of a delay line and of random teachers that are not balanced."""

import dataclasses

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.rnn._unbalanced import EXPERIMENTS, IDLE, Unbalanced
from deeplinear.plots import paper_style

BY_ID = {experiment.id: experiment for experiment in EXPERIMENTS}

ROUNDING = 1e-12
"""Of responses of order one, computed in two ways."""


def test_presets_have_the_sizes_of_the_figures() -> None:
    for name, teacher, order in (("rnn/fig1b", "delay", 10), ("rnn/fig3b", "random", 5), ("rnn/fig6", "delay", 10)):
        paper = BY_ID[name].preset("paper")
        assert (paper.teacher, paper.order, paper.states, paper.horizon) == (teacher, order, 50, 40)
        assert (paper.lr, paper.batch, paper.below, paper.scale) == (1e-3, 100, 1e-12, 0.05)
        assert paper.objectives[0] == "minibatch"
        assert paper.seeds >= 3
    assert {8, 18, 20, 22} <= set(BY_ID["rnn/fig1b"].preset("paper").lengths)
    assert BY_ID["rnn/fig6"].preset("paper").lengths == (8, 18, 20)
    assert {5, 12} <= set(BY_ID["rnn/fig3b"].preset("paper").lengths)


@pytest.mark.covers("rnn:F26", "rnn:fig1b", "rnn:fig6", "rnn:E16")
def test_a_delay_is_found_from_twice_its_order_on_and_an_idle_student_is_seen() -> None:
    chosen = BY_ID["rnn/fig1b"]
    spec = chosen.preset("quick")
    dataset = chosen.run(spec, Context())
    claims = chosen.claims(dataset, spec)
    assert [claim.statement for claim in claims if not claim.holds] == []
    # Errors and losses from the responses, by hand: the teacher is 1 at the entry before its order and else 0.
    teacher = (np.arange(spec.horizon) == spec.order - 1).astype(float)
    gaps = np.abs(dataset["response"].transpose("objective", "length", "draw", "index").to_numpy() - teacher)
    for i, length in enumerate(spec.lengths):
        found = dataset.sel(length=length)
        assert np.allclose(found["error"], gaps[:, i, :, length:].max(axis=2), rtol=ROUNDING)
        assert np.allclose(found["loss"], (gaps[:, i, :, :length] ** 2).sum(axis=2), rtol=1e-9)
        # The yardstick: the tail where there is one, else the whole response.
        assert np.all(found["reference"] == 1.0)
        assert np.all(found["tail"] == (1.0 if length < spec.order else 0.0))
    assert float(np.abs(dataset["error"].sel(length=2) - 1).max()) <= 0.05
    assert float(dataset["error"].sel(length=6).median()) > 0.5
    assert float(dataset["error"].sel(length=8).max()) < 0.2
    assert float(dataset["error"].sel(length=10).max()) < 0.05
    # A run that learns nothing has the smallest tail error of all.
    idle = dataset.sel(run=IDLE[0])
    assert float(idle["idle_loss"].min()) == pytest.approx(1.0, abs=1e-12)
    assert float(idle["idle_error"].max()) < float(dataset["error"].min())
    with paper_style():
        figure = chosen.plot(dataset, spec)
    assert [axis.get_yscale() for axis in figure.axes] == ["log", "log"]
    # One student that is not trained to the end must not count, however small its error.
    spoiled = dataset.copy(deep=True)
    spoiled["loss"].loc[{"length": 8, "draw": 0}] = 1.0
    spoiled["error"].loc[{"length": 8, "draw": 0}] = 0.0
    missed = [claim.statement for claim in chosen.claims(spoiled, spec) if not claim.holds]
    assert len(missed) == 2
    assert any("trained to the end" in one for one in missed)

    # The picture of responses is made of the same numbers.
    six = BY_ID["rnn/fig6"]
    few = dataclasses.replace(six.preset("quick"), horizon=spec.horizon)
    part = dataset.sel(length=list(few.lengths))
    with paper_style():
        figure = six.plot(part, few)
    assert "k = 8" in figure.legends[0].get_texts()[3].get_text()
    assert [claim.statement for claim in six.claims(part, few) if not claim.holds] == []


@pytest.mark.covers("rnn:F27", "rnn:fig3b")
def test_random_teachers_are_found_from_twice_their_order_on() -> None:
    chosen = BY_ID["rnn/fig3b"]
    spec = chosen.preset("quick")
    dataset = chosen.run(spec, Context())
    assert [claim.statement for claim in chosen.claims(dataset, spec) if not claim.holds] == []
    assert float(dataset["error"].sel(length=2 * spec.order + 2).max()) < 1e-2
    assert float(dataset["error"].sel(length=spec.order).min()) > 1e-2
    # Each draw has a teacher of its own, which begins with zeros.
    targets = dataset["target"].transpose("draw", "index").to_numpy()
    assert np.all(targets[:, : spec.order - 1] == 0)
    assert len(np.unique(targets[:, spec.order - 1])) == spec.seeds
    with paper_style():
        chosen.plot(dataset, spec)


def test_minibatches_wider_students_and_descent_come_with_their_numbers() -> None:
    chosen = BY_ID["rnn/fig1b"]
    spec = dataclasses.replace(
        chosen.preset("quick"),
        lengths=(8, 10),
        objectives=("minibatch", "population"),
        seeds=2,
        steps=20,
        wider=(20,),  # as many as the others: the program is there already
        wider_lengths=(8, 10),
        idle=IDLE[1:],
    )
    dataset = chosen.run(spec, Context())
    assert dataset["error"].sizes == {"objective": 2, "length": 2, "draw": 2}
    assert np.any(dataset["loss"].isel(objective=0) != dataset["loss"].isel(objective=1))
    assert dataset["wider_error"].sizes == {"states": 1, "wider_length": 2, "draw": 2}
    assert dataset["idle_loss"].sizes == {"run": 1, "draw": 2}
    assert np.all(dataset["idle_steps"] == 20)
    # Twenty steps train nothing, and the claims say so.
    claims = {claim.statement: claim for claim in chosen.claims(dataset, spec)}
    assert any("wider" in one for one in claims)
    assert any("gradient descent" in one for one in claims)
    assert not next(claim for one, claim in claims.items() if "trained to the end" in one).holds
    with paper_style():
        chosen.plot(dataset, spec)


def test_specs_that_cannot_be_run_are_refused() -> None:
    with pytest.raises(ValueError, match="teacher is 'balanced'"):
        Unbalanced(teacher="balanced")
    with pytest.raises(ValueError, match="an objective is 'batch'"):
        Unbalanced(objectives=("batch",))
    with pytest.raises(ValueError, match="every length must be at most 39"):
        Unbalanced(lengths=(40,))
    with pytest.raises(ValueError, match="given together"):
        Unbalanced(wider=(100,))
    with pytest.raises(ValueError, match="must not be empty"):
        Unbalanced(lengths=())
    with pytest.raises(ValueError, match="an idle run is 'asleep'"):
        Unbalanced(idle=("asleep",))
