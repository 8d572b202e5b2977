"""Arguments of `simulate`, `ensemble` and `resume`, looked at before anything is compiled."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt32

from deeplinear.core import (
    Array,
    Trajectory,
    check_count,
    check_finite,
    check_key,
    check_number,
    check_shape,
    checked_layer,
    checked_params,
    describe,
    random,
)
from deeplinear.dynamics._base import AbstractMethod, AbstractUpdate, Progress
from deeplinear.dynamics._flow import FLOOR, GradientFlow
from deeplinear.dynamics._members import stack_members
from deeplinear.dynamics._stopping import Until
from deeplinear.models import Problem, checked_problem


class Settings(NamedTuple):
    """What the three verbs have in common, as the user gave it."""

    times: Any
    horizon: float | None
    every: int | None
    probes: Any
    until: Any
    max_steps: int
    wall_limit: float | None
    progress: Callable[[Progress], None] | None


class Schedule(NamedTuple):
    """Times to record at, or the number of steps between two records; and where the run ends."""

    times: np.ndarray
    every: int
    horizon: float


# --- Problem, method, parameters --------------------------------------------------------------------------------------


def checked_method(where: str, name: str, method: Any) -> AbstractMethod:
    """A method that can be run in the present precision, or a refusal."""
    if not isinstance(method, GradientFlow | AbstractUpdate):
        raise TypeError(f"{where}: {name} must be GradientFlow(...) or an update such as Adam(...), but is {method!r}.")
    if isinstance(method, GradientFlow):
        least = FLOOR * float(jnp.finfo(jnp.result_type(float)).eps)
        rtol = float(np.min(np.asarray(method.rtol)))
        if rtol < least:
            raise ValueError(
                f"{where}: rtol of {name} must be at least {least:.1e} in 32 bits, but is {rtol:.1e}; call "
                "jax.config.update('jax_enable_x64', True) at the start of the program, or take a larger rtol."
            )
    return method


def stacked_params(params: Iterable[Any]) -> tuple[tuple[Any, ...], int | None]:
    """Layers of an ensemble and its number of members; `None` where the layers are those of every member."""
    if isinstance(params, str | dict) or not isinstance(params, Iterable):
        raise TypeError(f"ensemble: params must be a list of parameters, but is {params!r}.")
    items = list(params)
    if not items:
        raise ValueError("ensemble: params must not be empty.")
    if not _is_layer(items[0]):
        members = [checked_params("ensemble", f"params[{i}]", member) for i, member in enumerate(items)]
        return stack_members(members, "ensemble", "params"), len(members)
    layers = tuple(checked_layer("ensemble", f"params[{i}]", layer) for i, layer in enumerate(items))
    if layers[0].ndim != 3:
        return checked_params("ensemble", "params", layers), None
    for position, layer in enumerate(layers):
        check_shape("ensemble", f"params[{position}]", layer, (None, None, None))
    counts = [int(layer.shape[0]) for layer in layers]
    if len(set(counts)) > 1:
        raise ValueError(f"ensemble: all layers of params must have the same number of members, but have {counts}.")
    return layers, counts[0]


def _is_layer(item: Any) -> bool:
    """Whether an item is an array or a matrix of nested lists, and not the layers of one member."""
    if not isinstance(item, list | tuple):
        return hasattr(item, "ndim")
    return all(isinstance(row, list | tuple) and all(np.ndim(x) == 0 for x in row) for row in item)


def check_values(where: str, params: tuple[np.ndarray, ...]) -> None:
    """Refuse parameters that are not finite; the entry is named without a member axis where there is one run."""
    for position, layer in enumerate(params):
        many = where == "ensemble"
        name = f"params[{position}] (member, row, column)" if many else f"params[{position}]"
        check_finite(where, name, layer if many else layer[0])


def checked_members(name: str, value: Any) -> tuple[Any, int | None]:
    """One problem or method for all members, or several, stacked, and how many those are."""
    check = checked_problem if name == "problem" else checked_method
    if isinstance(value, Problem) and np.ndim(value.l2) == 1:  # stacked already, by jax.vmap
        counts = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(value)}
        if len(counts) > 1:
            raise ValueError(
                "ensemble: a stacked problem must have one leading axis of members on all of its arrays, but has "
                f"{sorted(counts)}; make it with jax.vmap."
            )
        return value, int(value.l2.shape[0])
    if value is None or isinstance(value, eqx.Module | str) or not isinstance(value, Iterable):
        return value, None
    items = [check("ensemble", f"{name}[{i}]", item) for i, item in enumerate(value)]
    if not items:
        raise ValueError(f"ensemble: {name} must not be an empty list.")
    for position, item in enumerate(items):
        if type(item) is not type(items[0]):
            raise ValueError(
                f"ensemble: {name}[{position}] must be of the same kind as {name}[0], {type(items[0]).__name__}, but "
                f"is {type(item).__name__}; run them in separate ensembles."
            )
        first = items[0]
        if isinstance(item, GradientFlow) and isinstance(first, GradientFlow):
            own, common = (jax.tree.structure(m.integrator) for m in (item, first))
            if own != common:
                raise ValueError(
                    f"ensemble: {name}[{position}] must have the same integrator as {name}[0], but has another one. By "
                    "default it depends on the tolerance: the automatic choice takes another one for rtol above 1e-7. "
                    "Give all of them one, GradientFlow(rtol, integrator=...), or run them in separate ensembles."
                )
    return stack_members(items, "ensemble", name), len(items)


def key_data(where: str, key: Any, members: int | None) -> UInt32[Array | np.ndarray, "members words"]:
    """Data of one random key, or of one for each member of an ensemble."""
    if key is None:
        key = random.key(0)
    check_key(where, key)
    seen = random.words(key)
    if seen is not None:
        return seen[None] if members is None else random.split(seen, members)
    keys = key[None] if members is None else jax.random.split(key, members)
    return keys if keys.dtype == np.uint32 else jax.random.key_data(keys)


# --- Records, rules and limits ----------------------------------------------------------------------------------------


def checked_times(where: str, times: Any, begin: float, whole: bool) -> np.ndarray:
    """Times as an increasing array."""
    try:
        given = np.asarray(times)
    except ValueError:
        given = np.asarray(None)
    if given.dtype.kind not in "iuf" and given.size:
        raise TypeError(f"{where}: times must be a list of real numbers, but is {times!r}.")
    array = given.astype(float)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{where}: times must be a list of at least one time, but has shape {array.shape}.")
    check_finite(where, "times", array)
    if np.any(np.diff(array) <= 0):
        raise ValueError(f"{where}: times must increase strictly.")
    if array[0] < begin:
        raise ValueError(f"{where}: times must not lie before the start at {begin:g}, but begin at {array[0]:g}.")
    if whole and np.any(array != np.round(array)):
        raise ValueError(f"{where}: times of an update count its steps and must be whole numbers.")
    return array


def checked_schedule(where: str, settings: Settings, begin: float, flow: bool, ruled: bool) -> Schedule:
    """When to record and when to end."""
    most = int(jnp.iinfo(jnp.result_type(int)).max) // 2
    check_count(where, "max_steps", settings.max_steps, at_least=1, at_most=most)
    if settings.wall_limit is not None:
        check_number(where, "wall_limit", settings.wall_limit, above=0)
    if settings.times is not None:
        if settings.horizon is not None or settings.every is not None:
            raise ValueError(f"{where}: give either times, or horizon and every, not both.")
        times = checked_times(where, settings.times, begin, not flow)
        return Schedule(times, 0, float(times[-1]))
    horizon = np.inf
    if settings.horizon is not None:
        check_number(where, "horizon", settings.horizon, above=begin)
        horizon = float(settings.horizon)
        if not flow and not horizon.is_integer():
            raise ValueError(f"{where}: horizon of an update counts its steps and must be whole, but is {horizon:g}.")
    elif not ruled:
        raise ValueError(f"{where}: give times, a horizon or a stopping rule, or the run would not end.")
    every = settings.every if settings.every is not None else (1 if flow else 100)
    check_count(where, "every", every, at_least=1, at_most=most)
    return Schedule(np.zeros(0), every, horizon)


def checked_rules(where: str, until: Any) -> tuple[Until, ...]:
    """Stopping rules, from one or several."""
    rules = until if isinstance(until, Sequence) and not isinstance(until, str) else (until,)
    for rule in rules:
        if not isinstance(rule, Until):
            raise TypeError(f"{where}: until must hold rules made by until(...) or steady(...), but holds {rule!r}.")
    return tuple(rules)


# --- Continuing -------------------------------------------------------------------------------------------------------


def kinds(problem: Problem, method: AbstractMethod, batched: tuple[bool, bool]) -> dict[str, str]:
    """Of what kind problem and method are, whatever their numbers: classes, and shapes of data."""
    one = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[0]), problem) if batched[0] else problem
    return {"problem": describe(one, numbers=False), "method": type(method).__name__}


def check_continuation(trajectory: Trajectory, problem: Problem, method: AbstractMethod) -> None:
    """Refuse to go on with another kind of problem or method; numbers in them may change."""
    if not trajectory.state:
        raise ValueError("resume: the trajectory must hold the state of its method, but holds none; use simulate.")
    now = kinds(problem, method, (False, False))
    for name, kind in trajectory.info.get("kinds", {}).items():
        if kind != now[name]:
            raise ValueError(
                f"resume: the {name} must be of the same kind as in the trajectory, {kind}, but is {now[name]}. To "
                "start another one from its parameters, use simulate with WarmStart(trajectory)."
            )
