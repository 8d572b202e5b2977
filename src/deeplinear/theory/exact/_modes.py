r"""Singular modes of networks whose start is aligned with the task: they learn apart from each other."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.integrate

from deeplinear.core import Params, random, xp
from deeplinear.exact import (
    correlations_of,
    eigensystem,
    layer_mode,
    learning_time,
    mode_progress,
    mode_progress_lazy,
    mode_progress_printed,
    mode_progress_rich,
    mode_strength,
    propagate,
    reversal_mode,
    stacked,
)
from deeplinear.models import DeepLinear, TaskAligned, lambda_estimate
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation

SHAPES = ((3, 3, 3), (4, 2, 2))
"""Widths of the networks."""

MOMENTS = np.array([0.0, 0.1, 0.7, 1.5])
"""Times at which flows are compared."""

FLOW = 1e-9
"""Flows by DOP853 at rtol 1e-12, over times of order one: their errors are some 1e-11."""

CLOSED = 1e-12
"""Two closed forms of one thing."""

MET = 1e-9
"""Alignment and balance, relative to the layers."""

FLOW_PART = "modes and flow, over the target"
PROPAGATOR_PART = "modes and propagator, over the target"


def _flow(params: Params, target: np.ndarray) -> list[np.ndarray]:
    """Layers of the whole network along gradient flow, each with a leading axis of moments, by SciPy."""
    layers = [np.asarray(layer) for layer in params]
    cuts = np.cumsum([layer.size for layer in layers])[:-1]

    def field(_: float, y: np.ndarray) -> np.ndarray:
        now = [part.reshape(w.shape) for part, w in zip(np.split(y, cuts), layers, strict=True)]
        before = [np.eye(target.shape[1])]
        for layer in now:
            before.append(layer @ before[-1])
        outer, speeds = target - before[-1], []
        for layer, right in zip(now[::-1], before[-2::-1], strict=True):
            speeds.append((outer @ right.T).ravel())
            outer = layer.T @ outer
        return np.concatenate(speeds[::-1])

    start = np.concatenate([layer.ravel() for layer in layers])
    run = scipy.integrate.solve_ivp(
        field, (0, MOMENTS[-1]), start, method="DOP853", rtol=1e-12, atol=1e-14, t_eval=MOMENTS
    )
    parts = np.split(run.y.T, cuts, axis=1)
    return [part.reshape(len(MOMENTS), *w.shape) for part, w in zip(parts, layers, strict=True)]


def _product(layers: list[np.ndarray]) -> np.ndarray:
    product = layers[0]
    for layer in layers[1:]:
        product = layer @ product
    return product


# ---- Two layers ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Aligned:
    """Two layers and a task.

    Attributes:
        target: Σ.
        params: Both layers.
        lam: λ.
    """

    target: np.ndarray
    params: Params
    lam: float

    @property
    def modes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Left vectors, strengths of the task, right vectors (transposed), and the start in this basis."""
        left, values, right = np.linalg.svd(self.target, full_matrices=False)
        return left, values, right, left.T @ np.asarray(self.params[1] @ self.params[0]) @ right.T


def _not_aligned(instance: Aligned) -> float:
    start = instance.modes[-1]
    return float(np.abs(start - np.diag(np.diag(start))).max() / np.abs(instance.target).max())


def _not_balanced(instance: Aligned) -> float:
    found = lambda_estimate(instance.params)
    size = max(float(np.sum(np.asarray(layer) ** 2)) for layer in instance.params)
    return max(float(found.frobenius[0]), abs(float(found.lam[0]) - instance.lam)) / size


ALIGNED = Hypothesis("the start has the singular vectors of the task", _not_aligned, MET)
BALANCED = Hypothesis("λ-balanced layers", _not_balanced, MET)


def _aligned(target: np.ndarray, hidden: int, strengths: np.ndarray, lam: float) -> Aligned:
    model = DeepLinear((target.shape[1], hidden, target.shape[0]))
    return Aligned(target, TaskAligned(target, strengths, lam)(model, random.key(0)), lam)


