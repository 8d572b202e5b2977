"""`dln diagnose`."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from deeplinear.cli._main import app
from deeplinear.diagnosis import Diagnosis, Prediction

TARGET = np.diag([3.0, 2.0, 1.0])
LAYERS = {"W1": 0.5 * np.eye(3), "W2": np.sqrt(0.5) * np.eye(3)}  # λ = 1/4


def dln(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    np.savez(tmp_path / "weights.npz", **LAYERS)
    np.savez(tmp_path / "mixed.npz", up=np.ones((3, 2)), down=np.ones((2, 2)))
    np.savetxt(tmp_path / "target.csv", TARGET, delimiter=",")
    np.savetxt(tmp_path / "wide.csv", np.ones((3, 4)), delimiter=",")
    np.savetxt(tmp_path / "holes.csv", np.where(np.eye(3) > 0, TARGET, np.nan), delimiter=",")
    inputs = np.kron(np.eye(3), [1.0, -1.0])
    np.savez(tmp_path / "data.npz", inputs=inputs, outputs=TARGET @ inputs)
    np.savez(tmp_path / "other.npz", x=inputs)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "data.npz").read_bytes()[:-40])
    rows = "\n".join(",".join(map(str, row)) for row in TARGET)
    (tmp_path / "named.csv").write_text(f"a,b,c\n{rows}\n")
    np.savetxt(tmp_path / "turned.csv", inputs.T, delimiter=",")
    np.savetxt(tmp_path / "told.csv", (TARGET @ inputs).T, delimiter=",")
    return tmp_path


def standing(told: dict, words: str) -> str:
    (one,) = [finding for finding in told["findings"] if words in finding["statement"]]
    return one["standing"]


def test_weights_and_task(files: Path) -> None:
    page = files / "pages" / "out.html"
    flags = ["--target", files / "target.csv", "--html", page]
    told = json.loads(dln("diagnose", files / "weights.npz", *flags, "--json").stdout)
    assert told["ok"] and told["exit_code"] == 0 and told["files"] == [str(page)]
    assert told["layers"] == [{"name": "W1", "shape": [3, 3]}, {"name": "W2", "shape": [3, 3]}]
    assert standing(told, "layers are balanced") == "fails" and standing(told, "λ-balanced, W'ᵀW'") == "holds"
    predictions = {one["name"]: one["value"] for one in told["predictions"]}
    np.testing.assert_allclose(predictions["singular_values_end"], [3, 2, 1], rtol=1e-9)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    text = dln("diagnose", files / "weights.npz", *flags[:2], "--no-theorems").stdout
    for words in ("λ-balanced", "predictions", "2/λmax", "convergence", "W1 (3, 3), W2 (3, 3)"):
        assert words in text
    named = json.loads(dln("diagnose", files / "weights.npz", "--target", files / "named.csv", "--json").stdout)
    assert named["predictions"] == told["predictions"]
    # The same task as samples of white inputs: the covariance is a third of the identity, and so is the rate.
    sampled = json.loads(dln("diagnose", files / "weights.npz", "--data", files / "data.npz", "--json").stdout)
    rates = {one["name"]: one["value"] for one in sampled["predictions"]}
    assert rates["late_rate"] == pytest.approx(predictions["late_rate"] / 3, rel=1e-9)
    tables = ["--inputs", files / "turned.csv", "--outputs", files / "told.csv", "--rows", "--no-theorems", "--json"]
    turned = json.loads(dln("diagnose", files / "weights.npz", *tables).stdout)
    assert turned["predictions"] == sampled["predictions"]
    np.testing.assert_allclose(turned["limit"], TARGET, atol=1e-9)


def test_weights_alone_and_entries_that_are_missing(files: Path) -> None:
    told = json.loads(dln("diagnose", files / "weights.npz", "--json").stdout)
    assert told["predictions"] == [] and any("Without a task" in note for note in told["notes"])
    result = dln("diagnose", files / "weights.npz", "--target", files / "holes.csv", "--no-theorems", "--json")
    assert "count as not observed" in result.stderr
    assert standing(json.loads(result.stdout), "observation graph is connected") == "fails"


def test_a_prediction_that_differs_is_an_exit_code(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Prediction("loss_end", "loss at the end", 1.0).judged(2.0)
    monkeypatch.setattr("deeplinear.diagnosis.diagnose", lambda *_, **__: Diagnosis("<net>", (), (wrong,)))
    result = dln("diagnose", files / "weights.npz")
    assert result.exit_code == 1 and "1 prediction differs from the run" in result.stderr
    assert "THE RUN DIFFERS" in result.stdout and "<net>" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.npz",), "no such file"),
        (("mixed.npz",), "'down' must take the 3 outputs of 'up'"),
        (("weights.npz", "--names", "W1,W9"), "'W9' is not in"),
        (("weights.npz", "--prefix", "x"), "prefix must begin the name of an array"),
        (("weights.npz", "--heads", "0"), "--heads must be a whole number of at least 1"),
        (("weights.npz", "--simulate"), "--simulate needs a task"),
        (("weights.npz", "--mask", "target.csv"), "the task must be given by --target"),
        (("weights.npz", "--target", "wide.csv"), "--target must have shape (3, 3)"),
        (("weights.npz", "--inputs", "turned.csv", "--outputs", "turned.csv"), "its transpose would fit, give --rows"),
        (("weights.npz", "--target", "target.csv", "--rows"), "--rows must be given with inputs and outputs only"),
        (("weights.npz", "--names", "W1,W1"), "names must differ from each other"),
        (("weights.npz", "--data", "none.npz"), "none.npz: no such file"),
        (("weights.npz", "--data", "other.npz"), "must hold target, target and mask, or inputs and outputs"),
        (("weights.npz", "--data", "cut.npz"), "it is not a whole archive of arrays"),
        (("cut.npz",), "it is not a whole archive of arrays"),
        (("weights.npz", "--data", "target.csv"), "--data must be an .npz"),
        (("weights.npz", "--data", "data.npz", "--target", "target.csv"), "--data must be given alone"),
        (("weights.npz", "--html", "page.txt"), "--html must be a file that ends in .html or .htm"),
        (("weights.npz", "--target", "target.csv", "--claims", "--no-theorems"), "must not both be given"),
    ],
)
def test_bad_input_is_one_sentence(files: Path, arguments: tuple[str, ...], words: str) -> None:
    given = [str(files / a) if "." in a and a[0] != "-" else a for a in arguments]
    result = dln("diagnose", *given)
    assert result.exit_code == 2 and result.stdout == ""
    assert words in result.stderr and result.stderr.count("\n") == 1
