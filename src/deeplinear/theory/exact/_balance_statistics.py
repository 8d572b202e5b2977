"""How balanced random layers are: moments, tables, spectrum, the algorithm of balanced layers, low-rank adapters."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from deeplinear.core import random
from deeplinear.exact import (
    balance_moments,
    expected_lambda,
    lambda_limits,
    lambda_range,
    lambda_sign_boundary,
    lambda_variance,
    layer_variances,
)
from deeplinear.models import DeepLinear, Glorot, He, LeCun, Scaled
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation

ROUNDING = 1e-12
"""A few thousand roundings."""


# --- Moments of the balance -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Moments:
    """Widths, variances, and the kurtosis of the entries, which is 3 for normal ones."""

    widths: tuple[int, int, int]
    variances: tuple[float, float]
    kurtosis: float = 3.0


def _averages(case: Moments) -> tuple[float, float, float]:
    """Mean, variance on the diagonal and off it, as finite sums.

    An entry on the diagonal has the squares of n_0 + n_2 weights; a law on three points has the wanted moments up to
    the fifth. One off the diagonal has products of two weights each, and random signs do.
    """
    inp, _, out = case.widths
    v1, v2 = case.variances
    node, weight = math.sqrt(case.kurtosis), 0.5 / case.kurtosis
    points, weights = np.array([-node, 0.0, node]), np.array([weight, 1 - 2 * weight, weight])
    grid = np.array(list(itertools.product(range(3), repeat=inp + out)))
    chance = np.prod(weights[grid], axis=1)
    squares = points[grid] ** 2
    entry = v2 * squares[:, inp:].sum(axis=1) - v1 * squares[:, :inp].sum(axis=1)
    mean = float(chance @ entry)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=2 * (inp + out))))
    below, above = signs[:, : 2 * inp].reshape(-1, 2, inp), signs[:, 2 * inp :].reshape(-1, 2, out)
    off = v2 * np.sum(above[:, 0] * above[:, 1], axis=1) - v1 * np.sum(below[:, 0] * below[:, 1], axis=1)
    return mean, float(chance @ (entry - mean) ** 2), float(np.mean(off**2))


def _measure_moments(cases: Sequence[Moments]) -> list[Measured]:
    measured = []
    for case in cases:
        mean, diagonal, off = _averages(case)
        told = balance_moments(case.widths, case.variances)
        printed = balance_moments(case.widths, case.variances, as_printed=True)
        size = case.widths[2] * case.variances[1] + case.widths[0] * case.variances[0]
        measured.append(
            Measured(
                {
                    MEAN: abs(float(told.mean) - mean) / size,
                    DIAGONAL: abs(float(told.diagonal) / diagonal - 1),
                    OFF: abs(float(told.off_diagonal) / off - 1),
                },
                printed=abs(float(printed.diagonal) / diagonal - 1),
                facts={"mean": mean, "variance on the diagonal": diagonal, "off it": off},
            )
        )
    return measured


MEAN = "mean, relative to its two terms"
DIAGONAL = "variance on the diagonal, relative"
OFF = "variance off the diagonal, relative"


def _draw_moments(rng: np.random.Generator) -> Moments:
    inp, out = ((3, 2), (2, 3), (4, 1), (1, 4), (2, 2), (1, 1))[rng.integers(6)]
    v1, v2 = 10 ** rng.uniform(-1, 1, size=2)
    return Moments((inp, int(rng.integers(2, 6)), out), (float(v1), float(v2)))


ERRATUM_DIAGONAL_VARIANCE = Check(
    id="exact/erratum-diagonal-variance",
    source="Theorem A.3",
    statement=(
        "For independent normal layers the balance W₂ᵀW₂ − W₁W₁ᵀ has the mean (N_o σ₂² − N_i σ₁²) I and entries of the "
        "variance b = N_o σ₂⁴ + N_i σ₁⁴ off the diagonal, 2b on it."
    ),
    hypotheses=(Hypothesis("normal entries", lambda case: abs(case.kurtosis - 3.0)),),
    tolerances={MEAN: ROUNDING, DIAGONAL: ROUNDING, OFF: ROUNDING},
    measure=_measure_moments,
    draw=_draw_moments,
    violations=(
        Violation("uniform entries", lambda rng: dataclasses.replace(_draw_moments(rng), kurtosis=1.8)),
        Violation("entries of heavier tails", lambda rng: dataclasses.replace(_draw_moments(rng), kurtosis=6.0)),
    ),
    printed="The variance on the diagonal is 4b.",
    printed_tolerance=ROUNDING,
)


# --- Tables -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Ratios:
    """An initialisation by name, gains as fractions, ratios of widths k and r; `widths` are (den, k den, r den)."""

    name: str
    gains: tuple[Fraction, Fraction]
    k: Fraction
    r: Fraction
    told_k: Fraction | None = None

    @property
    def init(self) -> LeCun | He | Glorot | Scaled:
        if self.name == "Scaled":
            return Scaled([float(gain) for gain in self.gains])
        return {"LeCun": LeCun(), "He": He(), "Glorot": Glorot()}[self.name]

    @property
    def widths(self) -> tuple[int, int, int]:
        scale = self.k.denominator * self.r.denominator
        return scale, int(self.k * scale), int(self.r * scale)

    @property
    def pair(self) -> tuple[float, float]:
        """What the formulas are told."""
        return float(self.k if self.told_k is None else self.told_k), float(self.r)

    @property
    def variances(self) -> tuple[Fraction, Fraction]:
        """By the definitions of the initialisations."""
        n0, n1, n2 = (Fraction(n) for n in self.widths)
        if self.name == "Glorot":
            return 2 / (n0 + n1), 2 / (n1 + n2)
        first, second = {"He": (Fraction(2), Fraction(2)), "Scaled": tuple(g**2 for g in self.gains)}.get(
            self.name, (Fraction(1), Fraction(1))
        )
        return first / n0, second / n1

    @property
    def lam(self) -> Fraction:
        v1, v2 = self.variances
        return self.widths[2] * v2 - self.widths[0] * v1


NAMES = ("LeCun", "He", "Glorot", "Scaled")


def _draw_ratios(rng: np.random.Generator, *names: str) -> Ratios:
    k, r, first, second = (Fraction(int(rng.integers(1, 40)), int(rng.integers(1, 20))) for _ in range(4))
    return Ratios(str(rng.choice(names or NAMES)), (first, second), k, r)


def _other_k(case: Ratios) -> Ratios:
    return dataclasses.replace(case, told_k=case.k * Fraction(101, 100))


def _measure_tables(cases: Sequence[Ratios]) -> list[Measured]:
    measured = []
    for case in cases:
        v1, v2 = case.variances
        inp, _, out = case.widths
        size, base = float(out * v2 + inp * v1), float(inp * (out * v2**2 + inp * v1**2))
        finite = balance_moments(case.widths, layer_variances(case.init, case.widths))
        lam = float(expected_lambda(case.init, *case.pair))
        variance = float(lambda_variance(case.init, *case.pair))
        printed = float(lambda_variance(case.init, *case.pair, as_printed=True))
        measured.append(
            Measured(
                {
                    TABLE_1: abs(float(finite.mean) - float(case.lam)) / size,
                    TABLE_2: abs(lam - float(case.lam)) / size,
                    VARIANCE_1: abs(float(finite.off_diagonal) * inp / base - 1),
                    VARIANCE_2: abs(variance / base - 1),
                },
                printed=abs(printed / base - 1),
                facts={"λ": lam, "N times the variance": variance, "as printed": printed},
            )
        )
    return measured


TABLE_1 = "mean by widths, relative to its two terms"
TABLE_2 = "mean by ratios, relative to its two terms"
VARIANCE_1 = "variance by widths, relative"
VARIANCE_2 = "variance by ratios, relative"
TABLES = {TABLE_1: ROUNDING, TABLE_2: ROUNDING, VARIANCE_1: ROUNDING, VARIANCE_2: ROUNDING}
POSITIVE: Hypothesis[Ratios] = Hypothesis("at least one unit in each layer", lambda case: 1.0 - min(case.widths))

TABLES_1_2 = Check(
    id="exact/tables-1-2",
    source="Tables 1 and 2",
    statement=(
        "At widths (N, kN, rN) the mean of λ is r/k − 1 (LeCun), 2(r/k − 1) (He), 2(r/(k+r) − 1/(k+1)) (Glorot), "
        "(r/k)α₂² − α₁² (Scaled), and N times the variance off the diagonal r/k² + 1, 4(r/k² + 1), "
        "4(r/(r+k)² + 1/(k+1)²), rα₂⁴/k² + α₁⁴."
    ),
    hypotheses=(POSITIVE,),
    tolerances=TABLES,
    measure=lambda cases: [dataclasses.replace(m, printed=None) for m in _measure_tables(cases)],
    draw=_draw_ratios,
    violations=(
        Violation("the hidden layer one per cent wider in the formula", lambda rng: _other_k(_draw_ratios(rng))),
    ),
)

ERRATUM_SCALED_VARIANCE = Check(
    id="exact/erratum-scaled-variance",
    source="Table 2, row Scaled",
    statement="N times the variance off the diagonal is rα₂⁴/k² + α₁⁴ for scaled initialisation.",
    hypotheses=(POSITIVE,),
    tolerances=TABLES,
    measure=_measure_tables,
    draw=lambda rng: _draw_ratios(rng, "Scaled"),
    violations=(
        Violation(
            "the hidden layer one per cent wider in the formula", lambda rng: _other_k(_draw_ratios(rng, "Scaled"))
        ),
    ),
    printed="It is rα₂²/k² + α₁².",
    printed_tolerance=1e-9,  # α = 1 makes them equal
)


def _measure_scaled(cases: Sequence[Ratios]) -> list[Measured]:
    """The variance of sampled weights, in standard errors, and the mean that the text's variance would give."""
    measured = []
    for case in cases:
        first, second = (float(g) for g in case.gains)
        widths = (50, 40, 30)
        layers = Scaled([first, second])(DeepLinear(widths), random.key(int(1000 * first) + int(case.k)))
        told = [g**2 / n for g, n in zip((first, second), widths, strict=False)]
        if case.told_k is not None:
            told = [math.sqrt(v / n) for v, n in zip(told, widths, strict=False)]
        worst = max(
            abs(float(np.mean(np.asarray(layer) ** 2)) / v - 1) / math.sqrt(2 / layer.size)
            for layer, v in zip(layers, told, strict=True)
        )
        k, r = case.pair
        table = r / k * second**2 - first**2
        text = r / k * second - first
        measured.append(
            Measured(
                {"variance of the weights, in standard errors": worst},
                printed=abs(text - table),
                facts={"λ of the tables": table, "λ of the variance α/N": text},
            )
        )
    return measured


