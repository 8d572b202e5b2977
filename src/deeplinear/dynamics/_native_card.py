"""Flows that a graphics card moves: one launch moves all networks for a while, records stay there until the end."""

import time
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

import deeplinear.dynamics._flow as _flow
import deeplinear.engine as engine
from deeplinear.core import RESULTS, AbstractIntegrator, RungeKutta, Stabilised, tableau
from deeplinear.dynamics._base import Progress
from deeplinear.dynamics._flow import GradientFlow, Switching
from deeplinear.dynamics._members import Recorder
from deeplinear.dynamics._native_losses import numbers_of
from deeplinear.dynamics._native_run import Observe
from deeplinear.dynamics._native_spec import Handover
from deeplinear.dynamics._run import Run
from deeplinear.models import DeepLinear, Problem

SLICE = 0.1
"""Seconds of a launch: between two of them Python looks at the clock and at interrupts."""

MOST_DEPTH = 6
"""Layers of a network on a graphics card."""


@runtime_checkable
class Machine(Protocol):
    """What moves networks: a graphics card, or what stands for one."""

    def holder(self) -> engine.Holder:
        """Room for arrays."""
        ...

    def upload(self, address: int, array: np.ndarray) -> None:
        """Copy an array to where the machine reads it."""
        ...

    def download(self, address: int, array: np.ndarray) -> None:
        """Copy what the machine wrote."""
        ...

    def launch(self, shape: engine.Shape, spec: engine.Spec, launch: engine.Launch) -> None:
        """Move networks until all have ended or the time is up."""
        ...


def _explicit(integrator: AbstractIntegrator | Switching) -> RungeKutta:
    """The pair that moves a flow where it is not stiff."""
    part = integrator.explicit if isinstance(integrator, Switching) else integrator
    return part if isinstance(part, RungeKutta) else _flow.default_pair(0.1)


def shape_of(problem: Problem, method: GradientFlow, batched: bool) -> engine.Shape:
    """What the kernel is compiled for."""
    assert isinstance(problem.model, DeepLinear)
    stages = len(tableau(_explicit(method.integrator)).error)
    return engine.shape_of(problem.model.widths, numbers_of(problem.loss, batched).kind, stages)


def refused_card(run: Run) -> str | None:
    """Why a graphics card cannot move a run that the engine covers, in a few words; `None` where it can."""
    reason = engine.no_card() or refused_by_kernel(run)
    return reason and f"{reason}, on a graphics card"


def refused_by_kernel(run: Run) -> str | None:
    """Why the kernel does not cover a run."""
    problem, method = run.problem, run.method
    if not isinstance(problem.model, DeepLinear):
        return f"the model is {type(problem.model).__name__}"
    if not isinstance(method, GradientFlow):
        return f"the method is {type(method).__name__}"
    if not isinstance(method.integrator, Switching | RungeKutta | Stabilised):
        return f"the integrator is {type(method.integrator).__name__}"
    if problem.model.depth > MOST_DEPTH:
        return f"the network has more than {MOST_DEPTH} layers"
    if run.schedule.every:
        return "every so many steps are recorded"
    if shape_of(problem, method, run.batched[0]).shared_bytes > engine.MOST_SHARED:
        return "the matrices of a network are too large for the memory of a block"
    return None


