"""Numbers that users give, as arrays."""

from typing import Any

import numpy as np

from deeplinear.core._types import Array
from deeplinear.core._xp import is_program


def as_array(value: Any, dtype: type | None = None) -> Any:
    """Numbers as an array of NumPy; what is traced, or lies on an accelerator, as an array of JAX.

    The array has memory of its own: what is written into `value` later does not change it.

    Args:
        value: An array, a number, or nested lists of numbers.
        dtype: Type of the numbers; their own if left out.

    Example:
        >>> as_array([1, 2], float)
        array([1., 2.])
    """
    if is_program(value):
        import jax.numpy

        array = jax.numpy.asarray(value, dtype=dtype)
        _refuse_others(array)
        return array
    array = np.array(native(np.asarray(value)))
    _refuse_others(array)
    return array if dtype is None else array.astype(dtype, copy=False)


def _refuse_others(array: np.ndarray | Array) -> None:
    """Refuse complex numbers, texts, objects and dates."""
    kind = np.dtype(array.dtype).kind if isinstance(array, np.ndarray) else ""
    if np.issubdtype(array.dtype, np.complexfloating):
        raise TypeError("as_array: value must be real, but is complex.")
    if kind and kind in "OSUmM":
        raise TypeError(f"as_array: value must be an array of numbers, but holds {array.dtype}.")


def native(array: np.ndarray) -> np.ndarray:
    """Numbers in the byte order of the machine and of a type that JAX has; JAX computes nonsense with others."""
    if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
        return array.astype(float)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
