"""Pictures of the ranks of image classifiers' layers."""

from typing import TYPE_CHECKING

import numpy as np

from deeplinear.experiments.catalog.completion._image_protocols import NAMES, Study, departure
from deeplinear.nonlinear import AVERAGES, ConvolutionStudy, ReLUStudy
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _on(spec: Study) -> str:
    """The data, and what keeps the study from being the paper's own."""
    away = departure(spec)
    return f"on {NAMES[spec.data]}" + (f" ({away})" if away else "")


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


def plot_convolutions(dataset: "xarray.Dataset", spec: ConvolutionStudy) -> "Figure":
    """Accuracies, the published average, and what it is made of: hidden layers, shapes, values at the start."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3 * PANEL[0], 2.2 * PANEL[1]), layout="constrained")
    (train, test, average), (ratio, layers, shapes) = figure.subplots(2, 3)
    family = {"resnet": "ResNet", "vgg": "VGG"}[spec.family]
    optimiser = {"sgd": "SGD", "adam": "Adam", "rmsprop": "RMSProp"}[spec.optimiser]
    figure.suptitle(f"{family} with {optimiser} {_on(spec)}")
    for colour, depth in zip(COLOURS, spec.depths, strict=False):
        for axes, kind in ((train, "train_accuracy"), (test, "test_accuracy")):
            mean, half = interval(dataset[kind].sel(depth=depth))
            axes.plot(dataset["epoch"], mean, color=colour, label=f"{family}-{depth}", marker="o", markersize=2.5)
            low, high = np.clip([mean - half, mean + half], 0, 1)
            axes.fill_between(dataset["epoch"], low, high, color=colour, alpha=0.2, linewidth=0)
        _layer_lines(layers, dataset.sel(depth=depth), colour)
    train.set(title="training accuracy", xlabel="epoch", ylabel="share classified rightly")
    test.set(title="test accuracy", xlabel="epoch", ylabel="share classified rightly")
    train.legend()
    _averages(average, dataset, "effective")
    average.set(title="average effective rank", xlabel="depth", ylabel="effective rank")
    for colour, which, marker in zip(COLOURS, AVERAGES, "os", strict=False):
        both = dataset["averages"].sel(rank="effective", average=which)
        mean, half = interval(both.sel(moment="end") / both.sel(moment="start"))
        aside = (-1 if marker == "o" else 1) * 0.008 * (spec.depths[-1] - spec.depths[0])  # both are nearly the same
        ratio.errorbar(np.add(spec.depths, aside), mean, half, color=colour, marker=marker, capsize=3, label=which)
    ratio.axhline(1.0, color="#888888", linewidth=0.8, linestyle=":")
    ratio.set(title="average after over before training", xlabel="depth", ylabel="ratio", xticks=spec.depths)
    ratio.legend()
    for axes in (train, test):
        axes.xaxis.get_major_locator().set_params(integer=True)
    layers.set(
        title="each layer",
        xlabel="position from first to last",
        ylabel="rank / smaller side",
        ylim=(0, 1.02),
    )
    _shape_lines(shapes, dataset, spec.depths)
    return figure


def _averages(axes: "Axes", dataset: "xarray.Dataset", rank: str) -> None:
    """Both averages against depth, at the end with intervals and at the start."""
    depths = dataset["depth"].to_numpy()
    for colour, which, marker in zip(COLOURS, AVERAGES, "os", strict=False):
        both = dataset["averages"].sel(rank=rank, average=which)
        mean, half = interval(both.sel(moment="end"))
        axes.errorbar(depths, mean, half, color=colour, marker=marker, capsize=3, label=f"{which}, trained")
        axes.plot(
            depths,
            both.sel(moment="start").mean("run"),
            "--",
            color=colour,
            marker=marker,
            markersize=3,
            linewidth=1.0,
            label=f"{which}, at the start",
        )
    axes.set_xticks(depths)
    _legend_above(axes)


def _layer_lines(axes: "Axes", one: "xarray.Dataset", colour: str) -> None:
    """Effective rank of every layer but the last, relative to what its shape allows."""
    sides = np.minimum(one["rows"].to_numpy(), one["columns"].to_numpy())
    count = int(np.sum(sides > 0)) - 1
    values = one["ranks"].sel(moment="end", rank="effective").mean("run").to_numpy()[:count]
    axes.plot(np.linspace(0, 1, count), values / sides[:count], color=colour, marker=".", markersize=3, linewidth=0.9)


def _shape_lines(axes: "Axes", dataset: "xarray.Dataset", depths: tuple[int, ...]) -> None:
    """Average over the layers of one shape against depth, for shapes that at least two depths have."""
    shared = {shape: values for shape, values in shape_averages(dataset).items() if np.sum(~np.isnan(values)) > 1}
    before = shape_averages(dataset, moment="start")
    most = sorted(shared, key=lambda shape: (-int(np.sum(~np.isnan(shared[shape]))), -shape[0], -shape[1]))[:6]
    for colour, marker, shape in zip(COLOURS, "osD^vP", most, strict=False):
        there = ~np.isnan(shared[shape])
        axes.plot(
            np.asarray(depths)[there],
            shared[shape][there],
            color=colour,
            marker=marker,
            markersize=4,
            label=f"{shape[0]} × {shape[1]}",
        )
        axes.plot(np.asarray(depths)[there], before[shape][there], "--", color=colour, linewidth=0.9)
    axes.set(title="layers of one shape (dashed: at the start)", xlabel="depth", ylabel="effective rank", xticks=depths)
    if most:
        _legend_above(axes, 3)


def _legend_above(axes: "Axes", columns: int = 2) -> None:
    """A legend over the curves, with room made for it; a few words where there is no curve."""
    if not any(np.isfinite(line.get_ydata(orig=False)).any() for line in axes.lines):
        axes.text(0.5, 0.5, "no such layers", transform=axes.transAxes, ha="center", va="center")
        return
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        axes.set_ylim(low, high * (high / low) ** 0.45)
    else:
        axes.set_ylim(low, high + 0.4 * (high - low))
    axes.legend(fontsize=7, ncols=columns, loc="upper center", columnspacing=1.0, handlelength=1.8)


def plot_starts(dataset: "xarray.Dataset", spec: ReLUStudy) -> "Figure":
    """Training loss, stable rank against depth, and the layers one by one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.2 * PANEL[0], 2.2 * PANEL[1]), layout="constrained")
    (loss, average), (layers, hidden) = figure.subplots(2, 2)
    figure.suptitle(f"Fully connected ReLU networks {_on(spec)}")
    for style, marker, start in (("-", "o", "gaussian"), ("--", "s", "identity")):
        one = dataset.sel(start=start)
        for colour, depth in zip(COLOURS, spec.depths, strict=False):
            mean = one["loss"].sel(depth=depth).mean("run")
            loss.plot(dataset["epoch"], mean, style, color=colour, label=f"{start}, depth {depth}")
            of = one.sel(depth=depth)
            count = int(np.sum(of["rows"].to_numpy() > 0)) - 1
            values = of["ranks"].sel(moment="end", rank="stable").mean("run").to_numpy()[:count]
            layers.plot(np.arange(1, count + 1), values, style, color=colour, marker=marker, markersize=4)
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
                color="#888888",
                linestyle=style,
                marker=marker,
                markersize=3,
                linewidth=1.0,
                label=f"{start}, at the start",
            )
    loss.set(title="training loss (at depth 2 both are one)", xlabel="epoch", ylabel="cross-entropy", yscale="log")
    _legend_above(loss)
    for axes, title in (
        (average, "average stable rank, all but last"),
        (hidden, "hidden layers alone, all of one shape"),
    ):
        axes.set(title=title, xlabel="depth", ylabel="stable rank", xticks=spec.depths, yscale="log")
        _legend_above(axes)
    layers.set(title="each layer, trained (lines as above)", xlabel="layer", ylabel="stable rank")
    layers.xaxis.get_major_locator().set_params(integer=True)
    return figure
