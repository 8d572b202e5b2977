"""Weights from where people keep them: arrays, files, state dicts, modules, pairs of attention and of adapters."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from deeplinear.core import check_count, check_shape
from deeplinear.diagnosis._modules import Named, equinox_layers, is_torch_module, torch_layers
from deeplinear.diagnosis._names import (
    PACKED,
    SCALE,
    as_array,
    beside,
    chain,
    check_bias,
    check_chain,
    chosen,
    find_pair,
    flat,
    rounding_of,
    shape_of,
)
from deeplinear.diagnosis._readers import WHERE, check_size, read_file

BETWEEN = "What acts between the layers is not stored with them; that nothing does is taken for granted."
"""Note on state dicts."""


@dataclasses.dataclass(frozen=True, eq=False)
class Weights:
    """Layers of a network, as `diagnose` takes them.

    Attributes:
        params: Layers as (out, in), first-acting first, in 64-bit numbers.
        names: What they were called.
        notes: What was left out, turned over or taken for granted.
        source: Where they come from.
        rounding: Relative distance of neighbouring numbers of the coarsest kind they were stored in; hypotheses are
            measured no finer than that.
    """

    params: tuple[np.ndarray, ...]
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    source: str = ""
    rounding: float = 2.0**-52

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of all layers, input first."""
        return (self.params[0].shape[1], *(layer.shape[0] for layer in self.params))

    def __str__(self) -> str:
        head = f"{'-'.join(map(str, self.widths))} network of {self.source}"
        return "\n".join(
            [head, *(f"  {n} {w.shape}" for n, w in zip(self.names, self.params, strict=True)), *self.notes]
        )


def load_weights(
    source: Any,
    *,
    prefix: str = "",
    names: Sequence[str] | None = None,
    transpose: bool = False,
    heads: int = 1,
    head: int = 0,
) -> Weights:
    r"""Layers of a network from a file, a state dict, a module, or plain matrices.

    Files end in .npz, .npy, .safetensors (F64, F32, F16 or BF16), .pt or .pth; the last two need PyTorch and hold a
    state dict. Modules are chains of linear layers, of PyTorch or of equinox: they are called on random inputs and
    compared with the product of their layers. State dicts are dictionaries of arrays, nested or not. Layers whose names
    differ by numbers only are put in the order of the numbers; else the order is that of the dictionary, and of a
    safetensors file, which has none, the only one that fits. Two matrices `q_proj` and `k_proj`, or `lora_A` and
    `lora_B`, are taken as a two-layer network.

    Args:
        source: File, dictionary, module, or matrices, first-acting first.
        prefix: Take only arrays whose names begin with this.
        names: Take these arrays, in this order, first-acting first.
        transpose: The arrays are stored as (in, out). Those that are called `kernel` are turned over without it.
        heads: Number of attention heads in `q_proj` and `k_proj`.
        head: Which of them to take, from 0.

    Returns:
        The layers, their names, and notes on what was left out.

    Raises:
        ValueError: For biases that are not zero, layers that are not linear, shapes that do not follow one another, an
            order that cannot be told; each by name.
        TypeError: For arrays that do not hold real numbers, and for a source of another kind.
        ImportError: For a file of PyTorch where it is not installed.

    Example:
        >>> load_weights({"0.weight": np.ones((3, 2)), "2.weight": np.ones((1, 3))}).widths
        (2, 3, 1)
    """
    if isinstance(source, Weights):
        return source
    ordered, notes, where = True, [], type(source).__name__
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        tree, notes = read_file(path)
        ordered, where = path.suffix.lower() != ".safetensors", str(path)
    elif isinstance(source, Mapping):
        tree = flat(source)
    elif isinstance(source, eqx.Module):
        _check_unchosen(prefix, names, transpose)
        return _whole(equinox_layers(source), where)
    elif is_torch_module(source) and not prefix and names is None:
        _check_unchosen(prefix, names, transpose)
        return _whole(torch_layers(source), where)
    elif hasattr(source, "state_dict"):
        tree = flat(source.state_dict())
    else:
        return _plain(source, prefix, names, transpose)
    return _named(flat(tree), prefix, names, transpose, (heads, head), ordered, where, notes)


def attention_pair(query: Any, key: Any, *, heads: int = 1, head: int = 0) -> Weights:
    r"""The matrix $W_Q^\top W_K$ of attention scores as a two-layer network.

    $W_K$ acts first and $W_Q^\top$ second; the hidden layer is the head. The factor $1/\sqrt d$ of the scores is left
    out.

    Args:
        query: $W_Q$ as (heads · d, model).
        key: $W_K$, with as many rows.
        heads: Number of heads in them, one above the other.
        head: Which of them to take, from 0.

    Returns:
        The two layers.

    Example:
        >>> attention_pair(np.ones((4, 3)), np.ones((4, 3)), heads=2, head=1).widths
        (3, 2, 3)
    """
    where = "attention_pair"
    check_count(where, "heads", heads, at_least=1)
    check_count(where, "head", head, at_most=heads - 1)
    queries, keys = as_array("query", query), as_array("key", key)
    check_shape(where, "query", queries, (None, None))
    check_shape(where, "key", keys, (queries.shape[0], None))
    if queries.shape[0] % heads:
        raise ValueError(f"{where}: heads must divide the {queries.shape[0]} rows of query, but is {heads}.")
    size = queries.shape[0] // heads
    rows = slice(head * size, (head + 1) * size)
    layers = (keys[rows].copy(), queries[rows].T.copy())
    check_chain(("key", "query"), layers)
    source, rounding = f"attention, head {head} of {heads}", max(rounding_of(query), rounding_of(key))
    return Weights(layers, ("key", "query"), (SCALE["attention"],), source, rounding)


