"""Warm against cold: what a network that has seen some entries makes of more of them."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_count, check_number, effective_rank, random, stable_rank
from deeplinear.dynamics import GradientFlow, ensemble, plasticity, until
from deeplinear.exact import disconnected, warm_start_bounds
from deeplinear.experiments._base import Claim, Context, Experiment, seed_key
from deeplinear.experiments.catalog.completion._flows import (
    END,
    check_depths,
    check_positive,
    ended,
    family_layer,
    look,
    problems,
    products,
)
from deeplinear.models import Completion, DeepLinear, MatchedGaussian, Problem, low_rank_target
from deeplinear.plots import PANEL
from deeplinear.probes import loss

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

PHASES = ("before", "warm", "cold")
TITLES = {
    "before": r"trained on $\Omega_{pre}$",
    "warm": r"warm start on $\Omega_{post}$",
    "cold": r"cold start on $\Omega_{post}$",
}


@dataclasses.dataclass(frozen=True)
class Reveal:
    """A matrix of low rank of which first some and then more entries are seen."""

    width: int = 100
    rank: int = 5
    before: int = 2000
    after: int = 3000
    depths: tuple[int, ...] = (2, 3, 4)
    scales: tuple[float, ...] = (1e-1, 1e-3)
    trials: int = 3
    loss_below: float = 1e-2
    horizon: float = 0.0
    rtol: float = 1e-5
    max_steps: int = 1_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("Reveal", "width", self.width, at_least=2)
        check_count("Reveal", "rank", self.rank, at_least=1, at_most=self.width)
        check_count("Reveal", "before", self.before, at_least=1)
        check_count("Reveal", "after", self.after, at_least=self.before, at_most=self.width**2)
        check_depths("Reveal", self.depths)
        check_positive("Reveal", "scales", self.scales)
        check_count("Reveal", "trials", self.trials, at_least=1)
        check_number("Reveal", "loss_below", self.loss_below, above=0)
        check_number("Reveal", "horizon", self.horizon, at_least=0)
        check_number("Reveal", "rtol", self.rtol, at_least=1e-14, at_most=0.1)
        check_count("Reveal", "max_steps", self.max_steps, at_least=1)
        check_count("Reveal", "seed", self.seed)


def run_reveal(spec: Reveal, context: Context) -> "xarray.Dataset":
    """Three phases for every depth, scale and trial; one that ended before an interruption is not run again."""
    import xarray

    size = (spec.width, spec.width)
    targets, seen, more = [], [], []
    for trial in range(spec.trials):
        targets.append(np.asarray(low_rank_target(seed_key(spec.seed, "target", trial), size, spec.rank)))
        order = np.asarray(random.permutation(seed_key(spec.seed, "entries", trial), spec.width**2)).reshape(size)
        seen.append(order < spec.before)
        more.append(order < spec.after)
    shape = (len(PHASES), len(spec.depths), len(spec.scales), spec.trials)
    names = ("effective_rank", "stable_rank", "reconstruction_error", "held_out_error", "loss", "times", "gradients")
    values = {name: np.full(shape, np.nan) for name in (*names, "seconds")}
    reached = np.zeros(shape, bool)

    def reveal(part: tuple[int, float]) -> None:
        depth, scale = part
        k, j = spec.depths.index(depth), spec.scales.index(scale)
        found = plasticity(
            DeepLinear((spec.width,) * (depth + 1)),
            np.stack(targets),
            np.stack(seen),
            np.stack(more),
            MatchedGaussian(scale, rule="product"),
            key=jnp.stack([seed_key(spec.seed, "start", depth, trial) for trial in range(spec.trials)]),
            method=GradientFlow(spec.rtol),
            threshold=None if spec.horizon else spec.loss_below,
            horizon=spec.horizon or None,
            every=END if not spec.horizon else None,
            checkpoints=context.scratch,
            max_steps=spec.max_steps,
            progress=lambda phase, now: context.watch(now),
        )
        for trajectory in found.phases.values():
            context.complete(trajectory)
        for p, phase in enumerate(PHASES):
            for name in values:
                values[name][p, k, j] = getattr(found, name)[phase]
            reached[p, k, j] = found.reached[phase]

    # All depths of one scale before the next scale, which finds the code of each depth compiled.
    parts = [(depth, scale) for scale in spec.scales for depth in spec.depths]
    context.each(reveal, parts, lambda part: f"depth {part[0]}, scale {part[1]:g}")
    dims = ("phase", "depth", "scale", "trial")
    return xarray.Dataset(
        {name: (dims, value) for name, value in values.items()} | {"reached": (dims, reached)},
        coords={"phase": list(PHASES), "depth": list(spec.depths), "scale": list(spec.scales)},
        attrs={"rule": f"time {spec.horizon:g}" if spec.horizon else f"loss at most {spec.loss_below:g}"},
    )


def plot_reveal(dataset: "xarray.Dataset", spec: Reveal) -> "Figure":
    """Effective rank above, reconstruction error below; before, warm and cold from left to right."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullFormatter, ScalarFormatter

    figure = Figure(figsize=(0.72 * PANEL[0] * 3, 1.9 * PANEL[1]), layout="constrained")
    grid = figure.subplots(2, 3, sharex=True, sharey="row")
    rows = (("effective_rank", "effective rank"), ("reconstruction_error", "reconstruction error"))
    for row, (name, label) in zip(grid, rows, strict=True):
        for axis, phase in zip(row, PHASES, strict=True):
            for k, scale in enumerate(spec.scales):
                here = dataset[name].sel(phase=phase, scale=scale)
                spread = here.std("trial") if spec.trials > 1 else None
                axis.errorbar(spec.depths, here.mean("trial"), spread, capsize=3, label=_label(scale), **look(k))
            axis.set(yscale="log", xticks=list(spec.depths))
        row[0].set_ylabel(label)
    for axis, phase in zip(grid[0], PHASES, strict=True):
        axis.set_title(TITLES[phase])
        axis.axhline(spec.rank, color="#888888", linestyle=":", linewidth=1)
        axis.yaxis.set_major_locator(FixedLocator([1, 2, 3, 4, 5, 7, 10, 20, 30, 50, 100, 200, 500]))
        axis.yaxis.set_major_formatter(ScalarFormatter())
        axis.yaxis.set_minor_formatter(NullFormatter())
    for axis in grid[1]:
        axis.set_xlabel("depth $L$")
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(spec.scales))
    return figure


