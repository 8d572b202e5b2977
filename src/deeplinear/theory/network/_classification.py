"""Which critical points are minima, strict or non-strict saddles, and the directions that prove it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from deeplinear.landscape import (
    KIND,
    CanonicalForm,
    NegativeDirection,
    classify,
    critical_point,
    fill_shapes,
    is_tightened,
    swap_direction,
    zero_direction,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.network._critical import (
    CRITICAL,
    IS_CRITICAL,
    adopt_point,
    draw_point,
    form_of,
    perturbed,
    several_layers,
)
from deeplinear.theory.network._networks import BOTTLENECK, CHAIN, FUNNEL, Network, draw_layers, draw_sigma, each

MANY = (FUNNEL, CHAIN, BOTTLENECK, (4, 4, 4, 4, 2), (3, 4, 4), (6, 5, 6, 4), (3, 3, 3, 3, 3, 3, 3), (2, 2, 2))
"""Widths of the classification: two to six layers, bottlenecks, more outputs than inputs."""

TRIANGLE = (4, 3, 3, 3)
"""Widths of the statements that need three modes."""

NEGATIVE = 1e-5
"""Eigenvalues below minus this share of the largest are negative, not rounding."""


def dense_hessian(network: Network) -> np.ndarray:
    """The Hessian block by block from products of layers, rows and columns in the order of the flattened layers."""
    layers, depth, residual = network.layers, network.depth, network.residual
    above = [network.partial(depth, j + 1) for j in range(depth + 1)]
    below = [network.partial(j, 1) for j in range(depth + 1)]
    ends = np.concatenate([[0], np.cumsum([layer.size for layer in layers])])
    hessian = np.zeros((ends[-1], ends[-1]))
    for i in range(1, depth + 1):
        for j in range(1, i + 1):
            block = np.einsum("ac,be->abce", above[i].T @ above[j], below[i - 1] @ below[j - 1].T)
            if i > j:
                bend = below[j - 1] @ residual.T @ above[i]
                block = block - np.einsum("bc,ea->abce", network.partial(i - 1, j + 1), bend)
            flat = block.reshape(layers[i - 1].size, layers[j - 1].size)
            hessian[ends[i - 1] : ends[i], ends[j - 1] : ends[j]] = flat
            hessian[ends[j - 1] : ends[j], ends[i - 1] : ends[i]] = flat.T
    return hessian


def flat(layers: Sequence[Any]) -> np.ndarray:
    return np.concatenate([np.asarray(layer).ravel() for layer in layers])


# --- Kinds ------------------------------------------------------------------------------------------------------------

KINDS = {
    "kind against the sign of the smallest eigenvalue": 0.0,
    "negative eigenvalue where there should be none, relative": 1e-13,
    "certified curvature against VᵀHV, relative": 1e-9,
    "certified curvature": 0.0,
}


def _measure_kind(network: Network) -> Measured:
    hessian = dense_hessian(network)
    values = np.linalg.eigvalsh(hessian)
    scale = max(1.0, float(values[-1]))
    found = classify(network.problem, network.params)
    strict = found.kind is KIND.strict_saddle
    wrong = found.kind is KIND.regular or strict != bool(values[0] < -NEGATIVE * scale)
    minimal = 0.5 * float(np.sum(network.sigma[min(network.widths) :] ** 2))
    lowest = abs(0.5 * float(np.sum(network.residual**2)) - minimal) < CRITICAL
    wrong |= (found.kind is KIND.global_minimum) != lowest
    missed, certified = 0.0, -1.0
    if isinstance(found.certificate, NegativeDirection):
        direction = flat(found.certificate.direction)
        certified = float(direction @ hessian @ direction)
        missed = abs(certified - found.certificate.value) / abs(found.certificate.value)
    numbers = (float(wrong), 0.0 if strict else max(0.0, -float(values[0]) / scale), missed, certified)
    facts = {"smallest eigenvalue": float(values[0]), "largest eigenvalue": float(values[-1])}
    return Measured(dict(zip(KINDS, numbers, strict=True)), facts=facts)


def _draw_kind(rng: np.random.Generator, widths: tuple[int, ...] | None = None) -> Network:
    """Half of them with the strongest modes but not all, where both kinds of saddles are."""
    widths = MANY[int(rng.integers(len(MANY)))] if widths is None else widths
    signature = None
    if len(widths) > 2 and rng.random() < 0.5:
        signature = tuple(range(1, 1 + int(rng.integers(0, min(widths)))))
    return draw_point(rng, widths, signature)


PROPOSITION_18 = Check(
    id="network/proposition-18",
    source="Proposition 18",
    statement=(
        "A critical point is a global minimum where it has learnt the strongest modes, as many as the widths carry; a "
        "strict saddle where a stronger mode is missing beside a learnt one or where it is not tightened; and "
        "otherwise a non-strict saddle: the smallest eigenvalue of the Hessian is negative at strict saddles only."
    ),
    hypotheses=(IS_CRITICAL,),
    tolerances=KINDS,
    measure=each(_measure_kind),
    draw=_draw_kind,
    violations=(Violation("a point that is not critical", perturbed),),
    sized=_draw_kind,
    adopt=adopt_point,
)


# --- Directions -------------------------------------------------------------------------------------------------------

FLAT = {"Hessian form along the zero direction, over its squared norm": 1e-12}


def _measure_zero(network: Network) -> Measured:
    direction = flat(zero_direction(form_of(network)).layers)
    value = float(direction @ dense_hessian(network) @ direction) / float(direction @ direction)
    return Measured(dict(zip(FLAT, [abs(value)], strict=True)))


def _draw_zero(rng: np.random.Generator, widths: tuple[int, ...] | None = None) -> Network:
    if widths is not None:
        several_layers("network/proposition-20", widths)
    return draw_point(rng, widths)


PROPOSITION_20 = Check(
    id="network/proposition-20",
    source="Proposition 20",
    statement="At every critical point of two or more layers the Hessian form vanishes along some direction.",
    hypotheses=(IS_CRITICAL, Hypothesis("two or more layers", lambda n: float(n.depth < 2))),
    tolerances=FLAT,
    measure=each(_measure_zero),
    draw=_draw_zero,
    violations=(Violation("a point that is not critical", perturbed),),
    sized=_draw_zero,
    adopt=adopt_point,
)

SWAP = {"Hessian form against −(σᵢ² − σⱼ²), relative": 1e-10}


def _swaps(form: CanonicalForm) -> list[tuple[int, int]]:
    return [(i, j) for j in form.signature for i in range(1, j) if i not in form.signature]


def _measure_swap(network: Network, printed: bool = False) -> Measured:
    form, hessian, sigma = form_of(network), dense_hessian(network), network.sigma
    ours, theirs, negative = 0.0, 0.0, 1.0
    for i, j in _swaps(form):
        wanted = -(sigma[i - 1] ** 2 - sigma[j - 1] ** 2)
        layers = [np.asarray(layer) for layer in swap_direction(form, i, j).layers]
        direction = flat(layers)
        ours = max(ours, abs(float(direction @ hessian @ direction) - wanted) / abs(wanted))
        # As printed: P⁻¹RP in place of PRP⁻¹, with the same R.
        ends = (np.eye(network.widths[0]), *form.gauge, np.eye(network.widths[-1]))
        plain = [np.linalg.solve(ends[k + 1], layer @ ends[k]) for k, layer in enumerate(layers)]
        turned = flat([np.linalg.solve(ends[k + 1], layer @ ends[k]) for k, layer in enumerate(plain)])
        value = float(turned @ hessian @ turned)
        theirs = max(theirs, abs(value - wanted) / abs(wanted))
        negative = min(negative, float(value < 0))
    return Measured(
        dict(zip(SWAP, [ours], strict=True)),
        printed=theirs if printed else None,
        facts={"printed direction negative": negative},
    )


def _draw_swap(rng: np.random.Generator, widths: tuple[int, ...] | None = None) -> Network:
    widths = (CHAIN, TRIANGLE, BOTTLENECK)[int(rng.integers(3))] if widths is None else widths
    several_layers("network/proposition-21", widths)
    modes = min(widths[0], widths[-1])
    if modes < 2:
        raise ValueError(f"network/proposition-21: widths must carry two or more modes, but are {widths}.")
    rank = int(rng.integers(1, min(*widths, modes - 1) + 1))
    while True:
        signature = tuple(sorted(int(i) + 1 for i in rng.choice(modes, size=rank, replace=False)))
        if signature != tuple(range(1, rank + 1)):
            return draw_point(rng, widths, signature)


def _passed_over(network: Network) -> float:
    return float(not _swaps(form_of(network)))


def _scaled_swap(rng: np.random.Generator) -> Network:
    network = draw_point(rng, TRIANGLE, (2,), "blocks")
    return dataclasses.replace(network, layers=(1.1 * network.layers[0], *network.layers[1:]))


PROPOSITION_21 = Check(
    id="network/proposition-21",
    source="Proposition 21",
    statement=(
        "Where a mode i is not learnt and a weaker mode j is, the direction PRP⁻¹ that learns i in place of j has the "
        "Hessian form −(σᵢ² − σⱼ²)."
    ),
    hypotheses=(IS_CRITICAL, Hypothesis("a stronger mode is missing", _passed_over)),
    tolerances=SWAP,
    measure=each(_measure_swap),
    draw=_draw_swap,
    violations=(Violation("a point that is not critical", _scaled_swap),),
    sized=_draw_swap,
    adopt=adopt_point,
)

ERRATUM_DIRECTION = Check(
    id="network/erratum-direction",
    source="Proposition 21, proof of Proposition 20",
    statement="The direction is V = PRP⁻¹, and the column of its only entry is the place of j in the signature.",
    hypotheses=PROPOSITION_21.hypotheses,
    tolerances=SWAP,
    measure=each(lambda network: _measure_swap(network, printed=True)),
    draw=_draw_swap,
    violations=PROPOSITION_21.violations,
    printed="V = P⁻¹RP, along which the Hessian form is another number, and often positive.",
    printed_tolerance=1e-6,
)


# --- Non-strict saddles -----------------------------------------------------------------------------------------------

CONVEX = {"negative eigenvalue of the Hessian, over the largest": 1e-13}


def _measure_convex(network: Network) -> Measured:
    values = np.linalg.eigvalsh(dense_hessian(network))
    return Measured(
        dict(zip(CONVEX, [max(0.0, -float(values[0]) / float(values[-1] or 1.0))], strict=True)),
        facts={"smallest eigenvalue": float(values[0]), "tightened": float(is_tightened(form_of(network)))},
    )


def _blocks(rng: np.random.Generator, widths: Sequence[int], signature: tuple[int, ...], vanishing: int) -> Network:
    """A critical point of which so many blocks vanish, in random bases."""
    sigma = draw_sigma(rng, min(widths[0], widths[-1]))
    blocks = [rng.standard_normal(shape) for shape in fill_shapes(tuple(widths), len(signature))]
    for place in rng.permutation(len(blocks))[:vanishing]:
        blocks[place][:] = 0.0
    gauge = [np.eye(width) + 0.2 * rng.standard_normal((width, width)) for width in widths[1:-1]]
    layers = critical_point(sigma, widths, signature, blocks, gauge)
    return Network(tuple(np.asarray(layer) for layer in layers), sigma)


def _draw_convex(rng: np.random.Generator, widths: tuple[int, ...] | None = None) -> Network:
    widths = (CHAIN, TRIANGLE, (4, 4, 4, 4, 2))[int(rng.integers(3))] if widths is None else widths
    if len(widths) < 4:
        raise ValueError(f"network/proposition-23: widths must be those of three or more layers, but are {widths}.")
    rank = int(rng.integers(0, min(widths)))
    return _blocks(rng, widths, tuple(range(1, rank + 1)), 3)


def _too_few(network: Network) -> float:
    return float(max(0, 3 - sum(np.linalg.norm(fill) < CRITICAL for fill in form_of(network).fills)))


PROPOSITION_23 = Check(
    id="network/proposition-23",
    source="Proposition 23",
    statement="With S = {1, …, r} and three vanishing blocks Z the Hessian has no negative eigenvalue.",
    hypotheses=(
        IS_CRITICAL,
        Hypothesis("the strongest modes", lambda n: float(bool(_swaps(form_of(n))))),
        Hypothesis("three vanishing blocks", _too_few),
    ),
    tolerances=CONVEX,
    measure=each(_measure_convex),
    draw=_draw_convex,
    violations=(
        Violation("two vanishing blocks", lambda rng: _blocks(rng, TRIANGLE, (1,), 2)),
        Violation("a stronger mode is missing", lambda rng: _blocks(rng, TRIANGLE, (2,), 3)),
    ),
    sized=_draw_convex,
)

# --- The proof that non-strict saddles are non-strict -----------------------------------------------------------------

LAST_ZERO = 3
"""Which of the vanishing blocks is the last one, ℓ₃: the first three vanish."""

EIGHT = (4, 3, 3, 3, 3, 3, 3, 3, 3)
"""Fewest layers for which the printed lower limit L − ℓ₃ − 1 is above ℓ₃; more inputs than outputs."""

SPLIT = {
    "‖ρ₁‖² below the sum of its three parts, relative": 1e-12,
    "part of unlearnt rows and learnt columns against ‖GΣ_S‖², G summed from ℓ₃, relative": 1e-12,
    "the same against Σ σⱼ²G_{kj}², relative": 1e-12,
}


def _measure_split(network: Network) -> Measured:
    """The parts of ρ₁ from the layers alone, against the formulas of the proof; bases are those of the normal form."""
    depth, outputs = network.depth, network.widths[-1]
    rank = int(np.sum(np.abs(np.diagonal(network.product)) > CRITICAL))
    first = np.zeros((outputs, network.widths[0]))
    for j, move in enumerate(network.direction, start=1):
        first += network.partial(depth, j + 1) @ move @ network.partial(j - 1, 1)
    whole = float(np.sum(first**2))
    learnt, mixed = float(np.sum(first[:rank, :rank] ** 2)), float(np.sum(first[:rank, rank:outputs] ** 2))
    crossed = float(np.sum(first[rank:, :rank] ** 2))

    def summed(lowest: int) -> np.ndarray:
        parts = [network.direction[k - 1][rank:, :rank] for k in range(lowest, depth)]
        parts = [network.partial(depth, k + 1)[rank:, rank:] @ v for k, v in enumerate(parts, start=lowest)]
        return sum(parts, network.direction[-1][rank:, :rank])

    strengths = network.sigma[:rank]
    right, printed = (float(np.sum((summed(k) * strengths) ** 2)) for k in (LAST_ZERO, depth - LAST_ZERO - 1))
    squares, plain = (float(np.sum(strengths**2 * summed(LAST_ZERO) ** power)) for power in (2, 1))
    split = learnt + mixed + crossed
    numbers = (max(0.0, split - whole) / whole, abs(right - crossed) / whole, abs(squares - crossed) / whole)
    missed = {
        "printed lower limit": abs(printed - crossed) / whole,
        "printed without the square of G": abs(plain - crossed) / whole,
        "printed as an equality of ‖ρ₁‖² and its parts": abs(split - whole) / whole,
    }
    return Measured(dict(zip(SPLIT, numbers, strict=True)), printed=min(missed.values()), facts=missed)


def _draw_split(rng: np.random.Generator, vanishing: int = LAST_ZERO) -> Network:
    """The first blocks vanish, in the bases of the normal form, and a direction to vary the layers in."""
    sigma = draw_sigma(rng, EIGHT[-1])
    blocks = [0.5 * rng.standard_normal(shape) for shape in fill_shapes(EIGHT, 1)]
    for block in blocks[:vanishing]:
        block[:] = 0.0
    layers = critical_point(sigma, EIGHT, (1,), blocks)
    return Network(tuple(np.asarray(layer) for layer in layers), sigma, draw_layers(rng, EIGHT))


def _filled(network: Network) -> float:
    """Largest entry of the first three blocks."""
    rank = int(np.sum(np.abs(np.diagonal(network.product)) > CRITICAL))
    first, *later = network.layers[:LAST_ZERO]
    return max(float(np.max(np.abs(block))) for block in (first[rank:], *(layer[rank:, rank:] for layer in later)))


ERRATUM_PROOF_23 = Check(
    id="network/erratum-proof-of-23",
    source="proof of Proposition 23, equations 37, 38 and 42",
    statement=(
        "‖ρ₁‖² is at least the sum of its three parts, with more inputs than outputs larger; the last part is ‖GΣ_S‖² "
        "= Σ σⱼ²G_{kj}², where G is summed from the last vanishing block ℓ₃ on."
    ),
    hypotheses=(IS_CRITICAL, Hypothesis("the first three blocks vanish", _filled)),
    tolerances=SPLIT,
    measure=each(_measure_split),
    draw=_draw_split,
    violations=(Violation("the third block does not vanish", lambda rng: _draw_split(rng, 2)),),
    printed="an equality, the sum from L − ℓ₃ − 1 on, and Σ σⱼ²G_{kj} (smallest of the three relative differences).",
    printed_tolerance=1e-9,
)

# --- Strict saddles that look non-strict ------------------------------------------------------------------------------

DIAGONAL = {
    "smallest eigenvalue of the Hessian": -1e-2,
    "negative eigenvalue on diagonal directions, over the largest": 1e-13,
}


def _measure_diagonal(network: Network) -> Measured:
    hessian = dense_hessian(network)
    places, start = [], 0
    for layer in network.layers:
        places += [start + k * (layer.shape[1] + 1) for k in range(min(layer.shape))]
        start += layer.size
    full, inside = np.linalg.eigvalsh(hessian), np.linalg.eigvalsh(hessian[np.ix_(places, places)])
    numbers = (float(full[0]), max(0.0, -float(inside[0]) / float(full[-1])))
    return Measured(dict(zip(DIAGONAL, numbers, strict=True)), facts={"largest eigenvalue": float(full[-1])})


def draw_diagonal(rng: np.random.Generator, vanishing: int = 3) -> Network:
    """Diagonal layers that learnt the second of two modes; the first vanishes in so many layers."""
    sigma = draw_sigma(rng, 2)
    weights = np.exp(rng.uniform(-0.3, 0.3, 3))
    weights *= (sigma[1] / np.prod(weights)) ** (1 / 3)
    other = rng.uniform(0.5, 1.5, 3)
    other[rng.permutation(3)[:vanishing]] = 0.0
    layers = [np.zeros(shape) for shape in ((2, 3), (2, 2), (2, 2))]
    for layer, one, two in zip(layers, other, weights, strict=True):
        layer[0, 0], layer[1, 1] = one, two
    return Network(tuple(layers), sigma)


def _diagonal_zeros(network: Network) -> float:
    return float(3 - sum(abs(layer[0, 0]) < CRITICAL for layer in network.layers))


REMARK_22 = Check(
    id="network/remark-22",
    source="Remark 22",
    statement=(
        "A strict saddle may look non-strict to diagonal layers: with the second of two modes learnt and the first "
        "zero in three layers, the Hessian has a negative eigenvalue, but none among diagonal directions."
    ),
    hypotheses=(
        IS_CRITICAL,
        Hypothesis("three layers without the first mode", _diagonal_zeros),
        Hypothesis(
            "diagonal layers",
            lambda n: max(float(np.max(np.abs(w * (1 - np.eye(*w.shape))))) for w in n.layers),
        ),
    ),
    tolerances=DIAGONAL,
    measure=each(_measure_diagonal),
    draw=draw_diagonal,
    violations=(Violation("the first mode zero in two layers only", lambda rng: draw_diagonal(rng, 2)),),
)

TWO_LAYERS = {
    "two layers: smallest eigenvalue against −σ_{r+1}, relative": 1e-12,
    "three layers: negative eigenvalue, over the largest": 1e-13,
    "kinds told wrongly": 0.0,
}


@dataclasses.dataclass(frozen=True)
class Plain:
    """Strengths, outer widths and signature of plain normal forms; the hidden layers are as wide as the input."""

    sigma: np.ndarray
    inp: int
    signature: tuple[int, ...]


def _measure_plain(plain: Plain) -> Measured:
    widths = (plain.inp, len(plain.sigma))
    extremes, wrong = [], 0.0
    for depth, kind in ((2, KIND.strict_saddle), (3, KIND.non_strict_saddle)):
        dims = (*(plain.inp,) * depth, widths[1])
        layers = critical_point(plain.sigma, dims, plain.signature)
        network = Network(tuple(np.asarray(layer) for layer in layers), plain.sigma)
        values = np.linalg.eigvalsh(dense_hessian(network))
        extremes.append((float(values[0]), float(values[-1])))
        wrong += classify(network.problem, network.params).kind is not kind
    next_one = float(plain.sigma[len(plain.signature)])
    two, three = extremes
    numbers = (abs(two[0] + next_one) / next_one, max(0.0, -three[0] / three[1]), wrong)
    return Measured(dict(zip(TWO_LAYERS, numbers, strict=True)), printed=max(0.0, -two[0]))


def _draw_plain(rng: np.random.Generator) -> Plain:
    return Plain(draw_sigma(rng, 3), 4, tuple(range(1, 1 + int(rng.integers(1, 3)))))


ERRATUM_TWO_LAYERS = Check(
    id="network/erratum-two-layers",
    source="end of Section 4.4",
    statement=(
        "The plain normal form (Z = 0) with S = {1, …, r} is tightened, hence non-strict, for three or more layers. "
        "With two layers every saddle is strict; at this one the smallest eigenvalue is −σ_{r+1}."
    ),
    hypotheses=(
        Hypothesis("the strongest modes", lambda p: float(p.signature != tuple(range(1, len(p.signature) + 1)))),
    ),
    tolerances=TWO_LAYERS,
    measure=each(_measure_plain),
    draw=_draw_plain,
    violations=(Violation("a weaker mode", lambda rng: dataclasses.replace(_draw_plain(rng), signature=(2,))),),
    printed="the plain normal form is always tightened (size of the negative eigenvalue for two layers).",
    printed_tolerance=1e-6,
)

CHECKS = (
    PROPOSITION_18,
    PROPOSITION_20,
    PROPOSITION_21,
    PROPOSITION_23,
    REMARK_22,
    ERRATUM_DIRECTION,
    ERRATUM_PROOF_23,
    ERRATUM_TWO_LAYERS,
)
"""Kinds of critical points."""
