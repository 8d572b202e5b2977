"""Initialisations with structure: nearly balanced, aligned, decoupled, diagonal, growing away from a pivot."""

import itertools

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    Matrix,
    Params,
    RandomKey,
    as_array,
    check_count,
    check_finite,
    check_key,
    check_number,
    check_shape,
    entry,
    formula,
    is_concrete,
    is_program,
    put,
    random,
    random_orthogonal,
    xp,
)
from deeplinear.models._balance import balancedness
from deeplinear.models._balanced_inits import ORTHONORMALITY_TOLERANCE
from deeplinear.models._base import AbstractModel
from deeplinear.models._inits import AbstractInit, gaussian_layers, network_of
from deeplinear.models._networks import DeepLinear

LEAST_GROWTH = 3.0
"""Smallest factor between neighbouring layers of a pyramid: above the spread 2 of the strengths within a layer."""


@entry(sized=("params", "delta"))
def rescale_balance(params: Params, delta: ArrayLike) -> Params:
    r"""The layers times one number, such that $\max_l \|C_l\|_F = \delta$ exactly.

    Conserved quantities are quadratic in the layers, so the number is $\sqrt{\delta / \max_l \|C_l\|_F}$.

    Args:
        params: At least two layers, not balanced.
        delta: $\delta > 0$.

    Returns:
        The layers.

    Example:
        >>> first, second = rescale_balance((jnp.eye(1), 2 * jnp.eye(1)), 12.0)
        >>> float(second[0, 0] ** 2 - first[0, 0] ** 2)
        12.0
    """
    check_number("rescale_balance", "delta", delta, above=0)
    if len(params) < 2:
        raise ValueError("rescale_balance: params must hold at least two layers, but holds one: nothing is conserved.")
    for position, layer in enumerate(params):
        check_finite("rescale_balance", f"params[{position}]", layer)
    largest = xp.max(balancedness(params))
    message = "rescale_balance: params must not be balanced, but are."
    if is_program(largest):
        largest = eqx.error_if(largest, largest == 0, message)
    elif not largest:
        raise ValueError(message)
    return _rescaled(params, as_array(delta, float), largest)


@formula
def _rescaled(params: Params, delta: Float[Array, ""], largest: Float[Array, ""]) -> Params:
    factor = xp.sqrt(delta / largest)
    return tuple(factor * layer for layer in params)


class DeltaBalanced(AbstractInit):
    r"""Gaussian layers, all multiplied by one number such that $\max_l \|C_l\|_F = \delta$ exactly.

    A small $\delta$ is a small start: singular values of neighbouring layers stay within
    $|s_l - s_{l+1}| \le \delta / (s_l + s_{l+1})$ of each other for all times.

    Args:
        delta: $\delta > 0$.

    Example:
        >>> params = DeltaBalanced(0.04)(DeepLinear((2, 2, 2)), jax.random.key(0))
        >>> round(float(balancedness(params).max()), 12)
        0.04
    """

    delta: Float[Array, ""]

    @entry
    def __init__(self, delta: ArrayLike) -> None:
        check_number("DeltaBalanced", "delta", delta, above=0)
        self.delta = xp.asarray(delta, dtype=float)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        network = _deep("DeltaBalanced", model)
        return rescale_balance(gaussian_layers(key, network.shapes, [1.0] * network.depth), self.delta)


