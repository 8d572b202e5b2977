r"""Conservation laws of the flow: how many are listed, how many are independent; and the norm of the layers.

The laws are the entries of $C_l = W_{l+1}^\top W_{l+1} - W_l W_l^\top$, $l < L$, on and above the diagonal.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Params,
    as_array,
    check_count,
    check_finite,
    check_number,
    check_result,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    formula,
    inner,
    refused_derivative,
    spectrum,
    xp,
)
from deeplinear.landscape._arguments import checked_chain, checked_network
from deeplinear.models import DeepLinear, Problem, checked_problem

INDEPENDENT = 1e-9
"""Singular values of the differentials below this share of the largest count as zero."""


class LawCounts(NamedTuple):
    """Conservation laws of a network: how many there are on paper, and how many say something new at a point."""

    listed: int
    independent: int


@entry
def law_differentials(params: Iterable[Any]) -> Float[Array, "laws size"]:
    r"""Gradients of all conservation laws, one in each row.

    The rows run over $(C_l)_{ij}$, $i \le j$, layer by layer, in the order of `numpy.triu_indices`; the columns are
    those of `flatten`. Every row is orthogonal to the velocity of the flow of any loss of the product.

    Args:
        params: Layers, first-acting first.

    Returns:
        The gradients; no rows for a single layer.

    Example:
        >>> law_differentials((jnp.array([[2.0]]), jnp.array([[3.0]])))  # of w2^2 - w1^2
        array([[-4.,  6.]])
    """
    return check_result("law_differentials", _differentials(checked_chain("law_differentials", params)))


@formula
def _differentials(layers: Sequence[Any]) -> Any:
    rows = []
    for position, (below, above) in enumerate(itertools.pairwise(layers)):
        first, second = np.triu_indices(below.shape[0])
        pick = xp.eye(below.shape[0])
        down = xp.einsum("ni,nj->nij", pick[first], below[second])
        down = -down - xp.einsum("ni,nj->nij", pick[second], below[first])
        up = xp.einsum("in,nj->nij", above[:, first], pick[second])
        up = up + xp.einsum("in,nj->nij", above[:, second], pick[first])
        pieces = [xp.zeros((len(first), layer.size)) for layer in layers]
        pieces[position] = down.reshape(len(first), -1)
        pieces[position + 1] = up.reshape(len(first), -1)
        rows.append(xp.concatenate(pieces, axis=1))
    return xp.concatenate(rows) if rows else xp.zeros((0, sum(layer.size for layer in layers)))


@entry(instead="use law_differentials")
def law_counts(params: Iterable[Any], *, tolerance: float = INDEPENDENT) -> LawCounts:
    r"""Number of conservation laws that are listed, and number that are independent at a point.

    Listed are $\tfrac12\sum_{l=1}^{L-1} d_l(d_l+1)$. Independent are as many as the rank of their differentials, which
    is smaller at special points (0 at the origin) and, where hidden layers are wide, everywhere.

    Args:
        params: Layers, first-acting first; looked at on the host.
        tolerance: Singular values of the differentials above this share of the largest count.

    Returns:
        `listed` and `independent`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> law_counts((rng.normal(size=(3, 1)), rng.normal(size=(1, 3))))
        LawCounts(listed=6, independent=5)
    """
    check_number("law_counts", "tolerance", tolerance, above=0)
    differentials = _differentials(checked_chain("law_counts", params))
    if differentials.shape[0] == 0:
        return LawCounts(0, 0)
    values = np.linalg.svd(differentials, compute_uv=False)
    return LawCounts(len(differentials), int(np.sum(values > tolerance * values[0])) if values[0] > 0 else 0)


def generic_independent_laws(widths: tuple[int, int, int] | tuple[int, ...]) -> int:
    r"""Number of independent conservation laws of two layers at almost every point.

    With $r = d_1$ and $s = d_0 + d_2$ it is $r(r+1)/2$ if $r \le s$ and $sr - s(s-1)/2$ otherwise. At any given point
    it is $qr - q(q-1)/2$ with $q$ the rank of $B = [W_1, W_2^\top]$, which is $\min(r, s)$ almost everywhere: the
    differentials act as $X \mapsto BX + X^\top B^\top$.

    Args:
        widths: $(d_0, d_1, d_2)$.

    Returns:
        The number.

    Example:
        >>> generic_independent_laws((3, 7, 2))
        25
    """
    network = checked_network("generic_independent_laws", widths)
    if network.depth != 2:
        raise ValueError(
            f"generic_independent_laws: widths must name two layers, such as (3, 7, 2), but is {network.widths}; for "
            "other depths count at a random point with law_counts."
        )
    inp, rank, out = network.widths
    around = inp + out
    return rank * (rank + 1) // 2 if rank <= around else around * rank - around * (around - 1) // 2


@entry
def norm_rate(problem: Problem, params: Params) -> Float[Array, ""]:
    r"""$\frac{\mathrm d}{\mathrm dt}\sum_l \|W_l\|_F^2 = -2L\langle\nabla E(P), P\rangle - 2\gamma\sum_l\|W_l\|_F^2$.

    $P$ is the product, which has degree $L$ in the layers. For $E = \tfrac12\|\Sigma - P\|_F^2$ this is
    $2L\langle\Sigma - P, P\rangle$: the norm rests where product and residual are orthogonal, which need not be a
    critical point.

    Args:
        problem: A deep linear network with any loss.
        params: Layers, first-acting first.

    Returns:
        The rate along gradient flow.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(jnp.array([[4.0]])))
        >>> float(norm_rate(problem, (jnp.array([[2.0]]), jnp.array([[3.0]]))))
        -48.0
    """
    where = "norm_rate"
    check_x64(where)
    checked_problem(where, "problem", problem)
    if not isinstance(problem.model, DeepLinear):
        raise TypeError(f"{where}: problem must have a DeepLinear model, but has {type(problem.model).__name__}.")
    problem.check(params, where)
    for position, layer in enumerate(params):
        check_finite(where, f"params[{position}]", layer)
    product = problem.product(params)
    rate = -2 * problem.model.depth * xp.vdot(problem.loss.gradient(product), product)
    return check_result("norm_rate", rate - 2 * problem.l2 * inner(params, params))


@entry(instead="build the layers with jax.numpy")
def equal_weights(sigma: Any, widths: tuple[int, ...]) -> Params:
    r"""Layers with all weights equal at which the norm rests although the flow does not.

    $W_l = a\,\mathbb 1$ with $a^L = \sum_i\sigma_i / (d_0 d_1 \cdots d_L)$ makes product and residual orthogonal.

    Args:
        sigma: Singular values of the diagonal target, with a positive sum.
        widths: $(d_0, \dots, d_L)$.

    Returns:
        The layers.

    Raises:
        HypothesisError: As many inputs as outputs and equal singular values: the point is critical.

    Example:
        >>> float(equal_weights([3.0, 1.0], (2, 1, 2))[0][0, 0])
        1.0
    """
    where = "equal_weights"
    check_x64(where)
    network = checked_network(where, widths)
    modes = min(network.product_shape)
    values = np.asarray(checked_layer(where, "sigma", sigma), dtype=float)
    check_shape(where, "sigma", values, (modes,))
    check_finite(where, "sigma", values)
    total = float(values.sum())
    if total <= 0:
        raise ValueError(f"{where}: sigma must have a positive sum, but its sum is {total:g}.")
    spread = float(np.ptp(values))
    if network.widths[0] == network.widths[-1] and spread <= 1e-12 * total:
        raise HypothesisError(
            "different singular values, or different numbers of inputs and outputs",
            1 - spread / total,
            1 - 1e-12,
            "Here all rows and columns of the residual sum to zero: the point is critical.",
        )
    weight = (total / math.prod(network.widths)) ** (1 / network.depth)
    return tuple(xp.full(shape, weight) for shape in network.shapes)


@entry
def minimal_norm(product: Any, depth: int) -> Float[Array, ""]:
    r"""$L \sum_k s_k^{2/L}$: the least $\sum_l \|W_l\|_F^2$ of $L$ layers with a given product.

    It is attained by balanced layers and by no others.

    Args:
        product: The product, with singular values $s_k$.
        depth: $L$.

    Returns:
        The least squared norm.

    Example:
        >>> float(minimal_norm(jnp.diag(jnp.array([4.0, 1.0])), 2))
        10.0
    """
    check_x64("minimal_norm")
    check_count("minimal_norm", "depth", depth, at_least=1)
    matrix = as_array(checked_layer("minimal_norm", "product", product), float)
    check_shape("minimal_norm", "product", matrix, (None, None))
    check_finite("minimal_norm", "product", matrix)
    values = spectrum(matrix)
    if depth > 2:
        message = "minimal_norm: beyond two layers there is no derivative at a singular value of 0; take full rank."
        values = refused_derivative(values, values[-1] == 0, message)
    return depth * xp.sum(values ** (2 / depth))
