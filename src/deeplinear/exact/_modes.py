r"""One singular mode of two $\lambda$-balanced layers whose start is aligned with the task.

Its strength obeys $\dot s = 2(\tilde s - s)\sqrt{s^2 + \lambda^2/4}$ and moves from $s_0$ to $\tilde s$ as
$s = s_0 + \gamma(t)(\tilde s - s_0)$. With $l = \lambda/2$, $\tilde s_\lambda = \sqrt{\tilde s^2 + l^2}$, $s_\lambda =
\sqrt{s_0^2 + l^2}$, $z = e^{-2\tilde s_\lambda t}$, $\varphi = (1 - z)/\tilde s_\lambda$ and $\kappa = \tilde s_\lambda
s_\lambda + \tilde s s_0 + l^2 \ge 0$,

$$\gamma = \frac{n}{n + z}, \qquad n = \varphi s_\lambda z + \tfrac12\varphi^2\kappa,$$

in which nothing grows and, with $\kappa$ written for either sign of $s_0$, nothing cancels. For $\kappa = 0$, that is
$\lambda = 0$ and $s_0 \le 0$, the mode is stuck at 0.
"""

from typing import NamedTuple

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import Array, check_result, check_x64, entry, formula, is_concrete, xp
from deeplinear.exact._block_algebra import Numbers, broadcast, checked
from deeplinear.models import layer_strengths

LARGEST = 1e100
r"""Largest strength, target and $|\lambda|$: their squares and products are numbers."""

LATEST = 1e150
"""Times beyond this, infinity included, count as this one: its square is a number."""

SERIES = 0.1
"""Arguments of $(1 - e^{-x})/x$ below this take the series, whose derivative keeps its digits."""

OVERFLOW = 700.0
r"""Largest argument of the hyperbolic functions as printed: $\cosh 700$ times a moderate factor is a number."""


class _Mode(NamedTuple):
    """What the formulas share; all of one shape."""

    start: Float[Array, "*batch"]
    target: Float[Array, "*batch"]
    lam: Float[Array, "*batch"]

    @property
    def half(self) -> Array:
        r"""$l = \lambda/2$."""
        return self.lam / 2

    @property
    def end_speed(self) -> Array:
        r"""$\tilde s_\lambda$."""
        return _length(self.target, self.half)

    @property
    def start_speed(self) -> Array:
        r"""$s_\lambda$ of the start."""
        return _length(self.start, self.half)

    @property
    def product(self) -> Array:
        r"""$p = \tilde s_\lambda s_\lambda$."""
        return self.end_speed * self.start_speed

    @property
    def overlap(self) -> Array:
        r"""$k = \tilde s s_0 + l^2$."""
        return self.target * self.start + self.half**2

    @property
    def kappa(self) -> Array:
        r"""$\kappa = p + k$, without cancellation for a start of the wrong sign."""
        apart = (self.start < 0) & (self.end_speed > 0)
        below = xp.where(apart, self.product - self.target * self.start, 1.0)
        squares = self.target**2 + self.start**2 + self.half**2
        return xp.where(apart, self.half**2 * (1 + squares / below), self.product + self.overlap)

    def clock(self, t: Array) -> tuple[Array, Array]:
        r"""$z$ and $\varphi$."""
        t = xp.minimum(t, LATEST)
        speed = self.end_speed
        x = 2 * speed * t
        near = x < SERIES
        small = xp.where(near, x, 0.0)
        series = xp.ones_like(small)
        for k in range(11, 1, -1):
            series = 1 - small / k * series
        far = -xp.expm1(-xp.where(near, 1.0, x)) / xp.where(near, 1.0, speed)
        return xp.exp(-x), xp.where(near, 2 * xp.where(near, t, 0.0) * series, far)


def _length(x: Array, y: Array) -> Array:
    """Length of (x, y) with derivative zero at the origin, where the formulas only use its square."""
    away = (x != 0) | (y != 0)
    return xp.where(away, xp.hypot(xp.where(away, x, 1.0), xp.where(away, y, 1.0)), 0.0)


