r"""Geodesics between two matrices: the logarithm, and the distance.

Where a closed form is known it is used. Otherwise the boundary value problem for $(X, P)$ on $[0, 1]$ is solved by
Gauss collocation, from a first path that turns the polar factors into one another and interpolates the logarithms of
the positive ones,

$$X(q) = O_A\,e^{qK}\,e^{(1-q)\ln P_A + q\ln P_B}, \qquad e^K = O_A^\top O_B,$$

run through at constant speed; then the exponential map is integrated from the momentum found, and what it misses is
corrected. The result is a geodesic. It is the shortest one while the polar factors are not turned too far against each
other; near half a turn another may be as short, and both ways round are tried.
"""

import dataclasses
import itertools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from deeplinear.core import Matrix, check_number
from deeplinear.geometry._collocation import (
    TOGETHER,
    Mesh,
    Solved,
    mesh_through,
    mesh_times,
    solve,
)
from deeplinear.geometry._explicit import NUMERIC, ExplicitGeodesic, checked_ends, closed_form, log_positive
from deeplinear.geometry._exponential import COMPLETE, Geodesic, checked_times, geodesic, shoot
from deeplinear.geometry._length import distance_lower_bound
from deeplinear.geometry._metric import Metric, pair_eigenvalue

Method = Literal["auto", "collocation"]

FAR = 0.9 * math.pi
"""Angle between polar factors from which on the other way round may be as short."""

INTERVALS = (4, 8, 16, 32)
"""Intervals of the meshes that are tried in turn."""

NEWTON, NEWTON_STEPS = 1e-11, 40
"""Residual of the boundary value problem, of matrices scaled to size one, and the most Newton steps on one mesh."""

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
            sizes, times the size of the end; for a closed form, what the formula misses the ends by.
        angle: Largest angle by which the polar factor of the start is turned into that of the end.
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
        momenta = jax.vmap(metric.inverse)(points, velocities)
        return Geodesic(metric, self.start, self.momentum, ts, points, momenta, ts[-1], jnp.asarray(0), COMPLETE)


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
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # what comes of it is looked at
        form = closed_form(a, b, depth) if method == "auto" or depth == 1 else None
        if form is not None:
            return _closed(form, a, b, depth, normalised, tolerance)
    planes = _planes(a, b)
    far = [k for k, (_, angle) in enumerate(planes) if abs(angle) > FAR]
    # Of every plane turned nearly by half a turn both ways round; of more than two such, one at a time.
    ways = (
        list(itertools.product((False, True), repeat=len(far)))
        if len(far) <= 2
        else [tuple(k == j for k in range(len(far))) for j in range(-1, len(far))]
    )
    found = []
    for way in ways:
        turns = [
            (plane, angle - math.copysign(2 * math.pi, angle) if k in far and way[far.index(k)] else angle)
            for k, (plane, angle) in enumerate(planes)
        ]
        found.append(_connect(a, b, depth, normalised, turns, tolerance))
    good = [one for one in found if one.converged]
    if not good:
        return min(found, key=lambda one: one.residual)
    best = min(good, key=lambda one: one.length)
    return dataclasses.replace(best, iterations=sum(one.iterations for one in found))


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
    metric = Metric(depth, normalised=normalised)
    times = np.array([0.0, 1.0]).reshape(-1, 1, 1)
    velocity = form.velocity(times)[0]
    missed = np.max(np.abs(form.point(times) - np.stack([a, b])), axis=(1, 2))
    residual = float(np.max(missed))
    length = form.length * (math.sqrt(depth) if normalised and not math.isinf(depth) else 1.0)
    converged = math.isfinite(length) and all(
        part <= tolerance * np.max(np.abs(end)) for part, end in zip(missed, (a, b), strict=True)
    )
    angle = 0.0 if depth == 1 else max((abs(angle) for _, angle in _planes(a, b)), default=0.0)
    return Connection(
        start=jnp.asarray(a),
        end=jnp.asarray(b),
        depth=depth,
        normalised=metric.normalised,
        case=form.case,
        momentum=jnp.asarray(_momentum(metric, a, velocity)),
        velocity=jnp.asarray(velocity),
        length=length if converged else math.nan,
        lower_bound=distance_lower_bound(a, b, depth, normalised=normalised),
        residual=residual,
        angle=angle,
        converged=converged,
        iterations=0,
        message=f"Closed form: {form.case}."
        if converged
        else f"The closed form '{form.case}' misses the ends by {residual:.3g}: numbers too large or too small.",
        warning=_warning(angle),
    )


