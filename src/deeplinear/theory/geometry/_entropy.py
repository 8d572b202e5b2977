"""Entropy of a spectrum: its forms, derivatives and concavity, beside sums and differences in plain NumPy."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from deeplinear.core import HypothesisError, Params, effective_rank
from deeplinear.geometry import (
    concavity_spectrum,
    entropy,
    entropy_force,
    entropy_gradient,
    gaussian_rank_share,
    pair_concavity,
)
from deeplinear.models import Problem
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._matrices import (
    DEPTHS,
    ROUNDING,
    Place,
    adopt_place,
    draw_place,
    draw_spectrum,
)

SIZES = (2, 4)
"""Numbers of singular values that statements are tried with."""

APART = 1e-3
"""Least logarithm of a ratio of two values at which formulas with differences are used."""


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """Singular values, largest first, and a depth.

    Attributes:
        values: The singular values.
        depth: Number of layers, or infinity.
        other: A second spectrum, of statements that compare.
    """

    values: np.ndarray
    depth: float
    other: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))


def draw_entropic(rng: np.random.Generator, sizes: tuple[int, ...] = SIZES, spread: float = 2.0) -> Spectrum:
    """Two spectra of one size with values apart, at one of the depths."""
    size = int(rng.choice(sizes))
    depth = DEPTHS[int(rng.integers(len(DEPTHS)))]
    return Spectrum(_apart(rng, size, spread), depth, _apart(rng, size, spread))


SMALLEST = 1e-9
"""Share of the largest singular value of a product below which one is rounding: its logarithm has no digits."""


def rank_deficit(values: np.ndarray) -> float:
    """By how much the least of the singular values of a product is below its share of the largest."""
    return SMALLEST - float(values[-1] / values[0]) if values[0] > 0 else SMALLEST


def adopt_entropic(problem: Problem, params: Params) -> Spectrum:
    """The singular values of the product of given layers, at their depth."""
    values = np.linalg.svd(np.asarray(problem.product(params)), compute_uv=False)
    if (deficit := rank_deficit(values)) > 0:
        raise HypothesisError("full rank: the least singular value above 1e-9 of the largest", deficit, 0.0)
    return Spectrum(values, len(params), values)


def endless(spectrum: Spectrum) -> Spectrum:
    """The same at infinite depth."""
    return dataclasses.replace(spectrum, depth=math.inf)


def plain_entropy(s: np.ndarray, depth: float) -> float:
    """By the definition of the operator: ½ ln Σ_l a^{2(L-l)/L} b^{2(l-1)/L} over pairs, or the integral."""
    if math.isinf(depth):
        nodes, weights = np.polynomial.legendre.leggauss(64)
        second, weights = (1 + nodes) / 2, weights / 2
        first = 1 - second
    else:
        second, weights = np.arange(depth) / depth, np.ones(int(depth))
        first = second[::-1]
    total = 0.0
    for j in range(len(s)):
        for k in range(j + 1, len(s)):
            total += 0.5 * math.log(float(np.sum(weights * s[j] ** (2 * first) * s[k] ** (2 * second))))
    return total


def plain_pair(a: float, b: float, depth: float) -> float:
    """g(a, b) as it is printed, with differences."""
    if math.isinf(depth):
        return a / (a**2 - b**2) - 1 / (a * (math.log(a**2) - math.log(b**2)))
    return a / (a**2 - b**2) - a ** (2 / depth - 1) / (depth * (a ** (2 / depth) - b ** (2 / depth)))


def plain_slopes(s: np.ndarray, depth: float) -> np.ndarray:
    """Derivatives of the entropy of values that are apart."""
    return np.array(
        [sum(plain_pair(a, b, depth) for j, b in enumerate(s) if j != i) for i, a in enumerate(s)], dtype=float
    )


def _apart(rng: np.random.Generator, size: int, spread: float) -> np.ndarray:
    """Values no two of which are closer than a twentieth of the spread, in logarithm."""
    logs = np.sort(rng.uniform(-spread, spread, size))[::-1]
    return np.exp(logs - 0.05 * spread * np.arange(size))


def _gap(values: np.ndarray) -> float:
    return float(np.min(np.abs(np.diff(np.sort(np.log(values)))), initial=math.inf))


SQUARE = Hypothesis[Spectrum]("at least two singular values, all positive", lambda s: _short(s.values))
DISTINCT = Hypothesis[Spectrum](
    "distinct singular values: what lacks to a ratio of e^0.001", lambda s: APART - _gap(s.values)
)
DEEP = Hypothesis[Spectrum]("infinite depth", lambda s: float(not math.isinf(s.depth)))


def _short(values: np.ndarray) -> float:
    return float(len(values) < 2 or np.min(values) <= 0)


# --- Forms and derivatives --------------------------------------------------------------------------------------------

VANDERMONDE = {"|S - ½ ln(van(s²)/van(ln s²))|": 1e-8}


def _measure_vandermonde(spectra: Sequence[Spectrum]) -> list[Measured]:
    measured = []
    for spectrum in spectra:
        squares = spectrum.values**2
        ratio = float(np.linalg.slogdet(np.vander(squares))[1] - np.linalg.slogdet(np.vander(np.log(squares)))[1])
        missed = abs(float(entropy(spectrum.values, spectrum.depth)) - ratio / 2)
        measured.append(Measured(dict.fromkeys(VANDERMONDE, missed)))
    return measured


def _finite_depth(rng: np.random.Generator) -> Spectrum:
    return dataclasses.replace(draw_entropic(rng), depth=5)


REMARK_VANDERMONDE = Check(
    id="geometry/remark-4.3.1",
    source="Remark 4.3.1",
    statement="S_∞ = ½ ln(van(Σ²)/van(ln Σ²)), a ratio of Vandermonde determinants.",
    hypotheses=(SQUARE, DISTINCT, DEEP),
    tolerances=VANDERMONDE,
    measure=_measure_vandermonde,
    draw=lambda rng: endless(draw_entropic(rng)),
    violations=(Violation("finite depth", _finite_depth),),
)

GRADIENT = {"largest |∂S/∂s_i - printed| s_i": 1e-10}


def _measure_gradient(spectra: Sequence[Spectrum]) -> list[Measured]:
    measured = []
    for spectrum in spectra:
        s, depth = spectrum.values, spectrum.depth
        ours = np.asarray(entropy_gradient(s, depth))
        missed = [
            float(np.max(np.abs((np.asarray(entropy_gradient(s, n)) - plain_slopes(s, n)) * s)))
            for n in (depth, math.inf)
        ]
        printed = None
        if not math.isinf(depth):  # σ without its index, read as that of a neighbour
            wrong = plain_slopes(s, depth)
            for i, (a, c) in enumerate(zip(s, np.roll(s, 1), strict=True)):
                power = 2 / depth
                wrong[i] += sum(
                    (a ** (power - 1) - c ** (power - 1)) / (depth * (a**power - b**power))
                    for j, b in enumerate(s)
                    if j != i
                )
            printed = float(np.max(np.abs((ours - wrong) * s)))
        measured.append(Measured(dict.fromkeys(GRADIENT, max(missed)), printed=printed))
    return measured


def _closest(rng: np.random.Generator) -> Spectrum:
    """Values so close that the differences have lost their digits."""
    return Spectrum(np.array([0.7 * (1 + 1e-9), 0.7]), math.inf)


LEMMA_GRADIENT = Check(
    id="geometry/lemma-4.3.3",
    source="Lemma 4.3.3",
    statement=(
        "∂S_L/∂s_i = Σ_{j≠i} s_i/(s_i² - s_j²) - s_i^{2/L-1}/(L(s_i^{2/L} - s_j^{2/L})), and "
        "s_i/(s_i² - s_j²) - 1/(s_i ln(s_i²/s_j²)) at infinite depth."
    ),
    hypotheses=(SQUARE, DISTINCT),
    tolerances=GRADIENT,
    measure=_measure_gradient,
    draw=lambda rng: (
        dataclasses.replace(draw_entropic(rng), depth=int(rng.choice([3, 5])))
        if rng.random() < 0.7
        else draw_entropic(rng)
    ),
    violations=(Violation("values that agree to nine digits, where the printed differences cancel", _closest),),
    printed="The second numerator is σ^{(2-N)/N}, without the index i.",
    printed_tolerance=1e-10,
    adopt=adopt_entropic,
)

MATRIX = {"|⟨∂S/∂X, Z⟩ - difference quotient| over |∂S/∂X| |Z|": 1e-7}


def _measure_matrix(places: Sequence[Place]) -> list[Measured]:
    measured = []
    for place in places:
        step = 1e-5 * float(np.linalg.svd(place.point, compute_uv=False)[-1])
        way = place.vector / np.linalg.norm(place.vector)
        ends = [
            plain_entropy(np.linalg.svd(place.point + t * way, compute_uv=False), place.depth) for t in (step, -step)
        ]
        force = np.asarray(entropy_force(place.point, place.depth))
        missed = abs(float(np.sum(force * way)) - (ends[0] - ends[1]) / (2 * step)) / np.linalg.norm(force)
        measured.append(Measured(dict.fromkeys(MATRIX, float(missed))))
    return measured


def _draw_matrix(rng: np.random.Generator) -> Place:
    """One in three with two equal singular values."""
    place = draw_place(rng, SIZES)
    if rng.random() < 1 / 3:
        left, values, right = np.linalg.svd(place.point)
        values[1] = values[0]
        place = dataclasses.replace(place, point=(left * values) @ right)
    return place


def _kink(rng: np.random.Generator) -> Place:
    """So close to a singular matrix that a step reaches across."""
    return Place(np.diag([1.0, 0.0]) + 1e-14, np.array([[0.0, 0.3], [0.5, 1.0]]), 2)


EQUATION_FORCE = Check(
    id="geometry/equation-4.53",
    source="Equation (4.53)",
    statement="∂S/∂X = U diag(∂S/∂s) Vᵀ, also where singular values are equal.",
    hypotheses=(
        Hypothesis("a square matrix", lambda p: float(p.point.shape[0] != p.point.shape[1])),
        Hypothesis("of full rank: 10⁻⁶ s₁ - s_d", lambda p: _thin(p.point)),
    ),
    tolerances=MATRIX,
    measure=_measure_matrix,
    draw=_draw_matrix,
    violations=(Violation("a matrix that is singular to rounding", _kink),),
    adopt=adopt_place,
)


def _thin(point: np.ndarray) -> float:
    values = np.linalg.svd(point, compute_uv=False)
    return float(1e-6 * values[0] - values[-1])


# --- Concavity --------------------------------------------------------------------------------------------------------

CONCAVE = {
    "mean of S at two spectra less S at their middle, over the squared distance of logarithms": -1e-4,
    "largest eigenvalue of the scaled Hessian": -0.02,
}


def _measure_concave(spectra: Sequence[Spectrum]) -> list[Measured]:
    measured = []
    for spectrum in spectra:
        s, t, depth = spectrum.values, spectrum.other, spectrum.depth
        mean = (plain_entropy(s, depth) + plain_entropy(t, depth)) / 2
        bend = (mean - plain_entropy((s + t) / 2, depth)) / float(np.sum(np.log(s / t) ** 2))
        top = float(concavity_spectrum(s, depth)[-1])
        measured.append(Measured(dict(zip(CONCAVE, (bend, top), strict=True))))
    return measured


def _two_layers(rng: np.random.Generator) -> Spectrum:
    """Equal sums: with two layers the entropy is ½ ln(s_1 + s_2)."""
    return Spectrum(np.array([3.0, 1.0]), 2, np.array([2.5, 1.5]))


LEMMA_CONCAVE = Check(
    id="geometry/lemma-4.3.5",
    source="Lemma 4.3.5",
    statement="S_∞ is strictly concave in the singular values.",
    hypotheses=(SQUARE, DEEP),
    tolerances=CONCAVE,
    measure=_measure_concave,
    draw=lambda rng: endless(draw_entropic(rng)),
    violations=(Violation("two layers, two singular values, equal sums", _two_layers),),
)

PAIRS = {
    "1/3 - (1 + u)(ℒ² + 4ℒ/u - 1)": 1e-9,
    "|ℒ² + 4ℒ/u - 1 - four times the scaled determinant|": 1e-9,
}


def _measure_pairs(spectra: Sequence[Spectrum]) -> list[Measured]:
    measured = []
    for spectrum in spectra:
        u = float(np.log(spectrum.values[0] / spectrum.values[1]))
        function = 1 / math.tanh(u) - 1 / u
        criterion = function**2 + 4 * function / u - 1
        numbers = (1 / 3 - (1 + u) * criterion, abs(float(pair_concavity(u, spectrum.depth)) - criterion))
        measured.append(Measured(dict(zip(PAIRS, numbers, strict=True))))
    return measured


def _draw_pair(rng: np.random.Generator) -> Spectrum:
    u = float(np.exp(rng.uniform(np.log(0.01), np.log(400.0))))
    return Spectrum(np.exp(np.array([u / 2, -u / 2])), math.inf)


PAIR_CRITERION = Check(
    id="geometry/pair-concavity",
    source="after Lemma 4.3.5",
    statement=(
        "The entropy of a pair with u = ln(s_i/s_j) is strictly concave if and only if ℒ(u)² + 4ℒ(u)/u > 1, ℒ the "
        "Langevin function, and the left side exceeds 1 by at least 1/(3 + 3u)."
    ),
    hypotheses=(SQUARE, DISTINCT, DEEP),
    tolerances=PAIRS,
    measure=_measure_pairs,
    draw=_draw_pair,
    violations=(Violation("two layers", lambda rng: dataclasses.replace(_draw_pair(rng), depth=2)),),
)

# --- The force between two singular values ----------------------------------------------------------------------------

FALLING = {"largest g(s_i, s_j) less g at a smaller s_i, over g": -1e-4}


def _measure_falling(spectra: Sequence[Spectrum]) -> list[Measured]:
    """Over a grid of ratios on both sides of one, at the scale of the instance."""
    measured = []
    for spectrum in spectra:
        other = spectrum.values[-1]
        points = other * np.exp(np.linspace(-6.05, 6.0, 60))
        curve = np.array([plain_pair(a, other, spectrum.depth) for a in points])
        library = np.array([float(entropy_gradient(np.array([a, other]), spectrum.depth)[0]) for a in points[::20]])
        rise = float(np.max((curve[1:] - curve[:-1]) / (np.abs(curve[:-1]) + 1e-300)))
        off = float(np.max(np.abs(library - curve[::20]) * points[::20]))
        measured.append(Measured(dict.fromkeys(FALLING, rise if off < 1e-9 else math.inf), facts={"off": off}))
    return measured


LEMMA_FALLING = Check(
    id="geometry/lemma-4.3.6-1",
    source="Lemma 4.3.6, 1",
    statement="The force g(s_i, s_j) = ∂S/∂s_i of one pair falls as s_i grows, on both sides of s_j.",
    hypotheses=(SQUARE, Hypothesis("depth at least two", lambda s: 2.0 - s.depth)),
    tolerances=FALLING,
    measure=_measure_falling,
    draw=draw_entropic,
    violations=(
        Violation("a single layer, without entropy", lambda rng: dataclasses.replace(draw_entropic(rng), depth=1)),
    ),
    adopt=adopt_entropic,
)

LIMITING = {"|s g(s, s) - ½|": ROUNDING, "|s g(s(1+h), s) - ½| / h at h = 10⁻³": 1.0}


def _measure_limiting(spectra: Sequence[Spectrum]) -> list[Measured]:
    measured = []
    for spectrum in spectra:
        s = float(spectrum.values[-1])
        equal = float(entropy_gradient(np.array([s, s]), spectrum.depth)[0])
        near = plain_pair(1.001 * s, s, spectrum.depth)
        numbers = (abs(s * equal - 0.5), abs(s * near - 0.5) / 1e-3)
        measured.append(Measured(dict(zip(LIMITING, numbers, strict=True))))
    return measured


LEMMA_LIMITING = Check(
    id="geometry/lemma-4.3.6-3",
    source="Lemma 4.3.6, 3",
    statement="g(s_i, s_j) → 1/(2 s_j) as s_i → s_j, at infinite depth.",
    hypotheses=(SQUARE, DEEP),
    tolerances=LIMITING,
    measure=_measure_limiting,
    draw=lambda rng: endless(draw_entropic(rng)),
    violations=(Violation("finite depth, where the limit is (1 - 1/L)/(2s)", _finite_depth),),
)

# --- Effective rank ---------------------------------------------------------------------------------------------------

WIDTH = 160
"""Of the Gaussian matrices. The share of a width d lies 0.24/d below its limit, with a standard deviation of 0.32/d."""

GAUSSIAN = {
    "|effective rank over width - 2e^{4/3}/(3π)|": (0.24 + 6 * 0.32) / WIDTH,
    "effective rank less the rank, or one less it": 1e-9,
}


def _measure_gaussian(matrices: Sequence[np.ndarray]) -> list[Measured]:
    measured = []
    for matrix in matrices:
        rank = float(effective_rank(matrix))
        bounds = max(rank - len(matrix), 1 - rank)
        numbers = (abs(rank / len(matrix) - gaussian_rank_share()), bounds)
        measured.append(Measured(dict(zip(GAUSSIAN, numbers, strict=True)), facts={"share": rank / len(matrix)}))
    return measured


GAUSSIAN_RANK = Check(
    id="geometry/gaussian-effective-rank",
    source="Section 4.2",
    statement="The effective rank of a large d × d Gaussian matrix is near 2e^{4/3}/(3π) d = 0.805041 d.",
    hypotheses=(Hypothesis("a large square matrix", lambda m: float(m.shape[0] != m.shape[1] or len(m) < 100)),),
    tolerances=GAUSSIAN,
    measure=_measure_gaussian,
    draw=lambda rng: rng.standard_normal((WIDTH, WIDTH)),
    version=2,
    violations=(
        Violation("entries of one sign", lambda rng: np.abs(rng.standard_normal((WIDTH, WIDTH)))),
        # Two values that are at most e^{1/2} apart have an effective rank of at least 0.97 times two.
        Violation("small", lambda rng: np.diag(draw_spectrum(rng, 2, 0.25))),
    ),
)

CHECKS = (
    REMARK_VANDERMONDE,
    LEMMA_GRADIENT,
    EQUATION_FORCE,
    LEMMA_CONCAVE,
    PAIR_CRITERION,
    LEMMA_FALLING,
    LEMMA_LIMITING,
    GAUSSIAN_RANK,
)
