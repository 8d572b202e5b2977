"""Runs driven in compiled chunks from the host.

A chunk moves members until a window of snapshots is full or a budget of steps is spent. Between chunks the host
evaluates the probes on the window, throws the states away, looks at the clock and lets finished members leave.
Stepping and probing are compiled apart, so changing a probe does not compile the integrator anew.

Members of an ensemble are moved in one of two ways:

* `"threads"`: blocks of members, each block one after the other inside one compiled call, the blocks on a pool of
  threads. No member waits for another. The choice on a CPU.
* `"vector"`: all members at once, in lock-step; finished members leave between chunks, and those that became stiff are
  moved by the stabilised method in a group of their own. The choice on an accelerator.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import deeplinear.dynamics._descent as _descent
import deeplinear.dynamics._flow as _flow
from deeplinear.core import RESULTS, Implicit, Trajectory, describe, one_at_a_time, processors, unflatten
from deeplinear.dynamics._base import AbstractMethod, AbstractUpdate, Plan, Snapshots
from deeplinear.dynamics._flow import GradientFlow, Switching
from deeplinear.dynamics._stopping import Until
from deeplinear.models import Problem
from deeplinear.probes import AbstractProbe, dimension_names

WINDOW_BYTES = 32_000_000
"""Memory for the snapshots of one chunk."""

Item = TypeVar("Item")


class Progress(NamedTuple):
    """What a progress callback is told between two chunks."""

    members: int
    ended: int
    steps: int
    t: float
    fraction: float


# --- Compiled pieces ------------------------------------------------------------------------------------------------


def _advance_one(
    problem: Problem,
    method: AbstractMethod,
    rules: tuple[Until, ...],
    plan: Plan,
    state: Any,
    budget: Array,
    room: int,
    mode: str,
) -> tuple[Any, Snapshots]:
    if isinstance(method, GradientFlow):
        return _flow.advance(problem, method, rules, plan, state, budget, room=room, mode=mode)
    assert isinstance(method, AbstractUpdate)
    return _descent.advance(problem, method, rules, plan, state, budget, room=room)


def _over_members(function: Callable[..., Any], mapped: tuple[bool, ...], vector: bool, *args: Any) -> Any:
    """Apply a function to every member; `mapped` says which arguments have a member axis."""
    if vector:
        return jax.vmap(function, in_axes=tuple(0 if m else None for m in mapped))(*args)
    moving = tuple(a for a, m in zip(args, mapped, strict=True) if m)

    def one(items: tuple[Any, ...]) -> Any:
        stream = iter(items)
        return function(*(next(stream) if m else a for a, m in zip(args, mapped, strict=True)))

    return jax.lax.map(one, moving)


@eqx.filter_jit
def _begin_flow(problem: Problem, rules: tuple[Until, ...], y: Array, t: Array, batched: bool) -> Any:
    def one(p: Problem, y: Array, t: Array) -> Any:
        return _flow.start(p, rules, y, t)

    return _over_members(one, (batched, True, True), False, problem, y, t)


@eqx.filter_jit
def _begin_descent(
    problem: Problem, method: AbstractUpdate, y: Array, t: Array, keys: Array, batched: tuple[bool, bool]
) -> Any:
    return _over_members(_descent.start, (*batched, True, True, True), False, problem, method, y, t, keys)


def _begin(
    problem: Problem,
    method: AbstractMethod,
    rules: tuple[Until, ...],
    y: Array,
    t: Array,
    keys: Array,
    batched: tuple[bool, bool],
) -> Any:
    """States of all members before their first step."""
    if isinstance(method, GradientFlow):
        return _begin_flow(problem, rules, y, t, batched[0])
    assert isinstance(method, AbstractUpdate)
    return _begin_descent(problem, method, y, t, keys, batched)


@eqx.filter_jit
def _advance(
    problem: Problem,
    method: AbstractMethod,
    rules: tuple[Until, ...],
    plan: Plan,
    state: Any,
    budget: Array,
    batched: tuple[bool, bool],
    room: int,
    mode: str,
    vector: bool,
) -> tuple[Any, Snapshots]:
    def one(p: Problem, m: AbstractMethod, plan: Plan, state: Any) -> tuple[Any, Snapshots]:
        return _advance_one(p, m, rules, plan, state, budget, room, mode)

    return _over_members(one, (*batched, True, True), vector, problem, method, plan, state)


@one_at_a_time
@eqx.filter_jit
def _observe(
    probes: tuple[AbstractProbe, ...], problem: Problem, shots: Snapshots, batched: bool, vector: bool
) -> tuple[Array, ...]:
    """Values of all probes on the snapshots of every member; rows past a member's count are zero."""

    def member(p: Problem, shots: Snapshots) -> tuple[Array, ...]:
        shapes = p.model.shapes

        def at(row: Array | int) -> tuple[Array, ...]:
            params = unflatten(shots.states[row], shapes)
            return tuple(jnp.asarray(probe(shots.times[row], params, p)) for probe in probes)

        blank = tuple(jnp.zeros((shots.times.shape[0], *s.shape), s.dtype) for s in jax.eval_shape(lambda: at(0)))

        def fill(row: Array, out: tuple[Array, ...]) -> tuple[Array, ...]:
            return tuple(buffer.at[row].set(value) for buffer, value in zip(out, at(row), strict=True))

        return jax.lax.fori_loop(0, shots.filled, fill, blank)

    return _over_members(member, (batched, True), vector, problem, shots)


