"""The logarithm: geodesics between any two matrices of one component; the distance.

Of two rows or of four, where two planes may be turned: a program for a new size takes seconds to make.
"""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

from deeplinear.core import HypothesisError
from deeplinear.geometry import (
    Metric,
    bures_distance,
    curve_length,
    distance,
    explicit_geodesic,
    geodesic,
    geodesic_between,
    path_inefficiency,
    rotation_chord,
)
from deeplinear.models import SquaredDistance

ARRIVES = 1e-9
"""End point of the exponential map of a logarithm; what the specification asks of all pairs."""

START = np.array([[1.0, 0.2], [-0.3, 0.8]])
END = np.array([[0.3, -0.9], [0.8, 0.5]])

DEPTHS = (2, 3, 5, math.inf)


def draw(rng: np.random.Generator, size: int, largest: float = 0.99, planes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Two matrices whose polar factors are turned in some planes, by angles up to a share of half a turn."""
    frames = [np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(4)]
    generator = np.zeros((size, size))
    for k in range(0, min(size - 1, 2 * planes), 2):
        generator[k + 1, k] = rng.uniform(0, largest) * math.pi
    turn = frames[1] @ scipy.linalg.expm(generator - generator.T) @ frames[1].T
    ends = [(frame * np.exp(rng.uniform(-1, 1, size))) @ frame.T for frame in frames[2:]]
    return frames[0] @ ends[0], frames[0] @ turn @ ends[1]


def hamilton(point: np.ndarray, momentum: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Velocity and force as sums over layers, with derivatives of powers by divided differences."""
    left, s, right_t = np.linalg.svd(point)
    p, x = left.T @ momentum @ right_t.T, s**2
    velocity, first, second = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
    for layer in range(1, depth + 1):
        below, above = (layer - 1) / depth, (depth - layer) / depth
        velocity += x[:, None] ** above * p * x**below
        first += differences(x, above) * ((p * x**below) @ p.T)
        second += differences(x, below) * ((p.T * x**above) @ p)
    return left @ velocity @ right_t, -left @ (first * s + s[:, None] * second) @ right_t


def differences(x: np.ndarray, exponent: float) -> np.ndarray:
    gaps = x[:, None] - x
    equal = np.abs(gaps) < 1e-9
    slopes = exponent * x[:, None] ** (exponent - 1) + 0 * gaps
    return np.where(equal, slopes, (x[:, None] ** exponent - x**exponent) / np.where(equal, 1.0, gaps))


@pytest.mark.covers("geometry:F27", "geometry:R")
@pytest.mark.parametrize(("depth", "wanted"), [(2, 1.343979019434), (3, 1.122235286352), (math.inf, 2.007791976012)])
def test_reference_distances(depth: float, wanted: float) -> None:
    found = geodesic_between(START, END, depth)
    assert found.converged and found.case == "numeric" and found.residual < 1e-11 and not found.warning
    assert found.length == pytest.approx(wanted, abs=2e-12)
    assert found.length > found.lower_bound
    # The path it tells leads to the end and has this length.
    path = found.path([1.0])
    np.testing.assert_allclose(path.points[-1], END, atol=1e-11)
    assert float(path.speed) == pytest.approx(wanted, abs=1e-11)
    # The velocity is what the momentum gives, and conversely.
    metric = Metric(depth)
    np.testing.assert_allclose(metric.inverse(START, found.velocity), found.momentum, atol=1e-12)
    assert float(metric.norm(START, found.velocity)) == pytest.approx(found.length, abs=1e-12)


@pytest.mark.covers("geometry:F27")
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_against_hamilton_as_a_sum_over_layers(depth: int, seed: int) -> None:
    """The momentum found, integrated by SciPy with equations written anew, leads to the end. Two planes are turned."""
    start, end = draw(np.random.default_rng(seed), 4)
    found = geodesic_between(start, end, depth)
    assert found.converged and found.case == "numeric", found.message

    def field(_: float, state: np.ndarray) -> np.ndarray:
        return np.concatenate([part.ravel() for part in hamilton(*state.reshape(2, 4, 4), depth)])

    state = np.concatenate([start.ravel(), np.ravel(found.momentum)])
    last = scipy.integrate.solve_ivp(field, (0, 1), state, method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    np.testing.assert_allclose(last[:16].reshape(4, 4), end, atol=ARRIVES)
    assert found.residual <= ARRIVES and found.length >= found.lower_bound - 1e-12


@pytest.mark.covers("geometry:F27", "geometry:S27")
@pytest.mark.parametrize(("size", "depths", "pairs"), [(2, DEPTHS, 2), (4, (3, math.inf), 1)])
def test_random_pairs(size: int, depths: tuple[float, ...], pairs: int, seed: int) -> None:
    """All are joined, symmetrically, and never below the bound. One plane is turned, of four rows two stay."""
    rng = np.random.default_rng(seed)
    for depth, _ in itertools.product(depths, range(pairs)):
        start, end = draw(rng, size, planes=1)
        found, back = geodesic_between(start, end, depth), geodesic_between(end, start, depth)
        assert found.converged and back.converged, found.message
        assert max(found.residual, back.residual) <= ARRIVES
        assert found.length == pytest.approx(back.length, abs=1e-9)
        assert found.length >= found.lower_bound - 1e-12
        assert bool(found.warning) == (found.angle > 0.9 * math.pi)


@pytest.mark.covers("geometry:F27", "geometry:F26")
def test_the_length_of_the_path_as_a_curve() -> None:
    """The path at 24 nodes, one time at a call; the derivative of the polynomial through them costs 24² roundings."""
    for depth in (3, math.inf):
        found = geodesic_between(START, END, depth)
        assert found.case == "numeric"
        length = curve_length(lambda t: found.path([t]).points[0], depth, nodes=24)  # noqa: B023
        assert length == pytest.approx(found.length, rel=1e-9)


@pytest.mark.covers("geometry:F27")
def test_the_logarithm_undoes_the_exponential_map(seed: int) -> None:
    """With velocities so short that no other geodesic can be meant."""
    rng = np.random.default_rng(seed)
    for depth in DEPTHS:
        start, _ = draw(rng, 2)
        tangent = rng.standard_normal((2, 2))
        velocity = 0.5 * tangent / float(Metric(depth, normalised=True).norm(start, tangent))
        end = geodesic(start, depth, [1.0], velocity=velocity).points[-1]
        found = geodesic_between(start, end, depth)
        np.testing.assert_allclose(found.velocity, velocity, atol=1e-10)
        scaled = geodesic_between(1e3 * start, 1e3 * np.asarray(end), depth, normalised=True)
        np.testing.assert_allclose(scaled.velocity, 1e3 * velocity, atol=1e-7)


@pytest.mark.covers("geometry:F27", "geometry:F24")
def test_numbers_and_closed_forms_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    one, other = ((frame * np.exp(rng.uniform(-1, 1, 2))) @ frame.T for _ in range(2))
    skew = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    crossed = (skew * np.exp(rng.uniform(-1, 1, 2))) @ skew.T
    turn = scipy.linalg.expm(np.array([[0.0, -2.0], [2.0, 0.0]]))
    for depth, start, end in (
        (5, one, other),
        (math.inf, one, other),
        (2, one, crossed),
        (3, 1.3 * np.eye(2), turn),
        (math.inf, turn, 0.7 * np.eye(2)),
    ):
        closed, numeric = geodesic_between(start, end, depth), geodesic_between(start, end, depth, method="collocation")
        assert closed.case != "numeric" == numeric.case
        assert numeric.length == pytest.approx(closed.length, abs=1e-8)
        np.testing.assert_allclose(numeric.momentum, closed.momentum, atol=1e-8)
    assert distance(one, crossed, 2) == pytest.approx(math.sqrt(2) * float(bures_distance(one, crossed)), abs=1e-12)
    assert distance(one, one, 3) == 0.0
    assert distance(START, -END, 1) == pytest.approx(np.linalg.norm(START + END), rel=1e-14)


@pytest.mark.covers("geometry:F27")
def test_triangles_and_normalisation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for depth in (2, 3, math.inf):
        a, b = draw(rng, 2, 0.5)
        c = a @ scipy.linalg.expm(0.4 * rng.standard_normal((2, 2)))
        sides = [distance(a, b, depth), distance(b, c, depth), distance(a, c, depth)]
        assert max(sides) <= sum(sides) - max(sides)
    plain, scaled = geodesic_between(START, END, 3), geodesic_between(START, END, 3, normalised=True)
    assert scaled.length == pytest.approx(math.sqrt(3) * plain.length, rel=1e-11)
    np.testing.assert_allclose(scaled.momentum, 3 * np.asarray(plain.momentum), atol=1e-11)
    np.testing.assert_allclose(scaled.velocity, plain.velocity, atol=1e-11)


@pytest.mark.covers("geometry:F27")
def test_half_a_turn_is_tried_both_ways() -> None:
    start, end = np.diag([2.0, 1.0]), -np.array([[1.0, 0.3], [0.3, 1.5]])
    for depth in (3, math.inf):
        found = geodesic_between(start, end, depth)
        assert found.converged and found.residual <= ARRIVES
        assert found.angle == pytest.approx(math.pi, abs=1e-7) and "another geodesic may be" in found.warning
        assert found.length == pytest.approx(distance(end, start, depth), abs=1e-9)
    # From the identity the two ways are mirror images: half a turn of the closed form.
    assert distance(np.eye(2), -np.eye(2), 3) == pytest.approx(2 * math.sqrt(6) * math.sin(math.pi / 6), abs=1e-9)


@pytest.mark.covers("geometry:E1")
@pytest.mark.parametrize(("depth", "length"), [(2, 1.374493), (3, 0.982462), (4, 0.798086)])
def test_the_geodesic_is_shorter_than_the_chord(depth: int, length: float) -> None:
    start, end = np.diag([4.0, 1.0]), np.array([[2.5, 1.5], [1.5, 2.5]])
    found, chord = geodesic_between(start, end, depth), rotation_chord(start, end, depth)
    assert found.length == pytest.approx(length, abs=1e-6)
    assert found.length < chord.length - 2e-3 and chord.length < chord.line - 0.02
    if depth == 2:
        assert found.length == pytest.approx(explicit_geodesic(start, end, 2).length, rel=1e-14)
        assert found.length == pytest.approx(math.sqrt(2) * 0.97191299089095, abs=1e-12)


@pytest.mark.covers("geometry:F28")
def test_inefficiency_of_gradient_flow() -> None:
    energy = SquaredDistance(jnp.asarray(END))
    for depth, ratio in ((1, 1.0), (2, 1.023361), (3, 1.041576), (5, 1.060065), (math.inf, 1.094681)):
        found = path_inefficiency(energy, START, depth)
        assert found.status == "converged" and found.ratio == pytest.approx(ratio, abs=1e-5 if depth > 1 else 1e-9)
        assert found.ratio >= 1 - 1e-12 and found.length == pytest.approx(found.ratio * found.distance)
    with pytest.raises(HypothesisError, match="the flow moves"):
        path_inefficiency(energy, END, 1)
    with pytest.raises(RuntimeError, match="singular"):
        path_inefficiency(SquaredDistance(jnp.diag(jnp.array([1.0, -1.0]))), np.diag([1.0, 0.5]), 2, time=1e3)


@pytest.mark.covers("geometry:F28")
def test_gradient_flow_is_never_shorter_than_the_distance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for depth in (2, 3, math.inf):
        start, end = draw(rng, 2, 0.5)
        found = path_inefficiency(SquaredDistance(jnp.asarray(end)), start, depth)
        # The flow is followed to a gradient of 1e-9 or so, and stops short of its end by as much.
        assert found.status == "converged" and found.ratio >= 1 - 1e-9


@pytest.mark.covers("geometry:F47")
def test_refusals() -> None:
    with pytest.raises(HypothesisError, match="distance is infinite"):
        geodesic_between(START, START[::-1], 2)
    for ends in ((np.ones((2, 2)), START), (START, np.ones((2, 2)))):
        with pytest.raises(HypothesisError, match="is of full rank"):
            distance(*ends, 3)
    with pytest.raises(ValueError, match="end must have shape"):
        distance(START, np.eye(3), 2)
    with pytest.raises(ValueError, match="end must be finite"):
        distance(START, np.full((2, 2), np.inf), 2)
    with pytest.raises(ValueError, match="tolerance must be greater than 0"):
        geodesic_between(START, END, 2, tolerance=0.0)


def test_a_failure_is_told() -> None:
    """A tolerance below rounding cannot be met: the result says so and keeps its numbers."""
    found = geodesic_between(START, END, 3, tolerance=1e-17)
    assert not found.converged and "No geodesic was found: the end is missed by" in found.message
    assert 0 < found.residual < 1e-11 and bool(np.all(np.isfinite(np.asarray(found.momentum))))


@pytest.mark.parametrize("depth", [2, 3, math.inf])
@pytest.mark.parametrize("factor", [1e-11, 1e-3, 1e8])
def test_ends_of_any_sizes(depth: float, factor: float) -> None:
    """Sizes split off: a cone at finite depth (law of cosines), a product at infinite depth; both ways round."""
    start, end = np.array([[1.0, 0.2], [-0.3, 0.8]]), np.array([[0.3, -0.9], [0.8, 0.5]])
    known = {2: 1.343979019434, 3: 1.122235286352, math.inf: 2.007791976012}[depth]
    if math.isinf(depth):
        log = lambda m: math.log(np.linalg.det(m))  # noqa: E731
        wanted = math.sqrt(known**2 + ((log(factor * end) - log(start)) ** 2 - (log(end) - log(start)) ** 2) / 2)
    else:
        one, other = (
            math.sqrt(depth * np.sum(np.linalg.svd(m, compute_uv=False) ** (2 / depth))) for m in (start, end)
        )
        cosine = (one**2 + other**2 - known**2) / (2 * one * other)
        far = other * factor ** (1 / depth)
        wanted = math.sqrt((one - far) ** 2 + 2 * one * far * (1 - cosine))
    for first, last in ((start, factor * end), (factor * end, start)):
        found = geodesic_between(first, last, depth)
        assert found.converged and found.length == pytest.approx(wanted, rel=1e-10)
        assert found.residual <= 1e-10 * np.abs(last).max()
        # The momentum is that of the length: <P, V> is its square.
        assert float(jnp.sum(found.momentum * found.velocity)) == pytest.approx(wanted**2, rel=1e-8)


def test_the_path_between_ends_of_different_sizes() -> None:
    start, end = np.array([[1.0, 0.2], [-0.3, 0.8]]), 1e-3 * np.array([[0.3, -0.9], [0.8, 0.5]])
    for depth in (2, math.inf):
        path = geodesic_between(start, end, depth).path([1.0])
        np.testing.assert_allclose(path.points[-1], end, atol=1e-10)


def test_a_closed_form_that_overflows_is_not_called_converged() -> None:
    found = geodesic_between(1e200 * np.eye(2), -1e200 * np.eye(2), 1)
    assert not found.converged and math.isnan(found.length) and "too large" in found.message


def aligned(values: np.ndarray) -> np.ndarray:
    """The numbers at an address that is a multiple of 64, where JAX may take the memory of NumPy as it is."""
    memory = np.empty(values.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    found = memory[begin : begin + values.nbytes].view(float).reshape(values.shape)
    found[...] = values
    return found


@pytest.mark.parametrize(("depth", "method"), [(2, "auto"), (1, "auto"), (2, "collocation")])
def test_a_connection_has_memory_of_its_own(depth: int, method: str) -> None:
    start, end = aligned(np.eye(2)), aligned(np.diag([2.0, 3.0]))
    found = geodesic_between(start, end, depth, method=method)
    start[...] = end[...] = 7.0
    np.testing.assert_array_equal(found.start, np.eye(2))
    np.testing.assert_array_equal(found.end, np.diag([2.0, 3.0]))
    np.testing.assert_allclose(found.path([0.0, 1.0]).points[-1], np.diag([2.0, 3.0]), atol=1e-9)


def test_the_angle_at_depth_one() -> None:
    turn = np.array([[math.cos(0.76 * math.pi), -math.sin(0.76 * math.pi)], [math.sin(0.76 * math.pi), 0.0]])
    turn[1, 1] = turn[0, 0]
    for depth in (1, 2):
        assert geodesic_between(2 * np.eye(2), turn, depth).angle == pytest.approx(0.76 * math.pi, abs=1e-12)
    assert geodesic_between(2 * np.eye(2), np.diag([1.0, 0.0]), 1).angle == 0.0  # a singular end has no such factor
    line = geodesic_between(np.eye(2), -np.eye(2), 1)
    assert line.angle == pytest.approx(math.pi) and not line.warning  # straight lines are the shortest
    assert geodesic_between(np.eye(2), np.diag([1.0, -1.0]), 1).angle == pytest.approx(math.pi)
