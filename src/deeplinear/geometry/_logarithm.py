r"""Geodesics between two matrices: the logarithm, and the distance.

Where a closed form is known it is used. Otherwise the boundary value problem for $(X, P)$ on $[0, 1]$ is solved by
Gauss collocation, from a first path that turns the polar factors into one another and interpolates the logarithms of
the positive ones (`_paths.py`), on meshes made finer until the end is met. Where Newton's method does not come there,
the end is approached step by step, the exponential map is integrated from the momentum found, and what it misses is
corrected. The result is a geodesic. It is the shortest one while the polar factors are not turned too far against each
other; near half a turn another may be as short, and both ways round are tried.
"""

import dataclasses
import itertools
import math
from typing import Any, Literal

import numpy as np
import scipy.linalg

from deeplinear.core import Matrix, check_number, check_size, entry, xp
from deeplinear.geometry._collocation import Solved, solve
from deeplinear.geometry._curvature import momenta_of, velocities_of
from deeplinear.geometry._explicit import NUMERIC, ExplicitGeodesic, checked_ends, closed_form
from deeplinear.geometry._exponential import COMPLETE, Geodesic, checked_times, geodesic, shoot
from deeplinear.geometry._length import distance_lower_bound
from deeplinear.geometry._metric import Metric
from deeplinear.geometry._paths import NEWTON, Paths, join

Method = Literal["auto", "collocation"]

FAR = 0.9 * math.pi
"""Angle between polar factors from which on the other way round may be as short."""

INTERVALS = (4, 8, 16, 32)
"""Intervals of the meshes that are tried in turn where the end is approached."""

NEWTON_STEPS = 40
"""Most Newton steps on one mesh."""

FINEST = 1e-12
"""End points closer than this, relative to the larger end, are not corrected any more."""

CORRECTIONS = 6
"""Most corrections by the exponential map."""

PARTS = 64
"""Most parts of the way, where the end is approached step by step."""


@dataclasses.dataclass(frozen=True)
class Connection:
    r"""A geodesic between two matrices.

    Attributes:
        start: $A$.
        end: $B$.
        depth: $L$.
        normalised: Whether in the normalised metric.
        case: The closed form it was found by, or "numeric".
        momentum: $P$ at the start.
        velocity: $\dot X = A_L[A](P)$ there; the logarithm of $B$ at $A$.
        length: Its length; not a number where none was found.
        lower_bound: What no curve between the two is shorter than.
        residual: Largest entry of what the exponential map misses the end by, where both ends are divided by their
            sizes, times the size of the end: by integration, or a bound from meshes of different fineness; for a closed
            form, what the formula misses the ends by.
        angle: Largest angle by which the polar factor of the start is turned into that of the end; 0 where an end is
            singular, half a turn where a direction is reversed alone. Both can be at depth one only.
        converged: Whether the residual is within the tolerance.
        iterations: Newton steps.
        message: How it was found, or why not.
        warning: What stands against its being the shortest; empty if nothing is known.
    """

    start: Matrix
    end: Matrix
    depth: float
    normalised: bool
    case: str
    momentum: Matrix
    velocity: Matrix
    length: float
    lower_bound: float
    residual: float
    angle: float
    converged: bool
    iterations: int
    message: str
    warning: str

    def path(self, times: Any) -> Geodesic:
        """The geodesic at increasing times from 0 at the start to 1 at the end.

        By its formula where there is one, else by integration from the momentum, exact relative to the larger end.
        """
        if self.case == NUMERIC:
            return geodesic(self.start, self.depth, times, momentum=self.momentum, normalised=self.normalised)
        ts = checked_times("Connection.path", times)
        form = closed_form(np.asarray(self.start), np.asarray(self.end), self.depth)
        assert form is not None
        metric = Metric(self.depth, normalised=self.normalised)
        points, velocities = form.points(ts), form.velocities(ts)
        momenta = velocities
        if self.depth != 1:
            momenta = momenta_of(float(metric.rate), points, velocities)[0] / float(metric.scale)
        return Geodesic(metric, self.start, self.momentum, ts, points, momenta, ts[-1], np.asarray(0), COMPLETE)


