"""Gradient flows of many instances at once: those of equal shape are one ensemble."""

import dataclasses
from collections.abc import Iterable, Sequence

import jax
import numpy as np
from jaxtyping import Float

from deeplinear.core import RESULTS, Array, Params
from deeplinear.dynamics import GradientFlow, ensemble, until
from deeplinear.models import AbstractModel, Completion, EntryCompletion, Problem, observed_entries
from deeplinear.probes import loss, weights

RTOL = 1e-12
"""Tolerance of the flows: far below those of the statements."""

FITTED = 1e-24
"""Loss at which a limit is taken: the residuals, about 1e-12, are as small as the errors of the flow."""

NEVER = -1.0
"""A loss no flow falls below: the run goes on to its last time. One rule in every run, so that all share code."""

MOST = 28
"""Members of one ensemble."""

FLOOR = 1e-18
"""Losses are compared with envelopes that fall without end only above what rounding leaves of a loss of order one."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What was recorded of one flow: times, losses and layers, each with a leading axis of times."""

    times: np.ndarray
    loss: np.ndarray
    layers: tuple[np.ndarray, ...]

    @property
    def product(self) -> np.ndarray:
        """The product at every time."""
        product = self.layers[0]
        for layer in self.layers[1:]:
            product = layer @ product
        return product

    @property
    def final(self) -> Params:
        """Layers at the last time."""
        return tuple(layer[-1] for layer in self.layers)


def observed(
    model: AbstractModel,
    rows: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    l2: float | Float[Array, ""] = 0.0,
) -> Problem:
    """Completion from some entries, as a mask, so that patterns of any size share code."""
    target, mask = np.zeros(model.product_shape), np.zeros(model.product_shape)
    target[rows, columns], mask[rows, columns] = values, 1
    return Problem(model, Completion(target, mask), l2)


def dense(problem: Problem) -> Problem:
    """The problem with its observations as a mask."""
    if not isinstance(problem.loss, EntryCompletion):
        return problem
    return observed(problem.model, *observed_entries(problem.loss), l2=problem.l2)


def flows(
    problems: Iterable[Problem], starts: Iterable[Params], times: Sequence[float] | np.ndarray, *, below: float = NEVER
) -> list[Run]:
    """Gradient flow of every problem from its start, recorded at the times, until the loss is at most `below`."""
    tasks = [(dense(problem), tuple(start)) for problem, start in zip(problems, starts, strict=True)]
    groups: dict[object, list[int]] = {}
    for position, (problem, start) in enumerate(tasks):
        leaves, structure = jax.tree.flatten(problem)
        shapes = tuple(np.shape(leaf) for leaf in (*leaves, *start))
        groups.setdefault((structure, shapes), []).append(position)
    runs: dict[int, Run] = {}
    for positions in groups.values():
        for first in range(0, len(positions), MOST):
            part = positions[first : first + MOST]
            runs |= dict(zip(part, _together([tasks[i] for i in part], times, below), strict=True))
    return [runs[i] for i in range(len(tasks))]


def _together(tasks: list[tuple[Problem, Params]], times: Sequence[float] | np.ndarray, below: float) -> list[Run]:
    """Flows of equal shape in one ensemble."""
    many = ensemble(
        [problem for problem, _ in tasks],
        [start for _, start in tasks],
        GradientFlow(RTOL),
        times=times,
        until=until(loss, below=below),
        probes=(loss, weights),
        throw=True,
    )
    if RESULTS.interrupted.name in many.outcomes():
        raise KeyboardInterrupt
    shapes = tasks[0][0].model.shapes
    cuts = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
    runs = []
    for index in range(len(tasks)):
        run = many.member(index)
        pieces = np.split(run["weights"], cuts, axis=1)
        layers = tuple(p.reshape(len(p), *shape) for p, shape in zip(pieces, shapes, strict=True))
        runs.append(Run(run.times, run["loss"], layers))
    return runs


def excess(values: np.ndarray, envelope: np.ndarray) -> float:
    """Largest relative amount by which losses exceed their envelope, with a floor for what rounding leaves."""
    return float(np.max((values - envelope) / (envelope + FLOOR * max(1.0, float(values[0])))))


MEASURABLE = "measurable in double precision"
"""Hypothesis of range: outside of it nothing is said, as the numbers could not tell a statement from its opposite."""


def decades(*ranges: tuple[float, float, float]) -> float:
    """By how many powers of ten a positive number lies outside its range, at worst, for triples (number, low, high)."""
    worst = -np.inf
    for number, low, high in ranges:
        if not np.isfinite(number):
            return float(np.inf)
        place = np.log10(max(float(number), 1e-300))
        worst = max(worst, np.log10(low) - place if low > 0 else -np.inf, place - np.log10(high))
    return float(worst)


def largest(arrays: Iterable[object]) -> float:
    """Largest absolute value of several arrays."""
    return max(float(np.max(np.abs(np.asarray(array)), initial=0.0)) for array in arrays)
