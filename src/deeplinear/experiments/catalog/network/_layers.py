"""What figures of variants of the flow share: Gaussian layers, and records of all layers."""

import jax.numpy as jnp
import numpy as np

from deeplinear.core import Params, Trajectory


def recorded_layers(run: Trajectory, shapes: tuple[tuple[int, int], ...]) -> list[np.ndarray]:
    """Recorded layers, each with a leading axis of times."""
    cuts = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
    pieces = np.split(np.asarray(run["weights"]), cuts, axis=-1)
    return [piece.reshape(*piece.shape[:-1], *shape) for piece, shape in zip(pieces, shapes, strict=True)]


def gaussian_layers(rng: np.random.Generator, shapes: tuple[tuple[int, int], ...], scale: float) -> Params:
    return tuple(jnp.asarray(scale * rng.standard_normal(shape), dtype=float) for shape in shapes)
