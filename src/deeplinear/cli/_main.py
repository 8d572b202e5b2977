"""The command line: what commands there are and with which flags. Nothing heavy is imported before a command runs."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from deeplinear import __version__
from deeplinear.cli._interrupt import INTERRUPTED
from deeplinear.cli._options import SIMULATE, as_flags
from deeplinear.cli._shell import Code, UsageError, say


class Commands(TyperGroup):
    """Group of commands whose usage errors, and interrupts, are one line on the error stream."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line and exit."""
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
            # Commands that end an interrupted run give a `Code`; a plain number means that nothing answered yet.
            if code == Code.interrupted and not isinstance(code, Code):
                say(INTERRUPTED)
        except typer.TyperException as error:
            text = error.format_message().rstrip(".") or "a command must be given; see dln --help"
            say(f"dln: {text}.")
            code = Code.usage
        except UsageError as error:
            say(f"dln: {error}")
            code = Code.usage
        except typer.Abort:
            say(INTERRUPTED)
            code = Code.interrupted
        except MemoryError as error:
            say(f"dln: the run needs more memory than there is; take smaller widths or fewer points. {error}")
            code = Code.numerical
        sys.exit(int(code or Code.fine))


app = typer.Typer(
    name="dln",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on the output stream.")]
Seed = Annotated[str | None, typer.Option("--seed", metavar="N", help="Seed of all randomness (default 0).")]


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"deeplinear {__version__}")
        raise typer.Exit(Code.fine)
    return wanted


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Deep linear networks: simulate their training and look at what happens.

    Exit codes: 0 fine, 1 a check failed, 2 bad input, 3 a run broke down, 130 interrupted. A run that meets a limit
    (--max-steps, --wall-limit) before its end is fine, but not finished: the error stream and the JSON,
    "finished": false, say so.
    """


@app.command("simulate")
@as_flags(SIMULATE)
def _simulate(flags: dict[str, Any], config: str | None, as_json: bool) -> None:
    """Train one network, or an ensemble, and record what happens.

    Settings come from flags, or from a TOML file whose keys are the names of the flags (widths = [10, 10, 10],
    init-scale = 0.01); flags go before the file. Files of numbers are .npy, .npz, .csv or .txt, rows first.

    A run that meets --max-steps or --wall-limit before its end exits with 0; the error stream says so, and the JSON
    has "finished": false.
    """
    from deeplinear.cli._simulate import simulate_command

    raise typer.Exit(simulate_command(flags, config, as_json))


@app.command("doctor")
def _doctor(seed: Seed = None, as_json: Json = False) -> None:
    """Say what is installed, which devices there are, and whether a small run gives the right numbers."""
    from deeplinear.cli._doctor import doctor_command

    raise typer.Exit(doctor_command(seed, as_json))


@app.command("demo")
def _demo(
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Folder for data and pictures.")] = "results",
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Watch a network of three layers learn one mode of its target after another, from plateau to plateau."""
    from deeplinear.cli._demo import demo_command

    raise typer.Exit(demo_command(out, seed, as_json))
