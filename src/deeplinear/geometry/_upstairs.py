r"""Geodesics of balanced layers, and which straight lines of layers stay balanced.

The balanced layers of full rank are a surface in the flat space of all layers. Its geodesics are accelerated along its
normals only: with symmetric multipliers $S_1, \dots, S_{L-1}$ and $S_0 = S_L = 0$,

$$\ddot W_l = W_lS_{l-1} - S_lW_l,$$

where the multipliers are such that the layers stay balanced. One that starts horizontally stays so, and its product is
a geodesic of the metric of depth $L$ with the same length.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    Params,
    as_array,
    check_number,
    check_shape,
    checked_params,
    entry,
    formula,
    integrate,
    put,
    xp,
)
from deeplinear.geometry._exponential import (
    COMPLETE,
    LIMIT,
    SINGULAR,
    SMALLEST,
    STEPS,
    checked_times,
    travelled,
)
from deeplinear.geometry._fibres import BALANCED, balanced_layers
from deeplinear.geometry._imbalance import checked_chain, relative_imbalance
from deeplinear.geometry._metric import checked_point
from deeplinear.models import DeepLinear, balancedness

Layers = Float[Array, "layers size size"]

PASSED = 1
"""The event that a step has gone over singular layers; before it comes that of having reached them."""


class BalancedGeodesic(eqx.Module):
    """A geodesic of balanced layers.

    Attributes:
        times: Times asked for, as far as they were reached; where it ended before, its end is the last, unless it had
            stepped over the singular layers: then the end is left out (the start is told if nothing else is).
        layers: The layers at these times, times first.
        velocities: Their velocities.
        end_time: When it ended: the end of the step in which the layers became singular.
        steps: Steps of the integration.
        status: "complete", "reached a singular matrix" or "step limit".
    """

    times: Float[Array, " times"]
    layers: Float[Array, "times layers size size"]
    velocities: Float[Array, "times layers size size"]
    end_time: Float[Array, ""]
    steps: Int[Array, ""]
    status: str = eqx.field(static=True)

    @property
    def products(self) -> Float[Array, "times size size"]:
        """The product of the layers at the times: where the curve is below."""
        return _products(self.layers)

    @property
    def imbalance(self) -> Float[Array, " times"]:
        r"""Largest $\|W_{l+1}^\top W_{l+1} - W_lW_l^\top\|_F$ at the times, which is zero on the surface."""
        return _imbalances(self.layers)

    @property
    def speed(self) -> Float[Array, ""]:
        """Norm of the velocity at the first time."""
        return _first_norm(self.velocities)

    @property
    def length(self) -> Float[Array, ""]:
        """Speed times the time from the first to the last of the times."""
        return travelled(self.speed, self.times)


@entry(instead="call it outside of jit, vmap and grad, or integrate geodesic_field, which can be traced")
def balanced_geodesic(
    params: Any, tangent: Any, times: Any, *, rtol: float = 1e-12, atol: float = 1e-14
) -> BalancedGeodesic:
    r"""The geodesic of balanced layers from given ones in a given direction.

    Args:
        params: Balanced layers, square and of full rank, first-acting first.
        tangent: Velocity at time 0, tangent to the balanced layers; `horizontal_lift` gives horizontal ones.
        times: Where it is wanted: increasing, not negative, the last one positive.
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step.

    Returns:
        The geodesic; it ends early where the product becomes singular.

    Raises:
        HypothesisError: The layers are not balanced or not of full rank, or the tangent leaves the balanced layers.

    Example:
        >>> line = balanced_geodesic((jnp.eye(1), jnp.eye(1)), (jnp.ones((1, 1)), jnp.ones((1, 1))), [1.0])
        >>> float(line.products[0, 0, 0].round(12))
        4.0
    """
    where = "balanced_geodesic"
    layers, moves = _checked_place(where, params, tangent)
    ts = checked_times(where, times)
    check_number(where, "rtol", rtol, above=0.0, at_most=1e-2)
    check_number(where, "atol", atol, above=0.0)
    found = _climb(layers, moves, ts, rtol, atol)
    if bool(found.finished) and int(found.event) < 0:
        return BalancedGeodesic(ts, *found.states, end_time=found.time, steps=found.steps, status=COMPLETE)
    seen = [np.asarray(part) for part in (ts, *found.states)]
    reached = seen[0] < float(found.time)
    if int(found.event) != PASSED:
        rest = [np.asarray(part)[None] for part in (found.time, *found.end)]
    else:
        rest = [part[:0] for part in seen] if np.any(reached) else [np.asarray(x)[None] for x in (0.0, layers, moves)]
    kept = (np.concatenate([part[reached], more]) for part, more in zip(seen, rest, strict=True))
    status = SINGULAR if int(found.event) >= 0 else LIMIT
    return BalancedGeodesic(*kept, end_time=found.time, steps=found.steps, status=status)


@entry(
    instead="call it outside of jit, vmap and grad; it checks that the layers are balanced", sized=("params", "tangent")
)
def multipliers(params: Any, tangent: Any) -> Float[Array, "hidden size size"]:
    r"""The symmetric multipliers $S_1, \dots, S_{L-1}$ of the geodesic through balanced layers in a direction.

    They solve a linear system: the second derivative of every $W_{l+1}^\top W_{l+1} - W_lW_l^\top$ vanishes.

    Args:
        params: Balanced layers, square and of full rank.
        tangent: Velocity, tangent to the balanced layers.

    Example:
        >>> multipliers((jnp.eye(2), jnp.eye(2)), (jnp.eye(2), jnp.eye(2))).shape
        (1, 2, 2)
    """
    layers, moves = _checked_place("multipliers", params, tangent)
    return _multipliers(layers, moves)


@entry(
    instead="call it outside of jit, vmap and grad; it checks that the layers are balanced", bounded=("start", "end")
)
def line_defect(start: Any, end: Any) -> Float[Array, " hidden"]:
    r"""By how much the straight line between balanced layers fails to be balanced, at each hidden layer.

    The line from $A$ to $B$ is balanced at all times if and only if
    $B_{l+1}^\top A_{l+1} + A_{l+1}^\top B_{l+1} = B_lA_l^\top + A_lB_l^\top$ for all $l$; where it has full rank it is
    a geodesic then.

    Args:
        start: $A$, balanced.
        end: $B$, balanced, of the same shapes.

    Returns:
        The norms of the differences.

    Example:
        >>> line_defect((jnp.eye(2), jnp.eye(2)), (2 * jnp.eye(2), 2 * jnp.eye(2)))
        array([0.])
    """
    where = "line_defect"
    first, last = _checked_layers(where, "start", start), _checked_layers(where, "end", end)
    check_shape(where, "end", last, first.shape)
    return _line_defect(first, last)


@entry
def frame_line_defect(
    strengths: Any, turns: Sequence[Any], end_strengths: Any, end_turns: Sequence[Any]
) -> Float[Array, " hidden"]:
    r"""The same criterion in terms of strengths and frames: what is not skew in $(R_{l+1} - R_{l-1})M_l^\top$.

    For $A_l = Q_l\Lambda Q_{l-1}^\top$ and $B_l = \tilde Q_l\tilde\Lambda\tilde Q_{l-1}^\top$, with
    $R_l = \tilde Q_l^\top Q_l$ and $M_l = \tilde\Lambda^{-1}R_l\Lambda$. It vanishes where `line_defect` does; it is
    enough that $R_{l+1} = R_{l-1}$ for all $l$.

    Args:
        strengths: $\Lambda$, positive.
        turns: $Q_0, \dots, Q_L$, orthogonal.
        end_strengths: $\tilde\Lambda$, positive.
        end_turns: $\tilde Q_0, \dots, \tilde Q_L$, orthogonal.

    Returns:
        Norms of the symmetric parts, one for each hidden layer.
    """
    where = "frame_line_defect"
    first, last = balanced_layers(strengths, turns), balanced_layers(end_strengths, end_turns)
    if len(first) != len(last):
        raise ValueError(
            f"{where}: end_turns must hold {len(turns)} matrices, as turns does, but holds {len(last) + 1}."
        )
    check_shape(where, "end_turns[0]", last[0], first[0].shape)
    values, others = as_array(strengths, float), xp.asarray(end_strengths, dtype=float)
    frames = [[xp.asarray(turn, dtype=float) for turn in some] for some in (turns, end_turns)]
    return _frame_line_defect(values, others, *frames)


@entry
def straight_line_end(strengths: Any, turns: Sequence[Any], end_strengths: Any, even: Any, odd: Any) -> Params:
    r"""Balanced layers that a straight line of balanced layers leads to.

    The line starts at $Q_l\Lambda Q_{l-1}^\top$; at its end the frames are $\tilde Q_l = Q_lR_l^\top$ with $R_l$ of
    period two in $l$.

    Args:
        strengths: $\Lambda$, positive.
        turns: $Q_0, \dots, Q_L$, orthogonal.
        end_strengths: Strengths at the end.
        even: $R_l$ for even $l$, orthogonal.
        odd: $R_l$ for odd $l$, orthogonal.

    Returns:
        The layers at the end, first-acting first.

    Example:
        >>> turn = jnp.array([[0.0, -1.0], [1.0, 0.0]])
        >>> end = straight_line_end([2.0, 1.0], [jnp.eye(2)] * 3, [1.0, 3.0], jnp.eye(2), turn)
        >>> float(line_defect(balanced_layers([2.0, 1.0], [jnp.eye(2)] * 3), end)[0])
        0.0
    """
    where = "straight_line_end"
    balanced_layers(strengths, turns)
    relative = [checked_point(where, name, value) for name, value in (("even", even), ("odd", odd))]
    size = xp.asarray(turns[0]).shape[0]
    for name, value in zip(("even", "odd"), relative, strict=True):
        check_shape(where, name, value, (size, size))
    frames = _followed([xp.asarray(turn, dtype=float) for turn in turns], relative)
    return balanced_layers(end_strengths, frames)


@entry(
    instead="call it outside of jit, vmap and grad; it checks that the layers are balanced",
    bounded=("params", "covector"),
)
def direction_defect(params: Any, covector: Any) -> Float[Array, " hidden"]:
    r"""By how much the straight line from balanced layers in a horizontal direction fails to be balanced.

    The direction is $V_l = W_{L:l+1}^\top C\,W_{l-1:1}^\top$; the line $W + tV$ is balanced at all times if and only if
    $V_{l+1}^\top V_{l+1} = V_lV_l^\top$ for all $l$.

    Args:
        params: Balanced layers, square.
        covector: $C$.

    Returns:
        The norms of the differences, one for each hidden layer.

    Example:
        >>> direction_defect((jnp.eye(2), jnp.eye(2)), jnp.array([[1.0, 2.0], [0.0, 1.0]])).round(9)
        array([5.65685425])
    """
    where = "direction_defect"
    layers = _checked_layers(where, "params", params)
    vector = checked_point(where, "covector", covector)
    check_shape(where, "covector", vector, layers.shape[1:])
    return _direction_defect(layers, vector)


@formula
def _imbalances(layers: Float[Array, "times layers size size"]) -> Float[Array, " times"]:
    above, below = layers[:, 1:], layers[:, :-1]
    gaps = _turned(above) @ above - below @ _turned(below)
    return xp.max(xp.linalg.norm(gaps, axis=(-2, -1)), axis=1, initial=0.0)


@formula
def _first_norm(velocities: Float[Array, "times layers size size"]) -> Float[Array, ""]:
    return xp.linalg.norm(velocities[0])


@formula
def _line_defect(first: Layers, last: Layers) -> Float[Array, " hidden"]:
    mixed = _even(_turned(last[1:]) @ first[1:] - last[:-1] @ _turned(first[:-1]))
    return 2 * xp.linalg.norm(mixed, axis=(1, 2))


@formula
def _frame_line_defect(
    values: Float[Array, " modes"], others: Float[Array, " modes"], turns: list[Matrix], end_turns: list[Matrix]
) -> Float[Array, " hidden"]:
    relative = xp.stack([b.T @ a for a, b in zip(turns, end_turns, strict=True)])
    maps = relative[1:-1] * values / others[:, None]
    return xp.linalg.norm(_even((relative[2:] - relative[:-2]) @ _turned(maps)), axis=(1, 2))


@formula
def _followed(turns: list[Matrix], relative: list[Matrix]) -> list[Matrix]:
    return [turn @ relative[k % 2].T for k, turn in enumerate(turns)]


@formula
def _direction_defect(stack: Layers, covector: Matrix) -> Float[Array, " hidden"]:
    layers = tuple(stack)
    model = DeepLinear((stack.shape[1],) * (len(layers) + 1))
    _, memo = model.forward(layers)
    return balancedness(model.pullback(layers, memo, covector))


@formula
def _climb(layers: Layers, moves: Layers, times: Float[Array, " times"], rtol: Any, atol: Any) -> Any:
    depth = layers.shape[0]
    share = SMALLEST ** (1 / depth)
    bound = share * xp.linalg.svd(layers[0], compute_uv=False)[0]

    side = xp.sign(xp.linalg.det(layers[0]))

    def ended(state: tuple[Layers, Layers]) -> Any:
        values = xp.linalg.svd(state[0][0], compute_uv=False)
        return (values[-1] < xp.maximum(share * values[0], bound)) & (depth > 1)

    def passed(state: tuple[Layers, Layers]) -> Any:
        return (xp.sign(xp.linalg.det(state[0][0])) != side) & (depth > 1)

    def field(state: tuple[Layers, Layers]) -> tuple[Layers, Layers]:
        layers, moves = state
        outside = xp.zeros((1, *layers.shape[1:]))
        held = xp.concatenate([outside, _multipliers(layers, moves), outside])
        return moves, layers @ held[:-1] - held[1:] @ layers

    start = layers, moves
    return integrate(field, start, times, rtol=rtol, atol=atol, events=(ended, passed), steps=STEPS)


@formula
def _multipliers(layers: Layers, moves: Layers) -> Float[Array, "hidden size size"]:
    r"""Solution of $(C_l + D_l)S_l + S_l(C_l + D_l) - 2W_{l+1}^\top S_{l+1}W_{l+1} - 2W_lS_{l-1}W_l^\top = 2F_l$.

    $C_l = W_{l+1}^\top W_{l+1}$, $D_l = W_lW_l^\top$ and $F_l = \dot W_l\dot W_l^\top - \dot W_{l+1}^\top\dot W_{l+1}$.
    """
    hidden, size = layers.shape[0] - 1, layers.shape[1]
    if hidden == 0:
        return xp.zeros((0, size, size))
    grams = _turned(layers[1:]) @ layers[1:] + layers[:-1] @ _turned(layers[:-1])
    identity = xp.eye(size)
    own = _kron(grams, identity) + _kron(identity, grams)
    across = 2 * _kron(layers[1:-1], layers[1:-1])
    system = xp.zeros((hidden, size**2, hidden, size**2))
    every = slice(None)
    system = put(system, (np.arange(hidden), every, np.arange(hidden)), own)
    system = put(system, (np.arange(1, hidden), every, np.arange(hidden - 1)), -across)
    system = put(system, (np.arange(hidden - 1), every, np.arange(1, hidden)), -_turned(across))
    forced = 2 * (moves[:-1] @ _turned(moves[:-1]) - _turned(moves[1:]) @ moves[1:])
    solved = xp.linalg.solve(system.reshape(hidden * size**2, hidden * size**2), forced.ravel())
    return _even(solved.reshape(hidden, size, size))


def _kron(one: Float[Array, "... size size"], other: Float[Array, "... size size"]) -> Array:
    """Kronecker products of stacked matrices."""
    both = one[..., :, None, :, None] * other[..., None, :, None, :]
    size = both.shape[-1] * both.shape[-2]
    return both.reshape(*both.shape[:-4], size, size)


@formula
def _leaving(layers: Layers, moves: Layers) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Largest change of an imbalance along a tangent, and the size of both that it is to be compared with."""
    first = _even(_turned(layers[1:]) @ moves[1:] - moves[:-1] @ _turned(layers[:-1]))
    return xp.max(xp.abs(first), initial=0.0), xp.linalg.norm(layers) * xp.linalg.norm(moves)


