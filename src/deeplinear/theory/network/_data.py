"""Statements on the data: their reduction, and what it changes."""

import dataclasses

import numpy as np

from deeplinear.core import xp
from deeplinear.landscape import (
    reduce_data,
)
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import largest
from deeplinear.theory.network._adjacency import gap_between
from deeplinear.theory.network._networks import (
    CHAIN,
    ROUNDING,
    Layers,
    Network,
    draw_layers,
    each,
)


@dataclasses.dataclass(frozen=True)
class Data:
    """Samples in columns, raw layers, and the inputs of which the reduction is told."""

    inputs: np.ndarray
    outputs: np.ndarray
    layers: Layers
    told: np.ndarray

    @property
    def network(self) -> Network:
        """The raw layers, for their products."""
        return Network(self.layers, np.zeros(0))


def _draw_data(rng: np.random.Generator, widths: tuple[int, ...] = CHAIN) -> Data:
    if widths[-1] > widths[0]:
        raise ValueError(f"widths must have at most as many outputs as inputs, but is {tuple(widths)}.")
    samples = widths[0] + widths[-1] + 2
    x = rng.uniform(0.5, 3.0, (widths[0], 1)) * rng.standard_normal((widths[0], samples))
    if rng.integers(4) == 0:
        left, _, right = np.linalg.svd(x, full_matrices=False)
        x = left @ right
    return Data(x, rng.standard_normal((widths[-1], samples)), draw_layers(rng, widths), x)


def _other_data(rng: np.random.Generator) -> Data:
    data = _draw_data(rng)
    return dataclasses.replace(data, told=rng.standard_normal(data.inputs.shape))


TOLD_DATA = Hypothesis[Data]("the reduction is told of these inputs", lambda d: largest([d.told - d.inputs]))
FULL_RANK = Hypothesis[Data](
    "inputs of full row rank", lambda d: float(np.linalg.cond(d.inputs)) if d.inputs.size else 1.0, 1e12
)
OTHER_DATA = Violation("the reduction of other inputs", _other_data)

REDUCED = {
    "loss against reduced loss and constant, relative": 1e-10,
    "least-squares solution against the target, relative": 1e-10,
    "singular values against those of YXᵀ(XXᵀ)^{−1/2}, relative": 1e-10,
    "layers lifted back, relative": 1e-10,
}


def _measure_reduced(data: Data) -> Measured:
    x, y = data.inputs, data.outputs
    reduction = reduce_data(data.told, y)
    raw = 0.5 * float(np.sum((y - data.network.product @ x) ** 2))
    params = tuple(xp.asarray(layer, dtype=float) for layer in data.layers)
    reduced = reduction.reduce(params)
    product = Network(tuple(np.asarray(layer) for layer in reduced), np.zeros(0)).product
    target = np.zeros((y.shape[0], x.shape[0]))
    np.fill_diagonal(target, np.asarray(reduction.sigma))
    standard = 0.5 * float(np.sum((target - product) ** 2)) + float(reduction.constant)
    values, vectors = np.linalg.eigh(x @ x.T)
    best = y @ np.linalg.pinv(x)
    whitened = np.linalg.svd(y @ x.T @ (vectors / np.sqrt(values)), compute_uv=False)
    numbers = (
        abs(standard - raw) / raw,
        gap_between(np.asarray(reduction.outer).T @ best @ np.asarray(reduction.inner), target),
        gap_between(reduction.sigma, whitened),
        max(gap_between(a, b) for a, b in zip(reduction.lift(reduced), data.layers, strict=True)),
    )
    return Measured(dict(zip(REDUCED, numbers, strict=True)))


REDUCTION = Check(
    id="network/data-reduction",
    source="Appendix A.2",
    statement=(
        "With W₁ = W̄₁U_XΛ_XV_Y and W_L = U_YᵀW̄_L the loss ½‖Y − W̄_{L:1}X‖² is ½‖Σ − W_{L:1}‖² and a constant; the "
        "least-squares solution becomes Σ, the singular values of YXᵀ(XXᵀ)^{−1/2}."
    ),
    hypotheses=(TOLD_DATA, FULL_RANK),
    tolerances=REDUCED,
    measure=each(_measure_reduced),
    draw=_draw_data,
    violations=(OTHER_DATA,),
    sized=_draw_data,
)

