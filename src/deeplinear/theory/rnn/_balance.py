"""Balance of input and output maps, and what flow and descent conserve of it.

Flows are run by the library on its own clock, that of half the sum of squares; what is conserved does not depend on it.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from deeplinear.core import unflatten
from deeplinear.dynamics import GradientDescent, simulate
from deeplinear.probes import weights
from deeplinear.recurrent import balance_gap, balance_ratio, conserved_matrix, mode_invariants, norm_difference
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import flows
from deeplinear.theory.rnn._gradients import (
    LENGTH,
    PLAIN,
    ROUNDING,
    SAME,
    Matrices,
    Student,
    adopt_single,
    adopt_student,
    draw_student,
    each,
    matrices,
    other_target,
    penalised,
)

TIMES = (0.0, 1.0, 4.0, 10.0)
"""Times at which flows are looked at."""

KEPT = 1e-12
"""What is equal by symmetry differs by rounding only, whatever the integrator does."""

DRIFT = 1e-9
"""What an integrator of relative tolerance 1e-12 loses of a conserved quantity of order one."""


def paths(instances: Sequence[Student], times: Sequence[float] = TIMES) -> list[list[Matrices]]:
    """A, B, C at every recorded time of the flow of every student."""
    runs = flows([s.problem for s in instances], [s.params for s in instances], times)
    return [
        [matrices(student.form, [layer[i] for layer in run.layers]) for i in range(len(run.times))]
        for student, run in zip(instances, runs, strict=True)
    ]


def asymmetry(system: Matrices) -> float:
    """Largest entry of A − Aᵀ."""
    return float(np.max(np.abs(system[0] - system[0].T)))


def imbalance(system: Matrices) -> float:
    """Largest entry of B − Cᵀ; infinite if they cannot be compared."""
    _, b, c = system
    return float(np.max(np.abs(b - c.T))) if b.shape == c.T.shape else np.inf


def norms(system: Matrices) -> float:
    """‖B‖² − ‖C‖² by plain sums."""
    return float(np.sum(system[1] ** 2) - np.sum(system[2] ** 2))


FREE: Hypothesis[Student] = Hypothesis("a free transition matrix", lambda s: float(s.form != "general"))
SYMMETRIC: Hypothesis[Student] = Hypothesis("A symmetric at the start", lambda s: asymmetry(s.system), ROUNDING)
BALANCED: Hypothesis[Student] = Hypothesis("B = Cᵀ at the start", lambda s: imbalance(s.system))

GAP, EVEN, RATIO = "largest |B − Cᵀ|", "largest |A − Aᵀ|", "‖B − Cᵀ‖/‖B + Cᵀ‖"


def draw_balanced(rng: np.random.Generator) -> Student:
    """A balanced student with a symmetric transition matrix that is free to move, and a balanced teacher.

    For a teacher with $w_0 < 0$ balance is unstable: what rounding breaks of it grows like $e^{2|w_0|t}$.
    """
    student = draw_student(rng)
    a, b, _ = student.system
    weights, atoms = rng.dirichlet(np.ones(2)), rng.uniform(-0.9, 0.9, 2)
    target = (atoms ** np.arange(LENGTH)[:, None] @ weights)[:, None, None]
    return Student(((a + a.T) / 2, b, b.T.copy()), target, target)


def _unbalanced(rng: np.random.Generator) -> Student:
    student = draw_balanced(rng)
    a, b, c = student.system
    return dataclasses.replace(student, system=(a, b, c + 0.3 * rng.normal(size=c.shape)))


def _skew(rng: np.random.Generator) -> Student:
    student = draw_balanced(rng)
    a, b, c = student.system
    return dataclasses.replace(student, system=(a + 0.3 * rng.normal(size=a.shape), b, c))


STARTS = (
    Violation("maps that are no transposes of each other", _unbalanced),
    Violation("a transition matrix that is not symmetric", _skew),
)


def _kept(path: Sequence[Matrices]) -> Measured:
    return Measured(
        {
            GAP: max(float(balance_gap(path[-1])), *(imbalance(system) for system in path)),
            EVEN: max(asymmetry(system) for system in path),
            RATIO: float(balance_ratio(path[-1])),
        },
        facts={"B moved by": float(np.max(np.abs(path[-1][1] - path[0][1])))},
    )


LEMMA_6 = Check(
    id="rnn/lemma-6",
    source="Lemma 6, Lemma C.5",
    statement=(
        "Gradient flow from B = Cᵀ and A = Aᵀ keeps both, also where A is free: the velocities of B and Cᵀ are equal."
    ),
    hypotheses=(FREE, SYMMETRIC, BALANCED),
    tolerances={GAP: KEPT, EVEN: KEPT, RATIO: KEPT},
    measure=lambda instances: [_kept(path) for path in paths(instances)],
    draw=draw_balanced,
    adopt=adopt_single,
    violations=STARTS,
)

STEPS, RATE = 200, 0.02
"""Steps of gradient descent, and their length on the paper's loss where that is short enough."""


