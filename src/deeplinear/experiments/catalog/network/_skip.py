"""A network with a skip connection."""

import dataclasses
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from deeplinear.core import Params, check_count, check_number
from deeplinear.dynamics import GradientFlow, ensemble
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.network._layers import gaussian_layers, recorded_layers
from deeplinear.experiments.catalog.network._recording import imbalances
from deeplinear.landscape import diagonal_target
from deeplinear.models import (
    DeepLinear,
    Masked,
    Problem,
    SkipNetwork,
    SquaredDistance,
    skip_network,
    surviving_laws,
)
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import loss, weights

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Skip:
    """A network with an identity from one layer to a later one."""

    widths: tuple[int, ...] = (4, 3, 5, 3, 2)
    start: int = 1
    length: int = 2
    sigma: tuple[float, ...] = (2.0, 1.0)
    scale: float = 0.6
    horizon: float = 1.5
    points: int = 61
    seed: int = 0

    def __post_init__(self) -> None:
        skip_network(self.widths, self.start, self.length)
        if len(self.sigma) != min(self.widths[0], self.widths[-1]):
            raise ValueError(f"Skip: sigma must have one number for each mode of widths {self.widths}.")
        for name in ("scale", "horizon"):
            check_number("Skip", name, getattr(self, name), above=0)
        check_count("Skip", "points", self.points, at_least=2)

    def drawn(self) -> tuple[SkipNetwork, Problem, Params]:
        """The network, its problem, and layers of the chain."""
        skip = skip_network(self.widths, self.start, self.length)
        start = gaussian_layers(np.random.default_rng(self.seed), DeepLinear(self.widths).shapes, self.scale)
        target = diagonal_target(jnp.asarray(self.sigma, dtype=float), self.widths[-1], self.widths[0])
        return skip, Problem(skip.model, SquaredDistance(target)), skip.embed(start)


def run_skip(spec: Skip, context: Context) -> "xarray.Dataset":
    """Change of the conserved quantities of the network's own units, with the skip and without it."""
    import xarray

    skip, problem, start = spec.drawn()
    times = np.linspace(0, spec.horizon, spec.points)
    # Without the skip: the same chain, whose further units carry nothing, so that both runs share compiled code.
    nothing = Masked(skip.model.model, skip.model.masks)
    runs = context.complete(
        ensemble(
            [problem, Problem(nothing, problem.loss)],
            [start, nothing.complete(start)],
            GradientFlow(1e-12),
            times=times,
            probes=(loss, weights),
            progress=context.watch,
        )
    )
    chain, plain = (recorded_layers(runs.member(k), skip.model.shapes) for k in range(2))
    own, alone = (
        [c[:, :width, :width] for c, width in zip(imbalances(layers), spec.widths[1:-1], strict=True)]
        for layers in (chain, plain)
    )
    moved = [[np.linalg.norm(c - c[0], axis=(1, 2)) for c in laws] for laws in (own, alone)]
    first, last = spec.start, spec.start + spec.length
    inside = first > 0 and last < len(spec.widths) - 1
    total = own[first - 1] + own[last - 1] if inside else np.zeros((spec.points, 1, 1))
    told = surviving_laws(skip.model)
    everywhere = [np.abs(c - c[0]).max(axis=0) for c in imbalances(chain)]
    survive = max(float(c[kept].max(initial=0.0)) for c, kept in zip(everywhere, told, strict=True))
    fixed = max(
        float(np.abs(np.where(np.asarray(m), 0, w - w[0])).max()) for m, w in zip(skip.model.masks, chain, strict=True)
    )
    return xarray.Dataset(
        {
            "drift": (("kind", "interface", "time"), np.stack(moved)),
            "sum_of_ends": ("time", np.linalg.norm(total - total[0], axis=(1, 2))),
            "loss": (("kind", "time"), np.asarray(runs["loss"])),
            "survivors": survive,
            "fixed": fixed,
        },
        coords={"kind": ["skip", "plain"], "interface": np.arange(1, len(spec.widths) - 1), "time": times},
    )


