"""With --json there is one object on the output stream, also where there is no result."""

import json
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
