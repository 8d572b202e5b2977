"""Balance of random layers, its sign and its tables; expected loss under noise; low-rank adapters."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import check_count, check_number, near_name
from deeplinear.exact import (
    balance_moments,
    balance_spread,
    expected_lambda,
    lambda_limits,
    lambda_sign_boundary,
    lambda_variance,
    layer_variances,
)
from deeplinear.experiments._base import Claim, Context, Experiment, seed_key
from deeplinear.models import (
    DeepLinear,
    Glorot,
    He,
    LeCun,
    Scaled,
    conserved,
)
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


RULES = ("LeCun", "He", "Scaled", "Glorot")
"""The four initialisations, in the order of the figure."""


def rule(name: str, gains: tuple[float, float]) -> LeCun | He | Glorot | Scaled:
    """An initialisation by name."""
    if name not in RULES:
        raise ValueError(f"There is no initialisation '{name}'. {near_name(name, RULES)}")
    return Scaled(list(gains)) if name == "Scaled" else {"LeCun": LeCun(), "He": He(), "Glorot": Glorot()}[name]


# --- Figures 1C and 6: the balance of one sample ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sample:
    """Widths of input, hidden and output layer, initialisations, and a seed."""

    inp: int = 160
    hidden: int = 80
    out: int = 120
    inits: tuple[str, ...] = RULES
    first_gain: float = 1.0
    second_gain: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("inp", "out"):
            check_count("Sample", name, getattr(self, name), at_least=1)
        check_count("Sample", "hidden", self.hidden, at_least=2)
        check_number("Sample", "first_gain", self.first_gain, above=0)
        check_number("Sample", "second_gain", self.second_gain, above=0)
        for init in self.inits:
            rule(init, (1.0, 1.0))

    @property
    def widths(self) -> tuple[int, int, int]:
        """Widths of the three layers of units."""
        return self.inp, self.hidden, self.out

    @property
    def gains(self) -> tuple[float, float]:
        """Gains of the scaled initialisation."""
        return self.first_gain, self.second_gain


def run_sample(spec: Sample, context: Context) -> "xarray.Dataset":
    """The balance of one draw of each initialisation, its eigenvalues, and what is predicted of them."""
    import xarray

    balances, predicted = [], []
    for name in spec.inits:
        init = rule(name, spec.gains)
        (c,) = conserved(init(DeepLinear(spec.widths), seed_key(spec.seed, "balance", name)))
        balances.append(np.asarray(c))
        variances = layer_variances(init, spec.widths)
        moments, spread = balance_moments(spec.widths, variances), balance_spread(spec.widths, variances)
        predicted.append([*map(float, moments), *map(float, (spread.lower, spread.upper, spread.relative_frobenius))])
    table = np.array(predicted)
    names = ("lam", "variance_diagonal", "variance_off_diagonal", "lower", "upper", "relative_frobenius")
    return xarray.Dataset(
        {
            "balance": (("init", "row", "column"), np.array(balances), {"long_name": "W2^T W2 - W1 W1^T"}),
            "eigenvalue": (("init", "mode"), np.array([np.linalg.eigvalsh(c) for c in balances])),
            **{name: (("init",), table[:, k]) for k, name in enumerate(names)},
        },
        coords={"init": list(spec.inits)},
    )


def plot_sample(dataset: "xarray.Dataset", spec: Sample) -> "Figure":
    """Above the balance as a map, below its eigenvalues with their predicted range and the predicted mean."""
    from matplotlib.figure import Figure

    count = len(spec.inits)
    figure = Figure(figsize=(max(0.75 * PANEL[0] * count, 1.5 * PANEL[0]), 2.2 * PANEL[1]), layout="constrained")
    axes = figure.subplots(2, count, squeeze=False, gridspec_kw={"height_ratios": [1.4, 1.0]})
    for k, name in enumerate(spec.inits):
        here = dataset.sel(init=name)
        matrix, lam = here["balance"].to_numpy(), float(here["lam"])
        top = float(np.abs(matrix).max())
        image = axes[0, k].imshow(matrix, cmap="RdBu_r", vmin=-top, vmax=top, interpolation="nearest")
        axes[0, k].set(title=rf"{name}: predicted $\lambda = {lam:.3g}$", xlabel="hidden unit")
        axes[0, k].grid(False)
        figure.colorbar(image, ax=axes[0, k], shrink=0.85)
        lower = axes[1, k]
        lower.hist(here["eigenvalue"], bins=24, color=COLOURS[5], edgecolor="white", linewidth=0.4)
        lower.axvline(lam, color="black", label=r"$\lambda$")
        for edge in (float(here["lower"]), float(here["upper"])):
            lower.axvline(edge, color="black", linestyle=":", label="predicted edges" if edge < lam else None)
        lower.set(xlabel="eigenvalue of the balance")
    axes[0, 0].set(ylabel="hidden unit")
    axes[1, 0].set(ylabel="number of eigenvalues")
    handles, labels = axes[1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def claims_sample(dataset: "xarray.Dataset", spec: Sample) -> list[Claim]:
    """Mean and spread of the entries are as predicted; the eigenvalues are not near one number."""
    claims = []
    diagonal = np.eye(spec.hidden, dtype=bool)
    for name in spec.inits:
        here = dataset.sel(init=name)
        matrix, lam = here["balance"].to_numpy(), float(here["lam"])
        on, off = matrix[diagonal], matrix[~diagonal]
        sd_on, sd_off = (math.sqrt(float(here[f"variance_{which}"])) for which in ("diagonal", "off_diagonal"))
        values = here["eigenvalue"].to_numpy()
        lower, upper = float(here["lower"]), float(here["upper"])
        width = upper - lower
        claims += [
            Claim.at_most(
                f"{name}: the mean of the diagonal is λ = {lam:.4g}: distance in standard errors",
                abs(float(on.mean()) - lam) / (sd_on / math.sqrt(spec.hidden)),
                4.0,
            ),
            Claim.between(
                f"{name}: standard deviation on the diagonal over the predicted {sd_on:.3g}",
                float(np.sqrt(np.mean((on - lam) ** 2))) / sd_on,
                1 - 4 / math.sqrt(2 * spec.hidden),
                1 + 4 / math.sqrt(2 * spec.hidden),
            ),
            Claim.between(
                f"{name}: standard deviation off the diagonal over the predicted {sd_off:.3g}",
                float(np.sqrt(np.mean(off**2))) / sd_off,
                1 - 6 / spec.hidden,
                1 + 6 / spec.hidden,
            ),
            Claim.at_most(
                f"{name}: the eigenvalues fill the predicted interval [{lower:.3g}, {upper:.3g}]: largest distance of "
                "an end, relative",
                max(abs(float(values[0]) - lower), abs(float(values[-1]) - upper)) / width,
                0.15,
            ),
            Claim.at_least(
                f"{name}: as a matrix the balance is not near λI: operator norm of the difference over |λ|",
                float(np.abs(values - lam).max()) / abs(lam) if lam else math.inf,
                0.5,
                "The paper says that it converges in probability to λI. That is so entry by entry; the spread of the "
                "eigenvalues does not shrink as the widths grow in proportion.",
            ),
        ]
    recorded = RECORDED_SAMPLES.get(spec.widths, {}) if spec.gains == (1.0, 2.0) else {}
    for name in set(spec.inits) & set(recorded):
        here = dataset.sel(init=name)
        lam, sd = recorded[name]
        claims += [
            Claim.at_most(f"{name}: predicted λ is {lam:g}: distance", abs(float(here["lam"]) - lam), 5e-4),
            Claim.at_most(
                f"{name}: predicted standard deviation off the diagonal is {sd:g}: distance",
                abs(math.sqrt(float(here["variance_off_diagonal"])) - sd),
                5e-4,
            ),
        ]
    return claims


RECORDED_SAMPLES = {
    (40, 120, 250): {"LeCun": (1.083, 0.206)},
    (160, 80, 120): {"LeCun": (0.5, 0.158), "He": (1.0, 0.316), "Scaled": (5.0, 0.553), "Glorot": (-0.1333, 0.152)},
}
"""λ and standard deviation off the diagonal, to the digits given."""


def sample(name: str, source: str, quick: Sample, paper: Sample) -> Experiment[Sample]:
    """An experiment of this family."""
    return Experiment(
        id=f"exact/{name}",
        source=source,
        shows="The balance of random layers looks like a multiple of the identity, entry by entry; its eigenvalues, "
        "below, are spread over an interval that is as wide as λ or wider.",
        presets={"quick": quick, "paper": paper},
        run=run_sample,
        plot=plot_sample,
        claims=claims_sample,
        notes="The histogram of eigenvalues is ours: it shows what the map does not.",
    )


FIG_1C = sample(
    "fig1c",
    "Figure 1C",
    Sample(20, 60, 125, ("LeCun",)),
    Sample(40, 120, 250, ("LeCun",)),
)
FIG_6 = sample("fig6", "Figure 6", Sample(80, 40, 60), Sample())


# --- Figure 7: the sign of λ ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Signs:
    """A grid of the ratios of widths."""

    smallest: float = 0.1
    largest: float = 10.0
    points: int = 201
    first_gain: float = 1.0
    second_gain: float = 2.0

    def __post_init__(self) -> None:
        check_count("Signs", "points", self.points, at_least=3)
        check_number("Signs", "smallest", self.smallest, above=0)
        check_number("Signs", "largest", self.largest, above=self.smallest)
        check_number("Signs", "first_gain", self.first_gain, above=0)
        check_number("Signs", "second_gain", self.second_gain, above=0)


def run_signs(spec: Signs, context: Context) -> "xarray.Dataset":
    """λ for every pair of ratios, and the two boundaries."""
    import xarray

    ratios = np.geomspace(spec.smallest, spec.largest, spec.points)
    inits = [rule(name, (spec.first_gain, spec.second_gain)) for name in RULES]
    maps = [np.asarray(expected_lambda(init, ratios[None, :], ratios[:, None])) for init in inits]
    lines = [
        [np.asarray(lambda_sign_boundary(init, ratios, as_printed=flag)) for init in inits] for flag in (False, True)
    ]
    return xarray.Dataset(
        {
            "lam": (("init", "r", "k"), np.array(maps)),
            "boundary": (("init", "k"), np.array(lines[0])),
            "printed_boundary": (("init", "k"), np.array(lines[1])),
        },
        coords={"init": list(RULES), "r": ratios, "k": ratios},
    )


def plot_signs(dataset: "xarray.Dataset", spec: Signs) -> "Figure":
    """Sign of λ as a map, one panel for each initialisation; the boundary solid, the printed one dotted."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = Figure(figsize=(2.5 * PANEL[0], 1.25 * PANEL[1]), layout="constrained")
    axes = figure.subplots(1, len(RULES), sharey=True)
    colours = ("#F2C9A8", "#B9D8EC")
    for axis, name in zip(axes, RULES, strict=True):
        here = dataset.sel(init=name)
        axis.pcolormesh(
            here["k"], here["r"], here["lam"] > 0, cmap=ListedColormap(colours), vmin=0, vmax=1, rasterized=True
        )
        axis.plot(here["k"], here["boundary"], color="black")
        if not np.allclose(here["boundary"], here["printed_boundary"]):
            axis.plot(here["k"], here["printed_boundary"], color="black", linestyle=":")
        title = rf"{name}, $\alpha = ({spec.first_gain:g}, {spec.second_gain:g})$" if name == "Scaled" else name
        axis.set(xscale="log", yscale="log", title=title, xlabel=r"$k$, hidden / input width")
        axis.set(xlim=(spec.smallest, spec.largest), ylim=(spec.smallest, spec.largest))
        axis.grid(False)
    axes[0].set(ylabel=r"$r$, output / input width")
    handles = [
        Patch(color=colours[1], label=r"$\lambda > 0$"),
        Patch(color=colours[0], label=r"$\lambda < 0$"),
        Line2D([], [], color="black", label=r"$\lambda = 0$"),
        Line2D([], [], color="black", linestyle=":", label="as printed, where it differs"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def claims_signs(dataset: "xarray.Dataset", spec: Signs) -> list[Claim]:
    """On which side of its boundary λ is positive."""
    claims = []
    for name in RULES:
        here = dataset.sel(init=name)
        lam = here["lam"].to_numpy()
        side = here["r"].to_numpy()[:, None] / here["boundary"].to_numpy()[None, :]
        clear = np.abs(side - 1) > 1e-9
        claims.append(
            Claim.at_most(
                f"{name}: λ is positive above the boundary and negative below: share of the map that differs",
                float(np.mean((np.sign(lam) != np.sign(side - 1))[clear])),
                0.0,
            )
        )
        printed = here["r"].to_numpy()[:, None] / here["printed_boundary"].to_numpy()[None, :]
        clear &= np.abs(printed - 1) > 1e-9
        wrong = float(np.mean((np.sign(lam) != np.sign(printed - 1))[clear]))
        if name == "Glorot":
            changes = np.max(np.abs(np.diff(np.sign(lam[np.abs(here["r"].to_numpy() - 1) > 1e-9]), axis=1)))
            claims += [
                Claim.at_most("Glorot: the sign does not depend on the hidden width: changes along k", changes, 0.0),
                Claim.at_least(
                    "Glorot: with the boundary r = k of the paper's Table 3 a good part of the map has the wrong sign",
                    wrong,
                    0.1,
                    "The caption says that the sign depends on both ratios; it depends on r alone.",
                ),
            ]
    return claims


FIG_7 = Experiment(
    id="exact/fig7",
    source="Figure 7",
    shows="Sign of λ at random initialisations against the ratios of widths: the output and hidden layers decide for "
    "LeCun, He and scaled initialisation, the output and input layers for Glorot.",
    presets={"quick": Signs(points=41), "paper": Signs()},
    run=run_signs,
    plot=plot_signs,
    claims=claims_signs,
    notes="The range of the ratios and the gains (1, 2), those of Figure 6, are our choice. Dotted lines are what the "
    "paper prints: λ = 0 at r = k for Glorot (Table 3), r = α₁²/α₂² for scaled initialisation (list of cases).",
)


# --- Tables 1 to 3 ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Tables:
    """Widths, number of draws, gains and a seed."""

    inp: int = 30
    hidden: int = 20
    out: int = 25
    draws: int = 4000
    first_gain: float = 1.5
    second_gain: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("inp", "out"):
            check_count("Tables", name, getattr(self, name), at_least=1)
        check_count("Tables", "hidden", self.hidden, at_least=2)
        check_count("Tables", "draws", self.draws, at_least=100)
        check_number("Tables", "first_gain", self.first_gain, above=0)
        check_number("Tables", "second_gain", self.second_gain, above=0)


QUANTITIES = ("mean", "variance on the diagonal", "variance off the diagonal")
CASES = ("r = k", "r → 0", "r → ∞", "k → ∞", "k → 0", "r = k α₁²/α₂²")
FAR = 1e9
"""A ratio that stands for infinity."""


def run_tables(spec: Tables, context: Context) -> "xarray.Dataset":
    """Every entry three times: corrected, as printed, and by sampling (Tables 1, 2) or at a far ratio (Table 3)."""
    import xarray

    widths, k, r = (spec.inp, spec.hidden, spec.out), spec.hidden / spec.inp, spec.out / spec.inp
    corrected, printed, sampled, errors, limits, printed_limits, far = [], [], [], [], [], [], []
    for position, name in enumerate(RULES):
        init = rule(name, (spec.first_gain, spec.second_gain))
        variances = np.asarray(layer_variances(init, widths))
        lam = float(expected_lambda(init, k, r))
        off, printed_off = (float(lambda_variance(init, k, r, as_printed=flag)) / spec.inp for flag in (False, True))
        corrected.append([lam, 2 * off, off])
        printed.append([lam, 4 * printed_off, printed_off])
        means, deviations = _sampled(spec, variances, lam, np.random.default_rng([spec.seed, position]))
        sampled.append(means)
        errors.append(deviations)
        limits.append([float(x) for x in lambda_limits(init, k, r)])
        printed_limits.append([float(x) for x in lambda_limits(init, k, r, as_printed=True)])
        far.append(_far(init, k, r, (spec.first_gain, spec.second_gain)))
        context.progress((position + 1) / len(RULES), name)
    return xarray.Dataset(
        {
            "corrected": (("init", "quantity"), np.array(corrected)),
            "printed": (("init", "quantity"), np.array(printed)),
            "sampled": (("init", "quantity"), np.array(sampled)),
            "standard_error": (("init", "quantity"), np.array(errors)),
            "limit": (("init", "case"), np.array(limits)),
            "printed_limit": (("init", "case"), np.array(printed_limits)),
            "far": (("init", "case"), np.array(far), {"long_name": "lambda at ratios of 1e9"}),
        },
        coords={"init": list(RULES), "quantity": list(QUANTITIES), "case": list(CASES)},
    )


def _sampled(
    spec: Tables, variances: np.ndarray, lam: float, rng: np.random.Generator
) -> tuple[list[float], list[float]]:
    """Moments over draws, with standard errors over draws."""
    pick = ~np.eye(spec.hidden, dtype=bool)
    rows = np.empty((spec.draws, 3))
    for k in range(spec.draws):
        first = math.sqrt(variances[0]) * rng.normal(size=(spec.hidden, spec.inp))
        second = math.sqrt(variances[1]) * rng.normal(size=(spec.out, spec.hidden))
        c = second.T @ second - first @ first.T
        rows[k] = np.trace(c) / spec.hidden, np.mean((np.diag(c) - lam) ** 2), np.mean(c[pick] ** 2)
    return rows.mean(axis=0).tolist(), (rows.std(axis=0, ddof=1) / math.sqrt(spec.draws)).tolist()


def _far(init: LeCun | He | Glorot | Scaled, k: float, r: float, gains: tuple[float, float]) -> list[float]:
    """λ at ratios that stand for the limits; where it diverges, in units of the ratio."""
    unit = 1.0 if isinstance(init, Glorot) else FAR
    matched = k * (gains[0] / gains[1]) ** 2
    return [
        float(expected_lambda(init, k, k)),
        float(expected_lambda(init, k, r / FAR)),
        float(expected_lambda(init, k, r * FAR)) / unit,
        float(expected_lambda(init, k * FAR, r)),
        float(expected_lambda(init, k / FAR, r)) / unit,
        float(expected_lambda(init, k, matched)) if isinstance(init, Scaled) else math.nan,
    ]


def plot_tables(dataset: "xarray.Dataset", spec: Tables) -> "Figure":
    """Left: variances over their sampled values. Right: limits of λ for Glorot, corrected and printed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.3 * PANEL[0], 1.3 * PANEL[1]), layout="constrained")
    axes = figure.subplots(1, 3)
    marks = (("corrected", "o", COLOURS[0]), ("printed", "x", COLOURS[1]))
    places = np.arange(len(RULES))
    for axis, quantity in zip(axes, QUANTITIES[1:], strict=False):
        here = dataset.sel(quantity=quantity)
        axis.errorbar(
            places,
            np.ones(len(RULES)),
            yerr=4 * (here["standard_error"] / here["sampled"]),
            fmt="none",
            ecolor="black",
            capsize=6,
            label="sampled, 4 standard errors",
        )
        for name, marker, colour in marks:
            ratio = here[name] / here["sampled"]
            axis.plot(places, ratio, marker, color=colour, label=name, markersize=6, fillstyle="none")
        axis.set_xticks(places, RULES)
        axis.set(title=quantity, ylabel="over the sampled value", ylim=(0, None), xlabel="initialisation")
    here = dataset.sel(init="Glorot").isel(case=slice(0, 5))
    places = np.arange(5)
    axes[2].plot(places, here["far"], "k_", markersize=14, label=r"ratio of $10^9$")
    for name, (_, marker, colour) in zip(("limit", "printed_limit"), marks, strict=True):
        axes[2].plot(places, here[name], marker, color=colour, markersize=6, fillstyle="none")
    labels = ("$r = k$", r"$r\to 0$", r"$r\to\infty$", r"$k\to\infty$", r"$k\to 0$")
    axes[2].set_xticks(places, labels)
    axes[2].set(title="limits for Glorot", ylabel=r"$\lambda$", xlabel="case of Table 3")
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4)
    return figure


def claims_tables(dataset: "xarray.Dataset", spec: Tables) -> list[Claim]:
    """The corrected tables agree with sampling, the printed ones do not where they differ."""
    distance = abs(dataset["corrected"] - dataset["sampled"]) / dataset["standard_error"]
    relative = abs(dataset["corrected"] / dataset["sampled"] - 1).sel(quantity=list(QUANTITIES[1:]))
    printed = abs(dataset["printed"] - dataset["sampled"]) / dataset["standard_error"]
    gaps = abs(dataset["limit"] - dataset["far"]) / (1 + abs(dataset["limit"]))
    printed_gaps = abs(dataset["printed_limit"] - dataset["far"]).sel(init="Glorot")
    rows = spec.draws >= 2000
    claims = [
        Claim.at_most(
            "Tables 1 and 2 corrected: largest distance from sampling, in standard errors", distance.max(), 4.0
        ),
        Claim.at_most("… of the variances, relative", relative.max(), 0.03)
        if rows
        else Claim.untold("… of the variances, relative", "at most 0.03", "Needs 2000 draws."),
        Claim.at_least(
            "Theorem A.3 as printed, variance on the diagonal: least distance, in standard errors",
            printed.sel(quantity=QUANTITIES[1]).min(),
            20.0,
            "Printed is 4b, right is 2b.",
        ),
        Claim.at_least(
            "Table 2 as printed, variance of scaled initialisation: distance off the diagonal, in standard errors",
            printed.sel(quantity=QUANTITIES[2], init="Scaled"),
            20.0,
            "Printed with α², right is α⁴.",
        ),
        Claim.at_most("Table 3 corrected: largest relative distance from λ at ratios of 10⁹", gaps.max(), 1e-6),
        Claim.at_least("Table 3 as printed, row Glorot: largest distance", printed_gaps.max(), 0.5),
    ]
    return claims


TABLES = Experiment(
    id="exact/tables",
    source="Tables 1 to 3",
    shows="Mean and variance of the balance of random layers and its limits: corrected, as printed, and sampled.",
    presets={"quick": Tables(draws=400), "paper": Tables()},
    run=run_tables,
    plot=plot_tables,
    claims=claims_tables,
    notes="Widths, gains and the number of draws are our choice; the tables hold for all.",
)

EXPERIMENTS = (FIG_1C, FIG_6, FIG_7, TABLES)
