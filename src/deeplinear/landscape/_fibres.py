r"""Networks with the same product: moves between them, and dimensions of what they form.

Two networks are equivalent if their products agree; the set of all networks with a given product is its fibre. Two
kinds of moves stay within it: changes of basis in the hidden layers, and *fills* $Z$ that the neighbours of every layer
do not see, $W_{l+1}Z_l = 0$ and $Z_lW_{l-1} = 0$, with $Z_{L:1} = 0$.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Params,
    RandomKey,
    are_tied,
    check_count,
    check_key,
    check_number,
    check_result,
    entry,
    formula,
    full_svd,
    random,
    refused_derivative,
    xp,
)
from deeplinear.landscape._arguments import (
    check_range,
    checked_chain,
    checked_network,
    host_layers,
    widths_of,
)
from deeplinear.landscape._canonical import multiply
from deeplinear.landscape._gauge import gauge
from deeplinear.landscape._reduction import diagonal_target
from deeplinear.models import DeepLinear

RANK_TOLERANCE = 1e-9
"""Singular values below this share of the largest count as zero in ranks and null spaces."""

ROUNDING = 1e-13
"""So do those below this share of what the matrices they come from could make."""

FILL_TOLERANCE = 1e-10
"""Residual of the conditions on a fill, relative to the sizes of the matrices, that still counts as zero."""


@dataclasses.dataclass(frozen=True)
class SameProduct:
    """Whether two networks have the same product; true as a condition if they do.

    Attributes:
        same: The answer: `difference` is at most the larger of the tolerance and `rounding`.
        difference: Frobenius norm of the difference of the products over that of the larger one.
        rounding: What rounding in the products alone may cause of it. Large where layers of order one have a product
            close to zero.
    """

    same: bool
    difference: float
    rounding: float

    def __bool__(self) -> bool:
        return self.same

    def __str__(self) -> str:
        said = "the same product" if self.same else "different products"
        return f"{said}: they differ by {self.difference:.1e} of their size (rounding: {self.rounding:.1e})"


@entry(instead="compare the products with jax.numpy")
def same_product(first: Iterable[Any], second: Iterable[Any], *, tolerance: float = 1e-8) -> SameProduct:
    r"""Whether two networks, of any depths, have the same product.

    Computed on the host, not under a transformation.

    Args:
        first: Layers of a network.
        second: Layers of another with the same inputs and outputs.
        tolerance: Relative to the larger Frobenius norm of the two products.

    Returns:
        The answer with the measured relative difference.

    Example:
        >>> found = same_product(([[2.0]], [[3.0]]), ([[6.0]],))
        >>> bool(found), found.difference
        (True, 0.0)
    """
    where = "same_product"
    check_number(where, "tolerance", tolerance, at_least=0)
    one, other = host_layers(where, first, "first"), host_layers(where, second, "second")
    with np.errstate(over="ignore", invalid="ignore"):
        left, right = multiply(one), multiply(other)
        check_range(where, np.linalg.norm(left), np.linalg.norm(right))
    if left.shape != right.shape:
        raise ValueError(
            f"{where}: second must have a product of shape {left.shape}, as first has, but has one of {right.shape}."
        )
    scale = max(float(np.linalg.norm(left)), float(np.linalg.norm(right)))
    difference = float(np.linalg.norm(left - right))
    spread = max(_rounding(one), _rounding(other))
    if scale == 0:
        return SameProduct(True, 0.0, 0.0)
    return SameProduct(difference <= max(tolerance * scale, spread), difference / scale, spread / scale)


def _rounding(layers: Sequence[np.ndarray]) -> float:
    """Bound on the rounding error of a product of layers."""
    sizes = float(np.prod([np.linalg.norm(layer) for layer in layers]))
    return float(np.finfo(float).eps) * sum(layer.shape[1] for layer in layers) * sizes


@entry(instead="multiply the layers and the fills with jax.numpy")
def fill_residual(params: Iterable[Any], fills: Iterable[Any]) -> float:
    r"""By how much a fill misses its conditions $W_{l+1}Z_l = 0$, $Z_lW_{l-1} = 0$ and $Z_{L:1} = 0$.

    The largest Frobenius norm of these matrices, each over the product of the Frobenius norms of its factors.

    Args:
        params: Layers $W_l$, first-acting first.
        fills: $Z_l$, of the same shapes.

    Returns:
        A number between 0, where the fill is allowed, and 1.

    Example:
        >>> fill_residual(([[1.0], [0.0]], [[1.0, 0.0]]), ([[0.0], [5.0]], [[0.0, 0.0]]))
        0.0
    """
    where = "fill_residual"
    return _fill_residual(*_filled(where, params, fills))


def _filled(where: str, params: Any, fills: Any) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    layers, extra = host_layers(where, params, "params"), host_layers(where, fills, "fills")
    shapes = [[tuple(layer.shape) for layer in matrices] for matrices in (layers, extra)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{where}: fills must have the shapes {shapes[0]} of the layers, but has {shapes[1]}.")
    return layers, extra


def _fill_residual(layers: Sequence[np.ndarray], fills: Sequence[np.ndarray]) -> float:
    def relative(*factors: np.ndarray) -> float:
        sizes = float(np.prod([np.linalg.norm(factor) for factor in factors]))
        return float(np.linalg.norm(multiply(factors))) / sizes if sizes > 0 else 0.0

    pairs = list(itertools.pairwise(range(len(layers))))
    seen_after = [relative(fills[below], layers[above]) for below, above in pairs]
    seen_before = [relative(layers[below], fills[above]) for below, above in pairs]
    return max(*seen_after, *seen_before, relative(*fills), 0.0)


@entry
def fibre_move(
    params: Iterable[Any], fills: Iterable[Any] | None = None, factors: Sequence[Any] | None = None
) -> Params:
    r"""Another network with the same product, $W_l \mapsto P_l(W_l + Z_l)P_{l-1}^{-1}$.

    Every network over a critical product $S\Sigma$ can be reached so from its simplest factorisation. Looked at on the
    host, not under a transformation.

    Args:
        params: Layers, first-acting first.
        fills: $Z_l$ with $W_{l+1}Z_l = 0$, $Z_lW_{l-1} = 0$ and $Z_{L:1} = 0$, such as `random_fill` draws; none if
            left out.
        factors: $P_1, \dots, P_{L-1}$, invertible; identities if left out.

    Returns:
        The layers of the other network.

    Raises:
        HypothesisError: The fill does not satisfy its conditions, or a factor is singular.

    Example:
        >>> moved = fibre_move(([[1.0], [0.0]], [[1.0, 0.0]]), ([[0.0], [5.0]], [[0.0, 0.0]]))
        >>> moved[0].tolist(), (moved[1] @ moved[0]).tolist()
        ([[1.0], [5.0]], [[1.0]])
    """
    where = "fibre_move"
    layers = checked_chain(where, params)
    if fills is not None:
        old, extra = _filled(where, layers, fills)
        residual = _fill_residual(old, extra)
        if residual > FILL_TOLERANCE:
            raise HypothesisError(
                "the neighbours of every layer do not see its fill, and the product of the fills vanishes",
                residual,
                FILL_TOLERANCE,
                "random_fill draws what is allowed.",
            )
        layers = tuple(layer + xp.asarray(fill, dtype=float) for layer, fill in zip(layers, extra, strict=True))
    return layers if factors is None else gauge(layers, factors)


def _rank(values: np.ndarray, size: float) -> int:
    """Number of singular values that are neither small beside the largest nor rounding of numbers of a size."""
    return int(np.sum(values > max(RANK_TOLERANCE * values.max(initial=0.0), ROUNDING * size)))


def _null(matrix: np.ndarray, size: float) -> np.ndarray:
    """Orthonormal basis of the null space, as columns, of a matrix made of numbers of a size."""
    _, values, right_t = np.linalg.svd(matrix)
    return right_t[_rank(values, size) :].T


def _largest(where: str, layers: Sequence[np.ndarray]) -> float:
    with np.errstate(over="ignore"):
        size = max(float(np.linalg.norm(layer)) for layer in layers)
    check_range(where, size)
    return size


@entry(instead="draw the fill outside of the transformation")
def random_fill(key: RandomKey, params: Iterable[Any], *, scale: float = 1.0, empty: int | None = None) -> Params:
    r"""Random fill of a network: what may be added to its layers without a change of the product.

    $Z_l = N_l G_l M_l^\top$ with Gaussian $G_l$ and orthonormal bases $N_l$ of the null space of $W_{l+1}$ and $M_l$ of
    that of $W_{l-1}^\top$, with nothing to respect beyond the outer layers. One $Z_l$ is zero, so that $Z_{L:1} = 0$.
    Layers of full rank leave little room, or none: then the fill is zero. Computed on the host.

    Args:
        key: Source of randomness.
        params: Layers, first-acting first.
        scale: Standard deviation of the entries of $G_l$.
        empty: Number of the layer that stays as it is, from 1; drawn at random if left out.

    Returns:
        $Z_l$ for every layer.

    Example:
        >>> layers = (jnp.zeros((2, 2)), jnp.eye(2), jnp.zeros((2, 2)))
        >>> fill = random_fill(jax.random.key(0), layers, empty=3)
        >>> [bool(jnp.any(z)) for z in fill], fill_residual(layers, fill)
        ([False, True, False], 0.0)
    """
    where = "random_fill"
    check_key(where, key)
    layers = host_layers(where, params, "params")
    check_number(where, "scale", scale, at_least=0)
    if empty is not None:
        check_count(where, "empty", empty, at_least=1, at_most=len(layers))
    choice, *keys = random.split(key, len(layers) + 1)
    chosen = int(random.randint(choice, (), 1, len(layers) + 1)) if empty is None else empty
    fills, size = [], _largest(where, layers)
    for number, layer in enumerate(layers, start=1):
        out, inp = layer.shape
        left = _null(layers[number], size) if number < len(layers) else np.eye(out)
        right = _null(layers[number - 2].T, size) if number > 1 else np.eye(inp)
        inside = np.asarray(random.normal(keys[number - 1], (left.shape[1], right.shape[1]), dtype=float))
        fills.append(xp.asarray(float(scale) * (number != chosen) * (left @ inside @ right.T), dtype=float))
    return tuple(fills)


def minima_dimension(widths: Sequence[int]) -> int:
    r"""Dimension of the manifold of global minima of a network that learns a target of full rank.

    $N - r(d_0 + d_L - r)$ with $N = \sum_l d_ld_{l-1}$ and $r = \min_l d_l$: the number of weights less the dimension
    of the matrices of rank $r$. Without a bottleneck that is $N - d_0d_L$. It is the nullity of the Hessian there, if
    the $r$-th singular value of the target is larger than the next one.

    Args:
        widths: $(d_0, \dots, d_L)$.

    Returns:
        The dimension.

    Example:
        >>> minima_dimension((1, 2, 1)), minima_dimension((4, 3, 3, 2))
        (3, 19)
    """
    network = checked_network("minima_dimension", widths)
    rank = min(network.widths)
    return network.size - rank * (network.widths[0] + network.widths[-1] - rank)


@entry
def product_jacobian(params: Iterable[Any]) -> Float[Array, "entries size"]:
    r"""Differential of the product map, $V \mapsto \sum_l W_{L:l+1}V_lW_{l-1:1}$, as a matrix.

    Rows run over the entries of the product in row-major order, columns over the weights in the order of `flatten`.

    Args:
        params: Layers, first-acting first.

    Returns:
        The matrix; its Gram matrix $JJ^\top$ is the tangent kernel.

    Example:
        >>> product_jacobian(([[2.0]], [[3.0]]))
        array([[3., 2.]])
    """
    layers = checked_chain("product_jacobian", params)
    return check_result("product_jacobian", _jacobian(DeepLinear(widths_of(layers)), layers))


@formula
def _jacobian(model: DeepLinear, layers: Params) -> Float[Array, "entries size"]:
    _, memo = model.forward(layers)
    before = (xp.eye(model.widths[0]), *memo.prefixes[:-1])
    return xp.concatenate(
        [xp.kron(left, right.T) for left, right in zip(model.suffixes(layers), before, strict=True)], axis=1
    )


@entry(instead="use product_jacobian")
def fibre_tangent(params: Iterable[Any]) -> Float[Array, "size dimension"]:
    r"""Directions in which the product does not change to first order: null space of its differential.

    Where the product has the largest rank the widths allow, the fibre is smooth and this is its tangent space, with
    `minima_dimension` dimensions; at other points it may be larger than the fibre. Computed on the host.

    Args:
        params: Layers, first-acting first.

    Returns:
        Orthonormal columns, in the coordinates of `flatten`; `unflatten` gives layers.

    Example:
        >>> fibre_tangent(([[1.0], [0.0]], [[2.0, 0.0]])).shape
        (4, 3)
    """
    layers = host_layers("fibre_tangent", params, "params")
    with np.errstate(over="ignore"):
        sizes = np.array([np.linalg.norm(layer) for layer in layers])
        others = max(float(np.prod(np.delete(sizes, position))) for position in range(len(layers)))
    check_range("fibre_tangent", others)
    return xp.asarray(_null(np.asarray(product_jacobian(layers)), others), dtype=float)


@entry(instead="call it outside of the transformation")
def orbit_dimension(params: Iterable[Any]) -> int:
    r"""Dimension of the set of networks that changes of basis in the hidden layers make of this one.

    The rank of the infinitesimal action $(X_l) \mapsto (X_lW_l - W_lX_{l-1})$ with $X_0 = X_L = 0$; at most
    $\sum_{l=1}^{L-1} d_l^2$, with equality where only the identity fixes the network. Computed on the host.

    Args:
        params: Layers, first-acting first.

    Returns:
        The dimension.

    Example:
        >>> ones = (jnp.ones((2, 1)), jnp.ones((1, 2)))
        >>> orbit_dimension(ones), orbit_dimension([0 * layer for layer in ones])
        (3, 0)
    """
    layers = host_layers("orbit_dimension", params, "params")
    hidden = [layer.shape[0] for layer in layers[:-1]]
    columns = []
    for position, width in enumerate(hidden):
        below, above = layers[position], layers[position + 1]
        # Row-major: vec(XW) = (I ⊗ Wᵀ) vec X and vec(WX) = (W ⊗ I) vec X.
        blocks: list[np.ndarray] = [np.zeros((layer.size, width**2)) for layer in layers]
        blocks[position] = np.kron(np.eye(width), below.T)
        blocks[position + 1] = -np.kron(above, np.eye(width))
        columns.append(np.concatenate(blocks))
    if not columns:
        return 0
    values = np.linalg.svd(np.concatenate(columns, axis=1), compute_uv=False)
    return _rank(values, _largest("orbit_dimension", layers))


@entry
def balanced_representative(params: Iterable[Any]) -> Params:
    r"""The network of least Frobenius norm among those with the same product.

    With the decomposition $W_{L:1} = USV^\top$ it is $W_1 = S^{1/L}V^\top$, $W_l = S^{1/L}$, $W_L = US^{1/L}$, padded
    with zeros: balanced, with $\sum_l\|W_l\|_F^2 = L\sum_k s_k^{2/L}$ (`minimal_norm`). Others of this norm differ from
    it by orthogonal changes of basis in the hidden layers.

    Args:
        params: Layers, first-acting first.

    Returns:
        Layers of the same shapes.

    Example:
        >>> first, second = balanced_representative(([[8.0]], [[0.5]]))
        >>> float(abs(first[0, 0])), float(abs(second[0, 0]))
        (2.0, 2.0)
    """
    layers = checked_chain("balanced_representative", params)
    model = DeepLinear(widths_of(layers))
    product = model.product(layers)
    if model.depth == 1:
        return (product,)
    rank = min(model.widths)
    left, values, right_t = full_svd(product)
    message = (
        "balanced_representative: layers have no derivative where singular values of the product coincide or vanish; "
        "take that of minimal_norm or of the product."
    )
    kept = refused_derivative(values[:rank], are_tied(values[:rank], (1, 1)) | (values[rank - 1] == 0), message)
    roots = kept ** (1.0 / model.depth)
    first = diagonal_target(roots, model.widths[1], rank) @ right_t[:rank]
    last = left[:, :rank] @ diagonal_target(roots, rank, model.widths[-2])
    check_range("balanced_representative", first, last)
    return (first, *(diagonal_target(roots, out, inp) for out, inp in model.shapes[1:-1]), last)
