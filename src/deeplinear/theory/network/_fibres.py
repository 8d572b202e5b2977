"""Statements on changes of basis, on networks with the same product, and on the dimension of the minima."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from deeplinear.core import HypothesisError, Params, random, xp
from deeplinear.landscape import (
    fibre_move,
    gauge,
    minima_dimension,
    orbit_dimension,
    random_fill,
    same_product,
    variations,
)
from deeplinear.models import Problem
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import flows
from deeplinear.theory.network._networks import (
    CHAIN,
    FUNNEL,
    Network,
    adopt_network,
    draw_layers,
    draw_network,
    draw_sigma,
)

ORTHOGONAL = 1e-12
"""Largest entry of PᵀP − I of a change of basis that counts as orthogonal."""

WORST = 1e3
"""Largest condition number of a change of basis at which residuals are still told from rounding."""

TIMES = (0.0, 0.5, 1.5, 3.0)
"""Times at which trajectories are compared."""


@dataclasses.dataclass(frozen=True)
class Turned:
    """A network, and a change of basis of its hidden layers.

    Attributes:
        network: Layers, target and a direction.
        factors: P₁, …, one for each hidden layer.
        fills: What is added to the layers before, for statements that speak of it.
    """

    network: Network
    factors: tuple[np.ndarray, ...]
    fills: tuple[np.ndarray, ...] = ()


def _rotations(rng: np.random.Generator, widths: Sequence[int]) -> tuple[np.ndarray, ...]:
    return tuple(np.linalg.qr(rng.standard_normal((width, width)))[0] for width in widths[1:-1])


def _stretched(rng: np.random.Generator, widths: Sequence[int], condition: float = 4.0) -> tuple[np.ndarray, ...]:
    """Changes of basis that are not orthogonal."""
    pairs = zip(_rotations(rng, widths), _rotations(rng, widths), strict=True)
    return tuple(
        (left * (np.geomspace(condition**-0.5, condition**0.5, len(left)) if len(left) > 1 else condition**0.5)) @ right
        for left, right in pairs
    )


def _multiplied(layers: Sequence[np.ndarray]) -> np.ndarray:
    result = layers[0]
    for layer in layers[1:]:
        result = layer @ result
    return result


def _rebased(layers: Sequence[np.ndarray], factors: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """W_l to P_l W_l P_{l-1}⁻¹, written out with inverses."""
    after = (*factors, np.eye(layers[-1].shape[0]))
    before = (np.eye(layers[0].shape[1]), *(np.linalg.inv(factor) for factor in factors))
    return tuple(a @ w @ b for a, w, b in zip(after, layers, before, strict=True))


def _defect(turned: Turned) -> float:
    return max((float(np.max(np.abs(p.T @ p - np.eye(len(p))))) for p in turned.factors), default=0.0)


def _deep(widths: Sequence[int]) -> None:
    if len(widths) < 3:
        raise ValueError(f"the network must have a hidden layer, but its widths are {tuple(widths)}.")


# --- Orthogonal changes of basis commute with the flow ----------------------------------------------------------------

EQUIVARIANCE = {
    "speeds: largest difference, relative": 1e-11,
    "layers along the flow: largest difference, relative": 1e-8,
}


def _measure_equivariance(instances: Sequence[Turned]) -> list[Measured]:
    problems = [turned.network.problem for turned in instances]
    starts = [turned.network.params for turned in instances]
    moved = [gauge(turned.network.layers, turned.factors) for turned in instances]
    plain = flows(problems, starts, TIMES)
    other = flows(problems, moved, TIMES)
    measured = []
    for turned, first, second in zip(instances, plain, other, strict=True):
        gap, size = 0.0, 1.0
        for place in range(len(first.times)):
            wanted = _rebased([layer[place] for layer in first.layers], turned.factors)
            found = [layer[place] for layer in second.layers]
            gap = max(gap, *(float(np.max(np.abs(a - b))) for a, b in zip(wanted, found, strict=True)))
            size = max(size, *(float(np.max(np.abs(w))) for w in wanted))
        network = turned.network
        velocities = _rebased(_velocity(network.layers, network.target), turned.factors)
        turned_speed = _velocity(_rebased(network.layers, turned.factors), network.target)
        speed = max(float(np.max(np.abs(v))) for v in velocities)
        off = max(float(np.max(np.abs(a - b))) for a, b in zip(velocities, turned_speed, strict=True))
        numbers = (off / max(speed, 1e-300), gap / size)
        measured.append(Measured(dict(zip(EQUIVARIANCE, numbers, strict=True)), facts={"speed": speed}))
    return measured


def _velocity(layers: Sequence[np.ndarray], target: np.ndarray) -> tuple[np.ndarray, ...]:
    """Minus the gradient, by plain products."""
    depth, residual = len(layers), target - _multiplied(layers)
    result = []
    for position in range(depth):
        left = _multiplied(layers[position + 1 :]) if position + 1 < depth else np.eye(target.shape[0])
        right = _multiplied(layers[:position]) if position else np.eye(target.shape[1])
        result.append(left.T @ residual @ right.T)
    return tuple(result)


def _draw_turned(rng: np.random.Generator, widths: Sequence[int]) -> Turned:
    _deep(widths)
    return Turned(draw_network(rng, widths, 0.7), _rotations(rng, widths))


def _adopt_turned(problem: Problem, params: Params) -> Turned:
    network = adopt_network(problem, params)
    if network.depth < 2:
        raise HypothesisError("a hidden layer", 1.0, 0.0, "A single layer has no basis to change.")
    return Turned(network, _rotations(np.random.default_rng(0), network.widths))


PROPOSITION_8 = Check(
    id="network/proposition-8",
    source="Proposition 8",
    statement="An orthogonal change of basis in the hidden layers commutes with gradient flow, for all times.",
    hypotheses=(Hypothesis("orthogonal factors: largest entry of PᵀP − I", _defect, ORTHOGONAL),),
    tolerances=EQUIVARIANCE,
    measure=_measure_equivariance,
    draw=lambda rng: _draw_turned(rng, CHAIN),
    sized=_draw_turned,
    adopt=_adopt_turned,
    violations=(
        Violation(
            "a change of basis that is not orthogonal",
            lambda rng: Turned(draw_network(rng, CHAIN, 0.7), _stretched(rng, CHAIN)),
        ),
    ),
)


# --- How many changes of basis there are ------------------------------------------------------------------------------

FACTORS = {
    "number of hidden layers whose basis changes weights, less L − 1": 0.0,
    "layers that change besides the two next to it": 0.0,
    "product before and after, relative": 1e-10,
}


def _measure_factors(instances: Sequence[Turned]) -> list[Measured]:
    """Each hidden layer's basis is changed alone."""
    measured = []
    for turned in instances:
        layers, factors = turned.network.layers, turned.factors
        product = _multiplied(layers)
        size = max(float(np.linalg.norm(product)), 1e-300)
        count, others, worst = 0, 0, 0.0
        for place, factor in enumerate(factors):
            alone = [factor if k == place else np.eye(len(p)) for k, p in enumerate(factors)]
            moved = [np.asarray(w) for w in gauge(layers, alone)]
            changed = [
                k for k, (a, b) in enumerate(zip(layers, moved, strict=True)) if np.max(np.abs(a - b)) > ORTHOGONAL
            ]
            count += bool(changed)
            others += len(set(changed) - {place, place + 1})
            worst = max(worst, float(np.linalg.norm(_multiplied(moved) - product)) / size)
        numbers = (abs(count - turned.network.depth + 1), others, worst)
        facts = {"factors": float(count), "units of the last hidden layer": float(turned.network.widths[-2])}
        printed = float(abs(turned.network.widths[-2] - count))
        measured.append(Measured(dict(zip(FACTORS, map(float, numbers), strict=True)), printed=printed, facts=facts))
    return measured


