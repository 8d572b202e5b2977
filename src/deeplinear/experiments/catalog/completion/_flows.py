"""What the completion figures share: many flows to their ends, and how curves over depth and scale are drawn."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from deeplinear.core import (
    RESULTS,
    Array,
    RandomKey,
    Trajectory,
    check_count,
    check_number,
    random,
    spectrum,
    spectrum_effective_rank,
    spectrum_stable_rank,
)
from deeplinear.dynamics import GradientFlow, ensemble, until
from deeplinear.experiments._base import Context
from deeplinear.models import Completion, DeepLinear, Problem
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import loss

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Markers of the curves, in step with the colours."""

EXACT = 1e-9
"""Slack with which scales are compared, so that 1e-5 is not above 1e-5."""

END = 2**31 - 1
"""Steps between two records when only the end is wanted."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Where flows ended: spectrum of the product, loss and time reached, and whether the loss asked for was."""

    singular_values: Float[Array, "*batch modes"]
    loss: Float[np.ndarray, "*batch"]
    time: Float[np.ndarray, "*batch"]
    finished: Bool[np.ndarray, "*batch"]

    @property
    def effective_rank(self) -> Float[np.ndarray, "*batch"]:
        """Effective rank of the product."""
        return np.asarray(jax.jit(spectrum_effective_rank)(self.singular_values))

    @property
    def stable_rank(self) -> Float[np.ndarray, "*batch"]:
        """Stable rank of the product."""
        return np.asarray(jax.jit(spectrum_stable_rank)(self.singular_values))


def flow_limits(
    context: Context,
    target: Any,
    mask: Any,
    layers: Sequence[Any],
    *,
    rtol: float,
    below: float,
    max_steps: int,
) -> Limits:
    """Flow to a given loss from many starts at once; square layers of one width.

    Args:
        context: Of the run.
        target: Matrices to complete, (..., d, d).
        mask: Observed entries, (..., d, d).
        layers: Layers at the start, first-acting first, (..., d, d); leading axes are broadcast against those of
            target and mask.
        rtol: Relative tolerance of the flow.
        below: Loss to stop at.
        max_steps: Steps of one flow; one that needs more is kept as it is and marked.
    """
    arrays = np.broadcast_arrays(*(np.asarray(item, dtype=float) for item in (target, mask, *layers)))
    batch, width = arrays[0].shape[:-2], arrays[0].shape[-1]
    targets, masks, *params = (np.reshape(item, (-1, width, width)) for item in arrays)
    trajectory = ensemble(
        problems(DeepLinear((width,) * (len(layers) + 1)), targets, masks),
        tuple(map(jnp.asarray, params)),
        GradientFlow(rtol),
        probes=(loss,),
        until=until(loss, below=below),
        every=END,
        max_steps=max_steps,
        progress=context.watch,
    )
    context.complete(trajectory)
    return Limits(
        spectrum(jnp.asarray(products(trajectory))).reshape(*batch, width),
        trajectory.final("loss").reshape(batch),
        trajectory.final_time.reshape(batch),
        ended(trajectory).reshape(batch),
    )


def products(trajectory: Trajectory) -> np.ndarray:
    """The product of every member at its end."""
    product = trajectory.params[0]
    for layer in trajectory.params[1:]:
        product = layer @ product
    return product


def ended(trajectory: Trajectory) -> np.ndarray:
    """Whether each member reached what it was asked for."""
    return np.array([RESULTS(int(code)).finished for code in trajectory.results])


def problems(
    model: DeepLinear, targets: Float[np.ndarray, "members out inp"], masks: Float[np.ndarray, "members out inp"]
) -> list[Problem]:
    """One completion problem for each member; made in one pass, as making thousands one by one takes seconds."""
    stacked = _stacked_problems(model, targets, masks)
    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, stacked))
    return [jax.tree.unflatten(structure, [leaf[i] for leaf in leaves]) for i in range(len(targets))]


