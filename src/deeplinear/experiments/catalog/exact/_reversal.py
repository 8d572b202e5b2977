"""A task that is the reverse of what was learned."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import Params, check_count, check_number
from deeplinear.dynamics import GradientDescent, ensemble, until
from deeplinear.exact import (
    fine_tune_losses,
    reversal_task,
    reversal_time,
)
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.exact._tasks import check_grid, draw_task, layers_of
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import loss

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

POSITIVE = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclasses.dataclass(frozen=True)
class Relearning:
    """Steps to learn a second task after a first: one mode reversed, or another random task."""

    width: int = 4
    samples: int = 10
    sigma: float = math.sqrt(12)
    eta: float = 0.01
    fraction: float = 1e-3
    mode: int = 1
    lams: tuple[float, ...] = (*(-lam for lam in reversed(POSITIVE)), 0.0, *POSITIVE)
    limit: int = 200_000
    seed: int = 1

    def __post_init__(self) -> None:
        check_count("Relearning", "width", self.width, at_least=1, at_most=self.samples)
        check_count("Relearning", "mode", self.mode, at_least=0, at_most=self.width - 1)
        check_count("Relearning", "limit", self.limit, at_least=1)
        check_number("Relearning", "eta", self.eta, above=0)
        check_number("Relearning", "fraction", self.fraction, above=0, at_most=0.25)
        check_grid("Relearning", "lams", self.lams)


def run_relearning(spec: Relearning, context: Context) -> "xarray.Dataset":
    """Steps of gradient descent until the loss has fallen to a fraction, and the same by the closed form."""
    import xarray

    rng = np.random.default_rng(spec.seed)
    first, second = (draw_task(rng, spec.width, spec.width, spec.samples, spec.sigma).target for _ in range(2))
    model = DeepLinear((spec.width,) * 3)
    targets = {"reversal": np.asarray(reversal_task(first, spec.mode)), "random": second}
    starts = [layers_of(first, lam, np.eye(spec.width)) for lam in spec.lams]
    strength = float(np.linalg.svd(first, compute_uv=False)[spec.mode])

    goals = {name: spec.fraction * 0.5 * float(np.sum((first - target) ** 2)) for name, target in targets.items()}

    def one(name: str) -> np.ndarray:
        run = ensemble(
            Problem(model, SquaredDistance(targets[name])),
            starts,
            GradientDescent(spec.eta),
            horizon=spec.limit,
            every=spec.limit,
            until=until(loss, below=goals[name]),
            progress=context.watch,
        )
        ends = [context.complete(run).member(k) for k in range(len(starts))]
        return np.array([end.final_time if float(end.final("loss")) <= goals[name] else np.nan for end in ends])

    reverse, random = context.each(one, list(targets))
    exact = _crossing(starts[0], second, np.asarray(spec.lams), goals["random"], spec)
    theory = np.asarray(reversal_time(strength, np.asarray(spec.lams), 1 - math.sqrt(spec.fraction))) / spec.eta
    return xarray.Dataset(
        {
            "steps": (("task", "lam"), np.stack([reverse, random])),
            "theory": (("task", "lam"), np.stack([theory, exact])),
            "strength": ((), strength),
        },
        coords={"task": ["reversal", "random"], "lam": list(spec.lams)},
    )


def _crossing(params: Params, target: np.ndarray, lams: np.ndarray, goal: float, spec: Relearning) -> np.ndarray:
    """Steps after which the exact loss is below the goal, by interpolation of its logarithm; infinite if never."""
    times = np.concatenate([np.linspace(0, 20, 801), np.geomspace(20.1, spec.eta * spec.limit, 200)])
    losses = np.asarray(fine_tune_losses(params, target, times, lams))
    found = np.full(len(lams), np.inf)
    for k, curve in enumerate(losses):
        below = np.flatnonzero(curve <= goal)
        if below.size and below[0] > 0:
            i = below[0]
            share = np.log(curve[i - 1] / goal) / np.log(curve[i - 1] / curve[i])
            found[k] = (times[i - 1] + share * (times[i] - times[i - 1])) / spec.eta
    return found


def plot_relearning(dataset: "xarray.Dataset", spec: Relearning) -> "Figure":
    """Steps against λ, one colour for each second task; theory dotted."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(1.6 * PANEL[0], 1.4 * PANEL[1]), layout="constrained")
    axis = figure.subplots()
    order = np.argsort(dataset["lam"].to_numpy())
    lam = dataset["lam"].to_numpy()[order]
    for k, name in enumerate(dataset["task"].to_numpy()):
        part = dataset.sel(task=name).isel(lam=order)
        axis.plot(lam, part["steps"], color=COLOURS[k], marker="o")
        theory = part["theory"].to_numpy()
        axis.plot(lam, np.where(np.isfinite(theory), theory, np.nan), color="black", linestyle=":")
    axis.set_xscale("symlog", linthresh=max(1e-3, float(np.abs(lam[lam != 0]).min(initial=1.0))), linscale=0.5)
    axis.set_yscale("log")
    axis.set(xlabel=r"relative scale $\lambda$", ylabel=f"steps to {spec.fraction:g} of the loss")
    texts = {"reversal": f"mode {spec.mode + 1} reversed", "random": "another random task"}
    handles = [
        Line2D([], [], color=COLOURS[k], marker="o", label=texts[name])
        for k, name in enumerate(dataset["task"].to_numpy())
    ]
    handles.append(Line2D([], [], color="black", linestyle=":", label="closed form"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


RELEARNED = {
    # |λ|: steps of gradient descent for the reversal, the same by theory, and for the random task
    5.0: (66, 67, 62),
    2.0: (150, 151, 128),
    1.0: (240, 240, 208),
    0.1: (526, 525, 631),
    0.01: (794, 791, 706),
}


def claims_relearning(dataset: "xarray.Dataset", spec: Relearning) -> list[Claim]:
    """What the figure on reversal is said to show."""
    reverse, other = dataset.sel(task="reversal"), dataset.sel(task="random")
    large = dataset.where(abs(dataset["lam"]) >= 0.1, drop=True)
    error = abs(large["steps"] / large["theory"] - 1)
    slack = 1 / large["steps"].sel(task="reversal")  # whole steps
    claims = [
        Claim.at_most(
            "Reversal: steps against theory for |λ| ≥ 0.1, relative, beyond one whole step",
            float((error.sel(task="reversal") - slack).max()),
            0.01,
        )
    ]
    if 0.0 in spec.lams:
        small = min(abs(lam) for lam in spec.lams if lam)
        stuck = float(reverse["steps"].sel(lam=0.0).fillna(spec.limit))
        beside = float(reverse["steps"].where(abs(reverse["lam"]) == small, drop=True).max())
        claims += [
            Claim.at_least(
                f"Reversal is catastrophically slow at λ = 0: steps there over those at |λ| = {small:g}",
                stuck / beside,
                3.0,
                "In exact arithmetic it never ends; rounding lets it escape.",
            ),
            Claim.at_most(
                "A random task is not: the same ratio",
                float(other["steps"].sel(lam=0.0).fillna(spec.limit))
                / float(other["steps"].where(abs(other["lam"]) == small, drop=True).max()),
                1.5,
            ),
            Claim(
                "At λ = 0 theory stays at the saddle for ever",
                float(reverse["theory"].sel(lam=0.0)),
                "infinite",
                bool(np.isinf(reverse["theory"].sel(lam=0.0))),
            ),
        ]
    if spec == dataclasses.replace(Relearning(), lams=spec.lams, limit=spec.limit):
        for lam, (taken, predicted, random) in RELEARNED.items():
            for sign in (-1.0, 1.0):
                if sign * lam not in spec.lams:
                    continue
                here = dataset.sel(lam=sign * lam)
                gaps = [
                    abs(float(here["steps"].sel(task="reversal")) - taken),
                    abs(float(here["theory"].sel(task="reversal")) - predicted),
                    abs(float(here["steps"].sel(task="random")) - random),
                ]
                claims.append(
                    Claim.at_most(f"Recorded steps at λ = {sign * lam:g}: largest difference", max(gaps), 1.0)
                )
        if 0.0 in spec.lams:
            random = float(other["steps"].sel(lam=0.0))
            claims.append(Claim.between("Recorded steps of the random task at λ = 0", random, 706, 708))
    return claims


FIGURE_12 = Experiment[Relearning](
    id="exact/fig12",
    source="Figure 12",
    shows="Relearning a reversed mode slows down without bound as λ → 0; learning another task does not.",
    presets={
        "quick": Relearning(lams=(-2.0, -0.1, -0.01, 0.0, 0.01, 0.1, 2.0), limit=6000),
        "paper": Relearning(),
    },
    run=run_relearning,
    plot=plot_relearning,
    claims=claims_relearning,
    notes="Nothing is given in the paper: square networks of width 4, targets of standard deviation √12/2, η = 0.01, "
    "and the second largest mode reversed. The start computes the first task exactly. At λ = 0 the number of steps is "
    "that of rounding errors growing out of the saddle.",
)

EXPERIMENTS = (FIGURE_12,)
