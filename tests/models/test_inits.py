"""Initialisations one by one: statistics, worked values, refusals."""

import itertools
import math
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checking import unchecked
from deeplinear.core import check_key
from deeplinear.models import (
    AbstractModel,
    AlphaM,
    Balanced,
    DeepLinear,
    Explicit,
    FromSVD,
    Gaussian,
    Glorot,
    He,
    LambdaBalanced,
    LeCun,
    MatchedGaussian,
    Orthogonal,
    Scaled,
    ScaledIdentity,
    TaskAligned,
    WarmStart,
    random_mask,
)

SIGMAS = 6  # standard errors; a true statement fails once in 5e8 runs
BALANCED = 1e-12  # accepted deviation of C from lam I
WIDE = DeepLinear((60, 100, 80))
TWO = DeepLinear((3, 4, 2))
KEY = jax.random.key(0)


def imbalance(params, lam: float) -> float:
    first, second = (np.asarray(p) for p in params)
    c = second.T @ second - first @ first.T
    return float(np.max(np.abs(c - lam * np.eye(len(c)))))


@eqx.filter_jit
def many(init, model: DeepLinear, keys):
    """Layers for each of many keys."""
    return jax.vmap(lambda key: init(model, key))(keys)


@pytest.mark.covers("completion:F7")
@pytest.mark.parametrize(
    ("init", "variances"),
    [
        (Gaussian(0.3), (0.09, 0.09)),
        (LeCun(), (1 / 60, 1 / 100)),
        (He(), (2 / 60, 2 / 100)),
        (Glorot(), (2 / 160, 2 / 180)),
        (Scaled([0.5, 3.0]), (0.25 / 60, 9 / 100)),
        (Scaled(2.0), (4 / 60, 4 / 100)),
        (MatchedGaussian(0.09, "power"), (0.09, 0.09)),
        (MatchedGaussian(0.09, "product"), (0.009, 0.009)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, eqx.Module) else "",
)
def test_entries_are_independent_normals_of_the_stated_variance(init, variances, seed):
    params = init(WIDE, jax.random.key(seed))
    for layer, variance in zip(params, variances, strict=True):
        z = np.asarray(layer).ravel() / math.sqrt(variance)
        count = z.size
        assert abs(z.mean()) < SIGMAS / math.sqrt(count)
        assert abs((z**2).mean() - 1) < SIGMAS * math.sqrt(2 / count)
        assert abs((z**4).mean() - 3) < SIGMAS * math.sqrt(96 / count)
        assert abs((z[1:] * z[:-1]).mean()) < SIGMAS / math.sqrt(count - 1)
    across = np.asarray(params[0]).ravel()[:4800] * np.asarray(params[1]).ravel()[:4800]
    assert abs(across.mean()) < SIGMAS * math.sqrt(variances[0] * variances[1] / 4800)


@pytest.mark.covers("completion:F7")
def test_scale_rules_match_the_product_at_every_depth(seed):
    keys = jax.random.split(jax.random.key(seed), 4000)
    for model in (DeepLinear((3, 2)), TWO, DeepLinear((3, 4, 5, 2))):
        depth, hidden = model.depth, math.prod(model.widths[1:-1])
        assert float(MatchedGaussian(1e-3).std(model)) ** depth == pytest.approx(1e-3, rel=1e-14)
        matched = float(MatchedGaussian(1e-3, "product").std(model))
        assert matched**depth * math.sqrt(hidden) == pytest.approx(1e-3, rel=1e-14)
    params = [np.asarray(p) for p in many(MatchedGaussian(0.1, "product"), DeepLinear((3, 4, 5, 2)), keys)]
    product = params[2] @ params[1] @ params[0]
    power = np.mean(product**2, axis=(1, 2)) / 0.01
    assert abs(power.mean() - 1) < SIGMAS * power.std() / math.sqrt(len(power))


def test_orthogonal_layers_have_equal_singular_values(seed):
    for layer in Orthogonal(0.7)(TWO, jax.random.key(seed)):
        np.testing.assert_allclose(np.linalg.svd(layer, compute_uv=False), 0.7, rtol=1e-14)


def test_scaled_identity_is_exact():
    first, second = ScaledIdentity(0.3)(TWO, KEY)
    np.testing.assert_array_equal(first, 0.3 * np.eye(4, 3))
    np.testing.assert_array_equal(second, 0.3 * np.eye(2, 4))
    assert not any(layer.any() for layer in ScaledIdentity(0)(TWO, KEY))


@pytest.mark.covers("completion:F7")
def test_alpha_m_family():
    model = DeepLinear((4, 4, 4))
    for layer in AlphaM(0.3, 5.0)(model, KEY):
        values = np.linalg.eigvalsh(layer)
        np.testing.assert_allclose(values, [0.3 * 0.8] * 3 + [0.3 * (1 + 3 / 5)], rtol=1e-14)
    np.testing.assert_array_equal(AlphaM(0.3, math.inf)(model, KEY)[1], 0.3 * np.eye(4))
    np.testing.assert_array_equal(AlphaM(0.3, 1)(model, KEY)[1], np.full((4, 4), 0.3))


def test_balanced_layers_are_the_roots_of_the_product():
    first, second, third = Balanced(np.diag([8.0, 1.0]))(DeepLinear((2, 3, 2, 2)), KEY)
    for layer in (first, second, third):
        np.testing.assert_allclose(np.linalg.svd(layer, compute_uv=False)[:2], [2, 1], rtol=1e-14)
    np.testing.assert_allclose(np.abs(second), [[2, 0, 0], [0, 1, 0]], atol=1e-14)


def test_from_svd_follows_the_formulas():
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    left, right = np.eye(3, 2), np.array([[0.0, 1], [1, 0], [0, 0], [0, 0]])
    first, second = FromSVD(left, [2.0, 0.0], right, 3.0, turn)(DeepLinear((4, 2, 3)), KEY)
    # s = 2, lam = 3 splits into 1 and 2; s = 0 into 0 and sqrt(3).
    np.testing.assert_allclose(first, turn @ np.diag([1, 0]) @ right.T, atol=1e-15)
    np.testing.assert_allclose(second, left @ np.diag([2, math.sqrt(3)]) @ turn.T, atol=1e-15)


@pytest.mark.covers("exact:F6")
def test_lambda_balanced_is_refused_exactly_where_it_cannot_be():
    """Of all widths up to 6 and lam = -3, 0, 3: 180 of 648 have no solution. Nothing is compiled to find out: where
    there is one, layers are traced. Their balance is measured below, for fewer widths, each of which is compiled."""
    refused = 0
    for widths in itertools.product(range(1, 7), repeat=3):
        inp, hidden, out = widths
        for lam in (-3.0, 0.0, 3.0):
            init, model = LambdaBalanced(lam, 1.0), DeepLinear(widths)
            if (lam > 0 and out < hidden) or (lam < 0 and inp < hidden):
                with pytest.raises(ValueError, match=rf"LambdaBalanced: lam .*\({inp}, {hidden}, {out}\)"):
                    init(model, KEY)
                refused += 1
            else:
                first, second = jax.eval_shape(lambda key, init=init, model=model: init(model, key), KEY)
                assert (first.shape, second.shape) == ((hidden, inp), (out, hidden))
    assert refused == 180


@pytest.mark.covers("exact:F6")
@pytest.mark.parametrize(
    ("widths", "lam"),
    [
        ((3, 4, 5), 3.0),
        ((5, 4, 3), -3.0),
        ((4, 2, 5), 3.0),
        ((4, 2, 5), -3.0),
        ((3, 6, 4), 0.0),
    ],
)
def test_lambda_balanced_is_balanced_with_the_spectrum_of_a_gaussian_product(widths, lam, seed):
    keys = jax.random.key(seed)[None]
    params = [layer[0] for layer in many(LambdaBalanced(lam, 0.5), DeepLinear(widths), keys)]
    assert imbalance(params, lam) < BALANCED
    product = np.asarray(params[1]) @ np.asarray(params[0])
    # The same key gives the same product at every feasible lam: only its factorisation changes.
    zero = [layer[0] for layer in many(LambdaBalanced(0.0, 0.5), DeepLinear(widths), keys)]
    np.testing.assert_allclose(product, np.asarray(zero[1]) @ np.asarray(zero[0]), atol=BALANCED)


@pytest.mark.slow
@pytest.mark.covers("exact:F6")
def test_lambda_balanced_is_balanced_for_all_small_widths():
    """Three of them: every order of input, hidden layer and output, ties included."""
    for widths in itertools.product((1, 2, 4), repeat=3):
        inp, hidden, out = widths
        for lam in (-3.0, 0.0, 3.0):
            if not ((lam > 0 and out < hidden) or (lam < 0 and inp < hidden)):
                assert imbalance(LambdaBalanced(lam, 1.0)(DeepLinear(widths), KEY), lam) < BALANCED


@pytest.mark.covers("exact:F6")
def test_absolute_scale_and_determinant(seed):
    model, key = DeepLinear((3, 3, 3)), jax.random.key(seed)
    params = LambdaBalanced(-1.0, 0.1, absolute_scale=2.5)(model, key)
    product = np.asarray(params[1]) @ np.asarray(params[0])
    assert np.linalg.norm(product) == pytest.approx(2.5, rel=1e-12)
    for sign in (1, -1):
        params = LambdaBalanced(0.0, 0.1, match_det=np.diag([1.0, 2.0, sign]))(model, key)
        product = np.asarray(params[1]) @ np.asarray(params[0])
        assert np.sign(np.linalg.det(product)) == sign
        assert imbalance(params, 0.0) < BALANCED


def test_hidden_directions_of_lambda_balanced_layers_have_no_preferred_basis(seed):
    """Haar: the mean of W_1 W_1^T over keys is a multiple of the identity."""
    keys = jax.random.split(jax.random.key(seed), 2000)
    for init in (LambdaBalanced(0.0, 1.0), LambdaBalanced(-1.0, 1.0)):
        first = np.asarray(many(init, DeepLinear((2, 2, 2)), keys)[0])
        gram = first @ first.transpose(0, 2, 1)
        uneven, crossed = gram[:, 0, 0] - gram[:, 1, 1], gram[:, 0, 1]
        for sample in (uneven, crossed):
            assert abs(sample.mean()) < SIGMAS * sample.std() / math.sqrt(len(sample))


def test_task_aligned_fills_unused_hidden_directions():
    params = TaskAligned(np.diag([3.0, 2.0]), [0.1, 0.0], lam=4.0)(DeepLinear((2, 2, 2)), KEY)
    assert imbalance(params, 4.0) < BALANCED
    params = TaskAligned(np.ones((5, 1)), 0.1, lam=4.0)(DeepLinear((1, 3, 5)), KEY)
    assert imbalance(params, 4.0) < BALANCED
    np.testing.assert_allclose(params[1] @ params[0], np.full((5, 1), 0.1 / math.sqrt(5)), atol=1e-15)


def test_warm_start_takes_the_last_layers():
    params = tuple(map(jnp.ones, TWO.shapes))
    for a, b in zip(WarmStart(SimpleNamespace(params=params))(TWO, KEY), params, strict=True):
        np.testing.assert_array_equal(a, b)


def test_infeasible_lambda_is_refused_when_it_is_known_only_at_run_time():
    compiled = eqx.filter_jit(lambda init: init(DeepLinear((2, 3, 2)), KEY))
    compiled(LambdaBalanced(0.0, 1.0))
    with pytest.raises(Exception, match="LambdaBalanced: lam > 0 needs at least as many outputs"):
        compiled(LambdaBalanced(1.0, 1.0))


class OtherModel(AbstractModel):
    """A model that is no feed-forward network."""

    @property
    def shapes(self):
        return ((2, 2),)

    @property
    def product_shape(self) -> tuple[int, int]:
        return (2, 2)

    def forward(self, params):
        raise NotImplementedError

    def pullback(self, params, memo, cotangent):
        raise NotImplementedError

    def pushforward(self, params, memo, tangent):
        raise NotImplementedError

    def pullback_derivative(self, params, memo, cotangent, tangent, memo_tangent):
        raise NotImplementedError

    def check(self, params, where):
        raise NotImplementedError


@pytest.mark.parametrize(
    "init",
    [
        MatchedGaussian(1.0),
        AlphaM(1.0, 2.0),
        Balanced(np.eye(2)),
        FromSVD(np.eye(2), [1, 1], np.eye(2)),
        LambdaBalanced(0.0, 1.0),
        TaskAligned(np.eye(2), 1.0),
    ],
    ids=lambda init: type(init).__name__,
)
def test_models_that_are_no_network_are_refused(init):
    with pytest.raises(
        TypeError, match=f"{type(init).__name__}: model must be a DeepLinear network, but is a OtherModel"
    ):
        init(OtherModel(), KEY)


REFUSED = {
    "std zero": (lambda: Gaussian(0.0), "Gaussian: std must be greater than 0"),
    "std NaN": (lambda: Gaussian(math.nan), "Gaussian: std must be greater than 0"),
    "scale negative": (lambda: MatchedGaussian(-1.0), "MatchedGaussian: scale must be greater than 0"),
    "rule misspelt": (lambda: MatchedGaussian(1.0, "products"), "rule 'products' is unknown.*'product'"),
    "gain negative": (lambda: Scaled([1.0, -1.0]), "Scaled: gains must not be negative, but holds -1"),
    "gains too few": (lambda: Scaled([1.0, 1.0, 1.0])(TWO, KEY), r"gains must be one number or one per layer \(2\)"),
    "alpha zero": (lambda: AlphaM(0.0, 2.0), "AlphaM: alpha must be greater than 0"),
    "m below one": (lambda: AlphaM(1.0, 0.9), "AlphaM: m must be at least 1"),
    "m NaN": (lambda: AlphaM(1.0, math.nan), "AlphaM: m must be at least 1"),
    "family not square": (lambda: AlphaM(1.0, 2.0)(TWO, KEY), "AlphaM: model must have equal widths"),
    "rank too high": (lambda: Balanced(np.eye(3))(DeepLinear((3, 2, 3)), KEY), "one is 2 and the rank is 3"),
    "product of another shape": (lambda: Balanced(np.eye(3))(TWO, KEY), "Balanced: product must have shape"),
    "columns not orthonormal": (lambda: FromSVD(2 * np.eye(2), [1, 1], np.eye(2)), "left must have orthonormal"),
    "value negative": (lambda: FromSVD(np.eye(2), [1, -1], np.eye(2)), "values must not be negative"),
    "factors of other widths": (
        lambda: FromSVD(np.eye(2), [1, 1], np.eye(2))(TWO, KEY),
        r"FromSVD: model must have widths \(2, 2, 2\)",
    ),
    "deep with lam": (lambda: LambdaBalanced(1.0, 1.0)(DeepLinear((2, 2, 2, 2)), KEY), "lam must be 0 unless"),
    "one layer with lam": (lambda: TaskAligned(np.eye(2), 1.0, 1.0)(DeepLinear((2, 2)), KEY), "lam must be 0 unless"),
    "std of balanced": (lambda: LambdaBalanced(1.0, 0.0), "LambdaBalanced: std must be greater than 0"),
    "determinant of a rectangle": (
        lambda: LambdaBalanced(0.0, 1.0, match_det=np.eye(2))(TWO, KEY),
        "match_det needs a square network",
    ),
    "strengths too few": (
        lambda: TaskAligned(np.eye(2, 3), [1.0, 1.0, 1.0])(TWO, KEY),
        r"strengths must be one number or one per mode \(2\)",
    ),
    "layers that do not fit": (lambda: Explicit((np.eye(2),))(TWO, KEY), "Explicit: params must have layer shapes"),
    "layers not finite": (lambda: Explicit((np.full((2, 2), np.inf),)), r"Explicit: params\[0\] must be finite"),
    "diverged run": (
        lambda: WarmStart(SimpleNamespace(params=(np.full((2, 2), np.nan),))),
        r"WarmStart: trajectory.params\[0\] must be finite",
    ),
}


@pytest.mark.covers("completion:F7")
@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused_by_name(case):
    make, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        make()


def test_things_without_layers_are_refused():
    with pytest.raises(TypeError, match="WarmStart: trajectory must be a finished run"):
        WarmStart(np.eye(2))
    with pytest.raises(TypeError, match="Explicit: params must be a tuple"):
        Explicit(np.eye(2))


@pytest.mark.parametrize("key", [0, None, jax.random.split(jax.random.key(0)), jnp.zeros(2)])
def test_what_is_no_key_is_refused(key):
    model = DeepLinear((2, 2, 2))
    for init in (Gaussian(0.1), Orthogonal(), LambdaBalanced(0.0, 0.1)):
        with pytest.raises(
            TypeError, match=rf"{type(init).__name__}: key must be one random key, such as jax.random.key\(0\)"
        ):
            unchecked(type(init).__call__)(init, model, key)
    with pytest.raises(TypeError, match="random_mask: key must be one random key"):
        unchecked(random_mask)(key, (2, 2), 1)


def test_older_keys_are_keys():
    unchecked(check_key)("here", jax.random.PRNGKey(3))
    jax.vmap(lambda key: unchecked(check_key)("here", key))(jax.random.split(jax.random.key(0)))
