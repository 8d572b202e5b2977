"""The distance: a bound below it, and that it is one."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import scipy.linalg

from deeplinear.core import HypothesisError, Params
from deeplinear.geometry import distance_lower_bound, geodesic_between
from deeplinear.models import Problem
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._explicit import TIMES, plain_length
from deeplinear.theory.geometry._matrices import DEPTHS, adopt_place, draw_orthogonal, draw_positive, operator

ARRIVES = 1e-9
"""End point of a numerical geodesic."""

SIZE = 2
"""All pairs have one size, so that they share compiled code."""


@dataclasses.dataclass(frozen=True)
class Bounded:
    """Two matrices of one component, and the bend of a curve between them.

    Attributes:
        ascending: Whether the second spectrum is told in the wrong order.
    """

    start: np.ndarray
    end: np.ndarray
    bend: np.ndarray
    depth: float
    ascending: bool = False


def rotation(angle: float) -> np.ndarray:
    """A turn of the plane."""
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def _bent(one: Bounded) -> tuple[np.ndarray, np.ndarray]:
    """A curve from start to end through invertible matrices and its velocity: A exp(tK + t(1-t)Z) for d = 2."""
    generator = np.real(scipy.linalg.logm(np.linalg.solve(one.start, one.end)))
    move = generator + (1 - 2 * TIMES)[:, None, None] * one.bend
    exponents = TIMES[:, None, None] * generator + (TIMES * (1 - TIMES))[:, None, None] * one.bend
    parts = [scipy.linalg.expm_frechet(a, e) for a, e in zip(exponents, move, strict=True)]
    return one.start @ np.array([p[0] for p in parts]), one.start @ np.array([p[1] for p in parts])


BOUND = {
    "bound less distance": 1e-12,
    "bound less length of a bent curve": 1e-12,
    "bound against its definition": 1e-12,
}


def _measure_bound(instances: Sequence[Bounded]) -> list[Measured]:
    measured = []
    for one in instances:
        s, r = (np.linalg.svd(m, compute_uv=False) for m in (one.start, one.end))
        if one.ascending:
            r = r[::-1]
        if math.isinf(one.depth):
            bound = float(np.linalg.norm(np.log(s) - np.log(r)))
        else:
            bound = math.sqrt(one.depth) * float(np.linalg.norm(s ** (1 / one.depth) - r ** (1 / one.depth)))
        found = geodesic_between(one.start, one.end, one.depth)
        told = float(distance_lower_bound(one.start, one.end, one.depth))
        bent = plain_length(*_bent(one), one.depth)
        numbers = (bound - found.length, bound - bent, abs(told - bound))
        facts = {"distance": found.length, "bound": bound, "length of the bent curve": bent}
        measured.append(Measured(dict(zip(BOUND, numbers, strict=True)), facts=facts))
    return measured


def draw_near(rng: np.random.Generator, largest: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
    """Two matrices whose polar factors are turned by at most a share of half a turn."""
    turn = draw_orthogonal(rng, SIZE)
    end = turn @ rotation(rng.uniform(-largest, largest) * math.pi) @ draw_positive(rng, SIZE)
    return turn @ draw_positive(rng, SIZE), end


def _depth(rng: np.random.Generator) -> float:
    return DEPTHS[int(rng.integers(len(DEPTHS)))]


def _draw_bound(rng: np.random.Generator) -> Bounded:
    start, end = draw_near(rng, 0.6)
    return Bounded(start, end, 0.5 * rng.standard_normal((SIZE, SIZE)), _depth(rng))


def _ascending(rng: np.random.Generator) -> Bounded:
    """Equal frames: the distance is the bound, and with one spectrum in the wrong order it is more."""
    frame = draw_orthogonal(rng, SIZE)
    start, end = ((frame * np.array(values)) @ frame.T for values in ((3.0, 0.5), (2.0, 0.4)))
    return Bounded(start, end, np.zeros((SIZE, SIZE)), _depth(rng), True)


def _other_end(problem: Problem, params: Params) -> tuple[np.ndarray, np.ndarray, float]:
    """The product of layers and where a short step of gradient flow takes it."""
    place = adopt_place(problem, params)
    if place.point.shape != (SIZE, SIZE):
        raise HypothesisError("a product of two rows and two columns", float(max(place.point.shape)), SIZE)
    least = float(np.linalg.svd(place.point, compute_uv=False)[-1])
    move = operator(place.point, place.vector, place.depth)
    size = float(np.linalg.norm(move))
    if least <= 1e-6 or size <= 1e-9:
        raise HypothesisError("an invertible product that moves", min(least, size), 1e-6)
    return place.point, place.point - 0.5 * least / size * move, place.depth


def _adopt_bound(problem: Problem, params: Params) -> Bounded:
    start, end, depth = _other_end(problem, params)
    return Bounded(start, end, 0.1 * np.ones((SIZE, SIZE)), depth)


LOWER_BOUND = Check(
    id="geometry/distance-lower-bound",
    source="Theorem 2.2.2, derived",
    statement="No curve from A to B is shorter than √L ‖s(A)^(1/L) - s(B)^(1/L)‖ with sorted singular values; at "
    "infinite depth ‖ln s(A) - ln s(B)‖.",
    hypotheses=(
        Hypothesis(
            "determinants of one sign",
            lambda one: float(np.linalg.det(one.start) * np.linalg.det(one.end) <= 0),
        ),
    ),
    tolerances=BOUND,
    measure=_measure_bound,
    draw=_draw_bound,
    violations=(Violation("one spectrum in ascending order", _ascending),),
    adopt=_adopt_bound,
)

# --- The distance -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Triangle:
    """Three matrices of one component and a depth; `back` is where the way back from the second leads."""

    corners: tuple[np.ndarray, np.ndarray, np.ndarray]
    depth: float
    back: np.ndarray


DISTANCE = {
    "d(A, B) against d(B, A)": 1e-9,
    "longest side less the sum of the others": 0.0,
    "ends missed": ARRIVES,
    "distance of matrices turned and transposed": 1e-9,
    "momentum of the way back against the one that arrives": 1e-8,
}


def _measure_distance(instances: Sequence[Triangle]) -> list[Measured]:
    measured = []
    for one in instances:
        a, b, c = one.corners
        sides = [geodesic_between(*pair, one.depth) for pair in ((a, b), (b, c), (c, a))]
        back = geodesic_between(b, one.back, one.depth)
        left, right = rotation(0.7), np.diag([1.0, -1.0]) @ rotation(-1.9)
        moved = geodesic_between((left @ a @ right).T, (left @ b @ right).T, one.depth)
        lengths = [side.length for side in sides]
        # The geodesic back is the same one: it arrives with minus the momentum it would start with.
        arrived = np.asarray(sides[0].path([1.0]).momenta[-1])
        numbers = (
            abs(sides[0].length - back.length),
            2 * max(lengths) - sum(lengths),
            max(side.residual for side in (*sides, back, moved)),
            abs(moved.length - sides[0].length),
            float(np.max(np.abs(arrived + np.asarray(back.momentum)))),
        )
        measured.append(Measured(dict(zip(DISTANCE, numbers, strict=True)), facts={"d(A, B)": sides[0].length}))
    return measured


def _draw_triangle(rng: np.random.Generator) -> Triangle:
    turn = draw_orthogonal(rng, SIZE)
    angles = rng.uniform(-0.4, 0.4, 3) * math.pi
    a, b, c = (turn @ rotation(angle) @ draw_positive(rng, SIZE) for angle in angles)
    return Triangle((a, b, c), _depth(rng), a)


def _elsewhere(rng: np.random.Generator) -> Triangle:
    one = _draw_triangle(rng)
    return dataclasses.replace(one, back=1.05 * one.back)


def _adopt_triangle(problem: Problem, params: Params) -> Triangle:
    start, end, depth = _other_end(problem, params)
    return Triangle((start, end, start @ rotation(0.3)), depth, start)


IS_DISTANCE = Check(
    id="geometry/distance",
    source="Theorem 3.3.2, derived",
    statement="The length of the geodesic between two matrices is symmetric, satisfies the triangle inequality and "
    "does not change under rotations from both sides and transposition; the exponential map of its momentum leads to "
    "the end, and the way back is the same way.",
    hypotheses=(
        Hypothesis(
            "determinants of one sign",
            lambda one: float(len({float(np.sign(np.linalg.det(corner))) for corner in one.corners}) > 1),
        ),
    ),
    tolerances=DISTANCE,
    measure=_measure_distance,
    draw=_draw_triangle,
    violations=(Violation("a way back that leads elsewhere", _elsewhere),),
    adopt=_adopt_triangle,
)

CHECKS = (LOWER_BOUND, IS_DISTANCE)
