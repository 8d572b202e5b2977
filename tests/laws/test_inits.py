"""Laws of every initialisation."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo import ALL_INITS

ROUNDING = 1e-13  # relative to the squared size of the layers
COMPILED = 1e-10  # compiled code orders its sums differently, and singular vectors pass that on

names = pytest.mark.parametrize("name", ALL_INITS)


def product_of(params) -> np.ndarray:
    product = np.asarray(params[0])
    for layer in params[1:]:
        product = np.asarray(layer) @ product
    return product


@names
def test_layers_fit_the_model_and_come_from_the_key_only(name, seed):
    case = ALL_INITS[name]
    key, other = jax.random.split(jax.random.key(seed))
    params, again, else_ = (case.init(case.model, k) for k in (key, key, other))
    assert tuple(p.shape for p in params) == case.model.shapes
    assert all(p.dtype == jnp.float64 and np.all(np.isfinite(p)) for p in params)
    assert all(np.array_equal(a, b) for a, b in zip(params, again, strict=True))
    changed = [not np.array_equal(a, b) for a, b in zip(params, else_, strict=True)]
    assert all(changed) if case.random else not any(changed)


@names
def test_promised_balance_and_product_hold_to_rounding(name, seed):
    case = ALL_INITS[name]
    params = [np.asarray(p) for p in case.init(case.model, jax.random.key(seed))]
    size = 1 + sum(np.sum(p**2) for p in params)
    if case.lam is not None:
        for below, above in itertools.pairwise(params):
            c = above.T @ above - below @ below.T
            np.testing.assert_allclose(c, case.lam * np.eye(len(c)), atol=ROUNDING * size)
    if case.product is not None:
        np.testing.assert_allclose(product_of(params), case.product, atol=ROUNDING * size)


@names
def test_numbers_are_data(name):
    """All leaves are arrays and none is looked at while tracing, so new numbers use the code compiled for old ones."""
    case = ALL_INITS[name]
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(case.init))
    traced = eqx.filter_eval_shape(lambda init, key: init(case.model, key), case.init, jax.random.key(0))
    assert tuple(layer.shape for layer in traced) == case.model.shapes


@pytest.mark.parametrize("name", ["Scaled", "Balanced-rotated", "LambdaBalanced-negative", "TaskAligned-deep"])
def test_batching_and_compiling_change_nothing(name):
    """One initialisation of each construction, since each costs a compilation."""
    case = ALL_INITS[name]
    keys = jax.random.split(jax.random.key(3), 2)

    @eqx.filter_jit
    @eqx.debug.assert_max_traces(max_traces=1)
    def compiled(init, keys):
        return jax.vmap(lambda key: init(case.model, key))(keys)

    together = compiled(case.init, keys)
    for member, key in enumerate(keys):
        for a, b in zip(together, case.init(case.model, key), strict=True):
            np.testing.assert_allclose(a[member], b, atol=COMPILED)
    compiled(jax.tree.map(lambda leaf: leaf * 1.0000001, case.init), keys)
