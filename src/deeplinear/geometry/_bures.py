r"""Bures–Wasserstein geometry of positive definite matrices, the depth-two geometry in closed form.

$g_X(Y, Z) = \tfrac12\langle Y, \mathcal L_X^{-1}Z\rangle$ with $\mathcal L_X(Y) = XY + YX$ is the metric that makes
$W \mapsto WW^\top$ a Riemannian submersion. The metric of two layers, restricted to positive definite matrices, is
twice this one (both layers move), so distances there are $\sqrt2$ times as long.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    as_array,
    check_finite,
    check_shape,
    differentiable,
    entry,
    formula,
    is_concrete,
    splinalg,
    xp,
)
from deeplinear.geometry._metric import checked_point

SYMMETRIC = 1e-10
"""Largest asymmetry, relative to the largest entry."""


@entry
def bures_map(start: Any, end: Any) -> Matrix:
    r"""The positive definite $T$ with $TAT = B$: the optimal map between centred Gaussians of covariances $A$ and $B$.

    From a Cholesky factor $A = CC^\top$ as $T = C^{-\top}(C^\top B C)^{1/2}C^{-1}$, the root being that of
    $MM^\top$ with $M = C^\top B^{1/2}$, which is not formed: its condition is that of $M$ squared.

    Args:
        start: $A$, positive definite.
        end: $B$, positive semi-definite.

    Returns:
        $T$.

    Example:
        >>> bures_map(jnp.diag(jnp.array([4.0, 1.0])), jnp.diag(jnp.array([1.0, 9.0])))
        array([[0.5, 0. ],
               [0. , 3. ]])
    """
    where = "bures_map"
    return _map(*_pair(where, start, end))


@differentiable
@formula
def _map(a: Matrix, b: Matrix) -> Matrix:
    return _map_frames(a, b)[0]


def _map_frames(a: Matrix, b: Matrix) -> tuple[Matrix, Matrix, Matrix, Float[Array, " modes"]]:
    """The map, the factor of the start, and the root between as eigenvectors and eigenvalues."""
    factor = xp.linalg.cholesky(a)
    frame, values, _ = xp.linalg.svd(factor.T @ _half(b))
    half = splinalg.solve_triangular(factor, frame, lower=True, trans="T")
    return _even((half * values) @ half.T), factor, frame, values


@_map.defjvp
def _map_jvp(primals: tuple[Matrix, Matrix], tangents: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
    # TAT = B: with S = C^T dT C and R the root it is SR + RS = C^T (dB - T dA T) C.
    mapped, factor, frame, values = _map_frames(*primals)
    change = _lyapunov(frame, values, factor.T @ (_even(tangents[1]) - mapped @ _even(tangents[0]) @ mapped) @ factor)
    change = splinalg.solve_triangular(factor, change, lower=True, trans="T")
    return mapped, _even(splinalg.solve_triangular(factor, change.T, lower=True, trans="T"))


def _lyapunov(vectors: Matrix, values: Float[Array, " modes"], matrix: Matrix) -> Matrix:
    """$Y$ with $RY + YR$ the given matrix, for $R$ by its eigenvectors and eigenvalues."""
    return vectors @ ((vectors.T @ matrix @ vectors) / (values[:, None] + values[None])) @ vectors.T


@entry
def geometric_mean(first: Any, second: Any) -> Matrix:
    r"""$A \# B$: the positive definite $M$ with $MA^{-1}M = B$.

    Args:
        first: $A$, positive definite.
        second: $B$, positive definite.

    Returns:
        $M$; the same with the arguments exchanged.

    Example:
        >>> geometric_mean(4 * jnp.eye(1), 9 * jnp.eye(1))
        array([[6.]])
    """
    return _mean(*_pair("geometric_mean", first, second, ("first", "second")))


@differentiable
@formula
def _mean(a: Matrix, b: Matrix) -> Matrix:
    return _mean_frames(a, b)[0]


def _mean_frames(a: Matrix, b: Matrix) -> tuple[Matrix, Matrix, Matrix, Float[Array, " modes"]]:
    factor = xp.linalg.cholesky(a)
    frame, values, _ = xp.linalg.svd(splinalg.solve_triangular(factor, xp.linalg.cholesky(b), lower=True))
    half = factor @ frame
    return _even((half * values) @ half.T), factor, frame, values


@_mean.defjvp
def _mean_jvp(primals: tuple[Matrix, Matrix], tangents: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
    # MA^{-1}M = B: with dM = CSC^T and R the root it is SR + RS = C^{-1} dB C^{-T} + R C^{-1} dA C^{-T} R.
    mean, factor, frame, values = _mean_frames(*primals)
    first, second = (
        splinalg.solve_triangular(factor, splinalg.solve_triangular(factor, _even(change), lower=True).T, lower=True)
        for change in tangents
    )
    root = (frame * values) @ frame.T
    return mean, _even(factor @ _lyapunov(frame, values, second + root @ first @ root) @ factor.T)


@entry(bounded=("point", "first", "second"))
def bures_inner(point: Any, first: Any, second: Any) -> Float[Array, ""]:
    r"""$\tfrac12\langle Y, \mathcal L_X^{-1}Z\rangle$ for symmetric tangents.

    Args:
        point: $X$, positive definite.
        first: $Y$, symmetric.
        second: $Z$, symmetric.

    Example:
        >>> float(bures_inner(jnp.eye(2), jnp.eye(2), jnp.eye(2)))
        0.5
    """
    where = "bures_inner"
    x = _definite(where, "point", point)
    y, z = (_symmetric(where, name, value) for name, value in (("first", first), ("second", second)))
    for name, value in (("first", y), ("second", z)):
        check_shape(where, name, value, x.shape)
    return _inner(x, y, z)


@differentiable
@formula
def _inner(x: Matrix, y: Matrix, z: Matrix) -> Float[Array, ""]:
    values, vectors = xp.linalg.eigh(x)
    one, other = (vectors.T @ w @ vectors for w in (y, z))
    return 0.5 * xp.sum(one * other / (values[:, None] + values[None]))


@_inner.defjvp
def _inner_jvp(primals: tuple[Matrix, ...], tangents: tuple[Matrix, ...]) -> tuple[Array, Array]:
    values, vectors = xp.linalg.eigh(primals[0])
    one, other = (_lyapunov(vectors, values, w) for w in primals[1:])
    change = xp.sum(tangents[1] * other) + xp.sum(one * tangents[2])
    return _inner(*primals), 0.5 * (change - xp.sum((one @ other + other @ one) * tangents[0]))


@entry(bounded=("start", "end", "times"))
def bures_geodesic(start: Any, end: Any, times: Any) -> Float[Array, "*times size size"]:
    r"""Geodesic $((1-t)I + tT)\,A\,((1-t)I + tT)$ from $A$ to $B$, $T$ being `bures_map`.

    Args:
        start: $A$, positive definite.
        end: $B$, positive semi-definite.
        times: Times of any shape, from 0 at $A$ to 1 at $B$.

    Returns:
        The matrices, times first.

    Example:
        >>> bures_geodesic(4 * jnp.eye(1), 9 * jnp.eye(1), 0.5)
        array([[6.25]])
    """
    where = "bures_geodesic"
    a, b = _pair(where, start, end)
    t = as_array(times, float)
    check_finite(where, "times", t)
    return _geodesic(a, b, t)


@entry(bounded=("start", "momentum", "times"))
def bures_exponential(start: Any, momentum: Any, times: Any) -> Float[Array, "*times size size"]:
    r"""Geodesic $(I + tP)A(I + tP)$ that starts at $A$ with momentum $P$, velocity $AP + PA$.

    It leaves the positive definite matrices at `bures_exit`.

    Args:
        start: $A$, positive definite.
        momentum: $P$, symmetric.
        times: Times of any shape.

    Returns:
        The matrices, times first.
    """
    where = "bures_exponential"
    a, p = _definite(where, "start", start), _symmetric(where, "momentum", momentum)
    check_shape(where, "momentum", p, a.shape)
    t = as_array(times, float)
    check_finite(where, "times", t)
    return _exponential(a, p, t)


@formula
def _exponential(a: Matrix, p: Matrix, t: Float[Array, "*times"]) -> Float[Array, "*times size size"]:
    way = xp.eye(a.shape[0]) + t[..., None, None] * p
    return _even(way @ a @ way)


@formula
def _geodesic(a: Matrix, b: Matrix, t: Float[Array, "*times"]) -> Float[Array, "*times size size"]:
    return _exponential(a, _map(a, b) - xp.eye(a.shape[0]), t)


@entry
def bures_exit(momentum: Any) -> Float[Array, ""]:
    r"""When a geodesic with this momentum reaches a singular matrix: $-1/\lambda_{\min}(P)$, or never.

    Example:
        >>> float(bures_exit(jnp.diag(jnp.array([1.0, -0.5]))))
        2.0
    """
    return _exit(_symmetric("bures_exit", "momentum", momentum))


@formula
def _exit(momentum: Matrix) -> Float[Array, ""]:
    least = xp.linalg.eigvalsh(momentum)[0]
    return xp.where(least < 0, -1 / xp.where(least < 0, least, -1.0), xp.inf)


@entry
def bures_distance(first: Any, second: Any) -> Float[Array, ""]:
    r"""Distance $\|A^{1/2} - B^{1/2}R\|_F$, $R$ the orthogonal factor of $B^{1/2}A^{1/2}$.

    Its square is $\mathrm{tr}\,A + \mathrm{tr}\,B - 2\,\mathrm{tr}(A^{1/2}BA^{1/2})^{1/2}$, which would lose the digits
    of close matrices. It has derivatives at positive definite matrices that differ; elsewhere they are `nan`.

    Args:
        first: $A$, positive semi-definite.
        second: $B$, positive semi-definite.

    Example:
        >>> float(bures_distance(4 * jnp.eye(1), 9 * jnp.eye(1)))
        1.0
    """
    where = "bures_distance"
    a, b = (_semidefinite(where, name, value) for name, value in (("first", first), ("second", second)))
    check_shape(where, "second", b, a.shape)
    return _distance(a, b)


@differentiable
@formula
def _distance(a: Matrix, b: Matrix) -> Float[Array, ""]:
    one, other = _root(a), _root(b)
    left, _, right_t = xp.linalg.svd(other @ one)
    return xp.linalg.norm(one - other @ (left @ right_t))


@_distance.defjvp
def _distance_jvp(primals: tuple[Matrix, Matrix], tangents: tuple[Matrix, Matrix]) -> tuple[Array, Array]:
    # The gradient of the square is I - T at either end, T being the map to the other.
    (a, b), (first, second), eye = primals, tangents, xp.eye(primals[0].shape[0])
    found = _distance(a, b)
    change = xp.sum((eye - _map(a, b)) * first) + xp.sum((eye - _map(b, a)) * second)
    return found, change / (2 * found)


def _pair(where: str, start: Any, end: Any, names: tuple[str, str] = ("start", "end")) -> tuple[Matrix, Matrix]:
    a = _definite(where, names[0], start)
    b = _definite(where, names[1], end) if names[1] == "second" else _semidefinite(where, names[1], end)
    check_shape(where, names[1], b, a.shape)
    return a, b


def _symmetric(where: str, name: str, value: Any) -> Matrix:
    matrix = checked_point(where, name, value)
    check_shape(where, name, matrix, (matrix.shape[0], matrix.shape[0]))
    if is_concrete(matrix):
        seen = np.asarray(matrix)
        largest = float(np.max(np.abs(seen), initial=0.0))
        crooked = float(np.max(np.abs(seen - seen.T), initial=0.0))
        if crooked > SYMMETRIC * largest:
            raise HypothesisError(
                f"{where}: {name} is symmetric", crooked / largest, SYMMETRIC, "Take (M + M^T)/2 of it."
            )
    return _even(matrix)


def _semidefinite(where: str, name: str, value: Any) -> Matrix:
    matrix = _symmetric(where, name, value)
    if is_concrete(matrix):
        values = np.linalg.eigvalsh(np.asarray(matrix))
        if values[0] < -1e-12 * max(values[-1], 0.0) or values[-1] < 0:
            raise HypothesisError(f"{where}: {name} is positive semi-definite", float(-values[0]), 0.0)
    return matrix


def _definite(where: str, name: str, value: Any) -> Matrix:
    matrix = _symmetric(where, name, value)
    if is_concrete(matrix):
        values = np.linalg.eigvalsh(np.asarray(matrix))
        if values[0] <= 0 or not _has_factor(np.asarray(matrix)):
            raise HypothesisError(
                f"{where}: {name} is positive definite",
                float(-values[0]),
                0.0,
                "Minus the smallest eigenvalue is told; one that is positive but lost in rounding is refused, too.",
            )
    return matrix


def _has_factor(matrix: np.ndarray) -> bool:
    """Whether a symmetric matrix has a Cholesky factor in floating point."""
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


@formula
def _even(matrix: Float[Array, "*batch size size"]) -> Float[Array, "*batch size size"]:
    return (matrix + xp.swapaxes(matrix, -1, -2)) / 2


def _half(matrix: Matrix) -> Matrix:
    """$R$ with $RR^\\top$ the positive semi-definite matrix."""
    values, vectors = xp.linalg.eigh(_even(matrix))
    return vectors * xp.sqrt(xp.maximum(values, 0.0))


def _root(matrix: Matrix) -> Matrix:
    """Square root of a positive semi-definite matrix."""
    values, vectors = xp.linalg.eigh(_even(matrix))
    return (vectors * xp.sqrt(xp.maximum(values, 0.0))) @ vectors.T
