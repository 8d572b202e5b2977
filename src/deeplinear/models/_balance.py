r"""Conserved quantities: what gradient flow of any loss of the product cannot change."""

import itertools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, Matrix, Params, as_array, entry, formula, frobenius, xp


class LambdaEstimate(NamedTuple):
    r"""How close each conserved quantity is to a multiple of the identity, one entry per pair of neighbours.

    `lam` is $\hat\lambda = \mathrm{tr}(C)/d$; `frobenius` and `operator` are the norms of $C - \hat\lambda I$.
    """

    lam: Float[Array, " pairs"]
    frobenius: Float[Array, " pairs"]
    operator: Float[Array, " pairs"]


@entry(bounded=("params",))
def conserved(params: Params) -> tuple[Matrix, ...]:
    r"""Conserved quantities $C_l = W_{l+1}^\top W_{l+1} - W_l W_l^\top$ of neighbouring layers.

    Constant along gradient flow of every loss that sees the layers through their product only. A network with
    $C_l = \lambda I$ is called $\lambda$-balanced, with $C_l = 0$ balanced.

    Args:
        params: Layers, first-acting first.

    Returns:
        One symmetric matrix per pair of neighbouring layers, of the size of the hidden layer between them.

    Example:
        >>> (c,) = conserved((jnp.ones((1, 2)), jnp.full((3, 1), 2.0)))
        >>> float(c[0, 0])
        10.0
    """
    return _conserved(params)


@entry(bounded=("params",))
def balancedness(params: Params) -> Float[Array, " pairs"]:
    r"""Frobenius norm of each conserved quantity $W_{l+1}^\top W_{l+1} - W_l W_l^\top$.

    Constant along gradient flow; zero means balanced. A single layer has no pairs and gives an empty array.

    Args:
        params: Layers, first-acting first.

    Returns:
        One norm per pair of neighbouring layers.

    Example:
        >>> balancedness((jnp.eye(2), jnp.eye(2)))
        array([0.])
    """
    return _norms(params)


@entry(bounded=("params",))
def lambda_estimate(params: Params) -> LambdaEstimate:
    r"""Best multiple of the identity for each conserved quantity, and what is left over.

    $\hat\lambda = \mathrm{tr}(C)/d$ minimises $\|C - \lambda I\|_F$. Both residuals vanish exactly for a
    $\lambda$-balanced network; for independent random layers they do not, and the operator residual may be as large
    as $|\hat\lambda|$ itself.

    Args:
        params: Layers, first-acting first.

    Returns:
        `lam`, `frobenius` and `operator`, one entry per pair of neighbouring layers.

    Example:
        >>> float(lambda_estimate((jnp.eye(2), 2.0 * jnp.eye(2))).lam[0])
        3.0
    """
    return _estimate(params)


@entry(bounded=("params", "reference"))
def drift(params: Params, reference: Params) -> Float[Array, " pairs"]:
    r"""Frobenius norm of the change of each conserved quantity since a reference state.

    Exactly zero along gradient flow, so in a computed run it measures the error of the integration; a step of
    gradient descent changes $C_l$ by $\eta^2 (g_{l+1}^\top g_{l+1} - g_l g_l^\top)$.

    Args:
        params: Layers now.
        reference: Layers to compare with, of the same shapes.

    Returns:
        One norm per pair of neighbouring layers.

    Example:
        >>> drift((jnp.eye(2), 2.0 * jnp.eye(2)), (jnp.eye(2), jnp.eye(2))).round(4)
        array([4.2426])
    """
    now, then = (tuple(tuple(np.shape(layer)) for layer in layers) for layers in (params, reference))
    if now != then:
        raise ValueError(f"drift: reference must have layer shapes {now}, as params has, but has {then}.")
    return _drift(params, reference)


@entry
def layer_strengths(s: Any, lam: Any) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    r"""Singular values $(s_1, s_2)$ of the two layers of a $\lambda$-balanced network from those of its product.

    They solve $s_1 s_2 = s$ and $s_2^2 - s_1^2 = \lambda$, so $s_{2,1}^2 = \sqrt{s^2 + \lambda^2/4} \pm \lambda/2$. The
    larger one is computed from this formula and the smaller one as a quotient, which keeps all digits for any
    $|\lambda|/s$.

    Args:
        s: Singular values $s \ge 0$ of the product.
        lam: $\lambda$, of either sign.

    Returns:
        $s_1$ of the first layer and $s_2$ of the second, of the common shape of the arguments.

    Example:
        >>> first, second = layer_strengths(2.0, 3.0)
        >>> float(first), float(second)
        (1.0, 2.0)
    """
    return _strengths(as_array(s, float), as_array(lam, float))


@formula
def _conserved(params: Params) -> tuple[Matrix, ...]:
    return tuple(above.T @ above - below @ below.T for below, above in itertools.pairwise(params))


@formula
def _norms(params: Params) -> Float[Array, " pairs"]:
    return xp.array([frobenius(c) for c in _conserved(params)], dtype=params[0].dtype)


@formula
def _estimate(params: Params) -> LambdaEstimate:
    values, sizes, operator = [], [], []
    for c in _conserved(params):
        size = c.shape[0]
        lam = xp.trace(c) / size
        rest = c - lam * xp.eye(size, dtype=c.dtype)
        values.append(lam)
        sizes.append(frobenius(rest))
        operator.append(xp.max(xp.abs(xp.linalg.eigvalsh(rest))))
    dtype = params[0].dtype
    return LambdaEstimate(xp.array(values, dtype), xp.array(sizes, dtype), xp.array(operator, dtype))


@formula
def _drift(params: Params, reference: Params) -> Float[Array, " pairs"]:
    changes = zip(_conserved(params), _conserved(reference), strict=True)
    return xp.array([frobenius(a - b) for a, b in changes], dtype=params[0].dtype)


@formula
def _strengths(s: Float[Array, "..."], lam: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    strengths, imbalance = xp.broadcast_arrays(s, lam)
    large = xp.sqrt(xp.hypot(strengths, imbalance / 2) + xp.abs(imbalance) / 2)
    small = strengths / xp.where(large > 0, large, 1.0)
    return xp.where(imbalance >= 0, small, large), xp.where(imbalance >= 0, large, small)
