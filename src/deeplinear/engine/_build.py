"""Compile the engine: one shared library for each instruction set, with the machine's C++ compiler.

Run as `python -m deeplinear.engine`, and by the build of the package. A machine without a compiler has no engine;
everything runs as programs of XLA there, and `dln doctor` says so.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE / "source" / "kernel.cpp"

FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")

X86 = {
    8: ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"),
    4: ("-mavx2", "-mfma"),
    2: (),
}
"""Flags by the numbers that a register holds."""


def variants(machine: str | None = None) -> dict[int, tuple[str, ...]]:
    """Flags of the libraries for a machine, by the numbers that a register holds."""
    name = (machine or platform.machine()).lower()
    return X86 if name in ("x86_64", "amd64") else {2: ()}


def library_path(lanes: int, folder: Path = HERE) -> Path:
    """File of the library for registers of so many numbers."""
    return folder / f"engine_{lanes}.{'dll' if sys.platform == 'win32' else 'so'}"


def compilers() -> list[list[str]]:
    """Commands that may compile C++: what `CXX` names, those on the path, and the one of the package `ziglang`."""
    named = os.environ.get("CXX", "").split()
    found = [[path] for name in ("c++", "g++", "clang++") if (path := shutil.which(name))]
    try:
        import ziglang  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        return ([named] if named else []) + found
    return ([named] if named else []) + found + [[sys.executable, "-m", "ziglang", "c++"]]


def build(folder: Path = HERE, extra: Sequence[str] = (), only: Collection[int] | None = None) -> list[Path]:
    """Compile all libraries for this machine into a folder.

    Args:
        folder: Where to put them.
        extra: Further flags of the compiler, such as `-fsanitize=address`.
        only: Numbers that a register holds, to compile for some instruction sets only.

    Returns:
        The files; none where no compiler works.
    """
    for command in compilers():
        with tempfile.TemporaryDirectory(dir=folder) as room:
            made, wanted = [], {n: flags for n, flags in variants().items() if only is None or n in only}
            for lanes, flags in wanted.items():
                path = library_path(lanes, Path(room))
                line = [*command, *FLAGS, *flags, *extra, f"-DLANES={lanes}", str(SOURCE), "-o", str(path)]
                done = subprocess.run(line, capture_output=True, text=True, check=False)
                if done.returncode:
                    print(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}", file=sys.stderr)  # noqa: T201
                    break
                made.append(path)
            if len(made) == len(wanted):
                return [path.replace(library_path(lanes, folder)) for lanes, path in zip(wanted, made, strict=True)]
    return []
