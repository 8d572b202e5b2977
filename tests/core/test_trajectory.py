"""Trajectories on disk: what is loaded is what was saved, whatever probes and files are called."""

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray

from deeplinear.core import RESULTS, Trajectory

CLASHING = ("results", "time", "stat_seconds", "W1", "member", "t", "state0", "fired", "lengths", "row", "mode", "run")
"""Names that arrays of a trajectory, its dimensions or its coordinates might be stored under."""


def run(names: tuple[str, ...]) -> Trajectory:
    """A run of three records; every second probe is a vector, the last one a matrix."""
    rng = np.random.default_rng(0)
    dims = {name: ("mode",) if i % 2 else () for i, name in enumerate(names)} | {"matrix": ("row", "column")}
    sizes = {"mode": 2, "row": 2, "column": 4}
    return Trajectory(
        times=np.array([0.0, 0.5, 2.0]),
        values={name: rng.normal(size=(3, *(sizes[d] for d in own))) for name, own in dims.items()},
        dims=dims,
        params=(rng.normal(size=(3, 4)), rng.normal(size=(2, 3))),
        results=np.asarray(int(RESULTS.stopped)),
        fired=np.asarray(1),
        rules=("loss below 1", "loss below 2"),
        lengths=np.asarray(3),
        stats={"accepted_steps": 7, "seconds": 0.25},
        info={"problem": "a problem", "clock": "time"},
        state=(rng.normal(size=5), np.asarray(True)),
    )


def ensemble(names: tuple[str, ...]) -> Trajectory:
    """Two members, the second of which has one record less."""
    one = run(names)

    def twice(array: np.ndarray) -> np.ndarray:
        return np.stack([array, 2 * array])

    times, values = twice(one.times), {name: twice(value) for name, value in one.values.items()}
    for array in (times, *values.values()):
        array[1, 2:] = np.nan
    return dataclasses.replace(
        one,
        times=times,
        values=values,
        params=tuple(map(twice, one.params)),
        results=np.array([int(RESULTS.stopped), int(RESULTS.step_limit)]),
        fired=np.array([1, 0]),
        lengths=np.array([3, 2]),
        stats={"accepted_steps": np.array([7, 9]), "seconds": 0.25},
        state=tuple(np.stack([leaf, leaf]) for leaf in one.state),
    )


@pytest.mark.parametrize("make", [run, ensemble])
def test_what_is_loaded_is_what_was_saved(make, tmp_path: Path) -> None:
    saved = make(("loss", *CLASHING))
    saved.save(tmp_path / "run")
    loaded = Trajectory.load(tmp_path / "run")
    for name in ("times", "results", "fired", "lengths"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(saved, name), err_msg=name)
    for name in ("values", "stats"):
        mine, theirs = getattr(loaded, name), getattr(saved, name)
        assert set(mine) == set(theirs)
        for key in theirs:
            np.testing.assert_array_equal(mine[key], theirs[key], err_msg=key)
    for name in ("params", "state"):
        for a, b in zip(getattr(loaded, name), getattr(saved, name), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
    assert (loaded.dims, loaded.rules, loaded.info) == (saved.dims, saved.rules, saved.info)


def test_only_numbered_arrays_are_layers(tmp_path: Path) -> None:
    saved = run(("loss",))
    saved.save(tmp_path / "run")
    with xarray.open_dataset(tmp_path / "run.nc", engine="h5netcdf") as dataset:
        odd = dataset.load().assign({"params.²": ((), 1.0)})
    odd.to_netcdf(tmp_path / "odd.nc", engine="h5netcdf")
    assert len(Trajectory.load(tmp_path / "odd").params) == len(saved.params)


def test_probes_are_found_under_their_names_in_labelled_arrays() -> None:
    labelled = ensemble(("loss", "time")).to_xarray()
    assert labelled["loss"].dims == ("member", "time")
    assert labelled["matrix"].dims == ("member", "time", "row", "column")
    assert labelled["probe.time"].dims == ("member", "time", "mode")
    assert labelled["params.2"].dims == ("member", "width.2", "width.1")


@pytest.mark.parametrize("name", ["run", "lam-0.5", "lam-0.5.nc", "lam-0.5.json", "a.b.c"])
def test_a_path_means_the_same_file_to_save_and_load(name: str, tmp_path: Path) -> None:
    written = run(("loss",)).save(tmp_path / name)
    stem = name.removesuffix(".nc").removesuffix(".json")
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"{stem}.json", f"{stem}.nc"]
    assert written == tmp_path / f"{stem}.nc"
    for path in (tmp_path / name, written, tmp_path / stem):
        assert Trajectory.load(path).times.tolist() == [0.0, 0.5, 2.0]


def test_json_says_whether_all_is_finished() -> None:
    assert run(("loss",)).to_json()["finished"] is True
    assert ensemble(("loss",)).to_json()["finished"] is False


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.nc"):
        Trajectory.load(tmp_path / "none")
    (tmp_path / "bad.nc").write_text("words")
    with pytest.raises(ValueError, match=r"cannot read .*bad\.nc: it is not NetCDF"):
        Trajectory.load(tmp_path / "bad")


def test_any_number_may_save_one_path_at_once(tmp_path: Path) -> None:
    together, path = threading.Barrier(4), tmp_path / "run"
    saved = run(("loss",))

    def save(_: int) -> None:
        for _ in range(3):
            together.wait(300)
            saved.save(path)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save, range(4)))
    np.testing.assert_array_equal(Trajectory.load(path)["loss"], saved["loss"])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.json", "run.nc"]


def test_what_cannot_be_saved_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(("loss",)).save(tmp_path / "run")
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    monkeypatch.setattr(Trajectory, "to_json", lambda self: {"problem": object()})  # no JSON
    with pytest.raises(TypeError):
        run(("loss", "other")).save(tmp_path / "run")
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
