"""Discrete updates as the native engine reads them, and their states as programs of XLA keep them."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

import deeplinear.engine as engine
from deeplinear.dynamics._base import AbstractUpdate
from deeplinear.dynamics._native_losses import refused_batch, terms_of
from deeplinear.dynamics._updates import Adagrad, Adam, GradientDescent, Momentum, RMSProp
from deeplinear.dynamics._variants import Milestones, Minibatch
from deeplinear.models import AbstractLoss, Problem

NUMBERS: dict[type, tuple[str, ...]] = {
    GradientDescent: ("lr",),
    Momentum: ("lr", "momentum", "dampening"),
    Adam: ("lr", "b1", "b2", "eps"),
    RMSProp: ("lr", "decay", "", "eps"),
    Adagrad: ("lr", "", "", "eps"),
}
"""Hyper-parameters in the order in which the engine has them: rate, two decays, what is added to roots."""

MEAN = (Momentum, Adam)
"""Updates with a running mean of gradients."""

SQUARE = (Adam, RMSProp, Adagrad)
"""Updates with a running mean, or sum, of squares."""


class Parts(NamedTuple):
    """What an update is made of."""

    base: AbstractUpdate
    milestones: Milestones | None
    batch: int


def parts_of(method: AbstractUpdate) -> Parts:
    """An update without what is around it."""
    batch, milestones = 0, None
    if type(method) is Minibatch:
        batch, method = method.batch, method.method
    if type(method) is Milestones:
        milestones, method = method, method.method
    return Parts(method, milestones, batch)


def refused_update(method: AbstractUpdate, loss: AbstractLoss) -> str | None:
    """Why the engine does not make the steps of an update, in a few words; `None` where it does."""
    base, _, batch = parts_of(method)
    if type(base) not in NUMBERS:
        return f"the method is {type(base).__name__}"
    if not batch:
        return None
    if jax.config.jax_default_prng_impl != "threefry2x32" or not jax.config.jax_threefry_partitionable:  # pyright: ignore
        return "random numbers are not those of JAX's own generator"
    return refused_batch(loss, batch)


class Moments:
    """State of the updates of all members: running means and squares, steps taken, and random keys."""

    def __init__(
        self, method: AbstractUpdate, members: int, shapes: Sequence[tuple[int, int]], keys: np.ndarray
    ) -> None:
        self.parts, self.shapes, self.members = parts_of(method), tuple(shapes), members
        self.ends = np.cumsum([rows * columns for rows, columns in shapes])
        self.moments = np.zeros((members, 2, int(self.ends[-1])))
        self.accepted = np.zeros(members, np.int64)
        self.keys = np.array(keys, np.uint32, order="C")
        self.used = [isinstance(self.parts.base, kinds) for kinds in (MEAN, SQUARE)]

    def counted(self) -> list[np.ndarray]:
        """Leaves of a state before its moments: how often the milestones and the update itself were used."""
        found: list[np.ndarray] = [] if self.parts.milestones is None else [self.accepted.copy()]
        if isinstance(self.parts.base, Momentum):
            found.append(self.accepted > 0)
        if isinstance(self.parts.base, Adam):
            found.append(self.accepted.copy())
        return found

    def leaves(self) -> list[np.ndarray]:
        """The state as the leaves of that of a program: counts, moments layer by layer, key, steps."""
        found = self.counted()
        for moment in range(2):
            if self.used[moment]:
                parts = np.split(self.moments[:, moment], self.ends[:-1], axis=1)
                found += [part.reshape(-1, *shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return [*found, self.keys, self.accepted]

    def read(self, leaves: Sequence[np.ndarray]) -> None:
        """Take the state that an earlier run left."""
        if [np.shape(leaf) for leaf in leaves] != [np.shape(leaf) for leaf in self.leaves()]:
            raise ValueError(
                "resume: the trajectory must come from the same method and network, but its saved state does not fit. "
                "To start another method from its parameters, use WarmStart(trajectory)."
            )
        stream = iter(leaves[len(self.counted()) :])
        for moment in range(2):
            if self.used[moment]:
                rows = [np.reshape(next(stream), (self.members, -1)) for _ in self.shapes]
                self.moments[:, moment] = np.concatenate(rows, axis=1)
        self.keys[:], self.accepted[:] = next(stream), next(stream)

    def update(self, problem: Problem, batched: tuple[bool, bool], holder: engine.Holder) -> engine.Update:
        """The update as the engine reads it."""
        base, milestones, batch = self.parts
        found = engine.Update()
        found.kind = engine.UPDATES.index(type(base).__name__)
        found.nesterov = int(isinstance(base, Momentum) and base.nesterov)
        lead = (self.members,) if batched[1] else ()
        table = np.zeros((*lead, 4))
        for column, name in enumerate(NUMBERS[type(base)]):
            if name:
                table[..., column] = np.asarray(getattr(base, name))
        found.numbers, found.numbers_step = holder.copy(table, float), 4 * batched[1]
        if milestones is not None:
            steps = np.asarray(milestones.steps)
            found.marks = steps.shape[-1]
            found.mark, found.mark_step = holder.copy(steps, np.int64), found.marks * batched[1]
            found.factor, found.factor_step = holder.copy(milestones.factor, float), int(batched[1])
        found.moments, found.keys = holder.point(self.moments), holder.point(self.keys)
        if batch:
            found.batch = batch
            found.terms, arrays = terms_of(problem.loss)
            for name, array in arrays.items():
                setattr(found, name, holder.copy(array, array.dtype))
                setattr(found, f"{name}_step", array.size // self.members if batched[0] else 0)
        return found
