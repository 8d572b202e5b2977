"""Representations of balanced two-layer networks: recovery, limits, similarity and the tangent kernel."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import HypothesisError, Params
from deeplinear.exact import (
    Correlations,
    aligned_to,
    correlations_of,
    kernel_change,
    kernel_distance,
    kernel_distance_full,
    large_lambda_limit,
    late_rate,
    limit,
    recover,
    recovered_correlations,
    similarity_in,
    similarity_out,
    stacked,
    tangent_kernel,
)
from deeplinear.models import DeepLinear, Problem, SquaredDistance, lambda_estimate
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.exact._convergence import (
    BALANCED,
    FILLED,
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
    draw_filled,
    factorised,
    matrix,
    moved,
    rotation,
    unbalanced,
)

_recovered = jax.jit(recovered_correlations)
_layers = jax.jit(recover)
_limit = jax.jit(limit)
_aligned = jax.jit(aligned_to)
_distance = jax.jit(kernel_distance)
_kernel = jax.jit(tangent_kernel)
_change = jax.jit(kernel_change, static_argnames=("hidden", "as_printed"))
_large = jax.jit(large_lambda_limit)


def blocks_apart(here: Correlations, there: Correlations) -> float:
    """Largest entry of the differences of all blocks."""
    return max(distance(a, b) for a, b in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True))


def adopt_case(problem: Problem, params: Params) -> Case:
    """Two layers with a squared distance from a target, as on whitened inputs."""
    fits = isinstance(problem.model, DeepLinear) and isinstance(problem.loss, SquaredDistance) and len(params) == 2
    if not fits:
        raise HypothesisError("two layers and the squared distance from a target", 1.0, 0.0)
    if float(problem.l2) > 0:
        raise HypothesisError("no penalty on the weights", float(problem.l2), 0.0)
    lam = float(lambda_estimate(params).lam[0])
    first, second = (np.asarray(layer) for layer in params)
    target = np.asarray(problem.loss.target)  # pyright: ignore[reportAttributeAccessIssue]
    return Case(first, second, target, lam if abs(lam) > ROUNDING else 0.0)


# ---- Recovery --------------------------------------------------------------------------------------------------------

TIMES = (0.4, 1.5)
ORDER = 24
"""Terms of the series of one step of the flow."""
RECOVERY = {
    "correlations from the product, times its smallest singular value": 1e-10,  # some steps of a series to rounding
    "layers up to a rotation, times the smallest singular value": 1e-10,
}


def flown(case: Case, t: float) -> tuple[np.ndarray, np.ndarray]:
    """Layers after a time of gradient flow, by power series in time: the oracle of this part, for any layers."""
    first, second, left = case.first, case.second, t
    while left > 0:
        w1, w2, error = (np.zeros((ORDER + 1, *m.shape)) for m in (first, second, case.target))
        w1[0], w2[0] = first, second
        for k in range(ORDER):
            error[k] = (case.target if k == 0 else 0) - np.einsum("jab,jbc->ac", w2[: k + 1], w1[k::-1])
            w1[k + 1] = np.einsum("jba,jbc->ac", w2[: k + 1], error[k::-1]) / (k + 1)
            w2[k + 1] = np.einsum("jab,jcb->ac", error[: k + 1], w1[k::-1]) / (k + 1)
        last = max(float(np.max(np.abs(w[-1]))) for w in (w1, w2))
        step = min(left, float((1e-18 / max(last, 1e-300)) ** (1 / ORDER)))
        powers = step ** np.arange(ORDER + 1)
        first, second, left = np.tensordot(powers, w1, 1), np.tensordot(powers, w2, 1), left - step
    return first, second


def _measure_recovery(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case in cases:
        worst = [0.0, 0.0]
        for time in TIMES:
            w1, w2 = map(jnp.asarray, flown(case, time))
            product = w2 @ w1
            weakest = min(1.0, float(np.linalg.svd(product, compute_uv=False)[min(product.shape) - 1]))
            true = correlations_of(stacked((w1, w2)), case.widths[0])
            worst[0] = max(worst[0], weakest * blocks_apart(_recovered(product, case.lam), true))
            turned = _aligned(_layers(product, case.lam), (w1, w2))
            worst[1] = max(worst[1], weakest * max(distance(a, b) for a, b in zip(turned, (w1, w2), strict=True)))
        measured.append(Measured(dict(zip(RECOVERY, worst, strict=True))))
    return measured


THEOREM_52 = Check(
    id="exact/theorem-5.2",
    source="Theorems 5.2 and C.2",
    statement=(
        "Along the flow of λ-balanced layers a product of full rank W₂W₁ = USVᵀ determines W₁ᵀW₁ = V(s_λ − λ/2)Vᵀ and "
        "W₂W₂ᵀ = U(s_λ + λ/2)Uᵀ, and both layers up to one rotation of the hidden basis."
    ),
    hypotheses=(BALANCED, NARROW),
    tolerances=RECOVERY,
    measure=_measure_recovery,
    draw=draw_case,
    violations=(Violation("layers that are not balanced", lambda rng: unbalanced(rng, draw_case(rng))),),
    adopt=adopt_case,
)


# ---- The end of training ---------------------------------------------------------------------------------------------

ENDED = 45.0
"""Time constants after which nothing is left of a mode, to rounding."""
LIMIT = {"distance of all blocks from the limit, relative to it": 1e-12}


def _measure_limit(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case in cases:
        ending = _limit(case.target, case.lam)
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
        ending = _limit(case.target, case.lam)
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
        ending = _limit(case.target, case.lam)
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


# ---- Large λ ---------------------------------------------------------------------------------------------------------

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
        there = _recovered(case.share * case.target, case.lam)
        leading = _large(case.target, case.lam)
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


def _draw_lazy(rng: np.random.Generator) -> Lazy:
    inp, _, out = (SQUARE, FUNNEL, INVERTED)[rng.integers(3)]
    size = float(rng.choice([1.0, 10.0, 1e3]))
    return Lazy(matrix(rng, out, inp, rng.uniform(0.3, 2.5, min(inp, out))), float(rng.choice([-1, 1])) * size)


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
    measure=_measure_large,
    draw=_draw_lazy,
    violations=(
        Violation("a target learned to 150 per cent", lambda rng: dataclasses.replace(_draw_lazy(rng), share=1.5)),
    ),
)

STRAY = {"distance of s₁² from |λ| beyond s²/|λ|, relative to |λ|": ROUNDING}


def _measure_stray(cases: Sequence[Lazy]) -> list[Measured]:
    measured = []
    for case in cases:
        size = abs(case.lam)
        _, s, vt = np.linalg.svd(case.target, full_matrices=False)
        squares = np.diag(vt @ np.asarray(_recovered(case.share * case.target, case.lam).input) @ vt.T)
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


# ---- The tangent kernel ----------------------------------------------------------------------------------------------

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
        full = kernel_distance_full(*(_kernel(end, case.inputs) for end in ends))
        fast = _distance(*ends)
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
    change = np.asarray(_kernel(after, inputs) - _kernel(before, inputs))
    side = case.widths[2] if case.lam > 0 else case.widths[0]  # so that a violation is measured, not refused
    ours, printed = (
        np.asarray(_change(before.product, after.product, case.lam, inputs, hidden=side, as_printed=flag))
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
            far.append(float(_distance(start, _limit(case.target, there.lam))))
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
        there = _recovered(case.target, case.lam)
        kernel = np.asarray(_kernel(there, inputs)) / abs(case.lam)
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
    THEOREM_52,
    THEOREM_C3,
    ERRATUM_LIMIT_RANK,
    SIMILARITIES,
    ERRATUM_SIMILARITIES,
    THEOREM_C4,
    ERRATUM_EQUATION_164,
    FAST_DISTANCE,
    ERRATUM_KERNEL_CHANGE,
    FOURTH_POWER,
    ERRATUM_KERNEL_IDENTITY,
)
