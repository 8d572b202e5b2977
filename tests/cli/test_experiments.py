"""`dln check`, `dln experiment`, `dln report` and `dln demo`, in this process and in one of their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import xarray
from typer.testing import CliRunner, Result

from deeplinear.cli import _demo
from deeplinear.cli._catalogue import REGISTRIES
from deeplinear.cli._experiment import executor_of
from deeplinear.cli._main import app
from deeplinear.experiments import EXECUTORS, Store, experiment, experiments
from deeplinear.theory import check, checks

FIG = "completion/fig2"
"""An experiment by formula: quick once it is compiled."""

SMALL = ("ms=10", "depths=2,3", "points=7")
"""One panel of it with few curves: drawing takes longer than computing."""

CHECK = "completion/lemmas-d1-d2-d5"
"""A check of algebra, without a flow."""


def dln(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def told(*arguments: object, code: int = 0) -> dict:
    result = dln(*arguments, "--json")
    assert result.exit_code == code, result.stderr
    content = json.loads(result.stdout)
    assert content["ok"] is (code == 0) and content["command"]
    return content


# --- Experiments ------------------------------------------------------------------------------------------------------


def test_list_and_show_name_everything() -> None:
    listed = told("experiment", "list")["experiments"]
    assert [one["id"] for one in listed] == [one.id for one in experiments()]
    assert all(one["shows"].endswith(".") and {"quick", "paper"} <= set(one["presets"]) for one in listed)
    assert FIG in dln("experiment", "list", "--paper", "completion").stdout
    shown = dln("experiment", "show", FIG).stdout
    assert "points" in shown and "19" in shown and "181" in shown
    assert told("experiment", "show", FIG)["experiment"]["presets"]["paper"]["points"] == 181


def test_show_says_how_lists_are_written() -> None:
    shown = " ".join(dln("experiment", "show", "geometry/fig1.1").stdout.split())
    assert "0.5, 0.25; 1.5, 0.5; 3.0, 1.5" in shown and "lists of lists 'key=1,2;3,4'" in shown
    types = told("experiment", "show", "geometry/fig1.1")["experiment"]["types"]
    assert (types["angles"], types["spectra"]) == ("tuple[float, float]", "tuple[tuple[float, float], ...]")
    assert "none" in dln("experiment", "show", "rnn/fig3b").stdout


def test_equal_settings_are_stored_once(tmp_path: Path) -> None:
    first = told("experiment", "run", "geometry/fig2.2", "--store", tmp_path)["members"][0]
    again = told("experiment", "run", "geometry/fig2.2", "depths=1,2,5,inf", "--store", tmp_path)["members"][0]
    assert (again["status"], again["key"]) == ("stored", first["key"])


def test_run_stores_and_takes_from_the_store(tmp_path: Path) -> None:
    first = told("experiment", "run", FIG, *SMALL, "--store", tmp_path)
    (member,) = first["members"]
    assert member["status"] == "completed" and member["spec"]["points"] == 7
    assert {"data.nc", "figure.pdf", "figure.png", "figure.svg"} <= set(member["files"])
    assert all(claim["holds"] is None for claim in member["claims"])  # no preset has seven points
    again = told("experiment", "run", FIG, *SMALL, "--store", tmp_path)
    assert again["members"][0]["status"] == "stored" and again["members"][0]["folder"] == member["folder"]
    shown = dln("experiment", "run", FIG, *SMALL, "--store", tmp_path)
    assert "– not told" in shown.stdout and "(stored)" in shown.stdout
    assert "claims have no verdict: their bounds were set for the presets" in " ".join(shown.stdout.split())
    anew = told("experiment", "run", FIG, *SMALL, "--store", tmp_path, "--again")
    assert anew["members"][0]["status"] == "completed"


def test_sweep_status_and_collect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = ("value=1,2", "blocks=3..4", *SMALL)
    swept = told("experiment", "sweep", FIG, *values, "--store", tmp_path)
    assert swept["asked"] == 4 and [m["status"] for m in swept["members"]] == ["completed"] * 4
    assert [(m["spec"]["value"], m["spec"]["blocks"]) for m in swept["members"]] == [(1, 3), (1, 4), (2, 3), (2, 4)]
    asked = ("value=1,2,5", "blocks=3", *SMALL, "--preset", "quick", "--store", tmp_path)
    runs = told("experiment", "status", FIG, *asked)["runs"]
    assert [run["status"] for run in runs] == ["completed", "completed", "missing"]
    damaged = Path(runs[0]["folder"]) / "data.nc"
    damaged.write_bytes(b"x")
    status = dln("experiment", "status", FIG, *asked)
    assert status.exit_code == 0 and "damaged" in status.stdout
    mended = dln("experiment", "sweep", FIG, *values, "--store", tmp_path)
    assert mended.exit_code == 0 and "1 run, 3 taken from the store" in mended.stdout and "damaged" in mended.stderr
    file = tmp_path / "all.nc"
    collected = told("experiment", "collect", FIG, *values, "--store", tmp_path, "--out", file)
    assert collected["members"] == 4 and collected["missing"] == 0
    refused = dln("experiment", "collect", FIG, *values, "--store", tmp_path, "--out", tmp_path / "all.csv")
    assert refused.exit_code == 2 and "--out must be a file that ends in .nc, but is" in refused.stderr
    with xarray.open_dataset(file, engine="h5netcdf") as dataset:
        assert dataset["sigma_2"].dims[0] == "member" and list(dataset["spec.blocks"]) == [3, 4, 3, 4]
    kept, there = file.read_bytes(), set(tmp_path.iterdir())

    def half(self: Path, content: bytes) -> int:
        with self.open("wb") as stream:
            stream.write(content[: len(content) // 2])
        raise OSError("no space left on the disk")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="no space"):
        dln("experiment", "collect", FIG, *values, "--store", tmp_path, "--out", file)
    assert file.read_bytes() == kept and set(tmp_path.iterdir()) == there


def test_a_claim_that_fails_is_exit_1_and_a_run_that_breaks_is_exit_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dataclasses

    from deeplinear.experiments import Claim, _compute, _registry

    chosen = experiment(FIG)
    wrong = dataclasses.replace(chosen, claims=lambda dataset, spec: [Claim.at_most("always", 2.0, 1.0, general=True)])
    monkeypatch.setitem(_registry._ALL, FIG, wrong)
    result = told("experiment", "run", FIG, *SMALL, "--store", tmp_path, code=1)
    assert result["members"][0]["claims"][0]["holds"] is False

    def broken(spec: object, context: object) -> None:
        raise ArithmeticError("no number came out")

    monkeypatch.setitem(_registry._ALL, FIG, dataclasses.replace(chosen, run=broken))
    assert _compute.experiment(FIG).run is broken
    failed = dln("experiment", "run", FIG, "points=6", "--store", tmp_path)
    assert failed.exit_code == 3 and "ArithmeticError: no number came out" in failed.stderr


@pytest.mark.parametrize("left", [True, False])
def test_an_interrupt_says_what_is_kept(left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    from deeplinear.experiments import Context, _registry

    def interrupted(spec: object, context: Context) -> None:
        assert context.scratch is not None
        context.scratch.mkdir(parents=True)
        (context.scratch / ("part-1.npz" if left else ".part-1.npz")).touch()  # the second is not whole
        raise KeyboardInterrupt

    monkeypatch.setitem(_registry._ALL, FIG, dataclasses.replace(experiment(FIG), run=interrupted))
    result = dln("experiment", "run", FIG, *SMALL, "--store", tmp_path)
    kept = ", what was begun is kept" if left else ""
    assert result.exit_code == 130
    assert f"interrupted; 0 of 1 are stored{kept}, and the same command goes on from there." in result.stderr


BAD = {
    "unknown id": (["experiment", "run", "completion/fig52"], "Did you mean 'completion/fig5'"),
    "figure in another": (["experiment", "show", "completion/fig19"], "'completion/fig18' makes Figures 18 and 19"),
    "unknown key": (["experiment", "run", FIG, "pionts=3"], "Did you mean 'points'"),
    "wrong value": (["experiment", "run", FIG, "points=many"], "points must be a whole number"),
    "value too few": (["experiment", "run", "geometry/fig1.1", "angles=0.5"], "angles must be 2 numbers"),
    "lists too short": (["experiment", "run", "geometry/fig1.1", "spectra=1;2"], "such as 0.5,0.25;1.5,0.5;3.0,1.5"),
    "widths too few": (["experiment", "run", "exact/fig2", "widths=3,2"], "exact/fig2: widths must be 3 whole numbers"),
    "value out of range": (["experiment", "run", FIG, "blocks=1"], "blocks must be at least 2"),
    "unknown preset": (["experiment", "run", FIG, "--preset", "papr"], "Did you mean 'paper'"),
    "unknown preset of all": (["experiment", "run", "--all", "--preset", "qiuck"], "Did you mean 'quick'"),
    "unknown preset of a status": (["experiment", "status", "--preset", "nonsense"], "there is no preset 'nonsense'"),
    "no id": (["experiment", "run"], "which experiments?"),
    "ids and all": (["experiment", "run", FIG, "--all"], "not ids and one of these"),
    "settings of many": (["experiment", "run", "--all", "points=3"], "go with one experiment"),
    "seed without randomness": (["experiment", "run", FIG, "--seed", "1"], "takes no seed"),
    "seed twice": (["experiment", "run", "tour/plateaus", "seed=1", "--seed", "2"], "given twice"),
    "unknown executor": (["experiment", "run", FIG, "--executor", "thread"], "--executor must be"),
    "no worker": (["experiment", "run", FIG, "--executor", "processes", "--workers", "0"], "--workers must be"),
    "address": (["experiment", "run", FIG, "--executor", "processes", "--address", "x"], "--address is for"),
    "sweep of two": (["experiment", "sweep", FIG, "completion/fig5"], "2 ids are given"),
    "unknown paper": (["experiment", "list", "--paper", "complete"], "Did you mean 'completion'"),
    "unknown check": (["check", "run", "completion/lemmas-d1-d2-d4"], "Did you mean"),
    "no check": (["check", "run"], "which checks?"),
    "no instances": (["check", "run", CHECK, "--instances", "0"], "--instances must be"),
    "empty store": (["report", "--store", "nothing-here"], "nothing"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_2(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, message = BAD[case]
    monkeypatch.chdir(tmp_path)
    result = dln(*arguments)
    assert result.exit_code == 2 and message in result.stderr and result.stderr.count("\n") == 1, result.stderr


FORESEEN = (
    ["experiment", "show", "completion/fig52"],
    ["experiment", "show", "completion/fig19"],
    ["experiment", "run", "nosuch"],
    ["experiment", "run", FIG, "pionts=3"],
    ["experiment", "run", FIG, "--preset", "papr"],
    ["experiment", "run", "--paper", "complete"],
    ["experiment", "run", FIG, "--executor", "proceses"],
    ["experiment", "run"],
    ["experiment", "sweep", "completion/fig52", "points=3"],
    ["experiment", "sweep", FIG, "bogus=1"],
    ["experiment", "sweep", FIG, "--preset", "papr"],
    ["experiment", "status", "completion/fig52"],
    ["experiment", "status", "--preset", "nonsense"],
    ["experiment", "collect", "completion/fig52"],
    ["check", "show", "completion/lemmas-d1-d2-d4"],
    ["check", "run", "nosuch"],
    ["check", "run", "--paper", "complete"],
)
"""What the catalogue alone shows to be wrong."""

AT_ONCE = """
import sys
from deeplinear.cli import main
for arguments in {foreseen}:
    sys.argv = ["dln", *arguments]
    try:
        main()
    except SystemExit as end:
        assert end.code == 2, (arguments, end.code)
    assert "jax" not in sys.modules and "deeplinear.core" not in sys.modules, arguments
