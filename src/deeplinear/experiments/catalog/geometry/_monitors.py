"""Conserved quantities along geodesics, as monitors of how exactly they were integrated."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.geometry import Geodesic, Metric, geodesic
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

EXACT = 1e-9
"""Largest relative drift at a tolerance of 1e-12."""

LAWS = {
    "energy": r"energy $H$",
    "left": r"left momentum $PX^\top - XP^\top$",
    "right": r"right momentum $X^\top P - P^\top X$",
    "dilation": r"dilation $\langle P, X\rangle$",
    "cone": r"cone $\sum_i s_i^{2/L}$, or $\ln|\det X|$",
}
"""What is conserved, or known in time, and how it is written."""

NAMES = ("energy", "left momentum", "right momentum", "dilation", "norm of the layers, or determinant")
"""The same in words."""

TOLERANCES = (1e-3, 1e-5, 1e-7, 1e-9, 1e-11)
"""Tolerances of integrations without stops on the way, which the monitors must tell apart."""


@dataclasses.dataclass(frozen=True)
class Monitored:
    """Geodesics of several depths from one random point, each with a velocity of given length."""

    size: int = 3
    depths: tuple[float, ...] = (2, 3, 5, math.inf)
    length: float = 1.0
    times: int = 41
    rtol: float = 1e-12
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("Monitored", "size", self.size, at_least=1)
        check_count("Monitored", "times", self.times, at_least=2)
        check_number("Monitored", "length", self.length, above=0)
        check_number("Monitored", "rtol", self.rtol, above=0, at_most=1e-2)


def draw_start(spec: Monitored) -> tuple[np.ndarray, np.ndarray]:
    """A point whose singular values are within e^±0.7, and a direction."""
    rng = np.random.default_rng(spec.seed)
    left, right = (np.linalg.qr(rng.standard_normal((spec.size, spec.size)))[0] for _ in range(2))
    point = (left * np.sort(np.exp(rng.uniform(-0.7, 0.7, spec.size)))[::-1]) @ right
    return point, rng.standard_normal((spec.size, spec.size))


def run_monitored(spec: Monitored, context: Context) -> "xarray.Dataset":
    """Spectra along the geodesics and drifts of what is conserved; and at the end, over the tolerance."""
    import xarray

    point, direction = draw_start(spec)
    times = np.linspace(0, 1, spec.times)
    spectra, drifts, ends, complete = [], [], [], []
    for k, depth in enumerate(spec.depths):
        velocity = direction * spec.length / float(Metric(depth).norm(point, direction))
        path = geodesic(point, depth, times, velocity=velocity, rtol=spec.rtol, atol=spec.rtol / 100)
        spectra.append(_padded(np.asarray(path.spectra), spec.times))
        drifts.append(_drifts(path, spec.times))
        complete.append(path.status == "complete")
        shots = [geodesic(point, depth, (0.0, 1.0), velocity=velocity, rtol=r, atol=r / 100) for r in TOLERANCES]
        ends.append(np.stack([_drifts(shot, 2)[:, -1] for shot in shots], axis=1))
        context.progress((k + 1) / len(spec.depths), f"depth {depth:g}")
    return xarray.Dataset(
        {
            "spectrum": (("depth", "time", "mode"), np.stack(spectra)),
            "drift": (("depth", "law", "time"), np.stack(drifts)),
            "end_drift": (("depth", "law", "tolerance"), np.stack(ends)),
            "complete": (("depth",), np.array(complete)),
        },
        coords={
            "depth": [float(depth) for depth in spec.depths],
            "time": times,
            "tolerance": list(TOLERANCES),
            "law": list(LAWS),
        },
    )


def _drifts(path: Geodesic, count: int) -> np.ndarray:
    monitors = path.drifts()
    return np.stack([_padded(np.asarray(getattr(monitors, law)), count) for law in LAWS])


def _padded(values: np.ndarray, count: int) -> np.ndarray:
    """Values at all times, not numbers after an early end."""
    kept = values[:count]
    rest = np.full((count - len(kept), *values.shape[1:]), np.nan)
    return np.concatenate([kept, rest])


def plot_monitored(dataset: "xarray.Dataset", spec: Monitored) -> "Figure":
    """A row for each depth: singular values on the way, the drifts on a logarithmic scale, and over the tolerance."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    count = dataset.sizes["depth"]
    figure = Figure(figsize=(3 * PANEL[0], 0.75 * count * PANEL[1] + 0.6), layout="constrained")
    rows = figure.subplots(count, 3, squeeze=False, sharex="col")
    times, tolerances = dataset["time"].to_numpy(), dataset["tolerance"].to_numpy()
    marks = dict(zip(LAWS, "osD^v", strict=True))
    for row, depth in zip(rows, dataset["depth"].to_numpy(), strict=True):
        part = dataset.sel(depth=depth)
        row[0].plot(times, part["spectrum"], color="#444444")
        row[0].set(ylabel=f"{_depth_name(depth)}\nsingular values", ylim=(0, None))
        for colour, law in zip(COLOURS, LAWS, strict=False):
            style = {"color": colour, "marker": marks[law], "markersize": 3.5, "linewidth": 1.0}
            # A drift that is zero to the last digit is drawn at the spacing of numbers.
            row[1].plot(times[1:], np.maximum(part["drift"].sel(law=law).to_numpy()[1:], 1e-17), **style)
            row[2].plot(tolerances, np.maximum(part["end_drift"].sel(law=law).to_numpy(), 1e-17), **style)
        for axis in row[1:]:
            axis.axhline(EXACT, color="#888888", linewidth=0.8)
            axis.set(ylabel="relative drift", yscale="log", ylim=(3e-18, 1e-1))
        row[2].set(xscale="log")
    for axis, label in zip(rows[-1], ("time $t$", "time $t$", "tolerance of a step"), strict=True):
        axis.set(xlabel=label)
    titles = ("along the geodesic", f"tolerance {spec.rtol:g}, a stop at each time", "at the end, without stops")
    for axis, title in zip(rows[0], titles, strict=True):
        axis.set(title=title)
    handles = [Line2D([], [], color=c, marker=marks[law], markersize=4) for c, law in zip(COLOURS, LAWS, strict=False)]
    figure.legend(handles, LAWS.values(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _depth_name(depth: float) -> str:
    return r"$L = \infty$" if math.isinf(depth) else f"$L = {depth:g}$"


def claims_monitored(dataset: "xarray.Dataset", spec: Monitored) -> list[Claim]:
    """Every law holds at the tight tolerance, and a loose one is noticed."""
    drift, ends = dataset["drift"], dataset["end_drift"].max("law")
    claims = [
        Claim.at_most(
            f"Largest relative drift of the {law}, over all depths and times", drift.sel(law=law).max(), EXACT
        )
        for law in LAWS
    ]
    share = ends.isel(tolerance=0) / ends.isel(tolerance=-1)
    return [
        *claims,
        Claim.at_most(
            f"Without stops on the way, at tolerance {TOLERANCES[-1]:g}: largest drift at the end",
            ends.isel(tolerance=-1).max(),
            EXACT,
        ),
        Claim.at_least(
            f"The monitors notice a loose tolerance: drift at {TOLERANCES[0]:g} over that at {TOLERANCES[-1]:g}, least "
            "over the depths",
            share.min(),
            100.0,
        ),
        Claim.at_least("Share of the geodesics that were complete", dataset["complete"].mean(), 1.0),
    ]


MONITORS = Experiment(
    id="geometry/monitors",
    source="beside the paper: conserved quantities of Section 3.3",
    shows="Geodesics of several depths from one point, and how far energy, momenta, dilation and the norm of layers "
    "drift from what they should be.",
    presets={"quick": Monitored(times=11), "paper": Monitored(size=5)},
    run=run_monitored,
    plot=plot_monitored,
    claims=claims_monitored,
    notes="The velocity has the given length in the metric of each depth, below what could reach a singular matrix for "
    "the points that are drawn.",
)

EXPERIMENTS = (MONITORS,)
