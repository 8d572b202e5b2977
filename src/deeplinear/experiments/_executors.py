"""Where work is done: here, in processes of this machine, or on a Dask cluster. An executor is one function.

Each takes a function of one argument and the arguments, and gives `(position, result or exception)` as they come. The
caller decides what to do with a failure; an interrupt stops what is not yet begun and goes on to the caller.
"""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from deeplinear.core import SHARE, check_count, near_name, processors

A = TypeVar("A")
R = TypeVar("R")

EXECUTORS = ("serial", "processes", "dask")
"""Names of the executors."""

WORKERS_WITHIN = 30
"""Seconds in which a Dask scheduler must have a worker."""


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
) -> Iterator[tuple[int, R | BaseException]]:
    """Apply a function to every argument.

    Args:
        function: Of one argument; importable by name, so that it can be sent.
        arguments: What to apply it to.
        executor: `serial`, `processes` or `dask`.
        workers: Number of workers; by default one for each processor.
        address: Of a Dask scheduler that runs already; without it a local cluster is started.

    Yields:
        Position of the argument, and the result or the exception it ended with.
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
    return _dask(function, arguments, count, address)


def _serial(function: Callable[[A], R], arguments: Sequence[A]) -> Iterator[tuple[int, R | BaseException]]:
    for position, argument in enumerate(arguments):
        try:
            yield position, function(argument)
        except Exception as error:
            yield position, error


def _share(queue: Any) -> None:
    """Keep a worker to its own processors, taken from a queue that has one set for each, and to the life of its parent.

    An interrupt is answered by the parent, which ends its workers; a parent that is killed cannot, so they watch it.
    """
    import multiprocessing
    from multiprocessing.connection import wait

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow(sentinel: int = parent.sentinel) -> None:
            wait([sentinel])
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()
    own = queue.get()
    if own and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, own)


def _processes(
    function: Callable[[A], R], arguments: Sequence[A], workers: int
) -> Iterator[tuple[int, R | BaseException]]:
    """A worker that dies takes the pool with it: what was running is given up, the rest goes on in a new pool."""
    waiting = list(enumerate(arguments))[::-1]
    while waiting:
        yield from _pool(function, waiting, workers)


def _pool(
    function: Callable[[A], R], waiting: list[tuple[int, A]], workers: int
) -> Iterator[tuple[int, R | BaseException]]:
    import multiprocessing
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    shares: Any = context.SimpleQueue()
    for own in _split(workers):
        shares.put(own)
    running: dict[Any, int] = {}
    with _environment(threads_of(workers)):
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_share, initargs=(shares,))
        try:
            # Only as many as there are workers are handed over, so that an interrupt has little to wait for.
            while waiting or running:
                while waiting and len(running) < workers:
                    running[pool.submit(function, waiting[-1][1])] = waiting[-1][0]
                    waiting.pop()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    position, outcome = running.pop(future), _outcome(future)
                    if isinstance(outcome, BrokenProcessPool):
                        running[future] = position
                        raise outcome
                    yield position, outcome
        except BrokenProcessPool:
            pool.shutdown(wait=False, cancel_futures=True)
            for position in running.values():
                yield position, RuntimeError("A worker died, perhaps for want of memory; what it did was given up.")
        except BaseException:
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        else:
            pool.shutdown()


def _dask(
    function: Callable[[A], R], arguments: Sequence[A], workers: int, address: str | None
) -> Iterator[tuple[int, R | BaseException]]:
    try:
        from distributed import Client, LocalCluster, as_completed
    except ImportError as error:
        raise ImportError(
            "The executor 'dask' needs dask.distributed, which is not installed; install the extra: "
            "pip install 'deeplinear[dask]'"
        ) from error

    with contextlib.ExitStack() as stack:
        if address is None:
            stack.enter_context(_environment(threads_of(workers)))
            # Workers inherit that interrupts are left to this process.
            with _interrupts_ignored():
                cluster = stack.enter_context(
                    LocalCluster(
                        n_workers=workers,
                        threads_per_worker=1,
                        processes=True,
                        dashboard_address="",
                        silence_logs=logging.CRITICAL,
                    )
                )
                client = stack.enter_context(Client(cluster))
        else:
            try:
                client = stack.enter_context(Client(address, timeout=10))
            except Exception as error:  # Whatever answers there need not be Dask.
                raise ConnectionError(f"There is no Dask scheduler at '{address}': {error}.") from error
            try:
                client.wait_for_workers(1, timeout=WORKERS_WITHIN)
            except TimeoutError as error:
                raise ConnectionError(
                    f"The Dask scheduler at '{address}' has had no worker for {WORKERS_WITHIN} s; start one."
                ) from error
        futures = {client.submit(function, argument, pure=False): i for i, argument in enumerate(arguments)}
        try:
            for future in as_completed(list(futures)):
                yield futures[future], _outcome(future)
                future.release()
        except BaseException:
            client.cancel(list(futures), force=True)
            raise


def _outcome(future: Any) -> Any:
    error = future.exception()
    return future.result() if error is None else error


def _split(workers: int) -> list[set[int]]:
    """Processors of each worker: equal shares, in turn where there are more workers than processors."""
    own = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not own:
        return [set() for _ in range(workers)]
    share = max(1, len(own) // workers)
    return [{own[(worker * share + k) % len(own)] for k in range(share)} for worker in range(workers)]


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
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
