"""What is printed otherwise of responses and of extrapolation: each with the form we stand for."""

import dataclasses
import math

import numpy as np
import scipy.stats

from deeplinear.recurrent import delay_teacher, extrapolation, moment_gap, outputs, sharpness_student, wasserstein
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.network._networks import each
from deeplinear.theory.rnn._certificates import Gapped, Measures, Promised, draw_measures, draw_near
from deeplinear.theory.rnn._moments import ALL, BALANCED, ENOUGH, NO_LOSS, POSITIVE, SYMMETRIC, TAIL, allowed
from deeplinear.theory.rnn._systems import (
    HORIZON,
    ROUNDING,
    Matrices,
    Pair,
    draw_atoms,
    draw_polished,
    draw_system,
    draw_weights,
    largest,
    moments,
    split,
)

# --- From the loss to normalised moments ------------------------------------------------------------------------------

REPAIRED = "(m_j − m̂_j)² − 2√δ|κ(m_j − m̂_j)| above δ/w₀², relative, by"
BOUND = "|m_j − m̂_j| above √(1 + m̂_j²)√δ/(w₀ − √δ), relative, by"


def _measure_step(instance: Gapped) -> Measured:
    """Printed: δ itself in place of its root."""
    w0, delta = float(instance.teacher[0]), instance.loss
    gaps, kappa = instance.gaps[1:], np.abs(instance.student[1:] / (w0 * instance.student[0]))
    left = delta / w0**2
    ours = float(np.max(gaps**2 - 2 * math.sqrt(delta) * kappa * gaps)) / left - 1
    printed = float(np.max(gaps**2 - 2 * delta * kappa * gaps)) / left - 1
    bound = np.asarray(moment_gap(instance.teacher, delta, loss_scale="sum_sq"))[1:]
    facts = {"left side": left, "right side as printed": left * (1 + printed)}
    return Measured({REPAIRED: ours, BOUND: float(np.max(gaps / bound)) - 1}, printed=printed, facts=facts)


def draw_light(rng: np.random.Generator) -> Gapped:
    """One atom of the teacher near 1, and a student whose atom is a little larger and lighter: 2s and s."""
    atom, mass, s = float(rng.uniform(0.9, 1.0)), float(rng.uniform(0.5, 2.0)), 10.0 ** rng.uniform(-5, -3)
    return light(atom, mass, s)


def light(atom: float, mass: float, s: float) -> Gapped:
    """The student with the atom (1 + 2s) and the mass (1 − s) of the teacher's, at three samples."""
    w = mass * atom ** np.arange(3)
    h = mass * (1 - s) * (atom * (1 + 2 * s)) ** np.arange(3)
    return Gapped(h, w, float(np.sum((h - w) ** 2)))


AS_TOLD: Hypothesis[Gapped] = Hypothesis("δ is the loss", lambda g: abs(g.true_loss - g.loss) / g.true_loss, 1e-9)

C_35 = Check(
    id="rnn/erratum-c.35",
    source="Equations C.34 and C.35",
    statement=(
        "With |β| ≤ √δ, δ/w₀² ≥ (m_j − m̂_j)² − 2√δ|κ(m_j − m̂_j)|. No bound of use comes of it; "
        "|m_j − m̂_j| ≤ √(1 + m̂_j²)√δ/(w₀ − √δ) does the work."
    ),
    hypotheses=(AS_TOLD, Hypothesis("√δ below w₀", lambda g: math.sqrt(g.loss) - float(g.teacher[0]))),
    tolerances={REPAIRED: 1e-9, BOUND: 1e-9},
    measure=each(_measure_step),
    draw=draw_light,
    violations=(
        Violation("a δ below the loss", lambda rng: dataclasses.replace(d := draw_light(rng), loss=d.true_loss / 100)),
    ),
    printed="δ/w₀² ≥ (m_j − m̂_j)² − 2|δκ(m_j − m̂_j)|.",
    printed_tolerance=1e-6,
)

KAPPA = "|κ| above τ^j/w₀, relative, by"
SAME_KAPPA = "CA^jB/(w₀(β − w₀)) against −m_j/w₀, relative"
STABLE = "|m̂_j| above 1 by"
CONCLUSION = "(m_j − m̂_j)² above (1 + τ^{2j})L/w₀², relative, by"


