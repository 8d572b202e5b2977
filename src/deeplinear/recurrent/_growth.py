r"""How many states a recurrent network uses while it is trained.

From near zero the order of the response grows by one unit at a time. Three numbers speak of it: the rank of the Hankel
matrix of the response, which needs nothing of the network; and for the symmetric balanced network nearest to it,
$\big(\frac{A + A^\top}2, \frac{B + C^\top}2\big)$, the number of atoms of its spectral measure and the exponential of
the entropy of their weights.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from deeplinear.core import (
    HypothesisError,
    check_count,
    check_finite,
    check_number,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    over,
    unflatten,
)
from deeplinear.models import AbstractModel, LinearRNN
from deeplinear.recurrent._measure import atom_dimension, entropy_dimension


class OrderGrowth(NamedTuple):
    r"""State dimension in use at every recorded time.

    Attributes:
        singular_values: Of the Hankel matrix of the response, largest first.
        order: How many of them are above the tolerance, relative to the largest; 0 for the zero response.
        atoms: Atoms that weigh more than the tolerance in the nearest symmetric balanced network.
        entropy: Exponential of the entropy of the weights there.
        balance: $\|B - C^\top\|_F / \|B + C^\top\|_F$; NaN where both maps vanish, for there is no proportion.
        asymmetry: $\|A - A^\top\|_F / 2$: with `balance` it says how near that network is.
    """

    singular_values: Float[np.ndarray, "times size"]
    order: Int[np.ndarray, " times"]
    atoms: Int[np.ndarray, " times"]
    entropy: Float[np.ndarray, " times"]
    balance: Float[np.ndarray, " times"]
    asymmetry: Float[np.ndarray, " times"]


@entry(sized=("weights",), instead="call it outside of jit, vmap and grad, or trace hankel_singular_values")
def order_growth(
    model: AbstractModel, weights: Any, *, horizon: int = 40, tolerance: float = 1e-2, merge: float = 1e-2
) -> OrderGrowth:
    r"""State dimension along a run that recorded its parameters by the probe `weights`.

    Args:
        model: The network, with as many inputs as outputs.
        weights: Flat parameters, one row for each time.
        horizon: Entries of the response; the Hankel matrix has half as many rows, rounded up.
        tolerance: Share of the largest singular value, or of the mass, that counts.
        merge: Distance of neighbouring eigenvalues that are one atom.

    Raises:
        HypothesisError: A network so unstable that its response is not finite up to the horizon.

    Example:
        >>> rows = jnp.array([[1.0, b, 0.9, -0.5, 1.0, b] for b in (1e-3, 1.0)])  # B, the diagonal of A, C
        >>> found = order_growth(LinearRNN(2, 5, form="diagonal"), rows)
        >>> found.order.tolist(), found.atoms.tolist(), found.entropy.round(3).tolist()
        ([1, 2], [1, 2], [1.0, 2.0])
    """
    where = "order_growth"
    check_x64(where)
    if not isinstance(model, LinearRNN):
        raise TypeError(f"{where}: model must be a LinearRNN, but is {type(model).__name__}.")
    if model.inputs != model.outputs:
        raise ValueError(
            f"{where}: model must have as many inputs as outputs, but has {model.inputs} and {model.outputs}; balance "
            "compares B with the transpose of C."
        )
    check_count(where, "horizon", horizon, at_least=1)
    check_number(where, "tolerance", tolerance, at_least=0, at_most=1)
    check_number(where, "merge", merge, at_least=0)
    size = sum(rows * columns for rows, columns in model.shapes)
    flat = np.asarray(checked_layer(where, "weights", weights), dtype=float)
    check_shape(where, "weights", flat, (None, size))
    check_finite(where, "weights", flat)
    systems = over(lambda row: model.system(unflatten(row, model.shapes)))(flat)
    transition, first, output = (np.asarray(matrix) for matrix in systems)
    values = np.linalg.svd(_hankels(transition, first, output, horizon), compute_uv=False)
    largest = values[:, :1]
    order = np.where(largest[:, 0] > 0, np.sum(values > tolerance * largest, axis=1), 0)
    middle = (first + output.swapaxes(1, 2)) / 2
    eigenvalues, vectors = np.linalg.eigh((transition + transition.swapaxes(1, 2)) / 2)
    masses = np.sum((vectors.swapaxes(1, 2) @ middle) ** 2, axis=2)
    measures = list(zip(eigenvalues, masses, strict=True))
    apart, together = (np.linalg.norm(m, axis=(1, 2)) for m in ((first - output.swapaxes(1, 2)) / 2, middle))
    with np.errstate(divide="ignore", invalid="ignore"):
        balance = apart / together
    return OrderGrowth(
        singular_values=values,
        order=order,
        atoms=np.array([atom_dimension(measure, tolerance=tolerance, merge=merge) for measure in measures], dtype=int),
        entropy=np.array([entropy_dimension(measure) for measure in measures], dtype=float),
        balance=balance,
        asymmetry=np.linalg.norm(transition - transition.swapaxes(1, 2), axis=(1, 2)) / 2,
    )


def _hankels(transition: np.ndarray, first: np.ndarray, output: np.ndarray, horizon: int) -> np.ndarray:
    """Hankel matrices of the responses of many networks."""
    entries, block = [], first
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(horizon):
            entries.append(output @ block)
            block = transition @ block
    response = np.stack(entries, axis=1)  # (times, horizon, outputs, inputs)
    wrong = int(np.sum(~np.isfinite(response).all(axis=(1, 2, 3))))
    if wrong:
        advice = "Lower the horizon, or leave out the times from which on the network diverges."
        raise HypothesisError("a response that is finite up to the horizon, at every time", float(wrong), 0.0, advice)
    rows = (horizon + 1) // 2
    blocks = response[:, np.add.outer(np.arange(rows), np.arange(rows))]  # (times, row, column, output, input)
    times, outputs, inputs = len(response), response.shape[2], response.shape[3]
    return blocks.swapaxes(2, 3).reshape(times, rows * outputs, rows * inputs)
