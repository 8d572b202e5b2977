"""Completion of a unit diagonal from small starts: the hyperbola of rank one, and which singular values move."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.geometry._low_rank_runs import (
    OUTCOMES,
    check_spec,
    effective_ranks,
    follow,
    gaussian,
    outcomes,
    panels,
    same_share,
    told,
    unit_diagonal,
)
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

BLUE, RED, GREEN, *_, BLACK = COLOURS

RECORDED = 200
"""Runs that the recorded shares were taken over."""


# --- Figure 4.1a: the hyperbola ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Hyperbola:
    r"""Completions of a 2 x 2 diagonal at infinite depth.

    Attributes:
        seeds: Number of starts.
        deviation: Standard deviation of their entries.
        factor: $c$ of the energy $\tfrac c2\sum_i (x_{ii} - 1)^2$.
        horizon: Last time.
        gradient: Norm of the gradient to stop at.
        rtol: Relative tolerance; ten times below the gradient, or noise of the integrator would hide it.
        seed: Of the starts.
    """

    seeds: int = 200
    deviation: float = 0.01
    factor: float = 2.0
    horizon: float = 1e5
    gradient: float = 1e-6
    rtol: float = 1e-7
    seed: int = 0

    def __post_init__(self) -> None:
        check_spec(self, counts=("seeds",), numbers=("deviation", "factor", "horizon", "gradient", "rtol"))


def run_hyperbola(spec: Hyperbola, context: Context) -> "xarray.Dataset":
    """Where each start ends, and when."""
    import xarray

    start = gaussian(spec.seed, spec.seeds, 2, spec.deviation)
    energy = unit_diagonal(2, spec.factor)
    flow, _ = follow(context, energy, start, [0.0, spec.horizon], rtol=spec.rtol, gradient=spec.gradient)
    end = np.asarray(flow.end)
    return xarray.Dataset(
        {
            "start": (("run", "row", "column"), start),
            "end": (("run", "row", "column"), end, {"long_name": "matrix at the end"}),
            "effective_rank": ("run", effective_ranks(np.linalg.svd(end, compute_uv=False))),
            "time": ("run", np.asarray(flow.end_times), {"long_name": "time at which the run ended"}),
            "converged": ("run", np.array([status == "converged" for status in flow.status])),
            "sign": ("run", np.sign(np.linalg.det(start)), {"long_name": "sign of the determinant at the start"}),
            "ended": ("outcome", outcomes(flow.status), {"long_name": "number of runs"}),
        },
        coords={"outcome": list(OUTCOMES)},
    )


def plot_hyperbola(dataset: "xarray.Dataset", spec: Hyperbola) -> "Figure":
    """Off-diagonal entries at the end, by the sign of the determinant, with the hyperbola."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.3 * PANEL[0], 1.6 * PANEL[1]), layout="constrained")
    axis = figure.subplots()
    end = dataset["end"].to_numpy()
    done = dataset["converged"].to_numpy()
    reach = 1.15 * max(1.5, float(np.max(np.abs(end[done][:, [0, 1], [1, 0]]), initial=0.0)))
    x = np.geomspace(1 / reach, reach, 200)
    for sign in (-1, 1):
        axis.plot(sign * x, sign / x, color=BLACK, linewidth=0.9, label="$x_{21} = 1/x_{12}$" if sign > 0 else None)
    for sign, colour, marker in ((1, BLUE, "o"), (-1, RED, "^")):
        part = end[done & (dataset["sign"].to_numpy() == sign)]
        label = rf"$\det X {'>' if sign > 0 else '<'} 0$, {len(part)} runs"
        axis.plot(part[:, 0, 1], part[:, 1, 0], marker, color=colour, markersize=3.5, alpha=0.6, label=label)
    rest = end[~done]
    if len(rest):
        axis.plot(rest[:, 0, 1], rest[:, 1, 0], "x", color=GREEN, label=f"not converged, {len(rest)} runs")
    axis.axhline(0, color="#CCCCCC", linewidth=0.6, zorder=0)
    axis.axvline(0, color="#CCCCCC", linewidth=0.6, zorder=0)
    axis.set(xlim=(-reach, reach), ylim=(-reach, reach), xlabel="$x_{12}$", ylabel="$x_{21}$")
    axis.set_aspect("equal")
    axis.legend(loc="upper left")
    return figure


