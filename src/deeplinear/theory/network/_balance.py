"""Balanced and nearly balanced networks: what their layers have in common, along the flow and at its end."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from deeplinear.core import HypothesisError, Params
from deeplinear.landscape import alignment_metric, balance_report
from deeplinear.models import Problem
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import Run, flows
from deeplinear.theory.network._networks import (
    CHAIN,
    FUNNEL,
    ROUNDING,
    Network,
    adopt_network,
    draw_layers,
    draw_network,
    draw_sigma,
    laws_of,
)

FLOWN = 1e-9
"""What flows at tolerance 1e-12 miss an identity by, with room for the length of the run."""

TIMES = (0.0, 0.5, 2.0, 150.0)
"""Times of balanced runs; at the last one those drawn here have converged."""

LONG = (0.0, 150.0)
"""First and last time of runs from small starts."""


def delta_of(layers: Sequence[np.ndarray]) -> float:
    """Largest norm of a law."""
    return max((float(np.linalg.norm(law)) for law in laws_of(layers)), default=0.0)


def _filling(widths: tuple[int, ...]) -> float:
    """By how many units the narrowest layer misses the number of modes."""
    return float(min(widths[0], widths[-1]) - min(widths))


def _deep(widths: tuple[int, ...]) -> tuple[int, ...]:
    if len(widths) < 3:
        raise ValueError(f"The statement is about networks with hidden layers, but widths is {widths}.")
    return widths


def _turn(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


# --- Balanced networks ------------------------------------------------------------------------------------------------


def _draw_balanced(rng: np.random.Generator, widths: tuple[int, ...]) -> Network:
    """Balanced layers, their product near half the target, in random bases of the hidden layers."""
    if _filling(_deep(widths)) > 0:
        raise ValueError(
            f"The limit is the target only if no layer is narrower than both ends, but widths is {widths}."
        )
    modes, depth = min(widths[0], widths[-1]), len(widths) - 1
    sigma = draw_sigma(rng, modes)
    product = 0.08 * sigma[-1] * rng.standard_normal((widths[-1], widths[0]))
    product[np.arange(modes), np.arange(modes)] += sigma / 2
    left, values, right_t = np.linalg.svd(product, full_matrices=False)
    root = np.diag(values ** (1 / depth))
    bases = [right_t.T, *(_turn(rng, width)[:, :modes] for width in widths[1:-1]), left]
    layers = tuple(above @ root @ below.T for below, above in itertools.pairwise(bases))
    return Network(layers, sigma)


def _unbalanced(rng: np.random.Generator) -> Network:
    network = _draw_balanced(rng, CHAIN)
    first, *rest = network.layers
    noise = 0.2 * rng.standard_normal(first.shape)
    return dataclasses.replace(network, layers=(first + noise, *rest))


BALANCED: Hypothesis[Network] = Hypothesis("balanced layers", lambda network: delta_of(network.layers), 1e-10)
FILLING: Hypothesis[Network] = Hypothesis("no layer narrower than both ends", lambda network: _filling(network.widths))

EQUAL = "squared singular values of the layers differ by"
COMMUTE = "WᵢWᵢᵀ and Wᵢ₊₁ᵀWᵢ₊₁ fail to commute by"
LIMIT = "the limit of the product misses the target by"
MEET = "the limit is not decoupled by"


def _states(run: Run) -> list[list[np.ndarray]]:
    return [[layer[k] for layer in run.layers] for k in range(len(run.times))]


def _squares(layer: np.ndarray, count: int) -> np.ndarray:
    values = np.linalg.svd(layer, compute_uv=False) ** 2
    return np.pad(values, (0, max(0, count - len(values))))[:count]


def _measure_balanced(instances: Sequence[Network]) -> list[Measured]:
    runs = flows([n.problem for n in instances], [n.params for n in instances], TIMES)
    measured = []
    for network, run in zip(instances, runs, strict=True):
        modes = max(network.widths)
        spread = unmet = 0.0
        for layers in _states(run):
            squares = np.stack([_squares(layer, modes) for layer in layers])
            spread = max(spread, float(np.max(np.ptp(squares, axis=0))))
            for below, above in itertools.pairwise(layers):
                x, y = below @ below.T, above.T @ above
                unmet = max(unmet, float(np.linalg.norm(x @ y - y @ x)))
        final = _states(run)[-1]
        end = Network(tuple(final), network.sigma)
        off = 0.0  # decoupled: the Gram matrices of all products from the input, and to the output, are diagonal
        for i in range(1, network.depth + 1):
            for gram in (
                end.partial(i, 1).T @ end.partial(i, 1),
                end.partial(network.depth, i) @ end.partial(network.depth, i).T,
            ):
                off = max(off, float(np.max(np.abs(gram - np.diag(np.diag(gram))))))
        residuals = {
            EQUAL: spread,
            COMMUTE: unmet,
            LIMIT: float(np.max(np.abs(end.residual))),
            MEET: off,
        }
        measured.append(Measured(residuals))
    return measured


PROPOSITION_34 = Check(
    id="network/proposition-34",
    source="Proposition 34",
    statement=(
        "Balanced layers are aligned and have equal singular values, at all times of the flow, and converge to a "
        "decoupled critical point: generically to the target."
    ),
    hypotheses=(BALANCED, FILLING),
    tolerances={EQUAL: FLOWN, COMMUTE: FLOWN, LIMIT: FLOWN, MEET: FLOWN},
    measure=_measure_balanced,
    draw=lambda rng: _draw_balanced(rng, FUNNEL if rng.random() < 0.5 else CHAIN),
    sized=_draw_balanced,
    violations=(Violation("layers that are not balanced", _unbalanced),),
)

REST = "largest entry of Z in the normal form"


def normal_form_rest(network: Network) -> list[np.ndarray]:
    """Blocks Z of the normal form of layers whose product is the whole target.

    In the bases P_i = [X_i, N_i], X_i = W_{i:1}Σ⁺ and N_i an orthonormal basis of the null space of W_{L:i+1}, layer i
    is [[I, 0], [0, Z_i]], the first one [Σ; Z_1] and the last one [I, Z_L].
    """
    depth, modes = network.depth, network.widths[-1]
    bases = []
    for i in range(1, depth):
        above = network.partial(depth, i + 1)
        null = np.linalg.svd(above)[2][modes:].T
        bases.append(np.concatenate([network.partial(i, 1) @ np.linalg.pinv(network.target), null], axis=1))
    blocks = []
    for i in range(1, depth + 1):
        layer = network.layers[i - 1]
        if i > 1:
            layer = layer @ bases[i - 2][:, modes:]
        if i < depth:
            layer = np.linalg.solve(bases[i - 1], layer)[modes:]
        blocks.append(layer)
    return blocks


def _measure_tight(instances: Sequence[Network]) -> list[Measured]:
    runs = flows([n.problem for n in instances], [n.params for n in instances], TIMES)
    measured = []
    for network, run in zip(instances, runs, strict=True):
        end = Network(tuple(_states(run)[-1]), network.sigma)
        blocks = normal_form_rest(end)
        measured.append(Measured({REST: max(float(np.max(np.abs(z), initial=0.0)) for z in blocks)}))
    return measured


PROPOSITION_35 = Check(
    id="network/proposition-35",
    source="Proposition 35",
    statement="At a balanced critical point the free blocks of the normal form vanish: Z = 0.",
    hypotheses=(
        BALANCED,
        FILLING,
        Hypothesis("at least as many inputs as outputs", lambda network: float(network.widths[-1] - network.widths[0])),
    ),
    tolerances={REST: 1e-7},
    measure=_measure_tight,
    draw=lambda rng: _draw_balanced(rng, FUNNEL if rng.random() < 0.5 else CHAIN),
    sized=_draw_balanced,
    violations=(Violation("layers that are not balanced", _unbalanced),),
)

# --- Nearly balanced networks -----------------------------------------------------------------------------------------

SLACK = "Σ(s² − t²)² exceeds ‖C‖², relative, by"
IDENTITY = "Σ(u·v)²(s² − t²)² misses ‖C‖², relative, by"
STOCHASTIC = "rows and columns of the overlaps miss the sum 1 by"
LAPLACIAN = "2μᵀ(I − Θ)μ misses ΣΘ(μ − μ)², relative, by"
BOUNDS = "an overlap exceeds ‖C‖²/(s² − t²)² by"


@dataclasses.dataclass(frozen=True)
class Reported:
    """A network, and the layers of which the report is made."""

    network: Network
    params: Params


def _measure_identities(instances: Sequence[Reported]) -> list[Measured]:
    """Eigenvalues of the Gram matrices, beside the report, which has singular vectors of the layers."""
    measured = []
    for network, params in ((reported.network, reported.params) for reported in instances):
        report = balance_report(params)
        worst: dict[str, float] = {}
        for (below, above), found in zip(itertools.pairwise(network.layers), report.interfaces, strict=True):
            law2 = float(np.sum((above.T @ above - below @ below.T) ** 2))
            s2, t2 = (np.linalg.eigvalsh(gram)[::-1] for gram in (below @ below.T, above.T @ above))
            size = float(np.sum(s2**2) + np.sum(t2**2))
            theta, mu = found.symmetric_overlaps, found.written
            form = 2 * mu @ (np.eye(len(mu)) - theta) @ mu
            values = {
                SLACK: (float(np.sum((s2 - t2) ** 2)) - law2) / size,
                IDENTITY: abs(float(np.sum(found.overlaps * (t2[:, None] - s2[None, :]) ** 2)) - law2) / size,
                STOCHASTIC: max(float(np.max(np.abs(found.overlaps.sum(axis) - 1))) for axis in (0, 1)),
                LAPLACIAN: abs(found.laplacian_form - float(form)) / size,
                BOUNDS: float(np.max(found.overlaps - found.overlap_bounds)),
            }
            worst = {name: max(worst.get(name, -np.inf), value) for name, value in values.items()}
        measured.append(Measured(worst, facts={"δ": report.delta}))
    return measured


def _draw_reported(rng: np.random.Generator, widths: tuple[int, ...]) -> Reported:
    network = draw_network(rng, _deep(widths))
    return Reported(network, network.params)


def _adopt_reported(problem: Problem, params: Params) -> Reported:
    network = adopt_network(problem, params)
    return Reported(network, network.params)


def _misread(rng: np.random.Generator) -> Reported:
    reported = _draw_reported(rng, CHAIN)
    return dataclasses.replace(reported, params=tuple(layer[::-1] for layer in reported.params))


PROPOSITION_36 = Check(
    id="network/proposition-36",
    source="Proposition 36, equations 58 to 60",
    statement=(
        "‖C‖² = Σ(u·v)²(s² − t²)² over all pairs of directions written and read at a hidden layer; so Σ(s² − t²)² over "
        "equal places is at most ‖C‖², and no squared overlap exceeds ‖C‖²/(s² − t²)². Overlaps are doubly stochastic."
    ),
    hypotheses=(
        Hypothesis("hidden layers", lambda reported: 2.0 - reported.network.depth),
        Hypothesis(
            "the report is of these layers",
            lambda reported: max(
                float(np.max(np.abs(np.asarray(told) - layer)))
                for told, layer in zip(reported.params, reported.network.layers, strict=True)
            ),
        ),
    ),
    tolerances={SLACK: ROUNDING, IDENTITY: ROUNDING, STOCHASTIC: ROUNDING, LAPLACIAN: ROUNDING, BOUNDS: ROUNDING},
    version=2,
    measure=_measure_identities,
    draw=lambda rng: _draw_reported(rng, FUNNEL if rng.random() < 0.5 else CHAIN),
    sized=_draw_reported,
    adopt=_adopt_reported,
    violations=(Violation("directions of other layers", _misread),),
)


@dataclasses.dataclass(frozen=True)
class Near:
    """A start that is told to be δ-balanced."""

    network: Network
    delta: float


def _draw_near(rng: np.random.Generator, widths: tuple[int, ...], delta: float = 0.04) -> Near:
    """Gaussian layers, scaled to δ."""
    sigma = draw_sigma(rng, min(widths[0], widths[-1]))
    layers = draw_layers(rng, _deep(widths))
    factor = np.sqrt(delta / delta_of(layers))
    return Near(Network(tuple(factor * layer for layer in layers), sigma), delta * (1 + ROUNDING))


def _adopt_near(problem: Problem, params: Params) -> Near:
    network = adopt_network(problem, params)
    if network.depth < 2:
        raise HypothesisError("hidden layers", 2.0 - network.depth, 0.0, "Take a deeper network.")
    return Near(network, delta_of(network.layers) * (1 + 1e-9))


NEAR: Hypothesis[Near] = Hypothesis("δ-balanced", lambda near: delta_of(near.network.layers) - near.delta)

DIRECTIONS = "1 − (u·v)² exceeds δ²/gap² at the end of the run by"
STRENGTHS = "|s − t|(s + t) exceeds δ at the end of the run by"


def _directions(below: np.ndarray, above: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Strengths written and read, largest first, and squared overlaps (read, written), from the Gram matrices."""
    s2, u = np.linalg.eigh(below @ below.T)
    t2, v = np.linalg.eigh(above.T @ above)
    return np.maximum(s2[::-1], 0), np.maximum(t2[::-1], 0), ((v.T @ u) ** 2)[::-1, ::-1]


