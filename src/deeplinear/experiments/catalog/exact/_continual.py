"""Several tasks, one after the other."""

import dataclasses
import itertools
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.dynamics import GradientDescent, simulate
from deeplinear.exact import (
    continual,
)
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.exact._tasks import draw_task
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import product

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Sequence:
    """Random tasks learned one after the other from small Gaussian layers."""

    widths: tuple[int, int, int] = (5, 10, 6)
    tasks: int = 4
    samples: int = 25
    sigma: float = 1.0
    eta: float = 0.05
    std: float = 1e-4
    steps: int = 10_000
    every: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("Sequence", "tasks", self.tasks, at_least=2)
        check_count("Sequence", "steps", self.steps, at_least=1)
        check_count("Sequence", "every", self.every, at_least=1, at_most=self.steps)
        check_number("Sequence", "eta", self.eta, above=0)
        check_number("Sequence", "std", self.std, above=0)


def run_sequence(spec: Sequence, context: Context) -> "xarray.Dataset":
    """The network function by gradient descent and by the chained closed form, and the loss of every task."""
    import xarray

    rng = np.random.default_rng(spec.seed)
    inp, hidden, out = spec.widths
    tasks = [draw_task(rng, inp, out, spec.samples, spec.sigma) for _ in range(spec.tasks)]
    start = (
        jnp.asarray(spec.std * rng.normal(size=(hidden, inp)), dtype=float),
        jnp.asarray(spec.std * rng.normal(size=(out, hidden)), dtype=float),
    )
    steps = np.arange(0, spec.steps + 1, spec.every)
    if steps[-1] != spec.steps:
        steps = np.append(steps, spec.steps)
    params, pieces = start, []
    for number, task in enumerate(tasks):
        run = simulate(
            task.problem(hidden),
            params,
            GradientDescent(spec.eta),
            times=steps,
            probes=product,
            progress=context.watch,
        )
        params = tuple(jnp.asarray(layer, dtype=float) for layer in context.complete(run).params)
        pieces.append(run["product"])
        context.progress((number + 1) / (spec.tasks + 1), f"task {number + 1}")
    targets = np.stack([task.target for task in tasks])
    solution = continual(start, targets, spec.eta * spec.steps, lam=0.0, tolerance=1.0)
    clock = np.concatenate([number * spec.steps + steps for number in range(spec.tasks)])
    theory = np.asarray(solution.correlations(spec.eta * clock).product)
    simulated = np.concatenate(pieces)
    floors = np.array([task.floor for task in tasks])
    gaps = simulated[None] - targets[:, None]
    return xarray.Dataset(
        {
            "simulated": (("record", "out", "inp"), simulated),
            "theory": (("record", "out", "inp"), theory),
            "loss": (("task", "record"), 0.5 * np.sum(gaps**2, axis=(-2, -1)) + floors[:, None]),
            "theory_loss": (("task", "record"), np.asarray(solution.losses(spec.eta * clock)) + floors[:, None]),
            "floor": ("task", floors),
            "target": (("task", "out", "inp"), targets),
            "trained": ("record", np.repeat(np.arange(spec.tasks), len(steps))),
            "residual": ((), float(solution.residual)),
        },
        coords={"step": ("record", clock), "task": np.arange(spec.tasks)},
    )


