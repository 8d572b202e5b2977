r"""Low-rank adapters as two-layer networks: $\Delta W = AB$ with $W_2 = A$ and $W_1 = B$."""

import math
from typing import NamedTuple

from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import Array, Params, RandomKey, check_count, check_number, entry, random, xp


class AdapterLambda(NamedTuple):
    r"""How balanced a new adapter is.

    Attributes:
        lam: Mean of $\hat\lambda$.
        deviation: Leading term, for $r \ll d$, of the operator norm of $A^\top A - \lambda I$ over $\lambda$.
    """

    lam: Float[Array, ""]
    deviation: float


@entry
def adapter_lambda(width: int, rank: int, std: ArrayLike, *, as_printed: bool = False) -> AdapterLambda:
    r"""Balance of a new adapter $\Delta W = AB$ with $B = 0$ and independent normal entries of $A$.

    $A^\top A - BB^\top$ has the mean $d\sigma^2 I$, where $d$ is the number of rows of $A$, and its eigenvalues lie
    within $1 \pm 2\sqrt{r/d}$ of it for $r \ll d$: an adapter of low rank is nearly $\lambda$-balanced.

    Args:
        width: $d$, output width of the adapted matrix.
        rank: $r$, at most $d$.
        std: Standard deviation $\sigma > 0$ of the entries of $A$.
        as_printed: Give $\lambda = \sigma^2$, as the paper does.

    Returns:
        $\lambda$ and the relative deviation from it.

    Example:
        >>> adapter = adapter_lambda(4000, 4, 0.05)
        >>> round(float(adapter.lam), 6), round(adapter.deviation, 6)
        (10.0, 0.063246)
    """
    where = "adapter_lambda"
    _check_rank(where, width, rank, "width")
    check_number(where, "std", std, above=0)
    size = xp.asarray(std, dtype=float) ** 2
    return AdapterLambda(size if as_printed else width * size, 2 * math.sqrt(rank / width))


@entry
def adapter_layers(
    key: RandomKey, shape: tuple[int, int], rank: int, std: ArrayLike, *, balanced: bool = False
) -> Params:
    r"""Layers $(W_1, W_2) = (B, A)$ of a new adapter of a matrix of the given shape: $B = 0$ and $A$ Gaussian.

    Train them as `DeepLinear((in, rank, out))` on what the adapted matrix lacks. With `balanced` the columns of $A$ are
    orthogonal and of length $\sigma\sqrt d$, the typical length of Gaussian ones, so that
    $W_2^\top W_2 - W_1 W_1^\top = d\sigma^2 I$ exactly and the closed form of a bottleneck applies.

    Args:
        key: Key of the random numbers.
        shape: Shape (out, in) of the adapted matrix; $d$ is the first.
        rank: Hidden width, at most the output width.
        std: Standard deviation $\sigma > 0$ of the entries of $A$.
        balanced: Whether to make the layers exactly $\lambda$-balanced.

    Returns:
        Two layers of shapes (rank, in) and (out, rank).

    Example:
        >>> params = adapter_layers(jax.random.key(0), (4, 2), 1, 0.5, balanced=True)
        >>> lambda_estimate(params).lam.round(12)
        array([1.])
    """
    where = "adapter_layers"
    out, inp = shape
    check_count(where, "shape[1]", inp, at_least=1)
    _check_rank(where, out, rank, "shape[0]")
    check_number(where, "std", std, above=0)
    size = xp.asarray(std, dtype=float)
    if balanced:
        second = size * math.sqrt(out) * random.orthogonal(key, out, rank, dtype=size.dtype)
    else:
        second = size * random.normal(key, (out, rank))
    return xp.zeros((rank, inp)), second


def _check_rank(where: str, width: int, rank: int, name: str) -> None:
    check_count(where, name, width, at_least=1)
    check_count(where, "rank", rank, at_least=1)
    if rank > width:
        raise ValueError(f"{where}: rank must be at most {name} = {width}, but is {rank}.")
