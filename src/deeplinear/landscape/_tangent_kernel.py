r"""The smallest eigenvalue of the tangent kernel: the rate at which the loss falls at this moment.

$K = \sum_{j=1}^L A_j\otimes B_j$ with $A_j = W_{L:j+1}W_{L:j+1}^\top$ and $B_j = W_{j-1:1}^\top W_{j-1:1}$ acts on
matrices as $X\mapsto\sum_jA_jXB_j$. Since $A_L = I$ and $B_1 = I$, it is at least $A_1\otimes I$ and $I\otimes B_L$.
Two layers have no other terms, so that $\lambda_{\min}(K) = \lambda_{\min}(W_2W_2^\top) + \lambda_{\min}(W_1^\top
W_1)$. Where the first layer has fewer outputs than inputs, all $B_j$, $j > 1$, vanish on its kernel, and
$\lambda_{\min}(K) = \lambda_{\min}(A_1)$; likewise $\lambda_{\min}(B_L)$ where the last layer has more outputs than
inputs.
"""

import itertools
import warnings
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, Params, entry, formula, spectrum
from deeplinear.landscape._arguments import check_range, host_layers, network_of, widths_of
from deeplinear.landscape._symmetric import eigenvalues
from deeplinear.models import DeepLinear

DENSE_ENTRIES = 900
"""Most entries of a product whose kernel a report decomposes as a matrix."""

LARGEST_MATRIX = 3000
"""Most entries of a product whose kernel is made as a matrix: 72 MB of numbers."""

LARGEST_ITERATED = 40_000
"""Most entries of a product whose kernel is iterated: seconds for layers of 200 by 200."""

BLOCK = 4
"""Vectors that are iterated together."""

RESIDUAL = 1e-9
"""Largest residual of an iterated eigenvector, relative to the largest entry of the kernel's diagonal."""

ITERATIONS = 1000
"""Most iterations; a hundred are usual."""


@entry
def sharp_rate(params: Params) -> Float[Array, ""]:
    r"""Smallest eigenvalue $\lambda_{\min}(K)$ of the tangent kernel: the best $k$ in $\dot F \le -2kF$ right now.

    $K = \sum_j (W_{L:j+1}W_{L:j+1}^\top)\otimes(W_{j-1:1}^\top W_{j-1:1})$ moves the product, so that
    $\dot F = -\langle M, KM\rangle$ with $\|M\|^2 = 2F$; the bound is attained for the residual $M$ that is the lowest
    eigenvector. This is the rate of $F = \tfrac12\|W_{L:1} - \Sigma\|_F^2$, whatever $\Sigma$ is, with all weights
    learnt; inputs that are not white, or entries that are not seen, make another one. Pure; may be mapped over networks
    of equal shape.

    Args:
        params: Layers, first-acting first. A product of more than 3000 entries is refused unless there are at most two
            layers, or the first layer narrows or the last one widens.

    Returns:
        The rate; 0 behind a bottleneck.

    Example:
        >>> float(sharp_rate((2 * jnp.eye(2), 3 * jnp.eye(2))))
        13.0
    """
    where = "sharp_rate"
    network = network_of(where, params)
    entries = network.widths[0] * network.widths[-1]
    if not _has_closed_form(network.widths) and entries > LARGEST_MATRIX:
        raise ValueError(
            f"{where}: params must have a product of at most {LARGEST_MATRIX} entries for a dense tangent kernel, but "
            f"it has {entries}, which take {8e-6 * entries**2:.0f} MB; rate_report needs no matrix."
        )
    rate = _sharp(network, params)
    check_range(where, rate)
    return rate


@formula
def _sharp(network: DeepLinear, params: Params) -> Float[Array, ""]:
    if _has_closed_form(network.widths):
        return _closed_form(network.widths, params, lambda matrix: spectrum(matrix)[-1])
    return eigenvalues(network.ntk(params))[0]


def _has_closed_form(widths: tuple[int, ...]) -> bool:
    return len(widths) <= 3 or widths[1] < widths[0] or widths[-2] < widths[-1]


def _closed_form(widths: tuple[int, ...], layers: Any, smallest: Any) -> Any:
    """The eigenvalue by smallest singular values: of two layers, or of those that a kernel of the others leaves."""
    zero = 0.0 * layers[0][0, 0]
    if len(widths) == 2:
        return zero + 1.0
    above = smallest(_multiply(layers[1:])) ** 2 if min(widths[1:]) == widths[-1] else zero
    below = smallest(_multiply(layers[:-1])) ** 2 if min(widths[:-1]) == widths[0] else zero
    return above + below if len(widths) == 3 else above if widths[1] < widths[0] else below


