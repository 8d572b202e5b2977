"""`dln regress`."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from deeplinear.cli._main import app

NAMES = ["a", "b", "c", "y1", "y2"]


def dln(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def write(file: Path, names: list[str], rows: np.ndarray) -> Path:
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        writer.writerows(rows.tolist())
    return file


@pytest.fixture(scope="module")
def data() -> np.ndarray:
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 3)) * [1.0, 100.0, 0.01] + [5.0, 0.0, 1.0]
    Y = X @ np.array([[1.0, 0.02, 30.0], [-2.0, 0.0, 10.0]]).T + 2.0 + 0.1 * random.normal(size=(60, 2))
    return np.concatenate([X, Y], axis=1)


def test_fit_predict_and_files(tmp_path: Path, data: np.ndarray) -> None:
    table = write(tmp_path / "data.csv", NAMES, data)
    new = write(tmp_path / "new.csv", ["c", "b", "a", "other"], data[:5, [2, 1, 0, 3]])
    flags = [table, "--targets", "y1,5", "--held-out", 0, "-o", tmp_path / "out"]
    run = dln("regress", *flags, "--predict", new, "--json")
    told = json.loads(run.stdout)
    assert run.exit_code == 0 and told["ok"] and told["features"] == ["a", "b", "c"] and told["targets"] == NAMES[3:]
    assert told["held_out_r2"] is None and told["converged"] and told["method"] == "gradient flow"
    X, Y = data[:, :3], data[:, 3:]
    full = np.linalg.lstsq(np.c_[X, np.ones(60)], Y)[0]
    # Least squares to one part in a thousand of the spread of the columns.
    scaled = np.array(told["coefficients"]) * X.std(axis=0) / Y.std(axis=0)[:, None]
    np.testing.assert_allclose(scaled, full[:3].T * X.std(axis=0) / Y.std(axis=0)[:, None], atol=3e-3)
    times = [mode["learning_time"] for mode in told["modes"]]
    assert times == sorted(times) and len(times) == 2
    names = {Path(file).name for file in told["files"]}
    assert names == {
        "layers.npz",
        "regression.npz",
        "coefficients.csv",
        "predictions.csv",
        "regression.png",
        "regression.svg",
    }
    predicted = np.loadtxt(tmp_path / "out" / "predictions.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(predicted, X[:5] @ np.array(told["coefficients"]).T + told["intercept"], rtol=1e-12)
    with np.load(tmp_path / "out" / "layers.npz") as layers, np.load(tmp_path / "out" / "regression.npz") as kept:
        product = layers["W2"] @ layers["W1"]
        np.testing.assert_allclose(
            kept["units_std_y"][:, None] * product / kept["units_std_x"], told["coefficients"], rtol=1e-9
        )
        assert kept["modes"].shape == (len(kept["times"]), 2) and kept["features"].tolist() == ["a", "b", "c"]
    rows = (tmp_path / "out" / "coefficients.csv").read_text().splitlines()
    assert rows[0] == ",y1,y2" and rows[1].startswith("intercept,") and len(rows) == 5
    head, *lines = table.read_text().splitlines()  # text in a column that is not asked for is not looked at
    table.write_text("\n".join([f"{head},colour", *(f"{line},red" for line in lines)]) + "\n")
    text = dln("regress", *flags[:3], "--features", "1,b", "--folds", 1, "--no-plot", "-o", tmp_path / "out").stdout
    assert "R² held out" in text and "half at t" in text and "features" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("data.csv", "--targets", "z"), "--targets: 'z' must be a column"),
        (("data.csv", "--targets", "y1,y1"), "--targets: each column must be named once"),
        (("data.csv", "--targets", "y1", "--features", "a,y1"), "--features must not name a target, but names 'y1'"),
        (("data.csv", "--targets", "a,b,c,y1,y2"), "DATA must hold a column besides the targets"),
        (
            ("data.csv", "--targets", "y1", "--depth", "0"),
            "--depth must be a whole number of at least 1 and at most 256, but is '0'",
        ),
        (("data.csv", "--targets", "y1", "--method", "newton"), "--method must be a known name"),
        (("data.csv", "--targets", "y1", "--held-out", "1"), "--held-out must be"),
        (("data.csv", "--targets", "y1", "--predict", "half.csv"), "--predict: half.csv must have the column 'b'"),
        (("missing.csv", "--targets", "y1"), "cannot read missing.csv: no such file"),
        (("gap.csv", "--targets", "y1"), "row 3, column 'b' is empty or NaN (1 such in all)"),
        (("text.csv", "--targets", "y1"), "line 3, column 'b' holds 'much'; name the columns to take by --features."),
        (("text.csv", "--targets", "b", "--features", "a"), "line 3, column 'b' holds 'much'."),
        (("twice.csv", "--targets", "y1"), "must have different column names, but 'a' is there twice"),
        (("constant.csv", "--targets", "y1"), "column 'y1' must vary, but holds one number only"),
        (("short.csv", "--targets", "y1"), "leaves 1 to learn from"),
    ],
)
def test_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: np.ndarray, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("data.csv"), NAMES, data)
    write(Path("half.csv"), ["a"], data[:3, :1])
    write(Path("twice.csv"), ["a", "a", "y1"], data[:9, :3])
    write(Path("constant.csv"), ["a", "y1"], np.ones((9, 2)))
    write(Path("short.csv"), ["a", "y1"], data[:2, :2])
    Path("gap.csv").write_text("a,b,y1\n1,2,3\n1,3,3\n4,,6\n")
    Path("text.csv").write_text("a,b,y1\n1,2,3\n1,much,3\n")
    run = dln("regress", *arguments, "--out", "out")
    assert run.exit_code == 2
    assert words in run.stderr and run.stderr.count("\n") == 1


@pytest.mark.parametrize(("factor", "raw"), [(1e160, False), (1e-170, False), (1e160, True), (1e-170, True)])
def test_sizes_whose_squares_are_no_numbers_are_refused(
    tmp_path: Path, data: np.ndarray, factor: float, raw: bool
) -> None:
    table = write(tmp_path / "data.csv", NAMES, data * factor)
    run = dln("regress", table, "--targets", "y1", "--out", tmp_path / "out", *(["--raw"] if raw else []))
    assert run.exit_code == 2 and run.stderr.count("\n") == 1 and run.stderr.endswith("; take other units.\n")
    assert ("X must lie between" if raw else "DATA: the largest number of column 'a' must lie between") in run.stderr
    assert list((tmp_path / "out").iterdir()) == []
