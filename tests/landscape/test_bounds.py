"""Bounds of products, of trajectories and of traces."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.core import HypothesisError
from deeplinear.landscape import norm_bounds, trace_power_bounds, trajectory_radius
from deeplinear.models import Completion, DeepLinear, Problem, Regression, SquaredDistance, skip_network

WIDTHS = (3, 3, 3, 2)
DRAWS = 300


@pytest.mark.covers("network:N1")
def test_bounds_of_a_small_network() -> None:
    first, second = np.array([[1.0, 2, 0], [0, 1, 1]]), np.array([[1.0, -1], [0.5, 0]])
    params = (jnp.asarray(first), jnp.asarray(second))
    lower, value, upper = norm_bounds(params)
    np.testing.assert_allclose([lower, value, upper], [-49.9633759344, 4.25, (9.25 / 2) ** 2], rtol=1e-11)
    target = np.array([[2.0, 0, 0], [0, 1, 0]])
    problem = Problem(DeepLinear((3, 2, 2)), SquaredDistance(target))
    np.testing.assert_allclose(trajectory_radius(problem, params), 7.53664369268, rtol=1e-11)


@pytest.mark.covers("network:F16", "network:C15")
def test_product_lies_between_its_bounds(seed: int) -> None:
    """Layers of very different sizes; the lower bound is attained by balanced layers with equal modes."""
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-1.5, 1.5, (DRAWS, 3))
    stack = tuple(
        jnp.asarray(scales[:, k, None, None] * rng.standard_normal((DRAWS, out, inp)))
        for k, (inp, out) in enumerate(itertools.pairwise(WIDTHS))
    )
    lower, value, upper = (np.asarray(x) for x in jax.jit(jax.vmap(norm_bounds))(stack))
    product = np.asarray(stack[2] @ stack[1] @ stack[0])
    np.testing.assert_allclose(value, np.sum(product**2, axis=(1, 2)), rtol=1e-10)
    assert np.all(lower <= value * (1 + 1e-12)) and np.all(value <= upper * (1 + 1e-12))
    turns = [np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(3)]
    size = float(rng.uniform(0.5, 2.0))
    equal = tuple(jnp.asarray(size * t) for t in turns)
    lower, value, upper = norm_bounds(equal)
    np.testing.assert_allclose(lower, value, rtol=1e-11)
    np.testing.assert_allclose(upper, 9 * value, rtol=1e-12)
    # One mode: the upper bound is attained.
    thin = tuple(jnp.full((1, 1), size) for _ in range(3))
    np.testing.assert_allclose(norm_bounds(thin), size**6, rtol=1e-12)


@pytest.mark.covers("network:F16", "network:C15")
def test_no_trajectory_leaves_its_radius(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target = rng.standard_normal((2, 3))
    for scale in (0.2, 1.5):
        layers = [scale * rng.standard_normal((out, inp)) for inp, out in itertools.pairwise(WIDTHS)]
        cuts = np.cumsum([w.size for w in layers])[:-1]

        def field(t, y, cuts=cuts):
            w1, w2, w3 = (p.reshape(-1, 3) for p in np.split(y, cuts))
            m = target - w3 @ w2 @ w1
            return np.concatenate([g.ravel() for g in (w2.T @ w3.T @ m, w3.T @ m @ w1.T, m @ (w2 @ w1).T)])

        start = np.concatenate([w.ravel() for w in layers])
        run = solve_ivp(field, (0, 20.0), start, method="LSODA", rtol=1e-8, atol=1e-10)
        largest = np.linalg.norm(run.y, axis=0).max()
        problem = Problem(DeepLinear(WIDTHS), SquaredDistance(target))
        radius = trajectory_radius(problem, tuple(map(jnp.asarray, layers)))
        assert largest <= radius < 200 * largest


@pytest.mark.covers("network:F16", "network:C15")
def test_traces_of_powers_lie_between_powers_of_the_trace(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for exponent in (1.5, 4.0):
        root = rng.standard_normal((3, 3))
        matrix = root @ root.T
        lower, value, upper = (float(x) for x in trace_power_bounds(matrix, exponent))
        values = np.linalg.eigvalsh(matrix)
        np.testing.assert_allclose(value, np.sum(values**exponent), rtol=1e-12)
        np.testing.assert_allclose([lower, upper], np.trace(matrix) ** exponent * np.array([3.0 ** (1 - exponent), 1]))
        assert lower <= value <= upper
    with pytest.raises(HypothesisError, match="positive semi-definite"):
        trace_power_bounds(-np.eye(2), 2.0)
    with pytest.raises(HypothesisError, match="symmetric"):
        trace_power_bounds(np.array([[1.0, 1.0], [0.0, 1.0]]), 2.0)
    with pytest.raises(ValueError, match="exponent must be at least 1"):
        trace_power_bounds(np.eye(2), 0.5)


def test_a_radius_is_refused_where_it_is_not_known() -> None:
    params = (jnp.eye(2), jnp.eye(2))
    model = DeepLinear((2, 2, 2))
    with pytest.raises(HypothesisError, match=r"learns a whole matrix.*every entry of the product is seen"):
        trajectory_radius(Problem(model, Completion(jnp.eye(2), jnp.eye(2))), params)
    skip = skip_network((2, 2, 2), 0, 2)
    with pytest.raises(HypothesisError, match=r"The problem has Masked and SquaredDistance.*all of whose weights"):
        trajectory_radius(Problem(skip.model, SquaredDistance(jnp.eye(2))), skip.embed(params))
    with pytest.raises(HypothesisError, match="bring it into standard form with reduction_of"):
        trajectory_radius(Problem(model, Regression(jnp.eye(2), jnp.eye(2))), params)
    with pytest.raises(HypothesisError, match="no penalty"):
        trajectory_radius(Problem(model, SquaredDistance(jnp.eye(2)), 0.1), params)
    with pytest.raises(ValueError, match="layer shapes"):
        trajectory_radius(Problem(model, SquaredDistance(jnp.eye(2))), params[:1])
    nothing = Problem(model, SquaredDistance(jnp.zeros((2, 2))))
    assert trajectory_radius(nothing, (jnp.zeros((2, 2)), jnp.zeros((2, 2)))) == 0.0
