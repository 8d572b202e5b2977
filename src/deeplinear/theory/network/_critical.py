"""The critical set: its values, the form of its points, and when layers of that form are critical."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from deeplinear.core import HypothesisError, RandomKey, random
from deeplinear.landscape import (
    CanonicalForm,
    canonical_form,
    critical_values,
    criticality_residual,
    fill_shapes,
    normal_form,
    random_critical_point,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.network._networks import (
    BOTTLENECK,
    CHAIN,
    FUNNEL,
    Network,
    adopt_network,
    draw_sigma,
    each,
)

DEEP = (4, 4, 4, 4, 2)
"""Widths with room for critical points none of whose blocks vanishes."""

SHAPES = (FUNNEL, CHAIN, BOTTLENECK, DEEP)

CRITICAL = 1e-9
"""Gradients below this, at points with numbers of order one and bases of condition up to ten, are rounding."""

AWAY = 1e-6
"""Gradients above this are not."""


def slope(network: Network) -> float:
    """Norm of the gradient, every layer's by its own formula."""
    residual = network.residual
    return float(
        np.sqrt(
            sum(
                np.sum((network.partial(network.depth, j + 1).T @ residual @ network.partial(j - 1, 1).T) ** 2)
                for j in range(1, network.depth + 1)
            )
        )
    )


def loss(network: Network) -> float:
    return 0.5 * float(np.sum(network.residual**2))


def form_of(network: Network) -> CanonicalForm:
    """The normal form for the nearest signature, however far away it is."""
    return canonical_form(network.params, network.sigma, tolerance=1e6)


def several_layers(where: str, widths: Sequence[int]) -> None:
    if len(widths) < 3:
        raise ValueError(f"{where}: widths must be those of two or more layers, but are {tuple(widths)}.")


def _key(rng: np.random.Generator) -> RandomKey:
    return random.key(int(rng.integers(2**31)))


def draw_point(
    rng: np.random.Generator,
    widths: Sequence[int] | None = None,
    signature: tuple[int, ...] | None = None,
    fills: Any = None,
) -> Network:
    """A random critical point; half of them have sparse blocks."""
    widths = SHAPES[int(rng.integers(len(SHAPES)))] if widths is None else tuple(widths)
    sigma = draw_sigma(rng, min(widths[0], widths[-1]))
    style = ("blocks", "sparse")[int(rng.integers(2))] if fills is None else fills
    layers = random_critical_point(_key(rng), sigma, widths, signature, fills=style)
    return Network(tuple(np.asarray(layer) for layer in layers), sigma)


def draw_fibre(
    rng: np.random.Generator, widths: Sequence[int] = CHAIN, signature: tuple[int, ...] = (1,), vanishing: int = 1
) -> Network:
    """Layers with the product of a signature, some of whose blocks vanish, whichever they are."""
    sigma = draw_sigma(rng, min(widths[0], widths[-1]))
    blocks = [rng.standard_normal(shape) for shape in fill_shapes(tuple(widths), len(signature))]
    for place in rng.permutation(len(blocks))[:vanishing]:
        blocks[place][:] = 0.0
    gauge = [np.eye(width) + 0.2 * rng.standard_normal((width, width)) for width in widths[1:-1]]
    layers = normal_form(sigma, widths, signature, blocks, gauge)
    return Network(tuple(np.asarray(layer) for layer in layers), sigma)


def perturbed(rng: np.random.Generator) -> Network:
    """A critical point that learnt a mode, one layer of which is scaled."""
    network = draw_point(rng, CHAIN, (1,), "blocks")
    return dataclasses.replace(network, layers=(1.1 * network.layers[0], *network.layers[1:]))


IS_CRITICAL = Hypothesis[Network]("no gradient", slope, CRITICAL)


# --- Minima -----------------------------------------------------------------------------------------------------------

MINIMA = {
    "loss, over the sum of squares of the target": 1e-24,
    "loss of a neighbour a thousandth away": 1e-24,
    "loss of a minimum a thousand times as large": 1e-24,
    "a thousand over the growth of the layers": 100.0,
}


def _measure_minima(network: Network) -> Measured:
    rng = np.random.default_rng(0)
    scale = float(np.sum(network.sigma**2))
    width = network.widths[1]
    turn = rng.standard_normal((width, width))
    near = np.eye(width) + 1e-3 * turn / np.linalg.norm(turn)

    def moved(basis: np.ndarray) -> Network:
        first, second, *rest = network.layers
        return Network((basis @ first, second @ np.linalg.inv(basis), *rest), network.sigma)

    far = moved(1e3 * np.eye(width))
    size, larger = (float(np.sqrt(sum(np.sum(w**2) for w in n.layers))) for n in (network, far))
    numbers = (loss(network) / scale, loss(moved(near)) / scale, loss(far) / scale, 1e3 * size / larger)
    return Measured(dict(zip(MINIMA, numbers, strict=True)), facts={"norm of the layers": size})


