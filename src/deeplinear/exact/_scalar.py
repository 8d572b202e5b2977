r"""Balanced diagonal layers: one number for each mode, $\dot z = z^{L-1}(\sigma - z^L)$.

All layers of a mode share the strength $z$; the product is $z^L$. This is `balanced_mode` seen from a layer: states and
times come from the same tables, but here everything goes through $\ln z$, so that $z^L$ may be as small as it likes.
Equilibria are $0$ and $\sigma^{1/L}$, and $-\sigma^{1/L}$ if $L$ is even. From $z < 0$ an odd $L$ leads to 0, where
$\dot z$ is positive on both sides.
"""

from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from deeplinear.core import Array, check_count, check_x64, entry, formula, is_concrete, xp
from deeplinear.exact._block_algebra import Numbers, broadcast, checked, positive
from deeplinear.exact._layer_modes import LARGEST, SMALLEST, layer_mode, times_of

LONGEST = 600.0
"""Logarithm of the longest plateau that is computed with."""


def _sized(where: str, name: str, value: Numbers) -> Float[Array, "..."]:
    """Positive numbers of a size to compute with."""
    array = positive(where, name, value)
    return checked(where, name, array, at_least=SMALLEST, at_most=LARGEST)


def _prepared(where: str, depth: int, **values: Numbers) -> list[Float[Array, "..."]]:
    check_x64(where)
    check_count(where, "depth", depth, at_least=1)
    arrays = broadcast(where, **{name: _sized(where, name, value) for name, value in values.items()})
    for name, array in zip(values, arrays, strict=True):
        if name != "sigma" and is_concrete(array):
            least = float(np.min(np.asarray(array), initial=1.0))
            if -(depth - 2) * np.log(least) > LONGEST:
                raise ValueError(
                    f"{where}: {name} must be so large that times are numbers, {name}^(2 - depth) below 1e260, but is "
                    f"{least:g} at depth {depth}; take a larger {name} or fewer layers."
                )
    return arrays


@entry
def scalar_speed(z: Numbers, sigma: Numbers, depth: int) -> Float[Array, "..."]:
    r"""$\dot z = z^{L-1}(\sigma - z^L)$, for $z$ of either sign.

    Example:
        >>> scalar_speed(jnp.array([-1.0, 0.5, 1.0]), 1.0, 4)
        array([-0.       ,  0.1171875,  0.       ])
    """
    where = "scalar_speed"
    check_count(where, "depth", depth, at_least=1)
    return _speed(*_places(where, z, sigma), depth)


@formula(static_argnums=2)
def _speed(place: Float[Array, "..."], value: Float[Array, "..."], depth: int) -> Float[Array, "..."]:
    return place ** (depth - 1) * (value - place**depth)


def _places(where: str, z: Numbers, sigma: Numbers) -> list[Float[Array, "..."]]:
    """Any finite numbers, of one shape."""
    return broadcast(where, z=checked(where, "z", z), sigma=checked(where, "sigma", sigma))


@entry
def scalar_curvature(z: Numbers, sigma: Numbers, depth: int) -> Float[Array, "..."]:
    r"""$-\partial\dot z/\partial z = (L z^L - (L-1)(\sigma - z^L))z^{L-2}$: positive where $z$ is drawn to.

    It is the second derivative of the loss divided by $L$. At 0 it is $-\sigma$ for $L = 2$ and 0 for more layers.

    Example:
        >>> scalar_curvature(jnp.array([0.0, 1.0]), 1.0, 4)
        array([-0.,  4.])
    """
    where = "scalar_curvature"
    check_count(where, "depth", depth, at_least=1)
    return _curvature(*_places(where, z, sigma), depth)


@formula(static_argnums=2)
def _curvature(place: Float[Array, "..."], value: Float[Array, "..."], depth: int) -> Float[Array, "..."]:
    if depth == 1:
        return xp.ones_like(place)
    return (depth * place**depth - (depth - 1) * (value - place**depth)) * place ** (depth - 2)


@entry
def scalar_equilibria(sigma: Numbers, depth: int) -> Float[Array, "*batch equilibria"]:
    r"""Where $\dot z = 0$, in increasing order along the last axis.

    $\sigma^{1/L}$; 0, if $L \ge 2$; and $-\sigma^{1/L}$, if $L$ is even.

    Example:
        >>> scalar_equilibria(16.0, 4), scalar_equilibria(8.0, 3)
        (array([-2.,  0.,  2.]), array([0., 2.]))
    """
    (value,) = _prepared("scalar_equilibria", depth, sigma=sigma)
    return _equilibria(value, depth)


