"""Variants of the flow: a penalty, steps of finite length, few measurements, skip connections, bottlenecks."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from deeplinear.core import Array, Params, formula, xp
from deeplinear.models import (
    Completion,
    DeepLinear,
    Masked,
    Problem,
    Sensing,
    SquaredDistance,
    skip_network,
    surviving_laws,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import Run, flows, largest
from deeplinear.theory.network._networks import (
    BOTTLENECK,
    CHAIN,
    FUNNEL,
    ROUNDING,
    Network,
    draw_layers,
    draw_network,
)

FLOWN = 1e-9
"""What flows at tolerance 1e-12 miss an identity by."""

DIFFERENCES = 1e-6
"""What central differences with steps of 1e-5 miss a gradient of order ten by."""


def final_layers(run: Run) -> tuple[np.ndarray, ...]:
    """Layers at the end of a flow."""
    return tuple(layer[-1] for layer in run.layers)


def velocity_of(layers: Sequence[np.ndarray], target: np.ndarray) -> tuple[np.ndarray, ...]:
    """Speed of the layers of ½‖target − product‖² by plain products."""
    before = [np.eye(layers[0].shape[1])]
    for layer in layers:
        before.append(layer @ before[-1])
    back, speeds = target - before[-1], []
    for number in range(len(layers) - 1, -1, -1):
        speeds.append(back @ before[number].T)
        back = layers[number].T @ back
    return tuple(reversed(speeds))


def _differences(value: Any, layers: Sequence[np.ndarray], step: float = 1e-5) -> list[np.ndarray]:
    """Central differences of a function of the layers, entry by entry."""
    slopes = []
    for number, layer in enumerate(layers):
        slope = np.zeros(layer.shape)
        for entry in np.ndindex(*layer.shape):
            there = []
            for sign in (1, -1):
                moved = [np.array(other) for other in layers]
                moved[number][entry] += sign * step
                there.append(value(moved))
            slope[entry] = (there[0] - there[1]) / (2 * step)
        slopes.append(slope)
    return slopes


# --- Few measurements -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Measurements:
    """Layers, measurement matrices with their values, and samples; `told` are the values the loss is given."""

    layers: tuple[np.ndarray, ...]
    matrices: np.ndarray
    values: np.ndarray
    told: np.ndarray
    inputs: np.ndarray
    outputs: np.ndarray
    mask: np.ndarray


def _product(layers: Sequence[np.ndarray]) -> np.ndarray:
    product = layers[0]
    for layer in layers[1:]:
        product = layer @ product
    return product


GRADIENT = "gradient against central differences, relative"
SAMPLES = "loss with B = e xᵀ misses ½‖Y − WX‖², relative, by"
ENTRIES = "gradient with B = E misses that of the masked residual by"


def _measure_sensing(instances: Sequence[Measurements]) -> list[Measured]:
    measured = []
    for given in instances:
        params = tuple(xp.asarray(layer, dtype=float) for layer in given.layers)
        model = DeepLinear((given.layers[0].shape[1], *(layer.shape[0] for layer in given.layers)))

        def value(layers: Sequence[np.ndarray], given: Measurements = given) -> float:
            seen = np.sum(given.matrices * _product(layers), axis=(1, 2))
            return 0.5 * float(np.sum((seen - given.values) ** 2))

        own = Problem(model, Sensing(given.matrices, given.told)).gradient(params)
        wanted = _differences(value, given.layers)
        gap = largest(np.asarray(g) - w for g, w in zip(own, wanted, strict=True)) / (1 + largest(wanted))
        product = _product(given.layers)
        out = product.shape[0]
        of_samples = np.einsum("ok,is->oski", np.eye(out), given.inputs).reshape(-1, *product.shape)
        recovered = float(Sensing(of_samples, given.outputs.reshape(-1)).value(xp.asarray(product, dtype=float)))
        plain = 0.5 * float(np.sum((given.outputs - product @ given.inputs) ** 2))
        target = given.outputs @ given.inputs.T
        rows, columns = np.nonzero(given.mask)
        of_entries = np.zeros((len(rows), *product.shape))
        of_entries[np.arange(len(rows)), rows, columns] = 1
        listed = np.asarray(Sensing(of_entries, target[rows, columns]).gradient(xp.asarray(product, dtype=float)))
        masked = np.asarray(Completion(target, given.mask).gradient(xp.asarray(product, dtype=float)))
        hidden = np.where(given.mask, product - target, 0)
        measured.append(
            Measured(
                {
                    GRADIENT: gap,
                    SAMPLES: abs(recovered - plain) / plain,
                    ENTRIES: largest((listed - hidden, masked - hidden)) / (1 + largest([hidden])),
                }
            )
        )
    return measured


def _draw_measurements(rng: np.random.Generator, widths: tuple[int, ...]) -> Measurements:
    out, inp = widths[-1], widths[0]
    values = rng.standard_normal(4)
    mask = rng.random((out, inp)) < 0.6
    mask[0, 0] = True
    return Measurements(
        draw_layers(rng, widths, 0.7),
        rng.standard_normal((4, out, inp)),
        values,
        values,
        rng.standard_normal((inp, 5)),
        rng.standard_normal((out, 5)),
        mask,
    )


EQUATION_68 = Check(
    id="network/equation-68",
    source="Section 7, equation 68",
    statement=(
        "With measurements ⟨B, W⟩ the gradient is that of the residual Σ(⟨B, W⟩ − y)B; B = e xᵀ gives regression on "
        "samples and B = E the completion of a matrix."
    ),
    hypotheses=(
        Hypothesis("the loss has the measured values", lambda given: float(np.max(np.abs(given.values - given.told)))),
    ),
    tolerances={GRADIENT: DIFFERENCES, SAMPLES: ROUNDING, ENTRIES: ROUNDING},
    measure=_measure_sensing,
    draw=lambda rng: _draw_measurements(rng, FUNNEL if rng.random() < 0.5 else CHAIN),
    sized=_draw_measurements,
    violations=(
        Violation(
            "other values",
            lambda rng: dataclasses.replace(_draw_measurements(rng, CHAIN), told=rng.standard_normal(4)),
        ),
    ),
)

# --- Skip connections -------------------------------------------------------------------------------------------------

EQUAL_WIDTHS, RESIDUAL = (3, 2, 2, 2, 2), (4, 3, 5, 3, 2)


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A network, the ends of its skip connection, its target, and whether the fixed weights are fixed."""

    layers: tuple[np.ndarray, ...]
    start: int
    length: int
    target: np.ndarray
    fixed: bool = True

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.layers[0].shape[1], *(layer.shape[0] for layer in self.layers))

    @property
    def wanted(self) -> np.ndarray:
        """W_{L:1} + W_{L:k+j+1}W_{k:1}."""
        inner, outer = np.eye(self.widths[0]), np.eye(self.widths[-1])
        for layer in self.layers[: self.start]:
            inner = layer @ inner
        for layer in reversed(self.layers[self.start + self.length :]):
            outer = outer @ layer
        return _product(self.layers) + outer @ inner