def _draw_factors(rng: np.random.Generator, widths: Sequence[int]) -> Turned:
    _deep(widths)
    return Turned(draw_network(rng, widths), _stretched(rng, widths))


def _with_two_zeros(rng: np.random.Generator) -> Turned:
    drawn = _draw_factors(rng, CHAIN)
    layers = (*(np.zeros_like(w) for w in drawn.network.layers[:2]), *drawn.network.layers[2:])
    return dataclasses.replace(drawn, network=dataclasses.replace(drawn.network, layers=layers))


ERRATUM_FACTORS = Check(
    id="network/erratum-factors",
    source="Section 3.5",
    statement=(
        "The changes of basis consist of L − 1 independent factors, one for each hidden layer; each of them changes "
        "the two layers next to it and no product."
    ),
    hypotheses=(
        Hypothesis(
            "no layer vanishes: how many do", lambda turned: float(sum(not np.any(w) for w in turned.network.layers))
        ),
    ),
    tolerances=FACTORS,
    measure=_measure_factors,
    draw=lambda rng: _draw_factors(rng, (FUNNEL, CHAIN)[rng.integers(2)]),
    sized=_draw_factors,
    violations=(Violation("two neighbouring layers vanish", _with_two_zeros),),
    printed="they consist of d_{L−1} components, as many as the last hidden layer has units.",
    printed_tolerance=0.0,
)


