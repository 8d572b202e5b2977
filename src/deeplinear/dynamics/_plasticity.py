"""Loss of plasticity in matrix completion: learn from some entries, see more of them, go on warm or start again cold.

Each phase is a trajectory. With a folder for checkpoints a phase that reached its end is never trained twice: it is
kept under the hash of everything that determines it, together with a digest of its bytes.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Key, UInt32

from deeplinear._about import __version__
from deeplinear.core import (
    RESULTS,
    Array,
    Params,
    Trajectory,
    check_finite,
    check_number,
    check_shape,
    describe,
    entry,
    random,
    xp,
)
from deeplinear.dynamics._arguments import checked_method
from deeplinear.dynamics._base import AbstractMethod, Progress
from deeplinear.dynamics._checkpoints import content_hash, load_checkpoint, save_checkpoint
from deeplinear.dynamics._flow import GradientFlow
from deeplinear.dynamics._plasticity_result import PHASES, Plasticity, reached
from deeplinear.dynamics._simulate import ensemble, simulate
from deeplinear.dynamics._stopping import Until, until
from deeplinear.dynamics._updates import Adagrad, Adam, GradientDescent, Momentum, RMSProp
from deeplinear.models import AbstractInit, AbstractModel, Completion, Problem
from deeplinear.probes import AbstractProbe, as_probes, loss

DETERMINISTIC = (GradientFlow, GradientDescent, Momentum, Adam, RMSProp, Adagrad)
"""Methods that draw nothing. Members of others run one by one, so that each has its own key whoever runs beside it."""

THRESHOLD = 1e-2
"""Loss at which a phase counts as learnt, unless the caller says otherwise."""


# --- The protocol -----------------------------------------------------------------------------------------------------


@entry(instead="call it outside of the transformation")
def plasticity(
    model: AbstractModel,
    target: object,
    before: object,
    after: object,
    init: AbstractInit | Sequence[AbstractInit],
    *,
    key: Key[Array, "..."] | UInt32[Array, "..."],
    cold_key: Key[Array, "..."] | UInt32[Array, "..."] | None = None,
    method: AbstractMethod | Sequence[AbstractMethod] | None = None,
    threshold: float | None = None,
    horizon: float | None = None,
    every: int | None = None,
    probes: Callable[..., Any] | Iterable[Callable[..., Any]] = (loss,),
    checkpoints: str | os.PathLike[str] | None = None,
    max_steps: int = 10_000_000,
    wall_limit: float | None = None,
    progress: Callable[[str, Progress], None] | None = None,
) -> Plasticity:
    r"""Learn from the entries `before`, then see `after`: go on from there (warm) and start anew (cold).

    The loss is $\tfrac12\sum_{(i,j)\in\Omega}(w_{ij} - w^\star_{ij})^2$ with $\Omega$ the entries seen. A network that
    has settled on a solution of high rank keeps it when more entries are revealed, although a fresh one would find a
    lower rank: plasticity is lost, and `gap`, the difference of the effective ranks, is above zero.

    By default a phase ends when its loss is at most 0.01. With `horizon` it ends after a fixed time or number of steps
    instead; deep networks, which learn late, have then often not learnt at all, and trends with depth turn around.

    Members whose first phase does not reach its end (a limit, an interruption, a saddle, divergence) begin neither the
    warm nor the cold phase: a comparison from there would be one of unfinished runs. Nothing is raised, because the
    other members of an ensemble, and the trajectory so far, are worth having: `reached` and `outcomes` say it, the
    numbers of phases that did not begin are NaN, and with `checkpoints` a second call with a higher limit trains only
    what is missing. The warm phase begins with a fresh state of the method (step size, moments).

    Args:
        model: The network.
        target: Ground truth, (out, in), finite and not zero; or one for each member, (member, out, in).
        before: True where an entry is seen first, of the same shape; one mask for all members or one for each.
        after: True where an entry is seen later; everything in `before` must be seen here too.
        init: Initialisation, or one for each member.
        key: Randomness: one key, split where there are several members, or one for each.
        cold_key: Randomness of the cold start; by default `key`, so that warm and cold differ in their history only.
        method: `GradientFlow()` by default, or any other, or one for each member. Descent is stable for learning rates
            below $2/\lambda_{\max}$; $0.3/(L\,\|W^\star\|_2^{2-2/L})$ is a safe one.
        threshold: Loss at which a phase ends; 0.01 if there is no `horizon`.
        horizon: Fixed time (of a flow) or number of steps (of an update) of a phase, in place of a threshold.
        every: As for `simulate`.
        probes: As for `simulate`; the numbers of the result need none.
        checkpoints: Folder in which phases that reached their end are kept, one file for each member, and looked for.
            What determines a phase tells them apart, with the code of functions of your own and the globals they use.
            Where such a global changes within a session, define the function anew: JAX keeps what it compiled of it.
        max_steps: Limit on steps of each phase.
        wall_limit: Limit on seconds for all phases together.
        progress: Called now and then with the name of the phase and a `Progress`.

    Returns:
        The three phases and what compares them.

    Example:
        >>> model, target = DeepLinear((3, 3, 3, 3)), np.ones((3, 3))
        >>> seen, more = np.eye(3), np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
        >>> found = plasticity(model, target, seen, more, ScaledIdentity(0.1), key=jax.random.key(0), threshold=1e-8)
        >>> round(float(found.effective_rank["warm"]), 3), round(float(found.effective_rank["cold"]), 3)
        (2.641, 1.021)
    """
    if not isinstance(model, AbstractModel):
        raise TypeError(f"plasticity: model must be a model such as DeepLinear, but is {model!r}.")
    rule, phase_rules = _checked_rule(threshold, horizon)
    if wall_limit is not None:
        check_number("plasticity", "wall_limit", wall_limit, above=0)
    deadline = None if wall_limit is None else time.monotonic() + wall_limit
    truths, seen, more = _checked_data(model, target, before, after)
    inits = _several("init", init, AbstractInit)
    methods = _several("method", GradientFlow() if method is None else method, AbstractMethod)
    for position, item in enumerate(methods):
        checked_method("plasticity", f"method[{position}]" if len(methods) > 1 else "method", item)
    keys = _checked_keys("key", key)
    fresh = keys if cold_key is None else _checked_keys("cold_key", cold_key)
    sizes = {"target": truths, "before": seen, "after": more, "key": keys, "cold_key": fresh}
    counts = {name: len(array) for name, array in sizes.items() if array.ndim == (2 if "key" in name else 3)}
    counts |= {n: len(v) for n, v, given in (("init", inits, init), ("method", methods, method)) if _is_list(given)}
    if len(set(counts.values())) > 1:
        raise ValueError(f"plasticity: there must be one entry for each member, but there are {counts}.")
    members = next(iter(counts.values()), None)
    size = 1 if members is None else members
    truths, seen, more = (np.broadcast_to(a, (size, *model.product_shape)) for a in (truths, seen, more))
    inits, methods = (list(items) * size if len(items) == 1 else list(items) for items in (inits, methods))
    keys, fresh = (_spread_keys(k, members) for k in (keys, fresh))

    folder = None if checkpoints is None else Path(checkpoints)
    runner = _Runner(
        members is not None,
        methods,
        as_probes(probes),
        phase_rules,
        horizon,
        every,
        folder,
        max_steps,
        deadline,
        progress,
    )
    problems = {
        name: [Problem(model, Completion(t, m)) for t, m in zip(truths, masks, strict=True)]
        for name, masks in (("before", seen), ("warm", more), ("cold", more))
    }
    first = runner.run("before", problems["before"], [i(model, k) for i, k in zip(inits, keys, strict=True)], keys)
    # A phase that did not begin takes its form from the first one.
    starts = {
        "warm": lambda i: tuple(xp.asarray(layer) for layer in first[i].params),
        "cold": lambda i: inits[i](model, fresh[i]),
    }
    found = {"before": first}
    interrupted = _interrupted(first)
    for name, start in starts.items():
        go = [bool(reached(run)) and not interrupted for run in first]
        params = [start(i) if go[i] else None for i in range(size)]
        runs = runner.run(name, problems[name], params, fresh if name == "cold" else keys, first)
        interrupted = interrupted or _interrupted(runs)
        found[name] = runs
    products = {
        name: np.stack([np.asarray(model.forward(tuple(map(xp.asarray, run.params)))[0]) for run in runs])
        for name, runs in found.items()
    }

    def pack(arrays: np.ndarray) -> np.ndarray:
        return np.array(arrays if members is not None else arrays[0])

    return Plasticity(
        **{name: _stack(runs) if members is not None else runs[0] for name, runs in found.items()},
        products={name: pack(array) for name, array in products.items()},
        target=pack(truths),
        masks={"before": pack(seen), "warm": pack(more), "cold": pack(more)},
        rule=rule,
    )


class _Runner:
    """What the phases of one call share: how they are run, kept and found again."""

    def __init__(
        self,
        many: bool,
        methods: list[AbstractMethod],
        probes: tuple[AbstractProbe, ...],
        rules: tuple[Until, ...],
        horizon: float | None,
        every: int | None,
        folder: Path | None,
        max_steps: int,
        deadline: float | None,
        progress: Callable[[str, Progress], None] | None,
    ) -> None:
        self.many, self.methods, self.probes, self.rules = many, methods, probes, rules
        self.horizon, self.every, self.folder = horizon, every, folder
        self.max_steps, self.deadline, self.progress = max_steps, deadline, progress

    def run(
        self,
        phase: str,
        problems: list[Problem],
        params: Sequence[Params | None],
        keys: UInt32[np.ndarray, "members words"],
        shape: Sequence[Trajectory] | None = None,
    ) -> list[Trajectory]:
        """One phase of all members: what is kept is loaded, what may begin is trained, the rest stays empty."""
        noise = [random.fold_in(key, PHASES.index(phase)) for key in keys]
        found: dict[int, Trajectory] = {}
        contents: dict[int, str] = {}
        for i, start in enumerate(params):
            if start is None or self.folder is None:
                continue
            contents[i] = self.content(problems[i], start, self.methods[i], noise[i])
            loaded = load_checkpoint(self.folder, contents[i], lambda run: bool(reached(run)))
            if loaded is not None:
                found[i] = dataclasses.replace(loaded, info={**loaded.info, "loaded": [i], "phase": phase})
        missing = [i for i, start in enumerate(params) if start is not None and i not in found]
        for i, run in self.trained(phase, problems, params, noise, missing):
            info = {"problem": describe(problems[i]), "method": describe(self.methods[i]), "version": __version__}
            run = dataclasses.replace(run, info={**run.info, **info, "phase": phase, "loaded": []})
            found[i] = run
            if self.folder is not None and bool(reached(run)):
                save_checkpoint(self.folder, contents[i], run)
        like = [next(iter(found.values()))] * len(params) if shape is None else shape
        return [found[i] if i in found else _empty(like[i], phase) for i in range(len(params))]

    def trained(
        self,
        phase: str,
        problems: list[Problem],
        params: Sequence[Params | None],
        noise: list[UInt32[np.ndarray, " words"]],
        members: list[int],
    ) -> list[tuple[int, Trajectory]]:
        """Runs of the given members, together where nothing random keeps them apart; none where no time is left."""
        if not members:
            return []
        progress = self.progress
        together = self.many and all(isinstance(self.methods[i], DETERMINISTIC) for i in members)
        runs: list[tuple[int, Trajectory]] = []
        for group in [members] if together else [[i] for i in members]:
            left = None if self.deadline is None else self.deadline - time.monotonic()
            if left is not None and left <= 0 and phase != "before":
                break
            settings: dict[str, Any] = {
                "horizon": self.horizon,
                "every": self.every,
                "probes": self.probes,
                "until": self.rules,
                "max_steps": self.max_steps,
                "wall_limit": None if left is None else max(left, 1e-9),
                "progress": None if progress is None else lambda state: progress(phase, state),
            }
            starts = [start for i in group if (start := params[i]) is not None]
            if together:
                methods = [self.methods[i] for i in group]
                shared = methods[0] if all(m is methods[0] for m in methods) else methods
                many = ensemble([problems[i] for i in group], starts, shared, **settings)
                runs += list(zip(group, _shares(many), strict=True))
            else:
                run = simulate(problems[group[0]], starts[0], self.methods[group[0]], key=noise[group[0]], **settings)
                runs.append((group[0], run))
            if _interrupted([run for _, run in runs]):
                break
        return runs

    def content(self, problem: Problem, params: Params, method: AbstractMethod, noise: np.ndarray) -> str:
        """Hash of everything that determines a phase of one member, whatever it is called and whoever runs beside."""
        words = None if isinstance(method, DETERMINISTIC) else noise
        parts = {
            "problem": problem,
            "params": params,
            "method": method,
            "random": words,
            "rules": self.rules,
            "horizon": None if self.horizon is None else float(self.horizon),
            "every": self.every,
            "probes": self.probes,
            "version": __version__,
        }
        return content_hash(parts)


def _interrupted(runs: Iterable[Trajectory]) -> bool:
    return any(run.results == RESULTS.interrupted for run in runs)


# --- Arguments --------------------------------------------------------------------------------------------------------


def _checked_rule(threshold: float | None, horizon: float | None) -> tuple[str, tuple[Until, ...]]:
    """When a phase ends, in words and as rules."""
    if threshold is not None and horizon is not None:
        raise ValueError(
            "plasticity: give a threshold or a horizon, not both; to bound a run to a threshold use max_steps."
        )
    if horizon is not None:
        check_number("plasticity", "horizon", horizon, above=0)
        return f"fixed horizon {float(horizon):g}", ()
    value = THRESHOLD if threshold is None else threshold
    check_number("plasticity", "threshold", value, above=0)
    rule = until(loss, below=value)
    return rule.name, (rule,)


def _checked_data(
    model: AbstractModel, target: object, before: object, after: object
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ground truth and masks as arrays with two dimensions, or three with members."""
    truths = _stacked("target", target, model).astype(float)
    check_finite("plasticity", "target", truths)
    if not np.all(np.any(truths != 0, axis=(-2, -1))):
        raise ValueError("plasticity: target must not be zero, as errors are relative to it.")
    masks = []
    for name, value in (("before", before), ("after", after)):
        mask = _stacked(name, value, model)
        if not np.all(np.isin(mask, (0, 1))):
            raise ValueError(f"plasticity: {name} must hold only 0 and 1 (or False and True).")
        if not np.all(np.any(mask, axis=(-2, -1))):
            raise ValueError(f"plasticity: {name} must mark at least one entry as seen, but marks none.")
        masks.append(mask.astype(bool))
    seen, more = masks
    if seen.ndim == more.ndim == 2 or len({len(m) for m in masks if m.ndim == 3}) == 1:
        lost = np.argwhere(seen & ~more)
        if len(lost):
            where = f" of member {lost[0][0]}" if lost.shape[1] == 3 else ""
            entry = tuple(int(i) for i in lost[0][-2:])
            raise ValueError(
                f"plasticity: after must see everything that before does, but leaves out {len(lost)} entries, the "
                f"first at {entry}{where}; make it with np.logical_or(before, new)."
            )
    return truths, seen, more


