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

from deeplinear.core._coefficients import DOPRI8, KVAERNO5, TSIT5, Coefficients, ImplicitCoefficients
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
    """Where an integration is: time, next step, state, slope there, outputs, event, whether it is stuck, steps."""

    time: Any
    step: Any
    state: Any
    slope: Any
    outputs: Any
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
    begin: Float[Array, ""] | float = 0.0,
    method: Method = "dopri8",
    rtol: Float[Array, ""] | float = 1e-10,
    atol: Float[Array, ""] | float = 1e-12,
    first: Float[Array, ""] | float | None = None,
    events: tuple[Callable[[Any], Any], ...] = (),
    steps: Int[Array, ""] | int = 100_000,
    after: Callable[[Any], Any] | None = None,
    jacobian: Callable[[Any], Any] | None = None,
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

    Returns:
        The outputs and how it ended. They have derivatives of forward mode.
    """
    from deeplinear.core._errors import within_run

    with quietly(), within_run():
        return _integrated(field, start, times, begin, method, rtol, atol, first, events, steps, after, jacobian)


def _integrated(
    field: Any,
    start: Any,
    times: Any,
    begin: Any,
    method: Method,
    rtol: Any,
    atol: Any,
    first: Any,
    events: Any,
    most: Any,
    after: Any,
    jacobian: Any,
) -> Integral:
    shaped = _shaping(start)
    origin = xp.asarray(_flat(start))
    times, begin = xp.asarray(times, dtype=origin.dtype), xp.asarray(begin, dtype=origin.dtype)

    def slope_of(y: Any) -> Any:
        try:
            return _flat(field(shaped(y)))
        except np.linalg.LinAlgError:  # of numbers that are not finite, or a system that is singular: as in JAX
            return np.full(len(origin), np.nan)

    slope = slope_of(origin)
    program = is_program(origin, slope, times, begin, rtol, atol, first, most)
    order = 8 if method == "dopri8" else 5
    reach = xp.maximum(xp.abs(times[-1]), xp.abs(begin))
    smallest = SMALLEST_STEP * reach
    if first is None:
        first = _first_step(slope_of, origin, slope, rtol, atol, order)
    coefficients = {"tsit5": TSIT5, "dopri8": DOPRI8}.get(method)
    loops = _Compiled() if program else _Plain()

    def goes_on(path: _Path) -> Any:
        return (path.time < times[-1]) & (path.event < 0) & ~path.stuck & (path.count < most)

    def move(path: _Path) -> _Path:
        time, y = path.time, path.state
        goal = times[-1] if method == "tsit5" else times[xp.minimum(xp.sum(times <= time), len(times) - 1)]
        gap = goal - time
        lands = path.step >= gap * (1 - 1e-13)
        h = xp.where(lands, gap, path.step)
        later = xp.where(lands, goal, time + h)
        if coefficients is not None:
            trial = _explicit(coefficients, loops, slope_of, y, path.slope, h)
        else:
            assert jacobian is not None
            trial = _implicit(KVAERNO5, loops, slope_of, jacobian(shaped(y)), y, path.slope, h, rtol, atol)
        broken = xp.any(xp.isnan(trial.state))
        largest = xp.maximum(xp.abs(y), xp.where(broken, xp.abs(y), xp.abs(trial.state)))
        missed = stop_gradient(_size(trial.error / (atol + rtol * largest)))
        kept = missed < 1
        factor = xp.where(missed > 0, SAFETY * xp.where(missed > 0, missed, 1.0) ** (-1 / order), GROW)
        factor = xp.clip(factor, xp.where(kept, 1.0, SHRINK), xp.where(kept, GROW, SAFETY))
        step = xp.where(kept, xp.maximum(h * factor, path.step), h * factor)
        new = trial.state if after is None else _flat(after(shaped(trial.state)))
        if program or kept:
            outputs = _recorded(path.outputs, times, (time, later), kept, h, new, trial.slopes, y, method, program)
            held = [xp.asarray(event(shaped(new)), dtype=bool) for event in events]
            event = xp.where(xp.any(xp.stack(held)), xp.argmax(xp.stack(held)), -1) if held else path.event
        else:
            outputs, event = path.outputs, path.event
        return _Path(
            xp.where(kept, later, time),
            step,
            xp.where(kept, new, y),
            xp.where(kept, trial.slope, path.slope),
            outputs,
            xp.where(kept, event, path.event),
            ~(step >= smallest),
            path.count + 1,
        )

    outputs = xp.where((times <= begin)[:, None], origin, xp.full((len(times), len(origin)), np.inf, origin.dtype))
    step = xp.maximum(stop_gradient(xp.asarray(first, dtype=origin.dtype)), smallest)
    nothing = np.asarray(0), np.asarray(-1)
    path = _Path(begin, step, origin, slope, outputs, nothing[1], np.asarray(False), nothing[0])
    found = loops.while_loop(goes_on, move, path)
    states, end = shaped(found.outputs), shaped(found.state)
    if program:
        from deeplinear.core._entry import forward_only

        states, end = forward_only("core.integrate", (states, end), instead="use jax.jvp or jax.jacfwd")
    finished = (found.time >= times[-1]) | (found.event >= 0)
    return Integral(states, end, found.time, found.event, finished, found.count)


def _first_step(slope_of: Any, y: Any, slope: Any, rtol: Any, atol: Any, order: int) -> Any:
    """A step over which the slope changes little, by the size of the slope and of its change over a shorter one."""
    scale = atol + rtol * xp.abs(y)
    size, speed = _size(y / scale), _size(slope / scale)
    still = (size < 1e-5) | (speed < 1e-5)
    small = xp.where(still, 1e-6, 0.01 * size / xp.where(still, 1.0, speed))
    bend = _size((slope_of(y + small * slope) - slope) / scale) / small
    largest = xp.maximum(speed, bend)
    flat = largest <= 1e-15
    longer = xp.where(flat, xp.maximum(1e-6, 1e-3 * small), (0.01 / xp.where(flat, 1.0, largest)) ** (1 / order))
    return xp.minimum(100 * small, longer)


def _explicit(coefficients: Coefficients, loops: Any, slope_of: Any, y: Any, slope: Any, h: Any) -> _Trial:
    """One step of an explicit pair; the slope at its end is that of its last stage."""
    weights, error = _table(coefficients.rows, y), np.asarray(coefficients.error, dtype=y.dtype)

    def stage(i: Any, slopes: Any) -> Any:
        return put(slopes, i, slope_of(y + h * (entries(weights, i) @ slopes)))

    slopes = loops.fori_loop(1, len(error), stage, put(xp.zeros((len(error), len(y)), dtype=y.dtype), 0, slope))
    return _Trial(y + h * (weights[-1] @ slopes), slopes[-1], h * (error @ slopes), slopes)


def _implicit(
    coefficients: ImplicitCoefficients,
    loops: Any,
    slope_of: Any,
    matrix: Any,
    y: Any,
    slope: Any,
    h: Any,
    rtol: Any,
    atol: Any,
) -> _Trial:
    """One step of a singly diagonally implicit pair, by Newton's iteration with one derivative for all stages."""
    lower, guesses = _table(coefficients.rows, y), _table(coefficients.guesses, y)
    error = np.asarray(coefficients.error, dtype=y.dtype)
    own = h * coefficients.diagonal
    inverse = _inverse(xp.eye(len(y), dtype=y.dtype) - own * matrix)
    scale = atol + rtol * xp.abs(y)

    def stage(i: Any, found: Any) -> Any:
        slopes, fine = found
        base = y + h * (entries(lower, i) @ slopes)

        def better(iteration: Any) -> Any:
            now, _, count = iteration
            change = inverse @ (slope_of(base + own * now) - now)
            return now + change, stop_gradient(_size(own * change / scale)), count + 1

        def lacks(iteration: Any) -> Any:
            return (iteration[1] >= CLOSE) & (iteration[2] < ITERATIONS)

        begin = entries(guesses, i) @ slopes, np.asarray(np.inf, dtype=y.dtype), np.asarray(0)
        now, change, _ = loops.while_loop(lacks, better, begin)
        return put(slopes, i, now), fine & (change < CLOSE)

    begin = put(xp.zeros((len(error), len(y)), dtype=y.dtype), 0, slope), np.asarray(True)
    slopes, fine = loops.fori_loop(1, len(error), stage, begin)
    new = y + h * (lower[-1] @ slopes) + own * slopes[-1]
    return _Trial(new, slopes[-1], xp.where(fine, h * (error @ slopes), np.inf), slopes)


