r"""Phase maps: kernel distance and loss over relative scale, absolute scale and time, all by the closed form."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

from deeplinear.core import (
    Array,
    Matrix,
    are_tied,
    as_array,
    check_finite,
    check_result,
    check_shape,
    check_x64,
    entry,
    formula,
    full_svd,
    is_concrete,
    is_program,
    over,
    refused_derivative,
    scan,
    stop_gradient,
    xp,
)
from deeplinear.exact._growing import learnt_factor
from deeplinear.exact._kernel import kernel_distance
from deeplinear.exact._riccati import Eigensystem, correlations_of, eigensystem, propagated_at, stacked
from deeplinear.models import layer_strengths


class PhaseMap(eqx.Module):
    r"""Kernel distance and loss of networks with given $\lambda$ and absolute scale at given times.

    Attributes:
        lams: $\lambda$.
        scales: $\|W_2(0) W_1(0)\|_F$.
        times: Times.
        kernel_distance: Distance of the tangent kernel from that of the start.
        loss: Reduced loss $\tfrac12\|W_2 W_1 - \Sigma\|_F^2$.
    """

    lams: Float[Array, " lams"]
    scales: Float[Array, " scales"]
    times: Float[Array, " times"]
    kernel_distance: Float[Array, "times scales lams"]
    loss: Float[Array, "times scales lams"]


@entry
def phase_map(
    target: object, directions: object, lams: Any, scales: Any, times: Any, *, match_det: bool = True
) -> PhaseMap:
    r"""Kernel distance and reduced loss over a grid of relative and absolute scales.

    The start of a cell is $W_2(0) W_1(0) = \alpha\,U_0 S_0 V_0^\top / \|S_0\|$ with the singular vectors and the ratios
    of singular values of `directions`, $\lambda$-balanced; the hidden width is the smaller of the two others. The flow
    on the task is exact at every time, so that late times cost no more than early ones.

    Args:
        target: $\Sigma$, (out, in), on whitened inputs; wide, square or tall.
        directions: $U_0 S_0 V_0^\top$ up to scale: one matrix for the whole map, (out, in), or one for each cell,
            (scales, lams, out, in).
        lams: Values of $\lambda$.
        scales: Absolute scales $\alpha > 0$.
        times: Times, at least 0.
        match_det: In a square network give the start the sign of the determinant of the target, by turning its
            smallest mode round. At $\lambda = 0$ this sign is conserved, and the wrong one ends at a saddle.

    Returns:
        Both quantities with axes (times, scales, lams).

    Example:
        >>> found = phase_map(jnp.eye(2), jnp.eye(2), [0.0, 4.0], [0.1, 1.0], [0.0, 100.0])
        >>> found.loss[:, :, 0].round(6)
        array([[0.863579, 0.085786],
               [0.      , 0.      ]])
    """
    where = "phase_map"
    check_x64(where)
    sigma, matrices = xp.asarray(target, dtype=float), xp.asarray(directions, dtype=float)
    check_shape(where, "target", sigma, (None, None))
    check_finite(where, "target", sigma)
    check_finite(where, "directions", matrices)
    axes = [_axis(where, name, given) for name, given in (("lams", lams), ("scales", scales), ("times", times))]
    relative, absolute, when = axes
    if is_concrete(absolute) and not np.all(np.asarray(absolute) > 0):
        raise ValueError(
            f"{where}: scales must be greater than 0, but the smallest is {np.min(np.asarray(absolute)):g}."
        )
    if is_concrete(when) and not np.all(np.asarray(when) >= 0):
        raise ValueError(f"{where}: times must be at least 0, but the smallest is {np.min(np.asarray(when)):g}.")
    if matrices.ndim == 2:
        check_shape(where, "directions", matrices, sigma.shape)
    else:
        check_shape(where, "directions", matrices, (absolute.shape[0], relative.shape[0], *sigma.shape))
    if is_concrete(matrices) and not np.all(np.any(np.asarray(matrices), axis=(-2, -1))):
        raise ValueError(f"{where}: directions must not be zero, but they are; they have no singular vectors.")
    distance, loss = _map(sigma, matrices, relative, absolute, when, match_det and sigma.shape[0] == sigma.shape[1])
    return check_result(where, PhaseMap(relative, absolute, when, distance, loss))


def _axis(where: str, name: str, given: Any) -> Float[Array, " values"]:
    values = xp.atleast_1d(as_array(given, float))
    check_shape(where, name, values, (None,))
    check_finite(where, name, values)
    return values


def _turned_round(matrices: Float[Array, "*batch size size"], used: Bool[Array, "*batch"]) -> Array:
    """Square matrices with their smallest mode turned round."""

    def one(matrix: Matrix, used: Array) -> Matrix:
        left, values, right_t = full_svd(matrix)
        turned = matrix - 2 * values[-1] * xp.outer(left[:, -1], right_t[-1])
        message = "phase_map: the smallest mode of directions, which is turned round, must be one, but is several."
        return refused_derivative(turned, used & are_tied(values[-2:], (1, 1)), message)

    flat = over(one)(matrices.reshape(-1, *matrices.shape[-2:]), xp.ravel(used))
    return flat.reshape(matrices.shape)


@formula(static_argnums=5)
def _map(
    target: Matrix,
    directions: Float[Array, "..."],
    lams: Float[Array, " lams"],
    scales: Float[Array, " scales"],
    times: Float[Array, " times"],
    match_det: bool,
) -> tuple[Float[Array, "times scales lams"], Float[Array, "times scales lams"]]:
    inp = target.shape[1]
    if match_det:
        sign = xp.linalg.slogdet(target)[0] * xp.linalg.slogdet(directions)[0]
        directions = xp.where(sign[..., None, None] < 0, _turned_round(directions, sign < 0), directions)
    directions = directions / xp.linalg.norm(directions, axis=(-2, -1), keepdims=True)
    left, values, right_t = xp.linalg.svd(stop_gradient(directions), full_matrices=False)

    def start(direction: Matrix, u: Matrix, s: Array, v_t: Matrix, scale: Array, lam: Array) -> Array:
        first, second = layer_strengths(*stop_gradient((scale * s, lam)))
        return learnt_factor("phase_map", stacked((first[:, None] * v_t, u * second)), scale * direction, lam)

    one = None if directions.ndim == 2 else 0
    over_lams = over(start, in_axes=(one, one, one, one, None, 0))
    starts = over(over_lams, in_axes=(one, one, one, one, 0, None))(directions, left, values, right_t, scales, lams)
    systems = over(lambda lam: eigensystem(target, lam))(lams)

    def curve(factor: Array, system: Eigensystem) -> tuple[Array, Array]:
        reached = correlations_of(propagated_at(factor, system, times), inp)
        loss = 0.5 * xp.sum((reached.product - target) ** 2, axis=(-2, -1))
        return kernel_distance(correlations_of(factor[..., None, :, :], inp), reached), loss

    def column(none: None, item: tuple[Array, Eigensystem]) -> tuple[None, tuple[Array, Array]]:
        factors, system = item
        return none, over(lambda one: curve(one, system))(factors) if is_program(factors) else curve(factors, system)

    # One relative scale after the other: memory is that of one column of the map.
    _, found = scan(column, None, (xp.swapaxes(starts, 0, 1), systems))
    return tuple(xp.moveaxis(part, 0, -1).swapaxes(0, 1) for part in found)