def claims_hyperbola(dataset: "xarray.Dataset", spec: Hyperbola) -> list[Claim]:
    """Concentration, sides, convergence."""
    end, done = dataset["end"].to_numpy(), dataset["converged"].to_numpy()
    time, sign = dataset["time"].to_numpy(), dataset["sign"].to_numpy()
    product, determinant = end[:, 0, 1] * end[:, 1, 0], np.linalg.det(end)
    away = np.abs(product - 1)
    claims = [
        Claim.at_most(
            "Solutions concentrate around the hyperbola: median of |x₁₂x₂₁ - 1|", np.median(away[done]), 0.03
        ),
        Claim.at_most(
            "x₁₂x₂₁ is 1 - det X of the solutions: largest difference, over the norm of the gradient there",
            np.max(np.abs(product - 1 + determinant)[done]) / spec.gradient,
            2,
        ),
        Claim.at_most(
            "The sign of the determinant is kept: runs in which it is not", np.sum(np.sign(determinant) != sign), 0
        ),
        Claim.at_most(
            "and tells the side of the hyperbola: solutions on the other side", np.sum(np.sign(1 - product) != sign), 0
        ),
        Claim.at_least(
            "Both branches are reached: solutions on the less frequent one",
            min(np.sum(end[done, 0, 1] > 0), np.sum(end[done, 0, 1] < 0)),
            1,
        ),
    ]
    same = (spec.deviation, spec.factor) == (0.01, 2.0)
    late = spec.horizon >= 1e4
    listed = [
        ("Converged by time 49", done & (time <= 49), 0.1),
        ("Converged by time 82", done & (time <= 82), 0.5),
        ("Converged by time 100", done & (time <= 100), 0.67),
        ("Converged by time 349", done & (time <= 349), 0.9),
        ("Converged by time 1000", done & (time <= 1e3), 0.955),
        ("Converged by time 10⁴", done & (time <= 1e4), 0.99),
        ("|x₁₂x₂₁ - 1| below 0.0081", away < 0.0081, 0.5),
        ("|x₁₂x₂₁ - 1| below 0.033", away < 0.033, 0.9),
        ("Effective rank below 1.0145", dataset["effective_rank"].to_numpy() < 1.0145, 0.5),
        ("Positive determinant", sign > 0, 0.475),
    ]
    if same:
        share = float(np.mean(done & (time <= 100)))
        claims.append(Claim.at_least("Share of runs that have converged by time 100", share, 0.6))
        claims += [
            told(
                lambda text=text, hits=hits, recorded=recorded: same_share(text, hits, recorded, count=RECORDED),
                late,
                text,
                f"{recorded:g} of the runs",
                "The horizon is too short.",
            )
            for text, hits, recorded in listed
        ]
        claims.append(
            Claim.at_most("Off-diagonal entries stay moderate: largest", np.max(np.abs(end[done])), 3, "Recorded: 1.7.")
        )
    return claims


# --- Figure 4.1b: which singular values move --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Modes:
    r"""Singular values over time from small starts at infinite depth.

    Attributes:
        size: Dimension.
        seeds: Number of starts; the first is drawn.
        deviation: Standard deviation of their entries.
        factor: $c$ of the energy.
        horizon: Last time.
        points: Output times.
        rtol: Relative tolerance.
        seed: Of the starts.
    """

    size: int = 5
    seeds: int = 6
    deviation: float = 0.001
    factor: float = 2.0
    horizon: float = 600.0
    points: int = 301
    rtol: float = 1e-7
    seed: int = 0

    def __post_init__(self) -> None:
        check_spec(self, counts=("size", "seeds", "points"), numbers=("deviation", "factor", "horizon", "rtol"))


def run_modes(spec: Modes, context: Context) -> "xarray.Dataset":
    """Singular values of every start at evenly spaced times; runs are stopped where they have converged."""
    import xarray

    times = np.linspace(0, spec.horizon, spec.points)
    energy, start = unit_diagonal(spec.size, spec.factor), gaussian(spec.seed, spec.seeds, spec.size, spec.deviation)
    flow, _ = follow(context, energy, start, times, rtol=spec.rtol, gradient=100 * spec.rtol * spec.size)
    spectra = np.asarray(flow.spectra)
    risen = spectra[:, :, 0] >= spec.size / 2
    jump = np.where(risen.any(axis=1), times[np.argmax(risen, axis=1)], np.inf)
    return xarray.Dataset(
        {
            "singular_value": (("run", "time", "mode"), spectra),
            "jump": ("run", jump, {"long_name": "first output time at which the largest exceeds half of d"}),
            "converged": ("run", np.array([status == "converged" for status in flow.status])),
            "ended": ("outcome", outcomes(flow.status), {"long_name": "number of runs"}),
        },
        coords={"time": times, "mode": np.arange(1, spec.size + 1), "outcome": list(OUTCOMES)},
    )


