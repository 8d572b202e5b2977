"""Many runs: those that are stored already are not run again, each new one is stored as soon as it is there."""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from deeplinear.experiments._compute import FORMATS, Result, Task, compute
from deeplinear.experiments._executors import execute
from deeplinear.experiments._store import CorruptRecord, Record, Store

if TYPE_CHECKING:
    import xarray

KIND = "experiment"


@dataclasses.dataclass(frozen=True)
class Member:
    """What came of one member of a sweep.

    Attributes:
        task: What was asked for.
        status: `stored` (it was there), `completed` (it was run now) or `failed`.
        record: The run, unless it failed.
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
) -> list[Member]:
    """Complete every task: what the store has is taken from there, the rest is computed and stored one by one.

    A kill at any moment loses no completed member; the same call goes on where it stopped. A member that fails does
    not stop the others and is not stored.

    Args:
        tasks: What to run.
        store: Where results live.
        executor: `serial`, `processes` or `dask`.
        workers: Number of workers.
        address: Of a Dask scheduler.
        again: Run also what is stored.
        formats: Formats of the pictures of what is run.
        progress: Told how far the sweep is.
        report: Told each member as it is settled.

    Returns:
        One member for each task, in order.
    """
    store.tidy()
    settled: dict[int, Member] = {}
    waiting: list[int] = []
    reasons: dict[int, str] = {}
    for position, task in enumerate(tasks):
        try:
            record = None if again else store.find(KIND, task.id, task.key)
        except CorruptRecord as error:
            record, reasons[position] = None, f"The stored run was damaged and is run again: {error}"
        if record is None:
            waiting.append(position)
        else:
            settled[position] = Member(task, "stored", record)
            report(settled[position])
    start = time.monotonic()
    known = len(settled)

    def tick(text: str, fraction: float = 0.0) -> None:
        finished = len(settled) - known
        rate = finished / max(time.monotonic() - start, 1e-9)
        left = (len(waiting) - finished) / rate if rate > 0 else float("nan")
        progress(Tick(len(settled), len(tasks), rate, left, text, fraction))

    tick("starting")
    work = functools.partial(_work, root=str(store.path), formats=tuple(formats))
    if executor == "serial":
        work = functools.partial(work, progress=lambda fraction, text: tick(text, fraction))
    arguments = [tasks[position] for position in waiting]
    for index, result in execute(work, arguments, executor=executor, workers=workers, address=address):
        position = waiting[index]
        task = tasks[position]
        reason = reasons.get(position, "")
        if isinstance(result, Result):
            record = store.put(KIND, task.id, task.key, result.content, result.files)
            store.clear_scratch(task.key)
            settled[position] = Member(task, "completed", record, reason)
        else:
            settled[position] = Member(task, "failed", None, f"{type(result).__name__}: {result}")
        report(settled[position])
        tick(task.id)
    return [settled[position] for position in range(len(tasks))]


def _work(
    task: Task,
    *,
    root: str,
    formats: tuple[str, ...],
    progress: Callable[[float, str], None] = lambda fraction, text: None,
) -> Any:
    """What a worker does. It may stand on another machine, where there is no folder of the store for checkpoints."""
    return compute(task, str(Store(root).scratch(task.key)), progress, formats)


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

    found = [(task, record) for task in tasks if (record := store.find(KIND, task.id, task.key)) is not None]
    if not found:
        raise ValueError("None of these members is stored yet; run the sweep first.")
    parts = [record.dataset() for _, record in found]
    for name in sorted({str(dim) for part in parts for dim in part.dims}):
        if any(name in p.coords and not p[name].equals(parts[0][name]) for p in parts if name in parts[0].coords):
            parts = _by_position(parts, name)
    dataset = xarray.concat(parts, "member", join="outer")
    varied = {f"spec.{key}": ("member", [_scalar(task.spec[key]) for task, _ in found]) for key in keys}
    return dataset.assign_coords(varied), len(tasks) - len(found)


def _by_position(parts: Sequence["xarray.Dataset"], name: str) -> list["xarray.Dataset"]:
    """Datasets of equal length along a dimension, whose coordinate becomes a variable."""
    longest = max(part.sizes[name] for part in parts)
    found = []
    for part in parts:
        values = part[name].to_numpy()
        moved = part.drop_vars(name).assign({f"{name}.value": (name, values)})
        found.append(moved.pad({name: (0, longest - len(values))}))
    return found


def _scalar(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list) else value
