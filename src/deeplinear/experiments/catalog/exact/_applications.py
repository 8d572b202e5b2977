"""Networks that have learned something before: sequences of tasks, reversal, transfer, fine-tuning."""

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import Params, check_count, check_number
from deeplinear.dynamics import GradientDescent, ensemble, simulate, until
from deeplinear.exact import (
    added_feature,
    continual,
    fine_tune_losses,
    generalisation_loss,
    new_feature_response,
    rebalance,
    reversal_task,
    reversal_time,
    transfer_kernel,
    transfer_target,
)
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.exact._tasks import draw_task, layers_of
from deeplinear.models import DeepLinear, LambdaBalanced, Problem, SquaredDistance, TaskAligned, semantic_hierarchy
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import loss, product

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


def _check_grid(where: str, name: str, values: tuple[float, ...]) -> None:
    for value in values:
        check_number(where, name, value)


# --- Figure 11: continual learning ------------------------------------------------------------------------------------


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
        jnp.asarray(spec.std * rng.normal(size=(hidden, inp))),
        jnp.asarray(spec.std * rng.normal(size=(out, hidden))),
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
        params = tuple(jnp.asarray(layer) for layer in context.complete(run).params)
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


# --- Figure 12: reversal ----------------------------------------------------------------------------------------------

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
        _check_grid("Relearning", "lams", self.lams)


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


# --- Figure 13: transfer ----------------------------------------------------------------------------------------------

OTHER_TARGETS = {"overlap": None, "half": (1.0, 0.5), "clade": (1.0, 1.0), "steep": (0.8, 0.4)}
"""What the other fish and the birds are expected to share of a feature of the goldfish; `None`: as the task says."""

NAMES = ("goldfish", "fish 2", "bird 1", "bird 2", "alga 1", "alga 2", "flower 1", "flower 2")


@dataclasses.dataclass(frozen=True)
class Transfer:
    """A new feature of one item, taught to networks trained on the semantic task."""

    largest_lam: float = 10.0
    lams: int = 41
    perturbed: bool = False
    std: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("Transfer", "largest_lam", self.largest_lam, above=0)
        check_count("Transfer", "lams", self.lams, at_least=3)
        check_number("Transfer", "std", self.std, above=0)


def run_transfer(spec: Transfer, context: Context) -> "xarray.Dataset":
    """Responses of a row trained by gradient descent, the formula for them, and generalisation losses."""
    import xarray

    rng = np.random.default_rng(spec.seed)
    x, y = semantic_hierarchy(perturbed=spec.perturbed)
    target = np.asarray(y @ x.T) / 8
    values = np.linalg.svd(target, compute_uv=False)
    lams = np.linspace(-spec.largest_lam, spec.largest_lam, spec.lams)
    answer = jax.jit(jax.vmap(lambda lam: new_feature_response(transfer_kernel(target, lam), 0)))
    answers = np.asarray(answer(jnp.asarray([*lams, -math.inf, math.inf])))
    model, key = DeepLinear((8, 8, 8)), jax.random.key(0)
    layers = jax.jit(jax.vmap(lambda lam: TaskAligned(target, values, lam)(model, key)[0]))(jnp.asarray(lams))
    trained = []
    for first in np.asarray(layers):
        row, seen = spec.std * rng.normal(size=8), first[:, 0]
        for _ in range(200):
            row = row + 0.2 / (seen @ seen) * (1 - row @ seen) * seen
        trained.append(row @ first)
    expected = {
        name: transfer_target(target, 0) if pair is None else jnp.array([1.0, pair[0], pair[1], pair[1], 0, 0, 0, 0])
        for name, pair in OTHER_TARGETS.items()
    }
    score = jax.jit(jax.vmap(lambda response, wanted: generalisation_loss(response, wanted, 0), in_axes=(0, None)))
    losses = [score(jnp.asarray(answers[:-2]), wanted) for wanted in expected.values()]
    simulated = score(jnp.asarray(trained), expected["overlap"])
    return xarray.Dataset(
        {
            "response": (("lam", "item"), answers[:-2]),
            "trained": (("lam", "item"), np.stack(trained)),
            "limits": (("end", "item"), answers[-2:]),
            "loss": (("expected", "lam"), np.asarray(losses)),
            "trained_loss": ("lam", np.asarray(simulated)),
            "expectation": (("expected", "item"), np.stack(list(expected.values()))),
        },
        coords={"lam": lams, "item": list(NAMES), "expected": list(expected), "end": ["minus", "plus"]},
    )