Turns = list[tuple[np.ndarray, float]]
"""Planes, each by an orthonormal basis of two columns, and the angles to turn in them."""


def _planes(a: np.ndarray, b: np.ndarray) -> Turns:
    """The rotation from the polar factor of one matrix to that of another, as turns in orthogonal planes."""
    turn = scipy.linalg.polar(a)[0].T @ scipy.linalg.polar(b)[0]
    blocks, frame = scipy.linalg.schur(turn, output="real")[:2]
    planes: Turns = []
    reversed_: list[int] = []
    k = 0
    while k < len(a):
        if k + 1 < len(a) and blocks[k + 1, k] != 0:
            planes.append((frame[:, k : k + 2], math.atan2(blocks[k + 1, k], blocks[k, k])))
            k += 2
            continue
        if blocks[k, k] < 0:
            reversed_.append(k)
        k += 1
    # The determinant is one, so directions that are reversed come in pairs: half a turn each.
    planes += [(frame[:, [i, j]], math.pi) for i, j in zip(reversed_[::2], reversed_[1::2], strict=True)]
    return planes


def _warning(angle: float) -> str:
    if angle <= FAR:
        return ""
    return (
        f"The polar factors are turned by {angle / math.pi:.3f} of half a turn: another geodesic may be as short or "
        "shorter. Compare the length with the lower bound."
    )


def _connect(
    a: np.ndarray, b: np.ndarray, depth: float, normalised: bool, turns: Turns, tolerance: float
) -> Connection:
    """A numerical geodesic from a first path with given turns."""
    # Sizes split off: the space is a cone, a product at infinite depth. What is solved has both ends of one size.
    sizes = _size(a, depth), _size(b, depth)
    first, last = a / sizes[0], b / sizes[1]
    reduced, missed, count, message = _solve(Metric(depth, normalised=True), first, last, turns, tolerance)
    momentum, length = _unsplit(first, reduced, sizes, depth)
    if not normalised and not math.isinf(depth):
        momentum, length = momentum / depth, length / math.sqrt(depth)
    final = Metric(depth, normalised=normalised)
    velocity = np.asarray(final.apply(a, momentum))
    residual = missed * sizes[1]
    converged = missed <= tolerance * float(np.max(np.abs(last))) and math.isfinite(length)
    angle = max((abs(angle) for _, angle in turns), default=0.0)
    return Connection(
        start=jnp.asarray(a),
        end=jnp.asarray(b),
        depth=depth,
        normalised=final.normalised,
        case=NUMERIC,
        momentum=jnp.asarray(momentum),
        velocity=jnp.asarray(velocity),
        length=length if converged else math.nan,
        lower_bound=distance_lower_bound(a, b, depth, normalised=normalised),
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
    velocity = np.asarray(Metric(depth, normalised=True).apply(first, reduced))
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
    metric: Metric, a: np.ndarray, b: np.ndarray, turns: Turns, tolerance: float
) -> tuple[np.ndarray, float, int, str]:
    """Momentum, what it misses the end by, Newton steps, and how it was found.

    The boundary value problem is always solved from the smaller end to the larger, and both ways where the end has to
    be approached in parts: what is found does not depend on which end is called the start.
    """
    swapped = bool(np.linalg.norm(a) > np.linalg.norm(b))
    one, other, turned = (b, a, _back(turns)) if swapped else (a, b, turns)
    mesh, total = _first_path(metric, one, other, turned, INTERVALS[0], 1.0), 0
    best: tuple[np.ndarray, float] = ((_reversed(mesh) if swapped else mesh).states[0, 1], math.inf)
    largest = float(max(np.max(np.abs(a)), np.max(np.abs(b))))
    for intervals in INTERVALS:
        found = solve(metric, mesh, one, other, tolerance=NEWTON, most=NEWTON_STEPS)
        total += found.iterations
        if not found.converged and found.residual > 1e-6:
            found, more = _approach(metric, one, other, turned, intervals)
            back, most = _approach(metric, other, one, _back(turned), intervals)
            total += more + most
            if back.converged and (not found.converged or _speed(metric, back) < _speed(metric, found)):
                found = dataclasses.replace(back, mesh=_reversed(back.mesh), response=back.response.T)
        mine = dataclasses.replace(found, mesh=_reversed(found.mesh), response=found.response.T) if swapped else found
        momentum, residual = _corrected(metric, a, b, mine)
        if residual < best[1]:
            best = momentum, residual
        if best[1] <= min(tolerance, 1e-10) * largest:
            return *best, total, f"Collocation on {intervals} intervals."
        mesh = (found.mesh if found.converged else mesh).finer()
    if not math.isfinite(best[1]):
        end = shoot_end(metric, a, best[0])
        best = best[0], float(np.max(np.abs(end - b))) if end is not None else float(np.max(np.abs(a - b)))
    return *best, total, f"Collocation on up to {INTERVALS[-1]} intervals."


