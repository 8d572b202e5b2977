"""Pictures of layers above matrices: fibres, invariant hyperbolas, tangents and lengths, lines and their products."""

import dataclasses
import math
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.dynamics import GradientFlow, ensemble
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.geometry import (
    balanced_lift,
    log_fibre_volume,
    minimal_fibre_norm,
)
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import weights

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

BLUE, RED, GREEN = COLOURS[:3]
GREY = "#888888"
EXACT = 1e-12
"""Identities of products and roots."""

# --- Fibres -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Fibres:
    """Scalar fibres of several products, and balanced pairs of layers over matrices of several spectra."""

    products: tuple[float, ...] = (0.25, 1.0, 2.25)
    spectra: tuple[tuple[float, float], ...] = ((0.5, 0.25), (1.5, 0.5), (3.0, 1.5))
    angles: tuple[float, float] = (0.5, 1.3)
    reach: float = 3.0
    points: int = 2001

    def __post_init__(self) -> None:
        for k, product in enumerate(self.products):
            check_number("Fibres", f"products[{k}]", product, above=0)
        for k, spectrum in enumerate(self.spectra):
            for value in spectrum:
                check_number("Fibres", f"spectra[{k}]", value, above=0)
        check_number("Fibres", "reach", self.reach, above=0)
        check_count("Fibres", "points", self.points, at_least=101)


def _turns(angles: np.ndarray) -> np.ndarray:
    return np.array([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]]).transpose(2, 0, 1)


def run_fibres(spec: Fibres, context: Context) -> "xarray.Dataset":
    """Curves of layers with one product; of matrices only the balanced ones, two closed curves each."""
    import xarray

    first = np.geomspace(min(spec.products) / spec.reach, spec.reach, spec.points)
    second = np.array(spec.products)[:, None] / first
    angles = np.linspace(0, 2 * math.pi, spec.points)
    left, right = _turns(np.array(spec.angles))
    curves, products, lengths, volumes, norms, least = [], [], [], [], [], []
    for spectrum in spec.spectra:
        x = left @ np.diag(spectrum) @ right.T
        below, above = (np.asarray(layer) for layer in balanced_lift(x, 2))
        loops = []
        for mirror in (np.eye(2), np.diag([1.0, -1.0])):
            turn = _turns(angles) @ mirror
            loops.append(np.stack([turn @ below, above @ turn.transpose(0, 2, 1)], axis=1))
        curve = np.array(loops)  # component, point, layer, row, column
        curves.append(curve)
        products.append(np.max(np.abs(curve[:, :, 1] @ curve[:, :, 0] - x)))
        lengths.append(np.sum(np.linalg.norm(np.diff(curve, axis=1).reshape(2, spec.points - 1, -1), axis=-1)))
        volumes.append(math.exp(float(log_fibre_volume(np.array(spectrum), 2))))
        norms.append(np.sum(curve**2, axis=(2, 3, 4)))
        least.append(float(minimal_fibre_norm(x, 2)))
    return xarray.Dataset(
        {
            "first": ("point", first, {"long_name": "first layer"}),
            "second": (("product", "point"), second, {"long_name": "second layer"}),
            "layers": (("spectrum", "component", "point", "layer", "row", "column"), np.array(curves)),
            "missed": ("spectrum", np.array(products), {"long_name": "distance of the product from X"}),
            "length": ("spectrum", np.array(lengths), {"long_name": "length of the fibre by chords"}),
            "volume": ("spectrum", np.array(volumes), {"long_name": "its volume by the formula"}),
            "norm": (("spectrum", "component", "point"), np.array(norms), {"long_name": "squared norm of the layers"}),
            "least": ("spectrum", np.array(least), {"long_name": "least squared norm"}),
        },
        coords={"product": list(spec.products)},
    )


