"""What is printed otherwise of balanced layers and of the operator: each with the form we stand for."""

import dataclasses
import math

import numpy as np
import scipy.integrate

from deeplinear.geometry import Metric, balanced_layers
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._balance import EQUAL, STATISTICS, Sampled, draw_sampled, errors, moments
from deeplinear.theory.geometry._fibres import FULL, SIZE, TOLD, Balanced, draw_balanced
from deeplinear.theory.geometry._matrices import (
    ROUNDING,
    draw_orthogonal,
    draw_place,
    draw_spectrum,
    operator,
)
from deeplinear.theory.geometry._metric import Framed, condition, deviation, framed, times
from deeplinear.theory.network._networks import each

# --- Partial products -------------------------------------------------------------------------------------------------

PARTIAL = {"partial products against Σ^{(L−l)/L} and Σ^{(l−1)/L} between Q_L, Q_l and Q_{l−1}, Q₀, relative": 1e-11}


def _measure_partial(instance: Balanced) -> Measured:
    """Printed: Λ^{(L−l)/L} for the first and Q_l Λ^{(l−1)/L} Q₀ᵀ for the second."""
    depth, frames = instance.depth, instance.frames
    sigma = instance.strengths**depth
    ours = printed = 0.0
    for l in range(1, depth + 1):  # noqa: E741
        above = times((np.eye(SIZE), *instance.layers[l:]))
        below = times((np.eye(SIZE), *instance.layers[: l - 1]))
        ours = max(
            ours,
            deviation((frames[-1] * sigma ** ((depth - l) / depth)) @ frames[l].T, above),
            deviation((frames[l - 1] * sigma ** ((l - 1) / depth)) @ frames[0].T, below),
        )
        printed = max(
            printed,
            deviation((frames[-1] * instance.strengths ** ((depth - l) / depth)) @ frames[l].T, above),
            deviation((frames[l] * instance.strengths ** ((l - 1) / depth)) @ frames[0].T, below),
        )
    return Measured(dict(zip(PARTIAL, [ours], strict=True)), printed=printed)


def _other_frames(rng: np.random.Generator) -> Balanced:
    drawn = draw_balanced(rng)
    return dataclasses.replace(drawn, frames=(draw_orthogonal(rng, SIZE), *drawn.frames[1:]))


PARTIALS = Check(
    id="geometry/erratum-partial-products",
    source="Equations 2.6 and 2.10",
    statement=(
        "W_l = Q_lΛQ_{l−1}ᵀ for l = 1, …, L; W_{L:l+1} = Q_LΣ^{(L−l)/L}Q_lᵀ and W_{l−1:1} = Q_{l−1}Σ^{(l−1)/L}Q₀ᵀ, "
        "with Σ = Λ^L."
    ),
    hypotheses=(TOLD, FULL),
    tolerances=PARTIAL,
    measure=each(_measure_partial),
    draw=draw_balanced,
    violations=(Violation("other frames", _other_frames),),
    printed="the powers are of Λ, and the second product begins with Q_l.",
    printed_tolerance=1e-6,
)

# --- Parametrisation --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Flipped:
    """Strengths and frames, with matrices that multiply every frame from the right."""

    balanced: Balanced
    flip: np.ndarray


SAME = {"layers of Q_l and of Q_lD, with one D of signs, relative": ROUNDING}


def _measure_flipped(instance: Flipped) -> Measured:
    """Printed: different strengths and frames give different layers."""
    told = instance.balanced
    turned = tuple(frame @ instance.flip for frame in told.frames)
    one, other = balanced_layers(told.strengths, told.frames), balanced_layers(told.strengths, turned)
    apart = max(deviation(a, b) for a, b in zip(one, other, strict=True))
    frames = max(deviation(a, b) for a, b in zip(turned, told.frames, strict=True))
    return Measured(dict(zip(SAME, [apart], strict=True)), printed=frames)


def _draw_flipped(rng: np.random.Generator) -> Flipped:
    signs = np.ones(SIZE)
    signs[int(rng.integers(SIZE))] = -1
    return Flipped(draw_balanced(rng), np.diag(signs))


def _turned(rng: np.random.Generator) -> Flipped:
    drawn = draw_balanced(rng)
    drawn = dataclasses.replace(drawn, strengths=np.array([1.5, 1.0, 0.6]))
    return Flipped(dataclasses.replace(drawn, layers=drawn.told), draw_orthogonal(rng, SIZE))


