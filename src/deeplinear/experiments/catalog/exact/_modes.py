"""Modes of aligned networks: two layers at three relative scales, and networks of any depth."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_count, check_number, random
from deeplinear.dynamics import GradientDescent, GradientFlow, simulate
from deeplinear.exact import balanced_mode, layer_mode_time, learning_time, mode_strength
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.exact._tasks import draw_rotation, draw_task
from deeplinear.models import DeepLinear, FromSVD, Problem, SquaredDistance, TaskAligned
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import product

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


# --- Figure 3: two layers ---------------------------------------------------------------------------------------------

RECORDED = {0: ((1.545, 1.178, 0.566), (10378.0, 13524.0, 32410.0))}
"""By seed: singular values of the task and, at λ = 0, the steps until each mode is half learned."""


@dataclasses.dataclass(frozen=True)
class ModesSpec:
    """A square network that starts aligned with its task, at several relative scales."""

    width: int = 3
    samples: int = 5
    sigma: float = math.sqrt(12.0)
    lams: tuple[float, ...] = (-2.0, 0.0, 2.0)
    small: float = 9e-4
    lr: float = 2e-4
    steps: int = 40000
    every: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("ModesSpec", "width", self.width, at_least=1)
        check_count("ModesSpec", "samples", self.samples, at_least=self.width)
        check_number("ModesSpec", "sigma", self.sigma, above=0)
        check_number("ModesSpec", "small", self.small, above=0)
        check_number("ModesSpec", "lr", self.lr, above=0)
        check_count("ModesSpec", "steps", self.steps, at_least=1)
        check_count("ModesSpec", "every", self.every, at_least=1, at_most=self.steps)
        for lam in self.lams:
            check_number("ModesSpec", "lams", lam)


def run_modes(spec: ModesSpec, context: Context) -> "xarray.Dataset":
    """Strengths of the modes by gradient descent and by the closed form."""
    import xarray

    rng = np.random.default_rng(spec.seed)
    n = spec.width
    task = draw_task(rng, n, n, spec.samples, spec.sigma)
    left, values, right = np.linalg.svd(task.target)
    problem = task.problem(n)
    starts = []
    for lam in spec.lams:
        small = spec.small * rng.normal(size=(n, n)) if lam == 0 else None
        matrix = small if small is not None else draw_task(rng, n, n, spec.samples, spec.sigma).target
        starts.append((lam, np.linalg.svd(matrix, compute_uv=False), draw_rotation(rng, n)))
    steps = np.arange(0, spec.steps + 1, spec.every)

    def descend(part: tuple[float, np.ndarray, np.ndarray]) -> np.ndarray:
        lam, strengths, rotation = part
        params = FromSVD(left, strengths, right.T, lam, rotation)(problem.model, random.key(0))
        run = simulate(
            problem, params, GradientDescent(spec.lr), times=steps, probes=(product,), progress=context.watch
        )
        return np.einsum("ik,tij,kj->tk", left, context.complete(run)["product"], right)

    found = np.stack(context.each(descend, starts, lambda part: f"λ = {part[0]:g}"))
    initial = np.stack([strengths for _, strengths, _ in starts])
    lams = np.asarray(spec.lams)[:, None]
    theory = np.asarray(mode_strength(spec.lr * steps[:, None], initial[:, None], values, lams[:, :, None]))
    half = np.asarray(learning_time(0.5, initial, values, lams)) / spec.lr
    dims = ("lam", "step", "mode")
    return xarray.Dataset(
        {
            "descent": (dims, found, {"long_name": "strengths of the modes by gradient descent"}),
            "theory": (dims, theory, {"long_name": "strengths of the modes in closed form"}),
            "start": (("lam", "mode"), initial),
            "half": (("lam", "mode"), half, {"long_name": "steps until half of the way is gone"}),
            "target": ("mode", values),
        },
        coords={"lam": list(spec.lams), "step": steps, "mode": np.arange(1, n + 1)},
    )


def plot_modes(dataset: "xarray.Dataset", spec: ModesSpec) -> "Figure":
    """One panel for each λ: descent solid and coloured, theory dotted and black."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    panels = len(spec.lams)
    figure = Figure(figsize=(0.75 * PANEL[0] * panels + 0.6, 1.15 * PANEL[1]), layout="constrained")
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    for axis, lam in zip(axes, spec.lams, strict=True):
        for k, mode in enumerate(dataset["mode"].to_numpy()):
            curve = dataset.sel(lam=lam, mode=mode)
            axis.plot(curve["step"], curve["descent"], color=COLOURS[k % len(COLOURS)], linewidth=2.0)
            axis.plot(curve["step"], curve["theory"], color="black", linestyle=":", linewidth=1.2)
        axis.set(title=rf"$\lambda = {lam:g}$", xlabel="step")
    axes[0].set(ylabel="strength of the mode")
    handles = [
        Line2D([], [], color=COLOURS[k % len(COLOURS)], linewidth=2.0, label=rf"$\tilde s_{k + 1} = {value:.3g}$")
        for k, value in enumerate(dataset["target"].to_numpy())
    ]
    handles.append(Line2D([], [], color="black", linestyle=":", label="closed form"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def claims_modes(dataset: "xarray.Dataset", spec: ModesSpec) -> list[Claim]:
    """Theory and descent agree; modes learn one after the other at λ = 0 and together at larger |λ|."""
    claims = [
        Claim.at_most(
            "Descent follows the closed form: largest difference of a strength",
            abs(dataset["descent"] - dataset["theory"]).max(),
            4.5e-4 * max(1.0, spec.lr / 2e-4),
            "In proportion to the learning rate; measured 3.1e-4 at 2e-4.",
        )
    ]
    half = dataset["half"]
    if 0.0 in spec.lams:
        rich = half.sel(lam=0.0).to_numpy()
        claims.append(
            Claim.at_least(
                "At λ = 0 the stronger mode is learned first: smallest ratio of successive half-times",
                float(np.min(rich[1:] / rich[:-1])),
                1.05,
            )
        )
    lazy = [lam for lam in spec.lams if abs(lam) >= 2]
    if lazy and 0.0 in spec.lams:
        share = float(half.sel(lam=lazy).max() / half.sel(lam=0.0).min())
        claims.append(
            Claim.at_most("At |λ| ≥ 2 all modes are faster: slowest half-time over the fastest at λ = 0", share, 0.25)
        )
    recorded = RECORDED.get(spec.seed)
    if recorded is not None and spec == dataclasses.replace(ModesSpec(), steps=spec.steps, every=spec.every):
        values, steps = recorded
        claims.append(
            Claim.at_most(
                "Singular values of the task as recorded: largest difference",
                float(np.abs(dataset["target"].to_numpy() - values).max()),
                6e-4,
            )
        )
        claims.append(
            Claim.at_most(
                "Half-times at λ = 0 as recorded: largest relative difference",
                float(np.abs(half.sel(lam=0.0).to_numpy() / steps - 1).max()),
                5e-3,
            )
        )
        claims.append(Claim.between("Half-times at λ = ±2, shortest", half.sel(lam=lazy).min(), 550, 1750))
        claims.append(Claim.between("… and longest", half.sel(lam=lazy).max(), 550, 1750))
    return claims


# --- Any depth --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class DepthSpec:
    """Aligned networks of several depths: curves of a few modes, times against start and imbalance."""

    depths: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    simulated: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    targets: tuple[float, ...] = (3.0, 2.0, 1.0)
    start: float = 1e-3
    smallest: float = 1e-8
    largest: float = 1e-1
    imbalance: float = 10.0
    points: int = 41
    times: int = 61

    def __post_init__(self) -> None:
        for name in ("depths", "simulated"):
            for depth in getattr(self, name):
                check_count("DepthSpec", name, depth, at_least=1)
        if not set(self.simulated) <= set(self.depths):
            raise ValueError(f"DepthSpec: simulated must be among depths {self.depths}, but is {self.simulated}.")
        if not self.targets:
            raise ValueError("DepthSpec: targets must hold at least one number, but is empty.")
        for target in self.targets:
            check_number("DepthSpec", "targets", target, above=0)
        check_number("DepthSpec", "start", self.start, above=0)
        check_number("DepthSpec", "smallest", self.smallest, above=0)
        check_number("DepthSpec", "largest", self.largest, above=self.smallest)
        check_number("DepthSpec", "imbalance", self.imbalance, above=1)
        check_count("DepthSpec", "points", self.points, at_least=3)
        check_count("DepthSpec", "times", self.times, at_least=3)


def run_depths(spec: DepthSpec, context: Context) -> "xarray.Dataset":
    """Curves, and times until half of the way is gone."""
    import xarray

    targets = np.array(sorted(spec.targets, reverse=True))
    starts = np.geomspace(spec.smallest, spec.largest, spec.points)
    factors = np.geomspace(1.0, spec.imbalance, spec.points)
    shape = (len(spec.depths), len(targets), spec.times)
    clock, theory, flow = np.zeros((len(spec.depths), spec.times)), np.zeros(shape), np.full(shape, np.nan)
    half, lopsided = np.zeros((len(spec.depths), spec.points)), np.full((len(spec.depths), spec.points), np.nan)
    for i, depth in enumerate(spec.depths):
        # One call: the modes of the curves, balanced layers from every start, and unbalanced ones from the start.
        balanced = np.concatenate([np.full(len(targets), spec.start), starts]) ** (1 / depth)
        layers = np.tile(balanced[:, None], (1, depth))
        if depth > 1:  # the same product, with the first layer larger and the others smaller
            root = spec.start ** (1 / depth)
            wide = np.stack([root * factors ** (depth - 1)] + [root / factors] * (depth - 1), axis=-1)
            layers = np.concatenate([layers, wide])
        ends = np.full(len(layers), targets[0])
        ends[: len(targets)] = targets
        times = np.asarray(layer_mode_time(layers, ends, fraction=np.array([0.5, 0.999])))
        last, rest = float(times[: len(targets), 1].max()), times[len(targets) :, 0]
        half[i] = rest[: spec.points]
        if depth > 1:
            lopsided[i] = rest[spec.points :]
        clock[i] = np.linspace(0, last, spec.times)
        theory[i] = np.asarray(balanced_mode(clock[i], spec.start, targets, depth))

    def follow(depth: int) -> np.ndarray:
        """Strengths of the modes along the flow of the whole network."""
        i, n = spec.depths.index(depth), len(targets)
        matrix = jnp.diag(jnp.asarray(targets))
        problem = Problem(DeepLinear((n,) * (depth + 1)), SquaredDistance(matrix))
        params = TaskAligned(matrix, spec.start)(problem.model, random.key(0))
        method = GradientFlow(1e-10)
        run = simulate(problem, params, method, times=clock[i], probes=(product,), progress=context.watch)
        return np.diagonal(context.complete(run)["product"], axis1=1, axis2=2).T

    for depth, curves in zip(
        spec.simulated, context.each(follow, spec.simulated, lambda depth: f"depth {depth}"), strict=True
    ):
        flow[spec.depths.index(depth)] = curves
    dims = ("depth", "target", "moment")
    return xarray.Dataset(
        {
            "time": (("depth", "moment"), clock),
            "theory": (dims, theory, {"long_name": "strengths of the modes by the solution"}),
            "flow": (dims, flow, {"long_name": "strengths of the modes by gradient flow"}),
            "half": (("depth", "start"), half, {"long_name": "time to half of the way of the strongest mode"}),
            "lopsided": (("depth", "factor"), lopsided, {"long_name": "the same, from unbalanced layers"}),
        },
        coords={"depth": list(spec.depths), "target": targets, "start": starts, "factor": factors},
    )


def plot_depths(dataset: "xarray.Dataset", spec: DepthSpec) -> "Figure":
    """Curves above, one panel for each depth; times below."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    panels = len(spec.depths)
    columns = min(panels, 3)
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(2.1 * PANEL[0], (0.75 * rows + 1.3) * PANEL[1]), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(0.75 * rows + 0.15, 1.15))
    above, below = parts
    grid: Any = above.subplots(rows, columns, sharey=True, squeeze=False)
    for axis in grid.ravel()[panels:]:
        axis.set_visible(False)
    for axis, depth in zip(grid.ravel(), spec.depths, strict=False):
        here = dataset.sel(depth=depth)
        for k, target in enumerate(dataset["target"].to_numpy()):
            curve = here.sel(target=target)
            axis.plot(curve["time"], curve["flow"], color=COLOURS[k % len(COLOURS)], linewidth=2.0)
            axis.plot(curve["time"], curve["theory"], color="black", linestyle=":", linewidth=1.2)
        axis.set(title=f"$L = {depth}$")
    for axis in grid[-1]:
        axis.set(xlabel="time $t$")
    for axis in grid[:, 0]:
        axis.set(ylabel="strength")
    handles = [
        Line2D([], [], color=COLOURS[k % len(COLOURS)], linewidth=2.0, label=f"$s = {target:g}$")
        for k, target in enumerate(dataset["target"].to_numpy())
    ]
    handles.append(Line2D([], [], color="black", linestyle=":", label="solution of one mode"))
    above.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    left, right = below.subplots(1, 2)
    for k, depth in enumerate(spec.depths):
        colour = COLOURS[k % len(COLOURS)]
        left.loglog(dataset["start"], dataset["half"].sel(depth=depth), color=colour, label=f"$L = {depth}$")
        if depth > 1:
            right.loglog(dataset["factor"], dataset["lopsided"].sel(depth=depth), color=colour)
    strongest = float(dataset["target"][0])
    left.set(xlabel=r"start $\sigma_0$, balanced", ylabel=f"time to half, $s = {strongest:g}$")
    right.set(xlabel=rf"imbalance $\rho$ at $\sigma_0 = {spec.start:g}$", ylabel=f"time to half, $s = {strongest:g}$")
    below.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(spec.depths))
    return figure


def claims_depths(dataset: "xarray.Dataset", spec: DepthSpec) -> list[Claim]:
    """The solution is the flow; plateaus grow with depth as a power of the start; imbalance shortens them."""
    gap = abs(dataset["flow"] - dataset["theory"]).max()
    claims = [Claim.at_most("Flow of whole networks and solution of one mode: largest difference", gap, 1e-7)]
    if dataset.sizes["target"] > 1:
        order = dataset["theory"].diff("target").max()
        claims.append(
            Claim.at_most("Stronger modes are ahead at all times: largest lead of a weaker one", order, 1e-12)
        )
    strongest = float(dataset["target"][0])
    for depth in spec.depths:
        half = dataset["half"].sel(depth=depth).to_numpy()
        if depth > 2:
            slope = float(np.log(half[0] / half[1]) / np.log(dataset["start"][0] / dataset["start"][1]))
            statement = f"At depth {depth} the plateau is σ₀^(2/L - 1)/((L-2)s): slope at the smallest starts"
            claims.append(Claim.between(statement, slope, 1.02 * (2 / depth - 1), 0.98 * (2 / depth - 1)))
        if depth == 2:
            slope = float((half[0] - half[1]) / np.log(dataset["start"][1] / dataset["start"][0]))
            statement = "At depth 2 the time is ln(s/σ₀)/(2s): slope in ln(1/σ₀), times 2s"
            claims.append(Claim.between(statement, 2 * strongest * slope, 0.999, 1.001))
        if depth > 1:
            times = dataset["lopsided"].sel(depth=depth).to_numpy()
            statement = f"At depth {depth} a tenfold imbalance shortens the way: time over that of balanced layers"
            statement = (
                statement if spec.imbalance == 10 else statement.replace("a tenfold", f"{spec.imbalance:g}-fold")
            )
            claims.append(Claim.at_most(statement, times[-1] / times[0], 1.0))
    return claims


EXPERIMENTS = (
    Experiment(
        id="exact/fig3",
        source="Figure 3A-C",
        shows="Singular values of the network function by gradient descent and by the closed form, at λ = -2, 0, 2: "
        "one after the other from a small start at λ = 0, nearly together at λ = ±2.",
        presets={"quick": ModesSpec(steps=20000, every=400), "paper": ModesSpec()},
        run=run_modes,
        plot=plot_modes,
        claims=claims_modes,
        notes="The start is aligned with the task. The paper does not state the horizon; 40000 steps is our choice.",
    ),
    Experiment(
        id="exact/deep-modes",
        source="extension of Figure 3 to any depth",
        shows="Learning curves of the modes of aligned networks of depth 1 to 6, and how the time to learn depends on "
        "the start and on the imbalance of the layers.",
        presets={"quick": DepthSpec(depths=(2, 3, 4), simulated=(3,), points=11, times=31), "paper": DepthSpec()},
        run=run_depths,
        plot=plot_depths,
        claims=claims_depths,
        notes="Not in the paper. Unbalanced relatives have the same product; the first layer is larger by ρ^(L-1) and "
        "the others are smaller by ρ.",
    ),
)
