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
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from deeplinear.core import check_count, check_x64, is_concrete
from deeplinear.exact._block_algebra import Numbers, broadcast, checked, spread

PANELS = 512
NEWTON_STEPS = 6
ROOT_STEPS = (
    60  # a convex function with slopes between 1 and the depth: one step for each kink, few for the last digits
)
BUCKET = 4  # depths are filled up to a multiple of this, so that they share compiled code
SHORTEST = 64  # modes and times are filled up to a power of two from here on, to the same end
TOGETHER = 64  # modes whose tables are in memory at once
SMALLEST, LARGEST = 1e-100, 1e100
"""Sizes of strengths and targets, other than 0, that can be computed with."""
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


def _log_smallest(excess: Array, other: Array, log_product: Array, depth: Array) -> Array:
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


class _Flow(eqx.Module):
    """One mode with its signs and both legs."""

    strengths: Float[Array, " depth"]
    mode: _Mode
    leaving: _Leaving
    arriving: _Arriving
    leaves: Bool[Array, ""]  # whether the product first falls to zero
    rests: Bool[Array, ""]
    side: Float[Array, ""]  # sign of the smallest layer while leaving
    later: Float[Array, ""]  # and while arriving

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
        return jnp.where(self.rests, self.strengths, layers)

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
        leaving = self.leaving.time(_log_smallest(mode.excess, mode.other, jnp.log(size), mode.depth))
        leaving = jnp.where(product == 0, self.leaving.crossing, leaving)
        missing = jnp.where(before, 0.0, missing)
        first = jnp.where(missing < 0, missing / mode.depth, missing)
        a = _root(mode.log_ratio, mode.slope, missing, first)
        arriving = self.crossing + self.arriving.time(a, jnp.exp(mode.log_end + a))
        found = jnp.where(before, leaving, arriving)
        return jnp.where(product == start, 0.0, jnp.where(self.rests, jnp.inf, found))


def _positive(x: Array) -> Array:
    return jnp.maximum(x, 1e-300)


def _log_expm1(x: Array) -> Array:
    return x + jnp.log(-jnp.expm1(-x))


def _flow(strengths: Float[Array, " width"], target: Float[Array, ""], depth: Float[Array, ""]) -> _Flow:
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
    log_end = _log_smallest(excess, other, jnp.log(arrives), depth)
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
    return _Flow(strengths, mode, _leaving(mode), _arriving(mode), leaves, rests, side, later)


@jax.jit
def _strengths_at(
    times: Float[Array, " times"],
    strengths: Float[Array, "modes width"],
    target: Float[Array, " modes"],
    depth: Float[Array, ""],
    count: Int[Array, ""] | None = None,
) -> Float[Array, "modes times width"]:
    return _each(lambda mode: _flow(mode[0], mode[1], depth).at(times), (strengths, target), count)


@jax.jit
def _times_of(
    strengths: Float[Array, "modes width"],
    target: Float[Array, " modes"],
    product: Float[Array, "modes levels"],
    missing: Float[Array, "modes levels"],
    depth: Float[Array, ""],
    count: Int[Array, ""] | None = None,
) -> Float[Array, "modes levels"]:
    def of(mode: tuple[Array, ...]) -> Array:
        strengths, target, product, missing = mode
        return _flow(strengths, target, depth).time(product, missing)

    return _each(of, (strengths, target, product, missing), count)


def _each(function: Callable[..., Array], modes: tuple[Array, ...], count: Array | None) -> Array:
    """The function of every mode, so many at once that their tables fit into memory.

    With a count of the first modes only, one after the other: how many there are is then no part of the compiled code.
    """
    if count is not None:
        one = jax.eval_shape(function, tuple(jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in modes))
        found = jnp.zeros((modes[0].shape[0], *one.shape), one.dtype)
        return jax.lax.fori_loop(
            0, count, lambda i, found: found.at[i].set(function(tuple(x[i] for x in modes))), found
        )
    if modes[0].shape[0] <= TOGETHER:
        return jax.vmap(function)(modes)
    return jax.lax.map(function, modes, batch_size=TOGETHER)


def _seen(*arrays: Array) -> tuple[Any, ...]:
    """NumPy and arrays of it where all can be seen, else JAX and the arrays."""
    if all(map(is_concrete, arrays)):
        return np, *map(np.asarray, arrays)
    return jnp, *arrays


def _longer(xp: Any, array: Any, axis: int = 0) -> Any:
    """An array with copies of its last entries, up to one of few lengths, so that calls share compiled code.

    Only where its values are seen: not within the code of others.
    """
    length = array.shape[axis]
    if xp is jnp or length == 0:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, max(SHORTEST, 1 << (length - 1).bit_length()) - length)
    return np.pad(array, widths, mode="edge")


def _count(xp: Any, modes: int) -> Any:
    """How many modes there are, where they are seen."""
    return np.asarray(modes) if xp is np and modes else None


