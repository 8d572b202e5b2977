"""Gradient descent beside the flow."""

import dataclasses
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from deeplinear.core import Params, check_count, check_number
from deeplinear.dynamics import GradientDescent, GradientFlow, simulate
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.network._layers import gaussian_layers, recorded_layers
from deeplinear.experiments.catalog.network._recording import imbalances
from deeplinear.landscape import diagonal_target
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.plots import COLOURS, PANEL, REST
from deeplinear.probes import loss, weights

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Descent:
    """Gradient descent with learning rates that are halved, to one time."""

    widths: tuple[int, ...] = (4, 3, 3, 2)
    sigma: tuple[float, ...] = (2.0, 1.0)
    scale: float = 0.6
    horizon: float = 2.0
    coarsest: int = 64
    halvings: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        network = DeepLinear(self.widths)
        if network.depth < 2:
            raise ValueError(f"Descent: widths must have a hidden layer, but is {self.widths}.")
        if len(self.sigma) != min(self.widths[0], self.widths[-1]):
            raise ValueError(f"Descent: sigma must have one number for each mode of widths {self.widths}.")
        for name in ("scale", "horizon"):
            check_number("Descent", name, getattr(self, name), above=0)
        check_count("Descent", "coarsest", self.coarsest, at_least=1)
        check_count("Descent", "halvings", self.halvings, at_least=1, at_most=12)

    @property
    def steps(self) -> list[int]:
        """Numbers of steps to the horizon, one for each learning rate."""
        return [self.coarsest * 2**k for k in range(self.halvings + 1)]

    @property
    def target(self) -> np.ndarray:
        """The diagonal target."""
        return np.asarray(diagonal_target(jnp.asarray(self.sigma, dtype=float), self.widths[-1], self.widths[0]))

    def drawn(self) -> tuple[Problem, Params]:
        """The problem, and layers from the generator of the seed."""
        network = DeepLinear(self.widths)
        start = gaussian_layers(np.random.default_rng(self.seed), network.shapes, self.scale)
        return Problem(network, SquaredDistance(self.target)), start