@formula(static_argnums=1)
def _equilibria(value: Float[Array, "*batch"], depth: int) -> Float[Array, "*batch equilibria"]:
    top = value ** (1 / depth)
    points = [top] if depth == 1 else [xp.zeros_like(top), top]
    return xp.stack(points if depth % 2 else [-top, *points], axis=-1)


@entry
def scalar_time(start: Numbers, end: Numbers, sigma: Numbers, depth: int) -> Float[Array, "..."]:
    r"""Time from one layer strength to another, $\int dz / (z^{L-1}(\sigma - z^L))$.

    Both lie on one side of $\sigma^{1/L}$. The time is negative if the end was passed before the start, and infinite
    from anywhere to $\sigma^{1/L}$ itself. How near an end is to $\sigma^{1/L}$ is known as well as the two numbers
    tell: to $10^{-16}$.

    Args:
        start: $z$ at time 0, positive.
        end: $z$ then, positive.
        sigma: $\sigma$, positive.
        depth: $L \ge 1$.

    Returns:
        Times, `start`, `end` and `sigma` broadcast.

    Raises:
        ValueError: Start and end are on different sides of $\sigma^{1/L}$, or one of the three is not positive.

    Example:
        >>> round(float(scalar_time(0.1, 1.0, 2.0, 4)), 10)
        24.9045562892
    """
    where = "scalar_time"
    first, last, value = _prepared(where, depth, start=start, end=end, sigma=sigma)
    if not value.size:
        return value
    flat = [array.reshape(-1) for array in (first, last, value)]
    away, near, across = _way(*flat, depth)
    if is_concrete(across) and np.any(across):
        place = tuple(int(i) for i in np.argwhere(np.asarray(across).reshape(value.shape))[0])
        raise ValueError(
            f"{where}: start and end must lie on one side of sigma^(1/depth) = "
            f"{float(value[place]) ** (1 / depth):g}, but are {float(first[place]):g} and {float(last[place]):g}."
        )
    missing = near[:, None]
    unused = xp.full_like(missing, -1.0)  # the product itself, which may be too small for a number: only its logarithm
    times = times_of(_repeated(away, depth), flat[2], unused, missing)
    return _signed(*flat, near, times, depth).reshape(value.shape)


def _gaps(first: Array, last: Array, value: Array, depth: ArrayLike) -> tuple[Array, Array, Array]:
    """Logarithms of start and end, less that of the equilibrium; and whether the end is the farther one."""
    gap_first, gap_last = (depth * xp.log(z) - xp.log(value) for z in (first, last))
    return gap_first, gap_last, xp.abs(gap_first) < xp.abs(gap_last)


@formula
def _way(
    first: Float[Array, " modes"], last: Float[Array, " modes"], value: Float[Array, " modes"], depth: ArrayLike
) -> tuple[Float[Array, " modes"], Float[Array, " modes"], Bool[Array, " modes"]]:
    """The farther of two places, the gap of the nearer, and whether the equilibrium is between them."""
    gap_first, gap_last, backwards = _gaps(first, last, value, depth)
    across = gap_first * gap_last < 0
    near = xp.where(across, xp.nan, xp.where(backwards, gap_first, gap_last))
    return xp.where(backwards, last, first), near, across


@formula
def _signed(
    first: Float[Array, " modes"],
    last: Float[Array, " modes"],
    value: Float[Array, " modes"],
    near: Float[Array, " modes"],
    times: Float[Array, "modes levels"],
    depth: ArrayLike,
) -> Float[Array, " modes"]:
    """Times from the first place to the last, from those towards the equilibrium."""
    _, _, backwards = _gaps(first, last, value, depth)
    found = xp.where(near == 0, xp.inf, times[:, 0])
    # Between equal places time is distance over speed, which has the derivative.
    speed = first ** (depth - 1) * (value - first**depth)
    near = (last - first) / xp.where(speed != 0, speed, 1.0)
    return xp.where(
        (first == last) & (speed != 0), near, xp.where(first == last, 0.0, xp.where(backwards, -found, found))
    )


