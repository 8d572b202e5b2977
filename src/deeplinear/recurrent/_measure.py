r"""Spectral measures of symmetric recurrent networks, and how they follow from a response.

For $A = A^\top$ with eigenvalues $a_i$, one input and one output, the response is a sequence of moments,
$h_j = \sum_i p_ia_i^j = \int x^j\,d\mu$ of $\mu = \sum_i p_i\delta_{a_i}$ with $p_i = (CU)_i(U^\top B)_i$. A balanced
network, $B = C^\top$, has a positive one of mass $h_0 = \|B\|^2$. The number of its atoms takes the place of the number
of states: a measure of $n$ atoms is known from $2n$ moments among those of $n$ atoms, and from $2n + 1$ among all.
"""

import decimal
import fractions
import math
import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    as_array,
    check_count,
    check_finite,
    check_number,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    formula,
    is_concrete,
    spectrum_effective_rank,
    xp,
)
from deeplinear.models import System, checked_system
from deeplinear.recurrent._response import checked_numbers, symmetric_transition

NEGATIVE = 1e-12
"""Negative weight, relative to the sum of all sizes, that counts as rounding."""

MASS = 1e-9
"""How far the mass of a probability measure may be from 1."""

DISTINCT = 1e-12
"""Distance of two atoms, relative to the largest (at least 1), below which they are one."""


class SpectralMeasure(NamedTuple):
    """A measure of finitely many atoms on the line.

    Attributes:
        atoms: Where they are, in rising order.
        weights: What they weigh.
    """

    atoms: Float[Array, " atoms"]
    weights: Float[Array, " atoms"]

    @property
    def order(self) -> int:
        """Number of atoms: the states that the response really needs."""
        return len(self.atoms)

    @property
    def mass(self) -> Float[Array, ""]:
        r"""Sum of the weights, $h_0$."""
        return xp.sum(as_array(checked_layer("SpectralMeasure", "weights", self.weights), float))

    @property
    def normalised(self) -> "SpectralMeasure":
        """The same atoms with mass 1."""
        mass = float(self.mass)
        if not mass > 0:
            raise HypothesisError(
                "a measure of positive mass", -mass, 0.0, "The zero measure, or a signed one, cannot be normalised."
            )
        return SpectralMeasure(self.atoms, self.weights / mass)

    def moments(self, length: int) -> Float[Array, " length"]:
        r"""$\int x^j\,d\mu$ for $j$ below a length: the impulse response."""
        check_count("SpectralMeasure.moments", "length", length, at_least=1)
        atoms, weights = (checked_layer("SpectralMeasure", name, getattr(self, name)) for name in self._fields)
        powers = np.ones((length, self.order))
        powers[1:] = np.asarray(atoms)
        return xp.asarray(np.cumprod(powers, axis=0) @ np.asarray(weights), dtype=float)


class Jacobi(NamedTuple):
    r"""Recurrence of the orthogonal polynomials of a positive measure.

    Attributes:
        diagonal: $\alpha_1, \dots, \alpha_n$.
        beside: $\beta_1, \dots, \beta_{n-1} > 0$, next to the diagonal of the Jacobi matrix.
        mass: Of the measure.
    """

    diagonal: Float[Array, " order"]
    beside: Float[Array, " order-1"]
    mass: Float[Array, ""]

    @property
    def matrix(self) -> Float[Array, "order order"]:
        """The tridiagonal matrix; its eigenvalues are the atoms."""
        return _tridiagonal(self.diagonal, self.beside)


@formula
def _tridiagonal(diagonal: Float[Array, " order"], beside: Float[Array, " order-1"]) -> Float[Array, "order order"]:
    return xp.diag(diagonal) + xp.diag(beside, 1) + xp.diag(beside, -1)


