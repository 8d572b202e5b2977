"""From a small loss to a small error beyond the samples: certificates, normalised moments, Wasserstein distances."""

import dataclasses
import math

import numpy as np
import scipy.optimize
import scipy.stats

from deeplinear.core import HypothesisError, Params
from deeplinear.models import Problem
from deeplinear.recurrent import certificate, extrapolation_interval, moment_gap, wasserstein
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.network._networks import each
from deeplinear.theory.rnn._moments import ENOUGH, POSITIVE, SYMMETRIC
from deeplinear.theory.rnn._systems import (
    HORIZON,
    ROUNDING,
    Pair,
    adopt_pair,
    adopt_system,
    adopt_target,
    annihilator,
    diagonal,
    draw_atoms,
    draw_orthogonal,
    draw_weights,
    largest,
    moments,
    spectrum,
)

RADII = (0.9, 1.0, 1.05)
"""Bounds on the spectrum that statements are tried with; the last is beyond stability."""

SLACK = 1e-13
"""Rounding of a difference of responses of order one."""


def draw_near(rng: np.random.Generator, radius: float, spare: int = 3) -> Pair:
    """A teacher of one or two atoms and a balanced student nearby, at a distance of 1e-6 to 1."""
    order = int(rng.integers(1, 3))
    atoms, weights = draw_atoms(rng, order, -radius, radius), draw_weights(rng, order)
    scale = 10.0 ** rng.uniform(-6, 0)
    moved = np.clip(atoms + 0.3 * scale * rng.standard_normal(order), -radius, radius)
    heavier = weights * np.exp(0.3 * scale * rng.standard_normal(order))
    places = np.concatenate([moved, rng.uniform(-radius, radius, spare)])
    student = diagonal(places, np.concatenate([heavier, 0.2 * scale * rng.random(spare)]))
    return Pair(student.turned(draw_orthogonal(rng, len(places))), atoms, weights, 2 * order + 1)


# --- Certificates -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Bounded:
    """A student beside its teacher, and a bound on the eigenvalues of both."""

    pair: Pair
    radius: float

    @property
    def negative(self) -> float:
        """Size of the most negative weight of the student, relative to all."""
        weights = spectrum(self.pair.student)[1]
        return float(np.max(-weights, initial=0.0) / max(np.sum(np.abs(weights)), 1e-300))

    @property
    def beyond(self) -> float:
        """How far an eigenvalue is beyond the radius."""
        values = np.concatenate([spectrum(self.pair.student)[0], self.pair.atoms])
        return largest(values) - self.radius


POSTERIOR = "errors above the bound from the residuals, relative, by"
PRIOR = "errors above K_j√L, relative, by"
LEAK = "Σ P_ir_i against ∫∏(x − λ_i)² dμ"
ENOUGH_LOSS = "error above ε at L = δ(ε, q), relative, by"


def _measure_bounded(instance: Bounded) -> Measured:
    pair = instance.pair
    found = certificate(pair.atoms, pair.length, HORIZON, radius=instance.radius)
    r = pair.residuals(HORIZON)
    known, errors = r[: pair.length], np.maximum(np.abs(r) - SLACK, 0)
    posterior = np.asarray(found.bounds(known))
    prior = np.asarray(found.constants) * math.sqrt(pair.loss)
    values, weights = spectrum(pair.student)
    leak = float(weights @ np.prod((values[:, None] - pair.atoms) ** 2, axis=1))
    tiny = 1e-300
    aim = math.sqrt(pair.loss / float(found.sufficient_loss(1.0, loss_scale="sum_sq")))  # δ is quadratic in ε
    return Measured(
        {
            POSTERIOR: float(np.max((errors / (posterior + tiny))[pair.length :])) - 1,
            PRIOR: float(np.max((errors / (prior + tiny))[pair.length :])) - 1,
            LEAK: abs(float(found.leak(known)) - leak),
            ENOUGH_LOSS: float(errors.max() / (aim + tiny)) - 1,
        },
        facts={"leak": leak, "largest error": largest(r), "loss": pair.loss, "largest bound": float(posterior.max())},
    )