HALVINGS = 30
"""Of the length of a step, at most."""

FAR = 1e6
"""Entries of this size belong to a descent that diverges; their powers need not be taken."""


def descent(student: Student, lr: float, steps: int, every: int) -> list[Matrices]:
    """Systems along the library's descent of the paper's loss: with twice the learning rate on ours."""
    times = np.arange(0, steps + 1, every)
    run = simulate(student.problem, student.params, GradientDescent(2 * lr), times=times, probes=[weights])
    return [
        matrices(student.form, list(map(np.asarray, unflatten(row, student.model.shapes))))
        for row in np.asarray(run["weights"])
    ]


def descended(student: Student, lr: float, steps: int) -> Matrices:
    """Last system of such a descent."""
    return descent(student, lr, steps, steps)[-1]


def _settled(student: Student) -> Matrices:
    """Where steps lead that are short enough not to raise the loss: half as long until they are.

    Longer ones diverge from steep starts, and multiply rounding by more at every step, whatever is kept without it.
    """
    start = max(float(np.sum(student.residual**2)), ROUNDING)
    end = student.system
    for rate in RATE / 2.0 ** np.arange(HALVINGS):
        end = descended(student, rate, STEPS)
        near = all(np.all(np.abs(part) < FAR) for part in end)
        if near and float(np.sum(dataclasses.replace(student, system=end).residual ** 2)) <= start:
            break
    return end


def _measure_descent(student: Student) -> Measured:
    return _kept([student.system, _settled(student)])


LEMMA_C6 = Check(
    id="rnn/lemma-c.6",
    source="Lemma C.6",
    statement="Gradient descent from B = Cᵀ and A = Aᵀ keeps both, for any step.",
    hypotheses=(FREE, SYMMETRIC, BALANCED),
    tolerances={GAP: KEPT, EVEN: KEPT, RATIO: KEPT},
    version=2,
    measure=each(_measure_descent),
    draw=draw_balanced,
    adopt=adopt_single,
    violations=STARTS,
)

SPEED = "d/dt(‖B‖² − ‖C‖²)"
UNTIED = ("general", "symmetric", "upper", "diagonal")


def draw_untied(rng: np.random.Generator) -> Student:
    """A student of any form in which the output map is free."""
    return draw_student(rng, UNTIED[rng.integers(len(UNTIED))])


def _measure_norms(student: Student) -> Measured:
    _, b, c = student.system
    b_dot, _, c_dot = (-part for part in student.gradient)
    speed = 2 * float(np.sum(b * b_dot) - np.sum(c * c_dot))
    return Measured({SPEED: abs(speed)}, facts={"d‖B‖²/dt": 2 * float(np.sum(b * b_dot))})


LEMMA_C7 = Check(
    id="rnn/lemma-c.7",
    source="Lemma C.7",
    statement="Gradient flow conserves ‖B‖² − ‖C‖², in every form of the transition matrix and from any start.",
    hypotheses=(PLAIN, Hypothesis("an output map of its own", lambda s: float(s.form == "tied"))),
    tolerances={SPEED: 10 * ROUNDING},
    measure=each(_measure_norms),
    draw=draw_untied,
    adopt=adopt_student,
    violations=(Violation("a penalty on the parameters", penalised(draw_untied)),),
)

SQUARES, BOUND = "‖B‖² − ‖C‖² drifts by", "‖C‖ exceeds ‖B‖ + √|‖B(0)‖² − ‖C(0)‖²| by"


def _measure_unsquared(instances: Sequence[Student]) -> list[Measured]:
    measured = []
    for path in paths(instances):
        lengths = np.array([(np.linalg.norm(b), np.linalg.norm(c)) for _, b, c in path])
        squares, plain = lengths[:, 0] ** 2 - lengths[:, 1] ** 2, lengths[:, 0] - lengths[:, 1]
        own = abs(float(norm_difference(path[-1])) - float(norm_difference(path[0])))
        excess = lengths[:, 1] - lengths[:, 0] - np.sqrt(abs(squares[0]))
        measured.append(
            Measured(
                {SQUARES: max(own, float(np.max(np.abs(squares - squares[0])))), BOUND: float(np.max(excess))},
                printed=float(np.max(np.abs(plain - plain[0]))),
            )
        )
    return measured


