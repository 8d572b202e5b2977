"""Interrupts before there is a run that handles them. Imports nothing of this package."""

import os
import signal
import sys
from typing import Any

INTERRUPTED = "dln: interrupted before there was a result."
"""What is said to an interrupt that comes before a run can keep anything."""


def leave(*_: Any) -> None:
    """Answer an interrupt and end the program at once.

    Compiled modules that are being loaded turn the exception of an interrupt into one of their own, or lose it.
    """
    sys.stderr.write(f"{INTERRUPTED}\n")
    sys.stderr.flush()
    os._exit(130)


def interrupts_raise() -> None:
    """From now on an interrupt is the usual exception again, which a run handles: it keeps what there is."""
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
