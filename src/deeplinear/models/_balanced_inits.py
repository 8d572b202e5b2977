r"""Initialisations with prescribed conserved quantities: balanced, $\lambda$-balanced, aligned with a task."""

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
    check_finite,
    check_key,
    check_number,
    check_shape,
    entry,
    formula,
    is_concrete,
    no_gradient,
    put,
    random,
    random_orthogonal,
    xp,
)
from deeplinear.models._balance import layer_strengths
from deeplinear.models._base import AbstractModel
from deeplinear.models._inits import AbstractInit, gaussian_layers, network_of, nonnegative, per_item

ORTHONORMALITY_TOLERANCE = 1e-10
"""Largest entry of $U^\\top U - I$ that still counts as orthonormal columns."""


class Balanced(AbstractInit):
    r"""Balanced layers, $W_{l+1}^\top W_{l+1} = W_l W_l^\top$, whose product is a given matrix.

    From $W = U S V^\top$: the last layer is $U S^{1/L}$, the middle ones are $S^{1/L}$, the first is $S^{1/L} V^\top$,
    padded with zeros to the hidden widths, which must be at least the rank. Balanced layers with the same product
    differ only by orthogonal changes of basis in the hidden layers.

    Args:
        product: $W$, (out, in).
        rotate: Whether to apply a Haar-random change of basis to every hidden layer.

    Example:
        >>> first, second = Balanced(jnp.diag(jnp.array([4.0, 1.0])))(DeepLinear((2, 2, 2)), jax.random.key(0))
        >>> jnp.linalg.svd(first, compute_uv=False).round(6)
        Array([2., 1.], dtype=float64)
    """

    product: Matrix
    rotate: bool = eqx.field(static=True)

    @entry
    def __init__(self, product: object, *, rotate: bool = False) -> None:
        self.product = as_array(product, float)
        check_shape("Balanced", "product", self.product, (None, None))
        check_finite("Balanced", "product", self.product)
        self.rotate = rotate

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        network = network_of("Balanced", model)
        check_shape("Balanced", "product", self.product, (network.widths[-1], network.widths[0]))
        if network.depth == 1:
            return (self.product,)
        advice = "singular vectors have no derivative at equal singular values; take FromSVD with factors of your own"
        product = no_gradient("models.Balanced", "product", self.product, instead=advice)
        left, values, right_t = xp.linalg.svd(product, full_matrices=False)
        narrowest = min(network.widths[1:-1])
        if narrowest < values.shape[0]:
            known = np.asarray(values) if is_concrete(values) else values
            rank = (known > max(self.product.shape) * xp.finfo(values.dtype).eps * known[0]).sum()
            message = f"Balanced: every hidden width must be at least the rank of product, but one is {narrowest}"
            if not is_concrete(rank):
                values = eqx.error_if(values, rank > narrowest, f"{message} and the rank is larger.")
            elif int(rank) > narrowest:
                raise ValueError(f"{message} and the rank is {int(rank)}; widen it or give a product of lower rank.")
        params = _balanced(left, values, right_t, network.widths)
        if not self.rotate:
            return params
        check_key("Balanced", key)
        return _rotated(params, key)


class FromSVD(AbstractInit):
    r"""Two $\lambda$-balanced layers from an explicit decomposition $W = U S V^\top$ of their product.

    $W_1 = R S_1 V^\top$ and $W_2 = U S_2 R^\top$ with $S_1 S_2 = S$ and $S_2^2 - S_1^2 = \lambda I$ (see
    `layer_strengths`). The number of columns is the hidden width.

    Args:
        left: $U$, (out, hidden), orthonormal columns.
        values: Diagonal of $S$, non-negative, in any order.
        right: $V$, (in, hidden), orthonormal columns.
        lam: $\lambda$, of either sign.
        rotation: $R$, (hidden, hidden), orthogonal; the identity if left out.

    Example:
        >>> init = FromSVD(jnp.eye(2), jnp.array([2.0, 2.0]), jnp.eye(2), lam=3.0)
        >>> first, second = init(DeepLinear((2, 2, 2)), jax.random.key(0))
        >>> float(first[0, 0]), float(second[0, 0])
        (1.0, 2.0)
    """

    left: Matrix
    values: Float[Array, " hidden"]
    right: Matrix
    lam: Float[Array, ""]
    rotation: Matrix

    @entry
    def __init__(
        self, left: object, values: object, right: object, lam: ArrayLike = 0.0, rotation: object | None = None
    ) -> None:
        self.values = nonnegative("FromSVD", "values", values)
        check_shape("FromSVD", "values", self.values, (None,))
        hidden = self.values.shape[0]
        self.left = _orthonormal("FromSVD", "left", left, (None, hidden))
        self.right = _orthonormal("FromSVD", "right", right, (None, hidden))
        turn = np.eye(hidden) if rotation is None else rotation
        self.rotation = _orthonormal("FromSVD", "rotation", turn, (hidden, hidden))
        check_number("FromSVD", "lam", lam)
        self.lam = xp.asarray(lam, dtype=float)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        network = network_of("FromSVD", model)
        widths = (self.right.shape[0], self.values.shape[0], self.left.shape[0])
        if network.widths != widths:
            raise ValueError(f"FromSVD: model must have widths {widths} to fit the factors, but has {network.widths}.")
        return two_balanced_layers(self.left, self.values, self.right, self.lam, self.rotation, widths)


