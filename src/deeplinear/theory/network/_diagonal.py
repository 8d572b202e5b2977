"""Diagonal networks: modes that do not see each other, what each of them does and where it ends."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from deeplinear.core import HypothesisError, Params
from deeplinear.exact import diagonal_bracket, diagonal_field, diagonal_hessian, diagonal_laws_rank, diagonal_limit
from deeplinear.models import Problem
from deeplinear.theory._check import Check, Measured, Violation
from deeplinear.theory.network._networks import ROUNDING, adopt_network, draw_sigma


@dataclasses.dataclass(frozen=True)
class Diagonal:
    """Diagonal layers, and the diagonal of the target.

    Attributes:
        weights: ξ, one row for each layer, one column for each mode.
        sigma: σ, one number for each mode.
        other: Another σ, of statements about two.
        told: The σ that a formula is told, if it is another.
        tolerance: What a formula is told to take for equal or zero.
    """

    weights: np.ndarray
    sigma: np.ndarray
    other: np.ndarray
    told: np.ndarray | None = None
    tolerance: float = 0.0

    @property
    def known(self) -> np.ndarray:
        return self.sigma if self.told is None else self.told


DEPTH, MODES = 4, 3


def draw_diagonal(rng: np.random.Generator, depth: int = DEPTH, modes: int = MODES) -> Diagonal:
    """Weights of either sign, away from zero."""
    weights = rng.choice([-1, 1], (depth, modes)) * rng.uniform(0.3, 1.3, (depth, modes))
    return Diagonal(weights, draw_sigma(rng, modes), draw_sigma(rng, modes) + 0.2)


def sized_diagonal(rng: np.random.Generator, widths: tuple[int, ...]) -> Diagonal:
    if len(widths) < 3:
        raise ValueError(f"the statement is about at least two layers, but widths is {widths}.")
    return draw_diagonal(rng, len(widths) - 1, min(widths))


def adopt_diagonal(problem: Problem, params: Params) -> Diagonal:
    """The modes of a network that is diagonal in the coordinates of its task."""
    network = adopt_network(problem, params)
    count = min(network.widths)
    beside = 0.0
    for layer in network.layers:
        beside = max(beside, float(np.max(np.abs(np.where(np.eye(*layer.shape, dtype=bool), 0.0, layer)))))
    if beside > ROUNDING:
        raise HypothesisError("diagonal layers", beside, ROUNDING)
    if network.depth < 2:
        raise HypothesisError("at least two layers", 2.0 - network.depth, 0.0)
    weights = np.stack([np.diag(layer)[:count] for layer in network.layers])
    return Diagonal(weights, network.sigma[:count], network.sigma[:count] * 0.7 + 0.1)


def told_other(rng: np.random.Generator, draw: Callable[[np.random.Generator], Diagonal] = draw_diagonal) -> Diagonal:
    instance = draw(rng)
    return dataclasses.replace(instance, told=instance.sigma + 0.1)


def others(weights: np.ndarray) -> np.ndarray:
    """Products of all layers but one, layer by layer."""
    return np.stack([np.prod(np.delete(weights, i, axis=0), axis=0) for i in range(len(weights))])


def field(weights: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    return others(weights) * (sigma - np.prod(weights, axis=0))


def along(function: Callable[[np.ndarray], np.ndarray], place: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Derivative of a polynomial along a direction, to rounding, by a step into the complex plane."""
    step = 1e-30
    return np.imag(function(place + 1j * step * direction)) / step


def each_diagonal(measure: Callable[[Diagonal], Measured]) -> Callable[[Sequence[Diagonal]], list[Measured]]:
    return lambda instances: [measure(instance) for instance in instances]


def draw_critical(rng: np.random.Generator, depth: int = DEPTH, modes: int = MODES) -> Diagonal:
    """Modes in turn at their target, with two zero layers, and with three (where there are as many)."""
    instance = draw_diagonal(rng, depth, modes)
    weights = instance.weights.copy()
    for mode in range(modes):
        if mode % 3 == 0:
            weights[-1, mode] = instance.sigma[mode] / np.prod(weights[:-1, mode])
        else:
            zeros = rng.permutation(depth)[: min(depth, 1 + mode % 3)]
            weights[zeros, mode] = 0.0
    return dataclasses.replace(instance, weights=weights)