@entry(instead="call it outside of jit, vmap and grad; geodesic_field can be traced")
def geodesic_between(
    start: Any,
    end: Any,
    depth: float,
    *,
    normalised: bool = False,
    method: Method = "auto",
    tolerance: float = 1e-9,
) -> Connection:
    r"""The geodesic from one matrix to another: the logarithm of the second at the first.

    Args:
        start: $A$, square and of full rank.
        end: $B$, likewise, with a determinant of the same sign.
        depth: $L$, a positive integer or infinity.
        normalised: Whether in the normalised metric; infinite depth is always so.
        method: "auto" takes a closed form where there is one; "collocation" never does.
        tolerance: Largest residual with which a result counts as converged, relative to the largest entry of the end.

    Returns:
        The connection. Where the numerical method fails, `converged` is false, and the message and the residual tell
        how far it came.

    Raises:
        HypothesisError: An end is singular, or the determinants have opposite signs: the distance is infinite.

    Example:
        >>> found = geodesic_between([[1.0, 0.2], [-0.3, 0.8]], [[0.3, -0.9], [0.8, 0.5]], 2)
        >>> round(found.length, 9), found.case, found.residual < 1e-11
        (1.343979019, 'numeric', True)
    """
    where = "geodesic_between"
    if method not in ("auto", "collocation"):
        raise ValueError(f"{where}: method must be 'auto' or 'collocation', but is {method!r}.")
    check_number(where, "tolerance", tolerance, above=0.0)
    a, b = checked_ends(where, start, end, depth)
    if depth != 1:
        for name, matrix in (("start", a), ("end", b)):
            check_size(where, name, matrix, small=True)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # what comes of it is looked at
        form = closed_form(a, b, depth) if method == "auto" or depth == 1 else None
        if form is not None:
            return _closed(form, a, b, depth, normalised, tolerance)
    found = [connect(a, b, depth, normalised, turns, tolerance) for turns in ways_round(planes_between(a, b))]
    good = [one for one in found if one.converged]
    if not good:
        return min(found, key=lambda one: one.residual)
    best = min(good, key=lambda one: one.length)
    return dataclasses.replace(best, iterations=sum(one.iterations for one in found))


@entry(instead="call it outside of jit, vmap and grad; distance_lower_bound can be traced")
def distance(start: Any, end: Any, depth: float, *, normalised: bool = False) -> float:
    r"""Length of the geodesic between two matrices that `geodesic_between` finds.

    Args:
        start: $A$, square and of full rank.
        end: $B$, likewise, with a determinant of the same sign.
        depth: $L$, a positive integer or infinity.
        normalised: Whether in the normalised metric; infinite depth is always so.

    Returns:
        The length.

    Raises:
        RuntimeError: No geodesic was found; the residual is told.

    Example:
        >>> turn = jnp.array([[math.cos(1.1), -math.sin(1.1)], [math.sin(1.1), math.cos(1.1)]])
        >>> round(distance(jnp.eye(2), turn, 3) - 2 * math.sqrt(6) * math.sin(1.1 / 6), 12)
        0.0
    """
    found = geodesic_between(start, end, depth, normalised=normalised)
    if not found.converged:
        raise RuntimeError(f"distance: {found.message}")
    return found.length


def _closed(
    form: ExplicitGeodesic, a: np.ndarray, b: np.ndarray, depth: float, normalised: bool, tolerance: float
) -> Connection:
    scale = 1.0 if normalised or math.isinf(depth) else float(depth)
    times = np.array([0.0, 1.0]).reshape(-1, 1, 1)
    velocity = form.velocity(times)[0]
    missed = np.max(np.abs(form.point(times) - np.stack([a, b])), axis=(1, 2))
    residual = float(np.max(missed))
    length = form.length * (math.sqrt(depth) if normalised and not math.isinf(depth) else 1.0)
    converged = math.isfinite(length) and all(
        part <= tolerance * np.max(np.abs(end)) for part, end in zip(missed, (a, b), strict=True)
    )
    angle = _angle_between(a, b)
    return Connection(
        start=xp.asarray(a, dtype=float),
        end=xp.asarray(b, dtype=float),
        depth=depth,
        normalised=scale == 1,
        case=form.case,
        momentum=xp.asarray(velocity if depth == 1 else momenta_of(1 / depth, a, velocity)[0] / scale, dtype=float),
        velocity=xp.asarray(velocity, dtype=float),
        length=length if converged else math.nan,
        lower_bound=float(distance_lower_bound(a, b, depth, normalised=normalised)),
        residual=residual,
        angle=angle,
        converged=converged,
        iterations=0,
        message=f"Closed form: {form.case}."
        if converged
        else f"The closed form '{form.case}' misses the ends by {residual:.3g}: numbers too large or too small.",
        warning="" if depth == 1 else _warning(angle),
    )


