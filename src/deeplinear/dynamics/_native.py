"""Flows moved by the native engine: what it covers, how a run is handed over, and what comes back.

Numbers go in and numbers come out, without a program being compiled. The law of step control is that of `_flow`, the
integrators are those of `core`; the same tests hold both engines to them.
"""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

import deeplinear.dynamics._flow as _flow
import deeplinear.engine as engine
from deeplinear.core import (
    RESULTS,
    ROUNDING,
    AbstractIntegrator,
    Exponential,
    RungeKutta,
    Stabilised,
    Trajectory,
    as_numbers,
    processors,
    stabilised_table,
    tableau,
    unflatten,
)
from deeplinear.dynamics._assemble import assemble
from deeplinear.dynamics._base import AbstractMethod, Progress, Snapshots
from deeplinear.dynamics._flow import GradientFlow, Switching
from deeplinear.dynamics._members import Recorder, observe_snapshots, padded_to, take
from deeplinear.dynamics._native_updates import Memory as Updated, kind_of, rates_of, remembered, state_of
from deeplinear.dynamics._run import Run
from deeplinear.dynamics._stopping import Until
from deeplinear.models import (
    AbstractModel,
    Completion,
    DeepLinear,
    EntryCompletion,
    LinearRNN,
    Problem,
    Regression,
    SampleRegression,
    SquaredDistance,
)
from deeplinear.probes import AbstractProbe, gradient_norm, is_own, loss, values_of

WIDE = 700
"""Weights above which a network is moved by itself: its own matrices fill the registers then."""

BLAS = 40.0**3
"""Multiplications from which a product of a wide network goes to BLAS. Below, calling it takes longer."""

MOST_RULES = 8
"""Stopping rules the engine looks at."""

FORMS = ("deep", "general", "symmetric", "upper", "diagonal", "tied")
"""Networks the engine knows: deep ones, and recurrent ones by the form of their transition matrix."""

MOST_DEPTH = 64
"""Layers the engine has room for."""

SLICE = 0.05
"""Seconds between two looks at the clock and at interrupts."""

WINDOW_BYTES = 16_000_000
"""Memory for the snapshots of one worker."""

BLOCK = 64
"""Snapshots that are looked at together."""

MOST_ENTRIES = 4_000_000
"""Entries of a matrix above which a list of observations is not made a mask, nor samples a covariance."""


def refusal(problem: Problem, method: AbstractMethod, rules: tuple[Until, ...]) -> str | None:
    """Why the engine cannot move this run, in a few words; `None` where it can."""
    if (absent := engine.missing()) is not None:
        return absent
    if jax.default_backend() != "cpu":
        return "arrays lie on an accelerator"
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        return "numbers have 32 bits"
    if type(problem.model) not in (DeepLinear, LinearRNN):
        return f"the model is {type(problem.model).__name__}"
    if len(problem.model.shapes) > MOST_DEPTH:
        return f"the network has more than {MOST_DEPTH} layers"
    kind = type(problem.loss)
    if kind not in _NUMBERS:
        return f"the loss is {kind.__name__}"
    if isinstance(problem.loss, EntryCompletion) and np.prod(problem.loss.shape) > MOST_ENTRIES:
        return "the list of observations is of a matrix too large for a mask"
    if kind is SampleRegression and problem.model.product_shape[1] ** 2 > MOST_ENTRIES:
        return "the samples have too many inputs for a covariance"
    if not isinstance(method, GradientFlow) and kind_of(method) is None:
        return f"the method is {type(method).__name__}"
    if isinstance(method, GradientFlow):
        if (other := _foreign(method.integrator)) is not None:
            return f"the integrator is {other}"
        if isinstance(method.integrator, Exponential) and weights_of(problem.model) > _flow.DENSE:
            return f"the exponential method has more than {_flow.DENSE} weights, whose matrices are for LAPACK"
    if len(rules) > MOST_RULES:
        return f"there are more than {MOST_RULES} stopping rules"
    other = [rule.probe.name for rule in rules if rule.probe is not loss and rule.probe is not gradient_norm]
    return f"a stopping rule looks at {other[0]}" if other else None


