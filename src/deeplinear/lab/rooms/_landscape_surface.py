"""The loss of a chain of numbers over a plane of starts, and the exact way down from one of them."""

import functools
import math
from typing import Any

import numpy as np

from deeplinear.exact import layer_mode, layer_mode_time
from deeplinear.lab._figures import Answer, Axis, Fact, Map, Mark, Series, curves, line, numbers, rows
from deeplinear.lab._recipes import command, script
from deeplinear.lab._room import Params, Watch, slider, whole
from deeplinear.lab.rooms._shell import csv_file, npz_file

WINDOW = 2.5
"""Weights are shown from minus to plus this."""

CELLS = 61
"""Cells of a side of the surface."""

HALF = 20
"""Starts of half a side of the map of times."""

POINTS = 200
"""Times of a curve, and points of a way."""

WEAKEST = 0.5
"""Least target."""

FLOOR = 1e-4
"""Losses below this share of that at the origin are drawn as this."""

SHARES = (0.5, 0.99)
"""Parts of the way of the product whose times are told."""


class Surface(Params):
    """A chain of two groups of equal weights, and where they start."""

    first: float = slider(1.5, -WINDOW, WINDOW, "Start, w₁", step=0.01, about="Or click in the map.")
    second: float = slider(-1.48, -WINDOW, WINDOW, "Start, w₂", step=0.01)
    strength: float = slider(
        1.0, WEAKEST, 3.0, "Target σ", step=0.05, about="What the product of all weights should be."
    )
    lower: int = whole(1, 1, 3, "Layers with weight w₁", about="Layers that start equal stay equal.")
    upper: int = whole(1, 1, 2, "Layers with weight w₂")


def _chain(params: Surface) -> list[float]:
    return [params.first] * params.lower + [params.second] * params.upper


def _horizon(chain: list[float], strength: float) -> tuple[float, np.ndarray]:
    """Where the curves end, and the times at which parts of the way are done; infinite where they never are."""
    shares = np.asarray(layer_mode_time(chain, strength, fraction=SHARES))
    if np.isfinite(shares[-1]) and shares[-1] > 0:
        return 1.25 * float(shares[-1]), shares
    product = math.prod(chain)
    if product * strength < 0:  # it falls to zero, and stays
        return 1.25 * float(layer_mode_time(chain, strength, product=0.01 * product)), shares
    return 1.0 / strength, shares


