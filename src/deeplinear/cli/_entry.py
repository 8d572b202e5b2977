"""The entry point of the program: light, so that an interrupt finds it ready to answer."""

from deeplinear.cli._interrupt import interrupts_leave


def main() -> None:
    """Entry point of the program `dln`."""
    interrupts_leave()
    from deeplinear.cli._main import app

    app(prog_name="dln")