class Aligned(AbstractInit):
    r"""Layers $W_l = U_l \Lambda_l U_{l-1}^\top$ with rectangular diagonal $\Lambda_l$: each reads what the last wrote.

    The bases $U_1, \dots, U_{L-1}$ of the hidden layers are Haar-random, and so are $U_0$ and $U_L$ unless given.
    Strengths may have any sign and order. Gradient flow does not keep such layers aligned unless $U_L^\top W^\star U_0$
    is diagonal.

    Args:
        strengths: Diagonals of $\Lambda_l$: one number, one for each mode, or (layers, modes). There are at most as
            many modes as the narrowest layer has units; further diagonal entries are zero.
        left: $U_L$, (out, out), orthogonal.
        right: $U_0$, (in, in), orthogonal.

    Example:
        >>> first, second = Aligned([3.0, 2.0])(DeepLinear((2, 4, 2)), jax.random.key(0))
        >>> jnp.linalg.svd(second @ first, compute_uv=False).round(6)
        Array([9., 4.], dtype=float64)
    """

    strengths: Float[Array, "..."]
    left: Matrix | None
    right: Matrix | None

    @entry
    def __init__(self, strengths: object, *, left: object | None = None, right: object | None = None) -> None:
        self.strengths = _checked_strengths("Aligned", strengths)
        self.left = None if left is None else _orthogonal("Aligned", "left", left)
        self.right = None if right is None else _orthogonal("Aligned", "right", right)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        network = network_of("Aligned", model)
        for name, basis, width in (("left", self.left, network.widths[-1]), ("right", self.right, network.widths[0])):
            if basis is not None:
                check_shape("Aligned", name, basis, (width, width))
        check_key("Aligned", key)
        keys = random.split(key, network.depth + 1)
        bases = [random_orthogonal(k, width) for k, width in zip(keys, network.widths, strict=True)]
        bases[0] = bases[0] if self.right is None else self.right
        bases[-1] = bases[-1] if self.left is None else self.left
        return _in_bases(diagonal_layers("Aligned", self.strengths, network), bases)


class Decoupled(AbstractInit):
    r"""Aligned layers in the coordinates of inputs and outputs: $W_l = U_l \Lambda_l U_{l-1}^\top$, $U_0 = U_L = I$.

    For a diagonal target the flow of such layers is that of the diagonal layers $\Lambda_l$, seen in the bases $U_l$,
    and stays decoupled.

    Args:
        strengths: Diagonals of $\Lambda_l$, as for `Aligned`.

    Example:
        >>> first, second = Decoupled([3.0, 2.0])(DeepLinear((2, 4, 2)), jax.random.key(0))
        >>> jnp.diagonal(second @ first).round(6)
        Array([9., 4.], dtype=float64)
    """

    strengths: Float[Array, "..."]

    @entry
    def __init__(self, strengths: object) -> None:
        self.strengths = _checked_strengths("Decoupled", strengths)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        network = _deep("Decoupled", model)
        check_key("Decoupled", key)
        keys = random.split(key, network.depth - 1)
        hidden = [random_orthogonal(k, width) for k, width in zip(keys, network.widths[1:-1], strict=True)]
        ends = [xp.eye(width) for width in (network.widths[0], network.widths[-1])]
        return _in_bases(diagonal_layers("Decoupled", self.strengths, network), [ends[0], *hidden, ends[1]])


class Diagonal(AbstractInit):
    r"""Rectangular diagonal layers $\Lambda_l$. For a diagonal target they stay diagonal.

    Args:
        strengths: Their diagonals, as for `Aligned`.

    Example:
        >>> Diagonal([[1.0, 2.0], [3.0, -4.0]])(DeepLinear((2, 2, 2)), jax.random.key(0))[1]
        array([[ 3.,  0.],
               [ 0., -4.]])
    """

    strengths: Float[Array, "..."]

    @entry
    def __init__(self, strengths: object) -> None:
        self.strengths = _checked_strengths("Diagonal", strengths)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        return diagonal_layers("Diagonal", self.strengths, network_of("Diagonal", model))


