"""Conserved quantities against plain NumPy and mpmath."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from deeplinear.models import DeepLinear, Gaussian, balancedness, conserved, drift, lambda_estimate, layer_strengths

ROUNDING = 1e-13


def layers(seed: int):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=shape) for shape in ((4, 3), (3, 4), (2, 3)))


def test_conserved_quantities_and_their_norms(seed):
    w1, w2, w3 = layers(seed)
    expected = (w2.T @ w2 - w1 @ w1.T, w3.T @ w3 - w2 @ w2.T)
    params = tuple(map(jnp.asarray, (w1, w2, w3)))
    for c, matrix in zip(conserved(params), expected, strict=True):
        np.testing.assert_allclose(c, matrix, atol=ROUNDING)
    np.testing.assert_allclose(balancedness(params), [np.linalg.norm(c) for c in expected], rtol=ROUNDING)


def test_lambda_estimate_is_the_best_multiple_of_the_identity(seed):
    params = tuple(map(jnp.asarray, layers(seed)))
    estimate = lambda_estimate(params)
    for pair, c in enumerate(np.asarray(c) for c in conserved(params)):
        lam = np.trace(c) / len(c)
        rest = c - lam * np.eye(len(c))
        assert float(estimate.lam[pair]) == pytest.approx(lam, abs=ROUNDING)
        assert float(estimate.frobenius[pair]) == pytest.approx(np.linalg.norm(rest), rel=1e-12)
        assert float(estimate.operator[pair]) == pytest.approx(np.linalg.norm(rest, 2), rel=1e-12)


def test_one_layer_has_no_pairs():
    params = (jnp.ones((2, 3)),)
    assert conserved(params) == ()
    assert balancedness(params).shape == drift(params, params).shape == lambda_estimate(params).operator.shape == (0,)


def test_drift_of_a_gradient_step_is_of_second_order(seed):
    """One step of gradient descent changes C by exactly eta^2 (g2^T g2 - g1 g1^T)."""
    w1, w2, _ = layers(seed)
    gap = w2 @ w1 - np.ones((3, 3))
    g1, g2 = w2.T @ gap, gap @ w1.T
    before, after = ((jnp.asarray(a), jnp.asarray(b)) for a, b in ((w1, w2), (w1 - 0.1 * g1, w2 - 0.1 * g2)))
    assert float(drift(after, before)[0]) == pytest.approx(0.01 * np.linalg.norm(g2.T @ g2 - g1 @ g1.T), rel=1e-11)
    assert float(drift(before, before)[0]) == 0.0


def test_drift_refuses_another_network():
    with pytest.raises(ValueError, match=r"drift: reference must have layer shapes \(\(2, 2\),\)"):
        drift((jnp.eye(2),), (jnp.eye(3),))


@pytest.mark.covers("exact:F5")
def test_layer_strengths_keep_all_digits():
    ratio = 10.0 ** np.arange(-16, 17)
    s = np.concatenate([np.ones(33), 3.7 * np.ones(33)])
    magnitude = np.concatenate([ratio, ratio])
    for sign in (1, -1):
        lam = sign * magnitude
        first, second = (np.asarray(x) for x in layer_strengths(jnp.asarray(s), jnp.asarray(lam)))
        assert np.all(np.abs(first * second / s - 1) <= 1e-15)
        with mpmath.workdps(60):  # the difference of squares is formed exactly: it measures the strengths, not itself
            for numbers in zip(first, second, s, lam, strict=True):
                a, b, x, y = (mpmath.mpf(float(number)) for number in numbers)
                root = mpmath.sqrt(x**2 + y**2 / 4)
                assert abs(b**2 - a**2 - y) <= 1e-15 * (a**2 + b**2)
                assert abs(a / mpmath.sqrt(root - y / 2) - 1) < 1e-15
                assert abs(b / mpmath.sqrt(root + y / 2) - 1) < 1e-15


def test_layer_strengths_at_zero():
    for lam, expected in ((0.0, (0, 0)), (4.0, (0, 2)), (-4.0, (2, 0))):
        assert tuple(map(float, layer_strengths(0.0, lam))) == expected


def test_independent_layers_are_far_from_a_multiple_of_the_identity(seed):
    """For wide random layers the operator residual is of the size of the entries' variance, not small."""
    params = Gaussian(1 / 8)(DeepLinear((64, 64, 64)), jax.random.key(seed))
    estimate = lambda_estimate(params)
    # C is the difference of two independent Wishart matrices: mean 0 with standard error 1/32, and a spectrum that
    # fills (-3.33, 3.33), the free difference of two Marchenko-Pastur laws, as the width grows.
    assert abs(float(estimate.lam[0])) < 0.2
    assert 2.5 < float(estimate.operator[0]) < 4.0
