r"""Closed forms for stacked pairs of matrices: Bures–Wasserstein distances, and which pairs to look at. Unchecked."""

import numpy as np

from deeplinear.geometry._curvature import decomposed
from deeplinear.geometry._explicit import SAME
from deeplinear.geometry._metric import LARGEST_CONDITION
from deeplinear.geometry._paths import symmetric

SYMMETRIC = 1e-14
"""Largest asymmetry, relative to the largest entry, of matrices that are taken for symmetric."""

LIKELY = 1e-7
"""A matrix that is normal up to this is looked at one by one."""


def definite_lengths(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    r"""Bures–Wasserstein distances of stacked matrices, if all are positive definite.

    With $A = CC^\top$ the eigenvalues $\mu$ of $C^\top BC$ are those of $A^{1/2}BA^{1/2}$, and the squared distance is
    $\mathrm{tr}\,A + \mathrm{tr}\,B - 2\sum\sqrt\mu$; where that loses digits, the roots themselves are compared.

    Returns:
        Distances, which pairs commute, and the largest asymmetry of each; `None` if not all are positive definite.
    """
    uneven, largest = ([_most(part) for part in parts] for parts in ([_skew(a), _skew(b)], [a, b]))
    if any(np.any(part > SYMMETRIC * most) for part, most in zip(uneven, largest, strict=True)):
        return None
    size = a.shape[-1]
    try:
        factor = np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return None
    values = _eigenvalues(np.swapaxes(factor, 1, 2) @ b @ factor)
    traces = [np.trace(part, axis1=1, axis2=2) for part in (a, b)]
    # The smallest eigenvalue of A is at least its determinant over the mean of the others to their number.
    least = np.prod(np.diagonal(factor, axis1=1, axis2=2), axis=1) ** 2 / (traces[0] / max(size - 1, 1)) ** (size - 1)
    condition = traces[0] / least * np.maximum(1.0, values[:, -1] / values[:, 0])
    if not np.all((values[:, 0] > 0) & (condition < LARGEST_CONDITION)):
        return None
    squared = traces[0] + traces[1] - 2 * np.sqrt(values).sum(axis=1)
    lengths = np.sqrt(np.maximum(squared, 0.0))
    delicate = (squared < 1e-4 * (traces[0] + traces[1])) | (values[:, 0] < 1e-6 * values[:, -1])
    if delicate.any():
        lengths[delicate] = nearest_root(*(_root(part[delicate]) for part in (a, b)))
    product = a @ b
    common = _most(_skew(product)) <= SAME * _most(product)
    return lengths, common, np.maximum(*uneven)


def nearest_root(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Distance of one root from the nearest of all roots $BR$ of the other matrix, $R$ orthogonal."""
    left, _, right_t = decomposed(other @ one)
    return np.linalg.norm(one - other @ (left @ right_t), axis=(1, 2))


def likely_closed(
    a: np.ndarray, b: np.ndarray, one: np.ndarray, other: np.ndarray, values: list[np.ndarray], depth: float
) -> np.ndarray:
    """Which pairs one of the other closed forms may join: few, so these are done one by one."""
    likely = np.zeros(len(a), dtype=bool)
    for orthogonal, matrix, spectrum in ((one, b, values[0]), (other, a, values[1])):
        round_ = spectrum[:, 0] - spectrum[:, -1] <= SAME * spectrum[:, 0]
        likely |= round_ & _normal(np.swapaxes(orthogonal, 1, 2) @ matrix)
    if depth == 2 and len(a):
        left, spectrum, right_t = decomposed(a)
        half = np.sqrt(spectrum)
        inner = half[:, :, None] * (np.swapaxes(left, 1, 2) @ b @ np.swapaxes(right_t, 1, 2)) * half[:, None]
        eigenvalues, vectors = np.linalg.eig(inner)
        # The root from eigenvectors, as a linear system: those that have too few of them are normal by chance only.
        lefts = np.swapaxes(vectors * np.sqrt(eigenvalues.astype(complex))[:, None], 1, 2)
        try:
            roots = np.real(np.swapaxes(np.linalg.solve(np.swapaxes(vectors, 1, 2).astype(complex), lefts), 1, 2))
        except np.linalg.LinAlgError:
            return np.ones(len(a), dtype=bool)
        likely |= _normal(roots / half[:, :, None] / half[:, None])
    return likely


def _normal(matrices: np.ndarray) -> np.ndarray:
    turned = np.swapaxes(matrices, 1, 2)
    crooked = np.linalg.norm(matrices @ turned - turned @ matrices, axis=(1, 2))
    return crooked <= LIKELY * np.linalg.norm(matrices, axis=(1, 2)) ** 2


def _eigenvalues(matrices: np.ndarray) -> np.ndarray:
    """Of symmetric positive definite matrices, smallest first."""
    if matrices.shape[-1] != 2:
        return np.linalg.eigvalsh(matrices)
    a, b, c, d = matrices.reshape(-1, 4).T
    large = (a + d) / 2 + np.hypot((a - d) / 2, (b + c) / 2)
    return np.stack([(a * d - b * c) / large, large], axis=1)


def _root(matrices: np.ndarray) -> np.ndarray:
    values, frames = symmetric(matrices)
    return (frames * np.sqrt(np.maximum(values, 0.0))[:, None]) @ np.swapaxes(frames, 1, 2)


def _skew(matrices: np.ndarray) -> np.ndarray:
    return matrices - np.swapaxes(matrices, 1, 2)


def _most(matrices: np.ndarray) -> np.ndarray:
    """Largest size of an entry; the many on the last axis, where reductions are fast."""
    return np.abs(matrices.reshape(len(matrices), -1).T, order="C").max(axis=0)
