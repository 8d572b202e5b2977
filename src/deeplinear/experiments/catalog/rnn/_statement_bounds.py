"""What the first entries of a balanced network leave open about later ones: exactly, and up to a tolerance."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import check_count, check_number, near_name
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.plots import COLOURS, PANEL, REST
from deeplinear.recurrent import certificate, extrapolation_interval, upper_principal_moment

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLUSTER = (0.6, 0.7125, 0.825, 0.9375, 1.05)
"""Eigenvalues of the paper's balanced teacher."""

DECIDED = 1e-8
"""Width of an interval that is none."""

SHOWN = 1e-16
"""Least width in pictures."""


def _moments(atoms: tuple[float, ...], weights: tuple[float, ...], count: int) -> np.ndarray:
    return np.array(weights) @ np.array(atoms)[:, None] ** np.arange(count)


# --- Intervals over the length ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Ambiguity:
    """Intervals of possible entries given the first k, over k; and, for a clustered spectrum, over a tolerance."""

    atoms: tuple[float, ...] = (-0.5, 0.3, 0.9)
    weights: tuple[float, ...] = (0.3, 0.3, 0.4)
    low: float = -1.0
    high: float = 1.0
    indices: tuple[int, ...] = (8, 20)
    tolerances: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
    cluster_indices: tuple[int, ...] = (20, 49)
    points: int = 801

    def __post_init__(self) -> None:
        n = len(self.atoms)
        if len(self.weights) != n:
            raise ValueError(f"Ambiguity: weights must be {n} numbers, one for each atom, but are {len(self.weights)}.")
        for weight in self.weights:
            check_number("Ambiguity", "weights", weight, above=0)
        check_number("Ambiguity", "high", self.high, above=self.low)
        for index in self.indices:
            check_count("Ambiguity", "indices", index, at_least=2 * n + 2)
        for index in self.cluster_indices:
            check_count("Ambiguity", "cluster_indices", index, at_least=2 * len(CLUSTER) + 1)
        for tolerance in self.tolerances:
            check_number("Ambiguity", "tolerances", tolerance, above=0)
        check_count("Ambiguity", "points", self.points, at_least=101)


def run_ambiguity(spec: Ambiguity, context: Context) -> "xarray.Dataset":
    """Ends of the intervals with the tolerances they hold for, and the largest moment in closed form."""
    import xarray

    n = len(spec.atoms)
    lengths = np.arange(1, 2 * n + 3)
    w = _moments(spec.atoms, spec.weights, max(spec.indices) + 1)
    spread = []
    for done, length in enumerate(lengths):
        for index in spec.indices:
            found = extrapolation_interval(
                w[:length], index, low=spec.low, high=spec.high, atoms=spec.atoms, points=spec.points
            )
            spread.append([float(found.lower), float(found.upper), found.tolerance])
        context.progress((done + 1) / (len(lengths) + len(spec.tolerances) + 1), f"{length} entries")
    table = np.array(spread).reshape(len(lengths), len(spec.indices), 3)
    fine = extrapolation_interval(
        w[: 2 * n], 2 * n, low=spec.low, high=spec.high, atoms=spec.atoms, points=5 * spec.points
    )
    known, high = 2 * len(CLUSTER) + 1, CLUSTER[-1]
    v = _moments(CLUSTER, (1 / len(CLUSTER),) * len(CLUSTER), max(spec.cluster_indices) + 1)
    cluster = []
    for done, tolerance in enumerate((0.0, *spec.tolerances)):
        for index in spec.cluster_indices:
            found = extrapolation_interval(
                v[:known], index, low=-high, high=high, atoms=CLUSTER, tolerance=tolerance, points=spec.points
            )
            worst = max(float(found.upper) - v[index], v[index] - float(found.lower))
            cluster.append([worst, found.tolerance])
        fraction = (len(lengths) + done + 1) / (len(lengths) + len(spec.tolerances) + 1)
        context.progress(fraction, f"tolerance {tolerance:g}")
    far = np.array(cluster).reshape(1 + len(spec.tolerances), len(spec.cluster_indices), 2)
    return xarray.Dataset(
        {
            "lower": (("length", "index"), table[..., 0]),
            "upper": (("length", "index"), table[..., 1]),
            "used_tolerance": (("length", "index"), table[..., 2]),
            "value": (("index",), w[list(spec.indices)]),
            "upper_at_twice": ((), float(fine.upper)),
            "principal": (
                (),
                float(upper_principal_moment(spec.atoms, spec.weights, low=spec.low, high=spec.high)),
            ),
            "cluster_error": (("tolerance", "cluster_index"), far[1:, :, 0]),
            "cluster_tolerance": (("tolerance", "cluster_index"), far[1:, :, 1]),
            "cluster_exact_error": (("cluster_index",), far[0, :, 0]),
            "cluster_exact_tolerance": (("cluster_index",), far[0, :, 1]),
        },
        coords={
            "length": lengths,
            "index": list(spec.indices),
            "tolerance": list(spec.tolerances),
            "cluster_index": list(spec.cluster_indices),
        },
    )