ERRATUM_SCALED_WEIGHTS = Check(
    id="exact/erratum-scaled-weights",
    source="Appendix A.3, scaled initialisation",
    statement="Weights of scaled initialisation have the variance α²/N, which gives the mean of Tables 1 and 2.",
    hypotheses=(POSITIVE,),
    tolerances={"variance of the weights, in standard errors": 6.0},
    measure=_measure_scaled,
    draw=lambda rng: _draw_ratios(rng, "Scaled"),
    violations=(
        Violation(
            "another variance, α/N",
            lambda rng: dataclasses.replace(_other_k(_draw_ratios(rng, "Scaled")), gains=(Fraction(2), Fraction(3))),
        ),
    ),
    printed="They have the variance α/N.",
    printed_tolerance=1e-9,  # α = 1 makes them equal
)


# --- Limits, range and sign -------------------------------------------------------------------------------------------

FAR = 10**13


def _at(case: Ratios, k: Fraction, r: Fraction) -> float:
    """λ at other ratios, by the definitions and in fractions."""
    return float(dataclasses.replace(case, k=k, r=r).lam)


def _measure_limits(cases: Sequence[Ratios]) -> list[Measured]:
    measured = []
    for case in cases:
        k, r = case.k, case.r
        truth = {
            "equal": _at(case, k, k),
            "small_r": _at(case, k, r / FAR),
            "large_r": _at(case, k, r * FAR),
            "large_k": _at(case, k * FAR, r),
            "small_k": _at(case, k / FAR, r),
        }
        if case.name == "Scaled":
            truth["matched"] = _at(case, k, k * (case.gains[0] / case.gains[1]) ** 2)
        diverging = {"large_r", "small_k"} if case.name != "Glorot" else set()

        def distance(as_printed: bool, case: Ratios = case, truth: dict = truth, diverging: set = diverging) -> float:
            told = lambda_limits(case.init, *case.pair, as_printed=as_printed)._asdict()
            size = 1 + max(float(g) ** 2 for g in case.gains) * (1 + case.pair[1] / case.pair[0])
            return max(
                abs(value / (FAR if name in diverging else 1) - float(told[name])) / size
                for name, value in truth.items()
            )

        measured.append(Measured({LIMITS: distance(False)}, printed=distance(True)))
    return measured


