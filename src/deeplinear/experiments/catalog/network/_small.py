"""Networks small enough to be seen whole: one hidden unit, a chain of three numbers, two hidden units."""

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.exact import (
    Ending,
    diagonal_limit,
    layer_mode,
    single_channel,
    single_channel_limit,
    single_node_exponents,
)
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

BLUE, SADDLE, GREEN, PINK, *_, BLACK = COLOURS
"""Saddles are red in the paper; this is the red of our colours."""

EXACT = 1e-12
"""Identities of closed forms, relative to the sizes of the weights."""


# --- Figure 5: one hidden unit ----------------------------------------------------------------------------------------


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


@jax.jit
def _paths(times: Any, starts: Any, sigma: Any) -> tuple[Any, Any]:
    """Paths (start, time, weight) of two layers of half of the weights each, and their ends."""

    def one(start: Any) -> tuple[Any, Any]:
        first, second = jnp.split(start, 2)
        path = single_channel(times, first, second, sigma)
        end = single_channel_limit(first, second, sigma)
        return jnp.concatenate(path, axis=-1), jnp.concatenate(end)

    return jax.vmap(one)(starts)


def _times(horizon: float, points: int) -> np.ndarray:
    """Zero, then evenly in the logarithm: paths are fast first and slow last."""
    return np.concatenate([[0.0], np.geomspace(1e-3, horizon, points - 1)])


def run_plane(spec: Plane, context: Context) -> "xarray.Dataset":
    """Exact paths of one hidden unit, special ones, and the loss over the window."""
    import xarray

    times, starts = _times(spec.horizon, spec.points), spec.starts()
    size = math.sqrt(spec.sigma)
    into = np.array([[spec.window, -spec.window], [-spec.window, spec.window]])
    out = 1e-3 * size * np.array([[1.0, 1.0], [-1.0, -1.0]])
    paths, ends = (np.asarray(x) for x in _paths(times, np.concatenate([starts, into, out]), spec.sigma))
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


# --- Figure 6: three layers of one unit -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Cube:
    """A chain of three numbers from random starts, and from one that ends at a saddle."""

    sigma: float = 1.0
    reach: float = 2.0
    starts: int = 24
    points: int = 241
    horizon: float = 40.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("sigma", "reach", "horizon"):
            check_number("Cube", name, getattr(self, name), above=0)
        check_count("Cube", "starts", self.starts, at_least=1)
        check_count("Cube", "points", self.points, at_least=10)


BOUND = np.array([1.0, 2.0, -1.0])
"""A start whose first and last layers tie and whose product is negative."""

CHECKED_AT = 6.0


def run_cube(spec: Cube, context: Context) -> "xarray.Dataset":
    """Exact paths and ends of all starts; the last start is the one bound for a saddle."""
    import xarray

    rng = np.random.default_rng(spec.seed)
    starts = np.concatenate([rng.uniform(-spec.reach, spec.reach, (spec.starts, 3)), BOUND[None]])
    times = np.unique([*_times(spec.horizon, spec.points), CHECKED_AT])
    path = np.asarray(layer_mode(times, starts, spec.sigma))
    context.progress(0.7, "paths")
    limit = diagonal_limit(starts.T, spec.sigma)
    return xarray.Dataset(
        {
            "path": (("start", "time", "weight"), path, {"long_name": "exact trajectories"}),
            "limit": (("start", "weight"), np.asarray(limit.weights).T),
            "ending": (("start",), np.asarray(limit.ending), {"long_name": "0 minimum, 1 saddle, 2 rest"}),
        },
        coords={"time": times, "weight": ["w1", "w2", "w3"]},
    )


