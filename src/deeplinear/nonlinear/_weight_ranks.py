r"""Ranks of all layers of a network, and the averages one may make of them.

A convolution from $c_{\text{in}}$ to $c_{\text{out}}$ channels with a $k_1 \times k_2$ window counts as the matrix
$c_{\text{in}} \times (c_{\text{out}} k_1 k_2)$, one over sequences or volumes likewise. Averages over layers of
different shapes say as much of the shapes as of training: a deeper network has another mix of layers. So next to the
average over all layers but the last stand those over the layers between first and last and over layers of one shape,
and all of it can be had before training too.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from deeplinear.core import check_finite, entry, spectrum_effective_rank, spectrum_stable_rank

LAYOUTS = {"OIHW": (1, 0), "HWIO": (-2, -1)}
"""Axes of a kernel's inputs and outputs; PyTorch and equinox have the first layout."""

RANKS = ("effective", "stable")
"""Kinds of rank."""

AVERAGES = {"all but last": slice(0, -1), "hidden": slice(1, -1)}
"""Layers that an average is over, by its name; hidden ones are those between the first and the last."""


@entry(instead="use jax.numpy.reshape")
def unfolded(kernel: Any, layout: str = "OIHW") -> Float[np.ndarray, "in rest"]:
    r"""A convolution's kernel as the matrix $c_{\text{in}} \times (c_{\text{out}} k_1 k_2)$; a matrix is left as it is.

    Args:
        kernel: A matrix, or a kernel whose window has one axis or more.
        layout: Order of the axes of kernels, told for a window of two: `"OIHW"` or `"HWIO"`.

    Example:
        >>> unfolded(np.arange(12).reshape(2, 3, 1, 2))[0]  # input channel 0: both windows of both outputs
        array([0., 1., 6., 7.])
    """
    found = np.asarray(kernel, dtype=float)
    check_finite("unfolded", "kernel", found)
    if found.ndim == 2:
        return found
    if layout not in LAYOUTS:
        raise ValueError(f"unfolded: layout must be one of {', '.join(LAYOUTS)}, but is {layout!r}.")
    if found.ndim < 2:
        raise ValueError(f"unfolded: kernel must have two axes or more, but has shape {found.shape}.")
    moved = np.moveaxis(found, LAYOUTS[layout], (0, 1))
    return moved.reshape(moved.shape[0], -1)


@dataclasses.dataclass(frozen=True)
class LayerRank:
    """Soft ranks of one layer.

    Attributes:
        name: Of the layer.
        shape: Of the matrix that is measured.
        effective: Effective rank, the exponential of the entropy of the normalised singular values.
        stable: Stable rank.
    """

    name: str
    shape: tuple[int, int]
    effective: float
    stable: float


@dataclasses.dataclass(frozen=True)
class WeightRanks:
    """Ranks of the layers of a network, in the order in which they act, and their averages.

    Attributes:
        layers: One entry a layer.
    """

    layers: tuple[LayerRank, ...]

    def average(self, which: str = "all but last", rank: str = "effective") -> float:
        """Mean over all layers but the last, or without the first as well; NaN where that leaves none."""
        if which not in AVERAGES:
            raise ValueError(f"WeightRanks.average: which must be 'all but last' or 'hidden', but is {which!r}.")
        _check_rank("average", rank)
        chosen = [getattr(layer, rank) for layer in self.layers[AVERAGES[which]]]
        return float(np.mean(chosen)) if chosen else float("nan")

    def by_shape(self, rank: str = "effective") -> dict[tuple[int, int], float]:
        """Mean over the layers of each shape, the last layer left out."""
        _check_rank("by_shape", rank)
        groups: dict[tuple[int, int], list[float]] = {}
        for layer in self.layers[:-1]:
            groups.setdefault(layer.shape, []).append(getattr(layer, rank))
        return {shape: float(np.mean(values)) for shape, values in groups.items()}

    def __str__(self) -> str:
        wide = max([len(layer.name) for layer in self.layers] + [5])
        lines = [f"{'layer':<{wide}}  {'shape':>12}  effective  stable"]
        for layer in self.layers:
            shape = "x".join(map(str, layer.shape))
            lines.append(f"{layer.name:<{wide}}  {shape:>12}  {layer.effective:9.2f}  {layer.stable:6.2f}")
        for which in AVERAGES:
            effective, stable = (self.average(which, rank) for rank in RANKS)
            lines.append(f"{which:<{wide}}  {'':>12}  {effective:9.2f}  {stable:6.2f}")
        return "\n".join(lines)


def _check_rank(method: str, rank: str) -> None:
    if rank not in RANKS:
        raise ValueError(f"WeightRanks.{method}: rank must be {' or '.join(map(repr, RANKS))}, but is {rank!r}.")


def _is_layer(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a named array is a matrix or a kernel.

    Equinox has biases with several axes; transformers have tokens and positions, of shape (1, n, d), which are added.
    """
    last = name.rpartition(".")[2]
    added = last == "bias" or (len(shape) == 3 and shape[0] == 1 and last not in ("weight", "kernel"))
    return len(shape) >= 2 and not added


@entry(instead="use core.effective_rank and core.stable_rank of each layer")
def weight_ranks(tensors: Mapping[str, Any], layout: str = "OIHW") -> WeightRanks:
    """Ranks of the layers among named arrays, such as a saved network: those with two axes or more.

    Args:
        tensors: Arrays by name, in the order in which the layers act. Passed over are vectors (those of normalisation,
            say), what is called a bias, and arrays of shape (1, n, d) that are not called `weight` or `kernel`, such as
            the tokens and positions of a transformer.
        layout: Order of the axes of kernels, as for `unfolded`.

    Example:
        >>> ranks = weight_ranks({"first": np.eye(3), "bias": np.zeros(3), "last": np.ones((2, 3))})
        >>> ranks.average(), ranks.layers[1].effective
        (3.0, 1.0)
    """
    found = []
    for name, tensor in tensors.items():
        if not _is_layer(name, np.shape(tensor)):
            continue
        try:
            matrix = unfolded(tensor, layout)
        except ValueError as error:
            raise ValueError(f"weight_ranks: layer {name}: {error}") from None
        if not matrix.any():
            what = "is zero" if matrix.size else f"has no numbers (shape {np.shape(tensor)})"
            raise ValueError(f"weight_ranks: layer {name} {what}, and so has no soft rank; leave it out.")
        values = np.linalg.svd(matrix / np.abs(matrix).max(), compute_uv=False)  # numbers may be tiny
        rows, columns = matrix.shape
        found.append(
            LayerRank(
                name, (rows, columns), float(spectrum_effective_rank(values)), float(spectrum_stable_rank(values))
            )
        )
    if not found:
        raise ValueError("weight_ranks: there is no array with two axes or more among the tensors.")
    return WeightRanks(tuple(found))


@entry(instead="use jax.tree.leaves")
def layer_tensors(network: Any) -> dict[str, np.ndarray]:
    """Matrices and kernels of an equinox network by name, in the order of its fields.

    Example:
        >>> import equinox as eqx
        >>> list(layer_tensors(eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(0))))
        ['layers[0].weight', 'layers[1].weight']
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(network)
    named = ((jax.tree_util.keystr(path).lstrip("."), leaf) for path, leaf in leaves)
    return {name: np.asarray(leaf) for name, leaf in named if _is_layer(name, getattr(leaf, "shape", ()))}
