"""Measures of networks, recovered from moments in exact arithmetic, and distances between them."""

import decimal
import math
from fractions import Fraction

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from deeplinear.core import HypothesisError
from deeplinear.recurrent import (
    SpectralMeasure,
    atom_dimension,
    diagonal_equivalent,
    entropy_dimension,
    hankel_condition,
    ho_kalman,
    jacobi,
    measure_from_moments,
    spectral_measure,
    wasserstein,
)


def by_powers(system: tuple[np.ndarray, ...] | list[np.ndarray], length: int) -> np.ndarray:
    a, b, c = (np.asarray(m) for m in system)
    return np.array([c @ np.linalg.matrix_power(a, j) @ b for j in range(length)])


def rotated(rng: np.random.Generator, values: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, ...]:
    u = np.linalg.qr(rng.normal(size=(len(values), len(values))))[0]
    a = u @ np.diag(values) @ u.T
    return (a + a.T) / 2, (u @ b)[:, None], (c @ u.T)[None]


@pytest.mark.covers("rnn:F17")
def test_measure_of_a_network(seed: int) -> None:
    """Equal eigenvalues are one atom, whatever the basis; directions without weight are none."""
    rng = np.random.default_rng(seed)
    values = np.array([-0.4, 0.3, 0.3, 0.3, 0.8, 1.05])
    b = np.array([1.0, 0.5, -0.5, 1.0, 0.0, 0.2])
    system = rotated(rng, values, b, b)
    found = spectral_measure(system)
    assert found.order == 3
    np.testing.assert_allclose(found.atoms, [-0.4, 0.3, 1.05], atol=1e-14)
    np.testing.assert_allclose(found.weights, [1.0, 1.5, 0.04], atol=1e-14)
    assert float(found.mass) == pytest.approx(np.sum(b**2), rel=1e-14)
    np.testing.assert_allclose(found.moments(30), by_powers(system, 30).ravel(), rtol=1e-12)
    assert spectral_measure(system, merge=0.8).order == 1
    pair = spectral_measure((np.diag([0.5, 0.5 + 1e-10]), np.array([[1.0], [2.0]]), np.array([[1.0, 2.0]])))
    assert pair.order == 1 and float(pair.atoms[0]) == pytest.approx(0.5 + 0.8e-10, abs=1e-16)


@pytest.mark.covers("rnn:F17")
def test_signed_measures_are_refused_or_asked_for(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, b, c = np.array([-0.5, 0.2, 0.9]), np.array([1.0, 2.0, 1.0]), np.array([1.0, -1.0, 3.0])
    system = rotated(rng, values, b, c)
    with pytest.raises(HypothesisError, match="weights that are not negative") as caught:
        spectral_measure(system)
    assert caught.value.residual == pytest.approx(2.0, rel=1e-12)
    np.testing.assert_allclose(spectral_measure(system, signed=True).weights, [1.0, -2.0, 3.0], atol=1e-13)
    # Equal eigenvalues: of one sign in one basis and of two in another, but the sum is what the response has.
    double = rotated(rng, np.array([0.5, 0.5]), np.array([1.0, 1.0]), np.array([2.0, -1.0]))
    np.testing.assert_allclose(spectral_measure(double).weights, [1.0], atol=1e-13)
    with pytest.raises(HypothesisError, match="a symmetric transition matrix"):
        spectral_measure((np.eye(2, k=1), np.ones((2, 1)), np.ones((1, 2))))
    with pytest.raises(ValueError, match="one input and one output, but has 2 and 1"):
        spectral_measure((np.eye(2), np.ones((2, 2)), np.ones((1, 2))))


@pytest.mark.covers("rnn:F17")
def test_the_zero_network_has_the_empty_measure() -> None:
    found = spectral_measure((np.eye(3), np.zeros((3, 1)), np.zeros((1, 3))))
    assert found.order == 0 and float(found.mass) == 0.0
    np.testing.assert_array_equal(found.moments(4), np.zeros(4))
    assert atom_dimension(found) == 0 and entropy_dimension(found) == 0.0
    with pytest.raises(HypothesisError, match="positive mass"):
        _ = found.normalised


@pytest.mark.covers("rnn:F16", "rnn:S4")
def test_diagonal_equivalent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(8, 8))
    a = a + a.T
    a = a / np.abs(np.linalg.eigvalsh(a)).max()
    for columns in (1, 3):
        b = rng.normal(size=(8, columns))
        found = diagonal_equivalent((a, b, b.T))
        np.testing.assert_allclose(by_powers(list(found), 40), by_powers((a, b, b.T), 40), rtol=1e-11, atol=1e-11)
        assert np.array_equal(found.transition, np.diag(np.diag(found.transition)))
        np.testing.assert_allclose(found.input, found.output.T, atol=1e-15)
    c = rng.normal(size=(2, 8))
    found = diagonal_equivalent((a, b, c))
    np.testing.assert_allclose(by_powers(list(found), 40), by_powers((a, b, c), 40), rtol=1e-11, atol=1e-11)
    with pytest.raises(HypothesisError, match="a symmetric transition matrix"):
        diagonal_equivalent((a + np.eye(8, k=1), b, c))


