r"""Two layers and observations that share no row and no column: every observed pair moves alone, in closed form.

With $a$ a row of $A = W_2$ and $b$ a column of $B = W_1$, one observed entry $w_{ij} = a \cdot b$ with target $w$ obeys
$\dot a = -(a\cdot b - w)\,b$, $\dot b = -(a\cdot b - w)\,a$. The sum $u = a + b$ and the difference $v = a - b$ keep
their directions, and $|u|\,|v|$ is conserved.
"""

from typing import NamedTuple

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    Params,
    as_array,
    check_finite,
    check_x64,
    entry,
    formula,
    is_concrete,
    put,
    xp,
)
from deeplinear.models import Completion, DeepLinear, EntryCompletion, Problem, observed_entries


class TwoLayerCompletion(NamedTuple):
    """The two factors and the observed entries of a completion problem of depth 2."""

    a: Matrix
    b: Matrix
    rows: Int[np.ndarray, " entries"]
    columns: Int[np.ndarray, " entries"]
    values: Float[np.ndarray, " entries"]


def two_layer_completion(where: str, problem: Problem, params: tuple[Array | np.ndarray, ...]) -> TwoLayerCompletion:
    """Factors $A$, $B$ in 64 bits and observations, or a refusal that names the hypothesis which fails."""
    check_x64(where)
    model, loss = problem.model, problem.loss
    if not isinstance(model, DeepLinear) or model.depth != 2:
        depth = len(model.shapes)
        advice = f"{where} is about the product of two layers; the model is {type(model).__name__} with {depth}."
        raise HypothesisError("depth 2", abs(depth - 2), 0, advice)
    if not isinstance(loss, Completion | EntryCompletion):
        advice = f"{where} is about observed entries; the loss is {type(loss).__name__}, take Completion."
        raise HypothesisError("completion loss", 1, 0, advice)
    if is_concrete(problem.l2) and float(problem.l2) != 0:
        raise HypothesisError("no penalty (l2 = 0)", float(problem.l2), 0, f"{where} is about the flow without it.")
    layers = tuple(real_array(where, f"params[{position}]", layer) for position, layer in enumerate(params))
    problem.check(layers, where)
    first, second = layers
    rows, columns, values = observed_entries(loss)
    return TwoLayerCompletion(second, first, rows, columns, values)


def real_array(where: str, name: str, array: Array | np.ndarray) -> Float[Array, "..."]:
    """Numbers as a 64-bit array; those that are not real, or visibly not finite, are refused."""
    if np.dtype(array.dtype).kind not in "iuf":
        raise TypeError(f"{where}: {name} must hold real numbers, but holds {array.dtype}.")
    check_finite(where, name, array)
    return as_array(array, float)


def _pairs(where: str, problem: Problem, params: tuple[Array | np.ndarray, ...]) -> TwoLayerCompletion:
    """A problem whose observations form a partial permutation, or a refusal."""
    parts = two_layer_completion(where, problem, params)
    crowd = max(int(np.bincount(index).max()) for index in (parts.rows, parts.columns))
    if crowd > 1:
        advice = f"A row or column holds {crowd} observations: the pairs do not move alone. Take dynamics.simulate."
        raise HypothesisError("at most one observation in each row and column", crowd - 1, 0, advice)
    return parts


def _length(vectors: Float[Array, "pairs hidden"]) -> Float[Array, " pairs"]:
    """Norm of each row, without underflow or overflow of the squares."""
    largest = xp.max(xp.abs(vectors), axis=-1)
    scale = xp.where(largest > 0, largest, 1.0)
    return scale * xp.sqrt(xp.sum((vectors / scale[:, None]) ** 2, axis=-1))


