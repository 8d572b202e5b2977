"""Laws of every loss, at depths 1 to 4."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import AbstractSumLoss, DeepLinear, Problem, Regression, WhiteInputs
from zoo import ALL_LOSSES, ALL_MODELS, INP, OUT, LossCase, completion, entry_completion

ROUNDING = 1e-12  # relative; two orders of summation of a few dozen terms of size one
PENALTY = 0.3
SLOPE = 0.1  # how far below its order a measured Taylor slope may fall at steps of 1e-3 and less

losses = pytest.mark.parametrize("build", ALL_LOSSES, ids=lambda build: build.__name__)
models = pytest.mark.parametrize("model", ALL_MODELS, ids=lambda model: f"depth{model.depth}")


def random_params(rng: np.random.Generator, model: DeepLinear) -> tuple[jax.Array, ...]:
    return tuple(jax.device_put(rng.normal(size=shape)) for shape in model.shapes)


def plain_value(case: LossCase, params: tuple[jax.Array, ...]):
    """Penalised loss of the layers, multiplied and measured without the package."""
    product = params[0]
    for layer in params[1:]:
        product = layer @ product
    return case.plain(product, *case.data) + PENALTY / 2 * sum(jnp.sum(layer**2) for layer in params)


def close(left, right) -> None:
    scale = 1 + max(float(np.max(np.abs(b))) for b in jax.tree.leaves(right))
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=ROUNDING * scale)


def taylor_slope(remainder, order: int, floor: float) -> None:
    """The remainder falls like `step**order`, unless it is rounding already."""
    large, small = 1e-3, 1e-4
    coarse, fine = float(remainder(large)), float(remainder(small))
    if fine > floor:
        assert np.log(coarse / fine) / np.log(large / small) > order - SLOPE


@pytest.mark.covers("completion:F4")
@losses
@models
def test_derivatives_agree_with_automatic_differentiation(build, model, seed):
    rng = np.random.default_rng(seed)
    case = build(rng)
    params, direction = random_params(rng, model), random_params(rng, model)
    problem = Problem(model, case.loss, PENALTY)

    def plain(p):
        return plain_value(case, p)

    gradient, product = jax.jvp(jax.grad(plain), (params,), (direction,))
    value, own = problem.value_and_gradient(params)
    close(value, plain(params))
    close(problem.value(params), plain(params))
    close(own, gradient)
    shared, hessian_product = problem.linearize(params)
    close(shared, gradient)
    close(hessian_product(direction), product)
    close(problem.hessian_product(params, direction), product)


@losses
@models
def test_derivatives_have_the_right_taylor_slopes(build, model, seed):
    rng = np.random.default_rng(seed)
    case = build(rng)
    params, direction = random_params(rng, model), random_params(rng, model)
    problem = Problem(model, case.loss, PENALTY)
    gradient, hessian_product = problem.linearize(params)
    value, curved = problem.value(params), hessian_product(direction)
    slope = sum(np.vdot(g, v) for g, v in zip(gradient, direction, strict=True))

    def moved(step):
        return tuple(p + step * v for p, v in zip(params, direction, strict=True))

    def of_value(step):
        return abs(float(problem.value(moved(step))) - float(value) - step * slope)

    def of_gradient(step):
        there = problem.gradient(moved(step))
        parts = zip(there, gradient, curved, strict=True)
        return np.sqrt(sum(np.sum((np.asarray(a) - np.asarray(g) - step * np.asarray(h)) ** 2) for a, g, h in parts))

    size = float(value) + float(np.sqrt(sum(np.sum(np.square(g)) for g in gradient)))
    floor = 1e-13 * (1 + size)  # a few hundred roundings of numbers of this size
    taylor_slope(of_value, 2, floor)
    taylor_slope(of_gradient, 2, floor)


def everything(loss, params, direction):
    problem = Problem(ALL_MODELS[2], loss)
    return *problem.value_and_gradient(params), problem.hessian_product(params, direction)


everything_at_once = eqx.filter_jit(eqx.filter_vmap(everything, in_axes=(None, 0, 0)))


@losses
def test_jit_and_vmap_change_nothing(build, seed):
    rng = np.random.default_rng(seed)
    model = ALL_MODELS[2]
    loss = build(rng).loss
    batch = [(random_params(rng, model), random_params(rng, model)) for _ in range(3)]

    expected = [everything(loss, *pair) for pair in batch]
    stacked = jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *batch))
    together = jax.tree.map(np.asarray, everything_at_once(loss, *stacked))
    for member, single in enumerate(expected):
        close(jax.tree.map(lambda leaf, member=member: leaf[member], together), single)


@losses
def test_penalty_adds_half_the_squared_norm(build, seed):
    rng = np.random.default_rng(seed)
    loss, model = build(rng).loss, ALL_MODELS[2]
    params, direction = random_params(rng, model), random_params(rng, model)
    bare, penal = Problem(model, loss), Problem(model, loss, l2=0.3)
    close(penal.value(params), bare.value(params) + 0.15 * sum(float(np.sum(np.square(p))) for p in params))
    close(penal.gradient(params), tuple(g + 0.3 * p for g, p in zip(bare.gradient(params), params, strict=True)))
    expected = tuple(h + 0.3 * v for h, v in zip(bare.hessian_product(params, direction), direction, strict=True))
    close(penal.hessian_product(params, direction), expected)


@losses
def test_shape_and_kind_describe_the_loss(build):
    loss = build(np.random.default_rng(0)).loss
    assert loss.shape in (None, (OUT, INP))
    assert loss.kind == ("reduced" if build.__name__ == "reduced_regression" else "full")


@losses
def test_a_model_of_another_shape_is_refused(build):
    loss = build(np.random.default_rng(0)).loss
    if loss.shape is not None:
        with pytest.raises(ValueError, match=r"Problem.*\(2, 3\).*\(3, 2\)"):
            Problem(DeepLinear((2, 3)), loss)


@eqx.filter_jit
def one_term_gradients(loss, product, keys):
    return jax.vmap(lambda key: loss.batch_gradient(product, key, 1))(keys)


def test_batches_of_one_add_up_to_the_whole_gradient(seed):
    """Every term is drawn, and the distinct one-term gradients sum to `terms * share(1)` times the gradient."""
    rng = np.random.default_rng(seed)
    product = jnp.asarray(rng.normal(size=(OUT, INP)))
    keys = jax.random.split(jax.random.key(seed), 300)  # misses one of 7 terms with probability below 1e-18
    for build in ALL_LOSSES:
        loss = build(rng).loss
        if isinstance(loss, AbstractSumLoss) and not isinstance(loss, WhiteInputs):
            drawn = np.asarray(one_term_gradients(loss, product, keys))
            distinct = np.unique(drawn.round(9), axis=0, return_index=True)[1]
            terms = int(loss.terms)
            assert len(distinct) == terms
            close(drawn[distinct].sum(axis=0), terms * loss.share(1) * loss.gradient(product))


@pytest.mark.covers("completion:F4")
def test_mask_and_list_of_entries_are_one_loss(seed):
    dense, listed = (build(np.random.default_rng(seed)).loss for build in (completion, entry_completion))
    rng = np.random.default_rng(seed + 1)
    product, tangent = (jnp.asarray(rng.normal(size=(OUT, INP))) for _ in range(2))
    close(dense.value(product), listed.value(product))
    close(dense.gradient(product), listed.gradient(product))
    close(dense.curvature(product, tangent), listed.curvature(product, tangent))


def test_full_minus_reduced_regression_is_a_constant_of_the_data(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(INP, 9)), rng.normal(size=(OUT, 9))
    _, rest, _, _ = np.linalg.lstsq(x.T, y.T, rcond=None)  # sums of squares no linear map can remove
    full, reduced = Regression.from_data(x, y), Regression.from_data(x, y, reduced=True)
    for scale in (0.0, 1.0, 100.0):
        product = jnp.asarray(scale * rng.normal(size=(OUT, INP)))
        gap = float(full.value(product) - reduced.value(product))
        assert gap == pytest.approx(0.5 * rest.sum() / 9, rel=ROUNDING, abs=ROUNDING * (1 + scale**2))
