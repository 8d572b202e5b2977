r"""Fine-tuning: a trained network is given another $\lambda$ without changing what it computes, and trained on."""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    Params,
    RandomKey,
    are_tied,
    as_array,
    check_count,
    check_finite,
    check_number,
    check_result,
    check_shape,
    check_x64,
    entry,
    formula,
    full_svd,
    is_concrete,
    over,
    polar,
    put,
    random_orthogonal,
    refused_derivative,
    stop_gradient,
    xp,
)
from deeplinear.exact._growing import learnt_factor
from deeplinear.exact._riccati import correlations_of, eigensystem, propagated_at, stacked
from deeplinear.exact._two_layers import checked_two_layers
from deeplinear.models import feasible_lambda, lambda_estimate, two_balanced_layers

RANK_TOLERANCE = 1e-12
"""Singular values below this, relative to the largest, count as zero: their hidden directions are lost in rounding."""

IMBALANCE = 1e-8
r"""Values of $|\lambda|$ below this, relative to the larger squared norm of a layer, count as zero."""


@entry
def rebalance(params: Params, lam: ArrayLike, key: RandomKey | None = None) -> Params:
    r"""Two layers with the same product and the same hidden basis, but another $\lambda$.

    With $W_2 W_1 = U S V^\top$ the result is $W_1' = R S_1 V^\top$, $W_2' = U S_2 R^\top$, where $S_1 S_2 = S$ and
    $S_2^2 - S_1^2 = \lambda I$. The hidden basis $R$ is read off the layer that is larger on the whole: its columns are
    those of $W_2^\top U$ or of $W_1 V$, normalised (and made orthogonal to rounding where the layers are not
    $\lambda$-balanced, for whatever $\lambda$).

    Where the product has a smaller rank than there are hidden units, the other hidden directions are seen only if the
    old $\lambda$ is not zero; otherwise they are drawn at random with `key`. Directions of the inputs or outputs which
    nothing determines are those of the decomposition.

    Args:
        params: Two layers, balanced or not.
        lam: The new $\lambda$; positive needs as many outputs as hidden units, negative as many inputs.
        key: Randomness, for hidden directions that the layers do not determine.

    Returns:
        The new layers.

    Raises:
        HypothesisError: If the rank is too small, the old $\lambda$ is zero and there is no key.

    Example:
        >>> first, second = rebalance((jnp.eye(2), 2.0 * jnp.eye(2)), 0.0)
        >>> round(float(first[0, 0]), 6), round(float((second @ first)[0, 0]), 6)
        (1.414214, 2.0)
    """
    where = "rebalance"
    check_x64(where)
    stacked(params)
    (hidden, inp), out = params[0].shape, params[1].shape[0]
    check_number(where, "lam", lam)
    relative = xp.asarray(lam, dtype=float)
    relative = feasible_lambda(where, relative, relative, (inp, hidden, out))
    return check_result(where, _rebuilt(_frame(where, params, key), relative))


class _Frame(NamedTuple):
    """Singular modes of a product and the hidden basis they are seen in: what re-balancing keeps."""

    left: Matrix
    strengths: Float[Array, " modes"]
    right: Matrix
    turn: Float[Array, "hidden hidden"]


def _frame(where: str, params: Params, key: RandomKey | None) -> _Frame:
    first, second = (as_array(layer, float) for layer in params)
    for position, layer in enumerate((first, second)):
        check_finite(where, f"params[{position}]", layer)
    frame, old, small, largest = _seen(first, second)
    hidden, modes = first.shape[0], frame.strengths.shape[0]
    if not is_concrete(small):
        if hidden > modes:
            raise ValueError(
                f"{where}: params must be known, not traced, where there are more hidden units than modes."
            )
        message = f"{where}: the product must have the rank of the hidden width."
        return frame._replace(turn=eqx.error_if(frame.turn, xp.any(small), message))
    rank = int(np.sum(~np.asarray(small)))
    if rank == hidden:
        return frame
    kept = np.where(np.asarray(small), 0.0, np.asarray(frame.strengths))
    frame = frame._replace(strengths=xp.asarray(kept, dtype=float))
    if abs(float(old)) > IMBALANCE * float(largest):
        return _completed(first, second, frame, rank, float(old) > 0)
    if key is None:
        raise HypothesisError(
            "the product has the rank of the hidden width, or λ is not zero",
            float(hidden - rank),
            0.0,
            "The layers do not determine the hidden basis; give a key, and it is drawn at random.",
        )
    return frame._replace(turn=random_orthogonal(key, hidden))


