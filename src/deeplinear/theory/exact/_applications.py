"""Reversal, sequences of tasks, transfer, re-balancing: two layers that have learned something before."""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from deeplinear.core import Matrix, Params
from deeplinear.exact import (
    continual,
    fine_tune_losses,
    forgetting,
    generalisation_loss,
    mode_strength,
    new_feature_response,
    phase_map,
    rebalance,
    reversal_task,
    transfer_kernel,
    transfer_target,
)
from deeplinear.models import DeepLinear, FromSVD, Problem, SquaredDistance, lambda_estimate, semantic_hierarchy
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import flows

WIDTH = 3
"""Width of all layers, so that the flows share compiled code."""

MODEL = DeepLinear((WIDTH, WIDTH, WIDTH))

FLOW_TOLERANCE = 1e-9
"""Flows at rtol 1e-12 which may come near a saddle, where errors grow before they decay."""

BALANCE_TOLERANCE = 1e-9
"""Largest imbalance beyond a multiple of the identity that the statements are given."""

ROUNDING = 1e-12
"""Algebra of a few operations on numbers of order one."""

ANY = 1e9
"""Tolerance for the balance in violations: the closed form is asked where it is known not to hold."""


def _orthogonal(rng: np.random.Generator, size: int = WIDTH) -> np.ndarray:
    q, r = np.linalg.qr(rng.normal(size=(size, size)))
    return q * np.sign(np.diag(r))


def _strengths(rng: np.random.Generator) -> np.ndarray:
    return np.sort(rng.uniform(0.5, 2.0, WIDTH))[::-1]


def _layers(rng: np.random.Generator, left: np.ndarray, values: np.ndarray, right: np.ndarray, lam: float) -> Params:
    """Layers with a given product and imbalance, the hidden basis being random."""
    return FromSVD(left, values, right, lam, _orthogonal(rng))(MODEL, jax.random.key(0))


def _problem(target: np.ndarray) -> Problem:
    return Problem(MODEL, SquaredDistance(target))


def _lopsided(params: Params) -> Params:
    """The same product from layers whose conserved quantity is no multiple of the identity."""
    turn = np.diag(np.linspace(1.0, 2.0, WIDTH))
    return jnp.asarray(turn @ np.asarray(params[0])), jnp.asarray(np.asarray(params[1]) @ np.linalg.inv(turn))


# --- Reversal ---------------------------------------------------------------------------------------------------------

LATER = np.array([0.0, 0.2, 0.6, 1.5, 3.0])
"""Times at which flows are compared; numerical errors leave the saddle of λ = 0 later than this."""


@dataclasses.dataclass(frozen=True, eq=False)
class Reversal:
    """A trained network, the task with some of its modes turned round, and the λ the formula is told."""

    left: np.ndarray
    values: np.ndarray
    right: np.ndarray
    reversed: tuple[int, ...]
    lam: float
    params: Params

    @property
    def trained(self) -> np.ndarray:
        """The task before."""
        return (self.left * self.values) @ self.right.T

    @property
    def target(self) -> np.ndarray:
        """The task after."""
        return np.asarray(reversal_task(self.trained, self.reversed))

    def predicted(self, times: np.ndarray) -> np.ndarray:
        """The product at the times, mode by mode."""
        signs = np.where(np.isin(np.arange(WIDTH), self.reversed), -1.0, 1.0)
        modes = np.asarray(mode_strength(times[:, None], signs * self.values, self.values, self.lam))
        return np.einsum("ik,tk,jk->tij", self.left * signs, modes, self.right)


def _draw_reversal(rng: np.random.Generator) -> Reversal:
    left, right, values = _orthogonal(rng), _orthogonal(rng), _strengths(rng)
    lam = float(rng.choice([0.0, 1e-3, 1.0, 3.0, -2.0]))
    count = int(rng.integers(1, WIDTH + 1))
    chosen = tuple(int(k) for k in rng.choice(WIDTH, count, replace=False))
    return Reversal(left, values, right, chosen, lam, _layers(rng, left, values, right, lam))