def _quotient(above: Array, below: Array, where: Array) -> Array:
    """above / below where it is asked for, else 0, with derivatives that are numbers everywhere."""
    return xp.where(where, xp.where(where, above, 0.0) / xp.where(where, below, 1.0), 0.0)


@formula
def _progress(mode: _Mode, t: Array) -> Array:
    z, phi = mode.clock(t)
    kappa, grown = mode.kappa, phi * mode.start_speed
    moves = (kappa > 0) | (mode.end_speed == 0)
    n = grown * z + phi**2 * kappa / 2
    return xp.where(moves, _quotient(n, n + z, moves), grown / (1 + grown))


@formula
def _strength(mode: _Mode, t: Array) -> Array:
    z, phi = mode.clock(t)
    kappa, grown = mode.kappa, phi * mode.start_speed
    moves = (kappa > 0) | (mode.end_speed == 0)
    rise = phi**2 * kappa / 2
    # Of a start of the wrong sign that has fallen: start + target * grown with the leading parts cancelled by hand.
    fallen = (mode.start < 0) & (z < 0.5)
    s0, end, s_lam, e_lam = (
        xp.where(fallen, x, 1.0) for x in (mode.start, mode.target, mode.start_speed, mode.end_speed)
    )
    sum_of_crossed = end * s_lam - s0 * e_lam
    left = mode.half**2 * (end - s0) * (end + s0) / xp.where(fallen, sum_of_crossed, 1.0) - end * s_lam * z
    first = xp.where(fallen, left / e_lam, mode.start + mode.target * grown)
    general = _quotient(z * first + mode.target * rise, grown * z + rise + z, moves)
    return xp.where(moves, general, mode.start * z / (1 + grown))


@formula
def _time(mode: _Mode, fraction: Array) -> Array:
    speed, p, k, kappa = mode.end_speed, mode.product, mode.overlap, mode.kappa
    odds = fraction / (1 - fraction)
    q = speed**2 * odds
    m = k + q
    root = _length(m, mode.half * (mode.target - mode.start))
    falling = m < 0
    # In both forms e^{2 speed t} - 1; the first without kappa, which may be zero.
    early = _quotient(q * (1 + _quotient(p - k, root - m, falling)), root + p, falling)
    reached = ~falling & (kappa > 0) & (speed > 0)
    late = _quotient(q * (kappa + m + root), (root + p) * xp.where(reached, kappa, 1.0), reached)
    logarithmic = _quotient(xp.log1p(xp.where(falling, early, late)), 2 * speed, speed > 0)
    hyperbolic = _quotient(odds, 2 * xp.abs(mode.start), mode.start != 0)
    never = xp.where(speed > 0, ~falling & (kappa <= 0), mode.start == 0)
    return xp.where(never, xp.inf, xp.where(speed > 0, logarithmic, hyperbolic))


def _checked(
    where: str, first: str, value: Float[Array, "..."], start: Numbers, target: Numbers, lam: Numbers
) -> tuple[_Mode, Float[Array, "*batch"]]:
    """The mode and one more argument, all of one shape."""
    check_x64(where)
    start = _bounded(where, "start", start)
    target = checked(where, "target", target, at_least=0, at_most=LARGEST)
    lam = _bounded(where, "lam", lam)
    value, start, target, lam = broadcast(where, **{first: value}, start=start, target=target, lam=lam)
    return _Mode(start, target, lam), value


def _bounded(where: str, name: str, value: Numbers) -> Float[Array, "..."]:
    return checked(where, name, value, at_least=-LARGEST, at_most=LARGEST)


def _times(where: str, t: Numbers) -> Float[Array, "..."]:
    return checked(where, "t", t, at_least=0, finite=False)


