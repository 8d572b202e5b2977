"""`dln experiment sweep` and `status` of more members than can be told one by one."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deeplinear.cli import _experiment
from deeplinear.cli._main import app
from deeplinear.experiments import _runner, experiment

FIG = "completion/fig2"
VALUES = ("value=1,2,3", "ms=10", "depths=2,3", "points=7")


def told(*arguments: Any, code: int = 0) -> dict:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == code, result.stderr
    return json.loads(result.stdout) | {"said": result.stderr}


def test_many_members_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if three were many: no picture, no list, nothing read that is there already; failures are told still."""
    for module, name in ((_experiment, "LISTED"), (_experiment, "DRAWN"), (_runner, "CHECKED")):
        monkeypatch.setattr(module, name, 2)
    swept = told("experiment", "sweep", FIG, *VALUES, "--store", tmp_path)
    assert swept["amounts"] == {"completed": 3, "stored": 0, "failed": 0} and swept["members"] == []
    assert "no pictures were drawn" in swept["said"] and not list(tmp_path.rglob("figure.*"))
    again = told("experiment", "sweep", FIG, *VALUES, "--store", tmp_path)
    assert again["amounts"] == {"completed": 0, "stored": 3, "failed": 0}
    more = (f"{VALUES[0]},4", *VALUES[1:], "--preset", "quick", "--store", tmp_path)
    (sweep,) = told("experiment", "status", FIG, *more)["sweeps"]
    assert (sweep["members"], sweep["present"], sweep["begun"], sweep["missing"]) == (4, 3, 0, 1)

    import dataclasses

    from deeplinear.experiments import _registry

    def broken(spec: Any, context: Any) -> Any:
        raise ArithmeticError("no number came out")

    monkeypatch.setitem(_registry._ALL, FIG, dataclasses.replace(experiment(FIG), run=broken))
    failed = told("experiment", "sweep", FIG, *more[:-4], "--store", tmp_path, code=3)
    assert failed["amounts"]["failed"] == 1 and "ArithmeticError" in failed["members"][0]["reason"]


def test_a_scheduler_that_is_lost_midway_is_exit_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is complete is counted, and the same command goes on."""
    execute = _runner.execute

    def lost(function: Any, arguments: Any, **settings: Any) -> Any:
        outcomes = execute(function, arguments)
        yield next(outcomes)
        raise ConnectionError("The Dask scheduler went away.")

    monkeypatch.setattr(_runner, "execute", lost)
    ended = told("experiment", "sweep", FIG, *VALUES, "--store", tmp_path, code=3)
    assert ended["amounts"]["completed"] == 1
    assert "went away; 1 of 3 are stored, and the same command goes on" in ended["said"]