def _approach(metric: Metric, a: np.ndarray, b: np.ndarray, turns: Turns, intervals: int) -> tuple[Solved, int]:
    """The end approached along the first path, in parts that are halved where one is too long."""
    done, part, total = 0.0, 0.25, 0
    found: Solved | None = None
    while True:
        goal = min(done + part, 1.0)
        end = b if goal == 1 else _guess(a, b, turns, np.array([goal]))[0]
        mesh = _first_path(metric, a, b, turns, intervals, goal) if found is None else found.mesh.towards(end)
        trial = solve(metric, mesh, a, end, tolerance=NEWTON, most=NEWTON_STEPS)
        total += trial.iterations
        if trial.converged:
            found, done, part = trial, goal, 2 * part
            if goal == 1:
                return found, total
        else:
            part /= 2
        if part < 1 / PARTS:
            return trial, total


def _back(turns: Turns) -> Turns:
    return [(plane, -angle) for plane, angle in turns]


def _reversed(mesh: Mesh) -> Mesh:
    """The path the other way: momenta change their sign, and so do the derivatives of the points."""
    states, slopes = mesh.states[::-1].copy(), mesh.slopes[::-1, ::-1].copy()
    states[:, 1] *= -1
    slopes[:, :, 0] *= -1
    return Mesh(states, slopes)


def _speed(metric: Metric, found: Solved) -> float:
    point, momentum = found.mesh.states[0]
    return float(np.sum(momentum * np.asarray(metric.apply(point, momentum))))


def _corrected(metric: Metric, a: np.ndarray, b: np.ndarray, found: Solved) -> tuple[np.ndarray, float]:
    """The momentum after corrections by the exponential map, and what it misses the end by."""
    momentum, residual = found.mesh.states[0, 1], math.inf
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
            step = np.linalg.lstsq(found.response, (b - end).ravel(), rcond=None)[0]
        except np.linalg.LinAlgError:
            break
        trial = momentum + step.reshape(a.shape)
    return momentum, residual


