r"""What nearly balanced layers must have in common: strengths, directions, and how gradient descent wears it off.

At the interface of layers $l$ and $l + 1$ let $s_k^2$ and $u_k$ be eigenvalues and eigenvectors of $W_l W_l^\top$,
$t_m^2$ and $v_m$ those of $W_{l+1}^\top W_{l+1}$, both of the size of the hidden layer and largest first. Then
$\|C_l\|_F^2 = \sum_{k,m} (u_k \cdot v_m)^2 (s_k^2 - t_m^2)^2$ exactly, and what is small on the left binds every term
on the right.
"""

import dataclasses
import itertools

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    Matrix,
    Params,
    are_tied,
    as_array,
    check_count,
    check_number,
    check_result,
    check_x64,
    entry,
    full_svd,
    refused_derivative,
    xp,
)
from deeplinear.landscape._arguments import check_range, checked_chain, host_layers
from deeplinear.models import DeepLinear, Problem, checked_problem

Vector = Float[np.ndarray, " width"]
Square = Float[np.ndarray, "width width"]


@dataclasses.dataclass(frozen=True)
class Interface:
    r"""One hidden layer between the layer that writes to it and the one that reads from it.

    Attributes:
        norm: $\|C_l\|_F$.
        written: $s_k^2$: eigenvalues of $W_l W_l^\top$, largest first, zeros included.
        read: $t_m^2$: eigenvalues of $W_{l+1}^\top W_{l+1}$.
        overlaps: $\bar\Theta_{mk} = (v_m \cdot u_k)^2$, rows by what is read; doubly stochastic. Where eigenvalues
            coincide the vectors are arbitrary, and so are these.
    """

    norm: float
    written: Vector
    read: Vector
    overlaps: Square

    @property
    def slack(self) -> float:
        r"""$\|C_l\|_F^2 - \sum_k (s_k^2 - t_k^2)^2$, which is not negative (Wielandt and Hoffman)."""
        return self.norm**2 - float(np.sum((self.written - self.read) ** 2))

    @property
    def gaps(self) -> Square:
        r"""$|t_m^2 - s_k^2|$, rows by what is read."""
        return np.abs(self.read[:, None] - self.written[None, :])

    @property
    def identity(self) -> float:
        r"""$\sum_{mk} \bar\Theta_{mk} (t_m^2 - s_k^2)^2$: equal to $\|C_l\|_F^2$."""
        return float(np.sum(self.overlaps * self.gaps**2))

    @property
    def overlap_bounds(self) -> Square:
        r"""$\min(1, \|C_l\|_F^2 / (t_m^2 - s_k^2)^2)$, with room for rounding: no overlap exceeds it."""
        return self._share(self.gaps)

    @property
    def misalignment(self) -> Vector:
        r"""$1 - (u_k \cdot v_k)^2$, as the sum of the overlaps of $u_k$ with the others."""
        return np.sum(np.where(np.eye(len(self.read), dtype=bool), 0.0, self.overlaps), axis=0)

    @property
    def misalignment_bounds(self) -> Vector:
        r"""$\min(1, \|C_l\|_F^2 / \min_{m \ne k} (s_k^2 - t_m^2)^2)$: no misalignment exceeds it; 0 for one unit."""
        others = np.where(np.eye(len(self.read), dtype=bool), np.inf, self.gaps)
        nearest = np.min(others, axis=0)
        return np.where(np.isinf(nearest), 0.0, self._share(nearest))

    @property
    def strength_bounds(self) -> Vector:
        r"""$\|C_l\|_F / (s_k + t_k)$: $|s_k - t_k|$ does not exceed it; infinite where both vanish."""
        total = np.sqrt(self.written) + np.sqrt(self.read)
        return np.divide(self.norm, total, out=np.full_like(total, np.inf), where=total > 0)

    def _share(self, gaps: np.ndarray) -> np.ndarray:
        """Square of norm over gap, at most 1. Eigenvalues that differ by rounding leave their vectors free."""
        rounding = float(np.finfo(float).eps) * len(self.read) * float(self.read[0] + self.written[0])
        norm, least = self.norm + rounding, gaps - rounding
        return np.divide(norm, least, out=np.ones_like(gaps), where=least > norm) ** 2

    @property
    def symmetric_overlaps(self) -> Square:
        r"""$\Theta = (\bar\Theta + \bar\Theta^\top)/2$, doubly stochastic and symmetric."""
        return (self.overlaps + self.overlaps.T) / 2

    @property
    def laplacian_form(self) -> float:
        r"""$2\mu^\top (I - \Theta) \mu = \sum_{km} \Theta_{km} (\mu_k - \mu_m)^2$ with $\mu_k = s_k^2$.

        The limit of $\|C_l\|_F^2$ for layers with equal strengths; it is neither a bound of it nor bounded by it.
        """
        mu = self.written
        return float(np.sum(self.symmetric_overlaps * (mu[:, None] - mu[None, :]) ** 2))


@dataclasses.dataclass(frozen=True)
class BalanceReport:
    r"""How nearly balanced the layers of a network are, interface by interface.

    Attributes:
        interfaces: One for each hidden layer, first-acting first.
    """

    interfaces: tuple[Interface, ...]

    @property
    def delta(self) -> float:
        r"""$\delta = \max_l \|C_l\|_F$; 0 for a single layer."""
        return max((interface.norm for interface in self.interfaces), default=0.0)

    def __str__(self) -> str:
        lines = [f"δ = {self.delta:.3g}"]
        for number, interface in enumerate(self.interfaces, start=1):
            apart = float(np.max(np.abs(np.sqrt(interface.written) - np.sqrt(interface.read))))
            lines.append(
                f"layers {number}, {number + 1}: ‖C‖ = {interface.norm:.3g}, strengths differ by at most {apart:.3g}, "
                f"leading directions by 1 - cos² = {interface.misalignment[0]:.3g} "
                f"(at most {interface.misalignment_bounds[0]:.3g})"
            )
        return "\n".join(lines)


