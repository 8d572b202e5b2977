"""Geodesics from a point: reference values, an independent integrator, conserved quantities, ends, refusals."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from deeplinear.core import HypothesisError
from deeplinear.geometry import Metric, bures_exponential, geodesic

POINT = np.array([[1, 0.2], [-0.3, 0.8]])
VELOCITY = np.array([[0.1, -0.4], [0.3, 0.2]])
TIMES = (0.25, 0.5, 1.0)

DIGITS = 1e-11
"""Reference values are given to twelve digits."""

CONSERVED = 1e-9
"""Largest relative drift of a conserved quantity at tolerance 1e-12."""

REFERENCE = {
    2: (
        [[1.069159408254, -0.224424725857], [0.015368753246, 0.967093745824]],
        [[0.052198311490, -0.212064111863], [0.161647477057, 0.111951360149]],
        0.16092999104137,
    ),
    3: (
        [[1.056957581936, -0.229979474820], [0.019697912637, 0.955428109860]],
        [[0.035353024061, -0.144289746020], [0.110602185941, 0.077613842359]],
        0.10995462506828,
    ),
    math.inf: (
        [[1.030051546830, -0.236186320335], [0.026797431976, 0.931717274495]],
        [[0.109707995298, -0.451487559226], [0.350065865218, 0.252360432350]],
        0.34705766925542,
    ),
}


@pytest.mark.covers("geometry:R")
@pytest.mark.parametrize("depth", REFERENCE)
def test_reference_values(depth: float) -> None:
    path = geodesic(POINT, depth, TIMES, velocity=VELOCITY)
    end, momentum, square = REFERENCE[depth]
    np.testing.assert_allclose(path.points[-1], end, atol=DIGITS)
    assert path.status == "complete" and float(path.end_time) == 1.0
    assert float(path.speed) ** 2 == pytest.approx(square, abs=DIGITS)
    assert float(path.length) == pytest.approx(0.75 * math.sqrt(square), abs=DIGITS)
    np.testing.assert_allclose(Metric(depth).inverse(POINT, VELOCITY), momentum, atol=DIGITS)
    again = geodesic(POINT, depth, TIMES, momentum=Metric(depth).inverse(POINT, VELOCITY))
    np.testing.assert_array_equal(again.points, path.points)


def draw(seed: int, depth: float) -> tuple[np.ndarray, np.ndarray]:
    """A point and a tangent of length 0.9 there; the geodesic is checked to be complete where that matters."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((2, 2)))[0] for _ in range(2))
    point = (left * np.exp(rng.uniform(-0.7, 0.7, 2))) @ right
    vector = rng.standard_normal((2, 2))
    return point, 0.9 * vector / float(Metric(depth).norm(point, vector))


def energy(point: np.ndarray, momentum: np.ndarray, depth: float) -> float:
    """By the definition of the operator as a sum, or an integral."""
    if math.isinf(depth):
        nodes, weights = np.polynomial.legendre.leggauss(24)
        inner, outer, weights = 0.5 + nodes / 2, 0.5 - nodes / 2, weights / 2
    else:
        layers = np.arange(1, depth + 1)
        inner, outer, weights = (layers - 1) / depth, (depth - layers) / depth, np.ones(int(depth))
    left, values, right_t = np.linalg.svd(point)
    powers = [values ** (2 * e[:, None]) for e in (outer, inner)]
    return 0.5 * float(np.sum((powers[0].T * weights) @ powers[1] * (left.T @ momentum @ right_t.T) ** 2))


def hamilton(_: float, state: np.ndarray, depth: float) -> np.ndarray:
    """Hamilton's equations by difference quotients of that energy, of fourth order."""
    slopes = np.zeros(8)
    for k in range(8):
        step = np.zeros(8)
        step[k] = 1e-3
        one, two = (
            energy(*(state + h * step).reshape(2, 2, 2), depth) - energy(*(state - h * step).reshape(2, 2, 2), depth)
            for h in (1, 2)
        )
        slopes[k] = (8 * one - two) / 12e-3
    return np.concatenate([slopes[4:], -slopes[:4]])