def _stacked(name: str, value: object, model: AbstractModel) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"plasticity: {name} must be a matrix of real numbers, or one for each member, but is {value!r}."
        )
    free = (None,) if array.ndim == 3 else ()
    check_shape("plasticity", name, array, (*free, *model.product_shape))
    if len(array) == 0:
        raise ValueError(f"plasticity: {name} must have at least one member, but has none.")
    return array


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _several(name: str, value: Any, kind: type) -> list[Any]:
    items = list(value) if _is_list(value) else [value]
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"plasticity: {name} must be an {kind.__name__}, or a list of them, but is {value!r}.")
    if not items:
        raise ValueError(f"plasticity: {name} must not be an empty list.")
    return items


def _checked_keys(name: str, key: Any) -> UInt32[np.ndarray, "*members words"]:
    words = random.words(key)
    if words is None or words.ndim > 2 or 0 in words.shape:
        raise TypeError(
            f"plasticity: {name} must be a key such as jax.random.key(0), or one for each member, but is {key!r}."
        )
    return words


def _spread_keys(words: UInt32[np.ndarray, "..."], members: int | None) -> UInt32[np.ndarray, "members words"]:
    if words.ndim == 2:
        return words
    return words[None] if members is None else random.split(words, members)


# --- Trajectories of members ------------------------------------------------------------------------------------------


