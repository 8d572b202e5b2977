"""Tangents of layers with lengths of matrices, and lines of layers with the curves of their products."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.geometry import Metric, bures_distance, bures_geodesic, horizontality_defect
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

BLUE, RED = COLOURS[:2]
GREY = "#888888"
EXACT = 1e-12
"""Identities of products and roots."""

# --- Tangents and lengths ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Tangents:
    """Tangents of scalar layers, and unit balls of the metric on diagonal matrices."""

    products: tuple[float, ...] = (0.5, 1.5)
    slopes: tuple[float, ...] = (0.5, 1.0, 2.0)
    places: tuple[float, ...] = (0.5, 1.5, 3.0)
    depths: tuple[float, ...] = (1, 2, 5, math.inf)
    radius: float = 0.22
    points: int = 181

    def __post_init__(self) -> None:
        check_count("Tangents", "points", self.points, at_least=12)
        for name in ("products", "slopes", "places"):
            for value in getattr(self, name):
                check_number("Tangents", name, value, above=0)


def run_tangents(spec: Tangents, context: Context) -> "xarray.Dataset":
    """Vertical and horizontal unit vectors, and ellipses of unit vectors times a radius, of the normalised metric."""
    import xarray

    feet, along, across = [], [], []
    for product in spec.products:
        for slope in spec.slopes:
            first = math.sqrt(product / slope)
            second = slope * first
            size = math.hypot(first, second)
            feet.append((first, second))
            along.append((first / size, -second / size))  # (a w₁, −a w₂): the product does not see it
            across.append((second / size, first / size))  # Dφ*(1)
    angles = np.linspace(0, 2 * math.pi, spec.points)
    shape = (len(spec.depths), len(spec.places), len(spec.places), spec.points, 2)
    balls, norms = np.zeros(shape), np.zeros(shape[:4])
    for n, depth in enumerate(spec.depths):
        metric = Metric(depth, normalised=True)
        for i, a in enumerate(spec.places):
            for j, b in enumerate(spec.places):
                axes = np.sqrt(np.diag(np.asarray(metric.eigenvalues(np.diag([a, b])))))
                axes = axes if a >= b else axes[::-1]  # singular values come largest first
                ball = np.stack([axes[0] * np.cos(angles), axes[1] * np.sin(angles)], axis=-1)
                balls[n, i, j] = ball
                some = slice(None, None, max(1, spec.points // 6))
                norms[n, i, j] = np.nan
                norms[n, i, j, some] = [float(metric.norm(np.diag([a, b]), np.diag(v))) for v in ball[some]]
    return xarray.Dataset(
        {
            "foot": (("tangent", "layer"), np.array(feet)),
            "vertical": (("tangent", "layer"), np.array(along)),
            "horizontal": (("tangent", "layer"), np.array(across)),
            "ball": (("depth", "first", "second", "point", "value"), balls),
            "norm": (("depth", "first", "second", "point"), norms, {"long_name": "length of its points, some of them"}),
        },
        coords={"depth": list(spec.depths), "first": list(spec.places), "second": list(spec.places), "layer": [1, 2]},
    )


def plot_tangents(dataset: "xarray.Dataset", spec: Tangents) -> "Figure":
    """Fibres with their tangents and what is orthogonal to them; unit balls at several matrices and depths."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.3 * PANEL[0], 1.5 * PANEL[1]), layout="constrained")
    left, right = figure.subplots(1, 2)
    grid = np.linspace(0.1, 2.6, 300)
    for product in spec.products:
        left.plot(
            grid, product / grid, color=GREY, linewidth=0.9, label="fibres" if product == spec.products[0] else None
        )
    foot = dataset["foot"].to_numpy()
    for name, colour in (("vertical", RED), ("horizontal", BLUE)):
        vector = dataset[name].to_numpy()
        left.quiver(
            *foot.T, *(0.45 * vector.T), angles="xy", scale_units="xy", scale=1, color=colour, width=0.008, label=name
        )
    left.plot(*foot.T, "o", color="black", markersize=3)
    left.set(xlim=(0, 2.6), ylim=(0, 2.6), xlabel="first layer $w_1$", ylabel="second layer $w_2$")
    left.set_title("tangents of scalar layers")
    left.set_aspect("equal")
    left.legend(loc="upper right", fontsize=7)
    for n, depth in enumerate(spec.depths):
        colour = COLOURS[n % len(COLOURS)]
        label = r"$L = \infty$" if math.isinf(depth) else f"$L = {depth:g}$"
        for i, a in enumerate(spec.places):
            for j, b in enumerate(spec.places):
                ball = spec.radius * dataset["ball"].isel(depth=n, first=i, second=j).to_numpy()
                right.plot(
                    a + ball[:, 0], b + ball[:, 1], color=colour, linewidth=1.1, label=label if i + j == 0 else None
                )
    right.set(
        xlabel=r"singular value $\sigma_1$",
        ylabel=r"singular value $\sigma_2$",
        title=f"balls of radius {spec.radius:g}",
    )
    right.set_aspect("equal")
    right.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def claims_tangents(dataset: "xarray.Dataset", spec: Tangents) -> list[Claim]:
    """Tangents are orthogonal, the product does not see the vertical ones; axes of the balls are σ^{1−1/L}."""
    foot, along, across = (dataset[name].to_numpy() for name in ("foot", "vertical", "horizontal"))
    seen = along[:, 0] * foot[:, 1] + along[:, 1] * foot[:, 0]
    reach = np.max(np.abs(dataset["ball"].to_numpy()), axis=3)
    rates = np.array([1 - 1 / depth for depth in spec.depths])[:, None, None]
    wanted = _pairs(np.array(spec.places), rates)
    return [
        Claim.at_most("The product does not move along vertical tangents: largest change", np.max(np.abs(seen)), EXACT),
        Claim.at_most(
            "They are orthogonal to the horizontal ones: largest inner product",
            np.max(np.abs(np.sum(along * across, axis=1))),
            EXACT,
        ),
        Claim.at_most(
            "Points of the balls have length 1: largest distance", float(np.nanmax(np.abs(dataset["norm"] - 1))), 1e-12
        ),
        Claim.at_most(
            "Their axes are σ^{1−1/L}: largest relative distance",
            float(np.max(np.abs(reach / wanted - 1))),
            1e-3,
            "Read off the points that are drawn.",
        ),
    ]


