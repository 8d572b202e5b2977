"""What of the machine this process may use."""

import ctypes
import functools
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
from jax.core import Tracer

F = TypeVar("F", bound=Callable[..., Any])

_TURN = threading.RLock()

SHARE = "DEEPLINEAR_PROCESSORS"
"""Variable of the environment that limits a worker to its share of the processors."""

FULL = 0.5
"""Share of the mappings a process may have at which what was compiled is forgotten."""


def processors() -> int:
    """Processors this process may use: those it is bound to, and no more than its share if it was given one."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = os.environ.get(SHARE, "")
    return max(1, min(bound, int(share))) if share.isascii() and share.isdecimal() else bound


def resident_memory() -> int:
    """Bytes of memory of this process; 0 where the system does not tell (it does on Linux)."""
    statistics = Path("/proc/self/statm")
    return int(statistics.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statistics.exists() else 0


def drop_programs() -> None:
    """Forget what was compiled, and give the memory back. What is used again is compiled again."""
    eqx.clear_caches()
    jax.clear_caches()
    gc.collect()
    # Freed memory goes back to the system only now: half of it, measured. Without this a process stays as large as it
    # was.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def make_room() -> bool:
    """Forget what was compiled if this process has little room for more; whether it did.

    Every compiled program takes some mappings of memory. Linux gives a process a limited number of them, and ends it
    where the compiler asks for one more, however much memory is free. Work that compiles many programs, one task after
    another, calls this between them. Looking takes a millisecond for some thousand mappings.
    """
    mappings, limit = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
    if not (mappings.exists() and limit.exists()):
        return False
    full = mappings.read_bytes().count(b"\n") > FULL * int(limit.read_text())
    if full:
        drop_programs()
    return full


def one_at_a_time(function: F) -> F:
    """A compiled function that decomposes batches of matrices, kept from running in two threads at once.

    On a CPU the parts of such a batch are spread over the threads of XLA's pool from within that pool; two programs
    that do so at the same time may wait for each other for ever. Under a transformation the function just runs.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            return function(*args, **kwargs)
        with _TURN:
            return jax.block_until_ready(function(*args, **kwargs))

    return cast(F, run)
