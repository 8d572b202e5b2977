"""Arcs between critical points, chords between networks, and the graph of critical values with flows upon it."""

import dataclasses
import functools
import itertools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import Array, Params, Stack, Trajectory, check_count, check_number, norm, random
from deeplinear.dynamics import GradientFlow, ensemble, until
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.landscape import (
    CriticalGraph,
    Signature,
    arc_counts,
    arc_kind,
    arc_loss,
    arc_minimum,
    arc_point,
    chord_loss,
    chord_polynomial,
    critical_graph,
    gauge,
    itinerary,
    random_gauge,
    set_name,
)
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.plots import COLOURS, PANEL, draw_arc, draw_critical_graph, graph_width
from deeplinear.probes import gradient_norm, loss, product

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

EXACT = 1e-10
"""Relative: closed forms against losses of networks."""


def _task(widths: tuple[int, ...], sigma: tuple[float, ...]) -> Problem:
    target = np.zeros((widths[-1], widths[0]))
    np.fill_diagonal(target, sigma)
    return Problem(DeepLinear(widths), SquaredDistance(target))


# --- Figure 4 ---------------------------------------------------------------------------------------------------------

ARCS: tuple[tuple[Signature, Signature], ...] = (((1,), (1,)), ((1,), (1, 2)), ((1, 2), (1,)), ((1, 3), (2,)))
"""One arc of every kind."""

CHORDS = ("two layers with turned signs", "another basis of the hidden layers")
"""The chords that are shown: from a critical point to another network with the same product."""


@dataclasses.dataclass(frozen=True)
class Arcs:
    """A task for the arcs and one for the chords, with the networks that carry them out."""

    sigma: tuple[float, ...] = (10.0, 8.0, 6.0, 4.0)
    widths: tuple[int, ...] = (11, 6, 6, 6, 6, 4)
    chord_sigma: tuple[float, ...] = (3.0, 2.0, 1.0)
    chord_widths: tuple[int, ...] = (4, 3, 3, 3)
    points: int = 401
    condition: float = 3.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("Arcs", "points", self.points, at_least=11)
        check_number("Arcs", "condition", self.condition, at_least=1)
        check_count("Arcs", "seed", self.seed)
        if len(self.sigma) < 3:
            raise ValueError(f"Arcs: sigma must hold at least 3 values, but holds {len(self.sigma)}.")
        for widths in (self.widths, self.chord_widths):
            if len(widths) < 4:
                raise ValueError(f"Arcs: widths must name at least two hidden layers, but is {widths}.")


@jax.jit
def _measured(problem: Problem, many: Stack) -> tuple[Array, Array]:
    """Losses and norms of the gradient of several networks."""

    def one(layers: Params) -> tuple[Array, Array]:
        value, gradient = problem.value_and_gradient(layers)
        return value, norm(gradient)

    return jax.vmap(one)(many)