class _Plain:
    """Loops of Python."""

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
    """Loops of JAX."""

    def fori_loop(self, lower: int, upper: int, body: Any, start: Any) -> Any:
        """`jax.lax.fori_loop`."""
        import jax

        return jax.lax.fori_loop(lower, upper, body, start)

    def while_loop(self, goes_on: Any, body: Any, start: Any) -> Any:
        """`jax.lax.while_loop`, from arrays."""
        import jax

        return jax.lax.while_loop(goes_on, body, jax.tree.map(jax.numpy.asarray, start))


def _inverse(matrix: Any) -> Any:
    try:
        return xp.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return np.full(matrix.shape, np.nan)


def _table(rows: tuple[tuple[float, ...], ...], like: Any) -> np.ndarray:
    """Weights of the slopes in every stage, of which the first is known."""
    table = np.zeros((len(rows) + 1, len(rows) + 1), dtype=like.dtype)
    for number, row in enumerate(rows):
        table[number + 1, : len(row)] = row
    return table


def _recorded(
    outputs: Any,
    times: Any,
    between: tuple[Any, Any],
    kept: Any,
    h: Any,
    new: Any,
    slopes: Any,
    old: Any,
    method: Method,
    program: bool,
) -> Any:
    """Outputs with those of the times that a step has passed."""
    time, later = between
    passed = (times > time) & (times <= later) & kept
    if not program:
        rows = np.flatnonzero(passed)
        if rows.size:
            outputs[rows] = new if method != "tsit5" else _within((times[rows] - time) / h, h, old, slopes)
        return outputs
    found = new if method != "tsit5" else _within((times - time) / xp.where(h > 0, h, 1.0), h, old, slopes)
    return xp.where(passed[:, None], found, outputs)


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
    return y + h * (xp.stack(weights, axis=-1) @ slopes)


def _size(vector: Any) -> Any:
    """Root mean square; infinite where a trial state overflowed, so that its step is refused and made smaller."""
    value = xp.sqrt(xp.mean(vector**2))
    return xp.where(xp.isnan(value), np.inf, value)


def _flat(tree: Any) -> Any:
    """Entries of all arrays of a state in one vector."""
    if not isinstance(tree, tuple):
        return xp.ravel(tree)
    parts = [_flat(part) for part in tree]
    return parts[0] if len(parts) == 1 else xp.concatenate(parts)


def _shaping(tree: Any) -> Callable[[Any], Any]:
    """The way back from vectors, any number of axes before, to states."""
    if not isinstance(tree, tuple):
        shape = np.shape(tree)
        return lambda vector: vector.reshape((*vector.shape[:-1], *shape))
    sizes = [_count(part) for part in tree]
    ends = np.cumsum(sizes)
    parts = [(int(end) - size, int(end), _shaping(part)) for part, size, end in zip(tree, sizes, ends, strict=True)]
    return lambda vector: tuple(shaped(vector[..., low:high]) for low, high, shaped in parts)


def _count(tree: Any) -> int:
    return sum(_count(part) for part in tree) if isinstance(tree, tuple) else int(np.prod(np.shape(tree)))
