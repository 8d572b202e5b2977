"""Entropy: where printed statements are wrong, each beside the one that holds."""

import cmath
import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from deeplinear.core import xp
from deeplinear.geometry import (
    PowerEnergy,
    Scaled,
    concavity_spectrum,
    diagonal_dominance,
    dominance_threshold,
    entropy,
    entropy_gradient,
    equilibrium,
)
from deeplinear.models import Sensing
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._entropy import (
    DEEP,
    DISTINCT,
    SIZES,
    SQUARE,
    Spectrum,
    adopt_entropic,
    draw_entropic,
    endless,
    plain_entropy,
    plain_pair,
    rank_deficit,
)
from deeplinear.theory.geometry._matrices import ROUNDING, Place, adopt_place, draw_place

# --- Scaling ----------------------------------------------------------------------------------------------------------

SCALING = {"|S(aX) - S(X) - d(d-1)/2 (1-1/L) ln|a||, a of both signs": ROUNDING}


def _measure_scaling(places: Sequence[Place]) -> list[Measured]:
    """The factor is the first entry of the tangent. The printed logarithm of a negative one is no real number: it is
    taken as the complex one, whose imaginary part is π."""
    measured = []
    for place in places:
        size, factor = len(place.point), float(place.vector[0, 0])
        missed, printed = [], []
        for a in (factor, -factor):
            before, after = (np.linalg.svd(m, compute_uv=False) for m in (place.point, a * place.point))
            grown = float(entropy(after, place.depth)) - plain_entropy(before, place.depth)
            slope = size * (size - 1) / 2 * (1 - 1 / place.depth)
            missed.append(abs(grown - slope * math.log(abs(a))))
            printed.append(abs(grown - slope * cmath.log(a)))
        measured.append(Measured({name: max(missed) for name in SCALING}, printed=max(printed)))
    return measured


def _infinite(rng: np.random.Generator) -> Place:
    """A factor so small that the smallest singular value underflows to another number."""
    place = draw_place(rng, SIZES)
    vector = place.vector.copy()
    vector[0, 0] = 3e-323
    return dataclasses.replace(place, vector=vector)


LEMMA_SCALING = Check(
    id="geometry/lemma-4.3.2",
    source="Lemma 4.3.2",
    statement="S_L(aX) = S_L(X) + d(d-1)/2 (1 - 1/L) ln|a| for every a ≠ 0.",
    hypotheses=(
        Hypothesis("a square matrix", lambda p: float(p.point.shape[0] != p.point.shape[1])),
        Hypothesis(
            "full rank: the least singular value above 1e-9 of the largest",
            lambda p: rank_deficit(np.linalg.svd(p.point, compute_uv=False)),
        ),
        Hypothesis("a factor away from zero", lambda p: 1e-6 - abs(float(p.vector[0, 0]))),
    ),
    tolerances=SCALING,
    measure=_measure_scaling,
    draw=lambda rng: draw_place(rng, SIZES),
    violations=(Violation("a factor at the edge of the floating-point numbers", _infinite),),
    printed="S_N(aX) = S_N(X) + binom(d,2)(1 - 1/N) log a for a ∈ ℝ.",
    printed_tolerance=ROUNDING,
    adopt=adopt_place,
    version=2,
)

# --- Infinite depth ---------------------------------------------------------------------------------------------------

LIMIT = {"L (S_L - d(d-1)/4 ln L - S_∞) over its leading term, less one, times L": 2.0}


def _measure_limit(spectra: Sequence[Spectrum]) -> list[Measured]:
    """λ_L/L = λ_∞ (1 - ln(ab)/L + ...): the first correction is -(d-1)/2 Σ ln s_i / L."""
    measured = []
    for spectrum in spectra:
        s, depth = spectrum.values, spectrum.depth
        size = len(s)
        gap = float(entropy(s, depth)) - size * (size - 1) / 4 * math.log(depth) - float(entropy(s, math.inf))
        leading = -(size - 1) / 2 * float(np.sum(np.log(s)))
        missed = abs(depth * gap / leading - 1) * depth
        measured.append(
            Measured(dict.fromkeys(LIMIT, missed), printed=abs(gap + size * (size - 1) / 4 * math.log(depth)))
        )
    return measured


