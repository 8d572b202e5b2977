"""Gradients of the loss of a recurrent network, and the velocities of its parts.

The loss of the paper is the sum of squares, L = Σ‖h_j − w_j‖², without the half of this library: its gradients are
twice ours. All statements here are made for the paper's loss.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deeplinear.core import HypothesisError, Params
from deeplinear.models import LinearRNN, Problem, SquaredDistance
from deeplinear.recurrent import outputs, residual_polynomial, spectral_gradient
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation

ROUNDING = 1e-12
"""Sums of some dozen products, relative to the largest number in them."""

STATES, LENGTH = 4, 5
"""Sizes of random students."""

FORMS = ("general", "symmetric", "upper", "diagonal", "tied")

Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]
"""A, B, C on the host."""


def response(system: Sequence[np.ndarray], length: int) -> np.ndarray:
    """C A^j B for j < length, by plain products, stacked along the first axis."""
    a, b, c = system
    entries = []
    for _ in range(length):
        entries.append(c @ b)
        b = a @ b
    return np.stack(entries)


def free_gradient(system: Sequence[np.ndarray], g: np.ndarray) -> Matrices:
    """Σ over entries of the response of g_j times their derivatives in A, B, C, by the plain double sum."""
    a, b, c = system
    left, right = [c.T], [b]
    for _ in range(len(g) - 1):
        left.append(a.T @ left[-1])
        right.append(a @ right[-1])
    on_a = np.zeros_like(a)
    for j in range(1, len(g)):
        for q in range(j):
            on_a += left[q] @ g[j] @ right[j - 1 - q].T
    on_b = sum((x @ gj for x, gj in zip(left, g, strict=True)), np.zeros_like(b))
    on_c = sum((gj @ x.T for x, gj in zip(right, g, strict=True)), np.zeros_like(c))
    return on_a, on_b, on_c


def constrained(form: str, gradient: Matrices) -> tuple[np.ndarray, ...]:
    """The gradient in the parameters of a form, from that in free matrices."""
    on_a, on_b, on_c = gradient
    twice = on_a + on_a.T - np.diag(np.diag(on_a))
    inner = {
        "general": on_a,
        "symmetric": (on_a + on_a.T) / 2,
        "upper": twice[np.triu_indices(len(on_a))][:, None],
    }.get(form, np.diag(on_a)[:, None])
    return (on_b + on_c.T, inner) if form == "tied" else (on_b, inner, on_c)


def matrices(form: str, params: Sequence[np.ndarray]) -> Matrices:
    """A, B, C from the parameters of a form, for complex numbers too."""
    b, inner = params[0], params[1]
    c = b.T if form == "tied" else params[2]
    if form == "general":
        return inner, b, c
    if form == "symmetric":
        return (inner + inner.T) / 2, b, c
    if form == "upper":
        upper = np.zeros((len(b), len(b)), inner.dtype)
        upper[np.triu_indices(len(b))] = inner[:, 0]
        return upper + np.triu(upper, 1).T, b, c
    return np.diag(inner[:, 0]), b, c


@dataclasses.dataclass(frozen=True)
class Student:
    """A network, what it learns, and what the independent side is told that it learns.

    Attributes:
        system: A, B, C.
        target: w_0, w_1, …, each (outputs, inputs).
        told: The target of the independent side.
        form: Which parameters stand for the matrices.
        l2: Penalty on the parameters, of which the statements know nothing.
    """

    system: Matrices
    target: np.ndarray
    told: np.ndarray
    form: str = "general"
    l2: float = 0.0

    @property
    def model(self) -> LinearRNN:
        a, b, c = self.system
        form: Any = self.form
        return LinearRNN(len(a), len(self.target), inputs=b.shape[1], outputs=len(c), form=form)

    @property
    def problem(self) -> Problem:
        return Problem(self.model, SquaredDistance(np.concatenate(list(self.target), axis=1)), self.l2)

    @property
    def params(self) -> Params:
        return self.model.params(self.system)

    @property
    def residual(self) -> np.ndarray:
        """Response minus what the independent side is told."""
        return response(self.system, len(self.told)) - self.told

    @property
    def gradient(self) -> tuple[np.ndarray, ...]:
        """The library's gradient of the sum of squares in the parameters of the form: twice that of our loss."""
        return tuple(2 * np.asarray(part) for part in self.problem.gradient(self.params))

    @property
    def velocity(self) -> Matrices:
        """Velocities of A, B, C under the flow of the sum of squares, by the library; of a free A."""
        on_b, on_a, on_c = dataclasses.replace(self, form="general").gradient
        return -on_a, -on_b, -on_c


