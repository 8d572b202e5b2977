"""Low-rank adapters as two-layer networks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.exact import adapter_lambda, adapter_layers, correlations_of, eigensystem, propagate, stacked
from deeplinear.models import lambda_estimate


@pytest.mark.covers("exact:F32", "exact:S35", "exact:E31")
def test_balance_of_an_adapter(seed: int) -> None:
    width, rank, std = 4000, 4, 0.05
    params = adapter_layers(jax.random.key(seed), (width, 7), rank, std)
    assert [layer.shape for layer in params] == [(rank, 7), (width, rank)]
    assert not np.any(np.asarray(params[0]))
    told, found = adapter_lambda(width, rank, std), lambda_estimate(params)
    lam = float(told.lam)
    assert abs(lam - width * std**2) < 1e-12
    assert abs(told.deviation - 2 * math.sqrt(rank / width)) < 1e-15
    bound = 4 * math.sqrt(rank / width)
    assert abs(float(found.lam[0]) / lam - 1) < bound
    assert 0.2 * told.deviation < float(found.operator[0]) / lam < bound
    printed = float(adapter_lambda(width, rank, std, as_printed=True).lam)
    assert abs(printed - std**2) < 1e-15 and abs(float(found.lam[0]) / printed - width) < bound * width


def test_balanced_adapter_learns_the_best_approximation() -> None:
    rng = np.random.default_rng(0)
    params = adapter_layers(jax.random.key(0), (6, 5), 2, 0.4, balanced=True)
    found = lambda_estimate(params)
    assert abs(float(found.lam[0]) - 6 * 0.16) < 1e-12 and float(found.operator[0]) < 1e-12
    left, right = (np.linalg.qr(rng.normal(size=(n, 5)))[0] for n in (6, 5))
    target = (left * np.array([3.0, 2.0, 0.5, 0.2, 0.1])) @ right.T
    late = jax.jit(lambda lam: correlations_of(propagate(stacked(params), eigensystem(target, lam), 60.0, steps=1), 5))
    limit = late(found.lam[0]).product
    best = (left[:, :2] * np.array([3.0, 2.0])) @ right[:, :2].T
    np.testing.assert_allclose(limit, best, atol=1e-9)


@pytest.mark.covers("exact:F35")
def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"adapter_lambda: rank must be at most width = 3, but is 4"):
        adapter_lambda(3, 4, 0.1)
    with pytest.raises(ValueError, match=r"std must be greater than 0, but is 0"):
        adapter_layers(jax.random.key(0), (3, 4), 2, 0.0)
    with pytest.raises(ValueError, match=r"shape\[1\] must be at least 1, but is 0"):
        adapter_layers(jax.random.key(0), (3, 0), 2, jnp.asarray(0.1))
