"""Zero loss and what it determines: balanced networks and the moment problem."""

import dataclasses
import itertools
from fractions import Fraction

import numpy as np

from deeplinear.recurrent import (
    extrapolation_interval,
    measure_from_moments,
    sharpness_student,
    upper_principal_moment,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.network._networks import each
from deeplinear.theory.rnn._systems import (
    HORIZON,
    POLISHED,
    ROUNDING,
    Matrices,
    Pair,
    adopt_pair,
    annihilator,
    asymmetry,
    diagonal,
    draw_atoms,
    draw_orthogonal,
    draw_polished,
    draw_weights,
    imbalance,
    largest,
    moments,
    split,
)

TAIL = 1e-10
"""What residuals of 1e-13 become over fifty entries, a hundredfold or so, with room."""

# --- Students without loss --------------------------------------------------------------------------------------------

ALL = "largest |h_j − w_j|, j < 50"


def _measure_pair(instance: Pair) -> Measured:
    errors = instance.residuals(HORIZON)
    facts = {"sum of squared residuals": instance.loss, "states": float(instance.student.states)}
    return Measured({ALL: largest(errors)}, facts=facts)


def draw_fitted(rng: np.random.Generator, *, tied: bool = True, fewer: int = 0) -> Pair:
    """A teacher of one or two atoms, and a network with more states than samples that was fitted to its samples."""
    order = int(rng.integers(1, 3))
    atoms, weights = draw_atoms(rng, order), draw_weights(rng, order)
    length = 2 * order + 1 - fewer
    target = moments(atoms, weights, length)[:, None, None]
    return Pair(draw_polished(rng, target, length + 1, tied=tied), atoms, weights, length)


def _visible(rng: np.random.Generator, *, tied: bool, fewer: int) -> Pair:
    """One that is off by more than a thousandth; most are."""
    while True:
        drawn = draw_fitted(rng, tied=tied, fewer=fewer)
        if largest(drawn.residuals(HORIZON)) > 1e-3:
            return drawn


ENOUGH: Hypothesis[Pair] = Hypothesis("at least 2n + 1 samples", lambda pair: float(2 * pair.order + 1 - pair.length))
POSITIVE: Hypothesis[Pair] = Hypothesis("a balanced teacher", lambda pair: float(-np.min(pair.weights)))
SYMMETRIC: Hypothesis[Pair] = Hypothesis("a student with symmetric A", lambda pair: asymmetry(pair.student), ROUNDING)
BALANCED: Hypothesis[Pair] = Hypothesis("a student with C = Bᵀ", lambda pair: imbalance(pair.student), ROUNDING)
NO_LOSS: Hypothesis[Pair] = Hypothesis("zero loss", lambda pair: pair.loss, POLISHED)

LEMMA_7 = Check(
    id="rnn/lemma-7",
    source="Lemma 7",
    statement=(
        "A balanced student with zero loss on k ≥ 2n + 1 samples of a balanced teacher of n active eigenvalues has the "
        "teacher's response for ever, however many states it has."
    ),
    hypotheses=(ENOUGH, POSITIVE, SYMMETRIC, BALANCED, NO_LOSS),
    tolerances={ALL: TAIL},
    measure=each(_measure_pair),
    draw=draw_fitted,
    violations=(
        Violation("a student that is not balanced", lambda rng: _visible(rng, tied=False, fewer=0)),
        Violation("one sample less", lambda rng: _visible(rng, tied=True, fewer=1)),
    ),
    adopt=adopt_pair,
)


@dataclasses.dataclass(frozen=True)
class Open:
    """A measure on [−1, 1], how many of its moments are known, and the moment asked for."""

    atoms: np.ndarray
    weights: np.ndarray
    length: int
    index: int


WIDTH = "width of the interval that positive measures leave to h_j"
RELAXED = "moments were allowed to be off by"
PRINCIPAL = "largest h_{2n} given one moment less, against its closed form"
LEAST = "least h_{2n} given one moment less, against w_{2n}"

REFINED = 1e-7
"""The largest moment is found to some 1e-9, from a grid of 201 points to which more are added."""


def _measure_open(instance: Open) -> Measured:
    order = len(instance.atoms)
    known = moments(instance.atoms, instance.weights, 2 * order + 1)

    def interval(length: int, index: int) -> tuple[float, float, float]:
        found = extrapolation_interval(
            moments(instance.atoms, instance.weights, length), index, low=-1, high=1, atoms=instance.atoms, points=201
        )
        return float(found.lower), float(found.upper), found.tolerance

    low, high, relaxed = interval(instance.length, instance.index)
    least, most, also = interval(2 * order, 2 * order)
    closed = float(upper_principal_moment(instance.atoms, instance.weights, low=-1, high=1))
    facts = {"width at k = 2n": most - least}
    return Measured(
        {
            WIDTH: high - low,
            RELAXED: max(relaxed, also),
            PRINCIPAL: abs(most - closed),
            LEAST: abs(least - float(known[-1])),
        },
        facts=facts,
    )


def _draw_open(rng: np.random.Generator, fewer: int = 0) -> Open:
    order = int(rng.integers(1, 4))
    length = 2 * order + 1 - fewer
    return Open(draw_atoms(rng, order), draw_weights(rng, order), length, length + int(rng.integers(0, 3)))


INTERVAL = Check(
    id="rnn/lemma-7-interval",
    source="Lemma 7",
    statement=(
        "The positive measures with the first k moments of n atoms leave nothing open about any later moment if "
        "k ≥ 2n + 1; at k = 2n they leave h_{2n} an interval above w_{2n}, up to the upper principal value."
    ),
    hypotheses=(
        Hypothesis("at least 2n + 1 moments", lambda o: float(2 * len(o.atoms) + 1 - o.length)),
        Hypothesis("positive weights", lambda o: float(-np.min(o.weights))),
    ),
    tolerances={WIDTH: 1e-8, RELAXED: 0.0, PRINCIPAL: REFINED, LEAST: 1e-8},
    measure=each(_measure_open),
    draw=_draw_open,
    violations=(Violation("one moment less", lambda rng: _draw_open(rng, 1)),),
    version=2,
)


@dataclasses.dataclass(frozen=True)
class Rational:
    """A measure with rational atoms and weights, and the moments that are told of it, exactly."""

    atoms: tuple[Fraction, ...]
    weights: tuple[Fraction, ...]
    told: tuple[Fraction, ...]

    def moments(self, count: int) -> tuple[Fraction, ...]:
        return tuple(
            sum((p * x**j for x, p in zip(self.atoms, self.weights, strict=True)), Fraction(0)) for j in range(count)
        )


ATOMS = "atoms from 2n moments against the atoms"
WEIGHTS = "weights from 2n moments against the weights"
OFF = "∫∏(x − x_i)² from the moments up to 2n"


def _measure_rational(instance: Rational) -> Measured:
    order = len(instance.atoms)
    found = measure_from_moments(list(instance.told), order)
    rising = sorted(zip(instance.atoms, instance.weights, strict=True))
    square = [Fraction(1)]
    for x in (*instance.atoms, *instance.atoms):
        square = [b - x * a for a, b in zip([*square, Fraction(0)], [Fraction(0), *square], strict=True)]
    leak = sum((c * m for c, m in zip(square, instance.told, strict=True)), Fraction(0))
    return Measured(
        {
            ATOMS: largest(np.asarray(found.atoms) - [float(x) for x, _ in rising]),
            WEIGHTS: largest(np.asarray(found.weights) - [float(p) for _, p in rising]),
            OFF: abs(float(leak)),
        }
    )


def _draw_rational(rng: np.random.Generator) -> Rational:
    order = int(rng.integers(1, 6))
    places = rng.choice(np.arange(-20, 21), order, replace=False)
    atoms = tuple(Fraction(int(x), 20) for x in places)
    weights = tuple(Fraction(int(p), 10) for p in rng.integers(2, 11, order))
    drawn = Rational(atoms, weights, ())
    return dataclasses.replace(drawn, told=drawn.moments(2 * order + 1))


def _heavier(rng: np.random.Generator) -> Rational:
    """The last moment is larger: that of a measure of more atoms with the same moments before it."""
    drawn = _draw_rational(rng)
    return dataclasses.replace(drawn, told=(*drawn.told[:-1], drawn.told[-1] + Fraction(1, 100)))


UNIQUE = Check(
    id="rnn/unique-measure",
    source="Proof of Lemma 7",
    statement=(
        "Moments 0, …, 2n − 1 determine a positive measure among those of n atoms, and moments 0, …, 2n among all: "
        "they give ∫∏(x − x_i)² = 0, so no mass lies elsewhere. Computed in rational arithmetic."
    ),
    hypotheses=(
        Hypothesis(
            "moments of the measure",
            lambda m: float(max(abs(a - b) for a, b in zip(m.told, m.moments(len(m.told)), strict=True))),
        ),
        Hypothesis("positive weights", lambda m: -float(min(m.weights))),
    ),
    tolerances={ATOMS: ROUNDING, WEIGHTS: ROUNDING, OFF: 0.0},
    measure=each(_measure_rational),
    draw=_draw_rational,
    violations=(Violation("a last moment that is larger", _heavier),),
)

# --- One sample less --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sharp:
    """A teacher's measure, the entries of the row that the student adds, and samples on which the two are to agree."""

    atoms: np.ndarray
    weights: np.ndarray
    coupling: float
    corner: float
    samples: int


AGREE = "largest |h_j − w_j| of the samples"
EXCESS = "h_{2n} − w_{2n} against β²D_n/D_{n−1}, relative"
ABOVE = "h_{2n} − w_{2n} below zero by"
FORM = "student misses A = Aᵀ, C = Bᵀ by"


def _determinant(atoms: np.ndarray, weights: np.ndarray, order: int) -> float:
    """det[w_{i+j}] of a size, as a sum over sets of atoms of ∏p∏(x_i − x_l)²: nothing cancels."""
    total = 0.0
    for chosen in itertools.combinations(range(len(atoms)), order):
        apart = [atoms[one] - atoms[other] for one, other in itertools.combinations(chosen, 2)]
        total += float(np.prod(weights[list(chosen)])) * float(np.prod(np.square(apart)))
    return total


def _measure_sharp(instance: Sharp) -> Measured:
    order = len(instance.atoms)
    made = sharpness_student((instance.atoms, instance.weights), coupling=instance.coupling, corner=instance.corner)
    student = Matrices(*(np.asarray(matrix) for matrix in made.system))
    h = student.response(2 * order + 1)[:, 0, 0]
    w = moments(instance.atoms, instance.weights, 2 * order + 1)
    ratio = _determinant(instance.atoms, instance.weights, order) / _determinant(
        instance.atoms, instance.weights, order - 1
    )
    gap, wanted = float(h[-1] - w[-1]), instance.coupling**2 * ratio
    return Measured(
        {
            AGREE: largest((h - w)[: instance.samples]),
            EXCESS: max(abs(gap - wanted), abs(float(made.gap) - wanted)) / max(1.0, wanted),
            ABOVE: -gap,
            FORM: max(asymmetry(student), imbalance(student)),
        },
        facts={"gap": gap},
    )


def _draw_sharp(rng: np.random.Generator) -> Sharp:
    order = int(rng.integers(1, 4))
    coupling = float(rng.uniform(0.2, 0.8) * rng.choice([-1, 1]))
    return Sharp(draw_atoms(rng, order), draw_weights(rng, order), coupling, float(rng.uniform(-1, 1)), 2 * order)


SHARP = Check(
    id="rnn/sharp-length",
    source="Theorem 5, the condition k > 2d̂",
    statement=(
        "k ≥ 2n + 1 cannot be relaxed: one more row and column on the Jacobi matrix of a balanced teacher of n atoms "
        "gives a balanced symmetric student with its first 2n samples and h_{2n} − w_{2n} = β²D_n/D_{n−1} > 0, D the "
        "Hankel determinants."
    ),
    hypotheses=(Hypothesis("at most 2n samples", lambda s: float(s.samples - 2 * len(s.atoms))),),
    tolerances={AGREE: 1e-13, EXCESS: ROUNDING, ABOVE: 0.0, FORM: 0.0},
    measure=each(_measure_sharp),
    draw=_draw_sharp,
    violations=(
        Violation(
            "one sample more", lambda rng: dataclasses.replace(d := _draw_sharp(rng), samples=2 * len(d.atoms) + 1)
        ),
    ),
)

# --- Several inputs and outputs ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Wide:
    """A balanced teacher with several inputs and outputs, given by atoms and rows of B, and a student of it."""

    student: Matrices
    atoms: np.ndarray
    rows: np.ndarray
    length: int

    def errors(self, length: int) -> np.ndarray:
        teacher = Matrices(np.diag(self.atoms), self.rows, self.rows.T)
        return self.student.response(length) - teacher.response(length)


BLOCKS = "largest entry of CA^jB − w_j, j < 50"
SLICES = "response along one direction v, student against teacher, j < 50"


def _measure_wide(instance: Wide) -> Measured:
    errors = instance.errors(HORIZON)
    v = np.random.default_rng(0).standard_normal((4, instance.rows.shape[1]))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    slices = np.einsum("vo,joi,vi->jv", v, errors, v)
    return Measured({BLOCKS: largest(errors), SLICES: largest(slices)})


def _draw_wide(rng: np.random.Generator) -> Wide:
    order = int(rng.integers(1, 3))
    atoms, rows = draw_atoms(rng, order), rng.normal(0, 0.7, (order, 2))
    length = 2 * order + 1
    if rng.random() < 0.5:
        return Wide(split(rng, atoms, rows, length + 2), atoms, rows, length)
    target = Matrices(np.diag(atoms), rows, rows.T).response(length)
    return Wide(draw_polished(rng, target, length + 1), atoms, rows, length)


def _twisted(rng: np.random.Generator) -> Wide:
    """Beside the teacher, states whose moments vanish on the samples: not balanced."""
    drawn = _draw_wide(rng)
    nodes = np.linspace(-0.95, 0.95, drawn.length + 1)
    beside = diagonal(nodes, 0.5 * annihilator(nodes) / largest(annihilator(nodes)))
    left, right = rng.standard_normal((2, 2, 1))
    teacher = Matrices(np.diag(drawn.atoms), drawn.rows, drawn.rows.T)
    size = teacher.states
    transition = np.diag(np.concatenate([drawn.atoms, nodes]))
    first = np.concatenate([teacher.first, beside.first @ right.T])
    output = np.concatenate([teacher.output, left @ beside.output], axis=1)
    student = Matrices(transition, first, output).turned(draw_orthogonal(rng, size + len(nodes)))
    return dataclasses.replace(drawn, student=student)


MIMO = Check(
    id="rnn/mimo-uniqueness",
    source="Section 3, the remark on several inputs and outputs",
    statement=(
        "Lemma 7 holds with several inputs and outputs: a balanced student with zero loss on k ≥ 2n + 1 samples of a "
        "balanced teacher has its response, for v^TCA^jC^Tv is that of a balanced network for every v."
    ),
    hypotheses=(
        Hypothesis("at least 2n + 1 samples", lambda w: float(2 * len(w.atoms) + 1 - w.length)),
        Hypothesis("a student with symmetric A", lambda w: asymmetry(w.student), ROUNDING),
        Hypothesis("a student with C = Bᵀ", lambda w: imbalance(w.student), ROUNDING),
        Hypothesis("zero loss", lambda w: float(np.sum(w.errors(w.length) ** 2)), POLISHED),
    ),
    tolerances={BLOCKS: TAIL, SLICES: TAIL},
    measure=each(_measure_wide),
    draw=_draw_wide,
    violations=(Violation("a student that is not balanced", _twisted),),
)

CHECKS = (LEMMA_7, INTERVAL, UNIQUE, SHARP, MIMO)