Turns = list[tuple[np.ndarray, float]]
"""Planes, each by an orthonormal basis of two columns, and the angles to turn in them."""


def planes_between(a: np.ndarray, b: np.ndarray) -> Turns:
    """The rotation from the polar factor of one matrix to that of another, as turns in orthogonal planes."""
    return planes_of(scipy.linalg.polar(a)[0].T @ scipy.linalg.polar(b)[0])


def _angle_between(a: np.ndarray, b: np.ndarray) -> float:
    """Largest angle between the polar factors; 0 where one is not determined."""
    if any(np.linalg.matrix_rank(end) < len(end) for end in (a, b)):
        return 0.0
    turn = scipy.linalg.polar(a)[0].T @ scipy.linalg.polar(b)[0]
    if np.linalg.det(turn) < 0:
        return math.pi
    return max((abs(angle) for _, angle in planes_of(turn)), default=0.0)


def planes_of(turn: np.ndarray) -> Turns:
    """A rotation as turns in orthogonal planes."""
    blocks, frame = scipy.linalg.schur(turn, output="real")[:2]
    planes: Turns = []
    reversed_: list[int] = []
    k = 0
    while k < len(turn):
        if k + 1 < len(turn) and blocks[k + 1, k] != 0:
            planes.append((frame[:, k : k + 2], math.atan2(blocks[k + 1, k], blocks[k, k])))
            k += 2
            continue
        if blocks[k, k] < 0:
            reversed_.append(k)
        k += 1
    # The determinant is one, so directions that are reversed come in pairs: half a turn each.
    planes += [(frame[:, [i, j]], math.pi) for i, j in zip(reversed_[::2], reversed_[1::2], strict=True)]
    return planes


def ways_round(planes: Turns) -> list[Turns]:
    """Of every plane turned nearly by half a turn both ways round; of more than two such, one at a time."""
    far = [k for k, (_, angle) in enumerate(planes) if abs(angle) > FAR]
    ways = (
        list(itertools.product((False, True), repeat=len(far)))
        if len(far) <= 2
        else [tuple(k == j for k in range(len(far))) for j in range(-1, len(far))]
    )
    return [
        [
            (plane, angle - math.copysign(2 * math.pi, angle) if k in far and way[far.index(k)] else angle)
            for k, (plane, angle) in enumerate(planes)
        ]
        for way in ways
    ]


def generator_of(turns: Turns, size: int) -> np.ndarray:
    """The skew matrix whose exponential turns in these planes."""
    return sum(
        (angle * (plane[:, 1:] @ plane[:, :1].T - plane[:, :1] @ plane[:, 1:].T) for plane, angle in turns),
        np.zeros((size, size)),
    )


def _warning(angle: float) -> str:
    if angle <= FAR:
        return ""
    return (
        f"The polar factors are turned by {angle / math.pi:.3f} of half a turn: another geodesic may be as short or "
        "shorter. Compare the length with the lower bound."
    )