def _draw_deep(rng: np.random.Generator) -> Spectrum:
    """Values on one side of one, so that the leading term does not vanish."""
    spectrum = draw_entropic(rng, spread=1.0)
    return Spectrum(np.exp(2.0) * spectrum.values, int(rng.choice([50, 400])))


def _shallow(rng: np.random.Generator) -> Spectrum:
    """Product of the values one: no correction of first order."""
    return Spectrum(np.array([3.0, 1 / 3.0 + 1e-12]), 50)


DEPTH_LIMIT = Check(
    id="geometry/equation-4.28",
    source="Equations (4.27) and (4.28)",
    statement=(
        "The entropy is ½ Σ ln λ_L up to an additive constant, and S_L - d(d-1)/4 ln L → S_∞ with the first "
        "correction -(d-1)/(2L) Σ ln s_i."
    ),
    hypotheses=(
        SQUARE,
        Hypothesis("finite depth", lambda s: float(math.isinf(s.depth))),
        Hypothesis("values above one", lambda s: 1.0 - float(np.min(s.values))),
    ),
    tolerances=LIMIT,
    measure=_measure_limit,
    draw=_draw_deep,
    violations=(Violation("values whose product is one", _shallow),),
    printed="S_L has the limit S_∞, proportional signs read as equalities.",
    printed_tolerance=0.1,
)

# --- Forces between two values ----------------------------------------------------------------------------------------

ORDER = {
    "g(s_i, s_j) / g(s_j, s_i) - 1 for the larger s_i": -1e-4,
    "|difference by the library - printed formula| / g(s_j, s_i)": 1e-9,
}


def _measure_order(spectra: Sequence[Spectrum]) -> list[Measured]:
    measured = []
    for spectrum in spectra:
        high, low = float(spectrum.values[0]), float(spectrum.values[-1])
        push = plain_pair(low, high, spectrum.depth)
        gap = plain_pair(high, low, spectrum.depth) - push
        pair = np.asarray(entropy_gradient(np.array([high, low]), spectrum.depth))
        numbers = (gap / push, abs(float(pair[0] - pair[1]) - gap) / push)
        measured.append(Measured(dict(zip(ORDER, numbers, strict=True)), printed=-gap / push))
    return measured


def _two_layers(rng: np.random.Generator) -> Spectrum:
    return dataclasses.replace(draw_entropic(rng), depth=2)


LEMMA_ORDER = Check(
    id="geometry/lemma-4.3.6-2",
    source="Lemma 4.3.6, 2",
    statement="If s_i > s_j then g(s_i, s_j) < g(s_j, s_i): the entropy pushes the smaller value more.",
    hypotheses=(SQUARE, DISTINCT, Hypothesis("depth at least three", lambda s: 3.0 - s.depth)),
    tolerances=ORDER,
    version=2,
    measure=_measure_order,
    draw=lambda rng: endless(draw_entropic(rng)),
    violations=(Violation("two layers, where both are pushed alike", _two_layers),),
    printed="If σ_i > σ_j, g(σ_i, σ_j) > g(σ_j, σ_i).",
    printed_tolerance=0.0,
    adopt=adopt_entropic,
)


DIFFERENCE = {"|difference of two equilibrium conditions - Σ of differences of g / β|": 1e-10}


def _measure_difference(spectra: Sequence[Spectrum]) -> list[Measured]:
    """For the first two values; the inverse temperature is the first number of the other spectrum."""
    measured = []
    for spectrum in spectra:
        s, beta, depth = spectrum.values, float(spectrum.other[0]), spectrum.depth
        force = np.asarray(entropy_gradient(s, depth)) / beta
        rest = [k for k in range(len(s)) if k > 1]
        pairs = plain_pair(s[0], s[1], depth) - plain_pair(s[1], s[0], depth)
        pairs += sum(plain_pair(s[0], s[k], depth) - plain_pair(s[1], s[k], depth) for k in rest)
        left = float(force[0] - force[1])
        added = [  # as in (4.71): the second terms are added
            sum(2 * s[i] / (s[i] ** 2 - s[k] ** 2) - plain_pair(s[i], s[k], depth) for k in range(len(s)) if k != i)
            for i in (0, 1)
        ]
        printed = max(abs(left - pairs), abs(left - (added[0] - added[1]) / beta))
        measured.append(Measured(dict.fromkeys(DIFFERENCE, abs(left - pairs / beta)), printed=printed))
    return measured