def _label(scale: float) -> str:
    exponent = math.log10(scale)
    power = f"10^{{{exponent:.0f}}}" if exponent.is_integer() else f"{scale:g}"
    return rf"entries of the start of size ${power}$"


def claims_reveal(dataset: "xarray.Dataset", spec: Reveal) -> list[Claim]:
    """Shallow networks keep the high rank they were trained to; deep ones do not."""
    small = min(spec.scales)
    ranks = dataset["effective_rank"].mean("trial").sel(scale=small)
    errors = dataset["reconstruction_error"].mean("trial").sel(scale=small)
    gap = ranks.sel(phase="warm") - ranks.sel(phase="cold")
    deep = [depth for depth in spec.depths if depth >= 3]
    missing = int((~dataset["reached"]).sum())
    claims = [Claim.at_most("Phases that did not reach their end", missing, 0)]
    if spec.horizon:
        note = "With a fixed time deep networks have often not learnt at all; the trend with depth is that of the time."
        return [*claims, Claim.untold("Loss of plasticity at convergence", "see the preset", note)]
    at = f"from starts of size {small:g}"
    if 2 in spec.depths:
        claims += [
            Claim.at_least(f"Depth 2 loses plasticity {at}: effective rank warm minus cold", gap.sel(depth=2), 0.2),
            Claim.at_least(
                "… and generalises less: reconstruction error warm over cold",
                errors.sel(phase="warm", depth=2) / errors.sel(phase="cold", depth=2),
                1.1,
            ),
        ]
    if deep:
        bound = 0.1 if spec.width <= 30 else 0.5
        claims.append(
            Claim.at_most(
                f"From depth 3 on it does not: largest such difference {at}", gap.sel(depth=deep).max(), bound
            )
        )
    if 2 in spec.depths and deep:
        difference = gap.sel(depth=2) - gap.sel(depth=deep).max()
        claims.append(Claim.at_least("… so that depth 2 loses more than any deeper network: by", difference, 0.2))
        before = ranks.sel(phase="before")
        claims.append(
            Claim.at_least(
                "Training on the first entries ends at lower rank in deeper networks: depth 2 minus the others",
                before.sel(depth=2) - before.sel(depth=deep).max(),
                0.5,
            )
        )
    return claims


