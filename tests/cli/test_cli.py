"""The command `dln`, in this process and, where that matters, in one of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from deeplinear.cli import _interrupt
from deeplinear.cli._main import app
from deeplinear.cli._options import INITS, INTEGRATORS, LOSSES, METHODS, PROBES, SIMULATE, resolve
from deeplinear.cli._written import Written
from deeplinear.core import Trajectory, processors

QUICK = ["--widths", "2,2,2", "--method", "gd", "--lr", "0.1", "--horizon", "40", "--points", "5"]
"""A run whose compiled pieces all tests share."""


def dln(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def simulate(*arguments: object) -> dict:
    run = dln("simulate", *arguments, "--json")
    assert run.exit_code == 0, run.stderr
    return json.loads(run.stdout)


# --- Help and versions ------------------------------------------------------------------------------------------------

HEAVY = ("jax", "matplotlib", "numpy", "deeplinear.core", "deeplinear.dynamics", "scipy", "xarray")

LIGHT = (
    ["--help"],
    ["--version"],
    ["simulate", "--help"],
    ["check", "run", "--help"],
    ["check", "list"],
    ["check", "show", "completion/theorem-3.3"],
    ["experiment", "run", "--help"],
    ["experiment", "list", "--paper", "rnn"],
    ["experiment", "show", "rnn/fig2"],
)
HELP = """
import sys
from deeplinear.cli import main
for arguments in {light}:
    sys.argv = ["dln", *arguments]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0, (arguments, end.code)
    print("END")
    loaded = [name for name in {heavy} if name in sys.modules]
    assert not loaded, (arguments, loaded)
