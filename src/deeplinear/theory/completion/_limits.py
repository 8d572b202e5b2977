"""Diagonal blocks of equal values, all layers from one start: where the flow ends."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from deeplinear.dynamics import GradientDescent, ensemble, until
from deeplinear.exact import (
    BlockLimit,
    BlockMatrix,
    block_constant,
    block_crossover,
    block_equation_1,
    block_equation_2,
    block_limit,
    block_limit_from,
    block_small_scale,
)
from deeplinear.models import block_mask
from deeplinear.probes import loss
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import MEASURABLE, Run, decades
from deeplinear.theory.completion._blocks import (
    ABOVE_ONE,
    BLOCK_HYPOTHESES,
    DEEP,
    FAMILY_TOLERANCE,
    FINITE,
    FOLLOWED,
    OBSERVABLE,
    Block,
    adopt_block,
    draw_block,
    eigenvalues,
    follow,
    relative,
    told_otherwise,
    unequal,
)
from deeplinear.theory.completion._laws import NONE, REACHED, multiply, unreached

EPS = float(np.finfo(float).eps)

# ---- Limits of flows -------------------------------------------------------------------------------------------------

LIMIT = {REACHED: NONE, "singular values of the limit, relative": 1e-8}
"""Flows stop with ten digits; deep ones on a flat manifold keep nine."""


def _against_spectrum(block: Block, run: Run | None, limit: BlockLimit) -> Measured:
    """Every singular value at the end against the formulas: the limit, and the algebraic decay of the rest."""
    if run is None:
        return unreached(LIMIT)
    product = run.product[-1]
    n, s, depth = block.blocks, block.size, block.depth
    third = eigenvalues(np.asarray(block.params[0]), n, s)[2]
    power = 2 * depth - 2
    rest = third**depth * (1 + power * run.times[-1] * third**power) ** (-depth / power)
    wanted = np.asarray(limit.spectrum).copy()
    wanted[n:] = rest
    wanted = np.sort(wanted)[::-1]
    found = np.linalg.svd(product, compute_uv=False)
    miss = relative(found, wanted, 10 * depth * block.width * EPS)
    facts = {"σ₁": float(limit.sigma_1), "σ₂": float(limit.sigma_2), "σ₂ found": float(found[n - 1])}
    return Measured(dict(zip(LIMIT, (0.0, miss), strict=True)), facts=facts)


def _measure_limit(blocks: Sequence[Block]) -> list[Measured]:
    runs = follow(blocks)
    return [_against_spectrum(b, run, b.limit()) for b, run in zip(blocks, runs, strict=True)]


def _single(block: Block) -> float:
    return block.size - 1.0


def _disturbed(rng: np.random.Generator, shapes: Sequence[tuple[int, int]]) -> Block:
    """Layers that are not of the family, by a tenth of alpha."""
    block = draw_block(rng, depths=(3,), shapes=shapes, infinite=0.0)
    layers = tuple(block.layer + 0.1 * block.alpha * rng.standard_normal(block.layer.shape) for _ in range(block.depth))
    return dataclasses.replace(block, layers=layers)


def _draw_diagonal(rng: np.random.Generator) -> Block:
    return draw_block(rng, depths=(2, 3, 4, 5, 6), shapes=((4, 1),))


def _deep_diagonal(rng: np.random.Generator) -> Block:
    return draw_block(rng, depths=(3,), shapes=((4, 1),), infinite=0.0)


def _draw_blocks(rng: np.random.Generator) -> Block:
    return draw_block(rng, shapes=((2, 2),), scales=(-2, -0.3))


THEOREM_33 = Check(
    id="completion/theorem-3.3",
    source="Theorem 3.3",
    statement=(
        "With the diagonal observed and equal to w*, the flow from the (α, m) layers ends at singular values σ₁, once, "
        "and σ₂, n − 1 times, with σ₁ + (n−1)σ₂ = w* d, and σ₂/σ₁ = ((m−1)/(m+d−1))² at depth 2, σ₁^{2/L−1} − "
        "σ₂^{2/L−1} = λ₁(0)^{2−L} − λ₂(0)^{2−L} deeper, σ₁ = σ₂ for m = ∞."
    ),
    hypotheses=(*BLOCK_HYPOTHESES, Hypothesis("blocks of size 1", _single), OBSERVABLE, FOLLOWED),
    tolerances=LIMIT,
    measure=_measure_limit,
    draw=_draw_diagonal,
    violations=(
        told_otherwise(_deep_diagonal, alpha=1.1),
        Violation("unequal observed values", lambda rng: dataclasses.replace(unequal(rng), blocks=4, size=1)),
        Violation("layers outside the family", lambda rng: _disturbed(rng, ((4, 1),))),
    ),
    adopt=adopt_block,
)

THEOREM_33_BLOCKS = Check(
    id="completion/theorem-3.3-blocks",
    source="Theorem 3.3, blocks of size s > 1",
    statement=(
        "With blocks of size s > 1 the first n singular values end as for the diagonal, and the other n(s−1) decay "
        "algebraically, as λ₃(t)^L with λ₃(t) = λ₃(0)(1 + (2L−2) t λ₃(0)^{2L−2})^{−1/(2L−2)}."
    ),
    hypotheses=(
        *BLOCK_HYPOTHESES,
        Hypothesis("blocks of size 2 or more", lambda b: 2.0 - b.size),
        OBSERVABLE,
        FOLLOWED,
    ),
    tolerances=LIMIT,
    measure=_measure_limit,
    draw=_draw_blocks,
    violations=(
        told_otherwise(lambda rng: draw_block(rng, depths=(3,), shapes=((2, 2),), infinite=0.0), alpha=1.1),
        Violation("layers outside the family", lambda rng: _disturbed(rng, ((2, 2),))),
    ),
    adopt=adopt_block,
)


def _measure_shared(blocks: Sequence[Block]) -> list[Measured]:
    measured = []
    for block, run in zip(blocks, follow(blocks), strict=True):
        told = np.asarray(block.params[0]) if block.told is None else block.told.layer
        first, second, _ = eigenvalues(told, block.blocks, block.size)
        limit = block_limit_from(block.depth, first, second, blocks=block.blocks, size=block.size, value=block.value)
        measured.append(_against_spectrum(block, run, limit))
    return measured


def _draw_shared(rng: np.random.Generator) -> Block:
    """Any M(a, b, c) with positive first eigenvalues; the ones vector may lag behind."""
    block = draw_block(rng, infinite=1.0)
    first, second, third = block.alpha * rng.uniform(0.5, 1.5, 3)
    matrix = np.asarray(
        BlockMatrix.from_eigenvalues(first, second, third, blocks=block.blocks, size=block.size).dense()
    )
    return dataclasses.replace(block, layers=(matrix,) * block.depth)


def _outside(block: Block) -> float:
    layers = [np.asarray(layer) for layer in block.params]
    first = eigenvalues(layers[0], block.blocks, block.size)
    nearest = np.asarray(BlockMatrix.from_eigenvalues(*first, blocks=block.blocks, size=block.size).dense())
    return max(float(np.max(np.abs(layer - nearest))) for layer in layers) / float(np.max(np.abs(nearest)))


def _not_positive(block: Block) -> float:
    first, second, _ = eigenvalues(np.asarray(block.params[0]), block.blocks, block.size)
    return -float(min(first, second))


SHARED_START = Check(
    id="completion/shared-start",
    source="extension of Theorem 3.3",
    statement=(
        "The limits hold from any shared layer M(a, b, c) with λ₁, λ₂ > 0; where λ₂ > λ₁ the limit has n − 1 copies of "
        "the larger value."
    ),
    hypotheses=(
        *BLOCK_HYPOTHESES[:-1],
        Hypothesis("all layers are one M(a, b, c)", _outside, FAMILY_TOLERANCE),
        Hypothesis("λ₁ and λ₂ are positive", _not_positive, -1e-12),
    ),
    tolerances=LIMIT,
    measure=_measure_shared,
    draw=_draw_shared,
    violations=(
        Violation("layers outside the family", lambda rng: _disturbed(rng, ((2, 2),))),
        Violation(
            "the formula for a multiple of the identity",
            lambda rng: (lambda b: dataclasses.replace(b, told=b))(_draw_shared(rng)),
        ),
    ),
)

RANK_TWO_LAYERS = {
    REACHED: NONE,
    "stable rank of the limit of the flow": 1e-9,
    "stable rank by the solver": 1e-13,
}


def _measure_depth_2(blocks: Sequence[Block]) -> list[Measured]:
    measured = []
    for block, run in zip(blocks, follow(blocks), strict=True):
        if run is None:
            measured.append(unreached(RANK_TWO_LAYERS))
            continue
        told = block.prediction
        ratio = 1.0 if np.isinf(told.m) else (told.m - 1) / (told.m + told.width - 1)
        wanted = 1 + (told.blocks - 1) * ratio**4
        values = np.linalg.svd(run.product[-1], compute_uv=False)
        found = float(np.sum((values / values[0]) ** 2))
        numbers = (0.0, abs(found - wanted), abs(float(told.limit().stable_rank) - wanted))
        measured.append(Measured(dict(zip(RANK_TWO_LAYERS, numbers, strict=True)), facts={"stable rank": found}))
    return measured


def _draw_depth_2(rng: np.random.Generator) -> Block:
    return draw_block(rng, depths=(2,), shapes=((4, 1),), scales=(-6, 0.3))


DEPTH_2_RANK = Check(
    id="completion/depth-2-stable-rank",
    source="Theorem 3.3, depth 2",
    statement="At depth 2 the limit has the stable rank 1 + (n−1)((m−1)/(m+d−1))⁴, whatever α.",
    hypotheses=(
        *BLOCK_HYPOTHESES,
        Hypothesis("depth 2", lambda b: b.depth - 2.0),
        Hypothesis("size 1", _single),
        FOLLOWED,
    ),
    tolerances=RANK_TWO_LAYERS,
    measure=_measure_depth_2,
    draw=_draw_depth_2,
    violations=(Violation("depth 3", _deep_diagonal),),
    adopt=adopt_block,
)


# ---- Formulas of the limit -------------------------------------------------------------------------------------------

FORMULA_SHAPES = ((4, 1), (10, 1), (5, 2))


def _draw_formula(rng: np.random.Generator) -> Block:
    return draw_block(rng, depths=(3, 4, 5, 6), shapes=FORMULA_SHAPES, scales=(-6, 0), infinite=0.0)


MONOTONE = {
    "f₁ does not fall": NONE,
    "f₂ does not rise": NONE,
    "f₁(σ₁) against C": 1e-8,
    "f₂(σ₂) against C": 1e-8,
}
"""Printed equations, which lose digits where σ₂ is small."""


def _measure_equations_of_limit(blocks: Sequence[Block]) -> list[Measured]:
    measured = []
    for block in blocks:
        d, n, q = block.width, block.blocks, (block.depth - 2) / block.depth
        total = block.value * d
        grid = np.linspace(0, 1, 4003)[1:-1]
        one = total * grid
        f1 = one**-q - ((total - one) / (n - 1)) ** -q
        two = total / (n - 1) * grid
        f2 = (total - (n - 1) * two) ** -q - two**-q
        first, second = 0.0, 0.0
        if block.depth > 2:
            limit = block.limit()
            given = {"blocks": block.blocks, "size": block.size}
            constant = float(block_constant(block.depth, block.alpha, block.m, **given))
            at_1 = float(block_equation_1(limit.sigma_1, block.depth, value=block.value, **given))
            at_2 = float(block_equation_2(limit.sigma_2, block.depth, value=block.value, **given))
            # The difference w* d − σ₁ carries σ₂ with an error of rounding.
            lost = 1 + float(EPS * total / limit.sigma_2) * 1e8
            first, second = abs(at_1 / constant - 1) / lost, abs(at_2 / constant - 1)
        numbers = (float(np.sum(np.diff(f1) >= 0)), float(np.sum(np.diff(f2) <= 0)), first, second)
        measured.append(Measured(dict(zip(MONOTONE, numbers, strict=True))))
    return measured


def _lost_equations(block: Block) -> float:
    """Decades outside of where the printed equations keep their digits: σ₂ beside w* d, σ₁ apart from σ₂, m beside d.

    With the powers -q and 2 - L that must not overflow.
    """
    if block.depth <= 2 or not 1 < block.m < np.inf:
        return 0.0
    limit, total = block.limit(), block.value * block.width
    powers = (block.depth - 2) * np.abs(np.log10(block.alpha * np.array([1 + block.width / block.m, 1 - 1 / block.m])))
    return decades(
        (float(limit.sigma_2) / total, 1e-12, 1.0),
        (float(np.expm1(limit.log_ratio)), 1e-6, np.inf),
        (block.m / block.width, 1e-300, 1e5),
        (1 - 1 / block.m, 1e-4, 1.0),
        (float(np.max(powers)), 0.0, 150.0),
        (block.value, 1e-100, 1e100),
    )


PROPOSITION_D2 = Check(
    id="completion/proposition-d2",
    source="Proposition D.2",
    statement=(
        "At depth L ≥ 3 f₁(σ) = σ^{−q} − ((w*d − σ)/(n−1))^{−q} falls strictly on (0, w*d) and f₂(σ) = (w*d − "
        "(n−1)σ)^{−q} − σ^{−q} rises strictly on (0, w*d/(n−1)), q = 1 − 2/L, so that the limit is unique."
    ),
    hypotheses=(*BLOCK_HYPOTHESES, DEEP, ABOVE_ONE, FINITE, Hypothesis(MEASURABLE, _lost_equations)),
    tolerances=MONOTONE,
    measure=_measure_equations_of_limit,
    draw=_draw_formula,
    violations=(Violation("depth 2", lambda rng: dataclasses.replace(_draw_formula(rng), depth=2)),),
    adopt=adopt_block,
)

RANK_ONE = {
    "stable rank − 1 does not fall with α": NONE,
    "stable rank − 1 at α^L = 1e−15 w*": 1e-6,
    "σ₂ over the law of small starts, beyond its next term": 1.0,
}


def _measure_small(blocks: Sequence[Block]) -> list[Measured]:
    measured = []
    for block in blocks:
        scales = 10.0 ** np.arange(-15, 0, 2)
        alphas = (block.value * scales) ** (1 / block.depth)
        given = {"blocks": block.blocks, "size": block.size}
        limit = block_limit(block.depth, alphas, block.m, value=block.value, **given)
        excess = np.asarray(limit.stable_rank_excess)
        beyond = np.inf
        if block.depth > 2 and np.isfinite(block.m):
            law = float(block_small_scale(block.depth, float(alphas[0]), block.m, **given))
            q = (block.depth - 2) / block.depth
            ratio = float(np.exp(-np.asarray(limit.log_ratio)[0]))
            # (1 + x)^{1/q} with x = (σ₂/σ₁)^q / (1 − (σ₂/σ₁)^q): its first term, twice.
            beyond = abs(law / float(np.asarray(limit.sigma_2)[0]) - 1) / (2 / q * ratio**q + 1e-12)
        numbers = (float(np.sum(np.diff(excess) <= 0)), float(excess[0]), beyond)
        facts = {f"stable rank − 1 at α^L = {s:.0e} w*": float(e) for s, e in zip(scales, excess, strict=True)}
        measured.append(Measured(dict(zip(RANK_ONE, numbers, strict=True)), facts=facts))
    return measured


def _below_crossover(block: Block) -> float:
    """Decades by which a hundred m exceed m* at the smallest start looked at, 1e-15 w*."""
    if block.depth <= 2 or not np.isfinite(block.m):
        return 0.0
    alpha = (1e-15 * block.value) ** (1 / block.depth)
    there = float(block_crossover(block.depth, alpha, blocks=block.blocks, size=block.size, value=block.value))
    return decades((100 * block.m / there, 0.0, 1.0))


def _lost_rate(block: Block) -> float:
    """Decades by which σ₂, of order (1 - 1/m)^L 1e-15 w*, is too small for its square."""
    return decades(((1 - 1 / block.m) ** block.depth, 1e-100, 1.0), (block.value, 1e-30, 1e30))


COROLLARY_34 = Check(
    id="completion/corollary-3.4",
    source="Corollary 3.4, with the rate as an extension",
    statement=(
        "At depth L ≥ 3 and finite m the stable rank of the limit falls to 1 as α → 0, with σ₂ ≈ (λ₂^{2−L} − "
        "λ₁^{2−L})^{−L/(L−2)}, proportional to α^L; seen at starts so small that the crossover m* lies far above m."
    ),
    hypotheses=(
        *BLOCK_HYPOTHESES,
        DEEP,
        ABOVE_ONE,
        FINITE,
        Hypothesis("α^L = 1e−15 w* is small: m* exceeds 100 m", _below_crossover),
        Hypothesis(MEASURABLE, _lost_rate),
    ),
    tolerances=RANK_ONE,
    measure=_measure_small,
    draw=_draw_formula,
    violations=(
        Violation("m = ∞", lambda rng: dataclasses.replace(_draw_formula(rng), m=np.inf)),
        Violation("depth 2", lambda rng: dataclasses.replace(_draw_formula(rng), depth=2)),
    ),
    adopt=adopt_block,
)

LAWS = {
    "nuclear norm against w* d": 1e-13,
    "nuclear norm above that of the observed part alone": 1e-13,
    "limit for (c^{1/L} α, c w*) against c times the limit": 1e-12,
    "miss of the unobserved entries against σ₂/s": 1e-12,
}


def _measure_laws(blocks: Sequence[Block]) -> list[Measured]:
    measured = []
    for block in blocks:
        limit = block.limit()
        matrix = np.asarray(limit.matrix().dense())
        nuclear = float(np.sum(np.linalg.svd(matrix, compute_uv=False)))
        # No completion has a smaller one: the trace of the observed part bounds it from below.
        total, trace = block.value * block.width, float(np.trace(matrix))
        c = 7.3
        scaled = dataclasses.replace(block, alpha=c ** (1 / block.depth) * block.alpha, value=c * block.value).limit()
        apart = ~block_mask(block.blocks, block.size)
        miss = block.value - matrix[apart]
        numbers = (
            abs(nuclear / total - 1),
            (nuclear - trace) / total,
            max(
                abs(float(scaled.sigma_1 / limit.sigma_1) / c - 1),
                abs(float(scaled.log_sigma_2 - limit.log_sigma_2) - np.log(c)),
            ),
            float(np.max(np.abs(miss - float(limit.sigma_2) / block.size))) / block.value,
        )
        measured.append(Measured(dict(zip(LAWS, numbers, strict=True))))
    return measured


def _lost_laws(block: Block) -> float:
    """Decades outside of where logarithms of σ₂ keep twelve digits."""
    scale = block.depth * abs(np.log10(block.alpha) - np.log10(block.value) / block.depth)
    apart = 1.0 if block.m == 1 else 1 - 1 / block.m
    return decades((scale, 0.0, 30.0), (block.value, 1e-100, 1e100), (apart, 1e-3, 1.0), (block.depth, 2.0, 30.0))


LIMIT_LAWS = Check(
    id="completion/limit-laws",
    source="extension of Theorem 3.3",
    statement=(
        "For every depth, α and m the limit is a completion of least nuclear norm, w* d; only α^L/w* matters for its "
        "shape; and every unobserved entry misses the completion of rank one by σ₂/s."
    ),
    hypotheses=(*BLOCK_HYPOTHESES, Hypothesis(MEASURABLE, _lost_laws)),
    tolerances=LAWS,
    measure=_measure_laws,
    draw=lambda rng: draw_block(rng, depths=(2, 3, 4, 5, 6), shapes=FORMULA_SHAPES, scales=(-6, 0)),
    violations=(
        Violation(
            "a formula for 1.3 w*",
            lambda rng: (lambda b: dataclasses.replace(b, told=dataclasses.replace(b, value=1.3 * b.value)))(
                _draw_formula(rng)
            ),
        ),
    ),
    adopt=adopt_block,
)


# ---- Gradient descent ------------------------------------------------------------------------------------------------

RATES = (0.04, 0.02, 0.01)
DESCENT = {
    REACHED: NONE,
    "log₂ of the ratio of errors at two rates, distance from 1": 0.1,
    "error extrapolated to rate 0, relative to that at the smallest": 0.1,
}
"""The error of σ₂ is c₁η + c₂η²: halving the rate halves it up to the second term."""
MEMBERS = 24
"""Runs in one ensemble."""


def _descend(blocks: Sequence[Block]) -> list[Measured]:
    tasks = [(block, rate) for block in blocks for rate in RATES]
    ends: list[np.ndarray | None] = []
    for first in range(0, len(tasks), MEMBERS):
        part = tasks[first : first + MEMBERS]
        padded = part + part[-1:] * max(0, 4 - len(part))
        run = ensemble(
            [block.problem for block, _ in padded],
            [block.params for block, _ in padded],
            [GradientDescent(rate / block.value ** (2 - 2 / block.depth)) for block, rate in padded],
            horizon=200_000,
            every=200_000,
            until=until(loss, below=1e-18),
        )
        for k in range(len(part)):
            reached = float(run.final("loss")[k]) <= 1e-18
            ends.append(multiply([layer[k] for layer in run.params]) if reached else None)
    measured = []
    for k, block in enumerate(blocks):
        products = ends[len(RATES) * k : len(RATES) * (k + 1)]
        if any(product is None for product in products):
            measured.append(unreached(DESCENT))
            continue
        found = [np.linalg.svd(p, compute_uv=False)[block.blocks - 1] for p in products if p is not None]
        errors = np.array(found) / float(block.limit().sigma_2) - 1
        orders = np.log2(np.abs(errors[:-1] / errors[1:]))
        left = abs(2 * errors[-1] - errors[-2]) / abs(errors[-1])
        numbers = (0.0, float(np.max(np.abs(orders - 1))), float(left))
        facts = {f"error at rate {rate:g}": float(e) for rate, e in zip(RATES, errors, strict=True)}
        measured.append(Measured(dict(zip(DESCENT, numbers, strict=True)), facts=facts))
    return measured


def _draw_descent(rng: np.random.Generator) -> Block:
    block = draw_block(rng, depths=(3,), shapes=((4, 1),), scales=(-2.5, -1), infinite=0.0)
    return dataclasses.replace(block, m=float(rng.uniform(4, 20)))


GRADIENT_DESCENT = Check(
    id="completion/gradient-descent-limit",
    source="Figure 9",
    statement=(
        "Gradient descent ends at the limit of Theorem 3.3 with an error of σ₂ that is of first order in the rate."
    ),
    hypotheses=(*BLOCK_HYPOTHESES, DEEP, FINITE, Hypothesis("blocks of size 1", _single)),
    tolerances=DESCENT,
    measure=_descend,
    draw=_draw_descent,
    violations=(told_otherwise(_draw_descent, alpha=1.1),),
)

CHECKS: tuple[Check, ...] = (
    PROPOSITION_D2,
    THEOREM_33,
    THEOREM_33_BLOCKS,
    COROLLARY_34,
    DEPTH_2_RANK,
    SHARED_START,
    LIMIT_LAWS,
    GRADIENT_DESCENT,
)
