"""Trajectories of the survey's network: from near the origin, from far away, and nearly balanced."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import check_number
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.network._recording import (
    WIDTHS,
    beside,
    check_network,
    draw_run,
    follow,
    gaussian,
    imbalance,
    observe,
    panels,
    read_off,
)
from deeplinear.plots import COLOURS

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

CLOSE = 0.005
"""Relative, of times."""

FALLEN = 1e-6
"""Share of the loss at the start at which a run counts as converged."""

FITTED = 1e-18
"""Share of the loss at the origin at which runs that are compared end."""

LEVEL = 0.01
"""Relative distance of the loss on a plateau from its level."""

LARGE = 1000.0
"""Factor between the largest and the smallest Hessian eigenvalue from which on a plateau counts as nearly convex."""


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """One Gaussian start.

    Attributes:
        widths: Input width first; no layer narrower than the output.
        sigma: Singular values of the target, largest first.
        scale: Standard deviation of the weights.
        horizon: Where the run ends.
        rtol: Relative tolerance of the flow.
        seed: Of the weights.
    """

    widths: tuple[int, ...] = WIDTHS
    sigma: tuple[float, ...] = (10.0, 8.0, 6.0, 4.0)
    scale: float = 0.05
    horizon: float = 330.0
    rtol: float = 1e-10
    seed: int = 1

    def __post_init__(self) -> None:
        check_network("Gaussian", self.widths, self.sigma, self.rtol, self.seed, self.horizon)
        check_number("Gaussian", "scale", self.scale, above=0)


@dataclasses.dataclass(frozen=True)
class Balanced:
    r"""One Gaussian start, scaled so that the largest $\|C_l\|_F$ is $\delta$.

    Attributes:
        sigma: Singular values of the target, largest first.
        delta: $\delta$.
        horizon: Where the run ends.
        widths: Input width first; no layer narrower than the output.
        rtol: Relative tolerance of the flow.
        seed: Of the weights.
    """

    sigma: tuple[float, ...]
    horizon: float
    delta: float = 0.04
    widths: tuple[int, ...] = WIDTHS
    rtol: float = 1e-10
    seed: int = 1

    def __post_init__(self) -> None:
        check_network("Balanced", self.widths, self.sigma, self.rtol, self.seed, self.horizon)
        check_number("Balanced", "delta", self.delta, above=0)


@dataclasses.dataclass(frozen=True)
class Far:
    """One Gaussian start far from the origin, and the same weights at other scales.

    Attributes:
        widths: Input width first; no layer narrower than the output.
        sigma: Singular values of the target, largest first.
        scale: Standard deviation of the weights of the trajectory that is shown.
        scales: Those of the others; the first is the one near the origin that it is compared with.
        horizon: Where the run that is shown ends.
        longest: Where the others end at the latest.
        rtol: Relative tolerance of the flow.
        seed: Of the weights.
    """

    widths: tuple[int, ...] = WIDTHS
    sigma: tuple[float, ...] = (10.0, 8.0, 6.0, 4.0)
    scale: float = 0.6
    scales: tuple[float, ...] = (0.05, 0.3, 0.6, 0.8, 1.0, 1.3)
    horizon: float = 20.0
    longest: float = 330.0
    rtol: float = 1e-10
    seed: int = 1

    def __post_init__(self) -> None:
        check_network("Far", self.widths, self.sigma, self.rtol, self.seed, self.horizon)
        check_number("Far", "longest", self.longest, above=0)
        for scale in (self.scale, *self.scales):
            check_number("Far", "scale and each of scales", scale, above=0)
        if len(self.scales) < 2 or list(self.scales) != sorted(set(self.scales)):
            raise ValueError(f"Far: scales must hold at least two values that grow, but is {self.scales}.")


def _same(spec: object, preset: object) -> bool:
    """Whether recorded numbers speak of a spec: it is the preset, whatever the tolerance."""
    return dataclasses.replace(spec, rtol=preset.rtol) == preset  # type: ignore[attr-defined, type-var]


# --- Near the origin --------------------------------------------------------------------------------------------------


def run_near(spec: Gaussian, context: Context) -> "xarray.Dataset":
    """The flow and everything that is watched along it."""
    start = gaussian(spec.widths, spec.scale, spec.seed)
    return observe(follow(context, spec.widths, spec.sigma, start, spec.horizon, spec.rtol))


def run_balanced(spec: Balanced, context: Context) -> "xarray.Dataset":
    """The flow and everything that is watched along it."""
    drawn = gaussian(spec.widths, 1.0, spec.seed)
    start = [np.sqrt(spec.delta / imbalance(drawn)) * layer for layer in drawn]
    return observe(follow(context, spec.widths, spec.sigma, start, spec.horizon, spec.rtol))


def plot_near(dataset: "xarray.Dataset", spec: Gaussian | Balanced) -> "Figure":
    """Loss, norms, singular values of the product and of the layers, misalignment, drift."""
    figure, axes = panels(3)
    draw_run(axes, dataset)
    return figure


def _sequential(dataset: "xarray.Dataset", spec: Gaussian | Balanced) -> list[Claim]:
    """What is said of every start near the origin."""
    learnt = dataset["learning_time"].to_numpy()
    statement = "The modes are learnt one after the other, the largest first: smallest time between two of them"
    if not np.all(np.isfinite(learnt)):
        short = f"Not all modes are learnt by {spec.horizon:g}: a longer horizon would tell."
        return [Claim.untold(statement, "at least 0", short)]
    gaps = abs(dataset["rest_loss"] - dataset["level"]).to_numpy()
    levels = dataset["level"].to_numpy()
    low, high = dataset["middle_curvature"].to_numpy().T
    values = np.sort(dataset["layer_singular_values"].isel(time=-1).to_numpy().ravel())
    values = values[np.isfinite(values)][::-1]
    count = len(spec.sigma) * (len(spec.widths) - 1)
    norms = dataset["norm"].to_numpy()
    return [
        Claim.at_least(statement, float(np.diff(learnt).min()), 0.0),
        Claim.at_most(
            "Where the gradient is smallest between two modes the loss is half the sum of the squares still to be "
            "learnt: largest relative distance",
            float((gaps[:-1] / levels[:-1]).max()),
            LEVEL,
        ),
        Claim.at_most(
            "Halfway along a plateau the landscape is nearly flat or convex: most negative Hessian eigenvalue over the "
            "largest",
            float((-low / high).max()),
            1 / LARGE,
        ),
        Claim.at_most(
            "A mode that is learnt stays: largest distance of a singular value of the product from its target from the "
            "middle of its plateau on, over the target",
            float((dataset["moved_value"] / dataset["sigma"]).max()),
            1e-5,
            "It is largest while the next mode but one is learnt.",
        ),
        Claim.at_most(
            "Its singular vectors stay too: largest 1 - |cos| from the middle of the plateau on",
            float(dataset["moved_vector"].max()),
            1e-6 if min(-np.diff(spec.sigma)) > 1 else 1e-3,
        ),
        Claim.at_least("The norm of the weights grows: factor from start to end", norms[-1] / norms[0], 1.0),
        Claim.at_most("The loss at the end", dataset["loss"][-1], 1e-20),
        Claim.at_least(
            f"The layers have {count} large singular values, the others are small: ratio of the last large one to the "
            "next",
            values[count - 1] / values[count],
            5.0,
        ),
        Claim.at_most(
            "The conserved quantities stay: largest drift",
            float(dataset["drift"].max()),
            max(1e-9, 10 * spec.rtol),
            "A measure of the error of the integration.",
        ),
    ]


def _times(dataset: "xarray.Dataset", exact: Sequence[float], records: int, read: Sequence[float]) -> list[Claim]:
    """Learning times beside those of a run at rtol 1e-12, and beside those read from equidistant records."""
    learnt = dataset["learning_time"].to_numpy()
    words = ", ".join(f"{time:g}" for time in exact)
    claims = [
        Claim.at_most(
            f"The learning times are {words}: largest relative difference",
            float(np.max(np.abs(learnt / np.asarray(exact) - 1))),
            CLOSE,
            "The times of a run at rtol 1e-12.",
        )
    ]
    words = ", ".join(f"{time:g}" for time in read)
    difference = float(np.max(np.abs(read_off(dataset, records) / np.asarray(read) - 1)))
    return [
        *claims,
        Claim.at_most(
            f"Read from {records} records at equal distances they are {words}: largest relative difference",
            difference,
            CLOSE,
            "Interpolation between records that are far apart moves a time by up to a third of their distance.",
        ),
    ]


def _near(statement: str, measured: object, value: float, slack: float) -> Claim:
    """A recorded number, to the digits it is given with."""
    return Claim.between(statement, float(measured), value - slack, value + slack)  # type: ignore[arg-type]


def claims_near(dataset: "xarray.Dataset", spec: Gaussian) -> list[Claim]:
    """What is said of the start near the origin."""
    claims = _sequential(dataset, spec)
    if not _same(spec, Gaussian()):
        return claims
    norms, last = dataset["norm"].to_numpy(), dataset["alignment"].isel(time=-1, top=-1).to_numpy()
    values = np.sort(dataset["layer_singular_values"].isel(time=-1).to_numpy().ravel())
    values = values[np.isfinite(values)][::-1]
    gaps = abs(dataset["middle_loss"] - dataset["level"]).to_numpy()
    low, high = dataset["middle_curvature"].to_numpy().T
    rests = abs(dataset["rest_loss"] - dataset["level"]).to_numpy()
    return [
        *claims,
        *_times(dataset, (26.37520, 40.85424, 80.70975, 268.40177), 1321, (26.3748, 40.9107, 80.6342, 268.3677)),
        _near("The start is δ-balanced with δ", dataset["imbalance"], 0.0529, 5e-5),
        _near("Norm of the weights at the start", norms[0], 0.653, 5e-4),
        _near("Norm of the weights at the end", norms[-1], 6.559, 5e-4),
        Claim.at_most("Plateaus at 58, 26 and 8: largest distance of the loss", float(rests[:-1].max()), 2e-3),
        Claim.at_most(
            "Halfway along a plateau the singular values of learnt modes are those of the target: largest distance",
            float(dataset["moved_value_at_rest"].max()),
            1.2e-7,
            "Recorded as 1.2e-7, with 2.3e-8 for 1 - |cos|, from then on: that holds halfway along the plateaus. While "
            "further modes are learnt a singular value moves by 2e-5, or 2e-6 of its size, and 1 - |cos| reaches 3e-7.",
        ),
        Claim.at_most("Distance halfway along the first plateau", gaps[0], 2e-3),
        Claim.at_most("Distance halfway along the second plateau", gaps[1], 3.2e-4),
        Claim.at_most("Distance halfway along the third plateau", gaps[2], 3.2e-5),
        _near("Smallest Hessian eigenvalue halfway along the first plateau", low[0], -0.19, 0.01),
        _near("Smallest Hessian eigenvalue halfway along the second plateau", low[1], -0.07, 0.01),
        _near("Smallest Hessian eigenvalue halfway along the third plateau", low[2], -0.015, 0.001),
        Claim.at_most("All modes learnt: distance of the loss from zero halfway to the horizon", gaps[3], 1e-12),
        Claim.at_least("All modes learnt: smallest Hessian eigenvalue halfway to the horizon", low[3], -1e-6),
        _near("Largest Hessian eigenvalue there", high[3], 199.0, 0.5),
        Claim.at_most(
            "Misalignment of neighbouring layers at the end is 0.0045, 0.0038, 0.0052, 0.0101: largest difference",
            float(np.abs(last - [0.0045, 0.0038, 0.0052, 0.0101]).max()),
            1e-4,
        ),
        Claim.at_least("The twentieth singular value of the layers at the end", values[19], 1.31),
        Claim.at_most("The next one", values[20], 0.10),
        _near("Their ratio", values[19] / values[20], 13.6, 0.05),
    ]


# --- Far from the origin ----------------------------------------------------------------------------------------------


def _fallen(times: np.ndarray, losses: np.ndarray) -> float:
    """When the loss has fallen to a millionth of what it was; geometric between records."""
    below = np.flatnonzero(losses <= FALLEN * losses[0])
    if not below.size:
        return float("nan")
    k = int(below[0])
    share = np.log(losses[k - 1] / (FALLEN * losses[0])) / np.log(losses[k - 1] / losses[k])
    return float(times[k - 1] + share * (times[k] - times[k - 1]))


def run_far(spec: Far, context: Context) -> "xarray.Dataset":
    """The trajectory that is shown, and norms along those from the other scales."""
    start = gaussian(spec.widths, spec.scale, spec.seed)
    dataset = observe(follow(context, spec.widths, spec.sigma, start, spec.horizon, spec.rtol))
    grid = np.concatenate([[0.0], np.geomspace(1e-5, spec.longest, 400)])
    fitted = FITTED * 0.5 * sum(value**2 for value in spec.sigma)

    def compare(scale: float) -> tuple[np.ndarray, float, float, float]:
        start = gaussian(spec.widths, scale, spec.seed)
        run = follow(context, spec.widths, spec.sigma, start, spec.longest, spec.rtol, fitted)
        norms = run.norm
        return np.interp(grid, run.times, norms), norms[0], norms[-1], _fallen(run.times, run.loss)

    curves, first, last, fallen = zip(*context.each(compare, spec.scales, "scale {:g}".format), strict=True)
    return dataset.assign(
        {
            "sweep_norm": (("scale", "sweep_time"), np.stack(curves)),
            "sweep_first": ("scale", list(first)),
            "sweep_last": ("scale", list(last)),
            "sweep_fallen": ("scale", list(fallen)),
            "fallen": ((), _fallen(dataset["time"].to_numpy(), dataset["loss"].to_numpy())),
        }
    ).assign_coords(scale=list(spec.scales), sweep_time=grid)


def plot_far(dataset: "xarray.Dataset", spec: Far) -> "Figure":
    """The six panels of a trajectory on a logarithmic axis of time, and the norms from other scales."""
    figure, axes = panels(4)
    draw_run(axes, dataset, logarithmic=True)
    curves, ends = axes[6:]
    for k, scale in enumerate(spec.scales):
        part = dataset["sweep_norm"][k]
        curves.semilogx(dataset["sweep_time"][1:], part[1:] / part[0], color=COLOURS[k % 7], label=f"scale {scale:g}")
    curves.axhline(1.0, color="0.55", linewidth=0.8, zorder=1)
    curves.set_ylim(0.9, 2.0)
    curves.set_xlabel("time")
    curves.set_ylabel(r"$\|A(t)\|_F / \|A(0)\|_F$")
    beside(curves)
    ends.plot(dataset["scale"], dataset["sweep_first"], "o-", color=COLOURS[0], label="start")
    ends.plot(dataset["scale"], dataset["sweep_last"], "s-", color=COLOURS[1], label="end")
    ends.set_xlabel("scale of the start")
    ends.set_ylabel(r"$\|A\|_F$")
    beside(ends)
    return figure


def claims_far(dataset: "xarray.Dataset", spec: Far) -> list[Claim]:
    """What is said of the start far from the origin."""
    learnt, norms = dataset["learning_time"].to_numpy(), dataset["norm"].to_numpy()
    whole = dataset["product_norm"].to_numpy()
    growth = (dataset["sweep_last"] / dataset["sweep_first"]).to_numpy()
    fallen = dataset["sweep_fallen"].to_numpy()
    last = dataset["alignment"].isel(time=-1, top=-1).to_numpy()
    first = dataset["alignment"].isel(time=0, top=-1).to_numpy()
    claims = [
        Claim.at_most("There is no hierarchy: time at which the last mode is learnt", learnt.max(), 0.1),
        Claim.at_least(
            f"Convergence is orders of magnitude faster than near the origin (scale {spec.scales[0]:g}): ratio of the "
            "times at which the loss has fallen by a million",
            fallen[0] / float(dataset["fallen"]),
            100.0,
        ),
        Claim.at_least("The norm of the weights first falls: start over smallest", norms[0] / norms.min(), 1.001),
        Claim.at_least("Then it grows: end over smallest", norms[-1] / norms.min(), 1.001),
        Claim.at_least(
            "The norm of the product falls and grows although the loss only falls: the smaller of start and end over "
            "the smallest",
            min(whole[0], whole[-1]) / whole.min(),
            1.5,
            "In print it is monotone, as the loss is.",
        ),
        Claim.at_most("The loss only falls: largest rise", float(np.diff(dataset["loss"]).max()), 1e-12),
        Claim.at_least(
            "The layers do not align: mean misalignment at the end over that at the start",
            last.mean() / first.mean(),
            0.9,
        ),
        Claim.at_least(
            f"From scale {spec.scales[0]:g} the norm of the weights ends higher: end over start", growth[0], 1.0
        ),
        Claim.at_most(f"From scale {spec.scales[-1]:g} it ends lower: end over start", growth[-1], 1.0),
    ]
    if not _same(spec, Far()):
        return claims
    values = np.sort(dataset["layer_singular_values"].isel(time=-1).to_numpy().ravel())
    values = values[np.isfinite(values)][::-1]
    pairs = dict(
        zip(
            spec.scales,
            zip(dataset["sweep_first"].to_numpy(), dataset["sweep_last"].to_numpy(), strict=True),
            strict=True,
        )
    )
    wanted = {0.3: (3.918, 6.770), 0.8: (10.449, 10.152), 1.0: (13.061, 12.266), 1.3: (16.979, 15.664)}
    off = max(
        abs(found / value - 1) for scale in wanted for found, value in zip(pairs[scale], wanted[scale], strict=True)
    )
    return [
        *claims,
        Claim.at_most(
            "Two modes are above half of their target at the start: their learning times", learnt[:2].max(), 0.0
        ),
        _near("Learning time of the third mode", learnt[2], 0.02, 0.005),
        _near("Learning time of the fourth mode", learnt[3], 0.08, 0.01),
        _near("Time at which the loss has fallen by a million", dataset["fallen"], 1.13, 0.03),
        _near("Norm of the weights at the start", norms[0], 7.836, 5e-4),
        _near("Smallest norm of the weights", norms.min(), 7.612, 5e-4),
        _near("Norm of the weights at the end", norms[-1], 8.228, 5e-4),
        _near("Norm of the product at the start", whole[0], 13.79, 5e-3),
        _near("Smallest norm of the product", whole.min(), 5.81, 5e-3),
        _near("Norm of the product at the end", whole[-1], 14.70, 5e-3),
        Claim.at_most(
            "Misalignment of neighbouring layers at the end is 4.7, 1.5, 5.5, 2.2: largest difference",
            float(np.abs(last - [4.7, 1.5, 5.5, 2.2]).max()),
            0.05,
        ),
        _near(
            "No bias to low rank: ratio of the singular values 20 and 21 of the layers",
            values[19] / values[20],
            1.0,
            5e-3,
        ),
        Claim.at_most(
            "Norms at start and end from the scales 0.3, 0.8, 1, 1.3: largest relative difference", off, 5e-4
        ),
        Claim.at_most(
            "Scales from 0.8 on end lower, 0.3 and 0.6 higher: number of exceptions",
            sum((scale < 0.7) != (end > begin) for scale, (begin, end) in pairs.items()),
            0,
        ),
    ]


# --- Nearly balanced --------------------------------------------------------------------------------------------------

SPREAD = Balanced((8.5, 7.0, 5.5, 4.0), 520.0)
PAIRS = Balanced((8.0, 7.9, 5.0, 4.9), 500.0)


def _overlaps(dataset: "xarray.Dataset") -> tuple[float, float]:
    """Largest overlap at the end of what one layer writes and the next reads: in other pairs of modes, within pairs."""
    overlap = dataset["overlap"].to_numpy().copy()
    modes = overlap.shape[-1]
    overlap[:, range(modes), range(modes)] = 0
    pair = np.arange(modes) // 2
    within = pair[:, None] == pair
    return float(overlap[:, ~within].max()), float(overlap[:, within].max())


def _synchrony(dataset: "xarray.Dataset") -> float:
    """Largest difference at the end between the leading singular values of the layers."""
    values = dataset["layer_singular_values"].isel(time=-1).to_numpy()[:, : dataset.sizes["mode"]]
    return float(np.ptp(values, axis=0).max())


def _delta(dataset: "xarray.Dataset", spec: Balanced) -> list[Claim]:
    return [
        Claim.at_most("The start is δ-balanced: distance from δ", abs(float(dataset["imbalance"]) - spec.delta), 1e-12),
        *_sequential(dataset, spec),
    ]


def claims_spread(dataset: "xarray.Dataset", spec: Balanced) -> list[Claim]:
    """What is said of the nearly balanced start with singular values at equal distances."""
    claims = _delta(dataset, spec)
    last = dataset["alignment"].isel(time=-1, top=-1).to_numpy()
    across, within = _overlaps(dataset)
    if np.all(np.isfinite(dataset["learning_time"])):
        claims.append(Claim.at_most("Neighbouring layers are aligned at the end: mean misalignment", last.mean(), 0.05))
    if not _same(spec, SPREAD):
        return claims
    return [
        *claims,
        *_times(dataset, (46.13091, 67.65559, 137.76964, 426.45791), 261, (47.0, 67.2, 137.0, 427.0)),
        _near("Mean misalignment at the end", last.mean(), 0.0058, 5e-5),
        Claim.at_most(
            "Largest overlap at the end of what a layer writes and the next reads in another mode",
            max(across, within),
            0.0575,
        ),
        Claim.at_most(
            "Leading singular values of the layers at the end: largest difference", _synchrony(dataset), 0.0085
        ),
    ]


def claims_pairs(dataset: "xarray.Dataset", spec: Balanced) -> list[Claim]:
    """What is said of the nearly balanced start with singular values in two close pairs."""
    claims = _delta(dataset, spec)
    if not np.all(np.isfinite(dataset["learning_time"])) or len(spec.sigma) != 4:
        return claims
    two = dataset["middle_alignment"].sel(top=2).to_numpy()
    four = dataset["middle_alignment"].sel(top=4).to_numpy()
    across, within = _overlaps(dataset)
    claims += [
        Claim.at_least(
            "The second mode, close to the first, moves the layers away from alignment: change of the mean m(2)",
            two[1] - two[0],
            0.0,
        ),
        Claim.at_most(
            "The third mode, which is new, moves them towards it: change of the mean m(4)", four[2] - four[1], 0.0
        ),
        Claim.at_least(
            "The fourth, close to the third, moves them away again: change of the mean m(4)", four[3] - four[2], 0.0
        ),
        Claim.at_most("Vectors of different pairs are nearly orthogonal at the end: largest overlap", across, 0.1),
    ]
    if not _same(spec, PAIRS):
        return claims
    return [
        *claims,
        *_times(dataset, (46.19406, 71.58162, 135.31887, 393.15187), 261, (47.0, 72.1, 135.6, 393.3)),
        _near("Mean m(2) after mode 1", two[0], 0.002, 5e-4),
        _near("Mean m(2) after mode 2", two[1], 0.407, 5e-4),
        _near("Mean m(4) after mode 2", four[1], 1.03, 0.01),
        _near("Mean m(4) after mode 3", four[2], 0.52, 0.01),
        _near("Mean m(4) after mode 4", four[3], 0.83, 0.01),
        Claim.at_most("Largest overlap at the end between vectors of different pairs", across, 0.0415),
        _near("Largest overlap at the end within a pair", within, 0.76, 0.01),
        Claim.at_most(
            "Leading singular values of the layers at the end: largest difference", _synchrony(dataset), 0.008
        ),
    ]


LOOSE = 1e-8
"""Tolerance of the quick size: learning times are right to five digits."""

NOTES = (
    "The survey gives the widths; singular values, scale, seed and horizon are ours. The learning time of a mode is "
    "when the singular value of the product reaches half of its target. Steps are recorded one by one."
)

FIG2A = Experiment(
    id="network/fig2a",
    source="Figure 2(a)",
    shows="From near the origin the modes are learnt one by one, from saddle to saddle, and the layers align.",
    presets={"quick": Gaussian(rtol=LOOSE), "paper": Gaussian()},
    run=run_near,
    plot=plot_near,
    claims=claims_near,
    notes=NOTES,
)

FIG2B = Experiment(
    id="network/fig2b",
    source="Figure 2(b)",
    shows="From far away all modes are learnt at once and fast; the layers do not align and no rank is low.",
    presets={"quick": Far(scales=(0.05, 0.3, 0.6, 0.8), rtol=LOOSE), "paper": Far()},
    run=run_far,
    plot=plot_far,
    claims=claims_far,
    notes=NOTES + " Other scales stop once the loss is 1e-18 of half the squared norm of the target.",
)

FIG3A = Experiment(
    id="network/fig3a",
    source="Figure 3(a)",
    shows="A nearly balanced start with singular values at distance 1.5: one mode after the other, layers align.",
    presets={"quick": dataclasses.replace(SPREAD, rtol=LOOSE), "paper": SPREAD},
    run=run_balanced,
    plot=plot_near,
    claims=claims_spread,
    notes=NOTES,
)

FIG3B = Experiment(
    id="network/fig3b",
    source="Figure 3(b)",
    shows="With two pairs of close singular values the layers align for each new pair and part again within it.",
    presets={"quick": dataclasses.replace(PAIRS, rtol=LOOSE), "paper": PAIRS},
    run=run_balanced,
    plot=plot_near,
    claims=claims_pairs,
    notes=NOTES,
)

EXPERIMENTS = (FIG2A, FIG2B, FIG3A, FIG3B)
"""The survey's trajectories."""
