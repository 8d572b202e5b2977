"""`dln exact` and `dln simulate --method auto`: closed forms on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from deeplinear.cli._main import app
from deeplinear.core import Trajectory
from deeplinear.exact import balanced_mode

SPECTRUM = ("--spectrum", "2,1")
SHORT = ("--horizon", "3", "--points", "4")


def dln(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


@pytest.mark.covers("exact:F34")
def test_exact_gives_the_curve_and_says_why_it_may(tmp_path) -> None:
    """An aligned network: singular values follow the equation of balanced modes."""
    start = ("--widths", "2,2,2,2", "--init", "task-aligned", "--init-scale", "0.1")
    run = dln("exact", *start, *SPECTRUM, *SHORT, "--out", tmp_path, "--json")
    assert run.exit_code == 0, run.stderr
    answer = json.loads(run.stdout)
    assert answer["ok"] and answer["finished"] and answer["info"]["method"] == "closed form: aligned modes"
    assert max(answer["info"]["hypotheses"].values()) < 1e-12
    stored = Trajectory.load(tmp_path / "exact")
    wanted = np.stack([balanced_mode(stored.times, 0.1, strength, 3) for strength in (2.0, 1.0)], axis=1)
    assert np.abs(stored["singular_values"] - wanted).max() < 1e-12
    assert (tmp_path / "exact.png").exists()


@pytest.mark.covers("exact:F34")
def test_exact_diagnoses_two_layers_for_people_and_programs() -> None:
    start = ("--widths", "3,2,2", "--init", "lambda-balanced", "--lam", "1", "--loss", "regression", "--whiten")
    told = dln("exact", *start, *SHORT)
    assert told.exit_code == 0, told.stderr
    for words in ("two λ-balanced layers", "residual", "overlap", "late rate"):
        assert words in told.stdout
    answer = json.loads(dln("exact", *start, *SHORT, "--json").stdout)
    assert answer["info"]["diagnosis"]["converges"] is True and answer["info"]["diagnosis"]["guaranteed"] is True


def test_the_end_is_told_in_the_units_of_the_data(tmp_path: Path) -> None:
    """Inputs of variance 4 run four times as fast; outputs that no map explains leave a constant; one unit is few."""
    rng = np.random.default_rng(0)
    inputs = 2 * np.sqrt(60) * np.linalg.qr(rng.standard_normal((60, 3)))[0].T
    outputs = np.diag([3.0, 2.0, 1.0]) @ inputs + 0.5 * rng.standard_normal((3, 60))
    for name, array in (("inputs", inputs), ("outputs", outputs)):
        np.save(tmp_path / f"{name}.npy", array)
    data = [f"--{name}={tmp_path / name}.npy" for name in ("inputs", "outputs")]
    start = ("--widths", "3,1,3", "--loss", "regression", *data, "--init", "lambda-balanced", "--lam", "0")
    run = dln("exact", *start, "--horizon", "3", "--out", tmp_path / "run", "--no-plot", "--json")
    assert run.exit_code == 0, run.stderr
    told = json.loads(run.stdout)["info"]["diagnosis"]
    explained = np.linalg.svd(outputs @ np.linalg.pinv(inputs) @ inputs / np.sqrt(60), compute_uv=False)
    least = 0.5 * (np.sum(outputs**2) / 60 - explained[0] ** 2)
    assert told["limit_loss"] == pytest.approx(least, rel=1e-9)
    stored = Trajectory.load(tmp_path / "run" / "exact")
    late = (stored.times > 1.0) & (stored["loss"] - least > 1e-9)
    slope = np.polyfit(stored.times[late], np.log(stored["loss"][late] - least), 1)[0]
    assert told["rate"] == pytest.approx(-slope / 2, rel=0.02)


def test_what_has_no_closed_form_is_refused_with_every_reason() -> None:
    run = dln("exact", "--widths", "2,2,2", *SHORT)
    assert run.exit_code == 2 and run.stdout == ""
    for words in ("no closed form", "'one layer'", "'layers aligned with the task'", "'λ-balanced layers'", "residual"):
        assert words in run.stderr


def test_auto_takes_a_closed_form_or_integrates_and_says_which() -> None:
    start = ("simulate", "--widths", "2,2,2", "--method", "auto", *SPECTRUM, *SHORT, "--json")
    exact = json.loads(dln(*start, "--init", "task-aligned").stdout)
    assert exact["info"]["method"].startswith("closed form")
    run = json.loads(dln(*start, "--init", "gaussian").stdout)
    assert run["info"]["method"].startswith("GradientFlow") and "λ-balanced" in run["info"]["closed_form"]["whitened"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("exact", "--widths", "2,2"), "give --horizon"),
        (("exact", "--widths", "2,2", "--horizon", "-1"), "--horizon must be"),
        (("exact", "--widths", "2,2", "--horizon", "1", "--method", "gd"), "--method"),
        (("simulate", "--method", "auto", "--until-loss", "1"), "--until-loss cannot be used"),
        (("simulate", "--method", "auto", "--horizon", "1", "--seeds", "2"), "--seeds cannot be used"),
        (("exact", "--widths", "2,2", "--horizon", "1", "--whiten"), "--whiten has a meaning for loss regression only"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], words: str) -> None:
    run = dln(*arguments)
    assert run.exit_code == 2 and words in run.stderr
