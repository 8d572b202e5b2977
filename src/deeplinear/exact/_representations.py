r"""Representations of $\lambda$-balanced layers: from the product alone, at the end of training, for large $|\lambda|$.

With $W_2^\top W_2 - W_1 W_1^\top = \lambda I$ and a product $W_2 W_1 = U S V^\top$ of the rank of the hidden width,
$W_1 = R S_1 V^\top$ and $W_2 = U S_2 R^\top$ with $S_{2,1}^2 = \sqrt{S^2 + \lambda^2/4} \pm \lambda/2$. Only the hidden
basis $R$ is free: it is what the correlations $W_1^\top W_1$ and $W_2 W_2^\top$ do not see.
"""

from typing import Any

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    Params,
    are_tied,
    check_count,
    check_finite,
    check_number,
    check_result,
    check_shape,
    check_x64,
    differentiable,
    entry,
    formula,
    full_svd,
    is_concrete,
    polar,
    put,
    refused_derivative,
    spectrum,
    stop_gradient,
    xp,
)
from deeplinear.exact._growing import learnt
from deeplinear.exact._riccati import Correlations, correlations_of, stacked, unstacked
from deeplinear.models import two_balanced_layers

RANK_TOLERANCE = 1e-12
"""Singular values below this share of the largest count as zero, and closer than this share as equal."""


@entry
def recover(product: object, lam: ArrayLike, hidden: int | None = None) -> Params:
    r"""Layers of a $\lambda$-balanced network from its product, in one of the possible hidden bases.

    $W_1 = S_1 V^\top$ and $W_2 = U S_2$, where $W = U S V^\top$. Every $\lambda$-balanced pair with this product is
    $(R W_1, W_2 R^\top)$ with $R$ orthogonal if the rank of the product is the hidden width. With a smaller rank the
    layers are still determined for $\lambda = 0$, for $\lambda > 0$ with as many outputs as hidden units, and for
    $\lambda < 0$ with as many inputs: there the hidden directions that the product does not use have only one place.

    Args:
        product: $W_2 W_1$, (out, in).
        lam: $\lambda$.
        hidden: Hidden width; the smaller of the two others by default.

    Returns:
        $W_1$ and $W_2$. `aligned_to` turns them to the hidden basis closest to a reference.

    Raises:
        HypothesisError: If the product does not determine the layers, or has a larger rank than the hidden width.

    Example:
        >>> first, second = recover(jnp.array([[2.0]]), 3.0)
        >>> abs(round(float(first[0, 0]), 12)), abs(round(float(second[0, 0]), 12))
        (1.0, 2.0)
    """
    matrix, number, hidden = _checked("recover", "product", product, lam, hidden)
    left, values, right_t = full_svd(matrix)
    message = (
        "recover: the layers have no derivative where singular values of product coincide or vanish; take that of "
        "recovered_correlations."
    )
    strong = values[:hidden]
    lost = are_tied(strong, (1, 1)) | (strong[-1] <= RANK_TOLERANCE * values[0])
    values = refused_derivative(values, lost, message)
    return _from_modes("the product", left, values, right_t, number, hidden)


@entry
def recovered_correlations(product: object, lam: ArrayLike, hidden: int | None = None) -> Correlations:
    r"""Correlations of the layers of a $\lambda$-balanced network from its product.

    $W_1^\top W_1 = V(s_\lambda - \tfrac\lambda2)V^\top$ and $W_2 W_2^\top = U(s_\lambda + \tfrac\lambda2)U^\top$ with
    $s_\lambda = \sqrt{s^2 + \lambda^2/4}$.

    Args:
        product: $W_2 W_1 = U S V^\top$, (out, in).
        lam: $\lambda$.
        hidden: Hidden width; the smaller of the two others by default.

    Returns:
        All blocks of $QQ^\top$; they do not depend on the hidden basis.

    Raises:
        HypothesisError: As for `recover`.

    Example:
        >>> recovered_correlations(jnp.array([[2.0]]), 3.0).output.round(12)
        array([[4.]])
    """
    where = "recovered_correlations"
    matrix, number, hidden = _checked(where, "product", product, lam, hidden)
    left, values, right_t = _fixed_svd(matrix)
    layers = _from_modes("the product", left, values, right_t, stop_gradient(number), hidden)
    return learnt(where, hidden, correlations_of(stacked(layers), matrix.shape[1]), matrix, number)