def _draw_bounded(rng: np.random.Generator) -> Bounded:
    radius = float(rng.choice(RADII))
    return Bounded(draw_near(rng, radius), radius)


def _not_balanced(rng: np.random.Generator) -> Bounded:
    """A student that agrees with the teacher on the samples, by negative weights."""
    drawn = _draw_bounded(rng)
    pair = drawn.pair
    nodes = np.linspace(-0.85, 0.85, pair.length + 1)
    beside = 0.3 * annihilator(nodes) / largest(annihilator(nodes))
    student = diagonal(np.concatenate([pair.atoms, nodes]), np.concatenate([pair.weights, beside]))
    return dataclasses.replace(drawn, pair=dataclasses.replace(pair, student=student))


def _too_wide(rng: np.random.Generator) -> Bounded:
    drawn = _draw_bounded(rng)
    pair = drawn.pair
    student = diagonal(np.append(pair.atoms, 1.6), np.append(pair.weights, 1e-3))
    return dataclasses.replace(drawn, pair=dataclasses.replace(pair, student=student))


def _adopt_bounded(problem: Problem, params: Params) -> Bounded:
    pair = adopt_pair(problem, params)
    return Bounded(pair, largest(np.concatenate([spectrum(pair.student)[0], pair.atoms])))


THEOREM_8 = Check(
    id="rnn/theorem-8",
    source="Theorem 8",
    statement=(
        "The error of a balanced student with spectrum in [−R, R] on a teacher of n atoms, k ≥ 2n + 1, is at most "
        "|Σq_{j,i}r_i| + D_jΣP_ir_i ≤ K_j√L at every j, so δ(ε, q) = (ε/max K_j)²; no stability is needed."
    ),
    hypotheses=(
        *(Hypothesis(h.name, lambda b, h=h: h.residual(b.pair), h.tolerance) for h in (ENOUGH, POSITIVE, SYMMETRIC)),
        Hypothesis("a student with a positive measure", lambda b: b.negative, ROUNDING),
        Hypothesis("a radius that holds all eigenvalues", lambda b: b.beyond, ROUNDING),
    ),
    tolerances={POSTERIOR: 0.0, PRIOR: 0.0, LEAK: ROUNDING, ENOUGH_LOSS: 0.0},
    measure=each(_measure_bounded),
    draw=_draw_bounded,
    violations=(
        Violation("a student that is not balanced", _not_balanced),
        Violation("an eigenvalue beyond the radius", _too_wide),
    ),
    adopt=_adopt_bounded,
)


@dataclasses.dataclass(frozen=True)
class Tolerant:
    """A measure on [−1, 1], how many of its moments are known up to a tolerance, and the moment asked for.

    The worst case is found on a grid of so many points at first, to which those are added that it asks for.
    """

    atoms: np.ndarray
    weights: np.ndarray
    length: int
    index: int
    points: int = 201


WITHIN = "worst error per tolerance above √(2n+1)K_j, relative, by"
CONCAVE = "worst error per tolerance falls as the tolerance does, relative, by"
LINEAR = "worst error per tolerance still grows from 1e-4 to 1e-5, relative, by"


def _measure_tolerant(instance: Tolerant) -> Measured:
    order = len(instance.atoms)
    w = moments(instance.atoms, instance.weights, instance.index + 1)
    rates = []
    for tolerance in (1e-4, 1e-5):
        found = extrapolation_interval(
            w[: instance.length],
            instance.index,
            low=-1,
            high=1,
            atoms=instance.atoms,
            tolerance=tolerance,
            fall_back=False,
            points=instance.points,
        )
        off = max(float(found.upper) - float(w[-1]), float(w[-1]) - float(found.lower))
        rates.append(off / tolerance)
    constant = float(certificate(instance.atoms, 2 * order + 1, instance.index + 1, radius=1.0).constants[-1])
    bound = math.sqrt(2 * order + 1) * constant
    return Measured(
        {
            WITHIN: max(rates) / bound - 1,
            CONCAVE: rates[0] / rates[1] - 1,
            LINEAR: rates[1] / rates[0] - 1,
        },
        facts={"worst error per tolerance": rates[1], "bound": bound},
    )


