r"""How balanced independent Gaussian layers are: moments and spectrum of $C = W_2^\top W_2 - W_1 W_1^\top$.

Every entry of $C$ concentrates at its mean as the widths grow in fixed proportion, but there are as many eigenvalues as
hidden units and their spread does not shrink: $C$ is near a multiple of the identity entry by entry, not as a matrix,
unless the hidden layer is much narrower than both others.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    as_array,
    check_count,
    check_finite,
    check_result,
    check_shape,
    entry,
    fori_loop,
    formula,
    is_concrete,
    xp,
)
from deeplinear.models import (
    AbstractInit,
    DeepLinear,
    Gaussian,
    Glorot,
    He,
    LeCun,
    MatchedGaussian,
    Scaled,
)

HALVINGS = 60
"""Halvings of the bracket of an edge of the spectrum: more than double precision can tell apart."""

Rule: TypeAlias = LeCun | He | Glorot | Scaled
r"""Initialisations whose variances are fixed by the widths in such a way that only ratios of widths matter for
$\lambda$."""


class BalanceMoments(NamedTuple):
    r"""Mean and variances of the entries of $C$.

    Attributes:
        mean: Mean of the diagonal entries, which is $\lambda$; off the diagonal the mean is 0.
        diagonal: Variance of the diagonal entries.
        off_diagonal: Variance of the entries off the diagonal.
    """

    mean: Float[Array, ""]
    diagonal: Float[Array, ""]
    off_diagonal: Float[Array, ""]


class BalanceSpread(NamedTuple):
    r"""How far $C$ is from $\lambda I$ as a matrix, for wide layers.

    Attributes:
        lower: Where the spectrum of $C$ begins.
        upper: Where it ends.
        operator: $\|C - \lambda I\|$ in operator norm, the larger distance of the two from $\lambda$.
        frobenius: Root of the mean of $\|C - \lambda I\|_F^2$; exact at every width.
        relative_operator: `operator` over $|\lambda|$.
        relative_frobenius: `frobenius` over $\|\lambda I\|_F$.
    """

    lower: Float[Array, ""]
    upper: Float[Array, ""]
    operator: Float[Array, ""]
    frobenius: Float[Array, ""]
    relative_operator: Float[Array, ""]
    relative_frobenius: Float[Array, ""]


class LambdaLimits(NamedTuple):
    r"""Expected $\lambda$ for extreme ratios of the widths $(N, kN, rN)$; where it diverges, its leading term.

    Attributes:
        equal: $r = k$.
        small_r: $r \to 0$.
        large_r: $r \to \infty$.
        large_k: $k \to \infty$.
        small_k: $k \to 0$.
        matched: $r = k\,a_1^2/a_2^2$, for `Scaled`; otherwise not a number.
    """

    equal: Float[Array, "..."]
    small_r: Float[Array, "..."]
    large_r: Float[Array, "..."]
    large_k: Float[Array, "..."]
    small_k: Float[Array, "..."]
    matched: Float[Array, "..."]


@entry
def layer_variances(init: AbstractInit, widths: Sequence[int]) -> Float[Array, "2"]:
    r"""Variances $(v_1, v_2)$ of the entries of two Gaussian layers.

    Args:
        init: `Gaussian`, `MatchedGaussian`, `LeCun`, `He`, `Glorot` or `Scaled`.
        widths: Input, hidden and output width.

    Example:
        >>> layer_variances(LeCun(), (40, 20, 10))
        array([0.025, 0.05 ])
    """
    where = "layer_variances"
    inp, hidden, out = _widths(where, widths)
    if isinstance(init, MatchedGaussian):
        init = Gaussian(init.std(DeepLinear((inp, hidden, out))))
    return _layer_variances(init, *(as_array(width, float) for width in (inp, hidden, out)))


@formula
def _layer_variances(
    init: AbstractInit, inp: Float[Array, ""], hidden: Float[Array, ""], out: Float[Array, ""]
) -> Float[Array, "2"]:
    if isinstance(init, Gaussian):
        return xp.broadcast_to(init.std**2, (2,))
    first, second = _rule_variances("layer_variances", init, hidden / inp, out / inp)
    return xp.stack([first, second]) / inp


@entry
def balance_moments(widths: Sequence[int], variances: object, *, as_printed: bool = False) -> BalanceMoments:
    r"""Mean and variances of the entries of $C = W_2^\top W_2 - W_1 W_1^\top$ for independent Gaussian layers.

    With widths $(n_0, n_1, n_2)$ and variances $(v_1, v_2)$ the mean is $(n_2 v_2 - n_0 v_1) I$, the variance off the
    diagonal $b = n_2 v_2^2 + n_0 v_1^2$ and on it $2b$, exactly.

    Args:
        widths: Input, hidden and output width.
        variances: $v_1, v_2 \ge 0$, such as `layer_variances` gives.
        as_printed: Give $4b$ for the variance on the diagonal, as the paper does.

    Returns:
        The moments.

    Example:
        >>> moments = balance_moments((40, 120, 250), layer_variances(LeCun(), (40, 120, 250)))
        >>> round(float(moments.mean), 4), round(float(moments.off_diagonal) ** 0.5, 4)
        (1.0833, 0.2058)
    """
    where = "balance_moments"
    inp, _, out = _widths(where, widths)
    return _moments(_variances(where, variances), float(inp), float(out), 4.0 if as_printed else 2.0)


@formula
def _moments(variances: Float[Array, "2"], inp: ArrayLike, out: ArrayLike, share: ArrayLike) -> BalanceMoments:
    first, second = variances
    base = out * second**2 + inp * first**2
    return BalanceMoments(out * second - inp * first, share * base, base)


@entry
def balance_spread(widths: Sequence[int], variances: object) -> BalanceSpread:
    r"""Where the spectrum of $C$ begins and ends, and how far $C$ is from $\lambda I$ in operator and Frobenius norm.

    As the widths grow in proportion the spectrum is the free convolution of two Marchenko-Pastur laws: its edges are
    the extreme values of $\frac1z + \frac{n_2 v_2}{1 - n_1 v_2 z} - \frac{n_0 v_1}{1 + n_1 v_1 z}$ on the two sides of
    0. The mean of $\|C - \lambda I\|_F^2$ is $n_1(n_1 + 1) b$ with $b$ as in `balance_moments`.

    Args:
        widths: Input, hidden and output width.
        variances: $v_1, v_2 \ge 0$, such as `layer_variances` gives; not both zero.

    Returns:
        Edges and norms; relative ones are infinite where $\lambda = 0$.

    Example:
        >>> spread = balance_spread((1, 1, 4), [0.0, 1.0])  # (√4 ± √1)²
        >>> round(float(spread.lower), 12), round(float(spread.upper), 12)
        (1.0, 9.0)
    """
    where = "balance_spread"
    return _spread(_variances(where, variances), *map(float, _widths(where, widths)))


@formula
def _spread(variances: Float[Array, "2"], inp: ArrayLike, hidden: ArrayLike, out: ArrayLike) -> BalanceSpread:
    n0, n1, n2 = (xp.asarray(n, dtype=float) for n in (inp, hidden, out))
    moments = _moments(variances, n0, n2, 2.0)
    first, second = variances
    upper = _upper_edge(n0, n1, n2, first, second)
    lower = -_upper_edge(n2, n1, n0, second, first)
    operator = xp.maximum(upper - moments.mean, moments.mean - lower)
    frobenius = xp.sqrt(n1 * (n1 + 1) * moments.off_diagonal)
    size = xp.abs(moments.mean)
    relative = [xp.where(size > 0, x / xp.where(size > 0, size, 1.0), xp.inf) for x in (operator, frobenius)]
    return BalanceSpread(lower, upper, operator, frobenius, relative[0], relative[1] / xp.sqrt(n1))


@entry
def expected_lambda(init: Rule, k: ArrayLike, r: ArrayLike) -> Float[Array, "..."]:
    r"""Mean of $\lambda$ at an initialisation of widths $(N, kN, rN)$; $N$ does not matter.

    `LeCun`: $r/k - 1$. `He`: $2(r/k - 1)$. `Glorot`: $2k(r - 1)/((k + r)(k + 1))$. `Scaled`:
    $(r/k)\,a_2^2 - a_1^2$.

    Args:
        init: The initialisation.
        k: Hidden width over input width, positive.
        r: Output width over input width, positive.

    Returns:
        $\lambda$, of the common shape of `k` and `r`.

    Example:
        >>> float(expected_lambda(Glorot(), 0.5, 0.75).round(6))
        -0.133333
    """
    return check_result("expected_lambda", _expected(init, *_ratios("expected_lambda", k, r)))


@formula
def _expected(init: AbstractInit, hidden: Float[Array, "..."], out: Float[Array, "..."]) -> Float[Array, "..."]:
    if isinstance(init, Glorot):  # without the difference of the two nearly equal terms
        return 2 * hidden * (out - 1) / ((hidden + out) * (hidden + 1))
    first, second = _rule_variances("expected_lambda", init, hidden, out)
    return out * second - first


@entry
def lambda_variance(init: Rule, k: ArrayLike, r: ArrayLike, *, as_printed: bool = False) -> Float[Array, "..."]:
    r"""Variance of the entries of $C$ off the diagonal, times $N$, at an initialisation of widths $(N, kN, rN)$.

    `LeCun`: $r/k^2 + 1$. `He`: $4(r/k^2 + 1)$. `Glorot`: $4(r/(r+k)^2 + 1/(k+1)^2)$. `Scaled`:
    $r a_2^4/k^2 + a_1^4$. On the diagonal it is twice that.

    Args:
        init: The initialisation.
        k: Hidden width over input width, positive.
        r: Output width over input width, positive.
        as_printed: Take $a^2$ for $a^4$ in `Scaled`, as the paper's second table does.

    Returns:
        The variance times $N$, of the common shape of `k` and `r`.

    Example:
        >>> float(lambda_variance(LeCun(), 2.0, 4.0))
        2.0
    """
    return _off_diagonal(init, *_ratios("lambda_variance", k, r), as_printed)


@formula(static_argnums=3)
def _off_diagonal(
    init: AbstractInit, hidden: Float[Array, "..."], out: Float[Array, "..."], as_printed: bool
) -> Float[Array, "..."]:
    if as_printed and isinstance(init, Scaled):
        first, second = _gains("lambda_variance", init)
        return out * second**2 / hidden**2 + first**2
    first, second = _rule_variances("lambda_variance", init, hidden, out)
    return out * second**2 + first**2


@entry
def lambda_limits(init: Rule, k: ArrayLike, r: ArrayLike, *, as_printed: bool = False) -> LambdaLimits:
    r"""Expected $\lambda$ for extreme ratios of the widths, as functions of the ratio that is kept.

    Args:
        init: The initialisation.
        k: Hidden width over input width, positive.
        r: Output width over input width, positive.
        as_printed: The entries of the paper's third table, of which those for `Glorot` are others.

    Returns:
        The limits, of the common shape of `k` and `r`; where $\lambda$ diverges, its leading term $\propto r/k$.

    Example:
        >>> limits = lambda_limits(Glorot(), 3.0, 1.0)
        >>> float(limits.equal), float(limits.small_r), float(limits.large_r)
        (0.5, -0.5, 1.5)
    """
    return _limits(init, *_ratios("lambda_limits", k, r), as_printed)


@formula(static_argnums=3)
def _limits(
    init: AbstractInit, hidden: Float[Array, "..."], out: Float[Array, "..."], as_printed: bool
) -> LambdaLimits:
    one = xp.ones_like(hidden * out)
    if isinstance(init, Glorot):
        if as_printed:
            return LambdaLimits(0 * one, 2 * one, 2 * one, 0 * one, -2 / (hidden + 1) * one, xp.nan * one)
        equal, small, large = (hidden - 1) / (hidden + 1), -2 / (hidden + 1), 2 * hidden / (hidden + 1)
        return LambdaLimits(equal * one, small * one, large * one, 0 * one, 0 * one, xp.nan * one)
    first, second = _powers("lambda_limits", init)
    leading = out / hidden * second
    matched = 0 * one if isinstance(init, Scaled) else xp.nan * one
    return LambdaLimits((second - first) * one, -first * one, leading, -first * one, leading, matched)


@entry(instead="use expected_lambda")
def lambda_range(init: Rule, *, as_printed: bool = False) -> tuple[float, float]:
    r"""Bounds between which the expected $\lambda$ of an initialisation lies for all widths; they are not attained.

    Args:
        init: The initialisation.
        as_printed: The bound $\lambda \ge 0$ that the paper gives for `LeCun`.

    Returns:
        Greatest lower and least upper bound.

    Example:
        >>> lambda_range(LeCun())
        (-1.0, inf)
    """
    where = "lambda_range"
    if isinstance(init, Glorot):
        return -2.0, 2.0
    first, second = _powers(where, init)
    low, high = -float(first), math.inf if float(second) > 0 else -float(first)
    return (0.0, high) if as_printed and isinstance(init, LeCun) else (low, high)


@entry
def lambda_sign_boundary(init: Rule, k: ArrayLike, *, as_printed: bool = False) -> Float[Array, "..."]:
    r"""The ratio $r$ of output to input width at which the expected $\lambda$ is zero; it is positive above.

    `LeCun` and `He`: $r = k$. `Scaled`: $r = k\,a_1^2/a_2^2$. `Glorot`: $r = 1$, whatever the hidden width.

    Args:
        init: The initialisation.
        k: Hidden width over input width, positive.
        as_printed: What the paper says instead: $\lambda = 0$ at $r = k$ for `Glorot` (its third table), and
            $r = a_1^2/a_2^2$ without $k$ for `Scaled` (its list of cases).

    Returns:
        $r$, of the shape of `k`; infinite for `Scaled` with $a_2 = 0$.

    Example:
        >>> float(lambda_sign_boundary(Scaled([1.0, 2.0]), 2.0))
        0.5
    """
    hidden, _ = _ratios("lambda_sign_boundary", k, 1.0)
    return check_result("lambda_sign_boundary", _boundary(init, hidden, as_printed))


@formula(static_argnums=2)
def _boundary(init: AbstractInit, hidden: Float[Array, "..."], as_printed: bool) -> Float[Array, "..."]:
    if isinstance(init, Glorot):
        return hidden if as_printed else xp.ones_like(hidden)
    first, second = _powers("lambda_sign_boundary", init)
    ratio = xp.where(second > 0, first / xp.where(second > 0, second, 1.0), xp.inf)
    return ratio * (xp.ones_like(hidden) if as_printed and isinstance(init, Scaled) else hidden)


def _powers(where: str, init: AbstractInit) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Variance times fan-in, for each layer."""
    if isinstance(init, LeCun):
        return xp.ones(()), xp.ones(())
    if isinstance(init, He):
        return xp.full((), 2.0), xp.full((), 2.0)
    if isinstance(init, Scaled):
        first, second = _gains(where, init)
        return first**2, second**2
    raise TypeError(
        f"{where}: init must be LeCun, He, Glorot or Scaled, but is a {type(init).__name__}; for two variances of your "
        "own take balance_moments and balance_spread."
    )


