r"""How a deep linear network learns a regression: the layers at all times, by integration or in closed form.

A network knows a regression by the second moments of the data only. In the principal axes of the inputs these are
variances and correlations with the outputs. Sides are filled up to a few sizes, so that few programs are compiled: with
zeros, and with variance 1 for inputs that are not there. Weights of what is not there start at zero and have no
gradient, and the others move as they would without it.
"""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deeplinear.core import RESULTS, HypothesisError, NumericalError
from deeplinear.dynamics import GradientFlow, Progress, simulate, until
from deeplinear.estimators._base import filled_up
from deeplinear.exact import AbstractSolution, AlignedSolution, NoClosedFormError, layer_mode, solve
from deeplinear.models import DeepLinear, Problem, Regression
from deeplinear.probes import gradient_norm, loss, weights

Layers = tuple[np.ndarray, ...]

LEAST = 8
"""Smallest side that is worked with; twice that for inputs."""
MOST_STEPS = 100_000
"""Steps after which a flow is given up."""
MOST_NUMBERS = 20_000_000
"""Weights, of all recorded times together, that a path keeps, roughly."""
STEPS = 500
"""Steps that a flow takes, roughly; what is recorded of it is planned by this."""
GRID = 256
"""Times at which a closed form is recorded."""
BATCH = 128
"""Times at which a closed form is evaluated at once."""
FIRST, LAST = 2.0**-12, 2.0**50
"""Between these times a closed form is searched for its end; what has not arrived then rests."""
WHITE = 1e-10
"""Largest relative difference between variances that count as equal."""


@dataclasses.dataclass(frozen=True)
class Task:
    r"""Least squares in the principal axes of the inputs: $\tfrac12\sum_{kj} v_j (M_{kj} - M^\star_{kj})^2$.

    Attributes:
        variances: $v_j \ge 0$ of the inputs.
        correlation: Of outputs and inputs, $M^\star_{kj} v_j$, (out, in).
    """

    variances: np.ndarray
    correlation: np.ndarray

    @property
    def solution(self) -> np.ndarray:
        r"""$M^\star$, zero on axes without variance."""
        there = self.variances > 0
        return np.where(there, self.correlation, 0.0) / np.where(there, self.variances, 1.0)

    def excess(self, products: np.ndarray) -> np.ndarray:
        """Loss of one product or of several, above that of least squares."""
        return 0.5 * np.sum(self.variances * (products - self.solution) ** 2, axis=(-2, -1))

    def limit(self, rank: int) -> np.ndarray:
        """The best product of at most a rank."""
        roots = np.sqrt(self.variances)
        left, values, right = np.linalg.svd(self.solution * roots, full_matrices=False)
        best = (left[:, :rank] * values[:rank]) @ right[:rank]
        return np.where(roots > 0, best, 0.0) / np.where(roots > 0, roots, 1.0)

    @property
    def colour(self) -> float:
        """By how much the variances differ, relative to their mean."""
        mean = float(np.mean(self.variances))
        return float(np.abs(self.variances - mean).max()) / mean if mean > 0 else 0.0


@dataclasses.dataclass(frozen=True)
class Ending:
    """When a path ends: excess loss at most `level`, gradient at most `quiet`, or the time `horizon`, if any."""

    level: float
    quiet: float
    horizon: float | None


@dataclasses.dataclass(frozen=True)
class Path:
    """Layers at recorded times, from which those at any other time are found.

    Attributes:
        task: What is learnt.
        rtol: Tolerance of the integration.
        form: The closed form in words; empty where the flow was integrated.
        times: From 0 on.
        layers: Stacked over the times.
        arrived: Whether the excess loss came down to its level.
        quiet: Whether the flow came to rest.
    """

    task: Task
    rtol: float
    form: str
    times: np.ndarray
    layers: Layers
    arrived: bool
    quiet: bool

    @property
    def products(self) -> np.ndarray:
        """End-to-end matrices, (time, out, in)."""
        return product(self.layers)

    def at(self, times: np.ndarray) -> Layers:
        """Layers at increasing times, stacked: by the closed form, or by the flow from the last record before."""
        if self.form:
            return _evaluated(_solution(self.task, self._record(0)), times)
        before = int(np.searchsorted(self.times, times[0], side="right")) - 1
        later = times[times > self.times[before]] - self.times[before]
        here = len(times) - len(later)
        first = self._record(before)
        parts = [tuple(np.repeat(layer[None], here, axis=0) for layer in first)]
        if len(later):
            ending = Ending(-1.0, -1.0, None)
            found = _integrated(self.task, first, ending, self.rtol, times=np.concatenate([[0.0], later]))
            parts.append(tuple(layer[1:] for layer in found[1]))
        return tuple(np.concatenate(both) for both in zip(*parts, strict=True))

    def with_times(self, times: np.ndarray) -> "Path":
        """The same path with more records."""
        new = np.setdiff1d(times, self.times)
        if not len(new):
            return self
        order = np.argsort(np.concatenate([self.times, new]))
        layers = tuple(np.concatenate(both)[order] for both in zip(self.layers, self.at(new), strict=True))
        return dataclasses.replace(self, times=np.concatenate([self.times, new])[order], layers=layers)

    def _record(self, position: int) -> Layers:
        return tuple(layer[position] for layer in self.layers)


