"""Entropy of a spectrum, and where it balances an energy."""

import math
from typing import Any, Literal

import numpy as np

from deeplinear.geometry import (
    Equilibrium,
    MatrixFlow,
    PowerEnergy,
    critical_power,
    entropy,
    entropy_gradient,
    equilibrium,
    free_energy,
    matrix_flow,
    split_equilibria,
    split_power,
)
from deeplinear.lab._figures import Answer, Axis, Fact, Map, Mark, Series, curves, line, numbers, rows
from deeplinear.lab._recipes import script
from deeplinear.lab._room import Params, Watch, choice, slider, whole
from deeplinear.lab.rooms._geometry_paths import depth_word

CELLS = 49
"""Cells of a side of the maps."""

LOW, HIGH = 0.02, 3.0
"""Singular values of the maps."""

POINTS = 60
"""Times of a flow."""

ACCURACY = 1e-7
"""Relative tolerance of a flow; one whose forces balance to ten times this, relative to those at rest, has arrived."""

DEEP = {"2": "2", "3": "3", "5": "5", "10": "10", "inf": "infinite"}
Deep = Literal["2", "3", "5", "10", "inf"]


class Thermal(Params):
    """An energy, an entropy, and a temperature between them."""

    depth: Deep = choice("inf", DEEP, "Depth")
    power: float = slider(2.0, 0.2, 3.0, "Power p of the energy", step=0.05, about="The energy is the sum of sᵖ/p.")
    beta: float = slider(1.0, 0.05, 50.0, "Inverse temperature β", log=True, about="Large: the energy wins.")


class MapParams(Thermal):
    """A place in the map of two singular values."""

    first: float = slider(2.2, LOW, HIGH, "Singular value s₁", step=0.01)
    second: float = slider(0.4, LOW, HIGH, "Singular value s₂", step=0.01)
    until: float = slider(10.0, 0.1, 100.0, "Follow the flow until", log=True)


class RelaxParams(Thermal):
    """A flow from a random start."""

    modes: Literal["2", "5", "10"] = choice("10", {"2": "2", "5": "5", "10": "10"}, "Size d of the matrix")
    spread: float = slider(0.3, 0.001, 2.0, "Entries at the start", log=True, about="Their standard deviation.")
    duration: float = slider(4.0, 0.1, 100.0, "Horizon", log=True)
    seed: int = whole(0, 0, 9999, "Seed", seed=True)


def _depth(params: Thermal) -> float:
    return math.inf if params.depth == "inf" else int(params.depth)


def _flow(params: Thermal, start: Any, times: Any, rest: Equilibrium) -> MatrixFlow:
    """Flow of the free energy; it keeps the singular vectors, so that the spectrum moves by itself."""
    depth = _depth(params)
    energy = free_energy(PowerEnergy(params.power), params.beta, depth)
    force = float(rest.spectrum[0]) ** (params.power - 1)
    return matrix_flow(
        energy,
        start,
        depth,
        times,
        normalised=True,
        coordinates="spectral",
        rtol=ACCURACY,
        atol=1e-11,
        gradient=10 * ACCURACY * force,
        points=False,
        steps=20_000,
    )


def _equilibria(params: Thermal, size: int) -> tuple[Equilibrium, tuple[Equilibrium, ...]]:
    depth = _depth(params)
    equal = equilibrium(PowerEnergy(params.power), size, params.beta, depth, normalised=True)
    if params.power >= 1:
        return equal, ()
    return equal, split_equilibria(params.power, size, params.beta, depth, normalised=True)


def _rest_facts(params: Thermal, size: int, equal: Equilibrium, split: tuple[Equilibrium, ...]) -> list[Fact]:
    turning = critical_power(size, _depth(params))
    # With two values, depth two and p = 1 the free energy depends on their sum alone.
    flat = abs(equal.rates[0]) <= 1e-9 * equal.rates[-1]
    tone, word = ("warning", "neutral") if flat else ("good", "stable") if equal.stable else ("bad", "not stable")
    sizes = ", ".join(f"{rate:.4g}" for rate in sorted({float(f"{rate:.9g}") for rate in equal.rates}))
    facts = [
        Fact(
            label="Equal singular values",
            value=f"s = {equal.spectrum[0]:.5g}, {word}",
            tone=tone,
            note=f"Small changes die out at the rates {sizes}; a negative rate is growth.",
        ),
        Fact(label="Split below the power", value=f"{turning:.4g}", note=f"Here p = {params.power:g}."),
    ]
    for one in (state for state in split if state.stable):
        low = f"{one.spectrum[-1]:.4g}" if size == 2 else f"{one.spectrum[-1]:.4g} (one of {size})"
        facts.append(Fact(label="Split state, stable", value=f"{one.spectrum[0]:.4g} and {low}", tone="good"))
    return facts


