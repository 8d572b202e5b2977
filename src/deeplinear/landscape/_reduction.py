r"""The standard form of a least-squares task: a diagonal target, whitened inputs.

A network that learns $\tfrac12\|Y - \bar W_{L:1} X\|_F^2$ has the same landscape as one that learns
$\tfrac12\|\Sigma - W_{L:1}\|_F^2$ with $\Sigma$ diagonal, up to a constant: with $X = U_X \Lambda_X V_X^\top$ and
$Y V_X = U_Y \Sigma V_Y^\top$ put $W_1 = \bar W_1 T$, $T = U_X \Lambda_X V_Y$, and $W_L = U_Y^\top \bar W_L$. Statements
on critical points are made there. The flow is another one unless the inputs are white ($XX^\top = I$): in the
coordinates of the reduced network the flow of the raw weights multiplies the speed of layer 1 by
$V_Y^\top \Lambda_X^2 V_Y = T^\top T$.
"""

import itertools
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    Params,
    as_array,
    check_finite,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    formula,
    near_name,
    put,
    spectrum,
    xp,
)
from deeplinear.landscape._arguments import checked_network
from deeplinear.models import (
    DeepLinear,
    Problem,
    Regression,
    SampleRegression,
    SquaredDistance,
    checked_problem,
)

RANK_TOLERANCE = 1e-12
"""Smallest singular value of the inputs, relative to the largest, that counts as one."""

COVARIANCE_TOLERANCE = 1e-7
"""The same where only the covariance of the inputs is known: its eigenvalues, the squares, have half the digits."""

WEAK = 1e-9
"""Singular values of the task below this share of the largest are told of."""

LARGEST_ENUMERATION = 20
"""Most singular values whose partial sums are enumerated: a million of them."""


class Reduction(eqx.Module):
    r"""Coordinates in which the target is diagonal and the inputs are white.

    Attributes:
        sigma: Singular values $\sigma_1 \ge \sigma_2 \ge \dots$ of the task.
        inner: $T$, (in, in), so that $W_1 = \bar W_1 T$.
        inner_inverse: $T^{-1}$.
        outer: $U_Y$, (out, out), so that $W_L = U_Y^\top \bar W_L$.
        constant: Part of the loss that no linear map can fit.
        notes: What one should know of this task, in words.
    """

    sigma: Float[Array, " modes"]
    inner: Float[Array, "inp inp"]
    inner_inverse: Float[Array, "inp inp"]
    outer: Float[Array, "out out"]
    constant: Float[Array, ""]
    notes: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def target(self) -> Matrix:
        r"""$\Sigma$: rectangular, the singular values on its diagonal."""
        return diagonal_target(self.sigma, self.outer.shape[0], self.inner.shape[0])

    @property
    def white(self) -> Float[Array, ""]:
        r"""$\|T^\top T - I\|_2$: zero where the flow of the raw weights is that of the reduced ones."""
        return _distance_from_white(self.inner)

    @property
    def solution(self) -> Matrix:
        """The least-squares map in the coordinates of the data."""
        return _solution(self)

    def problem(self, widths: tuple[int, ...]) -> Problem:
        r"""The reduced problem $\tfrac12\|\Sigma - W_{L:1}\|_F^2$ of a network."""
        return Problem(DeepLinear(widths), SquaredDistance(self.target))

    def reduce(self, params: Params) -> Params:
        """Layers, or a direction of them, in reduced coordinates."""
        return _between(params, self.inner, self.outer.T)

    def lift(self, params: Params) -> Params:
        """Layers, or a direction of them, back in the coordinates of the data."""
        return _between(params, self.inner_inverse, self.outer)

    def velocity(self, params: Params, metric: str = "reduced") -> Params:
        r"""Speed $\dot W$ of reduced layers under one of the two flows.

        `"reduced"` is the gradient flow of $\tfrac12\|\Sigma - W_{L:1}\|_F^2$ in the reduced layers. `"raw"` is the
        gradient flow of $\tfrac12\|Y - \bar W_{L:1}X\|_F^2$ in the raw layers, seen in reduced coordinates. They are
        equal if and only if the inputs are white, $XX^\top = I$.
        """
        if metric not in ("reduced", "raw"):
            raise ValueError(
                f"Reduction.velocity: metric {metric!r} is unknown. {near_name(metric, ('reduced', 'raw'))}"
            )
        return _velocity(self, params, metric)


@formula
def _distance_from_white(inner: Matrix) -> Float[Array, ""]:
    gram = inner.T @ inner
    return spectrum(gram - xp.eye(gram.shape[0]))[0]


@formula
def _solution(reduction: Reduction) -> Matrix:
    return reduction.outer @ reduction.target @ reduction.inner_inverse


