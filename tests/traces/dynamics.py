"""Transformations of the public functions of `dynamics`."""

from typing import Any

import jax
import numpy as np

from deeplinear import dynamics
from deeplinear.models import Completion, DeepLinear, Problem, SquaredDistance
from traces import Row, both, layers, near, normal, outside, refuses

NETWORK = DeepLinear((2, 2, 2))
RUN = both(normal((2, 2)), layers(2, 2, 2), near([0.5]))
METHOD = outside("settings of a method")


def problem(target: Any) -> Problem:
    return Problem(NETWORK, SquaredDistance(target))


TABLE: dict[str, Row] = {
    "coupling": refuses(
        lambda params: dynamics.coupling(Problem(NETWORK, Completion(np.eye(2), np.eye(2))), params).coupled,
        layers(2, 2, 2),
    ),
    "coupling_examples": outside("nothing"),
    "ensemble": refuses(
        lambda target, params, times: (
            dynamics.ensemble(
                problem(target), [params, jax.tree.map(lambda layer: 2 * layer, params)], times=times
            ).params
        ),
        RUN,
    ),
    "plasticity": outside("a model and observations"),
    "resume": outside("a trajectory"),
    "simulate": refuses(
        lambda target, params, times: dynamics.simulate(problem(target), params, times=times).params,
        RUN,
    ),
    "steady": outside("a tolerance"),
    "until": outside("a probe"),
    "AbstractMethod": outside("an abstract class"),
    "Adagrad": METHOD,
    "Adam": METHOD,
    "EntryGram": outside("places of entries"),
    "GradientDescent": METHOD,
    "GradientFlow": METHOD,
    "Milestones": METHOD,
    "Minibatch": METHOD,
    "Momentum": METHOD,
    "RMSProp": METHOD,
    "Switching": METHOD,
    "Until": outside("made by `until`"),
}
