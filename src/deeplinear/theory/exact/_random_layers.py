"""Statements on random layers: their entries, balanced ones, and low-rank adapters."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from deeplinear.core import random
from deeplinear.exact import (
    adapter_lambda,
    adapter_layers,
    balance_moments,
    balance_spread,
    layer_variances,
)
from deeplinear.models import DeepLinear, Glorot, He, LambdaBalanced, LeCun, Scaled, lambda_estimate
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.exact._balance_statistics import ROUNDING


@dataclasses.dataclass(frozen=True, eq=False)
class Growth:
    """An initialisation, widths in a proportion, how much they grow, and a seed."""

    init: LeCun | He | Glorot | Scaled
    widths: tuple[int, int, int]
    seed: int
    factor: int = 4
    hidden_factor: int | None = None

    @property
    def grown(self) -> tuple[int, int, int]:
        inp, hidden, out = self.widths
        middle = self.factor if self.hidden_factor is None else self.hidden_factor
        return inp * self.factor, hidden * middle, out * self.factor


def _residuals(
    init: LeCun | He | Glorot | Scaled, widths: tuple[int, int, int], seed: int
) -> tuple[float, float, float]:
    """Root mean square entry and operator norm of C - λI of a sample, and the norm that is predicted."""
    rng = np.random.default_rng(seed)
    inp, hidden, out = widths
    variances = layer_variances(init, widths)
    first = math.sqrt(float(variances[0])) * rng.normal(size=(hidden, inp))
    second = math.sqrt(float(variances[1])) * rng.normal(size=(out, hidden))
    rest = second.T @ second - first @ first.T - float(balance_moments(widths, variances).mean) * np.eye(hidden)
    predicted = float(balance_spread(widths, variances).operator)
    return float(np.sqrt(np.mean(rest**2))), float(np.abs(np.linalg.eigvalsh(rest)).max()), predicted


def _measure_growth(cases: Sequence[Growth]) -> list[Measured]:
    measured = []
    for case in cases:
        entry, operator, _ = _residuals(case.init, case.widths, case.seed)
        wide_entry, wide_operator, predicted = _residuals(case.init, case.grown, case.seed + 1)
        measured.append(
            Measured(
                {
                    "typical entry at four times the widths, relative": wide_entry / entry,
                    "operator norm against the edge of the spectrum, relative": abs(wide_operator / predicted - 1),
                },
                printed=wide_operator / operator,
                facts={"operator norm": operator, "at four times the widths": wide_operator, "edge": predicted},
            )
        )
    return measured


def _draw_growth(rng: np.random.Generator) -> Growth:
    init = (LeCun(), He(), Glorot(), Scaled([1.0, 2.0]))[rng.integers(4)]
    return Growth(init, ((40, 40, 40), (40, 50, 30), (50, 40, 60))[rng.integers(3)], int(rng.integers(2**30)))


ERRATUM_CONCENTRATION = Check(
    id="exact/erratum-concentration",
    source="Appendix A.3, after Table 2",
    statement=(
        "As the widths grow in proportion every entry of the balance tends to that of λI, but ‖Bal − λI‖ in operator "
        "norm tends to a positive number, the edge of a free convolution of two Marchenko-Pastur laws."
    ),
    hypotheses=(
        Hypothesis("the same ratios of widths", lambda case: float(case.hidden_factor not in (None, case.factor))),
        Hypothesis("wide layers", lambda case: 25.0 - min(case.widths)),
    ),
    # Entries of standard deviation ~ n^(-1/2) halve, to three per cent for n = 40; extreme eigenvalues scatter by a few
    # per cent at 160 and more hidden units.
    tolerances={
        "typical entry at four times the widths, relative": 0.6,
        "operator norm against the edge of the spectrum, relative": 0.2,
    },
    measure=_measure_growth,
    draw=_draw_growth,
    violations=(Violation("nothing grows", lambda rng: dataclasses.replace(_draw_growth(rng), factor=1)),),
    printed="The balance converges in probability to λI: its distance shrinks as the widths grow.",
    printed_tolerance=0.7,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Request:
    """Widths and λ asked for, the λ that is held against the result, and a seed."""

    widths: tuple[int, int, int]
    lam: float
    seed: int
    told: float | None = None


def _feasible(widths: tuple[int, int, int], lam: float) -> bool:
    inp, hidden, out = widths
    return not (lam > 0 and out < hidden) and not (lam < 0 and inp < hidden)


def _printed_guards(widths: tuple[int, int, int], lam: float) -> bool:
    """Whether the printed algorithm goes on; it has no branch for equal widths of input and output."""
    inp, hidden, out = widths
    refused = (out > inp and lam < 0) or (inp > out and lam > 0) or hidden < min(inp, out)
    return not refused and not (hidden > max(inp, out) and lam != 0) and inp != out


def _printed_layers(
    widths: tuple[int, int, int], lam: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The printed algorithm, hidden directions without a singular value left at zero."""
    inp, hidden, out = widths
    product = rng.normal(size=(out, hidden)) @ rng.normal(size=(hidden, inp))
    left, values, right_t = np.linalg.svd(product)
    turn = np.linalg.qr(rng.normal(size=(hidden, hidden)))[0]
    modes = min(widths)
    root = np.sqrt(lam**2 + 4 * values[:modes] ** 2)
    first, second = np.zeros((hidden, inp)), np.zeros((out, hidden))
    first[:modes, :modes] = np.diag(np.sqrt((root - lam) / 2))
    second[:modes, :modes] = np.diag(np.sqrt((root + lam) / 2))
    return turn @ first @ right_t, left @ second @ turn.T


