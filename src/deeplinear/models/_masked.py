r"""Networks of which some weights are fixed: sparse connections, skip connections.

A fixed weight belongs to the map, not to what is learnt: the product is computed with its value, and derivatives with
respect to it are zero, so that every flow, update and Hessian product of the package leaves it where it is.
"""

import itertools
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Bool

from deeplinear.core import (
    Array,
    Matrix,
    Params,
    as_array,
    check_count,
    check_finite,
    check_shape,
    entry,
    formula,
    is_concrete,
    put,
    xp,
)
from deeplinear.models._base import AbstractModel
from deeplinear.models._networks import DeepLinear


class Completed(NamedTuple):
    """Memo of a forward pass: the layers with their fixed weights, and the memo of the network within."""

    layers: Params
    memo: Any


class Masked(AbstractModel[Completed]):
    r"""A network with fixed weights: $\varphi(\theta)$ is the product at $m \circ \theta + (1 - m) \circ v$.

    Gradients are $m \circ$ those of the network. Layers of such a model hold the fixed weights too, at their values
    (`complete` puts them there), so that whatever looks at layers sees the network as it is. A penalty on all layers
    (`l2`) is the exception: it would shrink the stored copies of fixed weights, while the product keeps their values.

    Args:
        model: The network within.
        masks: $m$, for each layer: true (1) where a weight is learnt, false (0) where it is fixed.
        values: $v$, for each layer: the fixed weights; entries that are learnt are not looked at. All 0 if left out.

    Example:
        >>> model = Masked(DeepLinear((2, 1)), ([[1, 0]],), ([[0.0, 5.0]],))
        >>> float(model.forward((jnp.array([[2.0, 5.0]]),))[0].sum())
        7.0
    """

    model: AbstractModel
    masks: tuple[Bool[Array, "_ _"], ...]
    values: Params

    @entry
    def __init__(self, model: AbstractModel, masks: Any, values: Any = None) -> None:
        if not isinstance(model, AbstractModel):
            raise TypeError(f"Masked: model must be a model such as DeepLinear, but is {model!r}.")
        shapes = model.shapes
        values = [np.zeros(shape) for shape in shapes] if values is None else values
        for name, layers in (("masks", masks), ("values", values)):
            if not isinstance(layers, tuple | list) or len(layers) != len(shapes):
                raise ValueError(f"Masked: {name} must be a tuple of {len(shapes)} matrices, one for each layer.")
            for position, (layer, shape) in enumerate(zip(layers, shapes, strict=True)):
                check_shape("Masked", f"{name}[{position}]", layer, shape)
                check_finite("Masked", f"{name}[{position}]", layer)
        for position, mask in enumerate(masks):
            if is_concrete(mask) and not np.isin(np.asarray(mask), (0, 1)).all():
                raise ValueError(f"Masked: masks[{position}] must hold only 0 and 1.")
        self.model = model
        self.masks, self.values = _fixed(
            tuple(as_array(mask) for mask in masks), tuple(as_array(value, float) for value in values)
        )

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shape of every layer, first-acting first."""
        return self.model.shapes

    @property
    def product_shape(self) -> tuple[int, int]:
        """Shape of the end-to-end object."""
        return self.model.product_shape

    def complete(self, params: Params) -> Params:
        """The layers with every fixed weight at its value."""
        return _completed(self.masks, params, self.values)

    def forward(self, params: Params) -> tuple[Matrix, Completed]:
        """Product of the completed layers."""
        layers = self.complete(params)
        product, memo = self.model.forward(layers)
        return product, Completed(layers, memo)

    def pullback(self, params: Params, memo: Completed, cotangent: Matrix) -> Params:
        """Gradient on every weight that is learnt; zero on the others."""
        return self._learnt(self.model.pullback(memo.layers, memo.memo, cotangent))

    def pushforward(self, params: Params, memo: Completed, tangent: Params) -> tuple[Matrix, Completed]:
        """Derivative along the learnt part of a direction."""
        learnt = self._learnt(tangent)
        moved, memo_tangent = self.model.pushforward(memo.layers, memo.memo, learnt)
        return moved, Completed(learnt, memo_tangent)

    def pullback_derivative(
        self, params: Params, memo: Completed, cotangent: Matrix, tangent: Params, memo_tangent: Completed
    ) -> Params:
        """Derivative of `pullback` along the learnt part of a direction."""
        return self._learnt(
            self.model.pullback_derivative(memo.layers, memo.memo, cotangent, memo_tangent.layers, memo_tangent.memo)
        )

    def check(self, params: Params, where: str) -> None:
        """Refuse layers of other shapes, or with fixed weights that are not at their values."""
        self.model.check(params, where)
        if not all(map(is_concrete, (*params, *self.masks, *self.values))):
            return
        for position, (mask, p, value) in enumerate(zip(self.masks, params, self.values, strict=True)):
            # Models of an ensemble are stacked along a leading axis; the layers given are then those of the first.
            m, v = (np.asarray(array).reshape(-1, *p.shape)[0] for array in (mask, value))
            wrong = np.argwhere(~m & (np.asarray(p) != v))
            if len(wrong):
                entry = tuple(int(i) for i in wrong[0])
                held, fixed = (float(np.asarray(layer)[entry]) for layer in (p, v))
                raise ValueError(
                    f"{where}: params[{position}] must hold the fixed weights of the model, but entry {entry} is "
                    f"{held:g}, not {fixed:g}; take model.complete(params)."
                )

    def _learnt(self, layers: Params) -> Params:
        return tuple(xp.where(m, layer, 0.0) for m, layer in zip(self.masks, layers, strict=True))


@formula
def _fixed(masks: tuple[Array, ...], values: Params) -> tuple[tuple[Bool[Array, "_ _"], ...], Params]:
    """Masks as truth values, and the fixed weights with zeros where one is learnt."""
    learnt = tuple(mask.astype(bool) for mask in masks)
    return learnt, tuple(xp.where(mask, 0.0, value) for mask, value in zip(learnt, values, strict=True))


@formula
def _completed(masks: tuple[Bool[Array, "_ _"], ...], params: Params, values: Params) -> Params:
    return tuple(xp.where(m, p, v) for m, p, v in zip(masks, params, values, strict=True))


def surviving_laws(model: Masked) -> tuple[np.ndarray, ...]:
    r"""Which entries of the conserved quantities $C_l$ stay constant although some weights are fixed.

    With $G_l$ the whole gradient, $\dot C_l$ vanishes because $(G_l W_l^\top)_{ab} = (W_{l+1}^\top G_{l+1})_{ab}$ and
    the same for $ba$. Fixing weights leaves out the terms $G_{l,ac} W_{l,bc}$ with $(a,c)$ fixed, and
    $W_{l+1,ca} G_{l+1,cb}$ with $(c,b)$ fixed. The entry survives for every loss where no term that is not identically
    zero is missing, and also where all of them are, as then nothing moves; else it moves in general.

    Args:
        model: A deep linear network with fixed weights.

    Returns:
        For each hidden layer a symmetric matrix of truth values. Host-side.

    Example:
        >>> surviving_laws(Masked(DeepLinear((1, 2, 1)), ([[1], [1]], [[1, 0]]), ([[0.0], [0.0]], [[0.0, 3.0]])))[0]
        array([[ True, False],
               [False, False]])
    """
    if not isinstance(model, Masked) or not isinstance(model.model, DeepLinear):
        raise TypeError("surviving_laws: model must be a Masked deep linear network.")
    learnt = [np.asarray(mask) for mask in model.masks]
    present = [mask | (np.asarray(value) != 0) for mask, value in zip(learnt, model.values, strict=True)]
    answers = []
    for (m, p), (m_above, p_above) in itertools.pairwise(zip(learnt, present, strict=True)):
        # Along the last axis: terms of row a of the gradient with row b of the layer, and of columns above.
        below, above = p[None, :, :], p_above.T[:, None, :]
        below_learnt, above_learnt = m[:, None, :], m_above.T[None, :, :]
        complete = (below_learnt | ~below).all(-1) & (above_learnt | ~above).all(-1)
        empty = (~below_learnt | ~below).all(-1) & (~above_learnt | ~above).all(-1)
        kept = complete | empty
        answers.append(kept & kept.T)
    return tuple(answers)


class SkipNetwork(eqx.Module):
    r"""A network with one identity connection from layer $k$ to layer $k + j$, as a chain with fixed weights.

    What layer $k$ holds is carried along in $d_k$ further units of each layer between:
    $\tilde W_{k+1} = [W_{k+1}; I]$, $\tilde W_l = \mathrm{diag}(W_l, I)$ between, $\tilde W_{k+j} = [W_{k+j}\ I]$. The
    product is $W_{L:1} + W_{L:k+j+1} W_{k:1}$.

    Attributes:
        model: The longer chain with its fixed weights.
        widths: Widths of the network without the carrying units.
        start: $k$.
        length: $j$.
    """

    model: Masked
    widths: tuple[int, ...] = eqx.field(static=True)
    start: int = eqx.field(static=True)
    length: int = eqx.field(static=True)

    def embed(self, params: Params) -> Params:
        """Layers of the chain from those of the network."""
        DeepLinear(self.widths).check(params, "SkipNetwork.embed")
        return _embedded(self.model.values, params)

    def extract(self, params: Params) -> Params:
        """Layers of the network from those of the chain, or of any object of their shapes."""
        return _corners(params, DeepLinear(self.widths))


@formula
def _embedded(values: Params, params: Params) -> Params:
    pairs = zip(values, params, strict=True)
    return tuple(put(value, (slice(layer.shape[0]), slice(layer.shape[1])), layer) for value, layer in pairs)


@formula
def _corners(params: Params, network: DeepLinear) -> Params:
    return tuple(layer[:rows, :columns] for layer, (rows, columns) in zip(params, network.shapes, strict=True))


def skip_network(widths: tuple[int, ...] | list[int], start: int, length: int) -> SkipNetwork:
    r"""A network in which what layer $k$ holds is also added to layer $k + j$.

    Args:
        widths: $(d_0, \dots, d_L)$.
        start: $k$, from 0 (the input) on.
        length: $j \ge 2$, with $k + j \le L$ and $d_k = d_{k+j}$.

    Returns:
        The network, whose `model` is a chain with fixed weights.

    Example:
        >>> skip = skip_network((2, 3, 2), 0, 2)
        >>> layers = skip.embed((jnp.zeros((3, 2)), jnp.zeros((2, 3))))
        >>> skip.model.forward(layers)[0]
        array([[1., 0.],
               [0., 1.]])
    """
    where = "skip_network"
    network = DeepLinear(widths)
    check_count(where, "start", start, at_most=network.depth)
    check_count(where, "length", length, at_least=2)
    end = start + length
    if end > network.depth:
        raise ValueError(f"{where}: start + length must be at most {network.depth}, the depth, but is {end}.")
    size = network.widths[start]
    if network.widths[end] != size:
        raise ValueError(
            f"{where}: an identity needs layers of equal width, but layer {start} has {size} units and layer {end} has "
            f"{network.widths[end]}."
        )
    longer = [width + size * (start < place < end) for place, width in enumerate(network.widths)]
    chain = DeepLinear(longer)
    masks, values = [], []
    for number, ((rows, columns), shape) in enumerate(zip(network.shapes, chain.shapes, strict=True), start=1):
        mask, value = np.zeros(shape, dtype=bool), np.zeros(shape)
        mask[:rows, :columns] = True
        if start < number <= end:
            read = 0 if number == start + 1 else columns
            write = 0 if number == end else rows
            value[write : write + size, read : read + size] += np.eye(size)
        masks.append(mask)
        values.append(value)
    return SkipNetwork(Masked(chain, masks, values), network.widths, int(start), int(length))
