"""The operator of a depth and its metric: spectrum, gradients, the limit of depth, invariance, kernels."""

import dataclasses
import itertools
import math

import numpy as np

from deeplinear.core import HypothesisError, Params
from deeplinear.geometry import Metric, metric_eigenvalue
from deeplinear.models import Problem
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._matrices import (
    ROUNDING,
    Place,
    adopt_place,
    draw_orthogonal,
    draw_place,
    operator,
)
from deeplinear.theory.network._networks import each

DEEP = 20_000
"""Depth at which the first correction to infinite depth is measured."""


def deviation(found: object, wanted: object) -> float:
    """Largest difference over the largest entry of what is wanted."""
    one, other = np.asarray(found, dtype=float), np.asarray(wanted, dtype=float)
    return float(np.max(np.abs(one - other), initial=0.0) / max(np.max(np.abs(other), initial=0.0), 1e-300))


def condition(point: np.ndarray) -> float:
    """Ratio of the extreme singular values."""
    values = np.linalg.svd(point, compute_uv=False)
    return float(values[0] / values[-1]) if values[-1] > 0 else math.inf


def adopt_square(problem: Problem, params: Params) -> Place:
    """The place of given layers whose product is square, as statements on matrices of full rank have it."""
    rows, columns = problem.model.product_shape
    if rows != columns:
        raise HypothesisError("a square product", float(abs(rows - columns)), 0.0)
    return adopt_place(problem, params)


# --- Spectrum ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Framed:
    """A point with a depth, and the singular value decomposition that is told of it."""

    place: Place
    left: np.ndarray
    values: np.ndarray
    right_t: np.ndarray

    @property
    def missed(self) -> float:
        """How far the decomposition is from the point."""
        return deviation((self.left * self.values) @ self.right_t, self.place.point)


def framed(place: Place) -> Framed:
    return Framed(place, *np.linalg.svd(place.point))


def _draw_framed(rng: np.random.Generator) -> Framed:
    """Now and then with two equal singular values."""
    drawn = framed(draw_place(rng))
    if rng.integers(3) == 0:
        values = drawn.values.copy()
        values[1] = values[0]
        place = dataclasses.replace(drawn.place, point=(drawn.left * values) @ drawn.right_t)
        return Framed(place, drawn.left, values, drawn.right_t)
    return drawn


def plain_eigenvalue(a: float, b: float, depth: float) -> float:
    """By the geometric series, or by the logarithmic mean; by its limit where both are equal."""
    if not math.isinf(depth):
        return sum(a ** (2 * (depth - k) / depth) * b ** (2 * (k - 1) / depth) for k in range(1, int(depth) + 1))
    return a * b if abs(a - b) < 1e-6 * a else (a**2 - b**2) / (math.log(a**2) - math.log(b**2))


SPECTRUM = {
    "operator on singular pairs against eigenvalue times pair, relative": 1e-11,
    "dense operator against the definition, relative": 1e-11,
    "asymmetry, relative": ROUNDING,
    "eigenvalues that are not positive": 0.0,
}


def _measure_spectrum(instance: Framed) -> Measured:
    place = instance.place
    metric = Metric(place.depth)
    size = len(instance.values)
    table = np.asarray(metric_eigenvalue(instance.values[:, None], instance.values[None], place.depth))
    worst = 0.0
    for k, l in itertools.product(range(size), repeat=2):  # noqa: E741
        pair = np.outer(instance.left[:, k], instance.right_t[l])
        worst = max(worst, deviation(operator(place.point, pair, place.depth), table[k, l] * pair))
    dense = np.asarray(metric.dense(place.point))
    units = np.eye(size**2).reshape(-1, size, size)
    wanted = np.stack([operator(place.point, unit, place.depth).ravel() for unit in units], axis=1)
    numbers = (
        worst,
        deviation(dense, wanted),
        deviation(wanted, wanted.T),
        float(np.sum(np.linalg.eigvalsh(wanted) <= 0)),
    )
    return Measured(dict(zip(SPECTRUM, numbers, strict=True)))


def _another_frame(rng: np.random.Generator) -> Framed:
    """Of a point with distinct singular values: where all are equal, any frame will do."""
    drawn = framed(draw_place(rng))
    return dataclasses.replace(drawn, left=draw_orthogonal(rng, len(drawn.values)))


