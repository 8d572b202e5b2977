"""Many small NetCDF files of the same form, without describing the form anew in each.

Writing or reading a small file takes tens of milliseconds, nearly all for dimensions and attributes. Members of a sweep
have the same ones, so that only the first of a form goes through xarray: another is that file with other numbers, and
is read as numbers only.
"""

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import netcdf_bytes

if TYPE_CHECKING:
    import xarray

FORMS = 8
"""Forms that are remembered for writing."""

LARGEST = 2**20
"""Bytes of the files that are remembered; with larger ones the numbers take the time."""

BLOCK = 4096
"""Members of one form that are put together at a time."""

_FORMS: "collections.OrderedDict[Any, bytes]" = collections.OrderedDict()


def to_bytes(dataset: "xarray.Dataset") -> bytes:
    """A dataset as a NetCDF file in memory.

    Example:
        >>> import io, xarray
        >>> files = [to_bytes(xarray.Dataset({"x": ("n", [1.0, k])})) for k in (2.0, 3.0)]
        >>> [float(xarray.load_dataset(io.BytesIO(file), engine="h5netcdf")["x"].sum()) for file in files]
        [3.0, 4.0]
    """
    form = _form(dataset)
    known = None if form is None else _FORMS.get(form)
    if known is not None:
        return _filled(known, dataset)
    data = netcdf_bytes(dataset)
    if form is not None and len(data) <= LARGEST:
        _FORMS[form] = data
        while len(_FORMS) > FORMS:
            _FORMS.popitem(last=False)
    return data


def _form(dataset: "xarray.Dataset") -> Any:
    """All of a dataset but its numbers; `None` where it has more than plain names, numbers and attributes."""
    parts = []
    for name, variable in dataset.variables.items():
        if variable.encoding or variable.dtype.kind not in "biuf" or not _simple(variable.attrs):
            return None
        parts.append((str(name), name in dataset.coords, variable.dims, variable.shape, variable.dtype.str))
        parts.append(tuple((key, type(value), value) for key, value in variable.attrs.items()))
    if dataset.encoding or not _simple(dataset.attrs):
        return None
    return (*parts, *((key, type(value), value) for key, value in dataset.attrs.items()))


def _simple(attributes: Mapping[Any, Any]) -> bool:
    return all(type(value) in (str, int, float, bool) for value in attributes.values())


def _filled(known: bytes, dataset: "xarray.Dataset") -> bytes:
    import h5py

    with h5py.File(h5py.h5f.open_file_image(known, h5py.h5f.ACC_RDWR)) as file:
        for name, variable in dataset.variables.items():
            values = variable.to_numpy()
            if values.size:
                node: Any = file[str(name)]
                node[...] = values.astype(np.int8) if values.dtype == bool else values
        file.flush()
        return file.id.get_file_image()


def together(
    members: Iterable[tuple[bytes, Any]], load: "Callable[[Any], xarray.Dataset]"
) -> "Iterator[xarray.Dataset]":
    """Datasets with a leading dimension `member`, each of consecutive members of one form and equal coordinates.

    Args:
        members: Files with what `load` takes.
        load: Reads a member through xarray; used for the first of each form, and for members that have more than plain
            numbers.
    """
    first: xarray.Dataset | None = None
    raw: dict[str, np.ndarray] = {}
    columns: dict[str, list[np.ndarray]] = {}
    count = 0
    for data, member in members:
        values = _numbers(data)
        if first is not None and values is not None and count < BLOCK and _same(values, raw, first):
            count += 1
            for name, column in columns.items():
                column.append(values[name])
            continue
        if first is not None:
            yield _block(first, columns, count)
        first, count = load(member), 1
        raw = values if values is not None and _faithful(values, first) else {}
        columns = {name: [raw[name]] for name in raw if name not in first.coords}
    if first is not None:
        yield _block(first, columns, count)


def _numbers(data: bytes) -> dict[str, np.ndarray] | None:
    """All variables as they are stored; `None` if there are others than numbers, or the file cannot be read so."""
    import h5py

    found: dict[str, np.ndarray] = {}
    try:
        with h5py.File(h5py.h5f.open_file_image(data)) as file:
            for name, node in file.items():
                if not isinstance(node, h5py.Dataset) or node.dtype.kind not in "biuf":
                    return None
                found[name] = node[()]
    except OSError:
        return None
    return found


def _faithful(raw: Mapping[str, np.ndarray], dataset: "xarray.Dataset") -> bool:
    """Whether the stored numbers are those of the dataset, without scales or marks for what is missing."""
    if not set(raw) >= {str(name) for name in dataset.variables}:
        return False
    for name, variable in dataset.variables.items():
        stored, values = np.asarray(raw[str(name)]), variable.to_numpy()
        fill = variable.encoding.get("_FillValue", np.nan)
        if not (values.dtype == stored.dtype or (values.dtype == bool and stored.dtype == np.int8)):
            return False
        if variable.encoding.get("scale_factor") is not None or variable.encoding.get("add_offset") is not None:
            return False
        if not np.isnan(fill) or not np.array_equal(values, stored, equal_nan=values.dtype.kind == "f"):
            return False
    return True


def _same(values: Mapping[str, np.ndarray], raw: Mapping[str, np.ndarray], first: "xarray.Dataset") -> bool:
    """Whether a member has the form and the coordinates of the first one."""
    if values.keys() != raw.keys():
        return False
    for name, own in values.items():
        other = raw[name]
        if np.shape(own) != np.shape(other) or own.dtype != other.dtype:
            return False
        if name in first.coords and not np.array_equal(own, other, equal_nan=own.dtype.kind == "f"):
            return False
    return True


def _block(first: "xarray.Dataset", columns: Mapping[str, list[np.ndarray]], count: int) -> "xarray.Dataset":
    if count == 1:
        return first.expand_dims("member")
    stacked = {
        name: (("member", *first[name].dims), np.stack(column).astype(first[name].dtype, copy=False), first[name].attrs)
        for name, column in columns.items()
        if name in first.data_vars
    }
    return first.drop_vars(list(first.data_vars)).assign(stacked)
