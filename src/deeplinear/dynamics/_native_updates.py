"""Discrete updates as the native engine reads them: kinds, rates, and what they remember between steps."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from deeplinear.dynamics._base import AbstractMethod
from deeplinear.dynamics._updates import Adagrad, Adam, GradientDescent, Momentum, RMSProp


class Kind(NamedTuple):
    """An update of the engine: its number, its rates by name, and arrays of the size of the weights it remembers."""

    number: int
    rates: tuple[str, ...]
    slots: int


KINDS: dict[type, Kind] = {
    GradientDescent: Kind(1, ("lr",), 0),
    Momentum: Kind(2, ("lr", "momentum", "dampening"), 1),
    Adam: Kind(4, ("lr", "b1", "b2", "eps"), 2),
    RMSProp: Kind(5, ("lr", "decay", "", "eps"), 1),
    Adagrad: Kind(6, ("lr", "", "", "eps"), 1),
}


class Memory(NamedTuple):
    """What a continuation needs of each member; members first.

    Attributes:
        inner: What the update remembers, (members, slots, weights).
        keys: Data of random keys, which these updates do not use.
        accepted: Steps taken.
    """

    inner: np.ndarray
    keys: np.ndarray
    accepted: np.ndarray


def kind_of(method: AbstractMethod) -> Kind | None:
    """The update as the engine knows it; `None` for others and for flows."""
    kind = KINDS.get(type(method))
    nesterov = isinstance(method, Momentum) and method.nesterov
    return kind._replace(number=3) if nesterov and kind is not None else kind


def rates_of(method: AbstractMethod) -> np.ndarray:
    """Four numbers, or four of each member."""
    kind = KINDS[type(method)]
    given = [np.asarray(getattr(method, name), float) for name in kind.rates if name]
    columns = dict(zip([name for name in kind.rates if name], given, strict=True))
    names = (*kind.rates, "", "", "")[:4]
    return np.stack([columns.get(name, np.zeros_like(given[0])) for name in names], axis=-1)


def remembered(method: AbstractMethod, members: int, size: int, leaves: Sequence[np.ndarray] | None) -> Memory:
    """Memory from the state of a trajectory, or that of an update before its first step."""
    kind = KINDS[type(method)]
    if leaves is None:
        return Memory(np.zeros((members, kind.slots, size)), np.zeros((members, 2), np.uint32), np.zeros(members, int))
    *layers, keys, accepted = leaves
    layers = (
        layers[1:] if isinstance(method, Adam | Momentum) else layers
    )  # the count of steps, or whether one was taken
    flat = [np.reshape(layer, (members, -1)) for layer in layers]
    if sum(part.shape[1] for part in flat) != kind.slots * size:
        raise ValueError(
            "resume: the trajectory must come from the same method and network, but its saved state does not fit. "
            "To start another method from its parameters, use WarmStart(trajectory)."
        )
    inner = np.concatenate(flat, axis=1) if flat else np.zeros((members, 0))
    return Memory(inner.reshape(members, kind.slots, size).copy(), np.asarray(keys), np.asarray(accepted))


def state_of(method: AbstractMethod, memory: Memory, shapes: Sequence[tuple[int, int]]) -> tuple[Any, ...]:
    """The state of a trajectory, as a run on XLA leaves it."""
    members = len(memory.accepted)
    cuts = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
    layers = [
        part.reshape(members, *shape)
        for slot in range(memory.inner.shape[1])
        for part, shape in zip(np.split(memory.inner[:, slot], cuts, axis=1), shapes, strict=True)
    ]
    count = {Adam: [memory.accepted.copy()], Momentum: [memory.accepted > 0]}.get(type(method), [])
    return (*count, *layers, memory.keys, memory.accepted)
