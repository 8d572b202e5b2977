"""Experiments of no paper in particular, for a first look."""

import dataclasses
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_count, check_number, random_orthogonal
from deeplinear.dynamics import GradientFlow, simulate, until
from deeplinear.experiments._base import Claim, Context, Experiment, seed_key
from deeplinear.models import DeepLinear, MatchedGaussian, Problem, SquaredDistance
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import Drift, loss, singular_values

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Plateaus:
    """A network that starts near the origin and learns a target of a few modes."""

    widths: tuple[int, ...] = (6, 8, 8, 5)
    modes: tuple[float, ...] = (4.0, 3.0, 2.0, 1.0)
    scale: float = 1e-6
    threshold: float = 1e-10
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("Plateaus", "scale", self.scale, above=0)
        check_number("Plateaus", "threshold", self.threshold, above=0)
        check_count("Plateaus", "seed", self.seed)
        if len(self.modes) > min(self.widths):
            raise ValueError(
                f"Plateaus: modes must be at most {min(self.widths)}, the smallest width, but are {len(self.modes)}."
            )
        for value in self.modes:
            check_number("Plateaus", "modes", value, above=0)


def run_plateaus(spec: Plateaus, context: Context) -> "xarray.Dataset":
    """Gradient flow from a small start until the target is learned."""
    import xarray

    model = DeepLinear(spec.widths)
    rows, columns = model.product_shape
    left = random_orthogonal(seed_key(spec.seed, "left"), rows)
    right = random_orthogonal(seed_key(spec.seed, "right"), columns)
    modes = jnp.asarray(sorted(spec.modes, reverse=True))
    target = (left[:, : len(modes)] * modes) @ right[:, : len(modes)].T
    params = MatchedGaussian(spec.scale)(model, seed_key(spec.seed, "start"))
    problem = Problem(model, SquaredDistance(target))
    trajectory = simulate(
        problem,
        params,
        GradientFlow(1e-9),
        probes=(loss, singular_values, Drift(params)),
        until=until(loss, below=spec.threshold),
    )
    context.complete(trajectory)
    values = trajectory["singular_values"]
    reached = [_half_time(trajectory.times, values[:, k]) for k in range(len(modes))]
    return xarray.Dataset(
        {
            "loss": ("time", trajectory["loss"]),
            "singular_values": (("time", "mode"), values),
            "drift": ("time", trajectory["drift"].max(axis=-1)),
            "half_time": ("learned", reached),
            "target": ("learned", np.asarray(modes)),
        },
        coords={"time": trajectory.times, "mode": np.arange(1, values.shape[1] + 1)},
        attrs={"outcome": trajectory.result.name, "gradients": int(trajectory.stats["gradient_evaluations"])},
    )


def plot_plateaus(dataset: "xarray.Dataset", spec: Plateaus) -> "Figure":
    """Loss and singular values over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * PANEL[0], 1.15 * PANEL[1]), layout="constrained")
    above, beside = figure.subplots(1, 2)
    above.semilogy(dataset["time"], dataset["loss"], color=COLOURS[0])
    above.set(xlabel="time $t$", ylabel="loss")
    for k, mode in enumerate(dataset["target"].to_numpy()):
        colour = COLOURS[k % len(COLOURS)]
        beside.plot(dataset["time"], dataset["singular_values"][:, k], color=colour, label=f"mode {k + 1}")
        beside.axhline(mode, color=colour, linestyle=":", linewidth=0.8)
    beside.set(xlabel="time $t$", ylabel="singular values")
    figure.legend(*beside.get_legend_handles_labels(), loc="outside lower center", ncols=len(spec.modes))
    return figure


def claims_plateaus(dataset: "xarray.Dataset", spec: Plateaus) -> list[Claim]:
    """Modes are learned one after another, the strongest first, and nothing that is conserved moves."""
    waits = np.diff(dataset["half_time"].to_numpy())
    missed = np.abs(dataset["singular_values"].to_numpy()[-1, : len(spec.modes)] - dataset["target"].to_numpy())
    claims = [Claim.at_most("Every mode is learned: largest distance to the target's", missed.max(), 1e-4)]
    if len(waits):
        claims.append(
            Claim.at_least("Stronger modes are learned first: shortest wait between two of them", waits.min(), 0.0)
        )
    claims.append(Claim.at_most("Conserved quantities stay: largest drift", dataset["drift"].max(), 1e-6))
    return claims


def _half_time(times: np.ndarray, values: np.ndarray) -> float:
    """When a singular value first passes half of its last value, between records by a straight line."""
    half = values[-1] / 2
    after = int(np.argmax(values >= half))
    if after == 0:
        return float(times[0])
    share = (half - values[after - 1]) / (values[after] - values[after - 1])
    return float(times[after - 1] + share * (times[after] - times[after - 1]))


EXPERIMENTS = (
    Experiment(
        id="tour/plateaus",
        source="a first look",
        shows="A network of three layers that starts near the origin learns one mode of its target after another, "
        "from plateau to plateau.",
        presets={
            "quick": Plateaus(),
            "paper": Plateaus(widths=(20, 24, 24, 16), modes=(6.0, 5.0, 4.0, 3.0, 2.0, 1.0), scale=1e-8),
        },
        run=run_plateaus,
        plot=plot_plateaus,
        claims=claims_plateaus,
    ),
)
