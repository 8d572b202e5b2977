r"""Changes of basis in the hidden layers: what the product, and with it the loss, does not see.

Invertible matrices $P_1, \dots, P_{L-1}$ act on a network by $W_l \mapsto P_l W_l P_{l-1}^{-1}$ with $P_0 = I$ and
$P_L = I$. The product stays what it is. Orthogonal factors keep the gradient flow too, and turn the conserved
quantities, $C_l \mapsto P_l C_l P_l^\top$; other factors change both.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    Params,
    RandomKey,
    as_array,
    check_finite,
    check_key,
    check_number,
    check_result,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    formula,
    is_concrete,
    put,
    random,
    random_orthogonal,
    spectrum,
    xp,
)
from deeplinear.landscape._arguments import checked_chain, checked_network

LARGEST_CONDITION = 1e12
"""Condition number above which a factor counts as singular: nothing would be left of the product."""


def _invertible(where: str, name: str, factor: Matrix) -> Matrix:
    """The factor, unless its condition number is too large; under a transformation it is looked at when it runs."""
    if is_concrete(factor):
        condition = float(np.linalg.cond(np.asarray(factor)))
        if not condition <= LARGEST_CONDITION:
            raise HypothesisError(
                f"{where}: {name} is invertible (condition number)", condition, LARGEST_CONDITION, "Take another one."
            )
        return factor
    return eqx.error_if(
        factor,
        ~(xp.linalg.cond(factor) <= LARGEST_CONDITION),
        f"{where}: {name} must be invertible, with a condition number of at most {LARGEST_CONDITION:g}.",
    )


@entry
def gauge(params: Iterable[Any], factors: Sequence[Any]) -> Params:
    r"""Change of basis in the hidden layers, $W_l \mapsto P_l W_l P_{l-1}^{-1}$ with $P_0 = P_L = I$.

    The product of the layers does not change. The map is linear in the layers, so a direction is transformed by the
    same call, and the Hessian form obeys $\mathrm{Hess}(PWP^{-1}; PVP^{-1}) = \mathrm{Hess}(W; V)$. Gradient flow
    commutes with it if and only if the factors are orthogonal, up to special cases.

    Args:
        params: Layers, first-acting first, or a direction of them.
        factors: $P_1, \dots, P_{L-1}$, one invertible matrix for each hidden layer.

    Returns:
        The layers in the new bases.

    Raises:
        HypothesisError: A factor is singular, or has a condition number above $10^{12}$.

    Example:
        >>> first, second = gauge(([[1.0], [2.0]], [[3.0, 4.0]]), [[[2.0, 0.0], [0.0, 1.0]]])
        >>> first.tolist(), second.tolist(), (second @ first).tolist()
        ([[2.0], [2.0]], [[1.5, 4.0]], [[11.0]])
    """
    where = "gauge"
    layers = checked_chain(where, params)
    bases = tuple(factors)
    if len(bases) != len(layers) - 1:
        raise ValueError(
            f"{where}: factors must hold one matrix for each of the {len(layers) - 1} hidden layers, but holds "
            f"{len(bases)}; the outer layers keep their bases."
        )
    checked = []
    for position, (layer, given) in enumerate(zip(layers[:-1], bases, strict=True)):
        name = f"factors[{position}]"
        factor = as_array(checked_layer(where, name, given), float)
        check_shape(where, name, factor, (layer.shape[0], layer.shape[0]))
        check_finite(where, name, factor)
        checked.append(_invertible(where, name, factor))
    return check_result("gauge", _moved(layers, checked))


@formula
def _moved(layers: Params, factors: list[Matrix]) -> Params:
    moved = list(layers)
    for position, factor in enumerate(factors):
        moved[position] = factor @ moved[position]
        moved[position + 1] = xp.linalg.solve(factor.T, moved[position + 1].T).T
    return tuple(moved)


@entry
def random_gauge(key: RandomKey, widths: Sequence[int], *, condition: ArrayLike = 1.0) -> tuple[Matrix, ...]:
    r"""Random factors for `gauge`: $P_l = U D V^\top$ with Haar-random $U, V$ and a given condition number.

    The logarithms of the singular values are uniform between $\pm\tfrac12\log\kappa$, both ends being taken. With
    $\kappa = 1$ the factors are Haar-random orthogonal matrices.

    Args:
        key: Source of randomness.
        widths: $(d_0, \dots, d_L)$.
        condition: $\kappa \ge 1$ of every factor of a layer with at least two units.

    Returns:
        One matrix for each hidden layer.

    Example:
        >>> factors = random_gauge(jax.random.key(0), (3, 4, 2, 2), condition=10.0)
        >>> [round(float(jnp.linalg.cond(factor)), 6) for factor in factors]
        [10.0, 10.0]
    """
    where = "random_gauge"
    check_x64(where)
    check_key(where, key)
    hidden = checked_network(where, widths).widths[1:-1]
    check_number(where, "condition", condition, at_least=1, at_most=LARGEST_CONDITION)
    return _random_factors(key, hidden, xp.asarray(condition, dtype=float))


@formula(static_argnums=1)
def _random_factors(key: RandomKey, sizes: tuple[int, ...], condition: Float[Array, ""]) -> tuple[Matrix, ...]:
    reach, factors = xp.log(condition), []
    for number, size in enumerate(sizes):
        left, right, inside = random.split(random.fold_in(key, number), 3)
        place = random.uniform(inside, (size,), minval=-0.5, maxval=0.5, dtype=reach.dtype)
        if size > 1:
            place = put(place, slice(2), xp.array([-0.5, 0.5]))
        factors.append((random_orthogonal(left, size) * xp.exp(reach * place)) @ random_orthogonal(right, size).T)
    return tuple(factors)


@entry
def orthogonal_defect(factors: Sequence[Any]) -> Float[Array, " hidden"]:
    r"""$\|P_l^\top P_l - I\|_2$ of every factor: zero where the change of basis commutes with gradient flow.

    Args:
        factors: Square matrices, one for each hidden layer.

    Returns:
        One number for each factor.

    Example:
        >>> orthogonal_defect(([[0.0, -1.0], [1.0, 0.0]], [[2.0]]))
        array([0., 3.])
    """
    where = "orthogonal_defect"
    check_x64(where)
    matrices = []
    for position, given in enumerate(factors):
        factor = as_array(checked_layer(where, f"factors[{position}]", given), float)
        check_shape(where, f"factors[{position}]", factor, (None, None))
        check_shape(where, f"factors[{position}]", factor, (factor.shape[0], factor.shape[0]))
        check_finite(where, f"factors[{position}]", factor)
        matrices.append(factor)
    return check_result("orthogonal_defect", _defects(matrices))


@formula
def _defects(factors: list[Matrix]) -> Float[Array, " hidden"]:
    found = [spectrum(factor.T @ factor - xp.eye(factor.shape[0]))[0] for factor in factors]
    return xp.array(found, dtype=float)
