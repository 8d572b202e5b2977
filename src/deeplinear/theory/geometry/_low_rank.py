"""Attraction to low rank: completions of a unit diagonal, determinants along flows, dimension against depth."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from deeplinear.core import HypothesisError, Params
from deeplinear.models import Completion, Problem, SquaredDistance
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._matrices import ROUNDING, draw_point

Gradient = Callable[[np.ndarray], np.ndarray]


# --- Flows of many starts, in plain NumPy -----------------------------------------------------------------------------


def _weights(values: np.ndarray, depth: float) -> np.ndarray:
    """Eigenvalues (a² - b²)/(L(a^(2/L) - b^(2/L))) of A_L/L for all pairs of singular values, in the last axes."""
    high, low = (f(values[..., :, None], values[..., None, :]) for f in (np.maximum, np.minimum))
    with np.errstate(divide="ignore"):  # beside a value of 0 the other one is infinitely far apart
        apart = np.maximum(-2 * np.log(low / np.where(high > 0, high, 1.0)), 1e-12)
    shrunk = apart if math.isinf(depth) else -depth * np.expm1(-apart / depth)
    return high ** (2 - 2 / depth) * -np.expm1(-apart) / shrunk


def _velocity(points: np.ndarray, gradients: np.ndarray, depth: float) -> np.ndarray:
    """-A_L[X](dE)/L for a batch, from singular value decompositions."""
    left, values, right = np.linalg.svd(points)
    inside = np.swapaxes(left, 1, 2) @ gradients @ np.swapaxes(right, 1, 2)
    return -left @ (_weights(values, depth) * inside) @ right


def _flow(points: np.ndarray, gradient: Gradient, depth: float, horizon: float, steps: int) -> np.ndarray:
    """The flow by the classical fourth-order rule with equal steps: points by step and start."""
    h = horizon / steps
    path = [points]
    for _ in range(steps):
        x = path[-1]
        first = _velocity(x, gradient(x), depth)
        second = _velocity(x + h / 2 * first, gradient(x + h / 2 * first), depth)
        third = _velocity(x + h / 2 * second, gradient(x + h / 2 * second), depth)
        fourth = _velocity(x + h * third, gradient(x + h * third), depth)
        path.append(x + h / 6 * (first + 2 * second + 2 * third + fourth))
    return np.stack(path)


def _effective_ranks(points: np.ndarray) -> np.ndarray:
    values = np.linalg.svd(points, compute_uv=False)
    shares = values / values.sum(axis=-1, keepdims=True)
    return np.exp(-np.sum(shares * np.log(np.maximum(shares, 1e-300)), axis=-1))


# --- Completions of a unit diagonal -----------------------------------------------------------------------------------


def _rank_one(rng: np.random.Generator) -> np.ndarray:
    """A matrix uvᵀ of rank one with unit diagonal; now and then with all |u| equal."""
    size = int(rng.integers(2, 7))
    u = rng.choice([-1.0, 1.0], size) * np.exp(rng.uniform(-1, 1, size) * (rng.random() < 0.8))
    return np.outer(u, 1 / u)


def _adopt_product(problem: Problem, params: Params) -> np.ndarray:
    product = np.asarray(problem.product(params))
    if product.shape[0] != product.shape[1]:
        raise HypothesisError("a square matrix", abs(product.shape[0] - product.shape[1]), 0)
    return product


def _second(matrix: np.ndarray) -> float:
    values = np.linalg.svd(matrix, compute_uv=False)
    return float(values[1] / max(values[0], 1e-300)) if len(values) > 1 else 0.0


RANK_ONE = {
    "by how much s₁ stays below d": 1e-11,
    "s₁² - d² less the sum over pairs of (|xᵢⱼ| - |xⱼᵢ|)², relative to s₁²": 1e-12,
    "distance of s₁ from d for the signs of the matrix": 1e-11,
}


def _measure_rank_one(instances: Sequence[np.ndarray]) -> list[Measured]:
    measured = []
    for matrix in instances:
        size = len(matrix)
        largest = float(np.linalg.norm(matrix, 2))
        pairs = sum((abs(matrix[i, j]) - abs(matrix[j, i])) ** 2 for i in range(size) for j in range(i + 1, size))
        equal = float(np.linalg.norm(np.sign(matrix), 2))
        numbers = (size - largest, abs(largest**2 - size**2 - pairs) / largest**2, abs(equal - size))
        measured.append(Measured(dict(zip(RANK_ONE, numbers, strict=True)), facts={"s₁": largest, "d": size}))
    return measured


COMPLETIONS = Check(
    id="geometry/rank-one-completions",
    source="Section 4.2",
    statement="A matrix uvᵀ of rank one with unit diagonal has s₁ ≥ d, with s₁² - d² = Σ (|xᵢⱼ| - |xⱼᵢ|)² over pairs: "
    "equality if and only if, with |u| = |v|, |uᵢ| = |vᵢ| for all i, when all entries are 1 or -1.",
    hypotheses=(
        Hypothesis("unit diagonal", lambda x: float(np.max(np.abs(np.diagonal(x) - 1))), ROUNDING),
        Hypothesis("rank one: s₂/s₁", _second, ROUNDING),
    ),
    tolerances=RANK_ONE,
    measure=_measure_rank_one,
    draw=_rank_one,
    violations=(
        Violation(
            "a completion of full rank", lambda rng: np.eye(3) + 0.1 * (1 - np.eye(3)) * rng.uniform(size=(3, 3))
        ),
        Violation("a diagonal that is smaller", lambda rng: 0.9 * _rank_one(rng)),
    ),
    adopt=_adopt_product,
)

HYPERBOLA = {
    "x₁₂x₂₁ less 1 - det X": ROUNDING,
    "side of the hyperbola that is not the sign of the determinant": 0.0,
    "s₁s₂ less |1 - x₁₂x₂₁|": 1e-11,
}


def _measure_hyperbola(instances: Sequence[np.ndarray]) -> list[Measured]:
    measured = []
    for matrix in instances:
        product = float(matrix[0, 1] * matrix[1, 0])
        # The determinant by elimination and by singular values: neither expands the product it is compared with.
        determinant = float(np.linalg.det(matrix))
        values = np.linalg.svd(matrix, compute_uv=False)
        size = 1 + abs(product)
        wrong = abs(determinant) > ROUNDING * size and np.sign(1 - product) != np.sign(determinant)
        numbers = (
            abs(product - (1 - determinant)) / size,
            float(wrong),
            abs(float(np.prod(values)) - abs(1 - product)) / size,
        )
        measured.append(Measured(dict(zip(HYPERBOLA, numbers, strict=True)), facts={"det X": determinant}))
    return measured


def _completed(rng: np.random.Generator, diagonal: float = 1.0) -> np.ndarray:
    upper, lower = rng.choice([-1.0, 1.0], 2) * np.exp(rng.uniform(-2, 2, 2))
    return np.array([[diagonal, upper], [lower, diagonal]])


CURVE = Check(
    id="geometry/low-rank-hyperbola",
    source="Section 4.2",
    statement="A 2 × 2 matrix with unit diagonal has x₁₂x₂₁ = 1 - det X: it lies on the hyperbola x₁₂x₂₁ = 1 if and "
    "only if it has rank one, and otherwise on the side that the sign of its determinant says.",
    hypotheses=(Hypothesis("unit diagonal", lambda x: float(np.max(np.abs(np.diagonal(x) - 1))), ROUNDING),),
    tolerances=HYPERBOLA,
    measure=_measure_hyperbola,
    draw=_completed,
    violations=(Violation("another diagonal", lambda rng: _completed(rng, 1.1)),),
)


# --- Determinants along flows -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Way:
    """A flow of ½‖mask ∘ (X - B)‖² and how long it is followed.

    Attributes:
        start: X at time zero.
        target: B.
        mask: Ones where observed.
        depth: Number of layers, or infinity.
    """

    start: np.ndarray
    target: np.ndarray
    mask: np.ndarray
    depth: float


FOLLOWED, STRIDES = 8.0, 160
"""Time and number of steps of a flow: eigenvalues of the flow stay below 20 for the matrices that are drawn."""


BALANCED = 1e-9
"""Layers whose Gram matrices agree to this, relative to their squared norm, have the flow of balanced ones."""


def _opposite(rng: np.random.Generator, depth: float, mask: np.ndarray) -> Way:
    """A start and a target whose determinants have opposite signs; spectra between 0.6 and 1.6."""
    start, target = draw_point(rng, 3, 0.5), draw_point(rng, 3, 0.5)
    if np.linalg.det(start) * np.linalg.det(target) > 0:
        target = target * np.array([-1.0, 1.0, 1.0])
    return Way(start, target, mask, depth)


def _draw_way(rng: np.random.Generator) -> Way:
    depth = float(rng.choice([2, 3, math.inf]))
    mask = np.ones((3, 3)) if rng.random() < 0.5 else np.maximum(rng.random((3, 3)) < 0.6, np.eye(3))
    return _opposite(rng, depth, mask)


def _adopt_way(problem: Problem, params: Params) -> Way:
    loss = problem.loss
    if not isinstance(loss, Completion | SquaredDistance):
        raise HypothesisError("a completion or a squared distance", 1, 0)
    layers = [np.asarray(layer) for layer in params]
    uneven = [np.linalg.norm(b.T @ b - a @ a.T) for a, b in itertools.pairwise(layers)]
    size = max(float(np.sum(layer**2)) for layer in layers)
    if max(uneven, default=0.0) > BALANCED * size:
        raise HypothesisError("balanced layers", float(max(uneven)) / size, BALANCED)
    mask = np.asarray(loss.mask) if isinstance(loss, Completion) else np.ones(loss.target.shape)
    return Way(_adopt_product(problem, params), np.asarray(loss.target), mask, len(params))


SIGNS = {
    "steps with a determinant of another sign than at the start": 0.0,
    "by how much a wholly observed target of the other sign is nearer than its least singular value": 1e-9,
}


def _measure_signs(instances: Sequence[Way]) -> list[Measured]:
    found: dict[int, Measured] = {}
    for depth, size in sorted({(way.depth, len(way.start)) for way in instances}):
        places = [i for i, way in enumerate(instances) if (way.depth, len(way.start)) == (depth, size)]
        start, target, mask = (
            np.stack([getattr(instances[i], name) for i in places]) for name in ("start", "target", "mask")
        )
        path = _flow(start, lambda x, b=target, m=mask: m * (x - b), depth, FOLLOWED, STRIDES)
        changed = np.sum(np.sign(np.linalg.det(path)) != np.sign(np.linalg.det(start)), axis=0)
        for k, i in enumerate(places):
            far = float(np.linalg.norm(path[-1, k] - target[k]))
            least = float(np.linalg.svd(target[k], compute_uv=False)[-1])
            apart = np.linalg.det(start[k]) * np.linalg.det(target[k]) < 0 and bool(np.all(mask[k] == 1))
            numbers = (float(changed[k]), least - far if apart else 0.0)
            facts = {"distance to the target": far, "least singular value of the target": least}
            found[i] = Measured(dict(zip(SIGNS, numbers, strict=True)), facts=facts)
    return [found[i] for i in range(len(instances))]


DETERMINANTS = Check(
    id="geometry/determinant-sign",
    source="Section 4.2",
    statement="With two layers or more the sign of det X never changes along the flow; a target of the other sign "
    "stays at least its smallest singular value away, so a start can be told in advance not to reach it.",
    hypotheses=(Hypothesis("two layers or more", lambda way: 2.0 - way.depth),),
    tolerances=SIGNS,
    measure=_measure_signs,
    draw=_draw_way,
    violations=(Violation("one layer: plain gradient flow", lambda rng: _opposite(rng, 1, np.ones((3, 3)))),),
    adopt=_adopt_way,
)


# --- Dimension, not depth ---------------------------------------------------------------------------------------------

SIZES, EACH = (3, 6, 12), 4
"""Dimensions, and starts of each."""

LONG, EVERY = 6.0, 40
"""Time they are followed, after which effective ranks hardly move, and steps."""

SHALLOW, DEEP = 2, 5
"""Depths that the starts of the middle dimension are followed at as well."""

SLOPE = 0.6
"""What the thesis says of the slope."""


@dataclasses.dataclass(frozen=True)
class Starts:
    """Gaussian starts of variance 1/d for each dimension, and by how much the limit ranks grow with what."""

    by_size: tuple[np.ndarray, ...]
    flows: bool = True


def _draw_starts(rng: np.random.Generator) -> Starts:
    return Starts(tuple(rng.standard_normal((EACH, d, d)) / math.sqrt(d) for d in SIZES))


def _limit_ranks(instances: Sequence[Starts], place: int, depth: float) -> np.ndarray:
    """Mean effective rank that each instance's starts of one dimension reach, all followed together."""
    starts = np.concatenate([one.by_size[place] for one in instances])
    moved = np.repeat([one.flows for one in instances], EACH)
    diagonal = np.eye(starts.shape[-1])
    ends = _flow(starts, lambda x: diagonal * (x - diagonal), depth, LONG, EVERY)[-1]
    return _effective_ranks(np.where(moved[:, None, None], ends, starts)).reshape(-1, EACH).mean(axis=1)


