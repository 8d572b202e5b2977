"""One input, one hidden layer and one output: the solution, its ends, one and two hidden units."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from deeplinear.exact import single_channel, single_channel_limit, single_node_equilibrium, single_node_exponents
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation

FLOW = 1e-10
"""Flows by DOP853 at rtol 1e-13 over times of order one."""


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
