r"""Singular values and determinants of balanced layers along the flow."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, HypothesisError, Params, add_scaled, formula, spectrum, xp
from deeplinear.exact import singular_value_speed
from deeplinear.models import Completion, DeepLinear, Problem, balancedness
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import MEASURABLE, decades, flows

SPEED_TOLERANCE = 1e-7
"""Differences of fourth order with a small part of the fastest time scale, relative to speed and size."""

ALGEBRA_TOLERANCE = 1e-10
"""Flows at rtol 1e-12: balance is conserved to 1e-12."""

BALANCE_TOLERANCE = 1e-9
"""Largest imbalance at the start, relative to the layers."""

ROUNDING = 1e-12

MODELS = (DeepLinear((3, 3, 4)), DeepLinear((2, 2, 2, 2)), DeepLinear((2, 2, 2, 2, 2)))
SQUARE = DeepLinear((2, 2, 2))
SQUARES = (SQUARE, DeepLinear((4, 4, 4)))


@dataclasses.dataclass(frozen=True)
class Start:
    """A problem and layers."""

    problem: Problem
    params: Params


def _balanced(rng: np.random.Generator, model: DeepLinear, values: np.ndarray, sign: float = 0.0) -> Params:
    """Balanced layers whose product has the singular values, in random bases; `sign` is that of the bases."""
    turns = [np.linalg.qr(rng.standard_normal((width, len(values))))[0] for width in model.widths]
    if sign:
        for turn in turns:
            turn[:, 0] *= sign * np.sign(np.linalg.det(turn))
    root = np.diag(values ** (1 / model.depth))
    return tuple(xp.asarray(out @ root @ inp.T) for inp, out in itertools.pairwise(turns))


def _observations(rng: np.random.Generator, model: DeepLinear) -> Problem:
    mask = rng.random(model.product_shape) < 0.7
    mask[rng.integers(mask.shape[0]), rng.integers(mask.shape[1])] = True
    return Problem(model, Completion(rng.uniform(-1.5, 1.5, mask.shape), mask))


def _imbalance(start: Start) -> float:
    size = max(float(xp.sum(layer**2)) for layer in start.params)
    return float(xp.max(balancedness(start.params))) / size if size > 0 and len(start.params) > 1 else 0.0


def _lopsided(start: Start) -> Start:
    """The same product from layers that are not balanced."""
    first, second, *rest = start.params
    return Start(start.problem, (2.0 * first, second / 2.0, *rest))


# --- Speed of singular values ---------------------------------------------------------------------------------------

STEP = 0.005
"""Step of the differences in units of the fastest time scale: their error, of fourth order, is 1e-9 at most."""

STENCIL = np.array([1.0, -8.0, 0.0, 8.0, -1.0]) / 12

GAP = 0.01
"""Smallest relative distance of singular values, from zero too: nearer ones turn their vectors too fast to follow."""


def _gap(start: Start) -> float:
    values = np.linalg.svd(np.asarray(start.problem.product(start.params)), compute_uv=False)
    if not values[0] > 0:
        return GAP
    return GAP - float(np.min(-np.diff(np.append(values, 0.0))) / values[0])


def _draw_speed(rng: np.random.Generator) -> Start:
    model = MODELS[rng.integers(len(MODELS))]
    gaps = rng.uniform(0.3, 0.7, min(model.widths))
    return Start(_observations(rng, model), _balanced(rng, model, np.cumsum(gaps)[::-1]))


def _draw_unbalanced_speed(rng: np.random.Generator) -> Start:
    return _lopsided(_draw_speed(rng))


@formula
def _step(problem: Problem, params: Params, h: Float[Array, ""]) -> Params:
    """One classical Runge-Kutta step of the flow, forwards or backwards."""
    k1 = problem.gradient(params)
    k2 = problem.gradient(add_scaled(params, -h / 2, k1))
    k3 = problem.gradient(add_scaled(params, -h / 2, k2))
    k4 = problem.gradient(add_scaled(params, -h, k3))
    for k, share in ((k1, 1), (k2, 2), (k3, 2), (k4, 1)):
        params = add_scaled(params, -share * h / 6, k)
    return params


@formula
def _time_scale(problem: Problem, params: Params) -> Float[Array, ""]:
    """Time in which layers, or the singular vectors of near values, may change by as much as they are."""
    product, depth = problem.product(params), len(params)
    gradient, values = problem.loss.gradient(product), spectrum(product)
    size = xp.linalg.norm(gradient)
    bend = xp.linalg.norm(problem.loss.curvature(product, gradient)) / xp.where(size > 0, size, 1.0)
    pull = xp.maximum(bend, 1.0) * values[0] ** (2 - 2 / depth) + size * values[0] ** (1 - 2 / depth)
    gap = xp.min(-xp.diff(xp.append(values, 0.0))) / values[0]
    return gap / (depth * pull + problem.l2)


def _nearby(problem: Problem, params: Params) -> tuple[float, np.ndarray]:
    """A short time, and the singular values at -2, ..., 2 times it along the flow."""
    h = STEP * _time_scale(problem, params)
    after, before = _step(problem, params, h), _step(problem, params, -h)
    points = (_step(problem, before, -h), before, params, after, _step(problem, after, h))
    return float(h), np.linalg.svd(np.stack([problem.product(p) for p in points]), compute_uv=False)


def _fast(start: Start) -> float:
    """Decades by which rates and sizes are outside of what differences over a small part of the time scale tell."""
    rate = 1 / float(_time_scale(start.problem, start.params)) if _gap(start) <= 0 else 1.0
    size = float(np.linalg.norm(np.asarray(start.problem.product(start.params)), 2))
    return decades((rate, 1e-100, 1e7), (size, 1e-100, 1e100))


def _measure_speed(instances: Sequence[Start]) -> list[Measured]:
    found = []
    for instance in instances:
        h, values = _nearby(instance.problem, instance.params)
        measured = STENCIL @ values / h
        # The hypothesis is judged apart; here the formula is evaluated whatever the balance.
        expected = np.asarray(singular_value_speed(instance.problem, instance.params, balance_tolerance=1e9))
        size = float(np.max(np.abs(measured))) + float(values[2, 0])
        found.append(
            Measured(
                {"speed of the singular values": float(np.max(np.abs(measured - expected))) / size},
                facts={"largest speed": float(measured[np.argmax(np.abs(measured))])},
            )
        )
    return found


def _adopt_speed(problem: Problem, params: Params) -> Start:
    if not isinstance(problem.model, DeepLinear):
        raise HypothesisError("a deep linear network", 1, 0)
    singular_value_speed(problem, params)
    return Start(problem, params)


# --- Determinants ---------------------------------------------------------------------------------------------------

TIMES = np.linspace(0.0, 3.0, 16)
"""Short, so that a flow on its way into a saddle of zero determinant is not yet carried across it by rounding."""


def _draw_determinant(rng: np.random.Generator) -> Start:
    model = SQUARES[rng.integers(2)]
    values = np.cumsum(rng.uniform(0.2, 0.5, model.widths[0]))[::-1]
    return Start(_observations(rng, model), _balanced(rng, model, values, sign=1.0))


def _draw_unbalanced_determinant(rng: np.random.Generator) -> Start:
    """Diagonal layers with positive determinants of opposite kind: the first pair must change its sign."""
    first = xp.diag(xp.asarray([-rng.uniform(0.7, 1.5), -1.0]))
    second = xp.diag(xp.asarray([rng.uniform(0.05, 0.2), 1.0]))
    return Start(Problem(SQUARE, Completion(np.diag([1.0, -1.0]), np.eye(2))), (first, second))


def _determinants(start: Start) -> float:
    return max(0.0, -min(float(xp.linalg.det(layer)) for layer in start.params))


def _lost(start: Start) -> float:
    """Decades outside of where determinants stay clear of rounding: sizes of layers, pull of the loss."""
    values = np.stack([np.linalg.svd(np.asarray(layer), compute_uv=False) for layer in start.params])
    gradient = start.problem.loss.gradient(start.problem.product(start.params))
    pull = float(np.linalg.norm(np.asarray(gradient))) + float(start.problem.l2)
    return decades((float(values.max()), 0.05, 3.0), (float(values.min()), 0.05, 3.0), (pull, 0.0, 12.0))


def _measure_determinant(instances: Sequence[Start]) -> list[Measured]:
    runs = flows([i.problem for i in instances], [i.params for i in instances], TIMES)
    found = []
    for run in runs:
        first, second = run.layers
        products, a, b = (np.linalg.svd(w, compute_uv=False) for w in (run.product, second, first))
        dets = [np.linalg.det(w) for w in (run.product, second, first)]
        found.append(
            Measured(
                {
                    "σ(W) = σ(A)² = σ(B)²": float(max(np.max(np.abs(products - s**2)) for s in (a, b))),
                    "det A and det B stay positive": float(-min(dets[1].min(), dets[2].min())),
                    "det W = det(A)² = det(B)²": float(max(np.max(np.abs(dets[0] - x**2)) for x in dets[1:])),
                },
                facts={"smallest det A": float(dets[1].min())},
            )
        )
    return found


def _adopt_determinant(problem: Problem, params: Params) -> Start:
    model = problem.model
    if not isinstance(model, DeepLinear) or model.depth != 2 or len(set(model.widths)) > 1:
        raise HypothesisError("two square layers", 1, 0)
    problem.check(params, "examine")
    return Start(problem, params)


@dataclasses.dataclass(frozen=True)
class Pair:
    """One pair of numbers $a$, $b$ with target $w$ that is not balanced, and a balanced start beside it."""

    a: float
    b: float
    target: float
    balanced: Start


def _draw_pair(rng: np.random.Generator) -> Pair:
    a, b, w = rng.uniform(0.05, 0.3), -rng.uniform(0.8, 1.5), rng.uniform(0.7, 1.5)
    return Pair(float(a), float(b), float(w), _draw_determinant(rng))


def _draw_unbalanced_pair(rng: np.random.Generator) -> Pair:
    return dataclasses.replace(_draw_pair(rng), balanced=_draw_unbalanced_determinant(rng))


def _measure_pair(instances: Sequence[Pair]) -> list[Measured]:
    ours = _measure_determinant([i.balanced for i in instances])
    problems, starts = [], []
    for pair in instances:  # in the corner of two-by-two layers that rest
        problems.append(Problem(SQUARE, Completion(np.diag([pair.target, 1.0]), np.eye(2))))
        starts.append((xp.diag(xp.asarray([pair.b, 1.0])), xp.diag(xp.asarray([pair.a, 1.0]))))
    part = "det A and det B stay positive"
    found = []
    for measured, run in zip(ours, flows(problems, starts, [0.0, 5.0]), strict=True):
        a = float(run.layers[1][-1, 0, 0])
        found.append(Measured({part: measured.residuals[part]}, printed=-a, facts={"a(5)": a}))
    return found


# --- Two facts of linear algebra ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Matrices:
    """A square matrix, a symmetric one, and any one that fits."""

    square: np.ndarray
    symmetric: np.ndarray
    any: np.ndarray


def _draw_matrices(rng: np.random.Generator) -> Matrices:
    size = int(rng.integers(1, 6))
    root = rng.standard_normal((size, size))
    return Matrices(
        rng.standard_normal((size, size)), root @ root.T, rng.standard_normal((int(rng.integers(1, 6)), size))
    )


def _draw_indefinite(rng: np.random.Generator) -> Matrices:
    symmetric = np.diag([1.0, -rng.uniform(0.1, 1.0)])
    return Matrices(rng.standard_normal((2, 2)), symmetric, rng.standard_normal((3, 2)))


def _measure_matrices(instances: Sequence[Matrices]) -> list[Measured]:
    found = []
    for m in instances:
        product = float(np.prod(np.linalg.svd(m.square, compute_uv=False)))
        congruent = m.any @ m.symmetric @ m.any.T
        least = float(np.linalg.eigvalsh(congruent)[0]) / float(np.linalg.norm(congruent))
        found.append(
            Measured(
                {
                    "|det| = product of the singular values": abs(abs(float(np.linalg.det(m.square))) - product),
                    "X B Xᵀ is positive semi-definite": -least,
                }
            )
        )
    return found


BALANCED = Hypothesis("balanced layers", _imbalance, BALANCE_TOLERANCE)
POSITIVE = Hypothesis("det A, det B > 0 at the start", _determinants)

CHECKS: tuple[Check, ...] = (
    Check(
        id="completion/lemma-f1",
        source="Lemma F.1; depths above 2 are an extension",
        statement=(
            "The singular values of the product of L balanced layers, where they are distinct, move at the speed "
            "-L σ^(2-2/L) uᵀ G v, G the gradient of the loss by the product."
        ),
        hypotheses=(BALANCED, Hypothesis("distinct singular values", _gap), Hypothesis(MEASURABLE, _fast)),
        tolerances={"speed of the singular values": SPEED_TOLERANCE},
        version=2,
        measure=_measure_speed,
        draw=_draw_speed,
        violations=(Violation("layers that are not balanced", _draw_unbalanced_speed),),
        adopt=_adopt_speed,
    ),
    Check(
        id="completion/lemma-f4",
        source="Lemmas F.3 and F.4",
        statement=(
            "Two balanced square layers with positive determinants keep them positive, and σ(W) = σ(A)² = σ(B)², "
            "det W = det(A)² = det(B)² at all times."
        ),
        hypotheses=(BALANCED, POSITIVE, Hypothesis(MEASURABLE, _lost)),
        tolerances={
            "σ(W) = σ(A)² = σ(B)²": ALGEBRA_TOLERANCE,
            "det A and det B stay positive": 0.0,
            "det W = det(A)² = det(B)²": ALGEBRA_TOLERANCE,
        },
        measure=_measure_determinant,
        draw=_draw_determinant,
        violations=(Violation("layers that are not balanced", _draw_unbalanced_determinant),),
        adopt=_adopt_determinant,
    ),
    Check(
        id="completion/lemmas-f2-f7",
        source="Lemmas F.2 and F.7",
        statement="|det M| is the product of the singular values of M, and X B Xᵀ is positive semi-definite if B is.",
        hypotheses=(Hypothesis[Matrices]("B ⪰ 0", lambda m: -float(np.linalg.eigvalsh(m.symmetric)[0]), ROUNDING),),
        tolerances={"|det| = product of the singular values": ROUNDING, "X B Xᵀ is positive semi-definite": ROUNDING},
        measure=_measure_matrices,
        draw=_draw_matrices,
        violations=(Violation("an indefinite B", _draw_indefinite),),
    ),
    Check(
        id="completion/erratum-determinant",
        source="Lemma F.3",
        statement="det A(t) > 0 is preserved by the flow of two balanced layers with det A, det B > 0 at the start.",
        hypotheses=(
            Hypothesis[Pair]("balanced layers", lambda p: _imbalance(p.balanced), BALANCE_TOLERANCE),
            Hypothesis[Pair]("det A, det B > 0 at the start", lambda p: _determinants(p.balanced)),
        ),
        tolerances={"det A and det B stay positive": 0.0},
        measure=_measure_pair,
        draw=_draw_pair,
        violations=(Violation("layers that are not balanced", _draw_unbalanced_pair),),
        printed="det A(t) > 0 is preserved by the flow, whatever the layers.",
    ),
)