@pytest.mark.covers("rnn:F18", "rnn:S10")
@pytest.mark.parametrize("order", [1, 2, 3, 5, 7])
def test_atoms_from_exact_moments(order: int) -> None:
    """Clustered spectra, where the Hankel matrix has a condition number of up to 1e15: no digits are lost."""
    atoms = [Fraction(60, 100) + Fraction(45, 100) * i / max(order - 1, 1) for i in range(order)]
    weights = [Fraction(1 + i % 3, 7) for i in range(order)]
    moments = [sum((p * x**j for p, x in zip(weights, atoms, strict=True)), Fraction(0)) for j in range(2 * order)]
    found = measure_from_moments(moments, order)
    np.testing.assert_allclose(found.atoms, [float(x) for x in atoms], rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.weights, [float(p) for p in weights], rtol=0, atol=1e-12)


@pytest.mark.covers("rnn:F18", "rnn:S10")
def test_atoms_from_sixty_digits_and_from_sixteen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.linspace(-0.9, 0.9, 5) + rng.uniform(-0.1, 0.1, 5)
    p = rng.uniform(0.2, 1.0, 5)
    with mpmath.workdps(60):
        exact = [mpmath.fsum(mpmath.mpf(w) * mpmath.mpf(a) ** j for w, a in zip(p, x, strict=True)) for j in range(10)]
        digits = [decimal.Decimal(mpmath.nstr(m, 60)) for m in exact]
    found = measure_from_moments(digits, 5)
    np.testing.assert_allclose(found.atoms, x, rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.weights, p, rtol=0, atol=1e-12)
    rounded = measure_from_moments([float(m) for m in digits], 5)
    condition = hankel_condition([float(m) for m in digits], 5)
    np.testing.assert_allclose(rounded.atoms, x, atol=1e-15 * condition)
    np.testing.assert_allclose(rounded.moments(10), [float(m) for m in digits], rtol=0, atol=1e-14)


@pytest.mark.covers("rnn:F18")
def test_moments_of_no_measure_are_refused() -> None:
    with pytest.raises(HypothesisError, match=r"smallest eigenvalue is -6\.180e-01"):
        measure_from_moments([0.0, 1.0, 1.0, 1.0], 2)
    with pytest.raises(HypothesisError, match="positive definite"):
        measure_from_moments([1, Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)], 2)  # one atom, not two
    with pytest.raises(HypothesisError, match="positive definite"):
        measure_from_moments(np.zeros(4), 2)
    with pytest.raises(ValueError, match="moments must have at least 4 entries, but has 3"):
        measure_from_moments([1.0, 0.0, 1.0], 2)
    with pytest.raises(ValueError, match="moments must be finite"):
        measure_from_moments([1.0, math.nan], 1)
    with pytest.raises(ValueError, match="entry 1 is"):
        measure_from_moments([Fraction(1), math.inf], 1)


