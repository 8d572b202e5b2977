"""Completion of a matrix of low rank by networks of several depths."""

import dataclasses
import itertools
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import Params, check_count, check_number
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.network._layers import gaussian_layers
from deeplinear.models import Completion, DeepLinear, Problem
from deeplinear.plots import COLOURS, PANEL, REST
from deeplinear.probes import HeldOutError, loss, product_effective_rank, singular_values

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

UNSEEN = {1: 1.000, 2: 0.232, 3: 0.0024}
"""Recorded relative errors on unseen entries, for seed 0, rank 1, half of the entries."""

RANKS = {1: 3.81, 2: 1.13, 3: 1.004}
"""Recorded effective ranks of the limits there."""

UNSEEN_RANK_TWO = 9.6e-4
"""Recorded error for rank 2 and seven tenths of the entries, at depth 3."""


@dataclasses.dataclass(frozen=True)
class LowRank:
    """A matrix of low rank, learnt from some of its entries by networks of several depths."""

    size: int = 8
    rank: int = 1
    observed: float = 0.5
    depths: tuple[int, ...] = (1, 2, 3)
    scales: tuple[float, ...] = (0.03, 0.01, 0.03)
    horizons: tuple[float, ...] = (200.0, 300.0, 2000.0)
    points: int = 120
    rtol: float = 1e-9
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("LowRank", "size", self.size, at_least=2)
        check_count("LowRank", "rank", self.rank, at_least=1, at_most=self.size)
        check_number("LowRank", "observed", self.observed, above=0, at_most=1)
        check_count("LowRank", "points", self.points, at_least=3)
        if not len(self.depths) == len(self.scales) == len(self.horizons):
            raise ValueError(
                f"LowRank: depths, scales and horizons must be of one length, but have {len(self.depths)}, "
                f"{len(self.scales)} and {len(self.horizons)}."
            )
        for depth, scale, horizon in zip(self.depths, self.scales, self.horizons, strict=True):
            check_count("LowRank", "depths", depth, at_least=1)
            check_number("LowRank", "scales", scale, above=0)
            check_number("LowRank", "horizons", horizon, above=1e-2)

    def drawn(self, depth: int, scale: float) -> tuple[np.ndarray, np.ndarray, Params]:
        """Target of Frobenius norm equal to its size, mask, layers: from one generator, in this order."""
        rng = np.random.default_rng(self.seed)
        target = rng.standard_normal((self.size, self.rank)) @ rng.standard_normal((self.rank, self.size))
        target *= self.size / np.linalg.norm(target)
        mask = rng.random((self.size, self.size)) < self.observed
        return target, mask, gaussian_layers(rng, DeepLinear((self.size,) * (depth + 1)).shapes, scale)


def run_completion(spec: LowRank, context: Context) -> "xarray.Dataset":
    """Errors on seen and unseen entries, ranks and singular values over time, for every depth."""
    import xarray

    def learn(part: tuple[int, float, float]) -> "xarray.Dataset":
        depth, scale, horizon = part
        target, mask, start = spec.drawn(depth, scale)
        run = context.complete(
            simulate(
                Problem(DeepLinear((spec.size,) * (depth + 1)), Completion(target, mask)),
                start,
                GradientFlow(spec.rtol),
                times=np.concatenate([[0.0], np.geomspace(1e-2, horizon, spec.points - 1)]),
                probes=(loss, HeldOutError(target, mask), product_effective_rank, singular_values),
                progress=context.watch,
            )
        )
        unseen = np.sqrt(np.mean(target[~mask] ** 2))
        return xarray.Dataset(
            {
                "time": ("point", np.asarray(run.times)),
                "loss": ("point", run["loss"], {"long_name": "loss on the entries that are seen"}),
                "unseen_error": ("point", np.asarray(run["held_out_error"]) / unseen),
                "effective_rank": ("point", run["product_effective_rank"]),
                "singular_value": (("point", "mode"), run["singular_values"]),
            }
        )

    parts = list(zip(spec.depths, spec.scales, spec.horizons, strict=True))
    found = context.each(learn, parts, lambda part: f"depth {part[0]}")
    dataset = xarray.concat(found, dim=xarray.IndexVariable("depth", list(spec.depths)))
    _, mask, _ = spec.drawn(1, 1.0)
    return dataset.assign(observed=int(mask.sum()))


