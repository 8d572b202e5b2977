r"""Two layers that hardly move: a certificate that training fits the observations near its start.

Let $J$ be the Jacobian of the observed entries of $W = AB$ with respect to both layers. It changes no faster than the
layers do, $\|J(X) - J(Y)\|_2 \le \|X - Y\|_F$, so a small enough loss is fitted before $J$ has lost its rank.
"""

import dataclasses
import math
from typing import Literal

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import Array, Params, check_count, check_number, check_x64, entry, xp
from deeplinear.exact._block_algebra import checked
from deeplinear.exact._disconnected import TwoLayerCompletion, two_layer_completion
from deeplinear.models import AbstractModel, DeepLinear, EntryCompletion, Problem, balancedness, entry_gram

GRAM_RATIO = 1e-4
r"""Where $\sigma_{\min}/\sigma_{\max}$ is below this, the square roots of the Gram matrix's eigenvalues have lost half
their digits and the singular values are taken from the Jacobian itself."""

SMALLEST_LAYERS, LARGEST_LAYERS = 1e-70, 1e70
"""Largest entry of layers whose powers in the certificate stay in the range of floating-point numbers."""

BALANCE_TOLERANCE = 1e-10
r"""Largest $\|A^\top A - BB^\top\|_F$, relative to $\|A\|_F^2$, that counts as balanced."""


@dataclasses.dataclass(frozen=True)
class LazyCertificate:
    r"""What a start tells of the training that follows; the bounds are `None` where the certificate does not apply.

    Attributes:
        reason: Why the certificate does not apply; empty where it does.
        constant: $k$, the square of the Lipschitz constant that was used.
        sigma_min: Smallest of the $N$ singular values of the Jacobian.
        sigma_max: Largest singular value.
        loss: Loss at the start.
        threshold: $\sigma_{\min}^6/(1152\,k\,\sigma_{\max}^2)$, the largest loss for which the certificate applies.
        imbalance: $\|A^\top A - BB^\top\|_F / \|A\|_F^2$.
        radius: $R = \sigma_{\min}/(4\sqrt k)$: the layers never leave the ball of this radius around their start.
        displacement: $\delta = 6\sqrt2\,(\sigma_{\max}/\sigma_{\min}^2)\sqrt{\text{loss}} \le R$: nor this smaller one.
        rate: $\sigma_{\min}^2/2$: the loss stays below its start times $e^{-\text{rate}\,t}$.
        raw_stable_rank: $\big((\|A\|_F - R/\sqrt2)_+ / (\|A\|_2 + R/\sqrt2)\big)^2$, which may be below 1.
        raw_sharper_stable_rank: The same with $\delta$ for $R$.
    """

    reason: str
    constant: int
    sigma_min: float
    sigma_max: float
    loss: float
    threshold: float
    imbalance: float
    radius: float | None
    displacement: float | None
    rate: float | None
    raw_stable_rank: float | None
    raw_sharper_stable_rank: float | None

    @property
    def applicable(self) -> bool:
        """Whether the loss is below the threshold and the layers are balanced."""
        return not self.reason

    @property
    def stable_rank(self) -> float | None:
        """Lower bound of the stable rank of $A$, and of $B$, at all later times; at least 1."""
        return None if self.raw_stable_rank is None else max(1.0, self.raw_stable_rank)

    @property
    def sharper_stable_rank(self) -> float | None:
        r"""The same from the displacement $\delta$ instead of the radius $R$."""
        return None if self.raw_sharper_stable_rank is None else max(1.0, self.raw_sharper_stable_rank)

    def loss_envelope(self, times: Float[Array | np.ndarray, "*times"] | float) -> Float[Array, "*times"] | None:
        """Upper bound of the loss at times after the start; `None` where the certificate does not apply."""
        seen = checked("LazyCertificate.loss_envelope", "times", times, at_least=0, finite=False)
        return None if self.rate is None else self.loss * xp.exp(-self.rate * seen)