class DisconnectedSolution(eqx.Module):
    r"""Gradient flow of two layers whose observations share no row and no column.

    For each observed pair let $x = |a+b|/\sqrt2$ and $y = |a-b|/\sqrt2$ at the start, $S = \sqrt{w^2 + x^2y^2}$,
    $e = e^{-2St}$ and $k = (1-e)/(2S)$, which is $t$ where $S = 0$. Then $a + b$ is multiplied by $U^{-1/2}$ and
    $a - b$ by $U^{1/2}$, where

    $$U(t) = \frac{e + k\,(S - w + x^2)}{e + k\,(S + w + y^2)},$$

    sums of non-negative terms once the smaller of $S \pm w$ is taken as $x^2y^2$ over the larger. Everything is
    computed with lengths, not with their squares, so that starts as small as $10^{-300}$ work. Errors are relative to
    $|a| + |b|$. Rows of $A$ and columns of $B$ without an observation keep their initial value.

    Attributes:
        start: Layers at time 0.
        values: Target of each observed pair.
        sum_length: $x$ of each pair.
        difference_length: $y$ of each pair.
        rate: $S$ of each pair: the loss decays like $e^{-4St}$ in the end.
    """

    start: Params
    values: Float[Array, " pairs"]
    sum_length: Float[Array, " pairs"]
    difference_length: Float[Array, " pairs"]
    rate: Float[Array, " pairs"]
    rows: Int[Array, " pairs"]
    columns: Int[Array, " pairs"]

    def _roots(self) -> tuple[Float[Array, " pairs"], Float[Array, " pairs"]]:
        r"""$\sqrt{S + w}$ and $\sqrt{S - w}$: the lengths to which $x$ and $y$ tend."""
        x, y, root_w = self.sum_length, self.difference_length, xp.sqrt(xp.abs(self.values))
        mean = xp.sqrt(x) * xp.sqrt(y)
        scale = xp.maximum(root_w, mean)
        scale = xp.where(scale > 0, scale, 1.0)
        share = (root_w / scale) ** 2
        large = scale * xp.sqrt(share + xp.hypot(share, (mean / scale) ** 2))
        short, long = xp.minimum(x, y), xp.maximum(x, y)
        small = short * (long / xp.where(large > 0, large, 1.0))
        return xp.where(self.values >= 0, large, small), xp.where(self.values >= 0, small, large)

    def _place(
        self, plus: Float[Array, "*times pairs hidden"], minus: Float[Array, "*times pairs hidden"]
    ) -> tuple[Float[Array, "*times _ _"], ...]:
        """Layers with the observed pairs at $a + b$ = `plus`, $a - b$ = `minus`."""
        first, second = (xp.broadcast_to(w, (*plus.shape[:-2], *w.shape)) for w in self.start)
        second = put(second, (..., self.rows, slice(None)), (plus + minus) / 2)
        first = put(first, (..., slice(None), self.columns), xp.swapaxes((plus - minus) / 2, -1, -2))
        return first, second

    def params(self, times: ArrayLike) -> tuple[Float[Array, "*times _ _"], ...]:
        """Layers at one time, or stacked along the leading axes of an array of times.

        Args:
            times: Finite and not negative; for infinite time there is `limit`.

        Returns:
            Layers, first-acting first, with the axes of `times` in front.
        """
        t = as_array(times, float)
        check_finite("DisconnectedSolution.params", "times", t)
        if is_concrete(t) and np.any(np.asarray(t) < 0):
            raise ValueError(f"DisconnectedSolution.params: times must be at least 0, but reach {np.min(t):g}.")
        return _layers_at(self, t)

    def product(self, times: ArrayLike) -> Float[Array, "*times _ _"]:
        """End-to-end matrix $AB$ at one time, or stacked along the leading axes of an array of times."""
        first, second = self.params(times)
        return second @ first

    def limit(self) -> Params:
        r"""Layers at infinite time, where $|a+b|^2/2 = S + w$ and $|a-b|^2/2 = S - w$.

        Raises:
            HypothesisError: If a pair ends in the saddle $a = b = 0$: a positive target with $a = -b$ at the start, or
                a negative one with $a = b$. Under a transformation, where this cannot be seen, the saddle is returned.
        """
        if is_concrete(self.values) and is_concrete(self.sum_length):
            values = np.asarray(self.values)
            lost = np.where(values > 0, np.asarray(self.sum_length), np.asarray(self.difference_length))
            stuck = np.flatnonzero((values != 0) & (lost == 0))
        else:
            stuck = np.array([], dtype=int)
        if len(stuck):
            pair = int(stuck[0])
            raise HypothesisError(
                "the flow fits every observation",
                abs(float(self.values[pair])),
                0,
                f"The pair of entry ({int(self.rows[pair])}, {int(self.columns[pair])}) starts at a = "
                f"{'-' if self.values[pair] > 0 else ''}b and ends in the saddle a = b = 0, which misses its target; "
                "move the start, or ask for finite times.",
            )
        return _layers_in_the_limit(self)

    @formula
    def integrated_residual(self) -> Float[Array, " pairs"]:
        r"""$\bar r = \int_0^\infty (w_{ij}(t) - w)\,dt$ of each pair: $a + b$ shrinks by $e^{-\bar r}$ in all.

        Infinite for a pair that ends in a saddle, and where $w = 0$ and one of $a \pm b$ vanishes (algebraic decay).
        """
        root_plus, root_minus = self._roots()
        x, y = xp.log(self.sum_length), xp.log(self.difference_length)
        fitted = xp.where(self.values > 0, x - xp.log(root_plus), xp.log(root_minus) - y)
        return xp.where(self.values == 0, (x - y) / 2, fitted)


