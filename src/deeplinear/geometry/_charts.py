r"""Coordinates in which $\dot X = -A_L[X](\nabla E(X))$ is integrated: what the state is, how it moves, what it shows.

A state ends in the length of the path so far, which is integrated along.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from deeplinear.core import Array, Matrix, TracedError
from deeplinear.geometry._energies import AbstractSpectralEnergy
from deeplinear.geometry._metric import Metric
from deeplinear.geometry._pair_eigenvalues import eigenvalue_difference, pair_eigenvalue
from deeplinear.geometry._singular import orthonormalised, seen_gradient, singular_field
from deeplinear.models import AbstractLoss

State = tuple[Array, ...]


class AbstractChart(eqx.Module):
    """Coordinates of square matrices."""

    @abc.abstractmethod
    def enter(self, point: Matrix, length: Float[Array, ""]) -> State:
        """State of a matrix."""

    @abc.abstractmethod
    def field(self, state: State) -> State:
        """How the state moves."""

    @abc.abstractmethod
    def look(self, state: State) -> tuple[Matrix, Float[Array, " modes"]]:
        """Matrix of a state and its singular values, largest first."""

    @abc.abstractmethod
    def logs(self, state: State) -> Float[Array, " modes"]:
        """Logarithms of the singular values, in any order."""

    @abc.abstractmethod
    def steepness(self, state: State) -> Float[Array, ""]:
        """Frobenius norm of the gradient of the energy."""


class MatrixChart(AbstractChart):
    """The matrix itself: one singular value decomposition for each evaluation. Values may coincide."""

    metric: Metric
    energy: AbstractLoss

    def enter(self, point: Matrix, length: Float[Array, ""]) -> State:
        return (point, length)

    def field(self, state: State) -> State:
        velocity, speed = descent(self.metric, self.energy, state[0])
        return (velocity, speed)

    def look(self, state: State) -> tuple[Matrix, Float[Array, " modes"]]:
        return state[0], jnp.linalg.svd(state[0], compute_uv=False)

    def logs(self, state: State) -> Float[Array, " modes"]:
        return jnp.log(jnp.linalg.svd(state[0], compute_uv=False))

    def steepness(self, state: State) -> Float[Array, ""]:
        return jnp.linalg.norm(self.energy.gradient(state[0]))


class SingularChart(AbstractChart):
    """Singular vectors and logarithms of the singular values, which must differ: products of matrices alone."""

    metric: Metric
    energy: AbstractLoss

    def enter(self, point: Matrix, length: Float[Array, ""]) -> State:
        left, values, right_t = jnp.linalg.svd(point)
        return (left, jnp.log(values), right_t.T, length)

    def field(self, state: State) -> State:
        return singular_field(self.metric, self.energy, *state[:3])

    def look(self, state: State) -> tuple[Matrix, Float[Array, " modes"]]:
        left, logs, right, _ = state
        values = jnp.exp(logs)
        return (left * values) @ right.T, -jnp.sort(-values)

    def logs(self, state: State) -> Float[Array, " modes"]:
        return state[1]

    def steepness(self, state: State) -> Float[Array, ""]:
        left, logs, right, _ = state
        return jnp.linalg.norm(seen_gradient(self.energy, left, jnp.exp(logs), right))


class SpectralChart(AbstractChart):
    """Logarithms of the singular values with their vectors at rest: the flow of a spectral energy."""

    metric: Metric
    energy: AbstractSpectralEnergy
    left: Matrix
    right: Matrix

    def enter(self, point: Matrix, length: Float[Array, ""]) -> State:
        return (jnp.log(jnp.diagonal(self.left.T @ point @ self.right)), length)

    def field(self, state: State) -> State:
        logs, _ = state
        slopes = self.energy.spectral_gradient(jnp.exp(logs))
        scaled = self.metric.scale * jnp.exp((1 - 2 * self.metric.rate) * logs)
        return (-scaled * slopes, _root(jnp.sum(scaled * jnp.exp(logs) * slopes**2)))

    def look(self, state: State) -> tuple[Matrix, Float[Array, " modes"]]:
        values = jnp.exp(state[0])
        return (self.left * values) @ self.right.T, -jnp.sort(-values)

    def logs(self, state: State) -> Float[Array, " modes"]:
        return state[0]

    def steepness(self, state: State) -> Float[Array, ""]:
        return jnp.linalg.norm(self.energy.spectral_gradient(jnp.exp(state[0])))


def settle(state: State) -> State:
    """Singular vectors made orthonormal again."""
    left, logs, right, length = state
    return (orthonormalised(left), logs, orthonormalised(right), length)


@eqx.filter_custom_jvp
def descent(metric: Metric, energy: AbstractLoss, point: Matrix) -> tuple[Matrix, Float[Array, ""]]:
    r"""$-A_L[X](\nabla E(X))$ and its length $\sqrt{\langle\nabla E, A_L[X]\nabla E\rangle}$, unchecked.

    Its derivative in $X$, with $\tilde Y = U^\top YV$, $\tilde Z = U^\top\nabla E\,V$ and the divided differences $T$
    of the eigenvalues, is $-A_L[X](\nabla^2E\,Y) - UMV^\top$ with
    $M_{ik} = \sum_j T_{ijk}(\tilde YS + S\tilde Y^\top)_{ij}\tilde Z_{jk}
    + \sum_j\tilde Z_{ij}(S\tilde Y + \tilde Y^\top S)_{jk}T_{jki}$: singular values may coincide. There is none in the
    depth or in the energy.
    """
    left, values, right_t = jnp.linalg.svd(point)
    seen = left.T @ energy.gradient(point) @ right_t.T
    table = metric.scale * pair_eigenvalue(values[:, None], values, metric.rate)
    return -(left @ (table * seen) @ right_t), _root(jnp.sum(table * seen**2))


@descent.def_jvp
def _descent_derivative(primals: Any, tangents: Any) -> Any:
    metric, energy, point = primals
    moved_metric, moved_energy, vector = tangents
    if any(leaf is not None for leaf in jax.tree.leaves((moved_metric, moved_energy))):
        instead = "the flow of an energy is differentiated in the matrix only"
        raise TracedError("geometry.matrix_flow", "depth or energy", "grad", instead)
    left, values, right_t = jnp.linalg.svd(point)
    seen = left.T @ energy.gradient(point) @ right_t.T
    table = metric.scale * pair_eigenvalue(values[:, None], values, metric.rate)
    velocity, power = -(left @ (table * seen) @ right_t), jnp.sum(table * seen**2)
    if vector is None:
        return (velocity, _root(power)), (jnp.zeros_like(velocity), jnp.zeros_like(power))
    split = metric.scale * eigenvalue_difference(values, metric.rate)
    y = left.T @ vector @ right_t.T
    outer, inner = y * values, values[:, None] * y
    turned = jnp.einsum("ijk,ij,jk->ik", split, outer + outer.T, seen) + jnp.einsum(
        "ij,jk,jki->ik", seen, inner + inner.T, split
    )
    bent = left.T @ energy.curvature(point, vector) @ right_t.T
    slope = jnp.sum(2 * table * seen * bent + seen * turned)
    speed = _root(power)
    rise = jnp.where(speed > 0, slope / (2 * jnp.where(speed > 0, speed, 1.0)), 0.0)
    return (velocity, speed), (-(left @ (table * bent + turned) @ right_t), rise)


def _root(power: Float[Array, ""]) -> Float[Array, ""]:
    """Square root whose derivative at zero is zero."""
    positive = power > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, power, 1.0)), 0.0)
