"""Diagonal layers: against the flow of the whole network by SciPy, derivatives by JAX, and values by hand."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.core import HypothesisError
from deeplinear.exact import (
    Ending,
    chain_minimum,
    diagonal_bracket,
    diagonal_field,
    diagonal_flow,
    diagonal_hessian,
    diagonal_laws_rank,
    diagonal_layers,
    diagonal_limit,
    diagonal_weights,
    mode_losses,
)
from deeplinear.models import DeepLinear, Problem, SquaredDistance

ROUNDING = 1e-12
FLOW = 1e-9  # DOP853 at rtol 1e-12 over times of order ten
TIMES = np.array([0.3, 1.0, 4.0])
COUNT = 16
"""Modes and times of `diagonal_flow`, as many as in other tests, so that they share compiled code."""
WIDTHS = (5, 4, 4, 3)  # three modes, and entries that belong to none
SIGMA = np.array([2.0, 1.0, 0.6])


def diagonal_network(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    layers = []
    for inp, out in itertools.pairwise(WIDTHS):
        layer = np.zeros((out, inp))
        np.fill_diagonal(layer, rng.choice([-1, 1], min(out, inp)) * rng.uniform(0.3, 1.2, min(out, inp)))
        layers.append(layer)
    return tuple(layers)


def whole_flow(layers: tuple[np.ndarray, ...], target: np.ndarray, times: np.ndarray) -> list[list[np.ndarray]]:
    """Layers of the whole network at the times; three layers."""
    cuts = np.cumsum([w.size for w in layers])[:-1]

    def split(y: np.ndarray) -> list[np.ndarray]:
        return [part.reshape(w.shape) for part, w in zip(np.split(y, cuts), layers, strict=True)]

    def field(_: float, y: np.ndarray) -> np.ndarray:
        w1, w2, w3 = split(y)
        error = target - w3 @ w2 @ w1
        speeds = (w3 @ w2).T @ error, w3.T @ error @ w1.T, error @ (w2 @ w1).T
        return np.concatenate([speed.ravel() for speed in speeds])

    start = np.concatenate([w.ravel() for w in layers])
    run = solve_ivp(field, (0, times[-1]), start, method="DOP853", rtol=1e-12, atol=1e-13, t_eval=times)
    return [split(y) for y in run.y.T]


@pytest.mark.covers("network:F30")
def test_the_diagonal_flow_is_the_flow_of_the_whole_network(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = diagonal_network(rng)
    params = tuple(jnp.asarray(w, dtype=float) for w in layers)
    weights = diagonal_weights(params)
    np.testing.assert_array_equal(weights, [np.diag(w)[:3] for w in layers])
    target = np.zeros((3, 5))
    np.fill_diagonal(target, SIGMA)
    problem = Problem(DeepLinear(WIDTHS), SquaredDistance(jnp.asarray(target)))
    speed = diagonal_layers(tuple(jnp.zeros(w.shape) for w in layers), diagonal_field(weights, SIGMA))
    for moved, slope in zip(speed, problem.gradient(params), strict=True):
        np.testing.assert_allclose(moved, -slope, atol=ROUNDING)
    np.testing.assert_allclose(np.sum(mode_losses(weights, SIGMA)), problem.value(params), rtol=ROUNDING)
    many, values = np.resize(np.asarray(weights).T, (COUNT, 3)).T, np.resize(SIGMA, COUNT)
    found = np.asarray(diagonal_flow(np.resize(TIMES, COUNT), many, values))
    assert found.shape == (COUNT, 3, COUNT)
    found = found[:3, :, :3]
    for moment, wanted in zip(found, whole_flow(layers, target, TIMES), strict=True):
        # Entries that belong to no mode, of hidden units and inputs no output sees, have not moved.
        for layer, whole in zip(diagonal_layers(params, jnp.asarray(moment, dtype=float)), wanted, strict=True):
            np.testing.assert_allclose(layer, whole, atol=FLOW)


SPECIAL = {
    # The product is negative and two layers share the smallest size, though neither law of neighbours is zero.
    "to a saddle": ([1.0, 2.0, -1.0], 1.0, [0.0, np.sqrt(3), 0.0], Ending.saddle),
    "to the origin": ([1.0, -1.0, 1.0], 1.0, [0.0, 0.0, 0.0], Ending.saddle),
    "at rest": ([0.0, 0.0, -0.7], 1.0, [0.0, 0.0, -0.7], Ending.rest),
    "from one zero": ([0.0, -1.0, 1.0], 2.0, [-1.0, -np.sqrt(2), np.sqrt(2)], Ending.minimum),  # x(x² + 1) = 2
    "ties of one sign": ([0.5, 0.5, 0.5], 8.0, [2.0, 2.0, 2.0], Ending.minimum),
    "through zero": ([0.9, 0.3, -0.5], 2.0, [1.428954028238, -1.149743282137, -1.217337099911], Ending.minimum),
    "a target of the other sign": ([0.5, 0.5, 0.5], -8.0, [0.0, 0.0, 0.0], Ending.saddle),
    "a target of zero": ([0.3, 0.5, -0.4], 0.0, [0.0, 0.4, -np.sqrt(0.07)], Ending.minimum),
}


@pytest.mark.covers("network:F31", "network:N5", "network:C40")
def test_special_starts_end_where_they_must() -> None:
    starts = np.array([case[0] for case in SPECIAL.values()]).T
    sigma = np.array([case[1] for case in SPECIAL.values()])
    limit = diagonal_limit(starts, sigma)
    for mode, (start, target, wanted, ending) in enumerate(SPECIAL.values()):
        found = np.asarray(limit.weights[:, mode])
        assert Ending(int(limit.ending[mode])) is ending
        np.testing.assert_allclose(found, wanted, atol=1e-11)
        laws = np.diff(found**2) - np.diff(np.array(start) ** 2)
        np.testing.assert_allclose(laws, 0, atol=ROUNDING)
        assert min(abs(np.prod(found) - target), abs(np.prod(found))) < ROUNDING
    # A difference of rounding leads away from the saddle in the end, unless it is told to be none.
    nearly = [[0.7], [-0.7 * (1 + 1e-15)]]
    assert Ending(int(diagonal_limit(nearly, 1.0).ending[0])) is Ending.minimum
    assert Ending(int(diagonal_limit(nearly, 1.0, tolerance=1e-12).ending[0])) is Ending.saddle


@pytest.mark.covers("network:F31", "network:C32")
def test_the_limit_is_where_the_flow_ends(seed: int) -> None:
    """32 starts of mixed signs, integrated by SciPy until nothing moves."""
    rng = np.random.default_rng(seed)
    starts = rng.choice([-1, 1], (3, 32)) * rng.uniform(0.2, 1.5, (3, 32))
    sigma = rng.uniform(0.5, 2.0, 32)

    def field(_: float, y: np.ndarray) -> np.ndarray:
        a, b, c = y.reshape(3, 32)
        return (np.stack([b * c, a * c, a * b]) * (sigma - a * b * c)).ravel()

    run = solve_ivp(field, (0, 150.0), starts.ravel(), method="LSODA", rtol=1e-11, atol=1e-13)
    limit = diagonal_limit(starts, sigma)
    assert np.all(np.asarray(limit.ending) == Ending.minimum)
    np.testing.assert_allclose(run.y[:, -1].reshape(3, 32), limit.weights, atol=1e-8)


def test_the_root_of_a_chain() -> None:
    """x(x - c₁)(x + c₂) = σ² for x = w₂², by NumPy."""
    for laws, sigma in (([3.0, -3.0], 2.0), ([-0.5, 1.2], 0.7), ([0.0, 0.0], 8.0), ([-5.0, -2.0], 1e-3)):
        roots = np.roots([1.0, laws[1] - laws[0], -laws[0] * laws[1], -(sigma**2)])
        x = max(r.real for r in roots if abs(r.imag) < 1e-6)
        wanted = [x - laws[0], x, x + laws[1]]
        np.testing.assert_allclose(chain_minimum(laws, sigma), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.covers("network:F32", "network:C33")
def test_hessian_bracket_and_rank(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(4, 3))
    weights[[0, 2], 1], weights[:3, 2] = 0.0, 0.0  # two zeros in one mode, three in another
    sigma, other = rng.uniform(0.5, 2, 3), rng.uniform(0.5, 2, 3)

    def loss(xi: jax.Array, s: jax.Array) -> jax.Array:
        return 0.5 * (s - xi[0] * xi[1] * xi[2] * xi[3]) ** 2

    found = np.asarray(diagonal_hessian(weights, sigma))
    wanted = jax.jit(jax.vmap(jax.hessian(loss), in_axes=(1, 0)))(weights, sigma)
    np.testing.assert_allclose(found, wanted, atol=ROUNDING)
    size = float(sigma[1] * abs(weights[1, 1] * weights[3, 1]))
    np.testing.assert_allclose(np.linalg.eigvalsh(found[1]), [-size, 0, 0, size], atol=ROUNDING)
    np.testing.assert_array_equal(found[2], 0)

    def field(xi: jax.Array, s: jax.Array) -> jax.Array:
        return -jax.vmap(jax.grad(loss), in_axes=(1, 0), out_axes=1)(xi, s)

    @jax.jit
    def bracket(xi: jax.Array, s: jax.Array, o: jax.Array) -> jax.Array:
        forward = jax.jvp(lambda x: field(x, o), (xi,), (field(xi, s),))[1]
        return forward - jax.jvp(lambda x: field(x, s), (xi,), (field(xi, o),))[1]

    np.testing.assert_allclose(diagonal_bracket(weights, sigma, other), bracket(weights, sigma, other), atol=1e-10)

    for mode in range(3):
        w = weights[:, mode]
        forms = np.zeros((3, 4))
        for i in range(3):
            forms[i, i], forms[i, i + 1] = 2 * w[i], -2 * w[i + 1]
        assert np.asarray(diagonal_laws_rank(weights))[mode] == np.linalg.matrix_rank(forms)
    np.testing.assert_array_equal(diagonal_laws_rank(weights), [3, 2, 1])
    np.testing.assert_array_equal(diagonal_laws_rank(np.zeros((3, 1))), [0])


def test_it_is_batched_and_compiled() -> None:
    starts = jnp.array([[[1.0], [2.0], [-1.0]], [[0.9], [0.3], [-0.5]]])
    limits = jax.jit(jax.vmap(lambda w: diagonal_limit(w, 1.0)))(starts)
    np.testing.assert_array_equal(limits.ending[:, 0], [Ending.saddle, Ending.minimum])
    np.testing.assert_allclose(limits.weights[1], diagonal_limit(starts[1], 1.0).weights, rtol=1e-14)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="diagonal_field: weights must have an axis of layers"):
        diagonal_field([1.0, 2.0], 1.0)
    with pytest.raises(ValueError, match="sigma must have one number for each of 2 modes"):
        diagonal_limit([[1.0, 2.0]], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="weights must be a number, but entry"):
        mode_losses([[np.nan]], 1.0)
    with pytest.raises(HypothesisError, match="diagonal layers"):
        diagonal_weights((jnp.ones((2, 2)),))
    with pytest.raises(ValueError, match="sigma must be greater than 0"):
        chain_minimum([1.0], -1.0)
