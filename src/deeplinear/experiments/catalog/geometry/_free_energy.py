"""Free energies of the singular values: the way to equal values, and states in which one value splits off."""

import dataclasses
import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_count, check_number, random
from deeplinear.experiments._base import Claim, Context, Experiment, seed_key
from deeplinear.geometry import (
    PowerEnergy,
    SpectralFreeEnergy,
    critical_power,
    equilibrium,
    free_energy,
    matrix_flow,
    split_equilibria,
    split_power,
)
from deeplinear.plots import COLOURS, PANEL, REST

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

BLUE, RED, GREEN = COLOURS[:3]

LIMIT = 1e-6
"""Of a limit that a flow reaches."""

RATE = 5e-3
"""Of a rate that is read off a flow."""


# --- Figure 4.5a: equal singular values -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Settling:
    """Singular values under the flow of (1/p) Σ s^p - S/β at infinite depth, from a Gaussian matrix."""

    size: int = 10
    power: float = 2.0
    beta: float = 1.0
    deviation: float = 0.0
    horizon: float = 6.0
    points: int = 241
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("Settling", "size", self.size, at_least=2)
        for name in ("power", "beta", "horizon"):
            check_number("Settling", name, getattr(self, name), above=0)
        check_number("Settling", "power", self.power, at_least=1)
        check_number("Settling", "deviation (0: one over the root of the size)", self.deviation, at_least=0)
        check_count("Settling", "points", self.points, at_least=20)


def run_settling(spec: Settling, context: Context) -> "xarray.Dataset":
    """Spectra over time, and the equilibrium with its rates."""
    import xarray

    deviation = spec.deviation or spec.size**-0.5
    start = deviation * np.asarray(random.normal(seed_key(spec.seed, "settling"), (spec.size, spec.size)))
    times = np.linspace(0.0, spec.horizon, spec.points)
    energy = free_energy(PowerEnergy(spec.power), spec.beta, math.inf)
    run = matrix_flow(energy, start, math.inf, times, rtol=1e-7, atol=1e-10, points=False)
    rest = equilibrium(PowerEnergy(spec.power), spec.size, spec.beta, math.inf)
    return xarray.Dataset(
        {
            "spectrum": (("time", "mode"), np.asarray(run.spectra), {"long_name": "singular value"}),
            "equilibrium": ((), float(rest.spectrum[0])),
            "rate": (("mode",), rest.rates),
        },
        coords={"time": times, "mode": np.arange(1, spec.size + 1)},
    )


def _spread(dataset: "xarray.Dataset") -> np.ndarray:
    """Largest ratio of two singular values, less one, over time."""
    values = dataset["spectrum"].to_numpy()
    return (values.max(axis=1) - values.min(axis=1)) / values.min(axis=1)


def _window(dataset: "xarray.Dataset") -> np.ndarray:
    """Times at which the spread is small enough to be linear and large enough to be exact."""
    spread = _spread(dataset)
    return (spread < 1e-3) & (spread > 1e-6)