class LambdaBalanced(AbstractInit):
    r"""Random layers with $W_2^\top W_2 - W_1 W_1^\top = \lambda I$ exactly.

    The product of Gaussian layers is decomposed and factorised again with the layer strengths that
    $\lambda$-balance asks for, the hidden basis being Haar-random. Hidden directions that the product does not use
    get strength $\sqrt{|\lambda|}$ in the layer that must be the larger one, which therefore needs room:
    $\lambda > 0$ needs $d_2 \ge d_1$ and $\lambda < 0$ needs $d_0 \ge d_1$. At other depths only $\lambda = 0$ is
    offered (all $C_l = 0$).

    Args:
        lam: $\lambda$.
        std: Standard deviation of the Gaussian layers, positive.
        absolute_scale: Frobenius norm to rescale the product to, if given.
        match_det: Square matrix; the product's smallest mode is flipped where needed to give its determinant the
            sign of this one (square networks only). Layers with $\lambda = 0$ can never change that sign.

    Example:
        >>> params = LambdaBalanced(3.0, 0.1)(DeepLinear((2, 2, 2)), jax.random.key(0))
        >>> lambda_estimate(params).lam.round(6)
        array([3.])
    """

    lam: Float[Array, ""]
    std: Float[Array, ""]
    absolute_scale: Float[Array, ""] | None
    match_det: Matrix | None

    @entry(sized=("lam", "std", "absolute_scale"))
    def __init__(
        self,
        lam: ArrayLike,
        std: ArrayLike,
        *,
        absolute_scale: ArrayLike | None = None,
        match_det: object | None = None,
    ) -> None:
        check_number("LambdaBalanced", "lam", lam)
        check_number("LambdaBalanced", "std", std, above=0)
        self.lam = xp.asarray(lam, dtype=float)
        self.std = xp.asarray(std, dtype=float)
        self.absolute_scale = None
        self.match_det = None
        if absolute_scale is not None:
            check_number("LambdaBalanced", "absolute_scale", absolute_scale, at_least=0)
            self.absolute_scale = xp.asarray(absolute_scale, dtype=float)
        if match_det is not None:
            self.match_det = as_array(match_det, float)
            check_shape("LambdaBalanced", "match_det", self.match_det, (None, None))
            check_finite("LambdaBalanced", "match_det", self.match_det)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        network = network_of("LambdaBalanced", model)
        std = feasible_lambda("LambdaBalanced", self.std, self.lam, network.widths)
        if self.match_det is not None:
            size = network.widths[0]
            if min(network.widths) < size or network.widths[-1] != size:
                raise ValueError(
                    f"LambdaBalanced: match_det needs a square network without bottleneck, but the widths are "
                    f"{network.widths}."
                )
            check_shape("LambdaBalanced", "match_det", self.match_det, (size, size))
        check_key("LambdaBalanced", key)
        key_layers, key_rotation = random.split(key)
        # The size is taken out before the decomposition: the layers have derivatives by it, singular vectors have none.
        product = network.product(gaussian_layers(key_layers, network.shapes, [1.0] * network.depth))
        left, values, right_t = xp.linalg.svd(product, full_matrices=True)
        values = std**network.depth * values
        left, values = _adjusted(left, values, right_t, self.absolute_scale, self.match_det, min(network.widths))
        if network.depth == 2:
            rotation = random_orthogonal(key_rotation, network.widths[1])
            return two_balanced_layers(left, values, right_t.T, self.lam, rotation, network.widths)
        return _rotated(_balanced(left, values, right_t, network.widths), key_rotation)


