"""Second order: the loss on a line, the Hessian and its spectrum, and what descent makes of it."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deeplinear.core import Params, formula, xp
from deeplinear.landscape import (
    balanced_spectrum,
    descent_threshold,
    first_descent_order,
    hessian_form,
    hessian_matrix,
    line_polynomial,
    variations,
)
from deeplinear.models import Problem
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import flows
from deeplinear.theory.network._networks import (
    CHAIN,
    FUNNEL,
    ROUNDING,
    Layers,
    Network,
    adopt_network,
    draw_layers,
    draw_network,
    draw_sigma,
    each,
)

WIDE = (2, 3, 3, 2)
"""Widths of the statements that are compared with flows: one shape, so that all share one compiled ensemble."""


def missed(found: Any, wanted: Any, size: float = 0.0) -> float:
    """Largest difference of two arrays relative to the larger of the second and `size`."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    scale = max(float(np.max(np.abs(wanted), initial=0.0)), size, np.finfo(float).tiny)
    return float(np.max(np.abs(found - wanted), initial=0.0)) / scale


def one_of(rng: np.random.Generator) -> tuple[int, ...]:
    """Widths of one of two shapes."""
    return (FUNNEL, CHAIN)[int(rng.integers(2))]


def times(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Product of layers, first-acting first."""
    result = layers[0]
    for layer in layers[1:]:
        result = layer @ result
    return result


def subsets(layers: Layers, direction: Layers, k: int) -> np.ndarray:
    """ρ_k by its definition: the sum over all ways to take k layers from the direction."""
    return sum(
        (
            times(
                [v if position in chosen else w for position, (w, v) in enumerate(zip(layers, direction, strict=True))]
            )
            for chosen in itertools.combinations(range(len(layers)), k)
        ),
        start=np.zeros((layers[-1].shape[0], layers[0].shape[1])),
    )


# --- The loss on a line -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Line:
    """A network with a direction, and the residual that is told of it."""

    network: Network
    told: np.ndarray


def draw_line(rng: np.random.Generator, widths: Sequence[int] | None = None) -> Line:
    network = draw_network(rng, one_of(rng) if widths is None else widths)
    return Line(network, network.residual)


def adopt_line(problem: Problem, params: Params) -> Line:
    network = adopt_network(problem, params)
    return Line(network, network.residual)


def another_residual(rng: np.random.Generator) -> Line:
    """The residual of another task."""
    line = draw_line(rng, CHAIN)
    return dataclasses.replace(line, told=line.told + 0.1 * rng.standard_normal(line.told.shape))


@formula
def _library(problem: Problem, params: Params, direction: Params) -> Any:
    return (
        variations(params, direction),
        line_polynomial(problem, params, direction),
        hessian_form(problem, params, direction),
        hessian_matrix(problem, params),
    )


def _direction(network: Network) -> Params:
    return tuple(xp.asarray(layer, dtype=float) for layer in network.direction)


SECOND = {
    "variations against sums over subsets, relative": ROUNDING,
    "coefficients of the loss on the line, relative": ROUNDING,
    "Hessian form against ‖ρ₁‖² − 2⟨ρ₂, M⟩, relative": ROUNDING,
    "VᵀHV against the same, relative": ROUNDING,
}


def _measure_second(line: Line) -> Measured:
    network = line.network
    found, coefficients, form, matrix = _library(network.problem, network.params, _direction(network))
    rho = [subsets(network.layers, network.direction, k) for k in range(network.depth + 1)]
    parts = [line.told, *(-r for r in rho[1:])]
    wanted = np.zeros(2 * network.depth + 1)
    for (i, a), (j, b) in itertools.product(enumerate(parts), repeat=2):
        wanted[i + j] += 0.5 * float(np.sum(a * b))
    second = float(np.sum(rho[1] ** 2) - 2 * np.sum(rho[2] * line.told)) if network.depth > 1 else np.sum(rho[1] ** 2)
    flat = np.concatenate([v.ravel() for v in network.direction])
    size = float(np.sum(rho[1] ** 2))
    numbers = (
        max(missed(a, b, float(np.max(np.abs(rho[0])))) for a, b in zip(found, rho, strict=True)),
        missed(coefficients, wanted),
        missed(form, second, size),
        missed(flat @ np.asarray(matrix) @ flat, second, size),
    )
    return Measured(dict(zip(SECOND, numbers, strict=True)))


EQUATION_22 = Check(
    id="network/equation-22",
    source="Equations 20 to 22",
    statement=(
        "On a line the loss is the polynomial with coefficients ½Σ⟨m_i, m_j⟩, m₀ = M and m_i = −ρ_i; its second "
        "coefficient is half the Hessian form ‖ρ₁‖² − 2⟨ρ₂, M⟩, which is VᵀHV, at every W."
    ),
    hypotheses=(),
    tolerances=SECOND,
    measure=each(_measure_second),
    draw=draw_line,
    violations=(Violation("the residual of another task", another_residual),),
    sized=draw_line,
    adopt=adopt_line,
)


# --- Gauge ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Gauged:
    """A network and an invertible matrix at every width, the outer ones included."""

    network: Network
    gauge: Layers


def invertible(rng: np.random.Generator, size: int) -> np.ndarray:
    """A well-conditioned matrix: singular values between 0.6 and 1.6."""
    left, right = (np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(2))
    return (left * rng.uniform(0.6, 1.6, size)) @ right


def _draw_gauged(rng: np.random.Generator, widths: Sequence[int] | None = None, *, ends: bool = False) -> Gauged:
    network = draw_network(rng, one_of(rng) if widths is None else widths)
    gauge = [invertible(rng, width) for width in network.widths]
    if not ends:
        gauge[0], gauge[-1] = np.eye(network.widths[0]), np.eye(network.widths[-1])
    return Gauged(network, tuple(gauge))


GAUGE = {"ρ_k(PWP⁻¹, V) against ρ_k(W, P⁻¹VP), relative": ROUNDING, "Hessian form in both gauges, relative": ROUNDING}


def _measure_gauge(gauged: Gauged) -> Measured:
    network, gauge = gauged.network, gauged.gauge
    inverse = [np.linalg.inv(p) for p in gauge]

    def moved(layers: Layers, p: Sequence[np.ndarray], q: Sequence[np.ndarray]) -> Params:
        return tuple(xp.asarray(p[i + 1] @ layer @ q[i], dtype=float) for i, layer in enumerate(layers))

    there = moved(network.layers, gauge, inverse)
    pulled = moved(network.direction, inverse, gauge)
    problem = network.problem
    left, _, form, _ = _library(problem, there, _direction(network))
    right, _, same, _ = _library(problem, network.params, pulled)
    size = max(float(np.max(np.abs(r))) for r in right)
    return Measured(
        dict(
            zip(
                GAUGE,
                [max(missed(a, b, size) for a, b in zip(left, right, strict=True)), missed(form, same, size**2)],
                strict=True,
            )
        )
    )


LEMMA_19 = Check(
    id="network/lemma-19",
    source="Lemma 19",
    statement="ρ_k(PWP⁻¹, V) = ρ_k(W, P⁻¹VP) for every k and every P that is the identity at both ends, so that the "
    "Hessian form does not depend on the basis of the hidden units.",
    hypotheses=(
        Hypothesis(
            "identity at both ends",
            lambda g: max(float(np.max(np.abs(p - np.eye(len(p))))) for p in (g.gauge[0], g.gauge[-1])),
        ),
        Hypothesis("well-conditioned change of basis", lambda g: max(float(np.linalg.cond(p)) for p in g.gauge) - 1e3),
    ),
    tolerances=GAUGE,
    measure=each(_measure_gauge),
    draw=_draw_gauged,
    violations=(Violation("a change of basis at the outputs too", lambda rng: _draw_gauged(rng, CHAIN, ends=True)),),
    sized=_draw_gauged,
)


# --- The loss along the flow ------------------------------------------------------------------------------------------

FALLS = {
    "derivative of the loss against −Σ‖∇‖², relative": ROUNDING,
    "derivative of the loss against −⟨M, KM⟩, relative": ROUNDING,
    "velocity of the product against KM, relative": ROUNDING,
    "largest rise of the loss along the flow, relative": 1e-12,
}


def _measure_falls(lines: Sequence[Line]) -> list[Measured]:
    runs = flows(
        [line.network.problem for line in lines], [line.network.params for line in lines], np.linspace(0, 2, 9)
    )
    measured = []
    for line, run in zip(lines, runs, strict=True):
        network, told = line.network, line.told
        velocity = tuple(
            network.partial(network.depth, j + 1).T @ told @ network.partial(j - 1, 1).T
            for j in range(1, network.depth + 1)
        )
        step = 1e-30
        ahead = times([w + 1j * step * v for w, v in zip(network.layers, velocity, strict=True)])
        slope = float(np.imag(0.5 * np.sum((network.target - ahead) ** 2)) / step)
        moved = np.imag(ahead) / step
        kernel = np.asarray(network.problem.model.ntk(network.params))  # pyright: ignore[reportAttributeAccessIssue]
        pushed = (kernel @ told.ravel()).reshape(told.shape)
        numbers = (
            missed(-sum(float(np.sum(v**2)) for v in velocity), slope),
            missed(-float(np.sum(told * pushed)), slope),
            missed(pushed, moved),
            float(np.max(np.diff(run.loss), initial=-np.inf)) / float(run.loss[0]),
        )
        measured.append(Measured(dict(zip(FALLS, numbers, strict=True)), facts={"derivative of the loss": slope}))
    return measured


def _draw_falling(rng: np.random.Generator, widths: Sequence[int] = WIDE) -> Line:
    return draw_line(rng, widths)


def _mistaken_fall(rng: np.random.Generator) -> Line:
    line = _draw_falling(rng)
    return dataclasses.replace(line, told=line.told + 0.1 * rng.standard_normal(line.told.shape))


PROPOSITION_13 = Check(
    id="network/proposition-13",
    source="Proposition 13, equation 27",
    statement=(
        "Along the flow the product moves by K·M and the loss by −Σ‖W_{L:j+1}ᵀ M W_{j−1:1}ᵀ‖² = −⟨M, KM⟩ ≤ 0, with K "
        "the tangent kernel: it never rises."
    ),
    hypotheses=(),
    tolerances=FALLS,
    measure=_measure_falls,
    draw=_draw_falling,
    violations=(Violation("the residual of another task", _mistaken_fall),),
    sized=_draw_falling,
    adopt=adopt_line,
)

ARRIVED = {
    "loss at the end, relative to the start": 1e-16,
    "norm of the gradient at the end": 1e-8,
    "way between the last two looks": 1e-7,
}

LOOKS = (0.0, 250.0, 500.0, 1000.0)


def _measure_arrival(networks: Sequence[Network]) -> list[Measured]:
    runs = flows([n.problem for n in networks], [n.params for n in networks], LOOKS)
    measured = []
    for network, run in zip(networks, runs, strict=True):
        gradient = network.problem.gradient(run.final)
        way = (
            math.sqrt(sum(float(np.sum((w[-1] - w[-2]) ** 2)) for w in run.layers)) if len(run.times) > 1 else math.inf
        )
        numbers = (
            float(run.loss[-1] / run.loss[0]),
            math.sqrt(sum(float(xp.sum(g**2)) for g in gradient)),
            way,
        )
        measured.append(Measured(dict(zip(ARRIVED, numbers, strict=True))))
    return measured


def draw_generic(rng: np.random.Generator, widths: Sequence[int] = WIDE) -> Network:
    """A Gaussian network without bottleneck."""
    if min(widths) < min(widths[0], widths[-1]):
        raise ValueError(f"widths must have no bottleneck between input and output, but are {tuple(widths)}.")
    return draw_network(rng, widths)


def _stuck(rng: np.random.Generator) -> Network:
    """A start that rests at a saddle: two layers vanish."""
    network = draw_generic(rng)
    layers = (np.zeros_like(network.layers[0]), np.zeros_like(network.layers[1]), *network.layers[2:])
    return dataclasses.replace(network, layers=layers)


def _vanishing(network: Network) -> float:
    """Number of layers that vanish, less one: with two of them nothing moves."""
    return float(sum(not np.any(layer) for layer in network.layers) - 1)


PROPOSITION_12 = Check(
    id="network/proposition-12",
    source="Proposition 12, item 3",
    statement="From a generic start the flow converges to a single critical point, and that is a global minimum.",
    hypotheses=(
        Hypothesis("no bottleneck", lambda n: float(min(n.widths[0], n.widths[-1]) - min(n.widths))),
        Hypothesis("at most one layer vanishes", _vanishing),
    ),
    tolerances=ARRIVED,
    measure=_measure_arrival,
    draw=draw_generic,
    violations=(Violation("a start at a saddle, with two layers zero", _stuck),),
    sized=draw_generic,
)


# --- At the origin ----------------------------------------------------------------------------------------------------

ORIGIN = {
    "coefficients below order L, relative": 0.0,
    "coefficient of order L against −⟨Σ, V_{L:1}⟩, relative": ROUNDING,
    "first order found, less L": 0.0,
    "loss on the line against ½‖Σ − ε^L V_{L:1}‖², relative": ROUNDING,
}


def _draw_origin(rng: np.random.Generator, widths: Sequence[int] | None = None, scale: float = 0.0) -> Network:
    network = draw_network(rng, one_of(rng) if widths is None else widths)
    return dataclasses.replace(network, layers=tuple(scale * layer for layer in network.layers))


def _measure_origin(network: Network) -> Measured:
    depth, problem, direction = network.depth, network.problem, _direction(network)
    coefficients = np.asarray(line_polynomial(problem, network.params, direction))
    end = times(network.direction)
    scale = float(np.linalg.norm(network.target) * np.linalg.norm(end))
    step = 0.7
    loss = 0.5 * np.sum((network.target - step**depth * end) ** 2)
    first = first_descent_order(problem, network.params, direction).order
    numbers = (
        float(np.max(np.abs(coefficients[1:depth]), initial=0.0)) / scale,
        abs(coefficients[depth] + np.sum(network.target * end)) / scale,
        math.inf if first is None else float(abs(first - depth)),
        missed(np.polynomial.polynomial.polyval(step, coefficients), loss),
    )
    return Measured(dict(zip(ORIGIN, numbers, strict=True)), printed=abs(coefficients[depth]) / scale)


ERRATUM_ORIGIN = Check(
    id="network/erratum-origin",
    source="Section 6.1",
    statement="At the origin the first term of the loss on a line is −ε^L⟨Σ, V_{L:1}⟩, of order L.",
    hypotheses=(Hypothesis("all layers vanish", lambda n: max(float(np.max(np.abs(layer))) for layer in n.layers)),),
    tolerances=ORIGIN,
    measure=each(_measure_origin),
    draw=_draw_origin,
    violations=(Violation("a point near the origin", lambda rng: _draw_origin(rng, CHAIN, scale=0.1)),),
    printed="at the origin all terms of the Taylor expansion vanish.",
    printed_tolerance=1e-6,
    sized=_draw_origin,
)


# --- At a balanced minimum --------------------------------------------------------------------------------------------


def _frame(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((rows, columns)))[0]


def draw_balanced_minimum(rng: np.random.Generator, widths: Sequence[int] | None = None) -> Network:
    """Layers with the L-th roots of the singular values, turned against each other."""
    widths = one_of(rng) if widths is None else widths
    modes, depth = min(widths[0], widths[-1]), len(widths) - 1
    if min(widths) < modes:
        raise ValueError(f"widths must have no bottleneck between input and output, but are {tuple(widths)}.")
    sigma = draw_sigma(rng, modes)
    frames = [
        np.eye(widths[0], modes),
        *(_frame(rng, width, modes) for width in widths[1:-1]),
        np.eye(widths[-1], modes),
    ]
    layers = tuple((above * sigma ** (1 / depth)) @ below.T for below, above in itertools.pairwise(frames))
    return Network(layers, sigma, draw_layers(rng, widths))


def _unbalanced_minimum(rng: np.random.Generator) -> Network:
    """The same product from layers of different size."""
    network = draw_balanced_minimum(rng, CHAIN)
    first, second, *rest = network.layers
    return dataclasses.replace(network, layers=(1.5 * first, second / 1.5, *rest))


def _imbalance(network: Network) -> float:
    return max(
        (float(np.max(np.abs(b.T @ b - a @ a.T))) for a, b in itertools.pairwise(network.layers)),
        default=0.0,
    )


MINIMUM: tuple[Hypothesis[Network], ...] = (
    Hypothesis("a global minimum", lambda n: float(np.max(np.abs(n.residual))), 1e-10),
    Hypothesis("balanced layers", _imbalance, 1e-10),
    Hypothesis("positive singular values", lambda n: 1e-6 - float(np.min(n.sigma))),
)

BALANCED = {
    "Hessian spectrum against the formula, relative": 1e-10,
    "spectrum of JᵀJ against the formula, relative": 1e-10,
    "largest eigenvalue against Lσ₁^{2−2/L}, relative": 1e-10,
}


def _measure_balanced(network: Network) -> Measured:
    widths, depth = network.widths, network.depth
    matrix = np.asarray(hessian_matrix(network.problem, network.params))
    formula = np.asarray(balanced_spectrum(network.sigma, widths[0], depth, out=widths[-1]))
    wanted = np.sort(np.concatenate([np.zeros(len(matrix) - len(formula)), formula]))
    jacobian = np.concatenate(
        [np.kron(network.partial(depth, j + 1), network.partial(j - 1, 1).T) for j in range(1, depth + 1)], axis=1
    )
    numbers = (
        missed(np.linalg.eigvalsh(matrix), wanted),
        missed(np.linalg.eigvalsh(jacobian.T @ jacobian), wanted),
        missed(np.linalg.eigvalsh(matrix)[-1], depth * network.sigma[0] ** (2 - 2 / depth)),
    )
    return Measured(dict(zip(BALANCED, numbers, strict=True)))


BALANCED_SPECTRUM = Check(
    id="network/balanced-spectrum",
    source="Propositions 34 and 35",
    statement=(
        "At a balanced minimum the Hessian has the eigenvalues Σ_j σ_a^{2(L−j)/L} σ_b^{2(j−1)/L}, one for each output "
        "a and input b, and 0 otherwise."
    ),
    hypotheses=MINIMUM,
    tolerances=BALANCED,
    measure=each(_measure_balanced),
    draw=draw_balanced_minimum,
    violations=(Violation("a minimum that is not balanced", _unbalanced_minimum),),
    sized=draw_balanced_minimum,
    adopt=adopt_network,
)

DESCENT = {
    "loss left at 0.97 of the threshold, relative to the start": 1e-15,
    "loss of the start, relative to that at 1.03 of the threshold": 1e-3,
}

BESIDE = 1e-5
"""How far beside the minimum descent begins."""


def _descend(network: Network, rate: float, steps: int) -> tuple[float, float]:
    """Loss beside a minimum, and after so many steps of plain gradient descent from there."""
    layers = [w + BESIDE * v for w, v in zip(network.layers, network.direction, strict=True)]
    depth, target, losses = network.depth, network.target, []
    for _ in range(steps + 1):
        before = list(itertools.accumulate(layers, lambda a, b: b @ a))
        backward = target - before[-1]
        losses.append(0.5 * float(np.sum(backward**2)))
        moves = []
        for j in range(depth - 1, -1, -1):
            moves.append(backward @ before[j - 1].T if j else backward)
            backward = layers[j].T @ backward
        layers = [w + rate * move for w, move in zip(layers, reversed(moves), strict=True)]
        if losses[-1] > 1e6:
            break
    return losses[0], losses[-1]


def _measure_descent(network: Network) -> Measured:
    depth = network.depth
    threshold = float(descent_threshold(network.sigma, depth))
    slowest = float(balanced_spectrum(network.sigma, network.widths[0], depth, out=network.widths[-1])[0])
    steps = max(400, math.ceil(25 / (threshold * slowest)))
    start, below = _descend(network, 0.97 * threshold, steps)
    _, above = _descend(network, 1.03 * threshold, steps)
    numbers = (below / start, start / above)
    return Measured(dict(zip(DESCENT, numbers, strict=True)), facts={"threshold": threshold, "steps": float(steps)})


DESCENT_THRESHOLD = Check(
    id="network/descent-threshold",
    source="Equation 67",
    statement=(
        "Gradient descent settles at a balanced minimum if and only if its learning rate is below 2/(Lσ₁^{2−2/L})."
    ),
    hypotheses=MINIMUM,
    tolerances=DESCENT,
    measure=each(_measure_descent),
    draw=draw_balanced_minimum,
    violations=(Violation("a minimum that is not balanced", _unbalanced_minimum),),
    sized=draw_balanced_minimum,
    adopt=adopt_network,
)

CHECKS = (
    EQUATION_22,
    LEMMA_19,
    PROPOSITION_12,
    PROPOSITION_13,
    ERRATUM_ORIGIN,
    BALANCED_SPECTRUM,
    DESCENT_THRESHOLD,
)
