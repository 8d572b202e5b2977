"""No command replaces or removes a file that it did not write."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from deeplinear.cli._main import app
from deeplinear.cli._shell import UsageError
from deeplinear.cli._written import MANIFEST, Written


def dln(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def held(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of inputs, which is the current one."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savetxt("table.csv", rng.normal(size=(20, 2)), delimiter=",", header="a,b", comments="")
    Path("gaps.csv").write_text("1,2,3\n2,4,6\n3,6,\n4,8,12\n5,,15\n")
    for name, matrix in (("a", np.eye(2)), ("b", np.diag([2.0, 1.0]))):
        np.savetxt(f"{name}.csv", matrix, delimiter=",")
    np.savetxt("response.csv", 0.5 ** np.arange(9))
    np.savez("w.npz", W1=rng.normal(size=(2, 2)), W2=rng.normal(size=(2, 2)))
    Path("store").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "foreign"),
    [
        ("simulate --widths 2,2 --horizon 1 --out .", "run.nc"),
        ("simulate --widths 2,2 --horizon 1 --out .", "run.png"),
        ("exact --widths 2,2 --horizon 1 --out .", "exact.json"),
        ("landscape w.npz --out .", "landscape.svg"),
        ("extrapolate response.csv --out .", "response-continued.csv"),
        ("geodesic a.csv b.csv --depth 2 --out .", "geodesic.png"),
        ("complete gaps.csv -o full.csv", "full.csv"),
        ("complete gaps.csv", "gaps-completed.csv"),
        ("complete gaps.csv -o full.csv --restarts 2 --no-plot", "full-spread.csv"),
        ("identify table.csv --outputs b -o .", "table-model.npz"),
        ("regress table.csv --targets b -o .", "regression.npz"),
        ("regress table.csv --targets b --predict table.csv -o .", "predictions.csv"),
        ("diagnose w.npz --html page.html", "page.html"),
        ("report --store store", "store/report.html"),
        ("demo --out store", "store/report.html"),
        ("experiment collect rnn/ambiguity points=101,102 --out sweep.nc", "sweep.nc"),
    ],
)
def test_a_foreign_file_is_refused_by_name(data: Path, arguments: str, foreign: str) -> None:
    (data / foreign).write_bytes(b"mine")
    before = held(data)
    run = dln(*arguments.split(), "--json")
    assert run.exit_code == 2 and held(data) == before
    error = json.loads(run.stdout)["error"]
    assert error["kind"] == "usage" and f"{foreign} would be replaced, but was not written by dln" in error["message"]
    assert error["message"].endswith("or replace it with --force.")


@pytest.mark.parametrize(
    ("arguments", "own", "others"),
    [
        ("regress table.csv --targets b", "coefficients.csv", ["predictions.csv", "regression.png"]),
        ("complete gaps.csv --depth 2 --width 3", "gaps-completed.csv", ["gaps-completed-spread.csv"]),
        ("geodesic a.csv b.csv --depth 2", "geodesic.csv", ["geodesic.png", "geodesic.svg"]),
        ("simulate --widths 2,2 --horizon 1 --points 3", "run.nc", ["run.png", "exact.png"]),
        ("extrapolate response.csv", "response-continued.csv", ["response-continued.svg", "response.svg"]),
    ],
)
def test_a_command_replaces_what_it_wrote_and_nothing_else(
    data: Path, arguments: str, own: str, others: list[str]
) -> None:
    place = data / "." if "complete" in arguments else data / "out"
    words = [*arguments.split(), "--no-plot", "--out", place / own if "complete" in arguments else place]
    place.mkdir(exist_ok=True)
    for name in others:
        (place / name).write_bytes(b"mine")
    for _ in range(2):
        run = dln(*words)
        assert run.exit_code == 0 and (place / own).stat().st_size > 4
        assert all((place / name).read_bytes() == b"mine" for name in others)
    (place / own).write_bytes(b"edited")
    run = dln(*words)
    assert run.exit_code == 2 and f"{own} would be replaced, but was changed since dln" in run.stderr
    assert (place / own).read_bytes() == b"edited"
    assert dln(*words, "--force").exit_code == 0 and (place / own).read_bytes() != b"edited"


def test_a_picture_of_the_users_stands_beside_those_of_the_landscape(data: Path) -> None:
    Path("results").mkdir()
    Path("results/saddles.png").write_bytes(b"mine")
    run = dln("landscape", "w.npz")
    assert run.exit_code == 0 and Path("results/saddles.png").read_bytes() == b"mine"
    assert "saddles" not in run.stderr and Path("results/landscape.png").exists()


def test_pictures_of_an_earlier_run_stay_and_are_named(data: Path) -> None:
    words = ["geodesic", "a.csv", "b.csv", "--depth", "2"]
    assert dln(*words).exit_code == 0
    drawn = {name: Path(name).read_bytes() for name in ("results/geodesic.png", "results/geodesic.svg")}
    run = dln(*words, "--no-plot")
    assert run.exit_code == 0 and {name: Path(name).read_bytes() for name in drawn} == drawn
    assert all(f"dln: {name} is from an earlier run and was left as it is." in run.stderr for name in drawn)


# --- The list of what was written -------------------------------------------------------------------------------------


def made(text: str, name: str = "a.csv") -> Callable[[Path], list[Path]]:
    def make(to: Path) -> list[Path]:
        (to / name).write_text(text)
        return [to / name]

    return make


def claimed(file: Path, command: str = "x", force: bool = False) -> Written:
    return Written(command, [file], force=force)


def test_a_file_of_another_command_is_foreign(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    assert claimed(file).write(made("one")) == [file]
    with pytest.raises(UsageError, match=r"a\.csv would be replaced, but was not written by dln y"):
        claimed(file, "y")
    claimed(file, "y", force=True).write(made("two"))
    assert file.read_text() == "two"
    claimed(file, "y").write(made("three"))
    assert file.read_text() == "three" and {path.name for path in tmp_path.iterdir()} == {"a.csv", MANIFEST}


@pytest.mark.parametrize("kind", ["folder", "broken link", "link"])
def test_what_is_no_file_of_its_own_is_not_replaced(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "a.csv"
    if kind == "folder":
        file.mkdir()
    else:
        file.symlink_to(tmp_path / "b.csv")
    if kind == "link":
        (tmp_path / "b.csv").write_text("mine")
    with pytest.raises(UsageError, match=r"a\.csv (would be replaced|must be a file)"):
        claimed(file)


def test_a_file_that_comes_during_the_run_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.csv"
    written = claimed(file)
    file.write_text("mine")
    (tmp_path / "a-2.csv").write_text("mine too")
    assert written.write(made("result")) == [tmp_path / "a-3.csv"]
    assert [path.read_text() for path in sorted(tmp_path.glob("*.csv"))] == ["mine too", "result", "mine"]
    assert "a.csv was changed during the run" in capsys.readouterr().err


def test_a_kill_between_list_and_file_leaves_a_list_that_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.csv"
    claimed(file).write(made("one"))
    written, rename = claimed(file), os.replace

    def kill(source: Path, target: Path) -> None:
        if Path(target) == file:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", kill)
    with pytest.raises(KeyboardInterrupt):
        written.write(made("two"))
    monkeypatch.undo()
    assert file.read_text() == "one"
    claimed(file).write(made("three"))
    assert file.read_text() == "three"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2, "files": {}}', '{"format": 1, "files": {"a": 1}}'])
def test_a_list_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(UsageError, match=r"cannot read .*\.dln-written\.json, the list of what was written"):
        claimed(tmp_path / "a.csv")


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    claimed(file).write(made("one"))

    def broken(to: Path) -> list[Path]:
        made("half")(to)
        raise OSError(28, "No space left on device", str(to / "a.csv"))

    with pytest.raises(OSError, match="No space") as error:
        claimed(file).write(broken)
    assert error.value.filename == str(file) and file.read_text() == "one"
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", MANIFEST}