@entry
def aligned_to(params: Params, reference: Params) -> Params:
    r"""The same two layers in the hidden basis closest to that of a reference.

    Of all orthogonal $R$ the one with the smallest $\|R W_1 - W_1'\|_F^2 + \|W_2 R^\top - W_2'\|_F^2$: with the
    singular value decomposition $Q'^\top Q = A D B^\top$ of the stacked factors it is $R = A B^\top$.

    Args:
        params: Two layers.
        reference: Two layers of the same shapes.

    Returns:
        $R W_1$ and $W_2 R^\top$.

    Example:
        >>> first, second = aligned_to((-jnp.eye(2), -jnp.eye(2)), (jnp.eye(2), 2 * jnp.eye(2)))
        >>> float(first[0, 0].round(12))
        1.0
    """
    factor, wanted = stacked(params), stacked(reference)
    inp = int(np.shape(params[0])[1])
    check_shape("aligned_to", "reference[0]", reference[0], np.shape(params[0]))
    check_shape("aligned_to", "reference[1]", reference[1], np.shape(params[1]))
    for name, array in (("params", factor), ("reference", wanted)):
        check_finite("aligned_to", name, array)
    # Sizes do not matter; without them no product overflows.
    shown, sought = (array / xp.maximum(xp.max(xp.abs(array)), 1e-300) for array in (factor, wanted))
    return unstacked(factor @ polar(sought.T @ shown).T, inp)


@entry
def limit(target: object, lam: ArrayLike, hidden: int | None = None) -> Correlations:
    r"""Where gradient flow on whitened inputs ends: $W_1^\top W_1$, $W_2 W_1$ and $W_2 W_2^\top$ at infinite time.

    With $\Sigma = U S V^\top$ they are $V S_1^2 V^\top$, $\Sigma$ and $U S_2^2 U^\top$, for as many of the strongest
    modes as there are hidden units: behind a bottleneck the product is the best approximation of $\Sigma$ of that rank.

    Hypotheses on the target are checked: it must determine the limit. Where the wider side has room that training can
    use ($\lambda_\perp > 0$) this asks for a rank of at least the hidden width; behind a bottleneck, for a gap after
    the last mode that is learned. The hypothesis on the start, an invertible overlap with the growing modes, is that of
    `diagnose`.

    Args:
        target: $\Sigma$, (out, in).
        lam: $\lambda$.
        hidden: Hidden width; the smaller of the two others by default.

    Returns:
        The limit of $QQ^\top$, by its blocks.

    Raises:
        HypothesisError: If the target does not determine the limit.

    Example:
        >>> limit(jnp.diag(jnp.array([2.0, 1.0])), 0.0, hidden=1).product.round(12)
        array([[2., 0.],
               [0., 0.]])
    """
    sigma, number, hidden = _checked("limit", "target", target, lam, hidden)
    left, values, right_t = _fixed_svd(sigma)
    if hidden < values.shape[0]:
        last, after = values[hidden - 1], values[hidden]
        tied = (after > (1 - RANK_TOLERANCE) * last) & (last > RANK_TOLERANCE * values[0])
        name = f"a gap between singular values {hidden} and {hidden + 1} of the target"
        if not is_concrete(tied):
            values = eqx.error_if(values, tied, f"limit: there must be {name}.")
        elif bool(tied):
            raise HypothesisError(
                name,
                float(after / last),
                1 - RANK_TOLERANCE,
                f"They are {float(last):.6g} and {float(after):.6g}, so the best approximation of rank {hidden} is not "
                "unique and the limit depends on the start.",
            )
        values = put(values, slice(hidden, None), 0.0)
    layers = _from_modes("the target", left, values, right_t, stop_gradient(number), hidden)
    return learnt("limit", hidden, correlations_of(stacked(layers), sigma.shape[1]), sigma, number)


class LargeLambda(eqx.Module):
    r"""The limit of training to leading order in $1/|\lambda|$, with rigorous bounds of what is left out.

    For $\lambda > 0$ each mode has $0 \le s_2^2 - \lambda \le s^2/\lambda$ and
    $0 \le s^2/\lambda - s_1^2 \le s^4/\lambda^3$; for $\lambda < 0$ the layers change places.

    Attributes:
        correlations: Leading order: the large layer is $|\lambda|$ times a projection, whatever the task; the small one
            is $\Sigma^\top\Sigma/|\lambda|$ or $\Sigma\Sigma^\top/|\lambda|$.
        large_bound: $s^2/|\lambda|$ for each mode; its maximum bounds the error of the large block in operator norm.
        small_bound: $s^4/|\lambda|^3$ for each mode; its maximum bounds the error of the small block.
    """

    correlations: Correlations
    large_bound: Float[Array, " modes"]
    small_bound: Float[Array, " modes"]