# --- The Hessian at diagonal networks and turned ones -----------------------------------------------------------------

DIAGONAL = {"Hessian forms: difference, relative to the larger of both parts": 1e-12}


def _measure_diagonal(instances: Sequence[Turned]) -> list[Measured]:
    measured = []
    for turned in instances:
        network = turned.network
        moved, direction = (gauge(part, turned.factors) for part in (network.layers, network.direction))
        found, size = _hessian_form([np.asarray(w) for w in moved], [np.asarray(v) for v in direction], network.target)
        wanted, other = _diagonal_form(network)
        numbers = (abs(found - wanted) / max(size, other, 1e-300),)
        measured.append(Measured(dict(zip(DIAGONAL, numbers, strict=True)), facts={"Hessian form": wanted}))
    return measured


def _hessian_form(
    layers: Sequence[np.ndarray], direction: Sequence[np.ndarray], target: np.ndarray
) -> tuple[float, float]:
    """‖ρ₁‖² − 2⟨ρ₂, M⟩ and the larger of both parts, the variations by polynomials."""
    rho = variations(tuple(map(xp.asarray, layers)), tuple(map(xp.asarray, direction)))
    square = float(xp.sum(rho[1] ** 2))
    mixed = 2 * float(xp.sum(rho[2] * (target - rho[0])))
    return square - mixed, max(square, abs(mixed))


def _diagonal_form(network: Network) -> tuple[float, float]:
    """The same from the diagonals alone: every mode is a network of width one."""
    modes = min(network.widths)
    weights, moves = (np.array([np.diagonal(w)[:modes] for w in part]) for part in (network.layers, network.direction))
    target = np.zeros(modes)
    target[: len(network.sigma)] = network.sigma[:modes]
    first, second = np.zeros(modes), np.zeros(modes)
    depth = len(weights)
    for i in range(depth):
        first += moves[i] * np.prod(np.delete(weights, i, axis=0), axis=0)
    for i, j in itertools.combinations(range(depth), 2):
        second += moves[i] * moves[j] * np.prod(np.delete(weights, [i, j], axis=0), axis=0)
    square = float(np.sum(first**2))
    mixed = 2 * float(np.sum(second * (target - np.prod(weights, axis=0))))
    return square - mixed, max(square, abs(mixed))


def _off_diagonal(turned: Turned) -> float:
    """Largest entry of layers or direction off the diagonal."""
    parts = (*turned.network.layers, *turned.network.direction)
    return max(float(np.max(np.abs(w - np.eye(*w.shape) * w))) for w in parts)


