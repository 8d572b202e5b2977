"""Many starts of one completion problem, and the low rank they are drawn to."""

import collections
import math
from typing import Any, Literal

import numpy as np

from deeplinear.core import spectrum_effective_rank
from deeplinear.geometry import free_energy, matrix_flow
from deeplinear.lab._figures import Answer, Axis, Fact, Mark, curves, line
from deeplinear.lab._recipes import command, script
from deeplinear.lab._room import Params, Watch, choice, slider, whole
from deeplinear.models import AbstractLoss, Completion

MOMENTS = 24
"""Times at which the cloud is shown."""

TRAILS = 12
"""Starts whose whole way is drawn."""

STEPS = 3_000
"""Most steps between two moments."""

RTOL = 1e-6
"""Relative tolerance of the flow."""

GRADIENT = 1e-5
"""Norm of the gradient at which a start has arrived."""

LARGEST = 1e3
"""Singular value at which a flow with entropy counts as running away."""

DEPTHS = {"1": "1", "2": "2", "3": "3", "5": "5", "inf": "infinite"}


class CloudParams(Params):
    """Starts, and the flow they follow."""

    layers: Literal["1", "2", "3", "5", "inf"] = choice("inf", DEPTHS, "Depth")
    size: int = whole(2, 2, 10, "Size d of the matrix", about="Its diagonal is known to be 1; the rest is free.")
    deviation: float = slider(0.1, 0.001, 1.0, "Entries at the start", log=True, about="Their standard deviation.")
    starts: int = whole(60, 10, 200, "Starts")
    horizon: float = slider(50.0, 1.0, 2000.0, "Horizon", log=True)
    temperature: float = slider(
        0.0,
        0.0,
        0.2,
        "Temperature 1/β",
        step=0.005,
        about="Times the entropy is taken from the energy; 0: none.",
        only={"layers": ["2", "3", "5", "inf"]},
    )
    seed: int = whole(0, 0, 9999, "Seed", seed=True)


def _depth(params: CloudParams) -> float:
    return math.inf if params.layers == "inf" else int(params.layers)


def cloud_energy(params: CloudParams) -> AbstractLoss:
    """Half the squared distance of the diagonal from one, less the entropy at a temperature."""
    energy = Completion(np.eye(params.size), np.eye(params.size))
    warm = params.temperature > 0 and params.layers != "1"
    return free_energy(energy, 1 / params.temperature, _depth(params)) if warm else energy


def cloud_starts(params: CloudParams) -> np.ndarray:
    """Matrices with independent normal entries."""
    shape = params.starts, params.size, params.size
    return np.random.default_rng(params.seed).standard_normal(shape) * params.deviation


def cloud_times(horizon: float) -> np.ndarray:
    """Moments, closer together at first."""
    return np.geomspace(horizon / 200, horizon, MOMENTS)


def answer_cloud(params: CloudParams, watch: Watch) -> Answer:
    """Let the starts flow, moment by moment."""
    depth, energy, first = _depth(params), cloud_energy(params), cloud_starts(params)
    times = cloud_times(params.horizon)
    points, spectra = [first], [np.linalg.svd(first, compute_uv=False)]
    status = np.full(params.starts, "time limit", dtype=object)
    watch(0.0)
    done = 0
    for number, step in enumerate(np.diff(times, prepend=0.0)):
        moving = np.flatnonzero(status == "time limit")
        now, values = points[-1].copy(), spectra[-1].copy()
        if len(moving):

            def told(share: float, number: int = number) -> None:
                watch((number + share) / MOMENTS, f"t = {times[number]:.3g}")

            flow = matrix_flow(
                energy,
                now[moving],
                depth,
                [step],
                normalised=True,
                rtol=RTOL,
                atol=1e-3 * RTOL * min(float(np.max(np.abs(first))), 1.0),
                gradient=GRADIENT,
                largest=LARGEST if params.temperature > 0 else 1e6,
                points=False,
                steps=STEPS,
                progress=told,
            )
            now[moving], values[moving], status[moving] = flow.end, flow.spectra[:, -1], flow.status
        points.append(now)
        spectra.append(values)
        done = number + 1
        if done < MOMENTS:
            watch(done / MOMENTS, f"t = {times[number]:.3g}", _drawn(params, times[:done], points, spectra, status))
    return _drawn(params, times, points, spectra, status)


