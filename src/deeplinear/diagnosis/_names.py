"""From named arrays to layers: which are layers, in which order, and pairs that act as two-layer networks."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from deeplinear.diagnosis._readers import WHERE, check_size
from deeplinear.readers import StoredArray

MOST_ORDERS = 6
"""Most layers without numbers in their names whose orders are all tried."""

PAIRS = {"attention": ("k_proj", "q_proj"), "lora": ("lora_A", "lora_B")}
"""Names of two matrices that act as one network: the layer that acts first, then the other."""

PACKED = "in_proj_weight"
"""Query, key and value matrices of PyTorch's `MultiheadAttention`, one above the other."""

SCALE = {
    "attention": "The pair is W_Qᵀ W_K as it stands in the scores; their factor 1/√d is left out.",
    "lora": "The pair is B A as it stands in the update; its factor alpha/r is left out.",
}


def as_array(name: str, value: Any) -> np.ndarray:
    """An array of a library as 64-bit numbers, or a refusal that names it."""
    if isinstance(value, StoredArray):
        if value.dtype.kind not in "iufc":
            raise _no_numbers(name, value.kind)
        value = value.read()
    if hasattr(value, "detach"):  # a tensor of PyTorch, whose bfloat16 NumPy does not know
        value = value.detach().cpu()
        value = value.double().numpy() if value.is_floating_point() else value.numpy()
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        raise TypeError(f"{WHERE}: '{name}' must be an array of numbers, but is a {type(value).__name__}.") from None
    if array.dtype.kind == "V" or array.dtype.name == "bfloat16":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError):
            pass
    if array.dtype.kind == "c":
        raise TypeError(f"{WHERE}: '{name}' must be real, but is complex.")
    if array.dtype.kind not in "iuf":
        raise _no_numbers(name, array.dtype)
    with np.errstate(invalid="ignore"):  # signalling NaNs become quiet ones
        return array.astype(np.float64)


def _no_numbers(name: str, dtype: object) -> TypeError:
    return TypeError(f"{WHERE}: '{name}' must be an array of numbers, but holds {dtype}; leave it out.")


def shape_of(name: str, value: Any) -> tuple[int, ...]:
    """Shape of an array, without reading one that lies in a file."""
    return tuple(value.shape) if hasattr(value, "shape") else as_array(name, value).shape


def rounding_of(value: Any) -> float:
    """Relative distance of neighbouring numbers of the kind an array holds; that of 64 bits where it is not known."""
    double = 2.0**-52
    if isinstance(value, StoredArray):
        return max(value.rounding, double)
    kind = str(getattr(value, "dtype", "")).rpartition(".")[2]  # torch.float32 is one of them
    return {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}.get(kind, double)


def flat(tree: Mapping[Any, Any], above: str = "") -> dict[str, Any]:
    """Nested dictionaries as one, names joined by points."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{above}.{key}" if above else str(key)
        found |= flat(value, name) if isinstance(value, Mapping) else {name: value}
    return found


def chosen(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The entries whose names begin with a prefix."""
    kept = {name: value for name, value in tree.items() if name.startswith(prefix)}
    if kept:
        return kept
    have = ", ".join(itertools.islice(tree, 8)) + (", …" if len(tree) > 8 else "")
    if not tree:
        raise ValueError(f"{WHERE}: there must be at least one array, but there is none.")
    raise ValueError(f"{WHERE}: prefix must begin the name of an array, but is '{prefix}'. There are {have}.")


# ---- Pairs -----------------------------------------------------------------------------------------------------------


