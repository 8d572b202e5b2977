"""Where balanced two-layer networks end: their limit, and the similarities that are read from it."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from deeplinear.exact import late_rate, limit, similarity_in, similarity_out
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.exact._convergence import (
    BALANCED,
    FULL_RANK,
    FUNNEL,
    INVERTED,
    NARROW,
    REACHABLE,
    ROUNDING,
    SQUARE,
    Case,
    distance,
    draw_case,
    factorised,
    matrix,
    moved,
    rotation,
)
from deeplinear.theory.exact._recovery import adopt_case, blocks_apart

ENDED = 45.0
"""Time constants after which nothing is left of a mode, to rounding."""
LIMIT = {"distance of all blocks from the limit, relative to it": 1e-12}


def _measure_limit(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case in cases:
        ending = limit(case.target, case.lam)
        reached = moved(case, ENDED / float(late_rate(case.target, case.lam)))
        size = max(1.0, float(np.max(np.abs(np.asarray(ending.matrix)))))
        measured.append(Measured(dict.fromkeys(LIMIT, blocks_apart(reached, ending) / size)))
    return measured


def _mirrored(rng: np.random.Generator) -> Case:
    """A start with a mode of a diagonal task reversed: zeros are exact, so that rounding does not help out."""
    strengths = np.array([2.0, 1.2, rng.uniform(0.5, 0.8)])
    first, second = factorised(np.eye(3), rng.uniform(0.2, 1.0, 3), np.eye(3), 0.0, np.eye(3))
    return Case(first, second, np.diag(strengths * np.array([1.0, 1.0, -1.0])), 0.0)


THEOREM_C3 = Check(
    id="exact/theorem-c3",
    source="Theorem C.3",
    statement=(
        "If the start overlaps with all modes of a target of full rank Σ = USVᵀ, the flow ends at W₂W₁ = Σ with "
        "W₁ᵀW₁ = V S₁² Vᵀ and W₂W₂ᵀ = U S₂² Uᵀ."
    ),
    hypotheses=(BALANCED, NARROW, FULL_RANK, REACHABLE),
    tolerances=LIMIT,
    measure=_measure_limit,
    draw=draw_case,
    violations=(Violation("a mode that the start holds reversed, λ = 0", _mirrored),),
    adopt=adopt_case,
)

OPEN_END = {"distance of the ends from two starts, target of full rank": 1e-9}


@dataclasses.dataclass(frozen=True, eq=False)
class Twins:
    """Two starts of one relative scale and one target."""

    one: Case
    other: Case


def _apart(twins: Twins, target: np.ndarray, time: float) -> float:
    ends = [moved(dataclasses.replace(case, target=target), time) for case in (twins.one, twins.other)]
    return blocks_apart(*ends)


def _measure_open_end(cases: Sequence[Twins]) -> list[Measured]:
    measured = []
    for twins in cases:
        target = twins.one.target
        u, s, vt = np.linalg.svd(target, full_matrices=False)
        weaker = (u * np.where(np.arange(len(s)) < len(s) - 1, s, 0.0)) @ vt
        time = ENDED / max(float(late_rate(target, twins.one.lam)), 1e-2)
        measured.append(
            Measured(dict.fromkeys(OPEN_END, _apart(twins, target, time)), printed=_apart(twins, weaker, time))
        )
    return measured


def _draw_twins(rng: np.random.Generator) -> Twins:
    funnel = bool(rng.integers(2))
    case = draw_case(rng, architectures=(FUNNEL if funnel else INVERTED,), lams=(-2.0 if funnel else 2.0,), weakest=0.8)
    out, inp = case.target.shape
    first, second = factorised(
        rotation(rng, out)[:, :2], rng.uniform(0.2, 1.0, 2), rotation(rng, inp)[:, :2], case.lam, rotation(rng, 2)
    )
    return Twins(case, dataclasses.replace(case, first=first, second=second))


def _weak_twins(rng: np.random.Generator) -> Twins:
    twins = _draw_twins(rng)
    out, inp = twins.one.target.shape
    target = matrix(rng, out, inp, [1.5])
    one, other = (dataclasses.replace(case, target=target) for case in (twins.one, twins.other))
    return Twins(one, other)


ERRATUM_LIMIT_RANK = Check(
    id="exact/erratum-limit-rank",
    source="Theorem C.3 and equation 151",
    statement=(
        "Where λ⊥ > 0 the limit of Theorem C.3 needs a target of the rank of the hidden width, since the factor that "
        "must vanish is exp((λ⊥ − s_λ) t); with a smaller rank the large layer ends where its start sends it."
    ),
    hypotheses=(
        Hypothesis("λ-balanced layers", lambda t: max(BALANCED.residual(t.one), BALANCED.residual(t.other)), ROUNDING),
        Hypothesis("λ⊥ > 0", lambda t: float(not t.one.across > 0)),
        Hypothesis("target of full rank", lambda t: FULL_RANK.residual(t.one)),
    ),
    tolerances=OPEN_END,
    measure=_measure_open_end,
    draw=_draw_twins,
    violations=(Violation("a target of rank one", _weak_twins),),
    printed="W₂W₂ᵀ and W₁ᵀW₁ converge to one limit, given by the target, whatever its rank.",
    printed_tolerance=1e-3,
)

SIMILARITY = {"distance of the two similarity matrices, relative to them": 1e-10}


@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
    """A trained network by its target and λ, with inputs and outputs, samples in columns."""

    target: np.ndarray
    lam: float
    inputs: np.ndarray
    outputs: np.ndarray


def _draw_trained(rng: np.random.Generator) -> Trained:
    case = draw_case(rng)
    inputs = rng.normal(size=(case.widths[0], 6))
    return Trained(case.target, case.lam, inputs, case.target @ inputs)


def _measure_similarity(cases: Sequence[Trained]) -> list[Measured]:
    measured = []
    for case in cases:
        ending = limit(case.target, case.lam)
        one = np.asarray(similarity_in(ending, case.inputs))
        other = np.asarray(similarity_out(ending, case.outputs))
        measured.append(Measured(dict.fromkeys(SIMILARITY, distance(one, other) / float(np.max(np.abs(one))))))
    return measured


def _noisy(rng: np.random.Generator) -> Trained:
    case = _draw_trained(rng)
    return dataclasses.replace(case, outputs=case.outputs + 0.1 * rng.normal(size=case.outputs.shape))


SIMILARITIES = Check(
    id="exact/similarity-identity",
    source="Section 5, representations",
    statement=(
        "At the end of training on outputs that the target realises, Y = ΣX, the similarity of hidden representations "
        "read from the inputs, Xᵀ W₁ᵀW₁ X, and from the outputs, Yᵀ (W₂W₂ᵀ)⁺ Y, are equal for every λ."
    ),
    hypotheses=(
        Hypothesis(
            "outputs that the target realises",
            lambda c: float(np.linalg.norm(c.outputs - c.target @ c.inputs) / np.linalg.norm(c.outputs)),
            ROUNDING,
        ),
    ),
    tolerances=SIMILARITY,
    measure=_measure_similarity,
    draw=_draw_trained,
    violations=(Violation("noise in the outputs", _noisy),),
)

CAPTION = {"distance of W₁ᵀW₁ from V S Vᵀ": ROUNDING, "distance of W₂W₂ᵀ from U S Uᵀ": ROUNDING}


def _measure_caption(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case in cases:
        u, s, vt = np.linalg.svd(case.target)
        ending = limit(case.target, case.lam)
        inputs, outputs = (vt.T * s) @ vt, (u * s) @ u.T
        gaps = (distance(ending.input, inputs), distance(ending.output, outputs))
        swapped = min(distance(ending.input, outputs), distance(ending.output, inputs))
        measured.append(Measured(dict(zip(CAPTION, gaps, strict=True)), printed=swapped))
    return measured


ERRATUM_SIMILARITIES = Check(
    id="exact/erratum-similarities",
    source="Caption of Figure 4 and appendix E.6",
    statement="At λ = 0 the similarity of the inputs is V S Vᵀ and that of the outputs U S Uᵀ.",
    hypotheses=(
        Hypothesis("λ = 0", lambda c: abs(c.lam)),
        Hypothesis("as many inputs as outputs", lambda c: abs(c.widths[0] - c.widths[2])),
    ),
    tolerances=CAPTION,
    measure=_measure_caption,
    draw=lambda rng: draw_case(rng, architectures=(SQUARE,), lams=(0.0,)),
    violations=(Violation("λ = 0.5", lambda rng: draw_case(rng, architectures=(SQUARE,), lams=(0.5,))),),
    printed="It is U S Uᵀ for the inputs and V S Vᵀ for the outputs.",
    printed_tolerance=1e-2,
)

CHECKS: tuple[Check, ...] = (
    THEOREM_C3,
    ERRATUM_LIMIT_RANK,
    SIMILARITIES,
    ERRATUM_SIMILARITIES,
)
