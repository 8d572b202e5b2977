"""Views of matrix completion that answer at once: what a mask can say, and where block patterns end."""

import functools
from typing import Any, Literal

import numpy as np

from deeplinear.core import Array, norm
from deeplinear.dynamics import Coupling, coupling
from deeplinear.exact import block_crossover
from deeplinear.lab._figures import Answer, Axis, Fact, Graph, Map, Mark, Matrix, Node, curves, line, numbers, rows
from deeplinear.lab._recipes import script
from deeplinear.lab._room import Params, Watch, whole
from deeplinear.lab.rooms._completion_setting import (
    DEEPEST,
    DEPTH,
    SCALE,
    SCALES,
    VALUE,
    End,
    M,
    Setting,
    Task,
    block_ranks,
    block_values,
    effective_ranks,
    end_of,
    ratio_m,
    setting_of,
    spectrum,
    task_script,
)
from deeplinear.models import Connectivity, connectivity

NUDGE = 0.03
"""Part of the size of a diagonal start by which it is moved along the flow, to see what it couples then."""

LEAST = 1e-14
"""Singular values below this part of the largest are not drawn."""

CELLS = 61
"""Cells of a side of the map."""

POINTS = 121
"""Points of a curve over scales or ratios."""

SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")

DEPTHS = tuple(range(2, DEEPEST + 1))


# ---- The mask --------------------------------------------------------------------------------------------------------


def _coupling(params: Task, setting: Setting) -> tuple[Coupling, bool]:
    """Coupled or not, and whether the start had to be moved to see it.

    The gradients of entries of diagonal layers are orthogonal at the start itself, whatever is seen. Inner products
    are analytic in time: one that is not zero a moment later belongs to a coupled flow.
    """
    layers = setting.layers
    if params.start == "diagonal":
        gradient = setting.problem.gradient(layers)
        size = float(norm(gradient))
        step = NUDGE * float(norm(layers)) / size if size > 0 else 0.0
        layers = tuple(layer - step * slope for layer, slope in zip(layers, gradient, strict=True))
    found = coupling(setting.problem, layers)
    return found, params.start == "diagonal" and found.coupled and len(found.partition[0]) > 1


def _kernel(setting: Setting) -> tuple[np.ndarray, list[str]]:
    """Cosines of the gradients of the seen entries at the start, and names of these entries."""
    layers = [np.asarray(layer) for layer in setting.layers]
    i, j = np.nonzero(setting.mask)
    inputs, outputs = np.eye(layers[0].shape[1]), np.eye(layers[-1].shape[0])
    before = [inputs]
    for layer in layers[:-1]:
        before.append(layer @ before[-1])
    after = [outputs]
    for layer in reversed(layers[1:]):
        after.append(after[-1] @ layer)
    total = np.zeros((len(i), len(i)))
    for left, right in zip(reversed(after), before, strict=True):
        total += (left @ left.T)[np.ix_(i, i)] * (right.T @ right)[np.ix_(j, j)]
    root = np.sqrt(np.diag(total))
    size = np.outer(root, root)
    cosines = np.divide(total, size, out=np.zeros_like(total), where=size > 0)
    return cosines, ["w" + f"{a + 1}{b + 1}".translate(SUBSCRIPTS) for a, b in zip(i, j, strict=True)]


def _graph(found: Connectivity) -> Graph:
    """Rows on the left, columns on the right, an edge for each seen entry."""
    height, width = found.shape
    parts = {("r", i): k for k, part in enumerate(found.components) for i in part.rows}
    parts |= {("c", j): k for k, part in enumerate(found.components) for j in part.columns}

    def node(side: str, index: int, count: int) -> Node:
        place = (max(height, width) - count) / 2 + index
        part = parts.get((side, index), 7)
        return Node(x=0.0 if side == "r" else 1.0, y=-place, label=f"{side}{index + 1}", part=part)

    nodes = [node("r", i, height) for i in range(height)] + [node("c", j, width) for j in range(width)]
    edges = [(i, height + j) for part in found.components for i, j in part.entries]
    loose = len(found.isolated_rows) + len(found.isolated_columns)
    extra = " Black: nothing of it is seen." if loose else ""
    caption = f"Rows r and columns c, joined where an entry is seen. One colour for each part.{extra}"
    return Graph(name="graph", title="Which rows and columns are joined", nodes=nodes, edges=edges, caption=caption)


