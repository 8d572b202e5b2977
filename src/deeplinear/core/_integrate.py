"""Integration of an equation $y' = f(y)$: adaptive steps, outputs, events. For small systems.

One formula: a loop of NumPy for numbers, a program of JAX where the state or the field is traced. `dynamics` has its
own driver instead, made for gradient flows of weights; this one serves the equations of geometry, whose states are a
few matrices.

A step is accepted where the root mean square of its error, relative to the tolerances, is below one, and changes by the
factor $0.9\\,e^{-1/k}$ with the error $e$ and the order $k$. A step that an output time cuts short does not make
the next one shorter.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, PyTree

from deeplinear.core._coefficients import DOPRI8, KVAERNO5, TSIT5
from deeplinear.core._types import Array
from deeplinear.core._xp import entries, is_program, put, quietly, stop_gradient, xp

Method = Literal["tsit5", "dopri8", "kvaerno5"]

SMALLEST_STEP = 1e-15
"""Smallest step, relative to the largest time: below it time stands still."""

SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0
"""Share of the step that the error suggests, and by how much a step may change."""

ITERATIONS = 10
"""Most Newton iterations in a stage of the implicit method; a step that needs more is refused."""

CLOSE = 1e-3
"""Change, relative to the tolerance of a step, below which Newton's iteration ends."""


class Integral(NamedTuple):
    """What an integration gives.

    Attributes:
        states: State at each output time, times first; infinite after the end.
        end: State where the integration ended.
        time: When it ended.
        event: Which event ended it, counted from 0; -1 if none.
        finished: Whether the last output time or an event was reached; it is not where the steps ran out or became
            smaller than rounding, as before a singularity.
        steps: Steps taken, refused ones too.
    """

    states: PyTree[Array]
    end: PyTree[Array]
    time: Float[Array, ""]
    event: Int[Array, ""]
    finished: Bool[Array, ""]
    steps: Int[Array, ""]


class _Path(NamedTuple):
    """Where integrations are, lanes first: time, next step, state, slope there, event, whether stuck, steps."""

    time: Any
    step: Any
    state: Any
    slope: Any
    event: Any
    stuck: Any
    count: Any


class _Trial(NamedTuple):
    """A step that was tried: new state, slope there, error, slopes of the stages."""

    state: Any
    slope: Any
    error: Any
    slopes: Any


def integrate(
    field: Callable[[Any], Any],
    start: PyTree[Array],
    times: Float[Array, " times"],
    *,
    begin: Float[Array, "*lanes"] | float = 0.0,
    method: Method = "dopri8",
    rtol: Float[Array, ""] | float = 1e-10,
    atol: Float[Array, ""] | float = 1e-12,
    first: Float[Array, ""] | float | None = None,
    events: tuple[Callable[[Any], Any], ...] = (),
    steps: Int[Array, ""] | int = 100_000,
    after: Callable[[Any], Any] | None = None,
    jacobian: Callable[[Any], Any] | None = None,
    lanes: bool = False,
    resting: Bool[Array, "*lanes"] | bool = False,
    watch: Callable[[float], None] | None = None,
) -> Integral:
    r"""Solve $y' = f(y)$ with adaptive steps.

    Args:
        field: $f$, a function of the state.
        start: State at `begin`: an array, or arrays in nested tuples.
        times: Output times, increasing; the last one is the end. The explicit method of order 5 interpolates there, the
            others step onto each of them.
        begin: Time of `start`.
        method: Explicit of order 5 or 8, or implicit of order 5 with dense linear algebra.
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step.
        first: First step; chosen by the method if left out.
        events: Functions of the state; the integration ends after the first step at whose end one of them holds.
        steps: Most steps.
        after: Applied to the state after every step, to put it back onto a manifold that the field is tangent to. It
            must not change the state by more than the error of a step.
        jacobian: Derivative of the field as a matrix on the entries of the state, in order; for the implicit method.
        lanes: Whether the first axis of the arrays counts states that are followed side by side, each with steps and
            an end of its own. All functions then take and give any number of them; `states` has times first.
        resting: Those that are not to be followed.
        watch: Called after every step with the share of states that have ended, where nothing is traced.

    Returns:
        The outputs and how it ended. They have derivatives of forward mode.
    """
    from deeplinear.core._errors import within_run

    with quietly(), within_run():
        equation = _Equation(field, start, lanes, after, events, jacobian)
        program = is_program(equation.start, equation.first, times, begin, rtol, atol, first, steps)
        loops = _Compiled() if program else _Plain()
        times = xp.asarray(times, dtype=equation.start.dtype)
        smallest = SMALLEST_STEP * xp.maximum(xp.abs(times[-1]), xp.max(xp.abs(xp.asarray(begin))))
        run = _Run(equation, loops, times, method, rtol, atol, steps, smallest)
        path, outputs = run.follow(begin, first, resting, watch)
        states, end = equation.shaped(outputs), equation.shaped(path.state)
        if program:
            from deeplinear.core._entry import forward_only

            states, end = forward_only("core.integrate", (states, end), instead="use jax.jvp or jax.jacfwd")
        finished = (path.time >= times[-1]) | (path.event >= 0) | xp.asarray(resting)
        ended = (path.time, path.event, finished, path.count)
        return Integral(states, end, *(part if lanes else part[0] for part in ended))


