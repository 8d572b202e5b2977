r"""One mode of an aligned network by tables of time: its two legs, leaving and arriving, as `_layer_modes` has them.

$y$ is the layer of smallest size, $c_l$ by how much the square of another exceeds $y^2$, $P(y)$ the product of the
others, $\sigma = yP$, $S$ the target and $Y$ the end, $\sigma(Y) = S$. A leg tabulates time over a variable of its own;
Newton's steps inside one panel invert the table.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from deeplinear.core import Array, refused_derivative

PANELS = 512
NEWTON_STEPS = 6
ROOT_STEPS = (
    60  # a convex function with slopes between 1 and the depth: one step for each kink, few for the last digits
)
SETTLED = 40.0  # e^{-40} is below rounding: from here on the logarithm of the residual is linear in time
LAST = 700.0  # e^{-700} is still a number
LOGARITHM = 660.0  # of the largest derivative of time: its sums are numbers
TINY = 1e-18  # relative to every scale of the equation; what this changes is below rounding
NODES, WEIGHTS = (np.pad(x, 1) for x in np.polynomial.legendre.leggauss(10))
NODES[0], NODES[-1] = -1.0, 1.0  # the ends of a panel, of weight 0: the derivative there comes along


class _Mode(eqx.Module):
    """One mode with its signs taken away. Arrays over layers have an entry 0, not `other`, for the smallest layer."""

    smallest: Float[Array, ""]  # y at the start, signed so that the target is not negative
    size: Float[Array, ""]  # |y| at the start, positive also where y is 0 and no leg uses it
    target: Float[Array, ""]  # S, positive also where it is 0 and no leg uses it
    opposed: Float[Array, ""]  # S of the leaving leg, which may be 0
    excess: Float[Array, " depth"]  # c_l
    other: Bool[Array, " depth"]
    ties: Float[Array, ""]  # how many others have c_l = 0
    log_end: Float[Array, ""]  # ln Y
    depth: Float[Array, ""]

    def log_others(self, log_y: Array) -> Array:
        """ln P(y)."""
        return _log_others(self.excess, self.other, log_y)

    @property
    def rate(self) -> Float[Array, ""]:
        """How fast the distance from the end decays at last."""
        return jnp.exp(2 * self.log_others(self.log_end)) * self.slope(jnp.zeros(()))

    def log_ratio(self, a: Array) -> Array:
        """ln(sigma / S) at y = Y e^a, without cancellation."""
        near = jnp.abs(a) < 1
        square = jnp.exp(2 * self.log_end)
        part = square / (square + self.excess)
        close = jnp.log1p(part * jnp.expm1(2 * jnp.where(near, a, 0.0))[..., None]) / 2
        far = self.log_others(self.log_end + jnp.where(near, 0.0, a)) - self.log_others(self.log_end)
        return a + jnp.where(near, jnp.sum(jnp.where(self.other, close, 0.0), axis=-1), far)

    def slope(self, a: Array) -> Array:
        """Derivative of `log_ratio`, between 1 and the depth."""
        return 1 + _shares(self.excess, self.other, self.log_end + a)

    @property
    def displacement(self) -> Float[Array, ""]:
        """a of the start; of no use where y is not positive."""
        return jnp.log(self.size) - self.log_end

    @property
    def begin(self) -> Float[Array, ""]:
        """Where the way to the end begins: at the start, or at zero after a start of the wrong sign."""
        return jnp.where(self.smallest < 0, 0.0, self.smallest)

    @property
    def falling(self) -> Bool[Array, ""]:
        """Whether the start is above the end."""
        return (self.smallest > 0) & (self.displacement > 0)

    @property
    def least(self) -> Float[Array, ""]:
        """Smallest positive scale sqrt(c_l), infinite where there is none."""
        return jax.lax.stop_gradient(jnp.sqrt(jnp.min(jnp.where(self.excess > 0, self.excess, jnp.inf))))

    @property
    def linear(self) -> Float[Array, ""]:
        """Size of y within which its speed near zero is constant; 0 where it is not."""
        end = jnp.exp(jax.lax.stop_gradient(self.log_end))
        return jnp.where(self.ties > 0, 0.0, TINY * jnp.minimum(self.least, end))

    @property
    def speed_at_zero(self) -> Float[Array, ""]:
        """S P(0), where there are no ties."""
        usable = self.other & (self.excess > 0)
        return self.target * jnp.exp(jnp.sum(jnp.where(usable, jnp.log(jnp.where(usable, self.excess, 1.0)) / 2, 0.0)))


def _log_others(excess: Array, other: Array, log_y: Array) -> Array:
    """Sum of ln sqrt(y^2 + c_l) over the others."""
    squares = jnp.exp(2 * log_y)[..., None] + excess
    return jnp.sum(jnp.where(other, jnp.log(jnp.where(other, squares, 1.0)) / 2, 0.0), axis=-1)


def _shares(excess: Array, other: Array, log_y: Array) -> Array:
    """Sum of y^2 / (y^2 + c_l) over the others."""
    square = jnp.exp(2 * log_y)[..., None]
    return jnp.sum(jnp.where(other, square / (square + excess), 0.0), axis=-1)


def _root(function: Callable[[Array], Array], slope: Callable[[Array], Array], value: Array, first: Array) -> Array:
    """Where a convex function with slopes between 1 and the depth takes a value, by Newton's steps from above.

    Differentiable: the last step is nothing in value and has the implicit derivative.
    """

    def newton(_: ArrayLike, x: Array) -> Array:
        return jax.lax.stop_gradient(x + (value - function(x)) / slope(x))

    x = jax.lax.stop_gradient(jax.lax.fori_loop(0, ROOT_STEPS, newton, jax.lax.stop_gradient(first)))
    return x + (value - function(x)) / slope(x)


def log_smallest(excess: Array, other: Array, log_product: Array, depth: Array) -> Array:
    """ln y of a given product."""
    return _root(
        lambda x: x + _log_others(excess, other, x),
        lambda x: 1 + _shares(excess, other, x),
        log_product,
        log_product / depth,
    )


class _Table(eqx.Module):
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
    return half * jnp.sum(WEIGHTS * values, axis=-1), values[..., 0], values[..., -1]


def _table(slowness: Slowness, mode: _Mode, start: Array, end: Array) -> _Table:
    edges = start + (end - start) * jnp.arange(PANELS + 1) / PANELS
    times, first, last = _panel(slowness, mode, edges[:-1], edges[1:])
    times = jnp.concatenate([jnp.zeros(1), jnp.cumsum(times)])
    return _Table(edges, times, jnp.concatenate([first[:1], last]))


def _when(slowness: Slowness, mode: _Mode, table: _Table, place: Array) -> Array:
    """Time at which a place within the table is reached."""
    panel = jnp.clip(jnp.searchsorted(table.edges, place, side="right") - 1, 0, PANELS - 1)
    return table.times[panel] + _panel(slowness, mode, table.edges[panel], place)[0]


def _place(slowness: Slowness, mode: _Mode, table: _Table, times: Array) -> Array:
    """Inverse of `_when`, differentiable in the times and in the mode."""
    frozen, known = jax.lax.stop_gradient((mode, table))
    wanted_at = jax.lax.stop_gradient(times)
    panel = jnp.clip(jnp.searchsorted(known.times, wanted_at, side="right") - 1, 0, PANELS - 1)
    start, end = known.edges[panel], known.edges[panel + 1]
    wanted = wanted_at - known.times[panel]
    # First guess: the derivative of time changes exponentially within the panel.
    slow = known.slowness[panel]
    growth = jnp.log(known.slowness[panel + 1] / slow)
    curved = (jnp.abs(growth) > 1e-3) & (end > start)
    bend = jnp.where(curved, growth, 1.0) / jnp.where(curved, end - start, 1.0)
    share = jnp.maximum(jnp.where(curved, wanted * bend / slow, 0.0), -0.999)
    first = jnp.where(curved, jnp.log1p(share) / bend, wanted / slow)

    def newton(_: ArrayLike, place: Array) -> Array:
        passed, _, slow = _panel(slowness, frozen, start, place)
        return jnp.clip(place + (wanted - passed) / slow, start, end)

    place = jax.lax.fori_loop(0, NEWTON_STEPS, newton, jnp.clip(start + first, start, end))
    place = jax.lax.stop_gradient(place)
    # One step with everything differentiable: nothing in value, the implicit derivative in its derivative.
    passed, _, slow = _panel(slowness, mode, table.edges[panel], place)
    return place + (times - table.times[panel] - passed) / slow


# --- Leaving: a product of the wrong sign falls to zero ---------------------------------------------------------------


def _leaving_slowness(mode: _Mode, v: Array) -> Array:
    log_others = mode.log_others(-v)
    product = jnp.exp(jnp.clip(log_others - v, -LAST, LAST))
    return jnp.exp(jnp.clip(-v - log_others - jnp.log(mode.opposed + product), -LOGARITHM, LOGARITHM))


class _Leaving(eqx.Module):
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
        return jnp.where(self.power < 0, self.table.times[-1] + self.last, jnp.inf)

    def size(self, times: Array) -> Array:
        """|y| before the crossing."""
        end = self.table.times[-1]
        inside = times < end
        place = _place(_leaving_slowness, self.mode, self.table, jnp.where(inside, times, 0.0))
        passed = jnp.maximum(jnp.where(inside, end, times) - end, 0.0) / self.last
        bent = self.power != 0
        q = jnp.where(bent, self.power, 1.0)
        curved = jnp.log1p(jnp.maximum(q * jnp.where(bent, passed, 0.0), -1 + 1e-16)) / q
        fall = jnp.where(bent, curved, passed)
        return jnp.exp(-jnp.where(inside, place, self.table.edges[-1] + fall))

    def time(self, log_size: Array) -> Array:
        """When |y| is reached, given its logarithm."""
        v = -log_size
        end = self.table.edges[-1]
        inside = v < end
        before = _when(_leaving_slowness, self.mode, self.table, jnp.where(inside, v, end))
        beyond = jnp.where(inside, 0.0, v - end)
        bent = self.power != 0
        q = jnp.where(bent, self.power, 1.0)
        return before + self.last * jnp.where(bent, jnp.expm1(jnp.minimum(q * beyond, LAST)) / q, beyond)


def _leaving(mode: _Mode) -> _Leaving:
    start = -jnp.log(mode.size)
    opposed = mode.opposed > 0
    end = jnp.where(opposed, 1e-8 * jnp.exp(mode.log_end), jnp.inf)
    end = -jnp.log(1e-9 * jax.lax.stop_gradient(jnp.minimum(jnp.minimum(mode.size, mode.least), end)))
    power = jnp.where(opposed, mode.ties - 1, 2 * mode.ties)
    return _Leaving(mode, _table(_leaving_slowness, mode, start, end), power)


# --- Arriving: from zero, from below or from above to the end ---------------------------------------------------------


def _from_eta(mode: _Mode, eta: Array) -> Array:
    """a at eta, on the side of the start."""
    size = jnp.log1p(jnp.exp(-eta))
    return jnp.where(mode.falling, size, -size)


def _arriving_slowness(mode: _Mode, eta: Array) -> Array:
    eta = jnp.minimum(eta, LAST)
    w = jnp.exp(-eta)
    a = _from_eta(mode, eta)
    ratio = mode.log_ratio(a)
    quotient = w / (1 + w) / -jnp.expm1(-jnp.abs(ratio))  # (1 - e^{-|a|}) / (1 - e^{-|ratio|})
    exponent = 2 * a - jnp.where(mode.falling, 2.0, 1.0) * ratio - 2 * mode.log_others(mode.log_end)
    return quotient * jnp.exp(jnp.clip(exponent, -LOGARITHM, LOGARITHM))


class _Arriving(eqx.Module):
    """The way to Y: a straight line as long as y is tiny, a table, and an exponential."""

    mode: _Mode
    table: _Table
    head: Float[Array, ""]  # time before the table

    @property
    def still(self) -> Bool[Array, ""]:
        """Whether the start is so near its end that the equation is linear."""
        return (self.mode.smallest > 0) & (jnp.abs(self.mode.displacement) < TINY)

    def size(self, times: Array) -> Array:
        """y, given the time since the start or since the crossing."""
        mode, end = self.mode, self.table.times[-1]
        early = times < self.head
        line = mode.begin + mode.speed_at_zero * jnp.where(early, times, 0.0)
        later = jnp.where(early, 0.0, times - self.head)
        inside = later < end
        place = _place(_arriving_slowness, mode, self.table, jnp.where(inside, later, 0.0))
        beyond = self.table.edges[-1] + (jnp.where(inside, end, later) - end) * mode.rate
        a = _from_eta(mode, jnp.minimum(jnp.where(inside, place, beyond), LAST))
        a = jnp.where(self.still, mode.displacement * jnp.exp(-jnp.minimum(times * mode.rate, LAST)), a)
        return jnp.where(early, line, jnp.exp(mode.log_end + a))

    def time(self, a: Array, y: Array) -> Array:
        """When y = Y e^a is reached, since the start or since the crossing."""
        linear = y < self.mode.linear
        eta = -_log_expm1(jnp.where(a != 0, jnp.abs(a), 1.0))
        start, end = self.table.edges[0], self.table.edges[-1]
        inside = jnp.clip(eta, start, end)
        later = _when(_arriving_slowness, self.mode, self.table, inside) + jnp.maximum(eta - end, 0.0) / self.mode.rate
        line = (y - self.mode.begin) / _positive(self.mode.speed_at_zero)
        return jnp.where(linear, line, self.head + jnp.where(a != 0, later, jnp.inf))


def _arriving(mode: _Mode) -> _Arriving:
    early = mode.begin < mode.linear
    head = jnp.where(early, (mode.linear - mode.begin) / _positive(mode.speed_at_zero), 0.0)
    a = jnp.where(early, jnp.log(jnp.where(early, mode.linear, 1.0)) - mode.log_end, mode.displacement)
    far = jnp.abs(a) >= TINY
    start = jnp.where(far, -_log_expm1(jnp.abs(jnp.where(far, a, 1.0))), SETTLED)
    return _Arriving(mode, _table(_arriving_slowness, mode, start, jnp.maximum(start, SETTLED)), head)


# --- One mode ---------------------------------------------------------------------------------------------------------


class ModeFlow(eqx.Module):
    """One mode with its signs and both legs."""

    strengths: Float[Array, " depth"]
    mode: _Mode
    leaving: _Leaving
    arriving: _Arriving
    leaves: Bool[Array, ""]  # whether the product first falls to zero
    rests: Bool[Array, ""]
    side: Float[Array, ""]  # sign of the smallest layer while leaving
    later: Float[Array, ""]  # and while arriving
    goal: Float[Array, ""]  # the target with its sign

    @property
    def crossing(self) -> Float[Array, ""]:
        """When the product changes its sign; 0 where it need not, infinite where it cannot."""
        return jnp.where(self.leaves, self.leaving.crossing, 0.0)

    def at(self, times: Float[Array, " times"]) -> Float[Array, "times depth"]:
        """Strengths of all layers."""
        crossing = self.crossing
        finite = jnp.isfinite(times)
        shown = jnp.where(finite, times, 0.0)
        first = self.leaves & (shown < crossing)
        fallen = self.leaving.size(jnp.where(first, shown, 0.0))
        since = shown - jnp.where(first, 0.0, jnp.where(jnp.isfinite(crossing), crossing, 0.0))
        arrived = self.arriving.size(jnp.where(first | (since < 0), 0.0, since))
        y = jnp.where(first, self.side * fallen, self.later * arrived)
        y = jnp.where(finite, y, self.later * jnp.where(jnp.isfinite(crossing), jnp.exp(self.mode.log_end), 0.0))
        layers = self.with_smallest(y)
        change = layers - jax.lax.stop_gradient(layers)
        layers = jnp.where((times == 0)[:, None], jax.lax.stop_gradient(self.strengths) + change, layers)
        return jnp.where(self.rests, self._near_rest(times), layers)

    def _near_rest(self, times: Float[Array, " times"]) -> Float[Array, "times depth"]:
        """A mode that rests, with the derivatives of the linear flow around it."""
        position = jnp.arange(self.strengths.shape[0])
        zero = (self.strengths == 0) & (position < self.mode.depth)
        count, zeros = jnp.sum(zero), jnp.where(zero, self.strengths, 0.0)
        others = jnp.prod(jnp.where(zero, 1.0, self.strengths))
        # Two layers at zero push each other away from it; one alone follows a target that vanishes.
        ended = jnp.isinf(times)
        shown = jnp.where(ended, 0.0, times)[:, None]
        grown = jnp.clip(self.goal * others * shown, -LAST, LAST)
        pair = jnp.cosh(grown) * zeros + jnp.sinh(grown) * (jnp.sum(zeros) - zeros)
        message = "layer_mode: a mode that rests has no derivative at infinite time, where any other start has left."
        pair = refused_derivative(pair, self.rests & (count == 2) & jnp.any(ended), message)
        passed = jnp.minimum(others**2 * shown, LAST)
        last = self.goal / jnp.where(others != 0, others, 1.0)
        alone = jnp.where(ended[:, None], last, jnp.exp(-passed) * zeros - jnp.expm1(-passed) * last)
        moved = jnp.where(count == 2, pair, jnp.where(count == 1, alone, zeros))
        return jnp.where(zero, moved, self.strengths)

    def with_smallest(self, y: Float[Array, " times"]) -> Float[Array, "times depth"]:
        """All layers from the smallest, by the conserved quantities."""
        size = jnp.abs(y)[:, None]
        excess, tied = self.mode.excess, self.mode.excess == 0
        # Both forms are sqrt(y^2 + c); that of a tie, c = 0, keeps its derivative and underflows nowhere.
        near = size * jnp.sqrt(1 + jnp.where(tied, excess, 0.0) / jnp.maximum(size, 1e-150) ** 2)
        squares = size**2 + jnp.where(tied, 1.0, excess)
        others = jnp.where(self.strengths < 0, -1.0, 1.0) * jnp.where(tied, near, jnp.sqrt(squares))
        return jnp.where(self.mode.other, others, y[:, None])

    def time(self, product: Float[Array, " levels"], missing: Float[Array, " levels"]) -> Float[Array, " levels"]:
        """When the product, a multiple of its start while leaving and of the target while arriving, is reached.

        `missing` is the logarithm of product over target where both have one sign.
        """
        mode, start = self.mode, jnp.prod(self.strengths)
        before = self.leaves & (product * start >= 0)
        size = jnp.where(before & (product != 0), jnp.abs(product), 1.0)
        leaving = self.leaving.time(log_smallest(mode.excess, mode.other, jnp.log(size), mode.depth))
        leaving = jnp.where(product == 0, self.leaving.crossing, leaving)
        missing = jnp.where(before, 0.0, missing)
        first = jnp.where(missing < 0, missing / mode.depth, missing)
        a = _root(mode.log_ratio, mode.slope, missing, first)
        arriving = self.crossing + self.arriving.time(a, jnp.exp(mode.log_end + a))
        found = jnp.where(before, leaving, arriving)
        # At the start itself time is distance over speed, which has the derivative.
        position = jnp.arange(self.strengths.shape[0])
        rest = jnp.prod(jnp.where(jnp.eye(len(position), dtype=bool), 1.0, self.strengths), axis=1)
        speed = (self.goal - start) * jnp.sum(jnp.where(position < mode.depth, rest**2, 0.0))
        near = (product - start) / jnp.where(speed != 0, speed, 1.0)
        return jnp.where(product == start, near, jnp.where(self.rests, jnp.inf, found))


def _positive(x: Array) -> Array:
    return jnp.maximum(x, 1e-300)


def _log_expm1(x: Array) -> Array:
    return x + jnp.log(-jnp.expm1(-x))


def mode_flow(strengths: Float[Array, " width"], target: Float[Array, ""], depth: Float[Array, ""]) -> ModeFlow:
    """Both legs of one mode. Layers from `depth` on are no layers: they have strength 1 and are no `other`."""
    position = jnp.arange(strengths.shape[0])
    sizes = jnp.abs(strengths)
    index = jnp.argmin(jnp.where(position < depth, sizes, jnp.inf))
    other = (position != index) & (position < depth)
    smallest, size = strengths[index], sizes[index]
    excess = jnp.where(other, (sizes - size) * (sizes + size), 0.0)
    ties = jnp.sum(jnp.where(other & (excess == 0), 1.0, 0.0))
    turn = jnp.prod(jnp.where(other & (strengths < 0), -1.0, 1.0))  # from the smallest layer to the product
    side = jnp.where(smallest < 0, -1.0, 1.0)
    opposed = -turn * side * target
    leaves = (opposed >= 0) & (size > 0)
    rests = (size == 0) & ((ties > 0) | (target == 0))
    later = turn * jnp.where(target < 0, -1.0, 1.0)
    arrives = jnp.where(target != 0, jnp.abs(target), 1.0)
    log_end = log_smallest(excess, other, jnp.log(arrives), depth)
    mode = _Mode(
        smallest=later * smallest,
        size=jnp.where(size > 0, size, 1.0),
        target=arrives,
        opposed=jnp.where(leaves, opposed, 0.0),
        excess=excess,
        other=other,
        ties=ties,
        log_end=log_end,
        depth=depth,
    )
    return ModeFlow(strengths, mode, _leaving(mode), _arriving(mode), leaves, rests, side, later, target)
