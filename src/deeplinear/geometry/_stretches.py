"""Members of a batch of flows, followed from start to end through stretches of different coordinates."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from deeplinear.core import Array, HypothesisError, as_numbers, integrate, quietly, within_run, xp
from deeplinear.geometry._charts import AbstractChart, MatrixChart, SingularChart, SpectralChart, State, settle
from deeplinear.geometry._energies import AbstractSpectralEnergy
from deeplinear.geometry._metric import Metric
from deeplinear.geometry._singular import DISTINCT, energy_values, log_gap, spectrum_gap
from deeplinear.models import AbstractLoss

CLOSED, REOPENED = 1e-5, 1e-4
"""Singular coordinates are left where the logarithms of neighbours differ by less than the first, and taken up again
where they differ by more than the second. Closer, the rounding of the gap is felt in how fast singular vectors turn."""

MOST_SWITCHES = 1000
"""Changes of coordinates after which a run is left in matrix coordinates."""

PLAIN = 1000
"""Steps of a member in NumPy, after which the rest of it runs as a program. At size three, on one core, a step of order
eight takes 3 ms in NumPy and 0.04 ms in a program, whose compilation takes 3 s."""

TOGETHER = 1024
"""Members that move in lock-step on an accelerator."""

Watch = Callable[[float], None] | None

RUNNING, CONVERGED, SINGULAR, DIVERGED, CHANGE = range(5)

STATUS = {RUNNING: "time limit", CONVERGED: "converged", SINGULAR: "singular", DIVERGED: "diverged"}


Number = Float[Array, ""] | float


class Limits(NamedTuple):
    """Where a run stops and how closely it is followed.

    Attributes:
        gradient: Norm of the gradient below which it has converged.
        largest: Singular value above which it has diverged.
        closed: Gap of the logarithms of singular values below which coordinates are changed.
        reopened: Gap above which they are changed.
        flat: Ratio of the singular values below which the matrix is singular.
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step.
    """

    gradient: Number
    largest: Number
    closed: Number
    reopened: Number
    flat: Number
    rtol: Number
    atol: Number


class Stretch(NamedTuple):
    """A part of a run in one kind of coordinates: outputs, its end, and the code of why it ended."""

    points: Float[Array, "*many times modes modes"]
    spectra: Float[Array, "*many times modes"]
    energies: Float[Array, "*many times"]
    lengths: Float[Array, "*many times"]
    end: Float[Array, "*many modes modes"]
    end_spectrum: Float[Array, "*many modes"]
    end_energy: Float[Array, "*many"]
    end_length: Float[Array, "*many"]
    time: Float[Array, "*many"]
    steepness: Float[Array, "*many"]
    code: Int[Array, "*many"]
    finished: Bool[Array, "*many"]
    steps: Int[Array, "*many"]


class Log:
    """What is known of one run so far."""

    def __init__(self, outputs: int, size: int, points: bool) -> None:
        self.points = np.zeros((outputs, size, size)) if points else None
        self.spectra = np.zeros((outputs, size))
        self.energies = np.zeros(outputs)
        self.lengths = np.zeros(outputs)
        self.end, self.time, self.length, self.steepness = np.zeros((size, size)), 0.0, 0.0, 0.0
        self.status, self.switches, self.steps, self.stays = "", 0, 0, False

    def add(self, stretch: Any, outputs: np.ndarray, first: bool) -> None:
        """Take in a stretch: outputs since the last one, and the state at its end for all later outputs."""
        time = float(stretch.time)
        now = outputs <= time if first else (outputs > self.time) & (outputs <= time)
        later = outputs > time
        pairs = [
            (self.spectra, stretch.spectra, stretch.end_spectrum),
            (self.energies, stretch.energies, stretch.end_energy),
            (self.lengths, stretch.lengths, stretch.end_length),
        ]
        if self.points is not None:
            pairs.append((self.points, stretch.points, stretch.end))
        for kept, found, last in pairs:
            kept[now] = found[now]
            kept[later] = last
        self.end, self.time = np.asarray(stretch.end), time
        self.length, self.steepness = float(stretch.end_length), float(stretch.steepness)
        self.steps += int(stretch.steps)


@dataclasses.dataclass(frozen=True)
class Runner:
    """Follows members to their ends.

    Attributes:
        metric: The metric of a depth.
        outputs: Output times.
        limits: Where to stop.
        chart: Coordinates: matrix, singular or spectral.
        solver: Method of integration.
        steps: Most steps of a stretch.
        may_switch: Whether matrix coordinates may be taken where singular values meet.
        on_accelerator: Whether members move in lock-step, as one program.
    """

    metric: Metric
    outputs: np.ndarray
    limits: Limits
    chart: str
    solver: str
    steps: int
    may_switch: bool
    on_accelerator: bool = False

    def run(self, energies: list[AbstractLoss], starts: np.ndarray, logs: list[Log], watch: Watch = None) -> None:
        """Follow members, together as far as they keep to their coordinates and have one energy."""
        meet = np.array([self.chart == "singular" and _meet(start) for start in starts])
        shared = all(energy is energies[0] for energy in energies)
        stretches: list[Any] = [None] * len(energies)
        if self.on_accelerator and not meet.any():
            stretches = self._lock_step(energies, starts)
        elif shared and not meet.all():
            together = np.flatnonzero(~meet)
            begin, lengths = np.asarray(0.0), np.zeros(len(together))
            found = self._followed(
                energies[0], starts[together], begin, self.limits, self.chart, lengths, _share(watch, 0.0, 0.9)
            )
            for place, member in enumerate(together):
                stretches[member] = Stretch(*(leaf[place] for leaf in found))
        rest = _share(watch, 0.9, 1.0) if shared else watch
        for number, (energy, start, log) in enumerate(zip(energies, starts, logs, strict=True)):
            self._finish(energy, start, log, "matrix" if meet[number] else self.chart, stretches[number])
            if rest is not None:
                rest((number + 1) / len(energies))

    def _lock_step(self, energies: list[AbstractLoss], starts: np.ndarray) -> list[Stretch]:
        """First stretches of several members, as programs; places that are left over do nothing."""
        width, found = min(TOGETHER, len(energies)), []
        for first in range(0, len(energies), width):
            members = energies[first : first + width]
            lacking = width - len(members)
            batch = jax.tree.map(lambda *leaves: np.stack(leaves), *members, *[members[-1]] * lacking)
            part = starts[first : first + width]
            full = np.concatenate([part, np.repeat(part[-1:], lacking, axis=0)])
            begins = np.where(np.arange(width) < len(members), 0.0, self.outputs[-1])
            stretch = jax.device_get(
                _many(self.metric, batch, full, self.outputs, begins, self.limits, self.chart, self.solver, self.steps)
            )
            found += [Stretch(*(leaf[position] for leaf in stretch)) for position in range(len(members))]
        return found

    def _followed(
        self,
        energy: AbstractLoss,
        starts: np.ndarray,
        begin: np.ndarray,
        limits: Limits,
        chart: str,
        lengths: np.ndarray,
        watch: Watch = None,
    ) -> Stretch:
        """Stretches of members with one energy, members first."""
        steps = min(self.steps, PLAIN)
        place = (self.metric, as_numbers(energy), starts, self.outputs, begin, limits, chart, self.solver)
        with quietly(), within_run():
            return _follow(*place, steps, lengths, watch)

    def _finish(self, energy: AbstractLoss, start: np.ndarray, log: Log, chart: str, stretch: Any) -> None:
        """Follow one member to its end, given its first stretch if that is known."""
        first = True
        log.switches += int(chart != self.chart)
        while True:
            limit = self.steps if self.on_accelerator or log.steps >= PLAIN else min(self.steps, PLAIN)
            if stretch is None:
                stretch = self._stretch(energy, start if first else log.end, log, chart, limit)
            log.add(stretch, self.outputs, first)
            if first and log.time == 0 and not np.isfinite(log.steepness):
                raise ValueError("matrix_flow: energy must have a finite gradient at the start, but has not.")
            goes_on = int(stretch.code) == RUNNING and not bool(stretch.finished)
            # Steps can become smaller than rounding, not for lack of steps, where singular values pass close by.
            stuck = goes_on and int(stretch.steps) < limit and chart == "singular"
            if goes_on and not stuck and limit < self.steps:  # the rest as a program
                first, stretch = False, None
                continue
            if int(stretch.code) != CHANGE and not (stuck and self.may_switch):
                break
            if not self.may_switch:
                raise HypothesisError(
                    f"matrix_flow: distinct singular values (they meet at time {log.time:.6g})",
                    spectrum_gap(stretch.end_spectrum),
                    DISTINCT,
                    "The smallest difference of their logarithms is told. Take coordinates='auto' or 'matrix'.",
                )
            log.stays = log.stays or stuck
            chart = "matrix" if chart == "singular" else "singular"
            log.switches += int(chart != self.chart)
            first, stretch = False, None
        reached = bool(stretch.finished) or int(stretch.code) != RUNNING
        log.status = STATUS[int(stretch.code)] if reached else "step limit"

    def _stretch(self, energy: AbstractLoss, point: np.ndarray, log: Log, chart: str, limit: int) -> Any:
        """The next stretch of one member."""
        fallen, stays = chart != self.chart, log.stays or log.switches >= MOST_SWITCHES
        limits = self.limits._replace(
            closed=-np.inf if fallen else self.limits.closed, reopened=REOPENED if fallen and not stays else np.inf
        )
        begin, length = np.asarray(log.time), np.full(1, log.length)
        if log.steps >= PLAIN or self.on_accelerator:
            place = (self.metric, energy, point[None], self.outputs, begin, limits, chart, self.solver)
            found = jax.device_get(_one(*place, np.asarray(limit), length))
        else:
            found = self._followed(energy, point[None], begin, limits, chart, length)
        return Stretch(*(leaf[0] for leaf in found))


def _follow(
    metric: Metric,
    energy: AbstractLoss,
    starts: Float[Array, "many modes modes"],
    times: Float[Array, " times"],
    begin: Float[Array, ""],
    limits: Limits,
    kind: str,
    solver: Any,
    steps: Any,
    lengths: Float[Array, " many"],
    watch: Watch = None,
) -> Stretch:
    """Stretches of members in one kind of coordinates, members first."""
    chart: AbstractChart
    if kind == "matrix":
        chart = MatrixChart(metric, energy)
    elif kind == "singular":
        chart = SingularChart(metric, energy)
    else:
        assert isinstance(energy, AbstractSpectralEnergy)
        left, _, right_t = xp.linalg.svd(starts)
        chart = SpectralChart(metric, energy, left, xp.swapaxes(right_t, 1, 2))

    def judge(state: State) -> Int[Array, " many"]:
        logs = chart.logs(state)
        high, low, gap = xp.exp(xp.max(logs, axis=-1)), xp.exp(xp.min(logs, axis=-1)), log_gap(logs)
        code = xp.where((gap < limits.closed) | (gap > limits.reopened), CHANGE, RUNNING)
        code = xp.where(high > limits.largest, DIVERGED, code)
        code = xp.where((low <= limits.flat * high) & (limits.flat > 0), SINGULAR, code)
        return xp.where(chart.steepness(state) < limits.gradient, CONVERGED, code)

    state = chart.enter(starts, lengths)
    found = integrate(
        chart.field,
        state,
        xp.clip(times, begin, times[-1]),
        begin=begin,
        method=solver,
        rtol=limits.rtol,
        atol=limits.atol,
        events=(lambda y: judge(y) != RUNNING,),
        steps=steps,
        after=settle if kind == "singular" else None,
        jacobian=chart.jacobian if isinstance(chart, MatrixChart) else None,
        lanes=True,
        resting=(judge(state) != RUNNING) | (begin >= times[-1]),
        watch=watch,
    )
    filled = tuple(
        xp.where(xp.isfinite(outputs), outputs, end) for outputs, end in zip(found.states, found.end, strict=True)
    )
    points, spectra = (xp.swapaxes(part, 0, 1) for part in chart.look(filled))
    end, spectrum = chart.look(found.end)
    return Stretch(
        points,
        spectra,
        energy_values(energy, points),
        xp.swapaxes(filled[-1], 0, 1),
        end,
        spectrum,
        energy_values(energy, end),
        found.end[-1],
        found.time,
        chart.steepness(found.end),
        judge(found.end),
        found.finished,
        found.steps,
    )


_one = eqx.filter_jit(_follow)


@eqx.filter_jit
def _many(
    metric: Metric,
    energies: AbstractLoss,
    starts: Float[Array, "many modes modes"],
    times: Float[Array, " times"],
    begins: Float[Array, " many"],
    limits: Limits,
    kind: str,
    solver: Any,
    steps: int,
) -> Stretch:
    """Several members in lock-step, each with its own steps."""
    follow = lambda energy, start, begin: _follow(  # noqa: E731
        metric, energy, start[None], times, begin, limits, kind, solver, steps, np.zeros(1)
    )
    return jax.tree.map(lambda leaf: leaf[:, 0], jax.vmap(follow)(energies, starts, begins))


def _share(watch: Watch, low: float, high: float) -> Watch:
    """What is told of a part of the work."""
    return None if watch is None else lambda share: watch(low + share * (high - low))


def _meet(start: np.ndarray) -> bool:
    """Whether singular values of a start coincide."""
    values = np.linalg.svd(start, compute_uv=False)
    return bool(values[-1] > 0 and len(values) > 1 and np.min(-np.diff(np.log(values))) < DISTINCT)
