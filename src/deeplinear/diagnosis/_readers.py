"""Named arrays from files: .npz, .npy, .safetensors, and PyTorch's .pt and .pth."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deeplinear.readers import MOST_NUMBERS, Source, open_arrays, read_torch

WHERE = "load_weights"

ENDINGS = (".npz", ".npy", ".safetensors", ".pt", ".pth")

WRAPPERS = ("state_dict", "model_state_dict", "model")
"""Names under which training scripts keep the state dict of a checkpoint."""


def read_file(path: Path) -> tuple[Mapping[str, Any], list[str]]:
    """Return the arrays of a file by name, and notes about it."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"{WHERE}: a file of weights must end in {', '.join(ENDINGS)}, but is {path}.")
    source = Source.of(path, WHERE)
    if ending in (".pt", ".pth"):
        return _state_dict(source)
    return open_arrays(source), []


def check_size(shapes: Mapping[str, Any]) -> None:
    """Refuse arrays that are too large together, before they are read."""
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    if sum(sizes.values()) > MOST_NUMBERS:
        largest = max(sizes, key=lambda name: sizes[name])
        raise ValueError(
            f"{WHERE}: the arrays must have at most {MOST_NUMBERS:,} numbers together, but have "
            f"{sum(sizes.values()):,}; the largest is '{largest}' with shape {tuple(shapes[largest])}. Choose a part "
            "of them with prefix or names."
        )


def _state_dict(source: Source) -> tuple[Mapping[str, Any], list[str]]:
    """Return the tensors of a file of PyTorch, taken out of a checkpoint."""
    content, notes = read_torch(source), []
    if isinstance(content, Mapping):
        for wrapper in WRAPPERS:
            if isinstance(content.get(wrapper), Mapping):
                notes.append(f"The layers are those of the entry '{wrapper}' of the checkpoint.")
                content = content[wrapper]
                break
    if not isinstance(content, Mapping):
        if hasattr(content, "detach"):
            return {source.stem: content}, notes
        raise TypeError(f"{WHERE}: {source.name} must hold a state dict, but holds a {type(content).__name__}.")
    return dict(content), notes
