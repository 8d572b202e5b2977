"""Geodesics of balanced layers, and the straight lines among them."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.geometry import (
    balanced_geodesic,
    balanced_layers,
    balanced_lift,
    direction_defect,
    frame_line_defect,
    geodesic,
    horizontal_lift,
    horizontality_defect,
    line_defect,
    multipliers,
    straight_line_end,
)

TIMES = (0.25, 0.5, 1.0)
BALANCED = 1e-9
HORIZONTAL = 1e-8


def orthogonal(rng: np.random.Generator, size: int = 2) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def rotation(angle: float) -> np.ndarray:
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def imbalances(layers: list[np.ndarray]) -> list[np.ndarray]:
    return [above.T @ above - below @ below.T for below, above in itertools.pairwise(layers)]


@pytest.mark.covers("geometry:F21", "geometry:F22", "geometry:S17")
@pytest.mark.parametrize("depth", [2, 4])
def test_horizontal_geodesics_stay_horizontal_and_project(depth: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    point = orthogonal(rng) @ np.diag(np.exp(rng.uniform(-0.5, 0.5, 2))) @ orthogonal(rng)
    velocity = 0.1 * rng.standard_normal((2, 2))
    layers = balanced_lift(point, depth, [orthogonal(rng) for _ in range(depth - 1)])
    moves = horizontal_lift(layers, velocity)
    above = balanced_geodesic(layers, moves, TIMES)
    below = geodesic(point, depth, TIMES, velocity=velocity)
    assert above.status == below.status == "complete"
    np.testing.assert_allclose(above.products, below.points, atol=1e-9)
    assert float(above.length) == pytest.approx(float(below.length), rel=1e-9)
    assert float(np.max(above.imbalance)) <= BALANCED
    largest = max(np.max(np.abs(gap)) for state in above.layers for gap in imbalances([np.asarray(w) for w in state]))
    assert largest <= BALANCED
    for state, move in zip(above.layers, above.velocities, strict=True):
        assert float(horizontality_defect(tuple(state), tuple(move))) <= HORIZONTAL
    if depth == 2:  # with one multiplier there is less to see
        return
    # The multipliers: symmetric, and with them the second derivative of the imbalance vanishes.
    held = [np.zeros((2, 2)), *np.asarray(multipliers(layers, moves)), np.zeros((2, 2))]
    bent = [np.asarray(w) @ held[k] - held[k + 1] @ np.asarray(w) for k, w in enumerate(layers)]
    second = [
        b.T @ bb + bb.T @ b + 2 * vb.T @ vb - aa @ a.T - a @ aa.T - 2 * va @ va.T
        for (a, aa, va), (b, bb, vb) in itertools.pairwise(
            zip(map(np.asarray, layers), bent, map(np.asarray, moves), strict=True)
        )
    ]
    np.testing.assert_allclose(second, 0, atol=1e-12)


def test_the_end_at_singular_layers() -> None:
    """Scalar layers move on straight lines; those of two entries meet zero one after the other."""
    one = (jnp.diag(jnp.array([1.0, 0.6])),) * 4
    fall = (jnp.diag(jnp.array([0.1, -0.6])),) * 4
    path = balanced_geodesic(one, fall, (0.25, 0.5, 2.0))
    assert path.status == "reached a singular matrix"
    np.testing.assert_allclose(path.layers[1, 0], np.diag([1.05, 0.3]), atol=1e-11)
    assert np.all(np.asarray(path.times) <= 1.0) and float(path.end_time) < 2.0


@pytest.mark.covers("geometry:F23", "geometry:S22")
def test_straight_lines_both_criteria(seed: int) -> None:
    """Random ends are not joined by balanced lines; ends of period two are, and others of equal strengths too."""
    rng = np.random.default_rng(seed)
    for depth in (2, 3):
        strengths, others = np.exp(rng.uniform(-0.5, 0.5, (2, 2)))
        turns = [orthogonal(rng) for _ in range(depth + 1)]
        start = balanced_layers(strengths, turns)
        random = [orthogonal(rng) for _ in range(depth + 1)]
        even, odd = orthogonal(rng), orthogonal(rng)
        period = straight_line_end(strengths, turns, others, even, odd)
        frames = [q @ (odd if k % 2 else even).T for k, q in enumerate(turns)]
        np.testing.assert_allclose(line_defect(start, period), 0, atol=1e-14)
        np.testing.assert_allclose(frame_line_defect(strengths, turns, others, frames), 0, atol=1e-14)
        one = np.asarray(line_defect(start, balanced_layers(others, random)))
        two = np.asarray(frame_line_defect(strengths, turns, others, random))
        assert np.all((one > 1e-8) == (two > 1e-8))
        # Both say what the imbalance on the way says.
        for end, defect in ((period, np.zeros(depth - 1)), (balanced_layers(others, random), one)):
            middle = [np.asarray(a + b) / 2 for a, b in zip(start, end, strict=True)]
            found = [np.linalg.norm(gap) for gap in imbalances(middle)]
            np.testing.assert_allclose(found, defect / 4, atol=1e-13)
    # Not of period two: equal strengths, relative turns whose angles grow linearly.
    a, b = rng.uniform(0.2, 1.0, 2)
    turns = [orthogonal(rng) for _ in range(3)]
    turns = [q * np.array([np.linalg.det(q), 1.0]) for q in turns]
    frames = [q @ rotation(b + k * a).T for k, q in zip((-1, 0, 1), turns, strict=True)]
    ends = balanced_layers([2.0, 2.0], turns), balanced_layers([0.7, 0.7], frames)
    np.testing.assert_allclose(line_defect(*ends), 0, atol=1e-14)
    np.testing.assert_allclose(frame_line_defect([2.0, 2.0], turns, [0.7, 0.7], frames), 0, atol=1e-14)
    uneven = balanced_layers([2.0, 1.0], turns)
    assert float(line_defect(uneven, ends[1])[0]) > 1e-3


@pytest.mark.covers("geometry:F23")
def test_straight_lines_in_horizontal_directions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    turns = [orthogonal(rng) for _ in range(3)]
    strengths = np.array([1.4, 0.6])
    layers = balanced_layers(strengths, turns)
    # Along the singular directions the line is balanced, in a general direction it is not.
    for covector, straight in (
        (turns[2] @ np.diag([0.3, -0.2]) @ turns[0].T, True),
        (rng.standard_normal((2, 2)), False),
    ):
        moves = [layers[1].T @ covector, covector @ layers[0].T]
        defect = float(direction_defect(layers, covector)[0])
        (gap,) = imbalances([np.asarray(w + v) for w, v in zip(layers, moves, strict=True)])
        assert float(np.linalg.norm(gap)) == pytest.approx(defect, abs=1e-13)
        assert (defect < 1e-13) == straight


@pytest.mark.covers("geometry:F47")
def test_refusals() -> None:
    eye = jnp.eye(2)
    with pytest.raises(HypothesisError, match="params are balanced layers"):
        balanced_geodesic((eye, 2 * eye), (eye, eye), TIMES)
    with pytest.raises(HypothesisError, match="tangent keeps the layers balanced"):
        balanced_geodesic((eye, eye), (eye, 2 * eye), TIMES)
    with pytest.raises(HypothesisError, match="params are of full rank"):
        balanced_geodesic((jnp.diag(jnp.array([1.0, 0.0])),) * 2, (eye, eye), TIMES)
    with pytest.raises(HypothesisError, match="is orthogonal"):
        straight_line_end([1.0, 1.0], [eye] * 3, [1.0, 1.0], 2 * eye, eye)
    with pytest.raises(ValueError, match="square layers of one width"):
        line_defect((jnp.zeros((2, 3)), jnp.zeros((3, 2))), (eye, eye))
    for layers in ((jnp.zeros((2, 3)),), (jnp.zeros((2, 3)), jnp.eye(2))):
        with pytest.raises(ValueError, match=r"square layers of one width, but the widths are \[2, 3\]"):
            line_defect(layers, (eye,) * len(layers))
    with pytest.raises(ValueError, match="covector must have shape"):
        direction_defect((eye, eye), jnp.eye(3))
