"""All critical values of a task as a graph, and one critical point looked at: kind, curvature, way down."""

import functools
import itertools
from typing import Any, Literal

import numpy as np

from deeplinear.core import random
from deeplinear.lab._errors import LabError
from deeplinear.lab._figures import Answer, Fact, Graph, Node, Table, curves, line
from deeplinear.lab._recipes import command, script
from deeplinear.lab._room import Params, Watch, choice, slider, whole
from deeplinear.lab.rooms._shell import csv_file, npz_file
from deeplinear.landscape import (
    KIND,
    Classification,
    CriticalGraph,
    NegativeDirection,
    Tightened,
    classify,
    critical_graph,
    critical_point,
    hessian_spectrum,
    inertia,
    random_critical_point,
)
from deeplinear.models import DeepLinear, Problem, SquaredDistance

MODES = 4
"""Most modes of a task."""

SETS = {
    "".join(map(str, chosen)) or "none": "{" + ", ".join(map(str, chosen)) + "}" if chosen else "∅, nothing"
    for size in range(MODES + 1)
    for chosen in itertools.combinations(range(1, MODES + 1), size)
}
"""Sets of learnt modes, by a word for each."""

Learnt = Literal[
    "none", "1", "2", "3", "4", "12", "13", "14", "23", "24", "34", "123", "124", "134", "234", "1234"
]  # fmt: skip

STRONGEST: Any = slider(3.0, 0.1, 10.0, "Strongest mode", step=0.1, above="weakest")
WEAKEST: Any = slider(
    1.0, 0.1, 10.0, "Weakest mode", step=0.1, about="The others lie evenly between.", below="strongest"
)
"""Fields of the largest and the least singular value of a task."""

PARTS = {KIND.global_minimum: 2, KIND.strict_saddle: 0, KIND.non_strict_saddle: 1}
"""Colours of the kinds."""


class Critical(Params):
    """A task, a network, and one of its critical points."""

    learnt: Learnt = choice("1", SETS, "Modes learnt there", about="Which critical point to look at.")
    filling: Literal["plain", "random"] = choice(
        "plain",
        {"plain": "nothing else in the layers", "random": "random weights that cancel"},
        "Beside these modes",
        about="Weights that do not reach the product may stand there; they can make a flat saddle a strict one.",
    )
    modes: int = whole(3, 1, MODES, "Modes of the task")
    strongest: float = STRONGEST
    weakest: float = WEAKEST
    depth: int = whole(3, 2, 5, "Layers")
    hidden: int = whole(4, 1, 6, "Hidden width", about="Below the number of modes it is a bottleneck.")
    seed: int = whole(0, 0, 9999, "Seed", seed=True, about="Of the random weights.", only={"filling": ["random"]})


def even_spectrum(params: Any, modes: int) -> list[float]:
    """Modes at even distances from the strongest to the weakest; refused where that is the stronger one."""
    if modes > 1 and not params.weakest < params.strongest:
        text = f"Weakest mode must be below Strongest mode, {params.strongest:g}, but is {params.weakest:g}."
        raise LabError("value", text, ["strongest", "weakest"])
    return [float(f"{value:.12g}") for value in np.linspace(params.strongest, params.weakest, modes)]


def _widths(params: Critical) -> tuple[int, ...]:
    return (params.modes, *[params.hidden] * (params.depth - 1), params.modes)


def _signature(params: Critical) -> tuple[int, ...]:
    found = () if params.learnt == "none" else tuple(map(int, params.learnt))
    if found and found[-1] > params.modes:
        text = f"There are {params.modes} modes, so mode {found[-1]} cannot be learnt. Take another set, or more modes."
        raise LabError("value", text, ["learnt", "modes"])
    if len(found) > params.hidden:
        text = f"A hidden width of {params.hidden} carries no more modes than that, but {len(found)} are to be learnt."
        raise LabError("value", text, ["learnt", "hidden"])
    return found


def _graph(found: CriticalGraph, signature: tuple[int, ...]) -> Graph:
    """Nodes by number of modes and value; those of one number are moved apart a little."""
    nodes, places = [], {}
    top = max(node.value for node in found.nodes)
    for rank, group in itertools.groupby(found.nodes, key=lambda node: node.rank):
        members = sorted(group, key=lambda node: -node.value)
        for place, node in enumerate(members):
            shift = 0.0 if len(members) == 1 else 0.5 * (place / (len(members) - 1) - 0.5)
            places[node.signature] = len(nodes)
            nodes.append(
                Node(
                    x=rank + shift,
                    y=node.value / top,
                    label="".join(map(str, node.signature)) or "∅",
                    part=PARTS[node.kind],
                    strong=node.signature == signature,
                )
            )
    return Graph(
        name="graph",
        title="Critical points: modes learnt, and the arcs that learn one more",
        nodes=nodes,
        edges=[(places[edge.start], places[edge.end]) for edge in found.covers],
        caption="Height: loss. To the right: more modes. Green: minima. Blue: strict saddles. Orange: non-strict ones, "
        "flat to second order. Ringed: the one looked at.",
    )


