"""Gradient flow in the geometry of a depth, against layers followed by SciPy, closed forms and known numbers.

One energy, one width and one number of output times where nothing else is needed: programs are shared.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from checking import unchecked
from deeplinear.core import HypothesisError
from deeplinear.geometry import Metric, PowerEnergy, Scaled, _stretches, free_energy, matrix_flow
from deeplinear.geometry._charts import descent
from deeplinear.geometry._flow import Coordinates
from deeplinear.geometry._stretches import Limits, Log, Runner
from deeplinear.models import Completion, SquaredDistance

TIGHT = {"rtol": 1e-11, "atol": 1e-13}
FOLLOWED = 1e-9
"""Two integrators at relative tolerances of 1e-11 on flows of order one."""

DIAGONAL = Completion(np.eye(3), np.diag([1, 1, 0]))


def block(matrix: list[list[float]]) -> np.ndarray:
    """A 2x2 matrix beside the number 1.5, which an energy of the block does not move."""
    return np.block([[np.asarray(matrix), np.zeros((2, 1))], [np.zeros((1, 2)), np.full((1, 1), 1.5)]])


def drawn(rng: np.random.Generator) -> tuple[Completion, np.ndarray]:
    """An energy with half of the entries observed and a start of full rank."""
    mask = rng.permutation([1, 1, 1, 1, 1, 0, 0, 0, 0]).reshape(3, 3)
    left, right = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2))
    return Completion(rng.standard_normal((3, 3)), mask), (left * np.array([1.4, 0.9, 0.4])) @ right.T


def layers_flow(energy: Completion, start: np.ndarray, depth: int, times: list[float]) -> np.ndarray:
    """Products of balanced layers under gradient flow, by SciPy."""
    u, s, vt = np.linalg.svd(start)
    root = np.diag(s ** (1 / depth))
    layers = [root @ vt, *[root] * (depth - 2), u @ root] if depth > 1 else [start]
    mask, target = np.asarray(energy.mask), np.asarray(energy.target)

    def velocity(_: float, flat: np.ndarray) -> np.ndarray:
        w = flat.reshape(depth, 3, 3)
        below = [np.eye(3)]
        for layer in w:
            below.append(layer @ below[-1])
        back, out = mask * (target - below[-1]), np.zeros_like(w)
        for k in range(depth - 1, -1, -1):
            out[k] = back @ below[k].T
            back = w[k].T @ back
        return out.ravel()

    run = solve_ivp(velocity, (0, times[-1]), np.ravel(layers), "DOP853", t_eval=times, rtol=1e-12, atol=1e-13)
    w = run.y.T.reshape(-1, depth, 3, 3)
    product = w[:, 0]
    for k in range(1, depth):
        product = w[:, k] @ product
    return product


@pytest.mark.covers("geometry:F14", "geometry:F15", "geometry:S5", "geometry:S29")
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_it_is_what_balanced_layers_do(depth: int, seed: int) -> None:
    energy, start = drawn(np.random.default_rng(seed))
    times = [0.0, 0.4, 1.5]
    wanted = layers_flow(energy, start, depth, times)
    both: tuple[Coordinates, ...] = ("matrix", "singular")
    for coordinates in both[: min(depth, 2)]:
        run = matrix_flow(energy, start, depth, times, coordinates=coordinates, **TIGHT)
        assert run.points is not None and run.status == ("time limit",)
        np.testing.assert_allclose(run.points, wanted, atol=FOLLOWED)
        np.testing.assert_allclose(run.end, wanted[-1], atol=FOLLOWED)
        np.testing.assert_allclose(run.spectra, np.linalg.svd(wanted, compute_uv=False), atol=FOLLOWED)
        values = [0.5 * np.sum(np.asarray(energy.mask) * (x - np.asarray(energy.target)) ** 2) for x in wanted]
        np.testing.assert_allclose(run.energies, values, atol=FOLLOWED)
    faster = matrix_flow(energy, start, depth, np.multiply(times, depth), normalised=True, **TIGHT)
    np.testing.assert_allclose(faster.points, wanted, atol=FOLLOWED)


@pytest.mark.covers("geometry:R", "geometry:F14")
def test_known_numbers() -> None:
    known = {
        2: [[1, 0.193915745483], [-0.303266547834, 0.969545267143]],
        3: [[1.000012944063, 0.191042893829], [-0.305151948109, 0.988488943330]],
        math.inf: [[1.000126182368, 0.191130326943], [-0.304156476952, 0.910459192598]],
    }
    for depth, wanted in known.items():
        for coordinates in ("matrix", "singular"):
            run = matrix_flow(
                DIAGONAL, block([[1, 0.2], [-0.3, 0.8]]), depth, [0.0, 0.5, 1.0], coordinates=coordinates, **TIGHT
            )
            np.testing.assert_allclose(run.end, block(wanted), atol=2e-11)


@pytest.mark.covers("geometry:F15", "geometry:F46")
def test_singular_coordinates_at_the_usual_tolerances(seed: int) -> None:
    """25 x 25, entries of variance 1/25, T = 10, against SciPy in matrix coordinates; members do not see each other."""
    starts = np.random.default_rng(seed).standard_normal((2, 25, 25)) / 5

    def velocity(_: float, flat: np.ndarray) -> np.ndarray:
        u, s, vt = np.linalg.svd(flat.reshape(25, 25))
        logs = 2 * np.log(s[:, None] / s)
        table = (s[:, None] ** 2 - s**2) / np.where(logs == 0, 1.0, logs) + np.diag(s**2)
        force = np.diag(np.diag(flat.reshape(25, 25)) - 1)
        return -(u @ (table * (u.T @ force @ vt.T)) @ vt).ravel()

    wanted = solve_ivp(velocity, (0, 10), starts[0].ravel(), "DOP853", rtol=1e-8, atol=1e-10).y[:, -1].reshape(25, 25)
    run = matrix_flow(Completion(np.eye(25), np.eye(25)), starts, math.inf, [10.0], coordinates="singular")
    np.testing.assert_allclose(run.end[0], wanted, atol=1e-5)
    alone = matrix_flow(Completion(np.eye(25), np.eye(25)), starts[1], math.inf, [10.0], coordinates="singular")
    np.testing.assert_array_equal(alone.end, run.end[1])
    assert run.status == ("time limit", "time limit") and set(run.switches) == {0}


@pytest.mark.covers("geometry:F14")
def test_energy_falls_by_the_squared_speed(seed: int) -> None:
    """dE/dt = −‖∇E‖_g², and the length grows with the speed."""
    energy, start = drawn(np.random.default_rng(seed))
    h = 2e-4
    run = matrix_flow(energy, start, 3, [0.5 - h, 0.5, 0.5 + h], **TIGHT)
    assert run.points is not None
    force = np.asarray(energy.mask) * (run.points[1] - np.asarray(energy.target))
    u, s, vt = np.linalg.svd(run.points[1])
    table = sum(np.outer(s ** (2 * k / 3), s ** (2 * (2 - k) / 3)) for k in range(3))
    speed = float(np.sqrt(np.sum(table * (u.T @ force @ vt.T) ** 2)))
    assert (run.lengths[2] - run.lengths[0]) / (2 * h) == pytest.approx(speed, rel=1e-5, abs=1e-6)
    assert (run.energies[2] - run.energies[0]) / (2 * h) == pytest.approx(-(speed**2), rel=1e-5, abs=1e-6)


@pytest.mark.covers("geometry:F15", "geometry:F46")
def test_coinciding_values_are_told_and_passed(seed: int) -> None:
    """From a multiple of the identity, and where a symmetric path makes values meet on the way."""
    energy, _ = drawn(np.random.default_rng(seed))
    times = [0.0, 0.4, 1.5]
    run = matrix_flow(energy, 0.7 * np.eye(3), 3, times, **TIGHT)
    np.testing.assert_allclose(run.points, layers_flow(energy, 0.7 * np.eye(3), 3, times), atol=FOLLOWED)
    assert run.switches == 1
    assert run.lengths[0] == 0 < run.lengths[1] < run.lengths[2]
    with pytest.raises(HypothesisError, match="distinct singular values"):
        matrix_flow(energy, 0.7 * np.eye(3), 3, times, coordinates="singular", **TIGHT)

    crossing = Completion(np.diag([0.5, 2.0, 1.2]), np.eye(3))
    start = np.diag([1.5, 1.0, 0.3])
    wanted = layers_flow(crossing, start, 2, times)
    run = matrix_flow(crossing, start, 2, times, **TIGHT)
    np.testing.assert_allclose(run.points, wanted, atol=FOLLOWED)


@pytest.mark.covers("geometry:F16", "geometry:S30")
def test_spectral_energies_move_singular_values_alone() -> None:
    start, times = np.diag([2.0, 1.2, 0.4]), [0.0, 0.4, 1.5]
    energy = PowerEnergy(2.0)
    for depth in (2, 3, math.inf):
        power = 2 - 2 / depth
        wanted = (np.diag(start) ** -power + power * np.array(times)[:, None]) ** (-1 / power)
        run = matrix_flow(energy, start, depth, times, normalised=True, **TIGHT)
        np.testing.assert_allclose(run.spectra, wanted, atol=FOLLOWED)
        np.testing.assert_allclose(run.end, np.diag(wanted[-1]), atol=FOLLOWED)
        general = matrix_flow(
            Completion(np.zeros((3, 3)), np.ones((3, 3))),
            start,
            depth,
            times,
            normalised=True,
            coordinates="matrix",
            **TIGHT,
        )
        np.testing.assert_allclose(general.spectra, wanted, atol=FOLLOWED)
        np.testing.assert_allclose(general.lengths, run.lengths, atol=FOLLOWED)
    repeated = matrix_flow(energy, 0.7 * np.eye(3), 2, times, normalised=True, **TIGHT)
    np.testing.assert_allclose(repeated.end, np.eye(3) / (1 / 0.7 + 1.5), atol=FOLLOWED)
    assert repeated.switches == 0


@pytest.mark.covers("geometry:F14", "geometry:F46")
def test_every_way_to_end() -> None:
    rng = np.random.default_rng(0)
    start = block([[1, 0.2], [-0.3, 0.8]])
    usual = {"rtol": 1e-8, "atol": 1e-10}
    done = matrix_flow(DIAGONAL, start, 2, [0.0, 5.0, 100.0], gradient=1e-5, **usual)
    assert done.status == ("converged",) and 5 <= done.end_times < 40 and done.gradients < 1e-5
    assert done.points is not None
    np.testing.assert_array_equal(done.points[-1], done.end)
    at_once = matrix_flow(DIAGONAL, done.end, 2, [0.0, 5.0, 100.0], gradient=1e-4, **usual)
    assert at_once.status == ("converged",) and at_once.end_times == 0 and at_once.steps == 0

    large = matrix_flow(DIAGONAL, start, 2, [0.0, 5.0, 100.0], largest=1.2, **usual)
    assert large.status == ("diverged",) and large.end_times == 0
    flat = matrix_flow(DIAGONAL, np.diag([1.0, 0.5, 0.0]), 2, [0.0, 5.0, 100.0], **usual)
    assert flat.status == ("singular",) and np.array_equal(flat.end, np.diag([1.0, 0.5, 0.0]))
    several = [start, 2 * start, rng.standard_normal((3, 3))]
    seen: list[float] = []
    batch = matrix_flow(
        [DIAGONAL] * 3, several, 2, [0.0, 5.0, 100.0], gradient=1e-5, points=False, progress=seen.append, **usual
    )
    assert batch.points is None and seen == sorted(seen) and seen[-1] == 1
    assert batch.end.shape == (3, 3, 3) and batch.spectra.shape == (3, 3, 3) and len(batch.status) == 3
    np.testing.assert_array_equal(batch.end[0], done.end)


@pytest.mark.covers("geometry:F46")
def test_members_together_are_members_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an accelerator: in lock-step with steps of their own, places left over, one member that has converged."""
    rng = np.random.default_rng(seed)
    drawings = [drawn(rng) for _ in range(3)]
    energies, starts = [e for e, _ in drawings], np.array([x for _, x in drawings])
    times = [0.0, 0.4, 1.5]
    alone = matrix_flow(energies, starts, math.inf, times, **TIGHT)
    limits = Limits(0.0, 1e6, 1e-10, math.inf, 1e-14, 1e-11, 1e-13)
    runner = Runner(Metric(math.inf), np.asarray(times), limits, "singular", "dopri8", 100_000, True, True)
    logs = [Log(3, 3, True) for _ in energies]
    monkeypatch.setattr(_stretches, "TOGETHER", 2)
    runner.run(energies, starts, logs)
    for member, log in enumerate(logs):
        np.testing.assert_allclose(log.end, alone.end[member], atol=1e-12)
        np.testing.assert_allclose(log.lengths, alone.lengths[member], atol=1e-12)
        assert log.status == alone.status[member] and log.time == 1.5


