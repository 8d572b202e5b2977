"""Bures–Wasserstein geometry: the map, the mean, four forms of the geodesic, the distance, and refusals."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import sqrtm

from deeplinear.core import HypothesisError
from deeplinear.geometry import (
    Metric,
    bures_distance,
    bures_exit,
    bures_exponential,
    bures_geodesic,
    bures_inner,
    bures_map,
    geometric_mean,
)

A = np.diag([4.0, 1.0])
B = np.array([[2.5, 1.5], [1.5, 2.5]])
AGREE = 1e-11


def definite(seed: int, size: int = 3) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return tuple(m @ m.T + 0.1 * np.eye(size) for m in rng.standard_normal((2, size, size)))


@pytest.mark.covers("geometry:F18")
def test_reference_values() -> None:
    np.testing.assert_allclose(
        bures_map(A, B), [[0.773020682524, 0.331294578225], [0.331294578225, 1.435609838973]], atol=1e-12
    )
    middle = [[3.171041365048, 0.789118222781], [0.789118222781, 1.592804919487]]
    np.testing.assert_allclose(bures_geodesic(A, B, 0.5), middle, atol=1e-12)
    assert float(bures_distance(A, B)) == pytest.approx(0.97191299089095, abs=1e-13)


@pytest.mark.covers("geometry:F18", "geometry:S14", "geometry:S15")
def test_identities_and_forms_of_the_geodesic(seed: int) -> None:
    a, b = definite(seed)
    transport = np.asarray(bures_map(a, b))
    np.testing.assert_allclose(transport @ a @ transport, b, atol=AGREE)
    mean = np.asarray(geometric_mean(a, b))
    np.testing.assert_allclose(mean @ np.linalg.solve(a, mean), b, atol=AGREE)
    np.testing.assert_allclose(mean, geometric_mean(b, a), atol=AGREE)
    np.testing.assert_allclose(a @ transport, np.real(sqrtm(a @ b)), atol=AGREE)
    t = np.array([0.0, 0.3, 1.0])
    path = np.asarray(bures_geodesic(a, b, t))
    roots = np.real(sqrtm(a @ b)) + np.real(sqrtm(b @ a))
    second = [x**2 * b + (1 - x) ** 2 * a + x * (1 - x) * roots for x in t]
    np.testing.assert_allclose(path, second, atol=AGREE)
    ra, rb = np.real(sqrtm(a)), np.real(sqrtm(b))
    left, _, right_t = np.linalg.svd(rb @ ra)
    third = [(y := (1 - x) * ra + x * rb @ left @ right_t) @ y.T for x in t]
    np.testing.assert_allclose(path, third, atol=AGREE)

    def field(_: float, state: np.ndarray) -> np.ndarray:
        x, p = state.reshape(2, 3, 3)
        return np.stack([x @ p + p @ x, -p @ p]).ravel()

    run = solve_ivp(
        field, (0, 1), np.stack([a, transport - np.eye(3)]).ravel(), rtol=1e-13, atol=1e-14, t_eval=t, method="DOP853"
    )
    np.testing.assert_allclose(path, run.y[:9].T.reshape(-1, 3, 3), atol=1e-10)


@pytest.mark.covers("geometry:F18", "geometry:S16")
def test_distance_is_length_and_two_layers_have_twice_the_metric(seed: int) -> None:
    a, b = definite(seed)
    momentum = np.asarray(bures_map(a, b)) - np.eye(3)
    speed = a @ momentum + momentum @ a
    distance = float(bures_distance(a, b))
    assert math.sqrt(float(bures_inner(a, speed, speed))) == pytest.approx(distance, rel=1e-10)
    # By the traces, which lose digits only for close matrices.
    ra = np.real(sqrtm(a))
    square = np.trace(a) + np.trace(b) - 2 * np.trace(np.real(sqrtm(ra @ b @ ra)))
    assert distance**2 == pytest.approx(square, rel=1e-8)
    assert float(bures_distance(a, a + 1e-9 * np.eye(3))) == pytest.approx(
        1e-9 * math.sqrt(float(bures_inner(a, np.eye(3), np.eye(3)))), rel=1e-5
    )
    twice = float(Metric(2).inner(a, speed, speed))
    assert twice == pytest.approx(2 * float(bures_inner(a, speed, speed)), rel=1e-11)


@pytest.mark.covers("geometry:F18")
def test_exit_and_bad_condition() -> None:
    momentum = np.array([[0.5, 0.0], [0.0, -0.25]])
    assert float(bures_exit(momentum)) == 4.0 and math.isinf(float(bures_exit(np.eye(2))))
    left = np.linalg.eigvalsh(np.asarray(bures_exponential(A, momentum, 4.0)))
    assert abs(left[0]) < 1e-14
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    hard = q @ np.diag([1e8, 1e3, 1.0, 1.0]) @ q.T
    transport = np.asarray(bures_map((hard + hard.T) / 2, np.eye(4)))
    np.testing.assert_allclose(transport @ hard @ transport, np.eye(4), atol=1e-6)


def spread(rng: np.random.Generator, condition: float) -> np.ndarray:
    """Positive definite, of this condition and determinant near one."""
    frame = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    values = np.array([condition**0.5, condition ** rng.uniform(-0.5, 0.5), condition**-0.5])
    matrix = (frame * values) @ frame.T
    return (matrix + matrix.T) / 2


@pytest.mark.covers("geometry:F18")
def test_matrices_of_condition_1e8(seed: int) -> None:
    """Distance, geodesic and the equation of the mean; rounding is enlarged by the condition, to about 1e-8."""
    rng = np.random.default_rng(seed)
    for _ in range(5):
        a, b = spread(rng, 1e8), spread(rng, 1e8)
        # Roots by their eigenvectors; the turn between them by its singular vectors.
        ra, rb = ((vectors * np.sqrt(values)) @ vectors.T for values, vectors in map(np.linalg.eigh, (a, b)))
        left, overlap, right_t = np.linalg.svd(rb @ ra)
        square = np.trace(a) + np.trace(b) - 2 * np.sum(overlap)
        distance = float(bures_distance(a, b))
        assert distance**2 == pytest.approx(square, abs=1e-12 * (np.trace(a) + np.trace(b)))
        path = np.asarray(bures_geodesic(a, b, [0.0, 0.5, 1.0]))
        way = (ra + rb @ left @ right_t) / 2
        for found, wanted in zip(path, (a, way @ way.T, b), strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-7 * np.max(np.abs(b)))
            assert np.linalg.eigvalsh(found)[0] > -1e-7 * np.max(np.abs(b))
        mean = np.asarray(geometric_mean(a, b))
        np.testing.assert_allclose(mean @ np.linalg.solve(a, mean), b, atol=1e-6 * np.max(np.abs(b)))
        # With one of moderate condition the mean itself is known: it does not depend on the order.
        calm = spread(rng, 10.0)
        mean = np.asarray(geometric_mean(a, calm))
        np.testing.assert_allclose(mean, geometric_mean(calm, a), atol=1e-6 * np.max(np.abs(mean)))


def test_refusals() -> None:
    with pytest.raises(HypothesisError, match="start is positive definite"):
        bures_map(np.diag([1.0, -1.0]), np.eye(2))
    with pytest.raises(HypothesisError, match="end is positive semi-definite"):
        bures_map(np.eye(2), np.diag([1.0, -1.0]))
    with pytest.raises(HypothesisError, match="start is symmetric"):
        bures_map(np.array([[1.0, 0.5], [0.0, 1.0]]), np.eye(2))
    with pytest.raises(ValueError, match="end must have shape"):
        bures_map(np.eye(2), np.eye(3))
    with pytest.raises(ValueError, match="point must be finite"):
        bures_inner(jnp.full((2, 2), jnp.nan), np.eye(2), np.eye(2))


@pytest.mark.covers("geometry:F18")
def test_means_and_maps_of_hard_pairs_to_sixty_digits(seed: int) -> None:
    """Both matrices of condition 1e8 in different frames: what 60 digits give, in both orders."""
    rng = np.random.default_rng(seed)
    with mpmath.workdps(60):
        pair = []
        for _ in range(2):
            frame = np.linalg.qr(rng.standard_normal((3, 3)))[0]
            matrix = (frame * [1.0, 1e-4, 1e-8]) @ frame.T
            pair.append((matrix + matrix.T) / 2)
        a, b = (mpmath.matrix(matrix.tolist()) for matrix in pair)

        def root(matrix: Any) -> Any:
            values, vectors = mpmath.eigsy(matrix)
            return vectors * mpmath.diag([mpmath.sqrt(value) for value in values]) * vectors.T

        half = root(a)
        back = half**-1
        mean = np.array((half * root(back * b * back) * half).tolist(), dtype=float)
        carry = np.array((back * root(half * b * half) * back).tolist(), dtype=float)
    # Condition times rounding, 1e-8.
    for first, second in (pair, pair[::-1]):
        np.testing.assert_allclose(geometric_mean(first, second), mean, atol=1e-7 * np.abs(mean).max())
    np.testing.assert_allclose(bures_map(*pair), carry, atol=1e-7 * np.abs(carry).max())


@pytest.mark.parametrize("point", [2 * np.eye(2), np.array([[1.0, 0.4], [-0.2, 0.7]])])
def test_gradients_at_equal_eigenvalues(point: np.ndarray) -> None:
    other, weights = np.array([[2.0, 0.3], [0.3, 1.0]]), np.array([[0.3, -1.0], [0.5, 0.2]])
    even = weights + weights.T
    for function in (
        lambda x: bures_distance(x @ x.T, other),
        lambda x: bures_distance(other, x @ x.T),
        lambda x: jnp.sum(weights * bures_map(x @ x.T, other)),
        lambda x: jnp.sum(weights * bures_map(other, x @ x.T)),
        lambda x: jnp.sum(weights * geometric_mean(x @ x.T, other)),
        lambda x: jnp.sum(weights * geometric_mean(other, x @ x.T)),
        lambda x: bures_inner(x @ x.T, other, even),
    ):
        found, h = np.zeros((2, 2)), 1e-3
        for place in np.ndindex(2, 2):
            unit = np.zeros((2, 2))
            unit[place] = h
            near, far = (float(function(point + k * unit)) - float(function(point - k * unit)) for k in (1, 2))
            found[place] = (8 * near - far) / (12 * h)
        np.testing.assert_allclose(jax.grad(function)(jnp.asarray(point)), found, atol=1e-9)


def test_a_matrix_that_is_definite_by_rounding_only_is_refused(seed: int) -> None:
    """Its eigenvalues come out positive, but it has no Cholesky factor in floating point."""
    rng = np.random.default_rng(seed)
    while True:
        frame, _ = np.linalg.qr(rng.standard_normal((4, 4)))
        matrix = (frame * 10.0 ** -rng.uniform(0, 17, size=4)) @ frame.T
        matrix = (matrix + matrix.T) / 2
        if np.linalg.eigvalsh(matrix)[0] > 0:
            try:
                np.linalg.cholesky(matrix)
            except np.linalg.LinAlgError:
                break
    with pytest.raises(HypothesisError, match="start is positive definite"):
        bures_map(matrix, np.eye(4))
