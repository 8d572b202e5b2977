r"""Soft and numerical ranks of matrices, and of the spectra they are made of.

All are invariant under $W \mapsto U W V$ with orthogonal $U, V$; all but the nuclear norm also under scaling. The zero
matrix has rank 0 in every sense. The soft ranks of any other matrix lie in $[1, \mathrm{rank}\,W]$ and have no limit
at zero, so a zero matrix that can be seen is refused; under a transformation, where it cannot, its soft ranks are 0.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from deeplinear.core._entry import entry
from deeplinear.core._errors import check_finite, check_number, is_concrete
from deeplinear.core._linalg import spectrum
from deeplinear.core._types import Array
from deeplinear.core._xp import formula, special, xp


def _refuse_zero(where: str, name: str, nonzero: np.ndarray | np.bool_) -> None:
    """Refuse a batch with a member that is zero, naming the first."""
    zero = np.argwhere(~nonzero)
    if len(zero):
        member = f" (member {tuple(int(i) for i in zero[0])})" if np.ndim(nonzero) else ""
        raise ValueError(
            f"{where}: {name} must not be zero{member}; the zero matrix has no soft rank. Leave it out, or move it "
            "away from zero."
        )


def _check_real(where: str, name: str, given: object, dimensions: int) -> None:
    """Refuse what is no array, has too few dimensions, or does not hold real numbers."""
    if not isinstance(given, Array | np.ndarray):
        raise TypeError(f"{where}: {name} must be an array, but is a {type(given).__name__}; take xp.asarray of it.")
    if np.dtype(given.dtype).kind not in "iuf":
        raise TypeError(f"{where}: {name} must hold real numbers, but holds {given.dtype}.")
    if given.ndim < dimensions:
        raise ValueError(
            f"{where}: {name} must have at least {dimensions} dimension{'s' * (dimensions > 1)}, but has shape "
            f"{tuple(given.shape)}."
        )


def _checked(where: str, name: str, given: Any) -> Any:
    """Singular values; a visible zero or bad spectrum is refused."""
    _check_real(where, name, given, 1)
    check_finite(where, name, given)
    if given.shape[-1] == 0:
        raise ValueError(f"{where}: {name} must hold at least one singular value, but has shape {given.shape}.")
    if is_concrete(given):
        seen = np.asarray(given)
        if np.any(seen < 0):
            raise ValueError(f"{where}: {name} must be non-negative, but reaches {seen.min():g}.")
        _refuse_zero(where, name, np.any(seen, axis=-1))
    return given


@formula
def _stable_rank(values: Float[Array, "*batch modes"]) -> Float[Array, "*batch"]:
    relative, _ = _relative(values)
    return xp.sum(relative**2, axis=-1)


@formula
def _effective_rank(values: Float[Array, "*batch modes"]) -> Float[Array, "*batch"]:
    relative, largest = _relative(values)
    total = xp.sum(relative, axis=-1, keepdims=True)
    shares = relative / xp.where(largest == 0, 1.0, total)
    return xp.where(largest[..., 0] == 0, 0.0, xp.exp(xp.sum(special.entr(shares), axis=-1)))


def _relative(values: Float[Array, "*batch modes"]) -> tuple[Float[Array, "*batch modes"], Float[Array, "*batch 1"]]:
    """Singular values over the largest, and the largest."""
    largest = xp.max(values, axis=-1, keepdims=True)
    return values / xp.where(largest == 0, 1.0, largest), largest


@entry
def spectrum_stable_rank(singular_values: Float[Array | np.ndarray, "*batch modes"]) -> Float[Array, "*batch"]:
    r"""Stable rank $\sum_i (s_i/s_1)^2$ of given singular values, in any order.

    Args:
        singular_values: Non-negative, not all zero; leading dimensions are a batch.

    Returns:
        One number per spectrum; 0 for a zero spectrum under a transformation.

    Example:
        >>> float(spectrum_stable_rank(jnp.array([2.0, 1.0])))
        1.25
    """
    return _stable_rank(_checked("spectrum_stable_rank", "singular_values", singular_values))


@entry
def spectrum_effective_rank(singular_values: Float[Array | np.ndarray, "*batch modes"]) -> Float[Array, "*batch"]:
    r"""Effective rank $\exp(-\sum_i p_i \ln p_i)$, $p_i = s_i / \sum_k s_k$, of given singular values, in any order.

    Args:
        singular_values: Non-negative, not all zero; leading dimensions are a batch.

    Returns:
        One number per spectrum; 0 for a zero spectrum under a transformation.

    Example:
        >>> round(float(spectrum_effective_rank(jnp.array([1.0, 0.01]))), 3)
        1.057
    """
    return _effective_rank(_checked("spectrum_effective_rank", "singular_values", singular_values))


def _spectrum(where: str, matrix: Any, *, nonzero: bool = False) -> Float[Array, "*batch modes"]:
    """Singular values; a bad matrix, or a zero one if asked, is refused where it can be seen."""
    _check_real(where, "matrix", matrix, 2)
    check_finite(where, "matrix", matrix)
    if 0 in matrix.shape[-2:]:
        raise ValueError(f"{where}: matrix must have at least one row and one column, but has shape {matrix.shape}.")
    if nonzero and is_concrete(matrix):
        _refuse_zero(where, "matrix", np.any(np.asarray(matrix), axis=(-2, -1)))
    return spectrum(matrix)


@entry
def stable_rank(matrix: Float[Array | np.ndarray, "*batch rows columns"]) -> Float[Array, "*batch"]:
    r"""Stable rank $\|W\|_F^2 / \|W\|_2^2 = \sum_i (s_i/s_1)^2$.

    Between 1 and the rank; small singular values enter squared and hardly count. The quotients keep it from
    overflowing.

    Args:
        matrix: One matrix or a stack of them, not zero.

    Returns:
        One number per matrix; 0 for a zero matrix under a transformation.

    Example:
        >>> float(stable_rank(jnp.diag(jnp.array([2.0, 1.0]))))
        1.25
    """
    return spectrum_stable_rank(_spectrum("stable_rank", matrix, nonzero=True))


@entry
def effective_rank(matrix: Float[Array | np.ndarray, "*batch rows columns"]) -> Float[Array, "*batch"]:
    r"""Effective rank: exponential of the entropy of the singular values normalised to sum one.

    With $p_i = s_i/\sum_k s_k$ it is $\exp(-\sum_i p_i \ln p_i)$, natural logarithm and $0\ln 0 = 0$. Between 1 and the
    rank, and far more sensitive to small singular values than `stable_rank`. Its slope is infinite where a singular
    value vanishes; derivatives there are `nan`.

    Args:
        matrix: One matrix or a stack of them, not zero.

    Returns:
        One number per matrix; 0 for a zero matrix under a transformation.

    Example:
        >>> round(float(effective_rank(jnp.eye(2))), 12)
        2.0
    """
    return spectrum_effective_rank(_spectrum("effective_rank", matrix, nonzero=True))


@entry
def nuclear_norm(matrix: Float[Array | np.ndarray, "*batch rows columns"]) -> Float[Array, "*batch"]:
    r"""Nuclear norm $\sum_i s_i$.

    Args:
        matrix: One matrix or a stack of them.

    Returns:
        One number per matrix.

    Example:
        >>> float(nuclear_norm(jnp.diag(jnp.array([2.0, -1.0]))))
        3.0
    """
    return xp.sum(_spectrum("nuclear_norm", matrix), axis=-1)


@entry
def numerical_rank(
    matrix: Float[Array | np.ndarray, "*batch rows columns"], rtol: float | Float[Array, ""] | None = None
) -> Int[Array, "*batch"]:
    r"""Number of singular values above `rtol` $\cdot\, s_1$; 0 for the zero matrix.

    Args:
        matrix: One matrix or a stack of them.
        rtol: Relative threshold; by default the larger dimension times the spacing of floating-point numbers at 1.

    Returns:
        One integer per matrix; -1, under a transformation, for one with entries that are not finite.

    Example:
        >>> int(numerical_rank(jnp.ones((2, 2))))
        1
    """
    values = _spectrum("numerical_rank", matrix)
    if rtol is None:
        rtol = max(matrix.shape[-2:]) * float(xp.finfo(values.dtype).eps)
    check_number("numerical_rank", "rtol", rtol, above=0)
    return _rank_above(values, rtol)


@formula
def _rank_above(values: Float[Array, "*batch modes"], rtol: Float[Array, ""] | float) -> Int[Array, "*batch"]:
    finite = xp.all(xp.isfinite(values), axis=-1)
    rank = xp.sum(values > rtol * values[..., :1], axis=-1)
    return xp.where(finite, rank, -1)