@entry
def mode_progress(t: Numbers, start: Numbers, target: Numbers, lam: Numbers) -> Float[Array, "*batch"]:
    r"""Which part $\gamma(t) \in [0, 1]$ of its way a mode of two $\lambda$-balanced layers has gone.

    $s(t) = s_0 + \gamma(t)(\tilde s - s_0)$ solves $\dot s = 2(\tilde s - s)\sqrt{s^2 + \lambda^2/4}$. $\gamma$ grows
    from 0 to 1, unless $\lambda = 0$ and $s_0 \le 0$: such a mode is stuck, $s \to 0$ and $\gamma \to |s_0|/(|s_0| +
    \tilde s)$. The sign of $\lambda$ does not matter.

    Args:
        t: Times, from 0 to infinity.
        start: $s_0$, negative where the start has the wrong sign.
        target: $\tilde s \ge 0$.
        lam: $\lambda$.

    Returns:
        $\gamma$, of the common shape of the arguments.

    Example:
        >>> round(float(mode_progress(1.0, 0.3, 1.5, 2.0)), 10)
        0.948501815
    """
    mode, t = _checked("mode_progress", "t", _times("mode_progress", t), start, target, lam)
    return _progress(mode, t)


@entry
def mode_strength(t: Numbers, start: Numbers, target: Numbers, lam: Numbers) -> Float[Array, "*batch"]:
    r"""Strength $s(t)$ of a mode of two $\lambda$-balanced layers.

    Solves $\dot s = 2(\tilde s - s)\sqrt{s^2 + \lambda^2/4}$, with all digits of a start of any size on its plateau and
    of a mode that passes close to 0; see `mode_progress`.

    Args:
        t: Times, from 0 to infinity.
        start: $s_0$, negative where the start has the wrong sign.
        target: $\tilde s \ge 0$.
        lam: $\lambda$.

    Returns:
        $s$, of the common shape of the arguments.

    Example:
        >>> round(float(mode_strength(1.0, 0.3, 1.5, 2.0)), 10)
        1.438202178
    """
    mode, t = _checked("mode_strength", "t", _times("mode_strength", t), start, target, lam)
    return _strength(mode, t)


@entry
def learning_time(fraction: Numbers, start: Numbers, target: Numbers, lam: Numbers) -> Float[Array, "*batch"]:
    r"""When a mode of two $\lambda$-balanced layers has gone a given part of its way: the inverse of `mode_progress`.

    Args:
        fraction: $\gamma$, between 0 and 1.
        start: $s_0$, negative where the start has the wrong sign.
        target: $\tilde s \ge 0$.
        lam: $\lambda$.

    Returns:
        The time $t$ with $\gamma(t)$ equal to the fraction; infinite where the mode is stuck before. Of the common
        shape of the arguments.

    Raises:
        ValueError: If the fraction is not between 0 and 1. Under a transformation this stops the run instead.

    Example:
        >>> round(float(learning_time(0.5, 0.3, 1.5, 2.0)), 10)
        0.2920506128
        >>> float(learning_time(0.5, -1.0, 1.0, 0.0))
        inf
    """
    where = "learning_time"
    fraction = checked(where, "fraction", fraction, above=0)
    if is_concrete(fraction) and np.any(np.asarray(fraction) >= 1):
        raise ValueError(f"{where}: fraction must be less than 1, but is {float(np.max(np.asarray(fraction))):g}.")
    if not is_concrete(fraction):
        inside = xp.all((fraction > 0) & (fraction < 1))
        fraction = xp.asarray(
            eqx.error_if(fraction, ~inside, f"{where}: fraction must be between 0 and 1, but is not.")
        )
    mode, fraction = _checked(where, "fraction", fraction, start, target, lam)
    return _time(mode, fraction)


@entry
def mode_progress_printed(t: Numbers, start: Numbers, target: Numbers, lam: Numbers) -> Float[Array, "*batch"]:
    r"""$\gamma(t)$ with hyperbolic functions, as it is usually written; for comparison with `mode_progress`.

    $$\gamma = \frac{p\sinh x + k\cosh x - k}{p\sinh x + k\cosh x + \tilde s(\tilde s - s_0)},
    \qquad x = 2\tilde s_\lambda t,$$

    $p = \tilde s_\lambda s_\lambda$, $k = \tilde s s_0 + \lambda^2/4$. It overflows from $x \approx 700$ on, cancels
    for a start of the wrong sign and is 0/0 for $\tilde s = \lambda = 0$.

    Args:
        t: Times, at least 0.
        start: $s_0$.
        target: $\tilde s \ge 0$.
        lam: $\lambda$.

    Returns:
        $\gamma$, of the common shape of the arguments.

    Raises:
        ValueError: If $x > 700$, or target and lam are both 0. Under a transformation these stop the run instead.

    Example:
        >>> round(float(mode_progress_printed(1.0, 0.3, 1.5, 2.0)), 10)
        0.948501815
    """
    where = "mode_progress_printed"
    mode, t = _checked(where, "t", checked(where, "t", t, at_least=0), start, target, lam)
    x, speed = _argument(mode, t)
    too_late = (
        f"{where}: 2 t sqrt(target^2 + lam^2/4) must be at most {OVERFLOW:g}; take mode_progress, without overflow."
    )
    undefined = f"{where}: target and lam must not both be 0, where the printed form is 0/0; take mode_progress."
    return check_result(where, _hyperbolic(mode, _refused(_refused(x, x > OVERFLOW, too_late), speed == 0, undefined)))


