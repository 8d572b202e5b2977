"""Initialisations: from a model and a key to the layers a run starts from."""

import abc
import itertools
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from deeplinear.core import (
    Matrix,
    Params,
    check_finite,
    check_number,
    check_shape,
    is_concrete,
    near_name,
    random_orthogonal,
)
from deeplinear.models._balance import layer_strengths
from deeplinear.models._base import AbstractModel
from deeplinear.models._networks import DeepLinear

ORTHONORMALITY_TOLERANCE = 1e-10
"""Largest entry of $U^\\top U - I$ that still counts as orthonormal columns."""


class AbstractInit(eqx.Module):
    """Where a run starts: a map from a model and a key to parameters.

    All randomness comes from the key, so the same key gives the same layers. Numbers in an initialisation are
    array leaves: sweeping them compiles nothing anew.
    """

    @abc.abstractmethod
    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        """Layers for `model`. Deterministic initialisations ignore the key."""


class Gaussian(AbstractInit):
    r"""Independent normal entries of one standard deviation in all layers.

    Args:
        std: Standard deviation, positive.

    Example:
        >>> [w.shape for w in Gaussian(0.1)(DeepLinear((3, 5, 2)), jax.random.key(0))]
        [(5, 3), (2, 5)]
    """

    std: Float[Array, ""]

    def __init__(self, std: ArrayLike) -> None:
        check_number("Gaussian", "std", std, above=0)
        self.std = jnp.asarray(std, dtype=float)

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        return _gaussian(key, model.shapes, [self.std] * len(model.shapes))


class MatchedGaussian(AbstractInit):
    r"""Independent normal entries, with a standard deviation that gives the product one scale at every depth.

    Rule `"power"` matches $\sigma^L = c$. Rule `"product"` matches $\sigma^L \sqrt{d_1 \cdots d_{L-1}} = c$, with
    which the entries of the product have standard deviation exactly $c$.

    Args:
        scale: $c$, positive.
        rule: `"power"` or `"product"`.

    Example:
        >>> init = MatchedGaussian(0.001, rule="power")
        >>> round(float(init.std(DeepLinear((4, 4, 4, 4)))), 6)
        0.1
    """

    scale: Float[Array, ""]
    rule: str = eqx.field(static=True)

    def __init__(self, scale: ArrayLike, rule: str = "power") -> None:
        check_number("MatchedGaussian", "scale", scale, above=0)
        if rule not in ("power", "product"):
            raise ValueError(f"MatchedGaussian: rule {rule!r} is unknown. {near_name(rule, ('power', 'product'))}")
        self.scale = jnp.asarray(scale, dtype=float)
        self.rule = rule

    def std(self, model: AbstractModel) -> Float[Array, ""]:
        """Standard deviation of the entries of every layer of `model`."""
        network = _network("MatchedGaussian", model)
        spread = math.sqrt(math.prod(network.widths[1:-1])) if self.rule == "product" else 1.0
        return (self.scale / spread) ** (1 / network.depth)

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        return _gaussian(key, model.shapes, [self.std(model)] * len(model.shapes))


class LeCun(AbstractInit):
    r"""Normal entries of variance $1/d_{l-1}$ (one over fan-in), which keeps the size of forward signals.

    Example:
        >>> [w.shape for w in LeCun()(DeepLinear((3, 2)), jax.random.key(0))]
        [(2, 3)]
    """

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        return _gaussian(key, model.shapes, [math.sqrt(1 / inp) for _, inp in model.shapes])


class He(AbstractInit):
    r"""Normal entries of variance $2/d_{l-1}$.

    Example:
        >>> [w.shape for w in He()(DeepLinear((3, 2)), jax.random.key(0))]
        [(2, 3)]
    """

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        return _gaussian(key, model.shapes, [math.sqrt(2 / inp) for _, inp in model.shapes])


class Glorot(AbstractInit):
    r"""Normal entries of variance $2/(d_{l-1} + d_l)$.

    Example:
        >>> [w.shape for w in Glorot()(DeepLinear((3, 2)), jax.random.key(0))]
        [(2, 3)]
    """

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        return _gaussian(key, model.shapes, [math.sqrt(2 / (inp + out)) for out, inp in model.shapes])


