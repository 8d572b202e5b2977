"""Eigenvalues of symmetric matrices; NaN, and no words about it, for matrices with entries that are not finite."""

from jaxtyping import Float, Inexact

from deeplinear.core import Array, xp

Batch = Inexact[Array, "*batch size size"]
"""Symmetric matrices, or complex Hermitian ones."""


def eigenvalues(matrix: Batch) -> Float[Array, "*batch size"]:
    """Eigenvalues of a symmetric matrix, smallest first."""
    finite = xp.all(xp.isfinite(matrix), axis=(-2, -1), keepdims=True)
    values = xp.linalg.eigvalsh(xp.where(finite, matrix, 0.0))
    return xp.where(finite[..., 0], values, xp.nan)


def eigenpairs(matrix: Batch) -> tuple[Float[Array, "*batch size"], Batch]:
    """The same with the eigenvectors, in columns."""
    finite = xp.all(xp.isfinite(matrix), axis=(-2, -1), keepdims=True)
    values, vectors = xp.linalg.eigh(xp.where(finite, matrix, 0.0))
    return xp.where(finite[..., 0], values, xp.nan), xp.where(finite, vectors, xp.nan)
