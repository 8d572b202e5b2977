"""The Riccati equation of two layers, its solutions, and what the balance of the layers has to do with it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import scipy.integrate

from deeplinear.exact import (
    block_form,
    correlations_of,
    decaying_form,
    eigensystem,
    flow_matrix,
    function_space_field,
    generic_form,
    propagate,
    riccati_field,
    stacked,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.exact._two_layers import (
    BALANCED,
    EARLY,
    FLOW,
    FUNNEL,
    MOMENTS,
    PLAIN,
    RICCATI,
    SCALES,
    SQUARE,
    SQUARE_B,
    TIMES,
    Two,
    adopt_two,
    another_task,
    coloured,
    draw_two,
    each,
    evaluated,
    flow_factors,
    imbalance,
    missed,
    orthogonal,
    solved,
    unequal,
)

EPS = float(np.finfo(float).eps)

# ---- Balance ---------------------------------------------------------------------------------------------------------

KEPT = {"change of W₂ᵀW₂ − W₁W₁ᵀ, relative": 1e-12}


def measure_conserved(instances: Sequence[Two], printed: bool = False) -> list[Measured]:
    measured = []
    for two, run in zip(instances, flow_factors(instances), strict=True):
        first, second = np.swapaxes(run[:, : two.widths[0]], 1, 2), run[:, two.widths[0] :]
        scale = np.sum(two.factor**2)
        outer = first @ np.swapaxes(first, 1, 2)
        balance = np.swapaxes(second, 1, 2) @ second - outer
        changed = None
        if printed:
            mistaken = second @ np.swapaxes(second, 1, 2) - outer
            changed = float(np.max(np.abs(mistaken - mistaken[0])) / scale)
        change = float(np.max(np.abs(balance - balance[0])) / scale)
        measured.append(Measured(dict(zip(KEPT, [change], strict=True)), printed=changed))
    return measured


def draw_any(rng: np.random.Generator) -> Two:
    """Any layers, any covariance of the inputs."""
    two = draw_two(rng, covariance=True)
    first, second = rng.normal(size=two.first.shape), rng.normal(size=two.second.shape)
    return dataclasses.replace(two, first=first, second=second, target=1.5 * two.target)


DECAYED = Violation[Two]("weight decay", lambda rng: dataclasses.replace(draw_any(rng), decay=0.3))

THEOREM_A2 = Check(
    id="exact/theorem-a2",
    source="Theorem A.2",
    statement="Under gradient flow W₂ᵀW₂ − W₁W₁ᵀ is constant, from any start and for any covariance of the inputs.",
    hypotheses=(PLAIN,),
    tolerances=KEPT,
    measure=measure_conserved,
    draw=draw_any,
    violations=(DECAYED,),
    adopt=adopt_two,
)

STEP = {"one step against η²(g₂ᵀg₂ − g₁g₁ᵀ), relative": 1e-12, "drift beyond η² Σ‖g‖²": 1e-12}


@dataclasses.dataclass(frozen=True)
class Descent:
    """Gradient descent from two layers; `in_turn` moves the second layer after the first, not with it."""

    start: Two
    rate: float
    steps: int
    in_turn: bool = False

    def run(self) -> tuple[list[np.ndarray], list[np.ndarray], list[tuple[np.ndarray, np.ndarray]]]:
        """Both layers at every step, and the gradients there."""
        first, second = self.start.first, self.start.second
        firsts, seconds, gradients = [first], [second], []
        for _ in range(self.steps):
            error = second @ first @ self.start.sxx - self.start.target
            g1, g2 = second.T @ error, error @ first.T
            first = first - self.rate * g1
            if self.in_turn:
                g2 = (second @ first @ self.start.sxx - self.start.target) @ first.T
            second = second - self.rate * g2
            firsts.append(first)
            seconds.append(second)
            gradients.append((g1, g2))
        return firsts, seconds, gradients


def _measure_descent(instances: Sequence[Descent]) -> list[Measured]:
    measured = []
    for descent in instances:
        firsts, seconds, gradients = descent.run()
        balance = [b.T @ b - a @ a.T for a, b in zip(firsts, seconds, strict=True)]
        power = descent.rate**2
        step = max(
            float(np.max(np.abs(balance[k + 1] - balance[k] - power * (g2.T @ g2 - g1 @ g1.T))))
            for k, (g1, g2) in enumerate(gradients)
        )
        total = power * np.cumsum([np.sum(g1**2) + np.sum(g2**2) for g1, g2 in gradients])
        drift = np.array([np.linalg.norm(b - balance[0]) for b in balance[1:]])
        scale = float(np.sum(descent.start.factor**2))
        numbers = (step / scale, float(np.max(drift - total)) / scale)
        ratio = float(np.max(drift / total))
        measured.append(Measured(dict(zip(STEP, numbers, strict=True)), facts={"drift over its bound": ratio}))
    return measured


DISCRETE = Check(
    id="exact/balance-under-descent",
    source="extension of Theorem A.2",
    statement=(
        "A step of gradient descent changes W₂ᵀW₂ − W₁W₁ᵀ by η²(g₂ᵀg₂ − g₁g₁ᵀ), so that its drift is at most η² Σ‖g‖²."
    ),
    hypotheses=(),
    tolerances=STEP,
    measure=_measure_descent,
    draw=lambda rng: Descent(draw_any(rng), float(10 ** rng.uniform(-3, -1.5)), 100),
    violations=(Violation("layers moved in turn", lambda rng: Descent(draw_any(rng), 0.02, 100, in_turn=True)),),
)


# ---- The equation ----------------------------------------------------------------------------------------------------

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


# ---- Closed forms ----------------------------------------------------------------------------------------------------

SOLVED = {"largest eigenvalue of I − C(t)": 1e-12, "solution against the flow, relative": FLOW}


def _middle(two: Two, t: float) -> np.ndarray:
    """C(t) = I + Q₀ᵀ φ(F, t) Q₀, by NumPy's eigenvalues."""
    values, vectors = np.linalg.eigh(np.asarray(flow_matrix(two.task, two.lam)))
    y = vectors.T @ two.factor
    safe = np.where(values == 0, 1.0, values)
    phi = np.where(values == 0, t, np.expm1(2 * safe * t) / (2 * safe))
    return np.eye(y.shape[1]) + y.T @ (phi[:, None] * y)


