"""Who of the members of an ensemble waits to be moved, and by what."""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import RESULTS
from deeplinear.dynamics._base import AbstractMethod
from deeplinear.dynamics._flow import GradientFlow, Switching
from deeplinear.dynamics._members import on_host, put, take

LEAST_LANES = 16
"""Fewest members that are moved side by side."""

DEVICE_WEIGHTS = 620_000
"""Weights of a group on an accelerator: enough to keep it busy."""


def many_lanes(members: int, size: int) -> int:
    """Number of members to move side by side on an accelerator: a power of two, because each number is compiled."""
    lanes = LEAST_LANES
    while lanes < members and 2 * lanes * size <= DEVICE_WEIGHTS:
        lanes *= 2
    return lanes


class Queue:
    """States of all members, and who waits to be moved by what.

    Members that are not stiff wait for the explicit pair, stiff ones for the stabilised method. The longest queue is
    served first; stiff members come in the order of their stages, so that few of these are computed in vain.

    Args:
        states: States before the first step, members first.
        method: The method of all members, or the stacked one of each.
        workers: How many will take members from here.
    """

    def __init__(self, states: Any, method: AbstractMethod, workers: int) -> None:
        self.states = jax.tree.map(np.array if on_host() else jnp.asarray, states)
        members = len(states.y)
        self.running = np.zeros(members, bool)
        self.stiff = np.zeros(members, bool)
        self.stretch = np.zeros(members)
        self.switching = isinstance(method, GradientFlow) and isinstance(method.integrator, Switching)
        self.queues: dict[str, list[int]] = {"explicit": [], "stabilised": []}
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
        ids = ids[self.running[ids]]
        for kind, queue in self.queues.items():
            queue.extend(ids[self.stiff[ids] == (kind == "stabilised")].tolist())

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