def _rule_variances(
    where: str, init: AbstractInit, k: Float[Array, "..."], r: Float[Array, "..."]
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Variances of both layers, times the input width."""
    if isinstance(init, Glorot):
        return 2 / (1 + k), 2 / (k + r)
    first, second = _powers(where, init)
    return first, second / k


def _gains(where: str, init: Scaled) -> tuple[Float[Array, ""], Float[Array, ""]]:
    if init.gains.ndim == 0:
        return init.gains, init.gains
    check_shape(where, "the gains of init", init.gains, (2,))
    return init.gains[0], init.gains[1]


def _widths(where: str, widths: Sequence[int]) -> tuple[int, int, int]:
    """Input, hidden and output width, or a refusal."""
    if not isinstance(widths, Sequence) or len(widths) != 3:
        raise ValueError(f"{where}: widths must be (input, hidden, output), but is {widths!r}.")
    for name, width in zip(("input", "hidden", "output"), widths, strict=True):
        check_count(where, f"the {name} width", width, at_least=1)
    return int(widths[0]), int(widths[1]), int(widths[2])


def _variances(where: str, variances: object) -> Float[Array, "2"]:
    """Two variances, or a refusal."""
    array = as_array(variances, float)
    check_shape(where, "variances", array, (2,))
    check_finite(where, "variances", array)
    if is_concrete(array) and float(np.min(np.asarray(array))) < 0:
        raise ValueError(f"{where}: variances must not be negative, but holds {np.min(np.asarray(array)):g}.")
    return array


def _ratios(where: str, k: ArrayLike, r: ArrayLike) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Ratios of widths, or a refusal."""
    pair = []
    for name, value in (("k", k), ("r", r)):
        array = as_array(value, float)
        check_finite(where, name, array)
        if is_concrete(array) and array.size and not float(np.min(np.asarray(array))) > 0:
            raise ValueError(f"{where}: {name} must be greater than 0, but holds {np.min(np.asarray(array)):g}.")
        pair.append(array)
    return pair[0], pair[1]


@formula
def _upper_edge(
    inp: Float[Array, ""],
    hidden: Float[Array, ""],
    out: Float[Array, ""],
    first: Float[Array, ""],
    second: Float[Array, ""],
) -> Float[Array, ""]:
    r"""Upper edge of the spectrum of $W_2^\top W_2 - W_1 W_1^\top$.

    The function of the docstring of `balance_spread` is stationary in $z > 0$ where, with
    $p = n_1 v_2 z/(1 - n_1 v_2 z)$ and $q = n_1 v_1 z/(1 + n_1 v_1 z)$, $n_2 p^2 + n_0 q^2 = n_1$; the left side rises
    with $p$. Without a second layer it is the lower edge of one Marchenko-Pastur law, with the other sign.
    """
    only = second == 0
    second = xp.where(only, 1.0, second)

    def falls(p: Array) -> Array:
        return first * p / (second * (1 + p) + first * p)

    def halve(_: object, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        left, right = bracket
        middle = (left + right) / 2
        below = out * middle**2 + inp * falls(middle) ** 2 < hidden
        return xp.where(below, middle, left), xp.where(below, right, middle)

    bracket = (xp.zeros(()), xp.sqrt(hidden / out))
    left, right = fori_loop(0, HALVINGS, halve, bracket)
    p = (left + right) / 2
    edge = out * second * (1 + p) - inp * first * (1 - falls(p)) + hidden * second * (1 + p) / p
    return xp.where(only, -first * xp.maximum(xp.sqrt(inp) - xp.sqrt(hidden), 0.0) ** 2, edge)