def _jacobian(parts: TwoLayerCompletion) -> Float[np.ndarray, "entries size"]:
    """Jacobian of the entries: $b_j$ in the slots of row $i$ of $A$, $a_i$ in those of column $j$ of $B$."""
    a, b = np.asarray(parts.a), np.asarray(parts.b)
    entries = np.arange(len(parts.rows))
    by_a, by_b = np.zeros((len(entries), *a.shape)), np.zeros((len(entries), *b.shape))
    by_a[entries, parts.rows] = b[:, parts.columns].T
    by_b[entries, :, parts.columns] = a[parts.rows]
    return np.concatenate([by_a.reshape(len(entries), -1), by_b.reshape(len(entries), -1)], axis=1)


def _extremes(model: AbstractModel, parts: TwoLayerCompletion) -> tuple[float, float]:
    """Smallest of the `entries` singular values of the Jacobian, and the largest."""
    entries, size = len(parts.rows), parts.a.size + parts.b.size
    if entries <= size:
        gram = entry_gram(model, (parts.b, parts.a), parts.rows, parts.columns)
        eigenvalues = np.linalg.eigvalsh(np.asarray(gram))
        low, high = (math.sqrt(max(float(value), 0.0)) for value in (eigenvalues[0], eigenvalues[-1]))
        if low > GRAM_RATIO * high:
            return low, high
    values = np.linalg.svd(_jacobian(parts), compute_uv=False)
    return float(values[entries - 1]) if entries <= size else 0.0, float(values[0])


@entry(instead="call it outside of the transformation")
def lazy_certificate(
    problem: Problem,
    params: Params,
    *,
    constant: Literal["width", "one"] = "width",
    balance_tolerance: float = BALANCE_TOLERANCE,
) -> LazyCertificate:
    r"""Certificate that gradient flow of two balanced layers fits its observations close to where it starts.

    With the extreme singular values of the Jacobian $J$ of the $N$ observed entries, a loss of at most
    $\sigma_{\min}^6/(1152\,k\,\sigma_{\max}^2)$ decays at least like $e^{-\sigma_{\min}^2 t/2}$ while the layers move
    by at most $\delta \le R = \sigma_{\min}/(4\sqrt k)$. Balanced layers share their singular values, which then move
    by at most $R/\sqrt2$: the stable rank of either cannot fall far. The published $k$ is the width of the matrix;
    $k = 1$ holds as well. It applies to losses larger by that factor, within a larger radius: neither bound implies the
    other.

    Args:
        problem: Depth 2, a completion loss, no penalty; any shape and hidden width.
        params: Balanced layers, where the training in question starts.
        constant: `"width"` for $k$ = the larger of rows and columns of the product, `"one"` for $k = 1$.
        balance_tolerance: Largest relative imbalance that passes.

    Returns:
        The certificate; `applicable` and `reason` say whether there are bounds.

    Raises:
        HypothesisError: If the depth, the loss or the penalty is not of this kind.

    Example:
        >>> problem, params = toeplitz_example(4, 0.01)
        >>> round(lazy_certificate(problem, params).stable_rank, 3)
        2.778
    """
    where = "lazy_certificate"
    if constant not in ("width", "one"):
        raise ValueError(f"{where}: constant must be 'width' or 'one', but is {constant!r}.")
    check_number(where, "balance_tolerance", balance_tolerance, above=0)
    parts = two_layer_completion(where, problem, params)
    params = (parts.b, parts.a)
    largest = max(float(np.max(np.abs(np.asarray(layer)))) for layer in params)
    if largest > 0 and not SMALLEST_LAYERS <= largest <= LARGEST_LAYERS:
        raise ValueError(
            f"{where}: params must have a largest entry between {SMALLEST_LAYERS:g} and {LARGEST_LAYERS:g}, but it is "
            f"{largest:g}; rescale the problem."
        )
    low, high = _extremes(problem.model, parts)
    loss = float(problem.value(params))
    spectrum = np.linalg.svd(np.asarray(parts.a), compute_uv=False)
    square = float(np.sum(spectrum**2))
    imbalance = float(balancedness(params)[0]) / square if square > 0 else float(np.any(np.asarray(parts.b)))
    k = max(problem.model.product_shape) if constant == "width" else 1
    singular = low <= len(parts.rows) * np.finfo(float).eps * high
    threshold = 0.0 if singular else low**4 * (low / high) ** 2 / (1152 * k)
    if singular:
        reason = "The Jacobian of the observed entries has no full row rank: sigma_min is 0 to rounding."
    elif imbalance > balance_tolerance:
        reason = f"The layers are not balanced: relative imbalance {imbalance:.1e}, tolerance {balance_tolerance:.1e}."
    elif loss > threshold:
        reason = f"The loss {loss:.3e} exceeds the threshold {threshold:.3e}."
    else:
        reason = ""
    if reason:
        return LazyCertificate(reason, k, low, high, loss, threshold, imbalance, None, None, None, None, None)

    radius = low / (4 * math.sqrt(k))
    displacement = 6 * math.sqrt(2) * (high / low**2) * math.sqrt(loss)
    rank, sharper = (
        (max(math.sqrt(square) - reach / math.sqrt(2), 0.0) / (float(spectrum[0]) + reach / math.sqrt(2))) ** 2
        for reach in (radius, displacement)
    )
    rate = low**2 / 2
    return LazyCertificate("", k, low, high, loss, threshold, imbalance, radius, displacement, rate, rank, sharper)


