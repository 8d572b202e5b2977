"""Geodesics in closed form follow the exponential map; the curve that was taken for one does not."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from checking import unchecked
from deeplinear.core import HypothesisError
from deeplinear.geometry import classify_endpoints, curve_length, explicit_geodesic, geodesic, rotation_chord

FOLLOWS = 1e-8
"""Closed form against the exponential map at rtol 1e-12."""

FIRST = np.diag([4.0, 1.0])
SECOND = np.array([[2.5, 1.5], [1.5, 2.5]])
"""Positive definite matrices that do not commute."""

SIZE = 4
"""That of the other tests of geodesics with more than two rows: one program."""


def orthogonal(rng: np.random.Generator, *, special: bool = False) -> np.ndarray:
    found = np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0]
    return found * np.sign(np.linalg.det(found)) if special else found


def normal(rng: np.random.Generator, largest: float) -> np.ndarray:
    """A normal matrix that is no symmetric one, eigenvalues turned by at most an angle."""
    frame, angle, size = orthogonal(rng), rng.uniform(0.3, largest), rng.uniform(0.5, 2, SIZE - 1)
    turn = size[0] * np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return frame @ scipy.linalg.block_diag(turn, np.diag(size[1:])) @ frame.T


def positive(rng: np.random.Generator, frame: np.ndarray) -> np.ndarray:
    return (frame * np.exp(rng.uniform(-1, 1, SIZE))) @ frame.T


def instance(case: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    turn, frame = orthogonal(rng), orthogonal(rng)
    if case == "common frame":
        return turn @ positive(rng, frame), turn @ positive(rng, frame)
    if case == "positive pair":
        return turn @ positive(rng, frame), turn @ positive(rng, orthogonal(rng))
    if case.endswith("a scaled rotation"):
        ends = 1.3 * turn, turn @ normal(rng, 0.9 * math.pi)
        return ends if case.startswith("from") else (ends[1], ends[0])
    if case == "straight line":
        return turn @ positive(rng, frame), rng.standard_normal((SIZE, SIZE))
    values, map_ = np.diag(np.exp(rng.uniform(-1, 1, SIZE))), normal(rng, 0.45 * math.pi)
    return turn @ values @ frame.T, turn @ map_ @ values @ map_ @ frame.T


CASES = (
    ("straight line", 1),
    ("common frame", 2),
    ("common frame", 5),
    ("common frame", math.inf),
    ("positive pair", 2),
    ("from a scaled rotation", 3),
    ("from a scaled rotation", math.inf),
    ("to a scaled rotation", 2),
    ("to a scaled rotation", math.inf),
    ("normal map", 2),
)


@pytest.mark.covers("geometry:F24", "geometry:S25")
@pytest.mark.parametrize(("case", "depth"), CASES)
def test_closed_forms_follow_the_exponential_map(case: str, depth: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    start, end = instance(case, rng)
    assert classify_endpoints(start, end, depth) == case
    path = explicit_geodesic(start, end, depth)
    ends = np.asarray(path.points([0.0, 1.0]))
    np.testing.assert_allclose(ends, [start, end], atol=1e-12 * np.max(np.abs(ends)))
    velocity = path.velocities(0.0)
    if case != "straight line":
        halfway = geodesic(start, depth, [0.5], velocity=velocity)
        np.testing.assert_allclose(path.points(0.5), halfway.points[0], atol=FOLLOWS)
        assert float(halfway.speed) == pytest.approx(path.length, abs=FOLLOWS)
    # Its own velocity is its derivative, and its length that of the curve.
    later, earlier = path.points([0.3 + 1e-5, 0.3 - 1e-5])
    np.testing.assert_allclose(path.velocities(0.3), (later - earlier) / 2e-5, atol=1e-8)
    assert curve_length(path.points, depth, velocity=path.velocities) == pytest.approx(path.length, abs=1e-10)
    wider = 1.0 if math.isinf(depth) else math.sqrt(depth)
    assert explicit_geodesic(start, end, depth, normalised=True).length == pytest.approx(wider * path.length)


@pytest.mark.covers("geometry:F24", "geometry:E1")
def test_pairs_without_a_closed_form() -> None:
    assert classify_endpoints(FIRST, SECOND, 2) == "positive pair"
    for depth in (3, 4, math.inf):
        assert classify_endpoints(FIRST, SECOND, depth) == "numeric"
    with pytest.raises(HypothesisError, match="geodesic_between finds the geodesic numerically") as caught:
        explicit_geodesic(FIRST, SECOND, 3)
    assert caught.value.residual == pytest.approx(
        np.linalg.norm(FIRST @ SECOND - SECOND @ FIRST) / np.linalg.norm(FIRST) / np.linalg.norm(SECOND)
    )
    # Half a turn has no principal root; symmetric matrices that are not definite differ in their polar factors.
    assert classify_endpoints(np.eye(2), -np.eye(2), 3) == "numeric"
    assert classify_endpoints(np.diag([2.0, -1.0]), np.array([[0.0, 1.0], [3.0, 0.0]]), 3) == "numeric"


def test_a_turn_in_closed_form() -> None:
    """From the identity to a rotation by 1.1: 2 √(2L) sin(1.1/(2L)), at infinite depth √2 · 1.1."""
    turn = np.array([[math.cos(1.1), -math.sin(1.1)], [math.sin(1.1), math.cos(1.1)]])
    for depth in (2, 3, 7):
        wanted = 2 * math.sqrt(2 * depth) * math.sin(1.1 / (2 * depth))
        assert explicit_geodesic(np.eye(2), turn, depth).length == pytest.approx(wanted, rel=1e-13)
    assert explicit_geodesic(np.eye(2), turn, math.inf).length == pytest.approx(math.sqrt(2) * 1.1, rel=1e-13)


PRINTED = {
    2: (1.377145, 1.414214, 0.316, 0.29),
    3: (0.985193, 1.017408, 0.248, 0.35),
    4: (0.800575, 0.828427, 0.208, 0.38),
}
"""Lengths of the curve and of the line above it, defect of the line, how far the geodesic of its velocity misses."""


@pytest.mark.covers("geometry:F25", "geometry:E1", "geometry:S24")
@pytest.mark.parametrize("depth", list(PRINTED))
def test_the_chord_is_no_geodesic(depth: int) -> None:
    curve = rotation_chord(FIRST, SECOND, depth)
    length, line, defect, misses = PRINTED[depth]
    assert not curve.is_geodesic
    assert curve.length == pytest.approx(length, abs=1e-6)
    assert curve.line == pytest.approx(line, abs=1e-6)
    assert curve.defect == pytest.approx(defect, abs=6e-4)
    np.testing.assert_allclose(curve.points([0.0, 1.0]), [FIRST, SECOND], atol=1e-12)
    reached = geodesic(FIRST, depth, [1.0], velocity=curve.velocities(0.0)).points[-1]
    assert float(np.linalg.norm(np.asarray(reached) - SECOND)) == pytest.approx(misses, abs=6e-3)
    if depth == 2:
        np.testing.assert_allclose(curve.points(0.5), [[3.125, 0.75], [0.75, 1.625]], atol=1e-12)
        true = explicit_geodesic(FIRST, SECOND, 2).points(0.5)
        wanted = [[3.171041365048, 0.789118222781], [0.789118222781, 1.592804919487]]
        np.testing.assert_allclose(true, wanted, atol=1e-11)


@pytest.mark.covers("geometry:F25")
def test_the_chord_of_commuting_matrices_is_the_geodesic(seed: int) -> None:
    start, end = instance("common frame", np.random.default_rng(seed))
    for depth in (2, 5):
        curve, path = rotation_chord(start, end, depth), explicit_geodesic(start, end, depth)
        assert curve.is_geodesic and curve.commutator < 1e-13 and curve.defect < 1e-12
        assert curve.length == pytest.approx(path.length, abs=1e-12) == curve.line
        np.testing.assert_allclose(curve.points([0.2, 0.7]), path.points([0.2, 0.7]), atol=1e-12)


@pytest.mark.covers("geometry:F47")
def test_refusals() -> None:
    with pytest.raises(HypothesisError, match=r"determinants of start and end have one sign.*infinite"):
        classify_endpoints(np.eye(2), np.diag([1.0, -1.0]), 2)
    for ends in ((np.diag([1.0, 0.0]), np.eye(2)), (np.eye(2), np.diag([1.0, 0.0]))):
        with pytest.raises(HypothesisError, match="is of full rank"):
            explicit_geodesic(*ends, 2)
    with pytest.raises(ValueError, match="end must have shape"):
        classify_endpoints(np.eye(2), np.eye(3), 2)
    with pytest.raises(ValueError, match="start must have shape"):
        classify_endpoints(np.ones((2, 3)), np.ones((2, 3)), 2)
    with pytest.raises(ValueError, match="start must be finite"):
        classify_endpoints(np.full((2, 2), np.nan), np.eye(2), 2)
    with pytest.raises(ValueError, match="depth must be a positive integer"):
        unchecked(rotation_chord)(FIRST, SECOND, math.inf)
    with pytest.raises(HypothesisError, match="equal polar factors"):
        rotation_chord(np.diag([1.0, -1.0]), np.array([[0.0, 1.0], [1.0, 0.0]]), 2)
    with pytest.raises(ValueError, match="times must be finite"):
        explicit_geodesic(jnp.eye(2), 2 * jnp.eye(2), 2).points(jnp.nan)
