"""A problem: the loss of a network as a function of its layers."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from deeplinear.core import Matrix, Params, add_scaled, check_number, entry, flatten, inner, unflatten
from deeplinear.models._base import AbstractLoss, AbstractModel


class Problem(eqx.Module):
    r"""Loss $\mathcal L(\theta) = E(\varphi(\theta)) + \tfrac{\gamma}{2}\|\theta\|_F^2$ of a model.

    All derivatives are written by hand from the model's forward and backward products; one pass gives value and
    gradient, and `linearize` shares it among any number of Hessian products.

    Args:
        model: Map from layers to the product.
        loss: Function of the product.
        l2: Weight $\gamma \ge 0$ of the penalty on all layers.

    Example:
        >>> problem = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2)))
        >>> float(problem.value((jnp.zeros((2, 2)),)))
        1.0
    """

    model: AbstractModel
    loss: AbstractLoss
    l2: Float[Array, ""]

    @entry
    def __init__(self, model: AbstractModel, loss: AbstractLoss, l2: float | Float[Array, ""] = 0.0) -> None:
        check_number("Problem", "l2", l2, at_least=0)
        if not isinstance(model, AbstractModel):
            raise TypeError(f"Problem: model must be a model such as DeepLinear, but is {model!r}.")
        if not isinstance(loss, AbstractLoss):
            raise TypeError(f"Problem: loss must be a loss such as SquaredDistance, but is {loss!r}.")
        self.model = model
        self.loss = loss
        self.l2 = jnp.asarray(l2, dtype=float)
        if loss.shape is not None and loss.shape != model.product_shape:
            raise ValueError(
                f"Problem: the loss takes products of shape {loss.shape}, but the model makes products of shape "
                f"{model.product_shape}."
            )

    @entry(bounded=("params",))
    def product(self, params: Params) -> Matrix:
        """End-to-end object of the model."""
        return self.model.forward(params)[0]

    @entry(bounded=("params",))
    def value(self, params: Params) -> Float[Array, ""]:
        """Loss, penalty included."""
        return self.loss.value(self.product(params)) + 0.5 * self.l2 * inner(params, params)

    @entry(bounded=("params",))
    def gradient(self, params: Params) -> Params:
        """Gradient with respect to every layer."""
        return self.value_and_gradient(params)[1]

    @entry(bounded=("params",))
    def value_and_gradient(self, params: Params) -> tuple[Float[Array, ""], Params]:
        """Loss and gradient from one forward and one backward pass."""
        product, memo = self.model.forward(params)
        value = self.loss.value(product) + 0.5 * self.l2 * inner(params, params)
        gradient = self.model.pullback(params, memo, self.loss.gradient(product))
        return value, add_scaled(gradient, self.l2, params)

    @entry(bounded=("params",))
    def linearize(self, params: Params) -> tuple[Params, Callable[[Params], Params]]:
        """Gradient, and the Hessian as a function of a direction that reuses the forward pass."""
        product, memo = self.model.forward(params)
        cotangent = self.loss.gradient(product)
        gradient = add_scaled(self.model.pullback(params, memo, cotangent), self.l2, params)

        def hessian_product(direction: Params) -> Params:
            moved, memo_tangent = self.model.pushforward(params, memo, direction)
            outer = self.model.pullback(params, memo, self.loss.curvature(product, moved))
            inner_part = self.model.pullback_derivative(params, memo, cotangent, direction, memo_tangent)
            return tuple(a + b + self.l2 * v for a, b, v in zip(outer, inner_part, direction, strict=True))

        return gradient, hessian_product

    @entry(bounded=("params",))
    def hessian_product(self, params: Params, direction: Params) -> Params:
        """Hessian at `params` applied to a direction."""
        return self.linearize(params)[1](direction)

    @entry(bounded=("params",))
    def hessian(self, params: Params) -> Float[Array, "size size"]:
        """Dense Hessian in the coordinates of `flatten`; meant for small networks."""
        shapes = self.model.shapes
        _, product = self.linearize(params)
        size = sum(rows * columns for rows, columns in shapes)
        return jax.vmap(lambda v: flatten(product(unflatten(v, shapes))))(jnp.eye(size, dtype=params[0].dtype))

    def check(self, params: Params, where: str) -> None:
        """Refuse parameters that do not fit the model."""
        self.model.check(params, where)


def checked_problem(where: str, name: str, problem: Any) -> Problem:
    """A problem, or a refusal."""
    if not isinstance(problem, Problem):
        raise TypeError(
            f"{where}: {name} must be a Problem, but is {type(problem).__name__}; make one with Problem(model, loss)."
        )
    return problem