@pytest.mark.covers("rnn:F18")
def test_realisation_of_a_positive_response(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for x, p in (
        (np.array([0.9, -0.5, 0.3]), rng.uniform(0.3, 1, 3)),
        (np.linspace(0.6, 1.05, 4), rng.uniform(0.3, 1, 4)),
    ):
        w = (x ** np.arange(40)[:, None]) @ p
        found = ho_kalman(w[: 2 * len(x)], len(x))
        assert np.array_equal(found.transition, found.transition.T) and np.array_equal(found.input, found.output.T)
        np.testing.assert_allclose(by_powers(list(found), 40).ravel(), w, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(np.linalg.eigvalsh(found.transition), np.sort(x), atol=1e-8)


@pytest.mark.covers("rnn:F18", "rnn:X8")
def test_realisation_of_any_response(seed: int) -> None:
    """Twice as many samples as states are enough, whatever the system: here delays and rotations."""
    rng = np.random.default_rng(seed)
    delay = np.eye(40)[9]
    np.testing.assert_allclose(by_powers(list(ho_kalman(delay[:20], 10)), 40).ravel(), delay, atol=1e-11)
    angle, radius = rng.uniform(0.5, 1.5), 0.95
    turn = radius * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    a = np.zeros((3, 3))
    a[:2, :2], a[2, 2] = turn, -0.6
    b, c = rng.uniform(0.5, 1.5, (3, 1)), rng.uniform(0.5, 1.5, (1, 3))
    w = by_powers((a, b, c), 40).ravel()
    found = ho_kalman(w, 3)
    np.testing.assert_allclose(by_powers(list(found), 40).ravel(), w, atol=1e-8 * np.abs(w).max())
    negative = ho_kalman([-1.0, -0.5], 1)  # definite, and not positive
    np.testing.assert_allclose(by_powers(list(negative), 3).ravel(), [-1.0, -0.5, -0.25], rtol=1e-14)
    with pytest.raises(HypothesisError, match="Its numerical rank is 3"):
        ho_kalman(w, 4, tolerance=1e-12)
    with pytest.raises(HypothesisError, match="Its numerical rank is 0"):
        ho_kalman(np.zeros(4), 2)
    with pytest.raises(ValueError, match="response must have at least 8 entries"):
        ho_kalman(w[:7], 4)


@pytest.mark.covers("rnn:F18")
def test_condition_of_clustered_spectra() -> None:
    for order, expected in ((3, 1.6e4), (5, 2.4e9)):
        w = np.mean(np.linspace(0.6, 1.05, order) ** np.arange(2 * order)[:, None], axis=1)
        assert hankel_condition(w, order) == pytest.approx(expected, rel=0.05)


@pytest.mark.covers("rnn:F19")
def test_jacobi_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, p = np.linspace(0.6, 1.05, 6), rng.uniform(0.1, 2, 6)
    found = jacobi((x, p))
    values, vectors = np.linalg.eigh(found.matrix)
    np.testing.assert_allclose(values, x, atol=1e-14)
    np.testing.assert_allclose(float(found.mass) * vectors[0] ** 2, p, atol=1e-12)
    assert np.all(np.asarray(found.beside) > 0)
    with pytest.raises(ValueError, match="atoms must be distinct"):
        jacobi(([0.5, 0.5], [1.0, 1.0]))
    with pytest.raises(ValueError, match="weights must be greater than 0"):
        jacobi(([0.5, 0.6], [1.0, -1.0]))


def transport(x: np.ndarray, p: np.ndarray, y: np.ndarray, q: np.ndarray, order: float) -> float:
    """By linear programming over all plans."""
    cost = np.abs(x[:, None] - y) ** order
    rows = np.kron(np.eye(len(x)), np.ones(len(y)))
    columns = np.kron(np.ones(len(x)), np.eye(len(y)))
    found = scipy.optimize.linprog(
        cost.ravel(), A_eq=np.vstack([rows, columns])[:-1], b_eq=np.concatenate([p, q])[:-1], method="highs"
    )
    return found.fun ** (1 / order)


@pytest.mark.covers("rnn:F21")
def test_distance_between_measures(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(5):
        x, y = rng.normal(size=4), rng.normal(size=6)
        p, q = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(6))
        assert wasserstein((x, p), (y, q)) == pytest.approx(scipy.stats.wasserstein_distance(x, y, p, q), abs=1e-12)
        for order in (1, 2, 3.5):
            assert wasserstein((x, p), (y, q), order) == pytest.approx(transport(x, p, y, q, order), rel=1e-9)
        equal = np.full(6, 1 / 6)
        z = rng.normal(size=6)
        sorted_cost = np.mean(np.abs(np.sort(y) - np.sort(z)) ** 2)
        assert wasserstein((y, equal), (z, equal), 2) == pytest.approx(math.sqrt(sorted_cost), abs=1e-12)
    x, p = rng.normal(size=4), rng.dirichlet(np.ones(4))
    measure = SpectralMeasure(jnp.asarray(x), jnp.asarray(p))
    assert wasserstein(measure, measure, 4) == 0.0
    split = (np.repeat(x, 3), np.repeat(p / 3, 3))
    assert wasserstein(measure, split, 4) < 1e-12  # no sliver of mass from rounding
    assert wasserstein(([0.0], [1.0]), ([1e-3], [1.0]), 200) == pytest.approx(1e-3, rel=1e-13)


@pytest.mark.covers("rnn:F21", "rnn:S13", "rnn:E6")
def test_distances_of_all_orders_and_moments(seed: int) -> None:
    """W_q^q is at most W_1 times a power of the diameter; moments differ by up to q R^(q-1) W_1, not by W_q."""
    rng = np.random.default_rng(seed)
    for _ in range(300):
        x, y = rng.uniform(-1.2, 1.2, rng.integers(1, 5)), rng.uniform(-1.2, 1.2, rng.integers(1, 5))
        p, q = rng.dirichlet(np.ones(len(x))), rng.dirichlet(np.ones(len(y)))
        order = int(rng.integers(2, 8))
        both = np.concatenate([x, y])
        one, more = wasserstein((x, p), (y, q)), wasserstein((x, p), (y, q), order)
        assert more**order <= one * (both.max() - both.min()) ** (order - 1) * (1 + 1e-12) + 1e-15
        assert abs(p @ x**order - q @ y**order) <= order * np.abs(both).max() ** (order - 1) * one * (1 + 1e-12) + 1e-15
    assert wasserstein(([1.0], [1.0]), ([0.9], [1.0]), 5) == pytest.approx(0.1, rel=1e-12)  # and 1 - 0.9^5 = 0.41


@pytest.mark.covers("rnn:F21")
def test_refusals_of_distances() -> None:
    one = ([0.0], [1.0])
    with pytest.raises(ValueError, match=r"weights must be at least 0, but one is -0\.5"):
        wasserstein(([0.0, 1.0], [1.5, -0.5]), one)
    with pytest.raises(ValueError, match="weights of second must add up to 1"):
        wasserstein(one, ([0.0], [1.0 + 1e-8]))
    with pytest.raises(ValueError, match="order must be at least 1"):
        wasserstein(one, one, 0.5)
    with pytest.raises(ValueError, match="weights must have shape"):
        wasserstein(one, ([0.0, 1.0], [1.0]))
    with pytest.raises(ValueError, match="measure must be atoms and weights"):
        wasserstein(one, np.ones((2, 1)))


@pytest.mark.covers("rnn:F18")
def test_dimensions_of_a_measure(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(5))
    measure = (rng.normal(size=5), 3 * weights)
    assert entropy_dimension(measure) == pytest.approx(math.exp(scipy.stats.entropy(weights)), rel=1e-13)
    assert entropy_dimension((np.arange(4.0), np.full(4, 0.1))) == pytest.approx(4.0, rel=1e-13)
    assert atom_dimension(([0.0, 0.009, 0.018, 0.5], [0.1, 0.1, 0.1, 0.004])) == 2
    assert atom_dimension(([0.0, 0.009, 0.018, 0.5], [0.1, 0.1, 0.1, 0.004]), tolerance=0.02) == 1
    assert atom_dimension(([0.0, 0.009, 0.018, 0.5], [0.1, 0.1, 0.1, 0.004]), merge=0.0) == 4
    with pytest.raises(ValueError, match="weights must be at least 0"):
        entropy_dimension(([0.0, 1.0], [1.0, -1.0]))
