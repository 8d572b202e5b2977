"""Statements on transfer, on balancing anew, and on phase maps."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from deeplinear.core import Params, xp
from deeplinear.exact import (
    fine_tune_losses,
    generalisation_loss,
    new_feature_response,
    phase_map,
    rebalance,
    transfer_kernel,
    transfer_target,
)
from deeplinear.models import semantic_hierarchy
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.exact._continual import BALANCE_TOLERANCE, ROUNDING, WIDTH, draw_strengths, layers_with
from deeplinear.theory.exact._two_layers import orthogonal

ITEMS = 6
SMALL = 1e-9
"""Size of a small start of the new row; the response is met to as much."""


@dataclasses.dataclass(frozen=True, eq=False)
class Taught:
    """A first layer, items, and a new row that is trained on one of them; `asked` is the item the formula is given."""

    first: np.ndarray
    inputs: np.ndarray
    item: int
    row: np.ndarray
    asked: int

    def trained(self) -> np.ndarray:
        """The row after gradient descent on its item with label 1."""
        seen = self.first @ self.inputs[:, self.item]
        row, rate = self.row, 0.5 / float(seen @ seen)
        for _ in range(60):  # halves the error at every step
            row = row + rate * (1 - row @ seen) * seen
        return row


def _draw_taught(rng: np.random.Generator) -> Taught:
    item = int(rng.integers(ITEMS))
    first, inputs = rng.normal(size=(4, 5)), rng.normal(size=(5, ITEMS))
    return Taught(first, inputs, item, SMALL * rng.normal(size=4), item)


def _measure_taught(instances: Sequence[Taught]) -> list[Measured]:
    found = []
    for i in instances:
        direct = i.trained() @ i.first @ i.inputs
        formula = np.asarray(new_feature_response(xp.asarray(i.first.T @ i.first, dtype=float), i.asked, i.inputs))
        found.append(Measured({"largest difference of the responses": float(np.abs(direct - formula).max())}))
    return found


def _large_row(rng: np.random.Generator) -> Taught:
    taught = _draw_taught(rng)
    return dataclasses.replace(taught, row=taught.row / SMALL)


def _other_item(rng: np.random.Generator) -> Taught:
    taught = _draw_taught(rng)
    return dataclasses.replace(taught, asked=(taught.item + 1) % ITEMS)


TRANSFER = Check[Taught](
    id="exact/transfer",
    source="Appendix D.3, equations 186-187",
    statement="A row appended to the second layer and trained alone from a small start on one item ends at the "
    "response xᵢᵀW₁ᵀW₁X / |W₁xᵢ|² to all items.",
    hypotheses=(
        Hypothesis("the row starts small", lambda i: float(np.linalg.norm(i.row)), 10 * SMALL),
        Hypothesis("the response is asked for the item that is taught", lambda i: float(i.asked != i.item)),
    ),
    tolerances={"largest difference of the responses": 100 * SMALL},
    measure=_measure_taught,
    draw=_draw_taught,
    violations=(Violation("a row that starts large", _large_row), Violation("another item", _other_item)),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchy:
    """The semantic task at a scale, an item, and whether the first layer is asked, or by mistake the second."""

    scale: float
    perturbed: bool
    item: int
    sign: float = 1.0

    @property
    def target(self) -> np.ndarray:
        """Input-output covariance."""
        x, y = semantic_hierarchy(self.scale, self.perturbed)
        return np.asarray(y @ x.T) / x.shape[1]

    def responses(self, lams: np.ndarray) -> np.ndarray:
        """Responses of networks trained to convergence."""
        kernels = (transfer_kernel(self.target, lam) for lam in self.sign * lams)
        return np.stack([new_feature_response(kernel, self.item) for kernel in kernels])


RELATIVE = np.array([-1e8, -10.0, -1.0, 0.0, 1.0, 10.0])
"""Values of λ in units of the scale of the task; the first stands for minus infinity."""


def _draw_hierarchy(rng: np.random.Generator) -> Hierarchy:
    return Hierarchy(float(rng.uniform(0.3, 3.0)), bool(rng.integers(2)), int(rng.integers(8)))


def _measure_hierarchy(instances: Sequence[Hierarchy]) -> list[Measured]:
    found = []
    for i in instances:
        responses = i.responses(RELATIVE * i.scale)
        expected = transfer_target(i.target, i.item)
        losses = np.array(
            [generalisation_loss(xp.asarray(response, dtype=float), expected, i.item) for response in responses]
        )
        others = np.abs(np.delete(responses, i.item, axis=1)).max(axis=1)
        residuals = {
            "largest rise of the generalisation loss with λ": float(np.diff(losses).max()),
            "largest response of another item at λ = -10⁸": float(others[0]),
        }
        at_zero = float(others[RELATIVE == 0][0])
        found.append(Measured(residuals, printed=at_zero, facts={"largest response of another item at λ = 0": at_zero}))
    return found


def _second_layer(rng: np.random.Generator) -> Hierarchy:
    return dataclasses.replace(_draw_hierarchy(rng), sign=-1.0)


HIERARCHY = Check[Hierarchy](
    id="exact/erratum-transfer",
    source="Section 6, Transfer learning",
    statement="The generalisation loss of a new feature falls with λ; there is no transfer only as λ → -∞, while at "
    "λ = 0 items respond by the kernel VSVᵀ.",
    hypotheses=(Hypothesis("the first layer answers", lambda i: float(i.sign != 1.0)),),
    tolerances={
        "largest rise of the generalisation loss with λ": 0.0,
        "largest response of another item at λ = -10⁸": 1e-7,
    },
    measure=_measure_hierarchy,
    draw=_draw_hierarchy,
    violations=(Violation("the second layer for the first", _second_layer),),
    printed="for λ ≤ 0 no hierarchical generalisation is observed.",
    printed_tolerance=0.05,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Whitened:
    """Samples of the semantic task, and the same times a number by mistake."""

    scale: float
    stretch: float = 1.0


def _measure_whitened(instances: Sequence[Whitened]) -> list[Measured]:
    found = []
    for i in instances:
        x, y = (np.asarray(part) for part in semantic_hierarchy(i.scale))
        x = i.stretch * x
        labels = y / (math.sqrt(8.0) * i.scale)
        printed = np.eye(8) / 8
        residuals = {
            "largest entry of XXᵀ/P - I": float(np.abs(x @ x.T / 8 - np.eye(8)).max()),
            "largest entry of YXᵀ/P - cM": float(np.abs(y @ x.T / 8 - i.scale * labels).max()),
        }
        found.append(Measured(residuals, printed=float(np.abs(printed @ printed.T / 8 - np.eye(8)).max())))
    return found


WHITENED = Check[Whitened](
    id="exact/erratum-semantic-inputs",
    source="Appendix E.2.2",
    statement="With X = √8 I and Y = √8 cM the eight items are white inputs and the input-output covariance is cM.",
    hypotheses=(Hypothesis("the samples as they are", lambda i: abs(i.stretch - 1.0)),),
    tolerances={"largest entry of XXᵀ/P - I": ROUNDING, "largest entry of YXᵀ/P - cM": ROUNDING},
    measure=_measure_whitened,
    draw=lambda rng: Whitened(float(rng.uniform(0.1, 3.0))),
    violations=(Violation("inputs twice as large", lambda rng: Whitened(float(rng.uniform(0.1, 3.0)), 2.0)),),
    printed="X = I/8 and Y = 8M; these inputs have covariance I/512.",
    printed_tolerance=1e-6,
)


TUNED = (0.3, 1.0)
"""Times of fine-tuning."""


@dataclasses.dataclass(frozen=True, eq=False)
class Tuned:
    """Two networks with the same product and different λ, a new λ for both, and a new task; `told` is the λ claimed."""

    params: Params
    other: Params
    lam: float
    told: float
    target: np.ndarray


def _draw_tuned(rng: np.random.Generator) -> Tuned:
    left, right, values = orthogonal(rng, WIDTH), orthogonal(rng, WIDTH), draw_strengths(rng)
    old, lam = rng.uniform(-10.0, 10.0, 2), float(rng.uniform(-10.0, 10.0))
    params, other = (layers_with(rng, left, values, right, float(value)) for value in old)
    return Tuned(params, other, lam, lam, rng.normal(size=(WIDTH, WIDTH)))


PRODUCT = "largest change of the product"
SCALE = "Frobenius norm of W₂ᵀW₂ - W₁W₁ᵀ - λI"
PAST = "loss after fine-tuning: dependence on the old λ"
EVEN = "loss after fine-tuning: difference between λ and -λ"


def _measure_tuned(instances: Sequence[Tuned]) -> list[Measured]:
    found = []
    for i in instances:
        balanced = rebalance(i.params, i.lam)
        (gap,) = (np.asarray(w2.T @ w2 - w1 @ w1.T) - i.told * np.eye(WIDTH) for w1, w2 in (balanced,))
        change = np.abs(np.asarray(balanced[1] @ balanced[0] - i.params[1] @ i.params[0])).max()
        here = np.asarray(fine_tune_losses(i.params, i.target, TUNED, [i.lam, -i.lam]))
        there = np.asarray(fine_tune_losses(i.other, i.target, TUNED, [i.lam, -i.lam]))
        scale = max(1.0, float(here.max()))
        residuals = {
            PRODUCT: float(change),
            SCALE: float(np.linalg.norm(gap)),
            PAST: float(np.abs(here - there).max()) / scale,
            EVEN: float(np.abs(here[0] - here[1]).max()) / scale,
        }
        found.append(Measured(residuals))
    return found


def _mistold(rng: np.random.Generator) -> Tuned:
    tuned = _draw_tuned(rng)
    return dataclasses.replace(tuned, told=tuned.lam + 1e-3)


def _other_product(rng: np.random.Generator) -> Tuned:
    tuned = _draw_tuned(rng)
    return dataclasses.replace(tuned, other=(1.1 * tuned.other[0], tuned.other[1]))


def _products(tuned: Tuned) -> float:
    one, two = (np.asarray(p[1] @ p[0]) for p in (tuned.params, tuned.other))
    return float(np.abs(one - two).max())


REBALANCE = Check[Tuned](
    id="exact/rebalance",
    source="Appendix D.4",
    statement="Re-balancing leaves the product as it is and gives exactly the new λ; what follows on a new task does "
    "not depend on the λ of pre-training, and in a square network not on the sign of the new one.",
    hypotheses=(
        Hypothesis("both networks compute the same", _products, BALANCE_TOLERANCE),
        Hypothesis("the λ that is claimed is the one asked for", lambda i: abs(i.told - i.lam)),
    ),
    tolerances={PRODUCT: ROUNDING, SCALE: ROUNDING * 10, PAST: 1e-9, EVEN: 1e-9},
    measure=_measure_tuned,
    draw=_draw_tuned,
    violations=(
        Violation("another λ than the one asked for", _mistold),
        Violation("networks that compute different things", _other_product),
    ),
)


CONVERGED = 150.0
"""Time at which networks with singular values of at least 0.5 have converged from the scales below."""

SCALES = (0.1, 1.0, 20.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Scales:
    """A square task, directions of the start, the λ for which independence of the scale is claimed, and another."""

    target: np.ndarray
    directions: np.ndarray
    lam: float
    other: float
    time: float


def _draw_scales(rng: np.random.Generator) -> Scales:
    target = (orthogonal(rng, WIDTH) * draw_strengths(rng)) @ orthogonal(rng, WIDTH)
    directions = (orthogonal(rng, WIDTH) * draw_strengths(rng)) @ orthogonal(rng, WIDTH)
    return Scales(target, directions, 0.0, float(rng.choice([-1.0, 1.0]) * rng.uniform(1.0, 9.0)), CONVERGED)


def _measure_scales(instances: Sequence[Scales]) -> list[Measured]:
    found = []
    for i in instances:
        grid = phase_map(i.target, i.directions, [i.lam, i.other], SCALES, [i.time])
        distances = np.asarray(grid.kernel_distance[0])
        spread, printed = np.ptp(distances, axis=0) / distances.max(axis=0)
        found.append(
            Measured({"relative spread of the kernel distance over the scales": float(spread)}, float(printed))
        )
    return found


def _early(rng: np.random.Generator) -> Scales:
    return dataclasses.replace(_draw_scales(rng), time=0.5)


def _relative(rng: np.random.Generator) -> Scales:
    return dataclasses.replace(_draw_scales(rng), lam=1.0)


KERNEL = Check[Scales](
    id="exact/erratum-kernel-scale",
    source="Appendix A.4",
    statement="At λ = 0, for given singular vectors and ratios of singular values of the start, the kernel distance at "
    "convergence does not depend on the absolute scale; at other λ it does.",
    hypotheses=(
        Hypothesis("λ = 0", lambda i: abs(i.lam)),
        Hypothesis("training has converged", lambda i: CONVERGED - i.time),
    ),
    tolerances={"relative spread of the kernel distance over the scales": 1e-9},
    measure=_measure_scales,
    draw=_draw_scales,
    violations=(Violation("long before convergence", _early), Violation("λ = 1", _relative)),
    printed="the kernel distance at convergence depends exclusively on λ.",
    printed_tolerance=0.1,
)

CHECKS = (TRANSFER, HIERARCHY, WHITENED, REBALANCE, KERNEL)
