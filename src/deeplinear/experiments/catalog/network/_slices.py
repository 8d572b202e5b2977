"""Two hidden units between one input and one output, in slices of three of the four weights."""

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.network._small_networks import EXACT, GREEN, SADDLE, dress, exact_paths
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


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
    _, ends = exact_paths(np.zeros(1), np.concatenate([starts, shared.reshape(-1, 4)]), spec.sigma)
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
            dress(axis, box[1], elevation, azimuth, size=6.0)
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


EXPERIMENTS = (
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
