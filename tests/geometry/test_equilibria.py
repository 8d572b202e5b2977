"""Equilibria of free energies: against flows of SciPy with the derivatives of the entropy written out in NumPy."""

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy.integrate import solve_ivp

from checking import unchecked
from deeplinear.core import HypothesisError
from deeplinear.geometry import (
    NegativeEntropy,
    PowerEnergy,
    SpectralEnergy,
    critical_power,
    equilibrium,
    equilibrium_rates,
    has_equilibrium,
    split_equilibria,
    split_power,
)
from deeplinear.theory.geometry._equilibria import plain_slopes

LIMIT = 1e-6  # of a simulated limit
RATE = 5e-3  # of a simulated rate


def flow(
    slope: Callable[[np.ndarray], np.ndarray], start: np.ndarray, beta: float, depth: float, times: list[float]
) -> np.ndarray:
    """Spectra of the normalised flow of a free energy."""

    def field(_: float, log: np.ndarray) -> np.ndarray:
        s = np.exp(log)
        return -(s ** (1 - 2 / depth)) * (slope(s) - plain_slopes(s, depth) / beta)

    run = solve_ivp(field, (0, times[-1]), np.log(start), "LSODA", t_eval=times, rtol=1e-11, atol=1e-12)
    return np.exp(run.y.T)


@pytest.mark.covers("geometry:F34", "geometry:S42", "geometry:S43", "geometry:E5")
@pytest.mark.parametrize(
    ("size", "power", "beta", "depth"), [(10, 2.0, 1.0, math.inf), (4, 1.0, 2.0, math.inf), (4, 1.5, 0.7, 3)]
)
def test_flows_end_at_the_equilibrium_with_its_rate(
    size: int, power: float, beta: float, depth: float, seed: int
) -> None:
    start = np.exp(np.random.default_rng(seed).uniform(-1, 1, size))
    rest = equilibrium(PowerEnergy(power), size, beta, depth, normalised=True)
    slow = rest.rates[0]
    end, early, late = (30 / slow, 9 / slow, 11 / slow)
    path = flow(lambda s: s ** (power - 1), start, beta, depth, [0.0, early, late, end])
    np.testing.assert_allclose(path[-1], rest.spectrum, atol=LIMIT)
    spread = [np.ptp(np.log(s)) for s in path[1:3]]
    assert math.log(spread[0] / spread[1]) / (late - early) == pytest.approx(slow, rel=RATE)
    assert rest.stable
    value = ((size - 1) * (1 - 1 / depth) / (2 * beta)) ** (1 / power)
    assert rest.spectrum[0] == pytest.approx(value, rel=1e-14)
    pair = equilibrium_rates(value, (power - 1) * value ** (power - 2), size, beta, depth, normalised=True)
    np.testing.assert_allclose(np.sort(np.ravel(pair)), rest.rates[[0, -1]], rtol=1e-12)


@pytest.mark.covers("geometry:F34", "geometry:S42", "geometry:S43")
def test_reference_values() -> None:
    rest = equilibrium(PowerEnergy(2.0), 10, 1.0, math.inf)
    assert rest.spectrum[0] == pytest.approx(2.1213203436, abs=1e-10)
    np.testing.assert_allclose(rest.rates, [22 / 3] * 9 + [9], rtol=1e-13)
    other = equilibrium(PowerEnergy(1.0), 4, 2.0, math.inf)
    assert other.spectrum[0] == pytest.approx(0.75, abs=1e-14)
    np.testing.assert_allclose(other.rates, [5 / 12] * 3 + [3 / 4], rtol=1e-13)
    for d, p, beta in ((4, 1.2, 0.5), (10, 3.0, 2.0)):
        rates = equilibrium(PowerEnergy(p), d, beta, math.inf).rates
        expected = [(3 * (p - 1) * (d - 1) + 2 * d - 3) / (6 * beta), p * (d - 1) / (2 * beta)]
        np.testing.assert_allclose(rates[[0, -1]], np.sort(expected), rtol=1e-12)
    whole, part = (equilibrium(PowerEnergy(2.0), 4, 1.0, 5, normalised=n).rates for n in (False, True))
    np.testing.assert_allclose(whole, 5 * part, rtol=1e-13)


@pytest.mark.covers("geometry:S42")
def test_two_layers_two_values_and_the_nuclear_norm_leave_a_direction_free() -> None:
    rest = equilibrium(PowerEnergy(1.0), 2, 1.0, 2)
    assert rest.rates[0] == pytest.approx(0.0, abs=1e-14)
    assert rest.rates[1] > 0.1


def _fall(s: Array) -> Array:
    return jnp.exp(-s)


def _fall_slope(s: Array) -> Array:
    return -jnp.exp(-s)


def _logarithm(s: Array) -> Array:
    return jnp.log(s)


def _logarithm_slope(s: Array) -> Array:
    return 1 / s


