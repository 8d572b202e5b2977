r"""Diagonal layers: modes that do not see each other, in any number of layers.

If every layer is diagonal and so is the target, the weights $\xi_{ij}$ (layer $i$, mode $j$) follow
$\dot\xi_{ij} = \bar\xi_{ij}(\sigma_j - \hat\xi_j)$, with $\hat\xi_j = \prod_k \xi_{kj}$ and $\bar\xi_{ij}$ the product
of the other layers. Each mode is a chain of numbers, solved by `layer_mode`; what is special to several of them is
here. A mode keeps $\xi_{ij}^2 - \xi_{i+1,j}^2$; entries of hidden units and inputs that no output sees do not move.
Products of the others are made without a division: weights may be zero.
"""

import enum
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from deeplinear.core import (
    Array,
    HypothesisError,
    Params,
    as_array,
    check_number,
    check_result,
    check_x64,
    checked_params,
    entry,
    formula,
    is_concrete,
    over,
    put,
    refused_derivative,
    stop_gradient,
    xp,
)
from deeplinear.exact._block_algebra import Numbers, checked, positive, spread
from deeplinear.exact._layer_modes import layer_mode
from deeplinear.exact._mode_flow import log_smallest


class Ending(enum.IntEnum):
    """Where a mode ends."""

    minimum = 0
    """Its product is its target."""
    saddle = 1
    """Two or more layers fall to zero together, and stay there."""
    rest = 2
    """Two or more layers are zero: it never moves."""


class DiagonalLimit(NamedTuple):
    """Where diagonal layers end: their weights, and an `Ending` for each mode."""

    weights: Float[Array, "depth modes"]
    ending: Int[Array, " modes"]


def _others(weights: Float[Array, "depth *modes"]) -> Float[Array, "depth *modes"]:
    """Products of all layers but one: of those before it and those after it."""
    ones = xp.ones_like(weights[:1])
    before = xp.concatenate([ones, xp.cumprod(weights[:-1], axis=0)])
    after = xp.concatenate([xp.cumprod(weights[:0:-1], axis=0)[::-1], ones])
    return before * after


def _checked(
    where: str, weights: Numbers, sigma: Numbers
) -> tuple[Float[Array, "depth modes"], Float[Array, " modes"]]:
    check_x64(where)
    xi = checked(where, "weights", weights)
    values = checked(where, "sigma", sigma)
    if xi.ndim != 2 or 0 in xi.shape:
        raise ValueError(f"{where}: weights must have an axis of layers and one of modes, but has shape {xi.shape}.")
    if values.shape not in ((), xi.shape[1:]):
        raise ValueError(
            f"{where}: sigma must have one number for each of {xi.shape[1]} modes, but has shape {values.shape}."
        )
    return xi, spread(values, xi.shape[1:])


@entry
def diagonal_weights(params: Params) -> Float[Array, "depth modes"]:
    r"""Weights $\xi_{ij}$ of diagonal layers: their first diagonal entries, as many as the narrowest layer has units.

    Args:
        params: Layers that are rectangular diagonal.

    Returns:
        One row for each layer.

    Raises:
        HypothesisError: A layer is not diagonal.

    Example:
        >>> diagonal_weights((jnp.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), jnp.array([[3.0, 0.0]])))
        array([[2.],
               [3.]])
    """
    layers = tuple(as_array(layer, float) for layer in checked_params("diagonal_weights", "params", params))
    modes = min(min(layer.shape) for layer in layers)
    for layer in layers:
        if is_concrete(layer):
            matrix = np.asarray(layer)
            beside = float(np.max(np.abs(np.where(np.eye(*matrix.shape, dtype=bool), 0.0, matrix)), initial=0.0))
            if beside > 0:
                raise HypothesisError(
                    "diagonal layers", beside, 0.0, "Aligned layers of any form are solved by `solve`."
                )
    return _diagonals(layers, modes)


@formula(static_argnums=1)
def _diagonals(layers: Params, modes: int) -> Float[Array, "depth modes"]:
    return xp.stack([xp.diagonal(layer)[:modes] for layer in layers])


@entry
def diagonal_layers(params: Params, weights: Float[Array, "depth modes"]) -> Params:
    r"""Layers with their first diagonal entries replaced by $\xi_{ij}$; what belongs to no mode is kept.

    Example:
        >>> diagonal_layers((jnp.eye(2), jnp.array([[3.0, 0.0]])), jnp.array([[0.5], [4.0]]))[0]
        array([[0.5, 0. ],
               [0. , 1. ]])
    """
    return _with_diagonals(tuple(as_array(layer, float) for layer in params), weights)