@formula
def _argument(mode: _Mode, t: Array) -> tuple[Array, Array]:
    """That of the hyperbolic functions, and the speed."""
    speed = mode.end_speed
    return 2 * speed * t, speed


@formula
def _hyperbolic(mode: _Mode, x: Array) -> Array:
    p, k = mode.product, mode.overlap
    common = p * xp.sinh(x) + k * xp.cosh(x)
    return (common - k) / (common + mode.target * (mode.target - mode.start))


def _refused(guarded: Array, broken: Array, message: str) -> Array:
    """The array, or a refusal, now or at run time; use what is returned."""
    if not is_concrete(broken):
        return eqx.error_if(guarded, broken, message)
    if np.any(np.asarray(broken)):
        raise ValueError(message)
    return guarded


@entry
def mode_progress_rich(t: Numbers, start: Numbers, target: Numbers) -> Float[Array, "*batch"]:
    r"""The limit $\lambda \to 0$ of `mode_progress`: a sigmoid, $\gamma = (e^{2\tilde st} - 1)/(e^{2\tilde st} - 1 +
    \tilde s/s_0)$.

    `mode_progress` differs from it by $O(\lambda^2)$, uniformly in time.

    Args:
        t: Times, from 0 to infinity.
        start: $s_0 > 0$.
        target: $\tilde s \ge 0$.

    Returns:
        $\gamma$, of the common shape of the arguments.

    Example:
        >>> round(float(mode_progress_rich(1.0, 0.3, 1.5)), 10)
        0.7924065378
    """
    where = "mode_progress_rich"
    checked(where, "start", start, above=0)
    mode, t = _checked(where, "t", _times(where, t), start, target, 0.0)
    return _rich(mode, t)


@formula
def _rich(mode: _Mode, t: Array) -> Array:
    z, phi = mode.clock(t)
    grown = phi * mode.start
    return grown / (grown + z)


@entry
def mode_progress_lazy(t: Numbers, lam: Numbers) -> Float[Array, "*batch"]:
    r"""The limit $|\lambda| \to \infty$ of `mode_progress`: an exponential, $\gamma = 1 - e^{-|\lambda|t}$.

    `mode_progress` differs from it by $O(\lambda^{-2})$, uniformly in time.

    Args:
        t: Times, from 0 to infinity.
        lam: $\lambda$, not 0.

    Returns:
        $\gamma$, of the common shape of the arguments.

    Example:
        >>> round(float(mode_progress_lazy(0.1, -20.0)), 10)
        0.8646647168
    """
    where = "mode_progress_lazy"
    check_x64(where)
    lam = _bounded(where, "lam", lam)
    if is_concrete(lam) and np.any(np.asarray(lam) == 0):
        raise ValueError(f"{where}: lam must not be 0, but is.")
    return _lazy(*broadcast(where, t=_times(where, t), lam=lam))


@formula
def _lazy(t: Array, lam: Array) -> Array:
    t = xp.minimum(t, LATEST)
    return -xp.expm1(-xp.abs(lam) * t)