def _draw_minimum(rng: np.random.Generator, widths: tuple[int, ...] | None = None) -> Network:
    widths = (FUNNEL, CHAIN)[int(rng.integers(2))] if widths is None else widths
    several_layers("network/proposition-3", widths)
    modes = min(widths[0], widths[-1])
    if min(widths) < modes:
        raise ValueError(
            f"network/proposition-3: no width may be below the outer ones, but they are {widths}: a bottleneck keeps "
            "the loss away from zero."
        )
    return draw_point(rng, widths, tuple(range(1, modes + 1)), "blocks")


PROPOSITION_3 = Check(
    id="network/proposition-3",
    source="Proposition 3",
    statement="At every minimum the loss is zero; no minimum is isolated, and there are minima as large as one likes.",
    hypotheses=(
        IS_CRITICAL,
        Hypothesis("no bottleneck", lambda n: float(min(n.widths) < len(n.sigma))),
        Hypothesis("product of full rank", lambda n: float(np.linalg.matrix_rank(n.product, tol=1e-6) < len(n.sigma))),
    ),
    tolerances=MINIMA,
    measure=each(_measure_minima),
    draw=_draw_minimum,
    violations=(
        Violation("a bottleneck", lambda rng: draw_point(rng, BOTTLENECK, (1, 2), "blocks")),
        Violation("a saddle", lambda rng: draw_point(rng, CHAIN, (1,), "blocks")),
    ),
    sized=_draw_minimum,
)


# --- Values -----------------------------------------------------------------------------------------------------------

LEVELS = {
    "gradient": 1e-11,
    "product against SΣ": 1e-11,
    "loss against half the squares of what is not learnt": 1e-11,
    "table of all values against partial sums": 1e-14,
    "signatures missing in the table": 0.0,
}


def _measure_levels(network: Network) -> Measured:
    sigma = network.sigma
    learnt = np.diag(network.product) > 0.5 * sigma
    kept = np.zeros((network.widths[-1], network.widths[0]))
    np.fill_diagonal(kept, sigma)
    kept[: len(sigma)][~learnt] = 0.0
    table = critical_values(sigma)
    sums = {
        tuple(int(i) + 1 for i in np.flatnonzero(bits)): 0.5 * float(np.sum(np.where(bits, 0.0, sigma**2)))
        for bits in itertools.product((False, True), repeat=len(sigma))
    }
    numbers = (
        slope(network),
        float(np.max(np.abs(network.product - kept))),
        abs(loss(network) - 0.5 * float(np.sum(sigma[~learnt] ** 2))),
        max(abs(table.get(s, np.inf) - value) for s, value in sums.items()) / float(np.sum(sigma**2)),
        float(len(set(sums) ^ set(table))),
    )
    return Measured(dict(zip(LEVELS, numbers, strict=True)), facts={"modes learnt": float(np.sum(learnt))})


def _vanishing(network: Network) -> float:
    """How many of two vanishing blocks are missing; blocks without entries vanish."""
    return float(max(0, 2 - sum(np.linalg.norm(fill) < CRITICAL for fill in form_of(network).fills)))


def _draw_level(rng: np.random.Generator, widths: tuple[int, ...] | None = None) -> Network:
    if widths is not None:
        several_layers("network/proposition-14", widths)
    widths = SHAPES[int(rng.integers(len(SHAPES)))] if widths is None else widths
    most = min(widths)
    modes = min(widths[0], widths[-1])
    rank = int(rng.integers(0, most)) if most > 1 else 0
    signature = tuple(sorted(int(i) + 1 for i in rng.choice(modes, size=rank, replace=False)))
    sigma = draw_sigma(rng, modes)
    layers = random_critical_point(_key(rng), sigma, widths, signature)
    return Network(tuple(np.asarray(layer) for layer in layers), sigma)


PROPOSITION_14 = Check(
    id="network/proposition-14",
    source="Propositions 14, 15 and 17, equations 31 to 33",
    statement=(
        "Layers of the normal form with two vanishing blocks Z are critical, with product SΣ and the loss "
        "½ Σ_{i ∉ S} σᵢ²; these are 2^d values, one for each signature."
    ),
    hypotheses=(Hypothesis("two vanishing blocks", _vanishing),),
    tolerances=LEVELS,
    measure=each(_measure_levels),
    draw=_draw_level,
    violations=(
        Violation("one vanishing block", lambda rng: draw_fibre(rng, CHAIN)),
        Violation("a layer scaled", perturbed),
    ),
    sized=_draw_level,
    version=2,
)