def _bound(delta: float, s2: np.ndarray, t2: np.ndarray) -> np.ndarray:
    """δ²/min_{m≠k}(s_k² − t_m²)², at most 1."""
    gaps = np.abs(t2[:, None] - s2[None, :])
    np.fill_diagonal(gaps, np.inf)
    nearest = gaps.min(axis=0)
    return np.where(nearest > delta, delta / np.maximum(nearest, 1e-300), 1.0) ** 2


def _measure_near(instances: Sequence[Near]) -> list[Measured]:
    runs = flows([n.network.problem for n in instances], [n.network.params for n in instances], LONG)
    measured = []
    for near, run in zip(instances, runs, strict=True):
        apart, far, margin = -np.inf, -np.inf, 0.0
        for below, above in itertools.pairwise(_states(run)[-1]):
            s2, t2, overlaps = _directions(below, above)
            bound = _bound(near.delta, s2, t2)
            unaligned = 1 - np.diag(overlaps)
            apart = max(apart, float(np.max(unaligned - bound)))
            far = max(far, float(np.max(np.abs(s2 - t2))) - near.delta)
            narrow = bound < 1
            margin = max(margin, float(np.max(unaligned[narrow] / bound[narrow], initial=0.0)))
        measured.append(Measured({DIRECTIONS: apart, STRENGTHS: far}, facts={"share of the bound": margin}))
    return measured


