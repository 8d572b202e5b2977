"""Shared annotations: what the word *params* means."""

from typing import TypeAlias

from jaxtyping import Array, Float

Matrix: TypeAlias = Float[Array, "_ _"]
"""One matrix, (out, in)."""

Params: TypeAlias = tuple[Float[Array, "_ _"], ...]
"""Layers of a network, first-acting first: `params[0]` is $W_1$, of shape (out, in)."""

Stack: TypeAlias = tuple[Float[Array, "members _ _"], ...]
"""Layers of the members of an ensemble: `Params` with a leading member axis."""
