"""Who of the members of an ensemble waits to be moved, and by what."""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import RESULTS
from deeplinear.dynamics._base import AbstractMethod
from deeplinear.dynamics._flow import DENSE, GradientFlow, Switching
from deeplinear.dynamics._members import on_host, put, take

LEAST_LANES = 16
"""Fewest flows that are moved side by side on a thread."""

LEAST_MEMBERS = 256
"""Fewest members for that: two programs have to be compiled then instead of one."""

LANE_WEIGHTS = 4096
"""Weights of a group of flows side by side: with the slopes of all stages they stay in the cache of a core."""

DEVICE_WEIGHTS = 620_000
"""Weights of a group on an accelerator: enough to keep it busy."""

MOST_WEIGHTS = 1000
"""Weights above which a network is moved by itself: matrix products take most of the time then."""


def few_lanes(members: int, size: int) -> int:
    """Number of flows to move side by side on one thread of a CPU; none if one after the other is faster.

    Depends on the ensemble alone, not on the machine, so that the same ensemble is computed in the same way anywhere.
    """
    if size > MOST_WEIGHTS or members < LEAST_MEMBERS:
        return 0
    lanes = LEAST_LANES
    while 4 * lanes * size <= LANE_WEIGHTS and 8 * lanes <= members:
        lanes *= 4
    return lanes


def many_lanes(members: int, size: int) -> int:
    """Number of members to move side by side on an accelerator: a power of two, because each number is compiled."""
    lanes = LEAST_LANES
    while lanes < members and 2 * lanes * size <= DEVICE_WEIGHTS:
        lanes *= 2
    return lanes


STAYS = 0.25
"""A flow that is moved alone goes back to the others when its step has shrunk to this share of what made it leave."""


class Queue:
    """States of all members, and who waits to be moved by what.

    Members that are not stiff wait for the explicit pair, stiff ones for the stabilised method, and those of small
    networks on the host whose step has become so long that dense linear algebra is cheaper are moved alone, by the
    integrator that has it, until it is shorter again. Whether a member is moved so depends on its own state after each
    step, as `bound` says, and not on when it happens to come back here. The longest queue is served first; stiff
    members come in the order of their stages, so that few of these are computed in vain.

    Args:
        states: States before the first step, members first.
        method: The method of all members, or the stacked one of each.
        workers: How many will take members from here.
    """

    def __init__(self, states: Any, method: AbstractMethod, workers: int) -> None:
        self.states = jax.tree.map(np.array if on_host() else jnp.asarray, states)
        members, size = states.y.shape
        flow = method if isinstance(method, GradientFlow) else None
        switching = flow.integrator if flow is not None and isinstance(flow.integrator, Switching) else None
        self.longest = np.full(members, np.inf)
        self.alone = np.zeros(members, bool)
        if flow is not None and switching is not None and size <= DENSE and on_host():
            stabilised = switching.stabilised.largest_step(jnp.ones(()), flow.rtol)
            self.longest = np.broadcast_to(np.minimum(30.0 * size, stabilised), members)
        self.running = np.zeros(members, bool)
        self.stiff = np.zeros(members, bool)
        self.stretch = np.zeros(members)
        self.switching = switching is not None
        self.queues: dict[str, list[int]] = {"explicit": [], "stabilised": [], "alone": []}
        self.workers, self.away = workers, 0
        self.ready = threading.Condition()
        self._wait(np.arange(members), self.states)

    def _wait(self, ids: np.ndarray, rows: Any) -> None:
        """Let members wait whose states are the first of `rows`."""
        live = len(ids)
        self.running[ids] = np.asarray(rows.result)[:live] == RESULTS.running
        if self.switching:
            self.stiff[ids] = np.asarray(rows.stiff)[:live]
            self.stretch[ids] = (np.asarray(rows.h) * np.asarray(rows.rho))[:live]
        self.alone[ids] = self.stiff[ids] & (self.stretch[ids] > self.bound(ids))
        ids = ids[self.running[ids]]
        kinds = np.where(self.alone[ids], "alone", np.where(self.stiff[ids], "stabilised", "explicit"))
        for kind, queue in self.queues.items():
            queue.extend(ids[kinds == kind].tolist())

    def bound(self, ids: np.ndarray) -> np.ndarray:
        """Step of members in units of 1/ρ beyond which dense linear algebra is cheaper."""
        return self.longest[ids] * np.where(self.alone[ids], STAYS, 1.0)

    def take(self, lanes: int) -> tuple[np.ndarray, str] | None:
        """Up to so many members that wait for the same, and for what; `None` when all have ended.

        The last members are shared out among the workers.
        """
        with self.ready:
            while not any(self.queues.values()):
                if not self.away:
                    return None
                self.ready.wait()
            kind = max(self.queues, key=lambda kind: len(self.queues[kind]))
            waiting = self.queues[kind]
            if kind == "stabilised":
                waiting.sort(key=lambda member: float(self.stretch[member]))
            count = min(lanes, -(-len(waiting) // max(1, self.workers - self.away)))
            ids = np.array(waiting[:count])
            del waiting[:count]
            self.away += 1
            return ids, kind

    def put(self, ids: np.ndarray, part: Any) -> None:
        """Take the states of members (the first rows of `part`) back, and let those that run wait again."""
        part = jax.block_until_ready(part)
        with self.ready:
            self.states = put(self.states, ids, part)
            self._wait(ids, part)
            self.away -= 1
            self.ready.notify_all()

    def state(self, ids: np.ndarray) -> Any:
        """States of members."""
        with self.ready:
            return take(self.states, ids)
