"""Reading answers, running scripts and commands, for the tests of rooms."""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from deeplinear.cli._main import app
from deeplinear.lab._figures import Answer
from deeplinear.lab._room import Params, View

HANG = 300.0
"""Seconds after which a test that waits is taken to hang: no machine is that busy."""


def eventually(condition: Callable[[], object], what: str = "") -> None:
    """Wait until something has happened, however long it takes."""
    end = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.01)


def fact(answer: Answer, label: str) -> str:
    """What a fact says."""
    return next(one.value for one in answer.facts if one.label == label)


def note(answer: Answer, label: str) -> str:
    """What is said beside a fact."""
    return next(one.note for one in answer.facts if one.label == label)


def tone(answer: Answer, label: str) -> str:
    """Whether a fact is good news."""
    return next(one.tone for one in answer.facts if one.label == label)


def executed(script: str) -> dict[str, Any]:
    """The names of a script after it has run."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(script, names)
    return names


def answered(text: str | None, folder: Path, *flags: str) -> list[dict[str, Any]]:
    """What commands copied from the page say: files are written by the shell, `dln` runs in this process."""
    assert text is not None
    path = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    found = []
    with contextlib.chdir(folder):
        for line in text.splitlines():
            loop = re.fullmatch(r"for (\w+) in (.*); do (.*); done", line)
            for one in [loop[3].replace(f"${loop[1]}", value) for value in loop[2].split()] if loop else [line]:
                words = shlex.split(one)
                if words[0] != "dln":
                    subprocess.run(["sh", "-c", one], check=True, env=path)
                    continue
                run = CliRunner().invoke(app, [*words[1:], *flags, "--json"], catch_exceptions=False)
                assert run.exit_code == 0, run.stderr
                found.append(json.loads(run.stdout))
    return found


def command_of(view: View, params: Params) -> str | None:
    """The command line of a view that has one, for these values."""
    assert view.command is not None
    return view.command(params)
