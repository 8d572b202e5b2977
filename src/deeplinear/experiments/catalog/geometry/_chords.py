"""A printed geodesic beside the true one: two positive definite matrices that do not commute."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import check_count
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.geometry import geodesic, geodesic_between, rotation_chord
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

TRUE, PRINTED, SHOT = COLOURS[0], COLOURS[1], COLOURS[2]

KNOWN = {
    2: (1.374493, 1.377145, 1.414214, 0.29, 0.316),
    3: (0.982462, 0.985193, 1.017408, 0.35, 0.248),
    4: (0.798086, 0.800575, 0.828427, 0.38, 0.208),
}
"""By depth, for the matrices of the presets: lengths of geodesic, printed curve and line above it; by how much the
geodesic with the velocity of the printed curve misses the end; and what is not horizontal in the line."""


@dataclasses.dataclass(frozen=True)
class Chords:
    """Two positive definite matrices, row by row, and depths."""

    start: tuple[float, ...] = (4.0, 0.0, 0.0, 1.0)
    end: tuple[float, ...] = (2.5, 1.5, 1.5, 2.5)
    depths: tuple[int, ...] = (2, 3, 4)
    points: int = 41

    def __post_init__(self) -> None:
        check_count("Chords", "points", self.points, at_least=3)
        if len(self.start) != 4 or len(self.end) != 4:
            raise ValueError("Chords: start and end must be matrices of two rows, as four numbers.")


def run_chords(spec: Chords, context: Context) -> "xarray.Dataset":
    """For each depth three curves: the geodesic, the printed one, and the geodesic with the velocity of the printed."""
    import xarray

    start, end = (np.array(entries).reshape(2, 2) for entries in (spec.start, spec.end))
    times = np.linspace(0.0, 1.0, spec.points)
    curves, numbers = [], []
    for place, depth in enumerate(spec.depths):
        found, chord = geodesic_between(start, end, depth), rotation_chord(start, end, depth)
        shot = geodesic(start, depth, times, velocity=chord.velocities(0.0))
        curves.append([found.path(times).points, chord.points(times), shot.points])
        missed = float(np.linalg.norm(np.asarray(shot.points[-1]) - end))
        numbers.append((found.length, chord.length, chord.line, missed, chord.defect, found.residual))
        context.progress((place + 1) / len(spec.depths), f"depth {depth}")
    table = np.array(numbers).T
    names = ("geodesic", "printed", "line", "missed", "defect", "residual")
    words = ("length of the geodesic", "length of the printed curve", "length of the line above it")
    labels = (*words, "distance by which its velocity misses the end", "part that is not horizontal", "residual")
    return xarray.Dataset(
        {
            "points": (("depth", "curve", "time", "row", "column"), np.asarray(curves)),
            **{
                name: (("depth",), row, {"long_name": label})
                for name, row, label in zip(names, table, labels, strict=True)
            },
        },
        coords={"depth": list(spec.depths), "curve": ["geodesic", "printed", "same velocity"], "time": times},
    )


def plot_chords(dataset: "xarray.Dataset", spec: Chords) -> "Figure":
    """How far the printed curve is from the geodesic at each time, an entry of both, and the lengths."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3 * PANEL[0], 1.6 * PANEL[1]), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    depth = spec.depths[0]
    part = dataset["points"].sel(depth=depth)
    styles = {"geodesic": (TRUE, "-"), "printed": (PRINTED, "--"), "same velocity": (SHOT, ":")}
    words = {"geodesic": "geodesic", "printed": "printed curve", "same velocity": "geodesic, printed velocity"}
    for name, (colour, line) in styles.items():
        one = part.sel(curve=name)
        first.plot(one[:, 0, 0], one[:, 0, 1], line, color=colour, label=words[name])
    for ends, text in ((0, "$A$"), (-1, "$B$")):
        x, y = (float(part.sel(curve="geodesic")[ends, 0, column]) for column in (0, 1))
        first.plot(x, y, "o", color="black", markersize=5)
        first.annotate(text, (x, y), textcoords="offset points", xytext=(7, 3))
    first.set(xlabel="$X_{11}$", ylabel="$X_{12}$", title=f"two of the entries, $L = {depth}$")
    first.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
    first.margins(0.12)
    first.locator_params(nbins=4)
    for k, value in enumerate(spec.depths):
        both = dataset["points"].sel(depth=value)
        apart = np.linalg.norm((both.sel(curve="printed") - both.sel(curve="geodesic")).to_numpy(), axis=(1, 2))
        second.plot(dataset["time"], apart, color=COLOURS[k % len(COLOURS)], label=f"$L = {value}$")
    second.set(
        xlabel="time $t$", ylabel=r"$\|X_\mathrm{printed} - X\|_F$", title="distance at each time", ylim=(0, None)
    )
    second.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=len(spec.depths))
    places = np.arange(len(spec.depths))
    shades = (("printed", PRINTED, "printed curve", -0.2), ("line", COLOURS[3], "line of layers above it", 0.2))
    for name, colour, text, shift in shades:
        excess = 100 * (dataset[name] / dataset["geodesic"] - 1).to_numpy()
        bars = third.bar(places + shift, excess, 0.38, color=colour, label=text)
        third.bar_label(bars, [f"{number:.2f}" for number in excess], padding=2)
    third.set(xlabel="depth $L$", ylabel="per cent", title="longer than the geodesic by")
    third.set_xticks(places, [str(value) for value in spec.depths])
    third.margins(y=0.12)
    third.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


