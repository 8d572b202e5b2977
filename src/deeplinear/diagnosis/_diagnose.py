"""The verb `diagnose`: what theory says about one network."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from deeplinear.core import Trajectory, check_count, check_finite, check_number, check_x64, checked_params
from deeplinear.diagnosis._completion import completion_findings
from deeplinear.diagnosis._finding import STANDING, Finding, Prediction
from deeplinear.diagnosis._forms import Curve, form_findings
from deeplinear.diagnosis._names import rounding_of
from deeplinear.diagnosis._outcome import computed, judged, outcome_findings, run_of
from deeplinear.diagnosis._paths import as_trajectory
from deeplinear.diagnosis._report import Section, as_html, as_text, sections_of
from deeplinear.diagnosis._silence import silent_findings
from deeplinear.diagnosis._structure import BALANCE_TOLERANCE, Layers, as_params, structure_findings
from deeplinear.diagnosis._task import (
    curvature_findings,
    obstruction_findings,
    rate_findings,
    task_findings,
    task_of,
)
from deeplinear.diagnosis._theorems import theorem_findings
from deeplinear.diagnosis._weights import Weights
from deeplinear.dynamics import GradientFlow
from deeplinear.models import DeepLinear, Problem, checked_problem
from deeplinear.theory import Check, checks

MOST_STEPS = 20_000
"""Steps of a simulated run, unless others are asked for."""

CONSERVED = 1e-5
"""Largest change of a conserved quantity, relative to the squared layers, that an integrator may make."""

ROUNDINGS = 2.0
"""Imbalance that rounding may leave in balanced layers, relative to their size, in roundings of the stored numbers."""

LARGEST = 1e250
"""Squares of products of layers, and fourth powers of layers, above this are refused: they overflow soon."""

LARGEST_STUDY = 5_000
"""Most weights of a network whose theorems are asked one by one."""


TOPICS = (
    "network",
    "balance",
    "product",
    "task",
    "observations",
    "saddles",
    "obstruction",
    "closed form",
    "convergence",
    "limit",
    "rates",
    "regime",
    "curvature",
    "theorems",
)
"""What a diagnosis speaks of, in this order; then comes the outcome of a run."""


@dataclasses.dataclass(frozen=True, eq=False)
class Diagnosis:
    """What theory says about one network. Printed, it is a report of at most 80 columns.

    Attributes:
        title: What was looked at.
        findings: Measured lines, by topic.
        predictions: What is predicted of training, and what a run did where there is one.
        notes: What one should know beside it.
        trajectory: The run that was compared with, given or simulated.
    """

    title: str
    findings: tuple[Finding, ...]
    predictions: tuple[Prediction, ...] = ()
    notes: tuple[str, ...] = ()
    trajectory: Trajectory | None = None

    def topic(self, name: str) -> tuple[Finding, ...]:
        """The lines of one topic."""
        return tuple(finding for finding in self.findings if finding.topic == name)

    def standing(self, standing: STANDING) -> tuple[Finding, ...]:
        """The lines that hold, nearly hold, and so on."""
        return tuple(finding for finding in self.findings if finding.standing is standing)

    def prediction(self, name: str) -> Prediction | None:
        """The prediction of a name; `None` where no theorem makes it."""
        return next((one for one in self.predictions if one.name == name), None)

    @property
    def limit(self) -> np.ndarray | None:
        """The end-to-end matrix that training is predicted to end at, (out, in); `None` where none is predicted."""
        one = self.prediction("product_end")
        return None if one is None else np.array(one.value, dtype=float)

    @property
    def disagreements(self) -> tuple[Prediction, ...]:
        """Predictions that the run did not bear out."""
        return tuple(one for one in self.predictions if one.agrees is False)

    def sections(self) -> list[Section]:
        """Tables with title, header and rows, as they are printed."""
        return sections_of(self.findings, self.predictions, self.trajectory is not None)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values; numbers that are not finite are text."""
        return {
            "title": self.title,
            "findings": [finding.to_json() for finding in self.findings],
            "predictions": [prediction.to_json() for prediction in self.predictions],
            "limit": None if self.limit is None else self.limit.tolist(),
            "notes": list(self.notes),
        }

    def to_html(self) -> str:
        """A page that needs nothing beside itself."""
        return as_html(self.title, self.findings, self.predictions, self.notes, self.trajectory is not None)

    def __str__(self) -> str:
        return as_text(self.title, self.sections(), self.notes)


