r"""Is it a minimum, a strict saddle or a non-strict saddle? With a certificate that can be checked.

A critical point with signature $S$, $r = |S|$, is a global minimum where it has learnt as many of the strongest modes
as the widths carry. Any other is a saddle. It is *strict*, with a negative direction of the Hessian, where a stronger
mode is missing while a weaker one is learnt, and where two layers $i > j$ have
$\mathrm{rank}\,W_{i-1:j+1} > r$ and $\mathrm{rank}(W_{j-1:1}\Sigma^\top W_{L:i+1}) > r$. Where no pair of layers has
both, the point is *tightened*, and with $S = \{1, \dots, r\}$ it is a *non-strict* saddle: the Hessian has no negative
direction, and the loss falls at a higher order only. Recognition runs on the host.
"""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from deeplinear.core import HypothesisError, Params, check_number, check_x64, entry
from deeplinear.landscape._arguments import Layers
from deeplinear.landscape._canonical import (
    CONVERGED,
    CanonicalForm,
    as_params,
    criticality_residual,
    detect,
    form_of,
    multiply,
)
from deeplinear.landscape._certificates import (
    KIND,
    Certificate,
    Classification,
    Descent,
    Least,
    NegativeDirection,
    PairRanks,
    Slope,
    Tightened,
)
from deeplinear.landscape._critical import critical_value, size_of
from deeplinear.landscape._directions import (
    NEGLIGIBLE,
    Direction,
    cleaned,
    curvature_along,
    loss_along,
    pivot_direction,
    place,
    rank_around,
    rank_between,
    swap_direction,
)
from deeplinear.landscape._reduced_layers import Reduced, reduced_layers
from deeplinear.landscape._reduction import WEAK
from deeplinear.models import Problem

CRITICAL = 1e-6
r"""Largest norm of the gradient in reduced coordinates, as a share of $\sigma_1^{2-1/L}$, at a critical point."""

ROUNDING = 1e-10
r"""Gradients below this share of $\sigma_1^{2-1/L}$ are rounding; above it the point is only nearly critical."""


def pair_ranks(form: CanonicalForm, *, tolerance: float = NEGLIGIBLE) -> tuple[PairRanks, ...]:
    r"""$\mathrm{rank}\,W_{i-1:j+1}$ and $\mathrm{rank}(W_{j-1:1}\Sigma^\top W_{L:i+1})$ for every pair of layers.

    Args:
        form: Normal form of a critical point.
        tolerance: Singular values below this share of what they could be count as zero.

    Returns:
        One entry for each pair.

    Example:
        >>> form = canonical_form(critical_point([2.0, 1.0], (3, 2, 2), (1,)), [2.0, 1.0])
        >>> pair_ranks(form)
        (PairRanks(upper=2, lower=1, between=2, around=2, rank=1),)
    """
    clean = cleaned(form, tolerance)
    return tuple(
        PairRanks(
            upper,
            lower,
            form.rank + rank_between(clean, upper, lower, tolerance),
            form.rank + rank_around(clean, upper, lower, tolerance),
            form.rank,
        )
        for lower, upper in itertools.combinations(range(1, form.depth + 1), 2)
    )


def is_tightened(form: CanonicalForm, *, tolerance: float = NEGLIGIBLE) -> bool:
    r"""Whether every pair of layers $i > j$ has a product of rank $r$.

    That is $\mathrm{rank}\,W_{i-1:j+1} = r$ or $\mathrm{rank}(W_{j-1:1}\Sigma^\top W_{L:i+1}) = r$; empty products are
    identities. Three layers of rank $r$ are enough. With two layers no saddle is tightened.

    Args:
        form: Normal form of a critical point.
        tolerance: Singular values below this share of what they could be count as zero.

    Returns:
        Whether it is.

    Example:
        >>> deep = canonical_form(critical_point([2.0, 1.0], (3, 2, 2, 2), (1,)), [2.0, 1.0])
        >>> is_tightened(deep)
        True
    """
    check_number("is_tightened", "tolerance", tolerance, above=0)
    return all(pair.tight for pair in pair_ranks(form, tolerance=tolerance))