@formula
def _with_diagonals(layers: Params, weights: Float[Array, "depth modes"]) -> Params:
    place = xp.arange(weights.shape[1])
    return tuple(put(layer, (place, place), row) for layer, row in zip(layers, weights, strict=True))


@entry
def diagonal_field(weights: Numbers, sigma: Numbers) -> Float[Array, "depth modes"]:
    r"""Speed of diagonal layers under gradient flow, $\dot\xi_{ij} = \bar\xi_{ij}(\sigma_j - \hat\xi_j)$.

    Args:
        weights: $\xi$, one row for each layer, one column for each mode.
        sigma: $\sigma_j$, one number for each mode, or one for all.

    Returns:
        The speed, of the shape of `weights`.

    Example:
        >>> diagonal_field([[1.0], [2.0], [-1.0]], 1.0)
        array([[-6.],
               [-3.],
               [ 6.]])
    """
    return _field(*_checked("diagonal_field", weights, sigma))


@formula
def _field(xi: Float[Array, "depth modes"], values: Float[Array, " modes"]) -> Float[Array, "depth modes"]:
    return _others(xi) * (values - xp.prod(xi, axis=0))


@entry
def diagonal_flow(times: Numbers, weights: Numbers, sigma: Numbers) -> Float[Array, "*times depth modes"]:
    r"""Diagonal layers at any time: every mode by `layer_mode`, to rounding of the times.

    Args:
        times: Times of any shape, from 0 to infinity.
        weights: $\xi$ at time 0, one row for each layer, one column for each mode.
        sigma: $\sigma_j$, one number for each mode, or one for all.

    Returns:
        $\xi$ at the times, times first.

    Example:
        >>> diagonal_flow(jnp.inf, [[1.0, 2.0], [1.0, 0.0]], [4.0, 0.0]).round(12)
        array([[2., 2.],
               [2., 0.]])
    """
    xi, values = _checked("diagonal_flow", weights, sigma)
    return xp.moveaxis(layer_mode(times, xi.T, values), 0, -1)  # modes, times, layers before


@entry
def chain_minimum(laws: Numbers, sigma: Numbers) -> Float[Array, " depth"]:
    r"""Squares $w_1^2, \dots, w_L^2$ of the layers of one mode at its minimum, from what the flow conserves.

    With $c_l = w_{l+1}^2 - w_l^2$ and $x$ the smallest square, $\prod_i (x + k_i) = \sigma^2$, $k_i \ge 0$, has exactly
    one root $x > 0$; it is found in $\ln x$. For three layers this is the cubic
    $x(x - c_1)(x + c_2) = \sigma^2$ of $x = w_2^2$.

    Args:
        laws: $c_1, \dots, c_{L-1}$, our sign: later layer minus earlier one.
        sigma: The target, positive.

    Returns:
        The squares; signs are not told by the laws.

    Example:
        >>> chain_minimum([3.0, -3.0], 2.0)  # w₂² = w₁² + 3 = w₃² + 3
        array([1., 4., 1.])
    """
    where = "chain_minimum"
    check_x64(where)
    steps = checked(where, "laws", laws)
    target = positive(where, "sigma", sigma)
    if steps.ndim != 1 or target.ndim != 0:
        raise ValueError(
            f"{where}: laws must have one axis and sigma none, but have shapes {steps.shape} and {target.shape}; use "
            "jax.vmap for several modes."
        )
    return _minimum(steps, target)


@formula
def _minimum(steps: Float[Array, " laws"], target: Float[Array, ""]) -> Float[Array, " depth"]:
    heights = xp.concatenate([xp.zeros(1), xp.cumsum(steps)])
    lowest = xp.argmin(heights)
    return _squares(heights - heights[lowest], lowest, target)


@formula
def _squares(
    excess: Float[Array, " depth"], lowest: Int[Array, ""], target: Float[Array, ""]
) -> Float[Array, " depth"]:
    """Squares at the minimum, x + k_i, with excesses over that of the lowest layer."""
    other = xp.arange(excess.shape[0]) != lowest
    log_y = log_smallest(xp.where(other, excess, 0.0), other, xp.log(target))
    return xp.exp(2 * log_y) + excess


