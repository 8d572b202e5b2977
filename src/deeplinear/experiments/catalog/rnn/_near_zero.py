"""Recurrent networks that start near zero: powers of the scale on the way out, and the growth of the order."""

import dataclasses
import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_count, check_number, dopri8, unflatten
from deeplinear.dynamics import GradientFlow, ensemble
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.models import LinearRNN, Problem, SquaredDistance
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import loss, weights
from deeplinear.recurrent import OrderGrowth, escape_time, near_zero_system, order_growth, predicted_exponents

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMS = ("general", "symmetric")
QUANTITIES = ("growing", "imbalance", "transition")
NAMES = {"growing": "‖B + Cᵀ‖", "imbalance": "‖B − Cᵀ‖ / ‖B + Cᵀ‖", "transition": "‖A‖ / ‖B + Cᵀ‖"}

ATOL = 1e-17
"""Far below the square of the smallest scale, so that the decaying part is no noise."""


@dataclasses.dataclass(frozen=True)
class TwoModes:
    """A balanced teacher of two modes and students that start at several scales.

    Attributes:
        states: Size of the students' state.
        length: Entries of the response that are trained on.
        modes: Eigenvalues of the teacher.
        shares: Their weights.
        scales: Sizes ε of the start, falling.
        draws: Directions of the start.
        seed: Seed of the directions.
    """

    states: int
    length: int
    modes: tuple[float, ...]
    shares: tuple[float, ...]
    scales: tuple[float, ...]
    draws: int
    seed: int

    def __post_init__(self) -> None:
        check_count("TwoModes", "states", self.states, at_least=1)
        check_count("TwoModes", "length", self.length, at_least=2)
        check_count("TwoModes", "draws", self.draws, at_least=1)
        if len(self.modes) != len(self.shares):
            raise ValueError(
                f"TwoModes: shares must hold one weight for each of the {len(self.modes)} modes, but holds "
                f"{len(self.shares)}."
            )
        for scale in self.scales:
            check_number("TwoModes", "scales", scale, above=0, at_most=0.1)
        if len(self.scales) < 2 or list(self.scales) != sorted(set(self.scales), reverse=True):
            raise ValueError(f"TwoModes: scales must be two or more in falling order, but are {self.scales}.")

    def target(self, length: int) -> np.ndarray:
        """Response of the teacher."""
        return np.asarray(np.asarray(self.modes) ** np.arange(length)[:, None] @ np.asarray(self.shares))

    def flows(self, form: str, times: np.ndarray, rtol: float, context: Context) -> tuple[np.ndarray, np.ndarray]:
        """Losses (draw, scale, time) and flat parameters of gradient flows, one direction at every scale."""
        model = LinearRNN(self.states, self.length, form="symmetric" if form == "symmetric" else "general")
        problem = Problem(model, SquaredDistance(jnp.asarray(self.target(self.length), dtype=float)[None]))
        starts = []
        for draw in range(self.draws):
            rng = np.random.default_rng([self.seed, draw])
            small = near_zero_system(self.states, 1.0, rng, symmetric=form == "symmetric")
            starts += [tuple(scale * layer for layer in model.params(small)) for scale in self.scales]
        many = ensemble(
            problem,
            starts,
            GradientFlow(rtol, ATOL, integrator=dopri8()),
            times=times,
            probes=(loss, weights),
            progress=context.watch,
        )
        members = [context.complete(many).member(i) for i in range(len(starts))]
        shape = (self.draws, len(self.scales), len(times))
        losses = np.stack([one["loss"] for one in members]).reshape(shape)
        return losses, np.stack([one["weights"] for one in members]).reshape(*shape, -1)


def slopes(scales: tuple[float, ...], values: np.ndarray, axis: int) -> np.ndarray:
    """Powers of the scale along an axis, by lines through logarithms."""
    x = np.log(scales) - np.mean(np.log(scales))
    return np.moveaxis(np.log(values), axis, -1) @ x / (x @ x)


# ---- Powers of the scale on the way out ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Exponents(TwoModes):
    """Students at fractions θ of the way out of zero, at the times θ ln(1/ε)/w₀."""

    states: int = 24
    length: int = 5
    modes: tuple[float, ...] = (0.9, -0.5)
    shares: tuple[float, ...] = (0.6, 0.4)
    scales: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
    fractions: tuple[float, ...] = (0.25, 0.5, 0.75)
    draws: int = 5
    rtol: float = 1e-13
    seed: int = 0


