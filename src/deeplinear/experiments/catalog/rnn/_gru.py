"""Gated recurrent units taught by smaller ones: extrapolation against the length of the training sequences."""

from typing import TYPE_CHECKING

import numpy as np

from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.nonlinear import GRU_STUDIES, GRUStudy, run_gru_study
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = {
    "error": ("draw", "length"),
    "trivial": ("draw", "length"),
    "seen": ("draw", "length"),
    "loss": ("draw", "length"),
    "losses": ("draw", "length", "step"),
    "target": ("time",),
    "teacher_response": ("draw", "time"),
    "teacher_misfit": ("draw",),
    "student_response": ("draw", "length", "time"),
    "teacher_output": ("draw", "time"),
    "student_output": ("draw", "length", "time"),
}
"""Names of the axes of what a study gives."""

MISFIT = 0.05
"""Share of the mean square of a response that a teacher may miss."""

TEACHER = COLOURS[-1]


def labelled_gru_study(found: dict[str, np.ndarray], spec: GRUStudy) -> "xarray.Dataset":
    """What a study gave, with names on its axes; also for a study that was computed elsewhere.

    Args:
        found: From `run_gru_study`.
        spec: The study.
    """
    import xarray

    return xarray.Dataset(
        {name: (axes, np.asarray(found[name], dtype=float)) for name, axes in AXES.items()},
        coords={
            "length": list(spec.lengths),
            "step": np.asarray(found["step"], dtype=int),
            "time": np.arange(spec.horizon),
            "draw": np.arange(spec.seeds),
        },
        attrs={
            "form": f"GRU, linear read-out; {spec.teacher_states} states taught, {spec.states} states learn",
            "method": "Adam on fresh Gaussian sequences",
            "lr": spec.lr,
            "steps": spec.steps,
            "batch": spec.batch,
            "scale": spec.scale,
            "start": spec.start,
            "outputs in the loss": spec.loss,
            "horizon": spec.horizon,
            "dtype": spec.dtype,
        },
    )


def run_gru(spec: GRUStudy, context: Context) -> "xarray.Dataset":
    """Errors beyond the training length and training losses for every length and draw."""
    return labelled_gru_study(run_gru_study(spec, progress=context.progress), spec)


def plot_gru(dataset: "xarray.Dataset", spec: GRUStudy) -> "Figure":
    """Error and loss against the length; outputs and responses of one teacher and of its students."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * PANEL[0], 2.2 * PANEL[1]), layout="constrained")
    (errors, losses), (outputs, responses) = figure.subplots(2, 2)
    _spread(errors, dataset["error"], COLOURS[0], "student", "o-")
    _spread(errors, dataset["trivial"], "#888888", "zero outputs", "--")
    border = 4 * spec.teacher_states
    for axis in (errors, losses):
        axis.axvline(border, color="#888888", linewidth=0.8, linestyle="-.", zorder=1)
        axis.set(yscale="log", xlabel="training length $k$")
        if len(spec.lengths) <= 8:
            axis.set_xticks(list(spec.lengths))
    errors.set(title="(a) beyond the training length", ylabel=rf"mean $\max_{{k\leq t<{spec.horizon}}}|y_t-\hat y_t|$")
    errors.legend(title="median, mean (dots), range", title_fontsize=7.5, loc="best", framealpha=0.6)
    _spread(losses, dataset["loss"], COLOURS[1], "after training", "s-")
    losses.set(title=r"training loss; line: $k = 4\hat d$", ylabel="mean squared error")
    chosen = shown_lengths(spec)
    for axis, kind, title in (
        (outputs, "output", f"(b) outputs, mean over {spec.shown} inputs"),
        (responses, "response", "responses to one impulse"),
    ):
        axis.plot(
            dataset["time"], dataset[f"teacher_{kind}"].isel(draw=0), color=TEACHER, linewidth=2.2, label="teacher"
        )
        for colour, style, length in zip(COLOURS[:3], ("--", "-.", "-"), chosen, strict=False):
            curve = dataset[f"student_{kind}"].isel(draw=0).sel(length=length)
            axis.plot(dataset["time"], curve, style, color=colour, linewidth=1.1, label=f"$k = {length}$")
            axis.axvline(length, color=colour, linewidth=0.7, linestyle=":")
        axis.set(title=title, xlabel="time $t$", ylabel="output")
    outputs.legend(ncols=2, columnspacing=1.0)
    low, high = outputs.get_ylim()
    outputs.set_ylim(low, high + 0.3 * (high - low))
    return figure


def shown_lengths(spec: GRUStudy) -> tuple[int, ...]:
    """Lengths for the picture: the nearest there are to one, three and six times the teacher's states."""
    near = [min(spec.lengths, key=lambda k: abs(k - times * spec.teacher_states)) for times in (1, 3, 6)]
    return tuple(dict.fromkeys(near))


