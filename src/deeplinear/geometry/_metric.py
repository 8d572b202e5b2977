r"""The metric of a deep linear network on its end-to-end matrices.

Gradient flow of balanced layers $W_L, \dots, W_1$ moves their product $X$ by $\dot X = -A_L[X](\nabla E(X))$, with

$$A_L[X](Z) = \sum_{l=1}^{L} (XX^\top)^{(L-l)/L}\, Z\, (X^\top X)^{(l-1)/L},$$

the flow of steepest descent in the metric $g_X(Y, Z) = \langle Y, A_L[X]^{-1} Z\rangle$. With $X = USV^\top$ the
operator is diagonal in the basis $u_k v_l^\top$; its eigenvalues are $\lambda_L(s_k, s_l)$ of `metric_eigenvalue`.
*Normalised* means $A_L / L$, which has the limit $A_\infty$ as the depth grows: the same geodesics, lengths times
$\sqrt L$.
"""

import math
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    as_array,
    check_finite,
    check_shape,
    check_x64,
    checked_layer,
    differentiable,
    entry,
    formula,
    is_concrete,
    stop_gradient,
    xp,
)
from deeplinear.geometry._pair_eigenvalues import eigenvalue_difference, pair_eigenvalue

Stack = Float[Array, "... _ _"]
"""Matrices on the last two axes."""

LARGEST_CONDITION = 1e14
"""Largest ratio of eigenvalues of the operator with which it is inverted."""


def checked_depth(where: str, depth: Any, *, finite: bool = False) -> float:
    """A depth: a positive integer, also as 3.0, or infinity where that is allowed; or a refusal."""
    whole = isinstance(depth, int | np.integer) and not isinstance(depth, bool)
    whole = whole or (isinstance(depth, float | np.floating) and float(depth).is_integer())
    endless = isinstance(depth, float) and math.isinf(depth) and depth > 0
    if not (whole and depth >= 1) and not (endless and not finite):
        wanted = "a positive integer" if finite else "a positive integer or infinity (math.inf)"
        raise ValueError(f"{where}: depth must be {wanted}, but is {depth!r}.")
    return int(depth) if whole else math.inf


def checked_point(where: str, name: str, value: Any) -> Matrix:
    """A matrix of finite numbers, or a refusal."""
    check_x64(where)
    matrix = as_array(checked_layer(where, name, value), float)
    check_shape(where, name, matrix, (None, None))
    check_finite(where, name, matrix)
    return matrix


@entry
def metric_eigenvalue(a: Any, b: Any, depth: float, *, normalised: bool = False) -> Float[Array, "..."]:
    r"""Eigenvalue $\lambda_L(a, b)$ of the operator $A_L[X]$ on $u_k v_l^\top$, with $a = s_k$ and $b = s_l$.

    $\lambda_L(a,b) = (a^2 - b^2)/(a^{2/L} - b^{2/L})$ and $L a^{2-2/L}$ for $a = b$; for infinite depth, always
    normalised, the logarithmic mean $(a^2 - b^2)/(2\ln(a/b))$ of $a^2$ and $b^2$. Computed without cancellation for
    values of any distance, zero included.

    Args:
        a: Singular values, not negative.
        b: Singular values, not negative; broadcast against `a`.
        depth: $L$, a positive integer or infinity.
        normalised: Whether to divide by $L$; infinite depth is always so.

    Returns:
        The eigenvalues.

    Example:
        >>> float(metric_eigenvalue(1.5, 0.5, 2)), round(float(metric_eigenvalue(1.5, 0.5, math.inf)), 12)
        (2.0, 0.910239226627)
    """
    where = "metric_eigenvalue"
    check_x64(where)
    checked_depth(where, depth)
    first, second = (as_array(checked_layer(where, n, v), float) for n, v in (("a", a), ("b", b)))
    for name, values in (("a", first), ("b", second)):
        check_finite(where, name, values)
        if is_concrete(values) and np.any(np.asarray(values) < 0):
            raise ValueError(f"{where}: {name} must not be negative, but reaches {np.min(values):g}.")
    return _scaled(first, second, 1 / depth, 1.0 if normalised or math.isinf(depth) else float(depth))