# --- Members --------------------------------------------------------------------------------------------------------


def stack_members(items: Sequence[Item], where: str, name: str) -> Item:
    """A list of modules or parameter tuples of the same structure as one with a leading member axis."""
    structure = jax.tree.structure(items[0])
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(items[0])]
    for position, item in enumerate(items):
        same = jax.tree.structure(item) == structure and [np.shape(leaf) for leaf in jax.tree.leaves(item)] == shapes
        if not same:
            raise ValueError(
                f"{where}: {name}[{position}] must have the same structure and shapes as {name}[0]; "
                "run members of different shapes in separate ensembles."
            )
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack([np.asarray(leaf) for leaf in leaves])), *items)


def _on_host() -> bool:
    """Whether arrays lie in the host's memory, where NumPy moves rows at once and JAX takes a call for each array."""
    return jax.default_backend() == "cpu"


@jax.jit
def _take_rows(tree: Item, ids: Array) -> Item:
    return jax.tree.map(lambda leaf: leaf[ids], tree)


@jax.jit
def _put_rows(tree: Item, ids: Array, part: Item) -> Item:
    return jax.tree.map(lambda whole, new: whole.at[ids].set(new[: len(ids)]), tree, part)


def _take(tree: Item, ids: np.ndarray) -> Item:
    """The members `ids` of a stacked tree."""
    if _on_host():
        return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[ids]), tree)
    return _take_rows(tree, jnp.asarray(ids))


def _put(tree: Item, ids: np.ndarray, part: Item) -> Item:
    """A stacked tree with the members `ids` replaced by the first rows of another."""
    if not _on_host():
        return _put_rows(tree, jnp.asarray(ids), part)

    def replace(whole: Array, new: Array) -> Array:
        copy = np.array(whole)
        copy[ids] = np.asarray(new)[: len(ids)]
        return jnp.asarray(copy)

    return jax.tree.map(replace, tree, part)


class _Recorder:
    """Arrays of recorded values that grow as records come in."""

    def __init__(self, members: int, expected: int, names: Sequence[str]) -> None:
        self.names = list(names)
        self.lengths = np.zeros(members, int)
        self.times = np.full((members, max(expected, 1)), np.nan)
        self.values: dict[str, np.ndarray] = {}

    def _room_for(self, needed: int) -> None:
        have = self.times.shape[1]
        if needed > have:
            extra = max(needed - have, have)

            def longer(array: np.ndarray) -> np.ndarray:
                pad = np.full((array.shape[0], extra, *array.shape[2:]), np.nan)
                return np.concatenate([array, pad], axis=1)

            self.times = longer(self.times)
            self.values = {name: longer(array) for name, array in self.values.items()}

    def add(self, ids: np.ndarray, counts: np.ndarray, times: np.ndarray, values: Sequence[np.ndarray]) -> None:
        if not self.values:
            for name, value in zip(self.names, values, strict=True):
                self.values[name] = np.full((*self.times.shape, *value.shape[2:]), np.nan)
        self._room_for(int(np.max(self.lengths[ids] + counts, initial=0)))
        rows, columns = np.nonzero(np.arange(times.shape[1]) < counts[:, None])
        where = (ids[rows], self.lengths[ids[rows]] + columns)
        self.times[where] = times[rows, columns]
        for name, value in zip(self.names, values, strict=True):
            self.values[name][where] = value[rows, columns]
        self.lengths[ids] += counts