def _filled(xp: Any, strengths: Any) -> tuple[Any, Any]:
    """Modes along one axis, with layers of strength 1 up to the next multiple of the bucket, and how many are true."""
    depth = strengths.shape[-1]
    flat = _longer(xp, strengths.reshape(-1, depth))
    fill = xp.ones((flat.shape[0], -depth % BUCKET))
    return xp.concatenate([flat, fill], axis=1), np.asarray(depth, dtype=float)


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
        Array([[0.5     , 0.5     , 1.      ],
               [0.892362, 0.892362, 1.243507],
               [0.895856, 0.895856, 1.246017]], dtype=float64)
    """
    where = "layer_mode"
    layers, ends, batch = _modes(where, strengths, target)
    moments = checked(where, "times", times, at_least=0, finite=False)
    shape = (*batch, *moments.shape, layers.shape[-1])
    xp, layers, ends, moments = _seen(layers, ends, moments)
    ends, moments = ends.reshape(-1), moments.reshape(-1)
    filled, depth = _filled(xp, layers)
    found = xp.asarray(_strengths_at(_longer(xp, moments), filled, _longer(xp, ends), depth, _count(xp, ends.size)))
    return jnp.asarray(found[: ends.size, : moments.size, : shape[-1]].reshape(shape), dtype=float)


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
    elif product is not None and fraction is None:
        part = checked(where, "product", product)
    else:
        raise ValueError(f"{where}: exactly one of fraction and product must be given.")
    modes, count = ends.size, part.size
    xp, layers, ends, levels = _seen(layers, ends, part)
    filled, depth = _filled(xp, layers)
    ends, levels = _longer(xp, ends.reshape(-1)), _longer(xp, levels.reshape(-1))
    if fraction is not None:
        values, missing = _by_fraction(filled, ends, levels)
    else:
        values, missing, outside = _by_product(filled, ends, levels)
        if is_concrete(outside) and np.any(bad := np.asarray(outside)[:modes, :count]):
            mode, level = (int(i) for i in np.argwhere(bad)[0])
            raise ValueError(
                f"{where}: product must lie between the start {float(jnp.prod(filled[mode])):g} and the target "
                f"{float(ends[mode]):g} of its mode, but is {float(levels[level]):g}."
            )
    found = xp.asarray(_times_of(filled, ends, values, missing, depth, _count(xp, modes)))
    return jnp.asarray(found[:modes, :count].reshape((*batch, *part.shape)), dtype=float)


@jax.jit
def _by_fraction(
    strengths: Float[Array, "modes width"], target: Float[Array, " modes"], part: Float[Array, " levels"]
) -> tuple[Float[Array, "modes levels"], Float[Array, "modes levels"]]:
    """Products at given parts of the way, and the logarithm of product over target."""
    starts, ends = jnp.prod(strengths, axis=-1, keepdims=True), target[:, None]
    values = jnp.where(part < 0.5, starts + part * (ends - starts), ends - (1 - part) * (ends - starts))
    return values, _missing(values, ends, -(1 - part) * _over(ends - starts, ends))


@jax.jit
def _by_product(
    strengths: Float[Array, "modes width"], target: Float[Array, " modes"], product: Float[Array, " levels"]
) -> tuple[Float[Array, "modes levels"], Float[Array, "modes levels"], Bool[Array, "modes levels"]]:
    """Given products, the logarithm of product over target, and which do not lie on the way."""
    starts, ends = jnp.prod(strengths, axis=-1, keepdims=True), target[:, None]
    values = jnp.broadcast_to(product, (ends.shape[0], product.shape[0]))
    inside = jnp.clip(values, jnp.minimum(starts, ends), jnp.maximum(starts, ends))
    outside = jnp.abs(values - inside) > 1e-12 * jnp.abs(inside)  # the start itself may miss by rounding
    values = jnp.where(outside, jnp.nan, inside)
    return values, _missing(values, ends, _over(values - ends, ends)), outside


def _missing(values: Array, ends: Array, relative: Array) -> Array:
    """Far from the target its quotient with the product has the digits, close to it their difference."""
    ratio = _over(values, ends)
    far = (ratio > 0) & (ratio < 0.5)
    missing = jnp.where(relative > -1, jnp.log1p(jnp.where((relative > -1) & ~far, relative, 0.0)), 0.0)
    return jnp.where(far, jnp.log(jnp.where(far, ratio, 1.0)), missing)


def _over(x: Array, y: Array) -> Array:
    return jnp.where(y != 0, x / jnp.where(y != 0, y, 1.0), 0.0)


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
        Array([1.00000e+00, 4.17119e-01, 5.06000e-04], dtype=float64)
    """
    strengths, target = _balanced("balanced_mode", start, target, depth)
    return jnp.prod(layer_mode(times, strengths, target), axis=-1)


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


@functools.partial(jax.jit, static_argnums=1)
def _equal_layers(start: Float[Array, "*batch"], depth: int) -> Float[Array, "*batch depth"]:
    size = jnp.where(start != 0, jnp.abs(jnp.where(start != 0, start, 1.0)) ** (1 / depth), 0.0)
    signs = jnp.where(start < 0, -1.0, 1.0)
    first = start if depth == 1 else signs * size
    return jnp.stack([first, *[size] * (depth - 1)], axis=-1)
