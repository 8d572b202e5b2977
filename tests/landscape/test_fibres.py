"""Networks with the same product: moves, comparisons and dimensions."""

import itertools

import jax
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.landscape import (
    balanced_representative,
    fibre_move,
    fibre_tangent,
    fill_residual,
    minima_dimension,
    orbit_dimension,
    product_jacobian,
    random_fill,
    same_product,
)
from plain import hessian_of

SAME = 1e-8
"""Relative, of equal products."""

ROUNDING = 1e-11
"""Products of some matrices of order one."""

NULL = 1e-9
"""Eigenvalues of a Hessian below this share of the largest count as zero."""


def layers_of(rng: np.random.Generator, widths: tuple[int, ...], rank: int | None = None) -> tuple[np.ndarray, ...]:
    """Gaussian layers, each of a given rank."""
    return tuple(
        rng.standard_normal((out, inp))
        if rank is None
        else rng.standard_normal((out, min(rank, out, inp))) @ rng.standard_normal((min(rank, out, inp), inp))
        for inp, out in itertools.pairwise(widths)
    )


def factors_of(rng: np.random.Generator, widths: tuple[int, ...], condition: float) -> list[np.ndarray]:
    """Changes of basis of the hidden layers with a given condition number."""
    factors = []
    for width in widths[1:-1]:
        left, right = (np.linalg.qr(rng.standard_normal((width, width)))[0] for _ in range(2))
        factors.append(left * np.geomspace(condition**-0.5, condition**0.5, width) @ right)
    return factors


def product_of(layers: tuple) -> np.ndarray:
    result = np.asarray(layers[0])
    for layer in layers[1:]:
        result = np.asarray(layer) @ result
    return result


def minimum_of(rng: np.random.Generator, widths: tuple[int, ...], product: np.ndarray) -> tuple[np.ndarray, ...]:
    """A general network with a given product of full rank: all layers but the first are drawn."""
    later = layers_of(rng, widths[1:])
    onto = product_of(later)
    inverse = np.linalg.pinv(onto)
    kernel = np.eye(widths[1]) - inverse @ onto
    return (inverse @ product + kernel @ rng.standard_normal((widths[1], widths[0])), *later)


