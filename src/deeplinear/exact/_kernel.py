r"""The tangent kernel of two layers, how far it moves, and what moves it when $|\lambda|$ is large.

For inputs $X$ the kernel of all outputs on all samples is
$K = I \otimes X^\top W_1^\top W_1 X + W_2 W_2^\top \otimes X^\top X$: it depends on the layers through their
correlations only, so that the closed form of $QQ^\top$ is one of the kernel too.
"""

import math

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    check_count,
    check_finite,
    check_number,
    check_result,
    check_shape,
    check_x64,
    entry,
    formula,
    is_concrete,
    xp,
)
from deeplinear.exact._riccati import Correlations


@entry
def tangent_kernel(
    correlations: Correlations, inputs: Float[Array | np.ndarray, "inp samples"]
) -> Float[Array, "*batch entries entries"]:
    r"""Tangent kernel $I \otimes X^\top W_1^\top W_1 X + W_2 W_2^\top \otimes X^\top X$ of two layers at finite width.

    It is $JJ^\top$ with $J$ the derivative of all outputs on all samples with respect to all weights; there is no
    division by the number of samples.

    Args:
        correlations: $QQ^\top$ by its blocks; leading axes are a batch.
        inputs: $X$, samples in columns.

    Returns:
        The kernel; a row is a pair (output, sample), the sample running fastest.

    Example:
        >>> c = correlations_of(stacked((jnp.full((1, 1), 2.0), jnp.full((1, 1), 3.0))), 1)
        >>> tangent_kernel(c, jnp.array([[1.0, 10.0]]))
        array([[  13.,  130.],
               [ 130., 1300.]])
    """
    where = "tangent_kernel"
    x = _samples(where, inputs, correlations.input.shape[-1])
    return check_result(where, _kernel(correlations.input, correlations.output, x))


@entry
def kernel_distance(before: Correlations, after: Correlations) -> Float[Array, "*batch"]:
    r"""Distance $1 - \langle K_0, K_t\rangle_F/(\|K_0\|_F \|K_t\|_F)$ of two tangent kernels on whitened inputs.

    Between 0 and 1, blind to the scale of a kernel. With $a = W_1^\top W_1$ and $m = W_2 W_2^\top$ the inner product is
    $P^2\,(d_o\,\mathrm{tr}(aa') + \mathrm{tr}\,a\,\mathrm{tr}\,m' + \mathrm{tr}\,m\,\mathrm{tr}\,a' +
    d_i\,\mathrm{tr}(mm'))$: no Kronecker product, and no data. The distance is half the squared norm of
    $K_0/\|K_0\| - K_t/\|K_t\|$, as a sum of squares, so that it keeps six digits down to $10^{-14}$ and below.

    Args:
        before: $QQ^\top$ at one time, by its blocks.
        after: At another; leading axes of both are a batch and are broadcast against each other.

    Returns:
        One distance for each member; 1 for a kernel `after` that vanishes.

    Raises:
        ValueError: If the kernel `before` vanishes.

    Example:
        >>> rest, moved = (correlations_of(stacked((w, jnp.eye(2))), 2) for w in (jnp.eye(2), jnp.zeros((2, 2))))
        >>> abs(float(kernel_distance(rest, rest))), round(float(kernel_distance(rest, moved)), 12)
        (0.0, 0.0)
    """
    where = "kernel_distance"
    check_x64(where)
    for name, there in (("input", before.input), ("output", before.output)):
        here = getattr(after, name)
        if here.shape[-2:] != there.shape[-2:]:
            raise ValueError(
                f"{where}: before and after must be of networks of the same widths, but their {name} blocks have "
                f"shapes {there.shape} and {here.shape}."
            )
    start, end = _parts(before), _parts(after)
    first, last = _norm(start), _norm(end)
    if is_concrete(first):
        if not np.all(np.isfinite(first)):
            raise ValueError(f"{where}: before must be finite, but is not.")
        if np.any(np.asarray(first) == 0):
            raise ValueError(f"{where}: the kernel of before must not vanish, but it does; both layers are zero.")
    gone = last == 0
    safe = xp.where(gone, 1.0, last)
    gap = tuple(_over(x, first) - _over(y, safe) for x, y in zip(start, end, strict=True))
    return check_result(where, xp.where(gone, 1.0, 0.5 * _square(gap)))


