"""Networks: products, partial products, tangent kernel, refusals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import Completion, DeepLinear, Energy, Problem, SquaredDistance

ROUNDING = 1e-13  # absolute, for products of a few matrices of size one
DIFFERENCE = 1e-7  # central differences with step 1e-4 have errors of the order of its square
MODEL = DeepLinear((3, 4, 3, 2))


def layers(seed: int, model: DeepLinear = MODEL) -> tuple[jax.Array, ...]:
    rng = np.random.default_rng(seed)
    return tuple(jnp.asarray(rng.normal(size=shape) / 2) for shape in model.shapes)


def plain_product(params) -> np.ndarray:
    return np.linalg.multi_dot([np.asarray(p) for p in reversed(params)])


def test_shapes_and_size():
    assert MODEL.depth == 3
    assert MODEL.shapes == ((4, 3), (3, 4), (2, 3))
    assert MODEL.size == 12 + 12 + 6
    assert DeepLinear([3, 2]).shapes == ((2, 3),)


@pytest.mark.parametrize("widths", [(3, 4, 3, 2), (2, 3, 4, 3)], ids=["funnel", "widening"])
def test_product_is_the_product(widths, seed):
    model = DeepLinear(widths)
    params = layers(seed, model)
    np.testing.assert_allclose(model.product(params), plain_product(params), atol=ROUNDING)
    np.testing.assert_allclose(model.forward(params)[0], plain_product(params), atol=ROUNDING)


def test_partial_products_and_suffixes(seed):
    params = layers(seed)
    w1, w2, w3 = (np.asarray(p) for p in params)
    expected = {
        (3, 1): w3 @ w2 @ w1,
        (2, 1): w2 @ w1,
        (3, 2): w3 @ w2,
        (2, 2): w2,
        (0, 1): np.eye(3),
        (1, 2): np.eye(4),
        (3, 4): np.eye(2),
    }
    for (last, first), matrix in expected.items():
        np.testing.assert_allclose(MODEL.partial_product(params, last, first), matrix, atol=ROUNDING)
    for suffix, matrix in zip(MODEL.suffixes(params), (w3 @ w2, w3, np.eye(2)), strict=True):
        np.testing.assert_allclose(suffix, matrix, atol=ROUNDING)


@pytest.mark.parametrize(("last", "first"), [(4, 1), (1, 3), (0, 0), (3, 5)])
def test_partial_products_out_of_range_are_refused(last, first):
    with pytest.raises(ValueError, match=r"partial_product: \(last, first\)"):
        MODEL.partial_product(layers(0), last, first)


def test_tangent_kernel_is_the_gram_matrix_of_the_jacobian(seed):
    params = layers(seed)
    jacobian = jax.jit(jax.jacobian(lambda p: p[2] @ (p[1] @ p[0])))(params)
    flat = np.hstack([np.reshape(block, (6, -1)) for block in jacobian])
    np.testing.assert_allclose(MODEL.ntk(params), flat @ flat.T, atol=ROUNDING)


def test_tangent_kernel_agrees_with_finite_differences(seed):
    params = [np.asarray(p) for p in layers(seed)]
    columns = []
    for position, layer in enumerate(params):
        for index in np.ndindex(layer.shape):
            ends = []
            for step in (1e-4, -1e-4):
                moved = [p.copy() for p in params]
                moved[position][index] += step
                ends.append(plain_product(moved).ravel())
            columns.append((ends[0] - ends[1]) / 2e-4)
    flat = np.array(columns).T
    np.testing.assert_allclose(MODEL.ntk(tuple(map(jnp.asarray, params))), flat @ flat.T, atol=DIFFERENCE)


def test_tangent_kernel_moves_the_product(seed):
    """Along gradient flow the product changes at the rate of minus the kernel times the gradient."""
    params = layers(seed)
    loss = SquaredDistance(np.ones((2, 3)))
    problem = Problem(MODEL, loss)
    step = 1e-4
    ends = []
    for sign in (1, -1):
        moved = [p - sign * step * g for p, g in zip(params, problem.gradient(params), strict=True)]
        ends.append(plain_product(moved).ravel())
    predicted = -MODEL.ntk(params) @ (plain_product(params) - 1).ravel()
    np.testing.assert_allclose(predicted, (ends[0] - ends[1]) / (2 * step), atol=1e-5 * (1 + abs(predicted).max()))


def test_tangent_kernel_of_a_worked_example():
    first, second, third = [[0.5, 0.1], [-0.2, 0.4]], [[0.3, -0.1], [0.2, 0.6]], [[0.4, 0.2], [0.1, -0.5]]
    kernel = np.asarray(DeepLinear((2, 2, 2, 2)).ntk((jnp.array(first), jnp.array(second), jnp.array(third))))
    np.testing.assert_allclose(kernel[np.ix_([0, 3], [0, 3])], [[0.1193, 0.0018], [0.0018, 0.2129]], atol=1e-12)


def test_kernel_factors_of_one_layer_are_identities():
    ((left, right),) = DeepLinear((3, 2)).kernel_factors((jnp.ones((2, 3)),))
    np.testing.assert_array_equal(left, np.eye(2))
    np.testing.assert_array_equal(right, np.eye(3))


def quartic(product):
    return 0.25 * jnp.sum(product**4)


def test_dense_hessian_is_that_of_automatic_differentiation(seed):
    model = DeepLinear((3, 4, 2))
    params = layers(seed, model)
    blocks = jax.jit(jax.hessian(lambda p: quartic(p[1] @ p[0])))(params)
    rows = [np.hstack([np.reshape(b, (p.size, -1)) for b in row]) for p, row in zip(params, blocks, strict=True)]
    dense = eqx.filter_jit(Problem(model, Energy(quartic)).hessian)(params)
    np.testing.assert_allclose(dense, np.vstack(rows), atol=1e-12)


@pytest.mark.covers("completion:F4")
def test_gradient_agrees_with_central_differences(seed):
    """Acceptance of the model: rectangular, three layers, masked loss with the factor one half and a sum."""
    params = [np.asarray(p) for p in layers(seed)]
    rng = np.random.default_rng(seed + 100)
    target, mask = rng.normal(size=(2, 3)), np.array([[1, 0, 1], [0, 1, 1]])
    gradient = Problem(MODEL, Completion(target, mask)).gradient(tuple(map(jnp.asarray, params)))

    def plain(p):
        product = plain_product(p)
        return 0.5 * sum((product[i, j] - target[i, j]) ** 2 for i in range(2) for j in range(3) if mask[i, j])

    for position, layer in enumerate(params):
        for index in np.ndindex(layer.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [p.copy() for p in params]
                moved[position][index] += step
                ends.append(plain(moved))
            assert gradient[position][index] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("widths", "error", "message"),
    [
        ((3,), ValueError, "widths must name at least"),
        ((3, 0), ValueError, r"widths\[1\] must be at least 1"),
        ((3, True), TypeError, r"widths\[1\] must be an integer"),
    ],
)
def test_bad_widths_are_refused(widths, error, message):
    with pytest.raises(error, match=f"DeepLinear: {message}"):
        DeepLinear(widths)


def test_params_that_do_not_fit_are_refused():
    problem = Problem(MODEL, SquaredDistance(np.zeros((2, 3))))
    with pytest.raises(ValueError, match=r"here: params must have layer shapes .* but has \(\(4, 3\),\)"):
        problem.check((jnp.ones((4, 3)),), "here")


def test_directions_of_too_many_layers_are_refused():
    """Every layer has one part of a direction: what is left over would be dropped without a word."""
    problem = Problem(MODEL, SquaredDistance(jnp.zeros((2, 3))))
    params = layers(0)
    with pytest.raises(ValueError, match="argument 3 is longer"):
        problem.hessian_product(params, (*params, jnp.eye(2)))


def test_negative_penalty_is_refused():
    with pytest.raises(ValueError, match="Problem: l2 must be at least 0, but is -1"):
        Problem(MODEL, SquaredDistance(np.zeros((2, 3))), l2=-1.0)
