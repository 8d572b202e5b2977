"""Limits on block-diagonal observations by formula: singular values against the scale of the start, phase diagrams."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np

from deeplinear.core import Array, check_count, check_number
from deeplinear.exact import BlockLimit, block_crossover, block_limit
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

NEARLY_INFINITE = 1e10
"""The figures' stand-in for an infinite ratio of diagonal to off-diagonal entries."""

REFERENCE = {
    # (value, blocks, size): {(m, depth): {scale: (sigma_1, sigma_2)}}, six digits
    (1.0, 10, 1): {
        (2.0, 2): {1e-2: (9.30769, 0.0769231)},
        (2.0, 3): {1e-1: (9.89311, 0.0118766), 1e-4: (9.99986, 1.60598e-5)},
        (10.0, 3): {1e-1: (8.32992, 0.185565), 1e-6: (9.99996, 4.88301e-6)},
        (10.0, 5): {1e-1: (9.4123, 0.0652996), 1e-2: (9.93727, 0.0069697)},
        (100.0, 3): {1e-1: (1.75025, 0.916639), 1e-2: (3.28731, 0.745854)},
        (100.0, 4): {1e-1: (3.04711, 0.772543), 1e-6: (9.99972, 3.12308e-5)},
        (NEARLY_INFINITE, 5): {1e-10: (1.00451, 0.999498)},
    },
    (1.0, 5, 2): {(10.0, 2): {1e-2: (5.27007, 1.18248)}, (10.0, 4): {1e-2: (9.95913, 0.0102186)}},
    (10.0, 10, 1): {(10.0, 2): {1e-2: (33.1193, 7.43119)}, (10.0, 4): {1e-2: (99.9039, 0.0106817)}},
    (0.1, 10, 1): {(10.0, 2): {1e-2: (0.331193, 0.0743119)}, (10.0, 4): {1e-2: (0.920173, 0.0088697)}},
    (1.0, 3, 1): {(10.0, 2): {1e-2: (1.41176, 0.794118)}, (10.0, 4): {1e-2: (2.94415, 0.0279262)}},
}
"""Values computed in fifty digits by an independent root finder."""

SIX_DIGITS = 5.1e-6
"""Largest relative error of a number rounded to six digits."""


@dataclasses.dataclass(frozen=True)
class Formula:
    """Which limits: observed value and blocks, depths, ratios m, scales alpha^L."""

    value: float = 1.0
    blocks: int = 10
    size: int = 1
    depths: tuple[int, ...] = (2, 3, 4, 5)
    ms: tuple[float, ...] = (2.0, 10.0, 100.0, NEARLY_INFINITE)
    largest: float = 1e-1
    smallest: float = 1e-10
    points: int = 181

    def __post_init__(self) -> None:
        check_number("Formula", "value", self.value, above=0)
        check_count("Formula", "blocks", self.blocks, at_least=2)
        check_count("Formula", "size", self.size, at_least=1)
        check_count("Formula", "points", self.points, at_least=2)
        check_number("Formula", "smallest", self.smallest, above=0)
        check_number("Formula", "largest", self.largest, above=self.smallest)
        for depth in self.depths:
            check_count("Formula", "depths", depth, at_least=2)
        for m in self.ms:
            check_number("Formula", "ms", m, at_least=1, finite=False)


def run_formula(spec: Formula, context: Context) -> "xarray.Dataset":
    """Both singular values for every m, depth and scale."""
    import xarray

    scales = np.geomspace(spec.largest, spec.smallest, spec.points)
    depths = np.asarray(spec.depths, dtype=float)[None, :, None]
    limit = block_limit(
        depths,
        scales ** (1 / depths),
        np.asarray(spec.ms)[:, None, None],
        blocks=spec.blocks,
        size=spec.size,
        value=spec.value,
    )
    dims = ("m", "depth", "scale")
    sigma_1, sigma_2, stable_rank, effective_rank = _spectra(limit)
    return xarray.Dataset(
        {
            "sigma_1": (dims, sigma_1, {"long_name": "first singular value"}),
            "sigma_2": (dims, sigma_2, {"long_name": "second singular value"}),
            "stable_rank": (dims, stable_rank),
            "effective_rank": (dims, effective_rank),
        },
        coords={"m": list(spec.ms), "depth": list(spec.depths), "scale": scales},
    )


