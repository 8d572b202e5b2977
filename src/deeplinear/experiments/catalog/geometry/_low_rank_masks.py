"""Effective rank of completions by the number of observed entries: few or nearly all change it little."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.geometry._low_rank_runs import (
    ERRORS,
    OUTCOMES,
    check_spec,
    draw_violins,
    effective_ranks,
    follow,
    gaussian,
    outcomes,
    panels,
    same_mean,
    unconverged,
)
from deeplinear.geometry import Scaled
from deeplinear.models import Completion
from deeplinear.plots import COLOURS

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Masks:
    """Completion of random labels from common starts, for several numbers of observed entries, at infinite depth.

    Attributes:
        size: Dimension.
        observed: Numbers of observed entries.
        labels: Number of label matrices, each with its own order in which entries are observed.
        starts: Number of starts, common to all label matrices.
        bound: Labels are uniform between its negative and itself.
        horizon: Last time.
        gradient: Norm of the gradient to stop at.
        rtol: Relative tolerance.
        seed: Of starts and labels.
    """

    size: int = 10
    observed: tuple[int, ...] = (1, 10, 25, 50, 99)
    labels: int = 12
    starts: int = 50
    bound: float = 2.0
    horizon: float = 100.0
    gradient: float = 1e-4
    rtol: float = 1e-5
    seed: int = 0

    def __post_init__(self) -> None:
        check_spec(
            self,
            counts=("size", "observed", "labels", "starts"),
            numbers=("bound", "horizon", "gradient", "rtol"),
        )
        if max(self.observed) > self.size**2:
            raise ValueError(f"Masks: observed must be at most {self.size**2}, but reaches {max(self.observed)}.")

    def problems(self) -> tuple[np.ndarray, np.ndarray]:
        """Label matrices, and for each the order in which its entries are observed."""
        rng = np.random.default_rng((self.seed, 1))
        labels = rng.uniform(-self.bound, self.bound, (self.labels, self.size, self.size))
        order = np.stack([rng.permutation(self.size**2) for _ in range(self.labels)])
        return labels, order


BY_COUNT = {1: (7.67, 0.28), 10: (5.60, 0.34), 25: (5.23, 0.14), 50: (5.45, 0.17), 75: (5.89, 0.16), 90: (6.45, 0.27)}
BY_COUNT |= {99: (6.87, 0.91)}
"""Mean over label matrices of the mean effective rank at time 100, and standard deviation over them, that were recorded
for 12 label matrices and 10 starts each."""

BEFORE = 8.03
"""Mean effective rank of these starts."""


def run_masks(spec: Masks, context: Context) -> "xarray.Dataset":
    """Effective ranks by number of observed entries, label matrix and start."""
    import xarray

    labels, order = spec.problems()
    start = gaussian(spec.seed, spec.starts, spec.size, 1 / math.sqrt(spec.size))
    shape = (len(spec.observed), spec.labels, spec.starts)
    ranks, losses, largest = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    counts, stiff = np.zeros((shape[0], len(OUTCOMES)), dtype=int), np.zeros(shape[0], dtype=int)
    for k, number in enumerate(spec.observed):
        masks = (np.argsort(order, axis=1) < number).reshape(labels.shape)
        energies = [Scaled(Completion(label, mask), 1.0) for label, mask in zip(labels, masks, strict=True)]
        each = [energy for energy in energies for _ in range(spec.starts)]
        flow, stiff[k] = follow(
            context,
            each,
            np.tile(start, (spec.labels, 1, 1)),
            [0.0, spec.horizon],
            rtol=spec.rtol,
            gradient=spec.gradient,
            stiff=True,
        )
        end = np.asarray(flow.end)
        values = np.linalg.svd(end, compute_uv=False)
        misfit = np.repeat(masks, spec.starts, axis=0) * (end - np.repeat(labels, spec.starts, axis=0))
        ranks[k] = effective_ranks(values).reshape(shape[1:])
        losses[k] = 0.5 * np.sum(misfit**2, axis=(1, 2)).reshape(shape[1:])
        largest[k] = values[:, 0].reshape(shape[1:])
        counts[k] = outcomes(flow.status)
        context.progress((k + 1) / shape[0], f"{number} observed entries")
    dims = ("observed", "labels", "run")
    first = effective_ranks(np.linalg.svd(start, compute_uv=False))
    return xarray.Dataset(
        {
            "start": ("run", first, {"long_name": "effective rank at the start"}),
            "effective_rank": (dims, ranks, {"long_name": "effective rank at the last time"}),
            "loss": (dims, losses, {"long_name": "loss at the last time"}),
            "largest": (dims, largest, {"long_name": "largest singular value at the last time"}),
            "stiff": ("observed", stiff, {"long_name": "runs that went on by the implicit method"}),
            "ended": (("observed", "outcome"), counts, {"long_name": "number of runs"}),
        },
        coords={"observed": list(spec.observed), "outcome": list(OUTCOMES)},
    )


def plot_masks(dataset: "xarray.Dataset", spec: Masks) -> "Figure":
    """Distributions over label matrices of the mean over starts, beside that of the starts."""
    figure, (axis,) = panels(1, 1, height=1.4)
    means = dataset["effective_rank"].mean("run").to_numpy()
    places = list(range(len(spec.observed)))
    draw_violins(axis, list(means), places, COLOURS[0], dots=True)
    axis.plot(places, means.mean(axis=1), color=COLOURS[1], marker="o", linewidth=1.0, label="mean over label matrices")
    axis.axhline(
        float(dataset["start"].mean()), color="#555555", linestyle="dashed", linewidth=1.0, label="at the start"
    )
    axis.set_xticks(places, [str(number) for number in spec.observed])
    axis.set(
        xlabel=f"observed entries of {spec.size**2}",
        ylabel="mean effective rank",
        title=f"{spec.labels} label matrices, {spec.starts} common starts, time {spec.horizon:g}",
    )
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def claims_masks(dataset: "xarray.Dataset", spec: Masks) -> list[Claim]:
    """The U shape, and the recorded means."""
    means = dataset["effective_rank"].mean("run")
    overall = means.mean("labels").to_numpy()
    shares = {number: unconverged(dataset["ended"][k]) for k, number in enumerate(spec.observed)}
    late = ", ".join(f"{number}: {share:.0%}" for number, share in shares.items())
    total = spec.size**2
    ends = [k for k, number in enumerate(spec.observed) if number <= 0.01 * total or number >= 0.99 * total]
    middle = [k for k, number in enumerate(spec.observed) if 0.1 * total <= number <= 0.5 * total]
    claims = []
    text = "U shape: how much higher the mean is with one or all but one observed than with a tenth to a half"
    if len(ends) >= 2 and middle:
        claims.append(
            Claim.at_least(
                text,
                overall[ends].min() - overall[middle].max(),
                0.5,
                f"Runs that have not converged by time {spec.horizon:g}, by number observed: {late}.",
            )
        )
    else:
        claims.append(Claim.untold(text, "at least 0.5", "These numbers are not all there."))
    claims.append(
        Claim.at_most(
            "Attraction to low rank in the middle: highest mean there less that of the starts",
            (overall[middle].max() if middle else math.nan) - float(dataset["start"].mean()),
            -1.0,
        )
    )
    if (spec.size, spec.horizon, spec.bound) == (10, 100.0, 2.0):
        # All label matrices share their starts, whose mean is a source of difference of its own.
        shared = float(dataset["start"].std("run", ddof=1)) * math.sqrt(1 / spec.starts + 1 / 10)
        for k, number in enumerate(spec.observed):
            if number not in BY_COUNT:
                continue
            mean, spread = BY_COUNT[number]
            own = float(means[k].std("labels", ddof=1)) if spec.labels > 1 else math.nan
            error = math.sqrt(own**2 / spec.labels + spread**2 / 12 + shared**2)
            stated = f"{number} observed, mean effective rank: distance from the recorded {mean:g}, in standard errors"
            note = f"Mean {overall[k]:.4g}, standard deviation over label matrices {own:.3g}."
            if spec.labels >= 8 and spec.starts >= 10:
                claims.append(Claim.at_most(stated, abs(overall[k] - mean) / error, ERRORS, note))
            else:
                claims.append(Claim.untold(stated, f"at most {ERRORS:g}", "Too few label matrices or starts."))
        if 99 in spec.observed:
            part = dataset["loss"].sel(observed=99)
            claims.append(
                Claim.between(
                    "All but one observed: median loss at the last time, not zero yet",
                    part.median(),
                    1e-4,
                    0.3,
                    f"Recorded: 0.013. {shares[99]:.0%} have not converged; the largest singular value reaches "
                    f"{float(dataset['largest'].sel(observed=99).max()):.3g}.",
                )
            )
    claims.append(same_mean("Mean effective rank of the starts", dataset["start"], BEFORE, count=10, rounding=0.005))
    return claims


EXPERIMENTS = (
    Experiment(
        id="geometry/fig4.4",
        source="Figure 4.4",
        shows="Distributions over random label matrices of the mean effective rank reached from common starts in ten "
        "dimensions at infinite depth, by the number of observed entries: a U shape.",
        presets={
            "quick": Masks(observed=(1, 10, 50, 99), labels=4, starts=8, horizon=10.0),
            "paper": Masks(),
            "large": Masks(labels=50),
        },
        run=run_masks,
        plot=plot_masks,
        claims=claims_masks,
        notes="The thesis says 'masked' for observed entries. The number of label matrices, the last time, 100, and "
        "the variance of the starts, 1/10, are ours. With all but one entry observed most runs have not converged by "
        "then: a small singular value must grow again, or the one free entry runs away.",
    ),
)
