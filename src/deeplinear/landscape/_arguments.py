"""Arguments that the files of this sub-package share, looked at before anything is computed."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Params,
    as_array,
    check_count,
    check_finite,
    check_shape,
    check_x64,
    checked_layer,
    checked_params,
    is_concrete,
)
from deeplinear.models import DeepLinear

Signature = tuple[int, ...]
"""Modes of the target that are learnt, counted from 1, in increasing order."""

Strengths: TypeAlias = ArrayLike | Sequence[float]
"""Singular values of a target, largest first."""

LARGEST = 1e100
"""Largest singular value of a task; squares of larger ones leave the range of numbers."""

Layers = tuple[np.ndarray, ...]
"""Layers on the host, first-acting first."""


def set_name(signature: Signature) -> str:
    """A signature as a set.

    Example:
        >>> set_name((1, 3)), set_name(())
        ('{1,3}', '∅')
    """
    return "{" + ",".join(map(str, signature)) + "}" if signature else "∅"


def checked_chain(where: str, params: Any, name: str = "params") -> Params:
    """Layers of 64 bits that follow each other, finite where they can be seen, or a refusal."""
    check_x64(where)
    layers = tuple(as_array(layer, float) for layer in checked_params(where, name, params))
    for position, (below, above) in enumerate(itertools.pairwise(layers)):
        check_shape(where, f"{name}[{position + 1}]", above, (None, below.shape[0]))
    for position, layer in enumerate(layers):
        check_finite(where, f"{name}[{position}]", layer)
    return layers


def host_layers(where: str, params: Any, name: str = "params") -> Layers:
    """The same as matrices of NumPy."""
    return tuple(np.asarray(layer) for layer in checked_chain(where, params, name))


def widths_of(layers: Sequence[Any]) -> tuple[int, ...]:
    """Widths of layers that follow each other, input first."""
    return (layers[0].shape[1], *(layer.shape[0] for layer in layers))


def network_of(where: str, params: Any) -> DeepLinear:
    """The network that layers make, or a refusal."""
    return DeepLinear(widths_of(checked_chain(where, params)))


def checked_network(where: str, widths: Any) -> DeepLinear:
    """The network of given widths, or a refusal."""
    if isinstance(widths, str) or not isinstance(widths, Iterable):
        raise TypeError(f"{where}: widths must be a tuple such as (3, 5, 2), but is {widths!r}.")
    return DeepLinear(tuple(widths))


def check_range(where: str, *results: Any) -> None:
    """Refuse layers of which products that are needed overflow; abstract values pass unseen."""
    if any(is_concrete(result) and not np.all(np.isfinite(np.asarray(result))) for result in results):
        raise ValueError(f"{where}: the weights are so large that their product is not a number; take smaller ones.")


def check_weights(where: str, layers: Sequence[Any]) -> None:
    """Refuse layers of which squares overflow; abstract values pass unseen."""
    seen = [np.asarray(layer) for layer in layers if is_concrete(layer)]
    check_range(where, *(np.inf if np.max(np.abs(layer), initial=0.0) > LARGEST else 0.0 for layer in seen))


def check_pair(where: str, params: Any, direction: Any) -> None:
    """Refuse a direction whose layers are not those of the parameters, and layers that do not follow each other."""
    shapes, moves = (
        tuple(tuple(layer.shape) for layer in checked_params(where, name, layers))
        for name, layers in (("params", params), ("direction", direction))
    )
    if shapes != moves:
        raise ValueError(f"{where}: direction must have layer shapes {shapes}, as params has, but has {moves}.")
    checked_chain(where, params)
    checked_chain(where, direction, "direction")


def checked_sigma(where: str, sigma: Any, *, positive: bool = False, ordered: bool = False) -> Float[Array, " modes"]:
    """Singular values of a task, not negative, or a refusal. Abstract values pass unseen.

    Args:
        where: Who asks.
        sigma: The values.
        positive: Whether they must not vanish.
        ordered: Whether they must come largest first; with `positive`, also differ.
    """
    check_x64(where)
    values = as_array(checked_layer(where, "sigma", sigma), float)
    check_shape(where, "sigma", values, (None,))
    check_finite(where, "sigma", values)
    if values.shape[0] == 0:
        raise ValueError(f"{where}: sigma must hold at least one singular value, but is empty.")
    if not is_concrete(values):
        return values
    seen = np.asarray(values)
    if positive and seen.min() <= 0:
        raise HypothesisError(
            "singular values of the task are positive (number of others)",
            float(np.sum(seen <= 0)),
            0.0,
            "Leave out the modes that vanish.",
        )
    if positive and ordered and np.any(np.diff(seen) >= 0):
        raise HypothesisError(
            "singular values of the task are distinct, largest first (each over the one before is below 1)",
            float(np.max(seen[1:] / seen[:-1])),
            1.0,
            "Sort them; where two coincide, the modes of the pair cannot be told apart.",
        )
    if seen.max() > LARGEST:
        raise ValueError(f"{where}: sigma must be at most {LARGEST:g}, but reaches {seen.max():.3g}; take other units.")
    if np.any(seen < 0) or (ordered and np.any(np.diff(seen) > 0)):
        order = ", largest first" if ordered else ""
        raise ValueError(f"{where}: sigma must hold non-negative numbers{order}, but is {seen}.")
    return values


def checked_signature(where: str, signature: Any, modes: int, widths: Sequence[int] = ()) -> Signature:
    """A signature as a sorted tuple, or a refusal: numbers from 1 to `modes`, no more of them than the widths carry."""
    if isinstance(signature, str) or not isinstance(signature, Iterable):
        raise TypeError(f"{where}: signature must be a tuple of mode numbers such as (1, 3), but is {signature!r}.")
    numbers = tuple(signature)
    for number in numbers:
        check_count(where, "a mode of the signature", number, at_least=1, at_most=modes)
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{where}: signature must not name a mode twice, but is {numbers}.")
    if widths and len(numbers) > min(widths):
        raise ValueError(
            f"{where}: signature must name at most {min(widths)} modes, the smallest width of {tuple(widths)}, but is "
            f"{numbers}."
        )
    return tuple(sorted(int(number) for number in numbers))