def _draw_diagonal(rng: np.random.Generator, widths: Sequence[int]) -> Turned:
    _deep(widths)
    sigma = draw_sigma(rng, min(widths[0], widths[-1]))
    layers, direction = (
        tuple(np.eye(out, inp) * rng.standard_normal((out, inp)) for inp, out in itertools.pairwise(widths))
        for _ in range(2)
    )
    # Modes beyond the narrowest layer are seen by no path; they are left out.
    narrow = min(widths)
    layers, direction = (
        tuple(np.where(np.arange(w.shape[0])[:, None] < narrow, w, 0.0) for w in part) for part in (layers, direction)
    )
    return Turned(Network(layers, sigma, direction), _rotations(rng, widths))


DIAGONAL_HESSIAN = Check(
    id="network/diagonal-hessian",
    source="Section 5.2.2",
    statement=(
        "The Hessian form of a diagonal network along a diagonal direction is that of the turned network along the "
        "turned direction, a sum over modes."
    ),
    hypotheses=(
        Hypothesis("diagonal layers and direction: largest entry off the diagonal", _off_diagonal, 0.0),
        Hypothesis("orthogonal factors: largest entry of PᵀP − I", _defect, ORTHOGONAL),
    ),
    tolerances=DIAGONAL,
    measure=_measure_diagonal,
    draw=lambda rng: _draw_diagonal(rng, CHAIN),
    sized=_draw_diagonal,
    violations=(
        Violation(
            "a direction that is not diagonal",
            lambda rng: dataclasses.replace(
                (turned := _draw_diagonal(rng, CHAIN)),
                network=dataclasses.replace(turned.network, direction=draw_layers(rng, CHAIN)),
            ),
        ),
    ),
)


# --- Moves within a fibre ---------------------------------------------------------------------------------------------

EQUAL = {
    "products before and after, relative": 1e-8,
    "products of the library's move and of the formula, relative": 1e-8,
}


def _seen(turned: Turned) -> float:
    """By how much neighbours see the fill: largest of W_{l+1}Z_l, Z_lW_{l-1} and Z_{L:1}, relative."""
    layers, fills = turned.network.layers, turned.fills
    worst = 0.0
    for factors in (
        *((fills[k], layers[k + 1]) for k in range(len(layers) - 1)),
        *((layers[k], fills[k + 1]) for k in range(len(layers) - 1)),
        fills,
    ):
        size = float(np.prod([np.linalg.norm(w) for w in factors]))
        worst = max(worst, float(np.linalg.norm(_multiplied(factors))) / size if size > 0 else 0.0)
    return worst


def _worst_condition(turned: Turned) -> float:
    return max(float(np.linalg.cond(p)) for p in turned.factors) - WORST


def _measure_moves(instances: Sequence[Turned]) -> list[Measured]:
    measured = []
    for turned in instances:
        layers = turned.network.layers
        moved = _rebased([w + z for w, z in zip(layers, turned.fills, strict=True)], turned.factors)
        before, after = _multiplied(layers), _multiplied(moved)
        size = max(float(np.linalg.norm(before)), float(np.linalg.norm(after)), 1e-300)
        gap = float(np.linalg.norm(after - before)) / size
        try:
            own = fibre_move(layers, turned.fills, turned.factors)
            other = same_product(own, moved).difference
        except HypothesisError:  # the library refuses what the formula makes of a fill that is seen
            other = gap
        measured.append(Measured(dict(zip(EQUAL, (gap, other), strict=True))))
    return measured


def _draw_move(rng: np.random.Generator, widths: Sequence[int]) -> Turned:
    """Layers of rank one leave room for fills wherever there are two units."""
    _deep(widths)
    layers = tuple(
        np.outer(rng.standard_normal(out), rng.standard_normal(inp)) for inp, out in itertools.pairwise(widths)
    )
    network = Network(layers, draw_sigma(rng, min(widths[0], widths[-1])))
    key = random.key(int(rng.integers(2**31)))
    fills = tuple(np.asarray(z) for z in random_fill(key, layers))
    return Turned(network, _stretched(rng, widths, 10.0), fills)


