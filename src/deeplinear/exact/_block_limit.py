r"""Where deep networks end that see the diagonal blocks of a matrix, all entries equal, from one shared start.

The limit has one eigenvalue $\sigma_1$ and $n - 1$ eigenvalues $\sigma_2$; the rest vanish. With $q = (L-2)/L$ they
obey $\sigma_1 + (n-1)\sigma_2 = w^\star d$ and $\sigma_1^{-q} - \sigma_2^{-q} = C$, where $C = \lambda_1^{2-L} -
\lambda_2^{2-L}$ from the eigenvalues of a layer at the start. In these variables $C$ overflows for small starts and
cancels for nearly equal eigenvalues. Here the unknown is $h$ in $|\ln(\sigma_1/\sigma_2)| = \delta e^h$, $\delta =
|\ln(\lambda_1/\lambda_2)|$:

$$h + z + \psi(z) + q\ln(p + r e^{-x}) = \ln L + \psi((L-2)\delta) - (L-2)\ln\min\lambda + q\ln(w^\star d),$$

$x = \delta e^h$, $z = qx$, $\psi(z) = \ln((1-e^{-z})/z)$; $p$ and $r$ count the larger and the smaller value. Nothing
in it overflows or cancels, $\delta = 0$ and $L = 2$ are ordinary points, and the left side increases in $h$.
"""

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from deeplinear.core import Array, check_x64, differentiable, entry, formula, is_concrete, while_loop, xp
from deeplinear.exact._block_algebra import (
    DEEPEST,
    LARGEST,
    BlockMatrix,
    broadcast,
    check_blocks,
    checked,
    positive,
    spread,
)

CLOSE = 1e-9  # a Newton step this small leaves an error of its square
MAX_STEPS = 60  # bisection alone is through by then
LARGEST_EXPONENT = 700.0

# B_{2k} / (2k (2k)!) for k = 7, ..., 1: the even part of psi at small arguments.
_EVEN = (
    7 / 7322976460800,
    -691 / 15692092416000,
    1 / 479001600,
    -1 / 9676800,
    1 / 181440,
    -1 / 2880,
    1 / 24,
)


