"""A network that is balanced anew before it goes on learning."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_count, check_number, random
from deeplinear.dynamics import GradientDescent, ensemble, simulate
from deeplinear.exact import (
    added_feature,
    fine_tune_losses,
    rebalance,
    reversal_task,
)
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.exact._tasks import check_grid
from deeplinear.models import DeepLinear, LambdaBalanced, Problem, SquaredDistance, TaskAligned, semantic_hierarchy
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

TASKS = ("added feature", "reversal", "scaled")
CURVES = (0.0, 1.0, 2.0, 5.0, 10.0)


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """Pre-training on the semantic task, re-balancing, and three new tasks."""

    pretrained: tuple[float, ...] = (-10.0, -5.0, 0.0, 5.0, 10.0)
    tuned: tuple[float, ...] = (-10.0, -7.5, -5.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0)
    times: tuple[float, ...] = (0.25, 1.0)
    feature: int = 4
    from_item: int = 0
    to_item: int = 6
    mode: int = 3
    factor: float = 2.0
    eta: float = 1e-3
    pretraining: int = 5000
    lam: float = 1.0
    scale: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check_grid("FineTuning", "pretrained", self.pretrained)
        check_grid("FineTuning", "tuned", self.tuned)
        for time in self.times:
            check_number("FineTuning", "times", time, above=0)
        check_count("FineTuning", "pretraining", self.pretraining, at_least=2)
        check_number("FineTuning", "eta", self.eta, above=0)


def run_fine_tuning(spec: FineTuning, context: Context) -> "xarray.Dataset":
    """Losses after fine-tuning by the closed form, and whole curves by gradient descent and by the closed form."""
    import xarray

    x, y = semantic_hierarchy(perturbed=True)
    target = np.asarray(y @ x.T) / 8
    values, model = np.linalg.svd(target, compute_uv=False), DeepLinear((8, 8, 8))
    tasks = {
        "added feature": np.asarray(added_feature(target, spec.feature, spec.from_item, spec.to_item)),
        "reversal": np.asarray(reversal_task(target, spec.mode)),
        "scaled": spec.factor * target,
    }
    trained = [TaskAligned(target, values, lam)(model, random.key(0)) for lam in spec.pretrained]
    # One set of times and of λ for points and curves, so that little is compiled.
    after = np.unique(np.linspace(0, max(spec.times) / spec.eta, 51).astype(int))
    times, lams = np.concatenate([spec.times, spec.eta * after]), (*spec.tuned, *CURVES)
    before = np.unique(np.linspace(0, spec.pretraining, len(times)).astype(int))
    points, knots = slice(None, len(spec.tuned)), slice(None, len(spec.times))
    losses = [[fine_tune_losses(p, task, times, lams)[points, knots] for p in trained] for task in tasks.values()]
    kept = [[fine_tune_losses(p, task, times)[knots] for p in trained] for task in tasks.values()]
    context.progress(0.3, "losses")
    start = LambdaBalanced(spec.lam, 1.0, absolute_scale=spec.scale, match_det=target)(model, random.key(spec.seed))
    first = simulate(
        Problem(model, SquaredDistance(target)), start, GradientDescent(spec.eta), times=before, progress=context.watch
    )
    final = tuple(jnp.asarray(layer, dtype=float) for layer in context.complete(first).params)
    curves, theory = [], []
    for name, task in tasks.items():
        run = ensemble(
            Problem(model, SquaredDistance(task)),
            [rebalance(final, lam) for lam in CURVES],
            GradientDescent(spec.eta),
            times=after,
            progress=context.watch,
        )
        curves.append(context.complete(run)["loss"])
        theory.append(fine_tune_losses(final, task, times, lams)[len(spec.tuned) :, len(spec.times) :])
        context.progress(0.4 + 0.2 * len(curves), name)
    pre = fine_tune_losses(start, target, spec.eta * before)
    return xarray.Dataset(
        {
            "loss": (("task", "pretrained", "tuned", "time"), np.asarray(losses)),
            "kept": (("task", "pretrained", "time"), np.asarray(kept)),
            "initial": ("task", [0.5 * float(np.sum((target - task) ** 2)) for task in tasks.values()]),
            "pretraining": ("early", np.asarray(first["loss"])),
            "pretraining_theory": ("early", np.asarray(pre)),
            "curve": (("task", "lam", "late"), np.asarray(curves)),
            "curve_theory": (("task", "lam", "late"), np.asarray(theory)),
        },
        coords={
            "task": list(tasks),
            "pretrained": list(spec.pretrained),
            "tuned": list(spec.tuned),
            "time": list(spec.times),
            "early": before,
            "late": after,
            "lam": list(CURVES),
        },
    )


def plot_fine_tuning(dataset: "xarray.Dataset", spec: FineTuning) -> "Figure":
    """Above the loss after a fixed time against the new λ, below the loss over pre-training and fine-tuning."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(2.4 * PANEL[0], 2.3 * PANEL[1]), layout="constrained")
    axes = figure.subplots(2, 3)
    order = np.argsort(spec.tuned)
    lams = np.asarray(spec.tuned)[order]
    for axis, name in zip(axes[0], TASKS, strict=True):
        part = dataset.isel(time=0).sel(task=name)
        for k, lam in enumerate(spec.pretrained):
            colour = COLOURS[k % len(COLOURS)]
            curve = part["loss"].sel(pretrained=lam).to_numpy()[order]
            axis.semilogy(lams, curve, color=colour, linewidth=1.2 + 1.6 * (len(spec.pretrained) - 1 - k))
            axis.semilogy(lam, part["kept"].sel(pretrained=lam), color=colour, marker="o", markeredgecolor="black")
        axis.set(title=name, xlabel=r"$\lambda_{\mathrm{FT}}$")
    axes[0, 0].set_ylabel(f"loss at $t = {spec.times[0]:g}$")
    early, late = dataset["early"].to_numpy(), spec.pretraining + dataset["late"].to_numpy()
    for axis, name in zip(axes[1], TASKS, strict=True):
        axis.semilogy(early, np.maximum(dataset["pretraining"], 1e-12), color="#444444")
        axis.semilogy(early, np.maximum(dataset["pretraining_theory"], 1e-12), color="black", linestyle=":")
        for k, lam in enumerate(CURVES):
            part = dataset.sel(task=name, lam=lam)
            axis.semilogy(late, np.maximum(part["curve"], 1e-12), color=COLOURS[k])
            axis.semilogy(late, np.maximum(part["curve_theory"], 1e-12), color="black", linestyle=":")
        axis.axvline(spec.pretraining, color="#999999", linewidth=0.6)
        axis.set(xlabel="step")
    axes[1, 0].set_ylabel("loss")
    handles: list[Any] = [
        Line2D([], [], color=COLOURS[k % len(COLOURS)], label=rf"$\lambda_{{\mathrm{{PT}}}} = {lam:g}$")
        for k, lam in enumerate(spec.pretrained)
    ]
    handles.append(
        Line2D(
            [], [], color="none", marker="o", markerfacecolor="none", markeredgecolor="black", label="not re-balanced"
        )
    )
    axes[0, 2].legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))
    handles = [
        Line2D([], [], color=COLOURS[k], label=rf"$\lambda_{{\mathrm{{FT}}}} = {lam:g}$")
        for k, lam in enumerate(CURVES)
    ]
    handles.append(Line2D([], [], color="black", linestyle=":", label="closed form"))
    axes[1, 2].legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


