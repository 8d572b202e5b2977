r"""Closed forms of two layers as they are found in print, beside the propagator: to read, to teach, to compare.

All three give $QQ^\top(t)$ of `propagate` on paper. In floating-point numbers the first two, with growing exponentials
under an inverse, lose a factor $e^{2(s_{\max} - s_{\min})t}$, and the third, with decaying ones, the square of the
condition of $B$. Where that is too much they warn; where nothing is left they refuse.
"""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import Array, HypothesisError, Matrix, check_result, entry, formula, xp
from deeplinear.exact._riccati import Correlations, Eigensystem, eigensystem
from deeplinear.exact._two_layers import check_time, checked_two_layers

GROWING_LIMIT = 3.0
r"""Largest $s_{\lambda,\max}\,t$ at which forms with growing exponentials are known to keep some twelve digits."""

LARGEST_EXPONENT = 300.0
"""Twice this is still the exponent of a number, with room for the size of the layers."""

CONDITION_WARNING, CONDITION_LIMIT = 1e4, 1e7
"""Condition of B above which the form with decaying exponentials keeps fewer than seven digits, or hardly any."""


class PrecisionWarning(UserWarning):
    """A closed form was evaluated where rounding takes many of its digits."""


class Overlaps(eqx.Module):
    r"""How a start overlaps with the growing, the decaying and the remaining directions of its task.

    $B = W_2^\top U(g + hg) + W_1 V(g - hg)$, $C = W_2^\top U(g - hg) - W_1 V(g + hg)$ and
    $D = [W_1 V_\perp, W_2^\top U_\perp]$, with $g$ and $h$ of `Eigensystem`. The flow ends at the task if $B$ has full
    row rank.

    Attributes:
        growing: $B$, (hidden, modes).
        decaying: $C$, (hidden, modes).
        complement: $D$, (hidden, $|d_{\mathrm{out}} - d_{\mathrm{in}}|$).
    """

    growing: Matrix
    decaying: Matrix
    complement: Matrix

    @property
    @formula
    def smallest(self) -> Float[Array, ""]:
        r"""Smallest singular value of $B$."""
        return xp.linalg.svd(self.growing, compute_uv=False)[-1]

    @property
    @formula
    def condition(self) -> Float[Array, ""]:
        r"""Condition number of $B$; infinite where it is singular."""
        values = xp.linalg.svd(self.growing, compute_uv=False)
        return xp.where(values[-1] > 0, values[0] / xp.where(values[-1] > 0, values[-1], 1.0), xp.inf)


@entry
def overlaps(params: Sequence[Any], target: object, lam: ArrayLike | None = None) -> Overlaps:
    r"""The matrices $B$, $C$ and $D$ of a start and its task.

    Args:
        params: $\lambda$-balanced layers $(W_1, W_2)$.
        target: $\Sigma$, (out, in).
        lam: $\lambda$; by default that of the layers.

    Returns:
        The three matrices, with the smallest singular value and the condition of $B$.

    Example:
        >>> found = overlaps((jnp.eye(2), jnp.eye(2)), jnp.diag(jnp.array([3.0, 1.0])))
        >>> float(found.smallest), float(found.condition)
        (2.0, 1.0)
    """
    first, second, scale = checked_two_layers("overlaps", params, target, lam)[:3]
    return _overlaps(first, second, eigensystem(target, scale))


@formula
def _overlaps(first: Matrix, second: Matrix, system: Eigensystem) -> Overlaps:
    m = system.modes
    less, more = system.tilts
    above, below = second.T @ system.left, first @ system.right
    return Overlaps(
        above[:, :m] * more + below[:, :m] * less,
        above[:, :m] * less - below[:, :m] * more,
        xp.concatenate([below[:, m:], above[:, m:]], axis=1),
    )


@entry(instead="use propagate")
def generic_form(params: Sequence[Any], target: object, lam: ArrayLike | None, t: ArrayLike) -> Correlations:
    r"""$e^{Ft} Q_0\,[I + Q_0^\top P\,\phi(L, t)\,P^\top Q_0]^{-1} Q_0^\top e^{Ft}$ as it stands.

    Holds for every hidden width. Relative errors grow as $e^{2(s_{\max} - s_{\min})t}$ times rounding.

    Args:
        params: $\lambda$-balanced layers $(W_1, W_2)$ at time 0.
        target: $\Sigma$, (out, in).
        lam: $\lambda$; `None` for that of the layers.
        t: Time, at least 0. Beyond $s_{\lambda,\max}\,t = 3$ there is a `PrecisionWarning`.

    Returns:
        $QQ^\top(t)$ by its blocks.

    Raises:
        HypothesisError: Where the exponentials overflow, or the matrix to be inverted is not positive definite any
            more.

    Example:
        >>> generic_form((jnp.eye(1), jnp.eye(1)), jnp.eye(1), 0.0, 1.0).product.round(12)
        array([[1.]])
    """
    where = "generic_form"
    start = _start(where, params, target, lam, t)
    _check_growth(where, start)
    values, vectors = start.system
    y = vectors.T @ start.factor
    middle = np.eye(y.shape[1]) + y.T @ (_phi(values, start.time)[:, None] * y)
    return _assembled(where, start, vectors @ (np.exp(values * start.time)[:, None] * y), middle)