def plot_skip(dataset: "xarray.Dataset", spec: Skip) -> "Figure":
    """Left: change of each law. Right: the loss with and without the skip."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * PANEL[0], 1.1 * PANEL[1]), layout="constrained")
    left, right = figure.subplots(1, 2)
    shown = dataset.isel(time=slice(1, None))
    ends = (spec.start, spec.start + spec.length)
    for k, interface in enumerate(dataset["interface"].to_numpy()):
        curve = shown["drift"].sel(kind="skip", interface=interface)
        # The two ends move by the same amount: the second one is drawn thin over the first.
        style, width = ("--", 1.2) if interface == ends[1] else ("-", 3.0)
        values, label = np.maximum(curve, 1e-17), f"$C_{interface}$"
        left.semilogy(shown["time"], values, color=COLOURS[k], linestyle=style, linewidth=width, label=label)
    if ends[0] > 0 and ends[1] < len(spec.widths) - 1:
        label = f"$C_{ends[0]} + C_{ends[1]}$"
        total = np.maximum(shown["sum_of_ends"], 1e-17)
        left.semilogy(shown["time"], total, color=COLOURS[-1], linestyle=":", label=label)
    left.set(xlabel="time $t$", ylabel=r"$\|C_l(t) - C_l(0)\|_F$, own units")
    left.legend(loc="center right")
    for k, (kind, label) in enumerate((("skip", f"skip {ends[0]} → {ends[1]}"), ("plain", "no skip"))):
        right.plot(dataset["time"], dataset["loss"].sel(kind=kind), color=COLOURS[k], label=label)
    right.set(xlabel="time $t$", ylabel="loss")
    right.set_ylim(bottom=0)
    right.legend()
    return figure


def claims_skip(dataset: "xarray.Dataset", spec: Skip) -> list[Claim]:
    """Laws break at the two ends of the skip and nowhere else."""
    ends = (spec.start, spec.start + spec.length)
    hidden = [int(i) for i in dataset["interface"]]
    largest = dataset["drift"].sel(kind="skip").max("time")
    claims = [
        Claim.at_least(
            f"At layer {end}, an end of the skip, the law of its units breaks: largest change of C",
            largest.sel(interface=end),
            0.01,
            "0.26 was recorded for a start that is not told.",
        )
        for end in ends
        if end in hidden
    ]
    others = [i for i in hidden if i not in ends]
    if others:
        claims.append(
            Claim.at_most(
                "At the other hidden layers it holds: largest change of C", largest.sel(interface=others).max(), 1e-9
            )
        )
    if all(end in hidden for end in ends):
        claims.append(
            Claim.at_most(
                "What one end gains the other loses: largest change of the sum of both laws",
                dataset["sum_of_ends"].max(),
                1e-9,
                "Both ends see the same gradient of the fixed identity, with opposite signs.",
            )
        )
    claims += [
        Claim.at_most("All entries of C told to survive do: largest change", dataset["survivors"], 1e-9),
        Claim.at_most("Fixed weights do not move", dataset["fixed"], 0.0),
        Claim.at_most(
            "Without the skip all laws hold: largest change of C", dataset["drift"].sel(kind="plain").max(), 1e-9
        ),
    ]
    return claims


EXPERIMENTS = (
    Experiment(
        id="network/skip",
        source="Section 7, skip connections",
        shows="Flow of a network with an identity from layer 1 to layer 3: conserved quantities break at these two "
        "layers, with opposite signs, and hold at the one between.",
        presets={"quick": Skip(points=31), "paper": Skip()},
        run=run_skip,
        plot=plot_skip,
        claims=claims_skip,
        notes="The expansion printed in the survey ends one layer early; the one used here has the product it claims.",
    ),
)
