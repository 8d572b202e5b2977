"""Networks with fixed weights: against plain NumPy with the weights put in, finite differences, and flows."""

import equinox as eqx
import jax
import numpy as np
import pytest

from deeplinear.dynamics import Adam, simulate
from deeplinear.models import DeepLinear, Masked, Problem, SquaredDistance, skip_network, surviving_laws

ROUNDING = 1e-12  # products of a few matrices of order one
DIFFERENCES = 1e-6  # central differences with steps of 1e-5
RESIDUAL = (4, 3, 5, 3, 2)


def product_of(layers):
    product = np.asarray(layers[0])
    for layer in layers[1:]:
        product = np.asarray(layer) @ product
    return product


def draw(rng, shapes, scale=1.0):
    return tuple(jax.device_put(scale * rng.standard_normal(shape)) for shape in shapes)


def sparse(rng, widths=(3, 4, 2)):
    """Random mask with fixed weights of both kinds, zero and not."""
    network = DeepLinear(widths)
    masks = [rng.random(shape) < 0.6 for shape in network.shapes]
    values = [rng.standard_normal(shape) * (rng.random(shape) < 0.5) for shape in network.shapes]
    return Masked(network, masks, values)


@pytest.mark.covers("network:F40", "network:C42")
def test_derivatives_agree_with_finite_differences_of_plain_numpy(seed):
    rng = np.random.default_rng(seed)
    model = sparse(rng)
    target = rng.standard_normal((2, 3))
    problem = Problem(model, SquaredDistance(target))
    params, direction = draw(rng, model.shapes), draw(rng, model.shapes)

    def value(layers):
        put = [np.where(m, p, v) for m, p, v in zip(model.masks, layers, model.values, strict=True)]
        return 0.5 * np.sum((product_of(put) - target) ** 2)

    def differences(function, layers, step=1e-5):
        slopes = []
        for number, layer in enumerate(layers):
            slope = np.zeros(layer.shape)
            for entry in np.ndindex(*layer.shape):
                moved = [[np.array(other) for other in layers] for _ in range(2)]
                moved[0][number][entry] += step
                moved[1][number][entry] -= step
                slope[entry] = (function(moved[0]) - function(moved[1])) / (2 * step)
            slopes.append(slope)
        return slopes

    gradient, hessian_product = problem.linearize(params)
    assert float(problem.value(params)) == pytest.approx(value(params), rel=ROUNDING)
    for own, mask, wanted in zip(gradient, model.masks, differences(value, params), strict=True):
        np.testing.assert_allclose(own, wanted, atol=DIFFERENCES)
        assert not np.any(np.asarray(own)[~np.asarray(mask)])
    step = 1e-5
    ahead, behind = (
        problem.gradient(tuple(p + sign * step * v for p, v in zip(params, direction, strict=True))) for sign in (1, -1)
    )
    for own, mask, a, b in zip(hessian_product(direction), model.masks, ahead, behind, strict=True):
        np.testing.assert_allclose(own, (a - b) / (2 * step), atol=100 * DIFFERENCES)
        assert not np.any(np.asarray(own)[~np.asarray(mask)])
    dense = np.asarray(eqx.filter_jit(problem.hessian)(params))
    np.testing.assert_allclose(dense, dense.T, atol=ROUNDING * (1 + np.abs(dense).max()))


@pytest.mark.covers("network:F40", "network:C42", "network:E9")
@pytest.mark.parametrize(
    ("widths", "start", "length"), [(RESIDUAL, 1, 2), ((2, 3, 4, 2, 2), 0, 3), ((3, 2, 2, 2), 1, 2)]
)
def test_skip_adds_what_it_carries(widths, start, length, seed):
    rng = np.random.default_rng(seed)
    skip = skip_network(widths, start, length)
    layers = draw(rng, DeepLinear(widths).shapes)
    chain = skip.embed(layers)
    skip.model.check(chain, "here")
    inner, outer = np.eye(widths[0]), np.eye(widths[-1])
    for layer in layers[:start]:
        inner = np.asarray(layer) @ inner
    for layer in reversed(layers[start + length :]):
        outer = outer @ np.asarray(layer)
    wanted = product_of(layers) + outer @ inner
    np.testing.assert_allclose(skip.model.forward(chain)[0], wanted, atol=ROUNDING * 100)
    assert all(np.array_equal(a, b) for a, b in zip(skip.extract(chain), layers, strict=True))
    assert sum(skip.model.model.widths) - sum(widths) == widths[start] * (length - 1)
    assert sum(int(np.sum(mask)) for mask in skip.model.masks) == DeepLinear(widths).size


