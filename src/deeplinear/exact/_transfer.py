r"""Transfer of a new feature: what a frozen first layer makes of one labelled item.

A row $w$ appended to $W_2$ and trained alone on one item $x_i$ with label 1 ends at $W_1 x_i / \|W_1 x_i\|^2$ if it
starts small, so that the response to every other item is a ratio of entries of $W_1^\top W_1$.
"""

import math

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    check_count,
    check_finite,
    check_result,
    check_shape,
    check_x64,
    entry,
    formula,
    is_concrete,
    polar,
    put,
    stop_gradient,
    xp,
)
from deeplinear.exact._growing import learnt
from deeplinear.exact._riccati import Correlations
from deeplinear.models import layer_strengths

LEAST_RESPONSE = 1e-14
r"""An item whose $x^\top W_1^\top W_1 x$ is smaller than this, relative to $\mathrm{tr}(W_1^\top W_1)\|x\|^2$, is not
represented: nothing can be learned from it."""


@entry
def transfer_kernel(target: object, lam: ArrayLike) -> Float[Array, "inp inp"]:
    r"""Similarity $W_1^\top W_1 = V S_1^2 V^\top$ of items in the hidden layer of a network trained on $\Sigma$.

    With $S_1^2 = \sqrt{S^2 + \lambda^2/4} - \lambda/2$ this is $V S V^\top$ at $\lambda = 0$. Infinite $\lambda$ stands
    for the limits up to a positive factor, which responses do not see: $V V^\top$ at $-\infty$, where the hidden layer
    tells all items apart and no more, and $V S^2 V^\top = \Sigma^\top\Sigma$ at $+\infty$.

    Args:
        target: $\Sigma = U S V^\top$, (out, in), on whitened inputs.
        lam: $\lambda$ of the network, or `-math.inf`, or `math.inf`.

    Returns:
        The kernel, (in, in).

    Example:
        >>> transfer_kernel(jnp.array([[2.0, 0.0]]), 3.0)
        array([[1., 0.],
               [0., 0.]])
    """
    where = "transfer_kernel"
    sigma = _task(where, target)
    relative = xp.asarray(lam, dtype=float)
    check_shape(where, "lam", relative, ())
    if is_concrete(relative) and math.isnan(float(relative)):
        raise ValueError(f"{where}: lam must be a number or an infinity, but is not a number.")
    finite = xp.isfinite(relative)
    moderate = xp.where(finite, relative, 1.0)
    fixed, number = stop_gradient((sigma, moderate))
    left, strengths, right_t = xp.linalg.svd(fixed, full_matrices=False)
    first, second = layer_strengths(strengths, number)
    found = Correlations((right_t.T * first**2) @ right_t, fixed, (left * second**2) @ left.T)
    kernel = learnt(where, len(strengths), found, sigma, moderate).input
    frame = polar(sigma) if sigma.shape[0] >= sigma.shape[1] else polar(sigma.T).T
    limit = xp.where(relative > 0, sigma, frame)
    return xp.where(finite, kernel, limit.T @ limit)


@entry
def new_feature_response(
    input_correlation: Float[Array, "inp inp"], item: int, inputs: object | None = None
) -> Float[Array, " items"]:
    r"""Response $x_i^\top a X / (x_i^\top a x_i)$, $a = W_1^\top W_1$, of a new feature that was taught on one item.

    The rest of the network is frozen and the new row starts at zero (a small start adds as small a response).

    Args:
        input_correlation: $a$, (in, in), such as `Correlations.input` or `transfer_kernel`.
        item: Position $i$ of the item that is taught, counted from 0.
        inputs: $X$ with one item per column, (in, items); one-hot items by default.

    Returns:
        The response to every item; 1 for the one that was taught.

    Raises:
        HypothesisError: If the hidden layer does not represent the item.

    Example:
        >>> new_feature_response(jnp.array([[4.0, 1.0], [1.0, 4.0]]), 0)
        array([1.  , 0.25])
    """
    where = "new_feature_response"
    a = xp.asarray(input_correlation, dtype=float)
    check_shape(where, "input_correlation", a, (None, a.shape[0] if a.ndim else None))
    check_finite(where, "input_correlation", a)
    x = xp.asarray(np.eye(a.shape[0]) if inputs is None else inputs, dtype=float)
    check_shape(where, "inputs", x, (a.shape[0], None))
    check_finite(where, "inputs", x)
    _check_item(where, item, x.shape[1])
    found, own, scale = _response(a, x, item)
    if is_concrete(own) and not float(own) > LEAST_RESPONSE * float(scale):
        raise HypothesisError(
            "the hidden layer represents the item",
            float(own) / float(scale) if float(scale) > 0 else 0.0,
            LEAST_RESPONSE,
            "The residual, xᵀW₁ᵀW₁x / (tr(W₁ᵀW₁) |x|²), must be larger: train the network, or take another item.",
        )
    return found


