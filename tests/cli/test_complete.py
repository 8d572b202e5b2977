"""`dln complete`, and the tables of users."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from deeplinear.cli._main import app
from deeplinear.cli._shell import UsageError
from deeplinear.cli._tables import column_places, read_table


def dln(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def cells(file: Path) -> list[list[str]]:
    return list(csv.reader(file.read_text(encoding="utf-8").splitlines()))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of rank 1 with names, gaps and a country of which nothing is known."""
    rng = np.random.default_rng(0)
    truth = np.outer(rng.uniform(1, 3, 30), rng.uniform(1, 3, 12)) + 0.1 * rng.standard_normal((30, 12))
    seen = rng.random(truth.shape) < 0.7
    lines = ["country," + ",".join(str(1990 + year) for year in range(12))]
    for row in range(30):
        lines.append(
            f"land {row}," + ",".join(f"{x:.3f}" if s else "" for x, s in zip(truth[row], seen[row], strict=True))
        )
    lines.append("nowhere," + "," * 11)
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def test_two_runs_without_a_seed_are_the_same(table: Path) -> None:
    for name in ("one", "two"):
        dln("complete", table / "table.csv", "-o", table / f"{name}.csv", "--no-plot", "--json")
    assert (table / "one.csv").read_text(encoding="utf-8") == (table / "two.csv").read_text(encoding="utf-8")


def test_gaps_are_filled_and_the_rest_stays_as_it_was_written(table: Path) -> None:
    out = table / "out" / "full.csv"
    run = dln("complete", table / "table.csv", "-o", out, "--seed", 1, "--json")
    assert run.exit_code == 0, run.stderr
    told = json.loads(run.stdout)
    known = [(row[0], sum(map(bool, row[1:]))) for row in cells(table / "table.csv")[1:]]
    thin = [name for name, count in known if 0 < count < told["rank"]]
    mask = {"parts": 1, "loose_rows": ["nowhere"], "loose_columns": [], "thin_rows": thin, "thin_columns": []}
    assert told["mask"] == mask
    assert {Path(file).name for file in told["files"]} == {"full.csv", "full.png", "full.svg"}
    before, after = cells(table / "table.csv"), cells(out)
    assert after[0] == before[0] and [row[0] for row in after] == [row[0] for row in before]
    for old, new in zip(before[1:], after[1:], strict=True):
        assert all(a == b for a, b in zip(old, new, strict=True) if a)
        assert np.all(np.isfinite(np.array(new[1:], dtype=float)))
    assert told["held_out_error"] < 0.4
    text = dln("complete", table / "table.csv", "-o", out, "--seed", 1, "--no-plot").stdout
    assert "1 row cannot be determined from the rest: nowhere" in text and "held out" in text


def test_entries_predict_entries(table: Path) -> None:
    rng = np.random.default_rng(1)
    left, right = rng.uniform(1, 2, 25), rng.uniform(1, 2, 20)
    places = [(i, j) for i in range(25) for j in range(20) if rng.random() < 0.5]
    lines = [
        "user,item,rating",
        *(f"{100 + i},{7 * j},{left[i] * right[j] + 0.05 * rng.standard_normal():.6f}" for i, j in places),
    ]
    (table / "ratings.csv").write_text("\n".join(lines), encoding="utf-8")
    (table / "asked.csv").write_text("user,item\n100,0\n124,133\n", encoding="utf-8")
    flags = ["--entries", "--predict", table / "asked.csv", "-o", table / "told.csv", "--restarts", 2, "--no-plot"]
    run = dln("complete", table / "ratings.csv", *flags)
    assert run.exit_code == 0, run.stderr
    rows = cells(table / "told.csv")
    assert rows[0] == ["row", "column", "value", "spread"] and rows[1][:2] == ["100", "0"]
    assert float(rows[1][2]) == pytest.approx(left[0] * right[0], rel=0.1)
    assert float(rows[2][2]) == pytest.approx(left[24] * right[19], rel=0.1)
    (table / "asked.csv").write_text("user,item\n99,0\n", encoding="utf-8")
    run = dln("complete", table / "ratings.csv", *flags)
    assert run.exit_code == 2 and "each row must occur in DATA, but '99' of line 2 does not" in run.stderr


def test_entries_may_have_names(table: Path) -> None:
    rng = np.random.default_rng(1)
    left, right = rng.uniform(1, 2, 25), rng.uniform(1, 2, 20)
    lines = [
        f'user_{i},"movie {j}, part 1",{left[i] * right[j]:.6f}'
        for i in range(25)
        for j in range(20)
        if (i + 2 * j) % 3
    ]
    lines += ["loner,nothing else,3"]
    (table / "ratings.csv").write_text("\n".join(["user,movie,stars", *lines]), encoding="utf-8")
    (table / "asked.csv").write_text('user,movie\nuser_24,"movie 18, part 1"\nloner,nothing else\n', encoding="utf-8")
    flags = ["--entries", "--predict", table / "asked.csv", "-o", table / "told.csv", "--no-plot"]
    told = json.loads(dln("complete", table / "ratings.csv", *flags, "--json").stdout)
    loose = {"parts": 2, "loose_rows": ["loner"], "loose_columns": ["nothing else"]}
    assert told["mask"] == loose | {"thin_rows": [], "thin_columns": []}
    rows = cells(table / "told.csv")
    assert [row[:2] for row in rows[1:]] == [["user_24", "movie 18, part 1"], ["loner", "nothing else"]]
    assert float(rows[1][2]) == pytest.approx(left[24] * right[18], rel=0.1)


