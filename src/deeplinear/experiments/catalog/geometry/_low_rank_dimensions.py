"""Effective rank of completions of a unit diagonal: over time, against the dimension, against the depth."""

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

BLUE, RED, GREEN, *_, BLACK = COLOURS


def _quantiles(ranks: np.ndarray) -> str:
    low, high = np.quantile(ranks, (0.05, 0.95))
    return f"5% and 95% quantiles {low:.3g} and {high:.3g}."


# --- Figure 4.2a-c: over time -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Dynamics:
    """Effective rank over time for several dimensions at infinite depth; starts of variance one over the dimension.

    Attributes:
        sizes: Dimensions.
        horizons: Last time for each.
        seeds: Number of starts for each.
        points: Output times.
        gradient: Norm of the gradient to stop at; values stay as they are then.
        rtol: Relative tolerance.
        seed: Of the starts.
    """

    sizes: tuple[int, ...] = (2, 5, 10, 25)
    horizons: tuple[float, ...] = (100.0, 10.0, 10.0, 10.0)
    seeds: int = 200
    points: int = 101
    gradient: float = 1e-5
    rtol: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        check_spec(self, counts=("sizes", "seeds", "points"), numbers=("horizons", "gradient", "rtol"))
        if len(self.horizons) != len(self.sizes):
            raise ValueError(
                f"Dynamics: horizons must have one value for each of the {len(self.sizes)} sizes, but has "
                f"{len(self.horizons)}."
            )


AFTER = {2: (1.627, 0.270, 1.466, 0.301), 5: (3.949, 0.302, 3.050, 0.423), 10: (7.882, 0.317, 5.774, 0.524)}
AFTER |= {25: (19.935, 0.280, 14.102, 0.671)}
"""Means and standard deviations of the effective rank at the start and at the end that were recorded, by dimension."""

RECORDED = 200
"""Number of runs they were recorded over."""

COURSE = {0.0: 19.94, 0.5: 18.52, 1.0: 15.69, 2.0: 14.15, 3.0: 14.10, 5.0: 14.10}
"""Mean effective rank in 25 dimensions that was recorded at some times."""


def run_dynamics(spec: Dynamics, context: Context) -> "xarray.Dataset":
    """Effective ranks by dimension, run and time."""
    import xarray

    ranks, counts, times = [], [], []
    for k, (size, horizon) in enumerate(zip(spec.sizes, spec.horizons, strict=True)):
        time = np.linspace(0, horizon, spec.points)
        start = gaussian(spec.seed, spec.seeds, size, 1 / math.sqrt(size))
        flow, _ = follow(context, unit_diagonal(size), start, time, rtol=spec.rtol, gradient=spec.gradient)
        ranks.append(effective_ranks(flow.spectra))
        counts.append(outcomes(flow.status))
        times.append(time)
        context.progress((k + 1) / len(spec.sizes), f"dimension {size}")
    return xarray.Dataset(
        {
            "effective_rank": (("size", "run", "point"), np.stack(ranks)),
            "ended": (("size", "outcome"), np.stack(counts), {"long_name": "number of runs"}),
        },
        coords={
            "size": ("size", list(spec.sizes), {"long_name": "dimension"}),
            "time": (("size", "point"), np.stack(times)),
            "outcome": list(OUTCOMES),
        },
    )