SAME: Hypothesis[Student] = Hypothesis(
    "the same target", lambda student: float(np.max(np.abs(student.target - student.told)))
)
PLAIN: Hypothesis[Student] = Hypothesis("no penalty", lambda student: abs(student.l2))


def draw_target(rng: np.random.Generator, length: int = LENGTH, inputs: int = 1, outs: int = 1) -> np.ndarray:
    """Response of a random teacher of two states, with a largest entry of 1."""
    a = rng.uniform(-0.6, 0.6, (2, 2))
    found = response((a, rng.normal(size=(2, inputs)), rng.normal(size=(outs, 2))), length)
    return found / np.max(np.abs(found))


def draw_student(rng: np.random.Generator, form: str = "general", *, inputs: int = 1, outs: int = 1) -> Student:
    """A random student of a form, and the response of a random teacher."""
    a = rng.uniform(-0.7, 0.7, (STATES, STATES))
    if form in ("symmetric", "upper"):
        a = (a + a.T) / 2
    if form in ("diagonal", "tied"):
        a = np.diag(np.diag(a))
    b = rng.normal(0, 0.6, (STATES, inputs))
    c = b.T if form == "tied" else rng.normal(0, 0.6, (outs, STATES))
    target = draw_target(rng, inputs=inputs, outs=outs)
    return Student((a, b, c), target, target, form)


def draw_any(rng: np.random.Generator) -> Student:
    """A student of any of the five forms."""
    return draw_student(rng, FORMS[rng.integers(len(FORMS))])


def other_target(draw: Callable[[np.random.Generator], Student]) -> Callable[[np.random.Generator], Student]:
    """The same, but the independent side is told another target."""

    def drawn(rng: np.random.Generator) -> Student:
        student = draw(rng)
        return dataclasses.replace(student, told=student.target + rng.uniform(0.2, 0.5, student.target.shape))

    return drawn


def penalised(draw: Callable[[np.random.Generator], Student]) -> Callable[[np.random.Generator], Student]:
    """The same, but learning with a penalty."""
    return lambda rng: dataclasses.replace(draw(rng), l2=0.1)


def adopt_student(problem: Problem, params: Params) -> Student:
    """The instance of a given problem; refuses other models and losses."""
    if not isinstance(problem.model, LinearRNN) or not isinstance(problem.loss, SquaredDistance):
        raise HypothesisError("a linear recurrent network with the squared distance to a response", 1.0, 0.0)
    if float(problem.l2) != 0:
        raise HypothesisError("no penalty", abs(float(problem.l2)), 0.0)
    model = problem.model
    a, b, c = (np.asarray(part) for part in model.system(params))
    row = np.asarray(problem.loss.target).reshape(model.outputs, model.length, model.inputs)
    target = np.moveaxis(row, 1, 0)
    return Student((a, b, c), target, target, model.form)


def adopt_single(problem: Problem, params: Params) -> Student:
    """The same for one input and one output, in the form of a free transition matrix."""
    student = adopt_student(problem, params)
    inputs, outs = student.target.shape[2], student.target.shape[1]
    if (inputs, outs) != (1, 1):
        raise HypothesisError("one input and one output", float(max(inputs, outs) - 1), 0.0)
    return dataclasses.replace(student, form="general")


