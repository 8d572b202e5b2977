r"""Losses quadratic in the product: $\tfrac12\mathrm{tr}((W - W^\star)\,S\,(W - W^\star)^\top)$."""

from typing import NamedTuple

import numpy as np

from deeplinear.core import HypothesisError, Matrix, xp
from deeplinear.models import AbstractLoss, Regression, SampleRegression, SquaredDistance


class Quadratic(NamedTuple):
    r"""Minimiser $W^\star$ and input covariance $S$ of a least-squares loss."""

    target: Matrix
    covariance: Matrix


def quadratic(loss: AbstractLoss) -> Quadratic:
    """Target and covariance of a loss, or a refusal by hypothesis."""
    if isinstance(loss, SquaredDistance):
        return Quadratic(loss.target, xp.asarray(np.eye(loss.target.shape[1]), dtype=float))
    if isinstance(loss, Regression):
        return Quadratic(loss.solution, loss.sxx)
    if isinstance(loss, SampleRegression):
        return quadratic(Regression.from_data(loss.inputs, loss.outputs))
    raise HypothesisError(
        "least squares on all entries of the product", 1.0, 0.0, f"The loss is {type(loss).__name__}."
    )