def _draw_tolerant(rng: np.random.Generator, fewer: int = 0) -> Tolerant:
    order = int(rng.integers(1, 3))
    index = int(rng.choice([2 * order + 1, 12, 20]))
    return Tolerant(draw_atoms(rng, order), draw_weights(rng, order), 2 * order + 1 - fewer, index)


LINEAR_CERTIFICATE = Check(
    id="rnn/linear-certificate",
    source="Theorem 8",
    statement=(
        "The worst error of balanced students whose residuals are at most a tolerance is linear in it once it is "
        "small, and at most √(2n+1)K_j of it: the loss enters by its square root, not by a root of order 4d̂(q − 1)."
    ),
    hypotheses=(
        Hypothesis("at least 2n + 1 moments", lambda t: float(2 * len(t.atoms) + 1 - t.length)),
        Hypothesis("positive weights", lambda t: float(-np.min(t.weights))),
    ),
    tolerances={WITHIN: 0.0, CONCAVE: 1e-3, LINEAR: 0.1},
    measure=each(_measure_tolerant),
    draw=_draw_tolerant,
    violations=(Violation("one moment less", lambda rng: _draw_tolerant(rng, 1)),),
    version=2,
)

# --- Normalised moments -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Gapped:
    """Samples of a student and of its teacher, and the sum of squared residuals that is told of them."""

    student: np.ndarray
    teacher: np.ndarray
    loss: float

    @property
    def gaps(self) -> np.ndarray:
        """|h_j/h_0 − w_j/w_0|."""
        return np.abs(self.student / self.student[0] - self.teacher / self.teacher[0])

    @property
    def true_loss(self) -> float:
        return float(np.sum((self.student - self.teacher) ** 2))


BY_TEACHER = "|m_j − m̂_j| above √(1 + m̂_j²)√L/(w₀ − √L), relative, by"
BY_STUDENT = "|m_j − m̂_j| above √(1 + m_j²)√L/w₀, relative, by"


def _measure_gapped(instance: Gapped) -> Measured:
    bound = np.asarray(moment_gap(instance.teacher, instance.loss, loss_scale="sum_sq"))[1:]
    gaps, w0 = np.maximum(instance.gaps[1:] - SLACK, 0), float(instance.teacher[0])
    other = np.hypot(1, (instance.student / instance.student[0])[1:]) * math.sqrt(instance.loss) / w0
    closest = float(np.max(gaps / (bound + 1e-300)))
    return Measured(
        {BY_TEACHER: closest - 1, BY_STUDENT: float(np.max(gaps / (other + 1e-300))) - 1}, facts={"closest": closest}
    )


def _draw_gapped(rng: np.random.Generator) -> Gapped:
    """Half of them in the direction in which the first bound is attained in the limit, r ∝ (−m̂_j at 0, 1 at j)."""
    w = moments(rng.uniform(-1.2, 1.2, 3), rng.uniform(0.05, 1, 3), 5)
    r = rng.standard_normal(5)
    if rng.random() < 0.5:
        j = int(rng.integers(1, 5))
        r = np.where(np.arange(5) == j, 1.0, 0.0)
        r[0] = -w[j] / w[0]
    r *= w[0] * 10.0 ** rng.uniform(-5, -0.1) / np.linalg.norm(r)
    return Gapped(w + r, w, float(np.sum(r**2)))


def _told_less(rng: np.random.Generator) -> Gapped:
    """All of the residuals is in the first entry, of which the told loss has none."""
    w = moments(rng.uniform(0.5, 1.0, 3), rng.uniform(0.3, 1, 3), 5)
    h = w.copy()
    h[0] *= 0.8
    return Gapped(h, w, 1e-8)