def plot_sequence(dataset: "xarray.Dataset", spec: Sequence) -> "Figure":
    """Entries of the network function above, losses of all tasks below."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(2 * PANEL[0], 2.2 * PANEL[1]), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    step = dataset["step"].to_numpy()
    entries = list(itertools.product(range(min(3, spec.widths[2])), range(min(2, spec.widths[0]))))
    for k, (i, j) in enumerate(entries):
        above.plot(step, dataset["simulated"][:, i, j], color=COLOURS[k % len(COLOURS)])
        above.plot(step, dataset["theory"][:, i, j], color="black", linestyle=":", linewidth=1.0)
    for k in range(spec.tasks):
        colour = COLOURS[k % len(COLOURS)]
        active = dataset["trained"].to_numpy() == k
        curve = dataset["loss"][k].to_numpy()
        below.plot(step, curve, color=colour, linestyle=":")
        below.plot(step[active], curve[active], color=colour)
    for axis in (above, below):
        for k in range(1, spec.tasks):
            axis.axvline(k * spec.steps, color="#999999", linewidth=0.6)
    above.set(ylabel=r"entries of $W_2 W_1$")
    below.set(xlabel="step", ylabel="loss")
    handles = [Line2D([], [], color=COLOURS[k], label=f"task {k + 1}") for k in range(spec.tasks)]
    handles += [
        Line2D([], [], color="#444444", label="trained"),
        Line2D([], [], color="#444444", linestyle=":", label="not trained"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    handles = [
        Line2D([], [], color=COLOURS[0], label="gradient descent"),
        Line2D([], [], color="black", linestyle=":", label="closed form"),
    ]
    above.legend(handles=handles, loc="upper right")
    return figure


def claims_sequence(dataset: "xarray.Dataset", spec: Sequence) -> list[Claim]:
    """What the figure on continual learning is said to show."""
    gap = abs(dataset["simulated"] - dataset["theory"]).max(("out", "inp")).to_numpy()
    trained, targets = dataset["trained"].to_numpy(), dataset["target"].to_numpy()
    coarse = dataset["step"].to_numpy() % 100 == 0
    ends = np.flatnonzero(np.append(np.diff(trained) > 0, True))
    excess = (dataset["loss"] - dataset["floor"]).isel(record=ends).transpose("record", "task").to_numpy()
    overlap = 0.5 * np.sum((targets[:, None] - targets[None]) ** 2, axis=(-2, -1))
    past = np.tril_indices(spec.tasks, -1)  # (end of task k, an earlier task)
    claims = [
        Claim.at_most(
            "Gradient descent against the closed form in the first task: largest difference",
            gap[trained == 0].max(),
            8e-3,
            f"The start misses balance by {float(dataset['residual']):.1e}, and steps are not a flow.",
        ),
        Claim.at_most(
            "… in later tasks, every 100 steps",
            gap[(trained > 0) & coarse].max(),
            8e-4,
            f"In between it is up to {gap[trained > 0].max():.1e}, just after a change of task.",
        ),
        Claim.at_least(
            "Old tasks are forgotten: smallest loss above its minimum at the end of a later task",
            excess[past].min(),
            0.05,
        ),
    ]
    if spec != dataclasses.replace(Sequence(), every=spec.every):
        return claims
    own = excess.diagonal() + dataset["floor"].to_numpy()
    last = "The last task has a singular value of 0.009 and has not converged."
    return [
        *claims,
        Claim.at_most("… at the ends of all tasks but the last", gap[ends[:-1]].max(), 1e-12),
        Claim.at_most("… at the end of the last task", gap[ends[-1]], 1e-5, last),
        Claim.at_most(
            "Losses of old tasks end at ½|Σₖ - Σᵢ|² + cᵢ, but for the last task: largest difference",
            np.abs(excess - overlap)[past][:-3].max(),
            1e-9,
        ),
        Claim.at_most("… for the last task", np.abs(excess - overlap)[past][-3:].max(), 1e-5, last),
        Claim.at_most(
            "Recorded losses at the ends of the tasks: largest difference",
            np.abs(own - [0.468, 0.410, 0.380, 0.445]).max(),
            5.1e-4,
        ),
    ]


FIGURE_11 = Experiment[Sequence](
    id="exact/fig11",
    source="Figure 11",
    shows="Closed forms chained from task to task follow gradient descent; what was learned before is forgotten.",
    presets={"quick": Sequence(steps=3000, every=100), "paper": Sequence()},
    run=run_sequence,
    plot=plot_sequence,
    claims=claims_sequence,
    notes="The number of steps is not given; 10000 per task, targets of standard deviation 1/√6. Losses are full ones "
    "of the samples. Small Gaussian layers are balanced to about σ² only, and the closed form takes λ = 0.",
)

EXPERIMENTS = (FIGURE_11,)
