r"""One mode of an aligned network by tables of time: its two legs, leaving and arriving, as `_layer_modes` has them.

$y$ is the layer of smallest size, $c_l$ by how much the square of another exceeds $y^2$, $P(y)$ the product of the
others, $\sigma = yP$, $S$ the target and $Y$ the end, $\sigma(Y) = S$. A leg tabulates time over a variable of its own;
Newton's steps inside one panel invert the table.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from deeplinear.core import Array, fori_loop, is_program, refused_derivative, stop_gradient, while_loop, xp

PANELS = 512
NEWTON_STEPS = 6
ROOT_STEPS = 60  # at most: one for each kink of a convex function, and few for the last digits
CLOSE = 1e-9  # a step of Newton's this small leaves an error of its square
SETTLED = 40.0  # e^{-40} is below rounding: from here on the logarithm of the residual is linear in time
LAST = 700.0  # e^{-700} is still a number
LOGARITHM = 660.0  # of the largest derivative of time: its sums are numbers
TINY = 1e-18  # relative to every scale of the equation; what this changes is below rounding
NODES, WEIGHTS = (np.pad(x, 1) for x in np.polynomial.legendre.leggauss(10))
NODES[0], NODES[-1] = -1.0, 1.0  # the ends of a panel, of weight 0: the derivative there comes along


class _Mode(NamedTuple):
    """One mode with its signs taken away. Arrays over layers have an entry 0, not `other`, for the smallest layer."""

    smallest: Float[Array, ""]  # y at the start, signed so that the target is not negative
    size: Float[Array, ""]  # |y| at the start, positive also where y is 0 and no leg uses it
    target: Float[Array, ""]  # S, positive also where it is 0 and no leg uses it
    opposed: Float[Array, ""]  # S of the leaving leg, which may be 0
    excess: Float[Array, " depth"]  # c_l
    other: Bool[Array, " depth"]
    ties: Float[Array, ""]  # how many others have c_l = 0
    log_end: Float[Array, ""]  # ln Y

    @property
    def depth(self) -> int:
        """Number of layers."""
        return self.excess.shape[0]

    def log_others(self, log_y: Array) -> Array:
        """ln P(y)."""
        return _log_others(self.excess, self.other, log_y)

    @property
    def rate(self) -> Float[Array, ""]:
        """How fast the distance from the end decays at last."""
        return xp.exp(2 * self.log_others(self.log_end)) * self.slope(xp.zeros(()))

    def log_ratio(self, a: Array) -> Array:
        """ln(sigma / S) at y = Y e^a, without cancellation."""
        near = xp.abs(a) < 1
        square = xp.exp(2 * self.log_end)
        part = square / (square + self.excess)
        close = xp.log1p(part * xp.expm1(2 * xp.where(near, a, 0.0))[..., None]) / 2
        far = self.log_others(self.log_end + xp.where(near, 0.0, a)) - self.log_others(self.log_end)
        return a + xp.where(near, xp.sum(xp.where(self.other, close, 0.0), axis=-1), far)

    def slope(self, a: Array) -> Array:
        """Derivative of `log_ratio`, between 1 and the depth."""
        return 1 + _shares(self.excess, self.other, self.log_end + a)

    @property
    def displacement(self) -> Float[Array, ""]:
        """a of the start; of no use where y is not positive."""
        return xp.log(self.size) - self.log_end

    @property
    def begin(self) -> Float[Array, ""]:
        """Where the way to the end begins: at the start, or at zero after a start of the wrong sign."""
        return xp.where(self.smallest < 0, 0.0, self.smallest)

    @property
    def falling(self) -> Bool[Array, ""]:
        """Whether the start is above the end."""
        return (self.smallest > 0) & (self.displacement > 0)

    @property
    def least(self) -> Float[Array, ""]:
        """Smallest positive scale sqrt(c_l), infinite where there is none."""
        return stop_gradient(xp.sqrt(xp.min(xp.where(self.excess > 0, self.excess, xp.inf))))

    @property
    def linear(self) -> Float[Array, ""]:
        """Size of y within which its speed near zero is constant; 0 where it is not."""
        end = xp.exp(stop_gradient(self.log_end))
        return xp.where(self.ties > 0, 0.0, TINY * xp.minimum(self.least, end))

    @property
    def speed_at_zero(self) -> Float[Array, ""]:
        """S P(0), where there are no ties."""
        usable = self.other & (self.excess > 0)
        return self.target * xp.exp(xp.sum(xp.where(usable, xp.log(xp.where(usable, self.excess, 1.0)) / 2, 0.0)))


def _log_others(excess: Array, other: Array, log_y: Array) -> Array:
    """Sum of ln sqrt(y^2 + c_l) over the others."""
    squares = xp.exp(2 * log_y)[..., None] + excess
    return xp.sum(xp.where(other, xp.log(xp.where(other, squares, 1.0)) / 2, 0.0), axis=-1)


def _shares(excess: Array, other: Array, log_y: Array) -> Array:
    """Sum of y^2 / (y^2 + c_l) over the others."""
    square = xp.exp(2 * log_y)[..., None]
    return xp.sum(xp.where(other, square / (square + excess), 0.0), axis=-1)


def _root(
    function: Callable[[Any, Array], Array],
    slope: Callable[[Any, Array], Array],
    numbers: Any,
    value: Array,
    first: Array,
) -> Array:
    """Where a convex function with slopes between 1 and the depth takes a value, by Newton's steps from above.

    Both functions are given `numbers` and a place. Differentiable: the last step is nothing in value and has the
    implicit derivative.
    """
    fixed, wanted = stop_gradient((numbers, value))

    def going(state: tuple[Array, Array, Array]) -> Bool[Array, ""]:
        x, moved, count = state
        return xp.any(xp.abs(moved) > CLOSE * (1 + xp.abs(x))) & (count < ROOT_STEPS)

    def newton(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, _, count = state
        moved = (wanted - function(fixed, x)) / slope(fixed, x)
        return x + moved, moved, count + 1

    first = stop_gradient(first + xp.zeros_like(value))
    x, _, _ = while_loop(going, newton, (first, xp.full_like(first, xp.inf), xp.zeros((), int)))
    return x + (value - function(numbers, x)) / slope(numbers, x)


def log_smallest(excess: Array, other: Array, log_product: Array) -> Array:
    """ln y of a given product."""
    return _root(
        lambda layers, x: x + _log_others(*layers, x),
        lambda layers, x: 1 + _shares(*layers, x),
        (excess, other),
        log_product,
        log_product / excess.shape[0],
    )


class _Table(NamedTuple):
    """Edges of the panels, the times at them, and the derivative of time there."""

    edges: Float[Array, " edges"]
    times: Float[Array, " edges"]
    slowness: Float[Array, " edges"]


Slowness = Callable[[_Mode, Array], Array]
"""Derivative of time with respect to the variable of a leg."""


def _panel(slowness: Slowness, mode: _Mode, start: Array, end: Array) -> tuple[Array, Array, Array]:
    """Time between two near values of the variable, and the derivative of time at both."""
    half = (end - start) / 2
    values = slowness(mode, start[..., None] + half[..., None] * (1 + NODES))
    return half * xp.sum(WEIGHTS * values, axis=-1), values[..., 0], values[..., -1]


def _table(slowness: Slowness, mode: _Mode, start: Array, end: Array) -> _Table:
    edges = start + (end - start) * xp.arange(PANELS + 1) / PANELS
    times, first, last = _panel(slowness, mode, edges[:-1], edges[1:])
    times = xp.concatenate([xp.zeros(1), xp.cumsum(times)])
    return _Table(edges, times, xp.concatenate([first[:1], last]))


def _when(slowness: Slowness, mode: _Mode, table: _Table, place: Array) -> Array:
    """Time at which a place within the table is reached."""
    panel = xp.clip(xp.searchsorted(table.edges, place, side="right") - 1, 0, PANELS - 1)
    return table.times[panel] + _panel(slowness, mode, table.edges[panel], place)[0]


def _place(slowness: Slowness, mode: _Mode, table: _Table, times: Array) -> Array:
    """Inverse of `_when`, differentiable in the times and in the mode."""
    frozen, known = stop_gradient((mode, table))
    wanted_at = stop_gradient(times)
    panel = xp.clip(xp.searchsorted(known.times, wanted_at, side="right") - 1, 0, PANELS - 1)
    start, end = known.edges[panel], known.edges[panel + 1]
    wanted = wanted_at - known.times[panel]
    # First guess: the derivative of time changes exponentially within the panel.
    slow = known.slowness[panel]
    growth = xp.log(known.slowness[panel + 1] / slow)
    curved = (xp.abs(growth) > 1e-3) & (end > start)
    bend = xp.where(curved, growth, 1.0) / xp.where(curved, end - start, 1.0)
    share = xp.maximum(xp.where(curved, wanted * bend / slow, 0.0), -0.999)
    first = xp.where(curved, xp.log1p(share) / bend, wanted / slow)

    def newton(_: ArrayLike, place: Array) -> Array:
        passed, _, slow = _panel(slowness, frozen, start, place)
        return xp.clip(place + (wanted - passed) / slow, start, end)

    place = fori_loop(0, NEWTON_STEPS, newton, xp.clip(start + first, start, end))
    place = stop_gradient(place)
    # One step with everything differentiable: nothing in value, the implicit derivative in its derivative.
    passed, _, slow = _panel(slowness, mode, table.edges[panel], place)
    return place + (times - table.times[panel] - passed) / slow


# --- Leaving: a product of the wrong sign falls to zero ---------------------------------------------------------------


def _leaving_slowness(mode: _Mode, v: Array) -> Array:
    log_others = mode.log_others(-v)
    product = xp.exp(xp.clip(log_others - v, -LAST, LAST))
    return xp.exp(xp.clip(-v - log_others - xp.log(mode.opposed + product), -LOGARITHM, LOGARITHM))


class _Leaving(NamedTuple):
    """The fall of |y| to zero: a table, and below it a power law, an exponential or a straight line."""

    mode: _Mode
    table: _Table
    power: Float[Array, ""]  # q of e^{qv}, to which the derivative of time is proportional in the end

    @property
    def last(self) -> Array:
        """Derivative of time at the end of the table."""
        return self.table.slowness[-1]

    @property
    def crossing(self) -> Float[Array, ""]:
        """When zero is reached; infinite where it never is."""
        return xp.where(self.power < 0, self.table.times[-1] + self.last, xp.inf)

    def size(self, times: Array) -> Array:
        """|y| before the crossing."""
        end = self.table.times[-1]
        inside = times < end
        place = _place(_leaving_slowness, self.mode, self.table, xp.where(inside, times, 0.0))
        passed = xp.maximum(xp.where(inside, end, times) - end, 0.0) / self.last
        bent = self.power != 0
        q = xp.where(bent, self.power, 1.0)
        curved = xp.log1p(xp.maximum(q * xp.where(bent, passed, 0.0), -1 + 1e-16)) / q
        fall = xp.where(bent, curved, passed)
        return xp.exp(-xp.where(inside, place, self.table.edges[-1] + fall))

    def time(self, log_size: Array) -> Array:
        """When |y| is reached, given its logarithm."""
        v = -log_size
        end = self.table.edges[-1]
        inside = v < end
        before = _when(_leaving_slowness, self.mode, self.table, xp.where(inside, v, end))
        beyond = xp.where(inside, 0.0, v - end)
        bent = self.power != 0
        q = xp.where(bent, self.power, 1.0)
        return before + self.last * xp.where(bent, xp.expm1(xp.minimum(q * beyond, LAST)) / q, beyond)


def _leaving(mode: _Mode) -> _Leaving:
    start = -xp.log(mode.size)
    opposed = mode.opposed > 0
    end = xp.where(opposed, 1e-8 * xp.exp(mode.log_end), xp.inf)
    end = -xp.log(1e-9 * stop_gradient(xp.minimum(xp.minimum(mode.size, mode.least), end)))
    power = xp.where(opposed, mode.ties - 1, 2 * mode.ties)
    return _Leaving(mode, _table(_leaving_slowness, mode, start, end), power)


# --- Arriving: from zero, from below or from above to the end ---------------------------------------------------------


def _from_eta(mode: _Mode, eta: Array) -> Array:
    """a at eta, on the side of the start."""
    size = xp.log1p(xp.exp(-eta))
    return xp.where(mode.falling, size, -size)


def _arriving_slowness(mode: _Mode, eta: Array) -> Array:
    eta = xp.minimum(eta, LAST)
    w = xp.exp(-eta)
    a = _from_eta(mode, eta)
    ratio = mode.log_ratio(a)
    quotient = w / (1 + w) / -xp.expm1(-xp.abs(ratio))  # (1 - e^{-|a|}) / (1 - e^{-|ratio|})
    exponent = 2 * a - xp.where(mode.falling, 2.0, 1.0) * ratio - 2 * mode.log_others(mode.log_end)
    return quotient * xp.exp(xp.clip(exponent, -LOGARITHM, LOGARITHM))


class _Arriving(NamedTuple):
    """The way to Y: a straight line as long as y is tiny, a table, and an exponential."""

    mode: _Mode
    table: _Table
    head: Float[Array, ""]  # time before the table

    @property
    def still(self) -> Bool[Array, ""]:
        """Whether the start is so near its end that the equation is linear."""
        return (self.mode.smallest > 0) & (xp.abs(self.mode.displacement) < TINY)

    def size(self, times: Array) -> Array:
        """y, given the time since the start or since the crossing."""
        mode, end = self.mode, self.table.times[-1]
        early = times < self.head
        line = mode.begin + mode.speed_at_zero * xp.where(early, times, 0.0)
        later = xp.where(early, 0.0, times - self.head)
        inside = later < end
        place = _place(_arriving_slowness, mode, self.table, xp.where(inside, later, 0.0))
        beyond = self.table.edges[-1] + (xp.where(inside, end, later) - end) * mode.rate
        a = _from_eta(mode, xp.minimum(xp.where(inside, place, beyond), LAST))
        a = xp.where(self.still, mode.displacement * xp.exp(-xp.minimum(times * mode.rate, LAST)), a)
        return xp.where(early, line, xp.exp(mode.log_end + a))

    def time(self, a: Array, y: Array) -> Array:
        """When y = Y e^a is reached, since the start or since the crossing."""
        linear = y < self.mode.linear
        eta = -_log_expm1(xp.where(a != 0, xp.abs(a), 1.0))
        start, end = self.table.edges[0], self.table.edges[-1]
        inside = xp.clip(eta, start, end)
        later = _when(_arriving_slowness, self.mode, self.table, inside) + xp.maximum(eta - end, 0.0) / self.mode.rate
        line = (y - self.mode.begin) / _positive(self.mode.speed_at_zero)
        return xp.where(linear, line, self.head + xp.where(a != 0, later, xp.inf))


def _arriving(mode: _Mode) -> _Arriving:
    early = mode.begin < mode.linear
    head = xp.where(early, (mode.linear - mode.begin) / _positive(mode.speed_at_zero), 0.0)
    a = xp.where(early, xp.log(xp.where(early, mode.linear, 1.0)) - mode.log_end, mode.displacement)
    far = xp.abs(a) >= TINY
    start = xp.where(far, -_log_expm1(xp.abs(xp.where(far, a, 1.0))), SETTLED)
    return _Arriving(mode, _table(_arriving_slowness, mode, start, xp.maximum(start, SETTLED)), head)


# --- One mode ---------------------------------------------------------------------------------------------------------


class ModeFlow(NamedTuple):
    """One mode with its signs and both legs."""

    strengths: Float[Array, " depth"]
    mode: _Mode
    leaving: _Leaving | None  # none where it is seen that the product does not fall to zero first
    arriving: _Arriving
    leaves: Bool[Array, ""]  # whether the product first falls to zero
    rests: Bool[Array, ""]
    side: Float[Array, ""]  # sign of the smallest layer while leaving
    later: Float[Array, ""]  # and while arriving
    goal: Float[Array, ""]  # the target with its sign

    @property
    def crossing(self) -> Float[Array, ""]:
        """When the product changes its sign; 0 where it need not, infinite where it cannot."""
        return xp.where(self.leaves, self.leaving.crossing, 0.0) if self.leaving else xp.zeros(())

    def at(self, times: Float[Array, " times"]) -> Float[Array, "times depth"]:
        """Strengths of all layers."""
        crossing = self.crossing
        finite = xp.isfinite(times)
        shown = xp.where(finite, times, 0.0)
        first = self.leaves & (shown < crossing)
        fallen = self.leaving.size(xp.where(first, shown, 0.0)) if self.leaving else xp.zeros_like(shown)
        since = shown - xp.where(first, 0.0, xp.where(xp.isfinite(crossing), crossing, 0.0))
        arrived = self.arriving.size(xp.where(first | (since < 0), 0.0, since))
        y = xp.where(first, self.side * fallen, self.later * arrived)
        y = xp.where(finite, y, self.later * xp.where(xp.isfinite(crossing), xp.exp(self.mode.log_end), 0.0))
        layers = self.with_smallest(y)
        change = layers - stop_gradient(layers)
        layers = xp.where((times == 0)[:, None], stop_gradient(self.strengths) + change, layers)
        return xp.where(self.rests, self._near_rest(times), layers)

    def _near_rest(self, times: Float[Array, " times"]) -> Float[Array, "times depth"]:
        """A mode that rests, with the derivatives of the linear flow around it."""
        zero = self.strengths == 0
        count, zeros = xp.sum(zero), xp.where(zero, self.strengths, 0.0)
        others = xp.prod(xp.where(zero, 1.0, self.strengths))
        # Two layers at zero push each other away from it; one alone follows a target that vanishes.
        ended = xp.isinf(times)
        shown = xp.where(ended, 0.0, times)[:, None]
        grown = xp.clip(self.goal * others * shown, -LAST, LAST)
        pair = xp.cosh(grown) * zeros + xp.sinh(grown) * (xp.sum(zeros) - zeros)
        message = "layer_mode: a mode that rests has no derivative at infinite time, where any other start has left."
        pair = refused_derivative(pair, self.rests & (count == 2) & xp.any(ended), message)
        passed = xp.minimum(others**2 * shown, LAST)
        last = self.goal / xp.where(others != 0, others, 1.0)
        alone = xp.where(ended[:, None], last, xp.exp(-passed) * zeros - xp.expm1(-passed) * last)
        moved = xp.where(count == 2, pair, xp.where(count == 1, alone, zeros))
        return xp.where(zero, moved, self.strengths)

    def with_smallest(self, y: Float[Array, " times"]) -> Float[Array, "times depth"]:
        """All layers from the smallest, by the conserved quantities."""
        size = xp.abs(y)[:, None]
        excess, tied = self.mode.excess, self.mode.excess == 0
        # Both forms are sqrt(y^2 + c); that of a tie, c = 0, keeps its derivative and underflows nowhere.
        near = size * xp.sqrt(1 + xp.where(tied, excess, 0.0) / xp.maximum(size, 1e-150) ** 2)
        squares = size**2 + xp.where(tied, 1.0, excess)
        others = xp.where(self.strengths < 0, -1.0, 1.0) * xp.where(tied, near, xp.sqrt(squares))
        return xp.where(self.mode.other, others, y[:, None])

    def time(self, product: Float[Array, " levels"], missing: Float[Array, " levels"]) -> Float[Array, " levels"]:
        """When the product, a multiple of its start while leaving and of the target while arriving, is reached.

        `missing` is the logarithm of product over target where both have one sign.
        """
        mode, start = self.mode, xp.prod(self.strengths)
        before = self.leaves & (product * start >= 0)
        leaving = xp.zeros_like(product)
        if self.leaving:
            size = xp.where(before & (product != 0), xp.abs(product), 1.0)
            fallen = self.leaving.time(log_smallest(mode.excess, mode.other, xp.log(size)))
            leaving = xp.where(product == 0, self.leaving.crossing, fallen)
        missing = xp.where(before, 0.0, missing)
        first = xp.where(missing < 0, missing / mode.depth, missing)
        a = _root(_Mode.log_ratio, _Mode.slope, mode, missing, first)
        arriving = self.crossing + self.arriving.time(a, xp.exp(mode.log_end + a))
        found = xp.where(before, leaving, arriving)
        # At the start itself time is distance over speed, which has the derivative.
        rest = xp.prod(xp.where(xp.eye(mode.depth, dtype=bool), 1.0, self.strengths), axis=1)
        speed = (self.goal - start) * xp.sum(rest**2)
        near = (product - start) / xp.where(speed != 0, speed, 1.0)
        return xp.where(product == start, near, xp.where(self.rests, xp.inf, found))


def _positive(x: Array) -> Array:
    return xp.maximum(x, 1e-300)


def _log_expm1(x: Array) -> Array:
    return x + xp.log(-xp.expm1(-x))


def mode_flow(strengths: Float[Array, " depth"], target: Float[Array, ""]) -> ModeFlow:
    """Both legs of one mode."""
    sizes = xp.abs(strengths)
    index = xp.argmin(sizes)
    other = xp.arange(strengths.shape[0]) != index
    smallest, size = strengths[index], sizes[index]
    excess = xp.where(other, (sizes - size) * (sizes + size), 0.0)
    ties = xp.sum(xp.where(other & (excess == 0), 1.0, 0.0))
    turn = xp.prod(xp.where(other & (strengths < 0), -1.0, 1.0))  # from the smallest layer to the product
    side = xp.where(smallest < 0, -1.0, 1.0)
    opposed = -turn * side * target
    leaves = (opposed >= 0) & (size > 0)
    rests = (size == 0) & ((ties > 0) | (target == 0))
    later = turn * xp.where(target < 0, -1.0, 1.0)
    arrives = xp.where(target != 0, xp.abs(target), 1.0)
    log_end = log_smallest(excess, other, xp.log(arrives))
    mode = _Mode(
        smallest=later * smallest,
        size=xp.where(size > 0, size, 1.0),
        target=arrives,
        opposed=xp.where(leaves, opposed, 0.0),
        excess=excess,
        other=other,
        ties=ties,
        log_end=log_end,
    )
    leaving = _leaving(mode) if is_program(leaves) or leaves else None
    return ModeFlow(strengths, mode, leaving, _arriving(mode), leaves, rests, side, later, target)
