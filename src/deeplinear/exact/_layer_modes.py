r"""One mode of an aligned network of any depth: strengths $a_1, \ldots, a_L$ of its layers at any time.

Gradient flow of $\tfrac12(s - \prod_l a_l)^2$ conserves $a_l^2 - a_k^2$. Let $y$ be the layer of smallest size; with
the signs of the others and of $s$ taken away these are $\sqrt{y^2 + c_l}$, $c_l \ge 0$, and with $P(y)$ their product
one equation is left, $\dot y = (S - \sigma(y))P(y)$, $\sigma = yP$, $S = |s|$. It is solved for the time, in two legs.

*Leaving*: a product of the wrong sign, or any if $S = 0$, falls to zero. Time is an integral over $v = -\ln|y|$. If
no other layer has the same size as $y$, $y$ crosses zero; else it ends there, and the mode is stuck.
*Arriving*: from zero, from below or from above to $Y$, $\sigma(Y) = S$. Time is an integral over $\eta$, $e^{-\eta} =
e^{|a|} - 1$, $a = \ln(y/Y)$, whose integrand is constant near the end.

Both integrands are positive and analytic within $\pi/2$ of the real axis. Gauss-Legendre panels tabulate them, Newton's
steps inside one panel invert the table, and beyond its ends time is elementary: a plateau of any length costs the same.

A mode takes NumPy 3 ms. A program of JAX takes 0.7 ms, and 3 s to compile: `jax.jit` pays from a thousand modes on.
"""

from collections.abc import Callable

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

from deeplinear.core import (
    Array,
    check_count,
    check_x64,
    entry,
    formula,
    is_concrete,
    is_program,
    over,
    refused_derivative,
    stop_gradient,
    xp,
)
from deeplinear.exact._block_algebra import Numbers, broadcast, checked, spread
from deeplinear.exact._mode_flow import mode_flow

TOGETHER = 64  # modes whose tables are in memory at once
SMALLEST, LARGEST = 1e-100, 1e100
"""Sizes of strengths and targets, other than 0, that can be computed with."""


@formula
def _strengths_at(
    times: Float[Array, " times"],
    strengths: Float[Array, "modes width"],
    target: Float[Array, " modes"],
) -> Float[Array, "modes times depth"]:
    return _each(lambda strengths, target: mode_flow(strengths, target).at(times), strengths, target)


@formula
def times_of(
    strengths: Float[Array, "modes width"],
    target: Float[Array, " modes"],
    product: Float[Array, "modes levels"],
    missing: Float[Array, "modes levels"],
) -> Float[Array, "modes levels"]:
    def of(strengths: Array, target: Array, product: Array, missing: Array) -> Array:
        return mode_flow(strengths, target).time(product, missing)

    return _each(of, strengths, target, product, missing)


def _each(function: Callable[..., Array], *modes: Array) -> Array:
    """The function of every mode, so many at once that their tables fit into memory."""
    if is_program(*modes) and modes[0].shape[0] > TOGETHER:
        import jax

        return jax.lax.map(lambda mode: function(*mode), modes, batch_size=TOGETHER)
    return over(function)(*modes)


@entry
def layer_mode(times: Numbers, strengths: Numbers, target: Numbers) -> Float[Array, "*batch depth"]:
    r"""Strengths of the layers of one mode of an aligned network of any depth, at any time.

    Solves $\dot a_l = (s - \prod_k a_k)\prod_{k\ne l} a_k$, gradient flow of $\tfrac12(s - \prod_l a_l)^2$, to rounding
    of the times, on plateaus of any length. The product moves towards $s$ and arrives there, unless it starts at 0 or
    on the other side of 0 and two or more layers share the smallest size: their equality is conserved, so that none of
    them can change its sign. Such a mode ends at 0, or rests if it starts there.

    Args:
        times: Times of any shape, from 0 to infinity, common to all modes.
        strengths: $a_1, \ldots, a_L$ at time 0 along the last axis, of either sign; other axes are modes.
        target: $s$, one number for each mode.

    Returns:
        The strengths, modes first, then times, then layers. Derivatives with respect to times, strengths and target are
        those of the solution; at a mode that rests they are those of a mode that does not move.

    Example:
        >>> layer_mode([0.0, 2.0, jnp.inf], [0.5, 0.5, 1.0], 1.0).round(6)
        array([[0.5     , 0.5     , 1.      ],
               [0.892362, 0.892362, 1.243507],
               [0.895856, 0.895856, 1.246017]])
    """
    where = "layer_mode"
    layers, ends, batch = _modes(where, strengths, target)
    moments = checked(where, "times", times, at_least=0, finite=False)
    depth = layers.shape[-1]
    if not ends.size:
        return xp.zeros((*batch, *moments.shape, depth))
    found = _strengths_at(moments.reshape(-1), layers.reshape(-1, depth), ends.reshape(-1))
    return found.reshape(*batch, *moments.shape, depth)