@entry(instead="call it outside of jit, vmap and grad, or use diagonal_equivalent")
def spectral_measure(
    system: Any, *, merge: float | None = None, drop: float = 1e-15, signed: bool = False
) -> SpectralMeasure:
    r"""The measure $\sum_i p_i\delta_{a_i}$ whose moments are the impulse response of a symmetric network.

    Atoms closer than a distance become one, at their mean by weight: the weights of equal eigenvalues depend on the
    basis, their sum does not. Then atoms of no weight are dropped.

    Args:
        system: $A = A^\top$, $B$, $C$ with one input and one output.
        merge: Distance of neighbours that are one atom; $10^{-9}\max(1, \rho(A))$ if left out.
        drop: Weight that counts as none, relative to the sum of the sizes of all.
        signed: Allow negative weights, those of a network that no balanced one is equivalent to.

    Returns:
        The measure; that of a zero response has no atoms.

    Raises:
        HypothesisError: $A$ is not symmetric, or a weight is negative beyond rounding.

    Example:
        >>> spectral_measure((np.diag([0.5, 0.5, -1.0]), np.ones((3, 1)), np.array([[1.0, 2.0, 0.0]])))
        SpectralMeasure(atoms=array([0.5]), weights=array([3.]))
    """
    where = "spectral_measure"
    transition, first, output = _single(where, system)
    check_number(where, "drop", drop, at_least=0)
    values, vectors = np.linalg.eigh(transition)
    distance = 1e-9 * max(1.0, float(np.abs(values).max())) if merge is None else merge
    check_number(where, "merge", distance, at_least=0)
    atoms, weights = _merged(values, (output @ vectors)[0] * (vectors.T @ first)[:, 0], distance)
    total = float(np.abs(weights).sum())
    if not signed and weights.min() < -NEGATIVE * total:
        raise HypothesisError(
            "spectral weights that are not negative",
            -float(weights.min()),
            NEGATIVE * total,
            "No balanced network has this response; signed=True gives the measure all the same.",
        )
    kept = np.abs(weights) > drop * total if signed else weights > drop * total
    return SpectralMeasure(xp.asarray(atoms[kept], dtype=float), xp.asarray(weights[kept], dtype=float))


@entry
def diagonal_equivalent(system: Any) -> System:
    r"""The network $(\Lambda, U^\top B, CU)$ of a symmetric one $A = U\Lambda U^\top$: same response, same balance.

    Args:
        system: $A = A^\top$, $B$, $C$; any inputs and outputs.

    Raises:
        HypothesisError: $A$ is not symmetric.

    Example:
        >>> found = diagonal_equivalent(([[0.0, 1.0], [1.0, 0.0]], [[1.0], [0.0]], [[1.0, 0.0]]))
        >>> np.diag(found.transition).round(12), np.array_equal(found.input, found.output.T)
        (array([-1.,  1.]), True)
    """
    where = "diagonal_equivalent"
    checked = checked_system(where, system)
    if not all(map(is_concrete, checked)):
        return _diagonalised(checked)
    transition, first, output = (np.asarray(matrix) for matrix in checked)
    values, vectors = np.linalg.eigh(symmetric_transition(where, transition))
    # The same product for both maps: transposes stay transposes to the last digit.
    rows, columns = vectors.T @ first, (vectors.T @ np.ascontiguousarray(output.T)).T
    return System(
        xp.asarray(np.diag(values), dtype=float), xp.asarray(rows, dtype=float), xp.asarray(columns, dtype=float)
    )


@formula
def _diagonalised(system: System) -> System:
    values, vectors = xp.linalg.eigh((system.transition + system.transition.T) / 2)
    return System(xp.diag(values), vectors.T @ system.input, (vectors.T @ system.output.T).T)


