r"""Geodesics between many pairs of matrices as boundary value problems, by Gauss collocation. Unchecked, on the host.

$[0, 1]$ is cut into equal intervals. On each the state $y = (X, P)$ is a polynomial whose derivative meets Hamilton's
equations at six Gauss points (order twelve at the ends of the interval). Newton's method works with the second
derivatives of the Hamiltonian (`_curvature.py`), for all pairs of a batch at once; those that are done, or stuck, leave
it. Plain arrays of one size and NumPy's stacked linear algebra: nothing is compiled.

Within an interval the momenta at the Gauss points follow from the points there, since $\partial\dot X/\partial P$ is
positive definite; that leaves a system of six times the entries of a matrix, from which follows an affine map of the
state at the start of the interval to that at its end, and for the first momentum a system of the entries of a matrix.
"""

import dataclasses

import numpy as np

from deeplinear.geometry._curvature import curvature, frames_of

SHORTEST = 1 / 64
"""Shortest share of a Newton step that is tried."""

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
SLOPES = np.linalg.inv(STAGES)
"""Derivatives at the nodes from the changes since the start of the interval, times its length."""

MIDDLE = _integrals(np.array([0.5]))[0]
BASIS = np.linalg.inv(np.vander(2 * NODES - 1, increasing=True))
HALVES = [np.vander(2 * (NODES + shift) / 2 - 1, len(NODES), increasing=True) @ BASIS for shift in (0, 1)]
"""Values at the nodes of either half of an interval from those at the nodes of the whole."""


@dataclasses.dataclass(frozen=True)
class Mesh:
    """Paths: states at the starts of the intervals and at the end, and derivatives at the Gauss points.

    Attributes:
        states: (pairs, intervals + 1, 2, size, size); points and momenta.
        slopes: (pairs, intervals, 6, 2, size, size).
    """

    states: np.ndarray
    slopes: np.ndarray

    @property
    def intervals(self) -> int:
        """Number of intervals."""
        return self.slopes.shape[1]

    @property
    def inner(self) -> np.ndarray:
        """States at the Gauss points."""
        return self.states[:, :-1, None] + _weighted(STAGES, self.slopes) / self.intervals

    @property
    def momenta(self) -> np.ndarray:
        """Momenta at the start."""
        return self.states[:, 0, 1]

    def finer(self) -> "Mesh":
        """The same polynomials on intervals of half the length."""
        begins = self.states[:, :-1]
        middle = begins + _weighted(MIDDLE[None], self.slopes)[:, :, 0] / self.intervals
        count, shape = len(begins), begins.shape[2:]
        states = np.stack([begins, middle], axis=2).reshape(count, -1, *shape)
        slopes = np.stack([_weighted(half, self.slopes) for half in HALVES], axis=2)
        return Mesh(
            np.concatenate([states, self.states[:, -1:]], axis=1), slopes.reshape(count, -1, len(NODES), *shape)
        )

    def towards(self, ends: np.ndarray) -> "Mesh":
        """The paths moved to other ends, in proportion to time."""
        move = np.zeros_like(self.states[:, -1])
        move[:, 0] = ends - self.states[:, -1, 0]
        times = np.arange(self.intervals + 1) / self.intervals
        return Mesh(self.states + times[:, None, None, None] * move[:, None], self.slopes + move[:, None, None])

    def backwards(self) -> "Mesh":
        """The paths the other way: momenta change their sign, and so do the derivatives of the points."""
        states, slopes = self.states[:, ::-1].copy(), self.slopes[:, ::-1, ::-1].copy()
        states[:, :, 1] *= -1
        slopes[:, :, :, 0] *= -1
        return Mesh(states, slopes)

    def __getitem__(self, rows: np.ndarray | slice) -> "Mesh":
        """Some of the paths."""
        return Mesh(self.states[rows], self.slopes[rows])


def mesh_through(states: np.ndarray, inner: np.ndarray) -> Mesh:
    """The paths with given states at the ends of the intervals and at the Gauss points."""
    return Mesh(states, _weighted(SLOPES, inner - states[:, :-1, None]) * inner.shape[1])


def mesh_times(intervals: int) -> np.ndarray:
    """Starts of the intervals, the Gauss points in them, and the end: all times of a mesh in order."""
    starts = np.arange(intervals)[:, None]
    return np.append((np.concatenate([starts, starts + NODES], axis=1) / intervals).ravel(), 1.0)


