"""Trajectories in files: what a dataset must hold to be one, and NetCDF in memory."""

import io
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core._errors import RESULTS
from deeplinear.readers import Content, FileError, Source, check_depth

if TYPE_CHECKING:
    import xarray

FORMAT = 2
"""Version of the files that `Trajectory.save` writes."""


def fields(source: Source, content: Content) -> dict[str, Any]:
    """Return the fields of the trajectory that a file holds, or refuse the file.

    Every array is compared with the others: kinds, dimensions, lengths and codes that a run cannot have are refused.
    """
    arrays, attributes = content
    found = attributes.get("deeplinear_format")
    if found != FORMAT:
        raise source.refused(f"it must be a trajectory of format {FORMAT}, but its format is {found}", "save it again")
    dims, rules, info = (_attribute(source, attributes, name) for name in ("dims", "rules", "info"))
    if not isinstance(dims, dict) or not all(_dimensions(own) for own in dims.values()) or any("." in n for n in dims):
        raise _damaged(source, "'dims' must map probes to names of dimensions")
    if not _texts(rules) or not isinstance(info, dict):
        raise _damaged(source, "'rules' must be a list of text and 'info' an object")

    def array(name: str, kinds: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
        if name not in arrays:
            raise _damaged(source, f"the array '{name}' is missing")
        value = arrays[name]
        if value.dtype.kind not in kinds or (shape is not None and value.shape != shape):
            raise _damaged(source, f"'{name}' holds {value.dtype} of shape {value.shape}, which does not fit")
        return value

    def numbered(prefix: str, kinds: str) -> tuple[np.ndarray, ...]:
        names = [name for name in arrays if name.startswith(prefix) and name[len(prefix) :].isascii()]
        names = [name for name in names if name[len(prefix) :].isdecimal() and len(name) < len(prefix) + 9]
        return tuple(array(name, kinds) for name in sorted(names, key=lambda name: int(name[len(prefix) :])))

    times = array("t", "f")
    lead = times.shape[:-1]
    if times.ndim not in (1, 2) or 0 in times.shape:
        raise _damaged(source, f"'t' has shape {times.shape}")
    results, fired, lengths = (array(f"run.{name}", "iu", lead) for name in ("results", "fired", "lengths"))
    if not np.isin(results, [int(code) for code in RESULTS]).all():
        raise _damaged(source, "'run.results' holds codes of no outcome")
    if lengths.min() < 1 or lengths.max() > times.shape[-1]:
        raise _damaged(source, f"'run.lengths' must lie between 1 and {times.shape[-1]}")
    stopped = results == int(RESULTS.stopped)
    if rules and not ((fired[stopped] >= 0) & (fired[stopped] < len(rules))).all():
        raise _damaged(source, "'run.fired' names no rule")
    values = {}
    for name, own in dims.items():
        value = array(f"probe.{name}" if f"probe.{name}" in arrays else name, "biufc")
        if value.ndim != times.ndim + len(own) or value.shape[: times.ndim] != times.shape:
            raise _damaged(source, f"the probe '{name}' of shape {value.shape} does not fit the times {times.shape}")
        values[name] = value
    params, state = numbered("params.", "f"), numbered("state.", "biuf")
    if any(leaf.shape[: len(lead)] != lead for leaf in (*params, *state)):
        raise _damaged(source, f"parameters or state do not fit the members {lead}")
    if any(layer.ndim != len(lead) + 2 for layer in params):
        raise _damaged(source, "parameters are not matrices")
    if any(above.shape[-1] != below.shape[-2] for below, above in itertools.pairwise(params)):
        raise _damaged(source, "the layers do not follow one another")
    stats = {name[6:]: array(name, "biuf") for name in arrays if name.startswith("stats.")}
    if any(value.shape not in ((), lead) for value in stats.values()):
        raise _damaged(source, f"statistics do not fit the members {lead}")
    return {
        "times": times,
        "values": values,
        "dims": {name: tuple(own) for name, own in dims.items()},
        "params": params,
        "results": results,
        "fired": fired,
        "rules": tuple(rules),
        "lengths": lengths,
        "stats": {name: value if value.ndim else value.item() for name, value in stats.items()},
        "info": info,
        "state": state,
    }


def _attribute(source: Source, attributes: Mapping[Any, Any], name: str) -> Any:
    """Return the value of an attribute that is written as JSON."""
    try:
        value = json.loads(attributes[name])
        check_depth(source, value)
        return value
    except FileError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError):
        raise _damaged(source, f"the attribute '{name}' is missing or is not JSON") from None


def _dimensions(value: Any) -> bool:
    """Whether a value is the dimensions of a probe after time."""
    return _texts(value) and len(set(value)) == len(value) and not {"member", "time", ""} & set(value)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _damaged(source: Source, problem: str) -> FileError:
    return source.refused(f"it is not a whole trajectory: {problem}")


def netcdf_bytes(dataset: "xarray.Dataset") -> bytes:
    """Return a dataset as a NetCDF file in memory. Files are written from it, as HDF5 ends the program on a full disk.

    Example:
        >>> import io, xarray
        >>> file = netcdf_bytes(xarray.Dataset({"x": ("n", [1.0, 2.0])}))
        >>> float(xarray.load_dataset(io.BytesIO(file), engine="h5netcdf")["x"].sum())
        3.0
    """
    from xarray.backends import H5NetCDFStore

    file = io.BytesIO()
    store = H5NetCDFStore.open(file, mode="w", lock=False)  # Dask workers have no locks for memory.
    try:
        dataset.dump_to_store(store)
    finally:
        store.close()
    return file.getvalue()


def file_names(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Return the files of data and summary: `path` with the endings .nc and .json, one of which it may have already."""
    given = Path(path)
    stem = given.with_suffix("") if given.suffix in (".nc", ".json") else given
    return Path(f"{stem}.nc"), Path(f"{stem}.json")
