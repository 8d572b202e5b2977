"""One-step integrators of autonomous equations $y' = f(y)$ on vectors.

An integrator is a pure `step`; who calls it decides on step sizes. Two families here:

* `RungeKutta`: explicit pairs. Written as a loop over stages, because the caller needs what diffrax keeps to itself:
  the derivative at the end of the step, which error control looks at and the next step reuses.
* `Implicit`: diffrax's own implicit solvers, taken as they are. Diffrax is imported when such a step is traced.

The stabilised method for symmetric Jacobians is in `_stabilised.py`.
"""

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from deeplinear.core._coefficients import DOPRI8, TSIT5, Coefficients
from deeplinear.core._types import Array

Vector = Float[Array, " size"]
Scalar = Float[Array, ""]


class AbstractField(eqx.Module):
    """Right-hand side of $y' = f(y)$ together with its derivative."""

    @abc.abstractmethod
    def __call__(self, y: Vector) -> Vector:
        """$f(y)$."""

    @abc.abstractmethod
    def linearize(self, y: Vector) -> tuple[Vector, Callable[[Vector], Vector]]:
        """$f(y)$ and the map $v \\mapsto f'(y) v$."""


class Step(NamedTuple):
    """One step of an integrator: new state, its derivative, local error, cost in calls of $f$."""

    y: Vector
    f: Vector
    error: Vector
    evaluations: Int[Array, ""]


class AbstractIntegrator(eqx.Module):
    """A one-step method with an error estimate."""

    @property
    @abc.abstractmethod
    def error_order(self) -> int:
        """Power $k$ with which the estimated local error falls, $O(h^k)$."""

    @property
    @abc.abstractmethod
    def stability(self) -> float:
        """Length of the stable interval on the negative real axis in units of $h\\rho$; infinite if it adapts."""

    @abc.abstractmethod
    def largest_step(self, rho: Scalar, tolerance: Scalar) -> Scalar:
        """Largest step the method should take at spectral radius `rho`; infinite if it has no limit of its own."""

    @abc.abstractmethod
    def step(self, field: AbstractField, y: Vector, f: Vector, h: Scalar, rho: Scalar, tolerance: Scalar) -> Step:
        """Step of size `h` from `y`, where `f` is the derivative and `rho` bounds the spectral radius of $f'$.

        Methods that solve equations inside a step solve them to `tolerance`, relative to the size of the state.
        """


LONG = 1000
"""Numbers in a state above which slopes are combined by a product. Members that `ensemble` by itself puts side by side
on a CPU have no more."""


class RungeKutta(AbstractIntegrator):
    """Explicit embedded pair whose last stage is the new state (first same as last).

    Attributes:
        coefficients: Of its stages and of the error estimate.
        order: Power of the step size in the estimated local error.
        interval: Length of its stable interval on the negative real axis.
    """

    coefficients: Coefficients = eqx.field(static=True, repr=False)
    order: int = eqx.field(static=True)
    interval: float = eqx.field(static=True)

    @property
    def error_order(self) -> int:
        return self.order

    @property
    def stability(self) -> float:
        return self.interval

    def largest_step(self, rho: Scalar, tolerance: Scalar) -> Scalar:
        return jnp.full_like(rho, jnp.inf)

    def step(self, field: AbstractField, y: Vector, f: Vector, h: Scalar, rho: Scalar, tolerance: Scalar) -> Step:
        lower, weights_of_error = tableau(self)
        stages = len(lower)
        weights = jnp.asarray(lower, y.dtype)

        def stage(i: Int[Array, ""], slopes: Float[Array, "stages size"]) -> Float[Array, "stages size"]:
            return slopes.at[i].set(field(y + h * _combination(weights[i], slopes)))

        slopes = jnp.zeros((stages, y.shape[0]), y.dtype).at[0].set(f)
        slopes = jax.lax.fori_loop(1, stages, stage, slopes)
        new = y + h * _combination(weights[-1], slopes)
        error = h * _combination(jnp.asarray(weights_of_error, y.dtype), slopes)
        return Step(new, slopes[-1], error, jnp.asarray(stages - 1))


class Tableau(NamedTuple):
    """Coefficients of an explicit pair: row `i` of `lower` makes stage `i`, the last of which is the new state."""

    lower: np.ndarray
    error: np.ndarray


def tableau(integrator: RungeKutta) -> Tableau:
    """Coefficients of an explicit pair."""
    stages = len(integrator.coefficients.error)
    lower = np.zeros((stages, stages))
    for row, coefficients in enumerate(integrator.coefficients.rows):
        lower[row + 1, : row + 1] = coefficients
    return Tableau(lower, np.asarray(integrator.coefficients.error))


def _combination(weights: Float[Array, " stages"], slopes: Float[Array, "stages size"]) -> Vector:
    """Sum of weighted slopes.

    On a CPU a sum over the first axis was measured to take eight times as long as a product at 20,000 numbers, and a
    product ten times as long as a sum for small networks under `jax.vmap`.
    """
    if slopes.shape[1] > LONG and jax.default_backend() == "cpu":
        return weights @ slopes
    return jnp.sum(weights[:, None] * slopes, axis=0)


def tsit5() -> RungeKutta:
    """Tsitouras' explicit pair of order 5(4): six gradients a step."""
    return RungeKutta(TSIT5, 5, 3.5)


def dopri8() -> RungeKutta:
    """Dormand and Prince's explicit pair of order 8(7): thirteen gradients a step."""
    return RungeKutta(DOPRI8, 8, 5.1)


class Implicit(AbstractIntegrator):
    """Kværnø's implicit method of order 5(4), with dense linear algebra: for networks of up to some hundred weights."""

    @property
    def error_order(self) -> int:
        return 5

    @property
    def stability(self) -> float:
        return float("inf")

    def largest_step(self, rho: Scalar, tolerance: Scalar) -> Scalar:
        return jnp.full_like(rho, jnp.inf)

    def step(self, field: AbstractField, y: Vector, f: Vector, h: Scalar, rho: Scalar, tolerance: Scalar) -> Step:
        import diffrax
        import optimistix

        inner = jnp.maximum(0.01 * tolerance, 100 * jnp.finfo(y.dtype).eps)
        finder = optimistix.Chord(inner, inner * jnp.linalg.norm(y))  # pyright: ignore[reportArgumentType]
        solver = diffrax.Kvaerno5(root_finder=finder)
        term = diffrax.ODETerm(lambda t, state, args: field(state))
        start, end = jnp.zeros_like(h), h
        state = solver.init(term, start, end, y, None)
        new, error, _, _, result = solver.step(term, start, end, y, None, state, False)
        failed = result != diffrax.RESULTS.successful
        new = jnp.where(failed, jnp.nan, new)
        assert error is not None
        return Step(new, field(new), error, jnp.asarray(0))


def kvaerno5() -> Implicit:
    """Kværnø's implicit pair of order 5(4). Its cost is linear algebra: gradient evaluations are not counted."""
    return Implicit()