def _measure_generic(instances: Sequence[Two]) -> list[Measured]:
    measured = []
    for two, run in zip(instances, flow_factors(instances), strict=True):
        below = max(1.0 - float(np.linalg.eigvalsh(_middle(two, t))[0]) for t in MOMENTS)
        miss = max(missed(evaluated(generic_form, two, t), q @ q.T) for t, q in zip(MOMENTS, run, strict=True))
        measured.append(Measured(dict(zip(SOLVED, (below, miss), strict=True))))
    return measured


NOT_WHITE = Violation[Two]("coloured inputs", coloured)
OTHER_TASK = Violation[Two]("another task", lambda rng: another_task(draw_two(rng)))

LEMMA_B2 = Check(
    id="exact/lemma-b2",
    source="Lemma B.2 and equation 7",
    statement="C(t) = I + Q₀ᵀ φ(F, t) Q₀ is at least I for t ≥ 0, and e^{Ft} Q₀ C(t)⁻¹ Q₀ᵀ e^{Ft} is QQᵀ(t).",
    hypotheses=(*RICCATI, EARLY),
    tolerances=SOLVED,
    measure=_measure_generic,
    draw=draw_two,
    violations=(NOT_WHITE, OTHER_TASK),
    adopt=adopt_two,
)

AGAINST_FLOW = {"QQᵀ against the flow, relative": FLOW}


def measure_block(instances: Sequence[Two], printed: bool = False) -> list[Measured]:
    measured = []
    for two, run in zip(instances, flow_factors(instances), strict=True):
        wanted = [q @ q.T for q in run]
        miss = max(missed(evaluated(block_form, two, t), x) for t, x in zip(MOMENTS, wanted, strict=True))
        wrong = None
        if printed:
            forms = [evaluated(block_form, two, t, as_printed=True) for t in MOMENTS]
            wrong = max(missed(x, y) for x, y in zip(forms, wanted, strict=True))
        measured.append(Measured(dict(zip(AGAINST_FLOW, [miss], strict=True)), printed=wrong))
    return measured


THEOREM_43 = Check(
    id="exact/theorem-4.3",
    source="Theorems 4.3 and B.4",
    statement=(
        "QQᵀ(t) = [Z₁; Z₂] A⁻¹ [Z₁; Z₂]ᵀ with Z₁, Z₂ and A from the overlaps B, C, D of the start with the growing, "
        "the decaying and the remaining directions, the factor of DDᵀ in A being (e^{2λ⊥t} − 1)/(2λ⊥)."
    ),
    hypotheses=(*RICCATI, SQUARE_B, EARLY),
    tolerances=AGAINST_FLOW,
    measure=measure_block,
    draw=draw_two,
    violations=(NOT_WHITE, OTHER_TASK),
    adopt=adopt_two,
)

