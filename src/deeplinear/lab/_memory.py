"""Memory of the server: how much it has, and how compiled programs are dropped while nothing is computed.

Every new size of a matrix is another program, and JAX keeps them all: some 35 megabytes for a view.
"""

import contextlib
import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import equinox as eqx
import jax


def resident() -> int:
    """Bytes of memory of this process; 0 where the system does not tell (it does on Linux)."""
    statistics = Path("/proc/self/statm")
    return int(statistics.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statistics.exists() else 0


def drop_programs() -> None:
    """Forget what was compiled. What is used again comes from the folder of compiled programs, if there is one."""
    eqx.clear_caches()
    jax.clear_caches()
    gc.collect()
    # Freed memory goes back to the system only now: half of it, measured.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


class Gate:
    """Computations go in and out; at times it is shut, for something that is done while none is under way."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside, self._shut = 0, False

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """For a computation."""
        with self._changed:
            self._enter()
        try:
            yield
        finally:
            with self._changed:
                self._leave()

    def step_aside(self) -> None:
        """Of a computation between two pieces: wait outside as long as the gate is shut."""
        with self._changed:
            if self._shut:
                self._leave()
                self._enter()

    @contextlib.contextmanager
    def alone(self, calm: float, patience: float) -> Iterator[bool]:
        """With nobody inside.

        For `calm` seconds a moment is awaited in which nobody is. Then the gate is shut, and whoever is inside gets
        `patience` seconds to come out; gives whether everybody did.
        """
        with self._changed:
            self._changed.wait_for(self._empty, calm)
            self._shut = True
            empty = self._changed.wait_for(self._empty, patience)
        try:
            yield empty
        finally:
            with self._changed:
                self._shut = False
                self._changed.notify_all()

    def _empty(self) -> bool:
        return self._inside == 0

    def _enter(self) -> None:
        self._changed.wait_for(lambda: not self._shut)
        self._inside += 1

    def _leave(self) -> None:
        self._inside -= 1
        self._changed.notify_all()
