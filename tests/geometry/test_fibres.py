"""Balanced layers over a matrix: lifts, dimensions, horizontal and vertical tangents."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from checking import unchecked
from deeplinear.core import HypothesisError
from deeplinear.geometry import (
    Metric,
    balanced_layers,
    balanced_lift,
    horizontal_basis,
    horizontal_lift,
    horizontal_part,
    horizontality_defect,
    log_fibre_volume,
    manifold_dimension,
    minimal_fibre_norm,
    vertical_basis,
    vertical_gram,
)
from deeplinear.models import Completion, DeepLinear, Problem

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
    assert float(minimal_fibre_norm(x, depth)) == pytest.approx(shortest, rel=ROUNDING)
    rng = np.random.default_rng(seed)
    for _ in range(20 if depth > 1 else 0):  # other layers with this product are longer
        turn = rng.standard_normal((SIZE, SIZE)) + 2 * np.eye(SIZE)
        other = [np.asarray(layer) for layer in layers]
        other[0], other[1] = turn @ other[0], other[1] @ np.linalg.inv(turn)
        assert sum(np.sum(layer**2) for layer in other) > shortest


@pytest.mark.covers("geometry:F5", "geometry:F13", "geometry:S4")
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_bases_of_the_tangent_space(depth: int, seed: int) -> None:
    """Orthonormal, orthogonal to the turns, of the right number, and isometric to matrices with the metric."""
    _, layers = lifted(seed, depth)
    if seed:  # also where singular values are equal
        rng = np.random.default_rng(seed)
        layers = balanced_layers([1.3] * SIZE, [orthogonal(rng) for _ in range(depth + 1)])
    horizontal = np.concatenate([np.asarray(part).reshape(SIZE**2, -1) for part in horizontal_basis(layers)], axis=1)
    vertical = np.concatenate([np.asarray(part).reshape(len(part), -1) for part in vertical_basis(layers)], axis=1)
    np.testing.assert_allclose(horizontal @ horizontal.T, np.eye(SIZE**2), atol=ROUNDING)
    np.testing.assert_allclose(horizontal @ vertical.T, 0.0, atol=ROUNDING)
    both = np.linalg.matrix_rank(np.concatenate([horizontal, vertical]))
    assert both == manifold_dimension(SIZE, depth) == depth * SIZE**2 - (depth - 1) * SIZE * (SIZE + 1) // 2
    # Tangents of balanced layers: the derivative of every imbalance vanishes.
    moves = [np.asarray(part) for part in horizontal_basis(layers)]
    for below, above, low, high in zip(layers, layers[1:], moves, moves[1:], strict=False):
        change = np.einsum("nij,ik->njk", high, np.asarray(above)) - np.einsum("nij,kj->nik", low, np.asarray(below))
        np.testing.assert_allclose(change + change.transpose(0, 2, 1), 0.0, atol=1e-11)


@pytest.mark.covers("geometry:F13")
@pytest.mark.parametrize("depth", [2, 3])
def test_lifts_of_tangents(depth: int, seed: int) -> None:
    x, layers = lifted(seed, depth)
    z = np.random.default_rng(seed + 1).standard_normal((SIZE, SIZE))
    moves = horizontal_lift(layers, z)
    # It moves the product by Z, to first order, and is as long as Z.
    step = 1e-6
    moved = [product(tuple(w + s * step * v for w, v in zip(layers, moves, strict=True))) for s in (1, -1)]
    np.testing.assert_allclose((moved[0] - moved[1]) / (2 * step), z, atol=1e-7)
    assert sum(float(jnp.sum(v**2)) for v in moves) == pytest.approx(float(Metric(depth).inner(x, z, z)), rel=1e-11)
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


@pytest.mark.covers("geometry:F6", "geometry:S7")
def test_the_least_norm_has_its_recorded_value() -> None:
    first, second = np.array([[0.5, 0.1], [-0.2, 0.7]]), np.array([[1.1, -0.3], [0.4, 0.9]])
    assert np.sum(first**2) + np.sum(second**2) == pytest.approx(3.06, rel=ROUNDING)
    assert float(minimal_fibre_norm(second @ first, 2)) == pytest.approx(2.57122538879811, rel=1e-13)
    assert float(minimal_fibre_norm(np.ones((2, 3)), 2)) == pytest.approx(2 * math.sqrt(6), rel=ROUNDING)
    np.testing.assert_allclose(first @ first.T - second.T @ second, [[-1.11, -0.06], [-0.06, -0.37]], atol=1e-15)


@pytest.mark.covers("geometry:F13")
def test_a_single_layer_of_lower_rank_has_the_tangents_of_its_rank() -> None:
    x = np.diag([2.0, 1.0, 0.0])
    (moves,) = horizontal_basis((jnp.asarray(x),), rank=2)
    assert len(moves) == manifold_dimension(3, 1, 2) == 8
    flat = np.asarray(moves).reshape(8, 9)
    np.testing.assert_allclose(flat @ flat.T, np.eye(8), atol=ROUNDING)
    np.testing.assert_allclose(np.asarray(moves)[:, 2, 2], 0.0, atol=ROUNDING)


RANK, DEPTH = 2, 3


@pytest.mark.covers("geometry:F13", "geometry:S12")
def test_layers_of_lower_rank(seed: int) -> None:
    """Bases, lifts and projections where one singular value of three vanishes, against plain linear algebra."""
    rng = np.random.default_rng(seed)
    left, right = orthogonal(rng)[:, :RANK], orthogonal(rng)[:, :RANK]
    x = (left * [1.7, 0.6]) @ right.T
    layers = balanced_lift(x, DEPTH, [orthogonal(rng) for _ in range(DEPTH - 1)], rank=RANK)
    np.testing.assert_allclose(product(layers), x, atol=1e-13)
    for below, above in itertools.pairwise(layers):
        np.testing.assert_allclose(above.T @ above, below @ below.T, atol=1e-13)
    horizontal = horizontal_basis(layers, rank=RANK)
    moves = np.concatenate([np.asarray(part).reshape(len(part), -1) for part in horizontal], axis=1)
    turns = vertical_basis(layers, rank=RANK)
    vertical = np.concatenate([np.asarray(part).reshape(len(part), -1) for part in turns], axis=1)
    assert len(moves) == RANK * (2 * SIZE - RANK) and len(vertical) == (DEPTH - 1) * (SIZE * RANK - 3)
    np.testing.assert_allclose(moves @ moves.T, np.eye(len(moves)), atol=ROUNDING)
    np.testing.assert_allclose(moves @ vertical.T, 0.0, atol=ROUNDING)
    assert np.linalg.matrix_rank(np.concatenate([moves, vertical])) == manifold_dimension(SIZE, DEPTH, RANK) == 14
    # The product map is an isometry: images of the basis are orthonormal in the metric of pairs that do not vanish.
    images = derivative(layers, horizontal)
    u, s, vt = np.linalg.svd(x)
    s = np.where(np.arange(SIZE) < RANK, s, 0.0)
    table = sum(s[:, None] ** (2 * (DEPTH - k) / DEPTH) * s[None] ** (2 * (k - 1) / DEPTH) for k in range(1, DEPTH + 1))
    seen = np.einsum("ka,nkl,bl->nab", u, images, vt)
    assert np.max(np.abs(seen[:, RANK:, RANK:])) < ROUNDING
    table[RANK:, RANK:] = np.inf
    np.testing.assert_allclose(np.einsum("nab,mab->nm", seen / table, seen), np.eye(len(moves)), atol=1e-11)
    np.testing.assert_allclose(derivative(layers, turns), 0.0, atol=ROUNDING)
    # Lift and projection.
    z = images[1] + 0.3 * images[-1]
    lift = horizontal_lift(layers, z, rank=RANK)
    flat = np.concatenate([np.asarray(move).ravel() for move in lift])
    np.testing.assert_allclose(flat, moves[1] + 0.3 * moves[-1], atol=1e-11)
    turned = [move + part[0] for move, part in zip(lift, turns, strict=True)]
    assert float(horizontality_defect(layers, turned, rank=RANK)) == pytest.approx(
        np.linalg.norm(vertical[0]), rel=1e-10
    )
    for part, move in zip(horizontal_part(layers, turned, rank=RANK), lift, strict=True):
        np.testing.assert_allclose(part, move, atol=1e-11)
    # Refusals.
    with pytest.raises(HypothesisError, match="layers of full rank"):
        horizontal_basis(layers)
    with pytest.raises(HypothesisError, match="tangent of the matrices of this rank"):
        horizontal_lift(layers, np.outer(u[:, 2], vt[2]), rank=RANK)
    with pytest.raises(HypothesisError, match="a rank of 1"):
        vertical_basis(layers, rank=1)
    with pytest.raises(HypothesisError, match="a rank of 3"):
        vertical_basis(layers, rank=3)
    with pytest.raises(HypothesisError, match="a rank of 1"):
        balanced_lift(x, DEPTH, rank=1)


def derivative(layers: tuple, moves: tuple) -> np.ndarray:
    """Of the product along several tangents, by plain products."""
    total = np.zeros(())
    for k in range(len(layers)):
        below, above = product((np.eye(SIZE), *layers[:k])), product((np.eye(SIZE), *layers[k + 1 :]))
        total = total + np.einsum("ij,njk,kl->nil", above, np.asarray(moves[k]), below)
    return total


@pytest.mark.covers("geometry:F13", "geometry:S12", "geometry:F1")
@pytest.mark.parametrize("depth", [2, 5])
def test_the_product_map_is_an_isometry(depth: int, seed: int) -> None:
    """The basis has the constants that are told, and goes to the eigenvectors times the roots of the eigenvalues."""
    rng = np.random.default_rng(seed)
    strengths, frames = np.array([1.6, 1.0, 0.7]), [orthogonal(rng) for _ in range(depth + 1)]
    layers = balanced_layers(strengths, frames)
    basis = horizontal_basis(layers)
    image = derivative(layers, basis)
    powers = np.array([np.outer(strengths ** (depth - m), strengths ** (m - 1)) for m in range(1, depth + 1)])
    root = np.sqrt(np.sum(powers**2, axis=0))
    for n, (k, l) in enumerate(itertools.product(range(SIZE), repeat=2)):  # noqa: E741
        # Up to the sign of a pair of singular vectors.
        wanted = root[k, l] * np.outer(frames[-1][:, k], frames[0][:, l])
        sign = np.sign(np.sum(wanted * image[n]))
        np.testing.assert_allclose(image[n], sign * wanted, atol=1e-11)
        for m in range(depth):
            part = powers[m, k, l] / root[k, l] * np.outer(frames[m + 1][:, k], frames[m][:, l])
            np.testing.assert_allclose(basis[m][n], sign * part, atol=1e-11)


@pytest.mark.covers("geometry:F1", "geometry:F2", "geometry:F4", "geometry:S1", "geometry:S3")
def test_differential_gradients_and_velocity_of_any_layers(seed: int) -> None:
    """Adjointness, gradients against differences, and the velocity of the product of layers that are not balanced."""
    rng = np.random.default_rng(seed)
    model = DeepLinear((SIZE,) * 5)
    layers = tuple(jnp.asarray(rng.standard_normal((SIZE, SIZE))) for _ in range(4))
    moves = tuple(jnp.asarray(rng.standard_normal((SIZE, SIZE))) for _ in range(4))
    covector = rng.standard_normal((SIZE, SIZE))
    _, memo = model.forward(layers)
    moved, _ = model.pushforward(layers, memo, moves)
    np.testing.assert_allclose(
        moved, derivative(layers, tuple(move[None] for move in moves))[0], rtol=1e-11, atol=1e-11
    )
    back = model.pullback(layers, memo, jnp.asarray(covector))
    both = (
        float(np.sum(np.asarray(moved) * covector)),
        sum(float(jnp.sum(a * b)) for a, b in zip(moves, back, strict=True)),
    )
    size = np.linalg.norm(moved) * np.linalg.norm(covector)
    assert abs(both[0] - both[1]) <= 1e-12 * size
    # An energy of some entries.
    target, mask = rng.standard_normal((SIZE, SIZE)), np.eye(SIZE) + np.diag(np.ones(SIZE - 1), 1)
    problem = Problem(model, Completion(jnp.asarray(target), jnp.asarray(mask)))
    gradients = [np.asarray(g) for g in problem.gradient(layers)]

    def energy(step: float) -> float:
        x = product(tuple(w + step * v for w, v in zip(layers, moves, strict=True)))
        return 0.5 * float(np.sum(mask * (x - target) ** 2))

    h = 1e-3  # five points: the error is of order h⁴ in a polynomial of degree 8
    slope = (8 * (energy(h) - energy(-h)) - (energy(2 * h) - energy(-2 * h))) / (12 * h)
    found = sum(float(np.sum(g * np.asarray(v))) for g, v in zip(gradients, moves, strict=True))
    scale = math.sqrt(sum(np.sum(g**2) for g in gradients)) * math.sqrt(sum(float(jnp.sum(v**2)) for v in moves))
    assert abs(slope - found) <= 1e-7 * scale
    # The velocity of the product, summed over the layers.
    x = product(layers)
    pull = mask * (x - target)
    wanted = np.zeros((SIZE, SIZE))
    for k in range(4):
        below, above = product((np.eye(SIZE), *layers[:k])), product((np.eye(SIZE), *layers[k + 1 :]))
        wanted -= above @ above.T @ pull @ below.T @ below
    velocity = -sum(left @ pull @ right for left, right in model.kernel_factors(layers))
    pushed, _ = model.pushforward(layers, memo, tuple(-jnp.asarray(g) for g in gradients))
    np.testing.assert_allclose(velocity, wanted, atol=1e-12 * np.max(np.abs(wanted)))
    np.testing.assert_allclose(pushed, wanted, atol=1e-12 * np.max(np.abs(wanted)))


@pytest.mark.covers("geometry:F32", "geometry:S32")
@pytest.mark.parametrize("depth", [2, 4])
def test_the_volume_of_a_fibre_by_its_tangents(depth: int, seed: int) -> None:
    """Gram determinant: the product over pairs of (s_j² − s_k²)/(s_j^{2/L} − s_k^{2/L})."""
    x, layers = lifted(seed, depth)
    s = np.linalg.svd(x, compute_uv=False)
    wanted = sum(
        0.5 * math.log((a**2 - b**2) / (a ** (2 / depth) - b ** (2 / depth))) for a, b in itertools.combinations(s, 2)
    )
    gram = np.asarray(vertical_gram(layers))
    assert gram.shape == ((depth - 1) * 3,) * 2
    assert 0.5 * np.linalg.slogdet(gram)[1] == pytest.approx(wanted, abs=1e-10)


@pytest.mark.covers("geometry:F32", "geometry:S32")
def test_the_length_of_a_fibre_as_measured() -> None:
    """Two layers of width two: two closed curves, measured by chords."""
    layers = balanced_lift(np.array([[1.0, 0.2], [-0.3, 0.8]]), 2, [np.array([[0.6, -0.8], [0.8, 0.6]])])
    first, second = (np.asarray(layer) for layer in layers)
    angles = np.linspace(0, 2 * math.pi, 2001)
    turns = np.array([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]]).transpose(2, 0, 1)
    length = 0.0
    for mirror in (np.eye(2), np.diag([1.0, -1.0])):
        curve = np.concatenate([turns @ mirror @ first, second @ mirror @ turns.transpose(0, 2, 1)], axis=1)
        length += float(np.sum(np.linalg.norm(np.diff(curve, axis=0), axis=(1, 2))))
    s = np.linalg.svd(second @ first, compute_uv=False)
    assert length == pytest.approx(math.exp(float(log_fibre_volume(s, 2))), rel=1e-5)


@pytest.mark.covers("geometry:F47")
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
    with pytest.raises(ValueError, match="depth must be a positive integer, but is inf"):
        unchecked(minimal_fibre_norm)(np.eye(2), math.inf)
    with pytest.raises(ValueError, match="rank must be at most 2"):
        manifold_dimension(2, 3, 3)
    with pytest.raises(ValueError, match="vector must have shape"):
        horizontal_lift(balanced_lift(np.eye(2), 2), np.eye(3))
    with pytest.raises(ValueError, match="must be finite"):
        horizontal_part(balanced_lift(np.eye(2), 2), [np.full((2, 2), np.nan)] * 2)
    with pytest.raises(ValueError, match="params must hold at least one layer"):
        vertical_gram([])