def test_implicit_steps_pass_stiff_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the fit, rates are as different as s₁² and s₃²: long steps only where stability does not bind them.

    The many explicit steps go on as a program.
    """
    monkeypatch.setattr(_stretches, "PLAIN", 200)
    target = np.diag([30.0, 1.0, 0.5])
    energy = Completion(target, np.eye(3))
    start = np.diag([28.0, 0.7, 0.4])
    times = [0.0, 1.0, 20.0]
    found = matrix_flow(energy, start, math.inf, times, method="implicit", rtol=1e-8, atol=1e-10)
    wanted = matrix_flow(energy, start, math.inf, times, coordinates="matrix", **TIGHT)
    np.testing.assert_allclose(found.points, wanted.points, atol=1e-5)
    np.testing.assert_allclose(found.lengths, wanted.lengths, atol=1e-5)
    assert found.steps < wanted.steps / 5


@pytest.mark.covers("geometry:F47")
def test_refusals() -> None:
    energy, start = DIAGONAL, np.diag([1.0, 0.5, 0.2])

    def refused(match: str, *, error: type[Exception] = ValueError, **change: object) -> None:
        arguments: dict = {"energy": energy, "start": start, "depth": 2, "times": [1.0]} | change
        with pytest.raises(error, match=match):
            unchecked(matrix_flow)(**arguments)

    refused("start must be a square matrix", start=np.ones((2, 3)))
    refused("start must be a square matrix", start=np.ones((0, 0)))
    refused("largest must be greater than 0", largest=0.0)
    refused("start must be finite", start=np.full((3, 3), np.nan))
    refused("depth must be a positive integer or infinity", depth=0)
    refused("depth must be a positive integer or infinity", depth=2.5)
    refused("times must be increasing and not negative", times=[1.0, 0.5])
    refused("times must be increasing and not negative", times=[-1.0])
    refused("times must be a list", times=1.0)
    refused("coordinates is 'singlar', which is not known. Did you mean 'singular'", coordinates="singlar")
    refused("method is 'euler'", method="euler")
    refused("needs an energy of the singular values alone", error=TypeError, coordinates="spectral")
    refused("needs the explicit method", coordinates="singular", method="implicit")
    refused("needs a depth of at least 2", coordinates="singular", depth=1)
    refused("energy must take matrices of shape", energy=Completion(np.eye(2), np.eye(2)))
    refused("energy must be a loss", error=TypeError, energy=3.0)
    refused("one for each of 1 starts, but is 2", energy=[energy, energy])
    refused("must hold losses of one kind", energy=[energy, SquaredDistance(np.eye(3))], start=[start, start])
    mixed = "energy must hold the entropy of the depth of the flow, inf, but holds that of depth 3"
    for inside in (energy, PowerEnergy(2.0)):
        refused(mixed, energy=free_energy(inside, 1.0, 3), depth=math.inf)
        refused(mixed, energy=[Scaled(free_energy(inside, 1.0, 3), 2.0)], start=[start], depth=math.inf)
    refused("of the flow, 3, but holds that of depth infinity", energy=free_energy(energy, 1.0, math.inf), depth=3)
    refused("rtol must be greater than 0", rtol=0.0)
    refused("gradient must be at least 0", gradient=-1.0)
    refused("steps must be at least 1", steps=0)
    refused(
        "finite gradient at the start",
        energy=eqx.tree_at(lambda e: e.power, PowerEnergy(2.0), jnp.asarray(jnp.nan, dtype=float)),
        times=[0.0, 0.4, 1.5],
        **TIGHT,
    )


@pytest.mark.parametrize("depth", [2, math.inf])
def test_the_zero_matrix_is_singular_at_once(depth: float) -> None:
    run = matrix_flow(DIAGONAL, np.zeros((3, 3)), depth, [0.0, 0.4, 1.5], **TIGHT)
    assert run.status == ("singular",) and int(run.steps) == 0


@pytest.mark.covers("geometry:F15")
@pytest.mark.parametrize("depth", [2, math.inf])
@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-7])
def test_singular_values_that_pass_close_by_on_the_way(depth: float, noise: float) -> None:
    """Two values cross within rounding, or nearly: the run changes to matrix coordinates and back, and says so."""
    rng = np.random.default_rng(3)
    left, right = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2))
    start = (left * [1.5, 1.0, 0.3]) @ right.T + noise * rng.standard_normal((3, 3))
    target = np.round((left * [0.5, 2.0, 1.2]) @ right.T, 9)
    energy = Completion(target, np.ones((3, 3)))
    runs = [
        matrix_flow(energy, start, depth, [0.0, 0.4, 1.5], coordinates=kind, rtol=1e-11, atol=1e-13)
        for kind in ("auto", "matrix")
    ]
    assert all(run.status == ("time limit",) for run in runs) and int(runs[0].switches) >= 1
    assert int(runs[0].steps) < 4000
    np.testing.assert_allclose(runs[0].points, runs[1].points, atol=1e-8)


def test_the_bound_on_the_size_may_be_small_or_infinite() -> None:
    start = np.diag([0.3, 0.2, 0.1])
    free = matrix_flow(DIAGONAL, start, 2, [0.1], largest=math.inf)
    bounded = matrix_flow(DIAGONAL, start, 2, [0.1], largest=0.9)
    np.testing.assert_allclose(bounded.points, free.points, rtol=1e-12)


def test_the_flow_is_not_differentiated_in_its_energy() -> None:
    point = jnp.diag(jnp.array([1.0, 0.5, 0.2]))

    def moved(scale):
        return jnp.sum(descent(Metric(2), SquaredDistance(scale * jnp.eye(3)), point)[0])

    with pytest.raises(NotImplementedError, match="not in depth or energy"):
        jax.grad(moved)(1.0)