def run_arcs(spec: Arcs, context: Context) -> "xarray.Dataset":
    """Losses on the arcs by the closed form and of networks over them; losses on the chords."""
    import xarray

    places = np.linspace(0.0, 1.0, spec.points)
    problem, key = _task(spec.widths, spec.sigma), random.key(spec.seed)
    factors = [np.asarray(factor) for factor in random_gauge(key, spec.widths, condition=spec.condition)]
    outward = (*factors, np.eye(spec.widths[-1]))
    inward = (np.eye(spec.widths[0]), *(np.linalg.inv(factor) for factor in factors))

    told, found, slopes = [], [], []
    for start, end in ARCS:
        points = jax.jit(jax.vmap(functools.partial(arc_point, spec.sigma, spec.widths, start, end)))(places)
        moved = (after @ np.asarray(w) @ before for after, w, before in zip(outward, points, inward, strict=True))
        values, sizes = _measured(problem, tuple(jnp.asarray(w, dtype=float) for w in moved))
        told.append(np.asarray(arc_loss(spec.sigma, start, end, places)))
        found.append(np.asarray(values))
        slopes.append(np.asarray(sizes)[[0, -1]])
    context.progress(0.7, "arcs")

    small = _task(spec.chord_widths, spec.chord_sigma)
    point = arc_point(spec.chord_sigma, spec.chord_widths, (1,), (1,), 0.0)
    turned = (-point[0], -point[1], *point[2:])
    based = gauge(point, random_gauge(key, spec.chord_widths))
    chords = [np.asarray(chord_loss(small, point, other, places)) for other in (turned, based)]
    told_chords = [
        np.polynomial.polynomial.polyval(places, np.asarray(chord_polynomial(small, point, other)))
        for other in (turned, based)
    ]
    minima = [arc_minimum(spec.sigma, start, end) for start, end in ARCS]
    names = [f"{set_name(start)} to {set_name(end)}" for start, end in ARCS]
    counts = [arc_counts(len(spec.sigma), len(start)) for start, _ in ARCS]
    return xarray.Dataset(
        {
            "loss": (("arc", "alpha"), np.stack(told), {"long_name": "loss on the arc"}),
            "network_loss": (("arc", "alpha"), np.stack(found)),
            "end_gradient": (("arc", "end"), np.stack(slopes)),
            "kind": ("arc", [arc_kind(start, end) for start, end in ARCS]),
            "best_place": ("arc", [float(best.alpha) for best in minima]),
            "best_loss": ("arc", [float(best.value) for best in minima]),
            "unstable": ("arc", [count.decreasing for count in counts]),
            "stable": ("arc", [count.increasing for count in counts]),
            "chord_loss": (("chord", "alpha"), np.stack(chords), {"long_name": "loss on the chord"}),
            "chord_polynomial": (("chord", "alpha"), np.stack(told_chords)),
        },
        coords={"arc": names, "alpha": places, "end": ["start", "end"], "chord": list(CHORDS)},
    )


