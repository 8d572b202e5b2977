"""Bounds on recurrent networks that start near zero: norms at the start, norms on the way, decay and growth."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from deeplinear.recurrent import escape_time, norm_event
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.network._networks import each
from deeplinear.theory.rnn._near_zero_flows import (
    LARGE,
    POSITIVE,
    SMALL,
    STEPS,
    TOLD,
    Start,
    draw_start,
    ladders,
    larger,
    parts,
    size,
    slope,
)

# --- Lemma C.10 -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Vector:
    """A Gaussian vector: its entries, and their variance over ε²/n."""

    entries: int
    spread: float = 1.0

    @property
    def probability(self) -> float:
        """Of a norm in (ε/2, 3ε/2), by quadrature of the density of the norm over √n ε."""
        n = self.entries
        nodes, weights = np.polynomial.legendre.leggauss(200)
        x = 1 + nodes / 2  # the norm over ε, between 1/2 and 3/2
        scaled = n * x**2 / self.spread
        density = (n - 1) * np.log(scaled) / 2 - scaled / 2 - (n / 2 - 1) * math.log(2) - math.lgamma(n / 2)
        return float(weights @ np.exp(density) / 2 * math.sqrt(n / self.spread))


NORM_EVENT = {"bound − probability": 1e-12, "probability against quadrature": 1e-12}


def _measure_norm_event(vector: Vector) -> Measured:
    found, oracle = norm_event(vector.entries), vector.probability
    numbers = (1 - 2 * math.exp(-9 * vector.entries / 64) - oracle, abs(found.exact - oracle))
    facts = {"probability": oracle, "bound": found.bound, "entries": float(vector.entries)}
    return Measured(dict(zip(NORM_EVENT, numbers, strict=True)), facts=facts)


LEMMA_C10 = Check(
    id="rnn/lemma-c.10",
    source="Lemma C.10",
    statement="v in Rⁿ with entries N(0, ε²/n) has Pr(ε/2 < ‖v‖ < 3ε/2) ≥ 1 − 2exp(−9n/64).",
    hypotheses=(Hypothesis("entries of variance ε²/n", lambda v: abs(v.spread - 1)),),
    tolerances=NORM_EVENT,
    measure=each(_measure_norm_event),
    draw=lambda rng: Vector(int(rng.integers(1, 400))),
    violations=(Violation("entries of variance 2ε²/n", lambda rng: Vector(int(rng.integers(60, 400)), 2.0)),),
)

# --- Bounds on norms --------------------------------------------------------------------------------------------------

MOST_BC, MOST_A = 3.0, 2.0
"""M₁ and M₂ for starts of norm at most 3ε/2: B = (W + Y)/2 grows by at most a hyperbolic cosine."""

NORMS = {
    "‖B‖, ‖C‖ up to the time over ε^{3/4}, above M₁ = 3": 0.0,
    "‖A‖ up to the time over ε, above M₂ = 2": 0.0,
    "‖B‖ at the time: power of ε against 3/4": 0.01,
    "‖A‖ at the time: power of ε against 1": 0.01,
}


def _measure_norms(starts: Sequence[Start]) -> list[Measured]:
    """The flow of the sum of squares: to half of the printed time for the claim, to all of it as printed."""
    measured = []
    for one, records in zip(starts, ladders(starts, every=STEPS // 16), strict=True):
        half, scales = records[: len(records) // 2 + 1], np.asarray(one.scales)
        tallest = max(float(np.max(np.linalg.norm(m, axis=1) / scales**0.75)) for _, b, c in half for m in (b, c))
        widest = max(float(np.max(np.linalg.norm(a, axis=(1, 2)) / scales)) for a, _, _ in half)
        a, b, _ = half[-1]
        numbers = (
            tallest - MOST_BC,
            widest - MOST_A,
            abs(slope(one.scales, np.linalg.norm(b, axis=1)) - 0.75),
            abs(slope(one.scales, np.linalg.norm(a, axis=(1, 2))) - 1),
        )
        late = slope(one.scales, np.linalg.norm(records[-1][1], axis=1)) - 0.75
        facts = {"‖B‖/ε^{3/4}": tallest, "‖A‖/ε": widest, "power of ε in ‖B‖/ε^{3/4} at the printed time": late}
        measured.append(Measured(dict(zip(NORMS, numbers, strict=True)), printed=abs(late), facts=facts))
    return measured


def _norm(one: Start) -> float:
    return max(map(size, (one.transition, one.input, one.output)))


def _draw_norms(rng: np.random.Generator) -> Start:
    while True:
        one = draw_start(rng, states=(21,), scales=(1e-4, 1e-5, 1e-6), fraction=0.5, signs=(1.0,))
        if _norm(one) < 1.5:
            return one


LEMMA_C13 = Check(
    id="rnn/lemma-c.13",
    source="Lemma C.13",
    statement=(
        "From norms below 3ε/2, ‖B‖ and ‖C‖ are below M₁ε^{3/4} and ‖A‖ below M₂ε up to the time ln(ε^{−1/2})/4w₀ of "
        "the sum of squares, which is ln(ε^{−1/2})/2w₀ for half of it; M₁ = 3 and M₂ = 2 serve for small ε."
    ),
    hypotheses=(LARGE, POSITIVE, TOLD, SMALL, Hypothesis("norms below 3ε/2", _norm, 1.5)),
    tolerances=NORMS,
    measure=_measure_norms,
    draw=_draw_norms,
    violations=(larger(_draw_norms),),
    printed="up to ln(ε^{−1/2})/2w₀ for the sum of squares; there ‖B‖/ε^{3/4} grows like ε^{−1/4}.",
    printed_tolerance=0.05,
)

DECAY = {
    "‖Y‖² above (9/2)ε²e^{−2w₀t}, over ε^{5/2}": 0.3,
    "‖W‖² below (1/4)ε²e^{2w₀t}, over ε^{5/2}": 0.3,
}
"""The remainder is ‖Y‖‖A‖‖W‖ over the time, of order ε³ ln(1/ε): well below the order that is claimed."""


def _measure_decay(starts: Sequence[Start]) -> list[Measured]:
    measured = []
    for one, records in zip(starts, ladders(starts, every=STEPS // 8), strict=True):
        over = under = -math.inf
        scales = np.asarray(one.scales)
        ends = np.array([escape_time(one.first, e, fraction=one.fraction) for e in one.scales])
        for step, record in enumerate(records):
            more, less, _ = parts(*record, np.asarray(one.first))
            growth = np.exp(2 * abs(one.first) * ends * step / (len(records) - 1))
            over = max(over, float(np.max((less**2 - 4.5 * scales**2 / growth) / scales**2.5)))
            under = max(under, float(np.max((0.25 * scales**2 * growth - more**2) / scales**2.5)))
        measured.append(Measured(dict(zip(DECAY, (over, under), strict=True))))
    return measured


def _event(one: Start) -> float:
    """Distance of ‖Y‖² and ‖W‖² over ε² from the interval (1/2, 9/2)."""
    sizes = [size(one.input + sign * one.output) ** 2 for sign in (1, -1)]
    return max(max(0.5 - square, square - 4.5) for square in sizes)


def _draw_event(rng: np.random.Generator) -> Start:
    """Anywhere in the event, near its ends too."""
    one = _draw_norms(rng)
    more, less = one.input + one.output, one.input - one.output
    more, less = (m * math.sqrt(rng.uniform(0.51, 4.49)) / size(m) for m in (more, less))
    return dataclasses.replace(one, input=(more + less) / 2, output=(more - less) / 2, fraction=0.25)


def _twice_the_rate(rng: np.random.Generator) -> Start:
    """The rate of the sum of squares is told of the half."""
    return dataclasses.replace(_draw_event(rng), sign=2.0, fraction=0.5)


LEMMA_C14 = Check(
    id="rnn/lemma-c.14",
    source="Lemma C.14",
    statement=(
        "If ε²/2 < ‖Y‖², ‖W‖² < 9ε²/2 and ‖A‖ < 3ε/2 at the start, then up to ln(ε^{−1/2})/2w₀ of the half sum of "
        "squares ‖Y‖² ≤ (9/2)ε²e^{−2w₀t} + O(ε^{5/2}) and ‖W‖² ≥ (1/4)ε²e^{2w₀t} − O(ε^{5/2}); for the sum of squares "
        "the exponents are ∓4w₀t and the time half as long."
    ),
    hypotheses=(POSITIVE, TOLD, SMALL, Hypothesis("‖Y‖² and ‖W‖² over ε² between 1/2 and 9/2", _event)),
    tolerances=DECAY,
    measure=_measure_decay,
    draw=_draw_event,
    violations=(Violation("the rate of the sum of squares", _twice_the_rate), larger(_draw_event)),
)

# --- The comparison lemma ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two numbers z and x with ż = −2w₀z + m − s and ẋ = 2w₀x − m + s, s(t) = slack · (1 + cos(ωt + φ))."""

    first: float
    decaying: float
    growing: float
    drive: float
    slack: float
    frequency: float
    phase: float

    def states(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """z and x, by quadrature of the slack."""
        rate = 2 * self.first
        nodes, weights = np.polynomial.legendre.leggauss(40)
        u = t[:, None] * (1 + nodes) / 2
        kept = self.slack * (1 + np.cos(self.frequency * u + self.phase))
        left = t[:, None] - u
        z = np.exp(-rate * t) * self.decaying + t / 2 * ((np.exp(-rate * left) * (self.drive - kept)) @ weights)
        x = np.exp(rate * t) * self.growing + t / 2 * ((np.exp(rate * left) * (kept - self.drive)) @ weights)
        return z, x


COMPARED = {"z above its bound, relative": 1e-12, "x below its bound, relative": 1e-12}


def _measure_compared(one: Comparison) -> Measured:
    t = np.linspace(0, 2 / one.first, 25)
    z, x = one.states(t)
    rate = 2 * one.first
    above = (np.exp(-rate * t) * (rate * one.decaying - one.drive) + one.drive) / rate
    below = (np.exp(rate * t) * (rate * one.growing - one.drive) + one.drive) / rate
    numbers = (float(np.max((z - above) / np.abs(above))), float(np.max((below - x) / np.abs(below))))
    return Measured(dict(zip(COMPARED, numbers, strict=True)))


def _draw_comparison(rng: np.random.Generator) -> Comparison:
    first, drive = float(rng.uniform(0.3, 2)), float(rng.uniform(0, 0.5))
    return Comparison(
        first=first,
        decaying=float(rng.uniform(1, 3) * max(drive, 0.1) / (2 * first)),
        growing=float(rng.uniform(1, 3) * max(drive, 0.1) / (2 * first)),
        drive=drive,
        slack=float(rng.uniform(0, 1)),
        frequency=float(rng.uniform(0, 5)),
        phase=float(rng.uniform(0, 2 * math.pi)),
    )


LEMMA_C15 = Check(
    id="rnn/lemma-c.15",
    source="Lemma C.15, equations C.132 and C.133",
    statement=(
        "If ż ≤ −2w₀z + m and ẋ ≥ 2w₀x − m then 2w₀z(t) ≤ e^{−2w₀t}(2w₀z(0) − m) + m and "
        "2w₀x(t) ≥ e^{2w₀t}(2w₀x(0) − m) + m."
    ),
    hypotheses=(
        Hypothesis("w₀ > 0", lambda c: -c.first, -1e-3),
        Hypothesis("the differential inequalities", lambda c: -c.slack),
    ),
    tolerances=COMPARED,
    measure=each(_measure_compared),
    draw=_draw_comparison,
    violations=(
        Violation("a derivative on the other side", lambda rng: dataclasses.replace(_draw_comparison(rng), slack=-0.3)),
    ),
)

CHECKS = (LEMMA_C10, LEMMA_C13, LEMMA_C14, LEMMA_C15)