@formula
def _seen(first: Matrix, second: Matrix) -> tuple[_Frame, Float[Array, ""], Bool[Array, " modes"], Float[Array, ""]]:
    r"""The frame as the product shows it, complete where its rank is the hidden width; and the old $\lambda$.

    With them, which singular values count as zero, and the larger squared norm of a layer.
    """
    (hidden, inp), out = first.shape, second.shape[0]
    product = second @ first
    left, strengths, right_t = full_svd(product)
    modes = min(inp, hidden, out)
    message = (
        "rebalance: layers have no derivative where singular values of their product coincide or vanish; take that of "
        "recovered_correlations."
    )
    lost = are_tied(strengths[:modes], (1, 1)) | (strengths[modes - 1] <= RANK_TOLERANCE * strengths[0])
    left = refused_derivative(left, lost, message)
    old = lambda_estimate((first, second)).lam[0]
    above, below = second.T @ left[:, :modes], first @ right_t[:modes].T
    turn = polar(xp.where(old >= 0, _normal(above), _normal(below)))
    turn = xp.pad(turn, ((0, 0), (0, hidden - modes)))
    small = strengths[:modes] <= RANK_TOLERANCE * strengths[0]
    largest = xp.maximum(xp.sum(first**2), xp.sum(second**2))
    return _Frame(left, strengths[:modes], right_t.T, turn), old, small, largest


@formula(static_argnums=(3, 4))
def _completed(first: Matrix, second: Matrix, frame: _Frame, rank: int, above: bool) -> _Frame:
    """The frame where the product does not show all hidden directions, but the larger layer does."""
    shown = _normal(second.T @ frame.left[:, :rank] if above else first @ frame.right[:, :rank])
    # A basis of the hidden space whose first columns span what the product shows.
    basis, _, _ = xp.linalg.svd(shown, full_matrices=True)
    hiding = basis[:, rank:]
    turn = xp.concatenate([polar(shown), hiding], axis=1)
    # The larger layer maps the others to directions of its own; those are kept, orthogonal to rounding.
    seen = second @ hiding if above else first.T @ hiding
    known = frame.left[:, :rank] if above else frame.right[:, :rank]
    kept = xp.concatenate([known, polar(seen - known @ (known.T @ seen))], axis=1)
    return frame._replace(turn=turn, left=kept) if above else frame._replace(turn=turn, right=kept)


def _normal(columns: Matrix) -> Matrix:
    square = xp.sum(columns**2, axis=0)
    return columns / xp.sqrt(xp.where(square > 0, square, 1.0))


@formula
def _rebuilt(frame: _Frame, lam: Float[Array, ""]) -> Params:
    """Layers of a frame."""
    widths = (frame.right.shape[0], frame.turn.shape[0], frame.left.shape[0])
    return two_balanced_layers(frame.left, frame.strengths, frame.right, lam, frame.turn, widths)


@entry
def added_feature(target: object, feature: int, from_item: int, to_item: int) -> Matrix:
    r"""The task in which an item takes over one feature of another, $\Sigma'_{fj} = \Sigma_{fi}$.

    Args:
        target: $\Sigma$, (features, items).
        feature: $f$, counted from 0.
        from_item: $i$, whose feature it is.
        to_item: $j$, to which it is added.

    Returns:
        The new task.

    Example:
        >>> added_feature(jnp.array([[1.0, 0.0], [2.0, 3.0]]), 1, 0, 1)
        array([[1., 0.],
               [2., 2.]])
    """
    where = "added_feature"
    sigma = xp.asarray(target, dtype=float)
    check_shape(where, "target", sigma, (None, None))
    check_finite(where, "target", sigma)
    check_count(where, "feature", feature, at_least=0, at_most=sigma.shape[0] - 1)
    check_count(where, "from_item", from_item, at_least=0, at_most=sigma.shape[1] - 1)
    check_count(where, "to_item", to_item, at_least=0, at_most=sigma.shape[1] - 1)
    return _with_feature(sigma, feature, from_item, to_item)


