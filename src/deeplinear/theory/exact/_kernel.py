"""The tangent kernel of balanced two-layer networks: distances, and its change for large λ."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from deeplinear.exact import (
    correlations_of,
    kernel_change,
    kernel_distance,
    kernel_distance_full,
    limit,
    recovered_correlations,
    stacked,
    tangent_kernel,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.exact._convergence import (
    BALANCED,
    FILLED,
    FULL_RANK,
    FUNNEL,
    INVERTED,
    NARROW,
    ROUNDING,
    Case,
    distance,
    draw_case,
    draw_filled,
    factorised,
    moved,
)

FAST = {"fast distance against Kronecker products": ROUNDING}


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """Two networks and inputs, samples in columns."""

    one: Case
    other: Case
    inputs: np.ndarray


def white(rng: np.random.Generator, inp: int, samples: int) -> np.ndarray:
    """Inputs of covariance I."""
    return np.sqrt(samples) * np.linalg.qr(rng.normal(size=(samples, inp)))[0].T


def _draw_pair(rng: np.random.Generator) -> Pair:
    one, other = (draw_case(rng, architectures=(INVERTED,)) for _ in range(2))
    return Pair(one, other, white(rng, 2, 5))


def _measure_fast(cases: Sequence[Pair]) -> list[Measured]:
    measured = []
    for case in cases:
        ends = [correlations_of(stacked(c.params), c.widths[0]) for c in (case.one, case.other)]
        full = kernel_distance_full(*(tangent_kernel(end, case.inputs) for end in ends))
        fast = kernel_distance(*ends)
        measured.append(Measured(dict.fromkeys(FAST, abs(float(full - fast))), facts={"distance": float(fast)}))
    return measured


def _coloured(rng: np.random.Generator) -> Pair:
    case = _draw_pair(rng)
    return dataclasses.replace(case, inputs=np.array([[1.0], [0.3]]) * case.inputs)


FAST_DISTANCE = Check(
    id="exact/kernel-distance",
    source="Section 5, kernel distance",
    statement=(
        "On white inputs the distance of two tangent kernels is that of the forms d_o tr(aa') + tr a tr m' + tr a' tr "
        "m + d_i tr(mm') of a = W₁ᵀW₁ and m = W₂W₂ᵀ, and does not depend on the data."
    ),
    hypotheses=(
        Hypothesis(
            "white inputs",
            lambda c: distance(c.inputs @ c.inputs.T / c.inputs.shape[1], np.eye(c.inputs.shape[0])),
            ROUNDING,
        ),
    ),
    tolerances=FAST,
    measure=_measure_fast,
    draw=_draw_pair,
    violations=(Violation("inputs that are not white", _coloured),),
)

LEADING = {"powers of ten by which the error falls per decade of λ, less 2": 0.02}


def _stretched(case: Case, lam: float) -> Case:
    """The case with the same product at another λ."""
    u, s, vt = np.linalg.svd(case.second @ case.first, full_matrices=False)
    hidden = case.widths[1]
    first, second = factorised(u[:, :hidden], s[:hidden], vt[:hidden].T, lam, np.eye(hidden))
    return Case(first, second, case.target, lam)


def _leading_errors(case: Case, inputs: np.ndarray) -> tuple[float, float]:
    """Relative error of the leading change of the kernel, ours and as printed, in the middle of learning."""
    before = correlations_of(stacked(case.params), case.widths[0])
    after = moved(case, 1 / abs(case.lam))
    change = np.asarray(tangent_kernel(after, inputs) - tangent_kernel(before, inputs))
    side = case.widths[2] if case.lam > 0 else case.widths[0]  # so that a violation is measured, not refused
    ours, printed = (
        np.asarray(kernel_change(before.product, after.product, case.lam, inputs, hidden=side, as_printed=flag))
        for flag in (False, True)
    )
    size = np.linalg.norm(change)
    return float(np.linalg.norm(change - ours) / size), float(np.linalg.norm(change - printed) / size)


def _measure_leading(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case in cases:
        inputs = white(np.random.default_rng(case.widths[0]), case.widths[0], case.widths[0] + 1)
        sign = float(np.sign(case.lam))
        near, far = (_leading_errors(_stretched(case, sign * size), inputs) for size in (50.0, 500.0))
        fall = float(np.log10(near[0] / far[0]))
        facts = {"error at |λ| = 50": near[0], "error at |λ| = 500": far[0], "as printed at 500": far[1]}
        measured.append(Measured(dict.fromkeys(LEADING, abs(fall - 2)), printed=far[1], facts=facts))
    return measured


def _turning(rng: np.random.Generator) -> Case:
    return draw_case(rng, architectures=(FUNNEL,), lams=(-2.0,))


ERRATUM_KERNEL_CHANGE = Check(
    id="exact/erratum-kernel-change",
    source="Theorem C.5",
    statement=(
        "If the large layer fills its side, K(t) − K(0) = (1/|λ|){I ⊗ Xᵀ(WᵀW − W₀ᵀW₀)X + (WWᵀ − W₀W₀ᵀ) ⊗ XᵀX} up to "
        "O(|λ|⁻³) at every time; where λ⊥ > 0 there is no such expansion."
    ),
    hypotheses=(BALANCED, NARROW, FILLED),
    tolerances=LEADING,
    measure=_measure_leading,
    draw=lambda rng: draw_filled(rng, (0.0, 1.0)),
    violations=(Violation("a funnel with λ < 0", _turning),),
    printed="One of the two terms is left out: (1/λ) I ⊗ Xᵀ(WᵀW − W₀ᵀW₀)X for λ → ∞, the other for λ → −∞.",
    printed_tolerance=0.05,
)

FOURTH = {"powers of ten by which the distance falls per decade of λ, less 4": 0.02}


def _measure_fourth(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case in cases:
        sign = float(np.sign(case.lam))
        far = []
        for size in (200.0, 2000.0):
            there = _stretched(case, sign * size)
            start = correlations_of(stacked(there.params), case.widths[0])
            far.append(float(kernel_distance(start, limit(case.target, there.lam))))
        fall = float(np.log10(far[0] / far[1]))
        facts = {"distance at |λ| = 200": far[0], "distance at |λ| = 2000": far[1]}
        measured.append(Measured(dict.fromkeys(FOURTH, abs(fall - 4)), facts=facts))
    return measured


FOURTH_POWER = Check(
    id="exact/kernel-fourth-power",
    source="Theorem C.5, lazy side",
    statement="If the large layer fills its side, the kernel distance between start and end of training falls as λ⁻⁴.",
    hypotheses=(BALANCED, NARROW, FILLED, FULL_RANK),
    tolerances=FOURTH,
    measure=_measure_fourth,
    draw=lambda rng: draw_filled(rng, (0.0, 1.0)),
    violations=(Violation("a funnel with λ < 0", _turning),),
)

IDENTITY = {"distance of K/|λ| from I ⊗ XᵀX over its bound 2 s² ‖X‖²/λ²": 1.0 + 1e-6}  # rounding, λ = 1000


def _measure_identity(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case in cases:
        inp, _, out = case.widths
        inputs = white(np.random.default_rng(inp), inp, inp + 2)
        there = recovered_correlations(case.target, case.lam)
        kernel = np.asarray(tangent_kernel(there, inputs)) / abs(case.lam)
        bound = 2 * float(case.strengths[0]) ** 2 * inputs.shape[1] / case.lam**2
        gap = np.linalg.norm(kernel - np.kron(np.eye(out), inputs.T @ inputs), 2)
        share = np.trace(kernel) / np.linalg.norm(kernel) / np.sqrt(len(kernel))
        measured.append(Measured(dict.fromkeys(IDENTITY, float(gap / bound)), printed=1 - float(share)))
    return measured


ERRATUM_KERNEL_IDENTITY = Check(
    id="exact/erratum-kernel-identity",
    source="Section 5, after Theorem 5.2",
    statement=(
        "If the large layer fills its side, K/|λ| tends to I ⊗ XᵀX, within 2s²‖X‖²/λ²; on white inputs this is a "
        "multiple of the identity only for as many samples as inputs."
    ),
    hypotheses=(BALANCED, NARROW, FILLED),
    tolerances=IDENTITY,
    measure=_measure_identity,
    draw=lambda rng: draw_filled(rng, (1.0, 3.0)),
    violations=(Violation("a funnel with λ < 0", lambda rng: draw_case(rng, architectures=(FUNNEL,), lams=(-50.0,))),),
    printed="The kernel becomes equivalent to the identity matrix as λ → ∞.",
    printed_tolerance=1e-3,
)

CHECKS: tuple[Check, ...] = (
    FAST_DISTANCE,
    ERRATUM_KERNEL_CHANGE,
    FOURTH_POWER,
    ERRATUM_KERNEL_IDENTITY,
)