def log_mean(z: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    r"""$\psi(z) = \ln((1 - e^{-z})/z)$ for $z \ge 0$, smooth at 0."""
    near = z < 0.5
    small, large = xp.where(near, z, 0.0), xp.where(near, 1.0, z)
    even = xp.zeros_like(z)
    for coefficient in _EVEN:
        even = (even + coefficient) * small**2
    return xp.where(near, even - small / 2, xp.log(-xp.expm1(-large) / large))


def _distance(delta: Array, h: Array) -> Array:
    """delta e^h: by logarithms, since one factor may overflow; with its derivatives at delta = 0."""
    apart = delta > 0
    far = xp.exp(xp.log(xp.where(apart, delta, 1.0)) + xp.where(apart, h, 0.0))
    return xp.where(apart, far, delta * xp.exp(xp.minimum(h, LARGEST_EXPONENT)))


def _left_side(h: Array, delta: Array, q: Array, p: Array, r: Array) -> Array:
    x = _distance(delta, h)
    return h + q * x + log_mean(q * x) + q * xp.log(p + r * xp.exp(-x))


def _inverse(rho: Array, log_delta: Array, q: Array) -> Array:
    """The h with expm1(q x) / (q x) e^h = e^rho, x = delta e^h."""
    level = xp.log(q) + log_delta + rho
    epsilon = xp.exp(xp.minimum(level, 0.0))
    small = xp.where(epsilon > 0, xp.log1p(epsilon) / xp.where(epsilon > 0, epsilon, 1.0), 1.0)
    large = xp.maximum(level, 0.0)
    return rho + xp.where(level < 0, xp.log(small), xp.log(xp.logaddexp(large, 0.0)) - large)


@differentiable
def _root(target: Array, delta: Array, q: Array, p: Array, r: Array) -> Array:
    """The h where the left side is `target`: Newton's steps kept inside a bracket known in closed form."""
    log_delta = xp.log(delta)
    upper = _inverse(target - q * xp.log(p), log_delta, q)
    lower = upper - q * xp.log1p(r / p)  # the left side rises at least as fast as h
    margin = 1e-10 * (1 + xp.abs(upper))

    def going(carry: tuple[Array, ...]) -> Bool[Array, ""]:
        _, step, _, _, count = carry
        return xp.any(xp.abs(step) > CLOSE) & (count < MAX_STEPS)

    def newton(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        h, _, lower, upper, count = carry
        x = xp.exp(log_delta + h)
        z, rest = q * x, r * xp.exp(-x)
        psi = log_mean(z)
        excess = h + z + psi + q * xp.log(p + rest) - target
        lower, upper = xp.where(excess < 0, h, lower), xp.where(excess < 0, upper, h)
        following = h - excess / (xp.exp(-psi) - z * rest / (p + rest))
        following = xp.where((following >= lower) & (following <= upper), following, (lower + upper) / 2)
        return following, following - h, lower, upper, count + 1

    carry = (upper, xp.full_like(upper, xp.inf), lower - margin, upper + margin, xp.zeros((), int))
    return while_loop(going, newton, carry)[0]


@_root.defjvp
def _root_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    # Implicit differentiation; the root in it is again `_root`, so that derivatives of any order are right.
    target, delta, q, p, r = primals
    d_target, d_delta, d_q, _, _ = tangents
    h = _root(target, delta, q, p, r)
    import jax

    _, moved = jax.jvp(lambda delta, q: _left_side(h, delta, q, p, r), (delta, q), (d_delta, d_q))
    _, slope = jax.jvp(lambda h: _left_side(h, delta, q, p, r), (h,), (xp.ones_like(h),))
    return h, (d_target - moved) / slope


class BlockLimit(eqx.Module):
    r"""The end-to-end matrix at the end of training on block-diagonal observations.

    Its non-zero spectrum is `sigma_1`, once, on the vector of ones, and `sigma_2`, $n - 1$ times. Made by `block_limit`
    and `block_limit_from`; numbers of a batch share `blocks` and `size`.

    Attributes:
        log_ratio: $\ln(\sigma_1/\sigma_2)$: exact where $\sigma_2$ is too small for a floating-point number, infinite
            where it is zero, negative where $\sigma_2 > \sigma_1$.
        value: Observed value $w^\star$.
        blocks: $n$.
        size: $s$.
    """

    log_ratio: Float[Array, "*batch"]
    value: Float[Array, "*#batch"]
    blocks: int = eqx.field(static=True)
    size: int = eqx.field(static=True)

    @property
    def width(self) -> int:
        """$d = ns$."""
        return self.blocks * self.size

    @property
    def _counts(self) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
        """How often the larger and the smaller value occur."""
        larger = xp.where(self.log_ratio >= 0, 1.0, self.blocks - 1.0)
        return larger, self.blocks - larger

    @property
    def _gap(self) -> Float[Array, "*batch"]:
        """Logarithm of larger over smaller; like the absolute value, but with slope 1 at 0."""
        return xp.where(self.log_ratio >= 0, self.log_ratio, -self.log_ratio)

    @property
    def _largest(self) -> Float[Array, "*batch"]:
        p, r = self._counts
        return self.value * self.width / (p + r * xp.exp(-self._gap))

    @property
    @formula
    def sigma_1(self) -> Float[Array, "*batch"]:
        """Eigenvalue on the vector of ones."""
        return self._largest * xp.exp(xp.where(self.log_ratio >= 0, 0.0, self.log_ratio))

    @property
    @formula
    def sigma_2(self) -> Float[Array, "*batch"]:
        """Eigenvalue of multiplicity $n - 1$."""
        return self._largest * xp.exp(-xp.where(self.log_ratio >= 0, self.log_ratio, 0.0))

    @property
    @formula
    def log_sigma_2(self) -> Float[Array, "*batch"]:
        """Logarithm of `sigma_2`, finite where `sigma_2` itself underflows."""
        return xp.log(self._largest) - xp.where(self.log_ratio >= 0, self.log_ratio, 0.0)

    @property
    @formula
    def spectrum(self) -> Float[Array, "*batch width"]:
        """All singular values, largest first."""
        first, second = self.sigma_1[..., None], self.sigma_2[..., None]
        many = xp.broadcast_to(second, (*second.shape[:-1], self.blocks - 1))
        zeros = xp.zeros((*second.shape[:-1], self.width - self.blocks))
        ahead = xp.where(first >= second, xp.concatenate([first, many], -1), xp.concatenate([many, first], -1))
        return xp.concatenate([ahead, zeros], axis=-1)

    @property
    @formula
    def stable_rank_excess(self) -> Float[Array, "*batch"]:
        r"""Stable rank minus 1, with all its digits: $(n-1)(\sigma_2/\sigma_1)^2$ where $\sigma_1$ is the larger."""
        p, r = self._counts
        return (p - 1) + r * xp.exp(-2 * self._gap)

    @property
    @formula
    def stable_rank(self) -> Float[Array, "*batch"]:
        r"""$1 + (n-1)(\sigma_2/\sigma_1)^2$ where $\sigma_1$ is the larger."""
        return 1 + self.stable_rank_excess

    @property
    @formula
    def effective_rank_excess(self) -> Float[Array, "*batch"]:
        """Effective rank minus 1, with all its digits."""
        p, r = self._counts
        finite = xp.where(xp.isinf(self._gap), 0.0, self._gap)
        smaller = r * xp.exp(-self._gap)
        return xp.expm1(xp.log1p((p - 1) + smaller) + smaller * finite / (p + smaller))

    @property
    @formula
    def effective_rank(self) -> Float[Array, "*batch"]:
        """Exponential of the entropy of the normalised singular values."""
        return 1 + self.effective_rank_excess

    @property
    @formula
    def nuclear_norm(self) -> Float[Array, "*batch"]:
        r"""$\sigma_1 + (n-1)\sigma_2$; the constraint makes it $w^\star d$ for every depth and start."""
        return self.sigma_1 + (self.blocks - 1) * self.sigma_2

    @property
    @formula
    def unobserved(self) -> Float[Array, "*batch"]:
        r"""Value $(\sigma_1 - \sigma_2)/d = w^\star - \sigma_2/s$ of every unobserved entry."""
        difference = -xp.expm1(-self._gap) * self._largest / self.width
        return xp.where(self.log_ratio >= 0, difference, -difference)

    @property
    @formula
    def test_error(self) -> Float[Array, "*batch"]:
        r"""How far every unobserved entry misses the completion of rank one: $\sigma_2/s$."""
        return self.sigma_2 / self.size

    def matrix(self) -> BlockMatrix:
        r"""The limit $M(w^\star, w^\star, c)$, $c$ the unobserved value."""
        value = spread(self.value, self.log_ratio.shape)
        return BlockMatrix(value, value, self.unobserved, blocks=self.blocks, size=self.size)


def _log_ratio(depth: Array, log_small: Array, gap: Array, value: Array, blocks: ArrayLike, size: ArrayLike) -> Array:
    r"""$\ln(\sigma_1/\sigma_2)$ from $\ln\min\lambda$ and the gap $\ln(\lambda_1/\lambda_2)$, which may be infinite."""
    depth, log_small, gap, value = xp.broadcast_arrays(depth, log_small, gap, value)
    forward = gap >= 0
    far = xp.isinf(gap)
    delta = xp.where(far, 1.0, xp.where(forward, gap, -gap))
    p = xp.where(forward, 1.0, blocks - 1.0)
    k = depth - 2
    q = k / depth
    smallest = xp.where(far, 0.0, log_small)
    target = xp.log(depth) + log_mean(k * delta) - k * smallest + q * xp.log(value * blocks * size)
    h = _root(target, delta, q, p, blocks - p)
    x = xp.where(far, xp.inf, _distance(delta, h))
    return xp.where(forward, x, -x)


@formula
def _from_family(depth: Array, alpha: Array, m: Array, value: Array, blocks: ArrayLike, size: ArrayLike) -> Array:
    return _log_ratio(depth, *_family(alpha, m, blocks * size), value, blocks, size)


@formula
def _from_eigenvalues(
    depth: Array, first: Array, second: Array, value: Array, blocks: ArrayLike, size: ArrayLike
) -> Array:
    log_small = xp.log(xp.where(first >= second, second, first))
    return _log_ratio(depth, log_small, log_quotient(first, second), value, blocks, size)


def _problem(
    where: str, depth: ArrayLike, value: ArrayLike, blocks: int, size: int, *, above: float | None = None
) -> tuple[Array, Array]:
    """Checked depth and observed value."""
    check_x64(where)
    check_blocks(where, blocks, size)
    at_least = 2 if above is None else None
    depth = checked(where, "depth", depth, above=above, at_least=at_least, at_most=DEEPEST)
    value = positive(where, "value", value)
    if is_concrete(value) and float(np.max(np.asarray(value), initial=0.0)) * blocks * size > LARGEST:
        raise ValueError(
            f"{where}: value times blocks times size must be at most {LARGEST:g}, but value reaches "
            f"{np.max(np.asarray(value)):g} with blocks={blocks}, size={size}."
        )
    return depth, value


def _checked_family(where: str, alpha: ArrayLike, m: ArrayLike) -> tuple[Array, Array]:
    return positive(where, "alpha", alpha), checked(where, "m", m, at_least=1, finite=False)


def _family(alpha: Array, m: Array, width: ArrayLike) -> tuple[Array, Array]:
    r"""$\ln\lambda_2$ and $\ln(\lambda_1/\lambda_2)$ of a layer $\alpha$ on the diagonal, $\alpha/m$ off it."""
    one = m == 1
    safe = xp.where(one, 2.0, m)
    # ln((m - 1)/m) and ln(1 + d/(m - 1)) without loss near 1 and for m as large as one likes.
    ratio = xp.where(safe < 2, xp.log(safe - 1) - xp.log(safe), xp.log1p(-1 / safe))
    log_small = xp.where(one, -xp.inf, xp.log(alpha) + ratio)
    return log_small, xp.where(one, xp.inf, xp.log1p(width / (safe - 1)))


def log_quotient(first: Float[Array, "*batch"], second: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Logarithm of a quotient of positive numbers, with all digits where they are nearly equal."""
    near = (first < 2 * second) & (second < 2 * first)
    safe = xp.where(near, second, 1.0)
    difference = xp.where(near, first - second, 0.0)
    return xp.where(near, xp.log1p(difference / safe), xp.log(first) - xp.log(second))


@entry
def block_limit(
    depth: ArrayLike, alpha: ArrayLike, m: ArrayLike, *, blocks: int, size: int = 1, value: ArrayLike = 1.0
) -> BlockLimit:
    r"""Limit of gradient flow on block-diagonal observations, layers $\alpha$ on the diagonal and $\alpha/m$ off it.

    The $n$ diagonal blocks of size $s$ are observed and equal to $w^\star$; the loss is $\tfrac12\sum(w_{ij} -
    w^\star)^2$ over them. Depth 2: $\sigma_2/\sigma_1 = ((m-1)/(m+d-1))^2$ for every $\alpha$. Deeper: $\sigma_2 \to 0$
    as $\alpha \to 0$, and only $\alpha^L/w^\star$ matters. $m = \infty$ is decoupled, $\sigma_1 = \sigma_2 = sw^\star$;
    $m = 1$ has rank one. Arguments are broadcast against each other, and the result can be differentiated in all of
    them.

    Args:
        depth: $L$, any real number from 2 to $10^{15}$.
        alpha: $\alpha > 0$, between $10^{-300}$ and $10^{300}$ as every scale here.
        m: $m \in [1, \infty]$.
        blocks: $n \ge 2$.
        size: $s \ge 1$.
        value: $w^\star \ge 10^{-300}$ with $w^\star d \le 10^{300}$.

    Returns:
        The limit, with the broadcast shape of the arguments.

    Raises:
        ValueError: An argument is outside its domain; it is named.

    Example:
        >>> limit = block_limit(3, 0.1, 2.0, blocks=10)
        >>> round(float(limit.stable_rank), 6), round(float(limit.nuclear_norm), 12)
        (1.0, 10.0)
        >>> round(float(block_limit(2, 0.1, 2.0, blocks=10).sigma_2), 6)
        0.076923
    """
    where = "block_limit"
    depth, value = _problem(where, depth, value, blocks, size)
    scale, m = _checked_family(where, alpha, m)
    broadcast(where, depth=depth, alpha=scale, m=m, value=value)
    return BlockLimit(_from_family(depth, scale, m, value, blocks, size), value, blocks, size)


@entry
def block_limit_from(
    depth: ArrayLike, lambda1: ArrayLike, lambda2: ArrayLike, *, blocks: int, size: int = 1, value: ArrayLike = 1.0
) -> BlockLimit:
    r"""Limit of gradient flow on block-diagonal observations from any shared start $M(a, b, c)$.

    Every layer starts from the matrix with eigenvalues $\lambda_1$ on the vector of ones and $\lambda_2$ on vectors
    constant in each block that sum to zero. $\lambda_2 > \lambda_1$ ends with $\sigma_2 > \sigma_1$.

    Args:
        depth: $L$, any real number from 2 on.
        lambda1: $\lambda_1 > 0$.
        lambda2: $\lambda_2 > 0$.
        blocks: $n \ge 2$.
        size: $s \ge 1$.
        value: $w^\star > 0$.

    Returns:
        The limit, with the broadcast shape of the arguments.

    Example:
        >>> limit = block_limit_from(2, 1.0, 2.0, blocks=3)
        >>> round(float(limit.sigma_2 / limit.sigma_1), 12)
        4.0
    """
    where = "block_limit_from"
    depth, value = _problem(where, depth, value, blocks, size)
    first, second = positive(where, "lambda1", lambda1), positive(where, "lambda2", lambda2)
    broadcast(where, depth=depth, lambda1=first, lambda2=second, value=value)
    return BlockLimit(_from_eigenvalues(depth, first, second, value, blocks, size), value, blocks, size)


@entry
def block_small_scale(
    depth: ArrayLike, alpha: ArrayLike, m: ArrayLike, *, blocks: int, size: int = 1
) -> Float[Array, "*batch"]:
    r"""The law $\sigma_2 \simeq |C|^{-L/(L-2)}$ of small starts, depth above 2.

    $|C| = \lambda_2^{2-L} - \lambda_1^{2-L}$ from the eigenvalues of a layer at the start. $\sigma_2$ is proportional
    to $\alpha^L$ at every depth, and does not depend on $w^\star$.

    Args:
        depth: $L > 2$.
        alpha: $\alpha > 0$.
        m: $m \in [1, \infty)$.
        blocks: $n \ge 2$.
        size: $s \ge 1$.

    Returns:
        Leading term of $\sigma_2$ as $\alpha \to 0$.

    Example:
        >>> law, limit = (f(4, 1e-3, 10.0, blocks=10) for f in (block_small_scale, block_limit))
        >>> round(1e7 * float(law / limit.sigma_2 - 1), 1)
        6.6
    """
    where = "block_small_scale"
    depth, _ = _problem(where, depth, 1.0, blocks, size, above=2)
    checked(where, "m", m)
    scale, m = _checked_family(where, alpha, m)
    broadcast(where, depth=depth, alpha=scale, m=m)
    return _small_scale(depth, scale, m, float(blocks * size))


@formula
def _small_scale(depth: Array, scale: Array, m: Array, width: ArrayLike) -> Array:
    log_small, gap = _family(scale, m, width)
    k = depth - 2
    return xp.exp(depth * (log_small - xp.log(-xp.expm1(-k * gap)) / k))


@entry
def block_crossover(
    depth: ArrayLike, alpha: ArrayLike, *, blocks: int, size: int = 1, value: ArrayLike = 1.0
) -> Float[Array, "*batch"]:
    r"""The $m^\star = (L-2)\,d\,\alpha^{2-L}(sw^\star)^{(L-2)/L}$ around which the limit leaves rank one for rank $n$.

    A start with $m \ll m^\star$ ends near rank one, one with $m \gg m^\star$ near rank $n$: no finite $m$ stands for
    $m = \infty$ at every scale.

    Args:
        depth: $L > 2$.
        alpha: $\alpha > 0$.
        blocks: $n \ge 2$.
        size: $s \ge 1$.
        value: $w^\star > 0$.

    Returns:
        $m^\star$.

    Example:
        >>> round(float(block_crossover(3, 0.1, blocks=10)), 9)
        100.0
    """
    where = "block_crossover"
    depth, value = _problem(where, depth, value, blocks, size, above=2)
    scale = positive(where, "alpha", alpha)
    broadcast(where, depth=depth, alpha=scale, value=value)
    return _crossover(depth, scale, value, float(blocks), float(size))


@formula
def _crossover(depth: Array, scale: Array, value: Array, blocks: ArrayLike, size: ArrayLike) -> Array:
    k = depth - 2
    return k * blocks * size * xp.exp(k * (xp.log(size * value) / depth - xp.log(scale)))


@entry
def block_constant(
    depth: ArrayLike, alpha: ArrayLike, m: ArrayLike, *, blocks: int, size: int = 1
) -> Float[Array, "*batch"]:
    r"""$C = (\alpha/m)^{2-L}[(m+d-1)^{2-L} - (m-1)^{2-L}]$ exactly as it is written, for comparison.

    Loses as many digits as $m/d$ has, and overflows for small $\alpha$; `block_limit` does without it.

    Args:
        depth: $L > 2$.
        alpha: $\alpha > 0$.
        m: $m \in (1, \infty)$.
        blocks: $n \ge 2$.
        size: $s \ge 1$.

    Returns:
        The conserved quantity of the flow.

    Example:
        >>> float(block_constant(3, 0.5, 2.0, blocks=2))
        -2.666666666666667
    """
    where = "block_constant"
    depth, _ = _problem(where, depth, 1.0, blocks, size, above=2)
    scale, m = positive(where, "alpha", alpha), checked(where, "m", m, above=1)
    broadcast(where, depth=depth, alpha=scale, m=m)
    return _constant(depth, scale, m, float(blocks * size))


@formula
def _constant(depth: Array, scale: Array, m: Array, width: ArrayLike) -> Array:
    power = 2 - depth
    return (scale / m) ** power * ((m + width - 1) ** power - (m - 1) ** power)


@entry
def block_equation_1(
    sigma_1: ArrayLike, depth: ArrayLike, *, blocks: int, size: int = 1, value: ArrayLike = 1.0
) -> Float[Array, "*batch"]:
    r"""$f_1(\sigma) = \sigma^{-q} - ((w^\star d - \sigma)/(n-1))^{-q}$, $q = (L-2)/L$.

    The limit solves $f_1(\sigma_1) = C$. Decreases on $(0, w^\star d)$ from $\infty$ to $-\infty$: the limit is unique.
    Cancels for small $\sigma_2$.

    Args:
        sigma_1: Points of $(0, w^\star d)$; others that can be seen are refused.
        depth: $L > 2$.
        blocks: $n \ge 2$.
        size: $s \ge 1$.
        value: $w^\star > 0$.

    Returns:
        $f_1$, to be compared with `block_constant`.

    Example:
        >>> float(block_equation_1(1.0, 4, blocks=2))
        0.0
    """
    where = "block_equation_1"
    depth, value = _problem(where, depth, value, blocks, size, above=2)
    sigma = positive(where, "sigma_1", sigma_1)
    broadcast(where, sigma_1=sigma, depth=depth, value=value)
    rest = value * blocks * size - sigma
    _check_rest(where, "sigma_1", "value * d", rest)
    q = (depth - 2) / depth
    return sigma**-q - (rest / (blocks - 1)) ** -q


@entry
def block_equation_2(
    sigma_2: ArrayLike, depth: ArrayLike, *, blocks: int, size: int = 1, value: ArrayLike = 1.0
) -> Float[Array, "*batch"]:
    r"""$f_2(\sigma) = (w^\star d - (n-1)\sigma)^{-q} - \sigma^{-q}$, $q = (L-2)/L$.

    The limit solves $f_2(\sigma_2) = C$. Increases on $(0, w^\star d/(n-1))$ from $-\infty$ to $\infty$: the limit is
    unique.

    Args:
        sigma_2: Points of $(0, w^\star d/(n-1))$; others that can be seen are refused.
        depth: $L > 2$.
        blocks: $n \ge 2$.
        size: $s \ge 1$.
        value: $w^\star > 0$.

    Returns:
        $f_2$, to be compared with `block_constant`.

    Example:
        >>> float(block_equation_2(1.0, 4, blocks=2))
        0.0
    """
    where = "block_equation_2"
    depth, value = _problem(where, depth, value, blocks, size, above=2)
    sigma = positive(where, "sigma_2", sigma_2)
    broadcast(where, sigma_2=sigma, depth=depth, value=value)
    rest = value * blocks * size - (blocks - 1) * sigma
    _check_rest(where, "sigma_2", "value * d/(blocks - 1)", rest)
    q = (depth - 2) / depth
    return rest**-q - sigma**-q


def _check_rest(where: str, name: str, bound: str, rest: Float[Array, "*batch"]) -> None:
    """Refuse an eigenvalue that leaves less than nothing for the other one; nothing gives infinity."""
    if is_concrete(rest) and rest.size and not float(xp.min(rest)) >= 0:
        raise ValueError(
            f"{where}: {name} must be at most {bound}, d = blocks * size, but value * d less its share is "
            f"{float(xp.min(rest)):g}."
        )
