"""The network as one matrix: block calculus, loss and flow, decompositions, numerical range."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from deeplinear.core import Array, Params, formula, xp
from deeplinear.landscape import (
    BlockShift,
    adjacency,
    adjacency_loss,
    adjacency_velocity,
    embedded,
    imbalance,
    imbalance_rate,
)
from deeplinear.models import Problem
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import largest
from deeplinear.theory.network._networks import (
    CHAIN,
    ROUNDING,
    Layers,
    Network,
    adopt_network,
    draw_network,
    each,
)

TIMES = (0.0, 0.3, 1.0)
"""When flows are looked at."""


def edges_of(widths: Sequence[int]) -> np.ndarray:
    """Where the groups of nodes begin and end."""
    return np.concatenate([[0], np.cumsum(widths)])


def dense_shift(blocks: Sequence[np.ndarray], widths: Sequence[int], shift: int) -> np.ndarray:
    """Blocks k rows below the diagonal, by plain indexing."""
    edges = edges_of(widths)
    result = np.zeros((edges[-1], edges[-1]))
    for m, block in enumerate(blocks):
        result[edges[m + shift] : edges[m + shift + 1], edges[m] : edges[m + 1]] = block
    return result


def plain_velocity(network: Network) -> Layers:
    """W_{L:j+1}ᵀ (Σ − W_{L:1}) W_{j−1:1}ᵀ by plain products."""
    depth, gap = network.depth, network.residual
    return tuple(network.partial(depth, j + 1).T @ gap @ network.partial(j - 1, 1).T for j in range(1, depth + 1))


def plain_flow(network: Network, l2: float = 0.0) -> list[Layers]:
    """Layers at TIMES under the flow, by SciPy at a tolerance far below those of the statements."""
    from scipy.integrate import solve_ivp

    cuts = np.cumsum([layer.size for layer in network.layers])[:-1]

    def split(vector: np.ndarray) -> Layers:
        parts = np.split(vector, cuts)
        return tuple(part.reshape(w.shape) for part, w in zip(parts, network.layers, strict=True))

    target = network.target

    def field(t: float, vector: np.ndarray) -> np.ndarray:
        layers = split(vector)
        below = [np.eye(target.shape[1])]
        for layer in layers:
            below.append(layer @ below[-1])
        back, speeds = target - below[-1], []
        for layer, prefix in zip(reversed(layers), reversed(below[:-1]), strict=True):
            speeds.append((back @ prefix.T).ravel())
            back = layer.T @ back
        return np.concatenate(speeds[::-1]) - l2 * vector

    start = np.concatenate([layer.ravel() for layer in network.layers])
    run = solve_ivp(field, (0.0, TIMES[-1]), start, method="DOP853", t_eval=TIMES, rtol=1e-12, atol=1e-14)
    if not run.success:
        raise RuntimeError(f"The flow of a network of widths {network.widths} was not computed: {run.message}")
    return [split(vector) for vector in run.y.T]


def gap_between(left: object, right: object) -> float:
    """Largest difference, relative to the largest entry of either or to one."""
    a, b = np.asarray(left), np.asarray(right)
    return float(np.max(np.abs(a - b), initial=0.0) / max(1.0, largest([a, b])))


# --- Networks, and matrices that have more connections than a network has ---------------------------------------------


@dataclasses.dataclass(frozen=True)
class Wired:
    """A network, and connections beside those of its layers."""

    network: Network
    extra: np.ndarray

    @property
    def dense(self) -> np.ndarray:
        """All connections as one matrix."""
        return dense_shift(self.network.layers, self.network.widths, 1) + self.extra

    @property
    def goal(self) -> np.ndarray:
        """The target as a matrix of all nodes."""
        return dense_shift((self.network.target,), self.network.widths, self.network.depth)


def wired(network: Network) -> Wired:
    """The network and nothing else."""
    nodes = sum(network.widths)
    return Wired(network, np.zeros((nodes, nodes)))


def looped(rng: np.random.Generator) -> Wired:
    """A network with a node that is connected to itself."""
    network = draw_network(rng, CHAIN)
    extra = wired(network).extra
    extra[network.widths[0], network.widths[0]] = 0.7
    return Wired(network, extra)


def skipping(rng: np.random.Generator) -> Wired:
    """A network with a connection that leaves out a layer."""
    network = draw_network(rng, CHAIN)
    extra = wired(network).extra
    extra[network.widths[0] + network.widths[1], 0] = 0.7
    return Wired(network, extra)


LAYERED = Hypothesis[Wired]("connections between neighbouring layers only", lambda w: largest([w.extra]))
LOOP, SKIP = Violation("a node connected to itself", looped), Violation("a connection that skips a layer", skipping)


def draw_wired(rng: np.random.Generator) -> Wired:
    """A Gaussian network of three layers."""
    return wired(draw_network(rng, CHAIN))


def sized_wired(rng: np.random.Generator, widths: tuple[int, ...]) -> Wired:
    """A Gaussian network of given widths."""
    return wired(draw_network(rng, widths))


def adopt_wired(problem: Problem, params: Params) -> Wired:
    """The network of a given problem."""
    return wired(adopt_network(problem, params))


CALCULUS = {
    "powers against partial products, relative": ROUNDING,
    "power L + 1, relative": ROUNDING,
    "one insertion, relative": ROUNDING,
    "two insertions, relative": ROUNDING,
}


@formula
def _structured(params: Params, inserted: Params) -> tuple[list[Array], list[Array], list[Array]]:
    """Powers up to L + 1, one insertion and two insertions by block-shift algebra, written out at the end."""
    a, v = adjacency(params), adjacency(inserted)
    depth = a.depth
    powers = [a.power(0)]
    for _ in range(depth + 1):
        powers.append(a @ powers[-1])
    once = [powers[depth - j] @ v @ powers[j - 1] for j in range(1, depth + 1)]
    twice = [
        powers[depth - j - k] @ v @ powers[j - 1] @ v @ powers[k - 1]
        for j in range(1, depth + 1)
        for k in range(1, depth - j + 1)
    ]
    return [p.dense() for p in powers], [p.dense() for p in once], [p.dense() for p in twice]


def _measure_calculus(instance: Wired) -> Measured:
    network, flat = instance.network, instance.dense
    depth, widths = network.depth, network.widths
    moved = dense_shift(network.direction, widths, 1)
    inserted = tuple(xp.asarray(layer, dtype=float) for layer in network.direction)
    ours, ones, twos = ([np.asarray(m) for m in part] for part in _structured(network.params, inserted))
    pairs = iter(twos)
    powers = [np.eye(len(flat))]
    for _ in range(depth):
        powers.append(flat @ powers[-1])
    scale = max(1.0, largest(powers))
    worst = 0.0
    for k in range(depth + 1):
        parts = [network.partial(m + k, m + 1) for m in range(depth + 1 - k)]
        worst = max(worst, largest([powers[k] - dense_shift(parts, widths, k), powers[k] - ours[k]]))
    once, twice, size = 0.0, 0.0, 1.0
    for j in range(1, depth + 1):
        found = powers[depth - j] @ moved @ powers[j - 1]
        wanted = network.partial(depth, j + 1) @ network.direction[j - 1] @ network.partial(j - 1, 1)
        size = max(size, largest([wanted]))
        once = max(once, largest([found - dense_shift((wanted,), widths, depth), found - ones[j - 1]]))
        for k in range(1, depth - j + 1):
            found = powers[depth - j - k] @ moved @ powers[j - 1] @ moved @ powers[k - 1]
            wanted = network.partial(depth, j + k + 1) @ network.direction[j + k - 1]
            wanted = wanted @ network.partial(j + k - 1, k + 1) @ network.direction[k - 1] @ network.partial(k - 1, 1)
            twice = max(twice, largest([found - dense_shift((wanted,), widths, depth), found - next(pairs)]))
            size = max(size, largest([wanted]))
    nothing = largest([flat @ powers[-1], ours[depth + 1]])
    numbers = (worst / scale, nothing / scale, once / size, twice / size)
    return Measured(dict(zip(CALCULUS, numbers, strict=True)))


BLOCK_CALCULUS = Check(
    id="network/block-calculus",
    source="Section 2.1.1",
    statement=(
        "The k-th power of the adjacency matrix holds the products of k consecutive layers, power L holds the whole "
        "product, power L + 1 is zero; a matrix inserted among powers is inserted among the layers."
    ),
    hypotheses=(LAYERED,),
    tolerances=CALCULUS,
    measure=each(_measure_calculus),
    draw=draw_wired,
    violations=(LOOP, SKIP),
    sized=sized_wired,
    adopt=adopt_wired,
)

ONE_MATRIX = {
    "loss of the matrix against loss of the layers, relative": ROUNDING,
    "velocity of the matrix against velocities of the layers, relative": ROUNDING,
    "gradient over all matrices against velocity, relative": ROUNDING,
    "gradient over all matrices off the layers, relative": ROUNDING,
    "gradient over all matrices against a complex step, relative": ROUNDING,
}


@formula
def _loss_and_velocity(params: Params, target: Array) -> tuple[Array, BlockShift]:
    a = adjacency(params)
    e = embedded(target, a.widths)
    return adjacency_loss(a, e), adjacency_velocity(a, e)


def _measure_one_matrix(instance: Wired) -> Measured:
    network, flat, goal = instance.network, instance.dense, instance.goal
    depth = network.depth
    value, velocity = _loss_and_velocity(network.params, xp.asarray(network.target, dtype=float))
    powers = [np.linalg.matrix_power(flat, k) for k in range(depth + 1)]
    gap = goal - powers[depth]
    unbound = sum(powers[depth - j].T @ gap @ powers[j - 1].T for j in range(1, depth + 1))
    loss = 0.5 * float(np.sum(network.residual**2))
    pattern = dense_shift([np.ones_like(layer) for layer in network.layers], network.widths, 1)
    direction = np.random.default_rng(0).standard_normal(flat.shape)
    step = 1e-30
    turned = goal - np.linalg.matrix_power(flat + 1j * step * direction, depth)
    slope = -0.5 * float(np.imag(np.sum(turned**2))) / step
    scale = max(1.0, largest([unbound]))
    numbers = (
        abs(float(value) - loss) / max(1.0, loss),
        max(gap_between(a, b) for a, b in zip(velocity.layers, plain_velocity(network), strict=True)),
        gap_between(unbound * pattern, velocity.dense()),
        largest([unbound * (1 - pattern)]) / scale,
        abs(slope - float(np.sum(unbound * direction))) / (scale * len(flat)),
    )
    return Measured(dict(zip(ONE_MATRIX, numbers, strict=True)))


PROPOSITION_4 = Check(
    id="network/proposition-4",
    source="Proposition 4",
    statement=(
        "The loss is ½‖E − A^L‖² and the flow Ȧ = Σⱼ (A^{L−j})ᵀ(E − A^L)(A^{j−1})ᵀ; the gradient over all matrices "
        "vanishes off the layers."
    ),
    hypotheses=(LAYERED,),
    tolerances=ONE_MATRIX,
    measure=each(_measure_one_matrix),
    draw=draw_wired,
    violations=(LOOP, SKIP),
    sized=sized_wired,
    adopt=adopt_wired,
)

INVARIANT = {"largest weight off the layers": 0.0, "A^{L+1}, relative": 0.0, "traces of powers, relative": 0.0}


def _measure_invariant(instance: Wired) -> Measured:
    """The flow of all entries of the matrix, which knows nothing of layers."""
    from scipy.integrate import solve_ivp

    network, goal = instance.network, instance.goal
    depth, nodes = network.depth, len(goal)

    def field(t: float, y: np.ndarray) -> np.ndarray:
        powers = [np.eye(nodes)]
        for _ in range(depth):
            powers.append(y.reshape(nodes, nodes) @ powers[-1])
        gap = goal - powers[depth]
        speed = np.zeros((nodes, nodes))
        for j in range(1, depth + 1):
            speed += powers[depth - j].T @ gap @ powers[j - 1].T
        return speed.ravel()

    run = solve_ivp(field, (0.0, TIMES[1]), instance.dense.ravel(), rtol=1e-6, atol=1e-8)
    end = run.y[:, -1].reshape(nodes, nodes)
    pattern = dense_shift([np.ones_like(layer) for layer in network.layers], network.widths, 1)
    powers = [np.linalg.matrix_power(end, k) for k in range(1, nodes + 1)]
    numbers = (
        largest([end * (1 - pattern)]),
        largest([powers[depth]]) if depth < nodes else 0.0,
        max(abs(float(np.trace(p))) for p in powers),
    )
    return Measured(dict(zip(INVARIANT, numbers, strict=True)), facts={"time": float(run.t[-1])})


PROPOSITION_5 = Check(
    id="network/proposition-5",
    source="Proposition 5",
    statement="The flow of all entries of A makes no connections off the layers; A stays nilpotent, its spectrum {0}.",
    hypotheses=(LAYERED,),
    tolerances=INVARIANT,
    measure=each(_measure_invariant),
    draw=draw_wired,
    violations=(LOOP,),
    sized=sized_wired,
    adopt=adopt_wired,
)


# --- Non-normality ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Moving:
    """A network and how its layers move: by the flow of its loss, or otherwise."""

    network: Network
    speed: Layers
    l2: float = 0.0


def moving(network: Network) -> Moving:
    """A network that moves by the gradient flow."""
    return Moving(network, plain_velocity(network))


def elsewhere(rng: np.random.Generator) -> Moving:
    """A network whose layers move in a random direction."""
    network = draw_network(rng, CHAIN)
    return Moving(network, network.direction)


def decaying(rng: np.random.Generator) -> Moving:
    """A network whose layers also decay."""
    network = draw_network(rng, CHAIN)
    speed = tuple(v - 0.3 * w for v, w in zip(plain_velocity(network), network.layers, strict=True))
    return Moving(network, speed, 0.3)


def draw_moving(rng: np.random.Generator) -> Moving:
    """A Gaussian network."""
    return moving(draw_network(rng, CHAIN))


def sized_moving(rng: np.random.Generator, widths: tuple[int, ...]) -> Moving:
    """A Gaussian network of given widths, of two layers or more."""
    if len(widths) < 3:
        raise ValueError(f"widths must name at least two layers, but is {tuple(widths)}: one layer has no laws.")
    return moving(draw_network(rng, widths))


def adopt_moving(problem: Problem, params: Params) -> Moving:
    """The network of a given problem."""
    return moving(adopt_network(problem, params))


BY_FLOW = Hypothesis[Moving](
    "layers move by the flow of the loss",
    lambda m: largest([a - b for a, b in zip(m.speed, plain_velocity(m.network), strict=True)]),
)
ANOTHER_MOTION = Violation("another motion", elsewhere)
DECAY = Violation("layers that also decay", decaying)


def commutator(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """AB − BA."""
    return left @ right - right @ left


def _rates(instance: Moving) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dQ/dt from the motion itself, A^L and E."""
    network = instance.network
    widths, depth = network.widths, network.depth
    flat = dense_shift(network.layers, widths, 1)
    speed = dense_shift(instance.speed, widths, 1)
    rate = commutator(speed, flat.T) + commutator(flat, speed.T)
    return rate, np.linalg.matrix_power(flat, depth), dense_shift((network.target,), widths, depth)