PARAMETRISED = Check(
    id="geometry/erratum-parametrisation",
    source="Equation 2.7",
    statement="(Λ, Q₀, …, Q_L) ↦ W is not one to one: multiplying every Q_l by the same signs leaves the layers alone.",
    hypotheses=(
        Hypothesis("a diagonal of signs", lambda f: float(np.max(np.abs(np.abs(f.flip) - np.eye(len(f.flip)))))),
    ),
    tolerances=SAME,
    measure=each(_measure_flipped),
    draw=_draw_flipped,
    violations=(Violation("a common turn of all frames", _turned),),
    printed="the parametrisation is bijective. (Measured: how far apart frames are that give the same layers.)",
    printed_tolerance=1e-6,
)

# --- Powers and definiteness ------------------------------------------------------------------------------------------

POWERS = {
    "(XXᵀ)^{(L−l)/L} against UΣ^{2(L−l)/L}Uᵀ, relative": 1e-11,
    "(XᵀX)^{(l−1)/L} against VΣ^{2(l−1)/L}Vᵀ, relative": 1e-11,
}


def _measure_powers(instance: Framed) -> Measured:
    """Powers by repeated multiplication: the L-th power of the root is the power of the Gram matrix."""
    x, depth = instance.place.point, int(instance.place.depth)
    ours, printed = [0.0, 0.0], 0.0
    for l in range(1, depth + 1):  # noqa: E741
        for side, (gram, frame, power) in enumerate(
            ((x @ x.T, instance.left, depth - l), (x.T @ x, instance.right_t.T, l - 1))
        ):
            whole = np.linalg.matrix_power(gram, power)
            for factor in (2, 1):
                root = (frame * instance.values ** (factor * power / depth)) @ frame.T
                missed = deviation(np.linalg.matrix_power(root, depth), whole)
                if factor == 2:
                    ours[side] = max(ours[side], missed)
                else:
                    printed = max(printed, missed)
    return Measured(dict(zip(POWERS, ours, strict=True)), printed=printed)


def _draw_finite(rng: np.random.Generator) -> Framed:
    while True:
        place = draw_place(rng)
        if not math.isinf(place.depth):
            return framed(place)


def _another_spectrum(rng: np.random.Generator) -> Framed:
    drawn = _draw_finite(rng)
    return dataclasses.replace(drawn, values=1.1 * drawn.values)


FRACTIONAL = Check(
    id="geometry/erratum-fractional-powers",
    source="Equations 2.21 and 2.22",
    statement="(XXᵀ)^{(L−l)/L} = UΣ^{2(L−l)/L}Uᵀ and (XᵀX)^{(l−1)/L} = VΣ^{2(l−1)/L}Vᵀ.",
    hypotheses=(
        Hypothesis("a matrix of condition at most 1e3", lambda f: condition(f.place.point) - 1e3),
        Hypothesis("the singular value decomposition is as told", lambda f: f.missed, 1e-12),
        Hypothesis("finite depth", lambda f: float(math.isinf(f.place.depth))),
    ),
    tolerances=POWERS,
    measure=each(_measure_powers),
    draw=_draw_finite,
    violations=(Violation("other singular values", _another_spectrum),),
    printed="the exponents have no factor of 2.",
    printed_tolerance=1e-6,
)


@dataclasses.dataclass(frozen=True)
class Singular:
    """A diagonal matrix with vanishing entries, a depth, and the rank that is told."""

    values: np.ndarray
    depth: int
    rank: int


SEMIDEFINITE = {
    "smallest eigenvalue below zero by, relative": ROUNDING,
    "dimension of the kernel against (d − r)²": 0.0,
    "operator against its definition, relative": 1e-11,
}


def _measure_semidefinite(instance: Singular) -> Measured:
    """Printed: positive definite at every matrix; the number of its eigenvalues that are not positive."""
    size, metric, x = len(instance.values), Metric(instance.depth), np.diag(instance.values)
    values = np.linalg.eigvalsh(np.asarray(metric.dense(x)))
    kernel = int(np.sum(values <= 1e-12 * values[-1]))
    vector = np.random.default_rng(0).standard_normal((size, size))
    numbers = (
        float(-values[0] / values[-1]),
        float(abs(kernel - (size - instance.rank) ** 2)),
        deviation(metric.apply(x, vector), operator(x, vector, instance.depth)),
    )
    return Measured(dict(zip(SEMIDEFINITE, numbers, strict=True)), printed=float(kernel))


def _draw_singular(rng: np.random.Generator) -> Singular:
    rank = int(rng.integers(1, SIZE))
    values = np.where(np.arange(SIZE) < rank, draw_spectrum(rng, SIZE), 0.0)
    return Singular(values, int(rng.choice([2, 3, 5])), rank)


