r"""Students without loss that do not extrapolate: why balance, and why more than twice as many samples as states.

With more states than samples a student can have the response of any teacher on $0, \dots, k-1$ and any value at $k$.
Among balanced ones it cannot, if the teacher is balanced with $n$ atoms and $k \ge 2n + 1$; at $k = 2n$ it still can.
"""

from typing import Any, NamedTuple

import numpy as np
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
from deeplinear.models import System
from deeplinear.recurrent._measure import check_distinct, checked_measure, jacobi
from deeplinear.recurrent._response import checked_numbers

RESOLVED = 1e-3
"""Rounding of the weights of a student, relative to the gap it is built for, above which it is none."""


class SharpnessStudent(NamedTuple):
    r"""A balanced student that agrees with a teacher of $n$ atoms on $2n$ samples and not on the next.

    Attributes:
        system: $A = A^\top$, $B$, $C = B^\top$.
        order: $n$.
        gap: $h_{2n} - w_{2n} = M\beta^2\prod_{i<n}\beta_i^2$, positive.
    """

    system: System
    order: int
    gap: Float[Array, ""]


@entry
def chebyshev_nodes(count: int, *, radius: float = 1.0) -> Float[Array, " nodes"]:
    r"""Points $R\cos((2i+1)\pi/2n)$, in falling order.

    Example:
        >>> chebyshev_nodes(2).round(12)
        array([ 0.70710678, -0.70710678])
    """
    where = "chebyshev_nodes"
    check_x64(where)
    check_count(where, "count", count, at_least=1)
    check_number(where, "radius", radius, above=0)
    odd = count - 1 - 2 * np.arange(count)  # as sines, opposite points are opposite to the last digit
    return xp.asarray(radius * np.sin(odd * np.pi / (2 * count)), dtype=float)


@entry(instead="call it outside of jit, vmap and grad; it refuses gaps by their value")
def non_extrapolating_student(
    response: Any, gap: float, *, states: int | None = None, nodes: Any = None, tolerance: float = 0.0
) -> System:
    r"""A diagonal student with the response of a teacher up to $k - 1$, and off by a given gap at $k$.

    On $k + 1$ distinct nodes $x_i$ the weights $g_i$ with $\sum_ig_ix_i^j = w_j$ for $j < k$ and $w_k + \text{gap}$ for
    $j = k$ exist and are unique. Then $A = \mathrm{diag}(x)$, $B_i = \sqrt{|g_i|}$ and $C_i = \mathrm{sign}(g_i)B_i$,
    with zeros for further states. The Vandermonde system is solved by the algorithm of Björck and Pereyra, $O(k^2)$.
    The weights grow like $2^k$, and double precision is the limit: for nodes in $[-1, 1]$ the sum of squared residuals
    is about $10^{-20}$ at $k = 20$ and $10^{-9}$ at $k = 40$.

    Args:
        response: $w_0, \dots, w_k$ of any teacher; the number of entries less one is $k$.
        gap: What to add at $k$, above the tolerance.
        states: Number $d > k$ of states; $k + 1$ if left out.
        nodes: The $k + 1$ points; Chebyshev points of $[-1, 1]$ if left out.
        tolerance: Error $\epsilon$ that the student has to exceed.

    Raises:
        HypothesisError: The weights are so large that their rounding is as large as the gap.

    Example:
        >>> student = non_extrapolating_student([0.0, 1.0, 0.0], 0.5, states=4)
        >>> [round(abs(value), 12) for value in impulse_response(student, 3).values.tolist()]
        [0.0, 1.0, 0.5]
    """
    where = "non_extrapolating_student"
    check_x64(where)
    target = checked_numbers(where, "response", response, 2).copy()
    length = len(target) - 1
    size = _checked_size(where, states, length + 1, f"the number of samples, {length}, plus 1")
    _check_gap(where, gap, tolerance)
    points = np.asarray(chebyshev_nodes(length + 1)) if nodes is None else _checked_nodes(where, nodes, length + 1)
    target[-1] += float(gap)
    return _diagonal_student(where, points, _solve_dual_vandermonde(points, target), size, gap)


@entry(instead="call it outside of jit, vmap and grad; it refuses gaps by their value")
def non_extrapolating_twin(
    teacher: Any, length: int, gap: float, *, states: int | None = None, nodes: Any = None, tolerance: float = 0.0
) -> System:
    r"""The same for a symmetric teacher, built on its own spectrum: its measure plus a multiple of an annihilator.

    Among the $k + 1$ nodes are the atoms of the teacher. To its weights is added the gap times
    $1/\prod_{l\ne i}(x_i - x_l)$, whose moments vanish below $k$ and are 1 at $k$.

    Args:
        teacher: Atoms and weights, at most $k + 1$; weights may be negative. See `spectral_measure`.
        length: $k$, samples on which the two agree.
        gap: What the student adds at $k$, above the tolerance.
        states: Number $d > k$ of states; $k + 1$ if left out.
        nodes: The nodes besides the atoms; by default Chebyshev points of $[-R, R]$, $R$ the largest atom or 1, of
            which the atoms replace those nearest to them.
        tolerance: Error $\epsilon$ that the student has to exceed.

    Raises:
        HypothesisError: The weights are so large that their rounding is as large as the gap.

    Example:
        >>> student = non_extrapolating_twin(([0.5], [1.0]), 2, 0.25)
        >>> [round(value, 12) for value in impulse_response(student, 3).values.tolist()]
        [1.0, 0.5, 0.5]
    """
    where = "non_extrapolating_twin"
    atoms, weights = checked_measure(where, teacher)
    check_count(where, "length", length, at_least=1)
    if atoms.size:
        check_distinct(where, "atoms", atoms)
    if len(atoms) > length + 1:
        raise ValueError(f"{where}: teacher must have at most {length + 1} atoms, but has {len(atoms)}.")
    size = _checked_size(where, states, length + 1, f"length, {length}, plus 1")
    _check_gap(where, gap, tolerance)
    beside = _spare_nodes(atoms, length + 1) if nodes is None else _checked_nodes(where, nodes, length + 1 - len(atoms))
    points = np.concatenate([atoms, beside])
    check_distinct(where, "nodes and atoms", points)
    differences = points[:, None] - points
    np.fill_diagonal(differences, 1.0)
    annihilator = 1 / np.prod(differences, axis=1)
    padded = np.concatenate([weights, np.zeros(len(beside))])
    return _diagonal_student(where, points, padded + float(gap) * annihilator, size, gap)


