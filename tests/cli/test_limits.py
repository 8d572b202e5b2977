"""Numbers beyond reason are refused by name, before anything heavy is loaded, and not tried."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from deeplinear.cli import _limits
from deeplinear.cli._limits import LAYERS
from deeplinear.cli._main import app

DEEP = ",".join(["2"] * (LAYERS + 2))


def dln(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savetxt("table.csv", rng.normal(size=(20, 2)), delimiter=",", header="a,b", comments="")
    np.savetxt("response.csv", 0.5 ** np.arange(9))
    np.savetxt("long.csv", 0.5 ** np.arange(20_000))
    np.savetxt("a.csv", np.eye(2), delimiter=",")
    np.savez("w.npz", W1=np.eye(2), W2=np.eye(2))
    return tmp_path


@pytest.mark.parametrize(
    ("command", "flag", "value"),
    [
        ("simulate --horizon 1", "--widths", DEEP),
        ("simulate --horizon 1", "--widths", "2,10000000,2"),
        ("simulate", "--horizon", "1e308"),
        ("simulate --method gd", "--horizon", "1e20"),
        ("simulate --horizon 1", "--points", "1e12"),
        ("simulate --horizon 1", "--max-steps", 2**63 - 1),
        ("simulate --horizon 1", "--seeds", "1e9"),
        ("simulate --horizon 1", "--spectrum", ",".join(["1"] * 20_000)),
        ("exact", "--horizon", "1e308"),
        ("exact --horizon 1", "--widths", DEEP),
        ("check examine", "--widths", DEEP),
        ("check run exact/theorem-4.3", "--widths", DEEP),
        ("check run exact/theorem-4.3", "--instances", "1e12"),
        ("check run exact/theorem-4.3 --executor processes", "--workers", "1e6"),
        ("experiment run completion/fig2 --executor processes", "--workers", "1e6"),
        ("identify table.csv --outputs b", "--states", "100000"),
        ("identify table.csv --outputs b", "--order", "100000"),
        ("identify table.csv --outputs b", "--memory", "1e9"),
        ("identify table.csv --outputs b", "--steps", "1e18"),
        ("identify table.csv --outputs b", "--horizon", "1e9"),
        ("regress table.csv --targets b", "--depth", "100000"),
        ("regress table.csv --targets b", "--width", "1e9"),
        ("regress table.csv --targets b", "--folds", "1e9"),
        ("regress table.csv --targets b", "--time", "1e308"),
        ("complete table.csv", "--depth", "100000"),
        ("complete table.csv", "--width", "1e9"),
        ("complete table.csv", "--restarts", "1e9"),
        ("extrapolate response.csv", "--horizon", "1e308"),
        ("extrapolate response.csv", "--horizon", "1e9"),
        ("extrapolate response.csv", "--reach", "1e300"),
        ("geodesic a.csv a.csv", "--depth", "1e18"),
        ("geodesic a.csv a.csv --depth 2", "--points", "1e12"),
        ("diagnose w.npz", "--max-steps", 2**63 - 1),
        ("diagnose w.npz", "--heads", "1e12"),
    ],
)
def test_numbers_beyond_reason_are_refused_by_name(data: Path, command: str, flag: str, value: object) -> None:
    run = dln(*command.split(), flag, value)
    assert run.exit_code == 2 and run.stdout == ""
    assert f"dln: {flag} " in run.stderr and "at most" in run.stderr and len(run.stderr) < 500
    assert run.stderr.count("\n") == 1 and {path.name for path in data.iterdir()} == set(FILES)


FILES = ("table.csv", "response.csv", "long.csv", "a.csv", "w.npz")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("extrapolate long.csv", "RESPONSE must hold fewer than 10000 known numbers, but holds 20000; give --known."),
        ("check run exact/theorem-4.3 --widths 100000,100000", "take smaller --widths, or fewer --instances."),
        ("regress table.csv --targets b --width 9999 --depth 200", "take a smaller --width or --depth."),
        ("complete table.csv --width 9999 --depth 200", "take a smaller --width or --depth."),
        ("geodesic a.csv a.csv --depth 2 --points 1000000", "take fewer --points."),
    ],
)
def test_what_the_machine_cannot_hold_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, words: str
) -> None:
    monkeypatch.setattr(_limits.os, "sysconf", lambda name: 10_000)  # 100 MB
    run = dln(*arguments.split())
    assert run.exit_code == 2 and words in run.stderr and {path.name for path in data.iterdir()} == set(FILES)
