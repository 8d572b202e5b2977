"""Representations of balanced layers, against integration of the weights and plain linear algebra."""

import itertools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.stats import ortho_group

from deeplinear.core import HypothesisError
from deeplinear.exact import (
    Correlations,
    aligned_to,
    correlations_of,
    large_lambda_limit,
    limit,
    recover,
    recovered_correlations,
    similarity_in,
    similarity_out,
    stacked,
)

INTEGRATED = 1e-9
"""Errors of an integration with relative tolerance 1e-12 over some time constants."""
ROUNDING = 1e-12

recovered = jax.jit(recovered_correlations, static_argnums=2)
recovered_layers = jax.jit(recover, static_argnums=2)
aligned = jax.jit(aligned_to)
limiting = jax.jit(limit, static_argnums=2)
similar_in, similar_out = jax.jit(similarity_in), jax.jit(similarity_out)

NETWORKS = [((3, 3, 3), 2.0), ((4, 2, 2), -2.0), ((2, 2, 4), 0.5)]


def random_target(rng: np.random.Generator, out: int, inp: int, strengths: tuple[float, ...]) -> np.ndarray:
    modes = len(strengths)
    left, right = (np.linalg.qr(rng.normal(size=(n, n)))[0][:, :modes] for n in (out, inp))
    return (left * np.array(strengths)) @ right.T


