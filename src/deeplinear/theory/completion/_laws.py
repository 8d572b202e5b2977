"""What holds for every pattern of observed entries, and what checks of other statements need of it."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from deeplinear.core import HypothesisError, Params, xp
from deeplinear.exact import BlockMatrix
from deeplinear.models import Completion, DeepLinear, EntryCompletion, Problem, block_mask, observed_entries
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import MEASURABLE, Run, decades, dense, flows, largest

NONE = 0.5
"""Tolerance of a count that must be zero, beside numbers that need not be."""
REACHED = "the flow reached its end"
"""Part of the claims on flows: without it nothing else is measured."""

Layers = tuple[np.ndarray, ...]


def states(run: Run, count: int) -> tuple[np.ndarray, list[Layers]]:
    """Times and layers at a fixed number of records, first and last among them (repeated where there are fewer)."""
    chosen = np.linspace(0, len(run.times) - 1, count).round().astype(int)
    return run.times[chosen], [tuple(layer[k] for layer in run.layers) for k in chosen]


def unreached(tolerances: Mapping[str, float]) -> Measured:
    """What is measured on a flow that did not reach its end: that, and nothing else."""
    return Measured({name: 1.0 if name == REACHED else np.nan for name in tolerances})


def multiply(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Product of layers, the last one leftmost."""
    result = layers[0]
    for layer in layers[1:]:
        result = layer @ result
    return result


# ---- Gradients of entries, from their definition ---------------------------------------------------------------------