@entry(instead="use propagate")
def block_form(
    params: Sequence[Any], target: object, lam: ArrayLike | None, t: ArrayLike, *, as_printed: bool = False
) -> Correlations:
    r"""$[Z_1; Z_2]\,A^{-1}\,[Z_1; Z_2]^\top$ in terms of the overlaps $B$, $C$, $D$ (see `Overlaps`).

    $Z_1 = \tfrac12 V(g - hg)e^{s_\lambda t}B^\top - \tfrac12 V(g + hg)e^{-s_\lambda t}C^\top
    + V_\perp e^{\lambda_\perp t}V_\perp^\top W_1^\top$,
    $Z_2 = \tfrac12 U(g + hg)e^{s_\lambda t}B^\top + \tfrac12 U(g - hg)e^{-s_\lambda t}C^\top
    + U_\perp e^{\lambda_\perp t}U_\perp^\top W_2$, and
    $A = I + B\frac{e^{2s_\lambda t} - 1}{4s_\lambda}B^\top + C\frac{1 - e^{-2s_\lambda t}}{4s_\lambda}C^\top
    + \frac{e^{2\lambda_\perp t} - 1}{2\lambda_\perp}DD^\top$. In print the last fraction is
    $(e^{\lambda_\perp t} - 1)/\lambda_\perp$, which is wrong wherever $\lambda_\perp \ne 0$ and $D \ne 0$.

    Args:
        params: $\lambda$-balanced layers $(W_1, W_2)$ at time 0.
        target: $\Sigma$, (out, in).
        lam: $\lambda$; `None` for that of the layers.
        t: Time, at least 0. Beyond $s_{\lambda,\max}\,t = 3$ there is a `PrecisionWarning`.
        as_printed: Whether to take the fraction of the printed theorem.

    Returns:
        $QQ^\top(t)$ by its blocks.

    Raises:
        HypothesisError: As for `generic_form`.

    Example:
        >>> block_form((jnp.eye(1), jnp.eye(1)), jnp.eye(1), 0.0, 1.0).product.round(12)
        array([[1.]])
    """
    where = "block_form"
    start = _start(where, params, target, lam, t)
    _check_growth(where, start)
    b, c, d = start.overlaps
    less, more, u, v, speed, time = start.less, start.more, start.u, start.v, start.speed, start.time
    grow, decay = np.exp(speed * time), np.exp(-speed * time)
    lost = np.exp(start.perp * time) * start.outside
    top = 0.5 * v @ ((less * grow)[:, None] * b.T - (more * decay)[:, None] * c.T) + lost[: start.inp]
    bottom = 0.5 * u @ ((more * grow)[:, None] * b.T + (less * decay)[:, None] * c.T) + lost[start.inp :]
    share = _phi(np.asarray(start.perp / 2 if as_printed else start.perp), time)
    middle = np.eye(len(b)) + (b * (_phi(speed, time) / 2)) @ b.T + (c * (_phi(-speed, time) / 2)) @ c.T
    return _assembled(where, start, np.concatenate([top, bottom]), middle + share * d @ d.T)