def weights_of(model: AbstractModel) -> int:
    """Number of weights of a network."""
    return sum(rows * columns for rows, columns in model.shapes)


def _network(model: AbstractModel) -> tuple[int, tuple[int, ...]]:
    """The form of a network and its sizes, as the engine reads them."""
    if isinstance(model, LinearRNN):
        return FORMS.index(model.form), (model.inputs, model.states, model.outputs, model.length)
    assert isinstance(model, DeepLinear)
    return 0, model.widths


def _foreign(integrator: AbstractIntegrator | Switching) -> str | None:
    """Name of an integrator that the engine does not have, the parts of an automatic choice included."""
    if not isinstance(integrator, Switching):
        return None if isinstance(integrator, RungeKutta | Stabilised | Exponential) else type(integrator).__name__
    kinds = ((integrator.explicit, RungeKutta), (integrator.stabilised, Stabilised), (integrator.dense, Exponential))
    wrong = [type(part).__name__ for part, kind in kinds if not isinstance(part, kind)]
    return f"a choice with {wrong[0]}" if wrong else None


# --- Numbers of losses ------------------------------------------------------------------------------------------------


class Numbers(NamedTuple):
    """Numbers of a loss: its kind for the engine, and its arrays by name, without or with a leading member axis."""

    kind: int
    arrays: dict[str, np.ndarray]


def _of_distance(loss: SquaredDistance, batched: bool) -> Numbers:
    return Numbers(0, {"target": np.asarray(loss.target)})


def _of_regression(loss: Regression, batched: bool) -> Numbers:
    sxx, syx, solution = (np.asarray(array) for array in (loss.sxx, loss.syx, loss.solution))
    offset = np.zeros_like(np.asarray(loss.offset)) if loss.reduced else np.asarray(loss.offset)
    return Numbers(1, {"target": syx, "sxx": sxx, "solution": solution, "offset": offset})


def _of_samples(loss: SampleRegression, batched: bool) -> Numbers:
    x, y = np.asarray(loss.inputs), np.asarray(loss.outputs)
    samples = x.shape[-1]
    solution = y @ np.linalg.pinv(x)
    rest = y - solution @ x
    offset = 0.5 * np.sum(rest**2, axis=(-2, -1)) / samples
    turned = np.swapaxes(x, -1, -2)
    return Numbers(
        1, {"target": y @ turned / samples, "sxx": x @ turned / samples, "solution": solution, "offset": offset}
    )


def _of_completion(loss: Completion, batched: bool) -> Numbers:
    return Numbers(2, {"target": np.asarray(loss.target), "mask": np.asarray(loss.mask)})


def _of_entries(loss: EntryCompletion, batched: bool) -> Numbers:
    rows, columns, values = (np.asarray(array) for array in (loss.rows, loss.columns, loss.values))
    target, mask = (np.zeros((*values.shape[:-1], *loss.extent)) for _ in range(2))
    place = (np.arange(len(values))[:, None], rows, columns) if batched else (rows, columns)
    target[place], mask[place] = values, 1.0
    return Numbers(2, {"target": target, "mask": mask})


_NUMBERS: dict[type, Callable[[Any, bool], Numbers]] = {
    SquaredDistance: _of_distance,
    Regression: _of_regression,
    SampleRegression: _of_samples,
    Completion: _of_completion,
    EntryCompletion: _of_entries,
}


# --- Handing over -----------------------------------------------------------------------------------------------------


@functools.cache
def _law() -> engine.Law:
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
def _pair(integrator: RungeKutta) -> tuple[engine.Pair, engine.Holder]:
    holder = engine.Holder()
    coefficients = tableau(integrator)
    lower, error = (holder.copy(array, float) for array in coefficients)
    return engine.Pair(len(coefficients.error), integrator.error_order, lower, error, integrator.stability), holder


@functools.cache
def _family() -> tuple[engine.Family, engine.Holder]:
    holder = engine.Holder()
    rows = stabilised_table()
    weights = np.stack([rows.momentum, rows.slope, rows.solution, rows.error, *rows.force.T], axis=1)
    whole = [holder.copy(getattr(rows, name), np.int64) for name in ("stages", "first", "second", "offset")]
    real = [holder.copy(array, float) for array in (rows.interval, rows.mixing, weights)]
    return engine.Family(len(rows.stages), *whole, *real, ROUNDING), holder


