"""The tangent kernel of two layers, against automatic differentiation, Kronecker products and extended precision."""

from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.exact import (
    Correlations,
    correlations_of,
    kernel_change,
    kernel_distance,
    kernel_distance_full,
    limit,
    recovered_correlations,
    stacked,
    tangent_kernel,
)

distance = jax.jit(kernel_distance)
recovered = jax.jit(recovered_correlations)

ROUNDING = 1e-12
SIX_DIGITS = 1e-6
LAWS = (50.0, 500.0, 5000.0)
"""λ over which small distances fall as its fourth power."""


def white(rng: np.random.Generator, inp: int, samples: int) -> np.ndarray:
    return np.sqrt(samples) * np.linalg.qr(rng.normal(size=(samples, inp)))[0].T


def random_correlations(rng: np.random.Generator, batch: int, inp: int, hidden: int, out: int) -> Correlations:
    return correlations_of(jnp.asarray(rng.normal(size=(batch, inp + out, hidden))), inp)


@pytest.mark.covers("exact:F14")
def test_kernel_is_the_gram_matrix_of_the_derivative(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, 5))
    layers = (jnp.asarray(rng.normal(size=(2, 3))), jnp.asarray(rng.normal(size=(4, 2))))
    jacobian = jax.jit(jax.jacrev(lambda p: (p[1] @ p[0] @ x).ravel()))(layers)  # rows: output slow, sample fast
    flat = np.concatenate([np.asarray(part).reshape(20, -1) for part in jacobian], axis=1)
    kernel = jax.jit(lambda p: tangent_kernel(correlations_of(stacked(p), 3), x))(layers)
    assert np.max(np.abs(kernel - flat @ flat.T)) < ROUNDING * np.max(np.abs(kernel))


