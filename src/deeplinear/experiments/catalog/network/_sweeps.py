"""In which order, how far apart and how soon modes are learnt, over scales, seeds and depths."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import RESULTS, check_count, check_number
from deeplinear.dynamics import GradientFlow, ensemble, until
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.network._recording import check_network, gaussian, task
from deeplinear.landscape import learning_times
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import Entries, loss, singular_values

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

DIMS = ("depth", "scale", "run")

SMALL, FAR = 0.1, 0.6
"""Scales up to which a start counts as near the origin, and from which on as far from it."""

MARGIN = 0.1
"""A mode begins to rise at this share of its target and has risen within this share of it."""

SAME = 1e-4
"""Relative difference of learning times between a run at rtol 1e-8 in a batch and a single one at 1e-12."""


@dataclasses.dataclass(frozen=True)
class LearningOrder:
    """Gaussian starts over depths, scales and seeds.

    Attributes:
        depths: Numbers of layers.
        scales: Standard deviations of the weights; every seed has the same weights at all scales, up to the factor.
        runs: Seeds for each depth and scale.
        sigma: Singular values of the target, largest first; as many outputs.
        inputs: Width of the input.
        hidden: Width of hidden layers.
        fallen: Runs end when the loss is this share of half the squared norm of the target.
        rtol: Relative tolerance of the flow.
        max_steps: Steps of one flow at most.
        seed: First of the seeds.
    """

    depths: tuple[int, ...] = (2, 3, 4, 5)
    scales: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
    runs: int = 16
    sigma: tuple[float, ...] = (10.0, 8.0, 6.0, 4.0)
    inputs: int = 11
    hidden: int = 6
    fallen: float = 1e-6
    rtol: float = 1e-8
    max_steps: int = 50_000
    seed: int = 0

    def __post_init__(self) -> None:
        where = "LearningOrder"
        if not self.depths or list(self.depths) != sorted(set(self.depths)):
            raise ValueError(f"{where}: depths must hold values that grow, but is {self.depths}.")
        if not self.scales or list(self.scales) != sorted(set(self.scales)):
            raise ValueError(f"{where}: scales must hold values that grow, but is {self.scales}.")
        for depth in self.depths:
            check_count(where, "each of depths", depth, at_least=2)
            check_network(where, self.widths(depth), self.sigma, self.rtol, self.seed, 1.0)
        for scale in self.scales:
            check_number(where, "each of scales", scale, above=0)
        check_number(where, "fallen", self.fallen, above=0, at_most=0.1)
        check_count(where, "runs", self.runs, at_least=1)
        check_count(where, "max_steps", self.max_steps, at_least=1)

    def widths(self, depth: int) -> tuple[int, ...]:
        """Widths of the network of this depth."""
        return (self.inputs, *(self.hidden,) * (depth - 1), len(self.sigma))


def run_order(spec: LearningOrder, context: Context) -> "xarray.Dataset":
    """Learning times of all runs, by singular value and by entry of the product, and when they have converged."""
    import xarray

    modes, level = len(spec.sigma), 0.5 * sum(value**2 for value in spec.sigma)
    shape = (len(spec.scales), spec.runs)
    entries = Entries(range(modes), range(modes), name="strengths")

    def train(depth: int) -> dict[str, np.ndarray]:
        widths = spec.widths(depth)
        seeds = [spec.seed + k for k in range(spec.runs)]
        many = ensemble(
            task(widths, spec.sigma),
            [gaussian(widths, scale, seed) for scale in spec.scales for seed in seeds],
            GradientFlow(spec.rtol),
            every=1,
            until=until(loss, below=spec.fallen * level),
            probes=(loss, singular_values, entries),
            max_steps=spec.max_steps,
            progress=context.watch,
        )
        context.complete(many)
        by_value, by_entry = (
            np.asarray(learning_times(many.times, many[name], np.asarray(spec.sigma))).reshape(*shape, modes)
            for name in ("singular_values", "strengths")
        )
        apart = _apart(many.times, many["singular_values"], np.asarray(spec.sigma))
        finished = np.array([RESULTS(int(code)) is RESULTS.stopped for code in many.results])
        return {
            "learning_time": by_value,
            "entry_time": by_entry,
            "apart": apart.reshape(shape),
            "converged": np.where(finished, many.final_time, np.nan).reshape(shape),
            "evaluations": np.asarray(many.stats["gradient_evaluations"]).reshape(shape),
        }

    found = context.each(train, spec.depths, "depth {}".format)
    stacked = {name: np.stack([one[name] for one in found]) for name in found[0]}
    variables: dict[str, Any] = {
        "learning_time": ((*DIMS, "mode"), stacked["learning_time"], {"long_name": "learning time of a mode"}),
        "entry_time": (
            (*DIMS, "mode"),
            stacked["entry_time"],
            {"long_name": "time at which a diagonal entry of the product reaches half of its target"},
        ),
        "converged": (DIMS, stacked["converged"], {"long_name": f"time at which the loss is {spec.fallen:g} of ½‖Σ‖²"}),
        "evaluations": (DIMS, stacked["evaluations"], {"long_name": "gradient evaluations"}),
        "ordered": (DIMS, _ordered(stacked["entry_time"]), {"long_name": "share of pairs learnt in order"}),
        "apart": (DIMS, stacked["apart"], {"long_name": "mean of wait / (wait + rise)"}),
    }
    coordinates = {"depth": list(spec.depths), "scale": list(spec.scales), "mode": np.arange(1, modes + 1)}
    return xarray.Dataset(variables, coords=coordinates | {"run": spec.seed + np.arange(spec.runs)})


def _ordered(times: np.ndarray) -> np.ndarray:
    """Share of the pairs of modes of which the larger is learnt first; NaN with one mode or where one is not learnt."""
    first, second = np.triu_indices(times.shape[-1], 1)
    if not first.size:
        return np.full(times.shape[:-1], np.nan)
    share = np.mean(times[..., first] < times[..., second], axis=-1)
    return np.where(np.all(np.isfinite(times), axis=-1), share, np.nan)


def _apart(times: np.ndarray, values: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """How far a run is a staircase: mean over neighbouring modes of wait / (wait + rise), for runs (run, time, mode).

    The wait is the time between their learning times. The rise of a mode goes from a tenth of its target to the last
    time it is not within a tenth of it. Near 1 modes are learnt one by one, near 0 all at once.
    """
    waits = np.abs(np.diff(np.asarray(learning_times(times, values, sigma)), axis=-1))
    begin = np.asarray(learning_times(times, values, sigma, fraction=MARGIN))
    outside = np.abs(values - sigma) > MARGIN * sigma
    end = np.max(np.where(outside, times[..., None], 0.0), axis=-2)
    rises = np.maximum(end - begin, 0.0)
    pairs = 0.5 * (rises[..., 1:] + rises[..., :-1])
    if not waits.shape[-1]:
        return np.full(waits.shape[:-1], np.nan)
    return np.mean(waits / np.maximum(waits + pairs, np.finfo(float).tiny), axis=-1)


def plot_order(dataset: "xarray.Dataset", spec: LearningOrder) -> "Figure":
    """Three maps over scale and depth, and the learning times of the deepest network over the scale."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.2 * PANEL[0], 2.0 * PANEL[1] + 0.1 * len(spec.depths)), layout="constrained")
    axes = figure.subplots(2, 2)
    maps = (
        (axes[0, 0], dataset["ordered"].mean("run").to_numpy(), "viridis", "pairs of modes learnt in order", "{:.2f}"),
        (
            axes[0, 1],
            dataset["apart"].mean("run").to_numpy(),
            "viridis",
            "sequentiality, wait / (wait + rise)",
            "{:.2f}",
        ),
        (
            axes[1, 0],
            dataset["converged"].median("run").pipe(np.log10),
            "cividis",
            r"$\log_{10}$ median time",
            "{:.1f}",
        ),
    )
    for axis, array, colours, label, pattern in maps:
        mesh = axis.imshow(array, cmap=colours, aspect="auto", origin="lower")
        figure.colorbar(mesh, ax=axis, label=label)
        axis.grid(False)
        axis.set_xticks(range(len(spec.scales)), [f"{scale:g}" for scale in spec.scales])
        axis.set_yticks(range(len(spec.depths)), [str(depth) for depth in spec.depths])
        axis.set_xlabel("scale of the start")
        axis.set_ylabel("depth")
        middle = 0.5 * (np.nanmin(array) + np.nanmax(array))
        for (row, column), value in np.ndenumerate(array):
            shade = "white" if value < middle else "black"
            axis.text(column, row, pattern.format(value), ha="center", va="center", color=shade, fontsize=7)
    last = axes[1, 1]
    for j in range(dataset.sizes["mode"]):
        times = dataset["learning_time"].isel(depth=-1, mode=j)
        middle = times.median("run")
        shown = np.where(middle > 0, middle, np.nan)
        last.loglog(dataset["scale"], shown, "o-", color=COLOURS[j % 7], label=f"mode {j + 1}")
        low, high = (times.quantile(q, "run") for q in (0.1, 0.9))
        last.fill_between(
            dataset["scale"], np.where(low > 0, low, np.nan), high, color=COLOURS[j % 7], alpha=0.15, linewidth=0
        )
    last.set_xticks(spec.scales, [f"{scale:g}" for scale in spec.scales])
    last.minorticks_off()
    last.set_xlabel("scale of the start")
    last.set_ylabel(f"learning time, depth {spec.depths[-1]}")
    last.legend(loc="lower left")
    return figure