def plot_settling(dataset: "xarray.Dataset", spec: Settling) -> "Figure":
    """Logarithms of the singular values, and how fast they meet."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * PANEL[0], 1.1 * PANEL[1]), layout="constrained")
    values, gaps = figure.subplots(1, 2)
    times, value = dataset["time"], float(dataset["equilibrium"])
    for k, curve in enumerate(dataset["spectrum"].to_numpy().T):
        values.plot(times, np.log10(curve), color=BLUE, linewidth=1.0, label="singular values" if k == 0 else None)
    values.axhline(
        math.log10(value),
        color=RED,
        linestyle="--",
        label=rf"$\log_{{10}}((d-1)/2\beta)^{{1/p}} = {math.log10(value):.4f}$",
    )
    values.set(
        xlabel="time $t$",
        ylabel=r"$\log_{10} s_i$",
        title=rf"$d = {spec.size}$, $p = {spec.power:g}$, $\beta = {spec.beta:g}$, infinite depth",
    )
    values.legend(loc="lower right")
    spread, inside = _spread(dataset), _window(dataset)
    shown = spread > 1e-8
    gaps.semilogy(times[shown], spread[shown], color=BLUE, label="$s_1/s_d - 1$")
    if inside.any():
        first = int(np.argmax(inside))
        t = times.to_numpy()[inside]
        line = spread[first] * np.exp(-float(dataset["rate"][0]) * (t - t[0]))
        gaps.semilogy(
            t, line, color=RED, linestyle="--", linewidth=2.0, label=rf"$e^{{-{float(dataset['rate'][0]):.4g} t}}$"
        )
    gaps.set(xlabel="time $t$", ylabel="relative spread", title="how fast they meet")
    gaps.legend(loc="upper right")
    return figure


def claims_settling(dataset: "xarray.Dataset", spec: Settling) -> list[Claim]:
    """Where the values end, and the rate at which they meet."""
    value, rate = float(dataset["equilibrium"]), float(dataset["rate"][0])
    end = dataset["spectrum"].to_numpy()[-1]
    inside = _window(dataset)
    claims = [
        Claim.at_most(
            "All singular values end at ((d-1)/(2β))^(1/p): largest difference",
            np.max(np.abs(end - value)),
            LIMIT,
            f"{value:.10g}, log10 {math.log10(value):.5f}; the theorem is printed without the factor 2.",
        )
    ]
    if np.sum(inside) >= 3:
        t, spread = dataset["time"].to_numpy()[inside], _spread(dataset)[inside]
        slope = -np.polyfit(t, np.log(spread), 1)[0]
        claims.append(
            Claim.at_most(
                f"They meet at the rate {rate:.6g}: relative difference of the measured one",
                abs(slope / rate - 1),
                RATE,
            )
        )
    else:
        claims.append(Claim.untold("They meet at the rate of the linearised flow", "within 0.005", "Too few points."))
    if (spec.size, spec.power, spec.beta) == (10, 2.0, 1.0):
        claims.append(Claim.between("log10 of the limit", math.log10(end.mean()), 0.326605, 0.326615))
        claims.append(Claim.at_most("The rate is 22/3: difference", abs(rate - 22 / 3), 1e-10))
    return claims


# --- States that split ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Splitting:
    """Equilibria of (1/p) Σ s^p - S/β over p, with flows that reach them."""

    sizes: tuple[int, ...] = (2, 5)
    powers: tuple[float, ...] = (0.35, 0.4, 0.45, 0.5, 0.6, 0.75, 0.9)
    beta: float = 1.0
    points: int = 401
    widest: float = 12.0
    seed: int = 0

    def __post_init__(self) -> None:
        for size in self.sizes:
            check_count("Splitting", "sizes", size, at_least=2)
        for power in self.powers:
            check_number("Splitting", "powers", power, above=0)
        check_number("Splitting", "beta", self.beta, above=0)
        check_number("Splitting", "widest", self.widest, above=0)
        check_count("Splitting", "points", self.points, at_least=11)


@jax.jit
def _slowest(power: jax.Array, spectra: jax.Array, beta: jax.Array) -> jax.Array:
    """Scaled Hessians of free energies, one for each power and spectrum."""

    def scaled(p: jax.Array, s: jax.Array) -> jax.Array:
        hessian = SpectralFreeEnergy(PowerEnergy(p), beta, math.inf).spectral_hessian(s)
        return s[:, None] * hessian * s

    return jax.vmap(scaled)(power, spectra)


def run_splitting(spec: Splitting, context: Context) -> "xarray.Dataset":
    """Branches with one value apart, given by its logarithm; and ends of flows from two starts for each power."""
    import xarray

    logs = np.linspace(-spec.widest, spec.widest, spec.points)
    branches, stable, evens, ends = [], [], [], []
    for done, size in enumerate(spec.sizes):
        power = np.asarray(split_power(logs, size, math.inf))
        most, one = _values(logs, power, size, spec.beta)
        spectra = np.concatenate([np.repeat(most[:, None], size - 1, axis=1), one[:, None]], axis=1)
        hessians = np.asarray(
            _slowest(
                jnp.asarray(power, dtype=float), jnp.asarray(spectra, dtype=float), jnp.asarray(spec.beta, dtype=float)
            )
        )
        branches.append([power, most, one])
        stable.append(np.linalg.eigvalsh(hessians)[:, 0] > 0)
        evens.append([float(equilibrium(PowerEnergy(p), size, spec.beta, math.inf).rates[0]) for p in spec.powers])
        ends.append(_flows(spec, size))
        context.progress((done + 1) / len(spec.sizes), f"{size} singular values")
    largest = max(spec.sizes)
    padded = [np.pad(e, ((0, 0), (0, 0), (0, largest - e.shape[-1])), constant_values=np.nan) for e in ends]
    return xarray.Dataset(
        {
            "branch_power": (("size", "log_ratio"), np.stack([b[0] for b in branches])),
            "branch_most": (("size", "log_ratio"), np.stack([b[1] for b in branches])),
            "branch_one": (("size", "log_ratio"), np.stack([b[2] for b in branches])),
            "branch_stable": (("size", "log_ratio"), np.stack(stable)),
            "even_rate": (("size", "power"), np.array(evens)),
            "threshold": (("size",), np.array([critical_power(n, math.inf) for n in spec.sizes])),
            "end": (("size", "power", "start", "mode"), np.stack(padded)),
        },
        coords={
            "size": list(spec.sizes),
            "log_ratio": logs,
            "power": list(spec.powers),
            "start": ["nearly equal", "one small"],
            "mode": np.arange(1, largest + 1),
        },
    )


def _values(logs: np.ndarray, power: np.ndarray, size: int, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """The value of the many and of the one, at infinite depth: (2β a^p, 2β b^p) = (d-1 + ℒ, (d-1)(1 - ℒ))."""
    safe = np.where(logs == 0, 1.0, logs)
    small = np.abs(safe) < 0.02
    function = np.where(small, safe / 3 - safe**3 / 45, 1 / np.tanh(safe) - 1 / safe)
    function = np.where(logs == 0, 0.0, function)
    return (
        ((size - 1 + function) / (2 * beta)) ** (1 / power),
        ((size - 1) * (1 - function) / (2 * beta)) ** (1 / power),
    )


def _flows(spec: Splitting, size: int) -> np.ndarray:
    """Ends of flows, (power, start, mode)."""
    noise = np.asarray(random.uniform(seed_key(spec.seed, "splitting", size), (size,), minval=-0.01, maxval=0.01))
    ends = []
    for power in spec.powers:
        value = float(equilibrium(PowerEnergy(power), size, spec.beta, math.inf).spectrum[0])
        low = np.append(np.zeros(size - 1), -2.0)
        starts = [np.diag(value * np.exp(np.sort(noise)[::-1])), np.diag(value * np.exp(np.sort(noise)[::-1] + low))]
        slow = [abs(e.rates[0]) for e in split_equilibria(power, size, spec.beta, math.inf)]
        slow.append(abs(equilibrium(PowerEnergy(power), size, spec.beta, math.inf).rates[0]))
        energy = free_energy(PowerEnergy(power), spec.beta, math.inf)
        run = matrix_flow(energy, np.stack(starts), math.inf, [30 / min(slow)], rtol=1e-7, atol=1e-10, points=False)
        ends.append(np.asarray(run.spectra)[:, -1])
    return np.stack(ends)


def plot_splitting(dataset: "xarray.Dataset", spec: Splitting) -> "Figure":
    """Singular values over the power: stable branches in full, unstable ones broken, ends of flows as dots."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.05 * PANEL[0] * len(spec.sizes), 1.3 * PANEL[1]), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(spec.sizes)))
    for axis, size in zip(axes, spec.sizes, strict=True):
        part = dataset.sel(size=size)
        threshold = float(part["threshold"])
        grid = np.linspace(0.9 * min(spec.powers), 1.0, 200)
        even = ((size - 1) / (2 * spec.beta)) ** (1 / grid)
        for keep, style in ((grid >= threshold, "-"), (grid <= threshold, ":")):
            axis.semilogy(grid[keep], even[keep], style, color=BLUE, label="all equal" if style == "-" else None)
        power, steady = part["branch_power"].to_numpy(), part["branch_stable"].to_numpy()
        shown = (power > grid[0]) & ((size > 2) | (part["log_ratio"].to_numpy() >= 0))  # two values: twice the same
        for name, colour, label in (
            ("branch_most", GREEN, "the larger one" if size == 2 else f"the other {size - 1}"),
            ("branch_one", RED, "the one apart"),
        ):
            curve = part[name].to_numpy()
            for keep, style in ((steady & shown, "-"), (~steady & shown, ":")):
                axis.semilogy(
                    np.where(keep, power, np.nan),
                    np.where(keep, curve, np.nan),
                    style,
                    color=colour,
                    label=label if style == "-" else None,
                )
        ends = part["end"].to_numpy()[..., :size]
        for k, _ in enumerate(part["start"].to_numpy()):
            for mode in range(size):
                axis.semilogy(
                    spec.powers,
                    ends[:, k, mode],
                    "o",
                    color=REST,
                    markersize=4,
                    markerfacecolor="none",
                    label="ends of flows" if k == mode == 0 else None,
                )
        axis.axvline(threshold, color=REST, linewidth=0.8)
        seen = ends[np.isfinite(ends)]
        axis.set(
            xlabel="power $p$ of the energy",
            ylabel=rf"singular values ($\beta = {spec.beta:g}$)",
            title=rf"$d = {size}$: unstable below $p_c = {threshold:.3f}$",
            xlim=(grid[0], 1.0),
            ylim=(0.5 * seen.min(), 3 * seen.max()),
        )
        axis.legend(loc="lower right", fontsize="small")
    return figure


