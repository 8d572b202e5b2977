r"""Bounds that hold before anything is computed: of the product by the norm of the layers, of a whole trajectory.

With $n = \sum_l \|W_l\|_F^2$, $c_l = \|C_l\|_2$ for the conserved $C_l = W_{l+1}^\top W_{l+1} - W_l W_l^\top$, and
$\tilde c = -\sum_{l=1}^{L-1} l\,\mathrm{tr}\,C_l$, so that $\|W_L\|_F^2 = (n - \tilde c)/L$, every network satisfies

$$d_L^{1-L}\Big(\frac{(n - \tilde c)_+}{L}\Big)^L - p(n) \;\le\; \|W_{L:1}\|_F^2 \;\le\; \Big(\frac nL\Big)^L, \qquad
p(n) = \sum_{j=1}^{L-1}\big((n + c_j)^j - n^j\big)\Big(\frac{n}{L-j}\Big)^{L-j}.$$
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    as_array,
    check_finite,
    check_number,
    check_result,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    inner,
    is_concrete,
    xp,
)
from deeplinear.landscape._arguments import check_range, check_weights, checked_chain
from deeplinear.landscape._symmetric import eigenvalues
from deeplinear.models import (
    DeepLinear,
    Problem,
    Regression,
    SampleRegression,
    SquaredDistance,
    checked_problem,
    conserved,
)


class NormBounds(NamedTuple):
    r"""$\|W_{L:1}\|_F^2$ between two functions of the norms and the conserved quantities of the layers."""

    lower: Float[Array, ""]
    value: Float[Array, ""]
    upper: Float[Array, ""]


class PowerBounds(NamedTuple):
    r"""$\mathrm{tr}(B^\ell)$ between two functions of $\mathrm{tr}\,B$."""

    lower: Float[Array, ""]
    value: Float[Array, ""]
    upper: Float[Array, ""]


def _lower(n: Any, offset: Any, sizes: Any, depth: int, out: int) -> Any:
    r"""$d_L^{1-L}((n - \tilde c)_+/L)^L - p(n)$; plain numbers or arrays."""
    rest = sum(((n + c) ** j - n**j) * (n / (depth - j)) ** (depth - j) for j, c in enumerate(sizes, start=1))
    above = (n - offset) * (n > offset)
    return float(out) ** (1 - depth) * (above / depth) ** depth - rest


@entry
def norm_bounds(params: Iterable[Any]) -> NormBounds:
    r"""Growth of the product with the layers: lower and upper bound of $\|W_{L:1}\|_F^2$.

    The upper bound is that of the arithmetic and the geometric mean; the lower one has the leading term
    $L^{-L} d_L^{1-L}\, n^L$, with equality for balanced layers whose singular values are all equal, and grows without
    bound on every set of fixed conserved quantities: layers cannot escape while the product stays bounded.

    Args:
        params: Layers, first-acting first.

    Returns:
        `lower`, `value` and `upper`.

    Example:
        >>> [round(float(x), 12) for x in norm_bounds((2.0 * jnp.eye(2), 2.0 * jnp.eye(2)))]
        [32.0, 32.0, 64.0]
    """
    layers = checked_chain("norm_bounds", params)
    check_weights("norm_bounds", layers)
    depth, out = len(layers), layers[-1].shape[0]
    squared = inner(layers, layers)
    laws = conserved(layers)
    offset = -sum((number * xp.trace(c) for number, c in enumerate(laws, start=1)), start=xp.zeros(()))
    sizes = [xp.linalg.norm(c, 2) for c in laws]
    product = layers[0]
    for layer in layers[1:]:
        product = layer @ product
    bounds = NormBounds(
        lower=_lower(squared, offset, sizes, depth, out),
        value=xp.vdot(product, product),
        upper=(squared / depth) ** depth,
    )
    check_range("norm_bounds", *bounds)
    return bounds


@entry(instead="call it outside of the transformation")
def trajectory_radius(problem: Problem, params: Iterable[Any]) -> float:
    r"""A radius that $(\sum_l\|W_l\|_F^2)^{1/2}$ never exceeds along the flow from a start, known in advance.

    The loss falls, so $\|W_{L:1}\|_F \le \|\Sigma\|_F + \sqrt{2\mathcal L(0)}$, and the conserved quantities stay: the
    lower bound of the product turns this into a bound of the layers. It is rigorous and loose, by a factor of 6 or so.

    Args:
        problem: A deep linear network that learns a matrix (`SquaredDistance`), without a penalty.
        params: Layers at the start; looked at on the host.

    Returns:
        The radius.

    Raises:
        HypothesisError: The problem is another one.

    Example:
        >>> problem = Problem(DeepLinear((1, 1)), SquaredDistance(jnp.array([[4.0]])))
        >>> trajectory_radius(problem, (jnp.array([[1.0]]),))
        7.0
    """
    where = "trajectory_radius"
    check_x64(where)
    checked_problem(where, "problem", problem)
    if not isinstance(problem.model, DeepLinear) or not isinstance(problem.loss, SquaredDistance):
        raise HypothesisError(
            "a chain of layers that learns a whole matrix",
            1.0,
            0.0,
            _advice(problem),
        )
    if float(problem.l2) > 0:
        raise HypothesisError("no penalty on the layers", float(problem.l2), 0.0, "Take l2=0.")
    layers = checked_chain(where, params)
    check_weights(where, layers)
    problem.check(layers, where)
    depth, out = problem.model.depth, problem.model.widths[-1]
    laws = [np.asarray(c) for c in conserved(layers)]
    check_range(where, *laws)
    offset = -float(sum(number * np.trace(c) for number, c in enumerate(laws, start=1)))
    sizes = [np.float64(np.linalg.norm(c, 2)) for c in laws]
    reach = (np.linalg.norm(np.asarray(problem.loss.target)) + np.sqrt(2 * float(problem.value(layers)))) ** 2
    check_range(where, reach)

    def excess(n: float) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            found = _lower(np.float64(n), offset, sizes, depth, out) - reach
        check_range(where, found)
        return found

    # Above `alone` the leading term over (p + reach) rises, so that the excess changes its sign once there at most.
    alone = float(max(offset, (depth - 1) * max(-offset, 0.0)))
    if excess(alone) > 0:
        return float(np.sqrt(alone))
    high = float(max(2 * alone, depth * (out ** (depth - 1) * reach) ** (1 / depth)))
    if high == 0:  # the origin, which learns nothing
        return 0.0
    while excess(high) <= 0:
        high *= 2
    from scipy.optimize import brentq

    root: Any = brentq(excess, alone, high, xtol=1e-15 * high)
    return float(np.sqrt(root))


def _advice(problem: Problem) -> str:
    """What to do with a problem that the bound does not speak of."""
    if isinstance(problem.model, DeepLinear) and isinstance(problem.loss, Regression | SampleRegression):
        return (
            f"The loss is {type(problem.loss).__name__}: bring it into standard form with reduction_of, whose flow "
            "this is if the inputs are white."
        )
    return (
        f"The problem has {type(problem.model).__name__} and {type(problem.loss).__name__}. The bound needs "
        "½‖Σ - W_{L:1}‖², in which every entry of the product is seen, and a chain all of whose weights are learnt, "
        "whose conserved quantities stay."
    )


@entry
def trace_power_bounds(matrix: Any, exponent: ArrayLike) -> PowerBounds:
    r"""$k^{1-\ell}(\mathrm{tr}\,B)^\ell \le \mathrm{tr}(B^\ell) \le (\mathrm{tr}\,B)^\ell$ for $B \succeq 0$.

    The left side is an equality for multiples of the identity, the right one for matrices of rank one.

    Args:
        matrix: $B$, symmetric and positive semi-definite, (k, k).
        exponent: $\ell \ge 1$.

    Returns:
        `lower`, `value` and `upper`.

    Raises:
        HypothesisError: The matrix is not symmetric, or has a negative eigenvalue.

    Example:
        >>> [float(x) for x in trace_power_bounds(2.0 * jnp.eye(2), 3.0)]
        [16.0, 16.0, 64.0]
    """
    where = "trace_power_bounds"
    check_x64(where)
    given = as_array(checked_layer(where, "matrix", matrix), float)
    check_shape(where, "matrix", given, (None, None))
    size = given.shape[0]
    check_shape(where, "matrix", given, (size, size))
    check_finite(where, "matrix", given)
    check_number(where, "exponent", exponent, at_least=1)
    power = as_array(exponent, float)
    values = eigenvalues(0.5 * (given + given.T))
    if is_concrete(given):
        scale = float(xp.max(xp.abs(given)))
        skew = float(xp.max(xp.abs(given - given.T)))
        if skew > 1e-12 * scale:
            raise HypothesisError("symmetric", skew, 1e-12 * scale)
        if float(values[0]) < -1e-12 * scale * size:
            raise HypothesisError("positive semi-definite", -float(values[0]), 1e-12 * scale * size)
    total = xp.trace(given)
    return check_result(
        "trace_power_bounds",
        PowerBounds(
            lower=size ** (1 - power) * total**power,
            value=xp.sum(xp.maximum(values, 0.0) ** power),
            upper=total**power,
        ),
    )