def _draw_skip(rng: np.random.Generator, widths: tuple[int, ...], scale: float = 1.0) -> Skipped:
    """The first pair of layers of equal width, as far apart as can be."""
    depth = len(widths) - 1
    pairs = [
        (end - start, start)
        for start in range(depth)
        for end in range(start + 2, depth + 1)
        if widths[start] == widths[end]
    ]
    if not pairs:
        raise ValueError(
            f"An identity skip needs two layers of equal width, two or more apart, but widths is {widths}."
        )
    length, start = max(pairs, key=lambda pair: (pair[0], -pair[1]))
    return Skipped(draw_layers(rng, widths, scale), start, length, rng.standard_normal((widths[-1], widths[0])))


SUM = "product of the longer chain misses W + the part that is skipped by"
SLOPE = "gradient of the learnt weights against central differences, relative"
FROZEN = "largest gradient of a fixed weight"


def _printed_chain(skipped: Skipped) -> np.ndarray:
    """Product of the expansion as printed, of layers k+1 to k+j−1."""
    size, k, j = skipped.widths[skipped.start], skipped.start, skipped.length
    layers = list(skipped.layers)
    eye = np.eye(size)
    if j == 2:  # one layer both begins and ends the skip
        layers[k] = layers[k] + eye
    else:
        layers[k] = np.concatenate([layers[k], eye])
        for number in range(k + 1, k + j - 2):
            rows, columns = layers[number].shape
            layers[number] = np.block([[layers[number], np.zeros((rows, size))], [np.zeros((size, columns)), eye]])
        layers[k + j - 2] = np.concatenate([layers[k + j - 2], eye], axis=1)
    return _product(layers)