@pytest.mark.covers("geometry:F21", "geometry:S20")
@pytest.mark.parametrize("depth", [2, 5, math.inf])
def test_an_integrator_that_knows_the_energy_only(depth: float) -> None:
    momentum = np.asarray(Metric(depth).inverse(POINT, VELOCITY))
    start = np.concatenate([POINT.ravel(), momentum.ravel()])
    found = scipy.integrate.solve_ivp(hamilton, (0, 1), start, "DOP853", args=(depth,), rtol=1e-10, atol=1e-12)
    path = geodesic(POINT, depth, TIMES, velocity=VELOCITY)
    # Quotients of fourth order with step 1e-3 are exact to about 1e-11.
    np.testing.assert_allclose(path.points[-1].ravel(), found.y[:4, -1], atol=1e-9)
    np.testing.assert_allclose(path.momenta[-1].ravel(), found.y[4:, -1], atol=1e-9)


@pytest.mark.covers("geometry:F21", "geometry:S21")
@pytest.mark.parametrize("depth", [1, 2, 3, 5, math.inf])
def test_conserved_quantities_and_both_forms(depth: float, seed: int) -> None:
    point, velocity = draw(seed, depth)
    path = geodesic(point, depth, TIMES, velocity=0.3 * velocity)
    assert path.status == "complete"
    monitors = path.monitors()
    assert float(monitors.largest) <= CONSERVED
    # The same quantities in plain NumPy.
    xs, ps, ts = (np.asarray(a) for a in (path.points, path.momenta, path.times))
    energies = [energy(x, p, depth) for x, p in zip(xs, ps, strict=True)]
    np.testing.assert_allclose(energies, energies[0], rtol=CONSERVED)
    left = ps @ xs.swapaxes(1, 2) - xs @ ps.swapaxes(1, 2)
    right = xs.swapaxes(1, 2) @ ps - ps.swapaxes(1, 2) @ xs
    for skew in (left, right):
        np.testing.assert_allclose(skew, np.broadcast_to(skew[0], skew.shape), atol=CONSERVED)
    products = np.sum(xs * ps, axis=(1, 2))
    np.testing.assert_allclose(products, products[0] + 2 / depth * energies[0] * (ts - ts[0]), atol=CONSERVED)
    values = np.linalg.svd(xs, compute_uv=False)
    past = ts - ts[0]
    if math.isinf(depth):
        found, wanted = np.sum(np.log(values), axis=1), products[0] * past
    else:
        found = depth * np.sum(values ** (2 / depth), axis=1)
        wanted = 2 * depth * products[0] * past + 2 * energies[0] * past**2
    np.testing.assert_allclose(found - found[0], wanted, atol=10 * CONSERVED)
    np.testing.assert_allclose(values, path.spectra, atol=1e-13)
    # A monitor that sees nothing is worth nothing: of a path that is bent it must report.
    bent = path.momenta + 1e-6 * jnp.asarray(ts)[:, None, None] * jnp.array([[1.0, 2.0], [0.5, 1.5]])
    seen = eqx.tree_at(lambda p: p.momenta, path, bent).monitors()
    assert min(float(d) for d in (seen.energy, seen.left, seen.right, seen.dilation)) > 1e-9
    seen = eqx.tree_at(lambda p: p.points, path, bent).monitors()
    assert float(seen.cone) > 1e-9
    summed = geodesic(point, depth, TIMES, velocity=0.3 * velocity, form="sum")
    np.testing.assert_allclose(summed.points, path.points, atol=1e-10)
    # Normalised: the same curve, momenta and squares of speeds L times as large; the identities hold with its factors.
    if not math.isinf(depth):
        scaled = geodesic(point, depth, TIMES, velocity=0.3 * velocity, normalised=True)
        np.testing.assert_allclose(scaled.points, path.points, atol=1e-10)
        np.testing.assert_allclose(scaled.momenta, depth * path.momenta, atol=1e-9)
        assert float(scaled.speed) == pytest.approx(math.sqrt(depth) * float(path.speed), rel=1e-10)
        assert float(scaled.monitors().largest) <= CONSERVED


@pytest.mark.covers("geometry:S16", "geometry:F21")
def test_depth_two_keeps_positive_matrices_and_is_the_bures_geometry(seed: int) -> None:
    rng = np.random.default_rng(seed)
    factor, momentum = rng.standard_normal((2, 2, 2))
    point, momentum = factor @ factor.T + 0.5 * np.eye(2), 0.1 * (momentum + momentum.T)
    path = geodesic(point, 2, TIMES, momentum=momentum)
    np.testing.assert_allclose(path.points, bures_exponential(point, momentum, jnp.asarray(TIMES)), atol=1e-10)


