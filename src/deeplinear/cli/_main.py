"""The command line: what commands there are and with which flags. Nothing heavy is imported before a command runs."""

import contextlib
import errno
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from deeplinear._about import __version__
from deeplinear.cli._data_commands import data
from deeplinear.cli._flags import (
    Address,
    Again,
    All,
    Executor,
    Force,
    Json,
    Paper,
    Preset,
    PresetOrNone,
    Seed,
    StoreDir,
    Workers,
)
from deeplinear.cli._interrupt import INTERRUPTED, set_result_stream
from deeplinear.cli._options import EXACT, SIMULATE, as_flags
from deeplinear.cli._shell import Code, UsageError, hush, interrupted, print_refusal, say, told

UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM)
"""Why a file cannot be written: no space, limits, damage, no leave."""


class Commands(TyperGroup):
    """Group of commands whose usage errors, and interrupts, are one line on the error stream, and JSON if asked for."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line and exit."""
        kwargs["standalone_mode"] = False
        words = list(args[0] if args else kwargs.get("args") or sys.argv[1:])
        told.last, told.result = "", False
        set_result_stream(1)
        try:
            code = super().main(*args, **kwargs)
            # Commands that end an interrupted run give a `Code`; a plain number means that nothing answered yet.
            if code == Code.interrupted and not isinstance(code, Code):
                say(INTERRUPTED)
                code = interrupted()
            sys.stdout.flush()
        except typer.TyperException as error:
            text = error.format_message() or "a command must be given; see dln --help"
            say(f"dln: {text}{'' if text.endswith(('.', '?', '!')) else '.'}")
            code = Code.usage
        except UsageError as error:
            say(f"dln: {error}")
            code = Code.usage
        except ValueError as error:
            from deeplinear.readers import FileError

            if not isinstance(error, FileError):
                raise
            say(f"dln: {error}")
            code = Code.usage
        except typer.Abort:
            say(INTERRUPTED)
            code = interrupted()
        except (BrokenPipeError, SystemExit) as error:
            # Typer and rich answer a closed pipe by an exit of their own.
            if not isinstance(error if isinstance(error, OSError) else error.__context__, BrokenPipeError):
                raise
            code = Code.closed_pipe
        except OSError as error:
            if error.errno not in UNWRITTEN:
                raise
            where = f" to {error.filename}" if error.filename else ""
            say(f"dln: the results could not be written{where}: {error.strerror}; what is there is not complete.")
            code = Code.numerical
        except MemoryError as error:
            say(f"dln: the run needs more memory than there is; take smaller widths or fewer points. {error}")
            code = Code.numerical
        if code and code != Code.closed_pipe and "--json" in words and not told.result:
            with contextlib.suppress(BrokenPipeError):
                print_refusal(self._named(words), Code(code))
        hush()
        sys.exit(int(code or Code.fine))

    def _named(self, words: list[str]) -> str:
        """The command that is meant: as many of the first words as are names of commands."""
        found, group = [], self
        for word in words:
            if not isinstance(group, TyperGroup) or word not in group.commands:
                break
            found.append(word)
            group = group.commands[word]
        return " ".join(found)


