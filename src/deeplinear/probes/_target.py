"""Probes that compare the product with a target: alignment of modes, strengths, errors."""

import equinox as eqx
import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    Matrix,
    Params,
    check_finite,
    check_shape,
    entry,
    frobenius,
    is_concrete,
    svd,
    xp,
)
from deeplinear.models import Problem
from deeplinear.probes._base import AbstractProbe, Time, check_nonzero


def _target(where: str, value: object) -> Matrix:
    target = xp.asarray(value, dtype=float)
    check_shape(where, "target", target, (None, None))
    check_finite(where, "target", target)
    return target


def _vectors(matrix: Matrix, side: str) -> Float[Array, "size modes"]:
    """Singular vectors of one side in columns, those of the largest singular value first."""
    left, _, right_t = svd(matrix)
    return left if side == "left" else right_t.T


def _alignment(
    where: str, side: str, matrix: Matrix, goal: Float[Array, "size modes"], shape: tuple[int, ...]
) -> Float[Array, " modes"]:
    """Absolute cosines between the singular vectors of a matrix on one side and given ones, mode by mode."""
    check_shape(where, "product", matrix, shape)
    return xp.abs(xp.sum(_vectors(matrix, side) * goal, axis=0))


class LeftAlignment(AbstractProbe):
    r"""Alignment $|u_k^\top u_k^\star|$ of left singular vectors of the product with those of a target.

    Modes are paired by the order of their singular values, largest first. Vectors of repeated or zero singular
    values are arbitrary within their space: compare such modes by `ModeStrengths`.

    Args:
        target: Matrix whose singular vectors are the goal, (out, in).
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2)))
        >>> LeftAlignment(jnp.diag(jnp.array([2.0, 1.0])))(0.0, (jnp.diag(jnp.array([1.0, 2.0])),), problem).tolist()
        [0.0, 0.0]
    """

    vectors: Float[Array, "size modes"]
    shape: tuple[int, ...] = eqx.field(static=True)
    name: str = eqx.field(static=True)

    @entry
    def __init__(self, target: object, *, name: str = "left_alignment") -> None:
        goal = _target("LeftAlignment", target)
        self.vectors, self.shape, self.name = _vectors(goal, "left"), goal.shape, name

    @property
    def dims(self) -> tuple[str, ...]:
        return ("mode",)

    @entry
    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, " modes"]:
        return _alignment("LeftAlignment", "left", problem.product(params), self.vectors, self.shape)


class RightAlignment(AbstractProbe):
    r"""Alignment $|v_k^\top v_k^\star|$ of right singular vectors of the product with those of a target.

    As `LeftAlignment`, on the side of the inputs.

    Args:
        target: Matrix whose singular vectors are the goal, (out, in).
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2)))
        >>> RightAlignment(jnp.diag(jnp.array([2.0, 1.0])))(0.0, (jnp.diag(jnp.array([-3.0, 1.0])),), problem).tolist()
        [1.0, 1.0]
    """

    vectors: Float[Array, "size modes"]
    shape: tuple[int, ...] = eqx.field(static=True)
    name: str = eqx.field(static=True)

    @entry
    def __init__(self, target: object, *, name: str = "right_alignment") -> None:
        goal = _target("RightAlignment", target)
        self.vectors, self.shape, self.name = _vectors(goal, "right"), goal.shape, name

    @property
    def dims(self) -> tuple[str, ...]:
        return ("mode",)

    @entry
    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, " modes"]:
        return _alignment("RightAlignment", "right", problem.product(params), self.vectors, self.shape)


class ModeStrengths(AbstractProbe):
    r"""Strengths $u_k^{\star\top} W v_k^\star$ of the product in the singular modes of a target.

    Equal to the target's singular values at the target. Needs no singular vectors of the product; for repeated target
    values only the sum over the repeated modes is meaningful.

    Args:
        target: Matrix that defines the modes, (out, in).
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2)))
        >>> ModeStrengths(jnp.diag(jnp.array([2.0, 1.0])))(0.0, (jnp.diag(jnp.array([0.5, 0.1])),), problem).tolist()
        [0.5, 0.1]
    """

    left: Float[Array, "out modes"]
    right: Float[Array, "modes inp"]
    name: str = eqx.field(static=True)

    @entry
    def __init__(self, target: object, *, name: str = "mode_strengths") -> None:
        self.left, _, self.right = xp.linalg.svd(_target("ModeStrengths", target), full_matrices=False)
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ("mode",)

    @entry
    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, " modes"]:
        matrix = problem.product(params)
        check_shape("ModeStrengths", "product", matrix, (self.left.shape[0], self.right.shape[1]))
        return xp.sum(self.left * (matrix @ self.right.T), axis=0)


class ReconstructionError(AbstractProbe):
    r"""Relative distance $\|W - W^\star\|_F / \|W^\star\|_F$ of the product to a target.

    Args:
        target: $W^\star$, not zero.
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2)))
        >>> float(ReconstructionError(jnp.eye(2))(0.0, (jnp.zeros((2, 2)),), problem))
        1.0
    """

    target: Matrix
    name: str = eqx.field(static=True)

    @entry(sized=("target",))
    def __init__(self, target: object, *, name: str = "reconstruction_error") -> None:
        self.target = _target("ReconstructionError", target)
        check_nonzero("ReconstructionError", "target", self.target)
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ()

    @entry
    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, ""]:
        matrix = problem.product(params)
        check_shape("ReconstructionError", "target", self.target, matrix.shape)
        return frobenius(matrix - self.target) / xp.linalg.norm(self.target)


class HeldOutError(AbstractProbe):
    r"""Root mean square of $w_{ij} - w^\star_{ij}$ over the entries that were **not** observed.

    Args:
        target: Ground truth, (out, in); ignored, and may be NaN, where observed.
        mask: True where observed, as for `Completion`; at least one entry must be unobserved.
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2)))
        >>> float(HeldOutError(3 * jnp.ones((2, 2)), jnp.eye(2))(0.0, (jnp.eye(2),), problem))
        3.0
    """

    target: Matrix
    hidden: Matrix
    name: str = eqx.field(static=True)

    @entry
    def __init__(self, target: object, mask: object, *, name: str = "held_out_error") -> None:
        values, seen = xp.asarray(target, dtype=float), xp.asarray(mask)
        check_shape("HeldOutError", "target", values, (None, None))
        check_shape("HeldOutError", "mask", seen, values.shape)
        if is_concrete(seen):
            if not np.all(np.isin(np.asarray(seen), (0, 1))):
                raise ValueError("HeldOutError: mask must hold only 0 and 1 (or False and True).")
            if np.all(np.asarray(seen)):
                raise ValueError("HeldOutError: mask must leave at least one entry unobserved, but marks them all.")
        self.hidden = 1.0 - seen.astype(values.dtype)
        self.target = xp.where(seen.astype(bool), 0.0, values)
        check_finite("HeldOutError", "target (where not observed)", self.target)
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ()

    @entry
    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, ""]:
        matrix = problem.product(params)
        check_shape("HeldOutError", "target", self.target, matrix.shape)
        return frobenius(self.hidden * (matrix - self.target)) / xp.sqrt(xp.sum(self.hidden))