def plot_arcs_figure(dataset: "xarray.Dataset", spec: Arcs) -> "Figure":
    """The four kinds of arcs, and below them the chords."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.0 * PANEL[0], 3.0 * PANEL[1]), layout="constrained")
    grid = figure.add_gridspec(3, 2)
    for place, (start, end) in enumerate(ARCS):
        axes = figure.add_subplot(grid[place // 2, place % 2])
        draw_arc(axes, spec.sigma, start, end)
    axes = figure.add_subplot(grid[2, :])
    for chord, colour in zip(dataset["chord"].to_numpy(), (COLOURS[1], COLOURS[2]), strict=True):
        axes.plot(dataset["alpha"], dataset["chord_loss"].sel(chord=chord), color=colour, label=str(chord))
    level = float(dataset["chord_loss"].isel(chord=0, alpha=0))
    axes.axhline(level, color="#777777", linestyle=":", label="loss at both ends")
    axes.set_xlabel(r"place on the chord, $\alpha$")
    axes.set_ylabel("loss")
    axes.set_title("chords between the weights of networks with the same product")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=3)
    return figure


def _turns(losses: np.ndarray) -> tuple[int, int]:
    """Number of minima and of maxima inside, by the signs of differences beyond rounding."""
    steps = np.diff(losses)
    signs = np.sign(np.where(np.abs(steps) <= 1e-12 * np.max(np.abs(losses)), 0.0, steps))
    signs = signs[signs != 0]
    changes = np.diff(signs)
    return int(np.sum(changes > 0)), int(np.sum(changes < 0))


def claims_arcs(dataset: "xarray.Dataset", spec: Arcs) -> list[Claim]:
    """What the figure shows."""
    curves = dataset["loss"].to_numpy()
    scale = float(0.5 * np.sum(np.square(spec.sigma)))
    constant, falling, rising, mixed = curves
    claims = [
        Claim.at_most(
            "Networks over the arcs, in any basis of their hidden layers, have the losses of the closed form: largest "
            "difference, relative",
            float(abs(dataset["network_loss"] - dataset["loss"]).max()) / scale,
            EXACT,
            general=True,
        ),
        Claim.at_most(
            "The ends of the arcs are critical points: largest gradient, relative to the loss of the origin",
            float(dataset["end_gradient"].max()) / scale,
            EXACT,
        ),
        Claim.at_most(
            "Between equal signatures the loss is constant: its spread, relative",
            float(np.ptp(constant)) / scale,
            EXACT,
        ),
        Claim.at_most("To a larger signature it falls: largest step", float(np.diff(falling).max()), 0.0),
        Claim.at_least("To a smaller one it rises: smallest step", float(np.diff(rising).min()), 0.0),
        Claim.between(
            "A mixed arc has one minimum inside", _turns(mixed)[0], 1, 1, "It is a parabola, whatever the networks."
        ),
        Claim.at_most("A mixed arc has no maximum inside", _turns(mixed)[1], 0),
        Claim.at_least(
            "A chord between networks with the same product, two signs being turned, does have a maximum inside",
            _turns(dataset["chord_loss"].to_numpy()[0])[1],
            1,
            "The text speaks of maxima along the arcs; they belong to chords.",
        ),
        Claim.at_most(
            "The loss on a chord is a polynomial of twice the depth: largest difference, relative",
            float(abs(dataset["chord_loss"] - dataset["chord_polynomial"]).max() / dataset["chord_loss"].max()),
            EXACT,
            general=True,
        ),
    ]
    if spec.sigma == (10.0, 8.0, 6.0, 4.0):
        ends = np.array([[58.0, 58.0], [58.0, 26.0], [26.0, 58.0], [40.0, 76.0]])
        best = dataset.isel(arc=3)
        claims += [
            Claim.at_most(
                "The arcs lead from 58 to 58, 58 to 26, 26 to 58 and 40 to 76: largest difference",
                float(np.max(np.abs(curves[:, [0, -1]] - ends))),
                EXACT,
            ),
            Claim.at_most(
                "The minimum of the mixed arc is 29.76, at 0.32: larger difference of both",
                max(abs(float(best["best_loss"]) - 29.76), abs(float(best["best_place"]) - 0.32)),
                EXACT,
            ),
            Claim.at_most(
                "{1} has 7 unstable and 1 stable submanifolds: difference",
                abs(int(dataset["unstable"][0]) - 7) + abs(int(dataset["stable"][0]) - 1),
                0,
            ),
        ]
    if spec.chord_sigma == (3.0, 2.0, 1.0) and spec.points % 2:
        chord = dataset["chord_loss"].to_numpy()[0]
        told = np.array([2.5, 7.0, 2.5])
        claims.append(
            Claim.at_most(
                "With two signs turned the chord leads from 2.5 over 7 back to 2.5: largest difference",
                float(np.max(np.abs(chord[[0, len(chord) // 2, -1]] - told))),
                EXACT,
            )
        )
    return claims


FIGURE_4 = Experiment(
    id="network/fig4",
    source="Figure 4",
    shows="The loss on arcs between critical points is constant, falls, rises, or is a parabola with one minimum.",
    presets={"quick": Arcs(points=51), "paper": Arcs()},
    run=run_arcs,
    plot=plot_arcs_figure,
    claims=claims_arcs,
    notes=(
        "The singular values are not given in the text; (10, 8, 6, 4) is a choice. A fifth panel shows chords between "
        "weights, which have the maxima that the text ascribes to arcs."
    ),
)


# --- The graph, and flows upon it -------------------------------------------------------------------------------------

FITTED = 1e-14
"""Loss, relative to that of the origin, at which a flow has arrived."""


@dataclasses.dataclass(frozen=True)
class Graph:
    """A task, a network, and flows that start beside each of its saddles."""

    sigma: tuple[float, ...] = (4.0, 3.0, 2.0, 1.0)
    widths: tuple[int, ...] = (6, 4, 4, 4)
    scale: float = 0.03
    draws: int = 16
    horizon: float = 1e5
    records: int = 3000
    rtol: float = 1e-8
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("Graph", "scale", self.scale, above=0)
        check_number("Graph", "horizon", self.horizon, above=1)
        check_number("Graph", "rtol", self.rtol, above=0)
        check_count("Graph", "draws", self.draws, at_least=1)
        check_count("Graph", "records", self.records, at_least=100)
        check_count("Graph", "seed", self.seed)

    def made(self) -> CriticalGraph:
        """The graph of critical values."""
        return critical_graph(self.sigma, self.widths)

    def starts(self, signature: Signature) -> list[Params]:
        """The simplest point of a signature, moved at random: the same moves for every signature."""
        layers = arc_point(self.sigma, self.widths, signature, signature, 0.0)
        moved = []
        for draw in range(self.draws):
            rng = np.random.default_rng(self.seed + draw)
            moved.append(tuple(layer + self.scale * rng.standard_normal(layer.shape) for layer in layers))
        return moved


def run_graph(spec: Graph, context: Context) -> "xarray.Dataset":
    """Flows from beside every saddle: the plateaus they pass, and where they end."""
    import xarray

    graph, problem = spec.made(), _task(spec.widths, spec.sigma)
    names = [node.signature for node in graph.nodes]
    saddles = [name for name in names if name != graph.minimum.signature]
    floor = FITTED * graph.nodes[0].value
    times = np.concatenate([[0.0], np.geomspace(1e-2, spec.horizon, spec.records - 1)])
    starts = [start for saddle in saddles for start in spec.starts(saddle)]
    many = context.complete(
        ensemble(
            problem,
            starts,
            GradientFlow(spec.rtol),
            times=times,
            probes=(loss, product, gradient_norm),
            until=until(loss, below=graph.minimum.value + floor),
            progress=context.watch,
        )
    )
    context.progress(0.8, "flows")
    shape = (len(saddles), spec.draws)
    stops = len(graph.nodes)
    visited = np.full((*shape, stops), -1)
    gaps = np.full((*shape, stops), np.nan)
    final, ends, rises = np.empty(shape), np.empty(shape), np.empty(shape)
    curves = np.full((len(saddles), len(times)), np.nan)
    for number, place in enumerate(np.ndindex(shape)):
        run: Trajectory = many.member(number)
        count = int(run.lengths)
        losses = np.asarray(run["loss"])[:count]
        final[place], ends[place] = losses[-1], float(np.asarray(run.times)[count - 1])
        rises[place] = float(np.max(np.diff(losses), initial=0.0))
        if place[1] == 0:
            curves[place[0]] = np.interp(times, np.asarray(run.times)[:count], losses)
        for stop, visit in enumerate(itinerary(problem, run).visits[:stops]):
            visited[*place, stop] = -1 if visit.signature is None else names.index(visit.signature)
            gaps[*place, stop] = np.nan if visit.level is None else visit.loss - visit.level
    values = [node.value for node in graph.nodes]
    return xarray.Dataset(
        {
            "value": ("node", values, {"long_name": "critical value"}),
            "kind": ("node", [node.kind.value for node in graph.nodes]),
            "visited": (("saddle", "draw", "stop"), visited, {"long_name": "number of the node, -1 for none"}),
            "gap": (("saddle", "draw", "stop"), gaps, {"long_name": "loss on the plateau minus critical value"}),
            "final_loss": (("saddle", "draw"), final),
            "time": (("saddle", "draw"), ends),
            "rise": (("saddle", "draw"), rises),
            "loss": (("saddle", "t"), curves),
        },
        coords={
            "node": [set_name(name) for name in names],
            "saddle": [set_name(name) for name in saddles],
            "draw": np.arange(spec.draws),
            "t": times,
        },
    )


def _passages(dataset: "xarray.Dataset", spec: Graph) -> list[list[list[Signature]]]:
    """For every saddle and draw the signatures of the plateaus, one after the other."""
    names = [node.signature for node in spec.made().nodes]
    return [
        [[names[k] for k in stops if k >= 0] for stops in draws] for draws in dataset["visited"].to_numpy().astype(int)
    ]


def plot_graph(dataset: "xarray.Dataset", spec: Graph) -> "Figure":
    """The graph with the passages of all flows on the left, one flow from every saddle on the right."""
    from matplotlib.figure import Figure

    graph = spec.made()
    seen: dict[tuple[Signature, Signature], int] = {}
    for draws in _passages(dataset, spec):
        for path in draws:
            for pair in itertools.pairwise(path):
                seen[pair] = seen.get(pair, 0) + 1
    most = max(seen.values(), default=1)
    width = graph_width(graph)
    figure = Figure(figsize=(width + 1.3 * PANEL[0], 2.1 * PANEL[1]), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[width, 1.3 * PANEL[0]], sharey=True)
    draw_critical_graph(left, graph, transitions={pair: count / most for pair, count in seen.items()})
    left.legend(loc="upper right")
    left.set_title("critical values and passages of flows")
    for value in dataset["value"].to_numpy():
        right.axhline(value, color="#999999", linewidth=0.6, linestyle=":", zorder=1)
    greedy = {set_name(name) for name in graph.greedy}
    for saddle in dataset["saddle"].to_numpy():
        colour = COLOURS[4] if saddle in greedy else COLOURS[0]
        right.plot(dataset["t"], dataset["loss"].sel(saddle=saddle), color=colour, linewidth=1.1, zorder=2)
    right.plot([], [], color=COLOURS[4], label="from the greedy path")
    right.plot([], [], color=COLOURS[0], label="from other saddles")
    right.plot([], [], color="#999999", linestyle=":", linewidth=0.6, label="critical values")
    right.legend(loc="upper right")
    right.set_xscale("log")
    right.set_xlim(0.1, 1.2 * float(dataset["time"].max()))
    right.set_xlabel("time")
    right.set_ylabel("loss")
    right.tick_params(labelleft=True)
    right.set_title("one flow from beside every saddle")
    return figure


def claims_graph(dataset: "xarray.Dataset", spec: Graph) -> list[Claim]:
    """Where flows go that leave a saddle."""
    graph = spec.made()
    top, values = graph.nodes[0].value, dataset["value"].to_numpy()
    saddles = [node.signature for node in graph.nodes if node.signature != graph.minimum.signature]
    passages = _passages(dataset, spec)
    paths = [(saddle, path) for saddle, draws in zip(saddles, passages, strict=True) for path in draws]
    visited = dataset["visited"].to_numpy().astype(int)
    levels = np.where(visited >= 0, values[visited], np.nan)
    falls = levels[..., :-1] - levels[..., 1:]
    greedy = set(graph.greedy)
    firsts = [
        (saddle, path[1]) for saddle, path in paths if saddle not in greedy and len(path) > 1 and path[0] == saddle
    ]
    later = [name for _, path in paths for name in path[1:]]
    follows = [path for saddle, path in paths if saddle in greedy]
    return [
        Claim.at_most(
            "Every flow ends in the global minimum: largest final loss above it, relative to that of the origin",
            float(dataset["final_loss"].max() - graph.minimum.value) / top,
            1e-10,
        ),
        Claim.at_most("The loss never rises: largest step, relative", float(dataset["rise"].max()) / top, 1e-9),
        Claim.at_least(
            "Every flow first rests at the saddle it starts beside: share of flows",
            np.mean([bool(path) and path[0] == saddle for saddle, path in paths]),
            0.9,
        ),
        Claim.at_most(
            "On a plateau the loss is the critical value: largest difference, relative to the loss of the origin",
            float(abs(dataset["gap"]).max()) / top,
            0.01,
        ),
        Claim.at_least("From plateau to plateau the critical value falls: smallest fall", np.nanmin(falls), 0.0),
        Claim.at_least(
            "Flows that start on the greedy path stay on it: share of them",
            np.mean([set(path) <= greedy for path in follows]),
            0.95,
        ),
        Claim.at_least(
            "Flows from other saddles come to it at once: share of all later plateaus that lie on it",
            np.mean([name in greedy for name in later]),
            0.95,
        ),
        Claim.at_least(
            "They do so mostly by exchanging weaker modes for stronger ones, without learning one more: share of first "
            "passages between signatures of the same size",
            np.mean([len(end) == len(start) for start, end in firsts]) if firsts else float("nan"),
            0.5,
            "There is no decreasing arc between such signatures: flows do not follow the arcs.",
        ),
    ]


GRAPH = Experiment(
    id="network/graph",
    source="Section 4.6",
    shows=(
        "Flows from beside any saddle end in the global minimum; on their way they rest at saddles of the greedy path, "
        "which they reach by exchanging modes rather than along the arcs."
    ),
    presets={
        "quick": Graph(sigma=(3.0, 2.0, 1.0), widths=(4, 3, 3, 3), draws=4, records=1500),
        "paper": Graph(),
    },
    run=run_graph,
    plot=plot_graph,
    claims=claims_graph,
    notes="Not a figure of the survey, which leaves open how arcs relate to the trajectories of the flow.",
)

EXPERIMENTS = (FIGURE_4, GRAPH)