@formula
def _response(
    a: Matrix, x: Matrix, item: ArrayLike
) -> tuple[Float[Array, " items"], Float[Array, ""], Float[Array, ""]]:
    """The response, its size for the item itself, and what this could be at most."""
    taught = x[:, item]
    answers = taught @ a @ x
    return answers / answers[item], answers[item], xp.trace(a) * xp.sum(taught**2)


@entry
def transfer_target(target: object, item: int) -> Float[Array, " inp"]:
    r"""Responses $(\Sigma^\top\Sigma)_{i\cdot}/(\Sigma^\top\Sigma)_{ii}$ which the task suggests for a new feature.

    Items share the new feature as far as they share their features in the task. It is the response of a trained
    network as $\lambda \to \infty$.

    Args:
        target: $\Sigma$, (out, in), one-hot items.
        item: Position $i$ of the item that is taught, counted from 0.

    Returns:
        One number per item; 1 for the one that was taught.

    Example:
        >>> x, y = semantic_hierarchy()
        >>> transfer_target(y @ x.T / 8, 0)[:4].round(6)
        array([1.  , 0.5 , 0.25, 0.25])
    """
    where = "transfer_target"
    sigma = _task(where, target)
    _check_item(where, item, sigma.shape[1])
    shared, own = _shared(sigma, item)
    if is_concrete(own) and not float(own) > 0:
        raise ValueError(f"{where}: target must have a column {item} that is not zero, but it is.")
    return check_result("transfer_target", shared)


@formula
def _shared(sigma: Matrix, item: ArrayLike) -> tuple[Float[Array, " inp"], Float[Array, ""]]:
    similarity = sigma[:, item] @ sigma
    return similarity / similarity[item], similarity[item]


@entry
def generalisation_loss(
    response: Float[Array, " items"], expected: Float[Array, " wanted"], item: int
) -> Float[Array, ""]:
    r"""Loss $\tfrac12\sum_{j \ne i}(y_j - y^\star_j)^2$ of a new feature on the items it was not taught on.

    Args:
        response: $y$, from `new_feature_response`.
        expected: $y^\star$, such as `transfer_target`.
        item: Position $i$ of the item that was taught.

    Example:
        >>> float(generalisation_loss(jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]), 0))
        0.5
    """
    where = "generalisation_loss"
    found, wanted = xp.asarray(response, dtype=float), xp.asarray(expected, dtype=float)
    check_shape(where, "response", found, (None,))
    check_shape(where, "expected", wanted, found.shape)
    _check_item(where, item, found.shape[0])
    return _loss_of_others(found, wanted, item)


@formula
def _loss_of_others(found: Array, wanted: Array, item: ArrayLike) -> Float[Array, ""]:
    return 0.5 * xp.sum(put((found - wanted) ** 2, item, 0.0))


def _task(where: str, target: object) -> Matrix:
    check_x64(where)
    sigma = xp.asarray(target, dtype=float)
    check_shape(where, "target", sigma, (None, None))
    check_finite(where, "target", sigma)
    return sigma


def _check_item(where: str, item: int, count: int) -> None:
    check_count(where, "item", item, at_least=0, at_most=count - 1)