@formula
def _between(params: Params, inner: Matrix, outer: Matrix) -> Params:
    """Layers with the first multiplied from the right and the last from the left."""
    first = params[0] @ inner
    if len(params) == 1:
        return (outer @ first,)
    return (first, *params[1:-1], outer @ params[-1])


@formula(static_argnames="metric")
def _velocity(reduction: Reduction, params: Params, metric: str) -> Params:
    widths = (params[0].shape[1], *(layer.shape[0] for layer in params))
    first, *rest = (-layer for layer in reduction.problem(widths).gradient(params))
    if metric == "raw":
        first = first @ (reduction.inner.T @ reduction.inner)
    return (first, *rest)


@entry
def diagonal_target(sigma: Float[Array, " modes"], out: int, inp: int) -> Matrix:
    r"""$\Sigma$ of shape (out, in) with given diagonal.

    Example:
        >>> diagonal_target(jnp.array([2.0]), 1, 2)
        array([[2., 0.]])
    """
    check_x64("diagonal_target")
    return _diagonal(as_array(sigma, float), int(out), int(inp))


@formula(static_argnames=("out", "inp"))
def _diagonal(values: Float[Array, " modes"], out: int, inp: int) -> Matrix:
    place = xp.arange(values.shape[0])
    return put(xp.zeros((out, inp), values.dtype), (place, place), values)


@entry(instead="reduce the data outside of the transformation")
def reduce_data(inputs: Any, outputs: Any) -> Reduction:
    r"""Standard form of $\tfrac12\|Y - \bar W_{L:1}X\|_F^2$ (a sum over samples).

    Args:
        inputs: $X$, (in, samples), of full row rank; at least as many samples as inputs.
        outputs: $Y$, (out, samples), at most as many outputs as inputs.

    Returns:
        The reduction; weak or tied singular values are told of in its notes.

    Raises:
        HypothesisError: The inputs do not have full row rank; the residual is the largest of their singular values
            over the smallest.

    Example:
        >>> reduce_data(jnp.eye(2), jnp.array([[0.0, 3.0]])).sigma
        array([3.])
    """
    where = "reduce_data"
    check_x64(where)
    x, y = (
        np.asarray(checked_layer(where, name, value), dtype=float)
        for name, value in (("inputs", inputs), ("outputs", outputs))
    )
    check_shape(where, "inputs", x, (None, None))
    check_shape(where, "outputs", y, (None, x.shape[1]))
    check_finite(where, "inputs", x)
    check_finite(where, "outputs", y)
    if x.shape[1] < x.shape[0]:
        raise ValueError(f"{where}: inputs must have at least as many samples as inputs, but has shape {x.shape}.")
    if y.shape[0] > x.shape[0]:
        raise ValueError(
            f"{where}: outputs must have at most as many rows as inputs, but there are {y.shape[0]} outputs and "
            f"{x.shape[0]} inputs; the transposed network has the same landscape."
        )
    return _of_samples(x, y)


@entry(instead="reduce the problem outside of the transformation")
def reduction_of(problem: Problem) -> Reduction:
    """Standard form of the task of a problem.

    Args:
        problem: A deep linear network that learns a whole matrix (`SquaredDistance`) or from whole samples
            (`Regression`, `SampleRegression`), without a penalty.

    Returns:
        The reduction.

    Raises:
        HypothesisError: The theory of critical points does not speak of this problem.

    Example:
        >>> problem = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.diag(jnp.array([1.0, 2.0]))))
        >>> reduction_of(problem).sigma
        array([2., 1.])
    """
    where = "reduction_of"
    check_x64(where)
    checked_problem(where, "problem", problem)
    loss = problem.loss
    there = "Gradients and Hessians are there for every problem."
    if not isinstance(problem.model, DeepLinear):
        raise HypothesisError(
            "a chain of layers whose weights are all learnt",
            1.0,
            0.0,
            f"The critical points of a {type(problem.model).__name__} model are not known: weights that are fixed or "
            f"tied have no gradient of their own to vanish. {there}",
        )
    if not isinstance(loss, SquaredDistance | Regression | SampleRegression):
        raise HypothesisError(
            "a square loss of the whole product",
            1.0,
            0.0,
            f"The critical points of {type(loss).__name__} are not known: the theory needs the square distance of "
            f"every entry of the product from its target. {there}",
        )
    if float(problem.l2) > 0:
        raise HypothesisError("no penalty on the layers", float(problem.l2), 0.0, "Take l2=0.")
    if isinstance(loss, SquaredDistance):
        inp = loss.target.shape[1]
        return _reduction(np.eye(inp), np.ones(inp), np.asarray(loss.target), 0.0)
    if isinstance(loss, SampleRegression):
        samples = np.sqrt(loss.terms)
        return _of_samples(np.asarray(loss.inputs) / samples, np.asarray(loss.outputs) / samples)
    values, vectors = np.linalg.eigh(np.asarray(loss.sxx))
    lengths = np.sqrt(np.maximum(values[::-1], 0.0))
    left = vectors[:, ::-1]
    seen = np.asarray(loss.solution) @ (left * lengths)
    return _reduction(left, lengths, seen, 0.0 if loss.reduced else float(loss.offset), COVARIANCE_TOLERANCE)


