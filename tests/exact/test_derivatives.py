"""Derivatives of closed forms where something coincides or vanishes, by differences in plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear import exact
from deeplinear.models import DeepLinear, Problem, SquaredDistance

CLOSE = 1e-6  # relative: differences of second order at a step of 1e-5
STEP = 1e-5
I2, D2 = np.eye(2), np.diag([2.0, 1.0])
TILT = np.array([[0.3, -1.1], [0.7, 0.4]])  # a direction that splits equal singular values and turns their vectors


def slope(function, point, direction):
    """Derivative along a direction by central differences, and by the function's own rule."""
    ahead, behind = (flat(function(jnp.asarray(point + sign * STEP * direction))) for sign in (1, -1))
    moved = jax.jvp(function, (jnp.asarray(point),), (jnp.asarray(direction),))[1]
    return (ahead - behind) / (2 * STEP), flat(moved)


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def propagated(target):
    later = exact.propagate(np.vstack([D2, TILT]), exact.eigensystem(target, 0.0), 0.8)
    return exact.correlations_of(later, 2)


CORRELATIONS = exact.correlations_of(jnp.asarray(np.vstack([I2, D2])), 2)
TIED = {
    "limit": lambda target: exact.limit(target, 0.6),
    "recovered_correlations": lambda product: exact.recovered_correlations(product, 0.6),
    "rich correlations": lambda product: exact.recovered_correlations(product, 0.0),
    "function_space_field": lambda product: exact.function_space_field(product, D2, 0.6),
    "transfer_kernel": lambda target: exact.transfer_kernel(target, 0.0),
    "lazy transfer": lambda target: exact.transfer_kernel(target, -np.inf),
    "large_lambda_limit": lambda target: exact.large_lambda_limit(target, 3.0).correlations,
    "aligned_to": lambda layer: exact.aligned_to((layer, I2), (I2, I2)),
    "phase_map": lambda start: exact.phase_map(TILT, start, [0.0, 2.0], [0.3], [0.5]).loss,
    "fine_tune_losses": lambda layer: exact.fine_tune_losses((layer, I2), TILT, 0.7, [0.4]),
    "propagate": propagated,
}


@pytest.mark.parametrize("name", TIED)
def test_equal_singular_values_have_the_right_derivative(name):
    wanted, found = slope(TIED[name], I2, TILT)
    np.testing.assert_allclose(found, wanted, rtol=CLOSE, atol=CLOSE * (1 + np.max(np.abs(wanted))))


def test_the_derivative_of_the_eigensystem_is_not_zero():
    def parts(target):
        system = exact.eigensystem(target, 0.6)
        return system.values, system.left, system.right, system.vectors

    wanted, found = slope(parts, TILT, D2)
    np.testing.assert_allclose(found, wanted, rtol=CLOSE, atol=CLOSE)
    assert np.abs(jax.grad(lambda target: exact.eigensystem(target, 0.6).values[0])(jnp.asarray(TILT))).max() > 0.1


def test_the_derivative_of_overlaps_is_not_zero():
    wanted, found = slope(lambda target: exact.overlaps((I2, I2), target), TILT, D2)
    np.testing.assert_allclose(found, wanted, rtol=CLOSE, atol=CLOSE)
    assert np.abs(found).max() > 0.1


