r"""Fully connected networks with rectified hidden layers, $x \mapsto W_L\,\sigma(W_{L-1} \cdots \sigma(W_1 x))$.

As elsewhere layer 1 acts first, matrices are (out, in), and there are no biases.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Float

from deeplinear.core import Array, RandomKey, check_count, check_number, entry


class ReLUNetwork(eqx.Module):
    """Layers with rectified outputs between them.

    Attributes:
        weights: The matrices, the one that acts first at the front.

    Example:
        >>> network = ReLUNetwork((jnp.asarray([[1.0], [-1.0]]), jnp.asarray([[2.0, 3.0]])))
        >>> [float(network(jnp.asarray([x]), None)[0][0]) for x in (2.0, -2.0)]  # 2x above zero, -3x below
        [4.0, 6.0]
    """

    weights: tuple[Float[Array, "_ _"], ...]

    def __call__(self, image: Float[Array, "*shape"], state: eqx.nn.State | None) -> tuple[Array, eqx.nn.State | None]:
        """Outputs for one image, whose numbers are taken one after another; the state is passed on untouched."""
        signal = image.reshape(-1)
        for matrix in self.weights[:-1]:
            signal = jax.nn.relu(matrix @ signal)
        return self.weights[-1] @ signal, state


@entry
def gaussian_relu(
    key: RandomKey, widths: Sequence[int], *, scale: float = 2**0.5, dtype: DTypeLike | None = None
) -> ReLUNetwork:
    r"""A network with independent entries from $N(0, \text{scale}^2/n_{\text{in}})$ in every layer.

    Args:
        key: Randomness.
        widths: Numbers of inputs, hidden units and outputs.
        scale: $\sqrt2$ keeps the size of signals through rectified layers.
        dtype: Kind of the numbers; the precision JAX is set to unless told.

    Example:
        >>> [matrix.shape for matrix in gaussian_relu(jax.random.key(0), (5, 4, 4, 3)).weights]
        [(4, 5), (4, 4), (3, 4)]
    """
    where = "gaussian_relu"
    kind = _checked(where, widths, {"scale": scale}, dtype)
    keys = jax.random.split(key, len(widths) - 1)
    return ReLUNetwork(
        tuple(
            scale / before**0.5 * jax.random.normal(one, (after, before), kind)
            for one, before, after in zip(keys, widths[:-1], widths[1:], strict=True)
        )
    )


@entry
def identity_relu(
    key: RandomKey,
    widths: Sequence[int],
    *,
    identity: float = 1.0,
    scale: float = 2**0.5,
    dtype: DTypeLike | None = None,
) -> ReLUNetwork:
    """As `gaussian_relu`, with multiples of the identity for all layers between the first and the last.

    Args:
        key: Randomness; first and last layer are those of `gaussian_relu` for the same key.
        widths: Numbers of inputs, hidden units and outputs; all hidden layers must be equally wide.
        identity: The multiple.
        scale: Of the Gaussian layers.
        dtype: Kind of the numbers; the precision JAX is set to unless told.

    Example:
        >>> identity_relu(jax.random.key(0), (5, 2, 2, 3), identity=0.5).weights[1]
        Array([[0.5, 0. ],
               [0. , 0.5]], dtype=float64)
    """
    where = "identity_relu"
    kind = _checked(where, widths, {"scale": scale, "identity": identity}, dtype)
    if len(set(widths[1:-1])) > 1:
        raise ValueError(f"{where}: hidden layers must be equally wide, but widths are {tuple(widths)}.")
    drawn = gaussian_relu(key, widths, scale=scale, dtype=kind).weights
    between = identity * jnp.eye(widths[1], dtype=kind)
    return ReLUNetwork((drawn[0], *(between for _ in drawn[1:-1]), drawn[-1]))


def _checked(where: str, widths: Sequence[int], numbers: dict[str, float], dtype: DTypeLike | None) -> jnp.dtype:
    if len(widths) < 3:
        raise ValueError(f"{where}: widths must name inputs, hidden units and outputs, but are {tuple(widths)}.")
    for width in widths:
        check_count(where, "widths", width, at_least=1)
    for name, value in numbers.items():
        check_number(where, name, value, above=0)
    return jnp.result_type(float) if dtype is None else jnp.dtype(dtype)
