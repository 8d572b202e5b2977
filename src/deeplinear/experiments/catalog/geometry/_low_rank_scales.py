"""Effective rank of completions of a unit diagonal by the size of the start: small ones end near rank one."""

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.geometry._low_rank_runs import (
    OUTCOMES,
    check_spec,
    draw_band,
    draw_violins,
    early_and_late,
    effective_ranks,
    follow,
    gaussian,
    none_broken,
    outcomes,
    panels,
    same_mean,
    unconverged,
    unit_diagonal,
)
from deeplinear.plots import COLOURS

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Scales:
    r"""Common Gaussian starts times several factors, at infinite depth.

    Attributes:
        size: Dimension.
        deviations: Standard deviations of the entries, largest first.
        factor: $c$ of the energy.
        seeds: Number of starts.
        horizon: Last time.
        points: Output times.
        gradient: Norm of the gradient to stop at. Solutions have a largest singular value of the order of the
            dimension, and below ten times the tolerance times that the integrator's noise would hide convergence.
        rtol: Relative tolerance.
        seed: Of the starts.
    """

    size: int = 25
    deviations: tuple[float, ...] = (0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
    factor: float = 2.0
    seeds: int = 30
    horizon: float = 100.0
    points: int = 121
    gradient: float = 3e-4
    rtol: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        check_spec(
            self,
            counts=("size", "seeds", "points"),
            numbers=("deviations", "factor", "horizon", "gradient", "rtol"),
        )
        if any(a <= b for a, b in itertools.pairwise(self.deviations)):
            raise ValueError(f"Scales: deviations must decrease, but are {self.deviations}.")


AT_100 = {
    0.2: (14.07, 0.63),
    0.1: (9.84, 0.70),
    0.05: (6.03, 0.75),
    0.02: (2.76, 0.55),
    0.01: (1.76, 0.31),
    0.005: (1.37, 0.22),
    0.002: (1.150, 0.087),
    0.001: (1.075, 0.032),
}
"""Means and standard deviations of the effective rank at time 100 in 25 dimensions that were recorded over 30 runs."""

DROP = (0.04, 0.16)
"""Bounds for the time of the drop times the deviation; 0.08 was recorded at c = 2."""


def run_scales(spec: Scales, context: Context) -> "xarray.Dataset":
    """Effective ranks by deviation, run and time; one program for all of them."""
    import xarray

    times = early_and_late(spec.horizon, spec.points, 1e-3 * spec.horizon)
    energy = unit_diagonal(spec.size, spec.factor)
    ranks, counts, ends, largest = [], [], [], []
    for k, deviation in enumerate(spec.deviations):
        start = gaussian(spec.seed, spec.seeds, spec.size, deviation)
        flow, _ = follow(context, energy, start, times, rtol=spec.rtol, gradient=spec.gradient)
        ranks.append(effective_ranks(flow.spectra))
        counts.append(outcomes(flow.status))
        ends.append(np.asarray(flow.end_times))
        largest.append(np.asarray(flow.spectra)[:, -1, 0])
        context.progress((k + 1) / len(spec.deviations), f"deviation {deviation:g}")
    return xarray.Dataset(
        {
            "effective_rank": (("deviation", "run", "time"), np.stack(ranks)),
            "largest": (("deviation", "run"), np.stack(largest), {"long_name": "largest singular value at the end"}),
            "end_time": (("deviation", "run"), np.stack(ends), {"long_name": "time at which the run ended"}),
            "ended": (("deviation", "outcome"), np.stack(counts), {"long_name": "number of runs"}),
        },
        coords={"deviation": list(spec.deviations), "time": times, "outcome": list(OUTCOMES)},
    )


def plot_scales(dataset: "xarray.Dataset", spec: Scales) -> "Figure":
    """Left medians over time with bands, right distributions at the last time."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    figure, (left, right) = panels(1, 2, height=1.3)
    shades = [to_hex(shade) for shade in colormaps["viridis"](np.linspace(0.0, 0.9, len(spec.deviations)))]
    for k, deviation in enumerate(spec.deviations):
        runs = dataset["effective_rank"][k].to_numpy()[:, 1:]
        draw_band(left, dataset["time"][1:], runs, shades[k], f"{deviation:g}")
    left.set(xscale="log", xlabel="time", ylabel="effective rank", ylim=(0, None))
    words = {"title": "standard deviation of the start", "title_fontsize": 8}
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(spec.deviations), **words)
    final = dataset["effective_rank"][:, :, -1].to_numpy()
    places = np.arange(len(spec.deviations))[::-1]
    draw_violins(right, list(final), places.tolist(), COLOURS[0], dots=False)
    right.plot(places, final.mean(axis=1), "o", color=COLOURS[1], markersize=3.5, label="mean")
    right.set_xticks(places, [f"{deviation:g}" for deviation in spec.deviations], rotation=30)
    right.axhline(1, color="#888888", linewidth=0.8, linestyle="dashed")
    right.set(
        xlabel="standard deviation of the start",
        ylabel="effective rank",
        title=f"at time {spec.horizon:g}",
        ylim=(0, None),
    )
    right.legend(loc="upper left")
    return figure


def claims_scales(dataset: "xarray.Dataset", spec: Scales) -> list[Claim]:
    """Monotone, last near one, recorded means, drop times."""
    final = dataset["effective_rank"][:, :, -1].to_numpy()
    means = final.mean(axis=1)
    claims = [none_broken(dataset["ended"])]
    if len(means) > 1:
        claims.append(
            Claim.at_most(
                "Smaller starts end at lower rank: largest change of the mean from one deviation to the next",
                float(np.max(np.diff(means))),
                -1e-9,
            )
        )
    text = "From the smallest starts all matrices become effectively of rank one: mean effective rank"
    enough = spec.deviations[-1] <= 0.002 and spec.horizon >= 0.16 / spec.deviations[-1] / spec.factor
    if enough:
        claims.append(Claim.at_most(text, means[-1], 1.2))
    else:
        claims.append(Claim.untold(text, "at most 1.2", "No deviation of at most 0.002 and a time long enough for it."))
    for k, deviation in enumerate(spec.deviations):
        if deviation in AT_100 and (spec.size, spec.factor, spec.horizon) == (25, 2.0, 100.0):
            mean, spread = AT_100[deviation]
            stated = f"Deviation {deviation:g}: mean effective rank at time 100"
            rounding = 0.0005 if deviation <= 0.002 else 0.005
            claim = same_mean(stated, final[k], mean, deviation=spread, count=30, rounding=rounding)
            late = unconverged(dataset["ended"][k])
            claims.append(
                dataclasses.replace(claim, note=f"{claim.note} {late:.0%} have not converged by time {spec.horizon:g}.")
            )
    small = [k for k, deviation in enumerate(spec.deviations) if deviation <= 0.02]
    times = dataset["time"].to_numpy()
    drops = []
    for k in small:
        middle = np.median(dataset["effective_rank"][k].to_numpy(), axis=0)
        half = (middle[0] + middle[-1]) / 2
        # Normal entries of deviation σ have a largest singular value near 2σ√d, by which escape times scale.
        unit = spec.factor / 2 * math.sqrt(spec.size / 25) * spec.deviations[k]
        drops.append(times[np.argmax(middle <= half)] * unit)
    text = "The rank drops after a time that goes like one over the deviation: {} time times deviation"
    for words, choose in (("least", min), ("most", max)):
        if drops:
            claims.append(
                Claim.between(text.format(words), choose(drops), *DROP, "Recorded: 0.08, at c = 2 in 25 dimensions.")
            )
    return claims


EXPERIMENTS = (
    Experiment(
        id="geometry/fig4.3",
        source="Figure 4.3",
        shows="Effective rank over time, and its distribution at time 100, for starts of several standard deviations "
        "in 25 dimensions at infinite depth: the smaller the start, the lower the rank, down to one.",
        presets={
            "quick": Scales(size=10, deviations=(0.2, 0.05, 0.01), seeds=20, points=61),
            "paper": Scales(),
        },
        run=run_scales,
        plot=plot_scales,
        claims=claims_scales,
        notes="The deviations and the number of starts, 30, are ours; the factor c = 2 is that of eq. 4.21, and with "
        "c = 1 the smallest starts have not left the neighbourhood of zero by time 100.",
    ),
)
