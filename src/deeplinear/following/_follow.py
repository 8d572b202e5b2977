"""The verb `follow`: exact first."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from deeplinear.core import Trajectory, entry
from deeplinear.dynamics import GradientFlow, Progress, simulate
from deeplinear.exact import NoClosedFormError, solve
from deeplinear.models import Problem
from deeplinear.probes import loss


@entry(instead="use closed forms such as exact.propagate")
def follow(
    problem: Problem,
    params: Iterable[Any],
    times: Any,
    *,
    probes: Callable[..., Any] | Iterable[Callable[..., Any]] = (loss,),
    flow: GradientFlow | None = None,
    throw: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Trajectory:
    r"""Gradient flow at given times: in closed form where one applies, integrated where none does.

    The trajectory says which it was: `info["method"]` begins with "closed form" and `info["hypotheses"]` has the
    measured residuals, or the method is the integrator and `info["closed_form"]` has the reason for which every closed
    form was refused.

    Args:
        problem: Model and loss.
        params: Layers at the start, first-acting first.
        times: Increasing times from 0 on to record at.
        probes: Observables, as for `simulate`.
        flow: How to integrate where that is needed; by default to a relative tolerance of 1e-10.
        throw: Raise `NumericalError` if the integration breaks down.
        progress: Called with a `Progress` now and then while integrating.

    Returns:
        Trajectory, of the same form either way.

    Example:
        >>> problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(2 * jnp.eye(2)))
        >>> run = follow(problem, LambdaBalanced(0.5, 0.1)(problem.model, jax.random.key(0)), [0.0, 1.0, 50.0])
        >>> run.info["method"]
        'closed form: two λ-balanced layers under white inputs'
        >>> run = follow(problem, Gaussian(0.1)(problem.model, jax.random.key(0)), [0.0, 1.0])
        >>> sorted(run.info["closed_form"])
        ['aligned', 'channel', 'shallow', 'whitened']
    """
    try:
        solution = solve(problem, params)
    except NoClosedFormError as error:
        method = GradientFlow(1e-10) if flow is None else flow
        run = simulate(problem, params, method, times=times, probes=probes, throw=throw, progress=progress)
        reasons = {form: str(reason) for form, reason in error.reasons.items()}
        return dataclasses.replace(run, info={**run.info, "closed_form": reasons})
    return solution.trajectory(times, probes=probes)