@entry
def large_lambda_limit(target: object, lam: ArrayLike) -> LargeLambda:
    r"""Leading order of `limit` for large $|\lambda|$ with the hidden width $\min(d_{\mathrm{in}}, d_{\mathrm{out}})$.

    $\lambda \to +\infty$: $W_2 W_2^\top \sim \lambda UU^\top$ and $W_1^\top W_1 \sim VS^2V^\top/\lambda$; $\lambda \to
    -\infty$: $W_1^\top W_1 \sim |\lambda| VV^\top$ and $W_2 W_2^\top \sim US^2U^\top/|\lambda|$. The large layer
    forgets the task, the small one keeps its structure.

    Args:
        target: $\Sigma = U S V^\top$, (out, in), of full rank.
        lam: $\lambda$, not 0.

    Returns:
        The leading order and bounds of its error, valid for every $\lambda \ne 0$.

    Example:
        >>> lazy = large_lambda_limit(jnp.array([[2.0]]), 100.0)
        >>> [round(float(x.item()), 12) for x in (lazy.correlations.output, lazy.correlations.input, lazy.large_bound)]
        [100.0, 0.04, 0.04]
    """
    where = "large_lambda_limit"
    sigma, number, hidden = _checked(where, "target", target, lam, None)
    size = xp.abs(number)
    if is_concrete(size) and float(size) == 0:
        raise ValueError(f"{where}: lam must not be 0; there `limit` has the rich solution in closed form.")
    values = spectrum(sigma)
    if is_concrete(values):
        _refuse_rank("the target", np.asarray(values), hidden)
    small = values * (values / size)
    # The frame closest to the task spans its modes: no singular vector is needed, so that equal values do no harm.
    frame = polar(sigma) if sigma.shape[0] >= sigma.shape[1] else polar(sigma.T).T
    scaled = sigma / xp.sqrt(size)
    right, left = (
        xp.where(number > 0, scaled, xp.sqrt(size) * frame),
        xp.where(number > 0, xp.sqrt(size) * frame, scaled),
    )
    leading = Correlations(right.T @ right, sigma, left @ left.T)
    return check_result(where, LargeLambda(leading, small, small * (values / size) ** 2))


@entry
def similarity_in(
    correlations: Correlations, inputs: Float[Array | np.ndarray, "inp samples"]
) -> Float[Array, "*batch samples samples"]:
    r"""Similarity $X^\top W_1^\top W_1 X$ of the hidden representations of inputs.

    Args:
        correlations: $QQ^\top$ by its blocks; leading axes are a batch.
        inputs: $X$, samples in columns.

    Returns:
        One matrix of inner products for each member of the batch.

    Example:
        >>> c = correlations_of(stacked((jnp.eye(2), jnp.eye(2))), 2)
        >>> similarity_in(c, jnp.array([[1.0, 2.0], [0.0, 1.0]]))
        array([[1., 2.],
               [2., 5.]])
    """
    x = xp.asarray(inputs, dtype=float)
    check_shape("similarity_in", "inputs", x, (correlations.input.shape[-1], None))
    check_finite("similarity_in", "inputs", x)
    return check_result("similarity_in", _inner(correlations.input, x))


@formula
def _inner(matrix: Float[Array, "*batch size size"], columns: Float[Array, "size samples"]) -> Array:
    return columns.T @ matrix @ columns


@entry
def similarity_out(
    correlations: Correlations, outputs: Float[Array | np.ndarray, "out samples"], *, rcond: float = 1e-10
) -> Float[Array, "*batch samples samples"]:
    r"""Similarity $Y^\top (W_2 W_2^\top)^+ Y$ of the hidden representations that give the outputs.

    $W_2^+ Y$ are the smallest hidden activities that the second layer turns into $Y$; this is their matrix of inner
    products. Near a small start the pseudo-inverse is huge.

    Args:
        correlations: $QQ^\top$ by its blocks; leading axes are a batch.
        outputs: $Y$, samples in columns.
        rcond: Eigenvalues of $W_2 W_2^\top$ below this share of the largest count as zero.

    Returns:
        One matrix of inner products for each member of the batch.

    Example:
        >>> c = correlations_of(stacked((jnp.eye(2), 2 * jnp.eye(2))), 2)
        >>> similarity_out(c, 2 * jnp.eye(2)).round(12)
        array([[1., 0.],
               [0., 1.]])
    """
    y = xp.asarray(outputs, dtype=float)
    check_shape("similarity_out", "outputs", y, (correlations.output.shape[-1], None))
    check_finite("similarity_out", "outputs", y)
    check_number("similarity_out", "rcond", rcond, above=0, at_most=1)
    return check_result("similarity_out", _inner_inverse(correlations.output, y, rcond))


@formula
def _inner_inverse(
    matrix: Float[Array, "*batch size size"], columns: Float[Array, "size samples"], rcond: ArrayLike
) -> Array:
    return columns.T @ _inverse(matrix, rcond) @ columns