def _measure_skip(instances: Sequence[Skipped]) -> list[Measured]:
    measured = []
    for skipped in instances:
        skip = skip_network(skipped.widths, skipped.start, skipped.length)
        params = skip.embed(tuple(xp.asarray(layer, dtype=float) for layer in skipped.layers))
        model = skip.model if skipped.fixed else Masked(skip.model.model, [np.ones(s) for s in skip.model.shapes])
        problem = Problem(model, SquaredDistance(skipped.target))
        wanted = skipped.wanted

        def value(layers: Sequence[np.ndarray], skipped: Skipped = skipped) -> float:
            moved = dataclasses.replace(skipped, layers=tuple(layers))
            return 0.5 * float(np.sum((moved.wanted - skipped.target) ** 2))

        gradient = problem.gradient(params)
        slopes = _differences(value, skipped.layers)
        own = skip.extract(gradient)
        gap = largest(np.asarray(g) - w for g, w in zip(own, slopes, strict=True)) / (1 + largest(slopes))
        still = largest(
            np.where(np.asarray(m), 0, np.asarray(g)) for m, g in zip(skip.model.masks, gradient, strict=True)
        )
        made = np.asarray(problem.product(params))
        printed = None
        if skipped.widths[skipped.start] == skipped.widths[skipped.start + skipped.length - 1]:
            printed = float(np.max(np.abs(_printed_chain(skipped) - wanted)) / (1 + largest([wanted])))
        measured.append(
            Measured(
                {SUM: largest([made - wanted]) / (1 + largest([wanted])), SLOPE: gap, FROZEN: still}, printed=printed
            )
        )
    return measured


ERRATUM_SKIP = Check(
    id="network/erratum-skip",
    source="Section 7, skip connections",
    statement=(
        "An identity skip k → k+j is a chain in which layers k+1 to k+j are expanded, [W; I], diag(W, I), [W I]; its "
        "product is W_{L:1} + W_{L:k+j+1}W_{k:1}, and its flow is the masked one."
    ),
    hypotheses=(Hypothesis("the identity is fixed", lambda skipped: float(not skipped.fixed)),),
    tolerances={SUM: ROUNDING, SLOPE: DIFFERENCES, FROZEN: 0.0},
    measure=_measure_skip,
    draw=lambda rng: _draw_skip(rng, EQUAL_WIDTHS),
    sized=_draw_skip,
    violations=(
        Violation(
            "an identity that learns", lambda rng: dataclasses.replace(_draw_skip(rng, EQUAL_WIDTHS), fixed=False)
        ),
    ),
    printed="the expansion covers layers k+1 to k+j−1, whose product is W_{L:1} + W_{L:k+j}W_{k:1} instead.",
    printed_tolerance=1e-6,
)

SURVIVE = "laws that survive have rates, relative, of"
BREAK = "rates of the laws at the ends of the skip, relative, are below 10⁻⁴ by"
CONSTANT = "fixed weights have speeds of"
TOGETHER = "the sum of the laws at both ends has a rate, relative, of"


def _measure_skip_laws(instances: Sequence[Skipped]) -> list[Measured]:
    """Rates of the laws at one point, from the speed of the layers: a law holds where its rate always vanishes."""
    measured = []
    for skipped in instances:
        skip = skip_network(skipped.widths, skipped.start, skipped.length)
        params = skip.embed(tuple(xp.asarray(layer, dtype=float) for layer in skipped.layers))
        model = skip.model if skipped.fixed else Masked(skip.model.model, [np.ones(s) for s in skip.model.shapes])
        gradient = Problem(model, SquaredDistance(skipped.target)).gradient(params)
        chain = [(np.asarray(w), -np.asarray(g)) for w, g in zip(params, gradient, strict=True)]
        size = 1 + largest(v @ w.T for w, v in chain)
        ends, kept, facts = {}, [], {}
        for number, (((w, v), (w1, v1)), survives) in enumerate(
            zip(itertools.pairwise(chain), surviving_laws(skip.model), strict=True), start=1
        ):
            own = skipped.widths[number]
            rate = (w1.T @ v1 + v1.T @ w1 - v @ w.T - w @ v.T) / size
            kept.append(rate[survives])
            facts[f"rate of C{number} on the units of the network"] = float(np.linalg.norm(rate[:own, :own]))
            if number in (skipped.start, skipped.start + skipped.length):
                ends[number] = rate[:own, :own]
            else:
                kept.append(rate[:own, :own])
        still = largest(np.where(np.asarray(m), 0, v) for m, (_, v) in zip(skip.model.masks, chain, strict=True))
        residuals = {
            SURVIVE: largest(kept),
            BREAK: 1e-4 - min((float(np.linalg.norm(rate)) for rate in ends.values()), default=1.0),
            TOGETHER: largest([sum(ends.values())]) if len(ends) == 2 else 0.0,
            CONSTANT: still,
        }
        measured.append(Measured(residuals, facts=facts))
    return measured


