"""`dln geodesic`."""

import csv
import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from deeplinear import geometry
from deeplinear.cli._main import app

START, END = [[1.0, 0.2], [-0.3, 0.8]], [[0.3, -0.9], [0.8, 0.5]]


def dln(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    turn = [[math.cos(1.1), -math.sin(1.1)], [math.sin(1.1), math.cos(1.1)]]
    matrices = {"A": START, "B": END, "I": np.eye(2), "turn": turn, "mirror": [[1.0, 0.0], [0.0, -1.0]]}
    for name, matrix in matrices.items():
        np.savetxt(tmp_path / f"{name}.csv", matrix, delimiter=",", fmt="%.17g")
    np.savetxt(tmp_path / "wide.csv", np.ones((2, 3)), delimiter=",")
    np.savetxt(tmp_path / "three.csv", np.eye(3), delimiter=",")
    np.savetxt(tmp_path / "diagonal.csv", np.diag([3.0, 0.5]), delimiter=",")
    np.savetxt(tmp_path / "singular.csv", np.ones((2, 2)), delimiter=",")
    return tmp_path


@pytest.mark.covers("geometry:F27", "geometry:R")
def test_length_path_and_picture(files: Path) -> None:
    """The distance is that of the reference values; the path starts and ends where it should."""
    flags = ["--depth", 3, "--points", 11, "--out", files / "out"]
    run = dln("geodesic", files / "A.csv", files / "B.csv", *flags, "--json")
    assert run.exit_code == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["length"] == pytest.approx(1.122235286352, abs=2e-12)
    assert told["lower_bound"] == pytest.approx(0.004603237130, abs=1e-12)
    assert told["residual"] < 1e-11 and max(told["drifts"].values()) < 1e-9
    assert {Path(file).name for file in told["files"]} == {"geodesic.csv", "geodesic.png", "geodesic.svg"}
    with (files / "out" / "geodesic.csv").open(encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ["t", "x1_1", "x1_2", "x2_1", "x2_2", "s1", "s2"] and len(rows) == 12
    numbers = np.array(rows[1:], dtype=float)
    np.testing.assert_allclose(numbers[[0, -1], 1:5], [np.ravel(START), np.ravel(END)], atol=1e-10)
    text = dln("geodesic", files / "A.csv", files / "B.csv", *flags, "--no-plot").stdout
    assert "1.12223528635" in text and "end missed by" in text and "No closed form" in text


def test_only_the_bound_certifies_the_shortest(files: Path) -> None:
    """Between commuting matrices the length is the bound, √3 ‖s(A)^(1/3) - s(B)^(1/3)‖; between A and B it is not."""
    flags = ["--depth", 3, "--out", files, "--no-plot"]
    sure = dln("geodesic", files / "I.csv", files / "diagonal.csv", *flags, "--json")
    told = json.loads(sure.stdout)
    length = math.sqrt(3) * math.hypot(3 ** (1 / 3) - 1, 1 - 0.5 ** (1 / 3))
    assert told["shortest"] is True and told["length"] == pytest.approx(length, rel=1e-12)
    assert "not certified" not in dln("geodesic", files / "I.csv", files / "diagonal.csv", *flags).stdout
    assert "not certified" in dln("geodesic", files / "A.csv", files / "B.csv", *flags).stdout
    text = " ".join(dln("geodesic", "--help").stdout.replace("│", " ").split())
    assert "certified to be the shortest where its length is that bound" in text


def test_a_closed_form_is_told(files: Path) -> None:
    run = dln("geodesic", files / "I.csv", files / "turn.csv", "--depth", "inf", "--out", files, "--no-plot", "--json")
    told = json.loads(run.stdout)
    assert told["case"] == "from a scaled rotation" and told["depth"] == "infinity" and told["normalised"]
    assert told["length"] == pytest.approx(math.sqrt(2) * 1.1, abs=1e-12)


@pytest.mark.covers("geometry:F47")
@pytest.mark.parametrize(
    ("start", "end", "depth", "points", "words"),
    [
        ("A", "mirror", 2, 11, "their distance is infinite"),
        ("A", "wide", 2, 11, "wide.csv must hold a square matrix, but holds 2 x 3"),
        ("wide", "A", 2, 11, "wide.csv must hold a square matrix, but holds 2 x 3"),
        ("A", "three", 2, 11, "three.csv must hold a matrix of the shape of A, 2 x 2, but holds 3 x 3"),
        ("A", "singular", 2, 11, "full rank"),
        ("A", "missing", 2, 11, "no such file"),
        ("A", "B", 0, 11, "--depth must be a positive whole number of at most 1000000, or inf, but is '0'"),
        ("A", "B", "x", 11, "--depth must be"),
        ("A", "B", 2, 1, "--points must be a whole number of at least 2 and at most 1000000, but is '1'"),
    ],
)
def test_refusals(files: Path, start: str, end: str, depth: object, points: int, words: str) -> None:
    ends = files / f"{start}.csv", files / f"{end}.csv"
    run = dln("geodesic", *ends, "--depth", depth, "--points", points, "--out", files)
    assert run.exit_code == 2 or isinstance(run.exception, SystemExit)
    assert words in run.stderr and run.stderr.count("\n") == 1


def test_what_is_not_found_is_said(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No length, no files, the message on the error stream and the exit code of a numerical failure."""
    found = geometry.geodesic_between(np.eye(2), np.array([[2.0, 0.1], [0.1, 1.0]]), 2)
    lost = dataclasses.replace(found, converged=False, length=math.nan, message="No geodesic was found.")
    monkeypatch.setattr(geometry, "geodesic_between", lambda *_, **__: lost)
    ends = files / "A.csv", files / "B.csv"
    run = dln("geodesic", *ends, "--depth", 2, "--out", files / "none")
    assert run.exit_code == 3 and "No geodesic was found." in run.stderr
    assert "length" not in run.stdout and "end missed by" in run.stdout
    told = json.loads(dln("geodesic", *ends, "--depth", 2, "--out", files / "none", "--json").stdout)
    assert not told["ok"] and told["length"] is None and told["files"] == [] and "No geodesic" in told["notes"][0]
    assert list((files / "none").iterdir()) == []
