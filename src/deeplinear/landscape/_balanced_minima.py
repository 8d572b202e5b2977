r"""Balanced minima: the spectrum of the Hessian there, and the largest step of gradient descent that is stable.

All balanced minima with the same product have the same Hessian, up to orthogonal changes of basis.
"""

import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    check_count,
    check_number,
    check_x64,
    entry,
    formula,
    is_concrete,
    refused_derivative,
    xp,
)
from deeplinear.landscape._arguments import checked_sigma
from deeplinear.landscape._hessian import hessian_spectrum
from deeplinear.landscape._reduction import Reduction, reduction_of
from deeplinear.models import DeepLinear, Problem

WHITE = 1e-12
r"""Largest $\|S - cI\|_2/c$ of an input covariance that counts as white."""

TIE = 1e-9
"""Strengths that differ by less than this share of the larger one leave open which mode a bottleneck keeps."""


@entry
def balanced_spectrum(sigma: object, inp: int, depth: int, *, out: int | None = None) -> Float[Array, " eigenvalues"]:
    r"""Hessian spectrum at a balanced minimum: the $d_0 d_L$ eigenvalues that need not vanish.

    $\sum_{j=1}^L\sigma_a^{2(L-j)/L}\,\sigma_b^{2(j-1)/L}$ for outputs $a$ and inputs $b$, with $\sigma := 0$ beyond the
    modes and $0^0 = 1$; the spectrum of the tangent kernel there. The largest is $L\sigma_1^{2-2/L}$; with more inputs
    than outputs the smallest is $\sigma_{\min}^{2-2/L}$. The loss falls like $e^{-2\lambda_{\min}t}$ in the end. All
    other eigenvalues vanish. Pure.

    Args:
        sigma: Singular values of the task, in any order.
        inp: Input width $d_0$.
        depth: $L$.
        out: Output width $d_L$; as many as there are singular values by default.

    Returns:
        Eigenvalues in ascending order.

    Example:
        >>> balanced_spectrum(jnp.array([4.0, 1.0]), 3, 2).tolist()  # sums of two singular values, or one alone
        [1.0, 2.0, 4.0, 5.0, 5.0, 8.0]
    """
    where = "balanced_spectrum"
    check_x64(where)
    values = checked_sigma(where, sigma)
    modes = values.shape[0]
    check_count(where, "inp", inp, at_least=modes)
    out = modes if out is None else out
    check_count(where, "out", out, at_least=modes)
    check_count(where, "depth", depth, at_least=1)
    return _balanced(values, int(inp), int(depth), int(out))


@formula(static_argnames=("inp", "depth", "out"))
def _balanced(values: Float[Array, " modes"], inp: int, depth: int, out: int) -> Float[Array, " eigenvalues"]:
    if depth > 2:
        message = "balanced_spectrum: there is no derivative at a singular value of 0 beyond two layers; leave it out."
        values = refused_derivative(values, values == 0, message)
    left, right = (xp.pad(values ** (2 / depth), (0, size - values.shape[0])) for size in (out, inp))
    terms = [left[:, None] ** (depth - 1 - j) * right[None, :] ** j for j in range(depth)]
    return xp.sort(xp.sum(xp.stack(terms), axis=0).ravel())


@entry
def descent_threshold(task: object, depth: int | None = None) -> Float[Array, ""]:
    r"""Learning rate $2/\lambda_{\max}$ above which gradient descent cannot settle at a balanced minimum.

    On white inputs the largest Hessian eigenvalue there is $L\sigma_1^{2-2/L}$, with or without a bottleneck. For
    inputs of covariance $S$ and the least-squares product $W$, with largest singular value $s_1$, it is the largest
    eigenvalue of $\sum_{j=1}^L s_1^{2(L-j)/L}\,S^{1/2}(W^\top W)^{(j-1)/L}S^{1/2}$. Only a bottleneck under inputs
    that are not white needs the Hessian itself, which is then taken at a balanced minimum.

    Args:
        task: Singular values of the task, for white inputs; or a problem: a `DeepLinear` network that learns a whole
            matrix or from whole samples, without a penalty.
        depth: $L$; that of the network where a problem is given.

    Returns:
        The threshold; infinite where the minimum is flat, as for a target that vanishes.

    Raises:
        HypothesisError: The theory does not cover the problem; or the inputs are not white and the bottleneck cuts
            between modes of equal strength, so that the minima differ.

    Example:
        >>> float(descent_threshold(jnp.array([4.0, 1.0]), 2))
        0.25
    """
    where = "descent_threshold"
    check_x64(where)
    if isinstance(task, Problem):
        return 2 / _steepest(where, task, depth)
    sigma = checked_sigma(where, task)
    if depth is None:
        raise TypeError(f"{where}: depth must be given with singular values.")
    check_count(where, "depth", depth, at_least=1)
    top = xp.max(sigma)
    if is_concrete(top):
        check_number(where, "the largest singular value", top, above=0)
    return 2 / (depth * top ** (2 - 2 / depth))