@dataclasses.dataclass(frozen=True)
class Solved:
    """What Newton's method came to, pairs first.

    Attributes:
        mesh: The paths.
        residuals: Root mean square of what is missed of the equations and of the ends.
        responses: Derivatives of the end points by the first momenta, as matrices on entries.
        missed: Largest entry of what the first linearisation says that the geodesics with the first momenta and the
            first points of the mesh that was given miss the ends by.
        iterations: Newton steps taken.
        converged: Whether the residuals are below the tolerance.
    """

    mesh: Mesh
    residuals: np.ndarray
    responses: np.ndarray
    missed: np.ndarray
    iterations: np.ndarray
    converged: np.ndarray


def solve(rate: float, mesh: Mesh, starts: np.ndarray, ends: np.ndarray, *, tolerance: float, most: int) -> Solved:
    """The paths between pairs of points that meet the equations, by damped Newton steps from given ones.

    Args:
        rate: One over the depth; the metric is the normalised one.
        mesh: The first paths.
        starts: First points, pairs first.
        ends: Last points.
        tolerance: Largest residual.
        most: Most Newton steps.
    """
    with np.errstate(all="ignore"):  # paths that leave the finite numbers are given up
        return _solve(rate, mesh, np.stack([starts, ends], axis=1), tolerance, most)


def _solve(rate: float, mesh: Mesh, goals: np.ndarray, tolerance: float, most: int) -> Solved:
    count, entries = len(goals), goals[0, 0].size
    states, slopes = mesh.states.copy(), mesh.slopes.copy()
    responses = np.zeros((count, entries, entries))
    sizes, first, steps = np.full(count, np.inf), np.full(count, np.inf), np.zeros(count, dtype=int)
    active = np.arange(count)
    frames = frames_of(rate, mesh.inner)
    for step in range(most):
        here = Mesh(states[active], slopes[active])
        missed = _missed(here, frames.found, goals[active])
        sizes[active] = _sizes(missed)
        move, responses[active], ahead = _newton(here, curvature(rate, frames), missed)
        if step == 0:
            first = ahead
        steps[active] += 1
        # Each takes the longest share of its step that makes it better; those that find none leave.
        wanting, share, better = np.arange(len(active)), 1.0, np.zeros(len(active), dtype=bool)
        at = frames
        while share >= SHORTEST and wanting.size:
            rows = active[wanting]
            trial = Mesh(
                here.states[wanting] + share * move.states[wanting], here.slopes[wanting] + share * move.slopes[wanting]
            )
            at = frames_of(rate, trial.inner)
            left = _sizes(_missed(trial, at.found, goals[rows]))
            fine = left <= (1 - 0.25 * share) * sizes[rows]  # false for what is not a number
            taken = rows[fine]
            states[taken], slopes[taken], sizes[taken] = trial.states[fine], trial.slopes[fine], left[fine]
            better[wanting[fine]] = True
            wanting = wanting[~fine]
            share /= 2
        going = better & (sizes[active] > tolerance)
        active = active[going]
        if not active.size:
            break
        # Where all took the whole step, the equations are known there.
        frames = (
            at.some(going) if share == 0.5 and better.all() else frames_of(rate, Mesh(states, slopes)[active].inner)
        )
    return Solved(Mesh(states, slopes), sizes, responses, first, steps, sizes <= tolerance)


Missed = tuple[np.ndarray, np.ndarray, np.ndarray]
"""What is missed of the equations at the Gauss points, of continuity, and of the two ends."""


def _missed(mesh: Mesh, values: np.ndarray, goals: np.ndarray) -> Missed:
    ends = mesh.states[:, :-1] + _weighted(WEIGHTS[None], mesh.slopes)[:, :, 0] / mesh.intervals
    return values - mesh.slopes, ends - mesh.states[:, 1:], goals - mesh.states[:, [0, -1], 0]


def _sizes(missed: Missed) -> np.ndarray:
    equations, steps, ends = (part.reshape(len(part), -1) for part in missed)
    entries = missed[2][0, 0].size
    means = np.mean(equations**2, axis=1) + (np.sum(steps**2, axis=1) / 2 + np.sum(ends**2, axis=1)) / entries
    return np.sqrt(means)


