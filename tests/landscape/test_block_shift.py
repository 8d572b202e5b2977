"""Block-shift matrices against plain dense NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.landscape import BlockShift, adjacency, embedded, from_dense

WIDTHS = (3, 2, 3, 3, 2)
"""Few widths, so that few shapes are compiled."""
ROUNDING = 1e-12


def layers_of(seed: int, widths: tuple[int, ...] = WIDTHS) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((out, inp)) for inp, out in itertools.pairwise(widths))


def dense_of(blocks: tuple[np.ndarray, ...], shift: int, widths: tuple[int, ...] = WIDTHS) -> np.ndarray:
    """The definition, written out: block (m + k, m) is the m-th, negative shifts are transposes."""
    if shift < 0:
        return dense_of(tuple(b.T for b in blocks), -shift, widths).T
    edges = np.concatenate([[0], np.cumsum(widths)])
    result = np.zeros((edges[-1], edges[-1]))
    for m, block in enumerate(blocks):
        result[edges[m + shift] : edges[m + shift + 1], edges[m] : edges[m + 1]] = block
    return result


def some(seed: int, shift: int) -> tuple[BlockShift, np.ndarray]:
    """A random matrix of a shift, and the same written out."""
    rng = np.random.default_rng([seed, abs(shift)])
    k, depth = abs(shift), len(WIDTHS) - 1
    blocks = tuple(rng.standard_normal((WIDTHS[m + k], WIDTHS[m])) for m in range(depth + 1 - k))
    if shift < 0:
        blocks = tuple(b.T for b in blocks)
    return BlockShift(tuple(map(jnp.asarray, blocks)), WIDTHS, shift), dense_of(blocks, shift)


def partial(layers: tuple[np.ndarray, ...], last: int, first: int) -> np.ndarray:
    result = np.eye(layers[first - 1].shape[1] if first <= len(layers) else layers[-1].shape[0])
    for layer in layers[first - 1 : last]:
        result = layer @ result
    return result


@pytest.mark.covers("network:C1", "network:F1")
def test_powers_and_insertions_hold_partial_products(seed: int) -> None:
    layers, inserted = layers_of(seed), layers_of(seed + 100)
    a, v = adjacency(tuple(map(jnp.asarray, layers))), adjacency(tuple(map(jnp.asarray, inserted)))
    depth = len(layers)
    for k in range(depth + 1):
        power = a.power(k)
        assert power.shift == k
        np.testing.assert_allclose(power.dense(), np.linalg.matrix_power(dense_of(layers, 1), k), atol=ROUNDING)
        for m, block in enumerate(power.blocks, start=1):
            np.testing.assert_allclose(block, partial(layers, m + k - 1, m), atol=ROUNDING)
    np.testing.assert_allclose(a.power(depth).blocks[0], np.linalg.multi_dot(layers[::-1]), atol=ROUNDING)
    gone = a.power(depth + 1)
    assert gone.blocks == () and not np.any(gone.dense()) and "zero" in repr(gone)
    for j in range(1, depth + 1):
        once = a.power(depth - j) @ v @ a.power(j - 1)
        wanted = partial(layers, depth, j + 1) @ inserted[j - 1] @ partial(layers, j - 1, 1)
        np.testing.assert_allclose(once.blocks[0], wanted, atol=ROUNDING)
        for k in range(1, depth - j + 1):
            twice = a.power(depth - j - k) @ v @ a.power(j - 1) @ v @ a.power(k - 1)
            wanted = partial(layers, depth, j + k + 1) @ inserted[j + k - 1] @ partial(layers, j + k - 1, k + 1)
            wanted = wanted @ inserted[k - 1] @ partial(layers, k - 1, 1)
            np.testing.assert_allclose(twice.blocks[0], wanted, atol=ROUNDING)


@pytest.mark.parametrize("shift", [-1, 0, 3])
@pytest.mark.covers("network:F1")
def test_algebra_is_that_of_dense_matrices(shift: int, seed: int) -> None:
    left, dense_left = some(seed, shift)
    np.testing.assert_array_equal(left.dense(), dense_left)
    np.testing.assert_array_equal(left.T.dense(), dense_left.T)
    for other in (-4, -1, 1):
        right, dense_right = some(seed + 50, other)
        np.testing.assert_allclose((left @ right).dense(), dense_left @ dense_right, atol=ROUNDING)
        commutator = dense_left @ dense_right - dense_right @ dense_left
        np.testing.assert_allclose(left.commutator(right).dense(), commutator, atol=ROUNDING)
        np.testing.assert_allclose(left.inner(right), np.sum(dense_left * dense_right), atol=ROUNDING)
    again, dense_again = some(seed + 70, shift)
    np.testing.assert_allclose(
        (left - 2.0 * again + again * 0.5).dense(), dense_left - 1.5 * dense_again, atol=ROUNDING
    )
    np.testing.assert_allclose(left.norm, np.linalg.norm(dense_left), rtol=ROUNDING)
    vector = np.random.default_rng(seed).standard_normal((sum(WIDTHS), 2))
    np.testing.assert_allclose(left @ vector, dense_left @ vector, atol=ROUNDING)
    np.testing.assert_allclose(left @ vector[:, 0], dense_left @ vector[:, 0], atol=ROUNDING)
    depth = len(WIDTHS) - 1
    for row, column in ((0, 0), (depth, 0), (2, 3), (3, 2)):
        edges = np.concatenate([[0], np.cumsum(WIDTHS)])
        part = dense_left[edges[row] : edges[row + 1], edges[column] : edges[column + 1]]
        np.testing.assert_array_equal(left.block(row, column), part)
    np.testing.assert_array_equal(from_dense(dense_left, WIDTHS, shift).dense(), dense_left)


def test_one_that_has_no_room_is_zero_and_adds_to_any() -> None:
    a = adjacency(tuple(map(jnp.asarray, layers_of(0))))
    gone = a.power(5)
    assert float(gone.norm) == 0.0 and float(gone.inner(gone)) == 0.0
    for total in (a + gone, gone + a, a - gone):
        np.testing.assert_array_equal(total.dense(), a.dense())
    assert (gone @ a.T).shift == 4 and not np.any((gone @ a.T).dense())


def test_it_is_transformed_as_any_function_is(seed: int) -> None:
    layers = tuple(map(jnp.asarray, layers_of(seed)))
    target = jnp.ones((WIDTHS[-1], WIDTHS[0]))

    def loss(params):
        gap = embedded(target, WIDTHS) - adjacency(params).power(4)
        return 0.5 * gap.inner(gap)

    product = np.linalg.multi_dot([np.asarray(layer) for layer in layers[::-1]])
    last = -(1 - product) @ np.linalg.multi_dot([np.asarray(layer) for layer in layers[-2::-1]]).T
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(layers)[-1], last, rtol=1e-10, atol=ROUNDING)
    both = jax.vmap(loss)(tuple(jnp.stack([layer, 0 * layer]) for layer in layers))
    np.testing.assert_allclose(both, [0.5 * np.sum((1 - product) ** 2), 0.5 * target.size], rtol=ROUNDING)


@pytest.mark.covers("network:F1")
def test_what_does_not_fit_is_refused() -> None:
    ones = jnp.ones
    with pytest.raises(ValueError, match=r"params\[1\] must have shape \(any, 2\), but has shape \(2, 3\)"):
        adjacency((ones((2, 3)), ones((2, 3))))
    with pytest.raises(ValueError, match="finite"):
        adjacency((jnp.array([[jnp.nan]]),))
    with pytest.raises(ValueError, match="at least one layer"):
        adjacency(())
    with pytest.raises(ValueError, match=r"blocks must hold 1 matrices for shift 2"):
        BlockShift((ones((2, 3)), ones((2, 2))), (3, 2, 2), 2)
    with pytest.raises(ValueError, match=r"blocks\[0\] must have shape \(2, 3\)"):
        BlockShift((ones((3, 2)), ones((2, 2))), (3, 2, 2), 1)
    a = adjacency((ones((2, 3)), ones((2, 2))))
    with pytest.raises(ValueError, match="shifts are 1 and 2"):
        _ = a + a.power(2)
    with pytest.raises(ValueError, match="matrices of one network"):
        _ = a @ adjacency((ones((2, 2)), ones((2, 2))))
    with pytest.raises(ValueError, match="one per node"):
        _ = a @ jnp.ones(3)
    with pytest.raises(TypeError, match="takes a number"):
        _ = a * jnp.ones(3)
    with pytest.raises(TypeError, match="/ takes a number"):
        _ = a / a
    np.testing.assert_array_equal((a**2 / 4.0).dense(), np.linalg.matrix_power(np.asarray(a.dense()), 2) / 4)
    with pytest.raises(TypeError, match="another BlockShift"):
        _ = a + 1.0
    with pytest.raises(ValueError, match="only a matrix with shift 1 holds layers"):
        _ = a.T.layers
    with pytest.raises(ValueError, match=r"target must have shape \(2, 3\)"):
        embedded(ones((3, 2)), (3, 2, 2))
    with pytest.raises(ValueError, match="exponent must be at least 0"):
        a.power(-1)
    dense = np.asarray(a.dense()).copy()
    dense[0, 0] = 0.25
    with pytest.raises(HypothesisError, match=r"measured residual 2\.500e-01"):
        from_dense(dense, (3, 2, 2))
    with pytest.raises(ValueError, match="shift must be at most 2"):
        from_dense(dense, (3, 2, 2), 3)
