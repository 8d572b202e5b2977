"""Runs in files: sealed with a digest, and read apart where they are not."""

from pathlib import Path

import numpy as np
import pytest
import xarray

from deeplinear.core import Trajectory
from deeplinear.readers import FileError, Source, load_content, sealed, unsealed

SPIN = """
import sys
sys.path.insert(0, {folder!r})
from _child import limit
limit(1)
while True:
    pass
"""

END = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"


def saved(folder: Path) -> Path:
    """A small run in a file."""
    return Trajectory(
        times=np.array([0.0, 1.0]),
        values={"loss": np.array([1.0, 0.5])},
        dims={"loss": ()},
        params=(np.ones((2, 3)), np.ones((1, 2))),
        results=np.asarray(1),
        fired=np.asarray(0),
        rules=(),
        lengths=np.asarray(2),
        stats={"steps": 3},
        info={"horizon": float("inf")},
    ).save(folder / "run")


def test_every_changed_bit_is_refused_before_hdf5_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    opened = []
    monkeypatch.setattr("h5py.File", lambda *given, **how: opened.append(1))
    monkeypatch.setattr("deeplinear.readers._netcdf.read_apart", lambda source: opened.append(1))
    rng = np.random.default_rng(seed)
    bits = {*rng.integers(0, 8 * len(whole), 1500).tolist(), *range(8 * (len(whole) - 106), 8 * len(whole))}
    for bit in bits:
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(FileError, match=r"run\.nc: its bytes are not those that were written"):
            Trajectory.load(path)
    for cut in range(1, 106):
        with pytest.raises(FileError, match="its bytes are not those that were written"):
            unsealed(Source("load", "run.nc", whole[:-cut] if cut < 84 else whole[: -106 - 1] + whole[-106:]))
    assert opened == []


def test_other_programs_open_a_sealed_file(tmp_path: Path) -> None:
    import h5py

    path = saved(tmp_path)
    with h5py.File(path) as file:
        assert file["loss"][1] == 0.5
    with xarray.open_dataset(path, engine="h5netcdf") as found:
        np.testing.assert_array_equal(found["params.1"], np.ones((2, 3)))
        found.load().assign(more=("new", np.zeros(3))).to_netcdf(tmp_path / "own.nc", engine="h5netcdf")
    again = Trajectory.load(tmp_path / "own.nc")  # it has no seal any more, and is read apart
    assert again.info == {"horizon": float("inf")} and again.stats == {"steps": 3} and len(again.params) == 2
    np.testing.assert_array_equal(again["loss"], [1.0, 0.5])
    with h5py.File(path, "r+") as file:
        file["loss"][1] = 0.25
    np.testing.assert_array_equal(Trajectory.load(path)["loss"], [1.0, 0.25])


def test_every_kind_of_numbers_comes_back_as_it_was(tmp_path: Path) -> None:
    run = Trajectory(
        times=np.array([0.0, 1.0]),
        values={
            "loss": np.array([1.0, np.nan]),
            "rank": np.array([3, 2]),
            "whole": np.array([True, False]),
            "side": np.array([[1.5], [2.5]], np.float32),
        },
        dims={"loss": (), "rank": (), "whole": (), "side": ("row",)},
        params=(np.ones((2, 3)), np.ones((1, 2))),
        results=np.asarray(1),
        fired=np.asarray(0),
        rules=(),
        lengths=np.asarray(2),
        stats={"steps": 3, "seconds": 0.5},
        info={},
        state=(np.asarray(True), np.arange(3, dtype=np.uint32)),
    )
    path = run.save(tmp_path / "run")
    found, apart = Trajectory.load(path), load_content(Source("load", "own.nc", unsealed(Source.of(path, "load"))))
    for name, value in run.values.items():
        for again in (found[name], apart.arrays[name]):
            assert again.dtype == value.dtype
            np.testing.assert_array_equal(again, value)
    assert found.stats == run.stats and list(found.values) == list(run.values)
    assert [leaf.dtype for leaf in found.state] == [leaf.dtype for leaf in run.state]
    assert all(np.array_equal(one, other) for one, other in zip(found.state, run.state, strict=True))


def test_foreign_files_are_read_within_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = unsealed(Source.of(saved(tmp_path), "load"))
    assert whole is not None
    child = "deeplinear.readers._netcdf.CHILD"
    for content in (b"words", whole[: len(whole) // 2], whole[:8] + bytes(len(whole) - 8)):
        with pytest.raises(FileError, match=r"load: cannot read own\.nc: it is not NetCDF \("):
            load_content(Source("load", "own.nc", content))
    import deeplinear.readers

    folder = str(Path(deeplinear.readers.__file__).parent)
    (tmp_path / "spin.py").write_text(SPIN.format(folder=folder))
    (tmp_path / "end.py").write_text(END)
    monkeypatch.setattr("deeplinear.readers._netcdf.PROCESSOR_SECONDS", 1)
    for program, words in (("spin", "more than 1 s of processor time"), ("end", "ended the HDF5 library by signal 11")):
        monkeypatch.setattr(child, tmp_path / f"{program}.py")
        with pytest.raises(FileError, match=words):
            load_content(Source("load", "own.nc", whole))
    monkeypatch.setattr("deeplinear.readers._netcdf.LARGEST_FOREIGN", len(whole) - 1)
    with pytest.raises(FileError, match=rf"it has {len(whole):,} bytes, more than"):
        load_content(Source("load", "own.nc", whole))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.drop_vars("run.results"), "'run.results' is missing"),
        (lambda d: d.assign({"run.results": 99}), "codes of no outcome"),
        (lambda d: d.assign({"run.lengths": 7}), "'run.lengths' must lie between 1 and 2"),
        (lambda d: d.assign({"params.2": (("a", "b"), np.ones((1, 5)))}), "the layers do not follow one another"),
        (lambda d: d.assign({"params.2": ("a", np.ones(5))}), "parameters are not matrices"),
        (lambda d: d.assign(loss=("other", np.ones(3))), "the probe 'loss' of shape \\(3,\\) does not fit"),
        (lambda d: d.assign_attrs(dims="["), "the attribute 'dims' is missing or is not JSON"),
        (lambda d: d.assign_attrs(info="[" * 90 + "]" * 90), "nested deeper"),
        (lambda d: d.assign_attrs(rules='"x"'), "'rules' must be a list"),
        (lambda d: d.assign_attrs(deeplinear_format=1), "must be a trajectory of format 2, but its format is 1"),
    ],
)
def test_files_that_are_no_trajectory_are_refused(tmp_path: Path, change, words: str) -> None:
    from deeplinear.core import netcdf_bytes

    path = saved(tmp_path)
    dataset = Trajectory.load(path).to_xarray()
    path.write_bytes(sealed(netcdf_bytes(change(dataset))))
    with pytest.raises(FileError, match=words):
        Trajectory.load(path)
