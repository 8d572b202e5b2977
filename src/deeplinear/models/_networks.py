"""Feed-forward deep linear networks."""

import functools
import operator
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, Matrix, Params, check_count, xp
from deeplinear.models._base import AbstractModel


class PrefixProducts(NamedTuple):
    """Memo of a forward pass: $W_{l:1}$ for $l = 1, \\dots, L$."""

    prefixes: tuple[Matrix, ...]


class DeepLinear(AbstractModel[PrefixProducts]):
    r"""Network $W = W_L W_{L-1} \cdots W_1$ with given widths.

    Layer $l$ has shape $(d_l, d_{l-1})$ and layer 1 acts first. Any depth $L \ge 1$; hidden widths are free.
    With prefixes $R_l = W_l \cdots W_1$ and the backward products $B_L = G$, $B_{l-1} = W_l^\top B_l$, the gradient
    of layer $l$ is $B_l R_{l-1}^\top$: about $3L$ matrix products in one pass.

    Args:
        widths: $(d_0, d_1, \dots, d_L)$, input width first.

    Example:
        >>> DeepLinear((3, 5, 2)).shapes
        ((5, 3), (2, 5))
    """

    widths: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, widths: tuple[int, ...] | list[int]) -> None:
        if not isinstance(widths, tuple | list):
            raise TypeError(f"DeepLinear: widths must be a tuple such as (3, 5, 2), but is {widths!r}.")
        if len(widths) < 2:
            raise ValueError(
                f"DeepLinear: widths must name at least the input and the output width, but is {tuple(widths)}."
            )
        for position, width in enumerate(widths):
            check_count("DeepLinear", f"widths[{position}]", width, at_least=1)
        self.widths = tuple(int(width) for width in widths)

    @property
    def depth(self) -> int:
        """Number of layers $L$."""
        return len(self.widths) - 1

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shape of every layer, first-acting first."""
        return tuple((out, inp) for inp, out in zip(self.widths[:-1], self.widths[1:], strict=True))

    @property
    def product_shape(self) -> tuple[int, int]:
        """(output width, input width)."""
        return (self.widths[-1], self.widths[0])

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(rows * columns for rows, columns in self.shapes)

    def _multiply(self, left: Matrix, right: Matrix) -> Matrix:
        return left @ right

    def forward(self, params: Params) -> tuple[Matrix, PrefixProducts]:
        """Product $W_{L:1}$ and all prefixes."""
        prefixes = [params[0]]
        for layer in params[1:]:
            prefixes.append(self._multiply(layer, prefixes[-1]))
        return prefixes[-1], PrefixProducts(tuple(prefixes))

    def product(self, params: Params) -> Matrix:
        """End-to-end matrix $W_{L:1}$, associated from the side that costs less."""
        if self.widths[-1] < self.widths[0]:
            result = params[-1]
            for layer in reversed(params[:-1]):
                result = result @ layer
            return result
        return self.forward(params)[0]

    def partial_product(self, params: Params, last: int, first: int) -> Matrix:
        r"""$W_{b:a} = W_b \cdots W_a$ for layers $b$ = `last` down to $a$ = `first`; identity if $b = a - 1$.

        Args:
            params: Layers.
            last: $b$, from 0 to the depth.
            first: $a$, from 1 to the depth + 1.
        """
        if not (1 <= first <= self.depth + 1 and first - 1 <= last <= self.depth):
            raise ValueError(
                f"DeepLinear.partial_product: (last, first) must satisfy 1 <= first and first - 1 <= last <= "
                f"{self.depth}, but is ({last}, {first})."
            )
        if last == first - 1:
            return xp.eye(self.widths[last], dtype=params[0].dtype)
        result = params[first - 1]
        for layer in params[first:last]:
            result = layer @ result
        return result

    def suffixes(self, params: Params) -> tuple[Matrix, ...]:
        r"""$W_{L:l+1}$ for $l = 1, \dots, L$; the last one is the identity."""
        result = [xp.eye(self.widths[-1], dtype=params[0].dtype)]
        for layer in reversed(params[1:]):
            result.append(result[-1] @ layer)
        return tuple(reversed(result))

    def pullback(self, params: Params, memo: PrefixProducts, cotangent: Matrix) -> Params:
        """Gradient on every layer from the gradient $G$ on the product."""
        gradients: list[Matrix] = []
        backward = cotangent
        for position in range(self.depth - 1, 0, -1):
            gradients.append(self._multiply(backward, memo.prefixes[position - 1].T))
            backward = self._multiply(params[position].T, backward)
        gradients.append(backward)
        return tuple(reversed(gradients))

    def pushforward(self, params: Params, memo: PrefixProducts, tangent: Params) -> tuple[Matrix, PrefixProducts]:
        r"""$\sum_l W_{L:l+1} V_l W_{l-1:1}$ and the tangents of all prefixes."""
        tangents = [tangent[0]]
        for position in range(1, self.depth):
            below = memo.prefixes[position - 1]
            tangents.append(self._multiply(tangent[position], below) + self._multiply(params[position], tangents[-1]))
        return tangents[-1], PrefixProducts(tuple(tangents))

    def pullback_derivative(
        self,
        params: Params,
        memo: PrefixProducts,
        cotangent: Matrix,
        tangent: Params,
        memo_tangent: PrefixProducts,
    ) -> Params:
        """Derivative of the gradient's dependence on the layers, the cotangent held fixed."""
        result: list[Matrix] = []
        backward, moved = cotangent, xp.zeros_like(cotangent)
        for position in range(self.depth - 1, 0, -1):
            below, below_tangent = memo.prefixes[position - 1], memo_tangent.prefixes[position - 1]
            result.append(self._multiply(moved, below.T) + self._multiply(backward, below_tangent.T))
            layer = params[position].T
            moved = self._multiply(tangent[position].T, backward) + self._multiply(layer, moved)
            backward = self._multiply(layer, backward)
        result.append(moved)
        return tuple(reversed(result))

    def ntk(self, params: Params) -> Float[Array, "entries entries"]:
        r"""Tangent kernel $\sum_l (W_{L:l+1} W_{L:l+1}^\top) \otimes (W_{l-1:1}^\top W_{l-1:1})$ of all entries.

        Rows and columns run over the entries of the product in row-major order. The kernel moves the product:
        $\mathrm{d}\,\mathrm{vec}(W)/\mathrm{d}t = -K\,\mathrm{vec}(\nabla E)$ under gradient flow.
        """
        out, inp = self.widths[-1], self.widths[0]
        terms = (xp.einsum("ip,jq->ijpq", left, right) for left, right in self.kernel_factors(params))
        return functools.reduce(operator.add, terms).reshape(out * inp, out * inp)

    def kernel_factors(self, params: Params) -> tuple[tuple[Matrix, Matrix], ...]:
        r"""Pairs $(W_{L:l+1} W_{L:l+1}^\top,\, W_{l-1:1}^\top W_{l-1:1})$ whose Kronecker products sum to the NTK."""
        _, memo = self.forward(params)
        identity = xp.eye(self.widths[0], dtype=params[0].dtype)
        grams = [identity] + [prefix.T @ prefix for prefix in memo.prefixes[:-1]]
        return tuple((left @ left.T, gram) for left, gram in zip(self.suffixes(params), grams, strict=True))

    def check(self, params: Params, where: str) -> None:
        """Refuse layers whose number or shapes differ from the widths."""
        shapes = tuple(tuple(np.shape(layer)) for layer in params)
        if shapes != self.shapes:
            raise ValueError(f"{where}: params must have layer shapes {self.shapes}, but has {shapes}.")


class NarrowDeepLinear(DeepLinear):
    """The same network with its matrix products written out as sums of outer products.

    For many narrow networks side by side, under `jax.vmap`: libraries of linear algebra are slow on batches of tiny
    matrices.
    """

    def _multiply(self, left: Matrix, right: Matrix) -> Matrix:
        result = left[:, 0, None] * right[None, 0]
        for position in range(1, left.shape[1]):
            result = result + left[:, position, None] * right[None, position]
        return jax.lax.optimization_barrier(result)  # not to be computed again for each of its uses