DIMENSIONS = {
    "distance of the slope in the dimension from 0.55": 0.17,
    "distance of the means from a line in the dimension, over their range": 0.15,
    "slope of the rank in the depth, from 2 to 5": 0.0,
    "by how much infinite depth ends at a higher rank than depth 5": 0.0,
}


def _measure_dimensions(instances: Sequence[Starts]) -> list[Measured]:
    sizes = np.array(SIZES, dtype=float)
    ranks = np.stack([_limit_ranks(instances, k, math.inf) for k in range(len(SIZES))], axis=1)
    shallow, deep = (_limit_ranks(instances, 1, depth) for depth in (SHALLOW, DEEP))
    measured = []
    for means, two, five in zip(ranks, shallow, deep, strict=True):
        slope, offset = np.polyfit(sizes, means, 1)
        bent = float(np.max(np.abs(means - offset - slope * sizes)) / np.ptp(means))
        in_depth = float(five - two) / (DEEP - SHALLOW)
        numbers = (abs(float(slope) - 0.55), bent, in_depth, float(means[1] - five))
        measured.append(
            Measured(
                dict(zip(DIMENSIONS, numbers, strict=True)),
                printed=abs(in_depth - SLOPE),
                facts={"slope in the dimension": float(slope), "slope in the depth": in_depth},
            )
        )
    return measured


