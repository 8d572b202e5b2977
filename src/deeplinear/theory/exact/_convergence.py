"""Whether and how fast balanced two-layer networks learn, and what statements on representations need of it."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from deeplinear.core import Array, Params, xp
from deeplinear.exact import Correlations, correlations_of, diagnose, eigensystem, late_rate, propagate, stacked
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation

ROUNDING = 1e-12
"""A few thousand roundings."""

LAMBDAS = (-7.0, -2.0, 0.0, 0.5, 2.0)
SQUARE, FUNNEL, INVERTED = (3, 3, 3), (4, 2, 2), (2, 2, 4)
ARCHITECTURES = (SQUARE, FUNNEL, INVERTED)


# ---- Cases -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """Two layers, the relative scale they are said to have, and a target."""

    first: np.ndarray
    second: np.ndarray
    target: np.ndarray
    lam: float

    @property
    def params(self) -> Params:
        """The layers as arrays."""
        return xp.asarray(self.first, dtype=float), xp.asarray(self.second, dtype=float)

    @property
    def widths(self) -> tuple[int, int, int]:
        """Input, hidden and output width."""
        return self.first.shape[1], self.first.shape[0], self.second.shape[0]

    @property
    def strengths(self) -> np.ndarray:
        """Singular values of the target."""
        return np.linalg.svd(self.target, compute_uv=False)

    @property
    def across(self) -> float:
        """λ⊥, half of λ with the sign of (outputs − inputs)."""
        return float(np.sign(self.second.shape[0] - self.first.shape[1])) * self.lam / 2


def rotation(rng: np.random.Generator, size: int) -> np.ndarray:
    """Random orthogonal matrix."""
    q, r = np.linalg.qr(rng.normal(size=(size, size)))
    return q * np.sign(np.diag(r))


def factorised(
    left: np.ndarray, strengths: np.ndarray, right: np.ndarray, lam: float, turn: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Balanced layers of the product left · strengths · rightᵀ, from the definition."""
    root = np.hypot(strengths, lam / 2)
    large = np.sqrt(root + abs(lam) / 2)
    small = strengths / np.where(large > 0, large, 1.0)
    s1, s2 = (small, large) if lam >= 0 else (large, small)
    return (turn * s1) @ right.T, (left * s2) @ turn.T


def matrix(rng: np.random.Generator, out: int, inp: int, strengths: Sequence[float] | np.ndarray) -> np.ndarray:
    """Random matrix with given singular values."""
    count = len(strengths)
    return (rotation(rng, out)[:, :count] * np.asarray(strengths)) @ rotation(rng, inp)[:, :count].T


def draw_case(
    rng: np.random.Generator,
    *,
    architectures: Sequence[tuple[int, int, int]] = ARCHITECTURES,
    lams: Sequence[float] = LAMBDAS,
    matched: bool | None = True,
    weakest: float = 0.4,
) -> Case:
    """Balanced layers of a random product and a random target; square ones with determinants of equal sign."""
    inp, hidden, out = architectures[int(rng.integers(len(architectures)))]
    lam = float(lams[int(rng.integers(len(lams)))])
    modes = min(inp, hidden, out)
    strengths = rng.uniform(0.2, 1.0, modes)
    extra = max(hidden - modes, 0)  # only for λ = 0: unused hidden units
    first, second = factorised(
        rotation(rng, out)[:, :modes], strengths, rotation(rng, inp)[:, :modes], lam, np.eye(modes)
    )
    turn = rotation(rng, hidden)
    first, second = turn @ np.pad(first, ((0, extra), (0, 0))), np.pad(second, ((0, 0), (0, extra))) @ turn.T
    target = matrix(rng, out, inp, np.sort(rng.uniform(weakest, 2.5, min(inp, out)))[::-1])
    if inp == out and matched is not None:
        agree = np.linalg.det(target) * np.linalg.det(second @ first) > 0
        if agree != matched:
            target[:, -1] *= -1
    return Case(first, second, target, lam)


def unbalanced(rng: np.random.Generator, case: Case, size: float = 0.5) -> Case:
    """The case with a second layer that has been disturbed."""
    return dataclasses.replace(case, second=case.second + size * rng.normal(size=case.second.shape))


def imbalance(case: Case) -> float:
    """How far the layers are from being balanced as they are said to be, relative to their size."""
    gap = case.second.T @ case.second - case.first @ case.first.T - case.lam * np.eye(case.first.shape[0])
    return float(np.linalg.norm(gap) / (np.sum(case.first**2) + np.sum(case.second**2)))