def start(widths: tuple[int, int, int], lam: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Balanced layers in plain NumPy, unused hidden directions in the layer that must be the larger one."""
    inp, hidden, out = widths
    rng = np.random.default_rng(1000 + seed)
    modes = min(widths)
    s = np.pad(rng.uniform(0.3, 1.0, modes), (0, hidden - modes))
    left, right, turn = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in (out, inp, hidden))
    first, second = np.zeros((hidden, inp)), np.zeros((out, hidden))
    np.fill_diagonal(first, np.sqrt(np.hypot(s, lam / 2) - lam / 2))
    np.fill_diagonal(second, np.sqrt(np.hypot(s, lam / 2) + lam / 2))
    return turn @ first @ right.T, left @ second @ turn.T


def integrate(layers: tuple[np.ndarray, np.ndarray], target: np.ndarray, t: float) -> tuple[np.ndarray, np.ndarray]:
    """Gradient flow of both weights by SciPy."""
    (hidden, inp), out = layers[0].shape, layers[1].shape[0]

    def split(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return y[: hidden * inp].reshape(hidden, inp), y[hidden * inp :].reshape(out, hidden)

    def field(_: float, y: np.ndarray) -> np.ndarray:
        w1, w2 = split(y)
        error = target - w2 @ w1
        return np.concatenate([(w2.T @ error).ravel(), (error @ w1.T).ravel()])

    y = np.concatenate([layer.ravel() for layer in layers])
    return split(solve_ivp(field, (0, t), y, method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1])


@pytest.mark.covers("exact:S15", "exact:F18")
@pytest.mark.parametrize(("widths", "lam"), NETWORKS)
def test_layers_come_back_from_the_product(widths: tuple[int, int, int], lam: float, seed: int) -> None:
    inp, hidden, out = widths
    rng = np.random.default_rng(seed)
    target = random_target(rng, out, inp, tuple(rng.uniform(0.5, 2.0, hidden)))
    w1, w2 = integrate(start(widths, lam, seed), target, 0.7)
    found = recovered(w2 @ w1, lam, hidden)
    # A small singular value of the product has lost digits to the integration.
    tolerance = INTEGRATED / np.linalg.svd(w2 @ w1, compute_uv=False)[hidden - 1]
    assert np.max(np.abs(found.input - w1.T @ w1)) < tolerance
    assert np.max(np.abs(found.output - w2 @ w2.T)) < tolerance
    assert np.max(np.abs(found.product - w2 @ w1)) < ROUNDING
    turned = aligned(recovered_layers(w2 @ w1, lam, hidden), (jnp.asarray(w1), jnp.asarray(w2)))
    assert max(np.max(np.abs(turned[0] - w1)), np.max(np.abs(turned[1] - w2))) < 10 * tolerance


@pytest.mark.covers("exact:F18")
def test_alignment_is_the_best_rotation(seed: int) -> None:
    """The distance to the reference is stationary under rotations, and smaller than that of other rotations."""
    rng = np.random.default_rng(seed)
    params = (jnp.asarray(rng.normal(size=(3, 2))), jnp.asarray(rng.normal(size=(4, 3))))
    reference = (jnp.asarray(rng.normal(size=(3, 2))), jnp.asarray(rng.normal(size=(4, 3))))
    first, second = aligned(params, reference)
    assert np.max(np.abs(second @ first - params[1] @ params[0])) < ROUNDING

    def distance(w1: np.ndarray, w2: np.ndarray) -> float:
        return float(np.sum((w1 - reference[0]) ** 2) + np.sum((w2 - reference[1]) ** 2))

    best = distance(np.asarray(first), np.asarray(second))
    for other in ortho_group.rvs(3, size=50, random_state=seed):
        assert distance(other @ params[0], params[1] @ other.T) >= best - ROUNDING


@pytest.mark.covers("exact:S16", "exact:F19")
@pytest.mark.parametrize(
    ("widths", "lam"), [*NETWORKS, ((4, 2, 3), -1.0), ((4, 2, 3), 0.0), ((3, 5, 3), 0.0), ((2, 4, 4), 0.7)]
)
def test_limit_of_training(widths: tuple[int, int, int], lam: float, seed: int) -> None:
    inp, hidden, out = widths
    rng = np.random.default_rng(seed)
    strengths = (2.0, 1.4, 0.9, 0.5)[: min(inp, out)]
    target = random_target(rng, out, inp, strengths)
    layers = start(widths, lam, seed)
    if lam == 0 and inp == out and np.linalg.det(layers[1] @ layers[0]) * np.linalg.det(target) < 0:
        target = -target  # an odd number of modes: the other side of the determinant
    w1, w2 = integrate(layers, target, 60.0)
    found = limiting(target, lam, hidden)
    parts = ((found.input, w1.T @ w1), (found.product, w2 @ w1), (found.output, w2 @ w2.T))
    assert max(float(np.max(np.abs(a - b))) for a, b in parts) < INTEGRATED
    u, s, vt = np.linalg.svd(target)
    kept = np.where(np.arange(len(s)) < hidden, s, 0.0)
    assert np.max(np.abs(found.product - (u[:, : len(s)] * kept) @ vt[: len(s)])) < ROUNDING


@pytest.mark.covers("exact:F19", "exact:E22")
def test_limit_that_the_target_leaves_open_is_refused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target = random_target(rng, 4, 2, (1.5,))
    with pytest.raises(HypothesisError, match="rank of the target = hidden width") as caught:
        limit(target, 2.0)
    assert caught.value.residual == 1.0
    # On that side the large layer does not go where the formula would put it, whatever completes the vectors.
    w1, w2 = integrate(start((2, 2, 4), 2.0, seed), target, 60.0)
    assert np.max(np.abs(w2 @ w1 - target)) < 1e-6
    u = np.linalg.svd(target)[0]
    assert np.linalg.norm((w2 @ w2.T) @ u[:, 1]) < 2.0 - 1e-3  # not an eigenvector of the value lambda
    limit(target.T, 2.0)  # the other side: determined
    limit(target, 0.0)
    with pytest.raises(HypothesisError, match="a gap between singular values 1 and 2"):
        limit(np.eye(2), 0.0, hidden=1)


def test_product_that_leaves_layers_open_is_refused() -> None:
    product = np.diag([2.0, 0.0])
    with pytest.raises(HypothesisError, match=r"Singular value 2 is 0\.0e"):
        recover(np.pad(product, ((0, 1), (0, 0))), 1.0)
    with pytest.raises(HypothesisError, match="at most the hidden width 1"):
        recover(np.eye(2), 1.0, hidden=1)
    with pytest.raises(ValueError, match="product must be finite"):
        recover(np.full((2, 2), np.nan), 1.0)
    with pytest.raises(ValueError, match=r"reference\[1\] must have shape"):
        aligned_to((jnp.eye(2), jnp.eye(2)), (jnp.eye(2), jnp.ones((3, 2))))
    # Where the large layer fills its side a missing rank does no harm.
    first, second = recover(product, 3.0)
    assert np.max(np.abs(second.T @ second - first @ first.T - 3 * np.eye(2))) < ROUNDING
    assert np.max(np.abs(second @ first - product)) < ROUNDING


@pytest.mark.covers("exact:S17", "exact:F20", "exact:E18")
@pytest.mark.parametrize("sign", [1, -1])
def test_large_lambda_bounds(sign: int, seed: int) -> None:
    """Layer strengths in forty digits lie within the bounds, and the matrices are made of them."""
    rng = np.random.default_rng(seed)
    strengths = np.sort(rng.uniform(0.2, 2.0, 2))[::-1]
    target = random_target(rng, 4, 2, tuple(strengths))
    for size in (1.0, 10.0, 1e3):
        lazy = jax.jit(large_lambda_limit)(target, sign * size)
        for k, s in enumerate(strengths):
            with mpmath.workdps(40):
                root = mpmath.sqrt(mpmath.mpf(s) ** 2 + mpmath.mpf(size) ** 2 / 4)
                large, small = root + mpmath.mpf(size) / 2, root - mpmath.mpf(size) / 2
                assert 0 <= large - size <= s**2 / mpmath.mpf(size)
                assert 0 <= mpmath.mpf(s) ** 2 / size - small <= mpmath.mpf(s) ** 4 / mpmath.mpf(size) ** 3
            assert lazy.large_bound[k] == pytest.approx(s**2 / size, rel=ROUNDING)
            assert lazy.small_bound[k] == pytest.approx(s**4 / size**3, rel=ROUNDING)
        u, s, vt = np.linalg.svd(target, full_matrices=False)
        flat, kept = size * np.ones(2), s**2 / size
        first, second = (kept, flat) if sign > 0 else (flat, kept)
        assert np.max(np.abs(lazy.correlations.input - (vt.T * first) @ vt)) < ROUNDING * size
        assert np.max(np.abs(lazy.correlations.output - (u * second) @ u.T)) < ROUNDING * size
        exact = limiting(target, sign * size, 2)
        for block in ("input", "output"):
            error = np.linalg.norm(getattr(exact, block) - getattr(lazy.correlations, block), 2)
            bound = lazy.small_bound if (block == "input") == (sign > 0) else lazy.large_bound
            assert error <= float(bound[0]) + ROUNDING * size
    with pytest.raises(ValueError, match="lam must not be 0"):
        large_lambda_limit(target, 0.0)
    with pytest.raises(HypothesisError, match="rank of the target"):
        large_lambda_limit(np.ones((2, 2)), 1.0)


@pytest.mark.covers("exact:S34", "exact:F14")
@pytest.mark.parametrize("lam", [-2.0, 0.0, 3.0])
def test_similarities(lam: float, seed: int) -> None:
    """From their definitions; and at the end of training on realisable targets they are one and the same."""
    rng = np.random.default_rng(seed)
    w1, w2, x, y = (rng.normal(size=shape) for shape in ((2, 4), (2, 2), (4, 7), (2, 7)))
    now = correlations_of(stacked((jnp.asarray(w1), jnp.asarray(w2))), 4)
    assert np.max(np.abs(similar_in(now, x) - (w1 @ x).T @ (w1 @ x))) < ROUNDING * 100
    hidden = np.linalg.pinv(w2) @ y
    size = float(np.max(np.abs(hidden.T @ hidden)))
    assert np.max(np.abs(similar_out(now, y) - hidden.T @ hidden)) < ROUNDING * size * np.linalg.cond(w2) ** 2
    target = random_target(rng, 2, 4, (2.0, 0.7))
    ending = limiting(target, lam, 2)
    one, other = similar_in(ending, x), similar_out(ending, target @ x)
    assert np.max(np.abs(one - other)) < ROUNDING * max(1.0, float(np.max(np.abs(one))))


def test_small_eigenvalues_of_the_output_correlation_are_cut() -> None:
    weak = Correlations(jnp.eye(1), jnp.zeros((2, 1)), jnp.diag(jnp.array([1.0, 1e-12])))
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), weak)
    assert float(similarity_out(weak, np.eye(2))[1, 1]) == 0
    assert float(similarity_out(batch, np.eye(2), rcond=1e-13)[1, 1, 1]) == pytest.approx(1e12)
    with pytest.raises(ValueError, match="outputs must have shape"):
        similarity_out(weak, np.eye(3))


def test_under_transformations(seed: int) -> None:
    """Recovery and limit are functions that can be mapped and compiled; what they cannot see beforehand they report."""
    rng = np.random.default_rng(seed)
    targets = jnp.asarray(rng.normal(size=(3, 2, 2)))
    many = jax.jit(jax.vmap(limit))(targets, jnp.array([-1.0, 0.0, 2.0]))
    for k, lam in enumerate((-1.0, 0.0, 2.0)):
        one = limit(targets[k], lam)
        assert all(
            float(np.max(np.abs(a[k] - b))) < ROUNDING
            for a, b in zip(jax.tree.leaves(many), jax.tree.leaves(one), strict=True)
        )
    with pytest.raises(Exception, match="must be the hidden width 2"):
        jax.block_until_ready(jax.jit(lambda p: recover(p, 1.0))(jnp.ones((3, 2))))


def test_every_pair_of_recovered_layers_is_balanced(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for (inp, hidden, out), lam in itertools.product(((4, 2, 2), (4, 2, 3)), (-7.0, 0.0, 1e3)):
        product = random_target(rng, out, inp, tuple(rng.uniform(0.3, 2.0, hidden)))
        first, second = recovered_layers(product, lam, hidden)
        gap = second.T @ second - first @ first.T - lam * np.eye(hidden)
        assert np.max(np.abs(gap)) < ROUNDING * max(1.0, abs(lam))
        assert np.max(np.abs(second @ first - product)) < ROUNDING