def plot_fibres(dataset: "xarray.Dataset", spec: Fibres) -> "Figure":
    """Hyperbolas in the plane of two scalar layers; closed curves of 2 by 2 layers, seen in two of their entries."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.2 * PANEL[0], 1.5 * PANEL[1]), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([-spec.reach, spec.reach], [-spec.reach, spec.reach], color=GREY, linewidth=0.8, linestyle=":")
    for product, colour in zip(spec.products, COLOURS, strict=False):
        curve = dataset["second"].sel(product=product)
        for sign in (1, -1):
            label = f"$w_2w_1 = {product:g}$" if sign == 1 else None
            left.plot(sign * dataset["first"], sign * curve, color=colour, label=label)
            root = sign * math.sqrt(product)
            left.plot(root, root, "o", color=colour, markersize=5)
    left.plot([], [], "o", color=GREY, label="balanced")
    left.set(
        xlim=(-spec.reach, spec.reach),
        ylim=(-spec.reach, spec.reach),
        xlabel="first layer $w_1$",
        ylabel="second layer $w_2$",
        title="fibres of scalar layers",
    )
    left.set_aspect("equal")
    left.legend(loc="upper left", fontsize=7)
    for k, (spectrum, colour) in enumerate(zip(spec.spectra, COLOURS, strict=False)):
        curve = dataset["layers"].isel(spectrum=k)
        for component, style in enumerate(("-", "--")):
            points = curve.isel(component=component)
            label = rf"$\sigma = ({spectrum[0]:g}, {spectrum[1]:g})$" if component == 0 else None
            right.plot(
                points.isel(layer=0, row=0, column=0),
                points.isel(layer=1, row=0, column=1),
                color=colour,
                linestyle=style,
                label=label,
            )
    right.plot([], [], color=GREY, linestyle="--", label="mirrored")
    right.set(xlabel=r"entry $(1, 1)$ of $W_1$", ylabel=r"entry $(1, 2)$ of $W_2$", title="balanced 2 by 2 layers")
    right.set_aspect("equal")
    right.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)
    return figure


def claims_fibres(dataset: "xarray.Dataset", spec: Fibres) -> list[Claim]:
    """One product and one norm along each curve; lengths by the formula."""
    excess = np.abs(dataset["norm"] / dataset["least"] - 1)
    apart = np.abs(dataset["length"] / dataset["volume"] - 1)
    return [
        Claim.at_most("All layers of a fibre have the same product: largest distance", dataset["missed"].max(), EXACT),
        Claim.at_most("Balanced layers have the least norm: largest relative distance from it", excess.max(), EXACT),
        Claim.at_most("Measured lengths against vol(O₂)·e^S, relative", apart.max(), 1e-5),
        Claim.at_least(
            "The fibres of larger matrices are larger: smallest ratio of lengths",
            float(np.min(dataset["length"].to_numpy()[1:] / dataset["length"].to_numpy()[:-1], initial=np.inf)),
            1.0,
        ),
    ]


# --- Invariant hyperbolas ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Hyperbolas:
    """Flows of two scalar layers towards a product of 1, from the ends of several invariant hyperbolas."""

    levels: tuple[float, ...] = (-1.5, -0.5, 0.0, 0.5, 1.5)
    reach: float = 2.0
    near: float = 0.05
    time: float = 8.0
    records: int = 81
    rtol: float = 1e-12

    def __post_init__(self) -> None:
        check_count("Hyperbolas", "records", self.records, at_least=2)
        for name in ("reach", "near", "time", "rtol"):
            check_number("Hyperbolas", name, getattr(self, name), above=0)
        for level in self.levels:
            check_number("Hyperbolas", "levels", level, at_least=-0.9 * self.reach**2, at_most=0.9 * self.reach**2)

    @property
    def times(self) -> np.ndarray:
        """Dense at first, where the layers are fastest."""
        return self.time * np.linspace(0.0, 1.0, self.records) ** 2

    @property
    def starts(self) -> list[tuple[float, float, float]]:
        """(G, w₁, w₂): the four ends of each hyperbola within reach, and both sides of the saddle."""
        ends = []
        for level in self.levels:
            far = (self.reach, math.sqrt(self.reach**2 - abs(level)))
            one, other = far if level >= 0 else (far[1], far[0])
            ends += [(level, a * one, b * other) for a in (1, -1) for b in (1, -1)]
            ends += [(level, a * self.near, a * self.near) for a in (1, -1) if level == 0]
        return ends


def run_hyperbolas(spec: Hyperbolas, context: Context) -> "xarray.Dataset":
    """The layers along every flow, and how far they leave their hyperbola."""
    import xarray

    problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(jnp.ones((1, 1))))
    starts = [
        (jnp.array([[first]], dtype=float), jnp.array([[second]], dtype=float)) for _, first, second in spec.starts
    ]
    many = context.complete(
        ensemble(
            problem,
            starts,
            GradientFlow(spec.rtol),
            times=spec.times,
            probes=(weights,),
            progress=context.watch,
        )
    )
    levels = np.array([start[0] for start in spec.starts])
    path = np.stack([np.asarray(many.member(k)["weights"]) for k in range(len(levels))])
    return xarray.Dataset(
        {
            "path": (("flow", "time", "layer"), path, {"long_name": "layers"}),
            "level": ("flow", levels, {"long_name": "w₁² − w₂²"}),
            "off": (("flow", "time"), path[..., 0] ** 2 - path[..., 1] ** 2 - levels[:, None]),
            "product": (("flow", "time"), path[..., 0] * path[..., 1]),
        },
        coords={"time": spec.times, "layer": [1, 2]},
    )


def plot_hyperbolas(dataset: "xarray.Dataset", spec: Hyperbolas) -> "Figure":
    """Invariant curves, the balanced pair of lines highlighted, flow lines with arrows, the minima."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.35 * PANEL[0], 1.9 * PANEL[1]), layout="constrained")
    axis = figure.subplots()
    reach = spec.reach
    grid = np.linspace(-reach, reach, 201)
    first, second = np.meshgrid(grid, grid)
    axis.contour(
        first,
        second,
        first**2 - second**2,
        levels=sorted({*spec.levels} - {0.0}),
        colors=GREY,
        linewidths=0.7,
        linestyles="-",
    )
    for sign in (1, -1):
        axis.plot(grid, sign * grid, color=GREEN, linewidth=2.6, alpha=0.6, label="balanced" if sign == 1 else None)
        part = np.linspace(1 / reach, reach, 200) * sign
        axis.plot(
            part, 1 / part, color="black", linestyle="--", linewidth=1.0, label=r"$w_2w_1 = 1$" if sign == 1 else None
        )
    for flow in range(dataset.sizes["flow"]):
        path = dataset["path"].isel(flow=flow).to_numpy()
        axis.plot(path[:, 0], path[:, 1], color=BLUE, linewidth=1.1, label="flow" if flow == 0 else None)
        along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))])
        middle = int(np.clip(np.searchsorted(along, 0.4 * along[-1]), 1, len(path) - 1))
        tip, tail = path[middle], path[middle] - 1e-3 * (path[middle] - path[middle - 1])
        axis.annotate("", tip, tail, arrowprops={"arrowstyle": "-|>", "color": BLUE, "lw": 0.0, "mutation_scale": 10})
    axis.plot(0, 0, "s", color=RED, label="saddle")
    axis.set(xlim=(-reach, reach), ylim=(-reach, reach), xlabel="first layer $w_1$", ylabel="second layer $w_2$")
    axis.set_aspect("equal")
    figure.legend(loc="outside upper center", ncols=4, columnspacing=1.0)
    return figure