class TaskAligned(AbstractInit):
    r"""Balanced layers whose product has the singular vectors of a target and given strengths.

    With $W^\star = U S^\star V^\top$ the product is $U\,\mathrm{diag}(a)\,V^\top$, so the modes of the task learn
    independently of each other. Two layers may have any feasible $\lambda$, other depths $\lambda = 0$. Hidden
    directions beyond the modes are filled as in `LambdaBalanced`. Singular vectors that the target does not
    determine (zero or repeated singular values) are those of the decomposition.

    Args:
        target: $W^\star$, (out, in).
        strengths: $a$, one number or one per mode, largest mode of the target first; there are as many modes as the
            narrowest layer has units. A negative strength starts its mode with the wrong sign.
        lam: $\lambda$.

    Example:
        >>> params = TaskAligned(jnp.diag(jnp.array([3.0, 2.0])), 0.01)(DeepLinear((2, 2, 2)), jax.random.key(0))
        >>> float(jnp.trace(params[1] @ params[0]).round(6))
        0.02
    """

    target: Matrix
    strengths: Float[Array, "..."]
    lam: Float[Array, ""]

    @entry
    def __init__(self, target: object, strengths: object, lam: ArrayLike = 0.0) -> None:
        self.target = as_array(target, float)
        check_shape("TaskAligned", "target", self.target, (None, None))
        check_finite("TaskAligned", "target", self.target)
        self.strengths = as_array(strengths, float)
        check_finite("TaskAligned", "strengths", self.strengths)
        check_number("TaskAligned", "lam", lam)
        self.lam = xp.asarray(lam, dtype=float)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        network = network_of("TaskAligned", model)
        check_shape("TaskAligned", "target", self.target, (network.widths[-1], network.widths[0]))
        strengths = feasible_lambda("TaskAligned", self.strengths, self.lam, network.widths)
        strengths = per_item("TaskAligned", "strengths", strengths, min(network.widths), "mode")
        advice = "take FromSVD with factors of your own"
        target = no_gradient("models.TaskAligned", "target", self.target, instead=advice)
        left, _, right_t = xp.linalg.svd(target, full_matrices=True)
        return _task_aligned(left, strengths, right_t, self.lam, network.widths)


def _orthonormal(where: str, name: str, value: object, shape: tuple[int | None, int]) -> Matrix:
    """A matrix with orthonormal columns."""
    matrix = as_array(value, float)
    check_shape(where, name, matrix, shape)
    check_finite(where, name, matrix)
    if is_concrete(matrix):
        columns = np.asarray(matrix)
        residual = float(np.max(np.abs(columns.T @ columns - np.eye(columns.shape[1])), initial=0.0))
        if residual > ORTHONORMALITY_TOLERANCE:
            raise ValueError(f"{where}: {name} must have orthonormal columns, but they miss it by {residual:.1e}.")
    return matrix


def feasible_lambda(
    where: str, guarded: Float[Array, "..."], lam: Float[Array, ""], widths: tuple[int, ...]
) -> Float[Array, "..."]:
    r"""`guarded` if layers of these widths can be $\lambda$-balanced, or a refusal: use what is returned.

    Two layers need room for the larger one: $\lambda > 0$ as many outputs as hidden units, $\lambda < 0$ as many
    inputs. Other depths are offered $\lambda = 0$ only.

    Args:
        where: Who asks, for the message.
        guarded: An array of the computation; under a transformation the refusal travels with it.
        lam: $\lambda$.
        widths: Widths of all layers, input first.

    Example:
        >>> float(feasible_lambda("here", jnp.ones(()), jnp.asarray(2.0), (3, 2, 2)))
        1.0
    """
    known = np.asarray(lam) if is_concrete(lam) else lam
    if len(widths) != 3:
        rules = [(known != 0, "lam must be 0 unless there are two layers")]
    else:
        inp, hidden, out = widths
        rules = [(known > 0, "lam > 0 needs at least as many outputs as hidden units")] if out < hidden else []
        rules += [(known < 0, "lam < 0 needs at least as many inputs as hidden units")] if inp < hidden else []
    for broken, rule in rules:
        if not is_concrete(lam):
            guarded = eqx.error_if(guarded, broken, f"{where}: {rule}, but the widths are {widths}.")
        elif bool(broken):
            raise ValueError(f"{where}: {rule}, but the widths are {widths} and lam is {float(lam):g}.")
    return guarded


@formula(static_argnames="modes")
def _adjusted(
    left: Matrix,
    values: Float[Array, " _"],
    right_t: Matrix,
    scale: Float[Array, ""] | None,
    match_det: Matrix | None,
    modes: int,
) -> tuple[Matrix, Float[Array, " modes"]]:
    """Left vectors and singular values of a product of the wanted norm and sign of its determinant."""
    values = values[:modes]
    if scale is not None:
        values = values * (scale / xp.linalg.norm(values))
    if match_det is not None:
        wanted, _ = xp.linalg.slogdet(match_det)
        sign = wanted * xp.linalg.slogdet(left)[0] * xp.linalg.slogdet(right_t)[0]
        left = put(left, (slice(None), -1), left[:, -1] * xp.where(sign < 0, -1.0, 1.0))
    return left, values


