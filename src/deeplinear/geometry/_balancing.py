r"""Balancing: other layers with the same product, of least norm.

Tangents of the layers with one product are $a_l W_l - W_l a_{l-1}$ with $a_0 = a_L = 0$ and any $a_l$. Two flows go
down $\tfrac12\sum_l\|W_l\|_F^2$ among them, $G_l = W_l W_l^\top - W_{l+1}^\top W_{l+1}$ being minus `models.conserved`:

- *group*: $\dot W_l = -G_l W_l + W_l G_{l-1}$, steepest in the $a_l$. The norm falls at the rate $\sum_l\|G_l\|_F^2$;
  near the end the slowest part of $G$ decays as $e^{-rt}$ with $r = 4 s_d^{2/L}(1 - \cos(\pi/L))$.
- *ambient*: steepest in the layers themselves, $\dot W = -W + D\phi^*(C)$ with $D\phi D\phi^*(C) = L X$. Along it
  $G_l(t) = e^{-2t}G_l(0)$ exactly, whatever the layers are: $-W$ shrinks $G$ so, and $D\phi^*(C)$ conserves it.

Both end at balanced layers, which differ from each other and from `balanced_lift` by turns of the hidden layers only.
"""

import dataclasses
import functools
import itertools
import math
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    RESULTS,
    Array,
    HypothesisError,
    Matrix,
    NumericalError,
    Params,
    add_scaled,
    as_array,
    check_finite,
    check_number,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    formula,
    inner,
    integrate,
    is_concrete,
    over,
    xp,
)
from deeplinear.geometry._fibres import minimal_fibre_norm
from deeplinear.geometry._imbalance import checked_chain
from deeplinear.geometry._metric import checked_depth, checked_point
from deeplinear.models import DeepLinear, balancedness

Descent = Literal["group", "ambient"]
DESCENTS = ("group", "ambient")

SINGULAR = 1e-10
"""Singular values of the product, relative to the largest, below which it is not of full rank."""


@dataclasses.dataclass(frozen=True)
class Balancing:
    r"""What a balancing flow did.

    Attributes:
        times: Times of the record; after a breakdown the record is infinite.
        layers: Layers, each with a leading axis of times.
        norms: $\sum_l\|W_l\|_F^2$ at every time.
        imbalances: $\|G_l\|_F$ at every time, one column for each pair of neighbours.
        drift: $\|X(t) - X(0)\|_F/\|X(0)\|_F$ at every time: the error of the integration.
        least: The least norm of layers with this product, to which `norms` falls.
        result: How the integration ended; `completed`, or `step_limit`.
        steps: Steps taken.
    """

    times: Float[Array, " times"]
    layers: tuple[Float[Array, "times rows columns"], ...]
    norms: Float[Array, " times"]
    imbalances: Float[Array, "times pairs"]
    drift: Float[Array, " times"]
    least: Float[Array, ""]
    result: RESULTS
    steps: int

    @property
    def final(self) -> Params:
        """Layers at the last time."""
        return tuple(layer[-1] for layer in self.layers)

    @property
    def imbalance(self) -> float:
        """Largest imbalance at the last time, relative to the largest squared norm of a layer."""
        largest = max(float(np.sum(np.asarray(layer)[-1] ** 2)) for layer in self.layers)
        return float(np.max(np.asarray(self.imbalances)[-1], initial=0.0)) / max(largest, 1e-300)

    def __str__(self) -> str:
        imbalances = np.max(np.asarray(self.imbalances), axis=1, initial=0.0)
        norms, drift = np.asarray(self.norms), np.asarray(self.drift)
        return (
            f"{self.result.message} Imbalance {imbalances[0]:.3g} -> {imbalances[-1]:.3g}, squared norm "
            f"{norms[0]:.6g} -> {norms[-1]:.6g} (least {float(self.least):.6g}), drift of the product {drift[-1]:.2g}."
        )


@entry(bounded=("params",))
def balancing_velocity(params: Any, descent: Descent = "group") -> Params:
    r"""Velocity of the layers in a balancing flow; it moves the product not at all.

    Args:
        params: Layers of any widths; for `ambient` with a product of full rank.
        descent: `group` or `ambient`, as above.

    Returns:
        One matrix for each layer.

    Example:
        >>> first, second = balancing_velocity((jnp.eye(1), 2.0 * jnp.eye(1)))
        >>> float(first[0, 0]), float(second[0, 0])
        (3.0, -6.0)
    """
    where = "balancing_velocity"
    check_x64(where)
    _check_choice(where, "descent", descent, DESCENTS)
    layers = checked_chain(where, params)
    if descent == "ambient" and all(map(is_concrete, layers)):
        _check_full_rank(where, layers)
    return _velocity(layers, descent)