EQUATION_C62 = Check(
    id="rnn/equation-c.62",
    source="Equations C.62 to C.64",
    statement=(
        "Along gradient flow it is ‖B‖² − ‖C‖² that is constant; ‖C‖ ≤ ‖B‖ + 2ε still follows where both norms are "
        "below 2ε at the start."
    ),
    hypotheses=(FREE, PLAIN),
    tolerances={SQUARES: DRIFT, BOUND: DRIFT},
    measure=_measure_unsquared,
    draw=draw_student,
    violations=(Violation("a penalty on the parameters", penalised(draw_student)),),
    printed="The difference ‖B‖ − ‖C‖ of the norms themselves is constant.",
    printed_tolerance=1e-4,
)

RATE_OF_U, SAME_U = "velocity of AAᵀ − AᵀA + BBᵀ − CᵀC", "conserved_matrix misses it by"


def _measure_matrix(student: Student) -> Measured:
    a, b, c = student.system
    b_dot, a_dot, c_dot = (-part for part in student.gradient)
    halves = a_dot @ a.T - a.T @ a_dot + b_dot @ b.T - c.T @ c_dot
    plain = a @ a.T - a.T @ a + b @ b.T - c.T @ c
    own = float(np.max(np.abs(np.asarray(conserved_matrix(student.system)) - plain)))
    return Measured({RATE_OF_U: float(np.max(np.abs(halves + halves.T))), SAME_U: own})


def _draw_several(rng: np.random.Generator) -> Student:
    """One input and output, or two inputs and three outputs."""
    return draw_student(rng) if rng.random() < 0.5 else draw_student(rng, inputs=2, outs=3)


CONSERVED = Check(
    id="rnn/conserved-matrix",
    source="derived from the invariance under (GAG⁻¹, GB, CG⁻¹)",
    statement=(
        "With a free A gradient flow conserves the matrix AAᵀ − AᵀA + BBᵀ − CᵀC, for any number of inputs and outputs."
    ),
    hypotheses=(FREE, PLAIN),
    tolerances={RATE_OF_U: 10 * ROUNDING, SAME_U: ROUNDING},
    measure=each(_measure_matrix),
    draw=_draw_several,
    adopt=adopt_student,
    violations=(Violation("a penalty on the parameters", penalised(draw_student)),),
)

RATE_OF_MODES, SAME_MODES = "largest d/dt(bᵢ² − cᵢ²)", "mode_invariants misses bᵢ² − cᵢ² by"


def _measure_modes(student: Student) -> Measured:
    _, b, c = student.system
    b_dot, _, c_dot = (-part for part in student.gradient)
    speeds = 2 * (np.sum(b * b_dot, axis=1) - np.sum(c * c_dot, axis=0))
    plain = np.sum(b**2, axis=1) - np.sum(c**2, axis=0)
    own = float(np.max(np.abs(np.asarray(mode_invariants(student.system)) - plain)))
    return Measured({RATE_OF_MODES: float(np.max(np.abs(speeds))), SAME_MODES: own})


def _draw_diagonal(rng: np.random.Generator) -> Student:
    return draw_student(rng, "diagonal")


MODES = Check(
    id="rnn/mode-invariants",
    source="derived from Lemma C.7",
    statement="With a diagonal A gradient flow conserves bᵢ² − cᵢ² for every mode.",
    hypotheses=(Hypothesis("a diagonal transition matrix", lambda s: float(s.form != "diagonal")), PLAIN),
    tolerances={RATE_OF_MODES: 10 * ROUNDING, SAME_MODES: ROUNDING},
    measure=each(_measure_modes),
    draw=_draw_diagonal,
    adopt=adopt_student,
    violations=(Violation("a penalty on the parameters", penalised(_draw_diagonal)),),
)

ONE = "a step changes ‖B‖² − ‖C‖² by other than η²(‖∂B‖² − ‖∂C‖²), by"
ORDER = "drift with η against twice that with η/2, at one time and relative to η∫(‖∂B‖² + ‖∂C‖²)dt"
HORIZON = 0.5
"""Time of the paper's clock to which drifts are compared."""


