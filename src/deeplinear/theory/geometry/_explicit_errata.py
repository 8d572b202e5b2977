"""A printed geodesic that is none, and matrices for which its hypothesis was said to hold."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from deeplinear.geometry import geodesic_between, rotation_chord
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._explicit import (
    CRITICAL,
    TIMES,
    Pair,
    draw_crossed,
    first_variation,
    polar_apart,
)
from deeplinear.theory.geometry._matrices import ROUNDING, draw_orthogonal, draw_positive, polar

COUNTEREXAMPLE = np.diag([4.0, 1.0]), np.array([[2.5, 1.5], [1.5, 2.5]])
"""Positive definite, so of equal polar factors, but not commuting: the printed curve between them is no geodesic."""

CHORD = {
    "the layers on the line are balanced": 1e-12,
    "the curve is the product of the layers on the line, and ends at B": 1e-11,
    "the direction of the line is not horizontal by, against the library": 1e-10,
    "between commuting matrices: first variation of the action": CRITICAL,
    "length of the geodesic less that of the curve": 0.0,
    "length of the curve less that of the line": 0.0,
}


def _line(pair: Pair, times: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The straight line between lifts: layers, first-acting first, at times, and their velocities."""
    depth = int(pair.depth)
    left, values, right_t = np.linalg.svd(pair.start)
    turned = left.T @ pair.end @ right_t.T
    others, frame = np.linalg.eigh((turned + turned.T) / 2)
    first, second = np.diag(values ** (1 / depth)), (frame * np.maximum(others, 0.0) ** (1 / depth)) @ frame.T
    t = times[:, None, None]
    layers = [(1 - t) * first + t * second for _ in range(depth)]
    moves = [second - first + 0 * t for _ in range(depth)]
    for parts in (layers, moves):
        parts[0], parts[-1] = parts[0] @ right_t, left @ parts[-1]
    return layers, moves


def _defect(layers: list[np.ndarray], moves: list[np.ndarray]) -> float:
    """Distance of a tangent from the image of C ↦ (W_{L:l+1}ᵀ C W_{l-1:1}ᵀ), by least squares."""
    depth, size = len(layers), layers[0].shape[-1]
    columns = []
    for k in range(size * size):
        covector = np.zeros(size * size)
        covector[k] = 1.0
        parts = []
        for layer in range(depth):
            above, below = np.eye(size), np.eye(size)
            for other in layers[layer + 1 :]:
                above = other @ above
            for other in layers[:layer]:
                below = other @ below
            parts.append((above.T @ covector.reshape(size, size) @ below.T).ravel())
        columns.append(np.concatenate(parts))
    basis, tangent = np.array(columns).T, np.concatenate([move.ravel() for move in moves])
    return float(np.linalg.norm(tangent - basis @ np.linalg.lstsq(basis, tangent, rcond=None)[0]))


def _commuting(pair: Pair) -> Pair:
    """The spectrum of the end, doubled, in the frame of the start."""
    left, _, right_t = np.linalg.svd(pair.start)
    return Pair(pair.start, (left * 2 * np.linalg.svd(pair.end, compute_uv=False)) @ right_t, pair.depth)


def _measure_chord(pairs: Sequence[Pair]) -> list[Measured]:
    measured = []
    for pair in pairs:
        depth = int(pair.depth)
        layers, _ = _line(pair, TIMES)
        transposed = [np.swapaxes(layer, 1, 2) for layer in layers]
        laws = [np.max(np.abs(transposed[k + 1] @ layers[k + 1] - layers[k] @ transposed[k])) for k in range(depth - 1)]
        product = layers[0]
        for layer in layers[1:]:
            product = layer @ product
        # Where the polar factors differ, the line leads to the nearest matrix for which they do not.
        end = _line(pair, np.ones(1))[0][0][0]
        for layer in _line(pair, np.ones(1))[0][1:]:
            end = layer[0] @ end
        curve = rotation_chord(pair.start, end, depth)
        points, velocities = np.asarray(curve.points(TIMES)), np.asarray(curve.velocities(TIMES))
        beginning, moving = _line(pair, np.zeros(1))
        defect = _defect([layer[0] for layer in beginning], [move[0] for move in moving])
        straight = _commuting(pair)
        other = rotation_chord(straight.start, straight.end, depth)
        geodesic = geodesic_between(pair.start, end, depth)
        numbers = (
            float(max(laws)),
            max(float(np.max(np.abs(points - product))), float(np.max(np.abs(end - pair.end)))),
            abs(defect - curve.defect),
            first_variation(np.asarray(other.points(TIMES)), np.asarray(other.velocities(TIMES)), depth),
            geodesic.length - curve.length,
            curve.length - curve.line,
        )
        facts = {
            "defect": defect,
            "length of the geodesic": geodesic.length,
            "length of the printed curve": curve.length,
            "length of the line above": curve.line,
        }
        printed = first_variation(points, velocities, depth)
        measured.append(Measured(dict(zip(CHORD, numbers, strict=True)), printed=printed, facts=facts))
    return measured