def _multiply(layers: Any) -> Any:
    product = layers[0]
    for layer in layers[1:]:
        product = layer @ product
    return product


def smallest_kernel_eigenvalue(where: str, params: Params) -> tuple[float | None, str]:
    """The eigenvalue that `sharp_rate` is, on the host, and how it was found; `None` with the reason where it was not.

    Without a closed form the matrix is decomposed where it is small. Else preconditioned conjugate gradients minimise
    the Rayleigh quotient. The preconditioner is the diagonal of the kernel in the eigenvectors of $A_1$ and $B_L$: for
    balanced layers it is the kernel itself.
    """
    layers = host_layers(where, params)
    widths = widths_of(layers)
    if _has_closed_form(widths):

        def smallest(matrix: np.ndarray) -> float:
            check_range(where, matrix)
            return float(np.linalg.svd(matrix, compute_uv=False)[-1])

        with np.errstate(over="ignore", invalid="ignore"):
            value = float(_closed_form(widths, layers, smallest))
        check_range(where, value)
        return value, "by singular values of layers"
    entries = widths[0] * widths[-1]
    if entries > LARGEST_ITERATED:
        return None, f"not computed: the product has {entries} entries, more than {LARGEST_ITERATED}"
    left = [*itertools.accumulate(reversed(layers[1:]), lambda above, layer: above @ layer, initial=np.eye(widths[-1]))]
    right = [*itertools.accumulate(layers[:-1], lambda below, layer: layer @ below, initial=np.eye(widths[0]))]
    with np.errstate(over="ignore", invalid="ignore"):
        pairs = [(a @ a.T, b.T @ b) for a, b in zip(reversed(left), right, strict=True)]
    check_range(where, *itertools.chain.from_iterable(pairs))
    if entries <= DENSE_ENTRIES:
        values = np.linalg.eigvalsh(sum(np.kron(a, b) for a, b in pairs))
        rounding = entries * float(np.finfo(float).eps * values[-1])
        return max(float(values[0]), 0.0), _exactness("by its matrix", values[0], rounding, "rounding")
    return _iterated(pairs)


def _iterated(pairs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float | None, str]:
    from scipy.sparse.linalg import LinearOperator, lobpcg

    # In the eigenvectors of the outermost terms the kernel is nearly diagonal.
    outer, inner = np.linalg.eigh(pairs[0][0])[1], np.linalg.eigh(pairs[-1][1])[1]
    pairs = [(outer.T @ a @ outer, inner.T @ b @ inner) for a, b in pairs]
    shape = (len(outer), len(inner))
    diagonal = np.sum([np.outer(np.diag(a), np.diag(b)) for a, b in pairs], axis=0).ravel()
    size, scale = len(diagonal), float(diagonal.max())
    if scale == 0.0:
        return 0.0, "which vanishes"

    def multiply(vectors: np.ndarray) -> np.ndarray:
        stacked = np.moveaxis(vectors.reshape(*shape, -1), -1, 0)
        total = np.zeros_like(stacked)
        for a, b in pairs:
            total += a @ stacked @ b
        return np.moveaxis(total, 0, -1).reshape(vectors.shape)

    def precondition(vectors: np.ndarray) -> np.ndarray:
        return (vectors.reshape(size, -1) / (diagonal + 1e-15 * scale)[:, None]).reshape(vectors.shape)

    def operator(apply: Any) -> Any:
        return LinearOperator((size, size), matvec=apply, matmat=apply, dtype=np.float64)  # pyright: ignore

    start = 1e-3 * np.random.default_rng(0).standard_normal((size, BLOCK))
    start[np.argsort(diagonal)[:BLOCK], range(BLOCK)] += 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # whether it converged is measured below
        values, vectors = lobpcg(
            operator(multiply),
            start,
            M=operator(precondition),
            largest=False,
            tol=RESIDUAL * scale,
            maxiter=ITERATIONS,
        )[:2]
    lowest = int(np.argmin(values))
    vector = vectors[:, lowest]
    missed = float(np.linalg.norm(multiply(vector) - values[lowest] * vector))
    if not missed <= 10 * RESIDUAL * scale:
        return None, f"not found: {ITERATIONS} iterations leave a residual of {missed:.1e}"
    return max(float(values[lowest]), 0.0), _exactness("by iteration", values[lowest], missed, "its residual")


def _exactness(how: str, value: float, error: float, kind: str) -> str:
    """How an eigenvalue was found, and its error where that exceeds it."""
    return how if value > error else f"{how}; zero up to {kind}, {error:.0e}"