def _draw_aligned(rng: np.random.Generator) -> Aligned:
    inp, hidden, out = SHAPES[rng.integers(len(SHAPES))]
    target = rng.normal(size=(out, inp))
    return _aligned(target, hidden, rng.uniform(-2, 3, hidden), float(rng.choice([0.0, rng.uniform(-5, 5)])))


def _draw_turned(rng: np.random.Generator) -> Aligned:
    instance = _draw_aligned(rng)
    return dataclasses.replace(instance, target=instance.target + 0.5 * rng.normal(size=instance.target.shape))


def _draw_lopsided(rng: np.random.Generator) -> Aligned:
    instance = _draw_aligned(rng)
    first, second = instance.params
    return dataclasses.replace(instance, params=(1.5 * first, second / 1.5))


def _measure_aligned(instances: Sequence[Aligned]) -> list[Measured]:
    found = []
    for instance in instances:
        flow = _product(_flow(instance.params, instance.target))
        left, values, right, start = instance.modes
        strengths = np.asarray(mode_strength(MOMENTS[:, None], np.diag(start), values, instance.lam))
        product = np.einsum("ik,tk,kj->tij", left, strengths, right)
        system, factor = eigensystem(instance.target, instance.lam), stacked(instance.params)
        inp = instance.target.shape[1]
        closed = np.stack([correlations_of(propagate(factor, system, t), inp).product for t in MOMENTS])
        size = float(np.abs(instance.target).max())
        found.append(
            Measured(
                {
                    FLOW_PART: float(np.abs(product - flow).max()) / size,
                    PROPAGATOR_PART: float(np.abs(product - closed).max()) / size,
                }
            )
        )
    return found


THEOREM_51 = Check(
    id="exact/theorem-5.1",
    source="Theorem 5.1",
    statement="Two λ-balanced layers that start with the singular vectors of the task keep them, and each singular "
    "value obeys s' = 2(s̃ - s)√(s² + λ²/4): s = s₀ + γ(t)(s̃ - s₀) with one function γ in closed form.",
    hypotheses=(ALIGNED, BALANCED),
    tolerances={FLOW_PART: FLOW, PROPAGATOR_PART: CLOSED},
    measure=_measure_aligned,
    draw=_draw_aligned,
    violations=(
        Violation("a start turned away from the task", _draw_turned),
        Violation("layers that are not λ-balanced", _draw_lopsided),
    ),
)


# ---- The function gamma ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Scalar:
    """One mode.

    Attributes:
        start: s₀.
        target: s̃.
        lam: λ.
        told: Start that a limiting form is told.
    """

    start: float
    target: float
    lam: float = 0.0
    told: float = 0.0


