"""Recurrent networks that start near zero leave it balanced: powers of the scale, and where the flow ends."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from deeplinear.recurrent import escape_time, linearised_flow, predicted_exponents
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.rnn._near_zero_bounds import CHECKS as BOUNDS
from deeplinear.theory.rnn._near_zero_flows import (
    GROWS,
    LARGE,
    POSITIVE,
    SMALL,
    STEPS,
    TOLD,
    Matrices,
    Start,
    draw_start,
    flow,
    ladders,
    larger,
    parts,
    reversed_sign,
    size,
    slope,
)

# --- The linearised flow ----------------------------------------------------------------------------------------------

LINEARISED = {
    "(B, C) against the linearised flow, relative, over ε ln(1/ε)": 0.5,
    "A against its start, over ε^{3/2}": 0.6,
    "the clock of the sum of squares at half the time, relative": 1e-12,
}
"""The transition matrix turns (B, C) by ‖A‖ max|w|/|w₀| over the escape time, and W² w₁/8w₀ moves it."""


def _measure_linearised(starts: Sequence[Start]) -> list[Measured]:
    measured = []
    for one, records in zip(starts, ladders(starts), strict=True):
        numbers = np.zeros(3)
        for i, scale in enumerate(one.scales):
            a, b, c = (part[i] for part in records[-1])
            begin = tuple(scale**one.power * m for m in (one.transition, one.input[:, None], one.output[None]))
            time = escape_time(one.first, scale, fraction=one.fraction)
            told = linearised_flow(begin, one.first, time)
            _, x, y = (np.asarray(m) for m in told)
            missed = np.hypot(np.linalg.norm(b - x[:, 0]), np.linalg.norm(c - y[0])) / math.hypot(size(b), size(c))
            faster = linearised_flow(begin, one.first, time / 2, clock="sum_sq")
            numbers = np.maximum(
                numbers,
                (
                    missed / (scale * math.log(1 / scale)),
                    size(a - np.asarray(begin[0])) / scale**1.5,
                    size(np.asarray(faster.input) - x) / size(x),
                ),
            )
        measured.append(Measured(dict(zip(LINEARISED, map(float, numbers), strict=True))))
    return measured


def _draw_linearised(rng: np.random.Generator) -> Start:
    one = draw_start(rng, scales=(1e-4, 1e-6))
    sizes = (size(one.transition), size(one.input), size(one.output))
    a, b, c = (m / size for m, size in zip((one.transition, one.input, one.output), sizes, strict=True))
    return dataclasses.replace(one, transition=a, input=b, output=c)


LINEAR = Check(
    id="rnn/linearised-flow",
    source="Section 4.3, proof sketch of Proposition 9",
    statement=(
        "B ± Cᵀ = e^{±w₀t}(B₀ ± C₀ᵀ) and A = A₀ (half sum of squares; e^{±2w₀t} for the sum of squares), up to "
        "ε ln(1/ε) of (B, C) and ε^{3/2} at the time ln(1/ε)/4|w₀|, for either sign of w₀."
    ),
    hypotheses=(
        TOLD,
        GROWS,
        SMALL,
        Hypothesis("B and C of norm ε", lambda s: abs(size(s.input) - 1) + abs(size(s.output) - 1), 1e-12),
        Hypothesis("a target of falling modes", lambda s: float(np.abs(s.target).max() - abs(s.first)), 1e-12),
    ),
    tolerances=LINEARISED,
    measure=_measure_linearised,
    draw=_draw_linearised,
    violations=(larger(_draw_linearised), reversed_sign(_draw_linearised)),
)

# --- Proposition 9 ----------------------------------------------------------------------------------------------------

PAPER = {
    "‖Y‖/‖W‖ at τ_ε, half sum of squares: exponent against 1/2": 0.01,
    "‖A‖/‖W‖ at τ_ε, half sum of squares: exponent against 1/4": 0.01,
    "‖Y‖/‖W‖ at τ_ε, sum of squares: exponent against 1": 0.02,
    "‖A‖/‖W‖ at τ_ε, sum of squares: exponent against 1/2": 0.02,
}


def _exponents(one: Start, record: Matrices) -> tuple[float, float, float]:
    """Of the growing part, the imbalance and the transition."""
    more, less, a = parts(*record, np.asarray(one.first))
    with np.errstate(divide="ignore", invalid="ignore"):
        return slope(one.scales, more), slope(one.scales, less / more), slope(one.scales, a / more)


def _measure_proposition(starts: Sequence[Start]) -> list[Measured]:
    """Half way to θ = 1/2 is θ = 1/4; a clock that runs twice as fast is at θ = 1/2 when the other is at 1/4."""
    measured = []
    for one, records in zip(starts, ladders(starts, every=STEPS // 2), strict=True):
        numbers = []
        for record, fraction in zip(records[1:], (0.25, 0.5), strict=True):
            expected = predicted_exponents(fraction, symmetric=one.symmetric)
            _, imbalance, transition = _exponents(one, record)
            numbers += [abs(imbalance - expected.imbalance), abs(transition - expected.transition)]
        measured.append(Measured(dict(zip(PAPER, numbers, strict=True))))
    return measured


def _draw_paper(rng: np.random.Generator) -> Start:
    return draw_start(rng, states=(21,), scales=(1e-4, 1e-5, 1e-6), fraction=0.5, size="entry", signs=(1.0,))


PROPOSITION_9 = Check(
    id="rnn/proposition-9",
    source="Proposition 9 and Lemma C.12",
    statement=(
        "From εΘ̃ with standard normal entries, ‖B − Cᵀ‖/‖B + Cᵀ‖ → 0 as ε → 0 at the time τ_ε = ln(ε^{−1/2})/2w₀: like "
        "ε^{1/2} under the half sum of squares, where ‖A‖/‖B + Cᵀ‖ ~ ε^{1/4}, and like ε under the sum of squares, "
        "where ‖A‖/‖B + Cᵀ‖ ~ ε^{1/2}."
    ),
    hypotheses=(LARGE, POSITIVE, TOLD, SMALL),
    tolerances=PAPER,
    measure=_measure_proposition,
    draw=_draw_paper,
    violations=(larger(_draw_paper), reversed_sign(_draw_paper)),
)

EVERY = {
    "‖W‖: exponent against 3/4, relative": 0.05,
    "‖Y‖/‖W‖: exponent against 1/2, relative": 0.05,
    "‖A‖/‖W‖: exponent against 1/4, relative": 0.05,
}


def _measure_every(starts: Sequence[Start]) -> list[Measured]:
    return [
        Measured(
            {
                name: abs(found / expected - 1)
                for name, found, expected in zip(EVERY, _exponents(one, records[-1]), (0.75, 0.5, 0.25), strict=True)
            },
            facts={"states": float(len(one.input)), "growing part, relative": one.growing},
        )
        for one, records in zip(starts, ladders(starts), strict=True)
    ]


def _draw_every(rng: np.random.Generator) -> Start:
    """Any size from one on, and directions with little of the growing part among them."""
    while True:
        one = draw_start(rng, states=(1, 2, 3, 4, 5, 8), scales=(1e-8, 1e-10, 1e-12))
        sign = math.copysign(1.0, one.first)
        share = 10 ** rng.uniform(-1.3, 0)
        more, less = one.input + sign * one.output, one.input - sign * one.output
        more = more * share * size(less) / size(more)
        one = dataclasses.replace(one, input=(more + less) / 2, output=sign * (more - less) / 2)
        if one.growing > 0.02:
            return one


PROPOSITION_9_EVERY = Check(
    id="rnn/proposition-9-every-draw",
    source="Proposition 9, without probabilities",
    statement=(
        "Along εΘ̃ with any fixed Θ̃ whose B̃ + C̃ᵀ is not zero (B̃ − C̃ᵀ for w₀ < 0), for every number of states, at "
        "ln(1/ε)/4|w₀| the growing part is of order ε^{3/4}, the ratio of the parts ε^{1/2}, that of A ε^{1/4}."
    ),
    hypotheses=(GROWS, TOLD, SMALL),
    tolerances=EVERY,
    measure=_measure_every,
    draw=_draw_every,
    violations=(larger(_draw_every), reversed_sign(_draw_every)),
)

LATER = {
    "‖W‖: exponent against 1 − θ": 0.01,
    "‖Y‖/‖W‖: exponent against 2θ, at most 1 if A is not symmetric": 0.05,
    "‖A‖/‖W‖: exponent against min(θ, 1 − θ)": 0.05,
}
"""At θ = 3/4 what A was at the start is √ε of what drives it, over w₁/8w₀: some per cent at the largest scale."""


def _measure_later(starts: Sequence[Start]) -> list[Measured]:
    measured = []
    for one, records in zip(starts, ladders(starts), strict=True):
        expected = predicted_exponents(one.fraction, symmetric=one.symmetric)
        numbers = [abs(a - b) for a, b in zip(_exponents(one, records[-1]), expected, strict=True)]
        measured.append(Measured(dict(zip(LATER, numbers, strict=True)), facts={"θ": one.fraction}))
    return measured


def _second(one: Start) -> float:
    """Of the target, relative to the first entry."""
    return float(abs(one.target[1] / one.target[0]))


def _skewed(one: Start) -> float:
    """How strongly the antisymmetric part of A turns the growing part into the other, relative to all of A."""
    if one.symmetric:
        return 1.0
    more = one.input + math.copysign(1.0, one.first) * one.output
    turned = (one.transition - one.transition.T) / 2 @ more
    return size(turned) / (size(one.transition) * size(more))


def _draw_later(rng: np.random.Generator) -> Start:
    while True:
        fraction = float(rng.choice([0.25, 0.5, 0.75]))
        one = draw_start(rng, scales=(1e-5, 1e-6, 1e-7, 1e-8), fraction=fraction)
        if _second(one) > 0.3 and one.growing > 0.4 and _skewed(one) > 0.2:
            return one


GENERAL_TIME = Check(
    id="rnn/near-zero-exponents",
    source="Proposition 9, at other times",
    statement=(
        "At the time θ ln(1/ε)/|w₀| the growing part is of order ε^{1−θ}; its ratio to the other is ε^{2θ} for "
        "symmetric A, and of order max(ε^{2θ}, ε) for other A; ‖A‖ over the growing part is ε^{min(θ, 1−θ)}, w₁ ≠ 0."
    ),
    hypotheses=(
        TOLD,
        SMALL,
        Hypothesis("a growing part of a share above 0.4", lambda s: -s.growing, -0.4),
        Hypothesis("|w₁| above 0.3 |w₀|", lambda s: -_second(s), -0.3),
        Hypothesis("an antisymmetric part of A that acts on the growing part, or none", lambda s: -_skewed(s), -0.2),
    ),
    tolerances=LATER,
    measure=_measure_later,
    draw=_draw_later,
    violations=(larger(_draw_later), reversed_sign(_draw_later)),
)

# --- Where the flow ends ----------------------------------------------------------------------------------------------

END, END_STEPS, EARLY = 300.0, 2400, 20
"""The time 150 of the sum of squares, steps to it, and the part of it after which one mode is learnt."""

HORIZON = 40
"""Entries of the response that are looked at."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """A start at two scales, and the two modes and weights of a balanced teacher."""

    start: Start
    modes: np.ndarray
    weights: np.ndarray

    @property
    def target(self) -> np.ndarray:
        return np.asarray(self.modes[None, :] ** np.arange(HORIZON)[:, None] @ self.weights)


TRAINED = {
    "loss: exponent against 4": 0.1,
    "tail error: exponent against 2": 0.1,
    "‖B − Cᵀ‖/‖B + Cᵀ‖: exponent against 1, or below 2 for symmetric A": 0.1,
    "order of the response at a twentieth of the time against 1": 0.0,
    "order of the response at the end against 2": 0.0,
}


def _response(a: np.ndarray, b: np.ndarray, c: np.ndarray, length: int) -> np.ndarray:
    """h₀, h₁, … of many systems."""
    entries = []
    for _ in range(length):
        entries.append(np.sum(c * b, axis=1))
        b = np.einsum("nij,nj->ni", a, b)
    return np.stack(entries, axis=1)


def _orders(record: Matrices) -> np.ndarray:
    h, rows = _response(*record, HORIZON), HORIZON // 2
    values = np.linalg.svd(h[:, np.add.outer(np.arange(rows), np.arange(rows))], compute_uv=False)
    return np.sum(values > 1e-2 * values[:, :1], axis=1)


def _measure_trained(instances: Sequence[Trained]) -> list[Measured]:
    k, count = len(instances[0].start.target), len(instances[0].start.scales)
    every = [(one, e**one.start.power) for one in instances for e in one.start.scales]
    a, b, c = (
        np.stack([e * getattr(one.start, name) for one, e in every]) for name in ("transition", "input", "output")
    )
    w = np.stack([one.target[:k] for one, _ in every])
    symmetric = np.array([one.start.symmetric for one, _ in every])
    records = flow((a, b, c), w, np.full(len(every), END), symmetric, steps=END_STEPS, every=END_STEPS // EARLY)
    h = _response(*records[-1], HORIZON)
    early, late = _orders(records[1]), _orders(records[-1])
    more, less, _ = parts(*records[-1], np.asarray(1.0))
    measured = []
    for place, one in enumerate(instances):
        own, scales = slice(place * count, (place + 1) * count), one.start.scales
        gap, ratio = h[own] - one.target, slope(scales, less[own] / more[own])
        numbers = (
            abs(slope(scales, 0.5 * np.sum(gap[:, :k] ** 2, axis=1)) - 4),
            abs(slope(scales, np.max(np.abs(gap[:, k:]), axis=1)) - 2),
            2 - ratio if one.start.symmetric else abs(ratio - 1),
            float(np.max(np.abs(early[own] - 1))),
            float(np.max(np.abs(late[own] - 2))),
        )
        measured.append(Measured(dict(zip(TRAINED, numbers, strict=True))))
    return measured


def _draw_trained(rng: np.random.Generator) -> Trained:
    start = draw_start(rng, states=(6,), scales=(1e-3, 1e-4), signs=(1.0,))
    modes = np.array([0.9, -0.5]) + rng.uniform(-0.03, 0.03, 2)
    return Trained(start, modes, np.array([0.6, 0.4]) + rng.uniform(-0.03, 0.03, 2))


def _larger_trained(rng: np.random.Generator) -> Trained:
    drawn = _draw_trained(rng)
    return dataclasses.replace(drawn, start=dataclasses.replace(drawn.start, power=0.5))


TRAINING = Check(
    id="rnn/near-zero-training",
    source="Section 4.3, what comes of a start near zero",
    statement=(
        "A student with more states than the sequence is long, started at size ε and trained on two modes, 2·2 + 1 "
        "entries long, ends balanced up to order ε (ε² for symmetric A) at the loss ε⁴ with the tail error ε², and its "
        "response has order 1 before it has order 2."
    ),
    hypotheses=(
        Hypothesis("the start is ε times a direction", lambda t: abs(t.start.power - 1)),
        Hypothesis("scales of at most 1e-3", lambda t: max(t.start.scales) - 1e-3),
        Hypothesis("as many entries as twice the modes and one", lambda t: abs(len(t.start.target) - 5)),
        Hypothesis("more states than entries", lambda t: len(t.start.target) + 1 - len(t.start.input)),
        Hypothesis("modes near 0.9 and −0.5", lambda t: float(np.abs(t.modes - (0.9, -0.5)).max()), 0.03),
    ),
    tolerances=TRAINED,
    measure=_measure_trained,
    draw=_draw_trained,
    violations=(Violation("a start of size √ε", _larger_trained),),
)

CHECKS = (
    *BOUNDS,
    LINEAR,
    PROPOSITION_9,
    PROPOSITION_9_EVERY,
    GENERAL_TIME,
    TRAINING,
)
