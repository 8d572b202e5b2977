"""Runs that others recorded: times, and the layers at each of them, as plain arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deeplinear.core import RESULTS, Params, Trajectory
from deeplinear.diagnosis._structure import Layers, as_params, multiply
from deeplinear.diagnosis._weights import Weights, load_weights
from deeplinear.models import Problem

WHERE = "diagnose"

SAME = 1e-6
"""Largest distance of the first record from the given layers, relative to their norm."""

KINDS = "a Trajectory, or a pair (times, layers) of arrays"


def as_trajectory(problem: Problem, params: Params, given: Any) -> Trajectory:
    """A run as it is compared: a trajectory as it is, a pair of times and layers with what it takes measured on it."""
    if isinstance(given, Trajectory):
        return given
    if not isinstance(given, tuple | list) or len(given) != 2:
        what = f"{len(given)} things" if isinstance(given, tuple | list) else f"a {type(given).__name__}"
        raise TypeError(f"{WHERE}: trajectory must be {KINDS}, but is {what}.")
    records = _records(given[1], len(params))
    clock = given[0] is not None
    times = _times(given[0], len(records)) if clock else np.arange(len(records), dtype=float)
    for position, record in enumerate(records):
        _check_shapes(position, record, params)
    start = tuple(np.asarray(layer) for layer in params)
    size = float(np.sqrt(sum(np.sum(layer**2) for layer in start)))
    apart = float(np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(records[0], start, strict=True))))
    if not apart <= SAME * max(size, 1e-300):
        raise ValueError(
            f"{WHERE}: trajectory must start from params, but the layers of its first record are {apart:.3g} away from "
            "them. Were the layers copied when they were recorded? A state dict of PyTorch changes with its model."
        )
    values = [problem.value_and_gradient(as_params(record)) for record in records]
    gradients = [np.sqrt(sum(float(np.sum(np.asarray(g) ** 2)) for g in gradient)) for _, gradient in values]
    return Trajectory(
        times=times,
        values={
            "loss": np.array([float(value) for value, _ in values]),
            "singular_values": np.array([np.linalg.svd(multiply(record), compute_uv=False) for record in records]),
            "gradient_norm": np.array(gradients),
        },
        dims={"loss": (), "singular_values": ("mode",), "gradient_norm": ()},
        params=records[-1],
        results=np.asarray(int(RESULTS.completed)),
        fired=np.asarray(0),
        rules=(),
        lengths=np.asarray(len(records)),
        stats={},
        info={"clock": "time" if clock else "records"},
    )


def _records(given: Any, depth: int) -> list[Layers]:
    """Layers at each time, from one entry for each time or from one array (time, out, in) for each layer."""
    if isinstance(given, Mapping) or not isinstance(given, Sequence | np.ndarray) or len(given) == 0:
        what = "is empty" if isinstance(given, Sequence | np.ndarray) else f"are a {type(given).__name__}"
        raise TypeError(
            f"{WHERE}: the layers of trajectory must be a list with the layers at each time, or for each layer an "
            f"array (time, out, in), but {what}."
        )
    if not isinstance(given, np.ndarray) and len(given) == depth and all(getattr(e, "ndim", 0) == 3 for e in given):
        arrays = [_array(f"layer {position}", entry) for position, entry in enumerate(given)]
        counts = {len(array) for array in arrays}
        if len(counts) > 1:
            raise ValueError(
                f"{WHERE}: the layers of trajectory must have as many records, but have {[len(a) for a in arrays]}."
            )
        return [tuple(layers) for layers in zip(*arrays, strict=True)]
    records = []
    for position, entry in enumerate(given):
        try:
            records.append(entry.params if isinstance(entry, Weights) else load_weights(entry).params)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{WHERE}: record {position} of trajectory must be layers, but: {error}") from None
    return records


def _array(name: str, entry: Any) -> np.ndarray:
    """An array of any library, of 64-bit numbers."""
    plain = entry.detach().cpu() if hasattr(entry, "detach") else entry
    array = np.asarray(plain)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{WHERE}: {name} of trajectory must hold real numbers, but holds {array.dtype}.")
    return array.astype(float)


def _times(given: Any, records: int) -> np.ndarray:
    try:
        times = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(
            f"{WHERE}: the times of trajectory must be numbers, but are a {type(given).__name__}."
        ) from None
    if times.shape != (records,):
        raise ValueError(
            f"{WHERE}: trajectory must have a time for each of its {records} records, but its times have shape "
            f"{times.shape}."
        )
    if not (np.all(np.isfinite(times)) and np.all(np.diff(times) > 0)):
        raise ValueError(f"{WHERE}: the times of trajectory must be finite and increase, but do not.")
    return times - times[0]


def _check_shapes(position: int, record: Layers, params: Params) -> None:
    found, wanted = ([tuple(layer.shape) for layer in layers] for layers in (record, params))
    if found != wanted:
        raise ValueError(
            f"{WHERE}: record {position} of trajectory must have layers of shapes {wanted}, but has {found}."
        )
    if not all(np.all(np.isfinite(layer)) for layer in record):
        raise ValueError(f"{WHERE}: record {position} of trajectory must be finite, but holds NaN or infinite numbers.")
