r"""What the first entries of a balanced network's response leave open about a later one.

The responses of balanced networks are the moments $h_j = \int x^j\,d\mu$ of positive measures. So the values that $h_j$
can take, given the first $k$ moments and an interval $[a, b]$ that holds the spectrum, fill an interval, whose ends are
linear programmes over measures. For a teacher with $n$ eigenvalues its width is zero if and only if $k \ge 2n + 1$
(with eigenvalues at the ends $a$, $b$ fewer moments may do).
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    check_count,
    check_finite,
    check_number,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    xp,
)

ACCURACY = 1e-10
"""Largest violation of a constraint, and of optimality, in units of the largest moment."""

FALL_BACK = (1e-8, 1e-7, 1e-6)
"""Tolerances on the moments that are tried where the solver cannot decide the exact programme, in the same units."""

MOST = 700.0
"""Largest logarithm of a moment."""

GRID = 801
"""Points of the grid on which measures live at first."""

ROUNDS = 8
"""How often points are added where the dual polynomial is crossed."""

REFINED = 1e-8
"""Error, in the same units as the accuracy, up to which the ends with added points are taken."""

BESIDE = 1e-5
"""Distance at which a mass has points on both sides: they hold the slope of the dual polynomial there."""

ZOOMS, PARTS = 6, 16
"""How often the interval around such a point is narrowed, and by how much."""


class ExtrapolationInterval(NamedTuple):
    """Least and largest value of a moment.

    Attributes:
        lower: The least.
        upper: The largest.
        tolerance: By how much each given moment was allowed to be off. Larger than what was asked for if the programme
            could not be decided in double precision otherwise.
        error: By how much values of measures may lie beyond these two at most, as the dual programme bounds it.
    """

    lower: Float[Array, ""]
    upper: Float[Array, ""]
    tolerance: float
    error: float

    @property
    def width(self) -> Float[Array, ""]:
        """How much is left open; never negative."""
        return xp.maximum(self.upper - self.lower, 0.0)


@entry(instead="call it outside of jit, vmap and grad; it solves linear programmes")
def extrapolation_interval(
    response: Any,
    index: int,
    *,
    low: Any,
    high: Any,
    atoms: Any = (),
    tolerance: Any = 0.0,
    fall_back: bool = True,
    points: int = GRID,
) -> ExtrapolationInterval:
    r"""Least and largest $h_j$ of positive measures on an interval with given first moments.

    The measures live on a cosine-spaced grid and on the given atoms at first, so that the interval is found from
    within. The dual programme has a polynomial of degree $k - 1$ that bounds $x^j$ on all points of the grid. Where it
    is crossed between them, points are added, until it bounds $x^j$ on the whole interval to $10^{-10}$; by how much it
    does not bounds the error. The moments are matched in the Chebyshev basis of the interval. With a tolerance, each
    moment may be off by so much: the worst case of a student that was trained to that accuracy.

    Exact moments of a measure with few atoms lie on the boundary of what is possible. If the atoms are clustered, the
    solver may not be able to tell in double precision; then small tolerances are tried, and the answer names the one it
    holds for. A narrower interval around the spectrum helps.

    Args:
        response: $h_0, \dots, h_{k-1}$.
        index: $j$.
        low: $a$, lower end of the spectrum.
        high: $b$, upper end of the spectrum.
        atoms: Points of the interval to have on the grid; the eigenvalues of the system that the response is from.
            Without them the programme may have no solution, for the measure need not live on the grid.
        tolerance: By how much each moment may be off.
        fall_back: Whether to try small tolerances where the programme cannot be decided.
        points: Points of the grid to begin with.

    Returns:
        The interval, with the tolerance it holds for and the error of its ends.

    Raises:
        HypothesisError: No measure on the grid has these moments within the tolerance, as far as double precision can
            tell; with the least tolerance that there is one for.
        ValueError: The solver gave up although there is one.

    Example:
        >>> found = extrapolation_interval([1.0, 0.5], 2, low=0.0, high=1.0, atoms=[0.5])
        >>> float(found.lower.round(9)), float(found.upper.round(9))
        (0.25, 0.5)
    """
    where = "extrapolation_interval"
    check_x64(where)
    moments = np.asarray(checked_layer(where, "response", response), dtype=float)
    check_shape(where, "response", moments, (None,))
    check_finite(where, "response", moments)
    if len(moments) == 0:
        raise ValueError(f"{where}: response must have at least one entry, but is empty.")
    check_count(where, "index", index, at_least=0)
    check_count(where, "points", points, at_least=2)
    check_number(where, "tolerance", tolerance, at_least=0)
    a, b = _checked_ends(where, low, high)
    if index * math.log(max(abs(a), abs(b))) > MOST:
        raise ValueError(f"{where}: index must be less than {index} on [{a:g}, {b:g}]; the moment overflows.")
    nodes = np.asarray(checked_layer(where, "atoms", atoms), dtype=float)
    check_shape(where, "atoms", nodes, (None,))
    check_finite(where, "atoms", nodes)
    if len(nodes) and (nodes.min() < a or nodes.max() > b):
        raise ValueError(f"{where}: atoms must lie in [{a:g}, {b:g}], but span [{nodes.min():g}, {nodes.max():g}].")

    unit = float(np.abs(moments).max()) or 1.0
    programme = _Programme.of(moments / unit, index, a, b, nodes, points)
    allowed = float(tolerance) / unit
    ladder = [allowed, *(t for t in FALL_BACK if fall_back and t > allowed)]
    for slack in ladder:
        ends = programme.ends(slack)
        if ends is None and slack > 0:  # the solver gives up now and then: a finer grid is another programme
            ends = _Programme.of(moments / unit, index, a, b, nodes, points + points // 2).ends(slack)
        if ends is not None:
            scale = unit * programme.size
            used = float(tolerance) if slack == allowed else slack * unit
            lower, upper = (xp.asarray(end * scale, dtype=float) for end in ends[:2])
            return ExtrapolationInterval(lower, upper, used, ends[2] * scale)
    misfit = programme.misfit()
    if misfit <= ladder[-1]:
        raise ValueError(
            f"{where}: the linear programme was not solved, although there is a measure with these moments within "
            f"{misfit * unit:.1e}. Take another number of points, or a narrower interval."
        )
    advice = (
        "The moments may be those of no positive measure on the interval, the grid may lack the atoms of the measure, "
        "or the atoms may be too close for double precision: give the atoms, a narrower interval or a larger tolerance."
    )
    raise HypothesisError(
        "moments of a positive measure on the grid, decided in double precision",
        misfit * unit,
        ladder[-1] * unit,
        advice,
    )


@entry(instead="call it outside of jit, vmap and grad, or differentiate impulse_response")
def upper_principal_moment(atoms: Any, weights: Any, *, low: Any, high: Any) -> Float[Array, ""]:
    r"""Largest $h_{2n}$ of positive measures on $[a, b]$ that share the moments $0, \dots, 2n - 1$ of $n$ atoms.

    It belongs to the measure with mass at both ends and $n - 1$ points between, and is

    $$w_{2n} + \Big(\sum_i\frac{1}{p_i(x_i - a)(b - x_i)\prod_{l\ne i}(x_i - x_l)^2}\Big)^{-1}.$$

    The least is $w_{2n}$ itself. With an atom at an end there is nothing left open.

    Args:
        atoms: $x_i$, distinct points of the interval.
        weights: $p_i$, positive.
        low: $a$.
        high: $b$.

    Raises:
        HypothesisError: Repeated atoms, or weights that are not positive.

    Example:
        >>> float(upper_principal_moment([0.5], [1.0], low=0.0, high=1.0))
        0.5
    """
    x, p, a, b = _checked_measure("upper_principal_moment", atoms, weights, low, high)
    apart = x[:, None] - x + np.eye(len(x))
    room = p * (x - a) * (b - x) * np.prod(apart, axis=1) ** 2
    gap = 0.0 if room.min() <= 0 else 1 / float(np.sum(1 / room))
    return xp.asarray(float(p @ x ** (2 * len(x))) + gap, dtype=float)


@entry(instead="call it outside of jit, vmap and grad, or differentiate impulse_response")
def moment_openness(atoms: Any, weights: Any, *, low: Any, high: Any) -> Float[np.ndarray, " known"]:
    r"""How much the first moments of a measure leave open about the next one, for one known moment and more.

    With the canonical moments $p_i$ of the measure on $[a, b]$, $q_i = 1 - p_i$ and mass $m$, the $k$-th moment of
    positive measures that share those before fills an interval of length

    $$m\,(b - a)^k\prod_{i=1}^{k-1}p_iq_i.$$

    For $n$ atoms inside the interval it is zero from $k = 2n + 1$ known moments on.

    Args:
        atoms: $x_i$, distinct points of the interval.
        weights: Positive.
        low: $a$.
        high: $b$.

    Returns:
        Lengths for $k = 1, \dots, 2n + 1$ known moments.

    Raises:
        HypothesisError: Repeated atoms, or weights that are not positive.

    Example:
        >>> moment_openness([0.5], [1.0], low=0.0, high=1.0)
        array([1.  , 0.25, 0.  ])
    """
    x, p, a, b = _checked_measure("moment_openness", atoms, weights, low, high)
    diagonal, beside = _jacobi((x - a) / (b - a), p / p.sum())
    # The chain of the measure: sums are the diagonal of its Jacobi matrix, products the squares beside it.
    chain = [float(diagonal[0])]
    for square, middle in zip(beside**2, diagonal[1:], strict=True):
        chain.append(float(square) / chain[-1] if chain[-1] > 0 else 0.0)
        chain.append(float(middle) - chain[-1])
    lengths, rest = [float(p.sum()) * (b - a)], 1.0
    for link in chain:
        share = min(max(link / rest, 0.0), 1.0) if rest > 0 else 0.0
        rest = 1.0 - share
        lengths.append(lengths[-1] * (b - a) * share * rest)
    return np.array([*lengths, 0.0])


def _jacobi(x: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Diagonal and what is beside it of the Jacobi matrix of a measure of mass one, by Lanczos' method."""
    basis, diagonal, beside = [np.sqrt(p)], [], []
    for _ in range(len(x)):
        diagonal.append(float(basis[-1] @ (x * basis[-1])))
        rest = x * basis[-1]
        for _ in range(2):
            for vector in basis:
                rest = rest - (vector @ rest) * vector
        beside.append(float(np.linalg.norm(rest)))
        basis.append(rest / max(beside[-1], 1e-300))
    return np.array(diagonal), np.array(beside[:-1])


