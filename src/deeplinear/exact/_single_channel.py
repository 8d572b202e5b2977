r"""Two layers between one input and one output, with any number of hidden units: solved from every start.

With $a = W_1$, $b = W_2^\top$ the flow of $\tfrac12(\sigma - a\cdot b)^2$ scales $a + b$ and $a - b$ by inverse
factors, $a \pm b = (a_0 \pm b_0)\,y^{\pm1/2}$, and $y$ obeys a scalar Riccati equation. Let $A = |a_0+b_0|^2$,
$B = |a_0-b_0|^2$, $\varrho = \sqrt{4\sigma^2 + AB}$, $R = 2\sigma + \varrho$ and $E = e^{-\varrho t}$. Then

$$y = \frac{R^2 + RB(1-E) + ABE}{A(B + R(1-E)) + R^2E},$$

a quotient of sums of positive numbers: nothing cancels and nothing overflows, also where $A$ or $B$ is zero.
"""

from typing import NamedTuple

from jaxtyping import Float

from deeplinear.core import Array, check_result, check_x64, differentiable, entry, formula, xp
from deeplinear.exact._block_algebra import Numbers, broadcast, checked, positive


class Channel(NamedTuple):
    """Weights of the hidden units of one channel, along the last axis: from the input, and to the output."""

    first: Float[Array, "*times hidden"]
    second: Float[Array, "*times hidden"]


def _prepared(where: str, first: Numbers, second: Numbers, sigma: Numbers) -> tuple[Array, Array, Array]:
    check_x64(where)
    a, b = (checked(where, name, x) for name, x in (("first", first), ("second", second)))
    value = positive(where, "sigma", sigma)
    if a.ndim != 1 or a.shape != b.shape or value.ndim:
        raise ValueError(
            f"{where}: first and second must have one axis of hidden units and sigma none, but have shapes {a.shape}, "
            f"{b.shape} and {value.shape}; use jax.vmap for several networks."
        )
    return a, b, value


@entry
def single_channel_rate(first: Numbers, second: Numbers, sigma: Numbers) -> Float[Array, ""]:
    r"""Rate $\varrho = \sqrt{4\sigma^2 + |a+b|^2|a-b|^2}$ at which the product approaches $\sigma$ in the end.

    Example:
        >>> float(single_channel_rate([0.1], [0.1], 1.0))
        2.0
    """
    return check_result("single_channel_rate", _rate(*_prepared("single_channel_rate", first, second, sigma)))


@formula
def _rate(a: Float[Array, " hidden"], b: Float[Array, " hidden"], value: Float[Array, ""]) -> Float[Array, ""]:
    return _speed(value, a + b, a - b)


@differentiable
def _speed(value: Float[Array, ""], plus: Float[Array, " hidden"], minus: Float[Array, " hidden"]) -> Float[Array, ""]:
    r"""$\varrho$, without squares that overflow."""
    return xp.hypot(2 * value, _norm(plus) * _norm(minus))


