"""The store: whole or not at all, and nothing damaged is read."""

import json
import os
import shutil
from pathlib import Path

import pytest

from deeplinear.experiments import Claim, CorruptRecord, Record, Store

FILES = {"data.nc": b"numbers", "figure.svg": b"<svg/>"}
CLAIM = {"statement": "small", "measured": 0.5, "expected": "at most 1", "holds": True, "note": ""}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def put(store: Store, key: str = "k1") -> Record:
    return store.put("experiment", "paper/fig", key, {"claims": [CLAIM], "spec": {"a": 1}}, FILES)


def test_what_is_put_is_found(store: Store) -> None:
    assert store.find("experiment", "paper/fig", "k1") is None
    put(store)
    record = store.find("experiment", "paper/fig", "k1")
    assert record is not None and record.file("data.nc") == b"numbers"
    assert record.claims == (Claim("small", 0.5, "at most 1", True),)
    assert record.content["spec"] == {"a": 1}
    assert [r.key for r in store.records("experiment") if isinstance(r, Record)] == ["k1"]
    assert list((store.path / "parts").iterdir()) == []
    with pytest.raises(FileNotFoundError, match="no file 'x'"):
        record.file("x")


def test_names_are_told_without_reading(store: Store) -> None:
    assert store.keys("experiment", "paper/fig") == set() and store.begun() == set()
    record = put(store)
    assert store.keys("experiment", "paper/fig") == {"k1"}
    light = store.record("experiment", "paper/fig", "k1")
    assert light == record == record.light and light.loaded is None and light.content == record.content
    edit(record.path / "record.json")
    assert store.keys("experiment", "paper/fig") == {"k1"}
    with pytest.raises(CorruptRecord, match="its digest differs"):
        _ = light.content
    store.scratch("k2").mkdir(parents=True)
    assert store.begun() == {"k2"}


def test_a_folder_can_be_copied_and_opened_anywhere(store: Store, tmp_path: Path) -> None:
    copied = shutil.copytree(put(store).path, tmp_path / "elsewhere")
    record = Store.open_record(copied)
    record.verify()
    assert record.id == "paper/fig" and record.file("figure.svg") == b"<svg/>"


def flip(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def edit(path: Path) -> None:
    path.write_text(path.read_text().replace('"a": 1', '"a": 2'))


DAMAGE = {
    "a changed byte": lambda folder: flip(folder / "data.nc"),
    "a cut file": lambda folder: (folder / "data.nc").write_bytes(b""),
    "a missing file": lambda folder: (folder / "figure.svg").unlink(),
    "an edited record": lambda folder: edit(folder / "record.json"),
    "a cut record": lambda folder: (folder / "record.json").write_text("{"),
    "a record that is none": lambda folder: (folder / "record.json").write_text("[]"),
    "no record": lambda folder: (folder / "record.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed_and_mended(store: Store, damage: str) -> None:
    DAMAGE[damage](put(store).path)
    with pytest.raises(CorruptRecord):
        store.find("experiment", "paper/fig", "k1")
    listed = list(store.records("experiment"))
    assert [type(r) for r in listed] == [CorruptRecord]
    put(store)
    found = store.find("experiment", "paper/fig", "k1")
    assert found is not None and found.file("data.nc") == b"numbers"


def test_a_record_in_a_wrong_place_or_of_another_format_is_refused(store: Store) -> None:
    record = put(store)
    os.rename(record.path, record.path.with_name("k2"))
    with pytest.raises(CorruptRecord, match="not what its place says"):
        store.find("experiment", "paper/fig", "k2")
    content = json.loads((record.path.with_name("k2") / "record.json").read_text())
    assert content["format"] == 1


def test_an_interrupted_write_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        put(store)
    monkeypatch.undo()
    assert store.find("experiment", "paper/fig", "k1") is None
    assert list(store.records("experiment")) == []


def test_writers_of_the_same_run_do_not_disturb_each_other(store: Store) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(_: int) -> int:
        for _ in range(20):
            put(store)
            assert store.find("experiment", "paper/fig", "k1") is not None
        return 1

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(work, range(3))) == 3


def test_what_killed_writers_left_is_removed_and_nothing_else(store: Store) -> None:
    left, recent, foreign = (store.path / "parts" / name for name in ("0" * 32, "1" * 32, "engine"))
    for part in (left, recent, foreign):
        part.mkdir(parents=True)
    for part in (left, foreign):
        os.utime(part, (0, 0))
    store.tidy()
    assert not left.exists() and recent.exists() and foreign.exists()


@pytest.mark.parametrize("changed", [None, "figure.svg", "notes.txt"])
def test_a_folder_that_is_replaced_is_kept_unless_it_is_what_was_written(store: Store, changed: str | None) -> None:
    folder = put(store).path
    if changed is not None:
        (folder / changed).write_text("mine")
    put(store)
    kept = list((store.path / "replaced").rglob(changed or "*"))
    assert [path.read_text() for path in kept] == ([] if changed is None else ["mine"])
    found = store.find("experiment", "paper/fig", "k1")
    assert found is not None and {path.name for path in found.path.iterdir()} == {
        "record.json",
        *found.content["files"],
    }


def test_a_file_in_the_place_of_a_run_is_noticed_and_replaced(store: Store) -> None:
    folder = put(store).path
    shutil.rmtree(folder)
    folder.write_text("not a folder")
    assert [type(r) for r in store.records("experiment")] == [CorruptRecord]
    put(store)
    assert store.find("experiment", "paper/fig", "k1") is not None


def test_scratch_goes_when_it_is_cleared(store: Store) -> None:
    store.scratch("k1").mkdir(parents=True)
    (store.scratch("k1") / "x").touch()
    store.clear_scratch("k1")
    assert not (store.path / "scratch").exists()
