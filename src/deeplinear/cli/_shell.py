"""What all commands share: exit codes, precision, streams. Imports nothing heavy."""

import contextlib
import dataclasses
import enum
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from deeplinear.cli._interrupt import exit_code, result_stream, set_result_stream


class Code(enum.IntEnum):
    """Exit codes of the program."""

    fine = 0
    check_failed = 1
    usage = 2
    numerical = 3
    hung_up = 129
    interrupted = 130
    closed_pipe = 141
    terminated = 143


def interrupted() -> Code:
    """Return the exit code of an interrupted command, by the signal it got."""
    return Code(exit_code())


class UsageError(Exception):
    """Bad input by the user; the text is one sentence for the error stream."""


def numerics() -> None:
    """Switch JAX to 64-bit numbers, kept programs included. Commands that compute call this before anything else."""
    from deeplinear._about import prepare

    prepare()


def estimators() -> Any:
    """The package of estimators, or a usage error that says what to install."""
    try:
        import deeplinear.estimators
    except ImportError as error:
        raise UsageError(str(error)) from None
    return deeplinear.estimators


def one_line(text: object) -> str:
    """A message without line breaks."""
    return " ".join(str(text).split())


@dataclasses.dataclass
class Told:
    """What a command has written: its last line on the error stream, and whether there was a result for programs."""

    last: str = ""
    result: bool = False


told = Told()


def say(text: object) -> None:
    """One line on the error stream."""
    told.last = one_line(text)
    try:
        typer.echo(told.last, err=True)
    except BrokenPipeError:  # nobody listens; the command goes on
        hush()


def hush() -> None:
    """Point the standard streams whose reader is gone to the null device, so that nothing fails on them at the end."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


def check_asked(noun: str, names: Sequence[str], everything: bool, paper: str | None) -> None:
    """Refuse to choose where nothing is asked for, or too much."""
    if names and (everything or paper):
        raise UsageError(f"dln {noun} takes ids, or --all, or --paper; not ids and one of these.")
    if not (names or everything or paper):
        raise UsageError(f"which {noun}s? Give ids, --paper P or --all; dln {noun} list shows them.")


def choose(
    noun: str,
    names: Sequence[str],
    everything: bool,
    paper: str | None,
    one: Callable[[str], Any],
    several: Callable[[str | None], Sequence[Any]],
) -> list[Any]:
    """What is meant by ids, or by --all or --paper; a usage error where that is nothing, too much or unknown."""
    check_asked(noun, names, everything, paper)
    try:
        return [one(name) for name in dict.fromkeys(names)] if names else list(several(paper))
    except ValueError as error:
        raise UsageError(str(error)) from None


def folder(path: str, flag: str = "--out") -> Path:
    """A folder that exists and can be written to, made if needed; asked for before a run, so that no run is lost."""
    out = Path(path)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(prefix=".dln-", dir=out):
            pass
    except OSError as error:
        raise UsageError(f"{flag}: {path} must be a folder that can be written to, but: {error.strerror}.") from None
    return out


def to_write(path: str, flag: str, *endings: str) -> Path:
    """A file that may be written: its name tells what it holds, and its folder can be written to."""
    file = Path(path)
    if file.suffix.lower() not in endings:
        raise UsageError(f"{flag} must be a file that ends in {' or '.join(endings)}, but is {path}.")
    if file.is_dir():
        raise UsageError(f"{flag}: {path} must be a file to write, but is a folder.")
    folder(str(file.parent), flag)
    return file


def pictures(stem: Path) -> list[Path]:
    """The files of a picture."""
    return [stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "svg")]


def print_json(payload: dict[str, Any]) -> None:
    """A result for programs, on the output stream."""
    told.result = True
    set_result_stream(None)
    typer.echo(json.dumps(payload, indent=2, allow_nan=False))


KINDS = {
    Code.check_failed: "check",
    Code.usage: "usage",
    Code.numerical: "numerical",
    Code.hung_up: "interrupted",
    Code.interrupted: "interrupted",
    Code.terminated: "interrupted",
}
"""Words for why there is no result."""


def print_refusal(command: str, code: Code) -> None:
    """For programs, where a command ended without a result: why, as it was said on the error stream."""
    error = {"kind": KINDS[code], "message": told.last.removeprefix("dln: ")}
    print_json({"ok": False, "command": command, "exit_code": int(code), "error": error})


SHORT = 30
"""Columns of tables with a header whose cells are no longer than this are kept on one line."""

LEAST = 20
"""Longer cells are folded to no less than this."""


def print_table(rows: list[tuple[str, ...]], *, title: str = "", header: tuple[str, ...] = ()) -> None:
    """A result for people, on the output stream. Long cells are folded; short ones, numbers above all, are not cut."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD if header else None)
    table.show_header = bool(header)
    needed = 2
    for position in range(len(header or rows[0])):
        cells = [row[position] for row in rows] + list(header[position : position + 1])
        longest = max(map(len, cells), default=0)
        least = longest if header and longest <= SHORT else min(longest, LEAST)
        needed += least + 2 + bool(header)
        table.add_column(
            header[position] if header else "",
            style="bold" if position == 0 else "",
            overflow="fold",
            min_width=least,
            no_wrap=least == longest,  # such a column keeps its width where others give way
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    if console.width < needed:
        console = Console(width=needed)
    console.print(table)


@contextlib.contextmanager
def output_kept_pure() -> Iterator[None]:
    """Send what compiled libraries write to the output stream (LAPACK warns there) to the error stream instead."""
    sys.stdout.flush()
    try:
        saved = os.dup(1)
    except OSError:  # There is no output stream to protect.
        yield
        return
    stream = result_stream()
    try:
        set_result_stream(None if stream is None else saved)
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(saved, 1)
        set_result_stream(stream)
        os.close(saved)