def plot_transfer(dataset: "xarray.Dataset", spec: Transfer) -> "Figure":
    """Generalisation loss on the left, responses of all items on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.2 * PANEL[0], 1.3 * PANEL[1]), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(dataset["lam"], dataset["trained_loss"], color=COLOURS[0], label="trained row")
    left.plot(dataset["lam"], dataset["loss"].sel(expected="overlap"), color="black", linestyle=":", label="formula")
    left.set(xlabel=r"relative scale $\lambda$", ylabel="generalisation loss")
    left.legend()
    response = dataset["response"].transpose("item", "lam")
    mesh = right.pcolormesh(dataset["lam"], np.arange(8), response, cmap="viridis", vmin=0, vmax=1, shading="nearest")
    right.grid(False)
    right.set_yticks(np.arange(8), list(NAMES))
    right.invert_yaxis()
    right.set(xlabel=r"relative scale $\lambda$", ylabel="item")
    figure.colorbar(mesh, ax=right, label="response to the new feature")
    return figure


TRANSFERRED = {
    # perturbed: {λ: (other fish, birds)}
    False: {-10.0: (0.018, 0.009), 0.0: (0.261, 0.108), 10.0: (0.484, 0.236)},
    True: {-10.0: (0.020, 0.010), 0.0: (0.255, 0.105), 10.0: (0.461, 0.221)},
}


def claims_transfer(dataset: "xarray.Dataset", spec: Transfer) -> list[Claim]:
    """What the figure on transfer is said to show."""
    gap = float(abs(dataset["trained"] - dataset["response"]).max())
    claims = [
        Claim.at_most("Trained rows against the formula: largest difference", gap, 100 * spec.std),
        Claim.at_most(
            "The generalisation loss falls with λ, for four hierarchical expectations: largest change of neighbours",
            dataset["loss"].diff("lam").max(),
            0.0,
        ),
        Claim.at_most(
            "As λ → -∞ nothing is transferred: largest response of another item",
            abs(dataset["limits"].sel(end="minus")[1:]).max(),
            1e-12,
        ),
        Claim.at_most(
            "As λ → ∞ the response is what the task suggests: largest difference",
            abs(dataset["limits"].sel(end="plus") - dataset["expectation"].sel(expected="overlap")).max(),
            1e-12,
        ),
    ]
    if 0.0 in dataset["lam"]:
        claims.append(
            Claim.at_least(
                "At λ = 0 the hierarchy is transferred: response of the other fish",
                dataset["response"].sel(lam=0.0, item="fish 2"),
                0.2,
                "The text counts λ = 0 as lazy once; it is not.",
            )
        )
    known = {lam: pair for lam, pair in TRANSFERRED[spec.perturbed].items() if lam in dataset["lam"]}
    for lam, (fish, bird) in known.items():
        found = dataset["response"].sel(lam=lam)
        error = max(abs(float(found.sel(item="fish 2")) - fish), abs(float(found.sel(item="bird 1")) - bird))
        claims.append(Claim.at_most(f"Recorded responses at λ = {lam:g}: largest difference", error, 1e-3))
    if not spec.perturbed and len(known) == len(TRANSFERRED[False]):
        found = dataset["loss"].sel(expected="overlap", lam=list(known)).to_numpy()
        error = np.abs(found - [0.1745, 0.0486, 0.0003]).max()
        claims.append(Claim.at_most("Recorded losses at λ = -10, 0, 10: largest difference", error, 1e-4))
    return claims


FIGURE_13 = Experiment[Transfer](
    id="exact/fig13",
    source="Figure 13",
    shows="A new feature of one item is transferred along the hierarchy the better the larger λ is.",
    presets={"quick": Transfer(lams=21), "paper": Transfer()},
    run=run_transfer,
    plot=plot_transfer,
    claims=claims_transfer,
    notes="The expected responses are not given; the default is the overlap of the items in the task, "
    "(ΣᵀΣ)ᵢⱼ/(ΣᵀΣ)ᵢᵢ. Networks are taken at convergence on the semantic task.",
)


# --- Figure 14: fine-tuning -------------------------------------------------------------------------------------------

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
        _check_grid("FineTuning", "pretrained", self.pretrained)
        _check_grid("FineTuning", "tuned", self.tuned)
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
    trained = [TaskAligned(target, values, lam)(model, jax.random.key(0)) for lam in spec.pretrained]
    # One set of times and of λ for points and curves, so that little is compiled.
    after = np.unique(np.linspace(0, max(spec.times) / spec.eta, 51).astype(int))
    times, lams = np.concatenate([spec.times, spec.eta * after]), (*spec.tuned, *CURVES)
    before = np.unique(np.linspace(0, spec.pretraining, len(times)).astype(int))
    points, knots = slice(None, len(spec.tuned)), slice(None, len(spec.times))
    losses = [[fine_tune_losses(p, task, times, lams)[points, knots] for p in trained] for task in tasks.values()]
    kept = [[fine_tune_losses(p, task, times)[knots] for p in trained] for task in tasks.values()]
    context.progress(0.3, "losses")
    start = LambdaBalanced(spec.lam, 1.0, absolute_scale=spec.scale, match_det=target)(model, jax.random.key(spec.seed))
    first = simulate(
        Problem(model, SquaredDistance(target)), start, GradientDescent(spec.eta), times=before, progress=context.watch
    )
    final = tuple(jnp.asarray(layer) for layer in context.complete(first).params)
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


EXPERIMENTS = (FIGURE_11, FIGURE_12, FIGURE_13, FIGURE_14)
"""Figures on applications."""
