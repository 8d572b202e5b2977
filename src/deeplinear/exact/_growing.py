r"""Derivatives of what depends on the growing modes of a task, also where singular values coincide.

With the matrix $F$ of `flow_matrix` and $P$ the projector on its largest eigenvalues, the correlations of layers that
have learnt these modes are $QQ^\top = 2PF$: a function of $F$, whose derivative is a matter of divided differences and
exists wherever a gap lies between the eigenvalues that are kept and the others. Singular vectors need no derivative.
"""

import equinox as eqx
import jax
from jaxtyping import Float

from deeplinear.core import Array, Matrix, differentiable, stop_gradient, xp
from deeplinear.exact._riccati import Correlations, matrix_of

GAP = 1e-12
"""Gaps below this share of the largest eigenvalue are none."""


def learnt(where: str, hidden: int, found: Correlations, target: Matrix, lam: Float[Array, ""]) -> Correlations:
    """Correlations of layers that have learnt the `hidden` strongest modes of a task, with their derivatives.

    Args:
        where: Who asks, for the refusal where there is no derivative.
        hidden: Number of modes.
        found: The correlations.
        target: The task.
        lam: Relative scale.
    """
    return _learnt(where, hidden, found, target, lam)


@differentiable(nondiff_argnums=(0, 1))
def _learnt(where: str, hidden: int, found: Correlations, target: Matrix, lam: Float[Array, ""]) -> Correlations:
    return found


@_learnt.defjvp
def _(
    where: str, hidden: int, primals: tuple[Correlations, Matrix, Array], tangents: tuple[Correlations, Matrix, Array]
) -> tuple[Correlations, Correlations]:
    found, target, lam = primals
    inp = target.shape[1]
    moved = _change(where, hidden, target, lam, tangents[1], tangents[2])
    return found, Correlations(moved[:inp, :inp], moved[inp:, :inp], moved[inp:, inp:])


def _change(where: str, hidden: int, target: Matrix, lam: Array, turned: Matrix, shifted: Array) -> Matrix:
    """Derivative of $2PF$ along a change of the task and of the relative scale."""
    matrix, change = jax.jvp(matrix_of, (target, lam), (turned, shifted))
    values, vectors = xp.linalg.eigh(matrix)
    size = values.shape[0]
    least = GAP * xp.max(xp.abs(values))
    kept = (xp.arange(size) >= size - hidden) & (values > least)
    weights = xp.where(kept, 2 * values, 0.0)
    crossing = kept[:, None] != kept[None, :]
    gap = values[:, None] - values[None, :]
    narrow = xp.any(crossing & (xp.abs(gap) <= least))
    # A mode within reach that neither grows nor decays grows for every change of the task.
    modes = min(hidden, *target.shape)
    still = values[size - modes] <= least
    slopes = xp.where(crossing, (weights[:, None] - weights[None, :]) / xp.where(crossing, gap, 1.0), 0.0)
    slopes = xp.where(kept[:, None] & kept[None, :], 2.0, slopes)
    message = (
        f"{where}: there is no derivative where the modes that are learnt do not differ from the others in strength, "
        "or vanish at lam = 0; move the matrix or lam a little."
    )
    slopes = eqx.error_if(slopes, narrow | still, message)
    return vectors @ (slopes * (vectors.T @ change @ vectors)) @ vectors.T


@differentiable
def _turnless(factor: Matrix, correlations: Matrix) -> Matrix:
    return factor


@_turnless.defjvp
def _(primals: tuple[Matrix, Matrix], tangents: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
    factor, _ = primals
    inverse = xp.linalg.inv(factor.T @ factor)
    half = tangents[1] @ factor @ inverse
    return factor, half - 0.5 * factor @ (inverse @ (factor.T @ half))


def learnt_factor(
    where: str, factor: Float[Array, "size hidden"], target: Matrix, lam: Float[Array, ""]
) -> Float[Array, "size hidden"]:
    """A factor of the correlations of a task, with a derivative that is right up to a turn of the hidden basis."""
    inp, frozen = target.shape[1], stop_gradient(factor)
    whole = frozen @ frozen.T
    blocks = Correlations(whole[:inp, :inp], whole[inp:, :inp], whole[inp:, inp:])
    return _turnless(frozen, learnt(where, factor.shape[1], blocks, target, lam).matrix)