AXIS = Check(
    id="geometry/erratum-rank-axis",
    source="Figure 4.2(d)",
    statement="Completing a unit diagonal from Gaussian starts of variance 1/d, the mean effective rank reached at "
    "infinite depth grows linearly with the dimension, with a slope of about 0.55; with the depth it falls.",
    hypotheses=(
        Hypothesis(
            "starts of variance 1/d, in standard errors",
            lambda one: max(abs(np.mean(x**2) * x.shape[-1] - 1) / math.sqrt(2 / x.size) for x in one.by_size),
            5.0,
        ),
    ),
    tolerances=DIMENSIONS,
    measure=_measure_dimensions,
    draw=_draw_starts,
    violations=(
        Violation("starts that are not moved", lambda rng: dataclasses.replace(_draw_starts(rng), flows=False)),
        Violation("starts ten times as small", lambda rng: Starts(tuple(x / 10 for x in _draw_starts(rng).by_size))),
    ),
    printed="The mean limiting effective rank grows linearly with the depth, with a slope of about 3/5.",
    printed_tolerance=0.3,
)


# --- Entropy added to a completion ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Regularised:
    """A 2 × 2 matrix with unit diagonal, near rank one, and the inverse temperature of the entropy added.

    Attributes:
        confined: Whether all entries are observed, so that the free energy is bounded below.
    """

    start: np.ndarray
    beta: float
    confined: bool = False


