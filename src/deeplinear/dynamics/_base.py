"""What a method must offer: how parameters move."""

import abc
from typing import Generic, NamedTuple, TypeVar

import equinox as eqx
from jaxtyping import Float, Int

from deeplinear.core import Array, Params, RandomKey
from deeplinear.models import Problem

State = TypeVar("State")


class Plan(NamedTuple):
    """What to record and when to end.

    The first `listed` entries of `times` are landed on and recorded; with `every` above zero, every so many accepted
    steps are recorded instead. The run completes at `horizon`. Sizes are fixed, so that any number of outputs
    compiles once.
    """

    times: Float[Array, " room"]
    listed: Int[Array, ""]
    every: Int[Array, ""]
    horizon: Float[Array, ""]
    max_steps: Int[Array, ""]


class Snapshots(NamedTuple):
    """States collected by one call of `advance`; rows from `filled` on are meaningless."""

    times: Float[Array, " room"]
    states: Float[Array, "room size"]
    filled: Int[Array, ""]


class Progress(NamedTuple):
    """How far a run is, for a progress callback."""

    members: int
    ended: int
    steps: int
    t: float
    fraction: float


class AbstractMethod(eqx.Module):
    """How parameters move: continuously (a flow) or in steps (an update)."""


class AbstractUpdate(AbstractMethod, Generic[State]):
    """Discrete optimiser as a pure pair: `init` makes the state, `step` moves parameters and state once."""

    @abc.abstractmethod
    def init(self, params: Params) -> State:
        """State before the first step."""

    @abc.abstractmethod
    def step(self, problem: Problem, params: Params, state: State, key: RandomKey) -> tuple[Params, State]:
        """One step. `key` is fresh for every step; deterministic methods ignore it."""