def _sheet(sigma: float, reach: float, fine: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """The part of w₁w₂w₃ = σ with all three positive and within reach: points and triangles, even in logarithms."""
    corner = math.log(reach)
    low = math.log(sigma) - 2 * corner
    corners = np.array([[low, corner, corner], [corner, low, corner], [corner, corner, low]])
    points, index = [], {}
    for i in range(fine + 1):
        for j in range(fine + 1 - i):
            index[i, j] = len(points)
            points.append((i * corners[0] + j * corners[1] + (fine - i - j) * corners[2]) / fine)
    triangles = []
    for i in range(fine):
        for j in range(fine - i):
            triangles.append((index[i, j], index[i + 1, j], index[i, j + 1]))
            if i + j < fine - 1:
                triangles.append((index[i + 1, j], index[i + 1, j + 1], index[i, j + 1]))
    return np.exp(np.array(points)), np.array(triangles)


VIEWS = ((22.0, -58.0), (12.0, 28.0))
"""Elevations and azimuths from which three dimensions are looked at."""


def _dress(axis: Any, reach: float, elevation: float, azimuth: float, *, size: float) -> None:
    """A cube with ticks away from its corners, where those of two axes meet, and upright names, seen from a side."""
    ticks = np.linspace(-0.5, 0.5, 3) * (math.floor(reach) or reach)
    box = (-reach, reach)
    axis.set(xlim=box, ylim=box, zlim=box, xticks=ticks, yticks=ticks, zticks=ticks)
    axis.tick_params(labelsize=size, pad=-2)
    for name in (axis.xaxis, axis.yaxis, axis.zaxis):
        name.set_rotate_label(False)
    axis.zaxis.label.set_rotation(0)
    axis.view_init(elev=elevation, azim=azimuth)
    axis.set_box_aspect((1, 1, 1), zoom=0.9)


def plot_cube(dataset: "xarray.Dataset", spec: Cube) -> "Figure":
    """Sheets of minima, axes of saddles, and paths, from two sides."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(2.5 * PANEL[0], 1.9 * PANEL[1]), layout="constrained")
    points, triangles = _sheet(spec.sigma, spec.reach)
    sheets = [points * np.array(signs) for signs in ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))]
    path, limit = dataset["path"].to_numpy(), dataset["limit"].to_numpy()
    for place, (elevation, azimuth) in enumerate(VIEWS):
        axis: Any = figure.add_subplot(1, 2, place + 1, projection="3d", computed_zorder=False)
        for sheet in sheets:
            axis.plot_trisurf(
                *sheet.T, triangles=triangles, color=GREEN, alpha=0.22, linewidth=0.0, edgecolor="none", zorder=1
            )
        for k in range(3):
            line = np.zeros((3, 2))
            line[k] = -spec.reach, spec.reach
            axis.plot(*line, color=SADDLE, linewidth=1.6, zorder=2)
        for way, end in zip(path[:-1], limit[:-1], strict=True):
            axis.plot(*way.T, color=BLUE, linewidth=0.9, zorder=3)
            axis.plot(*way[:1].T, ".", color=BLUE, markersize=3.5, zorder=3)
            axis.plot(*end[:, None], "o", color=GREEN, markersize=4.5, zorder=4)
        axis.plot(*path[-1].T, color=BLACK, linewidth=2.2, zorder=5)
        axis.plot(*path[-1][:1].T, ".", color=BLACK, markersize=6, zorder=5)
        axis.plot(*limit[-1][:, None], "o", color=SADDLE, markersize=6.5, zorder=6)
        axis.set(xlabel="$w_1$", ylabel="$w_2$", zlabel="$w_3$")
        _dress(axis, spec.reach, elevation, azimuth, size=7.0)
    handles = [
        Line2D([], [], color=GREEN, alpha=0.5, linewidth=6, label=r"minima, $w_1w_2w_3 = \sigma$"),
        Line2D([], [], color=SADDLE, linewidth=1.6, label="saddles: the axes"),
        Line2D([], [], color=BLUE, marker=".", linewidth=0.9, label="exact trajectories from dots"),
        Line2D([], [], color=GREEN, marker="o", markersize=4.5, linestyle="none", label="their limits"),
        Line2D(
            [], [], color=BLACK, marker=".", linewidth=2.2, label=r"from $(1, 2, -1)$ to the saddle $(0, \sqrt{3}, 0)$"
        ),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def claims_cube(dataset: "xarray.Dataset", spec: Cube) -> list[Claim]:
    """Where the paths end."""
    path, limit, ending = (dataset[name].to_numpy() for name in ("path", "limit", "ending"))
    laws = np.diff(path**2, axis=2)
    saddle = np.array([0.0, math.sqrt(3.0), 0.0])
    at_six = dataset["path"][-1].sel(time=CHECKED_AT).to_numpy()
    far = np.max(np.abs(np.prod(limit[:-1], axis=1) - spec.sigma))
    wrong = np.prod(path[:-1, 0], axis=1) < 0
    claims = [
        Claim.at_most("Random starts end on w₁w₂w₃ = σ: largest distance", far, EXACT),
        Claim.at_most("All of them at minima: how many do not", np.sum(ending[:-1] != Ending.minimum), 0),
        Claim.at_most(
            "What neighbours conserve is kept: largest change", np.max(np.abs(laws - laws[:, :1])), EXACT * 10
        ),
        Claim.at_most(
            "Paths go where the conserved quantities say: largest distance at the last time",
            np.max(np.abs(path[:-1, -1] - limit[:-1])),
            1e-8,
        )
        if spec.horizon >= 40
        else Claim.untold("Paths go where the conserved quantities say", "at most 1e-08", "The horizon is too short."),
        Claim.at_most(
            "(1, 2, -1) ends at the saddle (0, √3, 0): distance",
            np.max(np.abs(limit[-1] - saddle)),
            EXACT,
            "w₁² - w₂² and w₂² - w₃² are both nonzero there, for which the paper says that the loss falls to zero.",
        ),
        Claim.at_most(
            "from negative products one layer changes its sign: how many starts do otherwise",
            _turned(path, limit, wrong),
            0,
        ),
    ]
    if spec.sigma == 1:
        claims.append(
            Claim.between("and is this far from it at t = 6", np.max(np.abs(at_six - saddle)), 1.6e-5, 1.8e-5)
        )
    return claims


def _turned(path: np.ndarray, limit: np.ndarray, wrong: np.ndarray) -> int:
    changes = np.sum(np.sign(path[:-1, 0]) != np.sign(limit[:-1]), axis=1)
    return int(np.sum(changes != np.where(wrong, 1, 0)))


# --- Figure 7: two hidden units ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Slices:
    """Limits of two hidden units between one input and one output, from random starts in a cube of four dimensions."""

    sigma: float = 1.0
    reach: float = 2.0
    starts: int = 200
    laws: tuple[float, ...] = (-3.0, -1.0, 1.0, 3.0)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("sigma", "reach"):
            check_number("Slices", name, getattr(self, name), above=0)
        check_count("Slices", "starts", self.starts, at_least=8)
        for law in self.laws:
            check_number("Slices", "laws", abs(law), above=0, at_most=self.reach**2)


TRIPLES = ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3))
SIDES = ((20.0, -60.0), (28.0, 20.0))


def _with_law(rng: np.random.Generator, law: float, spec: Slices) -> np.ndarray:
    """Random starts with w₁² - w₃² equal to a given number."""
    low = math.sqrt(max(law, 0.0))
    first = rng.uniform(low, spec.reach, spec.starts)
    third = np.sqrt(np.maximum(first**2 - law, 0.0))
    signs = rng.choice([-1, 1], (2, spec.starts))
    rest = rng.uniform(-spec.reach, spec.reach, (2, spec.starts))
    return np.stack([signs[0] * first, rest[0], signs[1] * third, rest[1]], axis=1)


def run_slices(spec: Slices, context: Context) -> "xarray.Dataset":
    """Starts and exact limits; and limits of starts that share one law."""
    import xarray

    rng = np.random.default_rng(spec.seed)
    starts = rng.uniform(-spec.reach, spec.reach, (spec.starts, 4))
    shared = np.stack([_with_law(rng, law, spec) for law in spec.laws])
    _, ends = _paths(np.zeros(1), np.concatenate([starts, shared.reshape(-1, 4)]), spec.sigma)
    limits = np.asarray(ends)
    return xarray.Dataset(
        {
            "start": (("start_number", "weight"), starts),
            "limit": (("start_number", "weight"), limits[: spec.starts], {"long_name": "exact limits"}),
            "shared_limit": (("law", "start_number", "weight"), limits[spec.starts :].reshape(shared.shape)),
        },
        coords={"weight": ["w1", "w2", "w3", "w4"], "law": list(spec.laws)},
    )


def plot_slices(dataset: "xarray.Dataset", spec: Slices) -> "Figure":
    """Four slices of three weights, each from two sides; below, pairs of weights."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.9 * PANEL[0], 3.3 * PANEL[1]), layout="constrained")
    grid = figure.add_gridspec(3, 4, height_ratios=(1, 1, 0.95))
    limit = dataset["limit"].to_numpy()
    box = (-1.05 * spec.reach, 1.05 * spec.reach)
    inside = np.all(np.abs(limit) <= box[1], axis=1)
    for row, (elevation, azimuth) in enumerate(SIDES):
        for column, triple in enumerate(TRIPLES):
            axis: Any = figure.add_subplot(grid[row, column], projection="3d")
            axis.scatter(*limit[inside][:, triple].T, s=6, color=GREEN, alpha=0.75, linewidths=0)
            axis.scatter([0], [0], [0], s=28, color=SADDLE)
            names = [f"$w_{k + 1}$" for k in triple]
            for set_label, name in zip((axis.set_xlabel, axis.set_ylabel, axis.set_zlabel), names, strict=True):
                set_label(name, labelpad=-5)
            _dress(axis, box[1], elevation, azimuth, size=6.0)
            name = f"({', '.join(names)})"
            # Within the axes: a title stands above the empty corners of the picture.
            axis.text2D(0.5, 0.92, name if row == 0 else f"{name}, second view", transform=axis.transAxes, ha="center")
    left, right = figure.add_subplot(grid[2, :2]), figure.add_subplot(grid[2, 2:])
    shared = dataset["shared_limit"].to_numpy()
    reach = 1.4 * spec.reach
    line = np.linspace(-reach, reach, 400)
    hues = [colour for colour in COLOURS if colour not in (GREEN, SADDLE)]
    for colour, law, points in zip(itertools.cycle(hues), spec.laws, shared, strict=False):
        # w₁² - w₃² = c: a hyperbola, over w₁ if c is negative and over w₃ if it is positive.
        across = np.sqrt(line**2 + abs(law))
        for sign in (-1, 1):
            pair = (sign * across, line) if law > 0 else (line, sign * across)
            left.plot(*pair, color=colour, linewidth=0.8, alpha=0.6)
        left.plot(points[:, 0], points[:, 2], ".", color=colour, markersize=3, label=f"$w_1^2 - w_3^2 = {law:g}$")
    left.set(xlabel="$w_1$", ylabel="$w_3$", xlim=(-reach, reach), ylim=(-reach, reach), title="tied by a law")
    left.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), markerscale=2)
    right.plot(limit[:, 0], limit[:, 1], ".", color=GREEN, markersize=3, label="limits of random starts")
    right.plot(0, 0, "o", color=SADDLE, markersize=5, label="the origin, a saddle")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    right.set(xlabel="$w_1$", ylabel="$w_2$", xlim=(-reach, reach), ylim=(-reach, reach), title="not tied: everywhere")
    for axis in (left, right):
        axis.set_aspect("equal")
    return figure


