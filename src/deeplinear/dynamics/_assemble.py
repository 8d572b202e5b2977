"""The trajectory of a run, from what was recorded and where its members ended."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from deeplinear.core import Trajectory, describe
from deeplinear.dynamics._base import AbstractMethod
from deeplinear.dynamics._flow import GradientFlow
from deeplinear.dynamics._members import Recorder
from deeplinear.dynamics._stopping import Until
from deeplinear.models import Problem
from deeplinear.probes import AbstractProbe, dimension_names


def assemble(
    problem: Problem,
    method: AbstractMethod,
    probes: tuple[AbstractProbe, ...],
    rules: tuple[Until, ...],
    recorder: Recorder,
    *,
    y: np.ndarray,
    results: np.ndarray,
    fired: np.ndarray,
    stats: Mapping[str, Any],
    state: tuple[np.ndarray, ...],
    clock: float,
) -> Trajectory:
    """Put the trajectory of an ensemble together.

    Args:
        problem: The problem of all members, or the stacked one of each.
        method: Likewise.
        probes: What was recorded.
        rules: Stopping rules.
        recorder: Records of all members.
        y: Weights of the members at their ends, flattened.
        results: Outcome of each member.
        fired: Stopping rule that ended each member.
        stats: Numbers about the run, `accepted_steps` among them.
        state: Arrays from which the run can be continued.
        clock: When the run began.
    """
    members, width = len(y), int(recorder.lengths.max())
    shapes = problem.model.shapes
    ends = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
    parts = np.split(y, ends, axis=1)
    seconds = time.monotonic() - clock
    steps = max(1, int(np.sum(stats["accepted_steps"])))
    return Trajectory(
        times=recorder.times[:, :width],
        values={name: value[:, :width] for name, value in recorder.values.items()},
        dims={p.name: dimension_names(p, recorder.values[p.name].ndim - 2) for p in probes},
        params=tuple(part.reshape(members, *shape) for part, shape in zip(parts, shapes, strict=True)),
        results=results,
        fired=fired,
        rules=tuple(rule.name for rule in rules),
        lengths=recorder.lengths.copy(),
        stats={**stats, "seconds": seconds, "seconds_per_step": seconds / steps},
        info={
            "problem": describe(problem),
            "method": describe(method),
            "loss": problem.loss.kind,
            "clock": "time" if isinstance(method, GradientFlow) else "steps",
        },
        state=state,
    )
