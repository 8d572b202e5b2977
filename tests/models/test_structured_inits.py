"""Structured initialisations: the property that defines each, by plain NumPy, and refusals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import (
    Aligned,
    Cumulative,
    Decoupled,
    DeepLinear,
    DeltaBalanced,
    Diagonal,
    Pyramid,
    rescale_balance,
)

ROUNDING = 1e-12  # what a defining property may be missed by, relative to the squared size of the layers
THREE = DeepLinear((3, 4, 3, 2))
WIDE = DeepLinear((2, 4, 3, 5, 3))
KEY = jax.random.key(0)


def layers(init, model, seed):
    return [np.asarray(layer) for layer in init(model, jax.random.key(seed))]


def laws(params):
    """W_l W_lᵀ - W_{l+1}ᵀ W_{l+1}: what is below less what is above."""
    return [below @ below.T - above.T @ above for below, above in itertools.pairwise(params)]


@pytest.mark.covers("network:F28")
def test_delta_is_met_exactly(seed):
    params = layers(DeltaBalanced(0.04), THREE, seed)
    assert max(np.linalg.norm(c) for c in laws(params)) == pytest.approx(0.04, rel=ROUNDING)
    rng = np.random.default_rng(seed)
    given = tuple(jnp.asarray(rng.standard_normal(shape)) for shape in THREE.shapes)
    scaled = [np.asarray(layer) for layer in rescale_balance(given, 3.0)]
    assert max(np.linalg.norm(c) for c in laws(scaled)) == pytest.approx(3.0, rel=ROUNDING)
    np.testing.assert_allclose(scaled[0] / np.asarray(given[0]), scaled[-1][0, 0] / np.asarray(given[-1])[0, 0])


@pytest.mark.covers("network:F28")
def test_aligned_layers_share_their_bases(seed):
    """Strengths that differ in all layers and modes, so that bases are read off the singular vectors."""
    strengths = np.array([[3.0, -1.0], [0.5, 2.0], [1.5, 4.0]])
    params = layers(Aligned(strengths), THREE, seed)
    for below, above in itertools.pairwise(params):
        x, y = below @ below.T, above.T @ above
        assert np.abs(x @ y - y @ x).max() <= ROUNDING * 100
    for layer, row in zip(params, strengths, strict=True):
        np.testing.assert_allclose(
            np.linalg.svd(layer, compute_uv=False)[:2], sorted(np.abs(row), reverse=True), rtol=ROUNDING
        )
    product = params[2] @ params[1] @ params[0]
    np.testing.assert_allclose(np.linalg.svd(product, compute_uv=False), [8.0, 2.25], rtol=ROUNDING)


@pytest.mark.covers("network:F28")
def test_decoupled_layers_carry_each_mode_alone(seed):
    strengths = np.array([[3.0, -1.0], [0.5, 2.0], [1.5, 4.0]])
    params = layers(Decoupled(strengths), THREE, seed)
    np.testing.assert_allclose(params[2] @ params[1] @ params[0], np.diag([2.25, -8.0, 0])[:2], atol=ROUNDING * 100)
    for k, unit in enumerate(np.eye(3)[:2]):
        moved, sizes = unit, []
        for layer in params:
            moved = layer @ moved
            sizes.append(np.linalg.norm(moved))
        np.testing.assert_allclose(sizes, np.abs(np.cumprod(strengths[:, k])), rtol=ROUNDING)


@pytest.mark.covers("network:F28")
def test_diagonal_layers_are_their_strengths():
    first, second = Diagonal([[1.0, -2.0], [3.0, 0.5]])(DeepLinear((2, 3, 2)), KEY)
    np.testing.assert_array_equal(first, [[1.0, 0.0], [0.0, -2.0], [0.0, 0.0]])
    np.testing.assert_array_equal(second, [[3.0, 0.0, 0.0], [0.0, 0.5, 0.0]])
    one = Diagonal(2.0)(DeepLinear((2, 1, 3)), KEY)
    np.testing.assert_array_equal(one[0], [[2.0, 0.0]])


@pytest.mark.covers("network:F28")
@pytest.mark.parametrize(
    ("widths", "pivot"), [((2, 3, 4, 3, 2), 3), ((2, 3, 4, 3, 2), 2), ((3, 3, 2, 2), 1), ((2, 2, 3, 2), 2)]
)
def test_pyramids_have_the_signs_that_a_rate_follows_from(widths, pivot, seed):
    params = layers(Pyramid(pivot, 3.0, 0.7), DeepLinear(widths), seed)
    for i, law in enumerate(laws(params), start=1):
        values = np.linalg.eigvalsh(law)
        if i < pivot:
            assert np.sum(values > 0.1) >= widths[i - 1]
        else:
            assert np.sum(values < -0.1) >= widths[i + 1]


@pytest.mark.covers("network:F28")
@pytest.mark.parametrize("pivot", [1, 2, 4])
def test_cumulative_layers_have_definite_laws(pivot, seed):
    """Definite to rounding, and of the rank that makes the rate positive."""
    params = layers(Cumulative(pivot, 0.8), WIDE, seed)
    size = max(np.sum(layer**2) for layer in params)
    for i, law in enumerate(laws(params), start=1):
        values = np.linalg.eigvalsh(law if i < pivot else -law)
        needed = WIDE.widths[0] if i < pivot else WIDE.widths[-1]
        assert values[0] >= -ROUNDING * size
        assert values[-needed] >= 0.64 * (1 - 1e-9) and np.abs(values[:-needed]).max(initial=0) <= ROUNDING * size


def test_networks_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"Pyramid: growth must be at least 3"):
        Pyramid(1, 2.9)
    with pytest.raises(ValueError, match="Pyramid: widths must not fall up to layer 2"):
        Pyramid(3)(DeepLinear((3, 2, 4, 2)), KEY)
    with pytest.raises(ValueError, match="Cumulative: hidden widths must be at least 4"):
        Cumulative(1)(DeepLinear((4, 3, 3)), KEY)
    with pytest.raises(ValueError, match="pivot must be at most 3"):
        Cumulative(4)(DeepLinear((2, 3, 3, 2)), KEY)
    with pytest.raises(ValueError, match="DeltaBalanced: model must have at least two layers"):
        DeltaBalanced(1.0)(DeepLinear((2, 2)), KEY)
    with pytest.raises(ValueError, match="left must be orthogonal"):
        Aligned(1.0, left=[[1.0, 1.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match=r"Decoupled: strengths .* at most 2 modes"):
        Decoupled([1.0, 2.0, 3.0])(THREE, KEY)
    with pytest.raises(ValueError, match="at least two layers"):
        rescale_balance((jnp.eye(2),), 1.0)
    with pytest.raises(ValueError, match="must not be balanced"):
        rescale_balance((jnp.eye(2), jnp.eye(2)), 1.0)
