r"""Gradient flow on block-diagonal observations from one shared start, at any time.

All layers stay equal and of the form $M(a, b, c)$; their eigenvalues obey $\dot\lambda_{1,2} =
-\gamma\lambda_{1,2}^{L-1}$ and $\dot\lambda_3 = -\lambda_3^{2L-1}$ with the error $\gamma = (\lambda_1^L +
(n-1)\lambda_2^L)/n - sw^\star$. A conserved quantity ties $\lambda_1$ to $\lambda_2$, so one number is left. Here it is
$a = \ln(\sigma/\sigma_\infty)$ of the larger eigenvalue $\sigma = \lambda^L$ of the product; $b$, that of the smaller,
follows from $e^{-qb} - 1 = e^{-qx}(e^{-qa} - 1)$, $q = (L-2)/L$, $x$ the logarithm of their ratio at the end.

Time is an integral over $\eta$, $e^{-\eta} = e^{|a|} - 1$. For depth 2 and a start below the limit it is
$\eta/(2sw^\star)$, the logistic curve; in general its integrand is positive, of unit scale, and constant near the end.
Gauss-Legendre panels tabulate it, and Newton's steps inside one panel invert it: a plateau of any length costs the
same. Where the first times would leave the range of numbers, the clock counts in another unit of time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from deeplinear.core import Array, entry, fori_loop, formula, is_concrete, stop_gradient, xp
from deeplinear.exact._block_algebra import BlockMatrix, alpha_m_eigenvalues, checked
from deeplinear.exact._block_limit import BlockLimit, block_limit, block_limit_from, log_quotient

PANELS = 2048
NEWTON_STEPS = 8
SETTLED = 40.0  # e^{-40} is below rounding: from here on the logarithm of the residual is linear in time
LAST = 700.0  # e^{-700} is still a number
GONE = 800.0  # e^{-800} is zero
UNIT = 600.0  # logarithms of the slowness at the start up to this size need no other unit of time
EARLIEST = -1300.0  # no positive number is as small as e^{-1300}, even divided by its square root
NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)


class _Clock(NamedTuple):
    r"""The map between time and $\eta$ of one flow."""

    depth: Float[Array, ""]
    q: Float[Array, ""]
    counts: tuple[Float[Array, ""], Float[Array, ""]]
    gap: Float[Array, ""]
    log_top: Float[Array, ""]
    growing: Bool[Array, ""]
    eta: Float[Array, ""]
    speed: Float[Array, ""]

    def displacement(self, eta: Array) -> Array:
        """a at given eta."""
        size = _softplus(-eta)
        return xp.where(self.growing, -size, size)

    def log_slowness(self, eta: Array) -> Array:
        """Logarithm of the derivative of time with respect to eta."""
        a = self.displacement(xp.minimum(eta, LAST))
        b = _other(a, self.q, self.gap)
        p, r = self.counts
        quotient = xp.expm1(-xp.abs(b)) / xp.expm1(-xp.abs(a)) * xp.exp(xp.where(self.growing, 0.0, b - a))
        share = p + r * xp.exp(-self.gap) * quotient
        exponent = self.q * (self.log_top + a) + self.log_top + xp.where(self.growing, 0.0, a)
        return xp.log((p + r) / (self.depth * share)) - exponent

    def slowness(self, eta: Array) -> Array:
        """Derivative of time, in the unit of the clock, with respect to eta."""
        return xp.exp(self.log_slowness(eta) + self.shift)

    @property
    def shift(self) -> Array:
        """Minus the logarithm of the unit of time: 0 unless the first times leave the range of numbers."""
        first = stop_gradient(self.log_slowness(self.origin))
        return xp.minimum(xp.clip(first, -UNIT, UNIT) - first, UNIT)

    def in_unit(self, times: Array) -> Array:
        """Times in the unit of the clock."""
        half = xp.exp(self.shift / 2)  # twice the half: the whole may underflow
        return times * half * half

    @property
    def origin(self) -> Array:
        """Where the table begins: at the start, or where a fall from far above can first be told from it."""
        earliest = self.log_top + (EARLIEST + xp.log(self.depth)) / (1 + self.q)
        return xp.where(self.growing, self.eta, xp.maximum(self.eta, stop_gradient(earliest)))

    @property
    def top(self) -> Array:
        """Where the table ends."""
        return xp.maximum(self.eta, SETTLED)

    def table(self) -> tuple[Float[Array, " edges"], Float[Array, " edges"]]:
        """Edges of the panels in eta, and the times at them, in the unit of the clock."""
        edges = self.origin + (self.top - self.origin) * xp.arange(PANELS + 1) / PANELS
        panels = self.part(edges[:-1], edges[1:])
        return edges, xp.concatenate([xp.zeros(1), xp.cumsum(panels)])

    def part(self, start: Array, end: Array) -> Array:
        """Time between two near values of eta, in the unit of the clock."""
        half = (end - start) / 2
        return half * xp.sum(WEIGHTS * self.slowness(start[..., None] + half[..., None] * (1 + NODES)), axis=-1)

    def time(self, eta: Array) -> Array:
        """When eta is reached; infinite where no number is as large."""
        edges, times = self.table()
        inside = xp.minimum(eta, self.top)
        panel = xp.clip(xp.searchsorted(edges, inside, side="right") - 1, 0, PANELS - 1)
        general = times[panel] + self.part(edges[panel], inside) + (eta - inside) * self.slowness(xp.asarray(LAST))
        half = xp.exp(-self.shift / 2)
        general = general * half * half
        a, start = self.displacement(eta), self.displacement(self.eta)
        decay = _log_expm1(xp.abs(start)) - _log_expm1(xp.abs(a))
        two = (decay + xp.where(self.growing, 0.0, a - start)) / self.speed
        return xp.where(self.q == 0, two, general)

    def position(self, times: Array) -> Array:
        """a at given times."""
        counted = self.in_unit(times)
        edges, marks = stop_gradient(self.table())
        panel = xp.clip(xp.searchsorted(marks, counted, side="right") - 1, 0, PANELS - 1)
        start, end = edges[panel], edges[panel + 1]
        wanted = xp.minimum(counted, marks[-1]) - marks[panel]
        length = marks[panel + 1] - marks[panel]
        first = start + (end - start) * xp.where(length > 0, wanted / xp.where(length > 0, length, 1.0), 0.0)
        frozen = stop_gradient(self)

        def newton(_: ArrayLike, eta: Array) -> Array:
            return xp.clip(eta + (wanted - frozen.part(start, eta)) / _positive(frozen.slowness(eta)), start, end)

        eta = stop_gradient(fori_loop(0, NEWTON_STEPS, newton, first))
        # One step with everything differentiable: nothing in value, the implicit derivative in its derivative.
        edges, marks = self.table()
        short = counted <= marks[-1]
        residual = xp.where(short, counted, marks[-1]) - marks[panel] - self.part(edges[panel], eta)
        inside = eta + residual / _positive(self.slowness(eta))
        last = _positive(self.slowness(xp.asarray(LAST)))
        beyond = self.top + (xp.where(short, marks[-1], counted) - marks[-1]) / last
        general = self.displacement(xp.minimum(xp.where(short, inside, beyond), GONE))
        a = xp.where(self.q == 0, self._position_of_two(times), general)
        return _starting(times, self.displacement(self.eta), a)

    def _position_of_two(self, times: Array) -> Array:
        """Depth 2 in closed form: exp(-a) - 1 decays at a constant rate, below the limit and above it."""
        start = self.displacement(self.eta)
        passed = self.speed * times
        below = -_softplus(-xp.minimum(self.eta + passed, GONE))
        from_above = xp.where(self.growing, 0.0, start)
        near = -xp.log1p(xp.maximum(xp.expm1(-from_above) * xp.exp(-passed), -1 + 1e-15))
        moved = xp.where(passed > 0, xp.minimum(passed, GONE), 1.0)
        far = -xp.logaddexp(xp.log(-xp.expm1(-moved)), -from_above - moved)
        above = xp.where((from_above > 1) & (passed > 0) & (far > 0.5), far, near)
        return xp.where(self.growing, below, above)


def _starting(times: Float[Array, "*times"], start: Float[Array, ""], later: Array) -> Array:
    """`later`, but at time zero the start itself, with the derivatives of `later`."""
    change = later - stop_gradient(later)
    return xp.where(times == 0, stop_gradient(start) + change, later)


def _softplus(x: Array) -> Array:
    return xp.logaddexp(x, 0.0)


def _positive(x: Array) -> Array:
    return xp.maximum(x, 1e-300)


def _log_expm1(x: Array) -> Array:
    return x + xp.log(-xp.expm1(-x))


def _other(a: Array, q: Array, gap: Array) -> Array:
    """b of the smaller eigenvalue from a of the larger, without cancellation."""
    deep = q > 0
    q = xp.where(deep, q, 1.0)
    exponent, offset = -q * a, q * gap
    near = xp.abs(exponent) < 1
    small = xp.log1p(xp.exp(-offset) * xp.expm1(xp.where(near, exponent, 0.0)))
    apart = offset > 0
    constant = xp.where(apart, xp.log(-xp.expm1(-xp.where(apart, offset, 1.0))), -xp.inf)
    return xp.where(deep, -xp.where(near, small, xp.logaddexp(constant, exponent - offset)) / q, a)


@formula
def _logarithms(clock: _Clock, times: Float[Array, "*times"]) -> tuple[Array, Array, Array, Array]:
    """Of the larger and the smaller eigenvalue of the product: logarithm now, and its distance from the end."""
    a = clock.position(times)
    b = _other(a, clock.q, clock.gap)
    return clock.log_top + a, clock.log_top - clock.gap + b, a, b


@formula
def _eigenvalues(
    numbers: tuple[Array, ...],
    times: Float[Array, "*times"],
    larger: Float[Array, "*times"],
    smaller: Float[Array, "*times"],
) -> tuple[Float[Array, "*times"], Float[Array, "*times"], Float[Array, "*times"]]:
    r"""$\lambda_1, \lambda_2, \lambda_3$, given the logarithms of both eigenvalues of the product."""
    depth, first, second, third, log_ratio = numbers
    larger, smaller = xp.exp(larger / depth), xp.exp(smaller / depth)
    ahead = log_ratio >= 0
    one, two = xp.where(ahead, larger, smaller), xp.where(ahead, smaller, larger)
    return _starting(times, first, one), _starting(times, second, two), _third(depth, third, times)


def _third(depth: Array, third: Array, times: Float[Array, "*times"]) -> Float[Array, "*times"]:
    r"""$\lambda_3(t)$, by logarithms where its power leaves the range of numbers; 0 in the end."""
    power = 2 * depth - 2
    present = third > 0
    start = xp.where(present, third, 1.0)
    log_rate = xp.log(power) + power * xp.log(start)
    moderate = xp.abs(log_rate) < UNIT
    grown = times * xp.exp(xp.where(moderate, log_rate, 0.0))
    direct = moderate & xp.isfinite(grown)
    later = (times > 0) & xp.isfinite(times)
    by_logarithms = _softplus(xp.log(xp.where(later, times, 1.0)) + log_rate)
    slow = xp.where(direct, xp.log1p(xp.where(direct, grown, 0.0)), xp.where(later, by_logarithms, 0.0))
    return xp.where(present & ~xp.isinf(times), start * xp.exp(-slow / power), 0.0)


@formula
def _powers(values: tuple[Array, Array, Array], power: ArrayLike, wide: ArrayLike) -> tuple[Array, Array, Array]:
    """Powers of the eigenvalues; the third is zero where it has no meaning."""
    first, second, third = values
    return first**power, second**power, xp.where(wide, xp.where(wide, third, 1.0) ** power, 0.0)


@formula
def _error(clock: _Clock, a: Float[Array, "*times"], b: Float[Array, "*times"]) -> Float[Array, "*times"]:
    p, r = clock.counts
    larger, smaller = _excess(clock.log_top, a), _excess(clock.log_top - clock.gap, b)
    return (p * larger + r * smaller) / (p + r)


@formula
def _loss(depth: Array, third: Array, times: Array, error: Array, blocks: Array | float, size: Array | float) -> Array:
    slow = xp.where(size > 1, _third(depth, third, times), 1.0) ** (2 * depth)
    return blocks / 2 * error**2 + blocks * (size - 1) / 2 * slow


@formula
def _conserved(depth: Array, first: Array, second: Array) -> Array:
    power = 2 - depth
    # Infinite, not undefined, where the powers overflow.
    deep = -(first**power) * xp.expm1(power * log_quotient(second, first))
    deep = xp.where(first == second, 0.0, deep)
    return xp.where(depth == 2, first / second, deep)


@formula(static_argnums=4)
def _levels(depth: Array, first: Array, end: Array, level: Array, absolute: bool) -> tuple[Array, Array]:
    """Logarithms of levels, less that of the limit, and which lie on the way; those that do not are the start."""
    distance = xp.log(level) - xp.log(end) if absolute else xp.log(level)
    start = depth * xp.log(first) - xp.log(end)
    # The start itself may miss by rounding.
    reached = xp.where(start <= 0, distance - start, start - distance) >= -1e-12 * (1 + xp.abs(start))
    met = reached & (xp.sign(distance) == xp.sign(start)) & (distance != 0)
    return xp.where(met, distance, start), met


@formula
def _time(
    clock: _Clock, distance: Float[Array, "*levels"], met: Bool[Array, "*levels"], log_ratio: Float[Array, ""]
) -> Float[Array, "*levels"]:
    """When the logarithm of the first eigenvalue of the product, larger or smaller, is so far from its end."""
    ahead = log_ratio >= 0
    a = xp.where(ahead, distance, _larger(distance, clock.q, clock.gap))
    return xp.where(met, clock.time(xp.maximum(-_log_expm1(xp.abs(a)), clock.eta)), xp.nan)


class BlockFlow(eqx.Module):
    r"""Gradient flow on block-diagonal observations: layers, product and loss at any time.

    The $n$ diagonal blocks of size $s$ are observed, all entries $w^\star$; every layer starts from the same
    $M(a, b, c)$. Time is that of $\dot W_l = -\partial\mathcal L/\partial W_l$ with the loss
    $\tfrac12\sum(w_{ij} - w^\star)^2$. Made by `block_flow` and `block_flow_from`. Times may be of any shape; infinity
    is the limit.

    Attributes:
        depth: $L \ge 2$.
        lambda1: $\lambda_1(0)$, on the vector of ones.
        lambda2: $\lambda_2(0)$.
        lambda3: $\lambda_3(0)$; no part of the matrix for blocks of size 1.
        limit: Where the flow ends.
    """

    depth: Float[Array, ""]
    lambda1: Float[Array, ""]
    lambda2: Float[Array, ""]
    lambda3: Float[Array, ""]
    limit: BlockLimit

    @property
    def blocks(self) -> int:
        """$n$."""
        return self.limit.blocks

    @property
    def size(self) -> int:
        """$s$."""
        return self.limit.size

    @property
    def _level(self) -> Float[Array, ""]:
        r"""$sw^\star$."""
        return self.size * self.limit.value

    @formula
    def _clock(self) -> _Clock:
        ahead = self.limit.log_ratio >= 0
        p = xp.where(ahead, 1.0, self.blocks - 1.0)
        log_top = xp.log(xp.where(ahead, self.limit.sigma_1, self.limit.sigma_2))
        a = self.depth * xp.log(xp.where(ahead, self.lambda1, self.lambda2)) - log_top
        still = a == 0
        eta = xp.where(still, GONE, -_log_expm1(xp.where(still, 1.0, xp.abs(xp.where(still, 1.0, a)))))
        return _Clock(
            depth=self.depth,
            q=(self.depth - 2) / self.depth,
            counts=(p, self.blocks - p),
            gap=xp.minimum(xp.where(ahead, self.limit.log_ratio, -self.limit.log_ratio), 1e300),
            log_top=log_top,
            growing=a <= 0,
            eta=xp.minimum(eta, GONE),
            speed=2 * self._level,
        )

    def _at(self, times: Float[Array, "*times"], function: Callable[..., Any]) -> Any:
        """A function of the clock, of the flow's numbers and of times."""
        numbers = (self.depth, self.lambda1, self.lambda2, self.lambda3, self.limit.log_ratio)
        return function(self._clock(), numbers, times)

    def eigenvalues(
        self, times: ArrayLike
    ) -> tuple[Float[Array, "*times"], Float[Array, "*times"], Float[Array, "*times"]]:
        r"""$\lambda_1, \lambda_2, \lambda_3$ of every layer at the given times."""
        times = checked("BlockFlow.eigenvalues", "times", times, at_least=0, finite=False)
        return self._at(times, lambda clock, numbers, t: _eigenvalues(numbers, t, *_logarithms(clock, t)[:2]))

    def params(self, times: ArrayLike) -> BlockMatrix:
        """The matrix that every layer is at the given times."""
        return self._matrix(times, 1.0)

    def product(self, times: ArrayLike) -> BlockMatrix:
        """The end-to-end matrix at the given times."""
        return self._matrix(times, self.depth)

    def _matrix(self, times: ArrayLike, power: ArrayLike) -> BlockMatrix:
        first, second, third = _powers(self.eigenvalues(times), power, self.size > 1)
        return BlockMatrix.from_eigenvalues(first, second, third, blocks=self.blocks, size=self.size)

    def gamma(self, times: ArrayLike) -> Float[Array, "*times"]:
        r"""Error $\gamma = (\lambda_1^L + (n-1)\lambda_2^L)/n - sw^\star$, with all its digits however small."""
        times = checked("BlockFlow.gamma", "times", times, at_least=0, finite=False)
        return self._at(times, lambda clock, numbers, t: _error(clock, *_logarithms(clock, t)[2:]))

    def loss(self, times: ArrayLike) -> Float[Array, "*times"]:
        r"""$\tfrac n2\gamma^2 + \tfrac{n(s-1)}{2}\lambda_3^{2L}$."""
        return self._loss_of(times, self.gamma(times))

    def _loss_of(self, times: ArrayLike, error: Float[Array, "*times"]) -> Float[Array, "*times"]:
        """The loss, given the error; its part that decays algebraically is none for blocks of size 1."""
        times = checked("BlockFlow.loss", "times", times, at_least=0, finite=False)
        return _loss(self.depth, self.lambda3, times, error, float(self.blocks), float(self.size))

    def conserved(self, times: ArrayLike) -> Float[Array, "*times"]:
        r"""$\lambda_1^{2-L} - \lambda_2^{2-L}$, and $\lambda_1/\lambda_2$ for depth 2: the same at all times."""
        first, second, _ = self.eigenvalues(times)
        return _conserved(self.depth, first, second)

    @property
    @formula
    def rate_bound(self) -> Float[Array, ""]:
        r"""A rate at which $|\gamma|$ decays at least.

        $\tfrac Ln(\lambda_1^{2L-2} + (n-1)\lambda_2^{2L-2})$ of the start if $\gamma(0) \le 0$, which is very small for
        small starts, and $L(sw^\star)^{(2L-2)/L}$ if $\gamma(0) > 0$.
        """
        power = 2 * self.depth - 2
        start = self.depth / self.blocks * (self.lambda1**power + (self.blocks - 1) * self.lambda2**power)
        end = self.depth * self._level ** (power / self.depth)
        return xp.where(self._start <= 0, start, end)

    @property
    def _start(self) -> Float[Array, ""]:
        r"""$\gamma(0)$."""
        mean = (self.lambda1**self.depth + (self.blocks - 1) * self.lambda2**self.depth) / self.blocks
        return mean - self._level

    def gamma_bound(self, times: ArrayLike) -> Float[Array, "*times"]:
        r"""$|\gamma(0)| e^{-Kt}$ with `rate_bound` for $K$: never below $|\gamma(t)|$."""
        return self._gamma_bound(checked("BlockFlow.gamma_bound", "times", times, at_least=0, finite=False))

    @formula
    def _gamma_bound(self, times: Float[Array, "*times"]) -> Float[Array, "*times"]:
        ended = xp.isinf(times)
        decay = self.rate_bound * xp.where(ended, 0.0, times)
        # The mean of the eigenvalues of the product may overflow where the bound does not.
        first, second = (self.depth * xp.log(xp.maximum(x, 1e-300)) for x in (self.lambda1, self.lambda2))
        log_mean = xp.logaddexp(first, second + xp.log(self.blocks - 1.0)) - xp.log(float(self.blocks))
        large = log_mean > UNIT
        start = xp.abs(xp.where(large, 0.0, self._start))
        bound = xp.where(large, xp.exp(xp.where(large, log_mean, 0.0) - decay), start * xp.exp(-decay))
        return xp.where(ended, 0.0, bound)

    def loss_bound(self, times: ArrayLike) -> Float[Array, "*times"]:
        """The loss with `gamma_bound` in place of the error: never below the loss."""
        return self._loss_of(times, self.gamma_bound(times))

    def time_to(
        self, fraction: ArrayLike | None = None, *, sigma_1: ArrayLike | None = None
    ) -> Float[Array, "*levels"]:
        r"""When the eigenvalue $\sigma_1 = \lambda_1^L$ of the product reaches a level between its start and its limit.

        Args:
            fraction: The level as a multiple of the limit of $\sigma_1$; or else
            sigma_1: the level itself.

        Returns:
            The time, infinite where it exceeds the largest number; NaN, under a transformation, for a level that is
            never met.

        Raises:
            ValueError: A level that can be seen does not lie between the start and the limit.

        Example:
            >>> round(float(block_flow(3, 0.2, 5.0, blocks=4, size=2).time_to(0.5)), 10)
            0.8234380501
        """
        if fraction is not None and sigma_1 is None:
            name, given = "fraction", fraction
        elif sigma_1 is not None and fraction is None:
            name, given = "sigma_1", sigma_1
        else:
            raise ValueError("BlockFlow.time_to: exactly one of fraction and sigma_1 must be given.")
        level = checked("BlockFlow.time_to", name, given, above=0)
        end = self.limit.sigma_1
        distance, met = _levels(self.depth, self.lambda1, end, level, sigma_1 is not None)
        if is_concrete(met) and not np.all(np.asarray(met)):
            start = np.exp(float(self.depth) * np.log(float(self.lambda1)))
            levels = np.asarray(level) * (float(end) if sigma_1 is None else 1.0)
            raise ValueError(
                f"BlockFlow.time_to: {name} must give a level between the "
                f"start {start:g} and the limit {float(end):g} of sigma_1, "
                f"but gives {levels[~np.asarray(met)].flat[0]:g}."
            )
        return _time(self._clock(), distance, met, self.limit.log_ratio)

    @property
    @formula
    def plateau_time(self) -> Float[Array, ""]:
        r"""Estimate of the time at which a small start takes off.

        $\lambda^{2-L}/((L-2)sw^\star)$ with the larger eigenvalue $\lambda$ of the start, and
        $\ln(nsw^\star/(p\lambda^2))/(2sw^\star)$ for depth 2, where it occurs $p$ times; 0 where that is negative, a
        start with no plateau. Infinite where it exceeds the largest number.

        Example:
            >>> round(float(block_flow(3, 0.2, 5.0, blocks=4, size=2).plateau_time), 5)
            1.04167
        """
        ahead = self.limit.log_ratio >= 0
        largest = xp.where(ahead, self.lambda1, self.lambda2)
        p = xp.where(ahead, 1.0, self.blocks - 1.0)
        two = self.depth == 2
        deep = xp.where(two, 3.0, self.depth)
        logistic = (xp.log(self._level * (self.blocks / p)) - 2 * xp.log(largest)) / (2 * self._level)
        escape = xp.exp((2 - deep) * xp.log(largest) - xp.log((deep - 2) * self._level))
        return xp.where(two, xp.maximum(logistic, 0.0), escape)