# --- 2 x 2 ------------------------------------------------------------------------------------------------------------

TABLE = {
    # (first, second, revealed): {m: (warm effective rank, cold effective rank, warm w21, cold w21)}
    (1.0, 1.0, 0.5): {
        2.0: (1.5298, 1.0577, 0.9255, 1.8827),
        10.0: (1.8864, 1.1465, 0.1855, 1.6803),
        100.0: (1.9381, 1.1705, 0.0134, 1.6270),
        math.inf: (1.9429, 1.1733, -0.0058, 1.6209),
    },
    (1.0, 1.0, 10.0): {
        2.0: (1.0507, 1.0000, 0.0115, 0.1000),
        10.0: (1.1652, 1.0000, -0.2737, 0.1000),
        100.0: (1.1962, 1.0000, -0.3645, 0.1000),
        math.inf: (1.1997, 1.0000, -0.3749, 0.1000),
    },
    (1.0, 2.0, 0.5): {
        2.0: (1.5566, 1.1548, 1.3594, 3.0272),
        10.0: (1.8259, 1.2318, 0.2733, 2.6308),
        100.0: (1.8633, 1.2437, 0.0249, 2.5742),
        math.inf: (1.8667, 1.2449, -0.0028, 2.5687),
    },
    (1.0, 1.0, 0.1): {
        2.0: (1.7528, 1.6817, 1.0014, 1.2047),
        10.0: (1.9777, 1.8840, 0.1994, 0.6060),
        100.0: (1.9964, 1.9191, 0.0199, 0.4812),
        math.inf: (1.9975, 1.9227, -0.00005, 0.4673),
    },
}
"""Limits computed independently at a tolerance of 1e-13, to four digits."""


@dataclasses.dataclass(frozen=True)
class Corner:
    """The diagonal of a 2 x 2 matrix is learned first, then the entry at the upper right is revealed."""

    first: float = 1.0
    second: float = 1.0
    revealed: float = 0.5
    alpha: float = 1e-3
    ms: tuple[float, ...] = (1.1, 1.3, 1.6, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1000.0, math.inf)
    loss_below: float = 1e-18
    rtol: float = 1e-10

    def __post_init__(self) -> None:
        for name in ("first", "second", "revealed", "alpha", "loss_below"):
            check_number("Corner", name, getattr(self, name), above=0)
        check_number("Corner", "rtol", self.rtol, at_least=1e-14, at_most=0.1)
        for m in self.ms:
            check_number("Corner", "ms", m, above=1, finite=False)

    @property
    def completion(self) -> float:
        """The entry that makes the matrix rank one."""
        return self.first * self.second / self.revealed