@entry
def diagonal_limit(weights: Numbers, sigma: Numbers, tolerance: float = 0.0) -> DiagonalLimit:
    r"""Where diagonal layers end, from what they conserve and from their signs, without following them.

    Let $m$ be the smallest square of a mode and $k_i$ the excess of the others. A mode with two or more layers of the
    smallest size cannot change the sign of its product: on the wrong side of zero these layers fall to zero together,
    a saddle; if they are zero, it rests. Every other mode ends at its target, with $|\xi_i| = \sqrt{x + k_i}$,
    $\prod_i(x + k_i) = \sigma^2$; its smallest layer changes its sign if the product has to.

    Args:
        weights: $\xi$ at the start, one row for each layer, one column for each mode.
        sigma: $\sigma_j$, one number for each mode, or one for all.
        tolerance: Sizes that exceed the smallest by at most this share of themselves count as equal to it. Zero by
            default: any difference, however small, leads away from the saddle in the end.

    Returns:
        The weights at the end, and an `Ending` for each mode.

    Example:
        >>> limit = diagonal_limit([[1.0], [2.0], [-1.0]], 1.0)
        >>> limit.weights[:, 0].round(6), Ending(int(limit.ending[0])).name
        (array([0.      , 1.732051, 0.      ]), 'saddle')
    """
    where = "diagonal_limit"
    xi, values = _checked(where, weights, sigma)
    check_number(where, "tolerance", tolerance, at_least=0)
    return check_result(where, DiagonalLimit(*_limits(xi, values, tolerance)))


def _mode_limit(
    weights: Float[Array, " depth"], target: Float[Array, ""], tolerance: ArrayLike
) -> tuple[Float[Array, " depth"], Int[Array, ""]]:
    sizes = xp.abs(weights)
    lowest = xp.argmin(sizes)
    least = sizes[lowest]
    tied = sizes - least <= tolerance * sizes
    excess = (sizes - least) * (sizes + least)
    excess = xp.where(tied, excess - stop_gradient(excess), excess)  # nothing in value
    signs = xp.where(weights < 0, -1.0, 1.0)
    several = xp.sum(tied) > 1
    towards = xp.where(target < 0, -1.0, 1.0)
    wrong = xp.prod(signs) * towards < 0
    stuck = several & (wrong | (least == 0))
    empty = target == 0
    squares = _squares(excess, lowest, xp.where(empty, 1.0, xp.abs(target)))
    squares = xp.where(stuck | empty, excess, squares)
    turned = xp.where(wrong & ~several & (xp.arange(len(weights)) == lowest), -signs, signs)
    found = turned * xp.sqrt(xp.where(squares > 0, squares, 1.0))
    message = "diagonal_limit: a mode that rests or ends in a saddle has no derivative; move weights or sigma a little."
    found = refused_derivative(found, stuck | (empty & several), message)
    fate = xp.where(least == 0, int(Ending.rest), int(Ending.saddle))
    ending = xp.where(empty | ~stuck, int(Ending.minimum), fate)
    rests = (least == 0) & (several | empty)
    return xp.where(rests, weights, xp.where(squares == 0, 0.0, found)), ending


@formula
def _limits(
    weights: Float[Array, "depth modes"], targets: Float[Array, " modes"], tolerance: ArrayLike
) -> tuple[Float[Array, "depth modes"], Int[Array, " modes"]]:
    found, endings = over(_mode_limit, in_axes=(0, 0, None))(weights.T, targets, tolerance)
    return found.T, endings


@entry
def mode_losses(weights: Numbers, sigma: Numbers) -> Float[Array, " modes"]:
    r"""Loss of each mode, $F_j = \tfrac12(\sigma_j - \hat\xi_j)^2$; they add up to the loss of the network.

    Along the flow $\dot F_j = -2 F_j \sum_i \bar\xi_{ij}^2$.

    Example:
        >>> mode_losses([[1.0, 2.0], [1.0, 0.0]], [4.0, 3.0])
        array([4.5, 4.5])
    """
    return _losses(*_checked("mode_losses", weights, sigma))


@formula
def _losses(xi: Float[Array, "depth modes"], values: Float[Array, " modes"]) -> Float[Array, " modes"]:
    return 0.5 * (values - xp.prod(xi, axis=0)) ** 2


