r"""Divided differences: derivatives of fractional powers, and of the operator of the metric, at any spectrum.

The derivative of a function of a symmetric matrix $Q\,\mathrm{diag}(w)\,Q^\top$ in direction $Z$ is
$Q(f^{[1]}(w) \circ Q^\top Z Q)Q^\top$ with the divided differences $f^{[1]}_{ij} = (f(w_i) - f(w_j))/(w_i - w_j)$,
which are $f'(w_i)$ where values coincide. All are computed without cancellation, so that close and equal values are
no special case.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, HypothesisError, Matrix, check_number, check_shape, entry, formula, is_concrete, xp
from deeplinear.geometry._metric import checked_point
from deeplinear.geometry._pair_eigenvalues import log_ratio


@entry
def power_difference(a: Any, b: Any, exponent: Any) -> Float[Array, "..."]:
    r"""$(a^p - b^p)/(a - b)$ for positive numbers, $p\,a^{p-1}$ where they are equal.

    Args:
        a: Positive numbers.
        b: Positive numbers; broadcast against `a`.
        exponent: $p$, real; broadcast too.

    Example:
        >>> round(float(power_difference(4.0, 9.0, 0.5)), 12), float(power_difference(4.0, 4.0, 0.5))
        (0.2, 0.25)
    """
    return _power_difference(*(xp.asarray(v, dtype=float) for v in (a, b, exponent)))


@formula
def _power_difference(a: Array, b: Array, exponent: Array) -> Float[Array, "..."]:
    first, second, p = xp.broadcast_arrays(a, b, exponent)
    high, low = xp.maximum(first, second), xp.minimum(first, second)
    apart = log_ratio(high, low)
    equal = apart == 0
    gap = xp.where(equal, 1.0, apart)
    return high ** (p - 1) * xp.where(equal, p, xp.expm1(-p * gap) / xp.expm1(-gap))


@entry
def power_derivative(matrix: Any, direction: Any, exponent: float) -> Matrix:
    r"""Derivative of $S \mapsto S^p$ at a positive definite matrix in a symmetric direction.

    Args:
        matrix: $S$, positive definite.
        direction: $Z$, symmetric.
        exponent: $p$, any real number.

    Returns:
        A symmetric matrix.

    Example:
        >>> power_derivative(jnp.diag(jnp.array([4.0, 9.0])), jnp.ones((2, 2)), 0.5).round(12)
        array([[0.25      , 0.2       ],
               [0.2       , 0.16666667]])
    """
    where = "power_derivative"
    point, vector = checked_point(where, "matrix", matrix), checked_point(where, "direction", direction)
    check_shape(where, "matrix", point, (point.shape[0], point.shape[0]))
    check_shape(where, "direction", vector, point.shape)
    check_number(where, "exponent", exponent)
    found, least = _power_derivative(point, vector, exponent)
    if is_concrete(least) and float(least) <= 0:
        raise HypothesisError(f"{where}: matrix is positive definite", -float(least), 0.0)
    return found


@formula
def _power_derivative(point: Matrix, vector: Matrix, exponent: Any) -> tuple[Matrix, Float[Array, ""]]:
    """The derivative, and the smallest eigenvalue."""
    values, vectors = xp.linalg.eigh((point + point.T) / 2)
    weights = power_difference(values[:, None], values[None], exponent)
    return vectors @ (weights * (vectors.T @ ((vector + vector.T) / 2) @ vectors)) @ vectors.T, values[0]


@entry(sized=("point", "direction"))
def gram_power_derivative(point: Any, direction: Any, exponent: float) -> tuple[Matrix, Matrix]:
    r"""Derivatives of $(XX^\top)^p$ and $(X^\top X)^p$ at a matrix of full rank.

    Args:
        point: $X$, square and of full rank.
        direction: $Z$, of the same shape.
        exponent: $p$.

    Returns:
        The two derivatives, both symmetric.
    """
    where = "gram_power_derivative"
    matrix, vector = checked_point(where, "point", point), checked_point(where, "direction", direction)
    check_shape(where, "point", matrix, (matrix.shape[0], matrix.shape[0]))
    check_shape(where, "direction", vector, matrix.shape)
    check_number(where, "exponent", exponent)
    found, values = _gram_power_derivative(matrix, vector, exponent)
    if is_concrete(values) and np.asarray(values)[-1] <= 0:
        lacking = float(np.sum(np.asarray(values) <= 0))
        raise HypothesisError("a matrix of full rank", lacking, 0.0, "The rank that lacks is told.")
    return found


@formula
def _gram_power_derivative(
    matrix: Matrix, vector: Matrix, exponent: Any
) -> tuple[tuple[Matrix, Matrix], Float[Array, " modes"]]:
    """The derivatives, and the singular values."""
    left, values, right_t = xp.linalg.svd(matrix)
    seen = left.T @ vector @ right_t.T
    weights = power_difference(values[:, None] ** 2, values[None] ** 2, exponent)
    outer, inner = seen * values, values[:, None] * seen
    found = left @ (weights * (outer + outer.T)) @ left.T, right_t.T @ (weights * (inner + inner.T)) @ right_t
    return found, values
