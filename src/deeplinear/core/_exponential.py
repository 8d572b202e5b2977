r"""An exponential Rosenbrock method of order 4 with dense linear algebra, for symmetric Jacobians.

With $J = f'(y)$ and $\varphi_k(z) = \int_0^1 e^{(1-\theta)z}\theta^{k-1}/(k-1)!\,\mathrm d\theta$ a step solves the
linear part of $y' = f(y)$ exactly. Its length is bound neither by stability nor by the slowness of a plateau, only by
how fast $J$ changes:

$$U = y + \tfrac34 h\,\varphi_1(\tfrac34 hJ) f,\quad D = f(U) - f - J(U - y),\quad
y_1 = y + h\,\varphi_1(hJ) f + \tfrac{32}{9} h\,\varphi_3(hJ) D.$$

The non-linear remainder along the step is $a\theta^2 + b\theta^3 + \dots$; the node $\tfrac34$ makes the quadratic rule
exact for $b$ at $J = 0$. From the remainder at the end of the step $b$ is known, and with it the error
$h\,(6\varphi_4 - \tfrac32\varphi_3)(hJ)\,b$. One eigen-decomposition a step serves all of these functions.
"""

import math

import jax
from jaxtyping import Float

from deeplinear.core._ode import AbstractField, AbstractIntegrator, Scalar, Step, Vector
from deeplinear.core._types import Array
from deeplinear.core._xp import stop_gradient, while_loop, xp


def phi(order: int, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""$\varphi_k(z)$ for real $z$ and $k \ge 1$: by recursion from `expm1`, by its series for $|z| \le 1$.

    Example:
        >>> [round(float(phi(k, jnp.asarray(0.0))), 6) for k in (1, 3, 4)]
        [1.0, 0.166667, 0.041667]
    """
    near = xp.abs(z) <= 1.0
    away = xp.where(near, 1.0, z)
    value = xp.expm1(away) / away
    for k in range(1, order):
        value = (value - 1.0 / math.factorial(k)) / away
    close = xp.where(near, z, 0.0)
    series = xp.zeros_like(z)
    for term in range(20, -1, -1):
        series = series * close + 1.0 / math.factorial(term + order)
    return xp.where(near, series, value)


class Exponential(AbstractIntegrator):
    """Exponential Rosenbrock method of order 4 by dense eigen-decompositions: for up to some hundred weights.

    Gradient evaluations are counted with the Hessian as two for each weight.
    """

    @property
    def error_order(self) -> int:
        return 4

    @property
    def stability(self) -> float:
        return float("inf")

    def largest_step(self, rho: Scalar, tolerance: Scalar) -> Scalar:
        return xp.full_like(rho, xp.inf)

    def step(self, field: AbstractField, y: Vector, f: Vector, h: Scalar, rho: Scalar, tolerance: Scalar) -> Step:
        size = y.shape[0]
        _, jacobian = field.linearize(y)
        dense = jax.lax.map(jacobian, xp.eye(size, dtype=y.dtype), batch_size=min(size, 32))
        values, vectors = xp.linalg.eigh(0.5 * (dense + dense.T))

        # Entries that the linear flow from f cannot reach stay as they are, to the last bit: eigenvectors of equal
        # eigenvalues mix coordinates, and rounding would couple what is decoupled.
        linked = stop_gradient(dense) != 0

        def reach(state: tuple[Array, Array]) -> tuple[Array, Array]:
            wider = state[0] | xp.any(linked & state[0], axis=1)
            return wider, xp.any(wider != state[0])

        moves, _ = while_loop(lambda state: state[1], reach, (f != 0, xp.ones((), bool)))

        def apply(weights: Vector, x: Vector) -> Vector:
            return xp.where(moves | (x != 0), vectors @ (weights * (vectors.T @ x)), 0.0)

        def remainder(point: Vector, slope: Vector) -> Vector:
            return slope - f - dense @ (point - y)

        z = h * values
        middle = y + 0.75 * h * apply(phi(1, 0.75 * z), f)
        inside = remainder(middle, field(middle))
        new = y + h * apply(phi(1, z), f) + (32.0 / 9.0) * h * apply(phi(3, z), inside)
        slope = field(new)
        bend = 4.0 * (remainder(new, slope) - (16.0 / 9.0) * inside)
        error = h * apply(6.0 * phi(4, z) - 1.5 * phi(3, z), bend)
        # Where the linear part vanishes the leading error does too; a hundredth of the remainder stands in for it.
        error = xp.abs(error) + 0.01 * h * xp.abs(apply(phi(1, z), bend))
        return Step(new, slope, error, xp.asarray(2 * size + 3))