class Scaled(AbstractInit):
    r"""Normal entries of variance $a_l^2/d_{l-1}$, with a gain for every layer.

    Args:
        gains: $a_l \ge 0$, one number for all layers or one per layer, first-acting first.

    Example:
        >>> first, second = Scaled([0.0, 1.0])(DeepLinear((3, 3, 3)), jax.random.key(0))
        >>> float(jnp.abs(first).max())
        0.0
    """

    gains: Float[Array, "..."]

    def __init__(self, gains: object) -> None:
        self.gains = _nonnegative("Scaled", "gains", gains)

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        gains = _per_item("Scaled", "gains", self.gains, len(model.shapes), "layer")
        stds = [gain / math.sqrt(inp) for gain, (_, inp) in zip(gains, model.shapes, strict=True)]
        return _gaussian(key, model.shapes, stds)


class Orthogonal(AbstractInit):
    r"""Layers $a\,Q$ with $Q$ Haar-random orthogonal; rectangular ones have orthonormal rows or columns.

    Args:
        scale: $a$, positive: every singular value of every layer.

    Example:
        >>> (w,) = Orthogonal(2.0)(DeepLinear((3, 2)), jax.random.key(0))
        >>> jnp.linalg.svd(w, compute_uv=False).round(6)
        Array([2., 2.], dtype=float64)
    """

    scale: Float[Array, ""]

    def __init__(self, scale: ArrayLike = 1.0) -> None:
        check_number("Orthogonal", "scale", scale, above=0)
        self.scale = jnp.asarray(scale, dtype=float)

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        keys = jax.random.split(key, len(model.shapes))
        pairs = zip(keys, model.shapes, strict=True)
        return tuple(self.scale * jax.random.orthogonal(k, rows, m=columns) for k, (rows, columns) in pairs)


class ScaledIdentity(AbstractInit):
    r"""Layers $a\,I$; rectangular ones have $a$ on the main diagonal and zeros elsewhere. $a = 0$ starts at zero.

    Args:
        scale: $a$.

    Example:
        >>> float(ScaledIdentity(0.5)(DeepLinear((2, 3)), jax.random.key(0))[0].sum())
        1.0
    """

    scale: Float[Array, ""]

    def __init__(self, scale: ArrayLike) -> None:
        check_number("ScaledIdentity", "scale", scale)
        self.scale = jnp.asarray(scale, dtype=float)

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        return tuple(self.scale * jnp.eye(rows, columns, dtype=float) for rows, columns in model.shapes)


