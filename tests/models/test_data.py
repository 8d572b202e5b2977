"""Data sets: whitening, tasks, targets and masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from deeplinear.models import (
    low_rank_target,
    random_mask,
    random_regression,
    semantic_hierarchy,
    spectral_target,
    whiten,
)

WHITE = 1e-12  # accepted deviation of a covariance from the identity
SIGMAS = 6  # standard errors; a true statement fails once in 5e8 runs


@pytest.mark.covers("exact:F1")
def test_whitened_inputs_are_white_and_nearest(seed):
    x = np.random.default_rng(seed).normal(size=(4, 10)) * np.array([1, 1e-2, 1, 1e-4])[:, None]
    white = np.asarray(whiten(x))
    assert np.max(np.abs(white @ white.T / 10 - np.eye(4))) <= WHITE
    root = scipy.linalg.sqrtm(x @ x.T / 10)
    np.testing.assert_allclose(white, np.linalg.solve(root, x), atol=1e-5)  # the oracle loses digits, not the result


@pytest.mark.covers("exact:F1")
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.ones((3, 2)), "at least as many samples"),
        (np.ones((2, 5)), "full row rank"),
        (np.array([[1.0, np.nan]]), r"inputs must be finite.*\(0, 1\)"),
        (np.ones(3), "inputs must have shape"),
    ],
)
def test_inputs_that_cannot_be_whitened_are_refused(inputs, message):
    with pytest.raises(ValueError, match=f"whiten: .*{message}"):
        whiten(inputs)


@pytest.mark.covers("exact:F2")
def test_random_regression(seed):
    samples = 10_000
    x, y = random_regression(jax.random.key(seed), 3, 4, samples)
    assert x.shape == (3, samples)
    assert y.shape == (4, samples)
    assert np.max(np.abs(np.asarray(x @ x.T) / samples - np.eye(3))) <= WHITE
    assert float(jnp.std(y)) == pytest.approx(0.5, rel=SIGMAS / np.sqrt(2 * y.size))
    again = random_regression(jax.random.key(seed), 3, 4, samples)
    np.testing.assert_array_equal(y, again.outputs)
    plain = random_regression(jax.random.key(seed), 3, 4, samples, sigma=3.0, per_output=False).outputs
    np.testing.assert_allclose(plain, 6 * y, rtol=1e-14)


@pytest.mark.covers("exact:F3")
def test_semantic_hierarchy():
    x, y = (np.asarray(a) for a in semantic_hierarchy())
    assert np.max(np.abs(x @ x.T / 8 - np.eye(8))) <= 2.3e-16  # the square of the rounded root of 8
    values = np.linalg.svd(y @ x.T / 8, compute_uv=False)
    np.testing.assert_allclose(values, np.sqrt([8, 8, 4, 4, 2, 2, 2, 2]), atol=4e-15)
    x, y = (np.asarray(a) for a in semantic_hierarchy(perturbed=True))
    sigma = y @ x.T / 8
    recorded = [2.9804, 2.8733, 2.1021, 2.0317, 1.5179, 1.4554, 1.4401, 1.4332]
    np.testing.assert_allclose(np.linalg.svd(sigma, compute_uv=False), recorded, atol=1e-4)
    assert np.linalg.det(sigma) == pytest.approx(166.76, abs=0.01)
    np.testing.assert_allclose(semantic_hierarchy(2.0).outputs, 2 * semantic_hierarchy().outputs)


def test_low_rank_target(seed):
    target = np.asarray(low_rank_target(jax.random.key(seed), (60, 50), 3, std=2.0))
    values = np.linalg.svd(target, compute_uv=False)
    assert np.all(values[:3] > 1)
    assert np.all(values[3:] < 1e-12)
    # The mean square is a sum of nearly independent products of two sums of 60 * 3 and 50 * 3 squares.
    assert np.mean(target**2) == pytest.approx(4, rel=SIGMAS * np.sqrt(2 / 180 + 2 / 150))


def test_random_mask_observes_exactly_so_many(seed):
    for count in (1, 7, 20):
        mask = random_mask(jax.random.key(seed), (5, 4), count)
        assert mask.dtype == bool
        assert mask.shape == (5, 4)
        assert int(mask.sum()) == count
    keys = jax.random.split(jax.random.key(seed), 2000)
    often = np.asarray(jax.vmap(lambda key: random_mask(key, (5, 4), 7))(keys)).mean(axis=0)
    np.testing.assert_allclose(often, 7 / 20, atol=SIGMAS * np.sqrt(0.35 * 0.65 / 2000))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda key: low_rank_target(key, (3, 2), 3), "low_rank_target: rank must be at most 2"),
        (lambda key: low_rank_target(key, (3, 2), 0), "low_rank_target: rank must be at least 1"),
        (lambda key: low_rank_target(key, (0, 2), 1), r"low_rank_target: shape\[0\] must be at least 1"),
        (lambda key: random_mask(key, (3, 2), 0), "random_mask: count must be at least 1"),
        (lambda key: random_mask(key, (3, 2), 7), "random_mask: count must be at most 6"),
        (lambda key: random_regression(key, 3, 2, 2), "random_regression: samples must be at least 3"),
        (lambda key: random_regression(key, 3, 2, 5, sigma=-1.0), "random_regression: sigma must be at least 0"),
        (lambda key: semantic_hierarchy(float("inf")), "semantic_hierarchy: scale must be finite"),
    ],
)
def test_bad_arguments_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make(jax.random.key(0))


def test_spectral_target_has_its_singular_values() -> None:
    values = jnp.array([3.0, 0.5])
    found = spectral_target(jax.random.key(1), (3, 5), values)
    assert np.linalg.svd(np.asarray(found), compute_uv=False) == pytest.approx([3.0, 0.5, 0.0], abs=1e-14)
    with pytest.raises(ValueError, match="spectral_target: values must be at most 3"):
        spectral_target(jax.random.key(1), (3, 5), jnp.ones(4))
