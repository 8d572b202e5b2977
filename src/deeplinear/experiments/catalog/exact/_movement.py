"""How far the tangent kernel of two layers moves: from lazy to rich."""

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, Params, check_count, check_number, near_name, unflatten
from deeplinear.dynamics import GradientDescent, simulate
from deeplinear.exact import Correlations, correlations_of, eigensystem, kernel_distance, propagate, regime, stacked
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.exact._tasks import draw_rotation, draw_task, layers_of
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import weights

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

FUNNEL, SQUARE, INVERTED = "funnel", "square", "inverted funnel"
ARCHITECTURES = {FUNNEL: (4, 2, 2), SQUARE: (4, 4, 4), INVERTED: (2, 2, 4)}
RECORDED = {
    (FUNNEL, -9.0): (0.54, 0.006),
    (FUNNEL, -1.8): (0.47, 0.006),
    (FUNNEL, 0.0): (0.18, 0.006),
    (FUNNEL, 1.8): (0.007, 6e-4),
    (FUNNEL, 3.6): (0.001, 6e-4),
    (SQUARE, -1.8): (0.006, 6e-4),
    (SQUARE, 0.0): (0.19, 0.006),
    (SQUARE, 1.8): (0.006, 6e-4),
    (INVERTED, -1.8): (0.003, 6e-4),
    (INVERTED, 0.0): (0.20, 0.006),
    (INVERTED, 1.8): (0.46, 0.006),
    (INVERTED, 9.0): (0.50, 0.006),
}
"""Mean kernel distances over twenty seeds at t = 10⁴, with half of their last digit."""
RECORDED_HALF = {
    (FUNNEL, -9.0, "kernel"): (37.4, 0.4, "Measured 37.4; about 40 was expected."),
    (FUNNEL, -9.0, "loss"): (0.105, 0.002, "Measured 0.105; about 0.09 was expected."),
    (FUNNEL, 0.0, "kernel"): (0.91, 0.02, "Measured 0.91, of the order of that of the loss; 0.7 to 0.8 was expected."),
    (FUNNEL, 0.0, "loss"): (0.85, 0.02, "Measured 0.85, of the order of that of the kernel; 0.7 to 0.8 was expected."),
}
"""Medians over the same seeds of the times of half the final kernel distance and of half the loss. They are our own
measurements, and said to be so where an earlier, rougher number was another."""
LABELS = {
    (FUNNEL, -9.0): "delayed-rich",
    (FUNNEL, 9.0): "lazy",
    (SQUARE, -9.0): "lazy",
    (SQUARE, 9.0): "lazy",
    (INVERTED, -9.0): "lazy",
    (INVERTED, 9.0): "delayed-rich",
    **{(name, 0.0): "rich" for name in ARCHITECTURES},
}
ENDS = (-9.0, 0.0, 9.0)
"""Relative scales that are followed over time."""


@dataclasses.dataclass(frozen=True)
class Movement:
    """Kernel distance from the start for three architectures over the relative scale and over time."""

    architectures: tuple[str, ...] = (FUNNEL, SQUARE, INVERTED)
    largest: float = 9.0
    lams: int = 11
    sigma: float = math.sqrt(3.0)
    samples: int = 10
    first_seed: int = 100
    seeds: int = 20
    horizon: float = 1e4
    points: int = 60
    lr: float = 0.01
    overlay: float = 40.0
    labels: bool = True

    def __post_init__(self) -> None:
        for name in self.architectures:
            if name not in ARCHITECTURES:
                raise ValueError(f"Movement: architectures has '{name}'. {near_name(name, ARCHITECTURES)}")
        for name in ("largest", "sigma", "lr", "overlay"):
            check_number("Movement", name, getattr(self, name), above=0)
        check_number("Movement", "horizon", self.horizon, above=1)
        check_count("Movement", "lams", self.lams, at_least=3)
        check_count("Movement", "samples", self.samples, at_least=4)
        check_count("Movement", "seeds", self.seeds, at_least=1)
        check_count("Movement", "points", self.points, at_least=3)
        check_count("Movement", "first_seed", self.first_seed)
        if self.lams % 2 == 0:
            raise ValueError(f"Movement: lams must be odd, so that 0 is one of them, but is {self.lams}.")

    @property
    def scales(self) -> np.ndarray:
        """The relative scales."""
        return np.round(np.linspace(-self.largest, self.largest, self.lams), 12)


