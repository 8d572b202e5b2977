r"""What every closed form of two layers asks of its arguments."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    as_array,
    check_finite,
    check_number,
    check_shape,
    check_size,
    check_x64,
    formula,
    is_concrete,
    xp,
)

BALANCE_TOLERANCE = 1e-8
r"""Largest $\|W_2^\top W_2 - W_1 W_1^\top - \lambda I\|_F$, relative to $\|W_1\|_F^2 + \|W_2\|_F^2$, of layers that
count as $\lambda$-balanced. Relative also for small layers: their imbalance matters as much when they grow."""

BALANCED = "λ-balanced layers"

ROUNDING = 1e-14
r"""Estimates of $\lambda$ below this share of the squared norm of the layers are rounding, and count as 0."""


class TwoLayers(NamedTuple):
    r"""Two layers, their $\lambda$ and what they miss of it, relative to their squared norms."""

    first: Matrix
    second: Matrix
    lam: Float[Array, ""]
    residual: Float[Array, ""]


def checked_two_layers(
    where: str,
    params: Sequence[Any],
    target: object | None = None,
    lam: ArrayLike | None = None,
    *,
    tolerance: float = BALANCE_TOLERANCE,
) -> TwoLayers:
    r"""Both layers and $\lambda$ as arrays, or a refusal that names what does not hold.

    The closed forms hold for $\lambda$-balanced layers only; their error is proportional to what is missing, so layers
    that are not balanced to the tolerance are refused with the measured residual. What is seen only at run time, under
    a transformation, is refused then.

    Args:
        where: Who asks, for the message.
        params: Layers $(W_1, W_2)$.
        target: $\Sigma$, (out, in), if there is one.
        lam: $\lambda$; by default $\mathrm{tr}(W_2^\top W_2 - W_1 W_1^\top)$ over the hidden width, exactly 0 where it
            is so to rounding.
        tolerance: Largest residual.

    Returns:
        Layers, $\lambda$ and residual.

    Raises:
        ValueError: For shapes that do not fit and entries that are not finite.
        HypothesisError: For layers that are not balanced.

    Example:
        >>> float(checked_two_layers("here", (jnp.eye(2), 2 * jnp.eye(2)), jnp.ones((2, 2))).lam)
        3.0
    """
    check_x64(where)
    check_number(where, "tolerance", tolerance, above=0)
    if len(params) != 2:
        raise ValueError(f"{where}: params must be two layers, but has {len(params)}.")
    first, second = (as_array(layer, float) for layer in params)
    check_shape(where, "params[0]", first, (None, None))
    check_shape(where, "params[1]", second, (None, first.shape[0]))
    if 0 in (*first.shape, *second.shape):
        raise ValueError(f"{where}: params must have no empty layer, but has shapes {first.shape} and {second.shape}.")
    named = [("params[0]", first), ("params[1]", second)]
    if target is not None:
        sigma = xp.asarray(target, dtype=float)
        check_shape(where, "target", sigma, (second.shape[0], first.shape[1]))
        named.append(("target", sigma))
    for name, array in named:
        check_finite(where, name, array)
    if lam is not None:
        check_number(where, "lam", lam)
    if all(is_concrete(x) for x in (first, second, lam)):
        for name, array in named:
            check_size(where, name, array, small=True)
        scale, residual, size = (float(x) for x in _balance(first, second, lam))
        scale = scale if lam is not None or abs(scale) > ROUNDING * size else 0.0
        if not residual <= tolerance:
            told = f"the best λ is {scale:.6g}" if lam is None else f"measured for λ = {scale:.6g}"
            advice = "Start from LambdaBalanced or FromSVD, re-balance them with rebalance, or simulate instead."
            raise HypothesisError(BALANCED, residual, tolerance, f"{where}: {told}. {advice}")
        return TwoLayers(first, second, as_array(scale, float), as_array(residual, float))
    scale, residual, _ = _balance(first, second, lam)
    message = f"{where}: params must be λ-balanced, W₂ᵀW₂ − W₁W₁ᵀ = λI, but are not."
    first = eqx.error_if(first, ~(residual <= tolerance), message)
    return TwoLayers(first, second, scale, residual)


@formula
def _balance(first: Matrix, second: Matrix, lam: ArrayLike | None) -> tuple[Array, Array, Array]:
    r"""$\lambda$, what the layers miss of it, and their squared norm."""
    balance = second.T @ second - first @ first.T
    hidden = first.shape[0]
    size = xp.sum(first**2) + xp.sum(second**2)
    scale = xp.trace(balance) / hidden if lam is None else xp.asarray(lam, dtype=float)
    # A norm with a derivative also at zero, where layers are balanced.
    squared = xp.sum((balance - scale * xp.eye(hidden)) ** 2)
    missed = xp.where(squared == 0, 0.0, xp.sqrt(xp.where(squared == 0, 1.0, squared)))
    return scale, missed / xp.where(size > 0, size, 1.0), size


def check_time(where: str, t: ArrayLike) -> None:
    """Refuse a time that is negative, where the solution may blow up, or not finite."""
    check_number(where, "t", t, at_least=0)