@entry
def diagonal_hessian(weights: Numbers, sigma: Numbers) -> Float[Array, "modes depth depth"]:
    r"""Hessian of each mode's loss in the weights of that mode; between modes it vanishes.

    $\bar\xi\bar\xi^\top + (\hat\xi - \sigma)T$, $T_{kl} = \prod_{i \ne k,l}\xi_i$ off the diagonal and 0 on it. Where
    exactly two layers $k, l$ are zero its eigenvalues are $\pm\sigma\prod_{i\ne k,l}\xi_i$, a strict saddle; where more
    are, it is zero.

    Args:
        weights: $\xi$, one row for each layer, one column for each mode.
        sigma: $\sigma_j$, one number for each mode, or one for all.

    Returns:
        One symmetric block for each mode.

    Example:
        >>> diagonal_hessian([[0.0], [0.0], [3.0]], 1.0)[0]
        array([[ 0., -3.,  0.],
               [-3.,  0.,  0.],
               [ 0.,  0.,  0.]])
    """
    found = _hessian(*_checked("diagonal_hessian", weights, sigma)) + 0.0  # no negative zeros; compiled, they are lost
    return check_result("diagonal_hessian", found)


@formula
def _hessian(xi: Float[Array, "depth modes"], values: Float[Array, " modes"]) -> Float[Array, "modes depth depth"]:
    depth = xi.shape[0]
    layer = np.arange(depth)
    left_out = (layer[:, None, None] == layer) | (layer[None, :, None] == layer)
    rest = xp.prod(xp.where(left_out, 1.0, xi.T[:, None, None, :]), axis=-1)
    rest = xp.where(layer[:, None] == layer, 0.0, rest)
    others = _others(xi).T
    excess = xp.prod(xi, axis=0) - values
    return others[:, :, None] * others[:, None, :] + excess[:, None, None] * rest


@entry
def diagonal_bracket(weights: Numbers, sigma: Numbers, other: Numbers) -> Float[Array, "depth modes"]:
    r"""Lie bracket of the flows that learn $\sigma$ and $\sigma'$: $(\sigma'_j - \sigma_j)\|\bar\xi_j\|^2\bar\xi_j$.

    $[f, g] = (Dg) f - (Df) g$. The bracket is a multiple of the fields, so that they span one line in each mode; but it
    is not zero: learning two tasks in turn depends on the order.

    Args:
        weights: $\xi$, one row for each layer, one column for each mode.
        sigma: $\sigma$ of the first field.
        other: $\sigma'$ of the second.

    Returns:
        The bracket, of the shape of `weights`.

    Example:
        >>> diagonal_bracket([[1.0], [2.0]], 1.0, 2.0)
        array([[10.],
               [ 5.]])
    """
    where = "diagonal_bracket"
    xi, values = _checked(where, weights, sigma)
    _, second = _checked(where, weights, other)
    return _bracket(xi, values, second)


@formula
def _bracket(
    xi: Float[Array, "depth modes"], values: Float[Array, " modes"], second: Float[Array, " modes"]
) -> Float[Array, "depth modes"]:
    others = _others(xi)
    return (second - values) * xp.sum(others**2, axis=0) * others


@entry
def diagonal_laws_rank(weights: Numbers, tolerance: float = 0.0) -> Int[Array, " modes"]:
    r"""How many of the $L-1$ laws $\xi_i^2 - \xi_{i+1}^2$ of each mode are independent at a point.

    The differentials $2\xi_i\,d\xi_i - 2\xi_{i+1}\,d\xi_{i+1}$ have rank $L - \max(1, z)$ with $z$ the number of zero
    weights: all are independent exactly where at most one weight vanishes.

    Args:
        weights: $\xi$, one row for each layer, one column for each mode.
        tolerance: Weights of at most this size count as zero.

    Returns:
        The rank for each mode.

    Example:
        >>> diagonal_laws_rank([[1.0, 0.0, 0.0], [2.0, 2.0, 0.0], [3.0, 3.0, 3.0]])
        array([2, 2, 1])
    """
    where = "diagonal_laws_rank"
    check_number(where, "tolerance", tolerance, at_least=0)
    xi, _ = _checked(where, weights, 1.0)
    return _laws_rank(xi, tolerance)


@formula
def _laws_rank(xi: Float[Array, "depth modes"], tolerance: ArrayLike) -> Int[Array, " modes"]:
    zeros = xp.sum(xp.abs(xi) <= tolerance, axis=0)
    return xi.shape[0] - xp.maximum(1, zeros)
