"""Equations of motion that are printed with a slip: the Hamiltonian of Equation 3.37, the sign in Equation 3.4."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from deeplinear.core import xp
from deeplinear.geometry import Metric, geodesic_field
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._matrices import Place, adopt_place, draw_place

QUOTIENT = 1e-8
"""Relative error allowed to gradients by difference quotients."""


def spectral_weights(values: np.ndarray, depth: float) -> np.ndarray:
    """Eigenvalues of the operator for all pairs of singular values, by its definition as a sum or an integral."""
    if math.isinf(depth):
        nodes, weights = np.polynomial.legendre.leggauss(32)
        inner, outer, weights = 0.5 + nodes / 2, 0.5 - nodes / 2, weights / 2
    else:
        layers = np.arange(1, int(depth) + 1)
        inner, outer, weights = (layers - 1) / depth, (depth - layers) / depth, np.ones(len(layers))
    return (values[:, None] ** (2 * outer) * weights) @ (values[:, None] ** (2 * inner)).T


def quadratic(point: np.ndarray, vector: np.ndarray, depth: float, *, inverse: bool = False) -> float:
    """½⟨Z, A(Z)⟩, or the same with the inverse of the operator."""
    left, values, right_t = np.linalg.svd(point)
    weights = spectral_weights(values, depth)
    return 0.5 * float(np.sum((1 / weights if inverse else weights) * (left.T @ vector @ right_t.T) ** 2))


def slope(point: np.ndarray, vector: np.ndarray, depth: float, *, inverse: bool = False) -> np.ndarray:
    """Gradient of that in the point, by difference quotients of fourth order."""
    step = 1e-3 * float(np.linalg.svd(point, compute_uv=False)[-1])
    found = np.zeros(point.size)
    for k in range(point.size):
        move = np.zeros(point.size)
        move[k] = step
        one, two = (
            quadratic(point + h * move.reshape(point.shape), vector, depth, inverse=inverse)
            - quadratic(point - h * move.reshape(point.shape), vector, depth, inverse=inverse)
            for h in (1, 2)
        )
        found[k] = (8 * one - two) / (12 * step)
    return found.reshape(point.shape)


def condition(place: Place) -> float:
    """Ratio of the extreme singular values of a square point; infinite for others."""
    rows, columns = place.point.shape
    values = np.linalg.svd(place.point, compute_uv=False)
    return float(values[0] / values[-1]) if rows == columns and values[-1] > 0 else math.inf


FULL: Hypothesis[Place] = Hypothesis("square and of full rank: ratio of singular values", condition, 1e3)
DEEP: Hypothesis[Place] = Hypothesis("at least two layers", lambda place: 2 - place.depth)

FORCE = "force misses minus the gradient of the Hamiltonian by"


def motion(place: Place) -> tuple[np.ndarray, np.ndarray]:
    """Velocity and force of the library at a point, the vector being the momentum."""
    velocity, force = geodesic_field(Metric(place.depth), xp.asarray(place.point), xp.asarray(place.vector))
    return np.asarray(velocity), np.asarray(force)


def _measure_hamiltonian(instances: Sequence[Place]) -> list[Measured]:
    measured = []
    for place in instances:
        _, force = motion(place)
        size = max(float(np.max(np.abs(force))), 1e-300)
        right, printed = (
            float(np.max(np.abs(force + slope(place.point, place.vector, place.independent_depth, inverse=inverse))))
            / size
            for inverse in (False, True)
        )
        measured.append(Measured({FORCE: right}, printed=printed))
    return measured


def mistold(rng: np.random.Generator) -> Place:
    """The independent side is told one layer more."""
    place = draw_place(rng)
    depth = place.depth if not math.isinf(place.depth) else 4
    return dataclasses.replace(place, depth=depth, told=depth + 1.0)


EQUATION_337 = Check(
    id="geometry/equation-3.37",
    source="Equation 3.37",
    statement="The Hamiltonian of the geodesics is ½⟨P, A(P)⟩, with the operator itself; the equations of motion of "
    "Theorem 3.3.2 are those of this one.",
    hypotheses=(FULL, DEEP),
    tolerances={FORCE: QUOTIENT},
    measure=_measure_hamiltonian,
    draw=draw_place,
    violations=(Violation("another depth", mistold),),
    printed="The Hamiltonian is ½⟨P, A⁻¹(P)⟩.",
    printed_tolerance=1e-3,
    adopt=adopt_place,
)

LAGRANGE = "d/dt ∂L/∂ẋ misses ∂L/∂x, for L = ½g(ẋ, ẋ), by"


def _measure_lagrangian(instances: Sequence[Place]) -> list[Measured]:
    measured = []
    for place in instances:
        velocity, force = motion(place)
        gradient = slope(place.point, velocity, place.independent_depth, inverse=True)
        size = max(float(np.max(np.abs(force))), 1e-300)
        right, printed = (float(np.max(np.abs(force - sign * gradient))) / size for sign in (1, -1))
        measured.append(Measured({LAGRANGE: right}, printed=printed))
    return measured


EQUATION_34 = Check(
    id="geometry/equation-3.4",
    source="Equation 3.4",
    statement="Extremals of ∫ L(x, ẋ) dt satisfy d/dt ∂L/∂ẋ = +∂L/∂x; for half the squared speed ∂L/∂ẋ is momentum.",
    hypotheses=(FULL, DEEP),
    tolerances={LAGRANGE: QUOTIENT},
    measure=_measure_lagrangian,
    draw=draw_place,
    violations=(Violation("another depth", mistold),),
    printed="d/dt ∂L/∂ẋ = -∂L/∂x.",
    printed_tolerance=1e-3,
    adopt=adopt_place,
)

CHECKS = (EQUATION_337, EQUATION_34)
