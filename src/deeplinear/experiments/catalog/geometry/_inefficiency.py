"""How much longer the path of gradient flow is than the geodesic to its end, by depth."""

import dataclasses
import math
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_number
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.geometry import geodesic_between, matrix_flow
from deeplinear.models import SquaredDistance
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

KNOWN = {1: 1.0, 2: 1.023361, 3: 1.041576, 5: 1.060065, 0: 1.094681}
"""Ratios by depth for the matrices of the presets; infinite depth is written 0."""


@dataclasses.dataclass(frozen=True)
class Inefficiencies:
    """Start and target, row by row, and depths; infinite depth is written 0."""

    start: tuple[float, ...] = (1.0, 0.2, -0.3, 0.8)
    target: tuple[float, ...] = (0.3, -0.9, 0.8, 0.5)
    depths: tuple[int, ...] = (1, 2, 3, 5, 0)
    points: int = 41
    time: float = 1e3

    def __post_init__(self) -> None:
        check_number("Inefficiencies", "time", self.time, above=20)
        if len(self.start) != 4 or len(self.target) != 4:
            raise ValueError("Inefficiencies: start and target must be matrices of two rows, as four numbers.")
        if any(depth < 0 for depth in self.depths):
            raise ValueError(
                f"Inefficiencies: depths must not be negative, but are {self.depths}; 0 is infinite depth."
            )


def _depth(number: int) -> float:
    return math.inf if number == 0 else number


def _name(number: int) -> str:
    return r"$\infty$" if number == 0 else str(number)


def run_inefficiency(spec: Inefficiencies, context: Context) -> "xarray.Dataset":
    """Ratios for all depths; the two paths."""
    import xarray

    start, target = (np.array(entries).reshape(2, 2) for entries in (spec.start, spec.target))
    energy = SquaredDistance(jnp.asarray(target, dtype=float))
    times = np.linspace(0.0, 1.0, spec.points)
    # The flow slows down towards its end: output times crowd at the start.
    moments = np.concatenate([[1e-3], 1e-3 * (2e4 ** np.linspace(0, 1, spec.points))[1:], [spec.time]])
    numbers, flows, geodesics = [], [], []
    for place, number in enumerate(spec.depths):
        depth = _depth(number)
        run = matrix_flow(
            energy, start, depth, moments, normalised=True, coordinates="matrix", rtol=1e-11, atol=1e-13, gradient=1e-9
        )
        assert run.points is not None
        flows.append(run.points)
        found = geodesic_between(start, run.end, depth, normalised=True)
        if depth == 1:
            geodesics.append(start + times[:, None, None] * (run.end - start))
        else:
            geodesics.append(found.path(times).points)
        length = float(run.lengths[-1])
        numbers.append((length / found.length, length, found.length, float(np.max(np.abs(run.end - target)))))
        context.progress((place + 1) / len(spec.depths), f"depth {depth}")
    ratio, lengths, apart, gap = np.array(numbers).T
    return xarray.Dataset(
        {
            "ratio": (("depth",), ratio, {"long_name": "length of the path over the distance"}),
            "length": (("depth",), lengths, {"long_name": "length of the path, normalised metric"}),
            "distance": (("depth",), apart, {"long_name": "distance of its ends, normalised metric"}),
            "gap": (("depth",), gap, {"long_name": "largest difference of the end from the target"}),
            "flow": (("depth", "moment", "row", "column"), np.asarray(flows)),
            "geodesic": (("depth", "time", "row", "column"), np.asarray(geodesics)),
        },
        coords={"depth": list(spec.depths), "moment": moments, "time": times},
    )


def plot_inefficiency(dataset: "xarray.Dataset", spec: Inefficiencies) -> "Figure":
    """Two entries of both paths, and the ratio by depth."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(2.3 * PANEL[0], 1.7 * PANEL[1]), layout="constrained")
    first, second = figure.subplots(1, 2)
    start, target = (np.array(entries).reshape(2, 2) for entries in (spec.start, spec.target))
    for k, number in enumerate(spec.depths):
        colour = COLOURS[k % len(COLOURS)]
        flow, way = dataset["flow"].sel(depth=number), dataset["geodesic"].sel(depth=number)
        first.plot(flow[:, 0, 0], flow[:, 1, 1], color=colour, label=f"$L = ${_name(number)}")
        first.plot(way[:, 0, 0], way[:, 1, 1], "--", color=colour)
    for matrix, text, shift in ((start, "start", (-4, -16)), (target, "target", (8, -6))):
        first.plot(matrix[0, 0], matrix[1, 1], "o", color="black", markersize=5)
        first.annotate(text, (matrix[0, 0], matrix[1, 1]), textcoords="offset points", xytext=shift)
    handles, _ = first.get_legend_handles_labels()
    dashed = Line2D([], [], color="black", linestyle="--", label="geodesic")
    solid = Line2D([], [], color="black", label="gradient flow")
    first.legend(handles=[*handles, solid, dashed], loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3)
    first.set(xlabel="$X_{11}$", ylabel="$X_{22}$", title="two of the entries")
    first.margins(0.12)
    places = np.arange(len(spec.depths))
    second.plot(places, dataset["ratio"], "o-", color=COLOURS[0])
    for place, ratio in zip(places, dataset["ratio"].to_numpy(), strict=True):
        second.annotate(f"{ratio:.4f}", (place, ratio), textcoords="offset points", xytext=(-6, 5), ha="right")
    second.set_xticks(places, [_name(number) for number in spec.depths])
    second.set(xlabel="depth $L$", ylabel="length of the path / distance", title="path of gradient flow")
    second.margins(x=0.25, y=0.15)
    return figure


def claims_inefficiency(dataset: "xarray.Dataset", spec: Inefficiencies) -> list[Claim]:
    """Never below one, growing with the depth, and the numbers for the matrices of the presets."""
    ratios = dataset["ratio"].to_numpy()
    claims = [
        Claim.at_most("The flow reaches the target: largest difference", dataset["gap"].max(), 1e-6),
        Claim.at_least("No path is shorter than the distance: smallest ratio", ratios.min(), 1 - 1e-9),
        Claim.at_least(
            "The ratio grows with the depth: smallest growth from one depth to the next",
            np.min(np.diff(ratios)) if len(ratios) > 1 else math.nan,
            1e-6,
            "Depths in the order of the spec.",
        ),
    ]
    usual = Inefficiencies()
    if (spec.start, spec.target) == (usual.start, usual.target):
        claims += [
            Claim.between(
                f"Ratio at {'infinite depth' if number == 0 else f'depth {number}'}",
                dataset["ratio"].sel(depth=number),
                KNOWN[number] - 1e-5,
                KNOWN[number] + 1e-5,
            )
            for number in spec.depths
            if number in KNOWN
        ]
    return claims


EXPERIMENTS = (
    Experiment(
        id="geometry/path-inefficiency",
        source="Section 2.2, derived",
        shows="The path of gradient flow towards a matrix is longer than the geodesic to it, the more so the deeper.",
        presets={"quick": Inefficiencies(), "paper": Inefficiencies(points=201)},
        run=run_inefficiency,
        plot=plot_inefficiency,
        claims=claims_inefficiency,
        notes="Not a figure of the paper. The energy is half the squared distance to the target. Lengths are in the "
        "normalised metric; the ratio does not depend on that.",
    ),
)
