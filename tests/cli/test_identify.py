"""`dln identify`."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from deeplinear.cli._main import app

FLAGS = ("--states", 6, "--memory", 10, "--steps", 300)


def dln(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def written(file: Path, header: str, columns: np.ndarray) -> Path:
    np.savetxt(file, columns, delimiter=",", header=header, comments="", fmt="%.17g")
    return file


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """One input and a delayed, fading output, beside another that holds both inputs, a constant, and text."""
    rng = np.random.default_rng(0)
    heat, wind = rng.standard_normal((2, 160))
    warm, state = np.zeros(160), 0.0
    for t in range(160):
        warm[t], state = 20 + 2 * state, 0.8 * state + heat[t]
    columns = np.column_stack([np.arange(160), heat, wind, warm, warm - wind, np.ones(160)])
    file = written(tmp_path / "house.csv", "time,heat,wind,warm,felt,one", columns)
    head, *rows = file.read_text().splitlines()
    file.write_text("\n".join([f"{head},site", *(f"{row},north" for row in rows)]) + "\n")
    return file


def test_one_input_and_output(table: Path) -> None:
    out = table.parent / "out"
    flags = ["--inputs", "heat", "--outputs", "warm", *FLAGS, "--horizon", 13, "-o", out]
    told = json.loads(dln("identify", table, *flags, "--json").stdout)
    assert told["order"] == 1 and told["stable"] and told["rows"] == 160 and told["rows_fitted"] == 128
    np.testing.assert_allclose(told["poles"], [[0.8, 0.0]], atol=1e-9)
    np.testing.assert_allclose(np.ravel(told["impulse_response"]), [0, *(2 * 0.8 ** np.arange(12))], atol=1e-8)
    assert told["r2_unseen"]["warm"] == pytest.approx(1, abs=1e-12)
    assert told["certificate"]["applies"] and len(told["certificate"]["constants"]) == 13
    names = ["house-model.npz", "house-response.csv", "house-predicted.csv"]
    names += ["house-identified.png", "house-identified.svg"]
    assert [Path(file).name for file in told["files"]] == names and all(Path(f).is_file() for f in told["files"])
    with (out / "house-predicted.csv").open(encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ["row", "seen", "warm", "warm predicted"] and len(rows) == 161
    numbers = np.array(rows[1:], dtype=float)
    np.testing.assert_allclose(numbers[:, 3], numbers[:, 2], atol=1e-8)
    # What is written is what dln extrapolate reads.
    flags = ["--known", 6, "--horizon", 9, "--student", out / "house-model.npz", "--out", out, "--no-plot", "--json"]
    told = json.loads(dln("extrapolate", out / "house-response.csv", *flags).stdout)
    assert told["order"] == 1 and told["student"]["outcome"] == "extrapolates"


def test_several_columns_by_number(table: Path) -> None:
    flags = ["--inputs", "2,wind", "--outputs", "4,5", *FLAGS, "-o", table.parent, "--no-plot", "--order", 1]
    text = " ".join(dln("identify", table, *flags).stdout.split())
    assert "heat, wind" in text and "warm, felt" in text and "(as asked for)" in text and "0.8" in text
    assert "does not apply: it needs one input and one output" in text
    with np.load(table.parent / "house-model.npz") as model:
        np.testing.assert_allclose(model["D"], [[0, 0], [0, -1]], atol=1e-8)
        np.testing.assert_allclose(model["C"] @ model["B"], [[2, 0], [2, 0]], atol=1e-8)


@pytest.mark.parametrize(
    ("file", "flags", "words"),
    [
        ("missing.csv", "--outputs y", "DATA: cannot read missing.csv: no such file"),
        ("empty.csv", "--outputs y", "but is empty"),
        ("good.csv", "--outputs why", "--outputs: 'why' must be a column, by name or by number from 1 on. Known: u, y"),
        ("good.csv", "--outputs 3", "--outputs: '3' must be a column"),
        ("good.csv", "--outputs y,y", "each column must be named once"),
        ("good.csv", "--outputs y --inputs y", "both name 'y'"),
        ("good.csv", "--outputs u,y", "has no columns beside those of --outputs"),
        ("good.csv", "--outputs y --memory 1", "--memory must be a whole number of at least 2"),
        ("good.csv", "--outputs y --memory 40", "DATA must have more rows than the memory, 40, but one has 32"),
        ("good.csv", "--outputs y --order 9 --memory 4", "order must be at most 2, what 4 lags can tell, but is 9"),
        ("good.csv", "--outputs y --test 1", "--test must be"),
        ("twice.csv", "--outputs y", "must have different column names, but 'u' is there twice"),
        ("nan.csv", "--outputs y", "but row 4, column 'u' is empty or NaN (1 such in all)"),
        ("text.csv", "--outputs y", "must be a number or empty, but line 3, column 'y' holds 'x'"),
        ("site.csv", "--outputs y", "line 2, column 'site' holds 'north'; name the columns to take by --inputs."),
        (
            "site.csv",
            "--inputs site --outputs y",
            "must be a number or empty, but line 2, column 'site' holds 'north'.",
        ),
        ("bare.csv", "--inputs 1 --outputs 2", "must name all columns or none, but line 1, column 3 holds 'north'"),
        ("short.csv", "--outputs y", "must hold at least 10 rows of numbers, but holds 3"),
        ("still.csv", "--outputs y", "every input must vary, but 'u' is constant"),
    ],
)
def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, flags: str, words: str) -> None:
    monkeypatch.chdir(tmp_path)
    numbers = np.random.default_rng(0).standard_normal((40, 2))
    written(tmp_path / "good.csv", "u,y", numbers)
    written(tmp_path / "short.csv", "u,y", numbers[:3])
    written(tmp_path / "still.csv", "u,y", numbers * [0, 1] + [5, 0])
    numbers[3, 0] = np.nan
    written(tmp_path / "nan.csv", "u,y", numbers)
    written(tmp_path / "twice.csv", "u,u,y", np.ones((40, 3)))
    (tmp_path / "empty.csv").write_text("\n")
    (tmp_path / "text.csv").write_text("u;y\n1;2\n3;x\n")
    (tmp_path / "site.csv").write_text("u,y,site\n1,2,north\n3,4,south\n")
    (tmp_path / "bare.csv").write_text("1,2,north\n3,4,south\n")
    run = dln("identify", file, *flags.split(), "-o", tmp_path / "out")
    assert words in run.stderr and run.stderr.count("\n") == 1 and run.exit_code == 2


def test_picture_refuses_what_does_not_fit() -> None:
    from deeplinear.plots import plot_identification

    response, outputs = np.ones((5, 2, 1)), np.zeros((30, 2))
    with pytest.raises(ValueError, match=r"measured must have shape \(any, 2\), but has shape \(30, 1\)"):
        plot_identification(response, outputs[:, :1], outputs)
    with pytest.raises(ValueError, match="predicted must be finite"):
        plot_identification(response, outputs, outputs + np.nan)
    figure = plot_identification(np.ones((5, 8, 2)), np.zeros((30, 8)), np.zeros((30, 8)))
    assert len(figure.axes) == 7 and figure.axes[0].get_title(loc="right") == "the 6 largest of 16"


@pytest.mark.parametrize("factor", [1e160, 1e-170])
def test_sizes_whose_squares_are_no_numbers_are_refused(tmp_path: Path, factor: float) -> None:
    columns = factor * np.random.default_rng(0).normal(size=(40, 2))
    run = dln("identify", written(tmp_path / "a.csv", "u,y", columns), "--outputs", "y", "--out", tmp_path / "out")
    assert run.exit_code == 2 and run.stderr.count("\n") == 1
    assert "DATA: the largest number of column 'u' must lie between 1e-100 and 1e+100, but is" in run.stderr
    assert run.stderr.endswith("; take other units.\n") and list((tmp_path / "out").iterdir()) == []
