r"""Layers aligned with the task: the network falls apart into scalar chains, at any depth.

Mode $k$ is a chain of unit vectors $r_{0k}, \dots, r_{Lk}$, one for each layer of units, with $W_l r_{l-1,k} = a_{lk}
r_{lk}$ and $W_l^\top r_{lk} = a_{lk} r_{l-1,k}$; the ends $r_{0k}$ and $r_{Lk}$ are singular vectors of the target
$W^\star$ (and $r_{0k}$ an eigenvector of the input covariance, with eigenvalue $c_k$). Gradient flow then moves the
strengths only, $\dot a_{lk} = c_k (s_k - \prod_j a_{jk}) \prod_{j \ne l} a_{jk}$, each mode by itself. On observed
entries the same holds where every observed entry that is not zero stands alone in its row and column, and the chains
run between unit vectors.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import Array, Matrix, Params, as_array, over, xp
from deeplinear.exact._base import EXACT_BASIS, AbstractSolution, require, require_network
from deeplinear.exact._layer_modes import layer_mode
from deeplinear.exact._quadratic import quadratic
from deeplinear.models import Completion, EntryCompletion, Problem

ALIGNMENT_TOLERANCE = 1e-12
r"""Largest misalignment $\|W_l r_{l-1,k} - a_{lk} r_{lk}\|$, relative to the layer's largest singular value."""

NOTHING = 1e-14
"""Images below this, relative to the layer's largest singular value, may be rounding; see `_extend`."""

REAL = 1e-6
"""How closely a layer must lead a small image back to where it came from for it to be more than rounding."""

SAME = 1e-7
"""Singular values of the target closer than this, relative to the largest, may share one singular space."""

EPS = float(np.finfo(float).eps)


PLACE = "modes of the network that are modes of the target"


class Chains(NamedTuple):
    """Modes of an aligned network: unit vectors by layer of units, strengths, targets and rates."""

    vectors: tuple[Float[np.ndarray, "width modes"], ...]
    strengths: Float[np.ndarray, "modes depth"]
    targets: Float[np.ndarray, " modes"]
    rates: Float[np.ndarray, " modes"]


class AlignedSolution(AbstractSolution):
    r"""Network whose modes learn by themselves.

    Attributes:
        vectors: $r_{lk}$ in columns, for the units of layer $l = 0, \dots, L$.
        strengths: Layer strengths $a_{lk}$ at the start, (mode, layer).
        targets: $s_k$.
        rates: $c_k$; a mode that is not observed has rate 0 and rests.
    """

    problem: Problem
    start: Params
    residuals: Mapping[str, Float[Array, ""]]
    vectors: tuple[Matrix, ...]
    strengths: Float[Array, "modes depth"]
    targets: Float[Array, " modes"]
    rates: Float[Array, " modes"]

    @property
    def form(self) -> str:
        return "aligned modes"

    def mode_strengths(self, t: ArrayLike) -> Float[Array, "*times modes depth"]:
        """Layer strengths of every mode at a time, or at several."""
        times = as_array(t, float)
        found = over(lambda a, s, c: layer_mode(c * times, a, s))(self.strengths, self.targets, self.rates)
        return xp.moveaxis(found, 0, -2)

    def layers_at(self, t: Float[Array, "*times"]) -> tuple[Float[Array, "*times _ _"], ...]:
        moved = self.mode_strengths(t) - self.strengths
        return tuple(
            layer + (self.vectors[i + 1] * moved[..., None, :, i]) @ self.vectors[i].T
            for i, layer in enumerate(self.start)
        )

    def product_at(self, t: Float[Array, "*times"]) -> Float[Array, "*times out inp"]:
        first, *rest = self.layers_at(t)
        return functools.reduce(lambda product, layer: layer @ product, rest, first)

    def carried(self, times: Float[np.ndarray, " times"], last: Params, carry: bool) -> tuple[tuple[Any, ...], str]:
        return tuple(layer[None] for layer in last), EXACT_BASIS


