r"""The step at twice the size of the teacher: sharp where the loss is zero, blurred by the start where it is not.

Balanced students of loss zero are made by Gauss–Newton steps from random starts. With $k \le 2\hat d$ entries there
are many of them, and most leave the teacher beyond the length they saw. With one entry more there is none but the
teacher. Students trained by Adam have a small loss instead, and a step that depends on the scale of their start.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import Params, check_count, check_number
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.rnn._balanced import check_training
from deeplinear.experiments.catalog.rnn._training import (
    CAP,
    adam,
    balanced_pair,
    grid,
    labelled,
    measured,
    population_losses,
    subspace,
    teacher_responses,
    train,
)
from deeplinear.models import LinearRNN
from deeplinear.plots import COLOURS, PANEL
from deeplinear.recurrent import polish

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

LEAST = 1e-14
"""Ratio of errors that is rounding, and where the picture ends."""

SETTLED = 1e-6
"""Ratio of errors below which the tail counts as known: how far below is a matter of the last digits of the loss."""

LOW, HIGH = -0.9, 0.95
"""Interval of the teacher's eigenvalues: stable, and so wide that a small loss settles the tail."""


@dataclasses.dataclass(frozen=True)
class Phases:
    """Balanced students of loss zero, of teachers of several sizes; and trained ones, of one teacher, over scales."""

    states: int = 16
    teachers: tuple[int, ...] = (1, 2, 3, 4, 5)
    start: float = 0.5
    lengths: tuple[int, ...] = tuple(range(1, 15))
    draws: int = 10
    iterations: int = 400
    teacher: int = 3
    scales: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
    steps: int = 6000
    lr: float = 2e-3
    horizon: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        check_training("Phases", self)
        check_count("Phases", "states", self.states, at_least=1)
        check_count("Phases", "iterations", self.iterations, at_least=1)
        for size in self.teachers:
            check_count("Phases", "each of teachers", size, at_least=1)
        for scale in (self.start, *self.scales):
            check_number("Phases", "each scale", scale, above=0)

    @property
    def model(self) -> LinearRNN:
        """Form of the students."""
        return LinearRNN(self.states, self.lengths[-1], form="tied")

    def drawn(self, size: int, scale: float) -> tuple[np.ndarray, list[Params]]:
        """Responses of teachers of this size, and starts of their students, one of each for each draw."""
        pairs = [
            balanced_pair(self.model, size, scale, np.random.default_rng(self.seed + i), low=LOW, high=HIGH)
            for i in range(self.draws)
        ]
        return teacher_responses([pair[0] for pair in pairs], self.horizon), [pair[1] for pair in pairs]


def run_phases(spec: Phases, context: Context) -> "xarray.Dataset":
    """Errors of students of loss zero by teacher, length and draw, and of trained ones by scale, length and draw."""
    few = {"length": spec.lengths, "draw": range(spec.draws)}
    members = grid(**few)
    found = {scale: spec.drawn(spec.teacher, scale) for scale in spec.scales}
    targets = np.tile(found[spec.scales[0]][0][members["draw"]], (len(spec.scales), 1))
    lengths = np.tile(members["length"], len(spec.scales))
    students = train(
        spec.model,
        [found[scale][1][i] for scale in spec.scales for i in members["draw"]],
        population_losses(targets, lengths, spec.lengths[-1]),
        targets,
        lengths,
        adam(spec.lr),
        steps=spec.steps,
        context=context,
    )
    dataset = labelled(students, {"scale": spec.scales, **few}, prefix="trained_")
    axes = {"teacher": spec.teachers, **few}
    responses, known, polished = [], [], []
    for done, size in enumerate(spec.teachers, start=1):
        targets, starts = spec.drawn(size, spec.start)
        for length, i in zip(members["length"], members["draw"], strict=True):
            context.watch(None)
            end = polish(targets[i, :length], spec.model.system(starts[i]), max_steps=spec.iterations)
            modes, weights = np.diag(np.asarray(end.system.transition)), np.asarray(end.system.input)[:, 0] ** 2
            responses.append(weights @ modes[:, None] ** np.arange(spec.horizon))
            known.append(targets[i])
            polished.append(end.iterations)
        context.progress(done / len(spec.teachers), f"teacher of {size} states")
    lengths, zeros = np.tile(members["length"], len(spec.teachers)), np.zeros(len(known))
    exact = measured(
        np.stack(responses),
        np.stack(known),
        lengths,
        zeros,
        np.array(polished),
        zeros.astype(bool),
        np.full(len(known), spec.states),
    )
    dataset = dataset.merge(labelled(exact, axes))
    return dataset.merge(labelled(subspace(np.stack(known), lengths), axes, prefix="subspace_"))


