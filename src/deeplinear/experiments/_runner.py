"""Many runs: those that are stored already are not run again, each new one is stored as soon as it is there."""

import collections
import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear._about import written
from deeplinear.experiments._compute import FORMATS, Result, Task, compute
from deeplinear.experiments._executors import execute
from deeplinear.experiments._netcdf import together
from deeplinear.experiments._store import REPLACED, CorruptRecord, Record, Store

if TYPE_CHECKING:
    import xarray

KIND = "experiment"
STATES = ("waiting", "stored", "completed", "failed")

WRITERS = 8
"""Members that are written at a time, at most."""

BRIEF = 0.1
"""Seconds between members that come fast."""

CHECKED = 1_000
"""Stored members that are read and checked before a sweep goes on. Of more only the names are looked at: reading them
all would take minutes, and each is checked when it is read."""


@dataclasses.dataclass(frozen=True)
class Member:
    """What came of one member of a sweep.

    Attributes:
        task: What was asked for.
        status: `stored` (it was there), `completed` (it was run now) or `failed`.
        record: The run, unless it failed. Its content is read from the store when it is asked for.
        reason: Why it failed, or what was wrong with the stored one that had to be run again.
    """

    task: Task
    status: str
    record: Record | None = None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Tick:
    """How far a sweep is: told after each member, and in between where the work is done in this process."""

    done: int
    members: int
    rate: float
    left: float
    text: str
    fraction: float = 0.0


class Settled(Sequence[Member]):
    """What came of every task of a sweep, in order. Only a letter is kept for each, and the reasons."""

    def __init__(self, tasks: Sequence[Task], store: Store) -> None:
        self._tasks, self._store = tasks, store
        self._states = bytearray(len(tasks))
        self._reasons: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        task, status = self._tasks[position], STATES[self._states[position]]
        there = status in ("stored", "completed")
        record = self._store.record(KIND, task.id, task.key) if there else None
        return Member(task, status, record, self._reasons.get(position % len(self), ""))

    def _settle(self, position: int, status: str, reason: str = "") -> None:
        self._states[position] = STATES.index(status)
        if reason:
            self._reasons[position] = reason


def run(
    tasks: Sequence[Task],
    store: Store,
    *,
    executor: str = "serial",
    workers: int | None = None,
    address: str | None = None,
    again: bool = False,
    formats: Sequence[str] = FORMATS,
    progress: Callable[[Tick], None] = lambda tick: None,
    report: Callable[[Member], None] = lambda member: None,
) -> Settled:
    """Complete every task: what the store has is taken from there, the rest is computed and stored one by one.

    A kill at any moment loses no completed member; the same call goes on where it stopped. A member that fails does
    not stop the others and is not stored. Results go to the store as they come and are not kept.

    Args:
        tasks: What to run.
        store: Where results live.
        executor: `serial`, `processes` or `dask`.
        workers: Number of workers.
        address: Of a Dask scheduler.
        again: Run also what is stored.
        formats: Formats of the pictures of what is run.
        progress: Told how far the sweep is.
        report: Told each member as it is settled, with the content of its record in memory. Where more than `CHECKED`
            are stored already, those are taken by their names, and checked when they are read.

    Returns:
        One member for each task, in order.

    Raises:
        OSError: If the store cannot be written; what was stored before is there.
        ConnectionError: If the Dask scheduler is gone for good.
    """
    store.tidy()
    settled = Settled(tasks, store)
    there = set() if again else {(name, key) for name in {t.id for t in tasks} for key in store.keys(KIND, name)}
    present = [position for position, task in enumerate(tasks) if (task.id, task.key) in there]
    reasons: dict[int, str] = {}
    done = 0
    for position in present:
        task = tasks[position]
        try:
            record = (
                store.find(KIND, task.id, task.key)
                if len(present) <= CHECKED
                else store.record(KIND, task.id, task.key)
            )
        except CorruptRecord as error:
            kept = f"Its files are kept in {store.path / REPLACED}."
            record, reasons[position] = None, f"The stored run was damaged and is run again: {error} {kept}"
        if record is not None:
            settled._settle(position, "stored")
            report(Member(task, "stored", record))
            done += 1
    waiting = [position for position in range(len(tasks)) if STATES[settled._states[position]] == "waiting"]
    start = time.monotonic()
    known = done

    def tick(text: str, fraction: float = 0.0) -> None:
        rate = (done - known) / max(time.monotonic() - start, 1e-9)
        left = (len(tasks) - done) / rate if rate > 0 else float("nan")
        progress(Tick(done, len(tasks), rate, left, text, fraction))

    tick("starting")
    work = functools.partial(_work, root=str(store.path.absolute()), formats=tuple(formats))
    if executor == "serial":
        work = functools.partial(work, progress=lambda fraction, text: tick(text, fraction))
    outcomes = execute(work, _Chosen(tasks, waiting), executor=executor, workers=workers, address=address, notice=tick)
    writing: collections.deque[tuple[int, Future[Record]]] = collections.deque()

    def keep(task: Task, result: Result) -> Record:
        record = store.put(KIND, task.id, task.key, result.content, result.files)
        store.clear_scratch(task.key)
        return record

    def settle(position: int, status: str, record: Record | None, reason: str) -> None:
        nonlocal done
        settled._settle(position, status, reason)
        done += 1
        report(Member(tasks[position], status, record, reason))

    def written() -> None:
        """Settle the member that has been in writing longest."""
        position, future = writing.popleft()
        settle(position, "completed", future.result(), reasons.get(position, ""))

    with contextlib.closing(outcomes), ThreadPoolExecutor(WRITERS) as writers:
        last = -math.inf
        try:
            for index, result in outcomes:
                position = waiting[index]
                if isinstance(result, Result):
                    writing.append((position, writers.submit(keep, tasks[position], result)))
                else:
                    settle(position, "failed", None, f"{type(result).__name__}: {result}")
                # Where members come one after another, several are written at a time: most of it is waiting for disks.
                fast = executor != "serial" and time.monotonic() - last < BRIEF
                last = time.monotonic()
                while len(writing) > (WRITERS if fast else 0):
                    written()
                tick(tasks[position].id)
            while writing:
                written()
            tick("")
        except BaseException:  # What is in writing is there in a moment, and is told; progress may raise interrupts.
            while writing:
                with contextlib.suppress(OSError):
                    written()
            raise
    return settled


