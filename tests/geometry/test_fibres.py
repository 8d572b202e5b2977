"""Balanced layers over a matrix: lifts, dimensions, horizontal and vertical tangents."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.geometry import (
    Metric,
    balanced_layers,
    balanced_lift,
    horizontal_basis,
    horizontal_lift,
    horizontal_part,
    horizontality_defect,
    manifold_dimension,
    vertical_basis,
)

ROUNDING = 1e-12
SIZE = 3


def orthogonal(rng: np.random.Generator, size: int = SIZE) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def lifted(seed: int, depth: int) -> tuple[np.ndarray, tuple]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((SIZE, SIZE))
    return x, balanced_lift(x, depth, [orthogonal(rng) for _ in range(depth - 1)])


def product(layers: tuple) -> np.ndarray:
    result = np.eye(layers[0].shape[1])
    for layer in layers:
        result = np.asarray(layer) @ result
    return result


@pytest.mark.covers("geometry:F5", "geometry:F6", "geometry:S7")
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_lift_is_balanced_and_shortest(depth: int, seed: int) -> None:
    x, layers = lifted(seed, depth)
    np.testing.assert_allclose(product(layers), x, atol=1e-13 * max(1.0, np.max(np.abs(x))))
    for below, above in itertools.pairwise(layers):
        np.testing.assert_allclose(above.T @ above, below @ below.T, atol=1e-13 * max(1.0, np.max(np.abs(x))))
    shortest = sum(float(jnp.sum(layer**2)) for layer in layers)
    assert shortest == pytest.approx(depth * np.sum(np.linalg.svd(x, compute_uv=False) ** (2 / depth)), rel=ROUNDING)
    rng = np.random.default_rng(seed)
    for _ in range(20 if depth > 1 else 0):  # other layers with this product are longer
        turn = rng.standard_normal((SIZE, SIZE)) + 2 * np.eye(SIZE)
        other = [np.asarray(layer) for layer in layers]
        other[0], other[1] = turn @ other[0], other[1] @ np.linalg.inv(turn)
        assert sum(np.sum(layer**2) for layer in other) > shortest


@pytest.mark.covers("geometry:F5", "geometry:S4")
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_bases_of_the_tangent_space(depth: int, seed: int) -> None:
    """Orthonormal, orthogonal to the turns, of the right number, and isometric to matrices with the metric."""
    _, layers = lifted(seed, depth)
    if seed:  # also where singular values are equal
        rng = np.random.default_rng(seed)
        layers = balanced_layers([1.3] * SIZE, [orthogonal(rng) for _ in range(depth + 1)])
    horizontal = np.concatenate([np.asarray(part).reshape(SIZE**2, -1) for part in horizontal_basis(layers)], axis=1)
    vertical = np.concatenate([np.asarray(part).reshape(len(part), -1) for part in vertical_basis(layers)], axis=1)
    np.testing.assert_allclose(horizontal @ horizontal.T, np.eye(SIZE**2), atol=1e-11)
    np.testing.assert_allclose(horizontal @ vertical.T, 0.0, atol=1e-11)
    both = np.linalg.matrix_rank(np.concatenate([horizontal, vertical]))
    assert both == manifold_dimension(SIZE, depth) == depth * SIZE**2 - (depth - 1) * SIZE * (SIZE + 1) // 2
    # Tangents of balanced layers: the derivative of every imbalance vanishes.
    moves = [np.asarray(part) for part in horizontal_basis(layers)]
    for below, above, low, high in zip(layers, layers[1:], moves, moves[1:], strict=False):
        change = np.einsum("nij,ik->njk", high, np.asarray(above)) - np.einsum("nij,kj->nik", low, np.asarray(below))
        np.testing.assert_allclose(change + change.transpose(0, 2, 1), 0.0, atol=1e-11)


@pytest.mark.parametrize("depth", [2, 3])
def test_lifts_of_tangents(depth: int, seed: int) -> None:
    x, layers = lifted(seed, depth)
    z = np.random.default_rng(seed + 1).standard_normal((SIZE, SIZE))
    moves = horizontal_lift(layers, z)
    # It moves the product by Z, to first order, and is as long as Z.
    step = 1e-6
    moved = [product(tuple(w + s * step * v for w, v in zip(layers, moves, strict=True))) for s in (1, -1)]
    np.testing.assert_allclose((moved[0] - moved[1]) / (2 * step), z, atol=1e-7)
    assert sum(float(jnp.sum(v**2)) for v in moves) == pytest.approx(float(Metric(depth).inner(x, z, z)), rel=1e-10)
    assert float(horizontality_defect(layers, moves)) < 1e-10
    turned = tuple(v + part[0] for v, part in zip(moves, vertical_basis(layers), strict=True))
    length = math.sqrt(sum(float(jnp.sum(part[0] ** 2)) for part in vertical_basis(layers)))
    assert float(horizontality_defect(layers, turned)) == pytest.approx(length, rel=1e-9)
    for part, move in zip(horizontal_part(layers, turned), moves, strict=True):
        np.testing.assert_allclose(part, move, atol=1e-10)


@pytest.mark.covers("geometry:S13")
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_constants_that_do_not_depend_on_the_layer_are_not_horizontal(depth: int) -> None:
    """The same pair of directions with one weight in every layer."""
    layers = balanced_layers([2.0, 1.0, 0.5], [np.eye(SIZE)] * (depth + 1))
    even = np.zeros((SIZE, SIZE))
    even[0, 1] = 1 / math.sqrt(depth)
    assert float(horizontality_defect(layers, [jnp.asarray(even)] * depth)) > 0.1


def test_refusals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    with pytest.raises(HypothesisError, match="balanced layers"):
        horizontal_lift([rng.standard_normal((2, 2)) for _ in range(2)], np.eye(2))
    with pytest.raises(HypothesisError, match=r"turns\[1\] is orthogonal"):
        balanced_layers([1.0, 2.0], [np.eye(2), 2 * np.eye(2)])
    with pytest.raises(HypothesisError, match="positive strengths"):
        balanced_layers([1.0, 0.0], [np.eye(2)] * 2)
    with pytest.raises(HypothesisError, match="full rank"):
        balanced_lift(np.zeros((2, 2)), 2)
    with pytest.raises(ValueError, match="turns must hold 1 matrices"):
        balanced_lift(np.eye(2), 2, [])
    with pytest.raises(ValueError, match="square layers of one width"):
        vertical_basis([np.ones((1, 2)), np.ones((2, 1))])
    with pytest.raises(ValueError, match="depth must be a positive integer"):
        balanced_lift(np.eye(2), 0)