@entry(instead="build its matrices with jax.numpy")
def toeplitz_example(size: int, ratio: ArrayLike, value: ArrayLike = 1.0) -> tuple[Problem, Params]:
    r"""Upper triangle of $w^\star_{ij} = w^\star c^{\,j-i}$, of rank one, and layers that have fitted its diagonal.

    Training of the diagonal from $\alpha I$ ends at $A = B = \sqrt{w^\star}\,I$, where the Jacobian of the entries
    $i \le j$ has all singular values $\sqrt{2w^\star}$ and the loss is $\tfrac12{w^\star}^2\sum_{k<d} (d-k)c^{2k}$.
    Only the observed triangle is built; the other one holds $c^{1-d}$ and overflows.

    Args:
        size: $d \ge 2$.
        ratio: $c > 0$.
        value: $w^\star > 0$.

    Returns:
        The problem and the layers.

    Example:
        >>> problem, params = toeplitz_example(3, 0.1)
        >>> round(float(problem.value(params)), 12)
        0.01005
    """
    where = "toeplitz_example"
    check_x64(where)
    check_count(where, "size", size, at_least=2)
    check_number(where, "ratio", ratio, above=0)
    check_number(where, "value", value, above=0)
    rows, columns = np.triu_indices(size)
    with np.errstate(under="ignore"):
        values = float(np.asarray(value)) * float(np.asarray(ratio)) ** (columns - rows)
    layer = xp.asarray(math.sqrt(float(np.asarray(value))) * np.eye(size), dtype=float)
    return Problem(DeepLinear((size,) * 3), EntryCompletion(rows, columns, values, (size, size))), (layer, layer)


def toeplitz_ratio(size: int, *, constant: Literal["width", "one"] = "width") -> float:
    r"""Largest ratio $c$ for which `lazy_certificate` applies to `toeplitz_example`, for every $w^\star$.

    The root of $\sum_{k=1}^{d-1} (d-k)\,c^{2k} = 1/(144\,k)$; about $1/(12d)$ for $k = d$ and $1/(12\sqrt d)$ for
    $k = 1$.

    Args:
        size: $d \ge 2$.
        constant: As in `lazy_certificate`.

    Returns:
        The ratio.

    Example:
        >>> round(10 * toeplitz_ratio(10), 5)
        0.08784
    """
    check_count("toeplitz_ratio", "size", size, at_least=2)
    if constant not in ("width", "one"):
        raise ValueError(f"toeplitz_ratio: constant must be 'width' or 'one', but is {constant!r}.")
    power = np.arange(1, size)
    limit = 1 / (144 * (size if constant == "width" else 1))

    # Newton in log c on the logarithm of the sum, which is convex, from above: the first term alone reaches the limit
    # at the start.
    log_ratio = 0.5 * math.log(limit / (size - 1))
    for _ in range(50):
        terms = np.exp(np.log(size - power) + 2 * (power - 1) * log_ratio)
        excess = math.log(terms.sum()) + 2 * log_ratio - math.log(limit)
        log_ratio -= excess * terms.sum() / float(np.sum(2 * power * terms))
    return math.exp(log_ratio)
