"""The metric of a depth: eigenvalues to rounding, the operator by its definition, invariance, refusals."""

import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from checking import unchecked
from deeplinear.core import HypothesisError, Params, TracedError
from deeplinear.geometry import Metric, metric_eigenvalue
from deeplinear.models import DeepLinear

DEPTHS = (1, 2, 3, 5, 1000, math.inf)
ROUNDING = 1e-13


def reference(a: float, b: float, depth: float) -> float:
    """By its definition with 60 digits; values that differ by less than that are moved apart."""
    with mpmath.workdps(60):
        x, y = mpmath.mpf(a), mpmath.mpf(b)
        if x == y:
            return (
                float(x**2 if math.isinf(depth) else depth * x ** (2 - mpmath.mpf(2) / depth))
                if x or depth > 1
                else 1.0
            )
        if math.isinf(depth):
            return 0.0 if min(x, y) == 0 else float((x**2 - y**2) / (2 * mpmath.log(x / y)))
        power = mpmath.mpf(2) / depth
        return float((x**2 - y**2) / (x**power - y**power))


@pytest.mark.covers("geometry:F9", "geometry:S9", "geometry:S11")
@pytest.mark.parametrize("depth", DEPTHS)
def test_eigenvalues_to_rounding(depth: float) -> None:
    pairs = [
        (1.5, 0.5),
        (1.0, 1 + 1e-7),
        (1.0, 1 + 1e-15),
        (0.7, 0.7),
        (3.0, 1e-12),
        (2.0, 0.0),
        (0.0, 0.0),
        (1e-150, 1e-149),
    ]
    pairs += [(b, a) for a, b in pairs]
    a, b = np.array(pairs).T
    found = np.asarray(metric_eigenvalue(a, b, depth))
    wanted = np.array([reference(x, y, depth) for x, y in pairs])
    np.testing.assert_allclose(found, wanted, rtol=ROUNDING)
    if not math.isinf(depth):
        np.testing.assert_allclose(metric_eigenvalue(a, b, depth, normalised=True), wanted / depth, rtol=ROUNDING)


@pytest.mark.covers("geometry:S11")
def test_the_limit_of_depth_is_approached_at_its_rate() -> None:
    """λ_L/L = λ_∞ (1 − ln(ab)/L + …)."""
    a, b, depth = 1.7, 0.4, 20_000
    ratio = float(metric_eigenvalue(a, b, depth, normalised=True) / metric_eigenvalue(a, b, math.inf))
    assert depth * (ratio - 1) == pytest.approx(-math.log(a * b), abs=1e-3)


def matrices(seed: int, shape: tuple[int, int] = (3, 3)) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape) for _ in range(3))