def gap(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> float:
    """Largest difference between arrays, relative to the largest number of the first (at least 1)."""
    size = max(1.0, *(float(np.max(np.abs(part))) for part in first))
    return max(float(np.max(np.abs(x - y))) for x, y in zip(first, second, strict=True)) / size


def each(measure: Callable[[Any], Measured]) -> Callable[[Sequence[Any]], list[Measured]]:
    """A measure of one instance as one of several."""
    return lambda instances: [measure(instance) for instance in instances]


FORMULA = "twice the sums of Lemma C.4 against complex steps"
OURS = "twice the library's gradient against complex steps"


def complex_steps(student: Student) -> tuple[np.ndarray, ...]:
    """Derivatives of the sum of squares in every parameter, by complex steps, which cancel nothing."""
    params = [np.asarray(part).astype(complex) for part in student.params]
    found = [np.zeros(part.shape) for part in params]
    for part, derivative in zip(params, found, strict=True):
        for entry in np.ndindex(*part.shape):
            kept, part[entry] = part[entry], part[entry] + 1e-30j
            h = response(matrices(student.form, params), len(student.told))
            derivative[entry] = np.sum((h - student.told) ** 2).imag / 1e-30
            part[entry] = kept
    return tuple(found)


def _measure_gradient(student: Student) -> Measured:
    exact = complex_steps(student)
    sums = constrained(student.form, free_gradient(student.system, student.residual))
    size = max(float(np.max(np.abs(part))) for part in exact)
    missed = max(float(np.max(np.abs(x - y))) for x, y in zip(sums, exact, strict=True)) / max(size, 1e-300)
    return Measured(
        {FORMULA: gap(exact, [2 * part for part in sums]), OURS: gap(exact, student.gradient)},
        printed=missed,
        facts={"largest derivative": size},
    )


LEMMA_C4 = Check(
    id="rnn/lemma-c.4",
    source="Lemma C.4, equations C.9, C.10, C.15, C.16, C.81",
    statement=(
        "The gradient of L = Σ(CAⁱB − wᵢ)² is ∂B = 2Σrᵢ(Aⁱ)ᵀCᵀ, ∂C = 2ΣrᵢBᵀ(Aⁱ)ᵀ, "
        "∂A = 2ΣrᵢΣ_q(Aᵀ)^qCᵀBᵀ(Aᵀ)^{i−1−q}, in all five forms of the parameters."
    ),
    hypotheses=(SAME,),
    tolerances={FORMULA: ROUNDING, OURS: ROUNDING},
    measure=each(_measure_gradient),
    draw=draw_any,
    adopt=adopt_student,
    violations=(Violation("the gradient of another target", other_target(draw_any)),),
    printed="The same sums without the factor 2: the gradient of half the loss.",
    printed_tolerance=1e-3,
)

LOEWNER = "gradient in the eigenbasis against complex steps"
MODES = "modes move by φ and φ′: missed by"


def _draw_spectral(rng: np.random.Generator) -> Student:
    """A symmetric student; every other one with a repeated eigenvalue."""
    values = rng.uniform(-0.9, 0.9, STATES)
    values[1] = values[0] if rng.random() < 0.5 else values[1]
    basis = np.linalg.qr(rng.normal(size=(STATES, STATES)))[0]
    student = draw_student(rng)
    a = (basis * values) @ basis.T
    return dataclasses.replace(student, system=((a + a.T) / 2, *student.system[1:]))


def _measure_spectral(student: Student) -> Measured:
    a, b, c = student.system
    wanted = complex_steps(dataclasses.replace(student, form="general"))
    r = (response(student.system, len(student.target)) - student.target)[:, 0, 0]
    found = spectral_gradient(student.system, 2 * r)
    values, basis = np.linalg.eigh((a + a.T) / 2)
    weights = (c @ basis)[0] * (basis.T @ b)[:, 0]
    value, slope = (np.asarray(part) for part in residual_polynomial(2 * r, values))
    on_b, on_a, on_c = wanted
    inside = basis.T @ on_a @ basis
    modes = gap(
        [np.diag(inside), basis.T @ on_b[:, 0], (on_c @ basis)[0]],
        [weights * slope, (c @ basis)[0] * value, (basis.T @ b)[:, 0] * value],
    )
    return Measured(
        {LOEWNER: gap(wanted, [np.asarray(found[i]) for i in (1, 0, 2)]), MODES: modes},
        facts={"smallest gap of eigenvalues": float(np.min(np.diff(values)))},
    )


def _crooked(rng: np.random.Generator) -> Student:
    """The independent side is told another target."""
    return other_target(_draw_spectral)(rng)


SPECTRAL = Check(
    id="rnn/spectral-gradient",
    source="derived from Lemma C.4",
    statement=(
        "For A = U diag(a) Uᵀ, b = Uᵀ B, c = CU and φ(x) = Σrⱼxʲ the gradient of L is 2U[φ[a_m,a_n]c_m b_n]Uᵀ in A, "
        "2φ(A)Cᵀ in B, 2Bᵀφ(A) in C, with divided differences φ[·,·], also where eigenvalues repeat."
    ),
    hypotheses=(
        SAME,
        Hypothesis("symmetric", lambda s: float(np.max(np.abs(s.system[0] - s.system[0].T))), ROUNDING),
    ),
    tolerances={LOEWNER: ROUNDING, MODES: ROUNDING},
    measure=each(_measure_spectral),
    draw=_draw_spectral,
    adopt=adopt_single,
    violations=(Violation("the gradient of another target", _crooked),),
)

TRACE = "tr(AᵀȦ) misses −2Σ i rᵢhᵢ by"


def _measure_trace(student: Student) -> Measured:
    a = student.system[0]
    h = response(student.system, len(student.told))[:, 0, 0]
    told = -float(np.sum(np.arange(len(h)) * student.residual[:, 0, 0] * h))
    found = float(np.sum(a * student.velocity[0]))
    return Measured({TRACE: abs(found - 2 * told)}, printed=abs(found - told), facts={"tr(AᵀȦ)": found})


EQUATION_C86 = Check(
    id="rnn/equation-c.86",
    source="Equation C.86",
    statement="Along the flow of L, tr(AᵀȦ) = −2Σ i rᵢ CAⁱB for any A.",
    hypotheses=(SAME,),
    tolerances={TRACE: ROUNDING},
    measure=each(_measure_trace),
    draw=draw_student,
    adopt=adopt_single,
    violations=(Violation("residuals of another target", other_target(draw_student)),),
    printed="tr(AᵀȦ) = −Σ i rᵢ CAⁱB, on the clock of half the loss.",
    printed_tolerance=1e-3,
)

LESS, MORE = "Ẏ misses 2Σrᵢ((Aⁱ)_S Y − (Aⁱ)_K W) by", "Ẇ misses −2Σrᵢ((Aⁱ)_S W − (Aⁱ)_K Y) by"


def _measure_parts(student: Student) -> Measured:
    a, b, c = student.system
    _, b_dot, c_dot = student.velocity
    less, more = c.T - b, c.T + b
    told = [np.zeros_like(b), np.zeros_like(b)]
    power = np.eye(len(a))
    for r in student.residual[:, 0, 0]:
        even, odd = (power + power.T) / 2, (power - power.T) / 2
        told[0] = told[0] + r * (even @ less - odd @ more)
        told[1] = told[1] - r * (even @ more - odd @ less)
        power = a @ power
    found = [c_dot.T - b_dot, c_dot.T + b_dot]
    printed = max(float(np.max(np.abs(x - y))) for x, y in zip(found, told, strict=True))
    missed = [gap([x], [2 * y]) for x, y in zip(found, told, strict=True)]
    return Measured({LESS: missed[0], MORE: missed[1]}, printed=printed)


EQUATION_C104 = Check(
    id="rnn/equation-c.104",
    source="Equation C.104",
    statement=(
        "With Y = Cᵀ − B, W = Cᵀ + B and the symmetric and antisymmetric parts (Aⁱ)_S, (Aⁱ)_K, the flow of L has "
        "Ẏ = 2Σrᵢ((Aⁱ)_S Y − (Aⁱ)_K W) and Ẇ = −2Σrᵢ((Aⁱ)_S W − (Aⁱ)_K Y)."
    ),
    hypotheses=(SAME,),
    tolerances={LESS: ROUNDING, MORE: ROUNDING},
    measure=each(_measure_parts),
    draw=draw_student,
    adopt=adopt_single,
    violations=(Violation("residuals of another target", other_target(draw_student)),),
    printed="Ẏ = Σrᵢ((Aⁱ)_S Y − (Aⁱ)_K W), on the clock of half the loss.",
    printed_tolerance=1e-3,
)

ORDER = "outputs of the teacher for an impulse miss ĈÂⁱB̂ by"


@dataclasses.dataclass(frozen=True)
class Teacher:
    """A teacher, and the matrices that its response is said to be made of."""

    system: Matrices
    told: Matrices


def _measure_order(teacher: Teacher) -> Measured:
    impulse = np.eye(LENGTH)[0]
    found = np.asarray(outputs(teacher.system, impulse))
    a, b, c = teacher.told
    wanted = response((a, b, c), LENGTH)[:, 0, 0]
    exchanged = response((a, c.T, b.T), LENGTH)[:, 0, 0]
    return Measured({ORDER: float(np.max(np.abs(found - wanted)))}, printed=float(np.max(np.abs(found - exchanged))))


def _draw_teacher(rng: np.random.Generator) -> Teacher:
    system = draw_student(rng).system
    return Teacher(system, system)


def _transposed(rng: np.random.Generator) -> Teacher:
    teacher = _draw_teacher(rng)
    a, b, c = teacher.told
    return dataclasses.replace(teacher, told=(a.T, b, c))


EQUATION_C13 = Check(
    id="rnn/equation-c.13",
    source="Before equation C.13",
    statement="The response of a teacher is wᵢ = ĈÂⁱB̂, the maps in the order in which they act.",
    hypotheses=(
        Hypothesis(
            "the same teacher",
            lambda t: max(float(np.max(np.abs(x - y))) for x, y in zip(t.system, t.told, strict=True)),
        ),
    ),
    tolerances={ORDER: ROUNDING},
    measure=each(_measure_order),
    draw=_draw_teacher,
    violations=(Violation("the transposed transition matrix", _transposed),),
    printed=(
        "wᵢ = B̂ÂⁱĈ: no number for more than one state; with the maps transposed, so that it is one, another response."
    ),
    printed_tolerance=1e-3,
)

CHECKS = (LEMMA_C4, SPECTRAL, EQUATION_C86, EQUATION_C104, EQUATION_C13)
