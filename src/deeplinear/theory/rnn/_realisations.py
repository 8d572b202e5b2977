"""Networks of the same response: diagonal equivalents, delays, and networks of a known number of states."""

import dataclasses

import numpy as np

from deeplinear.recurrent import (
    delay_teacher,
    diagonal_equivalent,
    ho_kalman,
    impulse_response,
    unbalanced_teacher,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.network._networks import each
from deeplinear.theory.rnn._systems import (
    HORIZON,
    ROUNDING,
    Matrices,
    adopt_system,
    asymmetry,
    draw_orthogonal,
    draw_symmetric,
    draw_system,
    imbalance,
    largest,
)

CONDITION = 1e3
"""Largest condition number of a Hankel matrix that is drawn: it costs as many digits over the horizon."""


def draw_teacher(rng: np.random.Generator, states: int) -> Matrices:
    """Any kind: general, balanced, a delay, a random delay."""
    kind = int(rng.integers(4))
    if kind == 0:
        return draw_system(rng, states, radius=float(rng.uniform(0.5, 1.05)))
    if kind == 1:
        return draw_symmetric(rng, states)
    teacher = delay_teacher(states) if kind == 2 else unbalanced_teacher(states, rng)
    return Matrices(*(np.asarray(matrix) for matrix in teacher))


# --- Diagonal equivalents ---------------------------------------------------------------------------------------------

SAME = "responses against each other, relative"
KEPT = "diagonal network: C against Bᵀ"
BESIDE = "its entries beside the diagonal"


def _measure_diagonal(instance: Matrices) -> Measured:
    found = Matrices(*(np.asarray(matrix) for matrix in diagonal_equivalent(instance.parts)))
    wanted = instance.response(HORIZON)
    return Measured(
        {
            SAME: largest(found.response(HORIZON) - wanted) / (1 + largest(wanted)),
            KEPT: imbalance(found),
            BESIDE: largest(found.transition - np.diag(np.diag(found.transition))),
        }
    )


def _draw_diagonal(rng: np.random.Generator) -> Matrices:
    return draw_symmetric(rng, int(rng.choice([3, 8])), int(rng.integers(1, 3)), float(rng.uniform(0.5, 1.05)))


def _unbalanced(rng: np.random.Generator) -> Matrices:
    drawn = _draw_diagonal(rng)
    return dataclasses.replace(drawn, output=drawn.output @ draw_orthogonal(rng, drawn.states))


LEMMA_C_3 = Check(
    id="rnn/lemma-c.3",
    source="Lemma C.3",
    statement="A balanced network with symmetric A has a diagonal equivalent of the same response, which is balanced.",
    hypotheses=(Hypothesis("symmetric A", asymmetry, ROUNDING), Hypothesis("C = Bᵀ", imbalance, ROUNDING)),
    tolerances={SAME: 1e-11, KEPT: ROUNDING, BESIDE: 0.0},
    measure=each(_measure_diagonal),
    draw=_draw_diagonal,
    violations=(Violation("C that is not Bᵀ", _unbalanced),),
    adopt=adopt_system,
)

# --- Delays -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Delay:
    """A network that is told to be a delay line with given links."""

    system: Matrices
    links: np.ndarray


PULSE = "response of a delay of unit links against a one at d̂ − 1"
SILENT = "largest of its first d̂ − 1 entries"
FIRST = "entry d̂ − 1 against the product of the links, relative"
UNBALANCED = "A is symmetric or C = Bᵀ (d̂ > 1)"


def _measure_delay(instance: Delay) -> Measured:
    size = len(instance.links) + 1
    found = np.asarray(impulse_response(instance.system.parts, 3 * size).values)
    unit = bool(np.all(instance.links == 1)) and largest(np.diag(instance.system.transition)) == 0
    wanted = float(np.prod(instance.links))
    plain = size > 1 and min(asymmetry(instance.system), imbalance(instance.system)) == 0
    return Measured(
        {
            PULSE: largest(found - np.eye(3 * size)[size - 1]) if unit else 0.0,
            SILENT: largest(found[: size - 1]),
            FIRST: abs(float(found[size - 1]) / wanted - 1),
            UNBALANCED: float(plain),
        }
    )


def _draw_delay(rng: np.random.Generator) -> Delay:
    size = int(rng.integers(1, 12))
    teacher = delay_teacher(size) if rng.random() < 0.6 else unbalanced_teacher(size, rng)
    system = Matrices(*(np.asarray(matrix) for matrix in teacher))
    return Delay(system, np.diag(system.transition, 1))


def _shortened(rng: np.random.Generator) -> Delay:
    system = Matrices(*(np.asarray(matrix) for matrix in delay_teacher(5)))
    short = system.transition.copy()
    short[0, 2] = 1.0
    return Delay(dataclasses.replace(system, transition=short), np.ones(4))


DELAY = Check(
    id="rnn/delay-teacher",
    source="Appendix B.1 and B.2.2",
    statement=(
        "A delay line of d̂ states has the response 1 at d̂ − 1 and else 0; with random links and a small diagonal "
        "the first d̂ − 1 entries vanish and the next is the product of the links. Neither is balanced."
    ),
    hypotheses=(
        Hypothesis(
            "links above the diagonal, and nothing beyond them",
            lambda d: max(largest(np.diag(d.system.transition, 1) - d.links), largest(np.triu(d.system.transition, 2))),
        ),
    ),
    tolerances={PULSE: 0.0, SILENT: 0.0, FIRST: 1e-14, UNBALANCED: 0.0},
    measure=each(_measure_delay),
    draw=_draw_delay,
    violations=(Violation("a link that skips a state", _shortened),),
)

# --- A known number of states -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Realised:
    """A network, and the number of states that is told of it."""

    system: Matrices
    order: int

    @property
    def condition(self) -> float:
        values = self.system.response(2 * self.order)[:, 0, 0]
        return float(np.linalg.cond(values[np.add.outer(np.arange(self.order), np.arange(self.order))]))


REALISED = "response of the network made of 2d̂ samples against the response, relative"
RECURRENCE = "the recurrence that 2d̂ samples determine, continued, against the response, relative"
FREE = "with 2d̂ − 1 samples the next is whatever is asked for, missed by"


def _measure_realised(instance: Realised) -> Measured:
    order = instance.order
    w = instance.system.response(40)[:, 0, 0]
    size = largest(w)
    index = np.add.outer(np.arange(order), np.arange(order))
    coefficients = np.linalg.solve(w[index], w[order : 2 * order])
    continued = list(w[: 2 * order])
    while len(continued) < len(w):
        continued.append(float(coefficients @ continued[-order:]))

    def realised(samples: np.ndarray) -> np.ndarray:
        made = Matrices(*(np.asarray(matrix) for matrix in ho_kalman(samples, order)))
        return made.response(len(w))[:, 0, 0]

    other = w[: 2 * order].copy()
    other[-1] += size
    return Measured(
        {
            REALISED: largest(realised(w[: 2 * order]) - w) / size,
            RECURRENCE: largest(np.array(continued) - w) / size,
            FREE: largest(realised(other)[: 2 * order] - other) / size,
        },
        facts={"condition number": instance.condition},
    )


def _draw_realised(rng: np.random.Generator, hidden: int = 0) -> Realised:
    while True:
        kind = int(rng.integers(3))
        if kind == 0:
            order = int(rng.choice([2, 5, 10]))
            system = Matrices(*(np.asarray(matrix) for matrix in delay_teacher(order + hidden)))
        elif kind == 1:
            order = int(rng.choice([2, 5]))
            system = Matrices(*(np.asarray(matrix) for matrix in unbalanced_teacher(order + hidden, rng)))
        else:
            order = int(rng.integers(2, 4))
            system = draw_system(rng, order + hidden, radius=float(rng.uniform(0.6, 0.95)))
        drawn = Realised(system, order)
        if hidden and kind != 2:  # a delay that is too long has a vanishing Hankel matrix
            continue
        if drawn.condition < CONDITION:
            return drawn


HO_KALMAN = Check(
    id="rnn/ho-kalman",
    source="Figure 1(b), the teacher learnt at k = 2d̂",
    statement=(
        "Among networks of d̂ states, symmetric or not, 2d̂ samples with a nonsingular Hankel matrix determine the "
        "response; 2d̂ − 1 samples leave the next one free. A delay of d̂ states is known from 2d̂ samples."
    ),
    hypotheses=(
        Hypothesis("no more states than told", lambda r: float(r.system.states - r.order)),
        Hypothesis("a nonsingular Hankel matrix", lambda r: r.condition, CONDITION),
    ),
    tolerances={REALISED: 1e-9, RECURRENCE: 1e-9, FREE: 1e-9},
    measure=each(_measure_realised),
    draw=_draw_realised,
    violations=(Violation("a state more than told", lambda rng: _draw_realised(rng, 1)),),
)

CHECKS = (LEMMA_C_3, DELAY, HO_KALMAN)
