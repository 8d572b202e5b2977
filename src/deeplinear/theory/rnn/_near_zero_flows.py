r"""Flows of recurrent networks that start near zero, many at once, and what their starts are drawn from.

Flows are those of the half sum of squares unless said otherwise; in the clock of the sum of squares everything happens
twice as fast. They are integrated here by fixed steps of a plain Runge-Kutta method, all instances at once: the errors
are then relative to every part of the parameters, however small it is.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from deeplinear.recurrent import (
    escape_time,
    near_zero_system,
)
from deeplinear.theory._check import Hypothesis, Violation

STEPS = 160
"""Steps of a flow near zero: the largest exponent is about 10, so that the error is about 10⁻⁶ of every part."""

Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]
"""A, B and C of many systems, B and C as vectors."""


@dataclasses.dataclass(frozen=True)
class Start:
    """A direction to start from, made smaller and smaller, and a target response.

    Attributes:
        transition: A of the direction.
        input: B, a vector.
        output: C, a vector.
        target: w₀, …, w_{k−1}.
        scales: Sizes ε, falling.
        fraction: θ of the escape time θ ln(1/ε)/|w₀|.
        symmetric: Whether A is kept symmetric.
        power: The start is the direction times ε to this power: 1, as told, or another.
        sign: Factor of w₀ as it is told.
    """

    transition: np.ndarray
    input: np.ndarray
    output: np.ndarray
    target: np.ndarray
    scales: tuple[float, ...]
    fraction: float
    symmetric: bool
    power: float = 1.0
    sign: float = 1.0

    @property
    def first(self) -> float:
        """w₀ as it is told."""
        return self.sign * float(self.target[0])

    @property
    def growing(self) -> float:
        """Size of the growing part beside the whole, of the direction."""
        more = self.input + math.copysign(1.0, self.first) * self.output
        whole = math.sqrt(sum(float(np.sum(m**2)) for m in (self.transition, self.input, self.output)))
        return float(np.linalg.norm(more)) / whole


def field(a: np.ndarray, b: np.ndarray, c: np.ndarray, w: np.ndarray, symmetric: np.ndarray | bool = False) -> Matrices:
    """Minus the gradient of half the sum of squares, for many systems at once."""
    k, turned = w.shape[1], a.swapaxes(1, 2)
    right, left = [b[:, :, None]], [c[:, :, None]]
    for _ in range(k - 1):
        right.append(a @ right[-1])
        left.append(turned @ left[-1])
    v, u = np.concatenate(right, axis=2), np.concatenate(left, axis=2)  # A^i b and (A^T)^i c as columns
    r = w - (c[:, None, :] @ v)[:, 0]
    padded = np.concatenate([r, np.zeros_like(r)], axis=1)
    hankel = padded[:, np.add.outer(np.arange(k), np.arange(k)) + 1]
    on_a = u @ hankel @ v.swapaxes(1, 2)
    if np.any(symmetric):
        on_a = np.where(np.reshape(symmetric, (-1, 1, 1)), (on_a + on_a.swapaxes(1, 2)) / 2, on_a)
    return on_a, (u @ r[:, :, None])[:, :, 0], (v @ r[:, :, None])[:, :, 0]


def flow(
    start: Matrices,
    w: np.ndarray,
    times: np.ndarray,
    symmetric: np.ndarray | bool,
    *,
    steps: int = STEPS,
    every: int = STEPS,
) -> list[Matrices]:
    """Many flows, each to its own time, in equal steps of the classical method of order 4.

    Returns:
        What was found after every so many steps, the start included.
    """
    count, d = start[1].shape
    h = np.asarray(times, dtype=float)[:, None] / steps

    def apart(y: np.ndarray) -> Matrices:
        return y[:, : d * d].reshape(count, d, d), y[:, d * d : -d], y[:, -d:]

    def together(system: Matrices) -> np.ndarray:
        return np.concatenate([system[0].reshape(count, d * d), *system[1:]], axis=1)

    def velocity(y: np.ndarray) -> np.ndarray:
        return together(field(*apart(y), w, symmetric))

    y, found = together(start), [start]
    for step in range(1, steps + 1):
        one = velocity(y)
        two = velocity(y + h / 2 * one)
        three = velocity(y + h / 2 * two)
        y = y + h / 6 * (one + 2 * (two + three) + velocity(y + h * three))
        if step % every == 0:
            found.append(apart(y))
    return found


def parts(a: np.ndarray, b: np.ndarray, c: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Norms of the growing part, the decaying part, and A."""
    sign = np.sign(np.broadcast_to(first, len(b)))[:, None]
    return (
        np.linalg.norm(b + sign * c, axis=1),
        np.linalg.norm(b - sign * c, axis=1),
        np.linalg.norm(a, axis=(1, 2)),
    )


