r"""Loss, flow, second variation and non-normality of a network, written with its adjacency matrix.

With $A = \mathrm{blk}_1(W_1, \dots, W_L)$ and $E = \mathrm{blk}_L(\Sigma)$ the loss is $\tfrac12\|E - A^L\|_F^2$, a
function of one matrix. These forms are for statements and pictures; along a trajectory `Problem.gradient` gives the
same numbers from one forward and one backward pass.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Complex, Float, Int

from deeplinear.core import (
    Array,
    Matrix,
    are_tied,
    as_array,
    check_count,
    check_finite,
    check_result,
    check_shape,
    check_x64,
    entry,
    formula,
    full_svd,
    is_concrete,
    over,
    put,
    refused_derivative,
    spectrum,
    xp,
)
from deeplinear.landscape._block_shift import BlockShift, adjacency
from deeplinear.landscape._symmetric import eigenpairs, eigenvalues

LARGEST_DENSE = 2000
"""Most nodes for which the numerical radius is taken from a dense matrix."""


# --- Loss, flow, second variation -------------------------------------------------------------------------------------


@entry
def adjacency_loss(a: BlockShift, e: BlockShift) -> Float[Array, ""]:
    r"""$\tfrac12\|E - A^L\|_F^2$.

    Args:
        a: Adjacency matrix $A$ of the network, shift 1.
        e: Embedded target $E$, shift $L$.

    Returns:
        The loss.

    Example:
        >>> a = adjacency((jnp.array([[2.0]]), jnp.array([[3.0]])))
        >>> float(adjacency_loss(a, embedded(jnp.array([[4.0]]), (1, 1, 1))))
        2.0
    """
    _check_target("adjacency_loss", a, e)
    return check_result("adjacency_loss", _loss(a, e))


@entry
def adjacency_velocity(a: BlockShift, e: BlockShift) -> BlockShift:
    r"""$\dot A = \sum_{j=1}^L (A^{L-j})^\top (E - A^L) (A^{j-1})^\top$.

    The negative gradient of $\tfrac12\|E - A^L\|_F^2$ over *all* square matrices, taken at a matrix with shift 1: it
    has shift 1 again, so the flow makes no new connections.

    Args:
        a: Adjacency matrix $A$ of the network, shift 1.
        e: Embedded target $E$, shift $L$.

    Returns:
        $\dot A$, shift 1; its blocks are the speeds of the layers.

    Example:
        >>> a = adjacency((jnp.array([[2.0]]), jnp.array([[3.0]])))
        >>> adjacency_velocity(a, embedded(jnp.array([[4.0]]), (1, 1, 1))).layers
        (array([[-6.]]), array([[-4.]]))
    """
    _check_target("adjacency_velocity", a, e)
    return check_result("adjacency_velocity", _velocity(a, e))


@formula
def _velocity(a: BlockShift, e: BlockShift) -> BlockShift:
    gap = _residual(a, e)
    powers = [a.power(0)]
    for _ in range(a.depth - 1):
        powers.append(a @ powers[-1])
    result = 0.0 * a
    for power, other in zip(reversed(powers), powers, strict=True):
        result = result + power.T @ gap @ other.T
    return result


@entry
def adjacency_hessian_form(a: BlockShift, e: BlockShift, v: BlockShift) -> Float[Array, ""]:
    r"""$\|\rho_1\|_F^2 - 2\langle\rho_2, E - A^L\rangle$: the second derivative of the loss along a direction.

    $\rho_k$ is the coefficient of $\varepsilon^k$ in $(A + \varepsilon V)^L$.

    Args:
        a: Adjacency matrix $A$ of the network, shift 1.
        e: Embedded target $E$, shift $L$.
        v: Direction $V$, shift 1.

    Returns:
        $\mathrm d^2/\mathrm d\varepsilon^2$ of the loss of $A + \varepsilon V$ at 0.

    Example:
        >>> a = adjacency((jnp.array([[0.0]]), jnp.array([[0.0]])))
        >>> v = adjacency((jnp.array([[1.0]]), jnp.array([[1.0]])))
        >>> float(adjacency_hessian_form(a, embedded(jnp.array([[4.0]]), (1, 1, 1)), v))
        -8.0
    """
    _check_target("adjacency_hessian_form", a, e)
    return check_result("adjacency_hessian_form", _hessian_form(a, e, v))


@formula
def _hessian_form(a: BlockShift, e: BlockShift, v: BlockShift) -> Float[Array, ""]:
    gap = _residual(a, e)
    zeroth, first, second = a, v, 0.0 * a
    for _ in range(a.depth - 1):
        zeroth, first, second = a @ zeroth, a @ first + v @ zeroth, a @ second + v @ first
    return first.inner(first) - 2 * second.inner(gap)


@entry
def imbalance(a: BlockShift) -> BlockShift:
    r"""$Q = [A, A^\top] = \mathrm{blk}_0(-W_1^\top W_1,\; -C_1, \dots, -C_{L-1},\; W_L W_L^\top)$.

    How far $A$ is from a normal matrix. Its inner blocks are conserved along the flow:
    $C_l = W_{l+1}^\top W_{l+1} - W_l W_l^\top$ as in `conserved`, here with the opposite sign.

    Args:
        a: Adjacency matrix $A$ of the network, shift 1.

    Returns:
        $Q$, shift 0.

    Example:
        >>> imbalance(adjacency((jnp.array([[2.0]]), jnp.array([[3.0]])))).blocks[1]
        array([[-5.]])
    """
    check_x64("imbalance")
    return check_result("imbalance", _imbalance(a))


@formula
def _imbalance(a: BlockShift) -> BlockShift:
    return a.commutator(a.T)


@entry
def imbalance_rate(a: BlockShift, e: BlockShift) -> BlockShift:
    r"""$\dot Q = X + X^\top$, $X = [A^L, (E - A^L)^\top]$, along the flow.

    Only the first and the last diagonal block differ from zero; written out,
    $\dot Q = Y + Y^\top - 2[A^L, (A^L)^\top]$ with $Y = [A^L, E^\top]$.

    Args:
        a: Adjacency matrix $A$ of the network, shift 1.
        e: Embedded target $E$, shift $L$.

    Returns:
        $\dot Q$, shift 0.

    Example:
        >>> a = adjacency((jnp.array([[2.0]]), jnp.array([[3.0]])))
        >>> [float(block[0, 0]) for block in imbalance_rate(a, embedded(jnp.array([[4.0]]), (1, 1, 1))).blocks]
        [24.0, 0.0, -24.0]
    """
    _check_target("imbalance_rate", a, e)
    return check_result("imbalance_rate", _imbalance_rate(a, e))


@formula
def _imbalance_rate(a: BlockShift, e: BlockShift) -> BlockShift:
    half = a.power(a.depth).commutator(_residual(a, e).T)
    return half + half.T


@formula
def _loss(a: BlockShift, e: BlockShift) -> Float[Array, ""]:
    gap = _residual(a, e)
    return 0.5 * gap.inner(gap)


def _residual(a: BlockShift, e: BlockShift) -> BlockShift:
    """$E - A^L$."""
    return e - a.power(a.depth)


def _check_target(where: str, a: BlockShift, e: BlockShift) -> None:
    """Refuse matrices that are no network and target."""
    check_x64(where)
    if a.shift != 1:
        raise ValueError(f"{where}: a must have shift 1, but has shift {a.shift}; make it with adjacency(params).")
    if e.shift != a.depth:
        raise ValueError(
            f"{where}: e must have shift {a.depth}, the depth, but has shift {e.shift}; make it with "
            "embedded(target, widths)."
        )


# --- Singular values --------------------------------------------------------------------------------------------------


class BlockSVD(NamedTuple):
    r"""$A = U \Lambda V^\top$ with the singular values one block below the diagonal: shifts 0, 1 and 0."""

    left: BlockShift
    values: BlockShift
    right: BlockShift


class AdjacencySVD(NamedTuple):
    r"""$A = U \mathrm{diag}(s) V^\top$ with orthogonal $U$, $V$ and $s$ in falling order.

    `layer` says which layer, counted from 1, a singular value belongs to; 0 for zeros that belong to none.
    """

    left: Float[Array, "nodes nodes"]
    values: Float[Array, " nodes"]
    right: Float[Array, "nodes nodes"]
    layer: Int[Array, " nodes"]


@entry
def block_svd(params: Iterable[Any]) -> BlockSVD:
    r"""Decomposition of the adjacency matrix that keeps the layers apart.

    From $W_l = U_l \Lambda_l V_l^\top$: $U = \mathrm{blk}_0(0, U_1, \dots, U_L)$,
    $\Lambda = \mathrm{blk}_1(\Lambda_1, \dots, \Lambda_L)$, $V = \mathrm{blk}_0(V_1, \dots, V_L, 0)$. $U$ and $V$ are
    orthogonal but for their zero block.

    Args:
        params: Layers, first-acting first.

    Returns:
        `left`, `values` and `right`; $A$ is `left @ values @ right.T`.

    Example:
        >>> block_svd((jnp.array([[3.0, 4.0]]), jnp.array([[2.0]]))).values.layers
        (array([[5., 0.]]), array([[2.]]))
    """
    return _block_svd(adjacency(params))


def _decomposed(where: str, layer: Matrix) -> tuple[Array, Array, Array]:
    """Full singular value decomposition of a layer; vectors of equal values refuse to be differentiated."""
    left, values, right_t = full_svd(layer)
    message = f"{where}: vectors of singular values that coincide have no derivative; take that of core.spectrum."
    tied = are_tied(values, (layer.shape[0], layer.shape[1]))
    return refused_derivative(left, tied, message), values, refused_derivative(right_t, tied, message)


@formula
def _block_svd(a: BlockShift) -> BlockSVD:
    parts = [_decomposed("block_svd", layer) for layer in a.layers]
    first, last = a.widths[0], a.widths[-1]
    values = []
    for layer, (_, s, _) in zip(a.layers, parts, strict=True):
        place = xp.arange(s.shape[0])
        values.append(put(xp.zeros_like(layer), (place, place), s))
    left = (xp.zeros((first, first)), *(u for u, _, _ in parts))
    right = (*(vt.T for _, _, vt in parts), xp.zeros((last, last)))
    return BlockSVD(
        BlockShift(left, a.widths, 0), BlockShift(tuple(values), a.widths, 1), BlockShift(right, a.widths, 0)
    )


@entry
def adjacency_svd(params: Iterable[Any]) -> AdjacencySVD:
    r"""Singular value decomposition of the adjacency matrix, assembled from those of the layers.

    Its singular values are those of all layers together, and zeros: $q = \sum_l \min(d_l, d_{l-1})$ belong to a layer,
    $n_v - q$ to none. The left vectors of layer $l$ live on the nodes it leads to, the right ones where it starts.

    Args:
        params: Layers, first-acting first.

    Returns:
        `left`, `values`, `right`, and the `layer` of each singular value. Dense: meant for small networks.

    Example:
        >>> adjacency_svd((jnp.array([[3.0, 4.0]]), jnp.array([[7.0]]))).values
        array([7., 5., 0., 0.])
    """
    return _adjacency_svd(adjacency(params))


@formula
def _adjacency_svd(a: BlockShift) -> AdjacencySVD:
    widths, nodes = a.widths, a.nodes
    edges = np.concatenate([[0], np.cumsum(widths)])

    def columns(block: Array, group: int) -> Array:
        tall = xp.zeros((nodes, block.shape[1]), block.dtype)
        return put(tall, slice(edges[group], edges[group + 1]), block)

    kept_left, rest_left, kept_right, rest_right = [], [], [], []
    values, owners = [], []
    for number, layer in enumerate(a.layers, start=1):
        u, s, vt = _decomposed("adjacency_svd", layer)
        count = s.shape[0]
        kept_left.append(columns(u[:, :count], number))
        rest_left.append(columns(u[:, count:], number))
        kept_right.append(columns(vt[:count].T, number - 1))
        rest_right.append(columns(vt[count:].T, number - 1))
        values.append(s)
        owners.append(np.full(count, number))
    free_left = columns(xp.eye(widths[0]), 0)
    free_right = columns(xp.eye(widths[-1]), len(widths) - 1)
    found = xp.concatenate(values)
    order = xp.argsort(-found, stable=True)
    zeros = nodes - found.shape[0]
    return AdjacencySVD(
        xp.concatenate([xp.concatenate(kept_left, 1)[:, order], *rest_left, free_left], 1),
        xp.concatenate([found[order], xp.zeros(zeros)]),
        xp.concatenate([xp.concatenate(kept_right, 1)[:, order], *rest_right, free_right], 1),
        xp.concatenate([xp.take(np.concatenate(owners), order), xp.zeros(zeros, dtype=int)]),
    )


# --- Numerical range --------------------------------------------------------------------------------------------------


@entry
def numerical_radius(params: Iterable[Any]) -> Float[Array, ""]:
    r"""Radius $w(A) = \lambda_{\max}\big((A + A^\top)/2\big)$ of the numerical range of the adjacency matrix.

    The numerical range $\{x^* A x : \|x\| = 1\}$ is a disk around 0, as $D A D^* = e^{i\theta} A$ for
    $D = \mathrm{blk}_0(I, e^{i\theta} I, e^{2i\theta} I, \dots)$. Layers join nodes of even and of odd groups only, so
    $w$ is half the largest singular value of the rectangular matrix between the two. Above 2000 nodes, where the layers
    can be seen, Lanczos iteration on the structured matrix takes its place, on the host.

    Args:
        params: Layers, first-acting first.

    Returns:
        The radius.

    Raises:
        scipy.sparse.linalg.ArpackNoConvergence: The iteration did not settle.

    Example:
        >>> round(float(numerical_radius((jnp.eye(2), jnp.eye(2)))), 12)  # cos(pi/4)
        0.707106781187
    """
    a = adjacency(params)
    if a.nodes > LARGEST_DENSE and all(is_concrete(layer) for layer in a.layers):
        return xp.asarray(_lanczos(a), dtype=float)
    return _half_norm(a)


@formula
def _half_norm(a: BlockShift) -> Float[Array, ""]:
    even, odd = a.widths[::2], a.widths[1::2]
    rows, columns = (np.concatenate([[0], np.cumsum(group)]) for group in (odd, even))
    between = xp.zeros((sum(odd), sum(even)), a.layers[0].dtype)
    for position, layer in enumerate(a.layers):
        block = layer if position % 2 == 0 else layer.T
        row, column = position // 2, (position + 1) // 2
        place = slice(rows[row], rows[row + 1]), slice(columns[column], columns[column + 1])
        between = put(between, place, block)
    return 0.5 * spectrum(between)[0]


def _lanczos(a: BlockShift) -> float:
    """Largest eigenvalue of the symmetric part by Lanczos iteration with plain products of layers."""
    layers = [np.asarray(layer) for layer in a.layers]
    cuts = np.cumsum(a.widths)[:-1]

    def product(vector: np.ndarray) -> np.ndarray:
        parts = np.split(np.asarray(vector).ravel(), cuts)
        result = [np.zeros_like(part) for part in parts]
        for position, layer in enumerate(layers):
            result[position + 1] += 0.5 * (layer @ parts[position])
            result[position] += 0.5 * (layer.T @ parts[position + 1])
        return np.concatenate(result)

    from scipy.sparse.linalg import LinearOperator, eigsh

    make: Any = LinearOperator  # a class whose construction type checkers do not follow
    operator = make((a.nodes, a.nodes), matvec=product, dtype=float)
    start = np.random.default_rng(0).standard_normal(a.nodes)
    return float(eigsh(operator, k=1, which="LA", v0=start, return_eigenvectors=False)[0])


@entry
def aligned_radius(amplitudes: Any) -> Float[Array, ""]:
    r"""Numerical radius of an aligned network from the singular values of its layers.

    In the bases of its singular vectors an aligned network is a set of chains, one for each mode $k$, and
    $w(A) = \max_k \lambda_{\max}\big(\tfrac12\,\mathrm{tridiag}(\lambda_{1,k}, \dots, \lambda_{L,k})\big)$ with
    matrices of size $L + 1$.

    Args:
        amplitudes: $\lambda_{l,k}$, (depth, modes); signs do not matter.

    Returns:
        The radius.

    Example:
        >>> round(float(aligned_radius([[3.0], [4.0]])), 12)
        2.5
    """
    check_x64("aligned_radius")
    values = as_array(amplitudes, float)
    check_shape("aligned_radius", "amplitudes", values, (None, None))
    check_finite("aligned_radius", "amplitudes", values)
    if 0 in values.shape:
        raise ValueError(f"aligned_radius: amplitudes must not be empty, but has shape {values.shape}.")
    return _chain_radius(values)


@formula
def _chain_radius(values: Float[Array, "depth modes"]) -> Float[Array, ""]:
    depth = values.shape[0]
    place = xp.arange(depth)
    lower = xp.zeros((values.shape[1], depth + 1, depth + 1))
    lower = put(lower, (slice(None), place + 1, place), 0.5 * values.T)
    return xp.max(eigenvalues(lower + xp.swapaxes(lower, 1, 2)))


@entry
def balanced_radius(amplitude: ArrayLike, depth: int) -> Float[Array, "..."]:
    r"""$z \cos\!\big(\pi/(L+2)\big)$: numerical radius of a balanced network with largest layer singular value $z$.

    Args:
        amplitude: $z \ge 0$, the largest singular value of any layer; for a product of norm $s$ it is $s^{1/L}$.
        depth: $L$.

    Returns:
        The radius, of the shape of `amplitude`.

    Example:
        >>> round(float(balanced_radius(2.0, 4)), 12)  # 2 cos(pi/6)
        1.732050807569
    """
    check_x64("balanced_radius")
    check_count("balanced_radius", "depth", depth, at_least=1)
    return xp.asarray(amplitude, dtype=float) * math.cos(math.pi / (depth + 2))


@entry
def numerical_range_boundary(params: Iterable[Any], angles: Any) -> Complex[Array, " angles"]:
    r"""Boundary points of the numerical range of the adjacency matrix, one for each direction.

    For the angle $\theta$ it is $x^* A x$ with $x$ the top eigenvector of the Hermitian part of $e^{-i\theta} A$: the
    point that reaches farthest in direction $e^{i\theta}$. Nothing about the shape is put in; that all are equally far
    from 0 is a result.

    Args:
        params: Layers, first-acting first. Dense matrices are formed: meant for small networks.
        angles: Directions in radians.

    Returns:
        One complex number per angle.

    Example:
        >>> jnp.abs(numerical_range_boundary((jnp.array([[2.0]]),), [0.0, 1.0])).round(12)
        Array([1., 1.], dtype=float64)
    """
    where = "numerical_range_boundary"
    check_x64(where)
    directions = as_array(angles, float)
    check_shape(where, "angles", directions, (None,))
    check_finite(where, "angles", directions)
    return _boundary(adjacency(params), directions)


@formula
def _boundary(a: BlockShift, directions: Float[Array, " angles"]) -> Complex[Array, " angles"]:
    dense = a.dense()

    def farthest(angle: Array) -> Array:
        turned = xp.exp(-1j * angle) * dense
        _, vectors = eigenpairs(0.5 * (turned + turned.conj().T))
        top = vectors[:, -1]
        return xp.vdot(top, dense @ top)

    return over(farthest)(directions)
