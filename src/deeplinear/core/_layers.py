"""Layers as a user gives them, looked at before anything is computed."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from deeplinear.core._arrays import native
from deeplinear.core._errors import check_shape


def checked_layer(where: str, name: str, value: Any) -> np.ndarray | Array:
    """Return an array of real numbers as the package computes with it; an array of JAX stays as it is."""
    array = value
    if not isinstance(value, jax.Array | np.ndarray):
        try:
            array = np.asarray(value)
        except ValueError:
            raise TypeError(f"{where}: {name} must be a matrix, but its rows are of different lengths.") from None
    kind = np.dtype(array.dtype).kind
    if kind == "c":
        raise TypeError(f"{where}: {name} must be real, but is complex.")
    if not jnp.issubdtype(array.dtype, jnp.number) and kind != "b":
        raise TypeError(f"{where}: {name} must be a matrix of numbers, but is {value!r}.")
    return native(array) if isinstance(array, np.ndarray) else array


def checked_params(where: str, name: str, params: Any) -> tuple[np.ndarray | Array, ...]:
    """Layers as matrices, from anything that holds matrices one after another."""
    if isinstance(params, str | dict) or not isinstance(params, Iterable):
        raise TypeError(f"{where}: {name} must be a tuple of matrices, first-acting first, but is {params!r}.")
    layers = tuple(checked_layer(where, f"{name}[{i}]", layer) for i, layer in enumerate(params))
    if not layers:
        raise ValueError(f"{where}: {name} must hold at least one layer, but is empty.")
    for position, layer in enumerate(layers):
        check_shape(where, f"{name}[{position}]", layer, (None, None))
    return layers
