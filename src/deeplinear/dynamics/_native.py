"""Runs that the native engine moves: what it covers, and what comes back.

Numbers go in and numbers come out, without a program being compiled. The law of step control is that of `_flow`, the
integrators are those of `core`, the updates those of `_updates`; the same tests hold both engines to them.
"""

import functools
import importlib
from collections.abc import Sequence
from types import ModuleType

import jax
import numpy as np

import deeplinear.dynamics._flow as _flow
import deeplinear.engine as engine
from deeplinear.core import (
    AbstractIntegrator,
    Exponential,
    RungeKutta,
    Stabilised,
    Trajectory,
    as_numbers,
    unflatten,
)
from deeplinear.dynamics._assemble import assemble
from deeplinear.dynamics._base import AbstractMethod, AbstractUpdate, Snapshots
from deeplinear.dynamics._flow import GradientFlow, Switching
from deeplinear.dynamics._members import Recorder, observe_snapshots, padded_to, take
from deeplinear.dynamics._native_losses import refused_loss
from deeplinear.dynamics._native_run import Crew
from deeplinear.dynamics._native_spec import Handover, is_wide, weights_of
from deeplinear.dynamics._run import Run
from deeplinear.dynamics._stopping import Until
from deeplinear.models import DeepLinear, LinearRNN, Problem
from deeplinear.probes import AbstractProbe, gradient_norm, is_own, loss, values_of

MOST_RULES = 8
"""Stopping rules the engine looks at."""

MOST_DEPTH = 64
"""Layers the engine has room for."""

BLOCKS = (1, 8, 64)
"""Numbers of snapshots that are looked at together: few, as each is a program."""

BLOCKS_ON_CARD = (64, 4096)
"""The same where JAX computes on an accelerator."""

MANY = 64
"""Members from which probes are programs: their compilation costs less than thousands of snapshots, one by one."""


def takes_card(members: int) -> bool:
    """Whether a graphics card moves networks: JAX computes on one, and there are several of them."""
    return members > 1 and jax.default_backend() != "cpu"


def refusal(run: Run, members: int) -> str | None:
    """Why the engine cannot move a run, in a few words; `None` where it can."""
    reason = refused_run(run.problem, run.method, run.rules)
    return _card().refused_card(run) if reason is None and takes_card(members) else reason


def _card() -> ModuleType:
    """What graphics cards need, which most runs do without."""
    return importlib.import_module("deeplinear.dynamics._native_card")


def refused_run(problem: Problem, method: AbstractMethod, rules: tuple[Until, ...]) -> str | None:
    """Why the engine does not cover a run, wherever it is moved."""
    if (absent := engine.missing()) is not None:
        return absent
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        return "numbers have 32 bits"
    if type(problem.model) not in (DeepLinear, LinearRNN):
        return f"the model is {type(problem.model).__name__}"
    if len(problem.model.shapes) > MOST_DEPTH:
        return f"the network has more than {MOST_DEPTH} layers"
    if (other := refused_loss(problem) or _refused_method(problem, method)) is not None:
        return other
    if len(rules) > MOST_RULES:
        return f"there are more than {MOST_RULES} stopping rules"
    looks = [rule.probe.name for rule in rules if rule.probe is not loss and rule.probe is not gradient_norm]
    return f"a stopping rule looks at {looks[0]}" if looks else None


def _refused_method(problem: Problem, method: AbstractMethod) -> str | None:
    """Why the engine does not have a method, in a few words; `None` where it does."""
    if isinstance(method, AbstractUpdate):
        from deeplinear.dynamics._native_updates import refused_update

        return refused_update(method, problem.loss)
    if not isinstance(method, GradientFlow):
        return f"the method is {type(method).__name__}"
    if (other := _foreign(method.integrator)) is not None:
        return f"the integrator is {other}"
    if isinstance(method.integrator, Exponential) and weights_of(problem.model) > _flow.DENSE:
        return f"the exponential method has more than {_flow.DENSE} weights, whose matrices are for LAPACK"
    return None