TUNED = {
    # time: {task: loss at λ = 0, 1, 2, 5, 10}
    0.25: {
        "added feature": (0.11, 0.10, 0.080, 0.027, 0.0029),
        "reversal": (3.1, 2.8, 2.2, 0.59, 0.049),
        "scaled": (0.91, 0.85, 0.70, 0.26, 0.033),
    },
    1.0: {"reversal": (2.1, 0.26, 0.021, 5.7e-5, 4.7e-9)},
}


def claims_fine_tuning(dataset: "xarray.Dataset", spec: FineTuning) -> list[Claim]:
    """What the figure on fine-tuning is said to show."""
    losses = dataset["loss"]
    first = losses.isel(pretrained=0)
    memory = float((abs(losses - first) / first).max())
    pairs = [lam for lam in spec.tuned if lam > 0 and -lam in spec.tuned]
    claims = [
        Claim.at_most("The loss does not depend on λ of pre-training: largest relative difference", memory, 1e-9),
    ]
    if pairs:
        plus, minus = (losses.sel(tuned=[sign * lam for lam in pairs]).to_numpy() for sign in (1, -1))
        even = float(np.max(np.abs(plus - minus) / plus))
        claims.append(Claim.at_most("It is even in λ of fine-tuning: largest relative difference", even, 1e-9))
        right = losses.sel(tuned=sorted({0.0, *pairs} & set(spec.tuned)))
        claims.append(
            Claim.at_most(
                "It falls with |λ| of fine-tuning: largest ratio of neighbours",
                float(
                    (right.isel(tuned=slice(1, None)).to_numpy() / right.isel(tuned=slice(None, -1)).to_numpy()).max()
                ),
                1.0,
            )
        )
    shared = [lam for lam in spec.pretrained if lam in spec.tuned]
    if shared:
        gap = max(
            float((abs(losses.sel(pretrained=lam, tuned=lam) / dataset["kept"].sel(pretrained=lam) - 1)).max())
            for lam in shared
        )
        claims.append(
            Claim.at_most(
                "Not re-balancing is re-balancing to λ of pre-training: largest relative difference", gap, 1e-9
            )
        )
    scale = dataset["curve_theory"].isel(late=0)
    far = float((abs(dataset["curve"] - dataset["curve_theory"]) / scale).max())
    claims.append(
        Claim.at_most(
            "Gradient descent against the closed form: largest difference over the loss at the start",
            far,
            20 * spec.eta,
            "Of first order in the learning rate.",
        )
    )
    if spec == dataclasses.replace(FineTuning(), **{name: getattr(spec, name) for name in _FREE}):
        for time, tasks in TUNED.items():
            for name, wanted in tasks.items():
                if time not in spec.times or not set(CURVES) <= set(spec.tuned):
                    continue
                found = losses.sel(task=name, time=time, tuned=list(CURVES)).isel(pretrained=0).to_numpy()
                error = float(np.abs(found / np.asarray(wanted) - 1).max())
                claims.append(
                    Claim.at_most(f"Recorded losses, {name} at t = {time:g}: largest relative error", error, 0.03)
                )
    return claims


_FREE = ("pretrained", "tuned", "times", "eta", "pretraining", "lam", "scale", "seed")
"""Settings that do not change the recorded losses."""


FIGURE_14 = Experiment[FineTuning](
    id="exact/fig14",
    source="Figure 14",
    shows="Fine-tuning is the faster the larger |λ| the network is re-balanced to, whatever λ it was trained with.",
    presets={
        "quick": FineTuning(pretrained=(-10.0, 0.0, 5.0), tuned=(-10.0, -5.0, 0.0, 1.0, 2.0, 5.0, 10.0)),
        "paper": FineTuning(),
    },
    run=run_fine_tuning,
    plot=plot_fine_tuning,
    claims=claims_fine_tuning,
    notes="Items, features, modes and times are not given: the semantic task with distinct singular values; feature 5 "
    "of the goldfish goes to the first flower; mode 4 is reversed. Losses against λ are for networks at convergence; "
    "the curves below follow gradient descent from a random start.",
)

EXPERIMENTS = (FIGURE_14,)
