"""The scalar equation of balanced diagonal layers: its graph, and modes learned one after another."""

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.exact import (
    escape_time,
    product_time,
    scalar_curvature,
    scalar_equilibria,
    scalar_speed,
    scalar_state,
    transition_width,
)
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

BLUE, SADDLE, GREEN = COLOURS[:3]
"""Saddles and unstable points are red in the paper; this is the red of our colours."""

EXACT = 1e-12
"""Identities of closed forms."""


# --- Figure 1(a): the graph of the scalar equation --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Graph:
    """The speed of one mode of balanced diagonal layers over its strength."""

    depth: int = 4
    sigma: float = 1.0
    reach: float = 1.3
    zoom: float = 0.25
    points: int = 801

    def __post_init__(self) -> None:
        check_count("Graph", "depth", self.depth, at_least=2)
        for name in ("sigma", "reach", "zoom"):
            check_number("Graph", name, getattr(self, name), above=0)
        check_count("Graph", "points", self.points, at_least=3)


def run_graph(spec: Graph, context: Context) -> "xarray.Dataset":
    """The speed over a wide and a narrow range of strengths, and where it vanishes."""
    import xarray

    ranges = np.stack([np.linspace(-reach, reach, spec.points) for reach in (spec.reach, spec.zoom)])
    points = np.asarray(scalar_equilibria(spec.sigma, spec.depth))
    return xarray.Dataset(
        {
            "strength": (("panel", "point"), ranges, {"long_name": "layer strength z"}),
            "speed": (("panel", "point"), np.asarray(scalar_speed(ranges, spec.sigma, spec.depth))),
            "equilibrium": (("rest",), points),
            "curvature": (("rest",), np.asarray(scalar_curvature(points, spec.sigma, spec.depth))),
        },
        coords={"panel": ["all", "near zero"]},
    )