def _balance(params: Params, lam: float) -> float:
    estimate = lambda_estimate(params)
    return max(float(estimate.frobenius[0]), abs(float(estimate.lam[0]) - lam))


def _measure_reversal(instances: Sequence[Reversal]) -> list[Measured]:
    runs = flows([_problem(i.target) for i in instances], [i.params for i in instances], LATER)
    found = []
    for instance, run in zip(instances, runs, strict=True):
        gap = float(np.abs(run.product - instance.predicted(LATER)).max())
        found.append(Measured({"largest entry of W₂W₁(t) - Σ ±sᵢ(t) uᵢvᵢᵀ": gap}, facts={"λ": instance.lam}))
    return found


def _untrained(rng: np.random.Generator) -> Reversal:
    instance = _draw_reversal(rng)
    turned = _layers(rng, _orthogonal(rng), instance.values, instance.right, instance.lam)
    return dataclasses.replace(instance, params=turned)


def _other_scale(rng: np.random.Generator) -> Reversal:
    instance = _draw_reversal(rng)
    return dataclasses.replace(instance, lam=instance.lam + 0.5)


def _unbalanced_reversal(rng: np.random.Generator) -> Reversal:
    instance = _draw_reversal(rng)
    return dataclasses.replace(instance, params=_lopsided(instance.params))


REVERSAL = Check[Reversal](
    id="exact/reversal-network",
    source="Appendix D.2, equations 180-185",
    statement="When some modes of a trained λ-balanced network are reversed in the task, every mode follows the scalar "
    "flow on its own, the reversed ones from -s to s, or to 0 at λ = 0.",
    hypotheses=(
        Hypothesis("the layers are λ-balanced", lambda i: _balance(i.params, i.lam), BALANCE_TOLERANCE),
        Hypothesis(
            "the network computes the old task",
            lambda i: float(np.abs(np.asarray(i.params[1] @ i.params[0]) - i.trained).max()),
            BALANCE_TOLERANCE,
        ),
    ),
    tolerances={"largest entry of W₂W₁(t) - Σ ±sᵢ(t) uᵢvᵢᵀ": FLOW_TOLERANCE},
    measure=_measure_reversal,
    draw=_draw_reversal,
    violations=(
        Violation("a start that is not the old task", _untrained),
        Violation("another λ than that of the layers", _other_scale),
        Violation("layers that are not balanced", _unbalanced_reversal),
    ),
)


# --- Sequences of tasks -----------------------------------------------------------------------------------------------

DURATION = 1.5
"""Time given to each task: far from convergence, so that the state handed over is a state of the flow and no limit."""

STAGE = np.array([0.0, 0.4, DURATION])
SAMPLES = 7


@dataclasses.dataclass(frozen=True, eq=False)
class Sequel:
    """Two tasks on samples, learned one after the other."""

    inputs: tuple[np.ndarray, np.ndarray]
    outputs: tuple[np.ndarray, np.ndarray]
    params: Params
    lam: float

    @property
    def targets(self) -> list[np.ndarray]:
        """Input-output covariances."""
        return [y @ x.T / SAMPLES for x, y in zip(self.inputs, self.outputs, strict=True)]

    def loss(self, task: int, product: np.ndarray) -> float:
        """Mean over samples of half the squared error."""
        return 0.5 * float(np.sum((product @ self.inputs[task] - self.outputs[task]) ** 2)) / SAMPLES

    def floor(self, task: int) -> float:
        """The part of the loss that no linear map can fit."""
        outputs = float(np.sum(self.outputs[task] ** 2)) / SAMPLES
        return 0.5 * (outputs - float(np.sum(self.targets[task] ** 2)))


def _white(rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(SAMPLES, WIDTH)))[0].T * math.sqrt(SAMPLES)


