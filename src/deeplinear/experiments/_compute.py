"""One run, from plain arguments to plain results: what a worker does, wherever it is."""

import dataclasses
import datetime
import functools
import math
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deeplinear._about import __version__, use_64_bit
from deeplinear.core import make_room, processors
from deeplinear.experiments._base import Claim, Context
from deeplinear.experiments._netcdf import to_bytes
from deeplinear.experiments._registry import experiment
from deeplinear.experiments._spec import from_plain, plain

FORMATS = ("svg", "pdf", "png")
"""Formats of the stored pictures."""

NOT_ASKED = "none was asked for; dln experiment run with the same settings and --again draws it."
"""What a record without pictures says."""


@dataclasses.dataclass(frozen=True)
class Task:
    """One member of a sweep, as plain values that can be sent anywhere."""

    id: str
    spec: Mapping[str, Any]
    key: str


@dataclasses.dataclass(frozen=True)
class Result:
    """What a worker sends back: the content of the record and the files beside it."""

    content: Mapping[str, Any]
    files: Mapping[str, bytes]


def task_of(name: str, spec: Any) -> Task:
    """The task of a spec."""
    return Task(name, plain(spec), experiment(name).key(spec))


def compute(
    task: Task,
    scratch: str | None = None,
    progress: Callable[[float, str], None] = lambda fraction, text: None,
    formats: Sequence[str] = FORMATS,
) -> Result:
    """Run a task: arrays, claims, pictures, and how it was done.

    Args:
        task: What to run.
        scratch: Folder for checkpoints.
        progress: Called now and then with the fraction done and a few words.
        formats: Formats of the picture; there is none without them, as drawing often takes longer than computing.
    """
    use_64_bit()
    make_room()
    chosen = experiment(task.id)
    spec = from_plain(chosen.kind, task.spec)
    started, start, processor = datetime.datetime.now(datetime.UTC), time.perf_counter(), time.process_time()
    dataset = chosen.run(spec, Context(progress, None if scratch is None else Path(scratch)))
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    claims = [_plain_claim(claim) for claim in chosen.judge(dataset, spec)]
    files, missing = {"data.nc": to_bytes(dataset)}, NOT_ASKED
    if formats:
        with tempfile.TemporaryDirectory() as folder:
            missing = _draw(chosen, dataset, spec, Path(folder), formats)
            files |= {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}
    content = {
        "version": chosen.version,
        "source": chosen.source,
        "shows": chosen.shows,
        "notes": chosen.notes,
        "preset": chosen.preset_of(spec),
        "spec": dict(task.spec),
        "claims": claims,
        "environment": environment(),
        "timing": {
            "started": started.isoformat(timespec="microseconds"),
            "seconds": round(seconds, 3),
            "processor_seconds": round(processor, 3),
        },
    }
    return Result(content | ({"no_figure": missing} if missing else {}), files)


def environment() -> dict[str, Any]:
    """What a number may depend on besides the spec: versions, machine, devices, threads."""
    return _environment() | {"processors": processors()}


@functools.cache
def _environment() -> dict[str, Any]:
    """What does not change while the program runs; asking for the versions takes longer than a small member."""
    import importlib.metadata

    import jax

    names = ("jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "scipy")
    return {
        "deeplinear": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": platform.machine(),
        "processors": None,
        "devices": [str(device) for device in jax.devices()],
        "versions": {name: importlib.metadata.version(name) for name in names},
    }


def _draw(chosen: Any, dataset: Any, spec: Any, folder: Path, formats: Sequence[str]) -> str:
    """Write the pictures; without matplotlib there are none, and the text says so."""
    from deeplinear.plots import save_figure

    try:
        figure = chosen.draw(dataset, spec)
    except ImportError as error:
        return str(error)
    save_figure(figure, folder / "figure", formats=formats)
    return ""


def _plain_claim(claim: Claim) -> dict[str, Any]:
    content = dataclasses.asdict(claim)
    return content | {"measured": claim.measured if math.isfinite(claim.measured) else str(claim.measured)}