def plot_graph(dataset: "xarray.Dataset", spec: Graph) -> "Figure":
    """Two panels: the whole graph, and the plateau around zero."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.3 * PANEL[0], 2 * PANEL[1]), layout="constrained")
    for axis, panel in zip(figure.subplots(2, 1), dataset["panel"].to_numpy(), strict=True):
        part = dataset.sel(panel=panel)
        z = part["strength"].to_numpy()
        axis.axhline(0.0, color="#888888", linewidth=0.8)
        axis.plot(z, part["speed"], color=BLUE)
        for place, bend in zip(dataset["equilibrium"].to_numpy(), dataset["curvature"].to_numpy(), strict=True):
            if z[0] <= place <= z[-1]:
                stable = bend > 0
                axis.plot(
                    place,
                    0.0,
                    "o",
                    markersize=7,
                    color=GREEN if stable else SADDLE,
                    label="stable" if stable else "unstable",
                )
        axis.set(xlabel="layer strength $z$", ylabel=r"$\dot z = z^{L-1}(\sigma - z^L)$", xlim=(z[0], z[-1]))
        handles, labels = axis.get_legend_handles_labels()
        shown = dict(zip(labels, handles, strict=True))
        axis.legend(shown.values(), shown.keys(), loc="best")
    figure.axes[0].set(title=rf"$L = {spec.depth}$, $\sigma = {spec.sigma:g}$")
    figure.axes[1].set(title=rf"the plateau: leading order $\sigma z^{{{spec.depth - 1}}}$")
    return figure


def claims_graph(dataset: "xarray.Dataset", spec: Graph) -> list[Claim]:
    """Where it rests, what attracts, and how flat it is near zero."""
    top = spec.sigma ** (1 / spec.depth)
    points, bends = dataset["equilibrium"].to_numpy(), dataset["curvature"].to_numpy()
    wanted = [-top, 0.0, top] if spec.depth % 2 == 0 else [0.0, top]
    far = np.max(np.abs(points - wanted)) if len(points) == len(wanted) else math.inf
    near = dataset.sel(panel="near zero")
    z, speed = near["strength"].to_numpy(), near["speed"].to_numpy()
    leading = spec.sigma * z ** (spec.depth - 1)
    away = np.abs(z) > 0
    rest = [float(b) for p, b in zip(points, bends, strict=True) if p != 0]
    return [
        Claim.at_most(
            "Rest points are 0 and ±σ^(1/L), minus only for even L: largest distance",
            far,
            EXACT,
            "The paper prints ±σ for ±σ^(1/L).",
        ),
        Claim.at_least("±σ^(1/L) are stable: smallest curvature there over Lσ^(2-2/L)", _stable(rest, spec), 1 - EXACT),
        Claim.at_least(
            "Zero drives away to the right: smallest speed for z > 0 near it",
            np.min(speed[z > 0]),
            1e-300,
        ),
        Claim.at_most(
            f"Near zero the speed is its leading order σz^{spec.depth - 1}: largest relative difference",
            np.max(np.abs(speed[away] / leading[away] - 1)),
            spec.zoom**spec.depth / spec.sigma * (1 + 1e-9),
        ),
        Claim.at_most(
            f"and small: largest |speed| for |z| at most {spec.zoom:g}",
            np.max(np.abs(speed)),
            spec.sigma * spec.zoom ** (spec.depth - 1) * (1 if spec.depth % 2 == 0 else 1 + spec.zoom**spec.depth),
            "0.0156 at the paper's size.",
        ),
    ]


def _stable(bends: list[float], spec: Graph) -> float:
    return min(bends) / (spec.depth * spec.sigma ** (2 - 2 / spec.depth))


# --- Figure 1(b): strengths over time ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Learning:
    """Modes of a balanced diagonal network from equal and from unequal starts, and rises at several depths."""

    depth: int = 5
    sigma: tuple[float, ...] = (4.0, 3.0, 2.0, 1.0)
    start: float = 0.2
    starts: tuple[float, ...] = (0.15, 0.2, 0.3, 0.4)
    horizon: float = 60.0
    points: int = 601
    depths: tuple[int, ...] = (2, 3, 4, 5, 6, 8)
    rise_sigma: float = 2.0

    def __post_init__(self) -> None:
        check_count("Learning", "depth", self.depth, at_least=2)
        if len(self.sigma) != len(self.starts):
            raise ValueError(
                f"Learning: starts must have {len(self.sigma)} numbers, one for each mode, but has {len(self.starts)}."
            )
        for value in (*self.sigma, *self.starts, self.start, self.horizon, self.rise_sigma):
            check_number("Learning", "sigma, starts, start, horizon and rise_sigma", value, above=0)
        check_count("Learning", "points", self.points, at_least=2)
        for depth in self.depths:
            check_count("Learning", "depths", depth, at_least=2)


HALVES = {"equal": (10.410, 13.879, 20.813, 41.600), "unequal": (24.686, 13.879, 6.146, 5.081)}
WIDTHS = {2: 1.129, 3: 0.370, 4: 0.103, 5: 0.0255, 6: 0.0059, 8: 0.0003}
DIGIT = {2: 5e-4, 3: 5e-4, 4: 5e-4, 5: 5e-5, 6: 5e-5, 8: 5e-5}
"""Recorded times to half the product and widths of the rise, and what the last recorded digit leaves open."""


LONGEST = 1.6
"""Time over that to half the product up to which rises are shown."""


def run_learning(spec: Learning, context: Context) -> "xarray.Dataset":
    """Strengths over time, times to half the product, and the rise over its own time scale."""
    import xarray

    times = np.linspace(0.0, spec.horizon, spec.points)
    sigma = np.array(spec.sigma)
    starts = np.stack([np.full(len(sigma), spec.start), np.array(spec.starts)])
    strength = np.asarray(scalar_state(starts, sigma, spec.depth, times))
    context.progress(0.4, "strengths")
    scaled = np.linspace(0.0, LONGEST, spec.points)
    rises, widths, escapes = [], [], []
    common, target = np.full(starts.shape, spec.start), np.full(starts.shape, spec.rise_sigma)
    for depth in spec.depths:  # in the shapes of the call above, so that no other code is compiled
        half = float(product_time(common, target, depth)[0, 0])
        rises.append(np.asarray(scalar_state(common, target, depth, scaled * half))[0, 0] ** depth)
        widths.append(float(transition_width(common, target, depth)[0, 0]))
        escapes.append(float(escape_time(spec.start, spec.rise_sigma, depth)) / half)
        context.progress(0.4 + 0.6 * len(widths) / len(spec.depths), f"depth {depth}")
    return xarray.Dataset(
        {
            "strength": (("starts", "mode", "time"), strength, {"long_name": "singular value of any layer"}),
            "half_time": (("starts", "mode"), np.asarray(product_time(starts, sigma, spec.depth))),
            "rise": (("depth", "scaled_time"), np.stack(rises) / spec.rise_sigma),
            "width": (("depth",), np.array(widths), {"long_name": "(t90 - t10) / t50 of the product"}),
            "escape": (("depth",), np.array(escapes), {"long_name": "leading order of the plateau over t50"}),
        },
        coords={
            "starts": ["equal", "unequal"],
            "mode": list(spec.sigma),
            "time": times,
            "depth": list(spec.depths),
            "scaled_time": scaled,
        },
    )


def plot_learning(dataset: "xarray.Dataset", spec: Learning) -> "Figure":
    """Strengths from equal and from unequal starts; beside them the rise at several depths."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.2 * PANEL[0], 2 * PANEL[1]), layout="constrained")
    grid = figure.add_gridspec(2, 2)
    for row, kind in enumerate(dataset["starts"].to_numpy()):
        axis = figure.add_subplot(grid[row, 0])
        for colour, mode in zip(itertools.cycle(COLOURS[:-1]), spec.sigma, strict=False):
            part = dataset.sel(starts=kind, mode=mode)
            axis.plot(dataset["time"], part["strength"], color=colour, label=rf"$\sigma = {mode:g}$")
            axis.plot(part["half_time"], (mode / 2) ** (1 / spec.depth), "o", color=colour)
        starts = (
            f"$z(0) = {spec.start:g}$" if kind == "equal" else f"$z(0) = {', '.join(f'{z:g}' for z in spec.starts)}$"
        )
        axis.set(title=starts, ylabel="layer strength $z$", xlim=(0, spec.horizon), ylim=(0, None))
        if row == 0:
            axis.legend(loc="lower right", ncols=2)
        else:
            axis.set(xlabel="time $t$ (dots: half of the product)")
    axis = figure.add_subplot(grid[:, 1])
    for colour, depth in zip(itertools.cycle(COLOURS), spec.depths, strict=False):
        part = dataset.sel(depth=depth)
        label = rf"$L = {depth}$, width {float(part['width']):.3g}"
        axis.plot(dataset["scaled_time"], part["rise"], color=colour, label=label)
    axis.set(
        xlabel=r"$t / t_{50}$",
        ylabel=r"product over target, $z^L/\sigma$",
        title=rf"depth sharpens the rise ($\sigma = {spec.rise_sigma:g}$, $z(0) = {spec.start:g}$)",
        xlim=(0, LONGEST),
    )
    axis.legend(loc="upper left")
    return figure


