"""What figures of networks small enough to be seen whole share: colours, exact paths, cubes."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.exact import single_channel, single_channel_limit
from deeplinear.plots import COLOURS

BLUE, SADDLE, GREEN, PINK, *_, BLACK = COLOURS
"""Saddles are red in the paper; this is the red of our colours."""

EXACT = 1e-12
"""Identities of closed forms, relative to the sizes of the weights."""


@jax.jit
def exact_paths(times: Any, starts: Any, sigma: Any) -> tuple[Any, Any]:
    """Paths (start, time, weight) of two layers of half of the weights each, and their ends."""

    def one(start: Any) -> tuple[Any, Any]:
        first, second = jnp.split(start, 2)
        path = single_channel(times, first, second, sigma)
        end = single_channel_limit(first, second, sigma)
        return jnp.concatenate(path, axis=-1), jnp.concatenate(end)

    return jax.vmap(one)(starts)


def path_times(horizon: float, points: int) -> np.ndarray:
    """Zero, then evenly in the logarithm: paths are fast first and slow last."""
    return np.concatenate([[0.0], np.geomspace(1e-3, horizon, points - 1)])


def dress(axis: Any, reach: float, elevation: float, azimuth: float, *, size: float) -> None:
    """A cube with ticks away from its corners, where those of two axes meet, and upright names, seen from a side."""
    ticks = np.linspace(-0.5, 0.5, 3) * (math.floor(reach) or reach)
    box = (-reach, reach)
    axis.set(xlim=box, ylim=box, zlim=box, xticks=ticks, yticks=ticks, zticks=ticks)
    axis.tick_params(labelsize=size, pad=-2)
    for name in (axis.xaxis, axis.yaxis, axis.zaxis):
        name.set_rotate_label(False)
    axis.zaxis.label.set_rotation(0)
    axis.view_init(elev=elevation, azim=azimuth)
    axis.set_box_aspect((1, 1, 1), zoom=0.9)