def _columns(instances: Sequence[Scalar]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    table = np.array([(i.start, i.target, i.lam, i.told) for i in instances])
    return table[:, :1], table[:, 1:2], table[:, 2:3], table[:, 3:4]


def _measure_progress(instances: Sequence[Scalar]) -> list[Measured]:
    start, target, lam, _ = _columns(instances)
    scale = np.hypot(target, lam / 2)
    times = np.linspace(0, 5, 101) / scale
    gamma = np.asarray(mode_progress(times, start, target, lam))
    printed = np.asarray(mode_progress_printed(times, start, target, lam))
    last = np.asarray(mode_progress(1e3 / scale, start, target, lam))
    return [
        Measured(
            {
                "printed and stable form": float(np.abs(gamma[k] - printed[k]).max()),
                "γ(0)": float(abs(gamma[k, 0])),
                "largest decrease of γ": float(-np.diff(gamma[k]).min()),
                "1 - γ in the end": float(1 - last[k, 0]),
            }
        )
        for k in range(len(instances))
    ]


def _draw_progress(rng: np.random.Generator) -> Scalar:
    return Scalar(rng.uniform(-2, 3), rng.uniform(0.1, 3), float(rng.choice([-1, 1])) * 10 ** rng.uniform(-1, 1))


PROGRESS = Check(
    id="exact/theorem-5.1-progress",
    source="Theorem 5.1, equation 16",
    statement="γ rises from 0 to 1, unless λ = 0 and s₀ ≤ 0; the form with hyperbolic functions and the one without "
    "growing terms are equal.",
    hypotheses=(Hypothesis("λ ≠ 0 or s₀ > 0", lambda i: float(i.lam == 0 and i.start <= 0)),),
    tolerances={
        "printed and stable form": CLOSED,
        "γ(0)": 0.0,
        "largest decrease of γ": 0.0,
        "1 - γ in the end": 1e-15,
    },
    measure=_measure_progress,
    draw=_draw_progress,
    violations=(
        Violation("λ = 0 and a start of the wrong sign", lambda rng: Scalar(-rng.uniform(0.5, 2), rng.uniform(0.5, 2))),
    ),
)

SMALL, LARGE = np.array([1e-1, 1e-2, 1e-3]), np.array([1e2, 1e3, 1e4])
RICH_PART = "change of c in |γ - γ_rich| ≤ cλ² over two decades"
LAZY_PART = "change of c in |γ - γ_lazy| ≤ c/λ² over two decades"


def _measure_limits(instances: Sequence[Scalar]) -> list[Measured]:
    start, target, _, told = _columns(instances)
    size = np.minimum(start, target)
    late = (np.log(target / start + 1) + 5) / target  # well after the middle of the sigmoid
    times = late * np.linspace(0, 1.5, 1001)
    limit = np.asarray(mode_progress_rich(times, told, target))
    rich = []
    for lam in SMALL:
        gap = np.abs(np.asarray(mode_progress(times, start, target, lam * size)) - limit)
        rich.append(gap.max(axis=1) / lam**2)
    scale = np.maximum(start, target)
    lazy = []
    for lam in LARGE:
        times = np.linspace(0, 12, 1001) / (lam * scale)
        gap = np.abs(
            np.asarray(mode_progress(times, start, target, lam * scale))
            - np.asarray(mode_progress_lazy(times, lam * scale * np.where(start == told, 1.0, 1.1)))
        )
        lazy.append(gap.max(axis=1) * lam**2)
    changes = [np.abs(np.stack(x)[1:] / np.stack(x)[-1] - 1).max(axis=0) for x in (rich, lazy)]
    return [
        Measured({RICH_PART: float(a), LAZY_PART: float(b)}, facts={"c at λ → 0": float(c), "c at λ → ∞": float(d)})
        for a, b, c, d in zip(*changes, rich[-1], lazy[-1], strict=True)
    ]


def _draw_limits(rng: np.random.Generator) -> Scalar:
    start = 10 ** rng.uniform(-1.5, 0)
    return Scalar(start, start * 10 ** rng.uniform(0.2, 1), told=start)


EQUATION_17 = Check(
    id="exact/equation-17",
    source="equation 17",
    statement="As λ → 0, γ tends to the sigmoid of the rich regime with an error cλ², and as |λ| → ∞ to the "
    "exponential of the lazy regime with an error c/λ², uniformly in time.",
    hypotheses=(
        Hypothesis("s₀ > 0", lambda i: -i.start if i.start <= 0 else 0.0),
        Hypothesis("the limit of this start", lambda i: abs(i.told - i.start)),
    ),
    tolerances={RICH_PART: 0.02, LAZY_PART: 0.02},
    measure=_measure_limits,
    draw=_draw_limits,
    violations=(
        Violation(
            "the limits of another start and scale",
            lambda rng: (lambda i: dataclasses.replace(i, told=1.2 * i.start))(_draw_limits(rng)),
        ),
    ),
)

FAR = 1e5
"""How much larger than its target a start is that counts as large."""


def _measure_large(instances: Sequence[Scalar]) -> list[Measured]:
    start, target, lam, _ = _columns(instances)
    times = np.linspace(0, 30, 301) / start
    left = 1 - np.asarray(mode_progress(times, start, target, lam))
    hyperbola = np.abs(left - 1 / (1 + 2 * start * times)).max(axis=1)
    exponential = np.abs(left - np.exp(-2 * start * times)).max(axis=1)
    return [
        Measured({"1 - γ and 1/(1 + 2s₀t)": float(h)}, printed=float(e))
        for h, e in zip(hyperbola, exponential, strict=True)
    ]


LARGE_START = Check(
    id="exact/erratum-large-start",
    source="Appendix A.4",
    statement="At λ = 0 a start much larger than its target approaches it like a hyperbola, 1 - γ → 1/(1 + 2s₀t).",
    printed="At λ = 0 and s₀ → ∞ the approach is exponential.",
    printed_tolerance=1e-2,
    hypotheses=(
        Hypothesis("λ = 0", lambda i: abs(i.lam)),
        Hypothesis(f"s₀ at least {FAR:g} s̃", lambda i: FAR * i.target - i.start),
    ),
    tolerances={"1 - γ and 1/(1 + 2s₀t)": 3e-5},
    measure=_measure_large,
    draw=lambda rng: Scalar(FAR * 10 ** rng.uniform(0.5, 2), 10 ** rng.uniform(-0.5, 0.5)),
    violations=(
        Violation("a start of the size of the target", lambda rng: Scalar(2.0, rng.uniform(0.5, 1.5))),
        Violation("a large λ", lambda rng: Scalar(FAR, rng.uniform(0.5, 1), FAR)),
    ),
)


# ---- Reversal --------------------------------------------------------------------------------------------------------


def _draw_reversal(rng: np.random.Generator) -> Aligned:
    """A network that has learned a task, some of whose modes are then turned round."""
    target = rng.normal(size=(3, 3))
    values = np.linalg.svd(target, compute_uv=False)
    signs = np.array([-1.0, *rng.choice([-1.0, 1.0], 2)])
    return _aligned(target, 3, signs * values, float(rng.choice([0.0, 1e-3, 1.0, 3.0, -2.0])))


def _draw_lopsided_reversal(rng: np.random.Generator) -> Aligned:
    instance = _draw_reversal(rng)
    first, second = instance.params
    return dataclasses.replace(instance, params=(2.0 * first, second / 2.0))


def _measure_reversal(instances: Sequence[Aligned]) -> list[Measured]:
    found = []
    for instance in instances:
        flow = _product(_flow(instance.params, instance.target))
        left, values, right, start = instance.modes
        strengths = np.einsum("ik,tij,kj->tk", left, flow, right)
        begin = np.diag(start)
        forms = [
            reversal_mode(
                MOMENTS[:, None], np.abs(begin), values, instance.lam, reversed=begin < 0, as_printed=as_printed
            )
            for as_printed in (False, True)
        ]
        ours, printed = (float(np.abs(strengths - np.asarray(x)).max()) / float(values.max()) for x in forms)
        found.append(Measured({FLOW_PART: ours}, printed=printed))
    return found


REVERSAL = Check(
    id="exact/erratum-reversal",
    source="Appendix D.2, equations 180-185",
    statement="After a reversal each mode follows s = [s̃(b² - c²z²) - λbcz] / [4s̃_λz + b²(1-z) + c²(z - z²)], "
    "z = e^{-2s̃_λt}, and ends at s̃ if b ≠ 0.",
    printed="The middle matrix has S_λ⁻¹ for I, the numerator s̃_λ for s̃ and no cross term; the end is s̃_λ.",
    printed_tolerance=1e-3,
    hypotheses=(ALIGNED, BALANCED),
    tolerances={FLOW_PART: FLOW},
    measure=_measure_reversal,
    draw=_draw_reversal,
    violations=(Violation("layers that are not λ-balanced", _draw_lopsided_reversal),),
)


def _measure_reversal_time(instances: Sequence[Scalar]) -> list[Measured]:
    start, target, _, _ = _columns(instances)
    times = [np.asarray(learning_time(0.9, start, target, lam * target))[:, 0] for lam in (1e-6, 1e-9)]
    slopes = (times[1] - times[0]) / np.log(1e3) * target[:, 0]
    return [Measured({"slope of the time in ln(1/|λ|), times s, less 1": float(abs(s - 1))}) for s in slopes]


REVERSAL_TIME = Check(
    id="exact/reversal-time",
    source="Appendix D.2",
    statement="The time a reversed mode of strength s takes grows like ln(1/|λ|)/s as λ → 0.",
    hypotheses=(Hypothesis("a reversed mode", lambda i: abs(i.start + i.target)),),
    tolerances={"slope of the time in ln(1/|λ|), times s, less 1": 1e-5},
    measure=_measure_reversal_time,
    draw=lambda rng: (lambda s: Scalar(-s, s))(10 ** rng.uniform(-1, 1)),
    violations=(Violation("a mode that is not reversed", lambda rng: Scalar(rng.uniform(0.1, 0.5), 1.0)),),
)


# ---- Any depth -------------------------------------------------------------------------------------------------------

WIDTH = 2
DEPTHS = (3, 4, 5)


@dataclasses.dataclass(frozen=True)
class Deep:
    """A network of any depth, aligned with its task.

    Attributes:
        target: Σ.
        params: Layers.
        strengths: Strength of every layer (rows) in every mode (columns).
    """

    target: np.ndarray
    params: Params
    strengths: np.ndarray


def _deep(rng: np.random.Generator, target: np.ndarray, strengths: np.ndarray) -> Deep:
    """Layers with given strengths in the modes of the task, in random hidden bases."""
    left, _, right = np.linalg.svd(target)
    bases = [right.T, *(np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0] for _ in strengths[1:]), left]
    layers = (out @ np.diag(a) @ inp.T for inp, out, a in zip(bases, bases[1:], strengths, strict=False))
    return Deep(target, tuple(xp.asarray(layer, dtype=float) for layer in layers), strengths)


