"""Rank against depth for optimisers other than the flow."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import RESULTS, check_count, check_number, near_name, spectrum
from deeplinear.dynamics import Adagrad, Adam, GradientDescent, Minibatch, Momentum, RMSProp, ensemble, until
from deeplinear.experiments._base import Claim, Context, Experiment, seed_key
from deeplinear.experiments.catalog.completion._flows import (
    END,
    check_depths,
    check_positive,
    ended,
    look,
    normal_layers,
    panels,
    products,
)
from deeplinear.models import Completion, DeepLinear, Problem
from deeplinear.probes import loss

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

METHODS = {
    "sgd": lambda lr: Minibatch(GradientDescent(lr), batch=1),
    "gd": GradientDescent,
    "momentum": lambda lr: Momentum(lr, momentum=0.9),
    "adam": lambda lr: Adam(lr, b1=0.9, b2=0.999, eps=1e-8),
    "rmsprop": lambda lr: RMSProp(lr, decay=0.99, eps=1e-8),
    "adagrad": lambda lr: Adagrad(lr, eps=1e-10),
}
"""Optimisers by name, with the settings that PyTorch has by default apart from the step."""


@dataclasses.dataclass(frozen=True)
class Optimisers:
    """A diagonal of ones, learned by one optimiser from Gaussian starts of several depths and scales."""

    method: str = "sgd"
    lr: float = 0.01
    width: int = 5
    value: float = 1.0
    depths: tuple[int, ...] = (2, 3, 4, 5)
    scales: tuple[float, ...] = (1e-1, 1e-3, 1e-5)
    seeds: int = 10
    loss_below: float = 1e-6
    max_steps: int = 1_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"Optimisers: method is '{self.method}'. {near_name(self.method, METHODS)}")
        check_number("Optimisers", "lr", self.lr, above=0)
        check_number("Optimisers", "value", self.value, above=0)
        check_number("Optimisers", "loss_below", self.loss_below, above=0)
        check_count("Optimisers", "width", self.width, at_least=2)
        check_count("Optimisers", "seeds", self.seeds, at_least=1)
        check_count("Optimisers", "max_steps", self.max_steps, at_least=1)
        check_count("Optimisers", "seed", self.seed)
        check_depths("Optimisers", self.depths)
        check_positive("Optimisers", "scales", self.scales)


def run_optimisers(spec: Optimisers, context: Context) -> "xarray.Dataset":
    """Ranks of the products at the end, for every depth, scale and seed; what broke down or did not end is marked."""
    import xarray

    shape = (len(spec.depths), len(spec.scales), spec.seeds)
    values = np.full((*shape, spec.width), np.nan)
    losses, steps = np.full(shape, np.nan), np.zeros(shape, dtype=int)
    finished, diverged = np.zeros(shape, bool), np.zeros(shape, bool)
    target, mask = spec.value * jnp.eye(spec.width), jnp.eye(spec.width)

    def train(depth: int) -> None:
        k = spec.depths.index(depth)
        drawn = normal_layers(seed_key(spec.seed, "start", depth), depth, spec.seeds, spec.width)
        alpha = np.asarray(spec.scales) ** (1 / depth)
        layers = tuple(
            (alpha[:, None, None, None] * np.asarray(layer)[None]).reshape(-1, spec.width, spec.width)
            for layer in drawn
        )
        trajectory = ensemble(
            Problem(DeepLinear((spec.width,) * (depth + 1)), Completion(target, mask)),
            layers,
            METHODS[spec.method](spec.lr),
            probes=(loss,),
            until=until(loss, below=spec.loss_below),
            every=END,
            max_steps=spec.max_steps,
            key=seed_key(spec.seed, "entries", depth),
            progress=context.watch,
        )
        context.complete(trajectory, keep_failed=True)
        codes = [RESULTS(int(code)) for code in trajectory.results]
        values[k] = np.asarray(jax.jit(spectrum)(jnp.asarray(products(trajectory)))).reshape(*shape[1:], spec.width)
        losses[k] = trajectory.final("loss").reshape(shape[1:])
        steps[k] = trajectory.final_time.reshape(shape[1:])
        finished[k] = ended(trajectory).reshape(shape[1:])
        diverged[k] = np.array([code.failed for code in codes]).reshape(shape[1:])

    context.each(train, spec.depths, "depth {}".format)
    dims = ("depth", "scale", "start")
    share = values / values[..., :1]
    return xarray.Dataset(
        {
            "stable_rank": (dims, np.sum(share**2, axis=-1)),
            "singular_values": ((*dims, "mode"), values),
            "loss": (dims, losses),
            "steps": (dims, steps),
            "finished": (dims, finished),
            "diverged": (dims, diverged),
        },
        coords={"depth": list(spec.depths), "scale": list(spec.scales)},
        attrs={"method": spec.method, "lr": spec.lr},
    )


def plot_optimisers(dataset: "xarray.Dataset", spec: Optimisers) -> "Figure":
    """Mean and standard deviation over the starts against depth, one panel for each scale."""
    figure, axes = panels(len(spec.scales))
    ranks = dataset["stable_rank"].where(dataset["finished"])
    for axis, scale in zip(axes, spec.scales, strict=True):
        here = ranks.sel(scale=scale)
        axis.plot(np.repeat(spec.depths, spec.seeds), here.to_numpy().ravel(), ".", color="#999999", markersize=4)
        axis.errorbar(spec.depths, here.mean("start"), here.std("start"), capsize=3, **look(0))
        axis.set(title=rf"$\alpha^L = {_power(scale)}$", xlabel="depth $L$", xticks=list(spec.depths))
        axis.margins(x=0.12)
    axes[0].set_ylabel("stable rank of the limit")
    return figure


def _power(scale: float) -> str:
    exponent = np.log10(scale)
    return f"10^{{{exponent:.0f}}}" if float(exponent).is_integer() else f"{scale:g}"


def claims_optimisers(dataset: "xarray.Dataset", spec: Optimisers) -> list[Claim]:
    """High rank at depth 2 whatever the scale; lower rank with depth and smaller scale beyond."""
    ranks = dataset["stable_rank"].where(dataset["finished"]).mean("start")
    deep = [depth for depth in spec.depths if depth >= 3]
    claims = [
        Claim.at_most(
            "Runs that broke down or did not reach the loss asked for",
            int((~dataset["finished"]).sum()),
            0,
            f"{int(dataset['diverged'].sum())} of them diverged; they are left out of the means.",
        )
    ]
    if 2 in spec.depths:
        shallow = ranks.sel(depth=2)
        claims.append(
            Claim.at_least("At depth 2 the mean stable rank is high at every scale: smallest", shallow.min(), 1.4)
        )
    small = [scale for scale in spec.scales if scale <= 1e-3 * 1.0001]
    if deep and small:
        claims.append(
            Claim.at_most(
                "From depth 3 on it is near one for α^L ≤ 10⁻³: largest mean",
                ranks.sel(depth=deep, scale=small).max(),
                1.25,
            )
        )
    if deep and len(spec.scales) > 1:
        ordered = ranks.sel(depth=deep, scale=sorted(spec.scales, reverse=True))
        claims.append(
            Claim.at_most(
                "From depth 3 on it falls with the scale: largest rise from one scale to the next smaller one",
                ordered.diff("scale").max(),
                0.02,
            )
        )
    return claims


def optimiser(figure: int, name: str, **values: Any) -> Experiment[Optimisers]:
    """An experiment of this family."""
    paper = Optimisers(**values)
    return Experiment(
        id=f"completion/fig{figure}",
        source=f"Figure {figure}",
        shows=f"Final stable rank against depth, trained by {name} on a diagonal of ones from Gaussian starts: high at "
        "depth 2 whatever the scale, near one from depth 3 on when the start is small.",
        presets={
            "quick": dataclasses.replace(paper, depths=(2, 3), scales=(1e-1, 1e-3)),
            "paper": paper,
            "large": dataclasses.replace(paper, seeds=1000),
        },
        run=run_optimisers,
        plot=plot_optimisers,
        claims=claims_optimisers,
        notes="The paper says: default settings of PyTorch, a sufficiently small step, 10 seeds. Step, scales and the "
        "loss to stop at are not stated; ours are in the settings. Momentum's step counts tenfold in the long run.",
    )


EXPERIMENTS = (
    optimiser(13, "stochastic descent on one observed entry at a time", method="sgd", lr=0.01),
    optimiser(14, "descent with momentum 0.9", method="momentum", lr=1e-3),
    optimiser(15, "Adam", method="adam", lr=1e-3),
    optimiser(16, "RMSProp", method="rmsprop", lr=1e-3, loss_below=1e-3),
    optimiser(17, "Adagrad", method="adagrad", lr=1e-2),
)