CONDITIONED = 1e3
"""Largest condition of B of the form with decaying exponentials."""

DECAYING = {"error over 100 cond(B)² ε, relative": 1.0}

LATE = np.array([1e-6, 0.3, 3.0, 30.0])


def _condition(two: Two) -> float:
    """Of B, which holds the overlaps with the growing directions."""
    values, vectors = np.linalg.eigh(np.asarray(flow_matrix(two.task, two.lam)))
    modes = min(two.widths[0], two.widths[2])
    return float(np.linalg.cond(vectors[:, np.argsort(-values)[:modes]].T @ two.factor))


def measure_decaying(two: Two, printed: bool = False) -> Measured:
    allowed = 100 * _condition(two) ** 2 * EPS
    wanted = solved(dataclasses.replace(two, told=None), LATE)
    miss = max(missed(evaluated(decaying_form, two, t), x) for t, x in zip(LATE, wanted, strict=True))
    wrong = None
    if printed:
        forms = [evaluated(decaying_form, two, t, as_printed=True) for t in LATE]
        wrong = max(missed(x, y) for x, y in zip(forms, wanted, strict=True))
    return Measured({next(iter(DECAYING)): miss / allowed}, printed=wrong, facts={"condition of B": _condition(two)})


def draw_conditioned(rng: np.random.Generator, widths: tuple[int, int, int] = FUNNEL) -> Two:
    while True:
        two = draw_two(rng, widths)
        if _condition(two) < CONDITIONED / 10:
            return two


WELL = Hypothesis[Two]("condition of B at most 1000", lambda two: _condition(two) - CONDITIONED)

THEOREM_B5 = Check(
    id="exact/theorem-b5",
    source="Theorem B.5",
    statement=(
        "Where B is invertible, B⁻ᵀe^{−s_λt} can be taken out of Z₁, Z₂ and A; the form with decaying exponentials "
        "only is QQᵀ(t) at all times, with relative errors of some cond(B)² times rounding."
    ),
    hypotheses=(*RICCATI, SQUARE_B, WELL),
    tolerances=DECAYING,
    measure=each(measure_decaying),
    draw=draw_conditioned,
    violations=(Violation("another task", lambda rng: another_task(draw_conditioned(rng))),),
)

PROPAGATED = {"against the generic form while it has digits, relative": 1e-10, "two stretches of time as one": 1e-12}


def _measure_propagator(two: Two) -> Measured:
    early = np.array([1e-9, 0.1, 0.7, 1.5])
    truth = dataclasses.replace(two, told=None)
    forms = [evaluated(generic_form, truth, t) for t in early]
    generic = max(missed(x, y) for x, y in zip(solved(two, early), forms, strict=True))
    system = eigensystem(two.task, two.lam)
    half = np.asarray(_carried(two.factor, system, two.times[0]))
    rest = dataclasses.replace(two, first=half[: two.widths[0]].T, second=half[two.widths[0] :])
    (later,), (whole,) = solved(rest, [two.times[1]]), solved(two, [sum(two.times)])
    return Measured(dict(zip(PROPAGATED, (generic, missed(later, whole)), strict=True)))


_carried = jax.jit(propagate)


def _draw_stretches(rng: np.random.Generator) -> Two:
    return dataclasses.replace(draw_two(rng), times=tuple(float(t) for t in 10 ** rng.uniform(-2, 4, 2)))


PROPAGATOR = Check(
    id="exact/propagator",
    source="extension of equation 7",
    statement=(
        "With K = [φ^{1/2}Y; I], Y = PᵀQ₀, and Q̂ the first rows of an orthonormal basis of its columns, "
        "P e^{Lt} φ^{−1/2} Q̂ is a factor of QQᵀ(t); two stretches of time make one, however long."
    ),
    hypotheses=(*RICCATI, EARLY),
    tolerances=PROPAGATED,
    measure=each(_measure_propagator),
    draw=_draw_stretches,
    violations=(Violation("another task", lambda rng: another_task(_draw_stretches(rng))),),
)

AGAINST_ODE = {"QQᵀ against the integrated layers, relative": FLOW}

ANY_WIDTH = ((3, 4, 5), (5, 4, 3), (4, 2, 5), (3, 6, 4))