class _Equation:
    """An equation of vectors, lanes first."""

    def __init__(self, field: Any, start: Any, lanes: bool, after: Any, events: Any, jacobian: Any) -> None:
        self.field, self.lanes, self.after, self.events, self.matrix = field, lanes, after, events, jacobian
        self.back = _shaping(start, lanes)
        self.start = xp.asarray(_flat(start, lanes))
        if not lanes:
            self.start = self.start[None]
        self.first = self.slope(self.start)

    def shaped(self, vectors: Any) -> Any:
        """States of vectors, lanes before their last axis."""
        return self.back(vectors if self.lanes else vectors[..., 0, :])

    def vectors(self, states: Any) -> Any:
        """The way back."""
        flat = _flat(states, self.lanes)
        return flat if self.lanes else flat[None]

    def slope(self, y: Any) -> Any:
        """Slopes; not a number where the state is not."""
        bad = ~xp.all(xp.isfinite(y), axis=-1)[:, None]
        try:
            return xp.where(bad, np.nan, self.vectors(self.field(self.shaped(xp.where(bad, 0.0, y)))))
        except np.linalg.LinAlgError:  # a system that is singular, which makes the error infinite, of that one alone
            if len(y) == 1:
                return np.full(y.shape, np.nan)
            return np.concatenate([self.slope(y[k : k + 1]) for k in range(len(y))])

    def settled(self, y: Any) -> Any:
        """States put back onto their manifold."""
        return y if self.after is None else self.vectors(self.after(self.shaped(y)))

    def event(self, y: Any) -> Any:
        """Number of the first event that holds, -1 where none does."""
        found = xp.full(y.shape[:1], -1)
        for number in reversed(range(len(self.events))):
            held = xp.asarray(self.events[number](self.shaped(y)))
            found = xp.where(held if self.lanes else held[None], number, found)
        return found

    def jacobian(self, y: Any) -> Any:
        """Derivatives of the slopes."""
        assert self.matrix is not None, "the implicit method asks for a jacobian"
        found = self.matrix(self.shaped(y))
        return found if self.lanes else found[None]


