"""Speeds of the singular values of the product under gradient flow from balanced layers."""

import itertools

import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Params,
    check_finite,
    check_number,
    check_result,
    check_x64,
    entry,
    formula,
    is_concrete,
    svd,
    xp,
)
from deeplinear.models import DeepLinear, Problem

BALANCE_TOLERANCE = 1e-8
r"""Largest $\|C_l\|_F$, relative to the largest $\|W_l\|_F^2$, that counts as balanced."""

GAP_TOLERANCE = 1e-8
"""Singular values closer than this, relative to the largest, count as equal."""


@entry
def singular_value_speed(
    problem: Problem, params: Params, *, balance_tolerance: float = BALANCE_TOLERANCE
) -> Float[Array, " modes"]:
    r"""Time derivatives of the singular values of the product under gradient flow, for balanced layers.

    With $W = \sum_k \sigma_k u_k v_k^\top$, $G = \nabla E(W)$, depth $L$ and penalty $\gamma$,

    $$\dot\sigma_k = -L\,\sigma_k^{2-2/L}\,u_k^\top G\,v_k - L\gamma\,\sigma_k.$$

    A singular value that is zero stays zero, $L \ge 2$. Balanced layers stay balanced.

    Args:
        problem: A `DeepLinear` model of any depth with any loss.
        params: Balanced layers whose product has distinct positive singular values.
        balance_tolerance: Largest imbalance, relative to the largest squared norm of a layer, that passes.

    Returns:
        One speed per singular value, in the order of the singular values, largest first.

    Raises:
        HypothesisError: If the layers are not balanced, or two positive singular values coincide, so that their
            singular vectors are not determined.

    Example:
        >>> problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.diag(jnp.array([5.0, 3.0]))))
        >>> layer = jnp.diag(jnp.array([2.0, 1.0]))
        >>> singular_value_speed(problem, (layer, layer))
        array([8., 4.])
    """
    where = "singular_value_speed"
    check_x64(where)
    check_number(where, "balance_tolerance", balance_tolerance, above=0)
    if not isinstance(problem.model, DeepLinear):
        raise TypeError(f"{where}: the model of problem must be DeepLinear, but is {type(problem.model).__name__}.")
    problem.check(params, where)
    for position, layer in enumerate(params):
        check_finite(where, f"params[{position}]", layer)
    size = max(float(np.sum(np.asarray(layer) ** 2)) for layer in params) if all(map(is_concrete, params)) else 0.0
    if size > 0 and len(params) > 1:
        layers = [np.asarray(layer) for layer in params]
        gaps = [np.linalg.norm(above.T @ above - below @ below.T) for below, above in itertools.pairwise(layers)]
        residual = float(max(gaps)) / size
        if residual > balance_tolerance:
            raise HypothesisError(
                "balanced layers", residual, balance_tolerance, "Start from the Balanced initialisation."
            )
    speeds, values = _speeds(problem, params)
    if is_concrete(values) and (largest := float(np.asarray(values)[0])) > 0:
        relative = np.asarray(values) / largest
        gaps = -np.diff(relative[relative > GAP_TOLERANCE])
        if gaps.size and gaps.min() < GAP_TOLERANCE:
            raise HypothesisError(
                "distinct singular values",
                float(GAP_TOLERANCE - gaps.min()),
                0,
                f"Two singular values differ by {gaps.min():.1e} of the largest; their vectors are not determined.",
            )
    return check_result("singular_value_speed", speeds)


@formula
def _speeds(problem: Problem, params: Params) -> tuple[Float[Array, " modes"], Float[Array, " modes"]]:
    """Speeds, and the singular values."""
    product = problem.product(params)
    left, values, right = svd(product)
    depth = len(params)
    projected = xp.einsum("ik,ij,kj->k", left, problem.loss.gradient(product), right)
    return -depth * (values ** (2 - 2 / depth) * projected + problem.l2 * values), values