@_speed.defjvp
def _(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """Also where one of the norms vanishes, which enter by their squares."""
    value, plus, minus = primals
    rate = _speed(value, plus, minus)
    moved = 4 * (value / rate) * tangents[0]
    moved = moved + (xp.sum(minus**2) / rate) * (plus @ tangents[1]) + (xp.sum(plus**2) / rate) * (minus @ tangents[2])
    return rate, moved


def _norm(vector: Float[Array, " hidden"]) -> Float[Array, ""]:
    largest = xp.max(xp.abs(vector), initial=0.0)
    safe = xp.where(largest > 0, largest, 1.0)
    return largest * xp.sqrt(xp.sum((vector / safe) ** 2))


@entry
def single_channel(times: Numbers, first: Numbers, second: Numbers, sigma: Numbers) -> Channel:
    r"""Exact flow of two layers between one input and one output, $\dot a = (\sigma - a\cdot b)b$ and the same for $b$.

    Args:
        times: Times of any shape, from 0 to infinity.
        first: $a = W_1$ at time 0, one number for each hidden unit.
        second: $b = W_2$ at time 0, as many.
        sigma: $\sigma$, positive. For a negative target change the sign of `second`, before and after.

    Returns:
        $a$ and $b$, times first, then hidden units.

    Example:
        >>> found = single_channel(1.0, [1.0], [-0.5], 1.0)
        >>> round(float(found.first[0]), 12), round(float(found.second[0]), 12)
        (0.952002436744, 0.395358874399)
    """
    where = "single_channel"
    a, b, value = _prepared(where, first, second, sigma)
    t = checked(where, "times", times, at_least=0, finite=False)
    return check_result(where, Channel(*_weights(t, a, b, value)))


@formula
def _weights(
    t: Float[Array, "*times"], a: Float[Array, " hidden"], b: Float[Array, " hidden"], value: Float[Array, ""]
) -> tuple[Float[Array, "*times hidden"], Float[Array, "*times hidden"]]:
    plus, minus = a + b, a - b
    rate = _speed(value, plus, minus)
    # Everything relative to R, so that squares keep within the range of numbers.
    unit = xp.sqrt(2 * value + rate)
    big, small = xp.sum((plus / unit) ** 2), xp.sum((minus / unit) ** 2)
    ended = xp.isinf(t)
    passed = rate * xp.where(ended, 1.0, t)
    left, gone = xp.where(ended, 0.0, xp.exp(-passed)), xp.where(ended, 1.0, -xp.expm1(-passed))
    above = 1 + small * gone + big * small * left
    below = big * (small + gone) + left
    grown = xp.sqrt(above / xp.where(below > 0, below, 1.0))
    shrunk = xp.sqrt(below / above)
    ahead, apart = grown[..., None] * plus, shrunk[..., None] * minus
    return (ahead + apart) / 2, (ahead - apart) / 2


@entry
def single_channel_limit(first: Numbers, second: Numbers, sigma: Numbers) -> Channel:
    r"""Where two layers between one input and one output end.

    $a \pm b = (a_0 \pm b_0)(R/A)^{\pm1/2}$, a global minimum; from $a_0 = -b_0$ it is the origin, a saddle.

    Args:
        first: $a = W_1$ at time 0, one number for each hidden unit.
        second: $b = W_2$ at time 0, as many.
        sigma: $\sigma$, positive.

    Returns:
        $a$ and $b$ at the end.

    Example:
        >>> single_channel_limit([1.0], [-0.5], 1.0).first.round(12)
        array([1.20124954])
    """
    return single_channel(xp.inf, first, second, sigma)


@entry
def single_node_equilibrium(first: Numbers, second: Numbers, sigma: Numbers) -> tuple[Array, Array]:
    r"""Where one hidden unit ends, from what it conserves: $w_1^2 - w_2^2 = c$ and $w_1 w_2 = \sigma$.

    The larger of the two is $\sqrt{(|c| + \sqrt{c^2 + 4\sigma^2})/2}$, the other $\sigma$ over it; both have the sign
    of $w_1 + w_2$ at the start. The lines $w_1 = w_2$ and $w_1 = -w_2$ cut the plane into four wedges of either sign of
    $c$ and of $w_1 + w_2$; only the latter line separates basins, and from it the origin is reached.

    Args:
        first: $w_1$ at the start.
        second: $w_2$ at the start.
        sigma: $\sigma$, positive.

    Returns:
        $w_1$ and $w_2$ at the end; all arguments are broadcast.

    Example:
        >>> [round(float(w), 12) for w in single_node_equilibrium(0.5, -1.0, 1.0)]
        [-0.832466496722, -1.201249544501]
    """
    where = "single_node_equilibrium"
    check_x64(where)
    w1, w2, value = broadcast(
        where,
        first=checked(where, "first", first),
        second=checked(where, "second", second),
        sigma=positive(where, "sigma", sigma),
    )
    return _equilibrium(w1, w2, value)


@formula
def _equilibrium(w1: Array, w2: Array, value: Array) -> tuple[Array, Array]:
    law = (w1 - w2) * (w1 + w2)
    larger = xp.sqrt((xp.abs(law) + xp.hypot(law, 2 * value)) / 2)
    smaller = value / larger
    side = xp.sign(w1 + w2)
    return side * xp.where(law >= 0, larger, smaller), side * xp.where(law >= 0, smaller, larger)


@entry
def single_node_exponents(first: Numbers, second: Numbers, sigma: Numbers) -> Float[Array, "*batch 2"]:
    r"""Eigenvalues of the linearised flow of one hidden unit, in increasing order.

    Of $\begin{pmatrix}-w_2^2 & \sigma - 2w_1w_2\\ \sigma - 2w_1w_2 & -w_1^2\end{pmatrix}$: $\pm\sigma$ at the origin,
    and $-(\sigma^2 + w_1^4)/w_1^2 = -\sqrt{c^2 + 4\sigma^2}$ and 0 at a minimum.

    Args:
        first: $w_1$.
        second: $w_2$.
        sigma: $\sigma$.

    Returns:
        Two eigenvalues along the last axis; all arguments are broadcast.

    Example:
        >>> single_node_exponents(0.0, 0.0, 2.0), single_node_exponents(2.0, 1.0, 2.0)
        (array([-2.,  2.]), array([-5.,  0.]))
    """
    where = "single_node_exponents"
    w1, w2, value = broadcast(
        where,
        first=checked(where, "first", first),
        second=checked(where, "second", second),
        sigma=checked(where, "sigma", sigma),
    )
    return check_result(
        "single_node_exponents", _exponents(w1, w2, value) + 0.0
    )  # no negative zeros; compilers drop it


@formula
def _exponents(w1: Array, w2: Array, value: Array) -> Float[Array, "*batch 2"]:
    product = w1 * w2
    lower = -(w1**2 + w2**2) / 2 - xp.hypot((w1 - w2) * (w1 + w2) / 2, value - 2 * product)
    determinant = (3 * product - value) * (value - product)
    return xp.stack([lower, determinant / xp.where(lower < 0, lower, 1.0)], axis=-1)
