r"""Two layers without their weights: the flow of the product alone."""

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    as_array,
    check_finite,
    check_number,
    check_result,
    check_shape,
    check_x64,
    entry,
    formula,
    is_concrete,
    stop_gradient,
    xp,
)
from deeplinear.exact._growing import learnt
from deeplinear.exact._riccati import Correlations

FULL_RANK = 1e-12
"""Smallest singular value, relative to the largest, of a product of full rank."""


@entry
def function_space_field(product: object, target: object, lam: ArrayLike) -> Matrix:
    r"""Time derivative of the product $W = W_2 W_1$ of $\lambda$-balanced layers under gradient flow, from $W$ alone.

    With $W = U S V^\top$ and $s_\lambda = \sqrt{s^2 + \lambda^2/4}$ it is
    $\dot W = U(s_\lambda + \tfrac\lambda2)U^\top E + E\,V(s_\lambda - \tfrac\lambda2)V^\top$, $E = \Sigma - W$: layers
    with as many hidden units as modes are determined by $W$ and $\lambda$ up to a rotation, as long as $W$ has full
    rank. For square products it is $\sqrt{WW^\top + \lambda^2/4}\,E + E\sqrt{W^\top W + \lambda^2/4}$, even in
    $\lambda$. Elsewhere it jumps where the rank drops, if $\lambda(d_{\mathrm{out}} - d_{\mathrm{in}}) > 0$, and is a
    poor reference near there.

    Args:
        product: $W$, (out, in), of full rank: $\min(d_{\mathrm{in}}, d_{\mathrm{out}})$ hidden units.
        target: $\Sigma$, (out, in).
        lam: $\lambda$.

    Returns:
        $\dot W$.

    Raises:
        HypothesisError: Where the product is rank deficient.

    Example:
        >>> function_space_field(jnp.array([[3.0]]), jnp.array([[4.0]]), 8.0)
        array([[10.]])
    """
    where = "function_space_field"
    check_x64(where)
    function, sigma = xp.asarray(product, dtype=float), xp.asarray(target, dtype=float)
    check_shape(where, "product", function, (None, None))
    check_shape(where, "target", sigma, function.shape)
    if 0 in function.shape:
        raise ValueError(f"{where}: product must have at least one row and one column, but has shape {function.shape}.")
    for name, array in (("product", function), ("target", sigma)):
        check_finite(where, name, array)
    check_number(where, "lam", lam)
    speed, values = _field(function, sigma, as_array(lam, float))
    if is_concrete(values):
        smallest, largest = float(np.asarray(values)[-1]), float(np.asarray(values)[0])
        share = smallest / largest if largest > 0 else 0.0
        if not share > FULL_RANK:
            raise HypothesisError(
                "product of full rank (1 − s_min/s_max)",
                1 - share,
                1 - FULL_RANK,
                f"{where}: s_min/s_max is {share:.1e}; the layers are not determined by the product. Use the weights.",
            )
    return check_result(where, speed)


@formula
def _field(function: Matrix, sigma: Matrix, imbalance: Float[Array, ""]) -> tuple[Matrix, Float[Array, " modes"]]:
    """The speed, and the singular values of the product."""
    fixed, number = stop_gradient((function, imbalance))
    left, values, right_t = xp.linalg.svd(fixed, full_matrices=False)
    # Of s_λ ± λ/2 the smaller is s² over the larger.
    large = xp.hypot(values, number / 2) + xp.abs(number) / 2
    small = values * (values / xp.where(large > 0, large, 1.0))
    output, inner = xp.where(number >= 0, large, small), xp.where(number >= 0, small, large)
    layers = Correlations((right_t.T * inner) @ right_t, fixed, (left * output) @ left.T)
    layers = learnt("function_space_field", len(values), layers, function, imbalance)
    error = sigma - function
    return layers.output @ error + error @ layers.input, values