"""


def test_what_the_catalogue_knows_is_refused_at_once_in_the_words_of_the_registries() -> None:
    assert all(name in sys.modules for name in REGISTRIES.values())  # here they are asked
    asked = [dln(*arguments) for arguments in FORESEEN]
    assert all(result.exit_code == 2 for result in asked)
    command = [sys.executable, "-c", AT_ONCE.format(foreseen=FORESEEN)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")
    assert run.stderr.splitlines() == [result.stderr.strip() for result in asked]
    assert [executor_of(executor, None, None)[0] for executor in EXECUTORS] == list(EXECUTORS)


def test_an_experiment_that_only_the_registry_knows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    from deeplinear.experiments import _registry

    monkeypatch.setitem(_registry._ALL, "tour/own", dataclasses.replace(experiment(FIG), id="tour/own"))
    assert told("experiment", "show", "tour/own")["experiment"]["id"] == "tour/own"


# --- Checks -----------------------------------------------------------------------------------------------------------


def test_checks_are_listed_and_shown() -> None:
    listed = told("check", "list")["checks"]
    assert [one["id"] for one in listed] == [one.id for one in checks()]
    assert all(one["violations"] and one["claim"] and one["statement"].endswith(".") for one in listed)
    shown = dln("check", "show", CHECK).stdout
    assert "statement" in shown and "violation" in shown


def test_run_of_a_check_is_stored(tmp_path: Path) -> None:
    result = told("check", "run", CHECK, "--instances", "2", "--store", tmp_path)
    (outcome,) = result["checks"]
    assert outcome["status"] == "holds" and all(violation["caught"] for violation in outcome["violations"])
    assert len(list(Store(tmp_path).records("check"))) == 1
    assert "1 hold" in dln("check", "run", CHECK, "--instances", "2", "--store", tmp_path).stdout


def test_a_check_that_fails_is_exit_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    from deeplinear.theory import _registry

    strict = dataclasses.replace(check(CHECK), tolerances=dict.fromkeys(check(CHECK).tolerances, -1.0))
    monkeypatch.setitem(_registry._ALL, CHECK, strict)
    outcome = told("check", "run", CHECK, "--instances", "2", "--store", tmp_path, code=1)
    assert outcome["checks"][0]["status"] == "fails"


GEODESICS = ("geometry/conserved-quantities", "geometry/distance-lower-bound", "geometry/distance")
"""Left out where every check is tried: geodesics from a given product take half of the time. Tests of their own examine
given layers by them."""


@pytest.mark.slow
@pytest.mark.covers("completion:F38")
def test_examine_a_problem_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The 2 x 2 warm start from the command line: the theorems that apply hold, the others say why they do not."""
    import numpy as np

    from deeplinear.theory import _registry

    # A copy: what `delitem` puts back comes last, and the order of the checks would stay changed.
    others = {one.id: one for one in checks() if one.id not in GEODESICS}
    assert len(others) == len(checks()) - len(GEODESICS)
    monkeypatch.setattr(_registry, "_ALL", others)
    np.save(tmp_path / "target.npy", [[1.0, 0.5], [2.0, 1.0]])
    np.save(tmp_path / "mask.npy", [[1.0, 1.0], [0.0, 1.0]])
    np.savez(tmp_path / "layers.npz", W1=np.eye(2), W2=np.eye(2))
    verdicts = told(
        "check", "examine", "--widths", "2,2,2", "--loss", "completion", "--target", tmp_path / "target.npy",
        "--mask", tmp_path / "mask.npy", "--init", "file", "--init-file", tmp_path / "layers.npz",
    )["verdicts"]  # fmt: skip
    found = {verdict["check"]: verdict for verdict in verdicts}
    assert found["completion/theorem-4.2"]["status"] == "holds"
    assert any(verdict["status"] == "unmet" for verdict in verdicts)
    assert all(verdict["status"] != "fails" for verdict in verdicts)