@entry
def layer_mode_time(
    strengths: Numbers, target: Numbers, *, fraction: Numbers | None = None, product: Numbers | None = None
) -> Float[Array, "*batch"]:
    r"""When the product of the layers of one mode has gone a given part of its way: the inverse of `layer_mode`.

    Args:
        strengths: $a_1, \ldots, a_L$ at time 0 along the last axis; other axes are modes.
        target: $s$, one number for each mode.
        fraction: Part of the way from the first product to $s$, between 0 and 1.
        product: In its place, the product itself, between its start and $s$.

    Returns:
        Times, modes first, then the shape of `fraction` or `product`; infinite where the mode is stuck before.

    Raises:
        ValueError: A visible product does not lie between the start and the target.

    Example:
        >>> round(float(layer_mode_time([0.1, 0.1, 0.1], 1.0, fraction=0.5)), 10)
        9.1455871143
        >>> float(layer_mode_time([0.1, 0.1, -0.1], 1.0, fraction=0.5))
        inf
    """
    where = "layer_mode_time"
    layers, ends, batch = _modes(where, strengths, target)
    if fraction is not None and product is None:
        part = checked(where, "fraction", fraction, above=0)
        if is_concrete(part) and np.any(np.asarray(part) >= 1):
            raise ValueError(f"{where}: fraction must be less than 1, but is {float(np.max(np.asarray(part))):g}.")
        if not is_concrete(part):
            inside = xp.all((part > 0) & (part < 1))
            part = eqx.error_if(part, ~inside, f"{where}: fraction must be between 0 and 1, but is not.")
    elif product is not None and fraction is None:
        part = checked(where, "product", product)
    else:
        raise ValueError(f"{where}: exactly one of fraction and product must be given.")
    shape = (*batch, *part.shape)
    layers, ends, levels = layers.reshape(-1, layers.shape[-1]), ends.reshape(-1), part.reshape(-1)
    if not ends.size:
        return xp.zeros(shape)
    if fraction is not None:
        values, missing = _by_fraction(layers, ends, levels)
    else:
        values, missing, outside = _by_product(layers, ends, levels)
        if is_concrete(outside) and np.any(outside):
            mode, level = (int(i) for i in np.argwhere(np.asarray(outside))[0])
            raise ValueError(
                f"{where}: product must lie between the start {float(xp.prod(layers[mode])):g} and the target "
                f"{float(ends[mode]):g} of its mode, but is {float(levels[level]):g}."
            )
    return times_of(layers, ends, values, missing).reshape(shape)


@formula
def _by_fraction(
    strengths: Float[Array, "modes width"], target: Float[Array, " modes"], part: Float[Array, " levels"]
) -> tuple[Float[Array, "modes levels"], Float[Array, "modes levels"]]:
    """Products at given parts of the way, and the logarithm of product over target."""
    starts, ends = xp.prod(strengths, axis=-1, keepdims=True), target[:, None]
    values = xp.where(part < 0.5, starts + part * (ends - starts), ends - (1 - part) * (ends - starts))
    return values, _missing(values, ends, -(1 - part) * _over(ends - starts, ends))


@formula
def _by_product(
    strengths: Float[Array, "modes width"], target: Float[Array, " modes"], product: Float[Array, " levels"]
) -> tuple[Float[Array, "modes levels"], Float[Array, "modes levels"], Bool[Array, "modes levels"]]:
    """Given products, the logarithm of product over target, and which do not lie on the way."""
    starts, ends = xp.prod(strengths, axis=-1, keepdims=True), target[:, None]
    values = xp.broadcast_to(product, (ends.shape[0], product.shape[0]))
    inside = xp.clip(values, xp.minimum(starts, ends), xp.maximum(starts, ends))
    outside = xp.abs(values - inside) > 1e-12 * xp.abs(inside)  # the start itself may miss by rounding
    inside = values + stop_gradient(inside - values)  # which is no matter of derivatives
    values = xp.where(outside, xp.nan, inside)
    return values, _missing(values, ends, _over(values - ends, ends)), outside


def _missing(values: Array, ends: Array, relative: Array) -> Array:
    """Far from the target its quotient with the product has the digits, close to it their difference."""
    ratio = _over(values, ends)
    far = (ratio > 0) & (ratio < 0.5)
    missing = xp.where(relative > -1, xp.log1p(xp.where((relative > -1) & ~far, relative, 0.0)), 0.0)
    return xp.where(far, xp.log(xp.where(far, ratio, 1.0)), missing)


def _over(x: Array, y: Array) -> Array:
    return xp.where(y != 0, x / xp.where(y != 0, y, 1.0), 0.0)