@pytest.mark.covers("network:F23", "network:C20")
@pytest.mark.parametrize("widths", [(4, 3, 5, 2), (4, 4, 4, 3)], ids=str)
def test_moves_within_the_fibre_keep_the_product(widths: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = layers_of(rng, widths, rank=1)
    key = jax.random.key(seed)
    for empty in range(1, len(widths)):
        fill = random_fill(key, layers, scale=3.0, empty=empty)
        assert [bool(np.any(z)) for z in fill] == [number != empty for number in range(1, len(widths))]
        for number in range(1, len(layers)):
            assert np.linalg.norm(layers[number] @ np.asarray(fill[number - 1])) < ROUNDING
            assert np.linalg.norm(np.asarray(fill[number]) @ layers[number - 1]) < ROUNDING
        moved = fibre_move(layers, fill, factors_of(rng, widths, 10.0))
        before, after = product_of(layers), product_of(moved)
        assert np.linalg.norm(after - before) < SAME * np.linalg.norm(before)
        found = same_product(layers, moved)
        assert found and found.difference == pytest.approx(
            np.linalg.norm(after - before) / np.linalg.norm(before), abs=1e-12
        )
    assert [tuple(layer.shape) for layer in fibre_move(layers)] == [layer.shape for layer in layers]


def test_every_layer_may_be_the_empty_one() -> None:
    """Of layers of zeros any two may be filled: which one stays empty is drawn from all three."""
    zeros = (np.zeros((1, 1)),) * 3
    drawn = [[bool(np.any(z)) for z in random_fill(key, zeros)] for key in jax.random.split(jax.random.key(0), 24)]
    assert all(sum(filled) == 2 for filled in drawn)
    assert {filled.index(False) for filled in drawn} == {0, 1, 2}


@pytest.mark.covers("network:F23")
def test_other_products_are_told_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = layers_of(rng, (4, 3, 2))
    other = (layers[0], layers[1] * (1 + 1e-6))
    found = same_product(layers, other)
    assert not found and found.difference == pytest.approx(1e-6, rel=1e-3)
    assert same_product(layers, other, tolerance=1e-5)
    assert same_product(layers, (product_of(layers),))
    # Zero and what rounding leaves of a zero product are the same; layers of order one with a small product are not.
    one, two = np.linalg.qr(rng.standard_normal((3, 2)))[0].T, np.linalg.qr(rng.standard_normal((3, 3)))[0]
    zero = (two[:, :1] @ one[:1], one[1:] - one[1:] @ two[:, :1] @ two[:, :1].T)
    assert same_product(zero, (np.zeros((1, 3)),))
    assert not same_product(([[1e-9]], [[1.0]]), ([[0.0]],))
    assert same_product(([[0.0]],), ([[0.0]],)).difference == 0
    with pytest.raises(ValueError, match="second must have a product of shape"):
        same_product(layers, (np.eye(2),))


def test_fills_that_are_seen_are_refused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = layers_of(rng, (4, 3, 5, 2), rank=1)
    with pytest.raises(HypothesisError, match="do not see its fill"):
        fibre_move(layers, layers_of(rng, (4, 3, 5, 2)))
    # Allowed one by one, but their product does not vanish: nothing is empty in a network of zeros.
    zeros = tuple(np.zeros_like(layer) for layer in layers)
    loud = layers_of(rng, (4, 3, 5, 2))
    assert fill_residual(zeros, loud) > 1e-3
    with pytest.raises(HypothesisError, match="the product of the fills vanishes"):
        fibre_move(zeros, loud)
    assert fill_residual(zeros, (loud[0], zeros[1], loud[2])) == 0
    with pytest.raises(ValueError, match="fills must have the shapes"):
        fibre_move(layers, layers[:2])
    with pytest.raises(ValueError, match="empty must be at most 3"):
        random_fill(jax.random.key(0), layers, empty=4)
    # Full-rank square layers leave no room.
    assert not any(np.any(z) for z in random_fill(jax.random.key(0), (np.eye(2), np.eye(2)), empty=1))


DIMENSIONS = {
    (1, 2, 1): (3, 4),
    (1, 3, 1): (5, 9),
    (3, 5, 2): (19, 25),
    (2, 6, 6, 2): (56, 72),
    (3, 2, 2): (4, 4),
    (4, 3, 3, 2): (19, 18),
}
"""Dimension of the minima, and the sum of the squares of the hidden widths."""


@pytest.mark.covers("network:F22", "network:E5")
@pytest.mark.parametrize("widths", DIMENSIONS, ids=str)
def test_dimension_of_the_minima_is_the_nullity_of_the_hessian(widths: tuple[int, ...], seed: int) -> None:
    """Hessian and Jacobian at a general minimum, both by complex steps."""
    rng = np.random.default_rng(seed)
    sigma = 1.0 + np.arange(min(widths[0], widths[-1]))[::-1]
    target = np.zeros((widths[-1], widths[0]))
    np.fill_diagonal(target, sigma)
    layers = minimum_of(rng, widths, target)
    size = sum(layer.size for layer in layers)
    dimension, squares = DIMENSIONS[widths]
    assert minima_dimension(widths) == size - widths[0] * widths[-1] == dimension
    values = np.linalg.eigvalsh(hessian_of(layers, target))
    assert int(np.sum(np.abs(values) < NULL * values[-1])) == dimension
    jacobian = np.empty((target.size, size))
    column = 0
    for position, layer in enumerate(layers):
        for entry in np.ndindex(layer.shape):
            moved = [other.astype(complex) for other in layers]
            moved[position][entry] += 1e-30j
            jacobian[:, column] = product_of(tuple(moved)).imag.ravel() / 1e-30
            column += 1
    np.testing.assert_allclose(product_jacobian(layers), jacobian, atol=ROUNDING * np.abs(jacobian).max())
    tangent = np.asarray(fibre_tangent(layers))
    assert tangent.shape == (size, dimension)
    np.testing.assert_allclose(tangent.T @ tangent, np.eye(dimension), atol=ROUNDING)
    assert np.abs(jacobian @ tangent).max() < 1e-9 * np.abs(jacobian).max()
    # The change of basis moves along the fibre, in as many dimensions as it has unless something is fixed by it.
    assert orbit_dimension(layers) <= min(dimension, squares)
    if squares <= dimension:
        assert orbit_dimension(layers) == squares


@pytest.mark.covers("network:F22")
def test_dimension_with_a_bottleneck_and_at_degenerate_points(seed: int) -> None:
    """Truncated singular value decomposition of a 3 × 4 target, through two units; and the origin."""
    widths, sigma = (4, 2, 3), np.array([3.0, 2.0, 1.0])
    target = np.zeros((3, 4))
    np.fill_diagonal(target, sigma)
    best = (np.eye(2, 4) * np.array([[3.0], [2.0]]), np.eye(3, 2))
    moved = fibre_move(best, factors=factors_of(np.random.default_rng(seed), widths, 4.0))
    values = np.linalg.eigvalsh(hessian_of(moved, target))
    assert values[0] > -NULL * values[-1]
    assert int(np.sum(np.abs(values) < NULL * values[-1])) == minima_dimension(widths) == 14 - 2 * (4 + 3 - 2) == 4
    assert orbit_dimension(moved) == 4
    zeros = tuple(np.zeros(shape) for shape in ((2, 4), (3, 2)))
    assert orbit_dimension(zeros) == 0 and fibre_tangent(zeros).shape == (14, 14)
    assert orbit_dimension((np.ones((2, 3)),)) == 0
    # Layers of any size: what counts is what they are beside each other.
    tiny = layers_of(np.random.default_rng(seed), (3, 2, 2))
    assert orbit_dimension([1e-6 * layer for layer in tiny]) == 4
    assert fibre_tangent([1e-6 * layer for layer in tiny]).shape == (10, 4)


@pytest.mark.parametrize("widths", [(4, 3, 5, 2), (3, 2, 4), (2, 3)], ids=str)
def test_balanced_representative_has_least_norm(widths: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = layers_of(rng, widths)
    depth = len(layers)
    best = [np.asarray(layer) for layer in balanced_representative(layers)]
    assert [layer.shape for layer in best] == [layer.shape for layer in layers]
    np.testing.assert_allclose(product_of(tuple(best)), product_of(layers), atol=ROUNDING)
    strengths = np.linalg.svd(product_of(layers), compute_uv=False)[: min(widths)]
    least = depth * np.sum(strengths ** (2 / depth))
    np.testing.assert_allclose(sum(np.sum(layer**2) for layer in best), least, rtol=1e-10)
    for below, above in itertools.pairwise(best):
        np.testing.assert_allclose(above.T @ above, below @ below.T, atol=ROUNDING)
    # No other is smaller: moves within the fibre make it longer.
    for _ in range(3):
        moved = fibre_move(best, factors=factors_of(rng, widths, 1.5))
        assert sum(np.sum(np.asarray(layer) ** 2) for layer in moved) >= least - ROUNDING


def test_an_answer_on_products_is_a_sentence() -> None:
    assert str(same_product(([[2.0]], [[3.0]]), ([[6.0]],))).startswith("the same product: they differ by 0.0e+00")
    assert str(same_product(([[2.0]],), ([[1.0]],))).startswith("different products: they differ by 5.0e-01")