def claims_chords(dataset: "xarray.Dataset", spec: Chords) -> list[Claim]:
    """What holds instead of the printed theorem, and its numbers for the matrices of the presets."""
    gaps = (dataset["printed"] - dataset["geodesic"]).to_numpy()
    claims = [
        Claim.at_most("The geodesics lead to the end: largest residual", dataset["residual"].max(), 1e-9),
        Claim.at_least(
            "The printed curve is longer than the geodesic: smallest difference of lengths",
            gaps.min(),
            1e-9,
            "It is printed as the geodesic (Theorem 3.4.2, part 2).",
        ),
        Claim.at_least(
            "and shorter than the line of layers above it: smallest difference",
            (dataset["line"] - dataset["printed"]).min(),
            1e-9,
        ),
        Claim.at_least(
            "The line of layers is not horizontal: smallest norm of the part that is not", dataset["defect"].min(), 1e-6
        ),
    ]
    usual = Chords()
    if (spec.start, spec.end) != (usual.start, usual.end):
        return claims
    for depth in (depth for depth in spec.depths if depth in KNOWN):
        one = dataset.sel(depth=depth)
        names = ("geodesic", "printed", "line", "missed", "defect")
        pairs = dict(zip(names, KNOWN[depth], strict=True))
        far = max(abs(float(one[name]) - pairs[name]) for name in ("geodesic", "printed", "line"))
        claims.append(
            Claim.at_most(
                f"Depth {depth}: lengths {pairs['geodesic']:.6f} < {pairs['printed']:.6f} < {pairs['line']:.6f}, "
                "largest difference",
                far,
                1e-6,
            )
        )
        claims.append(
            Claim.between(
                f"Depth {depth}: the geodesic with the velocity of the printed curve misses the end by",
                one["missed"],
                pairs["missed"] - 0.006,
                pairs["missed"] + 0.006,
            )
        )
        claims.append(
            Claim.between(
                f"Depth {depth}: norm of what is not horizontal in the line",
                one["defect"],
                pairs["defect"] - 0.0006,
                pairs["defect"] + 0.0006,
            )
        )
    return claims


EXPERIMENTS = (
    Experiment(
        id="geometry/chords",
        source="Theorem 3.4.2, part 2",
        shows="The printed geodesic between positive matrices that do not commute is longer than the true one.",
        presets={"quick": Chords(points=41), "paper": Chords(points=201)},
        run=run_chords,
        plot=plot_chords,
        claims=claims_chords,
        notes="Not a figure of the paper: the counter-example to part 2 of its theorem on explicit geodesics. The line "
        "of layers is a geodesic of the balanced layers, but not horizontal, so its product is none.",
    ),
)