PROPOSITION_16 = Check(
    id="network/proposition-16",
    source="Propositions 16 and 40",
    statement=(
        "P(W + Z)P⁻¹ has the product of W if W_{l+1}Z_l = 0 and Z_lW_{l−1} = 0 for all layers and Z_{L:1} = 0; P is "
        "any change of basis in the hidden layers."
    ),
    hypotheses=(
        Hypothesis("fills that the neighbours do not see, with product zero", _seen, 1e-11),
        Hypothesis("condition number of the factors at most 1000", _worst_condition, 0.0),
    ),
    tolerances=EQUAL,
    measure=_measure_moves,
    draw=lambda rng: _draw_move(rng, (FUNNEL, CHAIN)[rng.integers(2)]),
    sized=_draw_move,
    violations=(
        Violation(
            "fills that are seen",
            lambda rng: dataclasses.replace(_draw_move(rng, CHAIN), fills=draw_layers(rng, CHAIN)),
        ),
        Violation(
            "fills without a layer that stays",
            lambda rng: Turned(
                Network(tuple(np.zeros_like(w) for w in draw_layers(rng, CHAIN)), draw_sigma(rng, 2)),
                _rotations(rng, CHAIN),
                draw_layers(rng, CHAIN),
            ),
        ),
    ),
)


# --- Dimension of the minima ------------------------------------------------------------------------------------------

DIMENSION = {
    "nullity of the Hessian minus N − d₀d_L": 0.0,
    "dimension that is told minus N − d₀d_L": 0.0,
    "dimension of the orbit above that of the minima": 0.0,
    "loss at the minimum": 1e-16,
}

WIDTHS = ((1, 2, 1), (1, 3, 1), (3, 5, 2))
"""Widths for which the printed bound is wrong; for others, such as 3-2-2 and 4-3-3-2, it holds."""


def _measure_dimension(instances: Sequence[Network]) -> list[Measured]:
    measured = []
    for network in instances:
        size = sum(layer.size for layer in network.layers)
        wanted = size - network.widths[0] * network.widths[-1]
        values = np.linalg.eigvalsh(_plain_hessian(network))
        nullity = int(np.sum(np.abs(values) < 1e-9 * max(float(np.abs(values).max()), 1e-300)))
        squares = sum(width**2 for width in network.widths[1:-1])
        numbers = (
            abs(nullity - wanted),
            abs(minima_dimension(network.widths) - wanted),
            max(0, orbit_dimension(network.params) - wanted),
            0.5 * float(np.sum(network.residual**2)),
        )
        facts = {"dimension": float(nullity), "sum of the squares of the hidden widths": float(squares)}
        residuals = dict(zip(DIMENSION, map(float, numbers), strict=True))
        measured.append(Measured(residuals, printed=float(max(0, squares - nullity)), facts=facts))
    return measured