def _adopt_gapped(problem: Problem, params: Params) -> Gapped:
    target = adopt_target(problem)
    if target.shape[1:] != (1, 1) or len(target) < 2:
        raise HypothesisError("one input, one output and two samples", float(max(target.shape[1:])), 1.0)
    student = adopt_system(problem, params).response(len(target))[:, 0, 0]
    return Gapped(student, target[:, 0, 0], float(np.sum((student - target[:, 0, 0]) ** 2)))


MOMENT_GAP = Check(
    id="rnn/moment-gap",
    source="Appendix C.3, in place of equations C.29 to C.36",
    statement=(
        "Normalised moments m_j = h_j/h₀ differ by at most √(1 + m̂_j²)√L/(w₀ − √L), whatever the student, and by at "
        "most √(1 + m_j²)√L/w₀."
    ),
    hypotheses=(
        Hypothesis("w₀ > 0", lambda g: float(-g.teacher[0])),
        Hypothesis("√L below w₀", lambda g: math.sqrt(g.loss) - float(g.teacher[0]), -1e-9),
        Hypothesis("the loss is as told", lambda g: abs(g.true_loss - g.loss) / max(g.true_loss, 1e-300), 1e-9),
    ),
    tolerances={BY_TEACHER: 1e-9, BY_STUDENT: 1e-9},
    measure=each(_measure_gapped),
    draw=_draw_gapped,
    violations=(Violation("a loss that leaves out the first entry", _told_less),),
    adopt=_adopt_gapped,
)


@dataclasses.dataclass(frozen=True)
class Promised:
    """A student beside its stable teacher, and the δ that its loss is to be small for."""

    pair: Pair
    delta: float

    @property
    def tau(self) -> float:
        """Largest Frobenius norm of the student's matrices, at least 1."""
        return max(1.0, *(float(np.linalg.norm(matrix)) for matrix in self.pair.student.parts))

    @property
    def factor(self) -> float:
        k, tau = self.pair.length, self.tau
        return 1 + tau ** (k + 1) * (tau ** (k - 1) + 1)

    @property
    def first(self) -> float:
        return float(np.sum(self.pair.weights))


ROOT = "|m_j − m̂_j| above √δ, relative, by"
SHARPER = "|m_j − m̂_j| above √((1 + τ^{2k−2})L)/w₀, relative, by"


def _measure_promised(instance: Promised) -> Measured:
    pair = instance.pair
    h, w = pair.student.response(pair.length)[:, 0, 0], pair.target(pair.length)
    gaps = np.maximum(np.abs(h / h[0] - w / w[0]) - SLACK, 0)
    sharper = math.sqrt((1 + instance.tau ** (2 * pair.length - 2)) * pair.loss) / instance.first
    return Measured(
        {ROOT: float(gaps.max()) / math.sqrt(instance.delta) - 1, SHARPER: float(gaps.max()) / sharper - 1},
        facts={"τ": instance.tau, "δ": instance.delta, "loss": pair.loss},
    )


def _draw_promised(rng: np.random.Generator) -> Promised:
    while True:
        drawn = Promised(draw_near(rng, 1.0, spare=int(rng.integers(0, 3))), 1.0)
        delta = drawn.pair.loss * drawn.factor / drawn.first**2 * float(rng.uniform(1.0001, 1.5))
        if delta < drawn.first:
            return dataclasses.replace(drawn, delta=delta)


def _broken_promise(rng: np.random.Generator) -> Promised:
    drawn = _draw_promised(rng)
    h, w = drawn.pair.student.response(drawn.pair.length)[:, 0, 0], drawn.pair.target(drawn.pair.length)
    return dataclasses.replace(drawn, delta=(largest(h / h[0] - w / w[0]) / 2) ** 2)


