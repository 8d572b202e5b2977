"""Interrupts before there is a run that handles them. Imports nothing of this package."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, TypeVar

A = TypeVar("A")

INTERRUPTED = "dln: interrupted before there was a result."
"""What is said to an interrupt that comes before a run can keep anything."""


def leave(*_: Any) -> None:
    """Answer an interrupt and end the program at once.

    Compiled modules that are being loaded turn the exception of an interrupt into one of their own, or lose it.
    """
    sys.stderr.write(f"{INTERRUPTED}\n")
    sys.stderr.flush()
    os._exit(130)


_pressed = False


def _raise(*_: Any) -> None:
    """Remember an interrupt, and raise it: code that calls back into Python from C may lose the exception."""
    global _pressed  # noqa: PLW0603
    _pressed = True
    raise KeyboardInterrupt


def interrupts_raise() -> None:
    """From now on an interrupt is the usual exception again, which a run handles: it keeps what there is."""
    global _pressed  # noqa: PLW0603
    _pressed = False
    if signal.getsignal(signal.SIGINT) in (leave, signal.default_int_handler):
        signal.signal(signal.SIGINT, _raise)
        sys.unraisablehook = _quietly


def _quietly(lost: Any) -> None:
    """Say nothing of what destructors lose after an interrupt; all else as usual.

    The interrupt itself is remembered, and an object whose making it cut short may lack what its destructor needs.
    """
    if not _pressed:
        sys.__unraisablehook__(lost)


def watched(function: Callable[[A], None]) -> Callable[[A], None]:
    """A callback that raises an interrupt whose exception was lost on its way."""

    def call(argument: A) -> None:
        if _pressed:
            raise KeyboardInterrupt
        function(argument)

    return call