DEFINITE = Check(
    id="geometry/erratum-definite",
    source="Theorem 2.2.1, positive definiteness",
    statement=(
        "A_L is positive definite where X has full rank; at rank r it is positive semi-definite with a kernel of "
        "dimension (d − r)², L ≥ 2."
    ),
    hypotheses=(
        Hypothesis("at least two layers", lambda s: float(2 - s.depth)),
        Hypothesis("the rank is as told", lambda s: float(abs(int(np.sum(s.values > 0)) - s.rank))),
        Hypothesis("lower rank", lambda s: float(s.rank + 1 - len(s.values))),
    ),
    tolerances=SEMIDEFINITE,
    measure=each(_measure_semidefinite),
    draw=_draw_singular,
    violations=(
        Violation(
            "full rank, told as lower",
            lambda rng: dataclasses.replace(_draw_singular(rng), values=draw_spectrum(rng, SIZE)),
        ),
    ),
    printed="A_L is positive definite at every X. (Measured: eigenvalues that are not positive.)",
    printed_tolerance=0.5,
)

# --- Random layers and times ------------------------------------------------------------------------------------------


def _measure_relative(instance: Sampled) -> Measured:
    """Printed: layers of small variance are close to balanced, effectively on the balanced manifold."""
    _, squares, layers = moments(instance)
    size = instance.first.shape[1]
    ratio = float(np.mean(squares) / np.mean(layers))
    facts = {"relative imbalance": ratio, "predicted": 2 * (size + 1) / (2 * size + 1)}
    return Measured(dict(zip(STATISTICS, errors(instance), strict=True)), printed=ratio, facts=facts)


RELATIVE = Check(
    id="geometry/erratum-relative-imbalance",
    source="Remark 2.1.3",
    statement=(
        "Independent Gaussian layers of any scale are not balanced relative to their size: E‖G‖²/E‖WWᵀ‖² is "
        "2(d + 1)/(2d + 1) > 1."
    ),
    hypotheses=(EQUAL,),
    tolerances=STATISTICS,
    measure=each(_measure_relative),
    draw=draw_sampled,
    violations=(Violation("layers of different variances", lambda rng: draw_sampled(rng, 1.3)),),
    printed="May be read as: layers of small variance begin close to balance, relative to their size. "
    "(Measured: the ratio.)",
    printed_tolerance=0.1,
)


@dataclasses.dataclass(frozen=True)
class Backwards:
    """Two equal scalar layers w with the target told, followed back in time for a share of the time of escape."""

    start: float
    target: float = 1.0
    share: float = 0.999


ESCAPE = {"w² against 1/(1 − (1 − 1/w₀²)e^{2t}) going back, relative": 1e-6}


def _measure_backwards(instance: Backwards) -> Measured:
    """Printed: the solution exists for all times; at the time of escape it has left every bound."""
    rest = 1 - 1 / instance.start**2
    end = -0.5 * math.log(rest) * instance.share
    run = scipy.integrate.solve_ivp(
        lambda t, w: (w[0] ** 2 - instance.target) * w, (0, end), [instance.start], "DOP853", rtol=1e-12, atol=1e-14
    )
    found, wanted = float(run.y[0, -1]) ** 2, 1 / (1 - rest * math.exp(2 * end))
    grown = found / instance.start**2
    return Measured(dict(zip(ESCAPE, [abs(found / wanted - 1)], strict=True)), printed=grown, facts={"growth": grown})


ALL_TIMES = Check(
    id="geometry/erratum-all-times",
    source="Theorem 2.1.1",
    statement=(
        "The invariants are constant as long as the solution exists; back in time it may escape: two equal scalar "
        "layers w₀ > 1 with target 1 do at t = ½ ln(1 − 1/w₀²)."
    ),
    hypotheses=(
        Hypothesis("a start above 1", lambda b: 1 - b.start),
        Hypothesis("the target is 1", lambda b: abs(b.target - 1)),
    ),
    tolerances=ESCAPE,
    measure=each(_measure_backwards),
    draw=lambda rng: Backwards(float(rng.uniform(1.1, 2.0))),
    violations=(Violation("another target", lambda rng: Backwards(float(rng.uniform(1.1, 2.0)), 1.1)),),
    printed="the flow exists for all t in ℝ. (Measured: growth of w² within 0.999 of the time of escape.)",
    printed_tolerance=10.0,
)

CHECKS = (PARTIALS, PARAMETRISED, FRACTIONAL, DEFINITE, RELATIVE, ALL_TIMES)