def _reach(found: Connectivity) -> np.ndarray:
    """Entries whose row and column lie in one part: those that rank one determines."""
    reach = np.zeros(found.shape, dtype=bool)
    for part in found.components:
        reach[np.ix_(part.rows, part.columns)] = True
    return reach


def _truth(params: Task, setting: Setting, found: Connectivity) -> Matrix:
    """The target; blank where no chain of seen entries leads, if it has rank one."""
    single = params.target == "powers" or params.rank == 1
    values = np.where(_reach(found), setting.target, np.nan) if single else setting.target
    blank = "Blank: even rank one leaves it open." if single else "Seen entries are framed."
    title = "What the seen entries determine" if single else "The matrix to find"
    return Matrix(name="truth", title=title, values=rows(values), known=setting.mask.tolist(), caption=f"{blank}")


def _rank_tone(rank: float, parts: int) -> Literal["good", "warning", "bad"]:
    """Near rank one, near a rank for each part, or between."""
    return "good" if rank < 1.05 else "warning" if rank < 0.9 * parts else "bad"


def _coupled(end: End, parts: int) -> tuple[str, Any]:
    """Coupled entries may end at low rank or not: what is known of it, and its tone."""
    if end.matrix is None or end.stuck or parts == 1:
        return "coupled", "plain"
    rank = float(effective_ranks(spectrum(end.matrix)))
    tone = _rank_tone(rank, parts)
    words = {"good": "coupled: ends near rank one", "bad": f"coupled, but too weakly: ends near rank {parts}"}
    return words.get(tone, f"coupled: ends between rank one and {parts}"), tone


def _coupling_fact(found: Coupling, moved: bool, depth: int, end: End, parts: int) -> Fact:
    if found.rule == "fewer than two observations":
        return Fact(label="Dynamics", value="one entry, coupled by definition")
    if found.coupled:
        how = "Not at the start, but as soon as the layers have moved." if moved else f"By the {found.rule}."
        value, tone = _coupled(end, parts)
        note = f"{how} Weakest link: cosine {found.residual:.2g}."
        return Fact(label="Dynamics", value=value, tone=tone, note=note)
    note = f"By the {found.rule}. The parts never hear of each other, however small the start."
    if depth == 2 and found.rule.startswith("observation"):
        note += " A third layer would join them, unless the start is diagonal."
    return Fact(label="Dynamics", value=f"decoupled into {len(found.partition)} parts", tone="bad", note=note)


def _open_fact(params: Task, setting: Setting, found: Connectivity) -> Fact:
    rank = 1 if params.target == "powers" else min(params.rank, *setting.mask.shape)
    seen, (height, width) = int(setting.mask.sum()), setting.mask.shape
    if rank == 1:
        left = int((~_reach(found)).sum())
        note = "Their row and column lie in different parts, or nothing of them is seen."
        if not left:
            return Fact(label="Left open at rank one", value="nothing", tone="good")
        return Fact(
            label="Left open at rank one", value=f"{left} of {height * width} entries", tone="warning", note=note
        )
    need = rank * (height + width - rank)
    tone = "warning" if seen < need else "plain"
    note = f"A matrix of rank {rank} has {need} free numbers; fewer seen entries cannot fix it."
    return Fact(label="Seen entries", value=f"{seen} for {need} free numbers", tone=tone, note=note)


def end_facts(end: End) -> list[Fact]:
    """The limit of the flow in words."""
    if end.matrix is None:
        tone = "bad" if end.stuck else "plain"
        return [Fact(label="Where the flow ends", value=end.known, tone=tone, note=end.how)]
    values = spectrum(end.matrix)
    rank = float(effective_ranks(values))
    facts = [Fact(label="Effective rank at the end", value=f"{rank:.4g}", note=f"Closed form: {end.how}.")]
    if end.stuck:
        note = "The product of equal layers keeps its sign, and a target has the other one: that entry ends at zero."
        facts.append(Fact(label="Saddle", value="not every entry is learned", tone="bad", note=note))
    return facts