def ladders(starts: Sequence[Start], *, every: int = STEPS) -> list[list[Matrices]]:
    """Every start at every one of its scales, to its escape time: for each start, what `flow` gives over the scales."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for place, one in enumerate(starts):
        groups.setdefault((len(one.input), len(one.target), len(one.scales)), []).append(place)
    found: dict[int, list[Matrices]] = {}
    for (_, _, count), places in groups.items():
        members = [starts[place] for place in places]
        sizes = np.concatenate([np.asarray(one.scales) ** one.power for one in members])
        a, b, c, w, symmetric = (
            np.repeat(np.stack([getattr(one, name) for one in members]), count, axis=0)
            for name in ("transition", "input", "output", "target", "symmetric")
        )
        times = [escape_time(one.first, e, fraction=one.fraction) for one in members for e in one.scales]
        begin = (sizes[:, None, None] * a, sizes[:, None] * b, sizes[:, None] * c)
        records = flow(begin, w, np.array(times), symmetric, every=every)
        for row, place in enumerate(places):
            own = slice(row * count, (row + 1) * count)
            found[place] = [(a[own], b[own], c[own]) for a, b, c in records]
    return [found[place] for place in range(len(starts))]


def slope(scales: Sequence[float], values: np.ndarray) -> float:
    """Power of ε that values are proportional to."""
    x = np.log(scales) - np.mean(np.log(scales))
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(x @ np.log(values) / (x @ x))


def draw_target(rng: np.random.Generator, length: int = 5) -> np.ndarray:
    """Response of a balanced teacher with two modes, w₀ between 0.7 and 1.5."""
    modes, weights = rng.uniform(-0.9, 0.95, 2), rng.uniform(0.3, 1.0, 2)
    weights *= rng.uniform(0.7, 1.5) / weights.sum()
    return np.asarray(modes[None, :] ** np.arange(length)[:, None] @ weights)


def draw_start(
    rng: np.random.Generator,
    *,
    states: Sequence[int] = (3, 4, 5, 6),
    scales: Sequence[float] = (1e-6, 1e-8, 1e-10),
    fraction: float = 0.25,
    size: str = "norm",
    signs: Sequence[float] = (1.0, -1.0),
) -> Start:
    """A Gaussian direction, general or symmetric, and the response of a teacher times a sign."""
    d, symmetric = int(rng.choice(states)), bool(rng.integers(2))
    a, b, c = (
        np.asarray(m)
        for m in near_zero_system(d, 1.0, rng, size="entry" if size == "entry" else "norm", symmetric=symmetric)
    )
    target = float(rng.choice(signs)) * draw_target(rng)
    return Start(a, b[:, 0], c[0], target, tuple(scales), fraction, symmetric)


POSITIVE: Hypothesis[Start] = Hypothesis("w₀ > 0", lambda s: -s.first, -1e-3)
GROWS: Hypothesis[Start] = Hypothesis("a growing part, relative to the start", lambda s: -s.growing, -1e-2)
TOLD: Hypothesis[Start] = Hypothesis(
    "the start is ε times a direction, and w₀ as told", lambda s: abs(s.power - 1) + abs(s.sign - 1)
)
LARGE: Hypothesis[Start] = Hypothesis("more than 20 states", lambda s: 21.0 - len(s.input))
SMALL: Hypothesis[Start] = Hypothesis("scales of at most 1e-3", lambda s: max(s.scales) - 1e-3)


def larger(draw: Callable[[np.random.Generator], Start]) -> Violation[Start]:
    """The start is of size √ε."""
    return Violation("a start of size √ε", lambda rng: dataclasses.replace(draw(rng), power=0.5))


def reversed_sign(draw: Callable[[np.random.Generator], Start]) -> Violation[Start]:
    """The part that decays is told to grow."""
    return Violation("w₀ of the other sign", lambda rng: dataclasses.replace(draw(rng), sign=-1.0))


def size(array: np.ndarray) -> float:
    """Frobenius norm."""
    return float(np.linalg.norm(array))
