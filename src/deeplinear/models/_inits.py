"""Initialisations: from a model and a key to the layers a run starts from; balanced ones are in a file of their own."""

import abc
import math
from collections.abc import Sequence
from typing import Any

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
    near_name,
    random,
    xp,
)
from deeplinear.models._base import AbstractModel
from deeplinear.models._entries import NetworkEntries
from deeplinear.models._networks import DeepLinear


class AbstractInit(eqx.Module):
    """Where a run starts: a map from a model and a key to parameters.

    All randomness comes from the key, so the same key gives the same layers. Numbers in an initialisation are
    array leaves: sweeping them compiles nothing anew.
    """

    @abc.abstractmethod
    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        """Layers for `model`. Deterministic initialisations ignore the key."""


class Gaussian(AbstractInit):
    r"""Independent normal entries of one standard deviation in all layers.

    Args:
        std: Standard deviation, positive.

    Example:
        >>> [w.shape for w in Gaussian(0.1)(DeepLinear((4, 2, 2)), jax.random.key(0))]
        [(2, 4), (2, 2)]
    """

    std: Float[Array, ""]

    @entry
    def __init__(self, std: ArrayLike) -> None:
        check_number("Gaussian", "std", std, above=0)
        self.std = xp.asarray(std, dtype=float)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        check_key("Gaussian", key)
        return gaussian_layers(key, model.shapes, [self.std] * len(model.shapes))


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

    @entry
    def __init__(self, scale: ArrayLike, rule: str = "power") -> None:
        check_number("MatchedGaussian", "scale", scale, above=0)
        if rule not in ("power", "product"):
            raise ValueError(f"MatchedGaussian: rule {rule!r} is unknown. {near_name(rule, ('power', 'product'))}")
        self.scale = xp.asarray(scale, dtype=float)
        self.rule = rule

    def std(self, model: AbstractModel) -> Float[Array, ""]:
        """Standard deviation of the entries of every layer of `model`."""
        network = network_of("MatchedGaussian", model)
        spread = math.sqrt(math.prod(network.widths[1:-1])) if self.rule == "product" else 1.0
        return (self.scale / spread) ** (1 / network.depth)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        check_key("MatchedGaussian", key)
        return gaussian_layers(key, model.shapes, [self.std(model)] * len(model.shapes))


class LeCun(AbstractInit):
    r"""Normal entries of variance $1/d_{l-1}$ (one over fan-in), which keeps the size of forward signals.

    Example:
        >>> [w.shape for w in LeCun()(DeepLinear((3, 2)), jax.random.key(0))]
        [(2, 3)]
    """

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        check_key("LeCun", key)
        return gaussian_layers(key, model.shapes, [math.sqrt(1 / inp) for _, inp in model.shapes])


class He(AbstractInit):
    r"""Normal entries of variance $2/d_{l-1}$.

    Example:
        >>> [w.shape for w in He()(DeepLinear((3, 2)), jax.random.key(0))]
        [(2, 3)]
    """

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        check_key("He", key)
        return gaussian_layers(key, model.shapes, [math.sqrt(2 / inp) for _, inp in model.shapes])


class Glorot(AbstractInit):
    r"""Normal entries of variance $2/(d_{l-1} + d_l)$.

    Example:
        >>> [w.shape for w in Glorot()(DeepLinear((3, 2)), jax.random.key(0))]
        [(2, 3)]
    """

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        check_key("Glorot", key)
        return gaussian_layers(key, model.shapes, [math.sqrt(2 / (inp + out)) for out, inp in model.shapes])


class Scaled(AbstractInit):
    r"""Normal entries of variance $a_l^2/d_{l-1}$, with a gain for every layer.

    Args:
        gains: $a_l \ge 0$, one number for all layers or one per layer, first-acting first.

    Example:
        >>> first, second = Scaled([0.0, 1.0])(DeepLinear((3, 3, 3)), jax.random.key(0))
        >>> float(np.abs(first).max())
        0.0
    """

    gains: Float[Array, "..."]

    @entry
    def __init__(self, gains: object) -> None:
        self.gains = nonnegative("Scaled", "gains", gains)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        gains = per_item("Scaled", "gains", self.gains, len(model.shapes), "layer")
        stds = [gain / math.sqrt(inp) for gain, (_, inp) in zip(gains, model.shapes, strict=True)]
        check_key("Scaled", key)
        return gaussian_layers(key, model.shapes, stds)


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

    @entry
    def __init__(self, scale: ArrayLike = 1.0) -> None:
        check_number("Orthogonal", "scale", scale, above=0)
        self.scale = xp.asarray(scale, dtype=float)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        check_key("Orthogonal", key)
        pairs = zip(random.split(key, len(model.shapes)), model.shapes, strict=True)
        return tuple(_orthogonal_layer(k, self.scale, shape) for k, shape in pairs)


class ScaledIdentity(AbstractInit):
    r"""Layers $a\,I$; rectangular ones have $a$ on the main diagonal and zeros elsewhere. $a = 0$ starts at zero.

    Args:
        scale: $a$.

    Example:
        >>> float(ScaledIdentity(0.5)(DeepLinear((2, 2)), jax.random.key(0))[0].sum())
        1.0
    """

    scale: Float[Array, ""]

    @entry
    def __init__(self, scale: ArrayLike) -> None:
        check_number("ScaledIdentity", "scale", scale)
        self.scale = xp.asarray(scale, dtype=float)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        return _identities(self.scale, tuple(model.shapes))