LIMITS = "largest distance of λ at ratios of 10¹³ from its limit, relative to its terms"

ERRATUM_GLOROT_LIMITS = Check(
    id="exact/erratum-glorot-limits",
    source="Table 3, row Glorot",
    statement=(
        "The limits of λ for Glorot initialisation are (k−1)/(k+1) for r = k, −2/(k+1) for r → 0, 2k/(k+1) for r → ∞, "
        "and 0 for k → ∞ and k → 0."
    ),
    hypotheses=(POSITIVE,),
    tolerances={LIMITS: 1e-9},  # corrections of order 1e-13 times ratios up to 800
    measure=_measure_limits,
    draw=lambda rng: _draw_ratios(rng, "Glorot"),
    violations=(Violation("the hidden layer wider in the table", lambda rng: _other_k(_draw_ratios(rng, "Glorot"))),),
    printed="They are 0, 2, 2, 0 and −2/(k+1).",
    printed_tolerance=1e-9,
)

TABLE_3 = Check(
    id="exact/table-3",
    source="Table 3",
    statement=(
        "For extreme ratios of widths λ tends to what Table 3 says, with the row of Glorot initialisation corrected; "
        "where it diverges, its leading term is r/k times the same constant."
    ),
    hypotheses=(POSITIVE,),
    tolerances={LIMITS: 1e-9},
    measure=lambda cases: [dataclasses.replace(m, printed=None) for m in _measure_limits(cases)],
    draw=_draw_ratios,
    violations=(
        Violation(
            "the hidden layer wider in the table", lambda rng: _other_k(_draw_ratios(rng, "LeCun", "He", "Glorot"))
        ),
    ),
)


