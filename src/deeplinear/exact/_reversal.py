r"""Reversal: a trained network learns the same task with some of its modes turned round.

A reversed mode starts at $-s$ and must reach $s$ through zero. At $\lambda = 0$ zero is a saddle and the mode stays
there; any other $\lambda$ carries it past in a time that grows like $\ln(1/|\lambda|)/s$.
"""

from collections.abc import Sequence

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    Matrix,
    are_tied,
    check_count,
    check_finite,
    check_shape,
    entry,
    formula,
    full_svd,
    is_concrete,
    refused_derivative,
    xp,
)
from deeplinear.exact._modes import learning_time


@entry
def reversal_task(target: object, modes: int | Sequence[int]) -> Matrix:
    r"""The task $\Sigma - 2\sum_{i \in I} s_i u_i v_i^\top$, which has some singular modes of $\Sigma$ reversed.

    A mode of a repeated singular value is the one that the decomposition happens to give.

    Args:
        target: $\Sigma = U S V^\top$, (out, in).
        modes: $I$, positions of the modes counted from 0, largest singular value first.

    Returns:
        The reversed task, with the same singular values.

    Example:
        >>> reversal_task(jnp.diag(jnp.array([3.0, 2.0])), 1)
        array([[ 3.,  0.],
               [ 0., -2.]])
    """
    where = "reversal_task"
    sigma = xp.asarray(target, dtype=float)
    check_shape(where, "target", sigma, (None, None))
    check_finite(where, "target", sigma)
    chosen = [modes] if isinstance(modes, int | np.integer) else list(modes)
    count = min(sigma.shape)
    for mode in chosen:
        check_count(where, "modes", mode, at_least=0, at_most=count - 1)
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"{where}: modes must differ from each other, but are {chosen}.")
    picked = np.zeros(count)
    picked[chosen] = 1.0
    return _turned(sigma, picked)


@formula
def _turned(sigma: Matrix, picked: Float[Array, " modes"]) -> Matrix:
    """The matrix with those of its modes reversed for which there is a 1."""
    left, strengths, right_t = full_svd(sigma)
    modes = strengths.shape[0]
    turned = sigma - 2 * (left[:, :modes] * (picked * strengths)) @ right_t[:modes]
    message = "reversal_task: modes whose singular values coincide have no derivative; move target a little."
    return refused_derivative(turned, are_tied(strengths, (1, 1)), message)


@entry
def reversal_time(strength: ArrayLike, lam: ArrayLike, fraction: ArrayLike) -> Float[Array, "..."]:
    r"""Time a reversed mode takes for a given fraction of its way from $-s$ to $s$.

    As $\lambda \to 0$ it grows like $\ln(1/|\lambda|)/s$ for fractions of one half and more; at $\lambda = 0$ these are
    never reached.

    Args:
        strength: $s > 0$, singular value of the mode.
        lam: $\lambda$, of either sign.
        fraction: Of the way, between 0 and 1 and neither.

    Returns:
        The time, of the common shape of the arguments; infinite where it is never reached.

    Example:
        >>> early, late = reversal_time(2.0, jnp.array([1e-6, 1e-7]), 0.9)
        >>> round(float((late - early) / jnp.log(10.0)), 6)
        0.5
    """
    start = xp.asarray(strength, dtype=float)
    check_finite("reversal_time", "strength", start)
    if is_concrete(start) and not np.all(np.asarray(start) > 0):
        raise ValueError(f"reversal_time: strength must be greater than 0, but reaches {np.min(np.asarray(start)):g}.")
    return learning_time(fraction, -start, start, lam)