def claims_learning(dataset: "xarray.Dataset", spec: Learning) -> list[Claim]:
    """Order of learning from both starts, and sharpening by depth, beside the recorded numbers."""
    equal, unequal = (dataset["half_time"].sel(starts=kind).to_numpy() for kind in ("equal", "unequal"))
    widths = dataset["width"].to_numpy()
    claims = [
        Claim.at_least("From equal starts strong modes are learned first: smallest wait", np.min(np.diff(equal)), 1e-9)
    ]
    recorded = Learning()
    if (spec.depth, spec.sigma, spec.start, spec.starts) == (
        recorded.depth,
        recorded.sigma,
        recorded.start,
        recorded.starts,
    ):
        claims.append(
            Claim.at_least(
                "From these unequal starts they are learned last: smallest wait", np.min(-np.diff(unequal)), 1e-9
            )
        )
        for kind, times in HALVES.items():
            found = dataset["half_time"].sel(starts=kind).to_numpy()
            claims.append(
                Claim.at_most(
                    f"Times to half the product from {kind} starts are the recorded ones: largest relative difference",
                    np.max(np.abs(found / times - 1)),
                    2e-4,
                    "Recorded to the third decimal.",
                )
            )
    claims.append(
        Claim.at_most(
            "Depth sharpens the rise: largest ratio of a width to the next shallower one",
            np.max(widths[1:] / widths[:-1]) if len(widths) > 1 else 0.0,
            0.5,
        )
    )
    if (spec.rise_sigma, spec.start) == (recorded.rise_sigma, recorded.start):
        off = [abs(float(w) - WIDTHS[n]) / DIGIT[n] for n, w in zip(spec.depths, widths, strict=True) if n in WIDTHS]
        claims.append(
            Claim.at_most(
                "Widths (t90 - t10)/t50 are the recorded ones: largest difference in half units of the last digit",
                max(off, default=0.0),
                1.02,
            )
        )
    return claims


# --- Registered -------------------------------------------------------------------------------------------------------

EXPERIMENTS = (
    Experiment(
        id="network/fig1a",
        source="Figure 1(a)",
        shows="Speed of one mode of balanced diagonal layers over its strength, with its rest points, and its plateau "
        "around zero.",
        presets={"quick": Graph(points=201), "paper": Graph()},
        run=run_graph,
        plot=plot_graph,
        claims=claims_graph,
        notes="The paper does not say which depth and σ it shows; 4 and 1 are ours. Its text puts the rest points at "
        "±σ, which is right for σ = 1 only: they are ±σ^(1/L), the negative one for even L.",
    ),
    Experiment(
        id="network/fig1b",
        source="Figure 1(b)",
        shows="Singular values of any layer over time, from equal starts (learned one after another) and from unequal "
        "ones (in the opposite order); and how depth sharpens the rise.",
        presets={"quick": Learning(points=121, depths=(5, 6, 8)), "paper": Learning()},
        run=run_learning,
        plot=plot_learning,
        claims=claims_learning,
        notes="Depth, σ and starts are ours; the right panel shows what the text says of depth.",
    ),
)