DIAGONAL = Check(
    id="geometry/theorem-2.2.1",
    source="Theorem 2.2.1",
    statement=(
        "At a matrix of full rank A_L is symmetric and positive definite, with eigenvectors u_k v_lᵀ and eigenvalues "
        "(σ_k² − σ_l²)/(σ_k^{2/L} − σ_l^{2/L}), Lσ^{2−2/L} where the singular values are equal."
    ),
    hypotheses=(
        Hypothesis("a matrix of condition at most 1e3", lambda f: condition(f.place.point) - 1e3),
        Hypothesis("the singular value decomposition is as told", lambda f: f.missed, 1e-12),
    ),
    tolerances=SPECTRUM,
    version=2,
    measure=each(_measure_spectrum),
    draw=_draw_framed,
    violations=(Violation("singular vectors of another matrix", _another_frame),),
    adopt=lambda problem, params: framed(adopt_square(problem, params)),
)

# --- Gradient ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Descent:
    """A place whose tangent is the gradient of ½‖X − Y‖² there, and the gradient that is told."""

    place: Place
    told: np.ndarray


GRADIENT = {
    "⟨dE, Z⟩ against g(A dE, Z), relative": 1e-11,
    "dE/dt against −‖grad E‖², relative": 1e-11,
    "A⁻¹A Z against Z, relative": 1e-11,
}


def _measure_gradient(instance: Descent) -> Measured:
    """The energy is quadratic, so that a central difference of it over any step is its derivative; over one as long as
    the gradient it keeps its digits."""
    place, metric = instance.place, Metric(instance.place.depth)
    riemannian = operator(place.point, instance.told, place.depth)
    target = place.point - place.vector

    def energy(step: float) -> float:
        return 0.5 * float(np.sum((place.point - step * riemannian - target) ** 2))

    long = float(np.linalg.norm(place.vector)) / float(np.linalg.norm(riemannian))
    slope = (energy(long) - energy(-long)) / (2 * long)
    pairing = float(np.sum(place.vector * place.other))
    size = float(np.linalg.norm(place.vector) * np.linalg.norm(place.other))
    squared = float(metric.norm(place.point, riemannian)) ** 2
    numbers = (
        abs(float(metric.inner(place.point, riemannian, place.other)) - pairing) / size,
        abs(slope + squared) / squared,
        deviation(metric.apply(place.point, metric.inverse(place.point, place.other)), place.other),
    )
    return Measured(dict(zip(GRADIENT, numbers, strict=True)))


def _descent(place: Place) -> Descent:
    return Descent(place, place.vector)


def _another_energy(rng: np.random.Generator) -> Descent:
    place = draw_place(rng)
    return Descent(place, place.vector + 0.1 * rng.standard_normal(place.vector.shape))


RIEMANNIAN = Check(
    id="geometry/theorem-2.2.2",
    source="Theorem 2.2.2",
    statement="A_L[X](dE) is the gradient of E in the metric ⟨Z, A_L⁻¹Z⟩: ⟨dE, Z⟩ = g(A_L dE, Z) and Ė = −‖grad E‖².",
    hypotheses=(
        Hypothesis("a matrix of condition at most 1e3", lambda d: condition(d.place.point) - 1e3),
        Hypothesis("the gradient is as told", lambda d: deviation(d.told, d.place.vector), ROUNDING),
    ),
    tolerances=GRADIENT,
    version=2,
    measure=each(_measure_gradient),
    draw=lambda rng: _descent(draw_place(rng)),
    violations=(Violation("the gradient of another energy", _another_energy),),
    adopt=lambda problem, params: _descent(adopt_square(problem, params)),
)

# --- Infinite depth ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Limit:
    """A place, and the factor in front of the operator, times the depth."""

    place: Place
    factor: float = 1.0


LIMIT = {
    "operator of infinite depth against the integral, relative": 1e-11,
    "its eigenvalues against logarithmic means, relative": 1e-11,
    "L(ratio to infinite depth − 1) + ln ab, at a depth of 20,000": 1e-3,
}


def _measure_limit(instance: Limit) -> Measured:
    place = instance.place
    values = np.linalg.svd(place.point, compute_uv=False)
    found = np.asarray(Metric(math.inf).eigenvalues(place.point))
    wanted = np.array([[plain_eigenvalue(a, b, math.inf) for b in values] for a in values])
    shared = instance.factor * np.asarray(metric_eigenvalue(values[:, None], values[None], DEEP)) / DEEP
    first = DEEP * (shared / wanted - 1) + np.log(np.outer(values, values))
    numbers = (
        deviation(Metric(math.inf).apply(place.point, place.vector), operator(place.point, place.vector, math.inf)),
        deviation(found, wanted),
        float(np.max(np.abs(first))),
    )
    return Measured(dict(zip(LIMIT, numbers, strict=True)))