def _arrow(name: str, where: np.ndarray, force: np.ndarray, colour: int) -> list[Series]:
    """An arrow from a place along a force; its length is a fixed part of the map."""
    unit = 0.14 * (HIGH - LOW) * force / max(float(np.linalg.norm(force)), 1e-300)
    tip = where + unit
    wings = [tip - 0.25 * (turn @ unit) for turn in (_turn(0.5), _turn(-0.5))]
    way = np.array([where, tip, wings[0], tip, wings[1]])
    return [line(name, way[:, 0], way[:, 1], colour=colour)]


def _stronger(here: np.ndarray, force: np.ndarray) -> str:
    """On which of two singular values a force is stronger."""
    if abs(force[0] - force[1]) <= 1e-9 * np.abs(force).max():
        return "The same on both."
    return f"Stronger on the {'smaller' if (force[0] > force[1]) == (here[0] < here[1]) else 'larger'} one."


def _turn(angle: float) -> np.ndarray:
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def _cuts(here: np.ndarray) -> dict[str, np.ndarray]:
    """Curves of equal determinant and of equal sum through a place."""
    logs = np.linspace(-4.0, 4.0, 121)
    pairs = np.exp(np.stack([logs / 2, -logs / 2], axis=-1))
    return {
        "same determinant": pairs * math.sqrt(here[0] * here[1]),
        "same sum": pairs * (here.sum() / pairs.sum(axis=-1, keepdims=True)),
    }


def _inside(pairs: np.ndarray) -> np.ndarray:
    """What is outside of the map is left out."""
    return np.where(np.all((pairs >= LOW) & (pairs <= HIGH), axis=-1, keepdims=True), pairs, math.nan)


def answer_map(params: MapParams, watch: Watch) -> Answer:
    """Entropy and free energy of two singular values."""
    depth, here = _depth(params), np.array([params.first, params.second])
    values = np.linspace(LOW, HIGH, CELLS)
    grid = np.stack(np.meshgrid(values, values), axis=-1)
    surface = np.asarray(entropy(grid, depth))
    energy = np.sum(grid**params.power, axis=-1) / params.power - surface / params.beta
    force = np.asarray(entropy_gradient(here, depth))
    pull = force / params.beta - here ** (params.power - 1)
    equal, split = _equilibria(params, 2)
    times = np.concatenate([[0.0], np.geomspace(params.until / 1000, params.until, POINTS)])
    flow = _flow(params, np.diag(here), times, equal)
    way = flow.spectra if here[0] >= here[1] else flow.spectra[:, ::-1]
    rests = [("equilibrium", equal.spectrum[None], equal.stable)]
    rests += [("split", np.stack([one.spectrum, one.spectrum[::-1]]), one.stable) for one in split]
    base: dict[str, Any] = {
        "x": Axis(label="s₁", low=LOW, high=HIGH),
        "y": Axis(label="s₂", low=LOW, high=HIGH),
        "xs": numbers(values),
        "ys": numbers(values),
        "contours": True,
        "pick": ("first", "second"),
    }
    cuts = _cuts(here)
    place = line("you are here", here[:1], here[1:], colour=1, style="points", legend=False)
    over = [
        line(name, *_inside(pairs).T, colour=colour, style=style)
        for (name, pairs), colour, style in zip(cuts.items(), (3, 2), ("dash", "dot"), strict=True)
    ]
    states = [
        line(name if stable else f"{name}, not stable", *_inside(pairs).T, colour=2 if stable else 3, style="points")
        for name, pairs, stable in rests
    ]
    logs = np.linspace(-4.0, 4.0, 121)
    slices = [
        line(name, logs, entropy(pairs, depth), colour=colour)
        for (name, pairs), colour in zip(cuts.items(), (3, 2), strict=True)
    ]
    betas = np.geomspace(0.05, 50.0, 41)
    share = 0.5 * np.array([1 - 1 / one for one in (2, 3, 5, math.inf)])
    by_beta = [
        line(f"depth {depth_word(one)}", betas, (part / betas) ** (1 / params.power), colour=k)
        for k, (one, part) in enumerate(zip((2, 3, 5, math.inf), share, strict=True))
    ]
    remarks = (
        [] if equal.spectrum[0] <= HIGH else [f"The equilibrium, s = {equal.spectrum[0]:.4g}, is outside of the map."]
    )
    if flow.status[0] not in ("time limit", "converged"):
        remarks.append(f"The flow ended early ({flow.status[0]}) at t = {float(flow.end_times):.4g}.")
    return Answer(
        figures=[
            Map(
                name="entropy",
                title=f"Entropy at depth {depth_word(depth)}",
                z=rows(surface),
                value="entropy",
                series=[*over, *_arrow("its force", here, force, 1), place],
                caption="Logarithm of how many balanced layers have this product. Click to go elsewhere.",
                **base,
            ),
            Map(
                name="free-energy",
                title=f"Free energy at β = {params.beta:.3g}",
                z=rows(energy),
                value="free energy",
                series=[line("flow", *_inside(way).T, colour=7), *_arrow("force", here, pull, 1), place, *states],
                caption="Energy minus entropy/β; the flow runs down from your place to an equilibrium.",
                **base,
            ),
            curves(
                "slices",
                "Entropy along the two curves",
                "ln(s₁/s₂)",
                "entropy",
                slices,
                [Mark(at=math.log(here[0] / here[1]), label="you")] if abs(math.log(here[0] / here[1])) < 4 else [],
                "At one determinant it grows as the values spread; at one sum it falls.",
            ),
            curves(
                "beta",
                "Equal singular values at rest",
                Axis(label="β", log=True),
                Axis(label="s", log=True),
                by_beta,
                [Mark(at=params.beta, label="β")],
                "The colder, the smaller: s = ((1 − 1/L)/(2β))^(1/p).",
            ),
        ],
        facts=[
            Fact(label="Entropy here", value=f"{float(entropy(here, depth)):.5g}"),
            Fact(label="Force of the entropy", value=f"({force[0]:.4g}, {force[1]:.4g})", note=_stronger(here, force)),
            *_rest_facts(params, 2, equal, split),
        ],
        remarks=remarks,
    )


