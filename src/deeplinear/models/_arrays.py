"""Numbers that users give, as arrays."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def as_array(value: Any, dtype: type | None = None) -> jax.Array:
    """`jnp.asarray`, which compiles a program for every new shape, without one where the numbers are NumPy's or plain.

    Args:
        value: An array or nested lists of numbers.
        dtype: Type of the numbers; their own if left out.

    Example:
        >>> as_array([1, 2], float)
        Array([1., 2.], dtype=float64)
    """
    given = (np.ndarray, np.generic) if dtype is None else (np.ndarray, np.generic, int, float)
    if isinstance(value, given) or (isinstance(value, tuple | list) and _plain(value)):
        try:
            array = np.array(value, dtype=None)
        except ValueError:  # rows of different lengths: JAX says so
            return jnp.asarray(value, dtype=dtype)
        if array.dtype.kind in "fiub":
            return jax.device_put(array if dtype is None else array.astype(dtype, copy=False))
    return jnp.asarray(value, dtype=dtype)


def _plain(value: Any) -> bool:
    return all(isinstance(leaf, np.ndarray | np.generic | int | float) for leaf in jax.tree.leaves(value))