def plot_dynamics(dataset: "xarray.Dataset", spec: Dynamics) -> "Figure":
    """Median, band and a few runs for each dimension."""
    columns = min(len(spec.sizes), 2)
    figure, axes = panels(-(-len(spec.sizes) // columns), columns)
    for axis in axes[len(spec.sizes) :]:
        axis.remove()
    for axis, size in zip(axes, spec.sizes, strict=False):
        part = dataset.sel(size=size)
        values = part["effective_rank"].to_numpy()
        draw_band(axis, part["time"], values, BLUE, "median, 5% to 95%", lines=8)
        axis.plot(part["time"], values.mean(axis=0), color=BLACK, linestyle="dashed", linewidth=1.0, label="mean")
        axis.set(title=f"$d = {size}$, {values.shape[0]} starts", xlabel="time", ylabel="effective rank")
        axis.set_ylim(1, size)
    axes[0].legend(loc="lower left")
    return figure


def claims_dynamics(dataset: "xarray.Dataset", spec: Dynamics) -> list[Claim]:
    """Means at both ends, falls, and the recorded course."""
    claims = [none_broken(dataset["ended"])]
    for size in spec.sizes:
        part = dataset.sel(size=size)
        ranks, horizon = part["effective_rank"].to_numpy(), float(part["time"][-1])
        first, last = ranks[:, 0], ranks[:, -1]
        if size in AFTER:
            before, before_sd, after, after_sd = AFTER[size]
            text = f"d = {size}, mean effective rank"
            claims.append(same_mean(f"{text} at the start", first, before, deviation=before_sd, count=RECORDED))
            ended = same_mean(f"{text} at the end", last, after, deviation=after_sd, count=RECORDED)
            claims.append(dataclasses.replace(ended, note=f"{ended.note} {_quantiles(last)}"))
        share = float(np.mean(last < first))
        claims.append(
            Claim.at_least(f"d = {size}: share of runs whose effective rank falls", share, 1.0 if size >= 5 else 0.6)
        )
        claims.append(
            Claim.at_most(
                f"d = {size}: mean change of the effective rank in the last half of the time",
                float(np.mean(np.abs(last - ranks[:, ranks.shape[1] // 2]))),
                0.02,
                f"{unconverged(part['ended']):.1%} of the runs have not converged by time {horizon:g}.",
            )
        )
        if size == 25:
            grid = part["time"].to_numpy()
            for time, mean in COURSE.items():
                if time <= horizon and np.min(np.abs(grid - time)) < 1e-9:
                    values = ranks[:, int(np.argmin(np.abs(grid - time)))]
                    text = f"d = 25, mean effective rank at time {time:g}"
                    claims.append(same_mean(text, values, mean, count=RECORDED, rounding=0.005))
    return claims


# --- Figure 4.2d: against the dimension -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Limits for many dimensions at infinite depth; starts of variance one over the dimension.

    Attributes:
        sizes: Dimensions.
        seeds: Number of starts for each.
        horizon: Last time.
        gradient: Norm of the gradient to stop at.
        rtol: Relative tolerance.
        seed: Of the starts.
    """

    sizes: tuple[int, ...] = (2, 3, 4, 5, 7, 10, 15, 20, 30, 40)
    seeds: int = 50
    horizon: float = 100.0
    gradient: float = 1e-5
    rtol: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        check_spec(self, counts=("sizes", "seeds"), numbers=("horizon", "gradient", "rtol"))
        if len(set(self.sizes)) < 3:
            raise ValueError(f"Sizes: sizes must hold at least three dimensions, but is {self.sizes}.")


LIMITS = {2: 1.48, 3: 1.98, 4: 2.49, 5: 3.05, 7: 4.05, 10: 5.72, 15: 8.59, 20: 11.47, 30: 16.54, 40: 22.20}
"""Mean limits that were recorded over 50 runs, by dimension."""


def run_sizes(spec: Sizes, context: Context) -> "xarray.Dataset":
    """Effective ranks at both ends by dimension and run."""
    import xarray

    first, last, counts, times = [], [], [], []
    for k, size in enumerate(spec.sizes):
        start, ends = gaussian(spec.seed, spec.seeds, size, 1 / math.sqrt(size)), [0.0, spec.horizon]
        flow, _ = follow(context, unit_diagonal(size), start, ends, rtol=spec.rtol, gradient=spec.gradient)
        ranks = effective_ranks(flow.spectra)
        first.append(ranks[:, 0])
        last.append(ranks[:, -1])
        counts.append(outcomes(flow.status))
        times.append(np.asarray(flow.end_times))
        context.progress((k + 1) / len(spec.sizes), f"dimension {size}")
    return xarray.Dataset(
        {
            "start": (("size", "run"), np.stack(first), {"long_name": "effective rank at the start"}),
            "end": (("size", "run"), np.stack(last), {"long_name": "effective rank at the end"}),
            "time": (("size", "run"), np.stack(times), {"long_name": "time at which the run ended"}),
            "ended": (("size", "outcome"), np.stack(counts), {"long_name": "number of runs"}),
        },
        coords={"size": ("size", list(spec.sizes), {"long_name": "dimension"}), "outcome": list(OUTCOMES)},
    )


def _line(dataset: "xarray.Dataset", name: str, most: float = math.inf) -> tuple[float, float, float]:
    """Slope and offset of the means against the dimension, and the part of their variance that is on the line."""
    sizes = dataset["size"].to_numpy().astype(float)
    means = dataset[name].mean("run").to_numpy()[sizes <= most]
    sizes = sizes[sizes <= most]
    slope, offset = np.polyfit(sizes, means, 1)
    return float(slope), float(offset), float(1 - np.var(means - offset - slope * sizes) / np.var(means))


def plot_sizes(dataset: "xarray.Dataset", spec: Sizes) -> "Figure":
    """Means with standard deviations at both ends, and the lines through them."""
    figure, (axis,) = panels(1, 1, height=1.3)
    sizes = np.array(spec.sizes, dtype=float)
    for name, colour, marker, words in (("start", RED, "s", "start"), ("end", BLUE, "o", "limit")):
        slope, offset, _ = _line(dataset, name)
        means, spread = dataset[name].mean("run"), dataset[name].std("run", ddof=1)
        axis.errorbar(sizes, means, spread, fmt=marker, color=colour, capsize=2, label=f"{words}: slope {slope:.3f}")
        axis.plot(sizes, offset + slope * sizes, color=colour, linewidth=0.9)
    axis.set(xlabel="dimension $d$", ylabel="effective rank")
    axis.legend(loc="upper left")
    return figure


def claims_sizes(dataset: "xarray.Dataset", spec: Sizes) -> list[Claim]:
    """A line of slope about 0.55."""
    slope, offset, explained = _line(dataset, "end")
    claims = [
        none_broken(dataset["ended"]),
        Claim.between(
            "The mean limit grows linearly with the dimension, slope around 3/5",
            slope,
            0.50,
            0.62,
            f"Intercept {offset:.3g}; recorded 0.546 and 0.33. {unconverged(dataset['ended']):.1%} of the runs have "
            f"not converged by time {spec.horizon:g}.",
        ),
        Claim.at_least("Part of the variance of the means that lies on the line", explained, 0.99),
        Claim.between(
            "Slope at the start, for Gaussian matrices 0.805 in the limit of large dimensions",
            _line(dataset, "start")[0],
            0.77,
            0.83,
            "Recorded: 0.800.",
        ),
    ]
    if len([size for size in spec.sizes if size <= 20]) >= 3:
        claims.append(
            Claim.between("Slope up to dimension 20", _line(dataset, "end", 20)[0], 0.50, 0.62, "Recorded: 0.556.")
        )
    for size in spec.sizes:
        if size in LIMITS:
            text = f"d = {size}, mean limit"
            values = dataset["end"].sel(size=size)
            claims.append(same_mean(text, values, LIMITS[size], count=50, rounding=0.005))
    return claims


# --- Companion: against the depth -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Depths:
    """Limits of common starts at several depths.

    Attributes:
        size: Dimension.
        depths: Numbers of layers, increasing; infinity is allowed.
        deviations: Standard deviations of the starts; zero stands for one over the root of the dimension.
        seeds: Number of starts.
        horizon: Last time of the normalised flow.
        gradient: Norm of the gradient to stop at; ten times the tolerance times the largest singular value, or
            the noise of the integrator would hide convergence.
        rtol: Relative tolerance.
        seed: Of the starts.
    """

    size: int = 10
    depths: tuple[float, ...] = (1, 2, 3, 5, 10, 50, math.inf)
    deviations: tuple[float, ...] = (0.0, 0.01)
    seeds: int = 30
    horizon: float = 1e4
    gradient: float = 1e-4
    rtol: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        check_spec(self, counts=("size", "seeds"), numbers=("horizon", "gradient", "rtol"))
        if not self.depths or any(depth < 1 or (depth % 1 and not math.isinf(depth)) for depth in self.depths):
            raise ValueError(f"Depths: depths must be positive whole numbers or infinity, but are {self.depths}.")
        if any(a >= b for a, b in zip(self.depths, self.depths[1:], strict=False)):
            raise ValueError(f"Depths: depths must increase, but are {self.depths}.")
        if any(deviation < 0 for deviation in self.deviations):
            raise ValueError(f"Depths: deviations must not be negative, but are {self.deviations}.")

    @property
    def scales(self) -> tuple[float, ...]:
        """The deviations, with zeros replaced."""
        return tuple(deviation or 1 / math.sqrt(self.size) for deviation in self.deviations)


DEPTH_LIMITS = {
    0.0: {1: 8.60, 2: 6.95, 3: 6.63, 5: 6.33, 10: 6.07, 50: 5.85, math.inf: 5.80},
    0.01: {2: 6.25, 3: 3.31, 5: 1.96, 10: 1.52, math.inf: 1.30},
}
"""Mean limits that were recorded over 30 runs in 10 dimensions, by deviation and depth."""


def run_depths(spec: Depths, context: Context) -> "xarray.Dataset":
    """Effective ranks of the limits by deviation, depth and run; one program for all of them."""
    import xarray

    shape = (len(spec.deviations), len(spec.depths))
    ranks, times = np.zeros((*shape, spec.seeds)), np.zeros((*shape, spec.seeds))
    counts, first = np.zeros((*shape, len(OUTCOMES)), dtype=int), np.zeros((shape[0], spec.seeds))
    for i, scale in enumerate(spec.scales):
        start = gaussian(spec.seed, spec.seeds, spec.size, scale)
        first[i] = effective_ranks(np.linalg.svd(start, compute_uv=False))
        for j, depth in enumerate(spec.depths):
            flow, _ = follow(
                context,
                unit_diagonal(spec.size),
                start,
                [0.0, spec.horizon],
                depth=depth if math.isinf(depth) else int(depth),
                rtol=spec.rtol,
                gradient=spec.gradient,
            )
            ranks[i, j] = effective_ranks(np.asarray(flow.spectra)[:, -1])
            times[i, j], counts[i, j] = np.asarray(flow.end_times), outcomes(flow.status)
            context.progress((i * shape[1] + j + 1) / np.prod(shape), f"depth {depth:g} from deviation {scale:.3g}")
    dims = ("deviation", "depth", "run")
    return xarray.Dataset(
        {
            "start": (("deviation", "run"), first, {"long_name": "effective rank at the start"}),
            "end": (dims, ranks, {"long_name": "effective rank at the end"}),
            "time": (dims, times, {"long_name": "time at which the run ended"}),
            "ended": (("deviation", "depth", "outcome"), counts, {"long_name": "number of runs"}),
        },
        coords={"deviation": list(spec.scales), "depth": list(spec.depths), "outcome": list(OUTCOMES)},
    )


def _names(depths: tuple[float, ...]) -> list[str]:
    return [r"$\infty$" if math.isinf(depth) else f"{depth:g}" for depth in depths]


def plot_depths(dataset: "xarray.Dataset", spec: Depths) -> "Figure":
    """Mean and standard deviation of the limits against the depth, in equal steps."""
    figure, (axis,) = panels(1, 1, height=1.3)
    places = np.arange(len(spec.depths))
    looks = zip(spec.scales, COLOURS, "os^Dvp*", strict=False)
    for i, (scale, colour, marker) in enumerate(looks):
        part = dataset["end"][i]
        label = f"starts of deviation {scale:.3g}"
        axis.errorbar(
            places + 0.06 * i,
            part.mean("run"),
            part.std("run", ddof=1),
            fmt=f"{marker}-",
            color=colour,
            capsize=2,
            label=label,
        )
        axis.axhline(float(dataset["start"][i].mean()), color=colour, linewidth=0.8, linestyle="dotted")
    axis.set_xticks(places, _names(spec.depths))
    axis.set(xlabel="depth $L$", ylabel="effective rank of the limit", ylim=(0, 1.06 * spec.size))
    axis.legend(loc="lower left", title="dotted: at the start", title_fontsize=8)
    return figure


def claims_depths(dataset: "xarray.Dataset", spec: Depths) -> list[Claim]:
    """Deeper is lower, and the recorded means."""
    claims = [none_broken(dataset["ended"])]
    for i, (deviation, scale) in enumerate(zip(spec.deviations, spec.scales, strict=True)):
        means = dataset["end"][i].mean("run").to_numpy()
        late = unconverged(dataset["ended"][i])
        claims.append(
            Claim.at_most(
                f"Starts of deviation {scale:.3g}: the deeper, the lower; largest rise of the mean with the depth",
                float(np.max(np.diff(means))),
                0.0,
                f"{late:.1%} of the runs have not converged by time {spec.horizon:g}.",
            )
        )
        for depth, recorded in DEPTH_LIMITS.get(deviation, {}).items():
            if depth in spec.depths and spec.size == 10:
                text = f"Deviation {scale:.3g}, depth {depth:g}: mean limit"
                values = dataset["end"][i, spec.depths.index(depth)]
                claims.append(same_mean(text, values, recorded, count=30, rounding=0.005))
    return claims


# --- Registered -------------------------------------------------------------------------------------------------------

EXPERIMENTS = (
    Experiment(
        id="geometry/fig4.2abc",
        source="Figure 4.2(a)-(c)",
        shows="Effective rank over time at infinite depth for several dimensions: from that of a Gaussian matrix down "
        "to about seven tenths of it, in nearly every run.",
        presets={"quick": Dynamics(sizes=(2, 5), horizons=(100.0, 10.0), seeds=40), "paper": Dynamics()},
        run=run_dynamics,
        plot=plot_dynamics,
        claims=claims_dynamics,
        notes="Dimensions, the factor c = 1 and the last times are ours. Two dimensions need ten times as long.",
    ),
    Experiment(
        id="geometry/fig4.2d",
        source="Figure 4.2(d)",
        shows="Mean effective rank of the limit against the dimension at infinite depth: a line of slope about 0.55.",
        presets={"quick": Sizes(sizes=(2, 5, 10), seeds=30), "paper": Sizes()},
        run=run_sizes,
        plot=plot_sizes,
        claims=claims_sizes,
        notes="The caption says 'vs. depth'; the depth is infinite in all runs and the axis is the dimension.",
    ),
    Experiment(
        id="geometry/depth-sweep",
        source="ours, beside Figure 4.2(d)",
        shows="Effective rank of the limit against the depth, for common starts of two sizes: it falls with the depth, "
        "to rank one only from small starts.",
        presets={"quick": Depths(depths=(1, 2, 5, math.inf), deviations=(0.0,), horizon=100.0), "paper": Depths()},
        run=run_depths,
        plot=plot_depths,
        claims=claims_depths,
        notes="The normalised flow, so that times are comparable; the limits are those of the flow of the layers.",
    ),
)
