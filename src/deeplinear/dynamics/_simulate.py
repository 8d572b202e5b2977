"""The verbs `simulate`, `ensemble` and `resume`."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from deeplinear.core import (
    Params,
    Stack,
    Trajectory,
    check_count,
    check_finite,
    check_number,
    flatten,
    near_name,
)
from deeplinear.dynamics._base import AbstractMethod, AbstractUpdate
from deeplinear.dynamics._driver import Driver, Progress, stack_members
from deeplinear.dynamics._flow import GradientFlow
from deeplinear.dynamics._probes import as_probes, loss
from deeplinear.dynamics._stopping import Until
from deeplinear.models import Problem


def simulate(
    problem: Problem,
    params: Params,
    method: AbstractMethod | None = None,
    *,
    times: Any = None,
    horizon: float | None = None,
    every: int | None = None,
    probes: Sequence[Callable[..., Any]] = (loss,),
    until: Until | Sequence[Until] = (),
    max_steps: int = 10_000_000,
    wall_limit: float | None = None,
    key: Key[Array, ""] | None = None,
    throw: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Trajectory:
    r"""Move the parameters of one network and record probes on the way.

    Time is that of the flow $\dot\theta = -\nabla\mathcal L$ for `GradientFlow`, and the number of steps for updates.
    Give `times` to record exactly there, or `horizon` (and `every`) to record every so many steps; with a stopping rule
    neither is needed. The first and the last state are always recorded.

    Args:
        problem: Model and loss.
        params: Layers at the start, first-acting first.
        method: `GradientFlow()` by default, or an update such as `Adam()`.
        times: Increasing times to record at, from 0 on; whole numbers for updates.
        horizon: Where the run ends, if no `times` are given.
        every: Record every so many steps, if no `times` are given; 1 for flows and 100 for updates by default.
        probes: Observables: probes or plain functions `(t, params, problem) -> array`.
        until: Stopping rules, made by `until` and `steady`.
        max_steps: Limit on steps.
        wall_limit: Limit on seconds of computing.
        key: For stochastic updates.
        throw: Raise `NumericalError` if the run breaks down; by default it is returned and says so.
        progress: Called with a `Progress` now and then.

    Returns:
        Trajectory with the outcome in `result`.

    Example:
        >>> problem = Problem(DeepLinear((1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> run = simulate(problem, (jnp.zeros((1, 1)),), times=[0.0, 1.0])
        >>> round(float(run.params[0][0, 0]), 6), round(float(1 - jnp.exp(-1.0)), 6)
        (0.632121, 0.632121)
    """
    stacked = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tuple(params))
    keys = jax.random.key_data(jax.random.key(0) if key is None else key)[None]
    settings = _Settings(times, horizon, every, tuple(probes), until, max_steps, wall_limit, progress)
    outcome = _drive("simulate", problem, stacked, method, (False, False), keys, settings, "threads").member(0)
    return outcome.raise_on_failure() if throw else outcome


def ensemble(
    problem: Problem | Sequence[Problem],
    params: Stack | Params | Sequence[Params],
    method: AbstractMethod | Sequence[AbstractMethod] | None = None,
    *,
    times: Any = None,
    horizon: float | None = None,
    every: int | None = None,
    probes: Sequence[Callable[..., Any]] = (loss,),
    until: Until | Sequence[Until] = (),
    max_steps: int = 10_000_000,
    wall_limit: float | None = None,
    key: Key[Array, ""] | None = None,
    throw: bool = False,
    progress: Callable[[Progress], None] | None = None,
    strategy: str | None = None,
) -> Trajectory:
    """Many runs at once: over seeds, targets, masks, tolerances, learning rates. Arguments as for `simulate`.

    Each of `problem`, `params` and `method` is one for all members, or a list with one for each. A member that breaks
    down does not disturb the others: it is kept, and `failed` names it.

    Args:
        problem: One problem, or one for each member (same shapes).
        params: A list of parameters, or parameters whose layers have a leading member axis.
        method: One method, or one for each member (same kind).
        times: As for `simulate`.
        horizon: As for `simulate`.
        every: As for `simulate`.
        probes: As for `simulate`.
        until: As for `simulate`.
        max_steps: Limit on steps of each member.
        wall_limit: Limit on seconds for the whole ensemble.
        key: Split into one key for each member.
        throw: Raise `NumericalError` if a member breaks down.
        progress: Called with a `Progress` now and then.
        strategy: `"threads"` or `"vector"`; by default the first on a CPU, the second on an accelerator.
    """
    sizes = {}
    batched = []
    listed: list[Any] = []
    for name, value in (("problem", problem), ("method", method)):
        many = isinstance(value, list | tuple)
        if many:
            if not value:
                raise ValueError(f"ensemble: {name} must not be an empty list.")
            sizes[name] = len(value)
        batched.append(many)
        listed.append(stack_members(value, "ensemble", name) if many else value)
    if len(params) == 0:
        raise ValueError("ensemble: params must not be empty.")
    if isinstance(params[0], list | tuple):
        stacked = stack_members([tuple(member) for member in params], "ensemble", "params")
        sizes["params"] = len(params)
    elif np.ndim(params[0]) == 3:
        stacked = tuple(jnp.asarray(layer) for layer in params)
        sizes["params"] = int(stacked[0].shape[0])
    else:
        stacked = None
    counts = set(sizes.values())
    if len(counts) > 1:
        raise ValueError(f"ensemble: lists must have one entry for each member, but have lengths {sizes}.")
    if not counts:
        raise ValueError("ensemble: give a list of problems, of params or of methods; for one run use simulate.")
    members = counts.pop()
    if stacked is None:
        stacked = tuple(jnp.broadcast_to(jnp.asarray(layer), (members, *np.shape(layer))) for layer in params)
    keys = jax.random.key_data(jax.random.split(jax.random.key(0) if key is None else key, members))
    settings = _Settings(times, horizon, every, tuple(probes), until, max_steps, wall_limit, progress)
    if strategy is None:
        strategy = "threads" if jax.default_backend() == "cpu" else "vector"
    if strategy not in ("threads", "vector"):
        raise ValueError(f"ensemble: strategy is '{strategy}'. {near_name(strategy, ['threads', 'vector'])}")
    outcome = _drive("ensemble", listed[0], stacked, listed[1], (batched[0], batched[1]), keys, settings, strategy)
    return outcome.raise_on_failure() if throw else outcome


def resume(
    trajectory: Trajectory,
    problem: Problem,
    method: AbstractMethod | None = None,
    *,
    times: Any = None,
    horizon: float | None = None,
    every: int | None = None,
    probes: Sequence[Callable[..., Any]] = (loss,),
    until: Until | Sequence[Until] = (),
    max_steps: int = 10_000_000,
    wall_limit: float | None = None,
    throw: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Trajectory:
    """Go on where a single run ended, with the same problem and method: step size, moments and random stream included.

    Times go on from the end of the run; the returned trajectory holds the new part only. Arguments as for `simulate`,
    with `max_steps` counting the new steps.
    """
    if trajectory.is_ensemble:
        raise ValueError("resume: take one member of an ensemble at a time, trajectory.member(i).")
    stacked = tuple(jnp.asarray(layer)[None] for layer in trajectory.params)
    settings = _Settings(times, horizon, every, tuple(probes), until, max_steps, wall_limit, progress)
    keys = jax.random.key_data(jax.random.key(0))[None]
    outcome = _drive("resume", problem, stacked, method, (False, False), keys, settings, "threads", trajectory).member(
        0
    )
    return outcome.raise_on_failure() if throw else outcome


class _Settings(NamedTuple):
    """What the three verbs have in common."""

    times: Any
    horizon: float | None
    every: int | None
    probes: tuple[Callable[..., Any], ...]
    until: Until | Sequence[Until]
    max_steps: int
    wall_limit: float | None
    progress: Callable[[Progress], None] | None


def _checked_times(where: str, times: Any, begin: float, whole: bool) -> np.ndarray:
    array = np.asarray(times, dtype=float)
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


def _drive(
    where: str,
    problem: Problem,
    params: Stack,
    method: AbstractMethod | None,
    batched: tuple[bool, bool],
    keys: Array,
    settings: _Settings,
    strategy: str,
    before: Trajectory | None = None,
) -> Trajectory:
    """Check the arguments, run all members to their ends and put the trajectory together."""
    clock = time.monotonic()
    method = GradientFlow() if method is None else method
    if not isinstance(method, GradientFlow | AbstractUpdate):
        raise TypeError(f"{where}: method must be GradientFlow or an update, but is {method!r}.")
    flow = isinstance(method, GradientFlow)
    dtype = jnp.result_type(float)
    params = tuple(layer.astype(dtype) for layer in params)
    problem.check(tuple(layer[0] for layer in params), where)
    for position, layer in enumerate(params):
        check_finite(where, f"params[{position}]", layer)
    members = params[0].shape[0]
    begin = 0.0 if before is None else float(before.final_time)
    rules = (settings.until,) if isinstance(settings.until, Until) else tuple(settings.until)
    for rule in rules:
        if not isinstance(rule, Until):
            raise TypeError(f"{where}: until must hold rules made by until(...) or steady(...), but holds {rule!r}.")
    probes = as_probes(settings.probes)
    check_count(where, "max_steps", settings.max_steps, at_least=1)
    if settings.wall_limit is not None:
        check_number(where, "wall_limit", settings.wall_limit, above=0)
    every, horizon, times = 0, np.inf, np.zeros(0)
    if settings.times is not None:
        if settings.horizon is not None or settings.every is not None:
            raise ValueError(f"{where}: give either times, or horizon and every, not both.")
        times = _checked_times(where, settings.times, begin, not flow)
        horizon = float(times[-1])
    else:
        if settings.horizon is not None:
            check_number(where, "horizon", settings.horizon, above=begin)
            horizon = float(settings.horizon)
        elif not rules:
            raise ValueError(f"{where}: give times, a horizon or a stopping rule, or the run would not end.")
        every = settings.every if settings.every is not None else (1 if flow else 100)
        check_count(where, "every", every, at_least=1)

    size = sum(layer[0].size for layer in params)
    deadline = np.inf if settings.wall_limit is None else clock + settings.wall_limit
    opens = before is None and bool(every or times[0] == begin)
    driver = Driver(
        problem,
        method,
        batched,
        rules,
        probes,
        times,
        every,
        horizon,
        settings.max_steps,
        deadline,
        members,
        size,
        settings.progress,
        strategy == "vector",
        opens,
    )
    if before is not None and len(times) and times[0] == begin:
        driver.cursor[:] = 1
    y = jax.vmap(flatten)(params)
    t = jnp.full(members, begin, dtype)
    driver.run(y, t, keys, None if before is None else [np.asarray(leaf)[None] for leaf in before.state])
    return driver.trajectory(clock)
