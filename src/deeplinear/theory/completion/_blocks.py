"""Diagonal blocks of equal values, all layers from one start: the way of the flow."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from deeplinear.core import HypothesisError, Params, xp
from deeplinear.exact import (
    BlockFlow,
    BlockLimit,
    BlockMatrix,
    block_flow,
    block_limit,
    block_limit_from,
)
from deeplinear.models import Completion, DeepLinear, Problem, block_mask, entry_connectivity, observed_entries
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import MEASURABLE, Run, decades, flows
from deeplinear.theory.completion._laws import NONE, REACHED, Layers, adopt_start, multiply, states, unreached

SHAPES = ((4, 1), (2, 2))
"""Numbers and sizes of blocks for flows: one width, so that they share compiled code."""
FAMILY_TOLERANCE = 1e-12
"""Rounding of the layers at the start."""


# ---- Instances -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    r"""$n$ observed diagonal blocks of size $s$ and layers with $\alpha$ on the diagonal and $\alpha/m$ off it.

    `layers` and `targets` replace the start and the observed values; `told` is what the formulas are given instead.
    """

    depth: int
    blocks: int
    size: int
    value: float
    alpha: float
    m: float
    layers: Layers | None = None
    targets: np.ndarray | None = None
    told: "Block | None" = None

    @property
    def width(self) -> int:
        """$d = ns$."""
        return self.blocks * self.size

    @property
    def layer(self) -> np.ndarray:
        """The layer of the family."""
        return np.where(np.eye(self.width, dtype=bool), self.alpha, self.alpha / self.m)

    @cached_property
    def params(self) -> Params:
        """Layers at the start."""
        layers = (self.layer,) * self.depth if self.layers is None else self.layers
        return tuple(xp.asarray(layer) for layer in layers)

    @cached_property
    def problem(self) -> Problem:
        """The completion problem."""
        shape = (self.width, self.width)
        targets = np.full(shape, self.value) if self.targets is None else self.targets
        model = DeepLinear((self.width,) * (self.depth + 1))
        return Problem(model, Completion(targets, block_mask(self.blocks, self.size)))

    @property
    def prediction(self) -> "Block":
        """What the formulas are given."""
        return self if self.told is None else self.told

    def limit(self) -> BlockLimit:
        """Where the flow ends, by formula."""
        b = self.prediction
        return block_limit(b.depth, b.alpha, b.m, blocks=b.blocks, size=b.size, value=b.value)

    def flow(self) -> BlockFlow:
        """The flow, by formula."""
        b = self.prediction
        return block_flow(b.depth, b.alpha, b.m, blocks=b.blocks, size=b.size, value=b.value)

    def gamma(self, eigenvalues: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
        r"""Error $(\lambda_1^L + (n-1)\lambda_2^L)/n - sw^\star$ of the predicted problem."""
        first, second = np.asarray(eigenvalues[0]), np.asarray(eigenvalues[1])
        mean = (first**self.depth + (self.blocks - 1) * second**self.depth) / self.blocks
        return np.asarray(mean - self.size * self.prediction.value)


def _deviation(block: Block) -> float:
    layers = (np.asarray(layer) for layer in block.params)
    return max(float(np.max(np.abs(layer - block.layer))) for layer in layers) / abs(block.alpha)


def _spread(block: Block) -> float:
    values = observed_entries(block.problem.loss).values
    return float(np.max(np.abs(values - block.value))) / abs(block.value)


BLOCK_HYPOTHESES: tuple[Hypothesis[Block], ...] = (
    Hypothesis("depth L ≥ 2", lambda b: 2.0 - b.depth),
    Hypothesis("at least two blocks", lambda b: 2.0 - b.blocks),
    Hypothesis("m ≥ 1", lambda b: 1.0 - b.m),
    Hypothesis("all observed values equal", _spread, FAMILY_TOLERANCE),
    Hypothesis("the observed value is positive", lambda b: 0.0 if b.value > 0 else 1.0),
    Hypothesis("every layer is α on the diagonal and α/m off it", _deviation, FAMILY_TOLERANCE),
)
DEEP = Hypothesis[Block]("depth L ≥ 3", lambda b: 3.0 - b.depth)
ABOVE_ONE = Hypothesis[Block]("m > 1", lambda b: 0.0 if b.m > 1 else 1.0)
FINITE = Hypothesis[Block]("m is finite", lambda b: 0.0 if np.isfinite(b.m) else 1.0)


def _sensitivity(block: Block) -> float:
    """How far the limit moves when the first eigenvalue changes by what a computed flow may miss it."""
    first, second, _ = eigenvalues(block.layer, block.blocks, block.size)
    if second <= 0:
        return 0.0
    given = {"blocks": block.blocks, "size": block.size, "value": block.value}
    one, two = (block_limit_from(block.depth, x * first, second, **given) for x in (1.0, 1 + 1e-12))
    return float(max(abs(two.sigma_1 / one.sigma_1 - 1), abs(two.log_sigma_2 - one.log_sigma_2)))


OBSERVABLE = Hypothesis[Block]("a flow in double precision can tell m from ∞", _sensitivity, 1e-9)


def _lost(block: Block) -> float:
    """Decades outside of the scales at which a computed flow tells the spectrum, small eigenvalues included.

    Near m = 1 the second eigenvalue drowns beside the first; m = 1 itself, where it is zero, is no such case.
    """
    apart = 1.0 if block.m == 1 else 1 - 1 / block.m
    scale = block.alpha**block.depth / block.value
    least = 5e-7 if block.depth == 2 else 2e-5  # plateaus of deep networks are long
    return decades((block.value, 0.1, 10.0), (scale, least, 20.0), (apart, 0.1, 1.0), (block.depth, 2.0, 6.0))


FOLLOWED = Hypothesis[Block](MEASURABLE, _lost)


def adopt_block(problem: Problem, params: Params) -> Block:
    """A problem whose observed entries are equal diagonal blocks, in any order, and layers of the family.

    Raises:
        HypothesisError: With the residual of what is missing.
    """
    start = adopt_start(problem, params)
    widths = start.problem.model.widths  # pyright: ignore[reportAttributeAccessIssue]
    _require("all layers square and of one width", float(max(widths) - min(widths)), 0.0)
    rows, columns, values = observed_entries(start.problem.loss)
    graph = entry_connectivity(rows, columns, (widths[-1], widths[0]))
    sizes = {len(component.rows) for component in graph.components}
    astray = sum(not c.complete or c.rows != c.columns for c in graph.components) + len(graph.isolated_rows)
    _require("the observed entries are diagonal blocks of one size", float(astray + len(sizes) - 1), 0.0)
    _require("at least two blocks", 2.0 - len(graph.components), 0.0)
    value = float(np.mean(values))
    _require("the observed value is positive", 0.0 if value > 0 else 1.0, 0.0)
    _require("all observed values equal", float(np.max(np.abs(values - value))) / value, FAMILY_TOLERANCE)
    # The family does not change when rows and columns are put in another order, so that the blocks may come in line.
    order = np.array([index for component in graph.components for index in component.rows])
    layers = tuple(layer[order][:, order] for layer in start.layers)
    diagonal = np.eye(widths[0], dtype=bool)
    alpha, off = (float(np.mean([layer[part] for layer in layers])) for part in (diagonal, ~diagonal))
    _require("α is positive", 0.0 if alpha > 0 else 1.0, 0.0)
    scatter = max(float(np.max(np.abs(layer - np.where(diagonal, alpha, off)))) for layer in layers) / alpha
    _require("every layer is α on the diagonal and α/m off it", scatter, FAMILY_TOLERANCE)
    _require(
        "m ≥ 1: the entries off the diagonal lie between 0 and α", max(off - alpha, -off) / alpha, FAMILY_TOLERANCE
    )
    m = max(alpha / off, 1.0) if off > 0 else np.inf
    return Block(start.problem.model.depth, len(graph.components), sizes.pop(), value, alpha, m, layers=layers)  # pyright: ignore[reportAttributeAccessIssue]


def _require(hypothesis: str, residual: float, tolerance: float) -> None:
    if not residual <= tolerance:
        raise HypothesisError(hypothesis, residual, tolerance)


def draw_block(
    rng: np.random.Generator,
    *,
    depths: Sequence[int] = (2, 3, 4),
    shapes: Sequence[tuple[int, int]] = SHAPES,
    scales: tuple[float, float] = (-3.0, -0.3),
    infinite: float = 0.15,
) -> Block:
    """A random instance; the scale is alpha^L relative to the observed value, which is what matters."""
    depth = int(rng.choice(depths))
    n, s = shapes[int(rng.integers(len(shapes)))]
    value = float(np.exp(rng.uniform(-1, 1)))
    alpha = float((value * 10 ** rng.uniform(*scales)) ** (1 / depth))
    m = np.inf if rng.random() < infinite else 1 + 10 ** rng.uniform(-0.3, 2)
    return Block(depth, n, s, value, alpha, float(m))


def unequal(rng: np.random.Generator) -> Block:
    """Observed values of the second half twice those of the first."""
    block = dataclasses.replace(draw_block(rng, infinite=0.0), depth=3, alpha=0.4, m=rng.uniform(2, 10))
    targets = np.full((block.width, block.width), block.value)
    targets[block.width // 2 :] *= 2
    return dataclasses.replace(block, targets=targets)


def told_otherwise(
    draw: Callable[[np.random.Generator], Block], *, alpha: float = 1.0, value: float = 1.0
) -> Violation[Block]:
    """An instance whose formulas are given another alpha or another value."""

    def planted(rng: np.random.Generator) -> Block:
        block = draw(rng)
        return dataclasses.replace(
            block, told=dataclasses.replace(block, alpha=alpha * block.alpha, value=value * block.value)
        )

    return Violation(f"a formula for {f'{alpha:g} α' if alpha != 1 else f'{value:g} w*'}", planted)


# ---- Flows -----------------------------------------------------------------------------------------------------------

SAMPLES = 24
REST = 1e-9
"""Relative error of the mean of the observed entries at which the non-zero spectrum has settled."""


def eigenvalues(layer: np.ndarray, blocks: int, size: int) -> np.ndarray:
    """Eigenvalues of the nearest M(a, b, c), for a stack of matrices: an array of three rows."""
    member = np.arange(blocks * size)
    same = member[:, None] == member
    inside = (member[:, None] // size == member // size) & ~same
    a, c = layer[..., same].mean(-1), layer[..., ~(same | inside)].mean(-1)
    b = layer[..., inside].mean(-1) if size > 1 else np.zeros_like(a)
    core = a + (size - 1) * b
    return np.stack([core + size * (blocks - 1) * c, core - size * c, a - b])


def _last(block: Block) -> float:
    """A time by which the non-zero spectrum has settled: many times the plateau and the time of the last approach."""
    rate = (block.size * block.value) ** (2 - 2 / block.depth)
    largest = max(float(np.max(np.abs(eigenvalues(block.layer, block.blocks, block.size)[:2]))), 1e-300)
    plateau = largest ** (2 - block.depth) / (block.size * block.value)
    return 20 * (plateau + 1 / rate)


def relative(found: np.ndarray, wanted: np.ndarray, rounding: float = 1e-14) -> float:
    """Largest relative error, what rounding does to the small beside the large left aside."""
    excess = np.maximum(np.abs(found - wanted) - rounding * np.max(np.abs(wanted)), 0.0)
    return float(np.max(excess / np.maximum(np.abs(wanted), 1e-300)))


def follow(blocks: Sequence[Block]) -> list[Run | None]:
    """Flows until the non-zero spectrum has settled; `None` where it has not by the last time.

    Blocks of size 1 stop at their last digit, whenever that is. In larger ones the rest of the spectrum decays for
    ever, algebraically, and rounding grows beside it: they go on to a time of their own, as short as it may be.
    """
    groups: dict[float, list[int]] = {}
    for k, block in enumerate(blocks):
        groups.setdefault(1e12 if block.size == 1 else 10.0 ** np.ceil(np.log10(_last(block))), []).append(k)
    runs: dict[int, Run] = {}
    for last, chosen in groups.items():
        times = np.concatenate([[0.0], np.geomspace(1e-2, min(last, 1e4), 60)[:-1], [last]])
        problems, starts = ([getattr(blocks[k], name) for k in chosen] for name in ("problem", "params"))
        runs |= dict(zip(chosen, flows(problems, starts, times, below=1e-24), strict=True))
    return [runs[k] if _settled(block, runs[k]) else None for k, block in enumerate(blocks)]


def _settled(block: Block, run: Run) -> bool:
    rows, columns, values = observed_entries(block.problem.loss)
    errors = run.product[-1][rows, columns] - values
    return bool(abs(np.mean(errors)) <= REST * block.value)


# ---- The algebra of M(a, b, c) ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """Two members of the family by their entries, and a disturbance of the first one as it is written out."""

    blocks: int
    size: int
    first: np.ndarray
    second: np.ndarray
    disturbance: np.ndarray | None = None


ALGEBRA = {
    "product against its three entries": 1e-12,
    "commutator and asymmetry": 1e-12,
    "eigenvalues against their three formulas": 1e-12,
    "entries from eigenvalues": 1e-12,
}
"""Rounding of matrices of width ten and less."""


def _measure_algebra(pairs: Sequence[Pair]) -> list[Measured]:
    measured = []
    for pair in pairs:
        n, s = pair.blocks, pair.size
        one, two = (BlockMatrix(*entries, blocks=n, size=s) for entries in (pair.first, pair.second))
        a, b = np.asarray(one.dense()), np.asarray(two.dense())
        a = a if pair.disturbance is None else a + pair.disturbance
        size = float(np.linalg.norm(a) * np.linalg.norm(b))
        wanted = np.repeat([float(x) for x in one.eigenvalues], one.multiplicities)
        back = BlockMatrix.from_eigenvalues(*one.eigenvalues, blocks=n, size=s)
        numbers = (
            float(np.linalg.norm(a @ b - np.asarray((one @ two).dense()))) / size,
            float(np.linalg.norm(a @ b - b @ a) + np.linalg.norm(a - a.T)) / size,
            float(np.max(np.abs(np.linalg.eigvalsh(a) - np.sort(wanted)))) / float(np.linalg.norm(a)),
            float(np.max(np.abs(np.asarray(back.dense()) - a))) / float(np.linalg.norm(a)),
        )
        measured.append(Measured(dict(zip(ALGEBRA, numbers, strict=True))))
    return measured


def _draw_pair(rng: np.random.Generator) -> Pair:
    n, s = ((4, 1), (2, 2), (3, 2), (2, 4))[rng.integers(4)]
    return Pair(n, s, rng.standard_normal(3), rng.standard_normal(3))


def _disturbed_pair(rng: np.random.Generator) -> Pair:
    pair = _draw_pair(rng)
    disturbance = np.zeros((pair.blocks * pair.size,) * 2)
    disturbance[0, 0] = 0.1
    return dataclasses.replace(pair, disturbance=disturbance)


LEMMAS_ALGEBRA = Check(
    id="completion/lemmas-d1-d2-d5",
    source="Lemmas D.1, D.2 and D.5",
    statement=(
        "The matrices M(a, b, c) are symmetric, commute, multiply by a rule on their three entries, and have the "
        "eigenvalues a + (s−1)b + s(n−1)c, a + (s−1)b − sc and a − b, from which the entries follow."
    ),
    hypotheses=(
        Hypothesis(
            "the first matrix is M(a, b, c)",
            lambda pair: 0.0 if pair.disturbance is None else float(np.max(np.abs(pair.disturbance))),
        ),
    ),
    tolerances=ALGEBRA,
    measure=_measure_algebra,
    draw=_draw_pair,
    violations=(Violation("one entry changed by 0.1", _disturbed_pair),),
)


# ---- The three eigenvalues along the flow ----------------------------------------------------------------------------

EQUATIONS = {
    REACHED: NONE,
    "difference of layers": 1e-9,
    "distance of a layer from M(a, b, c)": 1e-9,
    "speeds of the eigenvalues against −γλ^{L−1}, −γλ^{L−1}, −λ^{2L−1}": 1e-9,
    "eigenvalues against the solution of the three equations": 1e-8,
    "loss against (n/2)γ² + (n(s−1)/2)λ₃^{2L}, relative to the start": 1e-9,
}
"""The flow is computed to 1e-12 a step, and goes some hundred steps, on a manifold that is flat at the end."""


def _equations(block: Block, run: Run | None) -> Measured:
    if run is None:
        return unreached(EQUATIONS)
    n, s, depth = block.blocks, block.size, block.depth
    times, path = states(run, SAMPLES)
    rows, columns, values = observed_entries(block.problem.loss)
    apart, outside, speeds = 0.0, 0.0, 0.0
    for layers in path:
        size = float(np.linalg.norm(layers[0]))
        values_now = eigenvalues(layers[0], n, s)
        nearest = np.asarray(BlockMatrix.from_eigenvalues(*values_now, blocks=n, size=s).dense())
        apart = max(apart, *(float(np.linalg.norm(layer - layers[0])) / size for layer in layers))
        outside = max(outside, float(np.linalg.norm(layers[0] - nearest)) / size)
        product = multiply(layers)
        residual = np.zeros_like(product)
        residual[rows, columns] = product[rows, columns] - values
        speed = -eigenvalues(multiply(layers[1:]).T @ residual, n, s)
        gamma = block.gamma(values_now)
        wanted = -np.array([gamma, gamma, values_now[2] ** depth]) * values_now ** (depth - 1)
        count = 3 if s > 1 else 2
        scale = block.value ** (2 - 1 / depth)
        speeds = max(speeds, float(np.max(np.abs(speed - wanted)[:count])) / scale)
    solution = block.flow()
    found = eigenvalues(np.stack([layers[0] for layers in path]), n, s)
    wanted = np.stack([np.asarray(x) for x in solution.eigenvalues(times)])
    count = 3 if s > 1 else 2
    miss = relative(found[:count], wanted[:count])
    losses = np.array([0.5 * np.sum((multiply(layers)[rows, columns] - values) ** 2) for layers in path])
    off = float(np.max(np.abs(losses - np.asarray(solution.loss(times))))) / float(losses[0])
    numbers = (0.0, apart, outside, speeds, miss, off)
    return Measured(dict(zip(EQUATIONS, numbers, strict=True)), facts={"time of the last record": float(times[-1])})


def _measure_equations(blocks: Sequence[Block]) -> list[Measured]:
    return [_equations(block, run) for block, run in zip(blocks, follow(blocks), strict=True)]


LEMMAS_FLOW = Check(
    id="completion/lemmas-d3-d4-d6",
    source="Lemmas D.3, D.4 and D.6",
    statement=(
        "From one shared layer of the family all layers stay equal and of the form M(a, b, c), and the eigenvalues "
        "obey λ̇₁ = −γ λ₁^{L−1}, λ̇₂ = −γ λ₂^{L−1}, λ̇₃ = −λ₃^{2L−1} with γ = (λ₁^L + (n−1)λ₂^L)/n − s w*."
    ),
    hypotheses=(*BLOCK_HYPOTHESES, OBSERVABLE, FOLLOWED),
    tolerances=EQUATIONS,
    measure=_measure_equations,
    draw=lambda rng: draw_block(rng, scales=(-3, 0.3)),
    violations=(Violation("unequal observed values", unequal), told_otherwise(draw_block, alpha=1.01)),
    adopt=adopt_block,
)

CONSERVED = {REACHED: NONE, "change of λ₁^{2−L} − λ₂^{2−L} (λ₁/λ₂ at depth 2), relative": 1e-10}


def _conservation(block: Block, run: Run | None) -> Measured:
    if run is None:
        return unreached(CONSERVED)
    first, second, _ = eigenvalues(run.layers[0], block.blocks, block.size)
    if block.depth == 2:
        change = np.abs(second / first - second[0] / first[0]) / (second[0] / first[0])
    else:
        power = 2 - block.depth
        constant = first**power - second**power
        change = np.abs(constant - constant[0]) / (abs(constant[0]) + first[0] ** power)
    return Measured(dict(zip(CONSERVED, (0.0, float(np.max(change))), strict=True)))


LEMMA_D7 = Check(
    id="completion/lemma-d7",
    source="Lemma D.7",
    statement="Along the flow λ₁^{2−L} − λ₂^{2−L} is constant at depth L ≥ 3, and λ₁/λ₂ at depth 2.",
    hypotheses=(*BLOCK_HYPOTHESES, ABOVE_ONE, FOLLOWED),
    tolerances=CONSERVED,
    measure=lambda blocks: [_conservation(b, run) for b, run in zip(blocks, follow(blocks), strict=True)],
    draw=lambda rng: draw_block(rng, scales=(-3, 0.3)),
    violations=(Violation("unequal observed values", unequal),),
    adopt=adopt_block,
)

ENVELOPE = {
    REACHED: NONE,
    "|γ| over |γ(0)| e^{−Kt}, relative to s w*": 1e-11,  # errors of the flow, where the envelope has fallen below them
    "mean error of the observed entries at the end, relative to w*": REST,
    "sign of γ(0) against the threshold on α^L": NONE,
}


def _threshold(block: Block) -> float:
    """Largest alpha^L that starts below the observed values on average."""
    d, n, depth, m = block.width, block.blocks, block.depth, block.m
    if np.isinf(m):
        return block.size * block.value
    return block.value * d * m**depth / ((m + d - 1) ** depth + (n - 1) * (m - 1) ** depth)


def _envelope(block: Block, run: Run | None) -> Measured:
    if run is None:
        return unreached(ENVELOPE)
    n, s, depth = block.blocks, block.size, block.depth
    level = s * block.prediction.value
    path = eigenvalues(run.layers[0], n, s)
    gamma = block.gamma(path)
    power = 2 * depth - 2
    if gamma[0] <= 0:
        rate = depth / n * (path[0, 0] ** power + (n - 1) * path[1, 0] ** power)
    else:
        rate = depth * level ** (power / depth)
    excess = np.abs(gamma) - np.abs(gamma[0]) * np.exp(-rate * run.times)
    below = block.alpha**depth <= _threshold(block.prediction)
    numbers = (0.0, float(np.max(excess)) / level, float(abs(gamma[-1])) / level, float(below != (gamma[0] <= 0)))
    return Measured(dict(zip(ENVELOPE, numbers, strict=True)), facts={"γ(0)": float(gamma[0]), "K": float(rate)})


def _draw_envelope(rng: np.random.Generator) -> Block:
    """Starts below and above the threshold equally often."""
    block = draw_block(rng)
    exponent = rng.uniform(-2, -0.1) if rng.random() < 0.5 else rng.uniform(0.1, 0.7)
    return dataclasses.replace(block, alpha=float((_threshold(block) * 10**exponent) ** (1 / block.depth)))


PROPOSITION_D1 = Check(
    id="completion/proposition-d1",
    source="Proposition D.1",
    statement=(
        "The error of the observed blocks vanishes, |γ(t)| ≤ |γ(0)| e^{−Kt}, with K = (L/n)(λ₁^{2L−2} + "
        "(n−1)λ₂^{2L−2}) of the start where γ(0) ≤ 0, which is where α^L ≤ w* d m^L/((m+d−1)^L + (n−1)(m−1)^L), and K "
        "= L (s w*)^{2−2/L} otherwise."
    ),
    hypotheses=(*BLOCK_HYPOTHESES, FOLLOWED),
    tolerances=ENVELOPE,
    measure=lambda blocks: [_envelope(b, run) for b, run in zip(blocks, follow(blocks), strict=True)],
    draw=_draw_envelope,
    violations=(told_otherwise(_draw_envelope, value=1.3),),
    adopt=adopt_block,
)

TIMING = {
    REACHED: NONE,
    "depth 2: eigenvalues against the logistic curve": 1e-9,
    "deeper: time against the quadrature for the level of λ₁": 1e-8,
}


def _timing(block: Block, run: Run | None) -> Measured:
    if run is None:
        return unreached(TIMING)
    told = block.prediction
    found = eigenvalues(run.layers[0], block.blocks, block.size)
    if block.depth == 2:
        start = told.alpha * np.array([1 + (told.width - 1) / told.m, 1 - 1 / told.m])
        level = told.size * told.value
        begin = (start[0] ** 2 + (told.blocks - 1) * start[1] ** 2) / told.blocks
        curve = level * begin / (begin + (level - begin) * np.exp(-2 * level * run.times))
        wanted = start[:, None] * np.sqrt(curve / begin)
        numbers = (0.0, relative(found[:2], wanted), 0.0)
        return Measured(dict(zip(TIMING, numbers, strict=True)))
    flow = block.flow()
    levels = found[0] ** block.depth
    begin, end = float(flow.lambda1) ** block.depth, float(flow.limit.sigma_1)
    # Where the level hardly moves it says nothing about the time.
    useful = np.flatnonzero((levels > begin + 0.05 * (end - begin)) & (levels < 0.95 * end))
    if not len(useful):
        return Measured(dict(zip(TIMING, (0.0, 0.0, 0.0), strict=True)), facts={"levels compared": 0.0})
    chosen = useful[np.linspace(0, len(useful) - 1, 8).round().astype(int)]
    predicted = np.asarray(flow.time_to(sigma_1=levels[chosen]))
    miss = float(np.max(np.abs(predicted - run.times[chosen]) / run.times[chosen]))
    facts = {"levels compared": float(len(useful)), "plateau estimate": float(flow.plateau_time)}
    return Measured(dict(zip(TIMING, (0.0, 0.0, miss), strict=True)), facts=facts)


def _draw_timing(rng: np.random.Generator) -> Block:
    block = draw_block(rng, infinite=0.0)
    scale = _threshold(block) * 10 ** rng.uniform(-3, -0.5)
    return dataclasses.replace(block, alpha=float(scale ** (1 / block.depth)))


BLOCK_TIMES = Check(
    id="completion/block-times",
    source="extension of Appendix D",
    statement=(
        "At depth 2 (λ₁² + (n−1)λ₂²)/n follows a logistic curve with rate 2 s w*; deeper, the time at which λ₁ reaches "
        "a level is one quadrature in λ^{2−L}."
    ),
    hypotheses=(*BLOCK_HYPOTHESES, FINITE, OBSERVABLE, FOLLOWED),
    tolerances=TIMING,
    measure=lambda blocks: [_timing(b, run) for b, run in zip(blocks, follow(blocks), strict=True)],
    draw=_draw_timing,
    violations=(told_otherwise(_draw_timing, alpha=1.02),),
    adopt=adopt_block,
)

CHECKS: tuple[Check, ...] = (
    LEMMAS_ALGEBRA,
    LEMMAS_FLOW,
    LEMMA_D7,
    PROPOSITION_D1,
    BLOCK_TIMES,
)