def plot_ambiguity(dataset: "xarray.Dataset", spec: Ambiguity) -> "Figure":
    """Intervals and their widths over the length; worst errors over the tolerance for the clustered spectrum."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.9 * PANEL[0], 1.35 * PANEL[1]), layout="constrained")
    bars, widths, cluster = figure.subplots(1, 3)
    n, lengths = len(spec.atoms), dataset["length"].to_numpy()
    shift = 0.16 * (np.arange(len(spec.indices)) - (len(spec.indices) - 1) / 2)
    for place, index in enumerate(spec.indices):
        part, colour = dataset.sel(index=index), COLOURS[place % len(COLOURS)]
        low, high = part["lower"].to_numpy(), part["upper"].to_numpy()
        bars.vlines(lengths + shift[place], low, high, color=colour, linewidth=4.0, label=f"$h_{{{index}}}$")
        bars.plot(lengths + shift[place], np.full(len(lengths), float(part["value"])), "_", color="black", zorder=4)
        widths.semilogy(lengths, np.maximum(high - low, SHOWN), "o-", color=colour, label=f"$h_{{{index}}}$")
    bars.plot([], [], "_", color="black", label="teacher")
    for axis in (bars, widths):
        axis.axvline(2 * n + 0.5, color=REST, linestyle="--", linewidth=1.0, zorder=1)
        axis.set_xlabel("known entries $k$")
        axis.legend(loc="upper right" if axis is bars else "lower left", frameon=True, framealpha=1.0, edgecolor="none")
    bars.set(ylabel="possible values", title=f"{n} atoms in [{spec.low:g}, {spec.high:g}]")
    widths.set(ylabel="width of the interval", title=f"nothing left open from $2n + 1 = {2 * n + 1}$ on")
    widths.axhline(DECIDED, color=REST, linestyle=":", linewidth=1.0)
    for place, index in enumerate(spec.cluster_indices):
        error = dataset["cluster_error"].sel(cluster_index=index)
        colour = COLOURS[(place + 2) % len(COLOURS)]
        cluster.loglog(spec.tolerances, error, "o-", color=colour, label=f"$h_{{{index}}}$")
    cluster.set(
        xlabel="tolerance on each of the 11 known entries",
        ylabel="largest error",
        title=f"5 atoms in [{CLUSTER[0]:g}, {CLUSTER[-1]:g}]",
    )
    cluster.legend()
    return figure


def claims_ambiguity(dataset: "xarray.Dataset", spec: Ambiguity) -> list[Claim]:
    """Where nothing is left open, how much one entry earlier, and the cluster."""
    n = len(spec.atoms)
    width = dataset["upper"] - dataset["lower"]
    used = float(dataset["used_tolerance"].sel(length=2 * n + 1).max())
    inside = np.maximum(dataset["lower"] - dataset["value"], dataset["value"] - dataset["upper"])
    slack = 1e-7  # intervals with a tolerance of their own are wider than exact ones
    claims = [
        Claim.at_most(
            "With 2n + 1 entries nothing is left open: largest width",
            width.sel(length=2 * n + 1).max(),
            DECIDED,
            f"Tolerance on the moments that the solver needed: {used:g}.",
        ),
        Claim.at_least("With 2n entries something is: least width", width.sel(length=2 * n).min(), 1e-2),
        Claim.at_most("The teacher is in every interval: how far outside at most", inside.max(), slack),
        Claim.at_most(
            "More entries leave less open: largest growth of a width", float(width.diff("length").max()), slack
        ),
        Claim.at_most(
            "The largest h_2n given 2n entries is the closed form: difference",
            abs(float(dataset["upper_at_twice"]) - float(dataset["principal"])),
            1e-6,
            f"From a grid of {5 * spec.points} points on.",
        ),
        Claim.at_most(
            "Clustered spectrum, exact moments: tolerance that the solver fell back to",
            dataset["cluster_exact_tolerance"].max(),
            2e-6,
            f"The largest errors for it are {np.array2string(dataset['cluster_exact_error'].to_numpy(), precision=3)}.",
        ),
    ]
    errors = dataset["cluster_error"]
    if len(spec.tolerances) > 1:
        falls = np.diff(errors.sortby("tolerance", ascending=False).to_numpy(), axis=0)
        claims.append(
            Claim.at_most("Clustered spectrum: smaller tolerances leave smaller errors: largest growth", falls.max(), 0)
        )
    told = {1e-2: 2.0, 1e-3: 1.5, 1e-4: 1.07, 1e-5: 0.60, 1e-6: 0.41}
    common = [t for t in spec.tolerances if t in told]
    if 49 in spec.cluster_indices and common:
        found = errors.sel(cluster_index=49, tolerance=common).to_numpy()
        expected = np.array([told[t] for t in common])
        claims.append(
            Claim.at_most(
                "Clustered spectrum, h_49: largest relative difference from 2.0, 1.5, 1.07, 0.60, 0.41",
                float(np.abs(found / expected - 1).max()),
                0.03,
                "Tolerances 1e-2 to 1e-6 on the 11 known entries: the plateau of the tail errors of trained students.",
            )
        )
    return claims


# --- Constants over the index -----------------------------------------------------------------------------------------

SPECTRA: dict[str, tuple[tuple[float, ...], float, float]] = {
    "pair": ((0.9, -0.5), 1.0, 1e-6),
    "triple": ((0.95, 0.6, -0.4), 1.0, 1e-7),
    "cluster": (CLUSTER, 1.05, 1e-6),
}
"""Eigenvalues, radius, and the tolerance at which worst cases are taken."""

TABLE: dict[tuple[str, int], tuple[float, float | None, float | None]] = {
    ("pair", 5): (4.26, 9.17, 3.3),
    ("pair", 20): (40.5, 7.4e3, 75.7),
    ("pair", 49): (65.6, 3.3e5, 131.0),
    ("triple", 20): (583.0, 1.1e5, 1.0e3),
    ("triple", 49): (2.4e3, 4.1e7, 4.5e3),
    ("cluster", 11): (2.8e3, 3.1e3, None),
    ("cluster", 20): (8.2e6, 5.2e7, 5.7e3),
    ("cluster", 49): (1.4e10, 9.2e12, 4.1e5),
}
"""Sharp and binomial constants and worst cases to two digits."""


@dataclasses.dataclass(frozen=True)
class Constants:
    """Constants K_j of the certificate, sharp and binomial, beside worst cases by linear programming."""

    spectra: tuple[str, ...] = ("pair", "triple", "cluster")
    indices: tuple[int, ...] = (5, 8, 11, 14, 20, 30, 40, 49)
    horizon: int = 50
    error: float = 0.1
    points: int = 801

    def __post_init__(self) -> None:
        for name in self.spectra:
            if name not in SPECTRA:
                raise ValueError(f"Constants: spectra names '{name}'. {near_name(name, SPECTRA)}")
        check_count("Constants", "horizon", self.horizon, at_least=2 * len(CLUSTER) + 2)
        for index in self.indices:
            check_count("Constants", "indices", index, at_least=1, at_most=self.horizon - 1)
        check_number("Constants", "error", self.error, above=0)
        check_count("Constants", "points", self.points, at_least=101)


def run_constants(spec: Constants, context: Context) -> "xarray.Dataset":
    """Constants for every index beyond the known ones, worst cases at some, and sufficient losses over horizons."""
    import xarray

    index = np.arange(spec.horizon)
    sharp, binomial, losses, worst = [], [], [], []
    for done, name in enumerate(spec.spectra):
        atoms, radius, tolerance = SPECTRA[name]
        n = len(atoms)
        known = 2 * n + 1
        found = certificate(atoms, known, spec.horizon, radius=radius)
        beyond = index >= known
        sharp.append(np.where(beyond, found.constants, np.nan))
        binomial.append(np.where(beyond, found.binomial_constants, np.nan))
        losses.append((spec.error / np.maximum.accumulate(np.asarray(found.constants))) ** 2)
        w = _moments(atoms, (1 / n,) * n, spec.horizon)
        row = []
        for j in spec.indices:
            if j < known:
                row.append(math.nan)
                continue
            interval = extrapolation_interval(
                w[:known], j, low=-radius, high=radius, atoms=atoms, tolerance=tolerance, points=spec.points
            )
            far = max(float(interval.upper) - w[j], w[j] - float(interval.lower))
            row.append(far / interval.tolerance)
        worst.append(row)
        context.progress((done + 1) / len(spec.spectra), name)
    orders = [len(SPECTRA[name][0]) for name in spec.spectra]
    return xarray.Dataset(
        {
            "sharp": (("spectrum", "index"), np.array(sharp), {"long_name": "K_j"}),
            "binomial": (("spectrum", "index"), np.array(binomial)),
            "worst": (("spectrum", "chosen"), np.array(worst), {"long_name": "error per tolerance on each entry"}),
            "box": (("spectrum",), np.sqrt([2 * n + 1.0 for n in orders]), {"long_name": "norm of the box"}),
            "sufficient": (("spectrum", "horizon"), np.array(losses), {"long_name": "sum of squared residuals"}),
        },
        coords={
            "spectrum": list(spec.spectra),
            "index": index,
            "chosen": list(spec.indices),
            "horizon": index + 1,
        },
    )


def _draw_constants(axis: "Axes", part: "xarray.Dataset", legend: bool) -> None:
    box, index = float(part["box"]), part["index"]
    axis.semilogy(index, box * part["sharp"], color=COLOURS[0], label=r"$\sqrt{2n+1}\,K_j$, sharp")
    axis.semilogy(index, box * part["binomial"], "--", color=COLOURS[1], label=r"$\sqrt{2n+1}\,K_j$, binomial")
    axis.semilogy(part["chosen"], part["worst"], "o", color=COLOURS[2], label="worst case by linear programme")
    axis.set(xlabel="index $j$", ylabel="error per tolerance on each entry")
    if legend:
        axis.legend()


def plot_constants(dataset: "xarray.Dataset", spec: Constants) -> "Figure":
    """Bounds and worst cases for each spectrum, and the losses that suffice for an error."""
    from matplotlib.figure import Figure

    count = len(spec.spectra) + 1
    columns = min(2, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(1.15 * PANEL[0] * columns, 1.2 * PANEL[1] * rows), layout="constrained")
    axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for spare in axes[count:]:
        spare.remove()
    for axis, name in zip(axes, spec.spectra, strict=False):
        atoms, _, tolerance = SPECTRA[name]
        _draw_constants(axis, dataset.sel(spectrum=name), name == spec.spectra[0])
        listed = (
            ", ".join(f"{a:g}" for a in atoms) if len(atoms) < 4 else f"{len(atoms)} from {atoms[0]} to {atoms[-1]}"
        )
        axis.set_title(rf"$\lambda$: {listed}; tolerance {tolerance:g}")
    last = axes[count - 1]
    for place, name in enumerate(spec.spectra):
        last.semilogy(dataset["horizon"], dataset["sufficient"].sel(spectrum=name), color=COLOURS[place], label=name)
    last.set(
        xlabel="horizon $q$",
        ylabel=r"$\delta(\varepsilon, q)$",
        title=rf"sums of squares that suffice for $\varepsilon = {spec.error:g}$",
    )
    last.legend()
    return figure


def claims_constants(dataset: "xarray.Dataset", spec: Constants) -> list[Claim]:
    """Worst cases are within the bounds, and the tabulated numbers."""
    claims = []
    for name in spec.spectra:
        part = dataset.sel(spectrum=name)
        chosen = [j for j in spec.indices if np.isfinite(part["sharp"].sel(index=j))]
        if chosen:
            bound = float(part["box"]) * part["sharp"].sel(index=chosen).to_numpy()
            worst = part["worst"].sel(chosen=chosen).to_numpy()
            claims.append(
                Claim.at_most(
                    f"{name}: worst case over bound, largest", float((worst / bound).max()), 1.0, general=True
                )
            )
        claims.append(
            Claim.at_least(
                f"{name}: binomial over sharp constant, least", float((part["binomial"] / part["sharp"]).min()), 1.0
            )
        )
        kept = [j for other, j in TABLE if other == name and j < spec.horizon]
        off = [abs(float(part["sharp"].sel(index=j)) / TABLE[name, j][0] - 1) for j in kept]
        loose = [
            abs(float(part["binomial"].sel(index=j)) / value - 1)
            for j in kept
            if (value := TABLE[name, j][1]) is not None
        ]
        if off:
            claims.append(Claim.at_most(f"{name}: tabulated sharp constants, relative difference", max(off), 0.03))
            claims.append(Claim.at_most(f"{name}: tabulated binomial ones, relative difference", max(loose), 0.03))
        far = [
            abs(float(part["worst"].sel(chosen=j)) / value - 1)
            for j in kept
            if j in spec.indices and (value := TABLE[name, j][2]) is not None
        ]
        if far:
            claims.append(Claim.at_most(f"{name}: tabulated worst cases, relative difference", max(far), 0.03))
    if "pair" in spec.spectra and spec.error == 0.1 and spec.horizon >= 20:
        delta = float(dataset["sufficient"].sel(spectrum="pair", horizon=20))
        claims.append(
            Claim.between("pair: sum of squares that suffices for 0.1 up to horizon 20", delta, 6.75e-6, 6.85e-6)
        )
    return claims


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        id="rnn/ambiguity",
        source="Lemma 7",
        shows="How much the first k entries of a balanced network leave open: nothing from k = 2n + 1 on.",
        presets={
            "quick": Ambiguity(tolerances=(1e-2, 1e-4, 1e-6), points=401),
            "paper": Ambiguity(),
        },
        run=run_ambiguity,
        plot=plot_ambiguity,
        claims=claims_ambiguity,
        version=2,
        notes="Linear programmes over positive measures on a grid. For clustered spectra the exact programme may be "
        "undecidable in double precision; the tolerance that an interval holds for is kept beside it.",
    ),
    Experiment(
        id="rnn/certificate",
        source="Theorem 8, made explicit",
        shows="Errors beyond the known entries are at most K_j times the root of the loss; K_j against worst cases.",
        presets={
            "quick": Constants(indices=(5, 11, 20, 49), points=401),
            "paper": Constants(),
        },
        run=run_constants,
        plot=plot_constants,
        claims=claims_constants,
        version=2,
        notes="Worst cases are per tolerance on each of the 2n + 1 known entries, so bounds carry the factor √(2n+1). "
        "For the clustered spectrum the linear regime is out of reach of double precision: its worst cases grow as the "
        "tolerance falls.",
    ),
)
