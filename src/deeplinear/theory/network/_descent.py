"""Statements on the flow with a penalty, and on steps of finite length."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from deeplinear.core import HypothesisError, Params, random
from deeplinear.dynamics import GradientDescent
from deeplinear.landscape import descent_drift
from deeplinear.models import (
    DeepLinear,
    Problem,
    SquaredDistance,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import flows, largest
from deeplinear.theory.network._networks import (
    CHAIN,
    FUNNEL,
    ROUNDING,
    Network,
    adopt_network,
    draw_network,
    laws_of,
)
from deeplinear.theory.network._variants import FLOWN, final_layers, velocity_of


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
        first, worst = laws_of([layer[0] for layer in run.layers]), 0.0
        for k, t in enumerate(run.times):
            now = laws_of([layer[k] for layer in run.layers])
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
        after, _ = update.step(network.problem, network.params, None, random.key(0))
        speeds = velocity_of(network.layers, descent.told)
        drifts = [eta**2 * (above.T @ above - below @ below.T) for below, above in itertools.pairwise(speeds)]
        before, now = laws_of(network.layers), laws_of([np.asarray(layer) for layer in after])
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
        speeds = velocity_of(layers, descent.told)
        layers = tuple(w + HORIZON / steps * v for w, v in zip(layers, speeds, strict=True))
    return layers


def _measure_order(instances: Sequence[Descent]) -> list[Measured]:
    runs = flows([d.network.problem for d in instances], [d.network.params for d in instances], (0.0, HORIZON))
    measured = []
    for descent, run in zip(instances, runs, strict=True):
        errors = [
            np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(_descend(descent, steps), final_layers(run), strict=True)))
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

CHECKS = (PROPOSITION_10, SOFT_THRESHOLD, EQUATION_67, DESCENT_ORDER)
