"""Whole convolutional networks against plain NumPy: in training, in use, and the averages kept between them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.nonlinear import resnet, vgg
from deeplinear.nonlinear._convolutional import BATCH, Normalised
from nonlinear.plain_networks import of_batch, plain_resnet, plain_vgg

ROUNDING = 1e-9
"""Of up to fifty layers in double precision, each with a division by a deviation."""


@eqx.filter_jit
def applied(network, state: eqx.nn.State, images: jax.Array) -> tuple[jax.Array, eqx.nn.State]:
    return jax.vmap(network, (0, None), (0, None), axis_name=BATCH)(images, state)


@pytest.mark.covers("completion:fig18", "completion:fig20")
@pytest.mark.parametrize(("make", "depth"), [(resnet, 18), (resnet, 50), (vgg, 11)])
def test_whole_networks_against_numpy(make, depth: int, seed: int) -> None:
    """Two batches in training, then one by the running averages, which as in PyTorch are used as they stand."""
    rng = np.random.default_rng(seed)
    make = eqx.filter_jit(eqx.Partial(make, depth=depth, classes=3, channels=2, width=2, dtype=jnp.float64))
    network, state = make(jax.random.key(seed))
    network = jax.tree.map(  # scales and shifts of the normalisation begin with 1 and 0, which would hide them
        lambda leaf: leaf + 0.2 * rng.standard_normal(leaf.shape) if eqx.is_inexact_array(leaf) else leaf, network
    )
    layers = [
        one
        for one in jax.tree.leaves(network, is_leaf=lambda node: isinstance(node, Normalised))
        if isinstance(one, Normalised)
    ]
    means = {id(one): np.zeros(one.norm.input_size) for one in layers}
    variances = {id(one): np.ones(one.norm.input_size) for one in layers}

    def plain(images: np.ndarray, statistics=of_batch) -> np.ndarray:
        if depth == 11:
            return plain_vgg(network, images, statistics)
        return plain_resnet(network, depth, images, statistics)

    def averaging(layer: Normalised, signal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = of_batch(layer, signal)
        means[id(layer)] = 0.9 * means[id(layer)] + 0.1 * mean
        variances[id(layer)] = 0.9 * variances[id(layer)] + 0.1 * variance
        return mean, variance

    for spread in (1.0, 3.0):
        images = spread * rng.standard_normal((4, 2, 16, 16)) + spread
        found, state = applied(network, state, jnp.asarray(images))
        np.testing.assert_allclose(found, plain(images, averaging), rtol=ROUNDING, atol=ROUNDING)
    for one in layers:
        assert one.norm.batch_state_index is not None
        mean, variance = state.get(one.norm.batch_state_index)
        np.testing.assert_allclose(mean, means[id(one)], rtol=ROUNDING, atol=ROUNDING)
        np.testing.assert_allclose(variance, variances[id(one)], rtol=ROUNDING, atol=ROUNDING)
    used, after = applied(eqx.nn.inference_mode(network), state, jnp.asarray(images))
    wanted = plain(images, lambda layer, _: (means[id(layer)], variances[id(layer)]))
    np.testing.assert_allclose(used, wanted, rtol=ROUNDING, atol=ROUNDING)
    assert np.max(np.abs(used - found)) > 0.01  # the two modes are two
    assert eqx.tree_equal(state, after)  # use changes nothing
