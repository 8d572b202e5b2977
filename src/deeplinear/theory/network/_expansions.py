"""Statements on expansions of the product and of the loss."""

import dataclasses
import itertools
import math

import numpy as np

from deeplinear.core import xp
from deeplinear.landscape import (
    adjacency,
    adjacency_hessian_form,
    embedded,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import largest
from deeplinear.theory.network._adjacency import dense_shift
from deeplinear.theory.network._networks import (
    CHAIN,
    ROUNDING,
    Layers,
    Network,
    draw_layers,
    draw_network,
    each,
)


@dataclasses.dataclass(frozen=True)
class Expanded:
    """A network with a direction, and the direction of which the expansion is told."""

    network: Network
    told: Layers


def _variations(network: Network, direction: Layers) -> list[np.ndarray]:
    """Coefficients of ε^k in the product of W_l + εV_l."""
    result = [np.eye(network.widths[0])]
    for layer, moved in zip(network.layers, direction, strict=True):
        shape = (layer.shape[0], network.widths[0])
        new = [np.zeros(shape) for _ in range(len(result) + 1)]
        for k, part in enumerate(result):
            new[k] = new[k] + layer @ part
            new[k + 1] = new[k + 1] + moved @ part
        result = new
    return result


def _by_exponents(network: Network, direction: Layers, count: int, exponents: int) -> np.ndarray:
    """Sum of A^{k₁}VA^{k₂}…VA^{kₑ} over all exponents that sum to L − count, as one matrix of all nodes."""
    flat, moved = dense_shift(network.layers, network.widths, 1), dense_shift(direction, network.widths, 1)
    powers = [np.linalg.matrix_power(flat, k) for k in range(network.depth + 1)]
    total = np.zeros_like(flat)
    for chosen in itertools.product(range(network.depth - count + 1), repeat=exponents):
        if sum(chosen) == network.depth - count:
            term = powers[chosen[0]]
            for k in chosen[1:]:
                term = term @ moved @ powers[k]
            total += term
    return total


EXPANSION = {
    "coefficients of the loss on a line, relative": 1e-10,
    "variations as sums over k + 1 exponents, relative": ROUNDING,
}


def _measure_expansion(instance: Expanded) -> Measured:
    network, told = instance.network, instance.told
    depth, gap = network.depth, network.residual
    places = np.cos(np.pi * (np.arange(2 * depth + 1) + 0.5) / (2 * depth + 1))
    losses = []
    for place in places:
        moved = tuple(w + place * v for w, v in zip(network.layers, network.direction, strict=True))
        losses.append(0.5 * np.sum((network.target - Network(moved, network.sigma).product) ** 2))
    found = np.linalg.solve(np.vander(places, increasing=True), losses)
    rho = _variations(network, told)
    second, third = (rho[k] if k <= depth else 0 * rho[0] for k in (2, 3))
    e, directions = (
        embedded(xp.asarray(network.target, dtype=float), network.widths),
        tuple(xp.asarray(v, dtype=float) for v in told),
    )
    form = float(adjacency_hessian_form(adjacency(network.params), e, adjacency(directions)))
    cubic = float(np.sum(rho[1] * second) - np.sum(third * gap))
    wanted = [0.5 * np.sum(gap**2), -np.sum(rho[1] * gap), 0.5 * form, cubic]
    scale = max(1.0, largest([found]))
    sums, printed = 0.0, math.inf
    edges = network.widths[-1], network.widths[0]
    for k in range(1, min(depth, 3) + 1):
        ours = _by_exponents(network, told, k, k + 1)
        own = _variations(network, network.direction)[k]
        size = max(1.0, largest([own]))
        sums = max(sums, largest([ours[-edges[0] :, : edges[1]] - own]) / size)
        if k < depth - 1:
            as_printed = _by_exponents(network, told, k, depth)
            printed = min(printed, largest([as_printed[-edges[0] :, : edges[1]] - own]) / size)
    numbers = (largest([found[: len(wanted)] - np.asarray(wanted)[: len(found)]]) / scale, sums)
    printed = min(printed, abs(cubic) / scale)
    return Measured(dict(zip(EXPANSION, numbers, strict=True)), printed=printed)


def _sized_expanded(rng: np.random.Generator, widths: tuple[int, ...]) -> Expanded:
    if not 4 <= len(widths) <= 7:
        raise ValueError(f"widths must name three to six layers, but is {tuple(widths)}.")
    network = draw_network(rng, widths)
    return Expanded(network, network.direction)


VARIATIONS = Check(
    id="network/variations",
    source="Section 3.3, equation 34 and Table 1",
    statement=(
        "ρ_k, the coefficient of ε^k in (A + εV)^L, is a sum over k + 1 exponents of A that add to L − k; past the "
        "second order the loss changes by ε³(⟨ρ₁, ρ₂⟩ − ⟨ρ₃, E − A^L⟩) and higher powers."
    ),
    hypotheses=(
        Hypothesis(
            "the expansion is told of this direction",
            lambda x: largest([a - b for a, b in zip(x.network.direction, x.told, strict=True)]),
        ),
        Hypothesis("three layers or more", lambda x: 3 - x.network.depth),
    ),
    tolerances=EXPANSION,
    measure=each(_measure_expansion),
    draw=lambda rng: _sized_expanded(rng, CHAIN),
    violations=(
        Violation("another direction", lambda rng: Expanded(draw_network(rng, CHAIN), draw_layers(rng, CHAIN))),
    ),
    printed="the sum runs over L exponents, and the remainder past the second order is o(ε³).",
    printed_tolerance=1e-6,
    sized=_sized_expanded,
)

ORIGIN = {"loss on a line through the start against ½‖Σ‖² − ε^L⟨Σ, V_{L:1}⟩ + ½ε^{2L}‖V_{L:1}‖², relative": ROUNDING}


def _measure_origin(network: Network) -> Measured:
    """Printed: no term of the expansion is left, and the loss at the origin is ‖Σ‖²; the smaller miss of the two."""
    top = Network(network.direction, network.sigma).product
    slope, square = float(np.sum(network.target * top)), float(np.sum(top**2))
    start = 0.5 * float(np.sum(network.sigma**2))
    missed, scale = 0.0, max(1.0, start, abs(slope), square)
    for step in (-1.0, 0.0, 0.5, 1.0):
        moved = tuple(w + step * v for w, v in zip(network.layers, network.direction, strict=True))
        loss = 0.5 * float(np.sum((network.target - Network(moved, network.sigma).product) ** 2))
        power = step**network.depth
        missed = max(missed, abs(loss - (start - power * slope + 0.5 * power**2 * square)))
    return Measured(dict(zip(ORIGIN, [missed / scale], strict=True)), printed=min(abs(slope), start) / scale)


def _at_origin(rng: np.random.Generator, widths: tuple[int, ...]) -> Network:
    network = draw_network(rng, widths)
    return dataclasses.replace(network, layers=tuple(0 * layer for layer in network.layers))


LOSS_AT_ORIGIN = Check(
    id="network/loss-near-origin",
    source="Sections 4.2 and 6.1",
    statement=(
        "At the origin the loss is ½‖Σ‖²; along εV its expansion has the terms −ε^L⟨Σ, V_{L:1}⟩ and ½ε^{2L}‖V_{L:1}‖² "
        "and no others."
    ),
    hypotheses=(Hypothesis("layers of zeros", lambda n: largest(n.layers)),),
    tolerances=ORIGIN,
    measure=each(_measure_origin),
    draw=lambda rng: _at_origin(rng, CHAIN),
    violations=(Violation("layers that are not zero", lambda rng: draw_network(rng, CHAIN, 0.3)),),
    printed="the loss there is ‖Σ‖², and all terms of the expansion vanish.",
    printed_tolerance=1e-6,
    sized=_at_origin,
)

CHECKS = (VARIATIONS, LOSS_AT_ORIGIN)
