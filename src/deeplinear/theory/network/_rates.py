"""Rates: lower bounds of how fast the loss falls, at one moment and for all times."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from deeplinear.core import Params, xp
from deeplinear.landscape import (
    cumulative_factors,
    cumulative_rate,
    envelope_excess,
    product_rate,
    pyramid_factors,
    pyramid_rate,
    sharp_rate,
)
from deeplinear.models import Problem
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import FLOOR, flows
from deeplinear.theory.network._hessian import WIDE, invertible
from deeplinear.theory.network._networks import (
    Layers,
    Network,
    adopt_network,
    draw_layers,
    draw_network,
    draw_sigma,
    each,
)

SLACK = 1e-9
"""A rate may exceed the smallest eigenvalue of the tangent kernel by this share: rounding of both."""

TIMES = tuple(np.linspace(0.0, 2.0, 9))


@dataclasses.dataclass(frozen=True)
class Rated:
    """A network, the layer its bound is built around, and the layers of which the bound is told."""

    network: Network
    pivot: int
    told: Layers

    @property
    def params(self) -> Params:
        """The layers that are told."""
        return tuple(xp.asarray(layer, dtype=float) for layer in self.told)


def _rated(network: Network, pivot: int = 1) -> Rated:
    return Rated(network, pivot, network.layers)


def _kernel(network: Network) -> np.ndarray:
    """The tangent kernel by plain Kronecker products."""
    depth = network.depth
    terms = []
    for j in range(1, depth + 1):
        left, right = network.partial(depth, j + 1), network.partial(j - 1, 1)
        terms.append(np.kron(left @ left.T, right.T @ right))
    return sum(terms[1:], start=terms[0])


def _above(rate: float, network: Network) -> tuple[float, float]:
    """Excess of a rate over the smallest eigenvalue of the kernel, and that eigenvalue."""
    values = np.linalg.eigvalsh(_kernel(network))
    smallest = max(float(values[0]), 0.0)
    return (rate - smallest) / (smallest + 1e-14 * float(values[-1])), smallest


def _sharp(rng: np.random.Generator) -> Network:
    """Multiples of isometries, tiny in the middle: there the bounds around the middle are attained."""
    first, second = (np.linalg.qr(rng.standard_normal((3, 2)))[0] for _ in range(2))
    layers = (1.2 * first, 1e-3 * second @ first.T, 1.4 * second.T)
    return Network(layers, draw_sigma(rng, 2), draw_layers(rng, WIDE))


def _overstated(rng: np.random.Generator) -> Rated:
    """A bound that is attained, told of layers a tenth larger."""
    network = _sharp(rng)
    return Rated(network, 2, tuple(1.1 * layer for layer in network.layers))


OVERSTATED = Violation("the rate of layers a tenth larger", _overstated)


# --- At one moment ----------------------------------------------------------------------------------------------------

PRODUCT = {
    "product bound over the smallest eigenvalue of the kernel": SLACK,
    "2kF over the fall of the loss": SLACK,
    "library against plain eigenvalue, relative to the largest": 1e-12,
}

MANY = ((2, 2, 3, 2), WIDE, (2, 4, 3))


def _measure_product(rated: Rated) -> Measured:
    network = rated.network
    rate = float(product_rate(rated.params))
    excess, smallest = _above(rate, network)
    kernel, residual = _kernel(network), network.residual.ravel()
    fall = float(residual @ kernel @ residual)
    largest = float(np.linalg.eigvalsh(kernel)[-1])
    numbers = (
        excess,
        (rate * float(residual @ residual) - fall) / fall,
        abs(float(sharp_rate(network.params)) - smallest) / largest,
    )
    return Measured(dict(zip(PRODUCT, numbers, strict=True)), facts={"product bound": rate, "sharp rate": smallest})


def _draw_any(rng: np.random.Generator, widths: Sequence[int] | None = None) -> Rated:
    return _rated(draw_network(rng, MANY[int(rng.integers(len(MANY)))] if widths is None else widths))


def _residual_left(rated: Rated) -> float:
    """1 where there is nothing left to fall."""
    return float(not np.max(np.abs(rated.network.residual)) > 1e-6)


PROPOSITION_26 = Check(
    id="network/proposition-26",
    source="Proposition 26, equation 47",
    statement=(
        "Ḟ ≤ −2λ_min(K)F ≤ −2kF with k = Σ_j Π_{i<j} λ_min(W_iᵀW_i) Π_{i>j} λ_min(W_iW_iᵀ): twice what is printed, and "
        "attained."
    ),
    hypotheses=(Hypothesis("a loss that is not zero", _residual_left),),
    tolerances=PRODUCT,
    measure=each(_measure_product),
    draw=_draw_any,
    violations=(OVERSTATED,),
    sized=_draw_any,
    adopt=lambda problem, params: _rated(adopt_network(problem, params)),
)


# --- For all times ----------------------------------------------------------------------------------------------------

ALWAYS = {
    "bound over the smallest eigenvalue of the kernel": SLACK,
    "bound over that eigenvalue along the flow": SLACK,
    "F over F(0)exp(−2kt) along the flow, less one": SLACK,
}


def _measure_always(rate_of: Callable[[Params, int], float | None]) -> Callable[[Sequence[Rated]], list[Measured]]:
    def measure(instances: Sequence[Rated]) -> list[Measured]:
        runs = flows([r.network.problem for r in instances], [r.network.params for r in instances], TIMES)
        measured = []
        for rated, run in zip(instances, runs, strict=True):
            rate = rate_of(rated.params, rated.pivot)
            rate = float("inf") if rate is None else rate
            excess, smallest = _above(rate, rated.network)
            later = [dataclasses.replace(rated.network, layers=tuple(w[k] for w in run.layers)) for k in (1, -1)]
            numbers = (
                excess,
                max(_above(rate, network)[0] for network in later),
                float(envelope_excess(run.times, run.loss, min(rate, 1e300), lowest=FLOOR)) - 1,
            )
            facts = {"rate": rate, "sharp rate at the start": smallest}
            measured.append(Measured(dict(zip(ALWAYS, numbers, strict=True)), facts=facts))
        return measured

    return measure


def draw_pyramid(rng: np.random.Generator, widths: Sequence[int] = WIDE) -> Rated:
    """Gaussian layers that grow away from a layer, drawn anew until the bound applies."""
    depth = len(widths) - 1
    pivots = [
        j
        for j in range(1, depth + 1)
        if all(a <= b for a, b in itertools.pairwise(widths[:j]))
        and all(a >= b for a, b in itertools.pairwise(widths[j:]))
    ]
    if not pivots:
        raise ValueError(f"widths must grow up to a layer and shrink after it, but are {tuple(widths)}.")
    for _ in range(200):
        pivot = pivots[int(rng.integers(len(pivots)))]
        scales = [0.3 * 3.0 ** abs(position - pivot) for position in range(1, depth + 1)]
        layers = tuple(c * w for c, w in zip(scales, draw_layers(rng, widths), strict=True))
        rated = _rated(Network(layers, draw_sigma(rng, min(widths[0], widths[-1])), draw_layers(rng, widths)), pivot)
        if pyramid_rate(rated.params, pivot) is not None:
            return rated
    raise ValueError(f"no draw of layers with widths {tuple(widths)} meets the hypotheses.")


def _pyramid_slack(rated: Rated) -> float:
    """How far the smallest factor is from positive."""
    try:
        return float(-xp.min(pyramid_factors(rated.network.params, rated.pivot)))
    except ValueError:
        return float("inf")


def _adopt_best(
    rate_of: Callable[[Params, int], float | None],
) -> Callable[[Problem, Params], Rated]:
    """The given network with the pivot of its largest rate, or the first where none applies."""

    def adopt(problem: Problem, params: Params) -> Rated:
        network = adopt_network(problem, params)
        rates = {j: rate_of(network.params, j) for j in range(1, network.depth + 1)}
        known = {j: rate for j, rate in rates.items() if rate is not None}
        return _rated(network, max(known, key=lambda j: known[j]) if known else 1)

    return adopt


PROPOSITION_27 = Check(
    id="network/proposition-27",
    source="Proposition 27, equation 49",
    statement=(
        "With widths that grow up to layer j and shrink after it, and C_i of d_{i−1} positive (i < j) or d_{i+1} "
        "negative eigenvalues, F(t) ≤ F(0)e^{−2kt} with "
        "k = Π_{i<j} λ_{1+d_i−d_{i−1}}(C_i) Π_{i≥j} λ_{1+d_i−d_{i+1}}(−C_i), C_i = W_iW_iᵀ − W_{i+1}ᵀW_{i+1}."
    ),
    hypotheses=(Hypothesis("a pyramid around the pivot", _pyramid_slack),),
    tolerances=ALWAYS,
    measure=_measure_always(pyramid_rate),
    draw=draw_pyramid,
    violations=(OVERSTATED,),
    sized=draw_pyramid,
    adopt=_adopt_best(pyramid_rate),
)


def _root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric square root of a positive semi-definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def draw_cumulative(rng: np.random.Generator, widths: Sequence[int] = WIDE) -> Rated:
    """Layers built outwards from one: each square exceeds that of its neighbour by a positive definite matrix."""
    depth, inp, out = len(widths) - 1, widths[0], widths[-1]
    if depth > 1 and min(widths[1:-1]) < max(inp, out):
        raise ValueError(f"hidden widths must be at least those of input and output, but widths are {tuple(widths)}.")
    pivot = int(rng.integers(1, depth + 1))

    def frame(width: int, size: int) -> np.ndarray:
        return np.linalg.qr(rng.standard_normal((width, size)))[0]

    def more(size: int) -> np.ndarray:
        factor = 0.7 * invertible(rng, size)
        return factor @ factor.T

    # Inside of frames of the size of the input below the pivot, and of the output from it on.
    below = [np.eye(inp), *(frame(widths[place], inp) for place in range(1, pivot))]
    above = [*(frame(widths[place], out) for place in range(pivot, depth)), np.eye(out)]
    core = 0.5 * rng.standard_normal((out, inp))
    layers = {pivot: above[0] @ core @ below[-1].T}
    seed = core
    for place in range(pivot + 1, depth + 1):
        seed = frame(out, out) @ _root(seed @ seed.T + more(out))
        layers[place] = above[place - pivot] @ seed @ above[place - pivot - 1].T
    seed = core
    for place in range(pivot - 1, 0, -1):
        seed = _root(seed.T @ seed + more(inp)) @ frame(inp, inp)
        layers[place] = below[place] @ seed @ below[place - 1].T
    ordered = tuple(layers[place] for place in range(1, depth + 1))
    return _rated(Network(ordered, draw_sigma(rng, min(inp, out)), draw_layers(rng, widths)), pivot)


def _cumulative_slack(rated: Rated) -> float:
    try:
        return float(-cumulative_factors(rated.network.params, rated.pivot).slack)
    except ValueError:
        return float("inf")


PROPOSITION_28 = Check(
    id="network/proposition-28",
    source="Proposition 28, equation 52",
    statement=(
        "With hidden widths at least those of input and output, C_i ⪰ 0 for i < j and C_i ⪯ 0 for i ≥ j, "
        "F(t) ≤ F(0)e^{−2kt} with k = Π a_i, a_i = Σ_{l=j}^i λ_{1+d_l−d_L}(−C_l) for i ≥ j and "
        "Σ_{l=i}^{j−1} λ_{1+d_l−d_0}(C_l) for i < j, C_i = W_iW_iᵀ − W_{i+1}ᵀW_{i+1}."
    ),
    hypotheses=(Hypothesis("semi-definite away from the pivot", _cumulative_slack, 1e-10),),
    tolerances=ALWAYS,
    measure=_measure_always(cumulative_rate),
    draw=draw_cumulative,
    violations=(OVERSTATED,),
    sized=draw_cumulative,
    adopt=_adopt_best(cumulative_rate),
)


# --- As printed -------------------------------------------------------------------------------------------------------

INDEX = {
    "corrected bound over the smallest eigenvalue of the kernel": SLACK,
    "corrected bound against plain eigenvalues, relative": 1e-12,
}


def _eigenvalue(matrix: np.ndarray, index: int) -> float:
    """Eigenvalue by its place in ascending order, counted from one."""
    return float(np.linalg.eigvalsh(matrix)[index - 1])


def printed_rate(layers: Layers, pivot: int, *, corrected: bool) -> float:
    """The bound of equation 49 by plain eigenvalues, with the printed index or the corrected one."""
    widths = (layers[0].shape[1], *(w.shape[0] for w in layers))
    rate = 1.0
    for i, (below, above) in enumerate(itertools.pairwise(layers), start=1):
        matrix = below @ below.T - above.T @ above
        if i >= pivot:
            rate *= _eigenvalue(-matrix, 1 + widths[i] - widths[i + 1])
        else:
            shift = widths[i] - widths[i - 1] if corrected else widths[i + 1] - widths[i]
            rate *= _eigenvalue(matrix, 1 + shift)
    return rate


def _measure_index(rated: Rated) -> Measured:
    ours = pyramid_rate(rated.params, rated.pivot)
    ours = float("inf") if ours is None else ours
    excess, smallest = _above(ours, rated.network)
    plain = printed_rate(rated.told, rated.pivot, corrected=True)
    printed = printed_rate(rated.network.layers, rated.pivot, corrected=False)
    numbers = (excess, abs(ours - plain) / abs(plain))
    return Measured(
        dict(zip(INDEX, numbers, strict=True)),
        printed=printed / (2 * smallest) - 1,
        facts={"printed rate": printed, "corrected rate": ours, "smallest −Ḟ/F": 2 * smallest},
    )


def counterexample(rng: np.random.Generator | None = None) -> Rated:
    """Widths 2-2-3-2 around the second layer; with random numbers, turned and stretched a little."""
    turn = np.eye(2) if rng is None else np.linalg.qr(rng.standard_normal((2, 2)))[0]
    stretch = np.ones(2) if rng is None else rng.uniform(0.9, 1.1, 2)
    first = turn @ np.diag(np.array([3.0, 1.0]) * stretch)
    second = 0.01 * np.ones((3, 2)) if rng is None else 0.01 * rng.uniform(-1, 1, (3, 2))
    third = np.concatenate([2 * np.eye(2), np.zeros((2, 1))], axis=1)
    sigma = np.array([2.0, 1.0]) if rng is None else draw_sigma(rng, 2)
    return _rated(Network((first, second, third), sigma), 2)


def _overstated_counterexample(rng: np.random.Generator) -> Rated:
    rated = counterexample(rng)
    return dataclasses.replace(rated, told=tuple(1.1 * layer for layer in rated.told))


ERRATUM_27 = Check(
    id="network/erratum-proposition-27",
    source="Proposition 27, equation 49",
    statement="Below the pivot the factor is λ_{1+d_i−d_{i−1}}(C_i).",
    hypotheses=(Hypothesis("a pyramid around the pivot", _pyramid_slack),),
    tolerances=INDEX,
    measure=each(_measure_index),
    draw=counterexample,
    violations=(Violation("the rate of layers a tenth larger", _overstated_counterexample),),
    printed="below the pivot the factor is λ_{1+d_{i+1}−d_i}(C_i): more than −Ḟ/F itself.",
    printed_tolerance=SLACK,
)

CHECKS = (PROPOSITION_26, PROPOSITION_27, PROPOSITION_28, ERRATUM_27)