def _start(params: RelaxParams) -> np.ndarray:
    size = int(params.modes)
    return np.random.default_rng(params.seed).standard_normal((size, size)) * params.spread


def _branches(params: RelaxParams) -> list[Series]:
    """Equilibria by power at this temperature: equal values, and one that splits off."""
    depth, size = _depth(params), int(params.modes)
    powers = np.linspace(0.2, 3.0, 113)
    turning = critical_power(size, depth)
    equal = ((size - 1) * (1 - 1 / depth) / (2 * params.beta)) ** (1 / powers)
    found = [
        line("equal, stable", powers, np.where(powers >= turning, equal, math.nan), colour=0),
        line("equal, not stable", powers, np.where(powers < turning, equal, math.nan), colour=0, style="dash"),
    ]
    logs = np.concatenate([-np.geomspace(12.0, 0.02, 60), np.geomspace(0.02, 12.0, 60)])
    spectra = np.exp(np.concatenate([np.zeros((len(logs), size - 1)), -logs[:, None]], axis=1))
    pushes = spectra * np.asarray(entropy_gradient(spectra, depth)) / params.beta  # equal to s^p at rest
    where = np.asarray(split_power(logs, size, depth))
    kept = (where >= 0.2) & (where <= 3.0)
    for name, column in (("split: the others", 0), ("split: the one", -1)):
        drawn = np.where(kept, pushes[:, column] ** (1 / where), math.nan)
        drawn[len(logs) // 2 - 1 : len(logs) // 2] = math.nan  # the two sides are two curves
        found.append(line(name, np.where(kept, where, math.nan), drawn, colour=1, style="dot" if column else "line"))
    return found


def answer_relaxation(params: RelaxParams, watch: Watch) -> Answer:
    """Singular values on their way to equilibrium."""
    size, times = int(params.modes), np.linspace(0.0, params.duration, POINTS)
    equal, split = _equilibria(params, size)
    flow = _flow(params, _start(params), times, equal)
    value = float(equal.spectrum[0])
    reached = times <= float(flow.end_times) * (1 + 1e-12)
    # What has arrived stays; what ended for another reason is not known any more.
    spectra = np.where(reached[:, None] | (flow.status[0] == "converged"), flow.spectra, math.nan)
    spread = np.where(reached, spectra[:, 0] - spectra[:, -1], math.nan)
    lines = [line(f"s{i + 1}", times, spectra[:, i], colour=i, legend=False) for i in range(size)]
    decay = [line("largest − smallest", times, np.where(spread > 1e-8, spread, math.nan), colour=0)]
    late = np.flatnonzero(np.isfinite(spread) & (spread < 0.02 * value) & (spread > 1e-6))
    rate = float(equal.rates[0])
    facts = _rest_facts(params, size, equal, split)
    if equal.stable and len(late) > 3:
        at = late[0]
        decay.append(
            line(
                "predicted slope",
                times[at:],
                spread[at] * np.exp(-rate * (times[at:] - times[at])),
                colour=1,
                style="dash",
            )
        )
        last = late[-1]
        measured = math.log(spread[at] / spread[last]) / (times[last] - times[at])
        tone = "good" if abs(measured / rate - 1) < 0.05 else "plain"
        facts.append(Fact(label="Rate, measured", value=f"{measured:.4g}", tone=tone, note=f"Predicted {rate:.4g}."))
    remarks = []
    if flow.status[0] not in ("time limit", "converged"):
        remarks.append(f"The flow ended early ({flow.status[0]}) at t = {float(flow.end_times):.4g}.")
    return Answer(
        figures=[
            curves(
                "spectrum",
                "Singular values in time",
                "time",
                Axis(label="singular value", log=True),
                lines,
                [Mark(at=value, label="equilibrium", axis="y")],
                f"All end at {value:.5g} where that is stable."
                if equal.stable
                else "Equal values are not stable here.",
            ),
            curves(
                "spread",
                "How far apart they are",
                "time",
                Axis(label="largest − smallest", log=True),
                decay,
                caption="Dashed: the rate of the linear theory." if len(decay) > 1 else "",
            ),
            curves(
                "powers",
                "Equilibria by the power p",
                Axis(label="p", low=0.2, high=1.2 if params.power < 1 else 3.0),
                Axis(label="s", log=True),
                _branches(params),
                [Mark(at=params.power, label="p")],
                "Below a critical power one singular value splits off from the others.",
            ),
        ],
        facts=facts,
        remarks=remarks,
    )


def _energy_script(params: Thermal) -> str:
    depth = "np.inf" if params.depth == "inf" else params.depth
    return f"""
from deeplinear.geometry import PowerEnergy, entropy, entropy_gradient, equilibrium, free_energy, matrix_flow

depth, beta = {depth}, {params.beta!r}
energy = PowerEnergy({params.power!r})
"""


def map_script(params: MapParams) -> str:
    """The same entropy, force, maps, equilibria and flow with the library."""
    split = (
        f"""
from deeplinear.geometry import split_equilibria

split = split_equilibria({params.power!r}, 2, beta, depth, normalised=True)
print([(one.spectrum, one.stable) for one in split])
"""
        if params.power < 1
        else ""
    )
    return script(
        _energy_script(params),
        f"""
here = np.array([{params.first!r}, {params.second!r}])
print(entropy(here, depth), entropy_gradient(here, depth))
rest = equilibrium(energy, 2, beta, depth, normalised=True)
print(rest.spectrum, rest.rates)

# The two maps.
values = np.linspace({LOW}, {HIGH}, {CELLS})
pairs = np.stack(np.meshgrid(values, values), axis=-1)
surface = entropy(pairs, depth)
heights = np.sum(pairs**{params.power!r}, axis=-1) / {params.power!r} - surface / beta  # the free energy
print(surface[::12, ::12], heights[::12, ::12])
{split}
flow = matrix_flow(
    free_energy(energy, beta, depth), np.diag(here), depth, [{params.until!r}], normalised=True, rtol=1e-7, atol=1e-11
)
print(flow.spectra[-1], flow.status)
""",
    )


def relaxation_script(params: RelaxParams) -> str:
    """The same flow with the library."""
    return script(
        _energy_script(params),
        f"""
start = np.random.default_rng({params.seed}).standard_normal(({params.modes}, {params.modes})) * {params.spread!r}
times = np.linspace(0.0, {params.duration!r}, {POINTS})
flow = matrix_flow(
    free_energy(energy, beta, depth), start, depth, times, normalised=True, rtol=1e-7, atol=1e-11, steps=20_000
)
rest = equilibrium(energy, {params.modes}, beta, depth, normalised=True)
print(flow.spectra[-1], rest.spectrum, rest.rates)
""",
    )