class _Programme(NamedTuple):
    """The linear programme in units of the largest moment and of the largest value of the objective.

    Attributes:
        basis: Chebyshev polynomials at the points, (k, points).
        target: Chebyshev moments.
        change: From monomials to Chebyshev polynomials, (k, k).
        objective: The power at the points, over its largest value.
        size: That value.
        points: The points, over the half of the interval, from its centre.
        power: The power, in these units, at any such points.
    """

    basis: np.ndarray
    target: np.ndarray
    change: np.ndarray
    objective: np.ndarray
    size: float
    points: np.ndarray
    power: Callable[[np.ndarray], np.ndarray]

    @staticmethod
    def of(moments: np.ndarray, index: int, a: float, b: float, atoms: np.ndarray, points: int) -> "_Programme":
        centre, half = (a + b) / 2, (b - a) / 2
        grid = centre - half * np.cos(np.pi * np.arange(points) / (points - 1))
        x = np.unique(np.concatenate([np.clip(grid, a, b), atoms]))
        scaled = np.clip((x - centre) / half, -1.0, 1.0)
        change = _chebyshev_from_powers(len(moments), centre, half)
        exact = [sum(c * Fraction(m) for c, m in zip(row, moments.tolist(), strict=True)) for row in change]
        largest = max(abs(a), abs(b))
        return _Programme(
            _chebyshev(len(moments), scaled),
            np.array([float(m) for m in exact]),
            np.array(change, dtype=float),
            (x / largest) ** index,
            largest**index,
            scaled,
            lambda place: ((centre + half * place) / largest) ** index,
        )

    def ends(self, slack: float) -> tuple[float, float, float] | None:
        """Least and largest value and their error, or nothing if the solver does not find both."""
        least, largest = self.least(1.0, slack), self.least(-1.0, slack)
        return None if least is None or largest is None else (least[0], -largest[0], max(least[1], largest[1]))

    def least(self, sign: float, slack: float) -> tuple[float, float] | None:
        """Least value of the objective times a sign, and how much less it may be between the points."""
        every, basis, cost = self.points, self.basis, sign * self.objective
        used = np.arange(len(every))
        found: list[float] = []
        floors: list[float] = []
        for _ in range(ROUNDS):
            matrix, bounds = basis[:, used], [(0.0, None)] * len(used)
            if slack > 0:
                matrix, bounds = np.hstack([matrix, slack * self.change]), bounds + [(-1.0, 1.0)] * len(self.target)
            answer = _solve(np.pad(cost[used], (0, matrix.shape[1] - len(used))), matrix, self.target, bounds)
            if answer.status != 0 or answer.x is None:
                break
            dual = np.asarray(answer.eqlin.marginals)
            near, places, room = self.narrowest(every, cost - dual @ basis, sign, dual)
            # No measure has less than this, whatever the solver did: the dual polynomial, moved under the objective.
            bound = float(dual @ self.target) - slack * float(np.abs(dual @ self.change).sum())
            bound += float(room.min(initial=0.0)) * (float(self.target[0]) + slack)
            found.append(float(answer.fun))
            floors.append(bound)
            error = max(found[-1] - bound, 0.0)
            held = used[answer.x[: len(used)] > 0]
            beside = np.clip(np.concatenate([every[held] - BESIDE, every[held] + BESIDE]), -1.0, 1.0)
            new = np.setdiff1d(np.concatenate([places[room < 0], beside]), every)
            if error <= ACCURACY or not len(new):
                break
            # From now on only points around those where the polynomial touches: few, and the programme is quick.
            around = np.concatenate([near - 1, near, near + 1])
            ahead = np.arange(len(new)) + len(every)
            used = np.unique(np.concatenate([np.clip(around, 0, len(every) - 1), held, ahead]))
            every = np.concatenate([every, new])
            basis = np.concatenate([basis, _chebyshev(len(self.target), new)], axis=1)
            cost = np.concatenate([cost, sign * self.power(new)])
            order = np.argsort(every)
            every, basis, cost = every[order], basis[:, order], cost[order]
            used = np.argsort(order)[used]
        if not found:
            return None
        # Where rounding decides, masses moved by little say nothing new: the value on the grid is kept.
        errors = np.maximum(np.array(found) - max(floors), 0.0)
        best = int(np.argmin(errors)) if errors.min() <= REFINED else 0
        return found[best], float(errors[best])

    def narrowest(
        self, points: np.ndarray, room: np.ndarray, sign: float, dual: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the room under the dual polynomial is least: a point next to each place, the place and its room."""
        given = points
        if len(points) < GRID:  # the least room may lie between two points that both have more than a third
            fine = np.cos(np.pi * np.arange(GRID) / (GRID - 1))
            fine = fine[np.abs(fine[:, None] - points).min(axis=1) > BESIDE**2]
            order = np.argsort(np.concatenate([points, fine]))
            points = np.concatenate([points, fine])[order]
            room = np.concatenate([room, sign * self.power(fine) - dual @ _chebyshev(len(dual), fine)])[order]
        padded = np.concatenate([[np.inf], room, [np.inf]])
        near = np.flatnonzero((room <= padded[:-2]) & (room <= padded[2:]))
        low, high = points[np.maximum(near - 1, 0)], points[np.minimum(near + 1, len(points) - 1)]
        rows = np.arange(len(near))
        places, least = points[near], room[near]
        for _ in range(ZOOMS):
            trial = np.clip(low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, PARTS + 1), -1.0, 1.0)
            flat = trial.ravel()
            seen = (sign * self.power(flat) - dual @ _chebyshev(len(dual), flat)).reshape(trial.shape)
            best = np.argmin(seen, axis=1)
            low, high = trial[rows, np.maximum(best - 1, 0)], trial[rows, np.minimum(best + 1, PARTS)]
            places, least = trial[rows, best], seen[rows, best]
        if given is not points:
            near = np.minimum(np.searchsorted(given, places), len(given) - 1)
        return near, places, least

    def misfit(self) -> float:
        """Least tolerance on the moments for which there is a measure."""
        count, k = len(self.objective), len(self.target)
        matrix = np.hstack([self.basis, self.change, -self.change, np.zeros((k, 1))])
        bounds = [(0.0, None)] * (count + 2 * k + 1)
        rows = np.zeros((k, matrix.shape[1]))
        rows[np.arange(k), count + np.arange(k)] = rows[np.arange(k), count + k + np.arange(k)] = 1.0
        rows[:, -1] = -1.0
        cost = np.zeros(matrix.shape[1])
        cost[-1] = 1.0
        answer = _solve(cost, matrix, self.target, bounds, rows, np.zeros(k))
        return float(answer.fun) if answer.status == 0 else float("inf")


def _solve(cost: Any, matrix: Any, target: Any, bounds: Any, rows: Any = None, limits: Any = None) -> Any:
    options = {"primal_feasibility_tolerance": ACCURACY, "dual_feasibility_tolerance": ACCURACY}
    return scipy.optimize.linprog(
        cost, A_ub=rows, b_ub=limits, A_eq=matrix, b_eq=target, bounds=bounds, method="highs-ds", options=options
    )


def _chebyshev(count: int, points: np.ndarray) -> np.ndarray:
    """The first Chebyshev polynomials at points of [-1, 1]."""
    return np.cos(np.arange(count)[:, None] * np.arccos(points))


def _chebyshev_from_powers(count: int, centre: float, half: float) -> list[list[Fraction]]:
    """Coefficients in powers of x of the Chebyshev polynomials of (x - centre) / half, exactly."""
    middle, stretch = Fraction(centre), Fraction(half)
    rows = [[Fraction(1)] + [Fraction(0)] * (count - 1)]
    for i in range(1, count):
        last = rows[-1]
        times = [((last[c - 1] if c else Fraction(0)) - middle * last[c]) / stretch for c in range(count)]
        rows.append(times if i == 1 else [2 * t - s for t, s in zip(times, rows[-2], strict=True)])
    return rows


def _checked_ends(where: str, low: Any, high: Any) -> tuple[float, float]:
    check_number(where, "low", low)
    check_number(where, "high", high, above=float(low))
    return float(low), float(high)


def _checked_measure(
    where: str, atoms: Any, weights: Any, low: Any, high: Any
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Distinct atoms in an interval, their positive weights, and its ends; or a refusal."""
    check_x64(where)
    x = np.asarray(checked_layer(where, "atoms", atoms), dtype=float)
    check_shape(where, "atoms", x, (None,))
    check_finite(where, "atoms", x)
    p = np.asarray(checked_layer(where, "weights", weights), dtype=float)
    check_shape(where, "weights", p, x.shape)
    check_finite(where, "weights", p)
    a, b = _checked_ends(where, low, high)
    if len(x) == 0:
        raise ValueError(f"{where}: atoms must hold at least one point, but is empty.")
    if x.min() < a or x.max() > b:
        raise ValueError(f"{where}: atoms must lie in [{a:g}, {b:g}], but span [{x.min():g}, {x.max():g}].")
    repeated = len(x) - len(np.unique(x))
    if repeated:
        raise HypothesisError("distinct atoms", repeated, 0, "Merge those that are equal.")
    if p.min() <= 0:
        raise HypothesisError("positive weights", float(-p.min()), 0.0, "Drop idle atoms.")
    return x, p, a, b