def _integrated(two: Two, t: float) -> np.ndarray:
    """QQᵀ from the layers, by SciPy: the shapes vary, and nothing is compiled."""
    shapes = two.first.shape, two.second.shape
    cut = two.first.size

    def field(_: float, flat: np.ndarray) -> np.ndarray:
        first, second = flat[:cut].reshape(shapes[0]), flat[cut:].reshape(shapes[1])
        error = two.target - second @ first @ two.sxx
        return np.concatenate([(second.T @ error).ravel(), (error @ first.T).ravel()])

    start = np.concatenate([two.first.ravel(), two.second.ravel()])
    run: Any = scipy.integrate.solve_ivp(field, (0, t), start, method="DOP853", rtol=1e-12, atol=1e-14)
    first, second = run.y[:cut, -1].reshape(shapes[0]), run.y[cut:, -1].reshape(shapes[1])
    factor = np.concatenate([first.T, second])
    return factor @ factor.T


def _draw_width(rng: np.random.Generator) -> Two:
    inp, hidden, out = widths = ANY_WIDTH[rng.integers(len(ANY_WIDTH))]
    scales = [lam for lam in SCALES if (lam <= 0 or out >= hidden) and (lam >= 0 or inp >= hidden)]
    return draw_two(rng, widths, scales)


def _measure_width(two: Two) -> Measured:
    t = float(MOMENTS[-1])
    return Measured({next(iter(AGAINST_ODE)): missed(evaluated(generic_form, two, t), _integrated(two, t))})


WIDTHS = Check(
    id="exact/any-width",
    source="extension of Theorem 4.3",
    statement="Equation 7 holds for every hidden width, narrower or wider than the outer ones.",
    hypotheses=(*RICCATI, EARLY),
    tolerances=AGAINST_ODE,
    measure=each(_measure_width),
    draw=_draw_width,
    violations=(Violation("coloured inputs", lambda rng: draw_two(rng, (3, 4, 5), covariance=True)),),
    adopt=adopt_two,
)


# ---- Symmetries, function space, descent -----------------------------------------------------------------------------

MIRRORED = {"exchange of input and output, relative": 1e-12, "change of sign of λ, relative": 1e-12}

MIRROR_TIMES = (0.01, 0.3, 3.0, 30.0)


@dataclasses.dataclass(frozen=True)
class Mirror:
    """A funnel and a square network, and by how much λ of their mirror images is off."""

    funnel: Two
    square: Two
    off: float = 0.0


def _measure_mirror(instances: Sequence[Mirror]) -> list[Measured]:
    measured = []
    for mirror in instances:
        two = mirror.funnel
        out = two.widths[2]
        other = Two(two.second.T, two.first.T, two.target.T, -two.lam + mirror.off)
        there, back = solved(two, MIRROR_TIMES), solved(other, MIRROR_TIMES)
        turned = np.block([[back[:, out:, out:], back[:, out:, :out]], [back[:, :out, out:], back[:, :out, :out]]])
        square = mirror.square
        u, s, vt = np.linalg.svd(square.second @ square.first)
        lam = -square.lam + mirror.off
        large = np.sqrt(np.hypot(s, lam / 2) + abs(lam) / 2)
        small, large = (s / large, large) if lam >= 0 else (large, s / large)
        flipped = Two((vt.T * small).T, u * large, square.target, lam)
        plus, minus = solved(square, MIRROR_TIMES), solved(flipped, MIRROR_TIMES)
        shift = square.lam * np.diag([1.0] * 3 + [-1.0] * 3)
        numbers = (missed(turned, there), missed(minus - shift, plus))
        measured.append(Measured(dict(zip(MIRRORED, numbers, strict=True))))
    return measured


def _draw_mirror(rng: np.random.Generator) -> Mirror:
    return Mirror(draw_two(rng), draw_two(rng, SQUARE))


MIRRORS = Check(
    id="exact/mirrors",
    source="extension of Theorem 4.3",
    statement=(
        "(W₁, W₂, Σ, λ) → (W₂ᵀ, W₁ᵀ, Σᵀ, −λ) exchanges input and output of the solution; in square networks λ → −λ "
        "from the same product leaves the product and shifts W₁ᵀW₁ and W₂W₂ᵀ by ±λI."
    ),
    hypotheses=(
        Hypothesis("λ-balanced layers", lambda m: max(imbalance(m.funnel), imbalance(m.square)), BALANCED),
        Hypothesis("opposite λ", lambda m: abs(m.off)),
    ),
    tolerances=MIRRORED,
    measure=_measure_mirror,
    draw=_draw_mirror,
    violations=(Violation("λ that is not opposite", lambda rng: dataclasses.replace(_draw_mirror(rng), off=0.1)),),
)