def _draw(spec: Movement, name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Target, matrix of the start, and rotation of one seed; shared by all relative scales."""
    inp, hidden, out = ARCHITECTURES[name]
    rng = np.random.default_rng(seed)
    task = draw_task(rng, inp, out, spec.samples, spec.sigma)
    return task.target, draw_task(rng, inp, out, spec.samples, 1.0).target, draw_rotation(rng, hidden)


def _start(name: str, drawn: tuple[np.ndarray, np.ndarray, np.ndarray], lam: float) -> Params:
    target, matrix, rotation = drawn
    return layers_of(matrix, lam, rotation, match_det=target if name == SQUARE else None)


def halfway(times: np.ndarray, paths: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """When each path first reaches its level, straight lines over the logarithm of time; nan where it does not."""
    found = np.full(len(paths), np.nan)
    for n, (path, level) in enumerate(zip(paths, levels, strict=True)):
        reached = path >= level if path[0] < level else path <= level
        k = int(np.argmax(reached))
        if reached[k] and k > 0:
            share = (level - path[k - 1]) / (path[k] - path[k - 1])
            found[n] = times[k - 1] * (times[k] / times[k - 1]) ** share
    return found


@jax.jit
def kernel_paths(
    first: Float[Array, "seeds hidden inp"],
    second: Float[Array, "seeds out hidden"],
    targets: Float[Array, "seeds out inp"],
    lam: Float[Array, ""],
    times: Float[Array, " times"],
) -> tuple[Float[Array, "seeds times"], Float[Array, "seeds times"]]:
    """Kernel distance from the start and reduced loss of many networks at increasing times, by the closed form."""

    def follow(w1: Array, w2: Array, target: Array) -> tuple[Array, Array]:
        system = eigensystem(target, lam)
        start = stacked((w1, w2))
        beginning = correlations_of(start, w1.shape[1])

        def move(factor: Array, dt: Array) -> tuple[Array, tuple[Array, Array]]:
            moved = propagate(factor, system, dt)
            now: Correlations = correlations_of(moved, w1.shape[1])
            return moved, (kernel_distance(beginning, now), 0.5 * jnp.sum((now.product - target) ** 2))

        return jax.lax.scan(move, start, jnp.diff(times, prepend=0.0))[1]

    return jax.vmap(follow)(first, second, targets)


@jax.jit
def recorded_distances(start: Params, records: Float[Array, "records size"]) -> Float[Array, " records"]:
    """Kernel distance of recorded layers from a start."""
    shapes = [(layer.shape[0], layer.shape[1]) for layer in start]
    inp = start[0].shape[1]
    layers = jax.vmap(lambda record: correlations_of(stacked(unflatten(record, shapes)), inp))(records)
    return kernel_distance(correlations_of(stacked(start), inp), layers)


def run_movement(spec: Movement, context: Context) -> "xarray.Dataset":
    """Closed form for all architectures, scales and seeds; gradient descent from the first seed; labels at the ends."""
    import xarray

    names = list(spec.architectures)
    scales = spec.scales
    steps = np.unique(np.round(np.geomspace(1, spec.overlay / spec.lr, 30)).astype(int))
    times = np.unique(np.concatenate([np.geomspace(1e-3, spec.horizon, spec.points), spec.lr * steps]))
    seeds = range(spec.first_seed, spec.first_seed + spec.seeds)
    ends = [lam for lam in ENDS if lam in scales]
    distances, losses = (np.zeros((len(names), len(scales), spec.seeds, len(times))) for _ in range(2))
    descent = np.zeros((len(names), len(ends), len(steps)))
    labels = np.full((len(names), len(ends), spec.seeds), "", dtype="<U12")
    halves = np.full((len(names), len(ends), spec.seeds, 2), np.nan)
    final = np.full((len(names), len(ends), spec.seeds), np.nan)

    def follow(name: str) -> None:
        k = names.index(name)
        drawn = [_draw(spec, name, seed) for seed in seeds]
        targets = jnp.asarray(np.stack([np.asarray(target) for target, _, _ in drawn]), dtype=float)
        for j, lam in enumerate(scales):
            starts = [_start(name, one, float(lam)) for one in drawn]
            first, second = (np.stack([np.asarray(start[i]) for start in starts]) for i in range(2))
            distances[k, j], losses[k, j] = kernel_paths(first, second, targets, np.asarray(lam, dtype=float), times)
            if lam not in ends:
                continue
            i = ends.index(float(lam))
            for n, (start, one) in enumerate(zip(starts, drawn, strict=True) if spec.labels else ()):
                found = regime(start, one[0], float(lam))
                labels[k, i, n], final[k, i, n] = found.label, found.end
            first_loss = 0.5 * np.sum((second @ first - np.asarray(targets)) ** 2, axis=(1, 2))
            halves[k, i, :, 0] = halfway(times, distances[k, j], 0.5 * distances[k, j, :, -1])
            halves[k, i, :, 1] = halfway(times, losses[k, j], 0.5 * first_loss)
            run = simulate(
                Problem(DeepLinear(ARCHITECTURES[name]), SquaredDistance(targets[0])),
                starts[0],
                GradientDescent(spec.lr),
                times=steps,
                probes=(weights,),
                progress=context.watch,
            )
            records = jnp.asarray(np.asarray(context.complete(run)["weights"])[-len(steps) :], dtype=float)
            descent[k, i] = recorded_distances(starts[0], records)

    context.each(follow, names)
    dims = ("architecture", "lam", "seed", "time")
    return xarray.Dataset(
        {
            "distance": (dims, distances, {"long_name": "kernel distance from the start"}),
            "loss": (dims, losses, {"long_name": "reduced loss"}),
            "descent": (("architecture", "end", "step"), descent, {"long_name": "kernel distance by descent"}),
            "label": (("architecture", "end", "seed"), labels),
            "final": (("architecture", "end", "seed"), final, {"long_name": "kernel distance at infinite time"}),
            "half": (("architecture", "end", "seed", "of"), halves, {"long_name": "time of half the change"}),
        },
        coords={
            "architecture": names,
            "lam": scales,
            "seed": list(seeds),
            "time": times,
            "end": ends,
            "step": steps,
            "of": ["kernel", "loss"],
        },
    )


def _networks(axis: Any) -> None:
    """The three architectures as columns of units, joined layer by layer."""
    axis.set_axis_off()
    for k, (name, widths) in enumerate(ARCHITECTURES.items()):
        columns = [[(2.4 * k + 0.7 * j, i - (width - 1) / 2) for i in range(width)] for j, width in enumerate(widths)]
        for before, after in itertools.pairwise(columns):
            for start in before:
                for end in after:
                    axis.plot(*zip(start, end, strict=True), color="#BBBBBB", linewidth=0.6, zorder=1)
        for column in columns:
            axis.plot(*zip(*column, strict=True), "o", color=COLOURS[k], markersize=6, zorder=2)
        axis.text(2.4 * k + 0.7, -2.3, f"{name}\n{widths}", ha="center", va="top", fontsize=8)
    axis.set(xlim=(-0.4, 6.6), ylim=(-3.6, 2.0), title="A  architectures")


def plot_movement(dataset: "xarray.Dataset", spec: Movement) -> "Figure":
    """Architectures; distance at the last time over the relative scale, with its spread; below, distances over time."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(2.1 * PANEL[0], 2.6 * PANEL[1]), layout="constrained")
    count = len(spec.architectures)
    above = ["A"] * count + ["B"] * count
    below = [str(k) for k in range(count) for _ in range(2)]
    axes = figure.subplot_mosaic(cast(Any, [above, below]))
    _networks(axes["A"])
    last = dataset["distance"].isel(time=-1)
    for k, name in enumerate(spec.architectures):
        here = last.sel(architecture=name)
        axes["B"].errorbar(
            dataset["lam"], here.mean("seed"), here.std("seed"), color=COLOURS[k], marker="o", capsize=2, label=name
        )
    axes["B"].set(xlabel=r"relative scale $\lambda$", ylabel="kernel distance", title=f"B  at $t = {spec.horizon:g}$")
    axes["B"].legend(loc="upper center")
    axes["B"].set_ylim(-0.02, 0.95)
    times = dataset["step"] * spec.lr
    for k, name in enumerate(spec.architectures):
        axis = axes[str(k)]
        for j, end in enumerate(dataset["end"].to_numpy()):
            curve = dataset["distance"].sel(architecture=name, lam=end).isel(seed=0)
            axis.semilogx(times, dataset["descent"].sel(architecture=name, end=end), color=COLOURS[j], linewidth=2.4)
            axis.semilogx(dataset["time"], curve, color="black", linestyle=":")
        axis.set(xlabel="time $t$", ylim=(-0.02, 0.72), title=f"{name}, seed {spec.first_seed}")
        if k:
            axis.set_yticklabels([])
    axes["0"].set_ylabel("kernel distance")
    handles = [
        Line2D([], [], color=COLOURS[j], linewidth=2.4, label=f"descent, $\\lambda = {end:g}$")
        for j, end in enumerate(dataset["end"].to_numpy())
    ]
    handles.append(Line2D([], [], color="black", linestyle=":", label="closed form"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def claims_movement(dataset: "xarray.Dataset", spec: Movement) -> list[Claim]:
    """What the figure is said to show."""
    mean = dataset["distance"].isel(time=-1).mean("seed")
    paper = (spec.seeds, spec.first_seed, spec.horizon, spec.samples) == (20, 100, 1e4, 10)
    claims = []
    if paper:
        for (name, lam), (number, room) in RECORDED.items():
            if name in spec.architectures and lam in dataset["lam"]:
                value = float(mean.sel(architecture=name, lam=lam))
                statement = f"{name}, λ = {lam:g}: mean kernel distance at the end"
                claims.append(Claim.between(statement, value, number - room, number + room))
    large = dataset["lam"].to_numpy()
    lazy = {FUNNEL: large[large >= 5], SQUARE: large[abs(large) >= 5], INVERTED: large[large <= -5]}
    for name in spec.architectures:
        if len(lazy[name]):
            farthest = mean.sel(architecture=name, lam=lazy[name]).max()
            claims.append(Claim.at_most(f"{name}: largest mean distance on the lazy side, |λ| ≥ 5", farthest, 1e-3))
    even = mean.sel(architecture=SQUARE).to_numpy() if SQUARE in spec.architectures else np.zeros(0)
    if len(even):
        middle = len(even) // 2
        claims += [
            Claim.at_most(
                "The square network does not see the sign of λ: largest difference",
                np.max(abs(even - even[::-1])),
                1e-9,
            ),
            Claim.at_most(
                "… and moves most at λ = 0: largest mean distance elsewhere over that at 0",
                float(np.max(np.delete(even, middle)) / even[middle]),
                1.0,
            ),
        ]
    if FUNNEL in spec.architectures and -9.0 in dataset["lam"] and spec.horizon >= 1e3:
        funnel = dataset["distance"].sel(architecture=FUNNEL, lam=-9.0)
        early = float(funnel.mean("seed").interp(time=10.0))
        claims.append(
            Claim.at_most(
                "The funnel at λ = −9 is still lazy at t = 10: mean distance there over that at the end",
                early / float(mean.sel(architecture=FUNNEL, lam=-9.0)),
                0.35,
                "The horizon matters: read at t = 10 the delayed rich phase looks lazy.",
            )
        )
        if paper:
            claims.append(Claim.between("… that mean distance itself", early, 0.084, 0.096, "Recorded 0.09."))
    for (name, lam, of), (number, room, note) in RECORDED_HALF.items():
        if paper and name in spec.architectures and lam in dataset["end"]:
            value = float(dataset["half"].sel(architecture=name, end=lam, of=of).median("seed"))
            statement = f"{name}, λ = {lam:g}: median time of half the {of}"
            claims.append(Claim.between(statement, value, number - room, number + room, note))
    for (name, lam), label in LABELS.items():
        if not spec.labels or name not in spec.architectures or lam not in dataset["end"]:
            continue
        here = dataset.sel(architecture=name, end=lam)
        share = float((here["label"] == label).mean())
        if label != "delayed-rich":
            claims.append(Claim.at_least(f"{name}, λ = {lam:g}: share of seeds labelled {label}", share, 1.0))
            continue
        medians = here["half"].median("seed")
        ratio = float(medians.sel(of="kernel") / medians.sel(of="loss"))
        statement = f"{name}, λ = {lam:g}: median time of the kernel over that of the loss (delayed-rich above 10)"
        note = (
            f"{share:.0%} of the seeds are labelled {label} one by one; in the others most of the target lies outside "
            "of the span of the start, so that half of the loss, too, waits for the rich phase."
        )
        enough = spec.seeds >= 10
        claims.append(
            Claim.at_least(statement, ratio, 10.0, note)
            if enough
            else Claim.untold(statement, "at least 10", "A median needs ten seeds or more.")
        )
    gaps = []
    for end in dataset["end"].to_numpy():
        exact = dataset["distance"].sel(lam=end).isel(seed=0).sel(time=dataset["step"] * spec.lr, method="nearest")
        gaps.append(float(abs(dataset["descent"].sel(end=end) - exact).max()))
    if gaps:
        claims.append(
            Claim.at_most(
                "Gradient descent follows the closed form: largest difference of the distances",
                max(gaps),
                2 * spec.lr,
                "Twice the step: the error of descent is of first order in it.",
            )
        )
    return claims


EXPERIMENTS = (
    Experiment(
        id="exact/fig5",
        source="Figure 5, A and B",
        shows="Distance of the tangent kernel from that of the start for a funnel, a square and an inverted funnel: "
        "large |λ| is lazy on one side and rich after a delay on the other.",
        presets={
            "quick": Movement(lams=3, seeds=3, horizon=1e3, points=25, overlay=10.0, labels=False),
            "paper": Movement(),
        },
        run=run_movement,
        plot=plot_movement,
        claims=claims_movement,
        notes="Seeds 100 to 119 and t = 10⁴ are our choice; starts of square networks have the sign of the determinant "
        "of their target, else half of them would never learn at λ = 0. The paper trains to a time it does not state; "
        "the closed form goes to t = 10⁴, and descent with the paper's step follows it to t = 40. The curves over time "
        "below are ours, of the networks of panel B; panel C of the paper, which has another network, is exact/fig5c.",
        version=2,
    ),
)
