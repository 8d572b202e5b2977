"""Which observed entries influence each other: kernels of single entries, and coupled and decoupled dynamics."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from deeplinear.core import Params, xp
from deeplinear.dynamics import coupling
from deeplinear.models import (
    Completion,
    DeepLinear,
    Problem,
    block_mask,
    connectivity,
    entry_gram,
    observed_entries,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import MEASURABLE, decades, flows, largest
from deeplinear.theory.completion._blocks import BLOCK_HYPOTHESES, FOLLOWED, Block, adopt_block
from deeplinear.theory.completion._laws import (
    Start,
    adopt_start,
    entry_gradients,
    random_layers,
    random_start,
    states,
)

EPS = float(np.finfo(float).eps)


def _normalised(gram: np.ndarray) -> np.ndarray:
    root = np.sqrt(np.diag(gram))
    size = root[:, None] * root
    return np.where(size > 0, np.abs(gram) / np.where(size > 0, size, 1.0), 0.0)


def _rounding(layers: Sequence[np.ndarray], rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Bound on the rounding error of each inner product: the same sum of absolute values, a few hundred roundings."""
    absolute = entry_gradients([np.abs(layer) for layer in layers], rows, columns)
    return 300 * EPS * absolute @ absolute.T


def _parts(graph: np.ndarray) -> frozenset[frozenset[int]]:
    """Components of a graph, as sets of vertices."""
    reach = np.linalg.matrix_power(np.eye(len(graph)) + graph, len(graph)) > 0
    return frozenset(frozenset(np.flatnonzero(row).tolist()) for row in reach)


def _kernel_parts(start: Start) -> frozenset[frozenset[int]]:
    """Components of the observed entries, joined where their inner product is not zero now."""
    rows, columns, _ = observed_entries(start.problem.loss)
    layers = [np.asarray(layer) for layer in _scaled(start.params)]
    jacobian = entry_gradients(layers, rows, columns)
    return _parts(np.abs(jacobian @ jacobian.T) > _rounding(layers, rows, columns))


def _scaled(params: Params) -> Params:
    """Layers divided by their largest weight, all by the same: which inner products vanish does not change."""
    size = largest(params)
    return tuple(layer / size for layer in params) if size > 0 else params


def _depth(start: Start) -> int:
    return len(start.params)


def _unlike(start: Start) -> float:
    """How many weights are zero or equal to another one of their layer: none, for independent continuous draws."""
    return float(sum(layer.size - np.unique(layer[layer != 0]).size for layer in start.layers))


GENERIC = Hypothesis("the weights are generic: none zero, no two of a layer equal", _unlike)


# ---- The kernel of entries -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Kernel:
    """Layers, chosen entries, and the layers that the formula is given (others only in a violation)."""

    start: Start
    told: Params | None = None


def _measure_kernel(cases: Sequence[Kernel]) -> list[Measured]:
    measured = []
    for case in cases:
        rows, columns, _ = observed_entries(case.start.problem.loss)
        jacobian = entry_gradients(case.start.layers, rows, columns)
        wanted = jacobian @ jacobian.T
        told = case.start.params if case.told is None else case.told
        shapes = tuple(layer.shape for layer in told)
        network = DeepLinear((shapes[0][1], *(shape[0] for shape in shapes)))
        formula = np.asarray(entry_gram(network, told, rows, columns))
        size = max(float(np.linalg.norm(wanted)), 1e-300)
        measured.append(Measured({KERNEL: float(np.linalg.norm(formula - wanted)) / size}))
    return measured


def _measure_order(cases: Sequence[Kernel]) -> list[Measured]:
    """Beside the kernel, how far it is from that of the entries of the product in reverse order."""
    measured = []
    for case, plain in zip(cases, _measure_kernel(cases), strict=True):
        rows, columns, _ = observed_entries(case.start.problem.loss)
        grams = [
            jacobian @ jacobian.T
            for jacobian in (entry_gradients(layers, rows, columns) for layers in _orders(case.start.layers))
        ]
        printed = float(np.linalg.norm(grams[1] - grams[0]) / np.linalg.norm(grams[0]))
        measured.append(dataclasses.replace(plain, printed=printed))
    return measured