def _pairs(places: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """(depth, first, second, value): the powers of both singular values."""
    one, other = np.meshgrid(places, places, indexing="ij")
    return np.stack([one, other], axis=-1)[None] ** rates[..., None]


# --- Lines and curves -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Lines:
    """Straight lines between layers over two pairs of positive definite matrices: that commute, and that do not."""

    start: tuple[float, float] = (4.0, 1.0)
    commuting: tuple[float, float] = (1.0, 2.25)
    other: tuple[float, float, float] = (2.5, 1.5, 2.5)
    points: int = 61
    nodes: int = 48

    def __post_init__(self) -> None:
        check_count("Lines", "points", self.points, at_least=3)
        check_count("Lines", "nodes", self.nodes, at_least=4)

    @property
    def pairs(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        a, b, c = self.other
        return {
            "commuting": (np.diag(self.start), np.diag(self.commuting)),
            "not commuting": (np.diag(self.start), np.array([[a, b], [b, c]])),
        }


def _root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values)) @ vectors.T


def run_lines(spec: Lines, context: Context) -> "xarray.Dataset":
    """Lines of two layers, their products, the geodesics between the ends, lengths and horizontality."""
    import xarray

    times = np.linspace(0.0, 1.0, spec.points)
    nodes, rule = np.polynomial.legendre.leggauss(spec.nodes)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("layer", "curve", "geodesic", "defect", "line_length", "curve_length", "distance")
    }
    metric = Metric(2)
    for a, b in spec.pairs.values():
        one, other = _root(a), _root(b)
        move = other - one
        at = one + times[:, None, None] * move
        columns["layer"].append(at)
        columns["curve"].append(at @ at)
        columns["geodesic"].append(np.asarray(bures_geodesic(a, b, times)))
        columns["defect"].append([float(horizontality_defect([w, w], [move, move])) for w in at])
        columns["line_length"].append(math.sqrt(2) * float(np.linalg.norm(move)))
        speeds = []
        for t in 0.5 + nodes / 2:
            w = one + t * move
            speeds.append(float(metric.norm(w @ w, move @ w + w @ move)))
        columns["curve_length"].append(float(rule @ np.array(speeds)) / 2)
        columns["distance"].append(math.sqrt(2) * float(bures_distance(a, b)))
    path, entry = ("pair", "time", "row", "column"), ("pair",)
    return xarray.Dataset(
        {
            "layer": (path, np.array(columns["layer"]), {"long_name": "both layers on the line"}),
            "curve": (path, np.array(columns["curve"]), {"long_name": "their product"}),
            "geodesic": (path, np.array(columns["geodesic"]), {"long_name": "geodesic between its ends"}),
            "defect": (("pair", "time"), np.array(columns["defect"]), {"long_name": "part that is not horizontal"}),
            "line_length": (entry, np.array(columns["line_length"]), {"long_name": "length of the line"}),
            "curve_length": (entry, np.array(columns["curve_length"]), {"long_name": "length of its image"}),
            "distance": (entry, np.array(columns["distance"]), {"long_name": "distance of the ends"}),
        },
        coords={"pair": list(spec.pairs), "time": times},
    )


