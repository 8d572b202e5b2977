"""Random numbers of keys: JAX's own, SciPy's quantile, and nothing compiled."""

import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats

from deeplinear.core import random

SEEDS = (0, 7, 2**31 + 3, 2**40 + 5)
SHAPES = ((), (3,), (4, 5))


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_are_those_of_jax(seed: int) -> None:
    key, words = jax.random.key(seed), random.key(seed)
    np.testing.assert_array_equal(words, jax.random.key_data(key))
    for number in (1, 2, 5, (2, 3)):
        np.testing.assert_array_equal(random.split(words, number), jax.random.key_data(jax.random.split(key, number)))
    for data in (0, 1, 77, 2**31):
        np.testing.assert_array_equal(random.fold_in(words, data), jax.random.key_data(jax.random.fold_in(key, data)))


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_are_those_of_jax(seed: int) -> None:
    key, words = jax.random.key(seed), random.key(seed)
    for shape in SHAPES:
        np.testing.assert_array_equal(random.bits(words, shape), jax.random.bits(key, shape, "uint32"))
        np.testing.assert_array_equal(random.bits(words, shape, 64), jax.random.bits(key, shape, "uint64"))
        for kind in (np.float64, np.float32):
            found = random.uniform(words, shape, kind, -0.5, 2.0)
            assert found.dtype == kind
            np.testing.assert_array_equal(found, jax.random.uniform(key, shape, kind, -0.5, 2.0))
            digits = 10 * np.finfo(kind).eps
            np.testing.assert_allclose(
                random.normal(words, shape, kind), jax.random.normal(key, shape, kind), rtol=digits, atol=digits
            )
        np.testing.assert_array_equal(random.randint(words, shape, -3, 10), jax.random.randint(key, shape, -3, 10))
        wide = random.randint(words, shape, -3, 2**40 + 1)
        np.testing.assert_array_equal(wide, jax.random.randint(key, shape, -3, 2**40 + 1))
        np.testing.assert_array_equal(random.bernoulli(words, 0.3, shape), jax.random.bernoulli(key, 0.3, shape))
    for count in (0, 1, 2, 10, 5000):
        np.testing.assert_array_equal(random.permutation(words, count), jax.random.permutation(key, count))
    for rows, columns in ((3, 3), (5, 2), (2, 5)):
        turn = random.orthogonal(words, rows, columns)
        np.testing.assert_allclose(turn, jax.random.orthogonal(key, rows, m=columns), atol=1e-14)


def test_more_rounds_where_sorting_keys_could_be_equal() -> None:
    """Beyond 1,625 numbers a permutation is sorted twice: the second round must change it."""
    words = random.key(3)
    once = np.argsort(np.asarray(random.bits(random.split(words)[1], (2000,))), kind="stable")
    assert not np.array_equal(random.permutation(words, 2000), once)
    np.testing.assert_array_equal(random.permutation(words, 2000), jax.random.permutation(jax.random.key(3), 2000))


def test_quantile_against_scipy() -> None:
    """All three pieces and their seams."""
    drawn = np.concatenate([np.linspace(-1, 1, 20_001)[1:-1], [0.85, np.nextafter(0.85, 1), 1e-300]])
    drawn = np.concatenate([drawn, 1 - np.geomspace(2**-53, 1e-9, 200), -1 + np.geomspace(2**-53, 1e-9, 200)])
    expected = np.where(
        np.abs(drawn) < 0.5,
        np.sqrt(2) * scipy.special.erfinv(drawn),
        -np.sign(drawn) * scipy.special.ndtri((1 - np.abs(drawn)) / 2),
    )
    np.testing.assert_allclose(random.quantile(drawn), expected, rtol=2e-15, atol=0)


def test_normal_numbers_are_normal() -> None:
    drawn = np.asarray(random.normal(random.key(11), (50_000,)))
    assert scipy.stats.kstest(drawn, "norm").pvalue > 1e-3


def test_other_keys_are_drawn_from_by_jax() -> None:
    other = jax.random.key(1, impl="rbg")
    np.testing.assert_array_equal(random.normal(other, (3,)), jax.random.normal(other, (3,)))
    drawn = jax.jit(lambda key: random.uniform(key, (3,)))(jax.random.key(4))
    np.testing.assert_array_equal(drawn, random.uniform(random.key(4), (3,)))
    legacy = jax.jit(lambda key: random.uniform(random.split(key)[1], (3,)))(random.key(4))
    np.testing.assert_array_equal(legacy, random.uniform(random.split(random.key(4))[1], (3,)))
    spread = jax.vmap(lambda key: random.normal(key, (2,)))(jax.random.split(jax.random.key(4), 3))
    assert spread.shape == (3, 2)


def test_the_old_order_of_bits_is_left_to_jax() -> None:
    with jax.threefry_partitionable(False):
        key = jax.random.key(5)
        np.testing.assert_array_equal(random.uniform(key, (3,)), jax.random.uniform(key, (3,)))