def _sum_and_difference(
    params: Params, rows: Int[Array, " pairs"], columns: Int[Array, " pairs"]
) -> tuple[Float[Array, "pairs hidden"], Float[Array, "pairs hidden"]]:
    """$a + b$ and $a - b$ of each observed pair."""
    a, b = params[1][rows, :], params[0][:, columns].T
    return a + b, a - b


@formula
def _solution(
    params: Params, rows: Int[Array, " pairs"], columns: Int[Array, " pairs"], values: Float[Array, " pairs"]
) -> DisconnectedSolution:
    """The conserved numbers of each pair."""
    x, y = (_length(part / xp.sqrt(2.0)) for part in _sum_and_difference(params, rows, columns))
    return DisconnectedSolution(params, values, x, y, xp.hypot(values, x * y), rows, columns)


@formula
def _layers_at(solution: DisconnectedSolution, times: Float[Array, "*times"]) -> tuple[Float[Array, "*times _ _"], ...]:
    """`DisconnectedSolution.params` of checked times."""
    x, y, t = solution.sum_length, solution.difference_length, times[..., None]
    z = 2 * solution.rate * t
    share = xp.where(z > 0, -xp.expm1(-z) / xp.where(z > 0, z, 1.0), 1.0)
    root_k, root_e = xp.sqrt(t) * xp.sqrt(share), xp.exp(-z / 2)
    root_plus, root_minus = solution._roots()
    above = xp.hypot(root_e, root_k * xp.hypot(root_minus, x))
    below = xp.hypot(root_e, root_k * xp.hypot(root_plus, y))
    # A part that starts at zero stays zero, whatever its factor has grown to.
    grow = xp.where(x > 0, below / xp.where(above > 0, above, 1.0), 0.0)
    shrink = xp.where(y > 0, above / xp.where(below > 0, below, 1.0), 0.0)
    plus, minus = _sum_and_difference(solution.start, solution.rows, solution.columns)
    moved = solution._place(grow[..., None] * plus, shrink[..., None] * minus)
    return tuple(xp.where(t[..., None] == 0, w, v) for w, v in zip(solution.start, moved, strict=True))


@formula
def _layers_in_the_limit(solution: DisconnectedSolution) -> Params:
    """`DisconnectedSolution.limit` where no pair is stuck."""
    parts = _sum_and_difference(solution.start, solution.rows, solution.columns)
    lengths = (solution.sum_length, solution.difference_length)
    units = (part / xp.where(length > 0, length, 1.0)[:, None] for part, length in zip(parts, lengths, strict=True))
    return solution._place(*(root[:, None] * unit for root, unit in zip(solution._roots(), units, strict=True)))


