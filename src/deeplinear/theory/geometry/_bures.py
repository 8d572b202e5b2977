"""Positive definite matrices with two layers above them: the Bures–Wasserstein geometry and its geodesics."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.integrate
import scipy.linalg

from deeplinear.geometry import (
    Metric,
    bures_distance,
    bures_exponential,
    bures_geodesic,
    bures_inner,
    bures_map,
    geometric_mean,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._matrices import draw_positive, polar

EXACT = 1e-12
"""Identities between roots of matrices, relative to their size."""

INTEGRATED = 1e-10
"""What an integration at tolerance 1e-12 misses."""

MIDDLE = (0.2, 0.5, 0.9)
"""Times at which curves are compared."""


@dataclasses.dataclass(frozen=True)
class Ends:
    """Two positive definite matrices.

    Attributes:
        first: $A$.
        second: $B$.
        tangent: A symmetric tangent at $A$.
        told: What is taken for $B$ on the other side of the statements, if not $B$.
        depth: Number of layers whose metric is compared.
    """

    first: np.ndarray
    second: np.ndarray
    tangent: np.ndarray
    told: np.ndarray | None = None
    depth: int = 2

    @property
    def end(self) -> np.ndarray:
        """$B$, as the independent side sees it."""
        return self.second if self.told is None else self.told


def _draw(rng: np.random.Generator) -> Ends:
    size = 3
    tangent = rng.standard_normal((size, size))
    return Ends(draw_positive(rng, size), draw_positive(rng, size), tangent + tangent.T)


def _mistold(rng: np.random.Generator) -> Ends:
    ends = _draw(rng)
    return dataclasses.replace(ends, told=1.1 * ends.second)


def _lack(ends: Ends) -> float:
    """How far the smallest eigenvalue of the two is below zero."""
    return -min(float(np.linalg.eigvalsh(matrix)[0]) for matrix in (ends.first, ends.second))


POSITIVE: Hypothesis[Ends] = Hypothesis("positive definite matrices", _lack, -1e-12)


def _root(matrix: np.ndarray) -> np.ndarray:
    return np.real(scipy.linalg.sqrtm(matrix))


def _miss(found: object, wanted: np.ndarray) -> float:
    return float(np.max(np.abs(np.asarray(found) - wanted)) / np.max(np.abs(wanted)))


# --- The geometric mean -----------------------------------------------------------------------------------------------

RICCATI = "M A⁻¹ M, of the mean M of A and B, misses B by"
ROOTS = "A (A⁻¹ # B) and (A⁻¹ # B) A miss the roots of AB and BA by"


def _measure_mean(instances: Sequence[Ends]) -> list[Measured]:
    measured = []
    for ends in instances:
        a, b = ends.first, ends.end
        mean = np.asarray(geometric_mean(a, ends.second))
        way = np.asarray(geometric_mean(np.linalg.inv(a), ends.second))
        miss = max(_miss(a @ way, _root(a @ b)), _miss(way @ a, _root(b @ a)), _miss(bures_map(a, ends.second), way))
        measured.append(Measured({RICCATI: _miss(mean @ np.linalg.solve(a, mean), b), ROOTS: miss}))
    return measured


LEMMA_322 = Check(
    id="geometry/lemma-3.2.2",
    source="Lemma 3.2.2",
    statement="The geometric mean M = A # B of positive definite matrices solves M A⁻¹ M = B, and "
    "A (A⁻¹ # B) = (AB)^½, (A⁻¹ # B) A = (BA)^½.",
    hypotheses=(POSITIVE,),
    tolerances={RICCATI: EXACT, ROOTS: EXACT},
    measure=_measure_mean,
    draw=_draw,
    violations=(Violation("another second matrix", _mistold),),
)

# --- The geodesic -----------------------------------------------------------------------------------------------------

FORMS = "forms of the geodesic differ by"
MOTION = "the integrated equations of motion miss it by"
MOMENTUM = "the integrated momentum misses (I + tP)⁻¹P by"


def _motion(_: float, state: np.ndarray) -> np.ndarray:
    x, p = state.reshape(2, *[round((state.size // 2) ** 0.5)] * 2)
    return np.stack([x @ p + p @ x, -p @ p]).ravel()


def _measure_geodesic(instances: Sequence[Ends]) -> list[Measured]:
    measured = []
    for ends in instances:
        a, b, size = ends.first, ends.end, len(ends.first)
        found = np.asarray(bures_geodesic(a, ends.second, np.array(MIDDLE)))
        mixed = _root(a @ b) + _root(b @ a)
        one, other = _root(a), _root(b)
        turn, _ = polar(other @ one)
        start = np.asarray(bures_map(a, ends.second)) - np.eye(size)
        shot = np.asarray(bures_exponential(a, start, np.array(MIDDLE)))
        forms = _miss(shot, found)
        for t, x in zip(MIDDLE, found, strict=True):
            factor = (1 - t) * one + t * other @ turn
            forms = max(forms, _miss(x, t**2 * b + (1 - t) ** 2 * a + t * (1 - t) * mixed), _miss(x, factor @ factor.T))
        run = scipy.integrate.solve_ivp(
            _motion, (0, MIDDLE[-1]), np.stack([a, start]).ravel(), "DOP853", rtol=1e-12, atol=1e-14
        )
        x, p = run.y[:, -1].reshape(2, size, size)
        momentum = np.linalg.solve(np.eye(size) + MIDDLE[-1] * start, start)
        residuals = {
            FORMS: forms,
            MOTION: _miss(x, found[-1]),
            MOMENTUM: float(np.max(np.abs(p - momentum)) / (1 + np.max(np.abs(momentum)))),
        }
        measured.append(Measured(residuals))
    return measured


THEOREM_323 = Check(
    id="geometry/theorem-3.2.3",
    source="Theorem 3.2.3",
    statement="The Bures–Wasserstein geodesic from A to B is t²B + (1-t)²A + t(1-t)((AB)^½ + (BA)^½), equal to "
    "(I + tP)A(I + tP) with P = A⁻¹ # B - I, image of a straight line of factors; it solves X' = XP + PX, P' = -P².",
    hypotheses=(POSITIVE,),
    tolerances={FORMS: EXACT, MOTION: INTEGRATED, MOMENTUM: INTEGRATED},
    measure=_measure_geodesic,
    draw=_draw,
    violations=(Violation("another end", _mistold),),
)

# --- Length and depth two ---------------------------------------------------------------------------------------------

LENGTH = "length of the geodesic misses the distance by"
DISTANCE = "square of the distance misses tr A + tr B - 2 tr (A^½ B A^½)^½ by"
TWICE = "metric of depth two misses twice the Bures–Wasserstein metric by"


def _measure_length(instances: Sequence[Ends]) -> list[Measured]:
    nodes, weights = np.polynomial.legendre.leggauss(32)
    measured = []
    for ends in instances:
        a, b = ends.first, ends.end
        way = np.linalg.solve(a, _root(a @ b)) - np.eye(len(a))
        length = 0.0
        for t, w in zip(0.5 + nodes / 2, weights / 2, strict=True):
            step = np.eye(len(a)) + t * way
            velocity = way @ a @ step + step @ a @ way
            covector = scipy.linalg.solve_continuous_lyapunov(step @ a @ step, velocity)
            length += w * float(np.sqrt(np.sum(velocity * covector) / 2))
        distance = float(bures_distance(a, ends.second))
        square = np.trace(a) + np.trace(b) - 2 * np.trace(_root(_root(a) @ b @ _root(a)))
        covector = scipy.linalg.solve_continuous_lyapunov(a, ends.tangent)
        wanted = float(np.sum(ends.tangent * covector))
        twice = 2 * float(bures_inner(a, ends.tangent, ends.tangent))
        deep = float(Metric(ends.depth).inner(a, ends.tangent, ends.tangent))
        size = float(np.trace(a) + np.trace(b))
        residuals = {
            LENGTH: abs(length - distance) / size**0.5,
            DISTANCE: abs(distance**2 - square) / size,
            TWICE: max(abs(twice - wanted), abs(deep - wanted)) / wanted,
        }
        measured.append(Measured(residuals, facts={"distance": distance}))
    return measured


BURES_DISTANCE = Check(
    id="geometry/bures-distance",
    source="Section 3.2",
    statement="The geodesic is as long as the Bures–Wasserstein distance, with square tr A + tr B - 2 tr (A^½BA^½)^½; "
    "on positive definite matrices the metric of two layers is twice the Bures–Wasserstein metric.",
    hypotheses=(POSITIVE, Hypothesis("two layers", lambda ends: abs(ends.depth - 2))),
    tolerances={LENGTH: EXACT, DISTANCE: EXACT, TWICE: EXACT},
    measure=_measure_length,
    draw=_draw,
    violations=(
        Violation("three layers", lambda rng: dataclasses.replace(_draw(rng), depth=3)),
        Violation("another end", _mistold),
    ),
)

CHECKS = (LEMMA_322, THEOREM_323, BURES_DISTANCE)
