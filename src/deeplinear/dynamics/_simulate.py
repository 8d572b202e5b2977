"""The verbs `simulate`, `ensemble` and `resume`."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt32

from deeplinear.core import Array, RandomKey, Trajectory, checked_params, entry, near_name
from deeplinear.dynamics._arguments import (
    Settings,
    check_continuation,
    check_values,
    checked_members,
    checked_method,
    checked_rules,
    checked_schedule,
    key_data,
    kinds,
    stacked_params,
)
from deeplinear.dynamics._base import AbstractMethod, Progress
from deeplinear.dynamics._driver import Driver
from deeplinear.dynamics._flow import GradientFlow
from deeplinear.dynamics._native import move, native_label, refusal
from deeplinear.dynamics._run import Run
from deeplinear.dynamics._stopping import Until
from deeplinear.models import Problem, checked_problem
from deeplinear.probes import checked_probes, loss


@entry(instead="use ensemble for many runs, and closed forms such as exact.propagate for derivatives")
def simulate(
    problem: Problem,
    params: Iterable[Any],
    method: AbstractMethod | None = None,
    *,
    times: Any = None,
    horizon: float | None = None,
    every: int | None = None,
    probes: Callable[..., Any] | Iterable[Callable[..., Any]] = (loss,),
    until: Until | Sequence[Until] = (),
    max_steps: int = 10_000_000,
    wall_limit: float | None = None,
    key: RandomKey | None = None,
    throw: bool = False,
    progress: Callable[[Progress], None] | None = None,
    engine: str | None = None,
) -> Trajectory:
    r"""Move the parameters of one network and record probes on the way.

    Time is that of the flow $\dot\theta = -\nabla\mathcal L$ for `GradientFlow`, and the number of steps for updates.
    Give `times` to record exactly there, or `horizon` (and `every`) to record every so many steps; with a stopping rule
    neither is needed. The first and the last state are always recorded.

    Args:
        problem: Model and loss.
        params: Layers at the start, first-acting first: arrays or nested lists of real numbers.
        method: `GradientFlow()` by default, or an update such as `Adam()`.
        times: Increasing times to record at, from 0 on; whole numbers for updates.
        horizon: Where the run ends, if no `times` are given; a whole number for updates.
        every: Record every so many steps, if no `times` are given; 1 for flows and 100 for updates by default.
        probes: Observables, one or several: probes or plain functions `(t, params, problem) -> array`.
        until: Stopping rules, made by `until` and `steady`.
        max_steps: Limit on steps.
        wall_limit: Limit on seconds of computing.
        key: For stochastic updates.
        throw: Raise `NumericalError` if the run breaks down; by default it is returned and says so.
        progress: Called with a `Progress` now and then.
        engine: `"native"` (compiled C++; starts at once) or `"xla"` (programs compiled for each shape). By default the
            native engine wherever it covers the run; `info["engine"]` of the result names the engine, and why.

    Returns:
        Trajectory with the outcome in `result`.

    Example:
        >>> problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(2 * jnp.eye(2)))
        >>> run = simulate(problem, (jnp.eye(2), jnp.eye(2)), times=[0.0, 1.0])
        >>> first, second = run.params
        >>> round(float((second @ first)[0, 0]), 6), round(float(2 / (1 + np.exp(-4.0))), 6)  # a logistic curve
        (1.964028, 1.964028)
    """
    checked_problem("simulate", "problem", problem)
    stacked = tuple(np.asarray(layer)[None] for layer in checked_params("simulate", "params", params))
    keys = key if key is None else key_data("simulate", key, None)
    settings = Settings(times, horizon, every, probes, until, max_steps, wall_limit, progress)
    outcome = _drive("simulate", problem, stacked, method, (False, False), keys, settings, "threads", engine).member(0)
    return outcome.raise_on_failure() if throw else outcome


@entry(
    instead="call it outside of the transformation; for derivatives use closed forms such as exact.propagate",
    empty=True,
)
def ensemble(
    problem: Problem | Iterable[Problem],
    params: Iterable[Any],
    method: AbstractMethod | Iterable[AbstractMethod] | None = None,
    *,
    times: Any = None,
    horizon: float | None = None,
    every: int | None = None,
    probes: Callable[..., Any] | Iterable[Callable[..., Any]] = (loss,),
    until: Until | Sequence[Until] = (),
    max_steps: int = 10_000_000,
    wall_limit: float | None = None,
    key: RandomKey | None = None,
    throw: bool = False,
    progress: Callable[[Progress], None] | None = None,
    strategy: str | None = None,
    engine: str | None = None,
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
        strategy: How programs of XLA move members: `"threads"` or `"vector"`; by default the first on a CPU, the second
            on an accelerator.
        engine: As for `simulate`.
    """
    problems, of_problems = checked_members("problem", problem)
    methods, of_methods = checked_members("method", method)
    stacked, of_params = stacked_params(params)
    sizes = {"problem": of_problems, "params": of_params, "method": of_methods}
    sizes = {name: count for name, count in sizes.items() if count is not None}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"ensemble: lists must have one entry for each member, but have lengths {sizes}.")
    if not sizes:
        raise ValueError("ensemble: give a list of problems, of params or of methods; for one run use simulate.")
    members = next(iter(sizes.values()))
    if not members:
        raise ValueError(f"ensemble: {next(iter(sizes))} must hold at least one member, but holds none.")
    checked_problem("ensemble", "problem", problems)
    if of_params is None:
        stacked = tuple(np.broadcast_to(layer, (members, *np.shape(layer))) for layer in stacked)
    keys = key if key is None else key_data("ensemble", key, members)
    settings = Settings(times, horizon, every, probes, until, max_steps, wall_limit, progress)
    if strategy is None:
        strategy = "threads" if jax.default_backend() == "cpu" else "vector"
    if strategy not in ("threads", "vector"):
        raise ValueError(f"ensemble: strategy is '{strategy}'. {near_name(strategy, ['threads', 'vector'])}")
    batched = (of_problems is not None, of_methods is not None)
    stacked = tuple(np.asarray(layer) for layer in stacked)
    outcome = _drive("ensemble", problems, stacked, methods, batched, keys, settings, strategy, engine)
    return outcome.raise_on_failure() if throw else outcome


