r"""General students of a balanced teacher: nothing is symmetric or balanced at the start but nearly zero.

The entries of $A$, $B$, $C$ are independent and small. The error falls with the training length as that of balanced
students does, though without a sharp step; the larger the start, the longer the sequences that are needed.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import check_number
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.rnn._balanced import NOTES, SOLVED, check_training, drawn
from deeplinear.experiments.catalog.rnn._curves import draw_baseline, draw_losses, draw_ratios, finish_panels
from deeplinear.experiments.catalog.rnn._training import (
    adam,
    grid,
    labelled,
    measured,
    population_losses,
    subspace,
    summaries,
    train,
)
from deeplinear.models import LinearRNN
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

RATE = 1e-3
"""Learning rate of the paper. Adam moves every entry by about that much at its first steps, so that scales below it
are forgotten."""


@dataclasses.dataclass(frozen=True)
class General:
    """General students over training lengths and scales of the start; errors up to each of the horizons."""

    states: int = 40
    scales: tuple[float, ...] = (1e-5,)
    teacher: int = 5
    lengths: tuple[int, ...] = (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20)
    draws: int = 3
    steps: int = 15_000
    lr: float = RATE
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    shorter: int = 30
    horizon: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        check_training("General", self)
        for scale in self.scales:
            check_number("General", "each of scales", scale, above=0)
        if not self.lengths[-1] < self.shorter <= self.horizon:
            raise ValueError(
                f"General: shorter must lie above the last length, {self.lengths[-1]}, and not beyond the horizon, "
                f"{self.horizon}, but is {self.shorter}."
            )


def run_general(spec: General, context: Context) -> "xarray.Dataset":
    """Errors up to both horizons, losses and balance, by scale, training length and draw."""
    import xarray

    axes = {"scale": spec.scales, "length": spec.lengths, "draw": range(spec.draws)}
    members = grid(**axes)
    model = LinearRNN(spec.states, spec.lengths[-1])
    found = [drawn(spec, model, scale) for scale in spec.scales]
    targets = found[0][0][members["draw"]]
    students = train(
        model,
        [starts[i] for _, starts, _ in found for _ in spec.lengths for i in range(spec.draws)],
        population_losses(targets, members["length"], model.length),
        targets,
        members["length"],
        adam(spec.lr, spec.milestones, spec.factor),
        steps=spec.steps,
        context=context,
    )
    horizons = list(dict.fromkeys((spec.shorter, spec.horizon)))
    fixed = (students.balance, students.steps, students.broken, students.order)
    lengths, few = members["length"], {name: axes[name] for name in ("length", "draw")}
    first = slice(0, len(spec.lengths) * spec.draws)
    parts = []
    for horizon in horizons:
        again = measured(students.response[:, :horizon], targets[:, :horizon], lengths, *fixed)
        baseline = subspace(targets[first, :horizon], lengths[first])
        parts.append(labelled(again, axes).merge(labelled(baseline, few, prefix="subspace_")))
    return xarray.concat(parts, dim="horizon").assign_coords(horizon=horizons)


def plot_general(dataset: "xarray.Dataset", spec: General) -> "Figure":
    """Above the extrapolation error up to either horizon, below the training loss."""
    from matplotlib.figure import Figure

    horizons = dataset["horizon"].to_numpy()
    figure = Figure(figsize=(PANEL[0] * max(len(horizons), 1.5), 2.3 * PANEL[1]), layout="constrained")
    axes: Any = figure.subplots(2, len(horizons), sharex=True, sharey="row", squeeze=False)
    for column, horizon in enumerate(horizons):
        top, bottom = axes[:, column]
        one = dataset.sel(horizon=horizon)
        for place, scale in enumerate(spec.scales):
            label, colour = f"scale {scale:g}", COLOURS[place % len(COLOURS)]
            draw_ratios(top, one["ratio"].sel(scale=scale), colour, label, mean=len(spec.scales) < 3)
            draw_losses(bottom, one["loss"].sel(scale=scale), colour, label)
        draw_baseline(top, one["subspace_ratio"])
        finish_panels(top, bottom, 2 * spec.teacher)
        top.set_title(f"horizon {horizon}")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, columnspacing=1.0)
    axes[0, 0].set_ylabel(r"extrapolation error $E/E_0$")
    axes[1, 0].set_ylabel(r"training loss $\sum_{j<k}r_j^2$")
    words = (f"general student of {spec.states} states;", f"line: median of {spec.draws} draws; band: all of them")
    figure.supxlabel((" " if len(horizons) > 1 else "\n").join(words), fontsize=7.5)
    return figure


def _largest_loss(dataset: "xarray.Dataset", bound: float) -> Claim:
    fitted = dataset["loss"].isel(horizon=0).median("draw").max()
    return Claim.at_most("Largest median training loss (sum of squares)", fitted, bound)


def _baseline(dataset: "xarray.Dataset", spec: General) -> list[Claim]:
    enough = [k for k in spec.lengths if k >= 2 * spec.teacher]
    if not enough:
        return []
    largest = dataset["subspace_ratio"].median("draw").sel(length=enough).max()
    return [Claim.at_most("Ho–Kalman has the teacher from k = 2d̂ on: largest median E/E₀", largest, SOLVED)]


def claims_near_zero(dataset: "xarray.Dataset", spec: General) -> list[Claim]:
    """The error falls with the length, from that of the zero student to a few per cent."""
    medians = dataset["ratio"].isel(scale=0).median("draw")
    near = medians.sel(horizon=spec.shorter)
    falls = medians.diff("length")
    first, last, whole = spec.lengths[0], spec.lengths[-1], spec.steps >= 15_000
    claims = [
        Claim.at_most(
            "Median E/E₀ never rises by more than a tenth from one length to the next: largest rise", falls.max(), 0.1
        ),
        Claim.at_least(f"Median E/E₀ at k = {first} over k = {last}", near[0] / near[-1], 5.0 if whole else 3.0),
        Claim.at_most(f"Median E/E₀ at k = {last}, horizon {spec.shorter}", near[-1], 0.1 if whole else 0.2),
    ]
    if 10 in spec.lengths:
        claims.append(Claim.at_most(f"… at k = 10, horizon {spec.shorter}", near.sel(length=10), 0.5))
    balance = dataset["balance"].isel(horizon=0, scale=0)
    claims.append(Claim.at_most("Distance from balance at the end, largest of all", balance.max(), 0.2))
    return [*claims, _largest_loss(dataset, 0.01), *_baseline(dataset, spec)]


def claims_scales(dataset: "xarray.Dataset", spec: General) -> list[Claim]:
    """A larger start needs longer sequences; starts below the learning rate are alike."""
    errors = dataset["error"].sel(horizon=spec.shorter).median("draw")

    def at(scale: float, length: int) -> float:
        return float(errors.sel(scale=scale, length=length))

    claims = []
    if {0.01, 0.1, 0.2} <= set(spec.scales) and 10 in spec.lengths:
        whole = "medians of the error at k = 10"
        claims += [
            Claim.at_least(f"Scale 0.2 over scale 0.1, {whole}", at(0.2, 10) / at(0.1, 10), 10.0),
            Claim.at_least(f"Scale 0.1 over scale 0.01, {whole}", at(0.1, 10) / at(0.01, 10), 1.5),
        ]
    if {1e-3, 1e-2} <= set(spec.scales):
        apart = np.median(np.abs(np.log(errors.sel(scale=1e-3) / errors.sel(scale=1e-2))))
        claims.append(
            Claim.at_most("Scales 0.001 and 0.01 differ by a factor (median over lengths)", np.exp(apart), 1.5)
        )
    needed = [_needed(dataset, spec, scale) for scale in spec.scales]
    claims.append(
        Claim.at_least(
            "Length from which on median E/E₀ stays below ½: largest scale minus smallest", needed[-1] - needed[0], 1.0
        )
    )
    return [*claims, *_baseline(dataset, spec)]


def _needed(dataset: "xarray.Dataset", spec: General, scale: float) -> int:
    """First length from which on the median stays below one half; one beyond the last if there is none."""
    medians = summaries(dataset["ratio"].sel(horizon=spec.shorter, scale=scale))["median"].to_numpy()
    above = np.flatnonzero(medians >= 0.5)
    place = int(above[-1]) + 1 if above.size else 0
    return spec.lengths[place] if place < len(spec.lengths) else spec.lengths[-1] + 1


SCALES = General(
    scales=(1e-3, 1e-2, 5e-2, 1e-1, 1.5e-1, 2e-1),
    lengths=(4, 6, 8, 10, 12, 16, 20),
    steps=20_000,
    milestones=(5000, 10_000, 15_000, 30_000),
    shorter=30,
    horizon=30,
)

EXPERIMENTS = (
    Experiment(
        id="rnn/fig3a",
        source="Figure 3, left",
        shows="General students of a balanced teacher, from near zero: the error falls as that of balanced ones.",
        presets={
            "quick": General(states=20, lengths=(3, 6, 10, 20), steps=6000),
            "paper": General(),
        },
        run=run_general,
        plot=plot_general,
        claims=claims_near_zero,
        notes=NOTES + " With a general student the error falls steadily rather than by a step.",
    ),
    Experiment(
        id="rnn/fig4",
        source="Figure 4",
        shows="The larger the start, the longer the sequences that a general student needs.",
        presets={
            "quick": dataclasses.replace(
                SCALES, scales=(1e-2, 1e-1, 2e-1), lengths=(6, 10, 16), steps=2000, lr=2e-3, milestones=(1000, 1500)
            ),
            "paper": SCALES,
        },
        run=run_general,
        plot=plot_general,
        claims=claims_scales,
        notes=NOTES
        + " The scales are ours. At 0.2 the transition matrix begins with a spectral radius of 0.2√40 = 1.26.",
    ),
)