def _foreign(integrator: AbstractIntegrator | Switching) -> str | None:
    """Name of an integrator that the engine does not have, the parts of an automatic choice included."""
    if not isinstance(integrator, Switching):
        return None if isinstance(integrator, RungeKutta | Stabilised | Exponential) else type(integrator).__name__
    kinds = ((integrator.explicit, RungeKutta), (integrator.stabilised, Stabilised), (integrator.dense, Exponential))
    wrong = [type(part).__name__ for part, kind in kinds if not isinstance(part, kind)]
    return f"a choice with {wrong[0]}" if wrong else None


def native_label(run: Run, members: int) -> str:
    """The engine in words, for the record of a run."""
    if takes_card(members):
        return _card().card_label(run)
    return f"native, lanes: {1 if is_wide(run.problem.model) else engine.lanes()}"


def move(
    run: Run, y: np.ndarray, t: np.ndarray, keys: np.ndarray, memory: Sequence[np.ndarray] | None, clock: float
) -> Trajectory:
    """Move all members to their ends.

    Args:
        run: What to run.
        y: Weights at the start, flattened, members first; moved in place.
        t: Time of each member at the start.
        keys: Random key of each member.
        memory: What an earlier run left, for a continuation.
        clock: When the run began.
    """
    times = run.schedule.times
    recorder = Recorder(len(y), len(times) + 2 if len(times) else 64, [probe.name for probe in run.probes])
    others = tuple(probe for probe in run.probes if probe is not loss and probe is not gradient_norm)
    order = ["loss" if probe is loss else "slope" if probe is gradient_norm else "" for probe in run.probes]
    plain = len(y) < MANY and all(map(is_own, others))
    observe = functools.partial(_observed_numbers if plain else _observed, run, others) if others else None
    if takes_card(len(y)):
        handover = _card().CardRun(engine.card(), run, y, t, memory)
        handover.move(recorder, observe, order)
    else:
        handover = Handover(run, y, t, keys, memory)
        Crew(handover, recorder, observe, order).move()
    return assemble(
        run.problem,
        run.method,
        run.probes,
        run.rules,
        recorder,
        y=handover.y,
        results=handover.column("result").copy(),
        fired=handover.column("rule").copy(),
        stats=handover.stats(),
        state=handover.state(),
        clock=clock,
    )


def _observed_numbers(
    run: Run, probes: tuple[AbstractProbe, ...], ids: np.ndarray, times: np.ndarray, states: np.ndarray
) -> list[np.ndarray]:
    """Values of probes on snapshots, one a row, by their formulas in NumPy."""
    problem, looks = as_numbers((run.problem, probes))
    shapes = problem.model.shapes
    rows = []
    for row, member in enumerate(ids):
        own = jax.tree.map(lambda leaf, member=member: leaf[member], problem) if run.batched[0] else problem
        rows.append(values_of(looks, times[row], unflatten(states[row], shapes), own))
    return [np.stack(column) for column in zip(*rows, strict=True)]


def _observed(
    run: Run, probes: tuple[AbstractProbe, ...], ids: np.ndarray, times: np.ndarray, states: np.ndarray
) -> list[np.ndarray]:
    """Values of probes on snapshots, one a row, in blocks of few sizes so that few shapes are compiled."""
    parts, vector = [], jax.default_backend() != "cpu"
    sizes = BLOCKS_ON_CARD if vector else BLOCKS
    for begin in range(0, len(ids), sizes[-1]):
        rows = np.arange(begin, min(begin + sizes[-1], len(ids)))
        size = next(size for size in sizes if len(rows) <= size)
        padded = padded_to(rows, size)
        problem = take(run.problem, ids[padded]) if run.batched[0] else run.problem
        shots = Snapshots(*jax.device_put((times[padded, None], states[padded, None], np.ones(size, int))))
        values = observe_snapshots(probes, problem, shots, run.batched[0], vector)
        parts.append([np.asarray(value)[: len(rows), 0] for value in values])
    return [np.concatenate(part) for part in zip(*parts, strict=True)]