def _steepest(where: str, problem: Problem, depth: int | None) -> Float[Array, ""]:
    """Largest eigenvalue of the Hessian at a balanced minimum of a problem."""
    reduction = reduction_of(problem)
    network = problem.model
    assert isinstance(network, DeepLinear)  # a reduction has no other
    if depth is not None and depth != network.depth:
        raise ValueError(f"{where}: depth must be that of the network, {network.depth}, but is {depth}.")
    sigma, gram = np.asarray(reduction.sigma), np.asarray(reduction.inner).T @ np.asarray(reduction.inner)
    modes = int(np.sum(sigma > max(gram.shape[0], len(sigma)) * np.finfo(float).eps * sigma[0]))
    rank = min(modes, *network.widths)
    product = _product(reduction, rank)
    speed = float(np.trace(gram)) / len(gram)
    colour = float(np.linalg.norm(gram - speed * np.eye(len(gram)), 2)) / speed
    if rank == modes or colour <= WHITE:
        return xp.asarray(_top(product, np.asarray(reduction.inner), network.depth, rank), dtype=float)
    # The residual of a bottleneck couples the first layer with the last.
    share = float(sigma[rank] / sigma[rank - 1])
    if share > 1 - TIE:
        raise HypothesisError(
            f"strengths {rank} and {rank + 1} of the task differ, where the bottleneck cuts (their ratio is below 1)",
            share,
            1 - TIE,
            "Several products have the least loss; take the Hessian at the minimum itself.",
        )
    inp, out = network.widths[0], network.widths[-1]
    narrow = DeepLinear((inp, *[rank] * (network.depth - 1), out))  # further hidden units only add zeros
    found = hessian_spectrum(Problem(narrow, problem.loss), _balanced_layers(product, narrow, rank), 1, "largest")
    return xp.asarray(found.values[-1], dtype=float)


def _product(reduction: Reduction, rank: int) -> np.ndarray:
    """The best product of a rank, in the coordinates of the data."""
    outer, inverse = np.asarray(reduction.outer), np.asarray(reduction.inner_inverse)
    return (outer[:, :rank] * np.asarray(reduction.sigma)[:rank]) @ inverse[:rank]


def _top(product: np.ndarray, inner: np.ndarray, depth: int, rank: int) -> float:
    r"""Largest eigenvalue of $\sum_j s_1^{2(L-j)/L}\,T^\top(W^\top W)^{(j-1)/L}T$, with $S = TT^\top$."""
    _, values, right = np.linalg.svd(product, full_matrices=True)
    strengths = np.zeros(len(right))
    strengths[:rank] = values[:rank] ** (2 / depth)
    weights = sum(strengths[0] ** (depth - 1 - j) * strengths**j for j in range(depth))
    seen = right @ inner
    return float(np.linalg.eigvalsh(seen.T @ (seen * np.asarray(weights)[:, None]))[-1])


def _balanced_layers(product: np.ndarray, network: DeepLinear, rank: int) -> tuple[Array, ...]:
    """Balanced layers of a product of given rank, all hidden layers of that width."""
    left, values, right = np.linalg.svd(product, full_matrices=False)
    root = values[:rank] ** (1 / network.depth)
    inside = [np.diag(root)] * (network.depth - 2)
    layers = (root[:, None] * right[:rank], *inside, left[:, :rank] * root)
    return tuple(xp.asarray(layer, dtype=float) for layer in layers)
