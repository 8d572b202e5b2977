"""Loss, flow, second variation, singular values and numerical range of the adjacency matrix."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.landscape import (
    _adjacency,
    adjacency,
    adjacency_hessian_form,
    adjacency_loss,
    adjacency_svd,
    adjacency_velocity,
    aligned_radius,
    balanced_radius,
    block_svd,
    embedded,
    imbalance,
    imbalance_rate,
    numerical_radius,
    numerical_range_boundary,
)
from deeplinear.models import DeepLinear, Problem, SquaredDistance, conserved, drift

WIDTHS = (3, 2, 3, 2)
ROUNDING = 1e-12

FIRST, SECOND = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]]), np.array([[1.0, -1.0], [0.5, 0.0]])
TARGET = np.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
"""A network of two layers whose numbers are known to twelve digits."""


def network(seed: int, widths: tuple[int, ...] = WIDTHS):
    rng = np.random.default_rng(seed)
    layers = tuple(rng.standard_normal((out, inp)) for inp, out in itertools.pairwise(widths))
    target = rng.standard_normal((widths[-1], widths[0]))
    return layers, target, tuple(map(jnp.asarray, layers))


def dense(layers) -> np.ndarray:
    edges = np.concatenate([[0], np.cumsum([layers[0].shape[1], *(w.shape[0] for w in layers)])])
    result = np.zeros((edges[-1], edges[-1]))
    for k, w in enumerate(layers):
        result[edges[k + 1] : edges[k + 2], edges[k] : edges[k + 1]] = w
    return result


@pytest.mark.covers("network:N1")
def test_numbers_of_a_small_network() -> None:
    params = (jnp.asarray(FIRST), jnp.asarray(SECOND))
    a, e = adjacency(params), embedded(jnp.asarray(TARGET), (3, 2, 2))
    problem = Problem(DeepLinear((3, 2, 2)), SquaredDistance(TARGET))
    np.testing.assert_array_equal(a.power(2).blocks[0], [[1, 1, -1], [0.5, 1, 0]])
    assert float(adjacency_loss(a, e)) == float(problem.value(params)) == 1.625
    velocity = adjacency_velocity(a, e)
    np.testing.assert_allclose(velocity.layers[0], [[0.75, -1, 1], [-1, 1, -1]], atol=ROUNDING)
    np.testing.assert_allclose(velocity.layers[1], [[-1, 0], [-0.5, 0]], atol=ROUNDING)
    np.testing.assert_allclose(velocity.inner(velocity), 6.8125, rtol=ROUNDING)
    np.testing.assert_allclose(imbalance(a).blocks[1], [[3.75, 3], [3, 1]], atol=ROUNDING)
    np.testing.assert_allclose(conserved(params)[0], [[-3.75, -3], [-3, -1]], atol=ROUNDING)
    np.testing.assert_allclose(numerical_radius(params), 1.27799082453, rtol=1e-11)


@pytest.mark.covers("network:F4", "network:C5")
def test_velocity_is_the_gradient_over_all_matrices(seed: int) -> None:
    """Complex steps through a dense power of a matrix that may have entries anywhere."""
    layers, target, params = network(seed)
    problem = Problem(DeepLinear(WIDTHS), SquaredDistance(target))
    a, e = adjacency(params), embedded(jnp.asarray(target), WIDTHS)
    velocity = adjacency_velocity(a, e)
    for speed, gradient in zip(velocity.layers, problem.gradient(params), strict=True):
        np.testing.assert_allclose(speed, -gradient, atol=ROUNDING, rtol=ROUNDING)
    np.testing.assert_allclose(adjacency_loss(a, e), problem.value(params), rtol=ROUNDING)
    flat, goal, step = dense(layers), np.asarray(e.dense()), 1e-30
    nodes = len(flat)
    found = np.zeros_like(flat)
    for i in range(nodes):
        for j in range(nodes):
            moved = flat.astype(complex)
            moved[i, j] += 1j * step
            found[i, j] = -np.imag(0.5 * np.sum((goal - np.linalg.matrix_power(moved, 3)) ** 2)) / step
    scale = np.abs(found).max()
    np.testing.assert_allclose(velocity.dense(), found, atol=ROUNDING * scale)


def test_second_variation_is_that_of_the_problem(seed: int) -> None:
    _, target, params = network(seed)
    _, _, direction = network(seed + 10)
    problem = Problem(DeepLinear(WIDTHS), SquaredDistance(target))
    moved = problem.hessian_product(params, direction)
    wanted = sum(float(jnp.vdot(h, v)) for h, v in zip(moved, direction, strict=True))
    form = adjacency_hessian_form(adjacency(params), embedded(jnp.asarray(target), WIDTHS), adjacency(direction))
    np.testing.assert_allclose(form, wanted, rtol=1e-11)
    # One layer: the loss is a parabola.
    single = adjacency((jnp.ones((2, 3)),))
    np.testing.assert_allclose(adjacency_hessian_form(single, embedded(jnp.zeros((2, 3)), (3, 2)), single), 6.0)


@pytest.mark.covers("network:F6", "network:C7", "network:E1")
def test_non_normality_is_conserved_inside(seed: int) -> None:
    layers, target, params = network(seed)
    a, e = adjacency(params), embedded(jnp.asarray(target), WIDTHS)
    flat, goal = dense(layers), np.asarray(e.dense())
    q = imbalance(a)
    np.testing.assert_allclose(q.dense(), flat @ flat.T - flat.T @ flat, atol=ROUNDING)
    for block, c in zip(q.blocks[1:-1], conserved(params), strict=True):
        np.testing.assert_allclose(block, -c, atol=ROUNDING)
    speed = np.asarray(adjacency_velocity(a, e).dense())
    moved = speed @ flat.T + flat @ speed.T - speed.T @ flat - flat.T @ speed
    rate = imbalance_rate(a, e)
    scale = np.abs(moved).max()
    np.testing.assert_allclose(rate.dense(), moved, atol=ROUNDING * scale)
    assert all(not np.any(np.abs(np.asarray(block)) > ROUNDING * scale) for block in rate.blocks[1:-1])
    cube = np.linalg.matrix_power(flat, 3)
    half = cube @ goal.T - goal.T @ cube
    normal = cube @ cube.T - cube.T @ cube
    np.testing.assert_allclose(half + half.T - 2 * normal, moved, atol=ROUNDING * scale)
    # With the printed sign it is missed by four times the commutator of A^L with its transpose.
    np.testing.assert_allclose(half + half.T + 2 * normal - moved, 4 * normal, atol=ROUNDING * max(scale, 1.0))
    assert np.abs(normal).max() > 1e-6


@pytest.mark.covers("network:F6", "network:C7")
def test_drift_of_a_tight_integration_is_small(seed: int) -> None:
    layers, target, params = network(seed)
    shapes = [w.shape for w in layers]
    cuts = np.cumsum([w.size for w in layers])[:-1]

    def split(y):
        return [part.reshape(shape) for part, shape in zip(np.split(y, cuts), shapes, strict=True)]

    def field(t, y):
        w1, w2, w3 = split(y)
        m = target - w3 @ w2 @ w1
        return np.concatenate([g.ravel() for g in (w2.T @ w3.T @ m, w3.T @ m @ w1.T, m @ (w2 @ w1).T)])

    start = np.concatenate([w.ravel() for w in layers])
    end = solve_ivp(field, (0, 3.0), start, method="DOP853", rtol=1e-10, atol=1e-12).y[:, -1]
    moved = float(jnp.max(drift(tuple(map(jnp.asarray, split(end))), params)))
    assert moved < 1e-9


@pytest.mark.covers("network:F11", "network:C10")
def test_both_decompositions_of_the_adjacency_matrix(seed: int) -> None:
    layers, _, params = network(seed)
    flat = dense(layers)
    left, values, right = block_svd(params)
    assert (left.shift, values.shift, right.shift) == (0, 1, 0)
    np.testing.assert_allclose((left @ values @ right.T).dense(), flat, atol=ROUNDING)
    for block in (*left.blocks[1:], *right.blocks[:-1]):
        np.testing.assert_allclose(block @ block.T, np.eye(len(block)), atol=ROUNDING)
    assert not np.any(left.blocks[0]) and not np.any(right.blocks[-1])
    u, s, v, owner = (np.asarray(part) for part in jax.jit(adjacency_svd)(params))
    np.testing.assert_allclose(u @ np.diag(s) @ v.T, flat, atol=ROUNDING)
    for orthogonal in (u, v):
        np.testing.assert_allclose(orthogonal.T @ orthogonal, np.eye(len(flat)), atol=ROUNDING)
    np.testing.assert_allclose(s, np.linalg.svd(flat, compute_uv=False), atol=ROUNDING)
    kept = sum(min(w.shape) for w in layers)
    assert not np.any(s[kept:]) and not np.any(owner[kept:]) and np.all(owner[:kept] > 0)
    for number, layer in enumerate(layers, start=1):
        np.testing.assert_allclose(s[owner == number], np.linalg.svd(layer, compute_uv=False), atol=ROUNDING)


@pytest.mark.covers("network:F15", "network:C14")
def test_numerical_range_is_a_disk(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layers, _, params = network(seed)
    flat = dense(layers)
    radius = np.linalg.eigvalsh((flat + flat.T) / 2)[-1]
    np.testing.assert_allclose(numerical_radius(params), radius, rtol=1e-12)
    angles = np.linspace(0, 2 * np.pi, 17)
    np.testing.assert_allclose(
        numerical_range_boundary(params, angles), radius * np.exp(1j * angles), atol=1e-10, rtol=1e-10
    )
    monkeypatch.setattr(_adjacency, "LARGEST_DENSE", 5)
    np.testing.assert_allclose(numerical_radius(params), radius, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(numerical_radius)(params), radius, rtol=1e-12)


@pytest.mark.covers("network:F15", "network:C14")
def test_radius_of_aligned_and_of_balanced_layers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths, depth = (3, 4, 4, 3), 3
    bases = [np.linalg.qr(rng.standard_normal((d, d)))[0] for d in widths]

    def aligned(values: np.ndarray) -> tuple:
        middle = [np.zeros((out, inp)) for inp, out in itertools.pairwise(widths)]
        for m, row in zip(middle, values, strict=True):
            np.fill_diagonal(m, row)
        return tuple(jnp.asarray(bases[k + 1] @ m @ bases[k].T) for k, m in enumerate(middle))

    values = rng.standard_normal((depth, 3))
    np.testing.assert_allclose(numerical_radius(aligned(values)), aligned_radius(values), rtol=1e-10)
    same = np.tile(rng.uniform(0.2, 2.0, 3), (depth, 1))
    radius = float(numerical_radius(aligned(same)))
    np.testing.assert_allclose(aligned_radius(same), radius, rtol=1e-10)
    np.testing.assert_allclose(balanced_radius(same.max(), depth), radius, rtol=1e-10)


def test_what_is_no_network_is_refused() -> None:
    a = adjacency((jnp.eye(2), jnp.eye(2)))
    e = embedded(jnp.eye(2), (2, 2, 2))
    with pytest.raises(ValueError, match="e must have shift 2, the depth, but has shift 1"):
        adjacency_loss(a, a)
    with pytest.raises(ValueError, match="a must have shift 1, but has shift 2"):
        adjacency_velocity(e, e)
    with pytest.raises(ValueError, match="amplitudes must have shape"):
        aligned_radius(jnp.ones(3))
    with pytest.raises(ValueError, match="must have at least one row and one column"):
        aligned_radius(jnp.ones((2, 0)))
    with pytest.raises(ValueError, match="depth must be at least 1"):
        balanced_radius(1.0, 0)
    with pytest.raises(ValueError, match="angles must have shape"):
        numerical_range_boundary((jnp.eye(2),), 0.5)
