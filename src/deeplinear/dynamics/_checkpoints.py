"""Runs kept in a folder under the hash of everything that determines them, with a digest of their bytes."""

import dataclasses
import hashlib
import inspect
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

import jax
import numpy as np

from deeplinear.core import Trajectory, replacing


def content_hash(parts: Mapping[str, Any]) -> str:
    """Hash of all that determines a run: problems, layers, methods, rules, probes and plain values by name.

    Raises:
        TypeError: For something that has no content that can be told.
    """
    plain = json.dumps({name: _plain(part) for name, part in parts.items()}, sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()


def _plain(item: Any) -> Any:
    """Anything that determines a run as JSON: classes and fields by name, arrays by the hash of their bytes."""
    if item is None or isinstance(item, bool | int | str):
        return item
    if isinstance(item, float):
        return item.hex()
    if isinstance(item, jax.Array | np.ndarray | np.generic):
        array = np.ascontiguousarray(item)
        return ["array", str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
    if isinstance(item, list | tuple):
        return [type(item).__name__, *(_plain(part) for part in item)]
    if isinstance(item, Mapping):
        return [type(item).__name__, *([_plain(name), _plain(part)] for name, part in item.items())]
    if isinstance(item, type):
        return [item.__module__, item.__qualname__]
    if dataclasses.is_dataclass(item):
        fields = {field.name: _plain(getattr(item, field.name)) for field in dataclasses.fields(item)}
        return [_plain(type(item)), fields]
    function = inspect.unwrap(item) if callable(item) else item
    if inspect.isfunction(function):
        cells = [_plain(cell.cell_contents) for cell in function.__closure__ or ()]
        return [
            function.__module__,
            function.__qualname__,
            _code(function.__code__),
            cells,
            _plain(function.__defaults__),
        ]
    raise TypeError(
        f"with checkpoints everything that determines a run must have a content, but {item!r} has none "
        "that can be told; leave out checkpoints."
    )


def _code(code: CodeType) -> list[Any]:
    """What a function does, without where it stands."""
    constants = [_code(item) if isinstance(item, CodeType) else repr(item) for item in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), constants]


def save_checkpoint(folder: Path, content: str, run: Trajectory) -> None:
    """Keep a run; the digest comes last, so that it stands for a file that is whole."""
    file = run.save(folder / content)
    with replacing(folder / f"{content}.sha256") as part:
        part.write_text(hashlib.sha256(file.read_bytes()).hexdigest() + "\n")


def load_checkpoint(folder: Path, content: str, usable: Callable[[Trajectory], bool]) -> Trajectory | None:
    """A run that was kept, or `None`; a file that is not what was written is reported and left aside."""
    file, digest = folder / f"{content}.nc", folder / f"{content}.sha256"
    if not file.exists():
        return None
    try:
        if hashlib.sha256(file.read_bytes()).hexdigest() != digest.read_text().strip():
            raise ValueError("its bytes are not those that were written")
        run = Trajectory.load(file)
        if not usable(run):
            raise ValueError("the run in it did not reach its end")
        return run
    except (OSError, ValueError, KeyError) as error:
        warnings.warn(f"the checkpoint {file} cannot be used ({error}); its run is made again.", stacklevel=2)
        return None
