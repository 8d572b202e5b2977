"""Variants of the flow: a penalty, steps of finite length, few measurements, skip connections, bottlenecks."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import HypothesisError, Params
from deeplinear.dynamics import GradientDescent
from deeplinear.landscape import descent_drift
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
    adopt_network,
    draw_layers,
    draw_network,
)

FLOWN = 1e-9
"""What flows at tolerance 1e-12 miss an identity by."""

DIFFERENCES = 1e-6
"""What central differences with steps of 1e-5 miss a gradient of order ten by."""


def _laws(layers: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [above.T @ above - below @ below.T for below, above in itertools.pairwise(layers)]


def _final(run: Run) -> tuple[np.ndarray, ...]:
    return tuple(layer[-1] for layer in run.layers)


def _velocity(layers: Sequence[np.ndarray], target: np.ndarray) -> tuple[np.ndarray, ...]:
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


# --- A penalty --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Penalised:
    """A network that learns with the penalty `l2`, where the statement is made for the penalty `told`."""

    network: Network
    l2: float
    told: float

    @property
    def problem(self) -> Problem:
        return Problem(DeepLinear(self.network.widths), SquaredDistance(self.network.target), self.l2)


TOLD: Hypothesis[Penalised] = Hypothesis("γ is the penalty", lambda penalised: abs(penalised.l2 - penalised.told))

FIELD = "velocity against the adjacency form with −γA"
DECAY = "C(t) misses e^{−2γt}C(0) by"


def _adjacency_speed(network: Network, gamma: float) -> list[np.ndarray]:
    """Blocks of Σ_j (A^{L−j})ᵀ(E − A^L)(A^{j−1})ᵀ − γA, from the dense matrix of the whole network."""
    places = np.concatenate([[0], np.cumsum(network.widths)])
    spans = [slice(a, b) for a, b in itertools.pairwise(places)]
    a = np.zeros((places[-1], places[-1]))
    for number, layer in enumerate(network.layers):
        a[spans[number + 1], spans[number]] = layer
    e = np.zeros_like(a)
    e[spans[-1], spans[0]] = network.target
    powers = [np.linalg.matrix_power(a, k) for k in range(network.depth + 1)]
    speed = -gamma * a
    for j in range(1, network.depth + 1):
        speed += powers[network.depth - j].T @ (e - powers[-1]) @ powers[j - 1].T
    return [speed[spans[number + 1], spans[number]] for number in range(network.depth)]


def _measure_decay(instances: Sequence[Penalised]) -> list[Measured]:
    times = (0.0, 0.5, 1.5)
    runs = flows([p.problem for p in instances], [p.network.params for p in instances], times)
    measured = []
    for penalised, run in zip(instances, runs, strict=True):
        network = penalised.network
        own = penalised.problem.gradient(network.params)
        wanted = _adjacency_speed(network, penalised.told)
        gap = largest(np.asarray(g) + v for g, v in zip(own, wanted, strict=True)) / (1 + largest(wanted))
        first, worst = _laws([layer[0] for layer in run.layers]), 0.0
        for k, t in enumerate(run.times):
            now = _laws([layer[k] for layer in run.layers])
            factor = np.exp(-2 * penalised.told * t)
            worst = max(worst, largest(c - factor * c0 for c, c0 in zip(now, first, strict=True)))
        measured.append(Measured({FIELD: gap, DECAY: worst / (1 + largest(first))}))
    return measured


def _draw_penalised(rng: np.random.Generator, widths: tuple[int, ...]) -> Penalised:
    if len(widths) < 3:
        raise ValueError(f"The statement is about networks with hidden layers, but widths is {widths}.")
    gamma = rng.uniform(0.1, 0.5)
    return Penalised(draw_network(rng, widths, 0.6), gamma, gamma)


def _adopt_penalised(problem: Problem, params: Params) -> Penalised:
    gamma = float(problem.l2)
    bare = Problem(problem.model, problem.loss)
    return Penalised(adopt_network(bare, params), gamma, gamma)


def _other_penalty(penalised: Penalised) -> Penalised:
    return dataclasses.replace(penalised, told=1.5 * penalised.l2)


PROPOSITION_10 = Check(
    id="network/proposition-10",
    source="Proposition 10",
    statement=(
        "With the penalty (γ/2)‖A‖² the flow has the further term −γA, and the conserved quantities decay: "
        "C(t) = e^{−2γt}C(0)."
    ),
    hypotheses=(TOLD,),
    tolerances={FIELD: ROUNDING, DECAY: FLOWN},
    measure=_measure_decay,
    draw=lambda rng: _draw_penalised(rng, CHAIN),
    sized=_draw_penalised,
    adopt=_adopt_penalised,
    violations=(Violation("another penalty", lambda rng: _other_penalty(_draw_penalised(rng, CHAIN))),),
)

SOFT = "limit misses max(σ − γ, 0) by"


def _measure_threshold(instances: Sequence[Penalised]) -> list[Measured]:
    runs = flows([p.problem for p in instances], [p.network.params for p in instances], (0.0, 150.0))
    measured = []
    for penalised, run in zip(instances, runs, strict=True):
        network = penalised.network
        wanted = np.zeros_like(network.target)
        places = np.arange(len(network.sigma))
        wanted[places, places] = np.maximum(network.sigma - penalised.told, 0)
        measured.append(Measured({SOFT: float(np.max(np.abs(run.product[-1] - wanted)))}))
    return measured


def _draw_threshold(rng: np.random.Generator, widths: tuple[int, ...]) -> Penalised:
    """A penalty below all singular values or between the two smallest, at least a fifth away from each."""
    if len(widths) != 3 or widths[1] < min(widths):
        raise ValueError(f"The statement is about two layers without a bottleneck, but widths is {widths}.")
    network = draw_network(rng, widths, 0.6)
    sigma = network.sigma
    between = len(sigma) > 1 and rng.random() < 0.5
    gamma = float(sigma[-2:].mean()) if between else float(sigma[-1]) / 2
    return Penalised(network, gamma, gamma)


SOFT_THRESHOLD = Check(
    id="network/soft-threshold",
    source="derived from Proposition 10",
    statement="Two layers with the penalty γ converge to the soft threshold of the target: σ becomes max(σ − γ, 0).",
    hypotheses=(
        TOLD,
        Hypothesis("two layers", lambda penalised: float(abs(penalised.network.depth - 2))),
        Hypothesis(
            "γ is not near a singular value",
            lambda penalised: 0.19 - float(np.min(np.abs(penalised.network.sigma - penalised.l2))),
        ),
    ),
    tolerances={SOFT: FLOWN},
    measure=_measure_threshold,
    draw=lambda rng: _draw_threshold(rng, FUNNEL),
    sized=_draw_threshold,
    violations=(Violation("another penalty", lambda rng: _other_penalty(_draw_threshold(rng, FUNNEL))),),
)

# --- Steps of finite length -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Descent:
    """A network that descends with a learning rate towards its target, where the statement has the target `told`."""

    network: Network
    lr: float
    told: np.ndarray


SAME: Hypothesis[Descent] = Hypothesis(
    "the same target", lambda descent: float(np.max(np.abs(descent.network.target - descent.told)))
)


def _draw_descent(rng: np.random.Generator, widths: tuple[int, ...]) -> Descent:
    if len(widths) < 3:
        raise ValueError(f"The statement is about networks with hidden layers, but widths is {widths}.")
    network = draw_network(rng, widths, 0.6)
    return Descent(network, 10 ** rng.uniform(-3, -1), network.target)


def _other_target(descent: Descent) -> Descent:
    return dataclasses.replace(descent, told=2 * descent.told)


def _adopt_descent(problem: Problem, params: Params) -> Descent:
    network = adopt_network(problem, params)
    if network.depth < 2:
        raise HypothesisError("hidden layers", 2.0 - network.depth, 0.0, "Take a deeper network.")
    return Descent(network, 0.01, network.target)


EXACT = "C after a step misses C + η²(…), relative, by"
REPORTED = "descent_drift misses η²(…), relative, by"


def _measure_step(instances: Sequence[Descent]) -> list[Measured]:
    measured = []
    for descent in instances:
        network, eta = descent.network, descent.lr
        update = GradientDescent(eta)
        after, _ = update.step(network.problem, network.params, None, jax.random.key(0))
        speeds = _velocity(network.layers, descent.told)
        drifts = [eta**2 * (above.T @ above - below @ below.T) for below, above in itertools.pairwise(speeds)]
        before, now = _laws(network.layers), _laws([np.asarray(layer) for layer in after])
        size = 1 + largest(before) + largest(now)
        missed = largest(c1 - c0 - d for c1, c0, d in zip(now, before, drifts, strict=True)) / size
        told = descent_drift(network.problem, network.params, eta)
        gap = largest(np.asarray(a) - b for a, b in zip(told, drifts, strict=True)) / (1 + largest(drifts))
        measured.append(Measured({EXACT: missed, REPORTED: gap}))
    return measured


EQUATION_67 = Check(
    id="network/equation-67",
    source="Section 7, equation 67",
    statement=(
        "A step of gradient descent changes the conserved quantities by exactly η²(G_{l+1}ᵀG_{l+1} − G_lG_lᵀ) with the "
        "gradients before the step."
    ),
    hypotheses=(SAME,),
    tolerances={EXACT: 1e-13, REPORTED: 1e-13},
    measure=_measure_step,
    draw=lambda rng: _draw_descent(rng, FUNNEL if rng.random() < 0.5 else CHAIN),
    sized=_draw_descent,
    adopt=_adopt_descent,
    violations=(Violation("gradients of another target", lambda rng: _other_target(_draw_descent(rng, CHAIN))),),
)

RATIO = "error of the longer step over that of half of it differs from 2 by"
HORIZON, STEPS = 1.0, 256


def _descend(descent: Descent, steps: int) -> tuple[np.ndarray, ...]:
    layers = descent.network.layers
    for _ in range(steps):
        speeds = _velocity(layers, descent.told)
        layers = tuple(w + HORIZON / steps * v for w, v in zip(layers, speeds, strict=True))
    return layers


def _measure_order(instances: Sequence[Descent]) -> list[Measured]:
    runs = flows([d.network.problem for d in instances], [d.network.params for d in instances], (0.0, HORIZON))
    measured = []
    for descent, run in zip(instances, runs, strict=True):
        errors = [
            np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(_descend(descent, steps), _final(run), strict=True)))
            for steps in (STEPS, 2 * STEPS)
        ]
        ratio = float(errors[0] / errors[1])
        measured.append(Measured({RATIO: abs(ratio - 2)}, facts={"error": float(errors[0]), "ratio": ratio}))
    return measured


DESCENT_ORDER = Check(
    id="network/descent-against-flow",
    source="Section 7, equation 67",
    statement="Gradient descent approaches the flow to first order: half the step, half the error.",
    hypotheses=(SAME,),
    tolerances={RATIO: 0.2},
    measure=_measure_order,
    draw=lambda rng: _draw_descent(rng, CHAIN),
    sized=_draw_descent,
    violations=(Violation("the flow of another target", lambda rng: _other_target(_draw_descent(rng, CHAIN))),),
)

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
        params = tuple(jnp.asarray(layer) for layer in given.layers)
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
        recovered = float(Sensing(of_samples, given.outputs.reshape(-1)).value(jnp.asarray(product)))
        plain = 0.5 * float(np.sum((given.outputs - product @ given.inputs) ** 2))
        target = given.outputs @ given.inputs.T
        rows, columns = np.nonzero(given.mask)
        of_entries = np.zeros((len(rows), *product.shape))
        of_entries[np.arange(len(rows)), rows, columns] = 1
        listed = np.asarray(Sensing(of_entries, target[rows, columns]).gradient(jnp.asarray(product)))
        masked = np.asarray(Completion(target, given.mask).gradient(jnp.asarray(product)))
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
        params = skip.embed(tuple(jnp.asarray(layer) for layer in skipped.layers))
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
        params = skip.embed(tuple(jnp.asarray(layer) for layer in skipped.layers))
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
            layers.append(jnp.asarray(layer))
        points.append(tuple(layers))
    return points


@jax.jit
def _lowest(problem: Problem, params: Params) -> jax.Array:
    return jnp.linalg.eigvalsh(problem.hessian(params))[0]


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

CHECKS = (
    PROPOSITION_10,
    SOFT_THRESHOLD,
    EQUATION_67,
    DESCENT_ORDER,
    EQUATION_68,
    ERRATUM_SKIP,
    SKIP_LAWS,
    BOTTLENECKS,
)
"""Statements on variants of the flow."""
