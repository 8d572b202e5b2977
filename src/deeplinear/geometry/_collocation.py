r"""Geodesics between two matrices as a boundary value problem, by Gauss collocation. Unchecked, on the host.

$[0, 1]$ is cut into equal intervals. On each the state $y = (X, P)$ is a polynomial whose derivative meets Hamilton's
equations at six Gauss points (order twelve at the ends of the interval). Newton's method works with the derivative of
the equations by differences, since that of a singular value decomposition does not exist at equal singular values,
while the equations are smooth there. All evaluations go through one compiled program for each size of matrix.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.geometry._hamiltonian import geodesic_field
from deeplinear.geometry._metric import Metric

TOGETHER = 32
"""Evaluations of the equations in one call."""

DIFFERENCE = 1e-7
"""Step of the differences, relative to the size of the point or of the momentum."""

SHORTEST = 1 / 64
"""Shortest share of a Newton step that is tried."""

_fields = jax.jit(jax.vmap(geodesic_field, in_axes=(None, 0, 0)))

NODES = 0.5 + np.polynomial.legendre.leggauss(6)[0] / 2
"""Gauss points in the unit interval."""


def _integrals(ends: np.ndarray) -> np.ndarray:
    r"""$\int_0^\theta \ell_j$ of the Lagrange polynomials of the nodes, one row for each $\theta$."""
    powers = np.arange(len(NODES))
    values = np.vander(2 * NODES - 1, increasing=True)
    # Monomials in 2θ - 1, integrated from θ = 0.
    points = 2 * np.asarray(ends)[:, None] - 1
    return ((points ** (powers + 1) - (-1.0) ** (powers + 1)) / (2 * (powers + 1))) @ np.linalg.inv(values)


STAGES = _integrals(NODES)
WEIGHTS = _integrals(np.ones(1))[0]


@dataclasses.dataclass(frozen=True)
class Mesh:
    """A path: states at the starts of the intervals and at the end, and derivatives at the Gauss points.

    Attributes:
        states: (intervals + 1, 2, size, size); points and momenta.
        slopes: (intervals, 6, 2, size, size).
    """

    states: np.ndarray
    slopes: np.ndarray

    @property
    def intervals(self) -> int:
        """Number of intervals."""
        return len(self.slopes)

    @property
    def inner(self) -> np.ndarray:
        """States at the Gauss points."""
        return self.states[:-1, None] + np.einsum("jl,kl...->kj...", STAGES, self.slopes) / self.intervals

    def finer(self) -> "Mesh":
        """The same polynomials on intervals of half the length."""
        middle = self.states[:-1] + np.einsum("l,kl...->k...", _integrals(np.array([0.5]))[0], self.slopes) / (
            self.intervals
        )
        states = np.concatenate([np.stack([self.states[:-1], middle], axis=1).reshape(-1, *middle.shape[1:])])
        basis = np.linalg.inv(np.vander(2 * NODES - 1, increasing=True))
        halves = [np.vander(2 * (NODES + shift) / 2 - 1, len(NODES), increasing=True) @ basis for shift in (0, 1)]
        slopes = np.stack([np.einsum("jl,kl...->kj...", half, self.slopes) for half in halves], axis=1)
        return Mesh(np.concatenate([states, self.states[-1:]]), slopes.reshape(-1, *self.slopes.shape[1:]))

    def towards(self, end: np.ndarray) -> "Mesh":
        """The path moved to another end, in proportion to time."""
        move = np.zeros_like(self.states[-1])
        move[0] = end - self.states[-1, 0]
        times = np.arange(self.intervals + 1) / self.intervals
        return Mesh(self.states + times[:, None, None, None] * move, self.slopes + move)


def mesh_through(states: np.ndarray, inner: np.ndarray) -> Mesh:
    """The path with given states at the ends of the intervals and at the Gauss points."""
    slopes = np.einsum("jl,kl...->kj...", np.linalg.inv(STAGES), inner - states[:-1, None]) * len(inner)
    return Mesh(states, slopes)


def mesh_times(intervals: int) -> np.ndarray:
    """Starts of the intervals, the Gauss points in them, and the end: all times of a mesh in order."""
    starts = np.arange(intervals)[:, None]
    return np.append((np.concatenate([starts, starts + NODES], axis=1) / intervals).ravel(), 1.0)


@dataclasses.dataclass(frozen=True)
class Solved:
    """What Newton's method came to.

    Attributes:
        mesh: The path.
        residual: Root mean square of what is missed of the equations and of the ends.
        response: Derivative of the end point by the first momentum, as a matrix on entries.
        iterations: Newton steps taken.
        converged: Whether the residual is below the tolerance.
    """

    mesh: Mesh
    residual: float
    response: np.ndarray
    iterations: int
    converged: bool


def solve(metric: Metric, mesh: Mesh, start: np.ndarray, end: np.ndarray, *, tolerance: float, most: int) -> Solved:
    """The path between two points that meets the equations, by damped Newton steps from a given one.

    Args:
        metric: The metric.
        mesh: The first path.
        start: First point.
        end: Last point.
        tolerance: Largest residual.
        most: Most Newton steps.
    """
    with np.errstate(all="ignore"):  # paths that leave the finite numbers are given up
        return _solve(metric, mesh, np.stack([start, end]), tolerance, most)


def _solve(metric: Metric, mesh: Mesh, goal: np.ndarray, tolerance: float, most: int) -> Solved:
    start = goal[0]
    values = _evaluate(metric, mesh.inner)
    missed = _missed(mesh, values, goal)
    size, response = _size(missed), np.zeros((start.size, start.size))
    for count in range(most):
        move, response = _newton(metric, mesh, values, missed)
        share, better = 1.0, None
        while share >= SHORTEST:
            trial = Mesh(mesh.states + share * move.states, mesh.slopes + share * move.slopes)
            found = _evaluate(metric, trial.inner)
            left = _missed(trial, found, goal)
            if np.isfinite(_size(left)) and _size(left) <= (1 - 0.25 * share) * size:
                better = trial, found, left
                break
            share /= 2
        if better is None:
            return Solved(mesh, size, response, count + 1, size <= tolerance)
        mesh, values, missed = better
        size = _size(missed)
        # The last steps are of rounding: the derivative is good to seven digits, so one more would change nothing.
        if size <= tolerance:
            return Solved(mesh, size, response, count + 1, True)
    return Solved(mesh, size, response, most, size <= tolerance)


Missed = tuple[np.ndarray, np.ndarray, np.ndarray]
"""What is missed of the equations at the Gauss points, of continuity, and of the two ends."""


def _missed(mesh: Mesh, values: np.ndarray, goal: np.ndarray) -> Missed:
    ends = mesh.states[:-1] + np.einsum("l,kl...->k...", WEIGHTS, mesh.slopes) / mesh.intervals
    return values - mesh.slopes, ends - mesh.states[1:], goal - mesh.states[[0, -1], 0]


def _size(missed: Missed) -> float:
    equations, steps, ends = missed
    means = np.mean(equations**2) + np.sum(steps**2) / steps[0].size + np.sum(ends**2) / ends[0].size
    return float(np.sqrt(means))


def _evaluate(metric: Metric, states: np.ndarray) -> np.ndarray:
    """The equations at many states (..., 2, size, size), a fixed number in each call."""
    shape = states.shape
    flat = states.reshape(-1, *shape[-3:])
    count = len(flat)
    padded = np.concatenate([flat, np.repeat(flat[-1:], -count % TOGETHER, axis=0)])
    parts = [
        _fields(metric, jnp.asarray(part[:, 0]), jnp.asarray(part[:, 1]))
        for part in padded.reshape(-1, TOGETHER, *shape[-3:])
    ]
    both = [np.stack([np.asarray(velocity), np.asarray(force)], axis=1) for velocity, force in parts]
    return np.concatenate(both)[:count].reshape(shape)


def _newton(metric: Metric, mesh: Mesh, values: np.ndarray, missed: Missed) -> tuple[Mesh, np.ndarray]:
    """A Newton step, and the derivative of the end point by the first momentum.

    Within an interval the slopes follow from the state at its start; that leaves one affine map from each state to the
    next, and for the first momentum a system of the size of the matrix.
    """
    equations, steps, ends = missed
    count, stages = mesh.slopes.shape[:2]
    entries = mesh.states[0].size
    jacobians = _jacobians(metric, mesh.inner, values)
    system = np.eye(stages * entries) - np.einsum("kjab,jl->kjalb", jacobians, STAGES / count).reshape(
        count, stages * entries, stages * entries
    )
    right = np.concatenate([jacobians.reshape(count, -1, entries), equations.reshape(count, -1, 1)], axis=2)
    follow = np.linalg.solve(system, right).reshape(count, stages, entries, entries + 1)
    across = np.einsum("l,klab->kab", WEIGHTS, follow) / count
    maps, shifts = np.eye(entries) + across[..., :-1], across[..., -1] + steps.reshape(count, entries)
    half = entries // 2
    # δy at the start is fixed but for the momentum: affine in it, carried through.
    carried = np.zeros((entries, half + 1))
    carried[half:, :-1] = np.eye(half)
    carried[:half, -1] = ends[0].ravel()
    chain = [carried]
    for step, shift in zip(maps, shifts, strict=True):
        carried = step @ carried
        carried[:, -1] += shift
        chain.append(carried)
    response = carried[:half, :-1]
    try:
        momentum = np.linalg.solve(response, ends[1].ravel() - carried[:half, -1])
    except np.linalg.LinAlgError:
        momentum = np.linalg.lstsq(response, ends[1].ravel() - carried[:half, -1], rcond=None)[0]
    states = np.array([link @ np.append(momentum, 1.0) for link in chain])
    slopes = np.einsum("kjab,kb->kja", follow[..., :-1], states[:-1]) + follow[..., -1]
    return Mesh(states.reshape(mesh.states.shape), slopes.reshape(mesh.slopes.shape)), response


def _jacobians(metric: Metric, states: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Derivatives of the equations at the Gauss points, by differences."""
    entries = states[0, 0].size
    sizes = DIFFERENCE * np.sqrt(np.mean(states**2, axis=(3, 4)))
    sizes = np.maximum(sizes, 1e-3 * DIFFERENCE)
    steps = np.repeat(sizes, entries // 2, axis=2)
    moved = states[:, :, None] + (steps[..., None] * np.eye(entries)).reshape(
        *states.shape[:2], entries, *states.shape[2:]
    )
    change = (_evaluate(metric, moved) - values[:, :, None]).reshape(*states.shape[:2], entries, entries)
    return np.swapaxes(change / steps[..., None], 2, 3)
