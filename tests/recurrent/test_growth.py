"""State dimension in use along a run: hand-made systems, and a plain singular value decomposition of the response."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError, flatten
from deeplinear.models import DeepLinear, LinearRNN
from deeplinear.recurrent import order_growth

ROUNDING = 1e-12
"""Singular values and entropies of numbers of order one."""


def rows(model: LinearRNN, systems: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> np.ndarray:
    return np.stack([np.asarray(flatten(model.params(system))) for system in systems])


@pytest.mark.covers("rnn:F13")
def test_atoms_enter_one_by_one() -> None:
    """Weights (1, s, 0) at 0.9, −0.5 and 0.3: order, atoms and entropy by hand."""
    systems = []
    for second in (1e-4, 0.5, 1.0):
        column = np.sqrt(np.array([[1.0], [second], [0.0]]))
        systems.append((np.diag([0.9, -0.5, 0.3]), column, column.T))
    model = LinearRNN(3, 5)
    found = order_growth(model, rows(model, systems), horizon=12)
    assert found.order.tolist() == [1, 2, 2] and found.atoms.tolist() == [1, 2, 2]
    for entropy, s in zip(found.entropy, (1e-4, 0.5, 1.0), strict=True):
        p = np.array([1, s]) / (1 + s)
        assert entropy == pytest.approx(np.exp(-np.sum(p * np.log(p))), rel=ROUNDING)
    np.testing.assert_allclose(found.balance, 0, atol=ROUNDING)
    np.testing.assert_allclose(found.asymmetry, 0, atol=ROUNDING)
    h = 0.9 ** np.arange(11) + 0.5 * (-0.5) ** np.arange(11)
    values = np.linalg.svd(h[np.add.outer(np.arange(6), np.arange(6))], compute_uv=False)
    np.testing.assert_allclose(found.singular_values[1], values, atol=ROUNDING)
    # With a coarser tolerance the weaker one does not count; neighbours are one atom if they are merged.
    assert order_growth(model, rows(model, systems), tolerance=0.6).atoms.tolist() == [1, 1, 0]
    assert order_growth(model, rows(model, systems), merge=2.0).atoms.tolist() == [1, 1, 1]


@pytest.mark.covers("rnn:F13")
def test_general_networks_are_read_through_the_nearest_balanced_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = LinearRNN(4, 5, inputs=2, outputs=2)
    a, b, c = 0.4 * rng.standard_normal((4, 4)), rng.standard_normal((4, 2)), rng.standard_normal((2, 4))
    found = order_growth(model, rows(model, [(a, b, c), (0 * a, 0 * b, 0 * c)]), horizon=9, merge=0.0)
    assert found.balance[0] == pytest.approx(np.linalg.norm(b - c.T) / np.linalg.norm(b + c.T), rel=ROUNDING)
    assert found.asymmetry[0] == pytest.approx(np.linalg.norm(a - a.T) / 2, rel=ROUNDING)
    vectors = np.linalg.eigh((a + a.T) / 2)[1]
    mass = np.sum((vectors.T @ (b + c.T) / 2) ** 2, axis=1)
    share = mass / mass.sum()
    assert found.entropy[0] == pytest.approx(np.exp(-np.sum(share * np.log(share))), rel=ROUNDING)
    assert found.atoms[0] == np.sum(share > 1e-2)
    blocks = [[c @ np.linalg.matrix_power(a, i + j) @ b for j in range(5)] for i in range(5)]
    values = np.linalg.svd(np.block(blocks), compute_uv=False)
    np.testing.assert_allclose(found.singular_values[0], values, atol=ROUNDING * values[0])
    assert found.order[0] == np.sum(values > 1e-2 * values[0])
    # The zero network uses no state, and there is no proportion to balance.
    assert (found.order[1], found.atoms[1], found.entropy[1]) == (0, 0, 0) and np.isnan(found.balance[1])


def test_refusals() -> None:
    model = LinearRNN(2, 3)
    flat = np.ones((1, 8))
    with pytest.raises(TypeError, match="model must be a LinearRNN"):
        order_growth(DeepLinear((2, 2, 2)), flat)
    with pytest.raises(ValueError, match="as many inputs as outputs"):
        order_growth(LinearRNN(2, 3, outputs=2), np.ones((1, 10)))
    with pytest.raises(ValueError, match="weights must have shape"):
        order_growth(model, np.ones((1, 7)))
    with pytest.raises(ValueError, match="weights must be finite"):
        order_growth(model, jnp.full((1, 8), jnp.nan))
    with pytest.raises(ValueError, match="horizon must be at least 1"):
        order_growth(model, flat, horizon=0)
    with pytest.raises(HypothesisError, match="finite up to the horizon"):
        order_growth(model, 1e30 * flat)
