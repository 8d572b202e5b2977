"""`dln ranks`: soft ranks of the layers of any saved network."""

import math
import re
from pathlib import Path
from typing import Any

from deeplinear.cli._shell import Code, UsageError, numerics, one_line, print_json, print_table, say

RANKS = ("effective", "stable")  # as in `deeplinear.nonlinear`, which is loaded when it is needed


def ranks_command(file: str, initial: str | None, prefix: str, last: str | None, layout: str, as_json: bool) -> Code:
    """Read weights, measure every layer, and tell the averages; gives the exit code."""
    numerics()
    from deeplinear.diagnosis import load_tensors
    from deeplinear.nonlinear import weight_ranks

    def measured(path: str) -> Any:
        try:
            return weight_ranks(_in_order(path, load_tensors(path, prefix=prefix, last=last), last), layout)
        except (ValueError, TypeError, ImportError, OSError) as error:
            raise UsageError(f"{path}: {one_line(error)}") from None

    found = measured(file)
    before = None if initial is None else measured(initial)
    if before is not None:
        kinds = [[(layer.name, layer.shape) for layer in one.layers] for one in (found, before)]
        if kinds[0] != kinds[1]:
            other = next((b for a, b in zip(*kinds, strict=False) if a != b), "another number of layers")
            raise UsageError(f"--initial: {initial} must have the same layers as {file}, but has {other}.")
    layers: list[dict[str, Any]] = [
        {"name": layer.name, "shape": list(layer.shape)} | _values(layer, start)
        for layer, start in zip(
            found.layers, [None] * len(found.layers) if before is None else before.layers, strict=True
        )
    ]
    averages: list[dict[str, Any]] = [{"over": name} | values for name, values in _averages(found, before).items()]
    if as_json:
        told = {"layers": [_plain(one) for one in layers], "averages": [_plain(one) for one in averages]}
        ends = {"first": found.layers[0].name, "last": found.layers[-1].name}
        print_json({"ok": True, "command": "ranks", "file": file, **ends, **told})
        return Code.fine
    more = () if before is None else ("over the initial ones",)
    print_table(
        [(one["name"], "{} x {}".format(*one["shape"]), *_cells(one)) for one in layers],
        header=("layer", "shape", "effective rank", "stable rank", *more),
    )
    print_table(
        [(one["over"], *_cells(one)) for one in averages],
        title=f"Averages, with {found.layers[0].name} as the first layer and {found.layers[-1].name} as the last",
        header=("average over", "effective rank", "stable rank", *more),
    )
    say(
        f"The first layer is taken to be {found.layers[0].name}, the last {found.layers[-1].name} (--last NAME for "
        "another). An average over layers of different shapes says as much of the shapes as of training."
    )
    return Code.fine


def _in_order(path: str, tensors: dict[str, Any], last: str | None) -> dict[str, Any]:
    """The arrays in the order in which their layers act, as far as the names tell.

    The usual writer of safetensors sorts names, 10 before 2; there numbers in names are taken by their values.
    """
    names = [name for name in tensors if name != last]
    if Path(path).suffix.lower() != ".safetensors" or names != sorted(names):
        return tensors
    names.sort(key=lambda name: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)])
    return {name: tensors[name] for name in (*names, *(one for one in tensors if one == last))}


def _averages(found: Any, before: Any) -> dict[str, dict[str, float]]:
    """Ranks averaged over all layers but the last, without the first too, and over the layers of each shape."""
    every = [found] if before is None else [found, before]
    heads = ("", "initial_")[: len(every)]
    told = {
        which: {
            f"{head}{rank}": one.average(which, rank) for head, one in zip(heads, every, strict=True) for rank in RANKS
        }
        for which in ("all but last", "hidden")
    }
    for shape in found.by_shape():
        told[f"layers {shape[0]} x {shape[1]}"] = {
            f"{head}{rank}": one.by_shape(rank)[shape] for head, one in zip(heads, every, strict=True) for rank in RANKS
        }
    return told


def _values(layer: Any, start: Any) -> dict[str, float]:
    values = {rank: getattr(layer, rank) for rank in RANKS}
    return values if start is None else values | {f"initial_{rank}": getattr(start, rank) for rank in RANKS}


def _ratios(one: dict[str, Any]) -> list[float]:
    """The ranks over the initial ones, if these are known."""
    return [one[rank] / one[f"initial_{rank}"] for rank in RANKS if f"initial_{rank}" in one]


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    """The ranks, and what they are of the initial ones; a dash where an average is over no layer."""
    if math.isnan(one[RANKS[0]]):
        return tuple("–" for _ in (*RANKS, *_ratios(one)[:1]))
    cells = tuple(f"{one[rank]:.2f}" for rank in RANKS)
    return (*cells, ", ".join(f"{ratio:.3f}" for ratio in _ratios(one))) if _ratios(one) else cells


def _plain(one: dict[str, Any]) -> dict[str, Any]:
    """The same with the ratios by name, and null for an average over no layer."""
    every = one | {f"{rank}_over_initial": ratio for rank, ratio in zip(RANKS, _ratios(one), strict=False)}
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in every.items()}