@entry(instead="call it outside of jit, vmap and grad; it computes with fractions")
def measure_from_moments(moments: Any, order: int) -> SpectralMeasure:
    r"""The positive measure of $n$ atoms with given moments $w_0, \dots, w_{2n-1}$.

    The recurrence coefficients of its orthogonal polynomials come from the moments by Chebyshev's algorithm in exact
    rational arithmetic, without loss whatever the conditioning; atoms and weights are eigenvalues and first components
    of eigenvectors of the Jacobi matrix, in double precision. So the answer is as good as the moments are. From $n = 4$
    on the sixteen digits of floating-point moments are often too few (`hankel_condition`): give fractions or decimals.

    Args:
        moments: At least $2n$ numbers: floats, integers, `fractions.Fraction` or `decimal.Decimal`.
        order: $n$.

    Raises:
        HypothesisError: The Hankel matrix $[w_{i+j}]_{i,j<n}$ is not positive definite.

    Example:
        >>> found = measure_from_moments([3.0, 0.0, 1.5, -0.75], 2)
        >>> found.atoms.round(12), found.weights.round(12)
        (array([-1. ,  0.5]), array([1., 2.]))
    """
    where = "measure_from_moments"
    check_x64(where)
    check_count(where, "order", order, at_least=1)
    exact = _fractions(where, moments)
    if len(exact) < 2 * order:
        raise ValueError(f"{where}: moments must have at least {2 * order} entries, but has {len(exact)}.")
    diagonal, squares = _recurrence(where, exact, order)
    beside = np.sqrt([float(square) for square in squares])
    atoms, vectors = scipy.linalg.eigh_tridiagonal(np.array([float(a) for a in diagonal]), beside)
    return SpectralMeasure(xp.asarray(atoms, dtype=float), xp.asarray(float(exact[0]) * vectors[0] ** 2, dtype=float))


@entry(
    instead="call it outside of jit, vmap and grad, or trace hankel_singular_values and divide the first by the last"
)
def hankel_condition(response: Any, order: int) -> float:
    r"""Condition number of $[h_{i+j}]_{i,j<n}$: by how much errors of a response grow in the atoms it determines.

    Args:
        response: $h_0, \dots, h_{2n-2}$ at least, numbers.
        order: $n$.

    Example:
        >>> round(hankel_condition([2.0, 0.0, 1.0], 2), 12)
        2.0
    """
    where = "hankel_condition"
    check_x64(where)
    check_count(where, "order", order, at_least=1)
    return float(np.linalg.cond(_hankel(checked_numbers(where, "response", response, 2 * order - 1), order)))


@entry(instead="call it outside of jit, vmap and grad; it chooses its formula by the signs of eigenvalues")
def ho_kalman(response: Any, order: int, *, rows: int | None = None, tolerance: float = 1e-14) -> System:
    r"""The network of $n$ states whose response begins with $w_0, \dots, w_{2n-1}$.

    With $H_0 = [w_{i+j}]$ and $H_1 = [w_{i+j+1}]$, $i, j < n$. If $H_0 = USU^\top$ is positive definite:
    $A = S^{-1/2}U^\top H_1US^{-1/2}$, $B = C^\top = S^{1/2}U^\top e_1$, symmetric and balanced. Else, with
    $H_0 = USV^\top$, $A = S^{-1/2}U^\top H_1VS^{-1/2}$, $B = S^{1/2}V^\top e_1$, $C = e_1^\top US^{1/2}$. It is what a
    learner that knows the order would return. With more rows than $n$ more numbers are used, and only the $n$ largest
    singular values are kept: the same for exact numbers, and better for measured ones.

    Args:
        response: At least $2n$ numbers, or twice as many as rows.
        order: $n$.
        rows: Rows of the Hankel matrices; $n$ if left out.
        tolerance: Smallest over largest singular value of $H_0$ below which it is singular.

    Raises:
        HypothesisError: $H_0$ is singular: the response needs fewer states, and the message says how many.

    Example:
        >>> found = ho_kalman([0.0, 1.0, 0.0, 0.0], 2)
        >>> [round(abs(value), 12) for value in impulse_response(found, 4).values.tolist()]
        [0.0, 1.0, 0.0, 0.0]
    """
    where = "ho_kalman"
    check_x64(where)
    check_count(where, "order", order, at_least=1)
    check_number(where, "tolerance", tolerance, at_least=0, at_most=1)
    size = order if rows is None else rows
    check_count(where, "rows", size, at_least=order)
    values = checked_numbers(where, "response", response, 2 * size)
    hankel, shifted = _hankel(values, size), _hankel(values[1:], size)
    eigenvalues, u = np.linalg.eigh(hankel)
    largest = np.sort(np.argsort(-np.abs(eigenvalues), kind="stable")[:order])
    eigenvalues, u = eigenvalues[largest], u[:, largest]
    if eigenvalues[0] > tolerance * eigenvalues[-1]:
        roots = np.sqrt(eigenvalues)
        inner = (u / roots).T @ shifted @ (u / roots)
        first = (roots * u[0])[:, None]
        return System(*(xp.asarray(m, dtype=float) for m in (inner / 2 + inner.T / 2, first, first.T)))
    left, singular, right = np.linalg.svd(hankel)
    rank = int(np.sum(singular > tolerance * singular[0])) if singular[0] > 0 else 0
    if rank < order:
        raise HypothesisError(
            f"{where}: a Hankel matrix that is not singular",
            float(singular[order - 1]),
            tolerance * float(singular[0]),
            f"Its numerical rank is {rank}: the response needs no more states than that.",
        )
    left, singular, right = left[:, :order], singular[:order], right[:order]
    roots = np.sqrt(singular)
    inner = (left / roots).T @ shifted @ (right.T / roots)
    parts = (inner, (roots * right[:, 0])[:, None], (left[0] * roots)[None])
    return System(*(xp.asarray(part, dtype=float) for part in parts))


