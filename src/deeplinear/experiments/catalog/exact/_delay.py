"""How far the tangent kernel of one funnel moves over training, for relative scales from lazy to rich after a delay."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from deeplinear.core import Params, check_count, check_number
from deeplinear.dynamics import GradientDescent, ensemble
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.exact._movement import halfway, kernel_paths, recorded_distances
from deeplinear.experiments.catalog.exact._tasks import draw_rotation, draw_task, layers_of
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import weights

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

LAZY = 3.0
"""Relative scale from which on the kernel hardly moves on the lazy side, and waits on the other."""

FEW = 10
"""Tasks from which on a median is claimed."""


@dataclasses.dataclass(frozen=True)
class Delay:
    """Kernel distance over time in one funnel, for many relative scales and a few tasks.

    Attributes:
        widths: Input, hidden and output width; the hidden and output widths are equal and smaller than the first.
        largest: Largest relative scale; the smallest is its negative.
        lams: Number of relative scales, odd, so that 0 is one of them.
        sigma: Size of the task.
        samples: Samples of the task.
        lr: Step size of gradient descent.
        seed: Seed of the first task.
        tasks: Number of tasks; the picture shows the one whose kernel moves a median distance.
        horizon: Last time of the closed form.
        points: Number of times.
        overlay: Last time of gradient descent.
    """

    widths: tuple[int, int, int] = (3, 2, 2)
    largest: float = 9.0
    lams: int = 21
    sigma: float = math.sqrt(3.0)
    samples: int = 30
    lr: float = 0.002
    seed: int = 100
    tasks: int = 20
    horizon: float = 1e5
    points: int = 120
    overlay: float = 40.0

    def __post_init__(self) -> None:
        for width in self.widths:
            check_count("Delay", "each of widths", width, at_least=1)
        if len(self.widths) != 3 or not self.widths[0] > self.widths[1] == self.widths[2]:
            raise ValueError(f"Delay: widths must be those of a funnel, such as 3,2,2, but are {self.widths}.")
        for name in ("largest", "sigma", "lr", "overlay"):
            check_number("Delay", name, getattr(self, name), above=0)
        check_number("Delay", "horizon", self.horizon, above=1)
        check_count("Delay", "lams", self.lams, at_least=3)
        check_count("Delay", "samples", self.samples, at_least=self.widths[0])
        check_count("Delay", "tasks", self.tasks, at_least=1)
        check_count("Delay", "points", self.points, at_least=3)
        if self.lams % 2 == 0:
            raise ValueError(f"Delay: lams must be odd, so that 0 is one of them, but is {self.lams}.")

    @property
    def scales(self) -> np.ndarray:
        """The relative scales."""
        return np.round(np.linspace(-self.largest, self.largest, self.lams), 12)


def _draw(spec: Delay, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Target, matrix of the start, and rotation of one task; shared by all relative scales."""
    inp, hidden, out = spec.widths
    rng = np.random.default_rng(seed)
    target = draw_task(rng, inp, out, spec.samples, spec.sigma).target
    return target, draw_task(rng, inp, out, spec.samples, 1.0).target, draw_rotation(rng, hidden)


