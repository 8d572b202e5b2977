"""Runs in pieces, so that a page can draw what there is while the rest is computed."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from deeplinear.core import RESULTS, Trajectory
from deeplinear.dynamics import resume, simulate
from deeplinear.lab._figures import Answer
from deeplinear.lab._room import Watch


def simulate_live(
    watch: Watch,
    show: Callable[[Trajectory], Answer],
    problem: Any,
    layers: Any,
    method: Any,
    times: np.ndarray,
    pieces: int,
    **settings: Any,
) -> Trajectory:
    """As `simulate`, in pieces of as many records each; what there is so far is shown after every one.

    Args:
        watch: Is told how far the run is.
        show: Makes an answer of the records so far.
        problem: Model and loss.
        layers: Where to start.
        method: How to move.
        times: Of the records, from 0 on.
        pieces: Into how many parts they are divided at the most; a part has two records or more.
        **settings: Probes and stopping rules, as for `simulate`.
    """
    parts = np.array_split(times, max(1, min(pieces, len(times) // 2)))
    whole: Trajectory | None = None
    watch(0.0, "compiling")
    for number, part in enumerate(parts):

        def tell(told: Any, number: int = number) -> None:
            watch((number + told.fraction) / len(parts), f"t = {told.t:.4g}")

        if whole is None:
            whole = simulate(problem, layers, method, times=part, progress=tell, throw=True, **settings)
        else:
            more = resume(whole, problem, method, times=part, progress=tell, throw=True, **settings)
            whole = _joined(whole, more)
        if whole.result is not RESULTS.completed:
            break
        if number + 1 < len(parts):
            watch((number + 1) / len(parts), f"t = {float(whole.final_time):.4g}", show(whole))
    assert whole is not None
    return whole


def _joined(first: Trajectory, second: Trajectory) -> Trajectory:
    """One after the other: records of both, the rest of the second, numbers of steps added."""
    one, two = int(first.lengths), int(second.lengths)
    values = {name: np.concatenate([first.values[name][:one], second.values[name][:two]]) for name in first.values}
    counts = {
        name: first.stats[name] + value
        for name, value in second.stats.items()
        if isinstance(value, (int, float, np.integer, np.floating, np.ndarray)) and name in first.stats
    }
    return dataclasses.replace(
        second,
        times=np.concatenate([first.times[:one], second.times[:two]]),
        values=values,
        lengths=np.asarray(one + two),
        stats={**second.stats, **counts},
    )
