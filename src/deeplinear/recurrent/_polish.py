r"""From a student of small loss to one of none: Levenberg–Marquardt on the modes of a diagonal student.

Gradient flow of a student with spare modes ends algebraically, with a loss that falls like $t^{-2}$: a spare mode is
pushed out only by the residual that it causes itself. Where only the limit matters, Gauss–Newton steps get there at a
linear rate: in a dozen iterations where input and output maps are free, in some dozens to some thousands where they are
tied, the more of them the closer modes crowd around one another.
"""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from deeplinear.core import check_count, check_number, entry, near_name, xp
from deeplinear.models import LinearRNN, System, checked_system
from deeplinear.recurrent._response import checked_numbers

Modes = Literal["tied", "diagonal"]

FASTER, SLOWER = 3.0, 4.0
"""Factors of the damping after a step that lowers the loss and after one that does not."""

FIRST, STUCK = 1e-2, 1e18
"""Damping at the start, and at which no step can lower the loss; relative to the largest singular value squared."""


class Polished(NamedTuple):
    r"""A student after its polish.

    Attributes:
        system: $A$, $B$, $C$, with diagonal $A$.
        loss: $\tfrac12\sum_{j<k}(h_j - w_j)^2$.
        iterations: Steps tried.
        converged: Whether the loss is as small as was asked for; if not, the student rests at a point from which no
            step leads down, or the limit of iterations was met.
    """

    system: System
    loss: float
    iterations: int
    converged: bool


@entry(instead="call it outside of jit, vmap and grad; it iterates in extended precision")
def polish(
    response: Any,
    system: Any,
    *,
    form: Modes = "tied",
    tolerance: float = 1e-28,
    max_steps: int = 5000,
) -> Polished:
    r"""Drive the loss $\tfrac12\sum_{j<k}(h_j - w_j)^2$ of a diagonal student to zero by damped Gauss–Newton steps.

    With $r = h - w$ and its Jacobian $J$ in the parameters, a step is $-J^\top(JJ^\top + \mu)^{-1}r$, taken from the
    singular values of $J$; $\mu$ falls after a step that lowers the loss and grows after one that does not. The step is
    of least length among those with its effect, so that the student stays near where it was. Being balanced is kept
    exactly in the form `"tied"`, and to rounding from a balanced start in the form `"diagonal"`.

    Args:
        response: $w_0, \dots, w_{k-1}$, what is learned.
        system: The student to start from: $A$, $B$, $C$ with diagonal $A$, one input and one output.
        form: `"tied"`: $C = B^\top$ moves with $B$; `"diagonal"`: $B$ and $C$ are free.
        tolerance: Loss to reach, as a share of $\tfrac12\sum_jw_j^2$ (absolute if that vanishes).
        max_steps: Limit on the number of iterations.

    Returns:
        The student, its loss and whether it got there. A polish may end at a stationary point of positive loss.

    Raises:
        HypothesisError: The start is not of the form: $A$ not diagonal, or $C \ne B^\top$ though tied; symmetric
            students become diagonal by `diagonal_equivalent`.

    Example:
        >>> start = jnp.array([[0.7], [0.5], [0.3]])
        >>> found = polish([1.0, 0.5, 0.25], (jnp.diag(jnp.array([0.6, 0.1, -0.3])), start, start.T))
        >>> found.converged, round(float(impulse_response(found.system, 9).values[8] * 2**8), 9)
        (True, 1.0)
    """
    where = "polish"
    target = checked_numbers(where, "response", response, 1)
    if form not in get_args(Modes):
        options = get_args(Modes)
        raise ValueError(f"{where}: form is '{form}'. {near_name(str(form), options)}")
    check_number(where, "tolerance", tolerance, at_least=0)
    check_count(where, "max_steps", max_steps, at_least=1)
    checked = checked_system(where, system)
    inputs, outputs = checked.input.shape[1], checked.output.shape[0]
    if (inputs, outputs) != (1, 1):
        raise ValueError(f"{where}: system must have one input and one output, but has {inputs} and {outputs}.")
    model = LinearRNN(len(checked.transition), len(target), form=form)
    point = np.concatenate([np.asarray(part).ravel() for part in model.params(checked)])
    size = 0.5 * float(target @ target)
    wanted = tolerance * size if size > 0 else tolerance

    point, loss, steps = _descend(point, target, form, wanted, max_steps)
    b, a, *rest = np.split(point, len(model.shapes))
    c = rest[0] if rest else b
    found = System(*(xp.asarray(part, dtype=float) for part in (np.diag(a), b[:, None], c[None])))
    return Polished(found, loss, steps, loss <= wanted)


def _descend(
    point: np.ndarray, target: np.ndarray, form: str, wanted: float, max_steps: int
) -> tuple[np.ndarray, float, int]:
    """The last point, its loss, and the number of steps tried."""
    residual, jacobian = _residual(point, target, form)
    loss, damping, steps = 0.5 * float(residual @ residual), FIRST, 0  # the damping is relative to the Jacobian
    while loss > wanted and steps < max_steps:
        left, values, right = np.linalg.svd(jacobian, full_matrices=False)
        along, scale = left.T @ residual, float(values[0]) ** 2
        if not np.any(values * along):
            break  # a stationary point
        lower = False
        while not lower and steps < max_steps and damping <= STUCK:
            steps += 1
            moved = point - right.T @ (values * along / (values**2 + damping * scale))
            with np.errstate(over="ignore", invalid="ignore"):
                new, slopes = _residual(moved, target, form)
                value = 0.5 * float(new @ new)
            lower = bool(value < loss)
            damping = damping / FASTER if lower else damping * SLOWER
            if lower:
                point, residual, jacobian, loss = moved, new, slopes, value
        if not lower:
            break
    return point, loss, steps


def _residual(point: np.ndarray, target: np.ndarray, form: str) -> tuple[np.ndarray, np.ndarray]:
    r"""$h - w$ and its derivatives in $b$, $a$ and, where they are free, $c$."""
    b, a, *rest = np.split(point, 2 if form == "tied" else 3)
    c = rest[0] if rest else b
    powers = np.cumprod(np.vstack([np.ones_like(a), *([a] * (len(target) - 1))]), axis=0)
    slopes = np.arange(1.0, len(target))[:, None] * powers[:-1]
    on_a = np.vstack([np.zeros_like(a), slopes * (b * c)])
    parts = [2 * powers * b, on_a] if form == "tied" else [powers * c, on_a, powers * b]
    return powers @ (b * c) - target, np.hstack(parts)