REFUSED = {
    "eigensystem": lambda target: exact.eigensystem(target, 0.6).left,
    "recover": lambda product: exact.recover(product, 0.6)[0],
    "rebalance": lambda layer: exact.rebalance((layer, I2), 0.4)[0],
    "reversal_task": lambda target: exact.reversal_task(target, 0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_vectors_of_equal_singular_values_refuse_their_derivative_by_name(name):
    with pytest.raises(Exception, match=rf"{name}: .* coincide"):
        jax.block_until_ready(jax.grad(lambda x: jnp.sum(REFUSED[name](x)))(jnp.asarray(I2)))


def test_layers_balanced_to_rounding_can_be_rebalanced_and_differentiated():
    layers = exact.rebalance((jnp.asarray(TILT), jnp.asarray(D2)), 0.5)

    def moved(first):
        return exact.rebalance((first, layers[1]), -0.3)

    wanted, found = slope(moved, np.asarray(layers[0]), D2 - TILT)
    np.testing.assert_allclose(found, wanted, rtol=CLOSE, atol=CLOSE)


CHANNELS = {
    "generic": ([1.0, 0.3], [0.2, -1.0]),
    "equal layers": ([1.0, 0.3], [1.0, 0.3]),
    "opposite layers": ([1.0, 0.3], [-1.0, -0.3]),
    "at rest": ([0.0, 0.0], [0.0, 0.0]),
}


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("time", [0.5, np.inf])
def test_single_channels_have_the_right_derivative(name, time):
    if np.isinf(time) and name in ("opposite layers", "at rest"):
        return  # a saddle: the limit jumps
    first, second = (np.array(layer) for layer in CHANNELS[name])

    def run(both):
        found = exact.single_channel(time, both[0], both[1], 1.2)
        return found, exact.single_channel_rate(both[0], both[1], 1.2)

    wanted, found = slope(run, np.stack([first, second]), TILT)
    np.testing.assert_allclose(found, wanted, rtol=CLOSE, atol=CLOSE)
    gradient = jax.grad(lambda both: jnp.sum(exact.single_channel(time, both[0], both[1], 1.2).first))
    assert np.all(np.isfinite(gradient(jnp.stack([first, second]))))


def test_single_channels_of_tiny_weights_do_not_underflow():
    found = exact.single_channel_limit([3e-200], [1e-200], 4e-200)
    # a b = sigma and a^2 - b^2 = 8e-400, which vanishes beside sigma
    np.testing.assert_allclose([found.first[0], found.second[0]], [2e-100, 2e-100], rtol=1e-12)


def test_times_between_equal_places_have_the_derivative_of_distance_over_speed():
    start, sigma = 0.3, 2.0
    speed = start**3 * (sigma - start**4)
    found = jax.grad(lambda end: exact.scalar_time(start, end, sigma, 4))(start)
    np.testing.assert_allclose(found, 1 / speed, rtol=1e-12)
    first = np.array([0.5, 0.8])
    speed = (1.0 - 0.4) * np.sum(first[::-1] ** 2)
    found = jax.grad(lambda product: exact.layer_mode_time(first, 1.0, product=product))(0.5 * 0.8)
    np.testing.assert_allclose(found, 1 / speed, rtol=1e-10)


def test_layers_of_equal_size_have_the_right_derivative_in_the_limit():
    weights = np.full((3, 1), 0.5)
    wanted, found = slope(lambda w: exact.diagonal_limit(w, 1.0).weights, weights, np.array([[0.3], [-0.8], [0.1]]))
    np.testing.assert_allclose(found, wanted, rtol=CLOSE, atol=CLOSE)
    wanted, found = slope(lambda laws: exact.chain_minimum(laws, 2.0), np.zeros(2), np.array([0.4, -0.7]))
    np.testing.assert_allclose(found, wanted, rtol=CLOSE, atol=CLOSE)


def test_modes_at_rest_have_the_derivative_of_the_linear_flow():
    target, time = 1.3, 0.7
    found = jax.jacobian(lambda a: exact.layer_mode(time, a, target))(jnp.zeros(2))
    grown = target * time
    np.testing.assert_allclose(found, [[np.cosh(grown), np.sinh(grown)], [np.sinh(grown), np.cosh(grown)]], rtol=1e-12)
    found = jax.grad(lambda s: exact.layer_mode(time, jnp.array([0.0, 2.0]), s)[0])(0.0)
    np.testing.assert_allclose(found, -np.expm1(-4 * time) / 2, rtol=1e-12)


def test_equal_kernels_have_a_distance_with_derivative_zero():
    found = jax.grad(lambda c: exact.kernel_distance(CORRELATIONS, c))(CORRELATIONS)
    for leaf in jax.tree.leaves(found):
        np.testing.assert_allclose(leaf, 0.0, atol=1e-14)


def test_results_that_are_not_numbers_are_refused():
    with pytest.raises(ValueError, match=r"^correlations_of: the arguments must be of such sizes"):
        exact.correlations_of(1e200 * np.array([[1.0, 1.0], [1.0, -1.0]]), 1)
    with pytest.raises(ValueError, match=r"^regime: .* must lie between"):
        exact.regime((1e200 * I2, 1e200 * I2), 1e200 * D2)


def test_layers_whose_squares_overflow_do_not_count_as_balanced():
    layers = (1e200 * TILT, 1e200 * D2)
    with pytest.raises(ValueError, match=r"^solve: the largest number of params\[0\] must be at most"):
        exact.solve(Problem(DeepLinear((2, 2, 2)), SquaredDistance(D2)), layers)
    with pytest.raises(Exception, match="params must be λ-balanced"):
        jax.block_until_ready(jax.jit(lambda layers: exact.overlaps(layers, D2).growing)(layers))


# --- At the ends of their ranges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [2.0, 3.0])
@pytest.mark.parametrize("time", [0.0, 0.7, np.inf])
def test_block_flows_have_derivatives_at_both_ends(depth: float, time: float) -> None:
    """At the start, in the limit, and at the smallest and the largest m, where differences are one-sided."""

    def numbers(alpha: object, m: object) -> jax.Array:
        flow = exact.block_flow(depth, alpha, m, blocks=3, size=2)
        return jnp.stack([*flow.eigenvalues(time), flow.loss(time)])

    slope = jax.jit(jax.jacfwd(numbers, argnums=(0, 1)))
    back = jax.jacrev(numbers, argnums=(0, 1))(0.3, 1.0)
    step = 1e-6
    for m, towards in ((1.0, 1.0), (5.0, 1.0), (np.inf, 0.0)):
        of_alpha, of_m = map(np.asarray, slope(0.3, m))
        wanted = (np.asarray(numbers(0.3 + step, m)) - np.asarray(numbers(0.3 - step, m))) / (2 * step)
        np.testing.assert_allclose(of_alpha, wanted, rtol=1e-6, atol=1e-6)
        if not towards:  # nothing depends on m at infinity
            assert not of_m.any()
            continue
        first, second, third = (np.asarray(numbers(0.3, m + k * step)) for k in (0, 1, 2))
        np.testing.assert_allclose(of_m, (-3 * first + 4 * second - third) / (2 * step), rtol=1e-5, atol=1e-6)
        if m == 1.0:
            np.testing.assert_allclose(np.array(back), [of_alpha, of_m], rtol=1e-12, atol=1e-12)


def test_speeds_of_block_flows_at_the_start_and_in_the_end() -> None:
    flow = exact.block_flow(3.0, 0.3, 5.0, blocks=3, size=2)
    slope = jax.jacfwd(lambda t: jnp.stack(flow.eigenvalues(t)))
    step = 1e-5
    first, second, third = (np.array(flow.eigenvalues(k * step)) for k in (0, 1, 2))
    np.testing.assert_allclose(slope(0.0), (-3 * first + 4 * second - third) / (2 * step), rtol=1e-5)
    assert not np.any(slope(np.inf))


def test_modes_of_strength_zero_have_one_sided_derivatives_and_none_in_lam_at_its_kink() -> None:
    widths, step = (2, 3, 4), 1e-6
    # All hidden units have a mode of their own where the smaller side is as wide as the hidden layer.
    square, full = (3, 3, 3), np.array([1.0, 0.5, 0.2])
    cost = lambda s, lam, w=square: exact.weight_noise_loss(s, lam, w, 0.3)  # noqa: E731
    wanted = (float(cost(full, step)) - float(cost(full, -step))) / (2 * step)
    assert float(jax.grad(cost, 1)(full, 0.0)) == pytest.approx(wanted, abs=1e-8)
    some = np.array([1.0, 0.0, 0.2])
    wanted = [(float(cost(some + step * e, 0.0)) - float(cost(some, 0.0))) / step for e in np.eye(3)]
    np.testing.assert_allclose(jax.grad(cost)(some, 0.0), wanted, rtol=1e-6)
    with pytest.raises(Exception, match="weight_noise_loss: modes of strength 0 have no derivative in lam at 0"):
        jax.block_until_ready(jax.grad(cost, 1)(some, 0.0))
    # Units that are left over count as modes of strength zero; beside 0 there is a derivative.
    beside = lambda lam: exact.weight_noise_loss([1.0, 0.5], lam, widths, 0.3)  # noqa: E731
    wanted = (float(beside(0.5 + step)) - float(beside(0.5 - step))) / (2 * step)
    assert float(jax.grad(beside)(0.5)) == pytest.approx(wanted, abs=1e-8)

    target = jnp.diag(jnp.array([2.0, 0.0]))
    slopes = jax.jacfwd(lambda target: exact.eigensystem(target, 0.0).speeds)(target)
    np.testing.assert_allclose(slopes, [np.diag([1.0, 0.0]), np.diag([0.0, 1.0])], atol=1e-12)
    with pytest.raises(Exception, match=r"Eigensystem.speeds: modes of strength 0 have no derivative in lam at 0"):
        jax.block_until_ready(jax.jacfwd(lambda lam: exact.eigensystem(target, lam).speeds)(0.0))


def test_the_distance_to_a_kernel_that_vanishes_has_no_derivative() -> None:
    some = exact.correlations_of(jnp.asarray(np.random.default_rng(0).normal(size=(5, 3))), 3)
    gone = jax.tree.map(jnp.zeros_like, some)
    assert float(exact.kernel_distance(some, gone)) == 1
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(jax.grad(lambda c: exact.kernel_distance(c, gone))(some)))
    with pytest.raises(Exception, match="kernel_distance: the distance to a kernel that vanishes has no derivative"):
        jax.block_until_ready(jax.grad(lambda c: exact.kernel_distance(some, c))(gone))
