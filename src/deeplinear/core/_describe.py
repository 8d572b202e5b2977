"""Modules in words, for records that people read."""

import dataclasses
from typing import Any

import jax
import numpy as np


def describe(item: Any) -> str:
    """A module as `Name(field=value, …)`: numbers in full, arrays by shape.

    Example:
        >>> describe(DeepLinear((3, 2)))
        'DeepLinear(widths=(3, 2))'
    """
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        inside = ", ".join(
            f"{field.name}={describe(getattr(item, field.name))}"
            for field in dataclasses.fields(item)
            if field.repr and not field.name.startswith("_")
        )
        return f"{type(item).__name__}({inside})"
    if isinstance(item, jax.Array | np.ndarray):
        if item.ndim == 0:
            return f"{item.item():g}"
        return f"array{tuple(item.shape)}"
    if callable(item):
        return getattr(item, "__name__", type(item).__name__)
    return repr(item)
