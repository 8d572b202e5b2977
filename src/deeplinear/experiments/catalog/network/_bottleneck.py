"""A network with fewer hidden units than modes."""

import dataclasses
import itertools
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.dynamics import GradientFlow, ensemble
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.network._layers import gaussian_layers
from deeplinear.landscape import diagonal_target
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import loss, singular_values

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Bottleneck:
    """A hidden layer with fewer units than the target has modes, from several starts."""

    widths: tuple[int, ...] = (4, 2, 3)
    sigma: tuple[float, ...] = (3.0, 2.0, 1.0)
    scale: float = 0.3
    horizon: float = 40.0
    points: int = 200
    starts: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        DeepLinear(self.widths)
        modes = min(self.widths[0], self.widths[-1])
        if min(self.widths) >= modes:
            raise ValueError(
                f"Bottleneck: a hidden layer must have fewer units than both ends, but widths is {self.widths}."
            )
        if len(self.sigma) != modes or any(a <= b for a, b in itertools.pairwise(self.sigma)) or self.sigma[-1] <= 0:
            raise ValueError(
                f"Bottleneck: sigma must hold {modes} positive numbers, largest first and all different, but is "
                f"{self.sigma}."
            )
        for name in ("scale", "horizon"):
            check_number("Bottleneck", name, getattr(self, name), above=0)
        check_count("Bottleneck", "points", self.points, at_least=3)
        check_count("Bottleneck", "starts", self.starts, at_least=1)


def run_bottleneck(spec: Bottleneck, context: Context) -> "xarray.Dataset":
    """Singular values of the product and loss over time, and how far the limit is from the truncated target."""
    import xarray

    network = DeepLinear(spec.widths)
    target = diagonal_target(jnp.asarray(spec.sigma, dtype=float), spec.widths[-1], spec.widths[0])
    rng = np.random.default_rng(spec.seed)
    starts = [gaussian_layers(rng, network.shapes, spec.scale) for _ in range(spec.starts)]
    times = np.concatenate([[0.0], np.geomspace(1e-2, spec.horizon, spec.points - 1)])
    run = context.complete(
        ensemble(
            Problem(network, SquaredDistance(target)),
            starts,
            GradientFlow(1e-10),
            times=times,
            probes=(loss, singular_values),
            progress=context.watch,
        )
    )
    products = np.asarray(run.params[0])
    for layer in run.params[1:]:
        products = np.asarray(layer) @ products
    left, values, right_t = np.linalg.svd(np.asarray(target), full_matrices=False)
    rank = min(spec.widths)
    best = (left[:, :rank] * values[:rank]) @ right_t[:rank]
    return xarray.Dataset(
        {
            "singular_value": (("start", "time", "mode"), run["singular_values"]),
            "loss": (("start", "time"), run["loss"]),
            "distance": ("start", np.abs(products - best).max(axis=(1, 2)), {"long_name": "from the truncated target"}),
        },
        coords={"time": times},
    )


def plot_bottleneck(dataset: "xarray.Dataset", spec: Bottleneck) -> "Figure":
    """Left: singular values of the product from all starts. Right: the loss, and what no such network can fit."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * PANEL[0], 1.2 * PANEL[1]), layout="constrained")
    left, right = figure.subplots(1, 2)
    rank = min(spec.widths)
    shown = dataset.isel(time=slice(1, None))
    for mode in range(len(spec.sigma)):
        for start in range(spec.starts):
            curve = shown["singular_value"].isel(start=start, mode=mode)
            label = f"$s_{mode + 1}$ of the product" if start == 0 else None
            left.semilogx(shown["time"], curve, color=COLOURS[mode], linewidth=0.8, alpha=0.6, label=label)
        label = r"$\sigma$ of the target" if mode == 0 else None
        left.axhline(spec.sigma[mode], color="#444444", linestyle=":", label=label)
    left.set(xlabel="time $t$", ylabel="singular value")
    rest = 0.5 * sum(value**2 for value in spec.sigma[rank:])
    for start in range(spec.starts):
        right.semilogx(shown["time"], shown["loss"].isel(start=start), color=COLOURS[0], linewidth=0.8, alpha=0.6)
    right.axhline(rest, color="#444444", linestyle=":")
    right.annotate(
        r"$\frac{1}{2}\sum_{i > d_{\min}} \sigma_i^2$",
        (float(shown["time"][0]), rest),
        xytext=(2, 14),
        textcoords="offset points",
    )
    right.set(xlabel="time $t$", ylabel="loss", ylim=(0, None))
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def claims_bottleneck(dataset: "xarray.Dataset", spec: Bottleneck) -> list[Claim]:
    """Every generic start ends at the truncated singular value decomposition."""
    rank = min(spec.widths)
    rest = 0.5 * sum(value**2 for value in spec.sigma[rank:])
    end = dataset.isel(time=-1)
    return [
        Claim.at_most(
            f"All {spec.starts} starts end at the truncated target: largest distance of an entry",
            dataset["distance"].max(),
            1e-6,
        ),
        Claim.at_most(
            "The loss ends at half the sum of squares of what is left out: largest distance",
            float(np.abs(end["loss"] - rest).max()),
            1e-6,
        ),
        Claim.at_most(
            "The product never has more than the rank of the bottleneck: largest further singular value",
            dataset["singular_value"].isel(mode=slice(rank, None)).max(),
            1e-12,
        ),
    ]


EXPERIMENTS = (
    Experiment(
        id="network/bottleneck",
        source="Section 7, bottlenecked architectures",
        shows="A network with fewer hidden units than modes learns the largest ones: its limit is the truncated "
        "singular value decomposition of the target.",
        presets={"quick": Bottleneck(points=60, starts=6), "paper": Bottleneck()},
        run=run_bottleneck,
        plot=plot_bottleneck,
        claims=claims_bottleneck,
    ),
)