INFINITE = Check(
    id="geometry/remark-2.2.3",
    source="Remark 2.2.3",
    statement=(
        "A_L/L tends to ∫(XXᵀ)^{1−t} Z (XᵀX)^t dt, whose eigenvalues are the logarithmic means of σ_k² and σ_l²; "
        "relative to these the eigenvalues are 1 − ln(σ_kσ_l)/L + O(1/L²)."
    ),
    hypotheses=(
        Hypothesis("singular values between 1/20 and 20", lambda limit: _beyond(limit.place.point) - 20),
        Hypothesis("the factor in front is 1/L", lambda limit: abs(limit.factor - 1)),
    ),
    tolerances=LIMIT,
    measure=each(_measure_limit),
    draw=lambda rng: Limit(draw_place(rng)),
    violations=(Violation("a factor of 1.001/L", lambda rng: Limit(draw_place(rng), 1.001)),),
    adopt=lambda problem, params: Limit(adopt_square(problem, params)),
)


def _beyond(point: np.ndarray) -> float:
    """Largest singular value, or one over the smallest."""
    values = np.linalg.svd(point, compute_uv=False)
    return float(max(values[0], 1 / max(values[-1], 1e-300)))


# --- Invariance -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Turned:
    """A place, two matrices to turn it by, and a factor."""

    place: Place
    left: np.ndarray
    right: np.ndarray
    factor: float

    @property
    def missed(self) -> float:
        """How far the two are from orthogonal."""
        return max(float(np.max(np.abs(q.T @ q - np.eye(len(q))))) for q in (self.left, self.right))


ISOMETRY = {
    "g after turns on both sides, relative": 1e-12,
    "g after transposition, relative": 1e-12,
    "A[cX] against c^{2−2/L}A[X], relative": 1e-11,
}


def _measure_isometry(instance: Turned) -> Measured:
    place, metric = instance.place, Metric(instance.place.depth)
    matrices = (place.point, place.vector, place.other)
    inner = float(metric.inner(*matrices))
    size = float(metric.norm(place.point, place.vector) * metric.norm(place.point, place.other))
    turned = float(metric.inner(*(instance.left @ m @ instance.right for m in matrices)))
    flipped = float(metric.inner(*(m.T for m in matrices)))
    scaled = operator(instance.factor * place.point, place.vector, place.depth)
    power = abs(instance.factor) ** (2 - 2 / place.depth)
    numbers = (
        abs(turned - inner) / size,
        abs(flipped - inner) / size,
        deviation(power * np.asarray(metric.apply(place.point, place.vector)), scaled),
    )
    return Measured(dict(zip(ISOMETRY, numbers, strict=True)))


def _turned(rng: np.random.Generator, place: Place) -> Turned:
    size = len(place.point)
    factor = float(rng.choice([-1, 1]) * np.exp(rng.uniform(-1, 1)))
    return Turned(place, draw_orthogonal(rng, size), draw_orthogonal(rng, size), factor)


def _sheared(rng: np.random.Generator) -> Turned:
    drawn = _turned(rng, draw_place(rng))
    return dataclasses.replace(drawn, left=drawn.left + 0.05 * rng.standard_normal(drawn.left.shape))


INVARIANCE = Check(
    id="geometry/isometries",
    source="Section 2.2, the metric of Equation 2.18",
    statement=(
        "Multiplication by orthogonal matrices from both sides and transposition are isometries, and "
        "A_L[cX] = |c|^{2−2/L} A_L[X]."
    ),
    hypotheses=(
        Hypothesis("a matrix of condition at most 1e3", lambda t: condition(t.place.point) - 1e3),
        Hypothesis("orthogonal turns", lambda t: t.missed, ROUNDING),
    ),
    tolerances=ISOMETRY,
    measure=each(_measure_isometry),
    draw=lambda rng: _turned(rng, draw_place(rng)),
    violations=(Violation("a turn that is not orthogonal", _sheared),),
    adopt=lambda problem, params: _turned(np.random.default_rng(0), adopt_square(problem, params)),
)

# --- Other ranks and shapes -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Rectangle:
    """Balanced layers of different widths, and the rank that is told of all of them."""

    layers: tuple[np.ndarray, ...]
    vector: np.ndarray
    rank: int

    @property
    def values(self) -> np.ndarray:
        """Singular values of the product; what is zero to rounding is zero."""
        values = np.linalg.svd(times(self.layers), compute_uv=False)
        return np.where(values > 1e-12 * values[0], values, 0.0)

    @property
    def imbalance(self) -> float:
        """Of the layers, relative."""
        return imbalance(self.layers)


def imbalance(layers: tuple[np.ndarray, ...]) -> float:
    """Largest norm of a difference of neighbours, over the largest squared norm of a layer."""
    laws = [float(np.linalg.norm(a @ a.T - b.T @ b)) for a, b in itertools.pairwise(layers)]
    return max(laws, default=0.0) / max(1e-300, *(float(np.sum(layer**2)) for layer in layers))


