r"""Small systems of a given order: from a response, to data.

`realised` takes the first $k$ entries of a response to a system of $n$ states by the largest singular values of their
block Hankel matrix. `fitted_to_response` and `fitted_to_records` improve it by damped Gauss–Newton steps: in the least
squares of the lags, and in the error of a simulation of the whole records. Systems of $n$ states are the same up to a
change of basis, so that the matrix of the steps is singular; the damping takes care of that.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from deeplinear.estimators._state_space_data import Design, Record

FASTER, SLOWER, FIRST, STUCK = 5.0, 4.0, 1e-3, 1e12
"""Factors of the damping after steps that lower the error and that do not; its start and its end, relative."""

ENOUGH, NOTHING = 1e-9, 1e-27
"""Steps end when the error falls by less than this share, or to this share of that of the zero system."""

INSIDE = 0.99
"""Size of eigenvalues that a start of the steps on whole records has at most, if larger ones do not serve."""

BLOCK = 1024
"""Times whose sensitivities are held at once."""


class Small(NamedTuple):
    """$s_{t+1} = As_t + Bu_t$, $y_t = Cs_t + Du_t + c$."""

    transition: np.ndarray
    input: np.ndarray
    output: np.ndarray
    direct: np.ndarray
    offset: np.ndarray


Evaluated = tuple[float, np.ndarray, np.ndarray]
"""Half the sum of squares, its gradient and the matrix of Gauss and Newton."""


def entries(transition: np.ndarray, first: np.ndarray, output: np.ndarray, length: int) -> np.ndarray:
    """$CA^jB$ for $j$ below the length, (length, outputs, inputs); not finite where it overflows."""
    found, block = np.empty((length, len(output), first.shape[1])), first
    with np.errstate(over="ignore", invalid="ignore"):
        for j in range(length):
            found[j] = output @ block
            block = transition @ block
    return found


def hankel_blocks(response: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Block Hankel matrix that uses all entries but the last, and the one shifted by an entry, which uses that too."""
    length, outputs, inputs = response.shape
    rows = (length + 1) // 2
    index = np.add.outer(np.arange(rows), np.arange(length - rows))
    shape = (rows * outputs, (length - rows) * inputs)
    first, shifted = (np.moveaxis(response[index + shift], 2, 1).reshape(shape) for shift in (0, 1))
    return first, shifted