class Pyramid(AbstractInit):
    r"""Layers that grow away from a pivot, each stronger in every direction than the next one inwards.

    Layer $l$ has singular values between $c^{|l-j|} a$ and $2 c^{|l-j|} a$ and Haar-random singular vectors, $j$ being
    the pivot, $c \ge 3$ the growth and $a$ the scale. Then $W_l W_l^\top - W_{l+1}^\top W_{l+1}$ has $d_{l-1}$ positive
    eigenvalues for $l < j$ and $d_{l+1}$ negative ones for $l \ge j$, which is what an exponential rate of the loss
    follows from. Widths must not fall up to layer $j - 1$ and not rise from layer $j$ on.

    Args:
        pivot: $j$, from 1 to the number of layers.
        growth: $c$.
        scale: $a > 0$.

    Example:
        >>> (c,) = conserved(Pyramid(2)(DeepLinear((2, 3, 2)), jax.random.key(0)))
        >>> bool(np.linalg.eigvalsh(c)[1] < 0)
        True
    """

    pivot: int = eqx.field(static=True)
    growth: Float[Array, ""]
    scale: Float[Array, ""]

    @entry
    def __init__(self, pivot: int, growth: ArrayLike = LEAST_GROWTH, scale: ArrayLike = 1.0) -> None:
        check_count("Pyramid", "pivot", pivot, at_least=1)
        check_number("Pyramid", "growth", growth, at_least=LEAST_GROWTH)
        check_number("Pyramid", "scale", scale, above=0)
        self.pivot = int(pivot)
        self.growth = xp.asarray(growth, dtype=float)
        self.scale = xp.asarray(scale, dtype=float)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        network = _pivoted("Pyramid", model, self.pivot)
        widths, j = network.widths, self.pivot
        rising, falling = itertools.pairwise(widths[:j]), itertools.pairwise(widths[j:])
        if any(a > b for a, b in rising) or any(a < b for a, b in falling):
            raise ValueError(
                f"Pyramid: widths must not fall up to layer {j - 1} and not rise from layer {j} on, but are {widths}; "
                "take another pivot or other widths."
            )
        check_key("Pyramid", key)
        keys = random.split(key, network.depth)
        return tuple(
            self.scale * self.growth ** abs(number - j) * _conditioned(k, shape)
            for number, (k, shape) in enumerate(zip(keys, network.shapes, strict=True), start=1)
        )


class Cumulative(AbstractInit):
    r"""Layers built outwards from a pivot, each with the Gram matrix of the last plus a positive definite part.

    With the pivot $j$: $W_{l+1}^\top W_{l+1} = W_l W_l^\top + E_l$ for $l \ge j$ and
    $W_l W_l^\top = W_{l+1}^\top W_{l+1} + E_l$ for $l < j$, with $E_l \succeq 0$ of rank $d_L$ or $d_0$ and eigenvalues
    between $a^2$ and $4a^2$ there. An exponential rate of the loss follows from the sums of these parts. Hidden layers
    must be at least as wide as the input and the output.

    Args:
        pivot: $j$, from 1 to the number of layers.
        scale: $a > 0$, which is also the smallest singular value of the pivot layer.

    Example:
        >>> params = Cumulative(1)(DeepLinear((2, 3, 3, 2)), jax.random.key(0))
        >>> [bool(np.linalg.eigvalsh(c)[0] > -1e-12) for c in conserved(params)]
        [True, True]
    """

    pivot: int = eqx.field(static=True)
    scale: Float[Array, ""]

    @entry(sized=("scale",))
    def __init__(self, pivot: int, scale: ArrayLike = 1.0) -> None:
        check_count("Cumulative", "pivot", pivot, at_least=1)
        check_number("Cumulative", "scale", scale, above=0)
        self.pivot = int(pivot)
        self.scale = xp.asarray(scale, dtype=float)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        network = _pivoted("Cumulative", model, self.pivot)
        widths, j = network.widths, self.pivot
        inp, out = widths[0], widths[-1]
        if min(widths[1:-1], default=max(inp, out)) < max(inp, out):
            raise ValueError(
                f"Cumulative: hidden widths must be at least {max(inp, out)}, the larger outer width, but widths is "
                f"{widths}."
            )
        check_key("Cumulative", key)
        of_frames, of_parts = random.split(key)
        frames = [
            random_orthogonal(k, width)[:, : inp if place < j else out]
            for place, (k, width) in enumerate(zip(random.split(of_frames, len(widths)), widths, strict=True))
        ]
        parts = random.split(of_parts, network.depth)
        pivot = self.scale * _conditioned(parts[0], (out, inp))
        cores = [pivot]
        for k in parts[1:j]:  # outwards to the input: B Bᵀ = the Gram matrix above + E
            inner = self.scale * _conditioned(k, (inp, inp))
            cores.insert(0, xp.linalg.cholesky(cores[0].T @ cores[0] + inner @ inner.T))
        for k in parts[j:]:  # outwards to the output: BᵀB = the Gram matrix below + E
            inner = self.scale * _conditioned(k, (out, out))
            cores.append(xp.linalg.cholesky(cores[-1] @ cores[-1].T + inner @ inner.T).T)
        return tuple(above @ core @ below.T for core, below, above in zip(cores, frames[:-1], frames[1:], strict=True))


