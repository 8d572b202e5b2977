r"""The residual polynomial of a recurrent network, and the gradient in the eigenbasis of a symmetric transition matrix.

If a loss of the response has the derivatives $r_j$ in its entries, for instance $r = h - w$ for
$\tfrac12\sum_j(h_j - w_j)^2$, all that the flow sees of them is $\varphi(x) = \sum_j r_jx^j$: the velocity of a mode at
$a_i$ is made of $\varphi(a_i)$ and $\varphi'(a_i)$. For symmetric $A$ the imbalance $Y = B - C^\top$ and the sum
$W = B + C^\top$ obey $\dot Y = \varphi(A)Y$ and $\dot W = -\varphi(A)W$.
"""

from typing import Any, NamedTuple

import jax
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
    scan,
    xp,
)
from deeplinear.models import System, checked_system
from deeplinear.recurrent._response import SYMMETRIC


class ResidualPolynomial(NamedTuple):
    r"""The residual polynomial at some points.

    Attributes:
        value: $\varphi(x)$.
        slope: $\varphi'(x)$.
    """

    value: Float[Array, "*points"]
    slope: Float[Array, "*points"]


@entry
def residual_polynomial(residual: Any, points: Any) -> ResidualPolynomial:
    r"""$\varphi(x) = \sum_j r_jx^j$ and its slope, by Horner's rule.

    A diagonal student with modes $a_i$ moves by $\dot a_i = -b_ic_i\varphi'(a_i)$, $\dot b_i = -c_i\varphi(a_i)$ and
    $\dot c_i = -b_i\varphi(a_i)$ under half the sum of squares: its modes are particles in the potential $\varphi$.

    Args:
        residual: $r_0, r_1, \dots$, derivatives of the loss in the entries of the response.
        points: Any number or array of numbers.

    Example:
        >>> found = residual_polynomial([1.0, 0.0, 2.0], jnp.array([0.0, 3.0]))
        >>> found.value, found.slope
        (array([ 1., 19.]), array([ 0., 12.]))
    """
    where = "residual_polynomial"
    r = _checked_residual(where, residual)
    x = as_array(points, float)
    check_finite(where, "points", x)
    return _horner(r, x)


@entry(sized=("system", "residual"))
def spectral_gradient(system: Any, residual: Any) -> System:
    r"""Gradient of a loss of the response at a symmetric transition matrix, in the eigenbasis of it.

    With $A = U\,\mathrm{diag}(a)\,U^\top$, $b = U^\top B$ and $c = CU$,

    $$\partial_A = U\big[\varphi[a_m, a_n]\,c_mb_n\big]_{mn}U^\top,\quad
    \partial_B = \varphi(A)C^\top,\quad \partial_C = B^\top\varphi(A).$$

    The divided differences $\varphi[x, y] = \sum_i r_i\sum_{q<i}x^qy^{i-1-q}$ are summed as written, without the
    quotient that would cancel where eigenvalues are close; for equal ones they are $\varphi'$. In the eigenbasis a
    gradient costs $O(k^2d + kd^2)$ once, and $O(kd)$ for each map.

    Args:
        system: $A$, $B$, $C$ with symmetric $A$, one input and one output.
        residual: $r_0, \dots, r_{k-1}$, derivatives of the loss in the entries of the response; $h_j - w_j$ for half
            the sum of squares, twice this without the half.

    Returns:
        The derivatives in $A$, $B$, $C$, in the places of a system. That in $A$ is of a free matrix: one that is kept
        symmetric moves by its symmetric part.

    Raises:
        HypothesisError: The transition matrix is not symmetric.

    Example:
        >>> column = jnp.array([[1.0], [2.0]])
        >>> spectral_gradient((0.5 * jnp.eye(2), column, column.T), [0.0, 0.0, 1.0]).transition
        array([[1., 2.],
               [2., 4.]])
    """
    where = "spectral_gradient"
    transition, first, output = checked_system(where, system)
    if (first.shape[1], output.shape[0]) != (1, 1):
        raise ValueError(
            f"{where}: system must have one input and one output, but has {first.shape[1]} and {output.shape[0]}."
        )
    r = _checked_residual(where, residual)
    if is_concrete(transition):
        matrix = np.asarray(transition)
        gap, largest = float(np.abs(matrix - matrix.T).max()), SYMMETRIC * max(1.0, float(np.abs(matrix).max()))
        if not gap <= largest:
            advice = "For other systems take the gradient of a Problem with LinearRNN."
            raise HypothesisError(f"{where}: a symmetric transition matrix", gap, largest, advice)
    return _loewner(System(transition, first, output), r)


@formula
def _horner(r: Float[Array, " length"], x: Float[Array, "*points"]) -> ResidualPolynomial:
    def step(carry: ResidualPolynomial, coefficient: Float[Array, ""]) -> tuple[ResidualPolynomial, None]:
        value, slope = carry
        return ResidualPolynomial(value * x + coefficient, slope * x + value), None

    start = ResidualPolynomial(xp.zeros_like(x), xp.zeros_like(x))
    return scan(step, start, r, reverse=True)[0]


@differentiable
@formula
def _loewner(system: System, r: Float[Array, " length"]) -> System:
    transition, first, output = system
    a, basis = xp.linalg.eigh((transition + transition.T) / 2)
    b, c = basis.T @ first[:, 0], output[0] @ basis
    length = len(r)
    powers = xp.cumprod(xp.concatenate([xp.ones((1, len(a))), xp.broadcast_to(a, (length - 1, len(a)))]), axis=0)
    index = np.add.outer(np.arange(length), np.arange(length)) + 1
    hankel = xp.concatenate([r, xp.zeros_like(r)])[index]  # (q, s): r of q + s + 1, zero beyond the end
    differences = powers.T @ hankel @ powers
    values = r @ powers
    return System(
        transition=basis @ (differences * xp.outer(c, b)) @ basis.T,
        input=(basis @ (values * c))[:, None],
        output=(basis @ (values * b))[None],
    )


def _checked_residual(where: str, residual: Any) -> Float[Array, " length"]:
    check_x64(where)
    r = as_array(checked_layer(where, "residual", residual), float)
    check_shape(where, "residual", r, (None,))
    if r.size == 0:
        raise ValueError(f"{where}: residual must have at least one entry, but is empty.")
    check_finite(where, "residual", r)
    return r


@_loewner.defjvp
def _loewner_jvp(primals: tuple[System, Array], tangents: tuple[System, Array]) -> tuple[System, System]:
    # Eigenvectors have no derivative at equal eigenvalues; the gradient itself has one, as a polynomial.
    return _loewner(*primals), jax.jvp(_polynomial_gradient, primals, tangents)[1]


@formula
def _polynomial_gradient(system: System, r: Float[Array, " length"]) -> System:
    def combined(moved: System) -> Float[Array, ""]:
        matrix = moved.transition

        def step(block: Matrix, _: None) -> tuple[Matrix, Float[Array, ""]]:
            return matrix @ block, (moved.output @ block)[0, 0]

        return r @ scan(step, moved.input, None, length=len(r))[1]

    even = (system.transition + system.transition.T) / 2
    return jax.grad(combined)(System(even, system.input, system.output))