@entry(instead="use hessian_matrix")
def classify(
    problem: Problem, params: Iterable[Any], *, tolerance: float = CRITICAL, rank_tolerance: float = NEGLIGIBLE
) -> Classification:
    r"""Is this point a global minimum, a strict saddle, a non-strict saddle, or no critical point at all?

    The target need not be diagonal nor the inputs white: all is done in reduced coordinates, and directions are
    brought back. Widths are free, bottlenecks included. Modes of equal or no strength are allowed; they leave the
    signature open, not the kind.

    Args:
        problem: A deep linear network that learns a whole matrix or from whole samples, without a penalty.
        params: Its layers.
        tolerance: Largest norm of the gradient, as a share of $\sigma_1^{2-1/L}$ and in reduced coordinates, at a point
            that is taken for critical. Gradients scale like this: other units of the layers give the same answer.
        rank_tolerance: Singular values below this share of what they could be count as zero in ranks.

    Returns:
        Kind, signature, measured gradient, and a certificate whose `verify(problem, params)` measures it again.

    Raises:
        HypothesisError: The theory does not speak of this problem, or the point is too far from critical for its ranks
            to be told.

    Example:
        >>> problem = Problem(DeepLinear((2, 2, 2, 2)), SquaredDistance(jnp.diag(jnp.array([2.0, 1.0]))))
        >>> origin = classify(problem, (jnp.zeros((2, 2)),) * 3)
        >>> origin.kind.value, origin.certificate.descent.order
        ('non-strict saddle', 3)
    """
    where = "classify"
    check_x64(where)
    check_number(where, "tolerance", tolerance, above=0)
    check_number(where, "rank_tolerance", rank_tolerance, above=0)
    point = reduced_layers(where, problem, params)
    scale = point.scale
    reduced_gradient, raw_gradient = point.gradient()
    share, size = size_of(reduced_gradient) / point.steepness, size_of(raw_gradient)
    found, turn, chosen = detect(multiply(point.layers), point.sigma, CONVERGED)
    notes = []
    if share > tolerance or not found.converged:
        if share <= tolerance:
            notes.append("The gradient is small, but the product is not that of a critical point. " + found.message)
        steepest = as_params(-layer / (size or 1.0) for layer in raw_gradient)
        return Classification(
            KIND.regular, None, None, point.value, None, size, None, Slope(steepest, -size), tuple(notes)
        )
    if share > ROUNDING:
        notes.append(
            f"Only nearly critical: the gradient is {share:.1e} of its scale, σ₁^(2-1/L). The answer is that of a "
            "critical point near by; nearest_critical_point finds one."
        )
    if found.signature is None:
        notes.append(found.message)
    point = point.turned(turn)
    sigma, widths, rank = point.sigma, point.widths, len(chosen)
    kept = np.zeros_like(point.target)
    places = [i - 1 for i in chosen]
    kept[places] = point.target[places]
    distance = float(np.linalg.norm(multiply(point.layers) - kept))
    level = critical_value(sigma, chosen) + point.constant
    most = min(int(np.sum(sigma > WEAK * scale)), *widths)
    strongest = bool(np.all(sigma[:rank] - sigma[places] <= WEAK * scale))
    certificate: Certificate
    if strongest and rank == most:
        least = critical_value(sigma, tuple(range(1, most + 1))) + point.constant
        kind, certificate = KIND.global_minimum, Least(point.value, least)
    else:
        form = form_of(point.layers, sigma, chosen)
        pairs = pair_ranks(form, tolerance=rank_tolerance)
        direction = None
        if not strongest:
            direction = _best_swap(form, point, WEAK * scale)
        elif not all(pair.tight for pair in pairs):
            direction = pivot_direction(form, tolerance=rank_tolerance)
            if direction is None:
                raise HypothesisError(
                    "a critical point as far as ranks can tell",
                    criticality_residual(form) / point.steepness,
                    rank_tolerance,
                    "Its blocks are neither zero nor clearly not: take nearest_critical_point of it, or another "
                    "rank_tolerance.",
                )
        if direction is not None:
            kind, certificate = KIND.strict_saddle, _negative(point, direction)
        else:
            kind = KIND.non_strict_saddle
            certificate = Tightened(rank, pairs, _descent(form, point, rank_tolerance))
    return Classification(kind, found.signature, rank, point.value, level, size, distance, certificate, tuple(notes))