def _modes(
    where: str, strengths: Numbers, target: Numbers
) -> tuple[Float[Array, "*batch depth"], Float[Array, "*batch"], tuple[int, ...]]:
    """Strengths and targets of as many modes."""
    check_x64(where)
    strengths, target = _sizable(where, "strengths", strengths), _sizable(where, "target", target)
    if strengths.ndim == 0 or strengths.shape[-1] == 0:
        raise ValueError(
            f"{where}: strengths must have an axis of at least one layer, but has shape {strengths.shape}."
        )
    try:
        batch = np.broadcast_shapes(strengths.shape[:-1], target.shape)
    except ValueError:
        raise ValueError(
            f"{where}: target must have one number for each mode of strengths, but they have shapes {target.shape} "
            f"and {strengths.shape}, of which the last axis is that of the layers."
        ) from None
    return spread(strengths, (*batch, strengths.shape[-1])), spread(target, batch), batch


def _sizable(where: str, name: str, value: Numbers) -> Float[Array, "..."]:
    """Finite numbers that are 0 or of a size to compute with."""
    array = checked(where, name, value, at_least=-LARGEST, at_most=LARGEST)
    if is_concrete(array):
        sizes = np.abs(np.asarray(array))
        small = (sizes > 0) & (sizes < SMALLEST)
        if np.any(small):
            raise ValueError(
                f"{where}: {name} must be 0 or at least {SMALLEST:g} in size, but is {float(sizes[small][0]):g}."
            )
    return array


@entry
def balanced_mode(times: Numbers, start: Numbers, target: Numbers, depth: int) -> Float[Array, "*batch"]:
    r"""Strength of one mode of an aligned balanced network of any depth: `layer_mode` with all layers of one size.

    The product obeys $\dot\sigma = L\,|\sigma|^{2-2/L}(s - \sigma)$: an exponential for depth 1, a logistic curve for
    depth 2, and from a small start a plateau of length $\sigma_0^{2/L-1}/((L-2)s)$ for more. From depth 2 on a start
    on the other side of 0 ends at 0.

    Args:
        times: Times of any shape, from 0 to infinity, common to all modes.
        start: $\sigma_0$, one number for each mode.
        target: $s$, one number for each mode.
        depth: $L \ge 1$.

    Returns:
        $\sigma$, modes first, then times.

    Example:
        >>> balanced_mode(9.0, jnp.array([1e-2, 1e-3, 1e-4]), 1.0, 3).round(6)
        array([1.00000e+00, 4.17119e-01, 5.06000e-04])
    """
    strengths, target = _balanced("balanced_mode", start, target, depth)
    return xp.prod(layer_mode(times, strengths, target), axis=-1)


@entry
def balanced_mode_time(
    start: Numbers,
    target: Numbers,
    depth: int,
    *,
    fraction: Numbers | None = None,
    product: Numbers | None = None,
) -> Float[Array, "*batch"]:
    r"""When one mode of an aligned balanced network has gone a given part of its way: the inverse of `balanced_mode`.

    Args:
        start: $\sigma_0$, one number for each mode.
        target: $s$, one number for each mode.
        depth: $L \ge 1$.
        fraction: Part of the way from $\sigma_0$ to $s$, between 0 and 1.
        product: In its place, the strength itself, between $\sigma_0$ and $s$.

    Returns:
        Times, modes first, then the shape of `fraction` or `product`; infinite where the mode is stuck before.

    Example:
        >>> round(float(balanced_mode_time(1e-6, 1.0, 4, fraction=0.5)), 10)
        499.7330807193
    """
    strengths, target = _balanced("balanced_mode_time", start, target, depth)
    return layer_mode_time(strengths, target, fraction=fraction, product=product)


def _balanced(
    where: str, start: Numbers, target: Numbers, depth: int
) -> tuple[Float[Array, "*batch depth"], Float[Array, "*batch"]]:
    """Layers of one size with a given product."""
    check_count(where, "depth", depth, at_least=1)
    start, target = broadcast(where, start=_sizable(where, "start", start), target=_sizable(where, "target", target))
    return _equal_layers(start, depth), target


@formula(static_argnums=1)
def _equal_layers(start: Float[Array, "*batch"], depth: int) -> Float[Array, "*batch depth"]:
    size = xp.where(start != 0, xp.abs(xp.where(start != 0, start, 1.0)) ** (1 / depth), 0.0)
    signs = xp.where(start < 0, -1.0, 1.0)
    if depth > 1:
        message = "balanced_mode: the layers have no derivative where start is 0; take layer_mode."
        size = refused_derivative(size, start == 0, message)
    first = start if depth == 1 else signs * size
    return xp.stack([first, *[size] * (depth - 1)], axis=-1)
