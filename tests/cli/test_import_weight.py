"""What each command loads, counted in processes of their own: the files that it runs, and no more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

LOADED = """
import atexit, json, sys
from deeplinear.cli import main
sys.argv = ["dln", *sys.argv[1:]]
atexit.register(lambda: sys.stderr.write("\\n" + json.dumps(sorted(sys.modules))))
main()
"""

GROUND = ("core", "readers")
ENGINE = (*GROUND, "dynamics", "engine", "models", "probes")
NEVER = ("dask", "diffrax", "fastapi", "lineax", "matplotlib", "optax", "optimistix")
TABLES = ("h5py", "pandas", "xarray")
DATA = ("sklearn", "pandas")  # scikit-learn loads pandas where it is installed

MOST: dict[str, tuple[tuple[str, ...], int, tuple[str, ...]]] = {
    "complete table.csv -o filled.csv --no-plot": ((*ENGINE, "estimators", "report"), 85, DATA),
    "identify system.csv --outputs y --steps 20 --no-plot": (
        (*ENGINE, "estimators", "recurrent", "report"),
        95,
        DATA,
    ),
    "regress samples.csv --targets y --no-plot": ((*ENGINE, "estimators", "exact", "report"), 105, DATA),
    "ranks layers.npz": ((*GROUND, "diagnosis", "nonlinear"), 36, ()),
    "extrapolate response.csv --no-plot": ((*GROUND, "models", "recurrent"), 43, ()),
    "geodesic a.csv b.csv --depth 3 --no-plot": ((*GROUND, "geometry", "models"), 52, ()),
    "exact --widths 4,2,2 --init lambda-balanced --horizon 5 --no-plot": (
        (*ENGINE, "exact", "following", "plots", "report"),
        112,
        (),
    ),
    "simulate --widths 2,2,2 --horizon 1 --no-plot": (
        (*ENGINE, "exact", "following", "plots", "report"),
        112,
        (),
    ),
    "landscape layers.npz --target target.csv --no-plot": ((*GROUND, "landscape", "models"), 66, ()),
    "check run exact/lemma-4.2 --instances 1": (
        (*ENGINE, "exact", "experiments", "geometry", "landscape", "recurrent", "report", "theory"),
        145,
        (),
    ),
}
"""By command: sub-packages beside `cli` it may load files of, modules of this package at most, and heavy packages of
those below that it needs."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files for every command."""
    folder, rng = tmp_path_factory.mktemp("weight"), np.random.default_rng(0)
    table = rng.standard_normal((8, 1)) * rng.standard_normal(6)
    table[rng.random(table.shape) < 0.2] = np.nan
    u = rng.standard_normal(60)
    y = np.convolve(u, 0.5 ** np.arange(20))[:60]
    x = rng.standard_normal((20, 2))
    for name, head, array in (
        ("table.csv", "", table),
        ("system.csv", "u,y", np.column_stack([u, y])),
        ("samples.csv", "a,b,y", np.column_stack([x, x @ [1.0, 2.0]])),
        ("response.csv", "", 0.5 ** np.arange(8)),
        ("a.csv", "", np.eye(2)),
        ("b.csv", "", np.diag([2.0, 3.0])),
        ("target.csv", "", np.ones((2, 2))),
    ):
        np.savetxt(folder / name, array, delimiter=",", header=head, comments="")
    np.savez(folder / "layers.npz", W1=rng.standard_normal((2, 2)), W2=rng.standard_normal((2, 2)))
    (folder / "bad.csv").write_text("1,2\n3\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("command", MOST)
def test_a_command_loads_the_files_that_it_runs(command: str, files: Path) -> None:
    packages, most, needed = MOST[command]
    run = subprocess.run(
        [sys.executable, "-c", LOADED, *command.split()], cwd=files, capture_output=True, text=True, check=False
    )
    *said, last = run.stderr.splitlines()
    assert run.returncode == 0, said
    loaded = json.loads(last)
    own = [name for name in loaded if name.startswith("deeplinear.")]
    files_of = {name.split(".")[1] for name in own if name.count(".") > 1}
    assert files_of <= {"cli", *packages}, files_of
    assert len(own) <= most
    assert [name for name in (*NEVER, *TABLES, "sklearn") if name in loaded and name not in needed] == []
    if command.startswith("check"):
        papers = {name.split(".")[2] for name in own if name.startswith("deeplinear.theory.") and name.count(".") > 2}
        assert papers == {"exact"} and not [name for name in own if ".catalog." in name]


REFUSED = (
    "complete none.csv",
    "complete bad.csv",
    "complete table.csv --depth 1",
    "complete table.csv -o filled.txt",
    "identify system.csv --outputs z",
    "regress samples.csv --targets z",
    "regress samples.csv --targets y --depth 0",
    "ranks none.npz",
    "ranks layers.npz --skip W3",
    "extrapolate none.csv",
    "extrapolate response.csv --known 9",
    "extrapolate response.csv --out table.csv/folder",
    "geodesic a.csv none.csv --depth 2",
    "geodesic a.csv b.csv --depth 0",
    "geodesic a.csv b.csv --depth 2 --out table.csv/folder",
    "exact --widths 4,2,2",
    "exact --widths 4,2,2 --horizon 5 --target none.csv",
    "simulate --widths 4,2,2",
    "simulate --widths 2,2 --horizon 1 --probes los",
    "simulate --widths 2,2 --horizon 1 --probes loss,loss",
    "simulate --widths 2,2 --horizon 1 --target bad.csv",
    "simulate --widths 2,2 --horizon 1 --init file",
    "simulate --widths 2,2 --horizon 1 --init file --init-file none.npz",
    "simulate --widths 2,2 --horizon 1 --method auto --seeds 2",
    "simulate --widths 2,2 --horizon 1.5 --method gd",
    "simulate --widths 2,2 --horizon 1 --rank 1 --spectrum 1",
    "simulate --widths 2,2 --horizon 1 --target target.csv --rank 1",
    "simulate --widths 1000000,1000000 --horizon 1",
    "landscape none.npz",
    "landscape layers.npz --inputs target.csv",
    "landscape layers.npz --target a.csv --inputs a.csv --outputs b.csv",
    "diagnose layers.npz --simulate",
    "diagnose layers.npz --target none.csv",
    "check run exact/theorem-4.3 --instances 0",
    "experiment run tour/plateaus --preset none",
    "doctor --seed one",
    "lab --store table.csv",
)
"""Arguments that cannot be."""

AT_ONCE = """
import sys
from deeplinear.cli import main
for line in {refused}:
    sys.argv = ["dln", *line.split()]
    try:
        main()
    except SystemExit as end:
        assert end.code == 2, (line, end.code)
    assert "jax" not in sys.modules, (line, [name for name in sys.modules if name.startswith("deeplinear")])
"""


def test_arguments_are_refused_before_jax_is_loaded(files: Path) -> None:
    command = [sys.executable, "-c", AT_ONCE.format(refused=REFUSED)]
    run = subprocess.run(command, cwd=files, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert run.returncode == 0, run.stderr
    assert len(run.stderr.splitlines()) == len(REFUSED) and run.stdout == ""
