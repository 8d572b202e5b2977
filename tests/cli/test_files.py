"""Text files of numbers: one way to cut them into cells, whatever command reads them."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from deeplinear.cli._files import read_array, read_layers
from deeplinear.cli._lines import as_number
from deeplinear.cli._main import app
from deeplinear.cli._options import count, number, read_kind
from deeplinear.cli._shell import UsageError
from deeplinear.cli._tables import column_places, read_entries, read_table
from deeplinear.readers import FileError

NUMBERS = [[1.0, 2.0], [3.0, -0.5]]


def dln(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def kept(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "1,2\n3,-.5\n"),
        ("a.CSV", "\ufeff1, 2\r\n\r\n3, -0.5\r\n"),
        ("a.csv", "1;2\n3;-5e-1\n"),
        ("a.tsv", "1\t2\n3\t-0.5\n"),
        ("a.csv", "x,y\n1,2\n3,-0.5"),
        ("a.csv", '"x","y"\n"1","2"\n3,-0.5'),
        ("a.txt", "1 2\n3 -0.5\n"),
        ("a.txt", "  1   2  \n  3  -0.5 \n"),
        ("a.txt", "1,2 \n3,-0.5 \n"),
        ("a.txt", "x y\n1 2 \n3 -0.5 \n"),
    ],
)
def test_both_readers_read_the_same(tmp_path: Path, name: str, text: str) -> None:
    file = kept(tmp_path / name, text)
    np.testing.assert_array_equal(read_array(file, "A"), NUMBERS)
    np.testing.assert_array_equal(read_table(file, "DATA").values, NUMBERS)


@pytest.mark.parametrize(
    ("arguments", "lost", "which"),
    [
        ("complete table.csv -o table.csv", "table.csv", "DATA"),
        ("complete full-spread.csv -o full.csv --restarts 2", "full-spread.csv", "DATA"),
        ("complete ratings.csv --entries --predict pairs.csv -o pairs.csv", "pairs.csv", "--predict"),
        ("regress coefficients.csv --targets y1 -o .", "coefficients.csv", "DATA"),
        ("regress table.csv --targets y1 --predict predictions.csv -o .", "predictions.csv", "--predict"),
        ("regress layers.npz --targets 1 -o .", "layers.npz", "DATA"),
        ("identify table.csv --outputs y1 -o .", "table-predicted.csv", "DATA"),
        ("extrapolate response.csv --out .", "response-continued.csv", "RESPONSE"),
        ("geodesic geodesic.csv b.csv --depth 2 --out .", "geodesic.csv", "A"),
        ("geodesic b.csv geodesic.csv --depth 2 --out .", "geodesic.csv", "B"),
        ("simulate --widths 2,2,2 --horizon 1 --init file --init-file run.nc --out .", "run.nc", "--init-file"),
        ("simulate --config run.json --out .", "run.json", "--config"),
        ("exact --widths 2,2 --horizon 1 --config exact.json --out .", "exact.json", "--config"),
    ],
)
def test_no_command_writes_over_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, lost: str, which: str
) -> None:
    monkeypatch.chdir(tmp_path)
    numbers = np.random.default_rng(0).normal(size=(20, 3))
    for name in ("table", "coefficients", "predictions", "full-spread"):
        np.savetxt(f"{name}.csv", numbers, delimiter=",", header="a,b,y1", comments="")
    Path("table-predicted.csv").symlink_to("table.csv")
    np.savetxt("response.csv", 0.5 ** np.arange(9))
    Path("response-continued.csv").symlink_to("response.csv")
    np.savez("layers.npz", numbers)
    for name in ("geodesic.csv", "b.csv"):
        np.savetxt(name, np.eye(2), delimiter=",")
    Path("ratings.csv").write_text("row,column,value\n1,1,2\n1,2,3\n2,1,4\n")
    Path("pairs.csv").write_text("row,column\n2,2\n")
    for name in ("run", "exact"):
        Path(f"{name}.json").write_text('loss = "squared"\nwidths = [2, 2, 2]\nhorizon = 1.0\n')
    if lost == "run.nc":
        assert dln("simulate", "--widths", "2,2,2", "--horizon", 1, "--out", ".", "--no-plot", "--force").exit_code == 0
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    run = dln(*arguments.split())
    assert run.exit_code == 2 and run.stderr.count("\n") == 1
    assert f"--out must not write over what is read, but {lost} is {which}; name another --out." in run.stderr
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "# made by NumPy: x, y; z\n1 2 # the first\n\n3 -0.5\n"),
        ("a.txt", "1\t2\n3  \t -0.5\n"),
        ("a.csv", "# x;y;z\n1,2\n3,-0.5\n"),
    ],
)
def test_arrays_may_have_comments_and_any_white_space(tmp_path: Path, name: str, text: str) -> None:
    np.testing.assert_array_equal(read_array(kept(tmp_path / name, text), "A"), NUMBERS)


def test_arrays_may_hold_what_is_not_finite(tmp_path: Path) -> None:
    np.testing.assert_array_equal(read_array(kept(tmp_path / "a.csv", "nan,inf\n"), "A"), [[np.nan, np.inf]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2x\n3,4\n", "line 1, column 2 holds '2x'"),
        ("2x,y\n3,4\n", "line 1, column 1 holds '2x'"),
        ("x,y\n\n1,2\n3\n", "line 4 has 1 numbers, line 3 has 2"),
        ("1,10_1\n", "line 1, column 2 holds '10_1'"),
        ("1,\u0663\n", "line 1, column 2 holds '\u0663'"),
        ("1,,2\n", "line 1, column 2 holds ''"),
        ("NA,NA\n1,2\n", "line 1, column 1 holds 'NA'"),
        ("x,y\n", "must hold numbers below its header line"),
        ("\n# nothing\n", "is empty"),
        (f'1,"{"2" * 200_000}"\n', "line 1 is none: field larger"),
    ],
)
def test_arrays_that_are_none_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=r"A: .*a\.csv must") as refused:
        read_array(kept(tmp_path / "a.csv", text), "A")
    assert message in str(refused.value)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"1,2\n\xff\xfe")
    for read in (read_array, read_table):
        with pytest.raises(FileError, match="it is not text in UTF-8"):
            read(str(tmp_path / "a.csv"), "DATA")


def test_commands_take_files_of_spreadsheets(tmp_path: Path) -> None:
    one = kept(tmp_path / "one.csv", "\ufeffx;y\n2;0\n0;1\n")
    other = kept(tmp_path / "other.tsv", "1\t0\n0\t3\n")
    assert dln("geodesic", one, other, "--depth", "2", "--no-plot").exit_code == 0
    wrong = dln("geodesic", kept(tmp_path / "words.csv", "x,y\n1,two\n"), other, "--depth", "2")
    assert wrong.exit_code == 2 and "line 2, column 2 holds 'two'" in wrong.stderr


def test_spaces_at_the_ends_of_lines_are_no_columns(tmp_path: Path) -> None:
    table = read_table(kept(tmp_path / "a.txt", "a b \n1 2 \n  3 NA\n5  6  \n"), "DATA", gaps=True)
    assert table.columns == ("a", "b") and table.labels is None
    np.testing.assert_array_equal(table.values, [[1, 2], [3, np.nan], [5, 6]])
    tabs = read_table(kept(tmp_path / "a.tsv", "a\tb\tc\n\t1\t\n2\t3\t\n"), "DATA", gaps=True)
    np.testing.assert_array_equal(tabs.values, [[np.nan, 1, np.nan], [2, 3, np.nan]])


def test_names_with_underscores_are_no_numbers(tmp_path: Path) -> None:
    table = read_table(kept(tmp_path / "a.csv", "id,x\n10_1,1\n10_2,2\n"), "DATA")
    assert table.columns == ("x",) and table.labels == ("10_1", "10_2")
    entries = read_entries(kept(tmp_path / "e.csv", "10_1,a,1\n101,b,2\n"), "DATA")
    assert entries.names[0] == ("10_1", "101")
    assert [as_number(text) for text in ("101", "10_1", "\u0661", "1e3", "inf", "x")] == [
        101,
        None,
        None,
        1e3,
        None,
        None,
    ]
    for kind in (number(), count()):
        with pytest.raises(UsageError, match=r"must be a .* but is '1_0'"):
            read_kind(kind, "1_0", "--lr")


def test_digits_that_are_no_numbers_are_refused_in_words(tmp_path: Path) -> None:
    table = read_table(kept(tmp_path / "a.csv", "a,b\n1,2\n"), "DATA")
    for word in ("²", "٢", "3"):
        with pytest.raises(UsageError, match=f"'{word}' must be a column, by name or by number"):
            column_places(table, word, "--outputs")
    np.savez(tmp_path / "layers.npz", **{"W²": np.eye(2)})
    with pytest.raises(UsageError, match="must hold layers called W1, W2"):
        read_layers(str(tmp_path / "layers.npz"), "FILE")


def test_flags_are_called_as_they_are_written(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", target=np.eye(2), other=np.eye(3))
    np.testing.assert_array_equal(read_table(str(tmp_path / "two.npz"), "--target").values, np.eye(2))
    with pytest.raises(UsageError, match=r"^--mask: .* or one called 'mask', but holds"):
        read_table(str(tmp_path / "two.npz"), "--mask")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,inf\n3,4\n", "line 1, column '2' holds 'inf'"),
        ("inf,2\n3,4\n", "line 1, column '1' holds 'inf'"),
        ("1e400,-inf\n3,4\n", "line 1, column '1' holds '1e400'"),
        (
            "3*,2\n3,4\n",
            r"first line of .* line 1, column 1 holds '3\*' beside numbers; give --header if it names them",
        ),
        ("1,3*,\n3,4,5\n", r"line 1, column 2 holds '3\*' beside numbers"),
        ("x,inf\n3,4\n", "line 1, column 1 holds 'x' beside numbers"),
        ("id,2000\n3,4\n", "line 1, column 1 holds 'id' beside numbers"),
        ("ann,1,3*\nbob,3,4\n", r"line 1, column 3 holds '3\*' beside numbers"),
        ("ann,1,inf\nbob,3,4\n", "line 1, column '2' holds 'inf'"),
        ("1,2\n-inf,4\n5,6\n", "line 2, column '1' holds '-inf'"),
    ],
)
def test_a_first_line_with_numbers_is_no_header(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_table(kept(tmp_path / "a.csv", text), "DATA", gaps=True, header=False)


@pytest.mark.parametrize("text", [",2000,all\nann,1,2\n", "id,2000,2001\nann,1,2\n", "a,b\nann,1,2\n", "a,,b\n1,2,3\n"])
def test_headers_are_names_or_stand_above_names(tmp_path: Path, text: str) -> None:
    file = kept(tmp_path / "a.csv", text)
    assert read_table(file, "DATA").named and len(read_table(file, "DATA").values) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ann,x,inf", "line 1 holds 'inf'"),
        ("ann,x,1e400", "line 1 holds '1e400'"),
        ("7,x,3*", r"line 1 holds '3\*'"),
        ("7,8,value", "line 1 holds 'value'"),
    ],
)
def test_a_first_entry_with_numbers_is_no_header(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_entries(kept(tmp_path / "a.csv", f"{line}\nbob,y,1\n"), "DATA")


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.csv", "a;b\n1,5;2\n3,5;4\n7,5;\n", r"line 2, column 1 \('a'\) holds '1,5'"),
        ("a.csv", "a;b\n1;-2\n3;-,5e3\n", r"line 3, column 2 \('b'\) holds '-,5e3'"),
        ("a.csv", "1,5;2,5;3\n3;4;5\n", "line 1, column 1 holds '1,5'"),
        ("a.tsv", "x\ta\nann\t1,5\n", r"line 2, column 2 \('a'\) holds '1,5'"),
        ("a.txt", "1,5 2,5\n3 4\n", "line 1, column 1 holds '1,5'"),
        ("a.csv", 'a,b\n"1,5",2\n', r"line 2, column 1 \('a'\) holds '1,5'"),
    ],
)
def test_decimal_commas_are_refused(tmp_path: Path, name: str, text: str, place: str) -> None:
    for read in (read_array, read_table):
        with pytest.raises(UsageError, match=rf"must have decimal points .* {place}; write 1\.5 for 1,5\.$"):
            read(kept(tmp_path / name, text), "DATA")
    with pytest.raises(UsageError, match=r"line 2, column 3 \('value'\) holds '4,5'"):
        read_entries(kept(tmp_path / "e.csv", "row;column;value\na;b;4,5\n"), "DATA")
    run = dln("complete", kept(tmp_path / name, text), "-o", tmp_path / "out.csv")
    assert run.exit_code == 2 and not (tmp_path / "out.csv").exists()


def test_commas_between_numbers_are_no_decimal_commas(tmp_path: Path) -> None:
    for text in ("1,2\n3,-0.5\n", "1, 2\n3, -0.5\n"):
        np.testing.assert_array_equal(read_table(kept(tmp_path / "a.txt", text), "DATA").values, NUMBERS)


def test_numbers_in_the_first_line_are_names_if_told_so(tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).normal(size=60)
    rows = np.column_stack([inputs, 2 * inputs + np.r_[0, inputs[:-1]]])
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", header="2000,2001", comments="")
    for command, flag in (
        ("regress --targets", "features"),
        ("identify --states 4 --memory 5 --steps 50 --outputs", ""),
    ):
        words = [*command.split(), "2001", tmp_path / "a.csv", "--no-plot", "--json", "--out", tmp_path / "out"]
        assert dln(*words).exit_code == 2  # no column is called so
        told = json.loads(dln(*words, "--header").stdout)
        assert told["rows"] == 60 and told.get(flag, ["2000"]) == ["2000"]


def test_a_text_under_the_name_of_an_archive_holds_no_python_objects(tmp_path: Path) -> None:
    file = kept(tmp_path / "a.npz", "1,2\n3,4\n")
    with pytest.raises(FileError, match="it is not a whole archive of arrays"):
        read_array(file, "A")
    np.save(tmp_path / "o.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(FileError, match="holds Python objects; save it as an array of numbers"):
        read_array(str(tmp_path / "o.npy"), "A")


def test_questions_end_as_questions() -> None:
    run = dln("complet")
    assert run.exit_code == 2 and run.stderr.endswith("Did you mean 'complete'?\n")
