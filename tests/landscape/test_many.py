"""Losses and gradients at many points at once, against sums and products written out."""

import numpy as np
import pytest

from deeplinear.landscape import chord_loss
from deeplinear.landscape._many import losses, records
from deeplinear.models import Completion, DeepLinear, Masked, Problem

TARGET = np.arange(6.0).reshape(2, 3) - 2
SEEN = np.array([[1, 0, 1], [1, 1, 0]])
PENALTY = 0.3


@pytest.mark.parametrize("fixed", [False, True])
def test_values_and_gradients_at_every_point(fixed: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    chain = DeepLinear((3, 4, 2))
    learnt = [rng.random(shape) < 0.6 if fixed else np.ones(shape, bool) for shape in chain.shapes]
    model = Masked(chain, learnt) if fixed else chain
    problem = Problem(model, Completion(TARGET, SEEN), PENALTY)
    first, last = (rng.standard_normal((5, *shape)) * mask for shape, mask in zip(chain.shapes, learnt, strict=True))
    values = losses(problem, (first, last))
    products, again, sizes = records(problem, (first, last))
    for k, (a, b) in enumerate(zip(first, last, strict=True)):
        rest = SEEN * (b @ a - TARGET)
        size = 0.5 * np.sum(rest**2) + 0.5 * PENALTY * (np.sum(a**2) + np.sum(b**2))
        pulls = (learnt[0] * (b.T @ rest) + PENALTY * a, learnt[1] * (rest @ a.T) + PENALTY * b)
        np.testing.assert_allclose([values[k], again[k]], size, rtol=1e-13)
        np.testing.assert_allclose(products[k], b @ a, rtol=0, atol=1e-13)
        np.testing.assert_allclose(sizes[k], np.sqrt(sum(np.sum(pull**2) for pull in pulls)), rtol=1e-12)


def test_no_points_have_no_losses() -> None:
    problem = Problem(DeepLinear((3, 2)), Completion(TARGET, SEEN))
    assert chord_loss(problem, (np.ones((2, 3)),), (np.zeros((2, 3)),), np.zeros(0)).shape == (0,)
