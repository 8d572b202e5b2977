"""Networks that are solved by hand: the scalar equation, one channel, and a chain of three numbers."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from deeplinear.exact import (
    chain_minimum,
    diagonal_limit,
    escape_time,
    product_time,
    scalar_curvature,
    scalar_equilibria,
    scalar_speed,
    scalar_state,
    scalar_time,
    single_channel,
    single_channel_limit,
    single_node_equilibrium,
    single_node_exponents,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.network._networks import ROUNDING

FLOW = 1e-10
"""Flows by DOP853 at rtol 1e-13 over times of order one."""

TOGETHER = 16
"""Modes and times of every call, so that all share compiled code."""


# --- The scalar equation ----------------------------------------------------------------------------------------------


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


# --- One channel ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two layers between one input and one output, and their target."""

    first: np.ndarray
    second: np.ndarray
    sigma: float
    told: float | None = None

    @property
    def known(self) -> float:
        return self.sigma if self.told is None else self.told


def _draw_pair(rng: np.random.Generator, hidden: int | None = None) -> Pair:
    size = int(rng.integers(1, 4)) if hidden is None else hidden
    first, second = rng.standard_normal((2, size))
    turn = rng.random()
    if turn < 0.15:
        second = -first  # on the way into the saddle
    elif turn < 0.3:
        second = first.copy()
    return Pair(first, second, float(rng.uniform(0.3, 3)))


def _sized_pair(rng: np.random.Generator, widths: tuple[int, ...]) -> Pair:
    if len(widths) != 3 or widths[0] != 1 or widths[2] != 1:
        raise ValueError(f"the statement is about one input, one hidden layer and one output, but widths is {widths}.")
    return _draw_pair(rng, widths[1])


CHANNEL = {
    "solution less the flow, largest weight": FLOW,
    "limit: product less σ, or the origin from a₀ = -b₀": 1e-11,
    "limit: change of W₂ᵀW₂ - W₁W₁ᵀ, or the origin from a₀ = -b₀": 1e-11,
}
TIMES = np.array([0.1, 0.5, 2.0])


def _pair_flow(pair: Pair) -> np.ndarray:
    from scipy.integrate import solve_ivp

    def field(_: float, y: np.ndarray) -> np.ndarray:
        a, b = np.split(y, 2)
        return (pair.sigma - a @ b) * np.concatenate([b, a])

    start = np.concatenate([pair.first, pair.second])
    run = solve_ivp(field, (0, TIMES[-1]), start, method="DOP853", rtol=1e-13, atol=1e-15, t_eval=TIMES)
    return run.y.T


def _measure_channel(instances: Sequence[Pair]) -> list[Measured]:
    measured = []
    for pair in instances:
        found = np.concatenate(single_channel(TIMES, pair.first, pair.second, pair.known), axis=-1)
        gap = float(np.max(np.abs(found - _pair_flow(pair))))
        a, b = (np.asarray(x) for x in single_channel_limit(pair.first, pair.second, pair.known))
        if np.all(pair.first == -pair.second):
            miss = law = float(np.max(np.abs([a, b])))
        else:
            size = 1 + a @ a + b @ b
            miss = abs(float(a @ b) - pair.sigma) / float(size)
            start = np.outer(pair.second, pair.second) - np.outer(pair.first, pair.first)
            law = float(np.max(np.abs(np.outer(b, b) - np.outer(a, a) - start))) / float(size)
        measured.append(Measured(dict(zip(CHANNEL, (gap, miss, law), strict=True))))
    return measured


def _other_pair(rng: np.random.Generator) -> Pair:
    first, second = rng.standard_normal((2, 2))
    return Pair(first, second, 1.0, told=1.2)


EQUATION_66 = Check(
    id="network/equation-66",
    source="Sections 6.2.1 and 6.2.3, equations 62 and 66",
    statement="Two layers a, b between one input and one output, with any number of hidden units, are "
    "a ± b = (a₀ ± b₀) y^(±1/2) with y the solution of a scalar Riccati equation; they end at the minimum that what "
    "they conserve allows, and at the origin from a₀ = -b₀.",
    hypotheses=(Hypothesis("positive target", lambda pair: -pair.sigma),),
    tolerances=CHANNEL,
    measure=_measure_channel,
    draw=_draw_pair,
    violations=(Violation("another target", _other_pair),),
    sized=_sized_pair,
)

NODE = {
    "equilibrium against the solution of both equations": 1e-12,
    "sign of the equilibrium less that of w₁ + w₂": 0.0,
    "eigenvalues against those of the Jacobian matrix": 1e-12,
    "eigenvalues against 0 and -√(c² + 4σ²), and ±σ at the origin": 1e-12,
}


