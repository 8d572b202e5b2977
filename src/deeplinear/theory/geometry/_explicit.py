"""Geodesics in closed form: each is a critical point of the action, by quadrature and differences in plain NumPy."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy.linalg

from deeplinear.core import HypothesisError
from deeplinear.geometry import classify_endpoints, explicit_geodesic, rotation_chord
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._matrices import (
    DEPTHS,
    ROUNDING,
    draw_orthogonal,
    draw_positive,
    draw_spectrum,
    polar,
)

CRITICAL = 1e-8
"""First variation of the action, by differences of fourth order."""

STEP = 3e-4
"""Step of these differences."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)
TIMES = (NODES + 1) / 2

DIRECTIONS = 4
"""Random directions in which a curve is varied."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two matrices to be joined, at a depth.

    Attributes:
        start: First matrix.
        end: Last matrix.
        depth: Number of layers, or infinity.
        case: Which closed form joins them.
    """

    start: np.ndarray
    end: np.ndarray
    depth: float
    case: str = ""


def eigenvalues(spectra: np.ndarray, depth: float) -> np.ndarray:
    """λ_L(s_k, s_l) = (s_k² - s_l²)/(s_k^(2/L) - s_l^(2/L)) of spectra (..., d), with the limit at equal values."""
    a, b = spectra[..., :, None], spectra[..., None, :]
    ratio = np.log1p((a - b) / b)
    equal = ratio == 0
    safe = np.where(equal, 1.0, ratio)
    if math.isinf(depth):
        return b**2 * np.where(equal, 1.0, np.expm1(2 * safe) / (2 * safe))
    return b ** (2 - 2 / depth) * np.where(equal, depth, np.expm1(2 * safe) / np.expm1(2 * safe / depth))


def squared_speeds(points: np.ndarray, velocities: np.ndarray, depth: float) -> np.ndarray:
    """g_X(Ẋ, Ẋ) at points and velocities (..., d, d)."""
    left, spectra, right_t = np.linalg.svd(points)
    seen = np.swapaxes(left, -1, -2) @ velocities @ np.swapaxes(right_t, -1, -2)
    return np.sum(seen**2 / eigenvalues(spectra, depth), axis=(-1, -2))


def plain_length(points: np.ndarray, velocities: np.ndarray, depth: float) -> float:
    """Length of a curve on [0, 1] from its values at the nodes."""
    return float(WEIGHTS @ np.sqrt(squared_speeds(points, velocities, depth))) / 2


def first_variation(points: np.ndarray, velocities: np.ndarray, depth: float) -> float:
    """Largest derivative of the action over its size, in directions that vanish at both ends, relative to the curve."""
    rng = np.random.default_rng(0)
    action = float(WEIGHTS @ squared_speeds(points, velocities, depth)) / 4
    size = points.shape[-1]
    largest = 0.0
    for k in range(1, DIRECTIONS + 1):
        shape = rng.standard_normal((size, size)) * float(np.min(np.linalg.svd(points, compute_uv=False)))
        move = np.sin(k * math.pi * TIMES)[:, None, None] * shape
        rate = k * math.pi * np.cos(k * math.pi * TIMES)[:, None, None] * shape

        def varied(step: float, move: np.ndarray = move, rate: np.ndarray = rate) -> float:
            return float(WEIGHTS @ squared_speeds(points + step * move, velocities + step * rate, depth)) / 4

        near, far = (varied(step) - varied(-step) for step in (STEP, 2 * STEP))
        largest = max(largest, abs(8 * near - far) / (12 * STEP))
    return largest / action if action > 0 else largest


