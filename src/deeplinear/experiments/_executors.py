"""Where work is done: here, in processes of this machine, or on a Dask cluster. An executor is one function.

Each takes a function of one argument and the arguments, and gives `(position, result or exception)` as they come. The
caller decides what to do with a failure; an interrupt stops what is not yet begun and goes on to the caller.
"""

import collections
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pickle
import runpy
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from deeplinear.core import SHARE, check_count, near_name, processors
from deeplinear.experiments._dask import WORKER, distribute, environment_with

A = TypeVar("A")
R = TypeVar("R")

EXECUTORS = ("serial", "processes", "dask")
"""Names of the executors."""

DEATHS = 3
"""Workers that may die with a task before it is given up."""

GIVEN_UP = f"{DEATHS} workers died with it, perhaps for want of memory; it was given up."
UNABLE = (
    "execute: the processes end before their first task; what they wrote says why. A script that starts processes must "
    'do so under if __name__ == "__main__".'
)


def threads_of(workers: int) -> dict[str, str]:
    """Environment in which each of so many workers keeps to its share of the processors.

    Libraries of linear algebra and XLA read it when they start, so it must be there before a worker imports them.
    """
    share = str(max(1, processors() // workers))
    names = (SHARE, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
    return dict.fromkeys(names, share)


def execute(
    function: Callable[[A], R],
    arguments: Sequence[A],
    *,
    executor: str = "serial",
    workers: int | None = None,
    address: str | None = None,
    notice: Callable[[str], None] = lambda text: None,
) -> Generator[tuple[int, R | BaseException]]:
    """Apply a function to every argument. Only a few arguments for each worker are under way at a time.

    A worker that dies loses nothing: what it did is begun again. What several workers died with ends with an exception
    that says so.

    Args:
        function: Of one argument; importable by name, so that it can be sent.
        arguments: What to apply it to.
        executor: `serial`, `processes` or `dask`.
        workers: Number of workers; by default one for each processor.
        address: Of a Dask scheduler that runs already; without it a local cluster is started.
        notice: Told in a few words when the work stands still, such as for want of a scheduler; that is also logged as
            a warning, once a minute.

    Yields:
        Position of the argument, and the result or the exception it ended with, as they come.

    Raises:
        ConnectionError: If there is no Dask scheduler at the address, or none comes back that went away, or it has no
            workers for a while.
    """
    if executor not in EXECUTORS:
        raise ValueError(f"execute: executor is '{executor}'. {near_name(executor, EXECUTORS)}")
    if address is not None and executor != "dask":
        raise ValueError(f"execute: address is for the executor 'dask', but the executor is '{executor}'.")
    if workers is not None:
        check_count("execute", "workers", workers, at_least=1)
    count = min(workers or processors(), max(1, len(arguments)))
    if executor == "serial" or not arguments:
        return _serial(function, arguments)
    if executor == "processes":
        return _processes(function, arguments, count)
    return distribute(function, arguments, threads_of(count), count, address, notice)


def _serial(function: Callable[[A], R], arguments: Sequence[A]) -> Generator[tuple[int, R | BaseException]]:
    for position, argument in enumerate(arguments):
        try:
            yield position, function(argument)
        except Exception as error:
            yield position, error


class _Worker(NamedTuple):
    """A process, the way to it, the processors it keeps to, and the position it works at; `None` while it starts."""

    process: Any
    connection: Any
    share: set[int]
    position: int | None


def _hire(share: set[int], workers: int) -> _Worker:
    """A new process, which says when it is there."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    given = {"CONNECTION": there, "PROCESSORS": share}
    process = context.Process(target=runpy.run_path, args=(WORKER, given, "deeplinear worker"), daemon=True)
    with environment_with(threads_of(workers)):
        process.start()
    there.close()
    return _Worker(process, here, share, None)


def _processes(
    function: Callable[[A], R], arguments: Sequence[A], workers: int
) -> Generator[tuple[int, R | BaseException]]:
    """Each worker has one task at a time, so that it is known whose fault it is when one dies.

    That task is begun again by another worker; one with which several have died is given up. There are never more tasks
    and results under way than workers.
    """
    waiting = collections.deque(range(len(arguments)))
    deaths: collections.Counter[int] = collections.Counter()
    crew: list[_Worker] = []
    left: list[_Worker] = []
    unable = 0

    def hand_over(worker: _Worker) -> Iterator[tuple[int, BaseException]]:
        """Give a worker the next task, or let it go if there is none; a task that cannot be sent is an outcome."""
        while waiting:
            position = waiting.popleft()
            try:
                message = pickle.dumps((function, arguments[position]))
            except Exception as error:
                yield position, error
                continue
            with contextlib.suppress(OSError):  # One that has just died is noticed when it should answer.
                worker.connection.send_bytes(message)
            crew.append(worker._replace(position=position))
            return
        worker.connection.close()
        left.append(worker)

    try:
        for share in _split(workers):
            crew.append(_hire(share, workers))
        while waiting or any(worker.position is not None for worker in crew):
            ready = multiprocessing.connection.wait([worker.connection for worker in crew])
            for worker in [worker for worker in crew if worker.connection in ready]:
                crew.remove(worker)
                position = worker.position
                try:
                    message = worker.connection.recv_bytes()
                except (EOFError, OSError):
                    message = None
                if message is not None:
                    # The next task comes first: the worker goes on while the caller is busy with the result.
                    refused = list(hand_over(worker))
                    unable = 0
                    if position is not None:
                        yield position, _loaded(message)
                    yield from refused
                    continue
                worker.connection.close()
                left.append(worker)
                if position is None:
                    unable += 1
                    if unable >= DEATHS:
                        raise RuntimeError(UNABLE)
                else:
                    deaths[position] += 1
                    if deaths[position] < DEATHS:
                        waiting.append(position)
                if waiting:
                    crew.append(_hire(worker.share, workers))
                if position is not None and deaths[position] >= DEATHS:
                    yield position, RuntimeError(GIVEN_UP)
    finally:
        for worker in (*crew, *left):  # They have nothing to do any more, or the caller has stopped.
            worker.process.kill()
            worker.connection.close()
        for worker in (*crew, *left):
            worker.process.join()
            worker.process.close()


def _loaded(message: bytes) -> Any:
    try:
        return pickle.loads(message)
    except Exception as error:
        return RuntimeError(f"What a worker sent cannot be read: {type(error).__name__}: {error}")


def _split(workers: int) -> list[set[int]]:
    """Processors of each worker: equal shares, in turn where there are more workers than processors."""
    own = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not own:
        return [set() for _ in range(workers)]
    share = max(1, len(own) // workers)
    return [{own[(worker * share + k) % len(own)] for k in range(share)} for worker in range(workers)]