def aligned(problem: Problem, params: Params) -> AlignedSolution:
    """The closed form of aligned modes, or a refusal by hypothesis."""
    network = require_network(problem)
    require("no penalty", float(problem.l2), 0.0, "A penalty does not keep what the layers conserve.")
    layers = [np.asarray(layer, dtype=float) for layer in params]
    loss = problem.loss
    if isinstance(loss, Completion | EntryCompletion):
        ends, residuals = _observed_ends(loss, network.product_shape)
    else:
        ends, residuals = _singular_ends(problem, layers)
    chains, misfit = _chains(layers, *ends)
    require(
        "layers aligned with the task",
        misfit,
        ALIGNMENT_TOLERANCE,
        "Start from TaskAligned, or from layers that share the singular vectors of the target.",
    )
    residuals["layers aligned with the task"] = misfit
    return AlignedSolution(
        problem,
        params,
        {name: xp.asarray(np.asarray(value), dtype=float) for name, value in residuals.items()},
        tuple(xp.asarray(v, dtype=float) for v in chains.vectors),
        xp.asarray(chains.strengths, dtype=float),
        xp.asarray(chains.targets, dtype=float),
        xp.asarray(chains.rates, dtype=float),
    )


Ends = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""First vectors, last vectors, targets and rates of all modes."""


def _singular_ends(problem: Problem, layers: list[np.ndarray]) -> tuple[Ends, dict[str, float]]:
    """Ends of the modes of a least-squares loss: singular vectors, chosen to fit the layers where they are free."""
    goal = quadratic(problem.loss)
    target, covariance = np.asarray(goal.target), np.asarray(goal.covariance)
    product = np.asarray(problem.product(tuple(xp.asarray(layer, dtype=float) for layer in layers)))
    modes = min(target.shape)
    left, values, right_t = np.linalg.svd(target)
    right = right_t.T
    top = max(values[0], 1e-300)
    spaces = np.split(np.arange(modes), np.flatnonzero(-np.diff(values) > SAME * top) + 1)
    for space in spaces:
        null = values[space[0]] <= max(target.shape) * EPS * top
        # A singular space is free: the product says which vectors the network uses there.
        columns = np.arange(space[0], right.shape[1]) if null else space
        rows = np.arange(space[0], left.shape[1]) if null else space
        inside = left[:, rows].T @ product @ right[:, columns]
        if len(rows) == len(columns) == 1 or not inside.any():
            continue
        turn_left, _, turn_right_t = np.linalg.svd(inside)
        if not null:  # One basis for both sides: that of the symmetric part of a product aligned with the task.
            _, turn = np.linalg.eigh((inside + inside.T) / 2)
            turn_left, turn_right_t = turn, turn.T
        left[:, rows] = left[:, rows] @ turn_left
        right[:, columns] = right[:, columns] @ turn_right_t.T
    first, last = right[:, :modes], left[:, :modes]
    rates = np.einsum("ik,ij,jk->k", first, covariance, first)
    spread = np.abs(covariance @ first - first * rates).max() / max(np.abs(covariance).max(), 1e-300)
    require(
        "inputs whose covariance shares the singular vectors of the target",
        spread,
        ALIGNMENT_TOLERANCE,
        "Whiten the inputs.",
    )
    values = np.einsum("ik,ij,jk->k", last, target, first)
    gap = float(np.abs(left.T @ target @ right - _rectangular(values, target.shape)).max()) / top
    residuals = {"inputs whose covariance shares the singular vectors of the target": spread, PLACE: gap}
    require(
        PLACE, gap, ALIGNMENT_TOLERANCE, "Nearly equal singular values of the target leave its vectors little room."
    )
    return (first, last, values, np.maximum(rates, 0.0)), residuals


def _rectangular(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A matrix with values on its diagonal."""
    matrix = np.zeros(shape)
    np.fill_diagonal(matrix, values)
    return matrix


