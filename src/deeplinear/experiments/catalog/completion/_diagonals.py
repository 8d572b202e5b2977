"""Limits with the diagonal observed: two families of starts, noisy values, values that are not equal."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_count, check_number, random, stable_rank
from deeplinear.exact import block_limit, disconnected
from deeplinear.experiments._base import Claim, Context, Experiment, seed_key
from deeplinear.experiments.catalog.completion._flows import (
    Limits,
    at_most_scale,
    check_depths,
    check_distinct,
    check_flow,
    check_positive,
    family_layer,
    flow_limits,
    legend_above,
    look,
    normal_layers,
    panels,
    scale_axis,
)
from deeplinear.models import Completion, DeepLinear, Problem, diagonal_mask

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

GREY = "#333333"
"""Colour of closed forms beside the flows."""

DEPTH = {"long_name": "number of layers L"}
SCALE = {"long_name": "scale of the start, alpha to the power L", "units": "1"}
FAMILY = {"long_name": "diagonal over off-diagonal entry of a layer at the start, m", "units": "1"}


def _check_family(where: str, values: Sequence[float]) -> None:
    check_distinct(where, "ms", values)
    for value in values:
        check_number(where, "each of ms", value, at_least=1, finite=False)


def _ends(found: Sequence[Limits], dims: tuple[str, ...], rank: str, loss_below: float) -> dict[str, Any]:
    """Variables of flows at several depths: the rank asked for, loss and time reached, and whether they finished."""
    words = {rank: f"{rank.replace('_', ' ')} of the limit", "loss": "loss reached", "time": "time of the flow"}
    variables: dict[str, Any] = {
        name: (dims, np.stack([getattr(one, name) for one in found]), {"long_name": text, "units": "1"})
        for name, text in words.items()
    }
    attributes = {"long_name": f"whether the loss fell to {loss_below:g}"}
    return variables | {"finished": (dims, np.stack([one.finished for one in found]), attributes)}


def _finished(dataset: "xarray.Dataset", spec: Any) -> Claim:
    statement = f"Flows that did not reach loss {spec.loss_below:g} within {spec.max_steps} steps; they are kept."
    return Claim.at_most(statement, float((~dataset["finished"]).sum()), 0)


# --- Two families of starts -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class StartSpec:
    r"""Starts of the family $(\alpha, m)$ against Gaussian ones, 3 x 3 with ones on the diagonal.

    Attributes:
        depths: Numbers of layers.
        ms: $m$ of the family.
        scale: $\alpha^L$ of both kinds of starts.
        trials: Gaussian starts for each depth.
        loss_below: Loss to stop at.
        rtol: Relative tolerance of the flow.
        max_steps: Steps of one flow at most.
        seed: Of the Gaussian starts.
    """

    depths: tuple[int, ...] = (2, 3, 4, 5)
    ms: tuple[float, ...] = (
        *(1.1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700),
        *(1e3, 1.5e3, 2e3, 3e3, 5e3, 7e3, 1e4),
    )
    scale: float = 1e-3
    trials: int = 1000
    loss_below: float = 1e-8
    rtol: float = 1e-6
    max_steps: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_depths("StartSpec", self.depths)
        _check_family("StartSpec", self.ms)
        check_number("StartSpec", "scale", self.scale, above=0)
        check_count("StartSpec", "trials", self.trials, at_least=2)
        check_count("StartSpec", "seed", self.seed)
        check_flow("StartSpec", self.rtol, self.loss_below, self.max_steps)


WIDTH = 3
"""Width of the matrices whose starts are compared."""


def _run_starts(spec: StartSpec, context: Context) -> "xarray.Dataset":
    import xarray

    depths = np.asarray(spec.depths)[:, None]
    family = block_limit(depths, spec.scale ** (1 / depths), np.asarray(spec.ms), blocks=WIDTH).effective_rank

    def train(depth: int) -> Limits:
        draws = normal_layers(seed_key(spec.seed, "fig10", "start", depth), depth, spec.trials, WIDTH)
        return flow_limits(
            context,
            np.ones((WIDTH, WIDTH)),
            diagonal_mask(WIDTH),
            [spec.scale ** (1 / depth) * draw for draw in draws],
            rtol=spec.rtol,
            below=spec.loss_below,
            max_steps=spec.max_steps,
        )

    found = context.each(train, spec.depths, "depth {}".format)
    variables = _ends(found, ("depth", "trial"), "effective_rank", spec.loss_below)
    words = {"long_name": "effective rank of the limit from starts of the family", "units": "1"}
    variables["family"] = (("depth", "m"), np.asarray(family), words)
    return xarray.Dataset(variables, {"depth": ("depth", list(spec.depths), DEPTH), "m": ("m", list(spec.ms), FAMILY)})


def _plot_starts(dataset: "xarray.Dataset", spec: StartSpec) -> "Figure":
    figure, axes = panels(2)
    order = np.argsort(spec.ms)
    for position, depth in enumerate(spec.depths):
        part, style = dataset.sel(depth=depth), look(position)
        axes[0].plot(part["m"][order], part["family"][order], label=f"depth {depth}", markevery=2, **style)
        ranks = np.sort(part["effective_rank"])
        every = (position * len(ranks) // 40, max(1, len(ranks) // 8))
        axes[1].plot(np.arange(1, len(ranks) + 1), ranks, markevery=every, **style)
    axes[0].set_xscale("log")
    axes[0].set_xlabel(r"$m$")
    axes[0].set_ylabel("effective rank of the limit")
    axes[0].set_title(r"layers $\alpha$ on and $\alpha/m$ off the diagonal")
    axes[1].set_xlabel("trial, sorted by its effective rank")
    axes[1].set_title("Gaussian layers")
    legend_above(figure, axes[0], len(spec.depths))
    return figure


def _claims_starts(dataset: "xarray.Dataset", spec: StartSpec) -> list[Claim]:
    claims = [_finished(dataset, spec)]
    medians = dataset["effective_rank"].median("trial")
    applies = math.isclose(spec.scale, 1e-3)
    for depth, low, high in ((2, 1.8, 3.0), (3, 1.0, 1.2), (4, 1.0, 1.05)):
        if depth not in spec.depths:
            continue
        statement = f"Gaussian starts, depth {depth}: median effective rank."
        if applies:
            claims.append(Claim.between(statement, float(medians.sel(depth=depth)), low, high))
        else:
            claims.append(Claim.untold(statement, f"between {low:g} and {high:g}", "Known for scale 1e-3."))
    if len(spec.depths) < 2:
        return claims
    shallow_first = dataset.sortby("depth")
    for name, ranks in (("family", shallow_first["family"]), ("Gaussian", medians.sortby("depth"))):
        statement = (
            f"Deeper networks end at lower rank, {name} starts: largest rise of the effective rank from a depth "
        )
        statement += "to the next" + (", over all m." if name == "family" else " (medians).")
        claims.append(Claim.at_most(statement, float(ranks.diff("depth").max()), 1e-9 if name == "family" else 0))
    if {2, 3} <= set(spec.depths):
        statement = "A clear gap between depth 2 and 3: difference of the median effective ranks, Gaussian starts."
        claims.append(Claim.at_least(statement, float(medians.sel(depth=2) - medians.sel(depth=3)), 0.5))
        gap = (dataset["family"].sel(depth=2) - dataset["family"].sel(depth=3)).max()
        statement = "A clear gap between depth 2 and 3: largest difference over m, starts of the family."
        claims.append(Claim.at_least(statement, float(gap), 0.5))
    return claims


# --- Noisy values -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class NoiseSpec:
    r"""Noisy values on the diagonal of a $d \times d$ matrix.

    Attributes:
        depths: Numbers of layers.
        scales: $\alpha^L$.
        noises: Standard deviations of the noise on the observed values.
        draws: Draws of the noise.
        width: $d$.
        value: Observed value without noise.
        m: Of the start.
        loss_below: Loss to stop at.
        rtol: Relative tolerance of the flow.
        max_steps: Steps of one flow at most.
        seed: Of the noise.
    """

    depths: tuple[int, ...] = (2, 3, 4, 5)
    scales: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
    noises: tuple[float, ...] = (0.01, 0.05, 0.1)
    draws: int = 10
    width: int = 5
    value: float = 1.0
    m: float = 100.0
    loss_below: float = 1e-8
    rtol: float = 1e-6
    max_steps: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_depths("NoiseSpec", self.depths)
        check_positive("NoiseSpec", "scales", self.scales)
        check_positive("NoiseSpec", "noises", self.noises)
        check_count("NoiseSpec", "draws", self.draws, at_least=2)
        check_count("NoiseSpec", "width", self.width, at_least=2)
        check_number("NoiseSpec", "value", self.value, above=0)
        check_number("NoiseSpec", "m", self.m, at_least=1, finite=False)
        check_count("NoiseSpec", "seed", self.seed)
        check_flow("NoiseSpec", self.rtol, self.loss_below, self.max_steps)


def _run_noise(spec: NoiseSpec, context: Context) -> "xarray.Dataset":
    import xarray

    scales = np.asarray(spec.scales)
    noise = np.asarray(random.normal(seed_key(spec.seed, "fig11", "noise"), (spec.draws, spec.width)))
    clean = np.zeros((1, spec.width))
    values = np.concatenate([clean, *(size * noise for size in spec.noises)]) + spec.value
    targets = values[:, :, None] * np.eye(spec.width)

    def train(depth: int) -> Limits:
        layer = family_layer(scales ** (1 / depth), spec.m, spec.width)
        return flow_limits(
            context,
            targets,
            diagonal_mask(spec.width),
            [layer[:, None]] * depth,
            rtol=spec.rtol,
            below=spec.loss_below,
            max_steps=spec.max_steps,
        )

    found = context.each(train, spec.depths, "depth {}".format)
    depths = np.asarray(spec.depths)[:, None]
    theory = block_limit(depths, scales ** (1 / depths), spec.m, blocks=spec.width, value=spec.value).stable_rank
    ends = _ends(found, ("depth", "scale", "member"), "stable_rank", spec.loss_below)
    shape = (len(spec.depths), len(scales), len(spec.noises), spec.draws)
    variables: dict[str, Any] = {}
    for name, (_, array, attributes) in ends.items():
        variables[f"{name}_noiseless"] = (("depth", "scale"), array[..., 0], attributes)
        variables[name] = (("depth", "scale", "noise", "draw"), array[..., 1:].reshape(shape), attributes)
    words = {"long_name": "stable rank of the limit without noise, closed form", "units": "1"}
    variables["theory"] = (("depth", "scale"), np.asarray(theory), words)
    variables["observed"] = (
        ("noise", "draw", "entry"),
        values[1:].reshape(len(spec.noises), spec.draws, spec.width),
        {"long_name": "observed values on the diagonal", "units": "1"},
    )
    coordinates = {
        "depth": ("depth", list(spec.depths), DEPTH),
        "scale": ("scale", list(spec.scales), SCALE),
        "noise": ("noise", list(spec.noises), {"long_name": "standard deviation of the noise", "units": "1"}),
    }
    dataset = xarray.Dataset(variables, coordinates)
    dataset["mean"] = dataset["stable_rank"].mean("draw")
    dataset["deviation"] = dataset["stable_rank"].std("draw", ddof=1)
    return dataset


def _plot_noise(dataset: "xarray.Dataset", spec: NoiseSpec) -> "Figure":
    figure, axes = panels(len(spec.noises))
    for panel, noise in zip(axes, spec.noises, strict=True):
        for position, depth in enumerate(spec.depths):
            part, style = dataset.sel(depth=depth, noise=noise), look(position)
            panel.errorbar(part["scale"], part["mean"], part["deviation"], label=f"depth {depth}", capsize=2, **style)
            panel.plot(part["scale"], part["theory"], "--", color=GREY, linewidth=0.9, zorder=5)
        panel.plot([], [], "--", color=GREY, linewidth=0.9, label="without noise, closed form")
        panel.set_title(rf"noise $\sigma = {noise:g}$")
        scale_axis(panel)
    axes[0].set_ylabel("stable rank of the limit")
    legend_above(figure, axes[0], len(spec.depths) + 1)
    return figure


def _claims_noise(dataset: "xarray.Dataset", spec: NoiseSpec) -> list[Claim]:
    unfinished = float((~dataset["finished"]).sum() + (~dataset["finished_noiseless"]).sum())
    statement = f"Flows that did not reach loss {spec.loss_below:g} within {spec.max_steps} steps; they are kept."
    claims = [Claim.at_most(statement, unfinished, 0)]
    distance = np.abs(dataset["stable_rank_noiseless"] - dataset["theory"]).max()
    claims.append(
        Claim.at_most("Without noise the flow ends where the theorem says: largest distance.", float(distance), 2e-3)
    )
    means, noises = dataset["mean"].sortby(["depth", "noise"]), sorted(spec.noises)
    statement = f"Noise {noises[0]:g} moves the mean stable rank little: largest distance from the noiseless one."
    if noises[0] <= 0.01:
        moved = float(np.abs(means.isel(noise=0) - dataset["theory"]).max())
        claims.append(Claim.at_most(statement, moved, 0.02))
    else:
        claims.append(Claim.untold(statement, "at most 0.02", "Known for noise of at most 0.01."))
    if 2 in spec.depths:
        spread = (means.sel(depth=2).max("scale") - means.sel(depth=2).min("scale")).max()
        statement = "Depth 2 ends where it does at every scale: largest spread of the mean stable rank over the scales."
        claims.append(Claim.at_most(statement, float(spread), 1e-2))
        statement = f"Noise {noises[-1]:g} lowers the rank at depth 2: mean over the scales of the stable rank lost."
        lost = (dataset["theory"].sel(depth=2) - means.sel(depth=2).isel(noise=-1)).mean()
        if noises[-1] >= 0.1:
            claims.append(Claim.at_least(statement, float(lost), 0.05))
        else:
            claims.append(Claim.untold(statement, "at least 0.05", "Known for noise of at least 0.1."))
    if len(spec.depths) > 1:
        statement = (
            "Deeper networks end at lower rank, at every scale and noise: largest rise from a depth to the next."
        )
        claims.append(Claim.at_most(statement, float(means.diff("depth").max()), 1e-3))
    small = at_most_scale(dataset.sel(depth=dataset["depth"] > 2), 1e-4)["mean"]
    if small.size:
        statement = "Deeper than 2, scales up to 1e-4: rank 1 in spite of the noise; largest mean stable rank."
        claims.append(Claim.at_most(statement, float(small.max()), 1.03))
    return claims


# --- Values that are not equal ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ValuesSpec:
    r"""Different values on the diagonal.

    Attributes:
        values: Observed diagonal.
        depths: Numbers of layers.
        ms: $m$ of the starts, one panel for each; infinite for multiples of the identity.
        scales: $\alpha^L$.
        loss_below: Loss to stop at.
        rtol: Relative tolerance of the flow.
        max_steps: Steps of one flow at most.
    """

    values: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0)
    depths: tuple[int, ...] = (2, 3, 4, 5)
    ms: tuple[float, ...] = (2.0, 10.0, 100.0, math.inf)
    scales: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
    loss_below: float = 1e-8
    rtol: float = 1e-6
    max_steps: int = 100_000

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ValueError(f"ValuesSpec: values must hold at least two values, but is {self.values}.")
        for value in self.values:
            check_number("ValuesSpec", "each of values", value, at_least=0)
        if not any(self.values):
            raise ValueError("ValuesSpec: values must not all be zero; the zero matrix has no stable rank.")
        check_depths("ValuesSpec", self.depths)
        _check_family("ValuesSpec", self.ms)
        check_positive("ValuesSpec", "scales", self.scales)
        check_flow("ValuesSpec", self.rtol, self.loss_below, self.max_steps)


def _exact_two(spec: ValuesSpec) -> np.ndarray:
    """Stable rank of the limit of two layers, (m, scale), in closed form."""
    width = len(spec.values)
    problem = Problem(DeepLinear((width,) * 3), Completion(np.diag(spec.values), diagonal_mask(width)))

    def rank(m: float, scale: float) -> float:
        layer = jnp.asarray(family_layer(math.sqrt(scale), m, width))
        first, second = disconnected(problem, (layer, layer)).limit()
        return float(stable_rank(second @ first))

    return np.array([[rank(m, scale) for scale in spec.scales] for m in spec.ms])


def _run_values(spec: ValuesSpec, context: Context) -> "xarray.Dataset":
    import xarray

    width, scales = len(spec.values), np.asarray(spec.scales)

    def train(depth: int) -> Limits:
        layer = family_layer(scales ** (1 / depth), np.asarray(spec.ms)[:, None], width)
        return flow_limits(
            context,
            np.diag(spec.values),
            diagonal_mask(width),
            [layer] * depth,
            rtol=spec.rtol,
            below=spec.loss_below,
            max_steps=spec.max_steps,
        )

    found = context.each(train, spec.depths, "depth {}".format)
    variables = _ends(found, ("depth", "m", "scale"), "stable_rank", spec.loss_below)
    words = {"long_name": "stable rank of the limit of two layers, closed form", "units": "1"}
    variables["exact"] = (("m", "scale"), _exact_two(spec), words)
    coordinates = {
        "depth": ("depth", list(spec.depths), DEPTH),
        "m": ("m", list(spec.ms), FAMILY),
        "scale": ("scale", list(spec.scales), SCALE),
    }
    return xarray.Dataset(variables, coordinates)


def _plot_values(dataset: "xarray.Dataset", spec: ValuesSpec) -> "Figure":
    figure, axes = panels(len(spec.ms))
    for panel, m in zip(axes, spec.ms, strict=True):
        for position, depth in enumerate(spec.depths):
            part = dataset.sel(depth=depth, m=m)
            panel.plot(part["scale"], part["stable_rank"], label=f"depth {depth}", **look(position))
        panel.plot(
            dataset["scale"], dataset["exact"].sel(m=m), "k--", linewidth=0.9, zorder=5, label="depth 2, closed form"
        )
        panel.set_title(r"$m = \infty$" if math.isinf(m) else rf"$m = {m:g}$")
        scale_axis(panel)
    axes[0].set_ylabel("stable rank of the limit")
    legend_above(figure, axes[0], len(spec.depths) + 1)
    return figure


def _claims_values(dataset: "xarray.Dataset", spec: ValuesSpec) -> list[Claim]:
    claims = [_finished(dataset, spec)]
    ranks, values = dataset["stable_rank"], np.asarray(spec.values)
    if math.inf in spec.ms:
        full = float(np.sum((values / values.max()) ** 2))
        statement = (
            f"Multiples of the identity stay decoupled at every depth and scale: largest distance of the stable rank "
            f"from that of the diagonal matrix, {full:g}."
        )
        claims.append(Claim.at_most(statement, float(np.abs(ranks.sel(m=math.inf) - full).max()), 2e-3))
    if 2 in spec.depths:
        shallow = ranks.sel(depth=2)
        statement = "Depth 2: largest distance of the flow from the closed form."
        claims.append(Claim.at_most(statement, float(np.abs(shallow - dataset["exact"]).max()), 2e-3))
        spread = (shallow.max("scale") - shallow.min("scale")).max()
        statement = "Depth 2 ends at a rank that does not depend on the scale: largest spread over the scales."
        claims.append(Claim.at_most(statement, float(spread), 2e-3))
    usual = np.array_equal(values, [0, 0.5, 1, 1.5, 2])
    for depth, m, scale, expected in ((2, 100.0, 1e-1, 1.8699), (3, 100.0, 1e-3, 1.0100)):
        if usual and depth in spec.depths and m in spec.ms and scale in spec.scales:
            statement = f"Stable rank at depth {depth}, m = {m:g}, scale {scale:g}."
            measured = float(ranks.sel(depth=depth, m=m, scale=scale))
            claims.append(Claim.between(statement, measured, expected - 2e-3, expected + 2e-3))
    finite = [m for m in spec.ms if math.isfinite(m)]
    if finite and len(spec.depths) > 1:
        rise = float(ranks.sel(m=finite).sortby("depth").diff("depth").max())
        statement = (
            "Deeper networks end at lower rank, at every finite m and scale: largest rise from a depth to the next."
        )
        claims.append(Claim.at_most(statement, rise, 1e-3))
        small = at_most_scale(dataset.sel(depth=dataset["depth"] > 2, m=finite), 1e-5)["stable_rank"]
        if small.size:
            statement = "Deeper than 2, finite m, scales up to 1e-5: rank 1; largest stable rank."
            claims.append(Claim.at_most(statement, float(small.max()), 1.01))
    return claims


FLOW = "Gradient flow to loss 1e-8 instead of gradient descent with a small step, whose size the paper does not give. "

EXPERIMENTS = (
    Experiment(
        id="completion/fig10",
        source="Figure 10",
        shows="Starts of the family (alpha, m) and Gaussian starts lead to the same picture: high rank at depth 2, "
        "lower rank the deeper the network.",
        presets={
            "quick": StartSpec(depths=(2, 3), trials=200),
            "paper": StartSpec(),
            "large": StartSpec(trials=100_000),
        },
        run=_run_starts,
        plot=_plot_starts,
        claims=_claims_starts,
        notes="The scale of the starts and the depths are not given: alpha^L = 1e-3 at depths 2 to 5. The panel of the "
        "family is the closed form of the limit; that of Gaussian starts is gradient flow to loss 1e-8.",
    ),
    Experiment(
        id="completion/fig11",
        source="Figure 11",
        shows="With noise on the observed diagonal deeper networks still end at lower rank, as without noise.",
        presets={
            "quick": NoiseSpec(depths=(2, 3), scales=(1e-1, 1e-2, 1e-3, 1e-4)),
            "paper": NoiseSpec(),
            "large": NoiseSpec(draws=1000),
        },
        run=_run_noise,
        plot=_plot_noise,
        claims=_claims_noise,
        notes=FLOW + "Scales and depths are not given: alpha^L from 1e-1 to 1e-6, depths 2 to 5. The same draws, "
        "multiplied by the size of the noise, are used at every noise, scale and depth. Error bars are standard "
        "deviations over the draws, dashed lines the closed form without noise.",
    ),
    Experiment(
        id="completion/fig12",
        source="Figure 12",
        shows="With different values on the diagonal deeper networks end at lower rank; multiples of the identity as "
        "starts keep every depth at high rank.",
        presets={
            "quick": ValuesSpec(depths=(2, 3), scales=(1e-1, 1e-3, 1e-5)),
            "paper": ValuesSpec(),
            "large": ValuesSpec(
                scales=tuple(10 ** (-k / 4) for k in range(4, 33)), ms=(2.0, 10.0, 100.0, 1e4, math.inf)
            ),
        },
        run=_run_values,
        plot=_plot_values,
        claims=_claims_values,
        notes=FLOW + "The values of m, scales and depths are not given: m = 2, 10, 100, infinite; alpha^L from 1e-1 to "
        "1e-6; depths 2 to 5. The observed zero is approached algebraically, so the loss asked for is reached late.",
    ),
)
