"""Trained balanced two-layer networks for large λ."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from deeplinear.exact import large_lambda_limit, recovered_correlations
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.exact._convergence import FUNNEL, INVERTED, ROUNDING, SQUARE, matrix

LARGE = {
    "large block below |λ| times a projection, relative to it": ROUNDING,
    "large block above it by more than s²/|λ|, relative to λ": ROUNDING,
    "small block above s²/|λ|, relative to it": 1e-10,  # λ times rounding over s²/λ, for λ up to a thousand
    "small block below it by more than s⁴/|λ|³, relative to it": 1e-10,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Lazy:
    """A target, λ, and the share of the target that has been learned."""

    target: np.ndarray
    lam: float
    share: float = 1.0


def _measure_large(cases: Sequence[Lazy]) -> list[Measured]:
    measured = []
    for case in cases:
        u, s, vt = np.linalg.svd(case.target, full_matrices=False)
        size = abs(case.lam)
        there = recovered_correlations(case.share * case.target, case.lam)
        leading = large_lambda_limit(case.target, case.lam)
        turned = [vt @ np.asarray(there.input) @ vt.T, u.T @ np.asarray(there.output) @ u]
        small, large = (np.diag(turned[0]), np.diag(turned[1]))[:: 1 if case.lam > 0 else -1]
        over = large - size
        under = s**2 / size - small
        numbers = (
            float(np.max(-over)) / size,
            float(np.max(over - np.asarray(leading.large_bound))) / size,
            float(np.max(-under / (s**2 / size))),
            float(np.max((under - np.asarray(leading.small_bound)) / (s**2 / size))),
        )
        measured.append(Measured(dict(zip(LARGE, numbers, strict=True))))
    return measured


SIZES = (1.0, 10.0, 1e3)
"""Of λ."""


def _draw_lazy(rng: np.random.Generator, sizes: Sequence[float] = SIZES) -> Lazy:
    inp, _, out = (SQUARE, FUNNEL, INVERTED)[rng.integers(3)]
    size = float(rng.choice(sizes))
    return Lazy(matrix(rng, out, inp, rng.uniform(0.3, 2.5, min(inp, out))), float(rng.choice([-1, 1])) * size)


def _learned_too_far(rng: np.random.Generator) -> Lazy:
    """The bounds with the singular values of the target notice 1.5 of it in modes with s < √1.25 |λ|."""
    return dataclasses.replace(_draw_lazy(rng, SIZES[1:]), share=1.5)


TRAINED_FULLY: Hypothesis[Lazy] = Hypothesis("the target has been learned", lambda c: abs(c.share - 1))

THEOREM_C4 = Check(
    id="exact/theorem-c4",
    source="Theorem C.4, with bounds",
    statement=(
        "For λ > 0 the trained layers have 0 ≤ s₂² − λ ≤ s²/λ and 0 ≤ s²/λ − s₁² ≤ s⁴/λ³ in every mode, so that W₂W₂ᵀ "
        "tends to λUUᵀ and W₁ᵀW₁ to V S² Vᵀ/λ; for λ < 0 the layers change places."
    ),
    hypotheses=(TRAINED_FULLY, Hypothesis("λ ≠ 0", lambda c: float(c.lam == 0))),
    tolerances=LARGE,
    version=2,
    measure=_measure_large,
    draw=_draw_lazy,
    violations=(Violation("a target learned to 150 per cent", _learned_too_far),),
)

STRAY = {"distance of s₁² from |λ| beyond s²/|λ|, relative to |λ|": ROUNDING}


def _measure_stray(cases: Sequence[Lazy]) -> list[Measured]:
    measured = []
    for case in cases:
        size = abs(case.lam)
        _, s, vt = np.linalg.svd(case.target, full_matrices=False)
        squares = np.diag(vt @ np.asarray(recovered_correlations(case.share * case.target, case.lam).input) @ vt.T)
        measured.append(
            Measured(
                dict.fromkeys(STRAY, float(np.max(abs(squares - size) - s**2 / size)) / size),
                printed=float(np.max(abs(squares - s**2 / size))) / size,
            )
        )
    return measured


ERRATUM_EQUATION_164 = Check(
    id="exact/erratum-equation-164",
    source="Equation 164",
    statement="For λ → −∞ the squared strengths of the first layer tend to |λ|, from which they differ by ≤ s²/|λ|.",
    hypotheses=(TRAINED_FULLY, Hypothesis("λ < 0", lambda c: float(not c.lam < 0))),
    tolerances=STRAY,
    measure=_measure_stray,
    draw=lambda rng: dataclasses.replace(_draw_lazy(rng), lam=-float(rng.choice([10.0, 1e3]))),
    violations=(Violation("λ > 0", lambda rng: dataclasses.replace(_draw_lazy(rng), lam=1e3)),),
    printed="(√(λ² + 4S²) − λ)/2 → S²/|λ| = −λ as λ → −∞.",
    printed_tolerance=1e-2,
)

CHECKS: tuple[Check, ...] = (
    THEOREM_C4,
    ERRATUM_EQUATION_164,
)