def _orders(layers: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
    return layers, tuple(reversed(layers))


KERNEL = "Σ_l (T_l)_ip (S_l)_jq against inner products of gradients"
ROUNDING = 1e-12
"""A few thousand roundings."""


def _lost_kernel(case: Kernel) -> float:
    """Decades by which the kernel, a sum of squares of products of layers, is outside of floating-point numbers."""
    power = 2 * _depth(case.start) - 2
    sizes = [largest([layer]) for layer in case.start.layers]
    low, high = 10 ** (-150 / power), 10 ** (150 / power)
    return decades(*((size, low, high) for size in sizes))


def _draw_kernel(rng: np.random.Generator) -> Kernel:
    widths = ((3, 4, 2, 5), (4, 4, 4), (3, 3, 3, 3, 3))[rng.integers(3)]
    mask = np.zeros((widths[-1], widths[0]), dtype=bool)
    mask.flat[rng.choice(mask.size, 6, replace=False)] = True
    problem = Problem(DeepLinear(widths), Completion(np.ones(mask.shape), mask))
    return Kernel(Start(problem, random_layers(rng, widths, 10 ** rng.uniform(-2, 1))))


def _other_layers(rng: np.random.Generator) -> Kernel:
    case = _draw_kernel(rng)
    first, *rest = case.start.params
    return dataclasses.replace(case, told=(1.01 * first, *rest))


LEMMA_B1 = Check(
    id="completion/lemma-b1",
    source="Lemma B.1",
    statement=(
        "The gradients of entries w_ij and w_pq of W = W_L ⋯ W_1 have the inner product Σ_l (T_l)_ip (S_l)_jq with T_l "
        "= W_{L:l+1} W_{L:l+1}ᵀ and S_l = W_{l−1:1}ᵀ W_{l−1:1}, for any shapes."
    ),
    hypotheses=(Hypothesis(MEASURABLE, _lost_kernel),),
    tolerances={KERNEL: ROUNDING},
    measure=_measure_kernel,
    draw=_draw_kernel,
    violations=(Violation("the first layer one per cent larger in the formula", _other_layers),),
    adopt=lambda problem, params: Kernel(adopt_start(problem, params)),
)


def _draw_order(rng: np.random.Generator) -> Kernel:
    start = random_start(rng, 3, 3, 0.7)
    mask = np.zeros((3, 3), dtype=bool)
    mask.flat[rng.choice(mask.size, 6, replace=False)] = True
    return Kernel(dataclasses.replace(start, problem=Problem(start.problem.model, Completion(np.ones((3, 3)), mask))))


def _reversed(rng: np.random.Generator) -> Kernel:
    case = _draw_order(rng)
    return dataclasses.replace(case, told=tuple(reversed(case.start.params)))


PRODUCT_ORDER = Check(
    id="completion/erratum-product-order",
    source="Appendix B.1.2",
    statement="In the example of depth 3 the entries are those of W_3 W_2 W_1: the kernel of the text is theirs.",
    hypotheses=(Hypothesis("depth 3", lambda case: abs(_depth(case.start) - 3.0)),),
    tolerances={KERNEL: ROUNDING},
    measure=_measure_order,
    draw=_draw_order,
    violations=(Violation("the layers in reverse order", _reversed),),
    printed="The entries are those of W_1 W_2 W_3.",
    printed_tolerance=ROUNDING,
)


def _measure_generic(starts: Sequence[Start]) -> list[Measured]:
    measured = []
    for start in starts:
        out, inp = start.problem.model.product_shape
        rows, columns = (index.ravel() for index in np.indices((out, inp)))
        jacobian = entry_gradients(start.layers, rows, columns)
        gram = jacobian @ jacobian.T
        zero = np.abs(gram) <= _rounding(start.layers, rows, columns)
        least = float(np.min(_normalised(gram)))
        measured.append(Measured({"pairs of entries with K = 0": float(zero.sum())}, facts={"least |K|": least}))
    return measured


PROPOSITION_B1 = Check(
    id="completion/proposition-b1",
    source="Proposition B.1",
    statement=(
        "At depth L ≥ 3 and a start with independent continuous entries the gradients of any two entries of the "
        "product have a non-zero inner product, almost surely."
    ),
    hypotheses=(Hypothesis("depth L ≥ 3", lambda start: 3.0 - _depth(start)), GENERIC),
    tolerances={"pairs of entries with K = 0": 0.0},  # counted above a bound on rounding
    measure=_measure_generic,
    draw=lambda rng: random_start(rng, int(rng.choice([3, 4])), 3, 10 ** rng.uniform(-2, 0.5)),
    violations=(
        Violation("depth 2", lambda rng: random_start(rng, 2, 3, 0.5)),
        Violation("multiples of the identity", lambda rng: _with_layers(random_start(rng, 3, 3, 1.0), np.eye(3))),
    ),
)


def _with_layers(start: Start, layer: np.ndarray) -> Start:
    return dataclasses.replace(start, params=(xp.asarray(layer),) * _depth(start))


# ---- Depth 2 ---------------------------------------------------------------------------------------------------------


def _measure_pairs(starts: Sequence[Start]) -> list[Measured]:
    measured = []
    for start in starts:
        out, inp = start.problem.model.product_shape
        i, j = (index.ravel() for index in np.indices((out, inp)))
        jacobian = entry_gradients(start.layers, i, j)
        gram = jacobian @ jacobian.T
        zero = np.abs(gram) <= _rounding(start.layers, i, j)
        right = (i[:, None] != i) & (j[:, None] != j)
        wrong = (i[:, None] != i) & (j[:, None] != i)
        measured.append(
            Measured(
                {"pairs where K = 0 disagrees with i ≠ p and j ≠ q": float((zero != right).sum())},
                printed=float((zero != wrong).sum()),
                facts={"pairs with K = 0": float(zero.sum())},
            )
        )
    return measured


DEPTH_2_KERNEL = Check(
    id="completion/erratum-depth-2-kernel",
    source="Appendix B.2.1",
    statement=("At depth 2 the gradients of w_ij and w_pq are orthogonal for all weights exactly if i ≠ p and j ≠ q."),
    hypotheses=(Hypothesis("depth 2", lambda start: abs(_depth(start) - 2.0)), GENERIC),
    tolerances={"pairs where K = 0 disagrees with i ≠ p and j ≠ q": 0.0},
    measure=_measure_pairs,
    draw=lambda rng: random_start(rng, 2, 3, 10 ** rng.uniform(-2, 0.5)),
    violations=(Violation("depth 3", lambda rng: random_start(rng, 3, 3, 0.5)),),
    printed="They are orthogonal exactly if i ≠ p and j ≠ p.",
)

COMPONENTS = {
    "components of the kernel that are not components of the pattern": 0.0,
    "label against the pattern: decoupled exactly if disconnected": 0.0,
}


def _measure_components(starts: Sequence[Start]) -> list[Measured]:
    measured = []
    for start in starts:
        rows, columns, _ = observed_entries(start.problem.loss)
        place = {entry: k for k, entry in enumerate(zip(rows.tolist(), columns.tolist(), strict=True))}
        mask = np.zeros(start.problem.model.product_shape, dtype=bool)
        mask[rows, columns] = True
        pattern = connectivity(mask)
        wanted = frozenset(frozenset(place[entry] for entry in part) for part in pattern.partition)
        label = coupling(start.problem, start.params).coupled
        numbers = (float(len(_kernel_parts(start) - wanted)), float(label != pattern.connected))
        facts = {"components": float(len(pattern.components))}
        measured.append(Measured(dict(zip(COMPONENTS, numbers, strict=True)), facts=facts))
    return measured


def _disconnected_depth_3(rng: np.random.Generator) -> Start:
    start = random_start(rng, 3, 3, 0.5)
    return dataclasses.replace(start, problem=Problem(start.problem.model, Completion(np.ones((3, 3)), np.eye(3))))


DEPTH_2_COMPONENTS = Check(
    id="completion/depth-2-components",
    source="Section 3.2 after Definition 2, Appendix B.2.1",
    statement=(
        "At depth 2 and a start with independent continuous entries the observed entries fall, almost surely, into the "
        "components of the observation graph: the dynamics is coupled exactly if the pattern is connected."
    ),
    hypotheses=(Hypothesis("depth 2", lambda start: abs(_depth(start) - 2.0)), GENERIC),
    tolerances=COMPONENTS,
    measure=_measure_components,
    draw=lambda rng: random_start(rng, 2, 3, 10 ** rng.uniform(-2, 0.5)),
    violations=(Violation("depth 3 with a diagonal pattern", _disconnected_depth_3),),
)


# ---- The (alpha, m) family -------------------------------------------------------------------------------------------

LABEL = {
    "label against the statement": 0.0,
    "components of the kernel at the start against the label": 0.0,
}


def _claims_coupled(block: Block) -> bool:
    return block.depth >= 3 and bool(np.isfinite(block.m))


def _measure_label(blocks: Sequence[Block]) -> list[Measured]:
    measured = []
    for block in blocks:
        start = Start(block.problem, block.params)
        found = coupling(block.problem, _scaled(block.params))
        joined = len(_kernel_parts(start)) == 1
        claimed = _claims_coupled(block)
        numbers = (float(found.coupled != claimed), float(joined != claimed))
        facts = {"coupled": float(found.coupled), "parts": float(len(found.partition)), "link": found.residual}
        measured.append(Measured(dict(zip(LABEL, numbers, strict=True)), facts=facts))
    return measured


def _lost_label(block: Block) -> float:
    """Decades of m beyond which the smallest term of the kernel, of order (d/m)^(2L-4), leaves the numbers."""
    return 0.0 if np.isinf(block.m) else decades((block.m, 1.0, 10.0 ** (100 / block.depth)))


def _draw_label(rng: np.random.Generator) -> Block:
    n, s = ((2, 1), (3, 1), (2, 2), (3, 2))[rng.integers(4)]
    depth = int(rng.choice([2, 3, 4]))
    m = (1.0, 1 + 10 ** rng.uniform(-1, 6), np.inf)[rng.choice(3, p=[0.2, 0.5, 0.3])]
    return Block(depth, n, s, np.exp(rng.uniform(-1, 1)), 10 ** rng.uniform(-2, 0), m)


def _matched_blocks(rng: np.random.Generator) -> Block:
    """Depth 3 and finite m, but nothing outside the blocks."""
    block = Block(3, 2, 2, 1.0, 0.3, rng.uniform(2, 5))
    layer = block.layer * block_mask(2, 2)
    return dataclasses.replace(block, layers=(layer,) * 3)


PROPOSITION_32 = Check(
    id="completion/proposition-3.2",
    source="Proposition 3.2",
    statement=(
        "With n ≥ 2 observed diagonal blocks and all layers α on the diagonal and α/m off it, the dynamics is "
        "decoupled at depth 2 for every m, and at depth L ≥ 3 coupled for every finite m and decoupled for m = ∞."
    ),
    hypotheses=(*BLOCK_HYPOTHESES, Hypothesis(MEASURABLE, _lost_label)),
    tolerances=LABEL,
    measure=_measure_label,
    draw=_draw_label,
    violations=(
        Violation("layers without entries outside the blocks", _matched_blocks),
        Violation("a single block", lambda rng: Block(2, 1, 3, 1.0, rng.uniform(0.1, 0.5), rng.uniform(2, 5))),
    ),
    adopt=adopt_block,
    version=2,
)

TIMES = np.concatenate([[0.0], np.geomspace(1e-2, 50.0, 24)])
ACROSS = "largest normalised K between blocks, along the flow"
ALONG = {ACROSS: 1e-13}
"""Zeros of the layers are kept by the flow, so that nothing but rounding of the stiff steps can join the blocks."""


def _across(layers: Sequence[np.ndarray], problem: Problem, part: np.ndarray) -> float:
    rows, columns, _ = observed_entries(problem.loss)
    jacobian = entry_gradients(layers, rows, columns)
    weights = _normalised(jacobian @ jacobian.T)
    return float(np.max(weights, where=part[:, None] != part, initial=0.0))


def _measure_identity(blocks: Sequence[Block]) -> list[Measured]:
    runs = flows([block.problem for block in blocks], [block.params for block in blocks], TIMES, below=1e-16)
    measured = []
    for block, run in zip(blocks, runs, strict=True):
        part = observed_entries(block.problem.loss).rows // block.size
        _, path = states(run, 25)
        largest = max(_across(layers, block.problem, part) for layers in path)
        measured.append(Measured({ACROSS: largest}, facts={"loss at the end": float(run.loss[-1])}))
    return measured


def _draw_identity(rng: np.random.Generator) -> Block:
    n, s = ((4, 1), (2, 2))[rng.integers(2)]
    depth = int(rng.choice([2, 3, 4]))
    value = np.exp(rng.uniform(-1, 1))
    return Block(depth, n, s, value, (value * 10 ** rng.uniform(-2, -0.5)) ** (1 / depth), np.inf)


IDENTITY_START = Check(
    id="completion/proposition-3.2-identity",
    source="Proposition 3.2, m = ∞",
    statement=(
        "From multiples of the identity, K vanishes between observed blocks along the whole flow, at every depth."
    ),
    hypotheses=(
        *BLOCK_HYPOTHESES,
        Hypothesis("m = ∞", lambda block: 0.0 if np.isinf(block.m) else 1 / block.m),
        FOLLOWED,
    ),
    tolerances=ALONG,
    measure=_measure_identity,
    draw=_draw_identity,
    violations=(
        Violation(
            "finite m at depth 3",
            lambda rng: Block(3, 2, 2, 1.0, rng.uniform(0.2, 0.5), rng.uniform(5, 100)),
        ),
    ),
    adopt=adopt_block,
)


# ---- Zero layers, and what else is decoupled -------------------------------------------------------------------------

ZERO = {"largest |K|": 0.0, "parts missing to one for each observation": 0.0, "speed of the layers": 0.0}


def _measure_zero(starts: Sequence[Start]) -> list[Measured]:
    measured = []
    for start in starts:
        rows, columns, _ = observed_entries(start.problem.loss)
        jacobian = entry_gradients(start.layers, rows, columns)
        parts = len(_kernel_parts(start))
        speed = max(float(np.max(np.abs(np.asarray(g)))) for g in start.problem.gradient(start.params))
        numbers = (float(np.max(np.abs(jacobian @ jacobian.T))), float(len(rows) - parts), speed)
        measured.append(Measured(dict(zip(ZERO, numbers, strict=True))))
    return measured


def _zero(rng: np.random.Generator) -> Start:
    start = random_start(rng, int(rng.choice([2, 3])), 3, 1.0)
    return dataclasses.replace(start, params=tuple(xp.zeros_like(layer) for layer in start.params))


def _one_layer(rng: np.random.Generator) -> Start:
    start = random_start(rng, 2, 3, 1.0)
    return dataclasses.replace(start, params=(xp.zeros_like(start.params[0]), start.params[1]))


ZERO_LAYERS = Check(
    id="completion/zero-start",
    source="Appendix B.2.2",
    statement="From layers of zeros nothing moves and K = 0: every observed entry is a part of its own.",
    hypotheses=(
        Hypothesis("all weights are zero", lambda start: max(float(np.max(np.abs(layer))) for layer in start.layers)),
    ),
    tolerances=ZERO,
    measure=_measure_zero,
    draw=_zero,
    violations=(Violation("depth 2 with one layer that is not zero", _one_layer),),
    adopt=adopt_start,
)


def _off_diagonal(layers: Sequence[np.ndarray]) -> float:
    """Largest entry off the diagonal relative to the largest entry."""
    largest = max(float(np.max(np.abs(layer))) for layer in layers)
    return max(float(np.max(np.abs(layer - np.diag(np.diag(layer))))) for layer in layers) / largest


DECOUPLED = {ACROSS: 1e-10}
"""Rounding of the rotated layers, which the flow makes grow while the product does."""


def _measure_decoupled(starts: Sequence[Start]) -> list[Measured]:
    runs = flows([start.problem for start in starts], [start.params for start in starts], TIMES, below=1e-12)
    measured = []
    for start, run in zip(starts, runs, strict=True):
        rows, _, _ = observed_entries(start.problem.loss)
        _, path = states(run, 25)
        largest = max(_across(layers, start.problem, rows // 2) for layers in path)
        facts = {"loss at the end": float(run.loss[-1])}
        measured.append(Measured({ACROSS: largest}, printed=_off_diagonal(start.layers), facts=facts))
    return measured


def _blocks_problem(rng: np.random.Generator) -> Problem:
    """Targets with symmetric parts that are positive definite in both blocks.

    From a product near a multiple of the identity they are reached without a saddle on the way. Near a saddle what
    rounding puts between the blocks of rotated layers would grow exponentially.
    """
    target = rng.uniform(0.5, 0.9, (4, 4))
    np.fill_diagonal(target, rng.uniform(1.0, 1.5, 4))
    return Problem(DeepLinear((4, 4, 4, 4)), Completion(target, block_mask(2, 2)))


def _draw_decoupled(rng: np.random.Generator) -> Start:
    """Layers with the blocks of the observations, as they are or with the hidden units rotated."""
    layers = [(np.eye(4) + 0.2 * rng.standard_normal((4, 4))) * block_mask(2, 2) * rng.uniform(0.4, 0.8) for _ in "123"]
    if rng.random() < 0.5:
        first, second = (np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in "12")
        layers = [first @ layers[0], second @ layers[1] @ first.T, layers[2] @ second.T]
    return Start(_blocks_problem(rng), tuple(xp.asarray(layer) for layer in layers))


def _other_blocks(rng: np.random.Generator) -> Start:
    """Block-diagonal layers whose blocks are not those of the observations."""
    order = np.array([0, 2, 1, 3])
    layers = [(np.eye(4) + 0.2 * rng.standard_normal((4, 4))) * block_mask(2, 2)[order][:, order] * 0.6 for _ in "123"]
    return Start(_blocks_problem(rng), tuple(xp.asarray(layer) for layer in layers))


def _unmatched(start: Start) -> float:
    """Largest entry between blocks of the prefixes' and suffixes' Gram matrices, which hidden rotations leave alone."""
    worst = 0.0
    apart = ~block_mask(2, 2)
    for position in range(_depth(start)):
        for chain in (start.layers[: position + 1], [layer.T for layer in reversed(start.layers[position:])]):
            matrix = np.eye(4)
            for layer in chain:
                matrix = layer @ matrix
            gram = matrix.T @ matrix
            worst = max(worst, float(np.max(np.abs(gram[apart]))) / float(np.max(np.abs(gram))))
    return worst


DIAGONAL_START = Check(
    id="completion/erratum-diagonal-start",
    source="Abstract and Proposition 3.2",
    statement=(
        "At depth L ≥ 3 diagonal layers are enough for decoupled dynamics but not needed: layers with the blocks of "
        "the observations, and hidden rotations of them, are decoupled too."
    ),
    hypotheses=(
        Hypothesis("depth L ≥ 3", lambda start: 3.0 - _depth(start)),
        Hypothesis("up to hidden rotations the layers have the blocks of the observations", _unmatched, 1e-12),
    ),
    tolerances=DECOUPLED,
    version=2,
    measure=_measure_decoupled,
    draw=_draw_decoupled,
    violations=(
        Violation("blocks that are not those of the observations", _other_blocks),
        Violation("Gaussian layers", lambda rng: Start(_blocks_problem(rng), random_layers(rng, (4, 4, 4, 4), 0.5))),
    ),
    printed="May be read as: at depth L ≥ 3 the dynamics is decoupled only for diagonal initialisation.",
    printed_tolerance=1e-12,
)

CHECKS: tuple[Check, ...] = (
    LEMMA_B1,
    PROPOSITION_B1,
    DEPTH_2_COMPONENTS,
    PROPOSITION_32,
    IDENTITY_START,
    ZERO_LAYERS,
    DEPTH_2_KERNEL,
    PRODUCT_ORDER,
    DIAGONAL_START,
)