def _far_beta(rng: np.random.Generator) -> Spectrum:
    spectrum = endless(draw_entropic(rng))
    values = spectrum.values.copy()
    values[1] = values[0] * (1 - 1e-9)
    return dataclasses.replace(spectrum, values=values)


EQUATION_DIFFERENCE = Check(
    id="geometry/equation-4.71",
    source="Equations (4.71) and (4.72), proof of Theorem 4.3.7",
    statement=(
        "The difference of the conditions of two singular values is (1/β)(g(s_i, s_j) - g(s_j, s_i) + Σ_k g(s_i, s_k) "
        "- g(s_j, s_k)), with the second terms of g subtracted."
    ),
    hypotheses=(SQUARE, DISTINCT, DEEP),
    tolerances=DIFFERENCE,
    measure=_measure_difference,
    draw=lambda rng: endless(draw_entropic(rng)),
    violations=(Violation("two values that agree to nine digits, where the differences cancel", _far_beta),),
    printed="The second terms are added, and (4.72) has no factor 1/β.",
    printed_tolerance=1e-10,
)

# --- Concavity --------------------------------------------------------------------------------------------------------

DOMINANCE = {
    "largest eigenvalue of the scaled Hessian": -1e-3,
    "|margin of the larger value - inequality (4.50)| s_i²": 1e-9,
    "side of the threshold 9.106688 on which dominance ends: 1 where wrong": 0.0,
}


def _measure_dominance(spectra: Sequence[Spectrum]) -> list[Measured]:
    measured = []
    threshold = dominance_threshold(math.inf)
    for spectrum in spectra:
        high, low = float(spectrum.values[0]), float(spectrum.values[-1])
        numbers, margins = [], []
        # The pair itself, and one whose ratio is the cube root.
        for ratio in (high / low, (high / low) ** (1 / 3)):
            pair, log = np.array([high, high / ratio]), math.log(ratio)
            inequality = 1 / (1 - 1 / ratio) ** 2 - (log + 1 + ratio) / (2 * log**2)
            margin = float(diagonal_dominance(pair, spectrum.depth)[0]) * high**2
            top = float(concavity_spectrum(pair, spectrum.depth)[-1])
            numbers.append((top, abs(margin - inequality), float((inequality > 0) != (ratio < threshold))))
            margins.append(inequality)
        worst = (max(column) for column in zip(*numbers, strict=True))
        measured.append(
            Measured(
                dict(zip(DOMINANCE, worst, strict=True)),
                printed=-min(margins),
                facts={"ratio": high / low, "margin": margins[0], "margin at the cube root": margins[1]},
            )
        )
    return measured


def _draw_ratio(rng: np.random.Generator) -> Spectrum:
    """Ratios from 10 to 400, above the threshold; their cube roots, from 2.15 to 7.4, are below it."""
    u = rng.uniform(math.log(10), 6.0)
    return Spectrum(float(np.exp(rng.uniform(-1, 1))) * np.array([math.exp(u), 1.0]), math.inf)


DIAGONAL_DOMINANCE = Check(
    id="geometry/lemma-4.3.5-proof",
    source="Proof of Lemma 4.3.5, Equations (4.46) and (4.50)",
    statement=(
        "The Hessian of S_∞ is negative definite, but in the row of the larger of two values not diagonally dominant "
        "where their ratio exceeds 9.106688."
    ),
    hypotheses=(SQUARE, DISTINCT, DEEP),
    tolerances=DOMINANCE,
    version=2,
    measure=_measure_dominance,
    draw=_draw_ratio,
    violations=(Violation("two layers", lambda rng: dataclasses.replace(_draw_ratio(rng), depth=2)),),
    printed="The Hessian is diagonally dominant for all distinct singular values.",
    printed_tolerance=0.0,
)

STRICT = {
    "largest eigenvalue of the scaled Hessian from three values on, at the depth of the instance": -1e-6,
    "|that of two values at depth two|": 1e-12,
    "|S_2 of two values - ½ ln(s_1 + s_2)|": ROUNDING,
}