def claims_slices(dataset: "xarray.Dataset", spec: Slices) -> list[Claim]:
    """Limits are minima and keep all three laws."""
    start, limit = dataset["start"].to_numpy(), dataset["limit"].to_numpy()
    shared = dataset["shared_limit"].to_numpy()
    scale = 1 + np.max(limit**2)

    def laws(w: np.ndarray) -> np.ndarray:
        return np.stack(
            [w[:, 0] ** 2 - w[:, 2] ** 2, w[:, 1] ** 2 - w[:, 3] ** 2, w[:, 0] * w[:, 1] - w[:, 2] * w[:, 3]]
        )

    product = limit[:, 0] * limit[:, 2] + limit[:, 1] * limit[:, 3]
    hyperbola = shared[..., 0] ** 2 - shared[..., 2] ** 2 - np.array(spec.laws)[:, None]
    claims = [
        Claim.at_most(
            "All limits are minima: largest |w₁w₃ + w₂w₄ - σ|", np.max(np.abs(product - spec.sigma)) / scale, EXACT
        ),
        Claim.at_most(
            "All three laws are kept: largest change", np.max(np.abs(laws(limit) - laws(start))) / scale, EXACT
        ),
        Claim.at_most(
            "Pairs tied by a law lie on hyperbolas: largest distance of w₁² - w₃² from its value",
            np.max(np.abs(hyperbola)) / scale,
            EXACT,
        ),
    ]
    for triple in TRIPLES:
        names = ", ".join(f"w{k + 1}" for k in triple)
        statement = f"Critical points appear everywhere: octants of ({names}) with limits in them"
        count = len({tuple(row) for row in np.sign(limit[:, triple]).astype(int)})
        if spec.starts >= 200:
            claims.append(Claim.at_least(statement, count, 8))
        else:
            claims.append(Claim.untold(statement, "at least 8", "Too few starts."))
    return claims


# --- Registered -------------------------------------------------------------------------------------------------------

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
    Experiment(
        id="network/fig6",
        source="Figure 6",
        shows="Three layers of one unit each: the surface of minima, the axes of saddles, exact trajectories from "
        "random starts, and one that ends at a saddle though neither law of neighbours is zero.",
        presets={"quick": Cube(starts=12, points=101), "paper": Cube()},
        run=run_cube,
        plot=plot_cube,
        claims=claims_cube,
        notes="σ = 1 and the starts, uniform in [-2, 2]³, are ours. The start (1, 2, -1) shows that w₁² ≠ w₂² ≠ w₃² is "
        "not enough for the loss to fall to zero: w₁² ≠ w₃² is needed too, or a positive product.",
    ),
    Experiment(
        id="network/fig7",
        source="Figure 7",
        shows="One hidden layer of two units: exact limits of random starts in slices of three of the four weights, "
        "from two sides each; and pairs of weights, tied by a law and not.",
        presets={"quick": Slices(starts=60), "paper": Slices()},
        run=run_slices,
        plot=plot_slices,
        claims=claims_slices,
        notes="σ = 1 and the starts, uniform in [-2, 2]⁴, are ours.",
    ),
)
