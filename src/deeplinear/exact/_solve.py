"""The verb `solve`: the closed form of a learning curve, where there is one."""

from collections.abc import Callable, Iterable
from typing import Any

from deeplinear.core import (
    HypothesisError,
    Params,
    as_array,
    check_finite,
    check_number,
    check_x64,
    checked_params,
    concrete,
    entry,
    near_name,
)
from deeplinear.exact._aligned import aligned
from deeplinear.exact._base import AbstractSolution
from deeplinear.exact._channel import channel
from deeplinear.exact._shallow import shallow
from deeplinear.exact._two_layers import BALANCE_TOLERANCE
from deeplinear.exact._whitened import whitened
from deeplinear.models import Problem, checked_problem


class NoClosedFormError(ValueError):
    """No closed form applies; `reasons` has the refused hypothesis of each."""

    def __init__(self, reasons: dict[str, HypothesisError]) -> None:
        lines = "".join(f"\n  {form}: {reason}" for form, reason in reasons.items())
        super().__init__(f"solve: no closed form is known to apply here; simulate it instead.{lines}")
        self.reasons = reasons

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reasons,)


@entry
def solve(
    problem: Problem, params: Iterable[Any], *, form: str | None = None, balance_tolerance: float = BALANCE_TOLERANCE
) -> AbstractSolution:
    r"""Gradient flow of a problem from given layers, in closed form.

    Four forms are tried in turn, each by measuring its hypotheses: `"shallow"` (one layer, least squares or
    completion), `"whitened"` (two $\lambda$-balanced layers under white inputs, in any position to the task),
    `"aligned"` (layers of any depth aligned with the task, which decouple into scalar modes) and `"channel"` (two
    layers between one input and one output, from any start).

    Args:
        problem: Model and loss.
        params: Layers at the start, first-acting first.
        form: Take this form only. Needed where `params` or the target are under a transformation: only `"whitened"` is
            available there. Derivatives with respect to the layers are those along $\lambda$-balanced ones.
        balance_tolerance: Largest imbalance of `"whitened"`, relative to the squared norm of the layers. A larger one
            than the default makes the solution an approximation; its error is the imbalance, times what the flow makes
            of it: near a saddle that is much.

    Returns:
        Solution: `product(t)`, `params(t)`, `value(t)` (the loss), `trajectory(times, probes=...)`, and the measured
        `residuals`.

    Raises:
        NoClosedFormError: If none applies, with the reason of each.
        HypothesisError: If the one that was asked for does not apply.

    Example:
        >>> target = jnp.array([[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, -1.0]])
        >>> problem = Problem(DeepLinear((4, 2, 2)), SquaredDistance(target))
        >>> params = LambdaBalanced(0.5, 0.1)(problem.model, jax.random.key(0))
        >>> solution = solve(problem, params)
        >>> solution.form
        'two λ-balanced layers under white inputs'
        >>> bool(jnp.allclose(solution.product(1e3), target, rtol=0, atol=1e-12))
        True
    """
    check_x64("solve")
    checked_problem("solve", "problem", problem)
    layers: Params = tuple(as_array(layer, float) for layer in checked_params("solve", "params", params))
    problem.check(layers, "solve")
    for position, layer in enumerate(layers):
        check_finite("solve", f"params[{position}]", layer)
    check_number("solve", "balance_tolerance", balance_tolerance, above=0)
    forms: dict[str, Callable[[], AbstractSolution]] = {
        "shallow": lambda: shallow(problem, layers),
        "whitened": lambda: whitened(problem, layers, balance_tolerance=balance_tolerance),
        "aligned": lambda: aligned(problem, layers),
        "channel": lambda: channel(problem, layers),
    }
    if form is not None and form not in forms:
        raise ValueError(f"solve: there is no form '{form}'. {near_name(str(form), forms)}")
    if form != "whitened":
        instead = "give form='whitened', or solve outside of the transformation"
        for name, value in (("problem", problem), ("params", layers)):
            concrete("exact.solve", name, value, instead=instead)
    if form is not None:
        return forms[form]()
    reasons: dict[str, HypothesisError] = {}
    for name, make in forms.items():
        try:
            return make()
        except HypothesisError as reason:
            reasons[name] = reason
    raise NoClosedFormError(reasons)