KEPT = {
    "Q against [A, Aᵀ], relative": ROUNDING,
    "dQ/dt against X + Xᵀ, relative": ROUNDING,
    "dQ/dt at the hidden nodes, relative": ROUNDING,
    "drift of the conserved quantities along the flow, relative": 1e-10,
}


@formula
def _imbalance(params: Params, target: Array) -> tuple[Array, Array]:
    a = adjacency(params)
    return imbalance(a).dense(), imbalance_rate(a, embedded(target, a.widths)).dense()


def _measure_kept(instance: Moving) -> Measured:
    network = instance.network
    flat = dense_shift(network.layers, network.widths, 1)
    now, ours = _imbalance(network.params, xp.asarray(network.target, dtype=float))
    rate, top, goal = _rates(instance)
    half = commutator(top, (goal - top).T)
    inner = slice(network.widths[0], len(flat) - network.widths[-1])
    scale = max(1.0, largest([rate]))
    laws = [[a @ a.T - b.T @ b for a, b in itertools.pairwise(layers)] for layers in plain_flow(network, instance.l2)]
    drift = [c - first for later in laws for c, first in zip(later, laws[0], strict=True)]
    numbers = (
        gap_between(now, commutator(flat, flat.T)),
        largest([rate - half - half.T, rate - ours]) / scale,
        largest([rate[inner, inner]]) / scale,
        largest(drift) / max(1.0, largest(laws[0])),
    )
    return Measured(dict(zip(KEPT, numbers, strict=True)))


