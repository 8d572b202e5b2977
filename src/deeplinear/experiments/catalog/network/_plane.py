"""One hidden unit: its phase plane and its loss surface."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.exact import single_node_exponents
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.network._small_networks import (
    BLUE,
    EXACT,
    GREEN,
    PINK,
    SADDLE,
    exact_paths,
    path_times,
)
from deeplinear.plots import PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Plane:
    """One hidden unit: starts around the border of a square window and near the origin."""

    sigma: float = 1.0
    window: float = 3.0
    border: int = 40
    inside: int = 12
    points: int = 161
    horizon: float = 12.0

    def __post_init__(self) -> None:
        for name in ("sigma", "window", "horizon"):
            check_number("Plane", name, getattr(self, name), above=0)
        check_count("Plane", "border", self.border, at_least=8)
        check_count("Plane", "inside", self.inside, at_least=4)
        check_count("Plane", "points", self.points, at_least=10)

    def starts(self) -> np.ndarray:
        """On the border, evenly, and on a circle around the origin; none on the line w₁ = -w₂."""
        around = (np.arange(self.border) + 0.5) / self.border * 8  # along the border, side after side
        side, along = np.divmod(around, 2.0)
        turns = np.array([[np.cos(s * np.pi / 2), np.sin(s * np.pi / 2)] for s in range(4)])[side.astype(int)]
        edge = np.stack([np.ones_like(along), along - 1], axis=1)
        x = turns[:, 0] * edge[:, 0] - turns[:, 1] * edge[:, 1]
        y = turns[:, 1] * edge[:, 0] + turns[:, 0] * edge[:, 1]
        angles = 2 * np.pi * (np.arange(self.inside) + 0.5) / self.inside
        near = 0.5 * math.sqrt(self.sigma) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        starts = np.concatenate([self.window * np.stack([x, y], axis=1), near])
        return starts[np.abs(starts[:, 0] + starts[:, 1]) > 1e-9]


def run_plane(spec: Plane, context: Context) -> "xarray.Dataset":
    """Exact paths of one hidden unit, special ones, and the loss over the window."""
    import xarray

    times, starts = path_times(spec.horizon, spec.points), spec.starts()
    size = math.sqrt(spec.sigma)
    into = np.array([[spec.window, -spec.window], [-spec.window, spec.window]])
    out = 1e-3 * size * np.array([[1.0, 1.0], [-1.0, -1.0]])
    paths, ends = (np.asarray(x) for x in exact_paths(times, np.concatenate([starts, into, out]), spec.sigma))
    count = len(starts)
    axis = np.linspace(-spec.window, spec.window, 121)
    loss = 0.5 * (spec.sigma - axis[:, None] * axis) ** 2
    angles, radii = np.meshgrid(np.linspace(0, 2 * np.pi, 361), np.linspace(0, 0.3 * size, 31))
    plateau = 0.5 * (spec.sigma - radii**2 * np.cos(angles) * np.sin(angles)) ** 2
    minima = ends[:count]
    exponents = np.asarray(single_node_exponents(minima[:, 0], minima[:, 1], spec.sigma))
    return xarray.Dataset(
        {
            "path": (("start", "time", "weight"), paths[:count], {"long_name": "exact trajectories"}),
            "limit": (("start", "weight"), ends[:count]),
            "exponent": (
                ("start", "which"),
                exponents,
                {"long_name": "eigenvalues of the linearised flow at the limit"},
            ),
            "into_saddle": (("side", "time", "weight"), paths[count : count + 2]),
            "out_of_saddle": (("side", "time", "weight"), paths[count + 2 :]),
            "special_limit": (("special", "weight"), ends[count:]),
            "loss": (("w2", "w1"), loss),
            "plateau": (("range",), np.array([plateau.min(), plateau.max()]), {"long_name": "loss within 0.3 √σ"}),
        },
        coords={"time": times, "weight": ["w1", "w2"], "w1": axis, "w2": axis, "range": ["least", "most"]},
    )


def _branches(sigma: float, window: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Both branches of w₁w₂ = σ within the window."""
    x = np.geomspace(sigma / window, window, 200)
    return [(x, sigma / x), (-x, -sigma / x)]


