"""The loop of a discrete update: one compiled loop, states recorded at given steps or every so many."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, UInt32

from deeplinear.core import RESULTS, Array, flatten, unflatten
from deeplinear.dynamics._base import AbstractUpdate, Plan, Snapshots
from deeplinear.dynamics._stopping import Until
from deeplinear.models import Problem


class DescentState(NamedTuple):
    """Everything an update needs to go on. `t` counts steps; `key` is the data of a random key."""

    t: Float[Array, ""]
    y: Float[Array, " size"]
    inner: Any
    key: UInt32[Array, " words"]
    window: Int[Array, ""]
    accepted: Int[Array, ""]
    result: Int[Array, ""]
    rule: Int[Array, ""]


def start(
    problem: Problem,
    method: AbstractUpdate,
    y: Float[Array, " size"],
    t: Float[Array, ""],
    key: UInt32[Array, " words"],
) -> DescentState:
    """State before the first step."""
    zero = jnp.zeros((), int)
    healthy = jnp.all(jnp.isfinite(y))
    result = jnp.where(healthy, int(RESULTS.running), int(RESULTS.diverged)).astype(int)
    inner = method.init(unflatten(y, problem.model.shapes))
    return DescentState(t, y, inner, key, zero, zero, result, zero)


def advance(
    problem: Problem,
    method: AbstractUpdate,
    rules: tuple[Until, ...],
    plan: Plan,
    state: DescentState,
    budget: Int[Array, ""],
    *,
    room: int,
) -> tuple[DescentState, Snapshots]:
    """Step until the run ends, `room` snapshots are taken or `budget` steps are made.

    Rules are looked at before a step, where they share the forward pass with the gradient. A step that leaves the
    finite numbers is not taken.
    """
    shapes = problem.model.shapes

    def busy(carry: tuple[DescentState, Snapshots, Array]) -> Array:
        state, shots, tries = carry
        alive = (state.result == int(RESULTS.running)) & (shots.filled < room) & (tries < budget)
        return alive & ((plan.every > 0) | (state.window < plan.listed))

    def body(carry: tuple[DescentState, Snapshots, Array]) -> tuple[DescentState, Snapshots, Array]:
        state, shots, tries = carry
        params = unflatten(state.y, shapes)
        met = jnp.stack([r.fired(r.value(state.t, params, problem)) for r in rules]) if rules else jnp.zeros(1, bool)
        stop = jnp.any(met)
        moved, inner = method.step(
            problem, params, state.inner, jax.random.fold_in(jax.random.wrap_key_data(state.key), state.accepted)
        )
        new = flatten(moved)
        finite = jnp.all(jnp.isfinite(new))
        take = ~stop & finite
        t = state.t + 1
        listed = state.window < plan.listed
        hit = listed & (t == plan.times[jnp.minimum(state.window, plan.times.shape[0] - 1)])
        accepted = state.accepted + take
        due = take & (hit | ((plan.every > 0) & (t % jnp.maximum(plan.every, 1) == 0)))
        result = jnp.select(
            [stop, ~finite, t >= plan.horizon, accepted >= plan.max_steps],
            [jnp.asarray(int(r)) for r in (RESULTS.stopped, RESULTS.diverged, RESULTS.completed, RESULTS.step_limit)],
            jnp.asarray(int(RESULTS.running)),
        )

        def pick(yes: Array, no: Array) -> Array:
            return jnp.where(take, yes, no)

        row = jnp.minimum(shots.filled, room - 1)
        shots = Snapshots(
            shots.times.at[row].set(jnp.where(due, t, shots.times[row])),
            shots.states.at[row].set(jnp.where(due, new, shots.states[row])),
            shots.filled + due,
        )
        state = DescentState(
            t=pick(t, state.t),
            y=pick(new, state.y),
            inner=jax.tree.map(pick, inner, state.inner),
            key=state.key,
            window=state.window + (take & hit),
            accepted=accepted,
            result=result.astype(state.result.dtype),
            rule=jnp.where(stop, jnp.argmax(met), state.rule).astype(int),
        )
        return state, shots, tries + 1

    shots = Snapshots(
        jnp.zeros(room, state.y.dtype), jnp.zeros((room, state.y.shape[0]), state.y.dtype), jnp.zeros((), int)
    )
    state, shots, _ = jax.lax.while_loop(busy, body, (state, shots, jnp.zeros((), int)))
    return state, shots
