"""Interrupts: Ctrl-C, and what batch schedulers (SIGTERM) and closed terminals (SIGHUP) send. Imports nothing of this
package."""

import contextlib
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

A = TypeVar("A")

INTERRUPTED = "dln: interrupted before there was a result."
"""What is said to an interrupt that comes before a run can keep anything."""

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that are answered alike; SIGHUP does not exist everywhere."""

GROUPS = ("check", "experiment")
"""Commands that have commands of their own."""

TWICE = 5.0
"""Seconds in which a second SIGTERM or SIGHUP is the echo of the first."""

_received = 0
_at = 0.0
_result_stream: int | None = 1


def exit_code() -> int:
    """Return the exit code of an interrupted command: 128 and the number of the signal, 130 for Ctrl-C."""
    return 128 + (_received or signal.SIGINT)


def set_result_stream(number: int | None) -> None:
    """Name the descriptor where a result for programs goes, `None` once there is one."""
    global _result_stream  # noqa: PLW0603
    _result_stream = number


def result_stream() -> int | None:
    """Return the descriptor where a result for programs goes, `None` once there is one."""
    return _result_stream


def leave(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """Answer an interrupt and end the program at once.

    Compiled modules that are being loaded turn the exception of an interrupt into one of their own, or lose it.
    """
    code = 128 + number
    with contextlib.suppress(OSError):
        os.write(2, f"{INTERRUPTED}\n".encode())
    words = sys.argv[1:]
    if "--json" in words and _result_stream is not None:
        names = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
        command = " ".join(names[: 2 if names[:1] and names[0] in GROUPS else 1])
        error = {"kind": "interrupted", "message": INTERRUPTED.removeprefix("dln: ")}
        text = json.dumps({"ok": False, "command": command, "exit_code": code, "error": error}, indent=2)
        with contextlib.suppress(OSError):
            os.write(_result_stream, f"{text}\n".encode())
    os._exit(code)


def _raise(number: int, frame: FrameType | None) -> None:
    """Remember an interrupt, and raise it: code that calls back into Python from C may lose the exception.

    Schedulers often send SIGTERM twice, to a process and to its group; the echo must not disturb the answer to the
    first. Another Ctrl-C is raised again at once.
    """
    global _received, _at
    echo = bool(_received) and number != signal.SIGINT and time.monotonic() - _at < TWICE
    if not echo:
        _received, _at = _received or number, time.monotonic()
        raise KeyboardInterrupt


def _answered(number: int) -> bool:
    """Whether a signal is answered by this module, or as Python does by default; nohup ignores SIGHUP, for instance."""
    return signal.getsignal(number) in (leave, _raise, signal.default_int_handler, signal.SIG_DFL)


def _answer(handler: Callable[[int, FrameType | None], Any]) -> None:
    for number in SIGNALS:
        if _answered(number):
            signal.signal(number, handler)


def interrupts_leave() -> None:
    """From now on an interrupt ends the program at once, with one line."""
    _answer(leave)


def interrupts_raise() -> None:
    """From now on an interrupt is the usual exception again, which a run handles: it keeps what there is."""
    global _received  # noqa: PLW0603
    _received = 0
    _answer(_raise)
    if signal.getsignal(signal.SIGINT) is _raise:
        sys.unraisablehook = _quietly


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """A while, of seconds, in which an interrupt waits: results are being written. A second Ctrl-C does not wait."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS if _answered(number)}
    waiting: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and waiting:
            raise KeyboardInterrupt
        waiting.append(number)

    for number in before:
        signal.signal(number, wait)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _quietly(lost: Any) -> None:
    """Say nothing of what destructors lose after an interrupt; all else as usual.

    The interrupt itself is remembered, and an object whose making it cut short may lack what its destructor needs.
    """
    if not _received:
        sys.__unraisablehook__(lost)


def watched(function: Callable[[A], None]) -> Callable[[A], None]:
    """A callback that raises an interrupt whose exception was lost on its way."""

    def call(argument: A) -> None:
        if _received:
            raise KeyboardInterrupt
        function(argument)

    return call
