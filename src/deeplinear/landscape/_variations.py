r"""The loss on a line through the layers: variations of the product, and the polynomial they make."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    Matrix,
    Params,
    check_finite,
    check_number,
    check_result,
    check_x64,
    entry,
    inner,
    norm,
    xp,
)
from deeplinear.landscape._arguments import check_pair
from deeplinear.models import (
    Completion,
    DeepLinear,
    EntryCompletion,
    Problem,
    Regression,
    SampleRegression,
    Sensing,
    SquaredDistance,
    checked_problem,
)

QUADRATIC = (SquaredDistance, Regression, SampleRegression, Completion, EntryCompletion, Sensing)
"""Losses that are quadratic in the product."""

NOISE = 1e-10
"""Coefficients of a line below this share of the terms they are made of are taken for rounding."""


@entry
def variations(params: Params, direction: Params) -> tuple[Matrix, ...]:
    r"""Coefficients $\rho_0, \dots, \rho_L$ of $\prod_l (W_l + \epsilon V_l) = \sum_k \epsilon^k \rho_k$.

    $\rho_0 = W_{L:1}$ is the product, $\rho_1 = \sum_j W_{L:j+1} V_j W_{j-1:1}$ its derivative, $\rho_L = V_{L:1}$; in
    general $\rho_k$ is the sum over all ways to take $k$ factors from the direction. All of them come from one pass of
    products of polynomials, $L^2$ matrix products in all. Pure; may be mapped and differentiated.

    Args:
        params: Layers $W$, first-acting first.
        direction: Layers $V$, of the same shapes.

    Returns:
        $L + 1$ matrices of the shape of the product.

    Example:
        >>> one, two = jnp.ones((1, 1)), 2 * jnp.ones((1, 1))
        >>> [float(rho[0, 0]) for rho in variations((one, one, one), (two, two, two))]  # (1 + 2 eps)^3
        [1.0, 6.0, 12.0, 8.0]
    """
    check_pair("variations", params, direction)
    coefficients: list[Matrix] = [params[0], direction[0]]
    for layer, move in zip(params[1:], direction[1:], strict=True):
        kept = [layer @ c for c in coefficients]
        moved = [move @ c for c in coefficients]
        coefficients = [kept[0], *(a + b for a, b in zip(kept[1:], moved[:-1], strict=True)), moved[-1]]
    return check_result("variations", tuple(coefficients))


@entry
def line_polynomial(problem: Problem, params: Params, direction: Params) -> Float[Array, " coefficients"]:
    r"""Coefficients $c_0, \dots, c_{2L}$ of the loss $\epsilon \mapsto \mathcal L(W + \epsilon V)$.

    A loss that is quadratic in the product is, on a line, a polynomial of degree $2L$, and this is all of it:
    $c_k = \langle\nabla E, \rho_k\rangle + \tfrac12\sum_{i+j=k}\langle\rho_i, \nabla^2 E\,\rho_j\rangle$ with
    $i, j \ge 1$. In particular $c_1$ is the slope and $2c_2$ the Hessian form. A penalty on the layers adds to
    $c_0, c_1, c_2$.

    Args:
        problem: A deep linear network with a loss that is quadratic in the product.
        params: Layers $W$.
        direction: Layers $V$.

    Returns:
        The coefficients, lowest order first (`numpy.polynomial` reads them as they are).

    Raises:
        TypeError: The loss is not known to be quadratic, or the model is not a chain of layers.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> zero, one = jnp.zeros((1, 1)), jnp.ones((1, 1))
        >>> line_polynomial(problem, (zero, zero), (one, one)).tolist()  # (1 - eps^2)^2 / 2
        [0.5, 0.0, -1.0, 0.0, 0.5]
    """
    checked_problem("line_polynomial", "problem", problem)
    if not isinstance(problem.model, DeepLinear):
        raise TypeError(
            f"line_polynomial: problem must be of a DeepLinear network, but its model is a "
            f"{type(problem.model).__name__}."
        )
    problem.check(params, "line_polynomial")
    check_quadratic("line_polynomial", problem)
    check_pair("line_polynomial", params, direction)
    product, *moves = variations(params, direction)
    slope = problem.loss.gradient(product)
    bent = [problem.loss.curvature(product, move) for move in moves]
    depth = len(moves)
    coefficients = [problem.loss.value(product), *(xp.vdot(slope, move) for move in moves)]
    coefficients += [xp.zeros_like(coefficients[0])] * depth
    for i, move in enumerate(moves, start=1):
        for j, curved in enumerate(bent, start=1):
            coefficients[i + j] = coefficients[i + j] + 0.5 * xp.vdot(move, curved)
    penalty = (0.5 * inner(params, params), inner(params, direction), 0.5 * inner(direction, direction))
    for k, term in enumerate(penalty):
        coefficients[k] = coefficients[k] + problem.l2 * term
    return check_result("line_polynomial", xp.stack(coefficients))


@dataclasses.dataclass(frozen=True)
class DescentOrder:
    r"""How the loss leaves a point along a line: its first term that is not rounding.

    Attributes:
        order: $k \ge 1$ of the first significant term $c_k\epsilon^k$; `None` where the loss is constant on the line.
        coefficient: $c_k$; 0 where there is none.
        coefficients: All of $c_0, \dots, c_{2L}$.
        noise: For each order, the size below which a coefficient is taken for rounding.
    """

    order: int | None
    coefficient: float
    coefficients: tuple[float, ...]
    noise: tuple[float, ...]

    @property
    def sign(self) -> int:
        """Sign of the first significant coefficient; 0 where there is none."""
        return int(np.sign(self.coefficient))

    @property
    def descends(self) -> bool:
        """Whether the loss falls along the line, in one of its two senses: an odd order, or a negative even one."""
        return self.order is not None and (self.order % 2 == 1 or self.coefficient < 0)

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        if self.order is None:
            return [("loss", "constant along the line, to rounding")]
        way = "falls" if self.descends else "rises"
        if self.order % 2:
            way = f"falls {'forwards' if self.coefficient < 0 else 'backwards'}"
        return [("first term", f"{self.coefficient:.6g} ε^{self.order}"), ("loss", f"{way} along the line")]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "order": self.order,
            "coefficient": self.coefficient,
            "descends": self.descends,
            "coefficients": list(self.coefficients),
            "noise": list(self.noise),
        }

    def __str__(self) -> str:
        return "\n".join(f"{label:<15} {text}" for label, text in self.rows())


@entry(instead="use line_polynomial")
def first_descent_order(
    problem: Problem, params: Params, direction: Params, *, tolerance: float = NOISE
) -> DescentOrder:
    r"""The order at which the loss first changes along a line, and whether it falls.

    Where gradient and Hessian are silent the next terms decide: at the origin of a network of depth $L$ the first
    term is $-\epsilon^L\langle\nabla E, \cdot\rangle$, of order $L$. A coefficient is significant if it exceeds
    `tolerance` times what its terms could be at most, by the norms of layers and direction.

    Computed on the host: it answers with an integer.

    Args:
        problem: A deep linear network with a loss that is quadratic in the product.
        params: Layers, usually of a critical point.
        direction: Where to go from there; its length does not matter.
        tolerance: Relative size below which coefficients are taken for rounding.

    Returns:
        Order, coefficient and verdict.

    Raises:
        ValueError: The direction is zero.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> zero, one = jnp.zeros((1, 1)), jnp.ones((1, 1))
        >>> found = first_descent_order(problem, (zero,) * 3, (one,) * 3)
        >>> found.order, found.coefficient, found.descends
        (3, -1.0, True)
    """
    where = "first_descent_order"
    check_x64(where)
    check_number(where, "tolerance", tolerance, above=0)
    coefficients = np.asarray(line_polynomial(problem, params, direction))
    check_finite(where, "the loss on the line", coefficients)
    if not float(norm(direction)) > 0:
        raise ValueError(f"{where}: direction must not be zero.")
    noise = tolerance * _sizes(problem, params, direction)
    order = next((k for k in range(1, len(coefficients)) if abs(coefficients[k]) > noise[k]), None)
    return DescentOrder(
        order=order,
        coefficient=0.0 if order is None else float(coefficients[order]),
        coefficients=tuple(float(c) for c in coefficients),
        noise=tuple(float(n) for n in noise),
    )


def _sizes(problem: Problem, params: Params, direction: Params) -> np.ndarray:
    """What the coefficients of a line could be at most, from the norms of layers, direction and loss."""
    bounds = np.ones(1)  # of the norms of the variations
    for layer, move in zip(params, direction, strict=True):
        factor = np.array([np.linalg.norm(layer), np.linalg.norm(move)])
        bounds = np.convolve(bounds, factor)
    product, *moves = variations(params, direction)
    stretch = [
        float(xp.linalg.norm(problem.loss.curvature(product, move)) / length)
        for move in (product, *moves)
        if (length := float(xp.linalg.norm(move))) > 0
    ]
    stiffness = max(stretch, default=0.0)
    slope = float(xp.linalg.norm(problem.loss.gradient(xp.zeros_like(product)))) + stiffness * bounds[0]
    sizes = np.zeros(2 * len(params) + 1)
    sizes[: len(bounds)] += slope * bounds
    sizes += 0.5 * stiffness * np.convolve(bounds, bounds)
    length, move = float(norm(params)), float(norm(direction))
    sizes[:3] += float(problem.l2) * np.array([0.5 * length**2, length * move, 0.5 * move**2])
    return sizes


def check_quadratic(where: str, problem: Problem) -> None:
    """Refuse a loss that is not known to be quadratic in the product."""
    if not isinstance(problem.loss, QUADRATIC):
        names = ", ".join(kind.__name__ for kind in QUADRATIC)
        raise TypeError(
            f"{where}: the loss must be quadratic in the product ({names}), but is {type(problem.loss).__name__}: on a "
            "line it is no polynomial. Gradient and Hessian are there for every loss."
        )
