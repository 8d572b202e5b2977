r"""Geodesics between many pairs of matrices of one size each: first paths, collocation, meshes made finer. Unchecked.

The first path turns the polar factors into one another and interpolates the logarithms of the positive ones,

$$X(q) = O_A\,e^{qK}\,e^{(1-q)\ln P_A + q\ln P_B}, \qquad e^K = O_A^\top O_B,$$

run through at constant speed. Collocation on twice as many intervals then tells what the geodesic with the momentum
found before misses the end by, and corrects it.
"""

import dataclasses

import numpy as np

from deeplinear.geometry._collocation import Mesh, mesh_through, mesh_times, solve
from deeplinear.geometry._curvature import decomposed, hyperbolic, momenta_of

COARSEST, FINEST_MESH = 2, 32
"""Intervals of the first mesh, and the most of them."""

NEWTON = 1e-11
"""Residual of the boundary value problem, of matrices scaled to size one."""

STEPS = 12
"""Most Newton steps from the first path; what takes more is left to a slower method."""

GAIN = 1024.0
"""By what a small error falls at least when intervals are halved: $2^{12}$ in the limit of short ones."""

EXACT, ROUNDING = 1e-12, 1e-14
"""What the end is missed by of those that are done, and the least that is asked for."""

PLACES = 16
"""Places at which the speed of the first path is looked at."""


