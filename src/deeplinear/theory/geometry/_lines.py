"""Geodesics of balanced layers: what their products do, and which of them are straight lines."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
import scipy.integrate

from deeplinear.geometry import Metric, balanced_layers, frame_line_defect, geodesic, line_defect, multipliers
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._geodesics import SIZE, TIMES, fitted_velocity
from deeplinear.theory.geometry._geodesics_errata import FULL
from deeplinear.theory.geometry._matrices import (
    ROUNDING,
    Place,
    draw_orthogonal,
    draw_place,
    draw_positive,
    draw_spectrum,
    polar,
)

# --- Submersion -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Lift:
    """Balanced layers and a direction.

    Attributes:
        place: Their product with a tangent, and the depth.
        turns: Frames of the hidden layers.
        skew: What turns the hidden layers, added to the horizontal direction.
    """

    place: Place
    turns: np.ndarray
    skew: np.ndarray


def _draw_lift(rng: np.random.Generator, tilt: float = 0.0) -> Lift:
    depth = int(rng.choice([2, 3, 4]))
    place = dataclasses.replace(draw_place(rng, (SIZE,)), depth=depth)
    skew = rng.standard_normal((depth - 1, SIZE, SIZE))
    return Lift(
        place,
        np.stack([draw_orthogonal(rng, SIZE) for _ in range(depth - 1)]),
        tilt * (skew - np.swapaxes(skew, 1, 2)),
    )


def _partials(layers: Sequence[np.ndarray] | np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """W_{L:l+1} and W_{l-1:1} for every layer."""
    size = len(layers[0])
    found = []
    for k in range(len(layers)):
        above, below = np.eye(size), np.eye(size)
        for layer in layers[k + 1 :]:
            above = layer @ above
        for layer in layers[:k]:
            below = layer @ below
        found.append((above, below))
    return found


def _pulled(layers: Sequence[np.ndarray] | np.ndarray, covector: np.ndarray) -> np.ndarray:
    return np.stack([above.T @ covector @ below.T for above, below in _partials(layers)])


def _climbing(_: float, state: np.ndarray, depth: int, size: int) -> np.ndarray:
    """Geodesics of the balanced layers: the multipliers in the frames of the layers, one chain for each entry."""
    layers, moves = state.reshape(2, depth, size, size)
    frames, squares = [], []
    for below, above in itertools.pairwise(layers):
        values, vectors = np.linalg.eigh(below @ below.T + above.T @ above)
        frames.append(vectors)
        squares.append(values)
    count = size**2
    system, right = np.zeros((depth - 1, count, depth - 1, count)), np.zeros((depth - 1, count))
    for k in range(depth - 1):
        force = moves[k] @ moves[k].T - moves[k + 1].T @ moves[k + 1]
        right[k] = (2 * frames[k].T @ force @ frames[k]).ravel()
        system[k, :, k] = np.diag((squares[k][:, None] + squares[k]).ravel())
        if k + 1 < depth - 1:
            seen = frames[k + 1].T @ layers[k + 1] @ frames[k]
            mixed = 2 * np.kron(seen, seen)
            system[k + 1, :, k], system[k, :, k + 1] = -mixed, -mixed.T
    solved = np.linalg.solve(system.reshape((depth - 1) * count, -1), right.ravel()).reshape(depth - 1, size, size)
    held = [np.zeros((size, size)), *(q @ s @ q.T for q, s in zip(frames, solved, strict=True)), np.zeros((size, size))]
    bent = np.stack([w @ held[k] - held[k + 1] @ w for k, w in enumerate(layers)])
    return np.stack([moves, bent]).ravel()


PROJECTED = "product of the geodesic of layers misses the geodesic by"
SIDEWAYS = "velocity of the layers is not horizontal by"
LENGTHS = "lengths differ by"


def _measure_submersion(instances: Sequence[Lift]) -> list[Measured]:
    measured = []
    for lift in instances:
        depth, size = int(lift.place.depth), len(lift.place.point)
        left, values, right_t = np.linalg.svd(lift.place.point)
        frames = [right_t.T, *lift.turns, left]
        layers = np.stack([(b * values ** (1 / depth)) @ a.T for a, b in itertools.pairwise(frames)])
        below = geodesic(lift.place.point, depth, TIMES, velocity=fitted_velocity(lift.place))
        momentum = np.asarray(Metric(depth).inverse(lift.place.point, fitted_velocity(lift.place)))
        skew = np.concatenate([np.zeros((1, size, size)), lift.skew, np.zeros((1, size, size))])
        moves = _pulled(layers, momentum) + skew[1:] @ layers - layers @ skew[:-1]
        run = scipy.integrate.solve_ivp(
            _climbing,
            (0, 1),
            np.stack([layers, moves]).ravel(),
            "DOP853",
            TIMES,
            args=(depth, size),
            rtol=1e-11,
            atol=1e-13,
        )
        states = run.y.T.reshape(len(TIMES), 2, depth, size, size)
        missed = aside = 0.0
        for (above, speed), point, force in zip(
            states, np.asarray(below.points), np.asarray(below.momenta), strict=True
        ):
            product = above[0]
            for layer in above[1:]:
                product = layer @ product
            missed = max(missed, float(np.max(np.abs(product - point))))
            seen = sum(a @ v @ b for v, (a, b) in zip(speed, _partials(above), strict=True))
            lifted = _pulled(above, np.asarray(Metric(depth).inverse(product, seen)))
            aside = max(
                aside, float(np.max(np.abs(speed - lifted))), float(np.max(np.abs(_pulled(above, force) - speed)))
            )
        length = float(np.linalg.norm(moves)) * (TIMES[-1] - TIMES[0])
        measured.append(
            Measured({PROJECTED: missed, SIDEWAYS: aside, LENGTHS: abs(length - float(below.length)) / length})
        )
    return measured


THEOREM_312 = Check(
    id="geometry/theorem-3.1.2",
    source="Theorem 3.1.2",
    statement="A geodesic of balanced layers that starts horizontally stays horizontal, and its product is a geodesic "
    "of the same length.",
    hypotheses=(
        Hypothesis("horizontal start", lambda lift: float(np.max(np.abs(lift.skew)))),
        Hypothesis("square and of full rank: ratio of singular values", lambda lift: FULL.residual(lift.place), 1e3),
    ),
    tolerances={PROJECTED: 1e-9, SIDEWAYS: 1e-8, LENGTHS: 1e-9},
    measure=_measure_submersion,
    draw=_draw_lift,
    violations=(Violation("a start that is not horizontal", lambda rng: _draw_lift(rng, 0.2)),),
)

# --- Straight lines ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Line:
    """Two networks of balanced layers, by strengths and frames, and whether the line between them is said balanced."""

    strengths: np.ndarray
    turns: np.ndarray
    end_strengths: np.ndarray
    end_turns: np.ndarray
    straight: bool


def _draw_line(rng: np.random.Generator, kind: str | None = None) -> Line:
    """Random ends, relative frames of period two, or multiples of orthogonal layers with turns that grow linearly."""
    kind = str(rng.choice(["random", "period two", "turning"])) if kind is None else kind
    depth = 2 if kind == "turning" else int(rng.choice([2, 3]))
    size = 2
    strengths, others = draw_spectrum(rng, size, 0.7), draw_spectrum(rng, size, 0.7)
    turns = np.stack([draw_orthogonal(rng, size) for _ in range(depth + 1)])
    if kind == "turning":
        a, b = rng.uniform(0.2, 1.0, 2)
        strengths, others = np.full(size, strengths[0]), np.full(size, others[0])
        relative = np.stack([_rotation(b + k * a) for k in (-1, 0, 1)])
    elif kind == "period two":
        pair = [draw_orthogonal(rng, size) for _ in range(2)]
        relative = np.stack([pair[k % 2] for k in range(depth + 1)])
    else:
        relative = np.stack([draw_orthogonal(rng, size) for _ in range(depth + 1)])
    return Line(strengths, turns, others, turns @ np.swapaxes(relative, 1, 2), kind != "random")


def _rotation(angle: float) -> np.ndarray:
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def _gaps(layers: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([np.linalg.norm(above.T @ above - below @ below.T) for below, above in itertools.pairwise(layers)])


DIRECT = "imbalance on the way misses t(1-t) times the direct criterion by"
SKEW = "the two criteria are of different opinion at"
STRAIGHT = "a line said to be balanced is not, by"
FREE = "a balanced line is accelerated by"
STRAY = 1e-9
"""Below this a criterion says that a line is balanced."""


def _measure_lines(instances: Sequence[Line]) -> list[Measured]:
    measured = []
    for line in instances:
        start = balanced_layers(line.strengths, list(line.turns))
        end = balanced_layers(line.end_strengths, list(line.end_turns))
        direct = np.asarray(line_defect(start, end))
        skew = np.asarray(frame_line_defect(line.strengths, list(line.turns), line.end_strengths, list(line.end_turns)))
        a, b = ([np.asarray(w) for w in layers] for layers in (start, end))
        missed = 0.0
        for t in (0.3, 0.5, 0.9):
            gaps = _gaps([(1 - t) * x + t * y for x, y in zip(a, b, strict=True)])
            missed = max(missed, float(np.max(np.abs(gaps - t * (1 - t) * direct))))
        balanced = bool(np.all(direct < STRAY))
        held = multipliers(start, tuple(y - x for x, y in zip(start, end, strict=True))) if balanced else np.zeros(1)
        residuals = {
            DIRECT: missed,
            SKEW: float(np.sum((direct < STRAY) != (skew < STRAY))),
            STRAIGHT: float(np.max(direct)) if line.straight else 0.0,
            FREE: float(np.max(np.abs(np.asarray(held)))),
        }
        measured.append(Measured(residuals))
    return measured


LEMMA_341 = Check(
    id="geometry/lemma-3.4.1",
    source="Lemma 3.4.1",
    statement="The line between balanced A and B is balanced if R_{l+1} = R_{l-1} for all l, R_l = Q̃_lᵀQ_l; and if "
    "and only if (R_{l+1} - R_{l-1})(Λ̃⁻¹R_lΛ)ᵀ is skew for all l, equivalently B_{l+1}ᵀA_{l+1} - B_lA_lᵀ. It is a "
    "geodesic then.",
    hypotheses=(
        Hypothesis("positive strengths", lambda line: -float(np.min([line.strengths, line.end_strengths])), -1e-12),
    ),
    tolerances={DIRECT: ROUNDING, SKEW: 0.0, STRAIGHT: ROUNDING, FREE: 1e-11},
    measure=_measure_lines,
    draw=_draw_line,
    violations=(
        Violation("frames without a period", lambda rng: dataclasses.replace(_draw_line(rng, "random"), straight=True)),
        Violation(
            "turning frames with unequal strengths",
            lambda rng: dataclasses.replace(_draw_line(rng, "turning"), strengths=np.array([2.0, 0.7])),
        ),
    ),
)

BALANCED = "the line between the layers is not balanced by"
ENDS = "its ends miss the given matrices by"
RANK = "smallest singular value on the way is below that of the ends by"


def _draw_polar(rng: np.random.Generator, twist: float = 0.0) -> Place:
    turn = draw_orthogonal(rng, SIZE)
    skew = rng.standard_normal((SIZE, SIZE))
    other = turn @ _exponential(twist * (skew - skew.T))
    first, second = draw_positive(rng, SIZE), draw_positive(rng, SIZE)
    return Place(turn @ first, np.zeros((SIZE, SIZE)), int(rng.choice([2, 3, 4])), other @ second)


def _exponential(skew: np.ndarray) -> np.ndarray:
    """Of a skew matrix, by Cayley's map: an orthogonal matrix near it."""
    identity = np.eye(len(skew))
    return np.linalg.solve(identity - skew / 2, identity + skew / 2)