def _sized_critical(rng: np.random.Generator, widths: tuple[int, ...]) -> Diagonal:
    instance = sized_diagonal(rng, widths)
    return draw_critical(rng, *instance.weights.shape)


EQUILIBRIA = {
    "speed where ξ̂ = σ or two layers are zero": ROUNDING,
    "speed that is due elsewhere, less the speed there": 0.0,
    "speed against plain products": ROUNDING,
}
DUE = 1e-3


def _measure_equilibria(instance: Diagonal) -> Measured:
    speed = np.asarray(diagonal_field(instance.weights, instance.known))
    gap = np.max(np.abs(speed - field(instance.weights, instance.known)))
    moved = instance.weights.copy()  # every mode away from both: at most one zero, and another product
    moved[np.abs(moved) < 1e-9] = 0.5
    moved[0] = 0.0
    elsewhere = np.max(np.abs(diagonal_field(moved, instance.known)), axis=0)
    numbers = (float(np.max(np.abs(speed))), DUE - float(np.min(elsewhere)), float(gap))
    return Measured(dict(zip(EQUILIBRIA, numbers, strict=True)))


PROPOSITION_33 = Check(
    id="network/proposition-33",
    source="Proposition 33",
    statement="Diagonal layers are at rest exactly where each mode either has its target as product or has two or more "
    "zero layers.",
    hypotheses=(),
    tolerances=EQUILIBRIA,
    measure=each_diagonal(_measure_equilibria),
    draw=draw_critical,
    violations=(
        Violation("points that are none of both", draw_diagonal),
        Violation("another target", lambda rng: told_other(rng, draw_critical)),
    ),
    sized=_sized_critical,
)

LIMIT = {"limit less the end of the flow, largest weight": 1e-8}


def _end(weights: np.ndarray, sigma: float) -> np.ndarray:
    """One mode long after its start, by SciPy; sizes that are equal stay so to rounding."""

    from scipy.integrate import solve_ivp

    def speed(_: float, y: np.ndarray) -> list[float]:
        values = y.tolist()  # plain numbers are fastest for so few
        rest = sigma - math.prod(values)
        return [rest * math.prod(values[:i] + values[i + 1 :]) for i in range(len(values))]

    run = solve_ivp(speed, (0, 150.0), weights, method="LSODA", rtol=1e-11, atol=1e-13)
    return run.y[:, -1]


def _measure_limit(instance: Diagonal) -> Measured:
    predicted = np.asarray(diagonal_limit(instance.weights, instance.known, instance.tolerance).weights)
    worst = 0.0
    for mode in range(instance.weights.shape[1]):
        end = _end(instance.weights[:, mode], float(instance.sigma[mode]))
        worst = max(worst, float(np.max(np.abs(end - predicted[:, mode]))))
    return Measured(dict.fromkeys(LIMIT, worst))


def draw_start(rng: np.random.Generator) -> Diagonal:
    """Three layers: a mode of random signs, one with a tie and a negative product, one with two zeros."""
    instance = draw_diagonal(rng, 3, 3)
    weights = instance.weights.copy()
    low, high = rng.uniform(0.3, 0.8), rng.uniform(1.2, 2.0)
    weights[:, 1] = (low, high, -low) if rng.random() < 0.5 else (-high, low, low)
    weights[:2, 2] = 0.0
    return dataclasses.replace(instance, weights=weights)


def _untied(rng: np.random.Generator) -> Diagonal:
    instance = draw_start(rng)
    weights = instance.weights.copy()
    weights[:, 1] = (0.5, 1.5, -0.5005)
    return dataclasses.replace(instance, weights=weights, tolerance=1e-2)