def test_laws_of_a_residual_network_break_at_the_ends_of_its_skip():
    for number, survives in enumerate(surviving_laws(skip_network(RESIDUAL, 1, 2).model), start=1):
        own = RESIDUAL[number]
        assert survives[:own, :own].all() == survives[:own, :own].any() == (number == 2)
    # Units that only carry have nothing to learn around them: where the skip is longer, their entries are constant.
    carried = surviving_laws(skip_network((2, 3, 3, 3, 2), 0, 4).model)
    assert carried[1][3:, 3:].all() and carried[1][:3, 3:].all() and not carried[0][:3, 3:].any()


@pytest.mark.covers("network:F40")
def test_laws_of_sparse_networks_survive_exactly_where_told(seed):
    """The rate of every entry of C at one point, from the masked gradient: zero where it survives, and else not."""
    rng = np.random.default_rng(seed)
    kept, broken, plain_rule_wrong = [], [], 0
    for _ in range(20):
        model = sparse(rng)
        params = model.complete(draw(rng, model.shapes))
        gradient = Problem(model, SquaredDistance(rng.standard_normal((2, 3)))).gradient(params)
        (w, above), (g, g_above) = (tuple(map(np.asarray, layers)) for layers in (params, gradient))
        rate = np.abs(above.T @ g_above + g_above.T @ above - g @ w.T - w @ g.T)
        (survives,) = surviving_laws(model)
        kept += list(rate[survives])
        broken += list(rate[~survives])
        # "No fixed weight that is not zero" is not enough: one fixed at zero also breaks entries off the diagonal.
        fixed = [~np.asarray(m) & (np.asarray(v) != 0) for m, v in zip(model.masks, model.values, strict=True)]
        free = ~(fixed[0].any(1) | fixed[1].any(0))
        plain_rule_wrong += int(np.sum(rate[np.outer(free, free)] > 1e-6))
    assert max(kept) <= ROUNDING * 100
    assert np.mean(np.array(broken) > 1e-6) > 0.95  # a rate may be small by chance
    assert plain_rule_wrong > 0


def test_updates_leave_fixed_weights_alone(seed):
    rng = np.random.default_rng(seed)
    model = sparse(rng)
    problem = Problem(model, SquaredDistance(rng.standard_normal((2, 3))))
    start = model.complete(draw(rng, model.shapes))
    state, params = Adam(0.1).init(start), start
    step = jax.jit(lambda p, s: Adam(0.1).step(problem, p, s, jax.random.key(0)))
    for _ in range(3):
        params, state = step(params, state)
    _, slopes = problem.value_and_gradient(start)
    for p, q, mask, slope in zip(params, start, model.masks, slopes, strict=True):
        np.testing.assert_array_equal(np.asarray(p)[~np.asarray(mask)], np.asarray(q)[~np.asarray(mask)])
        felt = np.asarray(slope) != 0  # a free weight on no way from an input to an output is felt by nothing
        assert np.all(np.asarray(p != q)[np.asarray(mask) & felt]) and np.any(felt)


@pytest.mark.covers("network:F40")
def test_directions_of_too_many_layers_are_refused(seed):
    model = sparse(np.random.default_rng(seed))
    params = model.complete(draw(np.random.default_rng(seed), model.shapes))
    _, memo = model.forward(params)
    with pytest.raises(ValueError, match="argument 2 is longer"):
        model.pushforward(params, memo, (*params, np.eye(2)))


def test_what_cannot_be_built_is_refused():
    with pytest.raises(ValueError, match="length must be at least 2"):
        skip_network((2, 2, 2), 0, 1)
    with pytest.raises(ValueError, match=r"equal width, but layer 0 has 4 units and layer 2 has 5"):
        skip_network(RESIDUAL, 0, 2)
    with pytest.raises(ValueError, match="start \\+ length must be at most 4"):
        skip_network(RESIDUAL, 3, 2)
    with pytest.raises(ValueError, match="only 0 and 1"):
        Masked(DeepLinear((2, 1)), ([[1, 2]],))
    with pytest.raises(ValueError, match="masks must be a tuple of 2 matrices"):
        Masked(DeepLinear((2, 1, 1)), ([[1, 1]],))
    with pytest.raises(TypeError, match="surviving_laws"):
        surviving_laws(DeepLinear((2, 2)))
    model = Masked(DeepLinear((2, 1)), ([[1, 0]],), ([[0.0, 3.0]],))
    problem = Problem(model, SquaredDistance(np.ones((1, 2))))
    with pytest.raises(ValueError, match=r"entry \(0, 1\) is 2, not 3; take model.complete"):
        simulate(problem, ([[1.0, 2.0]],), times=[0.0, 1.0])