@entry(instead="call it outside of jit, vmap and grad; the size of its result depends on the values of the measure")
def jacobi(measure: Any) -> Jacobi:
    r"""Jacobi matrix of a positive measure, by Lanczos from $\sqrt p$ with full reorthogonalisation.

    Args:
        measure: Atoms and weights.

    Example:
        >>> found = jacobi(([0.0, 2.0], [0.5, 0.5]))
        >>> found.diagonal.round(12), found.beside.round(12)
        (array([1., 1.]), array([1.]))
    """
    where = "jacobi"
    atoms, weights = checked_measure(where, measure)
    check_distinct(where, "atoms", atoms)
    if not np.all(weights > 0):
        raise ValueError(f"{where}: weights must be greater than 0, but one is {weights.min():g}.")
    mass, size = float(weights.sum()), len(atoms)
    basis = np.zeros((size, size))
    basis[0] = np.sqrt(weights / mass)
    diagonal, beside = np.zeros(size), np.zeros(size - 1)
    for i in range(size):
        image = atoms * basis[i]
        diagonal[i] = basis[i] @ image
        if i == size - 1:
            break
        for _ in range(2):  # once loses digits, twice is enough
            image = image - basis[: i + 1].T @ (basis[: i + 1] @ image)
        beside[i] = np.linalg.norm(image)
        basis[i + 1] = image / beside[i]
    return Jacobi(xp.asarray(diagonal, dtype=float), xp.asarray(beside, dtype=float), xp.asarray(mass, dtype=float))


@entry(instead="call it outside of jit, vmap and grad; it sorts and merges the atoms of both measures")
def wasserstein(first: Any, second: Any, order: float = 1) -> float:
    r"""Distance $W_q(\mu, \nu) = \bigl(\int_0^1 |F_\mu^{-1}(u) - F_\nu^{-1}(u)|^q\,du\bigr)^{1/q}$ on the line.

    By the quantiles of both, $O(n\log n)$. Levels of the two that differ by rounding are taken as equal: a sliver of
    mass $10^{-17}$ would contribute $10^{-17/q}$.

    Args:
        first: Atoms, in any order, and weights of mass 1, such as a normalised `SpectralMeasure`.
        second: The same.
        order: $q \ge 1$.

    Example:
        >>> round(wasserstein(([0.0], [1.0]), ([1.0, -2.0], [0.75, 0.25]), 2), 12)
        1.322875655532
    """
    where = "wasserstein"
    check_number(where, "order", order, at_least=1)
    (x, p), (y, q) = _probability(where, "first", first), _probability(where, "second", second)
    levels = np.sort(np.concatenate([p, q]))
    rounding = np.finfo(float).eps * (len(p) + len(q))
    levels = levels[np.concatenate([[True], np.diff(levels) > rounding])]
    edges = np.concatenate([[0.0], levels])
    middles = (edges[1:] + edges[:-1]) / 2
    at_x, at_y = np.searchsorted(p, middles), np.searchsorted(q, middles)
    distances = np.abs(x[np.minimum(at_x, len(x) - 1)] - y[np.minimum(at_y, len(y) - 1)])
    largest = float(distances.max())
    if largest == 0:
        return 0.0
    widths = np.diff(edges)
    return largest * float(np.sum(widths * (distances / largest) ** order) / widths.sum()) ** (1 / order)


