"""Modules in words, for records that people read."""

import dataclasses
from typing import Any

import jax
import numpy as np


def describe(item: Any, *, numbers: bool = True) -> str:
    """A module as `Name(field=value, …)`: numbers in full, arrays by shape.

    Args:
        item: A module or a value.
        numbers: Whether to name fields that hold one number; without them the text says what kind of thing it is.

    Example:
        >>> describe(DeepLinear((3, 2)))
        'DeepLinear(widths=(3, 2))'
    """
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        inside = ", ".join(
            f"{field.name}={describe(getattr(item, field.name), numbers=numbers)}"
            for field in dataclasses.fields(item)
            if field.repr and not field.name.startswith("_") and (numbers or not _is_number(getattr(item, field.name)))
        )
        return f"{type(item).__name__}({inside})"
    if isinstance(item, jax.Array | np.ndarray):
        if item.ndim == 0:
            return f"{item.item():g}"
        return f"array{tuple(item.shape)}"
    if callable(item):
        return getattr(item, "__name__", type(item).__name__)
    return repr(item)


def _is_number(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray) and value.ndim == 0
