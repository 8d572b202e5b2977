"""What tests of commands share."""

import signal
import sys
from collections.abc import Iterator

import pytest

from deeplinear.cli import _interrupt
from deeplinear.cli._interrupt import SIGNALS


@pytest.fixture
def signals() -> Iterator[None]:
    """A while in which commands may take over signals."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    hook = sys.unraisablehook
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    _interrupt.interrupts_raise()  # forgets the signal
    sys.unraisablehook = hook
    for number, handler in before.items():
        signal.signal(number, handler)
