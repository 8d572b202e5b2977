r"""Directions at a critical point along which the Hessian is known exactly.

All are written down in the coordinates of the normal form, as $R$, and moved to those of the network as
$V_l = P_l R_l P_{l-1}^{-1}$, which leaves the Hessian form as it is.
"""

import dataclasses
import itertools
import math
from typing import Literal

import numpy as np

from deeplinear.core import HypothesisError, Params, check_count, check_number
from deeplinear.landscape._arguments import Layers, set_name
from deeplinear.landscape._canonical import CanonicalForm, as_params
from deeplinear.landscape._critical import embed, size_of

NEGLIGIBLE = 1e-8
"""Singular values of blocks and of their products below this share of what they could be count as zero."""


@dataclasses.dataclass(frozen=True)
class Direction:
    r"""A direction $V$ of the layers with its Hessian form $\mathrm{Hess}(W; V)$.

    Attributes:
        layers: $V$, in the coordinates of the network.
        value: The Hessian form along it, by its closed form.
        kind: `"zero"`, `"swap"` or `"pivot"`.
        indices: Modes $(i, j)$ of a swap, layers $(i, j)$ of a pivot, counted from 1; empty otherwise.
    """

    layers: Params
    value: float
    kind: Literal["zero", "swap", "pivot"]
    indices: tuple[int, ...] = ()

    @property
    def rayleigh(self) -> float:
        """The Hessian form over the squared norm of the direction."""
        return self.value / size_of([np.asarray(layer) for layer in self.layers]) ** 2

    def __str__(self) -> str:
        texts = {
            "zero": "scaling of the first against the last layer",
            "swap": "mode {} in place of mode {}",
            "pivot": "a new mode through layers {} and {}",
        }
        return texts[self.kind].format(*self.indices)


def cleaned(form: CanonicalForm, tolerance: float) -> CanonicalForm:
    r"""The form without parts of its blocks $Z_l$ that are only rounding.

    Singular values below `tolerance` times the scale of the network, the larger of $\sigma_1^{1/L}$ and all of them,
    are dropped.
    """
    scale = max(float(form.sigma[0]) ** (1 / form.depth), *form.sizes) if form.fills else 1.0
    fills = []
    for fill in form.fills:
        if fill.size:
            left, values, right = np.linalg.svd(fill, full_matrices=False)
            if values[-1] <= tolerance * scale:
                fill = left * np.where(values > tolerance * scale, values, 0.0) @ right
        fills.append(fill)
    return dataclasses.replace(form, fills=tuple(fills))


def possible(form: CanonicalForm, last: int, first: int) -> float:
    r"""Product of the norms of $Z_a, \dots, Z_b$: the largest norm that their product could have."""
    return math.prod(form.sizes[first - 1 : last]) if last >= first else 1.0


def rank_between(form: CanonicalForm, upper: int, lower: int, tolerance: float) -> int:
    r"""Rank of $Z_{i-1:j+1}$."""
    return _rank(form.between(upper - 1, lower + 1), tolerance * possible(form, upper - 1, lower + 1))


def rank_around(form: CanonicalForm, upper: int, lower: int, tolerance: float) -> int:
    r"""Rank of $Z_{j-1:1}\Sigma^\top U_Q Z_{L:i+1}$."""
    most = possible(form, lower - 1, 1) * float(form.sigma[0]) * possible(form, form.depth, upper + 1)
    return _rank(form.around(upper, lower), tolerance * most)


def _rank(matrix: np.ndarray, threshold: float) -> int:
    return int(np.sum(np.linalg.svd(matrix, compute_uv=False) > threshold)) if matrix.size else 0