@entry
def kernel_distance_full(
    before: Float[Array | np.ndarray, "*batch entries entries"],
    after: Float[Array | np.ndarray, "*batch entries entries"],
) -> Float[Array, "*batch"]:
    r"""Distance $1 - \langle K_0, K_t\rangle_F/(\|K_0\|_F\|K_t\|_F)$ of two kernels given as matrices, for any inputs.

    Evaluated as half the squared norm of $K_0/\|K_0\| - K_t/\|K_t\|$.

    Args:
        before: $K_0$, not zero.
        after: $K_t$; leading axes are a batch.

    Returns:
        One distance for each member; 1 for a kernel `after` that vanishes.

    Example:
        >>> float(kernel_distance_full(jnp.diag(jnp.array([1.0, 0.0])), jnp.diag(jnp.array([0.0, 2.0]))))
        1.0
    """
    where = "kernel_distance_full"
    start, end = xp.asarray(before, dtype=float), xp.asarray(after, dtype=float)
    check_finite(where, "before", start)
    check_finite(where, "after", end)
    if is_concrete(start) and np.any(np.linalg.norm(np.asarray(start), axis=(-2, -1)) == 0):
        raise ValueError(f"{where}: before must not vanish, but it does.")
    return check_result(where, _distance_full(start, end))


@formula
def _distance_full(
    start: Float[Array, "*batch entries entries"], end: Float[Array, "*batch entries entries"]
) -> Float[Array, "*batch"]:
    first = xp.linalg.norm(start, axis=(-2, -1), keepdims=True)
    last = xp.linalg.norm(end, axis=(-2, -1), keepdims=True)
    gap = start / first - end / xp.where(last == 0, 1.0, last)
    return xp.where(last[..., 0, 0] == 0, 1.0, 0.5 * xp.sum(gap**2, axis=(-2, -1)))


@entry
def kernel_change(
    product_before: object,
    product_after: object,
    lam: ArrayLike,
    inputs: Float[Array | np.ndarray, "inp samples"],
    *,
    hidden: int | None = None,
    as_printed: bool = False,
) -> Float[Array, "entries entries"]:
    r"""Change of the tangent kernel between two products, to leading order in $1/|\lambda|$.

    $$K_t - K_0 = \frac1{|\lambda|}\left(I \otimes X^\top(W_t^\top W_t - W_0^\top W_0)X +
    (W_t W_t^\top - W_0 W_0^\top) \otimes X^\top X\right) + O(|\lambda|^{-3}).$$

    It needs a large layer that fills its side: $\lambda > 0$ with as many outputs as hidden units, or $\lambda < 0$
    with as many inputs. On the other side ($\lambda_\perp > 0$) that layer must turn to fit the task, the kernel
    changes by order $|\lambda|$, and there is no such expansion.

    Args:
        product_before: $W_0$, (out, in).
        product_after: $W_t$, (out, in).
        lam: $\lambda$, not 0.
        inputs: $X$, samples in columns.
        hidden: Hidden width; the smaller of the two others by default.
        as_printed: Whether to leave out the term of the large layer, as the published theorem does. It is of the same
            order.

    Returns:
        The change in the order of rows of `tangent_kernel`.

    Raises:
        HypothesisError: If the large layer does not fill its side.

    Example:
        >>> kernel_change(jnp.zeros((1, 1)), jnp.full((1, 1), 2.0), 8.0, jnp.ones((1, 1)))
        array([[1.]])
    """
    where = "kernel_change"
    check_x64(where)
    old, new = xp.asarray(product_before, dtype=float), xp.asarray(product_after, dtype=float)
    check_shape(where, "product_before", old, (None, None))
    check_shape(where, "product_after", new, old.shape)
    check_finite(where, "product_before", old)
    check_finite(where, "product_after", new)
    check_number(where, "lam", lam)
    out, inp = old.shape
    x = _samples(where, inputs, inp)
    hidden = min(old.shape) if hidden is None else hidden
    check_count(where, "hidden", hidden, at_least=1)
    number = xp.asarray(lam, dtype=float)
    if is_concrete(number):
        side = out if float(number) > 0 else inp
        if float(number) == 0:
            raise ValueError(f"{where}: lam must not be 0; the expansion is one in 1/|lam|.")
        if side != hidden:
            raise HypothesisError(
                "a large layer that fills its side",
                float(side - hidden),
                0.0,
                f"For lam = {float(number):g} it has {hidden} directions in a space of {side}; they turn during "
                "training and the kernel with them. Use `tangent_kernel` of the exact correlations.",
            )
    else:
        number = eqx.error_if(
            number,
            (xp.where(number > 0, out, inp) != hidden) | (number == 0),
            f"{where}: lam must be positive with out = hidden, or negative with inp = hidden.",
        )
    return check_result(where, _change(old, new, number, x, as_printed))


