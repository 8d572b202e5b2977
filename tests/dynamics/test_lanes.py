"""Many small flows side by side: each member does what it does alone, whoever is beside it."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplinear.dynamics._driver as _driver
import deeplinear.dynamics._queue as _queue
from deeplinear.core import RESULTS, AbstractField, Stabilised
from deeplinear.dynamics import GradientFlow, ensemble, simulate, until
from deeplinear.dynamics._queue import many_lanes
from deeplinear.models import DeepLinear, NarrowDeepLinear, Problem, SquaredDistance
from deeplinear.probes import loss, product

MODEL = DeepLinear((3, 3, 3))


@pytest.fixture(scope="module", autouse=True)
def _small_groups() -> Iterator[None]:
    """Sixteen members to a group, so that forty change their company."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_queue, "DEVICE_WEIGHTS", 500)
        yield


MEMBERS = 40
AGREEMENT = 1e-9  # rounding in the order of sums, amplified along the flow


def setting(seed: int, members: int = MEMBERS) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Targets with singular values from 0.01 to 3, so that all integrators are used, and starts of several sizes."""
    rng = np.random.default_rng(seed)
    turns = [np.linalg.qr(rng.normal(size=(members, 3, 3)))[0] for _ in range(2)]
    values = np.sort(np.exp(rng.uniform(np.log(0.01), np.log(3.0), (members, 1, 3))))
    sizes = np.geomspace(0.1, 1.0, members)[:, None, None]
    return (turns[0] * values) @ turns[1], tuple(sizes * rng.normal(size=(members, 3, 3)) for _ in range(2))


def stacked(targets: np.ndarray) -> Problem:
    return jax.vmap(lambda target: Problem(MODEL, SquaredDistance(target)))(jnp.asarray(targets))


SETTINGS = {
    "method": GradientFlow(1e-8),
    "times": np.geomspace(0.1, 1e5, 20),
    "until": until(loss, below=1e-14),
    "probes": [loss, product],
}

SIDE_BY_SIDE = {"engine": "xla", "strategy": "vector"}


@pytest.fixture(scope="module")
def setup(seed: int, _small_groups: None):
    targets, params = setting(seed)
    assert many_lanes(MEMBERS, 18) == 16
    return targets, params, ensemble(stacked(targets), params, **SETTINGS, **SIDE_BY_SIDE)


def test_members_do_what_they_do_alone(setup) -> None:
    targets, params, many = setup
    assert many.failed == () and set(many.results.tolist()) <= {RESULTS.stopped, RESULTS.completed}
    assert many.stats["stabilised_steps"].max() > 0
    for index in (0, 17, MEMBERS - 1):
        one = simulate(
            Problem(MODEL, SquaredDistance(targets[index])),
            [layer[index] for layer in params],
            **SETTINGS,
            engine="xla",
        )
        mine = many.member(index)
        assert mine.result is one.result
        assert mine.stats["accepted_steps"] == pytest.approx(one.stats["accepted_steps"], rel=0.05, abs=3)
        assert np.array_equal(mine.times[:-1], one.times[:-1])
        assert np.abs(mine["product"][:-1] - one["product"][:-1]).max() < AGREEMENT


def test_who_is_beside_makes_no_difference(setup, seed: int) -> None:
    """Bit by bit, in another order and so in other groups."""
    targets, params, many = setup
    order = np.random.default_rng(seed + 1).permutation(MEMBERS)
    again = ensemble(stacked(targets[order]), [layer[order] for layer in params], **SETTINGS, **SIDE_BY_SIDE)
    assert np.array_equal(many["product"][order], again["product"], equal_nan=True)
    assert np.array_equal(many.stats["accepted_steps"][order], again.stats["accepted_steps"])
    assert all(np.array_equal(a[order], b) for a, b in zip(many.params, again.params, strict=True))


def test_every_step_recorded(setup) -> None:
    targets, params, _ = setup
    shared = Problem(MODEL, SquaredDistance(targets[0]))
    run = ensemble(shared, params, GradientFlow(1e-8), horizon=20.0, every=1, **SIDE_BY_SIDE)
    assert np.array_equal(run.lengths, run.stats["accepted_steps"] + 1)
    assert np.all(np.nanmax(np.diff(run["loss"], axis=1), axis=1) < 1e-12)


def test_limits_end_all_members(setup) -> None:
    targets, params, _ = setup
    run = ensemble(stacked(targets), params, wall_limit=1e-9, **SETTINGS, **SIDE_BY_SIDE)
    assert set(run.results.tolist()) == {RESULTS.wall_limit}
    run = ensemble(stacked(targets), params, max_steps=5, **SETTINGS, **SIDE_BY_SIDE)
    assert set(run.results.tolist()) == {RESULTS.step_limit} and set(run.stats["accepted_steps"].tolist()) == {5}


def test_stacked_problems_are_lists_of_problems(setup) -> None:
    targets, params, many = setup
    listed = ensemble(
        [Problem(MODEL, SquaredDistance(target)) for target in targets], params, **SETTINGS, **SIDE_BY_SIDE
    )
    assert np.array_equal(many["product"], listed["product"], equal_nan=True)
    whole = stacked(targets)
    broken = Problem(MODEL, SquaredDistance(targets[0]))
    broken = jax.tree.unflatten(jax.tree.structure(broken), [*jax.tree.leaves(whole)[:-1], jnp.zeros(3)])
    with pytest.raises(ValueError, match=r"ensemble: a stacked problem must have one leading axis of members"):
        ensemble(broken, params, **SETTINGS)


def test_narrow_networks_are_the_same_networks(seed: int) -> None:
    widths = (2, 4, 3, 5)
    rng = np.random.default_rng(seed)
    loss_of_product = SquaredDistance(rng.normal(size=(5, 2)))
    plain, narrow = (Problem(model(widths), loss_of_product) for model in (DeepLinear, NarrowDeepLinear))
    params, direction = (tuple(jnp.asarray(rng.normal(size=s)) for s in plain.model.shapes) for _ in range(2))
    one, other = (
        jax.jit(lambda p, v, of=problem: (of.value_and_gradient(p), of.hessian_product(p, v)))(params, direction)
        for problem in (plain, narrow)
    )
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.allclose(a, b, rtol=1e-12, atol=1e-12)


class Relaxation(AbstractField):
    """Three decays with a weak non-linearity."""

    rates: jax.Array

    def __call__(self, y: jax.Array) -> jax.Array:
        return -self.rates * y - 0.1 * y**3

    def linearize(self, y: jax.Array):
        return self(y), lambda v: (-self.rates - 0.3 * y**2) * v


def test_stabilised_steps_side_by_side_take_their_own_stages() -> None:
    field = Relaxation(jnp.array([1.0, 10.0, 1000.0]))
    y = jnp.array([1.0, -0.5, 0.2])
    steps = jnp.array([0.003, 0.02, 0.4, 0.09])
    radius, tolerance = jnp.asarray(1001.0), jnp.asarray(1e-6)
    single = jax.jit(lambda h: Stabilised().step(field, y, field(y), h, radius, tolerance))
    alone = [single(h) for h in steps]
    together = jax.jit(
        jax.vmap(lambda h: Stabilised("lanes").step(field, y, field(y), h, radius, tolerance), axis_name="lanes")
    )(steps)
    assert len({int(step.evaluations) for step in alone}) == 4
    for index, step in enumerate(alone):
        assert int(together.evaluations[index]) == int(step.evaluations)
        for mine, own in ((together.y, step.y), (together.f, step.f), (together.error, step.error)):
            assert np.allclose(mine[index], own, rtol=1e-11, atol=1e-14)


def test_numbers_of_lanes_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(_queue, "DEVICE_WEIGHTS", 620_000)
        assert {many_lanes(members, 300) for members in (20, 300, 30_000, 10**6)} == {32, 512, 2048}


def test_the_last_members_are_shared_out_among_the_workers() -> None:
    """Each takes its part of those that wait, as many as there are workers not yet away."""
    queue = _queue.Queue.__new__(_queue.Queue)
    queue.workers, queue.away, queue.ready = 3, 0, threading.Condition()
    queue.queues = {"explicit": list(range(7)), "stabilised": []}
    taken = []
    while queue.queues["explicit"]:
        group = queue.take(16)
        assert group is not None
        ids, _ = group
        taken.append(ids.tolist())
    assert taken == [[0, 1, 2], [3, 4], [5, 6]]


def test_records_of_a_chunk_stay_within_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_driver, "WINDOW_BYTES", 100_000)
    driver = SimpleNamespace(size=50, lanes=0, every=1, times=())
    rooms = [_driver.Driver.room(driver, members) for members in (1, 10, 100, 10_000)]
    assert rooms == [64, 25, 2, 1]
