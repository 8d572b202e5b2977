"""Least squares under fresh white inputs."""

import sys
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    Matrix,
    RandomKey,
    as_array,
    check_count,
    check_shape,
    entry,
    formula,
    is_concrete,
    random,
    xp,
)
from deeplinear.models._base import AbstractSumLoss
from deeplinear.models._losses import checked_matrix


class WhiteInputs(AbstractSumLoss):
    r"""$E(W) = \tfrac12\,\mathbb E\,\|(W - W^\star)x\|^2$ over inputs with independent standard normal entries.

    The mean is $\tfrac12\|W - W^\star\|_F^2$ over the columns that have an input, so to a flow this is
    `SquaredDistance` (or, with `active`, `Completion` of whole columns). To `Minibatch` it is a stream of samples that
    never repeat: each step sees $\tfrac1b\sum_n (W - W^\star)x_nx_n^\top$.

    Args:
        target: $W^\star$, (out, in).
        active: Which entries of the input are drawn, (in,); the others are zero. All by default. A recurrent network
            that reads sequences of length $k$ has the first $k$ active.

    Example:
        >>> float(WhiteInputs(jnp.ones((1, 3)), active=[1, 1, 0]).value(jnp.zeros((1, 3))))
        1.0
    """

    target: Matrix
    active: Float[Array, " inp"]

    @entry
    def __init__(self, target: object, active: Any = None) -> None:
        self.target = checked_matrix("WhiteInputs", "target", target)
        seen = as_array(np.ones(self.target.shape[1]) if active is None else active, float)
        check_shape("WhiteInputs", "active", seen, (self.target.shape[1],))
        if is_concrete(seen) and not (np.all(np.isin(np.asarray(seen), (0, 1))) and np.any(np.asarray(seen))):
            raise ValueError("WhiteInputs: active must hold only 0 and 1, and a 1 at least once.")
        self.active = seen

    @entry
    def value(self, product: Matrix) -> Float[Array, ""]:
        return 0.5 * xp.sum(self.gradient(product) ** 2)

    @entry
    def gradient(self, product: Matrix) -> Matrix:
        return (product - self.target) * self.active

    @entry
    def curvature(self, product: Matrix, tangent: Matrix) -> Matrix:
        return tangent * self.active

    @property
    def terms(self) -> int:
        """As many as there are numbers: the stream does not end."""
        return sys.maxsize

    def batch_gradient(self, product: Matrix, key: RandomKey, batch: int) -> Matrix:
        r"""Mean of $(W - W^\star)\,x x^\top$ over `batch` fresh inputs."""
        check_count("WhiteInputs.batch_gradient", "batch", batch, at_least=1)
        return _batch_gradient(self.target, self.active, product, key, batch)

    def share(self, batch: int) -> Float[Array, ""]:
        """1: the mean over a batch estimates the mean over all inputs."""
        return xp.ones(())

    @property
    def shape(self) -> tuple[int, int]:
        return (self.target.shape[-2], self.target.shape[-1])

    @property
    def kind(self) -> str:
        return "full"


@formula(static_argnames="batch")
def _batch_gradient(
    target: Matrix, active: Float[Array, " inp"], product: Matrix, key: RandomKey, batch: int
) -> Matrix:
    inputs = active[:, None] * random.normal(key, (product.shape[1], batch), dtype=product.dtype)
    return ((product - target) @ inputs) @ inputs.T / batch