def _drawn(params: CloudParams, times: np.ndarray, points: list[Any], spectra: list[Any], status: np.ndarray) -> Answer:
    """The cloud at the last of the times."""
    d, moment = params.size, float(times[-1])
    values = np.stack(spectra)  # moments, starts, modes
    ranks = np.asarray(spectrum_effective_rank(values))
    trail = np.concatenate([values[:, :TRAILS], np.full((1, min(TRAILS, params.starts), d), math.nan)])
    trails = np.swapaxes(trail, 0, 1).reshape(-1, d)
    figures: list[Any] = [
        curves(
            "cloud",
            f"The two largest singular values at t = {moment:.3g}",
            "s₁",
            "s₂",
            [
                line("ways of some", trails[:, 0], trails[:, 1], colour=5, faint=True),
                line("start", values[0, :, 0], values[0, :, 1], colour=6, style="points", faint=True),
                line("now", values[-1, :, 0], values[-1, :, 1], colour=0, style="points"),
            ],
            [Mark(at=float(d), label="s₁ = d")],
            "Low rank is the axis s₂ = 0. Matrices of rank one with this diagonal have s₁ ≥ d.",
        )
    ]
    if d == 2:
        arm = np.geomspace(1 / 3, 3.0, 40)
        ends = points[-1]
        hyperbola = np.concatenate([arm, [math.nan], -arm])
        figures.append(
            curves(
                "entries",
                "The two free entries",
                Axis(label="x₁₂", low=-3.0, high=3.0),
                Axis(label="x₂₁", low=-3.0, high=3.0),
                [
                    line("rank one", hyperbola, 1 / hyperbola, colour=1, style="dash"),
                    line("now", ends[:, 0, 1], ends[:, 1, 0], colour=0, style="points"),
                ],
                caption="On the hyperbola x₁₂x₂₁ = 1 the completed matrix has rank one.",
            )
        )
    bins = np.linspace(1.0, float(d), 25)
    middle = (bins[1:] + bins[:-1]) / 2
    bars = [
        line(name, middle, np.histogram(np.clip(part, 1.0, d), bins)[0], colour=colour, style="bars")
        for name, part, colour in (("start", ranks[0], 6), ("now", ranks[-1], 0))
    ]
    quantiles = np.quantile(ranks[1:], (0.1, 0.5, 0.9), axis=1)
    bands = [
        line(name, times, part, colour=0, style=style)
        for name, part, style in zip(("10 %", "median", "90 %"), quantiles, ("dot", "line", "dot"), strict=True)
    ]
    typical = np.median(values[1:], axis=1)
    figures += [
        curves("ranks", "Effective rank of the starts, then and now", "effective rank", "starts", bars),
        curves(
            "course",
            "Effective rank in time",
            Axis(label="time", log=True),
            Axis(label="effective rank", low=0.95, high=d + 0.05),
            bands,
        ),
        curves(
            "modes",
            "Singular values in time (medians)",
            Axis(label="time", log=True),
            Axis(label="singular value", log=True),
            [line(f"s{k + 1}", times, np.maximum(typical[:, k], 1e-12), colour=k) for k in range(d)],
        ),
    ]
    return Answer(figures=figures, facts=_facts(params, points, ranks, status), remarks=_remarks(params, status))


def _facts(params: CloudParams, points: list[Any], ranks: np.ndarray, status: np.ndarray) -> list[Fact]:
    arrived = float(np.mean(status == "converged"))
    kept = np.mean(np.sign(np.linalg.det(points[0])) == np.sign(np.linalg.det(points[-1])))
    before, after = float(np.mean(ranks[0])), float(np.mean(ranks[-1]))
    facts = [
        Fact(
            label="Mean effective rank",
            value=f"{before:.3f} → {after:.3f}",
            tone="good" if after < before else "plain",
        ),
        Fact(label="Arrived at the known entries", value=f"{arrived:.0%}"),
        Fact(
            label="Kept the sign of the determinant",
            value=f"{kept:.0%}",
            note="All do from depth 2 on." if params.layers != "1" else "A single layer is not bound to it.",
        ),
    ]
    if params.size == 2:
        missed = float(np.median(np.abs(points[-1][:, 0, 1] * points[-1][:, 1, 0] - 1)))
        facts.append(Fact(label="Median |x₁₂x₂₁ − 1|", value=f"{missed:.3g}", note="Zero: rank one."))
    return facts


def _remarks(params: CloudParams, status: np.ndarray) -> list[str]:
    counts = collections.Counter(status)
    words = {
        "diverged": f"reached a singular value above {LARGEST if params.temperature > 0 else 1e6:g} and were stopped",
        "singular": "came to a matrix that is singular to rounding and were stopped",
        "step limit": f"needed more than {STEPS} steps between two moments and were stopped",
    }
    found = [f"{counts[name]} of {params.starts} starts {text}." for name, text in words.items() if counts[name]]
    if params.temperature > 0:
        found.append(
            "A single layer has no entropy: the temperature does nothing."
            if params.layers == "1"
            else "With entropy the energy of completion has no minimum: s₁ grows for ever, and low rank is a transient."
        )
    return found


def cloud_script(params: CloudParams) -> str:
    """The same flow with the library, in one call."""
    depth = "np.inf" if params.layers == "inf" else params.layers
    warm = params.temperature > 0 and params.layers != "1"
    cooled = f"energy = free_energy(energy, {1 / params.temperature!r}, depth)" if warm else ""
    names = "free_energy, matrix_flow" if warm else "matrix_flow"
    return script(
        f"""
from deeplinear.core import spectrum_effective_rank
from deeplinear.geometry import {names}
from deeplinear.models import Completion

depth, size = {depth}, {params.size}
energy = Completion(np.eye(size), np.eye(size))
{cooled}
starts = np.random.default_rng({params.seed}).standard_normal(({params.starts}, size, size)) * {params.deviation!r}
times = np.geomspace({params.horizon!r} / 200, {params.horizon!r}, {MOMENTS})
flow = matrix_flow(
    energy,
    starts,
    depth,
    times,
    normalised=True,
    rtol=1e-6,
    atol=1e-9 * min(np.abs(starts).max(), 1.0),
    gradient={GRADIENT},
    largest={LARGEST if params.temperature > 0 else 1e6},
    steps={STEPS * MOMENTS},
)
ranks = spectrum_effective_rank(flow.spectra)  # starts first
print(ranks[:, -1].mean(), set(flow.status))
"""
    )


def cloud_command(params: CloudParams) -> str | None:
    """The same starts and their ends, as an experiment; there is one of size 2 and infinite depth."""
    if params.size != 2 or params.layers != "inf" or params.temperature > 0:
        return None
    settings = {
        "seeds": params.starts,
        "deviation": params.deviation,
        "factor": 1,
        "horizon": params.horizon,
        "gradient": GRADIENT,
        "rtol": RTOL,
        "seed": params.seed,
    }
    given = (f"{key}={value:.12g}" for key, value in settings.items())
    return " ".join([command("experiment run geometry/fig4.1a"), *given])