MOMENTS_FROM_LOSS = Check(
    id="rnn/moments-from-loss",
    source="After equation C.36",
    statement=(
        "If L ≤ δw₀²/(1 + τ^{k+1}(τ^{k−1} + 1)) with τ = max(1, ‖A‖, ‖B‖, ‖C‖), then |m_j − m̂_j| ≤ √δ for j < k. True, "
        "by another proof: (m_j − m̂_j)w₀ = r_j − m_jr₀ and |m_j| ≤ τ^j, which needs 1 + τ^{2k−2} only."
    ),
    hypotheses=(
        Hypothesis("δ below w₀", lambda p: p.delta - p.first),
        Hypothesis("a loss as small as asked for", lambda p: p.pair.loss - p.delta * p.first**2 / p.factor),
        Hypothesis("a stable teacher", lambda p: largest(p.pair.atoms) - 1),
        Hypothesis("a balanced teacher", lambda p: float(-np.min(p.pair.weights))),
        Hypothesis("a balanced student", lambda p: Bounded(p.pair, 0.0).negative, ROUNDING),
    ),
    tolerances={ROOT: 0.0, SHARPER: 1e-9},
    measure=each(_measure_promised),
    draw=_draw_promised,
    violations=(Violation("a larger loss", _broken_promise),),
)

# --- Wasserstein distances --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Measures:
    """Two probability measures, an order, and the diameter of their supports that is told."""

    first: tuple[np.ndarray, np.ndarray]
    second: tuple[np.ndarray, np.ndarray]
    order: int
    diameter: float

    @property
    def support(self) -> np.ndarray:
        return np.concatenate([self.first[0], self.second[0]])


def transport(instance: Measures, order: int) -> float:
    """W_q^q as a linear programme over couplings."""
    (x, p), (y, q) = instance.first, instance.second
    cost = np.abs(x[:, None] - y) ** order
    rows = np.vstack([np.kron(np.eye(len(x)), np.ones(len(y))), np.kron(np.ones(len(x)), np.eye(len(y)))])
    found = scipy.optimize.linprog(cost.ravel(), A_eq=rows[:-1], b_eq=np.concatenate([p, q])[:-1], method="highs")
    return float(found.fun)


ORDERS = "W_q^q above W₁γ^{q−1}, relative, by"
PROGRAMME = "W_q^q against the least cost of a coupling, relative"
LIBRARY = "W₁ against another program"


def _measure_measures(instance: Measures) -> Measured:
    one, several = (
        wasserstein(instance.first, instance.second),
        wasserstein(instance.first, instance.second, instance.order),
    )
    power, wanted = several**instance.order, transport(instance, instance.order)
    (x, p), (y, q) = instance.first, instance.second
    other = float(scipy.stats.wasserstein_distance(x, y, p, q))
    return Measured(
        {
            ORDERS: power / (one * instance.diameter ** (instance.order - 1)) - 1,
            PROGRAMME: abs(power - wanted) / wanted,
            LIBRARY: abs(one - other),
        }
    )


def draw_measures(rng: np.random.Generator, low: float = -1.0, high: float = 1.0) -> Measures:
    """Two measures of a few atoms in an interval."""
    first, second = (
        (rng.uniform(low, high, count), draw_weights(rng, count)) for count in rng.integers(1, 5, size=2).tolist()
    )
    drawn = Measures(first, second, int(rng.integers(2, 8)), 0.0)
    return dataclasses.replace(drawn, diameter=float(np.ptp(drawn.support)))


def _one_support(rng: np.random.Generator) -> Measures:
    """Supports that are far apart, and the diameter of one of them."""
    first, second = ((places + rng.uniform(0, 0.1, 3), draw_weights(rng, 3)) for places in (0.5, -0.5))
    return Measures(first, second, int(rng.integers(2, 8)), 0.1)


WASSERSTEIN = Check(
    id="rnn/wasserstein-orders",
    source="Appendix C.3, before equation C.37",
    statement="W_q^q ≤ W₁γ^{q−1} with γ the diameter of the two supports together.",
    hypotheses=(Hypothesis("a diameter that holds both supports", lambda m: float(np.ptp(m.support)) - m.diameter),),
    tolerances={ORDERS: ROUNDING, PROGRAMME: 1e-9, LIBRARY: ROUNDING},
    measure=each(_measure_measures),
    draw=draw_measures,
    violations=(Violation("the diameter of one support", _one_support),),
)

CHECKS = (THEOREM_8, LINEAR_CERTIFICATE, MOMENT_GAP, MOMENTS_FROM_LOSS, WASSERSTEIN)