def power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    """Of a positive semi-definite matrix; what is zero to rounding is zero."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.where(values > 1e-13 * values[-1], values, 0.0)
    return (vectors * values**exponent) @ vectors.T


@pytest.mark.covers("geometry:S10", "geometry:F12")
@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_the_operator_is_the_sum_of_powers(depth: int, seed: int) -> None:
    x, y, z = matrices(seed)
    metric = Metric(depth)
    wanted = sum(power(x @ x.T, 1 - k / depth) @ z @ power(x.T @ x, (k - 1) / depth) for k in range(1, depth + 1))
    found = np.asarray(metric.apply(x, z))
    scale = np.max(np.abs(wanted))
    np.testing.assert_allclose(found, wanted, atol=1e-12 * scale)
    np.testing.assert_allclose(metric.dense(x) @ z.ravel(), wanted.ravel(), atol=1e-12 * scale)
    # Duality, symmetry, normalisation.
    assert float(metric.inner(x, metric.apply(x, y), z)) == pytest.approx(float(np.sum(y * z)), abs=1e-11)
    assert float(metric.inner(x, y, z)) == pytest.approx(float(metric.inner(x, z, y)), abs=1e-11)
    assert float(metric.norm(x, y)) == pytest.approx(math.sqrt(float(metric.inner(x, y, y))), rel=1e-12)
    halved = Metric(depth, normalised=True)
    np.testing.assert_allclose(halved.apply(x, z), wanted / depth, atol=1e-12 * scale)


@pytest.mark.covers("geometry:F10")
@pytest.mark.parametrize(("depth", "condition"), [(1, 1e3), (2, 1e3), (3, 1e3), (5, 1e3), (math.inf, 1e2)])
def test_the_inverse_undoes_the_operator(depth: float, condition: float, seed: int) -> None:
    """Rounding of the inverse is enlarged by up to condition^(2 − 2/L), a million at infinite depth for a thousand."""
    rng = np.random.default_rng(seed)
    left, right = np.linalg.qr(rng.standard_normal((2, 3, 3)))[0]
    x, z = (left * [1.0, condition**-0.5, 1 / condition]) @ right, rng.standard_normal((3, 3))
    metric = Metric(depth)
    assert np.linalg.norm(metric.apply(x, metric.inverse(x, z)) - z) <= 1e-11 * np.linalg.norm(z)


@pytest.mark.covers("geometry:S11")
def test_infinite_depth_is_the_integral(seed: int) -> None:
    x, _, z = matrices(seed)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    wanted = sum(
        w / 2 * power(x @ x.T, 1 - (t + 1) / 2) @ z @ power(x.T @ x, (t + 1) / 2)
        for t, w in zip(nodes, weights, strict=True)
    )
    np.testing.assert_allclose(Metric(math.inf).apply(x, z), wanted, atol=1e-11 * np.max(np.abs(wanted)))


@pytest.mark.covers("geometry:F12")
@pytest.mark.parametrize("depth", [2, 3, math.inf])
def test_isometries_and_homogeneity(depth: float, seed: int) -> None:
    _, y, z = matrices(seed)
    rng = np.random.default_rng(seed + 1)
    left, right, *frames = np.linalg.qr(rng.standard_normal((4, 3, 3)))[0]
    x = (frames[0] * np.exp(rng.uniform(-1, 1, 3))) @ frames[1]
    metric = Metric(depth)
    inner = float(metric.inner(x, y, z))
    rounding = 1e-12 * float(metric.norm(x, y) * metric.norm(x, z))
    turned = float(metric.inner(left @ x @ right, left @ y @ right, left @ z @ right))
    assert turned == pytest.approx(inner, abs=rounding)
    assert float(metric.inner(x.T, y.T, z.T)) == pytest.approx(inner, abs=rounding)
    factor = 1.7 ** (2 - 2 / depth)
    np.testing.assert_allclose(
        metric.apply(1.7 * x, z), factor * np.asarray(metric.apply(x, z)), rtol=1e-11, atol=1e-12
    )


@pytest.mark.parametrize("depth", [2, 4])
def test_the_speed_of_balanced_layers(depth: int, seed: int) -> None:
    """The derivative of the product times its adjoint, on balanced layers, is the operator."""
    x, _, z = matrices(seed)
    left, values, right_t = np.linalg.svd(x)
    rng = np.random.default_rng(seed)
    turns = [right_t.T, *(np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(depth - 1)), left]
    strengths = np.diag(values ** (1 / depth))
    params: Params = tuple(jnp.asarray(b @ strengths @ a.T) for a, b in itertools.pairwise(turns))
    model = DeepLinear((3,) * (depth + 1))
    product, memo = model.forward(params)
    np.testing.assert_allclose(product, x, atol=1e-12)
    moved, _ = model.pushforward(params, memo, model.pullback(params, memo, jnp.asarray(z)))
    np.testing.assert_allclose(Metric(depth).apply(x, z), moved, atol=1e-11)


@pytest.mark.covers("geometry:F11")
def test_missing_rank_and_rectangles(seed: int) -> None:
    """Kernels: pairs of two zero singular values at finite depth, of any at infinite depth; rectangles by padding."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((4, 2)) @ rng.standard_normal((2, 4))
    for depth, kernel in ((2, 4), (3, 4), (math.inf, 12)):
        values = np.linalg.eigvalsh(np.asarray(Metric(depth).dense(x)))
        # A singular value that is zero to rounding gives an eigenvalue like 1e-16^(2 - 2/L), or like 1/ln(1e16).
        zero = 0.03 * values[-1] if math.isinf(depth) else 1e-9
        assert np.sum(values < zero) >= kernel if math.isinf(depth) else np.sum(values < zero) == kernel
    wide = rng.standard_normal((2, 4))
    z = rng.standard_normal((2, 4))
    metric = Metric(3)
    wanted = power(wide @ wide.T, 2 / 3) @ z + power(wide @ wide.T, 1 / 3) @ z @ power(wide.T @ wide, 1 / 3)
    wanted = wanted + z @ power(wide.T @ wide, 2 / 3)
    np.testing.assert_allclose(metric.apply(wide, z), wanted, atol=1e-12 * np.max(np.abs(wanted)))
    with pytest.raises(HypothesisError, match="full rank"):
        metric.inverse(x, x)
    back = metric.apply(x, metric.inverse(x, x, pseudo=True))
    np.testing.assert_allclose(back, x, atol=1e-10)