def _measure_node(instances: Sequence[Pair]) -> list[Measured]:
    measured = []
    for pair in instances:
        w1, w2, sigma = float(pair.first[0]), float(pair.second[0]), pair.known
        a, b = (float(x) for x in single_node_equilibrium(w1, w2, sigma))
        law = w1**2 - w2**2
        size = 1 + law**2 + pair.sigma**2
        gap = max(abs(a * b - pair.sigma), abs(a**2 - b**2 - law)) / size
        signs = abs(np.sign(a) - np.sign(w1 + w2)) + abs(np.sign(b) - np.sign(w1 + w2))
        found = np.asarray(single_node_exponents(a, b, sigma))
        jacobian = np.array([[-(b**2), pair.sigma - 2 * a * b], [pair.sigma - 2 * a * b, -(a**2)]])
        values = np.max(np.abs(found - np.linalg.eigvalsh(jacobian))) / size
        closed = np.max(np.abs(found - [-np.sqrt(law**2 + 4 * pair.sigma**2), 0.0])) / size
        origin = np.max(np.abs(np.asarray(single_node_exponents(0.0, 0.0, sigma)) - [-pair.sigma, pair.sigma]))
        numbers = (gap, float(signs), float(values), float(max(closed, origin)))
        measured.append(Measured(dict(zip(NODE, numbers, strict=True))))
    return measured


def _draw_node(rng: np.random.Generator) -> Pair:
    """A start in one of the four wedges between the lines w₁ = ±w₂."""
    angle = np.pi / 2 * int(rng.integers(4)) + rng.uniform(-0.7, 0.7)
    radius = rng.uniform(0.2, 3)
    return Pair(radius * np.cos([angle]), radius * np.sin([angle]), float(rng.uniform(0.3, 3)))


EQUATION_64 = Check(
    id="network/equation-64",
    source="Section 6.2.1, equations 63 and 64",
    statement="One hidden unit ends where w₁w₂ = σ and w₁² - w₂² = c, on the side of w₁ + w₂; the linearised flow "
    "there has the eigenvalues 0 and -(σ² + w₁⁴)/w₁² = -√(c² + 4σ²), and ±σ at the origin.",
    hypotheses=(Hypothesis("not on the line w₁ = -w₂", lambda pair: -float(abs(pair.first[0] + pair.second[0]))),),
    tolerances=NODE,
    measure=_measure_node,
    draw=_draw_node,
    violations=(Violation("another target", lambda rng: dataclasses.replace(_draw_node(rng), sigma=1.0, told=1.1)),),
)

ENDS = {
    "where the flow ends, less the equilibrium, relative": 1e-9,
    "w₁w₂ = σ and w₁² - w₂² = c where c is -10⁶, relative": 1e-12,
}
STEEP = -1e6


def _printed_node(law: float, sigma: float) -> np.ndarray:
    first = math.sqrt((law + math.sqrt(law**2 + 4 * sigma**2)) / 2)
    return np.array([first, sigma / first])


def _measure_ends(instances: Sequence[Pair]) -> list[Measured]:
    from scipy.integrate import solve_ivp

    measured = []
    for pair in instances:
        w1, w2, sigma = float(pair.first[0]), float(pair.second[0]), pair.sigma

        def field(_: float, w: np.ndarray, sigma: float = sigma) -> np.ndarray:
            return (sigma - w[0] * w[1]) * w[::-1]

        run = solve_ivp(field, (0, 60 / sigma), [w1, w2], method="LSODA", rtol=1e-12, atol=1e-13)
        end, size = run.y[:, -1], float(np.linalg.norm(run.y[:, -1]))
        found = np.array([float(x) for x in single_node_equilibrium(w1, w2, pair.known)])
        # On a hyperbola with a large negative constant the first weight is a small difference of large numbers.
        steep = np.array([float(x) for x in single_node_equilibrium(0.0, -math.sqrt(-STEEP), pair.known)])
        product = abs(float(np.prod(steep)) / sigma - 1)
        law = abs(float((steep[0] - steep[1]) * (steep[0] + steep[1])) / STEEP - 1)
        numbers = (float(np.max(np.abs(found - end))) / size, max(product, law))
        told = _printed_node(w1**2 - w2**2, sigma)
        # There it is σ/√|c| to twelve digits.
        lost = abs(float(_printed_node(STEEP, sigma)[0]) * math.sqrt(-STEEP) / sigma - 1)
        facts = {"relative error of the first weight as printed where c is -10⁶": lost}
        printed = float(np.max(np.abs(told - end))) / size
        measured.append(Measured(dict(zip(ENDS, numbers, strict=True)), printed=printed, facts=facts))
    return measured