def claims_order(dataset: "xarray.Dataset", spec: LearningOrder) -> list[Claim]:
    """What is said of starts near the origin and far from it."""
    deep = [depth for depth in spec.depths if depth >= 3]
    near = dataset.sel(scale=[s for s in spec.scales if s <= SMALL], depth=deep)
    far = dataset.sel(scale=[s for s in spec.scales if s >= FAR], depth=deep)
    claims = [
        Claim.at_most(
            f"Runs whose loss does not fall to {spec.fallen:g} of its value at the origin",
            float(np.isnan(dataset["converged"]).sum()),
            0,
        )
    ]
    if near["ordered"].size and far["ordered"].size:
        ratio = near["converged"].median("run").max("scale") / far["converged"].median("run").max("scale")
        claims += [
            Claim.at_least(
                "Near the origin modes are typically learnt from the largest to the smallest: mean share of pairs in "
                "order",
                near["ordered"].mean(),
                0.85,
            ),
            Claim.at_least(
                "and one by one: smallest mean over seeds of wait / (wait + rise)", near["apart"].mean("run").min(), 0.6
            ),
            Claim.at_least(
                "Far from the origin there is less order: fall of the mean share of pairs",
                near["ordered"].mean() - far["ordered"].mean(),
                0.05,
            ),
            Claim.at_most(
                "and no hierarchy: largest mean over seeds of wait / (wait + rise)", far["apart"].mean("run").max(), 0.3
            ),
            Claim.at_least(
                f"Convergence is faster far from the origin at depth {deep[-1]}: ratio of median times",
                ratio.isel(depth=-1),
                3.0,
            ),
        ]
    else:
        missing = f"There is no depth from 3 on, or no scale up to {SMALL:g}, or none from {FAR:g} on, in this size."
        claims.append(Claim.untold("Near the origin modes are learnt one by one, far from it at once", "both", missing))
    claims += _escape(dataset, spec) + _recorded(dataset, spec)
    return claims


