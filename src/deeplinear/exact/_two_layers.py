r"""What every closed form of two layers asks of its arguments."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from deeplinear.core import HypothesisError, Matrix, check_finite, check_number, check_shape, check_x64, is_concrete

BALANCE_TOLERANCE = 1e-8
r"""Largest $\|W_2^\top W_2 - W_1 W_1^\top - \lambda I\|_F$ over $\max(1, \|W_1\|_F^2 + \|W_2\|_F^2)$ of layers that
count as $\lambda$-balanced."""

BALANCED = "λ-balanced layers, W₂ᵀW₂ − W₁W₁ᵀ = λI"


def checked_two_layers(
    where: str, params: Sequence[Any], target: object, lam: ArrayLike | None = None
) -> tuple[Matrix, Matrix, Float[Array, ""]]:
    r"""Both layers and $\lambda$ as arrays, or a refusal that names what does not hold.

    The closed forms hold for $\lambda$-balanced layers only; their error is proportional to what is missing, so layers
    that are not balanced to `BALANCE_TOLERANCE` are refused with the measured residual. What is seen only at run time,
    under a transformation, is refused then.

    Args:
        where: Who asks, for the message.
        params: Layers $(W_1, W_2)$.
        target: $\Sigma$, (out, in).
        lam: $\lambda$; by default $\mathrm{tr}(W_2^\top W_2 - W_1 W_1^\top)$ over the hidden width.

    Returns:
        $W_1$, $W_2$ and $\lambda$.

    Raises:
        ValueError: For shapes that do not fit and entries that are not finite.
        HypothesisError: For layers that are not balanced.

    Example:
        >>> first, second, lam = checked_two_layers("here", (jnp.eye(2), 2 * jnp.eye(2)), jnp.ones((2, 2)))
        >>> float(lam)
        3.0
    """
    check_x64(where)
    if len(params) != 2:
        raise ValueError(f"{where}: params must be two layers, but has {len(params)}.")
    first, second = (jnp.asarray(layer, dtype=float) for layer in params)
    check_shape(where, "params[0]", first, (None, None))
    check_shape(where, "params[1]", second, (None, first.shape[0]))
    if 0 in (*first.shape, *second.shape):
        raise ValueError(f"{where}: params must have no empty layer, but has shapes {first.shape} and {second.shape}.")
    sigma = jnp.asarray(target, dtype=float)
    check_shape(where, "target", sigma, (second.shape[0], first.shape[1]))
    for name, array in (("params[0]", first), ("params[1]", second), ("target", sigma)):
        check_finite(where, name, array)
    if lam is not None:
        check_number(where, "lam", lam)
    if all(is_concrete(x) for x in (first, second, lam)):
        scale, residual, allowed = _balance(np, np.asarray(first), np.asarray(second), lam)
        if not float(residual) <= float(allowed):
            raise _unbalanced(where, float(residual), float(allowed), None if lam is None else float(scale))
        return first, second, jnp.asarray(scale, dtype=float)
    scale, residual, allowed = _balance(jnp, first, second, lam)
    message = f"{where}: params must be λ-balanced, W₂ᵀW₂ − W₁W₁ᵀ = λI, but are not."
    return eqx.error_if(first, ~(residual <= allowed), message), second, jnp.asarray(scale, dtype=float)


def _balance(numpy: Any, first: Any, second: Any, lam: ArrayLike | None) -> tuple[Any, Any, Any]:
    r"""$\lambda$, what the layers miss of it, and how much they may."""
    balance = second.T @ second - first @ first.T
    hidden = first.shape[0]
    scale = numpy.trace(balance) / hidden if lam is None else numpy.asarray(lam, dtype=float)
    residual = numpy.linalg.norm(balance - scale * numpy.eye(hidden))
    return scale, residual, BALANCE_TOLERANCE * numpy.maximum(1.0, numpy.sum(first**2) + numpy.sum(second**2))


def check_time(where: str, t: ArrayLike) -> None:
    """Refuse a time that is negative, where the solution may blow up, or not finite."""
    check_number(where, "t", t, at_least=0)


def _unbalanced(where: str, residual: float, allowed: float, lam: float | None) -> HypothesisError:
    told = "for no λ" if lam is None else f"not for λ = {lam:g}"
    return HypothesisError(
        BALANCED,
        residual,
        allowed,
        f"{where}: the layers are balanced {told}. Start from LambdaBalanced or FromSVD, or simulate instead.",
    )
