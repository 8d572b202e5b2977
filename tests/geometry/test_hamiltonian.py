"""The geodesic equations: gradient of the energy by differences, closed form against the sum over layers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.geometry import Metric, geodesic_field, geodesic_field_sum, hamiltonian, layer_exponents

DEPTHS = (1, 2, 3, 5, 40, math.inf)

FORMS = 1e-9
"""Relative difference allowed between the two ways to write the equations."""

field = jax.jit(geodesic_field)
field_sum = jax.jit(geodesic_field_sum)
energy = jax.jit(jax.vmap(lambda metric, x, p: 0.5 * jnp.sum(p * metric.apply(x, p)), in_axes=(None, 0, None)))


def spectra(rng: np.random.Generator) -> list[np.ndarray]:
    """Apart, close, equal, far apart."""
    return [np.array(v) for v in ((1.7, 0.9, 0.3), (1.0, 1.0 - 1e-7, 0.4), (1.3, 1.3, 1.3), (2.0, 1.0, 2e-6))]


@pytest.mark.covers("geometry:F20")
@pytest.mark.parametrize("depth", DEPTHS)
def test_the_two_forms_agree_at_every_spectrum(depth: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for values in spectra(rng):
        left, right = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2))
        x, p = jnp.asarray((left * values) @ right), jnp.asarray(rng.standard_normal((3, 3)))
        for normalised in (False, True):
            metric = Metric(depth, normalised=normalised)
            closed, summed = field(metric, x, p), field_sum(layer_exponents(metric), x, p)
            for one, other in zip(closed, summed, strict=True):
                np.testing.assert_allclose(one, other, atol=FORMS * max(float(jnp.max(jnp.abs(other))), 1e-300))


@pytest.mark.covers("geometry:F20", "geometry:S20", "geometry:E3")
@pytest.mark.parametrize("depth", DEPTHS)
def test_the_force_is_minus_the_gradient_of_the_energy(depth: float, seed: int) -> None:
    """With the operator itself in the energy; with its inverse, as in Equation 3.37, it is not."""
    rng = np.random.default_rng(seed)
    for values in spectra(rng)[:3]:
        left, right = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2))
        x, p = jnp.asarray((left * values) @ right), jnp.asarray(rng.standard_normal((3, 3)))
        metric = Metric(depth)
        velocity, force = field(metric, x, p)
        np.testing.assert_allclose(velocity, metric.apply(x, p), atol=1e-12 * float(jnp.max(jnp.abs(velocity))))
        assert float(hamiltonian(metric, x, p)) == pytest.approx(float(jnp.sum(p * velocity)) / 2, rel=1e-12)
        steps = 1e-3 * np.eye(9).reshape(9, 3, 3)
        slopes = [
            np.asarray(energy(metric, x + h * steps, p) - energy(metric, x - h * steps, p)) / (2e-3 * h)
            for h in (1.0, 0.5)
        ]
        wanted = -((4 * slopes[1] - slopes[0]) / 3).reshape(3, 3)
        scale = max(float(np.max(np.abs(wanted))), 1e-3)
        np.testing.assert_allclose(force, wanted, atol=1e-6 * scale)
        if depth > 1:
            inverse = np.asarray(
                [0.5 * float(metric.inner(x + s, p, p) - metric.inner(x - s, p, p)) / 2e-3 for s in steps]
            )
            assert np.max(np.abs(np.asarray(force) + inverse.reshape(3, 3))) > 1e-3 * scale


def test_refusals() -> None:
    with pytest.raises(ValueError, match="momentum must have shape"):
        hamiltonian(Metric(2), jnp.eye(2), jnp.eye(3))