def _newton(
    mesh: Mesh, blocks: tuple[np.ndarray, np.ndarray, np.ndarray], missed: Missed
) -> tuple[Mesh, np.ndarray, np.ndarray]:
    """Newton steps, the derivatives of the end points by the first momenta, and what the ends are missed by.

    With $D$ the matrix of derivatives at the nodes, $V_P = W^{-1}$, $V_X$, $F_X$ the derivatives of velocity and force
    ($F_P = -V_X^T$) and $G = WV_X$, the changes $x$ at the nodes solve
    $(DWD - DG + G^TD - V_X^TG - F_X)x = D\\,1\\,p_0 + (DW + G^T)(D\\,1\\,x_0 + r_X) + r_P$, and
    $p = W(Dx - D\\,1\\,x_0 - V_Xx - r_X)$.
    """
    equations, steps, ends = missed
    pairs, count, stages = mesh.slopes.shape[:3]
    half = mesh.states[0, 0, 0].size
    inverse, cross, force = (part.reshape(pairs, count, stages, half, half) for part in blocks)
    slopes = SLOPES * count
    row = slopes.sum(axis=1)
    right = equations.reshape(pairs, count, stages, 2, half, 1)
    mixed = inverse @ cross
    turned = np.swapaxes(mixed, -1, -2)
    # Blocks (j, l) of the system.
    square = np.einsum("jm,ml->jlm", slopes, slopes).reshape(-1, stages)
    system = (square @ inverse.reshape(pairs, count, stages, -1)).reshape(pairs, count, stages, stages, half, half)
    system += slopes[:, :, None, None] * (turned[:, :, :, None] - mixed[:, :, None])
    inner = range(stages)
    system[:, :, inner, inner] -= np.swapaxes(cross, -1, -2) @ mixed + force
    system = system.transpose(0, 1, 2, 4, 3, 5).reshape(pairs, count, stages * half, -1)
    # Columns: the point at the start, the momentum there, what the equations miss.
    given = np.concatenate([row[:, None, None] * np.eye(half) + np.zeros_like(inverse), right[..., 0, :, :]], axis=-1)
    pushed = inverse @ given
    known = _weighted(slopes, pushed) + turned @ given
    known[..., -1:] += right[..., 1, :, :]
    known = np.concatenate(
        [known[..., :half], np.broadcast_to(row[:, None, None] * np.eye(half), inverse.shape), known[..., half:]],
        axis=-1,
    )
    flat = known.reshape(pairs, count, stages * half, -1)
    try:
        points = np.linalg.solve(system, flat)
    except np.linalg.LinAlgError:  # one of them is singular: none may be left without an answer
        points = np.linalg.pinv(np.nan_to_num(system)) @ flat
    points = points.reshape(known.shape)
    momenta = inverse @ _weighted(slopes, points) - mixed @ points
    momenta[..., :half] -= pushed[..., :half]
    momenta[..., -1:] -= pushed[..., half:]
    follow = np.concatenate([points, momenta], axis=-2)
    # Weights of the changes at the nodes in the change over the interval.
    carry = (WEIGHTS @ SLOPES)[None]
    across = _weighted(carry, follow)[:, :, 0]
    across[..., :-1] += (1 - carry.sum()) * np.eye(2 * half)
    across[..., -1] += steps.reshape(pairs, count, -1)
    # The change at the start is fixed but for the momentum: affine in it, carried through.
    carried = np.zeros((pairs, 2 * half, half + 1))
    carried[:, half:, :-1] = np.eye(half)
    carried[:, :half, -1] = ends[:, 0].reshape(pairs, -1)
    chain = [carried]
    for k in range(count):
        carried = across[:, k, :, :-1] @ carried
        carried[..., -1] += across[:, k, :, -1]
        chain.append(carried)
    response, short = carried[:, :half, :-1], ends[:, 1].reshape(pairs, -1) - carried[:, :half, -1]
    momentum = _solutions(response, short)
    links = np.stack(chain, axis=1)
    states = (links[..., :-1] @ momentum[:, None, :, None])[..., 0] + links[..., -1]
    begins = np.concatenate([states[:, :-1], np.ones((pairs, count, 1))], axis=-1)
    inside = (follow @ begins[:, :, None, :, None])[..., 0]
    moved = _weighted(slopes, inside - states[:, :-1, None])
    return (
        Mesh(states.reshape(mesh.states.shape), moved.reshape(mesh.slopes.shape)),
        response,
        np.max(np.abs(short), axis=1),
    )


def _solutions(matrices: np.ndarray, right: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.solve(matrices, right[..., None])[..., 0]
    except np.linalg.LinAlgError:
        return (np.linalg.pinv(np.nan_to_num(matrices)) @ right[..., None])[..., 0]


def _weighted(weights: np.ndarray, stacked: np.ndarray) -> np.ndarray:
    """Weighted sums over the Gauss points of each interval, the third axis."""
    shape = stacked.shape
    flat = weights @ stacked.reshape(*shape[:3], -1)
    return flat.reshape(*shape[:2], len(weights), *shape[3:])
