"""`dln extrapolate`."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from deeplinear.cli._main import app

ATOMS, WEIGHTS = np.array([0.9, -0.5]), np.array([0.6, 0.4])
RESPONSE = (WEIGHTS[:, None] * ATOMS[:, None] ** np.arange(12)).sum(0)


def dln(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    np.savetxt(tmp_path / "row.csv", RESPONSE[None], delimiter=",", fmt="%.17g")
    np.savetxt(tmp_path / "column.txt", RESPONSE[:5], fmt="%.17g")
    np.savetxt(tmp_path / "matrix.csv", np.ones((2, 3)), delimiter=",")
    column = 1.0001 * np.sqrt(WEIGHTS)[:, None]
    np.savez(tmp_path / "student.npz", A=np.diag(ATOMS), B=column, C=column.T)
    np.savez(tmp_path / "half.npz", A=np.eye(2), B=column)
    np.savez(tmp_path / "wide.npz", A=np.eye(2), B=np.ones((2, 2)), C=column.T)
    np.savetxt(tmp_path / "one.csv", [1.0])
    np.savetxt(tmp_path / "nan.csv", [1.0, np.nan, 0.5])
    return tmp_path


@pytest.mark.covers("rnn:F23")
def test_continuation_and_student(files: Path) -> None:
    out = files / "out"
    flags = ["--known", 5, "--horizon", 12, "--student", files / "student.npz", "--out", out]
    told = json.loads(dln("extrapolate", files / "row.csv", *flags, "--json").stdout)
    assert told["order"] == 2 and told["order_shown"] and told["decided"]
    np.testing.assert_allclose(told["response"], RESPONSE, atol=1e-12)
    np.testing.assert_allclose(told["measure"]["atoms"], [-0.5, 0.9], atol=1e-12)
    student = told["student"]
    assert student["outcome"] == "extrapolates" and student["theorem"] == "certificate"
    assert student["error"] == pytest.approx(np.abs(RESPONSE[5:]).max() * (1.0001**2 - 1), rel=1e-9)
    assert student["error"] <= student["certified_error"] < student["reference"]
    assert {Path(file).name for file in told["files"]} == {
        "row-continued.csv",
        "row-continued.png",
        "row-continued.svg",
    }
    with (out / "row-continued.csv").open(encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ["j", "given", "continued", "least", "largest", "student"] and len(rows) == 13
    numbers = np.array(rows[1:], dtype=float)
    np.testing.assert_allclose(numbers[:, 5], 1.0001**2 * RESPONSE, rtol=1e-12)
    text = dln("extrapolate", files / "row.csv", *flags, "--no-plot").stdout
    assert "shown by the numbers" in text and "Extrapolates" in text and "hypotheses" in text


def test_a_student_is_judged_by_the_numbers_and_by_guesses_only_where_it_says_so(files: Path) -> None:
    student = files / "student.npz"
    played = 1.0001**2 * RESPONSE

    def told(name: str, numbers: np.ndarray, *flags: object) -> tuple[dict, str]:
        np.savetxt(files / name, numbers, fmt="%.17g")
        run = ("extrapolate", files / name, "--student", student, "--no-plot", "--out", files / "out", *flags)
        return json.loads(dln(*run, "--json").stdout)["student"], " ".join(dln(*run).stdout.split())

    # Four numbers do not show that there are but two states: what follows is not known.
    found, text = told("four.txt", RESPONSE[:4], "--horizon", 9)
    assert not found["tail_known"] and found["theorem"] == "none" and "which is a guess" in text
    found, text = told("five.txt", RESPONSE[:5], "--horizon", 9)
    assert found["tail_known"] and "which is a guess" not in text
    # Noisy numbers count as they are, not as the system smooths them.
    noisy = RESPONSE[:8] + 1e-3 * np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    found, text = told("noisy.txt", noisy, "--horizon", 9, "--tolerance", "1e-2")
    assert found["training_loss"] == pytest.approx(0.5 * np.sum((played[:8] - noisy) ** 2), rel=1e-6)
    assert "shown by the numbers" not in text
    # Of systems that are not balanced no numbers show that there are no more states.
    turning = 0.9 ** np.arange(8) * np.cos(np.arange(8))
    assert "others go on otherwise" in told("turning.txt", turning, "--horizon", 9)[1]


def test_bounds_are_written_outwards(tmp_path: Path) -> None:
    """Mass at both ends and at one point between has the same four numbers, and the largest fifth."""
    x, p = np.array([0.5, -0.3, 0.9, 0.1]), np.array([1.0, 0.7, 0.4, 0.2])
    h = [float(p @ x**j) for j in range(4)]
    (tmp_path / "response.csv").write_text("".join(f"{value!r}\n" for value in h))
    dln("extrapolate", tmp_path / "response.csv", "--horizon", 5, "--out", tmp_path, "--no-plot")
    with (tmp_path / "response-continued.csv").open(encoding="utf-8") as stream:
        cell = list(csv.DictReader(stream))[4]["largest"]
    between = (h[3] - h[1]) / (h[2] - h[0])
    largest = h[2] - (h[0] - h[2]) / (1 - between**2) * between**2 * (1 - between**2)
    assert largest <= float(cell) < largest + 2e-9 and len(cell) <= 12


def test_what_is_open_is_said(files: Path) -> None:
    text = dln("extrapolate", files / "column.txt", "--known", 4, "--horizon", 8, "--out", files, "--no-plot").stdout
    assert "or more: the numbers do not say" in text and "open: balanced systems differ by up to" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("matrix.csv",), "RESPONSE must hold one row or one column of numbers, but has shape (2, 3)"),
        (("missing.csv",), "no such file"),
        (("row.csv", "--known", "13"), "--known must be from 2 to the 12 numbers of RESPONSE, but is 13"),
        (("row.csv", "--known", "1"), "--known must be a whole number of at least 2 and at most 10000, but is '1'"),
        (
            ("row.csv", "--horizon", "12"),
            "--horizon must be more than the 12 known numbers, but is 12; or give --known",
        ),
        (("one.csv",), "RESPONSE must hold at least 2 numbers, but"),
        (("nan.csv",), "RESPONSE must be finite, but"),
        (("row.csv", "--student", "row.csv"), "--student must be an .npz with the matrices A, B, C"),
        (("row.csv", "--student", "wide.npz"), "--student: B of"),
        (("row.csv", "--known", "3"), "3 numbers are too few to find 2 states: give one more, or one less"),
        (("row.csv", "--tolerance", "2"), "--tolerance must be"),
        (("row.csv", "--student", "half.npz"), "must hold A, B, C, but holds ['A', 'B']"),
    ],
)
def test_refusals(files: Path, arguments: tuple[str, ...], words: str) -> None:
    named = [str(files / a) if a.endswith((".csv", ".npz")) else a for a in arguments]
    run = dln("extrapolate", *named, "--out", files)
    assert run.exit_code == 2 or isinstance(run.exception, SystemExit)
    assert words in run.stderr and run.stderr.count("\n") == 1


def test_measured_numbers_need_their_accuracy(tmp_path: Path) -> None:
    """Twenty numbers with noise of one per cent: two states with --tolerance, and a continuation near the truth."""
    truth = (1 + 0.5 ** np.arange(60)) / 2
    noise = 0.01 * np.random.default_rng(0).normal(size=20)
    np.savetxt(tmp_path / "noisy.csv", truth[:20] + noise)
    flags = ["--horizon", 60, "--out", tmp_path, "--no-plot"]
    text = dln("extrapolate", tmp_path / "noisy.csv", *flags).stdout
    assert "give their accuracy by --tolerance" in " ".join(text.split())
    told = json.loads(dln("extrapolate", tmp_path / "noisy.csv", *flags, "--tolerance", 0.03, "--json").stdout)
    assert told["order"] == 2 and told["order_shown"]
    assert np.abs(np.array(told["response"]) - truth).max() < 0.1
