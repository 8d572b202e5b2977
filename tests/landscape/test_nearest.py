"""What counts as a critical point, and as none, by the size of the gradient."""

import numpy as np
import pytest

from deeplinear.landscape import ENDED, KIND, classify, nearest_critical_point
from deeplinear.models import DeepLinear, Problem, SquaredDistance


def test_a_gradient_above_the_tolerance_is_no_critical_point() -> None:
    """Two modes that differ by 4e-9, both learnt by half through one hidden unit: a gradient of 1e-8, not zero.

    No step is allowed, and nothing can be rounded, since a network with one hidden unit learns one mode at the most.
    """
    gap, excess = 4e-9, 1e-8
    sigma = np.array([1.0, 1.0 - gap])
    unit = np.sqrt((1 + excess) / 2)
    layers = (np.full((1, 2), unit), np.full((2, 1), unit))
    problem = Problem(DeepLinear((2, 1, 2)), SquaredDistance(np.diag(sigma)))
    residual = layers[1] @ layers[0] - np.diag(sigma)
    gradient = float(np.sqrt(np.sum((layers[1].T @ residual) ** 2) + np.sum((residual @ layers[0].T) ** 2)))
    found = nearest_critical_point(problem, layers, max_steps=0)
    assert found.gradient_before == pytest.approx(gradient, rel=1e-6)
    assert found.ended is ENDED.failed
    assert found.signature is None
    assert nearest_critical_point(problem, layers, max_steps=0, tolerance=2 * gradient).ended is ENDED.settled


def test_the_scale_of_a_task_with_nothing_to_learn_is_one() -> None:
    """Two numbers a and b against the target 0 have the gradient (a b², a² b), compared with 1."""
    problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(np.zeros((1, 1))))
    size = 1e-2
    params = (np.full((1, 1), size), np.full((1, 1), size))
    gradient = np.sqrt(2) * size**3
    assert classify(problem, params, tolerance=0.99 * gradient).kind is KIND.regular
    assert classify(problem, params, tolerance=1.01 * gradient).kind is not KIND.regular