def plot_plane(dataset: "xarray.Dataset", spec: Plane) -> "Figure":
    """The phase plane, and the same paths on the loss surface."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.6 * PANEL[0], 2.0 * PANEL[1]), layout="constrained")
    left, right = figure.add_gridspec(1, 2, width_ratios=(1, 1.15))
    axis = figure.add_subplot(left)
    window, size = spec.window, math.sqrt(spec.sigma)
    grid = dataset["w1"].to_numpy()
    laws = grid[None, :] ** 2 - grid[:, None] ** 2
    levels = [c for c in np.arange(-8.0, 8.5, 2.0) if c]
    axis.contour(grid, grid, laws, levels=levels, colors="#CCCCCC", linewidths=0.7, linestyles="dashed", zorder=1)
    for path in dataset["path"].to_numpy():
        axis.plot(path[:, 0], path[:, 1], color=BLUE, linewidth=1.0, zorder=2)
        _arrow(axis, path)
    for path in dataset["into_saddle"].to_numpy():
        axis.plot(path[:, 0], path[:, 1], color=SADDLE, linewidth=1.8, zorder=3)
        _arrow(axis, path, SADDLE)
    for path in dataset["out_of_saddle"].to_numpy():
        axis.plot(path[:, 0], path[:, 1], color=PINK, linewidth=2.0, zorder=3)
        _arrow(axis, path, PINK)
    for x, y in _branches(spec.sigma, window):
        axis.plot(x, y, color=GREEN, linewidth=2.6, zorder=4)
    axis.plot(0, 0, "o", color=SADDLE, markersize=7, zorder=5)
    axis.plot([size, -size], [size, -size], "o", color=GREEN, markersize=6, zorder=5)
    axis.set(xlim=(-window, window), ylim=(-window, window), xlabel="$w_1$", ylabel="$w_2$", title="phase plane")
    axis.set_aspect("equal")
    axis.grid(visible=False)

    surface = figure.add_subplot(right, projection="3d")
    _surface(surface, dataset, spec)
    _plane_legend(figure)
    return figure


def _arrow(axis: Any, path: np.ndarray, colour: str = BLUE) -> None:
    """An arrow head in the middle of a path, by length."""
    length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
    if length[-1] < 0.5:
        return
    k = int(np.clip(np.searchsorted(length, 0.45 * length[-1]), 1, len(path) - 1))
    axis.annotate(
        "",
        xy=tuple(path[k]),
        xytext=tuple(path[k] - 1e-3 * (path[k] - path[k - 1]) / np.hypot(*(path[k] - path[k - 1]))),
        arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 0.8, "mutation_scale": 8},
    )


def _surface(axis: Any, dataset: "xarray.Dataset", spec: Plane) -> None:
    """The loss over the middle of the window, cut off above; on it minima, saddle and paths."""
    top, reach = 2.2 * spec.sigma**2, 0.75 * spec.window
    grid = np.linspace(-reach, reach, 121)
    x, y = np.meshgrid(grid, grid)
    loss = 0.5 * (spec.sigma - x * y) ** 2
    # Cut off at one height: what is a little higher is drawn at it, so that the rim is smooth.
    shown = np.where(loss > 1.12 * top, np.nan, np.minimum(loss, top))
    axis.plot_surface(
        x, y, shown, cmap="Greys", vmin=-0.6 * top, vmax=1.6 * top, alpha=0.55, linewidth=0, rstride=1, cstride=1
    )
    lift = 0.01 * top

    def draw(path: np.ndarray, **style: Any) -> None:
        height = 0.5 * (spec.sigma - path[:, 0] * path[:, 1]) ** 2
        seen = (height <= top) & np.all(np.abs(path) <= reach, axis=1)
        axis.plot(*np.where(seen, np.array([path[:, 0], path[:, 1], height + lift]), np.nan), **style)

    for path in dataset["path"].to_numpy():
        draw(path, color=BLUE, linewidth=0.9)
    for path in dataset["into_saddle"].to_numpy():
        draw(path, color=SADDLE, linewidth=1.6)
    for path in dataset["out_of_saddle"].to_numpy():
        draw(path, color=PINK, linewidth=1.8)
    for x, y in _branches(spec.sigma, reach):
        axis.plot(x, y, 0 * x, color=GREEN, linewidth=2.4)
    axis.plot([0], [0], [0.5 * spec.sigma**2 + lift], "o", color=SADDLE, markersize=6)
    axis.set(xlabel="$w_1$", ylabel="$w_2$", zlabel="loss", title="loss, flat around the origin", zlim=(0, top))
    axis.set_zticks(spec.sigma**2 * np.array([0.0, 0.5, 1.0, 1.5, 2.0]))
    axis.view_init(elev=42, azim=-68)
    axis.set_box_aspect((1, 1, 0.6), zoom=0.98)


def _plane_legend(figure: Any) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=GREEN, linewidth=2.6, label=r"minima, $w_1w_2 = \sigma$"),
        Line2D([], [], color=SADDLE, marker="o", linewidth=1.8, label="saddle and separatrix $w_1 = -w_2$"),
        Line2D([], [], color=PINK, linewidth=2.0, label="heteroclinic half-lines"),
        Line2D([], [], color=BLUE, linewidth=1.0, label="exact trajectories"),
        Line2D([], [], color="#BBBBBB", linestyle="dashed", linewidth=0.7, label="$w_1^2 - w_2^2 = c$"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)


def claims_plane(dataset: "xarray.Dataset", spec: Plane) -> list[Claim]:
    """Minima, sides, what is kept, and the plateau."""
    path, limit = dataset["path"].to_numpy(), dataset["limit"].to_numpy()
    start = path[:, 0]
    laws = path[..., 0] ** 2 - path[..., 1] ** 2
    scale = np.max(path**2)
    ends = limit[:, 0] ** 2 - limit[:, 1] ** 2
    special = dataset["special_limit"].to_numpy()
    size = math.sqrt(spec.sigma)
    sides = np.sum(np.sign(limit) != np.sign(start[:, :1] + start[:, 1:]))
    crossed = np.sum(np.sign(start[:, 0] - start[:, 1])[:, None] != np.sign(limit))
    low, high = dataset["plateau"].to_numpy()
    rate = -np.sqrt(ends**2 + 4 * spec.sigma**2)
    exponent = dataset["exponent"].to_numpy()
    return [
        Claim.at_most(
            "All trajectories end on w₁w₂ = σ: largest distance",
            np.max(np.abs(np.prod(limit, axis=1) - spec.sigma)),
            EXACT,
        ),
        Claim.at_most(
            "w₁² - w₂² is kept on the way: largest change", np.max(np.abs(laws - laws[:, :1])) / scale, EXACT
        ),
        Claim.at_most("and to the end: largest change", np.max(np.abs(ends - laws[:, 0])) / scale, EXACT),
        Claim.at_most("No trajectory ends on another side of w₁ = -w₂ than it starts on: how many do", sides, 0),
        Claim.at_least(
            "The line w₁ = w₂ separates no basins: ends on the other side of it than their starts' side would say",
            crossed,
            1,
            "The paper marks the separatrix by a change of the sign of c. Both lines have it; only w₁ = -w₂ is one.",
        ),
        Claim.at_most("From w₁ = -w₂ the origin is reached: largest weight", np.max(np.abs(special[:2])), EXACT),
        Claim.at_most(
            "From next to the origin the half-lines lead to ±√σ(1, 1): largest distance",
            np.max(np.abs(np.abs(special[2:]) - size)),
            EXACT,
        ),
        Claim.at_most(
            "Linearised flow at the minima: eigenvalues 0 and -√(c² + 4σ²), largest relative difference",
            max(np.max(np.abs(exponent[:, 0] / rate - 1)), np.max(np.abs(exponent[:, 1]))),
            1e-10,
        ),
        Claim.at_least("The plateau: least loss within 0.3 √σ of the origin, over σ²", low / spec.sigma**2, 0.4559),
        Claim.at_most("and most", high / spec.sigma**2, 0.5461, "At the origin it is one half."),
    ]


EXPERIMENTS = (
    Experiment(
        id="network/fig5",
        source="Figure 5",
        shows="One hidden unit: phase plane with the hyperbola of minima, the saddle, its separatrix and heteroclinic "
        "half-lines, exact trajectories on the hyperbolas they conserve; and the loss surface with its plateau.",
        presets={"quick": Plane(border=24, inside=8, points=61), "paper": Plane()},
        run=run_plane,
        plot=plot_plane,
        claims=claims_plane,
        notes="σ = 1 is ours. The text says that w₁ = -w₂ separates trajectories of either sign of w₁² - w₂²; both "
        "diagonals do, and only that one separates basins.",
    ),
)
