"""Checks as tasks: run anywhere, stored beside the experiments."""

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from deeplinear._about import use_64_bit
from deeplinear.core import make_room
from deeplinear.experiments._compute import environment
from deeplinear.experiments._executors import execute
from deeplinear.experiments._store import CorruptRecord, Record, Store
from deeplinear.theory import check, verify

KIND = "check"


@dataclasses.dataclass(frozen=True)
class CheckTask:
    """A check to be run, as plain values that can be sent anywhere."""

    id: str
    instances: int
    seed: int
    widths: tuple[int, ...] | None = None

    @property
    def key(self) -> str:
        """Content address of the outcome."""
        sizes = [] if self.widths is None else [list(self.widths)]
        text = json.dumps([self.id, check(self.id).version, self.instances, self.seed, *sizes])
        return hashlib.sha256(text.encode()).hexdigest()[:20]


def compute_check(task: CheckTask) -> dict[str, Any]:
    """Run a check; its outcome as plain values, with how it was done."""
    use_64_bit()
    make_room()
    started = datetime.datetime.now(datetime.UTC)
    outcome = verify(check(task.id), instances=task.instances, seed=task.seed, widths=task.widths)
    return outcome.to_json() | {
        "environment": environment(),
        "timing": {"started": started.isoformat(timespec="microseconds"), "seconds": round(outcome.seconds, 3)},
    }


def run_checks(
    tasks: Sequence[CheckTask],
    store: Store,
    *,
    executor: str = "serial",
    workers: int | None = None,
    address: str | None = None,
    resume: bool = False,
    begin: Callable[[CheckTask], None] = lambda task: None,
) -> Iterator[tuple[CheckTask, Record | BaseException]]:
    """Run checks and store their outcomes, whatever they are; an outcome of earlier is replaced, or taken if so wished.

    Args:
        tasks: What to run.
        store: Where outcomes live.
        executor: `serial`, `processes` or `dask`.
        workers: Number of workers.
        address: Of a Dask scheduler.
        resume: Take the stored outcome, unless it is damaged or a failure, of a check with the same version, number of
            instances, seed and widths.
        begin: Told the check that is run next, where the work is done in this process.

    Yields:
        The task and its record, or the exception it ended with, as they come.
    """

    def told(task: CheckTask) -> dict[str, Any]:
        begin(task)
        return compute_check(task)

    work = told if executor == "serial" else compute_check
    waiting = []
    for task in tasks:
        record = _stored(task, store) if resume else None
        if record is None:
            waiting.append(task)
        else:
            yield task, record
    for position, content in execute(work, waiting, executor=executor, workers=workers, address=address):
        task = waiting[position]
        yield task, content if isinstance(content, BaseException) else store.put(KIND, task.id, task.key, content)


def _stored(task: CheckTask, store: Store) -> Record | None:
    """The outcome of earlier, if it is whole and no failure."""
    try:
        record = store.find(KIND, task.id, task.key)
    except CorruptRecord:
        return None
    return None if record is None or record.content["status"] == "fails" else record
