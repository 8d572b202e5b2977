"""What the experiments on low rank share: starts, completion energies, effective ranks, comparisons, pictures."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import check_count, check_number, spectrum_effective_rank
from deeplinear.experiments._base import Claim, Context
from deeplinear.geometry import MatrixFlow, Scaled, matrix_flow
from deeplinear.models import AbstractLoss, Completion
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTCOMES = ("converged", "time limit", "singular", "diverged", "step limit")
"""How a flow can end."""

STEPS = 3_000
"""Most steps of a run by the explicit method; one number for all experiments, which share what is compiled."""

ERRORS = 4.0
"""Standard errors that two means of random samples may be apart."""

FEW = 20
"""With fewer runs their spread does not tell how far their mean is from the true one."""

BAND = (0.05, 0.5, 0.95)
"""Quantiles that are drawn of many runs: the band and the line."""


def gaussian(seed: int, count: int, size: int, deviation: float) -> np.ndarray:
    """Starts with independent normal entries; those of different deviations are multiples of each other."""
    return np.random.default_rng(seed).standard_normal((count, size, size)) * deviation


def unit_diagonal(size: int, factor: float = 1.0) -> Scaled:
    r"""$\tfrac c2\sum_i (x_{ii} - 1)^2$: only the diagonal is observed."""
    return Scaled(Completion(np.eye(size), np.eye(size)), factor)


def follow(
    context: Context,
    energy: AbstractLoss | Sequence[AbstractLoss],
    start: np.ndarray,
    times: Any,
    *,
    rtol: float,
    gradient: float | None,
    depth: float = math.inf,
    stiff: bool = False,
    largest: float = 1e6,
) -> tuple[MatrixFlow, int]:
    """The normalised flow of many starts by the explicit method.

    Args:
        context: Of the run, so that an interrupt reaches it.
        energy: Of all starts, or one for each.
        start: The starts.
        times: Output times.
        rtol: Relative tolerance; the absolute one is a thousand times smaller, and smaller still for small starts.
        gradient: Norm of the gradient to stop at, if at all.
        depth: Number of layers, or infinity.
        stiff: Whether runs that need more steps than are allowed go on by the implicit method. Stiffness grows with the
            square of the largest singular value.
        largest: Largest singular value at which a run has diverged.

    Returns:
        The flow, and how many of its runs went on by the implicit method.
    """
    settings = {
        "normalised": True,
        "rtol": rtol,
        "atol": 1e-3 * rtol * min(float(np.max(np.abs(start))), 1.0),
        "gradient": gradient,
        "largest": largest,
        "points": False,
    }
    flow = matrix_flow(energy, start, depth, times, steps=STEPS, progress=context.watch, **settings)
    slow = [k for k, status in enumerate(flow.status) if status == "step limit"] if stiff else []
    status, outputs = list(flow.status), np.asarray(times, dtype=float)
    for k in slow:
        own, begun = energy if isinstance(energy, AbstractLoss) else energy[k], float(flow.end_times[k])
        later = outputs > begun
        rest = outputs[later] - begun
        again = matrix_flow(own, flow.end[k], depth, rest, method="implicit", progress=context.watch, **settings)
        flow.spectra[k, later], flow.energies[k, later] = again.spectra, again.energies
        flow.lengths[k, later] += again.lengths
        flow.end[k], flow.gradients[k] = again.end, again.gradients
        flow.end_times[k] += again.end_times
        flow.steps[k] += again.steps
        status[k] = again.status[0]
    return dataclasses.replace(flow, status=tuple(status)), len(slow)


def effective_ranks(spectra: Any) -> np.ndarray:
    """Effective ranks of spectra in the last axis."""
    return np.asarray(spectrum_effective_rank(np.asarray(spectra)))


def outcomes(status: Sequence[str]) -> np.ndarray:
    """How many flows ended in each way, in the order of `OUTCOMES`."""
    return np.array([sum(one == name for one in status) for name in OUTCOMES])


def unconverged(counts: Any) -> float:
    """Share of flows that did not converge."""
    counts = np.asarray(counts)
    return float(1 - counts[..., 0].sum() / counts.sum())


def broken(counts: Any) -> int:
    """How many flows ended for lack of steps or at a numerically singular matrix."""
    counts = np.asarray(counts)
    return int(counts[..., OUTCOMES.index("step limit")].sum() + counts[..., OUTCOMES.index("singular")].sum())


def none_broken(counts: Any) -> Claim:
    """The claim that there is none."""
    return Claim.at_most("Runs that ended for lack of steps or at a singular matrix", broken(counts), 0)


def early_and_late(horizon: float, points: int, first: float) -> np.ndarray:
    """Zero, and times evenly in the logarithm from the first one to the last."""
    return np.concatenate([[0.0], np.geomspace(first, horizon, points - 1)])


def check_spec(spec: Any, *, counts: Sequence[str] = (), numbers: Sequence[str] = ()) -> None:
    """Refuse counts that are not positive and numbers that are not; members of lists one by one."""
    where = type(spec).__name__
    for names, check in ((counts, _count), (numbers, _number)):
        for name in names:
            value = getattr(spec, name)
            if isinstance(value, tuple) and not value:
                raise ValueError(f"{where}: {name} must have at least one value, but has none.")
            for position, one in enumerate(value) if isinstance(value, tuple) else ((None, value),):
                check(where, name if position is None else f"{name}[{position}]", one)


def _count(where: str, name: str, value: Any) -> None:
    check_count(where, name, value, at_least=1)


def _number(where: str, name: str, value: Any) -> None:
    check_number(where, name, value, above=0)


# --- Comparison with recorded numbers ---------------------------------------------------------------------------------


def same_mean(
    statement: str, values: Any, recorded: float, *, deviation: float | None = None, count: int, rounding: float = 0.0
) -> Claim:
    """A mean that should agree with a recorded one within four standard errors of the difference.

    Args:
        statement: What has the mean.
        values: Our sample.
        recorded: The other mean.
        deviation: Standard deviation of the other sample; taken to be ours where it is not recorded.
        count: Size of the other sample.
        rounding: Half a unit of the last digit that is recorded.
    """
    values = np.asarray(values, dtype=float)
    statement = f"{statement}: distance from the recorded {recorded:g}, in standard errors"
    if values.size < FEW:
        return Claim.untold(statement, f"at most {ERRORS:g}", f"Only {values.size} runs.")
    own = float(np.std(values, ddof=1))
    other = own if deviation is None else deviation
    error = math.sqrt(own**2 / values.size + other**2 / count)
    apart = max(abs(float(np.mean(values)) - recorded) - rounding, 0.0)
    note = f"Mean {np.mean(values):.4g} and standard deviation {own:.3g} of {values.size} runs."
    return Claim.at_most(statement, apart / error, ERRORS, note)


def same_share(statement: str, hits: Any, recorded: float, *, count: int) -> Claim:
    """A share of runs that should agree with a recorded one within four standard errors of the difference.

    Args:
        statement: Which runs.
        hits: Whether each of ours is one of them.
        recorded: The other share.
        count: Number of runs it is a share of.
    """
    hits = np.asarray(hits, dtype=float)
    statement = f"{statement}: distance of their share from the recorded {recorded:g}, in standard errors"
    if hits.size < FEW:
        return Claim.untold(statement, f"at most {ERRORS:g}", f"Only {hits.size} runs.")
    # The share of both samples together; half a run more on both sides keeps the error above zero.
    pooled = (hits.sum() + recorded * count + 0.5) / (hits.size + count + 1)
    error = math.sqrt(pooled * (1 - pooled) * (1 / hits.size + 1 / count))
    apart = abs(float(np.mean(hits)) - recorded)
    return Claim.at_most(statement, apart / error, ERRORS, f"Share {np.mean(hits):.3g} of {hits.size} runs.")


def told(claim: Callable[[], Claim], enough: bool, statement: str, expected: str, why: str) -> Claim:
    """The claim where this size of the experiment can tell."""
    return claim() if enough else Claim.untold(statement, expected, why)


# --- Pictures ---------------------------------------------------------------------------------------------------------


def panels(rows: int, columns: int, *, height: float = 1.0) -> tuple["Figure", list["Axes"]]:
    """A figure with equal panels, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * PANEL[0], rows * height * PANEL[1]), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def draw_band(axis: "Axes", times: Any, values: Any, colour: str, label: str | None = None, *, lines: int = 0) -> None:
    """Median of many runs over time with the band between the 5% and the 95% quantile, and a few single runs.

    Args:
        axis: Where.
        times: Times.
        values: Runs, one in each row.
        colour: Of line and band.
        label: For the legend.
        lines: How many runs to draw thinly.
    """
    low, middle, high = np.quantile(np.asarray(values), BAND, axis=0)
    axis.fill_between(times, low, high, color=colour, alpha=0.2, linewidth=0)
    for run in np.asarray(values)[:lines]:
        axis.plot(times, run, color=colour, linewidth=0.4, alpha=0.5)
    axis.plot(times, middle, color=colour, label=label)


def draw_violins(axis: "Axes", groups: Sequence[Any], places: Sequence[float], colour: str, *, dots: bool) -> None:
    """Distributions side by side: their shapes, medians, and where `dots` the values themselves."""
    groups = [np.asarray(group, dtype=float) for group in groups]
    parts: Any = axis.violinplot(groups, positions=list(places), widths=0.7, showextrema=False)
    for body in parts["bodies"]:
        body.set(facecolor=colour, edgecolor=colour, alpha=0.3)
    for place, group in zip(places, groups, strict=True):
        if dots:
            spread = 0.12 * np.linspace(-1, 1, len(group)) if len(group) > 1 else np.zeros(1)
            axis.plot(place + spread, np.sort(group), ".", color=colour, markersize=3)
        axis.plot([place - 0.22, place + 0.22], [np.median(group)] * 2, color=COLOURS[-1], linewidth=1.4)