@pytest.mark.covers("geometry:F21")
def test_finite_depth_ends_at_singular_matrices_and_infinite_depth_never() -> None:
    """Diagonal matrices: the L-th root of each entry is linear in time, zero at L a / (-v); at infinite depth the
    logarithm is linear."""
    a, v = np.array([1.5, 0.8]), np.array([0.3, -0.6])
    for depth in (2, 3, 5):
        goal = depth * 0.8 / 0.6
        path = geodesic(np.diag(a), depth, (0.5 * goal, 0.9 * goal, 2 * goal), velocity=np.diag(v))
        assert path.status == "reached a singular matrix"
        # At the end the small singular value is 1e-8 of the other, its root is that of it.
        assert float(path.end_time) == pytest.approx(goal, rel=2 * 1e-8 ** (1 / depth) * (1 + 3 * goal) ** 0.5)
        assert float(path.end_time) < goal and float(path.times[-1]) == float(path.end_time)
        roots = a ** (1 / depth) * (1 + v / (depth * a) * np.asarray(path.times)[:, None])
        np.testing.assert_allclose(path.spectra, roots**depth, atol=1e-9)
        assert float(path.spectra[-1, 1] / path.spectra[-1, 0]) < 1e-8
    path = geodesic(np.diag(a), math.inf, (1.0, 10.0, 40.0), velocity=np.diag(v))
    assert path.status == "complete"
    np.testing.assert_allclose(
        np.log(np.asarray(path.spectra)), np.log(a) + v / a * np.asarray(path.times)[:, None], rtol=1e-9
    )
    # Depth one is flat: the line goes on through singular matrices.
    line = geodesic(np.diag(a), 1, (1.0, 4 / 3, 2.0), velocity=np.diag(v))
    np.testing.assert_allclose(line.points[-1], np.diag(a + 2 * v), atol=1e-12)


@pytest.mark.covers("geometry:F47")
def test_refusals() -> None:
    eye = jnp.eye(2)
    with pytest.raises(HypothesisError, match="point is of full rank"):
        geodesic(jnp.diag(jnp.array([1.0, 0.0])), 2, TIMES, momentum=eye)
    with pytest.raises(ValueError, match="momentum must be finite"):
        geodesic(eye, 2, TIMES, momentum=jnp.full((2, 2), jnp.inf))
    with pytest.raises(ValueError, match="atol must be greater than 0"):
        geodesic(eye, 2, TIMES, momentum=eye, atol=0.0)
    with pytest.raises(ValueError, match="exactly one of velocity and momentum"):
        geodesic(eye, 2, TIMES)
    with pytest.raises(ValueError, match="exactly one of velocity and momentum"):
        geodesic(eye, 2, TIMES, velocity=eye, momentum=eye)
    with pytest.raises(ValueError, match="point must have shape"):
        geodesic(jnp.ones((2, 3)), 2, TIMES, momentum=eye)
    with pytest.raises(ValueError, match="velocity must have shape"):
        geodesic(eye, 2, TIMES, velocity=jnp.eye(3))
    for times in ((), (0.0,), (1.0, 0.5), (-1.0, 1.0)):
        with pytest.raises(ValueError, match="times must be increasing"):
            geodesic(eye, 2, times, momentum=eye)
    with pytest.raises(ValueError, match="rtol must be greater than 0"):
        geodesic(eye, 2, TIMES, momentum=eye, rtol=0.0)
    with pytest.raises(ValueError, match="depth must be a positive integer"):
        geodesic(eye, 0, TIMES, momentum=eye)


@pytest.mark.parametrize("scale", [1e-150, 1e-12, 1e120])
@pytest.mark.parametrize("depth", [3, math.inf])
def test_multiples_of_a_geodesic(scale: float, depth: float) -> None:
    """The geodesic of a multiple is the multiple, to all digits, and its monitors say so from one output alone."""
    point, move = jnp.array([[1.0, 0.2], [-0.3, 0.8]]), jnp.array([[0.1, -0.4], [0.3, 0.2]])
    wanted = geodesic(point, depth, [1.0], velocity=move).points[0]
    path = geodesic(scale * point, depth, [1.0], velocity=scale * move)
    np.testing.assert_allclose(path.points[0] / scale, wanted, rtol=1e-12)
    drifts = path.monitors()
    assert float(drifts.cone) < 1e-11 and float(drifts.dilation) < 1e-11
