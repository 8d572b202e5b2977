"""Block matrices against Kronecker products and dense linear algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.exact import BlockMatrix, alpha_m_eigenvalues
from deeplinear.models import AlphaM, DeepLinear

ROUNDING = 1e-12  # products of entries of order one, at most 12 terms in a sum

SHAPES = [(2, 1), (3, 1), (2, 2), (3, 2), (4, 3)]


def dense(a: float, b: float, c: float, n: int, s: int) -> np.ndarray:
    """The definition with Kronecker products."""
    ones = np.ones((s, s))
    return np.kron(np.eye(n), (a - b) * np.eye(s) + b * ones) + np.kron(np.ones((n, n)) - np.eye(n), c * ones)


@pytest.mark.covers("completion:F11", "completion:C8")
@pytest.mark.parametrize(("n", "s"), SHAPES)
def test_block_matrices_are_an_algebra(n: int, s: int, seed: int) -> None:
    entries = np.random.default_rng(seed).normal(size=(2, 3))
    left, right = (BlockMatrix(*row, blocks=n, size=s) for row in entries)
    x, y = (dense(*row, n, s) for row in entries)
    np.testing.assert_allclose(left.dense(), x, atol=ROUNDING)
    np.testing.assert_allclose((left @ right).dense(), x @ y, atol=ROUNDING)
    np.testing.assert_allclose((right @ left).dense(), x @ y, atol=ROUNDING)
    np.testing.assert_allclose((2 * left - right * 3.0 + left).dense(), 3 * x - 3 * y, atol=ROUNDING)


@pytest.mark.covers("completion:F11", "completion:C8")
@pytest.mark.parametrize(("n", "s"), SHAPES)
def test_eigenvalues_and_their_inverse(n: int, s: int, seed: int) -> None:
    entries = np.random.default_rng(seed).normal(size=3)
    matrix = BlockMatrix(*entries, blocks=n, size=s)
    expected = np.concatenate([[v] * k for v, k in zip(matrix.eigenvalues, matrix.multiplicities, strict=True)])
    np.testing.assert_allclose(np.sort(expected), np.linalg.eigvalsh(dense(*entries, n, s)), atol=ROUNDING)
    assert sum(matrix.multiplicities) == n * s
    back = BlockMatrix.from_eigenvalues(*matrix.eigenvalues, blocks=n, size=s)
    np.testing.assert_allclose(back.dense(), matrix.dense(), atol=ROUNDING)


def test_batches_and_transformations() -> None:
    a = jnp.arange(6.0).reshape(2, 3)
    batch = BlockMatrix(a, 0.5, jnp.ones(3), blocks=3, size=2)
    assert batch.dense().shape == (2, 3, 6, 6)
    square = jax.jit(lambda x: (x @ x).dense())(batch)
    np.testing.assert_allclose(square, batch.dense() @ batch.dense(), rtol=ROUNDING)
    rows = jax.vmap(lambda x: x.eigenvalues[0])(batch)
    np.testing.assert_allclose(rows, batch.eigenvalues[0])


@pytest.mark.covers("completion:F11", "completion:F7")
@pytest.mark.parametrize("m", [1.0, 1.5, 10.0, 1e10, np.inf])
def test_the_alpha_m_family(m: float) -> None:
    n, s, alpha = 3, 2, 0.3
    layer = AlphaM(alpha, m)(DeepLinear((6, 6)), jax.random.key(0))[0]
    matrix = BlockMatrix.alpha_m(alpha, m, blocks=n, size=s)
    np.testing.assert_array_equal(matrix.dense(), layer)
    first, second = alpha_m_eigenvalues(alpha, m, width=n * s)
    np.testing.assert_allclose(np.linalg.eigvalsh(layer), [second] * 5 + [first], atol=ROUNDING)
    np.testing.assert_allclose(matrix.eigenvalues, [first, second, second], atol=ROUNDING)


def test_no_digit_is_lost_near_m_equal_to_one() -> None:
    m = 1 + 2.0**-50
    np.testing.assert_allclose(alpha_m_eigenvalues(0.3, m, width=6)[1], 0.3 * 2.0**-50 / m, rtol=1e-15)


@pytest.mark.covers("completion:F39")
def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"BlockMatrix: blocks must be at least 2, but is 1\."):
        BlockMatrix(1.0, 0.0, 0.0, blocks=1)
    with pytest.raises(ValueError, match="size must be at least 1"):
        BlockMatrix(1.0, 0.0, 0.0, blocks=2, size=0)
    with pytest.raises(ValueError, match=r"b must be a number, but entry \(1,\) is nan"):
        BlockMatrix(1.0, np.array([0.0, np.nan]), 0.0, blocks=2)
    with pytest.raises(TypeError, match="a must hold real numbers"):
        BlockMatrix(np.array([True]), 0.0, 0.0, blocks=2)
    with pytest.raises(ValueError, match="both terms of a product must have the same blocks and size"):
        _ = BlockMatrix(1.0, 0.0, 0.0, blocks=2) @ BlockMatrix(1.0, 0.0, 0.0, blocks=3)
    with pytest.raises(ValueError, match="alpha must be greater than 0"):
        BlockMatrix.alpha_m(0.0, 2.0, blocks=2)
    with pytest.raises(ValueError, match=r"m must be at least 1, but is 0\.5"):
        alpha_m_eigenvalues(1.0, 0.5, width=4)
    with pytest.raises(ValueError, match=r"BlockMatrix: a, b, c must have shapes that broadcast .* b \(3,\)"):
        BlockMatrix(np.ones(2), np.ones(3), 0.0, blocks=2)
    with pytest.raises(ValueError, match="alpha, m must have shapes that broadcast"):
        alpha_m_eigenvalues(np.ones(2), np.full(3, 2.0), width=3)
    with pytest.raises(ValueError, match="blocks times size must be at most"):
        BlockMatrix(1.0, 0.0, 0.0, blocks=2**40, size=2**30)
