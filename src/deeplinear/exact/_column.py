r"""Two layers and one observed column: how far the rows of the second layer end from a common direction."""

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from deeplinear.core import Array, HypothesisError, Matrix, Params, check_shape, entry, formula, is_concrete, xp
from deeplinear.exact._disconnected import real_array, two_layer_completion
from deeplinear.models import Problem

DIRECTION_TOLERANCE = 1e-8
r"""How far $\sum_i |a_{i,\perp}(\infty)|^2$ may be negative, relative to $\sum_i |a_i(0)|^2 + |b(0)|^2$."""

SMALLEST_TARGET, LARGEST_TARGET, LARGEST_ENTRY = 1e-300, 1e300, 1e150


class ColumnAlignment(eqx.Module):
    r"""What is known beforehand of the limit of two layers with one observed column.

    Attributes:
        bounds: $B_i$, one per observed row in the order of `rows`: the share of $|a_i(\infty)|^2$ orthogonal to the
            limit direction of $b$ is at most $B_i$. Says nothing where it exceeds 1.
        direction: The unit vector $u$, or `None` where none was given.
        parallel_column: $u\cdot b(\infty) > 0$, or `None`.
        parallel_rows: $u\cdot a_i(\infty)$ of each observed row, or `None`.
        perpendicular: $\sum_i |a_{i,\perp}(\infty)|^2$ over the observed rows, or `None`.
    """

    bounds: Float[Array, " rows"]
    direction: Float[Array, " hidden"] | None
    parallel_column: Float[Array, ""] | None
    parallel_rows: Float[Array, " rows"] | None
    perpendicular: Float[Array, ""] | None
    rows: tuple[int, ...] = eqx.field(static=True)
    column: int = eqx.field(static=True)

    @property
    @formula
    def proper_bounds(self) -> Float[Array, " rows"]:
        """$B_i/(1 + B_i)$: bounds as well, sharper, and never above 1."""
        above = self.bounds > 1
        small, large = xp.where(above, 1.0, self.bounds), xp.where(above, self.bounds, 1.0)
        return xp.where(above, 1 / (1 + 1 / large), small / (1 + small))

    def misalignment(self, params: Params) -> Float[Array, " rows"]:
        r"""Measured share $|a_{i,\perp}|^2 / |a_i|^2$ orthogonal to the observed column $b$, one per observed row.

        Args:
            params: Layers at the end of training; the bounds are about zero loss.

        Raises:
            HypothesisError: If the observed column of the first layer, or an observed row of the second, is zero.
        """
        where = "ColumnAlignment.misalignment"
        if len(params) != 2:
            raise ValueError(f"{where}: params must hold two layers, but holds {len(params)}.")
        first, second = (real_array(where, f"params[{position}]", layer) for position, layer in enumerate(params))
        rows, columns = max(self.rows) + 1, self.column + 1
        if not (first.ndim == second.ndim == 2 and first.shape[0] == second.shape[1]) or (
            first.shape[1] < columns or second.shape[0] < rows
        ):
            raise ValueError(
                f"{where}: params must be two layers that chain, with at least {columns} columns in the first and "
                f"{rows} rows in the second, but have shapes {first.shape} and {second.shape}."
            )
        found, shortest = _misalignment(first, second, np.asarray(self.rows), self.column)
        if is_concrete(shortest) and float(shortest) == 0:
            raise HypothesisError(
                "observed column and rows of the layers are not zero", 0, 0, "A zero vector has no direction."
            )
        return found


@formula(static_argnums=3)
def _misalignment(
    first: Matrix, second: Matrix, rows: Int[Array, " rows"], column: int
) -> tuple[Float[Array, " rows"], Float[Array, ""]]:
    """Shares of the rows orthogonal to the column, and the length of the shortest of them all."""
    b, a = first[:, column], second[rows, :]
    lengths, length = xp.linalg.norm(a, axis=-1), xp.linalg.norm(b)
    u = b / length
    rest = a - (a @ u)[:, None] * u
    rest = rest - (rest @ u)[:, None] * u  # once more: what rounding left of the parallel part
    return (xp.linalg.norm(rest, axis=-1) / lengths) ** 2, xp.minimum(xp.min(lengths), length)


