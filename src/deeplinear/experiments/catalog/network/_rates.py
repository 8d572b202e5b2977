"""Loss curves under their exponential envelopes: starts with a rate for all times, and one near the origin without."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, Params, Trajectory, check_count, check_number, flatten, one_at_a_time, unflatten
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.experiments._base import Claim, Context, Experiment, seed_key
from deeplinear.landscape import cumulative_rate, diagonal_target, envelope_excess, product_rate, pyramid_rate
from deeplinear.models import Cumulative, DeepLinear, Problem, Pyramid, SquaredDistance
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import loss, weights

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

STARTS = ("pyramid", "cumulative", "near the origin")

LOWEST = 1e-24
"""Share of the first loss below which a loss is rounding."""

DRAWN = 1e-18
"""Share of the first loss down to which curves are drawn: there the errors of the integration begin to show."""

SLACK = 1e-9
"""Share by which a bound may exceed what it bounds."""

ROUNDING = 1e-13
"""Share of the largest eigenvalue of a kernel below which the smallest is rounding."""

END = (9.19, 6.6e-10)
"""Recorded rates at the end of the run from near the origin: tangent kernel and product bound."""


@dataclasses.dataclass(frozen=True)
class Rates:
    """Two structured starts of one network, each with its scale and horizon, and a Gaussian one of another network."""

    widths: tuple[int, ...] = (3, 4, 5, 4, 3)
    pivot: int = 3
    scales: tuple[float, float] = (0.4, 0.8)
    horizons: tuple[float, float] = (0.15, 2.2)
    sigma: tuple[float, ...] = (3.0, 2.0, 1.0)
    long_widths: tuple[int, ...] = (11, 6, 6, 6, 6, 4)
    long_sigma: tuple[float, ...] = (10.0, 8.0, 6.0, 4.0)
    long_scale: float = 0.05
    long_seed: int = 1
    horizon: float = 330.0
    points: int = 331
    rtol: float = 1e-10
    seed: int = 0

    def __post_init__(self) -> None:
        for name, widths, sigma in (
            ("widths", self.widths, self.sigma),
            ("long_widths", self.long_widths, self.long_sigma),
        ):
            for width in widths:
                check_count("Rates", f"each of {name}", width, at_least=1)
            if len(sigma) != min(widths[0], widths[-1]):
                raise ValueError(
                    f"Rates: there must be one singular value for each of {min(widths[0], widths[-1])} modes of "
                    f"{name}, but there are {len(sigma)}."
                )
        check_count("Rates", "pivot", self.pivot, at_least=1, at_most=len(self.widths) - 1)
        for name in ("scales", "horizons"):
            for value in getattr(self, name):
                check_number("Rates", f"each of {name}", value, above=0)
        for name in ("long_scale", "horizon"):
            check_number("Rates", name, getattr(self, name), above=0)
        check_number("Rates", "rtol", self.rtol, at_least=1e-14, at_most=1e-3)
        check_count("Rates", "points", self.points, at_least=3)
        check_count("Rates", "long_seed", self.long_seed)

    def problem(self, start: str) -> Problem:
        """The task of a start."""
        long = start == STARTS[2]
        widths, sigma = (self.long_widths, self.long_sigma) if long else (self.widths, self.sigma)
        return Problem(
            DeepLinear(widths), SquaredDistance(diagonal_target(jnp.asarray(sigma, dtype=float), widths[-1], widths[0]))
        )

    def layers(self, start: str) -> Params:
        """The layers of a start."""
        model = self.problem(start).model
        if start == STARTS[2]:
            rng = np.random.default_rng(self.long_seed)
            return tuple(
                jnp.asarray(self.long_scale * rng.standard_normal(shape), dtype=float) for shape in model.shapes
            )
        first, second = self.scales
        kinds = {"pyramid": Pyramid(self.pivot, scale=first), "cumulative": Cumulative(self.pivot, second)}
        return kinds[start](model, seed_key(self.seed, start))


@one_at_a_time
@jax.jit
def _along(problem: Problem, states: Float[Array, "points size"]) -> tuple[Array, Array, Array, Array]:
    """Actual rate −Ḟ/2F, extreme eigenvalues of the kernel and the product bound, at every point of a run."""

    def one(state: Float[Array, " size"]) -> tuple[Array, Array, Array, Array]:
        params = unflatten(state, problem.model.shapes)
        value, gradient = problem.value_and_gradient(params)
        network = problem.model
        assert isinstance(network, DeepLinear)
        values = jnp.linalg.eigvalsh(network.ntk(params))
        fall = jnp.sum(flatten(gradient) ** 2)
        actual = fall / jnp.where(value > 0, 2 * value, 1.0)
        return actual, values[0], values[-1], product_rate(params)

    return jax.lax.map(one, states)


def run_rates(spec: Rates, context: Context) -> "xarray.Dataset":
    """Loss and rates along the run of every start."""
    import xarray

    tasks = {start: (spec.problem(start), spec.layers(start)) for start in STARTS}
    lasting = {
        "pyramid": pyramid_rate(tasks["pyramid"][1], spec.pivot),
        "cumulative": cumulative_rate(tasks["cumulative"][1], spec.pivot),
        STARTS[2]: None,
    }
    known = np.array([np.nan if (rate := lasting[start]) is None else rate for start in STARTS])

    if not np.all(known[:2] > 0):
        raise ValueError(f"Rates: both structured starts must have a rate for all times, but have {known[:2]}.")
    horizons: dict[str, float] = dict(zip(STARTS, (*spec.horizons, spec.horizon), strict=True))

    def flow(start: str) -> Trajectory:
        problem, params = tasks[start]
        run = simulate(
            problem,
            params,
            GradientFlow(spec.rtol),
            times=np.linspace(0.0, horizons[start], spec.points),
            probes=(loss, weights),
            progress=context.watch,
        )
        return context.complete(run)

    # The first two share compiled code, so that one waits for the other.
    groups = context.each(lambda group: [flow(start) for start in group], (STARTS[2:], STARTS[:2]), ", ".join)
    runs = [*groups[1], *groups[0]]
    shape = (len(STARTS), spec.points)
    columns = {name: np.full(shape, np.nan) for name in ("time", "loss", "actual", "sharp", "largest", "product")}
    for row, (start, run) in enumerate(zip(STARTS, runs, strict=True)):
        count = len(run.times)
        found = _along(tasks[start][0], jnp.asarray(run["weights"], dtype=float))
        values = (run.times, run["loss"], *found)
        for name, value in zip(columns, values, strict=True):
            columns[name][row, :count] = np.asarray(value)[: spec.points]
    words = {
        "time": "time",
        "loss": "loss",
        "actual": "rate at which the loss falls, −Ḟ/2F",
        "sharp": "smallest eigenvalue of the tangent kernel",
        "largest": "largest eigenvalue of the tangent kernel",
        "product": "bound by products of singular values",
    }
    dims = ("start", "point")
    return xarray.Dataset(
        {name: (dims, values, {"long_name": words[name]}) for name, values in columns.items()}
        | {"lasting": (("start",), known, {"long_name": "rate for all times, from conserved quantities"})},
        coords={"start": list(STARTS)},
    )


def _run(dataset: "xarray.Dataset", start: str, lowest: float = LOWEST) -> dict[str, np.ndarray]:
    """What was recorded of a run, while its loss is above a share of the first."""
    one = dataset.sel(start=start)
    columns = {str(name): one[name].to_numpy() for name in one.data_vars if "point" in one[name].dims}
    seen = np.isfinite(columns["time"]) & (columns["loss"] > lowest * columns["loss"][0])
    return {name: values[seen] for name, values in columns.items()}


def _integrated(times: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """The envelope exp(−2∫k dt) of a rate that changes, by the trapezoidal rule."""
    steps = 0.5 * (rate[1:] + rate[:-1]) * np.diff(times)
    return np.exp(-2 * np.concatenate([[0.0], np.cumsum(steps)]))


def plot_rates(dataset: "xarray.Dataset", spec: Rates) -> "Figure":
    """Above the loss with its envelopes, below the rates; one column for each start."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.85 * PANEL[0] * 3, 2.3 * PANEL[1]), layout="constrained")
    axes: Any = figure.subplots(2, 3, sharex="col")
    lines: dict[str, Any] = {}
    for column, start in enumerate(STARTS):
        run, rate = _run(dataset, start, DRAWN), float(dataset["lasting"].sel(start=start))
        times, first = run["time"], run["loss"][0]
        top, bottom = axes[0, column], axes[1, column]
        sharp = np.where(run["sharp"] > ROUNDING * run["largest"], run["sharp"], np.nan)
        (lines["loss"],) = top.plot(times, run["loss"], color="black", linewidth=1.8)
        bottom.plot(times, run["actual"], color="black", linewidth=1.8)
        bounds = {
            "tangent kernel, along the run": (np.nan_to_num(sharp), sharp, COLOURS[0], "-"),
            "products, along the run": (run["product"], run["product"], COLOURS[1], "--"),
        }
        if np.isfinite(rate):
            always = np.full_like(times, rate)
            bounds["conserved quantities, for all times"] = (always, always, COLOURS[2], "-.")
        for name, (values, shown, colour, style) in bounds.items():
            (lines[name],) = top.plot(times, first * _integrated(times, values), color=colour, linestyle=style)
            bottom.plot(times, shown, color=colour, linestyle=style)
        top.set(yscale="log", title=start, ylim=(0.3 * run["loss"].min(), 5 * first))
        bottom.set(yscale="log", xlabel="time $t$")
        bottom.locator_params(axis="x", nbins=4)
        if np.isfinite(rate) and run["product"].max() < ROUNDING * rate:  # rounding of layers of low rank
            bottom.set(ylim=(0.3 * rate, 2 * run["actual"].max()))
            bottom.text(
                0.97, 0.04, "products: 0, to rounding", color=COLOURS[1], ha="right", transform=bottom.transAxes
            )
    axes[0, 0].set(ylabel="loss and envelopes")
    axes[1, 0].set(ylabel=r"rate $-\dot F/2F$ and bounds")
    figure.legend(
        list(lines.values()),
        ["the run itself", *list(lines)[1:]],
        loc="outside lower center",
        ncols=4,
        columnspacing=1.2,
    )
    return figure