def connect(
    a: np.ndarray,
    b: np.ndarray,
    depth: float,
    normalised: bool,
    turns: Turns,
    tolerance: float,
    *,
    quick: bool = True,
) -> Connection:
    """A numerical geodesic from a first path with given turns; the end is approached, at once if not `quick`."""
    # Sizes split off: the space is a cone, a product at infinite depth. What is solved has both ends of one size.
    sizes = _size(a, depth), _size(b, depth)
    first, last = a / sizes[0], b / sizes[1]
    reduced, missed, count, message = _solve(depth, first, last, turns, tolerance, quick)
    momentum, length = _unsplit(first, reduced, sizes, depth)
    scale = 1.0 if normalised or math.isinf(depth) else float(depth)
    momentum, length = momentum / scale, length / math.sqrt(scale)
    velocity = scale * velocities_of(1 / depth, a[None], momentum[None])[0]
    residual = missed * sizes[1]
    converged = missed <= tolerance * float(np.max(np.abs(last))) and math.isfinite(length)
    angle = max((abs(angle) for _, angle in turns), default=0.0)
    return Connection(
        start=xp.asarray(a, dtype=float),
        end=xp.asarray(b, dtype=float),
        depth=depth,
        normalised=scale == 1,
        case=NUMERIC,
        momentum=xp.asarray(momentum, dtype=float),
        velocity=xp.asarray(velocity, dtype=float),
        length=length if converged else math.nan,
        lower_bound=float(distance_lower_bound(a, b, depth, normalised=normalised)),
        residual=residual,
        angle=min(angle, 2 * math.pi - angle),
        converged=converged,
        iterations=count,
        message=message
        if converged
        else f"No geodesic was found: the end is missed by {residual:.3g}. {message} Likely causes: matrices that are "
        "nearly singular, or polar factors turned so far that the way leads by singular matrices.",
        warning=_warning(min(angle, 2 * math.pi - angle)),
    )


def _size(matrix: np.ndarray, depth: float) -> float:
    r"""Number by which matrices are divided to have $\sum_i s_i^{2/L} = d$, or determinant one at infinite depth."""
    logs = np.log(np.linalg.svd(matrix, compute_uv=False))
    middle = float(np.mean(logs))
    if math.isinf(depth):
        return math.exp(middle)
    return math.exp(middle + depth / 2 * math.log(float(np.mean(np.exp(2 / depth * (logs - middle))))))


def _unsplit(
    first: np.ndarray, reduced: np.ndarray, sizes: tuple[float, float], depth: float
) -> tuple[np.ndarray, float]:
    r"""Momentum and length, normalised, from those between the ends divided by their sizes.

    With $\rho = L\sqrt d$ the radius of both, $k$ the ratio of the radii of the ends themselves and $\theta$ the angle
    between them, the geodesic is the straight line in the plane with these polar coordinates: its length is
    $(\rho^2(1-k)^2 + k\ell^2)^{1/2}$ if that between ends of one size is $\ell$. At infinite depth the logarithm of the
    size is a coordinate of its own.
    """
    left, values, right_t = np.linalg.svd(first)
    outward = (left * values ** (2 / depth - 1)) @ right_t
    velocity = velocities_of(1 / depth, first[None], reduced[None])[0]
    squared = max(float(np.sum(reduced * velocity)), 0.0)
    ratio = math.log(sizes[1]) - math.log(sizes[0])
    if math.isinf(depth):
        return (reduced + ratio * outward) / sizes[0], math.sqrt(squared + len(first) * ratio**2)
    radius, k = depth * math.sqrt(len(first)), math.exp(ratio / depth)
    cosine = 1 - squared / (2 * radius**2)
    along = depth**2 / radius**2 * float(np.sum(reduced * first))
    momentum = k * (reduced - along * outward) + depth * (k * cosine - 1) * outward
    length = math.sqrt((radius * (1 - k)) ** 2 + k * squared)
    return momentum * sizes[0] ** (2 / depth - 1), length * sizes[0] ** (1 / depth)


def _solve(
    depth: float, a: np.ndarray, b: np.ndarray, turns: Turns, tolerance: float, quick: bool
) -> tuple[np.ndarray, float, int, str]:
    """Momentum, what it misses the end by, Newton steps, and how it was found."""
    paths = Paths(a[None], b[None], generator_of(turns, len(a))[None])
    largest = float(max(np.max(np.abs(a)), np.max(np.abs(b))))
    count = 0
    if quick:
        found = join(1 / depth, paths)
        count = int(found.iterations[0])
        if found.missed[0] <= min(tolerance, 1e-10) * largest:
            message = f"Collocation on {found.intervals[0]} intervals."
            return found.momenta[0], float(found.missed[0]), count, message
    momentum, missed, more, message = _approached(depth, paths, largest, tolerance)
    return momentum, missed, count + more, message