def _draw_sequel(rng: np.random.Generator) -> Sequel:
    lam = float(rng.choice([0.0, rng.uniform(-2.0, 2.0)]))
    params = _layers(rng, _orthogonal(rng), rng.uniform(0.2, 1.0, WIDTH), _orthogonal(rng), lam)
    outputs = tuple(rng.normal(size=(WIDTH, SAMPLES)) for _ in range(2))
    return Sequel((_white(rng), _white(rng)), (outputs[0], outputs[1]), params, lam)


def _whiteness(sequel: Sequel) -> float:
    return max(float(np.abs(x @ x.T / SAMPLES - np.eye(WIDTH)).max()) for x in sequel.inputs)


WAY = "largest entry of W₂W₁(t) - chained closed form"
IDENTITY = "loss of the samples against ½|F - Σᵢ|² + cᵢ"
RISE = "rise of the loss of the samples against the forgetting formula"


def _measure_sequel(instances: Sequence[Sequel]) -> list[Measured]:
    first = flows([_problem(i.targets[0]) for i in instances], [i.params for i in instances], STAGE)
    second = flows([_problem(i.targets[1]) for i in instances], [run.final for run in first], STAGE)
    found = []
    for instance, before, after in zip(instances, first, second, strict=True):
        solution = continual(instance.params, instance.targets, DURATION, lam=instance.lam, tolerance=ANY)
        times = np.concatenate([STAGE, DURATION + STAGE[1:]])
        exact = np.asarray(solution.correlations(times).product)
        states = np.concatenate([before.product, after.product[1:]])
        losses = np.asarray(solution.losses(times))
        direct = np.array([[instance.loss(k, state) - instance.floor(k) for state in states] for k in range(2)])
        rise = float(forgetting(before.product[-1], after.product[-1], instance.targets[0]))
        measured = instance.loss(0, after.product[-1]) - instance.loss(0, before.product[-1])
        residuals = {
            WAY: float(np.abs(states - exact).max()),
            IDENTITY: float(np.abs(direct - losses).max()),
            RISE: abs(rise - measured),
        }
        found.append(Measured(residuals, facts={"forgotten of the first task": measured}))
    return found


def _unbalanced_sequel(rng: np.random.Generator) -> Sequel:
    sequel = _draw_sequel(rng)
    return dataclasses.replace(sequel, params=_lopsided(sequel.params))


def _coloured_sequel(rng: np.random.Generator) -> Sequel:
    sequel = _draw_sequel(rng)
    stretch = np.diag([1.0, 1.1, 1.2])
    return dataclasses.replace(sequel, inputs=(stretch @ sequel.inputs[0], sequel.inputs[1]))


