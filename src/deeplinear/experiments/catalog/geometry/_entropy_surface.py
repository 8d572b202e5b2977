"""The entropy of two singular values as a surface, cut at a fixed determinant and at fixed norms."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.geometry import entropy
from deeplinear.plots import COLOURS, PANEL, REST

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

RED = COLOURS[1]


@dataclasses.dataclass(frozen=True)
class Surface:
    """The entropy of two singular values, and cuts at a fixed determinant and at fixed norms."""

    depths: tuple[float, ...] = (2.0, 3.0, math.inf)
    lowest: float = 0.05
    highest: float = 2.5
    points: int = 161
    widest: float = 4.0

    def __post_init__(self) -> None:
        for depth in self.depths:
            if not (math.isinf(depth) or (depth >= 2 and depth == int(depth))):
                raise ValueError(f"Surface: depths must be integers from 2 or infinity, but one is {depth:g}.")
        check_number("Surface", "lowest", self.lowest, above=0)
        check_number("Surface", "highest", self.highest, above=self.lowest)
        check_number("Surface", "widest", self.widest, above=0)
        check_count("Surface", "points", self.points, at_least=11)


CUTS = ("determinant 1", "nuclear norm 2", "Frobenius norm √2")


def _cut(kind: str, logs: np.ndarray) -> np.ndarray:
    """Pairs with a given logarithm of their ratio; equal ones are (1, 1) in every cut."""
    pairs = np.exp(np.stack([logs / 2, -logs / 2], axis=-1))
    if kind == CUTS[1]:
        pairs *= 2 / pairs.sum(axis=-1, keepdims=True)
    elif kind == CUTS[2]:
        pairs *= math.sqrt(2) / np.linalg.norm(pairs, axis=-1, keepdims=True)
    return pairs


def _depth(depth: float) -> float:
    return depth if math.isinf(depth) else int(depth)


def run_surface(spec: Surface, context: Context) -> "xarray.Dataset":
    """Entropies over a grid at the last depth, and along the cuts at every depth."""
    import xarray

    values = np.linspace(spec.lowest, spec.highest, spec.points)
    grid = np.stack(np.meshgrid(values, values, indexing="ij"), axis=-1)
    logs = np.linspace(-spec.widest, spec.widest, spec.points | 1)
    cuts = np.array([[np.asarray(entropy(_cut(kind, logs), _depth(depth))) for kind in CUTS] for depth in spec.depths])
    spread = [1.6, 1.0, 0.4]
    return xarray.Dataset(
        {
            "surface": (("first", "second"), np.asarray(entropy(grid, _depth(spec.depths[-1])))),
            "cut": (("depth", "kind", "log_ratio"), cuts),
            "gain": ((), float(entropy([1.0, 1.0, 1.0], math.inf) - entropy(spread, math.inf))),
        },
        coords={
            "first": values,
            "second": values,
            "depth": list(spec.depths),
            "kind": list(CUTS),
            "log_ratio": logs,
        },
    )


def plot_surface(dataset: "xarray.Dataset", spec: Surface) -> "Figure":
    """Level lines with the three cuts; beside them the entropy along the cuts."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.9 * PANEL[0], 1.2 * PANEL[1]), layout="constrained")
    left, *others = figure.subplots(1, 3)
    values = dataset["first"].to_numpy()
    surface = dataset["surface"].to_numpy()
    levels = np.quantile(surface, np.linspace(0.02, 0.98, 13))
    drawn = left.contourf(values, values, surface.T, levels=levels, cmap="cividis", extend="both")
    figure.colorbar(drawn, ax=left, label="entropy $S$", format="%.2f")
    logs = dataset["log_ratio"].to_numpy()
    styles = dict(zip(CUTS, ("-", "--", ":"), strict=True))
    for kind in CUTS:
        pairs = _cut(kind, logs)
        left.plot(pairs[:, 0], pairs[:, 1], styles[kind], color=RED, linewidth=1.8, label=kind)
    left.plot(1.0, 1.0, "o", color="white", markeredgecolor="black")
    name = r"\infty" if math.isinf(spec.depths[-1]) else f"{spec.depths[-1]:g}"
    left.set(
        xlabel="$s_1$",
        ylabel="$s_2$",
        title=rf"$S_{{{name}}}$ of two singular values",
        xlim=(values[0], values[-1]),
        ylim=(values[0], values[-1]),
        aspect="equal",
    )
    left.legend(loc="upper right", fontsize="small")
    for axis, kinds, title in (
        (others[0], CUTS[:1], "fixed determinant: least when equal"),
        (others[1], CUTS[1:], "fixed norm: largest when equal"),
    ):
        for colour, depth in zip(COLOURS, spec.depths, strict=False):
            label = r"L = \infty" if math.isinf(depth) else f"L = {depth:g}"
            for kind in kinds:
                curve = dataset["cut"].sel(depth=depth, kind=kind).to_numpy()
                axis.plot(
                    logs,
                    curve - curve[len(curve) // 2],
                    styles[kind],
                    color=colour,
                    label=f"${label}$" if len(kinds) == 1 else None,
                )
        if len(kinds) > 1:
            for kind in kinds:
                axis.plot([], [], styles[kind], color=REST, label=kind)
        axis.set(xlabel=r"$\ln(s_1/s_2)$", ylabel="entropy less that of equal values", title=title)
        axis.legend(loc="upper center" if len(kinds) == 1 else "lower center")
    return figure


def claims_surface(dataset: "xarray.Dataset", spec: Surface) -> list[Claim]:
    """Which way the entropy pushes at a fixed determinant and at a fixed norm."""
    claims = []
    middle = len(dataset["log_ratio"]) // 2
    away = np.arange(len(dataset["log_ratio"])) != middle
    for depth in spec.depths:
        name = "∞" if math.isinf(depth) else f"{depth:g}"
        rises = {}
        for kind in CUTS:
            curve = dataset["cut"].sel(depth=depth, kind=kind).to_numpy()
            rises[kind] = (curve - curve[middle])[away]
        claims.append(
            Claim.at_least(
                f"Depth {name}, fixed determinant: equal values have least entropy", rises[CUTS[0]].min(), 1e-9
            )
        )
        if depth == 2:
            claims.append(
                Claim.at_most(
                    "Depth 2, fixed nuclear norm: the entropy ½ ln(s_1 + s_2) does not change: largest change",
                    np.max(np.abs(rises[CUTS[1]])),
                    1e-12,
                )
            )
        else:
            claims.append(
                Claim.at_most(
                    f"Depth {name}, fixed nuclear norm: equal values have most entropy", rises[CUTS[1]].max(), -1e-9
                )
            )
        claims.append(
            Claim.at_most(
                f"Depth {name}, fixed Frobenius norm: equal values have most entropy", rises[CUTS[2]].max(), -1e-9
            )
        )
    claims.append(
        Claim.between(
            "(1, 1, 1) has more entropy than (1.6, 1, 0.4), at infinite depth, by",
            float(dataset["gain"]),
            0.2085,
            0.2095,
        )
    )
    return claims


# --- Registered -------------------------------------------------------------------------------------------------------

EXPERIMENTS = (
    Experiment(
        id="geometry/entropy-surface",
        source="Section 4.3, after Remark 4.3.1",
        shows="The entropy of two singular values: least for equal ones at a fixed determinant, largest for equal ones "
        "at a fixed norm.",
        presets={"quick": Surface(points=61), "paper": Surface()},
        run=run_surface,
        plot=plot_surface,
        claims=claims_surface,
        notes="Not in the thesis, which says that the entropy is large for spread values; that holds at a fixed "
        "determinant only.",
    ),
)
