"""What the views of matrix completion share: pattern, target, start, and where the flow ends if a formula knows."""

import dataclasses
import math
from typing import Any, Literal

import numpy as np

from deeplinear.core import HypothesisError
from deeplinear.exact import Ending, block_limit, diagonal_limit, disconnected
from deeplinear.lab._errors import LabError
from deeplinear.lab._recipes import keys_of
from deeplinear.lab._room import Cells, Params, choice, grid, slider, whole
from deeplinear.models import (
    AbstractInit,
    AlphaM,
    Completion,
    Connectivity,
    DeepLinear,
    MatchedGaussian,
    Problem,
    ScaledIdentity,
    connectivity,
    low_rank_target,
)

SIDE = 8
"""Most rows and columns."""

SCALE = (1e-10, 1.0)
M = (1.0, 1e10)
DEEPEST = 5

LARGEST = 1e3
"""Largest target of a seen entry; beyond it the flow is needlessly stiff."""

SQUARE = {"start": ["alpha-m"]}
"""Starts that need as many rows as columns."""

Kind = Literal["alpha-m", "diagonal", "gaussian"]
Truth = Literal["powers", "random"]

DEPTH: Any = whole(3, 2, DEEPEST, "Depth L", about="Number of layers whose product completes the matrix.")
SCALES: Any = slider(1e-3, *SCALE, "Scale αᴸ of the start", log=True, about="The same at every depth: α = scale^(1/L).")
VALUE: Any = slider(1.0, 0.1, 10.0, "Size w* of the target", log=True)


def ratio_m(only: dict[str, list[str]] | None = None) -> Any:
    """The control of the ratio of the entries of a layer."""
    about = "Diagonal over off-diagonal entries of a layer; 1: all equal, large: diagonal."
    return slider(10.0, *M, "Ratio m", log=True, about=about, only=only)


class Pattern(Params):
    """Entries that are seen."""

    mask: Cells = grid(
        np.eye(3, dtype=bool).tolist(), SIDE, "Entries that are seen", about="Click or drag to paint.", square=SQUARE
    )


class Start(Params):
    """A matrix to find, and a start."""

    depth: int = DEPTH
    start: Kind = choice(
        "alpha-m",
        {
            "alpha-m": "α on the diagonal, α/m off it",
            "diagonal": "α on the diagonal only (m = ∞)",
            "gaussian": "Gaussian, standard deviation α",
        },
        "Start of every layer",
    )
    scale: float = SCALES
    m: float = ratio_m(only={"start": ["alpha-m"]})
    target: Truth = choice(
        "powers",
        {"powers": "rank one, regular: w* gⁱ⁻¹ cʲ⁻ⁱ", "random": "random, of low rank"},
        "Matrix to find",
    )
    value: float = VALUE
    ratio: float = slider(
        1.0,
        0.1,
        10.0,
        "Factor c",
        log=True,
        about="Regular target: from one column to the next.",
        only={"target": ["powers"]},
    )
    growth: float = slider(
        1.0, 0.1, 10.0, "Factor g", log=True, about="Regular target: along the diagonal.", only={"target": ["powers"]}
    )
    rank: int = whole(1, 1, 3, "Rank", about="Of the random target.", only={"target": ["random"]})
    seed: int = whole(0, 0, 9999, "Seed", seed=True)


class Task(Start, Pattern):
    """Everything that makes a problem; controls stand in the order of the last base first."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A task as arrays and objects of the library."""

    mask: np.ndarray
    target: np.ndarray
    problem: Problem
    layers: tuple[Any, ...]
    alpha: float

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.layers)


def painted(params: Params, name: str) -> np.ndarray:
    """A painted grid as an array; one with unequal rows is refused."""
    cells = getattr(params, name)
    if len({len(row) for row in cells}) > 1:
        title = type(params).model_fields[name].title
        raise LabError("value", f"{title}: all rows must have the same number of cells.", [name])
    return np.asarray(cells, dtype=bool)


def alpha_of(params: Any) -> float:
    """The scale of one layer."""
    return float(params.scale ** (1 / params.depth))


def widths_of(shape: tuple[int, ...], depth: int) -> tuple[int, ...]:
    """Widths of the network: hidden ones as wide as the larger side."""
    return (shape[1], *(max(shape),) * (depth - 1), shape[0])