def lora_pair(first: Any, second: Any) -> Weights:
    r"""An adapter $\Delta W = BA$ as a two-layer network: $A$ acts first. Its factor $\alpha/r$ is left out.

    Args:
        first: $A$, (rank, in), often called `lora_A`.
        second: $B$, (out, rank), often called `lora_B`.

    Returns:
        The two layers.

    Example:
        >>> lora_pair(np.ones((2, 8)), np.zeros((5, 2))).widths
        (8, 2, 5)
    """
    layers = (as_array("first", first), as_array("second", second))
    check_shape("lora_pair", "first", layers[0], (None, None))
    check_shape("lora_pair", "second", layers[1], (None, layers[0].shape[0]))
    check_chain(("A", "B"), layers)
    rounding = max(rounding_of(first), rounding_of(second))
    return Weights(layers, ("A", "B"), (SCALE["lora"],), "adapter", rounding)


# ---- The kinds of sources --------------------------------------------------------------------------------------------


def _whole(found: Named, where: str) -> Weights:
    layers, names, notes, rounding = found
    return Weights(layers, names, tuple(notes), where, rounding)


def _check_unchosen(prefix: str, names: Sequence[str] | None, transpose: bool) -> None:
    """Refuse to choose by name from a source without names."""
    for name, given in (("prefix", bool(prefix)), ("names", names is not None), ("transpose", transpose)):
        if given:
            raise ValueError(f"{WHERE}: {name} must be left out for a source without names, but is given.")


def _plain(source: Any, prefix: str, names: Sequence[str] | None, transpose: bool) -> Weights:
    matrix = isinstance(source, np.ndarray | jax.Array) and source.ndim == 2
    if isinstance(source, bytes) or not (matrix or isinstance(source, Iterable)):
        raise TypeError(
            f"{WHERE}: source must be a file, a dictionary of arrays, a module, or matrices first-acting first, but is "
            f"a {type(source).__name__}."
        )
    given = (source,) if matrix else tuple(source)
    tree = {f"params[{i}]": value for i, value in enumerate(given)}
    if not tree:
        raise ValueError(f"{WHERE}: source must hold at least one layer, but is empty.")
    _check_unchosen(prefix, names, False)
    layers, found, notes = chain(tree, None, ordered=True, transpose=transpose)
    return Weights(layers, found, tuple(notes), "plain matrices", max(map(rounding_of, given)))


def _named(
    tree: dict[str, Any],
    prefix: str,
    names: Sequence[str] | None,
    transpose: bool,
    heads: tuple[int, int],
    ordered: bool,
    where: str,
    notes: list[str],
) -> Weights:
    kept = chosen(tree, prefix)
    if names is None:
        found = _pair_of(kept, heads)
        if found is not None:
            if transpose:
                raise ValueError(f"{WHERE}: transpose must be left out for a pair, which is (out, in), but is given.")
            return dataclasses.replace(found, notes=(*notes, *found.notes), source=where)
    if heads != (1, 0):
        raise ValueError(f"{WHERE}: heads and head must be left out where there is no q_proj and k_proj.")
    layers, order, more = chain(kept, names, ordered=ordered, transpose=transpose)
    if len(layers) > 1 and any(name.endswith(("weight", "kernel")) for name in order):
        more.append(BETWEEN)
    return Weights(layers, order, (*notes, *more), where, max(rounding_of(kept[name]) for name in order))


def _pair_of(tree: dict[str, Any], heads: tuple[int, int]) -> Weights | None:
    """The one pair of a state dict as a network, if there is one."""
    packed = [name for name in tree if name.endswith(PACKED)]
    pair = find_pair(tree)
    notes: list[str] = []
    read = packed if pair is None else pair[1:]
    check_size({name: shape_of(name, tree[name]) for name in read})
    if pair is None and len(packed) == 1:
        name = packed[0]
        array = as_array(name, tree[name])
        if array.ndim != 2 or array.shape[0] % 3:
            raise ValueError(f"{WHERE}: '{name}' must be three matrices above each other, but has shape {array.shape}.")
        size = array.shape[0] // 3
        bias = name.replace("weight", "bias")
        if tree.get(bias) is not None:
            notes.append(check_bias(bias, as_array(bias, tree[bias])[: 2 * size]))
        found = attention_pair(array[:size], array[size : 2 * size], heads=heads[0], head=heads[1])
        used, labels = {name, bias}, (f"{name} (key)", f"{name} (query)")
        rounding = rounding_of(tree[name])
    elif pair is not None:
        kind, first, second = pair
        for name in (first, second):
            if beside(name) != name and beside(name) in tree:
                notes.append(check_bias(beside(name), as_array(beside(name), tree[beside(name)])))
        arrays = as_array(first, tree[first]), as_array(second, tree[second])
        if kind == "lora":
            found = lora_pair(*arrays)
        else:
            found = attention_pair(arrays[1], arrays[0], heads=heads[0], head=heads[1])
        used, labels = {first, second, beside(first), beside(second)}, (first, second)
        rounding = max(rounding_of(tree[first]), rounding_of(tree[second]))
    else:
        return None
    others = len(set(tree) - used)
    if others:
        notes.append(
            f"{others} other array{'s' * (others > 1)} beside the pair {'are' if others > 1 else 'is'} left out."
        )
    return dataclasses.replace(found, names=labels, notes=(*found.notes, *notes), rounding=rounding)
