"""Matrices and kernels of a saved network, whatever kind of network it is."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from deeplinear.diagnosis._names import as_array, chosen, flat, shape_of
from deeplinear.diagnosis._readers import read_file


def load_tensors(
    source: str | os.PathLike[str] | Mapping[str, Any], *, prefix: str = "", last: str | None = None
) -> dict[str, np.ndarray]:
    """Arrays with two axes or more of a file or a state dict by name, for `deeplinear.nonlinear.weight_ranks`.

    Files are those of `load_weights`. The order is that of the file; a safetensors file has its arrays in the order in
    which they were written, often that of the alphabet.

    Args:
        source: File or dictionary.
        prefix: Take only arrays whose names begin with this.
        last: Name of the layer that acts last, where that is not the last array.

    Example:
        >>> list(load_tensors({"fc": np.ones((2, 3)), "conv": np.ones((3, 1, 2, 2)), "bias": np.ones(2)}, last="fc"))
        ['conv', 'fc']
    """
    tree = flat(source if isinstance(source, Mapping) else read_file(Path(source))[0])
    found = {name: value for name, value in chosen(tree, prefix).items() if len(shape_of(name, value)) >= 2}
    if not found:
        raise ValueError("load_tensors: there must be an array with two axes or more, but there is none.")
    if last is not None:
        if last not in found:
            raise ValueError(f"load_tensors: last must name a layer, but is '{last}'. There are {', '.join(found)}.")
        found[last] = found.pop(last)
    return {name: as_array(name, value) for name, value in found.items()}