"""


def test_commands_that_compute_nothing_load_nothing_heavy() -> None:
    """What makes them slow is what they import; seconds would depend on the machine."""
    command = [sys.executable, "-c", HELP.format(light=LIGHT, heavy=HEAVY)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    *shown, last = run.stdout.split("END\n")
    assert len(shown) == len(LIGHT) and all(shown) and last == ""


def test_every_setting_is_in_the_help() -> None:
    text = dln("simulate", "--help").stdout
    assert [option.name for option in SIMULATE if f"--{option.name} " not in text] == []


def test_version() -> None:
    import deeplinear

    assert dln("--version").stdout.strip() == f"deeplinear {deeplinear.__version__}"


# --- One table for flags and file -------------------------------------------------------------------------------------

EXAMPLES = {
    "widths": ("2,3,2", [2, 3, 2]),
    "loss": ("completion", "completion"),
    "spectrum": ("2,0.5", [2, 0.5]),
    "observed": ("0.5", 0.5),
    "l2": ("1e-3", 1e-3),
    "init": ("alpha-m", "alpha-m"),
    "m": ("inf", float("inf")),
    "method": ("sgd", "sgd"),
    "batch": ("2", 2),
    "max-steps": ("1e4", 10_000),
    "probes": ("loss, product", ["loss", "product"]),
    "no-plot": (True, True),
}


def test_flags_and_file_read_the_same_values(tmp_path: Path) -> None:
    def toml(value: object) -> str:
        return "inf" if value == float("inf") else json.dumps(value)

    file = tmp_path / "run.toml"
    file.write_text("\n".join(f"{name} = {toml(value)}" for name, (_, value) in EXAMPLES.items()))
    from_flags = resolve(SIMULATE, {name: flag for name, (flag, _) in EXAMPLES.items()}, None)
    assert dict(from_flags) == dict(resolve(SIMULATE, {}, str(file)))
    assert from_flags["max-steps"] == 10_000
    assert from_flags["widths"] == (2, 3, 2)


def test_flags_go_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('seed = 3\nwidths = [2, 2, 2]\nmethod = "gd"\n')
    settings = resolve(SIMULATE, {"seed": "5"}, str(file))
    assert (settings["seed"], settings["method"]) == (5, "gd")


def test_tables_of_names_are_complete() -> None:
    """The light module names what the heavy one builds."""
    from deeplinear.cli import _build

    assert tuple(_build.INIT) == INITS
    assert tuple(_build.METHOD) == METHODS
    assert tuple(_build.INTEGRATOR) == INTEGRATORS
    assert tuple(_build.PROBES) == PROBES


def test_every_built_in_probe_without_parameters_can_be_named() -> None:
    from deeplinear import probes
    from deeplinear.cli import _build

    offered = [getattr(probes, name) for name in dir(probes)]
    names = {item.name for item in offered if isinstance(item, probes.FunctionProbe)}
    assert "singular_values" in names
    assert names <= set(_build.PROBES)


# --- Runs -------------------------------------------------------------------------------------------------------------


def test_json_and_data_agree_with_a_loop_in_numpy(tmp_path: Path, seed: int) -> None:
    """Gradient descent from the written start: forty steps of plain NumPy end at the same layers."""
    target = np.array([[2.0, 0.5], [-1.0, 1.0]])
    layers = [np.random.default_rng(seed).normal(size=(2, 2)) for _ in range(2)]
    np.save(tmp_path / "target.npy", target)
    np.savez(tmp_path / "start.npz", W1=layers[0], W2=layers[1])
    files = ["--target", tmp_path / "target.npy", "--init", "file", "--init-file", tmp_path / "start.npz"]
    report = simulate(*QUICK, *files, "--out", tmp_path / "out", "--no-plot")
    first, second = layers
    for _ in range(40):
        gap = second @ first - target
        first, second = first - 0.1 * second.T @ gap, second - 0.1 * gap @ first.T
    run = Trajectory.load(tmp_path / "out" / "run")
    np.testing.assert_allclose(run.params, [first, second], rtol=1e-10)  # rounding, forty times
    assert report["ok"] is True
    assert report["final"]["loss"] == pytest.approx(0.5 * np.sum((second @ first - target) ** 2), rel=1e-8, abs=1e-28)
    assert run.times.tolist() == [0, 10, 20, 30, 40]
    assert {Path(file).name for file in report["files"]} == {"run.nc", "run.json"}


def test_the_same_seed_gives_the_same_run_and_another_one_another(seed: int) -> None:
    runs = [simulate(*QUICK, "--seed", s)["final"]["loss"] for s in (seed, seed, seed + 100)]
    assert runs[0] == runs[1] != runs[2]


def test_a_finished_run_can_be_continued_from_its_file(tmp_path: Path) -> None:
    whole = simulate(*QUICK, "--out", tmp_path, "--no-plot")
    start = ["--init", "file", "--init-file", tmp_path / "run.nc"]
    again = simulate(*QUICK, *start)
    first = Trajectory.load(tmp_path / "run")
    assert again["final"]["loss"] < whole["final"]["loss"]
    assert first.info["settings"]["widths"] == [2, 2, 2]


def test_files_of_all_kinds_give_the_same_run(tmp_path: Path) -> None:
    target = np.array([[1.0, 2.0], [3.0, 4.5]])
    np.save(tmp_path / "a.npy", target)
    np.savez(tmp_path / "a.npz", target=target, other=np.zeros(3))
    np.savetxt(tmp_path / "a.csv", target, delimiter=",")
    np.savetxt(tmp_path / "a.txt", target)
    ends = {simulate(*QUICK, "--target", tmp_path / f"a.{e}")["final"]["loss"] for e in ("npy", "npz", "csv", "txt")}
    assert len(ends) == 1


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_runs_and_falls(loss: str, tmp_path: Path) -> None:
    dln("simulate", *QUICK, "--loss", loss, "--out", tmp_path, "--no-plot")
    record = Trajectory.load(tmp_path / "run")["loss"]
    assert record[-1] < record[0]


def test_regression_from_files(tmp_path: Path, seed: int) -> None:
    """The first record is the mean of half the squared errors at the start."""
    rng = np.random.default_rng(seed)
    inputs, outputs = rng.normal(size=(2, 6)), rng.normal(size=(2, 6))
    np.save(tmp_path / "x.npy", inputs)
    np.save(tmp_path / "y.npy", outputs)
    data = ["--loss", "regression", "--inputs", tmp_path / "x.npy", "--outputs", tmp_path / "y.npy"]
    simulate(*QUICK, *data, "--init", "identity", "--init-scale", "0.5", "--out", tmp_path, "--no-plot")
    error = 0.25 * inputs - outputs
    expected = 0.5 * np.mean(np.sum(error**2, axis=0))
    assert Trajectory.load(tmp_path / "run")["loss"][0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("init", [name for name in INITS if name != "file"])
def test_every_init_can_be_named(init: str) -> None:
    from deeplinear.cli._build import build

    run = build(resolve(SIMULATE, {"widths": "2,2,2", "init": init, "until-loss": "1"}, None))
    assert [layer.shape for layer in run.starts[0]] == [(2, 2), (2, 2)]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_named(method: str) -> None:
    from deeplinear.cli._build import build

    run = build(resolve(SIMULATE, {"method": method, "horizon": "100", "loss": "completion"}, None))
    assert run.times is not None
    assert (run.times[0], run.times[-1]) == (0, 100)


def test_spectrum_is_that_of_the_target(seed: int) -> None:
    from deeplinear.cli._build import build

    flags = {"widths": "4,3,3", "spectrum": "3,1", "scale": "2", "horizon": "1", "seed": str(seed)}
    target = build(resolve(SIMULATE, flags, None)).problem.loss.target
    np.testing.assert_allclose(np.linalg.svd(target, compute_uv=False), [6, 2, 0], atol=1e-12)


def test_logarithmic_spacing() -> None:
    from deeplinear.cli._build import build

    flags = {"horizon": "10", "points": "5", "spacing": "log"}
    times = build(resolve(SIMULATE, flags, None)).times
    np.testing.assert_allclose(times, [0, 1e-3, 10 ** (-5 / 3), 10 ** (-1 / 3), 10], rtol=1e-12)


def test_ensemble(tmp_path: Path) -> None:
    """The first member is the single run."""
    single = simulate(*QUICK)
    report = simulate(*QUICK, "--seeds", 2, "--out", tmp_path)
    run = Trajectory.load(tmp_path / "run")
    assert report["outcome"] == {"completed": [0, 1]}
    assert report["final"]["loss"][0] == pytest.approx(single["final"]["loss"], rel=1e-9)
    assert run.members == 2
    assert len({float(x) for x in run.final("loss")}) == 2
    assert (tmp_path / "run.png").stat().st_size > 0
    assert (tmp_path / "run.svg").read_text().startswith("<?xml")


def test_a_run_that_meets_a_limit_says_that_it_is_not_finished() -> None:
    run = dln("simulate", *QUICK, "--max-steps", 3, "--json")
    report = json.loads(run.stdout)
    assert (run.exit_code, report["ok"], report["finished"], report["outcome"]) == (0, True, False, "step_limit")
    assert "limit on steps" in run.stderr
    assert simulate(*QUICK)["finished"] is True
    for text in (dln("--help").stdout, dln("simulate", "--help").stdout):
        assert '"finished": false' in " ".join(text.split())


def test_summary_for_people() -> None:
    run = dln("simulate", *QUICK)
    assert run.exit_code == 0
    assert "completed" in run.stdout
    assert run.stderr == ""


# --- Failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_diverging_run_keeps_its_data_says_why_and_exits_with_3(tmp_path: Path, seeds: int) -> None:
    huge = ["--widths", "2,2,2", "--method", "gd", "--lr", "1e3", "--horizon", "40", "--points", "5"]
    run = dln("simulate", *huge, "--seeds", seeds, "--json", "--out", tmp_path)
    assert run.exit_code == 3
    report = json.loads(run.stdout)
    assert report["ok"] is False
    assert "learning rate" in report["messages"]["diverged"]
    assert "learning rate" in run.stderr
    assert Trajectory.load(tmp_path / "run").failed == tuple(range(seeds))


def test_without_matplotlib_the_data_are_written_and_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run = dln("simulate", *QUICK, "--out", tmp_path)
    assert run.exit_code == 0
    assert "deeplinear[report]" in run.stderr
    assert Trajectory.load(tmp_path / "run").result.finished


COMPLETION = ["--loss", "completion", "--widths", "2,2", "--horizon", "1"]
BAD = {
    "no command": [],
    "unknown command": ["simulat"],
    "unknown flag": ["simulate", "--width", "2,2"],
    "flag without value": ["simulate", "--widths"],
    "no end": ["simulate"],
    "negative width": ["simulate", "--widths", "2,-2,2", "--horizon", "1"],
    "one width": ["simulate", "--widths", "2", "--horizon", "1"],
    "width no number": ["simulate", "--widths", "2,x", "--horizon", "1"],
    "empty widths": ["simulate", "--widths", "", "--horizon", "1"],
    "negative horizon": ["simulate", "--horizon", "-1"],
    "nan horizon": ["simulate", "--horizon", "nan"],
    "infinite horizon": ["simulate", "--horizon", "inf"],
    "huge horizon": ["simulate", "--horizon", "1e999"],
    "horizon no number": ["simulate", "--horizon", "soon"],
    "half a step": ["simulate", "--horizon", "1.5", "--method", "gd"],
    "unknown loss": ["simulate", "--loss", "square", "--horizon", "1"],
    "unknown init": ["simulate", "--init", "gausian", "--horizon", "1"],
    "unknown method": ["simulate", "--method", "adma", "--horizon", "1"],
    "unknown probe": ["simulate", "--probes", "loss,singular_value", "--horizon", "1"],
    "probe twice": ["simulate", "--probes", "loss,loss", "--horizon", "1"],
    "idle flag": ["simulate", "--m", "2", "--horizon", "1"],
    "points without horizon": ["simulate", "--points", "5", "--until-loss", "1"],
    "rank too high": ["simulate", "--rank", "11", "--horizon", "1"],
    "spectrum too long": ["simulate", "--widths", "2,2", "--spectrum", "3,2,1", "--horizon", "1"],
    "rank and spectrum": ["simulate", "--rank", "1", "--spectrum", "3,2", "--horizon", "1"],
    "infeasible lambda": ["simulate", "--widths", "2,3,2", "--init", "lambda-balanced", "--lam", "1", "--horizon", "1"],
    "alpha-m of unequal widths": ["simulate", "--widths", "2,3", "--init", "alpha-m", "--horizon", "1"],
    "sgd without terms": ["simulate", "--method", "sgd", "--horizon", "1"],
    "batch too large": ["simulate", "--method", "sgd", "--loss", "completion", "--batch", "101", "--horizon", "1"],
    "nothing hidden": ["simulate", "--probes", "held_out_error", "--horizon", "1"],
    "reference of many": ["simulate", "--probes", "drift", "--seeds", "2", "--horizon", "1"],
    "many of the same": ["simulate", "--init", "identity", "--seeds", "2", "--horizon", "1"],
    "start without file": ["simulate", "--init", "file", "--horizon", "1"],
    "more than fits": ["simulate", "--widths", "1000000,1000000", "--horizon", "1"],
    "kernel larger than fits": ["simulate", "--widths", "1000,2,1000", "--probes", "ntk", "--horizon", "1"],
    "seed of the doctor no number": ["doctor", "--seed", "one"],
    "seed no number": ["demo", "--seed", "one"],
    "negative seed": ["simulate", "--seed", "-1", "--horizon", "1"],
    "huge seed": ["simulate", "--seed", "9" * 30, "--horizon", "1"],
    "out is a file": ["simulate", *QUICK, "--out", "{tmp}/file.txt"],
    "no such target": ["simulate", "--target", "{tmp}/none.npy", "--horizon", "1"],
    "target of unknown kind": ["simulate", "--target", "{tmp}/x.xlsx", "--horizon", "1"],
    "target with nan": ["simulate", "--widths", "2,2", "--target", "{tmp}/nan.npy", "--horizon", "1"],
    "target of wrong shape": ["simulate", "--widths", "3,3", "--target", "{tmp}/nan.npy", "--horizon", "1"],
    "target of words": ["simulate", "--widths", "2,2", "--target", "{tmp}/words.csv", "--horizon", "1"],
    "ragged target": ["simulate", "--widths", "2,2", "--target", "{tmp}/ragged.csv", "--horizon", "1"],
    "empty target": ["simulate", "--widths", "2,2", "--target", "{tmp}/empty.csv", "--horizon", "1"],
    "broken npy": ["simulate", "--widths", "2,2", "--target", "{tmp}/broken.npy", "--horizon", "1"],
    "broken npz": ["simulate", "--widths", "2,2", "--target", "{tmp}/broken.npz", "--horizon", "1"],
    "objects in npy": ["simulate", "--widths", "2,2", "--target", "{tmp}/objects.npy", "--horizon", "1"],
    "complex target": ["simulate", "--widths", "2,2", "--target", "{tmp}/complex.npy", "--horizon", "1"],
    "target is a folder": ["simulate", "--widths", "2,2", "--target", "{tmp}/folder.npy", "--horizon", "1"],
    "mask of twos": ["simulate", *COMPLETION, "--mask", "{tmp}/two.npy"],
    "inputs without outputs": ["simulate", "--loss", "regression", "--inputs", "{tmp}/two.npy", "--horizon", "1"],
    "samples that do not match": [
        *("simulate", "--loss", "regression", "--widths", "2,2", "--horizon", "1"),
        *("--inputs", "{tmp}/two.npy", "--outputs", "{tmp}/wide.npy"),
    ],
    "layers of wrong shape": ["simulate", "--init", "file", "--init-file", "{tmp}/layers.npz", "--horizon", "1"],
    "start is no run": ["simulate", "--init", "file", "--init-file", "{tmp}/broken.nc", "--horizon", "1"],
    "no such config": ["simulate", "--config", "{tmp}/none.toml"],
    "config with syntax error": ["simulate", "--config", "{tmp}/syntax.toml"],
    "config with unknown key": ["simulate", "--config", "{tmp}/key.toml"],
    "config with wrong type": ["simulate", "--config", "{tmp}/type.toml"],
    "config that is no text": ["simulate", "--config", "{tmp}/broken.npy"],
}


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bad")
    np.save(place / "nan.npy", [[1.0, np.nan], [0.0, 1.0]])
    np.save(place / "two.npy", 2 * np.ones((2, 2)))
    np.save(place / "wide.npy", np.ones((2, 3)))
    np.save(place / "complex.npy", np.ones((2, 2), complex))
    np.save(place / "objects.npy", np.array([[None, {}]], dtype=object), allow_pickle=True)
    np.savez(place / "layers.npz", W1=np.ones((2, 3)), W2=np.ones((2, 2)))
    (place / "folder.npy").mkdir()
    for name, content in {
        "file.txt": "1 2",
        "words.csv": "a,b\nc,d\n",
        "ragged.csv": "1,2\n3\n",
        "empty.csv": "\n",
        "syntax.toml": "widths = [2,",
        "key.toml": "width = [2, 2]",
        "type.toml": "horizon = true",
    }.items():
        (place / name).write_text(content)
    for name in ("broken.npy", "broken.npz", "broken.nc"):
        (place / name).write_bytes(b"\x93NUMPY\xff\xfe broken")
    return place


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD.keys())
def test_bad_input_gets_one_line_and_exit_code_2(arguments: list[str], bad_files: Path) -> None:
    run = dln(*(argument.replace("{tmp}", str(bad_files)) for argument in arguments))
    assert run.exit_code == 2, run.output
    assert run.stdout == ""
    assert run.stderr.startswith("dln: ")
    assert run.stderr.count("\n") == 1, run.stderr
    assert "Traceback" not in run.stderr
    assert run.stderr.rstrip().endswith((".", "?", "!")), run.stderr


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["--method", "adma"], "'adam'"),
        (["--init", "gausian"], "'gaussian'"),
        (["--probes", "singular_value"], "'singular_values'"),
        (["--config", "{tmp}/key.toml"], "'widths'"),
    ],
)
def test_misspelt_names_are_answered_with_the_nearest(arguments: list[str], near: str, bad_files: Path) -> None:
    run = dln("simulate", "--horizon", "1", *(argument.replace("{tmp}", str(bad_files)) for argument in arguments))
    assert f"Did you mean {near}?" in run.stderr


# --- Doctor and demo --------------------------------------------------------------------------------------------------


RIGHT = {"relative_error": 0.0, "tolerance": 1e-8, "passed": True, "seed": 0}
"""A self-check that passed."""


def test_doctor() -> None:
    run = dln("doctor", "--json")
    report = json.loads(run.stdout)
    assert run.exit_code == 0
    assert report["bits"] == 64
    assert report["self_check"]["passed"]
    assert report["versions"]["jax"]
    assert report["processors"] == processors()
    assert report["engine"]["native"] == report["self_check"]["engine"].startswith("native")
    assert report["extras"]["report"]["install"] == "pip install 'deeplinear[report]'"


def test_the_doctor_tells_the_processors_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPLINEAR_PROCESSORS", "1")
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert json.loads(dln("doctor", "--json").stdout)["processors"] == 1
    assert "1 may be used, of 64 there are" in dln("doctor").stdout


def test_the_doctor_names_the_engine_or_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from deeplinear import engine
    from deeplinear.cli import _doctor

    monkeypatch.setattr(engine, "missing", lambda: None)
    monkeypatch.setattr(engine, "lanes", lambda: 4)
    monkeypatch.setattr(_doctor, "self_check", lambda seed: RIGHT | {"engine": "native, lanes: 4"})
    assert json.loads(dln("doctor", "--json").stdout)["engine"]["lanes"] == 4
    text = " ".join(dln("doctor").stdout.split())
    assert "native, registers of 4 numbers" in text and "engine: native, lanes: 4" in text

    monkeypatch.setattr(engine, "missing", lambda: "the engine is not compiled on this machine")
    monkeypatch.setattr(_doctor, "self_check", lambda seed: RIGHT | {"engine": "xla: for a reason"})
    state = json.loads(dln("doctor", "--json").stdout)["engine"]
    assert not state["native"] and state["missing"] == "the engine is not compiled on this machine"
    text = " ".join(dln("doctor").stdout.split())
    for part in ("XLA only", "not compiled", "pip install ziglang", "python -m deeplinear.engine", "xla: for a reason"):
        assert part in text


def test_the_seed_of_the_doctor_is_that_of_its_check() -> None:
    checks = [json.loads(dln("doctor", "--seed", seed, "--json").stdout)["self_check"] for seed in (3, 4)]
    assert [check["seed"] for check in checks] == [3, 4]
    assert all(check["passed"] for check in checks)
    assert checks[0]["relative_error"] != checks[1]["relative_error"]


@pytest.mark.parametrize("command", ["simulate", "exact", "demo", "doctor"])
def test_every_command_has_seed_and_json(command: str) -> None:
    text = dln(command, "--help").stdout
    assert "--seed" in text and "--json" in text


def test_doctor_exits_with_1_when_the_numbers_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from deeplinear.cli import _doctor

    wrong = {"relative_error": 0.5, "tolerance": 1e-8, "passed": False, "engine": "native, lanes: 2"}
    monkeypatch.setattr(_doctor, "self_check", lambda seed: wrong)
    run = dln("doctor")
    assert run.exit_code == 1
    assert "FAILED" in run.stdout


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_an_interrupted_run_keeps_its_data_and_says_by_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str, code: int
) -> None:
    """The signal comes while the progress is shown for the second time, in a run that would take years; schedulers send
    theirs twice."""
    from deeplinear.cli import _output

    calls = []

    def press(now: object) -> None:
        calls.append(now)
        if len(calls) == 2:
            try:
                signal.raise_signal(getattr(signal, number))
            finally:
                if number != "SIGINT":
                    signal.raise_signal(getattr(signal, number))

    monkeypatch.setattr(_output, "progress_bar", lambda description: contextlib.nullcontext(press))
    endless = ["--widths", "2,2,2", "--method", "gd", "--lr", "1e-9", "--until-loss", "1e-9", "--max-steps", "1e15"]
    run = dln("simulate", *endless, "--out", tmp_path, "--no-plot", "--json")
    assert run.exit_code == code
    assert "interrupted" in run.stderr
    told = json.loads(run.stdout)
    assert (told["outcome"], told["exit_code"]) == ("interrupted", code)
    assert Trajectory.load(tmp_path / "run").result.name == "interrupted"


INTERRUPTED = """
import signal, sys
from importlib.abc import MetaPathFinder

