"""The scalar equation of one mode of balanced diagonal layers: times, plateaus, the order of learning, equilibria."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from deeplinear.exact import (
    escape_time,
    product_time,
    scalar_curvature,
    scalar_equilibria,
    scalar_speed,
    scalar_state,
    scalar_time,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.network._networks import ROUNDING

TOGETHER = 16
"""Modes and times of every call, so that all share compiled code."""


@dataclasses.dataclass(frozen=True)
class Scalar:
    """One mode of balanced diagonal layers: where it starts, where it is later, its target, and the depth.

    Attributes:
        told: The target that a formula is told, if it is another.
    """

    start: float
    end: float
    sigma: float
    depth: int
    told: float | None = None

    @property
    def known(self) -> float:
        return self.sigma if self.told is None else self.told


def _draw_scalar(rng: np.random.Generator) -> Scalar:
    """From a small start towards the target, or from above it."""
    depth, sigma = int(rng.integers(2, 5)), float(rng.uniform(0.5, 3))
    top = sigma ** (1 / depth)
    if rng.random() < 0.7:
        return Scalar(float(10 ** rng.uniform(-6, -1)), float(top * rng.uniform(0.3, 0.98)), sigma, depth)
    return Scalar(float(top * rng.uniform(1.5, 3)), float(top * rng.uniform(1.02, 1.4)), sigma, depth)


def _elapsed(start: float, end: float, sigma: float, depth: int) -> float:
    """Time between two strengths, by quadrature over the logarithm in pieces."""
    from scipy.integrate import quad

    low, high = np.log(start), np.log(end)
    pieces = np.linspace(low, high, max(2, int(abs(high - low)) + 2))

    def slowness(u: float) -> float:
        return float(np.exp((2 - depth) * u) / (sigma - np.exp(depth * u)))

    parts = [quad(slowness, a, b, epsrel=1e-13, epsabs=0.0)[0] for a, b in itertools.pairwise(pieces)]
    return float(np.sum(parts))


def _by_depth(
    instances: Sequence[Scalar], function: Callable[[np.ndarray, np.ndarray, np.ndarray, int], np.ndarray]
) -> list[float]:
    """A function of starts, ends and targets of equally deep modes, always of as many at once."""
    found: dict[int, float] = {}
    for depth in sorted({one.depth for one in instances}):
        places = [i for i, one in enumerate(instances) if one.depth == depth]
        for first in range(0, len(places), TOGETHER):
            part = places[first : first + TOGETHER]
            filled = [instances[i] for i in part + part[-1:] * (TOGETHER - len(part))]
            starts, ends, targets = np.array([(one.start, one.end, one.known) for one in filled]).T
            values = np.asarray(function(starts, ends, targets, depth))
            found |= {i: float(values[k]) for k, i in enumerate(part)}
    return [found[i] for i in range(len(instances))]


SCALAR = {
    "time against quadrature, relative": 1e-10,
    "time at which the state found is reached, relative": 1e-10,
    "length of the plateau from 1e-4 against its leading order, relative": 2e-3,
}


def _measure_scalar(instances: Sequence[Scalar]) -> list[Measured]:
    times = [_elapsed(one.start, one.end, one.sigma, one.depth) for one in instances]
    found = _by_depth(instances, lambda a, b, s, n: np.asarray(scalar_time(a, b, s, n)))
    # The third column carries times here: every mode at its own time.
    moments = [dataclasses.replace(one, end=t) for one, t in zip(instances, times, strict=True)]
    states = _by_depth(moments, lambda a, t, s, n: np.diagonal(np.asarray(scalar_state(a, s, n, t))))
    small = [dataclasses.replace(one, start=1e-4) for one in instances]
    ratios = _by_depth(small, lambda a, _, s, n: np.asarray(escape_time(a, s, n) / product_time(a, s, n)))
    measured = []
    for one, t, guess, state, ratio in zip(instances, times, found, states, ratios, strict=True):
        reached = _elapsed(one.start, state, one.sigma, one.depth)
        numbers = (abs(guess / t - 1), abs(reached / t - 1), abs(ratio - 1))
        measured.append(Measured(dict(zip(SCALAR, numbers, strict=True))))
    return measured


EQUATION_61 = Check(
    id="network/equation-61",
    source="Equation 61",
    statement="Times and states of z' = z^(L-1)(σ - z^L) in closed form; the plateau from a small start z₀ has length "
    "z₀^(2-L)/((L - 2)σ), for two layers ln(√σ/z₀)/σ.",
    hypotheses=(
        Hypothesis("positive start and target", lambda one: -min(one.start, one.sigma)),
        Hypothesis(
            "start and end on one side of σ^(1/L)",
            lambda one: -(one.start**one.depth - one.sigma) * (one.end**one.depth - one.sigma),
        ),
    ),
    tolerances=SCALAR,
    measure=_measure_scalar,
    draw=_draw_scalar,
    violations=(Violation("another target", lambda rng: Scalar(0.05, 0.6, 1.0, int(rng.integers(2, 5)), told=1.01)),),
)


SMALL = 0.1
"""Largest product of a start that is small, over the target of its mode. Above a fifth a weak mode, which has less of a
way to go, may be half learned before a strong one."""


@dataclasses.dataclass(frozen=True)
class Channels:
    """Modes of one balanced diagonal network: starts, and targets, largest first."""

    starts: np.ndarray
    sigma: np.ndarray
    depth: int


def _draw_channels(rng: np.random.Generator) -> Channels:
    depth = int(rng.integers(2, 5))
    sigma = 0.6 + np.cumsum(rng.uniform(0.2, 0.6, 4))[::-1]
    highest = (SMALL * sigma[-1]) ** (1 / depth)
    return Channels(np.full(4, rng.uniform(0.01, 1.0) * highest), sigma, depth)


def _half_times(starts: np.ndarray, sigma: np.ndarray, depth: int) -> np.ndarray:
    fill = TOGETHER - len(sigma)
    first, value = (np.concatenate([x, np.full(fill, x[-1])]) for x in (starts, sigma))
    return np.asarray(product_time(first, value, depth))[: len(sigma)]


def _reversing(channels: Channels) -> np.ndarray:
    """Starts from which modes are learned in the opposite order: plateaus that are the longer the stronger the mode."""
    sigma, depth = channels.sigma, channels.depth
    lengths = 8.0 / sigma[-1] * 1.4 ** np.arange(len(sigma))[::-1]
    if depth == 2:
        return np.sqrt(sigma) * np.exp(-sigma * lengths)
    return ((depth - 2) * sigma * lengths) ** (-1 / (depth - 2))


ORDER = {
    "how much earlier a weaker mode is half learned, from a common start": 0.0,
    "how much later it is, from starts that are small enough for strong modes": 0.0,
}


def _measure_order(instances: Sequence[Channels]) -> list[Measured]:
    measured = []
    for one in instances:
        common = _half_times(one.starts, one.sigma, one.depth)
        turned = _half_times(_reversing(one), one.sigma, one.depth)
        numbers = (float(np.max(-np.diff(common))), float(np.max(np.diff(turned))))
        measured.append(Measured(dict(zip(ORDER, numbers, strict=True))))
    return measured


def _unequal(rng: np.random.Generator) -> Channels:
    channels = _draw_channels(rng)
    return dataclasses.replace(channels, starts=_reversing(channels))


SEQUENTIAL = Check(
    id="network/sequential-learning",
    source="Section 5.4, items 5 and 6",
    statement="From a common small start modes of balanced diagonal layers are learned in the order of their "
    "strengths; from unequal starts the order can be the opposite one.",
    hypotheses=(
        Hypothesis("equal starts", lambda c: float(np.ptp(c.starts))),
        Hypothesis("small starts", lambda c: float(np.max(c.starts**c.depth / c.sigma)) - SMALL, ROUNDING),
    ),
    tolerances=ORDER,
    measure=_measure_order,
    draw=_draw_channels,
    violations=(Violation("unequal starts", _unequal),),
)

EQUILIBRIA = {
    "speed at the equilibria": ROUNDING,
    "sign changes of the speed, less those at equilibria": 0.0,
    "curvature less the second derivative of F/L": 1e-11,
    "drift towards zero from the left for odd L, and to σ^(1/L) from both sides": 0.0,
}


def _measure_equilibria(instances: Sequence[Scalar]) -> list[Measured]:
    measured = []
    for one in instances:
        sigma, depth = one.known, one.depth
        points = np.asarray(scalar_equilibria(sigma, depth))

        def speed(z: np.ndarray, one: Scalar = one) -> np.ndarray:
            return z ** (one.depth - 1) * (one.sigma - z**one.depth)

        top = one.sigma ** (1 / depth)
        grid = np.concatenate([-np.linspace(2 * top, 1e-3, 999), np.linspace(1e-3, 2 * top, 999)])
        signs = np.sign(speed(grid))
        # At 0 the speed changes its sign only if L is even.
        changes = int(np.sum(signs[1:] != signs[:-1])) - (len(points) if depth % 2 == 0 else len(points) - 1)
        z = np.linspace(-1.5, 1.5, 7)
        step = 1e-30
        bend = -np.imag((z + 1j * step) ** (depth - 1) * (one.sigma - (z + 1j * step) ** depth)) / step
        curve = np.max(np.abs(np.asarray(scalar_curvature(z, sigma, depth)) - bend))
        near = speed(np.array([0.99, 1.01]) * top)
        wrong = float(near[0] <= 0 or near[1] >= 0)
        if depth % 2:
            wrong += float(speed(np.array([-1e-2]))[0] <= 0)
        rest = float(np.max(np.abs(speed(points))))
        printed = float(np.max(np.abs(np.asarray(scalar_speed(np.array([-one.sigma, one.sigma]), one.sigma, depth)))))
        numbers = (rest, abs(changes), float(curve), wrong)
        measured.append(Measured(dict(zip(EQUILIBRIA, numbers, strict=True)), printed=printed))
    return measured


ERRATUM_EQUILIBRIA = Check(
    id="network/erratum-equilibria",
    source="Section 5.4, items 1 and 3",
    statement="z' = z^(L-1)(σ - z^L) rests at 0, at σ^(1/L), and at -σ^(1/L) if and only if L is even; for odd L zero "
    "attracts from the left. The quoted second derivative is that of the loss over L; at 0 it vanishes for L > 2.",
    hypotheses=(Hypothesis("σ is not 1", lambda one: 0.05 - abs(one.sigma - 1)),),
    tolerances=EQUILIBRIA,
    measure=_measure_equilibria,
    draw=lambda rng: Scalar(
        0.1, 0.2, float(rng.choice([rng.uniform(0.4, 0.9), rng.uniform(1.1, 2)])), int(rng.integers(2, 6))
    ),
    violations=(Violation("another target", lambda rng: Scalar(0.1, 0.2, 1.5, int(rng.integers(2, 6)), told=1.6)),),
    printed="There are three critical points, 0 and ±σ.",
    printed_tolerance=1e-6,
)