def _measure_polar(instances: Sequence[Place]) -> list[Measured]:
    measured = []
    for place in instances:
        depth = int(place.depth)
        left, values, right_t = np.linalg.svd(place.point)
        turn, _ = polar(place.other)
        # U~ = UQ and V~ = VQ: the frame of the symmetric part of B seen from U and V.
        seen = left.T @ place.other @ right_t.T
        others, frame = np.linalg.eigh((seen + seen.T) / 2)
        others, size = np.maximum(others, 1e-6), len(values)
        inner = [np.eye(size)] * (depth - 1)
        start = balanced_layers(values ** (1 / depth), [right_t.T, *inner, left])
        end = balanced_layers(
            others ** (1 / depth), [right_t.T @ frame, *[frame] * (depth - 1), turn @ right_t.T @ frame]
        )
        a, b = ([np.asarray(w) for w in layers] for layers in (start, end))
        gaps, least = 0.0, min(float(np.linalg.svd(w[0], compute_uv=False)[-1]) for w in (a, b))
        fallen = 0.0
        for t in np.linspace(0, 1, 6):
            layers = [(1 - t) * x + t * y for x, y in zip(a, b, strict=True)]
            gaps = max(gaps, float(np.max(_gaps(layers))))
            fallen = max(fallen, least - float(np.linalg.svd(layers[0], compute_uv=False)[-1]))
        ends = [np.linalg.multi_dot(layers[::-1]) for layers in (a, b)]
        missed = max(float(np.max(np.abs(e - w))) for e, w in zip(ends, (place.point, place.other), strict=True))
        measured.append(Measured({BALANCED: gaps, ENDS: missed, RANK: fallen}))
    return measured


def _apart(place: Place) -> float:
    return float(np.linalg.norm(polar(place.point)[0] - polar(place.other)[0]))


THEOREM_342 = Check(
    id="geometry/theorem-3.4.2-lines",
    source="Theorem 3.4.2, part 1",
    statement="Over two matrices with the same orthogonal polar factor there are balanced layers, of any depth, such "
    "that the straight line between them is balanced and of full rank: a geodesic of layers.",
    hypotheses=(Hypothesis("equal polar factors", _apart, 1e-9),),
    tolerances={BALANCED: ROUNDING, ENDS: ROUNDING, RANK: ROUNDING},
    measure=_measure_polar,
    draw=_draw_polar,
    violations=(Violation("different polar factors", lambda rng: _draw_polar(rng, 0.2)),),
)

CHECKS = (THEOREM_312, LEMMA_341, THEOREM_342)
