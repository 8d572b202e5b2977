"""Two layers and their task: instances, hypotheses, flows and closed forms of the statements on them."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deeplinear.core import HypothesisError, Params, xp
from deeplinear.exact import PrecisionWarning, correlations_of, eigensystem, propagate
from deeplinear.models import DeepLinear, Problem, Regression, SquaredDistance
from deeplinear.theory._check import Hypothesis, Measured
from deeplinear.theory._flows import flows

FUNNEL, SQUARE = (4, 2, 2), (3, 3, 3)
"""Input, hidden and output widths. Few of them, so that many flows are one ensemble."""

SCALES = (-2.0, -0.5, 0.0, 0.5, 2.0)
"""Values of λ."""

MOMENTS = np.array([0.0, 0.1, 0.7, 1.5])
"""Times at which flows are compared: forms with growing exponentials still have their digits."""

FLOW = 1e-10
"""Flows at rtol 1e-12, over times of order one."""

BALANCED = 1e-8
"""Largest imbalance beyond λI, over the squared norm of the layers."""


# ---- Instances -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Two:
    """Two layers and their task.

    Attributes:
        first: W₁.
        second: W₂.
        target: Σ, what is learned if the inputs are white.
        lam: λ that is said to belong to the layers.
        covariance: Of the inputs; the identity if `None`.
        decay: Weight decay of the training.
        told: Task the closed form is told, if it is another.
        times: Of statements that choose their own.
    """

    first: np.ndarray
    second: np.ndarray
    target: np.ndarray
    lam: float
    covariance: np.ndarray | None = None
    decay: float = 0.0
    told: np.ndarray | None = None
    times: tuple[float, ...] = ()

    @property
    def params(self) -> Params:
        return xp.asarray(self.first, dtype=float), xp.asarray(self.second, dtype=float)

    @property
    def factor(self) -> np.ndarray:
        return np.concatenate([self.first.T, self.second])

    @property
    def widths(self) -> tuple[int, int, int]:
        return self.first.shape[1], self.first.shape[0], self.second.shape[0]

    @property
    def task(self) -> np.ndarray:
        return self.target if self.told is None else self.told

    @property
    def sxx(self) -> np.ndarray:
        return np.eye(self.first.shape[1]) if self.covariance is None else self.covariance

    @property
    def problem(self) -> Problem:
        return Problem(DeepLinear(self.widths), Regression(self.sxx, self.target), self.decay)

    @property
    def fastest(self) -> float:
        """s_λ of the strongest mode."""
        return float(np.hypot(np.linalg.norm(self.task, 2), self.lam / 2))


def orthogonal(rng: np.random.Generator, size: int) -> np.ndarray:
    q, r = np.linalg.qr(rng.normal(size=(size, size)))
    return q * np.sign(np.diag(r))


def balanced_layers(
    rng: np.random.Generator, widths: tuple[int, int, int], lam: float
) -> tuple[np.ndarray, np.ndarray]:
    """λ-balanced layers with a random product, the hidden basis being random."""
    inp, hidden, out = widths
    modes = min(widths)
    u, s, vt = np.linalg.svd(rng.normal(size=(out, hidden)) @ rng.normal(size=(hidden, inp)) / np.sqrt(hidden))
    large = np.sqrt(np.hypot(s[:modes], lam / 2) + abs(lam) / 2)
    strengths = np.full((2, hidden), 0.0)
    strengths[0 if lam < 0 else 1] = np.sqrt(abs(lam))
    strengths[0 if lam < 0 else 1, :modes], strengths[1 if lam < 0 else 0, :modes] = large, s[:modes] / large
    first, second = np.zeros((hidden, inp)), np.zeros((out, hidden))
    for k in range(hidden):
        if k < inp:
            first[k, k] = strengths[0, k]
        if k < out:
            second[k, k] = strengths[1, k]
    turn = orthogonal(rng, hidden)
    return turn @ first @ vt, u @ second @ turn.T


def draw_two(
    rng: np.random.Generator,
    widths: tuple[int, int, int] = FUNNEL,
    scales: Sequence[float] = SCALES,
    covariance: bool = False,
) -> Two:
    inp, _, out = widths
    lam = float(rng.choice(scales))
    first, second = balanced_layers(rng, widths, lam)
    target = rng.normal(size=(out, inp))
    target *= rng.uniform(1.0, 1.7) / np.linalg.norm(target, 2)
    return Two(first, second, target, lam, _covariance(rng, inp) if covariance else None)


def _covariance(rng: np.random.Generator, inp: int) -> np.ndarray:
    turn = orthogonal(rng, inp)
    return turn * rng.uniform(0.3, 1.7, inp) @ turn.T


def coloured(rng: np.random.Generator) -> Two:
    return draw_two(rng, covariance=True)


def unequal(rng: np.random.Generator, widths: tuple[int, int, int] = FUNNEL) -> Two:
    """Layers whose conserved quantity is no multiple of the identity."""
    two = draw_two(rng, widths)
    stretch = np.diag(np.linspace(1.0, 2.0, widths[1]))
    return dataclasses.replace(two, first=stretch @ two.first, second=two.second @ np.linalg.inv(stretch))


def another_task(two: Two) -> Two:
    return dataclasses.replace(two, told=two.target[::-1].copy())


def adopt_two(problem: Problem, params: Params) -> Two:
    """Two layers with a quadratic loss of their product."""
    if not isinstance(problem.model, DeepLinear) or len(params) != 2:
        raise HypothesisError("a network of two layers", abs(len(params) - 2) or 1, 0)
    first, second = (np.asarray(layer) for layer in params)
    lam = float(np.trace(second.T @ second - first @ first.T)) / len(first)
    if isinstance(problem.loss, Regression):
        target, covariance = np.asarray(problem.loss.syx), np.asarray(problem.loss.sxx)
        return Two(first, second, target, lam, covariance, float(problem.l2))
    if isinstance(problem.loss, SquaredDistance):
        return Two(first, second, np.asarray(problem.loss.target), lam, None, float(problem.l2))
    raise HypothesisError("a quadratic loss of the product", 1, 0, "Take Regression or SquaredDistance.")


def imbalance(two: Two) -> float:
    rest = two.second.T @ two.second - two.first @ two.first.T - two.lam * np.eye(len(two.first))
    return float(np.linalg.norm(rest) / max(1.0, np.sum(two.first**2) + np.sum(two.second**2)))


WHITE = Hypothesis[Two]("white inputs", lambda two: float(np.max(np.abs(two.sxx - np.eye(len(two.sxx))))), 1e-10)
BALANCE = Hypothesis[Two]("λ-balanced layers", imbalance, BALANCED)
PLAIN = Hypothesis[Two]("no weight decay", lambda two: abs(two.decay))
SQUARE_B = Hypothesis[Two]("N_h = min(N_i, N_o)", lambda two: abs(two.widths[1] - min(two.widths[0], two.widths[2])))
EARLY = Hypothesis[Two]("s_λ t at most 3", lambda two: two.fastest * MOMENTS[-1] - 3.0)

RICCATI = (WHITE, BALANCE, PLAIN)
"""Hypotheses of the equation."""


def missed(found: Any, wanted: Any) -> float:
    """Largest error over the largest entry."""
    return float(np.max(np.abs(np.asarray(found) - np.asarray(wanted))) / np.max(np.abs(wanted)))


def flow_factors(instances: Sequence[Two]) -> list[np.ndarray]:
    """Factors [W₁ᵀ; W₂] along gradient flow, at the times of `MOMENTS`."""
    runs = flows([two.problem for two in instances], [two.params for two in instances], MOMENTS)
    return [np.concatenate([np.swapaxes(run.layers[0], 1, 2), run.layers[1]], axis=1) for run in runs]


def solved(two: Two, times: Sequence[float] | np.ndarray) -> np.ndarray:
    """QQᵀ by the propagator."""
    system, inp = eigensystem(two.task, two.lam), two.widths[0]
    return np.stack([correlations_of(propagate(xp.asarray(two.factor), system, t), inp).matrix for t in times])


def each(measure: Callable[[Two], Measured]) -> Callable[[Sequence[Two]], list[Measured]]:
    """A measurement that needs no batch."""
    return lambda instances: [measure(two) for two in instances]


def evaluated(form: Callable[..., Any], two: Two, t: float, **options: Any) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        return np.asarray(form(two.params, two.task, two.lam, t, **options).matrix)
