"""Tasks and starts of the room between lazy and rich."""

from typing import Any

import numpy as np

from deeplinear.core import Array
from deeplinear.lab._recipes import keys_of
from deeplinear.lab._room import Params, slider, whole
from deeplinear.models import DeepLinear, LambdaBalanced, Problem, SquaredDistance, spectral_target

POINTS = 160
"""Times of a curve."""

FIRST = 1e-4
"""First of the times on a logarithmic axis, as a share of the horizon."""

CELLS = 41
"""Cells of a side of the map."""

WIDEST = 8
"""Most inputs, hidden units or outputs."""

LAMBDA = (-10.0, 10.0)
SCALE = (1e-3, 3.0)


class Task(Params):
    """A task, and a start of two layers for it."""

    lam: float = slider(
        0.0, *LAMBDA, "Relative scale λ", step=0.1, about="How much larger the second layer is than the first."
    )
    scale: float = slider(
        0.1, *SCALE, "Absolute scale", log=True, about="Size of the product of the layers at the start."
    )
    inputs: int = whole(4, 1, WIDEST, "Inputs")
    hidden: int = whole(3, 1, WIDEST, "Hidden width")
    outputs: int = whole(3, 1, WIDEST, "Outputs")
    strongest: float = slider(3.0, 0.1, 10.0, "Strongest mode", step=0.1, about="Largest singular value of the task.")
    ratio: float = slider(
        0.6, 0.05, 1.0, "Ratio of modes", step=0.05, about="Each mode is so much weaker than the last."
    )
    seed: int = whole(0, 0, 9999, "Seed", seed=True)


class CurveParams(Task):
    """Learning curves up to a time."""

    horizon: float = slider(6.0, 0.1, 1000.0, "Horizon", log=True)
    moment: float = slider(1.0, 0.0, 1.0, "Look at (part of the horizon)", step=0.01)


class MapParams(Task):
    """A map at a time."""

    time: float = slider(10.0, 0.01, 1000.0, "Time", log=True)


def spectrum_of(params: Task) -> list[float]:
    """Singular values of the task."""
    return [float(f"{params.strongest * params.ratio**i:.12g}") for i in range(min(params.inputs, params.outputs))]


def target_of(params: Task) -> Array:
    """The matrix to learn."""
    return spectral_target(keys_of(params.seed)[0], (params.outputs, params.inputs), spectrum_of(params))


def setting_of(params: Task) -> tuple[Problem, Any]:
    """Problem and layers at the start."""
    key_start, target = keys_of(params.seed)[1], target_of(params)
    problem = Problem(DeepLinear((params.inputs, params.hidden, params.outputs)), SquaredDistance(target))
    return problem, LambdaBalanced(params.lam, 1.0, absolute_scale=params.scale)(problem.model, key_start)


def paces_of(horizon: float) -> np.ndarray:
    """Times at which it is seen when modes are learnt: close together at first, however far the horizon is."""
    return np.concatenate([[0.0], np.geomspace(FIRST * horizon, horizon, POINTS - 1)])


def times_of(horizon: float) -> np.ndarray:
    """Times of the curves."""
    return np.linspace(0.0, horizon, POINTS)