def _approached(depth: float, paths: Paths, largest: float, tolerance: float) -> tuple[np.ndarray, float, int, str]:
    """What `_solve` gives, with the end approached in parts where it must be, and integration from the start.

    The boundary value problem is always solved from the smaller end to the larger, and both ways where the end has to
    be approached in parts: what is found does not depend on which end is called the start.
    """
    metric, rate = Metric(depth, normalised=True), 1 / depth
    a, b = paths.starts[0], paths.ends[0]
    swapped = bool(np.linalg.norm(a) > np.linalg.norm(b))
    ordered = paths.backwards() if swapped else paths
    mesh, total = ordered.mesh(rate, INTERVALS[0]), 0
    best: tuple[np.ndarray, float] = ((mesh.backwards() if swapped else mesh).momenta[0], math.inf)
    for intervals in INTERVALS:
        found = solve(rate, mesh, ordered.starts, ordered.ends, tolerance=NEWTON, most=NEWTON_STEPS)
        total += int(found.iterations[0])
        if not found.converged[0] and not found.residuals[0] <= 1e-6:
            found, more = _approach(rate, ordered, intervals)
            back, most = _approach(rate, ordered.backwards(), intervals)
            total += more + most
            if back.converged[0] and (not found.converged[0] or _speed(rate, back) < _speed(rate, found)):
                found = _turned(back)
        momentum, residual = _corrected(metric, a, b, _turned(found) if swapped else found)
        if residual < best[1]:
            best = momentum, residual
        if best[1] <= min(tolerance, 1e-10) * largest:
            return *best, total, f"Collocation on {intervals} intervals, with the end approached."
        mesh = (found.mesh if found.converged[0] else mesh).finer()
    if not math.isfinite(best[1]):
        end = shoot_end(metric, a, best[0])
        best = best[0], float(np.max(np.abs(end - b))) if end is not None else float(np.max(np.abs(a - b)))
    return *best, total, f"Collocation on up to {INTERVALS[-1]} intervals."


def _approach(rate: float, paths: Paths, intervals: int) -> tuple[Solved, int]:
    """The end approached along the first path, in parts that are halved where one is too long."""
    done, part, total = 0.0, 0.25, 0
    found: Solved | None = None
    while True:
        goal = min(done + part, 1.0)
        end = paths.ends if goal == 1 else paths.at(np.full((1, 1), goal))[0][:, 0]
        mesh = paths.mesh(rate, intervals, goal) if found is None else found.mesh.towards(end)
        trial = solve(rate, mesh, paths.starts, end, tolerance=NEWTON, most=NEWTON_STEPS)
        total += int(trial.iterations[0])
        if trial.converged[0]:
            found, done, part = trial, goal, 2 * part
            if goal == 1:
                return found, total
        else:
            part /= 2
        if part < 1 / PARTS:
            return trial, total


def _turned(found: Solved) -> Solved:
    """The same path from its end."""
    return dataclasses.replace(found, mesh=found.mesh.backwards(), responses=np.swapaxes(found.responses, 1, 2))


def _speed(rate: float, found: Solved) -> float:
    point, momentum = found.mesh.states[:, 0, 0], found.mesh.momenta
    return float(np.sum(momentum * velocities_of(rate, point, momentum)))


def _corrected(metric: Metric, a: np.ndarray, b: np.ndarray, found: Solved) -> tuple[np.ndarray, float]:
    """The momentum after corrections by the exponential map, and what it misses the end by."""
    momentum, residual = found.mesh.momenta[0], math.inf
    trial = momentum
    largest = float(max(np.max(np.abs(a)), np.max(np.abs(b))))
    for _ in range(CORRECTIONS):
        end = shoot_end(metric, a, trial)
        missed = math.inf if end is None else float(np.max(np.abs(end - b)))
        if end is None or not missed < residual:
            break
        momentum, residual = trial, missed
        if residual <= FINEST * largest:
            break
        try:
            step = np.linalg.lstsq(found.responses[0], (b - end).ravel(), rcond=None)[0]
        except np.linalg.LinAlgError:
            break
        trial = momentum + step.reshape(a.shape)
    return momentum, residual


def shoot_end(metric: Metric, point: np.ndarray, momentum: np.ndarray) -> np.ndarray | None:
    """End of the geodesic at time 1, as exactly as it can be had; `None` where it does not come so far."""
    found = shoot(
        metric,
        point,
        momentum,
        np.ones(1),
        1e-12,
        1e-14,
    )
    end = np.asarray(found.end[0])
    return end if bool(found.finished) and int(found.event) < 0 and bool(np.all(np.isfinite(end))) else None
