"""Compile the engine: one shared library for each instruction set, with a C++ compiler of this machine.

Runs as `python -m deeplinear.engine`, and when the package is installed or built (`hatch_build.py` loads this file by
itself, so it imports the standard library only). Without a compiler there is no engine, and runs are moved by XLA.
"""

import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
SOURCES = HERE / "source"

ADVICE = "Install a C++ compiler or run `pip install ziglang`, then run `python -m deeplinear.engine`."
"""What to do where the engine is missing."""

FLAGS = ("-std=c++17", "-O3", "-shared", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")

X86 = {
    8: ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"),
    4: ("-mavx2", "-mfma"),
    2: (),
}
"""Flags by the numbers that a register holds."""


class Target(NamedTuple):
    """A platform to compile for, as ziglang, `platform.machine` and `sys.platform` name it."""

    triple: str
    machine: str
    system: str


TARGETS = {
    "manylinux_2_17_x86_64": Target("x86_64-linux-gnu.2.17", "x86_64", "linux"),
    "manylinux_2_17_aarch64": Target("aarch64-linux-gnu.2.17", "aarch64", "linux"),
    "macosx_11_0_arm64": Target("aarch64-macos.11.0", "arm64", "darwin"),
    "win_amd64": Target("x86_64-windows-gnu", "amd64", "win32"),
}
"""Platforms that ziglang compiles for, by the tag of their wheels. JAX has wheels for the same ones."""


def variants(machine: str | None = None) -> dict[int, tuple[str, ...]]:
    """Flags of the libraries for a machine, by the numbers that a register holds."""
    name = (machine or platform.machine()).lower()
    return X86 if name in ("x86_64", "amd64") else {2: ()}


def library_path(lanes: int, folder: Path = HERE, system: str = sys.platform) -> Path:
    """File of the library for registers of so many numbers."""
    return folder / f"engine_{lanes}.{'dll' if system == 'win32' else 'so'}"


@functools.cache
def fingerprint() -> str:
    """Hash of the sources and flags; every library carries the one it was compiled from."""
    parts = [repr((FLAGS, X86)).encode(), *(path.read_bytes() for path in sorted(SOURCES.iterdir()) if path.is_file())]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def is_current(folder: Path = HERE) -> bool:
    """Whether a folder holds all libraries for this machine, compiled from the present sources."""
    paths = [library_path(lanes, folder) for lanes in variants()]
    return all(path.exists() and fingerprint().encode() in path.read_bytes() for path in paths)


def compilers(target: Target | None = None) -> list[list[str]]:
    """Commands that may compile C++: what `CXX` names, those on the path, and the one of the package `ziglang`.

    For another platform only `ziglang` qualifies.
    """
    zig = [[sys.executable, "-m", "ziglang", "c++"]] if importlib.util.find_spec("ziglang") else []
    if target is not None:
        return [[*line, "-target", target.triple] for line in zig]
    named = shlex.split(os.environ.get("CXX", ""), posix=os.name == "posix")
    # On Windows g++ does not align vectors on the stack (GCC bug 54412).
    names = ("clang++",) if sys.platform == "win32" else ("c++", "g++", "clang++")
    found = [[path] for name in names if (path := shutil.which(name))]
    # Without a target, ziglang would use every instruction of this machine.
    return [line for line in (named, *found, *([*line, "-mcpu=baseline"] for line in zig)) if line]


def build(
    folder: Path = HERE,
    extra: Sequence[str] = (),
    target: Target | None = None,
    only: Collection[int] | None = None,
) -> list[Path]:
    """Compile all libraries for a machine into a folder; earlier ones are replaced only when all are there.

    Args:
        folder: Where to put them.
        extra: Further flags of the compiler, such as `-fsanitize=address`.
        target: Platform to compile for; by default this machine.
        only: Numbers that a register holds, to compile for some instruction sets only.

    Returns:
        The files; none where no compiler works.
    """
    every = variants(target.machine if target else None)
    flags = {lanes: line for lanes, line in every.items() if only is None or lanes in only}
    system = target.system if target else sys.platform
    common = (*FLAGS, f'-DENGINE_SOURCES="{fingerprint()}"', *(() if system == "win32" else ("-fPIC",)))
    for command in compilers(target):
        with tempfile.TemporaryDirectory(dir=folder) as room:
            made = {lanes: library_path(lanes, Path(room), system) for lanes in flags}
            lines = [
                [*command, *common, *flags[lanes], *extra, f"-DLANES={lanes}", str(SOURCES / "kernel.cpp")]
                + ["-o", str(path)]
                for lanes, path in made.items()
            ]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                failures = [text for text in pool.map(_failure, lines) if text is not None]
            if not failures:
                return [path.replace(library_path(lanes, folder, system)) for lanes, path in made.items()]
        print(f"{shlex.join(command)} failed:\n{failures[0][-2000:]}", file=sys.stderr)  # noqa: T201
    return []


def _failure(line: list[str]) -> str | None:
    """Run a compiler; what it says if it fails."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        return str(error)
    return done.stderr or f"exit status {done.returncode}" if done.returncode else None
