"""Effective rank of the limit over random trials: two patterns of 2 x 2 matrices, and all patterns of 3 x 3."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import check_count, random
from deeplinear.experiments._base import Claim, Context, Experiment, seed_key
from deeplinear.experiments.catalog.completion._flows import (
    Limits,
    at_most_scale,
    check_depths,
    check_flow,
    check_positive,
    flow_limits,
    legend_above,
    look,
    normal_layers,
    panels,
    scale_axis,
)
from deeplinear.models import connected_mask, connectivity, disconnected_mask, unique_patterns

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

SMALL = 1e-5
"""Scale from which on a start counts as small."""

DIMS = ("depth", "pattern", "scale", "trial")


@dataclasses.dataclass(frozen=True)
class RankSpec:
    r"""Random completion problems over depths and scales.

    Attributes:
        depths: Numbers of layers.
        scales: $\alpha^L$; layers have entries of standard deviation $\alpha$.
        trials: Ground truths and starts for each point.
        loss_below: Loss to stop at.
        rtol: Relative tolerance of the flow.
        max_steps: Steps of one flow at most.
        seed: Of truths and starts.
    """

    depths: tuple[int, ...] = (2, 3, 4)
    scales: tuple[float, ...] = (1e-1, 1e-3, 1e-5, 1e-7)
    trials: int = 300
    loss_below: float = 1e-8
    rtol: float = 1e-6
    max_steps: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_depths("RankSpec", self.depths)
        check_positive("RankSpec", "scales", self.scales)
        check_count("RankSpec", "trials", self.trials, at_least=2)
        check_count("RankSpec", "seed", self.seed)
        check_flow("RankSpec", self.rtol, self.loss_below, self.max_steps)


def _compute(spec: RankSpec, context: Context, name: str, masks: np.ndarray, shared: bool) -> dict[str, Any]:
    """Variables over depth, pattern, scale and trial; with `shared` all patterns see the same truths and starts."""
    width, count = masks.shape[-1], spec.trials if shared else spec.trials * len(masks)

    def by_pattern(array: Any) -> np.ndarray:
        grouped = np.reshape(array, (-1, 1, spec.trials, *np.shape(array)[1:]))
        return np.broadcast_to(grouped, (len(masks), *grouped.shape[1:]))

    left, right = (random.normal(seed_key(spec.seed, name, side), (count, width)) for side in ("left", "right"))
    truth = by_pattern(left[:, :, None] * right[:, None, :])

    def train(depth: int) -> Limits:
        alpha = np.asarray(spec.scales)[:, None, None, None] ** (1 / depth)
        draws = normal_layers(seed_key(spec.seed, name, "start", depth), depth, count, width)
        return flow_limits(
            context,
            truth,
            masks[:, None, None],
            [alpha * by_pattern(draw) for draw in draws],
            rtol=spec.rtol,
            below=spec.loss_below,
            max_steps=spec.max_steps,
        )

    found = context.each(train, spec.depths, "depth {}".format)
    words = {"effective_rank": "effective rank of the limit", "loss": "loss reached", "time": "time of the flow"}
    variables: dict[str, Any] = {
        variable: (DIMS, np.stack([getattr(one, variable) for one in found]), {"long_name": text, "units": "1"})
        for variable, text in words.items()
    }
    attributes = {"long_name": f"whether the loss fell to {spec.loss_below:g}"}
    return variables | {"finished": (DIMS, np.stack([one.finished for one in found]), attributes)}


def _coordinates(spec: RankSpec) -> dict[str, Any]:
    return {
        "depth": ("depth", list(spec.depths), {"long_name": "number of layers L"}),
        "scale": ("scale", list(spec.scales), {"long_name": "scale of the start, alpha to the power L", "units": "1"}),
    }


def _summary(ranks: "xarray.DataArray", over: tuple[str, ...]) -> tuple["xarray.DataArray", "xarray.DataArray"]:
    """Mean over members and its standard error."""
    count = np.prod([ranks.sizes[name] for name in over])
    return ranks.mean(over), ranks.std(over, ddof=1) / np.sqrt(count)


def _finished(dataset: "xarray.Dataset", spec: RankSpec) -> Claim:
    return Claim.at_most(
        f"Flows that did not reach loss {spec.loss_below:g} within {spec.max_steps} steps; they are kept in the means.",
        float((~dataset["finished"]).sum()),
        0,
    )


def _small(statement: str, ranks: "xarray.Dataset", bound: float) -> Claim:
    """The largest mean effective rank at small scales should be close to one."""
    part = at_most_scale(ranks, SMALL)["mean"]
    if part.size == 0:
        return Claim.untold(
            statement, f"at most {bound:g}", f"No depth, or no scale of at most {SMALL:g}, in this size."
        )
    return Claim.at_most(statement, float(part.max()), bound)


# --- Two patterns -----------------------------------------------------------------------------------------------------


def _run_two(spec: RankSpec, context: Context) -> "xarray.Dataset":
    import xarray

    masks = np.stack([disconnected_mask(), connected_mask()])
    coordinates = _coordinates(spec) | {"pattern": ["disconnected", "connected"]}
    variables = _compute(spec, context, "fig1", masks, shared=True)
    variables["mask"] = (("pattern", "row", "column"), masks)
    dataset = xarray.Dataset(variables, coordinates)
    dataset["mean"], dataset["standard_error"] = _summary(dataset["effective_rank"], ("trial",))
    return dataset


def _plot_two(dataset: "xarray.Dataset", spec: RankSpec) -> "Figure":
    figure, axes = panels(2)
    titles = {"disconnected": r"diagonal observed, $M_D$", "connected": r"first column observed, $M_C$"}
    for panel, (pattern, title) in zip(axes, titles.items(), strict=True):
        for position, depth in enumerate(spec.depths):
            part = dataset.sel(pattern=pattern, depth=depth)
            panel.errorbar(
                part["scale"],
                part["mean"],
                part["standard_error"],
                label=f"depth {depth}",
                capsize=2,
                **look(position),
            )
        panel.set_title(title)
        scale_axis(panel)
    axes[0].set_ylabel("mean effective rank")
    legend_above(figure, axes[0], len(spec.depths))
    return figure


def _claims_two(dataset: "xarray.Dataset", spec: RankSpec) -> list[Claim]:
    diagonal, column = (dataset.sel(pattern=name) for name in ("disconnected", "connected"))
    claims = [_finished(dataset, spec)]
    low, high = 1.2, 1.45
    if 2 in spec.depths:
        means = diagonal["mean"].sel(depth=2)
        for which, value in (("lowest", means.min()), ("highest", means.max())):
            text = (
                f"Depth 2, diagonal observed: rank 2 whatever the scale; {which} mean effective rank over the scales."
            )
            claims.append(Claim.between(text, float(value), low, high))
    small = at_most_scale(diagonal, 1e-3)["mean"]
    if small.sizes["depth"] > 1 and small.sizes["scale"]:
        text = "Diagonal observed, scales up to 0.001: deeper means lower rank; largest rise of the mean with depth."
        claims.append(Claim.at_most(text, float(small.diff("depth").max()), 0.01))
    deep = dataset["depth"] > 2
    text = f"Deeper than 2, diagonal observed, scales up to {SMALL:g}: rank 1; largest mean effective rank."
    claims.append(_small(text, diagonal.sel(depth=deep), 1.02))
    text = f"First column observed, scales up to {SMALL:g}: rank 1 at every depth; largest mean effective rank."
    claims.append(_small(text, column, 1.01))
    return claims


# --- All patterns -----------------------------------------------------------------------------------------------------


def _run_all(spec: RankSpec, context: Context) -> "xarray.Dataset":
    import xarray

    masks = np.stack(unique_patterns(3, 3, transpose=True, least=2, most=8))
    connected = np.array([connectivity(mask).connected for mask in masks])
    variables = _compute(spec, context, "fig4", masks, shared=False)
    variables["mask"] = (("pattern", "row", "column"), masks)
    coordinates = _coordinates(spec) | {"connected": ("pattern", connected)}
    dataset = xarray.Dataset(variables, coordinates)
    groups = [
        _summary(dataset["effective_rank"].sel(pattern=connected == kind), ("pattern", "trial"))
        for kind in (True, False)
    ]
    names = xarray.DataArray(["connected", "disconnected"], dims="group", name="group")
    for variable, parts in zip(("mean", "standard_error"), zip(*groups, strict=True), strict=True):
        dataset[variable] = xarray.concat(parts, dim=names)
    return dataset


def _plot_all(dataset: "xarray.Dataset", spec: RankSpec) -> "Figure":
    figure, axes = panels(2)
    counts = {"connected": int(dataset["connected"].sum()), "disconnected": int((~dataset["connected"]).sum())}
    for panel, (group, count) in zip(axes, counts.items(), strict=True):
        for position, depth in enumerate(spec.depths):
            part = dataset.sel(group=group, depth=depth)
            panel.errorbar(
                part["scale"],
                part["mean"],
                part["standard_error"],
                label=f"depth {depth}",
                capsize=2,
                **look(position),
            )
        panel.set_title(f"{count} {group} patterns")
        scale_axis(panel)
    axes[0].set_ylabel("mean effective rank")
    legend_above(figure, axes[0], len(spec.depths))
    return figure


def _claims_all(dataset: "xarray.Dataset", spec: RankSpec) -> list[Claim]:
    connected, apart = (dataset.sel(group=name) for name in ("connected", "disconnected"))
    claims = [
        Claim.between("Connected patterns up to symmetry.", float(dataset["connected"].sum()), 17, 17),
        Claim.between("Disconnected patterns up to symmetry.", float((~dataset["connected"]).sum()), 6, 6),
        _finished(dataset, spec),
    ]
    if 2 in spec.depths:
        text = "Depth 2, disconnected patterns: the effective rank stays up at every scale; lowest mean."
        claims.append(Claim.at_least(text, float(apart["mean"].sel(depth=2).min()), 1.35))
        text = f"Depth 2, connected patterns, scales up to {SMALL:g}: close to rank 1; largest mean effective rank."
        claims.append(_small(text, connected.sel(depth=[2]), 1.15))
    deep = dataset["depth"] > 2
    for group, part in (("connected", connected), ("disconnected", apart)):
        text = f"Deeper than 2, {group} patterns, scales up to {SMALL:g}: rank 1; largest mean effective rank."
        claims.append(_small(text, part.sel(depth=deep), 1.03))
    statement = (
        f"The gap between depth 2 and deeper is more pronounced for disconnected patterns: how much wider it is, mean "
        f"over the scales up to {SMALL:g}."
    )
    part = at_most_scale(dataset, SMALL)["mean"]
    if 2 in spec.depths and bool(deep.any()) and part.size:
        gap = (part.sel(depth=2) - part.sel(depth=deep).mean("depth")).mean("scale")
        wider = gap.sel(group="disconnected") - gap.sel(group="connected")
        claims.append(Claim.at_least(statement, float(wider), 0.2))
    else:
        claims.append(Claim.untold(statement, "at least 0.2", "Needs depth 2, a deeper one and a small scale."))
    return claims


COMMON = (
    "The paper gives neither depths nor scales nor the stopping rule in its text. Chosen: depths 2, 3, 4; scales "
    "1e-1, 1e-3, 1e-5, 1e-7 with alpha = scale^(1/L), gradient flow to loss 1e-8. At one depth the scales see the same "
    "truths and the same starts up to their size, so that curves differ by the scale alone; depths share the truths. "
    "Error bars are standard errors. "
)

EXPERIMENTS = (
    Experiment(
        id="completion/fig1",
        source="Figure 1",
        shows="With the diagonal of a rank-1 2 x 2 matrix observed, depth 2 ends at rank 2 at any scale of the start, "
        "deeper networks at rank 1 for small ones; with a column observed all end at rank 1.",
        presets={
            "quick": RankSpec(depths=(2, 3), scales=(1e-1, 1e-3, 1e-5), trials=100),
            "paper": RankSpec(),
            "large": RankSpec(depths=(2, 3, 4, 5), trials=10_000),
        },
        run=_run_two,
        plot=_plot_two,
        claims=_claims_two,
        notes=COMMON + "Both patterns see the same truths and starts. Panel (a), the two graphs, is not drawn.",
    ),
    Experiment(
        id="completion/fig4",
        source="Figure 4",
        shows="Mean effective rank over all connected and all disconnected patterns of 3 x 3 matrices: only depth 2 on "
        "disconnected patterns keeps a high rank for small starts.",
        presets={
            "quick": RankSpec(depths=(2, 3), scales=(1e-1, 1e-3, 1e-5), trials=10),
            "paper": RankSpec(trials=10),
            "large": RankSpec(depths=(2, 3, 4, 5), trials=500),
        },
        run=_run_all,
        plot=_plot_all,
        claims=_claims_all,
        notes=COMMON + "The 23 patterns are those up to permutations and transposition without the empty one, the "
        "single entry and the full one. Each pattern has truths and starts of its own.",
    ),
)