def init_of(params: Task, shape: tuple[int, ...]) -> AbstractInit:
    """The start, as an initialisation."""
    if params.start == "gaussian":
        return MatchedGaussian(params.scale)
    if params.start == "diagonal":
        return ScaledIdentity(alpha_of(params))
    if shape[0] != shape[1]:
        text = "A start with α/m off the diagonal needs as many rows as columns. Take another start, or a square mask."
        raise LabError("value", text, ["mask", "start"])
    return AlphaM(alpha_of(params), params.m)


def target_of(params: Task, mask: np.ndarray) -> np.ndarray:
    """The matrix to find."""
    if params.target == "random":
        rank = min(params.rank, *mask.shape)
        target = np.asarray(
            low_rank_target(keys_of(params.seed)[0], (mask.shape[0], mask.shape[1]), rank, std=params.value)
        )
    else:
        i, j = np.indices(mask.shape)
        target = params.value * params.growth**i * params.ratio ** (j - i).astype(float)
    most = np.abs(target[mask]).max()
    if most > LARGEST:
        text = f"The largest seen entry would be {most:.3g}, above {LARGEST:g}. Take factors nearer to 1."
        raise LabError("value", text, ["ratio", "growth"])
    return target


def setting_of(params: Task) -> Setting:
    """Problem and start."""
    mask = painted(params, "mask")
    if not mask.any():
        raise LabError("value", "No entry is seen. Paint at least one cell.", ["mask"])
    target = target_of(params, mask)
    problem = Problem(DeepLinear(widths_of(mask.shape, params.depth)), Completion(target, mask))
    layers = init_of(params, mask.shape)(problem.model, keys_of(params.seed)[1])
    return Setting(mask, target, problem, layers, alpha_of(params))


# ---- Spectra ---------------------------------------------------------------------------------------------------------


def spectrum(matrices: Any) -> np.ndarray:
    """Singular values of a matrix or of a stack of them."""
    return np.linalg.svd(np.asarray(matrices, dtype=float), compute_uv=False)


def effective_ranks(values: Any) -> np.ndarray:
    """Exponential of the entropy of singular values, along the last axis; a gap where all are zero."""
    values = np.asarray(values, dtype=float)
    total = values.sum(axis=-1, keepdims=True)
    share = np.divide(values, total, out=np.zeros_like(values), where=total > 0)
    entropy = -np.sum(share * np.log(np.where(share > 0, share, 1.0)), axis=-1)
    return np.where(total[..., 0] > 0, np.exp(entropy), np.nan)


def block_values(depth: Any, scale: Any, m: Any, blocks: int, size: int, value: float) -> tuple[np.ndarray, np.ndarray]:
    """Both singular values of the limit on diagonal blocks; scales are those of the product."""
    depths = np.asarray(depth, dtype=float)
    found = block_limit(depths, np.asarray(scale) ** (1 / depths), m, blocks=blocks, size=size, value=value)
    fraction = np.exp(-np.asarray(found.log_ratio))
    first = value * blocks * size / (1 + (blocks - 1) * fraction)
    return first, fraction * first


def block_ranks(first: np.ndarray, second: np.ndarray, blocks: int) -> np.ndarray:
    """Effective rank of one singular value and several copies of another."""
    return effective_ranks(np.stack([first, *[second] * (blocks - 1)], axis=-1))


# ---- Where the flow ends ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class End:
    """The limit of the flow by a formula; without a matrix, what is known of it and why there is none.

    `lines` are those of a script that finds the matrix as `end`.
    """

    matrix: np.ndarray | None
    how: str
    stuck: bool = False
    known: str = "not known"
    lines: str = ""


def end_of(params: Task, setting: Setting) -> End:
    """The limit of the flow where a closed form knows it."""
    mask, depth = setting.mask, setting.depth
    seen = setting.target[mask]
    square = mask.shape[0] == mask.shape[1]
    parts = connectivity(mask)
    if params.start == "diagonal" and square and not (mask & ~np.eye(len(mask), dtype=bool)).any():
        return _diagonal_end(setting)
    blocks = {len(part.rows) for part in parts.components}
    joint = all(part.complete and part.rows == part.columns for part in parts.components)
    whole_matrix = not parts.isolated_rows and not parts.isolated_columns
    equal = np.ptp(seen) <= 1e-12 * abs(seen[0]) and seen[0] > 0
    many = len(parts.components) > 1
    if params.start != "gaussian" and square and whole_matrix and joint and many and len(blocks) == 1 and equal:
        size, value = blocks.pop(), float(seen[0])
        m = params.m if params.start == "alpha-m" else math.inf
        _, second = block_values(depth, params.scale, m, len(parts.components), size, value)
        matrix = np.full(mask.shape, value - float(second) / size)
        matrix[mask] = value
        return End(matrix, "diagonal blocks of equal entries", lines=_block_lines(depth, params.scale, m, parts, value))
    alone = mask.sum(axis=0).max() <= 1 and mask.sum(axis=1).max() <= 1
    if depth == 2 and alone:
        try:
            first, second = disconnected(setting.problem, setting.layers).limit()
        except HypothesisError:
            how = "Row and column of a seen entry start exactly opposed: the flow takes both to zero, and misses it."
            return End(None, how, stuck=True, known="in a saddle")
        how = "two layers, one seen entry in each row and column"
        return End(np.asarray(second) @ np.asarray(first), how, lines=PAIR_LINES)
    if mask.all():
        how = "Every entry is seen: nothing is left to complete. Only a saddle could hold the flow before it is there."
        return End(None, how, known="zero loss is the target itself")
    return End(None, "No closed form knows where this flow ends: run it.")


