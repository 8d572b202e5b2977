"""Work on a Dask cluster: a few tasks for each thread of it are under way, and whatever dies is done again.

Of `distributed` only what is public is used. A future that ends cancelled was lost with its scheduler; its members go
back to those that wait, and a new connection is made. While there is nothing to work with, the caller is told so each
time it is looked, and a warning is logged at first and once a minute: it reaches the error stream of any program.
"""

import asyncio
import collections
import contextlib
import logging
import math
import os
import queue
import runpy
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

LOG = logging.getLogger(__name__)

WORKER = str(Path(__file__).with_name("_worker.py"))
"""What workers run, by its path."""

WORKERS_WITHIN = 30.0
"""Seconds in which a Dask scheduler must have a worker at the beginning."""

WORKERS_AGAIN = 600.0
"""Seconds in which it must have one again, once it had some: those of a cluster may have to queue."""

SCHEDULER_AGAIN = 60.0
"""Seconds in which a scheduler that went away must be back."""

ANSWER = 10.0
"""Seconds in which a scheduler must answer."""

LOOK = 2.0
"""Seconds between looks at the cluster."""

REPEAT = 60.0
"""Seconds between warnings that say the same."""

AHEAD = 2
"""Tasks for each thread of the cluster: one that runs and one that waits beside it."""

SECONDS = 0.5
"""Members that take less are sent several at a time, so that a task takes about as long: each task costs the scheduler
some milliseconds."""

MOST = 256
"""Members of one task at most."""

LOSSES = 5
"""Connections that may be lost in a row without a result between them."""

SEVERAL = runpy.run_path(WORKER)["several"]
"""What one task does. It belongs to no module and is sent as a whole: a worker loads of this package only what it is to
apply."""


def distribute(
    function: Callable[[Any], Any],
    arguments: Sequence[Any],
    environment: Mapping[str, str],
    workers: int,
    address: str | None,
    notice: Callable[[str], None],
) -> Generator[tuple[int, Any]]:
    """The executor `dask`; see `execute`."""
    try:
        import distributed
    except ImportError as error:
        raise ImportError(
            "The executor 'dask' needs dask.distributed, which is not installed; install the extra: "
            "pip install 'deeplinear[dask]'"
        ) from error

    with contextlib.ExitStack() as stack:
        place = address
        if address is None:
            stack.enter_context(environment_with(environment))
            # Workers inherit that interrupts are left to this process.
            with _interrupts_ignored():
                cluster: Any = stack.enter_context(
                    distributed.LocalCluster(
                        n_workers=workers,
                        threads_per_worker=1,
                        processes=True,
                        dashboard_address=":0",
                        silence_logs=logging.CRITICAL,
                    )
                )
            place = cluster.scheduler_address
        stack.enter_context(_quiet())
        remedy = "waiting for one" if address is None else f"start one: dask worker {address}"
        sweep = _Sweep(function, arguments, str(place), remedy, notice)
        try:
            yield from sweep.outcomes()
        finally:
            sweep.leave()