def run_corner(spec: Corner, context: Context) -> "xarray.Dataset":
    """Pre-training by its closed form; warm and cold flows for every m at once."""
    import xarray

    model = DeepLinear((2, 2, 2))
    target = jnp.array([[spec.first, spec.revealed], [spec.completion, spec.second]])
    seen, more = jnp.eye(2), jnp.array([[1.0, 1.0], [0.0, 1.0]])
    layer = family_layer(spec.alpha, np.asarray(spec.ms), 2)
    trained = [
        disconnected(Problem(model, Completion(target, seen)), (jnp.asarray(w), jnp.asarray(w))).limit() for w in layer
    ]
    warm = tuple(np.stack([np.asarray(params[k]) for params in trained]) for k in range(2))
    starts = tuple(np.concatenate([w, layer]) for w in warm)
    count = len(starts[0])
    trajectory = ensemble(
        problems(model, np.broadcast_to(target, (count, 2, 2)), np.broadcast_to(more, (count, 2, 2))),
        starts,
        GradientFlow(spec.rtol),
        probes=(loss,),
        until=until(loss, below=spec.loss_below),
        every=END,
    )
    context.complete(trajectory)
    found = np.concatenate([warm[1] @ warm[0], products(trajectory)]).reshape(3, -1, 2, 2)
    dims = ("phase", "m")
    return xarray.Dataset(
        {
            "product": ((*dims, "row", "column"), found),
            "effective_rank": (dims, np.asarray(effective_rank(jnp.asarray(found)))),
            "stable_rank": (dims, np.asarray(stable_rank(jnp.asarray(found)))),
            "corner": (dims, found[..., 1, 0], {"long_name": "entry w21, never seen"}),
            "finished": (("trained", "m"), ended(trajectory).reshape(2, -1)),
        },
        coords={"phase": list(PHASES), "m": list(spec.ms)},
    )


