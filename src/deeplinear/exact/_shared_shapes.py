"""Calls of a few shapes, so that they share compiled code, and NumPy where everything can be seen."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from deeplinear.core import Array, is_concrete

BUCKET = 4  # depths are filled up to a multiple of this, so that they share compiled code
SHORTEST = 64  # modes and times are filled up to a power of two from here on, to the same end


def seen(*arrays: Array) -> tuple[Any, ...]:
    """NumPy and arrays of it where all can be seen, else JAX and the arrays."""
    if all(map(is_concrete, arrays)):
        return np, *map(np.asarray, arrays)
    return jnp, *arrays


def longer(xp: Any, array: Any, axis: int = 0) -> Any:
    """An array with copies of its last entries, up to one of few lengths, so that calls share compiled code.

    Only where its values are seen: not within the code of others.
    """
    length = array.shape[axis]
    if xp is jnp or length == 0:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, max(SHORTEST, 1 << (length - 1).bit_length()) - length)
    return np.pad(array, widths, mode="edge")


def mode_count(xp: Any, modes: int) -> Any:
    """How many modes there are, where they are seen."""
    return np.asarray(modes) if xp is np and modes else None


def filled_up(xp: Any, strengths: Any) -> tuple[Any, Any]:
    """Modes along one axis, with layers of strength 1 up to the next multiple of the bucket, and how many are true."""
    depth = strengths.shape[-1]
    flat = longer(xp, strengths.reshape(-1, depth))
    fill = xp.ones((flat.shape[0], -depth % BUCKET))
    return xp.concatenate([flat, fill], axis=1), np.asarray(depth, dtype=float)