@entry
def disconnected(problem: Problem, params: Params) -> DisconnectedSolution:
    r"""Gradient flow of two layers with at most one observation in each row and column, in closed form.

    Every observed pair of a row of $A = W_2$ and a column of $B = W_1$ moves alone, whatever the shape of the product
    and the hidden width; see `DisconnectedSolution`.

    Args:
        problem: Depth 2, `Completion` or `EntryCompletion`, no penalty.
        params: Layers at time 0.

    Returns:
        The solution, as a function of time and in its limit.

    Raises:
        HypothesisError: If the depth, the loss, the penalty or the pattern is not of this kind.

    Example:
        >>> problem = Problem(DeepLinear((2, 2, 2)), Completion(jnp.diag(jnp.array([4.0, 9.0])), jnp.eye(2)))
        >>> solution = disconnected(problem, (1e-3 * jnp.eye(2), 1e-3 * jnp.eye(2)))
        >>> solution.limit()[0]
        array([[2., 0.],
               [0., 3.]])
    """
    parts = _pairs("disconnected", problem, params)
    start = (parts.b, parts.a)
    solution = _solution(start, parts.rows, parts.columns, parts.values)
    if is_concrete(solution.rate) and not np.all(np.isfinite(np.asarray(solution.rate))):
        raise ValueError("disconnected: params must be small enough for |a|^2 + |b|^2 to be finite, but overflow.")
    return solution


@entry
def disconnected_hyperbolic(problem: Problem, params: Params) -> Params:
    r"""Limit of the flow of `disconnected`, in the hyperbolic form of the literature, for comparison.

    With $P = a\cdot b$ and $Q = |a|^2 + |b|^2$ at the start,
    $\bar r = \tfrac12\ln\big((P + Q/2)\,/\,(w + \sqrt{w^2 - P^2 + Q^2/4})\big)$ and
    $a_\infty = a\cosh\bar r - b\sinh\bar r$, $b_\infty = b\cosh\bar r - a\sinh\bar r$. Here
    $\bar r = \int_0^\infty (w_{ij} - w)\,dt$, model minus target. The form loses all digits where $w < 0$ and
    $P^2 \approx Q^2/4$, where $a \approx -b$, and for starts below $10^{-150}$, whose squares underflow;
    `disconnected` does not.

    Args:
        problem: As for `disconnected`.
        params: Layers at time 0.

    Returns:
        Layers at infinite time.

    Raises:
        HypothesisError: As `disconnected`, and where the angle $\bar r$ is not finite in floating-point numbers.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), Completion(jnp.array([[4.0]]), jnp.ones((1, 1))))
        >>> round(float(disconnected_hyperbolic(problem, (jnp.ones((1, 1)), jnp.ones((1, 1))))[0][0, 0]), 12)
        2.0
    """
    parts = _pairs("disconnected_hyperbolic", problem, params)
    limit, angle = _hyperbolic((parts.b, parts.a), parts.rows, parts.columns, parts.values)
    if is_concrete(angle) and not np.all(np.isfinite(np.asarray(angle))):
        pair = int(np.flatnonzero(~np.isfinite(np.asarray(angle)))[0])
        raise HypothesisError(
            "finite hyperbolic angle",
            float(angle[pair]),
            0,
            f"Entry ({parts.rows[pair]}, {parts.columns[pair]}) ends in a saddle or its start is too small or too near "
            "a = +-b for this form; take disconnected.",
        )
    return limit


@formula
def _hyperbolic(
    params: Params, rows: Int[Array, " pairs"], columns: Int[Array, " pairs"], values: Float[Array, " pairs"]
) -> tuple[Params, Float[Array, " pairs"]]:
    """Limit and angle of each pair in the hyperbolic form."""
    first, second = params
    a, b = second[rows, :], first[:, columns].T
    dot, half = xp.sum(a * b, axis=-1), xp.sum(a**2 + b**2, axis=-1) / 2
    angle = 0.5 * xp.log((dot + half) / (values + xp.sqrt(values**2 - dot**2 + half**2)))
    cosh, sinh = xp.cosh(angle)[:, None], xp.sinh(angle)[:, None]
    turned = put(first, (slice(None), columns), (b * cosh - a * sinh).T)
    return (turned, put(second, rows, a * cosh - b * sinh)), angle