def _measure_kappa(instance: Pair) -> Measured:
    """Printed: |κ| ≤ τ^{j+2}/(2w₀²), and m̂_j ≤ w₀."""
    h, w = instance.student.response(instance.length)[:, 0, 0], instance.target(instance.length)
    w0, beta, j = w[0], w[0] - h[0], np.arange(instance.length)
    tau = Promised(instance, 1.0).tau
    kappa, m, teacher = h / (w0 * (beta - w0)), h / h[0], w / w0
    gaps = np.maximum(np.abs(m - teacher) - 1e-13, 0)
    printed = max(float(np.max(2 * w0**2 * np.abs(kappa) / tau ** (j + 2))), float(np.max(teacher)) / w0) - 1
    conclusion = np.max(gaps**2 / ((1 + tau ** (2 * j)) * instance.loss / w0**2))
    return Measured(
        {
            KAPPA: float(np.max(w0 * np.abs(kappa) / tau**j)) - 1,
            SAME_KAPPA: largest(w0 * kappa + m),
            STABLE: largest(teacher) - 1,
            CONCLUSION: float(conclusion) - 1,
        },
        printed=printed,
        facts={"τ": tau},
    )


def _draw_lighter(rng: np.random.Generator) -> Pair:
    """A mass below 1, so that the first normalised moment, which is 1, is above it."""
    drawn, mass = draw_near(rng, 1.0, spare=0), float(rng.uniform(0.3, 0.9))
    a, b, c = drawn.student.parts
    student = Matrices(a, math.sqrt(mass) * b, math.sqrt(mass) * c)
    return dataclasses.replace(drawn, student=student, weights=mass * drawn.weights)


def _unstable(rng: np.random.Generator) -> Pair:
    drawn = _draw_lighter(rng)
    return dataclasses.replace(drawn, atoms=drawn.atoms + 2.0)


C_36 = Check(
    id="rnn/erratum-c.36",
    source="Equation C.36 and the lines before it",
    statement=(
        "κ = −m_j/w₀, so |κ| ≤ τ^j/w₀; a stable teacher has |m̂_j| ≤ 1. And (m_j − m̂_j)w₀ = r_j − m_jr₀ gives "
        "(m_j − m̂_j)² ≤ (1 + τ^{2j})L/w₀² at once."
    ),
    hypotheses=(Hypothesis("a stable teacher", lambda p: largest(p.atoms) - 1), POSITIVE, SYMMETRIC, BALANCED),
    tolerances={KAPPA: 1e-9, SAME_KAPPA: 1e-9, STABLE: ROUNDING, CONCLUSION: 1e-9},
    measure=each(_measure_kappa),
    draw=_draw_lighter,
    violations=(Violation("a teacher that grows", _unstable),),
    printed="|κ| ≤ τ^{j+2}/(2w₀²), as if |β − w₀| were at least 2w₀, and m̂_j ≤ w₀.",
    printed_tolerance=1e-6,
)

# --- From Wasserstein distances to moments ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Moved:
    """Two measures, an order, and a bound on the sizes of their atoms that is told."""

    measures: Measures
    radius: float


MOMENT = "|m_q − m̂_q| above qR^{q−1}W₁, relative, by"


def _measure_moved(instance: Moved) -> Measured:
    """Printed: W_q itself."""
    pair, q = instance.measures, instance.measures.order
    (x, p), (y, s) = pair.first, pair.second
    difference = abs(float(p @ x**q - s @ y**q))
    one = float(scipy.stats.wasserstein_distance(x, y, p, s))
    printed = difference / wasserstein(pair.first, pair.second, q) - 1
    residual = difference / (q * instance.radius ** (q - 1) * one) - 1
    return Measured({MOMENT: residual}, printed=printed, facts={"difference of moments": difference, "W₁": one})


def _draw_moved(rng: np.random.Generator) -> Moved:
    """Two measures, or one that is moved as a whole."""
    drawn = draw_measures(rng, 0.5, 1.0)
    if rng.random() < 0.5:
        places, weights = rng.uniform(0.8, 1.0, 3), draw_weights(rng, 3)
        second = (places - rng.uniform(0.02, 0.1), weights)
        drawn = dataclasses.replace(drawn, first=(places, weights), second=second, order=int(rng.integers(3, 6)))
    return Moved(drawn, largest(drawn.support))