class AlphaM(AbstractInit):
    r"""Every layer is $\alpha$ on the diagonal and $\alpha/m$ off it.

    $m = \infty$ is $\alpha I$ and $m = 1$ is $\alpha J$ (all entries equal), both exactly. One layer has the
    eigenvalues $\alpha(1 + (d-1)/m)$, once, and $\alpha(1 - 1/m)$, $d - 1$ times. Needs equal widths.

    Args:
        alpha: $\alpha > 0$.
        m: $m \in [1, \infty]$.

    Example:
        >>> AlphaM(1.0, 4.0)(DeepLinear((2, 2)), jax.random.key(0))[0]
        Array([[1.  , 0.25],
               [0.25, 1.  ]], dtype=float64)
    """

    alpha: Float[Array, ""]
    m: Float[Array, ""]

    def __init__(self, alpha: ArrayLike, m: ArrayLike) -> None:
        check_number("AlphaM", "alpha", alpha, above=0)
        check_number("AlphaM", "m", m, at_least=1, finite=False)
        self.alpha = jnp.asarray(alpha, dtype=float)
        self.m = jnp.asarray(m, dtype=float)

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        network = _network("AlphaM", model)
        if len(set(network.widths)) > 1:
            raise ValueError(
                f"AlphaM: model must have equal widths, but has widths {network.widths}; for a rectangular multiple of "
                "the identity take ScaledIdentity."
            )
        diagonal = jnp.eye(network.widths[0], dtype=bool)
        layer = jnp.where(diagonal, self.alpha, self.alpha / self.m)
        return (layer,) * network.depth


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

    def __init__(self, product: object, *, rotate: bool = False) -> None:
        self.product = jnp.asarray(product, dtype=float)
        check_shape("Balanced", "product", self.product, (None, None))
        check_finite("Balanced", "product", self.product)
        self.rotate = rotate

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        network = _network("Balanced", model)
        check_shape("Balanced", "product", self.product, (network.widths[-1], network.widths[0]))
        if network.depth == 1:
            return (self.product,)
        left, values, right_t = jnp.linalg.svd(self.product, full_matrices=False)
        narrowest = min(network.widths[1:-1])
        if narrowest < values.shape[0]:
            cutoff = max(self.product.shape) * jnp.finfo(values.dtype).eps * values[0]
            rank = jnp.sum(values > cutoff)
            message = f"Balanced: every hidden width must be at least the rank of product, but one is {narrowest}"
            if not is_concrete(rank):
                values = eqx.error_if(values, rank > narrowest, f"{message} and the rank is larger.")
            elif int(rank) > narrowest:
                raise ValueError(f"{message} and the rank is {int(rank)}; widen it or give a product of lower rank.")
        modes = min(narrowest, values.shape[0])
        params = _balanced(left[:, :modes], values[:modes], right_t[:modes].T, network.widths)
        return _rotated(params, key) if self.rotate else params


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

    def __init__(
        self, left: object, values: object, right: object, lam: ArrayLike = 0.0, rotation: object | None = None
    ) -> None:
        self.values = _nonnegative("FromSVD", "values", values)
        check_shape("FromSVD", "values", self.values, (None,))
        hidden = self.values.shape[0]
        self.left = _orthonormal("FromSVD", "left", left, (None, hidden))
        self.right = _orthonormal("FromSVD", "right", right, (None, hidden))
        turn = jnp.eye(hidden, dtype=float) if rotation is None else rotation
        self.rotation = _orthonormal("FromSVD", "rotation", turn, (hidden, hidden))
        check_number("FromSVD", "lam", lam)
        self.lam = jnp.asarray(lam, dtype=float)

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        network = _network("FromSVD", model)
        widths = (self.right.shape[0], self.values.shape[0], self.left.shape[0])
        if network.widths != widths:
            raise ValueError(f"FromSVD: model must have widths {widths} to fit the factors, but has {network.widths}.")
        return _two_layers(self.left, self.values, self.right, self.lam, self.rotation, widths)


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
        >>> params = LambdaBalanced(3.0, 0.1)(DeepLinear((4, 2, 3)), jax.random.key(0))
        >>> lambda_estimate(params).lam.round(6)
        Array([3.], dtype=float64)
    """

    lam: Float[Array, ""]
    std: Float[Array, ""]
    absolute_scale: Float[Array, ""] | None
    match_det: Matrix | None

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
        self.lam = jnp.asarray(lam, dtype=float)
        self.std = jnp.asarray(std, dtype=float)
        self.absolute_scale = None
        self.match_det = None
        if absolute_scale is not None:
            check_number("LambdaBalanced", "absolute_scale", absolute_scale, at_least=0)
            self.absolute_scale = jnp.asarray(absolute_scale, dtype=float)
        if match_det is not None:
            self.match_det = jnp.asarray(match_det, dtype=float)
            check_shape("LambdaBalanced", "match_det", self.match_det, (None, None))
            check_finite("LambdaBalanced", "match_det", self.match_det)

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        network = _network("LambdaBalanced", model)
        std = _feasible("LambdaBalanced", self.std, self.lam, network.widths)
        key_layers, key_rotation = jax.random.split(key)
        product = network.product(_gaussian(key_layers, network.shapes, [std] * network.depth))
        left, values, right_t = jnp.linalg.svd(product, full_matrices=True)
        modes = min(network.widths)
        values = values[:modes]
        if self.absolute_scale is not None:
            values = values * (self.absolute_scale / jnp.linalg.norm(values))
        if self.match_det is not None:
            size = network.widths[0]
            if min(network.widths) < size or network.widths[-1] != size:
                raise ValueError(
                    f"LambdaBalanced: match_det needs a square network without bottleneck, but the widths are "
                    f"{network.widths}."
                )
            check_shape("LambdaBalanced", "match_det", self.match_det, (size, size))
            wanted, _ = jnp.linalg.slogdet(self.match_det)
            sign = wanted * jnp.linalg.slogdet(left)[0] * jnp.linalg.slogdet(right_t)[0]
            left = left.at[:, -1].multiply(jnp.where(sign < 0, -1.0, 1.0))
        if network.depth == 2:
            rotation = random_orthogonal(key_rotation, network.widths[1])
            return _two_layers(left, values, right_t.T, self.lam, rotation, network.widths)
        return _rotated(_balanced(left[:, :modes], values, right_t[:modes].T, network.widths), key_rotation)


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

    def __init__(self, target: object, strengths: object, lam: ArrayLike = 0.0) -> None:
        self.target = jnp.asarray(target, dtype=float)
        check_shape("TaskAligned", "target", self.target, (None, None))
        check_finite("TaskAligned", "target", self.target)
        self.strengths = jnp.asarray(strengths, dtype=float)
        check_finite("TaskAligned", "strengths", self.strengths)
        check_number("TaskAligned", "lam", lam)
        self.lam = jnp.asarray(lam, dtype=float)

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        network = _network("TaskAligned", model)
        check_shape("TaskAligned", "target", self.target, (network.widths[-1], network.widths[0]))
        modes = min(network.widths)
        strengths = _feasible("TaskAligned", self.strengths, self.lam, network.widths)
        strengths = _per_item("TaskAligned", "strengths", strengths, modes, "mode")
        left, _, right_t = jnp.linalg.svd(self.target, full_matrices=True)
        left = left.at[:, :modes].multiply(jnp.where(strengths < 0, -1.0, 1.0))
        values = jnp.abs(strengths)
        if network.depth == 2:
            rotation = jnp.eye(network.widths[1], dtype=float)
            return _two_layers(left, values, right_t.T, self.lam, rotation, network.widths)
        return _balanced(left[:, :modes], values, right_t[:modes].T, network.widths)


class Explicit(AbstractInit):
    """Layers given by the user.

    Args:
        params: Layers, first-acting first.

    Example:
        >>> float(Explicit((jnp.ones((2, 3)),))(DeepLinear((3, 2)), jax.random.key(0))[0].sum())
        6.0
    """

    params: Params

    def __init__(self, params: object) -> None:
        self.params = _layers("Explicit", "params", params)

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        model.check(self.params, "Explicit")
        return self.params


class WarmStart(AbstractInit):
    """The layers at which an earlier run ended.

    Args:
        trajectory: Finished run: any object whose attribute `params` is the tuple of final layers.
    """

    params: Params

    def __init__(self, trajectory: Any) -> None:
        try:
            params = trajectory.params
        except AttributeError:
            raise TypeError(
                f"WarmStart: trajectory must be a finished run with the final layers in `params`, but is a "
                f"{type(trajectory).__name__}; for layers themselves take Explicit."
            ) from None
        self.params = _layers("WarmStart", "trajectory.params", params)

    def __call__(self, model: AbstractModel, key: Key[Array, ""]) -> Params:
        model.check(self.params, "WarmStart")
        return self.params


def _network(where: str, model: AbstractModel) -> DeepLinear:
    """`model` as a feed-forward network, or a refusal."""
    if not isinstance(model, DeepLinear):
        raise TypeError(f"{where}: model must be a DeepLinear network, but is a {type(model).__name__}.")
    return model


def _layers(where: str, name: str, params: object) -> Params:
    """A sequence of finite matrices as parameters."""
    if not isinstance(params, tuple | list):
        raise TypeError(f"{where}: {name} must be a tuple of matrices, but is a {type(params).__name__}.")
    layers = tuple(jnp.asarray(layer, dtype=float) for layer in params)
    for position, layer in enumerate(layers):
        check_shape(where, f"{name}[{position}]", layer, (None, None))
        check_finite(where, f"{name}[{position}]", layer)
    return layers


def _nonnegative(where: str, name: str, value: object) -> Float[Array, "..."]:
    """Finite numbers that are not negative."""
    array = jnp.asarray(value, dtype=float)
    check_finite(where, name, array)
    lowest = float(np.min(np.asarray(array), initial=0.0)) if is_concrete(array) else 0.0
    if lowest < 0:
        raise ValueError(f"{where}: {name} must not be negative, but holds {lowest:g}.")
    return array


def _orthonormal(where: str, name: str, value: object, shape: tuple[int | None, int]) -> Matrix:
    """A matrix with orthonormal columns."""
    matrix = jnp.asarray(value, dtype=float)
    check_shape(where, name, matrix, shape)
    check_finite(where, name, matrix)
    if is_concrete(matrix):
        columns = np.asarray(matrix)
        residual = float(np.max(np.abs(columns.T @ columns - np.eye(columns.shape[1])), initial=0.0))
        if residual > ORTHONORMALITY_TOLERANCE:
            raise ValueError(f"{where}: {name} must have orthonormal columns, but they miss it by {residual:.1e}.")
    return matrix


def _per_item(where: str, name: str, value: Float[Array, "..."], count: int, item: str) -> Float[Array, " count"]:
    """One number per item from one number for all or a vector."""
    if value.ndim == 0:
        return jnp.broadcast_to(value, (count,))
    if value.shape != (count,):
        raise ValueError(
            f"{where}: {name} must be one number or one per {item} ({count}), but has shape {value.shape}."
        )
    return value


def _feasible(
    where: str, guarded: Float[Array, "..."], lam: Float[Array, ""], widths: tuple[int, ...]
) -> Float[Array, "..."]:
    r"""`guarded` if layers of these widths can be $\lambda$-balanced, or a refusal: use what is returned."""
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


def _gaussian(
    key: Key[Array, ""], shapes: Sequence[tuple[int, int]], stds: Sequence[float | Float[Array, ""]]
) -> Params:
    """Normal layers with a standard deviation for each, every layer from its own key."""
    keys = jax.random.split(key, len(shapes))
    return tuple(std * jax.random.normal(k, shape) for k, shape, std in zip(keys, shapes, stds, strict=True))


def _balanced(
    left: Float[Array, "out modes"],
    values: Float[Array, " modes"],
    right: Float[Array, "inp modes"],
    widths: tuple[int, ...],
) -> Params:
    """Balanced layers with product `left diag(values) right^T`, padded with zeros to the widths."""
    depth, modes = len(widths) - 1, values.shape[0]
    if depth == 1:
        return ((left * values) @ right.T,)
    root = values ** (1 / depth)
    layers = [jnp.zeros((widths[1], widths[0]), root.dtype).at[:modes].set(root[:, None] * right.T)]
    for inp, out in itertools.pairwise(widths[1:-1]):
        layers.append(jnp.zeros((out, inp), root.dtype).at[:modes, :modes].set(jnp.diag(root)))
    layers.append(jnp.zeros((widths[-1], widths[-2]), root.dtype).at[:, :modes].set(left * root))
    return tuple(layers)


def _rotated(params: Params, key: Key[Array, ""]) -> Params:
    """The same network in a Haar-random orthonormal basis of every hidden layer."""
    layers = list(params)
    for position, k in enumerate(jax.random.split(key, len(layers))[:-1]):
        turn = random_orthogonal(k, layers[position].shape[0])
        layers[position] = turn @ layers[position]
        layers[position + 1] = layers[position + 1] @ turn.T
    return tuple(layers)


def _two_layers(
    left: Float[Array, "out _"],
    values: Float[Array, " modes"],
    right: Float[Array, "inp _"],
    lam: Float[Array, ""],
    rotation: Float[Array, "hidden hidden"],
    widths: tuple[int, ...],
) -> Params:
    r"""$W_1 = R S_1 V^\top$, $W_2 = U S_2 R^\top$ with unused hidden directions filled with $\sqrt{|\lambda|}$."""
    inp, hidden, out = widths
    first, second = layer_strengths(values, lam)
    below, above = min(hidden, inp), min(hidden, out)
    rest = values.shape[0]
    first = jnp.concatenate([first, jnp.broadcast_to(jnp.sqrt(jnp.maximum(-lam, 0.0)), (below - rest,))])
    second = jnp.concatenate([second, jnp.broadcast_to(jnp.sqrt(jnp.maximum(lam, 0.0)), (above - rest,))])
    return (rotation[:, :below] * first) @ right[:, :below].T, (left[:, :above] * second) @ rotation[:, :above].T
