"""Conservation laws and their number, the norm of the layers, bounds, the reduction of the data, and related errata."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.landscape import (
    adjacency,
    adjacency_hessian_form,
    embedded,
    equal_weights,
    generic_independent_laws,
    law_counts,
    law_differentials,
    norm_bounds,
    norm_rate,
    reduce_data,
    trace_power_bounds,
    trajectory_radius,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import largest
from deeplinear.theory.network._adjacency import (
    ANOTHER_MOTION,
    BY_FLOW,
    DECAY,
    Layers,
    Moving,
    adopt_moving,
    dense_shift,
    draw_moving,
    each,
    gap_between,
    moving,
    plain_flow,
    plain_velocity,
    sized_moving,
)
from deeplinear.theory.network._networks import (
    CHAIN,
    ROUNDING,
    Network,
    adopt_network,
    draw_layers,
    draw_network,
    draw_sigma,
)

# --- The data ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Data:
    """Samples in columns, raw layers, and the inputs of which the reduction is told."""

    inputs: np.ndarray
    outputs: np.ndarray
    layers: Layers
    told: np.ndarray

    @property
    def network(self) -> Network:
        """The raw layers, for their products."""
        return Network(self.layers, np.zeros(0))


def _draw_data(rng: np.random.Generator, widths: tuple[int, ...] = CHAIN) -> Data:
    if widths[-1] > widths[0]:
        raise ValueError(f"widths must have at most as many outputs as inputs, but is {tuple(widths)}.")
    samples = widths[0] + widths[-1] + 2
    x = rng.uniform(0.5, 3.0, (widths[0], 1)) * rng.standard_normal((widths[0], samples))
    if rng.integers(4) == 0:
        left, _, right = np.linalg.svd(x, full_matrices=False)
        x = left @ right
    return Data(x, rng.standard_normal((widths[-1], samples)), draw_layers(rng, widths), x)


def _other_data(rng: np.random.Generator) -> Data:
    data = _draw_data(rng)
    return dataclasses.replace(data, told=rng.standard_normal(data.inputs.shape))


TOLD_DATA = Hypothesis[Data]("the reduction is told of these inputs", lambda d: largest([d.told - d.inputs]))
FULL_RANK = Hypothesis[Data](
    "inputs of full row rank", lambda d: float(np.linalg.cond(d.inputs)) if d.inputs.size else 1.0, 1e12
)
OTHER_DATA = Violation("the reduction of other inputs", _other_data)

REDUCED = {
    "loss against reduced loss and constant, relative": 1e-10,
    "least-squares solution against the target, relative": 1e-10,
    "singular values against those of YXᵀ(XXᵀ)^{−1/2}, relative": 1e-10,
    "layers lifted back, relative": 1e-10,
}


def _measure_reduced(data: Data) -> Measured:
    x, y = data.inputs, data.outputs
    reduction = reduce_data(data.told, y)
    raw = 0.5 * float(np.sum((y - data.network.product @ x) ** 2))
    params = tuple(jnp.asarray(layer) for layer in data.layers)
    reduced = reduction.reduce(params)
    product = Network(tuple(np.asarray(layer) for layer in reduced), np.zeros(0)).product
    target = np.zeros((y.shape[0], x.shape[0]))
    np.fill_diagonal(target, np.asarray(reduction.sigma))
    standard = 0.5 * float(np.sum((target - product) ** 2)) + float(reduction.constant)
    values, vectors = np.linalg.eigh(x @ x.T)
    best = y @ np.linalg.pinv(x)
    whitened = np.linalg.svd(y @ x.T @ (vectors / np.sqrt(values)), compute_uv=False)
    numbers = (
        abs(standard - raw) / raw,
        gap_between(np.asarray(reduction.outer).T @ best @ np.asarray(reduction.inner), target),
        gap_between(reduction.sigma, whitened),
        max(gap_between(a, b) for a, b in zip(reduction.lift(reduced), data.layers, strict=True)),
    )
    return Measured(dict(zip(REDUCED, numbers, strict=True)))


REDUCTION = Check(
    id="network/data-reduction",
    source="Appendix A.2",
    statement=(
        "With W₁ = W̄₁U_XΛ_XV_Y and W_L = U_YᵀW̄_L the loss ½‖Y − W̄_{L:1}X‖² is ½‖Σ − W_{L:1}‖² and a constant; the "
        "least-squares solution becomes Σ, the singular values of YXᵀ(XXᵀ)^{−1/2}."
    ),
    hypotheses=(TOLD_DATA, FULL_RANK),
    tolerances=REDUCED,
    measure=each(_measure_reduced),
    draw=_draw_data,
    violations=(OTHER_DATA,),
    sized=_draw_data,
)

ABSORBED = {
    "raw flow in reduced coordinates, relative": 1e-10,
    "both flows of white inputs, relative": 1e-10,
}


def _measure_absorbed(data: Data) -> Measured:
    x, y, network = data.inputs, data.outputs, data.network
    reduction = reduce_data(data.told, y)
    gap = (y - network.product @ x) @ x.T
    depth = network.depth
    raw = [network.partial(depth, j + 1).T @ gap @ network.partial(j - 1, 1).T for j in range(1, depth + 1)]
    wanted = [np.asarray(v) for v in reduction.reduce(tuple(jnp.asarray(v) for v in raw))]
    reduced = reduction.reduce(tuple(jnp.asarray(layer) for layer in data.layers))
    ours, naive = reduction.velocity(reduced, "raw"), reduction.velocity(reduced)
    scale = max(1.0, largest(wanted))
    missed = largest([a - b for a, b in zip(ours, wanted, strict=True)]) / scale
    printed = largest([a - b for a, b in zip(naive, wanted, strict=True)]) / scale
    white = largest([x @ x.T - np.eye(len(x))]) < 1e-8
    return Measured(dict(zip(ABSORBED, [missed, printed if white else 0.0], strict=True)), printed=printed)


ABSORBED_INPUTS = Check(
    id="network/absorbed-inputs",
    source="Section 2.2 and appendix A.2",
    statement=(
        "In reduced coordinates the flow of the raw layers multiplies the speed of the first layer by V_YᵀΛ_X²V_Y; it "
        "is the flow of the reduced layers if and only if XXᵀ = I."
    ),
    hypotheses=(TOLD_DATA, FULL_RANK),
    tolerances=ABSORBED,
    measure=each(_measure_absorbed),
    draw=_draw_data,
    violations=(OTHER_DATA,),
    printed="absorbing the inputs into the weights gives an equivalent formulation, the flow included.",
    printed_tolerance=1e-6,
    sized=_draw_data,
)


def _disjoint(rng: np.random.Generator) -> Data:
    """Outputs whose rows are orthogonal to those of the inputs."""
    rows = np.linalg.qr(rng.standard_normal((9, 7)))[0].T
    x, y = rng.standard_normal((4, 4)) @ rows[:4], rng.standard_normal((3, 3)) @ rows[4:]
    return Data(x, y, (), x)


def _overlapping(rng: np.random.Generator) -> Data:
    data = _disjoint(rng)
    return dataclasses.replace(data, outputs=data.outputs + 0.1 * data.inputs[:3])


VANISHING = {"largest singular value of the task": ROUNDING}

ASSUMPTION_1 = Check(
    id="network/assumption-1",
    source="Assumption 1 and equation 6",
    statement=(
        "Inputs and outputs of full row rank do not make the singular values of the task positive: where YXᵀ = 0 all "
        "of them vanish. That they are positive is an assumption of its own."
    ),
    hypotheses=(
        FULL_RANK,
        Hypothesis("outputs of full row rank", lambda d: float(np.linalg.cond(d.outputs)), 1e12),
        Hypothesis("outputs orthogonal to the inputs", lambda d: largest([d.outputs @ d.inputs.T]), ROUNDING),
    ),
    tolerances=VANISHING,
    measure=each(
        lambda d: Measured(
            {"largest singular value of the task": float(np.max(np.asarray(reduce_data(d.inputs, d.outputs).sigma)))}
        )
    ),
    draw=_disjoint,
    violations=(Violation("outputs that depend on the inputs", _overlapping),),
)


# --- The number of laws -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Counted:
    """Layers, and the rank of [W₁, W₂ᵀ] that is told; a rank of −1 for networks of more than two layers."""

    layers: Layers
    rank: int

    @property
    def true_rank(self) -> int:
        """That rank, as it is."""
        if len(self.layers) != 2:
            return -1
        return int(np.linalg.matrix_rank(np.hstack([self.layers[0], self.layers[1].T]), tol=1e-9))


def _counted(layers: Layers) -> Counted:
    return Counted(layers, Counted(layers, -1).true_rank)


def _draw_counted(rng: np.random.Generator) -> Counted:
    """Two layers of any widths up to seven, now and then of low rank."""
    inp, hidden, out = (int(d) for d in rng.integers(1, 8, 3))
    first, second = draw_layers(rng, (inp, hidden, out))
    if rng.integers(3) == 0:
        shared = rng.standard_normal((hidden, int(rng.integers(1, 3))))
        first = shared @ rng.standard_normal((shared.shape[1], inp))
        second = rng.standard_normal((out, shared.shape[1])) @ shared.T
    return _counted((first, second))


def _sized_counted(rng: np.random.Generator, widths: tuple[int, ...]) -> Counted:
    if len(widths) < 3:
        raise ValueError(f"widths must name at least two layers, but is {tuple(widths)}: one layer has no laws.")
    return _counted(draw_layers(rng, widths))


def plain_laws(layers: Layers) -> np.ndarray:
    """WᵢWᵢᵀ − Wᵢ₊₁ᵀWᵢ₊₁ on and above the diagonals."""
    both = [a @ a.T - b.T @ b for a, b in itertools.pairwise(layers)]
    return np.concatenate([c[np.triu_indices(len(c))] for c in both])


def _plain_rank(layers: Layers) -> int:
    """Rank of the differential by central differences, which are exact for quadratic functions but for rounding."""
    flat, cuts = np.concatenate([w.ravel() for w in layers]), np.cumsum([w.size for w in layers])[:-1]

    def laws(vector: np.ndarray) -> np.ndarray:
        parts = np.split(vector, cuts)
        return plain_laws(tuple(p.reshape(w.shape) for p, w in zip(parts, layers, strict=True)))

    rows = np.stack([(laws(flat + unit) - laws(flat - unit)) / 2 for unit in np.eye(len(flat))], axis=1)
    values = np.linalg.svd(rows, compute_uv=False)
    return int(np.sum(values > 1e-9 * max(values[0], 1e-300)))


COUNTS = {
    "listed laws against ½Σdᵢ(dᵢ + 1)": 0.0,
    "independent laws against the rank of their differences": 0.0,
    "independent laws against qr − q(q − 1)/2": 0.0,
}


def _measure_counts(instance: Counted) -> Measured:
    layers = instance.layers
    found = law_counts(layers)
    hidden = [layer.shape[0] for layer in layers[:-1]]
    listed, independent = sum(d * (d + 1) // 2 for d in hidden), _plain_rank(layers)
    formula = independent
    if len(layers) == 2:
        q = instance.rank
        formula = q * hidden[0] - q * (q - 1) // 2
        widths = (layers[0].shape[1], hidden[0], layers[1].shape[0])
        if q == min(hidden[0], widths[0] + widths[2]):
            formula = generic_independent_laws(widths)
    numbers = (abs(found.listed - listed), abs(found.independent - independent), abs(found.independent - formula))
    facts = {"listed": float(found.listed), "independent": float(found.independent)}
    return Measured(dict(zip(COUNTS, map(float, numbers), strict=True)), facts=facts)


def _misjudged(rng: np.random.Generator) -> Counted:
    first, second = draw_layers(rng, (1, 4, 1))
    return dataclasses.replace(_counted((first, 0 * second)), rank=2)


RANK_TOLD = Hypothesis[Counted]("the rank of [W₁, W₂ᵀ] is as told", lambda c: abs(c.rank - c.true_rank))

LAW_COUNT = Check(
    id="network/law-count",
    source="Section 3.2",
    statement=(
        "Of ½Σdᵢ(dᵢ + 1) conservation laws as many are independent at a point as the rank of their differentials; for "
        "two layers with r hidden nodes and q = rank [W₁, W₂ᵀ] these are qr − q(q − 1)/2."
    ),
    hypotheses=(RANK_TOLD,),
    tolerances=COUNTS,
    measure=each(_measure_counts),
    draw=_draw_counted,
    violations=(Violation("layers of lower rank than told", _misjudged),),
    sized=_sized_counted,
)


def _measure_single_channel(instance: Counted) -> Measured:
    """Printed: the laws outnumber the weights, and so depend on each other, only where r > 3."""
    measured = _measure_counts(instance)
    hidden = instance.layers[0].shape[0]
    dependent = measured.facts["listed"] - measured.facts["independent"]
    return dataclasses.replace(measured, printed=float(dependent) if hidden <= 3 else 0.0)


DEPENDENCE = Check(
    id="network/dependent-laws",
    source="Section 6.2.3, last paragraph",
    statement="With one input and one output the laws of r hidden nodes depend on each other from r = 3 on.",
    hypotheses=(
        RANK_TOLD,
        Hypothesis("one input and one output", lambda c: c.layers[0].shape[1] + c.layers[-1].shape[0] - 2),
        Hypothesis("independent layers", lambda c: 2 - c.true_rank if c.layers[0].shape[0] > 1 else 0),
    ),
    tolerances=COUNTS,
    measure=each(_measure_single_channel),
    draw=lambda rng: _counted(draw_layers(rng, (1, int(rng.integers(1, 7)), 1))),
    violations=(Violation("layers of lower rank than told", _misjudged),),
    printed="they do where r > 3.",
    printed_tolerance=0.0,
)


def _two_nodes(rng: np.random.Generator) -> Counted:
    """Independent, parallel, one of them zero, both zero."""
    first, second = draw_layers(rng, (1, 2, 1))
    kind = int(rng.integers(4))
    pairs = ((first, second), (first, -0.7 * first.T), (first, 0 * second), (0 * first, 0 * second))
    return _counted(pairs[kind])


def _measure_two_nodes(instance: Counted) -> Measured:
    measured = _measure_counts(instance)
    return dataclasses.replace(measured, printed=3.0 - measured.facts["independent"])


TWO_NODES = Check(
    id="network/two-hidden-nodes",
    source="Section 6.2.3",
    statement=(
        "The three laws of one input, two hidden nodes and one output are independent if and only if W₁ and W₂ᵀ are; "
        "otherwise two are, and none at the origin."
    ),
    hypotheses=(
        RANK_TOLD,
        Hypothesis("two hidden nodes", lambda c: abs(c.layers[0].shape[0] - 2)),
    ),
    tolerances=COUNTS,
    measure=each(_measure_two_nodes),
    draw=_two_nodes,
    violations=(
        Violation(
            "parallel layers told to be independent",
            lambda rng: dataclasses.replace(_counted((w := draw_layers(rng, (1, 2))[0], w.T)), rank=2),
        ),
    ),
    printed="their span has dimension 3 at every point.",
    printed_tolerance=0.0,
)

ORTHOGONAL = {"differentials of the laws along the motion, relative": ROUNDING}


def _measure_orthogonal(instance: Moving) -> Measured:
    rows = np.asarray(jax.jit(law_differentials)(instance.network.params))
    speed = np.concatenate([v.ravel() for v in instance.speed])
    sizes = np.maximum(np.linalg.norm(rows, axis=1) * np.linalg.norm(speed), 1e-300)
    return Measured(dict(zip(ORTHOGONAL, [largest([rows @ speed / sizes])], strict=True)))


DIFFERENTIALS = Check(
    id="network/law-differentials",
    source="Section 3.2, after equation 19",
    statement="The differentials of all conservation laws are orthogonal to the velocity, at every point.",
    hypotheses=(BY_FLOW,),
    tolerances=ORTHOGONAL,
    measure=each(_measure_orthogonal),
    draw=draw_moving,
    violations=(ANOTHER_MOTION, DECAY),
    sized=sized_moving,
    adopt=adopt_moving,
)

TABLE = {"rate of WᵢWᵢᵀ − Wᵢ₊₁ᵀWᵢ₊₁, relative": ROUNDING}


def _measure_table(instance: Moving) -> Measured:
    layers, speed = instance.network.layers, instance.speed
    ours, printed, scale = 0.0, 0.0, 1.0
    for k in range(len(layers) - 1):
        below = speed[k] @ layers[k].T + layers[k] @ speed[k].T
        above = speed[k + 1].T @ layers[k + 1] + layers[k + 1].T @ speed[k + 1]
        scale = max(scale, largest([below, above]))
        ours = max(ours, largest([below - above]))
        if layers[k + 1].shape[0] == layers[k].shape[0]:
            mistaken = speed[k + 1] @ layers[k + 1].T + layers[k + 1] @ speed[k + 1].T
            printed = max(printed, largest([below - mistaken]))
    return Measured(dict(zip(TABLE, [ours / scale], strict=True)), printed=printed / scale)


TABLE_1 = Check(
    id="network/table-1",
    source="Table 1, row of Cᵢ",
    statement="What is conserved is WᵢWᵢᵀ − Wᵢ₊₁ᵀWᵢ₊₁.",
    hypotheses=(
        BY_FLOW,
        Hypothesis(
            "two neighbouring layers of equal width, so that the printed form exists",
            lambda m: float(all(a != b for a, b in itertools.pairwise(m.network.widths[1:]))),
        ),
    ),
    tolerances=TABLE,
    measure=each(_measure_table),
    draw=draw_moving,
    violations=(ANOTHER_MOTION, DECAY),
    printed="Cᵢ = WᵢWᵢᵀ − Wᵢ₊₁Wᵢ₊₁ᵀ, which fits layers of equal width only and is not constant there.",
    printed_tolerance=1e-6,
    sized=sized_moving,
    adopt=adopt_moving,
)


# --- The norm ---------------------------------------------------------------------------------------------------------

NORM = {"rate of ‖A‖² against 2L⟨Σ − P, P⟩, relative": 1e-11}


def _measure_norm(instance: Moving) -> Measured:
    network = instance.network
    rate = 2 * sum(float(np.sum(w * v)) for w, v in zip(network.layers, instance.speed, strict=True))
    formula = 2 * network.depth * float(np.sum(network.residual * network.product))
    ours = float(jax.jit(norm_rate)(network.problem, network.params))
    scale = max(1.0, abs(rate))
    return Measured(dict(zip(NORM, [max(abs(rate - formula), abs(rate - ours)) / scale], strict=True)))


PROPOSITION_9 = Check(
    id="network/proposition-9",
    source="Proposition 9, equation 23",
    statement="Along the flow d‖A‖²/dt = 2L⟨E − A^L, A^L⟩.",
    hypotheses=(BY_FLOW,),
    tolerances=NORM,
    measure=each(_measure_norm),
    draw=draw_moving,
    violations=(ANOTHER_MOTION, DECAY),
    sized=lambda rng, widths: moving(draw_network(rng, widths)),
    adopt=adopt_moving,
)


@dataclasses.dataclass(frozen=True)
class Equal:
    """A network whose weights are all equal, and by how much they exceed those at which the norm rests."""

    sigma: np.ndarray
    widths: tuple[int, ...]
    factor: float = 1.0

    @property
    def network(self) -> Network:
        """The layers."""
        layers = equal_weights(self.sigma, self.widths)
        return Network(tuple(self.factor * np.asarray(layer) for layer in layers), self.sigma)


MOVING = 1e-3
"""What is larger than this is not zero, in networks with numbers of order one."""

RESTING = {
    "rate of ‖A‖²": 1e-11,
    "how far (A^{L−1})ᵀ(E − A^L) is below a thousandth": 0.0,
    "how far the velocity is below a thousandth": 0.0,
}


def _measure_resting(instance: Equal) -> Measured:
    network = instance.network
    flat = dense_shift(network.layers, network.widths, 1)
    goal = dense_shift((network.target,), network.widths, network.depth)
    below, top = (np.linalg.matrix_power(flat, k) for k in (network.depth - 1, network.depth))
    rate = float(norm_rate(network.problem, network.params))
    plain = 2 * network.depth * float(np.sum(network.residual * network.product))
    numbers = (
        max(abs(rate), abs(plain)),
        MOVING - largest([below.T @ (goal - top)]),
        MOVING - largest(plain_velocity(network)),
    )
    printed = MOVING - largest([below @ (goal - top)])
    return Measured(dict(zip(RESTING, numbers, strict=True)), printed=printed)


def _sized_equal(rng: np.random.Generator, widths: tuple[int, ...]) -> Equal:
    if len(widths) < 3:
        raise ValueError(f"widths must name at least two layers, but is {tuple(widths)}.")
    return Equal(draw_sigma(rng, min(widths[0], widths[-1])), tuple(widths))


EQUAL_WEIGHTS = Check(
    id="network/equal-weights",
    source="Proof of Proposition 9",
    statement=(
        "Equal weights a with a^L = Σσᵢ/(d₀d₁⋯d_L) keep ‖A‖ at rest although they are not critical: "
        "(A^{L−1})ᵀ(E − A^L) ≠ 0."
    ),
    hypotheses=(
        Hypothesis("the weight of the formula", lambda e: abs(e.factor - 1)),
        Hypothesis(
            "different singular values, or more inputs than outputs",
            lambda e: float(e.widths[0] == e.widths[-1] and np.ptp(e.sigma) == 0),
        ),
    ),
    tolerances=RESTING,
    measure=each(_measure_resting),
    draw=lambda rng: _sized_equal(rng, CHAIN),
    violations=(Violation("a larger weight", lambda rng: dataclasses.replace(_sized_equal(rng, CHAIN), factor=1.1)),),
    printed="they are not critical since A^{L−1}(E − A^L) ≠ 0, which vanishes for every network of two layers or more.",
    printed_tolerance=0.0,
    sized=_sized_equal,
)


# --- Bounds -----------------------------------------------------------------------------------------------------------


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
    lower, _, upper = (float(x) for x in jax.jit(norm_bounds)(instance.told.params))
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


# --- Expansions -------------------------------------------------------------------------------------------------------


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
    e, directions = embedded(jnp.asarray(network.target), network.widths), tuple(jnp.asarray(v) for v in told)
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


CHECKS = (
    REDUCTION,
    ABSORBED_INPUTS,
    ASSUMPTION_1,
    LAW_COUNT,
    DEPENDENCE,
    TWO_NODES,
    DIFFERENTIALS,
    TABLE_1,
    PROPOSITION_9,
    EQUAL_WEIGHTS,
    LEMMA_37,
    PROPOSITION_12,
    LEMMA_38,
    VARIATIONS,
    LOSS_AT_ORIGIN,
)
"""Statements on conservation laws, norms, bounds and data."""
