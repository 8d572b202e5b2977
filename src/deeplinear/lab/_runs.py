"""Simulations in the background: a few at a time, with progress, shared between those who ask for the same."""

import contextlib
import dataclasses
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from deeplinear.lab._cache import Cache
from deeplinear.lab._errors import Failure, LabError, failure_of
from deeplinear.lab._figures import Answer
from deeplinear.lab._room import Cancelled, Watch
from deeplinear.lab._settings import Settings

State = Literal["waiting", "running", "done", "failed", "cancelled"]

LONELY = 15.0
"""Seconds after which a simulation that nobody listens to is ended."""

log = logging.getLogger(__name__)


class Task:
    """A simulation; any number of tickets may be for it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.state: State = "waiting"
        self.fraction, self.text = 0.0, ""
        self.partial: bytes | None = None
        self.answer: bytes | None = None
        self.failure: Failure | None = None
        self.version = 0
        self.tickets: list[Ticket] = []

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "failed", "cancelled")

    def unwanted(self) -> bool:
        """Whether everyone who asked has gone or cancelled."""
        return all(ticket.gone() for ticket in self.tickets)


@dataclasses.dataclass(eq=False)
class Ticket:
    """One request for a simulation."""

    id: str
    task: Task
    cancelled: bool = False
    listeners: int = 0
    left: float = dataclasses.field(default_factory=time.monotonic)

    def gone(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.cancelled or (self.listeners == 0 and time.monotonic() - self.left > LONELY)

    @property
    def state(self) -> State:
        """Its own state: cancelled even where the simulation goes on for others."""
        return "cancelled" if self.cancelled and not self.task.answer else self.task.state


class Runs:
    """All simulations of a server."""

    def __init__(self, settings: Settings, cache: Cache) -> None:
        self._settings, self._cache = settings, cache
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._tickets: dict[str, Ticket] = {}

    def open(self) -> None:
        """Begin to take simulations."""
        self._pool = ThreadPoolExecutor(self._settings.runs, thread_name_prefix="lab-run")

    def submit(self, key: str, compute: Callable[[Watch], Answer]) -> Ticket:
        """A ticket for a simulation: a new one, one under way, or one whose answer is kept."""
        with self._lock:
            kept = self._cache.get(key)
            task = self._tasks.get(key)
            new = kept is None and (task is None or task.ended or task.unwanted())
            if kept is not None:
                task = Task(key)
                task.state, task.fraction, task.answer = "done", 1.0, kept
            elif new:
                if self.busy() >= self._settings.runs + self._settings.queued:
                    raise LabError("busy", "Too many simulations wait already. Try again in a moment.")
                task = self._tasks[key] = Task(key)
            assert task is not None
            ticket = Ticket(secrets.token_urlsafe(12), task)
            task.tickets.append(ticket)
            self._tickets[ticket.id] = ticket
            self._forget()
            if new:
                self._pool.submit(self._work, task, compute)
            return ticket

    def busy(self) -> int:
        """Number of simulations that run or wait."""
        return sum(not task.ended for task in list(self._tasks.values()))

    def ticket(self, name: str) -> Ticket:
        """The ticket of that name."""
        found = self._tickets.get(name)
        if found is None:
            raise LabError("missing", "There is no such simulation (any more). Start it again.")
        return found

    @contextlib.contextmanager
    def listening(self, name: str) -> Iterator[Ticket]:
        """For a listener: the ticket of that name, which counts the listener until he goes, however he does."""
        ticket = self.ticket(name)
        with self._lock:
            if sum(one.listeners for one in self._tickets.values()) >= self._settings.streams:
                raise LabError("busy", "Too many listeners. Close other pages of the lab.")
            ticket.listeners += 1
        try:
            yield ticket
        finally:
            with self._lock:
                ticket.listeners -= 1
                ticket.left = time.monotonic()

    def close(self) -> None:
        """End everything."""
        with self._lock:
            for ticket in self._tickets.values():
                ticket.cancelled = True
            self._tickets.clear()
            self._tasks.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _forget(self) -> None:
        """Drop the oldest tickets that have ended, beyond what is kept."""
        over = len(self._tickets) - self._settings.kept_runs
        for name in [name for name, one in self._tickets.items() if one.task.ended and not one.listeners][
            : max(over, 0)
        ]:
            del self._tickets[name]

    def _work(self, task: Task, compute: Callable[[Watch], Answer]) -> None:
        def tell(fraction: float, text: str, answer: Answer | None) -> None:
            task.fraction, task.text = fraction, text
            if answer is not None:
                task.partial = answer.model_dump_json().encode()
            task.version += 1

        try:
            if task.unwanted():
                raise Cancelled
            task.state = "running"
            task.version += 1
            answer = compute(Watch(tell, task.unwanted, self._settings.run_seconds))
            if answer.count() > self._settings.points:
                raise LabError("size", "The answer has too many numbers. Ask for fewer times or smaller matrices.")
            task.answer = answer.model_dump_json().encode()
            self._cache.put(task.key, task.answer)
            task.state, task.fraction = "done", 1.0
        except Cancelled:
            task.state = "cancelled"
        except Exception as error:
            task.failure = failure_of(error)
            if task.failure.kind == "internal":
                log.exception("The simulation %s failed.", task.key)
            task.state = "failed"
        finally:
            task.partial = None if task.ended else task.partial
            task.version += 1
            with self._lock:
                if self._tasks.get(task.key) is task:
                    del self._tasks[task.key]


def event(name: str, data: str) -> bytes:
    """A message of a stream of events."""
    return f"event: {name}\ndata: {data}\n\n".encode()


def messages(ticket: Ticket, seen: int) -> tuple[list[bytes], int, bool]:
    """What a listener that has seen a version is told, the version after that, and whether it was the last."""
    task = ticket.task
    version, state = task.version, ticket.state
    if state == "done" and task.answer is not None:
        return [event("done", task.answer.decode())], version, True
    if state == "failed" and task.failure is not None:
        return [event("failed", task.failure.model_dump_json())], version, True
    if state == "cancelled":
        return [event("cancelled", "{}")], version, True
    if version == seen:
        return [], version, False
    told = {"state": state, "fraction": task.fraction, "text": task.text}
    found, task_partial = [event("progress", json.dumps(told))], task.partial
    if task_partial is not None:
        found.append(event("partial", task_partial.decode()))
    return found, version, False
