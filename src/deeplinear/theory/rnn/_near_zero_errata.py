"""What is printed otherwise in the proof that small networks become balanced: each with the form we stand for."""

import dataclasses
import math

import numpy as np
import scipy.stats

from deeplinear.recurrent import near_zero_system, norm_event
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.network._networks import each
from deeplinear.theory.rnn._near_zero_flows import draw_target, field

EQUAL = 1e-12
"""Numbers of order one by a few operations."""

# --- Equation C.76 ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Growth:
    """A small system with its target.

    Attributes:
        drive: Factor of the derivative of B and C, 1 along the flow.
    """

    transition: np.ndarray
    input: np.ndarray
    output: np.ndarray
    target: np.ndarray
    scale: float
    drive: float = 1.0

    @property
    def slopes(self) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of B and C along the flow of the half sum of squares."""
        rows = (self.transition[None], self.input[None], self.output[None], self.target[None])
        _, b, c = field(*rows)
        return self.drive * b[0], self.drive * c[0]


REPAIRED = {
    "logarithm of e^{a ln ε^{−1/2}} against −(a/2) ln ε, relative": EQUAL,
    "derivative of ‖B‖² + ‖C‖² over 2(w₀ + small)(‖B‖² + ‖C‖²), above 1": EQUAL,
    "2 − a": 0.0,
}


def _measure_growth(one: Growth) -> Measured:
    """a = 4kM/2w₀; small = |h₀| + Σ_{i≥1} |r_i|‖A‖^i."""
    b, c = one.slopes
    k, size = len(one.target), float(np.linalg.norm(one.transition))
    images = [one.input]
    for _ in range(k - 1):
        images.append(one.transition @ images[-1])
    h = np.array(images) @ one.output
    residual = h - one.target
    small = abs(h[0]) + float(np.sum(np.abs(residual[1:]) * size ** np.arange(1, k)))
    first, mass = abs(one.target[0]), float(np.sum(one.input**2) + np.sum(one.output**2))
    changed = 2 * float(one.input @ b + one.output @ c)
    largest = float(np.abs(one.target).max())
    a = 4 * k * largest / (2 * first)
    root = one.scale**-0.5
    logarithm = a * math.log(root)
    numbers = (
        abs(logarithm / (-a / 2 * math.log(one.scale)) - 1),
        changed / (2 * (first + small) * mass) - 1,
        2 - a,
    )
    printed = abs((math.log(root) + a) / logarithm - 1)
    facts = {"a": a, "power of ε in the bound of ‖B‖² that C.75 gives": 2 - a / 2}
    return Measured(dict(zip(REPAIRED, numbers, strict=True)), printed=printed, facts=facts)


def _draw_growth(rng: np.random.Generator) -> Growth:
    """Near the growing direction half of the time, where the bound is nearly reached."""
    scale = 10 ** rng.uniform(-6, -2)
    a, b, c = (np.asarray(m) for m in near_zero_system(5, scale, rng))
    output = b[:, 0] + rng.uniform(0, 0.2) * c[0] if rng.random() < 0.5 else c[0]
    return Growth(a, b[:, 0], output, draw_target(rng), scale)


def _faster(rng: np.random.Generator) -> Growth:
    drawn = _draw_growth(rng)
    return dataclasses.replace(drawn, output=drawn.input, drive=2.0)


C76 = Check(
    id="rnn/erratum-c.76",
    source="Equations C.75 and C.76",
    statement=(
        "e^{a ln ε^{−1/2}} = ε^{−a/2}, and a = 4kM/2w₀ ≥ 2, so that this bound on ‖B‖² is of order ε^{2−a/2} ≥ ε; what "
        "serves is (‖B‖² + ‖C‖²)' ≤ 2(w₀ + small)(‖B‖² + ‖C‖²) with small = |h₀| + Σ_{i≥1} |h_i − w_i|‖A‖^i (half sum "
        "of squares; twice as much for the sum of squares)."
    ),
    hypotheses=(
        Hypothesis("0 < ε < 1/10", lambda g: max(-g.scale, g.scale - 0.1)),
        Hypothesis("derivatives along the flow", lambda g: abs(g.drive - 1)),
    ),
    tolerances=REPAIRED,
    measure=each(_measure_growth),
    draw=_draw_growth,
    violations=(Violation("derivatives of the sum of squares", _faster),),
    printed="e^{a ln ε^{−1/2}} = ε^{−1/2}e^a. (Measured: the logarithms, relative.)",
    printed_tolerance=1e-3,
)

# --- Probabilities ----------------------------------------------------------------------------------------------------


def inside(entries: int, low: float, high: float) -> float:
    """Probability that a chi-square variable over its number of degrees lies in an interval."""
    return float(scipy.stats.chi2.cdf(high * entries, entries) - scipy.stats.chi2.cdf(low * entries, entries))


PRINTED_PROBABILITY = 0.83

JOINT = {
    "(1 − 2e^{−9·20/64})³ against 0.681": 5e-4,
    "0.75 − bound on the probability that B, C (n = d) and A (n = d²) have norms in (ε/2, 3ε/2)": 0.0,
    "that bound − the probability": 0.0,
    "0.99 − the probability": 0.0,
}


def _measure_joint(states: int) -> Measured:
    cube = norm_event(20).bound ** 3
    bound = norm_event(states).bound ** 2 * norm_event(states**2).bound
    exact = inside(states, 0.25, 2.25) ** 2 * inside(states**2, 0.25, 2.25)
    numbers = (abs((1 - 2 * math.exp(-9 * 20 / 64)) ** 3 - 0.681), 0.75 - bound, bound - exact, 0.99 - exact)
    union = 1 - 5 * math.exp(-9 * states / 64)
    facts = {"bound": bound, "probability": exact, "union bound with ‖B + Cᵀ‖": union}
    return Measured(dict(zip(JOINT, numbers, strict=True)), printed=abs(cube - PRINTED_PROBABILITY), facts=facts)


PROBABILITY = Check(
    id="rnn/erratum-c.13-probability",
    source="Proof of Lemma C.13, the probability",
    statement=(
        "(1 − 2e^{−9·20/64})³ is 0.681; with n = d² entries for A the three events have a probability of at least "
        "0.774 for d = 20, so that 0.75 stands, and in fact above 0.99."
    ),
    hypotheses=(Hypothesis("20 states or more", lambda d: 20.0 - d),),
    tolerances=JOINT,
    measure=each(_measure_joint),
    draw=lambda rng: int(rng.integers(20, 60)),
    violations=(Violation("ten states", lambda rng: 10),),
    printed="(1 − 2e^{−9·20/64})³ ≈ 0.83.",
    printed_tolerance=5e-3,
)

FEW = {
    "0.75 − the probability of the three events, d > 4": 0.0,
    "their bound against (1 − 2e^{−9d/64})²(1 − 2e^{−9d²/64})": EQUAL,
}


def _measure_few(states: int) -> Measured:
    """Printed: d > 4 by bounds that are above 0.75 only from d = 20 on."""
    exact = inside(states, 0.25, 2.25) ** 2 * inside(states**2, 0.25, 2.25)
    bounds = [1 - 2 * math.exp(-9 * n / 64) for n in (states, states, states**2)]
    found = norm_event(states).bound ** 2 * norm_event(states**2).bound
    bound = max(bounds[0], 0.0) ** 2 * bounds[2]
    numbers = (0.75 - exact, abs(found - math.prod(bounds)))
    facts = {"states": float(states), "probability": exact, "bound": bound}
    return Measured(dict(zip(FEW, numbers, strict=True)), printed=0.75 - bound, facts=facts)


DIMENSION = Check(
    id="rnn/erratum-c.11-dimension",
    source="Proposition 9 and Proposition C.11",
    statement=(
        "Proposition 9 asks for d > 20, Proposition C.11 for d > 4. The bounds of Lemma C.10 give 0.75 from d = 20 on, "
        "the exact probabilities of its events from d = 5 on; the conclusion needs neither (proposition-9-every-draw)."
    ),
    hypotheses=(Hypothesis("more than 4 states", lambda d: 5.0 - d),),
    tolerances=FEW,
    measure=each(_measure_few),
    draw=lambda rng: int(rng.integers(5, 20)),
    violations=(Violation("two states", lambda rng: 2),),
    printed="for d > 4 the bounds of Lemma C.10 give the probability 0.75. (Measured: by how much they do not.)",
)


@dataclasses.dataclass(frozen=True)
class Normal:
    """A number of states, a scale, and A drawn with a variance per entry of ε²/d^power."""

    states: int
    scale: float
    transition: np.ndarray
    power: float = 2.0


SPREAD = {
    "1 − Pr(‖A‖ < 2ε), entries of variance ε²/d²": 1e-10,
    "‖A‖ of a draw, in units of ε, outside (1/2, 3/2)": 0.0,
    "Pr(ε²/2 < ‖B − Cᵀ‖² < 9ε²/2), entries of variance 2ε²/d, below 1 − 2e^{−9d/64}": 0.0,
}


def _measure_normal(one: Normal) -> Measured:
    """The variances of C.46 (ε²/d for every entry) and of C.134 (√2ε, as the spread of an entry) beside them."""
    n, d = one.states**2, one.states
    size = float(np.linalg.norm(one.transition)) / one.scale
    within = scipy.stats.chi2.cdf(4 * one.states**one.power, n)
    event = inside(d, 0.25, 2.25)
    numbers = (
        float(scipy.stats.chi2.sf(4 * one.states**one.power, n)),
        max(0.5 - size, size - 1.5),
        1 - 2 * math.exp(-9 * d / 64) - event,
    )
    crowded = float(scipy.stats.chi2.cdf(4 * d, n))  # entries of variance ε²/d
    spread = float(scipy.stats.chi2.cdf(2.25, d) - scipy.stats.chi2.cdf(0.25, d))  # entries of variance 2ε²
    facts = {"Pr(‖A‖ < 2ε)": float(within), "as printed": crowded, "Pr of C.134 as printed": spread}
    return Measured(dict(zip(SPREAD, numbers, strict=True)), printed=0.75 - min(crowded, spread), facts=facts)


def _draw_normal(rng: np.random.Generator) -> Normal:
    states, scale = int(rng.integers(21, 40)), float(10 ** rng.uniform(-6, -2))
    return Normal(states, scale, np.asarray(near_zero_system(states, scale, rng).transition))


def _crowded(rng: np.random.Generator) -> Normal:
    states, scale = int(rng.integers(21, 40)), float(10 ** rng.uniform(-6, -2))
    matrix = scale / math.sqrt(states) * rng.standard_normal((states, states))
    return Normal(states, scale, matrix, 1.0)


NORMAL = Check(
    id="rnn/erratum-normal-start",
    source="Definition of the ε-normal initialisation and equation C.134",
    statement=(
        "‖A(0)‖_F < 2ε needs entries of variance ε²/d², not ε²/d, with which ‖A(0)‖_F is about ε√d; and B − Cᵀ has "
        "entries of variance 2ε²/d."
    ),
    hypotheses=(
        Hypothesis("more than 20 states", lambda n: 21.0 - n.states),
        Hypothesis("entries of variance ε²/d²", lambda n: abs(n.power - 2)),
    ),
    tolerances=SPREAD,
    measure=each(_measure_normal),
    draw=_draw_normal,
    violations=(Violation("entries of variance ε²/d", _crowded),),
    printed=(
        "every entry has the variance ε²/d, and those of B − Cᵀ the spread √2ε. (Measured: 0.75 less the smaller "
        "probability of C.57 and C.134.)"
    ),
)

# --- Constants --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Constants:
    """Starts z(0) = decaying · ε² and x(0) = growing · ε², and M₄ε^{1/2} = drive · w₀; extremal solutions."""

    first: float
    scale: float
    decaying: float
    growing: float
    drive: float


CONSTANTS = {
    "z above e^{−2w₀t}·9w₀ε² + M₄ε^{5/2}, over 2w₀ε²": EQUAL,
    "x below e^{2w₀t}·w₀ε²/2 + M₄ε^{5/2}, over 2w₀ε²": EQUAL,
}


def _measure_constants(one: Constants) -> Measured:
    """The solutions of ż = −2w₀z + m and ẋ = 2w₀x − m, in units of ε²."""
    rate, m = 2 * one.first, one.drive * one.first
    t = np.linspace(0, math.log(one.scale**-0.5) / rate, 20)
    z = (np.exp(-rate * t) * (rate * one.decaying - m) + m) / rate
    x = (np.exp(rate * t) * (rate * one.growing - m) + m) / rate

    def over(constant: float) -> float:
        return float(np.max(z - (np.exp(-rate * t) * constant * one.first + m) / rate))

    def under(constant: float) -> float:
        return float(np.max((np.exp(rate * t) * constant * one.first + m) / rate - x))

    printed = max(over(6.0), under(1.0))
    facts = {"z with the constant 6": over(6.0), "x with the constant 1": under(1.0)}
    return Measured(dict(zip(CONSTANTS, (over(9.0), under(0.5)), strict=True)), printed=printed, facts=facts)


def _draw_constants(rng: np.random.Generator) -> Constants:
    """In the upper third of the event for z, in the lower for x."""
    return Constants(
        first=float(rng.uniform(0.3, 2)),
        scale=float(10 ** rng.uniform(-6, -2)),
        decaying=float(rng.uniform(3.2, 4.5)),
        growing=float(rng.uniform(0.5, 0.7)),
        drive=float(rng.uniform(0.0, 0.5)),
    )


def _outside(one: Constants) -> float:
    return max(one.decaying - 4.5, 0.5 - one.growing)


INTEGRAL = Check(
    id="rnn/erratum-c.15-constants",
    source="Equations C.116, C.119, C.120, C.135 and C.136",
    statement=(
        "From z(0) < 9ε²/2, x(0) > ε²/2 and M₄ε^{5/2} < w₀ε²/2 follow the constants 9w₀ε² for z and w₀ε²/2 for x; "
        "those of C.116, C.119 and C.120, which have a factor d, are true and loose."
    ),
    hypotheses=(
        Hypothesis("w₀ > 0", lambda c: -c.first, -1e-3),
        Hypothesis("z(0) < 9ε²/2 and x(0) > ε²/2", _outside),
        Hypothesis("M₄ε^{5/2} < w₀ε²/2", lambda c: c.drive - 0.5),
    ),
    tolerances=CONSTANTS,
    measure=each(_measure_constants),
    draw=_draw_constants,
    violations=(
        Violation("a larger start of z", lambda rng: dataclasses.replace(_draw_constants(rng), decaying=6.0)),
        Violation("a smaller start of x", lambda rng: dataclasses.replace(_draw_constants(rng), growing=0.2)),
    ),
    printed="z(0) < 3ε², hence 6w₀ε² for z (C.135), and w₀ε² for x (C.136); also 33d, 75d and 1/25d.",
    printed_tolerance=1e-6,
)

# --- Remainders -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Boxed:
    """A system in the box ‖B‖, ‖C‖ ≤ M₁ε^{3/4}, ‖A‖ ≤ M₂ε, and its target."""

    transition: np.ndarray
    input: np.ndarray
    output: np.ndarray
    target: np.ndarray
    scale: float
    most_bc: float
    most_a: float

    @property
    def outside(self) -> float:
        """By how much it is outside of the box, relative."""
        widest = max(float(np.linalg.norm(self.input)), float(np.linalg.norm(self.output)))
        sizes = (
            widest / (self.most_bc * self.scale**0.75),
            float(np.linalg.norm(self.transition)) / (self.most_a * self.scale),
        )
        return max(sizes) - 1


REMAINDER = {
    "CB ‖Y‖² over 4M₁⁴ε³, above 1": 0.0,
    "YᵀY′ above −w₀‖Y‖² + 4M₁⁴ε³ + 8(k−1)M M₃³ε^{5/2}, relative": 0.0,
    "‖A‖² over M₂²ε², above 1": EQUAL,
}


def _measure_remainder(one: Boxed) -> Measured:
    """Printed: C.55 has M₂ε², C.112 M₁²M₂²ε³ under the name 4M₁⁴ε³."""
    rows = (one.transition[None], one.input[None], one.output[None], one.target[None])
    _, b, c = field(*rows)
    y = one.input - one.output
    moved = float(y @ (b[0] - c[0]))
    e, k, square = one.scale, len(one.target), float(y @ y)
    product = float(one.output @ one.input) * square
    m1, m2, m3 = one.most_bc, one.most_a, max(one.most_bc, one.most_a)
    largest = float(np.abs(one.target).max()) + m1**2 * e**1.5
    right, rest = 4 * m1**4 * e**3, 8 * (k - 1) * largest * m3**3 * e**2.5
    size = float(np.sum(one.transition**2))
    numbers = (
        product / right - 1,
        (moved + abs(one.target[0]) * square - right - rest) / (right + rest),
        size / (m2**2 * e**2) - 1,
    )
    wrong = (product / (m1**2 * m2**2 * e**3) - 1, size / (m2 * e**2) - 1)
    facts = {
        "C.112 as printed, above 1": wrong[0],
        "C.55 as printed, above 1": wrong[1],
        "C.113 as printed over the sum of C.111 and C.112": (right + (m1 + 1) * rest) / (right + rest),
    }
    return Measured(dict(zip(REMAINDER, numbers, strict=True)), printed=min(wrong), facts=facts)


def _draw_boxed(rng: np.random.Generator) -> Boxed:
    """On the boundary of the box, with the angle of B and Cᵀ at which CB‖Y‖² is largest, nearly."""
    scale, d = float(10 ** rng.uniform(-8, -4)), 5
    most_bc, most_a = float(rng.uniform(6, 10)), float(rng.uniform(2.1, 3))
    first, other = np.linalg.qr(rng.standard_normal((d, 2)))[0].T
    angle = math.pi / 3 + rng.uniform(-0.1, 0.1)
    size = 0.99 * most_bc * scale**0.75
    a = rng.standard_normal((d, d))
    a *= 0.99 * most_a * scale / np.linalg.norm(a)
    b, c = size * first, size * (math.cos(angle) * first + math.sin(angle) * other)
    return Boxed(a, b, c, draw_target(rng), scale, most_bc, most_a)


def _left(rng: np.random.Generator) -> Boxed:
    drawn = _draw_boxed(rng)
    return dataclasses.replace(drawn, input=4 * drawn.input, output=4 * drawn.output)


REMAINDERS = Check(
    id="rnn/erratum-c.112",
    source="Equations C.55, C.112 and C.113",
    statement=(
        "In the box ‖B‖, ‖C‖ ≤ M₁ε^{3/4}, ‖A‖ ≤ M₂ε the remainder of C.112 is M₁²ε^{3/2}(2M₁ε^{3/4})² = 4M₁⁴ε³, that "
        "of C.113 4M₁⁴ε³ + 8(k−1)M M₃³ε^{5/2} without a factor M₁ + 1, and C.55 has M₂²ε²."
    ),
    hypotheses=(Hypothesis("inside of the box", lambda b: b.outside),),
    tolerances=REMAINDER,
    measure=each(_measure_remainder),
    draw=_draw_boxed,
    violations=(Violation("B and C of four times the size", _left),),
    printed="M₁²ε^{3/2}(M₂ε^{3/4})² in C.112, and M₂ε² in C.55. (Measured: by how much the better is exceeded.)",
    printed_tolerance=1e-6,
)

CHECKS = (C76, PROBABILITY, DIMENSION, NORMAL, INTEGRAL, REMAINDERS)