def answer_mask(params: Task, watch: Watch) -> Answer:
    """Graph, verdict, what is determined, and the limit where it is known."""
    setting = setting_of(params)
    found = connectivity(setting.mask)
    verdict, moved = _coupling(params, setting)
    end = end_of(params, setting)
    kernel, names = _kernel(setting)
    figures: list[Any] = [
        _graph(found),
        _truth(params, setting, found),
        Matrix(
            name="kernel",
            title="How the seen entries pull at each other, at the start",
            values=rows(kernel),
            rows=names,
            columns=names,
            low=-1.0,
            high=1.0,
            caption="Cosine of the gradients of two entries (row, column). Zero: one does not move the other.",
        ),
    ]
    if end.matrix is not None:
        known = setting.mask.tolist()
        title = "Where the flow ends"
        figures.append(
            Matrix(
                name="end",
                title=title,
                values=rows(end.matrix),
                known=known,
                caption=f"{end.how[:1].upper()}{end.how[1:]}.",
            )
        )
    count = len(found.components)
    graph = Fact(
        label="Pattern", value="connected" if count == 1 else f"{count} parts", tone="good" if count == 1 else "warning"
    )
    dynamics = _coupling_fact(verdict, moved, params.depth, end, count)
    return Answer(figures=figures, facts=[graph, dynamics, _open_fact(params, setting, found), *end_facts(end)])


def script_mask(params: Task) -> str:
    """Verdict, what is left open, and where the flow ends where a formula knows it."""
    setting = setting_of(params)
    end = end_of(params, setting)
    rank = 1 if params.target == "powers" else min(params.rank, *setting.mask.shape)
    left_open = """
reach = np.zeros(mask.shape, dtype=bool)
for part in parts.components:
    reach[np.ix_(part.rows, part.columns)] = True
left_open = int((~reach).sum())
print("left open at rank one:", left_open)
"""
    free = f"""
height, width = mask.shape
free = {rank} * (height + width - {rank})
print("seen entries:", int(mask.sum()), "free numbers:", free)
"""
    shown = """
from deeplinear.core import effective_rank

print(end, effective_rank(jnp.asarray(end)))
"""
    return script(
        task_script(params),
        """
from deeplinear.dynamics import coupling
from deeplinear.models import connectivity

parts = connectivity(mask)
print(parts)
found = coupling(problem, layers)
print(found)
""",
        left_open if rank == 1 else free,
        *([end.lines, shown] if end.lines else []),
    )


# ---- Diagonal blocks -------------------------------------------------------------------------------------------------


class Blocks(Params):
    """Diagonal blocks of equal entries, and a start."""

    blocks: int = whole(10, 2, 10, "Blocks n", about="Diagonal blocks that are seen, all entries w*.")
    size: int = whole(1, 1, 4, "Size s of a block", about="1: the diagonal alone is seen.")
    depth: int = DEPTH
    scale: float = SCALES
    m: float = ratio_m()
    value: float = VALUE


def _visible(values: np.ndarray, largest: float) -> np.ndarray:
    return np.where(values > LEAST * largest, values, np.nan)