def _spectra(limit: BlockLimit) -> tuple[np.ndarray, ...]:
    """Both singular values and both ranks, by one program."""
    return tuple(np.asarray(values) for values in _compiled_spectra(limit))


@eqx.filter_jit
def _compiled_spectra(limit: BlockLimit) -> tuple[Array, ...]:
    return limit.sigma_1, limit.sigma_2, limit.stable_rank, limit.effective_rank


def ratio_text(m: float) -> str:
    """The ratio m as it is written over a panel."""
    if math.isinf(m):
        return r"$m = \infty$"
    power = math.log10(m)
    return f"$m = 10^{{{power:.0f}}}$" if m >= 1e4 and power.is_integer() else f"$m = {m:g}$"


def plot_formula(dataset: "xarray.Dataset", spec: Formula) -> "Figure":
    """One panel for each m, one colour for each depth; the first singular value solid, the second dashed."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    panels = len(spec.ms)
    figure = Figure(
        figsize=(max(0.62 * PANEL[0] * panels + 0.6, 1.6 * PANEL[0]), 1.15 * PANEL[1]), layout="constrained"
    )
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    for axis, m in zip(axes, spec.ms, strict=True):
        for k, depth in enumerate(spec.depths):
            curve = dataset.sel(m=m, depth=depth)
            axis.loglog(curve["scale"], curve["sigma_1"], color=COLOURS[k])
            axis.loglog(curve["scale"], curve["sigma_2"], color=COLOURS[k], linestyle="--")
        axis.set(title=ratio_text(m), xlabel=r"scale $\alpha^L$")
        axis.xaxis.set_major_locator(decades(spec.smallest, spec.largest))
    lowest = float(dataset["sigma_2"].where(dataset["sigma_2"] > 0).min())
    top = 3 * float(dataset["sigma_1"].max())
    axes[0].set(ylabel="singular values of the limit", ylim=(max(lowest, 1e-10) / 3, top))
    handles = [Line2D([], [], color=COLOURS[k], label=f"$L = {depth}$") for k, depth in enumerate(spec.depths)]
    handles += [
        Line2D([], [], color="#444444", label=r"$\sigma_1$"),
        Line2D([], [], color="#444444", linestyle="--", label=r"$\sigma_2$"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def claims_formula(dataset: "xarray.Dataset", spec: Formula) -> list[Claim]:
    """What the formula figures are said to show."""
    total = spec.value * spec.blocks * spec.size
    deep = dataset.sel(depth=[depth for depth in spec.depths if depth >= 3])
    smallest = deep.isel(scale=-1)
    finite = [m for m in spec.ms if 1 < m < 1e4]
    claims = []
    if 2 in spec.depths:
        shallow = dataset["sigma_2"].sel(depth=2)
        spread = float((shallow.max("scale") / shallow.min("scale") - 1).max())
        claims.append(
            Claim.at_most("At depth 2 the limit does not depend on the scale: relative spread of σ₂", spread, 1e-12)
        )
    if deep.sizes["depth"] and finite:
        chosen = smallest.sel(m=finite)
        claims += [
            Claim.at_most(
                f"At depth 3 and more σ₂ vanishes with the scale: largest σ₂/σ₁ at α^L = {spec.smallest:g}",
                float((chosen["sigma_2"] / chosen["sigma_1"]).max()),
                1e-4,
            ),
            Claim.at_most(
                "… and σ₁ takes all of w*d: largest relative distance",
                float(abs(chosen["sigma_1"] / total - 1).max()),
                1e-3,
            ),
        ]
        rise = deep["sigma_2"].sel(m=finite).sortby("scale").diff("scale")
        claims.append(
            Claim.at_least("… the more so the smaller the scale: smallest change of σ₂ with it", rise.min(), 0.0)
        )
    small = dataset["sigma_2"].sel(m=finite).where(dataset["scale"] <= 1e-2 * spec.value * (1 + 1e-9), drop=True)
    if finite and small.sizes["scale"] and small.sizes["depth"] > 1:
        growth = float((small.diff("depth") / small.isel(depth=slice(None, -1)).to_numpy()).max())
        claims.append(
            Claim.at_most(
                "Where α^L ≤ w*/100, deeper means smaller σ₂: largest relative change from one depth to the next",
                growth,
                0.0,
                "At larger scales, and in wide matrices, the order can be the reverse; only α^L/w* matters.",
            )
        )
    if NEARLY_INFINITE in spec.ms:
        plain = dataset.sel(m=NEARLY_INFINITE)
        claims.append(
            Claim.at_most(
                "With m = 10¹⁰ the limit has full rank, as for m = ∞: largest relative distance of σ₂ from s·w*",
                float(abs(plain["sigma_2"] / (spec.size * spec.value) - 1).max()),
                1e-2,
                "One per cent is what the eye can tell. True in this range of scales only: any finite m gives way once "
                "α^(L-2) is small enough.",
            )
        )
    claims.append(
        Claim.at_most(
            "All limits have the nuclear norm w*d: largest relative distance",
            float(abs((dataset["sigma_1"] + (spec.blocks - 1) * dataset["sigma_2"]) / total - 1).max()),
            1e-12,
        )
    )
    error = _reference_error(dataset, spec)
    if error is not None:
        claims.append(Claim.at_most("Reference values to six digits: largest relative error", error, SIX_DIGITS))
    return claims


def _reference_error(dataset: "xarray.Dataset", spec: Formula) -> float | None:
    """Largest relative distance from the reference values that this spec has."""
    known = REFERENCE.get((spec.value, spec.blocks, spec.size), {})
    errors = []
    scales = dataset["scale"].to_numpy()
    for (m, depth), rows in known.items():
        for scale, wanted in rows.items():
            near = int(np.argmin(abs(np.log(scales / scale))))
            if m in spec.ms and depth in spec.depths and abs(scales[near] / scale - 1) < 1e-9:
                here = dataset.sel(m=m, depth=depth).isel(scale=near)
                errors += [abs(float(here[f"sigma_{k}"]) / w - 1) for k, w in zip((1, 2), wanted, strict=True)]
    return max(errors) if errors else None


def decades(low: float, high: float) -> Any:
    """Ticks at powers of ten, few enough for a narrow panel."""
    from matplotlib.ticker import FixedLocator

    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    stride = max(1, math.ceil((last - first) / 3))
    return FixedLocator([10.0**k for k in range(last, first - 1, -stride)])


def formula(name: str, figure: str, what: str, **values: Any) -> Experiment[Formula]:
    """An experiment of this family."""
    return Experiment(
        id=f"completion/{name}",
        source=figure,
        shows=f"Singular values of the limit on {what} against the scale α^L of the start: at depth 2 they do not "
        "depend on it, from depth 3 on a small start gives rank one, unless the start is (nearly) diagonal.",
        presets={"quick": Formula(points=19, **values), "paper": Formula(**values)},
        run=run_formula,
        plot=plot_formula,
        claims=claims_formula,
        notes="The paper does not state the finite values of m, the depths and the range of scales of its panels; "
        "m = 2, 10, 100, 10¹⁰, depths 2 to 5 and α^L from 0.1 to 1e-10 are our choice.",
    )


# --- Phase diagram ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Phases:
    """A grid over scale and m at several depths."""

    blocks: int = 10
    size: int = 1
    depths: tuple[int, ...] = (2, 3, 4, 5)
    smallest: float = 1e-10
    largest: float = 10.0
    largest_m: float = 1e10
    points: int = 200

    def __post_init__(self) -> None:
        check_count("Phases", "blocks", self.blocks, at_least=2)
        check_count("Phases", "size", self.size, at_least=1)
        check_count("Phases", "points", self.points, at_least=2)
        check_number("Phases", "smallest", self.smallest, above=0)
        check_number("Phases", "largest", self.largest, above=self.smallest)
        check_number("Phases", "largest_m", self.largest_m, above=1.01)
        for depth in self.depths:
            check_count("Phases", "depths", depth, at_least=2)


def run_phases(spec: Phases, context: Context) -> "xarray.Dataset":
    """Ranks of the limit for every scale and m; only the scale over the observed value matters, so this is 1."""
    import xarray

    scales = np.geomspace(spec.smallest, spec.largest, spec.points)
    excess = np.geomspace(1e-2, spec.largest_m - 1, spec.points)
    depths = np.asarray(spec.depths, dtype=float)[:, None, None]
    limit = block_limit(
        depths, scales ** (1 / depths), 1 + excess[:, None], blocks=spec.blocks, size=spec.size, value=1.0
    )
    sigma_1, sigma_2, stable_rank, effective_rank = _spectra(limit)
    deep = [depth for depth in spec.depths if depth >= 3]
    crossover = [
        np.asarray(block_crossover(depth, scales ** (1 / depth), blocks=spec.blocks, size=spec.size, value=1.0))
        for depth in deep
    ]
    dims = ("depth", "m", "scale")
    return xarray.Dataset(
        {
            "stable_rank": (dims, stable_rank),
            "effective_rank": (dims, effective_rank),
            "ratio": (dims, sigma_2 / sigma_1, {"long_name": "sigma_2 / sigma_1"}),
            "crossover": (("deep", "scale"), np.asarray(crossover).reshape(len(deep), spec.points)),
        },
        coords={"depth": list(spec.depths), "m": 1 + excess, "scale": scales, "deep": deep},
    )


def plot_phases(dataset: "xarray.Dataset", spec: Phases) -> "Figure":
    """Effective rank as a map, one panel for each depth, with the line where the rank changes."""
    from matplotlib.figure import Figure

    panels = len(spec.depths)
    figure = Figure(figsize=(0.62 * PANEL[0] * panels + 0.9, 1.1 * PANEL[1]), layout="constrained")
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    image: Any = None
    for axis, depth in zip(axes, spec.depths, strict=True):
        ranks = dataset["effective_rank"].sel(depth=depth)
        image = axis.pcolormesh(
            dataset["scale"], dataset["m"], ranks, vmin=1, vmax=spec.blocks, cmap="cividis", rasterized=True
        )
        axis.set(xscale="log", yscale="log", title=f"$L = {depth}$", xlabel=r"$\alpha^L / w^\star$")
        axis.set(ylim=(float(dataset["m"].min()), float(dataset["m"].max())))
        axis.grid(False)
        if depth >= 3:
            line = dataset["crossover"].sel(deep=depth)
            axis.plot(dataset["scale"], line, color="white", linestyle="--", label="$m^*$")
            axis.legend(loc="lower left", labelcolor="white")
        axis.xaxis.set_major_locator(decades(spec.smallest, spec.largest))
    axes[0].set(ylabel="ratio $m$ of the start")
    figure.colorbar(image, ax=axes, label="effective rank of the limit")
    return figure


def claims_phases(dataset: "xarray.Dataset", spec: Phases) -> list[Claim]:
    """Rank one on one side of the crossover, full rank on the other."""
    claims = []
    if dataset.sizes["deep"]:
        share = dataset["m"] / dataset["crossover"]
        ratio = dataset["ratio"].sel(depth=dataset["deep"].to_numpy()).rename(depth="deep")
        small = dataset["scale"] <= 1e-2
        below = ratio.where((share < 0.02) & small)
        above = ratio.where((share > 50) & small)
        if bool(below.notnull().any()):
            statement = "Far below the crossover, m < m*/50, the limit is near rank one: largest σ₂/σ₁"
            claims.append(Claim.at_most(statement, below.max(), 0.5))
        if bool(above.notnull().any()):
            statement = "Far above it, m > 50 m*, the rank is nearly full: smallest σ₂/σ₁"
            claims.append(Claim.at_least(statement, above.min(), 0.5))
    if 2 in spec.depths:
        shallow = dataset["effective_rank"].sel(depth=2)
        spread = float((shallow.max("scale") - shallow.min("scale")).max())
        statement = "Depth 2 does not see the scale: largest spread of the effective rank"
        claims.append(Claim.at_most(statement, spread, 1e-9))
    return claims


EXPERIMENTS = (
    formula("fig2", "Figure 2", "a diagonal of ten ones"),
    formula("fig5", "Figure 5", "five diagonal 2 × 2 blocks of ones", blocks=5, size=2),
    formula("fig6", "Figure 6", "a diagonal of ten tens", value=10.0),
    formula("fig7", "Figure 7", "a diagonal of ten entries 0.1", value=0.1),
    formula("fig8", "Figure 8", "a diagonal of three ones", blocks=3),
    Experiment(
        id="completion/phases",
        source="extension of Figure 2",
        shows="Effective rank of the limit over scale and m, for several depths, with the crossover from rank one to "
        "full rank.",
        presets={"quick": Phases(points=100), "paper": Phases(), "large": Phases(points=1500)},
        run=run_phases,
        plot=plot_phases,
        claims=claims_phases,
        notes="Not in the paper: the limit depends on the scale through α^L / w* only, so one map shows every case.",
    ),
)
