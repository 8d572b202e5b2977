"""Compiling the engine: libraries that load, refusals where it is missing, and the hook that installs it."""

import ctypes
import importlib.util
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import pytest

from architecture.source import ROOT
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.dynamics._native import refused_run
from deeplinear.engine import _build, _library
from deeplinear.models import DeepLinear, Problem, SquaredDistance

OWN = min(_build.variants())
"""The library that every machine of this kind can load."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the libraries of this machine, unoptimised since that compiles sooner."""
    if not _build.compilers():
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("engine")
    made = _build.build(folder, ["-O0"])
    assert made == [_build.library_path(lanes, folder) for lanes in _build.variants()]
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in made)
    return folder


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Forget which library was found, before and after."""
    _library.missing.cache_clear()
    _library.library.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    _library.missing.cache_clear()
    _library.library.cache_clear()


def widest() -> int:
    """Numbers in the widest registers of this machine, as Linux lists its features."""
    listed = Path("/proc/cpuinfo")
    if platform.machine() not in ("x86_64", "AMD64"):
        return 2
    if not listed.exists():
        pytest.skip("no list of the processor's features")
    features = set(re.findall(r"^flags\s*:(.*)", listed.read_text(), flags=re.MULTILINE)[0].split())
    if {"avx512f", "avx512dq", "avx512vl", "fma"} <= features:
        return 8
    return 4 if {"avx2", "fma"} <= features else 2


def look_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Why the engine cannot be used if its libraries are in another folder."""
    monkeypatch.setattr(_library, "library_path", lambda lanes: _build.library_path(lanes, folder))
    monkeypatch.setattr(_library, "is_current", lambda: _build.is_current(folder))
    return _library.missing()


# --- Libraries --------------------------------------------------------------------------------------------------------


def test_what_is_compiled_loads_and_knows_its_sources(compiled: Path) -> None:
    library = ctypes.CDLL(str(_build.library_path(OWN, compiled)))
    assert library.engine_lanes() == OWN
    assert library.engine_widest() == widest()
    library.engine_sources.restype = ctypes.c_char_p
    assert library.engine_sources().decode() == _build.fingerprint()
    assert _build.is_current(compiled)


def test_the_engine_is_found_where_it_was_compiled(compiled: Path, fresh: pytest.MonkeyPatch) -> None:
    assert look_in(compiled, fresh) is None
    assert _library.lanes() in _build.variants()


def test_without_libraries_the_native_engine_is_refused_by_name(tmp_path: Path, fresh: pytest.MonkeyPatch) -> None:
    assert look_in(tmp_path, fresh) == "the engine is not compiled on this machine"
    problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(jnp.full((1, 1), 2.0)))
    layer = jnp.full((1, 1), 0.5)
    assert refused_run(problem, GradientFlow(), ()) == "the engine is not compiled on this machine"
    with pytest.raises(ValueError, match="cannot move this run: the engine is not compiled"):
        simulate(problem, (layer, layer), times=[1.0], engine="native")
    assert not _library.available() and _library.lanes() == 0


def test_libraries_of_other_sources_are_not_used(tmp_path: Path, fresh: pytest.MonkeyPatch) -> None:
    """Their structures may differ from those that Python hands over."""
    for lanes in _build.variants():
        _build.library_path(lanes, tmp_path).write_bytes(b"an older engine")
    assert look_in(tmp_path, fresh) == "the engine was compiled from other sources"


def test_a_library_that_does_not_load_is_named(tmp_path: Path, fresh: pytest.MonkeyPatch) -> None:
    for lanes in _build.variants():
        _build.library_path(lanes, tmp_path).write_text(_build.fingerprint())
    why = look_in(tmp_path, fresh)
    assert why is not None and why.startswith("the engine cannot be loaded (") and f"engine_{OWN}" in why


# --- Compilers --------------------------------------------------------------------------------------------------------


def test_the_compiler_that_is_named_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "ccache g++-14")
    assert _build.compilers()[0] == ["ccache", "g++-14"]


