"""Low-rank adapters as two layers, and the λ their initialisations have."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from deeplinear.core import Params, check_count, check_number, dopri8
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.exact import (
    adapter_lambda,
    adapter_layers,
    solve,
)
from deeplinear.experiments._base import Claim, Context, Experiment, seed_key
from deeplinear.models import (
    DeepLinear,
    Problem,
    SquaredDistance,
    lambda_estimate,
)
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import KernelDistance, loss

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Adapters:
    """A linear target of given strengths, adapters of one rank, values of d sigma^2, and times up to a horizon."""

    width: int = 100
    rank: int = 4
    strengths: tuple[float, ...] = (3.0, 2.5, 2.0, 1.5, 0.5, 0.3)
    lams: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)
    horizon: float = 100.0
    points: int = 40
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("Adapters", "rank", self.rank, at_least=1)
        check_count("Adapters", "width", self.width, at_least=max(self.rank, len(self.strengths)))
        check_count("Adapters", "points", self.points, at_least=5)
        check_number("Adapters", "horizon", self.horizon, above=0.1)
        for lam in self.lams:
            check_number("Adapters", "lams", lam, above=0)


KINDS = ("Gaussian", "balanced")
LOOSE = 1.0
"""Imbalance that the closed form is allowed here: for a Gaussian adapter it is an approximation, shown as one."""


def run_adapters(spec: Adapters, context: Context) -> "xarray.Dataset":
    """Training by integration and in closed form, of Gaussian and of exactly balanced adapters."""
    import xarray

    rng = np.random.default_rng(spec.seed)
    count = len(spec.strengths)
    left, right = (np.linalg.qr(rng.normal(size=(spec.width, count)))[0] for _ in range(2))
    target = jnp.asarray((left * np.asarray(spec.strengths)) @ right.T, dtype=float)
    problem = Problem(DeepLinear((spec.width, spec.rank, spec.width)), SquaredDistance(target))
    times = np.concatenate([[0.0], np.geomspace(spec.horizon * 1e-4, spec.horizon, spec.points)])
    parts = [(kind, lam) for kind in KINDS for lam in spec.lams]

    def start(part: tuple[str, float]) -> Params:
        kind, lam = part
        key, std = seed_key(spec.seed, "adapter", lam), math.sqrt(lam / spec.width)
        return adapter_layers(key, (spec.width, spec.width), spec.rank, std, balanced=kind == "balanced")

    def follow(part: tuple[str, float]) -> tuple[np.ndarray, np.ndarray]:
        params = start(part)
        # Not stiff: the fastest rate is dσ² + 2 s, and dense decompositions of the Hessian would cost more than steps.
        flow = GradientFlow(1e-9, integrator=dopri8())
        probes = [loss, KernelDistance(params)]
        run = context.complete(simulate(problem, params, flow, times=times, probes=probes, progress=context.watch))
        return np.asarray(run["loss"]), np.asarray(run["kernel_distance"])

    def known(part: tuple[str, float]) -> tuple[np.ndarray, np.ndarray]:
        params = start(part)
        found = lambda_estimate(params)
        limits = {} if part[0] == "balanced" else {"balance_tolerance": LOOSE}
        closed = solve(problem, params, form="whitened", **limits)
        theory = np.asarray(closed.trajectory(times, probes=[loss])["loss"])
        return theory, np.array([float(found.lam[0]), float(found.operator[0])])

    simulated = context.each(follow, parts, what=lambda part: f"{part[0]} adapter, dσ² = {part[1]:g}")
    # One after the other: two at once can wait for each other in the checks that compiled code makes at run time.
    told = [known(part) for part in parts]
    results = [(run[0], form[0], run[1], form[1]) for run, form in zip(simulated, told, strict=True)]
    shape = (len(KINDS), len(spec.lams))
    stacked = [np.array([row[k] for row in results]).reshape(*shape, -1) for k in range(4)]
    lost = 0.5 * float(np.sum(np.sort(spec.strengths)[::-1][spec.rank :] ** 2))
    dims = ("kind", "lam", "time")
    return xarray.Dataset(
        {
            "loss": (dims, stacked[0]),
            "theory": (dims, stacked[1]),
            "kernel_distance": (dims, stacked[2]),
            "measured_lam": (("kind", "lam"), stacked[3][..., 0]),
            "operator": (("kind", "lam"), stacked[3][..., 1]),
            "floor": ((), lost, {"long_name": "loss of the best approximation of this rank"}),
        },
        coords={"kind": list(KINDS), "lam": list(spec.lams), "time": times},
    )


def plot_adapters(dataset: "xarray.Dataset", spec: Adapters) -> "Figure":
    """Loss above the best of this rank for both kinds of adapters, and how far the kernel of Gaussian ones moves."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.5 * PANEL[0], 1.25 * PANEL[1]), layout="constrained")
    axes = figure.subplots(1, 3)
    later = dataset.isel(time=slice(1, None))
    floor = float(dataset["floor"])
    for axis, kind in zip(axes, KINDS, strict=False):
        for k, lam in enumerate(spec.lams):
            here = later.sel(kind=kind, lam=lam)
            colour = COLOURS[k % len(COLOURS)]
            axis.loglog(here["time"], _shown(here["loss"] - floor), color=colour, label=rf"$d\sigma^2 = {lam:g}$")
            label = None if k else "closed form"
            axis.loglog(here["time"], _shown(here["theory"] - floor), color="black", linestyle=":", label=label)
        axis.set(title=f"{kind} adapter", xlabel="time", ylim=(1e-8, 3 * float(dataset["loss"].max())))
    axes[0].set(ylabel="loss above the best of this rank")
    for k, lam in enumerate(spec.lams):
        here = later.sel(kind="Gaussian", lam=lam)
        axes[2].semilogx(here["time"], here["kernel_distance"], color=COLOURS[k % len(COLOURS)])
    axes[2].set(title="Gaussian adapter", xlabel="time", ylabel="kernel distance from start", ylim=(0, 1))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _shown(values: Any) -> np.ndarray:
    """What a logarithmic axis can show."""
    array = np.asarray(values)
    return np.where(array > 1e-12, array, np.nan)