def plot_corner(dataset: "xarray.Dataset", spec: Corner) -> "Figure":
    """Effective rank before and after a warm start, after a cold start, and the entry never seen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.78 * PANEL[0] * 3, 1.2 * PANEL[1]), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    finite = [m for m in spec.ms if math.isfinite(m)]
    last = 4 * max(finite, default=1.0)

    def draw(axis: Any, name: str, phase: str, position: int, label: str) -> None:
        curve, style = dataset[name].sel(phase=phase), look(position)
        axis.plot(finite, curve.sel(m=finite), label=label, **style)
        if math.inf in spec.ms:
            axis.plot([last], [float(curve.sel(m=math.inf))], **{**style, "linestyle": "none", "markersize": 6})

    draw(left, "effective_rank", "before", 2, "before")
    draw(left, "effective_rank", "warm", 0, "warm")
    draw(middle, "effective_rank", "cold", 1, "cold")
    draw(right, "corner", "warm", 0, "warm")
    draw(right, "corner", "cold", 1, "cold")
    right.axhline(spec.completion, color="#888888", linestyle=":", linewidth=1.2, label="rank one")
    right.axhline(0, color="#444444", linewidth=0.6)
    for axis, label in ((left, "effective rank"), (middle, "effective rank"), (right, r"entry $w_{21}$ at the end")):
        ticks = [t for t in (1, 10, 100, 1000) if t <= max(finite, default=1.0)]
        axis.set(xscale="log", xlabel="ratio $m$ of the start", ylabel=label)
        if math.inf in spec.ms:
            axis.set_xticks([*ticks, last], [*(f"${t}$" for t in ticks), r"$\infty$"])
            axis.minorticks_off()
        axis.legend()
    for axis in (left, middle):
        axis.set_ylim(0.97, 2.05)
    left.set_title("before and warm")
    middle.set_title("cold")
    right.set_title("the entry never seen")
    return figure


def claims_corner(dataset: "xarray.Dataset", spec: Corner) -> list[Claim]:
    """Warm keeps the rank of pre-training, cold finds a lower one; from a diagonal start the entry ends negative."""
    ranks = dataset["effective_rank"]
    claims = [
        Claim.at_most("Flows that did not reach zero loss", int((~dataset["finished"]).sum()), 0),
        Claim.at_least(
            "A warm start ends at higher effective rank than a cold one, for every m: smallest difference",
            (ranks.sel(phase="warm") - ranks.sel(phase="cold")).min(),
            0.0,
        ),
        Claim.at_least(
            "… and further from the rank-one entry: smallest difference of the distances",
            (
                abs(dataset["corner"].sel(phase="warm") - spec.completion)
                - abs(dataset["corner"].sel(phase="cold") - spec.completion)
            ).min(),
            0.0,
        ),
    ]
    spread = [m for m in spec.ms if m >= 10]
    if spec.first != spec.second and spread:
        lowest = ranks.sel(phase="warm", m=spread).min()
        claims.append(Claim.at_least("For m ≥ 10 the warm effective rank is well above one: smallest", lowest, 1.5))
    if math.inf in spec.ms:
        diagonal = dataset.sel(m=math.inf, phase="warm")
        others = ranks.sel(phase="warm", m=[m for m in spec.ms if math.isfinite(m)])
        if others.size:
            statement = "The diagonal start (m = ∞) keeps the highest effective rank when warm: above the others by"
            claims.append(Claim.at_least(statement, diagonal["effective_rank"] - others.max(), 0.0))
        claims.append(
            Claim.at_most("From a diagonal start (m = ∞) the unseen entry ends below zero", diagonal["corner"], 0.0)
        )
        if spec.first == spec.second:
            bounds = warm_start_bounds(spec.first, spec.revealed)
            claims += [
                Claim.at_least(
                    "… and the stable rank keeps the published bound",
                    diagonal["stable_rank"],
                    float(bounds.stable_rank),
                ),
                Claim.at_least("… and the sharper one", diagonal["stable_rank"], float(bounds.sharper_stable_rank)),
            ]
    wanted = TABLE.get((spec.first, spec.second, spec.revealed), {}) if spec.alpha == 1e-3 else {}
    misses = [
        abs(float(dataset[name].sel(m=m, phase=phase)) - row[position])
        for m, row in wanted.items()
        if m in spec.ms
        for position, (name, phase) in enumerate(
            (("effective_rank", "warm"), ("effective_rank", "cold"), ("corner", "warm"), ("corner", "cold"))
        )
    ]
    if misses:
        claims.append(Claim.at_most("Reference values to four digits: largest distance", max(misses), 3e-4))
    return claims


def corner(name: str, source: str, what: str, notes: str = "", **values: Any) -> Experiment[Corner]:
    """An experiment of this family."""
    return Experiment(
        id=f"completion/{name}",
        source=source,
        shows=f"Depth 2 on a 2 × 2 matrix with {what}: a network that learned the diagonal first keeps its high rank "
        "when the upper right entry is revealed; one that starts cold ends at lower rank.",
        presets={
            "quick": Corner(ms=(2.0, 10.0, 100.0, math.inf), **values),
            "paper": Corner(**values),
        },
        run=run_corner,
        plot=plot_corner,
        claims=claims_corner,
        notes=notes,
    )


EXPERIMENTS = (
    Experiment(
        id="completion/fig3",
        source="Figure 3",
        shows="Loss of plasticity: after training on some entries, a shallow network that sees more of them keeps a "
        "higher rank and error than one that starts anew; deep networks do not.",
        presets={
            "quick": Reveal(30, 2, 220, 330, (2, 3), (1e-3,), 2, loss_below=1e-3),
            "paper": Reveal(),
            "large": Reveal(depths=(2, 3, 4, 5, 6), trials=20),
        },
        run=run_reveal,
        plot=plot_reveal,
        claims=claims_reveal,
        notes="The paper does not state depths, scales, the law of the ground truth, the threshold and the error. "
        "Ours: a Gaussian rank-5 matrix with entries of variance one, starts whose product has entries of the given "
        "size, a loss of 0.01, relative Frobenius error. Setting horizon > 0 stops at a fixed time instead, as an "
        "earlier study did, to which the paper ascribes that study's opposite trend with depth.",
    ),
    corner(
        "fig31",
        "Figure 31",
        "ones on the diagonal and 0.5 revealed",
        "The caption says 0.5, the text 0.1; the curves are those of 0.5. completion/fig31-text has the other.",
        revealed=0.5,
    ),
    corner(
        "fig31-text",
        "Figure 31, as in the text",
        "ones on the diagonal and 0.1 revealed",
        "The text quotes the bound 1.45 and the stable rank 1.8 for this value.",
        revealed=0.1,
    ),
    corner("fig32", "Figure 32", "ones on the diagonal and 10 revealed", revealed=10.0),
    corner("fig33", "Figure 33", "1 and 2 on the diagonal and 0.5 revealed", second=2.0, revealed=0.5),
)