@formula(static_argnames="widths")
def _task_aligned(
    left: Matrix,
    strengths: Float[Array, " modes"],
    right_t: Matrix,
    lam: Float[Array, ""],
    widths: tuple[int, ...],
) -> Params:
    """Layers of `TaskAligned` from the decomposition of the target."""
    count = len(strengths)
    left = put(left, (slice(None), slice(count)), left[:, :count] * xp.where(strengths < 0, -1.0, 1.0))
    values = xp.abs(strengths)
    if len(widths) == 3:
        return two_balanced_layers(left, values, right_t.T, lam, xp.eye(widths[1], dtype=float), widths)
    return _balanced(left, values, right_t, widths)


@formula(static_argnames="widths")
def _balanced(left: Matrix, values: Float[Array, " _"], right_t: Matrix, widths: tuple[int, ...]) -> Params:
    """Balanced layers from a decomposition of their product, cut to the narrowest and padded with zeros to the rest."""
    depth, modes = len(widths) - 1, min(*widths, values.shape[0])
    left, values, right = left[:, :modes], values[:modes], right_t[:modes].T
    if depth == 1:
        return ((left * values) @ right.T,)
    root = values ** (1 / depth)
    layers = [put(xp.zeros((widths[1], widths[0]), root.dtype), slice(modes), root[:, None] * right.T)]
    for inp, out in itertools.pairwise(widths[1:-1]):
        layers.append(put(xp.zeros((out, inp), root.dtype), (slice(modes), slice(modes)), xp.diag(root)))
    layers.append(put(xp.zeros((widths[-1], widths[-2]), root.dtype), (slice(None), slice(modes)), left * root))
    return tuple(layers)


def _rotated(params: Params, key: RandomKey) -> Params:
    """The same network in a Haar-random orthonormal basis of every hidden layer."""
    layers = list(params)
    for position, k in enumerate(random.split(key, len(layers))[:-1]):
        turn = random_orthogonal(k, layers[position].shape[0])
        layers[position] = turn @ layers[position]
        layers[position + 1] = layers[position + 1] @ turn.T
    return tuple(layers)


@entry
@formula(static_argnames="widths")
def two_balanced_layers(
    left: Float[Array, "out _"],
    values: Float[Array, " modes"],
    right: Float[Array, "inp _"],
    lam: Float[Array, ""],
    rotation: Float[Array, "hidden hidden"],
    widths: tuple[int, ...],
) -> Params:
    r"""Layers $W_1 = R S_1 V^\top$ and $W_2 = U S_2 R^\top$ with $W_2^\top W_2 - W_1 W_1^\top = \lambda I$.

    Hidden directions beyond the modes are filled with $\sqrt{|\lambda|}$ in the layer that must be the larger one.

    Args:
        left: $U$, orthonormal columns, at least the smaller of hidden and output width of them.
        values: Singular values of the product, non-negative.
        right: $V$, orthonormal columns, at least the smaller of hidden and input width of them.
        lam: $\lambda$, feasible for the widths (see `feasible_lambda`).
        rotation: $R$.
        widths: Input, hidden and output width.

    Returns:
        Both layers.

    Example:
        >>> eye, none = jnp.eye(2), jnp.zeros(0)
        >>> two_balanced_layers(eye, none, eye, jnp.asarray(4.0), eye, (2, 2, 2))[1]
        array([[2., 0.],
               [0., 2.]])
    """
    inp, hidden, out = widths
    first, second = layer_strengths(values, lam)
    below, above = min(hidden, inp), min(hidden, out)
    first, second = _filled(first, below, -lam), _filled(second, above, lam)
    return (rotation[:, :below] * first) @ right[:, :below].T, (left[:, :above] * second) @ rotation[:, :above].T


def _filled(strengths: Float[Array, " modes"], size: int, square: Float[Array, ""]) -> Float[Array, " size"]:
    """Strengths of a layer with those of unused hidden directions appended: the root of `square` where positive."""
    missing = size - strengths.shape[0]
    if missing == 0:
        return strengths
    root = xp.where(square > 0, xp.sqrt(xp.where(square > 0, square, 1.0)), 0.0)
    return xp.concatenate([strengths, xp.broadcast_to(root, (missing,))])
