"""Members of an ensemble as rows of stacked arrays: put together, picked out, recorded."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import RESULTS, Array, one_at_a_time, unflatten
from deeplinear.dynamics._base import Snapshots
from deeplinear.models import Problem
from deeplinear.probes import AbstractProbe

Item = TypeVar("Item")


def stack_members(items: Sequence[Item], where: str, name: str) -> Item:
    """A list of modules or parameter tuples of the same structure as one with a leading member axis."""
    leaves, whole = jax.tree.flatten(list(items))
    structures = whole.children()
    count = structures[0].num_leaves
    leaves = [leaf if type(leaf) is np.ndarray else np.asarray(leaf) for leaf in leaves]
    shapes = [leaf.shape for leaf in leaves]
    for position, own in enumerate(structures):
        if own != structures[0] or shapes[count * position : count * (position + 1)] != shapes[:count]:
            raise ValueError(
                f"{where}: {name}[{position}] must have the same structure and shapes as {name}[0]; "
                "run members of different shapes in separate ensembles."
            )
    stacked = [np.array(leaves[column::count]) for column in range(count)]
    return jax.tree.unflatten(structures[0], stacked if on_host() else jax.device_put(stacked))


def on_host() -> bool:
    """Whether arrays lie in the host's memory, where small operations are cheap and members may run on threads."""
    return jax.default_backend() == "cpu"


@jax.jit
def _take_rows(tree: Item, ids: Array | np.ndarray) -> Item:
    return jax.tree.map(lambda leaf: leaf[ids], tree)


@functools.partial(jax.jit, donate_argnums=0)
def _put_rows(tree: Item, ids: Array | np.ndarray, part: Item) -> Item:
    return jax.tree.map(lambda whole, new: whole.at[ids].set(new, mode="drop"), tree, part)


def take(tree: Item, ids: np.ndarray) -> Item:
    """The members `ids` of a stacked tree."""
    if on_host():
        return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[ids]), tree)
    return _take_rows(tree, ids)


def put(tree: Item, ids: np.ndarray, part: Item) -> Item:
    """A stacked tree with its members `ids` replaced by the first rows of another; the old tree is used up."""
    whole, new = jax.tree.leaves(tree), jax.tree.leaves(part)
    if not on_host():
        beyond = np.full(len(new[0]) - len(ids), len(whole[0]))  # rows that go nowhere
        return _put_rows(tree, np.concatenate([ids, beyond]), part)
    for old, rows in zip(whole, new, strict=True):
        old[ids] = np.asarray(rows)[: len(ids)]
    return tree


def join(parts: Sequence[Item], members: int) -> Item:
    """Stacked trees one after the other, of which only the first `members` rows are kept."""
    if on_host():
        return jax.tree.map(lambda *rows: np.concatenate([np.asarray(row) for row in rows])[:members], *parts)
    return _join(tuple(parts), members)


@functools.partial(jax.jit, static_argnums=1)
def _join(parts: tuple[Item, ...], members: int) -> Item:
    return jax.tree.map(lambda *rows: jnp.concatenate(rows)[:members], *parts)


def padded_to(ids: np.ndarray, width: int) -> np.ndarray:
    """Member numbers, the last one repeated up to a width."""
    return np.concatenate([ids, np.repeat(ids[-1:], width - len(ids))])


def without_padding(state: Any, live: int) -> Any:
    """States of which only the first `live` ones run."""
    if live == len(state.result):
        return state
    result = np.asarray(state.result).copy()
    result[live:] = RESULTS.completed
    return state._replace(result=result)


def over_members(function: Callable[..., Any], mapped: tuple[bool, ...], vector: bool, *args: Any) -> Any:
    """Apply a function to every member; `mapped` says which arguments have a member axis."""
    if vector:
        return jax.vmap(function, in_axes=tuple(0 if m else None for m in mapped))(*args)
    moving = tuple(a for a, m in zip(args, mapped, strict=True) if m)

    def one(items: tuple[Any, ...]) -> Any:
        stream = iter(items)
        return function(*(next(stream) if m else a for a, m in zip(args, mapped, strict=True)))

    return jax.lax.map(one, moving)


@one_at_a_time
@eqx.filter_jit
def observe_snapshots(
    probes: tuple[AbstractProbe, ...], problem: Problem, shots: Snapshots, batched: bool, vector: bool
) -> tuple[Array, ...]:
    """Values of all probes on the snapshots of every member; rows past a member's count are zero."""

    def member(p: Problem, shots: Snapshots) -> tuple[Array, ...]:
        shapes = p.model.shapes

        def at(row: Array | int) -> tuple[Array, ...]:
            params = unflatten(shots.states[row], shapes)
            return tuple(jnp.asarray(probe(shots.times[row], params, p)) for probe in probes)

        blank = tuple(jnp.zeros((shots.times.shape[0], *s.shape), s.dtype) for s in jax.eval_shape(lambda: at(0)))

        def fill(row: Array, out: tuple[Array, ...]) -> tuple[Array, ...]:
            return tuple(buffer.at[row].set(value) for buffer, value in zip(out, at(row), strict=True))

        return jax.lax.fori_loop(0, shots.filled, fill, blank)

    return over_members(member, (batched, True), vector, problem, shots)


class Recorder:
    """Arrays of recorded values that grow as records come in."""

    def __init__(self, members: int, expected: int, names: Sequence[str]) -> None:
        self.names = list(names)
        self.lengths = np.zeros(members, int)
        self.times = np.full((members, max(expected, 1)), np.nan)
        self.values: dict[str, np.ndarray] = {}

    def _room_for(self, needed: int) -> None:
        have = self.times.shape[1]
        if needed > have:
            extra = max(needed - have, have)

            def longer(array: np.ndarray) -> np.ndarray:
                pad = np.full((array.shape[0], extra, *array.shape[2:]), np.nan)
                return np.concatenate([array, pad], axis=1)

            self.times = longer(self.times)
            self.values = {name: longer(array) for name, array in self.values.items()}

    def add(self, ids: np.ndarray, counts: np.ndarray, times: np.ndarray, values: Sequence[np.ndarray]) -> None:
        if not self.values:
            for name, value in zip(self.names, values, strict=True):
                self.values[name] = np.full((*self.times.shape, *value.shape[2:]), np.nan)
        self._room_for(int(np.max(self.lengths[ids] + counts, initial=0)))
        rows, columns = np.nonzero(np.arange(times.shape[1]) < counts[:, None])
        where = (ids[rows], self.lengths[ids[rows]] + columns)
        self.times[where] = times[rows, columns]
        for name, value in zip(self.names, values, strict=True):
            self.values[name][where] = value[rows, columns]
        self.lengths[ids] += counts

    def scatter(self, ids: np.ndarray, times: np.ndarray, values: Sequence[np.ndarray]) -> None:
        """Add one record a row, each to its member; those of one member in their order."""
        if not self.values:
            for name, value in zip(self.names, values, strict=True):
                self.values[name] = np.full((*self.times.shape, *value.shape[1:]), np.nan)
        order = np.argsort(ids, kind="stable")
        members, begins, counts = np.unique(ids[order], return_index=True, return_counts=True)
        place = np.empty(len(ids), int)
        place[order] = np.arange(len(ids)) - np.repeat(begins, counts)
        place += self.lengths[ids]
        self._room_for(int(place.max()) + 1)
        self.times[ids, place] = times
        for name, value in zip(self.names, values, strict=True):
            self.values[name][ids, place] = value
        self.lengths[members] += counts