BALANCED: Hypothesis[Case] = Hypothesis("λ-balanced layers", imbalance, ROUNDING)
NARROW: Hypothesis[Case] = Hypothesis(
    "hidden width = smaller of the two others", lambda c: abs(c.widths[1] - min(c.widths[0], c.widths[2]))
)
WEAKEST = 1e-2
FULL_RANK: Hypothesis[Case] = Hypothesis(
    "target of full rank, far from a smaller one",
    lambda c: WEAKEST - float(c.strengths[-1] / c.strengths[0]) if c.strengths[0] > 0 else 1.0,
)


def _missing(case: Case) -> float:
    """Number of modes within reach that the start has no part in; all of them where the layers are not balanced."""
    if imbalance(case) > ROUNDING:
        return float(min(case.widths))
    return float(diagnose(case.params, case.target, case.lam).missing)


REACHABLE: Hypothesis[Case] = Hypothesis("every mode within reach overlaps with the start", _missing)


def moved(case: Case, t: float) -> Correlations:
    """The closed form at a time."""
    state = propagate(stacked(case.params), eigensystem(case.target, case.lam), t)
    return correlations_of(state, case.first.shape[1])


def distance(here: Array | np.ndarray, there: Array | np.ndarray) -> float:
    """Largest entry of a difference."""
    return float(np.max(np.abs(np.asarray(here) - np.asarray(there))))


def reduced_loss(case: Case, t: float) -> float:
    """Half the squared distance of the product from the target, at a time."""
    return 0.5 * float(np.sum((np.asarray(moved(case, t).product) - case.target) ** 2))


# ---- Rates -----------------------------------------------------------------------------------------------------------

WINDOW = (24.0, 27.0)
"""In units of the time constant: late enough for one exponential, early enough for some digits of it."""
LEADS = 0.6
"""Least share of the slowest term in the squared gap at the start of the window.

What this term makes of the gap falls at its rate exactly; so the rate of the gap is larger by at most
ln(1/0.6)/2 over the length of the window, 0.085 of the rate.
"""
RATE = {"measured rate over the predicted one, less 1": 0.1}


def _slope(case: Case, predicted: float) -> float:
    """Rate at which the product approaches the target over a late window of the closed form."""
    times = [w / predicted for w in WINDOW]
    gaps = [np.linalg.norm(np.asarray(moved(case, t).product) - case.target) for t in times]
    return float(np.log(gaps[0] / gaps[1]) / (times[1] - times[0]))