DIAGONAL_LIMIT = Check(
    id="network/diagonal-limit",
    source="Section 5.2.1, with what is conserved",
    statement="A mode of diagonal layers ends at its target, with |ξ_i|² = x + k_i, Π(x + k_i) = σ², unless two or "
    "more layers share the smallest size and are zero, when it rests, or its product is negative, when they fall "
    "to zero.",
    hypotheses=(),
    tolerances=LIMIT,
    measure=each_diagonal(_measure_limit),
    draw=draw_start,
    violations=(
        Violation("sizes that only nearly agree, taken for equal", _untied),
        Violation("another target", lambda rng: told_other(rng, draw_start)),
    ),
)

RATE = {"derivative of the losses along the flow less -2 Σ ξ̄² F, relative": ROUNDING}


def _measure_rate(instance: Diagonal) -> Measured:
    speed = np.asarray(diagonal_field(instance.weights, instance.sigma))

    def losses(weights: np.ndarray) -> np.ndarray:
        return 0.5 * (instance.sigma - np.prod(weights, axis=0)) ** 2

    told = 0.5 * (instance.known - np.prod(instance.weights, axis=0)) ** 2
    wanted = -2 * np.sum(others(instance.weights) ** 2, axis=0) * told
    gap = along(losses, instance.weights, speed) - wanted
    return Measured(dict.fromkeys(RATE, float(np.max(np.abs(gap) / np.maximum(np.abs(wanted), 1e-3)))))


EQUATION_56 = Check(
    id="network/equation-56",
    source="Equation 56",
    statement="The loss of mode j falls at the rate 2 Σ_i ξ̄_ij²: its derivative is -2 (Σ_i ξ̄_ij²) F_j.",
    hypotheses=(),
    tolerances=RATE,
    measure=each_diagonal(_measure_rate),
    draw=draw_diagonal,
    violations=(Violation("losses of another target", told_other),),
    sized=sized_diagonal,
    adopt=adopt_diagonal,
)

HESSIAN = {
    "blocks less derivatives of the gradient": ROUNDING,
    "eigenvalues where two layers are zero less ±σ Π of the others": ROUNDING,
    "blocks where more layers are zero": 0.0,
}


def _measure_hessian(instance: Diagonal) -> Measured:
    weights = instance.weights
    depth, modes = weights.shape
    found = np.asarray(diagonal_hessian(weights, instance.known))
    wanted = np.zeros((modes, depth, depth))
    for layer in range(depth):
        unit = np.zeros_like(weights)
        unit[layer] = 1.0  # one layer of every mode at once: modes do not see each other
        wanted[:, :, layer] = -along(lambda x: field(x, instance.sigma), weights, unit).T
    pairs, rest = 0.0, 0.0
    for mode in range(modes):
        zeros = weights[:, mode] == 0
        if zeros.sum() == 2:
            size = abs(instance.sigma[mode] * np.prod(weights[~zeros, mode]))
            spectrum = np.zeros(depth)
            spectrum[0], spectrum[-1] = -size, size
            pairs = max(pairs, float(np.max(np.abs(np.linalg.eigvalsh(found[mode]) - spectrum))))
        elif zeros.sum() > 2:
            rest = max(rest, float(np.max(np.abs(found[mode]))))
    numbers = (float(np.max(np.abs(found - wanted))), pairs, rest)
    return Measured(dict(zip(HESSIAN, numbers, strict=True)))


EQUATION_57 = Check(
    id="network/equation-57",
    source="Equation 57 and below",
    statement="The Hessian of a mode is ξ̄ξ̄ᵀ + (ξ̂ - σ)T with T_kl the product of all layers but k and l; where exactly "
    "two layers are zero its eigenvalues are ±σ times the product of the others and 0, where more are it vanishes.",
    hypotheses=(),
    tolerances=HESSIAN,
    measure=each_diagonal(_measure_hessian),
    draw=lambda rng: draw_critical(rng) if rng.random() < 0.5 else draw_diagonal(rng),
    violations=(Violation("another target", lambda rng: told_other(rng, draw_critical)),),
    sized=_sized_critical,
    adopt=adopt_diagonal,
)

# --- Where the print is wrong -----------------------------------------------------------------------------------------

BRACKET = {"(Dg)f - (Df)g less (σ' - σ)‖ξ̄‖²ξ̄": ROUNDING}


