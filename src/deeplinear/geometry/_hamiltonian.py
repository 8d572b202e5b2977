r"""Hamiltonian form of the geodesics: $H(X, P) = \tfrac12\langle P, A_L[X](P)\rangle$.

The momentum is $P = A_L[X]^{-1}(\dot X)$ and the speed $\sqrt{2H}$, which is constant. With $X = USV^\top$,
$\tilde P = U^\top PV$ and the divided differences $T_{ijk}$ of the eigenvalues,

$$\dot X = A_L[X](P), \qquad \dot P = -U(K_1 S + S K_2)V^\top, \qquad
(K_1)_{ij} = \sum_k \tilde P_{ik}\tilde P_{jk}T_{ijk}, \quad (K_2)_{ij} = \sum_k \tilde P_{ki}\tilde P_{kj}T_{ijk},$$

at a cost that does not depend on the depth. The same written as a sum over layers, with the derivatives of fractional
powers of $XX^\top$ and $X^\top X$ for each, is kept as the independent side.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, Matrix, check_shape, entry, xp
from deeplinear.geometry._metric import Metric, checked_point
from deeplinear.geometry._pair_eigenvalues import eigenvalue_difference, pair_eigenvalue
from deeplinear.geometry._powers import power_difference

LEAST = 1e-150
"""Singular values are taken to be at least this, so that a straight line of depth one may pass zero."""

QUADRATURE = 24
"""Gauss–Legendre nodes in the place of layers at infinite depth: exact to rounding for ratios up to $10^6$."""


@entry(bounded=("point", "momentum"))
def hamiltonian(metric: Metric, point: Any, momentum: Any) -> Float[Array, ""]:
    r"""$\tfrac12\langle P, A_L[X](P)\rangle$, half the squared speed.

    Args:
        metric: The metric of a depth.
        point: $X$, square and of full rank.
        momentum: $P$.

    Example:
        >>> float(hamiltonian(Metric(2), jnp.eye(2), jnp.eye(2)))
        2.0
    """
    where = "hamiltonian"
    x, p = checked_point(where, "point", point), checked_point(where, "momentum", momentum)
    check_shape(where, "momentum", p, x.shape)
    return 0.5 * xp.sum(p * metric.apply(x, p))


@entry
def geodesic_field(metric: Metric, point: Matrix, momentum: Matrix) -> tuple[Matrix, Matrix]:
    r"""$(\dot X, \dot P)$, unchecked: what is integrated. One singular value decomposition and $O(d^3)$ more.

    Args:
        metric: The metric of a depth.
        point: $X$, square and of full rank.
        momentum: $P$.
    """
    left, values, right_t = xp.linalg.svd(point)
    values = xp.maximum(values, LEAST)
    seen = left.T @ momentum @ right_t.T
    eigenvalues = pair_eigenvalue(values[:, None], values[None], metric.rate)
    table = eigenvalue_difference(values, metric.rate)
    first = xp.einsum("ik,jk,ijk->ij", seen, seen, table)
    second = xp.einsum("ki,kj,ijk->ij", seen, seen, table)
    velocity = left @ (eigenvalues * seen) @ right_t
    force = left @ (first * values + values[:, None] * second) @ right_t
    return metric.scale * velocity, -metric.scale * force


def layer_exponents(metric: Metric) -> Float[Array, "3 layers"]:
    r"""Exponents of $XX^\top$ and of $X^\top X$ in the terms of the operator, and the weights of the terms.

    One term for each layer, with terms of weight zero up to a multiple of 24, so that many depths share a program; for
    infinite depth one for each of 24 nodes of a Gauss–Legendre rule on $[0, 1]$.

    Args:
        metric: The metric of a depth; not inside a transformation.
    """
    if math.isinf(metric.depth):
        nodes, weights = np.polynomial.legendre.leggauss(QUADRATURE)
        inner = 0.5 + nodes / 2
        return xp.asarray(np.stack([1 - inner, inner, weights / 2]), dtype=float)
    depth = int(metric.depth)
    terms = np.zeros((3, -(-depth // QUADRATURE) * QUADRATURE))
    layers = np.arange(1, depth + 1)
    terms[:, :depth] = (depth - layers) / depth, (layers - 1) / depth, np.full(depth, float(metric.scale) / depth)
    return xp.asarray(terms, dtype=float)


@entry
def geodesic_field_sum(exponents: Float[Array, "3 layers"], point: Matrix, momentum: Matrix) -> tuple[Matrix, Matrix]:
    r"""$(\dot X, \dot P)$ as a sum over layers, unchecked: the independent side of `geodesic_field`.

    $K_1 = \sum_l f_l^{[1]} \circ (\tilde P S^{2b_l}\tilde P^\top)$ with the divided differences of $x^{a_l}$ at $s^2$,
    $K_2 = \sum_l h_l^{[1]} \circ (\tilde P^\top S^{2a_l}\tilde P)$ with those of $x^{b_l}$, $a_l$ and $b_l$ being the
    exponents of $XX^\top$ and $X^\top X$.

    Args:
        exponents: From `layer_exponents`.
        point: $X$, square and of full rank.
        momentum: $P$.
    """
    left, values, right_t = xp.linalg.svd(point)
    seen = left.T @ momentum @ right_t.T
    a, b, weights = exponents
    squares = values**2
    outer, inner = squares ** a[:, None], squares ** b[:, None]
    rows, columns = squares[:, None], squares[None]
    first = power_difference(rows, columns, a[:, None, None]) * xp.einsum("ik,lk,jk->lij", seen, inner, seen)
    second = power_difference(rows, columns, b[:, None, None]) * xp.einsum("ki,lk,kj->lij", seen, outer, seen)
    eigenvalues = xp.einsum("l,li,lj->ij", weights, outer, inner)
    one, other = xp.einsum("l,lij->ij", weights, first), xp.einsum("l,lij->ij", weights, second)
    velocity = left @ (eigenvalues * seen) @ right_t
    return velocity, -left @ (one * values + values[:, None] * other) @ right_t