ABSORBED = {
    "raw flow in reduced coordinates, relative": 1e-10,
    "both flows of white inputs, relative": 1e-10,
}


def _measure_absorbed(data: Data) -> Measured:
    x, y, network = data.inputs, data.outputs, data.network
    reduction = reduce_data(data.told, y)
    gap = (y - network.product @ x) @ x.T
    depth = network.depth
    raw = [network.partial(depth, j + 1).T @ gap @ network.partial(j - 1, 1).T for j in range(1, depth + 1)]
    wanted = [np.asarray(v) for v in reduction.reduce(tuple(xp.asarray(v, dtype=float) for v in raw))]
    reduced = reduction.reduce(tuple(xp.asarray(layer, dtype=float) for layer in data.layers))
    ours, naive = reduction.velocity(reduced, "raw"), reduction.velocity(reduced)
    scale = max(1.0, largest(wanted))
    missed = largest([a - b for a, b in zip(ours, wanted, strict=True)]) / scale
    printed = largest([a - b for a, b in zip(naive, wanted, strict=True)]) / scale
    white = largest([x @ x.T - np.eye(len(x))]) < 1e-8
    return Measured(dict(zip(ABSORBED, [missed, printed if white else 0.0], strict=True)), printed=printed)


ABSORBED_INPUTS = Check(
    id="network/absorbed-inputs",
    source="Section 2.2 and appendix A.2",
    statement=(
        "In reduced coordinates the flow of the raw layers multiplies the speed of the first layer by V_YᵀΛ_X²V_Y; it "
        "is the flow of the reduced layers if and only if XXᵀ = I."
    ),
    hypotheses=(TOLD_DATA, FULL_RANK),
    tolerances=ABSORBED,
    measure=each(_measure_absorbed),
    draw=_draw_data,
    violations=(OTHER_DATA,),
    printed="May be read as: absorbing the inputs into the weights gives an equivalent formulation, the flow included.",
    printed_tolerance=1e-6,
    sized=_draw_data,
)


def _disjoint(rng: np.random.Generator) -> Data:
    """Outputs whose rows are orthogonal to those of the inputs."""
    rows = np.linalg.qr(rng.standard_normal((9, 7)))[0].T
    x, y = rng.standard_normal((4, 4)) @ rows[:4], rng.standard_normal((3, 3)) @ rows[4:]
    return Data(x, y, (), x)


def _overlapping(rng: np.random.Generator) -> Data:
    data = _disjoint(rng)
    return dataclasses.replace(data, outputs=data.outputs + 0.1 * data.inputs[:3])


VANISHING = {"largest singular value of the task": ROUNDING}

ASSUMPTION_1 = Check(
    id="network/assumption-1",
    source="Assumption 1 and equation 6",
    statement=(
        "Inputs and outputs of full row rank do not make the singular values of the task positive: where YXᵀ = 0 all "
        "of them vanish. That they are positive is an assumption of its own."
    ),
    hypotheses=(
        FULL_RANK,
        Hypothesis("outputs of full row rank", lambda d: float(np.linalg.cond(d.outputs)), 1e12),
        Hypothesis("outputs orthogonal to the inputs", lambda d: largest([d.outputs @ d.inputs.T]), ROUNDING),
    ),
    tolerances=VANISHING,
    measure=each(
        lambda d: Measured(
            {"largest singular value of the task": float(np.max(np.asarray(reduce_data(d.inputs, d.outputs).sigma)))}
        )
    ),
    draw=_disjoint,
    violations=(Violation("outputs that depend on the inputs", _overlapping),),
)

CHECKS = (REDUCTION, ABSORBED_INPUTS, ASSUMPTION_1)