@pytest.mark.covers("geometry:F34", "geometry:S44", "geometry:E12", "geometry:F47")
def test_convex_energies(seed: int) -> None:
    energy = SpectralEnergy(jnp.exp, jnp.exp)
    rest = equilibrium(energy, 4, 0.8, math.inf)
    s = rest.spectrum[0]
    assert s * math.exp(s) == pytest.approx(3 / 1.6, rel=1e-14)
    start = np.exp(np.random.default_rng(seed).uniform(-1, 1, 4))
    np.testing.assert_allclose(flow(np.exp, start, 0.8, math.inf, [30 / rest.rates[0]])[-1], rest.spectrum, atol=LIMIT)
    np.testing.assert_allclose(
        np.ravel(equilibrium_rates(s, math.exp(s), 4, 0.8, math.inf)), rest.rates[[0, -1]], rtol=1e-12
    )
    assert has_equilibrium(energy, 4, 0.8, math.inf)
    falling = SpectralEnergy(_fall, _fall_slope)
    assert not has_equilibrium(falling, 3, 1.0, math.inf)
    with pytest.raises(HypothesisError, match="an equilibrium exists"):
        equilibrium(falling, 3, 1.0, math.inf)
    logarithm = SpectralEnergy(_logarithm, _logarithm_slope)  # s f' = 1 everywhere
    assert has_equilibrium(logarithm, 3, 1.1, math.inf)
    assert not has_equilibrium(logarithm, 3, 0.9, math.inf)


@pytest.mark.covers("geometry:F35", "geometry:S45")
def test_equal_values_lose_their_stability_at_the_critical_power() -> None:
    for size, depth in ((2, math.inf), (5, math.inf), (5, 4)):
        threshold = critical_power(size, depth)
        for power, stable in ((threshold + 1e-6, True), (threshold - 1e-6, False)):
            assert equilibrium(PowerEnergy(power), size, 1.3, depth).stable is stable
        assert float(split_power(0.0, size, depth)) == pytest.approx(threshold, rel=1e-14)
        assert float(split_power(2e-6, size, depth)) == pytest.approx(threshold, rel=1e-5)
    assert critical_power(5, math.inf) == pytest.approx(5 / 12, rel=1e-14)


@pytest.mark.covers("geometry:F35", "geometry:S45")
@pytest.mark.parametrize(
    ("size", "power", "start", "end"),
    [
        (2, 0.6, [0.5, 0.3], [0.6458, 0.0868]),
        (5, 0.4, [6.0, 5.5, 5.2, 5.1, 3.0], [8.6077, 8.6077, 8.6077, 8.6077, 0.2116]),
        (5, 0.45, [6.0, 5.5, 5.2, 5.1, 1.0], [6.1189, 6.1189, 6.1189, 6.1189, 0.9179]),
    ],
)
def test_a_value_splits_off(size: int, power: float, start: list[float], end: list[float]) -> None:
    states = split_equilibria(power, size, 1.0, math.inf)
    np.testing.assert_allclose(states[0].spectrum, end, atol=1e-3)
    assert states[0].stable and not any(state.stable for state in states[1:])
    limit = flow(lambda s: s ** (power - 1), np.array(start), 1.0, math.inf, [40 / states[0].rates[0]])[-1]
    np.testing.assert_allclose(np.sort(limit)[::-1], states[0].spectrum, atol=1e-7)
    for state in states:
        force = state.spectrum ** (power - 1) - plain_slopes(state.spectrum, math.inf)
        np.testing.assert_allclose(force, 0.0, atol=1e-10)


@pytest.mark.covers("geometry:F35")
def test_both_attractors_coexist_just_above_the_critical_power() -> None:
    even = equilibrium(PowerEnergy(0.45), 5, 1.0, math.inf)
    assert even.stable
    np.testing.assert_allclose(even.spectrum, 4.666, atol=1e-3)
    split, barrier = split_equilibria(0.45, 5, 1.0, math.inf)
    assert split.stable and not barrier.stable
    assert split_equilibria(1.0, 5, 1.0, math.inf) == ()
    (double,) = split_equilibria(0.3, 2, 2.0, math.inf)  # β only scales the values
    (single,) = split_equilibria(0.3, 2, 1.0, math.inf)
    np.testing.assert_allclose(double.spectrum, single.spectrum * 2 ** (-1 / 0.3), rtol=1e-12)


@pytest.mark.covers("geometry:F47")
def test_refusals() -> None:
    energy = PowerEnergy(2.0)
    with pytest.raises(ValueError, match="size must be at least 2"):
        equilibrium(energy, 1, 1.0, 2)
    with pytest.raises(ValueError, match="inverse temperature"):
        equilibrium(energy, 3, 0.0, 2)
    with pytest.raises(ValueError, match="a single layer has no entropy"):
        critical_power(3, 1)
    with pytest.raises(TypeError, match="energy must be a sum of f"):
        unchecked(equilibrium)(NegativeEntropy(2), 3, 1.0, 2)
    with pytest.raises(ValueError, match="low must be at most 2"):
        split_equilibria(0.3, 3, 1.0, 2, low=3)
    with pytest.raises(ValueError, match="power must be greater than 0"):
        split_equilibria(0.0, 3, 1.0, 2)
    with pytest.raises(ValueError, match="value must be positive"):
        equilibrium_rates(0.0, 1.0, 3, 1.0, 2)
