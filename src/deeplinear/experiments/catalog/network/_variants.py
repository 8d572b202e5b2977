"""Variants of the flow: completion of a matrix, descent beside the flow, a skip connection, a bottleneck."""

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from deeplinear.core import Params, Trajectory, check_count, check_number, flatten
from deeplinear.dynamics import GradientDescent, GradientFlow, ensemble, simulate
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.landscape import diagonal_target
from deeplinear.models import (
    Completion,
    DeepLinear,
    Masked,
    Problem,
    SkipNetwork,
    SquaredDistance,
    skip_network,
    surviving_laws,
)
from deeplinear.plots import COLOURS, PANEL, REST
from deeplinear.probes import HeldOutError, loss, probe, product_effective_rank, singular_values

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@probe(dims=("weight",))
def weights(t: Any, params: Params, problem: Problem) -> Any:
    """All entries of all layers."""
    return flatten(params)


def _layers(run: Trajectory, shapes: tuple[tuple[int, int], ...]) -> list[np.ndarray]:
    """Recorded layers, each with a leading axis of times."""
    cuts = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
    pieces = np.split(np.asarray(run["weights"]), cuts, axis=-1)
    return [piece.reshape(*piece.shape[:-1], *shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _gaussian(rng: np.random.Generator, shapes: tuple[tuple[int, int], ...], scale: float) -> Params:
    return tuple(jnp.asarray(scale * rng.standard_normal(shape), dtype=float) for shape in shapes)


def _laws(layers: list[np.ndarray]) -> list[np.ndarray]:
    """W_{l+1}ᵀW_{l+1} − W_lW_lᵀ at all times."""
    return [
        np.swapaxes(above, -1, -2) @ above - below @ np.swapaxes(below, -1, -2)
        for below, above in itertools.pairwise(layers)
    ]


# --- Completion -------------------------------------------------------------------------------------------------------

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
        return target, mask, _gaussian(rng, DeepLinear((self.size,) * (depth + 1)).shapes, scale)


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

# --- Descent beside the flow ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Descent:
    """Gradient descent with learning rates that are halved, to one time."""

    widths: tuple[int, ...] = (4, 3, 3, 2)
    sigma: tuple[float, ...] = (2.0, 1.0)
    scale: float = 0.6
    horizon: float = 2.0
    coarsest: int = 64
    halvings: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        network = DeepLinear(self.widths)
        if network.depth < 2:
            raise ValueError(f"Descent: widths must have a hidden layer, but is {self.widths}.")
        if len(self.sigma) != min(self.widths[0], self.widths[-1]):
            raise ValueError(f"Descent: sigma must have one number for each mode of widths {self.widths}.")
        for name in ("scale", "horizon"):
            check_number("Descent", name, getattr(self, name), above=0)
        check_count("Descent", "coarsest", self.coarsest, at_least=1)
        check_count("Descent", "halvings", self.halvings, at_least=1, at_most=12)

    @property
    def steps(self) -> list[int]:
        """Numbers of steps to the horizon, one for each learning rate."""
        return [self.coarsest * 2**k for k in range(self.halvings + 1)]

    @property
    def target(self) -> np.ndarray:
        """The diagonal target."""
        return np.asarray(diagonal_target(jnp.asarray(self.sigma, dtype=float), self.widths[-1], self.widths[0]))

    def drawn(self) -> tuple[Problem, Params]:
        """The problem, and layers from the generator of the seed."""
        network = DeepLinear(self.widths)
        start = _gaussian(np.random.default_rng(self.seed), network.shapes, self.scale)
        return Problem(network, SquaredDistance(self.target)), start


def run_descent(spec: Descent, context: Context) -> "xarray.Dataset":
    """Drift of the conserved quantities step by step, and the distance from the flow at the end."""
    import xarray

    problem, start = spec.drawn()
    shapes = problem.model.shapes
    flow = context.complete(
        simulate(
            problem,
            start,
            GradientFlow(1e-12),
            times=np.linspace(0, spec.horizon, spec.coarsest + 1),
            probes=(loss, weights),
            progress=context.watch,
        )
    )
    end = np.asarray(flow["weights"])[-1]
    rows = []
    for number, steps in enumerate(spec.steps):
        lr = spec.horizon / steps
        run = context.complete(
            simulate(
                problem,
                start,
                GradientDescent(lr),
                times=np.arange(steps + 1),
                probes=(loss, weights),
                progress=context.watch,
            )
        )
        layers = _layers(run, shapes)
        laws = _laws(layers)
        # Gradients by plain products, from the layers that were recorded.
        before = [np.broadcast_to(np.eye(spec.widths[0]), (steps + 1, spec.widths[0], spec.widths[0]))]
        for layer in layers:
            before.append(layer @ before[-1])
        back, speeds = spec.target - before[-1], []
        for k in range(len(layers) - 1, -1, -1):
            speeds.insert(0, back @ np.swapaxes(before[k], -1, -2))
            back = np.swapaxes(layers[k], -1, -2) @ back
        told = [lr**2 * law[:-1] for law in _laws(speeds)]
        changes = [np.diff(law, axis=0) for law in laws]
        size = max(np.max(np.abs(law)) for law in laws)
        drift = np.max([np.linalg.norm(law - law[0], axis=(1, 2)) for law in laws], axis=0)
        rows.append(
            {
                "lr": lr,
                "first_change": max(np.linalg.norm(change[0]) for change in changes),
                "identity": max(np.max(np.abs(c - t)) for c, t in zip(changes, told, strict=True)) / size,
                "drift": drift[:: steps // spec.coarsest],
                "error": np.linalg.norm(np.asarray(run["weights"])[-1] - end),
                "loss": np.asarray(run["loss"])[:: steps // spec.coarsest],
            }
        )
        context.progress((number + 1) / len(spec.steps), f"{steps} steps")
    flow_laws = _laws(_layers(flow, shapes))
    return xarray.Dataset(
        {
            **{
                name: (dims, [row[name] for row in rows], {"long_name": words})
                for name, dims, words in (
                    ("first_change", ("lr",), "change of C in the first step"),
                    ("identity", ("lr",), "what the exact drift is missed by, relative"),
                    ("drift", ("lr", "time"), "largest change of C since the start"),
                    ("error", ("lr",), "distance of the weights from the flow"),
                    ("loss", ("lr", "time"), "loss"),
                )
            },
            "flow_loss": ("time", flow["loss"]),
            "flow_drift": max(np.max(np.linalg.norm(law - law[0], axis=(1, 2))) for law in flow_laws),
        },
        coords={"lr": [row["lr"] for row in rows], "time": np.asarray(flow.times)},
    )


def plot_descent(dataset: "xarray.Dataset", spec: Descent) -> "Figure":
    """Left: powers of the learning rate. Right: the drift over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * PANEL[0], 1.2 * PANEL[1]), layout="constrained")
    left, right = figure.subplots(1, 2)
    lr = dataset["lr"].to_numpy()
    names = (
        ("first_change", r"$\|\Delta C\|$ in one step", 2, "o"),
        ("drift", r"$\|C(T) - C(0)\|$", 1, "s"),
        ("error", r"$\|W(T) - W_{\mathrm{flow}}(T)\|$", 1, "^"),
    )
    for k, (name, label, power, marker) in enumerate(names):
        values = (dataset[name].isel(time=-1) if name == "drift" else dataset[name]).to_numpy()
        left.loglog(lr, values, marker=marker, color=COLOURS[k], linestyle="none", label=label)
        left.loglog(lr, values[-1] * (lr / lr[-1]) ** power, color=COLOURS[k], linewidth=0.9, alpha=0.7)
    left.set(xlabel=r"learning rate $\eta$ (lines: slopes 2, 1, 1)")
    left.set_xticks(lr[::2], [f"1/{1 / value:g}" for value in lr[::2]])
    left.minorticks_off()
    left.legend(loc="lower right")
    shown = dataset["drift"].isel(time=slice(1, None))
    for k, value in enumerate(lr):
        colour = COLOURS[k] if k < len(COLOURS) else REST
        right.semilogy(shown["time"], shown.sel(lr=value), color=colour, label=rf"$\eta = 1/{1 / value:g}$")
    right.set(xlabel="time $t = \\eta n$", ylabel=r"$\max_l \|C_l(t) - C_l(0)\|_F$")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def claims_descent(dataset: "xarray.Dataset", spec: Descent) -> list[Claim]:
    """Drift goes with the square of the step; descent approaches the flow to first order."""
    change, error = dataset["first_change"].to_numpy(), dataset["error"].to_numpy()
    total = dataset["drift"].isel(time=-1).to_numpy()
    fours = change[:-1] / change[1:]
    claims = [
        Claim.at_most(
            "C changes by η²(GᵀG − GGᵀ) in every step of every run: largest relative error",
            dataset["identity"].max(),
            1e-13,
        ),
        Claim.at_most(
            "Half the step, a quarter of the change in the first step: largest distance of the ratio from 4",
            float(np.max(np.abs(fours - 4))),
            1e-6,
            "Rounding of differences of C of order one.",
        ),
        Claim.at_most(
            "Along the flow C does not change: largest change", dataset["flow_drift"], 1e-9, "Error of the integrator."
        ),
    ]
    for name, values in (("distance from the flow", error), ("whole drift", total)):
        ratios = values[:-1] / values[1:]
        claims += [
            Claim.between(f"Half the step, half the {name}: {where} ratio", ratio, 1.8, 2.2)
            for where, ratio in (("smallest", ratios.min()), ("largest", ratios.max()))
        ]
    return claims


# --- A skip connection ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Skip:
    """A network with an identity from one layer to a later one."""

    widths: tuple[int, ...] = (4, 3, 5, 3, 2)
    start: int = 1
    length: int = 2
    sigma: tuple[float, ...] = (2.0, 1.0)
    scale: float = 0.6
    horizon: float = 1.5
    points: int = 61
    seed: int = 0

    def __post_init__(self) -> None:
        skip_network(self.widths, self.start, self.length)
        if len(self.sigma) != min(self.widths[0], self.widths[-1]):
            raise ValueError(f"Skip: sigma must have one number for each mode of widths {self.widths}.")
        for name in ("scale", "horizon"):
            check_number("Skip", name, getattr(self, name), above=0)
        check_count("Skip", "points", self.points, at_least=2)

    def drawn(self) -> tuple[SkipNetwork, Problem, Params]:
        """The network, its problem, and layers of the chain."""
        skip = skip_network(self.widths, self.start, self.length)
        start = _gaussian(np.random.default_rng(self.seed), DeepLinear(self.widths).shapes, self.scale)
        target = diagonal_target(jnp.asarray(self.sigma, dtype=float), self.widths[-1], self.widths[0])
        return skip, Problem(skip.model, SquaredDistance(target)), skip.embed(start)


def run_skip(spec: Skip, context: Context) -> "xarray.Dataset":
    """Change of the conserved quantities of the network's own units, with the skip and without it."""
    import xarray

    skip, problem, start = spec.drawn()
    times = np.linspace(0, spec.horizon, spec.points)
    # Without the skip: the same chain, whose further units carry nothing, so that both runs share compiled code.
    nothing = Masked(skip.model.model, skip.model.masks)
    runs = context.complete(
        ensemble(
            [problem, Problem(nothing, problem.loss)],
            [start, nothing.complete(start)],
            GradientFlow(1e-12),
            times=times,
            probes=(loss, weights),
            progress=context.watch,
        )
    )
    chain, plain = (_layers(runs.member(k), skip.model.shapes) for k in range(2))
    own, alone = (
        [c[:, :width, :width] for c, width in zip(_laws(layers), spec.widths[1:-1], strict=True)]
        for layers in (chain, plain)
    )
    moved = [[np.linalg.norm(c - c[0], axis=(1, 2)) for c in laws] for laws in (own, alone)]
    first, last = spec.start, spec.start + spec.length
    inside = first > 0 and last < len(spec.widths) - 1
    total = own[first - 1] + own[last - 1] if inside else np.zeros((spec.points, 1, 1))
    told = surviving_laws(skip.model)
    everywhere = [np.abs(c - c[0]).max(axis=0) for c in _laws(chain)]
    survive = max(float(c[kept].max(initial=0.0)) for c, kept in zip(everywhere, told, strict=True))
    fixed = max(
        float(np.abs(np.where(np.asarray(m), 0, w - w[0])).max()) for m, w in zip(skip.model.masks, chain, strict=True)
    )
    return xarray.Dataset(
        {
            "drift": (("kind", "interface", "time"), np.stack(moved)),
            "sum_of_ends": ("time", np.linalg.norm(total - total[0], axis=(1, 2))),
            "loss": (("kind", "time"), np.asarray(runs["loss"])),
            "survivors": survive,
            "fixed": fixed,
        },
        coords={"kind": ["skip", "plain"], "interface": np.arange(1, len(spec.widths) - 1), "time": times},
    )


def plot_skip(dataset: "xarray.Dataset", spec: Skip) -> "Figure":
    """Left: change of each law. Right: the loss with and without the skip."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * PANEL[0], 1.1 * PANEL[1]), layout="constrained")
    left, right = figure.subplots(1, 2)
    shown = dataset.isel(time=slice(1, None))
    ends = (spec.start, spec.start + spec.length)
    for k, interface in enumerate(dataset["interface"].to_numpy()):
        curve = shown["drift"].sel(kind="skip", interface=interface)
        # The two ends move by the same amount: the second one is drawn thin over the first.
        style, width = ("--", 1.2) if interface == ends[1] else ("-", 3.0)
        values, label = np.maximum(curve, 1e-17), f"$C_{interface}$"
        left.semilogy(shown["time"], values, color=COLOURS[k], linestyle=style, linewidth=width, label=label)
    if ends[0] > 0 and ends[1] < len(spec.widths) - 1:
        label = f"$C_{ends[0]} + C_{ends[1]}$"
        total = np.maximum(shown["sum_of_ends"], 1e-17)
        left.semilogy(shown["time"], total, color=COLOURS[-1], linestyle=":", label=label)
    left.set(xlabel="time $t$", ylabel=r"$\|C_l(t) - C_l(0)\|_F$, own units")
    left.legend(loc="center right")
    for k, (kind, label) in enumerate((("skip", f"skip {ends[0]} → {ends[1]}"), ("plain", "no skip"))):
        right.plot(dataset["time"], dataset["loss"].sel(kind=kind), color=COLOURS[k], label=label)
    right.set(xlabel="time $t$", ylabel="loss")
    right.set_ylim(bottom=0)
    right.legend()
    return figure


def claims_skip(dataset: "xarray.Dataset", spec: Skip) -> list[Claim]:
    """Laws break at the two ends of the skip and nowhere else."""
    ends = (spec.start, spec.start + spec.length)
    hidden = [int(i) for i in dataset["interface"]]
    largest = dataset["drift"].sel(kind="skip").max("time")
    claims = [
        Claim.at_least(
            f"At layer {end}, an end of the skip, the law of its units breaks: largest change of C",
            largest.sel(interface=end),
            0.01,
            "0.26 was recorded for a start that is not told.",
        )
        for end in ends
        if end in hidden
    ]
    others = [i for i in hidden if i not in ends]
    if others:
        claims.append(
            Claim.at_most(
                "At the other hidden layers it holds: largest change of C", largest.sel(interface=others).max(), 1e-9
            )
        )
    if all(end in hidden for end in ends):
        claims.append(
            Claim.at_most(
                "What one end gains the other loses: largest change of the sum of both laws",
                dataset["sum_of_ends"].max(),
                1e-9,
                "Both ends see the same gradient of the fixed identity, with opposite signs.",
            )
        )
    claims += [
        Claim.at_most("All entries of C told to survive do: largest change", dataset["survivors"], 1e-9),
        Claim.at_most("Fixed weights do not move", dataset["fixed"], 0.0),
        Claim.at_most(
            "Without the skip all laws hold: largest change of C", dataset["drift"].sel(kind="plain").max(), 1e-9
        ),
    ]
    return claims


# --- A bottleneck -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Bottleneck:
    """A hidden layer with fewer units than the target has modes, from several starts."""

    widths: tuple[int, ...] = (4, 2, 3)
    sigma: tuple[float, ...] = (3.0, 2.0, 1.0)
    scale: float = 0.3
    horizon: float = 40.0
    points: int = 200
    starts: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        DeepLinear(self.widths)
        modes = min(self.widths[0], self.widths[-1])
        if min(self.widths) >= modes:
            raise ValueError(
                f"Bottleneck: a hidden layer must have fewer units than both ends, but widths is {self.widths}."
            )
        if len(self.sigma) != modes or any(a <= b for a, b in itertools.pairwise(self.sigma)) or self.sigma[-1] <= 0:
            raise ValueError(
                f"Bottleneck: sigma must hold {modes} positive numbers, largest first and all different, but is "
                f"{self.sigma}."
            )
        for name in ("scale", "horizon"):
            check_number("Bottleneck", name, getattr(self, name), above=0)
        check_count("Bottleneck", "points", self.points, at_least=3)
        check_count("Bottleneck", "starts", self.starts, at_least=1)


def run_bottleneck(spec: Bottleneck, context: Context) -> "xarray.Dataset":
    """Singular values of the product and loss over time, and how far the limit is from the truncated target."""
    import xarray

    network = DeepLinear(spec.widths)
    target = diagonal_target(jnp.asarray(spec.sigma, dtype=float), spec.widths[-1], spec.widths[0])
    rng = np.random.default_rng(spec.seed)
    starts = [_gaussian(rng, network.shapes, spec.scale) for _ in range(spec.starts)]
    times = np.concatenate([[0.0], np.geomspace(1e-2, spec.horizon, spec.points - 1)])
    run = context.complete(
        ensemble(
            Problem(network, SquaredDistance(target)),
            starts,
            GradientFlow(1e-10),
            times=times,
            probes=(loss, singular_values),
            progress=context.watch,
        )
    )
    products = np.asarray(run.params[0])
    for layer in run.params[1:]:
        products = np.asarray(layer) @ products
    left, values, right_t = np.linalg.svd(np.asarray(target), full_matrices=False)
    rank = min(spec.widths)
    best = (left[:, :rank] * values[:rank]) @ right_t[:rank]
    return xarray.Dataset(
        {
            "singular_value": (("start", "time", "mode"), run["singular_values"]),
            "loss": (("start", "time"), run["loss"]),
            "distance": ("start", np.abs(products - best).max(axis=(1, 2)), {"long_name": "from the truncated target"}),
        },
        coords={"time": times},
    )


def plot_bottleneck(dataset: "xarray.Dataset", spec: Bottleneck) -> "Figure":
    """Left: singular values of the product from all starts. Right: the loss, and what no such network can fit."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * PANEL[0], 1.2 * PANEL[1]), layout="constrained")
    left, right = figure.subplots(1, 2)
    rank = min(spec.widths)
    shown = dataset.isel(time=slice(1, None))
    for mode in range(len(spec.sigma)):
        for start in range(spec.starts):
            curve = shown["singular_value"].isel(start=start, mode=mode)
            label = f"$s_{mode + 1}$ of the product" if start == 0 else None
            left.semilogx(shown["time"], curve, color=COLOURS[mode], linewidth=0.8, alpha=0.6, label=label)
        label = r"$\sigma$ of the target" if mode == 0 else None
        left.axhline(spec.sigma[mode], color="#444444", linestyle=":", label=label)
    left.set(xlabel="time $t$", ylabel="singular value")
    rest = 0.5 * sum(value**2 for value in spec.sigma[rank:])
    for start in range(spec.starts):
        right.semilogx(shown["time"], shown["loss"].isel(start=start), color=COLOURS[0], linewidth=0.8, alpha=0.6)
    right.axhline(rest, color="#444444", linestyle=":")
    right.annotate(
        r"$\frac{1}{2}\sum_{i > d_{\min}} \sigma_i^2$",
        (float(shown["time"][0]), rest),
        xytext=(2, 14),
        textcoords="offset points",
    )
    right.set(xlabel="time $t$", ylabel="loss", ylim=(0, None))
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def claims_bottleneck(dataset: "xarray.Dataset", spec: Bottleneck) -> list[Claim]:
    """Every generic start ends at the truncated singular value decomposition."""
    rank = min(spec.widths)
    rest = 0.5 * sum(value**2 for value in spec.sigma[rank:])
    end = dataset.isel(time=-1)
    return [
        Claim.at_most(
            f"All {spec.starts} starts end at the truncated target: largest distance of an entry",
            dataset["distance"].max(),
            1e-6,
        ),
        Claim.at_most(
            "The loss ends at half the sum of squares of what is left out: largest distance",
            float(np.abs(end["loss"] - rest).max()),
            1e-6,
        ),
        Claim.at_most(
            "The product never has more than the rank of the bottleneck: largest further singular value",
            dataset["singular_value"].isel(mode=slice(rank, None)).max(),
            1e-12,
        ),
    ]


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
    Experiment(
        id="network/gd-drift",
        source="Section 7, equation 67",
        shows="Gradient descent beside the flow: conserved quantities drift with the square of the learning rate in "
        "each step, and so to first order in all; so does the distance from the flow.",
        presets={"quick": Descent(halvings=3), "paper": Descent()},
        run=run_descent,
        plot=plot_descent,
        claims=claims_descent,
        notes="The survey says that conservation does not hold exactly; the exact drift is derived.",
    ),
    Experiment(
        id="network/skip",
        source="Section 7, skip connections",
        shows="Flow of a network with an identity from layer 1 to layer 3: conserved quantities break at these two "
        "layers, with opposite signs, and hold at the one between.",
        presets={"quick": Skip(points=31), "paper": Skip()},
        run=run_skip,
        plot=plot_skip,
        claims=claims_skip,
        notes="The expansion printed in the survey ends one layer early; the one used here has the product it claims.",
    ),
    Experiment(
        id="network/bottleneck",
        source="Section 7, bottlenecked architectures",
        shows="A network with fewer hidden units than modes learns the largest ones: its limit is the truncated "
        "singular value decomposition of the target.",
        presets={"quick": Bottleneck(points=60, starts=6), "paper": Bottleneck()},
        run=run_bottleneck,
        plot=plot_bottleneck,
        claims=claims_bottleneck,
    ),
)
