"""The entry point of the program: light, so that an interrupt finds it ready to answer."""

import signal

from deeplinear.cli._interrupt import leave


def main() -> None:
    """Entry point of the program `dln`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    from deeplinear.cli._main import app

    app(prog_name="dln")
