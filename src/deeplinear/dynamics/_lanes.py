"""Many flows side by side: one compiled loop moves a group of members in lock-step, each by steps of its own.

What a member does depends on its own state alone, never on who is beside it: one that has to wait (its snapshots are
full, its spectral radius is due, another integrator should take over) stands still until the others have come as far.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int

from deeplinear.core import Array, Stabilised
from deeplinear.dynamics._base import Plan, Snapshots
from deeplinear.dynamics._flow import REFRESH, FlowState, GradientField, GradientFlow, attempt, busy, refresh
from deeplinear.dynamics._stopping import Until
from deeplinear.models import AbstractModel, DeepLinear, NarrowDeepLinear, Problem

Lanes = Bool[Array, " lanes"]

AXIS = "lanes"
"""Name of the axis of members."""

NARROW = 16
"""Largest width for which products are written out."""


def _side_by_side(problem: Problem) -> Problem:
    """The problem with a model that is fast under `jax.vmap`."""
    if type(problem.model) is not DeepLinear or max(problem.model.widths) > NARROW:
        return problem
    return eqx.tree_at(lambda p: p.model, problem, NarrowDeepLinear(problem.model.widths), is_leaf=_is_model)


def _is_model(node: object) -> bool:
    return isinstance(node, AbstractModel)


def _with_axis(method: GradientFlow) -> GradientFlow:
    """The method whose stabilised integrator knows that it runs side by side."""
    return jax.tree.map(lambda node: Stabilised(AXIS) if _is_stabilised(node) else node, method, is_leaf=_is_stabilised)


def _is_stabilised(node: object) -> bool:
    return isinstance(node, Stabilised)


def _keep(which: Lanes, new: FlowState, old: FlowState) -> FlowState:
    """The new state where `which`, the old one elsewhere."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, new, old)


def _record(shots: Snapshots, state: FlowState, due: Lanes, room: int) -> Snapshots:
    """Snapshots with the states of those that are due."""
    if room == 1:
        return Snapshots(
            jnp.where(due[:, None], state.t[:, None], shots.times),
            jnp.where(due[:, None, None], state.y[:, None], shots.states),
            shots.filled + due,
        )

    def write(shots: Snapshots) -> Snapshots:
        lane, row = jnp.arange(len(due)), jnp.minimum(shots.filled, room - 1)
        return Snapshots(
            shots.times.at[lane, row].set(jnp.where(due, state.t, shots.times[lane, row])),
            shots.states.at[lane, row].set(jnp.where(due[:, None], state.y, shots.states[lane, row])),
            shots.filled + due,
        )

    return jax.lax.cond(jnp.any(due), write, lambda shots: shots, shots)


def advance(
    problem: Problem,
    method: GradientFlow,
    rules: tuple[Until, ...],
    plan: Plan,
    state: FlowState,
    budget: Int[Array, ""],
    *,
    batched: tuple[bool, bool],
    room: int,
    stabilised: bool,
) -> tuple[FlowState, Snapshots]:
    """Move flows until all are done for now, or `budget` steps are tried.

    Args:
        problem: The problem, with a leading axis of members if `batched[0]`.
        method: Tolerances and integrator, with a leading axis of members if `batched[1]`.
        rules: Stopping rules.
        plan: What to record and when to end; a leading axis of members on each entry.
        state: Where to start, a leading axis of members on each entry.
        budget: Number of steps to try at the most.
        batched: Which of problem and method differ between members.
        room: Number of snapshots that fit for each member.
        stabilised: Which integrator of a `Switching` moves them. Members that should be moved by the other stand still.
    """
    mode = "stabilised" if stabilised else "explicit"
    problem, method = _side_by_side(problem), _with_axis(method)
    of_problem, of_method = (0 if b else None for b in batched)
    renew = jax.vmap(lambda p, s: refresh(GradientField(p), s), in_axes=(of_problem, 0))
    step = jax.vmap(
        lambda p, m, plan, s: attempt(GradientField(p), m, rules, plan, mode, s),
        in_axes=(of_problem, of_method, 0, 0),
        axis_name=AXIS,
    )

    def live(state: FlowState, shots: Snapshots) -> Lanes:
        return busy(plan, state, shots.filled, room) & (state.stiff == stabilised)

    def goes_on(carry: tuple[FlowState, Snapshots, Array]) -> Array:
        state, shots, tries = carry
        return jnp.any(live(state, shots)) & (tries < budget)

    def block(carry: tuple[FlowState, Snapshots, Array]) -> tuple[FlowState, Snapshots, Array]:
        state, shots, tries = carry
        state = _keep(live(state, shots) & (state.age >= REFRESH), renew(problem, state), state)

        def moves(state: FlowState, shots: Snapshots) -> Lanes:
            return live(state, shots) & (state.age < REFRESH)

        def one(inner: tuple[FlowState, Snapshots, Array, Lanes]) -> tuple[FlowState, Snapshots, Array, Lanes]:
            state, shots, tries, moving = inner
            new, due = step(problem, method, plan, state)
            state = _keep(moving, new, state)
            shots = _record(shots, state, due & moving, room)
            return state, shots, tries + 1, moves(state, shots)

        start = (state, shots, tries, moves(state, shots))
        return jax.lax.while_loop(lambda c: jnp.any(c[3]) & (c[2] < budget), one, start)[:3]

    lanes, size = state.y.shape
    shots = Snapshots(
        jnp.zeros((lanes, room), state.y.dtype),
        jnp.zeros((lanes, room, size), state.y.dtype),
        jnp.zeros(lanes, int),
    )
    state, shots, _ = jax.lax.while_loop(goes_on, block, (state, shots, jnp.zeros((), int)))
    return state, shots
