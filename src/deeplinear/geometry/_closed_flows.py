r"""Flows of one singular value in closed form, with the normalised operator: $\dot s = -c\,s^{2-2/L}f'(s)$."""

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    as_array,
    check_finite,
    check_number,
    check_x64,
    checked_layer,
    entry,
    is_concrete,
    xp,
)
from deeplinear.geometry._metric import checked_depth


@entry
def power_decay(start: Any, depth: float, times: Any) -> Float[Array, "..."]:
    r"""Singular values under $E = \tfrac12\|X\|_F^2$ with the normalised operator: they decay like a power of time.

    $s(t) = (s_0^{-a} + a\,t)^{-1/a}$ with $a = 2 - 2/L$, and $s_0e^{-t}$ for one layer. For $t < 0$ it is the solution
    back to $-s_0^{-a}/a$, where it escapes to infinity.

    Args:
        start: $s_0$, positive.
        depth: $L$, a positive integer or infinity.
        times: $t$; broadcast against `start`.

    Returns:
        $s(t)$.

    Raises:
        HypothesisError: A time at or before the one where the solution escapes.

    Example:
        >>> round(float(power_decay(2.0, math.inf, 4.0)), 9), round(float(power_decay(2.0, 2, 4.0)), 9)
        (0.348155312, 0.222222222)
    """
    where = "power_decay"
    rate = 1 / checked_depth(where, depth)
    first, time = xp.broadcast_arrays(_positive(where, "start", start), _numbers(where, "times", times))
    if rate == 1:
        return first * xp.exp(-time)
    power = 2 - 2 * rate
    left = 1 + power * time * first**power
    if is_concrete(left) and bool(xp.any(left <= 0)):
        raise HypothesisError(
            f"{where}: times after the solution came from infinity",
            float(-xp.min(left)),
            0.0,
            "Backwards the solution exists only since -s_0^(-a)/a with a = 2 - 2/L.",
        )
    return first * left ** (-1 / power)


@entry
def logistic_mode(start: Any, target: Any, times: Any, *, speed: float = 1.0) -> Float[Array, "..."]:
    r"""One singular value that learns under $E = \tfrac c2(s - y)^2$ with two layers: $\dot s = c\,s\,(y - s)$.

    Args:
        start: $s_0$, positive.
        target: $y$, positive.
        times: $t$; all are broadcast.
        speed: $c$.

    Returns:
        $s(t) = y/(1 + (y/s_0 - 1)e^{-cyt})$, of the operator divided by the depth.

    Example:
        >>> float(logistic_mode(0.5, 1.0, 0.0)), float(logistic_mode(0.001, 1.0, jnp.log(999.0)).round(12))
        (0.5, 0.5)
    """
    where = "logistic_mode"
    check_number(where, "speed", speed, above=0)
    first, y = _positive(where, "start", start), _positive(where, "target", target)
    return y / (1 + (y / first - 1) * xp.exp(-speed * y * _numbers(where, "times", times)))


@entry
def learning_time(start: Any, end: Any, target: Any, depth: float, *, speed: float = 1.0) -> Float[Array, "..."]:
    r"""Time in which $\dot s = c\,s^{2-2/L}(y - s)$ takes a singular value from $s_0$ to $s$; depth two or infinity.

    It is $\tfrac1{cy}\ln\frac{s(y - s_0)}{s_0(y - s)}$ for two layers and
    $\tfrac1c\big[-\tfrac1{ys} + \tfrac1{y^2}\ln\tfrac s{y-s}\big]_{s_0}^s$ in the limit of depth: a small start waits
    for a time like $\ln(1/s_0)$ in the former and like $1/s_0$ in the latter.

    Args:
        start: $s_0$, positive and on the same side of the target as the end.
        end: $s$, positive.
        target: $y$, positive.
        depth: 2 or infinity.
        speed: $c$.

    Returns:
        The time, negative if the end lies farther from the target than the start.

    Example:
        >>> float(learning_time(1e-3, 0.5, 1.0, math.inf).round(3))
        1004.907
    """
    where = "learning_time"
    check_number(where, "speed", speed, above=0)
    if checked_depth(where, depth) not in (2, math.inf):
        raise ValueError(f"{where}: depth must be 2 or infinity (math.inf), but is {depth}; else follow matrix_flow.")
    first, last, y = xp.broadcast_arrays(
        *(_positive(where, n, v) for n, v in (("start", start), ("end", end), ("target", target)))
    )
    ratio = (last / (y - last)) * ((y - first) / first)
    if is_concrete(ratio) and not bool(xp.all((ratio > 0) & xp.isfinite(ratio))):
        raise HypothesisError(
            f"{where}: start and end on one side of the target",
            float(xp.sum(~((ratio > 0) & xp.isfinite(ratio)))),
            0.0,
            "The number of triples for which it does not hold is told; the target itself is never reached.",
        )
    if depth == 2:
        return xp.log(ratio) / (speed * y)
    return ((last - first) / (y * first * last) + xp.log(ratio) / y**2) / speed


def _numbers(where: str, name: str, value: Any) -> Array:
    check_x64(where)
    array = as_array(checked_layer(where, name, value), float)
    check_finite(where, name, array)
    return array


def _positive(where: str, name: str, value: Any) -> Array:
    array = _numbers(where, name, value)
    if is_concrete(array) and bool(np.any(np.asarray(array) <= 0)):
        raise ValueError(f"{where}: {name} must be positive, but reaches {float(xp.min(array)):g}.")
    return array