class _Run(NamedTuple):
    """An integration: what is followed, by which loops, and how."""

    equation: _Equation
    loops: Any
    times: Any
    method: Method
    rtol: Any
    atol: Any
    most: Any
    smallest: Any

    @property
    def order(self) -> int:
        """Power with which the error of a step falls."""
        return 8 if self.method == "dopri8" else 5

    def follow(self, begin: Any, first: Any, resting: Any, watch: Any) -> tuple[_Path, Any]:
        """Where it ends, and the outputs."""
        origin, slope = self.equation.start, self.equation.first
        count, dtype = origin.shape[0], origin.dtype
        begin = xp.broadcast_to(xp.asarray(begin, dtype=dtype), (count,))
        if first is None:
            first = self.first_step()
        step = xp.maximum(stop_gradient(xp.broadcast_to(xp.asarray(first, dtype=dtype), (count,))), self.smallest)
        early = (self.times[:, None] <= begin)[:, :, None]
        outputs = xp.where(early, origin, np.asarray(np.inf, dtype=dtype))
        stuck = xp.broadcast_to(xp.asarray(resting), (count,))
        path = _Path(begin, step, origin, slope, np.full(count, -1), stuck, np.zeros(count, dtype=int))
        return self.loops.follow(self, path, outputs, watch)

    def first_step(self) -> Any:
        """Steps over which slopes change little, by their sizes and by their changes over shorter ones."""
        y, slope = self.equation.start, self.equation.first
        scale = self.atol + self.rtol * xp.abs(y)
        size, speed = _size(y / scale), _size(slope / scale)
        still = (size < 1e-5) | (speed < 1e-5)
        small = xp.where(still, 1e-6, 0.01 * size / xp.where(still, 1.0, speed))
        bend = _size((self.equation.slope(y + small[:, None] * slope) - slope) / scale) / small
        largest = xp.maximum(speed, bend)
        flat = largest <= 1e-15
        longer = (0.01 / xp.where(flat, 1.0, largest)) ** (1 / self.order)
        return xp.minimum(100 * small, xp.where(flat, xp.maximum(1e-6, 1e-3 * small), longer))

    def goes_on(self, path: _Path) -> Any:
        """Which are not at their end."""
        return (path.time < self.times[-1]) & (path.event < 0) & ~path.stuck & (path.count < self.most)

    def move(self, path: _Path) -> tuple[_Path, Any, Any]:
        """One step of all, its length, and the slopes of its stages."""
        times, time, y = self.times, path.time, path.state
        goal = times[-1]
        if self.method != "tsit5":
            goal = entries(times, xp.minimum(xp.sum(times <= time[:, None], axis=1), len(times) - 1))
        gap = goal - time
        lands = path.step >= gap * (1 - 1e-13)
        h = xp.where(lands, gap, path.step)
        trial = self.implicit(path, h) if self.method == "kvaerno5" else self.explicit(path, h)
        broken = xp.any(xp.isnan(trial.state), axis=1)[:, None]
        largest = xp.maximum(xp.abs(y), xp.where(broken, xp.abs(y), xp.abs(trial.state)))
        missed = stop_gradient(_size(trial.error / (self.atol + self.rtol * largest)))
        kept = missed < 1
        factor = xp.where(missed > 0, SAFETY * xp.where(missed > 0, missed, 1.0) ** (-1 / self.order), GROW)
        factor = xp.clip(factor, xp.where(kept, 1.0, SHRINK), xp.where(kept, GROW, SAFETY))
        step = stop_gradient(xp.where(kept, xp.maximum(h * factor, path.step), h * factor))
        new = xp.where(kept[:, None], self.equation.settled(trial.state), y)
        later = xp.where(kept, xp.where(lands, goal, time + h), time)
        slope = xp.where(kept[:, None], trial.slope, path.slope)
        event = xp.where(kept, self.equation.event(new), path.event)
        moved = _Path(later, step, new, slope, event, ~(step >= self.smallest), path.count + 1)
        return moved, h, trial.slopes

    def explicit(self, path: _Path, h: Any) -> _Trial:
        """One step of an explicit pair; the slope at its end is that of its last stage."""
        y, h = path.state, h[:, None]
        coefficients = TSIT5 if self.method == "tsit5" else DOPRI8
        weights, error = _table(coefficients.rows, y), np.asarray(coefficients.error, dtype=y.dtype)

        def stage(i: Any, slopes: Any) -> Any:
            return put(slopes, i, self.equation.slope(y + h * self.loops.combined(entries(weights, i), slopes)))

        first = put(xp.zeros((len(error), *y.shape), dtype=y.dtype), 0, path.slope)
        slopes = self.loops.fori_loop(1, len(error), stage, first)
        new = y + h * self.loops.combined(weights[-1], slopes)
        return _Trial(new, slopes[-1], h * self.loops.combined(error, slopes), slopes)

    def implicit(self, path: _Path, h: Any) -> _Trial:
        """One step of a singly diagonally implicit pair, by Newton's iteration with one derivative for all stages."""
        y, h = path.state, h[:, None]
        lower, guesses = _table(KVAERNO5.rows, y), _table(KVAERNO5.guesses, y)
        error = np.asarray(KVAERNO5.error, dtype=y.dtype)
        own = h * KVAERNO5.diagonal
        inverse = _inverse(xp.eye(y.shape[1], dtype=y.dtype) - own[:, :, None] * self.equation.jacobian(y))
        scale = self.atol + self.rtol * xp.abs(y)

        def stage(i: Any, found: Any) -> Any:
            slopes, fine = found
            base = y + h * self.loops.combined(entries(lower, i), slopes)

            def better(iteration: Any) -> Any:
                now, lacks, count = iteration
                change = (inverse @ (self.equation.slope(base + own * now) - now)[:, :, None])[:, :, 0]
                left = stop_gradient(_size(own * change / scale)) >= CLOSE
                return xp.where(lacks[:, None], now + change, now), lacks & left, count + 1

            guess = self.loops.combined(entries(guesses, i), slopes), xp.full(len(y), True), np.asarray(0)
            now, lacks, _ = self.loops.while_loop(lambda it: xp.any(it[1]) & (it[2] < ITERATIONS), better, guess)
            return put(slopes, i, now), fine & ~lacks

        first = put(xp.zeros((len(error), *y.shape), dtype=y.dtype), 0, path.slope), xp.full(len(y), True)
        slopes, fine = self.loops.fori_loop(1, len(error), stage, first)
        new = y + h * self.loops.combined(lower[-1], slopes) + own * slopes[-1]
        missed = xp.where(fine[:, None], h * self.loops.combined(error, slopes), np.inf)
        return _Trial(new, slopes[-1], missed, slopes)


