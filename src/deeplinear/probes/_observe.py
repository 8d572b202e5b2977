"""Weights from elsewhere as a trajectory."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import jax
import numpy as np

from deeplinear.core import (
    RESULTS,
    Params,
    Trajectory,
    as_numbers,
    check_finite,
    check_shape,
    checked_params,
    describe,
    entry,
    formula,
    over,
)
from deeplinear.models import Problem, checked_problem
from deeplinear.probes._base import AbstractProbe, dimension_names
from deeplinear.probes._checked import checked_probes, is_own, values_of
from deeplinear.probes._plain import loss

WINDOW = 64
"""Snapshots that are looked at together; fewer are filled up, so that few lengths are compiled."""


@entry
def observe(
    problem: Problem,
    times: Any,
    snapshots: Sequence[Iterable[Any]],
    *,
    probes: Callable[..., Any] | Iterable[Callable[..., Any]] = (loss,),
) -> Trajectory:
    """Probes of weights that were recorded elsewhere, in the form of a run of our own.

    Args:
        problem: Model and loss.
        times: Increasing times, or steps, one for each snapshot.
        snapshots: Layers at those times, first-acting first.
        probes: Observables, as for `simulate`.

    Returns:
        Trajectory of a completed run that ends with the last snapshot.

    Example:
        >>> problem = Problem(DeepLinear((1, 1)), SquaredDistance(jnp.array([[2.0]])))
        >>> observe(problem, [0, 10], [(jnp.zeros((1, 1)),), (jnp.ones((1, 1)),)])["loss"]
        array([2. , 0.5])
    """
    where = "observe"
    checked_problem(where, "problem", problem)
    moments = np.asarray(times, dtype=float)
    check_shape(where, "times", moments, (None,))
    check_finite(where, "times", moments)
    if len(moments) == 0 or np.any(np.diff(moments) <= 0):
        raise ValueError(f"{where}: times must increase and hold at least one time, but is {times!r}.")
    if len(snapshots) != len(moments):
        raise ValueError(
            f"{where}: snapshots must hold layers for each of the {len(moments)} times, but holds {len(snapshots)}."
        )
    layers = [checked_params(where, f"snapshots[{k}]", snapshot) for k, snapshot in enumerate(snapshots)]
    for k, snapshot in enumerate(layers):
        problem.check(cast(Params, snapshot), f"{where}: snapshots[{k}]")
        for position, layer in enumerate(snapshot):
            check_finite(where, f"snapshots[{k}][{position}]", layer)
    stack = tuple(
        np.stack([np.asarray(layer, dtype=float) for layer in column]) for column in zip(*layers, strict=True)
    )
    found = checked_probes(where, probes, problem, False, stack)
    parts = []
    if all(map(is_own, found)):
        looks, own = as_numbers((found, problem))
        rows = [values_of(looks, t, tuple(layer[k] for layer in stack), own) for k, t in enumerate(moments)]
        parts = [[np.stack(column) for column in zip(*rows, strict=True)]]
    for begin in range(0, 0 if parts else len(moments), WINDOW):
        place = np.arange(begin, min(begin + WINDOW, len(moments)))
        size = min(WINDOW, 1 << (len(place) - 1).bit_length())
        padded = np.concatenate([place, np.full(size - len(place), place[-1])])
        values = _looked(found, problem, *jax.device_put((moments[padded], tuple(layer[padded] for layer in stack))))
        parts.append([np.asarray(value)[: len(place)] for value in values])
    values = {item.name: np.concatenate(part) for item, part in zip(found, zip(*parts, strict=True), strict=True)}
    return Trajectory(
        times=moments,
        values=values,
        dims={item.name: dimension_names(item, values[item.name].ndim - 1) for item in found},
        params=tuple(layer[-1].copy() for layer in stack),
        results=np.asarray(int(RESULTS.completed)),
        fired=np.asarray(0),
        rules=(),
        lengths=np.asarray(len(moments)),
        stats={},
        info={
            "problem": describe(problem),
            "method": "weights from elsewhere",
            "loss": problem.loss.kind,
            "clock": "time",
        },
    )


@formula
def _looked(
    probes: tuple[AbstractProbe, ...], problem: Problem, times: jax.Array, layers: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    return over(lambda t, params: tuple(probe(t, params, problem) for probe in probes))(times, layers)
