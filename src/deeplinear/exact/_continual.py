r"""Sequences of tasks: the propagator chained from one target to the next, and what is forgotten on the way.

The imbalance $\lambda$ is conserved by the flow of every task, so that the state at the end of one task is a balanced
start for the next: $Q_j = \mathrm{propagate}(Q_{j-1}; \Sigma_j, \lambda, T_j)$.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from deeplinear.core import (
    Array,
    Params,
    as_array,
    check_finite,
    check_result,
    check_shape,
    check_x64,
    entry,
    formula,
    is_concrete,
    is_program,
    over,
    scan,
    xp,
)
from deeplinear.exact._block_algebra import spread
from deeplinear.exact._riccati import Correlations, correlations_of, eigensystem, propagated, propagated_at, stacked
from deeplinear.exact._two_layers import BALANCE_TOLERANCE, checked_two_layers


class Continual(eqx.Module):
    r"""Exact solution of a network trained on one task after the other; made by `continual`.

    Time runs on from task to task. What is returned is free of the hidden basis; the factors have one that is
    arbitrary after the start.

    Attributes:
        targets: $\Sigma_1, \dots, \Sigma_K$, one (out, in) matrix per task.
        durations: $T_1, \dots, T_K$.
        lam: $\lambda$, the same for all tasks.
        residual: By how much the start misses $\lambda$-balance, relative to its squared norm.
        factors: $Q$ at the start and at the end of every task.
    """

    targets: Float[Array, "tasks out inp"]
    durations: Float[Array, " tasks"]
    lam: Float[Array, ""]
    residual: Float[Array, ""]
    factors: Float[Array, "states size hidden"]

    @property
    @formula
    def boundaries(self) -> Float[Array, " states"]:
        """Times at which tasks begin and end: 0, the end of the first task, and so on."""
        return xp.concatenate([xp.zeros(1), xp.cumsum(self.durations)])

    @property
    def products(self) -> Float[Array, "states out inp"]:
        """The network function at the start and at the end of every task."""
        return correlations_of(self.factors, self.targets.shape[-1]).product

    @property
    @formula
    def forgetting_matrix(self) -> Float[Array, "tasks tasks"]:
        r"""Entry $(i, j)$, $j \ge i$: rise of the loss of task $i$ from the end of task $i$ to the end of task $j$.

        Below the diagonal, where task $i$ has not been trained yet, it is 0.
        """
        ends = self.products[1:]
        rises = over(lambda own, target: over(lambda later: forgetting(own, later, target))(ends))
        return xp.triu(rises(ends, self.targets))

    def task(self, times: Any) -> Int[Array, "*times"]:
        """Position of the task that is trained at each time; at a boundary the one that begins."""
        return xp.searchsorted(self.boundaries[1:-1], xp.asarray(times, dtype=float), side="right").astype(int)

    def factor(self, times: Any) -> Float[Array, "*times size hidden"]:
        r"""$Q$ at each time, up to a rotation of the hidden basis.

        Args:
            times: From 0 to the end of the last task, in any order and shape.
        """
        given = as_array(times, float)
        over, end = _outside(self.durations, given)
        message = "Continual: times must lie between 0 and the end of the last task"
        if is_concrete(over) and bool(over):
            raise ValueError(
                f"{message}, {float(end):g}, but run from {np.min(np.asarray(given)):g} to "
                f"{np.max(np.asarray(given)):g}."
            )
        if not is_concrete(over):
            given = eqx.error_if(given, over, f"{message}.")
        return _factors(self, given)

    def correlations(self, times: Any) -> Correlations:
        r"""Blocks of $QQ^\top$ at each time, among them the network function.

        Args:
            times: From 0 to the end of the last task, in any order and shape.
        """
        return correlations_of(self.factor(times), self.targets.shape[-1])

    def losses(self, times: Any) -> Float[Array, "tasks *times"]:
        r"""Reduced loss $\tfrac12\|W_2 W_1 - \Sigma_i\|_F^2$ of every task at every time, trained at that time or not.

        The full loss of samples is larger by the constant that no linear map can fit.

        Args:
            times: From 0 to the end of the last task, in any order and shape.
        """
        return _losses(self.correlations(times).product, self.targets)


@formula
def _losses(
    product: Float[Array, "*times out inp"], targets: Float[Array, "tasks out inp"]
) -> Float[Array, "tasks *times"]:
    return over(lambda target: 0.5 * xp.sum((product - target) ** 2, axis=(-2, -1)))(targets)


@formula
def _outside(durations: Float[Array, " tasks"], times: Float[Array, "*times"]) -> tuple[Bool[Array, ""], Array]:
    """Whether there are times before the start or after the end, and the end."""
    end = xp.sum(durations)
    # Sums of durations differ by rounding from the times a caller adds up.
    return xp.any(times > end * (1 + 1e-12)) | ~xp.all(times >= 0), end


@formula
def _factors(solution: Continual, times: Float[Array, "*times"]) -> Float[Array, "*times size hidden"]:
    systems = over(lambda target: eigensystem(target, solution.lam))(solution.targets)
    begun, flat = solution.boundaries[:-1], times.ravel()
    which = solution.task(flat)
    since = xp.maximum(flat - begun[which], 0.0)

    def within(k: Any, since: Array) -> Array:
        system = jax.tree.map(lambda leaf: leaf[k], systems)
        return propagated_at(solution.factors[k], system, since)

    if is_program(which, since, solution):
        found = over(within)(which, since)
    else:  # task by task, with all its times at once
        order = np.argsort(which, kind="stable")
        parts = [within(k, since[which == k]) for k in np.unique(which)]
        found = np.concatenate([solution.factors[:0], *parts])[np.argsort(order)]
    return found.reshape(*times.shape, *solution.factors.shape[1:])


@entry
def continual(
    params: Params,
    targets: Any,
    durations: Any,
    *,
    lam: ArrayLike | None = None,
    tolerance: float = BALANCE_TOLERANCE,
) -> Continual:
    r"""Exact dynamics of two layers trained by gradient flow on a sequence of tasks with whitened inputs.

    With $Q = [W_1^\top; W_2]$, $Q_j$ is the propagator of task $j$ applied to $Q_{j-1}$ for the time $T_j$; $\lambda$
    is conserved throughout. Every hidden width is allowed, larger than both other widths included.

    Args:
        params: The two layers at the start, $\lambda$-balanced.
        targets: Input-output covariances $\Sigma_j$, one (out, in) matrix per task.
        durations: $T_j$, at least 0: one per task, or one number for all.
        lam: $\lambda$; by default read off the layers.
        tolerance: Largest residual of the balance, relative to $\|W_1\|^2 + \|W_2\|^2$. A larger one admits
            starts that are balanced approximately: what is returned is then as wrong as `residual` says.

    Returns:
        The solution, a function of time.

    Raises:
        HypothesisError: If the layers are not $\lambda$-balanced, with the residual.

    Example:
        >>> one = jnp.ones((1, 1))
        >>> solution = continual((0.1 * one, 0.1 * one), [2 * one, one], 20.0)
        >>> solution.losses([20.0, 40.0]).round(9)
        array([[0. , 0.5],
               [0.5, 0. ]])
    """
    where = "continual"
    check_x64(where)
    inp, out = params[0].shape[1], params[1].shape[0]
    sigmas = [xp.asarray(target, dtype=float) for target in targets]
    if not sigmas:
        raise ValueError(f"{where}: targets must hold at least one task, but is empty.")
    for position, sigma in enumerate(sigmas):
        check_shape(where, f"targets[{position}]", sigma, (out, inp))
        check_finite(where, f"targets[{position}]", sigma)
    lengths = as_array(durations, float)
    if lengths.ndim == 0:
        lengths = spread(lengths, (len(sigmas),))
    check_shape(where, "durations", lengths, (len(sigmas),))
    check_finite(where, "durations", lengths)
    if is_concrete(lengths) and np.any(np.asarray(lengths) < 0):
        raise ValueError(f"{where}: durations must be at least 0, but the smallest is {np.min(np.asarray(lengths)):g}.")
    layers = checked_two_layers(where, params, lam=lam, tolerance=tolerance)
    begun, factors = _chain(stacked(layers[:2]), tuple(sigmas), lengths, layers.lam)
    return check_result(where, Continual(begun, lengths, layers.lam, layers.residual, factors))


@formula
def _chain(
    factor: Float[Array, "size hidden"],
    sigmas: tuple[Float[Array, "out inp"], ...],
    durations: Float[Array, " tasks"],
    lam: Float[Array, ""],
) -> tuple[Float[Array, "tasks out inp"], Float[Array, "states size hidden"]]:
    """Targets, and factors at the start and at the end of every task."""
    targets = xp.stack(sigmas)

    def step(now: Array, task: tuple[Array, Array]) -> tuple[Array, Array]:
        later = propagated(now, eigensystem(task[0], lam), task[1])
        return later, later

    return targets, xp.concatenate([factor[None], scan(step, factor, (targets, durations))[1]])


@entry
def forgetting(before: object, after: object, target: object) -> Float[Array, ""]:
    r"""Rise of the loss of a task between two states, $\tfrac12(\|F' - \Sigma\|_F^2 - \|F - \Sigma\|_F^2)$.

    Evaluated as $\tfrac12\langle F' - F, F' + F - 2\Sigma\rangle$, which keeps its digits where little is forgotten.
    After full training on another task with target $\Sigma_k$ the state $F'$ is $\Sigma_k$, so that only the similarity
    of the tasks counts. The part of the loss that no linear map can fit drops out.

    Args:
        before: Network function $F$ at the earlier time, such as the end of training on this task.
        after: Network function $F'$ at the later time.
        target: $\Sigma$ of the task.

    Returns:
        The rise; negative if the task has been learned meanwhile.

    Example:
        >>> one = jnp.ones((1, 1))
        >>> float(forgetting(one, 3 * one, one))
        2.0
    """
    early, late, sigma = (xp.asarray(matrix, dtype=float) for matrix in (before, after, target))
    check_shape("forgetting", "after", late, early.shape)
    check_shape("forgetting", "target", sigma, early.shape)
    for name, matrix in (("before", early), ("after", late), ("target", sigma)):
        check_finite("forgetting", name, matrix)
    return check_result("forgetting", _rise(early, late, sigma))


@formula
def _rise(early: Array, late: Array, sigma: Array) -> Float[Array, ""]:
    return 0.5 * xp.sum((late - early) * ((late - sigma) + (early - sigma)))