def run_exponents(spec: Exponents, context: Context) -> "xarray.Dataset":
    """Sizes of the parts at every fraction of the way out, and the powers of the scale."""
    import xarray

    first = float(spec.target(1)[0])
    moments = np.array([[escape_time(first, e, fraction=f) for f in spec.fractions] for e in spec.scales])
    times, places = np.unique(np.concatenate([[0.0], moments.ravel()]).round(12), return_inverse=True)
    at = places[1:].reshape(moments.shape)

    def one(form: str) -> tuple[np.ndarray, np.ndarray]:
        losses, flat = spec.flows(form, times, spec.rtol, context)
        rows = np.arange(len(spec.scales))[:, None]
        return losses[:, rows, at], flat[:, rows, at]

    found = context.each(one, FORMS)
    losses, flat = (np.stack([pair[i] for pair in found]) for i in range(2))
    d = spec.states
    b, a, c = flat[..., :d], flat[..., d:-d], flat[..., -d:]
    more, less, inner = (np.linalg.norm(x, axis=-1) for x in (b + c, b - c, a))
    sizes = np.stack([more, less / more, inner / more])
    expected = np.array(
        [[predicted_exponents(f, symmetric=form == "symmetric") for f in spec.fractions] for form in FORMS]
    )
    dims = ("quantity", "form", "draw", "scale", "fraction")
    return xarray.Dataset(
        {
            "size": (dims, sizes),
            "exponent": (("quantity", "form", "draw", "fraction"), slopes(spec.scales, sizes, 3)),
            "late_exponent": (
                ("quantity", "form", "draw", "fraction"),
                slopes(spec.scales[-2:], sizes[:, :, :, -2:], 3),
                {"long_name": "power between the two smallest scales"},
            ),
            "expected": (("quantity", "form", "fraction"), np.moveaxis(expected, -1, 0)),
            "loss": (dims[1:], losses, {"long_name": "half the sum of squares"}),
            "time": (("scale", "fraction"), moments, {"long_name": "time of the half sum of squares"}),
        },
        coords={
            "quantity": list(QUANTITIES),
            "form": list(FORMS),
            "scale": list(spec.scales),
            "fraction": list(spec.fractions),
        },
    )


