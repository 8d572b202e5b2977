"""The flow of balanced layers seen at their product: layers against product, singular coordinates, closed forms."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from deeplinear.core import HypothesisError, Params
from deeplinear.geometry import matrix_flow, singular_derivative
from deeplinear.models import Completion, Problem
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._matrices import DEPTHS, ROUNDING, Place, adopt_place, draw_orthogonal, operator
from deeplinear.theory.network._networks import each, laws_of

SIZE = 3
"""All flows are of matrices of one size, with output times of one number, so that they share a program."""

TIMES = (0.0, 0.4, 1.0)

FOLLOWED = 2e-10
"""Two integrators at relative tolerances of 1e-11 on flows of order one."""

TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-13}

GAPS = 1e-6
"""Differences of singular values below which their vectors are not followed."""


@dataclasses.dataclass(frozen=True)
class Learning:
    """A start and a completion energy, at a depth.

    Attributes:
        start: Square matrix of full rank.
        target: Values of the observed entries.
        mask: 1 where observed.
        depth: Number of layers, or infinity.
        layers: Layers whose product is the start, of statements that need them.
    """

    start: np.ndarray
    target: np.ndarray
    mask: np.ndarray
    depth: float
    layers: tuple[np.ndarray, ...] = ()

    @property
    def energy(self) -> Completion:
        return Completion(self.target, self.mask)

    def force(self, point: np.ndarray) -> np.ndarray:
        """Gradient of the energy."""
        return self.mask * (point - self.target)


def draw_start(rng: np.random.Generator, size: int = SIZE) -> np.ndarray:
    """A matrix whose singular values lie apart: 1.4 to 1.8, 0.8 to 1.1, 0.3 to 0.6 and so on."""
    values = np.array([1.4, 0.8, 0.3, 0.15][:size]) + rng.uniform(0, [0.4, 0.3, 0.3, 0.1][:size])
    return (draw_orthogonal(rng, size) * values) @ draw_orthogonal(rng, size)


def draw_learning(rng: np.random.Generator, depths: Sequence[float] = DEPTHS) -> Learning:
    """A start with half of the entries of a Gaussian target observed."""
    mask = rng.permutation([1.0] * 5 + [0.0] * 4).reshape(SIZE, SIZE)
    return Learning(draw_start(rng), rng.standard_normal((SIZE, SIZE)), mask, depths[int(rng.integers(len(depths)))])


def lifted(start: np.ndarray, depth: int) -> tuple[np.ndarray, ...]:
    """Balanced layers with this product."""
    left, values, right_t = np.linalg.svd(start)
    root = np.diag(values ** (1 / depth))
    return (root @ right_t, *[root] * (depth - 2), left @ root)


# --- The product of balanced layers -----------------------------------------------------------------------------------

DOWNSTAIRS = "product of the layers against the flow of the product"
LAYERS = (2, 3, 4)


def draw_layered(rng: np.random.Generator) -> Learning:
    learning = draw_learning(rng, LAYERS)
    return dataclasses.replace(learning, layers=lifted(learning.start, int(learning.depth)))


def unbalanced(learning: Learning) -> Learning:
    """The same product, of layers of which the first is thrice and the last a third of the balanced one."""
    first, *middle, last = learning.layers
    return dataclasses.replace(learning, layers=(3 * first, *middle, last / 3))


def adopt_layered(problem: Problem, params: Params) -> Learning:
    """Given layers of one width with a completion loss."""
    shapes = {np.shape(layer) for layer in params}
    if shapes != {(SIZE, SIZE)} or not isinstance(problem.loss, Completion):
        odd = float(sum(np.shape(layer) != (SIZE, SIZE) for layer in params))
        raise HypothesisError(f"{SIZE}x{SIZE} layers with a completion loss (Completion)", odd, 0.0)
    layers = tuple(np.asarray(layer) for layer in params)
    loss = problem.loss
    product = np.asarray(problem.product(params))
    return Learning(product, np.asarray(loss.target), np.asarray(loss.mask), len(layers), layers)


def _upstairs(learning: Learning) -> np.ndarray:
    """Products at the output times of layers that follow their gradients, by SciPy."""
    depth = len(learning.layers)

    def velocity(_: float, flat: np.ndarray) -> np.ndarray:
        layers = flat.reshape(depth, SIZE, SIZE)
        below = [np.eye(SIZE)]
        for layer in layers:
            below.append(layer @ below[-1])
        back, out = -learning.force(below[-1]), np.zeros_like(layers)
        for k in range(depth - 1, -1, -1):
            out[k] = back @ below[k].T
            back = layers[k].T @ back
        return out.ravel()

    run = solve_ivp(velocity, (0, TIMES[-1]), np.ravel(learning.layers), "DOP853", TIMES, rtol=1e-12, atol=1e-13)
    layers = run.y.T.reshape(-1, depth, SIZE, SIZE)
    product = layers[:, 0]
    for k in range(1, depth):
        product = layers[:, k] @ product
    return product


def _measure_downstairs(learning: Learning) -> Measured:
    run = matrix_flow(learning.energy, learning.start, learning.depth, TIMES, **TIGHT)
    assert run.points is not None
    return Measured({DOWNSTAIRS: float(np.max(np.abs(run.points - _upstairs(learning))))})


THEOREM_2_1_2 = Check(
    id="geometry/theorem-2.1.2",
    source="Theorem 2.1.2",
    statement=(
        "The product of layers that start balanced and follow their gradients moves by "
        "Ẋ = −Σ_l (XXᵀ)^{(L−l)/L} ∇E(X) (XᵀX)^{(l−1)/L}, without the factor 1/L."
    ),
    hypotheses=(
        Hypothesis(
            "balanced layers",
            lambda learning: float(max((np.abs(law).max() for law in laws_of(learning.layers)), default=0.0)),
            1e-12,
        ),
        Hypothesis("at least two layers", lambda learning: float(2 - len(learning.layers))),
    ),
    tolerances={DOWNSTAIRS: FOLLOWED},
    measure=each(_measure_downstairs),
    draw=draw_layered,
    adopt=adopt_layered,
    violations=(Violation("layers out of balance", lambda rng: unbalanced(draw_layered(rng))),),
)

# --- How a singular value decomposition moves -------------------------------------------------------------------------

VALUES = "derivatives of singular values"
LEFT = "derivatives of left singular vectors, times the smallest gap"
RIGHT = "derivatives of right singular vectors, times the smallest gap"
DIFFERENCES = 1e-9
"""Central differences of order four over a part of the smallest gap; rounding is told by `SHARE`."""

SHARE = 1e-3
"""Smallest gap over the largest singular value below which differences of singular vectors are rounding."""


def gap_of(point: np.ndarray) -> float:
    """Smallest difference of singular values, and the smallest of them."""
    values = np.linalg.svd(point, compute_uv=False)
    return float(min(np.min(-np.diff(values), initial=math.inf), values[-1]))


def _crowding(place: Place) -> float:
    """How far the smallest gap is below its least share of the largest singular value."""
    largest = float(np.linalg.norm(place.point, 2))
    return SHARE - gap_of(place.point) / largest if largest > 0 else SHARE


def _aligned(point: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    u, s, vt = np.linalg.svd(point)
    signs = np.where(np.sum(u * left, axis=0) < 0, -1.0, 1.0)
    return u * signs, s, vt.T * signs


def _measure_derivatives(place: Place) -> Measured:
    """Along the path X + tZ; the velocity that is told of it is `vector`, and `other` is the one it has."""
    gap = gap_of(place.point)
    if gap == 0:
        return Measured({VALUES: math.nan, LEFT: math.nan, RIGHT: math.nan})
    point = place.point / gap  # vectors turn by 1/gap at unit speed; here they turn by one
    u, _, vt = np.linalg.svd(point)
    step, weights = 2e-3, {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}
    parts = [(w / step, _aligned(point + k * step * place.other, u)) for k, w in weights.items()]
    du, ds, dv = (np.sum([w * part[n] for w, part in parts], axis=0) for n in range(3))
    try:
        found = singular_derivative(place.point, place.vector)
    except HypothesisError:
        return Measured({VALUES: math.nan, LEFT: math.nan, RIGHT: math.nan})
    return Measured(
        {
            VALUES: float(np.max(np.abs(np.asarray(found.values) - ds))),
            LEFT: float(np.max(np.abs(gap * np.asarray(found.left) - u.T @ du))),
            RIGHT: float(np.max(np.abs(gap * np.asarray(found.right) - vt @ dv))),
        }
    )


def draw_path(rng: np.random.Generator) -> Place:
    velocity = rng.standard_normal((SIZE, SIZE))
    velocity /= np.linalg.norm(velocity)
    return Place(draw_start(rng), velocity, 1, velocity)


def _adopt_path(problem: Problem, params: Params) -> Place:
    place = adopt_place(problem, params)
    if place.point.shape[0] != place.point.shape[1]:
        raise HypothesisError("a square product", float(abs(place.point.shape[0] - place.point.shape[1])), 0.0)
    velocity = place.vector / max(float(np.linalg.norm(place.vector)), 1e-300)
    return dataclasses.replace(place, vector=velocity, other=velocity)


LEMMA_4_1_1 = Check(
    id="geometry/lemma-4.1.1",
    source="Lemma 4.1.1",
    statement=(
        "Along a path with distinct singular values ṡ_i = u_iᵀẊv_i, and UᵀU̇ and VᵀV̇ have the entries "
        "(s_jZ_ij + s_iZ_ji)/(s_j² − s_i²) and (s_iZ_ij + s_jZ_ji)/(s_j² − s_i²) with Z = UᵀẊV."
    ),
    hypotheses=(
        Hypothesis("distinct singular values", _crowding),
        Hypothesis("the velocity of the path", lambda place: float(np.max(np.abs(place.vector - place.other)))),
    ),
    tolerances={VALUES: DIFFERENCES, LEFT: DIFFERENCES, RIGHT: DIFFERENCES},
    version=2,
    measure=each(_measure_derivatives),
    draw=draw_path,
    adopt=_adopt_path,
    violations=(
        Violation(
            "the velocity of another path",
            lambda rng: dataclasses.replace(draw_path(rng), other=0.5 * rng.standard_normal((SIZE, SIZE))),
        ),
        Violation(
            "singular values that coincide",
            lambda rng: dataclasses.replace(draw_path(rng), point=0.8 * draw_orthogonal(rng, SIZE)),
        ),
    ),
)

# --- The flow in singular coordinates ---------------------------------------------------------------------------------

VELOCITY = "velocity put together from the equations of U, s and V"
SAME_PATH = "flow in singular against flow in matrix coordinates"


def _turned(learning: Learning, *, scale: float) -> np.ndarray:
    """Velocity of the product from the equations as printed, that of the singular values multiplied by `scale`."""
    u, s, vt = np.linalg.svd(learning.start)
    seen = u.T @ learning.force(learning.start) @ vt.T
    with np.errstate(divide="ignore", invalid="ignore"):
        if math.isinf(learning.depth):
            table = 1 / (2 * np.log(s[:, None] / s))
        else:
            table = 1 / (s[:, None] ** (2 / learning.depth) - s ** (2 / learning.depth))
    np.fill_diagonal(table, 0.0)
    rates = -scale * s ** (2 - 2 / learning.depth) * np.diagonal(seen)
    with np.errstate(invalid="ignore"):
        outer, inner = (table * s) * seen, (s[:, None] * table) * seen
        return (u @ (outer - outer.T) * s) @ vt + (u * rates) @ vt + (u * s) @ (inner - inner.T).T @ vt


def _measure_singular(learning: Learning) -> Measured:
    wanted = -operator(learning.start, learning.force(learning.start), learning.depth)
    layers = 1.0 if math.isinf(learning.depth) else learning.depth
    found = np.max(np.abs(_turned(learning, scale=layers) - wanted))
    printed = np.max(np.abs(_turned(learning, scale=1.0) - wanted))
    apart = gap_of(learning.start) > GAPS
    path = math.nan
    if apart:
        runs = [
            matrix_flow(learning.energy, learning.start, learning.depth, TIMES, coordinates=c, **TIGHT).points
            for c in ("auto", "matrix")
        ]
        path = float(np.max(np.abs(np.asarray(runs[0]) - np.asarray(runs[1]))))
    return Measured({VELOCITY: float(found), SAME_PATH: path}, printed=float(printed))


LEMMA_4_1_2 = Check(
    id="geometry/lemma-4.1.2",
    source="Lemma 4.1.2 and Remark 4.1.3",
    statement=(
        "With distinct singular values the flow is U̇ = U(M − Mᵀ), V̇ = V(N − Nᵀ), "
        "ṡ_i = −λ_L(s_i, s_i)F_ii, where F = Uᵀ∇E V, M_ij = c_ij s_j F_ij, N_ij = s_i c_ij F_ij and "
        "c_ij = λ_L(s_i, s_j)/(s_i² − s_j²); λ_L(s, s) is s^{2−2/L} with the normalised operator only, and L times "
        "that with the operator of Equation 2.9."
    ),
    hypotheses=(Hypothesis("distinct singular values", lambda learning: GAPS - gap_of(learning.start)),),
    tolerances={VELOCITY: 1e-11, SAME_PATH: FOLLOWED},
    measure=each(_measure_singular),
    draw=draw_learning,
    adopt=adopt_layered,
    printed="Ṡ = −S^{2−2/N} diag(Uᵀ∇E V) with any version of λ^N, with or without the factor 1/N.",
    printed_tolerance=1e-11,
    violations=(
        Violation(
            "singular values that coincide",
            lambda rng: dataclasses.replace(draw_learning(rng), start=0.8 * draw_orthogonal(rng, SIZE)),
        ),
    ),
)

# --- Energies of the singular values ----------------------------------------------------------------------------------

DECOUPLED = "diagonal of the flow against the closed form"
DIAGONAL = "entries off the diagonal"


def _measure_decoupled(learning: Learning) -> Measured:
    """E = ‖X − Y‖²/2, which depends on the singular values alone if Y = 0."""
    run = matrix_flow(learning.energy, learning.start, learning.depth, TIMES, coordinates="matrix", **TIGHT)
    assert run.points is not None
    start, times = np.diag(learning.start), np.array(TIMES)[:, None]
    power, layers = 2 - 2 / learning.depth, 1.0 if math.isinf(learning.depth) else learning.depth
    closed, printed = ((start**-power + power * factor * times) ** (-1 / power) for factor in (layers, 1.0))
    found = np.diagonal(run.points, axis1=1, axis2=2)
    off = run.points - found[:, :, None] * np.eye(SIZE)
    return Measured(
        {DECOUPLED: float(np.max(np.abs(found - closed))), DIAGONAL: float(np.max(np.abs(off)))},
        printed=float(np.max(np.abs(found - printed))),
    )


def draw_decaying(rng: np.random.Generator) -> Learning:
    drawn = draw_learning(rng)
    values = np.sort(np.exp(rng.uniform(-1, 0.7, SIZE)))[::-1]
    return dataclasses.replace(drawn, start=np.diag(values), target=0 * drawn.target, mask=np.ones((SIZE, SIZE)))


COROLLARY_4_1_3_1 = Check(
    id="geometry/corollary-4.1.3.1",
    source="Corollary 4.1.3.1",
    statement=(
        "From a diagonal start, an energy of the singular values keeps the matrix diagonal and decouples: "
        "ṡ_i = −L s_i^{2−2/L} ∂E/∂s_i, without L for the normalised operator. For E = ‖X‖²/2 it is solved by "
        "s(t) = (s_0^{−a} + aLt)^{−1/a}, a = 2 − 2/L."
    ),
    hypotheses=(
        Hypothesis(
            "a diagonal start",
            lambda learning: float(np.max(np.abs(learning.start - np.diag(np.diag(learning.start))))),
        ),
        Hypothesis("an energy of the singular values", lambda learning: float(np.max(np.abs(learning.target)))),
    ),
    tolerances={DECOUPLED: FOLLOWED, DIAGONAL: ROUNDING},
    measure=each(_measure_decoupled),
    draw=draw_decaying,
    printed="ṡ_i = −s_i^{2−2/N} ∂E/∂s_i for the flow of Equation 2.9.",
    printed_tolerance=FOLLOWED,
    violations=(
        Violation(
            "an energy that sees more than singular values",
            lambda rng: dataclasses.replace(draw_decaying(rng), target=rng.standard_normal((SIZE, SIZE))),
        ),
    ),
)

# --- The determinant at infinite depth --------------------------------------------------------------------------------

LOGARITHM = "d ln|det X|/dt against −⟨X, ∇E⟩"
ALONG = "the same by differences along the flow"


def _measure_determinant(learning: Learning) -> Measured:
    force = learning.force(learning.start)
    speed = -np.trace(np.linalg.solve(learning.start, operator(learning.start, force, learning.depth)))
    wanted = -np.sum(learning.start * force)
    size = 1 + np.linalg.norm(learning.start) * np.linalg.norm(force)
    step = 1e-4
    run = matrix_flow(learning.energy, learning.start, learning.depth, (0.5 - step, 0.5, 0.5 + step), **TIGHT)
    assert run.points is not None
    before, middle, after = run.points
    rate = (np.linalg.slogdet(after)[1] - np.linalg.slogdet(before)[1]) / (2 * step)
    return Measured(
        {
            LOGARITHM: float(abs(speed - wanted) / size),
            ALONG: float(abs(rate + np.sum(middle * learning.force(middle))) / size),
        }
    )


LOG_DETERMINANT = Check(
    id="geometry/log-determinant",
    source="derived from Remark 2.2.3",
    statement="At infinite depth d ln|det X|/dt = −⟨X, ∇E(X)⟩ along the flow.",
    hypotheses=(
        Hypothesis("infinite depth", lambda learning: float(not math.isinf(learning.depth))),
        Hypothesis("full rank", lambda learning: GAPS - float(np.linalg.svd(learning.start, compute_uv=False)[-1])),
    ),
    tolerances={LOGARITHM: 1e-11, ALONG: 1e-7},
    measure=each(_measure_determinant),
    draw=lambda rng: draw_learning(rng, (math.inf,)),
    violations=(Violation("a finite depth", lambda rng: draw_learning(rng, (2, 3))),),
)

CHECKS = (THEOREM_2_1_2, LEMMA_4_1_1, LEMMA_4_1_2, COROLLARY_4_1_3_1, LOG_DETERMINANT)