def _draw_deep(rng: np.random.Generator) -> Deep:
    depth = int(rng.choice(DEPTHS))
    target = rng.normal(size=(WIDTH, WIDTH))
    if rng.random() < 0.5:
        starts = rng.uniform(0.05, 1.5, WIDTH)
        params = TaskAligned(target, starts)(DeepLinear((WIDTH,) * (depth + 1)), random.key(0))
        return Deep(target, params, np.tile(starts ** (1 / depth), (depth, 1)))
    return _deep(rng, target, rng.choice([-1, 1], (depth, WIDTH)) * rng.uniform(0.3, 1.3, (depth, WIDTH)))


def _draw_turned_deep(rng: np.random.Generator) -> Deep:
    instance = _draw_deep(rng)
    return dataclasses.replace(instance, target=instance.target + 0.5 * rng.normal(size=(WIDTH, WIDTH)))


def _not_aligned_deep(instance: Deep) -> float:
    left, _, right = np.linalg.svd(instance.target)
    start = _product([np.asarray(layer) for layer in instance.params])
    return float(np.abs(left.T @ start @ right.T - np.diag(np.prod(instance.strengths, axis=0))).max())


def _measure_deep(instances: Sequence[Deep]) -> list[Measured]:
    found = []
    for instance in instances:
        flow = _flow(instance.params, instance.target)
        left, values, right = np.linalg.svd(instance.target)
        layers = np.asarray(layer_mode(MOMENTS, instance.strengths.T, values))
        product = np.einsum("ik,kt,kj->tij", left, np.prod(layers, axis=-1), right)
        sizes = [np.sort(np.linalg.svd(layer, compute_uv=False), axis=-1) for layer in flow]
        wanted = np.sort(np.abs(layers), axis=0).transpose(2, 1, 0)
        found.append(
            Measured(
                {
                    "product of the modes and flow": float(np.abs(product - _product(flow)).max()),
                    "layers of the modes and flow": float(np.abs(np.stack(sizes) - wanted).max()),
                }
            )
        )
    return found


DEEP_MODES = Check(
    id="exact/deep-modes",
    source="extension of Theorem 5.1 to any depth",
    statement="Layers of any number, balanced or not, that start aligned with the task stay so; the strengths of each "
    "mode obey a_l' = (s - ∏a)∏_{k≠l} a_k, for balanced layers σ' = Lσ^{2-2/L}(s - σ).",
    hypotheses=(Hypothesis("the start has the singular vectors of the task", _not_aligned_deep, MET),),
    tolerances={"product of the modes and flow": FLOW, "layers of the modes and flow": FLOW},
    measure=_measure_deep,
    draw=_draw_deep,
    violations=(Violation("a start turned away from the task", _draw_turned_deep),),
)


CHECKS = (THEOREM_51, PROGRESS, EQUATION_17, LARGE_START, REVERSAL, REVERSAL_TIME, DEEP_MODES)
"""Checks on modes."""
