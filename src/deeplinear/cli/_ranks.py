"""`dln ranks`: soft ranks of the layers of any saved network."""

import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deeplinear.cli._shell import Code, UsageError, numerics, one_line, print_json, print_table, say

RANKS = ("effective", "stable")  # as in `deeplinear.nonlinear`, which is loaded when it is needed


def ranks_command(
    file: str,
    initial: str | None,
    prefix: str,
    skip: tuple[str, ...],
    first: str | None,
    last: str | None,
    layout: str,
    as_json: bool,
) -> Code:
    """Read weights, measure every layer, and tell the averages; gives the exit code."""
    numerics()
    from deeplinear.diagnosis import load_tensors

    def measured(path: str) -> Any:
        try:
            tensors = load_tensors(path, prefix=prefix, skip=skip, first=first, last=last)
            from deeplinear.nonlinear import weight_ranks

            return weight_ranks(_in_order(path, tensors, first, last), layout)
        except (ValueError, TypeError, ImportError, OSError) as error:
            hint = " (--skip NAME does.)" if "leave it out" in str(error) else ""
            raise UsageError(f"{path}: {one_line(error)}{hint}") from None

    found = measured(file)
    before = None if initial is None else measured(initial)
    starts = {} if before is None else {layer.name: layer for layer in before.layers}
    if before is not None:
        _check_same(f"--initial: {initial} must have the layers of {file}", found.layers, starts)
        before = dataclasses.replace(before, layers=tuple(starts[layer.name] for layer in found.layers))
    layers: list[dict[str, Any]] = [
        {"name": layer.name, "shape": list(layer.shape)} | _values(layer, starts.get(layer.name))
        for layer in found.layers
    ]
    averages: list[dict[str, Any]] = [{"over": name} | values for name, values in _averages(found, before).items()]
    if as_json:
        told = {"layers": [_plain(one) for one in layers], "averages": [_plain(one) for one in averages]}
        ends = {"first": found.layers[0].name, "last": found.layers[-1].name}
        print_json({"ok": True, "command": "ranks", "file": file, **ends, **told})
        return Code.fine
    more = () if before is None else ("over the initial ones",)
    print_table(
        [(one["name"], _shape(one["shape"]), *_cells(one)) for one in layers],
        header=("layer", "shape", "effective rank", "stable rank", *more),
    )
    print_table(
        [(one["over"], *_cells(one)) for one in averages],
        title=f"Averages, with {found.layers[0].name} as the first layer and {found.layers[-1].name} as the last",
        header=("average over", "effective rank", "stable rank", *more),
    )
    say(
        f"The first layer is taken to be {found.layers[0].name}, the last {found.layers[-1].name} (--first NAME and "
        "--last NAME for others). An average over layers of different shapes says as much of the shapes as of training."
    )
    return Code.fine


def _check_same(must: str, layers: tuple[Any, ...], starts: dict[str, Any]) -> None:
    """Refuse layers before training that are not those after it, by name."""
    shapes = {layer.name: layer.shape for layer in layers}
    missing, more = [name for name in shapes if name not in starts], [name for name in starts if name not in shapes]
    wrong = [
        f"its {name} is {_shape(start.shape)} instead of {_shape(shapes[name])}"
        for name, start in starts.items()
        if name in shapes and start.shape != shapes[name]
    ]
    faults = [
        *([f"lacks {', '.join(missing)}"] if missing else []),
        *([f"has {', '.join(more)} besides"] if more else []),
        *wrong,
    ]
    if faults:
        raise UsageError(f"{must}, but {'; '.join(faults)}.")


def _shape(shape: Sequence[int]) -> str:
    return "{} x {}".format(*shape)


def _in_order(path: str, tensors: dict[str, Any], first: str | None, last: str | None) -> dict[str, Any]:
    """The arrays in the order in which their layers act, as far as the names tell.

    The usual writer of safetensors sorts names, 10 before 2; there numbers in names are taken by their values.
    """
    names = [name for name in tensors if name not in (first, last)]
    if Path(path).suffix.lower() != ".safetensors" or names != sorted(names):
        return tensors
    names.sort(key=lambda name: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)])
    ends = [[one for one in tensors if one == end] for end in (first, last)]
    return {name: tensors[name] for name in (*ends[0], *names, *ends[1])}


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
