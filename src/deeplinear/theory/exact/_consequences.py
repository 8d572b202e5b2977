"""What follows from the solution of two layers: mirror images, the flow of the product, the error of descent."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from deeplinear.exact import function_space_field
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.exact._balance import Descent
from deeplinear.theory.exact._two_layers import (
    BALANCED,
    FUNNEL,
    RICCATI,
    SQUARE,
    SQUARE_B,
    Two,
    draw_two,
    each,
    imbalance,
    missed,
    solved,
    unequal,
)

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
        moments = np.linspace(0.2, 1.6, 8)
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

CHECKS: tuple[Check, ...] = (
    MIRRORS,
    FUNCTION_SPACE,
    DESCENT,
)
