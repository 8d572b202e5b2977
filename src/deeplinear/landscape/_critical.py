r"""Critical points: their values, and how to build every one of them.

In coordinates in which the target is diagonal, $\Sigma$ with $\sigma_1 \ge \sigma_2 \ge \dots$ on its diagonal, the
product at a critical point is $S\Sigma$: it keeps the modes of a set $S$, its *signature*, and lacks the others. All
layers with this product are, in some basis $P_l$ of every hidden layer, of the normal form

$$W_1 = \begin{bmatrix} U_S^\top\Sigma \\ Z_1 \end{bmatrix}, \qquad
  W_l = \begin{bmatrix} I_r & 0 \\ 0 & Z_l \end{bmatrix}, \qquad
  W_L = \begin{bmatrix} U_S & U_Q Z_L \end{bmatrix}, \qquad r = |S|,$$

with $U_S$, $U_Q$ the columns of the identity inside and outside $S$ and $Z_{L:1} = 0$. They are critical if and only if
$Z_{j-1:1}\Sigma^\top U_Q Z_{L:j+1} = 0$ for every layer $j$; two vanishing blocks $Z$ are enough, but not needed.

A signature is a sorted tuple of mode numbers counted from 1, here and in everything that is printed. These functions
are algebra on small matrices and run on the host, in NumPy.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from deeplinear.core import (
    HypothesisError,
    Params,
    RandomKey,
    check_finite,
    check_key,
    check_number,
    check_shape,
    checked_layer,
    entry,
    is_concrete,
    near_name,
    random,
    xp,
)
from deeplinear.landscape._arguments import (
    Layers,
    Signature,
    Strengths,
    checked_network,
    checked_sigma,
    checked_signature,
)
from deeplinear.landscape._reduction import LARGEST_ENUMERATION

WORST_CONDITION = 1e12
"""Bases of hidden layers beyond this condition number are refused."""

EXACT = 1e-9
"""Residual of the criterion, relative to the sizes of its factors, up to which given blocks count as critical."""

TRIES = 200
"""How often sparse blocks are drawn before one more of them is left zero."""


def rectangular(sigma: np.ndarray, widths: Sequence[int]) -> np.ndarray:
    r"""$\Sigma$ of shape (out, in) on the host."""
    target = np.zeros((widths[-1], widths[0]))
    np.fill_diagonal(target, sigma)
    return target


def gradient_of(layers: Sequence[np.ndarray], target: np.ndarray) -> Layers:
    r"""Gradient of $\tfrac12\|\Sigma - W_{L:1}\|_F^2$, on the host."""
    prefixes = [np.eye(layers[0].shape[1])]
    for layer in layers:
        prefixes.append(layer @ prefixes[-1])
    backward, result = prefixes[-1] - target, []
    for layer, prefix in zip(reversed(layers), reversed(prefixes[:-1]), strict=True):
        result.append(backward @ prefix.T)
        backward = layer.T @ backward
    return tuple(reversed(result))


def size_of(layers: Sequence[np.ndarray]) -> float:
    """Frobenius norm of a list of matrices."""
    return math.sqrt(sum(float(np.sum(layer**2)) for layer in layers))


# --- Values -----------------------------------------------------------------------------------------------------------


@entry(instead="use arc_loss with equal signatures")
def critical_value(sigma: Strengths, signature: Iterable[int]) -> float:
    r"""Loss $\tfrac12\sum_{i \notin S}\sigma_i^2$ at the critical points of one signature.

    Args:
        sigma: Singular values of the target, largest first.
        signature: Modes that are learnt, counted from 1.

    Returns:
        The critical value.

    Example:
        >>> critical_value([3.0, 2.0, 1.0], (1, 3))
        2.0
    """
    values = np.asarray(checked_sigma("critical_value", sigma, ordered=True))
    learnt = set(checked_signature("critical_value", signature, len(values)))
    return 0.5 * math.fsum(float(s) ** 2 for i, s in enumerate(values, start=1) if i not in learnt)


@entry(instead="use arc_loss with equal signatures")
def critical_values(sigma: Strengths) -> dict[Signature, float]:
    r"""All $2^d$ critical values, smallest first.

    Args:
        sigma: Singular values of the target, largest first; at most 20 of them.

    Returns:
        The value $\tfrac12\sum_{i \notin S}\sigma_i^2$ of every signature. Equal values come in the order of the
        signatures, shorter ones first. With a bottleneck only the signatures of at most its width are taken.

    Example:
        >>> critical_values([3.0, 2.0])
        {(1, 2): 0.0, (1,): 2.0, (2,): 4.5, (): 6.5}
    """
    values = np.asarray(checked_sigma("critical_values", sigma, ordered=True))
    modes = range(1, len(values) + 1)
    if len(values) > LARGEST_ENUMERATION:
        raise ValueError(
            f"critical_values: sigma must hold at most {LARGEST_ENUMERATION} values, but holds {len(values)}, which "
            f"have 2^{len(values)} signatures; take critical_value(sigma, signature) of those you want."
        )
    squares = [float(s) ** 2 for s in values]
    table = [
        (0.5 * math.fsum(squares[i - 1] for i in modes if i not in signature), signature)
        for size in range(len(values) + 1)
        for signature in itertools.combinations(modes, size)
    ]
    table.sort(key=lambda row: (row[0], len(row[1]), row[1]))
    return {signature: value for value, signature in table}


# --- Points -----------------------------------------------------------------------------------------------------------


def fill_shapes(widths: Sequence[int], rank: int) -> tuple[tuple[int, int], ...]:
    """Shapes of the blocks $Z_1, …, Z_L$; there are none for a single layer."""
    depth = len(widths) - 1
    if depth == 1:
        return ()
    return tuple(
        (widths[layer] - rank, widths[layer - 1] - (rank if layer > 1 else 0)) for layer in range(1, depth + 1)
    )


def embed(blocks: Sequence[np.ndarray], signature: Signature, widths: Sequence[int]) -> Layers:
    """Blocks at the places of the $Z_l$, zero elsewhere."""
    rank, depth = len(signature), len(widths) - 1
    others = [i for i in range(widths[-1]) if i + 1 not in signature]
    layers = []
    for position, block in enumerate(blocks):
        layer = np.zeros((widths[position + 1], widths[position]))
        columns = slice(rank if position else 0, None)
        if position == depth - 1:
            layer[others, columns] = block
        else:
            layer[rank:, columns] = block
        layers.append(layer)
    return tuple(layers)


def skeleton(sigma: np.ndarray, widths: Sequence[int], signature: Signature) -> Layers:
    """The normal form without blocks: every learnt mode runs through one unit of each hidden layer."""
    rank, depth = len(signature), len(widths) - 1
    chosen = [i - 1 for i in signature]
    layers = [np.zeros((out, inp)) for inp, out in itertools.pairwise(widths)]
    if depth == 1:
        layers[0][chosen, chosen] = sigma[chosen]
        return tuple(layers)
    places = list(range(rank))
    layers[0][places, chosen] = sigma[chosen]
    for layer in layers[1:-1]:
        layer[places, places] = 1.0
    layers[-1][chosen, places] = 1.0
    return tuple(layers)


def change_basis(layers: Sequence[np.ndarray], gauge: Sequence[np.ndarray]) -> Layers:
    r"""$P_l W_l P_{l-1}^{-1}$, identities at both ends."""
    result = []
    for position, layer in enumerate(layers):
        if position > 0:
            layer = np.linalg.solve(gauge[position - 1].T, layer.T).T
        if position < len(layers) - 1:
            layer = gauge[position] @ layer
        result.append(layer)
    return tuple(result)


def criterion_terms(
    fills: Sequence[np.ndarray], sigma: np.ndarray, widths: Sequence[int], signature: Signature
) -> list[np.ndarray]:
    r"""$Z_{L:1}$ and $Z_{j-1:1}\Sigma^\top U_Q Z_{L:j+1}$ for every layer; nothing for a single layer."""
    if not fills:
        return []
    bridge = _bridge(sigma, widths, signature)
    right, left = [np.eye(widths[0])], [np.eye(bridge.shape[1])]
    for fill in fills:
        right.append(fill @ right[-1])
    for fill in reversed(fills):
        left.append(left[-1] @ fill)
    left.reverse()
    return [right[-1], *(right[j] @ bridge @ left[j + 1] for j in range(len(fills)))]


def _bridge(sigma: np.ndarray, widths: Sequence[int], signature: Signature) -> np.ndarray:
    r"""$\Sigma^\top U_Q$."""
    return rectangular(sigma, widths)[[i for i in range(widths[-1]) if i + 1 not in signature]].T


def spectral(matrix: np.ndarray) -> float:
    """Largest singular value; 0 for a matrix without entries."""
    return float(np.linalg.norm(matrix, 2)) if matrix.size else 0.0


def missed_criterion(
    fills: Sequence[np.ndarray], sigma: np.ndarray, widths: Sequence[int], signature: Signature
) -> float:
    """Largest term of the criterion, each over the product of the norms of its factors."""
    sizes = [spectral(fill) for fill in fills]
    strength = spectral(_bridge(sigma, widths, signature))
    possible = [math.prod(sizes), *(strength * math.prod(sizes[:j] + sizes[j + 1 :]) for j in range(len(sizes)))]
    terms = criterion_terms(fills, sigma, widths, signature)
    shares = [float(np.linalg.norm(t)) / most for t, most in zip(terms, possible, strict=False) if most > 0]
    return max(shares, default=0.0)


@entry(instead="use arc_point, or build the layers with jax.numpy", empty=True)
def normal_form(
    sigma: Strengths,
    widths: Sequence[int],
    signature: Iterable[int],
    fills: Sequence[Any] | None = None,
    gauge: Sequence[Any] | None = None,
) -> Params:
    r"""Layers of the normal form with given blocks $Z_l$ and bases $P_l$; critical or not.

    Their product is $S\Sigma + U_Q Z_{L:1}$.

    Args:
        sigma: Singular values of the target, largest first; as many as the smaller outer width.
        widths: $(d_0, \dots, d_L)$.
        signature: Modes that are learnt, counted from 1; at most the smallest width of them, of positive strength.
        fills: $Z_1, \dots, Z_L$; zero by default. With $r = |S|$ the first is $(d_1 - r, d_0)$, the others
            $(d_l - r, d_{l-1} - r)$.
        gauge: $P_1, \dots, P_{L-1}$; identities by default.

    Returns:
        The layers.

    Example:
        >>> normal_form([2.0, 1.0], (2, 2, 2), (1,), fills=([[0.0, 3.0]], [[5.0]]))[1]
        array([[1., 0.],
               [0., 5.]])
    """
    return tuple(
        xp.asarray(layer, dtype=float)
        for layer in _normal_form("normal_form", sigma, widths, signature, fills, gauge)[0]
    )


def _normal_form(
    where: str, sigma: Any, widths: Any, signature: Any, fills: Any, gauge: Any
) -> tuple[Layers, Layers, np.ndarray, tuple[int, ...], Signature]:
    """Layers, blocks, singular values, widths and signature, all looked at."""
    model = checked_network(where, widths)
    values = np.asarray(checked_sigma(where, sigma, ordered=True))
    check_shape(where, "sigma", values, (min(model.widths[0], model.widths[-1]),))
    chosen = checked_signature(where, signature, len(values), model.widths)
    if any(values[i - 1] <= 0 for i in chosen):
        raise ValueError(f"{where}: signature must name modes of positive strength, but is {chosen} with {values}.")
    shapes = fill_shapes(model.widths, len(chosen))
    if model.depth == 1 and len(chosen) < np.sum(values > 0):
        raise ValueError(
            f"{where}: signature must name all modes of a single layer, whose only critical point is the minimum, but "
            f"is {chosen}."
        )
    blocks = [np.zeros(shape) for shape in shapes]
    if fills is not None:
        check_shape(where, "fills", np.empty(len(tuple(fills))), (len(shapes),))
        for position, (fill, shape) in enumerate(zip(fills, shapes, strict=True)):
            if fill is not None:
                blocks[position] = np.asarray(checked_layer(where, f"fills[{position}]", fill), dtype=float)
                check_shape(where, f"fills[{position}]", blocks[position], shape)
                check_finite(where, f"fills[{position}]", blocks[position])
    layers = skeleton(values, model.widths, chosen)
    if shapes:
        layers = tuple(a + z for a, z in zip(layers, embed(blocks, chosen, model.widths), strict=True))
    if gauge is not None:
        bases = [np.asarray(checked_layer(where, f"gauge[{k}]", p), dtype=float) for k, p in enumerate(gauge)]
        check_shape(where, "gauge", np.empty(len(bases)), (model.depth - 1,))
        for position, basis in enumerate(bases):
            check_shape(where, f"gauge[{position}]", basis, (model.widths[position + 1],) * 2)
            check_finite(where, f"gauge[{position}]", basis)
            condition = float(np.linalg.cond(basis))
            if not condition <= WORST_CONDITION:
                raise ValueError(
                    f"{where}: gauge[{position}] must be invertible with a condition number of at most "
                    f"{WORST_CONDITION:g}, but has {condition:.1e}."
                )
        layers = change_basis(layers, bases)
    return layers, tuple(blocks), values, model.widths, chosen


@entry(instead="use arc_point, or build the layers with jax.numpy", empty=True)
def critical_point(
    sigma: Strengths,
    widths: Sequence[int],
    signature: Iterable[int],
    fills: Sequence[Any] | None = None,
    gauge: Sequence[Any] | None = None,
) -> Params:
    r"""A critical point of $\tfrac12\|\Sigma - W_{L:1}\|_F^2$: any of them, by its signature, blocks and bases.

    Args:
        sigma: Singular values of the target, largest first; as many as the smaller outer width.
        widths: $(d_0, \dots, d_L)$; hidden layers may be narrower than the outer ones.
        signature: Modes that are learnt, counted from 1.
        fills: $Z_1, \dots, Z_L$ with $Z_{j-1:1}\Sigma^\top U_Q Z_{L:j+1} = 0$ for all $j$; zero by default.
        gauge: Bases $P_1, \dots, P_{L-1}$ of the hidden layers; identities by default.

    Returns:
        The layers, with product $S\Sigma$ and no gradient.

    Raises:
        HypothesisError: The blocks do not satisfy the criterion; `normal_form` takes them.

    Example:
        >>> product = DeepLinear((3, 2, 2)).product(critical_point([2.0, 1.0], (3, 2, 2), (2,)))
        >>> product
        array([[0., 0., 0.],
               [0., 1., 0.]])
    """
    layers, blocks, values, dims, chosen = _normal_form("critical_point", sigma, widths, signature, fills, gauge)
    missed = missed_criterion(blocks, values, dims, chosen)
    if missed > EXACT:
        raise HypothesisError(
            "blocks with Z_{j-1:1} Σᵀ U_Q Z_{L:j+1} = 0 for every layer j",
            missed,
            EXACT,
            "Two blocks that vanish are enough; normal_form builds layers of the same pattern that are not critical.",
        )
    return tuple(xp.asarray(layer, dtype=float) for layer in layers)


@entry(instead="draw the point outside of the transformation", empty=True)
def random_critical_point(
    key: RandomKey,
    sigma: Strengths,
    widths: Sequence[int],
    signature: Iterable[int] | None = None,
    *,
    fills: Literal["blocks", "sparse"] = "blocks",
    condition: float = 10.0,
) -> Params:
    r"""A random critical point.

    Args:
        key: Source of randomness, such as `random.key(0)`.
        sigma: Singular values of the target, largest first.
        widths: $(d_0, \dots, d_L)$.
        signature: Modes that are learnt; by default half of the draws take the strongest ones, half any.
        fills: `"blocks"`: two or more of the $Z_l$ vanish, the others are Gaussian. `"sparse"`: all have few entries
            that happen to satisfy the criterion, with as few vanishing blocks as 200 draws for each number find; these
            are the critical points that a pair of vanishing blocks does not describe.
        condition: Largest condition number of the random bases of the hidden layers; 1 for orthogonal ones.

    Returns:
        The layers.

    Example:
        >>> problem = Problem(DeepLinear((3, 3, 2)), SquaredDistance(diagonal_target(jnp.array([2.0, 1.0]), 2, 3)))
        >>> params = random_critical_point(jax.random.key(0), [2.0, 1.0], (3, 3, 2), (1,))
        >>> bool(norm(problem.gradient(params)) < 1e-12), round(float(problem.value(params)), 12)
        (True, 0.5)
    """
    where = "random_critical_point"
    check_key(where, key)
    if not is_concrete(key):
        raise TypeError(f"{where}: key must be known, but is abstract; points are drawn on the host.")
    rng = np.random.default_rng(np.asarray(random.words(key)))
    values = np.asarray(checked_sigma(where, sigma, ordered=True))
    check_number(where, "condition", condition, at_least=1)
    if fills not in ("blocks", "sparse"):
        raise ValueError(f"{where}: fills {fills!r} is unknown. {near_name(fills, ('blocks', 'sparse'))}")
    dims = checked_network(where, widths).widths
    positive = int(np.sum(values > 0))
    most = min(positive, *dims)
    if signature is None:
        rank = most if len(dims) == 2 else int(rng.integers(0, most + 1))
        top = tuple(range(1, rank + 1))
        others = rng.choice(positive, size=rank, replace=False) + 1
        signature = top if rng.random() < 0.5 else tuple(sorted(int(i) for i in others))
    chosen = checked_signature(where, signature, len(values), dims)
    draw = _draw_sparse if fills == "sparse" else _draw_blocks
    blocks = draw(rng, values, dims, chosen)
    gauge = [_draw_basis(rng, width, condition) for width in dims[1:-1]]
    return critical_point(values, dims, chosen, blocks, gauge)


def _draw_basis(rng: np.random.Generator, width: int, condition: float) -> np.ndarray:
    left, right = (np.linalg.qr(rng.standard_normal((width, width)))[0] for _ in range(2))
    return left * condition ** rng.uniform(-0.5, 0.5, width) @ right


def _draw_blocks(
    rng: np.random.Generator, sigma: np.ndarray, widths: tuple[int, ...], signature: Signature
) -> list[np.ndarray]:
    shapes = fill_shapes(widths, len(signature))
    blocks = [rng.standard_normal(shape) for shape in shapes]
    needed = 0 if missed_criterion(blocks, sigma, widths, signature) == 0 else 2
    vanishing = (
        rng.choice(len(shapes), size=int(rng.integers(needed, len(shapes) + 1)), replace=False) if shapes else ()
    )
    for position in vanishing:
        blocks[position][:] = 0.0
    return blocks


def _draw_sparse(
    rng: np.random.Generator, sigma: np.ndarray, widths: tuple[int, ...], signature: Signature
) -> list[np.ndarray]:
    shapes = fill_shapes(widths, len(signature))
    for vanishing in range(len(shapes) + 1):
        for _ in range(TRIES):
            zero = rng.choice(len(shapes), size=vanishing, replace=False)
            blocks = []
            for position, (rows, columns) in enumerate(shapes):
                block = np.zeros((rows, columns))
                if position not in zero and block.size:
                    for _ in range(int(rng.integers(1, 3))):
                        block[rng.integers(rows), rng.integers(columns)] = rng.choice([-1, 1]) * rng.uniform(0.5, 1.5)
                blocks.append(block)
            if not any(term.any() for term in criterion_terms(blocks, sigma, widths, signature)):
                return blocks
    return []
