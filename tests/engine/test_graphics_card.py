"""Ensembles on a graphics card against the engine for processors; needs a card that JAX computes on.

DEEPLINEAR_CARD=1 JAX_PLATFORMS=cuda python -m pytest tests/engine/test_graphics_card.py
"""

import itertools

import jax
import numpy as np
import pytest

import deeplinear.dynamics._native as native
import deeplinear.engine as engine
from deeplinear.core import RESULTS
from deeplinear.dynamics import GradientFlow, ensemble, until
from deeplinear.models import AbstractLoss, Completion, DeepLinear, Problem, Regression, SquaredDistance
from deeplinear.probes import loss, product

pytestmark = pytest.mark.skipif(
    not engine.available() or jax.default_backend() != "gpu" or engine.no_card() is not None,
    reason="needs the engine, a graphics card and DEEPLINEAR_CARD=1",
)


def loss_of(kind: str, rows: int, columns: int, rng: np.random.Generator) -> AbstractLoss:
    if kind == "distance":
        return SquaredDistance(rng.normal(size=(rows, columns)))
    if kind == "regression":
        x = np.geomspace(1, 3, columns)[:, None] * rng.normal(size=(columns, 4 * columns))
        return Regression.from_data(x, rng.normal(size=(rows, 4 * columns)))
    mask = (rng.random((rows, columns)) < 0.6).astype(float)
    mask[0, 0] = 1
    return Completion(rng.normal(size=(rows, columns)), mask)


@pytest.mark.parametrize("kind", ["distance", "regression", "completion"])
@pytest.mark.parametrize(
    "widths", [(3, 2), (4, 3, 3, 3), (5, 7, 6, 3), (10,) * 4, (20, 18, 20), (2,) * 7, (40, 33, 40)], ids=str
)
def test_the_card_takes_the_steps_of_the_processor(
    kind: str, widths: tuple[int, ...], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, members = np.random.default_rng(seed), 50
    problems = [Problem(DeepLinear(widths), loss_of(kind, widths[-1], widths[0], rng), l2=0.01) for _ in range(members)]
    params = [0.5 / np.sqrt(a) * rng.normal(size=(members, b, a)) for a, b in itertools.pairwise(widths)]
    plan = {"times": [0.0, 1.0, 20.0], "probes": [loss, product], "method": GradientFlow(1e-6)}
    found = ensemble(problems, params, **plan)
    assert "graphics card" in found.info["engine"]
    monkeypatch.setattr(native, "takes_card", lambda members: False)
    own = ensemble(problems, params, **plan)
    assert "lanes" in own.info["engine"]
    np.testing.assert_array_equal(found.results, own.results)
    np.testing.assert_allclose(found.stats["accepted_steps"], own.stats["accepted_steps"], atol=2)
    for name in ("loss", "product"):
        np.testing.assert_allclose(found[name], own[name], rtol=1e-5, atol=1e-7)


def test_a_limit_on_time_ends_all_members(seed: int) -> None:
    rng, members, widths = np.random.default_rng(seed), 20_000, (12, 12, 12, 12)
    problem = Problem(DeepLinear(widths), SquaredDistance(rng.normal(size=(12, 12))))
    params = [0.2 * rng.normal(size=(members, 12, 12)) for _ in range(3)]
    run = ensemble(problem, params, GradientFlow(1e-9), times=[1e5], until=until(loss, below=1e-25), wall_limit=0.5)
    assert RESULTS.wall_limit in run.results
    assert np.all(np.isfinite(run["loss"][np.arange(members), run.lengths - 1]))


def test_a_member_does_not_depend_on_its_company(seed: int) -> None:
    rng, members, widths = np.random.default_rng(seed), 3000, (3, 3, 3)
    targets = rng.normal(size=(members, 3, 3))
    problems = [Problem(DeepLinear(widths), SquaredDistance(target)) for target in targets]
    params = [0.5 * rng.normal(size=(members, 3, 3)) for _ in range(2)]
    order = rng.permutation(members)
    one = ensemble(problems, params, GradientFlow(1e-6), times=[50.0])
    other = ensemble([problems[i] for i in order], [layer[order] for layer in params], GradientFlow(1e-6), times=[50.0])
    for mine, theirs in zip(one.params, other.params, strict=True):
        np.testing.assert_array_equal(mine[order], theirs)