def test_every_compiler_is_tried_and_its_failure_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is not there, and one that fails; what was in the folder stays."""
    broken = [sys.executable, "-c", "import sys; sys.exit('no such language')"]
    monkeypatch.setattr(_build, "compilers", lambda target: [[str(tmp_path / "none")], broken])
    old = _build.library_path(OWN, tmp_path)
    old.write_bytes(b"old")
    assert _build.build(tmp_path) == []
    assert list(tmp_path.iterdir()) == [old] and old.read_bytes() == b"old"
    text = capsys.readouterr().err
    assert "none failed" in text and "no such language" in text


def commands(monkeypatch: pytest.MonkeyPatch, folder: Path, target: _build.Target | None) -> list[list[str]]:
    """Command lines of a build by a compiler that writes its output and nothing else."""
    lines: list[list[str]] = []

    def run(line: list[str], **_: Any) -> subprocess.CompletedProcess:
        lines.append(line)
        Path(line[line.index("-o") + 1]).touch()
        return subprocess.CompletedProcess(line, 0, "", "")

    monkeypatch.setattr(_build.subprocess, "run", run)
    monkeypatch.setattr(_build.importlib.util, "find_spec", lambda name: name)
    assert len(_build.build(folder, target=target)) == len(lines)
    return lines


@pytest.mark.parametrize("tag", _build.TARGETS)
def test_other_platforms_are_compiled_by_ziglang(tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = _build.TARGETS[tag]
    lines = commands(monkeypatch, tmp_path, target)
    assert len(lines) == (3 if tag.endswith(("x86_64", "amd64")) else 1)
    for line in lines:
        assert line[1:6] == ["-m", "ziglang", "c++", "-target", target.triple]
        assert ("-fPIC" in line) != tag.startswith("win")
    ending = {".dll"} if tag.startswith("win") else {".so"}
    assert {path.suffix for path in tmp_path.iterdir()} == ending


def test_ziglang_compiles_for_every_machine_of_this_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself it would use all instructions of the machine it runs on."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(_build.shutil, "which", lambda name: None)
    for line in commands(monkeypatch, tmp_path, None):
        assert line[1:5] == ["-m", "ziglang", "c++", "-mcpu=baseline"]


# --- The hook ---------------------------------------------------------------------------------------------------------


class Interface:
    """What the hook needs of Hatch."""

    def __init__(self, root: Path) -> None:
        self.root, self.target_name, self.app, self.said = str(root), "wheel", self, []

    def display_warning(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hook with a stand-in for Hatch, which is not installed with the package, and for the compiler."""
    interface, tags = ModuleType("interface"), ModuleType("tags")
    interface.BuildHookInterface = Interface
    tags.platform_tags = lambda: iter(["manylinux_2_17_x86_64", "musllinux_1_2_x86_64", "linux_x86_64"])
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    monkeypatch.setitem(sys.modules, "packaging.tags", tags)
    for name in ("DEEPLINEAR_ENGINE", "DEEPLINEAR_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    spec = importlib.util.spec_from_file_location("hatch_build_under_test", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    real = module.builder(str(ROOT))
    real.compilers = lambda target=None: []
    module.builder = lambda root: real
    module.real = real
    return module


def data() -> dict[str, Any]:
    """What Hatch hands to a hook."""
    return {"pure_python": True, "force_include": {}}


def works(folder: Path, target: Any = None) -> list[Path]:
    """A compiler that works."""
    path = folder / ("engine_2.dll" if target and target.system == "win32" else "engine_2.so")
    path.touch()
    return [path]


def test_without_a_compiler_the_wheel_is_pure_and_says_so(hook: Any) -> None:
    maker, build_data = hook.EngineHook(ROOT), data()
    maker.initialize("standard", build_data)
    assert build_data == data()
    assert "without its native engine" in maker.said[0] and "pip install ziglang" in maker.said[0]
    assert maker.dependencies() == []
    maker.finalize("standard", build_data, "")
    assert not Path(maker.room).exists()


def test_a_compiled_wheel_holds_the_libraries_and_names_its_platform(hook: Any) -> None:
    hook.real.build = works
    maker, build_data = hook.EngineHook(ROOT), data()
    maker.initialize("standard", build_data)
    assert list(build_data["force_include"].values()) == ["deeplinear/engine/engine_2.so"]
    assert not build_data["pure_python"] and build_data["tag"] == "py3-none-linux_x86_64"
    assert maker.said == []
    assert ROOT not in Path(next(iter(build_data["force_include"]))).parents


def test_a_wheel_for_another_platform(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPLINEAR_PLATFORM", "win_amd64")
    with pytest.raises(RuntimeError, match="engine is required"):
        hook.EngineHook(ROOT).initialize("standard", data())
    hook.real.build = works
    maker, build_data = hook.EngineHook(ROOT), data()
    assert maker.dependencies() == ["ziglang"]
    maker.initialize("standard", build_data)
    assert build_data["tag"] == "py3-none-win_amd64"
    assert list(build_data["force_include"].values()) == ["deeplinear/engine/engine_2.dll"]
    monkeypatch.setenv("DEEPLINEAR_PLATFORM", "win32")
    with pytest.raises(ValueError, match="win_amd64"):
        hook.EngineHook(ROOT).initialize("standard", data())


def test_an_editable_installation_compiles_beside_the_sources_once(hook: Any) -> None:
    asked = []
    hook.real.build = lambda: asked.append(1) or [Path("engine_2.so")]
    for current in (False, True):
        hook.real.is_current = lambda current=current: current
        build_data = data()
        hook.EngineHook(ROOT).initialize("editable", build_data)
        assert build_data == data()
    assert asked == [1]


def test_the_setting_requires_or_skips(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPLINEAR_ENGINE", "require")
    assert hook.EngineHook(ROOT).dependencies() == ["ziglang"]
    for version in ("standard", "editable"):
        hook.real.is_current = lambda: False
        with pytest.raises(RuntimeError, match="engine is required"):
            hook.EngineHook(ROOT).initialize(version, data())
    hook.real.build = works
    monkeypatch.setenv("DEEPLINEAR_ENGINE", "skip")
    build_data = data()
    hook.EngineHook(ROOT).initialize("standard", build_data)
    assert build_data == data() and hook.EngineHook(ROOT).dependencies() == []
    monkeypatch.setenv("DEEPLINEAR_ENGINE", "yes")
    with pytest.raises(ValueError, match="'require' or 'skip'"):
        hook.EngineHook(ROOT).initialize("standard", data())


def test_the_hook_loads_the_standard_library_only() -> None:
    """NumPy and the package are not there while the package is built."""
    path = ROOT / "src" / "deeplinear" / "engine" / "_build.py"
    code = (
        f"import runpy, sys; runpy.run_path({str(path)!r}); print({{'numpy', 'jax', 'deeplinear'}} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "set()", run.stderr
