r"""Coordinates in which $\dot X = -A_L[X](\nabla E(X))$ is integrated: what the state is, how it moves, what it shows.

A state ends in the length of the path so far, which is integrated along.
"""

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Float

from deeplinear.core import Array, Matrix, is_program, over, xp
from deeplinear.geometry._energies import AbstractSpectralEnergy
from deeplinear.geometry._metric import Metric, Stack
from deeplinear.geometry._pair_eigenvalues import eigenvalue_difference, pair_eigenvalue
from deeplinear.geometry._singular import gradients, orthonormalised, seen_gradient, singular_field, spectral_slopes
from deeplinear.models import AbstractLoss

State = tuple[Array, ...]


class AbstractChart(eqx.Module):
    """Coordinates of square matrices, of one or of several: then all arrays have the axis of these first."""

    @abc.abstractmethod
    def enter(self, point: Stack, length: Float[Array, "*lanes"]) -> State:
        """State of a matrix."""

    @abc.abstractmethod
    def field(self, state: State) -> State:
        """How the state moves."""

    @abc.abstractmethod
    def look(self, state: State) -> tuple[Stack, Float[Array, "*times modes"]]:
        """Matrix of a state and its singular values, largest first; of stacked states, too."""

    @abc.abstractmethod
    def logs(self, state: State) -> Float[Array, "*lanes modes"]:
        """Logarithms of the singular values, in any order."""

    @abc.abstractmethod
    def steepness(self, state: State) -> Float[Array, "*lanes"]:
        """Frobenius norm of the gradient of the energy."""


class MatrixChart(AbstractChart):
    """The matrix itself: one singular value decomposition for each evaluation. Values may coincide."""

    metric: Metric
    energy: AbstractLoss

    def enter(self, point: Stack, length: Float[Array, "*lanes"]) -> State:
        return (point, length)

    def field(self, state: State) -> State:
        velocity, speed = descent(self.metric, self.energy, state[0])
        return (velocity, speed)

    def look(self, state: State) -> tuple[Stack, Float[Array, "*times modes"]]:
        return state[0], xp.linalg.svd(state[0], compute_uv=False)

    def logs(self, state: State) -> Float[Array, "*lanes modes"]:
        return xp.log(xp.linalg.svd(state[0], compute_uv=False))

    def steepness(self, state: State) -> Float[Array, "*lanes"]:
        return xp.linalg.norm(gradients(self.energy, state[0]), axis=(-2, -1))

    def jacobian(self, state: State) -> Float[Array, "*lanes entries entries"]:
        """Derivative of the field as a matrix on the entries of the state; nothing depends on the length."""
        if state[0].ndim > 2:
            return over(lambda point, length: self.jacobian((point, length)))(*state)
        size = state[0].size
        units = xp.eye(size).reshape(size, *state[0].shape)
        velocities, speeds = descent_slopes(self.metric, self.energy, state[0], units)
        rows = xp.concatenate([velocities.reshape(size, size), speeds[:, None]], axis=1).T
        return xp.concatenate([rows, xp.zeros((size + 1, 1))], axis=1)


class SingularChart(AbstractChart):
    """Singular vectors and logarithms of the singular values, which must differ: products of matrices alone."""

    metric: Metric
    energy: AbstractLoss

    def enter(self, point: Stack, length: Float[Array, "*lanes"]) -> State:
        left, values, right_t = xp.linalg.svd(point)
        return (left, xp.log(values), xp.swapaxes(right_t, -1, -2), length)

    def field(self, state: State) -> State:
        return singular_field(self.metric, self.energy, *state[:3])

    def look(self, state: State) -> tuple[Stack, Float[Array, "*times modes"]]:
        left, logs, right, _ = state
        values = xp.exp(logs)
        return (left * values[..., None, :]) @ xp.swapaxes(right, -1, -2), -xp.sort(-values, axis=-1)

    def logs(self, state: State) -> Float[Array, "*lanes modes"]:
        return state[1]

    def steepness(self, state: State) -> Float[Array, "*lanes"]:
        left, logs, right, _ = state
        return xp.linalg.norm(seen_gradient(self.energy, left, xp.exp(logs), right), axis=(-2, -1))