def zero_direction(form: CanonicalForm) -> Direction:
    r"""A direction along which the Hessian form vanishes, at any critical point of two or more layers.

    Where modes are learnt it scales the last layer up and the first one down, $R_1 = [-U_S^\top\Sigma; 0]$ and
    $R_L = [U_S, 0]$. Where none is learnt, one layer moves so that the product stays, $W_{L:l+1}V_lW_{l-1:1} = 0$.

    Example:
        >>> form = canonical_form(critical_point([2.0, 1.0], (3, 2, 2), (2,)), [2.0, 1.0])
        >>> zero_direction(form).layers[1]
        array([[0., 0.],
               [1., 0.]])
    """
    if form.depth == 1:
        raise HypothesisError(
            "two or more layers", 1.0, 0.0, "A single layer has an identity for its Hessian, and no such direction."
        )
    learnt = [i - 1 for i in form.signature]
    moved = [np.zeros((out, inp)) for inp, out in itertools.pairwise(form.widths)]
    if form.rank:
        places = list(range(form.rank))
        moved[0][places] = -form.target[learnt]
        moved[-1][learnt, places] = 1.0
    else:
        _, left, layer, right = min(
            (
                (size, left, layer, right)
                for layer in range(1, form.depth + 1)
                for size, left, right in _least_moved(form, layer)
            ),
            key=lambda row: row[0],
        )
        moved[layer - 1] = np.outer(left, right)
    return Direction(as_params(form.move(moved)), 0.0, "zero")


def _least_moved(form: CanonicalForm, layer: int) -> list[tuple[float, np.ndarray, np.ndarray]]:
    r"""Unit vectors x, y with the smallest $|Z_{L:l+1}x|$ or $|Z_{l-1:1}^\top y|$, over what is possible."""
    above, below = form.between(form.depth, layer + 1), form.between(layer - 1, 1)
    _, high, right = np.linalg.svd(above, full_matrices=True)
    left, low, _ = np.linalg.svd(below, full_matrices=True)
    size = (high[-1] if len(high) == above.shape[1] else 0.0) * low[0]
    other = (low[-1] if len(low) == below.shape[0] else 0.0) * high[0]
    return [(float(size), right[-1], left[:, 0]), (float(other), right[0], left[:, -1])]


def swap_direction(form: CanonicalForm, i: int, j: int) -> Direction:
    r"""Direction that learns mode $i$ in place of a weaker mode $j$.

    Along it $\mathrm{Hess}(W; V) = -(\sigma_i^2 - \sigma_j^2)$. It is
    $R_1 = [U_K^\top\Sigma; 0]$ and $R_L = [U_K, 0]$, with $U_K = e_i e_p^\top$ and $p$ the place of $j$ in the
    signature.

    Args:
        form: Normal form of a critical point.
        i: A mode that is not learnt, counted from 1.
        j: A weaker mode that is learnt.

    Returns:
        The direction, with this value.

    Example:
        >>> form = canonical_form(critical_point([2.0, 1.0], (3, 2, 2), (2,)), [2.0, 1.0])
        >>> swap_direction(form, 1, 2).value
        -3.0
    """
    where = "swap_direction"
    for name, mode in (("i", i), ("j", j)):
        check_count(where, name, mode, at_least=1, at_most=len(form.sigma))
    if i in form.signature or j not in form.signature or i >= j:
        raise ValueError(
            f"{where}: i must be an unlearnt mode before a learnt mode j, but they are {i} and {j} with the signature "
            f"{set_name(form.signature)}."
        )
    place = form.signature.index(j)
    moved = [np.zeros((out, inp)) for inp, out in itertools.pairwise(form.widths)]
    moved[0][place] = form.target[i - 1]
    moved[-1][i - 1, place] = 1.0
    value = -(float(form.sigma[i - 1]) ** 2 - float(form.sigma[j - 1]) ** 2)
    return Direction(as_params(form.move(moved)), value, "swap", (i, j))


