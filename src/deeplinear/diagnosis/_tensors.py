"""Matrices and kernels of a saved network, whatever kind of network it is."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deeplinear.core import near_name
from deeplinear.diagnosis._names import as_array, chosen, flat, shape_of
from deeplinear.diagnosis._readers import read_file


def load_tensors(
    source: str | os.PathLike[str] | Mapping[str, Any],
    *,
    prefix: str = "",
    skip: Sequence[str] = (),
    first: str | None = None,
    last: str | None = None,
) -> dict[str, np.ndarray]:
    """Arrays with two axes or more of a file or a state dict by name, for `deeplinear.nonlinear.weight_ranks`.

    Files are those of `load_weights`. The order is that of the file; a safetensors file has its arrays in the order in
    which they were written, often that of the alphabet.

    Args:
        source: File or dictionary.
        prefix: Take only arrays whose names begin with this.
        skip: Names of arrays to leave out, such as positions or a mask.
        first: Name of the layer that acts first, where that is not the first array.
        last: Name of the layer that acts last, where that is not the last array.

    Example:
        >>> list(load_tensors({"fc": np.ones((2, 3)), "conv": np.ones((3, 1, 2, 2)), "bias": np.ones(2)}, last="fc"))
        ['conv', 'fc']
    """
    tree = flat(source if isinstance(source, Mapping) else read_file(Path(source))[0])
    for name in skip:
        if name not in tree:
            raise ValueError(f"load_tensors: skip must name arrays, but '{name}' is none. {near_name(name, tree)}")
    kept = {name: value for name, value in chosen(tree, prefix).items() if name not in skip}
    found = {name: value for name, value in kept.items() if len(shape_of(name, value)) >= 2}
    if not found:
        raise ValueError("load_tensors: there must be an array with two axes or more, but there is none.")
    for end, layer in (("first", first), ("last", last)):
        if layer is not None and layer not in found:
            raise ValueError(f"load_tensors: {end} must name a layer, but is '{layer}'. There are {', '.join(found)}.")
    if first is not None and first == last and len(found) > 1:
        raise ValueError(f"load_tensors: first and last must be two layers, but both are '{first}'.")
    if first is not None:
        found = {first: found.pop(first)} | found
    if last is not None:
        found[last] = found.pop(last)
    return {name: as_array(name, value) for name, value in found.items()}