def claims_hyperbolas(dataset: "xarray.Dataset", spec: Hyperbolas) -> list[Claim]:
    """Flows stay on their hyperbola and reach the minima on it; on the balanced line of the other sign, the saddle."""
    path, level = dataset["path"].to_numpy(), dataset["level"].to_numpy()
    final = path[:, -1]
    crossed = (level == 0) & (path[:, 0, 0] * path[:, 0, 1] < 0)
    lines = np.abs(np.abs(path[level == 0, :, 0]) - np.abs(path[level == 0, :, 1]))
    return [
        Claim.at_most(
            "Flows stay on their hyperbola: largest change of w₁² − w₂²", np.abs(dataset["off"]).max(), 1e-10
        ),
        Claim.at_most("Balanced flows stay on the lines w₁ = ±w₂: largest distance", np.max(lines, initial=0.0), 1e-10),
        Claim.at_most(
            "Other flows reach a product of 1: largest distance at the end",
            float(np.max(np.abs(np.prod(final[~crossed], axis=1) - 1))),
            1e-3,
        ),
        Claim.at_most(
            "On the balanced line where the product is negative they tend to 0: largest layer at the end",
            float(np.max(np.abs(final[crossed]), initial=0.0)),
            1e-3,
        ),
    ]


EXPERIMENTS = (
    Experiment(
        id="geometry/fig1.1",
        source="Figure 1.1",
        shows="Fibres: all scalar layers with one product, and all balanced pairs of layers over 2 by 2 matrices.",
        presets={"quick": Fibres(points=1001), "paper": Fibres()},
        run=run_fibres,
        plot=plot_fibres,
        claims=claims_fibres,
        notes="The thesis has a drawing; these are computed fibres. Products and spectra are ours.",
    ),
    Experiment(
        id="geometry/fig2.1",
        source="Figure 2.1",
        shows="Two scalar layers: gradient flow keeps to the hyperbolas w₁² − w₂² = G.",
        presets={"quick": Hyperbolas(records=41), "paper": Hyperbolas()},
        run=run_hyperbolas,
        plot=plot_hyperbolas,
        claims=claims_hyperbolas,
        notes="Levels, energy ½(w₂w₁ − 1)² and starts are ours; the thesis shows the invariant curves only.",
    ),
)
