"""The Riccati equation of two layers: where the print is wrong, as far as it can be evaluated."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from deeplinear.exact import flow_matrix
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.exact._balance import DECAYED, KEPT, draw_any, measure_conserved
from deeplinear.theory.exact._closed_forms import (
    AGAINST_FLOW,
    DECAYING,
    NOT_WHITE,
    THEOREM_43,
    THEOREM_B5,
    draw_conditioned,
    measure_block,
    measure_decaying,
)
from deeplinear.theory.exact._riccati import FIELD, measure_field
from deeplinear.theory.exact._two_layers import (
    EARLY,
    MOMENTS,
    PLAIN,
    RICCATI,
    SQUARE,
    Two,
    another_task,
    draw_two,
    each,
    flow_factors,
    missed,
    unequal,
)


def _from_overlaps(two: Two, t: float, first: np.ndarray) -> np.ndarray:
    """The block form of a network without complement, with `first` in place of W₁ in B and C."""
    u, values, right_t = np.linalg.svd(two.task)
    v, speed = right_t.T, np.hypot(values, two.lam / 2)
    h = np.sign(two.lam) * np.sqrt((speed - values) / (speed + values))
    less, more = (1 - h) / np.sqrt(1 + h**2), (1 + h) / np.sqrt(1 + h**2)
    b = two.second.T @ u * more + first @ v * less
    c = two.second.T @ u * less - first @ v * more
    grow, decay = np.exp(speed * t), np.exp(-speed * t)
    top = v @ ((less * grow)[:, None] * b.T - (more * decay)[:, None] * c.T) / 2
    bottom = u @ ((more * grow)[:, None] * b.T + (less * decay)[:, None] * c.T) / 2
    middle = np.eye(len(b)) + b * ((grow**2 - 1) / (4 * speed)) @ b.T + c * ((1 - decay**2) / (4 * speed)) @ c.T
    outer = np.concatenate([top, bottom])
    return outer @ np.linalg.solve(middle, outer.T)


def _measure_overlaps(instances: Sequence[Two]) -> list[Measured]:
    measured = []
    for two, run in zip(instances, flow_factors(instances), strict=True):
        pairs = [(t, q @ q.T) for t, q in zip(MOMENTS, run, strict=True)]
        correct, printed = (
            max(missed(_from_overlaps(two, t, first), wanted) for t, wanted in pairs)
            for first in (two.first, two.first.T)
        )
        measured.append(Measured(dict(zip(AGAINST_FLOW, [correct], strict=True)), printed=printed))
    return measured


ERRATUM_OVERLAPS = Check(
    id="exact/erratum-overlaps",
    source="Equations 10 to 12, 64 and 65",
    statement="B = W₂ᵀU(g + hg) + W₁V(g − hg) and C = W₂ᵀU(g − hg) − W₁V(g + hg).",
    hypotheses=(
        *RICCATI,
        EARLY,
        Hypothesis("square network", lambda two: float(max(two.widths) - min(two.widths))),
    ),
    tolerances=AGAINST_FLOW,
    measure=_measure_overlaps,
    draw=lambda rng: draw_two(rng, SQUARE),
    violations=(Violation("another task", lambda rng: another_task(draw_two(rng, SQUARE))),),
    printed="B and C have W₁ᵀV in place of W₁V, which fits square networks only, and is wrong there.",
    printed_tolerance=1e-6,
    version=2,
)

ERRATUM_COMPLEMENT = Check(
    id="exact/erratum-complement",
    source="Theorem 4.3, equation 15 (also 58, 60, 62, 75 to 77)",
    statement="The factor of DDᵀ in A is (e^{2λ⊥t} − 1)/(2λ⊥).",
    hypotheses=(
        *THEOREM_43.hypotheses,
        Hypothesis("λ is not 0", lambda two: 0.1 - abs(two.lam)),
        Hypothesis("unequal outer widths", lambda two: float(two.widths[0] == two.widths[2])),
    ),
    tolerances=AGAINST_FLOW,
    measure=functools.partial(measure_block, printed=True),
    draw=lambda rng: draw_two(rng, scales=(-2.0, -0.5, 0.5, 2.0)),
    violations=(NOT_WHITE,),
    printed="the factor of DDᵀ is (e^{λ⊥t} − 1)/λ⊥ with λ⊥ = ±λ/2.",
    printed_tolerance=1e-6,
)


def _measure_transposed(two: Two) -> Measured:
    """Q with W₂ᵀ in place of W₂, where its shape allows it."""
    error = two.target - two.second @ two.first @ two.sxx
    mistaken = np.concatenate([two.first.T, two.second.T])
    moved = np.concatenate([(two.second.T @ error).T, (error @ two.first.T).T])
    matrix, x = np.asarray(flow_matrix(two.task, two.lam)), mistaken @ mistaken.T
    gap = moved @ mistaken.T + mistaken @ moved.T - (matrix @ x + x @ matrix - x @ x)
    return dataclasses.replace(measure_field(two), printed=float(np.max(np.abs(gap)) / np.max(np.abs(x)) ** 2))


ERRATUM_LOWER_BLOCK = Check(
    id="exact/erratum-lower-block",
    source="Lemma B.1, equations 23 and 26",
    statement="The lower block of Q is W₂, so that QQᵀ has the blocks W₁ᵀW₁, W₂W₁ and W₂W₂ᵀ.",
    hypotheses=(
        *RICCATI,
        Hypothesis("as many outputs as hidden units", lambda two: abs(two.widths[1] - two.widths[2])),
    ),
    tolerances=FIELD,
    measure=each(_measure_transposed),
    draw=draw_two,
    violations=(Violation("layers that are not λ-balanced", unequal),),
    printed="the lower block of Q is W₂ᵀ; for it the Riccati equation does not hold.",
    printed_tolerance=1e-6,
)

ERRATUM_DECAYING_FORM = Check(
    id="exact/erratum-decaying-form",
    source="Theorem B.5, equation 77",
    statement=(
        "In the form with decaying exponentials the C-term has (1 − e^{−2s_λt})/(4s_λ) and the D-term "
        "(e^{2λ⊥t} − 1)/(2λ⊥)."
    ),
    hypotheses=THEOREM_B5.hypotheses,
    tolerances=DECAYING,
    measure=each(functools.partial(measure_decaying, printed=True)),
    draw=draw_conditioned,
    violations=THEOREM_B5.violations,
    printed=(
        "with the transposes mended so that shapes fit, the C-term has (1 − e^{−s_λt})/(4s_λ) and the D-term "
        "(e^{λ⊥t/2} − 1)/λ⊥."
    ),
    printed_tolerance=1e-6,
)

INVERSE = {"derivative of A⁻¹ against −A⁻¹A′A⁻¹, relative": 1e-8}


@dataclasses.dataclass(frozen=True)
class Line:
    """The line A + tA′ of matrices at t = 0, and the A′ that is told."""

    matrix: np.ndarray
    slope: np.ndarray
    told: np.ndarray


def _measure_inverse(instances: Sequence[Line]) -> list[Measured]:
    measured = []
    for line in instances:
        h = 1e-3

        def quotient(step: float, line: Line = line) -> np.ndarray:
            ahead, behind = (np.linalg.inv(line.matrix + sign * step * line.slope) for sign in (1, -1))
            return (ahead - behind) / (2 * step)

        found = (4 * quotient(h / 2) - quotient(h)) / 3
        inverse = np.linalg.inv(line.matrix)
        wanted = -inverse @ line.told @ inverse
        numbers = dict(zip(INVERSE, [missed(found, wanted)], strict=True))
        measured.append(Measured(numbers, printed=missed(found, -wanted)))
    return measured


def _draw_line(rng: np.random.Generator) -> Line:
    matrix = np.eye(3) + 0.2 * rng.normal(size=(3, 3))
    slope = rng.normal(size=(3, 3))
    return Line(matrix + matrix.T, slope, slope)


ERRATUM_INVERSE = Check(
    id="exact/erratum-inverse",
    source="Equation 87",
    statement="The derivative of A⁻¹ is −A⁻¹A′A⁻¹.",
    hypotheses=(
        Hypothesis("well-conditioned A", lambda line: float(np.linalg.cond(line.matrix)) - 100.0),
        Hypothesis("A′ is its derivative", lambda line: float(np.max(np.abs(line.slope - line.told)))),
    ),
    tolerances=INVERSE,
    measure=_measure_inverse,
    draw=_draw_line,
    violations=(
        Violation("another slope", lambda rng: dataclasses.replace(_draw_line(rng), told=rng.normal(size=(3, 3)))),
    ),
    printed="the derivative of A⁻¹ is A⁻¹A′A⁻¹.",
    printed_tolerance=1e-6,
)

ERRATUM_PROOF_OF_A2 = Check(
    id="exact/erratum-proof-of-a2",
    source="Theorem A.2, first line of the proof",
    statement="What is constant is W₂ᵀW₂ − W₁W₁ᵀ, as the theorem says.",
    hypotheses=(PLAIN, Hypothesis("as many outputs as hidden units", lambda two: abs(two.widths[1] - two.widths[2]))),
    tolerances=KEPT,
    measure=functools.partial(measure_conserved, printed=True),
    draw=draw_any,
    violations=(DECAYED,),
    printed="the proof differentiates W₂W₂ᵀ − W₁W₁ᵀ, which is not constant.",
    printed_tolerance=1e-6,
)

CHECKS = (
    ERRATUM_OVERLAPS,
    ERRATUM_COMPLEMENT,
    ERRATUM_LOWER_BLOCK,
    ERRATUM_DECAYING_FORM,
    ERRATUM_INVERSE,
    ERRATUM_PROOF_OF_A2,
)
"""Errors of the print that can be measured."""