def claims_rates(dataset: "xarray.Dataset", spec: Rates) -> list[Claim]:
    """The envelopes hold, in their order; near balance the product bound says nothing."""
    claims = []
    for start in STARTS[:2]:
        run, rate = _run(dataset, start), float(dataset["lasting"].sel(start=start))
        excess = envelope_excess(run["time"], run["loss"], rate)
        claims += [
            Claim.at_most(f"From the {start} start F(t) ≤ F(0)exp(−2kt): largest ratio", excess, 1 + SLACK),
            Claim.at_most(
                f"… as k bounds the smallest eigenvalue of the tangent kernel all along: largest ratio, {start}",
                np.max(rate / run["sharp"]),
                1 + SLACK,
            ),
        ]
    runs = [_run(dataset, start) for start in STARTS]
    claims += [
        Claim.at_most(
            "The loss never falls more slowly than the kernel allows, Ḟ ≤ −2λF: largest λ over −Ḟ/2F",
            max(float(np.max((run["sharp"] - ROUNDING * run["largest"]) / run["actual"])) for run in runs),
            1 + SLACK,
        ),
        Claim.at_most(
            "The product bound never exceeds the smallest eigenvalue of the kernel: largest ratio",
            max(
                float(np.max(run["product"] / (np.maximum(run["sharp"], 0) + ROUNDING * run["largest"])))
                for run in runs
            ),
            1 + SLACK,
            general=True,
        ),
    ]
    long = dataset.sel(start=STARTS[2])
    sharp, product = (float(long[name].dropna("point")[-1]) for name in ("sharp", "product"))
    same = Rates()
    recorded = ("long_widths", "long_sigma", "long_scale", "long_seed", "horizon")
    if all(getattr(spec, name) == getattr(same, name) for name in recorded):
        claims += [
            Claim.between(
                "From near the origin the kernel ends with the smallest eigenvalue",
                sharp,
                0.995 * END[0],
                1.005 * END[0],
            ),
            Claim.between("… and the product bound with", product, 0.99 * END[1], 1.01 * END[1]),
        ]
    claims.append(Claim.at_most("… which says nothing: product bound over that eigenvalue", product / sharp, 1e-6))
    return claims


NOTES = (
    "Widths, singular values and starts are ours; the run from near the origin is that of the near-origin trajectory. "
    "The bounds are printed without the factor 2 in the exponent, with which they hold and are attained; in the second "
    "the index of the first product is corrected. Envelopes of rates that change along the run are drawn with their "
    "integrals by the trapezoidal rule; the claims compare rates point by point instead."
)

EXPERIMENTS = (
    Experiment(
        id="network/rates",
        source="Section 4.7, Propositions 26 to 28",
        shows=(
            "Loss under its exponential envelopes: the tangent kernel along the run, products of singular values, and "
            "the bounds from conserved quantities that hold for all times."
        ),
        presets={"quick": Rates(points=111, rtol=1e-8), "paper": Rates()},
        run=run_rates,
        plot=plot_rates,
        claims=claims_rates,
        notes=NOTES,
    ),
)