def _measure_drift(student: Student) -> Measured:
    start = norms(student.system)
    on_b, _, on_c = student.gradient
    eta = RATE / 2
    after = norms(descended(student, eta, 1))
    step = abs(after - start - eta**2 * float(np.sum(on_b**2) - np.sum(on_c**2)))
    count = 250
    drifts = [norms(descended(student, HORIZON / n, n)) - start for n in (count, 2 * count)]
    # The sum of squares falls by at least the speed of B and C; it is a scale for both drifts.
    path = descent(student, HORIZON / count, count, 50)
    speeds = [
        sum(float(np.sum(part**2)) for part in (g[0], g[2]))
        for g in (dataclasses.replace(student, system=system).gradient for system in path)
    ]
    scale = HORIZON / count * float(np.trapezoid(speeds, dx=HORIZON / (len(path) - 1)))
    return Measured(
        {ONE: step, ORDER: abs(drifts[0] - 2 * drifts[1]) / scale},
        facts={"drift": drifts[0], "ratio": drifts[0] / drifts[1] if drifts[1] else np.nan},
    )


DESCENT_DRIFT = Check(
    id="rnn/descent-drift",
    source="derived from Lemma C.7",
    statement=(
        "A step of gradient descent changes ‖B‖² − ‖C‖² by η²(‖∂B‖² − ‖∂C‖²), so that at a fixed time the drift is of "
        "first order in the step."
    ),
    hypotheses=(FREE, PLAIN),
    tolerances={ONE: ROUNDING, ORDER: 0.05},
    measure=each(_measure_drift),
    draw=draw_student,
    adopt=adopt_student,
    violations=(Violation("a penalty on the parameters", penalised(draw_student)),),
)

SMALL = 1e-6
"""Size of students near zero; what the linear part leaves out is relative to this."""

SHRINKS, GROWS = "Ẏ/‖Y‖ misses −2w₀Y/‖Y‖ by", "Ẇ/‖W‖ misses +2w₀W/‖W‖ by"


def _draw_small(rng: np.random.Generator) -> Student:
    student = draw_student(rng)
    target = student.target.copy()
    target[0] = rng.uniform(0.5, 1.5)
    a, b, c = (SMALL * rng.normal(size=part.shape) for part in student.system)
    return Student((a, b, c), target, target)


def _large(rng: np.random.Generator) -> Student:
    student = _draw_small(rng)
    a, b, c = student.system
    return dataclasses.replace(student, system=(a / SMALL, b / SMALL, c / SMALL))


def _measure_small(student: Student) -> Measured:
    _, b, c = student.system
    _, b_dot, c_dot = student.velocity
    w0 = float(student.told[0, 0, 0])
    less, more = b - c.T, b + c.T
    sizes = float(np.linalg.norm(less)), float(np.linalg.norm(more))
    shrinks = float(np.linalg.norm(b_dot - c_dot.T + 2 * w0 * less)) / sizes[0]
    grows, printed = (float(np.linalg.norm(b_dot + c_dot.T - sign * 2 * w0 * more)) / sizes[1] for sign in (1.0, -1.0))
    return Measured({SHRINKS: shrinks, GROWS: grows}, printed=printed, facts={"w₀": w0})


def _proportion(student: Student) -> float:
    """Size of the maps over that of their sum or difference, whichever is smaller."""
    _, b, c = student.system
    smaller = min(float(np.linalg.norm(b - c.T)), float(np.linalg.norm(b + c.T)))
    return float(np.linalg.norm(b) + np.linalg.norm(c)) / smaller if smaller > 0 else np.inf


SKETCH = Check(
    id="rnn/sketch-of-proposition-9",
    source="Section 4.3, sketch of Proposition 9",
    statement="Near zero the flow of L has d/dt(B − Cᵀ) ≈ −2w₀(B − Cᵀ) and d/dt(B + Cᵀ) ≈ +2w₀(B + Cᵀ).",
    hypotheses=(
        SAME,
        Hypothesis("near zero: largest entry", lambda s: max(float(np.max(np.abs(m))) for m in s.system), 1e-5),
        Hypothesis("B ± Cᵀ not small beside B and C", _proportion, 100.0),
    ),
    tolerances={SHRINKS: 2e-3, GROWS: 2e-3},
    measure=each(_measure_small),
    draw=_draw_small,
    violations=(
        Violation("another first entry", other_target(_draw_small)),
        Violation("parameters of order one", _large),
    ),
    printed="d/dt(B + Cᵀ) ≈ −2w₀(B + Cᵀ): sum and difference would both shrink.",
    printed_tolerance=0.5,
)


CHECKS = (LEMMA_6, LEMMA_C6, LEMMA_C7, EQUATION_C62, CONSERVED, MODES, DESCENT_DRIFT, SKETCH)