@entry(instead="call it outside of the transformation")
def resume(
    trajectory: Trajectory,
    problem: Problem,
    method: AbstractMethod | None = None,
    *,
    times: Any = None,
    horizon: float | None = None,
    every: int | None = None,
    probes: Callable[..., Any] | Iterable[Callable[..., Any]] = (loss,),
    until: Until | Sequence[Until] = (),
    max_steps: int = 10_000_000,
    wall_limit: float | None = None,
    throw: bool = False,
    progress: Callable[[Progress], None] | None = None,
    engine: str | None = None,
) -> Trajectory:
    """Go on where a single run ended, with the same problem and method: step size, moments and random stream included.

    Times go on from the end of the run; the returned trajectory holds the new part only. Arguments as for `simulate`,
    with `max_steps` counting the new steps; `stats` are those of the new part too. Problem and method must be of the
    kind they were (classes, shapes); numbers in them, such as a learning rate or a tolerance, may be others.
    """
    if not isinstance(trajectory, Trajectory):
        raise TypeError(f"resume: trajectory must be a Trajectory, but is {type(trajectory).__name__}.")
    if trajectory.is_ensemble:
        raise ValueError("resume: take one member of an ensemble at a time, trajectory.member(i).")
    checked_problem("resume", "problem", problem)
    stacked = tuple(layer[None] for layer in trajectory.params)
    settings = Settings(times, horizon, every, probes, until, max_steps, wall_limit, progress)
    many = _drive("resume", problem, stacked, method, (False, False), None, settings, "threads", engine, trajectory)
    outcome = many.member(0)
    return outcome.raise_on_failure() if throw else outcome


def _drive(
    where: str,
    problem: Problem,
    params: tuple[np.ndarray, ...],
    method: Any,
    batched: tuple[bool, bool],
    keys: UInt32[Array | np.ndarray, "members words"] | None,
    settings: Settings,
    strategy: str,
    chosen: str | None,
    before: Trajectory | None = None,
) -> Trajectory:
    """Check the arguments, run all members to their ends and put the trajectory together."""
    clock = time.monotonic()
    method = checked_method(where, "method", GradientFlow() if method is None else method)
    dtype = jnp.result_type(float)
    params = tuple(np.asarray(layer, dtype) for layer in params)
    problem.check(tuple(layer[0] for layer in params), where)
    check_values(where, params)
    if before is not None:
        check_continuation(before, problem, method)
    begin = 0.0 if before is None else float(before.final_time)
    rules = checked_rules(where, settings.until)
    schedule = checked_schedule(where, settings, begin, isinstance(method, GradientFlow), bool(rules))
    probes = checked_probes(where, settings.probes, problem, batched[0], params)
    members = params[0].shape[0]
    starts_listed = len(schedule.times) > 0 and schedule.times[0] == begin
    run = Run(
        problem,
        method,
        batched,
        rules,
        probes,
        schedule,
        max_steps=settings.max_steps,
        deadline=np.inf if settings.wall_limit is None else clock + settings.wall_limit,
        opens=before is None and bool(schedule.every or starts_listed),
        first=int(before is not None and starts_listed),
        progress=settings.progress,
    )
    y = np.ascontiguousarray(np.concatenate([layer.reshape(members, -1) for layer in params], axis=1))
    t = np.full(members, begin, dtype)
    memory = None if before is None else [np.asarray(leaf)[None] for leaf in before.state]
    if keys is None:
        keys = key_data(where, None, members if where == "ensemble" else None)
    reason = _why_not_native(where, run, chosen, members)
    if reason is None:
        outcome, label = move(run, y, t, np.asarray(keys), memory, clock), native_label(run, members)
    else:
        driver = Driver(run, members, y.shape[1], strategy == "vector")
        driver.run(*jax.device_put((y, t, keys)), memory=memory)
        outcome, label = driver.trajectory(clock), f"xla: {reason}"
    info = {**outcome.info, "kinds": kinds(problem, method, batched), "engine": label}
    return dataclasses.replace(outcome, info=info)


def _why_not_native(where: str, run: Run, chosen: str | None, members: int) -> str | None:
    """Why a run is moved by programs of XLA; `None` if the native engine moves it."""
    if chosen not in (None, "native", "xla"):
        raise ValueError(f"{where}: engine is '{chosen}'. {near_name(str(chosen), ['native', 'xla'])}")
    if chosen == "xla":
        return "you asked for it"
    reason = refusal(run, members)
    if chosen == "native" and reason is not None:
        raise ValueError(f"{where}: the native engine cannot move this run: {reason}. Leave engine out.")
    return reason
