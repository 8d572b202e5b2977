"""Layers above a matrix: gradients and invariants, random layers, those of least norm, and flows that lead there."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
import scipy.integrate

from deeplinear.core import Params, xp
from deeplinear.geometry import balance, balancing_flow, balancing_velocity, gaussian_imbalance, minimal_fibre_norm
from deeplinear.models import Completion, DeepLinear, Problem, SquaredDistance
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._metric import deviation, imbalance, times
from deeplinear.theory.network._networks import each

Layers = tuple[np.ndarray, ...]

LAST = 2.0
TIMES = (0.0, 0.5, 1.0, LAST)
"""Times at which invariants are looked at."""


def draw_layers(rng: np.random.Generator, size: int, depth: int) -> Layers:
    """Square Gaussian layers."""
    return tuple(rng.standard_normal((size, size)) for _ in range(depth))


# --- Gradients and velocity -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Pulled:
    """Layers with a problem, and the gradient of the energy in the product that is told."""

    problem: Problem
    layers: Layers
    told: np.ndarray

    @property
    def params(self) -> Params:
        return _arrays(self.layers)

    @property
    def pull(self) -> np.ndarray:
        """That gradient as it is."""
        return np.asarray(self.problem.loss.gradient(xp.asarray(times(self.layers))))


def adopt_pulled(problem: Problem, params: Params) -> Pulled:
    layers = tuple(np.asarray(layer) for layer in params)
    found = Pulled(problem, layers, np.zeros(problem.model.product_shape))
    return dataclasses.replace(found, told=found.pull)


def _draw_pulled(rng: np.random.Generator) -> Pulled:
    """Four layers of width 3, and some entries of a target."""
    target, mask = rng.standard_normal((3, 3)), (rng.random((3, 3)) < 0.6).astype(float)
    mask[0, 0] = 1.0
    problem = Problem(DeepLinear((3,) * 5), Completion(target, mask))
    return adopt_pulled(problem, _arrays(draw_layers(rng, 3, 4)))


def _another_pull(rng: np.random.Generator) -> Pulled:
    drawn = _draw_pulled(rng)
    return dataclasses.replace(drawn, told=drawn.told + 0.05 * rng.standard_normal(drawn.told.shape))


PULL = Hypothesis[Pulled]("the gradient in the product is as told", lambda p: deviation(p.told, p.pull), 1e-12)
PLAIN = Hypothesis[Pulled]("a loss of the product only", lambda p: abs(float(p.problem.l2)))

BY_FORMULA = "gradients against W_{L:l+1}ᵀ dE W_{l−1:1}ᵀ, relative"
BY_DIFFERENCES = "slope of the energy along a direction against differences, relative"


def _sides(layers: Layers, position: int) -> tuple[np.ndarray, np.ndarray]:
    """Product of the layers above one, and of those below."""
    below = times((np.eye(layers[0].shape[1]), *layers[:position]))
    above = np.eye(layers[-1].shape[0])
    for layer in reversed(layers[position + 1 :]):
        above = above @ layer
    return above, below


def _directions(layers: Layers) -> tuple[list[np.ndarray], float]:
    """A direction in the layers, and a step along it that is small for each."""
    rng = np.random.default_rng(0)
    moves = [rng.standard_normal(w.shape) for w in layers]
    return moves, 1e-3 * min(float(np.linalg.norm(w) / np.linalg.norm(v)) for w, v in zip(layers, moves, strict=True))


def _energy_over_change(instance: Pulled) -> float:
    moves, h = _directions(instance.layers)
    gradients = [np.asarray(g) for g in instance.problem.gradient(instance.params)]
    change = h * _norm(gradients) ** 0.5 * _norm(moves) ** 0.5
    return float(instance.problem.value(instance.params)) / change if change > 0 else math.inf


def _measure_gradient(instance: Pulled) -> Measured:
    found = [np.asarray(g) for g in instance.problem.gradient(instance.params)]
    sides = [_sides(instance.layers, k) for k in range(len(instance.layers))]
    formula = max(
        deviation(g, above.T @ instance.told @ below.T) for g, (above, below) in zip(found, sides, strict=True)
    )
    moves, h = _directions(instance.layers)

    def energy(step: float) -> float:
        layers = tuple(w + step * v for w, v in zip(instance.layers, moves, strict=True))
        return float(instance.problem.loss.value(xp.asarray(times(layers))))

    slope = (8 * (energy(h) - energy(-h)) - (energy(2 * h) - energy(-2 * h))) / (12 * h)
    size = math.sqrt(sum(float(np.sum(g**2)) for g in found)) * math.sqrt(sum(float(np.sum(v**2)) for v in moves))
    wanted = sum(float(np.sum(g * v)) for g, v in zip(found, moves, strict=True))
    return Measured({BY_FORMULA: formula, BY_DIFFERENCES: abs(slope - wanted) / size})


SHOWN = Hypothesis[Pulled](
    "a gradient that differences of the energy show: energy over gradient and step", _energy_over_change, 1e7
)

GRADIENTS = Check(
    id="geometry/equation-1.6",
    source="Equation 1.6",
    statement="The gradient in layer l of an energy of the product is W_{L:l+1}ᵀ dE(X) W_{l−1:1}ᵀ.",
    hypotheses=(PULL, PLAIN, SHOWN),
    tolerances={BY_FORMULA: 1e-12, BY_DIFFERENCES: 1e-7},
    version=2,
    measure=each(_measure_gradient),
    draw=_draw_pulled,
    violations=(Violation("the gradient of another energy", _another_pull),),
    adopt=adopt_pulled,
)

VELOCITY = "velocity of the product against the sum over the layers, relative"
KERNEL = "Gram factors of the model against the same, relative"
MOVED = "difference quotient of the product along the flow against the same, relative"


def _measure_velocity(instance: Pulled) -> Measured:
    model, params = instance.problem.model, instance.params
    assert isinstance(model, DeepLinear)
    sides = [_sides(instance.layers, k) for k in range(len(instance.layers))]
    wanted = -sum(above @ above.T @ instance.told @ below.T @ below for above, below in sides)
    _, memo = model.forward(params)
    gradients = instance.problem.gradient(params)
    found, _ = model.pushforward(params, memo, tuple(-g for g in gradients))
    factors = -sum(np.asarray(one) @ instance.pull @ np.asarray(other) for one, other in model.kernel_factors(params))
    size = max(1.0, *(float(np.max(np.abs(g))) for g in gradients))
    h = 1e-4 / size
    ends = [
        times(tuple(w - sign * h * np.asarray(g) for w, g in zip(instance.layers, gradients, strict=True)))
        for sign in (1, -1)
    ]
    moved = (ends[0] - ends[1]) / (2 * h)
    return Measured(
        {VELOCITY: deviation(found, wanted), KERNEL: deviation(factors, wanted), MOVED: deviation(moved, wanted)}
    )


DOWNSTAIRS = Check(
    id="geometry/equation-2.2",
    source="Theorem 2.1.1, part 2",
    statement="The product of any layers moves by −Σ_l (W_{L:l+1}W_{L:l+1}ᵀ) dE(X) (W_{l−1:1}ᵀW_{l−1:1}).",
    hypotheses=(PULL, PLAIN),
    tolerances={VELOCITY: 1e-12, KERNEL: 1e-12, MOVED: 4e-6},
    measure=each(_measure_velocity),
    draw=_draw_pulled,
    violations=(Violation("the gradient of another energy", _another_pull),),
    adopt=adopt_pulled,
)

# --- Invariants -------------------------------------------------------------------------------------------------------

CHANGE = "change of G along the flow, over the largest squared norm of a layer"


def _laws(layers: Sequence[np.ndarray]) -> list[np.ndarray]:
    """W_lW_lᵀ − W_{l+1}ᵀW_{l+1}."""
    return [a @ a.T - b.T @ b for a, b in itertools.pairwise(layers)]


def _arrays(layers: Layers) -> Params:
    return tuple(xp.asarray(layer) for layer in layers)


def _measure_invariants(instance: Pulled) -> Measured:
    """The flow by SciPy, of the gradients of the library."""
    shapes = [layer.shape for layer in instance.layers]
    cuts = np.cumsum([layer.size for layer in instance.layers])[:-1]

    def unpacked(flat: np.ndarray) -> Layers:
        return tuple(part.reshape(shape) for part, shape in zip(np.split(flat, cuts), shapes, strict=True))

    def field(t: float, flat: np.ndarray) -> np.ndarray:
        return -np.concatenate([np.asarray(g).ravel() for g in instance.problem.gradient(_arrays(unpacked(flat)))])

    start = np.concatenate([layer.ravel() for layer in instance.layers])
    run = scipy.integrate.solve_ivp(field, (0.0, LAST), start, "DOP853", t_eval=TIMES, rtol=1e-11, atol=1e-12)
    before, size = _laws(instance.layers), max(float(np.sum(w**2)) for w in instance.layers)
    worst = max(
        float(np.linalg.norm(a - b)) for flat in run.y.T for a, b in zip(_laws(unpacked(flat)), before, strict=True)
    )
    moved = float(np.linalg.norm(run.y[:, -1] - start))
    return Measured({CHANGE: worst / size}, facts={"distance moved": moved})


def _draw_flow(rng: np.random.Generator, decay: float = 0.0) -> Pulled:
    """Three layers of width 2 that are not balanced, and a target."""
    problem = Problem(DeepLinear((2, 2, 2, 2)), SquaredDistance(rng.standard_normal((2, 2))), decay)
    return adopt_pulled(problem, _arrays(tuple(0.7 * w for w in draw_layers(rng, 2, 3))))


INVARIANTS = Check(
    id="geometry/theorem-2.1.1",
    source="Theorem 2.1.1, part 1",
    statement="G_l = W_lW_lᵀ − W_{l+1}ᵀW_{l+1} is constant along gradient flow of any energy of the product.",
    hypotheses=(PLAIN,),
    tolerances={CHANGE: 1e-9},
    measure=each(_measure_invariants),
    draw=_draw_flow,
    violations=(Violation("weight decay", lambda rng: _draw_flow(rng, 0.05)),),
    adopt=adopt_pulled,
)

# --- Random layers ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sampled:
    """Pairs of Gaussian layers, samples first, and what is told of them."""

    first: np.ndarray
    second: np.ndarray
    std: float


SAMPLES = 4000
STATISTICS = {
    "mean of G, in standard errors of its entries": 6.0,
    "mean of ‖G‖² against 2σ⁴d²(d + 1), in standard errors": 6.0,
    "mean of ‖WWᵀ‖² against σ⁴d²(2d + 1), in standard errors": 6.0,
}


def draw_sampled(rng: np.random.Generator, ratio: float = 1.0) -> Sampled:
    """The standard deviation of the second layers is `ratio` times that of the first."""
    size, std = int(rng.choice([2, 3, 5])), float(np.exp(rng.uniform(-3, 0)))
    first, second = std * rng.standard_normal((2, SAMPLES, size, size))
    return Sampled(first, ratio * second, std)


def moments(instance: Sampled) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """G of every pair, its squared norm and that of WWᵀ."""
    grams = instance.first @ instance.first.transpose(0, 2, 1)
    gaps = grams - instance.second.transpose(0, 2, 1) @ instance.second
    return gaps, np.sum(gaps**2, axis=(1, 2)), np.sum(grams**2, axis=(1, 2))


def errors(instance: Sampled) -> tuple[float, float, float]:
    """Distances of the three means from what is told, in standard errors."""
    found = gaussian_imbalance(instance.first.shape[1], instance.std)
    gaps, squares, layers = moments(instance)
    root = math.sqrt(len(gaps))
    return (
        float(np.max(np.abs(np.mean(gaps, axis=0)) / (np.std(gaps, axis=0) / root))),
        abs(float(np.mean(squares)) - float(found.square)) / (float(np.std(squares)) / root),
        abs(float(np.mean(layers)) - float(found.layer_square)) / (float(np.std(layers)) / root),
    )


def _measure_sampled(instance: Sampled) -> Measured:
    return Measured(dict(zip(STATISTICS, errors(instance), strict=True)))


EQUAL = Hypothesis[Sampled](
    "layers of one variance, in logarithms",
    lambda s: abs(math.log(float(np.mean(s.second**2)) / s.std**2)),
    0.1,
)

GAUSSIAN = Check(
    id="geometry/remark-2.1.3",
    source="Remark 2.1.3",
    statement=(
        "For independent Gaussian layers the mean of G_l is zero; its mean square is 2σ⁴d²(d + 1), that of W_lW_lᵀ "
        "being σ⁴d²(2d + 1)."
    ),
    hypotheses=(EQUAL,),
    tolerances=STATISTICS,
    measure=each(_measure_sampled),
    draw=draw_sampled,
    violations=(Violation("layers of different variances", lambda rng: draw_sampled(rng, 1.3)),),
)

# --- Least norm -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Above:
    """A matrix, and layers that are told to have it as their product."""

    point: np.ndarray
    layers: Layers


LEAST = {
    "norm of balanced layers against LΣσ^{2/L}, relative": 1e-12,
    "imbalance of the layers of least norm, relative": 1e-12,
    "how far the layers are below the least norm, relative": 1e-12,
}


def _norm(layers: Sequence[np.ndarray]) -> float:
    return sum(float(np.sum(np.asarray(layer) ** 2)) for layer in layers)


def _measure_least(instance: Above) -> Measured:
    depth = len(instance.layers)
    least = float(minimal_fibre_norm(instance.point, depth))
    balanced = tuple(np.asarray(layer) for layer in balance(instance.layers))
    left, values, right_t = np.linalg.svd(instance.point)
    size = len(values)
    plain = [np.diag(values ** (1 / depth))] * depth
    plain = [plain[0] @ right_t, *plain[1:-1], left @ plain[-1]] if depth > 1 else [instance.point]
    assert deviation(times(tuple(plain)), instance.point) < 1e-10 and size > 0
    numbers = (
        abs(_norm(plain) - least) / least,
        imbalance(balanced),
        (least - _norm(instance.layers)) / least,
    )
    return Measured(dict(zip(LEAST, numbers, strict=True)), facts={"norm": _norm(instance.layers), "least": least})


def _draw_above(rng: np.random.Generator) -> Above:
    layers = draw_layers(rng, 3, int(rng.choice([2, 3, 4])))
    return Above(times(layers), layers)


def _shrunk(rng: np.random.Generator) -> Above:
    """Balanced layers, made smaller."""
    drawn = _draw_above(rng)
    return Above(drawn.point, tuple(0.9 * np.asarray(layer) for layer in balance(drawn.layers)))


SHORTEST = Check(
    id="geometry/remark-2.1.4",
    source="Remark 2.1.4",
    statement="Of all layers with product X the balanced ones have the least norm, Σ‖W_l‖² = LΣσ_i^{2/L}.",
    hypotheses=(
        Hypothesis("square layers", lambda a: float(len({n for w in a.layers for n in w.shape}) - 1)),
        Hypothesis("the layers have this product", lambda a: deviation(times(a.layers), a.point), 1e-12),
    ),
    tolerances=LEAST,
    measure=each(_measure_least),
    draw=_draw_above,
    violations=(Violation("layers with a smaller product", _shrunk),),
    adopt=lambda problem, params: Above(
        times(tuple(np.asarray(w) for w in params)), tuple(np.asarray(w) for w in params)
    ),
)

# --- Flows to balance -------------------------------------------------------------------------------------------------

SIZE, DEPTH, RECORDS = 3, 4, 16
SMALLEST = 0.05
END = 30 / (4 * SMALLEST ** (2 / DEPTH) * (1 - math.cos(math.pi / DEPTH)))
"""Time after which the slowest imbalance is e⁻³⁰ of what it was, for products with no smaller singular value."""


def _draw_balancing(rng: np.random.Generator) -> Layers:
    while True:
        layers = draw_layers(rng, SIZE, DEPTH)
        if np.linalg.svd(times(layers), compute_uv=False)[-1] > SMALLEST:
            return layers


def _group_velocity(layers: Layers) -> list[np.ndarray]:
    laws = [np.zeros((SIZE, SIZE)), *_laws(layers), np.zeros((SIZE, SIZE))]
    return [-laws[k + 1] @ w + w @ laws[k] for k, w in enumerate(layers)]


GROUP = {
    "velocity against −G_lW_l + W_lG_{l−1}, relative": 1e-12,
    "rate of the norm against −2Σ‖G‖², relative": 1e-11,
    "drift of the product, relative": 1e-8,
    "imbalance at the end": 1e-8,
    "norm at the end against the least, relative": 1e-8,
}


def _measure_group(layers: Layers) -> Measured:
    plain = _group_velocity(layers)
    rate = 2 * sum(float(np.sum(w * v)) for w, v in zip(layers, plain, strict=True))
    squares = sum(float(np.sum(law**2)) for law in _laws(layers))
    flow = balancing_flow(layers, np.linspace(0.0, END, RECORDS))
    found = balancing_velocity(layers)
    final = tuple(np.asarray(w) for w in flow.final)
    least = DEPTH * float(np.sum(np.linalg.svd(times(layers), compute_uv=False) ** (2 / DEPTH)))
    numbers = (
        max(deviation(a, b) for a, b in zip(found, plain, strict=True)),
        abs(rate + 2 * squares) / (2 * squares),
        deviation(times(final), times(layers)),
        max(float(np.linalg.norm(law)) for law in _laws(final)),
        abs(_norm(final) - least) / least,
    )
    return Measured(dict(zip(GROUP, numbers, strict=True)), facts={"steps": float(flow.steps)})


def _singular(rng: np.random.Generator) -> Layers:
    """A product of lower rank, some of whose layers are not: the imbalance decays like 1/t."""
    layers = _draw_balancing(rng)
    left, values, right_t = np.linalg.svd(layers[0])
    return ((left * [*values[:-1], 0.0]) @ right_t, *layers[1:])


FULL = Hypothesis[Layers](
    "four layers of width 3, the singular values of whose product are at least 0.05",
    lambda w: (
        1.0
        if [layer.shape for layer in w] != [(SIZE, SIZE)] * DEPTH
        else SMALLEST - float(np.linalg.svd(times(w), compute_uv=False)[-1])
    ),
)


OUT_OF_BALANCE = Hypothesis[Layers](
    "layers out of balance, every G_l by a thousandth of the largest layer squared",
    lambda w: (
        1e-3 - min((float(np.linalg.norm(x)) for x in _laws(w)), default=0.0) / max(float(np.sum(x**2)) for x in w)
    ),
)
"""Rates of an imbalance that is rounding are rounding."""


def _adopt_layers(problem: Problem, params: Params) -> Layers:
    return tuple(np.asarray(layer) for layer in params)


TO_BALANCE = Check(
    id="geometry/balancing-flow",
    source="Remark 2.1.4, first question",
    statement=(
        "Along Ẇ_l = −G_lW_l + W_lG_{l−1} the product is constant, the norm falls at the rate 2Σ‖G_l‖², and the limit "
        "is balanced where the product has full rank."
    ),
    hypotheses=(FULL, OUT_OF_BALANCE),
    tolerances=GROUP,
    measure=each(_measure_group),
    draw=_draw_balancing,
    violations=(Violation("a product that is not of full rank", _singular),),
    adopt=_adopt_layers,
)

AMBIENT = {
    "velocity against the projection by least squares, relative": 1e-9,
    "G(t) against e^{−2t}G(0), over G(0)": 1e-9,
    "drift of the product, relative": 1e-9,
}


def _projection(layers: Layers) -> list[np.ndarray]:
    """Minus the part of the layers along a_lW_l − W_la_{l−1}."""
    size, depth = len(layers[0]), len(layers)
    columns = []
    for k, unit in itertools.product(range(depth - 1), np.eye(size**2)):
        move = [np.zeros((size, size)) for _ in layers]
        move[k], move[k + 1] = unit.reshape(size, size) @ layers[k], -layers[k + 1] @ unit.reshape(size, size)
        columns.append(np.concatenate([part.ravel() for part in move]))
    basis, flat = np.array(columns).T, np.concatenate([w.ravel() for w in layers])
    part = basis @ np.linalg.lstsq(basis, flat, rcond=None)[0]
    return [-piece.reshape(size, size) for piece in np.split(part, depth)]


@dataclasses.dataclass(frozen=True)
class Steepest:
    """Layers, and whether they go down in the metric of the layers or in that of the group."""

    layers: Layers
    ambient: bool = True


def _measure_ambient(instance: Steepest) -> Measured:
    descent = "ambient" if instance.ambient else "group"
    layers, plain = instance.layers, _projection(instance.layers)
    found = balancing_velocity(layers, descent)
    ts = np.linspace(0.0, 1.0, RECORDS)
    flow = balancing_flow(layers, ts, descent=descent)
    worst = 0.0
    for now, t in enumerate(ts):
        decay = math.exp(-2 * t)
        pairs = zip(_laws([np.asarray(w[now]) for w in flow.layers]), _laws(layers), strict=True)
        worst = max([worst, *(decay * deviation(law, decay * first) for law, first in pairs)])
    final = tuple(np.asarray(w) for w in flow.final)
    scale = max(float(np.max(np.abs(v))) for v in plain)
    numbers = (
        max(float(np.max(np.abs(np.asarray(a) - b))) for a, b in zip(found, plain, strict=True)) / scale,
        worst,
        deviation(times(final), times(layers)),
    )
    return Measured(dict(zip(AMBIENT, numbers, strict=True)))


EXPONENTIAL = Check(
    id="geometry/ambient-balancing",
    source="Remark 2.1.4, first question",
    statement=(
        "Along the gradient flow of ½Σ‖W_l‖² in the layers with a given product of full rank, every G_l decays as "
        "e^{−2t}G_l(0)."
    ),
    hypotheses=(
        Hypothesis(FULL.name, lambda s: FULL.residual(s.layers)),
        Hypothesis(OUT_OF_BALANCE.name, lambda s: OUT_OF_BALANCE.residual(s.layers)),
        Hypothesis("the metric is that of the layers", lambda s: 0.0 if s.ambient else 1.0),
    ),
    tolerances=AMBIENT,
    measure=each(_measure_ambient),
    draw=lambda rng: Steepest(_draw_balancing(rng)),
    violations=(Violation("the metric of the group", lambda rng: Steepest(_draw_balancing(rng), False)),),
    adopt=lambda problem, params: Steepest(_adopt_layers(problem, params)),
)

CHECKS = (GRADIENTS, INVARIANTS, DOWNSTAIRS, GAUSSIAN, SHORTEST, TO_BALANCE, EXPONENTIAL)