class Press(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            signal.raise_signal({number})

sys.meta_path.insert(0, Press())
from deeplinear.cli import main
sys.argv = ["dln", "simulate", "--horizon", "1", "--json"]
main()
"""


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("typer", "SIGINT"),
        ("jax", "SIGTERM"),
        ("deeplinear.cli._build", "SIGHUP"),
        ("deeplinear.dynamics", "SIGINT"),
    ],
)
def test_an_early_interrupt_gets_one_line(name: str, number: str) -> None:
    """It comes while a module is being imported."""
    signum = int(getattr(signal, number))
    command = [sys.executable, "-c", INTERRUPTED.format(name=name, number=signum)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (128 + signum, "dln: interrupted before there was a result.\n")
    error = {"kind": "interrupted", "message": "interrupted before there was a result."}
    assert json.loads(run.stdout) == {"ok": False, "command": "simulate", "exit_code": 128 + signum, "error": error}


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """As nohup has it."""
    code = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from deeplinear.cli._interrupt import deferred, interrupts_leave, interrupts_raise
interrupts_leave()
interrupts_raise()
with deferred():
    signal.raise_signal(signal.SIGHUP)
signal.raise_signal(signal.SIGHUP)
print("still here")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "still here\n"


@pytest.mark.usefixtures("signals")
def test_a_second_signal_is_an_echo_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(_interrupt.time, "monotonic", lambda: now[0])
    _interrupt.interrupts_raise()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGHUP)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    now[0] += 2 * _interrupt.TWICE
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert _interrupt.exit_code() == 128 + signal.SIGTERM


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_an_interrupt_waits_until_results_are_written(tmp_path: Path, number: str) -> None:
    def slow(to: Path) -> list[Path]:
        signal.raise_signal(getattr(signal, number))
        (to / "a.csv").write_text("whole")
        return [to / "a.csv"]

    _interrupt.interrupts_raise()
    Written("x", [tmp_path / "a.csv"], force=False).write(slow)
    assert (tmp_path / "a.csv").read_text() == "whole"
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(getattr(signal, number))


def test_an_interrupt_that_a_destructor_loses_is_not_spoken_of() -> None:
    """It is noticed after the member, and so is what it cut short; other exceptions in destructors are told as ever."""
    code = """
import os, signal, sys
from deeplinear.cli._interrupt import interrupts_raise, watched
interrupts_raise()
class Closing:
    def __init__(self, error): self.error = error
    def __del__(self):
        if self.error is None: os.kill(os.getpid(), signal.SIGINT); sum(range(100000))
        else: raise self.error
Closing(OSError("full"))
Closing(None)
Closing(AttributeError("half made"))
try:
    watched(print)("not printed")
except KeyboardInterrupt:
    print("noticed")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "noticed\n"
    assert "OSError: full" in run.stderr and "KeyboardInterrupt" not in run.stderr and "half made" not in run.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        "check list",
        "check list --json",
        "check show exact/theorem-4.3",
        "--help",
        "--version",
        "simulate --what --json",
    ],
)
@pytest.mark.parametrize("both", [False, True])
def test_a_reader_that_goes_away_is_no_failure(arguments: str, both: bool) -> None:
    """As in `| head -1`: the program ends as one that SIGPIPE ends, and without a word."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "deeplinear.cli", *arguments.split()]
    errors = writer if both else subprocess.PIPE
    run = subprocess.run(command, stdout=writer, stderr=errors, text=True, check=False)
    os.close(writer)
    refused = "--what" in arguments
    assert run.returncode == (2 if refused else 141)
    assert both or (run.stderr.startswith("dln: No such option: --what") if refused else not run.stderr)


@pytest.mark.parametrize("columns", [40, 98, 160])
def test_tables_cut_no_word(columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Short columns keep their width, long ones are folded, and nothing is lost at the edge."""
    from deeplinear.cli._shell import print_table

    monkeypatch.setenv("COLUMNS", str(columns))
    words = "flows within the layers of one product to balanced ones"
    print_table([("geometry/path-inefficiency", "quick, paper", words)], header=("id", "presets", "shows"))
    shown = capsys.readouterr().out.split()
    assert all(word in shown for word in words.split()) and "geometry/path-inefficiency" in shown
