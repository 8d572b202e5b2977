"""Theory against training: the limits of the formula, of the flow, and of descent with finite steps."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from deeplinear.core import Trajectory, check_count, check_number, spectrum
from deeplinear.dynamics import AbstractMethod, GradientDescent, GradientFlow, ensemble, until
from deeplinear.exact import block_limit
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.completion._flows import (
    END,
    check_depths,
    check_positive,
    ended,
    family_layer,
    problems,
)
from deeplinear.experiments.catalog.completion._formula import NEARLY_INFINITE, decades, ratio_text
from deeplinear.models import DeepLinear
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import loss

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

ORDER_DEPTH, ORDER_M, ORDER_SCALE = 3, 10.0, 1e-3
"""Where the error of descent is measured for several steps."""


@dataclasses.dataclass(frozen=True)
class Validation:
    """A diagonal of equal entries, learned by flow and by descent from starts of many scales."""

    value: float = 1.0
    width: int = 3
    depths: tuple[int, ...] = (2, 3, 4, 5)
    ms: tuple[float, ...] = (2.0, 10.0, 100.0, NEARLY_INFINITE)
    scales: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10)
    descent_scales: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)
    lr: float = 0.01
    order_lrs: tuple[float, ...] = (0.04, 0.02, 0.01)
    threshold: float = 1e-16
    rtol: float = 1e-12
    max_steps: int = 3_000_000

    def __post_init__(self) -> None:
        check_number("Validation", "value", self.value, above=0)
        check_count("Validation", "width", self.width, at_least=2)
        check_depths("Validation", self.depths)
        check_positive("Validation", "scales", self.scales)
        check_positive("Validation", "descent_scales", self.descent_scales)
        check_positive("Validation", "order_lrs", self.order_lrs)
        check_number("Validation", "lr", self.lr, above=0)
        check_number("Validation", "threshold", self.threshold, above=0)
        check_number("Validation", "rtol", self.rtol, at_least=1e-14, at_most=0.1)
        check_count("Validation", "max_steps", self.max_steps, at_least=1)
        for m in self.ms:
            check_number("Validation", "ms", m, above=1, finite=False)


def run_validation(spec: Validation, context: Context) -> "xarray.Dataset":
    """Second singular value by formula, by flow and by descent; what each of the latter two cost."""
    import xarray

    shape = (len(spec.ms), len(spec.depths))
    flow = {name: np.full((*shape, len(spec.scales)), np.nan) for name in ("first", "second", "time", "gradients")}
    descent = {name: np.full((*shape, len(spec.descent_scales)), np.nan) for name in ("first", "second", "steps")}
    reached = {"flow": np.zeros((*shape, len(spec.scales)), bool)}
    reached["descent"] = np.zeros((*shape, len(spec.descent_scales)), bool)
    order = np.full(len(spec.order_lrs), np.nan)

    def flow_to_the_end(depth: int) -> None:
        k = spec.depths.index(depth)
        trajectory = _train(spec, context, depth, spec.ms, spec.scales, GradientFlow(spec.rtol))
        flow["first"][:, k], flow["second"][:, k] = _values(trajectory, len(spec.ms))
        flow["time"][:, k] = trajectory.final_time.reshape(len(spec.ms), -1)
        flow["gradients"][:, k] = np.reshape(trajectory.stats["gradient_evaluations"], (len(spec.ms), -1))
        reached["flow"][:, k] = ended(trajectory).reshape(len(spec.ms), -1)

    def descend(depth: int) -> None:
        k = spec.depths.index(depth)
        trajectory = _train(spec, context, depth, spec.ms, spec.descent_scales, GradientDescent(spec.lr))
        descent["first"][:, k], descent["second"][:, k] = _values(trajectory, len(spec.ms))
        descent["steps"][:, k] = trajectory.final_time.reshape(len(spec.ms), -1)
        reached["descent"][:, k] = ended(trajectory).reshape(len(spec.ms), -1)
        if depth == ORDER_DEPTH:
            methods = [GradientDescent(lr) for lr in spec.order_lrs]
            trajectory = _train(spec, context, depth, (ORDER_M,), (ORDER_SCALE,) * len(methods), methods)
            order[:] = _values(trajectory, 1)[1][0]

    parts = [(work, depth) for work in (flow_to_the_end, descend) for depth in spec.depths]
    context.each(lambda part: part[0](part[1]), parts, lambda part: f"depth {part[1]}")
    depths = np.asarray(spec.depths, dtype=float)[None, :, None]

    def theory(scales: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
        limit = block_limit(
            depths,
            np.asarray(scales) ** (1 / depths),
            np.asarray(spec.ms)[:, None, None],
            blocks=spec.width,
            value=spec.value,
        )
        return np.asarray(limit.sigma_1), np.asarray(limit.sigma_2)

    dims, coarse = ("m", "depth", "scale"), ("m", "depth", "descent_scale")
    predicted, of_descent = theory(spec.scales), theory(spec.descent_scales)
    dense = np.geomspace(max(spec.scales), min(spec.scales), 91)
    curve = theory(tuple(dense))
    wanted = float(
        block_limit(ORDER_DEPTH, ORDER_SCALE ** (1 / ORDER_DEPTH), ORDER_M, blocks=spec.width, value=spec.value).sigma_2
    )
    return xarray.Dataset(
        {
            "theory_sigma_1": (("m", "depth", "fine_scale"), curve[0]),
            "theory_sigma_2": (("m", "depth", "fine_scale"), curve[1]),
            "sigma_1": (dims, flow["first"]),
            "sigma_2": (dims, flow["second"]),
            "error": (
                dims,
                np.abs(flow["second"] / predicted[1] - 1),
                {"long_name": "relative error of sigma_2, flow"},
            ),
            "error_1": (
                dims,
                np.abs(flow["first"] / predicted[0] - 1),
                {"long_name": "relative error of sigma_1, flow"},
            ),
            "time": (dims, flow["time"]),
            "gradients": (dims, flow["gradients"]),
            "finished": (dims, reached["flow"]),
            "descent_sigma_1": (coarse, descent["first"]),
            "descent_sigma_2": (coarse, descent["second"]),
            "descent_error": (coarse, np.abs(descent["second"] / of_descent[1] - 1)),
            "descent_steps": (coarse, descent["steps"]),
            "descent_finished": (coarse, reached["descent"]),
            "order_error": ("lr", np.abs(order / wanted - 1)),
        },
        coords={
            "m": list(spec.ms),
            "depth": list(spec.depths),
            "scale": list(spec.scales),
            "descent_scale": list(spec.descent_scales),
            "fine_scale": dense,
            "lr": list(spec.order_lrs),
        },
    )


def _train(
    spec: Validation,
    context: Context,
    depth: int,
    ms: tuple[float, ...],
    scales: tuple[float, ...],
    method: AbstractMethod | list[Any],
) -> Trajectory:
    """Train from every ratio m and scale at once."""
    alpha = np.asarray(scales) ** (1 / depth)
    layer = family_layer(alpha[None, :], np.asarray(ms)[:, None], spec.width).reshape(-1, spec.width, spec.width)
    members = len(layer)
    target = np.broadcast_to(spec.value * np.eye(spec.width), layer.shape)
    mask = np.broadcast_to(np.eye(spec.width), layer.shape)
    trajectory = ensemble(
        problems(DeepLinear((spec.width,) * (depth + 1)), target, mask),
        (layer,) * depth,
        method if not isinstance(method, list) else [m for _ in range(members // len(method)) for m in method],
        probes=(loss,),
        until=until(loss, below=spec.threshold),
        every=END,
        max_steps=spec.max_steps,
        progress=context.watch,
    )
    return context.complete(trajectory)


def _values(trajectory: Trajectory, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """First and second singular value of the products at the end.

    All layers are equal, symmetric and positive throughout, so those of the product are products of those of the
    layers; of the product itself a decomposition would find values below 1e-10 to a few digits only.
    """
    values = np.prod([np.asarray(spectrum(jnp.asarray(layer))) for layer in trajectory.params], axis=0)
    return values[:, 0].reshape(rows, -1), values[:, 1].reshape(rows, -1)


def plot_validation(dataset: "xarray.Dataset", spec: Validation) -> "Figure":
    """Theory as curves, the flow as points, descent as crosses."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    panels = len(spec.ms)
    figure = Figure(
        figsize=(max(0.62 * PANEL[0] * panels + 0.6, 1.6 * PANEL[0]), 1.25 * PANEL[1]), layout="constrained"
    )
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    for axis, m in zip(axes, spec.ms, strict=True):
        for k, depth in enumerate(spec.depths):
            here, colour = dataset.sel(m=m, depth=depth), COLOURS[k]
            axis.loglog(here["fine_scale"], here["theory_sigma_1"], color=colour, linewidth=1.0)
            axis.loglog(here["fine_scale"], here["theory_sigma_2"], color=colour, linewidth=1.0, linestyle="--")
            axis.loglog(here["scale"], here["sigma_2"], color=colour, linestyle="none", marker="o", markersize=4.5)
            axis.loglog(here["scale"], here["sigma_1"], color=colour, linestyle="none", marker="o", markersize=4.5)
            axis.loglog(
                here["descent_scale"],
                here["descent_sigma_2"],
                color="black",
                linestyle="none",
                marker="x",
                markersize=4,
            )
        axis.set(title=ratio_text(m), xlabel=r"scale $\alpha^L$")
        axis.xaxis.set_major_locator(decades(min(spec.scales), max(spec.scales)))
    low, high = float(dataset["theory_sigma_2"].min()), float(dataset["theory_sigma_1"].max())
    axes[0].set(ylabel="singular values of the limit", ylim=(max(low, 1e-12) / 3, 3 * high))
    handles = [Line2D([], [], color=COLOURS[k], label=f"$L = {depth}$") for k, depth in enumerate(spec.depths)]
    handles += [
        Line2D([], [], color="#444444", linewidth=1, label=r"theory, $\sigma_1$"),
        Line2D([], [], color="#444444", linewidth=1, linestyle="--", label=r"theory, $\sigma_2$"),
        Line2D([], [], color="#444444", linestyle="none", marker="o", label="flow"),
        Line2D([], [], color="black", linestyle="none", marker="x", label=rf"descent, $\eta = {spec.lr:g}$"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def claims_validation(dataset: "xarray.Dataset", spec: Validation) -> list[Claim]:
    """The flow ends where the formula says, at every scale; descent does so as its step goes to zero."""
    smallest = min(spec.scales)
    last = dataset.sel(scale=smallest)
    slowest = last.isel(last["time"].argmax(...))
    steps, gradients = float(slowest["time"]) / spec.lr, float(slowest["gradients"])
    unfinished = int((~dataset["finished"]).sum()), int((~dataset["descent_finished"]).sum())
    claims = [
        Claim.at_most(
            f"The flow ends where the theory says, down to α^L = {smallest:g}: largest relative error of σ₂",
            dataset["error"].max(),
            1e-6,
            "The smallest scales are those that descent is too slow for.",
        ),
        Claim.at_most("… and of σ₁", dataset["error_1"].max(), 1e-8),
        Claim.at_most("Flows that did not reach the loss asked for", unfinished[0], 0),
        Claim.at_most(
            f"Descent with η = {spec.lr:g} ends near it: largest relative error of σ₂",
            dataset["descent_error"].max(),
            0.2,
            "An error of first order in η, largest for large scales and depths.",
        ),
        Claim.at_most("Descents that did not reach the loss asked for", unfinished[1], 0),
        Claim.at_least(
            f"Steps of descent that the slowest flow at α^L = {smallest:g} would take, over its gradients",
            steps / gradients,
            10,
            f"{steps:.3g} steps of descent with η = {spec.lr:g} against {gradients:.0f} gradients of the flow.",
        ),
    ]
    errors = dataset["order_error"].to_numpy()
    if np.isfinite(errors).all() and len(errors) > 1:
        ratios = (errors[:-1] / errors[1:]) ** (
            np.log(2) / np.log(np.asarray(spec.order_lrs[:-1]) / np.asarray(spec.order_lrs[1:]))
        )
        claims += [
            Claim.between("Half the step, half the error of σ₂: smallest ratio", ratios.min(), 1.6, 2.6),
            Claim.between("Half the step, half the error of σ₂: largest ratio", ratios.max(), 1.6, 2.6),
        ]
    return claims


EXPERIMENTS = (
    Experiment(
        id="completion/fig9",
        source="Figure 9",
        shows="Training ends where the formula says: gradient flow at every scale, also at the smallest, for which "
        "gradient descent is too slow, and descent up to an error of first order in its step.",
        presets={
            "quick": Validation(
                depths=(2, 3), ms=(10.0,), scales=(1e-2, 1e-4, 1e-10), descent_scales=(1e-2, 1e-3, 1e-4)
            ),
            "paper": Validation(),
        },
        run=run_validation,
        plot=plot_validation,
        claims=claims_validation,
        notes="The paper trains by gradient descent with a small step that it does not state, and leaves out the "
        "smallest scale as too slow. Here the flow is solved to a loss of 1e-16 at every scale; descent is shown with "
        "η = 0.01 where it takes up to a few hundred thousand steps.",
    ),
)