class CardRun(Handover):
    """A run that a graphics card moves. Arguments as for `Handover`, and the machine."""

    def __init__(
        self, machine: Machine, run: Run, y: np.ndarray, t: np.ndarray, memory: Sequence[np.ndarray] | None
    ) -> None:
        super().__init__(run, y, t, np.zeros((len(y), 2), np.uint32), memory, machine.holder)
        assert isinstance(run.method, GradientFlow) and isinstance(run.problem.model, DeepLinear)
        self.machine = machine
        self.shape = shape_of(run.problem, run.method, run.batched[0])
        widths = run.problem.model.widths
        self.places = None if widths == self.shape.widths else _places(widths, self.shape.widths)

    def filled_up(self, name: str, array: np.ndarray) -> np.ndarray:
        """Matrices of the loss, with zeros where widths are filled up."""
        rows, columns = self.shape.widths[-1], self.shape.widths[0]
        wanted = {"target": (rows, columns), "mask": (rows, columns), "solution": (rows, columns)}
        wanted["sxx"] = (columns, columns)
        if name not in wanted or array.shape[-2:] == wanted[name]:
            return array
        out = np.zeros((*array.shape[:-2], *wanted[name]))
        out[..., : array.shape[-2], : array.shape[-1]] = array
        return out

    def _wide(self, weights: np.ndarray) -> np.ndarray:
        """Weights with zeros where widths are filled up."""
        if self.places is None:
            return weights
        out = np.zeros((len(weights), self.shape.weights))
        out[:, self.places] = weights
        return out

    def _narrow(self, address: int, weights: np.ndarray) -> None:
        """Take weights back from the machine."""
        wide = weights if self.places is None else np.empty((len(weights), self.shape.weights))
        self.machine.download(address, wide)
        if self.places is not None:
            weights[:] = wide[:, self.places]

    def point_states(self, spec: engine.Spec) -> None:
        """Hand over where members stand."""
        size = 8 * self.members * self.shape.weights
        spec.y = self.holder.point(self._wide(self.y))
        spec.direction = self.holder.point(self._wide(self.direction)) if self.resumed else self.holder.room(size)
        spec.real, spec.whole = self.holder.point(self.real), self.holder.point(self.whole)

    def move(self, recorder: Recorder, observe: Observe | None, order: Sequence[str]) -> None:
        """Move all members to their ends. An interrupt ends the run and keeps what there is."""
        spec, machine, holder = self.spec(observe is not None), self.machine, self.holder
        members, listed, size = self.members, len(self.run.schedule.times), self.shape.weights
        spec.law.dense = 0.0  # no dense linear algebra there
        kept: dict[str, np.ndarray] = {"losses": np.zeros((members, listed)), "slopes": np.zeros((members, listed))}
        kept["states"] = np.zeros((members, listed if observe is not None else 0, size))
        launch, queue = engine.Launch(), np.zeros(1, np.int32)
        launch.f = holder.room(8 * members * size)
        launch.saved = holder.room(members * self.shape.control_bytes, zeros=True)
        for name, array in kept.items():
            setattr(launch, name, holder.room(array.nbytes))
        launch.queue, launch.slice = holder.point(queue), int(SLICE * 1e9)
        limit = None

        def launched() -> None:
            queue[:] = 0
            machine.upload(launch.queue, queue)
            machine.launch(self.shape, spec, launch)
            machine.download(spec.whole, self.whole)
            machine.download(spec.real, self.real)

        try:
            limit = self._limit()
            while limit is None:
                launched()
                if not np.any(self.column("result") == RESULTS.running):
                    break
                limit = self._limit()
        except KeyboardInterrupt:
            limit = RESULTS.interrupted
        if limit is not None:
            launch.begins = 1  # so that all have a loss to tell
            launched()
        self._narrow(spec.y, self.y)
        self._narrow(spec.direction, self.direction)
        for name, array in kept.items():
            machine.download(getattr(launch, name), array)
        if limit is not None:
            result = self.column("result")
            result[result == RESULTS.running] = int(limit)
        self._record(recorder, observe, order, **kept)
        self._tell()

    def _limit(self) -> RESULTS | None:
        """Say how far all members are; the limit that ends everything now, if any."""
        self._tell()
        return RESULTS.wall_limit if time.monotonic() > self.run.deadline else None

    def _tell(self) -> None:
        if (progress := self.run.progress) is None:
            return
        t, horizon = self.column("t"), self.run.schedule.horizon
        ended = self.column("result") != RESULTS.running
        done = np.where(ended, 1.0, np.clip(t / (horizon or 1.0), 0, 1))
        progress(
            Progress(len(t), int(ended.sum()), int(self.column("accepted").sum()), float(t.min()), float(done.mean()))
        )

    def _record(
        self,
        recorder: Recorder,
        observe: Observe | None,
        order: Sequence[str],
        states: np.ndarray,
        losses: np.ndarray,
        slopes: np.ndarray,
    ) -> None:
        """Hand all records to the recorder: those at listed times, then the ends between them."""
        times = self.run.schedule.times
        t, loss, slope = self.column("t"), self.column("loss"), self.column("slope")
        steady = (self.column("result") == RESULTS.steady)[:, None]
        reached = (np.arange(len(times)) >= self.run.first) & (times <= t[:, None])
        rests = steady & (times > t[:, None])  # members that do not move any more
        ids, columns = np.nonzero(reached | rests)
        still = rests[ids, columns]
        at = times[columns] if len(times) else np.zeros(0)
        values = {
            "loss": np.where(still, loss[ids], losses[ids, columns]),
            "slope": np.where(still, slope[ids], slopes[ids, columns]),
        }
        weights = np.zeros((0, self.y.shape[1]))
        if observe is not None and len(ids):
            weights = states[ids, columns]
            weights = weights if self.places is None else weights[:, self.places]
            weights[still] = self.y[ids[still]]
        self._scatter(recorder, observe, order, ids, at, values, weights)
        t[:] = np.where(steady[:, 0] & rests.any(axis=1), times[-1] if len(times) else 0.0, t)
        last = recorder.times[np.arange(len(t)), np.maximum(recorder.lengths - 1, 0)]
        ends = np.nonzero((recorder.lengths == 0) | (last != t))[0]
        own = {"loss": loss[ends], "slope": slope[ends]}
        self._scatter(recorder, observe, order, ends, t[ends], own, weights if observe is None else self.y[ends])

    def _scatter(
        self,
        recorder: Recorder,
        observe: Observe | None,
        order: Sequence[str],
        ids: np.ndarray,
        times: np.ndarray,
        own: dict[str, np.ndarray],
        weights: np.ndarray,
    ) -> None:
        if not len(ids):
            return
        values = iter(observe(ids, times, weights) if observe is not None else ())
        recorder.scatter(ids, times, [own[name] if name in own else next(values) for name in order])


def _places(widths: tuple[int, ...], padded: tuple[int, ...]) -> np.ndarray:
    """Where the weights of a network are among those of one whose widths are filled up."""
    places, begin = [], 0
    for rows, columns, high, wide in zip(widths[1:], widths[:-1], padded[1:], padded[:-1], strict=True):
        places.append(begin + (np.arange(rows)[:, None] * wide + np.arange(columns)).ravel())
        begin += high * wide
    return np.concatenate(places)


def card_label(run: Run) -> str:
    """The engine in words, for the record of a run."""
    assert isinstance(run.method, GradientFlow)
    threads = shape_of(run.problem, run.method, run.batched[0]).group
    return f"native, on the graphics card, threads to a network: {threads}"