class Driver:
    """All that the chunks of one call share."""

    def __init__(
        self,
        problem: Problem,
        method: AbstractMethod,
        batched: tuple[bool, bool],
        rules: tuple[Until, ...],
        probes: tuple[AbstractProbe, ...],
        times: np.ndarray,
        every: int,
        horizon: float,
        max_steps: int,
        deadline: float,
        members: int,
        size: int,
        progress: Callable[[Progress], None] | None,
        vector: bool,
        opens: bool,
    ) -> None:
        self.problem, self.method, self.batched, self.rules, self.probes = problem, method, batched, rules, probes
        self.times, self.every, self.horizon, self.max_steps = times, every, horizon, max_steps
        self.deadline, self.members, self.progress = deadline, members, progress
        self.size, self.vector, self.opens = size, vector, opens
        self.recorder = _Recorder(members, len(times) + 2 if len(times) else 64, [p.name for p in probes])
        self.cursor = np.zeros(members, int)
        self.kept: dict[str, np.ndarray] = {}
        self.before: dict[str, np.ndarray] = {}
        self.lock = threading.Lock()
        self.results = np.zeros(members, int)
        self.steps = np.zeros(members, int)
        self.t = np.zeros(members)
        self.cancelled = False

    def room(self, lanes: int) -> int:
        """Snapshots per member in one chunk. Depends on sizes only, so that it does not compile anew."""
        return int(np.clip(WINDOW_BYTES // (8 * self.size * lanes), 1, 64))

    def lanes(self, live: int) -> int:
        """Width of a lock-step group for so many members: few different widths, because each is compiled.

        An accelerator moves a thousand small members in the time of one, so narrower groups would gain nothing there.
        """
        least, width = (32 if _on_host() else 1024), self.members
        while width // 4 >= max(live, least):
            width //= 4
        return width

    def plan(self, ids: np.ndarray, room: int) -> Plan:
        position = self.cursor[ids][:, None] + np.arange(room)
        listed = position < len(self.times)
        padded = np.append(self.times, np.inf)
        lanes = len(ids)
        return Plan(
            jnp.asarray(padded[np.minimum(position, len(self.times))]),
            jnp.asarray(listed.sum(axis=1)),
            jnp.full(lanes, self.every),
            jnp.full(lanes, self.horizon),
            jnp.full(lanes, self.max_steps),
        )

    def chunk(
        self, ids: np.ndarray, problem: Problem, method: AbstractMethod, state: Any, budget: int, mode: str
    ) -> tuple[Any, Snapshots]:
        """One compiled chunk for the members `ids`."""
        room = self.room(len(ids))
        state = state._replace(window=jnp.zeros_like(state.window))
        return _advance(
            problem,
            method,
            self.rules,
            self.plan(ids, room),
            state,
            jnp.asarray(budget),
            self.batched,
            room,
            mode,
            self.vector,
        )

    def record(self, ids: np.ndarray, problem: Problem, shots: Snapshots, state: Any) -> None:
        """Evaluate the probes on new snapshots and note where the members stand."""
        live = len(ids)
        counts = np.asarray(shots.filled)[:live]
        if counts.any():
            values = _observe(self.probes, problem, shots, self.batched[0], self.vector)
            with self.lock:
                self.recorder.add(ids, counts, np.asarray(shots.times)[:live], [np.asarray(v)[:live] for v in values])
        self.cursor[ids] += 0 if self.every else counts
        self.results[ids] = np.asarray(state.result)[: len(ids)]
        self.steps[ids] = np.asarray(state.accepted)[: len(ids)]
        self.t[ids] = np.asarray(state.t)[: len(ids)]
        if self.progress is not None:
            ended = int(np.sum(self.results != RESULTS.running))
            done = np.where(self.results != RESULTS.running, 1.0, np.clip(self.t / self.horizon, 0, 1))
            self.progress(
                Progress(self.members, ended, int(self.steps.sum()), float(np.min(self.t)), float(np.mean(done)))
            )

    def single(self, ids: np.ndarray, problem: Problem, state: Any, wanted: np.ndarray) -> None:
        """Record the present state of the wanted members, in the shape that chunks have so that probes compile once."""
        y, t = state.y, state.t
        counts = np.zeros(len(t), int)
        counts[: len(ids)] = wanted
        room = self.room(len(counts))
        times, states = np.zeros((len(counts), room), t.dtype), np.zeros((len(counts), room, y.shape[1]), y.dtype)
        times[:, 0], states[:, 0] = t, y
        shots = Snapshots(jnp.asarray(times), jnp.asarray(states), jnp.asarray(counts))
        self.record(ids, problem, shots, state)

    def begun(self, state: Any) -> Any:
        """States in which members that are at their last time already are completed."""
        there = (state.t >= self.horizon) & (state.result == int(RESULTS.running))
        return state._replace(result=jnp.where(there, int(RESULTS.completed), state.result))

    def over(self) -> RESULTS | None:
        """The limit that ends everything now, if any."""
        if self.cancelled:
            return RESULTS.interrupted
        return RESULTS.wall_limit if time.monotonic() > self.deadline else None

    def block(self, ids: np.ndarray, width: int, y: Array, t: Array, keys: Array, states: Any | None) -> None:
        """Run a block of members one after the other, to their ends."""
        live = len(ids)
        padded = np.concatenate([ids, np.repeat(ids[-1:], width - live)])
        problem = _take(self.problem, padded) if self.batched[0] else self.problem
        method = _take(self.method, padded) if self.batched[1] else self.method
        if states is None:
            y, t, keys = _take((y, t, keys), padded)
            state = _begin(problem, method, self.rules, y, t, keys, self.batched)
        else:
            state = _take(states, padded)
        if width > live:  # Padding ends at once.
            result = np.asarray(state.result).copy()
            result[live:] = RESULTS.completed
            state = state._replace(result=jnp.asarray(result))
        state = self.begun(state)
        self.results[ids] = np.asarray(state.result)[:live]
        if self.opens:
            self.single(ids, problem, state, np.ones(live, int))
        budget = 200
        while np.any(np.asarray(state.result)[:live] == RESULTS.running):
            limit = self.over()
            if limit is not None:
                running = np.asarray(state.result) == RESULTS.running
                state = state._replace(result=jnp.where(jnp.asarray(running), int(limit), state.result))
                break
            began = time.monotonic()
            try:
                state, shots = self.chunk(padded, problem, method, state, budget, "both")
                self.record(ids, problem, shots, state)
            except KeyboardInterrupt:
                self.cancelled = True
            if time.monotonic() - began < 0.25:
                budget = min(2 * budget, 1_000_000)
        self.finish(ids, problem, state)

    def lockstep(self, y: Array, t: Array, keys: Array, states: Any | None) -> None:
        """Run all members at once, in groups by integrator, letting the finished leave."""
        everyone = np.arange(self.members)
        state = states
        if state is None:
            state = _begin(self.problem, self.method, self.rules, y, t, keys, self.batched)
        state = self.begun(state)
        self.results[:] = np.asarray(state.result)
        if self.opens:
            self.single(everyone, self.problem, state, np.ones(self.members, int))
        switching = isinstance(self.method, GradientFlow) and isinstance(self.method.integrator, Switching)
        budget, limit = 100, None
        while limit is None and np.any(self.results == RESULTS.running):
            stiff = np.asarray(state.stiff) if switching else np.zeros(self.members, bool)
            for mode, chosen in (("explicit", ~stiff), ("stabilised", stiff)):
                ids = everyone[(self.results == RESULTS.running) & chosen]
                limit = self.over()
                if not len(ids) or limit is not None:
                    continue
                lanes = self.lanes(len(ids))
                padded = np.concatenate([ids, np.repeat(ids[-1:], lanes - len(ids))])
                problem = _take(self.problem, padded) if self.batched[0] else self.problem
                method = _take(self.method, padded) if self.batched[1] else self.method
                try:
                    part, shots = self.chunk(padded, problem, method, _take(state, padded), budget, mode)
                    state = _put(state, ids, part)
                    self.record(ids, problem, shots, part)
                except KeyboardInterrupt:
                    self.cancelled = True
        if limit is not None:
            running = np.asarray(state.result) == RESULTS.running
            state = state._replace(result=jnp.where(jnp.asarray(running), int(limit), state.result))
        self.finish(everyone, self.problem, state)

    def rest(self, ids: np.ndarray, problem: Problem, state: Any) -> Any:
        """Record members that rest at the times they have left: they do not move any more."""
        lanes = len(state.t)
        resting = np.zeros(lanes, bool)
        resting[: len(ids)] = np.asarray(state.result)[: len(ids)] == RESULTS.steady
        room = self.room(lanes)
        while np.any(left := (self.cursor[ids] < len(self.times)) & resting[: len(ids)]):
            plan = self.plan(np.concatenate([ids, np.repeat(ids[-1:], lanes - len(ids))]), room)
            counts = np.zeros(lanes, int)
            counts[: len(ids)] = np.where(left, np.asarray(plan.listed)[: len(ids)], 0)
            last = jnp.take_along_axis(plan.times, jnp.maximum(jnp.asarray(counts) - 1, 0)[:, None], axis=1)[:, 0]
            state = state._replace(t=jnp.where(jnp.asarray(counts) > 0, last, state.t))
            still = jnp.broadcast_to(state.y[:, None], (lanes, room, state.y.shape[1]))
            self.record(ids, problem, Snapshots(plan.times, still, jnp.asarray(counts)), state)
        return state

    def finish(self, ids: np.ndarray, problem: Problem, state: Any) -> None:
        """Record the last state of members that ended between two records, and keep what a continuation needs."""
        live = len(ids)
        state = self.rest(ids, problem, state)
        last = self.recorder.times[ids, np.maximum(self.recorder.lengths[ids] - 1, 0)]
        new = (self.recorder.lengths[ids] == 0) | (last != np.asarray(state.t)[:live])
        self.single(ids, problem, state, new)
        with self.lock:
            for name, value in (("y", state.y), ("rule", state.rule), *_counters(state), *_portable(state)):
                array = np.asarray(value)
                if name not in self.kept:
                    self.kept[name] = np.zeros((self.members, *array.shape[1:]), array.dtype)
                self.kept[name][ids] = array[:live]

    def run(self, y: Array, t: Array, keys: Array, memory: Sequence[np.ndarray] | None = None) -> None:
        """Move all members by the chosen strategy. An interrupt ends the run and keeps what there is."""
        states = None
        if memory is not None:
            fresh = _begin(self.problem, self.method, self.rules, y, t, keys, self.batched)
            states = _remember(fresh, memory)
            self.before = {name: np.asarray(value) for name, value in _counters(states)}
            self.max_steps += int(self.before["stat_accepted"].max())
        if self.vector:
            self.lockstep(y, t, keys, states)
            return
        width = 1 if self.members < 4 else 4 if self.members < 32 else 16
        blocks = [np.arange(i, min(i + width, self.members)) for i in range(0, self.members, width)]
        workers = min(len(blocks), processors())
        if workers == 1:
            for ids in blocks:
                self.block(ids, width, y, t, keys, states)
            return
        with ThreadPoolExecutor(workers) as pool:
            tasks = [pool.submit(self.block, ids, width, y, t, keys, states) for ids in blocks]
            try:
                for task in as_completed(tasks):
                    task.result()
            except KeyboardInterrupt:
                self.cancelled = True
                for task in tasks:
                    task.result()
            except BaseException:
                self.cancelled = True
                raise

    def trajectory(self, clock: float) -> Trajectory:
        """All that was recorded."""
        recorder, kept = self.recorder, self.kept
        width = int(recorder.lengths.max())
        layers = jax.vmap(lambda v: unflatten(v, self.problem.model.shapes))(jnp.asarray(kept["y"]))
        seconds = time.monotonic() - clock
        flow = isinstance(self.method, GradientFlow)
        counts = {name: kept[name] - self.before.get(name, 0) for name in kept if name.startswith("stat_")}
        steps = counts["stat_accepted"]
        stats: dict[str, Any] = {"accepted_steps": steps}
        if flow:
            stats |= {"rejected_steps": counts["stat_rejected"], "stabilised_steps": counts["stat_stabilised"]}
        hides = isinstance(self.method, GradientFlow) and isinstance(self.method.integrator, Implicit)
        if flow and not hides:
            stats["gradient_evaluations"] = counts["stat_evaluations"]
        stats |= {"seconds": seconds, "seconds_per_step": seconds / max(1, int(steps.sum()))}
        return Trajectory(
            times=recorder.times[:, :width],
            values={name: value[:, :width] for name, value in recorder.values.items()},
            dims={p.name: dimension_names(p, recorder.values[p.name].ndim - 2) for p in self.probes},
            params=tuple(np.asarray(layer) for layer in layers),
            results=self.results.copy(),
            fired=kept["rule"],
            rules=tuple(rule.name for rule in self.rules),
            lengths=recorder.lengths.copy(),
            stats=stats,
            info={
                "problem": describe(self.problem),
                "method": describe(self.method),
                "loss": self.problem.loss.kind,
                "clock": "time" if flow else "steps",
            },
            state=tuple(kept[f"state_{i}"] for i in range(sum(name.startswith("state_") for name in kept))),
        )


def _counters(state: Any) -> list[tuple[str, Array]]:
    """Statistics of a run that are counted inside the chunks."""
    if isinstance(state, _flow.FlowState):
        names = ("accepted", "rejected", "stabilised", "evaluations")
        return [(f"stat_{name}", getattr(state, name)) for name in names]
    return [("stat_accepted", state.accepted)]


def _portable(state: Any) -> list[tuple[str, Array]]:
    """Leaves of a state that a continuation cannot compute from the parameters."""
    return [(f"state_{position}", leaf) for position, leaf in enumerate(jax.tree.leaves(_memory(state)))]


def _memory(state: Any) -> Any:
    if isinstance(state, _flow.FlowState):
        return (
            state.h,
            state.rho,
            state.direction,
            state.stiff,
            state.strikes,
            state.error,
            state.accepted,
            state.rejected,
            state.stabilised,
            state.evaluations,
        )
    return (state.inner, state.key, state.accepted)


def _remember(fresh: Any, leaves: Sequence[np.ndarray]) -> Any:
    """A fresh state with the memory of a saved one."""
    structure = jax.tree.structure(_memory(fresh))
    expected = [np.shape(leaf) for leaf in jax.tree.leaves(_memory(fresh))]
    if [np.shape(leaf) for leaf in leaves] != expected:
        raise ValueError(
            "resume: the trajectory must come from the same method and network, but its saved state does not fit. "
            "To start another method from its parameters, use WarmStart(trajectory)."
        )
    memory = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in leaves])
    if isinstance(fresh, _flow.FlowState):
        h, rho, direction, stiff, strikes, error, *counts = memory
        accepted, rejected, stabilised, evaluations = counts
        return fresh._replace(
            h=h,
            rho=rho,
            direction=direction,
            stiff=stiff,
            strikes=strikes,
            error=error,
            accepted=accepted,
            rejected=rejected,
            stabilised=stabilised,
            evaluations=evaluations,
        )
    inner, key, accepted = memory
    return fresh._replace(inner=inner, key=key, accepted=accepted)