def diagnose(
    problem: Problem | None,
    params: Weights | Iterable[Any],
    *,
    trajectory: Trajectory | tuple[Any, Any] | None = None,
    step: float | None = None,
    simulate: bool = False,
    theorems: bool = True,
    claims: bool = False,
    flow: GradientFlow | None = None,
    max_steps: int = MOST_STEPS,
) -> Diagnosis:
    r"""What theory says about a network and its task: hypotheses, predictions, and what becomes of them.

    Every line is measured: a statement holds where its residual is within its tolerance, nearly holds where the
    residual is relative and at most 5 per cent, and else does not. Predictions are made only from hypotheses that hold.
    They are about gradient flow, $\dot\theta = -\nabla\mathcal L$; gradient descent follows it for small steps.

    Args:
        problem: Model and loss; `None` for the weights alone.
        params: Layers at the start, first-acting first, or what `load_weights` gives.
        trajectory: A run of this problem from these layers, to compare the predictions with: a `Trajectory` that has
            recorded `loss`, and if possible `singular_values`; or a pair `(times, layers)`, where `layers` has the
            layers at each time (all that `load_weights` takes), or for each layer an array (time, out, in). Times are
            those of gradient flow, the number of steps times `step`; `None` where they are not known.
        step: Step of gradient descent, for a run that is no flow: what its steps may change of the conserved
            quantities, $2\eta$ times the fall of the loss, is then allowed for.
        simulate: Compute the flow and compare with it.
        theorems: Measure the hypotheses of every theorem that can be asked about a single problem.
        claims: Measure also what those that apply claim. That takes minutes.
        flow: How to simulate; by default to a relative tolerance of 2e-7.
        max_steps: Most steps of the simulation.

    Returns:
        The diagnosis; `print` it, or take `to_json()` or `to_html()`.

    Example:
        >>> found = diagnose(None, (np.eye(2), 2 * np.eye(2)))
        >>> [(line.statement[:34], line.standing.value) for line in found.topic("balance")[:2]]
        [('neighbouring layers are balanced, ', 'does not hold'), ('neighbouring layers are λ-balanced', 'holds')]
    """
    where = "diagnose"
    check_x64(where)
    check_count(where, "max_steps", max_steps, at_least=1)
    notes = list(params.notes) if isinstance(params, Weights) else []
    given = params.params if isinstance(params, Weights) else tuple(params) if isinstance(params, list) else params
    coarse = params.rounding if isinstance(params, Weights) else _rounding(given)
    tolerance = max(BALANCE_TOLERANCE, ROUNDINGS * coarse)
    if tolerance > BALANCE_TOLERANCE:
        notes.append(
            f"The weights were stored with a relative rounding of {coarse:.1g}: balance holds up to {tolerance:.1g}, "
            f"where 64-bit numbers are asked for {BALANCE_TOLERANCE:.0g}."
        )
    layers = tuple(np.asarray(layer, dtype=float) for layer in checked_params(where, "params", given))
    for position, layer in enumerate(layers):
        check_finite(where, f"params[{position}]", layer)
    _check_chain(where, layers)
    name = "-".join(map(str, (layers[0].shape[1], *(layer.shape[0] for layer in layers))))
    if problem is None:
        if trajectory is not None or simulate:
            raise ValueError(f"{where}: problem must be given for a run, but is None; weights alone do not move.")
        notes.append("Without a task only the weights are spoken of.")
        return Diagnosis(
            f"{name} network, weights alone", tuple(structure_findings(layers, tolerance)), (), tuple(notes)
        )
    checked_problem(where, "problem", problem)
    if not isinstance(problem.model, DeepLinear):
        raise TypeError(
            f"{where}: problem.model must be a DeepLinear network, but is a {type(problem.model).__name__}; recurrent "
            "networks have recurrent.extrapolation_verdict."
        )
    if trajectory is not None and simulate:
        raise ValueError(f"{where}: trajectory and simulate must not both be given; a run is compared with once.")
    if step is not None:
        check_number(where, "step", step, above=0.0)
        if trajectory is None:
            raise ValueError(f"{where}: step must be left out without a trajectory, but is {step:g}.")
    placed = as_params(layers)
    problem.check(placed, where)
    if trajectory is not None:
        trajectory = as_trajectory(problem, placed, trajectory)
    run = None if trajectory is None else run_of(problem, placed, trajectory)
    findings, predictions, curve = _studied(problem, layers, theorems, claims, notes, tolerance)
    if simulate:
        trajectory = computed(problem, placed, curve, flow, max_steps)
        if trajectory.failed or not trajectory.result.finished:
            notes.append(f"The simulated run: {trajectory.result.message}")
        run = None if trajectory.failed else run_of(problem, placed, trajectory)
    if run is not None:
        predictions = list(judged(predictions, run, step or 0.0))
        findings += outcome_findings(run)
    title = f"{name} network on {type(problem.loss).__name__}"
    return Diagnosis(title, tuple(findings), tuple(predictions), tuple(notes), trajectory)


