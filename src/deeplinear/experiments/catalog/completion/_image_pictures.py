"""Pictures of the ranks of image classifiers' layers."""

from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.experiments.catalog.completion._image_protocols import NAMES, Study, departure
from deeplinear.nonlinear import AVERAGES, MOMENTS, ConvolutionStudy, ReLUStudy
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MARKERS = "os^DvP"
"""Markers beside `COLOURS`, so that lines can be told apart without colours."""

GREY = "#888888"


def _on(dataset: "xarray.Dataset", spec: Study) -> str:
    """The data, and what keeps the study from being the paper's own."""
    away = departure(spec, dataset.attrs)
    return f"on {NAMES[spec.data]}" + (f" ({away})" if away else "")


def _about_bands(dataset: "xarray.Dataset") -> str:
    """What bands and bars are, where there are any."""
    return "\nbands and bars: 95 % intervals over runs" if dataset.sizes["run"] > 1 else ""


def interval(values: "xarray.DataArray") -> tuple[np.ndarray, np.ndarray]:
    """Mean over runs, and half the width of its 95 % interval by Student's law; NaN for a single run."""
    import scipy.stats

    runs = values.sizes["run"]
    mean = values.mean("run").to_numpy()
    if runs < 2:
        return mean, np.full_like(mean, np.nan)
    half = scipy.stats.t.ppf(0.975, runs - 1) * values.std("run", ddof=1).to_numpy() / np.sqrt(runs)
    return mean, half


def shape_averages(
    dataset: "xarray.Dataset", rank: str = "effective", moment: str = "end"
) -> dict[tuple[int, int], np.ndarray]:
    """By shape of a matrix: mean rank over its layers and over runs, for every depth; NaN where none has it.

    The last layer is left out.

    Args:
        dataset: Of a study of convolutional networks.
        rank: `"effective"` or `"stable"`.
        moment: `"start"` or `"end"` of training.
    """
    found: dict[tuple[int, int], np.ndarray] = {}
    ends = dataset["ranks"].sel(moment=moment, rank=rank).mean("run").to_numpy()
    rows, columns = dataset["rows"].to_numpy(), dataset["columns"].to_numpy()
    for place, values in enumerate(ends):
        last = int(np.sum(rows[place] > 0)) - 1
        shapes = list(zip(rows[place][:last].tolist(), columns[place][:last].tolist(), strict=True))
        for shape in dict.fromkeys(shapes):
            same = [value for value, other in zip(values[:last], shapes, strict=True) if other == shape]
            found.setdefault(shape, np.full(len(ends), np.nan))[place] = float(np.mean(same))
    return found


def shape_ratios(dataset: "xarray.Dataset", rank: str = "effective") -> dict[tuple[int, int], np.ndarray]:
    """By shape of a matrix: its average rank after training over that before, for every depth; NaN where none has it.

    Shapes that at least two depths have, those that change most first. A side of 1 leaves no choice of rank.

    Args:
        dataset: Of a study of convolutional networks.
        rank: `"effective"` or `"stable"`.
    """
    before = shape_averages(dataset, rank, "start")
    ratios = {shape: after / before[shape] for shape, after in shape_averages(dataset, rank).items()}
    shared = {shape: one for shape, one in ratios.items() if min(shape) > 1 and np.sum(~np.isnan(one)) > 1}
    return dict(sorted(shared.items(), key=lambda item: -float(np.nanmax(np.abs(np.log(item[1]))))))