Curve = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Points and velocities at a vector of times."""


def _curve(pair: Pair) -> tuple[str, Curve, float]:
    """The closed form with its name and length; where there is none, the chord."""
    case = classify_endpoints(pair.start, pair.end, pair.depth)
    if case != "numeric":
        path = explicit_geodesic(pair.start, pair.end, pair.depth)
    else:
        path = rotation_chord(pair.start, pair.end, int(pair.depth))
    return case, lambda t: (np.asarray(path.points(t)), np.asarray(path.velocities(t))), path.length


# --- Closed forms -----------------------------------------------------------------------------------------------------

EXPLICIT = {
    "ends": 1e-11,
    "first variation of the action": CRITICAL,
    "length against quadrature, relative": 1e-9,
    "case told": 0.0,
}


def _measure_explicit(pairs: Sequence[Pair]) -> list[Measured]:
    measured = []
    for pair in pairs:
        case, curve, length = _curve(pair)
        points, velocities = curve(TIMES)
        ends = curve(np.array([0.0, 1.0]))[0] - np.stack([pair.start, pair.end])
        numbers = (
            float(np.max(np.abs(ends))) / float(np.max(np.abs(pair.end))),
            first_variation(points, velocities, pair.depth),
            abs(length / plain_length(points, velocities, pair.depth) - 1),
            float(case != pair.case),
        )
        measured.append(Measured(dict(zip(EXPLICIT, numbers, strict=True)), facts={"length": length}))
    return measured


def draw_normal(rng: np.random.Generator, size: int, largest: float) -> np.ndarray:
    """A normal matrix, no symmetric one, its eigenvalues turned by at most an angle."""
    angle, sizes = rng.uniform(0.2, largest), np.exp(rng.uniform(-0.7, 0.7, size - 1))
    turn = sizes[0] * np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    frame = draw_orthogonal(rng, size)
    return frame @ scipy.linalg.block_diag(turn, np.diag(sizes[1:])) @ frame.T


def draw_explicit(rng: np.random.Generator) -> Pair:
    """A pair of one of the cases."""
    kind = int(rng.integers(5))
    # A normal matrix of two rows would be a multiple of a rotation.
    size = int(rng.integers(2, 4)) if kind < 2 else 3
    turn, frame = draw_orthogonal(rng, size), draw_orthogonal(rng, size)
    depth = DEPTHS[int(rng.integers(len(DEPTHS)))]
    if kind == 0:
        ends = [turn @ (frame * draw_spectrum(rng, size)[rng.permutation(size)]) @ frame.T for _ in range(2)]
        return Pair(ends[0], ends[1], depth, "common frame")
    if kind == 1:
        return Pair(turn @ draw_positive(rng, size), turn @ draw_positive(rng, size), 2, "positive pair")
    if kind == 2:
        values, map_ = np.diag(draw_spectrum(rng, size)), draw_normal(rng, size, 0.45 * math.pi)
        return Pair(turn @ values @ frame.T, turn @ map_ @ values @ map_ @ frame.T, 2, "normal map")
    ends = [rng.uniform(0.5, 2) * turn, turn @ draw_normal(rng, size, 0.9 * math.pi)]
    if kind == 3:
        return Pair(ends[0], ends[1], depth, "from a scaled rotation")
    return Pair(ends[1], ends[0], depth, "to a scaled rotation")


def draw_crossed(rng: np.random.Generator, depth: float | None = None, size: int = 2) -> Pair:
    """Equal polar factors, but positive factors whose frames stand at an angle of at least 0.3."""
    turn = draw_orthogonal(rng, size)
    chosen = (2, 3, 4)[int(rng.integers(3))] if depth is None else depth
    angle = rng.uniform(0.3, math.pi / 2 - 0.3)
    cross = np.eye(size)
    cross[:2, :2] = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    frame = draw_orthogonal(rng, size)
    ends = []
    for way in (frame, frame @ cross):
        values = np.exp(np.sort(rng.uniform(-0.3, 0.3, size))[::-1] + np.linspace(0.7, -0.7, size))
        ends.append(turn @ (way * values) @ way.T)
    return Pair(ends[0], ends[1], chosen, "numeric")


def _apart(pair: Pair) -> float:
    """1 where the determinants have opposite signs."""
    return float(np.sign(np.linalg.det(pair.start)) != np.sign(np.linalg.det(pair.end)))


COMPONENT = Hypothesis("determinants of one sign", _apart)

EXPLICIT_GEODESICS = Check(
    id="geometry/explicit-geodesics",
    source="Theorem 3.4.2, corrected; Theorem 3.2.3",
    statement="Closed forms of geodesics: positive factors that commute; positive pairs and normal maps at depth two; "
    "scaled rotations and normal matrices at any depth. Each is a critical point of the action and has the length "
    "told.",
    hypotheses=(COMPONENT,),
    tolerances=EXPLICIT,
    measure=_measure_explicit,
    draw=draw_explicit,
    violations=(
        Violation(
            "the chord between positive matrices that do not commute",
            lambda rng: draw_crossed(rng, 3),
        ),
    ),
)

# --- Diagonal matrices ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Diagonals:
    """Diagonals of two matrices with equal signs, and the depth."""

    first: np.ndarray
    second: np.ndarray
    depth: int


DIAGONAL = {
    "binomial form against the power": ROUNDING,
    "against the closed form": 1e-11,
    "first variation of the action": CRITICAL,
    "length against √L ‖a^(1/L) - b^(1/L)‖": 1e-11,
}


def _measure_diagonal(instances: Sequence[Diagonals]) -> list[Measured]:
    measured = []
    for one in instances:
        a, b, depth = np.abs(one.first), np.abs(one.second), one.depth
        sign = np.sign(one.first)
        t = TIMES[:, None]
        power = sign * ((1 - t) * a ** (1 / depth) + t * b ** (1 / depth)) ** depth
        terms = [
            math.comb(depth, p) * (1 - t) ** p * t ** (depth - p) * a ** (p / depth) * b ** ((depth - p) / depth)
            for p in range(depth + 1)
        ]
        length = math.sqrt(depth) * float(np.linalg.norm(a ** (1 / depth) - b ** (1 / depth)))
        try:
            path = explicit_geodesic(np.diag(one.first), np.diag(one.second), depth)
            points, velocities = np.asarray(path.points(TIMES)), np.asarray(path.velocities(TIMES))
            numbers = (
                float(np.max(np.abs(sign * sum(terms) - power))),
                float(np.max(np.abs(points - power[:, :, None] * np.eye(len(a))))),
                first_variation(points, velocities, depth),
                abs(path.length - length),
            )
        except HypothesisError:
            numbers = (math.inf,) * len(DIAGONAL)
        # As printed, roots are taken of entries of both signs; at even depth a negative one has none that is real.
        with np.errstate(invalid="ignore"):
            printed = sum(
                math.comb(depth, p)
                * (1 - t) ** p
                * t ** (depth - p)
                * one.first ** (p / depth)
                * one.second ** ((depth - p) / depth)
                for p in range(depth + 1)
            )
        missed = float(np.max(np.abs(printed - power)))
        measured.append(
            Measured(dict(zip(DIAGONAL, numbers, strict=True)), printed=missed if math.isfinite(missed) else math.inf)
        )
    return measured


def _draw_diagonal(rng: np.random.Generator) -> Diagonals:
    """Of even depth and with a negative entry, which has no real root: there the printed form is no real matrix."""
    size, depth = int(rng.integers(2, 4)), 2 * int(rng.integers(1, 4))
    signs = rng.choice([-1.0, 1.0], size)
    signs[0] = -1.0
    a, b = np.exp(rng.uniform(-1, 1, (2, size)))
    return Diagonals(signs * a, signs * b, depth)


def _mixed_signs(rng: np.random.Generator) -> Diagonals:
    one = _draw_diagonal(rng)
    flipped = one.second.copy()
    flipped[:2] *= -1
    return Diagonals(one.first, flipped, one.depth)


COROLLARY = Check(
    id="geometry/corollary-3.4.2.1",
    source="Corollary 3.4.2.1",
    statement="Between diagonal matrices whose entries have equal signs ε the geodesic is "
    "ε((1-t)|A|^(1/L) + t|B|^(1/L))^L = ε Σ_p binom(L,p) (1-t)^p t^(L-p) |A|^(p/L) |B|^((L-p)/L), "
    "of length √L ‖|A|^(1/L) - |B|^(1/L)‖.",
    hypotheses=(
        Hypothesis("entries of equal signs", lambda one: float(np.any(np.sign(one.first) != np.sign(one.second)))),
    ),
    tolerances=DIAGONAL,
    measure=_measure_diagonal,
    draw=_draw_diagonal,
    violations=(Violation("two entries that change their signs", _mixed_signs),),
    printed="When A and B are diagonal the geodesic is ((1-t)A^(1/N) + tB^(1/N))^N.",
    printed_tolerance=1e-9,
)


def polar_apart(one: np.ndarray, other: np.ndarray) -> float:
    """Distance of the orthogonal polar factors."""
    return float(np.linalg.norm(polar(one)[0] - polar(other)[0]))


CHECKS = (EXPLICIT_GEODESICS, COROLLARY)
