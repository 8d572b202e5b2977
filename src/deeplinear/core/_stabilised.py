r"""A stabilised explicit Runge–Kutta method of order 4 for Jacobians with real negative spectrum.

Gradient flow has the Jacobian $-\nabla^2\mathcal L$: symmetric, and negative near a minimum. An ordinary explicit
pair is held to steps $h \approx 3.5/\rho$ there, whatever its tolerance. This family has, for every number of stages
$s$, the equal-ripple stability polynomial $R_s(z) = e^z + O(z^5)$ with $|R_s| \le 0.95$ on $[-\ell_s, 0]$ away from
the origin, $\ell_s \to 0.353\,s^2$. A step costs $s + 2 \approx 1.7\sqrt{h\rho} + 2$ gradients and no linear algebra.

Stages are damped Chebyshev polynomials, which keeps rounding small for hundreds of stages, and $R_s$ is a combination
of them. Two further evaluations that vanish for linear equations correct the non-linear order conditions. The
derivation is in `tools/generate_stabilised.py`, which makes the table of coefficients.
"""

import functools
import importlib.resources
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from deeplinear.core._ode import AbstractField, AbstractIntegrator, Scalar, Step, Vector
from deeplinear.core._types import Array

ROUNDING = 0.2
"""Rounding of one step is about this times $s^2$ units in the last place, relative to the state."""


Carry = tuple[Vector, ...]
"""The stage before the last, the last, and what is summed up over stages."""


class Table(NamedTuple):
    """Coefficients of all rows; those of row `i` stand at `offset[i] + k` for stage `k`."""

    stages: np.ndarray
    interval: np.ndarray
    first: np.ndarray
    second: np.ndarray
    mixing: np.ndarray
    offset: np.ndarray
    momentum: np.ndarray
    slope: np.ndarray
    solution: np.ndarray
    error: np.ndarray
    force: np.ndarray


@functools.cache
def stabilised_table() -> Table:
    """The table of coefficients, read once. The recurrence of the stages is completed from its closed form."""
    with (importlib.resources.files("deeplinear.core") / "stabilised.npz").open("rb") as file:
        stored = np.load(file)
        data = {name: stored[name] for name in stored.files}
    stages, interval, offset = data["s"], data["l"], data["off"]
    momentum, slope = np.zeros(offset[-1]), np.zeros(offset[-1])
    for s, length, begin in zip(stages, interval, offset[:-1], strict=True):
        shift = 1 + 0.5 * (data["kappa"] / s) ** 2
        scale = (1 + shift) / length
        angle = np.arccosh(shift)
        chebyshev = np.cosh(np.arange(s + 1) * angle)
        slope[begin + 1] = scale / shift
        momentum[begin + 2 : begin + s + 1] = chebyshev[:-2] / chebyshev[2:]
        slope[begin + 2 : begin + s + 1] = 2 * scale * chebyshev[1:-1] / chebyshev[2:]
    force = np.stack([data["n0"], data["n1"]], axis=1)
    return Table(
        stages, interval, data["p"], data["q"], data["v"], offset[:-1], momentum, slope, data["d"], data["e"], force
    )


class Stabilised(AbstractIntegrator):
    """Stabilised explicit method of order 4 with as many stages as the step needs, from 5 to 600.

    For autonomous equations whose Jacobian has its spectrum near the negative real axis, such as gradient flows; mildly
    positive eigenvalues (a saddle being left) are followed to the accuracy of the method.

    Attributes:
        axis: Name of the axis of `jax.vmap` along which steps run side by side, if they do. Each takes the stages it
            needs; those with fewer wait at the beginning and rest at the end, so that all loops have common bounds.
    """

    axis: str | None = eqx.field(static=True, default=None)

    @property
    def error_order(self) -> int:
        return 4

    @property
    def stability(self) -> float:
        return float("inf")

    def largest_step(self, rho: Scalar, tolerance: Scalar) -> Scalar:
        longest = float(stabilised_table().interval[-1])
        sharp = 0.35 * tolerance / (ROUNDING * jnp.finfo(rho.dtype).eps)
        return jnp.clip(sharp, 10.0, longest) / jnp.maximum(rho, jnp.finfo(rho.dtype).tiny)

    def _most(self, count: Int[Array, ""]) -> Int[Array, ""]:
        return count if self.axis is None else jax.lax.pmax(count, self.axis)

    def step(self, field: AbstractField, y: Vector, f: Vector, h: Scalar, rho: Scalar, tolerance: Scalar) -> Step:
        rows = stabilised_table()
        row = jnp.searchsorted(jnp.asarray(rows.interval, y.dtype), h * rho)
        row = jnp.minimum(row, len(rows.stages) - 1)
        stages, first, second, begin = (
            jnp.asarray(column)[row] for column in (rows.stages, rows.first, rows.second, rows.offset)
        )
        weights = jnp.asarray(
            np.stack([rows.momentum, rows.slope, rows.solution, rows.error, *rows.force.T], axis=1), y.dtype
        )

        def update(
            k: Int[Array, ""], carry: tuple[Vector, ...], slope: Vector, null: list[Vector]
        ) -> tuple[Vector, ...]:
            """Stage k from the two before it; the solution and the error estimate are summed up on the way.

            Weights are zero for numbers that are no stage of this step: nothing moves then.
            """
            old, now, solution, error = carry
            inside = (k >= 1) & (k <= stages)
            momentum, step, weight, estimate, *force = jnp.where(inside, weights[begin + jnp.clip(k, 1, stages)], 0.0)
            for part, share in zip(null, force, strict=False):
                slope = slope + share * part
            new = now + momentum * (now - old) + step * h * slope
            return now, new, solution + weight * new, error + estimate * new

        # Stages 2 to `second`. Who has fewer of them than others begins later, at stage 1, from zero and with the given
        # slope, as the others do: another program may have computed it, with other rounding.
        longest = self._most(second)
        late = longest - second

        def early(j: Int[Array, ""], carry: Carry) -> Carry:
            *core, kept, kept_slope = carry
            slope = jnp.where(j - late == 1, f, field(y + core[1]))
            here = j - late - 1 == first
            kept, kept_slope = jnp.where(here, core[1], kept), jnp.where(here, slope, kept_slope)
            return (*update(j - late, tuple(core), slope, []), kept, kept_slope)

        zero = jnp.zeros_like(y)
        start = update(jnp.where(late > 0, 0, 1), (zero, zero, zero, zero), f, [])
        *core, kept, kept_slope = jax.lax.fori_loop(2, longest + 1, early, (*start, zero, zero))
        # Two evaluations whose linear parts cancel, at combinations of the stages `first` and `second`.
        mixing = jnp.asarray(rows.mixing, y.dtype)[row]
        points = jnp.stack([core[1], *(mixing[i, 0] * kept + mixing[i, 1] * core[1] for i in range(2))])
        slope, *mixed = jax.lax.map(lambda point: field(y + point), points)
        null = [mixed[i] - f - mixing[i, 0] * (kept_slope - f) - mixing[i, 1] * (slope - f) for i in range(2)]

        def after(j: Int[Array, ""], carry: Carry) -> Carry:
            return update(second + j, carry, field(y + carry[1]), null)

        core = update(second + 1, tuple(core), slope, null)
        _, _, solution, error = jax.lax.fori_loop(2, self._most(stages - second) + 1, after, core)
        new = y + solution
        return Step(new, field(new), error, stages + 2)
