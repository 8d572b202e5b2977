r"""Gated recurrent units with a linear read-out, in PyTorch's equations.

With $\sigma$ the logistic function and $h_0 = 0$, an input $x$ moves the state $h$ to

$$r = \sigma(W_{ir}x + b_{ir} + W_{hr}h + b_{hr}), \quad z = \sigma(W_{iz}x + b_{iz} + W_{hz}h + b_{hz}),$$

$$n = \tanh(W_{in}x + b_{in} + r\odot(W_{hn}h + b_{hn})), \quad h \leftarrow (1-z)\odot n + z\odot h, \quad y = Ch.$$

Weights and biases are laid out as PyTorch has them. `equinox.nn.GRUCell` can write the same functions, but has
$b_{ir}+b_{hr}$ and $b_{iz}+b_{hz}$ as one bias each; a bias in two halves moves twice as far in a step of Adam as one
in one piece, so that training would be another. What the inputs do to the gates is computed for all times at once,
before the recurrence: it is faster, and its gradient is one product instead of a sum over the steps.

As for linear networks, the outputs of a sequence $x_0, \dots, x_{T-1}$ are those after $1, \dots, T$ updates, and a
network trained on sequences of length $k$ has seen the first $k$ of them.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Float

from deeplinear.core import Array, RandomKey, check_count, check_finite, check_number, check_shape, entry

Number = float | int | Float[Array, ""]


class GRU(eqx.Module):
    r"""A gated recurrent unit with a linear read-out $y = Ch$ without bias.

    A stack of networks is the same object with leading axes on every array, as `jax.vmap` makes and takes it.

    Attributes:
        weight_ih: $W_{ir}, W_{iz}, W_{in}$ below each other.
        weight_hh: $W_{hr}, W_{hz}, W_{hn}$.
        bias_ih: $b_{ir}, b_{iz}, b_{in}$.
        bias_hh: $b_{hr}, b_{hz}, b_{hn}$.
        readout: $C$.

    Example:
        >>> gru = normal_gru(jax.random.key(0), 3, scale=0.1)
        >>> gru.outputs(jnp.ones((5, 7, 1))).shape
        (5, 7, 1)
    """

    weight_ih: Float[Array, "*stack gates inputs"]
    weight_hh: Float[Array, "*stack gates states"]
    bias_ih: Float[Array, "*stack gates"]
    bias_hh: Float[Array, "*stack gates"]
    readout: Float[Array, "*stack outputs states"]

    @property
    def states(self) -> int:
        """Dimension of the state."""
        return self.readout.shape[-1]

    @property
    def inputs(self) -> int:
        """Dimension of an input."""
        return self.weight_ih.shape[-1]

    @property
    def dtype(self) -> np.dtype:
        """Kind of the numbers."""
        return self.readout.dtype

    def outputs(self, inputs: Float[Array, "*batch times inputs"]) -> Float[Array, "*batch times outputs"]:
        r"""Outputs $y_1, \dots, y_T$ of sequences $x_0, \dots, x_{T-1}$, each from the state zero.

        Args:
            inputs: One sequence or several.

        Example:
            >>> gru = gru_from_weights(jnp.ones((3, 1)), jnp.zeros((3, 1)), [0.0, -50.0, 0.0], [0.0] * 3, [[2.0]])
            >>> round(float(gru.outputs(jnp.asarray([[0.0], [1.0]]))[1, 0]), 6)  # z is 0: 2 tanh 1
            1.523188
        """
        check_shape("GRU.outputs", "inputs", inputs, (*inputs.shape[:-2], None, self.inputs))
        return _outputs(self, inputs)


@jax.jit
def _outputs(gru: GRU, inputs: Float[Array, "*batch times inputs"]) -> Float[Array, "*batch times outputs"]:
    size = gru.states
    sequences = inputs.reshape(-1, *inputs.shape[-2:])
    # The biases of r and z stand outside the recurrence as well. On processors with AVX-512, XLA (jaxlib 0.10.2) gives
    # wrong gradients for some sizes (5 states, 4 sequences) where a bias of all three gates is inside.
    bias = gru.bias_ih + jnp.asarray(gru.bias_hh).at[2 * size :].set(0.0)
    gates = sequences @ gru.weight_ih.T + bias

    def step(state: Array, given: Array) -> tuple[Array, Array]:
        own = state @ gru.weight_hh.T
        reset = jax.nn.sigmoid(given[:, :size] + own[:, :size])
        keep = jax.nn.sigmoid(given[:, size : 2 * size] + own[:, size : 2 * size])
        new = jnp.tanh(given[:, 2 * size :] + reset * (own[:, 2 * size :] + gru.bias_hh[2 * size :]))
        state = new + keep * (state - new)
        return state, state

    start = jnp.zeros((sequences.shape[0], size), gru.dtype)
    _, states = jax.lax.scan(step, start, jnp.swapaxes(gates, 0, 1))
    return jnp.swapaxes(states @ gru.readout.T, 0, 1).reshape(*inputs.shape[:-1], gru.readout.shape[0])


@entry
def normal_gru(
    key: RandomKey,
    states: int,
    *,
    scale: Number,
    inputs: int = 1,
    outputs: int = 1,
    dtype: DTypeLike | None = None,
) -> GRU:
    r"""A network whose weights and biases are all drawn from $N(0, \text{scale}^2)$.

    Args:
        key: Randomness.
        states: Dimension of the state.
        scale: Standard deviation of every number.
        inputs: Dimension of an input.
        outputs: Dimension of an output.
        dtype: Kind of the numbers; the precision JAX is set to unless told.

    Example:
        >>> gru = normal_gru(jax.random.key(0), 100, scale=1e-2)
        >>> round(float(np.std(gru.weight_hh)), 4)
        0.01
    """
    template = _zeros("normal_gru", states, inputs, outputs, scale, dtype)
    return _drawn(key, template, jnp.asarray(scale, template.dtype), "normal")


@entry
def uniform_gru(
    key: RandomKey,
    states: int,
    *,
    scale: Number = 1.0,
    inputs: int = 1,
    outputs: int = 1,
    dtype: DTypeLike | None = None,
) -> GRU:
    r"""A network whose weights and biases are all uniform on $[-c, c]$ with $c = \text{scale}/\sqrt{d}$.

    With scale 1 this is PyTorch's own start.

    Args:
        key: Randomness.
        states: Dimension $d$ of the state.
        scale: $c$ in multiples of $1/\sqrt d$.
        inputs: Dimension of an input.
        outputs: Dimension of an output.
        dtype: Kind of the numbers; the precision JAX is set to unless told.

    Example:
        >>> gru = uniform_gru(jax.random.key(0), 25)
        >>> bool(np.max(np.abs(gru.weight_hh)) <= 0.2)
        True
    """
    template = _zeros("uniform_gru", states, inputs, outputs, scale, dtype)
    return _drawn(key, template, jnp.asarray(scale, template.dtype) / states**0.5, "uniform")


@entry
def gru_from_weights(weight_ih: Any, weight_hh: Any, bias_ih: Any, bias_hh: Any, readout: Any) -> GRU:
    r"""The network with given arrays, which are laid out as PyTorch has them: gates in the order $r$, $z$, $n$.

    Args:
        weight_ih: $W_{ir}, W_{iz}, W_{in}$ below each other, (3 states, inputs).
        weight_hh: $W_{hr}, W_{hz}, W_{hn}$, (3 states, states).
        bias_ih: $b_{ir}, b_{iz}, b_{in}$, (3 states,).
        bias_hh: $b_{hr}, b_{hz}, b_{hn}$, (3 states,).
        readout: $C$, (outputs, states).

    Example:
        >>> gru = gru_from_weights(jnp.zeros((3, 1)), jnp.zeros((3, 1)), [0.0, 0.0, 9.0], [0.0] * 3, [[1.0]])
        >>> round(float(gru.outputs(jnp.zeros((2, 1)))[1, 0]), 6)  # n is 1 and z is 1/2: h is 1/2, then 3/4
        0.75
    """
    where = "gru_from_weights"
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "readout")
    arrays = [jnp.asarray(a, dtype=float) for a in (weight_ih, weight_hh, bias_ih, bias_hh, readout)]
    check_shape(where, "readout", arrays[4], (None, None))
    check_shape(where, "weight_ih", arrays[0], (None, None))
    states, inputs = arrays[4].shape[1], arrays[0].shape[1]
    shapes = ((3 * states, inputs), (3 * states, states), (3 * states,), (3 * states,), (None, states))
    for name, array, shape in zip(names, arrays, shapes, strict=True):
        check_shape(where, name, array, shape)
        check_finite(where, name, array)
    return GRU(*arrays)


def last_output(length: int, window: int) -> Float[Array, " window"]:
    """Weights that ask for the output after `length` inputs alone, of a window of `window` inputs.

    What comes after the first `length` inputs has no part in it: one program serves all lengths up to the window.

    Example:
        >>> last_output(2, 4)
        Array([0., 1., 0., 0.], dtype=float64)
    """
    return jnp.asarray((_seen("last_output", length, window) == length - 1).astype(float), dtype=float)


def every_output(length: int, window: int) -> Float[Array, " window"]:
    """Weights that ask for the mean over the outputs after 1, ..., `length` inputs, of a window of `window` inputs.

    Example:
        >>> every_output(2, 4)
        Array([0.5, 0.5, 0. , 0. ], dtype=float64)
    """
    return jnp.asarray((_seen("every_output", length, window) < length) / length, dtype=float)


@entry
def sequence_loss(
    gru: GRU,
    inputs: Float[Array, "batch times inputs"],
    targets: Float[Array, "batch times outputs"],
    weights: Float[Array, " times"],
) -> Float[Array, ""]:
    r"""Mean over the batch of $\sum_t w_t\,\|y_t - \hat y_t\|^2$: plain squares, without the factor ½.

    Args:
        gru: The network.
        inputs: Sequences.
        targets: Outputs asked for, $\hat y$.
        weights: $w_t$, from `last_output` or `every_output`.

    Example:
        >>> gru = gru_from_weights(jnp.zeros((3, 1)), jnp.zeros((3, 1)), [0.0] * 3, [0.0] * 3, [[1.0]])
        >>> float(sequence_loss(gru, jnp.ones((2, 3, 1)), 2 * jnp.ones((2, 3, 1)), last_output(3, 3)))
        4.0
    """
    check_shape("sequence_loss", "weights", weights, (inputs.shape[1],))
    return _loss(gru, inputs, targets, weights)


@jax.jit
def _loss(gru: GRU, inputs: Array, targets: Array, weights: Array) -> Float[Array, ""]:
    gaps = gru.outputs(inputs) - targets
    return jnp.mean(jnp.sum(weights.astype(gaps.dtype)[:, None] * gaps**2, axis=(1, 2)))


def _zeros(where: str, states: int, inputs: int, outputs: int, scale: Number, dtype: DTypeLike | None) -> GRU:
    check_count(where, "states", states, at_least=1)
    check_count(where, "inputs", inputs, at_least=1)
    check_count(where, "outputs", outputs, at_least=1)
    check_number(where, "scale", scale, above=0)
    kind = jnp.result_type(float) if dtype is None else jnp.dtype(dtype)
    wide = 3 * states
    shapes = ((wide, inputs), (wide, states), (wide,), (wide,), (outputs, states))
    return GRU(*(jnp.asarray(np.zeros(shape, kind), dtype=kind) for shape in shapes))


@eqx.filter_jit
def _drawn(key: RandomKey, template: GRU, size: Float[Array, ""], law: str) -> GRU:
    """Numbers from N(0, size²), or uniform between -size and size, in the form of the template."""
    leaves, form = jax.tree.flatten(template)
    ends = np.cumsum([leaf.size for leaf in leaves])
    shape = (int(ends[-1]),)
    if law == "normal":
        drawn = jax.random.normal(key, shape, template.dtype)
    else:
        drawn = jax.random.uniform(key, shape, template.dtype, -1.0, 1.0)
    parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(size * drawn, ends[:-1]), leaves, strict=True)]
    return jax.tree.unflatten(form, parts)


def _seen(where: str, length: int, window: int) -> np.ndarray:
    check_count(where, "length", length, at_least=1)
    check_count(where, "window", window, at_least=length)
    return np.arange(window)