def plot_completion(dataset: "xarray.Dataset", spec: LowRank) -> "Figure":
    """Error on unseen entries and effective rank over time, one colour for each depth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * PANEL[0], 1.15 * PANEL[1]), layout="constrained")
    left, right = figure.subplots(1, 2)
    for k, depth in enumerate(spec.depths):
        curve = dataset.sel(depth=depth).isel(point=slice(1, None))
        label = f"$L = {depth}$"
        left.loglog(curve["time"], curve["unseen_error"], color=COLOURS[k], label=label)
        right.semilogx(curve["time"], curve["effective_rank"], color=COLOURS[k], label=label)
    left.set(xlabel="time $t$", ylabel="error, unseen entries")
    right.axhline(spec.rank, color=REST, linestyle="--", label="rank of the target")
    right.set(xlabel="time $t$", ylabel="effective rank")
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def claims_completion(dataset: "xarray.Dataset", spec: LowRank) -> list[Claim]:
    """Depth finds the unseen entries; one layer does not."""
    end = dataset.isel(point=-1)
    errors = {depth: float(end["unseen_error"].sel(depth=depth)) for depth in spec.depths}
    bounds = {2: 0.4, 3: 0.02}
    claims = []
    if 1 in errors:
        claims.append(Claim.at_least("One layer leaves unseen entries where they were: relative error", errors[1], 0.9))
    if spec.rank == 1:
        claims += [
            Claim.at_most(f"{depth} layers from a small start find them: relative error", errors[depth], bound)
            for depth, bound in bounds.items()
            if depth in errors
        ]
    ordered = sorted(errors)
    if len(ordered) > 1:
        ratio = max(errors[b] / errors[a] for a, b in itertools.pairwise(ordered))
        claims.append(Claim.at_most("Each further layer finds them better: largest ratio of errors", ratio, 1.0))
    chosen = {name: getattr(spec, name) for name in ("points", "rtol", "depths", "scales", "horizons")}
    same = dataclasses.replace(LowRank(), **chosen)
    recorded = dict(zip(LowRank().depths, zip(LowRank().scales, LowRank().horizons, strict=True), strict=True))
    if spec == same:
        claims.append(Claim.between("Entries that are seen", int(dataset["observed"]), 33, 33))
        for depth, scale, horizon in zip(spec.depths, spec.scales, spec.horizons, strict=True):
            if recorded.get(depth) == (scale, horizon):
                off = abs(errors[depth] / UNSEEN[depth] - 1)
                rank = float(end["effective_rank"].sel(depth=depth))
                claims += [
                    Claim.at_most(
                        f"Recorded error {UNSEEN[depth]:g} at depth {depth}: relative distance",
                        off,
                        0.03 if depth == 3 else 0.005,
                        "As many digits as were recorded.",
                    ),
                    Claim.at_most(
                        f"Recorded effective rank {RANKS[depth]:g} at depth {depth}: relative distance",
                        abs(rank / RANKS[depth] - 1),
                        0.005,
                    ),
                ]
    two = dataclasses.replace(RANK_TWO, points=spec.points, rtol=spec.rtol)
    if spec == two:
        off = abs(errors[3] / UNSEEN_RANK_TWO - 1)
        claims.append(Claim.at_most("Recorded error 9.6e-4 for rank 2: relative distance", off, 0.02))
    return claims


RANK_TWO = LowRank(rank=2, observed=0.7, depths=(3,), scales=(0.03,), horizons=(2000.0,))
"""A matrix of rank two, from seven tenths of its entries."""

EXPERIMENTS = (
    Experiment(
        id="network/completion",
        source="Section 7, underdetermined problems",
        shows="A matrix of rank one learnt from half of its entries: one layer leaves the others where they started, "
        "two layers find them roughly, three layers to a few parts in a thousand.",
        presets={
            "quick": LowRank(points=40, rtol=1e-6),
            "paper": LowRank(),
            "rank-2": RANK_TWO,
        },
        run=run_completion,
        plot=plot_completion,
        claims=claims_completion,
        notes="The survey says so in words only. 8 × 8, half of the entries, starts and horizons are our choice.",
    ),
)
