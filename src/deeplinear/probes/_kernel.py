"""Probes of the change of the tangent kernel, exact to small movements and free of Kronecker products."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Float

from deeplinear.core import (
    Array,
    Matrix,
    Params,
    check_finite,
    check_shape,
    differentiable,
    entry,
    formula,
    frobenius,
    is_concrete,
    xp,
)
from deeplinear.models import Problem
from deeplinear.probes._base import AbstractProbe, Time, check_nonzero, network_of


def _grams(layers: Params, reference: Params) -> tuple[list[Matrix], list[Matrix], list[Matrix]]:
    r"""$P_l^\top P_l$ for $P_0 = I$, $P_l = W_l P_{l-1}$, $l < L$: at the reference, its change since, and now.

    Changes are carried through the products as changes, $\Delta P_l = \Delta W_l P_{l-1} + W_l^{\mathrm{ref}}\Delta
    P_{l-1}$, so a movement of relative size $10^{-14}$ keeps its digits; subtracting the products would leave two.
    """
    old = xp.eye(layers[0].shape[1], dtype=layers[0].dtype)
    new, moved = old, xp.zeros_like(old)
    before, change, now = [old], [moved], [new]
    for layer, origin in zip(layers[:-1], reference[:-1], strict=True):
        moved = (layer - origin) @ new + origin @ moved
        old, new = origin @ old, layer @ new
        before.append(old.T @ old)
        change.append(moved.T @ new + old.T @ moved)
        now.append(new.T @ new)
    return before, change, now


def _coordinates(families: Sequence[list[Matrix]]) -> list[Matrix]:
    """Families of matrices as columns of coordinates in one orthonormal basis of all of them."""
    columns = xp.stack([item.ravel() for family in families for item in family], axis=1)
    return xp.split(xp.linalg.qr(columns, mode="r"), len(families), axis=1)


def _columns(families: Sequence[list[Matrix]]) -> list[Matrix]:
    """Families of matrices as columns of their entries."""
    return [xp.stack([item.ravel() for item in family], axis=1) for family in families]


class _Kernels(NamedTuple):
    """Tangent kernel at the reference, its change since, and now, in coordinates that keep Frobenius norms."""

    before: Matrix
    change: Matrix
    now: Matrix


def _kernels(
    params: Params, reference: Params, coordinates: Callable[[Sequence[list[Matrix]]], list[Matrix]]
) -> _Kernels:
    r"""Tangent kernels $K = \sum_l T_l \otimes S_l$ without Kronecker products.

    All $T$ lie in a space of at most $3L$ dimensions, all $S$ in another. In orthonormal bases of the two a sum of
    tensor products is a matrix of at most $3L \times 3L$ entries with the same norm; inner products equal
    $\sum_{lm} \mathrm{tr}(T_l T'_m)\,\mathrm{tr}(S_l S'_m)$ without the cancellation of this sum. The change is
    $\sum_l \Delta T_l \otimes S_l + T_l^{\mathrm{ref}} \otimes \Delta S_l$.

    Derivatives take the entries themselves for coordinates, because bases of dependent matrices have none.
    """
    s_before, s_change, s_now = coordinates(_grams(params, reference))
    mirrored = _grams(tuple(w.T for w in reversed(params)), tuple(w.T for w in reversed(reference)))
    t_before, t_change, t_now = coordinates([family[::-1] for family in mirrored])
    return _Kernels(
        before=t_before @ s_before.T,
        change=t_change @ s_now.T + t_before @ s_change.T,
        now=t_now @ s_now.T,
    )


@formula
def _reference_kernel(layers: Params) -> Matrix:
    return _kernels(layers, layers, _coordinates).before


def _kernel_reference(where: str, reference: Sequence[Any]) -> Params:
    layers = tuple(xp.asarray(layer, dtype=float) for layer in reference)
    if not layers:
        raise ValueError(f"{where}: reference must hold at least one layer, but is empty.")
    for position, layer in enumerate(layers):
        check_shape(where, f"reference[{position}]", layer, (None, layers[position - 1].shape[0] if position else None))
        check_finite(where, f"reference[{position}]", layer)
    if all(is_concrete(layer) for layer in layers):
        check_nonzero(where, "the tangent kernel of reference", _reference_kernel(layers))
    return layers


class KernelDistance(AbstractProbe):
    r"""Distance $1 - \langle K, K_0\rangle_F / (\|K\|_F \|K_0\|_F)$ of the tangent kernel from that of a reference.

    Between 0 and 1, blind to the scale of the kernel. Evaluated without Kronecker products as
    $\tfrac12\|K/\|K\| - K_0/\|K_0\|\,\|^2$, with $K - K_0$ computed from the movement of the layers, so that it keeps
    its digits however small it is. A kernel that vanishes has distance 1.

    Args:
        reference: Layers whose kernel is $K_0$, usually those at the start.
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.eye(2)))
        >>> start = (jnp.eye(2), jnp.eye(2))
        >>> float(KernelDistance(start)(0.0, (2 * jnp.eye(2), 2 * jnp.eye(2)), problem))
        0.0
    """

    reference: Params
    name: str = eqx.field(static=True)

    @entry
    def __init__(self, reference: Sequence[Any], *, name: str = "kernel_distance") -> None:
        self.reference = _kernel_reference("KernelDistance", reference)
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ()

    @entry(bounded=("params",))
    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, ""]:
        network_of(problem, "KernelDistance").check(self.reference, "KernelDistance (reference)")
        return _distance(params, self.reference)


@differentiable
@formula
def _distance(params: Params, reference: Params) -> Float[Array, ""]:
    return _turn(_kernels(params, reference, _coordinates))


@_distance.defjvp
def _distance_jvp(primals: tuple[Params, Params], tangents: tuple[Params, Params]) -> tuple[Array, Array]:
    return _distance(*primals), jax.jvp(lambda now, then: _turn(_kernels(now, then, _columns)), primals, tangents)[1]


def _turn(kernels: _Kernels) -> Float[Array, ""]:
    before, now = xp.linalg.norm(kernels.before), xp.linalg.norm(kernels.now)
    scale = xp.where(now == 0, 1.0, now)
    # K/|K| - K0/|K0|, from the change where it is small and from the kernels themselves where it is not.
    growth = xp.sum(kernels.change * (2 * kernels.before + kernels.change)) / (now + before) / before
    near = (kernels.change - growth * kernels.before) / scale
    far = kernels.now / scale - kernels.before / before
    gap = xp.where(xp.linalg.norm(kernels.change) < 0.5 * before, near, far)
    return xp.where(now == 0, 1.0, 0.5 * xp.sum(gap**2))


class KernelMovement(AbstractProbe):
    r"""Relative movement $\|K - K_0\|_F / \|K_0\|_F$ of the tangent kernel since a reference.

    Computed as in `KernelDistance`; it sees changes of scale too.

    Args:
        reference: Layers whose kernel is $K_0$, usually those at the start.
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.eye(2)))
        >>> start = (jnp.eye(2), jnp.eye(2))
        >>> round(float(KernelMovement(start)(0.0, (2 * jnp.eye(2), 2 * jnp.eye(2)), problem)), 12)
        3.0
    """

    reference: Params
    name: str = eqx.field(static=True)

    @entry
    def __init__(self, reference: Sequence[Any], *, name: str = "kernel_movement") -> None:
        self.reference = _kernel_reference("KernelMovement", reference)
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ()

    @entry(bounded=("params",))
    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, ""]:
        network_of(problem, "KernelMovement").check(self.reference, "KernelMovement (reference)")
        return _movement(params, self.reference)


@differentiable
@formula
def _movement(params: Params, reference: Params) -> Float[Array, ""]:
    return _moved(_kernels(params, reference, _coordinates))


@_movement.defjvp
def _movement_jvp(primals: tuple[Params, Params], tangents: tuple[Params, Params]) -> tuple[Array, Array]:
    return _movement(*primals), jax.jvp(lambda now, then: _moved(_kernels(now, then, _columns)), primals, tangents)[1]


def _moved(kernels: _Kernels) -> Float[Array, ""]:
    return frobenius(kernels.change) / xp.linalg.norm(kernels.before)
