"""Statements on reversal and on sequences of tasks: two layers that have learned something before."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from deeplinear.core import Params, random, xp
from deeplinear.exact import (
    continual,
    forgetting,
    mode_strength,
    reversal_task,
)
from deeplinear.models import DeepLinear, FromSVD, Problem, SquaredDistance, lambda_estimate
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import flows
from deeplinear.theory.exact._two_layers import orthogonal

WIDTH = 3
"""Width of all layers, so that the flows are one ensemble."""

MODEL = DeepLinear((WIDTH, WIDTH, WIDTH))

FLOW_TOLERANCE = 1e-9
"""Flows at rtol 1e-12 which may come near a saddle, where errors grow before they decay."""

BALANCE_TOLERANCE = 1e-9
"""Largest imbalance beyond a multiple of the identity that the statements are given."""

ROUNDING = 1e-12
"""Algebra of a few operations on numbers of order one."""

ANY = 1e9
"""Tolerance for the balance in violations: the closed form is asked where it is known not to hold."""


def draw_strengths(rng: np.random.Generator) -> np.ndarray:
    """Singular values of order one, largest first."""
    return np.sort(rng.uniform(0.5, 2.0, WIDTH))[::-1]


def layers_with(
    rng: np.random.Generator, left: np.ndarray, values: np.ndarray, right: np.ndarray, lam: float
) -> Params:
    """Layers with a given product and imbalance, the hidden basis being random."""
    return FromSVD(left, values, right, lam, orthogonal(rng, WIDTH))(MODEL, random.key(0))


def _problem(target: np.ndarray) -> Problem:
    return Problem(MODEL, SquaredDistance(target))


def _lopsided(params: Params) -> Params:
    """The same product from layers whose conserved quantity is no multiple of the identity."""
    turn = np.diag(np.linspace(1.0, 2.0, WIDTH))
    return (
        xp.asarray(turn @ np.asarray(params[0]), dtype=float),
        xp.asarray(np.asarray(params[1]) @ np.linalg.inv(turn), dtype=float),
    )


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
    left, right, values = orthogonal(rng, WIDTH), orthogonal(rng, WIDTH), draw_strengths(rng)
    lam = float(rng.choice([0.0, 1e-3, 1.0, 3.0, -2.0]))
    count = int(rng.integers(1, WIDTH + 1))
    chosen = tuple(int(k) for k in rng.choice(WIDTH, count, replace=False))
    return Reversal(left, values, right, chosen, lam, layers_with(rng, left, values, right, lam))


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
    turned = layers_with(rng, orthogonal(rng, WIDTH), instance.values, instance.right, instance.lam)
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
    params = layers_with(rng, orthogonal(rng, WIDTH), rng.uniform(0.2, 1.0, WIDTH), orthogonal(rng, WIDTH), lam)
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

CHECKS = (REVERSAL, CONTINUAL, FORGETTING)
