"""With --json there is one object on the output stream, also where there is no result."""

import errno
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from deeplinear.cli import _report
from deeplinear.cli._main import app
from deeplinear.cli._shell import Code, print_json, say


def dln(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("simulate", ["--widths", "0"]),
        ("simulate", ["--nothing"]),
        ("exact", ["--depth", "3", "--config", "nowhere.toml"]),
        ("complete", ["nowhere.csv"]),
        ("report", ["--store", "nowhere"]),
        ("check run", []),
        ("check show", ["nothing"]),
        ("experiment show", ["nothing"]),
        ("lab", ["--host", "0.0.0.0"]),
        ("", ["nothing"]),
    ],
)
def test_a_refusal_is_told_to_people_and_to_programs(command: str, arguments: list[str]) -> None:
    run = dln(*command.split(), *arguments, "--json")
    report = json.loads(run.stdout)
    assert (report["ok"], report["command"], report["exit_code"]) == (False, command, run.exit_code == 2 and 2)
    assert report["error"]["kind"] == "usage" and run.stderr == f"dln: {report['error']['message']}\n"
    plain = dln(*command.split(), *arguments)
    assert (plain.stdout, plain.stderr, plain.exit_code) == ("", run.stderr, 2)


@pytest.mark.parametrize(
    ("code", "kind"), [(Code.numerical, "numerical"), (Code.check_failed, "check"), (Code.interrupted, "interrupted")]
)
def test_a_command_that_ends_without_a_result(monkeypatch: pytest.MonkeyPatch, code: Code, kind: str) -> None:
    def broken(*_: Any) -> Code:
        say("dln: it broke down.")
        return code

    monkeypatch.setattr(_report, "report_command", broken)
    run = dln("report", "--json")
    error = {"kind": kind, "message": "it broke down."}
    assert json.loads(run.stdout) == {"ok": False, "command": "report", "exit_code": int(code), "error": error}
    assert run.exit_code == code


def test_a_result_that_is_not_fine_is_the_only_object(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Code:
        print_json({"ok": False, "command": "report", "exit_code": 1})
        return Code.check_failed

    monkeypatch.setattr(_report, "report_command", failing)
    assert json.loads(dln("report", "--json").stdout) == {"ok": False, "command": "report", "exit_code": 1}
    assert dln("--help").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "lost"),
    [
        ("complete table.csv -o full.csv --no-plot --depth 2 --width 3", ""),
        ("simulate --widths 2,2,2 --horizon 1 --points 3 --out run --no-plot", "run/run.nc"),
        ("geodesic a.csv b.csv --depth 2 --out . --no-plot", ""),
    ],
)
def test_a_full_disk_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, lost: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("1,2,3\n2,4,6\n3,6,\n4,8,12\n5,,15\n")
    Path("a.csv").write_text("1,0\n0,1\n")
    Path("b.csv").write_text("2,0\n0,1\n")
    whole, before = io.open, set(tmp_path.iterdir())

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    def opened(file: Any, mode: str = "r", *more: Any, **names: Any) -> Any:
        path = Path(str(file))  # some modules open files by number when they are imported
        if lost and path.name.startswith(f".{Path(lost).name}."):  # what is renamed to it when it is complete
            raise OSError(errno.ENOSPC, "No space left on device", str(file))
        return Full() if mode == "w" and not lost and path.suffix == ".csv" else whole(file, mode, *more, **names)

    monkeypatch.setattr(io, "open", opened)
    run = dln(*arguments.split(), "--json")
    where = f" to {lost}" if lost else ""
    message = f"the results could not be written{where}: No space left on device; what is there is not complete."
    assert run.exit_code == 3 and run.stderr.splitlines()[-1] == f"dln: {message}"
    assert json.loads(run.stdout)["error"] == {"kind": "numerical", "message": message}
    assert {file.name for file in set(tmp_path.iterdir()) - before} <= {"run"} and not list(tmp_path.glob("run/*"))