@entry
def balancing_rate(point: Any, depth: int, descent: Descent = "group") -> Float[Array, ""]:
    r"""Slowest rate at which the imbalance decays at the end of a balancing flow.

    Near balanced layers each pair of singular directions decays by the tridiagonal matrix of size $L - 1$ with
    $2(x + y)$ on and $-2\sqrt{xy}$ beside the diagonal, $x = s_j^{2/L}$, $y = s_k^{2/L}$; the slowest is
    $4 s_d^{2/L}(1 - \cos(\pi/L))$. The ambient flow has the rate 2 always.

    Args:
        point: $X$, square.
        depth: $L$, at least 2.
        descent: `group` or `ambient`.

    Example:
        >>> float(balancing_rate(jnp.diag(jnp.array([9.0, 4.0])), 2).round(12))
        16.0
    """
    where = "balancing_rate"
    depth = int(checked_depth(where, depth, finite=True))
    _check_choice(where, "descent", descent, DESCENTS)
    matrix = checked_point(where, "point", point)
    check_shape(where, "point", matrix, (matrix.shape[0], matrix.shape[0]))
    if depth < 2:
        raise ValueError(f"{where}: depth must be at least 2, but is {depth}: a single layer has nothing to balance.")
    if descent == "ambient":
        return np.asarray(2.0)
    return _group_rate(matrix, 2 / depth, 1 - math.cos(math.pi / depth))


@entry(
    instead="call it outside of jit, vmap and grad, or integrate balancing_velocity, which can be traced",
    bounded=("params",),
)
def balancing_flow(
    params: Any,
    times: Any,
    *,
    descent: Descent = "group",
    rtol: float = 1e-11,
    atol: float = 1e-13,
) -> Balancing:
    r"""Follow a balancing flow.

    An explicit method of order 8. The group flow is stiff where layers have both large and small singular values, and
    then takes some $\max_l\|W_l\|^2\,t$ steps; the ambient flow is not, at the price of a linear system of the size of
    the product's entries in every step.

    Args:
        params: Layers of any widths, first-acting first; for `ambient` with a product of full rank.
        times: Times of the record, increasing, the first not before 0.
        descent: `group` or `ambient`, as above.
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step.

    Returns:
        The record; `result` says whether the last time was reached.

    Raises:
        HypothesisError: The product is not of full rank, where the ambient flow needs it to be.

    Example:
        >>> flow = balancing_flow((jnp.eye(1), 4.0 * jnp.eye(1)), [0.0, 1.0], descent="ambient")
        >>> round(float(flow.imbalances[1, 0] / flow.imbalances[0, 0] * math.exp(2)), 9)
        1.0
    """
    where = "balancing_flow"
    layers = checked_chain(where, params)
    _check_choice(where, "descent", descent, DESCENTS)
    ts = as_array(checked_layer(where, "times", times), float)
    check_shape(where, "times", ts, (None,))
    check_finite(where, "times", ts)
    if ts.shape[0] == 0 or float(ts[0]) < 0 or np.any(np.diff(np.asarray(ts, dtype=float)) <= 0):
        raise ValueError(f"{where}: times must increase from 0 or later, but are {np.asarray(ts).tolist()}.")
    check_number(where, "rtol", rtol, above=0)
    check_number(where, "atol", atol, above=0)
    if descent == "ambient":
        _check_full_rank(where, layers)
    records, least, finished, steps = _follow(layers, ts, rtol, atol, descent)
    return Balancing(ts, *records, least, RESULTS.completed if bool(finished) else RESULTS.step_limit, int(steps))


