"""Solutions of the Riccati equation of two layers, in all forms, against the flow of the layers."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.integrate

from deeplinear.core import xp
from deeplinear.exact import block_form, decaying_form, eigensystem, flow_matrix, generic_form, propagate
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.exact._two_layers import (
    EARLY,
    FLOW,
    FUNNEL,
    MOMENTS,
    RICCATI,
    SCALES,
    SQUARE_B,
    Two,
    adopt_two,
    another_task,
    coloured,
    draw_two,
    each,
    evaluated,
    flow_factors,
    missed,
    solved,
)

EPS = float(np.finfo(float).eps)

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
    half = np.asarray(propagate(xp.asarray(two.factor), system, two.times[0]))
    rest = dataclasses.replace(two, first=half[: two.widths[0]].T, second=half[two.widths[0] :])
    (later,), (whole,) = solved(rest, [two.times[1]]), solved(two, [sum(two.times)])
    return Measured(dict(zip(PROPAGATED, (generic, missed(later, whole)), strict=True)))


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


def _scales(widths: tuple[int, int, int]) -> list[float]:
    """Values of λ there are layers for: λ > 0 takes as many outputs as hidden units, λ < 0 as many inputs."""
    inp, hidden, out = widths
    return [lam for lam in SCALES if (lam <= 0 or out >= hidden) and (lam >= 0 or inp >= hidden)]


def _draw_width(rng: np.random.Generator) -> Two:
    widths = ANY_WIDTH[rng.integers(len(ANY_WIDTH))]
    return draw_two(rng, widths, _scales(widths))


def _coloured_width(rng: np.random.Generator) -> Two:
    return draw_two(rng, ANY_WIDTH[0], _scales(ANY_WIDTH[0]), covariance=True)


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
    version=2,
    violations=(Violation("coloured inputs", _coloured_width),),
    adopt=adopt_two,
)

CHECKS: tuple[Check, ...] = (
    LEMMA_B2,
    THEOREM_43,
    THEOREM_B5,
    PROPAGATOR,
    WIDTHS,
)