@entry
def column_alignment(
    problem: Problem, params: Params, direction: Float[Array, " hidden"] | None = None
) -> ColumnAlignment:
    r"""Alignment of the rows of $A = W_2$ that gradient flow from `params` reaches when it fits one observed column.

    Let $b$ be the observed column of $B = W_1$, $u$ its limit direction and $w_i \ne 0$ the targets. At zero loss

    $$\frac{|a_{i,\perp}|^2}{|a_i|^2} \le B_i
    = \frac{\|A(0)\|_F^2}{2 w_i^2} \Big(\sqrt{|b(0)|^4 + 4\textstyle\sum_k w_k^2} + |b(0)|^2\Big)$$

    with $\|A(0)\|_F$ over the observed rows, and with $B_i/(1+B_i)$ too. Given $u$, the conserved
    $\sum_i a_i a_i^\top - b b^\top$ fixes the parallel parts: $c = \sum_i (u\cdot a_i(0))^2 - (u\cdot b(0))^2$ gives
    $(u\cdot b)^2 = \tfrac12(\sqrt{c^2 + 4\sum_k w_k^2} - c)$ and $u\cdot a_i = w_i / (u\cdot b)$.

    Args:
        problem: Depth 2, a completion loss that observes one column (any rows of it), no penalty.
        params: Layers at time 0.
        direction: Limit direction $u$ of the observed column, of any length and either sign, if it is known. One for
            which the orthogonal parts could not be real is refused.

    Returns:
        Bounds, and the parallel parts where a direction was given.

    Raises:
        HypothesisError: If the depth, loss, penalty or pattern is not of this kind, if a target is zero, or if all
            observed rows and the observed column start at zero, where the flow rests.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), Completion(jnp.array([[3.0]]), jnp.ones((1, 1))))
        >>> start = (jnp.zeros((1, 1)), jnp.ones((1, 1)))
        >>> column_alignment(problem, start).bounds.round(6)
        array([0.333333])
    """
    where = "column_alignment"
    parts = two_layer_completion(where, problem, params)
    columns = np.unique(parts.columns)
    if len(columns) > 1:
        advice = f"{len(columns)} columns hold observations."
        raise HypothesisError("one observed column", len(columns) - 1, 0, advice)
    targets, column = xp.asarray(parts.values, dtype=float), int(columns[0])
    zeros = int(np.sum(parts.values == 0))
    if zeros:
        raise HypothesisError("non-zero targets", zeros, 0, f"{zeros} of the targets are 0; leave those entries out.")
    sizes = np.abs(parts.values)
    if sizes.min() < SMALLEST_TARGET or sizes.max() > LARGEST_TARGET:
        raise ValueError(
            f"{where}: the targets of problem must lie between {SMALLEST_TARGET:g} and {LARGEST_TARGET:g} in size, "
            f"but reach from {sizes.min():g} to {sizes.max():g}."
        )
    a, b, largest, total = _observed(parts.a, parts.b, parts.rows, column)
    if is_concrete(largest) and float(largest) > LARGEST_ENTRY:
        raise ValueError(f"{where}: params must have entries of at most {LARGEST_ENTRY:g}, but reach {largest:g}.")
    if is_concrete(a) and is_concrete(b) and not (np.any(np.asarray(a)) or np.any(np.asarray(b))):
        raise HypothesisError("a start that moves", 0, 0, "The observed rows and column are all zero: the flow rests.")
    rows = tuple(map(int, parts.rows))
    if direction is None:
        return ColumnAlignment(_bounds(a, b, targets), None, None, None, None, rows, column)
    check_shape(where, "direction", direction, b.shape)
    direction = real_array(where, "direction", direction)
    if is_concrete(direction) and not np.any(np.asarray(direction)):
        raise ValueError(f"{where}: direction must not be zero, but is.")
    unit, parallel_column, parallel_rows, perpendicular, positive = _parallel(a, b, targets, direction)
    if is_concrete(perpendicular):
        lacking = -float(perpendicular) / float(total)
        lacking = lacking / float(largest) / float(largest)
        if lacking > DIRECTION_TOLERANCE:
            raise HypothesisError(
                "direction is a limit direction of the observed column",
                lacking,
                DIRECTION_TOLERANCE,
                "The rows would have to end with a negative squared length orthogonal to it; take the direction of "
                "the observed column at the end of training.",
            )
    return ColumnAlignment(_bounds(a, b, targets), unit, parallel_column, parallel_rows, positive, rows, column)


@formula(static_argnums=3)
def _observed(
    a: Matrix, b: Matrix, rows: Int[Array, " rows"], column: int
) -> tuple[Float[Array, "rows hidden"], Float[Array, " hidden"], Float[Array, ""], Float[Array, ""]]:
    """Observed rows and column, their largest entry, and the sum of their squares relative to it."""
    rows_of_a, column_of_b = a[rows, :], b[:, column]
    largest = xp.maximum(xp.max(xp.abs(rows_of_a)), xp.max(xp.abs(column_of_b)))
    total = xp.sum((rows_of_a / largest) ** 2) + xp.sum((column_of_b / largest) ** 2)
    return rows_of_a, column_of_b, largest, total


@formula
def _bounds(
    a: Float[Array, "rows hidden"], b: Float[Array, " hidden"], targets: Float[Array, " rows"]
) -> Float[Array, " rows"]:
    """$B_i$ of each observed row."""
    square, size, sizes = xp.sum(b**2), _length(a), xp.abs(targets)
    root = xp.hypot(square, 2 * _length(targets))
    # One factor after the other: squares of the targets may leave the range of numbers.
    bounds = size * ((root + square) / sizes / 2) * (size / sizes)
    return xp.where(size > 0, bounds, 0.0)


def _length(array: Float[Array, "..."]) -> Float[Array, ""]:
    """Norm of all entries, without underflow or overflow of their squares."""
    largest = xp.max(xp.abs(array))
    scale = xp.where(largest > 0, largest, 1.0)
    return scale * xp.sqrt(xp.sum((array / scale) ** 2))


@formula
def _parallel(
    a: Float[Array, "rows hidden"],
    b: Float[Array, " hidden"],
    targets: Float[Array, " rows"],
    direction: Float[Array, " hidden"],
) -> tuple[Float[Array, " hidden"], Float[Array, ""], Float[Array, " rows"], Float[Array, ""], Float[Array, ""]]:
    r"""$u$, $u\cdot b$, $u\cdot a_i$ and the total orthogonal part, all in the limit; and that part, or 0."""
    u = direction / xp.max(xp.abs(direction))
    u = u / xp.linalg.norm(u)
    along, column_along = a @ u, b @ u
    gap, strength = xp.sum(along**2) - column_along**2, 2 * _length(targets)
    root = xp.hypot(gap, strength) + xp.abs(gap)
    parallel = xp.sqrt(xp.where(gap > 0, strength * (strength / root), root) / 2)
    rest, column_rest = a - along[:, None] * u, b - column_along * u
    perpendicular = xp.sum(rest**2) - xp.sum(column_rest**2)
    return u, parallel, targets / parallel, perpendicular, xp.maximum(perpendicular, 0.0)