@entry(instead="call it outside of jit, vmap and grad, or trace hankel_singular_values")
def atom_dimension(measure: Any, *, tolerance: float = 1e-2, merge: float = 1e-2) -> int:
    r"""Number of atoms that weigh more than a share of the mass, after merging neighbours.

    Args:
        measure: Atoms and positive weights.
        tolerance: The share.
        merge: Distance of neighbours that are one atom.

    Returns:
        The number; 0 for the zero measure.

    Example:
        >>> atom_dimension(([0.5, 0.505, 0.9, -1.0], [0.3, 0.3, 0.4, 1e-3]))
        2
    """
    where = "atom_dimension"
    check_number(where, "tolerance", tolerance, at_least=0, at_most=1)
    check_number(where, "merge", merge, at_least=0)
    atoms, weights = checked_measure(where, measure)
    _refuse_negative(where, weights)
    if not atoms.size:
        return 0
    merged = _merged(atoms, weights, merge)[1]
    return int(np.sum(merged > tolerance * merged.sum()))


@entry(instead="call it outside of jit, vmap and grad; it merges atoms by their distance")
def entropy_dimension(measure: Any) -> float:
    r"""$\exp(-\sum_i p_i\ln p_i)$ of the normalised weights: $n$ for $n$ equal ones.

    Args:
        measure: Atoms and positive weights.

    Returns:
        The number; 0 for the zero measure.

    Example:
        >>> round(entropy_dimension(([0.1, 0.2, 0.3], [2.0, 2.0, 0.0])), 12)
        2.0
    """
    where = "entropy_dimension"
    weights = checked_measure(where, measure)[1]
    _refuse_negative(where, weights)
    weights = weights[weights > 0]
    if not weights.size:
        return 0.0
    return float(spectrum_effective_rank(weights))


def checked_measure(where: str, measure: Any) -> tuple[np.ndarray, np.ndarray]:
    """Atoms in rising order and their weights, finite numbers, or a refusal."""
    check_x64(where)
    if not isinstance(measure, tuple | list) or len(measure) != 2:
        raise ValueError(f"{where}: measure must be atoms and weights, but is {type(measure).__name__}.")
    atoms, weights = (
        np.asarray(checked_layer(where, name, value), dtype=float)
        for name, value in zip(("atoms", "weights"), measure, strict=True)
    )
    check_shape(where, "atoms", atoms, (None,))
    check_shape(where, "weights", weights, atoms.shape)
    check_finite(where, "atoms", atoms)
    check_finite(where, "weights", weights)
    rising = np.argsort(atoms, kind="stable")
    return atoms[rising], weights[rising]


def check_distinct(where: str, name: str, points: np.ndarray) -> None:
    """Refuse points of which two are the same but for rounding, or no points."""
    if not points.size:
        raise ValueError(f"{where}: {name} must hold at least one point, but is empty.")
    nearest = float(np.diff(np.sort(points)).min()) if len(points) > 1 else np.inf
    if not nearest > DISTINCT * max(1.0, float(np.abs(points).max())):
        raise ValueError(f"{where}: {name} must be distinct, but two are {nearest:.1e} apart; merge them.")