def _measure_bracket(instance: Diagonal) -> Measured:
    weights, sigma, other = instance.weights, instance.sigma, instance.other
    first, second = field(weights, sigma), field(weights, other)
    wanted = along(lambda x: field(x, other), weights, first) - along(lambda x: field(x, sigma), weights, second)
    found = np.asarray(diagonal_bracket(weights, instance.known, other))
    return Measured(
        dict.fromkeys(BRACKET, float(np.max(np.abs(found - wanted)))), printed=float(np.max(np.abs(wanted)))
    )


ERRATUM_BRACKET = Check(
    id="network/erratum-bracket",
    source="Section 5.2.1, below Proposition 33",
    statement="The Lie bracket of the flows that learn σ and σ' is (σ' - σ)‖ξ̄‖²ξ̄ in each mode: the fields span one "
    "line in each mode, but do not commute.",
    hypotheses=(),
    tolerances=BRACKET,
    measure=each_diagonal(_measure_bracket),
    draw=draw_diagonal,
    violations=(Violation("another target", told_other),),
    printed="The Lie bracket vanishes for all σ' ≠ σ.",
    printed_tolerance=1e-6,
    sized=sized_diagonal,
    adopt=adopt_diagonal,
)

ONE_FORMS = {
    "rank of the differentials less L - max(1, number of zero weights)": 0.0,
    "rank with the field, less L, where at most one weight is zero": 0.0,
}


def _measure_one_forms(instance: Diagonal) -> Measured:
    depth, modes = instance.weights.shape
    told = np.asarray(diagonal_laws_rank(instance.weights, instance.tolerance))
    gaps, spans, printed = 0, 0, 0
    for mode in range(modes):
        w = instance.weights[:, mode]
        forms = np.zeros((depth - 1, depth))
        forms[np.arange(depth - 1), np.arange(depth - 1)] = 2 * w[:-1]
        forms[np.arange(depth - 1), np.arange(1, depth)] = -2 * w[1:]
        rank = int(np.linalg.matrix_rank(forms, tol=1e-9)) if depth > 1 else 0
        gaps = max(gaps, abs(rank - int(told[mode])))
        printed = max(printed, depth - 1 - rank)
        if np.sum(w == 0) <= 1:
            spans = max(spans, depth - int(np.linalg.matrix_rank(np.vstack([forms, others(w[:, None]).T]), tol=1e-9)))
    return Measured(dict(zip(ONE_FORMS, (gaps, spans), strict=True)), printed=float(printed))


def _draw_zeros(rng: np.random.Generator, depth: int = DEPTH, modes: int = 5) -> Diagonal:
    """Modes with 0, 1, 2, … zero weights; at least one has two."""
    instance = draw_diagonal(rng, depth, max(modes, 3))
    weights = instance.weights.copy()
    for mode in range(weights.shape[1]):
        weights[rng.permutation(depth)[: min(mode, depth)], mode] = 0.0
    return dataclasses.replace(instance, weights=weights)


def _sized_zeros(rng: np.random.Generator, widths: tuple[int, ...]) -> Diagonal:
    return _draw_zeros(rng, *sized_diagonal(rng, widths).weights.shape)


ERRATUM_ONE_FORMS = Check(
    id="network/erratum-one-forms",
    source="Sections 5.2.1 and 6.2.2",
    statement="The differentials 2ξ_i dξ_i - 2ξ_{i+1} dξ_{i+1} of the L - 1 laws of a mode have rank L - max(1, z), z "
    "the number of zero weights: they are independent, and with the field span everything, exactly where at most one "
    "vanishes.",
    hypotheses=(),
    tolerances=ONE_FORMS,
    measure=each_diagonal(_measure_one_forms),
    draw=_draw_zeros,
    violations=(Violation("weights taken for zero", lambda rng: dataclasses.replace(_draw_zeros(rng), tolerance=2.0)),),
    printed="The differentials are always independent: their rank is L - 1 everywhere.",
    sized=_sized_zeros,
)

CHECKS = (
    PROPOSITION_33,
    DIAGONAL_LIMIT,
    EQUATION_56,
    EQUATION_57,
    ERRATUM_BRACKET,
    ERRATUM_ONE_FORMS,
)