def answer_limit(params: Blocks, watch: Watch) -> Answer:
    """The limit on block patterns over scale, ratio and depth."""
    solve = functools.partial(block_values, blocks=params.blocks, size=params.size, value=params.value)
    n, total = params.blocks, params.value * params.blocks * params.size
    scales, ms = np.geomspace(*SCALE, CELLS), np.geomspace(*M, CELLS)
    map_rank = block_ranks(*solve(params.depth, scales, ms[:, None]), n)
    fine = np.geomspace(*SCALE, POINTS)
    depths = np.asarray(DEPTHS, dtype=float)[:, None]
    first, second = solve(depths, fine, params.m)
    ratios = np.geomspace(*M, POINTS)
    over_m = block_ranks(*solve(depths, params.scale, ratios), n)
    here_first, here_second = (float(x) for x in solve(params.depth, params.scale, params.m))
    rank = float(block_ranks(np.asarray(here_first), np.asarray(here_second), n))

    series = [line("you are here", [params.scale], [params.m], colour=7, style="points", legend=False)]
    crossover = None
    if params.depth > 2:
        border = np.asarray(_border(float(params.depth), scales, params.blocks, params.size, params.value))
        crossover = float(_border(float(params.depth), params.scale, params.blocks, params.size, params.value))
        inside = np.where((border >= M[0]) & (border <= M[1]), border, np.nan)
        series.append(line("m*", scales, inside, colour=1, style="dash"))
    spectra = []
    for k, depth in enumerate(DEPTHS):
        spectra.append(line(f"σ₁, L = {depth}", fine, first[k], colour=k))
        spectra.append(line(f"σ₂, L = {depth}", fine, _visible(second[k], total), colour=k, style="dash", legend=False))
    matrix = np.kron(np.eye(n), np.ones((params.size, params.size))) * here_second / params.size
    matrix += params.value - here_second / params.size
    figures: list[Any] = [
        Map(
            name="map",
            title=f"Effective rank of the limit, depth {params.depth}",
            x=Axis(label="scale αᴸ", log=True),
            y=Axis(label="ratio m", log=True),
            xs=numbers(scales),
            ys=numbers(ms),
            z=rows(map_rank),
            value="effective rank",
            pick=("scale", "m"),
            series=series,
            caption="Click or drag. Below the dashed line m* the limit is near rank one, above it near rank n."
            if params.depth > 2
            else "At depth 2 the scale does not matter at all.",
        ),
        curves(
            "spectrum",
            f"Singular values of the limit, m = {params.m:.3g}",
            Axis(label="scale αᴸ", log=True),
            Axis(label="singular value", log=True),
            spectra,
            [Mark(at=params.scale, label="now")],
            "Solid: the first, dashed: the others.",
        ),
        curves(
            "ratio",
            f"Effective rank, scale {params.scale:.3g}",
            Axis(label="ratio m", log=True),
            Axis(label="effective rank", low=0.9, high=n + 0.1),
            [line(f"L = {depth}", ratios, over_m[k], colour=k) for k, depth in enumerate(DEPTHS)],
            [Mark(at=params.m, label="now")],
        ),
        Matrix(
            name="limit",
            title="The completed matrix",
            values=rows(matrix),
            known=np.kron(np.eye(n), np.ones((params.size, params.size))).astype(bool).tolist(),
            low=-params.value,
            high=params.value,
            caption=f"Rank one would be {params.value:.3g} everywhere.",
        ),
    ]
    facts = [
        Fact(label="Effective rank", value=f"{rank:.4g}", tone=_rank_tone(rank, n)),
        Fact(label="σ₁", value=f"{here_first:.6g}"),
        Fact(label="σ₂", value=f"{here_second:.6g}", note=f"{n - 1} times."),
        Fact(label="Entries never seen", value=f"{params.value - here_second / params.size:.4g}"),
    ]
    if crossover is not None:
        note = "Around this ratio the limit goes over from rank one to rank n."
        facts.append(Fact(label="Crossover m*", value=f"{crossover:.3g}", note=note))
    remarks = [f"All these limits have the nuclear norm w*d = {total:.4g}: it cannot tell the depths apart."]
    if here_second <= LEAST * total:
        remarks.append("σ₂ is too small to be drawn here, or zero (m = 1).")
    return Answer(figures=figures, facts=facts, remarks=remarks)


def _border(depth: float, scale: Any, blocks: int, size: int, value: float) -> Array:
    return block_crossover(depth, np.asarray(scale) ** (1 / depth), blocks=blocks, size=size, value=value)


def script_limit(params: Blocks) -> str:
    """The limit by the library."""
    return script(
        f"""
from deeplinear.exact import block_crossover, block_limit

depth, scale, m = {params.depth}, {params.scale!r}, {params.m!r}
problem = dict(blocks={params.blocks}, size={params.size}, value={params.value!r})
limit = block_limit(depth, scale ** (1 / depth), m, **problem)
print(limit.sigma_1, limit.sigma_2, limit.effective_rank, limit.unobserved)
if depth > 2:
    print(block_crossover(depth, scale ** (1 / depth), **problem))

# All depths over scales, and over ratios.
depths, scales = np.arange(2.0, {DEEPEST + 1})[:, None], np.geomspace({SCALE[0]}, {SCALE[1]}, {POINTS})
over_scales = block_limit(depths, scales ** (1 / depths), m, **problem)
over_m = block_limit(depths, scale ** (1 / depths), np.geomspace({M[0]}, {M[1]}, {POINTS}), **problem)
print(over_scales.sigma_1[:, ::30], over_scales.sigma_2[:, ::30], over_m.effective_rank[:, ::30])

# The map: rows are ratios, columns scales.
sides = np.geomspace({SCALE[0]}, {SCALE[1]}, {CELLS}), np.geomspace({M[0]}, {M[1]}, {CELLS})
ranks = block_limit(depth, sides[0] ** (1 / depth), sides[1][:, None], **problem).effective_rank
print(ranks[::20, ::20])
"""
    )