def pivot_direction(form: CanonicalForm, *, tolerance: float = NEGLIGIBLE) -> Direction | None:
    r"""Direction that adds a mode through two layers with a negative Hessian form; `None` where there is none.

    Two layers $i > j$ with $B = Z_{i-1:j+1} \ne 0$ and $K = Z_{j-1:1}\Sigma^\top U_Q Z_{L:i+1} \ne 0$ make one: with
    $(y_2, \kappa, x_1)$ the top singular triple of $K$ put $a\,x_1x_2^\top$ at layer $i$ and $y_1y_2^\top/a$ at layer
    $j$, where either $x_2$ is in the left null space of $Z_{i-1:1}$ or $y_1$ in the null space of $Z_{L:j+1}$. Then
    $\mathrm{Hess} = b^2/a^2 - 2\beta\kappa$ with $\beta = x_2^\top B y_1$; $a$ is chosen for the smallest Rayleigh
    quotient, and of all pairs and both choices the best is taken.

    Args:
        form: Normal form of a critical point.
        tolerance: Singular values below this share of what they could be count as zero.

    Returns:
        The direction, or `None` where no pair of layers makes one: the point is tightened.

    Example:
        >>> form = canonical_form(critical_point([2.0, 1.0], (3, 2, 2), (1,)), [2.0, 1.0])
        >>> pivot_direction(form).value
        -2.0
    """
    check_number("pivot_direction", "tolerance", tolerance, above=0)
    clean = cleaned(form, tolerance)
    loose = [
        (upper, lower)
        for lower, upper in itertools.combinations(range(1, form.depth + 1), 2)
        if rank_between(clean, upper, lower, tolerance) and rank_around(clean, upper, lower, tolerance)
    ]
    found = [pivot for pair in loose for pivot in _pivots(clean, *pair, tolerance)]
    # At a point that is only nearly critical the null spaces may be missing: what is left is measured.
    found = found or [pivot for pair in loose for pivot in _measured_pivot(clean, *pair)]
    if not found:
        return None
    _, value, layers, pair = min(found, key=lambda pivot: pivot[0])
    return Direction(as_params(layers), value, "pivot", pair)


Pivot = tuple[float, float, Layers, tuple[int, int]]
"""Rayleigh quotient, Hessian form, direction on the host, pair of layers."""


def _pivots(form: CanonicalForm, upper: int, lower: int, tolerance: float) -> list[Pivot]:
    """The pivots of one pair of layers, each with its Rayleigh quotient."""
    between = form.between(upper - 1, lower + 1)
    left, values, right = np.linalg.svd(form.around(upper, lower), full_matrices=False)
    kappa, y2, x1 = float(values[0]), left[:, 0], right[0]
    below, above = form.between(upper - 1, 1), form.between(form.depth, lower + 1)
    under, over = form.between(lower - 1, 1), form.between(form.depth, upper + 1)
    found = []
    # x2 in the left null space of Z_{i-1:1}: the part at layer i leaves the product as it is.
    null = _null(below.T, tolerance * possible(form, upper - 1, 1))
    if null.shape[1]:
        u, s, v = np.linalg.svd(null.T @ between)
        other = float(np.linalg.norm(above @ v[0]) * np.linalg.norm(y2 @ under))
        found.append(_pivot(form, upper, lower, (x1, null @ u[:, 0], v[0], y2), float(s[0]), kappa, other, True))
    # y1 in the null space of Z_{L:j+1}: the part at layer j does.
    null = _null(above, tolerance * possible(form, form.depth, lower + 1))
    if null.shape[1]:
        u, s, v = np.linalg.svd(between @ null)
        other = float(np.linalg.norm(over @ x1) * np.linalg.norm(u[:, 0] @ below))
        found.append(_pivot(form, upper, lower, (x1, u[:, 0], null @ v[0], y2), float(s[0]), kappa, other, False))
    least = tolerance * possible(form, upper - 1, lower + 1)
    return [pivot for beta, pivot in found if beta > least]


def _null(matrix: np.ndarray, threshold: float) -> np.ndarray:
    """Orthonormal basis of the null space, in columns."""
    if not matrix.shape[0]:
        return np.eye(matrix.shape[1])
    _, values, right = np.linalg.svd(matrix, full_matrices=True)
    return right[int(np.sum(values > threshold)) :].T