def _measure_padding(cases: Sequence[Request]) -> list[Measured]:
    measured = []
    for case in cases:
        params = LambdaBalanced(case.lam, 1.0)(DeepLinear(case.widths), random.key(case.seed))
        told = case.lam if case.told is None else case.told
        first, second = _printed_layers(case.widths, case.lam, np.random.default_rng(case.seed))
        ours, printed = (
            float(
                np.linalg.norm(
                    np.asarray(b).T @ np.asarray(b) - np.asarray(a) @ np.asarray(a).T - told * np.eye(len(a))
                )
            )
            for a, b in (params, (first, second))
        )
        measured.append(Measured({"‖W₂ᵀW₂ − W₁W₁ᵀ − λI‖": ours}, printed=printed))
    return measured


def _draw_request(rng: np.random.Generator) -> Request:
    """A hidden layer wider than the narrower of the others, so that there are directions to fill."""
    widths = ((2, 3, 4), (4, 3, 2))[rng.integers(2)]
    sign = 1.0 if widths[2] > widths[0] else -1.0
    return Request(widths, sign * float(rng.uniform(0.5, 3.0)), int(rng.integers(2**30)))


ERRATUM_PADDING = Check(
    id="exact/erratum-padding",
    source="Algorithm 1",
    statement=(
        "Random layers from the singular value decomposition of a Gaussian product are λ-balanced if hidden directions "
        "without a singular value get the strength √|λ| in the larger layer."
    ),
    hypotheses=(Hypothesis("feasible", lambda case: float(not _feasible(case.widths, case.lam))),),
    tolerances={"‖W₂ᵀW₂ − W₁W₁ᵀ − λI‖": ROUNDING},
    measure=_measure_padding,
    draw=_draw_request,
    violations=(
        Violation(
            "another λ held against them",
            lambda rng: dataclasses.replace(case := _draw_request(rng), told=case.lam + 0.01),
        ),
    ),
    printed="They get zeros.",
    printed_tolerance=1e-9,
)


def _measure_guards(cases: Sequence[Request]) -> list[Measured]:
    """Whether layers are given exactly where they exist, and whether the printed guards say so."""
    measured = []
    for case in cases:
        try:
            params = LambdaBalanced(case.lam, 1.0)(DeepLinear(case.widths), random.key(case.seed))
            found = lambda_estimate(params)
            given = True
            residual = float(abs(found.lam[0] - case.lam) + found.frobenius[0])
        except ValueError:
            given, residual = False, 0.0
        told = case.lam if case.told is None else case.told
        measured.append(
            Measured(
                {
                    "refused although feasible, or the reverse": float(given != _feasible(case.widths, told)),
                    "distance from balance": residual,
                },
                printed=float(_printed_guards(case.widths, case.lam) != _feasible(case.widths, case.lam)),
            )
        )
    return measured


