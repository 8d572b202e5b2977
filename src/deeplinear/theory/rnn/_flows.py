"""Balanced students that learn a balanced teacher by gradient flow: as the loss goes to zero, so does the tail.

Losses are those of the library, half the sum of squares.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from deeplinear.core import Params, xp
from deeplinear.models import LinearRNN, Problem, Regression
from deeplinear.recurrent import certificate, polish
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import Run, flows
from deeplinear.theory.rnn._gradients import response

STATES, LENGTH, HORIZON = 6, 5, 40
"""Sizes of the student, of the sequences it learns from, and of the responses that are compared."""

TIMES = (0.0, 10.0, 100.0, 500.0, 5e3)


@dataclasses.dataclass(frozen=True)
class Lesson:
    """A diagonal student, a balanced teacher and, where the loss is empirical, inputs.

    Attributes:
        modes: Diagonal of A.
        first: Column of B.
        output: Row of C.
        atoms: Eigenvalues of the teacher.
        weights: Its weights, w_j = Σ p_i λ_i^j.
        windows: Inputs (length, samples), newest first, of the empirical loss; none for white inputs.
    """

    modes: np.ndarray
    first: np.ndarray
    output: np.ndarray
    atoms: np.ndarray
    weights: np.ndarray
    windows: np.ndarray | None = None

    @property
    def target(self) -> np.ndarray:
        """Response of the teacher."""
        return self.atoms ** np.arange(HORIZON)[:, None] @ self.weights

    @property
    def problem(self) -> Problem:
        # White inputs are those of second moments 1, so that one loss serves both.
        second, target = self.moments, self.target[None, :LENGTH]
        return Problem(LinearRNN(STATES, LENGTH, form="diagonal"), Regression(second, target @ second, solution=target))

    @property
    def params(self) -> Params:
        return (
            xp.asarray(self.first, dtype=float)[:, None],
            xp.asarray(self.modes, dtype=float)[:, None],
            xp.asarray(self.output, dtype=float)[None],
        )

    @property
    def moments(self) -> np.ndarray:
        """Second moments of the inputs."""
        return np.eye(LENGTH) if self.windows is None else self.windows @ self.windows.T / self.windows.shape[1]

    @property
    def least(self) -> float:
        """Smallest eigenvalue of the second moments; what is rounding is zero."""
        value = float(np.linalg.eigvalsh(self.moments)[0])
        return value if value > 1e-12 else 0.0


LONG: Hypothesis[Lesson] = Hypothesis("k > 2d̂", lambda lesson: float(2 * len(lesson.atoms) + 1 - LENGTH))
TEACHER: Hypothesis[Lesson] = Hypothesis("a balanced teacher", lambda lesson: float(-np.min(lesson.weights)))
BALANCED: Hypothesis[Lesson] = Hypothesis(
    "a balanced start", lambda lesson: float(np.max(np.abs(lesson.first - lesson.output)))
)
FULL: Hypothesis[Lesson] = Hypothesis("Σ positive definite", lambda lesson: 1e-3 - lesson.least)

FITTED = 1e-14
"""Loss at which a flow ends: that of too few inputs falls exponentially, and soon to what rounding leaves of it."""

KEPT = 1e-12
"""What is equal by symmetry differs by rounding only."""

GAP, ALLOWED = "largest |B − Cᵀ| on the way", "tail over what the certificate allows for the loss"
LIMIT, END = "tail of the limit", "largest error of the response at the end"


def _draw(rng: np.random.Generator, count: int = 2) -> Lesson:
    """A balanced student of order one and a teacher with separate eigenvalues."""
    places = np.array([[0.5, 0.9], [-0.8, -0.2], [0.05, 0.2]])[:count]
    weights = rng.uniform(0.3, 0.7, count)
    column = rng.uniform(0.2, 0.6, STATES) * rng.choice([-1.0, 1.0], STATES)
    atoms = rng.uniform(places[:, 0], places[:, 1])
    return Lesson(rng.uniform(-0.8, 0.8, STATES), column, column, atoms, weights / weights.sum())


def _windows(rng: np.random.Generator, samples: int) -> Lesson:
    return dataclasses.replace(_draw(rng), windows=rng.normal(size=(LENGTH, samples)))


def _unbalanced(rng: np.random.Generator, samples: int | None = None) -> Lesson:
    lesson = _draw(rng) if samples is None else _windows(rng, samples)
    return dataclasses.replace(lesson, output=lesson.output + rng.normal(0, 1.0, STATES))


def _systems(run: Run) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    b, a, c = run.layers
    return [(np.diag(a[i, :, 0]), b[i], c[i]) for i in range(len(run.times))]


def error(system: Sequence[np.ndarray], lesson: Lesson, start: int = 0) -> float:
    """Largest error of the response from an entry on."""
    found = response(system, HORIZON)[start:, 0, 0]
    return float(np.max(np.abs(found - lesson.target[start:])))


def _allowed(systems: Sequence[Sequence[np.ndarray]], lesson: Lesson, losses: np.ndarray) -> float:
    """Tails over the certified bounds, at worst; 0 where there is no certificate."""
    if 2 * len(lesson.atoms) + 1 > LENGTH or lesson.least == 0:
        return 0.0
    worst = 0.0
    for system, loss in zip(systems, losses, strict=True):
        radius = max(float(np.max(np.abs(lesson.atoms))), float(np.max(np.abs(np.diag(system[0])))))
        bound = certificate(lesson.atoms, LENGTH, HORIZON, radius=radius).bounds_from_loss(loss / lesson.least)
        errors = np.abs(response(system, HORIZON)[:, 0, 0] - lesson.target)
        allowed = np.asarray(bound)[LENGTH:] + 1e-13
        worst = max(worst, float(np.max(errors[LENGTH:] / allowed)))
    return worst


def _measure(instances: Sequence[Lesson], *, limit: bool) -> list[Measured]:
    problems, starts = [lesson.problem for lesson in instances], [lesson.params for lesson in instances]
    runs = flows(problems, starts, TIMES, below=FITTED)
    measured = []
    for lesson, run in zip(instances, runs, strict=True):
        systems = _systems(run)
        gap = max(float(np.max(np.abs(b[:, 0] - c[0]))) for _, b, c in systems)
        residuals = {GAP: gap, ALLOWED: _allowed(systems[1:], lesson, run.loss[1:])}
        facts = {"loss at the end": float(run.loss[-1]), END: error(systems[-1], lesson)}
        if limit:
            a, b, c = systems[-1]
            kept = gap <= KEPT
            found = polish(lesson.target[:LENGTH], (a, b, b.T if kept else c), form="tied" if kept else "diagonal")
            residuals[LIMIT] = error([np.asarray(part) for part in found.system], lesson, LENGTH)
            facts["loss of the limit"] = found.loss
        else:
            residuals[END] = facts[END]
        measured.append(Measured(residuals, facts=facts))
    return measured


THEOREM_5 = Check(
    id="rnn/theorem-5",
    source="Theorem 5",
    statement=(
        "For k > 2d̂ and a balanced teacher, gradient flow from a balanced start stays balanced, its tail falls at "
        "least as √L, and the limit of zero loss extrapolates."
    ),
    hypotheses=(LONG, TEACHER, BALANCED),
    tolerances={GAP: KEPT, ALLOWED: 1.0, LIMIT: 1e-8},
    measure=lambda instances: _measure(instances, limit=True),
    draw=_draw,
    violations=(
        Violation("a start that is not balanced", _unbalanced),
        Violation("sequences too short for the teacher", lambda rng: _draw(rng, 3)),
    ),
)

EMPIRICAL = Check(
    id="rnn/theorem-5-empirical",
    source="derived from Theorem 5",
    statement=(
        "The same holds for the empirical loss of inputs with positive definite second moments Σ: then zero loss means "
        "zero residuals, and 2L_S is at least the smallest eigenvalue of Σ times the sum of their squares."
    ),
    hypotheses=(LONG, TEACHER, BALANCED, FULL),
    tolerances={GAP: KEPT, ALLOWED: 1.0, END: 2e-2},
    measure=lambda instances: _measure(instances, limit=False),
    draw=lambda rng: _windows(rng, 40),
    violations=(
        Violation("a start that is not balanced", lambda rng: _unbalanced(rng, 40)),
        Violation("fewer inputs than the length of a sequence", lambda rng: _windows(rng, 1)),
    ),
)

CHECKS = (THEOREM_5, EMPIRICAL)