def plot_phases(dataset: "xarray.Dataset", spec: Phases) -> "Figure":
    """Students of loss zero over the length and over its distance from the step; trained ones as a map."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(2.9 * PANEL[0], 1.4 * PANEL[1]), layout="constrained")
    axes: Any = figure.subplots(1, 3)
    for place, size in enumerate(spec.teachers):
        one, colour = dataset["ratio"].sel(teacher=size), COLOURS[place % len(COLOURS)]
        values = np.clip(one.to_numpy(), LEAST, CAP)
        lengths = one["length"].to_numpy()
        known = np.clip(dataset["subspace_ratio"].sel(teacher=size).median("draw").to_numpy(), LEAST, CAP)
        broken = "Ho–Kalman (dashed)" if place == len(spec.teachers) - 1 else "_"
        for panel, places in ((axes[0], lengths), (axes[1], lengths - 2 * size)):
            panel.semilogy(np.repeat(places, spec.draws), values.ravel(), ".", color=colour, markersize=2, alpha=0.4)
            panel.semilogy(places, np.median(values, axis=1), "o-", color=colour, label=rf"$\hat d = {size}$")
        axes[0].semilogy(lengths, known, "--", color=colour, linewidth=0.9, label=broken)
    axes[0].set(xlabel="training length $k$", ylabel=r"extrapolation error $E/E_0$", title="loss zero")
    axes[1].set(xlabel=r"$k - 2\hat d$", title="loss zero, counted from the step")
    axes[1].axvline(0.5, color="#888888", linewidth=0.8, linestyle="-.", zorder=1)
    axes[1].tick_params(labelleft=False)
    for panel in axes[:2]:
        panel.set_ylim(0.3 * LEAST, 3 * CAP)
        panel.axhline(1.0, color="#888888", linewidth=0.8, zorder=1)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), columnspacing=1.0)
    medians = np.clip(dataset["trained_ratio"].median("draw").to_numpy(), 1e-3, CAP)
    image = axes[2].pcolormesh(
        np.arange(len(spec.lengths) + 1) - 0.5,
        np.arange(len(spec.scales) + 1) - 0.5,
        medians,
        norm=LogNorm(1e-3, CAP),
        cmap="cividis",
    )
    title = rf"trained with Adam, $\hat d = {spec.teacher}$"
    axes[2].set(xlabel="training length $k$", ylabel="scale of the start", title=title)
    shown = list(range(0, len(spec.lengths), max(1, len(spec.lengths) // 7)))
    axes[2].set_xticks(shown, [str(spec.lengths[i]) for i in shown])
    axes[2].set_yticks(range(len(spec.scales)), [f"{scale:g}" for scale in spec.scales])
    axes[2].grid(visible=False)
    border = np.interp(2 * spec.teacher + 0.5, spec.lengths, range(len(spec.lengths)))
    axes[2].axvline(border, color="white", linewidth=1.2, linestyle="-.")
    figure.colorbar(image, ax=axes[2], label=r"median $E/E_0$", extend="both")
    return figure


def largest_fall(ratios: np.ndarray, lengths: tuple[int, ...]) -> int:
    """The length that is reached by the largest fall, in proportion, from one length to the next."""
    levels = np.log(np.clip(ratios, SETTLED, CAP))
    return lengths[int(np.argmin(np.diff(levels))) + 1]


def claims_phases(dataset: "xarray.Dataset", spec: Phases) -> list[Claim]:
    """The error of students of loss zero falls at once, between k = 2d̂ and 2d̂ + 1."""
    claims, falls, sizes = [], [], []
    medians, known = dataset["ratio"].median("draw"), dataset["subspace_ratio"].median("draw")
    for size in spec.teachers:
        border = 2 * size
        if not {border, border + 1} <= set(spec.lengths):
            continue
        one = medians.sel(teacher=size)
        falls.append(largest_fall(one.to_numpy(), spec.lengths))
        sizes.append(size)
        beyond = [k for k in spec.lengths if k > border]
        claims += [
            Claim.between(
                f"Teacher of {size} states, loss zero: the median E/E₀ falls most on reaching k",
                falls[-1],
                border + 1,
                border + 1,
            ),
            Claim.at_least(
                f"… by a factor of at least ten from k = {border} to {border + 1}",
                one.sel(length=border) / np.maximum(one.sel(length=border + 1), LEAST),
                10.0,
            ),
            Claim.at_most(f"… largest median beyond k = {border}", one.sel(length=beyond).max(), 1e-2),
            Claim.at_most(
                f"… Ho–Kalman from k = {border} on, largest median",
                known.sel(teacher=size, length=[border, *beyond]).max(),
                1e-6,
            ),
        ]
    if len(falls) > 1:
        slope = np.polyfit(np.asarray(sizes, dtype=float), np.asarray(falls, dtype=float), 1)[0]
        claims.append(Claim.between("The step moves with twice the size of the teacher: slope", slope, 1.999, 2.001))
    claims.append(Claim.at_most("Loss of the students of loss zero, median", dataset["loss"].median(), 1e-10))
    trained = dataset["trained_ratio"].median("draw").clip(max=CAP)
    short = [k for k in spec.lengths if k <= 2 * spec.teacher]
    beyond = [k for k in spec.lengths if k > 2 * spec.teacher]
    if short and beyond:
        ends = (trained.sel(length=short).mean("length"), trained.sel(length=beyond).mean("length"))
        claims.append(
            Claim.at_least(
                "Trained: mean of medians up to k = 2d̂ over that beyond, least of all scales",
                (ends[0] / ends[1]).min(),
                2.0,
            )
        )
        if len(spec.scales) > 1:
            claims.append(
                Claim.at_least("Trained: up to k = 2d̂, largest scale over smallest", ends[0][-1] / ends[0][0], 1.2)
            )
    return claims


NOTES = (
    "The statement as a picture; no figure of the paper. Eigenvalues of the teachers are equally spaced on [-0.9, "
    "0.95]: on [0.6, 1.05], the paper's, five of them lie so close that losses far below rounding would be needed. "
    "Students of loss zero are polished by Levenberg–Marquardt from Gaussian starts; loss zero is rounding or, for "
    "four and five states, 1e-12. Ho and Kalman need 2d̂ numbers, one less than a balanced student."
)

EXPERIMENTS = (
    Experiment(
        id="rnn/phase-transition",
        source="Theorem 5 and Lemma 7",
        shows="Balanced students of loss zero follow their teacher from a length of twice its size plus one on.",
        presets={
            "quick": Phases(
                teachers=(1, 2, 3),
                lengths=tuple(range(1, 9)),
                draws=5,
                iterations=150,
                teacher=2,
                scales=(0.1, 0.3, 0.5),
                steps=3000,
                lr=3e-3,
            ),
            "paper": Phases(),
        },
        run=run_phases,
        plot=plot_phases,
        claims=claims_phases,
        notes=NOTES,
    ),
)