@pytest.mark.covers("exact:S20", "exact:F15")
def test_fast_distance_is_that_of_kronecker_products(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before, after = (random_correlations(rng, 4, 3, 2, 4) for _ in range(2))
    x = white(rng, 3, 5)
    fast = distance(before, after)
    full = jax.jit(lambda p, q: kernel_distance_full(tangent_kernel(p, x), tangent_kernel(q, x)))(before, after)
    assert np.max(np.abs(fast - full)) < ROUNDING
    for k in range(4):
        old, new = (
            np.kron(np.eye(4), x.T @ np.asarray(c.input[k]) @ x) + np.kron(np.asarray(c.output[k]), x.T @ x)
            for c in (before, after)
        )
        plain = 1 - np.sum(old * new) / np.linalg.norm(old) / np.linalg.norm(new)
        assert abs(float(fast[k]) - plain) < ROUNDING
    # One start against a batch.
    one = jax.tree.map(lambda leaf: leaf[0], before)
    assert np.max(np.abs(distance(one, after)[0] - fast[0])) < ROUNDING


def exact_distance(old: np.ndarray, new: np.ndarray, lam: float) -> Any:
    """Distance of the kernels of two square products in sixty digits, from eigenvalues of W Wᵀ and Wᵀ W."""

    def correlation(gram: Any, sign: int) -> Any:
        values, vectors = mpmath.eigsy(gram)
        roots = [mpmath.sqrt(v + mpmath.mpf(lam) ** 2 / 4) + sign * mpmath.mpf(lam) / 2 for v in values]
        return vectors * mpmath.diag(roots) * vectors.T

    def inner(a: Any, b: Any) -> Any:
        return sum(x * y for x, y in zip(a, b, strict=True))

    kernels = []
    for w in (mpmath.matrix(old.tolist()), mpmath.matrix(new.tolist())):
        kernels.append((correlation(w.T * w, -1), correlation(w * w.T, 1)))
    size = old.shape[0]

    def product(p: tuple, q: tuple) -> Any:
        (a, m), (b, n) = p, q
        traces = [sum(x[i, i] for i in range(size)) for x in (a, m, b, n)]
        return size * inner(a, b) + traces[0] * traces[3] + traces[1] * traces[2] + size * inner(m, n)

    first, last = kernels
    return 1 - product(first, last) / mpmath.sqrt(product(first, first) * product(last, last))


@pytest.mark.covers("exact:F15", "exact:S19")
def test_small_distances_keep_their_digits(seed: int) -> None:
    """Down to 1e-14 and below: relative to sixty digits, and as the fourth power of 1/λ."""
    rng = np.random.default_rng(seed)
    old, new = 0.5 * rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    laws = []
    for lam in LAWS:
        with mpmath.workdps(60):
            wanted = exact_distance(old, new, lam)
            found = float(distance(recovered(old, lam), recovered(new, lam)))
            assert abs(found / wanted - 1) < SIX_DIGITS
        laws.append(found * lam**4)
    assert abs(laws[1] / laws[2] - 1) < 0.002  # corrections fall as 1/λ²
    assert abs(laws[0] / laws[2] - 1) < 0.2
    # From nothing to strengths 2, 1, 0 the law is that of the variance of s² = 4, 1, 0, which is 26/9.
    fixed = [distance(*(recovered(w, lam) for w in (np.zeros((3, 3)), np.diag([2.0, 1.0, 0.0])))) for lam in LAWS]
    laws = [float(d) * lam**4 / (26 / 9) for d, lam in zip(fixed, LAWS, strict=True)]
    assert max(abs(law - 1) for law in laws) < 0.02 and abs(laws[2] - 1) < SIX_DIGITS


@pytest.mark.covers("exact:F15")
def test_recorded_scale_of_small_distances() -> None:
    """From product zero to the identity the kernel only grows; to a projection the distance can be done by hand."""
    zero, one = recovered(np.zeros((3, 3)), 50.0), recovered(np.eye(3), 50.0)
    assert float(distance(zero, one)) < 1e-30
    # diag(1, 0): a = m - λ = diag(d, 0) with d = √(1+λ²/4) − λ/2 exactly, so that the distance can be done by hand.
    start, end = recovered(np.zeros((2, 2)), 5e3), recovered(np.diag([1.0, 0.0]), 5e3)
    with mpmath.workdps(60):
        d = mpmath.sqrt(1 + mpmath.mpf(5000) ** 2 / 4) - 2500
        eigenvalues = [5000 + 2 * d, 5000 + d, 5000 + d, mpmath.mpf(5000)]  # of K, all in the same eigenvectors
        wanted = 1 - sum(eigenvalues) / mpmath.sqrt(4 * sum(v**2 for v in eigenvalues))
        assert wanted < 1e-14
        assert abs(float(distance(start, end)) / wanted - 1) < SIX_DIGITS


change_of = jax.jit(kernel_change, static_argnames="as_printed")


@pytest.mark.covers("exact:S18", "exact:F21", "exact:E19")
@pytest.mark.parametrize(("out", "inp", "sign"), [(3, 3, 1), (3, 3, -1), (2, 4, 1)])
def test_leading_change_of_the_kernel(out: int, inp: int, sign: int, seed: int) -> None:
    """Between any two products the error falls a hundredfold per decade of λ; that of the printed form does not."""
    rng = np.random.default_rng(seed)
    products = [0.5 * rng.normal(size=(out, inp)), rng.normal(size=(out, inp))]
    x = white(rng, inp, inp + 1)

    def kernel(product: np.ndarray, lam: float) -> np.ndarray:
        """Of balanced layers, by the definition of Kronecker products."""
        u, s, vt = np.linalg.svd(product, full_matrices=False)
        first = (vt.T * (np.hypot(s, lam / 2) - lam / 2)) @ vt
        second = (u * (np.hypot(s, lam / 2) + lam / 2)) @ u.T
        return np.kron(np.eye(out), x.T @ first @ x) + np.kron(second, x.T @ x)

    errors, printed = [], []
    for size in (20.0, 200.0, 2000.0):
        change = kernel(products[1], sign * size) - kernel(products[0], sign * size)
        ours, theirs = (np.asarray(change_of(*products, sign * size, x, as_printed=p)) for p in (False, True))
        errors.append(np.linalg.norm(change - ours) / np.linalg.norm(change))
        printed.append(np.linalg.norm(change - theirs) / np.linalg.norm(change))
    assert errors[0] < 0.2
    assert 60 < errors[0] / errors[1] < 160 and errors[2] < max(errors[1] / 60, 1e-6)
    assert min(printed) > 0.2


@pytest.mark.covers("exact:F21", "exact:E19")
def test_no_leading_order_where_the_large_layer_must_turn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    wide = rng.normal(size=(2, 4))
    with pytest.raises(HypothesisError, match="fills its side") as caught:
        kernel_change(np.zeros((2, 4)), wide, -50.0, np.eye(4))
    assert caught.value.residual == 2.0
    with pytest.raises(ValueError, match="lam must not be 0"):
        kernel_change(np.zeros((2, 4)), wide, 0.0, np.eye(4))
    # And rightly: at the end of training the kernel has moved by a share of itself.
    start = recovered(rng.normal(size=(2, 4)), -50.0)
    assert float(distance(start, jax.jit(limit)(wide, -50.0))) > 0.05


@pytest.mark.covers("exact:E32")
def test_lazy_kernel_is_the_identity_only_for_as_many_samples_as_inputs(seed: int) -> None:
    """K/λ tends to I ⊗ XᵀX, which has rank d_in d_out."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(2, 2))
    for samples, identity in ((2, True), (5, False)):
        x = white(rng, 2, samples)
        kernel = np.asarray(tangent_kernel(recovered(w, 1e6), x)) / 1e6
        assert np.max(np.abs(kernel - np.kron(np.eye(2), x.T @ x))) < 1e-9 * samples
        far = np.linalg.norm(kernel / samples - np.eye(2 * samples))
        assert (far < 1e-9) if identity else far > 1


def test_vanishing_kernels_and_wrong_shapes() -> None:
    def network(inp: int, size: float) -> Correlations:
        return correlations_of(size * jnp.ones((inp + 2, 2)), inp)

    assert float(kernel_distance(network(2, 1.0), network(2, 0.0))) == 1
    with pytest.raises(ValueError, match="must not vanish"):
        kernel_distance(network(2, 0.0), network(2, 1.0))
    with pytest.raises(ValueError, match="same widths"):
        kernel_distance(network(2, 1.0), network(3, 1.0))
    with pytest.raises(ValueError, match="must not vanish"):
        kernel_distance_full(jnp.zeros((2, 2)), jnp.eye(2))
    with pytest.raises(ValueError, match="inputs must have shape"):
        tangent_kernel(network(2, 1.0), np.eye(3))


def test_inputs_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="inputs must be finite"):
        tangent_kernel(correlations_of(jnp.ones((4, 2)), 2), np.array([[1.0], [np.nan]]))