def plot_exponents(dataset: "xarray.Dataset", spec: Exponents) -> "Figure":
    """Ratios against the scale, all draws, with lines of the predicted slopes through the smallest scale."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.0 * PANEL[0], 2.2 * PANEL[1]), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey="row")
    scales = np.asarray(spec.scales)
    for row, quantity in enumerate(("imbalance", "transition")):
        for column, form in enumerate(FORMS):
            panel = axes[row, column]
            for theta, colour in zip(spec.fractions, COLOURS, strict=False):
                values = dataset["size"].sel(quantity=quantity, form=form, fraction=theta).to_numpy()
                power = float(dataset["expected"].sel(quantity=quantity, form=form, fraction=theta))
                panel.loglog(scales, values.T, "o", color=colour, alpha=0.5, markersize=3)
                middle = math.exp(float(np.mean(np.log(values[:, -1]))))
                line = middle * (scales / scales[-1]) ** power
                label = f"θ = {theta:g}: slope {power:g}"
                panel.loglog(scales, line, color=colour, label=label)
            panel.legend(fontsize="x-small")
            if row == 0:
                panel.set_title(f"{form} A, {spec.states} states, {spec.draws} draws")
            else:
                panel.set_xlabel("scale ε of the start")
            if column == 0:
                panel.set_ylabel(NAMES[quantity])
    return figure


def claims_exponents(dataset: "xarray.Dataset", spec: Exponents) -> list[Claim]:
    """Largest deviation over the draws of the fitted powers from the predicted ones."""
    claims = []
    tolerances = {0.25: 0.01, 0.5: 0.02, 0.75: 0.06}
    for theta in spec.fractions:
        late = theta > 0.5
        values = dataset["late_exponent" if late else "exponent"]
        where = "between the two smallest scales" if late else "over all scales"
        for form in FORMS:
            for quantity in QUANTITIES:
                found = values.sel(quantity=quantity, form=form, fraction=theta).to_numpy()
                power = float(dataset["expected"].sel(quantity=quantity, form=form, fraction=theta))
                claims.append(
                    Claim.at_most(
                        f"{NAMES[quantity]}, {form} A, θ = {theta:g}: deviation of the power of ε {where} from "
                        f"{power:g}, largest of {spec.draws} draws",
                        np.max(np.abs(found - power)),
                        tolerances.get(theta, 0.06),
                        f"median {np.median(found):.4f}",
                    )
                )
    return claims


# ---- Growth of the order ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Growth(TwoModes):
    """Training to a horizon in the clock of the sum of squares, from several scales."""

    states: int = 8
    length: int = 5
    modes: tuple[float, ...] = (0.9, -0.5)
    shares: tuple[float, ...] = (0.6, 0.4)
    scales: tuple[float, ...] = (1e-2, 1e-3, 1e-4)
    horizon: float = 100.0
    records: int = 101
    entries: int = 40
    draws: int = 5
    rtol: float = 1e-11
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("Growth", "horizon", self.horizon, above=0)
        check_count("Growth", "records", self.records, at_least=11)
        check_count("Growth", "entries", self.entries, at_least=self.length + 1)

    @property
    def times(self) -> np.ndarray:
        """Times recorded, in the clock of the sum of squares."""
        return np.linspace(0.0, self.horizon, self.records)


def run_growth(spec: Growth, context: Context) -> "xarray.Dataset":
    """Loss, tail error, balance and order along training."""
    import xarray

    times = spec.times
    # The sum of squares runs twice as fast as half of it, whose flow this is.
    found = context.each(lambda form: spec.flows(form, 2 * times, spec.rtol, context), FORMS)
    tails, grown = [], []
    for form, (_, flat) in zip(FORMS, found, strict=True):
        model = LinearRNN(spec.states, spec.entries, form="symmetric" if form == "symmetric" else "general")
        rows = flat.reshape(-1, flat.shape[-1])
        response = _responses(model, rows)
        gap = np.abs(response - spec.target(spec.entries))[:, spec.length :].max(axis=1)
        tails.append(gap.reshape(flat.shape[:-1]))
        grown.append(order_growth(model, rows, horizon=spec.entries))
    shape = (len(FORMS), spec.draws, len(spec.scales), len(times))

    def stacked(name: str) -> np.ndarray:
        return np.stack([getattr(one, name) for one in grown]).reshape(*shape, *_trailing(grown[0], name))

    dims = ("form", "draw", "scale", "time")
    losses, tail, balance = 2 * np.stack([one[0] for one in found]), np.stack(tails), stacked("balance")
    ends = np.stack([losses[..., -1], tail[..., -1], balance[..., -1]])
    return xarray.Dataset(
        {
            "loss": (dims, losses, {"long_name": "sum of squares"}),
            "tail_error": (dims, tail, {"long_name": f"largest error of entries {spec.length} to {spec.entries - 1}"}),
            "balance": (dims, balance, {"long_name": "‖B − Cᵀ‖ / ‖B + Cᵀ‖"}),
            "singular_values": ((*dims, "mode"), stacked("singular_values")[..., :6]),
            "order": (dims, stacked("order")),
            "atoms": (dims, stacked("atoms")),
            "entropy": (dims, stacked("entropy")),
            "exponent": (("end", "form", "draw"), slopes(spec.scales, ends, 3)),
        },
        coords={
            "form": list(FORMS),
            "scale": list(spec.scales),
            "time": times,
            "end": ["loss", "tail_error", "balance"],
        },
        attrs={"clock": "sum of squares", "optimiser": "gradient flow"},
    )


def _responses(model: LinearRNN, rows: np.ndarray) -> np.ndarray:
    return np.asarray(
        jax.vmap(lambda row: model.forward(unflatten(row, model.shapes))[0][0])(jnp.asarray(rows, dtype=float))
    )


def _trailing(grown: OrderGrowth, name: str) -> tuple[int, ...]:
    return getattr(grown, name).shape[1:]


def plot_growth(dataset: "xarray.Dataset", spec: Growth) -> "Figure":
    """Singular values, errors and order of runs of the first draw, and the ends against the scale."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.0 * PANEL[0], 2.4 * PANEL[1]), layout="constrained")
    values, errors, orders, ends = figure.subplots(2, 2).ravel()
    scale = spec.scales[len(spec.scales) // 2]
    run = dataset.sel(form="general", scale=scale).isel(draw=0)
    times = np.asarray(dataset["time"])
    for mode, colour in zip(range(3), COLOURS, strict=False):
        series = run["singular_values"].to_numpy()[:, mode]
        values.semilogy(times, np.maximum(series, 1e-16), color=colour, label=f"σ{'₁₂₃'[mode]}")
    values.set_ylim(1e-12, 30)
    values.set_title(f"Hankel singular values, general A, ε = {scale:g}")
    values.legend(ncols=3)
    for name, label, colour in (
        ("loss", "training loss", COLOURS[0]),
        ("tail_error", "tail error", COLOURS[1]),
        ("balance", "‖B − Cᵀ‖ / ‖B + Cᵀ‖", COLOURS[2]),
    ):
        errors.semilogy(times, run[name], color=colour, label=label)
    errors.set_title(f"general A, ε = {scale:g}")
    errors.legend()
    for e, colour in zip(spec.scales, COLOURS, strict=False):
        one = dataset.sel(form="general", scale=e).isel(draw=0)
        orders.plot(times, one["order"], color=colour, drawstyle="steps-post", label=f"order, ε = {e:g}")
        orders.plot(times, one["entropy"], color=colour, linestyle=":", linewidth=1.0)
    orders.plot([], [], color="black", linestyle=":", linewidth=1.0, label="entropy dimension")
    orders.set_xlim(0, min(spec.horizon, 40))
    orders.set_ylim(0.8, 2.9)
    orders.set_title("state dimension, general A")
    orders.legend(loc="upper right", fontsize="x-small", ncols=2)
    for panel in (values, errors, orders):
        panel.set_xlabel("time (sum of squares)")
    _draw_ends(ends, dataset, spec)
    return figure


def _draw_ends(panel: "Axes", dataset: "xarray.Dataset", spec: Growth) -> None:
    last = dataset.isel(time=-1)
    for name, colour in (("loss", COLOURS[0]), ("tail_error", COLOURS[1]), ("balance", COLOURS[2])):
        for form, style in zip(FORMS, ("o-", "s--"), strict=True):
            middle = last[name].sel(form=form).median("draw")
            panel.loglog(spec.scales, middle, style, color=colour, label=f"{name.replace('_', ' ')}, {form}")
            low, high = (last[name].sel(form=form).reduce(f, "draw") for f in (np.min, np.max))
            panel.fill_between(spec.scales, low, high, color=colour, alpha=0.15, linewidth=0)
    panel.set_ylim(bottom=float(last["loss"].min()) * 1e-4)
    panel.set_xlabel("scale ε of the start")
    panel.set_title(f"at time {spec.horizon:g}, median and range of {spec.draws} draws")
    panel.legend(fontsize="xx-small", ncols=1)


def claims_growth(dataset: "xarray.Dataset", spec: Growth) -> list[Claim]:
    """Powers of the scale at the end, and the order on the way."""
    powers = {"loss": (4.0, 4.0), "tail_error": (2.0, 2.0), "balance": (1.0, 2.0)}
    words = {"loss": "loss", "tail_error": "tail error", "balance": "‖B − Cᵀ‖/‖B + Cᵀ‖"}
    claims = []
    for name, expected in powers.items():
        for form, power in zip(FORMS, expected, strict=True):
            found = dataset["exponent"].sel(end=name, form=form).to_numpy()
            claims.append(
                Claim.between(
                    f"Power of ε in the {words[name]} at the end, {form} A, median of {spec.draws} draws",
                    np.median(found),
                    power - 0.3,
                    power + 0.3,
                    f"from {found.min():.3f} to {found.max():.3f}",
                )
            )
    order = dataset["order"].to_numpy()
    early = int(np.searchsorted(spec.times, 0.1 * spec.horizon))
    small = [i for i, e in enumerate(spec.scales) if e <= 1e-3]
    claims += [
        Claim.at_most("Falls of the order along training, all runs", np.sum(np.diff(order, axis=-1) < 0), 0),
        Claim.between(
            "Order at a tenth of the time from ε ≤ 1e-3, largest of all runs", order[:, :, small, early].max(), 1, 1
        ),
        Claim.between("Order at the end, smallest of all runs", order[..., -1].min(), 2, 2),
        Claim.between("Order at the end, largest of all runs", order[..., -1].max(), 2, 2),
        Claim.at_most(
            "Third singular value of the Hankel matrix over the first, largest on the way of runs from ε ≤ 1e-3",
            _third(dataset, small),
            1e-4,
        ),
        Claim.at_most(
            "Training loss at the end, largest of all runs",
            dataset["loss"].to_numpy()[..., -1].max(),
            1e-8,
            f"tail error at most {dataset['tail_error'].to_numpy()[..., -1].max():.2g}",
        ),
    ]
    return claims


def _third(dataset: "xarray.Dataset", small: list[int]) -> float:
    values = dataset["singular_values"].to_numpy()[:, :, small]
    return float(np.max(values[..., 2] / values[..., 0]))


EXPERIMENTS = (
    Experiment(
        id="rnn/near-zero-exponents",
        source="Proposition 9, measured",
        shows="How fast small networks become balanced: ratios of sizes on the way out of zero against the scale.",
        presets={"quick": Exponents(states=8, draws=3), "paper": Exponents()},
        run=run_exponents,
        plot=plot_exponents,
        claims=claims_exponents,
        notes=(
            "θ = 1/4 is the printed time under the half sum of squares, θ = 1/2 that under the sum of squares. Beyond "
            "θ = 1/2 the transition matrix is driven, and its ratio rises again."
        ),
    ),
    Experiment(
        id="rnn/order-growth",
        source="Section 4.3, what comes of a start near zero",
        shows="From near zero the order of the response grows by one at a time; the errors at the end are powers of ε.",
        presets={"quick": Growth(states=6, draws=3), "paper": Growth()},
        run=run_growth,
        plot=plot_growth,
        claims=claims_growth,
        notes=(
            "Times and losses are those of the sum of squares. The order counts singular values of the Hankel matrix "
            "above 1e-2 of the largest."
        ),
    ),
)
