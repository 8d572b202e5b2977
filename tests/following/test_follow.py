"""Exact first: `follow` takes a closed form where one applies, integrates where none does, and says which it was."""

import jax
import numpy as np
import pytest

from deeplinear.dynamics import GradientFlow
from deeplinear.following import follow
from deeplinear.models import DeepLinear, LambdaBalanced, Problem, SquaredDistance
from deeplinear.probes import loss, product

TIMES = [0.0, 0.5, 2.0]
TARGET = np.array([[2.0, 0.5], [0.0, 1.0]])


def test_both_ways_give_the_same_trajectory() -> None:
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(TARGET))
    balanced = LambdaBalanced(0.5, 0.3)(problem.model, jax.random.key(0))
    exact = follow(problem, balanced, TIMES, probes=[loss, product])
    assert exact.info["method"].startswith("closed form: two λ-balanced layers")
    assert max(exact.info["hypotheses"].values()) < 1e-10
    # A tiny push makes the closed form inapplicable, and moves the curve by about its size only.
    pushed = (balanced[0] + 1e-6 * np.array([[1.0, 0.0], [0.0, -1.0]]), balanced[1])
    run = follow(problem, pushed, TIMES, probes=[loss, product], flow=GradientFlow(1e-9))
    assert run.info["method"].startswith("GradientFlow")
    assert "λ-balanced layers" in run.info["closed_form"]["whitened"]
    assert exact.dims == run.dims and exact.times.tolist() == run.times.tolist()
    assert 1e-9 < np.abs(exact["product"] - run["product"]).max() < 1e-5
    assert set(exact.values) == set(run.values) and exact.lengths == run.lengths


def test_trajectories_of_closed_forms_can_be_stored(tmp_path) -> None:
    problem = Problem(DeepLinear((1, 1)), SquaredDistance([[1.0]]))
    run = follow(problem, ([[0.0]],), TIMES)
    run.save(tmp_path / "run")
    again = type(run).load(tmp_path / "run")
    assert again.info == run.info and np.array_equal(again["loss"], run["loss"])
    assert again["loss"] == pytest.approx(0.5 * np.exp(-2 * np.array(TIMES)), rel=1e-13)
