r"""One layer: the flow of a quadratic loss is linear, $W(t) = W^\star + (W_0 - W^\star)\,e^{-St}$."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, Matrix, Params, formula, put, xp
from deeplinear.exact._base import EXACT_BASIS, AbstractSolution, require, require_network
from deeplinear.exact._quadratic import Quadratic, quadratic
from deeplinear.models import Completion, EntryCompletion, Problem


class ShallowSolution(AbstractSolution):
    r"""One layer under a least-squares or completion loss, with or without penalty.

    In a basis where the curvature is diagonal, every entry decays to its end by itself: $x(t) = x_0 e^{-ct} + b\,t\,
    \varphi(-ct)$ with $\varphi(z) = (e^z - 1)/z$, force $b$ and rate $c \ge 0$ (a rate of zero keeps the entry, or lets
    it drift where there is a force).
    """

    problem: Problem
    start: Params
    residuals: Mapping[str, Float[Array, ""]]
    basis: Matrix
    rates: Matrix
    force: Matrix
    _form: str = eqx.field(static=True)

    @property
    def form(self) -> str:
        return self._form

    def product_at(self, t: Float[Array, "*times"]) -> Float[Array, "*times out inp"]:
        t = t[..., None, None]
        z = -self.rates * t
        near = xp.abs(z) < 1e-5
        safe = xp.where(near, 1.0, z)
        growth = xp.where(near, 1 + z / 2 + z**2 / 6, xp.expm1(safe) / safe)
        moved = xp.exp(z) * (self.start[0] @ self.basis) + self.force * t * growth
        speed = (self.force - self.rates * (self.start[0] @ self.basis)) @ self.basis.T
        return xp.where(t > 0, moved @ self.basis.T, self.start[0] + t * speed)

    def layers_at(self, t: Float[Array, "*times"]) -> tuple[Float[Array, "*times _ _"], ...]:
        return (self.product_at(t),)

    def carried(self, times: Float[np.ndarray, " times"], last: Params, carry: bool) -> tuple[tuple[Any, ...], str]:
        return tuple(layer[None] for layer in last), EXACT_BASIS


def shallow(problem: Problem, params: Params) -> ShallowSolution:
    """The closed form of one layer, or a refusal by hypothesis."""
    network = require_network(problem)
    require("one layer", network.depth - 1, 0.0)
    loss = problem.loss
    out, inp = network.product_shape
    if isinstance(loss, EntryCompletion):
        loss = Completion(*_written_out(loss, (out, inp)))
    residuals = {"one layer": xp.asarray(np.zeros(()), dtype=float)}
    if isinstance(loss, Completion):
        basis, (rates, force) = xp.asarray(np.eye(inp), dtype=float), _entry_by_entry(loss, problem.l2)
        return ShallowSolution(problem, params, residuals, basis, rates, force, "one layer, entry by entry")
    basis, rates, force = _linear(quadratic(loss), problem.l2)
    return ShallowSolution(problem, params, residuals, basis, rates, force, "one layer, linear flow")


@formula(static_argnums=1)
def _written_out(loss: EntryCompletion, shape: tuple[int, int]) -> tuple[Matrix, Matrix]:
    """Target and mask of observed entries."""
    target, mask = (put(xp.zeros(shape), (loss.rows, loss.columns), v) for v in (loss.values, 1.0))
    return target, mask


@formula
def _entry_by_entry(loss: Completion, l2: Float[Array, ""]) -> tuple[Matrix, Matrix]:
    """Rates and forces of the entries."""
    return loss.mask + l2, loss.mask * loss.target


@formula
def _linear(goal: Quadratic, l2: Float[Array, ""]) -> tuple[Matrix, Matrix, Matrix]:
    """A basis in which the curvature is diagonal, and rates and forces in it."""
    values, basis = xp.linalg.eigh(goal.covariance)
    values = xp.maximum(values, 0.0)
    return basis, xp.broadcast_to(values + l2, goal.target.shape), (goal.target @ basis) * values