def _draw_regularised(rng: np.random.Generator) -> Regularised:
    upper = float(rng.choice([-1.0, 1.0]) * rng.uniform(1.5, 3.0))
    lower = (1 + rng.choice([-1.0, 1.0]) * rng.uniform(0.02, 0.1)) / upper
    return Regularised(np.array([[1.0, upper], [lower, 1.0]]), float(rng.uniform(1, 4)))


def _entropy(values: np.ndarray) -> float:
    """½ ln((s₁² - s₂²)/(2 ln(s₁/s₂))) of two singular values that differ."""
    return 0.5 * math.log((values[0] ** 2 - values[1] ** 2) / (2 * math.log(values[0] / values[1])))


def _entropy_force(values: np.ndarray) -> np.ndarray:
    """Its derivative."""
    s, t = values
    apart = math.log(s / t)
    return np.array([s / (s**2 - t**2) - 1 / (2 * s * apart), -t / (s**2 - t**2) + 1 / (2 * t * apart)])


def _climb(one: Regularised, laps: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Both singular values and free energies at the times 0, β, 2β, …, by LSODA."""
    from scipy.integrate import solve_ivp

    mask = np.ones((2, 2)) if one.confined else np.eye(2)
    target = one.start if one.confined else np.eye(2)

    def field(t: float, flat: np.ndarray) -> np.ndarray:
        x = flat.reshape(2, 2)
        left, values, right = np.linalg.svd(x)
        inside = left.T @ (mask * (x - target)) @ right.T - np.diag(_entropy_force(values)) / one.beta
        return -(left @ (_weights(values, math.inf) * inside) @ right).ravel()

    times = one.beta * np.arange(laps + 1)
    found = solve_ivp(field, (0, times[-1]), one.start.ravel(), "LSODA", times, rtol=1e-6, atol=1e-9)
    points = found.y.T.reshape(-1, 2, 2)
    values = np.linalg.svd(points, compute_uv=False)
    energies = 0.5 * np.sum((mask * (points - target)) ** 2, axis=(1, 2))
    free = energies - np.array([_entropy(pair) for pair in values]) / one.beta
    return values, free


DIVERGING = {
    "distance of β d ln s₁/dt over the last two laps from 0.95": 0.1,
    "rise of the free energy in a lap": 1e-6,
    "1/2 less β times the fall of the free energy in the last lap": 0.0,
    "effective rank at the end, less one": 0.01,
}


def _measure_diverging(instances: Sequence[Regularised]) -> list[Measured]:
    measured = []
    for one in instances:
        both, free = _climb(one)
        largest, shares = both[:, 0], both[-1] / np.sum(both[-1])
        rate = float(np.log(largest[-1] / largest[-3]) / 2)
        falls = -np.diff(free)
        rank = float(np.exp(-np.sum(shares * np.log(shares))))
        numbers = (abs(rate - 0.95), float(-np.min(falls)), 0.5 - one.beta * float(falls[-1]), rank - 1)
        facts = {"s₁ at the start": float(largest[0]), "s₁ at the end": float(largest[-1])}
        measured.append(Measured(dict(zip(DIVERGING, numbers, strict=True)), printed=abs(rate), facts=facts))
    return measured


DIVERGENCE = Check(
    id="geometry/erratum-regularised-completion",
    source="Figure 4.5(b)",
    statement="The flow of the completion of a 2 × 2 diagonal with entropy added does not converge: s₁ ends up growing "
    "like exp(t/β), the free energy falls without end, and the effective rank tends to one: not that of a minimiser.",
    hypotheses=(
        Hypothesis("an entry that is not observed", lambda one: float(one.confined)),
        Hypothesis("unit diagonal", lambda one: float(np.max(np.abs(np.diagonal(one.start) - 1))), ROUNDING),
        Hypothesis("near rank one: |1 - x₁₂x₂₁|", lambda one: abs(float(np.linalg.det(one.start))), 0.11),
    ),
    tolerances=DIVERGING,
    measure=_measure_diverging,
    draw=_draw_regularised,
    violations=(
        Violation("all entries observed", lambda rng: dataclasses.replace(_draw_regularised(rng), confined=True)),
    ),
    printed="With the entropy, solutions are tightly distributed at effective rank 1; read as that of a minimiser.",
    printed_tolerance=0.05,
    version=2,
)

CHECKS = (COMPLETIONS, CURVE, DETERMINANTS, AXIS, DIVERGENCE)