def _measure_strict(spectra: Sequence[Spectrum]) -> list[Measured]:
    measured = []
    for spectrum in spectra:
        s, pair = spectrum.values, spectrum.values[:2]
        flat = float(concavity_spectrum(pair, 2)[-1])
        numbers = (
            float(concavity_spectrum(s, spectrum.depth)[-1]),
            abs(flat),
            abs(float(entropy(pair, 2)) - 0.5 * math.log(pair.sum())),
        )
        measured.append(Measured(dict(zip(STRICT, numbers, strict=True)), printed=flat))
    return measured


STRICT_CONCAVITY = Check(
    id="geometry/finite-depth-concavity",
    source="Section 4.3, before Lemma 4.3.4",
    statement=(
        "S_L is strictly concave for L ≥ 3, and for L = 2 from three singular values on; for two values S_2 = "
        "½ ln(s_1 + s_2), concave but not strictly; S_1 = 0."
    ),
    hypotheses=(
        SQUARE,
        Hypothesis("at least three values", lambda s: 3.0 - len(s.values)),
        Hypothesis("depth at least two", lambda s: 2.0 - s.depth),
    ),
    tolerances=STRICT,
    measure=_measure_strict,
    draw=lambda rng: draw_entropic(rng, sizes=(4,)),
    violations=(Violation("a single layer", lambda rng: dataclasses.replace(draw_entropic(rng, sizes=(4,)), depth=1)),),
    printed="The results are also true for S_N: strict concavity at every depth.",
    printed_tolerance=-1e-6,
)

# --- What large entropy means -----------------------------------------------------------------------------------------

SPREAD = {
    "S of the spectrum less S of equal values with the same sum": -1e-6,
    "S of equal values with the same product less S of the spectrum": -1e-6,
}


def _measure_spread(spectra: Sequence[Spectrum]) -> list[Measured]:
    measured = []
    for spectrum in spectra:
        s, depth = spectrum.values, spectrum.depth
        here = float(entropy(s, depth))
        by_sum = plain_entropy(np.full(len(s), s.mean()), depth)
        by_product = plain_entropy(np.full(len(s), math.exp(np.log(s).mean())), depth)
        numbers = (here - by_sum, by_product - here)
        measured.append(Measured(dict(zip(SPREAD, numbers, strict=True)), printed=by_sum - here))
    return measured


ENTROPY_SPREAD = Check(
    id="geometry/entropy-of-spread-values",
    source="Section 4.3, after Remark 4.3.1",
    statement=(
        "At a fixed determinant the entropy is least where the singular values are equal; at a fixed nuclear norm it "
        "is largest there."
    ),
    hypotheses=(SQUARE, DISTINCT, Hypothesis("depth at least three", lambda s: 3.0 - s.depth)),
    tolerances=SPREAD,
    measure=_measure_spread,
    draw=lambda rng: endless(draw_entropic(rng)),
    violations=(
        Violation("equal values", lambda rng: Spectrum(np.full(4, float(rng.uniform(0.5, 2))), math.inf)),
        Violation("two layers, two values: the sum alone counts", lambda rng: Spectrum(np.array([2.0, 1.0]), 2)),
    ),
    printed="The log volume is large when the singular values are far apart and small when they are all the same.",
    printed_tolerance=0.0,
    adopt=adopt_entropic,
)

HEAT = {"|s* at 2β over s* at β, less 2^{-1/p}|": ROUNDING, "|s ∂F/∂s| at s*, by differences, over s^p": 1e-7}


def _measure_heat(spectra: Sequence[Spectrum]) -> list[Measured]:
    """β and the powers at β and at 2β are the other numbers."""
    measured = []
    for spectrum in spectra:
        size, depth = len(spectrum.values), spectrum.depth
        beta, *powers = (float(x) for x in spectrum.other)
        one, two = (
            float(equilibrium(PowerEnergy(p), size, b, depth).spectrum[0])
            for p, b in zip(powers, (beta, 2 * beta), strict=True)
        )
        step, power = 1e-4 * one, powers[0]
        ends = [
            size * s**power / power - plain_entropy(np.full(size, s), depth) / beta for s in (one + step, one - step)
        ]
        slope = (ends[0] - ends[1]) / (2 * step) * one / (one**power * size)
        numbers = (abs(two / one - 2 ** (-1 / power)), abs(slope))
        measured.append(Measured(dict(zip(HEAT, numbers, strict=True)), printed=abs(two / one - 2 ** (1 / power))))
    return measured