class Memory(NamedTuple):
    """What a continuation needs of each member; members first."""

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


class Outcome(NamedTuple):
    """Where all members ended."""

    y: np.ndarray
    results: np.ndarray
    rule: np.ndarray
    memory: Memory | Updated


class Native:
    """A run that the engine moves."""

    def __init__(self, run: Run) -> None:
        self.asked, self.problem, self.method, self.batched, self.rules = (
            run,
            run.problem,
            run.method,
            run.batched,
            run.rules,
        )
        self.times, self.every, self.horizon = run.schedule
        self.size = weights_of(run.problem.model)
        self.wide = self.size > WIDE
        self.stop = np.zeros(1, np.int32)
        self.counter = np.zeros(1, np.int64)
        self.lock = threading.Lock()

    def _integrator(self, spec: engine.Spec, method: GradientFlow, holder: engine.Holder) -> None:
        """Tolerances, integrators and the law of their steps."""
        spec.rtol, spec.atol = (holder.copy(x, float) for x in (method.rtol, method.atol))
        spec.tolerance_step = int(self.batched[1])
        integrator = explicit = method.integrator
        if isinstance(integrator, Switching):
            assert isinstance(integrator.explicit, RungeKutta)
            spec.policy, explicit = 0, integrator.explicit
        else:
            spec.policy = 1 + (RungeKutta, Stabilised, Exponential).index(type(integrator))
        pair, kept = _pair(explicit if isinstance(explicit, RungeKutta) else _flow.default_pair(0.1))
        holder.kept.append(kept)
        spec.pair, spec.family, spec.law = pair, _family()[0], _law()

    def spec(
        self, y: np.ndarray, t: np.ndarray, keeps: bool, memory: Memory | Updated | None, holder: engine.Holder
    ) -> engine.Spec:
        """The run as the engine reads it. `y` and the arrays of the state are read and written."""
        spec, members = engine.Spec(), len(y)
        model = self.problem.model
        spec.form, widths = _network(model)
        areas = [rows * columns for rows, columns in model.shapes]
        spec.depth, spec.areas, spec.widths = len(areas), holder.copy(areas, np.int32), holder.copy(widths, np.int32)
        spec.members = members
        numbers = _NUMBERS[type(self.problem.loss)](self.problem.loss, self.batched[0])
        spec.loss = numbers.kind
        arrays = {
            "offset": np.zeros(members if self.batched[0] else ()),
            "l2": np.asarray(self.problem.l2),
        } | numbers.arrays
        for name, array in arrays.items():
            setattr(spec, name, holder.copy(array, float))
            setattr(spec, f"{name}_step", array.size // members if self.batched[0] else 0)
        if isinstance(self.method, GradientFlow):
            self._integrator(spec, self.method, holder)
        elif isinstance(memory, Updated):
            kind, rates = kind_of(self.method), rates_of(self.method)
            assert kind is not None
            spec.update, spec.rates = kind.number, holder.copy(rates, float)
            spec.rates_step = rates.shape[-1] if self.batched[1] else 0
            spec.inner = holder.point(memory.inner)
        spec.rules = len(self.rules)
        spec.rule_kind = holder.copy([int(rule.probe is gradient_norm) for rule in self.rules] or [0], np.int32)
        spec.rule_below = holder.copy([int(rule.below) for rule in self.rules] or [0], np.int32)
        spec.threshold = holder.copy([float(rule.threshold) for rule in self.rules] or [0.0], float)
        spec.listed, spec.times = len(self.times), holder.copy(self.times if len(self.times) else [0.0], float)
        spec.every, spec.horizon, spec.max_steps = self.every, self.horizon, self.asked.max_steps
        spec.opens, spec.resumed, spec.first = self.asked.opens, memory is not None, self.asked.first
        spec.wide, spec.keeps = self.wide, keeps
        real, whole = np.zeros((members, len(engine.REALS))), np.zeros((members, len(engine.WHOLES)), np.int64)
        real[:, 0] = t
        direction = np.zeros_like(y)
        if isinstance(memory, Updated):
            whole[:, engine.WHOLES.index("accepted")] = memory.accepted
        elif memory is not None:
            direction[:] = memory.direction
            for columns, table in ((engine.REALS, real), (engine.WHOLES, whole)):
                for column, label in enumerate(columns):
                    if label in Memory._fields:
                        table[:, column] = getattr(memory, label)
        self.real, self.whole, self.direction, self.y = real, whole, direction, y
        spec.y, spec.direction = holder.point(y), holder.point(direction)
        spec.real, spec.whole = holder.point(real), holder.point(whole)
        spec.dgemm = engine.dgemm() if self.wide else None
        spec.least = BLAS
        spec.stop = holder.point(self.stop)
        return spec

    def run(
        self,
        y: np.ndarray,
        t: np.ndarray,
        memory: Memory | Updated | None,
        recorder: Recorder,
        observe: Callable[[np.ndarray, np.ndarray, np.ndarray], Sequence[np.ndarray]] | None,
        order: Sequence[str],
    ) -> Outcome:
        """Move all members to their ends.

        Args:
            y: Weights, members first; moved in place.
            t: Time of each member at the start.
            memory: What an earlier run left, for a continuation.
            recorder: Where records go.
            observe: Values of probes on snapshots, from members, times and weights, or `None` if none is needed.
            order: What goes to the recorder: "loss", "slope", or "" for the next value that `observe` gives.
        """
        members = len(y)
        holder = engine.Holder()
        spec = self.spec(y, t, observe is not None, memory, holder)
        lanes = 1 if self.wide else engine.lanes()
        workers = max(1, min(processors(), -(-members // lanes)))
        room = int(np.clip(WINDOW_BYTES // (8 * self.size), 64, 4096)) if observe is not None else 4096
        room = min(room, 64) if members == 1 and observe is not None else room
        crew = [
            (engine.Worker(spec, self.counter), engine.Records(room, self.size, observe is not None))
            for _ in range(workers)
        ]

        def drain(records: engine.Records) -> None:
            filled = records.filled
            if filled:
                ids, times = records.member[:filled], records.time[:filled]
                with self.lock:
                    own = {"loss": records.loss[:filled], "slope": records.slope[:filled]}
                    values = iter(observe(ids, times, records.states[:filled]) if observe is not None else ())
                    recorder.scatter(ids, times, [own[name] if name in own else next(values) for name in order])
            records.clear()

        def turn(worker: engine.Worker, records: engine.Records) -> bool:
            """One slice of work; whether there is more."""
            status = worker.advance(records, SLICE)
            drain(records)
            return status in (engine.WORKING, engine.FULL)

        def look() -> None:
            if time.monotonic() > self.asked.deadline:
                self.stop[0] = int(RESULTS.wall_limit)
            if self.asked.progress is not None:
                self.asked.progress(self.state(members))

        try:
            look()
            if self.stop[0]:
                pass
            elif workers == 1 and not self.wide:
                while turn(*crew[0]):
                    look()
                    if self.stop[0]:
                        break
            else:
                self._together(crew, turn, look)
        except KeyboardInterrupt:
            self.stop[0] = int(RESULTS.interrupted)
        if limit := int(self.stop[0]):
            self.stop[0] = 0
            for worker, records in crew:
                while worker.end(records, limit) == engine.FULL:
                    drain(records)
                drain(records)
        if self.asked.progress is not None:
            self.asked.progress(self.state(members))
        columns = {name: self.real[:, i] for i, name in enumerate(engine.REALS)}
        columns |= {name: self.whole[:, i] for i, name in enumerate(engine.WHOLES)}
        columns |= {"direction": self.direction, "stiff": columns["stiff"].astype(bool)}
        if isinstance(memory, Updated):
            after: Memory | Updated = memory._replace(accepted=columns["accepted"])
        else:
            after = Memory(*(columns[name] for name in Memory._fields))
        return Outcome(y, columns["result"].copy(), columns["rule"].copy(), after)

    def _together(self, crew: list[Any], turn: Callable[..., bool], look: Callable[[], None]) -> None:
        """All workers on threads of their own, while this one looks at the clock."""

        def work(pair: Any) -> None:
            while not self.stop[0] and turn(*pair):
                pass

        with ThreadPoolExecutor(len(crew)) as pool:
            futures = [pool.submit(work, pair) for pair in crew]
            try:
                waiting = set(futures)
                while waiting:
                    waiting = {future for future in waiting if not future.done()}
                    if waiting:
                        _wait(waiting, SLICE)
                        look()
                for future in futures:
                    future.result()
            except BaseException:
                self.stop[0] = int(RESULTS.interrupted)
                raise

    def state(self, members: int) -> Progress:
        """How far all members are."""
        columns = {name: self.whole[:, i] for i, name in enumerate(engine.WHOLES)}
        t = self.real[:, 0]
        ended = columns["result"] != RESULTS.running
        done = np.where(ended, 1.0, np.clip(t / (self.horizon or 1.0), 0, 1))
        return Progress(members, int(ended.sum()), int(columns["accepted"].sum()), float(t.min()), float(done.mean()))


def _wait(futures: set[Any], seconds: float) -> None:
    from concurrent.futures import FIRST_COMPLETED, wait

    wait(futures, timeout=seconds, return_when=FIRST_COMPLETED)


def native_label(run: Run) -> str:
    """The engine in words, for the record of a run."""
    return f"native, lanes: {1 if weights_of(run.problem.model) > WIDE else engine.lanes()}"


def move(run: Run, y: np.ndarray, t: np.ndarray, memory: Sequence[np.ndarray] | None, clock: float) -> Trajectory:
    """Move all members to their ends.

    Args:
        run: What to run.
        y: Weights at the start, flattened, members first.
        t: Time of each member at the start.
        memory: What an earlier run left, for a continuation.
        clock: When the run began.
    """
    times = run.schedule.times
    recorder = Recorder(len(y), len(times) + 2 if len(times) else 64, [probe.name for probe in run.probes])
    others = tuple(probe for probe in run.probes if probe is not loss and probe is not gradient_norm)
    order = ["loss" if probe is loss else "slope" if probe is gradient_norm else "" for probe in run.probes]
    plain = len(y) < MANY and all(map(is_own, others))
    observe = functools.partial(_observed_numbers if plain else _observed, run, others) if others else None
    flow = isinstance(run.method, GradientFlow)
    if not flow:
        before: Memory | Updated | None = remembered(run.method, len(y), y.shape[1], memory)
    else:
        before = Memory(*memory) if memory is not None else None
    taken = 0 if before is None else before.accepted
    run = dataclasses.replace(run, max_steps=run.max_steps + int(np.max(taken)))
    after = (outcome := Native(run).run(y.copy(), t, before, recorder, observe, order)).memory
    if isinstance(after, Updated):
        stats: dict[str, Any] = {"accepted_steps": after.accepted - taken}
        state = state_of(run.method, after, run.problem.model.shapes)
    else:
        names = ("accepted", "rejected", "stabilised", "evaluations")
        new = {name: getattr(after, name) - (0 if before is None else getattr(before, name)) for name in names}
        stats = {f"{name}_steps": new[name] for name in names[:3]}
        stats |= {"step_size": after.h, "gradient_evaluations": new["evaluations"]}
        state = tuple(after)
    return assemble(
        run.problem,
        run.method,
        run.probes,
        run.rules,
        recorder,
        y=outcome.y,
        results=outcome.results,
        fired=outcome.rule,
        stats=stats,
        state=state,
        clock=clock,
    )


MANY = 64
"""Members from which probes are programs: their compilation costs less than thousands of snapshots, one by one."""


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
    parts = []
    for begin in range(0, len(ids), BLOCK):
        rows = np.arange(begin, min(begin + BLOCK, len(ids)))
        size = next(size for size in (1, 8, BLOCK) if len(rows) <= size)
        padded = padded_to(rows, size)
        problem = take(run.problem, ids[padded]) if run.batched[0] else run.problem
        shots = Snapshots(*jax.device_put((times[padded, None], states[padded, None], np.ones(size, int))))
        values = observe_snapshots(probes, problem, shots, run.batched[0], False)
        parts.append([np.asarray(value)[: len(rows), 0] for value in values])
    return [np.concatenate(part) for part in zip(*parts, strict=True)]