def times(layers: tuple[np.ndarray, ...]) -> np.ndarray:
    """Product of layers, the first acting first."""
    result = np.eye(layers[0].shape[1])
    for layer in layers:
        result = layer @ result
    return result


def _draw_rectangle(rng: np.random.Generator, rank: int | None = None) -> Rectangle:
    """Output and input of widths 2 and 4 or 4 and 3, hidden widths at least the rank."""
    out, inp = ((2, 4), (4, 3))[int(rng.integers(2))]
    r = int(rng.integers(1, min(out, inp) + 1)) if rank is None else rank
    depth = int(rng.choice([2, 3]))
    widths = (inp, *(int(rng.integers(r, 5)) for _ in range(depth - 1)), out)
    strengths = np.exp(rng.uniform(-0.5, 0.5, r))
    frames = [draw_orthogonal(rng, width)[:, :r] for width in widths]
    layers = tuple((above * strengths) @ below.T for below, above in itertools.pairwise(frames))
    return Rectangle(layers, rng.standard_normal((out, inp)), r)


KERNELS = {
    "velocity of the product of full rank against the operator, relative": 1e-11,
    "the same of lower rank": 1e-9,
    "dimension of the kernel at this depth against (m − r)(n − r)": 0.0,
    "dimension of the kernel at infinite depth against mn − r²": 0.0,
}


def _measure_kernels(instance: Rectangle) -> Measured:
    """What rounding makes of a vanishing singular value, about 1e-16, enters the operator to the power of 2/L."""
    depth, x = len(instance.layers), times(instance.layers)
    velocity = np.zeros_like(x)
    for k in range(depth):
        below, above = times((np.eye(x.shape[1]), *instance.layers[:k])), np.eye(x.shape[0])
        for layer in reversed(instance.layers[k + 1 :]):
            above = above @ layer
        velocity += above @ above.T @ instance.vector @ below.T @ below
    rows, columns = x.shape
    plain = np.zeros(x.shape)
    np.fill_diagonal(plain, instance.values)
    kernels = []
    for at in (depth, math.inf):
        table = np.asarray(Metric(at).eigenvalues(plain))
        kernels.append(int(np.sum(table <= 1e-12 * table.max())))
    missed, full = deviation(Metric(depth).apply(x, instance.vector), velocity), instance.rank == min(rows, columns)
    numbers = (
        missed if full else 0.0,
        0.0 if full else missed,
        float(abs(kernels[0] - (rows - instance.rank) * (columns - instance.rank))),
        float(abs(kernels[1] - (rows * columns - instance.rank**2))),
    )
    return Measured(dict(zip(KERNELS, numbers, strict=True)))


def _uneven(rng: np.random.Generator) -> Rectangle:
    drawn = _draw_rectangle(rng)
    return dataclasses.replace(drawn, layers=(2 * drawn.layers[0], *drawn.layers[1:]))


def _less(rng: np.random.Generator) -> Rectangle:
    return dataclasses.replace(_draw_rectangle(rng, 1), rank=2)


def _adopt_rectangle(problem: Problem, params: Params) -> Rectangle:
    layers = tuple(np.asarray(layer) for layer in params)
    product = times(layers)
    vector = np.random.default_rng(0).standard_normal(product.shape)
    return Rectangle(layers, vector, int(np.sum(Rectangle(layers, vector, 0).values > 0)))


RECTANGULAR = Check(
    id="geometry/rectangular-operator",
    source="Equation 2.19, of other shapes and ranks",
    statement=(
        "For balanced layers of any widths the product moves by the same operator, with singular values padded by "
        "zeros; its kernel has dimension (m − r)(n − r), and mn − r² at infinite depth."
    ),
    hypotheses=(
        Hypothesis("at least two layers", lambda r: float(2 - len(r.layers))),
        Hypothesis("a product that is not zero", lambda r: float(not np.any(r.values))),
        Hypothesis("balanced layers", lambda r: r.imbalance, 1e-10),
        Hypothesis("the rank is as told", lambda r: float(abs(int(np.sum(r.values > 0)) - r.rank))),
    ),
    tolerances=KERNELS,
    measure=each(_measure_kernels),
    draw=_draw_rectangle,
    violations=(
        Violation("layers that are not balanced", _uneven),
        Violation("a rank lower than told", _less),
    ),
    adopt=_adopt_rectangle,
)

CHECKS = (DIAGONAL, RIEMANNIAN, INFINITE, INVARIANCE, RECTANGULAR)
