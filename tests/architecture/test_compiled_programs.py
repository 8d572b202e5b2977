"""Where programs keep what they compile, and how the folder stays small."""

import os
from pathlib import Path

import pytest

import deeplinear._about as about


def test_the_folder_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(about.COMPILED, str(tmp_path))
    folder = about.compiled_folder()
    assert folder is not None and folder.parent == tmp_path
    monkeypatch.setenv(about.COMPILED, "OFF")
    assert about.compiled_folder() is None
    monkeypatch.delenv(about.COMPILED)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert about.compiled_folder() == tmp_path / "cache" / "deeplinear" / "compiled" / folder.name


def test_those_used_longest_ago_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(about, "MOST_COMPILED", 25)
    (tmp_path / "folder").mkdir()
    for age, name in enumerate(("new", "middle", "old", "oldest")):
        (tmp_path / name).write_bytes(b"x" * 10)
        os.utime(tmp_path / name, (1e9 - age, 1e9))
    about._tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "middle", "new"]
