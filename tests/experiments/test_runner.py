"""Runs are stored one by one, taken from the store, and the same wherever they are made."""

import dataclasses
import errno
import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from deeplinear.core import _machine
from deeplinear.experiments import (
    CheckTask,
    CorruptRecord,
    Member,
    Record,
    Store,
    Task,
    Tick,
    _runner,
    collect,
    experiment,
    grid,
    run as run_tasks,
    run_checks,
    task_of,
)

NAME = "completion/fig2"
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00"
"""When a run began: to the microsecond, so that the latest of several can be told."""

"""An experiment by formula: milliseconds once it is compiled."""

SMALL = {"ms": "10", "depths": "2,3"}
"""One panel with few curves: drawing takes longer than computing."""


def run(members: list[Task], store: Store, *, formats: tuple[str, ...] = (), **settings: Any) -> Sequence[Member]:
    """Without a picture, unless one is asked for."""
    return run_tasks(members, store, formats=formats, **settings)


def tasks(values: str) -> list[Task]:
    chosen = experiment(NAME)
    return [task_of(NAME, spec) for spec in grid(chosen.preset("quick"), {"value": values, **SMALL}, NAME)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="module")
def one_and_two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Sequence[Member], list[Tick]]:
    """A store with members 1 and 2, what running them gave, and what was told meanwhile. Others may be added to it."""
    store, ticks = Store(tmp_path_factory.mktemp("runs") / "store"), []
    return store, run(tasks("1,2"), store, formats=("svg",), progress=ticks.append), ticks


def test_what_is_stored_is_not_run_again(one_and_two: tuple[Store, Sequence[Member], list[Tick]]) -> None:
    store, first, ticks = one_and_two
    assert [m.status for m in first] == ["completed", "completed"]
    assert ticks[-1].done == ticks[-1].members == 2 and ticks[-1].rate > 0
    second = run(tasks("2,3,1"), store)
    assert [m.status for m in second] == ["stored", "completed", "stored"]
    assert [m.status for m in run(tasks("3"), store, again=True)] == ["completed"]
    record = first[0].record
    assert record is not None
    assert set(record.content["files"]) == {"data.nc", "figure.svg"}
    assert record.content["environment"]["versions"]["jax"] and record.content["timing"]["seconds"] > 0
    assert re.fullmatch(MOMENT, record.content["timing"]["started"])
    assert record.content["spec"]["value"] == 1.0 and all(claim.unjudged for claim in record.claims)
    assert "sigma_2" in record.dataset()


def test_damage_is_reported_and_run_again(store: Store) -> None:
    (member,) = run(tasks("1"), store)
    assert member.record is not None
    path = member.record.path / "data.nc"
    path.write_bytes(path.read_bytes()[:-1])
    (again,) = run(tasks("1"), store)
    assert again.status == "completed" and "damaged" in again.reason
    assert run(tasks("1"), store)[0].status == "stored"


def test_a_member_that_fails_is_not_stored_and_stops_no_other(store: Store) -> None:
    good = tasks("1,2")
    bad = Task(NAME, {**good[0].spec, "blocks": 0}, "bad")
    seen: list[Member] = []
    settled = run([good[0], bad, good[1]], store, report=seen.append)
    assert [m.status for m in settled] == ["completed", "failed", "completed"] and len(seen) == 3
    assert "blocks must be at least 2" in settled[1].reason
    assert store.find("experiment", NAME, "bad") is None


def numbers(settled: Sequence[Member]) -> list[np.ndarray]:
    return [m.record.dataset()["sigma_2"].to_numpy() for m in settled if m.record is not None]


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["processes", "dask"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_every_executor_gives_the_same_numbers(
    one_and_two: tuple[Store, Sequence[Member], list[Tick]],
    store: Store,
    executor: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Workers find what this process has compiled.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(jax.config.jax_compilation_cache_dir))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    here = numbers(one_and_two[1])
    there = numbers(run(tasks("1,2"), store, executor=executor, workers=1))
    assert len(here) == len(there) == 2
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one, other)
    gc.collect()  # What the executor leaves open is found here, where its warnings are expected, not in later tests.