def entry_gradients(layers: Sequence[np.ndarray], rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Gradients of chosen entries of the product as rows of a matrix: in each layer, what is left of it times what is
    right of it."""
    parts = []
    for position in range(len(layers)):
        left = multiply([*layers[position + 1 :], np.eye(layers[-1].shape[0])])
        right = multiply([np.eye(layers[0].shape[1]), *layers[:position]])
        parts.append(np.einsum("ea,be->eab", left[rows], right[:, columns]).reshape(len(rows), -1))
    return np.concatenate(parts, axis=1)


# ---- Problems with a start -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Start:
    """A completion problem and layers. A violation may move in steps of a given length instead of flowing."""

    problem: Problem
    params: Params
    step: float | None = None

    @property
    def layers(self) -> Layers:
        """The layers as NumPy arrays."""
        return tuple(np.asarray(layer) for layer in self.params)


def adopt_start(problem: Problem, params: Params) -> Start:
    """Any deep linear network with observed entries."""
    fits = isinstance(problem.model, DeepLinear) and isinstance(problem.loss, Completion | EntryCompletion)
    if not fits:
        raise HypothesisError("a deep linear network of which single entries are observed", 1.0, 0.0)
    if float(problem.l2) > 0:
        raise HypothesisError("no penalty on the weights", float(problem.l2), 0.0)
    if len(params) < 2:
        raise HypothesisError("depth L ≥ 2", 2.0 - len(params), 0.0)
    return Start(dense(problem), tuple(xp.asarray(layer, dtype=float) for layer in params))


def random_layers(rng: np.random.Generator, widths: Sequence[int], scale: float) -> Params:
    """Independent Gaussian layers."""
    return tuple(xp.asarray(scale * rng.standard_normal((out, inp))) for inp, out in itertools.pairwise(widths))


def random_start(rng: np.random.Generator, depth: int, width: int, scale: float) -> Start:
    """Gaussian layers of one width and a random pattern of at least two entries of a target of rank one."""
    mask = rng.random((width, width)) < rng.uniform(0.2, 0.9)
    mask.flat[rng.choice(mask.size, 2, replace=False)] = True
    target = np.outer(rng.standard_normal(width), rng.standard_normal(width))
    widths = (width,) * (depth + 1)
    return Start(Problem(DeepLinear(widths), Completion(target, mask)), random_layers(rng, widths, scale))


# ---- Conservation ----------------------------------------------------------------------------------------------------

TIMES = np.linspace(0.0, 5.0, 26)
CONSERVATION = {
    "change of W_{l+1}ᵀW_{l+1} − W_l W_lᵀ, relative to the layers": 1e-11,  # integrator: 1e-12 a step, a hundred steps
    "rise of the loss, relative to the start": 1e-12,  # rounding
    "speed of the residuals against −K r": 1e-7,  # central differences with a step of 1e-5
    "speed of the loss against −Σ‖∂ℓ/∂W_l‖²": 1e-7,
}


def _conserved(layers: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [above.T @ above - below @ below.T for below, above in itertools.pairwise(layers)]


def _descend(start: Start, step: float) -> Run:
    """Fifty steps of gradient descent."""
    path = [start.params]
    for _ in range(50):
        gradient = start.problem.gradient(path[-1])
        path.append(tuple(w - step * g for w, g in zip(path[-1], gradient, strict=True)))
    layers = tuple(np.stack([np.asarray(state[k]) for state in path]) for k in range(len(start.params)))
    losses = np.array([float(start.problem.value(state)) for state in path])
    return Run(step * np.arange(len(path)), losses, layers)


def _measure_conservation(instances: Sequence[Start]) -> list[Measured]:
    flowing = [s for s in instances if s.step is None]
    runs = iter(flows([s.problem for s in flowing], [s.params for s in flowing], TIMES))
    return [
        _conservation(start, next(runs) if start.step is None else _descend(start, start.step)) for start in instances
    ]


def _conservation(start: Start, run: Run) -> Measured:
    rows, columns, values = observed_entries(start.problem.loss)

    def residuals(layers: Sequence[np.ndarray]) -> np.ndarray:
        return multiply(layers)[rows, columns] - values

    reference = _conserved(start.layers)
    _, path = states(run, len(run.times))
    size = max(float(np.sum(layer**2)) for layers in path for layer in layers)
    change = max(
        float(np.linalg.norm(now - then))
        for layers in path
        for now, then in zip(_conserved(layers), reference, strict=True)
    )
    losses = np.array([0.5 * np.sum(residuals(layers) ** 2) for layers in path])
    gradient = [np.asarray(g) for g in start.problem.gradient(start.params)]
    h = 1e-5 * largest(start.layers) / largest(gradient)
    ahead, behind = ([w - sign * h * g for w, g in zip(start.layers, gradient, strict=True)] for sign in (1.0, -1.0))
    # Differences of the product, not of the residuals: a small product is lost beside its target.
    speed = (multiply(ahead) - multiply(behind))[rows, columns] / (2 * h)
    jacobian = entry_gradients(start.layers, rows, columns)
    predicted = -jacobian @ (jacobian.T @ residuals(start.layers))
    fall = float(speed @ (residuals(ahead) + residuals(behind))) / 2
    squares = sum(float(np.sum(g**2)) for g in gradient)
    numbers = (
        change / size,
        float(np.max(np.diff(losses), initial=0.0)) / losses[0],
        float(np.linalg.norm(speed - predicted)) / float(np.linalg.norm(predicted)),
        abs(fall + squares) / squares,
    )
    return Measured(dict(zip(CONSERVATION, numbers, strict=True)), facts={"loss at the end": float(losses[-1])})


def _moves(start: Start) -> float:
    """One, if the start does not move at all."""
    return float(all(not np.any(np.asarray(g)) for g in start.problem.gradient(start.params)))


def _lost(start: Start) -> float:
    """Decades outside of what is measured: sizes of layers and targets, the share of the residual, the gradient."""
    rows, columns, values = observed_entries(start.problem.loss)
    product = multiply(start.layers)[rows, columns]
    size, scale = largest(start.layers), max(largest([values, product]), 1e-300)
    share = largest([product - values]) / scale
    gradient = largest(start.problem.gradient(start.params))
    weakest = min(largest([layer]) for layer in start.layers)
    return decades(
        (size, 1e-10, 10.0), (scale, 1e-10, 100.0), (share, 1e-4, 10.0), (gradient, 1e-60, 1e4), (weakest, 1e-10, 10.0)
    )


BALANCEDNESS = Check(
    id="completion/balancedness",
    source="conservation law before (52), Appendix E",
    statement=(
        "Along the gradient flow of any completion problem every W_{l+1}ᵀW_{l+1} − W_l W_lᵀ is constant, the loss "
        "falls at the rate Σ‖∂ℓ/∂W_l‖², and the residuals of the observed entries obey ṙ = −K r."
    ),
    hypotheses=(
        Hypothesis("time is continuous: no steps of gradient descent", lambda s: 0.0 if s.step is None else s.step),
        Hypothesis("the start is not at rest", _moves),
        Hypothesis(MEASURABLE, _lost),
    ),
    tolerances=CONSERVATION,
    measure=_measure_conservation,
    draw=lambda rng: random_start(rng, int(rng.choice([2, 3, 4])), 4, rng.uniform(0.2, 0.6)),
    violations=(
        Violation(
            "steps of gradient descent",
            lambda rng: dataclasses.replace(random_start(rng, 3, 4, 0.5), step=0.02),
        ),
    ),
    adopt=adopt_start,
    version=2,
)


# ---- Sum or mean -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Layer:
    """One layer shared by all depths of a network that sees diagonal blocks of equal values."""

    depth: int
    blocks: int
    size: int
    value: float
    layer: np.ndarray


def _normalisation(case: Layer) -> Measured:
    """Gradient of the layers by central differences of the loss as it is written, no derivative by hand."""
    n, s, depth = case.blocks, case.size, case.depth
    mask = block_mask(n, s)
    width = n * s

    def half_sum(first: np.ndarray) -> float:
        return 0.5 * float(np.sum((multiply([first] + [case.layer] * (depth - 1)) - case.value)[mask] ** 2))

    ones = np.ones(width) / np.sqrt(width)
    between = np.repeat(np.array([1.0, -1.0] + [0.0] * (n - 2)), s) / np.sqrt(2 * s)
    h = 1e-4
    speeds, levels = [], []
    for vector in (ones, between):
        direction = np.outer(vector, vector)
        speeds.append(-(half_sum(case.layer + h * direction) - half_sum(case.layer - h * direction)) / (2 * h))
        levels.append(float(vector @ case.layer @ vector))
    gamma = (levels[0] ** depth + (n - 1) * levels[1] ** depth) / n - s * case.value
    wanted = np.array([-gamma * level ** (depth - 1) for level in levels])
    size = float(np.max(np.abs(wanted)))
    mean = 2 / mask.sum() * np.array(speeds)
    return Measured(
        {"speed of λ₁ and λ₂ against −γ λ^{L−1}": float(np.max(np.abs(speeds - wanted))) / size},
        printed=float(np.max(np.abs(mean - wanted))) / size,
        facts={"speed with a mean over speed with the sum": float(2 / mask.sum())},
    )


def _draw_layer(rng: np.random.Generator, disturbed: bool = False) -> Layer:
    n, s = ((4, 1), (2, 2), (3, 2))[rng.integers(3)]
    first, second, third = rng.uniform(0.3, 0.9, 3)
    matrix = np.asarray(BlockMatrix.from_eigenvalues(first, second, third, blocks=n, size=s).dense())
    if disturbed:
        noise = rng.standard_normal(matrix.shape)
        matrix = matrix + 0.3 * (noise + noise.T)
    return Layer(int(rng.choice([2, 3, 4])), n, s, rng.uniform(1.0, 2.0), matrix)


def _outside(case: Layer) -> float:
    """Relative distance of a layer from the matrices that see only equal, same block, different block."""
    member = np.arange(case.blocks * case.size)
    same = member[:, None] == member
    inside = (member[:, None] // case.size == member // case.size) & ~same
    rest = case.layer.copy()
    for part in (same, inside, ~(same | inside)):
        if part.any():
            rest[part] -= rest[part].mean()
    return float(np.linalg.norm(rest) / np.linalg.norm(case.layer))


NORMALISATION = Check(
    id="completion/erratum-loss-normalisation",
    source="Section 2, equation (2)",
    statement=(
        "The eigenvalue equations λ̇ = −γ λ^{L−1} are those of the loss ½ Σ (w_ij − w*_ij)², a sum over the observed "
        "entries; a mean over N of them would run 2/N times as fast."
    ),
    hypotheses=(Hypothesis("the layer is M(a, b, c)", _outside, 1e-12),),
    tolerances={"speed of λ₁ and λ₂ against −γ λ^{L−1}": 1e-6},  # central differences with a step of 1e-4
    measure=lambda cases: [_normalisation(case) for case in cases],
    draw=_draw_layer,
    violations=(Violation("a layer outside the family", lambda rng: _draw_layer(rng, disturbed=True)),),
    printed="The loss is the mean squared error over the observed entries.",
    printed_tolerance=1e-6,
)

CHECKS: tuple[Check, ...] = (BALANCEDNESS, NORMALISATION)
