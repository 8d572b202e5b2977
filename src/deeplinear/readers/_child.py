"""Program: read a NetCDF file from the input stream within limits, write its numbers to the output stream as an .npz.

It runs alone, so that a file that makes HDF5 loop, take all memory or crash does so here. It imports nothing of this
package.
"""

import contextlib
import io
import json
import sys
from typing import Any

import numpy as np
import xarray

LARGEST_CONTENT = 2**31
"""Bytes of all arrays."""

LARGEST_MEMORY = 2**33
"""Bytes of the process."""


def limit(seconds: int) -> None:
    """Limit processor time and memory from now on, where the system can."""
    try:
        import resource
    except ImportError:  # Windows has no such limits.
        return
    spent = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(spent.ru_utime + spent.ru_stime) + 1 + seconds
    for kind, value in ((resource.RLIMIT_CPU, soft), (resource.RLIMIT_AS, LARGEST_MEMORY), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):
            _, hard = resource.getrlimit(kind)
            resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def plain(value: Any) -> Any:
    """Return an attribute as JSON knows it, or `None`."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, str | bool | int) or (isinstance(value, float) and np.isfinite(value)) else None


def convert(content: bytes) -> bytes:
    """Return the numbers of a NetCDF file as an .npz that has no objects, with their names in JSON.

    Raises:
        Exception: Whatever xarray and HDF5 raise on files that are damaged.
    """
    with xarray.open_dataset(io.BytesIO(content), engine="h5netcdf", decode_times=False) as opened:
        if opened.nbytes > LARGEST_CONTENT:
            raise ValueError(f"its arrays take {opened.nbytes:,} bytes, more than {LARGEST_CONTENT:,}")
        names = [name for name in opened.variables if opened[name].dtype.kind in "biuf"]
        arrays = {f"array{place}": np.asarray(opened[name].to_numpy()) for place, name in enumerate(names)}
        attributes = {str(name): plain(value) for name, value in opened.attrs.items()}
        description = {
            "variables": [str(name) for name in names],
            "attributes": {name: value for name, value in attributes.items() if value is not None},
        }
    arrays["description"] = np.frombuffer(json.dumps(description).encode(), np.uint8)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def main() -> int:
    """Run the program; what is wrong with the file is one line on the error stream."""
    limit(int(sys.argv[1]))
    try:
        found = convert(sys.stdin.buffer.read())
    except Exception as error:  # of any kind: the file decides what goes wrong
        sys.stderr.write(" ".join(f"{type(error).__name__}: {error}".split()) + "\n")
        return 1
    sys.stdout.buffer.write(found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