def _draw_heat(rng: np.random.Generator) -> Spectrum:
    power = rng.uniform(1, 3)
    return dataclasses.replace(draw_entropic(rng), other=np.array([rng.uniform(0.3, 3), power, power]))


def _other_energy(rng: np.random.Generator) -> Spectrum:
    spectrum = _draw_heat(rng)
    return dataclasses.replace(spectrum, other=spectrum.other + np.array([0.0, 0.0, 0.5]))


INVERSE_TEMPERATURE = Check(
    id="geometry/equation-4.51",
    source="Equation (4.51)",
    statement="In F = E_p - S/β the number β is an inverse temperature: doubling it divides s* by 2^{1/p}.",
    hypotheses=(
        SQUARE,
        Hypothesis("depth at least two", lambda s: 2.0 - s.depth),
        Hypothesis("one energy at both temperatures", lambda s: abs(float(s.other[2] - s.other[1]))),
    ),
    tolerances=HEAT,
    measure=_measure_heat,
    draw=_draw_heat,
    violations=(Violation("another power at the second temperature", _other_energy),),
    printed="β is a temperature: the entropy counts more, and s* grows as β^{1/p}.",
    printed_tolerance=ROUNDING,
)

# --- Sensing ----------------------------------------------------------------------------------------------------------

SENSING = {
    "|gradient - 2 Σ (⟨A_i, X⟩ - y_i) A_i|": ROUNDING,
    "|⟨gradient, Z⟩ - difference quotient| over its size": 1e-8,
}


def _measure_sensing(places: Sequence[Place]) -> list[Measured]:
    """Three measurements made of the second tangent; labels 1, 2, 3."""
    measured = []
    for place in places:
        matrices = np.stack([np.roll(place.other, k) for k in range(3)])
        labels = np.arange(1.0, 4.0)
        loss = Scaled(Sensing(matrices, labels), 2.0)
        gradient = np.asarray(loss.gradient(xp.asarray(place.point)))

        def energy(x: np.ndarray) -> float:
            return float(np.sum((np.einsum("kij,ij->k", matrices, x) - labels) ** 2))  # noqa: B023

        step, way = 1e-4, place.vector
        slope = (energy(place.point + step * way) - energy(place.point - step * way)) / (2 * step)
        residual = np.einsum("kij,ij->k", matrices, place.point) - labels
        single = np.einsum("k,kij->ij", residual, matrices)
        size = 1 + float(np.linalg.norm(single) * np.linalg.norm(way))
        numbers = (
            float(np.max(np.abs(gradient - 2 * single))) / size,
            abs(float(np.sum(gradient * way)) - slope) / size,
        )
        measured.append(
            Measured(dict(zip(SENSING, numbers, strict=True)), printed=abs(float(np.sum(single * way)) - slope) / size)
        )
    return measured


def _steep(rng: np.random.Generator) -> Place:
    place = draw_place(rng, SIZES)
    return dataclasses.replace(place, point=1e12 * place.point, vector=1e-12 * place.vector)


EQUATION_SENSING = Check(
    id="geometry/equation-5.5",
    source="Equations (5.4) and (5.5)",
    statement="The gradient of Σ (⟨A_i, X⟩ - y_i)² is 2 Σ (⟨A_i, X⟩ - y_i) A_i.",
    hypotheses=(Hypothesis("a point of moderate size", lambda p: float(np.linalg.norm(p.point)) - 1e6),),
    tolerances=SENSING,
    measure=_measure_sensing,
    draw=lambda rng: draw_place(rng, SIZES),
    violations=(Violation("a point so far away that differences are lost to rounding", _steep),),
    printed="dE(X) = Σ (⟨A_i, X⟩ - y_i) A_i.",
    printed_tolerance=1e-8,
)

CHECKS = (
    LEMMA_SCALING,
    DEPTH_LIMIT,
    LEMMA_ORDER,
    EQUATION_DIFFERENCE,
    DIAGONAL_DOMINANCE,
    STRICT_CONCAVITY,
    ENTROPY_SPREAD,
    INVERSE_TEMPERATURE,
    EQUATION_SENSING,
)
