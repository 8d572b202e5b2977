"""Certificates: constants against many digits, bounds against random students and worst cases, the errata."""

import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.recurrent import certificate, certify, extrapolation_interval, moment_chain, moment_gap

ROUNDING = 1e-12
"""Relative; the constants are exact up to the norms."""

CASES = [([0.9, -0.5], 1.0), ([0.95, 0.6, -0.4], 1.0), (np.linspace(0.6, 1.05, 5).tolist(), 1.05), ([0.0], 0.5)]


def digits_constant(atoms: list[float], radius: float, j: int) -> Any:
    """K_j by a confluent Vandermonde system and Newton's identities, in 80 digits."""
    n = len(atoms)
    x = [mpmath.mpf(a) for a in atoms]
    system, right = mpmath.matrix(2 * n, 2 * n), mpmath.matrix(2 * n, 1)
    for i, a in enumerate(x):
        for c in range(2 * n):
            system[2 * i, c] = a**c
            system[2 * i + 1, c] = c * a ** (c - 1) if c else mpmath.mpf(0)
        right[2 * i], right[2 * i + 1] = a**j, j * a ** (j - 1)
    interpolant = mpmath.lu_solve(system, right)
    roots = [a for a in x for _ in range(2)]
    annihilator = [mpmath.mpf(1)]
    for a in roots:
        annihilator = [u - a * v for u, v in zip([*annihilator, 0], [0, *annihilator], strict=True)]
    m = j - 2 * n
    sums = [mpmath.fsum(a**s for a in roots) for s in range(m + 1)]
    homogeneous = [mpmath.mpf(1)]
    for s in range(1, m + 1):
        homogeneous.append(mpmath.fsum(sums[i] * homogeneous[s - i] for i in range(1, s + 1)) / s)
    remainder = mpmath.fsum(abs(homogeneous[m - i]) * mpmath.mpf(radius) ** i for i in range(m + 1))
    return mpmath.norm(interpolant) + remainder * mpmath.norm(annihilator)


@pytest.mark.covers("rnn:F22", "rnn:X4")
@pytest.mark.parametrize(("atoms", "radius"), CASES)
def test_constants_in_many_digits(atoms: list[float], radius: float) -> None:
    n = len(atoms)
    found = certificate(atoms, 2 * n + 1, 50, radius=radius)
    np.testing.assert_array_equal(found.constants[: 2 * n + 1], 1.0)
    for j in (2 * n + 1, 20, 49):
        with mpmath.workdps(80):
            expected = float(digits_constant(atoms, radius, j))
        assert float(found.constants[j]) == pytest.approx(expected, rel=ROUNDING)
    assert np.all(np.asarray(found.binomial_constants) >= np.asarray(found.constants) * (1 - ROUNDING))


@pytest.mark.covers("rnn:F22", "rnn:X4", "rnn:S12")
def test_tabulated_constants() -> None:
    pair = certificate([0.9, -0.5], 5, 50, radius=1.0)
    np.testing.assert_allclose(pair.constants[jnp.array([5, 20, 49])], [4.26, 40.5, 65.6], rtol=2e-3)
    np.testing.assert_allclose(pair.binomial_constants[jnp.array([5, 20, 49])], [9.17, 7.4e3, 3.3e5], rtol=2e-2)
    assert float(certificate([0.95, 0.6, -0.4], 7, 50, radius=1).constants[49]) == pytest.approx(2.4e3, rel=2e-2)
    near = certificate([0.9, -0.5], 5, 20, radius=1.0)
    assert float(near.sufficient_loss(0.1, loss_scale="sum_sq")) == pytest.approx(6.8e-6, rel=2e-2)
    assert float(near.sufficient_loss(0.1)) == pytest.approx(
        0.5 * float(near.sufficient_loss(0.1, loss_scale="sum_sq"))
    )
    loss = near.sufficient_loss(0.1)
    assert float(jnp.max(near.bounds_from_loss(loss))) == pytest.approx(0.1, rel=1e-13)


def moments(atoms: Any, weights: Any, count: int) -> np.ndarray:
    return np.sum(np.asarray(weights)[..., None] * np.asarray(atoms)[..., None] ** np.arange(count), axis=-2)


