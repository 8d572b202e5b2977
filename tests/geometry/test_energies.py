"""Energies of the singular values: against differences in NumPy, also where singular values coincide."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ortho_group

from checking import unchecked
from deeplinear.core import HypothesisError
from deeplinear.geometry import (
    FreeEnergy,
    NegativeEntropy,
    PowerEnergy,
    Scaled,
    SpectralEnergy,
    SpectralFreeEnergy,
    free_energy,
)
from deeplinear.models import AbstractLoss, Completion, Sensing, SquaredDistance

STEP = 1e-5
DIFFERENCES = 1e-8  # central differences: rounding of the value over the step, and the step squared
SPECTRA = {"apart": [3.0, 1.2, 0.4], "equal": [1.5, 1.5, 0.4], "close": [1.5, 1.5 + 1e-9, 1.45]}


def plain_entropy(s: np.ndarray, depth: float) -> float:
    """By the sum of (XXᵀ)^a ⊗ (XᵀX)^b over the layers, or its integral; equal values need no care in it."""
    if math.isinf(depth):
        nodes, weights = np.polynomial.legendre.leggauss(40)
        shares, weights = (nodes + 1) / 2, weights / 2
    else:
        shares, weights = (np.arange(depth) / depth, np.ones(int(depth)))
    ends = (1 - shares) if math.isinf(depth) else (depth - 1) / depth - shares
    total = 0.0
    for j in range(len(s)):
        for k in range(j + 1, len(s)):
            total += 0.5 * math.log(float(np.sum(weights * s[j] ** (2 * ends) * s[k] ** (2 * shares))))
    return total


def plain_power(s: np.ndarray) -> float:
    return float(np.sum(s**1.3) / 1.3)


MASK = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]])
TARGET = np.arange(9.0).reshape(3, 3) / 5
MATRICES = np.sin(np.arange(36.0)).reshape(4, 3, 3)


def plain_completion(x: np.ndarray) -> float:
    return float(0.5 * np.sum(MASK * (x - TARGET) ** 2))


def plain_sensing(x: np.ndarray) -> float:
    return float(sum((np.sum(a * x) - y) ** 2 for a, y in zip(MATRICES, range(4), strict=True)))


def spectral(function: Callable[[np.ndarray], float]) -> Callable[[np.ndarray], float]:
    return lambda x: function(np.linalg.svd(x, compute_uv=False))


CASES: dict[str, tuple[AbstractLoss, Callable[[np.ndarray], float]]] = {
    "power": (PowerEnergy(1.3), spectral(plain_power)),
    "exponential": (SpectralEnergy(jnp.exp, jnp.exp), spectral(lambda s: float(np.exp(s).sum()))),
    "entropy": (NegativeEntropy(3), spectral(lambda s: -plain_entropy(s, 3))),
    "spectral free energy": (
        SpectralFreeEnergy(PowerEnergy(1.3), 2.0, math.inf),
        spectral(lambda s: plain_power(s) - plain_entropy(s, math.inf) / 2),
    ),
    "free energy of a completion": (
        FreeEnergy(Completion(TARGET, MASK), 20.0, 2),
        lambda x: plain_completion(x) - plain_entropy(np.linalg.svd(x, compute_uv=False), 2) / 20,
    ),
    "twice a completion": (Scaled(Completion(TARGET, MASK), 2.0), lambda x: 2 * plain_completion(x)),
    "sensing without the half": (Scaled(Sensing(MATRICES, np.arange(4.0)), 2.0), plain_sensing),
}

PARTS = eqx.filter_jit(lambda energy, x, z: (energy.value(x), energy.gradient(x), energy.curvature(x, z)))


@pytest.mark.covers("geometry:F29", "geometry:S46", "geometry:S48", "geometry:E16")
@pytest.mark.parametrize("name", CASES)
def test_value_gradient_and_curvature(name: str, seed: int) -> None:
    energy, plain = CASES[name]
    rng = np.random.default_rng(seed)
    for spectrum in SPECTRA.values():
        left, right = ortho_group.rvs(3, size=2, random_state=rng)
        x, z = (left * np.array(spectrum)) @ right, rng.standard_normal((3, 3))
        z /= np.linalg.norm(z)
        value, gradient, curvature = PARTS(energy, jnp.asarray(x), jnp.asarray(z))
        size = 1 + abs(plain(x)) + float(np.linalg.norm(gradient))
        assert float(value) == pytest.approx(plain(x), rel=1e-12, abs=1e-12)
        slope = (plain(x + STEP * z) - plain(x - STEP * z)) / (2 * STEP)
        assert float(np.sum(gradient * z)) == pytest.approx(slope, abs=DIFFERENCES * size)
        ahead, behind = (np.asarray(PARTS(energy, jnp.asarray(x + h * z), jnp.asarray(z))[1]) for h in (STEP, -STEP))
        np.testing.assert_allclose(curvature, (ahead - behind) / (2 * STEP), atol=3 * DIFFERENCES * size)


def test_one_program_for_all_temperatures_and_depths() -> None:
    seen = []

    @jax.jit
    def value(energy: SpectralFreeEnergy, x: jax.Array) -> jax.Array:
        seen.append(1)
        return energy.value(x)

    x = np.array([2.0, 1.0, 0.5])
    for beta, depth, power in ((1.0, math.inf, 2.0), (3.0, 2, 2.0), (2.0, 7, 1.0)):
        expected = np.sum(x**power) / power - plain_entropy(x, depth) / beta
        found = value(SpectralFreeEnergy(PowerEnergy(power), beta, depth), jnp.diag(jnp.asarray(x)))
        assert float(found) == pytest.approx(expected, abs=1e-12)
    assert len(seen) == 1


def test_a_free_energy_of_a_spectral_energy_is_spectral() -> None:
    assert isinstance(free_energy(PowerEnergy(1.0), 1.0, 2), SpectralFreeEnergy)
    assert isinstance(free_energy(SquaredDistance(np.eye(2)), 1.0, 2), FreeEnergy)


def test_the_curvature_is_exact_between_close_values() -> None:
    """A symmetric and a skew turn of the first two directions cost (f_1 - f_2)/(a - b) and (f_1 + f_2)/(a + b)."""
    even = jnp.zeros((3, 3)).at[0, 1].set(1.0).at[1, 0].set(1.0)
    odd = even.at[1, 0].set(-1.0)
    for gap in (0.0, 1e-12, 1e-5, 0.09, 0.11):
        x = jnp.diag(jnp.array([1.0 + gap, 1.0, 0.3]))
        expected = {1.0: (0.0, 2 / (2 + gap)), 3.0: (2 + gap, ((1 + gap) ** 2 + 1) / (2 + gap))}
        for power, (symmetric, skew) in expected.items():
            energy = PowerEnergy(power)
            np.testing.assert_allclose(PARTS(energy, x, even)[2], symmetric * np.asarray(even), atol=1e-13)
            np.testing.assert_allclose(PARTS(energy, x, odd)[2], skew * np.asarray(odd), atol=1e-13)


def test_a_single_singular_value() -> None:
    """s³/3 has the second derivative 2s; of one value the entropy is constant, for it speaks of pairs."""
    x, z = jnp.array([[-2.0]]), jnp.array([[0.5]])
    np.testing.assert_allclose(PowerEnergy(3.0).curvature(x, z), [[2.0]], rtol=1e-14)
    _, moved = jax.jvp(PowerEnergy(3.0).gradient, (x,), (z,))
    np.testing.assert_allclose(moved, [[2.0]], rtol=1e-14)
    np.testing.assert_array_equal(NegativeEntropy(2).curvature(x, z), [[0.0]])


@pytest.mark.covers("geometry:F47", "geometry:E17")
def test_refusals() -> None:
    with pytest.raises(ValueError, match="power must be greater than 0"):
        PowerEnergy(0.0)
    for make in (SpectralFreeEnergy, FreeEnergy, free_energy):
        with pytest.raises(ValueError, match=r"inverse temperature.* must be greater than 0"):
            make(PowerEnergy(2.0), -1.0, 2)
        with pytest.raises(ValueError, match="depth must be a positive integer"):
            make(PowerEnergy(2.0), 1.0, 2.5)
    with pytest.raises(ValueError, match="factor must be greater than 0"):
        Scaled(PowerEnergy(2.0), 0.0)
    with pytest.raises(TypeError, match="derivative must be a function"):
        unchecked(SpectralEnergy.__init__)(object(), jnp.exp, 3)
    with pytest.raises(ValueError, match="product must be square"):
        PowerEnergy(2.0).value(jnp.ones((2, 3)))
    singular = jnp.diag(jnp.array([1.0, 0.0]))
    with pytest.raises(HypothesisError, match="PowerEnergy: singular values at which the energy is smooth"):
        PowerEnergy(0.5).gradient(singular)
    with pytest.raises(HypothesisError, match="NegativeEntropy"):
        NegativeEntropy(2).gradient(jnp.zeros((2, 2)))
    assert np.isfinite(np.asarray(PowerEnergy(2.0).gradient(singular))).all()