def _claimed_closer(rng: np.random.Generator) -> Near:
    return dataclasses.replace(_draw_near(rng, CHAIN, 1.0), delta=1e-3)


NEARLY_BALANCED = Check(
    id="network/approximate-balance",
    source="Section 5.3.1",
    statement=(
        "At the end of a δ-balanced run, strengths of neighbouring layers satisfy |s − t|(s + t) ≤ δ, and a direction "
        "whose strength is separated from the others by a gap is aligned: 1 − (u·v)² ≤ δ²/gap²."
    ),
    hypotheses=(NEAR,),
    tolerances={DIRECTIONS: FLOWN, STRENGTHS: FLOWN},
    measure=_measure_near,
    draw=lambda rng: _draw_near(rng, FUNNEL if rng.random() < 0.5 else CHAIN),
    sized=_draw_near,
    adopt=_adopt_near,
    violations=(Violation("a start less balanced than told", _claimed_closer),),
)

TOP = "m(q) of the learnt modes exceeds 2Σδ²/gap² by"


def _measure_top(instances: Sequence[Near]) -> list[Measured]:
    runs = flows([n.network.problem for n in instances], [n.network.params for n in instances], LONG)
    measured = []
    for near, run in zip(instances, runs, strict=True):
        widths = near.network.widths
        modes = min(widths[0], widths[-1])
        metric = np.asarray(alignment_metric(run.final, modes))
        whole = np.asarray(alignment_metric(run.final, min(widths[1:-1])))
        above = [
            m - 2 * float(np.sum(_bound(near.delta, *_directions(*pair)[:2])[:modes]))
            for m, pair in zip(metric, itertools.pairwise(_states(run)[-1]), strict=True)
        ]
        facts = {"m of the learnt modes": float(metric.max()), "m of all directions": float(whole.max())}
        measured.append(Measured({TOP: float(max(above))}, printed=float(whole.max()), facts=facts))
    return measured