@pytest.mark.covers("rnn:F22", "rnn:S12", "rnn:X4")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_balanced_student_is_beyond_the_bounds(n: int, seed: int) -> None:
    """More than a thousand students in all: spread over the interval, or near the teacher with some mass elsewhere."""
    rng = np.random.default_rng(seed)
    horizon, count = 30, 90
    for radius in (0.9, 1.0, 1.05, 1.05):
        atoms, weights = rng.uniform(-radius, radius, n), rng.uniform(0.1, 1.0, n)
        found = certificate(atoms, 2 * n + 1, horizon, radius=radius)
        spread = 10.0 ** rng.uniform(-4, 0, (count, 1))
        moved = np.clip(atoms + spread * rng.normal(size=(count, n)), -radius, radius)
        x = np.concatenate([moved, rng.uniform(-radius, radius, (count, 2))], axis=1)
        p = np.concatenate(
            [weights * np.exp(spread * rng.normal(size=(count, n))), spread**2 * rng.uniform(size=(count, 2))], axis=1
        )
        difference = moments(x, p, horizon) - moments(atoms, weights, horizon)
        residuals = difference[:, : 2 * n + 1]
        posterior = np.asarray(jax.vmap(found.bounds)(jnp.asarray(residuals)))
        prior = np.asarray(found.constants) * np.linalg.norm(residuals, axis=1, keepdims=True)
        slack = 1e-12 * np.asarray(found.constants)  # rounding of the residuals themselves
        assert np.all(np.abs(difference) <= posterior + slack)
        assert np.all(posterior <= prior * (1 + 1e-9) + slack)
        leaks = np.asarray(residuals @ np.asarray(found.annihilator))
        direct = np.sum(p * np.prod((x[:, :, None] - atoms) ** 2, axis=2), axis=1)
        np.testing.assert_allclose(leaks, direct, atol=1e-12)
        assert float(found.leak(residuals[0])) == pytest.approx(direct[0], abs=1e-12)


@pytest.mark.parametrize(
    ("residuals", "sixth"),
    [((0.0, 0.0, 0.0, 1.0, 0.0), Fraction(2) * Fraction(0.3) ** 2), ((0.0, 0.0, 0.0, 0.0, 1.0), Fraction(0.3))],
    ids=["inner part", "leak"],
)
def test_bounds_allow_for_their_own_rounding(residuals: tuple[float, ...], sixth: Fraction) -> None:
    """Atoms ±a: x⁵ has the interpolant 2a²x³ - a⁴x, the remainder a and P = x⁴ - 2a²x² + a⁴; by hand, in fractions."""
    bound = float(certificate([0.3, -0.3], 5, 6).bounds(residuals)[5])
    assert sixth < Fraction(bound) < sixth * (1 + Fraction(1, 10**13))


@pytest.mark.covers("rnn:F22", "rnn:X4", "rnn:S12")
def test_worst_cases_come_close_to_the_bound() -> None:
    """Each residual at most `tolerance`: the largest error by linear programming is above 0.8 of the bound."""
    atoms, weights, tolerance = [0.9, -0.5], [0.6, 0.4], 1e-5
    w = moments(atoms, weights, 21)
    found = extrapolation_interval(w[:5], 20, low=-1, high=1, atoms=atoms, tolerance=tolerance)
    worst = max(float(found.upper) - w[20], w[20] - float(found.lower))
    bound = float(certificate(atoms, 5, 21, radius=1.0).constants[20]) * math.sqrt(5) * tolerance
    assert 0.8 * bound < worst <= bound
    assert worst / tolerance == pytest.approx(75.7, abs=0.5)


@pytest.mark.covers("rnn:F22")
def test_a_student_is_certified() -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    eigenvalues, weights = np.array([0.9, -0.5, 0.2, -1.02]), np.array([0.6, 0.4, 1e-5, 1e-6])
    column = basis @ np.sqrt(weights)[:, None]
    student = (basis @ np.diag(eigenvalues) @ basis.T, column, column.T)
    found = certify(student, [0.9, -0.5], [0.6, 0.4], 6, 25)
    errors = np.abs(moments(eigenvalues[2:], weights[2:], 25))
    np.testing.assert_allclose(found.errors, errors, atol=1e-14)
    assert float(found.certificate.radius) == pytest.approx(1.02, abs=1e-14)
    assert np.all(errors <= np.asarray(found.bounds) + 1e-14)
    assert np.all(np.asarray(found.bounds) <= np.asarray(found.prior_bounds) * (1 + 1e-9))
    leak = np.sum(weights * np.prod((eigenvalues[:, None] - np.array([0.9, -0.5])) ** 2, axis=1))
    assert float(found.leak) == pytest.approx(leak, abs=1e-14)
    np.testing.assert_allclose(found.bounds[:6], errors[:6], atol=1e-14)