def _pivot(
    form: CanonicalForm,
    upper: int,
    lower: int,
    vectors: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    beta: float,
    kappa: float,
    other: float,
    upper_free: bool,
) -> tuple[float, Pivot]:
    """Both parts, scaled against each other for the smallest Rayleigh quotient; with the strength between them."""
    x1, x2, y1, y2 = vectors
    one = form.move(place(form, {upper: np.outer(x1, x2)}))
    two = form.move(place(form, {lower: np.outer(y1, y2)}))
    free, bound = (one, two) if upper_free else (two, one)
    twice, ratio = 2 * beta * kappa, size_of(bound) / size_of(free)
    if twice <= 0:
        return 0.0, (0.0, 0.0, one, (upper, lower))
    # With u = a², the quotient is (b² - 2βκ u) / (|free|² u² + |bound|²).
    scale = math.sqrt((other**2 + math.hypot(other**2, twice * ratio)) / twice)
    layers = tuple(scale * f + b / scale for f, b in zip(free, bound, strict=True))
    value = other**2 / scale**2 - twice
    return beta, (value / size_of(layers) ** 2, value, layers, (upper, lower))


def _measured_pivot(form: CanonicalForm, upper: int, lower: int) -> list[Pivot]:
    """The strongest pivot of a pair whose null spaces are empty, where it is negative nevertheless."""
    left, _, right = np.linalg.svd(form.around(upper, lower), full_matrices=False)
    u, _, v = np.linalg.svd(form.between(upper - 1, lower + 1), full_matrices=False)
    one = form.move(place(form, {upper: np.outer(right[0], u[:, 0])}))
    two = form.move(place(form, {lower: np.outer(v[0], left[:, 0])}))
    layers = tuple(a / size_of(one) + b / size_of(two) for a, b in zip(one, two, strict=True))
    value = curvature_along(form.layers(), layers, form.target)
    return [(value / size_of(layers) ** 2, value, layers, (upper, lower))] if value < 0 else []


def place(form: CanonicalForm, blocks: dict[int, np.ndarray]) -> Layers:
    """Given blocks at their layers, in the coordinates of the form; the other blocks are zero."""
    zeros = [np.zeros(fill.shape) for fill in form.fills]
    for layer, block in blocks.items():
        zeros[layer - 1] = block
    return embed(zeros, form.signature, form.widths)


def curvature_along(layers: Layers, direction: Layers, target: np.ndarray) -> float:
    r"""$\|\rho_1\|_F^2 - 2\langle\rho_2, M\rangle$ on the host, from the layers alone."""
    moved = product_along(layers, direction)
    second = float(np.sum(moved[2] * (target - moved[0]))) if len(moved) > 2 else 0.0
    return float(np.sum(moved[1] ** 2)) - 2 * second


def product_along(layers: Layers, direction: Layers) -> list[np.ndarray]:
    r"""Coefficients of the product of $W_l + \varepsilon V_l$ as a polynomial in $\varepsilon$."""
    result = [np.eye(layers[0].shape[1])]
    for layer, step in zip(layers, direction, strict=True):
        still, moved = [layer @ c for c in result], [step @ c for c in result]
        result = [still[0], *(a + b for a, b in zip(still[1:], moved[:-1], strict=True)), moved[-1]]
    return result


def loss_along(layers: Layers, direction: Layers, target: np.ndarray) -> np.ndarray:
    r"""Coefficients of $F(W + \varepsilon V)$, a polynomial of degree $2L$, constant first."""
    product = product_along(layers, direction)
    parts = np.array([target - product[0], *(-c for c in product[1:])])
    gram = np.einsum("iab,jab->ij", parts, parts)
    size = len(parts)
    return np.array([0.5 * np.trace(gram[::-1], offset=k - size + 1) for k in range(2 * size - 1)])