def claims_splitting(dataset: "xarray.Dataset", spec: Splitting) -> list[Claim]:
    """The threshold, the ends of the flows, and recorded states."""
    claims = []
    known = {(2, 0.6): (0.6458, 0.0868), (5, 0.4): (*[8.6077] * 4, 0.2116), (5, 0.45): (*[6.1189] * 4, 0.9179)}
    for size in spec.sizes:
        part = dataset.sel(size=size)
        threshold, rates = float(part["threshold"]), part["even_rate"].to_numpy()
        wrong = sum((rate > 0) != (power > threshold) for rate, power in zip(rates, spec.powers, strict=True))
        claims.append(
            Claim.at_most(
                f"d = {size}: equal values are stable only above p = d/(3(d-1)): powers that differ", wrong, 0
            )
        )
        far = []
        for power in spec.powers:
            states = [e.spectrum for e in split_equilibria(power, size, spec.beta, math.inf) if e.stable]
            even = equilibrium(PowerEnergy(power), size, spec.beta, math.inf)
            states += [even.spectrum] if even.stable else []
            for end in part["end"].sel(power=power).to_numpy()[:, :size]:
                far.append(min(float(np.max(np.abs(end / state - 1))) for state in states))
        claims.append(
            Claim.at_most(f"d = {size}: every flow ends at a stable state: largest relative difference", max(far), 1e-3)
        )
        for (d, power), values in known.items():
            if d == size and power in spec.powers and spec.beta == 1:
                end = part["end"].sel(power=power, start="one small").to_numpy()[:size]
                claims.append(
                    Claim.at_most(
                        f"d = {size}, p = {power:g}: the flow ends at the recorded split state: largest difference",
                        np.max(np.abs(end - values)),
                        1e-3,
                    )
                )
    if 5 in spec.sizes and 0.45 in spec.powers:
        ends = dataset["end"].sel(size=5, power=0.45).to_numpy()[:, :5]
        claims.append(
            Claim.at_least(
                "d = 5, p = 0.45: both states attract: difference of the ends from two starts",
                np.max(np.abs(ends[0] - ends[1])),
                1.0,
            )
        )
    return claims


# --- Registered -------------------------------------------------------------------------------------------------------

EXPERIMENTS = (
    Experiment(
        id="geometry/fig4.5a",
        source="Figure 4.5(a)",
        shows="Singular values under the flow of half the squared norm less the entropy: all become equal.",
        presets={"quick": Settling(points=121), "paper": Settling()},
        run=run_settling,
        plot=plot_settling,
        claims=claims_settling,
        notes="The thesis does not say how the matrix is drawn; entries of variance 1/d are ours. Its theorem lacks "
        "the factor 2 that its figure has: the limit is ((d-1)/(2β))^(1/p).",
    ),
    Experiment(
        id="geometry/power-transition",
        source="after Theorem 4.3.7",
        shows="Equilibria of (1/p) Σ s^p less the entropy over the power p: equal values are unstable below "
        "d/(3(d-1)), and one of them splits off.",
        presets={"quick": Splitting(points=201, powers=(0.4, 0.45, 0.6, 0.9)), "paper": Splitting()},
        run=run_splitting,
        plot=plot_splitting,
        claims=claims_splitting,
        notes="Not in the thesis, which treats p above one. The branches are explicit: p as a function of the ratio.",
    ),
)