def shifted(place: float, by: float, order: int, radius: float) -> Moved:
    """Unit masses at a place and a little below it."""
    one = np.ones(1)
    return Moved(Measures((place * one, one), ((place - by) * one, one), order, by), radius)


C_37 = Check(
    id="rnn/erratum-c.37",
    source="Equation C.37",
    statement="|m_q − m̂_q| ≤ qR^{q−1}W₁ with R the largest size of an atom.",
    hypotheses=(
        Hypothesis("a radius that holds all atoms", lambda m: largest(m.measures.support) - m.radius),
        Hypothesis("order at least 2", lambda m: float(2 - m.measures.order)),
    ),
    tolerances={MOMENT: ROUNDING},
    measure=each(_measure_moved),
    draw=_draw_moved,
    violations=(
        Violation("a radius that is too small", lambda rng: shifted(1.0, float(rng.uniform(0.02, 0.1)), 5, 0.5)),
    ),
    printed="|m_q − m̂_q| ≤ W_q.",
    printed_tolerance=1e-6,
)


@dataclasses.dataclass(frozen=True)
class Shrunk:
    """Measures of a teacher and of a student of more states, that are shrunk towards 0 together."""

    teacher: tuple[np.ndarray, np.ndarray]
    student: tuple[np.ndarray, np.ndarray]
    states: int

    @property
    def order(self) -> int:
        return len(self.teacher[0])

    @property
    def unmatched(self) -> float:
        """Largest difference of the first 2n moments."""
        count = 2 * self.order
        return largest(moments(*self.teacher, count) - moments(*self.student, count))


EXPONENT = "d ln W₁/d ln L against 1/(4n)"
SCALES = (0.5, 0.1)


def _measure_shrunk(instance: Shrunk) -> Measured:
    """Printed: 1/(4d), with the states of the student."""
    order, logs = instance.order, []
    for scale in SCALES:
        teacher, student = ((scale * atoms, weights) for atoms, weights in (instance.teacher, instance.student))
        gap = moments(*teacher, 2 * order + 1) - moments(*student, 2 * order + 1)
        logs.append((math.log(wasserstein(teacher, student)), math.log(float(np.sum(gap**2)))))
    slope = (logs[0][0] - logs[1][0]) / (logs[0][1] - logs[1][1])
    constant = math.exp(logs[0][0] - logs[0][1] / (4 * order)) / order
    return Measured(
        {EXPONENT: abs(slope - 1 / (4 * order))},
        printed=abs(slope - 1 / (4 * instance.states)),
        facts={"exponent": slope, "W₁/(nη^{1/(2n)})": constant},
    )


def _draw_shrunk(rng: np.random.Generator) -> Shrunk:
    """The student shares the first 2n moments: a row and column more on the Jacobi matrix."""
    order = int(rng.integers(1, 3))
    teacher = (draw_atoms(rng, order), draw_weights(rng, order))
    made = sharpness_student(teacher, coupling=float(rng.uniform(0.3, 0.8)), corner=float(rng.uniform(-0.5, 0.5)))
    values, vectors = np.linalg.eigh(np.asarray(made.system.transition))
    weights = (vectors.T @ np.asarray(made.system.input))[:, 0] ** 2
    return Shrunk(teacher, (values, weights / weights.sum()), 2 * order + 2 + int(rng.integers(0, 5)))


def _elsewhere(rng: np.random.Generator) -> Shrunk:
    drawn = _draw_shrunk(rng)
    return dataclasses.replace(drawn, student=(drawn.teacher[0] + 0.3, drawn.teacher[1]))


EXPONENTS = Check(
    id="rnn/erratum-exponent",
    source="Appendix C.3 and the sketch of the proof of Theorem 8",
    statement=(
        "The exponent in W₁ = O(δ^{1/(4n)}) is that of the teacher: measures that share 2n moments and shrink together "
        "attain it, however many states the student has."
    ),
    hypotheses=(
        Hypothesis("the first 2n moments agree", lambda s: s.unmatched, ROUNDING),
        Hypothesis("a student with more states", lambda s: float(s.order + 1 - s.states)),
    ),
    tolerances={EXPONENT: 1e-8},
    measure=each(_measure_shrunk),
    draw=_draw_shrunk,
    violations=(Violation("a student that is elsewhere", _elsewhere),),
    printed="the exponents are 1/(4d) and 1/(4dp), d the states of the student: bounds that weaken as d grows.",
    printed_tolerance=1e-3,
)