# --- Report and tour --------------------------------------------------------------------------------------------------


def test_report_says_where_it_is(tmp_path: Path) -> None:
    told("experiment", "run", FIG, *SMALL, "--store", tmp_path)
    written = told("report", "--store", tmp_path)
    page = Path(written["file"])
    assert page == tmp_path / "report.html" and page.stat().st_size == written["bytes"] > 10_000
    assert FIG in page.read_text(encoding="utf-8")
    assert "file://" in dln("report", "--store", tmp_path, "--out", tmp_path / "other.html").stdout.replace("\n", "")
    refused = dln("report", "--store", tmp_path, "--out", tmp_path / "other.csv")
    assert refused.exit_code == 2 and "--out must be a file that ends in .html or .htm, but is" in refused.stderr


def test_the_tour_shows_every_theory_and_stays_short() -> None:
    assert len(_demo.EXPERIMENTS) + len(_demo.CHECKS) <= _demo.MOST
    shown = {experiment(name).paper for name in _demo.EXPERIMENTS} | {check(name).paper for name in _demo.CHECKS}
    assert shown >= {one.paper for one in experiments()} | {one.paper for one in checks()}


def test_the_tour_ends_with_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shorter tour of the same form."""
    monkeypatch.setattr(_demo, "EXPERIMENTS", (FIG,))
    monkeypatch.setattr(_demo, "CHECKS", (CHECK,))
    monkeypatch.setattr(_demo, "INSTANCES", 2)
    told_of = told("demo", "--out", tmp_path)
    assert Path(told_of["report"]).exists() and told_of["checks"] == [{"id": CHECK, "status": "holds"}]
    assert "report.html" in dln("demo", "--out", tmp_path).stdout.replace("\n", "")
