"""Speeds of singular values and the determinant lemma, against plain NumPy and SciPy's flow."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.core import HypothesisError, spectrum
from deeplinear.exact import singular_value_speed
from deeplinear.models import Completion, DeepLinear, Problem, balancedness, drift
from systems import scipy_flow

ROUNDING = 1e-12
DIFFERENCES = 3e-8  # central differences of fourth order over steps of 3e-4: SciPy errors of 1e-12 over the step
FLOW = 1e-9  # DOP853 at rtol 1e-12

MASK = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1]])
TARGET = np.array([[1.0, 0.3, -0.7], [0.2, -1.1, 0.4], [0.6, 0.9, 1.3]])


def balanced(rng, depth: int, values=(1.6, 0.9, 0.4)) -> tuple:
    """Balanced layers of width three whose product has the given singular values, with random hidden bases."""
    bases = [np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(depth + 1)]
    root = np.diag(np.array(values) ** (1 / depth))
    return tuple(jnp.asarray(after @ root @ before.T) for before, after in itertools.pairwise(bases))


def problem_of(depth: int, l2: float = 0.0) -> Problem:
    return Problem(DeepLinear((3,) * (depth + 1)), Completion(TARGET, MASK), l2=l2)


def energy(w):
    return MASK * (w - TARGET)


def product(layers) -> np.ndarray:
    return np.linalg.multi_dot([np.asarray(w) for w in layers[::-1]])


@pytest.mark.covers("completion:C29", "completion:F26")
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_speeds_against_differences_along_the_flow(seed, depth):
    problem, params = problem_of(depth), balanced(np.random.default_rng(seed), depth)
    h = 3e-4
    states = scipy_flow(problem, params, np.array([0, h, 2 * h, 3 * h, 4 * h]), energy)
    values = np.array([np.linalg.svd(product(state), compute_uv=False) for state in states])
    expected = (values[0] - 8 * values[1] + 8 * values[3] - values[4]) / (12 * h)
    middle = tuple(jnp.asarray(w) for w in states[2])
    np.testing.assert_allclose(singular_value_speed(problem, middle), expected, rtol=0, atol=DIFFERENCES)


@pytest.mark.covers("completion:C29", "completion:F26")
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_speeds_from_the_motion_of_every_layer(seed, l2):
    """u^T W' v with W' from the product rule, written out for depth 3."""
    params = balanced(np.random.default_rng(seed), 3)
    first, second, third = (np.asarray(w) for w in params)
    g = energy(third @ second @ first)
    d1, d2, d3 = (third @ second).T @ g, third.T @ g @ first.T, g @ (second @ first).T
    d1, d2, d3 = d1 + l2 * first, d2 + l2 * second, d3 + l2 * third
    moved = -(third @ second @ d1 + third @ d2 @ first + d3 @ second @ first)
    u, _, vt = np.linalg.svd(third @ second @ first)
    np.testing.assert_allclose(
        singular_value_speed(problem_of(3, l2), params), np.diag(u.T @ moved @ vt.T), atol=ROUNDING
    )


def test_zero_singular_values_rest_and_one_layer_moves_freely(seed):
    rng = np.random.default_rng(seed)
    speed = singular_value_speed(problem_of(2), balanced(rng, 2, (1.2, 0.0, 0.0)))
    np.testing.assert_allclose(speed[1:], 0, atol=ROUNDING)
    (w,) = balanced(rng, 1)
    u, _, vt = np.linalg.svd(np.asarray(w))
    expected = -np.diag(u.T @ energy(np.asarray(w)) @ vt.T)
    np.testing.assert_allclose(singular_value_speed(problem_of(1), (w,)), expected, atol=ROUNDING)


@pytest.mark.covers("completion:F39")
def test_refusals(seed):
    rng = np.random.default_rng(seed)
    first, second = balanced(rng, 2)
    with pytest.raises(HypothesisError, match="balanced layers") as caught:
        singular_value_speed(problem_of(2), (first, 2 * second))
    # C = 3 second^T second, relative to |2 second|^2
    square = np.asarray(second).T @ np.asarray(second)
    assert caught.value.residual == pytest.approx(3 * np.linalg.norm(square) / (4 * np.trace(square)), rel=1e-9)
    with pytest.raises(HypothesisError, match="distinct singular values"):
        singular_value_speed(problem_of(2), balanced(rng, 2, (1.0, 1.0, 0.5)))
    with pytest.raises(HypothesisError, match=r"distinct singular values.*differ by [34]\.\de-09 of the largest"):
        singular_value_speed(problem_of(2), balanced(rng, 2, (1.0, 1.0 - 4e-9, 0.5)))
    assert np.all(np.isfinite(singular_value_speed(problem_of(2), balanced(rng, 2, (1.0, 1.0 - 1e-7, 0.5)))))
    with pytest.raises(ValueError, match="must be finite"):
        singular_value_speed(problem_of(2), (first, second * jnp.nan))


@pytest.mark.covers("completion:C30", "completion:C32", "completion:F26")
def test_determinants_of_balanced_layers(seed):
    """Balanced and square: sigma(W) = sigma(A)^2 = sigma(B)^2, det A keeps its sign, det W = det(A)^2 = det(B)^2."""
    params = balanced(np.random.default_rng(seed), 2)
    signs = [np.sign(np.linalg.det(np.asarray(w))) for w in params]
    params = tuple(w.at[i].multiply(s) for w, i, s in zip(params, (np.s_[:, 0], np.s_[0, :]), signs, strict=True))
    problem = problem_of(2)
    assert float(balancedness(params)[0]) < ROUNDING
    for layers in scipy_flow(problem, params, np.linspace(0, 5, 11), energy):
        b, a = layers
        values = np.linalg.svd(a @ b, compute_uv=False)
        for factor in (a, b):
            assert np.linalg.det(factor) > 0
            np.testing.assert_allclose(values, np.linalg.svd(factor, compute_uv=False) ** 2, atol=FLOW)
            assert np.linalg.det(a @ b) == pytest.approx(np.linalg.det(factor) ** 2, abs=FLOW)
        assert float(drift(tuple(map(jnp.asarray, layers)), params)[0]) < FLOW


@pytest.mark.covers("completion:C32")
def test_conserved_quantities_of_unbalanced_layers(seed):
    rng = np.random.default_rng(seed)
    params = tuple(jnp.asarray(rng.normal(size=(3, 3)) / 2) for _ in range(3))
    (layers,) = scipy_flow(problem_of(3), params, np.array([5.0]), energy)
    assert float(jnp.max(drift(tuple(map(jnp.asarray, layers)), params))) < FLOW


@pytest.mark.covers("completion:E7", "completion:F26")
def test_determinants_of_unbalanced_layers_may_change_sign():
    """One by one, a(0) = 0.1, b(0) = -1, target 1: a becomes negative. Such layers are refused."""
    flow = solve_ivp(lambda t, y: -(y[0] * y[1] - 1) * y[::-1], (0, 5), [0.1, -1.0], method="DOP853", rtol=1e-12)
    assert flow.y[0, -1] == pytest.approx(-0.788, abs=5e-4)
    problem = Problem(DeepLinear((1, 1, 1)), Completion([[1.0]], [[1]]))
    with pytest.raises(HypothesisError, match="balanced layers"):
        singular_value_speed(problem, (jnp.array([[-1.0]]), jnp.array([[0.1]])))


@pytest.mark.covers("completion:C31")
def test_linear_algebra_of_the_lemmas(seed):
    """|det| is the product of the singular values; X K X^T is positive semi-definite with K."""
    rng = np.random.default_rng(seed)
    matrix, root, x = rng.normal(size=(4, 4)), rng.normal(size=(4, 3)), rng.normal(size=(5, 4))
    assert float(jnp.prod(spectrum(jnp.asarray(matrix)))) == pytest.approx(abs(np.linalg.det(matrix)), rel=1e-10)
    eigenvalues = np.linalg.eigvalsh(x @ (root @ root.T) @ x.T)
    assert eigenvalues[0] > -ROUNDING * eigenvalues[-1]
