"""Statements on how large a network and its product can get."""

import dataclasses
import math

import numpy as np

from deeplinear.landscape import (
    norm_bounds,
    trace_power_bounds,
    trajectory_radius,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import largest
from deeplinear.theory.network._adjacency import plain_flow
from deeplinear.theory.network._networks import (
    CHAIN,
    ROUNDING,
    Network,
    adopt_network,
    draw_network,
    each,
)


@dataclasses.dataclass(frozen=True)
class Bounded:
    """A network, and the one of which the bounds are told."""

    network: Network
    told: Network


def _bounded(network: Network) -> Bounded:
    return Bounded(network, network)


def _spread(rng: np.random.Generator, widths: tuple[int, ...] = CHAIN) -> Bounded:
    """Layers of very different sizes."""
    network = draw_network(rng, widths)
    layers = tuple(10 ** rng.uniform(-1.5, 1.5) * layer for layer in network.layers)
    return _bounded(dataclasses.replace(network, layers=layers))


def _smaller(network: Network) -> Bounded:
    """Told of layers and a target a hundred times as small."""
    told = Network(tuple(0.01 * layer for layer in network.layers), 0.01 * network.sigma)
    return Bounded(network, told)


TOLD_BOUNDS = Hypothesis[Bounded](
    "the bounds are told of this network",
    lambda b: largest([x - y for x, y in zip(b.network.layers, b.told.layers, strict=True)]),
)

GROWTH = {
    "‖A^L‖² over its upper bound, relative": ROUNDING,
    "lower bound over ‖A^L‖², relative": ROUNDING,
    "d‖A‖²/dt over its bound, relative": ROUNDING,
}


def _measure_growth(instance: Bounded) -> Measured:
    network = instance.network
    lower, _, upper = (float(x) for x in norm_bounds(instance.told.params))
    value = float(np.sum(network.product**2))
    rate = float(np.sum(network.residual * network.product))
    top = float(np.linalg.norm(network.target)) * math.sqrt(upper) - lower
    # The lower bound is a difference of large numbers.
    scale = max(value, abs(lower), upper if instance.told is not network else 0.0, 1e-300)
    numbers = ((value - upper) / max(upper, 1e-300), (lower - value) / scale, (rate - top) / max(abs(top), scale))
    facts = {"lower": lower, "value": value, "upper": upper}
    return Measured(dict(zip(GROWTH, numbers, strict=True)), facts=facts)


LEMMA_37 = Check(
    id="network/lemma-37",
    source="Lemma 37, equations 26 and 72",
    statement=(
        "L^{−L}d_L^{1−L}(n − c̃)₊^L − p(n) ≤ ‖A^L‖² ≤ (n/L)^L with n = ‖A‖² and p of degree L − 1 in n, both from the "
        "conserved quantities; so (1/2L) dn/dt ≤ ‖Σ‖(n/L)^{L/2} less the lower bound."
    ),
    hypotheses=(TOLD_BOUNDS,),
    tolerances=GROWTH,
    measure=each(_measure_growth),
    draw=_spread,
    violations=(Violation("bounds of a smaller network", lambda rng: _smaller(draw_network(rng, CHAIN))),),
    sized=_spread,
    adopt=lambda problem, params: _bounded(adopt_network(problem, params)),
)

REACH = {"largest ‖A(t)‖ over its radius, relative": 0.0}


def _measure_reach(instance: Bounded) -> Measured:
    squares = [sum(float(np.sum(w**2)) for w in layers) for layers in plain_flow(instance.network)]
    size = math.sqrt(max(squares))
    radius = trajectory_radius(instance.told.problem, instance.told.params)
    facts = {"largest norm": size, "radius": radius}
    return Measured(dict(zip(REACH, [(size - radius) / radius], strict=True)), facts=facts)


PROPOSITION_12 = Check(
    id="network/proposition-12-bounded",
    source="Proposition 12, item 1",
    statement=(
        "Along the flow ‖A(t)‖² stays below the largest n at which the lower bound of ‖A^L‖² does not exceed "
        "(‖Σ‖ + √(2F(0)))², which is known at the start."
    ),
    hypotheses=(TOLD_BOUNDS,),
    tolerances=REACH,
    measure=each(_measure_reach),
    draw=lambda rng: _bounded(draw_network(rng, CHAIN, float(rng.uniform(0.1, 1.2)))),
    violations=(Violation("the radius of a smaller network", lambda rng: _smaller(draw_network(rng, CHAIN))),),
    sized=lambda rng, widths: _bounded(draw_network(rng, widths)),
    adopt=lambda problem, params: _bounded(adopt_network(problem, params)),
)


@dataclasses.dataclass(frozen=True)
class Power:
    """A symmetric matrix and an exponent."""

    matrix: np.ndarray
    exponent: int


TRACES = {"lower bound over tr(B^ℓ), relative": ROUNDING, "tr(B^ℓ) over its upper bound, relative": ROUNDING}


def _measure_traces(instance: Power) -> Measured:
    matrix, exponent, size = instance.matrix, instance.exponent, len(instance.matrix)
    total, value = float(np.trace(matrix)), float(np.trace(np.linalg.matrix_power(matrix, exponent)))
    lower, upper = size ** (1.0 - exponent) * total**exponent, total**exponent
    values = np.linalg.eigvalsh(matrix)
    if values[0] >= 0:
        lower, value, upper = (float(x) for x in trace_power_bounds(matrix, float(exponent)))
    scale = max(abs(value), abs(upper), 1e-300)
    left = float(np.sum(np.abs(values) ** exponent) ** (1 / exponent))
    right = float(np.sum(np.abs(values)) ** (1 / exponent) * size ** (exponent - 1.0))
    printed = (left - right) / max(left, right)
    return Measured(dict(zip(TRACES, [(lower - value) / scale, (value - upper) / scale], strict=True)), printed=printed)


def _draw_power(rng: np.random.Generator) -> Power:
    root = rng.standard_normal((3, int(rng.integers(1, 4)))) * 10 ** rng.uniform(-1, 2)
    return Power(root @ root.T, int(rng.integers(2, 5)))


LEMMA_38 = Check(
    id="network/lemma-38",
    source="Lemma 38, equation 74",
    statement="k^{1−ℓ}(tr B)^ℓ ≤ tr(B^ℓ) ≤ (tr B)^ℓ for a positive semi-definite k×k matrix B.",
    hypotheses=(
        Hypothesis(
            "positive semi-definite",
            lambda p: -float(np.linalg.eigvalsh(p.matrix)[0]) / max(largest([p.matrix]), 1e-300),
            1e-12,
        ),
    ),
    tolerances=TRACES,
    measure=each(_measure_traces),
    draw=_draw_power,
    violations=(Violation("an indefinite matrix", lambda rng: Power(np.diag([1.0, -1.0, rng.uniform(0, 0.1)]), 2)),),
    printed="the proof ends with (Σλᵢ^ℓ)^{1/ℓ} ≤ (Σλᵢ)^{1/ℓ}k^{ℓ−1}, which large matrices do not satisfy.",
    printed_tolerance=1e-6,
)

CHECKS = (LEMMA_37, PROPOSITION_12, LEMMA_38)