class AlphaM(AbstractInit):
    r"""Every layer is $\alpha$ on the diagonal and $\alpha/m$ off it.

    $m = \infty$ is $\alpha I$ and $m = 1$ is $\alpha J$ (all entries equal), both exactly. One layer has the
    eigenvalues $\alpha(1 + (d-1)/m)$, once, and $\alpha(1 - 1/m)$, $d - 1$ times. Needs equal widths.

    Args:
        alpha: $\alpha > 0$.
        m: $m \in [1, \infty]$.

    Example:
        >>> AlphaM(1.0, 4.0)(DeepLinear((2, 2)), jax.random.key(0))[0]
        array([[1.  , 0.25],
               [0.25, 1.  ]])
    """

    alpha: Float[Array, ""]
    m: Float[Array, ""]

    @entry
    def __init__(self, alpha: ArrayLike, m: ArrayLike) -> None:
        check_number("AlphaM", "alpha", alpha, above=0)
        check_number("AlphaM", "m", m, at_least=1, finite=False)
        self.alpha = xp.asarray(alpha, dtype=float)
        self.m = xp.asarray(m, dtype=float)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        network = network_of("AlphaM", model)
        if len(set(network.widths)) > 1:
            raise ValueError(
                f"AlphaM: model must have equal widths, but has widths {network.widths}; for a rectangular multiple of "
                "the identity take ScaledIdentity."
            )
        return (_alpha_layer(self.alpha, self.m, network.widths[0]),) * network.depth


class Explicit(AbstractInit):
    """Layers given by the user.

    Args:
        params: Layers, first-acting first.

    Example:
        >>> float(Explicit((jnp.ones((2, 3)),))(DeepLinear((3, 2)), jax.random.key(0))[0].sum())
        6.0
    """

    params: Params

    @entry
    def __init__(self, params: object) -> None:
        self.params = _layers("Explicit", "params", params)

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
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

    def __call__(self, model: AbstractModel, key: RandomKey) -> Params:
        model.check(self.params, "WarmStart")
        return self.params


def network_of(where: str, model: AbstractModel) -> DeepLinear:
    """`model` as a feed-forward network, seen as a whole or at some entries, or a refusal."""
    if isinstance(model, NetworkEntries):
        return model.network
    if not isinstance(model, DeepLinear):
        raise TypeError(f"{where}: model must be a DeepLinear network, but is a {type(model).__name__}.")
    return model


def _layers(where: str, name: str, params: object) -> Params:
    """A sequence of finite matrices as parameters."""
    if not isinstance(params, tuple | list):
        raise TypeError(f"{where}: {name} must be a tuple of matrices, but is a {type(params).__name__}.")
    layers = tuple(as_array(layer, float) for layer in params)
    for position, layer in enumerate(layers):
        check_shape(where, f"{name}[{position}]", layer, (None, None))
        check_finite(where, f"{name}[{position}]", layer)
    return layers


def nonnegative(where: str, name: str, value: object) -> Float[Array, "..."]:
    """Finite numbers that are not negative."""
    array = as_array(value, float)
    check_finite(where, name, array)
    lowest = float(np.min(np.asarray(array), initial=0.0)) if is_concrete(array) else 0.0
    if lowest < 0:
        raise ValueError(f"{where}: {name} must not be negative, but holds {lowest:g}.")
    return array


def per_item(where: str, name: str, value: Float[Array, "..."], count: int, item: str) -> Float[Array, " count"]:
    """One number per item from one number for all or a vector."""
    if value.ndim == 0:
        return xp.broadcast_to(value, (count,))
    if value.shape != (count,):
        raise ValueError(
            f"{where}: {name} must be one number or one per {item} ({count}), but has shape {value.shape}."
        )
    return value


def gaussian_layers(
    key: RandomKey, shapes: Sequence[tuple[int, int]], stds: Sequence[float | Float[Array, ""]]
) -> Params:
    """Normal layers with a standard deviation for each, every layer from its own key."""
    keys = random.split(key, len(shapes))
    layers = zip(keys, stds, shapes, strict=True)
    return tuple(_gaussian_layer(k, std, tuple(shape)) for k, std, shape in layers)


# One program for each shape of a layer, not for each network: random numbers take long to compile.
@formula(static_argnames="shape")
def _gaussian_layer(key: RandomKey, std: float | Float[Array, ""], shape: tuple[int, int]) -> Matrix:
    return std * random.normal(key, shape)


@formula(static_argnames="shape")
def _orthogonal_layer(key: RandomKey, scale: Float[Array, ""], shape: tuple[int, int]) -> Matrix:
    return scale * random.orthogonal(key, shape[0], shape[1])


@formula(static_argnames="shapes")
def _identities(scale: Float[Array, ""], shapes: tuple[tuple[int, int], ...]) -> Params:
    return tuple(scale * xp.eye(rows, columns, dtype=float) for rows, columns in shapes)


@formula(static_argnames="width")
def _alpha_layer(alpha: Float[Array, ""], m: Float[Array, ""], width: int) -> Float[Array, "width width"]:
    return xp.where(xp.eye(width, dtype=bool), alpha, alpha / m)