@formula(static_argnums=4)
def _change(
    old: Matrix, new: Matrix, number: Float[Array, ""], x: Float[Array, "inp samples"], as_printed: bool
) -> Float[Array, "entries entries"]:
    change_in, change_out = new.T @ new - old.T @ old, new @ new.T - old @ old.T
    if as_printed:
        change_in = xp.where(number > 0, 1.0, 0.0) * change_in
        change_out = xp.where(number > 0, 0.0, 1.0) * change_out
    return _kernel(change_in, change_out, x) / xp.abs(number)


def _samples(where: str, inputs: object, inp: int) -> Float[Array, "inp samples"]:
    x = xp.asarray(inputs, dtype=float)
    check_shape(where, "inputs", x, (inp, None))
    check_finite(where, "inputs", x)
    return x


@formula
def _kernel(
    inside: Float[Array, "*batch inp inp"], outside: Float[Array, "*batch out out"], x: Float[Array, "inp samples"]
) -> Float[Array, "*batch entries entries"]:
    r"""$I \otimes X^\top a X + m \otimes X^\top X$."""
    out, samples = outside.shape[-1], x.shape[1]
    first = xp.einsum("ip,...st->...ispt", xp.eye(out, dtype=x.dtype), x.T @ inside @ x)
    second = xp.einsum("...ip,st->...ispt", outside, x.T @ x)
    return (first + second).reshape(*first.shape[:-4], out * samples, out * samples)


def _parts(correlations: Correlations) -> tuple[Array, Array, Array]:
    r"""Three orthogonal parts of a kernel over the number of samples: traceless $a$, traceless $m$, and a number.

    A multiple of the identity in $a$ and one in $m$ give the same kernel, so they are added before anything is squared.
    """
    inside, outside = correlations.input, correlations.output
    inp, out = inside.shape[-1], outside.shape[-1]
    trace_in = xp.trace(inside, axis1=-2, axis2=-1) / inp
    trace_out = xp.trace(outside, axis1=-2, axis2=-1) / out
    free_in = inside - trace_in[..., None, None] * xp.eye(inp, dtype=inside.dtype)
    free_out = outside - trace_out[..., None, None] * xp.eye(out, dtype=outside.dtype)
    return math.sqrt(out) * free_in, math.sqrt(inp) * free_out, math.sqrt(inp * out) * (trace_in + trace_out)


def _square(parts: tuple[Array, ...]) -> Array:
    return sum(xp.sum(part**2, axis=(-2, -1)) for part in parts[:2]) + parts[2] ** 2


def _norm(parts: tuple[Array, ...]) -> Array:
    """Norm of a kernel; one that vanishes has the derivative 0."""
    square = _square(parts)
    return xp.where(square > 0, xp.sqrt(xp.where(square > 0, square, 1.0)), 0.0)


def _over(part: Array, size: Array) -> Array:
    """A part divided by numbers of the batch."""
    return part / size.reshape(size.shape + (1,) * (part.ndim - size.ndim))