def _plain_hessian(network: Network) -> np.ndarray:
    """Hessian from first and second variations along all pairs of weights, block by block."""
    depth, residual = network.depth, network.residual
    lefts = [network.partial(depth, j + 1) for j in range(1, depth + 1)]
    rights = [network.partial(j - 1, 1) for j in range(1, depth + 1)]
    sizes = [layer.size for layer in network.layers]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    hessian = np.zeros((starts[-1], starts[-1]))
    for i, j in itertools.product(range(depth), repeat=2):
        if i < j:
            continue
        block = np.einsum("ac,be->abce", lefts[i].T @ lefts[j], rights[i] @ rights[j].T)
        if i > j:
            middle = network.partial(i, j + 2)
            block = block - np.einsum("bc,ea->abce", middle, rights[j] @ residual.T @ lefts[i])
        flat = block.reshape(sizes[i], sizes[j])
        hessian[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = flat
        hessian[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = flat.T
    return hessian


def _filling(network: Network) -> float:
    return float(max(0, network.widths[-1] - min(network.widths)))


def _draw_minimum(rng: np.random.Generator, widths: Sequence[int]) -> Network:
    """A general minimum: all layers but the first are drawn, and the first is solved for, up to what is not seen."""
    _deep(widths)
    if widths[-1] > min(widths):
        raise ValueError(f"no layer may be narrower than the output, but the widths are {tuple(widths)}.")
    sigma = draw_sigma(rng, widths[-1])
    later = draw_layers(rng, widths[1:])
    target = Network(draw_layers(rng, widths), sigma).target
    onto = _multiplied(later)
    inverse = np.linalg.pinv(onto)
    unseen = (np.eye(widths[1]) - inverse @ onto) @ rng.standard_normal((widths[1], widths[0]))
    return Network((inverse @ target + unseen, *later), sigma)


ERRATUM_DIMENSION = Check(
    id="network/erratum-dimension",
    source="Proposition 3",
    statement="The global minima form a manifold of dimension N − d₀d_L, N the number of weights.",
    hypotheses=(Hypothesis("no layer narrower than the output: missing units", _filling, 0.0),),
    tolerances=DIMENSION,
    measure=_measure_dimension,
    draw=lambda rng: _draw_minimum(rng, WIDTHS[rng.integers(len(WIDTHS))]),
    sized=_draw_minimum,
    violations=(
        Violation("a network that is no minimum", lambda rng: draw_network(rng, (4, 3, 3, 2))),
        Violation("a bottleneck", lambda rng: draw_network(rng, (4, 1, 3))),
    ),
    printed="the level sets have a dimension of at least the sum of the squares of the hidden widths.",
    printed_tolerance=0.0,
)

ISOLATED = {"Hessian eigenvalues against ±σ, relative": 1e-12, "directions in which the Hessian vanishes": 0.0}


def _measure_isolated(instances: Sequence[Network]) -> list[Measured]:
    measured = []
    for network in instances:
        values = np.linalg.eigvalsh(_plain_hessian(network))
        modes, hidden = len(network.sigma), network.widths[1]
        wanted = np.sort(np.repeat(np.concatenate([network.sigma, -network.sigma]), hidden))
        gap = np.max(np.abs(values - wanted)) / network.sigma[0] if len(values) == len(wanted) else np.inf
        zeros = int(np.sum(np.abs(values) < 1e-9 * network.sigma[0]))
        numbers = dict(zip(ISOLATED, (float(gap), float(zeros)), strict=True))
        facts = {"modes": float(modes), "directions": float(len(values))}
        measured.append(Measured(numbers, printed=float(zeros == 0), facts=facts))
    return measured


def _draw_origin(rng: np.random.Generator, widths: Sequence[int]) -> Network:
    if len(widths) != 3 or widths[0] != widths[2]:
        raise ValueError(f"there must be two layers and as many inputs as outputs, but the widths are {tuple(widths)}.")
    layers = tuple(np.zeros((out, inp)) for inp, out in itertools.pairwise(widths))
    return Network(layers, draw_sigma(rng, widths[0]))


ERRATUM_ISOLATED = Check(
    id="network/erratum-isolated-origin",
    source="Propositions 3 and 15, sentence before Proposition 20",
    statement=(
        "With two layers and as many inputs as outputs the origin is an isolated critical point: its Hessian has the "
        "eigenvalues ±σ only, each as often as there are hidden units."
    ),
    hypotheses=(
        Hypothesis("two layers", lambda network: float(abs(network.depth - 2))),
        Hypothesis("as many inputs as outputs", lambda network: float(abs(network.widths[0] - network.widths[-1]))),
        Hypothesis("all weights vanish", lambda network: max(float(np.max(np.abs(w))) for w in network.layers)),
    ),
    tolerances=ISOLATED,
    measure=_measure_isolated,
    draw=lambda rng: _draw_origin(rng, ((2, 3, 2), (1, 1, 1), (3, 3, 3))[rng.integers(3)]),
    sized=_draw_origin,
    violations=(
        Violation(
            "more inputs than outputs",
            lambda rng: Network((np.zeros((2, 3)), np.zeros((2, 2))), draw_sigma(rng, 2)),
        ),
    ),
    printed="no critical point is isolated, every critical level is unbounded, and the Hessian is always singular.",
    printed_tolerance=0.5,
)

CHECKS = (PROPOSITION_8, ERRATUM_FACTORS, DIAGONAL_HESSIAN, PROPOSITION_16, ERRATUM_DIMENSION, ERRATUM_ISOLATED)
"""Statements on bases, fibres and dimensions."""