# --- The normal form --------------------------------------------------------------------------------------------------

FORM = {"layers rebuilt, relative": 1e-10, "criterion and gradient disagree": 0.0}


def _measure_form(network: Network) -> Measured:
    form = form_of(network)
    residual, gradient = criticality_residual(form), slope(network)
    agree = (residual < CRITICAL and gradient < CRITICAL) or (residual > AWAY and gradient > AWAY)
    largest = max(float(np.max(np.abs(layer))) for layer in network.layers) or 1.0
    rebuilt = max(float(np.max(np.abs(a - b))) for a, b in zip(form.layers(), network.layers, strict=True))
    return Measured(
        dict(zip(FORM, (rebuilt / largest, float(not agree)), strict=True)),
        facts={"criterion": residual, "gradient": gradient, "worst condition": max(form.conditions, default=1.0)},
    )


def _product_residual(network: Network) -> float:
    kept = np.where(np.diag(network.product) > 0.5 * network.sigma, network.sigma, 0.0)
    wanted = np.zeros_like(network.product)
    np.fill_diagonal(wanted, kept)
    return float(np.max(np.abs(network.product - wanted)))


def _draw_form(rng: np.random.Generator, widths: tuple[int, ...] | None = None) -> Network:
    """Critical or not, in equal parts."""
    if widths is not None:
        several_layers("network/normal-form", widths)
    widths = SHAPES[int(rng.integers(len(SHAPES)))] if widths is None else widths
    if rng.random() < 0.5:
        return draw_point(rng, widths)
    rank = int(rng.integers(0, min(widths)))
    return draw_fibre(rng, widths, tuple(range(1, rank + 1)))


def adopt_point(problem: Any, params: Any) -> Network:
    """A given network at a critical point, or a refusal with its gradient."""
    network = adopt_network(problem, params)
    if slope(network) > CRITICAL:
        raise HypothesisError(IS_CRITICAL.name, slope(network), CRITICAL, "It speaks of critical points.")
    return network


NORMAL_FORM = Check(
    id="network/normal-form",
    source="Section 4.4, with the exact criterion",
    statement=(
        "Layers with product SΣ have a normal form that rebuilds them, and are critical if and only if "
        "Z_{j−1:1} Σᵀ U_Q Z_{L:j+1} = 0 for every layer j."
    ),
    hypotheses=(Hypothesis("product SΣ", _product_residual, CRITICAL),),
    tolerances=FORM,
    measure=each(_measure_form),
    draw=_draw_form,
    violations=(Violation("another product", perturbed),),
    sized=_draw_form,
    adopt=adopt_point,
    version=2,
)

TWO_BLOCKS = {"gradient": 1e-11, "criterion": 1e-11}


def _measure_blocks(network: Network) -> Measured:
    form = form_of(network)
    sizes = sorted(float(np.linalg.norm(fill)) for fill in form.fills)
    numbers = (slope(network), criticality_residual(form))
    return Measured(dict(zip(TWO_BLOCKS, numbers, strict=True)), printed=sizes[1], facts={"smallest block": sizes[0]})


def _draw_exotic(rng: np.random.Generator) -> Network:
    """A critical point with at most one vanishing block."""
    while True:
        network = draw_point(rng, DEEP, (), "sparse")
        if sorted(np.linalg.norm(fill) for fill in form_of(network).fills)[1] > 0.1:
            return network


ERRATUM_TWO_BLOCKS = Check(
    id="network/erratum-two-blocks",
    source="Section 4.4 and Proposition 18",
    statement=(
        "A pair of vanishing blocks is sufficient, not necessary: critical are the points with "
        "Z_{j−1:1} Σᵀ U_Q Z_{L:j+1} = 0 for every layer j."
    ),
    hypotheses=(Hypothesis("product SΣ", _product_residual, CRITICAL),),
    tolerances=TWO_BLOCKS,
    measure=each(_measure_blocks),
    draw=_draw_exotic,
    violations=(
        Violation("layers of the normal form with one vanishing block", lambda rng: draw_fibre(rng, DEEP, ())),
    ),
    printed="May be read as: all saddle points have Z_i = 0 and Z_j = 0 for some i ≠ j "
    "(size of the second smallest block).",
    printed_tolerance=1e-6,
    version=2,
)

CHECKS = (PROPOSITION_3, PROPOSITION_14, NORMAL_FORM, ERRATUM_TWO_BLOCKS)
"""The critical set."""