PROPOSITION_6 = Check(
    id="network/proposition-6",
    source="Proposition 6, equation 18",
    statement=(
        "WᵢWᵢᵀ − Wᵢ₊₁ᵀWᵢ₊₁, the blocks of Q = [A, Aᵀ] at the hidden nodes, are constant along the flow; dQ/dt = X + Xᵀ "
        "with X = [A^L, (E − A^L)ᵀ]."
    ),
    hypotheses=(BY_FLOW,),
    tolerances=KEPT,
    measure=each(_measure_kept),
    draw=draw_moving,
    violations=(ANOTHER_MOTION, DECAY),
    sized=sized_moving,
    adopt=adopt_moving,
)

EXPANDED = {"dQ/dt against its expanded form, relative": ROUNDING}


def _measure_expanded(instance: Moving) -> Measured:
    rate, top, goal = _rates(instance)
    half, normal = commutator(top, goal.T), commutator(top, top.T)
    scale = max(1.0, largest([rate]))
    ours, printed = (largest([rate - half - half.T + sign * 2 * normal]) / scale for sign in (1, -1))
    return Measured(dict(zip(EXPANDED, [ours], strict=True)), printed=printed)


EQUATION_19 = Check(
    id="network/equation-19",
    source="Equation 19, last line",
    statement="dQ/dt = Y + Yᵀ − 2[A^L, (A^L)ᵀ] with Y = [A^L, Eᵀ].",
    hypotheses=(BY_FLOW,),
    tolerances=EXPANDED,
    measure=each(_measure_expanded),
    draw=draw_moving,
    violations=(ANOTHER_MOTION, DECAY),
    printed="the last term has a plus sign.",
    printed_tolerance=1e-6,
    sized=sized_moving,
    adopt=adopt_moving,
)

CHECKS = (BLOCK_CALCULUS, PROPOSITION_4, PROPOSITION_5, PROPOSITION_6, EQUATION_19)
