"""Geodesics of end-to-end matrices: their equations, what they conserve, where they end."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from deeplinear.core import xp
from deeplinear.geometry import Metric, geodesic, geodesic_field_sum, gram_power_derivative, layer_exponents
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._geodesics_errata import DEEP, FULL, QUOTIENT, mistold, motion, quadratic, slope
from deeplinear.theory.geometry._matrices import (
    DEPTHS,
    ROUNDING,
    Place,
    adopt_place,
    draw_orthogonal,
    draw_place,
    draw_spectrum,
    operator,
)

SIZE = 3
"""Size of the matrices that are integrated: one program serves all checks."""

TIMES = np.array([0.4, 1.0])

INTEGRATED = 1e-10
"""What an integration at tolerance 1e-12 misses over a unit of time."""


def fitted_velocity(place: Place, share: float = 0.6) -> np.ndarray:
    """The vector of a place as a velocity that cannot reach a singular matrix within a unit of time.

    √L s^{1/L} of any singular value, ln s at infinite depth, changes at most with unit speed.
    """
    lengthy = math.sqrt(2 * quadratic(place.point, place.vector, place.depth, inverse=True))
    least = float(np.linalg.svd(place.point, compute_uv=False)[-1])
    room = 1.0 if math.isinf(place.depth) else math.sqrt(place.depth) * least ** (1 / place.depth)
    return place.vector * share * room / lengthy if lengthy > 0 else place.vector


def _draw(rng: np.random.Generator) -> Place:
    return draw_place(rng, (SIZE,))


# --- Powers and traces ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Powered:
    """A point, a direction and the exponent of its Gram matrices, with the one that the other side is told."""

    point: np.ndarray
    vector: np.ndarray
    exponent: float
    told: float | None = None


def _draw_powered(rng: np.random.Generator) -> Powered:
    """Every third time with a repeated singular value."""
    values = draw_spectrum(rng, SIZE, 0.7)
    if rng.random() < 1 / 3:
        values[1] = values[0]
    point = (draw_orthogonal(rng, SIZE) * values) @ draw_orthogonal(rng, SIZE)
    return Powered(point, rng.standard_normal((SIZE, SIZE)), float(rng.uniform(-1, 1)))


def _power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * values**exponent) @ vectors.T


POWERS = "derivatives of (XXᵀ)^α and (XᵀX)^α differ from quotients by"


def _measure_powers(instances: Sequence[Powered]) -> list[Measured]:
    measured = []
    for one in instances:
        exponent = one.exponent if one.told is None else one.told
        found = np.stack(gram_power_derivative(one.point, one.vector, one.exponent))
        step = 1e-3 * float(np.linalg.svd(one.point, compute_uv=False)[-1]) / float(np.linalg.norm(one.vector))

        def powers(h: float, one: Powered = one, exponent: float = exponent) -> np.ndarray:
            x = one.point + h * one.vector
            return np.stack([_power(x @ x.T, exponent), _power(x.T @ x, exponent)])

        wanted = (8 * (powers(step) - powers(-step)) - (powers(2 * step) - powers(-2 * step))) / (12 * step)
        measured.append(Measured({POWERS: float(np.max(np.abs(found - wanted)) / np.max(np.abs(wanted)))}))
    return measured


LEMMA_331 = Check(
    id="geometry/lemma-3.3.1",
    source="Lemma 3.3.1",
    statement="The derivatives of (XXᵀ)^α and (XᵀX)^α in direction Z are U[f ∘ (ΣZ̃ᵀ + Z̃Σ)]Uᵀ and V[f ∘ (ΣZ̃ + Z̃ᵀΣ)]Vᵀ "
    "with the divided differences f of x^α at the squared singular values, equal ones included.",
    hypotheses=(Hypothesis("positive singular values", lambda one: -float(np.linalg.svd(one.point)[1][-1]), -1e-12),),
    tolerances={POWERS: QUOTIENT},
    measure=_measure_powers,
    draw=_draw_powered,
    violations=(
        Violation("another exponent", lambda rng: dataclasses.replace(_draw_powered(rng), exponent=0.6, told=0.5)),
    ),
)


@dataclasses.dataclass(frozen=True)
class Traces:
    """Matrices K and M, a diagonal one, and one more."""

    first: np.ndarray
    second: np.ndarray
    diagonal: np.ndarray
    other: np.ndarray


def _draw_traces(rng: np.random.Generator, crooked: float = 0.0) -> Traces:
    size = int(rng.integers(2, 6))
    k, m, a, tilt = rng.standard_normal((4, size, size))
    return Traces(k + k.T + crooked * tilt, m + m.T, rng.standard_normal(size), a)


TRACES = "traces differ by"


def _measure_traces(instances: Sequence[Traces]) -> list[Measured]:
    measured = []
    for one in instances:
        k, m, s, a = one.first, one.second, np.diag(one.diagonal), one.other
        left = [np.trace((k * (s @ a.T)) @ m), np.trace((k * (a @ s)) @ m), np.trace(s @ (k * m) @ a)]
        right = [np.trace((k * (s @ a)) @ m), np.trace((k * (a.T @ s)) @ m), np.trace((k * m) @ s @ a)]
        size = float(np.linalg.norm(k) * np.linalg.norm(m) * np.linalg.norm(s) * np.linalg.norm(a))
        measured.append(Measured({TRACES: float(max(np.ptp(left), np.ptp(right))) / size}))
    return measured


LEMMA_333 = Check(
    id="geometry/lemma-3.3.3",
    source="Lemma 3.3.3",
    statement="For symmetric K, M, a diagonal Σ and any A: tr([K∘(ΣAᵀ)]M) = tr([K∘(AΣ)]M) = tr(Σ[K∘M]A) and "
    "tr([K∘(ΣA)]M) = tr([K∘(AᵀΣ)]M) = tr([K∘M]ΣA).",
    hypotheses=(
        Hypothesis(
            "symmetric K and M",
            lambda one: float(max(np.max(np.abs(one.first - one.first.T)), np.max(np.abs(one.second - one.second.T)))),
        ),
    ),
    tolerances={TRACES: ROUNDING},
    measure=_measure_traces,
    draw=_draw_traces,
    violations=(Violation("K is not symmetric", lambda rng: _draw_traces(rng, 1.0)),),
)

# --- The equations and what they conserve -----------------------------------------------------------------------------

VELOCITY = "velocity misses A(P) by"
FORCE = "force misses minus the gradient of ½⟨P, A(P)⟩ by"
SUMMED = "closed form and sum over layers differ by"


def _measure_equations(instances: Sequence[Place]) -> list[Measured]:
    measured = []
    for place in instances:
        depth = place.independent_depth
        velocity, force = motion(place)
        size, strength = (max(float(np.max(np.abs(v))), 1e-300) for v in (velocity, force))
        wanted = operator(place.point, place.vector, depth)
        summed = geodesic_field_sum(
            layer_exponents(Metric(place.depth)),
            xp.asarray(place.point),
            xp.asarray(place.vector),
        )
        residuals = {
            VELOCITY: float(np.max(np.abs(velocity - wanted))) / size,
            FORCE: float(np.max(np.abs(force + slope(place.point, place.vector, depth)))) / strength,
            SUMMED: max(
                float(np.max(np.abs(velocity - summed[0]))) / size, float(np.max(np.abs(force - summed[1]))) / strength
            ),
        }
        measured.append(Measured(residuals))
    return measured


THEOREM_332 = Check(
    id="geometry/theorem-3.3.2",
    source="Theorem 3.3.2",
    statement="Geodesics solve X' = A(P), P' = -U(Σ_l [f_{(L-l)/L} ∘ M₁]Σ + Σ[f_{(l-1)/L} ∘ M₂])Vᵀ: Hamilton's "
    "equations of ½⟨P, A(P)⟩, which also have a form that does not grow with the depth.",
    hypotheses=(FULL, DEEP),
    tolerances={VELOCITY: ROUNDING, FORCE: QUOTIENT, SUMMED: 1e-11},
    measure=_measure_equations,
    draw=draw_place,
    violations=(Violation("another depth", mistold),),
    adopt=adopt_place,
)

ENERGY = "energy drifts by"
LEFT = "PXᵀ - XPᵀ drifts by"
RIGHT = "XᵀP - PᵀX drifts by"
DILATION = "⟨P, X⟩ leaves its line by"
CONE = "Σ s^{2/L}, or ln|det X|, leaves its parabola, or line, by"
LAWS = (ENERGY, LEFT, RIGHT, DILATION, CONE)


@dataclasses.dataclass(frozen=True)
class Path:
    """A place to start from, and by how much the momentum is bent away from the geodesic on the way."""

    place: Place
    bend: float = 0.0


def _measure_laws(instances: Sequence[Path]) -> list[Measured]:
    measured = []
    for path in instances:
        place, depth = path.place, path.place.depth
        found = geodesic(place.point, depth, TIMES, velocity=fitted_velocity(place))
        xs, ps, ts = (np.asarray(a) for a in (found.points, found.momenta, found.times))
        ps = ps + path.bend * ts[:, None, None] * place.other
        xs = xs * np.exp(path.bend * ts[:, None, None])
        energies = np.array([quadratic(x, p, depth) for x, p in zip(xs, ps, strict=True)])
        size, past = float(np.linalg.norm(xs[0]) * np.linalg.norm(ps[0])), ts - ts[0]
        turned, flipped = np.swapaxes(xs, 1, 2), np.swapaxes(ps, 1, 2)
        left, right = ps @ turned - xs @ flipped, turned @ ps - flipped @ xs
        products = np.sum(xs * ps, axis=(1, 2))
        values = np.linalg.svd(xs, compute_uv=False)
        if math.isinf(depth):
            cone, wanted, scale = np.sum(np.log(values), axis=1), products[0] * past, float(len(place.point))
        else:
            cone = depth * np.sum(values ** (2 / depth), axis=1)
            wanted = 2 * depth * products[0] * past + 2 * energies[0] * past**2
            scale = float(cone[0])
        numbers = (
            np.max(np.abs(energies / energies[0] - 1)),
            np.max(np.abs(left - left[0])) / size,
            np.max(np.abs(right - right[0])) / size,
            np.max(np.abs(products - products[0] - 2 / depth * energies[0] * past)) / size,
            np.max(np.abs(cone - cone[0] - wanted)) / scale,
        )
        facts = {"speed": float(found.speed), "steps": float(found.steps)}
        measured.append(Measured(dict(zip(LAWS, map(float, numbers), strict=True)), facts=facts))
    return measured


CONSERVED = Check(
    id="geometry/conserved-quantities",
    source="Section 3.3",
    statement="Along a geodesic H, PXᵀ - XPᵀ and XᵀP - PᵀX are constant, ⟨P, X⟩ is linear with slope 2H/L, and "
    "L Σ s^{2/L} is a parabola with second derivative 4H; at infinite depth ln|det X| is linear with slope ⟨P, X⟩.",
    hypotheses=(
        Hypothesis("a geodesic", lambda path: abs(path.bend)),
        Hypothesis("square and of full rank: ratio of singular values", lambda path: FULL.residual(path.place), 1e3),
        Hypothesis("at least two layers", lambda path: DEEP.residual(path.place)),
        Hypothesis("a tangent that is not zero", lambda path: 1e-8 - float(np.linalg.norm(path.place.vector))),
    ),
    tolerances=dict.fromkeys(LAWS, INTEGRATED),
    measure=_measure_laws,
    draw=lambda rng: Path(_draw(rng)),
    violations=(Violation("a curve that is bent", lambda rng: Path(_draw(rng), 1e-4)),),
    adopt=lambda problem, params: Path(adopt_place(problem, params)),
)

# --- Where geodesics end ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Fall:
    """Positive diagonal entries with their speeds, and the depth; the law is told another one in violations."""

    entries: np.ndarray
    speeds: np.ndarray
    depth: float
    told: float | None = None


def _draw_fall(rng: np.random.Generator) -> Fall:
    entries = np.exp(rng.uniform(-0.7, 0.7, SIZE))
    speeds = entries * rng.uniform(-0.2, 0.2, SIZE)
    speeds[0] = -entries[0] * rng.uniform(0.4, 0.8)
    return Fall(entries, speeds, DEPTHS[int(rng.integers(len(DEPTHS)))])


ROOT = "roots of the entries, or logarithms, leave their lines by"
END = "the end is not where the first entry vanishes, by"


def _measure_fall(instances: Sequence[Fall]) -> list[Measured]:
    measured = []
    for fall in instances:
        depth = fall.depth if fall.told is None else fall.told
        rates = fall.speeds / fall.entries
        goal = 20.0 if math.isinf(depth) else depth / -float(rates[0])
        times = goal * np.array([0.6, 1.0 if math.isinf(depth) else 1.5])
        path = geodesic(np.diag(fall.entries), fall.depth, times, velocity=np.diag(fall.speeds))
        found = np.stack([np.diag(x) for x in np.asarray(path.points)])
        past = np.asarray(path.times)[:, None]
        if math.isinf(depth):
            lines = np.log(found / fall.entries) - rates * past
            end = abs(float(path.end_time) / goal - 1) + float(path.status != "complete")
        else:
            lines = np.maximum(found / fall.entries, 0.0) ** (1 / depth) - 1 - rates / depth * past
            lines = lines[: len(past) - (path.status != "complete")]
            # It is stopped where the entry is 1e-8 of the largest: the root of that before the end.
            share = 1e-8 * max(np.max(found[-1]), np.max(fall.entries)) / fall.entries[0]
            end = max(0.0, abs(1 - float(path.end_time) / goal) - float(share ** (1 / depth)))
            end += float(path.status != "reached a singular matrix")
        measured.append(Measured({ROOT: float(np.max(np.abs(lines))), END: end}))
    return measured


COMPLETENESS = Check(
    id="geometry/completeness",
    source="Section 3.3",
    statement="On positive diagonal matrices a geodesic of depth L moves the L-th roots of the entries linearly and "
    "ends at a singular matrix, at the time L a/|v| of an entry a that falls with speed v; at infinite depth "
    "logarithms move linearly, and it never ends.",
    hypotheses=(
        Hypothesis("positive entries", lambda fall: -float(np.min(fall.entries)), -1e-12),
        Hypothesis(
            "the first entry falls fastest",
            lambda fall: float(fall.speeds[0] / fall.entries[0] - np.min(fall.speeds / fall.entries)),
        ),
    ),
    tolerances={ROOT: 1e-9, END: 1e-9},
    measure=_measure_fall,
    draw=_draw_fall,
    violations=(Violation("another depth", lambda rng: dataclasses.replace(_draw_fall(rng), depth=3, told=4)),),
)

CHECKS = (LEMMA_331, LEMMA_333, THEOREM_332, CONSERVED, COMPLETENESS)