def run_descent(spec: Descent, context: Context) -> "xarray.Dataset":
    """Drift of the conserved quantities step by step, and the distance from the flow at the end."""
    import xarray

    problem, start = spec.drawn()
    shapes = problem.model.shapes
    flow = context.complete(
        simulate(
            problem,
            start,
            GradientFlow(1e-12),
            times=np.linspace(0, spec.horizon, spec.coarsest + 1),
            probes=(loss, weights),
            progress=context.watch,
        )
    )
    end = np.asarray(flow["weights"])[-1]
    rows = []
    for number, steps in enumerate(spec.steps):
        lr = spec.horizon / steps
        run = context.complete(
            simulate(
                problem,
                start,
                GradientDescent(lr),
                times=np.arange(steps + 1),
                probes=(loss, weights),
                progress=context.watch,
            )
        )
        layers = recorded_layers(run, shapes)
        laws = imbalances(layers)
        # Gradients by plain products, from the layers that were recorded.
        before = [np.broadcast_to(np.eye(spec.widths[0]), (steps + 1, spec.widths[0], spec.widths[0]))]
        for layer in layers:
            before.append(layer @ before[-1])
        back, speeds = spec.target - before[-1], []
        for k in range(len(layers) - 1, -1, -1):
            speeds.insert(0, back @ np.swapaxes(before[k], -1, -2))
            back = np.swapaxes(layers[k], -1, -2) @ back
        told = [lr**2 * law[:-1] for law in imbalances(speeds)]
        changes = [np.diff(law, axis=0) for law in laws]
        size = max(np.max(np.abs(law)) for law in laws)
        drift = np.max([np.linalg.norm(law - law[0], axis=(1, 2)) for law in laws], axis=0)
        rows.append(
            {
                "lr": lr,
                "first_change": max(np.linalg.norm(change[0]) for change in changes),
                "identity": max(np.max(np.abs(c - t)) for c, t in zip(changes, told, strict=True)) / size,
                "drift": drift[:: steps // spec.coarsest],
                "error": np.linalg.norm(np.asarray(run["weights"])[-1] - end),
                "loss": np.asarray(run["loss"])[:: steps // spec.coarsest],
            }
        )
        context.progress((number + 1) / len(spec.steps), f"{steps} steps")
    flow_laws = imbalances(recorded_layers(flow, shapes))
    return xarray.Dataset(
        {
            **{
                name: (dims, [row[name] for row in rows], {"long_name": words})
                for name, dims, words in (
                    ("first_change", ("lr",), "change of C in the first step"),
                    ("identity", ("lr",), "what the exact drift is missed by, relative"),
                    ("drift", ("lr", "time"), "largest change of C since the start"),
                    ("error", ("lr",), "distance of the weights from the flow"),
                    ("loss", ("lr", "time"), "loss"),
                )
            },
            "flow_loss": ("time", flow["loss"]),
            "flow_drift": max(np.max(np.linalg.norm(law - law[0], axis=(1, 2))) for law in flow_laws),
        },
        coords={"lr": [row["lr"] for row in rows], "time": np.asarray(flow.times)},
    )


def plot_descent(dataset: "xarray.Dataset", spec: Descent) -> "Figure":
    """Left: powers of the learning rate. Right: the drift over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * PANEL[0], 1.2 * PANEL[1]), layout="constrained")
    left, right = figure.subplots(1, 2)
    lr = dataset["lr"].to_numpy()
    names = (
        ("first_change", r"$\|\Delta C\|$ in one step", 2, "o"),
        ("drift", r"$\|C(T) - C(0)\|$", 1, "s"),
        ("error", r"$\|W(T) - W_{\mathrm{flow}}(T)\|$", 1, "^"),
    )
    for k, (name, label, power, marker) in enumerate(names):
        values = (dataset[name].isel(time=-1) if name == "drift" else dataset[name]).to_numpy()
        left.loglog(lr, values, marker=marker, color=COLOURS[k], linestyle="none", label=label)
        left.loglog(lr, values[-1] * (lr / lr[-1]) ** power, color=COLOURS[k], linewidth=0.9, alpha=0.7)
    left.set(xlabel=r"learning rate $\eta$ (lines: slopes 2, 1, 1)")
    left.set_xticks(lr[::2], [f"1/{1 / value:g}" for value in lr[::2]])
    left.minorticks_off()
    left.legend(loc="lower right")
    shown = dataset["drift"].isel(time=slice(1, None))
    for k, value in enumerate(lr):
        colour = COLOURS[k] if k < len(COLOURS) else REST
        right.semilogy(shown["time"], shown.sel(lr=value), color=colour, label=rf"$\eta = 1/{1 / value:g}$")
    right.set(xlabel="time $t = \\eta n$", ylabel=r"$\max_l \|C_l(t) - C_l(0)\|_F$")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def claims_descent(dataset: "xarray.Dataset", spec: Descent) -> list[Claim]:
    """Drift goes with the square of the step; descent approaches the flow to first order."""
    change, error = dataset["first_change"].to_numpy(), dataset["error"].to_numpy()
    total = dataset["drift"].isel(time=-1).to_numpy()
    fours = change[:-1] / change[1:]
    claims = [
        Claim.at_most(
            "C changes by η²(GᵀG − GGᵀ) in every step of every run: largest relative error",
            dataset["identity"].max(),
            1e-13,
        ),
        Claim.at_most(
            "Half the step, a quarter of the change in the first step: largest distance of the ratio from 4",
            float(np.max(np.abs(fours - 4))),
            1e-6,
            "Rounding of differences of C of order one.",
        ),
        Claim.at_most(
            "Along the flow C does not change: largest change", dataset["flow_drift"], 1e-9, "Error of the integrator."
        ),
    ]
    for name, values in (("distance from the flow", error), ("whole drift", total)):
        ratios = values[:-1] / values[1:]
        claims += [
            Claim.between(f"Half the step, half the {name}: {where} ratio", ratio, 1.8, 2.2)
            for where, ratio in (("smallest", ratios.min()), ("largest", ratios.max()))
        ]
    return claims


EXPERIMENTS = (
    Experiment(
        id="network/gd-drift",
        source="Section 7, equation 67",
        shows="Gradient descent beside the flow: conserved quantities drift with the square of the learning rate in "
        "each step, and so to first order in all; so does the distance from the flow.",
        presets={"quick": Descent(halvings=3), "paper": Descent()},
        run=run_descent,
        plot=plot_descent,
        claims=claims_descent,
        notes="The survey says that conservation does not hold exactly; the exact drift is derived.",
    ),
)