def claims_adapters(dataset: "xarray.Dataset", spec: Adapters) -> list[Claim]:
    """λ is d σ², the closed form of a bottleneck holds for balanced adapters and nearly for Gaussian ones."""
    bound = 4 * math.sqrt(spec.rank / spec.width)
    lams = dataset["lam"]
    deviation = abs(dataset["measured_lam"].sel(kind="Gaussian") / lams - 1).max()
    operator = (dataset["operator"].sel(kind="Gaussian") / lams).max()
    start = dataset["loss"].isel(time=0)
    gap = abs(dataset["loss"] - dataset["theory"]).max("time") / start
    told = adapter_lambda(spec.width, spec.rank, 1.0)
    printed = float(adapter_lambda(spec.width, spec.rank, 1.0, as_printed=True).lam / told.lam)
    halved = [_time_of(dataset.sel(kind="Gaussian", lam=lam), 0.5) for lam in spec.lams]
    end = dataset["loss"].sel(kind="balanced").isel(time=-1) - dataset["floor"]
    claims = [
        Claim.at_most("λ of a Gaussian adapter is dσ²: largest relative distance", deviation, bound),
        Claim.at_most("… and as a matrix: largest relative deviation in operator norm", operator, bound),
        Claim.at_least("The printed σ² is too small by the factor", 1 / printed, spec.width * 0.999),
        Claim.at_most(
            "Exactly balanced adapter: largest distance of integration and closed form, over the loss at the start",
            gap.sel(kind="balanced").max(),
            1e-6,
        ),
        Claim.at_most(
            "Gaussian adapter: the same with the closed form of its mean λ",
            gap.sel(kind="Gaussian").max(),
            2 * told.deviation,
            "An approximation: its error is of the order of the imbalance, 2√(r/d).",
        ),
        Claim.at_most("The balanced adapter ends at the best approximation of its rank: loss above it", end.max(), 1e-3)
        if spec.horizon >= 10 * max(spec.lams)
        else Claim.untold(
            "The balanced adapter ends at the best approximation of its rank: loss above it",
            "at most 0.001",
            "The horizon is too short for the largest dσ².",
        ),
    ]
    if max(spec.lams) > 3 * max(spec.strengths):
        claims.append(
            Claim.at_most(
                "Time to lose half of what can be lost is not the shortest for the largest dσ²: shortest over that one",
                min(halved) / halved[int(np.argmax(spec.lams))],
                0.999,
                "Where the columns of A do not span the target's, they must turn, which takes a time of order λ/s².",
            )
        )
    return claims


def _time_of(here: "xarray.Dataset", share: float) -> float:
    """First time at which a share of the reducible loss is gone."""
    floor, losses = float(here["floor"]), here["loss"].to_numpy()
    low = losses - floor <= (1 - share) * (losses[0] - floor)
    return float(here["time"].to_numpy()[int(np.argmax(low))]) if low.any() else math.inf


LORA = Experiment(
    id="exact/lora",
    source="Appendix D.4, paragraph on low-rank adapters",
    shows="Fine-tuning a low-rank adapter on a linear target: a two-layer network with a bottleneck and λ = dσ², "
    "solved in closed form where the adapter is balanced and nearly so where it is Gaussian.",
    presets={
        "quick": Adapters(width=24, rank=2, strengths=(3.0, 2.0, 0.5), lams=(0.1, 1.0, 10.0), points=24),
        "paper": Adapters(),
    },
    run=run_adapters,
    plot=plot_adapters,
    claims=claims_adapters,
    notes="The paper has no experiment here; this is a substitute of our own. The paper takes σ² for λ, right is dσ².",
)

EXPERIMENTS = (LORA,)