def plot_lines(dataset: "xarray.Dataset", spec: Lines) -> "Figure":
    """Upstairs, downstairs, and how far the lines are from horizontal."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.0 * PANEL[0], 1.45 * PANEL[1]), layout="constrained")
    upstairs, downstairs, third = figure.subplots(1, 3)
    for pair, colour in zip(dataset["pair"].to_numpy(), (BLUE, RED), strict=True):
        part = dataset.sel(pair=pair)
        for axis, name in ((upstairs, "layer"), (downstairs, "curve")):
            x, y = (part[name].isel(row=k, column=k).to_numpy() for k in (0, 1))
            axis.plot(x, y, color=colour, label=pair)
            axis.plot(x[[0, -1]], y[[0, -1]], "o", color=colour, markersize=4)
        geodesic = part["geodesic"]
        downstairs.plot(
            geodesic.isel(row=0, column=0), geodesic.isel(row=1, column=1), color="black", linestyle="--", linewidth=1.0
        )
        third.plot(dataset["time"], part["defect"], color=colour)
    downstairs.plot([], [], color="black", linestyle="--", linewidth=1.0, label="geodesic")
    upstairs.set(xlabel=r"entry $(1,1)$ of $W_1 = W_2$", ylabel=r"entry $(2,2)$", title="lines of balanced layers")
    downstairs.set(xlabel=r"entry $(1,1)$ of $W_2W_1$", ylabel=r"entry $(2,2)$", title="their products")
    third.set(xlabel="place on the line", ylabel="length that is not horizontal", title="defect")
    upstairs.legend(loc="upper right")
    downstairs.legend(loc="upper right")
    return figure


RECORDED = {"distance": 1.374493, "curve_length": 1.377145, "line_length": 1.414214}
"""Lengths between diag(4, 1) and [[2.5, 1.5], [1.5, 2.5]]."""


def claims_lines(dataset: "xarray.Dataset", spec: Lines) -> list[Claim]:
    """For matrices that commute the line is horizontal and projects to the geodesic; for others it is neither."""
    good, bad = dataset.sel(pair="commuting"), dataset.sel(pair="not commuting")
    lengths = [float(bad[name]) for name in RECORDED]
    claims = [
        Claim.at_most("Commuting: the line is horizontal, largest defect", good["defect"].max(), 1e-10),
        Claim.at_most(
            "Commuting: its image is the geodesic, largest distance",
            np.abs(good["curve"] - good["geodesic"]).max(),
            1e-10,
        ),
        Claim.at_most(
            "Commuting: line, image and geodesic are of one length, largest difference",
            max(abs(float(good[name] - good["distance"])) for name in RECORDED),
            1e-10,
        ),
        Claim.at_least("Not commuting: the line is not horizontal, smallest defect", bad["defect"].min(), 1e-2),
        Claim.at_least(
            "Not commuting: geodesic, image and line are longer and longer, smallest difference",
            float(np.min(np.diff(lengths))),
            1e-4,
        ),
    ]
    if (spec.start, spec.other) == ((4.0, 1.0), (2.5, 1.5, 2.5)):
        claims.append(
            Claim.at_most(
                "Their lengths against those recorded, largest difference",
                max(abs(float(bad[name]) - value) for name, value in RECORDED.items()),
                1e-6,
            )
        )
    return claims


EXPERIMENTS = (
    Experiment(
        id="geometry/fig2.2",
        source="Figure 2.2",
        shows="Tangents of layers, vertical and horizontal, and unit balls of the metric on diagonal matrices.",
        presets={"quick": Tangents(points=91), "paper": Tangents()},
        run=run_tangents,
        plot=plot_tangents,
        claims=claims_tangents,
        notes="The thesis has a drawing; these are computed. The balls are of the normalised metric, A_L/L.",
    ),
    Experiment(
        id="geometry/fig3.1",
        source="Figure 3.1",
        shows="Lines of balanced layers and their products: a geodesic where the ends commute, and not otherwise.",
        presets={"quick": Lines(points=21), "paper": Lines()},
        run=run_lines,
        plot=plot_lines,
        claims=claims_lines,
        notes="The thesis has a drawing; these are two layers over positive definite 2 by 2 matrices, where geodesics "
        "are known in closed form (Bures and Wasserstein). The second pair contradicts Theorem 3.4.2 as printed.",
    ),
)