app = typer.Typer(
    name="dln",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


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

    Exit codes: 0 fine, 1 a check failed, 2 bad input, 3 a run broke down, 130 interrupted (129 by SIGHUP, 143 by
    SIGTERM, which are answered alike), 141 the reader of the output went away (as in | head). A run that meets a limit
    (--max-steps, --wall-limit) before its end is fine, but not finished: the error stream and the JSON,
    "finished": false, say so. With --json there is one object on the output stream in every case; where there is no
    result it has "ok": false and "error" with a kind and the message.
    """


@app.command("simulate")
@as_flags(SIMULATE)
def _simulate(flags: dict[str, Any], config: str | None, as_json: bool) -> None:
    """Train one network, or an ensemble, and record what happens.

    Settings come from flags, or from a TOML file whose keys are the names of the flags (widths = [10, 10, 10],
    init-scale = 0.01); flags go before the file. Files of numbers are .npy, .npz, .csv, .tsv or .txt, rows first;
    text may have a header line.

    A run that meets --max-steps or --wall-limit before its end exits with 0; the error stream says so, and the JSON
    has "finished": false.
    """
    from deeplinear.cli._simulate import simulate_command

    raise typer.Exit(simulate_command(flags, config, as_json))


@app.command("exact")
@as_flags(EXACT)
def _exact(flags: dict[str, Any], config: str | None, as_json: bool) -> None:
    """Give the learning curve of gradient flow in closed form, without training.

    Which closed form applies is found out by measuring hypotheses: one layer; layers of any depth aligned with the
    task; two λ-balanced layers under white inputs. Where none applies the reasons are given, and the exit code is 2.
    Settings as for dln simulate, without those of training.
    """
    from deeplinear.cli._exact import exact_command

    raise typer.Exit(exact_command(flags, config, as_json))


@app.command("landscape")
def _landscape(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Layers W1, W2, … (.npz), a run (.nc), or its folder.")],
    target: Annotated[
        str | None, typer.Option("--target", metavar="FILE", help="Matrix that is learned, (out, in).")
    ] = None,
    inputs: Annotated[str | None, typer.Option("--inputs", metavar="FILE", help="Inputs, (in, samples).")] = None,
    outputs: Annotated[str | None, typer.Option("--outputs", metavar="FILE", help="Outputs, (out, samples).")] = None,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Folder for pictures.")] = "results",
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Make no picture.")] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say where the weights of a file stand in their landscape.

    Whether they are a minimum, a strict or a non-strict saddle, with a certificate; the critical point near by where
    they are none; curvature, conserved quantities, rates. Of a run of dln simulate that recorded product (and
    gradient_norm), also which saddles it visited. A run knows its task; with layers alone give --target, or --inputs
    and --outputs.
    """
    from deeplinear.cli._landscape import landscape_command

    raise typer.Exit(landscape_command(file, target, inputs, outputs, out, no_plot, force, as_json))


@app.command("extrapolate")
def _extrapolate(
    file: Annotated[
        str, typer.Argument(metavar="RESPONSE", help="Impulse response h0, h1, … (.csv, .tsv, .txt, .npy, .npz).")
    ],
    known: Annotated[
        str | None, typer.Option("--known", metavar="K", help="How many of its numbers are known; all by default.")
    ] = None,
    horizon: Annotated[
        str | None,
        typer.Option(
            "--horizon", metavar="H", help="Where the continuation ends; by default twice --known, at least 50."
        ),
    ] = None,
    tolerance: Annotated[
        str, typer.Option("--tolerance", metavar="X", help="Accuracy of the numbers, relative to the largest.")
    ] = "1e-8",
    reach: Annotated[
        str | None,
        typer.Option("--reach", metavar="R", help="Largest eigenvalue of other balanced networks; 1 or somewhat more."),
    ] = None,
    student: Annotated[
        str | None, typer.Option("--student", metavar="FILE", help="Network A, B, C (.npz) to be judged.")
    ] = None,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Folder for the table and its picture.")] = "results",
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Make no picture.")] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say how the impulse response of a linear recurrent network goes on after its first numbers.

    The least network that has them, whether they show its size, its eigenvalues, and between which bounds the responses
    of balanced networks with these numbers and eigenvalues up to --reach lie: from 2n + 1 numbers of n states on there
    is only one. A student is
    judged against the response: which hypotheses of the extrapolation theorems it meets, what they promise, and what it
    does. If RESPONSE does not reach the horizon, that is the response of the least network.
    """
    from deeplinear.cli._extrapolate import extrapolate_command

    raise typer.Exit(extrapolate_command(file, known, horizon, tolerance, reach, student, out, no_plot, force, as_json))


@app.command("geodesic")
def _geodesic(
    start: Annotated[str, typer.Argument(metavar="A", help="Matrix where it starts (.csv, .tsv, .txt, .npy, .npz).")],
    end: Annotated[str, typer.Argument(metavar="B", help="Matrix where it ends, of the same size.")],
    depth: Annotated[str, typer.Option("--depth", metavar="N", help="Number of layers, or inf.")],
    normalised: Annotated[
        bool, typer.Option("--normalised", help="Divide the operator by the depth, as for inf: lengths times √N.")
    ] = False,
    points: Annotated[str, typer.Option("--points", metavar="N", help="Points of the path.")] = "101",
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Folder for the path and its picture.")] = "results",
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Make no picture.")] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find the geodesic between two matrices in the metric that balanced layers of a depth induce.

    Gives its length, the lower bound by the singular values, and by how much the end is missed, by the closed form or
    by the geodesic shot from the start. It is certified to be the shortest where its length is that bound, and only
    there. The path is written as geodesic.csv: times, entries row by row, singular values. The matrices are square, of
    full rank, and their determinants have one sign; otherwise no path joins them. Exit 3 if no geodesic was found.
    """
    from deeplinear.cli._geodesic import geodesic_command

    raise typer.Exit(geodesic_command(start, end, depth, normalised, points, out, no_plot, force, as_json))


app.add_typer(data)


@app.command("doctor")
def _doctor(seed: Seed = None, as_json: Json = False) -> None:
    """Say what is installed, which devices there are, and whether a small run gives the right numbers."""
    from deeplinear.cli._doctor import doctor_command

    raise typer.Exit(doctor_command(seed, as_json))


@app.command("demo")
def _demo(
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Folder for data and pictures.")] = "results",
    seed: Seed = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Take the tour: a few experiments and checks of every theory there is, and a report to look at."""
    from deeplinear.cli._demo import demo_command

    raise typer.Exit(demo_command(out, seed, force, as_json))


@app.command("report")
def _report(
    store: StoreDir = "results",
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Page to write (default STORE/report.html).")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Build one HTML page of everything in a store: figures, claims, checks, errata, and how to run each again."""
    from deeplinear.cli._report import report_command

    raise typer.Exit(report_command(store, out, force, as_json))


@app.command("lab")
def _lab(
    host: Annotated[str, typer.Option("--host", metavar="NAME", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", min=0, max=65535, help="Port (default the first free one from 8137 on)."),
    ] = None,
    public: Annotated[
        bool,
        typer.Option("--public", help="Listen at an address that other machines can reach. There are no passwords."),
    ] = False,
    names: Annotated[
        str | None, typer.Option("--names", metavar="NAME,…", help="Further names under which the page may be opened.")
    ] = None,
    store: StoreDir = "results",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
    as_json: Json = False,
) -> None:
    """Play with the dynamics in a browser: a room for each theory, answered by this machine."""
    from deeplinear.cli._lab import lab_command

    raise typer.Exit(lab_command(host, port, public, names, store, browser, as_json))


# --- Checks -----------------------------------------------------------------------------------------------------------

checks = typer.Typer(no_args_is_help=True, help="Theorems that can be run: list, show, run, examine.")
app.add_typer(checks, name="check")


@checks.command("list")
def _check_list(paper: Paper = None, as_json: Json = False) -> None:
    """List the checks."""
    from deeplinear.cli._check import list_command

    raise typer.Exit(list_command(paper, as_json))


@checks.command("show")
def _check_show(name: Annotated[str, typer.Argument(metavar="ID")], as_json: Json = False) -> None:
    """Show one check: statement, hypotheses, tolerances, violations."""
    from deeplinear.cli._check import show_command

    raise typer.Exit(show_command(name, as_json))


@checks.command("run")
def _check_run(
    names: Annotated[list[str] | None, typer.Argument(metavar="[ID]...")] = None,
    everything: All = False,
    paper: Paper = None,
    instances: Annotated[
        str | None, typer.Option("--instances", metavar="N", help="Random instances of each check (default 50).")
    ] = None,
    seed: Seed = None,
    widths: Annotated[
        str | None,
        typer.Option(
            "--widths", metavar="N,...", help="Widths of the networks to try, input first (default: its own)."
        ),
    ] = None,
    store: StoreDir = "results",
    executor: Executor = "serial",
    workers: Workers = None,
    address: Address = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take outcomes of the same version, instances and seed from the store.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run checks on random instances and on planted violations, which must be caught. Exit 1 if one fails."""
    from deeplinear.cli._check import run_command

    raise typer.Exit(
        run_command(
            names or [], everything, paper, instances, seed, widths, store, executor, workers, address, resume, as_json
        )
    )


@checks.command("examine")
@as_flags(SIMULATE)
def _check_examine(flags: dict[str, Any], config: str | None, as_json: bool) -> None:
    """Say which theorems apply to a problem of your own, and what they say of it.

    Problem and start are given by the settings of dln simulate, as flags or in a TOML file. Each statement is tried:
    its hypotheses are measured, and where they hold the flow is run and both sides are compared. Exit 1 if one fails.
    """
    from deeplinear.cli._check import examine_command

    raise typer.Exit(examine_command(flags, config, as_json))


# --- Experiments ------------------------------------------------------------------------------------------------------

experiments = typer.Typer(no_args_is_help=True, help="Figures and tables: list, show, run, sweep, status, collect.")
app.add_typer(experiments, name="experiment")


@experiments.command("list")
def _experiment_list(paper: Paper = None, as_json: Json = False) -> None:
    """List the experiments."""
    from deeplinear.cli._experiment import list_command

    raise typer.Exit(list_command(paper, as_json))


@experiments.command("show")
def _experiment_show(
    name: Annotated[str, typer.Argument(metavar="ID")], preset: PresetOrNone = None, as_json: Json = False
) -> None:
    """Show one experiment: what it shows, its presets and settings."""
    from deeplinear.cli._experiment import show_command

    raise typer.Exit(show_command(name, preset, as_json))


@experiments.command("run")
def _experiment_run(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ID]... [KEY=VALUE]...")] = None,
    everything: All = False,
    paper: Paper = None,
    preset: Preset = "quick",
    seed: Seed = None,
    store: StoreDir = "results",
    executor: Executor = "serial",
    workers: Workers = None,
    address: Address = None,
    again: Again = False,
    as_json: Json = False,
) -> None:
    """Run experiments; what is stored already is not run again. Exit 1 if a claim fails, 3 if a run breaks down.

    Claims are judged at the settings of a preset. At your own settings key=value they are numbers without a verdict,
    except for bounds that hold at all settings.

    Values of a list are separated by commas, lists in a list by semicolons (angles=0.5,1.3 'spectra=1,2;3,4').
    """
    from deeplinear.cli._experiment import run_command

    raise typer.Exit(
        run_command(arguments or [], everything, paper, preset, seed, store, executor, workers, address, again, as_json)
    )


@experiments.command("sweep")
def _experiment_sweep(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ID KEY=V1,V2,... [KEY=0..9]...")] = None,
    preset: Preset = "quick",
    seed: Seed = None,
    store: StoreDir = "results",
    executor: Executor = "serial",
    workers: Workers = None,
    address: Address = None,
    again: Again = False,
    as_json: Json = False,
) -> None:
    """Run one experiment for every combination of values; stop it at any time, the same command goes on.

    Values are separated by commas, ranges of whole numbers are 0..9; values of a key that is a list by semicolons,
    and of one that is a list of lists by vertical bars.
    """
    from deeplinear.cli._experiment import sweep_command

    raise typer.Exit(sweep_command(arguments or [], preset, seed, store, executor, workers, address, again, as_json))


@experiments.command("status")
def _experiment_status(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ID]... [KEY=V1,V2,...]...")] = None,
    preset: PresetOrNone = None,
    store: StoreDir = "results",
    as_json: Json = False,
) -> None:
    """Say what is stored, what is missing, what is damaged."""
    from deeplinear.cli._experiment import status_command

    raise typer.Exit(status_command(arguments or [], preset, store, as_json))


@experiments.command("collect")
def _experiment_collect(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ID KEY=V1,V2,...")] = None,
    preset: Preset = "quick",
    seed: Seed = None,
    store: StoreDir = "results",
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="NetCDF file to write.")] = "sweep.nc",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the stored members of a sweep into one NetCDF file."""
    from deeplinear.cli._experiment import collect_command

    raise typer.Exit(collect_command(arguments or [], preset, seed, store, out, force, as_json))