def diagonal_layers(where: str, strengths: Float[Array, "..."], network: DeepLinear) -> Params:
    r"""Rectangular diagonal layers of a network.

    Args:
        where: Who asks, for the message.
        strengths: One number, one for each mode, or (layers, modes).
        network: The network.

    Returns:
        The layers.

    Example:
        >>> diagonal_layers("here", jnp.asarray(2.0), DeepLinear((2, 1)))[0]
        array([[2., 0.]])
    """
    modes = min(network.widths)
    if strengths.ndim == 0:
        strengths = xp.broadcast_to(strengths, (modes,))
    if strengths.ndim == 1:
        strengths = xp.broadcast_to(strengths, (network.depth, strengths.shape[0]))
    if strengths.shape[0] != network.depth or strengths.shape[1] > modes:
        raise ValueError(
            f"{where}: strengths must be one number, one for each of at most {modes} modes, or of shape "
            f"({network.depth}, at most {modes}), for widths {network.widths}, but spread to shape {strengths.shape}."
        )
    return _diagonals(strengths, network)


@formula
def _diagonals(strengths: Float[Array, "layers modes"], network: DeepLinear) -> Params:
    place = xp.arange(strengths.shape[1])
    return tuple(
        put(xp.zeros(shape, strengths.dtype), (place, place), row)
        for shape, row in zip(network.shapes, strengths, strict=True)
    )


@formula
def _in_bases(layers: Params, bases: list[Matrix]) -> Params:
    """Layers in given orthonormal bases of all widths, input first."""
    return tuple(above @ layer @ below.T for layer, below, above in zip(layers, bases[:-1], bases[1:], strict=True))


def _checked_strengths(where: str, strengths: object) -> Float[Array, "..."]:
    array = as_array(strengths, float)
    check_finite(where, "strengths", array)
    if array.ndim > 2:
        raise ValueError(f"{where}: strengths must have at most two dimensions (layers, modes), but has {array.ndim}.")
    return array


def _orthogonal(where: str, name: str, value: object) -> Matrix:
    """A square matrix with orthonormal columns, or a refusal."""
    matrix = as_array(value, float)
    check_shape(where, name, matrix, (None, None))
    check_shape(where, name, matrix, (matrix.shape[0], matrix.shape[0]))
    check_finite(where, name, matrix)
    if is_concrete(matrix):
        known = np.asarray(matrix)
        residual = float(np.max(np.abs(known.T @ known - np.eye(len(known)))))
        if residual > ORTHONORMALITY_TOLERANCE:
            raise ValueError(f"{where}: {name} must be orthogonal, but its columns miss it by {residual:.1e}.")
    return matrix


def _deep(where: str, model: AbstractModel) -> DeepLinear:
    """A network with hidden layers, or a refusal."""
    network = network_of(where, model)
    if network.depth < 2:
        raise ValueError(f"{where}: model must have at least two layers, but has widths {network.widths}.")
    return network


def _pivoted(where: str, model: AbstractModel, pivot: int) -> DeepLinear:
    network = network_of(where, model)
    check_count(where, "pivot", pivot, at_least=1, at_most=network.depth)
    return network


def _conditioned(key: RandomKey, shape: tuple[int, int]) -> Matrix:
    """Haar-random singular vectors, singular values uniform between 1 and 2."""
    rows, columns = shape
    of_left, of_values, of_right = random.split(key, 3)
    modes = min(shape)
    values = random.uniform(of_values, (modes,), minval=1.0, maxval=2.0)
    return (random_orthogonal(of_left, rows)[:, :modes] * values) @ random_orthogonal(of_right, columns)[:, :modes].T