def _diagonal_end(setting: Setting) -> End:
    """Diagonal layers, diagonal entries: each is a chain of its own, those that are not seen stay."""
    count = len(setting.mask)
    seen = np.diag(setting.mask)
    targets = np.ones(SIDE)
    targets[:count] = np.where(seen, np.diag(setting.target), 1.0)
    limit = diagonal_limit(np.full((setting.depth, SIDE), setting.alpha), targets)
    ends = np.where(seen, np.prod(np.asarray(limit.weights), axis=0)[:count], setting.alpha**setting.depth)
    stuck = bool(np.any(seen & (np.asarray(limit.ending)[:count] != int(Ending.minimum))))
    how = "diagonal layers, where every entry is a chain of its own"
    return End(np.diag(ends), how, stuck, lines=_chain_lines(setting.depth, count, setting.alpha))


PAIR_LINES = """
from deeplinear.exact import disconnected

first, second = disconnected(problem, layers).limit()
end = np.asarray(second @ first)
"""
"""Lines of a script that find the end of single entries in rows and columns of their own."""


def _block_lines(depth: int, scale: float, m: float, parts: Connectivity, value: float) -> str:
    blocks, size = len(parts.components), len(parts.components[0].rows)
    ratio = "np.inf" if math.isinf(m) else repr(m)
    return f"""
from deeplinear.exact import block_limit

limit = block_limit({depth}, {scale!r} ** (1 / {depth}), {ratio}, blocks={blocks}, size={size}, value={value!r})
end = np.where(mask, {value!r}, np.asarray(limit.unobserved))
"""


def _chain_lines(depth: int, count: int, alpha: float) -> str:
    return f"""
from deeplinear.exact import diagonal_limit

seen = np.diag(mask)
limit = diagonal_limit(np.full(({depth}, {count}), {alpha!r}), np.where(seen, np.diag(target), 1.0))
end = np.diag(np.where(seen, np.prod(limit.weights, axis=0), {alpha!r} ** {depth}))
"""


# ---- The same as a script --------------------------------------------------------------------------------------------


def task_script(params: Task) -> str:
    """Lines that make mask, target, problem and layers."""
    mask = painted(params, "mask")
    widths = widths_of(mask.shape, params.depth)
    alpha = f"{params.scale!r} ** (1 / {params.depth})"
    inits = {
        "alpha-m": ("AlphaM", f"AlphaM({alpha}, {params.m!r})"),
        "diagonal": ("ScaledIdentity", f"ScaledIdentity({alpha})"),
        "gaussian": ("MatchedGaussian", f"MatchedGaussian({params.scale!r})"),
    }
    name, init = inits[params.start]
    names = [name, "Completion", "DeepLinear", "Problem"]
    if params.target == "random":
        names.append("low_rank_target")
        rank = min(params.rank, *mask.shape)
        target = (
            f"target = low_rank_target(jax.random.split(key_problem)[0], {mask.shape}, {rank}, std={params.value!r})"
        )
    else:
        target = (
            f"i, j = np.indices(mask.shape)\n"
            f"target = {params.value!r} * {params.growth!r} ** i * {params.ratio!r} ** (j - i).astype(float)"
        )
    return f"""
from deeplinear.models import {", ".join(sorted(names))}

mask = np.array({mask.astype(int).tolist()}, dtype=bool)
key_problem, key_start, _ = jax.random.split(jax.random.key({params.seed}), 3)
{target}
problem = Problem(DeepLinear({widths}), Completion(jnp.asarray(target), jnp.asarray(mask)))
init = {init}
layers = init(problem.model, jax.random.fold_in(key_start, 0))
"""