class Metric(eqx.Module):
    r"""Riemannian metric $g_X(Y, Z) = \langle Y, A_L[X]^{-1}Z\rangle$ of a depth.

    Left and right multiplication by orthogonal matrices and transposition are isometries; $A_L[cX] = c^{2-2/L}A_L[X]$.
    Rectangular matrices are taken with their singular values padded by zeros, which is the operator of balanced layers
    whose hidden widths are at least the rank.

    `apply`, `inverse`, `inner`, `norm` and `dense` are differentiable in $X$ where it is square and of full rank, at
    equal singular values too. The operator has no derivative at singular matrices, and none is given there (`nan`).

    Args:
        depth: $L$, a positive integer or infinity.
        normalised: Whether the operator is divided by $L$; infinite depth is always so.

    Example:
        >>> metric = Metric(2)
        >>> float(metric.inner(jnp.diag(jnp.array([3.0, 1.0])), jnp.eye(2), jnp.eye(2)).round(12))
        0.666666666667
    """

    rate: Float[Array, "*batch"]
    scale: Float[Array, "*batch"]

    def __init__(self, depth: float, *, normalised: bool = False) -> None:
        depth = checked_depth("Metric", depth)
        self.rate = xp.asarray(1 / depth, dtype=float)
        self.scale = xp.asarray(1.0 if normalised or math.isinf(depth) else depth, dtype=float)

    @property
    def depth(self) -> float:
        """$L$; not to be asked for inside a transformation."""
        rate = float(self.rate)
        return math.inf if rate == 0 else round(1 / rate)

    @property
    def normalised(self) -> bool:
        """Whether the operator is divided by $L$; not to be asked for inside a transformation."""
        return float(self.scale) == 1

    @entry(bounded=("point",))
    def eigenvalues(self, point: Any) -> Float[Array, "rows columns"]:
        r"""$\lambda_L(s_k, s_l)$ for all pairs, $k$ over the rows and $l$ over the columns of the matrix."""
        point = checked_point("Metric.eigenvalues", "point", point)
        return _frame(self, point)[1]

    @entry(bounded=("point", "vector"))
    def apply(self, point: Any, vector: Any) -> Matrix:
        r"""$A_L[X](Z)$: the Riemannian gradient of an energy whose gradient is $Z$.

        Args:
            point: $X$.
            vector: $Z$, of the same shape.
        """
        return applied(self, *_pair("Metric.apply", point, vector))

    @entry(bounded=("point", "vector"))
    def inverse(self, point: Any, vector: Any, *, pseudo: bool = False) -> Matrix:
        r"""$A_L[X]^{-1}(Z)$.

        Args:
            point: $X$, of full rank unless `pseudo`.
            vector: $Z$, of the same shape.
            pseudo: Whether to leave out the directions in which the operator vanishes.

        Raises:
            HypothesisError: The operator is singular, or nearly so.
        """
        point, vector = _pair("Metric.inverse", point, vector)
        solved, least, largest = _inverted(self, point, vector, 0.0 if pseudo else math.nan)
        if not pseudo and is_concrete(least) and not float(least) > float(largest) / LARGEST_CONDITION:
            worst = float(largest) / float(least) if float(least) > 0 else math.inf
            raise HypothesisError(
                "a matrix of full rank",
                worst,
                LARGEST_CONDITION,
                "The ratio of the eigenvalues of the operator is told; pseudo=True leaves out where it vanishes.",
            )
        return solved

    @entry(bounded=("point", "first", "second"))
    def inner(self, point: Any, first: Any, second: Any, *, pseudo: bool = False) -> Float[Array, ""]:
        r"""$g_X(Y, Z)$.

        Args:
            point: $X$.
            first: $Y$.
            second: $Z$.
            pseudo: As for `inverse`.
        """
        where = "Metric.inner"
        point, first = _pair(where, point, first, "first")
        _, second = _pair(where, point, second, "second")
        return _dot(first, self.inverse(point, second, pseudo=pseudo))

    @entry(bounded=("point", "vector"))
    def norm(self, point: Any, vector: Any, *, pseudo: bool = False) -> Float[Array, ""]:
        r"""$\sqrt{g_X(Z, Z)}$."""
        return xp.sqrt(xp.maximum(self.inner(point, vector, vector, pseudo=pseudo), 0.0))

    @entry(bounded=("point",))
    def dense(self, point: Any) -> Float[Array, "entries entries"]:
        """The operator as a matrix on the entries in row-major order; for small matrices."""
        return _dense(self, checked_point("Metric.dense", "point", point))


@formula
def _scaled(a: Float[Array, "..."], b: Float[Array, "..."], rate: Any, scale: Any) -> Float[Array, "..."]:
    return scale * pair_eigenvalue(a, b, rate)


@formula
def _frame(metric: Metric, point: Matrix) -> tuple[tuple[Matrix, Matrix], Matrix]:
    """Singular vectors, rows and columns, and the eigenvalues for all pairs of them."""
    return _eigenvalues(metric.rate, metric.scale, point)


def _eigenvalues(rate: Array, scale: Array, point: Stack) -> tuple[tuple[Stack, Stack], Stack]:
    """Singular vectors, rows and columns, and the eigenvalues for all pairs of them; of stacked matrices, too."""
    rows, columns = point.shape[-2:]
    left, values, right_t = xp.linalg.svd(point, full_matrices=True)
    # Below the rounding of a decomposition a singular value is zero; at infinite depth no other is near to it.
    rounding = max(rows, columns) * np.finfo(point.dtype).eps
    values = xp.where(values < rounding * values[..., :1], 0.0, values)
    lacking = [xp.zeros((*values.shape[:-1], size - values.shape[-1])) for size in (rows, columns)]
    one, other = (xp.concatenate([values, zeros], axis=-1) for zeros in lacking)
    return (left, right_t), scale * pair_eigenvalue(one[..., :, None], other[..., None, :], rate)


