"""Updates made from updates: on random batches, with learning rates that fall at milestones."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from deeplinear.core import Array, Matrix, Params, RandomKey, as_array, check_count, check_number, is_concrete
from deeplinear.dynamics._base import AbstractUpdate
from deeplinear.models import AbstractLoss, AbstractSumLoss, Problem


class _Batch(AbstractLoss):
    """A loss whose gradient is that of a random batch; everything else is that of the whole."""

    whole: AbstractSumLoss
    key: RandomKey
    batch: int = eqx.field(static=True)

    def value(self, product: Matrix) -> Float[Array, ""]:
        return self.whole.value(product)

    def gradient(self, product: Matrix) -> Matrix:
        return self.whole.batch_gradient(product, self.key, self.batch)

    def curvature(self, product: Matrix, tangent: Matrix) -> Matrix:
        return self.whole.curvature(product, tangent)

    @property
    def shape(self) -> tuple[int, int] | None:
        return self.whole.shape

    @property
    def kind(self) -> str:
        return self.whole.kind


class Minibatch(AbstractUpdate[Any]):
    r"""An update that sees random terms of the loss, drawn anew at every step.

    For losses made of terms. The batch keeps the loss's convention: plain sums for completion and sensing, means over
    samples for `SampleRegression` and `WhiteInputs`. A penalty on the layers is weighed by the batch's share $c$ of the
    loss, so that the gradient seen is $c\,\nabla\mathcal L$ in the mean, and with a batch of all terms `method` itself.

    Args:
        method: What to do with the gradient of a batch: `GradientDescent(lr)` is stochastic gradient descent.
        batch: Number of terms per step, at most all of them; 1 is one observed entry per step.

    Example:
        >>> problem = Problem(DeepLinear((2, 2)), Completion(jnp.ones((2, 2)), jnp.eye(2)))
        >>> method, params = Minibatch(GradientDescent(0.5)), (jnp.zeros((2, 2)),)
        >>> params, _ = method.step(problem, params, method.init(params), jax.random.key(0))
        >>> float(jnp.sum(params[0]))
        0.5
    """

    method: AbstractUpdate
    batch: int = eqx.field(static=True)

    def __init__(self, method: AbstractUpdate, batch: int = 1) -> None:
        self.method = _checked("Minibatch", method)
        check_count("Minibatch", "batch", batch, at_least=1)
        self.batch = int(batch)

    def init(self, params: Params) -> Any:
        """State of the method."""
        return self.method.init(params)

    def check(self, problem: Problem) -> None:
        """Refuse a loss that is not made of terms, or, where their number can be seen, has fewer than a batch."""
        self._loss(problem)

    def _loss(self, problem: Problem) -> AbstractSumLoss:
        loss = problem.loss
        if not isinstance(loss, AbstractSumLoss):
            raise TypeError(
                f"Minibatch: problem.loss must be made of terms to draw from (Completion, EntryCompletion, Sensing, "
                f"SampleRegression, WhiteInputs), but is {type(loss).__name__}. Take the method without Minibatch, or "
                "keep the samples with SampleRegression."
            )
        if is_concrete(loss.terms) and self.batch > loss.terms:
            raise ValueError(
                f"Minibatch: batch must be at most the number of terms of the loss, {int(loss.terms)}, but is "
                f"{self.batch}."
            )
        return loss

    def step(self, problem: Problem, params: Params, state: Any, key: RandomKey) -> tuple[Params, Any]:
        """One step of the method along the gradient of a random batch."""
        loss = self._loss(problem)
        drawn = Problem(problem.model, _Batch(loss, key, self.batch), loss.share(self.batch) * problem.l2)
        return self.method.step(drawn, params, state, key)


class MilestonesState(NamedTuple):
    """Number of steps taken, and the state of the method."""

    steps: Int[Array, ""]
    inner: Any


class Milestones(AbstractUpdate[MilestonesState]):
    r"""An update whose learning rate is multiplied by a factor at given steps.

    The step after $s$ steps is made with $\eta\,\gamma^{\#\{m \le s\}}$ over the milestones $m$.

    Args:
        method: An update with a learning rate `lr`.
        steps: Milestones, increasing whole numbers from 1 on.
        factor: $\gamma > 0$.

    Example:
        >>> problem = Problem(DeepLinear((1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> run = simulate(problem, (jnp.zeros((1, 1)),), Milestones(GradientDescent(0.5), [1], 0.1), times=[1, 2])
        >>> round(float(run.params[0][0, 0]), 6)
        0.525
    """

    method: AbstractUpdate
    steps: Int[Array, " milestones"]
    factor: Float[Array, ""]

    def __init__(
        self, method: AbstractUpdate, steps: Sequence[int] | np.ndarray, factor: float | Float[Array, ""] = 0.1
    ) -> None:
        method = _checked("Milestones", method)
        if not hasattr(method, "lr"):
            raise TypeError(
                f"Milestones: method must have a learning rate lr, but is {type(method).__name__}. To have batches as "
                "well, put Minibatch outside: Minibatch(Milestones(Adam(), [5000]), 100)."
            )
        listed = np.asarray(steps)
        whole = listed.ndim == 1 and len(listed) > 0 and np.issubdtype(listed.dtype, np.integer)
        if not (whole and listed[0] >= 1 and np.all(np.diff(listed) > 0)):
            raise ValueError(f"Milestones: steps must be increasing whole numbers from 1 on, but is {steps!r}.")
        check_number("Milestones", "factor", factor, above=0)
        self.method, self.steps = method, as_array(listed, int)
        self.factor = as_array(factor, float)

    def init(self, params: Params) -> MilestonesState:
        """No steps taken."""
        return MilestonesState(jnp.zeros((), dtype=int), self.method.init(params))

    def rate(self, taken: int | Int[Array, ""]) -> Float[Array, ""]:
        """Learning rate of the step after `taken` steps."""
        passed = jnp.sum(self.steps <= taken)
        return _rate(self.method) * self.factor ** passed.astype(self.factor.dtype)

    def step(
        self, problem: Problem, params: Params, state: MilestonesState, key: RandomKey
    ) -> tuple[Params, MilestonesState]:
        """One step of the method with the learning rate of the moment."""
        slowed = eqx.tree_at(_rate, self.method, self.rate(state.steps))
        moved, inner = slowed.step(problem, params, state.inner, key)
        return moved, MilestonesState(state.steps + 1, inner)


def _rate(method: Any) -> Any:
    return method.lr


def _checked(where: str, method: Any) -> AbstractUpdate:
    if not isinstance(method, AbstractUpdate):
        raise TypeError(f"{where}: method must be an update such as Adam(), but is {type(method).__name__}.")
    return method
