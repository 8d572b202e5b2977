"""A run as the native engine reads it: the law of step control, integrators, problems, states."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

import deeplinear.dynamics._flow as _flow
import deeplinear.engine as engine
from deeplinear.core import ROUNDING, Exponential, RungeKutta, Stabilised, stabilised_table, tableau
from deeplinear.dynamics._base import AbstractUpdate
from deeplinear.dynamics._flow import GradientFlow, Switching
from deeplinear.dynamics._native_losses import numbers_of
from deeplinear.dynamics._run import Run
from deeplinear.models import AbstractModel, DeepLinear, LinearRNN
from deeplinear.probes import gradient_norm

WIDE = 700
"""Weights above which a network is moved by itself: its own matrices fill the registers then."""

BLAS = 40.0**3
"""Multiplications from which a product of a wide network goes to BLAS. Below, calling it takes longer."""


def weights_of(model: AbstractModel) -> int:
    """Number of weights of a network."""
    return sum(rows * columns for rows, columns in model.shapes)


def is_wide(model: AbstractModel) -> bool:
    """Whether a network is moved by itself, and not one a lane."""
    return weights_of(model) > WIDE


@functools.cache
def law() -> engine.Law:
    """Numbers of the law of step control."""
    numbers = {
        "refresh": _flow.REFRESH,
        "strikes": _flow.STRIKES,
        "floor": _flow.FLOOR,
        "dense": _flow.DENSE,
        "back": _flow.RETURN,
        "instant": _flow.INSTANT,
        "crawl": _flow.CRAWL,
        "patience": _flow.PATIENCE,
        "retries": _flow.RETRIES,
        "affordable": _flow.AFFORDABLE,
        "margin": _flow.MARGIN,
        "noise": _flow.NOISE,
    }
    return engine.Law(*(float(numbers[name]) for name in engine.LAW))


@functools.cache
def _pair(integrator: RungeKutta, new_holder: Callable[[], engine.Holder]) -> tuple[engine.Pair, engine.Holder]:
    holder = new_holder()
    coefficients = tableau(integrator)
    lower, error = (holder.copy(array, float) for array in coefficients)
    return engine.Pair(len(coefficients.error), integrator.error_order, lower, error, integrator.stability), holder


@functools.cache
def _family(new_holder: Callable[[], engine.Holder]) -> tuple[engine.Family, engine.Holder]:
    holder = new_holder()
    rows = stabilised_table()
    weights = np.stack([rows.momentum, rows.slope, rows.solution, rows.error, *rows.force.T], axis=1)
    whole = [holder.copy(getattr(rows, name), np.int64) for name in ("stages", "first", "second", "offset")]
    real = [holder.copy(array, float) for array in (rows.interval, rows.mixing, weights)]
    return engine.Family(len(rows.stages), *whole, *real, ROUNDING), holder


class Memory(NamedTuple):
    """What a continuation of a flow needs of each member; members first."""

    h: np.ndarray
    rho: np.ndarray
    direction: np.ndarray
    age: np.ndarray
    stiff: np.ndarray
    strikes: np.ndarray
    error: np.ndarray
    accepted: np.ndarray
    rejected: np.ndarray
    stabilised: np.ndarray
    evaluations: np.ndarray


COUNTS = {
    "accepted_steps": "accepted",
    "rejected_steps": "rejected",
    "stabilised_steps": "stabilised",
    "gradient_evaluations": "evaluations",
}
"""Statistics of a run, and the columns that count them."""


class Handover:
    """A run that the engine moves: what it reads, and the states it writes.

    Args:
        run: What to run.
        y: Weights at the start, members first; moved in place.
        t: Time of each member at the start.
        keys: Random key of each member.
        memory: What an earlier run left, for a continuation.
        new_holder: Makes room for what is handed over.
    """

    def __init__(
        self,
        run: Run,
        y: np.ndarray,
        t: np.ndarray,
        keys: np.ndarray,
        memory: Sequence[np.ndarray] | None,
        new_holder: Callable[[], engine.Holder] = engine.Holder,
    ) -> None:
        members = len(y)
        self.run, self.y, self.members, self.new_holder, self.holder = run, y, members, new_holder, new_holder()
        self.real = np.zeros((members, len(engine.REALS)))
        self.whole = np.zeros((members, len(engine.WHOLES)), np.int64)
        self.real[:, 0] = t
        self.direction, self.moments = np.zeros((members, 0)), None
        if isinstance(run.method, AbstractUpdate):
            from deeplinear.dynamics._native_updates import Moments  # flows do without

            self.moments = Moments(run.method, members, run.problem.model.shapes, keys)
            if memory is not None:
                self.moments.read(memory)
                self.whole[:, engine.WHOLES.index("accepted")] = self.moments.accepted
        else:
            self.direction = np.zeros_like(y)
            if memory is not None:
                before = Memory(*memory)
                self.direction[:] = before.direction
                for columns, table in ((engine.REALS, self.real), (engine.WHOLES, self.whole)):
                    for column, label in enumerate(columns):
                        if label in Memory._fields:
                            table[:, column] = getattr(before, label)
        self.before = {name: self.column(name).copy() for name in COUNTS.values()}
        self.stop = np.zeros(1, np.int32)
        self.resumed = memory is not None

    def column(self, name: str) -> np.ndarray:
        """Numbers of all members by their name."""
        if name in engine.REALS:
            return self.real[:, engine.REALS.index(name)]
        return self.whole[:, engine.WHOLES.index(name)]

    def spec(self, keeps: bool) -> engine.Spec:
        """The run as the engine reads it; `keeps` says whether records hold the weights."""
        run, holder, spec = self.run, self.holder, engine.Spec()
        self._describe_problem(spec)
        if isinstance(run.method, GradientFlow):
            self._describe_flow(spec, run.method)
        else:
            assert self.moments is not None
            spec.update = self.moments.update(run.problem, run.batched, holder)
        spec.rules = len(run.rules)
        spec.rule_kind = holder.copy([int(rule.probe is gradient_norm) for rule in run.rules] or [0], np.int32)
        spec.rule_below = holder.copy([int(rule.below) for rule in run.rules] or [0], np.int32)
        spec.threshold = holder.copy([float(rule.threshold) for rule in run.rules] or [0.0], float)
        times, spec.every, spec.horizon = run.schedule
        spec.listed, spec.times = len(times), holder.copy(times if len(times) else [0.0], float)
        spec.max_steps = run.max_steps + int(self.before["accepted"].max())
        spec.opens, spec.resumed, spec.first, spec.keeps = run.opens, self.resumed, run.first, keeps
        self.point_states(spec)
        spec.wide, spec.least = is_wide(run.problem.model), BLAS
        spec.dgemm = engine.dgemm() if spec.wide else None
        spec.stop = holder.point(self.stop)
        return spec

    def point_states(self, spec: engine.Spec) -> None:
        """Hand over where members stand; the engine writes there where they end."""
        for name in ("y", "direction", "real", "whole"):
            setattr(spec, name, self.holder.point(getattr(self, name)))

    def _describe_problem(self, spec: engine.Spec) -> None:
        problem, holder, batched = self.run.problem, self.holder, self.run.batched[0]
        model = problem.model
        if isinstance(model, LinearRNN):
            spec.form, spec.depth = engine.FORMS.index(model.form), len(model.shapes)
            spec.widths = holder.copy((model.states, model.length, model.inputs, model.outputs), np.int32)
        else:
            assert isinstance(model, DeepLinear)
            spec.depth, spec.widths = model.depth, holder.copy(model.widths, np.int32)
        spec.members = self.members
        numbers = numbers_of(problem.loss, batched)
        spec.loss = numbers.kind
        offset = np.zeros(self.members if batched else ())
        for name, array in ({"offset": offset, "l2": np.asarray(problem.l2)} | numbers.arrays).items():
            array = self.filled_up(name, np.asarray(array))
            setattr(spec, name, holder.copy(array, float))
            setattr(spec, f"{name}_step", array.size // self.members if batched else 0)

    def filled_up(self, name: str, array: np.ndarray) -> np.ndarray:
        """Numbers of the loss, as the engine wants their matrices."""
        return array

    def _describe_flow(self, spec: engine.Spec, method: GradientFlow) -> None:
        spec.rtol, spec.atol = (self.holder.copy(x, float) for x in (method.rtol, method.atol))
        spec.tolerance_step = int(self.run.batched[1])
        explicit = integrator = method.integrator
        if isinstance(integrator, Switching):
            explicit = integrator.explicit
        else:
            spec.policy = 1 + (RungeKutta, Stabilised, Exponential).index(type(integrator))
        explicit = explicit if isinstance(explicit, RungeKutta) else _flow.default_pair(0.1)
        spec.pair, spec.family = _pair(explicit, self.new_holder)[0], _family(self.new_holder)[0]
        spec.law = law()

    def state(self) -> tuple[np.ndarray, ...]:
        """What a continuation needs, in the order in which programs of XLA keep it."""
        if self.moments is not None:
            self.moments.accepted[:] = self.column("accepted")
            return tuple(self.moments.leaves())
        found = {name: self.column(name) for name in Memory._fields if name != "direction"}
        found |= {"direction": self.direction, "stiff": found["stiff"].astype(bool)}
        return tuple(found[name] for name in Memory._fields)

    def stats(self) -> dict[str, np.ndarray]:
        """What was counted since the start."""
        counts = {name: self.column(column) - self.before[column] for name, column in COUNTS.items()}
        if self.moments is not None:
            return {"accepted_steps": counts["accepted_steps"]}
        evaluations = counts.pop("gradient_evaluations")
        return {**counts, "step_size": self.column("h"), "gradient_evaluations": evaluations}