def _draw_below(rng: np.random.Generator) -> Pair:
    """A start on the side of the negative minima, well away from the line that leads into the saddle."""
    angle = 1.25 * np.pi + rng.uniform(-1.3, 1.3) / 2
    radius = rng.uniform(0.5, 2)
    return Pair(radius * np.cos([angle]), radius * np.sin([angle]), float(rng.uniform(0.5, 2)))


ERRATUM_64 = Check(
    id="network/erratum-equation-64",
    source="Section 6.2.1, equation 64",
    statement="One hidden unit ends at ±(w, σ/w), w² = (c + √(c² + 4σ²))/2, with the sign of w₁ + w₂ at the start; for "
    "c < 0 the second weight is to be computed first, as w is a difference of nearly equal numbers.",
    hypotheses=(Hypothesis("not on the line w₁ = -w₂", lambda pair: 0.1 - float(abs(pair.first[0] + pair.second[0]))),),
    tolerances=ENDS,
    measure=_measure_ends,
    draw=_draw_below,
    violations=(Violation("another target", lambda rng: dataclasses.replace(_draw_below(rng), sigma=1.0, told=1.1)),),
    printed="the positive sign only, from every start.",
    printed_tolerance=1e-6,
)

INDEPENDENT = {"rank of the three laws less 3, 2, 2 and 0 for independent, parallel, one and no layers": 0.0}


def _laws_rank(first: np.ndarray, second: np.ndarray) -> int:
    """Rank of the differentials of the entries of W₂ᵀW₂ - W₁W₁ᵀ, for two hidden units."""
    rows = []
    for i, j in ((0, 0), (1, 1), (0, 1)):
        row = np.zeros(4)
        row[i] -= first[j]
        row[j] -= first[i]
        row[2 + i] += second[j]
        row[2 + j] += second[i]
        rows.append(row)
    return int(np.linalg.matrix_rank(np.array(rows), tol=1e-9))


def _measure_independent(instances: Sequence[Pair]) -> list[Measured]:
    measured = []
    for pair in instances:
        a, b = pair.first, pair.second
        parallel, zero = (float(b @ a) / float(a @ a) or 0.5) * a, np.zeros(2)
        found = [_laws_rank(a, b), _laws_rank(a, parallel), _laws_rank(a, zero), _laws_rank(zero, zero)]
        gap = max(abs(x - y) for x, y in zip(found, (3, 2, 2, 0), strict=True))
        numbers = dict.fromkeys(INDEPENDENT, float(gap))
        measured.append(Measured(numbers, printed=float(max(3 - rank for rank in found))))
    return measured


def _parallel(rng: np.random.Generator) -> Pair:
    first = rng.standard_normal(2)
    return Pair(first, -1.5 * first, 1.0)


ERRATUM_TWO_NODES = Check(
    id="network/erratum-two-nodes",
    source="Section 6.2.3",
    statement="The three laws of one hidden layer with two units are independent if and only if W₁ and W₂ᵀ are: their "
    "rank is 3, and 2 for parallel layers or one zero layer, and 0 at the origin.",
    hypotheses=(
        Hypothesis(
            "independent layers", lambda p: 1e-3 - float(abs(p.first[0] * p.second[1] - p.first[1] * p.second[0]))
        ),
    ),
    tolerances=INDEPENDENT,
    measure=_measure_independent,
    draw=lambda rng: Pair(rng.choice([-1, 1]) * np.array([1.0, 0.3]), np.array([0.2, 1.0]) + 0.2 * rng.random(2), 1.0),
    violations=(Violation("parallel layers", _parallel),),
    printed="The laws span three dimensions at each point.",
)


# --- A chain of three numbers -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Chain:
    """Three layers of one unit each, and their target."""

    weights: np.ndarray
    sigma: float
    told: float | None = None

    @property
    def known(self) -> float:
        return self.sigma if self.told is None else self.told

    @property
    def laws(self) -> np.ndarray:
        """w₂² - w₁² and w₃² - w₂²."""
        return np.diff(self.weights**2)


def _draw_chain(rng: np.random.Generator) -> Chain:
    sizes = rng.permutation([0.4, 0.8, 1.2]) + rng.uniform(0, 0.2, 3)
    return Chain(rng.choice([-1, 1], 3) * sizes, float(rng.uniform(0.5, 2)))


