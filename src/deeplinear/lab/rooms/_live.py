"""Runs in pieces, so that a page can draw what there is while the rest is computed."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deeplinear.core import RESULTS, Trajectory
from deeplinear.dynamics import resume, simulate
from deeplinear.lab._figures import Answer
from deeplinear.lab._room import Watch

LIMIT = 10_000_000
"""Most steps of a run, where nothing else is said."""


def pieces(times: np.ndarray, number: int) -> list[np.ndarray]:
    """Times in at most so many parts, of two records or more each."""
    return np.array_split(times, max(1, min(number, len(times) // 2)))


def simulate_live(
    watch: Watch,
    show: Callable[[Trajectory], Answer],
    problem: Any,
    layers: Any,
    method: Any,
    parts: Sequence[np.ndarray],
    *,
    share: Callable[[int, Trajectory], float] | None = None,
    max_steps: int = LIMIT,
    **settings: Any,
) -> Trajectory:
    """As `simulate`, in pieces; what there is so far is shown after every one. A run that breaks down raises.

    Args:
        watch: Is told how far the run is.
        show: Makes an answer of the records so far.
        problem: Model and loss.
        layers: Where to start.
        method: How to move.
        parts: Times of the records of every piece.
        share: How much of the run is done after so many pieces; by default, so many of all.
        max_steps: Most steps of all pieces.
        **settings: Probes and stopping rules, as for `simulate`.
    """
    whole: Trajectory | None = None
    watch(0.0)
    done = 0.0
    for number, part in enumerate(parts):

        def tell(told: Any, number: int = number, done: float = done) -> None:
            watch(done if share else (number + told.fraction) / len(parts), f"t = {told.t:.4g}")

        settings |= {"times": part, "progress": tell}
        if whole is None:
            whole = simulate(problem, layers, method, max_steps=max_steps, **settings)
        else:
            left = max_steps - int(whole.stats["accepted_steps"])
            if left <= 0:
                break
            whole = _joined(whole, resume(whole, problem, method, max_steps=left, **settings))
        if whole.result is not RESULTS.completed:
            break
        if number + 1 < len(parts):
            done = share(number + 1, whole) if share else (number + 1) / len(parts)
            watch(done, f"t = {float(whole.final_time):.4g}", show(whole))
    assert whole is not None
    if whole.result is RESULTS.diverged:
        whole.raise_on_failure()
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
