r"""One layer: the flow of a quadratic loss is linear, $W(t) = W^\star + (W_0 - W^\star)\,e^{-St}$."""

import functools
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, Matrix, Params
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

    def product_at(self, t: Float[Array, ""]) -> Matrix:
        z = -self.rates * t
        near = jnp.abs(z) < 1e-5
        safe = jnp.where(near, 1.0, z)
        growth = jnp.where(near, 1 + z / 2 + z**2 / 6, jnp.expm1(safe) / safe)
        moved = jnp.exp(z) * (self.start[0] @ self.basis) + self.force * t * growth
        speed = (self.force - self.rates * (self.start[0] @ self.basis)) @ self.basis.T
        return jnp.where(t > 0, moved @ self.basis.T, self.start[0] + t * speed)

    def layers_at(self, t: Float[Array, ""]) -> Params:
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
    residuals = {"one layer": jnp.asarray(np.zeros(()), dtype=float)}
    if isinstance(loss, Completion):
        basis, (rates, force) = jnp.asarray(np.eye(inp), dtype=float), _entry_by_entry(loss, problem.l2)
        return ShallowSolution(problem, params, residuals, basis, rates, force, "one layer, entry by entry")
    basis, rates, force = _linear(quadratic(loss), problem.l2)
    return ShallowSolution(problem, params, residuals, basis, rates, force, "one layer, linear flow")


@functools.partial(jax.jit, static_argnums=1)
def _written_out(loss: EntryCompletion, shape: tuple[int, int]) -> tuple[Matrix, Matrix]:
    """Target and mask of observed entries."""
    target, mask = (jnp.zeros(shape).at[loss.rows, loss.columns].set(v) for v in (loss.values, 1.0))
    return target, mask


@jax.jit
def _entry_by_entry(loss: Completion, l2: Float[Array, ""]) -> tuple[Matrix, Matrix]:
    """Rates and forces of the entries."""
    return loss.mask + l2, loss.mask * loss.target


@jax.jit
def _linear(goal: Quadratic, l2: Float[Array, ""]) -> tuple[Matrix, Matrix, Matrix]:
    """A basis in which the curvature is diagonal, and rates and forces in it."""
    values, basis = jnp.linalg.eigh(goal.covariance)
    values = jnp.maximum(values, 0.0)
    return basis, jnp.broadcast_to(values + l2, goal.target.shape), (goal.target @ basis) * values