def run_delay(spec: Delay, context: Context) -> "xarray.Dataset":
    """Closed form for all relative scales and tasks; gradient descent for all relative scales on the task drawn."""
    import xarray

    scales = spec.scales
    steps = np.unique(np.round(np.geomspace(1, spec.overlay / spec.lr, 30)).astype(int))
    times = np.unique(np.concatenate([np.geomspace(1e-3, spec.horizon, spec.points), spec.lr * steps]))
    drawn = [_draw(spec, spec.seed + n) for n in range(spec.tasks)]
    starts: list[list[Params]] = [[layers_of(matrix, lam, turn) for _, matrix, turn in drawn] for lam in scales]
    targets = np.stack([target for target, _, _ in drawn])
    distance, loss = (np.zeros((len(scales), spec.tasks, len(times))) for _ in range(2))
    half = np.full((len(scales), spec.tasks, 2), np.nan)
    for j, lam in enumerate(scales):
        first, second = (np.stack([np.asarray(start[i]) for start in starts[j]]) for i in range(2))
        wanted, relative = jnp.asarray(targets, dtype=float), jnp.asarray(lam, dtype=float)
        distance[j], loss[j] = kernel_paths(first, second, wanted, relative, times)
        half[j, :, 0] = halfway(times, distance[j], 0.5 * distance[j, :, -1])
        half[j, :, 1] = halfway(times, loss[j], 0.25 * np.sum((second @ first - targets) ** 2, axis=(1, 2)))
        context.progress(0.8 * (j + 1) / len(scales), f"λ = {lam:g}")
    shown = int(np.argsort(distance[0, :, -1])[spec.tasks // 2])
    run = ensemble(
        Problem(DeepLinear(spec.widths), SquaredDistance(targets[shown])),
        [one[shown] for one in starts],
        GradientDescent(spec.lr),
        times=steps,
        probes=(weights,),
        progress=context.watch,
    )
    records = np.asarray(context.complete(run)["weights"])[:, -len(steps) :]
    descent = np.stack(
        [recorded_distances(one[shown], jnp.asarray(r, dtype=float)) for one, r in zip(starts, records, strict=True)]
    )
    return xarray.Dataset(
        {
            "distance": (("lam", "task", "time"), distance, {"long_name": "kernel distance from the start"}),
            "loss": (("lam", "task", "time"), loss, {"long_name": "reduced loss"}),
            "half": (("lam", "task", "of"), half, {"long_name": "time of half the change"}),
            "descent": (("lam", "step"), descent, {"long_name": "kernel distance by descent"}),
            "shown": ((), shown, {"long_name": "task of the picture"}),
        },
        coords={
            "lam": scales,
            "task": spec.seed + np.arange(spec.tasks),
            "time": times,
            "step": steps,
            "of": ["kernel", "loss"],
        },
    )


def plot_delay(dataset: "xarray.Dataset", spec: Delay) -> "Figure":
    """Kernel distance over time for every relative scale; times of half the change over the relative scale."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.4 * PANEL[0], 1.35 * PANEL[1]), layout="constrained")
    left, right = figure.subplots(1, 2)
    colours, norm = colormaps["coolwarm"], Normalize(-spec.largest, spec.largest)
    one = dataset.isel(task=int(dataset["shown"]))
    for lam in dataset["lam"].to_numpy():
        colour = colours(norm(lam))
        left.semilogx(dataset["time"], one["distance"].sel(lam=lam), color=colour, linewidth=1.2)
        left.plot(dataset["step"] * spec.lr, dataset["descent"].sel(lam=lam), ".", color=colour, markersize=3)
    left.set(
        xlabel="time $t$",
        ylabel="kernel distance from the start",
        title=f"C  funnel {spec.widths}; dots: descent",
    )
    figure.colorbar(ScalarMappable(norm, colours), ax=left, label=r"relative scale $\lambda$")
    for k, (of, name) in enumerate((("kernel", "kernel distance"), ("loss", "loss"))):
        values = dataset["half"].sel(of=of)
        low, high = values.quantile(0.25, "task"), values.quantile(0.75, "task")
        right.fill_between(dataset["lam"], low, high, color=COLOURS[k], alpha=0.2, linewidth=0)
        right.semilogy(dataset["lam"], values.median("task"), "o-", color=COLOURS[k], markersize=3, label=name)
    right.set(
        xlabel=r"relative scale $\lambda$",
        ylabel="time of half the change",
        title=f"median and quartiles of {spec.tasks} tasks",
    )
    right.legend()
    return figure


def claims_delay(dataset: "xarray.Dataset", spec: Delay) -> list[Claim]:
    """Lazy for large positive λ; for large negative λ rich after a delay that grows with |λ|."""
    lams, end = dataset["lam"].to_numpy(), dataset["distance"].isel(time=-1)
    medians = dataset["half"].median("task")
    lazy, waiting = lams[lams >= LAZY], lams[lams <= -LAZY]
    claims = []
    if len(lazy):
        claims.append(
            Claim.at_most(
                f"Lazy side, λ ≥ {LAZY:g}: largest kernel distance at the end over that of the same task at λ = 0",
                float((end.sel(lam=lazy) / end.sel(lam=0.0)).max()),
                0.01,
            )
        )
    if len(waiting):
        statement = f"Other side, λ ≤ {-LAZY:g}: median time of half the kernel's way over that of half the loss, least"
        ratio = medians.sel(of="kernel") / medians.sel(of="loss")
        text = "The delay grows in proportion to |λ|: median time of half the kernel's way over |λ|, largest over least"
        slopes = (medians.sel(of="kernel", lam=waiting) / np.abs(waiting)).to_numpy()
        if spec.tasks >= FEW:
            claims.append(Claim.at_least(statement, float(ratio.sel(lam=waiting).min()), 10.0, "Delayed: above 10."))
            claims.append(Claim.at_most(text, slopes.max() / slopes.min(), 1.1))
        else:
            why = f"A median needs {FEW} tasks or more."
            claims += [Claim.untold(statement, "at least 10", why), Claim.untold(text, "at most 1.1", why)]
    if spec.tasks >= FEW:
        middle = medians.sel(lam=0.0)
        claims.append(
            Claim.between(
                "No delay at λ = 0: median time of half the kernel's way over that of half the loss",
                float(middle.sel(of="kernel") / middle.sel(of="loss")),
                0.5,
                2.0,
            )
        )
    times = dataset["step"] * spec.lr
    exact = dataset["distance"].isel(task=int(dataset["shown"])).sel(time=times, method="nearest")
    claims.append(
        Claim.at_most(
            "Gradient descent follows the closed form: largest difference of the distances",
            float(abs(dataset["descent"] - exact).max()),
            2 * spec.lr,
            "Twice the step: the error of descent is of first order in it.",
        )
    )
    return claims


EXPERIMENTS: tuple[Experiment[Any], ...] = (
    Experiment(
        id="exact/fig5c",
        source="Figure 5C",
        shows="Distance of the tangent kernel from that of the start over training in a funnel: positive λ is lazy, "
        "λ = 0 rich, and negative λ rich after a delay that grows in proportion to |λ|.",
        presets={"quick": Delay(lams=7, overlay=4.0), "paper": Delay()},
        run=run_delay,
        plot=plot_delay,
        claims=claims_delay,
        notes="Widths, number and range of λ, task and step are those of Appendix E.7, whose panel C has another "
        "network than panels A and B. The paper trains on one task to a time it does not state. Here the closed form "
        "goes to t = 10⁵ on twenty tasks, seeds 100 to 119, and the picture shows the one whose kernel moves a median "
        "distance; descent with the paper's step follows it to t = 40, or 20 000 steps. The right panel is ours. The "
        "algorithm printed in Appendix E.1 refuses λ > 0 in a funnel; the starts here take either sign.",
    ),
)