# --- Responses and their errors ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Pulsed:
    """A network and the state it starts in."""

    system: Matrices
    start: np.ndarray


SHIFTED = "y_1, y_2, … against CB, CAB, …, relative"
NOTHING = "y_0"
FROM_ONE = "our outputs against y_1, y_2, …, relative"
COUNT = 12


def _measure_pulsed(instance: Pulsed) -> Measured:
    """Printed: the outputs y_0, y_1, … are CB, CAB, …"""
    system, state, found = instance.system, instance.start, []
    for t in range(COUNT + 1):
        found.append(float((system.output @ state)[0]))
        state = system.transition @ state + (system.first[:, 0] if t == 0 else 0.0)
    h, y = system.response(COUNT)[:, 0, 0], np.array(found)
    ours = np.asarray(outputs(system.parts, np.eye(COUNT)[0]))
    size = largest(h)
    return Measured(
        {SHIFTED: largest(y[1:] - h) / size, NOTHING: abs(found[0]), FROM_ONE: largest(ours - y[1:]) / size},
        printed=largest(y[:-1] - h) / size,
    )


def _draw_pulsed(rng: np.random.Generator) -> Pulsed:
    return Pulsed(draw_system(rng, 4), np.zeros(4))


DEFINITION_1 = Check(
    id="rnn/erratum-definition-1",
    source="Definition 1 and equation 3.1",
    statement="The impulse response CB, CAB, … is y_1, y_2, …: the output y_0 = 0 before the first input is not in it.",
    hypotheses=(Hypothesis("a start at zero", lambda p: largest(p.start)),),
    tolerances={SHIFTED: ROUNDING, NOTHING: 0.0, FROM_ONE: ROUNDING},
    measure=each(_measure_pulsed),
    draw=_draw_pulsed,
    violations=(
        Violation("another start", lambda rng: dataclasses.replace(_draw_pulsed(rng), start=rng.standard_normal(4))),
    ),
    printed="May be read as: the output sequence y_0, y_1, … of the input 1, 0, 0, … is CB, CAB, …",
    printed_tolerance=1e-6,
)


@dataclasses.dataclass(frozen=True)
class Judged:
    """Responses of a student and of its teacher, samples trained on, and whether the student is told to be good."""

    student: np.ndarray
    teacher: np.ndarray
    length: int
    good: bool


VERDICT = "verdict against what is told"


def _measure_judged(instance: Judged) -> Measured:
    """Printed: a student is bad where its tail error is worse than that of the zero student."""
    horizon, k = len(instance.teacher), instance.length
    found = extrapolation(instance.student, instance.teacher, k, horizon=horizon)
    error, zero = largest((instance.student - instance.teacher)[k:]), largest(instance.teacher[k:])
    return Measured(
        {VERDICT: float(found.extrapolates() != instance.good)},
        printed=float((error <= zero) != instance.good),
        facts={"tail error": error, "tail error of the zero student": zero, "training loss": found.training_loss},
    )


def _draw_judged(rng: np.random.Generator) -> Judged:
    states, horizon = int(rng.integers(1, 11)), 40
    teacher = Matrices(*(np.asarray(m) for m in delay_teacher(states))).response(horizon)[:, 0, 0]
    length = states + int(rng.integers(0, 11))
    if rng.random() < 0.5:
        return Judged(teacher + 1e-9 * rng.standard_normal(horizon), teacher, length, True)
    return Judged(np.zeros(horizon), teacher, length, False)


def _praised_zero(rng: np.random.Generator) -> Judged:
    drawn = _draw_judged(rng)
    return dataclasses.replace(drawn, student=np.zeros_like(drawn.teacher), good=True)


def _praised_wild(rng: np.random.Generator) -> Judged:
    drawn = _draw_judged(rng)
    wild = np.where(np.arange(len(drawn.teacher)) < drawn.length, 0.0, rng.uniform(1.5, 3, len(drawn.teacher)))
    return dataclasses.replace(drawn, student=drawn.teacher + wild, good=True)