def _observed_ends(loss: Completion | EntryCompletion, shape: tuple[int, int]) -> tuple[Ends, dict[str, float]]:
    """Ends of the modes of a completion loss: unit vectors of the rows and columns of its entries."""
    if isinstance(loss, Completion):
        mask, target = np.asarray(loss.mask) > 0, np.asarray(loss.target)
    else:
        mask, target = np.zeros(shape, bool), np.zeros(shape)
        mask[np.asarray(loss.rows), np.asarray(loss.columns)] = True
        target[np.asarray(loss.rows), np.asarray(loss.columns)] = np.asarray(loss.values)
    alone = mask & ((target != 0) | (mask.sum(0, keepdims=True) + mask.sum(1, keepdims=True) == 2))
    crowded = max(alone.sum(0).max(), alone.sum(1).max())
    name = "observed entries that are not zero stand alone in their rows and columns"
    require(name, float(crowded - 1), 0.0)
    rows, columns = (list(map(int, index)) for index in np.nonzero(alone))
    free = [i for i in range(shape[0]) if i not in rows], [j for j in range(shape[1]) if j not in columns]
    for i, j in zip(*free, strict=False):  # Rows and columns without one are paired in order, as in a diagonal.
        rows.append(i)
        columns.append(j)
    first, last = np.eye(shape[1])[:, columns], np.eye(shape[0])[:, rows]
    rates = mask[rows, columns].astype(float)
    return (first, last, np.where(rates > 0, target[rows, columns], 0.0), rates), {name: 0.0}


def _chains(
    layers: list[np.ndarray], first: np.ndarray, last: np.ndarray, targets: np.ndarray, rates: np.ndarray
) -> tuple[Chains, float]:
    """Follow every mode through the layers from both ends; gives the modes and their largest misfit."""
    depth, modes = len(layers), first.shape[1]
    tops = [max(float(np.linalg.norm(layer, 2)), 1e-300) for layer in layers]
    vectors = [first.copy(), *(np.full((len(layer), modes), np.nan) for layer in layers[:-1]), last.copy()]
    for k in range(modes):
        for i in range(depth - 1):  # forwards, as far as the mode has strength
            _extend(vectors[i + 1], k, layers[i], vectors[i][:, k], tops[i])
            if np.isnan(vectors[i + 1][0, k]):
                break
        for i in range(depth - 1, 0, -1):  # backwards, to where the forward chain came
            if not np.isnan(vectors[i][0, k]):
                break
            _extend(vectors[i], k, layers[i].T, vectors[i + 1][:, k], tops[i])
            if np.isnan(vectors[i][0, k]):
                break
    # A mode that is broken in two places is at rest: no gradient reaches it.
    whole = np.array([not any(np.isnan(v[0, k]) for v in vectors) for k in range(modes)])
    kept = [v[:, whole] for v in vectors]
    strengths = np.stack([np.einsum("ik,ij,jk->k", kept[i + 1], layers[i], kept[i]) for i in range(depth)], axis=1)
    misfit = 0.0
    for i, layer in enumerate(layers):
        down, up = kept[i], kept[i + 1]
        for gap in (layer @ down - up * strengths[:, i], layer.T @ up - down * strengths[:, i]):
            misfit = max(misfit, float(np.abs(gap).max(initial=0.0)) / tops[i])
        misfit = max(misfit, float(np.abs(up.T @ up - np.eye(up.shape[1])).max(initial=0.0)))
    product = layers[0]
    for layer in layers[1:]:
        product = layer @ product
    gap = product - (kept[-1] * strengths.prod(axis=1)) @ kept[0].T
    scale = max(float(np.abs(product).max()), float(np.abs(targets).max(initial=0.0)), 1e-300)
    misfit = max(misfit, float(np.abs(gap).max()) / scale)
    return Chains(tuple(kept), _tied(strengths, 4 * max(map(len, vectors)) * EPS), targets[whole], rates[whole]), misfit


def _tied(strengths: np.ndarray, rounding: float) -> np.ndarray:
    """Strengths in which those that equal the smallest of their mode to rounding equal it exactly.

    Layers that are equal stay equal and cannot change sign; the rounding of a projection must not make them differ.
    """
    sizes = np.abs(strengths)
    least = sizes.min(axis=1, keepdims=True)
    return np.where(sizes - least <= rounding * sizes, np.copysign(least, strengths), strengths)


def _extend(vectors: np.ndarray, k: int, layer: np.ndarray, before: np.ndarray, top: float) -> None:
    """The next vector of a chain, if the layer does not end it.

    A small image is real if the layer leads it back to where it came from; rounding is led anywhere.
    """
    image = layer @ before
    size = float(np.linalg.norm(image))
    if size == 0:
        return
    after = image / size
    returned = float(np.linalg.norm(layer.T @ after - size * before))
    if size > NOTHING * top or returned <= REAL * size:
        vectors[:, k] = after