@formula
def _products(layers: Float[Array, "times layers size size"]) -> Float[Array, "times size size"]:
    product = layers[:, 0]
    for k in range(1, layers.shape[1]):
        product = layers[:, k] @ product
    return product


def _turned(stack: Float[Array, "*batch size size"]) -> Float[Array, "*batch size size"]:
    return xp.swapaxes(stack, -1, -2)


def _even(stack: Float[Array, "*batch size size"]) -> Float[Array, "*batch size size"]:
    return (stack + xp.swapaxes(stack, -1, -2)) / 2


def _checked_layers(where: str, name: str, params: Any) -> Layers:
    """Square balanced layers of one width as one array, or a refusal."""
    layers = checked_chain(where, checked_params(where, name, params))
    widths = {layers[0].shape[1], *(layer.shape[0] for layer in layers)}
    if len(widths) > 1:
        raise ValueError(f"{where}: {name} must be square layers of one width, but the widths are {sorted(widths)}.")
    imbalance = float(relative_imbalance(layers))
    if imbalance > BALANCED:
        raise HypothesisError(f"{where}: {name} are balanced layers", imbalance, BALANCED, "balanced_lift gives such.")
    return xp.asarray(np.stack(layers), dtype=float)


def _checked_place(where: str, params: Any, tangent: Any) -> tuple[Layers, Layers]:
    """Balanced layers of full rank and a tangent of them, or a refusal."""
    layers = _checked_layers(where, "params", params)
    given = checked_params(where, "tangent", tangent)
    moves = xp.asarray(
        np.stack([checked_point(where, f"tangent[{k}]", move) for k, move in enumerate(given)]), dtype=float
    )
    check_shape(where, "tangent", moves, layers.shape)
    values = np.linalg.svd(np.asarray(layers)[0], compute_uv=False)
    least = SMALLEST ** (1 / layers.shape[0])
    if values[-1] <= least * values[0]:
        share = float(values[-1] / values[0]) if values[0] > 0 else 0.0
        raise HypothesisError(
            f"{where}: params are of full rank", share, least, "The share of the smallest singular value is told."
        )
    leaving, size = (float(number) for number in _leaving(layers, moves))
    leaving = leaving / size if size > 0 else 0.0
    if leaving > BALANCED:
        raise HypothesisError(
            f"{where}: tangent keeps the layers balanced", leaving, BALANCED, "horizontal_lift gives one that does."
        )
    return layers, moves