def _way(start: tuple[float, float], end: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """The way of both weights: the smaller one moves steadily, the other keeps the difference of the squares."""
    (u, v), (x, y) = start, end
    law = (u - v) * (u + v)
    if law == 0:
        return np.linspace(u, x, POINTS), np.linspace(v, y, POINTS)
    if law > 0:
        least = np.linspace(v, y, POINTS)
        return np.sign(u) * np.sqrt(least**2 + law), least
    least = np.linspace(u, x, POINTS)
    return least, np.sign(v) * np.sqrt(least**2 - law)


def _flow_lines() -> Series:
    """Curves of constant w₁² - w₂², along which every start moves."""
    x, y = [], []
    t = np.linspace(-WINDOW, WINDOW, 61)
    for law in (0.5, 2.0):
        far = np.sqrt(t**2 + law)
        far = np.where(far <= WINDOW, far, np.nan)
        for sign in (1.0, -1.0):
            x += [*(sign * far), np.nan, *t, np.nan]
            y += [*t, np.nan, *(sign * far), np.nan]
    for sign in (1.0, -1.0):
        x += [-WINDOW, WINDOW, np.nan]
        y += [-sign * WINDOW, sign * WINDOW, np.nan]
    return line("flow lines", x, y, colour=7, style="dot", faint=True)


def _minima(params: Surface) -> Series:
    """Where the product is the target."""
    x, y = [], []
    sizes = np.geomspace(1e-2, WINDOW, 120)
    others = (params.strength / sizes**params.lower) ** (1 / params.upper)
    others = np.where(others <= WINDOW, others, np.nan)
    for one in (1, -1):
        for two in (1, -1):
            if one**params.lower * two**params.upper == 1:
                x += [*(one * sizes), np.nan]
                y += [*(two * others), np.nan]
    return line("minima", x, y, colour=2)


def _saddles(params: Surface) -> Series:
    """The origin, and an axis where two or more layers are zero on it."""
    x, y = [0.0], [0.0]
    reach = np.linspace(-WINDOW, WINDOW, 41)
    if params.lower > 1:
        x, y = [*x, *(0.0 * reach)], [*y, *reach]
    if params.upper > 1:
        x, y = [*x, *reach], [*y, *(0.0 * reach)]
    return line("saddles", x, y, colour=3, style="points", faint=len(x) > 1)


@functools.cache
def _unit_times(lower: int, upper: int) -> tuple[np.ndarray, np.ndarray]:
    """For target 1: positive starts, and the time from all pairs of them to the last of the parts.

    Only sizes and the sign of the product matter: one quarter of the plane, with a product of the right sign and of
    the wrong one; infinite where it never comes.
    """
    side = (np.arange(HALF) + 0.5) * WINDOW / (math.sqrt(WEAKEST) * HALF)
    u, v = (grid.ravel() for grid in np.meshgrid(side, side))
    turn = -1.0 if lower % 2 else 1.0
    other = -1.0 if upper % 2 and not lower % 2 else 1.0
    starts = np.concatenate(
        [np.stack([a * u] * lower + [b * v] * upper, axis=1) for a, b in ((1.0, 1.0), (turn, other))]
    )
    found = np.asarray(layer_mode_time(starts, np.ones(len(starts)), fraction=[SHARES[-1]]))
    return side, found.reshape(2, HALF, HALF)


def _times_from(params: Surface) -> tuple[np.ndarray, np.ndarray]:
    r"""Starts, and the time from each of them: all targets are one.

    With $w = \sigma^{1/L}w'$ and $t = \sigma^{2/L-2}t'$ the flow is that of the target 1.
    """
    side, (right, wrong) = _unit_times(params.lower, params.upper)
    depth = params.lower + params.upper
    side = side * params.strength ** (1 / depth)
    kept = slice(0, min(int(np.sum(side < WINDOW)) + 1, HALF))
    axis = np.concatenate([-side[kept][::-1], side[kept]])
    signs = np.sign(axis[None, :]) ** params.lower * np.sign(axis[:, None]) ** params.upper
    times = np.where(signs > 0, _mirrored(right[kept, kept]), _mirrored(wrong[kept, kept]))
    return axis, times * params.strength ** (2 / depth - 2)


def _mirrored(quarter: np.ndarray) -> np.ndarray:
    """The whole plane from the quarter of positive weights."""
    upper = np.hstack([quarter[:, ::-1], quarter])
    return np.vstack([upper[::-1], upper])


def surface(params: Surface, watch: Watch) -> Answer:
    """Map, way, curves and what is known of the end."""
    chain, sigma = _chain(params), params.strength
    horizon, shares = _horizon(chain, sigma)
    times = np.linspace(0.0, horizon, POINTS)
    weights = np.asarray(layer_mode(np.append(times, np.inf), chain, sigma))
    end = (float(weights[-1, 0]) + 0.0, float(weights[-1, -1]) + 0.0)  # no negative zeros
    weights = weights[:-1]
    products = np.prod(weights, axis=1)
    losses = 0.5 * (sigma - products) ** 2
    axis = np.linspace(-WINDOW, WINDOW, CELLS)
    field = 0.5 * (sigma - axis[None, :] ** params.lower * axis[:, None] ** params.upper) ** 2
    x, y = _way((params.first, params.second), end)
    drawn = [
        _flow_lines(),
        _minima(params),
        _saddles(params),
        line("way", x, y, colour=1),
        line("start", [params.first], [params.second], colour=7, style="points"),
        line("end", [end[0]], [end[1]], colour=1, style="points"),
    ]
    axes: Any = {"x": Axis(label="w₁", low=-WINDOW, high=WINDOW), "y": Axis(label="w₂", low=-WINDOW, high=WINDOW)}
    starts, waits = _times_from(params)
    marks = [Mark(at=float(shares[0]), label="half")] if np.isfinite(shares[0]) and shares[0] > 0 else []
    stuck = not abs(math.prod(_ends(params, end)) - sigma) <= 1e-6 * sigma
    remarks = []
    if stuck and math.prod(chain) * sigma < 0:
        remarks.append(
            "Two or more layers of the smallest size fall to zero together: none of them can change its sign alone. "
            "Any difference between them, however small, leads away from the saddle in the end."
        )
    figures: list[Any] = [
        Map(
            name="surface",
            title="Loss ½(σ − w₁ᵃ w₂ᵇ)², and the way down",
            xs=numbers(axis),
            ys=numbers(axis),
            z=rows(np.maximum(field, FLOOR * 0.5 * sigma**2)),
            value="loss",
            log=True,
            contours=True,
            pick=("first", "second"),
            series=drawn,
            caption="Click or drag: the start follows. Dotted: curves of constant w₁² − w₂², which no run leaves.",
            **axes,
        ),
        curves(
            "weights",
            "Weights and their product",
            "time",
            "value",
            [
                line("w₁", times, weights[:, 0], colour=0),
                line("w₂", times, weights[:, -1], colour=1),
                line("product", times, products, colour=4),
                line("target", [0.0, horizon], [sigma] * 2, colour=4, style="dot", faint=True, legend=False),
            ],
            marks,
        ),
        curves(
            "loss",
            "Loss",
            "time",
            Axis(label="loss", low=0.0, high=1.05 * max(float(losses.max()), 1e-12)),
            [line("loss", times, losses)],
            marks,
        ),
        Map(
            name="waits",
            title="Time to 99 % from every start",
            xs=numbers(starts),
            ys=numbers(starts),
            z=rows(np.where(waits > 0, waits, np.nan)),
            value="time",
            log=True,
            pick=("first", "second"),
            series=[line("start", [params.first], [params.second], colour=7, style="points", legend=False)],
            caption="White: starts that end at a saddle, or are at the target.",
            **axes,
        ),
    ]
    facts = _facts(params, end, shares, stuck, float(losses[0]))
    return Answer(figures=figures, facts=facts, remarks=remarks)


def _ends(params: Surface, end: tuple[float, float]) -> list[float]:
    return [end[0]] * params.lower + [end[1]] * params.upper


def _facts(params: Surface, end: tuple[float, float], shares: np.ndarray, stuck: bool, loss: float) -> list[Fact]:
    place = f"({end[0]:.4g}, {end[1]:.4g})"
    law = (params.first - params.second) * (params.first + params.second)
    facts = [
        Fact(label="Ends at", value=f"a saddle, {place}", tone="bad")
        if stuck
        else Fact(label="Ends at", value=f"a minimum, {place}", tone="good"),
        Fact(label="w₁² − w₂², kept", value=f"{law:.4g}"),
        Fact(label="Loss at the start", value=f"{loss:.4g}", note=f"At the origin it is {params.strength**2 / 2:.4g}."),
    ]
    for share, time in zip(SHARES, shares, strict=True):
        value = f"{max(float(time), 0.0):.4g}" if np.isfinite(time) else "never"
        facts.append(Fact(label=f"{share:.0%} of the way", value=value, tone="plain" if np.isfinite(time) else "bad"))
    if not stuck:
        sharpness = sum((params.strength / weight) ** 2 for weight in _ends(params, end))
        note = f"Gradient descent is stable there for steps below {2 / sharpness:.3g}."
        facts.append(Fact(label="Curvature at the end", value=f"{sharpness:.4g}", note=note))
    return facts


def surface_script(params: Surface) -> str:
    """Way, times and end."""
    chain = _chain(params)
    return script(f"""
from deeplinear.exact import layer_mode, layer_mode_time

start, sigma = {chain}, {params.strength!r}
times = np.linspace(0.0, {_horizon(chain, params.strength)[0]!r}, {POINTS})
weights = layer_mode(times, start, sigma)  # (time, layer)
loss = 0.5 * (sigma - np.prod(weights, axis=1)) ** 2
print(loss[-1], layer_mode(np.inf, start, sigma))  # the last loss, and where it ends
print(layer_mode_time(start, sigma, fraction={list(SHARES)}))
""")


def surface_command(params: Surface) -> str | None:
    """Files of the start and the target, and the closed form of the run between them."""
    chain = _chain(params)
    layers = {f"W{k}": [[weight]] for k, weight in enumerate(chain, 1)}
    files = [npz_file("start.npz", **layers), csv_file("target.csv", [[params.strength]])]
    run = command(
        "exact",
        widths=[1] * (len(chain) + 1),
        target="target.csv",
        init="file",
        init_file="start.npz",
        horizon=_horizon(chain, params.strength)[0],
        points=POINTS,
        probes=["loss", "product"],
    )
    return "\n".join([*files, run])
