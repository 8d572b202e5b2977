"""Statements on the singular values and the numerical range of the adjacency matrix."""

import dataclasses
import itertools

import numpy as np

from deeplinear.core import xp
from deeplinear.landscape import (
    adjacency_svd,
    aligned_radius,
    balanced_radius,
    block_svd,
    numerical_radius,
    numerical_range_boundary,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import largest
from deeplinear.theory.network._adjacency import (
    LAYERED,
    LOOP,
    SKIP,
    Wired,
    adopt_wired,
    commutator,
    dense_shift,
    draw_wired,
    gap_between,
    sized_wired,
)
from deeplinear.theory.network._networks import (
    CHAIN,
    ROUNDING,
    Layers,
    each,
)

BLOCK_FACTORS = {
    "A against UΛVᵀ, relative": ROUNDING,
    "Λ off its diagonals, relative": ROUNDING,
    "orthogonality of the blocks": ROUNDING,
}


def _measure_block_svd(instance: Wired) -> Measured:
    left, values, right = block_svd(instance.network.params)
    off = [np.asarray(v) * (1 - np.eye(v.shape[0], v.shape[1])) for v in values.layers]
    bases = [np.asarray(b) for b in (*left.blocks[1:], *right.blocks[:-1])]
    numbers = (
        gap_between((left @ values @ right.T).dense(), instance.dense),
        largest(off),
        max([largest([b.T @ b - np.eye(len(b))]) for b in bases] + [largest([left.blocks[0], right.blocks[-1]])]),
    )
    return Measured(dict(zip(BLOCK_FACTORS, numbers, strict=True)))


PROPOSITION_7 = Check(
    id="network/proposition-7",
    source="Proposition 7",
    statement="A = UΛVᵀ with U = blk₀(0, U₁, …, U_L), Λ = blk₁(Λ₁, …, Λ_L) and V = blk₀(V₁, …, V_L, 0).",
    hypotheses=(LAYERED,),
    tolerances=BLOCK_FACTORS,
    measure=each(_measure_block_svd),
    draw=draw_wired,
    violations=(LOOP, SKIP),
    sized=sized_wired,
    adopt=adopt_wired,
)

FACTORS = {
    "A against its factors, relative": ROUNDING,
    "orthogonality of the factors": ROUNDING,
    "singular values of A against those of the layers, relative": ROUNDING,
}


def _measure_svd(instance: Wired) -> Measured:
    network, flat = instance.network, instance.dense
    u, s, v, _ = (np.asarray(part) for part in adjacency_svd(network.params))
    union = np.concatenate([np.linalg.svd(layer, compute_uv=False) for layer in network.layers])
    padded = np.concatenate([np.sort(union)[::-1], np.zeros(len(flat) - len(union))])
    identity = np.eye(len(flat))
    whole = np.linalg.svd(flat, compute_uv=False)
    numbers = (
        gap_between(u @ np.diag(s) @ v.T, flat),
        largest([u.T @ u - identity, v.T @ v - identity]),
        max(gap_between(whole, padded), gap_between(s, padded)),
    )
    return Measured(dict(zip(FACTORS, numbers, strict=True)))


PROPOSITION_39 = Check(
    id="network/proposition-39",
    source="Proposition 39",
    statement="The singular values of A are those of all layers, and zeros; its vectors are those of the layers.",
    hypotheses=(LAYERED,),
    tolerances=FACTORS,
    measure=each(_measure_svd),
    draw=draw_wired,
    violations=(LOOP, SKIP),
    sized=sized_wired,
    adopt=adopt_wired,
)


ANGLES = np.linspace(0.0, 2 * np.pi, 13)
DISK = {
    "distance of the boundary from a circle, relative": 1e-10,
    "spectra of the symmetric and the skew part, relative": ROUNDING,
    "spectrum against its mirror image, relative": ROUNDING,
    "traces of (A^k)ᵀA, relative": ROUNDING,
    "radius against the farthest point, relative": 1e-10,
}


def _measure_disk(instance: Wired) -> Measured:
    network, flat = instance.network, instance.dense
    symmetric, skew = np.linalg.eigvalsh((flat + flat.T) / 2), np.linalg.eigvalsh((flat - flat.T) / 2j)
    size = max(largest([symmetric]), 1e-300)
    reach = [np.linalg.eigvalsh((np.exp(-1j * t) * flat + np.exp(1j * t) * flat.T) / 2)[-1] for t in ANGLES]
    boundary = np.asarray(numerical_range_boundary(network.params, ANGLES))
    radius = float(numerical_radius(network.params))
    traces = [abs(float(np.sum(np.linalg.matrix_power(flat, k) * flat))) for k in range(2, len(flat) + 1)]
    numbers = (
        (max(reach) - min(reach)) / size,
        largest([symmetric - skew]) / size,
        largest([symmetric + symmetric[::-1], skew + skew[::-1]]) / size,
        max(traces) / max(1.0, float(np.sum(flat**2))),
        largest([boundary - max(reach) * np.exp(1j * ANGLES), radius - max(reach)]) / size,
    )
    return Measured(dict(zip(DISK, numbers, strict=True)), facts={"radius": max(reach)})


PROPOSITION_11 = Check(
    id="network/proposition-11",
    source="Proposition 11",
    statement=(
        "The numerical range of A is a disk around 0; its symmetric and skew parts have the same spectrum but for i, "
        "which is symmetric about 0; tr((A^k)ᵀA) = 0 for k ≥ 2."
    ),
    hypotheses=(LAYERED,),
    tolerances=DISK,
    measure=each(_measure_disk),
    draw=draw_wired,
    violations=(LOOP, SKIP),
    sized=sized_wired,
    adopt=adopt_wired,
)


@dataclasses.dataclass(frozen=True)
class Aligned:
    """Layers, and the amplitudes of their modes that are told, (depth, modes)."""

    layers: Layers
    amplitudes: np.ndarray
    balanced: bool

    @property
    def misalignment(self) -> float:
        """Largest commutator of the two Gram matrices of a hidden layer."""
        pairs = itertools.pairwise(self.layers)
        return largest([commutator(a @ a.T, b.T @ b) for a, b in pairs]) if len(self.layers) > 1 else 0.0


def _aligned(
    rng: np.random.Generator, widths: tuple[int, ...], *, balanced: bool = False, broken: bool = False
) -> Aligned:
    modes, depth = min(widths), len(widths) - 1
    values = rng.uniform(0.3, 2.0, (depth, modes))
    if balanced:
        values = np.tile(values[:1], (depth, 1))
    bases = [np.linalg.qr(rng.standard_normal((d, d)))[0] for d in widths]
    others = [np.linalg.qr(rng.standard_normal((d, d)))[0] for d in widths] if broken else bases
    layers = []
    for k in range(depth):
        middle = np.zeros((widths[k + 1], widths[k]))
        np.fill_diagonal(middle[:modes, :modes], values[k])
        layers.append(bases[k + 1] @ middle @ others[k].T)
    return Aligned(tuple(layers), values, balanced)


RADIUS = {
    "radius against the largest of its chains, relative": 1e-10,
    "radius against z cos(π/(L + 2)), relative": 1e-10,
}


def _measure_radius(instance: Aligned) -> Measured:
    widths = (instance.layers[0].shape[1], *(layer.shape[0] for layer in instance.layers))
    flat = dense_shift(instance.layers, widths, 1)
    radius = float(np.linalg.eigvalsh((flat + flat.T) / 2)[-1])
    chains = float(aligned_radius(instance.amplitudes))
    ours = float(numerical_radius(tuple(xp.asarray(layer, dtype=float) for layer in instance.layers)))
    wanted = float(balanced_radius(instance.amplitudes.max(), len(instance.layers))) if instance.balanced else radius
    numbers = (max(abs(chains - radius), abs(ours - radius)) / radius, abs(wanted - radius) / radius)
    return Measured(dict(zip(RADIUS, numbers, strict=True)), facts={"radius": radius})


RADII = Check(
    id="network/numerical-radius",
    source="Derived from Proposition 11",
    statement=(
        "The numerical radius of an aligned network is the largest over its modes of that of a chain with the mode's "
        "amplitudes; balanced layers with largest singular value z have z cos(π/(L + 2))."
    ),
    hypotheses=(
        Hypothesis("aligned layers", lambda a: a.misalignment, 1e-10),
        Hypothesis(
            "amplitudes are the singular values of the layers",
            lambda a: largest(
                [
                    np.sort(np.abs(row))[::-1] - np.linalg.svd(layer, compute_uv=False)[: len(row)]
                    for row, layer in zip(a.amplitudes, a.layers, strict=True)
                ]
            ),
            1e-10,
        ),
    ),
    tolerances=RADIUS,
    measure=each(_measure_radius),
    draw=lambda rng: _aligned(rng, CHAIN, balanced=bool(rng.integers(2))),
    violations=(Violation("layers that are not aligned", lambda rng: _aligned(rng, CHAIN, broken=True)),),
    sized=lambda rng, widths: _aligned(rng, widths, balanced=bool(rng.integers(2))),
)

CHECKS = (PROPOSITION_7, PROPOSITION_39, PROPOSITION_11, RADII)
