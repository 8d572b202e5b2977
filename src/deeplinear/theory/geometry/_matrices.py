"""Matrices that statements on the geometry are about, and how they are drawn. In plain NumPy: the independent side."""

import dataclasses
import math

import numpy as np
import scipy.linalg

from deeplinear.core import Params
from deeplinear.models import Problem

DEPTHS: tuple[float, ...] = (2, 3, 5, math.inf)
"""Depths that statements are tried at."""

ROUNDING = 1e-12
"""Algebraic identities between numbers of order one."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A point, a tangent there, and a depth.

    Attributes:
        point: Square matrix of full rank.
        vector: A tangent.
        depth: Number of layers, or infinity.
        other: A second tangent or point, of statements that need one.
        told: Depth that the independent side of a comparison takes; that of the place unless told.
    """

    point: np.ndarray
    vector: np.ndarray
    depth: float
    other: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))
    told: float | None = None

    @property
    def independent_depth(self) -> float:
        """Depth that the independent side takes."""
        return self.depth if self.told is None else self.told


def draw_orthogonal(rng: np.random.Generator, size: int) -> np.ndarray:
    """An orthogonal matrix of either determinant, all equally likely."""
    factor, triangle = np.linalg.qr(rng.standard_normal((size, size)))
    return factor * np.sign(np.diag(triangle))


def draw_spectrum(rng: np.random.Generator, size: int, spread: float = 1.0) -> np.ndarray:
    """Singular values, largest first, their logarithms uniform within `spread` on both sides of zero."""
    return np.sort(np.exp(rng.uniform(-spread, spread, size)))[::-1].copy()


def draw_point(rng: np.random.Generator, size: int, spread: float = 1.0) -> np.ndarray:
    """A matrix of full rank with such singular values."""
    return (draw_orthogonal(rng, size) * draw_spectrum(rng, size, spread)) @ draw_orthogonal(rng, size)


def draw_positive(rng: np.random.Generator, size: int, spread: float = 1.0) -> np.ndarray:
    """A positive definite matrix with such eigenvalues."""
    frame = draw_orthogonal(rng, size)
    return (frame * draw_spectrum(rng, size, spread)) @ frame.T


def draw_place(rng: np.random.Generator, sizes: tuple[int, ...] = (2, 3), spread: float = 1.0) -> Place:
    """A point with two Gaussian tangents, at one of the depths."""
    size = int(rng.choice(sizes))
    depth = DEPTHS[int(rng.integers(len(DEPTHS)))]
    vector, other = rng.standard_normal((2, size, size))
    return Place(draw_point(rng, size, spread), vector, depth, other)


def adopt_place(problem: Problem, params: Params) -> Place:
    """The product of given layers, at their depth, with the gradient of the loss as tangent."""
    product = problem.product(params)
    vector = np.asarray(problem.loss.gradient(product))
    return Place(np.asarray(product), vector, len(params), np.random.default_rng(0).standard_normal(product.shape))


def operator(point: np.ndarray, vector: np.ndarray, depth: float) -> np.ndarray:
    """A_L[X](Z), by its definition: the sum over layers, or the integral over [0, 1] by 64 Gauss–Legendre nodes."""
    left, values, right = np.linalg.svd(point)

    def power(vectors: np.ndarray, exponent: float) -> np.ndarray:
        """A power of XXᵀ or XᵀX. Eigenvalues of these products would have lost half of the digits of small values."""
        all_values = np.concatenate([values, np.zeros(len(vectors) - len(values))])
        return (vectors * all_values ** (2 * exponent)) @ vectors.T

    if math.isinf(depth):
        nodes, weights = np.polynomial.legendre.leggauss(64)
        terms = [
            w / 2 * power(left, 1 - t) @ vector @ power(right.T, t)
            for w, t in zip(weights, 0.5 + nodes / 2, strict=True)
        ]
    else:
        layers = range(1, int(depth) + 1)
        terms = [power(left, (depth - k) / depth) @ vector @ power(right.T, (k - 1) / depth) for k in layers]
    return np.sum(terms, axis=0)


def polar(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthogonal and positive factor, in this order."""
    orthogonal, positive = scipy.linalg.polar(matrix)
    return orthogonal, positive
