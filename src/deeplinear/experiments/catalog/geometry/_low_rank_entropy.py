"""Completion of a 2 x 2 unit diagonal with and without entropy: effective ranks, and what becomes of them."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.geometry._low_rank_runs import (
    OUTCOMES,
    check_spec,
    draw_band,
    effective_ranks,
    follow,
    gaussian,
    outcomes,
    panels,
    same_mean,
    same_share,
    unit_diagonal,
)
from deeplinear.geometry import FreeEnergy
from deeplinear.plots import COLOURS

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

BLUE, RED, *_, BLACK = COLOURS


@dataclasses.dataclass(frozen=True)
class Regularised:
    r"""Cases of $\tfrac c2\sum_i (x_{ii} - 1)^2 - S_\infty/\beta$ in two dimensions, each also without the entropy.

    Attributes:
        factors: $c$ of each case.
        deviations: Standard deviation of the starts of each case.
        horizons: Last time of each case.
        beta: Inverse temperature.
        seeds: Number of starts, common to all cases up to the deviation.
        points: Output times.
        gradient: Norm of the gradient to stop at, without entropy only.
        largest: Largest singular value at which a run is stopped.
        rtol: Relative tolerance.
        seed: Of the starts.
    """

    factors: tuple[float, ...] = (1.0, 2.0, 1.0, 1.0)
    deviations: tuple[float, ...] = (0.01, 0.01, 0.1, 0.707)
    horizons: tuple[float, ...] = (100.0, 100.0, 400.0, 100.0)
    beta: float = 20.0
    seeds: int = 200
    points: int = 81
    gradient: float = 1e-5
    largest: float = 1e9
    rtol: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        numbers = ("factors", "deviations", "horizons", "beta", "gradient", "largest", "rtol")
        check_spec(self, counts=("seeds", "points"), numbers=numbers)
        if not len(self.factors) == len(self.deviations) == len(self.horizons):
            raise ValueError("Regularised: factors, deviations and horizons must be equally many, one for each case.")

    def case(self, k: int) -> str:
        """Words for a case."""
        return f"c = {self.factors[k]:g}, deviation {self.deviations[k]:g}"


DIVERGED = 1e3
"""A run whose largest singular value exceeds this is reported as on its way to infinity."""

LOW = 1.05
"""Effective ranks below this are counted as one."""

RECORDED = {
    (1.0, 0.01, 100.0): ((1.368, 0.367, 0.34), (1.103, 0.188, 0.59)),
    (2.0, 0.01, 100.0): ((1.232, 0.336, 0.58), (1.086, 0.175, 0.73)),
    (1.0, 0.1, 100.0): ((1.142, None, None), (1.182, None, None)),
    (1.0, 0.1, 400.0): ((1.135, None, None), (1.032, None, None)),
    (1.0, 0.707, 100.0): ((1.412, None, None), (1.395, None, None)),
}
"""By factor, deviation and time, without and with entropy: mean, standard deviation and share below 1.05 of the
effective rank that were recorded at β = 20, over 200 runs, or over 60 where there is a mean alone."""

ENERGIES = ("without entropy", "with entropy")


def run_regularised(spec: Regularised, context: Context) -> "xarray.Dataset":
    """Singular values of all runs over time, by case and energy."""
    import xarray

    cases = len(spec.factors)
    spectra = np.zeros((cases, 2, spec.seeds, spec.points, 2))
    counts, stiff = np.zeros((cases, 2, len(OUTCOMES)), dtype=int), np.zeros((cases, 2), dtype=int)
    times = np.zeros((cases, spec.points))
    for k, (factor, deviation, horizon) in enumerate(zip(spec.factors, spec.deviations, spec.horizons, strict=True)):
        plain = unit_diagonal(2, factor)
        start = gaussian(spec.seed, spec.seeds, 2, deviation)
        times[k] = np.linspace(0, horizon, spec.points)
        for j, energy in enumerate((plain, FreeEnergy(plain, spec.beta, math.inf))):
            flow, stiff[k, j] = follow(
                context,
                energy,
                start,
                times[k],
                rtol=spec.rtol,
                gradient=None if j else spec.gradient,
                stiff=True,
                largest=spec.largest,
            )
            spectra[k, j], counts[k, j] = flow.spectra, outcomes(flow.status)
        context.progress((k + 1) / cases, spec.case(k))
    dims = ("case", "energy", "run", "point")
    return xarray.Dataset(
        {
            "effective_rank": (dims, effective_ranks(spectra)),
            "largest": (dims, spectra[..., 0], {"long_name": "largest singular value"}),
            "stiff": (("case", "energy"), stiff, {"long_name": "runs that went on by the implicit method"}),
            "ended": (("case", "energy", "outcome"), counts, {"long_name": "number of runs"}),
        },
        coords={
            "case": [spec.case(k) for k in range(cases)],
            "energy": list(ENERGIES),
            "time": (("case", "point"), times),
            "outcome": list(OUTCOMES),
        },
    )


def plot_regularised(dataset: "xarray.Dataset", spec: Regularised) -> "Figure":
    """For each case the histogram at the last time beside the largest singular value over time."""
    cases = len(spec.factors)
    figure, axes = panels(cases, 2, height=0.95)
    bins = np.linspace(1, 2, 26).tolist()
    for k in range(cases):
        left, right = axes[2 * k], axes[2 * k + 1]
        part = dataset.isel(case=k)
        for j, colour in enumerate((BLUE, RED)):
            ranks = part["effective_rank"][j, :, -1].to_numpy()
            left.hist(ranks, bins=bins, histtype="stepfilled", facecolor=colour, alpha=0.25)
            left.hist(ranks, bins=bins, histtype="step", color=colour, label=f"{ENERGIES[j]}, mean {ranks.mean():.3f}")
            draw_band(right, part["time"], part["largest"][j].to_numpy(), colour, ENERGIES[j])
        left.set(xlabel=f"effective rank at time {spec.horizons[k]:g}", ylabel="runs", title=spec.case(k))
        left.margins(y=0.4)
        left.legend(loc="upper right")
        right.axhline(DIVERGED, color="#888888", linewidth=0.8, linestyle="dashed")
        right.set(yscale="log", xlabel="time", ylabel="$s_1$: median, 5% to 95%")
    axes[1].legend(loc="upper left", bbox_to_anchor=(0.0, 0.92))
    return figure


def _at(dataset: "xarray.Dataset", k: int, time: float) -> int | None:
    """Position of an output time of a case, if it is one."""
    times = dataset["time"][k].to_numpy()
    near = int(np.argmin(np.abs(times - time)))
    return near if abs(times[near] - time) < 1e-9 else None


def claims_regularised(dataset: "xarray.Dataset", spec: Regularised) -> list[Claim]:
    """Lower and narrower with entropy from small starts, the recorded numbers, and divergence."""
    claims = []
    for k in range(len(spec.factors)):
        part, name = dataset.isel(case=k), spec.case(k)
        ranks, largest = part["effective_rank"].to_numpy(), part["largest"].to_numpy()
        horizon = spec.horizons[k]
        waiting = 1 - float(part["ended"][0, 0]) / spec.seeds
        if spec.deviations[k] <= 0.01 and horizon == 100:
            for words, number in (("mean", np.mean), ("standard deviation", np.std)):
                claims.append(
                    Claim.at_most(
                        f"{name}: {words} of the effective rank with entropy less that without",
                        number(ranks[1, :, -1]) - number(ranks[0, :, -1]),
                        0.0,
                        f"Without entropy {waiting:.0%} of the runs have not converged by time {horizon:g}.",
                    )
                )
        beyond = float(np.mean(largest[1, :, -1] > DIVERGED))
        counts = part["ended"][1].to_numpy()
        ended = ", ".join(f"{word} {count}" for word, count in zip(OUTCOMES, counts, strict=True) if count)
        claims.append(
            Claim.at_most(
                f"{name}: no run with entropy comes to rest; share of runs that do",
                float(counts[0]) / spec.seeds,
                0.0,
                f"By time {horizon:g} s₁ exceeds {DIVERGED:g} in {beyond:.0%} of the runs; median "
                f"{np.median(largest[1, :, -1]):.3g}, largest {np.max(largest[1, :, -1]):.3g}. Ended: {ended}.",
            )
        )
        if spec.deviations[k] > 0.05:
            half = largest.shape[-1] // 2
            growth = np.log(largest[1, :, -1] / largest[1, :, half]) / (horizon - float(part["time"][half])) * spec.beta
            claims.append(
                Claim.between(
                    f"{name}: growth of ln s₁ with entropy over the last half, times β; median",
                    np.median(growth),
                    0.3,
                    1.5,
                    "Tends to 1: the free energy has no lower bound.",
                )
            )
        if (spec.factors[k], spec.deviations[k], horizon, spec.beta) == (1.0, 0.1, 400.0, 20.0):
            claims.append(
                Claim.between(
                    f"{name}: decimal logarithm of the median of s₁ with entropy at time 400",
                    np.log10(np.median(largest[1, :, -1])),
                    4.3,
                    5.6,
                    "Recorded: 9e4, which is 4.95.",
                )
            )
        for (factor, deviation, time), both in RECORDED.items():
            place = _at(dataset, k, time)
            if (factor, deviation) != (spec.factors[k], spec.deviations[k]) or place is None or spec.beta != 20:
                continue
            for j, (mean, spread, share) in enumerate(both):
                stated = f"{name}, {ENERGIES[j]}, time {time:g}"
                found = ranks[j, :, place]
                claims.append(
                    same_mean(
                        f"{stated}: mean effective rank",
                        found,
                        mean,
                        deviation=spread,
                        count=200 if spread else 60,
                        rounding=5e-4,
                    )
                )
                if share is not None:
                    claims.append(same_share(f"{stated}: effective rank below {LOW:g}", found < LOW, share, count=200))
    return claims


EXPERIMENTS = (
    Experiment(
        id="geometry/fig4.5b",
        source="Figure 4.5(b)",
        shows="Effective ranks of completions of a 2 x 2 unit diagonal at infinite depth with and without entropy at "
        "β = 20, beside the largest singular value, which with entropy grows without bound.",
        presets={
            "quick": Regularised(factors=(1.0,), deviations=(0.01,), horizons=(100.0,), seeds=30, points=41),
            "paper": Regularised(),
        },
        run=run_regularised,
        plot=plot_regularised,
        claims=claims_regularised,
        notes="Starts and last times are ours. The free energy has no lower bound where an entry is not observed, and "
        "its flow never converges: low effective ranks with entropy are passed through on the way to infinity, and "
        "whether they are lower than without depends on the start and on the time of reading.",
    ),
)