FUNCTION = {"field from the product alone, relative": 1e-10}

FUNCTION_TIMES = (0.0, 0.1, 0.5, 2.0)


def _measure_function(two: Two) -> Measured:
    inp = two.widths[0]
    worst = 0.0
    for x in solved(two, FUNCTION_TIMES):
        product = x[inp:, :inp]
        error = two.target - product
        wanted = x[inp:, inp:] @ error + error @ x[:inp, :inp]
        found = np.asarray(function_space_field(product, two.target, two.lam))
        scale = np.max(np.abs(x)) * max(np.max(np.abs(error)), 1e-3)
        worst = max(worst, float(np.max(np.abs(found - wanted)) / scale))
    return Measured({next(iter(FUNCTION)): worst})


def _weakest(two: Two) -> float:
    """Smallest singular value of the product over the largest, on the way."""
    inp = two.widths[0]
    values = [np.linalg.svd(x[inp:, :inp], compute_uv=False) for x in solved(two, FUNCTION_TIMES)]
    return min(float(s[-1] / s[0]) for s in values)


def _draw_function(rng: np.random.Generator) -> Two:
    while True:
        two = draw_two(rng, [FUNNEL, SQUARE][rng.integers(2)])
        if _weakest(two) > 1e-2:
            return two


FUNCTION_SPACE = Check(
    id="exact/function-space",
    source="extension of Theorem 5.2",
    statement=(
        "With as many hidden units as modes, and a product W = USVᵀ of full rank, gradient flow moves it by "
        "U(s_λ + λ/2)Uᵀ E + E V(s_λ − λ/2)Vᵀ, E = Σ − W: the layers are not needed."
    ),
    hypotheses=(
        *RICCATI,
        SQUARE_B,
        Hypothesis("smallest over largest singular value of the product at least 0.005", lambda t: 0.005 - _weakest(t)),
    ),
    tolerances=FUNCTION,
    measure=each(_measure_function),
    draw=_draw_function,
    violations=(Violation("layers that are not λ-balanced", unequal),),
)

ORDER = {"ratio of errors at η and η/10, less 10": 0.5}

RATES = (4e-3, 4e-4)


@dataclasses.dataclass(frozen=True)
class Rated:
    """Gradient descent beside the flow; `lag` is a mistake in the time per step."""

    start: Two
    lag: float = 0.0


def _measure_order(instances: Sequence[Rated]) -> list[Measured]:
    measured = []
    for rated in instances:
        moments = np.linspace(0.2, 1.6, TIMES)
        wanted = solved(rated.start, moments)
        errors = []
        for rate in RATES:
            steps = np.rint(moments * (1 + rated.lag) / rate).astype(int)
            firsts, seconds, _ = Descent(rated.start, rate, int(steps[-1])).run()
            factors = np.array([np.concatenate([firsts[k].T, seconds[k]]) for k in steps])
            errors.append(float(np.max(np.abs(factors @ np.swapaxes(factors, 1, 2) - wanted))))
        ratio = errors[0] / errors[1]
        facts = {f"error over η at η = {rate:g}": error / rate for rate, error in zip(RATES, errors, strict=True)}
        measured.append(Measured({next(iter(ORDER)): abs(ratio - 10.0)}, facts=facts))
    return measured


DESCENT = Check(
    id="exact/descent-against-flow",
    source="extension of Theorem 4.3",
    statement="Gradient descent misses the closed form at t = ηn by an error proportional to η in all blocks of QQᵀ.",
    hypotheses=(
        Hypothesis("λ-balanced layers", lambda r: imbalance(r.start), BALANCED),
        Hypothesis("time η per step", lambda r: abs(r.lag)),
    ),
    tolerances=ORDER,
    measure=_measure_order,
    draw=lambda rng: Rated(draw_two(rng, SQUARE)),
    violations=(Violation("time 1.01 η per step", lambda rng: Rated(draw_two(rng, SQUARE), lag=0.01)),),
)

CHECKS = (
    THEOREM_A2,
    DISCRETE,
    LEMMA_B1,
    LEMMA_42,
    LEMMA_B2,
    THEOREM_43,
    THEOREM_B5,
    PROPAGATOR,
    WIDTHS,
    MIRRORS,
    FUNCTION_SPACE,
    DESCENT,
)
"""Statements on the Riccati equation and its solutions."""