def test_refusals() -> None:
    for depth in (0, -1, 2.5, True, float("nan"), -math.inf):
        with pytest.raises(ValueError, match="depth must be a positive integer or infinity"):
            unchecked(Metric.__init__)(object.__new__(Metric), depth)
    metric = Metric(2)
    with pytest.raises(ValueError, match="vector must have shape"):
        metric.apply(jnp.eye(2), jnp.eye(3))
    with pytest.raises(ValueError, match="point must be finite"):
        metric.apply(jnp.full((2, 2), jnp.nan), jnp.eye(2))
    with pytest.raises(ValueError, match="a must not be negative"):
        metric_eigenvalue(-1.0, 1.0, 2)


def test_inner_products_check_both_tangents() -> None:
    for bad in (1.0, [1.0, 2.0], np.eye(3), [[np.nan, 0.0], [0.0, 1.0]]):
        with pytest.raises(ValueError, match=r"Metric\.inner: first"):
            Metric(2).inner(np.eye(2), bad, np.eye(2))


def test_whole_depths_may_be_floats() -> None:
    assert Metric(3.0).depth == 3
    with pytest.raises(ValueError, match=r"but is 2\.5"):
        Metric(2.5)


def test_eigenvalues_of_ratios_beyond_the_range_of_numbers() -> None:
    """(a² - b²)/(2 ln(a/b)) where a/b overflows."""
    for a, b in ((1e3, 1e-306), (1e100, 1e-250)):
        wanted = a**2 / (2 * (math.log(a) - math.log(b)))
        np.testing.assert_allclose(metric_eigenvalue(a, b, math.inf), wanted, rtol=1e-13)


@pytest.mark.covers("geometry:F11")
def test_a_zero_direction_is_frozen_at_infinite_depth() -> None:
    """Rank two of four in frames of no special position: all but the four pairs of non-zero values vanish."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(2))
    point = (left[:, :2] * [2.0, 1.0]) @ right[:, :2].T
    values = np.asarray(Metric(math.inf).eigenvalues(point))
    assert np.sum(values < 1e-12) == 12
    moved = Metric(math.inf).apply(point, np.outer(left[:, 0], right[:, 3]))
    assert float(np.abs(moved).max()) < 1e-12


def slopes(function: Callable[[np.ndarray], float], point: np.ndarray) -> np.ndarray:
    """The gradient by differences of fourth order."""
    found, h = np.zeros(point.shape), 1e-3
    for place in np.ndindex(point.shape):
        unit = np.zeros(point.shape)
        unit[place] = h
        near, far = (float(function(point + k * unit)) - float(function(point - k * unit)) for k in (1, 2))
        found[place] = (8 * near - far) / (12 * h)
    return found


TURN = np.array([[math.cos(0.7), -math.sin(0.7)], [math.sin(0.7), math.cos(0.7)]])
FIRST, SECOND = np.array([[0.3, -1.0], [0.5, 0.2]]), np.array([[1.0, 0.1], [-0.4, 0.6]])


@pytest.mark.parametrize("point", [2 * np.eye(2), TURN, np.array([[1.0, 0.4], [-0.2, 0.7]])])
@pytest.mark.parametrize("depth", [1, 3, math.inf])
def test_gradients_at_equal_singular_values(point: np.ndarray, depth: float) -> None:
    metric = Metric(depth)
    for function in (
        lambda x: metric.inner(x, FIRST, SECOND),
        lambda x: metric.norm(x, SECOND),
        lambda x: jnp.sum(FIRST * metric.apply(x, SECOND)),
        lambda x: jnp.sum(FIRST * metric.inverse(x, SECOND)),
        lambda x: jnp.sum(jnp.sin(metric.dense(x))),
    ):
        np.testing.assert_allclose(jax.grad(function)(jnp.asarray(point)), slopes(function, point), atol=1e-9)


def test_derivatives_in_the_vector_need_no_rank() -> None:
    """The operator is symmetric, so that its transpose is itself; only the point has to be square."""
    for point in (np.diag([2.0, 0.0]), np.eye(2, 3)):
        weights = np.arange(1.0, 1 + point.size).reshape(point.shape)
        found = jax.grad(lambda z, p=point, w=weights: jnp.sum(w * Metric(3).apply(p, z)))(jnp.ones(point.shape))
        np.testing.assert_allclose(found, Metric(3).apply(point, weights), atol=1e-12)
    with pytest.raises(TracedError, match=r"^geometry.Metric needs concrete numbers.*it is 2 x 3, and derivatives"):
        jax.grad(lambda x: jnp.sum(Metric(3).apply(x, jnp.ones((2, 3)))))(jnp.eye(2, 3))