@formula
def applied(metric: Metric, point: Stack, vector: Stack) -> Stack:
    """The operator, unchecked; of stacked matrices, too."""
    return _operated(metric.rate, metric.scale, point, vector)


@differentiable
def _operated(rate: Array, scale: Array, point: Stack, vector: Stack) -> Stack:
    """The operator, with a derivative that does not ask for singular vectors to have one."""
    (left, right_t), values = _eigenvalues(rate, scale, point)
    return left @ (values * (_turned(left) @ vector @ _turned(right_t))) @ right_t


@_operated.defjvp(symbolic_zeros=True)
def _operated_jvp(primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    rate, scale, point, vector = primals
    change = _known(tangents[3])
    moved = _operated(rate, scale, point, change if change is not None else xp.zeros_like(vector))
    if any(_known(tangent) is not None for tangent in tangents[:3]):
        moved = moved + _moved(rate, scale, point, vector, *tangents[:3])
    return _operated(*primals), moved


def _known(tangent: Any) -> Any:
    """A tangent, or nothing where it is known to be zero: what does not move needs no derivative."""
    from jax.custom_derivatives import SymbolicZero

    return None if isinstance(tangent, SymbolicZero) else tangent


def _moved(rate: Array, scale: Array, point: Matrix, vector: Stack, *tangents: Any) -> Stack:
    r"""Derivative of $A_L[X](Z)$ in depth, scale and $X$: divided differences of the eigenvalues."""
    import jax

    if point.shape[0] != point.shape[1]:
        raise NotImplementedError(f"Metric: derivatives need a square point, but it has shape {point.shape}.")
    faster, larger, change = (
        xp.zeros_like(value) if _known(tangent) is None else tangent
        for value, tangent in zip((rate, scale, point), tangents, strict=True)
    )
    left, values, right_t = xp.linalg.svd(point)
    seen, turned = left.T @ vector @ right_t.T, left.T @ change @ right_t.T
    rows, columns = turned * values, values[:, None] * turned
    table = eigenvalue_difference(values, rate)
    moved = xp.einsum("ijl,ij,...jl->...il", table, rows + rows.T, seen)
    moved = moved + xp.einsum("jli,...ij,jl->...il", table, seen, columns + columns.T)
    pairs = values[:, None], values[None]
    _, slope = jax.jvp(lambda r, c: c * pair_eigenvalue(*pairs, r), (rate, scale), (faster, larger))
    return left @ (scale * moved + slope * seen) @ right_t


@formula
def _inverted(
    metric: Metric, point: Matrix, vector: Matrix, vanished: Any
) -> tuple[Matrix, Float[Array, ""], Float[Array, ""]]:
    """The inverse, with a number where the operator vanishes, and its smallest and largest eigenvalue."""
    values = _frame(metric, stop_gradient(point))[1]
    solved = _solved(metric.rate, metric.scale, point, vector, xp.asarray(vanished, dtype=float))
    return solved, xp.min(values), xp.max(values)


@differentiable
def _solved(rate: Array, scale: Array, point: Stack, vector: Stack, vanished: Array) -> Stack:
    """The inverse of the operator, likewise."""
    (left, right_t), values = _eigenvalues(rate, scale, point)
    kept = values > xp.max(values, axis=(-2, -1), keepdims=True) / LARGEST_CONDITION
    scaled = xp.where(kept, (_turned(left) @ vector @ _turned(right_t)) / xp.where(kept, values, 1.0), vanished)
    return left @ scaled @ right_t


@_solved.defjvp(symbolic_zeros=True)
def _solved_jvp(primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    rate, scale, point, vector, vanished = primals
    solved, change = _solved(*primals), _known(tangents[3])
    change = xp.zeros_like(vector) if change is None else change
    if any(_known(tangent) is not None for tangent in tangents[:3]):
        change = change - _moved(rate, scale, point, solved, *tangents[:3])
    return solved, _solved(rate, scale, point, change, vanished)


@formula
def _dot(first: Matrix, second: Matrix) -> Float[Array, ""]:
    return xp.sum(first * second)


@formula
def _dense(metric: Metric, point: Matrix) -> Float[Array, "entries entries"]:
    units = xp.eye(point.size).reshape(point.size, *point.shape)
    dense = _operated(metric.rate, metric.scale, point, units).reshape(point.size, point.size)
    return (dense + dense.T) / 2


def _turned(stack: Stack) -> Stack:
    return xp.swapaxes(stack, -1, -2)


def _pair(where: str, point: Any, vector: Any, name: str = "vector") -> tuple[Matrix, Matrix]:
    point, vector = checked_point(where, "point", point), checked_point(where, name, vector)
    check_shape(where, name, vector, point.shape)
    return point, vector