def _loss_along(layers: Any, direction: Any, target: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Loss at every step of a line."""
    moved = [np.asarray(w) + steps[:, None, None] * np.asarray(v) for w, v in zip(layers, direction, strict=True)]
    product = functools.reduce(lambda below, above: above @ below, moved)
    return 0.5 * np.sum((target - product) ** 2, axis=(1, 2))


def _way_down(place: Classification, layers: Any, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, str] | None:
    """Steps, losses and what the direction is."""
    certificate = place.certificate
    if isinstance(certificate, NegativeDirection):
        direction, words = certificate.direction, "falls with the square of the step"
    elif isinstance(certificate, Tightened) and certificate.descent is not None:
        direction, words = (
            certificate.descent.direction,
            f"falls with the power {certificate.descent.order} of the step",
        )
    else:
        return None
    steps = np.geomspace(1e-2, 1e3, 400)
    losses = _loss_along(layers, direction, target, steps)
    lowest = int(np.argmin(losses[: int(np.argmax(losses > 2 * losses[0])) or None]))
    steps = np.linspace(0.0, 1.3 * steps[lowest], 120)
    return steps, _loss_along(layers, direction, target, steps), words


def _layers(params: Critical, sigma: list[float], widths: tuple[int, ...], signature: tuple[int, ...]) -> Any:
    """The critical point that is looked at."""
    if params.filling == "plain":
        return critical_point(sigma, widths, signature)
    return random_critical_point(random.key(params.seed), sigma, widths, signature)


def critical(params: Critical, watch: Watch) -> Answer:
    """Graph, table, spectrum of the Hessian, way down."""
    sigma, widths, signature = even_spectrum(params, params.modes), _widths(params), _signature(params)
    found = critical_graph(sigma, widths)
    layers, target = _layers(params, sigma, widths, signature), np.diag(sigma)
    problem = Problem(DeepLinear(widths), SquaredDistance(target))
    place = classify(problem, layers)
    counts = inertia(problem, layers)
    values = np.asarray(hessian_spectrum(problem, layers).values)
    tones: Any = {KIND.global_minimum: "good", KIND.strict_saddle: "plain", KIND.non_strict_saddle: "warning"}
    rows = [
        [row["signature"], f"{row['value']:.6g}", row["kind"], str(row["leads_to"]), "yes" if row["greedy"] else ""]
        for row in found.rows()
    ]
    figures: list[Any] = [_graph(found, signature)]
    down = _way_down(place, layers, target)
    if down is not None:
        steps, losses, words = down
        figures.append(
            curves(
                "down",
                "Loss along a way down",
                "step",
                "loss",
                [line("loss", steps, losses, colour=1)],
                caption=f"It {words}.",
            )
        )
    order = np.arange(1, len(values) + 1)
    figures += [
        curves(
            "hessian",
            "Eigenvalues of the Hessian",
            "number, smallest first",
            "eigenvalue",
            [line("eigenvalues", order, values, colour=0, style="points", legend=False)],
            caption=f"{counts.index} negative, {counts.nullity} zero, {counts.positive} positive.",
        ),
        Table(
            name="values",
            title="All critical values",
            columns=["modes learnt", "loss", "kind of the simplest point", "arcs down", "strongest first"],
            rows=rows,
        ),
    ]
    facts = [
        Fact(label="Kind", value=place.kind.value, tone=tones.get(place.kind, "plain"), note=_certificate(place)),
        Fact(label="Loss", value=f"{place.value:.6g}"),
        Fact(
            label="Falling directions",
            value=str(counts.index),
            note=f"Smallest eigenvalue {counts.smallest:.3g}." if counts.index else "To second order.",
        ),
        Fact(label="Flat directions", value=f"{counts.nullity} of {len(values)}"),
        Fact(label="Critical values", value=str(len(found.nodes))),
    ]
    return Answer(figures=figures, facts=facts, remarks=[*place.notes])


def _certificate(place: Classification) -> str:
    """What proves the kind, in words."""
    if isinstance(place.certificate, Tightened):
        rank = place.certificate.rank
        return (
            f"For every two layers, what lies between them or what lies around them has rank {rank}, no more than the "
            "modes learnt: no two layers can fall together, and the Hessian has no negative direction."
        )
    return "; ".join(text for label, text in place.rows() if label == "certificate")


def critical_script(params: Critical) -> str:
    """Graph, classification and inertia."""
    sigma, widths, signature = even_spectrum(params, params.modes), _widths(params), _signature(params)
    point = (
        f"critical_point(sigma, widths, {signature})"
        if params.filling == "plain"
        else f"random_critical_point(jax.random.key({params.seed}), sigma, widths, {signature})"
    )
    maker = point.split("(")[0]
    return script(f"""
from deeplinear.landscape import classify, critical_graph, {maker}, diagonal_target, inertia
from deeplinear.models import DeepLinear, Problem, SquaredDistance

sigma, widths = {sigma}, {widths}
print(critical_graph(sigma, widths))
layers = {point}
problem = Problem(DeepLinear(widths), SquaredDistance(diagonal_target(jnp.array(sigma), widths[-1], widths[0])))
place, counts = classify(problem, layers), inertia(problem, layers)
print(place, counts, sep="\\n")
""")


def critical_command(params: Critical) -> str:
    """Files of the layers and the task, and the command that says where they stand."""
    sigma, widths, signature = even_spectrum(params, params.modes), _widths(params), _signature(params)
    layers = {f"W{k}": layer for k, layer in enumerate(_layers(params, sigma, widths, signature), 1)}
    files = [npz_file("point.npz", **layers), csv_file("target.csv", np.diag(sigma))]
    return "\n".join([*files, command("landscape point.npz", target="target.csv")])