def realised(response: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The system of so many states by the largest singular values; states that the response does not need are idle."""
    _, outputs, inputs = response.shape
    hankel, shifted = hankel_blocks(response)
    left, values, right = np.linalg.svd(hankel, full_matrices=False)
    used = min(order, int(np.sum(values > 1e-13 * values[0])) if values[0] > 0 else 0)
    roots = np.sqrt(values[:used])
    transition, first, output = np.zeros((order, order)), np.zeros((order, inputs)), np.zeros((outputs, order))
    transition[:used, :used] = (left[:, :used] / roots).T @ shifted @ (right[:used].T / roots)
    first[:used] = (roots[:, None] * right[:used])[:, :inputs]
    output[:, :used] = (left[:, :used] * roots)[:outputs]
    return transition, first, output


def fitted_to_response(
    system: tuple[np.ndarray, np.ndarray, np.ndarray], design: Design, memory: int, steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The system after steps in the least squares of the lags."""
    size, inputs, outputs = len(system[0]), system[1].shape[1], len(system[2])
    matrix, target = design.lags

    @np.errstate(over="ignore", invalid="ignore")
    def evaluate(point: np.ndarray) -> Evaluated:
        a, b, c = _unpack(point, size, inputs, outputs)
        right, left = _powers(a, b, memory), _powers(a.T, c.T, memory).swapaxes(1, 2)
        of_a = np.zeros((memory, outputs, inputs, size, size))
        for j in range(1, memory):
            of_a[j] = np.einsum("aoi,alc->ocil", left[:j], right[j - 1 :: -1])
        of_b = np.einsum("joi,cl->jocil", left, np.eye(inputs))
        of_c = np.einsum("jlc,oi->jocil", right, np.eye(outputs))
        response = np.einsum("oi,jic->joc", c, right)
        slopes = np.concatenate([part.reshape(memory, outputs, inputs, -1) for part in (of_a, of_b, of_c)], axis=3)
        slopes = slopes.swapaxes(1, 2).reshape(memory * inputs, -1)  # (lag and input, output and parameter)
        residual = matrix @ response.swapaxes(1, 2).reshape(memory * inputs, outputs) - target
        jacobian = (matrix @ slopes).reshape(residual.size, point.size)
        flat = residual.ravel()
        return 0.5 * float(flat @ flat), jacobian.T @ flat, jacobian.T @ jacobian

    floor = 0.5 * NOTHING * float(np.sum(target**2))
    point = descend(evaluate, np.concatenate([part.ravel() for part in system]), steps, floor=floor)[0]
    return _unpack(point, size, inputs, outputs)


def fitted_to_records(
    system: Small,
    starts: np.ndarray,
    records: Sequence[Record],
    *,
    intercept: bool,
    feed: bool,
    free: bool,
    steps: int,
    enough: float = ENOUGH,
) -> tuple[Small, np.ndarray, bool]:
    """The system and the states at the starts after steps in the error of the simulation; whether that is finite.

    With `free` starts every sequence has a state of its own to begin with, and all its rows count. Else the states stay
    as they are, and rows before the first that counts do not.
    """
    size, inputs, outputs = len(system.transition), system.input.shape[1], len(system.output)
    counts = (size * size, size * inputs, outputs * size, outputs * inputs * feed, outputs * intercept)
    ends = np.cumsum(counts)
    total = int(ends[-1])

    def unpack(point: np.ndarray) -> tuple[Small, np.ndarray]:
        a, b, c = _unpack(point, size, inputs, outputs)
        direct = point[ends[2] : ends[3]].reshape(outputs, inputs) if feed else np.zeros((outputs, inputs))
        offset = point[ends[3] : ends[4]] if intercept else np.zeros(outputs)
        begin = point[total:].reshape(len(records), size) if free else starts
        return Small(a, b, c, direct, offset), begin

    @np.errstate(over="ignore", invalid="ignore")
    def evaluate(point: np.ndarray) -> Evaluated:
        small, begin = unpack(point)
        value, gradient, matrix = 0.0, np.zeros(len(point)), np.zeros((len(point), len(point)))
        for index, record in enumerate(records):
            own = slice(total + index * size, total + (index + 1) * size) if free else slice(0, 0)
            columns = np.concatenate([np.arange(total), np.arange(own.start, own.stop)])
            for residual, jacobian in _sensitivities(small, begin[index], record, intercept, feed, free):
                value += 0.5 * float(residual @ residual)
                gradient[columns] += jacobian.T @ residual
                matrix[np.ix_(columns, columns)] += jacobian.T @ jacobian
                if not np.isfinite(value):
                    return np.inf, gradient, matrix
        return value, gradient, matrix

    parts = [system.transition, system.input, system.output]
    parts += [system.direct] * feed + [system.offset] * intercept + [starts] * free
    floor = 0.5 * NOTHING * sum(float(np.sum(record.outputs**2)) for record in records)
    begin = np.concatenate([part.ravel() for part in parts])
    point, finite = descend(evaluate, begin, steps, floor=floor, enough=enough)
    return *unpack(point), finite


def descend(
    evaluate: Callable[[np.ndarray], Evaluated],
    point: np.ndarray,
    steps: int,
    *,
    floor: float = 0.0,
    enough: float = ENOUGH,
) -> tuple[np.ndarray, bool]:
    """The last point of damped Gauss–Newton steps, and whether the error is finite."""
    value, gradient, matrix = evaluate(point)
    damping = FIRST
    for _ in range(steps):
        if not np.isfinite(value) or value <= floor or not np.any(gradient):
            break
        if not (np.isfinite(matrix).all() and np.isfinite(gradient).all()):
            break
        curvatures, axes = np.linalg.eigh(matrix)
        curvatures, along = np.maximum(curvatures, 0.0), axes.T @ gradient
        lower, fallen = False, 0.0
        while not lower and damping <= STUCK:
            trial = point - axes @ (along / (curvatures + damping * curvatures[-1]))
            new = evaluate(trial)
            lower = bool(new[0] < value)
            damping = max(damping / FASTER, 1e-15) if lower else damping * SLOWER
            if lower:
                fallen = 1 - new[0] / value
                point, (value, gradient, matrix) = trial, new
        if not lower or fallen < enough:
            break
    return point, bool(np.isfinite(value))


def driven(transition: np.ndarray, forcing: np.ndarray, begin: np.ndarray) -> np.ndarray:
    r"""$x_0, \dots, x_T$ of $x_{t+1} = Ax_t + f_t$, (times + 1, states, columns); not finite where they overflow.

    Times are cut into about $\sqrt T$ pieces that all start at zero and move at once; what the pieces before have left
    is carried on by powers of $A$. So there are about $2\sqrt T$ products of matrices in place of $T$ small ones.
    """
    times, size, columns = forcing.shape
    if not size:
        return np.zeros((times + 1, 0, columns))
    length = max(1, math.isqrt(times))
    pieces = max(1, -(-times // length))
    padded = np.zeros((pieces * length, size, columns))
    padded[:times] = forcing
    padded = padded.reshape(pieces, length, size, columns).transpose(1, 2, 0, 3).reshape(length, size, -1)
    found, powers = np.zeros((length + 1, size, pieces * columns)), _powers(transition, np.eye(size), length + 1)
    carried = np.empty((size, pieces, columns))
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(length):
            np.matmul(transition, found[t], out=found[t + 1])
            found[t + 1] += padded[t]
        last, state = found[length].reshape(size, pieces, columns), begin
        for piece in range(pieces):
            carried[:, piece] = state
            state = powers[length] @ state + last[:, piece]
        moved = powers[:length].reshape(-1, size) @ carried.reshape(size, -1)
        found = found[:length] + moved.reshape(length, size, -1)
    found = found.reshape(length, size, pieces, columns).transpose(2, 0, 1, 3).reshape(-1, size, columns)
    return np.concatenate([found, state[None]])[: times + 1]


def states(
    transition: np.ndarray, first: np.ndarray, inputs: np.ndarray, begin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """States $s_0, \\dots, s_{T-1}$ beside the inputs, and $s_T$; not finite where they overflow."""
    forcing = (inputs @ first.T)[:, :, None]
    found = driven(transition, forcing, np.asarray(begin, dtype=float)[:, None])[:, :, 0]
    return found[:-1], found[-1]


def played(system: Small, inputs: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """Outputs beside the inputs."""
    with np.errstate(over="ignore", invalid="ignore"):
        found, _ = states(system.transition, system.input, inputs, begin)
        return found @ system.output.T + inputs @ system.direct.T + system.offset


def settled(transition: np.ndarray) -> np.ndarray:
    """The matrix with its eigenvalues beyond the unit circle mirrored at it, to a size of at most `INSIDE`."""
    values, vectors = np.linalg.eig(transition)
    sizes = np.abs(values)
    if not sizes.size or sizes.max() <= INSIDE:
        return transition
    if np.linalg.cond(vectors) > 1e8:  # nearly defective: all of it is made smaller
        return transition * (INSIDE / sizes.max())
    moved = np.where(sizes > INSIDE, values / sizes * np.minimum(1 / sizes, INSIDE), values)
    return np.real((vectors * moved) @ np.linalg.inv(vectors))


def resolved(
    transition: np.ndarray, first: np.ndarray, records: Sequence[Record], *, intercept: bool, feed: bool
) -> Small | None:
    """The best output maps of records that start at rest, their states being given; nothing if these overflow."""
    rows, targets = [], []
    for record in records:
        found = states(transition, first, record.inputs, np.zeros(len(transition)))[0][record.first :]
        kept = record.inputs[record.first :]
        rows.append(np.hstack([found, *([kept] * feed), *([np.ones((len(kept), 1))] * intercept)]))
        targets.append(record.outputs[record.first :])
    matrix = np.vstack(rows)
    if not np.isfinite(matrix).all() or np.abs(matrix).max() > 1e8:
        return None
    solution = np.linalg.lstsq(matrix, np.concatenate(targets), rcond=1e-10)[0].T
    size, inputs, outputs = len(transition), first.shape[1], len(solution)
    direct = solution[:, size : size + inputs] if feed else np.zeros((outputs, inputs))
    return Small(transition, first, solution[:, :size], direct, solution[:, -1] if intercept else np.zeros(outputs))


def misfit(system: Small, records: Sequence[Record], rest: bool) -> float:
    """Sum of squares over the rows that count; infinite where a simulation overflows."""
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for record, begin in zip(records, at_starts(system, records, rest), strict=True):
            total += float(np.sum((played(system, record.inputs, begin) - record.outputs)[record.first :] ** 2))
    return total if np.isfinite(total) else np.inf


def at_starts(system: Small, records: Sequence[Record], rest: bool) -> np.ndarray:
    """The states at the first rows of all records, zero if they rest there."""
    if rest or not len(system.transition):
        return np.zeros((len(records), len(system.transition)))
    return np.stack([first_state(system, record.inputs, record.outputs) for record in records])


def first_state(system: Small, inputs: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """The state at the first row whose free motion fits best what the inputs do not explain."""
    size = len(system.transition)
    left = outputs - played(system, inputs, np.zeros(size))
    motion = driven(system.transition, np.zeros((len(inputs), size, size)), np.eye(size))[:-1]
    with np.errstate(over="ignore", invalid="ignore"):
        free = np.moveaxis(np.tensordot(motion, system.output, axes=(1, 1)), 2, 1)
    good = np.isfinite(left).all(axis=1) & np.isfinite(free).all(axis=(1, 2))
    upto = len(inputs) if np.all(good) else int(np.argmin(good))
    return np.linalg.lstsq(free[:upto].reshape(-1, size), left[:upto].ravel(), rcond=1e-10)[0]


def _sensitivities(
    small: Small, begin: np.ndarray, record: Record, intercept: bool, feed: bool, free: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Residuals and their derivatives in all parameters, block by block of times."""
    a, b, c, direct, offset = small
    u, y = record.inputs, record.outputs
    size, inputs, outputs = len(a), u.shape[1], len(c)
    found, _ = states(a, b, u, begin)
    first = 0 if free else record.first
    inner = size * size + size * inputs
    carried = np.hstack([np.zeros((size, inner)), np.eye(size)]) if free else np.zeros((size, inner))
    for start in range(0, len(u), BLOCK):
        rows = slice(start, min(len(u), start + BLOCK))
        count = rows.stop - rows.start
        forcing = np.zeros((count, size, carried.shape[1]))
        for i in range(size):
            forcing[:, i, i * size : (i + 1) * size] = found[rows]
            forcing[:, i, size * size + i * inputs : size * size + (i + 1) * inputs] = u[rows]
        motion = driven(a, forcing, carried)
        carried = motion[count]
        with np.errstate(over="ignore", invalid="ignore"):
            of_motion = np.moveaxis(np.tensordot(motion[:count], c, axes=(1, 1)), 2, 1)  # (time, output, parameter)
            residual = found[rows] @ c.T + u[rows] @ direct.T + offset - y[rows]
        pieces = [of_motion[:, :, :inner], _beside(found[rows], outputs)]
        pieces += [_beside(u[rows], outputs)] if feed else []
        pieces += [np.broadcast_to(np.eye(outputs), (count, outputs, outputs))] if intercept else []
        pieces += [of_motion[:, :, inner:]] if free else []
        kept = slice(max(0, first - start), None)
        jacobian = np.concatenate([piece[kept] for piece in pieces], axis=2)
        yield residual[kept].ravel(), jacobian.reshape(-1, jacobian.shape[2])


def _beside(signals: np.ndarray, outputs: int) -> np.ndarray:
    """Derivatives of $Ms_t$ in the entries of $M$, row by row."""
    return np.einsum("tl,oi->toil", signals, np.eye(outputs)).reshape(len(signals), outputs, -1)


def _powers(matrix: np.ndarray, start: np.ndarray, count: int) -> np.ndarray:
    found = np.empty((count, *start.shape))
    with np.errstate(over="ignore", invalid="ignore"):
        for j in range(count):
            found[j] = start
            start = matrix @ start
    return found


def _unpack(point: np.ndarray, size: int, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ends = np.cumsum([size * size, size * inputs, outputs * size])
    shapes = ((size, size), (size, inputs), (outputs, size))
    parts = [part.reshape(shape) for part, shape in zip(np.split(point[: ends[2]], ends[:2]), shapes, strict=True)]
    return parts[0], parts[1], parts[2]