def _excess(log_end: Array, distance: Array) -> Array:
    """e^log_end (e^distance - 1), finite where it is, whatever its factors."""
    far = distance > SETTLED
    return xp.where(far, xp.exp(log_end + distance), xp.exp(log_end) * xp.expm1(xp.where(far, 0.0, distance)))


def _larger(b: Array, q: Array, gap: Array) -> Array:
    """Inverse of `_other`; NaN where there is none."""
    deep = q > 0
    q = xp.where(deep, q, 1.0)
    below = b < 0
    growing = _softplus(q * gap + _log_expm1(q * xp.where(below, -b, 1.0)))
    falling = xp.log1p(xp.exp(xp.minimum(q * gap, LAST)) * xp.expm1(-q * xp.where(below, 0.0, b)))
    return xp.where(deep, -xp.where(below, growing, falling) / q, b)


@entry
def block_flow(
    depth: ArrayLike, alpha: ArrayLike, m: ArrayLike, *, blocks: int, size: int = 1, value: ArrayLike = 1.0
) -> BlockFlow:
    r"""Flow on block-diagonal observations from layers with $\alpha$ on the diagonal and $\alpha/m$ off it.

    Args:
        depth: $L$, any real number from 2 on.
        alpha: $\alpha > 0$.
        m: $m \in [1, \infty]$.
        blocks: $n \ge 2$.
        size: $s \ge 1$.
        value: $w^\star > 0$.

    Returns:
        The flow. One number for each argument; batch with `jax.vmap`.

    Example:
        >>> [round(float(x), 9) for x in block_flow(3, 0.2, 5.0, blocks=4, size=2).eigenvalues(2.0)]
        [1.997537331, 0.214257413, 0.159790969]
    """
    _check_scalars("block_flow", depth=depth, alpha=alpha, m=m, value=value)
    limit = block_limit(depth, alpha, m, blocks=blocks, size=size, value=value)
    first, second = alpha_m_eigenvalues(alpha, m, width=blocks * size)
    return BlockFlow(checked("block_flow", "depth", depth), first, second, second, limit)