@entry(instead="use propagate")
def decaying_form(
    params: Sequence[Any], target: object, lam: ArrayLike | None, t: ArrayLike, *, as_printed: bool = False
) -> Correlations:
    r"""The block form with $B^{-\top}e^{-s_\lambda t}$ taken out, so that no exponential grows.

    With $E = e^{-s_\lambda t}$, $K = C^\top B^{-\top}$ and $\psi = (1 - E^2)/(4s_\lambda)$ the outer factors are
    $\tfrac12 V[(g - hg) - (g + hg)EKE] + V_\perp V_\perp^\top W_1^\top B^{-\top}e^{\lambda_\perp t}E$ and
    $\tfrac12 U[(g + hg) + (g - hg)EKE] + U_\perp U_\perp^\top W_2 B^{-\top}e^{\lambda_\perp t}E$, and the matrix to be
    inverted is $EB^{-1}B^{-\top}E + \psi + EK^\top\psi KE
    + EB^{-1}D\,\frac{e^{2\lambda_\perp t} - 1}{2\lambda_\perp}\,D^\top B^{-\top}E$. In print, where its transposes are
    mended so that the shapes fit, $\psi$ in the third term has $E$ in place of $E^2$ and the last fraction is
    $(e^{\lambda_\perp t/2} - 1)/\lambda_\perp$. Relative errors are some $\mathrm{cond}(B)^2$ times rounding at all
    times; with $\lambda = 0$ half of all square networks have a singular $B$.

    Args:
        params: $\lambda$-balanced layers $(W_1, W_2)$ at time 0; as many hidden units as the smaller outer width.
        target: $\Sigma$, (out, in).
        lam: $\lambda$; `None` for that of the layers.
        t: Time, at least 0.
        as_printed: Whether to take the fractions of the printed theorem.

    Returns:
        $QQ^\top(t)$ by its blocks; with a `PrecisionWarning` where the condition of $B$ is above $10^4$.

    Raises:
        HypothesisError: Where $B$ is not square, or its condition is above $10^7$.

    Example:
        >>> decaying_form((jnp.eye(1), jnp.eye(1)), 2 * jnp.eye(1), 0.0, 1e3).product.round(12)
        array([[2.]])
    """
    where = "decaying_form"
    start = _start(where, params, target, lam, t)
    b, c, d = start.overlaps
    hidden, modes = b.shape
    if hidden != modes:
        raise HypothesisError(
            "as many hidden units as the smaller outer width",
            abs(hidden - modes),
            0,
            f"{where}: B is {hidden} by {modes} and has no inverse; use propagate.",
        )
    less, more, speed, time, perp = start.less, start.more, start.speed, start.time, start.perp
    singular = np.linalg.svd(b, compute_uv=False)
    condition = float(singular[0] / singular[-1]) if singular[-1] > 0 else float("inf")
    if condition > CONDITION_LIMIT:
        raise HypothesisError(
            "B invertible (its condition number)",
            condition,
            CONDITION_LIMIT,
            f"{where}: hardly a digit would be right; use propagate, which needs no inverse.",
        )
    if condition > CONDITION_WARNING:
        warnings.warn(
            f"{where}: B has condition {condition:.1e}; relative errors may be {condition**2 * 2.2e-16:.0e}. "
            "propagate keeps all digits.",
            PrecisionWarning,
            stacklevel=2,
        )
    fade = np.exp(-speed * time)
    inverse = np.linalg.inv(b)
    k = (inverse @ c).T
    psi = _phi(-speed, time) / 2
    coupled = fade[:, None] * k * fade
    # e^{(λ⊥ - s_λ) t}, with the exponent below zero: s² / (s_λ + λ⊥) where they nearly cancel.
    strengths = start.strengths
    gap = strengths * (strengths / np.where(speed + perp > 0, speed + perp, 1.0)) if perp > 0 else speed - perp
    lost = start.outside @ inverse.T * np.exp(-gap * time)
    top = 0.5 * start.v @ (np.diag(less) - more[:, None] * coupled) + lost[: start.inp]
    bottom = 0.5 * start.u @ (np.diag(more) + less[:, None] * coupled) + lost[start.inp :]
    faded = inverse.T * fade
    tied = inverse @ d
    if as_printed:
        third = _phi(-speed / 2, time) / 4
        scale, share = fade, _phi(np.asarray(perp / 4), time) / 2
    else:
        third = psi
        scale, share = np.exp(-gap * time) if perp > 0 else fade, _phi(np.asarray(-abs(perp)), time)
    rest = share * (scale[:, None] * tied) @ (scale[:, None] * tied).T
    middle = faded.T @ faded + np.diag(psi) + (k * fade).T @ (third[:, None] * (k * fade)) + rest
    outer = np.concatenate([top, bottom])
    return check_result(where, _blocks(outer @ np.linalg.solve(middle, outer.T), start.inp))


