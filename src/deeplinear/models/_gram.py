"""Gradients of single entries of the product, and their inner products."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from deeplinear.core import Matrix, Params, as_array, check_finite, check_shape, entry, is_concrete
from deeplinear.models._base import AbstractModel
from deeplinear.models._inits import network_of
from deeplinear.models._networks import DeepLinear


@entry(bounded=("params",))
def entry_gradient(model: AbstractModel, params: Params, row: object, column: object) -> Params:
    r"""Gradient of one entry $w_{ij}$ of the product with respect to every layer.

    $\nabla_{W_l} w_{ij} = (W_{L:l+1}^\top e_i)(W_{l-1:1} e_j)^\top$, of rank one in each layer.

    Args:
        model: A `DeepLinear` network.
        params: Layers.
        row: $i$, from zero.
        column: $j$, from zero.

    Returns:
        One matrix for each layer.

    Example:
        >>> layers = (jnp.array([[1.0, 2.0]]), jnp.array([[3.0], [4.0]]))
        >>> [w.tolist() for w in entry_gradient(DeepLinear((2, 1, 2)), layers, 1, 0)]
        [[[4.0, 0.0]], [[0.0], [1.0]]]
    """
    network = network_of("entry_gradient", model)
    network.check(params, "entry_gradient")
    _check_layers("entry_gradient", params)
    i = _index("entry_gradient", "row", row, network.widths[-1], ())
    j = _index("entry_gradient", "column", column, network.widths[0], ())
    return _gradient(network, params, i, j)


@entry(bounded=("params",))
def entry_gram(model: AbstractModel, params: Params, rows: object, columns: object) -> Float[Array, "entries entries"]:
    r"""Inner products $K_{(ij),(pq)} = \langle\nabla w_{ij}, \nabla w_{pq}\rangle$ of the gradients of chosen entries.

    The tangent kernel restricted to these entries: $\sum_l (W_{L:l+1} W_{L:l+1}^\top)_{ip}\,(W_{l-1:1}^\top
    W_{l-1:1})_{jq}$, in $O(L d^3 + L N^2)$ operations and without the Jacobian. Under the gradient flow of a completion
    loss the residuals of the observed entries obey $\dot r = -K r$.

    Args:
        model: A `DeepLinear` network.
        params: Layers.
        rows: Row index of each entry, at least one.
        columns: Column index of each entry, as many; no entry twice.

    Returns:
        Symmetric positive semi-definite matrix, in the order of the entries.

    Example:
        >>> eye = jnp.eye(2)
        >>> entry_gram(DeepLinear((2, 2, 2)), (eye, 3 * eye), [0, 1], [0, 0]).tolist()
        [[10.0, 0.0], [0.0, 10.0]]
    """
    network = network_of("entry_gram", model)
    network.check(params, "entry_gram")
    _check_layers("entry_gram", params)
    i = _index("entry_gram", "rows", rows, network.widths[-1], (None,))
    j = _index("entry_gram", "columns", columns, network.widths[0], i.shape)
    _check_distinct("entry_gram", i, j)
    return _gram(network, params, i, j)


@jax.jit
def _gradient(network: DeepLinear, params: Params, i: Integer[Array, ""], j: Integer[Array, ""]) -> Params:
    _, memo = network.forward(params)
    start = jnp.eye(network.widths[0], dtype=params[0].dtype)
    before = (start, *memo.prefixes[:-1])
    after = network.suffixes(params)
    every = slice(None)
    return tuple(
        jnp.outer(_pick(left, i, every), _pick(right, every, j)) for left, right in zip(after, before, strict=True)
    )


@jax.jit
def _gram(
    network: DeepLinear, params: Params, i: Integer[Array, " entries"], j: Integer[Array, " entries"]
) -> Float[Array, "entries entries"]:
    gram = jnp.zeros((len(i), len(i)), dtype=params[0].dtype)
    for left, right in network.kernel_factors(params):
        gram = gram + _pick(left, i[:, None], i) * _pick(right, j[:, None], j)
    return gram


def _pick(matrix: Matrix, i: Any, j: Any) -> Float[Array, "..."]:
    """Entries of a matrix; an index that cannot be seen and lies outside gives NaN, which is no entry."""
    return matrix.at[i, j].get(mode="fill", fill_value=jnp.nan)


def _check_layers(where: str, params: Params) -> None:
    for position, layer in enumerate(params):
        check_finite(where, f"params[{position}]", layer)


def _check_distinct(where: str, rows: Integer[Array, " entries"], columns: Integer[Array, " entries"]) -> None:
    """Refuse an entry named twice where that can be seen."""
    if is_concrete(rows) and is_concrete(columns):
        entries, counts = np.unique(np.stack([np.asarray(rows), np.asarray(columns)]), axis=1, return_counts=True)
        if counts.max() > 1:
            row, column = (int(k) for k in entries[:, counts.argmax()])
            raise ValueError(
                f"{where}: rows and columns must not name an entry twice, but name ({row}, {column}) "
                f"{counts.max()} times."
            )


def _index(where: str, name: str, value: object, bound: int, shape: tuple[int | None, ...]) -> Integer[Array, "..."]:
    """Indices from 0 to `bound` - 1 in an array of a given shape, or a refusal; abstract values pass unseen."""
    index = as_array(value)
    check_shape(where, name, index, shape)
    if index.size == 0:
        raise ValueError(f"{where}: {name} must hold at least one entry, but is empty.")
    if not jnp.issubdtype(index.dtype, jnp.integer):
        raise TypeError(f"{where}: {name} must hold integers, but holds {index.dtype}.")
    if is_concrete(index):
        low, high = int(np.min(np.asarray(index))), int(np.max(np.asarray(index)))
        if low < 0 or high >= bound:
            raise ValueError(f"{where}: {name} must lie in 0..{bound - 1}, but reaches from {low} to {high}.")
    return index
