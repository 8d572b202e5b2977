"""What workers do. This file is run by its path, not imported: a process that has nothing of this package loaded is
there in a tenth of a second, and loads what its first task asks for.

A process of the executor `processes` is given two globals, `CONNECTION` to the parent and `PROCESSORS` to keep to. It
speaks first, an empty message; then it answers each pickled `(function, argument)` with the pickled result or
exception, until the connection ends. A task of the executor `dask` is `several`.
"""

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any


def work(connection: Connection, processors: set[int]) -> None:
    """Do what comes through the connection."""
    # An interrupt is answered by the parent, which ends its workers; a parent that is killed cannot, so they watch it.
    # Terminals and batch schedulers send theirs to every process.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow(sentinel: int = parent.sentinel) -> None:
            wait([sentinel])
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()
    if processors and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, processors)
    connection.send_bytes(b"")
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        connection.send_bytes(answer(message))


def answer(message: bytes) -> bytes:
    """The pickled result; whatever goes wrong is a result too."""
    try:
        function, argument = pickle.loads(message)
        return pickle.dumps(function(argument))
    except BaseException as error:
        try:
            return pickle.dumps(error)
        except Exception:
            return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))


def several(function: Callable[[Any], Any], arguments: Sequence[Any]) -> tuple[float, list[Any]]:
    """Seconds it took, and the result or exception of each argument."""
    begin = time.perf_counter()
    results: list[Any] = []
    for argument in arguments:
        try:
            results.append(function(argument))
        except Exception as error:
            results.append(error)
    return time.perf_counter() - begin, results


if __name__ == "deeplinear worker":
    work(globals()["CONNECTION"], globals()["PROCESSORS"])