def plot_convolutions(dataset: "xarray.Dataset", spec: ConvolutionStudy) -> "Figure":
    """Accuracies and the published average along training; what it is made of: hidden layers, shapes, each layer."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3 * PANEL[0], 3.4 * PANEL[1]), layout="constrained")
    rows: list[Any] = [["train", "test", "curve"], ["hidden", "average", "ratio"], ["layers", "layers", "shapes"]]
    places = figure.subplot_mosaic(rows)
    family = {"resnet": "ResNet", "vgg": "VGG"}[spec.family]
    optimiser = {"sgd": "SGD", "adam": "Adam", "rmsprop": "RMSProp"}[spec.optimiser]
    figure.suptitle(f"{family} with {optimiser} {_on(dataset, spec)}{_about_bands(dataset)}")
    styles = list(zip(COLOURS, MARKERS, spec.depths, strict=False))
    for part, words in (("train", "training"), ("test", "test")):
        for colour, marker, depth in styles:
            accuracy = dataset[f"{part}_accuracy"].sel(depth=depth)
            _band(places[part], accuracy, colour, marker, f"{family}-{depth}", limits=(0, 1))
        places[part].set(title=f"{words} accuracy", xlabel="epoch", ylabel="share classified rightly")
        places[part].locator_params(axis="x", integer=True)
    places["train"].legend()
    for place, which in zip(("curve", "hidden"), AVERAGES, strict=True):
        for number, (colour, marker, depth) in enumerate(styles):
            values = dataset["curve"].sel(depth=depth, rank="effective", average=which)
            _along(places[place], values, colour, marker, f"{family}-{depth}", number / len(styles) - 0.5)
        places[place].set(title=f"average effective rank, {_layers(which)}", xlabel="epoch", ylabel="effective rank")
    _averages(places["average"], dataset, "effective")
    places["average"].set(title="both averages against depth", xlabel="depth", ylabel="effective rank")
    _average_ratios(places["ratio"], dataset, spec.depths)
    for colour, marker, depth in styles:
        _layer_lines(places["layers"], dataset.sel(depth=depth), colour, marker, f"{family}-{depth}, trained")
    places["layers"].plot([], [], "--", color=GREY, linewidth=0.8, label="at the start")
    places["layers"].set(
        title="each layer but the last: effective rank over the largest possible one, mean over runs",
        xlabel="position from first to last",
        ylabel="rank / smaller side",
    )
    _legend_above(places["layers"], 5, 0.15)
    _shape_lines(places["shapes"], dataset, spec.depths)
    return figure


def _layers(which: str) -> str:
    return {"all but last": "all layers but the last", "hidden": "hidden layers alone"}[which]


def _band(
    axes: "Axes",
    values: "xarray.DataArray",
    colour: str,
    marker: str,
    label: str,
    *,
    style: str = "-",
    limits: tuple[float, float] | None = None,
) -> None:
    """Mean over runs along training, with its 95 % interval, within limits, as a band if there are two runs or more."""
    times = values[values.dims[-1]]
    mean, half = interval(values)
    every = max(1, len(times) // 10)
    face = _face(colour, style)
    axes.plot(
        times,
        mean,
        style,
        color=colour,
        marker=marker,
        markersize=3.5,
        markevery=every,
        markerfacecolor=face,
        label=label,
    )
    if limits is not None:
        axes.fill_between(times, *np.clip([mean - half, mean + half], *limits), color=colour, alpha=0.15, linewidth=0)


def _face(colour: str, style: str) -> str:
    """Colour within the marks of a line; those of dashed lines are hollow."""
    return colour if style == "-" else "white"


def _along(
    axes: "Axes", values: "xarray.DataArray", colour: str, marker: str, label: str, aside: float, style: str = "-"
) -> None:
    """Averages of ranks against epochs; marks without a line where only start and end were measured.

    Args:
        axes: Where.
        values: Runs and measurements.
        colour: Of the line.
        marker: Of the measurements.
        label: In a legend.
        aside: Between -1/2 and 1/2, so that marks of several networks stand beside each other.
        style: Of the line.
    """
    times = values["measured"].to_numpy()
    if len(times) > 2:
        _band(axes, values, colour, marker, label, style=style, limits=(1, np.inf))
        axes.locator_params(axis="x", integer=True)
        return
    mean, half = interval(values)
    shifted = times + 0.2 * aside * times[-1]
    face = _face(colour, style)
    axes.errorbar(
        shifted,
        mean,
        half,
        color=colour,
        marker=marker,
        markerfacecolor=face,
        linestyle="",
        capsize=2,
        label=label,
    )
    axes.set_xticks(times, [f"{times[0]} (start)", f"{times[-1]} (end)"])
    axes.set_xlim(times[-1] * -0.25, times[-1] * 1.25)


def _averages(axes: "Axes", dataset: "xarray.Dataset", rank: str) -> None:
    """Both averages against depth, at the end with intervals and at the start."""
    depths = dataset["depth"].to_numpy()
    for colour, which, marker in zip(COLOURS, AVERAGES, MARKERS, strict=False):
        both = dataset["averages"].sel(rank=rank, average=which)
        mean, half = interval(both.sel(moment="end"))
        start = both.sel(moment="start").mean("run")
        axes.errorbar(depths, mean, half, color=colour, marker=marker, capsize=3, label=f"{which}, trained")
        axes.plot(
            depths,
            start,
            "--",
            color=colour,
            marker=marker,
            markersize=3,
            linewidth=1.0,
            markerfacecolor="white",
            label=f"{which}, at the start",
        )
    axes.set_xticks(depths)
    _legend_above(axes)


def _average_ratios(axes: "Axes", dataset: "xarray.Dataset", depths: tuple[int, ...]) -> None:
    """Both averages after training over those before, against depth."""
    for colour, which, marker in zip(COLOURS, AVERAGES, MARKERS, strict=False):
        both = dataset["averages"].sel(rank="effective", average=which)
        mean, half = interval(both.sel(moment="end") / both.sel(moment="start"))
        aside = (-1 if marker == "o" else 1) * 0.008 * (depths[-1] - depths[0])  # both are nearly the same
        axes.errorbar(np.add(depths, aside), mean, half, color=colour, marker=marker, capsize=3, label=which)
    axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle=":")
    axes.set(title="both averages: after over before training", xlabel="depth", ylabel="ratio", xticks=depths)
    axes.legend()


def _layer_lines(axes: "Axes", one: "xarray.Dataset", colour: str, marker: str, label: str) -> None:
    """Effective rank of every layer but the last, relative to what its shape allows; at the start dashed."""
    sides = np.minimum(one["rows"].to_numpy(), one["columns"].to_numpy())
    count = int(np.sum(sides > 0)) - 1
    places = np.linspace(0, 1, count)
    ranks = one["ranks"].sel(rank="effective").mean("run").isel(layer=slice(0, count))
    before, after = (ranks.sel(moment=moment).to_numpy() / sides[:count] for moment in MOMENTS)
    axes.plot(places, before, "--", color=colour, linewidth=0.7)
    axes.plot(places, after, color=colour, linewidth=1.1, marker=marker, markersize=3, label=label)


def _shape_lines(axes: "Axes", dataset: "xarray.Dataset", depths: tuple[int, ...]) -> None:
    """Average over the layers of one shape after over before training, for the shapes that change most."""
    shown = list(shape_ratios(dataset).items())[:6]
    for colour, marker, (shape, values) in zip(COLOURS, MARKERS, shown, strict=False):
        there = ~np.isnan(values)
        axes.plot(
            np.asarray(depths)[there],
            values[there],
            color=colour,
            marker=marker,
            markersize=4,
            label=f"{shape[0]} × {shape[1]}",
        )
    axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle=":")
    axes.set(title="layers of one shape: after over before training", xlabel="depth", ylabel="ratio", xticks=depths)
    _legend_above(axes, 3)


def _legend_above(axes: "Axes", columns: int = 2, room: float = 0.4) -> None:
    """A legend over the curves, with room made for it; a few words where there is no curve."""
    named = (line for line in axes.lines if not str(line.get_label()).startswith("_"))
    if not any(np.isfinite(line.get_ydata(orig=False)).any() for line in named):
        axes.text(0.5, 0.5, "no such layers", transform=axes.transAxes, ha="center", va="center")
        return
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        axes.set_ylim(low, high * (high / low) ** room)
    else:
        axes.set_ylim(low, high + room * (high - low))
    axes.legend(fontsize=7, ncols=columns, loc="upper center", columnspacing=1.0, handlelength=1.8)


def _logarithmic(axes: "Axes") -> None:
    """A logarithmic scale with plain numbers at its ticks."""
    from matplotlib.ticker import LogFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.4)))


def plot_starts(dataset: "xarray.Dataset", spec: ReLUStudy) -> "Figure":
    """Training loss and average stable rank along training, the ranks against depth, and the layers one by one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3 * PANEL[0], 2.4 * PANEL[1]), layout="constrained")
    (loss, curve, hidden_curve), (layers, average, hidden) = figure.subplots(2, 3)
    figure.suptitle(
        f"Fully connected ReLU networks {_on(dataset, spec)}; solid: Gaussian start, dashed: identity"
        f"{_about_bands(dataset)}"
    )
    for style, marker, start in (("-", "o", "gaussian"), ("--", "s", "identity")):
        one = dataset.sel(start=start)
        for number, (colour, mark, depth) in enumerate(zip(COLOURS, MARKERS, spec.depths, strict=False)):
            of, label = one.sel(depth=depth), f"{start}, depth {depth}"
            _band(loss, of["loss"], colour, mark, label, style=style)
            for axes, which in zip((curve, hidden_curve), AVERAGES, strict=True):
                values = of["curve"].sel(rank="stable", average=which)
                if not np.isnan(values).all():
                    aside = (number + (style != "-") / 2) / len(spec.depths) - 0.5
                    _along(axes, values, colour, mark, label, aside, style)
            count = int(np.sum(of["rows"].to_numpy() > 0)) - 1
            ranks = of["ranks"].sel(rank="stable").mean("run").isel(layer=slice(0, count))
            places = np.arange(1, count + 1)
            layers.plot(places, ranks.sel(moment="start"), style, color=colour, linewidth=0.6)
            layers.plot(
                places,
                ranks.sel(moment="end"),
                style,
                color=colour,
                marker=mark,
                markersize=4,
                markerfacecolor=_face(colour, style),
            )
        for axes, which in zip((average, hidden), AVERAGES, strict=True):
            values = one["averages"].sel(rank="stable", average=which)
            mean, half = interval(values.sel(moment="end"))
            axes.errorbar(
                spec.depths,
                mean,
                half,
                color=COLOURS[4],
                linestyle=style,
                marker=marker,
                capsize=3,
                label=f"{start}, trained",
            )
            axes.plot(
                spec.depths,
                values.sel(moment="start").mean("run"),
                color=GREY,
                linestyle=style,
                marker=marker,
                markersize=3,
                linewidth=1.0,
                label=f"{start}, at the start",
            )
    loss.set(title="training loss (at depth 2 both are one)", xlabel="epoch", ylabel="cross-entropy", yscale="log")
    _legend_above(loss)
    for axes, which in ((curve, "all but last"), (hidden_curve, "hidden")):
        axes.set(title=f"average stable rank, {_layers(which)}", xlabel="epoch", ylabel="stable rank")
        _logarithmic(axes)
        if not axes.lines:
            _legend_above(axes)
    for axes, which in ((average, "all but last"), (hidden, "hidden")):
        axes.set(title=f"{_layers(which)}, against depth", xlabel="depth", ylabel="stable rank", xticks=spec.depths)
        _logarithmic(axes)
        _legend_above(axes)
    layers.set(title="each layer but the last; thin: at the start", xlabel="layer", ylabel="stable rank")
    _logarithmic(layers)
    for axes in (loss, layers):
        axes.locator_params(axis="x", integer=True)
    return figure
