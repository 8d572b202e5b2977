"""Numbers that users give, as arrays."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core._errors import is_concrete


def as_array(value: Any, dtype: type | None = None) -> jax.Array:
    """`jnp.asarray`, which compiles a program for every new shape, without one where NumPy can see the numbers.

    The array has memory of its own: what is written into `value` later does not change it.

    Args:
        value: An array, a number, or nested lists of numbers.
        dtype: Type of the numbers; their own if left out.

    Example:
        >>> as_array([1, 2], float)
        Array([1., 2.], dtype=float64)
    """
    if _for_numpy(value, dtype):
        try:
            array = np.array(native(np.asarray(value)))
        except ValueError:  # rows of different lengths: JAX says so
            return jnp.asarray(value, dtype=dtype)
        _refuse_others(array)
        if array.dtype.kind in "fiub":
            return jax.device_put(array if dtype is None else array.astype(dtype, copy=False))
    if isinstance(value, jax.Array):
        _refuse_others(value)
    array = jnp.asarray(value, dtype=dtype)
    _refuse_others(array)
    return array


def _refuse_others(array: np.ndarray | jax.Array) -> None:
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


def _for_numpy(value: Any, dtype: type | None) -> bool:
    """Whether NumPy makes of numbers what JAX would; the type of JAX's own and of single ones is for JAX to say."""
    if isinstance(value, jax.Array):
        return False
    leaves = jax.tree.leaves(value)
    if dtype is not None:
        return all(map(is_concrete, leaves))
    if isinstance(value, tuple | list):
        return all(isinstance(leaf, np.ndarray | np.generic | int | float) for leaf in leaves)
    return isinstance(value, np.ndarray | np.generic)
