"""Diagonal blocks of equal values: where printed statements on the limit go too far."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from deeplinear.dynamics import coupling
from deeplinear.exact import (
    block_crossover,
    block_limit,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.completion._blocks import (
    ABOVE_ONE,
    BLOCK_HYPOTHESES,
    DEEP,
    FINITE,
    FOLLOWED,
    Block,
    adopt_block,
    draw_block,
    follow,
)
from deeplinear.theory.completion._laws import NONE, REACHED, unreached
from deeplinear.theory.completion._limits import FORMULA_SHAPES

EPS = float(np.finfo(float).eps)

IFF = {REACHED: NONE, "parts missing to one for each block": NONE, "σ₂/σ₁ at the end of the flow": 1e-12}


def _measure_iff(blocks: Sequence[Block]) -> list[Measured]:
    measured = []
    for block, run in zip(blocks, follow(blocks), strict=True):
        if run is None:
            measured.append(unreached(IFF))
            continue
        parts = len(coupling(block.problem, block.params).partition)
        values = np.linalg.svd(run.product[-1], compute_uv=False)
        stable = float(np.sum((values / values[0]) ** 2))
        numbers = (0.0, float(block.blocks - parts), float(values[1] / values[0]))
        measured.append(
            Measured(dict(zip(IFF, numbers, strict=True)), printed=block.blocks - stable, facts={"stable rank": stable})
        )
    return measured


RANK_ONE_IFF = Check(
    id="completion/erratum-rank-one-iff-coupled",
    source="Abstract, (b)",
    statement=(
        "At depth 2 and m = 1 (all entries of a layer equal) the dynamics is decoupled and the limit has rank one all "
        "the same; at depth 2 every m > 1 gives rank n, but a stable rank near n only for large m, and coupled flows "
        "reach rank one only as α → 0."
    ),
    hypotheses=(
        *BLOCK_HYPOTHESES,
        Hypothesis("depth 2", lambda b: b.depth - 2.0),
        Hypothesis("m = 1", lambda b: abs(b.m - 1.0)),
        FOLLOWED,
    ),
    tolerances=IFF,
    measure=_measure_iff,
    draw=lambda rng: dataclasses.replace(draw_block(rng, depths=(2,), shapes=((4, 1),)), m=1.0),
    violations=(
        Violation("m = 1.5", lambda rng: dataclasses.replace(draw_block(rng, depths=(2,), shapes=((4, 1),)), m=1.5)),
    ),
    printed="Convergence to rank one occurs if and only if the dynamics is coupled.",
    printed_tolerance=1e-6,
    adopt=adopt_block,
)

LARGE_M = 1e10
CROSSOVER = {
    "σ₂/(s w*) where m* is 50 m, below one half": 0.5,
    "1 − σ₂/(s w*) where m* is m/50, below one half": 0.5,
}


def _measure_crossover(blocks: Sequence[Block]) -> list[Measured]:
    measured = []
    for block in blocks:
        given = {"blocks": block.blocks, "size": block.size, "value": block.value}
        k = block.depth - 2
        shares = []
        for factor in (50.0, 1 / 50.0):
            # m* is a power of alpha: one evaluation tells where it takes a given value.
            there = float(block_crossover(block.depth, block.alpha, **given))
            alpha = block.alpha * (there / (factor * LARGE_M)) ** (1 / k)
            shares.append(float(block_limit(block.depth, alpha, block.m, **given).sigma_2) / (block.size * block.value))
        numbers = (shares[0], 1 - shares[1])
        measured.append(Measured(dict(zip(CROSSOVER, numbers, strict=True)), printed=1 - shares[0]))
    return measured


def _draw_large_m(rng: np.random.Generator) -> Block:
    block = draw_block(rng, depths=(3, 4, 5), shapes=FORMULA_SHAPES, infinite=0.0)
    return dataclasses.replace(block, m=LARGE_M)


FINITE_M = Check(
    id="completion/erratum-finite-m",
    source="Figures 2 and 5 to 8 (m = 10¹⁰ in place of ∞)",
    statement=(
        "m = 10¹⁰ behaves as m = ∞ only while m* = (L−2) d α^{2−L} (s w*)^{1−2/L} is far below it; smaller starts, "
        "with m* far above it, end near rank one."
    ),
    hypotheses=(*BLOCK_HYPOTHESES, DEEP, Hypothesis("m = 10¹⁰", lambda b: abs(b.m / LARGE_M - 1), 1e-12)),
    tolerances=CROSSOVER,
    measure=_measure_crossover,
    draw=_draw_large_m,
    violations=(Violation("m = ∞", lambda rng: dataclasses.replace(_draw_large_m(rng), m=np.inf)),),
    printed="May be read as: with m = 10¹⁰ the limit has σ₁ = σ₂ = s w* for all α and L.",
    printed_tolerance=1e-3,
)

ORDER = {"largest rise of ln σ₂ with depth, at equal α^L": 1e-12}


def _rise(block: Block, scale: float) -> float:
    """Largest rise of ln σ₂ from one depth to the next at equal alpha^L."""
    depths = np.arange(2, 8)
    alphas = (block.value * scale) ** (1 / depths)
    limit = block_limit(depths, alphas, block.m, blocks=block.blocks, size=block.size, value=block.value)
    rise = np.diff(np.asarray(limit.log_sigma_2, dtype=float))
    return float(rise.max())


def _measure_order(blocks: Sequence[Block]) -> list[Measured]:
    return [
        Measured(
            dict.fromkeys(ORDER, _rise(block, block.alpha**block.depth / block.value)),
            printed=max(_rise(block, scale) for scale in (0.5, 1.0, 1.5, 2.0, 3.0)),
        )
        for block in blocks
    ]


def _draw_order(rng: np.random.Generator) -> Block:
    block = draw_block(rng, depths=(3,), shapes=((10, 1), (5, 2)), scales=(-8, -2), infinite=0.0)
    return dataclasses.replace(block, m=float(1 + 10 ** rng.uniform(-0.5, 0.4)))


def _large_start(rng: np.random.Generator) -> Block:
    return Block(3, 10, 1, 0.1, float(rng.uniform(0.1, 0.2) ** (1 / 3)), 2.0)


def _wide(rng: np.random.Generator) -> Block:
    """A hundred blocks and a tenth of w*: depth 3 ends with a larger σ₂ than depth 2."""
    return Block(3, 100, 1, 1.0, 0.1 ** (1 / 3), float(rng.uniform(1.45, 1.6)))


DEPTH_BIAS = Check(
    id="completion/erratum-depth-bias",
    source="Section 3.2.1 and caption of Figure 2",
    statement=(
        "For d ≤ 10 and α^L ≤ w*/100 a deeper network (depths 2 to 7) ends at equal α^L with a smaller σ₂, a measured "
        "fact; for larger starts or wider matrices it need not."
    ),
    hypotheses=(
        *BLOCK_HYPOTHESES,
        FINITE,
        ABOVE_ONE,
        Hypothesis("width d ≤ 10", lambda b: b.width - 10.0),
        Hypothesis("α^L ≤ w*/100", lambda b: b.alpha**b.depth / b.value - 0.01, 1e-12),
    ),
    tolerances=ORDER,
    measure=_measure_order,
    draw=_draw_order,
    violations=(Violation("α^L from w* to 2 w*", _large_start), Violation("width 100 and α^L = w*/10", _wide)),
    printed="May be read as: for finite m greater depth strengthens the bias to low rank, at every scale.",
    printed_tolerance=1e-12,
    version=2,
)

CHECKS: tuple[Check, ...] = (RANK_ONE_IFF, FINITE_M, DEPTH_BIAS)