ERRATUM_GUARDS = Check(
    id="exact/erratum-guards",
    source="Algorithm 1",
    statement=(
        "λ-balanced layers exist if and only if λ = 0, or λ > 0 and N_o ≥ N_h, or λ < 0 and N_i ≥ N_h; the order of "
        "N_i and N_o does not matter."
    ),
    hypotheses=(Hypothesis("widths of at least one", lambda case: 1.0 - min(case.widths)),),
    tolerances={"refused although feasible, or the reverse": 0.0, "distance from balance": ROUNDING},
    measure=_measure_guards,
    draw=lambda rng: Request(
        ((2, 3, 4), (2, 2, 4), (3, 3, 3))[rng.integers(3)],
        float(rng.choice([-3.0, 3.0])),
        int(rng.integers(2**30)),
    ),
    violations=(Violation("the rule told the other sign of λ", lambda rng: Request((2, 3, 4), 3.0, 0, told=-3.0)),),
    printed=(
        "λ < 0 is refused for N_o > N_i, λ > 0 for N_i > N_o, every bottleneck, and every N_h > max(N_i, N_o) with λ ≠ "
        "0; there is no branch for N_i = N_o."
    ),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Adapter:
    """Width, rank and standard deviation of a new adapter, the width the formula is told, and a seed."""

    width: int
    rank: int
    std: float
    seed: int
    told: int | None = None


def _measure_adapters(cases: Sequence[Adapter]) -> list[Measured]:
    measured = []
    for case in cases:
        width = case.width if case.told is None else case.told
        found = lambda_estimate(adapter_layers(random.key(case.seed), (case.width, 3), case.rank, case.std))
        told = adapter_lambda(width, case.rank, case.std)
        lam, printed = float(told.lam), float(adapter_lambda(width, case.rank, case.std, as_printed=True).lam)
        bound = 2 * told.deviation
        measured.append(
            Measured(
                {
                    "distance of λ from dσ², relative, over 4√(r/d)": abs(float(found.lam[0]) / lam - 1) / bound,
                    "operator deviation, relative, over 4√(r/d)": float(found.operator[0]) / lam / bound,
                },
                printed=abs(float(found.lam[0]) / printed - 1) / bound,
                facts={"λ": float(found.lam[0]), "dσ²": lam, "operator deviation": float(found.operator[0]) / lam},
            )
        )
    return measured


def _draw_adapter(rng: np.random.Generator) -> Adapter:
    return Adapter(1000, 8, float(10 ** rng.uniform(-2, 0)), int(rng.integers(2**30)))


ERRATUM_ADAPTERS = Check(
    id="exact/erratum-adapters",
    source="Appendix D.4, low-rank adapters",
    statement=(
        "An adapter ΔW = AB with B = 0 and normal entries of A of standard deviation σ has λ near dσ², with a relative "
        "deviation in operator norm of about 2√(r/d)."
    ),
    hypotheses=(Hypothesis("r ≪ d", lambda case: case.rank / case.width, 0.02),),
    tolerances={
        "distance of λ from dσ², relative, over 4√(r/d)": 1.0,
        "operator deviation, relative, over 4√(r/d)": 1.0,
    },
    measure=_measure_adapters,
    draw=_draw_adapter,
    violations=(
        Violation(
            "twice the width in the formula",
            lambda rng: dataclasses.replace(case := _draw_adapter(rng), told=2 * case.width),
        ),
    ),
    printed="σ² plays the role of the balance parameter λ.",
    printed_tolerance=1.0,
)

CHECKS = (ERRATUM_CONCENTRATION, ERRATUM_PADDING, ERRATUM_GUARDS, ERRATUM_ADAPTERS)