def plot_modes(dataset: "xarray.Dataset", spec: Modes) -> "Figure":
    """The singular values of the first start."""
    figure, (axis,) = panels(1, 1, height=1.2)
    values = dataset["singular_value"][0]
    for mode in range(spec.size):
        axis.semilogy(dataset["time"], values[:, mode], color=COLOURS[mode % len(COLOURS)], label=f"$s_{mode + 1}$")
    axis.axhline(spec.size, color="#888888", linewidth=0.8, linestyle="dashed")
    axis.annotate("$d$", (0, spec.size), xytext=(2, 2), textcoords="offset points", color="#555555")
    axis.set(xlabel="time", ylabel="singular values")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right center")
    return figure


def claims_modes(dataset: "xarray.Dataset", spec: Modes) -> list[Claim]:
    """The largest goes to the dimension or above it, the others hardly move."""
    values, done = dataset["singular_value"].to_numpy(), dataset["converged"].to_numpy()
    count = int(done.sum())
    if not count:
        return [Claim.untold("The largest singular value moves up to d", "5 to 5.5", "No run converged in this time.")]
    start, end = values[done, 0], values[done, -1]
    change = end[:, 1:] / start[:, 1:]
    jump = dataset["jump"].to_numpy()[done]
    share = spec.size
    return [
        Claim.at_least(
            "The largest singular value ends at the dimension or above it: least s₁/d", np.min(end[:, 0]) / share, 1
        ),
        Claim.at_most("and not far above it: largest s₁/d", np.max(end[:, 0]) / share, 1.1),
        Claim.at_most("The others stay small: largest", np.max(end[:, 1:]), 20 * spec.deviation),
        Claim.at_least("They are lazy: least ratio to their starts", np.min(change), 0.25),
        Claim.at_most("and largest", np.max(change), 5, "Recorded: 0.5 to 2.5 over six starts."),
        Claim.between(
            "The jump comes late: median time, times c and the deviation",
            np.median(jump) * spec.factor * spec.deviation,
            0.2,
            1.5,
            "Recorded: 180 to 560 at c = 2 and deviation 0.001.",
        ),
        Claim.at_most(
            "Share of runs that have not jumped by the last time",
            1 - count / len(done),
            0.5,
            "Their waiting time is longer; they are left out above.",
        ),
    ]


# --- Registered -------------------------------------------------------------------------------------------------------

EXPERIMENTS = (
    Experiment(
        id="geometry/fig4.1a",
        source="Figure 4.1(a)",
        shows="Off-diagonal entries that completions of a 2 x 2 unit diagonal reach from small starts at infinite "
        "depth: on both sides of the hyperbola of rank one, by the sign of the determinant.",
        presets={"quick": Hyperbola(seeds=40, horizon=1e4), "paper": Hyperbola()},
        run=run_hyperbola,
        plot=plot_hyperbola,
        claims=claims_hyperbola,
        notes="The number of starts, 200, and when a run is stopped are ours: where the norm of the gradient is 10⁻⁶, "
        "or at time 10⁵, because waiting times have a long tail. The determinant keeps its sign, so no solution lies "
        "on the hyperbola itself.",
    ),
    Experiment(
        id="geometry/fig4.1b",
        source="Figure 4.1(b)",
        shows="Singular values from a small start in five dimensions at infinite depth: the largest jumps up to the "
        "dimension, the others hardly move.",
        presets={"quick": Modes(points=121), "paper": Modes()},
        run=run_modes,
        plot=plot_modes,
        claims=claims_modes,
        notes="The last time, 600, is ours; the factor c = 2 is that of eq. 4.21. Six starts are run and the first is "
        "drawn; those whose waiting time is longer are left out of the claims and counted.",
    ),
)
