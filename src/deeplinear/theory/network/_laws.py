"""Conservation laws and their number, the norm of the layers, bounds, the reduction of the data, and related errata."""

import dataclasses
import itertools

import numpy as np

from deeplinear.landscape import (
    equal_weights,
    generic_independent_laws,
    law_counts,
    law_differentials,
    norm_rate,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import largest
from deeplinear.theory.network._adjacency import (
    ANOTHER_MOTION,
    BY_FLOW,
    DECAY,
    Moving,
    adopt_moving,
    dense_shift,
    draw_moving,
    moving,
    plain_velocity,
    sized_moving,
)
from deeplinear.theory.network._networks import (
    CHAIN,
    ROUNDING,
    Layers,
    Network,
    draw_layers,
    draw_network,
    draw_sigma,
    each,
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


def _draw_single_channel(rng: np.random.Generator) -> Counted:
    """Every other one with r = 3, which tells the two statements apart."""
    hidden = 3 if rng.random() < 0.5 else int(rng.integers(1, 7))
    return _counted(draw_layers(rng, (1, hidden, 1)))


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
    draw=_draw_single_channel,
    version=2,
    violations=(Violation("layers of lower rank than told", _misjudged),),
    printed="May be read as: they do only where r > 3.",
    printed_tolerance=0.0,
)


ORTHOGONAL = {"differentials of the laws along the motion, relative": ROUNDING}


def _measure_orthogonal(instance: Moving) -> Measured:
    rows = np.asarray(law_differentials(instance.network.params))
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
    ours = float(norm_rate(network.problem, network.params))
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

CHECKS = (LAW_COUNT, DEPENDENCE, DIFFERENTIALS, TABLE_1, PROPOSITION_9, EQUAL_WEIGHTS)