CUBIC = {
    "squares at the minimum against the roots of x(x - c₁)(x + c₂) = σ²": 1e-9,
    "weights at the end: product less σ": 1e-12,
    "and change of what is conserved": 1e-12,
}


def _measure_cubic(instances: Sequence[Chain]) -> list[Measured]:
    measured = []
    for chain in instances:
        c1, c2 = chain.laws
        roots = np.roots([1.0, c2 - c1, -c1 * c2, -(chain.sigma**2)])
        x = max(root.real for root in roots if abs(root.imag) < 1e-6)
        squares = np.asarray(chain_minimum(chain.laws, chain.known))
        gap = float(np.max(np.abs(squares - [x - c1, x, x + c2])))
        end = np.asarray(diagonal_limit(chain.weights[:, None], chain.known).weights)[:, 0]
        drift = float(np.max(np.abs(np.diff(end**2) - chain.laws)))
        measured.append(Measured(dict(zip(CUBIC, (gap, abs(float(np.prod(end)) - chain.sigma), drift), strict=True))))
    return measured


def _untied(chain: Chain) -> float:
    """By how much the sizes of two layers differ at least, less what is asked."""
    sizes = np.sort(np.abs(chain.weights))
    return 1e-2 - float(np.min(np.diff(sizes)))


def _tied(rng: np.random.Generator) -> Chain:
    """(x, y, -x) with |y| > |x|: both neighbours differ, the outer layers do not."""
    low, high = rng.uniform(0.3, 1.0), rng.uniform(1.3, 2.5)
    return Chain(np.array([low, high, -low]), float(rng.uniform(0.5, 2)))


SECTION_6_2_2 = Check(
    id="network/section-6.2.2",
    source="Section 6.2.2, equation 65",
    statement="Three layers of one unit whose sizes differ end at the minimum given by the one root of "
    "x(x - c₁)(x + c₂) = σ², x = w₂², that makes all squares positive.",
    hypotheses=(Hypothesis("sizes that differ", _untied),),
    tolerances=CUBIC,
    measure=_measure_cubic,
    draw=_draw_chain,
    violations=(
        Violation("another target", lambda rng: dataclasses.replace(_draw_chain(rng), sigma=1.0, told=1.1)),
        Violation("outer layers of equal size and a negative product", _tied),
    ),
)

NEGATIVE = {"loss at the end of the flow": 1e-16}


def _last_loss(chain: Chain) -> float:
    from scipy.integrate import solve_ivp

    def field(_: float, y: np.ndarray) -> np.ndarray:
        a, b, c = y
        return (chain.sigma - a * b * c) * np.array([b * c, a * c, a * b])

    run = solve_ivp(field, (0, 60.0), chain.weights, method="LSODA", rtol=1e-11, atol=1e-13)
    return 0.5 * (chain.sigma - float(np.prod(run.y[:, -1]))) ** 2


def _measure_negative(instances: Sequence[Chain]) -> list[Measured]:
    measured = []
    for chain in instances:
        w = chain.weights
        low, high = np.sort(np.abs(w))[[0, 2]]
        stuck = Chain(np.array([low, high, -low]), chain.sigma)  # w₁² - w₂² and w₂² - w₃² are not zero; their sum is
        numbers = dict.fromkeys(NEGATIVE, _last_loss(chain))
        measured.append(Measured(numbers, printed=_last_loss(stuck), facts={"saddle": 0.5 * chain.sigma**2}))
    return measured


ERRATUM_CHAIN = Check(
    id="network/erratum-chain",
    source="Section 6.2.2, below equation 65",
    statement="The loss of three layers of one unit falls to zero if w₁² - w₂², w₂² - w₃² and w₁² - w₃² are not zero.",
    hypotheses=(Hypothesis("sizes that differ", _untied),),
    tolerances=NEGATIVE,
    measure=_measure_negative,
    draw=_draw_chain,
    violations=(Violation("outer layers of equal size and a negative product", _tied),),
    printed="The derivative of the loss is negative definite as soon as w₁² - w₂² and w₂² - w₃² are not zero; but "
    "(x, y, -x) with |y| > |x| ends at a saddle.",
    printed_tolerance=1e-6,
)

CHECKS = (
    EQUATION_61,
    SEQUENTIAL,
    EQUATION_64,
    EQUATION_66,
    SECTION_6_2_2,
    ERRATUM_64,
    ERRATUM_EQUILIBRIA,
    ERRATUM_TWO_NODES,
    ERRATUM_CHAIN,
)