class SpectralChart(AbstractChart):
    """Logarithms of the singular values with their vectors at rest: the flow of a spectral energy."""

    metric: Metric
    energy: AbstractSpectralEnergy
    left: Stack
    right: Stack

    def enter(self, point: Stack, length: Float[Array, "*lanes"]) -> State:
        turned = xp.swapaxes(self.left, -1, -2) @ point @ self.right
        return (xp.log(xp.diagonal(turned, axis1=-2, axis2=-1)), length)

    def field(self, state: State) -> State:
        logs, _ = state
        slopes = spectral_slopes(self.energy, xp.exp(logs))
        scaled = self.metric.scale * xp.exp((1 - 2 * self.metric.rate) * logs)
        return (-scaled * slopes, _root(xp.sum(scaled * xp.exp(logs) * slopes**2, axis=-1)))

    def look(self, state: State) -> tuple[Stack, Float[Array, "*times modes"]]:
        values = xp.exp(state[0])
        return (self.left * values[..., None, :]) @ xp.swapaxes(self.right, -1, -2), -xp.sort(-values, axis=-1)

    def logs(self, state: State) -> Float[Array, "*lanes modes"]:
        return state[0]

    def steepness(self, state: State) -> Float[Array, "*lanes"]:
        return xp.linalg.norm(spectral_slopes(self.energy, xp.exp(state[0])), axis=-1)


def settle(state: State) -> State:
    """Singular vectors made orthonormal again."""
    left, logs, right, length = state
    return (orthonormalised(left), logs, orthonormalised(right), length)


def descent(metric: Metric, energy: AbstractLoss, point: Stack) -> tuple[Stack, Float[Array, "*lanes"]]:
    r"""$-A_L[X](\nabla E(X))$ and its length $\sqrt{\langle\nabla E, A_L[X]\nabla E\rangle}$, unchecked.

    Its derivative in $X$, with $\tilde Y = U^\top YV$, $\tilde Z = U^\top\nabla E\,V$ and the divided differences $T$
    of the eigenvalues, is $-A_L[X](\nabla^2E\,Y) - UMV^\top$ with
    $M_{ik} = \sum_j T_{ijk}(\tilde YS + S\tilde Y^\top)_{ij}\tilde Z_{jk}
    + \sum_j\tilde Z_{ij}(S\tilde Y + \tilde Y^\top S)_{jk}T_{jki}$: singular values may coincide. There is none in the
    depth or in the energy.
    """
    return (_traced_descent() if is_program(metric, energy, point) else _descent)(metric, energy, point)


def _descent(metric: Metric, energy: AbstractLoss, point: Stack) -> tuple[Stack, Float[Array, "*lanes"]]:
    left, values, right_t = xp.linalg.svd(point)
    seen = xp.swapaxes(left, -1, -2) @ gradients(energy, point) @ xp.swapaxes(right_t, -1, -2)
    table = metric.scale * pair_eigenvalue(values[..., :, None], values[..., None, :], metric.rate)
    return -(left @ (table * seen) @ right_t), _root(xp.sum(table * seen**2, axis=(-2, -1)))


@functools.cache
def _traced_descent() -> Callable[..., Any]:
    """The same with its derivative in the matrix."""
    import jax

    def derivative(primals: Any, tangents: Any) -> Any:
        metric, energy, point = primals
        moved_metric, moved_energy, vector = tangents
        if any(leaf is not None for leaf in jax.tree.leaves((moved_metric, moved_energy))):
            raise NotImplementedError("The flow of an energy is differentiated in the matrix, not in depth or energy.")
        found = _descent(*primals)
        if vector is None:
            return found, tuple(map(xp.zeros_like, found))
        velocity, speed = descent_slopes(metric, energy, point, vector[None])
        return found, (velocity[0], speed[0])

    traced = eqx.filter_custom_jvp(_descent)
    traced.def_jvp(derivative)
    return traced


def descent_slopes(
    metric: Metric, energy: AbstractLoss, point: Matrix, vectors: Float[Array, "many size size"]
) -> tuple[Float[Array, "many size size"], Float[Array, " many"]]:
    """Derivatives of `descent` in many directions."""
    left, values, right_t = xp.linalg.svd(point)
    seen = left.T @ energy.gradient(point) @ right_t.T
    table = metric.scale * pair_eigenvalue(values[:, None], values, metric.rate)
    split = metric.scale * eigenvalue_difference(values, metric.rate)
    y = left.T @ vectors @ right_t.T
    outer, inner = y * values, values[:, None] * y
    turned = xp.einsum("ijk,nij,jk->nik", split, outer + xp.swapaxes(outer, 1, 2), seen)
    turned = turned + xp.einsum("ij,njk,jki->nik", seen, inner + xp.swapaxes(inner, 1, 2), split)
    bent = left.T @ over(lambda vector: energy.curvature(point, vector))(vectors) @ right_t.T
    slope = xp.sum(2 * table * seen * bent + seen * turned, axis=(1, 2))
    speed = _root(xp.sum(table * seen**2))
    rise = xp.where(speed > 0, slope / (2 * xp.where(speed > 0, speed, 1.0)), 0.0)
    return -(left @ (table * bent + turned) @ right_t), rise


def _root(power: Float[Array, "*lanes"]) -> Float[Array, "*lanes"]:
    """Square root whose derivative at zero is zero."""
    positive = power > 0
    return xp.where(positive, xp.sqrt(xp.where(positive, power, 1.0)), 0.0)