def find_pair(tree: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """The one pair there is, as its kind and the names of its first and its second matrix; `None` if there is none."""
    found = []
    for kind, (first, second) in PAIRS.items():
        for name in tree:
            other = name.replace(first, second)
            if first in name and other in tree and not name.endswith("bias"):
                found.append((kind, name, other))
    if len(found) > 1:
        some = ", ".join(f"'{name}'" for _, name, _ in found[:4])
        raise ValueError(
            f"{WHERE}: prefix must leave one pair of matrices, but leaves {len(found)} ({some}"
            f"{', …' if len(found) > 4 else ''}); give a longer prefix."
        )
    return found[0] if found else None


def beside(name: str) -> str:
    """Name of the bias that belongs to a weight."""
    return re.sub(r"(weight|kernel)$", "bias", name)


# ---- Chains ----------------------------------------------------------------------------------------------------------


def check_bias(name: str, array: np.ndarray) -> str:
    """What is left out, if it is zero; a refusal otherwise."""
    if np.any(array):
        size = float(np.max(np.abs(array)))
        raise ValueError(
            f"{WHERE}: the bias '{name}' must be zero, but its largest entry is {size:.3g}. These networks have no "
            "biases: train without them, or centre the data."
        )
    return f"The bias '{name}' is zero and left out."


def chain(
    tree: Mapping[str, Any], names: Sequence[str] | None, *, ordered: bool, transpose: bool
) -> tuple[tuple[np.ndarray, ...], tuple[str, ...], list[str]]:
    """Layers first-acting first, their names, and notes; or a refusal that names what does not fit.

    `ordered` says whether the order of the arrays means something, as in a dictionary a program made.
    """
    notes: list[str] = []
    if names is None:
        biases = [name for name in tree if name.rpartition(".")[2] == "bias" or name.endswith("_bias")]
        kept = [name for name in tree if name not in biases]
        if not kept:
            raise ValueError(f"{WHERE}: there must be at least one matrix, but there are only {', '.join(tree)}.")
        advice = ", the weight of a linear layer", "; leave it out with prefix or names"
    else:
        missing = [name for name in names if name not in tree]
        if missing:
            raise ValueError(f"{WHERE}: names must be those of arrays, but '{missing[0]}' is not in {list(tree)[:8]}.")
        if len(set(names)) < len(names):
            raise ValueError(f"{WHERE}: names must differ from each other, but are {', '.join(names)}.")
        kept = list(names)
        biases = [beside(name) for name in names if beside(name) != name and beside(name) in tree]
        advice = "", ""
    shapes = {name: shape_of(name, tree[name]) for name in kept}
    for name, shape in shapes.items():
        if len(shape) != 2:
            raise ValueError(f"{WHERE}: '{name}' must be a matrix{advice[0]}, but has shape {shape}{advice[1]}.")
    check_size(shapes)
    notes += [check_bias(name, as_array(name, tree[name])) for name in biases]
    matrices = {name: as_array(name, tree[name]) for name in kept}
    kernels = [name for name in matrices if name.rpartition(".")[2] == "kernel"]
    if transpose or kernels:
        matrices = {n: a.T if transpose or n in kernels else a for n, a in matrices.items()}
        notes.append("The layers are stored as (in, out) and are transposed.")
    order = tuple(names) if names is not None else _order(matrices, ordered, notes)
    layers = tuple(matrices[name] for name in order)
    check_chain(order, layers, transpose)
    return layers, order, notes


def check_chain(names: Sequence[str], layers: Sequence[np.ndarray], transpose: bool = False) -> None:
    """Refuse layers that do not follow one another, are empty or hold numbers that are not finite."""
    for name, layer in zip(names, layers, strict=True):
        if 0 in layer.shape:
            raise ValueError(f"{WHERE}: '{name}' must have rows and columns, but has shape {layer.shape}.")
        if not np.all(np.isfinite(layer)):
            raise ValueError(f"{WHERE}: '{name}' must be finite, but holds NaN or infinite numbers.")
    pairs = zip(itertools.pairwise(names), itertools.pairwise(layers), strict=True)
    for (below, above), (first, second) in pairs:
        if second.shape[1] != first.shape[0]:
            hint = "" if transpose else "; if they are stored as (in, out), give transpose=True"
            raise ValueError(
                f"{WHERE}: '{above}' must take the {first.shape[0]} outputs of '{below}', as (out, in), but has shape "
                f"{second.shape}. Give the layers by names, first-acting first{hint}."
            )


def _order(matrices: Mapping[str, np.ndarray], ordered: bool, notes: list[str]) -> tuple[str, ...]:
    names = tuple(matrices)
    if len(names) == 1:
        return names
    numbers = [tuple(map(int, re.findall(r"\d+", name))) for name in names]
    skeletons = {re.sub(r"\d+", "#", name) for name in names}
    if len(skeletons) == 1 and all(numbers) and len(set(numbers)) == len(names):
        return tuple(name for _, name in sorted(zip(numbers, names, strict=True)))
    if ordered:
        notes.append(f"The order of the layers is that in which they are given: {', '.join(names)}.")
        return names
    fitting = _orders(matrices) if len(names) <= MOST_ORDERS else []
    if len(fitting) == 1:
        notes.append(f"The order of the layers is the only one that fits: {', '.join(fitting[0])}.")
        return fitting[0]
    raise ValueError(
        f"{WHERE}: the order of the layers must be told, as the names {', '.join(names[:6])} do not say it; give "
        "names, first-acting first."
    )


def _orders(matrices: Mapping[str, np.ndarray]) -> list[tuple[str, ...]]:
    """Orders in which every layer takes what the one before it gives."""

    def fits(order: Iterable[str]) -> bool:
        return all(matrices[b].shape[1] == matrices[a].shape[0] for a, b in itertools.pairwise(order))

    return [order for order in itertools.permutations(matrices) if fits(order)]
