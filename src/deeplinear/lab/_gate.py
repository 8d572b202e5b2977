"""A gate for computations, so that compiled programs can be dropped while nothing is computed.

Every new size of a matrix is another program, and JAX keeps them all: some 35 megabytes for a view.
"""

import contextlib
import threading
from collections.abc import Iterator


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