@pytest.mark.parametrize(
    ("data", "asked", "flags", "message"),
    [
        ("u,m,x\na,b,1\na,c\n", "a,b", [], "DATA: each line of d.csv must have row, column, value, but line 3 has 2"),
        ("a,b,1\na,c,two\n", "a,b", [], "each value of d.csv must be a number, but line 2 holds 'two'"),
        ("a,b,x4\na,c,2\n", "a,b", [], "each value of d.csv must be a number, but line 1 holds 'x4'"),
        ("a,b,\na,c,2\n", "a,b", [], "line 1 holds ''; leave out entries that are not known"),
        ("a,b,1\n,c,2\n", "a,b", [], "each row of d.csv must have a name, but that of line 2 is empty"),
        ("a,b,1\nc,b,2\na,b,3\n", "a,b", [], "row 'a', column 'b' is in lines 1 and 3"),
        ("u,m,x\n1,2,1\n1.0,2.0,3\n", "1,2", [], "row '1', column '2' is in lines 2 and 3"),
        ("u,m,x\n", "a,b", [], "must hold entries below its header line"),
        ("a,b,1\n", "a,c", [], "--predict: each column must occur in DATA, but 'c' of line 1 does not"),
        ("a,b,1\n", "a", [], "--predict: each line of p.csv must have row, column, but line 1 has 1 cell."),
        ("a,b,1\n", "a,b", ["--index"], "--index goes with tables"),
    ],
)
def test_lists_of_entries_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, asked: str, flags: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d.csv").write_text(data, encoding="utf-8")
    Path("p.csv").write_text(asked, encoding="utf-8")
    run = dln("complete", "d.csv", "--entries", "--predict", "p.csv", "-o", "told.csv", *flags)
    assert run.exit_code == 2 and message in run.stderr
    assert not Path("told.csv").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold a table, but is empty"),
        ("a,b\n", "must hold numbers below its header line"),
        ("a,b\n1,2\n3\n", "line 3 has 1"),
        ("a,b\n1,2\n3,x4\n", "line 3, column 'b' holds 'x4'"),
        ("a,b\n,\n,\n", "at least one entry that is not missing"),
    ],
)
def test_tables_that_are_none_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.csv").write_text(text, encoding="utf-8")
    run = dln("complete", tmp_path / "bad.csv", "-o", tmp_path / "out.csv")
    assert run.exit_code == 2 and message in run.stderr.replace("\n", " ")
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--depth", "1"], "--depth"),
        (["--held-out", "2"], "--held-out"),
        (["--offsets", "all"], "--offsets"),
        (["--entries"], "--entries needs --predict"),
        (["--predict", "x.csv"], "--predict goes with --entries"),
        (["-o", "out.xlsx"], "must be a file that ends in .csv"),
    ],
)
def test_settings_are_refused_by_name(table: Path, flags: list[str], message: str) -> None:
    run = dln("complete", table / "table.csv", *flags)
    assert run.exit_code == 2 and message in run.stderr
    run = dln("complete", table / "missing.csv")
    assert run.exit_code == 2 and "no such file" in run.stderr
    before = (table / "table.csv").read_bytes()
    run = dln("complete", table / "table.csv", "-o", table / "table.csv")
    assert run.exit_code == 2 and "table.csv is DATA" in run.stderr
    assert (table / "table.csv").read_bytes() == before


def test_tables_are_read_in_their_forms(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1,2\n3,4\n", encoding="utf-8")
    bare = read_table(str(file), "DATA")
    assert bare.columns == ("1", "2") and not bare.named and bare.labels is None
    file.write_text("\ufeffname;x;y\r\nrow one;1;NA\r\nrow two;3;4\r\n", encoding="utf-8")
    named = read_table(str(file), "DATA", gaps=True)
    assert named.columns == ("x", "y") and named.labels == ("row one", "row two") and named.corner == "name"
    np.testing.assert_array_equal(named.values, [[1, np.nan], [3, 4]])
    assert column_places(named, "y,1", "--columns") == [1, 0]
    with pytest.raises(UsageError, match="'z' must be a column"):
        column_places(named, "z", "--columns")
    with pytest.raises(UsageError, match="line 2, column 'y' holds 'NA'"):
        read_table(str(file), "DATA")
    file.write_text("x,y\na,1,2\nb,3,4\n", encoding="utf-8")
    assert read_table(str(file), "DATA").labels == ("a", "b")
    file.write_text(",1960,1961\nA,1,2\n,,\nB,3,\n", encoding="utf-8")
    years = read_table(str(file), "DATA", gaps=True)
    assert years.columns == ("1960", "1961") and years.labels == ("A", "", "B")
    np.testing.assert_array_equal(years.values, [[1, 2], [np.nan, np.nan], [3, np.nan]])
    file.write_text("0,1960,1961\n7,1,2\n", encoding="utf-8")
    assert read_table(str(file), "DATA").values.shape == (2, 3)
    told = read_table(str(file), "DATA", header=True, index=True)
    assert told.columns == ("1960", "1961") and told.labels == ("7",) and told.values.tolist() == [[1, 2]]
    np.save(tmp_path / "a.npy", np.ones((2, 3)))
    assert read_table(str(tmp_path / "a.npy"), "DATA").values.shape == (2, 3)
