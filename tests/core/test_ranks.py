"""Ranks of matrices against values worked out by hand and plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checking import unchecked
from deeplinear.core import (
    effective_rank,
    nuclear_norm,
    numerical_rank,
    spectrum_effective_rank,
    spectrum_stable_rank,
    stable_rank,
)

ROUNDING = 1e-12  # a few operations on numbers of order one
SOFT = (effective_rank, stable_rank)


def rotated(spectrum: list[float], seed: int, rows: int = 4, columns: int = 5) -> np.ndarray:
    """Matrix with the given singular values and random singular vectors."""
    rng = np.random.default_rng(seed)
    u, _ = np.linalg.qr(rng.normal(size=(rows, rows)))
    v, _ = np.linalg.qr(rng.normal(size=(columns, columns)))
    return u[:, : len(spectrum)] @ np.diag(spectrum) @ v[:, : len(spectrum)].T


@pytest.mark.covers("completion:F1")
def test_reference_spectrum(seed: int) -> None:
    matrix = rotated([3.0, 1.0, 1.0, 0.0], seed)
    entropy = -(0.6 * np.log(0.6) + 0.4 * np.log(0.2))
    assert float(stable_rank(matrix)) == pytest.approx(11 / 9, abs=ROUNDING)
    assert float(effective_rank(matrix)) == pytest.approx(np.exp(entropy), abs=ROUNDING)
    assert float(nuclear_norm(matrix)) == pytest.approx(5.0, abs=ROUNDING)
    assert int(numerical_rank(matrix)) == 3


def test_two_soft_ranks_differ_in_their_sensitivity() -> None:
    spectrum = jnp.array([1.0, 0.01])
    assert float(spectrum_stable_rank(spectrum)) == pytest.approx(1.0001, abs=ROUNDING)
    assert float(spectrum_effective_rank(spectrum)) == pytest.approx(1.057, abs=5e-4)  # three digits are quoted


@pytest.mark.covers("completion:F1")
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_bounds_and_invariance(rank: int, seed: int) -> None:
    spectrum = np.random.default_rng(seed).uniform(0.1, 1.0, size=rank).tolist()
    matrix, other = rotated(spectrum, seed), -7.0 * rotated(spectrum, seed + 100)
    assert int(numerical_rank(matrix)) == rank
    for function in SOFT:
        value = float(function(matrix))
        assert 1 - ROUNDING <= value <= rank + ROUNDING
        assert float(function(other)) == pytest.approx(value, abs=ROUNDING)


def test_stack_is_a_loop(seed: int) -> None:
    stack = np.random.default_rng(seed).normal(size=(2, 3, 4, 5))
    for function in (*SOFT, nuclear_norm, numerical_rank):
        loop = [[function(matrix) for matrix in row] for row in stack]
        np.testing.assert_allclose(function(stack), loop, rtol=ROUNDING)
        np.testing.assert_allclose(jax.jit(jax.vmap(function))(jnp.asarray(stack)), loop, rtol=ROUNDING)


@pytest.mark.parametrize("scale", [1e-160, 1e160])
def test_no_overflow(scale: float) -> None:
    """Squares of the entries leave the range of floating-point numbers; their ratios do not."""
    matrix = scale * jnp.diag(jnp.array([2.0, 1.0]))
    assert float(stable_rank(matrix)) == pytest.approx(1.25, rel=ROUNDING)
    shares = np.array([2 / 3, 1 / 3])
    assert float(effective_rank(matrix)) == pytest.approx(np.exp(-shares @ np.log(shares)), rel=ROUNDING)


def test_threshold_of_numerical_rank() -> None:
    matrix = jnp.diag(jnp.array([1.0, 1e-3, 1e-9]))
    assert [int(numerical_rank(matrix, rtol)) for rtol in (1e-12, 1e-6, 1e-2)] == [3, 2, 1]
    assert int(numerical_rank(jnp.zeros((2, 3)))) == 0


@pytest.mark.covers("completion:F1")
@pytest.mark.parametrize("function", SOFT)
def test_zero_matrix_is_refused_where_seen_and_has_rank_zero_elsewhere(function) -> None:
    with pytest.raises(ValueError, match=rf"{function.__name__}: matrix must not be zero"):
        function(jnp.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"member \(1,\)"):
        function(jnp.stack([jnp.eye(2), jnp.zeros((2, 2))]))
    assert jax.jit(jax.vmap(function))(jnp.stack([jnp.zeros((2, 2)), jnp.eye(2)])).round(12).tolist() == [0.0, 2.0]


@pytest.mark.parametrize("function", [spectrum_stable_rank, spectrum_effective_rank])
def test_bad_spectra_are_refused(function) -> None:
    with pytest.raises(ValueError, match="must be non-negative, but reaches -1"):
        function(jnp.array([1.0, -1.0]))
    with pytest.raises(ValueError, match="must not be zero"):
        function(jnp.zeros(3))
    with pytest.raises(ValueError, match="at least one singular value"):
        function(jnp.zeros(0))


def test_bad_matrices_are_refused() -> None:
    for function in (*SOFT, nuclear_norm, numerical_rank):
        with pytest.raises(ValueError, match=r"matrix must be finite, but entry \(0, 1\) is nan"):
            function(jnp.array([[1.0, jnp.nan]]))
        with pytest.raises(ValueError, match="at least one row"):
            function(jnp.zeros((0, 2)))
    with pytest.raises(ValueError, match="rtol must be greater than 0"):
        numerical_rank(jnp.eye(2), 0.0)


@pytest.mark.parametrize("function", [*SOFT, nuclear_norm, numerical_rank])
def test_what_is_no_real_matrix_is_refused(function) -> None:
    with pytest.raises(TypeError, match=rf"{function.__name__}: matrix must hold real numbers, but holds complex128"):
        unchecked(function)(1j * jnp.eye(2))
    with pytest.raises(TypeError, match="matrix must be an array, but is a list"):
        unchecked(function)([[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match=r"matrix must have at least 2 dimensions, but has shape \(3,\)"):
        unchecked(function)(jnp.ones(3))


def test_non_finite_entries_never_look_like_a_rank() -> None:
    """Under a transformation they cannot be refused: soft ranks become NaN, the count becomes -1."""
    bad = jnp.array([[1.0, jnp.nan], [0.0, 1.0]])
    for function in SOFT:
        assert np.isnan(jax.jit(function)(bad))
    assert int(jax.jit(numerical_rank)(bad)) == -1
