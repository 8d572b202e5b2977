"""What every layer may know: the version, what programs switch on in JAX, and how a misspelt name is answered.

Imports nothing heavy.

The package never changes a setting of JAX by itself. Programs call `use_64_bit` and `keep_programs`, the command line
calls `prepare`, workers call `use_64_bit`.
"""

import contextlib
import difflib
import hashlib
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

COMPILED = "DEEPLINEAR_COMPILED"
"""Variable of the environment: folder of compiled programs, or `off`."""

NONE = "none"
"""How an empty list is written, for settings that are lists and may be empty."""

MOST_COMPILED = 500_000_000
"""Bytes of compiled programs that are kept; beyond that, those used longest ago are removed."""

TIDIED = "tidied"
"""File whose age says when the folder of compiled programs was last looked through."""

TIDY_SECONDS = 3600.0
"""Age of that file from which the folder is looked through again: this takes 0.3 s where there are 30,000 programs."""

WRITING_SECONDS = 60.0
"""Age from which an empty file is none that a process is about to fill."""

KEEP_ALL = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}
"""Settings of JAX with which it keeps every program; by default it keeps those that took a second to compile."""


def near_name(name: str, options: Iterable[str]) -> str:
    """Sentence that suggests the option closest to a misspelt name and lists them all.

    Example:
        >>> near_name("adma", ["adam", "flow"])
        "Did you mean 'adam'? Known: adam, flow."
    """
    options = list(options)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    guess = f"Did you mean '{close[0]}'? " if close else ""
    return f"{guess}Known: {', '.join(options)}."


def named_figure(name: str, sources: Mapping[str, str]) -> str:
    """Sentence that says which id stands for the figure of an unknown id; empty if none does.

    Args:
        name: The unknown id, `paper/figN`.
        sources: What is known, by id: the places in the papers.

    Example:
        >>> named_figure("paper/fig3", {"paper/fig2": "Figures 2 and 3"})
        "'paper/fig2' makes Figures 2 and 3; its presets and notes say how. "
    """
    paper, _, number = name.rpartition("/fig")
    for one, source in sources.items():
        if source.startswith("Figures ") and one.rpartition("/")[0] == paper and number in re.findall(r"\d+", source):
            return f"'{one}' makes {source}; its presets and notes say how. "
    return ""


def written(value: Any) -> str:
    """A setting of an experiment as it is written on the command line.

    Example:
        >>> written([[1, 2], [3, 4]]), written([0.5, 1.0]), written([]), written(True)
        ('1,2;3,4', '0.5,1.0', 'none', 'true')
    """
    if not isinstance(value, list | tuple):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return (";" if value and isinstance(value[0], list | tuple) else ",").join(map(written, value)) or NONE


def read_float(text: str) -> float:
    """The number a text says, `inf` and `nan` included; `ValueError` for what only Python takes for one, such as `1_0`.

    Example:
        >>> read_float("1e-3")
        0.001
    """
    return float(_figures(text))


def read_int(text: str) -> int:
    """The whole number a text says; `ValueError` for what only Python takes for one, such as `1_0`.

    Example:
        >>> read_int("-12")
        -12
    """
    return int(_figures(text))


def _figures(text: str) -> str:
    """A text in which numbers are written by the digits 0 to 9 and nothing stands between these."""
    if "_" in text or not text.strip().isascii():
        raise ValueError(f"{text!r} is no number")
    return text


def use_64_bit() -> None:
    """Switch JAX to 64-bit numbers; call it at the start of a program, before anything is computed."""
    import jax

    jax.config.update("jax_enable_x64", True)


def keep_programs(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Let JAX keep every program that it compiles, for later processes and for those started here.

    Call it at the start of a program, before anything is computed. The folder is kept below `MOST_COMPILED` bytes;
    several processes may use it at once. A folder that JAX was given before stays the one it uses, with its settings.

    Args:
        folder: Where programs are kept, in a folder for each kind of processor; by default where `dln` keeps them, in
            the user's cache or in the folder that the environment variable `DEEPLINEAR_COMPILED` names.

    Returns:
        Where programs are kept; `None` if `DEEPLINEAR_COMPILED` is `off`.
    """
    given = _jax_setting("jax_compilation_cache_dir")
    if given:
        return Path(given)
    place = compiled_folder() if folder is None else Path(folder).absolute() / _processor()
    if place is None:
        return None
    place.mkdir(parents=True, exist_ok=True)
    _tidy_at_times(place)
    # A program whose file another process is writing at this moment is compiled instead; JAX would warn of it.
    warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")
    for name, value in {"jax_compilation_cache_dir": str(place), **KEEP_ALL}.items():
        _set_jax(name, value)
        os.environ[name.upper()] = str(value)
    return place


def prepare() -> None:
    """Switch JAX to 64-bit numbers, and let it keep what it compiles where that is possible.

    JAX is not loaded for it: that takes half a second, which commands that refuse their arguments do without.
    """
    _set_jax("jax_enable_x64", True)
    with contextlib.suppress(OSError):
        keep_programs()


def _jax_setting(name: str) -> Any:
    """A setting of JAX, or the one with which it will start."""
    if "jax" in sys.modules:
        return getattr(sys.modules["jax"].config, name, None)
    return os.environ.get(name.upper())


def _set_jax(name: str, value: Any) -> None:
    """Change a setting of JAX, or the one with which it will start."""
    if "jax" in sys.modules:
        sys.modules["jax"].config.update(name, value)
    else:
        os.environ[name.upper()] = str(value)


def compiled_folder() -> Path | None:
    """Where compiled programs are kept: one folder for each kind of processor; `None` if they are not."""
    chosen = os.environ.get(COMPILED, "")
    if chosen.lower() == "off":
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(chosen) if chosen else home / "deeplinear" / "compiled") / _processor()


def _processor() -> str:
    """A word for the processor: a program compiled for another one may not run on this."""
    text = platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        text += "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _tidy_at_times(folder: Path) -> None:
    """Keep the folder below its size, unless that was done a short while ago by whatever process."""
    mark = folder / TIDIED
    with contextlib.suppress(FileNotFoundError):
        if abs(time.time() - mark.stat().st_mtime) < TIDY_SECONDS:
            return
    mark.touch()  # at once, so that processes that start together do not all look
    _tidy(folder)


def _tidy(folder: Path) -> None:
    """Keep the folder below its size, and remove empty files, which a process that was ended may leave.

    Other processes may write and remove files at the same time; JAX may have folders there.
    """
    files, now = [], time.time()
    for file in folder.iterdir():
        with contextlib.suppress(OSError):
            if file.is_file() and file.name != TIDIED:
                stat = file.stat()
                files.append((stat.st_atime, stat.st_size, file))
                if stat.st_size == 0 and now - stat.st_mtime > WRITING_SECONDS:
                    file.unlink()
    size = sum(bytes_ for _, bytes_, _ in files)
    for _, bytes_, file in sorted(files):
        if size <= MOST_COMPILED:
            break
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
        size -= bytes_