@entry
def block_flow_from(
    depth: ArrayLike,
    lambda1: ArrayLike,
    lambda2: ArrayLike,
    lambda3: ArrayLike | None = None,
    *,
    blocks: int,
    size: int = 1,
    value: ArrayLike = 1.0,
) -> BlockFlow:
    r"""Flow on block-diagonal observations from any shared start $M(a, b, c)$ with positive $\lambda_1$, $\lambda_2$.

    Args:
        depth: $L$, any real number from 2 on.
        lambda1: $\lambda_1(0) > 0$.
        lambda2: $\lambda_2(0) > 0$, smaller or larger than $\lambda_1(0)$.
        lambda3: $\lambda_3(0) \ge 0$; by default $\lambda_2(0)$.
        blocks: $n \ge 2$.
        size: $s \ge 1$.
        value: $w^\star > 0$.

    Returns:
        The flow. One number for each argument; batch with `jax.vmap`.

    Example:
        >>> flow = block_flow_from(2, 0.1, 0.1, blocks=3)
        >>> round(float(flow.eigenvalues(jnp.inf)[0]), 12)
        1.0
    """
    lambda3 = lambda2 if lambda3 is None else lambda3
    _check_scalars("block_flow_from", depth=depth, lambda1=lambda1, lambda2=lambda2, lambda3=lambda3, value=value)
    limit = block_limit_from(depth, lambda1, lambda2, blocks=blocks, size=size, value=value)
    third = checked("block_flow_from", "lambda3", lambda3, at_least=0)
    depth, first, second = (
        checked("block_flow_from", name, x)
        for name, x in (("depth", depth), ("lambda1", lambda1), ("lambda2", lambda2))
    )
    return BlockFlow(depth, first, second, third, limit)


def _check_scalars(where: str, **arguments: ArrayLike) -> None:
    for name, value in arguments.items():
        if xp.ndim(value):
            raise ValueError(
                f"{where}: {name} must be one number, but has shape {xp.shape(value)}; batch with jax.vmap."
            )