def _single(where: str, system: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A symmetric system of one input and one output."""
    transition, first, output = (np.asarray(matrix) for matrix in checked_system(where, system))
    if (first.shape[1], len(output)) != (1, 1):
        raise ValueError(
            f"{where}: system must have one input and one output, but has {first.shape[1]} and {len(output)}."
        )
    return symmetric_transition(where, transition), first, output


def _merged(atoms: np.ndarray, weights: np.ndarray, distance: float) -> tuple[np.ndarray, np.ndarray]:
    """One atom for each chain of rising atoms whose neighbours are within a distance."""
    chains = np.concatenate([[0], np.cumsum(np.diff(atoms) > distance)])
    count = int(chains[-1]) + 1
    sizes = np.bincount(chains, np.abs(weights), count)
    alone = np.bincount(chains, minlength=count) == 1
    base = atoms[np.searchsorted(chains, np.arange(count))]  # means as offsets from the first keep their digits
    offsets = np.bincount(chains, np.abs(weights) * (atoms - base[chains]), count)
    places = base + np.where(alone | (sizes == 0), 0.0, offsets / np.where(sizes == 0, 1.0, sizes))
    return places, np.bincount(chains, weights, count)


def _fractions(where: str, moments: Any) -> list[fractions.Fraction]:
    if isinstance(moments, Sequence) and any(isinstance(m, fractions.Fraction | decimal.Decimal) for m in moments):
        for index, moment in enumerate(moments):
            if not isinstance(moment, numbers.Real | decimal.Decimal) or not math.isfinite(moment):
                raise ValueError(f"{where}: moments must be finite real numbers, but entry {index} is {moment!r}.")
        return [fractions.Fraction(moment) for moment in moments]
    return [fractions.Fraction(float(moment)) for moment in checked_numbers(where, "moments", moments, 1)]


def _recurrence(
    where: str, moments: list[fractions.Fraction], order: int
) -> tuple[list[fractions.Fraction], list[fractions.Fraction]]:
    r"""$\alpha_1, \dots, \alpha_n$ and $\beta_1^2, \dots, \beta_{n-1}^2$ from moments, exactly."""
    before, now = [fractions.Fraction(0)] * (2 * order), list(moments[: 2 * order])
    _refuse_indefinite(where, moments, order, now[0])
    diagonal, squares = [now[1] / now[0]], []
    for i in range(1, order):
        square = squares[-1] if squares else fractions.Fraction(0)
        after = [fractions.Fraction(0)] * (2 * order)
        for j in range(i, 2 * order - i):
            after[j] = now[j + 1] - diagonal[-1] * now[j] - square * before[j]
        _refuse_indefinite(where, moments, order, after[i])
        squares.append(after[i] / now[i - 1])
        diagonal.append(after[i + 1] / after[i] - now[i] / now[i - 1])
        before, now = now, after
    return diagonal, squares


def _refuse_indefinite(where: str, moments: list[fractions.Fraction], order: int, pivot: fractions.Fraction) -> None:
    """Refuse a Hankel matrix with a pivot that is not positive."""
    if pivot > 0:
        return
    hankel = _hankel(np.array([float(moment) for moment in moments]), order)
    raise HypothesisError(
        f"{where}: a Hankel matrix of the moments that is positive definite",
        -float(pivot),
        0.0,
        f"Its smallest eigenvalue is {np.linalg.eigvalsh(hankel)[0]:.3e}. Either no positive measure has these "
        "moments, or one of fewer atoms has, or they are known to too few digits.",
    )


def _hankel(values: np.ndarray, order: int) -> np.ndarray:
    return values[np.add.outer(np.arange(order), np.arange(order))]


def _probability(where: str, name: str, measure: Any) -> tuple[np.ndarray, np.ndarray]:
    """Atoms and the levels that their weights add up to, the last of them 1."""
    atoms, weights = checked_measure(f"{where} ({name})", measure)
    _refuse_negative(f"{where} ({name})", weights, none_of_it=True)
    mass = float(weights.sum())
    if not abs(mass - 1) <= MASS:
        raise ValueError(f"{where}: weights of {name} must add up to 1 within {MASS:g}, but add up to {mass!r}.")
    kept = weights > 0
    levels = np.cumsum(weights[kept])
    return atoms[kept], levels / levels[-1]


def _refuse_negative(where: str, weights: np.ndarray, *, none_of_it: bool = False) -> None:
    allowed = 0.0 if none_of_it else NEGATIVE * float(np.abs(weights).sum())
    if weights.size and weights.min() < -allowed:
        raise ValueError(f"{where}: weights must be at least 0, but one is {weights.min():g}.")