def _studied(
    problem: Problem, layers: Layers, theorems: bool, claims: bool, notes: list[str], tolerance: float
) -> tuple[list[Finding], list[Prediction], Curve | None]:
    """All findings and predictions of a problem and a start."""
    params = as_params(layers)
    task = task_of(problem)
    forms = form_findings(problem, params, layers, task, tolerance)
    rates, enveloped = rate_findings(layers, params, task)
    observed, lazy = completion_findings(problem, params, layers, tolerance)
    blocked, signs = obstruction_findings(layers, task, tolerance) if not float(problem.l2) > 0 else ([], [])
    findings = [
        *structure_findings(layers, tolerance),
        *task_findings(problem, params, layers, task),
        *observed,
        *blocked,
        *forms.findings,
        *rates,
        *curvature_findings(problem, params, layers, task, tolerance),
    ]
    predictions = [*forms.predictions, *signs, *enveloped, *lazy]
    if len(layers) > 1 and not float(problem.l2) > 0:
        statement, source = "change of the conserved quantities, of the layers' size", "completion/balancedness"
        predictions.append(Prediction("conserved", statement, 0.0, rtol=0.0, atol=CONSERVED, source=source))
    findings += _limit(predictions) + silent_findings(problem, layers, task, findings, predictions)
    size = sum(layer.size for layer in layers)
    if theorems and size > LARGEST_STUDY:
        notes.append(
            f"The theorems were not asked one by one: there are {size:,} weights, more than {LARGEST_STUDY:,}."
        )
    elif theorems:
        findings += theorem_findings(problem, params, _asked(), claims)
    findings.sort(key=lambda finding: TOPICS.index(finding.topic))
    return findings, predictions, forms.curve


def _limit(predictions: Sequence[Prediction]) -> list[Finding]:
    """The matrix that training ends at, where it is predicted."""
    statement = "limit of the product, the linear map that is learnt"
    return [
        Finding("limit", statement, STANDING.holds, one.value, source="exact.solve")
        for one in predictions
        if one.name == "product_end"
    ]


def _rounding(given: Any) -> float:
    """That of the coarsest of plain arrays."""
    return max((rounding_of(layer) for layer in given), default=0.0) if isinstance(given, tuple) else 0.0


def _asked() -> list[Check]:
    """Statements about feed-forward networks."""
    return [check for check in checks() if check.paper != "rnn"]


def _check_chain(where: str, layers: Layers) -> None:
    for position, (below, above) in enumerate(itertools.pairwise(layers)):
        if above.shape[1] != below.shape[0]:
            raise ValueError(
                f"{where}: params[{position + 1}] must have {below.shape[0]} columns, the outputs of "
                f"params[{position}], but has shape {above.shape}."
            )
    if any(0 in layer.shape for layer in layers):
        raise ValueError(f"{where}: params must have no empty layer, but has one.")
    with np.errstate(over="ignore"):
        sizes = np.array([np.linalg.norm(layer) for layer in layers])
        largest = max(float(np.prod(np.maximum(sizes, 1.0)) ** 2), float(np.max(sizes**4)))
    if not largest < LARGEST:
        raise ValueError(
            f"{where}: params must be small enough for squares of their product to be numbers, but have norms "
            f"{', '.join(f'{size:.3g}' for size in sizes)}; rescale them."
        )