ERRATUM_TOP = Check(
    id="network/erratum-top-directions",
    source="Section 6.1, alignment in Figure 2(a)",
    statement=(
        "The leading d_y left and right singular vectors of neighbouring layers align, up to signs: "
        "‖|VᵀU| − I‖² over these is at most 2Σδ²/gap²."
    ),
    hypotheses=(
        NEAR,
        Hypothesis(
            "two more hidden units than modes",
            lambda near: float(
                min(near.network.widths[0], near.network.widths[-1]) + 2 - min(near.network.widths[1:-1])
            ),
        ),
    ),
    tolerances={TOP: FLOWN},
    measure=_measure_top,
    draw=lambda rng: _draw_near(rng, FUNNEL),
    sized=_draw_near,
    violations=(
        Violation(
            "a start less balanced than told",
            lambda rng: dataclasses.replace(_draw_near(rng, FUNNEL, 2.0), delta=1e-3),
        ),
    ),
    printed="‖VᵀU − I‖² tends towards zero, over all directions of the hidden layer.",
    printed_tolerance=0.1,
)


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two layers that meet, and the δ they are told to be balanced to."""

    below: np.ndarray
    above: np.ndarray
    delta: float


PAIR: Hypothesis[Pair] = Hypothesis(
    "δ-balanced", lambda pair: delta_of((pair.below, pair.above)) / pair.delta - 1, ROUNDING
)

APART = "|s − t|(s + t) exceeds δ, relative to it, by"


def _draw_weak(rng: np.random.Generator) -> Pair:
    """A minimum of two layers with one unit: strengths with product σ, squares that differ by δ = σ^(1/2)/20."""
    sigma = 10 ** rng.uniform(-4, -3)
    delta = np.sqrt(sigma) / 20
    middle = np.hypot(sigma, delta / 2)
    read = np.sqrt(middle + delta / 2)
    return Pair(np.full((1, 1), sigma / read), np.full((1, 1), read), delta)


def _measure_strengths(instances: Sequence[Pair]) -> list[Measured]:
    measured = []
    for pair in instances:
        s, t = (np.linalg.svd(layer, compute_uv=False)[0] for layer in (pair.below, pair.above))
        gap = abs(s - t)
        facts = {"|s − t|/δ": gap / pair.delta, "δ/σ^(1/2)": pair.delta / np.sqrt(s * t)}
        measured.append(Measured({APART: gap * (s + t) / pair.delta - 1}, printed=float(gap / pair.delta), facts=facts))
    return measured


ERRATUM_STRENGTHS = Check(
    id="network/erratum-synchronisation",
    source="Section 5.3.1, after Proposition 36",
    statement=(
        "|s − t| ≤ δ/(s + t), which is small beside δ only if the strengths are large beside ½; that it be small "
        "beside the strengths themselves needs δ ≪ σ^{2/h}."
    ),
    hypotheses=(
        PAIR,
        Hypothesis(
            "δ is small beside σ^{1/h}",
            lambda pair: pair.delta / float(np.sqrt(np.abs(pair.above @ pair.below).max())) - 0.1,
        ),
    ),
    tolerances={APART: 1e-9},
    measure=_measure_strengths,
    draw=_draw_weak,
    violations=(Violation("less balanced than told", lambda rng: dataclasses.replace(_draw_weak(rng), delta=1e-6)),),
    printed="if δ ≪ σ^{1/h} then |s − t| ≪ δ. (Measured: |s − t|/δ, where δ is a twentieth of σ^{1/h}.)",
    printed_tolerance=0.1,
)

OVERLAP = "a squared overlap exceeds δ²/gap² by"


def _draw_turned(rng: np.random.Generator) -> Pair:
    """One strength g on two units, δ ≤ g ≤ 1.05 δ, and an angle that uses up δ: sin² = δ²/(2g²)."""
    delta = 10 ** rng.uniform(-3, -1)
    gap = delta * rng.uniform(1.0, 1.05)
    sine = delta / (np.sqrt(2) * gap)
    turn = np.array([[np.sqrt(1 - sine**2), -sine], [sine, np.sqrt(1 - sine**2)]])
    basis = _turn(rng, 2)
    layer = np.diag([np.sqrt(gap), 0.0])
    return Pair(basis @ layer, layer @ turn.T @ basis.T, delta)


def _measure_overlaps(instances: Sequence[Pair]) -> list[Measured]:
    measured = []
    for pair in instances:
        s2, t2, overlaps = _directions(pair.below, pair.above)
        gap = abs(t2[0] - s2[1])
        excess = overlaps[0, 1] - (pair.delta / gap) ** 2
        facts = {"gap/δ": gap / pair.delta, "s²/δ²": s2[0] / pair.delta**2}
        measured.append(Measured({OVERLAP: float(excess)}, printed=float(np.sqrt(overlaps[0, 1])), facts=facts))
    return measured


ERRATUM_THRESHOLD = Check(
    id="network/erratum-alignment-threshold",
    source="Section 5.3.1, the two cases after equation 60",
    statement=(
        "(u·v)² ≤ δ²/gap²: directions align where strengths squared are separated by much more than δ, so the "
        "threshold is s² ~ δ."
    ),
    hypotheses=(
        PAIR,
        Hypothesis(
            "strengths squared above δ² and separated by δ",
            lambda pair: pair.delta - float(np.linalg.svd(pair.below, compute_uv=False)[0] ** 2),
            1e-9,
        ),
    ),
    tolerances={OVERLAP: 1e-9},
    measure=_measure_overlaps,
    draw=_draw_turned,
    violations=(Violation("less balanced than told", lambda rng: dataclasses.replace(_draw_turned(rng), delta=1e-5)),),
    printed="if s² > δ² then u·v ≈ 0 for directions whose strengths squared differ by δ or more.",
    printed_tolerance=0.1,
)

CHECKS = (
    PROPOSITION_34,
    PROPOSITION_35,
    PROPOSITION_36,
    NEARLY_BALANCED,
    ERRATUM_TOP,
    ERRATUM_STRENGTHS,
    ERRATUM_THRESHOLD,
)
"""Statements on balance."""
