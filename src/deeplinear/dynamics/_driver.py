"""Runs driven in compiled chunks from the host.

A chunk moves members until a window of snapshots is full or a budget of steps is spent. Between chunks the host
evaluates the probes on the window, throws the states away, looks at the clock and lets finished members leave.
Stepping and probing are compiled apart, so changing a probe does not compile the integrator anew.

Members of an ensemble are moved in one of two ways:

* in blocks, one member after the other inside one compiled call, the blocks on a pool of threads. No member waits for
  another. The choice on a CPU.
* in groups, side by side. Members wait in a queue for each integrator; who is free takes as many as there are lanes,
  moves them some steps and puts them back. The choice on an accelerator, with thousands of lanes.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import deeplinear.dynamics._descent as _descent
import deeplinear.dynamics._flow as _flow
import deeplinear.dynamics._lanes as _lanes
from deeplinear.core import RESULTS, Array, Implicit, Trajectory, processors
from deeplinear.dynamics._assemble import assemble
from deeplinear.dynamics._base import AbstractMethod, AbstractUpdate, Plan, Progress, Snapshots
from deeplinear.dynamics._flow import GradientFlow
from deeplinear.dynamics._members import (
    Recorder,
    join,
    observe_snapshots,
    on_host,
    over_members,
    padded_to,
    take,
    without_padding,
)
from deeplinear.dynamics._queue import Queue, many_lanes
from deeplinear.dynamics._run import Run
from deeplinear.dynamics._stopping import Until
from deeplinear.models import Problem

Item = TypeVar("Item")

BUDGET = 64
"""Steps that a group of members side by side tries before others have their turn."""

WINDOW_BYTES = 32_000_000
"""Memory for the snapshots of one chunk on the host."""

DEVICE_BYTES = 1_000_000_000
"""The same on an accelerator, where a chunk should last long."""


# --- Compiled pieces ------------------------------------------------------------------------------------------------


def _on_device(kind: Callable[..., Item], *arrays: Any) -> Item:
    """A tuple of arrays. (`jnp.asarray` of a NumPy array would compile a program for its shape.)"""
    return kind(*jax.device_put(arrays))


@eqx.filter_jit
def _begin(
    problem: Problem,
    method: AbstractUpdate | None,
    rules: tuple[Until, ...],
    y: Array,
    t: Array,
    keys: Array,
    horizon: Array | np.ndarray,
    batched: tuple[bool, bool],
    vector: bool,
) -> Any:
    """States of all members before their first step, those completed that are at their last time already.

    Flows, whose start does not depend on their method, give none.
    """

    def one(p: Problem, m: AbstractUpdate | None, y: Array, t: Array, key: Array) -> Any:
        state = _flow.start(p, rules, y, t) if m is None else _descent.start(p, m, y, t, key)
        there = (state.t >= horizon) & (state.result == int(RESULTS.running))
        return state._replace(result=jnp.where(there, int(RESULTS.completed), state.result))

    return over_members(one, (*batched, True, True, True), vector, problem, method, y, t, keys)


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
    vector: bool,
    stabilised: bool,
) -> tuple[Any, Snapshots]:
    """One chunk. `stabilised` chooses the integrator of flows that move side by side."""
    state = state._replace(window=jnp.zeros_like(state.window))
    if isinstance(method, GradientFlow) and vector:
        return _lanes.advance(
            problem, method, rules, plan, state, budget, batched=batched, room=room, stabilised=stabilised
        )

    def one(p: Problem, m: AbstractMethod, plan: Plan, state: Any) -> tuple[Any, Snapshots]:
        if isinstance(m, GradientFlow):
            return _flow.advance(p, m, rules, plan, state, budget, room=room)
        assert isinstance(m, AbstractUpdate)
        return _descent.advance(p, m, rules, plan, state, budget, room=room)

    return over_members(one, (*batched, True, True), vector, problem, method, plan, state)


class Driver:
    """All that the chunks of one call share."""

    def __init__(self, run: Run, members: int, size: int, vector: bool) -> None:
        self.problem, self.method, self.batched = run.problem, run.method, run.batched
        self.rules, self.probes = run.rules, run.probes
        self.times, self.every, self.horizon = run.schedule
        self.max_steps, self.deadline, self.progress, self.opens = run.max_steps, run.deadline, run.progress, run.opens
        self.members, self.size = members, size
        # On an accelerator one prepares while the other computes.
        self.workers = (1 if vector else processors()) if on_host() else 2
        self.lanes = many_lanes(members, size) if vector else 0
        self.recorder = Recorder(members, len(self.times) + 2 if len(self.times) else 64, [p.name for p in run.probes])
        self.cursor = np.full(members, run.first)
        self.kept: dict[str, np.ndarray] = {}
        self.before: dict[str, np.ndarray] = {}
        self.lock = threading.Lock()
        self.results = np.zeros(members, int)
        self.steps = np.zeros(members, int)
        self.t = np.zeros(members)
        self.cancelled = False

    def room(self, members: int) -> int:
        """Snapshots per member in one chunk. Side by side every further one costs time, so few wanted make it small."""
        fit = int(np.clip((WINDOW_BYTES if on_host() else DEVICE_BYTES) // (8 * self.size * members), 1, 64))
        few = self.lanes > 0 and not self.every
        return min(fit, next(n for n in (1, 8, 64) if len(self.times) <= n or n == 64) if few else 64)

    def begin(self, problem: Problem, method: AbstractMethod, y: Array, t: Array, keys: Array, vector: bool) -> Any:
        """States before the first step."""
        update = method if isinstance(method, AbstractUpdate) else None
        return _begin(problem, update, self.rules, y, t, keys, np.asarray(self.horizon), self.batched, vector)

    def plan(self, ids: np.ndarray, room: int) -> Plan:
        position = self.cursor[ids][:, None] + np.arange(room)
        listed = position < len(self.times)
        padded = np.append(self.times, np.inf)
        lanes = len(ids)
        limits = (np.full(lanes, limit) for limit in (self.every, self.horizon, self.max_steps))
        return _on_device(Plan, padded[np.minimum(position, len(self.times))], listed.sum(axis=1), *limits)

    def chunk(
        self,
        ids: np.ndarray,
        problem: Problem,
        method: AbstractMethod,
        state: Any,
        budget: int,
        vector: bool,
        stabilised: bool = False,
    ) -> tuple[Any, Snapshots]:
        """One compiled chunk for the members `ids`."""
        room = self.room(len(ids))
        plan, most = self.plan(ids, room), jax.device_put(np.asarray(budget))
        return _advance(problem, method, self.rules, plan, state, most, self.batched, room, vector, stabilised)

    def record(self, ids: np.ndarray, problem: Problem, shots: Snapshots, state: Any) -> None:
        """Evaluate the probes on new snapshots and note where the members stand."""
        live = len(ids)
        counts = np.asarray(shots.filled)[:live]
        if counts.any():
            values = observe_snapshots(self.probes, problem, shots, self.batched[0], not on_host())
            with self.lock:
                self.recorder.add(ids, counts, np.asarray(shots.times)[:live], [np.asarray(v)[:live] for v in values])
        self.cursor[ids] += 0 if self.every else counts
        self.results[ids] = np.asarray(state.result)[: len(ids)]
        self.steps[ids] = np.asarray(state.accepted)[: len(ids)]
        self.t[ids] = np.asarray(state.t)[: len(ids)]
        if self.progress is not None:
            ended = int(np.sum(self.results != RESULTS.running))
            done = np.where(self.results != RESULTS.running, 1.0, np.clip(self.t / (self.horizon or 1.0), 0, 1))
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
        self.record(ids, problem, _on_device(Snapshots, times, states, counts), state)

    def over(self) -> RESULTS | None:
        """The limit that ends everything now, if any."""
        if self.cancelled:
            return RESULTS.interrupted
        return RESULTS.wall_limit if time.monotonic() > self.deadline else None

    def stopped(self, state: Any, limit: RESULTS) -> Any:
        """States in which all that still run are ended by a limit."""
        running = np.asarray(state.result) == RESULTS.running
        return state._replace(result=np.where(running, int(limit), np.asarray(state.result)))

    def members_of(self, ids: np.ndarray) -> tuple[Problem, AbstractMethod]:
        """Problem and method of some members."""
        problem = take(self.problem, ids) if self.batched[0] else self.problem
        return problem, take(self.method, ids) if self.batched[1] else self.method

    def open(self, ids: np.ndarray, problem: Problem, state: Any) -> None:
        """Note how members stand before their first step, and record it if it is wanted."""
        self.results[ids] = np.asarray(state.result)[: len(ids)]
        if self.opens:
            self.single(ids, problem, state, np.ones(len(ids), int))

    # --- One after the other

    def block(self, ids: np.ndarray, width: int, y: Array, t: Array, keys: Array, states: Any | None) -> None:
        """Run a block of members one after the other, to their ends."""
        live = len(ids)
        padded = padded_to(ids, width)
        problem, method = self.members_of(padded)
        if states is None:
            y, t, keys = take((y, t, keys), padded)
            state = self.begin(problem, method, y, t, keys, vector=False)
        else:
            state = take(states, padded)
        state = without_padding(state, live)
        self.open(ids, problem, state)
        budget = 200
        while np.any(np.asarray(state.result)[:live] == RESULTS.running):
            limit = self.over()
            if limit is not None:
                state = self.stopped(state, limit)
                break
            began = time.monotonic()
            try:
                state, shots = self.chunk(padded, problem, method, state, budget, vector=False)
                self.record(ids, problem, shots, state)
            except KeyboardInterrupt:
                self.cancelled = True
            if time.monotonic() - began < 0.25:
                budget = min(2 * budget, 1_000_000)
        self.finish(ids, problem, state)

    def blocks(self, y: Array, t: Array, keys: Array, states: Any | None) -> None:
        """Run all members in blocks on a pool of threads."""
        width = 1 if self.members < 4 else 4 if self.members < 32 else 16
        blocks = [np.arange(i, min(i + width, self.members)) for i in range(0, self.members, width)]
        self.on_threads([lambda ids=ids: self.block(ids, width, y, t, keys, states) for ids in blocks])

    def on_threads(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Do all tasks, as many at once as there are workers. An interrupt ends the run and keeps what there is."""
        workers = min(len(tasks), self.workers)
        if workers == 1:
            for task in tasks:
                task()
            return
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(task) for task in tasks]
            try:
                for future in as_completed(futures):
                    future.result()
            except KeyboardInterrupt:
                self.cancelled = True
                for future in futures:
                    future.result()
            except BaseException:
                self.cancelled = True
                raise

    # --- Side by side, in groups

    def groups(self, lanes: int, y: Array, t: Array, keys: Array) -> None:
        """Run all members side by side in groups of so many lanes."""
        parts = [np.arange(i, min(i + lanes, self.members)) for i in range(0, self.members, lanes)]

        def begin(ids: np.ndarray) -> Any:
            padded = padded_to(ids, lanes)
            problem, method = self.members_of(padded)
            state = self.begin(problem, method, *take((y, t, keys), padded), vector=True)
            self.open(ids, problem, state)
            return state

        queue = Queue(join([begin(ids) for ids in parts], self.members), self.method, self.workers)

        def work() -> None:
            while (taken := queue.take(lanes)) is not None:
                ids, kind = taken
                padded = padded_to(ids, lanes)
                state = without_padding(queue.state(padded), len(ids))
                try:
                    if (limit := self.over()) is not None:
                        state = self.stopped(state, limit)
                        continue
                    problem, method = self.members_of(padded)
                    stabilised = kind == "stabilised"
                    state, shots = self.chunk(padded, problem, method, state, BUDGET, True, stabilised)
                    self.record(ids, problem, shots, state)
                except KeyboardInterrupt:
                    self.cancelled = True
                finally:
                    queue.put(ids, state)

        self.on_threads([work] * self.workers)
        for ids in parts:
            padded = padded_to(ids, lanes)
            self.finish(ids, self.members_of(padded)[0], queue.state(padded))

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
            last = np.asarray(plan.times)[np.arange(lanes), np.maximum(counts - 1, 0)]
            state = state._replace(t=np.where(counts > 0, last, np.asarray(state.t)))
            still = np.broadcast_to(np.asarray(state.y)[:, None], (lanes, room, state.y.shape[1]))
            self.record(ids, problem, _on_device(Snapshots, plan.times, still, counts), state)
        return state

    def finish(self, ids: np.ndarray, problem: Problem, state: Any) -> None:
        """Record the last state of members that ended between two records, and keep what a continuation needs."""
        live = len(ids)
        state = self.rest(ids, problem, state)
        last = self.recorder.times[ids, np.maximum(self.recorder.lengths[ids] - 1, 0)]
        new = (self.recorder.lengths[ids] == 0) | (last != np.asarray(state.t)[:live])
        self.single(ids, problem, state, new)
        with self.lock:
            step = [("step", state.h)] if isinstance(state, _flow.FlowState) else []
            for name, value in (("y", state.y), ("rule", state.rule), *step, *_counters(state), *_portable(state)):
                array = np.asarray(value)
                if name not in self.kept:
                    self.kept[name] = np.zeros((self.members, *array.shape[1:]), array.dtype)
                self.kept[name][ids] = array[:live]

    def run(self, y: Array, t: Array, keys: Array, memory: Sequence[np.ndarray] | None = None) -> None:
        """Move all members by the chosen strategy. An interrupt ends the run and keeps what there is."""
        states = None
        if memory is not None:
            fresh = self.begin(self.problem, self.method, y, t, keys, vector=False)
            states = _remember(fresh, memory)
            self.before = {name: np.asarray(value) for name, value in _counters(states)}
            self.max_steps += int(self.before["stat_accepted"].max())
        if self.lanes:
            self.groups(self.lanes, y, t, keys)
        else:
            self.blocks(y, t, keys, states)

    def trajectory(self, clock: float) -> Trajectory:
        """All that was recorded."""
        kept = self.kept
        flow = isinstance(self.method, GradientFlow)
        counts = {name: kept[name] - self.before.get(name, 0) for name in kept if name.startswith("stat_")}
        stats: dict[str, Any] = {"accepted_steps": counts["stat_accepted"]}
        if flow:
            stats |= {"rejected_steps": counts["stat_rejected"], "stabilised_steps": counts["stat_stabilised"]}
            stats["step_size"] = kept["step"]
        if isinstance(self.method, GradientFlow) and not isinstance(self.method.integrator, Implicit):
            stats["gradient_evaluations"] = counts["stat_evaluations"]
        state = tuple(kept[f"state_{i}"] for i in range(sum(name.startswith("state_") for name in kept)))
        return assemble(
            self.problem,
            self.method,
            self.probes,
            self.rules,
            self.recorder,
            y=kept["y"],
            results=self.results.copy(),
            fired=kept["rule"],
            stats=stats,
            state=state,
            clock=clock,
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
            state.age,
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
    memory = jax.tree.unflatten(structure, jax.device_put(list(leaves)))
    if isinstance(fresh, _flow.FlowState):
        h, rho, direction, age, stiff, strikes, error, *counts = memory
        accepted, rejected, stabilised, evaluations = counts
        return fresh._replace(
            h=h,
            rho=rho,
            direction=direction,
            age=age,
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