def _spread(axes: "Axes", values: "xarray.DataArray", colour: str, label: str, style: str) -> None:
    """Median over draws, their mean as dots, and their range."""
    places = values["length"].to_numpy()
    axes.fill_between(places, values.min("draw"), values.max("draw"), color=colour, alpha=0.15, linewidth=0)
    axes.plot(places, values.median("draw"), style, color=colour, label=label)
    axes.plot(places, values.mean("draw"), ":", color=colour, linewidth=1.1)


NO_NUMBER = "The paper says it of averages over ten seeds and gives no number; what follows is our reading."


def claims_gru(dataset: "xarray.Dataset", spec: GRUStudy) -> list[Claim]:
    """What the paper says of the threshold, measured without a verdict; then our readings."""
    claims = [
        Claim.at_most(
            "Teachers have the response they were fitted to: median mean squared error",
            dataset["teacher_misfit"].median(),
            MISFIT * float(np.mean(dataset["target"] ** 2)),
            f"At most {MISFIT:.0%} of the mean square of the response; the largest is "
            f"{float(dataset['teacher_misfit'].max()):.2g}.",
        )
    ]
    short, long = spec.teacher_states, 4 * spec.teacher_states
    shares = (dataset["error"] / dataset["trivial"]).median("draw")
    below = [k for k in spec.lengths if k < long]
    if below:
        text = f"Paper: below a threshold of about k = {long} the error is high: least median error over that of zeros"
        claims.append(Claim(text, float(shares.sel(length=below).min()), "high", None, NO_NUMBER))
    if below and long in spec.lengths:
        text = f"Paper: the threshold is at k = {long}: factor by which that median falls from k = {below[-1]}"
        fall = float(shares.sel(length=below[-1]) / shares.sel(length=long))
        claims.append(Claim(text, fall, "a step", None, NO_NUMBER))
    if short in spec.lengths and long in spec.lengths:
        median, loss = dataset["error"].median("draw"), dataset["loss"].median("draw")
        claims += [
            Claim.at_least(
                f"Our reading, a contrast: median error at k = {short} over that at k = {long}",
                median.sel(length=short) / median.sel(length=long),
                2.0,
                f"Errors {float(median.sel(length=short)):.3g} and {float(median.sel(length=long)):.3g}, training "
                f"losses {float(loss.sel(length=short)):.2g} and {float(loss.sel(length=long)):.2g}.",
            ),
            Claim.at_most(
                f"Our reading, low: median error at k = {long} over that of zeros", shares.sel(length=long), 0.5
            ),
        ]
    return claims


EXPERIMENTS = (
    Experiment(
        id="rnn/fig2",
        source="Figure 2",
        shows="A gated recurrent unit that learns from a smaller one continues it beyond the training length the "
        "better the longer the training sequences are; the paper has a threshold at four times the states of the "
        "teacher.",
        presets=GRU_STUDIES,
        run=run_gru,
        plot=plot_gru,
        claims=claims_gru,
        notes="The paper leaves open rate, target response, read-out, horizon and the rule by which training is "
        "ended before 50 000 steps; ours are in the settings, and all steps are made. The preset `paper` has the "
        "paper's sizes (10 and 100 states, ten seeds, 50 000 steps), in 32 bits, and takes ten minutes on an H200, "
        "much longer on a processor; `small` has 4 and 32 states and takes a minute or two on two cores. The "
        "read-out is linear without bias, and the loss is that of the last output. Panel (b) averages over a few "
        "inputs; beside it is the response to an impulse, which does not determine such a network. The preset "
        "`paper` was run on an H200, also for 12 000 steps (`benchmarks/results/gru-nvidia-h200.json`), and does not "
        "show a step at four times the teacher's states: the median error, in units of that of zero outputs, is "
        "0.35, 0.08, 0.06, 0.06, 0.05, 0.09 at k = 10, 20, … 60 after 50 000 steps, and 0.55, 0.20, 0.18, 0.14, "
        "0.12, 0.14 after 12 000. The fit of a teacher from 1e-6 amplifies rounding, so that the two runs have "
        "different teachers, and three or four of ten are not fitted by 1000 steps.",
        version=2,
    ),
)