@pytest.mark.covers("rnn:F22", "rnn:E5")
def test_the_moment_gap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    closest = 0.0
    for _ in range(60):
        w = moments(rng.uniform(-1.2, 1.2, 3), rng.uniform(0.05, 1, 3), 5)
        size = w[0] * 10.0 ** rng.uniform(-5, -0.1)
        bound = np.asarray(moment_gap(w, size**2, loss_scale="sum_sq"))
        r = rng.normal(size=(40, 5))
        r[:4] = 0  # and the worst directions
        r[np.arange(4), np.arange(1, 5)] = w[0]
        r[np.arange(4), 0] = -w[1:]
        h = w + size * r / np.linalg.norm(r, axis=1, keepdims=True)
        gaps = np.abs(h / h[:, :1] - w / w[0])
        assert np.all(gaps <= bound * (1 + 1e-10) + 1e-15)
        closest = max(closest, float(np.max(gaps[:, 1:] / bound[1:])))
    assert closest > 0.9
    s = 1e-4  # one atom that is misplaced and too light: the bound holds, where the printed inequality does not
    h = (1 - s) * (1 + 2 * s) ** np.arange(3)
    square = float(np.sum((h - 1) ** 2))
    gaps = np.abs(h / h[0] - 1)
    printed = gaps[2] ** 2 - 2 * abs(square * h[2] / (s - 1) * gaps[2])
    assert square == pytest.approx(1.10e-7, abs=5e-10) and printed == pytest.approx(1.60e-7, abs=5e-10)
    bound = moment_gap(np.ones(3), 0.5 * square)
    assert np.all(gaps[1:] <= np.asarray(bound)[1:])
    assert float(bound[0]) == 0


@pytest.mark.covers("rnn:F22", "rnn:E6", "rnn:E7")
def test_the_chain_by_way_of_the_wasserstein_distance() -> None:
    """Unit masses at 1 and 0.9 are 0.1 apart in every Wasserstein distance; their fifth moments differ by more."""
    difference = 1 - 0.9**5
    assert 0.1 < difference < 5 * 0.1
    w = [1.0, 0.9, 0.81]
    gap = float(jnp.max(moment_gap(w, 1e-6)))
    found = moment_chain(w, 1e-6, 1, 5, radius=1.0, constant=0.1 / math.sqrt(gap))
    assert float(found.distance) == pytest.approx(0.1, rel=1e-12)
    assert float(found.moment) == pytest.approx(0.5, rel=1e-12)
    fine = moment_chain(w, 1e-10, 1, 5, radius=1.0, constant=0.1 / math.sqrt(gap))
    slope = math.log(float(found.distance) / float(fine.distance)) / math.log(1e4)
    assert slope == pytest.approx(1 / 4, abs=1e-3)  # one over four times the order of the teacher
    wide = moment_chain([1.0, 1.8, 3.24], 1e-6, 1, 5, radius=2.0, constant=1.0)
    scaled = np.asarray(moment_gap([1.0, 1.8, 3.24], 1e-6)) / 2.0 ** np.arange(3)
    assert float(wide.distance) == pytest.approx(2 * math.sqrt(scaled.max()), rel=1e-12)
    assert float(wide.moment) == pytest.approx(5 * 2**4 * float(wide.distance), rel=1e-12)


@pytest.mark.covers("rnn:F22")
def test_refusals() -> None:
    column = np.ones((2, 1))
    balanced = (np.diag([0.9, 0.2]), column, column.T)
    with pytest.raises(HypothesisError, match=r"at least 2n \+ 1 = 5 known entries"):
        certificate([0.9, -0.5], 4, 20)
    with pytest.raises(HypothesisError, match="distinct atoms"):
        certificate([0.9, 0.9], 5, 20)
    with pytest.raises(HypothesisError, match="radius that holds all eigenvalues"):
        certificate([0.9], 3, 20, radius=0.8)
    with pytest.raises(ValueError, match="the constants overflow"):
        certificate([100.0], 3, 400)
    found = certificate([0.9], 3, 6)
    with pytest.raises(ValueError, match="error must be greater than 0"):
        found.sufficient_loss(0.0)
    with pytest.raises(ValueError, match=r"residuals must have shape \(3\)"):
        found.bounds([0.0, 0.0])
    with pytest.raises(HypothesisError, match="balanced student"):
        certify((balanced[0], column, np.array([[1.0, -1.0]])), [0.9], [1.0], 3, 10)
    with pytest.raises(HypothesisError, match="symmetric transition matrix"):
        certify((np.array([[0.0, 1.0], [0.0, 0.0]]), column, column.T), [0.9], [1.0], 3, 10)
    with pytest.raises(HypothesisError, match="positive weights"):
        certify(balanced, [0.9], [-1.0], 3, 10)
    with pytest.raises(HypothesisError, match="radius that holds all eigenvalues"):
        certify((np.diag([1.5, 0.0]), column, column.T), [0.9], [1.0], 3, 10, radius=1.0)
    with pytest.raises(HypothesisError, match="residuals smaller than w_0"):
        moment_gap([1.0, 0.5], 0.5)
    with pytest.raises(HypothesisError, match="positive first entry"):
        moment_gap([0.0, 1.0], 0.1)
