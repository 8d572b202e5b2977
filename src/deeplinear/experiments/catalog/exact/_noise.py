"""The loss under noise on weights and inputs."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.exact import (
    input_noise_loss,
    weight_noise_loss,
)
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.exact._tasks import draw_rotation, draw_task, layers_of
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Noise:
    """A random regression task, values of λ, standard deviations of noise, draws, and the seed of everything."""

    width: int = 4
    samples: int = 10
    sigma: float = 1.0
    lams: tuple[float, ...] = tuple(float(x) for x in range(-5, 6))
    stds: tuple[float, ...] = (0.0, 0.5, 1.0)
    draws: int = 4000
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("Noise", "width", self.width, at_least=1)
        check_count("Noise", "samples", self.samples, at_least=self.width)
        check_count("Noise", "draws", self.draws, at_least=100)
        check_number("Noise", "sigma", self.sigma, above=0)
        for std in self.stds:
            check_number("Noise", "stds", std, at_least=0)


def run_noise(spec: Noise, context: Context) -> "xarray.Dataset":
    """Expected loss by formula and by Monte Carlo, for noise in the inputs and in the weights."""
    import xarray

    rng = np.random.default_rng(spec.seed)
    task = draw_task(rng, spec.width, spec.width, spec.samples, spec.sigma)
    rotation = draw_rotation(rng, spec.width)
    target, floor = task.target, task.floor
    strengths = np.linalg.svd(target, compute_uv=False)
    widths, stds = (spec.width,) * 3, np.asarray(spec.stds)
    formula = np.stack(
        [
            np.broadcast_to(np.asarray(input_noise_loss(strengths, stds, floor))[:, None], (len(stds), len(spec.lams))),
            np.asarray(weight_noise_loss(strengths, np.asarray(spec.lams), widths, stds[:, None], floor)),
        ]
    )
    means, errors = np.empty(formula.shape), np.empty(formula.shape)
    for column, lam in enumerate(spec.lams):
        first, second = (np.asarray(layer) for layer in layers_of(target, lam, rotation))
        for row, std in enumerate(spec.stds):
            losses = (
                _input_noise(rng, task.inputs, task.outputs, second @ first, std, spec.draws),
                _weight_noise(rng, first, second, target, std, spec.draws) + floor,
            )
            for kind, values in enumerate(losses):
                means[kind, row, column] = values.mean()
                errors[kind, row, column] = values.std(ddof=1) / math.sqrt(spec.draws)
        context.progress((column + 1) / len(spec.lams), f"λ = {lam:g}")
    dims = ("noise", "std", "lam")
    return xarray.Dataset(
        {
            "formula": (dims, formula, {"long_name": "expected loss"}),
            "sampled": (dims, means),
            "standard_error": (dims, errors),
            "strength": (("mode",), strengths),
            "floor": ((), floor),
        },
        coords={"noise": ["inputs", "weights"], "std": list(spec.stds), "lam": list(spec.lams)},
    )


def _input_noise(
    rng: np.random.Generator, inputs: np.ndarray, outputs: np.ndarray, product: np.ndarray, std: float, draws: int
) -> np.ndarray:
    """Loss of every draw, each sample with noise of its own."""
    noise = std * rng.normal(size=(draws, *inputs.shape))
    return np.sum((product @ (inputs + noise) - outputs) ** 2, axis=(1, 2)) / (2 * inputs.shape[1])


def _weight_noise(
    rng: np.random.Generator, first: np.ndarray, second: np.ndarray, target: np.ndarray, std: float, draws: int
) -> np.ndarray:
    """Reduced loss of every draw."""
    below = first + std * rng.normal(size=(draws, *first.shape))
    above = second + std * rng.normal(size=(draws, *second.shape))
    return 0.5 * np.sum((above @ below - target) ** 2, axis=(1, 2))


def plot_noise(dataset: "xarray.Dataset", spec: Noise) -> "Figure":
    """One panel for each kind of noise: Monte Carlo as coloured points, the formula dotted black."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * PANEL[0], 1.25 * PANEL[1]), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, noise in zip(axes, ("inputs", "weights"), strict=True):
        for k, std in enumerate(spec.stds):
            here = dataset.sel(noise=noise, std=std)
            label = rf"$\sigma = {std:g}$, {spec.draws} draws"
            bars = 4 * here["standard_error"]
            axis.errorbar(here["lam"], here["sampled"], yerr=bars, fmt="o", color=COLOURS[k], label=label)
            axis.plot(here["lam"], here["formula"], color="black", linestyle=":", label=None if k else "formula")
        axis.set(title=f"noise in the {noise}", xlabel=r"relative scale $\lambda$", ylabel="expected loss")
    axes[0].set(ylim=(0, None))
    axes[1].set(yscale="log")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


