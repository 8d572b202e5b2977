"""Which saddles a run visited: named against closed forms, hand-made runs and the critical values of the loss."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from checking import unchecked
from deeplinear.core import RESULTS, Trajectory
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.exact import solve
from deeplinear.experiments.catalog.network._plateaus import named_by_loss
from deeplinear.landscape import itinerary, set_name
from deeplinear.landscape._visits import _floor
from deeplinear.models import (
    Completion,
    DeepLinear,
    Problem,
    Regression,
    SquaredDistance,
)
from deeplinear.probes import gradient_norm, loss, observe, product, weights

SIGMA = np.array([3.0, 1.5, 0.6])
SMALL = 1e-12
"""Strength of every mode of the product at the start."""

PROBES = (loss, product, gradient_norm)


def aligned_run(target: np.ndarray, times: np.ndarray, probes: tuple = PROBES) -> tuple[Problem, Trajectory]:
    """Two layers aligned with the target: mode k is learnt at ln(σ_k/s_0)/(2σ_k), by the closed form."""
    problem = Problem(DeepLinear((4, 3, 3)), SquaredDistance(target))
    left, _, right_t = np.linalg.svd(target)
    start = (np.sqrt(SMALL) * right_t[:3], np.sqrt(SMALL) * left)
    return problem, solve(problem, start).trajectory(times, probes=probes)


def target_of(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    right, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    return left * SIGMA @ right[:, :3].T


@pytest.mark.covers("network:F37")
def test_an_aligned_run_learns_mode_by_mode(seed: int) -> None:
    """Names, levels and the time at which a plateau ends, for a target in any basis."""
    times = np.linspace(0.0, 40.0, 2001)
    problem, run = aligned_run(target_of(seed), times)
    found = itinerary(problem, run)
    assert found.signatures == ((), (1,), (1, 2), (1, 2, 3)) and found.greedy
    assert [visit.learnt for visit in found.visits] == [(1,), (2,), (3,), ()]
    for visit in found.visits:
        unlearnt = [s for k, s in enumerate(SIGMA, start=1) if k not in (visit.signature or ())]
        assert visit.level == pytest.approx(0.5 * sum(s**2 for s in unlearnt), abs=1e-12)
        assert abs(visit.loss - visit.level) <= 0.01 * max(visit.level, 0.01)
    for visit, sigma in zip(found.visits[:-1], SIGMA, strict=True):
        # The mode leaves a tenth of its strength at this time: s/(s_0 + (s - s_0) e^{-2st}) s_0 = s/10.
        leaving = np.log((sigma - SMALL) / (9 * SMALL)) / (2 * sigma)
        assert visit.end == pytest.approx(leaving, abs=2 * times[1])
        assert visit.strengths == pytest.approx((sigma,))
    assert not found.visits[-1].left and found.visits[-1].end == times[-1]


def test_weights_alone_are_enough() -> None:
    times = np.linspace(0.0, 40.0, 2001)
    problem, run = aligned_run(target_of(0), times)
    _, bare = aligned_run(target_of(0), times, (weights,))
    ours, theirs = itinerary(problem, run), itinerary(problem, bare)
    assert ours.signatures == theirs.signatures
    assert [v.gradient_norm for v in theirs.visits] == pytest.approx([v.gradient_norm for v in ours.visits], abs=1e-12)
    _, plain = aligned_run(target_of(0), times, (product,))
    found = itinerary(problem, plain)
    assert not found.gradient_measured and "not recorded" in " ".join(found.notes)
    assert found.signatures == ours.signatures


@pytest.mark.covers("network:F37")
def test_a_run_from_near_the_origin(seed: int) -> None:
    """Gaussian start: the saddles are those whose critical values the loss comes to in the valleys of the gradient."""
    rng = np.random.default_rng(seed)
    widths, sigma = (4, 3, 3, 2), np.array([3.0, 1.5])
    target = np.zeros((2, 4))
    target[[0, 1], [0, 1]] = sigma
    problem = Problem(DeepLinear(widths), SquaredDistance(target))
    start = tuple(jnp.asarray(0.03 * rng.standard_normal((b, a))) for a, b in itertools.pairwise(widths))
    run = simulate(problem, start, GradientFlow(1e-8), horizon=400.0, every=1, probes=PROBES)
    found = itinerary(problem, run)
    assert found.signatures == tuple(named_by_loss(run["loss"], run["gradient_norm"], sigma)) == ((), (1,), (1, 2))


def made(products: np.ndarray, gradients: np.ndarray, losses: np.ndarray | None = None) -> Trajectory:
    """A hand-made run at times 0, 1, 2, …"""
    times = np.arange(float(len(products)))
    values = {"product": products, "gradient_norm": gradients}
    dims: dict[str, tuple[str, ...]] = {"product": ("row", "column"), "gradient_norm": ()}
    if losses is not None:
        values["loss"], dims["loss"] = losses, ()
    done = np.asarray(int(RESULTS.completed))
    return Trajectory(times, values, dims, (), done, np.asarray(0), (), np.asarray(len(times)), {}, {})


def test_modes_are_lost_and_learnt_together_and_passed_by() -> None:
    """Out of order: {2}, then {1}; a stretch without a valley is no visit; the words say what happened."""
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.diag([2.0, 1.0])))
    stops = [np.diag([0.0, 1.0]), np.diag([2.0, 0.0]), np.diag([0.0, 0.0]), np.diag([2.0, 1.0])]
    products, gradients = [], []
    for stop, low in zip(stops, (0.01, 0.01, 0.9, 0.01), strict=True):
        products += [stop] * 4 + [0.5 * np.ones((2, 2))]
        gradients += [low] * 4 + [1.0]
    found = itinerary(problem, made(np.array(products[:-1]), np.array(gradients[:-1])))
    assert [visit.name for visit in found.visits] == ["{2}", "{1}", "{1,2}"]
    assert found.visits[0].learnt == (1,) and found.visits[0].forgotten == (2,) and not found.greedy
    text = str(found)
    assert "2 lost" in text and "(σ = 2)" in text and text.splitlines()[0].startswith("place")
    middle = [np.eye(2)] * 3
    together = itinerary(
        problem, made(np.array([stops[2]] * 3 + middle + [stops[3]] * 3), np.array([0.1] * 3 + [1.0] * 3 + [0.1] * 3))
    )
    assert together.visits[0].learnt == (1, 2) and "learnt together" in " ".join(together.notes)
    assert together.to_json()["visits"][0]["signature"] == () and together.to_json()["greedy"] is False


def test_data_that_are_not_white(seed: int) -> None:
    """Regression: levels contain what no map can fit, and signatures are those of the task, not of the solution."""
    rng = np.random.default_rng(seed)
    x, noise = rng.normal(size=(3, 40)), rng.normal(size=(2, 40))
    y = np.array([[2.0, 0, 0], [0, 0.7, 0]]) @ x + 0.1 * noise
    problem = Problem(DeepLinear((3, 2, 2)), Regression.from_data(x, y))
    root = np.linalg.cholesky(x @ x.T / 40)
    best = y @ x.T @ np.linalg.inv(x @ x.T)
    left, sigma, right_t = np.linalg.svd(best @ root)
    snapshots = []
    for kept in ([0.0, 0.0], [1.0, 0.0], [1.0, 1.0]):
        reached = (left * (sigma * kept)) @ right_t[:2] @ np.linalg.inv(root)
        snapshots.append((reached, np.eye(2)))
    found = itinerary(problem, observe(problem, [0, 1, 2], snapshots, probes=(product, loss, gradient_norm)))
    assert found.signatures[-1] == (1, 2)
    residual = 0.5 * np.sum((best @ x - y) ** 2) / 40
    assert found.visits[-1].level == pytest.approx(residual, rel=1e-10)
    assert found.sigma == pytest.approx(sigma, rel=1e-10)


def test_where_the_theory_stops() -> None:
    """Observed entries and tied singular values: ranks instead of names, and the reason."""
    rng = np.random.default_rng(0)
    target = np.outer([1.0, 2.0, 1.0], [1.0, 1.0, 2.0])
    problem = Problem(DeepLinear((3, 3, 3)), Completion(target, np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1.0]])))
    start = tuple(jnp.asarray(1e-3 * rng.standard_normal((3, 3))) for _ in range(2))
    run = simulate(problem, start, GradientFlow(1e-8), times=np.linspace(0, 60, 601), probes=PROBES)
    found = itinerary(problem, run)
    assert found.visits[0].signature is None and found.visits[0].rank == 0 and found.visits[-1].rank >= 1
    assert any("Completion" in note for note in found.notes) and any("counts as learnt" in note for note in found.notes)
    tied = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.eye(2)))
    both = itinerary(
        tied, made(np.array([np.zeros((2, 2))] * 3 + [np.eye(2)] * 3), np.array([0.1, 0.1, 1, 1, 0.1, 0.0]))
    )
    assert any("coincide" in note for note in both.notes) and both.visits[-1].rank == 2


def test_few_records_are_not_taken_for_more() -> None:
    """Nothing is said of what was not recorded, and a visit does not reach into the next one."""
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.diag([2.0, 1.0])))
    found = itinerary(problem, made(np.array([np.zeros((2, 2)), np.diag([2.0, 1.0])]), np.array([0.1, 0.0])))
    assert [(visit.name, visit.start, visit.end) for visit in found.visits] == [("∅", 0.0, 0.5), ("{1,2}", 0.5, 1.0)]
    notes = " ".join(found.notes)
    assert "Too few records" in notes and "learnt together" not in notes and "hardly resolve" in notes


def test_refusals() -> None:
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.diag([2.0, 1.0])))
    good = made(np.zeros((4, 2, 2)), np.ones(4))
    with pytest.raises(TypeError, match="trajectory must be a Trajectory"):
        unchecked(itinerary)(problem, None)
    with pytest.raises(ValueError, match="close must be at most"):
        itinerary(problem, good, close=0.7)
    with pytest.raises(ValueError, match=r"must hold the probe 'product' or 'weights', but holds \['loss'\]"):
        itinerary(problem, observe(problem, [0, 1], [(np.eye(2), np.eye(2))] * 2))
    with pytest.raises(ValueError, match=r"products of the trajectory must have shape \(2, 2\), but have \(3, 3\)"):
        itinerary(problem, made(np.zeros((4, 3, 3)), np.ones(4)))
    with pytest.raises(ValueError, match="product must be finite, but is not at t = 2"):
        itinerary(problem, made(np.array([np.eye(2)] * 2 + [np.full((2, 2), np.nan)]), np.ones(3)))
    other = observe(Problem(DeepLinear((1, 1)), SquaredDistance([[1.0]])), [0, 1], [(np.eye(1),)] * 2, probes=weights)
    with pytest.raises(ValueError, match="must hold the 8 weights of the problem's network, but holds 1"):
        itinerary(problem, other)
    assert set_name((1, 3)) == "{1,3}" and set_name(()) == "∅"


def test_observe_is_the_probe_at_each_snapshot(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(2, 3))
    problem = Problem(DeepLinear((3, 4, 2)), SquaredDistance(target))
    snapshots = [(rng.normal(size=(4, 3)), rng.normal(size=(2, 4))) for _ in range(3)]
    run = observe(problem, [0.0, 1.0, 5.0], snapshots, probes=(loss, weights))
    expected = [0.5 * np.sum((b @ a - target) ** 2) for a, b in snapshots]
    np.testing.assert_allclose(run["loss"], expected, rtol=1e-13)
    np.testing.assert_array_equal(run["weights"][2], np.concatenate([w.ravel() for w in snapshots[2]]))
    np.testing.assert_array_equal(run.params[1], snapshots[2][1])
    assert run.result is RESULTS.completed
    for bad, words in (([0.0, 0.0, 1.0], "times must increase"), ([0.0, 1.0], "for each of the 2 times")):
        with pytest.raises(ValueError, match=words):
            observe(problem, bad, snapshots)
    with pytest.raises(ValueError, match=r"snapshots\[1\]"):
        observe(problem, [0.0, 1.0, 2.0], [snapshots[0], snapshots[1][::-1], snapshots[2]])


def test_a_valley_reaches_to_half_the_height_of_its_lower_rim_in_decades() -> None:
    gradients = np.array([1.0, 1e-1, 1e-2, 1e-4, 1e-3, 1e-1, 1e-1])
    assert _floor(gradients, 1, 5) == (3, 4)  # up to the root of 1e-4 · 1e-1
    assert _floor(gradients, 0, 5) == (3, 4)  # by the rim on the right alone: there is none where the run begins
    assert _floor(gradients, 0, 6) == (0, 6)  # nor where it ends


def test_without_a_theory_the_modes_learnt_are_those_by_which_the_rank_grows() -> None:
    """Completion: two plateaus and the end, of ranks 0, 1 and 2."""
    problem = Problem(DeepLinear((2, 2, 2)), Completion(np.eye(2), np.eye(2)))
    stops = [np.zeros((2, 2)), np.diag([1.0, 0.0]), np.eye(2)]
    products, gradients = [], []
    for stop in stops:
        products += [stop] * 4 + [stop]
        gradients += [1e-3] * 4 + [1.0]
    found = itinerary(problem, made(np.array(products[:-1]), np.array(gradients[:-1])))
    assert [visit.rank for visit in found.visits] == [0, 1, 2]
    assert [visit.learnt for visit in found.visits] == [(1,), (2,), ()]
