"""Aligned and decoupled networks: which forms the flow keeps, and the diagonal network behind them."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from deeplinear.exact import diagonal_flow, diagonal_hessian
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.network._networks import CHAIN, ROUNDING, draw_sigma, each

FLOW = 1e-9
"""Flows by DOP853 at rtol 1e-12 over times of order one: their errors are some 1e-11."""

LOST = 1e-4
"""Misalignment that counts as lost alignment; what is lost by time 0.2 is some hundred times larger."""

MOMENTS = np.array([0.2, 1.0])
"""Times at which flows are compared."""

TOGETHER = 16
"""Modes and times of every call, always as many, so that they share compiled code."""


# --- Aligned layers ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Aligned:
    """Layers W_l = U_l Λ_l V_lᵀ and the target they learn.

    Attributes:
        left: U_1, …, U_L.
        right: V_1, …, V_L; aligned layers have V_{l+1} = U_l.
        strengths: Diagonals of Λ_1, …, Λ_L.
        sigma: Diagonal of the target.
        gauge: Matrices P_1, …, P_{L-1} of a change of hidden basis, W_l → P_l W_l P_{l-1}ᵀ.
        told: Diagonal of the target that a formula is told, if it is another.
    """

    left: tuple[np.ndarray, ...]
    right: tuple[np.ndarray, ...]
    strengths: tuple[np.ndarray, ...]
    sigma: np.ndarray
    gauge: tuple[np.ndarray, ...] = ()
    told: np.ndarray | None = None

    @property
    def diagonals(self) -> list[np.ndarray]:
        """Λ_1, …, Λ_L as matrices."""
        return [
            rectangular(values, len(u), len(v))
            for u, values, v in zip(self.left, self.strengths, self.right, strict=True)
        ]

    @property
    def layers(self) -> list[np.ndarray]:
        return [u @ s @ v.T for u, s, v in zip(self.left, self.diagonals, self.right, strict=True)]

    @property
    def target(self) -> np.ndarray:
        return rectangular(self.sigma, len(self.left[-1]), len(self.right[0]))

    @property
    def tilt(self) -> float:
        """Largest entry of V_{l+1}ᵀU_l - I."""
        pairs = zip(self.left[:-1], self.right[1:], strict=True)
        return max((float(np.max(np.abs(v.T @ u - np.eye(len(u))))) for u, v in pairs), default=0.0)

    @property
    def coupling(self) -> float:
        """Largest entry of U_L - I and V_1 - I."""
        return max(float(np.max(np.abs(m - np.eye(len(m))))) for m in (self.left[-1], self.right[0]))

    @property
    def bend(self) -> float:
        """Largest entry of P_lᵀP_l - I."""
        return max((float(np.max(np.abs(p.T @ p - np.eye(len(p))))) for p in self.gauge), default=0.0)


def rectangular(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """A matrix with values at the beginning of its diagonal."""
    matrix = np.zeros((rows, columns))
    matrix[np.arange(len(values)), np.arange(len(values))] = values
    return matrix


def draw_rotation(rng: np.random.Generator, size: int) -> np.ndarray:
    """A random orthogonal matrix."""
    q, r = np.linalg.qr(rng.standard_normal((size, size)))
    return q * np.sign(np.diag(r))


def draw_aligned(
    rng: np.random.Generator, widths: Sequence[int] = CHAIN, *, decoupled: bool = False, gauge: bool = False
) -> Aligned:
    """Aligned layers with well-separated strengths of either sign."""
    if len(widths) < 3 or min(widths) < 2:
        raise ValueError(
            f"the statement is about networks of at least two layers with at least two units each, but widths is "
            f"{tuple(widths)}."
        )
    bases = [draw_rotation(rng, size) for size in widths]
    if decoupled:
        bases[0], bases[-1] = np.eye(widths[0]), np.eye(widths[-1])
    strengths = tuple(
        rng.choice([-1, 1], min(pair)) * (0.4 + 0.3 * rng.permutation(min(pair)) + rng.uniform(0, 0.2, min(pair)))
        for pair in itertools.pairwise(widths)
    )
    turns = tuple(draw_rotation(rng, size) for size in widths[1:-1]) if gauge else ()
    sigma = draw_sigma(rng, min(widths[0], widths[-1]))
    return Aligned(tuple(bases[1:]), tuple(bases[:-1]), strengths, sigma, turns)


def misaligned(aligned: Aligned, rng: np.random.Generator) -> Aligned:
    """The same with another right basis of the second layer."""
    first, second, *rest = aligned.right
    return dataclasses.replace(aligned, right=(first, draw_rotation(rng, len(second)), *rest))


ALIGNED: Hypothesis[Aligned] = Hypothesis("aligned layers, V_{l+1} = U_l", lambda a: a.tilt, ROUNDING)
DECOUPLED: Hypothesis[Aligned] = Hypothesis(
    "outer bases that are those of the task, U_L = I and V_1 = I", lambda a: a.coupling, ROUNDING
)
ORTHOGONAL: Hypothesis[Aligned] = Hypothesis("orthogonal change of basis", lambda a: a.bend, ROUNDING)


def adjacency(layers: Sequence[np.ndarray]) -> np.ndarray:
    """The network as one matrix: W_l in block row l + 1 and block column l."""
    widths = (layers[0].shape[1], *(len(layer) for layer in layers))
    edges = np.concatenate([[0], np.cumsum(widths)])
    matrix = np.zeros((edges[-1], edges[-1]))
    for l, layer in enumerate(layers):  # noqa: E741
        matrix[edges[l + 1] : edges[l + 2], edges[l] : edges[l + 1]] = layer
    return matrix


def blocks(matrices: Sequence[np.ndarray]) -> np.ndarray:
    """Square matrices along the diagonal."""
    edges = np.concatenate([[0], np.cumsum([len(m) for m in matrices])])
    whole = np.zeros((edges[-1], edges[-1]))
    for first, last, matrix in zip(edges[:-1], edges[1:], matrices, strict=True):
        whole[first:last, first:last] = matrix
    return whole


def speeds(layers: Sequence[np.ndarray], target: np.ndarray) -> list[np.ndarray]:
    """Minus the gradient of half the squared distance, by products from both sides."""
    before = [np.eye(layers[0].shape[1])]
    for layer in layers:
        before.append(layer @ before[-1])
    outer, found = target - before[-1], []
    for layer, right in zip(layers[::-1], before[-2::-1], strict=True):
        found.append(outer @ right.T)
        outer = layer.T @ outer
    return found[::-1]


def flow(layers: Sequence[np.ndarray], target: np.ndarray, times: np.ndarray) -> list[list[np.ndarray]]:
    """Layers of the whole network along gradient flow at the times, by SciPy."""
    from scipy.integrate import solve_ivp

    cuts = np.cumsum([layer.size for layer in layers])[:-1]

    def split(y: np.ndarray) -> list[np.ndarray]:
        return [part.reshape(layer.shape) for part, layer in zip(np.split(y, cuts), layers, strict=True)]

    def field(_: float, y: np.ndarray) -> np.ndarray:
        return np.concatenate([speed.ravel() for speed in speeds(split(y), target)])

    start = np.concatenate([layer.ravel() for layer in layers])
    run = solve_ivp(field, (0, times[-1]), start, method="DOP853", rtol=1e-12, atol=1e-13, t_eval=times)
    return [split(y) for y in run.y.T]


def misalignment(layers: Sequence[np.ndarray]) -> float:
    """Largest commutator, at any hidden layer, among all squares of products that end or begin there; relative."""
    worst, depth = 0.0, len(layers)
    for i in range(1, depth):
        family = []
        for a in range(i):
            product = layers[a]
            for layer in layers[a + 1 : i]:
                product = layer @ product
            family.append(product @ product.T)
        for b in range(i, depth):
            product = layers[i]
            for layer in layers[i + 1 : b + 1]:
                product = layer @ product
            family.append(product.T @ product)
        for x, y in itertools.combinations(family, 2):
            size = max(float(np.linalg.norm(x) * np.linalg.norm(y)), 1e-300)
            worst = max(worst, float(np.linalg.norm(x @ y - y @ x)) / size)
    return worst


POWERS = {"largest entry of A^k - U Λ^k Vᵀ over all k": ROUNDING}


def _measure_powers(aligned: Aligned) -> Measured:
    first, last = len(aligned.right[0]), len(aligned.left[-1])
    left, right = blocks([np.eye(first), *aligned.left]), blocks([*aligned.right, np.eye(last)])
    network, middle = adjacency(aligned.layers), adjacency(aligned.diagonals)
    gaps = [
        np.linalg.matrix_power(network, k) - left @ np.linalg.matrix_power(middle, k) @ right.T
        for k in range(1, len(aligned.left) + 1)
    ]
    return Measured(dict.fromkeys(POWERS, float(np.max(np.abs(gaps)))))


PROPOSITION_29 = Check(
    id="network/proposition-29",
    source="Proposition 29",
    statement="Powers of the adjacency matrix of an aligned network have the block-shift decompositions "
    "A^k = U Λ^k Vᵀ, for all k up to the depth.",
    hypotheses=(ALIGNED,),
    tolerances=POWERS,
    measure=each(_measure_powers),
    draw=draw_aligned,
    violations=(Violation("one layer turned", lambda rng: misaligned(draw_aligned(rng), rng)),),
    sized=draw_aligned,
)

KEPT_ALIGNED = {"largest commutator at a hidden layer, relative": ROUNDING}


def _measure_gauge(aligned: Aligned) -> Measured:
    sides = (np.eye(len(aligned.right[0])), *aligned.gauge, np.eye(len(aligned.left[-1])))
    turned = [p @ layer @ q.T for p, layer, q in zip(sides[1:], aligned.layers, sides[:-1], strict=True)]
    return Measured(dict.fromkeys(KEPT_ALIGNED, misalignment(turned)))


def _bent(rng: np.random.Generator) -> Aligned:
    aligned = draw_aligned(rng, gauge=True)
    return dataclasses.replace(aligned, gauge=tuple(p @ np.diag(rng.uniform(0.5, 2, len(p))) for p in aligned.gauge))


PROPOSITION_30 = Check(
    id="network/proposition-30",
    source="Proposition 30",
    statement="An orthogonal change of basis of the hidden units keeps a network aligned.",
    hypotheses=(ALIGNED, ORTHOGONAL),
    tolerances=KEPT_ALIGNED,
    measure=each(_measure_gauge),
    draw=lambda rng: draw_aligned(rng, gauge=True),
    violations=(
        Violation("a change of basis that is not orthogonal", _bent),
        Violation("one layer turned", lambda rng: misaligned(draw_aligned(rng, gauge=True), rng)),
    ),
    sized=lambda rng, widths: draw_aligned(rng, widths, gauge=True),
)


# --- What the flow keeps ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Starts:
    """Two starts of one task: one decoupled, one only aligned."""

    decoupled: Aligned
    aligned: Aligned


def draw_starts(rng: np.random.Generator, widths: Sequence[int] = CHAIN) -> Starts:
    aligned = draw_aligned(rng, widths)
    decoupled = dataclasses.replace(draw_aligned(rng, widths, decoupled=True), sigma=aligned.sigma)
    return Starts(decoupled, aligned)


PRESERVED = {
    "part of decoupled layers off their modes, along the flow": FLOW,
    "what an aligned start should lose by t = 0.2, less what it loses": 0.0,
}


def _off_modes(aligned: Aligned) -> float:
    worst = 0.0
    for layers in flow(aligned.layers, aligned.target, MOMENTS):
        for u, layer, v in zip(aligned.left, layers, aligned.right, strict=True):
            seen = u.T @ layer @ v
            worst = max(worst, float(np.max(np.abs(np.where(np.eye(*seen.shape, dtype=bool), 0.0, seen)))))
    return worst


def _measure_preserved(starts: Sequence[Starts]) -> list[Measured]:
    measured = []
    for start in starts:
        (later,) = flow(start.aligned.layers, start.aligned.target, MOMENTS[:1])
        lost = misalignment(later)
        numbers = (_off_modes(start.decoupled), LOST - lost)
        measured.append(Measured(dict(zip(PRESERVED, numbers, strict=True)), facts={"misalignment at t = 0.2": lost}))
    return measured


def draw_multiple(rng: np.random.Generator, size: int = 3, depth: int = 3) -> Aligned:
    """Square aligned layers with W_{l+1}ᵀW_{l+1} - W_lW_lᵀ = λ_l I, all λ_l positive."""
    bases = [draw_rotation(rng, size) for _ in range(depth + 1)]
    squares = [(0.3 + 0.3 * np.arange(size) + rng.uniform(0, 0.2, size)) ** 2]
    for _ in range(depth - 1):
        squares.append(squares[-1] + rng.uniform(0.2, 0.6))
    strengths = tuple(rng.choice([-1, 1], size) * np.sqrt(square) for square in squares)
    return Aligned(tuple(bases[1:]), tuple(bases[:-1]), strengths, draw_sigma(rng, size))


def _multiple(aligned: Aligned) -> float:
    """Distance of the conserved matrices from multiples of the identity."""
    worst = 0.0
    for before, after in itertools.pairwise(aligned.layers):
        law = after.T @ after - before @ before.T
        worst = max(worst, float(np.max(np.abs(law - np.eye(len(law)) * np.trace(law) / len(law)))))
    return worst


PROPOSITION_31 = Check(
    id="network/proposition-31",
    source="Proposition 31, items 1 and 2",
    statement="Gradient flow keeps a decoupled network decoupled, in the bases it starts with; an aligned network "
    "whose conserved matrices have simple eigenvalues does not stay aligned.",
    hypotheses=(
        Hypothesis("an aligned and a decoupled start", lambda s: max(s.aligned.tilt, s.decoupled.tilt), ROUNDING),
        Hypothesis("outer bases of the decoupled start are the task's", lambda s: s.decoupled.coupling, ROUNDING),
        Hypothesis("those of the aligned start are not", lambda s: 1e-2 - s.aligned.coupling),
        Hypothesis("conserved matrices are no multiples of the identity", lambda s: 1e-2 - _multiple(s.aligned)),
    ),
    tolerances=PRESERVED,
    measure=_measure_preserved,
    draw=draw_starts,
    violations=(
        Violation(
            "outer bases that are not those of the task", lambda rng: Starts(draw_aligned(rng), draw_aligned(rng))
        ),
        Violation(
            "conserved matrices that are multiples of the identity",
            lambda rng: Starts(draw_aligned(rng, decoupled=True), draw_multiple(rng)),
        ),
    ),
    sized=draw_starts,
)

STAYS = {"misalignment along the flow, relative": FLOW}


def _measure_stays(aligned: Aligned) -> Measured:
    worst = max(misalignment(layers) for layers in flow(aligned.layers, aligned.target, MOMENTS))
    return Measured(dict.fromkeys(STAYS, worst), printed=LOST - worst)


def _sized_multiple(rng: np.random.Generator, widths: tuple[int, ...]) -> Aligned:
    if len(set(widths)) > 1 or len(widths) < 3 or widths[0] < 2:
        raise ValueError(
            f"the statement is about two or more square layers of at least two units, but widths is {widths}."
        )
    return draw_multiple(rng, widths[0], len(widths) - 1)


ERRATUM_ALIGNMENT = Check(
    id="network/erratum-alignment",
    source="Proposition 31, item 1, and its proof",
    statement="Aligned square layers whose conserved matrices are multiples of the identity stay aligned, decoupled or "
    "not.",
    hypotheses=(
        ALIGNED,
        Hypothesis("conserved matrices are multiples of the identity", _multiple, ROUNDING),
        Hypothesis("outer bases are not those of the task", lambda a: 1e-2 - a.coupling),
    ),
    tolerances=STAYS,
    measure=each(_measure_stays),
    draw=draw_multiple,
    violations=(Violation("other conserved matrices", lambda rng: draw_aligned(rng, (3, 3, 3, 3))),),
    printed="May be read as: no aligned start that is neither decoupled nor balanced stays aligned.",
    sized=_sized_multiple,
)


# --- Decoupled is diagonal --------------------------------------------------------------------------------------------


def solved(times: np.ndarray, modes: Sequence[np.ndarray], sigma: Sequence[float]) -> list[np.ndarray]:
    """Weights (times, depth) of single modes by `diagonal_flow`, always as many at once."""
    found: dict[int, np.ndarray] = {}
    moments = np.concatenate([times, np.full(TOGETHER - len(times), times[-1])])
    for depth in sorted({len(mode) for mode in modes}):
        places = [i for i, mode in enumerate(modes) if len(mode) == depth]
        for first in range(0, len(places), TOGETHER):
            part = places[first : first + TOGETHER]
            filled = part + part[-1:] * (TOGETHER - len(part))
            weights = np.stack([modes[i] for i in filled], axis=1)
            run = np.asarray(diagonal_flow(moments, weights, np.array([sigma[i] for i in filled])))[: len(times)]
            found |= {i: run[:, :, k] for k, i in enumerate(part)}
    return [found[i] for i in range(len(modes))]


DECOUPLED_FLOW = {"flow of the network less that of its modes, largest entry": FLOW}


def _measure_decoupled(instances: Sequence[Aligned]) -> list[Measured]:
    chains, targets = [], []
    for one in instances:
        count = min(map(len, one.strengths))
        stacked = np.stack([values[:count] for values in one.strengths])
        chains += list(stacked.T)
        targets += list((one.sigma if one.told is None else one.told)[:count])
    runs, measured, place = solved(MOMENTS, chains, targets), [], 0
    for one in instances:
        count, worst = min(map(len, one.strengths)), 0.0
        modes = np.stack(runs[place : place + count], axis=2)  # times, layers, modes
        place += count
        for moment, layers in zip(modes, flow(one.layers, one.target, MOMENTS), strict=True):
            for l, layer in enumerate(layers):  # noqa: E741
                values = one.strengths[l].copy()
                values[:count] = moment[l]
                wanted = one.left[l] @ rectangular(values, *layer.shape) @ one.right[l].T
                worst = max(worst, float(np.max(np.abs(layer - wanted))))
        measured.append(Measured(dict.fromkeys(DECOUPLED_FLOW, worst)))
    return measured


def _other_target(rng: np.random.Generator) -> Aligned:
    aligned = draw_aligned(rng, decoupled=True)
    return dataclasses.replace(aligned, told=aligned.sigma * 1.1)


PROPOSITION_32 = Check(
    id="network/proposition-32",
    source="Proposition 32",
    statement="The flow of a decoupled network is that of diagonal layers, W_l(t) = U_l Λ_l(t) U_{l-1}ᵀ, each mode by "
    "itself; strengths that belong to no output do not move.",
    hypotheses=(ALIGNED, DECOUPLED),
    tolerances=DECOUPLED_FLOW,
    measure=_measure_decoupled,
    draw=lambda rng: draw_aligned(rng, decoupled=True),
    violations=(
        Violation("outer bases that are not those of the task", draw_aligned),
        Violation("modes of another target", _other_target),
    ),
    sized=lambda rng, widths: draw_aligned(rng, widths, decoupled=True),
)

OWN_BASES = {"layers in their own bases, largest entry": ROUNDING, "their speeds, largest entry": ROUNDING}


def _measure_own_bases(aligned: Aligned) -> Measured:
    depth = len(aligned.left)
    sides = (np.eye(len(aligned.right[0])), *aligned.left[:-1], np.eye(len(aligned.left[-1])))
    seen = [p.T @ layer @ q for p, layer, q in zip(sides[1:], aligned.layers, sides[:-1], strict=True)]
    moved = [
        p.T @ speed @ q
        for p, speed, q in zip(sides[1:], speeds(aligned.layers, aligned.target), sides[:-1], strict=True)
    ]
    pattern = aligned.diagonals
    middle = speeds(pattern, aligned.left[-1].T @ aligned.target @ aligned.right[0])
    for parts in (pattern, middle):
        parts[0] = parts[0] @ aligned.right[0].T
        parts[depth - 1] = aligned.left[-1] @ parts[depth - 1]
    gaps = [
        max(float(np.max(np.abs(a - b))) for a, b in zip(*pair, strict=True))
        for pair in ((seen, pattern), (moved, middle))
    ]
    return Measured(dict(zip(OWN_BASES, gaps, strict=True)))


EQUATION_53 = Check(
    id="network/equation-53",
    source="Equations 53 and 54",
    statement="In the bases of its hidden layers an aligned network is (Λ_1V_1ᵀ, Λ_2, …, U_LΛ_L), and its speeds are "
    "Λ_{L:l+1}ᵀ G Λ_{l-1:1}ᵀ with G = U_LᵀΣV_1 - Λ_{L:1}, times V_1ᵀ on the right in the first layer and U_L on the "
    "left in the last.",
    hypotheses=(ALIGNED,),
    tolerances=OWN_BASES,
    measure=each(_measure_own_bases),
    draw=draw_aligned,
    violations=(Violation("one layer turned", lambda rng: misaligned(draw_aligned(rng), rng)),),
    sized=draw_aligned,
)


FORM = {"second derivatives of both networks, relative": ROUNDING, "and of the modes, relative": ROUNDING}


def second_derivative(layers: Sequence[np.ndarray], direction: Sequence[np.ndarray], target: np.ndarray) -> float:
    """‖ρ₁‖² - 2⟨ρ₂, M⟩ from the coefficients of the product along a line."""
    identity = np.eye(target.shape[1])
    terms = [identity, np.zeros_like(identity), np.zeros_like(identity)]
    for w, v in zip(layers, direction, strict=True):
        terms = [w @ terms[0], w @ terms[1] + v @ terms[0], w @ terms[2] + v @ terms[1]]
    return float(np.sum(terms[1] ** 2) - 2 * np.sum(terms[2] * (target - terms[0])))


def _measure_form(aligned: Aligned) -> Measured:
    count = min(map(len, aligned.strengths))
    rng = np.random.default_rng(0)
    moved = [rng.standard_normal(values.shape) for values in aligned.strengths]
    direction = [rectangular(v, *d.shape) for v, d in zip(moved, aligned.diagonals, strict=True)]
    sides = (np.eye(len(aligned.right[0])), *aligned.gauge, np.eye(len(aligned.left[-1])))

    def turn(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [p @ part @ q.T for p, part, q in zip(sides[1:], parts, sides[:-1], strict=True)]

    plain = second_derivative(aligned.diagonals, direction, aligned.target)
    turned = second_derivative(turn(aligned.diagonals), turn(direction), aligned.target)
    weights, way = (np.stack([values[:count] for values in each]) for each in (aligned.strengths, moved))
    block = np.asarray(diagonal_hessian(weights, aligned.sigma[:count]))
    modes = float(np.einsum("lj,jlk,kj->", way, block, way))
    size = float(np.einsum("lj,jlk,kj->", np.abs(way), np.abs(block), np.abs(way)))
    numbers = (abs(turned - plain) / size, abs(modes - plain) / size)
    return Measured(dict(zip(FORM, numbers, strict=True)))


def _sized_form(rng: np.random.Generator, widths: tuple[int, ...]) -> Aligned:
    if min(widths) < min(widths[0], widths[-1]):
        raise ValueError(f"the statement is about hidden layers no narrower than the output, but widths is {widths}.")
    return draw_aligned(rng, widths, decoupled=True, gauge=True)


SECTION_5_2_2 = Check(
    id="network/section-5.2.2",
    source="Section 5.2.2",
    statement="The Hessian form of a diagonal network along diagonal directions is the sum over its modes, and the "
    "same for every network PΛPᵀ along PVPᵀ with orthogonal P.",
    hypotheses=(ORTHOGONAL,),
    tolerances=FORM,
    measure=each(_measure_form),
    draw=lambda rng: draw_aligned(rng, decoupled=True, gauge=True),
    violations=(Violation("a change of basis that is not orthogonal", _bent),),
    sized=_sized_form,
)


CHECKS = (
    PROPOSITION_29,
    PROPOSITION_30,
    PROPOSITION_31,
    PROPOSITION_32,
    EQUATION_53,
    SECTION_5_2_2,
    ERRATUM_ALIGNMENT,
)