ZERO_SOLUTION = Check(
    id="rnn/erratum-zero-solution",
    source="Appendix B.3",
    statement=(
        "Where the tail of the teacher vanishes, as that of a delay does for k ≥ d̂, the zero student has no tail error "
        "and is no yardstick; the largest entry of the teacher is, for students whose training loss has converged."
    ),
    hypotheses=(
        Hypothesis("a teacher without a tail", lambda j: largest(j.teacher[j.length :])),
        Hypothesis(
            "good is what follows the teacher", lambda j: float((largest(j.student - j.teacher) < 1e-6) != j.good)
        ),
    ),
    tolerances={VERDICT: 0.0},
    measure=each(_measure_judged),
    draw=_draw_judged,
    violations=(
        Violation("the zero student, told to be good", _praised_zero),
        Violation("a student that explodes, told to be good", _praised_wild),
    ),
    printed="May be read as: for every teacher a student fails where its tail error is worse than that of the zero "
    "student. (Measured: wrong verdicts.)",
    printed_tolerance=0.5,
)

# --- Sizes in Theorem 5 -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Small:
    """A teacher with idle and repeated states, and a student with no more states than samples."""

    teacher: Matrices
    pair: Pair


def _measure_small(instance: Small) -> Measured:
    """Printed: d > k > 2d̂; measured is by how much that is missed."""
    k, d = instance.pair.length, instance.pair.student.states
    missed = max(k + 1 - d, 2 * instance.teacher.states + 1 - k)
    pair, teacher = instance.pair, instance.teacher.response(HORIZON)[:, 0, 0]
    errors = pair.student.response(HORIZON)[:, 0, 0] - teacher
    # Both are compared with the measure of the active eigenvalues, of which the teacher is one more realisation.
    bounds = allowed(pair.student, pair.atoms, pair.residuals(pair.length)) + allowed(
        instance.teacher, pair.atoms, teacher - pair.target(HORIZON)
    )
    facts = {"states of the student": float(d), "of the teacher": float(instance.teacher.states), "samples": float(k)}
    return Measured({ALL: largest(errors / bounds)}, printed=float(missed), facts=facts)


def _draw_small(rng: np.random.Generator, fewer: int = 0) -> Small:
    order = int(rng.integers(1, 3))
    atoms, weights = draw_atoms(rng, order), draw_weights(rng, order)
    length = 2 * order + 1 - fewer
    teacher = split(rng, atoms, np.sqrt(weights)[:, None], order + 1 + int(rng.integers(0, 3)))
    target = moments(atoms, weights, length)[:, None, None]
    student = draw_polished(rng, target, order + 1)
    return Small(teacher, Pair(student, atoms, weights, length))


def _visibly_off(rng: np.random.Generator) -> Small:
    while True:
        drawn = _draw_small(rng, 1)
        if largest(drawn.pair.residuals(HORIZON)) > 1e-3:
            return drawn


THEOREM_5_SIZES = Check(
    id="rnn/erratum-theorem-5-sizes",
    source="Theorem 5 and Lemma 7",
    statement=(
        "k ≥ 2n + 1 with n the number of active eigenvalues of the teacher is all that is needed: neither d > k nor "
        "k > 2d̂ enters."
    ),
    hypotheses=(
        *(
            Hypothesis(h.name, lambda s, h=h: h.residual(s.pair), h.tolerance)
            for h in (ENOUGH, POSITIVE, SYMMETRIC, BALANCED, NO_LOSS)
        ),
        Hypothesis(
            "a teacher with these active eigenvalues",
            lambda s: largest(s.teacher.response(HORIZON)[:, 0, 0] - s.pair.target(HORIZON)),
            ROUNDING,
        ),
    ),
    tolerances={ALL: TAIL},
    version=2,
    measure=each(_measure_small),
    draw=_draw_small,
    violations=(Violation("one sample less", _visibly_off),),
    printed="May be read as: d > k > 2d̂ is needed. (Measured: by how much it is missed where the conclusion holds.)",
    printed_tolerance=0.5,
)

CHECKS = (C_35, C_36, C_37, EXPONENTS, DEFINITION_1, ZERO_SOLUTION, THEOREM_5_SIZES)
