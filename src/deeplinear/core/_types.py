"""Shared annotations: what arrays are, and what the word *params* means."""

from typing import TYPE_CHECKING, TypeAlias

import jax
import numpy as np
from jaxtyping import Float, Key, UInt32

if TYPE_CHECKING:
    Array: TypeAlias = jax.Array
else:
    Array: TypeAlias = jax.Array | np.ndarray | np.generic
"""An array, of NumPy or of JAX: formulas take both."""

Matrix: TypeAlias = Float[Array, "_ _"]
"""One matrix, (out, in)."""

Params: TypeAlias = tuple[Float[Array, "_ _"], ...]
"""Layers of a network, first-acting first: `params[0]` is $W_1$, of shape (out, in)."""

Stack: TypeAlias = tuple[Float[Array, "members _ _"], ...]
"""Layers of the members of an ensemble: `Params` with a leading member axis."""

if TYPE_CHECKING:
    RandomKey: TypeAlias = jax.Array | np.ndarray
else:
    RandomKey: TypeAlias = Key[Array, ""] | UInt32[Array, " words"]
"""One key of JAX's random numbers, or its words."""