def _shares(many: Trajectory) -> list[Trajectory]:
    """Members of an ensemble, each with its share of the seconds: those of its steps."""
    runs = []
    for index in range(many.members):
        run = many.member(index)
        seconds = float(run.stats["seconds_per_step"]) * int(run.stats["accepted_steps"])
        runs.append(dataclasses.replace(run, stats={**run.stats, "seconds": seconds}))
    return runs


def _empty(like: Trajectory, phase: str) -> Trajectory:
    """A phase that did not begin, in the form of another one: one record of NaN, outcome `running`."""
    return dataclasses.replace(
        like,
        times=np.full(1, np.nan),
        values={name: np.full((1, *value.shape[1:]), np.nan) for name, value in like.values.items()},
        params=tuple(np.full_like(layer, np.nan) for layer in like.params),
        results=np.asarray(int(RESULTS.running)),
        fired=np.zeros_like(like.fired),
        lengths=np.asarray(1),
        stats={name: type(value)(0) for name, value in like.stats.items()},
        info={**like.info, "phase": phase, "loaded": []},
        state=tuple(np.zeros_like(leaf) for leaf in like.state),
    )


def _stack(runs: Sequence[Trajectory]) -> Trajectory:
    """Single runs as one ensemble, padded with NaN after the end of each."""
    first = runs[0]
    length = max(len(run.times) for run in runs)

    def padded(arrays: Sequence[np.ndarray]) -> np.ndarray:
        whole = np.full((len(arrays), length, *arrays[0].shape[1:]), np.nan)
        for row, array in zip(whole, arrays, strict=True):
            row[: len(array)] = array
        return whole

    together = {name: " | ".join(dict.fromkeys(run.info[name] for run in runs)) for name in ("problem", "method")}
    return Trajectory(
        times=padded([run.times for run in runs]),
        values={name: padded([run.values[name] for run in runs]) for name in first.values},
        dims=first.dims,
        params=tuple(np.stack(layers) for layers in zip(*(run.params for run in runs), strict=True)),
        results=np.stack([run.results for run in runs]),
        fired=np.stack([run.fired for run in runs]),
        rules=first.rules,
        lengths=np.stack([run.lengths for run in runs]),
        stats={name: np.array([run.stats[name] for run in runs]) for name in first.stats},
        info={**first.info, **together, "loaded": [i for run in runs for i in run.info["loaded"]]},
        state=tuple(np.stack(leaves) for leaves in zip(*(run.state for run in runs), strict=True)),
    )