@dataclasses.dataclass(frozen=True)
class Paths:
    """First paths between pairs of matrices, pairs first.

    Attributes:
        starts: $A$.
        ends: $B$.
        generators: $K$, skew, such that the exponential turns the polar factors into one another.
    """

    starts: np.ndarray
    ends: np.ndarray
    generators: np.ndarray

    def backwards(self) -> "Paths":
        """The same the other way."""
        return Paths(self.ends, self.starts, -self.generators)

    def __getitem__(self, rows: np.ndarray | slice) -> "Paths":
        """Some of them."""
        return Paths(self.starts[rows], self.ends[rows], self.generators[rows])

    def at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Points, and derivatives by the place, at places (pairs, places)."""
        (one, first), (_, last) = (_polar_log(matrices) for matrices in (self.starts, self.ends))
        angles, planes = np.linalg.eigh(1j * self.generators)
        q = places[..., None, None]
        phases = np.exp(-1j * places[..., None] * angles[:, None])
        around = np.swapaxes(planes.conj(), 1, 2)[:, None]
        planes = planes[:, None]
        turn = np.real((planes * phases[..., None, :]) @ around)
        turning = np.real((planes * (-1j * angles[:, None] * phases)[..., None, :]) @ around)
        values, frames = symmetric((1 - q) * first[:, None] + q * last[:, None])
        back = np.swapaxes(frames, -1, -2)
        halves = np.exp(values / 2)
        positive = (frames * (halves**2)[..., None, :]) @ back
        gaps = (values[..., :, None] - values[..., None, :]) / 2
        means = halves[..., :, None] * halves[..., None, :] * hyperbolic(gaps)
        growing = frames @ (means * (back @ (last - first)[:, None] @ frames)) @ back
        one = one[:, None]
        return one @ turn @ positive, one @ (turning @ positive + turn @ growing)

    def mesh(self, rate: float, intervals: int, share: float = 1.0) -> Mesh:
        """The paths as far as a share of them, run through at constant speed."""
        count = len(self.starts)
        ends = np.linspace(0.0, share, PLACES + 1)
        middles = (ends[1:] + ends[:-1]) / 2
        _, speeds = momenta_of(rate, *self.at(np.broadcast_to(middles, (count, PLACES))))
        passed = np.concatenate([np.zeros((count, 1)), np.cumsum(speeds, axis=1)], axis=1) * share / PLACES
        lengths = passed[:, -1]
        times = mesh_times(intervals)
        places = np.stack([np.interp(times * row[-1], row, ends) if row[-1] > 0 else times * share for row in passed])
        points, velocities = self.at(places)
        momenta, pace = momenta_of(rate, points, velocities)
        # Of the length of the whole path in the time 1, whatever the pace of the parameter.
        momenta = momenta * (lengths[:, None] / np.maximum(pace, 1e-300))[..., None, None]
        whole = np.stack([points, momenta], axis=2)
        inner = whole[:, :-1].reshape(count, intervals, -1, *whole.shape[2:])
        return mesh_through(np.concatenate([inner[:, :, 0], whole[:, -1:]], axis=1), inner[:, :, 1:])


@dataclasses.dataclass(frozen=True)
class Joined:
    """Geodesics that were found, pairs first.

    Attributes:
        momenta: At the starts.
        missed: Largest entry of what the geodesic misses the end by: what it was with half as many intervals, over the
            least that it falls by; infinite where none was found.
        iterations: Newton steps.
        intervals: Of the last mesh.
    """

    momenta: np.ndarray
    missed: np.ndarray
    iterations: np.ndarray
    intervals: np.ndarray


def join(rate: float, paths: Paths, *, exact: float = EXACT) -> Joined:
    """Geodesics between pairs of matrices in the normalised metric, by Newton's method from their first paths.

    Solved from the smaller end to the larger: what is found does not depend on which end is called the start.

    Args:
        rate: One over the depth.
        paths: The pairs, of one size.
        exact: Meshes are made finer until the end is missed by less than this, relative to the ends and to what they
            are apart.
    """
    swapped = np.linalg.norm(paths.starts, axis=(1, 2)) > np.linalg.norm(paths.ends, axis=(1, 2))
    back = swapped[:, None, None]
    ordered = Paths(
        np.where(back, paths.ends, paths.starts),
        np.where(back, paths.starts, paths.ends),
        np.where(back, -paths.generators, paths.generators),
    )
    count = len(swapped)
    one, other, apart = (
        np.abs(part).max(axis=(1, 2)) for part in (paths.starts, paths.ends, paths.ends - paths.starts)
    )
    largest = np.maximum(one, other)
    goals = np.maximum(exact * np.minimum(largest, apart), ROUNDING * largest)
    momenta, missed = np.zeros_like(paths.starts), np.full(count, np.inf)
    intervals = np.full(count, COARSEST)
    with np.errstate(all="ignore"):
        found = solve(rate, ordered.mesh(rate, COARSEST), ordered.starts, ordered.ends, tolerance=NEWTON, most=STEPS)
        steps = found.iterations
        active = np.flatnonzero(found.converged)
        mesh = found.mesh[active]
        number = COARSEST
        while active.size and number < FINEST_MESH:
            number *= 2
            here = ordered[active]
            found = solve(rate, mesh.finer(), here.starts, here.ends, tolerance=NEWTON, most=STEPS)
            steps[active] += found.iterations
            intervals[active] = number
            error = np.where(found.converged, found.missed / GAIN + found.residuals, np.inf)
            ways = swapped[active]
            ends = np.where(ways[:, None, None], -found.mesh.states[:, -1, 1], found.mesh.states[:, 0, 1])
            momenta[active], missed[active] = ends, error
            left = found.converged & (error > goals[active])
            active, mesh = active[left], found.mesh[left]
    return Joined(momenta, missed, steps, intervals)


def symmetric(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and vectors of symmetric matrices; those with two rows without a loop."""
    if matrices.shape[-1] != 2:
        return np.linalg.eigh(matrices)
    a, b, d = matrices[..., 0, 0], matrices[..., 0, 1], matrices[..., 1, 1]
    angle = np.arctan2(2 * b, a - d) / 2
    mean, half = (a + d) / 2, np.hypot((a - d) / 2, b)
    c, s = np.cos(angle), np.sin(angle)
    frames = np.stack([np.stack([c, -s], axis=-1), np.stack([s, c], axis=-1)], axis=-2)
    return np.stack([mean + half, mean - half], axis=-1), frames


def _polar_log(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthogonal polar factors, and logarithms of the positive ones."""
    left, values, right_t = decomposed(matrices)
    right = np.swapaxes(right_t, 1, 2)
    return left @ right_t, (right * np.log(values)[:, None]) @ right_t