@entry
def scalar_state(start: Numbers, sigma: Numbers, depth: int, t: Numbers) -> Float[Array, "*batch"]:
    r"""Layer strength $z(t)$: the inverse of `scalar_time`.

    For two layers $z^2 = \sigma u_0/(u_0 + (\sigma - u_0)e^{-2\sigma t})$ with $u_0 = z_0^2$. At the end of a plateau
    of length $T$ the strength depends on $t$ so steeply that the rounding of $t$ alone moves it by a share of
    $10^{-16}\,T\dot z/z$.

    Args:
        start: $z$ at time 0, positive, one number for each mode.
        sigma: $\sigma$, positive, one number for each mode.
        depth: $L \ge 1$.
        t: Times of any shape, from 0 to infinity, common to all modes.

    Returns:
        $z$, modes first, then times.

    Example:
        >>> round(float(scalar_state(0.1, 2.0, 4, 24.8)), 12)
        0.89482507829
    """
    first, value = _prepared("scalar_state", depth, start=start, sigma=sigma)
    return layer_mode(t, _repeated(first, depth), value)[..., 0]


def _repeated(array: Float[Array, "*batch"], depth: int) -> Any:
    """The same for every layer."""
    return xp.stack([array] * depth, axis=-1)


@entry
def product_time(start: Numbers, sigma: Numbers, depth: int, fraction: Numbers = 0.5) -> Float[Array, "..."]:
    r"""When the product $z^L$ is a given fraction of $\sigma$; by default half of it.

    Args:
        start: $z$ at time 0, positive.
        sigma: $\sigma$, positive.
        depth: $L \ge 1$.
        fraction: $z^L/\sigma$, positive, on the side of 1 on which the start is.

    Returns:
        Times, all arguments broadcast; negative for a fraction that was passed before the start.

    Example:
        >>> product_time(0.2, jnp.array([4.0, 3.0, 2.0, 1.0]), 5).round(3)
        array([10.41 , 13.879, 20.813, 41.6  ])
    """
    where = "product_time"
    first, value, part = _prepared(where, depth, start=start, sigma=sigma, fraction=fraction)
    return scalar_time(first, _strength_at(value, part, depth), value, depth)


@formula
def _strength_at(value: Float[Array, "..."], part: Float[Array, "..."], depth: ArrayLike) -> Float[Array, "..."]:
    return xp.exp((xp.log(value) + xp.log(part)) / depth)


@entry
def transition_width(start: Numbers, sigma: Numbers, depth: int) -> Float[Array, "..."]:
    r"""How sharp learning is: $(t_{90} - t_{10})/t_{50}$, times at which the product is 90, 10, 50 % of $\sigma$.

    From one small start it falls fast with the depth: the plateau grows, the rise does not.

    Example:
        >>> round(float(transition_width(0.2, 2.0, 5)), 4)
        0.0255
    """
    first, value = _prepared("transition_width", depth, start=start, sigma=sigma)
    low, high = ((part * value) ** (1 / depth) for part in (0.1, 0.9))
    return scalar_time(low, high, value, depth) / product_time(first, value, depth)


@entry
def escape_time(start: Numbers, sigma: Numbers, depth: int) -> Float[Array, "..."]:
    r"""Length of the plateau from a small start, to leading order.

    $z_0^{2-L}/((L-2)\sigma)$ for $L \ge 3$, $\ln(\sqrt\sigma/z_0)/\sigma$ for $L = 2$: the time at which $z$ leaves the
    neighbourhood of zero. Its ratio to the time to half the product tends to 1 as $z_0 \to 0$.

    Args:
        start: $z_0$, positive, well below $\sigma^{1/L}$.
        sigma: $\sigma$, positive.
        depth: $L \ge 2$; one layer has no plateau.

    Returns:
        Times, `start` and `sigma` broadcast.

    Example:
        >>> float(escape_time(0.01, 2.0, 4).round(6))
        2500.0
    """
    where = "escape_time"
    first, value = _prepared(where, depth, start=start, sigma=sigma)
    check_count(where, "depth", depth, at_least=2)
    return _escape(first, value, depth)


@formula(static_argnums=2)
def _escape(first: Float[Array, "..."], value: Float[Array, "..."], depth: int) -> Float[Array, "..."]:
    if depth == 2:
        return (xp.log(value) / 2 - xp.log(first)) / value
    return xp.exp((2 - depth) * xp.log(first)) / ((depth - 2) * value)