SKIP_LAWS = Check(
    id="network/skip-laws",
    source="Section 7, skip connections",
    statement=(
        "With a fixed identity from layer k to layer k+j the conserved quantities of the units of the network stay "
        "constant at every hidden layer but k and k+j, where they move, by opposite amounts: their sum is constant."
    ),
    hypotheses=(Hypothesis("the identity is fixed", lambda skipped: float(not skipped.fixed)),),
    tolerances={SURVIVE: ROUNDING, BREAK: 0.0, TOGETHER: ROUNDING, CONSTANT: 0.0},
    measure=_measure_skip_laws,
    draw=lambda rng: _draw_skip(rng, RESIDUAL, 0.6),
    sized=lambda rng, widths: _draw_skip(rng, widths, 0.6),
    violations=(
        Violation(
            "an identity that learns", lambda rng: dataclasses.replace(_draw_skip(rng, RESIDUAL, 0.6), fixed=False)
        ),
    ),
)

# --- Bottlenecks ------------------------------------------------------------------------------------------------------

TRUNCATED = "limit misses the best approximation of its rank by"
VALUE = "limit of the loss misses ½Σσ² of what is left out by"
STRICT = "smallest Hessian eigenvalue at the other points of full rank, largest of all"


def _other_points(network: Network) -> list[Params]:
    """Balanced critical points of the rank of the bottleneck that keep other singular values than the largest."""
    rank, modes, depth = min(network.widths), len(network.sigma), network.depth
    points = []
    for kept in itertools.combinations(range(modes), rank):
        if kept == tuple(range(rank)):
            continue
        layers = []
        for number, (inp, out) in enumerate(itertools.pairwise(network.widths)):
            layer = np.zeros((out, inp))
            for place, mode in enumerate(kept):
                row = mode if number == depth - 1 else place
                column = mode if number == 0 else place
                layer[row, column] = network.sigma[mode] ** (1 / depth)
            layers.append(xp.asarray(layer, dtype=float))
        points.append(tuple(layers))
    return points


@formula
def _lowest(problem: Problem, params: Params) -> Array:
    return xp.linalg.eigvalsh(problem.hessian(params))[0]


def _measure_bottleneck(instances: Sequence[Network]) -> list[Measured]:
    runs = flows([n.problem for n in instances], [n.params for n in instances], (0.0, 150.0))
    measured = []
    for network, run in zip(instances, runs, strict=True):
        rank = min(network.widths)
        left, values, right_t = np.linalg.svd(network.target, full_matrices=False)
        best = (left[:, :rank] * values[:rank]) @ right_t[:rank]
        rest = 0.5 * float(np.sum(values[rank:] ** 2))
        lowest = [float(_lowest(network.problem, point)) for point in _other_points(network)]
        residuals = {
            TRUNCATED: float(np.max(np.abs(run.product[-1] - best))),
            VALUE: abs(float(run.loss[-1]) - rest),
            STRICT: max(lowest, default=-1.0),
        }
        measured.append(Measured(residuals))
    return measured


def _draw_bottleneck(rng: np.random.Generator, widths: tuple[int, ...]) -> Network:
    if min(widths) >= min(widths[0], widths[-1]):
        raise ValueError(f"A bottleneck is narrower than both ends, but widths is {widths}.")
    return draw_network(rng, widths, 0.6)


def _without_the_first(rng: np.random.Generator) -> Network:
    """Layers that do not see the largest mode, and never will."""
    network = _draw_bottleneck(rng, BOTTLENECK)
    first, last = (np.array(layer) for layer in network.layers)
    first[:, 0] = 0
    last[0] = 0
    return dataclasses.replace(network, layers=(first, last))


BOTTLENECKS = Check(
    id="network/bottleneck",
    source="Section 7, bottlenecked architectures",
    statement=(
        "With a layer of fewer units than both ends the flow converges, from generic starts, to the truncated singular "
        "value decomposition of the target; critical points of the same rank that keep other singular values are "
        "strict saddles."
    ),
    hypotheses=(
        Hypothesis("a bottleneck", lambda n: float(min(n.widths) - min(n.widths[0], n.widths[-1]) + 1)),
        Hypothesis(
            "a generic start",
            lambda n: 1e-3 - min(float(np.abs(n.layers[0][:, 0]).max()), float(np.abs(n.layers[-1][0]).max())),
        ),
    ),
    tolerances={TRUNCATED: 1e-8, VALUE: 1e-8, STRICT: -1e-3},
    measure=_measure_bottleneck,
    draw=lambda rng: _draw_bottleneck(rng, BOTTLENECK),
    sized=_draw_bottleneck,
    violations=(Violation("a start that does not see the largest mode", _without_the_first),),
)

CHECKS = (EQUATION_68, ERRATUM_SKIP, SKIP_LAWS, BOTTLENECKS)