def _best_swap(form: CanonicalForm, point: Reduced, tie: float) -> Direction:
    """The swap with the smallest Rayleigh quotient in the coordinates of the problem."""
    swaps = [
        swap_direction(form, i, j)
        for j in form.signature
        for i in range(1, j)
        if i not in form.signature and form.sigma[i - 1] - form.sigma[j - 1] > tie
    ]
    return min(swaps, key=lambda swap: swap.value / size_of(point.lift(_host(swap.layers))) ** 2)


def _host(params: Params) -> Layers:
    return tuple(np.asarray(layer) for layer in params)


def _negative(point: Reduced, direction: Direction) -> NegativeDirection:
    lifted = point.lift(_host(direction.layers))
    size = size_of(lifted)
    value = curvature_along(point.layers, _host(direction.layers), point.target) / size**2
    unit = as_params(layer / size for layer in lifted)
    return NegativeDirection(unit, value, direction.value / size**2, direction.kind, direction.indices)


def _descent(form: CanonicalForm, point: Reduced, tolerance: float) -> Descent | None:
    r"""The loss falls at the order of the shortest chain of layers through which a mode can be added.

    A chain $i_1 > \dots > i_k$ with $K = Z_{i_k-1:1}\Sigma^\top U_Q Z_{L:i_1+1} \ne 0$ and all products of blocks
    between neighbours non-zero adds $\kappa\beta_1\cdots\beta_{k-1}\varepsilon^k$ to the inner product of target and
    product. There is no shorter chain, and what this one adds to the product itself begins at order $k - 1$ or later,
    so that its square does not count for $k \ge 3$.
    """
    clean = cleaned(form, tolerance)
    chain = _shortest_chain(clean, tolerance)
    if chain is None:
        return None
    left, _, right = np.linalg.svd(clean.around(chain[0], chain[-1]), full_matrices=False)
    ins, outs = {chain[-1]: left[:, 0]}, {chain[0]: right[0]}
    for upper, lower in itertools.pairwise(chain):
        u, _, v = np.linalg.svd(clean.between(upper - 1, lower + 1), full_matrices=False)
        ins[upper], outs[lower] = u[:, 0], v[0]
    moved = form.move(place(clean, {layer: np.outer(outs[layer], ins[layer]) for layer in chain}))
    # Layers of unit length each: then the whole is made one.
    moved = tuple(layer / (np.linalg.norm(layer) or 1.0) for layer in moved)
    size = size_of(point.lift(moved))
    unit = tuple(layer / size for layer in moved)
    line = loss_along(point.layers, unit, point.target)
    order, coefficient = len(chain), float(line[len(chain)])
    steps = np.geomspace(1e-3, 1e2, 400) * size * point.unit
    losses = np.polynomial.polynomial.polyval(steps, np.concatenate([[0.0], line[1:]]))
    first = int(np.argmax(np.diff(losses, append=np.inf) > 0)) if losses[0] < 0 else int(np.argmin(losses))
    if coefficient >= 0 or losses[first] >= 0:
        return None
    lifted = as_params(point.lift(unit))
    return Descent(lifted, order, coefficient, tuple(chain), float(steps[first]), -float(losses[first]))


def _shortest_chain(form: CanonicalForm, tolerance: float) -> list[int] | None:
    """Layers from the last-acting to the first-acting, as few as there can be; of equal chains the strongest end."""
    depth = form.depth
    linked = {
        (upper, lower)
        for lower, upper in itertools.combinations(range(1, depth + 1), 2)
        if rank_between(form, upper, lower, tolerance)
    }
    best: list[int] | None = None
    for last in range(depth, 0, -1):
        chains: dict[int, list[int]] = {last: [last]}
        for layer in range(last - 1, 0, -1):
            reached = [chains[upper] for upper in chains if (upper, layer) in linked]
            if reached:
                chains[layer] = [*min(reached, key=len), layer]
        for end, chain in chains.items():
            if (best is None or len(chain) < len(best)) and rank_around(form, last, end, tolerance):
                best = chain
    return best
