"""An identified system as a picture: its impulse response, and what it predicts beside what was measured."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import check_count, check_finite, check_shape
from deeplinear.plots._style import COLOURS, PANEL, REST, need_matplotlib, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 6
"""Outputs that get a panel, and pairs of output and input whose responses are drawn."""

MARKED = 60
"""Up to so many entries of a response are marked one by one."""


def plot_identification(
    response: Any,
    measured: Any,
    predicted: Any,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    known: int | None = None,
    test_from: int | None = None,
    bounds: tuple[Any, Any] | None = None,
    title: str | None = None,
) -> "Figure":
    r"""Impulse response of a system, and below it measured and predicted outputs, one panel for each.

    Args:
        response: $D, CB, CAB, \dots$, (horizon, outputs, inputs).
        measured: Outputs as measured, (times, outputs).
        predicted: Outputs that the system gives, of the same shape.
        inputs: Names of the inputs.
        outputs: Names of the outputs.
        known: Entries of the response up to which there was data; what is beyond is shaded.
        test_from: First time that the fit has not seen; what is beyond is shaded.
        bounds: Least and largest values of the response, where there are such; one input and output only.
        title: Heading.

    Returns:
        Figure of matplotlib; see `save_figure`.

    Raises:
        ImportError: If matplotlib, of the extra `report`, is not installed.
    """
    where = "plot_identification"
    need_matplotlib(where)
    from matplotlib.figure import Figure

    entries, truth, guess = (np.asarray(array, dtype=float) for array in (response, measured, predicted))
    check_shape(where, "response", entries, (None, None, None))
    check_shape(where, "measured", truth, (None, entries.shape[1]))
    check_shape(where, "predicted", guess, truth.shape)
    for name, array in (("response", entries), ("measured", truth), ("predicted", guess)):
        check_finite(where, name, array)
    for name, value in (("known", known), ("test_from", test_from)):
        if value is not None:
            check_count(where, name, value, at_least=0)
    of_inputs = list(inputs) or [f"u{i + 1}" for i in range(entries.shape[2])]
    of_outputs = list(outputs) or [f"y{i + 1}" for i in range(entries.shape[1])]
    shown = min(MOST, entries.shape[1])
    with paper_style():
        size = (2 * PANEL[0], PANEL[1] + 0.75 * PANEL[1] * shown)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(1 + shown, 1, squeeze=False)
        _draw_response(grid[0, 0], entries, of_inputs, of_outputs, known, bounds)
        for place in range(shown):
            axes = grid[place + 1, 0]
            axes.plot(truth[:, place], color=COLOURS[-1], linewidth=1.0, label="measured")
            axes.plot(guess[:, place], "--", color=COLOURS[1], linewidth=1.0, label="predicted")
            _shade(axes, test_from, len(truth), "not used for the fit")
            axes.set(ylabel=of_outputs[place])
            axes.margins(x=0.01)
            if place == 0:
                _legend(axes)
        grid[-1, 0].set_xlabel("row")
        if entries.shape[1] > shown:
            grid[-1, 0].set_title(f"{entries.shape[1] - shown} more outputs are not shown", loc="right")
        if title is not None:
            figure.suptitle(title)
    return figure


def _draw_response(
    axes: "Axes",
    entries: np.ndarray,
    inputs: Sequence[str],
    outputs: Sequence[str],
    known: int | None,
    bounds: tuple[Any, Any] | None,
) -> None:
    """One curve for each pair of output and input, the largest ones if they are many."""
    index = np.arange(len(entries))
    pairs = [(o, i) for o in range(entries.shape[1]) for i in range(entries.shape[2])]
    pairs = sorted(sorted(pairs, key=lambda pair: -np.abs(entries[:, pair[0], pair[1]]).max())[:MOST])
    marker = "o" if len(entries) <= MARKED else ""
    axes.axhline(0.0, color=REST, linewidth=0.8, zorder=1)
    for place, (o, i) in enumerate(pairs):
        axes.plot(index, entries[:, o, i], marker=marker, color=COLOURS[place], label=f"{inputs[i]} → {outputs[o]}")
    if bounds is not None:
        low, high = (np.asarray(part) for part in bounds)
        axes.fill_between(index, low, high, color=COLOURS[0], alpha=0.25, linewidth=0, label="balanced systems")
    _shade(axes, known, len(entries), "beyond the lags trained on")
    if entries.shape[1] * entries.shape[2] > len(pairs):
        axes.set_title(f"the {len(pairs)} largest of {entries.shape[1] * entries.shape[2]}", loc="right")
    axes.set(xlabel="lag", ylabel="impulse response")
    axes.locator_params(axis="x", integer=True)
    _legend(axes)


def _legend(axes: "Axes") -> None:
    """A legend beside the panel, where it covers nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


def _shade(axes: "Axes", begin: int | None, end: int, label: str) -> None:
    if begin is not None and begin < end:
        axes.axvspan(begin - 0.5, end - 0.5, color=REST, alpha=0.3, linewidth=0, zorder=0, label=label)
