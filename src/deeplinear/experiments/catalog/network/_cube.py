"""A chain of three numbers: three layers of one unit each."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.exact import Ending, diagonal_limit, layer_mode
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.network._small_networks import BLACK, BLUE, EXACT, GREEN, SADDLE, dress, path_times
from deeplinear.plots import PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


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
    times = np.unique([*path_times(spec.horizon, spec.points), CHECKED_AT])
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
        dress(axis, spec.reach, elevation, azimuth, size=7.0)
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


EXPERIMENTS = (
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
)