def _measure_rate(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case in cases:
        predicted = float(late_rate(case.target, case.lam))
        slope = _slope(case, predicted)
        measured.append(
            Measured(dict.fromkeys(RATE, abs(slope / predicted - 1)), facts={"predicted": predicted, "measured": slope})
        )
    return measured


def _aligned(rng: np.random.Generator) -> Case:
    """A start in the modes of the task: nothing has to turn, and the rate is that of a square network."""
    case = draw_case(rng, architectures=(FUNNEL,), lams=(-2.0, -7.0))
    u, _, vt = np.linalg.svd(case.target, full_matrices=False)
    first, second = factorised(u, rng.uniform(0.2, 1.0, 2), vt.T, case.lam, rotation(rng, 2))
    return dataclasses.replace(case, first=first, second=second)


def _turning(case: Case) -> float:
    """Share of the large layer that lies outside of the modes of the task, or 1 where there is no other side."""
    inp, _, out = case.widths
    if inp == out:
        return 1.0
    u, _, vt = np.linalg.svd(case.target)
    rest = case.first @ vt[min(inp, out) :].T if inp > out else case.second.T @ u[:, min(inp, out) :]
    return float(np.linalg.norm(rest) / np.linalg.norm(case.first if inp > out else case.second))


def _faster(case: Case) -> float:
    """Share in the squared gap, at the start of the window, of what is not the slowest term.

    That is the part of the weakest mode, on the directions of the larger side that no mode has if there are such.
    """
    gap = np.asarray(moved(case, WINDOW[0] / float(late_rate(case.target, case.lam))).product) - case.target
    u, s, vt = np.linalg.svd(case.target)
    parts, modes = u.T @ gap @ vt.T, len(s)
    inp, _, out = case.widths
    slowest = parts[modes - 1, modes:] if inp > out else parts[modes:, modes - 1] if out > inp else parts[-1, -1]
    return 1.0 - float(np.sum(slowest**2) / np.sum(parts**2))


def _led(draw: Callable[[np.random.Generator], Case]) -> Callable[[np.random.Generator], Case]:
    """A draw, again until the slowest term leads: in some starts hardly any of it is there."""

    def drawn(rng: np.random.Generator) -> Case:
        while True:
            case = draw(rng)
            if _faster(case) <= 1.0 - LEADS:
                return case

    return drawn


APART: Hypothesis[Case] = Hypothesis("|λ| ≤ 4, so that neighbouring rates do not merge", lambda c: abs(c.lam) - 4.0)
GENERIC: Hypothesis[Case] = Hypothesis("layers that are not aligned with the task", lambda c: 1e-3 - _turning(c))

LED: Hypothesis[Case] = Hypothesis("share of faster terms at the start of the window", _faster, 1.0 - LEADS)

LATE_RATE = Check(
    id="exact/late-rate",
    source="Theorem C.6, made precise",
    statement=(
        "The product approaches its limit at the rate 2 s_λ for as many inputs as outputs, else s_λ − λ⊥, where "
        "s_λ = √(s² + λ²/4) of the weakest mode; for λ⊥ > 0 this is s²/(s_λ + λ⊥)."
    ),
    hypotheses=(BALANCED, NARROW, FULL_RANK, REACHABLE, GENERIC, APART, LED),
    tolerances=RATE,
    version=2,
    measure=_measure_rate,
    draw=_led(lambda rng: draw_case(rng, lams=(-4.0, -2.0, 0.0, 0.5, 2.0, 4.0))),
    violations=(Violation("layers aligned with the task", _aligned),),
)


def _measure_competition(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case, ours in zip(cases, _measure_rate(cases), strict=True):
        s, across = float(case.strengths[-1]), abs(case.across)
        printed = float(np.hypot(s, across / 2)) - across
        slope = ours.facts["measured"]
        gap = abs(printed / slope - 1) if slope else float("inf")  # a case that has arrived before the window
        measured.append(dataclasses.replace(ours, printed=gap, facts={**ours.facts, "as printed": printed}))
    return measured


def _delayed(rng: np.random.Generator) -> Case:
    funnel = bool(rng.integers(2))
    size = float(rng.choice([2.0, 4.0, 7.0]))
    return draw_case(rng, architectures=(FUNNEL if funnel else INVERTED,), lams=(-size if funnel else size,))


ERRATUM_LATE_RATE = Check(
    id="exact/erratum-late-rate",
    source="Theorem C.6",
    statement=(
        "Where λ⊥ > 0 the slowest part of the solution falls as exp((λ⊥ − √(s² + λ²/4)) t), with λ and not λ⊥ under "
        "the root."
    ),
    hypotheses=(
        BALANCED,
        NARROW,
        FULL_RANK,
        REACHABLE,
        GENERIC,
        Hypothesis("λ⊥ > 0", lambda c: float(not c.across > 0)),
        LED,
    ),
    tolerances=RATE,
    version=2,
    measure=_measure_competition,
    draw=_led(_delayed),
    violations=(Violation("layers aligned with the task", _aligned),),
    printed="The factors are exp(λ⊥ t) exp(−√(s² + λ⊥²/4) t).",
    printed_tolerance=0.05,
)


# ---- Overlap with the growing modes ----------------------------------------------------------------------------------

OVERLAP = {"bound over the smallest overlap, less 1": ROUNDING}


def _measure_overlap(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case in cases:
        bound = abs(case.lam) / float(np.linalg.norm(case.first, 2) + np.linalg.norm(case.second, 2))
        overlap = diagnose(case.params, case.target, case.lam).smallest_overlap
        measured.append(
            Measured(dict.fromkeys(OVERLAP, bound / overlap - 1), facts={"bound": bound, "smallest overlap": overlap})
        )
    return measured


def filling(case: Case) -> float:
    """By how many directions the large layer falls short of its side; 1 if there is no large layer."""
    inp, hidden, out = case.widths
    return float((out if case.lam > 0 else inp) - hidden) if case.lam else 1.0


FILLED: Hypothesis[Case] = Hypothesis(
    "λ > 0 with as many outputs as hidden units, or λ < 0 with as many inputs", filling
)


def draw_filled(rng: np.random.Generator, sizes: tuple[float, float] = (-2.0, 1.5)) -> Case:
    """A network on the lazy side, |λ| between powers of ten."""
    size = 10 ** rng.uniform(*sizes)
    widths, sign = ((SQUARE, 1), (SQUARE, -1), (FUNNEL, 1), (INVERTED, -1))[rng.integers(4)]
    return draw_case(rng, architectures=(widths,), lams=(sign * size,), matched=None)


def _blind(rng: np.random.Generator) -> Case:
    """A funnel whose first layer does not see the inputs of the task."""
    case = draw_case(rng, architectures=(FUNNEL,), lams=(-2.0,))
    u, _, vt = np.linalg.svd(case.target)
    first, second = factorised(u, np.full(2, 1e-3), vt[2:].T, -2.0, rotation(rng, 2))
    return dataclasses.replace(case, first=first, second=second)


OVERLAP_BOUND = Check(
    id="exact/overlap-bound",
    source="Section 4, B invertible",
    statement=(
        "If λ > 0 with as many outputs as hidden units, or λ < 0 with as many inputs, the overlap B of any balanced "
        "start with the growing modes of any task is invertible: σ_min(B) ≥ |λ|/(‖W₁‖₂ + ‖W₂‖₂)."
    ),
    hypotheses=(BALANCED, NARROW, FILLED),
    tolerances=OVERLAP,
    measure=_measure_overlap,
    draw=draw_filled,
    violations=(Violation("a funnel with λ < 0 that does not see the inputs of the task", _blind),),
)


# ---- Where learning ends ---------------------------------------------------------------------------------------------

CALM = 12.0
"""In units of 1/s of the weakest mode: by then the rest is learned, and rounding has not yet left the saddle."""
SADDLE = {"distance of the loss from s²/2, or from 0, by the sign of the determinant": 1e-6}


def _spread(rng: np.random.Generator, case: Case) -> Case:
    """The case with a target of three well separated modes, which are told apart early."""
    strengths = [rng.uniform(2.0, 2.5), rng.uniform(1.5, 1.8), rng.uniform(0.5, 0.7)]
    return dataclasses.replace(case, target=matrix(rng, 3, 3, strengths))


def _draw_square(rng: np.random.Generator) -> Case:
    return _spread(rng, draw_case(rng, architectures=(SQUARE, (3, 5, 3)), lams=(0.0,)))


def _agree(case: Case) -> bool:
    return bool(np.linalg.slogdet(case.target)[0] * np.linalg.slogdet(case.second @ case.first)[0] > 0)


def _measure_determinant(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case in cases:
        weakest = float(case.strengths[-1])
        expected = 0.0 if _agree(case) else 0.5 * weakest**2
        loss = reduced_loss(case, CALM / weakest)
        facts = {"determinants agree": float(_agree(case)), "loss": loss, "expected": expected}
        measured.append(Measured(dict.fromkeys(SADDLE, abs(loss - expected)), facts=facts))
    return measured


def _freed(rng: np.random.Generator) -> Case:
    """λ ≠ 0 from the wrong side: the flow passes to the other one."""
    case = _spread(rng, draw_case(rng, architectures=(SQUARE,), lams=(0.5,), matched=None))
    if _agree(case):
        case = dataclasses.replace(case, target=case.target @ np.diag([1.0, 1.0, -1.0]))
    return case


ZERO: Hypothesis[Case] = Hypothesis("λ = 0", lambda c: abs(c.lam))
SQUARE_TARGET: Hypothesis[Case] = Hypothesis(
    "as many inputs as outputs, and at least as many hidden units",
    lambda c: float(abs(c.widths[0] - c.widths[2]) + max(c.widths[0] - c.widths[1], 0)),
)
SEPARATED: Hypothesis[Case] = Hypothesis(
    "a weakest mode well below the others", lambda c: float(c.strengths[-1] / c.strengths[-2]) - 0.5
)

DETERMINANT = Check(
    id="exact/determinant-obstruction",
    source="Section 5, rich solutions",
    statement=(
        "For λ = 0 and as many inputs as outputs, hidden units at least, the sign of det W₂W₁ never changes: from the "
        "sign of the target the loss goes to 0, from the other to s²/2 of the weakest mode."
    ),
    hypotheses=(BALANCED, ZERO, SQUARE_TARGET, SEPARATED),
    tolerances=SADDLE,
    measure=_measure_determinant,
    draw=_draw_square,
    violations=(Violation("λ = 0.5", _freed),),
)

RICH = {"distance of W₁ᵀW₁ from √(ΣᵀΣ), determinants of equal sign": 1e-6}


def _root(gram: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(gram)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def _measure_rich(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case in cases:
        unit = 1 / float(case.strengths[-1])
        other = dataclasses.replace(case, target=case.target @ np.diag([1.0, 1.0, -1.0]))
        gaps = [
            distance(moved(c, time * unit).input, _root(c.target.T @ c.target))
            for c, time in ((case, 2 * CALM), (other, CALM))
        ]
        measured.append(Measured(dict.fromkeys(RICH, gaps[0]), printed=gaps[1]))
    return measured


def _draw_agreeing(rng: np.random.Generator, lam: float = 0.0) -> Case:
    case = _spread(rng, draw_case(rng, architectures=(SQUARE,), lams=(lam,)))
    return case if _agree(case) else dataclasses.replace(case, target=case.target @ np.diag([1.0, 1.0, -1.0]))


ERRATUM_RICH_GUARANTEE = Check(
    id="exact/erratum-rich-guarantee",
    source="Section 5, after Theorem 5.2",
    statement=(
        "For λ = 0 a square network finds the rich solution W₁ᵀW₁ = V S Vᵀ if the determinant of its product has the "
        "sign of that of the target, and otherwise not: half of the exactly balanced starts."
    ),
    hypotheses=(
        BALANCED,
        ZERO,
        SQUARE_TARGET,
        SEPARATED,
        Hypothesis("determinants of equal sign", lambda c: float(not _agree(c))),
    ),
    tolerances=RICH,
    measure=_measure_rich,
    draw=_draw_agreeing,
    violations=(Violation("λ = 2", lambda rng: _draw_agreeing(rng, 2.0)),),
    printed="For λ = 0 the network is guaranteed to find a rich solution regardless of the absolute scale.",
    printed_tolerance=1e-6,
)

BOTTLENECK = {"distance from the best approximation of the rank of the hidden layer": 1e-9}
TIGHT = (4, 2, 3)


def _measure_bottleneck(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case in cases:
        hidden = case.widths[1]
        time = 45 / float(late_rate(case.target, case.lam, hidden))
        u, s, vt = np.linalg.svd(case.target, full_matrices=False)
        best = (u[:, :hidden] * s[:hidden]) @ vt[:hidden]
        measured.append(Measured(dict.fromkeys(BOTTLENECK, distance(moved(case, time).product, best))))
    return measured


def _draw_tight(rng: np.random.Generator) -> Case:
    case = draw_case(rng, architectures=(TIGHT,), lams=(-1.0, 0.0, 1.0))
    strengths = [rng.uniform(2.0, 2.5), rng.uniform(1.0, 1.8), rng.uniform(0.2, 0.6)]
    return dataclasses.replace(case, target=matrix(rng, 3, 4, strengths))


def _weak_modes(rng: np.random.Generator) -> Case:
    """A start in the two weaker modes of a diagonal task: zeros are exact, so that rounding does not help out."""
    target = np.diag([rng.uniform(2.0, 2.5), rng.uniform(1.0, 1.8), rng.uniform(0.2, 0.6)]) @ np.eye(3, 4)
    first, second = factorised(np.eye(3)[:, 1:], np.full(2, 0.5), np.eye(4)[:, 1:3], 0.0, np.eye(2))
    return Case(first, second, target, 0.0)


BOTTLENECK_LIMIT = Check(
    id="exact/bottleneck-limit",
    source="Section 3, beyond its widths",
    statement=(
        "Behind a bottleneck of k hidden units the product converges to the best approximation of the target of rank "
        "k, if the start overlaps with the k strongest modes."
    ),
    hypotheses=(
        BALANCED,
        REACHABLE,
        Hypothesis("fewer hidden units than modes", lambda c: c.widths[1] - min(c.widths[0], c.widths[2]) + 1.0),
        Hypothesis(
            "a gap after the last mode within reach",
            lambda c: float(c.strengths[c.widths[1]] / c.strengths[c.widths[1] - 1]) - 0.7,
        ),
    ),
    tolerances=BOTTLENECK,
    measure=_measure_bottleneck,
    draw=_draw_tight,
    violations=(Violation("a start in the weaker modes", _weak_modes),),
)

CHECKS: tuple[Check, ...] = (
    LATE_RATE,
    ERRATUM_LATE_RATE,
    OVERLAP_BOUND,
    DETERMINANT,
    ERRATUM_RICH_GUARANTEE,
    BOTTLENECK_LIMIT,
)
