"""How our figures look, in one place: colours, sizes, fonts."""

from contextlib import AbstractContextManager
from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours of Okabe and Ito, told apart by colour-blind readers; their yellow is left out, as it is faint on white."""

REST = "#BBBBBB"
"""Colour of curves beyond the number of colours."""

THIN = 0.7
"""Line width of these curves in points."""

PANEL = (3.5, 2.3)
"""Width and height of one panel in inches; two of them make the text width of a page."""

_SETTINGS: dict[str, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.which": "major",
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "axes.formatter.limits": (-3, 5),
    "axes.formatter.use_mathtext": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "deeplinear",
}


def need_matplotlib(where: str) -> Any:
    """Matplotlib, or `ImportError` that names the extra."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(
            f"{where} needs matplotlib, which is not installed; install the extra: pip install 'deeplinear[report]'"
        ) from error
    return matplotlib


def paper_style() -> AbstractContextManager[None]:
    """Context in which figures are made in the style of this package; settings outside of it stay as they are."""
    return need_matplotlib("paper_style").rc_context(_SETTINGS)