def test_a_full_disk_loses_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third member cannot be written: the two before it are there, nothing of it is, and the rest can go on."""
    written = []
    real = os.fsync

    def fsync(file: int) -> None:
        written.append(file)
        if len(written) > 4:  # two files a member
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        run(tasks("1,2,3,4"), store)
    monkeypatch.undo()
    assert sum(isinstance(record, Record) for record in store.records("experiment")) == 2
    assert list((store.path / "parts").iterdir()) == []
    assert [m.status for m in run(tasks("1,2,3"), store)] == ["stored", "stored", "completed"]


def test_two_sweeps_at_once_leave_one_record_each(store: Store) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: run(tasks("1,2,3"), store), range(2)))
    assert all(member.status in ("completed", "stored") for settled in both for member in settled)
    assert len(store.keys("experiment", NAME)) == 3
    assert all(isinstance(record, Record) for record in store.records("experiment"))


def test_many_stored_members_are_taken_by_name_and_checked_when_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (member,) = run(tasks("1"), store)
    assert member.record is not None and member.record.loaded is None and member.record.content["spec"]["value"] == 1.0
    path = member.record.path / "data.nc"
    path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setattr(_runner, "CHECKED", 0)
    assert [m.status for m in run(tasks("1"), store)] == ["stored"]
    with pytest.raises(CorruptRecord, match="not what was written"):
        collect(tasks("1"), store, ("value",))


def test_a_worker_elsewhere_makes_no_folder_of_the_store(tmp_path: Path) -> None:
    there = tmp_path / "of another machine"
    assert _runner._work(tasks("1")[0], root=str(there), formats=()).files and not there.exists()


def test_collect_joins_the_members(one_and_two: tuple[Store, Sequence[Member], list[Tick]]) -> None:
    store = one_and_two[0]
    joined, missing = collect(tasks("1,2,6"), store, ("value",))
    assert missing == 1 and joined.sizes["member"] == 2
    np.testing.assert_array_equal(joined["spec.value"], [1.0, 2.0])
    with pytest.raises(ValueError, match="None of these members"):
        collect(tasks("7"), store, ("value",))


def test_members_of_their_own_times_are_collected_by_position(store: Store) -> None:
    import xarray

    for key, times in (("a", [0.0, 1.0]), ("b", [0.0, 2.0, 3.0])):
        data = xarray.Dataset({"loss": ("time", times)}, {"time": times})
        path = store.path / f"{key}.nc"
        path.parent.mkdir(exist_ok=True)
        data.to_netcdf(path, engine="h5netcdf")
        store.put("experiment", NAME, key, {}, {"data.nc": path.read_bytes()})
    joined, _ = collect([Task(NAME, {"x": 1}, "a"), Task(NAME, {"x": 2}, "b")], store, ("x",))
    np.testing.assert_array_equal(joined["loss"], [[0, 1, np.nan], [0, 2, 3]])
    np.testing.assert_array_equal(joined["time.value"], joined["loss"])


def test_outcomes_of_checks_are_stored(store: Store) -> None:
    name = "completion/lemmas-d1-d2-d5"  # of algebra, without a flow
    ((task, record),) = run_checks([CheckTask(name, 2, 0)], store)
    assert isinstance(record, Record) and record.content["status"] in ("holds", "erratum")
    found = store.find("check", name, task.key)
    assert found is not None and found.content["instances"] == 2
    assert CheckTask(name, 2, 1).key != task.key
    assert re.fullmatch(MOMENT, record.content["timing"]["started"])


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells the mappings of a process")
def test_work_makes_room_before_each_task(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[bool] = []
    monkeypatch.setattr(_machine, "FULL", 0.0)
    monkeypatch.setattr(_machine, "drop_programs", lambda: dropped.append(True))
    assert [m.status for m in run(tasks("1,2"), store)] == ["completed", "completed"] and len(dropped) == 2
    ((_, record),) = run_checks([CheckTask("completion/lemmas-d1-d2-d5", 2, 0)], store)
    assert isinstance(record, Record) and len(dropped) == 3


# --- Kills and interrupts ---------------------------------------------------------------------------------------------

HANG = 300.0
"""Seconds after which a program that is waited for is taken to hang."""

SWEEP = ["experiment", "sweep", NAME, "value=" + ",".join(map(str, range(1, 200))), "--json"]
SWEEP += [f"{name}={value}" for name, value in SMALL.items()]


def begin(store: Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "deeplinear.cli", *SWEEP, "--store", str(store), *more]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def completed(store: Path) -> int:
    return len(list((store / "experiments").glob("*/*/*/record.json")))


def wait_for(store: Path, count: int, process: subprocess.Popen) -> None:
    limit = time.monotonic() + HANG
    while completed(store) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Kill -9 in the middle: every record there is whole, and only the member in flight is lost."""
    folder = tmp_path / "store"
    with begin(folder) as process:
        wait_for(folder, 2, process)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    kept = completed(folder)
    assert kept >= 2
    assert all(isinstance(record, Record) for record in Store(folder).records("experiment"))
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("experiments/*/*/*/record.json")}
    settled = run(tasks(",".join(str(k) for k in range(1, kept + 2))), Store(folder))
    assert [member.status for member in settled] == ["stored"] * kept + ["completed"]
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


@pytest.mark.slow
@pytest.mark.parametrize(("number", "more"), [("SIGINT", ()), ("SIGTERM", ("--executor", "processes"))])
def test_an_interrupted_sweep_ends_cleanly(tmp_path: Path, number: str, more: tuple[str, ...]) -> None:
    """Ctrl-C at a terminal, and a batch scheduler, which tells every process of the job."""
    folder = tmp_path / "store"
    with begin(folder, *more) as process:
        wait_for(folder, 2, process)
        os.killpg(process.pid, getattr(signal, number))
        try:
            out, err = process.communicate(timeout=HANG)
        finally:
            process.kill()
    assert process.returncode == 128 + getattr(signal, number), err
    told = json.loads(out)
    assert told["exit_code"] == process.returncode and told["amounts"]["failed"] == 0
    assert told["ok"] is False and len(told["members"]) >= 2
    assert completed(folder) - len(told["members"]) in (0, 1)  # the signal may come when one is stored, not yet counted
    assert "the same command goes on" in err and "Traceback" not in err


def test_specs_of_all_presets_survive_the_journey() -> None:
    """What a worker gets is the spec that was asked for."""
    from deeplinear.experiments import experiments, from_plain

    for one in experiments():
        assert {"quick", "paper"} <= set(one.presets)
        for spec in one.presets.values():
            task = json.loads(json.dumps(dataclasses.asdict(task_of(one.id, spec))))
            assert from_plain(one.kind, task["spec"]) == spec and one.key(spec) == task["key"]