def _of_samples(x: np.ndarray, y: np.ndarray) -> Reduction:
    left, lengths, right = np.linalg.svd(x, full_matrices=False)
    seen = y @ right.T
    return _reduction(left, lengths, seen, 0.5 * float(np.sum((y - seen @ right) ** 2)))


def _reduction(
    left: np.ndarray, lengths: np.ndarray, seen: np.ndarray, constant: float, tolerance: float = RANK_TOLERANCE
) -> Reduction:
    r"""From $U_X$ = `left`, the diagonal of $\Lambda_X$ = `lengths` and $Y V_X$ = `seen`."""
    share = lengths[-1] / lengths[0] if lengths[0] > 0 and len(lengths) == left.shape[0] else 0.0
    if share <= tolerance:
        raise HypothesisError(
            "inputs of full row rank",
            1 / share if share > 0 else np.inf,
            1 / tolerance,
            f"The smallest singular value of the inputs is {share:.1e} of the largest: leave out the directions in "
            "which the inputs do not vary.",
        )
    outer, sigma, right_t = np.linalg.svd(seen)
    notes = []
    largest = sigma.max(initial=0.0)
    weak = int(np.sum(sigma <= WEAK * largest))
    if weak:
        notes.append(
            f"{weak} of {len(sigma)} singular values of the task vanish (below {WEAK:g} of the largest): "
            "critical points are not told apart by their products there."
        )
    if np.any(-np.diff(sigma[: len(sigma) - weak]) <= WEAK * largest):
        notes.append("Singular values of the task coincide: the directions of such a group cannot be told apart.")
    return Reduction(
        sigma=as_array(sigma, float),
        inner=xp.asarray((left * lengths) @ right_t.T, dtype=float),
        inner_inverse=xp.asarray(right_t @ (left / lengths).T, dtype=float),
        outer=xp.asarray(outer, dtype=float),
        constant=xp.asarray(constant, dtype=float),
        notes=tuple(notes),
    )


class Assumptions(eqx.Module):
    r"""Which of the usual assumptions a task and a network satisfy.

    Attributes:
        filling: No layer is narrower than the output: products of full rank can be made.
        positive: All singular values of the task are positive.
        distinct: They differ from each other.
        partial_sums_distinct: So do all sums of their squares, so that every critical value belongs to one signature;
            `None` where there are too many to enumerate.
    """

    filling: bool
    positive: bool
    distinct: bool
    partial_sums_distinct: bool | None

    @property
    def all(self) -> bool | None:
        """Whether all hold; `None` where that hangs on sums that were not enumerated."""
        if not (self.filling and self.positive and self.distinct):
            return False
        return self.partial_sums_distinct


@entry(instead="call it outside of the transformation")
def check_assumptions(sigma: Any, widths: tuple[int, ...]) -> Assumptions:
    r"""Which standing assumptions on the task and the widths hold.

    Sums are compared relative to the largest, to $10^{-12}$, where there are at most 20 singular values; beyond, that
    answer is `None`, and so is `all` unless another assumption fails.

    Args:
        sigma: Singular values of the task.
        widths: $(d_0, \dots, d_L)$.

    Returns:
        The four answers.

    Example:
        >>> check_assumptions([5.0, 4.0, 3.0], (3, 3, 3)).partial_sums_distinct  # 25 = 16 + 9
        False
    """
    where = "check_assumptions"
    network = checked_network(where, widths)
    values = np.asarray(checked_layer(where, "sigma", sigma), dtype=float)
    out = min(network.widths[0], network.widths[-1])
    check_shape(where, "sigma", values, (out,))
    check_finite(where, "sigma", values)
    ordered = np.sort(np.abs(values))
    tolerance = RANK_TOLERANCE * max(ordered[-1], np.finfo(float).tiny)
    sums = None
    if out <= LARGEST_ENUMERATION:
        totals = np.zeros(1)
        for square in ordered**2:
            totals = np.concatenate([totals, totals + square])
        totals = np.sort(totals)
        sums = bool(np.all(np.diff(totals) > RANK_TOLERANCE * totals[-1])) if totals[-1] > 0 else False
    return Assumptions(
        filling=min(network.widths) >= out,
        positive=bool(np.all(values > tolerance)),
        distinct=all(b - a > tolerance for a, b in itertools.pairwise(ordered)),
        partial_sums_distinct=sums,
    )
