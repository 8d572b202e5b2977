r"""How far layers are from balance: relative to their size, and for Gaussian layers on average.

The imbalance between neighbours is $W_{l+1}^\top W_{l+1} - W_l W_l^\top$, `models.conserved`. Its mean over independent
Gaussian layers of one size is zero, but its size is that of $W_l W_l^\top$ itself, whatever the scale: such layers are
small, and not balanced.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, Params, as_array, check_count, check_number, checked_params, entry, formula, xp
from deeplinear.geometry._metric import checked_point
from deeplinear.models import DeepLinear, balancedness


class GaussianImbalance(NamedTuple):
    r"""Averages over independent Gaussian layers of width $d$ and standard deviation $\sigma$.

    The mean imbalance itself is zero.

    Attributes:
        square: $\mathbb E\|W_{l+1}^\top W_{l+1} - W_l W_l^\top\|_F^2 = 2\sigma^4 d^2(d+1)$.
        layer_square: $\mathbb E\|W_l W_l^\top\|_F^2 = \sigma^4 d^2(2d+1)$.
    """

    square: Float[Array, ""]
    layer_square: Float[Array, ""]

    @property
    def relative(self) -> Float[Array, ""]:
        r"""Ratio of the two, $2(d+1)/(2d+1)$: above 1, and of no scale."""
        return self.square / self.layer_square


@entry
def gaussian_imbalance(size: int, std: Any) -> GaussianImbalance:
    r"""Mean squares of the imbalance of independent Gaussian layers and of what it is a difference of.

    Args:
        size: Width $d$ of the square layers.
        std: Standard deviation $\sigma$ of their entries.

    Example:
        >>> found = gaussian_imbalance(3, 0.1)
        >>> round(float(found.square), 12), round(float(found.relative), 12)
        (0.0072, 1.142857142857)
    """
    where = "gaussian_imbalance"
    check_count(where, "size", size, at_least=1)
    check_number(where, "std", std, above=0)
    fourth = as_array(std, float) ** 4 * size**2
    return GaussianImbalance(2 * (size + 1) * fourth, (2 * size + 1) * fourth)


@entry(bounded=("params",))
def relative_imbalance(params: Any) -> Float[Array, ""]:
    r"""Largest imbalance over the largest layer: $\max_l\|W_{l+1}^\top W_{l+1} - W_lW_l^\top\|_F / \max_l\|W_l\|_F^2$.

    Args:
        params: Layers of any widths, first-acting first.

    Returns:
        A number that scaling all layers does not change; 0 for a single layer.

    Example:
        >>> float(relative_imbalance((jnp.eye(1), 2.0 * jnp.eye(1))))
        0.75
    """
    return _relative(checked_chain("relative_imbalance", params))


@formula
def _relative(layers: Params) -> Float[Array, ""]:
    largest = xp.max(xp.stack([xp.sum(layer**2) for layer in layers]))
    found = xp.max(balancedness(layers), initial=0.0)
    return xp.where(largest > 0, found / xp.where(largest > 0, largest, 1.0), 0.0)


@entry(instead="call it outside of jit, vmap and grad, or use relative_imbalance, which can be traced")
def is_balanced(params: Any, *, tolerance: float = 1e-8) -> bool:
    """Whether the relative imbalance of layers is at most the tolerance.

    Args:
        params: Layers of any widths, first-acting first.
        tolerance: Largest relative imbalance that is taken for none.

    Example:
        >>> is_balanced((jnp.eye(2), -jnp.eye(2))), is_balanced((jnp.eye(2), 2.0 * jnp.eye(2)))
        (True, False)
    """
    check_number("is_balanced", "tolerance", tolerance, at_least=0)
    return bool(np.asarray(relative_imbalance(params)) <= tolerance)


def checked_chain(where: str, params: Any) -> Params:
    """Layers of finite numbers whose shapes chain, or a refusal."""
    layers: Params = tuple(
        checked_point(where, f"params[{k}]", layer) for k, layer in enumerate(checked_params(where, "params", params))
    )
    DeepLinear((layers[0].shape[1], *(layer.shape[0] for layer in layers))).check(layers, where)
    return layers