def _turned(rng: np.random.Generator) -> Pair:
    """Polar factors that differ."""
    pair = draw_crossed(rng)
    turn = np.array([[math.cos(0.2), -math.sin(0.2)], [math.sin(0.2), math.cos(0.2)]])
    return dataclasses.replace(pair, end=pair.end @ turn)


def _commutator(pair: Pair) -> float:
    one, other = polar(pair.start)[1], polar(pair.end)[1]
    return float(np.linalg.norm(one @ other - other @ one))


THEOREM = Check(
    id="geometry/theorem-3.4.2",
    source="Theorem 3.4.2, part 2",
    statement="Between A = UΣVᵀ and B = URVᵀ with positive definite R the curve U((1-t)Σ^(1/L) + tR^(1/L))^L Vᵀ is the "
    "product of a straight line of balanced layers. It is a geodesic where Σ and R commute; elsewhere the line is not "
    "horizontal, and the curve longer than the geodesic.",
    hypotheses=(
        Hypothesis("equal polar factors", lambda pair: polar_apart(pair.start, pair.end), 1e-9),
        Hypothesis("positive factors that do not commute", lambda pair: 1e-3 - _commutator(pair)),
    ),
    tolerances=CHORD,
    measure=_measure_chord,
    draw=draw_crossed,
    violations=(Violation("polar factors that differ", _turned),),
    printed="If Ũ = UQ and Ṽ = VQ, the geodesic between A and B is ℓ(UΣ^(1/N), ŨΣ̃^(1/N)Qᵀ) "
    "ℓ(Σ^(1/N), QΣ̃^(1/N)Qᵀ)^(N-2) ℓ(Σ^(1/N)Vᵀ, QΣ̃^(1/N)Ṽᵀ).",
    printed_tolerance=1e-6,
)

# --- Symmetric matrices -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Symmetric:
    """Two symmetric matrices, definite of one sign, and two that are not definite."""

    first: np.ndarray
    second: np.ndarray
    mixed: tuple[np.ndarray, np.ndarray]


SYMMETRIC = {
    "polar factors of matrices definite of one sign differ by": ROUNDING,
    "polar factor against the sign of the eigenvalues": 1e-10,
}


def _measure_symmetric(instances: Sequence[Symmetric]) -> list[Measured]:
    measured = []
    for one in instances:
        signs = []
        for matrix in one.mixed:
            values, frame = np.linalg.eigh(matrix)
            signs.append(float(np.linalg.norm(polar(matrix)[0] - (frame * np.sign(values)) @ frame.T)))
        numbers = (polar_apart(one.first, one.second), max(signs))
        measured.append(Measured(dict(zip(SYMMETRIC, numbers, strict=True)), printed=polar_apart(*one.mixed)))
    return measured


def _draw_symmetric(rng: np.random.Generator) -> Symmetric:
    size = int(rng.integers(2, 4))
    sign = rng.choice([-1.0, 1.0])
    mixed = []
    for _ in range(2):
        frame = draw_orthogonal(rng, size)
        values = np.exp(rng.uniform(-1, 1, size)) * np.append(-1.0, np.ones(size - 1))
        mixed.append((frame * values) @ frame.T)
    return Symmetric(sign * draw_positive(rng, size), sign * draw_positive(rng, size), (mixed[0], mixed[1]))


def _opposite(rng: np.random.Generator) -> Symmetric:
    one = _draw_symmetric(rng)
    return dataclasses.replace(one, second=-one.second)


REMARK = Check(
    id="geometry/remark-3.4.3",
    source="Remark 3.4.3",
    statement="Symmetric matrices satisfy the condition on rotations (equal polar factors) if they are definite of one "
    "sign; the polar factor of a symmetric matrix is the sign of its eigenvalues in their frame, which for matrices "
    "that are not definite differs from one to another.",
    hypotheses=(Hypothesis("symmetric matrices", lambda one: float(np.max(np.abs(one.first - one.first.T))), 1e-12),),
    tolerances=SYMMETRIC,
    measure=_measure_symmetric,
    draw=_draw_symmetric,
    violations=(Violation("definite matrices of opposite signs", _opposite),),
    printed="A and B satisfy this right-left rotation condition if they are both symmetric.",
    printed_tolerance=1e-9,
)

CHECKS = (THEOREM, REMARK)