CONTINUAL = Check[Sequel](
    id="exact/continual",
    source="Appendix D.1",
    statement="λ is conserved from task to task, so that closed forms can be chained; the loss of the samples of any "
    "task is ½|F - Σᵢ|² plus a constant, and forgetting is the difference of two such losses.",
    hypotheses=(
        Hypothesis("the layers are λ-balanced", lambda i: _balance(i.params, i.lam), BALANCE_TOLERANCE),
        Hypothesis("the inputs are white", _whiteness, BALANCE_TOLERANCE),
    ),
    tolerances={WAY: FLOW_TOLERANCE, IDENTITY: FLOW_TOLERANCE, RISE: 1e-11},
    measure=_measure_sequel,
    draw=_draw_sequel,
    violations=(
        Violation("layers that are not balanced", _unbalanced_sequel),
        Violation("inputs that are not white", _coloured_sequel),
    ),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Forgotten:
    """Samples of a task, the network after two other tasks, and what the formula is given for the first of them."""

    inputs: np.ndarray
    outputs: np.ndarray
    before: np.ndarray
    after: np.ndarray
    said: np.ndarray

    def loss(self, product: np.ndarray) -> float:
        """Mean over samples of half the squared error."""
        return 0.5 * float(np.sum((product @ self.inputs - self.outputs) ** 2)) / SAMPLES

    def formula(self, before: np.ndarray) -> float:
        """The forgetting formula."""
        return float(forgetting(before, self.after, self.outputs @ self.inputs.T / SAMPLES))


def _draw_forgotten(rng: np.random.Generator) -> Forgotten:
    before, after = rng.normal(size=(2, WIDTH, WIDTH))
    return Forgotten(_white(rng), rng.normal(size=(WIDTH, SAMPLES)), before, after, before)


def _measure_forgotten(instances: Sequence[Forgotten]) -> list[Measured]:
    found = []
    for i in instances:
        rise = i.loss(i.after) - i.loss(i.before)
        residual = {"rise of the loss against the formula": abs(i.formula(i.said) - rise)}
        found.append(Measured(residual, printed=abs(i.formula(i.after) - rise)))
    return found


def _misread(rng: np.random.Generator) -> Forgotten:
    instance = _draw_forgotten(rng)
    return dataclasses.replace(instance, said=instance.after)


FORGETTING = Check[Forgotten](
    id="exact/erratum-forgetting",
    source="Appendix D.1, last equation",
    statement="What is forgotten of task i between the end of task j and a later state F is ½(|F - Σᵢ|² - |Fⱼ - Σᵢ|²), "
    "with Fⱼ the network function at the end of task j.",
    hypotheses=(
        Hypothesis(
            "the inputs are white",
            lambda i: float(np.abs(i.inputs @ i.inputs.T / SAMPLES - np.eye(WIDTH)).max()),
            BALANCE_TOLERANCE,
        ),
    ),
    tolerances={"rise of the loss against the formula": ROUNDING},
    measure=_measure_forgotten,
    draw=_draw_forgotten,
    violations=(Violation("the present state for the one at the end of task j", _misread),),
    printed="the second term has W₂W₁, which elsewhere are the present weights; read so, nothing is ever forgotten.",
    printed_tolerance=1e-6,
)


# --- Transfer ---------------------------------------------------------------------------------------------------------

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
        formula = np.asarray(new_feature_response(jnp.asarray(i.first.T @ i.first), i.asked, i.inputs))
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
        kernels = _kernels(jnp.asarray(self.target), jnp.asarray(self.sign * lams))
        return np.stack([new_feature_response(kernel, self.item) for kernel in kernels])


@jax.jit
def _kernels(target: Matrix, lams: Float[Array, " lams"]) -> Float[Array, "lams inp inp"]:
    return jax.vmap(lambda lam: transfer_kernel(target, lam))(lams)


RELATIVE = np.array([-1e8, -10.0, -1.0, 0.0, 1.0, 10.0])
"""Values of λ in units of the scale of the task; the first stands for minus infinity."""


def _draw_hierarchy(rng: np.random.Generator) -> Hierarchy:
    return Hierarchy(float(rng.uniform(0.3, 3.0)), bool(rng.integers(2)), int(rng.integers(8)))


def _measure_hierarchy(instances: Sequence[Hierarchy]) -> list[Measured]:
    found = []
    for i in instances:
        responses = i.responses(RELATIVE * i.scale)
        expected = transfer_target(i.target, i.item)
        losses = np.array([generalisation_loss(jnp.asarray(response), expected, i.item) for response in responses])
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


# --- Re-balancing -----------------------------------------------------------------------------------------------------

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
    left, right, values = _orthogonal(rng), _orthogonal(rng), _strengths(rng)
    old, lam = rng.uniform(-10.0, 10.0, 2), float(rng.uniform(-10.0, 10.0))
    params, other = (_layers(rng, left, values, right, float(value)) for value in old)
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


# --- Phase maps -------------------------------------------------------------------------------------------------------

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
    target = (_orthogonal(rng) * _strengths(rng)) @ _orthogonal(rng)
    directions = (_orthogonal(rng) * _strengths(rng)) @ _orthogonal(rng)
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


CHECKS = (REVERSAL, CONTINUAL, FORGETTING, TRANSFER, HIERARCHY, WHITENED, REBALANCE, KERNEL)
"""Checks of the applications."""