@eqx.filter_jit
def _stacked_problems(model: DeepLinear, targets: Any, masks: Any) -> Problem:
    return eqx.filter_vmap(lambda target, mask: Problem(model, Completion(target, mask)))(targets, masks)


def normal_layers(key: RandomKey, depth: int, trials: int, width: int) -> list[Float[Array, "trials width width"]]:
    """Standard normal layers, one key for each layer."""
    return [random.normal(k, (trials, width, width)) for k in random.split(key, depth)]


def family_layer(alpha: Any, m: Any, width: int) -> Float[np.ndarray, "*batch width width"]:
    r"""Layer with $\alpha$ on the diagonal and $\alpha/m$ off it, for arrays of $\alpha$ and $m$."""
    alpha, m = np.broadcast_arrays(np.asarray(alpha, dtype=float), np.asarray(m, dtype=float))
    return np.where(np.eye(width, dtype=bool), alpha[..., None, None], (alpha / m)[..., None, None])


# --- Specs ------------------------------------------------------------------------------------------------------------


def check_distinct(where: str, name: str, values: Sequence[float]) -> None:
    """Refuse an empty list, and one that names a value twice."""
    if not values:
        raise ValueError(f"{where}: {name} must hold at least one value, but is empty.")
    if len(set(values)) < len(values):
        raise ValueError(f"{where}: {name} must hold each value once, but is {tuple(values)}.")


def check_depths(where: str, depths: Sequence[int]) -> None:
    """Refuse depths below two."""
    check_distinct(where, "depths", depths)
    for depth in depths:
        check_count(where, "each of depths", depth, at_least=2)


def check_positive(where: str, name: str, values: Sequence[float]) -> None:
    """Refuse an empty list and values that are not positive."""
    check_distinct(where, name, values)
    for value in values:
        check_number(where, f"each of {name}", value, above=0)


def check_flow(where: str, rtol: float, loss_below: float, max_steps: int) -> None:
    """Refuse settings that the flow would refuse, before anything runs."""
    check_number(where, "rtol", rtol, at_least=1e-14, at_most=0.1)
    check_number(where, "loss_below", loss_below, above=0)
    check_count(where, "max_steps", max_steps, at_least=1)


def at_most_scale(dataset: "xarray.Dataset", scale: float) -> "xarray.Dataset":
    """The part of a data set at scales up to the one given."""
    return dataset.sel(scale=dataset["scale"] <= scale * (1 + EXACT))


# --- Pictures ---------------------------------------------------------------------------------------------------------


def panels(columns: int, *, height: float = 1.0) -> tuple["Figure", list["Axes"]]:
    """A figure with panels beside each other that share their vertical axis."""
    from matplotlib.figure import Figure

    wide = min(columns, 2) + 0.62 * max(0, columns - 2)
    figure = Figure(figsize=(PANEL[0] * wide, PANEL[1] * height), layout="constrained")
    return figure, list(np.ravel(figure.subplots(1, columns, sharey=True, squeeze=False)))


def look(position: int) -> dict[str, Any]:
    """Colour and marker of a curve; later ones are smaller and in front, so that curves that coincide are all seen."""
    return {
        "color": COLOURS[position % len(COLOURS)],
        "marker": MARKERS[position % len(MARKERS)],
        "markersize": max(2.5, 4.6 - 0.6 * position),
        "linewidth": max(1.0, 1.6 - 0.2 * position),
        "zorder": 3 + 0.1 * position,
    }


def scale_axis(axes: "Axes") -> None:
    r"""Logarithmic axis of the scale $\alpha^L$ of the start, small starts to the right."""
    axes.set_xscale("log")
    axes.invert_xaxis()
    axes.set_xlabel(r"scale of the start $\alpha^L$")


def legend_above(figure: "Figure", axes: "Axes", columns: int) -> None:
    """One legend for all panels, above them, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=columns)
