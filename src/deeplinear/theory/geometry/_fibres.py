"""Balanced layers over a matrix: dimensions, the product map as a Riemannian submersion, the volume of a fibre."""

import dataclasses
import itertools
import math

import numpy as np

from deeplinear.geometry import (
    horizontal_basis,
    horizontal_lift,
    horizontality_defect,
    log_fibre_volume,
    log_orthogonal_volume,
    manifold_dimension,
    vertical_basis,
    vertical_gram,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._matrices import ROUNDING, draw_orthogonal, draw_spectrum
from deeplinear.theory.geometry._metric import deviation, times
from deeplinear.theory.network._networks import each

Layers = tuple[np.ndarray, ...]
SIZE = 3


@dataclasses.dataclass(frozen=True)
class Balanced:
    """Balanced layers, with the strengths and frames that are told of them.

    Attributes:
        layers: W₁, W₂, …
        strengths: Singular values of every layer, zeros last.
        frames: Q₀, Q₁, …, orthogonal.
        vector: A tangent of the product.
    """

    layers: Layers
    strengths: np.ndarray
    frames: tuple[np.ndarray, ...]
    vector: np.ndarray

    @property
    def depth(self) -> int:
        return len(self.layers)

    @property
    def rank(self) -> int:
        return int(np.sum(self.strengths > 0))

    @property
    def told(self) -> Layers:
        """Layers with these strengths and frames."""
        return tuple((above * self.strengths) @ below.T for below, above in itertools.pairwise(self.frames))

    @property
    def missed(self) -> float:
        """How far the layers are from them."""
        return max(deviation(a, b) for a, b in zip(self.layers, self.told, strict=True))


def draw_balanced(rng: np.random.Generator, rank: int = SIZE, depth: int | None = None) -> Balanced:
    """Width 3, some of lower rank, some with equal strengths."""
    depth = int(rng.choice([2, 3, 5])) if depth is None else depth
    strengths = np.where(np.arange(SIZE) < rank, draw_spectrum(rng, SIZE, 0.6), 0.0)
    if rng.integers(3) == 0:
        strengths[1] = strengths[0]
    frames = tuple(draw_orthogonal(rng, SIZE) for _ in range(depth + 1))
    drawn = Balanced((), strengths, frames, rng.standard_normal((SIZE, SIZE)))
    return dataclasses.replace(drawn, layers=drawn.told)


def _other_strengths(rng: np.random.Generator) -> Balanced:
    drawn = draw_balanced(rng)
    return dataclasses.replace(drawn, strengths=drawn.strengths * [1.2, 1.0, 0.9])


TOLD = Hypothesis[Balanced]("strengths and frames are as told", lambda b: b.missed, 1e-12)
FULL = Hypothesis[Balanced]("full rank", lambda b: float(len(b.strengths) - b.rank))


def _flat(basis: tuple) -> np.ndarray:
    """Elements as rows."""
    return np.concatenate([np.asarray(part).reshape(len(part), -1) for part in basis], axis=1)


def _derivative(layers: Layers, moves: tuple) -> np.ndarray:
    """Of the product along several tangents, by plain products."""
    total = np.zeros((len(moves[0]), *layers[0].shape))
    for k, move in enumerate(moves):
        below, above = times((np.eye(SIZE), *layers[:k])), times((np.eye(SIZE), *layers[k + 1 :]))
        total = total + above @ np.asarray(move) @ below
    return total


# --- Dimensions -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Counted:
    """Balanced layers, and the depth that is told."""

    balanced: Balanced
    depth: int


DIMENSION = {
    "formula against the tangents of all constraints": 0.0,
    "formula against the rank of horizontal and vertical tangents": 0.0,
    "those tangents against the constraints": 1e-11,
}


def _constraints(layers: Layers) -> np.ndarray:
    """Differential of all W_{l+1}ᵀW_{l+1} − W_lW_lᵀ, one column for each weight: exact differences of squares."""
    flat, cuts = np.concatenate([w.ravel() for w in layers]), np.cumsum([w.size for w in layers])[:-1]
    upper = np.triu_indices(SIZE)

    def laws(vector: np.ndarray) -> np.ndarray:
        parts = [p.reshape(SIZE, SIZE) for p in np.split(vector, cuts)]
        return np.concatenate([(b.T @ b - a @ a.T)[upper] for a, b in itertools.pairwise(parts)])

    return np.stack([(laws(flat + unit) - laws(flat - unit)) / 2 for unit in np.eye(len(flat))], axis=1)


def _measure_dimension(instance: Counted) -> Measured:
    layers = instance.balanced.layers
    differential = _constraints(layers)
    free = differential.shape[1] - np.linalg.matrix_rank(differential, tol=1e-9)
    tangents = np.concatenate([_flat(horizontal_basis(layers)), _flat(vertical_basis(layers))])
    wanted = instance.depth * SIZE**2 - (instance.depth - 1) * SIZE * (SIZE + 1) // 2
    assert wanted == manifold_dimension(SIZE, instance.depth)
    numbers = (
        float(abs(wanted - free)),
        float(abs(wanted - np.linalg.matrix_rank(tangents, tol=1e-9))),
        float(np.max(np.abs(differential @ tangents.T))),
    )
    return Measured(dict(zip(DIMENSION, numbers, strict=True)))


def _counted(balanced: Balanced, more: int = 0) -> Counted:
    return Counted(balanced, balanced.depth + more)


COUNT = Check(
    id="geometry/equation-2.8",
    source="Equation 2.8",
    statement=(
        "Balanced layers of full rank are a manifold of dimension Ld² − (L − 1)d(d + 1)/2 = d² + (L − 1)d(d − 1)/2, "
        "also where singular values are equal; horizontal and vertical tangents span its tangents."
    ),
    hypotheses=(
        Hypothesis("strengths and frames are as told", lambda c: c.balanced.missed, 1e-12),
        Hypothesis("full rank", lambda c: float(SIZE - c.balanced.rank)),
        Hypothesis("the depth is as told", lambda c: float(abs(c.depth - c.balanced.depth))),
    ),
    tolerances=DIMENSION,
    measure=each(_measure_dimension),
    draw=lambda rng: _counted(draw_balanced(rng)),
    violations=(Violation("one more layer told", lambda rng: _counted(draw_balanced(rng), 1)),),
)

# --- Submersion -------------------------------------------------------------------------------------------------------


def _pair_table(strengths: np.ndarray, depth: int) -> np.ndarray:
    """Σ_j λ_k^{2(L−j)}λ_l^{2(j−1)}: the eigenvalues of the operator, from the strengths of the layers."""
    return np.sum(
        [np.outer(strengths ** (2 * (depth - j)), strengths ** (2 * (j - 1))) for j in range(1, depth + 1)], axis=0
    )


SUBMERSION = {
    "the product moves by Z along the lift of Z, relative": 1e-11,
    "squared norm of the lift against g(Z, Z), relative": 1e-11,
    "the lift against vertical tangents, relative": 1e-11,
    "the product along vertical tangents": 1e-11,
}


def _measure_submersion(instance: Balanced) -> Measured:
    """Z is taken tangent to the matrices of the rank: nothing between two silent directions."""
    rank = None if instance.rank == SIZE else instance.rank
    left, right = instance.frames[-1], instance.frames[0]
    alive = instance.strengths > 0
    seen = np.where(alive[:, None] | alive[None], left.T @ instance.vector @ right, 0.0)
    vector = left @ seen @ right.T
    table = _pair_table(instance.strengths, instance.depth)
    squared = float(np.sum(seen**2 / np.where(table > 0, table, 1.0)))
    lift = horizontal_lift(instance.layers, vector, rank=rank)
    turns = vertical_basis(instance.layers, rank=rank)
    flat = np.concatenate([np.asarray(part).ravel() for part in lift])
    numbers = (
        deviation(_derivative(instance.layers, tuple(np.asarray(part)[None] for part in lift))[0], vector),
        abs(float(flat @ flat) - squared) / squared,
        float(np.max(np.abs(_flat(turns) @ flat)) / np.linalg.norm(flat)),
        float(np.max(np.abs(_derivative(instance.layers, turns)))),
    )
    return Measured(dict(zip(SUBMERSION, numbers, strict=True)))


SUBMERSED = Check(
    id="geometry/theorem-2.2.6",
    source="Theorem 2.2.6",
    statement=(
        "On balanced layers of each rank the product map is a Riemannian submersion onto the matrices of that rank: "
        "a tangent and its horizontal lift have the same length, in the metric of depth L and in the flat one."
    ),
    hypotheses=(TOLD,),
    tolerances=SUBMERSION,
    measure=each(_measure_submersion),
    draw=lambda rng: draw_balanced(rng, int(rng.choice([2, 3])), int(rng.choice([2, 3]))),
    violations=(Violation("layers of other strengths", _other_strengths),),
)

BASIS = {
    "inner products of the basis against the identity": ROUNDING,
    "the basis against vertical tangents": 1e-11,
    "its elements against λ_k^{L−m}λ_l^{m−1}q_{m,k}q_{m−1,l}ᵀ over its norm, up to sign": 1e-11,
}


def _measure_basis(instance: Balanced) -> Measured:
    """Where strengths are equal the directions are not unique: elements are compared by the projector they span."""
    found, turns = _flat(horizontal_basis(instance.layers)), _flat(vertical_basis(instance.layers))
    depth, root = instance.depth, np.sqrt(_pair_table(instance.strengths, instance.depth))
    wanted = []
    for k, l in itertools.product(range(SIZE), repeat=2):  # noqa: E741
        parts = []
        for m in range(1, depth + 1):
            constant = instance.strengths[k] ** (depth - m) * instance.strengths[l] ** (m - 1) / root[k, l]
            parts.append(constant * np.outer(instance.frames[m][:, k], instance.frames[m - 1][:, l]).ravel())
        wanted.append(np.concatenate(parts))
    elements = np.array(wanted)
    numbers = (
        float(np.max(np.abs(found @ found.T - np.eye(SIZE**2)))),
        float(np.max(np.abs(found @ turns.T))),
        float(np.max(np.abs(found.T @ found - elements.T @ elements))),
    )
    return Measured(dict(zip(BASIS, numbers, strict=True)))


ORTHONORMAL = Check(
    id="geometry/lemma-2.2.7",
    source="Lemma 2.2.7",
    statement=(
        "D_m q_{m,k} q_{m−1,l}ᵀ in layer m, with D_m = λ_k^{L−m}λ_l^{m−1}/(Σ_jλ_k^{2(L−j)}λ_l^{2(j−1)})^{1/2}, is an "
        "orthonormal basis of the horizontal tangents; the constants depend on the layer unless λ_k = λ_l."
    ),
    hypotheses=(TOLD, FULL),
    tolerances=BASIS,
    measure=each(_measure_basis),
    draw=draw_balanced,
    violations=(Violation("layers of other strengths", _other_strengths),),
)

EVEN = {
    "defect against (1 − (ΣD_m)²/L)^{1/2}": 1e-10,
    "1e-3 − defect: constants that are the same in every layer are horizontal after all by": 0.0,
}


def _measure_even(instance: Balanced) -> Measured:
    """The pair of the largest and the smallest strength."""
    depth = instance.depth
    even = [
        np.outer(above[:, 0], below[:, -1]) / math.sqrt(depth) for below, above in itertools.pairwise(instance.frames)
    ]
    defect = float(horizontality_defect(instance.layers, even))
    high, low = instance.strengths[0], instance.strengths[-1]
    constants = np.array([high ** (depth - m) * low ** (m - 1) for m in range(1, depth + 1)])
    share = float(np.sum(constants / np.linalg.norm(constants))) / math.sqrt(depth)
    wanted = math.sqrt(max(1 - share**2, 0.0))
    # Of a defect of zero rounding leaves the root of itself, and more is lost in the square.
    return Measured(dict(zip(EVEN, (abs(defect**2 - wanted**2), 1e-3 - defect), strict=True)), facts={"defect": defect})


def _draw_uneven(rng: np.random.Generator) -> Balanced:
    while True:
        drawn = draw_balanced(rng)
        if drawn.strengths[0] > 1.2 * drawn.strengths[-1]:
            return drawn


def _isotropic(rng: np.random.Generator) -> Balanced:
    drawn = dataclasses.replace(draw_balanced(rng), strengths=np.full(SIZE, 1.3))
    return dataclasses.replace(drawn, layers=drawn.told)


LAYERWISE = Check(
    id="geometry/layer-independent-constants",
    source="Lemma 2.2.7, as it is used in Theorem 3.4.2",
    statement=(
        "With the same constant in every layer, q_{m,k}q_{m−1,l}ᵀ/√L is not horizontal where λ_k ≠ λ_l: what is not is "
        "of length (1 − (ΣD_m)²/L)^{1/2}."
    ),
    hypotheses=(
        TOLD,
        FULL,
        Hypothesis("strengths that differ by a fifth", lambda b: 1.2 - float(b.strengths[0] / b.strengths[-1])),
    ),
    tolerances=EVEN,
    measure=each(_measure_even),
    draw=_draw_uneven,
    violations=(Violation("equal strengths", _isotropic),),
)

# --- Volume -----------------------------------------------------------------------------------------------------------

VOLUME = {
    "½ ln det of the vertical tangents against ½Σ ln λ_L": 1e-10,
    "logarithm of the volume against the same with that of the groups": 1e-10,
    "measured length of the fibre of two singular values and two layers, relative": 1e-5,
}


def _measure_volume(instance: Balanced) -> Measured:
    table = _pair_table(instance.strengths, instance.depth)
    wanted = 0.5 * float(np.sum(np.log(table[np.triu_indices(SIZE, 1)])))
    gram = np.asarray(vertical_gram(instance.layers))
    spectrum = np.linalg.svd(times(instance.layers), compute_uv=False)
    # Volume of the orthogonal group of size 3: twice the sphere times the circle, scaled by √2 in three dimensions.
    groups = (instance.depth - 1) * math.log(2 * 4 * math.pi * 2 * math.pi * 2**1.5)
    assert abs(log_orthogonal_volume(SIZE) - groups / (instance.depth - 1)) < 1e-12
    pair = instance.strengths[:2] ** instance.depth
    length = fibre_length(pair)
    numbers = (
        abs(0.5 * float(np.linalg.slogdet(gram)[1]) - wanted),
        abs(float(log_fibre_volume(spectrum, instance.depth)) - groups - wanted),
        abs(length / math.exp(float(log_fibre_volume(pair, 2))) - 1),
    )
    return Measured(dict(zip(VOLUME, numbers, strict=True)))


def fibre_length(pair: np.ndarray, chords: int = 2000) -> float:
    """Length of both closed curves of balanced pairs of layers over diag(pair), by chords."""
    angles = np.linspace(0, 2 * math.pi, chords + 1)
    turns = np.array([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]]).transpose(2, 0, 1)
    root, total = np.diag(np.sqrt(pair)), 0.0
    for mirror in (np.eye(2), np.diag([1.0, -1.0])):
        curve = np.concatenate([turns @ mirror @ root, root @ mirror @ turns.transpose(0, 2, 1)], axis=1)
        total += float(np.sum(np.linalg.norm(np.diff(curve, axis=0), axis=(1, 2))))
    return total


ORBIT = Check(
    id="geometry/equation-4.26",
    source="Equation 4.26",
    statement=(
        "The balanced layers over X have the volume vol(O_d)^{L−1} Π_{j<k} λ_L(σ_j, σ_k)^{1/2}, with the Frobenius "
        "metric on the orthogonal group."
    ),
    hypotheses=(TOLD, FULL),
    tolerances=VOLUME,
    measure=each(_measure_volume),
    draw=draw_balanced,
    violations=(Violation("layers of other strengths", _other_strengths),),
)

CHECKS = (COUNT, SUBMERSED, ORTHONORMAL, LAYERWISE, ORBIT)