@entry(instead="call it outside of jit, vmap and grad; the size of its result depends on the values of the teacher")
def sharpness_student(
    teacher: Any, *, coupling: float = 1.0, corner: float = 0.0, states: int | None = None
) -> SharpnessStudent:
    r"""A balanced symmetric student with the first $2n$ samples of a balanced teacher of $n$ atoms, and not the next.

    To the Jacobi matrix $J$ of the teacher's measure one row and column is added,
    $A = \begin{pmatrix} J & \beta e_n \\ \beta e_n^\top & \alpha\end{pmatrix}$, and $B = C^\top = \sqrt M\,e_1$ with
    $M$ the mass. Then $h_j = w_j$ for $j < 2n$ and $h_{2n} - w_{2n} = M\beta^2\prod_{i<n}\beta_i^2 > 0$.

    Args:
        teacher: Atoms, distinct, and positive weights. See `spectral_measure`.
        coupling: $\beta$, not zero.
        corner: $\alpha$.
        states: Number of states, at least $n + 1$; $n + 1$ if left out.

    Example:
        >>> student = sharpness_student(([0.5], [2.0]), coupling=0.3)
        >>> response = impulse_response(student.system, 3).values.tolist()
        >>> round(response[2], 12), round(0.5 + float(student.gap), 12)
        (0.68, 0.68)
    """
    where = "sharpness_student"
    found = jacobi(checked_measure(where, teacher))
    order = len(found.diagonal)
    check_number(where, "coupling", coupling)
    check_number(where, "corner", corner)
    if coupling == 0:
        raise ValueError(
            f"{where}: coupling must not be zero, but is {coupling}; without it the student is the teacher."
        )
    size = _checked_size(where, states, order + 1, f"the number of atoms, {order}, plus 1")
    transition, first = np.zeros((size, size)), np.zeros((size, 1))
    transition[:order, :order] = found.matrix
    transition[order - 1, order] = transition[order, order - 1] = float(coupling)
    transition[order, order] = float(corner)
    first[0, 0] = np.sqrt(float(found.mass))
    system = System(*(xp.asarray(part, dtype=float) for part in (transition, first, first.T)))
    gap = float(found.mass) * float(coupling) ** 2 * np.prod(np.asarray(found.beside) ** 2)
    return SharpnessStudent(system, order, xp.asarray(gap, dtype=float))


def _solve_dual_vandermonde(points: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Weights whose moments at the points are given: Björck and Pereyra."""
    solution, last = target.astype(float), len(points) - 1
    for k in range(last):
        solution[k + 1 :] = solution[k + 1 :] - points[k] * solution[k:-1]
    for k in range(last - 1, -1, -1):
        solution[k + 1 :] = solution[k + 1 :] / (points[k + 1 :] - points[: last - k])
        solution[k:-1] = solution[k:-1] - solution[k + 1 :]
    return solution


def _diagonal_student(where: str, points: np.ndarray, weights: np.ndarray, size: int, gap: float) -> System:
    rounding = np.finfo(float).eps * float(np.abs(weights).sum())
    if not rounding <= RESOLVED * float(gap):
        raise HypothesisError(
            f"{where}: weights that double precision resolves",
            rounding,
            RESOLVED * float(gap),
            "They grow like 2 to the number of samples and faster for crowded nodes; take fewer samples, nodes that "
            "are farther apart, or a larger gap.",
        )
    transition, first, output = np.zeros((size, size)), np.zeros((size, 1)), np.zeros((1, size))
    index = np.arange(len(points))
    transition[index, index] = points
    first[index, 0] = np.sqrt(np.abs(weights))
    output[0, index] = np.sign(weights) * np.sqrt(np.abs(weights))
    return System(xp.asarray(transition, dtype=float), xp.asarray(first, dtype=float), xp.asarray(output, dtype=float))


def _spare_nodes(atoms: np.ndarray, count: int) -> np.ndarray:
    """Chebyshev points less those nearest to the atoms, one for each."""
    radius = max(1.0, float(np.abs(atoms).max())) if atoms.size else 1.0
    points = np.asarray(chebyshev_nodes(count, radius=radius))
    for atom in atoms:
        points = np.delete(points, np.argmin(np.abs(points - atom)))
    return points


def _checked_nodes(where: str, nodes: Any, count: int) -> np.ndarray:
    points = np.asarray(checked_layer(where, "nodes", nodes), dtype=float)
    check_shape(where, "nodes", points, (count,))
    check_finite(where, "nodes", points)
    if count:
        check_distinct(where, "nodes", points)
    return points


def _checked_size(where: str, states: int | None, least: int, meaning: str) -> int:
    if states is None:
        return least
    check_count(where, "states", states)
    if states < least:
        raise ValueError(f"{where}: states must be at least {least}, {meaning}, but is {states}.")
    return int(states)


def _check_gap(where: str, gap: float, tolerance: float) -> None:
    check_number(where, "tolerance", tolerance, at_least=0)
    check_number(where, "gap", gap, above=float(tolerance))