@entry(instead="call it outside of jit, vmap and grad; minimal_fibre_norm can be traced", bounded=("params",))
def balance(
    params: Any, *, descent: Literal["direct", "group", "ambient"] = "direct", tolerance: float = 1e-9
) -> Params:
    r"""Balanced layers with the product of given ones.

    Directly, by a singular value decomposition of the product; or as the end of a balancing flow, to which the layers
    lead. The results differ by turns of the hidden layers.

    Args:
        params: Layers of any widths; of square shapes and with a product of full rank for the flows.
        descent: `direct`, or the flow to follow.
        tolerance: Relative imbalance at which a flow is at its end.

    Returns:
        Layers of the same shapes; their squared norm is $L\sum_i s_i^{2/L}$.

    Raises:
        NumericalError: The flow did not reach the tolerance.

    Example:
        >>> first, second = balance((jnp.eye(1), 4.0 * jnp.eye(1)))
        >>> float(jnp.abs(first[0, 0])), float((second @ first)[0, 0])
        (2.0, 4.0)
    """
    where = "balance"
    layers = checked_chain(where, params)
    _check_choice(where, "descent", descent, ("direct", *DESCENTS))
    check_number(where, "tolerance", tolerance, above=0)
    depth = len(layers)
    if depth == 1:
        return layers
    if descent == "direct":
        return _direct(layers)
    _check_full_rank(where, layers)
    widths = {size for layer in layers for size in layer.shape}
    if len(widths) > 1:
        raise ValueError(f"{where}: params must be square layers of one width for a flow, but have {sorted(widths)}.")
    # Until then the imbalance falls by the rate; before, where layers are larger than at the end, it is faster.
    product = _plain_product(layers)
    least = float(minimal_fibre_norm(product, depth))
    away = float(np.max(np.asarray(balancedness(layers)))) / (tolerance * least / depth)
    end = math.log(max(away, math.e) * 1e3) / float(balancing_rate(product, depth, descent))
    flow = balancing_flow(layers, [end], descent=descent)
    if not flow.result.finished or not flow.imbalance <= tolerance:
        raise NumericalError(flow.result, f"{where}: the relative imbalance is {flow.imbalance:.3g} still.")
    return flow.final


@formula
def _group_rate(matrix: Matrix, power: Any, factor: Any) -> Float[Array, ""]:
    return 4 * xp.linalg.svd(matrix, compute_uv=False)[-1] ** power * factor


@formula(static_argnames="descent")
def _velocity(layers: Params, descent: Descent) -> Params:
    """Unchecked."""
    return _group(layers) if descent == "group" else _ambient(layers)


def _group(layers: Params) -> Params:
    moves = [xp.zeros_like(layer) for layer in layers]
    for k, (below, above) in enumerate(itertools.pairwise(layers)):
        gap = below @ below.T - above.T @ above
        moves[k] = moves[k] - gap @ below
        moves[k + 1] = moves[k + 1] + above @ gap
    return tuple(moves)


def _ambient(layers: Params) -> Params:
    model = DeepLinear((layers[0].shape[1], *(layer.shape[0] for layer in layers)))
    product, memo = model.forward(layers)
    covector = xp.linalg.solve(model.ntk(layers), model.depth * product.ravel()).reshape(product.shape)
    return add_scaled(model.pullback(layers, memo, covector), -1.0, layers)


@formula(static_argnames="descent")
def _follow(
    layers: Params,
    times: Float[Array, " times"],
    rtol: Float[Array, ""] | float,
    atol: Float[Array, ""] | float,
    descent: Descent,
) -> tuple[tuple[Any, ...], Array, Array, Array]:
    """Layers, squared norms, imbalances and drift at the times, the least norm, the end, the number of steps."""
    field = _group if descent == "group" else _ambient
    found = integrate(field, layers, times, rtol=rtol, atol=atol)
    product = _product(layers)

    def record(layers: Params) -> tuple[Array, Array, Array]:
        return (
            inner(layers, layers),
            balancedness(layers),
            xp.linalg.norm(_product(layers) - product) / xp.linalg.norm(product),
        )

    least = minimal_fibre_norm(product, len(layers))
    return (found.states, *over(record)(found.states)), least, found.finished, found.steps


@formula
def _direct(layers: Params) -> Params:
    """From the singular value decomposition, hidden directions along the coordinates."""
    product = _product(layers)
    left, values, right_t = xp.linalg.svd(product, full_matrices=False)
    kept = min(*(layer.shape[0] for layer in layers), product.shape[1])
    frames = [right_t[:kept].T, *(xp.eye(layer.shape[0], kept) for layer in layers[:-1]), left[:, :kept]]
    strengths = values[:kept] ** (1 / len(layers))
    return tuple((above * strengths) @ below.T for below, above in itertools.pairwise(frames))


def _product(layers: Params) -> Array:
    return functools.reduce(lambda below, above: above @ below, layers)


def _plain_product(layers: Params) -> np.ndarray:
    return functools.reduce(lambda below, above: above @ below, [np.asarray(layer) for layer in layers])


def _check_full_rank(where: str, layers: Params) -> None:
    values = np.linalg.svd(_plain_product(layers), compute_uv=False)
    share = float(values[-1] / values[0]) if values[0] > 0 else 0.0
    if share <= SINGULAR:
        advice = "The condition number is told; balance(params) balances products of any rank directly."
        number = 1 / share if share > 0 else math.inf
        raise HypothesisError(f"{where}: a product of full rank", number, 1 / SINGULAR, advice)


def _check_choice(where: str, name: str, value: Any, options: tuple[str, ...]) -> None:
    if value not in options:
        raise ValueError(f"{where}: {name} must be one of {', '.join(options)}, but is {value!r}.")
