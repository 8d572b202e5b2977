"""The Riccati equation of two layers, and the eigensystem of its matrix."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from deeplinear.exact import correlations_of, eigensystem, flow_matrix, riccati_field, stacked
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.exact._two_layers import (
    RICCATI,
    Two,
    adopt_two,
    another_task,
    coloured,
    draw_two,
    each,
    orthogonal,
    unequal,
)

FIELD = {"field of the layers against FX + XF − X², relative": 1e-12}


def _weights_field(two: Two) -> np.ndarray:
    """Derivative of QQᵀ by the gradient flow of the layers."""
    error = two.target - two.second @ two.first @ two.sxx
    moved = np.concatenate([(two.second.T @ error).T, error @ two.first.T])
    return moved @ two.factor.T + two.factor @ moved.T


def measure_field(two: Two) -> Measured:
    found = riccati_field(correlations_of(stacked(two.params), two.widths[0]), two.task, two.lam).matrix
    wanted = _weights_field(two)
    scale = np.max(np.abs(flow_matrix(two.task, two.lam))) * np.sum(two.factor**2) + np.sum(two.factor**2) ** 2
    return Measured({next(iter(FIELD)): float(np.max(np.abs(found - wanted))) / float(scale)})


LEMMA_B1 = Check(
    id="exact/lemma-4.1",
    source="Lemmas 4.1 and B.1",
    statement="For λ-balanced layers and white inputs X = QQᵀ moves by FX + XF − X², F = [[−λ/2, Σᵀ], [Σ, λ/2]].",
    hypotheses=RICCATI,
    tolerances=FIELD,
    measure=each(measure_field),
    draw=draw_two,
    violations=(
        Violation("layers that are not λ-balanced", unequal),
        Violation("coloured inputs", coloured),
        Violation("another task", lambda rng: another_task(draw_two(rng))),
    ),
    adopt=adopt_two,
)


EIGEN = {"entries of |PᵀP − I|": 1e-13, "PLPᵀ against F, relative": 1e-13}


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Task and λ of the matrix F, and the λ its eigensystem is made for."""

    target: np.ndarray
    lam: float
    told: float


def _draw_matrix(rng: np.random.Generator) -> Matrix:
    shape = [(3, 3), (2, 4), (4, 2)][rng.integers(3)]
    left, right = orthogonal(rng, shape[0])[:, :2], orthogonal(rng, shape[1])[:, :2]
    values = [rng.uniform(0.1, 3.0, 2), np.full(2, 1.5), np.array([1.0, 0.0]), np.zeros(2)][rng.integers(4)]
    lam = float(rng.choice([0.0, 1e-12, -1e-12, 0.5, -7.0, 1e6, -1e6]))
    return Matrix(left * values @ right.T, lam, lam)


def _measure_eigensystem(instances: Sequence[Matrix]) -> list[Measured]:
    measured = []
    for instance in instances:
        system = eigensystem(instance.target, instance.told)
        values, vectors = np.asarray(system.values), np.asarray(system.vectors)
        out, inp = instance.target.shape
        half = instance.lam / 2
        matrix = np.block([[-half * np.eye(inp), instance.target.T], [instance.target, half * np.eye(out)]])
        apart = np.max(np.abs(vectors.T @ vectors - np.eye(inp + out)))
        misfit = np.max(np.abs(vectors * values @ vectors.T - matrix)) / max(1.0, np.max(np.abs(matrix)))
        measured.append(Measured(dict(zip(EIGEN, (float(apart), float(misfit)), strict=True))))
    return measured


LEMMA_42 = Check(
    id="exact/lemma-4.2",
    source="Lemmas 4.2 and B.3",
    statement=(
        "F = PLPᵀ with the values ±s_λ, s_λ = √(s² + λ²/4), and −λ/2 on the complement of V or λ/2 on that of U, for "
        "every task and every λ."
    ),
    hypotheses=(Hypothesis("the eigensystem is made for λ", lambda i: abs(i.lam - i.told)),),
    tolerances=EIGEN,
    measure=_measure_eigensystem,
    draw=_draw_matrix,
    violations=(Violation("an eigensystem for −λ", lambda rng: Matrix(rng.normal(size=(2, 4)), 1.0, -1.0)),),
)

CHECKS: tuple[Check, ...] = (
    LEMMA_B1,
    LEMMA_42,
)