def _measure_range(cases: Sequence[Ratios]) -> list[Measured]:
    measured = []
    for case in cases:
        (low, high), (printed, _) = lambda_range(case.init), lambda_range(case.init, as_printed=True)
        if case.told_k is not None:
            low = low + 1
        lam, least = float(case.lam), _at(case, case.k * FAR, case.r)
        if case.name == "Glorot":
            least = float(dataclasses.replace(case, k=Fraction(1, FAR), r=Fraction(1, FAR**2)).lam)
        measured.append(
            Measured(
                {
                    "λ outside of its range": max(low - lam, lam - high),
                    "lower bound not approached": abs(least - low) / (1 + abs(low)),
                },
                printed=printed - lam,
                facts={"λ": lam, "lower bound": low, "as printed": printed},
            )
        )
    return measured


RANGE = {"λ outside of its range": 0.0, "lower bound not approached": 1e-4}

ERRATUM_LECUN_BOUND = Check(
    id="exact/erratum-lecun-bound",
    source="Appendix A.3, after Table 2",
    statement="For LeCun initialisation λ > −1, and no larger bound holds.",
    hypotheses=(POSITIVE,),
    tolerances=RANGE,
    measure=_measure_range,
    draw=lambda rng: _draw_ratios(rng, "LeCun"),
    violations=(Violation("a bound larger by one", lambda rng: _other_k(_draw_ratios(rng, "LeCun"))),),
    printed="For LeCun initialisation λ ≥ 0.",
)


def _measure_slope(cases: Sequence[Ratios]) -> list[Measured]:
    """Differences in fractions have no rounding; the step is small enough not to cross a change of sign."""
    measured = []
    for case in cases:
        step = case.k / 10**6
        rise = _exact_difference(case, step)
        told = case.k if case.told_k is None else case.told_k
        sign = (case.r - 1) * (case.r - told**2)
        wrong = float(np.sign(float(rise)) != np.sign(float(sign)))
        slope = float(rise / (2 * step))
        measured.append(Measured({"sign of dλ/dk": wrong}, printed=slope, facts={"dλ/dk": slope}))
    return measured


