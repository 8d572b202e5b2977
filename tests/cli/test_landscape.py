"""`dln landscape` and `dln check run --widths`."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from deeplinear.cli._main import app

TARGET = np.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


def dln(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    np.save(tmp_path / "target.npy", TARGET)
    # Only the weaker mode is learnt: a strict saddle whose steepest exchange gains 4 - 1 = 3.
    np.savez(tmp_path / "saddle.npz", W1=[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], W2=[[0.0, 0.0], [1.0, 0.0]])
    return tmp_path


def test_the_story_of_a_weights_file(files: Path) -> None:
    run = dln("landscape", files / "saddle.npz", "--target", files / "target.npy", "--out", files / "out", "--json")
    assert run.exit_code == 0, run.stderr
    told = json.loads(run.stdout)
    place = told["portrait"]["place"]
    assert (place["kind"], place["signature"], place["critical_value"]) == ("strict_saddle", [2], 2.0)
    assert told["portrait"]["inertia"]["index"] >= 1 and told["itinerary"] is None
    assert {Path(f).name for f in told["files"]} == {"landscape.png", "landscape.svg"}
    assert all(Path(f).stat().st_size > 1000 for f in told["files"])
    text = dln("landscape", files / "saddle.npz", "--target", files / "target.npy", "--no-plot").stdout
    assert "strict saddle" in text and "{2}" in text and "eigenvalues of the whole matrix" in text


def test_without_a_task_only_the_network_is_told(files: Path) -> None:
    run = dln("landscape", files / "saddle.npz", "--no-plot", "--json")
    told = json.loads(run.stdout)["portrait"]
    assert run.exit_code == 0 and told["place"] is None and told["laws"] == {"listed": 3, "independent": 2}
    assert "No task was given" in told["notes"][0]


@pytest.mark.covers("network:F37", "network:F42")
def test_the_saddles_of_a_run(tmp_path: Path) -> None:
    """A run knows its task; the modes are learnt one by one, and the pictures are there."""
    flags = ["--widths", "3,2,2", "--spectrum", "3,1", "--init", "task-aligned", "--init-scale", "1e-9"]
    flags += ["--method", "auto", "--horizon", "30", "--points", "400", "--out", tmp_path / "run", "--no-plot"]
    assert dln("simulate", *flags, "--probes", "loss,product,gradient_norm").exit_code == 0
    run = dln("landscape", tmp_path / "run", "--out", tmp_path / "out", "--json")
    assert run.exit_code == 0, run.stderr
    told = json.loads(run.stdout)
    visits = told["itinerary"]["visits"]
    assert [visit["signature"] for visit in visits] == [[], [1], [1, 2]] and told["itinerary"]["greedy"]
    assert [visit["level"] for visit in visits] == pytest.approx([5.0, 0.5, 0.0], abs=1e-12)
    assert told["portrait"]["place"]["kind"] == "global_minimum" and told["task"] == "that of the run"
    assert {Path(f).stem for f in told["files"]} == {"landscape", "saddles"}
    text = dln("landscape", tmp_path / "run", "--no-plot").stdout
    assert "Saddles visited" in text and "1 (σ = 3)" in text


def test_a_run_without_products_says_what_is_missing(tmp_path: Path) -> None:
    flags = ["--widths", "2,2,2", "--method", "gd", "--lr", "0.1", "--horizon", "40", "--points", "5", "--no-plot"]
    assert dln("simulate", *flags, "--out", tmp_path).exit_code == 0
    told = json.loads(dln("landscape", tmp_path, "--no-plot", "--json").stdout)
    assert told["itinerary"] is None and "--probes loss,product,gradient_norm" in told["notes"][0]


def test_refusals(files: Path) -> None:
    (files / "bad.npz").write_bytes(b"no zip")
    np.savez(files / "loose.npz", W1=np.eye(2), W2=np.eye(3))
    cases = (
        (["nowhere.npz"], "there is no nowhere.npz"),
        ([files / "target.npy"], "FILE must be an .npz of layers"),
        ([files / "bad.npz"], "it is not a whole archive of arrays"),
        ([files / "loose.npz"], "layer shapes"),
        ([files / "saddle.npz", "--inputs", files / "target.npy"], "belong together"),
        ([files / "saddle.npz", "--target", files / "saddle.npz"], "must hold one array"),
        ([files], "there is no"),
    )
    for arguments, words in cases:
        run = dln("landscape", *arguments, "--no-plot")
        assert run.exit_code == 2 and words in run.stderr and run.stderr.count("\n") == 1, (arguments, run.stderr)


@pytest.mark.covers("network:F45")
def test_checks_on_chosen_widths(tmp_path: Path) -> None:
    """Any statement on networks of many shapes, on widths of the user's choice; errata show both numbers."""
    arguments = ["--widths", "3,2,4,2", "--instances", "2", "--seed", "3", "--store", tmp_path, "--json"]
    run = dln("check", "run", "network/equation-19", *arguments)
    assert run.exit_code == 0, run.stderr
    (told,) = json.loads(run.stdout)["checks"]
    assert told["widths"] == [3, 2, 4, 2] and told["seed"] == 3 and told["status"] == "erratum"
    assert told["printed"]["residual"] > 1e3 * max(reading["residual"] for reading in told["claim"])
    fixed = dln("check", "run", "completion/theorem-3.3", *arguments)
    assert fixed.exit_code == 2 and "must be run without it" in fixed.stderr
    assert "any widths" in dln("check", "show", "network/equation-19").stdout
