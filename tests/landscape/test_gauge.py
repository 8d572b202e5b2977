"""Changes of basis in the hidden layers."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.landscape import gauge, orthogonal_defect, random_gauge

WIDTHS = (4, 3, 5, 2)
ROUNDING = 1e-12
"""Products of a few matrices of order one, with inverses of condition 20."""


def layers_of(rng: np.random.Generator, widths: tuple[int, ...] = WIDTHS) -> tuple[np.ndarray, ...]:
    return tuple(rng.standard_normal((out, inp)) for inp, out in itertools.pairwise(widths))


@pytest.mark.covers("network:F12")
def test_layers_are_those_of_the_formula(seed: int) -> None:
    """Against the written-out formula with inverses; the product stays."""
    layers = layers_of(np.random.default_rng(seed))
    factors = random_gauge(jax.random.key(seed), WIDTHS, condition=20.0)
    first, second = (np.asarray(factor) for factor in factors)
    w1, w2, w3 = layers
    expected = (first @ w1, second @ w2 @ np.linalg.inv(first), w3 @ np.linalg.inv(second))
    moved = gauge(layers, factors)
    for found, wanted in zip(moved, expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=20 * ROUNDING)
    np.testing.assert_allclose(moved[2] @ moved[1] @ moved[0], w3 @ w2 @ w1, atol=20 * ROUNDING)
    back = gauge(moved, [np.linalg.inv(first), np.linalg.inv(second)])
    np.testing.assert_allclose(back[1], w2, atol=400 * ROUNDING)


def test_many_at_once_give_what_one_gives() -> None:
    layers = layers_of(np.random.default_rng(0))
    keys = jax.random.split(jax.random.key(0), 3)
    many = jax.jit(jax.vmap(lambda key: gauge(layers, random_gauge(key, WIDTHS, condition=5.0))))(keys)
    alone = gauge(layers, random_gauge(keys[1], WIDTHS, condition=5.0))
    for stacked, single in zip(many, alone, strict=True):
        np.testing.assert_allclose(stacked[1], single, atol=5 * ROUNDING)


def test_random_factors_have_the_condition_asked_for(seed: int) -> None:
    factors = random_gauge(jax.random.key(seed), (3, 1, 3, 5, 2), condition=1e3)
    assert [factor.shape for factor in factors] == [(1, 1), (3, 3), (5, 5)]
    np.testing.assert_allclose([np.linalg.cond(np.asarray(factor)) for factor in factors[1:]], 1e3, rtol=1e-9)
    assert 1e3**-0.5 <= abs(float(factors[0][0, 0])) <= 1e3**0.5
    turned = random_gauge(jax.random.key(seed), (3, 1, 3, 5, 2))
    assert float(orthogonal_defect(turned).max()) < ROUNDING
    # Of a diagonal matrix with largest entry 3 the defect is 8.
    assert float(orthogonal_defect([np.diag([1.0, 3.0])])[0]) == pytest.approx(8.0)
    assert random_gauge(jax.random.key(seed), (3, 2)) == ()


@pytest.mark.covers("network:F12")
def test_bad_factors_are_refused() -> None:
    layers = layers_of(np.random.default_rng(0))
    good = [np.eye(3), np.eye(5)]
    with pytest.raises(HypothesisError, match=r"factors\[1\] is invertible .* residual inf"):
        gauge(layers, [good[0], np.zeros((5, 5))])
    with pytest.raises(HypothesisError, match="invertible") as caught:
        gauge(layers, [np.diag([1.0, 1.0, 1e-13]), good[1]])
    assert caught.value.residual == pytest.approx(1e13) and caught.value.tolerance == 1e12
    gauge(layers, [np.diag([1.0, 1.0, 1e-11]), good[1]])
    with pytest.raises(ValueError, match=r"factors\[0\] must have shape \(3, 3\), but has shape \(5, 5\)"):
        gauge(layers, good[::-1])
    with pytest.raises(ValueError, match="one matrix for each of the 2 hidden layers, but holds 3"):
        gauge(layers, [*good, np.eye(2)])
    with pytest.raises(ValueError, match="must be finite"):
        gauge(layers, [good[0], np.full((5, 5), np.nan)])
    with pytest.raises(ValueError, match=r"params\[1\] must have shape"):
        gauge([layers[0], layers[2]], [good[0]])
    with pytest.raises(ValueError, match="condition must be at least 1"):
        random_gauge(jax.random.key(0), WIDTHS, condition=0.5)
    with pytest.raises(Exception, match="must be invertible"):
        jax.block_until_ready(jax.jit(lambda factor: gauge(layers, [factor, good[1]]))(jnp.zeros((3, 3))))