def _escape(dataset: "xarray.Dataset", spec: LearningOrder) -> list[Claim]:
    """The law of escape: time proportional to the scale to the power 2 - L."""
    deep = [depth for depth in spec.depths if depth >= 3]
    small = [scale for scale in spec.scales if scale <= 2 * SMALL]
    statement = "The first mode is learnt after a time as scale to the power 2 - L: largest difference of the exponent"
    if not deep or len(small) < 2:
        return [Claim.untold(statement, "at most 0.6", f"Fewer than two scales up to {2 * SMALL:g} in this size.")]
    first = dataset["learning_time"].sel(depth=deep, scale=small[:2], mode=1)
    part = np.mean(np.log(first.transpose("depth", "scale", "run").to_numpy()), axis=2)
    slopes = (part[:, 1] - part[:, 0]) / np.log(small[1] / small[0])
    off = float(np.abs(slopes - (2 - np.asarray(deep))).max())
    return [Claim.at_most(statement, off, 0.6, "Between the two smallest scales, means over seeds.")]


def _recorded(dataset: "xarray.Dataset", spec: LearningOrder) -> list[Claim]:
    """The run of Figure 2(a), where it is among these."""
    default = LearningOrder()
    same = (spec.sigma, spec.inputs, spec.hidden) == (default.sigma, default.inputs, default.hidden)
    if not (same and 5 in spec.depths and 0.05 in spec.scales and spec.seed <= 1 < spec.seed + spec.runs):
        return []
    found = dataset["learning_time"].sel(depth=5, scale=0.05, run=1).to_numpy()
    wanted = np.array([26.37520, 40.85424, 80.70975, 268.40177])
    return [
        Claim.at_most(
            "Seed 1 at depth 5 and scale 0.05 is the run of Figure 2(a): largest relative difference of learning times",
            float(np.abs(found / wanted - 1).max()),
            SAME,
        )
    ]


LEARNING_ORDER = Experiment(
    id="network/learning-order",
    source="Section 6.1",
    shows="Modes are learnt in order and one by one near the origin and in depth, and all at once far from it.",
    presets={
        "quick": LearningOrder(depths=(4,), scales=(0.1, 0.2, 0.6), runs=8, rtol=1e-6),
        "paper": LearningOrder(),
        "large": LearningOrder(
            depths=(2, 3, 4, 5, 6), scales=(0.05, 0.07, 0.1, 0.14, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8), runs=64
        ),
    },
    run=run_order,
    plot=plot_order,
    claims=claims_order,
    notes=(
        "The survey shows one trajectory of each kind. Order is judged by the diagonal entries of the product, as "
        "singular values are sorted. A mode rises from a tenth of its target until it stays within a tenth of it; the "
        "wait between two modes is the difference of their learning times."
    ),
)

EXPERIMENTS = (LEARNING_ORDER,)
"""Maps over many starts."""
