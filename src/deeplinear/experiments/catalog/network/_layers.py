"""What figures of variants of the flow share: Gaussian layers, records of all layers, what layers conserve."""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np

from deeplinear.core import Params, Trajectory, flatten
from deeplinear.models import Problem
from deeplinear.probes import probe


@probe(dims=("weight",))
def weights(t: Any, params: Params, problem: Problem) -> Any:
    """All entries of all layers."""
    return flatten(params)


def recorded_layers(run: Trajectory, shapes: tuple[tuple[int, int], ...]) -> list[np.ndarray]:
    """Recorded layers, each with a leading axis of times."""
    cuts = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
    pieces = np.split(np.asarray(run["weights"]), cuts, axis=-1)
    return [piece.reshape(*piece.shape[:-1], *shape) for piece, shape in zip(pieces, shapes, strict=True)]


def gaussian_layers(rng: np.random.Generator, shapes: tuple[tuple[int, int], ...], scale: float) -> Params:
    return tuple(jnp.asarray(scale * rng.standard_normal(shape), dtype=float) for shape in shapes)


def laws_of(layers: list[np.ndarray]) -> list[np.ndarray]:
    """W_{l+1}ᵀW_{l+1} − W_lW_lᵀ at all times."""
    return [
        np.swapaxes(above, -1, -2) @ above - below @ np.swapaxes(below, -1, -2)
        for below, above in itertools.pairwise(layers)
    ]