@formula
def _with_feature(sigma: Matrix, feature: ArrayLike, from_item: ArrayLike, to_item: ArrayLike) -> Matrix:
    return put(sigma, (feature, to_item), sigma[feature, from_item])


@entry
def fine_tune_losses(params: Params, target: object, times: Any, lams: Any = None) -> Float[Array, "..."]:
    r"""Reduced loss $\tfrac12\|W_2 W_1 - \Sigma'\|_F^2$ after fine-tuning from each of several $\lambda$.

    The layers are re-balanced to each of `lams` (see `rebalance`) and follow the exact flow on the new task.

    Args:
        params: Trained layers; $\lambda$-balanced if `lams` is left out.
        target: $\Sigma'$ of the new task, (out, in), on whitened inputs.
        times: Times of fine-tuning, at least 0.
        lams: New values of $\lambda$, one or several; left out, the layers are taken as they are.

    Returns:
        Losses of shape (lams, times), without the axes of arguments that are single numbers.

    Example:
        >>> one = jnp.ones((1, 1))
        >>> slow, fast = fine_tune_losses((one, one), 2 * one, 1.0, [0.0, 4.0])
        >>> bool(fast < slow)
        True
    """
    where = "fine_tune_losses"
    check_x64(where)
    sigma = xp.asarray(target, dtype=float)
    check_shape(where, "target", sigma, (params[1].shape[0], params[0].shape[1]))
    check_finite(where, "target", sigma)
    when = as_array(times, float)
    check_finite(where, "times", when)
    if is_concrete(when) and np.any(np.asarray(when) < 0):
        raise ValueError(f"{where}: times must be at least 0, but the smallest is {np.min(np.asarray(when)):g}.")
    if lams is None:
        layers = checked_two_layers(where, params, sigma)
        return check_result(where, _losses(layers[:2], sigma, layers.lam, when))
    values = as_array(lams, float)
    check_finite(where, "lams", values)
    widths = (params[0].shape[1], params[0].shape[0], params[1].shape[0])
    for extreme in (_extreme(values, "min"), _extreme(values, "max")):
        values = feasible_lambda(where, values, extreme, widths)
    # Only correlations matter, which follow from the product: the hidden basis stays as it is found.
    frame = _frame(where, stop_gradient(tuple(params)), None)
    return check_result(where, _losses((frame, params[1] @ params[0]), sigma, values, when))


def _extreme(values: Float[Array, "..."], which: str) -> Float[Array, ""]:
    """The smallest or largest of numbers and 0."""
    return as_array(getattr(xp, which)(values, initial=0.0), float)


@formula
def _losses(
    start: tuple[_Frame, Matrix] | Params, target: Matrix, lams: Float[Array, "*lams"], times: Float[Array, "*times"]
) -> Float[Array, "..."]:
    """Losses from a frame that is re-balanced, or from layers as they are."""

    def begin(lam: Array) -> Array:
        frame, product = start
        if not isinstance(frame, _Frame):
            return stacked((frame, product))
        factor = stacked(_rebuilt(*stop_gradient((frame, lam))))
        return learnt_factor("fine_tune_losses", factor, product, lam)

    def one(factor: Array, lam: Array) -> Array:
        system = eigensystem(target, lam)
        later = propagated_at(factor, system, times.ravel())
        product = correlations_of(later, target.shape[1]).product
        return 0.5 * xp.sum((product - target) ** 2, axis=(-2, -1))

    given = lams.ravel()
    return over(one)(over(begin)(given), given).reshape(*lams.shape, *times.shape)
