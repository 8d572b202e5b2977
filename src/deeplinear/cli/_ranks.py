"""`dln ranks`: soft ranks of the layers of any saved network."""

from typing import Any

from deeplinear.cli._shell import Code, UsageError, numerics, one_line, print_json, print_table, say


def ranks_command(file: str, initial: str | None, prefix: str, last: str | None, layout: str, as_json: bool) -> Code:
    """Read weights, measure every layer, and tell the averages; gives the exit code."""
    numerics()
    from deeplinear.diagnosis import load_tensors
    from deeplinear.nonlinear import weight_ranks

    def measured(path: str) -> Any:
        try:
            return weight_ranks(load_tensors(path, prefix=prefix, last=last), layout)
        except (ValueError, TypeError, ImportError, OSError) as error:
            raise UsageError(f"{path}: {one_line(error)}") from None

    found = measured(file)
    before = None if initial is None else measured(initial)
    if before is not None:
        kinds = [[(layer.name, layer.shape) for layer in one.layers] for one in (found, before)]
        if kinds[0] != kinds[1]:
            other = next((b for a, b in zip(*kinds, strict=False) if a != b), "another number of layers")
            raise UsageError(f"--initial: {initial} must have the same layers as {file}, but has {other}.")
    averages = {
        which: {rank: found.average(which, rank) for rank in ("effective", "stable")}
        for which in ("all but last", "hidden")
    }
    if as_json:
        print_json(
            {
                "ok": True,
                "command": "ranks",
                "file": file,
                "layers": [
                    {"name": layer.name, "shape": list(layer.shape), "effective": layer.effective}
                    | {"stable": layer.stable}
                    | ({} if start is None else {"initial_effective": start.effective, "initial_stable": start.stable})
                    for layer, start in _pairs(found, before)
                ],
                "averages": averages,
                "by_shape": [
                    {"shape": list(shape), "effective": value, "stable": found.by_shape("stable")[shape]}
                    for shape, value in found.by_shape().items()
                ],
            }
        )
        return Code.fine
    more = () if before is None else ("over the initial ones",)
    print_table(
        [
            (layer.name, _size(layer.shape), f"{layer.effective:.2f}", f"{layer.stable:.2f}")
            + (() if start is None else (_ratios(layer, start),))
            for layer, start in _pairs(found, before)
        ],
        header=("layer", "shape", "effective rank", "stable rank", *more),
    )
    shapes = found.by_shape("stable")
    print_table(
        [
            *((which, f"{one['effective']:.2f}", f"{one['stable']:.2f}") for which, one in averages.items()),
            *(
                (f"layers {_size(shape)}", f"{value:.2f}", f"{shapes[shape]:.2f}")
                for shape, value in found.by_shape().items()
            ),
        ],
        header=("average over", "effective rank", "stable rank"),
    )
    say(
        f"The last layer is taken to be {found.layers[-1].name} (--last NAME for another). An average over layers of "
        "different shapes says as much of the shapes as of training."
    )
    return Code.fine


def _pairs(found: Any, before: Any) -> list[tuple[Any, Any]]:
    starts = [None] * len(found.layers) if before is None else before.layers
    return list(zip(found.layers, starts, strict=True))


def _size(shape: tuple[int, int]) -> str:
    return f"{shape[0]} x {shape[1]}"


def _ratios(layer: Any, start: Any) -> str:
    return f"{layer.effective / start.effective:.3f}, {layer.stable / start.stable:.3f}"
