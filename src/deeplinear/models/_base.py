"""What a model and a loss must offer. Implementations live in their own files."""

import abc
from typing import Generic, TypeVar

import equinox as eqx
from jaxtyping import Float, Int

from deeplinear.core import Array, Matrix, Params, RandomKey

Memo = TypeVar("Memo")


class AbstractModel(eqx.Module, Generic[Memo]):
    """Map $\\varphi$ from parameters to one end-to-end object. Holds no weights.

    A model computes its product together with a *memo*, whatever intermediate products the derivative needs, so
    that value, gradient and Hessian products share one forward pass.
    """

    @property
    @abc.abstractmethod
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shape of every layer, first-acting first."""

    @property
    @abc.abstractmethod
    def product_shape(self) -> tuple[int, int]:
        """Shape of the end-to-end object."""

    @abc.abstractmethod
    def forward(self, params: Params) -> tuple[Matrix, Memo]:
        """End-to-end object and the memo of its computation."""

    @abc.abstractmethod
    def pullback(self, params: Params, memo: Memo, cotangent: Matrix) -> Params:
        """Adjoint derivative $D\\varphi(\\theta)^*[G]$: a gradient on the product becomes one on the layers."""

    @abc.abstractmethod
    def pushforward(self, params: Params, memo: Memo, tangent: Params) -> tuple[Matrix, Memo]:
        """Derivative $D\\varphi(\\theta)[V]$ and the derivative of the memo."""

    @abc.abstractmethod
    def pullback_derivative(
        self, params: Params, memo: Memo, cotangent: Matrix, tangent: Params, memo_tangent: Memo
    ) -> Params:
        """Derivative of `pullback` in direction `tangent` at a fixed cotangent."""

    @abc.abstractmethod
    def check(self, params: Params, where: str) -> None:
        """Refuse parameters that do not fit this model."""


class AbstractLoss(eqx.Module):
    """Function $E$ of the end-to-end object."""

    @abc.abstractmethod
    def value(self, product: Matrix) -> Float[Array, ""]:
        """$E(W)$."""

    @abc.abstractmethod
    def gradient(self, product: Matrix) -> Matrix:
        """$\\nabla E(W)$, of the shape of the product."""

    @abc.abstractmethod
    def curvature(self, product: Matrix, tangent: Matrix) -> Matrix:
        """Hessian of $E$ at $W$ applied to a tangent."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int] | None:
        """Shape of the product this loss takes; `None` if it takes any."""

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """`"full"` if the value is the whole training loss, `"reduced"` if a constant of the data is left out."""


class AbstractSumLoss(AbstractLoss):
    r"""Loss made of terms, one per observation, of which a random few may be taken.

    Up to a constant factor $c$ that depends only on the batch size, the gradient of a batch is an unbiased estimate of
    the whole gradient: $\mathbb E\,[\text{batch gradient}] = c\,\nabla E$. A loss that is a plain sum keeps plain sums
    over the batch, so $c$ = batch / terms; a loss that is a mean takes means over the batch, so $c = 1$.
    """

    @property
    @abc.abstractmethod
    def terms(self) -> int | Int[Array, ""]:
        """Number of terms; an array where it depends on data."""

    @abc.abstractmethod
    def batch_gradient(self, product: Matrix, key: RandomKey, batch: int) -> Matrix:
        """Gradient of the part of the loss made by `batch` terms, drawn uniformly without replacement."""

    @abc.abstractmethod
    def share(self, batch: int) -> Float[Array, ""]:
        """The factor $c$ between the expected gradient of a batch and the whole gradient."""
