"""Workers of the native engine, on as many threads as there are processors, while Python looks at the clock."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import NamedTuple

import numpy as np

import deeplinear.engine as engine
from deeplinear.core import RESULTS, processors
from deeplinear.dynamics._base import Progress
from deeplinear.dynamics._members import Recorder
from deeplinear.dynamics._native_spec import Handover, is_wide

SLICE = 0.05
"""Seconds between two looks at the clock and at interrupts."""

WINDOW_BYTES = 16_000_000
"""Memory for the snapshots of one worker."""

Observe = Callable[[np.ndarray, np.ndarray, np.ndarray], Sequence[np.ndarray]]
"""Values of probes on snapshots, from members, times and weights."""


class Hand(NamedTuple):
    """A worker and the room for its records."""

    worker: engine.Worker
    records: engine.Records


class Crew:
    """Workers that move all members of a run to their ends.

    Args:
        handover: The run.
        recorder: Where records go.
        observe: Values of probes on snapshots, or `None` if none is needed.
        order: What goes to the recorder: "loss", "slope", or "" for the next value that `observe` gives.
    """

    def __init__(self, handover: Handover, recorder: Recorder, observe: Observe | None, order: Sequence[str]) -> None:
        self.handover, self.recorder, self.observe, self.order = handover, recorder, observe, order
        self.lock, self.stop = threading.Lock(), handover.stop
        members, size = handover.y.shape
        keeps = observe is not None
        spec, counter = handover.spec(keeps), np.zeros(1, np.int64)
        self.wide = is_wide(handover.run.problem.model)
        count = max(1, min(processors(), -(-members // (1 if self.wide else engine.lanes()))))
        room = int(np.clip(WINDOW_BYTES // (8 * size), 64, 4096)) if keeps else 4096
        room = min(room, 64) if members == 1 and keeps else room
        self.hands = [Hand(engine.Worker(spec, counter), engine.Records(room, size, keeps)) for _ in range(count)]

    def drain(self, records: engine.Records) -> None:
        """Hand records to the recorder, and make room again."""
        filled = records.filled
        if filled:
            ids, times = records.member[:filled], records.time[:filled]
            with self.lock:
                own = {"loss": records.loss[:filled], "slope": records.slope[:filled]}
                values = iter(self.observe(ids, times, records.states[:filled]) if self.observe is not None else ())
                self.recorder.scatter(ids, times, [own[name] if name in own else next(values) for name in self.order])
        records.clear()

    def turn(self, hand: Hand) -> bool:
        """One slice of work; whether there is more."""
        status = hand.worker.advance(hand.records, SLICE)
        self.drain(hand.records)
        return status in (engine.WORKING, engine.FULL)

    def look(self) -> None:
        """Look at the clock, and say how far all are."""
        if time.monotonic() > self.handover.run.deadline:
            self.stop[0] = int(RESULTS.wall_limit)
        self.tell()

    def tell(self) -> None:
        """Say how far all members are."""
        if (progress := self.handover.run.progress) is None:
            return
        t, horizon = self.handover.column("t"), self.handover.run.schedule.horizon
        ended = self.handover.column("result") != RESULTS.running
        done = np.where(ended, 1.0, np.clip(t / (horizon or 1.0), 0, 1))
        steps = int(self.handover.column("accepted").sum())
        progress(Progress(len(t), int(ended.sum()), steps, float(t.min()), float(done.mean())))

    def move(self) -> None:
        """Move all members to their ends. An interrupt ends the run and keeps what there is."""
        try:
            self.look()
            if len(self.hands) == 1 and not self.wide:
                while not self.stop[0] and self.turn(self.hands[0]):
                    self.look()
            elif not self.stop[0]:
                self._together()
        except KeyboardInterrupt:
            self.stop[0] = int(RESULTS.interrupted)
        if limit := int(self.stop[0]):
            self.stop[0] = 0
            for hand in self.hands:
                while hand.worker.end(hand.records, limit) == engine.FULL:
                    self.drain(hand.records)
                self.drain(hand.records)
        self.tell()

    def _together(self) -> None:
        """All workers on threads of their own, while this one looks at the clock."""

        def work(hand: Hand) -> None:
            while not self.stop[0] and self.turn(hand):
                pass

        with ThreadPoolExecutor(len(self.hands)) as pool:
            futures = [pool.submit(work, hand) for hand in self.hands]
            try:
                waiting = set(futures)
                while waiting:
                    waiting = {future for future in waiting if not future.done()}
                    if waiting:
                        wait(waiting, SLICE, FIRST_COMPLETED)
                        self.look()
                for future in futures:
                    future.result()
            except BaseException:
                self.stop[0] = int(RESULTS.interrupted)
                raise