@differentiable
def _inverse(matrix: Float[Array, "*batch size size"], rcond: ArrayLike) -> Array:
    """Pseudo-inverse of a symmetric matrix."""
    values, vectors = xp.linalg.eigh(matrix)
    kept = xp.abs(values) > rcond * xp.max(xp.abs(values), axis=-1, keepdims=True)
    scaled = vectors * xp.where(kept, 1 / xp.where(kept, values, 1.0), 0.0)[..., None, :]
    return scaled @ xp.swapaxes(vectors, -1, -2)


@_inverse.defjvp
def _(primals: tuple[Array, ArrayLike], tangents: tuple[Array, Any]) -> tuple[Array, Array]:
    """Derivative among matrices of the same rank."""
    matrix, rcond = primals
    inverse, moved = _inverse(matrix, rcond), (tangents[0] + xp.swapaxes(tangents[0], -1, -2)) / 2
    outside = xp.eye(matrix.shape[-1], dtype=matrix.dtype) - matrix @ inverse
    turned = inverse @ inverse @ moved @ outside
    return inverse, turned + xp.swapaxes(turned, -1, -2) - inverse @ moved @ inverse


def _checked(
    where: str, name: str, matrix: object, lam: ArrayLike, hidden: int | None
) -> tuple[Matrix, Float[Array, ""], int]:
    """Matrix, relative scale and hidden width, or a refusal."""
    check_x64(where)
    array = xp.asarray(matrix, dtype=float)
    check_shape(where, name, array, (None, None))
    if 0 in array.shape:
        raise ValueError(f"{where}: {name} must have at least one row and one column, but has shape {array.shape}.")
    check_finite(where, name, array)
    check_number(where, "lam", lam)
    hidden = min(array.shape) if hidden is None else hidden
    check_count(where, "hidden", hidden, at_least=1)
    return array, xp.asarray(lam, dtype=float), int(hidden)


def _refuse_rank(whose: str, values: np.ndarray, hidden: int) -> None:
    """Refuse fewer than `hidden` positive singular values."""
    held = values[hidden - 1] if len(values) >= hidden else 0.0
    share = float(held / values[0]) if values[0] > 0 else 0.0
    if not share > RANK_TOLERANCE:
        raise HypothesisError(
            f"rank of {whose} = hidden width",
            float(hidden - np.sum(values > RANK_TOLERANCE * values[0])),
            0.0,
            f"Singular value {hidden} is {share:.1e} of the largest; directions that {whose} does not use may lie "
            "anywhere on the wider side.",
        )


@formula
def _fixed_svd(matrix: Matrix) -> tuple[Array, Array, Array]:
    """Full singular value decomposition of a matrix that does not move: derivatives are those of `learnt`."""
    left, values, right_t = xp.linalg.svd(stop_gradient(matrix), full_matrices=True)
    return left, values, right_t


def _from_modes(
    whose: str, left: Matrix, values: Float[Array, " modes"], right_t: Matrix, lam: Float[Array, ""], hidden: int
) -> Params:
    """Layers from a full singular value decomposition, if it determines them."""
    out, inp = left.shape[0], right_t.shape[0]
    values = _determined(whose, values, lam, hidden, out, inp)
    return two_balanced_layers(
        left, values[:hidden], right_t.T, lam, xp.eye(hidden, dtype=values.dtype), (inp, hidden, out)
    )


def _determined(
    whose: str, values: Float[Array, " modes"], lam: Float[Array, ""], hidden: int, out: int, inp: int
) -> Float[Array, " modes"]:
    """The singular values, unless they leave the layers of a network open or do not fit into it."""
    modes = values.shape[0]
    if is_concrete(values) and is_concrete(lam):
        seen, number = np.asarray(values), float(lam)
        least = RANK_TOLERANCE * seen[0]
        if hidden < modes and seen[hidden] > least:
            raise HypothesisError(
                f"rank of {whose} at most the hidden width {hidden}",
                float(seen[hidden] / seen[0]),
                RANK_TOLERANCE,
                f"This is singular value {hidden + 1} over the first.",
            )
        filled = number == 0 or (number > 0 and out == hidden) or (number < 0 and inp == hidden)
        if not filled and not (hidden <= modes and seen[hidden - 1] > least):
            _refuse_rank(whose, seen, hidden)
        return values
    threshold = RANK_TOLERANCE * values[0]
    large = values[hidden] > threshold if hidden < modes else xp.zeros((), bool)
    full = values[hidden - 1] > threshold if hidden <= modes else xp.zeros((), bool)
    filled = (lam == 0) | ((lam > 0) & (out == hidden)) | ((lam < 0) & (inp == hidden))
    values = eqx.error_if(values, large, f"The rank of {whose} must be at most the hidden width {hidden}.")
    return eqx.error_if(
        values, ~(full | filled), f"The rank of {whose} must be the hidden width {hidden}, else it leaves layers open."
    )