# ---- Parts -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Start:
    """Start, task and time as plain numbers, by the definitions and not by `Eigensystem`."""

    factor: np.ndarray
    inp: int
    left: np.ndarray
    strengths: np.ndarray
    right: np.ndarray
    lam: float
    time: float

    @property
    def u(self) -> np.ndarray:
        return self.left[:, : len(self.strengths)]

    @property
    def v(self) -> np.ndarray:
        return self.right[:, : len(self.strengths)]

    @property
    def speed(self) -> np.ndarray:
        return np.hypot(self.strengths, self.lam / 2)

    @property
    def perp(self) -> float:
        return float(np.sign(len(self.left) - self.inp)) * self.lam / 2

    @property
    def _gains(self) -> tuple[np.ndarray, np.ndarray]:
        total = self.speed + self.strengths
        h = np.where(total > 0, self.lam / 2, 0.0) / np.where(total > 0, total, 1.0)
        return 1 / np.sqrt(1 + h**2), h / np.sqrt(1 + h**2)

    @property
    def less(self) -> np.ndarray:
        g, hg = self._gains
        return g - hg

    @property
    def more(self) -> np.ndarray:
        g, hg = self._gains
        return g + hg

    @property
    def overlaps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        m = len(self.strengths)
        below, above = self.factor[: self.inp].T @ self.right, self.factor[self.inp :].T @ self.left
        b = above[:, :m] * self.more + below[:, :m] * self.less
        c = above[:, :m] * self.less - below[:, :m] * self.more
        return b, c, np.concatenate([below[:, m:], above[:, m:]], axis=1)

    @property
    def outside(self) -> np.ndarray:
        """The part of the factor in the directions outside of both V and U."""
        m = len(self.strengths)
        rest, other = self.right[:, m:], self.left[:, m:]
        below, above = self.factor[: self.inp], self.factor[self.inp :]
        return np.concatenate([rest @ (rest.T @ below), other @ (other.T @ above)])

    @property
    def system(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and eigenvectors of F."""
        out, m = len(self.left), len(self.strengths)
        upper = np.concatenate([self.v * self.less, self.v * self.more], axis=1) / np.sqrt(2)
        lower = np.concatenate([self.u * self.more, -self.u * self.less], axis=1) / np.sqrt(2)
        rest = np.zeros((self.inp + out, self.inp + out - 2 * m))
        rest[: self.inp, : self.inp - m] = self.right[:, m:]
        rest[self.inp :, self.inp - m :] = self.left[:, m:]
        values = np.concatenate([self.speed, -self.speed, np.full(self.inp + out - 2 * m, self.perp)])
        return values, np.concatenate([np.concatenate([upper, lower]), rest], axis=1)


def _start(where: str, params: Sequence[Any], target: object, lam: ArrayLike | None, t: ArrayLike) -> _Start:
    check_time(where, t)
    first, second, scale = checked_two_layers(where, params, target, lam)[:3]
    factor = np.concatenate([np.asarray(first).T, np.asarray(second)])
    left, strengths, right_t = np.linalg.svd(np.asarray(target, dtype=float))
    return _Start(factor, first.shape[1], left, strengths, right_t.T, float(scale), float(np.asarray(t)))


def _phi(values: np.ndarray, t: float) -> np.ndarray:
    """(e^{2Lt} - 1) / (2L), and t at L = 0."""
    doubled = 2 * np.asarray(values, dtype=float)
    return np.where(doubled == 0, t, np.expm1(doubled * t) / np.where(doubled == 0, 1.0, doubled))


def _check_growth(where: str, start: _Start) -> None:
    """Warn where the exponentials take digits, refuse where they overflow."""
    length = float(start.speed[0]) * start.time
    if length > LARGEST_EXPONENT:
        raise _out_of_range(where, length, "the exponentials overflow")
    if length > GROWING_LIMIT:
        warnings.warn(
            f"{where}: s_λ,max t = {length:.3g} is beyond {GROWING_LIMIT:g}; the growing exponentials may have taken "
            "all digits. propagate keeps them.",
            PrecisionWarning,
            stacklevel=3,
        )


def _out_of_range(where: str, length: float, why: str) -> HypothesisError:
    return HypothesisError(
        "s_λ,max t in the range of growing exponentials", length, GROWING_LIMIT, f"{where}: {why}; use propagate."
    )


def _assembled(where: str, start: _Start, outer: np.ndarray, middle: np.ndarray) -> Correlations:
    """outer middle^{-1} outer^T for a positive definite middle."""
    try:
        root = np.linalg.cholesky(middle)
    except np.linalg.LinAlgError:
        why = "the matrix to be inverted is not positive definite any more"
        raise _out_of_range(where, float(start.speed[0]) * start.time, why) from None
    half = np.linalg.solve(root, outer.T)
    return check_result(where, _blocks(half.T @ half, start.inp))


def _blocks(matrix: np.ndarray, inp: int) -> Correlations:
    parts = (matrix[:inp, :inp], matrix[inp:, :inp], matrix[inp:, inp:])
    return Correlations(*(xp.asarray(part, dtype=float) for part in parts))