RECORDED_STRENGTHS = (0.613, 0.413, 0.313, 0.037)
RECORDED_INPUT = {0.0: 0.3083, 0.5: 0.3891, 1.0: 0.6314}
RECORDED_WEIGHT = {
    0.5: (3.685, 4.840, 6.612, 8.517, 10.467, 12.436),
    1.0: (37.816, 42.434, 49.523, 57.145, 64.944, 72.820),
}
"""Values of seed 0; of noise in the weights for λ = 0, …, 5."""


def claims_noise(dataset: "xarray.Dataset", spec: Noise) -> list[Claim]:
    """Flat for noise in the inputs; even, least at zero and growing for noise in the weights."""
    formula = dataset["formula"]
    noisy = [std for std in spec.stds if std > 0]
    distance = (abs(formula - dataset["sampled"]) / dataset["standard_error"]).sel(std=noisy)
    sampled = dataset["sampled"].sel(noise="inputs", std=noisy)
    flat = (sampled.max("lam") - sampled.min("lam")) / dataset["standard_error"].sel(noise="inputs", std=noisy).max(
        "lam"
    )
    weights = formula.sel(noise="weights", std=noisy)
    claims = [
        Claim.at_most("Formula against Monte Carlo: largest distance, in standard errors", distance.max(), 4.5),
        Claim.at_most("Noise in the inputs costs the same for every λ: spread, in standard errors", flat.max(), 7.0),
    ]
    zero = 0.0 in spec.lams
    if zero:
        excess = (weights.sel(lam=0.0) - weights.min("lam")).max()
        claims.append(Claim.at_most("Noise in the weights costs least at λ = 0: excess there", excess, 0.0))
    pairs = [lam for lam in spec.lams if lam > 0 and -lam in spec.lams]
    if pairs:
        mirror = abs(weights.sel(lam=pairs).to_numpy() - weights.sel(lam=[-lam for lam in pairs]).to_numpy()).max()
        claims.append(Claim.at_most("… and is even in λ: largest difference", mirror, 1e-12))
    standard = Noise(draws=spec.draws, lams=spec.lams, stds=spec.stds) == spec
    known = [std for std in noisy if std in RECORDED_WEIGHT]
    if standard and zero and known:
        found = dataset["strength"].to_numpy()
        steps = [lam for lam in range(6) if float(lam) in spec.lams]
        inputs = [abs(float(formula.sel(noise="inputs", std=s)[0]) - RECORDED_INPUT[s]) for s in known]
        costs = [
            abs(float(formula.sel(noise="weights", std=s, lam=float(k))) - RECORDED_WEIGHT[s][k])
            for s in known
            for k in steps
        ]
        floor = float(dataset["floor"])
        claims += [
            Claim.at_most("Strengths of seed 0 to three digits", np.abs(found - RECORDED_STRENGTHS).max(), 5.1e-4),
            Claim.at_most("Floor of seed 0 to four digits", abs(floor - RECORDED_INPUT[0.0]), 5.1e-5),
            Claim.at_most("Recorded losses, noise in the inputs: largest distance", max(inputs), 5.1e-5),
            Claim.at_most("Recorded losses, noise in the weights: largest distance", max(costs), 5.1e-4),
        ]
    return claims


FIG_4E = Experiment(
    id="exact/fig4e",
    source="Figure 4E",
    shows="Expected loss of trained networks under noise: noise in the inputs costs the same for every λ, noise in the "
    "weights least at λ = 0.",
    presets={"quick": Noise(lams=(-5.0, -2.0, 0.0, 2.0, 5.0), draws=2000), "paper": Noise()},
    run=run_noise,
    plot=plot_noise,
    claims=claims_noise,
    notes="σ = 1 and ten samples are our choice. The paper's formula for the inputs lacks the factor ½, and its norms "
    "of the layers are exchanged, which does not matter for equal widths.",
)

EXPERIMENTS = (FIG_4E,)