def shoot_end(metric: Metric, point: np.ndarray, momentum: np.ndarray) -> np.ndarray | None:
    """End of the geodesic at time 1, as exactly as it can be had; `None` where it does not come so far."""
    found = shoot(
        metric, jnp.asarray(point), jnp.asarray(momentum), jnp.ones(1), jnp.asarray(1e-12), jnp.asarray(1e-14)
    )
    end = np.asarray(found.end[0])
    return end if bool(found.finished) and int(found.event) < 0 and bool(np.all(np.isfinite(end))) else None


def _first_path(metric: Metric, a: np.ndarray, b: np.ndarray, turns: Turns, intervals: int, share: float) -> Mesh:
    """The first path as far as a share of it, run through at constant speed."""
    ends = np.linspace(0.0, share, TOGETHER + 1)
    middles = (ends[1:] + ends[:-1]) / 2
    _, _, speeds = _along(metric, a, b, turns, middles)
    passed = np.append(0.0, np.cumsum(speeds)) * share / TOGETHER
    length = passed[-1]
    times = mesh_times(intervals)
    places = np.interp(times * length, passed, ends) if length > 0 else times * share
    states = []
    for first in range(0, len(places), TOGETHER):
        part = places[first : first + TOGETHER]
        padded = np.append(part, np.full(TOGETHER - len(part), part[-1]))
        points, momenta, pace = _along(metric, a, b, turns, padded)
        # Of the length of the whole path in the time 1, whatever the pace of the parameter.
        momenta = momenta * (length / np.maximum(pace, 1e-300))[:, None, None]
        states.append(np.stack([points, momenta], axis=1)[: len(part)])
    whole = np.concatenate(states)
    inner = whole[:-1].reshape(intervals, -1, *whole.shape[1:])
    return mesh_through(np.concatenate([inner[:, 0], whole[-1:]]), inner[:, 1:])


def _along(
    metric: Metric, a: np.ndarray, b: np.ndarray, turns: Turns, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points of the first path, momenta and speeds for its own parameter, at a fixed number of places."""
    step = 1e-5
    points = _guess(a, b, turns, places)
    velocities = (_guess(a, b, turns, places + step) - _guess(a, b, turns, places - step)) / (2 * step)
    momenta, speeds = _lower(metric, jnp.asarray(points), jnp.asarray(velocities))
    return points, np.asarray(momenta), np.asarray(speeds)


def _guess(a: np.ndarray, b: np.ndarray, turns: Turns, places: np.ndarray) -> np.ndarray:
    orthogonal, one = scipy.linalg.polar(a)
    logs = [log_positive((m + m.T) / 2) for m in (one, scipy.linalg.polar(b)[1])]
    generator = sum(
        (angle * (plane[:, 1:] @ plane[:, :1].T - plane[:, :1] @ plane[:, 1:].T) for plane, angle in turns),
        np.zeros_like(a),
    )
    q = places[:, None, None]
    values, frames = np.linalg.eigh((1 - q) * logs[0] + q * logs[1])
    positive = (frames * np.exp(values)[:, None, :]) @ np.swapaxes(frames, 1, 2)
    return orthogonal @ scipy.linalg.expm(q * generator) @ positive


@jax.jit
def _lower(
    metric: Metric, points: Float[Array, "many size size"], velocities: Float[Array, "many size size"]
) -> tuple[Float[Array, "many size size"], Float[Array, " many"]]:
    """Momenta and speeds of velocities."""

    def one(point: Array, velocity: Array) -> tuple[Array, Array]:
        left, values, right_t = jnp.linalg.svd(point)
        eigenvalues = metric.scale * pair_eigenvalue(values[:, None], values[None], metric.rate)
        seen = left.T @ velocity @ right_t.T
        return left @ (seen / eigenvalues) @ right_t, jnp.sqrt(jnp.sum(seen**2 / eigenvalues))

    return jax.vmap(one)(points, velocities)


def _momentum(metric: Metric, point: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    many = (np.repeat(matrix[None], TOGETHER, axis=0) for matrix in (point, velocity))
    return np.asarray(_lower(metric, *map(jnp.asarray, many))[0][0])