def _exact_difference(case: Ratios, step: Fraction) -> Fraction:
    below, above = (dataclasses.replace(case, k=case.k + s).lam for s in (-step, step))
    return above - below


def _draw_slope(rng: np.random.Generator) -> Ratios:
    """Away from the two places where the slope vanishes."""
    while True:
        case = _draw_ratios(rng, "Glorot")
        if case.r != 1 and abs(float(case.k**2 / case.r) - 1) > 1e-3:
            return case


ERRATUM_GLOROT_SLOPE = Check(
    id="exact/erratum-glorot-slope",
    source="Appendix A.3, after Table 2",
    statement="For Glorot initialisation dλ/dk has the sign of (r − 1)(r − k²).",
    hypotheses=(POSITIVE, Hypothesis("r ≠ 1", lambda case: float(case.r == 1))),
    tolerances={"sign of dλ/dk": 0.0},
    measure=_measure_slope,
    draw=_draw_slope,
    violations=(
        Violation(
            "k on the other side of √r in the rule",
            lambda rng: dataclasses.replace(case := _draw_slope(rng), told_k=case.r / case.k),
        ),
    ),
    printed="A larger k lowers λ in every initialisation.",
)


def _measure_sign(cases: Sequence[Ratios]) -> list[Measured]:
    measured = []
    for case in cases:
        told = case.k if case.told_k is None else case.told_k
        boundary = float(lambda_sign_boundary(case.init, float(told)))
        signs = [np.sign(_at(case, case.k * factor, case.r)) for factor in (Fraction(1, 50), 1, 50)]
        lam = float(case.lam)
        measured.append(
            Measured(
                {
                    "sign of λ against the side of the boundary": float(
                        np.sign(lam) != np.sign(float(case.r) - boundary)
                    )
                },
                printed=float(len(set(signs)) == 1),
                facts={"λ": lam, "boundary": boundary},
            )
        )
    return measured


def _draw_sign(rng: np.random.Generator, *names: str) -> Ratios:
    """Not on the boundary itself, where rounding decides."""
    while True:
        case = _draw_ratios(rng, *names)
        v1, v2 = case.variances
        if abs(float(case.lam)) > 1e-9 * float(case.widths[2] * v2 + case.widths[0] * v1):
            return case


SIGN = {"sign of λ against the side of the boundary": 0.0}

SIGNS = Check(
    id="exact/figure-7",
    source="Figure 7",
    statement="λ > 0 where r > k (LeCun, He), r > k α₁²/α₂² (Scaled), r > 1 (Glorot).",
    hypotheses=(POSITIVE,),
    tolerances=SIGN,
    measure=lambda cases: [dataclasses.replace(m, printed=None) for m in _measure_sign(cases)],
    draw=_draw_sign,
    violations=(
        Violation(
            "the boundary at another hidden width",
            lambda rng: dataclasses.replace(case := _draw_sign(rng, "LeCun", "He"), told_k=case.r**2 / case.k),
        ),
    ),
)

ERRATUM_GLOROT_SIGN = Check(
    id="exact/erratum-glorot-sign",
    source="Figure 7, caption",
    statement="For Glorot initialisation the sign of λ is that of N_{i+2} − N_i, whatever the hidden width.",
    hypotheses=(POSITIVE, Hypothesis("Glorot initialisation", lambda case: float(case.name != "Glorot"))),
    tolerances=SIGN,
    measure=_measure_sign,
    draw=lambda rng: _draw_sign(rng, "Glorot"),
    violations=(
        Violation(
            "LeCun initialisation with the boundary of another hidden width",
            lambda rng: dataclasses.replace(case := _draw_sign(rng, "LeCun"), told_k=case.r**2 / case.k),
        ),
    ),
    printed="The sign depends on both ratios: it changes with the hidden width.",
)

CHECKS = (
    ERRATUM_DIAGONAL_VARIANCE,
    TABLES_1_2,
    ERRATUM_SCALED_VARIANCE,
    ERRATUM_SCALED_WEIGHTS,
    TABLE_3,
    ERRATUM_GLOROT_LIMITS,
    ERRATUM_LECUN_BOUND,
    ERRATUM_GLOROT_SLOPE,
    SIGNS,
    ERRATUM_GLOROT_SIGN,
)