class _Chosen(Sequence[Task]):
    """Tasks at some positions, made when they are asked for."""

    def __init__(self, tasks: Sequence[Task], positions: Sequence[int]) -> None:
        self._tasks, self._positions = tasks, positions

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: Any) -> Any:
        return self._tasks[self._positions[index]]


def _work(
    task: Task,
    *,
    root: str,
    formats: tuple[str, ...],
    progress: Callable[[float, str], None] = lambda fraction, text: None,
) -> Any:
    """What a worker does. It may stand on another machine, where there is no folder of the store for checkpoints."""
    store = Store(root)
    return compute(task, str(store.scratch(task.key)) if store.path.is_dir() else None, progress, formats)


def collect(tasks: Sequence[Task], store: Store, keys: Sequence[str]) -> tuple["xarray.Dataset", int]:
    """The stored members of a sweep as one dataset with a leading dimension `member`.

    Args:
        tasks: The members.
        store: Where they are.
        keys: Names of the settings that vary; they become coordinates of `member`, `spec.name`.

    A dimension whose coordinate differs between members, such as the times of runs that choose their own steps, is
    counted by position instead, padded with NaN, and its coordinate kept as the variable `name.value`.

    Returns:
        The dataset, and how many members are not stored yet.

    Raises:
        ValueError: If none is stored.
        CorruptRecord: If one is damaged.
    """
    import xarray

    there = {(name, key) for name in {t.id for t in tasks} for key in store.keys(KIND, name)}
    found = [position for position, task in enumerate(tasks) if (task.id, task.key) in there]
    if not found:
        raise ValueError("None of these members is stored yet; run the sweep first.")

    def read() -> Iterator[tuple[bytes, Record]]:
        for position in found:
            task = tasks[position]
            record = store.record(KIND, task.id, task.key)
            yield record.file("data.nc"), record

    parts = list(together(read(), lambda record: record.dataset()))
    for name in sorted({str(dim) for part in parts for dim in part.dims} - {"member"}):
        if any(name in p.coords and not p[name].equals(parts[0][name]) for p in parts if name in parts[0].coords):
            parts = _by_position(parts, name)
    dataset = parts[0] if len(parts) == 1 else xarray.concat(parts, "member", data_vars="all", join="outer")
    varied = {f"spec.{key}": ("member", [_scalar(tasks[i].spec[key]) for i in found]) for key in keys}
    return dataset.assign_coords(varied), len(tasks) - len(found)


def _by_position(parts: Sequence["xarray.Dataset"], name: str) -> list["xarray.Dataset"]:
    """Datasets of equal length along a dimension, whose coordinate becomes a variable."""
    longest = max(part.sizes[name] for part in parts)
    found = []
    for part in parts:
        values = part[name].to_numpy()
        each = np.broadcast_to(values, (part.sizes["member"], len(values)))
        moved = part.drop_vars(name).assign({f"{name}.value": (("member", name), each)})
        found.append(moved.pad({name: (0, longest - len(values))}))
    return found


def _scalar(value: Any) -> Any:
    return written(value) if isinstance(value, list) else value