@entry(instead="use conserved and alignment_metric")
def balance_report(params: Params) -> BalanceReport:
    r"""Strengths, directions and their bounds at every interface of a network. Host-side.

    Signs and the order of singular vectors play no part: only squares of overlaps appear.

    Args:
        params: Layers, first-acting first.

    Returns:
        The report; it has no interfaces for a single layer.

    Example:
        >>> report = balance_report((jnp.diag(jnp.array([2.0, 1.0])), jnp.diag(jnp.array([3.0, 1.0]))))
        >>> report.delta, report.interfaces[0].slack
        (5.0, 0.0)
    """
    layers = host_layers("balance_report", params)
    found = []
    for below, above in itertools.pairwise(layers):
        # All vectors of the hidden side; those of the other side, which may be far wider, are not needed.
        width = below.shape[0]
        left, s, _ = np.linalg.svd(below, full_matrices=width > below.shape[1])
        _, t, right_t = np.linalg.svd(above, full_matrices=width > above.shape[0])
        with np.errstate(over="ignore"):
            written, read = (np.pad(values**2, (0, width - len(values))) for values in (s, t))
        with np.errstate(over="ignore", invalid="ignore"):
            norm = float(np.linalg.norm(above.T @ above - below @ below.T))
        check_range("balance_report", norm, written, read)
        found.append(Interface(norm, written, read, (right_t @ left) ** 2))
    return BalanceReport(tuple(found))


@entry
def alignment_metric(params: Params, modes: int) -> Float[Array, " pairs"]:
    r"""$m_l(q) = \bigl\| |V_{l+1}^\top U_l|_{1:q,1:q} - I_q \bigr\|_F^2$: how far the leading directions are apart.

    $U_l$ holds the left singular vectors of layer $l$ and $V_{l+1}$ the right ones of the next; entrywise absolute
    values take away their signs. Take $q$ = the number of modes that are learnt: vectors of singular values that stay
    small are arbitrary, and with them the metric does not fall. For $q = 1$ it is $(1 - a)^2$ with $a$ the probe
    `layer_alignment`, which sees the first mode only. It compiles and maps over members, so a probe can record it.

    Args:
        params: Layers, first-acting first.
        modes: $q$, at most the narrowest hidden width.

    Returns:
        One number per pair of neighbouring layers.

    Example:
        >>> layers = (jnp.diag(jnp.array([2.0, 1.0])), jnp.diag(jnp.array([1.0, 2.0])))
        >>> alignment_metric(layers, 1), alignment_metric(layers, 2)
        (array([1.]), array([4.]))
    """
    checked_chain("alignment_metric", params)
    widest = min((layer.shape[0] for layer in params[:-1]), default=modes)
    check_count("alignment_metric", "modes", modes, at_least=1, at_most=widest)
    factors = [full_svd(layer) for layer in params]
    message = "alignment_metric: directions of singular values that coincide have no derivative; move params a little."
    tied = [are_tied(values[: modes + 1], (1, 1)) | (values[modes - 1 :][:1] == 0).any() for _, values, _ in factors]
    found = []
    for (one, (left, _, _)), (other, (_, _, right_t)) in itertools.pairwise(zip(tied, factors, strict=True)):
        overlaps = refused_derivative(xp.abs(right_t[:modes] @ left[:, :modes]), one | other, message)
        found.append(xp.sum((overlaps - xp.eye(modes, dtype=overlaps.dtype)) ** 2))
    return xp.array(found, dtype=params[0].dtype)


@entry
def descent_drift(problem: Problem, params: Params, lr: ArrayLike) -> tuple[Matrix, ...]:
    r"""Change of every conserved quantity in one step of gradient descent.

    It is $\eta^2(G_{l+1}^\top G_{l+1} - G_l G_l^\top)$ exactly, with the gradients $G_l$ at the layers before the step:
    what is linear in $\eta$ cancels, as it does along the flow. A penalty adds $-(2\eta\gamma - \eta^2\gamma^2)\,C_l$,
    the gradients being those without it; this is included.

    Args:
        problem: A problem of a deep linear network, with any loss.
        params: Layers before the step.
        lr: Learning rate $\eta > 0$.

    Returns:
        One symmetric matrix per pair of neighbouring layers.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> float(descent_drift(problem, (jnp.full((1, 1), 2.0), jnp.ones((1, 1))), 0.1)[0][0, 0].round(12))
        0.03
    """
    check_x64("descent_drift")
    check_number("descent_drift", "lr", lr, above=0)
    checked_problem("descent_drift", "problem", problem)
    if not isinstance(problem.model, DeepLinear):
        raise TypeError(
            f"descent_drift: problem.model must be a DeepLinear network, but is {type(problem.model).__name__}: where "
            "weights are fixed, laws may break already to first order."
        )
    params = checked_chain("descent_drift", params)
    problem.check(params, "descent_drift")
    eta = as_array(lr, float)
    bare = Problem(problem.model, problem.loss)
    pulls = bare.gradient(params)
    kept = 1 - eta * problem.l2
    changes = []
    for (w, g), (w_above, g_above) in itertools.pairwise(zip(params, pulls, strict=True)):
        conserved = w_above.T @ w_above - w @ w.T
        changes.append(eta**2 * (g_above.T @ g_above - g @ g.T) + (kept**2 - 1) * conserved)
    return check_result("descent_drift", tuple(changes))
