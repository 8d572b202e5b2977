r"""One input, one output, one hidden layer of any width: solved from any start, balanced or not."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, Params, xp
from deeplinear.exact._base import EXACT_BASIS, AbstractSolution, require, require_network
from deeplinear.exact._quadratic import quadratic
from deeplinear.exact._single_channel import single_channel
from deeplinear.models import Problem


class ChannelSolution(AbstractSolution):
    r"""Two layers between one input and one output, $\dot a = c(s - a\cdot b)\,b$ and the same for $b$.

    Attributes:
        target: $s$, not zero.
        rate: $c > 0$, the variance of the input.
    """

    problem: Problem
    start: Params
    residuals: Mapping[str, Float[Array, ""]]
    target: Float[Array, ""]
    rate: Float[Array, ""]

    @property
    def form(self) -> str:
        return "one input, one output, one hidden layer"

    def layers_at(self, t: Float[Array, "*times"]) -> tuple[Float[Array, "*times _ _"], ...]:
        sign = xp.sign(self.target)
        a, b = single_channel(self.rate * t, self.start[0][:, 0], sign * self.start[1][0], xp.abs(self.target))
        return a[..., None], sign * b[..., None, :]

    def product_at(self, t: Float[Array, "*times"]) -> Float[Array, "*times out inp"]:
        first, second = self.layers_at(t)
        return second @ first

    def carried(self, times: Float[np.ndarray, " times"], last: Params, carry: bool) -> tuple[tuple[Any, ...], str]:
        return tuple(layer[None] for layer in last), EXACT_BASIS


def channel(problem: Problem, params: Params) -> ChannelSolution:
    """The closed form of one channel, or a refusal by hypothesis."""
    network = require_network(problem)
    require("two layers", abs(network.depth - 2), 0.0)
    require("one input and one output", max(network.product_shape) - 1, 0.0)
    require("no penalty on the layers", float(problem.l2), 0.0)
    goal = quadratic(problem.loss)
    rate, target = goal.covariance[0, 0], goal.target[0, 0]
    require("an input that varies", float(rate <= 0), 0.0)
    require("a target that is not zero", float(target == 0), 0.0)
    residuals = {"one input and one output": xp.zeros(())}
    return ChannelSolution(problem, params, residuals, target, rate)
