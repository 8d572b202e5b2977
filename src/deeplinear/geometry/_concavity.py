r"""Where the entropy is concave in the singular values, and why diagonal dominance does not show it.

With $u = \ln(s_i/s_j)$, $c = 1 - 1/L$ and $w = w_L(u)$ of `entropy_gradient`, the Hessian of one pair, scaled by the
singular values, is $\tfrac12\begin{pmatrix} w' - c - w & -w' \\ -w' & w' - c + w\end{pmatrix}$. It is negative definite
if and only if $c^2 - w^2 - 2cw' > 0$. That holds for every ratio at depth three and more; at depth two the left side
vanishes, as it must for $S_2 = \tfrac12\ln(s_1 + s_2)$. The entropy is a sum over pairs, so concavity of pairs carries
over.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, as_array, check_finite, check_x64, checked_layer, entry, formula, xp
from deeplinear.geometry._entropy import entropy_hessian, pair_curve
from deeplinear.geometry._metric import checked_depth
from deeplinear.geometry._pair_eigenvalues import pair_slope


@entry
def pair_concavity(log_ratio: Any, depth: float) -> Float[Array, "..."]:
    r"""$c^2 - w_L(u)^2 - 2c\,w_L'(u)$: four times the scaled Hessian determinant of the entropy of one pair.

    Positive where the entropy of the pair is strictly concave. At infinite depth it is
    $\mathcal L^2 + 4\mathcal L/u - 1$ with the Langevin function $\mathcal L(u)$. Computed as
    $(c - w)(c + w) - 2cw'$ from parts that keep their digits where all of them are small.

    Args:
        log_ratio: $u = \ln(s_i/s_j)$, any real numbers.
        depth: $L$, a positive integer or infinity.

    Returns:
        One number for each.

    Example:
        >>> round(float(pair_concavity(0.0, math.inf)), 12), round(float(pair_concavity(400.0, math.inf)), 6)
        (0.333333333333, 0.004981)
    """
    where = "pair_concavity"
    check_x64(where)
    rate = 1 / checked_depth(where, depth)
    u = as_array(checked_layer(where, "log_ratio", log_ratio), float)
    check_finite(where, "log_ratio", u)
    return _criterion(u, rate)


@entry(sized=("spectrum",))
def concavity_spectrum(spectrum: Any, depth: float) -> Float[Array, "*batch modes"]:
    r"""Eigenvalues of $s_i\,\partial^2 S_L/\partial s_i\partial s_j\,s_j$, in rising order.

    Unchanged when all singular values are multiplied by a number. The entropy is strictly concave at $s$ if and only
    if the last one is negative.

    Args:
        spectrum: Singular values, positive; leading dimensions are a batch.
        depth: $L$, a positive integer or infinity.

    Returns:
        The eigenvalues of each spectrum.

    Example:
        >>> concavity_spectrum([2.0, 2.0], math.inf).round(12)
        array([-0.5       , -0.16666667])
    """
    hessian = entropy_hessian(spectrum, depth)
    return _scaled_eigenvalues(hessian, as_array(spectrum, float))


@entry(sized=("spectrum",))
def diagonal_dominance(spectrum: Any, depth: float) -> Float[Array, "*batch modes"]:
    r"""$|H_{ii}| - \sum_{j\ne i}|H_{ij}|$ of the Hessian of the entropy: positive in rows that the diagonal dominates.

    Negative in the row of the larger value for ratios above `dominance_threshold`, although the Hessian is negative
    definite there too.

    Args:
        spectrum: Singular values, positive; leading dimensions are a batch.
        depth: $L$, a positive integer or infinity.

    Returns:
        One margin for each row.

    Example:
        >>> float(diagonal_dominance([20.0, 1.0], math.inf)[0].round(6))
        -0.000572
    """
    return _dominance(entropy_hessian(spectrum, depth))


def dominance_threshold(depth: float) -> float:
    r"""Ratio $s_i/s_j$ above which the Hessian of the entropy of a pair is not diagonally dominant.

    The root of $c + w_L(u) = (1 + e^u)\,w_L'(u)$. Infinite at depths one and two, where the two sides are equal.

    Args:
        depth: $L$, a positive integer or infinity.

    Returns:
        $e^u$.

    Example:
        >>> round(dominance_threshold(math.inf), 6)
        9.106688
    """
    where = "dominance_threshold"
    check_x64(where)
    rate = 1 / checked_depth(where, depth)
    if rate >= 0.5:
        return math.inf

    import scipy.optimize

    grid = np.linspace(0.5, 30.0, 60)
    first = int(np.argmax(_margin(grid, rate) < 0))
    bracket = (grid[first - 1], grid[first])
    root = scipy.optimize.root_scalar(lambda u: float(_margin(np.asarray(u), rate)), bracket=bracket, method="brentq")
    return math.exp(root.root)


@formula
def _scaled_eigenvalues(
    hessian: Float[Array, "*batch modes modes"], s: Float[Array, "*batch modes"]
) -> Float[Array, "*batch modes"]:
    return xp.linalg.eigvalsh(s[..., :, None] * hessian * s[..., None, :])


@formula
def _dominance(hessian: Float[Array, "*batch modes modes"]) -> Float[Array, "*batch modes"]:
    sizes = xp.abs(hessian)
    return 2 * xp.diagonal(sizes, axis1=-2, axis2=-1) - xp.sum(sizes, axis=-1)


@formula
def _criterion(u: Float[Array, "..."], rate: Any) -> Float[Array, "..."]:
    return pair_slope(u, rate) * pair_slope(-u, rate) - 2 * (1 - rate) * pair_curve(u, rate)


@formula
def _margin(u: Float[Array, "..."], rate: Any) -> Float[Array, "..."]:
    """What the diagonal of a pair exceeds the rest by, in the row of the larger value."""
    return pair_slope(u, rate) - (1 + xp.exp(u)) * pair_curve(u, rate)