class _Plain:
    """Loops of Python; only what is not at its end takes part."""

    def follow(self, run: _Run, path: _Path, outputs: Any, watch: Any) -> tuple[_Path, Any]:
        """Where the integration ends, and the outputs."""
        path, times = _Path(*map(np.array, path)), run.times
        rows = np.flatnonzero(run.goes_on(path))
        while rows.size:
            some = _Path(*(part[rows] for part in path))
            new, h, slopes = run.move(some)
            for whole, part in zip(path, new, strict=True):
                whole[rows] = part
            output, lane = np.nonzero((times[:, None] > some.time) & (times[:, None] <= new.time))
            if output.size and run.method == "tsit5":
                share = ((times[output] - some.time[lane]) / h[lane])[:, None]
                found = _within(share, h[lane, None], some.state[lane], slopes[:, lane])
                outputs[output, rows[lane]] = found
            elif output.size:
                outputs[output, rows[lane]] = new.state[lane]
            rows = rows[run.goes_on(new)]
            if watch is not None:
                watch(1 - rows.size / len(path.time))
        return path, outputs

    def combined(self, weights: Any, slopes: Any) -> Any:
        """Weighted sums, term by term: what a lane gets does not depend on how many there are."""
        total = np.zeros(slopes.shape[1:], dtype=slopes.dtype)
        for weight, slope in zip(weights.tolist(), slopes, strict=True):
            if weight:
                total += weight * slope
        return total

    def fori_loop(self, lower: int, upper: int, body: Any, start: Any) -> Any:
        """`jax.lax.fori_loop` of numbers."""
        for number in range(lower, upper):
            start = body(number, start)
        return start

    def while_loop(self, goes_on: Any, body: Any, start: Any) -> Any:
        """`jax.lax.while_loop` of numbers."""
        while goes_on(start):
            start = body(start)
        return start