def product(layers: Sequence[np.ndarray]) -> np.ndarray:
    """End-to-end matrix, or one for each of stacked layers."""
    return functools.reduce(lambda right, left: left @ right, layers)


def follow(
    task: Task,
    start: Layers,
    ending: Ending,
    *,
    method: str,
    rtol: float,
    times: np.ndarray | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Path:
    """The path from a start to its end, or at given times.

    Args:
        task: What is learnt.
        start: Layers, first-acting first.
        ending: When the path ends, if no times are given.
        method: `"flow"`, `"closed form"`, or `"auto"`: a closed form for one layer and for inputs of equal variances,
            if the start allows it.
        rtol: Tolerance of the integration.
        times: Increasing times from 0 on.
        progress: Called now and then while integrating.

    Raises:
        HypothesisError: A closed form is asked for and does not apply.
    """
    if len(start) > 1 and not any(layer.any() for layer in start):  # Nothing moves.
        times = np.zeros(1) if times is None else times
        still = tuple(np.repeat(layer[None], len(times), axis=0) for layer in start)
        return Path(task, rtol, "", times, still, bool(task.excess(product(start)) <= ending.level), True)
    if method == "closed form" or (method == "auto" and (len(start) == 1 or task.colour <= WHITE)):
        try:
            return _in_closed_form(task, start, ending, rtol, times)
        except (HypothesisError, NoClosedFormError) as reason:
            if method == "closed form":
                if len(start) > 1 and task.colour > WHITE:
                    raise HypothesisError(
                        "inputs of equal variances", task.colour, WHITE, "Take whiten=True."
                    ) from None
                raise reason
    unending = Ending(-1.0, -1.0, None)
    moments, layers, result, rule = _integrated(
        task, start, ending if times is None else unending, rtol, times=times, progress=progress
    )
    arrived = bool(task.excess(product(tuple(layer[-1] for layer in layers))) <= ending.level * 1.02)
    quiet = result is RESULTS.steady or (result is RESULTS.stopped and rule == 1)
    return Path(task, rtol, "", moments, layers, arrived, quiet)


# --- Filling up -------------------------------------------------------------------------------------------------------


def _grown(matrix: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    rows, columns = matrix.shape
    return np.pad(matrix, ((0, shape[0] - rows), (0, shape[1] - columns)))


def _problem(task: Task, start: Layers) -> tuple[Problem, Layers]:
    """Problem and start, filled up."""
    sizes = [start[0].shape[1], *(len(layer) for layer in start)]
    widths = (filled_up(sizes[0], 2 * LEAST), *(filled_up(size, LEAST) for size in sizes[1:]))
    shape = (widths[-1], widths[0])
    variances = np.concatenate([task.variances, np.ones(widths[0] - sizes[0])])
    energy = Regression(
        np.diag(variances), _grown(task.solution * task.variances, shape), solution=_grown(task.solution, shape)
    )
    layers = tuple(
        _grown(layer, (out, inp)) for layer, (inp, out) in zip(start, itertools.pairwise(widths), strict=True)
    )
    return Problem(DeepLinear(widths), energy), layers


def _cut(layers: Sequence[Any], start: Layers) -> Layers:
    """Stacked layers without what was filled up."""
    return tuple(np.asarray(layer)[:, : one.shape[0], : one.shape[1]] for layer, one in zip(layers, start, strict=True))


# --- By integration ---------------------------------------------------------------------------------------------------


def _integrated(
    task: Task,
    start: Layers,
    ending: Ending,
    rtol: float,
    *,
    times: np.ndarray | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[np.ndarray, Layers, RESULTS, int]:
    """Times, layers, outcome and the rule that fired, of the flow."""
    problem, layers = _problem(task, start)
    size = sum(layer.size for layer in layers)
    listed = times is not None
    if listed and len(times) == 1:  # The state at the beginning, and nothing else.
        return times, tuple(layer[None] for layer in start), RESULTS.completed, 0
    run = simulate(
        problem,
        layers,
        GradientFlow(rtol),
        times=times,
        horizon=None if listed else ending.horizon,
        every=None if listed else max(1, round(STEPS * size / MOST_NUMBERS)),
        probes=[weights],
        until=[until(loss, below=ending.level), until(gradient_norm, below=ending.quiet)],
        max_steps=MOST_STEPS,
        throw=True,
        progress=progress,
    )
    if run.result is RESULTS.interrupted:
        raise KeyboardInterrupt
    if listed and not run.result.finished:
        raise NumericalError(
            run.result,
            f"The time asked for is {times[-1]:g}, and the flow came to {run.times[-1]:g}; long after training it "
            "rests but for rounding. Ask for an earlier time, or for none, which is the end of training.",
        )
    values, cuts = run["weights"], np.cumsum([layer.size for layer in layers])[:-1]
    stacked = [
        part.reshape(len(values), *layer.shape)
        for part, layer in zip(np.split(values, cuts, axis=1), layers, strict=True)
    ]
    return run.times, tuple(np.array(layer) for layer in _cut(stacked, start)), run.result, int(run.fired)


# --- In closed form ---------------------------------------------------------------------------------------------------


def _solution(task: Task, start: Layers) -> tuple[AbstractSolution, Layers]:
    """The closed form of the flow, or a refusal by hypothesis; and the start, to whose shapes it is cut."""
    problem, layers = _problem(task, start)
    if len(start) > 1:
        with contextlib.suppress(HypothesisError):  # Aligned modes come in the hidden basis that training gives.
            return solve(problem, layers, form="aligned"), start
    return solve(problem, layers), start


def _in_closed_form(task: Task, start: Layers, ending: Ending, rtol: float, times: np.ndarray | None) -> Path:
    """The path by a closed form; where no times are given, up to its end at times that grow by a factor."""
    solution = _solution(task, start)
    if times is None:
        coarse = np.concatenate([[0.0], np.geomspace(FIRST, LAST, BATCH - 1)])
        excess = task.excess(product(_evaluated(solution, coarse)))
        there = np.flatnonzero(excess <= ending.level)
        last = coarse[there[0]] if len(there) else coarse[-1]
        if ending.horizon is not None:
            last = min(last, ending.horizon)
        moved = np.flatnonzero(np.abs(excess - excess[0]) > 1e-3 * excess[0])
        first = min(coarse[max(1, moved[0] - 1)] if len(moved) else last, last)
        points = int(np.clip(MOST_NUMBERS // sum(layer.size for layer in start), 32, GRID))
        times = np.zeros(1) if last == 0 else np.concatenate([[0.0], np.geomspace(first, last, points - 1)])
        times = np.unique(times)
    layers = _evaluated(solution, times)
    arrived = bool(task.excess(product(tuple(layer[-1] for layer in layers))) <= ending.level * 1.02)
    return Path(task, rtol, solution[0].form, times, layers, arrived, not arrived and times[-1] == LAST)


def _evaluated(solution: tuple[AbstractSolution, Layers], times: np.ndarray) -> Layers:
    """Stacked layers of a closed form."""
    form, start = solution
    parts = []
    for begin in range(0, len(times), BATCH):
        batch = times[begin : begin + BATCH]
        full = np.concatenate([batch, np.full(BATCH - len(batch), batch[-1])])
        layers = _modes(form, full) if isinstance(form, AlignedSolution) else form.params(full)
        parts.append(tuple(layer[: len(batch)] for layer in _cut(layers, start)))
    return tuple(np.concatenate(both) for both in zip(*parts, strict=True))


def _modes(form: AlignedSolution, times: np.ndarray) -> list[np.ndarray]:
    """Stacked layers of aligned modes, each at the speed of its input."""
    strengths, targets, rates = (np.asarray(part) for part in (form.strengths, form.targets, form.rates))
    if np.ptp(rates) <= WHITE * rates.max():
        found = layer_mode(rates.mean() * times, strengths, targets)
    else:
        found = np.stack([layer_mode(*one) for one in zip(np.outer(rates, times), strengths, targets, strict=True)])
    moved = np.asarray(found) - strengths[:, None]
    vectors = [np.asarray(v) for v in form.vectors]
    return [
        np.asarray(layer) + np.einsum("ok,kt,ik->toi", vectors[i + 1], moved[:, :, i], vectors[i], optimize=True)
        for i, layer in enumerate(form.start)
    ]
