"""Outputs, losses and responses of recurrent networks, and students without loss that do not extrapolate."""

import dataclasses
import itertools

import numpy as np

from deeplinear.core import HypothesisError, Params, xp
from deeplinear.models import LinearRNN, Problem, Regression, SampleRegression, SquaredDistance
from deeplinear.recurrent import (
    non_extrapolating_student,
    outputs,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.network._networks import each
from deeplinear.theory.rnn._realisations import draw_teacher
from deeplinear.theory.rnn._systems import (
    ROUNDING,
    Matrices,
    adopt_system,
    adopt_target,
    draw_system,
    largest,
)

SHAPES = ((1, 1), (2, 3))
"""Inputs and outputs that statements are tried with."""

SIGNS = {(1, 1): 8, (2, 3): 4}
"""Length of the sequences whose signs are all tried, for each shape: 256 of them."""


def simulated(system: Matrices, inputs: np.ndarray) -> np.ndarray:
    """Outputs y_1, …, y_T of a batch of sequences (batch, times, inputs), by the recurrence."""
    state, found = np.zeros((len(inputs), system.states)), []
    for x in np.moveaxis(inputs, 1, 0):
        state = state @ system.transition.T + x @ system.first.T
        found.append(state @ system.output.T)
    return np.stack(found, axis=1)


def convolved(response: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Σ_j h_{k−1−j}x_j for a batch of sequences (batch, k, inputs)."""
    return np.einsum("joi,bji->bo", response[::-1], inputs)


# --- Outputs ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Driven:
    """A network, a sequence of inputs, and the response that is told of the network."""

    system: Matrices
    inputs: np.ndarray
    told: np.ndarray


CONVOLUTION = "outputs of the recurrence against Σh_{t−1−j}x_j, relative"
WINDOW = "last output against the response acting on the window of inputs, newest first, relative"


def _measure_driven(instance: Driven) -> Measured:
    system, x = instance.system, instance.inputs
    length = len(x)
    wanted = np.array([convolved(instance.told[: t + 1], x[None, : t + 1])[0] for t in range(length)])
    found = np.asarray(outputs(system.parts, x))
    model = LinearRNN(system.states, length, inputs=x.shape[1], outputs=len(system.output))
    product = np.asarray(model.forward(system.params)[0])
    last = product @ x[::-1].ravel()
    size = 1 + largest(simulated(system, x[None]))
    return Measured({CONVOLUTION: largest(found - wanted) / size, WINDOW: largest(last - wanted[-1]) / size})


def _draw_driven(rng: np.random.Generator) -> Driven:
    ins, outs = SHAPES[int(rng.integers(len(SHAPES)))]
    system = draw_system(rng, 5, ins, outs, float(rng.uniform(0.5, 1.1)))
    return Driven(system, rng.standard_normal((12, ins)), system.response(12))


def _from_before(rng: np.random.Generator) -> Driven:
    drawn = _draw_driven(rng)
    return dataclasses.replace(drawn, told=np.concatenate([np.zeros_like(drawn.told[:1]), drawn.told[:-1]]))


def _adopt_driven(problem: Problem, params: Params) -> Driven:
    system = adopt_system(problem, params)
    size = system.first.shape[1]
    length = problem.model.product_shape[1] // size
    inputs = np.random.default_rng(0).standard_normal((length, size))
    return Driven(system, inputs, system.response(length))


EQUATION_3_3 = Check(
    id="rnn/equation-3.3",
    source="Equation 3.3",
    statement="After k inputs the output is Σ_j CA^{k−1−j}Bx_j: the response acts on the last k inputs, newest first.",
    hypotheses=(
        Hypothesis(
            "the response is that of the network",
            lambda d: largest(d.told - d.system.response(len(d.told))) / (1 + largest(d.told)),
            ROUNDING,
        ),
    ),
    tolerances={CONVOLUTION: ROUNDING, WINDOW: ROUNDING},
    measure=each(_measure_driven),
    draw=_draw_driven,
    violations=(Violation("a response that begins before the first input", _from_before),),
    adopt=_adopt_driven,
)

# --- Losses -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Taught:
    """A student, the response of its teacher, and sequences of inputs, (sequences, k, inputs)."""

    student: Matrices
    target: np.ndarray
    inputs: np.ndarray

    @property
    def length(self) -> int:
        return len(self.target)

    @property
    def residuals(self) -> np.ndarray:
        return self.student.response(self.length) - self.target

    @property
    def windows(self) -> np.ndarray:
        """The sequences newest first, one in each row."""
        return self.inputs[:, ::-1].reshape(len(self.inputs), -1)

    @property
    def mean_square(self) -> float:
        """Mean over the sequences of the squared error of the last output, by the recurrence."""
        errors = simulated(self.student, self.inputs)[:, -1] - convolved(self.target, self.inputs)
        return float(np.sum(errors**2) / len(errors))

    @property
    def model(self) -> LinearRNN:
        _, outs, ins = self.target.shape
        return LinearRNN(self.student.states, self.length, inputs=ins, outputs=outs)

    @property
    def product(self) -> np.ndarray:
        """The target as a matrix on windows."""
        return np.moveaxis(self.target, 1, 0).reshape(self.target.shape[1], -1)


def _whiteness(taught: Taught) -> float:
    rows = taught.inputs.reshape(len(taught.inputs), -1)
    return largest(rows.T @ rows / len(rows) - np.eye(rows.shape[1]))


POPULATION = "mean squared error against Σ‖CA^jB − w_j‖², relative"
OURS = "twice our loss against the mean squared error, relative"


def _measure_white(instance: Taught) -> Measured:
    found, wanted = instance.mean_square, float(np.sum(instance.residuals**2))
    ours = 2 * float(Problem(instance.model, SquaredDistance(instance.product)).value(instance.student.params))
    size = max(wanted, 1e-300)
    return Measured({POPULATION: abs(found - wanted) / size, OURS: abs(ours - found) / size})


def _corners(length: int, ins: int) -> np.ndarray:
    """√N e_i: white inputs whose mean is not zero."""
    count = length * ins
    return np.sqrt(count) * np.eye(count).reshape(count, length, ins)


def _draw_white(rng: np.random.Generator) -> Taught:
    shape = SHAPES[int(rng.integers(len(SHAPES)))]
    length, (ins, outs) = SIGNS[shape], shape
    student, teacher = draw_system(rng, 5, ins, outs), draw_system(rng, 3, ins, outs)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=length * ins))).reshape(-1, length, ins)
    inputs = signs if rng.random() < 0.7 else _corners(length, ins)
    return Taught(student, teacher.response(length), inputs)


def _coloured(rng: np.random.Generator) -> Taught:
    drawn = _draw_white(rng)
    return dataclasses.replace(drawn, inputs=drawn.inputs + 0.5 * np.roll(drawn.inputs, 1, axis=1))


def _adopt_white(problem: Problem, params: Params) -> Taught:
    target = adopt_target(problem)
    return Taught(adopt_system(problem, params), target, _corners(len(target), target.shape[2]))


LEMMA_C_1 = Check(
    id="rnn/lemma-c.1",
    source="Lemma C.1, equation 3.4",
    statement=(
        "Under white inputs, of any mean, the expected squared error of the last output is Σ_{j<k}‖CA^jB − w_j‖². "
        "Over all sequences of signs the mean is exact."
    ),
    hypotheses=(Hypothesis("white inputs", _whiteness, ROUNDING),),
    tolerances={POPULATION: 1e-11, OURS: 1e-11},
    measure=each(_measure_white),
    draw=_draw_white,
    violations=(Violation("inputs that remember the one before", _coloured),),
    adopt=_adopt_white,
)


@dataclasses.dataclass(frozen=True)
class Sampled:
    """A student with sequences and labels of its teacher; `windows` are the sequences as the Gram matrix has them."""

    taught: Taught
    noise: np.ndarray
    windows: np.ndarray


GRAM = "r^TΣr against the mean squared error, relative"
LABELS = "h^TΣh − 2h^Tξ + mean y² against it for labels of no teacher, relative"
CONVEX = "mean squared error below λ_min(Σ)‖r‖² by, relative"
REGRESSION = "twice our losses of windows against the mean squared errors, relative"


def _measure_gram(instance: Sampled) -> Measured:
    taught, rows = instance.taught, instance.windows
    count = len(rows)
    gram = rows.T @ rows / count
    r = np.moveaxis(taught.residuals, 1, 0).reshape(1, -1)
    h = r + taught.product
    found = taught.mean_square
    labels = convolved(taught.target, taught.inputs) + instance.noise
    free = float(np.sum((simulated(taught.student, taught.inputs)[:, -1] - labels) ** 2) / count)
    cross = labels.T @ rows / count
    written = float((h @ gram @ h.T - 2 * h @ cross.T)[0, 0] + np.mean(labels**2))
    clean = 2 * float(Regression.from_data(rows.T, (labels - instance.noise).T).value(xp.asarray(h, dtype=float)))
    noisy = 2 * float(SampleRegression(rows.T, labels.T).value(xp.asarray(h, dtype=float)))
    bound = float(np.linalg.eigvalsh(gram)[0]) * float(np.sum(r**2))
    return Measured(
        {
            GRAM: abs(float((r @ gram @ r.T)[0, 0]) - found) / found,
            LABELS: abs(written - free) / free,
            CONVEX: (bound - found) / found,
            REGRESSION: max(abs(clean - found) / found, abs(noisy - free) / free),
        }
    )


def _draw_sampled(rng: np.random.Generator) -> Sampled:
    student, teacher = draw_system(rng, 5), draw_system(rng, 3)
    inputs = rng.standard_normal((40, 6, 1)) + rng.standard_normal((1, 6, 1))
    taught = Taught(student, teacher.response(6), inputs)
    return Sampled(taught, rng.standard_normal((40, 1)), taught.windows)


def _oldest_first(rng: np.random.Generator) -> Sampled:
    drawn = _draw_sampled(rng)
    return dataclasses.replace(drawn, windows=drawn.windows[:, ::-1])


EMPIRICAL = Check(
    id="rnn/empirical-loss",
    source="Equations 3.2 and 3.3",
    statement=(
        "The mean squared error on given sequences is r^TΣr with Σ the second moments of the sequences newest first; "
        "it is at least λ_min(Σ)‖r‖², so with Σ > 0 it vanishes only with the residuals."
    ),
    hypotheses=(
        Hypothesis("windows newest first", lambda s: largest(s.windows - s.taught.windows)),
        Hypothesis("as many sequences as samples at least", lambda s: float(s.taught.length - len(s.windows))),
    ),
    tolerances={GRAM: 1e-11, LABELS: 1e-11, CONVEX: 1e-11, REGRESSION: 1e-11},
    measure=each(_measure_gram),
    draw=_draw_sampled,
    violations=(Violation("windows oldest first", _oldest_first),),
)

# --- Students without loss that do not extrapolate --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Adversary:
    """Samples w_0, …, w_k of a teacher, an error ε that is to be exceeded at k, and the states of the student."""

    target: np.ndarray
    error: float
    gap: float
    states: int

    @property
    def length(self) -> int:
        return len(self.target) - 1


FITTED = "sum of squared residuals of the samples, relative to the largest"
GAP = "error at k against the gap, relative"
APART = "ε above the error at k by"


def _measure_adversary(instance: Adversary) -> Measured:
    w, k = instance.target, instance.length
    if instance.states > k:
        system = non_extrapolating_student(w, instance.gap, states=instance.states, tolerance=instance.error)
        nodes = np.asarray(system.transition).diagonal().astype(np.longdouble)
        weights = np.asarray(system.input)[:, 0].astype(np.longdouble) * np.asarray(system.output)[0]
    else:  # as well as so many nodes can do
        nodes = np.cos((2 * np.arange(instance.states) + 1) * np.pi / (2 * instance.states)).astype(np.longdouble)
        wanted = w + np.where(np.arange(k + 1) == k, instance.gap, 0.0)
        weights = np.linalg.lstsq(np.vander(nodes.astype(float), k + 1, increasing=True).T, wanted)[0]
    h = (nodes[None] ** np.arange(k + 1)[:, None]) @ weights
    scale = max(1.0, largest(w), instance.gap)
    beyond = float(h[k] - w[k])
    return Measured(
        {
            FITTED: float(np.sum((h[:k] - w[:k]) ** 2)) / scale**2,
            GAP: abs(beyond - instance.gap) / scale,
            APART: instance.error - abs(beyond),
        }
    )


def _draw_adversary(rng: np.random.Generator) -> Adversary:
    length, states = int(rng.choice([3, 7, 12, 20])), int(rng.choice([1, 3, 10]))
    error = float(rng.uniform(0, 2))
    target = draw_teacher(rng, states).response(length + 1)[:, 0, 0]
    return Adversary(target, error, error + float(rng.uniform(0.1, 2)), length + int(rng.integers(1, 4)))


def _too_few(rng: np.random.Generator) -> Adversary:
    drawn = _draw_adversary(rng)
    return dataclasses.replace(drawn, states=drawn.length)


def _adopt_adversary(problem: Problem, params: Params) -> Adversary:
    """The value of the teacher after the last sample is not known, and does not matter: here it is 0."""
    target = adopt_target(problem)
    if target.shape[1:] != (1, 1):
        raise HypothesisError("one input and one output", float(max(target.shape[1:])), 1.0)
    return Adversary(np.append(target[:, 0, 0], 0.0), 0.5, 1.0, adopt_system(problem, params).states)


PROPOSITION_3 = Check(
    id="rnn/proposition-3",
    source="Proposition 3",
    statement=(
        "With more states than samples there is, for any teacher and any ε, a student with zero loss whose next entry "
        "is off by more than ε, by whatever one likes: diagonal, on k + 1 distinct nodes."
    ),
    hypotheses=(
        Hypothesis("more states than samples", lambda a: float(a.length + 1 - a.states)),
        Hypothesis("a gap above ε", lambda a: a.error - a.gap),
        Hypothesis("at most 20 samples, for double precision", lambda a: float(a.length - 20)),
    ),
    tolerances={FITTED: 1e-18, GAP: 1e-9, APART: 0.0},
    measure=each(_measure_adversary),
    draw=_draw_adversary,
    violations=(Violation("one node too few", _too_few),),
    adopt=_adopt_adversary,
)

CHECKS = (EQUATION_3_3, LEMMA_C_1, EMPIRICAL, PROPOSITION_3)