class _Compiled:
    """Loops of JAX; what is at its end stays where it is."""

    def follow(self, run: _Run, path: _Path, outputs: Any, watch: Any) -> tuple[_Path, Any]:
        """Where the integration ends, and the outputs; nothing is watched."""
        times = run.times[:, None]

        def move(state: tuple[_Path, Any]) -> tuple[_Path, Any]:
            path, outputs = state
            active = run.goes_on(path)
            new, h, slopes = run.move(path)
            found = new.state
            if run.method == "tsit5":
                share = (times - path.time) / xp.where(h > 0, h, 1.0)
                found = _within(share[:, :, None], h[:, None], path.state, slopes[:, None])
            passed = active & (times > path.time) & (times <= new.time)
            outputs = xp.where(passed[:, :, None], found, outputs)
            kept = (
                xp.where(active.reshape(-1, *[1] * (old.ndim - 1)), part, old)
                for part, old in zip(new, path, strict=True)
            )
            return _Path(*kept), outputs

        return self.while_loop(lambda state: xp.any(run.goes_on(state[0])), move, (path, outputs))

    def combined(self, weights: Any, slopes: Any) -> Any:
        """Weighted sums."""
        return xp.tensordot(weights, slopes, 1)

    def fori_loop(self, lower: int, upper: int, body: Any, start: Any) -> Any:
        """`jax.lax.fori_loop`."""
        import jax

        return jax.lax.fori_loop(lower, upper, body, start)

    def while_loop(self, goes_on: Any, body: Any, start: Any) -> Any:
        """`jax.lax.while_loop`, from arrays."""
        import jax

        return jax.lax.while_loop(goes_on, body, jax.tree.map(jax.numpy.asarray, start))


def _inverse(matrices: Any) -> Any:
    """Inverses; not a number where there is none."""
    try:
        return xp.linalg.inv(matrices)
    except np.linalg.LinAlgError:
        if len(matrices) == 1:
            return np.full(matrices.shape, np.nan)
        return np.concatenate([_inverse(matrices[k : k + 1]) for k in range(len(matrices))])


def _table(rows: tuple[tuple[float, ...], ...], like: Any) -> np.ndarray:
    """Weights of the slopes in every stage, of which the first is known."""
    table = np.zeros((len(rows) + 1, len(rows) + 1), dtype=like.dtype)
    for number, row in enumerate(rows):
        table[number + 1, : len(row)] = row
    return table


def _within(share: Any, h: Any, y: Any, slopes: Any) -> Any:
    """States at shares of a step of the explicit method of order 5, by its interpolant of order 4."""
    t, square = share, share**2
    weights = [
        -1.0530884977290216 * t * (t - 1.3299890189751412) * (square - 1.4364028541716351 * t + 0.7139816917074209),
        0.1017 * square * (square - 2.1966568338249754 * t + 1.2949852507374631),
        2.490627285651252793 * square * (square - 2.38535645472061657 * t + 1.57803468208092486),
        -16.54810288924490272 * (t - 1.21712927295533244) * (t - 0.61620406037800089) * square,
        47.37952196281928122 * (t - 1.203071208372362603) * (t - 0.658047292653547382) * square,
        -34.87065786149660974 * (t - 1.2) * (t - 0.666666666666666667) * square,
        2.5 * (t - 1) * (t - 0.6) * square,
    ]
    return y + h * sum(weight * slope for weight, slope in zip(weights, slopes, strict=True))


def _size(vectors: Any) -> Any:
    """Root mean squares; infinite where a trial state overflowed, so that its step is refused and made smaller."""
    value = xp.sqrt(xp.mean(vectors**2, axis=-1))
    return xp.where(xp.isnan(value), np.inf, value)


def _flat(tree: Any, lanes: bool) -> Any:
    """Entries of all arrays of a state in one vector, after the axis of lanes."""
    if not isinstance(tree, tuple):
        return tree.reshape(len(tree), -1) if lanes else xp.ravel(tree)
    parts = [_flat(part, lanes) for part in tree]
    return parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=-1)


def _shaping(tree: Any, lanes: bool) -> Callable[[Any], Any]:
    """The way back from vectors, any number of axes before, to states."""
    if not isinstance(tree, tuple):
        shape = np.shape(tree)[1:] if lanes else np.shape(tree)
        return lambda vectors: vectors.reshape((*vectors.shape[:-1], *shape))
    sizes = [_count(part, lanes) for part in tree]
    ends = np.cumsum(sizes).tolist()
    parts = [(end - size, end, _shaping(part, lanes)) for part, size, end in zip(tree, sizes, ends, strict=True)]
    return lambda vectors: tuple(shaped(vectors[..., low:high]) for low, high, shaped in parts)


def _count(tree: Any, lanes: bool) -> int:
    if isinstance(tree, tuple):
        return sum(_count(part, lanes) for part in tree)
    return int(np.prod(np.shape(tree)[1:] if lanes else np.shape(tree)))
