"""NetCDF files: sealed with a digest of their bytes, and opened in a process of its own where they are not.

HDF5 trusts what it reads: a single changed bit can make it loop for ever, or end the program. A sealed file is compared
with its digest before HDF5 sees it. The seal stands behind the last byte of the HDF5 file, where HDF5 does not look, so
that other programs open the file as any other; those that change it drop the seal.
"""

import hashlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deeplinear.readers._arrays import open_arrays, read_arrays
from deeplinear.readers._documents import parse_json
from deeplinear.readers._source import FileError, Source

MARK = b"\n%deeplinear-sha256%\n"
"""Stands before and behind the digest, so that a seal of which a part is damaged is known for one."""

SEAL = 2 * len(MARK) + 64
"""Bytes of a seal."""

LARGEST_FOREIGN = 2**31
"""Bytes of a file without a seal."""

PROCESSOR_SECONDS = 20
"""Processor time in which a file without a seal must be read."""

WALL_SECONDS = 600
"""Time after which the process that reads it is given up; long, as the machine may be busy."""

LENGTH = b"This is a netCDF dimension but not a netCDF variable"
"""In the name that NetCDF gives a dimension which has a length and no coordinates."""

CHILD = Path(__file__).with_name("_child.py")
"""Program of the process that reads a file without a seal."""


def sealed(content: bytes) -> bytes:
    """Return the bytes of a NetCDF file with a digest behind them.

    Example:
        >>> unsealed(Source("load", "run.nc", sealed(b"numbers")))
        b'numbers'
    """
    return content + MARK + hashlib.sha256(content).hexdigest().encode() + MARK


def unsealed(source: Source) -> bytes | None:
    """Return the bytes before the seal if they are those that were written, `None` if there is no seal.

    Raises:
        FileError: The file has a seal, and its bytes or the seal are not what was written.
    """
    content = source.read()
    if MARK not in content[-2 * SEAL :]:
        return None
    body, seal = content[:-SEAL], content[-SEAL:]
    if seal != MARK + hashlib.sha256(body).hexdigest().encode() + MARK:
        raise source.refused("its bytes are not those that were written (their digest differs)")
    return body


class Content(NamedTuple):
    """Arrays of a NetCDF file by name, and its attributes."""

    arrays: dict[str, np.ndarray]
    attributes: dict[str, Any]


def load_content(source: Source) -> Content:
    """Return the arrays and attributes of a NetCDF file.

    A file with a seal is opened if its bytes are those that were written; HDF5 alone reads it. Any other is read in a
    process of its own, within limits of time and memory; of it come numbers, and attributes that are text or numbers.

    Raises:
        FileError: The file is damaged, is not NetCDF, or takes too much time or memory.

    Example:
        >>> import io, xarray
        >>> file = io.BytesIO()
        >>> xarray.Dataset({"x": ("n", [1.0, 2.0])}).to_netcdf(file, engine="h5netcdf")
        >>> load_content(Source("load", "run.nc", sealed(file.getvalue()))).arrays
        {'x': array([1., 2.])}
    """
    body = unsealed(source)
    if body is None:
        return from_parts(source, read_apart(source))
    import h5py

    with source.guarded("it is not NetCDF"), h5py.File(io.BytesIO(body), "r") as file:
        attributes = {name: _plain(value) for name, value in file.attrs.items()}
        return Content({name: _values(item) for name, item in file.items() if not _only_length(item)}, attributes)


def _only_length(item: Any) -> bool:
    """Whether what HDF5 calls a dataset is a dimension without coordinates."""
    return LENGTH in item.attrs.get("NAME", b"")


def _values(item: Any) -> np.ndarray:
    """Numbers of a variable; NetCDF has no truth values, and keeps them as small integers."""
    return np.asarray(item[()], dtype=bool if item.attrs.get("dtype") == "bool" else None)


def _plain(value: Any) -> Any:
    """A number that is kept as an array of one as a number."""
    return value.item() if isinstance(value, np.ndarray) and value.shape == (1,) else value


def read_apart(source: Source) -> bytes:
    """Return what the other process makes of a NetCDF file: its arrays as an .npz, with a description in JSON."""
    content = source.read(LARGEST_FOREIGN)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-P", str(CHILD), str(PROCESSOR_SECONDS)]
    try:
        run = subprocess.run(
            command, input=content, capture_output=True, timeout=WALL_SECONDS, env=os.environ | threads, check=False
        )
    except subprocess.TimeoutExpired:
        raise _too_long(source, f"{WALL_SECONDS} s") from None
    if run.returncode == -getattr(signal, "SIGXCPU", 0) != 0:
        raise _too_long(source, f"{PROCESSOR_SECONDS} s of processor time")
    if run.returncode < 0:
        raise source.refused(f"reading it ended the HDF5 library by signal {-run.returncode}")
    if run.returncode:
        words = run.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise source.refused(f"it is not NetCDF ({words[0][:160] if words else f'exit {run.returncode}'})")
    return run.stdout


def from_parts(source: Source, parts: bytes) -> Content:
    """Return the content that the other process described."""
    inner = Source(source.where, source.name, parts)
    arrays = read_arrays(open_arrays(inner))
    described = parse_json(inner, arrays.pop("description").tobytes())
    return Content(
        {name: arrays[f"array{place}"] for place, name in enumerate(described["variables"])}, described["attributes"]
    )


def _too_long(source: Source, time: str) -> FileError:
    return source.refused(f"reading it takes more than {time}", "it is damaged, or too large: restore it from a copy")