@entry
def reversal_mode(
    t: Numbers,
    strength: Numbers,
    target: Numbers,
    lam: Numbers,
    *,
    reversed: bool | ArrayLike = True,
    as_printed: bool = False,
) -> Float[Array, "*batch"]:
    r"""Strength of a mode after its task was turned round, in the explicit form with $b$ and $c$.

    With $s_1, s_2$ the layer strengths of the start, $\pm = -1$ for a reversed mode and $+1$ for another, $h =
    (\lambda/2)/(\tilde s_\lambda + \tilde s)$, $g = 1/\sqrt{1 + h^2}$ and $z = e^{-2\tilde s_\lambda t}$,

    $$s(t) = \frac{\tilde s(b^2 - c^2z^2) - \lambda bcz}{4\tilde s_\lambda z + b^2(1 - z) + c^2(z - z^2)}, \quad
    b = \pm s_2g(1+h) + s_1g(1-h), \quad c = \pm s_2g(1-h) - s_1g(1+h).$$

    It ends at $\tilde s$, or at 0 where $b = 0$: a reversed mode at $\lambda = 0$. Equal to `mode_strength` from $\pm$
    `strength`.

    Args:
        t: Times, from 0 to infinity.
        strength: Strength at the start, at least 0, in the direction of the old task.
        target: $\tilde s > 0$, in the direction of the new task.
        lam: $\lambda$.
        reversed: Whether the two directions are opposite.
        as_printed: The form as printed instead, which has the inverse of the start's $s_\lambda$ for the 1 that
            gives the term $4\tilde s_\lambda z$, $\tilde s_\lambda$ for $\tilde s$ in the numerator and no cross term;
            it ends at $\tilde s_\lambda$.

    Returns:
        $s$ in the direction of the new task, of the common shape of the arguments.

    Example:
        >>> round(float(reversal_mode(2.0, 1.0, 1.0, 0.5)), 10)
        0.6363310155
        >>> round(float(reversal_mode(50.0, 1.0, 1.0, 3.0, as_printed=True)), 10)
        1.8027756377
    """
    where = "reversal_mode"
    strength = checked(where, "strength", strength, at_least=0, at_most=LARGEST)
    checked(where, "target", target, above=0)
    if is_concrete(reversed):
        sign = xp.asarray(np.where(np.asarray(reversed, dtype=bool), -1.0, 1.0), dtype=float)
    else:
        sign = xp.where(xp.asarray(reversed, dtype=bool), -1.0, 1.0)
    (strength, sign) = broadcast(where, strength=strength, reversed=sign)
    mode, t = _checked(where, "t", _times(where, t), strength, target, lam)
    return check_result(where, _reversal(mode, t, sign, as_printed))


@formula(static_argnums=3)
def _reversal(mode: _Mode, t: Array, sign: Array, as_printed: bool) -> Array:
    sign = xp.broadcast_to(sign, mode.start.shape)
    mode = _Mode(sign * mode.start, mode.target, mode.lam)
    speed, lam = mode.end_speed, mode.lam
    z = xp.exp(-2 * speed * xp.minimum(t, LATEST))
    if as_printed:
        first, second = layer_strengths(xp.abs(mode.start), lam)
        h = mode.half / (speed + mode.target)
        g = 1 / xp.sqrt(1 + h**2)
        b = sign * second * g * (1 + h) + first * g * (1 - h)
        c = sign * second * g * (1 - h) - first * g * (1 + h)
        rate = mode.start_speed
        above = rate * speed * (b**2 - c**2 * z**2)
        return above / (4 * speed * z + rate * (b**2 * (1 - z) + c**2 * (z - z**2)))
    # b^2 = 2 kappa / speed, c^2 = 2 (p - k) / speed and b c = lam (target - start) / speed; halved throughout.
    kappa = mode.kappa
    gap = mode.half**2 * (mode.target - mode.start) ** 2  # (p - k)(p + k)
    other = xp.where(mode.start < 0, mode.product - mode.overlap, _quotient(gap, kappa, kappa > 0))
    cross = 2 * mode.half**2 * (mode.target - mode.start)
    above = mode.target * (kappa - other * z**2) - cross * z
    below = 2 * speed**2 * z + kappa * (1 - z) + other * z * (1 - z)
    moves = kappa > 0
    stuck = _quotient(-mode.target * other * z, 2 * speed**2 + other * (1 - z), ~moves)
    return xp.where(moves, _quotient(above, below, moves), stuck)
