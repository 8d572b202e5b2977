"""Files that are there as a whole or not at all."""

import os
from pathlib import Path

import pytest

from deeplinear.core import replacing


def test_a_file_is_replaced_once_all_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, order, synced, renamed = tmp_path / "a" / "value.txt", [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (order.append("disk"), synced(number)))
    monkeypatch.setattr(os, "replace", lambda *names: (order.append("name"), renamed(*names)))
    for text in ("first", "second"):
        with replacing(path) as part:
            part.write_text(text)
            assert part.parent == path.parent and path.exists() == (text == "second")
        assert path.read_text() == text and list(path.parent.iterdir()) == [path]
    assert order == ["disk", "name"] * 2


def test_two_writers_of_one_path(tmp_path: Path) -> None:
    path = tmp_path / "value.txt"
    with replacing(path) as last:
        last.write_text("last")
        with replacing(path) as first:
            first.write_text("first")
        assert path.read_text() == "first"
    assert path.read_text() == "last" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("begun", [True, False])
def test_what_fails_leaves_what_was_there(tmp_path: Path, error: type[BaseException], begun: bool) -> None:
    def write(path: Path) -> None:
        with replacing(path) as part:
            if begun:
                part.write_text("half")
            raise error

    path = tmp_path / "value.txt"
    path.write_text("before")
    with pytest.raises(error):
        write(path)
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        with replacing(path) as part:
            part.write_text("a file")
            path.mkdir()

    with pytest.raises(OSError, match="directory"):
        write(tmp_path / "a")
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
