"""Ensembles: the numbers of one-by-one runs, failed members named, both strategies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import RESULTS, NumericalError, Trajectory
from deeplinear.dynamics import GradientDescent, GradientFlow, Minibatch, ensemble, simulate, until
from deeplinear.models import Completion, DeepLinear, Problem
from deeplinear.probes import loss, singular_values

MODEL = DeepLinear((3, 4, 3))
STRATEGIES = ("threads", "vector")
AGREEMENT = 1e-9  # runs differ by rounding in the order of sums, amplified along the flow


def members(seed: int, count: int = 6) -> tuple[list, list]:
    rng = np.random.default_rng(seed)
    problems = [
        Problem(MODEL, Completion(rng.normal(size=(3, 1)) @ rng.normal(size=(1, 3)), np.eye(3) + np.eye(3, k=1)))
        for _ in range(count)
    ]
    # Scales from 0.05 to 1: members finish at very different times.
    params = [
        tuple(jnp.asarray(rng.normal(size=s) * scale) for s in MODEL.shapes) for scale in np.geomspace(0.05, 1, count)
    ]
    return problems, params


SETTINGS = {
    "method": GradientFlow(1e-9),
    "times": np.concatenate([[0.0], np.geomspace(0.1, 1e6, 90)]),
    "until": until(loss, below=1e-10),
    "probes": [loss, singular_values],
}


@pytest.fixture(scope="module")
def singles(seed: int) -> list[Trajectory]:
    """The members, one by one."""
    return [simulate(problem, params, **SETTINGS) for problem, params in zip(*members(seed), strict=True)]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.covers("completion:F5")
def test_members_equal_single_runs(strategy: str, seed: int, singles: list[Trajectory]) -> None:
    problems, params = members(seed)
    many = ensemble(problems, params, strategy=strategy, **SETTINGS)
    assert many.members == 6 and many.failed == () and many.unfinished == ()
    assert len(set(many.lengths.tolist())) > 1, "members should end at different times"
    for index, one in enumerate(singles):
        mine = many.member(index)
        assert mine.result is one.result is RESULTS.stopped
        assert len(mine.times) == len(one.times)
        assert np.allclose(mine.times, one.times, rtol=1e-4)  # the last one is where the rule fired
        assert np.abs(mine["singular_values"][:-1] - one["singular_values"][:-1]).max() < AGREEMENT
    assert np.isnan(many["loss"][np.argmin(many.lengths), -1])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_failed_member_is_kept_and_named(strategy: str) -> None:
    problems, params = members(0)
    rates = [GradientDescent(0.01 if i != 3 else 1e6) for i in range(6)]
    many = ensemble(problems, params, rates, horizon=50, every=10, strategy=strategy)
    assert many.failed == (3,)
    assert many.outcomes() == {"completed": (0, 1, 2, 4, 5), "diverged": (3,)}
    assert "diverged" in many.summary() and "3" in many.summary()
    single = simulate(problems[4], params[4], rates[4], horizon=50, every=10)
    assert np.allclose(many.member(4)["loss"], single["loss"], rtol=1e-12)
    with pytest.raises(NumericalError, match=r"\[3\]"):
        ensemble(problems, params, rates, horizon=50, every=10, strategy=strategy, throw=True)


def test_grids_over_methods_and_shared_problems_count_members() -> None:
    problems, params = members(1)
    methods = [GradientFlow(tol) for tol in (1e-8, 1e-9, 1e-10, 1e-11, 1e-12)]
    seen = []
    # Times, rule and probes in number and kind as above: what was compiled there serves here. Steps end at times, so
    # that the tolerances decide of their number up to the second time only.
    times = np.concatenate([[0.0], np.linspace(5.0, 5.1, 90)])
    settings = SETTINGS | {"method": methods, "times": times, "until": until(loss, below=-1.0)}
    many = ensemble(problems[0], params[0], progress=seen.append, **settings)
    assert seen[-1].members == 5 and seen[-1].ended == 5
    assert np.ptp(many.final("loss")) < 1e-6
    assert np.all(np.diff(many.stats["gradient_evaluations"]) > 0)


def test_stacked_parameters_and_keys(seed: int) -> None:
    problems, params = members(seed, 3)
    stacked = tuple(jnp.stack(layers) for layers in zip(*params, strict=True))
    key = jax.random.key(seed)
    method = Minibatch(GradientDescent(0.05))
    many = ensemble(problems[0], stacked, method, horizon=40, every=40, key=key)
    for index, own in enumerate(jax.random.split(key, 3)):
        one = simulate(problems[0], params[index], method, horizon=40, every=40, key=own)
        assert np.allclose(many.member(index).params[0], one.params[0], rtol=1e-12)


def test_refusals() -> None:
    problems, params = members(0, 3)
    with pytest.raises(ValueError, match="lengths"):
        ensemble(problems, params[:2], times=[0.0, 1.0])
    with pytest.raises(ValueError, match="use simulate"):
        ensemble(problems[0], params[0], times=[0.0, 1.0])
    with pytest.raises(ValueError, match="same structure"):
        ensemble(problems[0], [params[0], (jnp.ones((2, 2)),)], times=[0.0, 1.0])
    with pytest.raises(ValueError, match="vector"):
        ensemble(problems[0], params, times=[0.0, 1.0], strategy="vectr")
    with pytest.raises(ValueError, match="empty"):
        ensemble([], params, times=[0.0, 1.0])
    with pytest.raises(ValueError, match="params must hold at least one member, but holds none"):
        ensemble(problems[0], tuple(np.zeros((0, *layer.shape)) for layer in params[0]), times=[0.0, 1.0])
