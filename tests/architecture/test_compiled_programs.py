"""Where programs keep what they compile, and how the folder stays small."""

import os
import subprocess
import sys
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


def test_the_folder_is_looked_through_seldom(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(about, "MOST_COMPILED", 25)
    looked = []
    monkeypatch.setattr(about, "_tidy", looked.append)
    about._tidy_at_times(tmp_path)
    about._tidy_at_times(tmp_path)
    assert looked == [tmp_path]
    os.utime(tmp_path / about.TIDIED, (1e9, 1e9))
    about._tidy_at_times(tmp_path)
    assert looked == [tmp_path, tmp_path]


def test_empty_files_of_processes_that_were_ended_are_removed(tmp_path: Path) -> None:
    """JAX would take one for a program that cannot be read, and never write it anew."""
    for name in ("ended", "being written", about.TIDIED):
        (tmp_path / name).touch()
    for name in ("ended", about.TIDIED):
        os.utime(tmp_path / name, (1e9, 1e9))
    about._tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["being written", about.TIDIED]


COMPUTE = """
import sys
import deeplinear, deeplinear._about
if sys.argv[1:] == ["dln"]:
    deeplinear._about.prepare()
    assert "jax" not in sys.modules
else:
    deeplinear.use_64_bit()
kept = deeplinear.keep_programs(*sys.argv[2:]) if sys.argv[1:] != ["nowhere"] else None
import jax
assert jax.config.jax_enable_x64
assert float(jax.jit(lambda x: 2 * x + 1)(3.0)) == 7.0
print(kept)
"""


def test_every_program_is_kept_where_that_is_asked_for_and_nowhere_else(tmp_path: Path) -> None:
    """Processes that start together share a folder; a later one finds what they compiled, and writes nothing."""

    def start(*arguments: str) -> subprocess.Popen:
        own = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "DEEPLINEAR_"))}
        own |= {"JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
        command = [sys.executable, "-c", COMPUTE, *arguments]
        return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ended(process: subprocess.Popen) -> str:
        shown, said = process.communicate()
        assert (process.returncode, said) == (0, "")
        return shown.strip()

    assert ended(start("nowhere")) == "None" and list(tmp_path.iterdir()) == []
    first, second = [ended(one) for one in [start("user"), start("dln")]]
    assert first == second and Path(first).is_relative_to(tmp_path / "cache" / "deeplinear")
    programs = {path: path.stat().st_mtime_ns for path in Path(first).glob("*-cache")}
    assert any("lambda" in path.name for path in programs)  # it took milliseconds to compile
    assert ended(start("dln")) == first
    assert {path: path.stat().st_mtime_ns for path in Path(first).glob("*-cache")} == programs
    named = Path(ended(start("user", str(tmp_path / "own"))))
    assert named.parent == tmp_path / "own" and len(list(named.glob("*-cache"))) == len(programs)