class _Sweep:
    """The state of one call: what waits, what is under way, and the connection."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        arguments: Sequence[Any],
        address: str,
        remedy: str,
        notice: Callable[[str], None],
    ) -> None:
        self.function, self.arguments, self.address, self.notice = function, arguments, address, notice
        self.idle = f"no Dask worker is connected; {remedy}"
        self.told: dict[str, float] = {}
        self.waiting = collections.deque(range(len(arguments)))
        self.suspects: collections.deque[int] = collections.deque()
        self.judged: set[int] = set()
        self.running: dict[str, tuple[Any, list[int]]] = {}
        self.done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.seconds = math.inf
        self.losses = 0
        self.threads = self.workers = 0
        self.looked = 0.0
        self.client = self._connect()
        limit = time.monotonic() + WORKERS_WITHIN
        while not self._look():
            if time.monotonic() > limit:
                self.leave()
                raise ConnectionError(
                    f"The Dask scheduler at '{address}' has had no worker for {WORKERS_WITHIN:.0f} s; start one."
                )
            self._tell(self.idle)
            time.sleep(0.2)
        self.worked = time.monotonic()

    def outcomes(self) -> Iterator[tuple[int, Any]]:
        """Positions and results or exceptions, as they come."""
        while self.waiting or self.suspects or self.running:
            try:
                self._submit()
                future = self.done.get(timeout=LOOK)
            except queue.Empty:
                future = None
            except (OSError, TimeoutError):
                self._reconnect()
                continue
            if future is not None and future.key in self.running:
                yield from self._settle(future)
            if time.monotonic() - self.looked > LOOK:
                self._watch()

    def leave(self) -> None:
        """Give up what is under way, and the connection."""
        with contextlib.suppress(Exception):
            if self.running and self.client.status == "running":
                self.client.cancel([future for future, _ in self.running.values()], force=True)
        self.running.clear()
        with contextlib.suppress(Exception):
            self.client.close(timeout=2)

    def _connect(self) -> Any:
        from distributed import Client

        try:
            self._knock()
            return Client(self.address, timeout=ANSWER, set_as_default=False)
        except Exception as error:  # Whatever answers there need not be Dask.
            raise ConnectionError(f"There is no Dask scheduler at '{self.address}': {error}.") from error

    def _knock(self) -> None:
        """Raise what is wrong with the address, or that nothing answers: a client made for it could not be closed."""
        answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

        def knock() -> None:
            try:
                asyncio.run(_greet(self.address))
            except Exception as error:
                answers.put(error)
            else:
                answers.put(None)

        threading.Thread(target=knock, daemon=True).start()
        while True:
            try:
                problem = answers.get(timeout=LOOK)
            except queue.Empty:
                self._tell(f"waiting for the Dask scheduler at {self.address}")
                continue
            if problem is not None:
                raise problem
            return

    def _tell(self, text: str, state: str | None = None) -> None:
        """Say why the work stands still; `state` is what the caller is told where it differs from the warning."""
        self.notice(state or text)
        if time.monotonic() - self.told.get(text, -math.inf) >= REPEAT:
            self.told[text] = time.monotonic()
            LOG.warning(text)

    def _reconnect(self) -> None:
        """Put back what was under way, and wait a while for the scheduler."""
        gone = f"the Dask scheduler at {self.address} went away; waiting for it"
        self._tell(gone)
        for _, chunk in self.running.values():
            self.waiting.extendleft(reversed([member for member in chunk if member not in self.judged]))
            self.suspects.extend(member for member in chunk if member in self.judged)
        self.leave()
        self.losses += 1
        limit = time.monotonic() + SCHEDULER_AGAIN
        while self.losses <= LOSSES:
            try:
                self.client = self._connect()
                self._look()
            except (OSError, TimeoutError):
                if time.monotonic() > limit:
                    break
                self._tell(gone)
            else:
                self.worked = time.monotonic()
                return
        raise ConnectionError(
            f"The Dask scheduler at '{self.address}' went away and did not come back for good within "
            f"{SCHEDULER_AGAIN:.0f} s."
        )

    def _look(self) -> int:
        """Ask how many threads and workers there are."""
        self.looked = time.monotonic()
        threads = self.client.sync(self.client.scheduler.ncores, callback_timeout=ANSWER)
        self.threads, self.workers = sum(threads.values()), len(threads)
        return self.threads

    def _watch(self) -> None:
        """Notice that the scheduler or all workers are gone."""
        try:
            if self._look():
                self.worked = time.monotonic()
                return
        except (OSError, TimeoutError):
            self._reconnect()
            return
        missing = time.monotonic() - self.worked
        self._tell(self.idle, f"no Dask worker for {missing:.0f} s; waiting for one")
        if missing > WORKERS_AGAIN:
            raise ConnectionError(
                f"The Dask scheduler at '{self.address}' has had no worker for {WORKERS_AGAIN:.0f} s; start some."
            )

    def _submit(self) -> None:
        """Keep a few tasks for each thread under way. Those whose worker died often come last, and by themselves."""
        while self.waiting and len(self.running) < AHEAD * max(1, self.threads):
            room = len(self.waiting) // (2 * AHEAD * max(1, self.threads))
            count = max(1, min(MOST, room, int(SECONDS / max(self.seconds, 1e-6)) if self.seconds < SECONDS else 1))
            self._send([self.waiting.popleft() for _ in range(count)])
        while self.suspects and not self.waiting and len(self.running) < max(1, self.workers):
            self._send([self.suspects.popleft()])

    def _send(self, chunk: list[int]) -> None:
        future = self.client.submit(SEVERAL, self.function, [self.arguments[i] for i in chunk], pure=False)
        self.running[future.key] = (future, chunk)
        future.add_done_callback(self.done.put)

    def _settle(self, future: Any) -> Iterator[tuple[int, Any]]:
        """What came of a task."""
        from distributed import KilledWorker

        _, chunk = self.running[future.key]
        if future.status == "cancelled":
            self._reconnect()
            return
        if future.status != "error":
            try:
                seconds, results = future.result(timeout=ANSWER)
            except TimeoutError:  # The worker that held the result is gone; it is made again.
                future.add_done_callback(self.done.put)
                return
            except Exception as error:
                if future.status == "cancelled":
                    self._reconnect()
                    return
                problem = error
            else:
                del self.running[future.key]
                future.release()
                self.seconds, self.losses = seconds / len(chunk), 0
                self.worked = time.monotonic()
                yield from zip(chunk, results, strict=True)
                return
        else:
            problem = future.exception(timeout=ANSWER)
        del self.running[future.key]
        future.release()
        if isinstance(problem, KilledWorker):
            problem = RuntimeError("Several workers died with it, perhaps for want of memory; it was given up.")
            second_chance = not self.judged.issuperset(chunk)
        else:
            second_chance = len(chunk) > 1
        if second_chance:
            # Others that were on the same workers may have died with it, so each is tried once more by itself.
            self.judged.update(chunk)
            self.suspects.extend(chunk)
            return
        for member in chunk:
            yield member, problem


async def _greet(address: str) -> None:
    """Connect as a client would, and leave."""
    from distributed import Security
    from distributed.comm.core import connect

    connection = await connect(address, timeout=ANSWER, **Security().get_connection_args("client"))
    await connection.close()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A while in which `distributed` does not tell of lost connections; what they mean for the work is told here."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """A while in which an interrupt does nothing; only the main thread can say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def environment_with(values: Mapping[str, str]) -> Iterator[None]:
    """Variables of the environment that workers inherit."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
