"""Integrators: orders of convergence, stability and error estimates on equations with known solutions."""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jaxtyping import Array, Float
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from deeplinear.core import AbstractField, AbstractIntegrator, Exponential, Stabilised, kvaerno5, phi
from deeplinear.core._coefficients import DOPRI8, KVAERNO5, TSIT5
from zoo import ALL_INTEGRATORS


class Gradient(AbstractField):
    """Flow of a polynomial potential with a stiff direction: symmetric Jacobian, not linear."""

    stiffness: Float[Array, ""]

    def __call__(self, y: Float[Array, " size"]) -> Float[Array, " size"]:
        a, b, c = y
        gap = a * b * c - 1.0
        stiff = self.stiffness * (a - b)
        return -jnp.stack([gap * b * c + stiff, gap * a * c - stiff, gap * a * b])

    def linearize(self, y: Float[Array, " size"]) -> tuple[Float[Array, " size"], Callable]:
        value, derivative = jax.linearize(self.__call__, y)
        return value, derivative


def numpy_field(stiffness: float) -> Callable:
    def field(_: float, y: np.ndarray) -> np.ndarray:
        a, b, c = y
        gap = a * b * c - 1.0
        return -np.array([gap * b * c + stiffness * (a - b), gap * a * c - stiffness * (a - b), gap * a * b])

    return field


START = np.array([0.3, 0.9, 1.4])


@eqx.filter_jit
def integrate(
    integrator: AbstractIntegrator, field: AbstractField, y: Array, end: Array, steps: Array, rho: Array
) -> Array:
    h = end / steps

    def body(_: Array, carry: tuple) -> tuple:
        step = integrator.step(field, *carry, h, rho, jnp.asarray(1e-12))
        return step.y, step.f

    return jax.lax.fori_loop(0, steps.astype(int), body, (y, field(y)))[0]


@pytest.mark.parametrize("case", ALL_INTEGRATORS, ids=lambda case: case.name)
def test_order_of_convergence(case) -> None:
    """Halving the step divides the error by 2^p."""
    exact = solve_ivp(numpy_field(1.0), (0, 2.0), START, method="DOP853", rtol=1e-13, atol=1e-15).y[:, -1]
    field, start = Gradient(jnp.asarray(1.0)), jnp.asarray(START)
    errors = []
    for steps in case.steps:
        # A spectral radius above the true one makes the stabilised methods use several stages more than they must.
        y = integrate(case.integrator, field, start, jnp.asarray(2.0), jnp.asarray(float(steps)), jnp.asarray(40.0))
        errors.append(np.linalg.norm(np.asarray(y) - exact))
    ratios = np.log2(np.array(case.steps[1:]) / np.array(case.steps[:-1]))
    order = np.log2(np.array(errors[:-1]) / np.array(errors[1:])) / ratios
    assert errors[-1] > 1e-13, "the finest error must stand above rounding for the slope to mean anything"
    assert np.all(order > case.order - 0.5), order


@pytest.mark.parametrize("interval", [5.0, 60.0, 1_200.0, 20_000.0])
def test_order_of_the_stabilised_method_with_any_number_of_stages(interval: float) -> None:
    """From 5 stages to 240: the same row of the table for every step size, whatever the problem needs."""
    exact = solve_ivp(numpy_field(1.0), (0, 2.0), START, method="DOP853", rtol=1e-13, atol=1e-15).y[:, -1]
    field, start = Gradient(jnp.asarray(1.0)), jnp.asarray(START)
    errors = []
    for steps in (20.0, 40.0, 80.0):
        rho = jnp.asarray(interval * steps / 2.0)
        y = integrate(Stabilised(), field, start, jnp.asarray(2.0), jnp.asarray(steps), rho)
        errors.append(np.linalg.norm(np.asarray(y) - exact))
    assert errors[-1] > 1e-12
    assert np.all(np.log2(np.array(errors[:-1]) / np.array(errors[1:])) > 3.5), errors


@pytest.mark.parametrize("case", ALL_INTEGRATORS, ids=lambda case: case.name)
def test_order_of_the_error_estimate(case) -> None:
    """The estimated error of one step falls like the power of the step size that the controller assumes."""
    field, start = Gradient(jnp.asarray(1.0)), jnp.asarray(START)
    step = jax.jit(lambda h: case.integrator.step(field, start, field(start), h, 0.2 / h, jnp.asarray(1e-12)).error)
    sizes = np.array([0.1, 0.05, 0.025])
    estimates = np.array([np.linalg.norm(step(jnp.asarray(h))) for h in sizes])
    assert estimates[-1] > 1e-15, "the smallest estimate must stand above rounding"
    power = np.log2(estimates[:-1] / estimates[1:])
    assert np.all(power > case.integrator.error_order - 0.6), power


def test_phi_functions_against_extended_precision() -> None:
    """phi_k(z) = (phi_{k-1}(z) - 1/(k-1)!) / z at fifty digits, from -1e12 to 3 and across the change to the series."""
    points = np.concatenate([-np.geomspace(1e-20, 1e12, 33), [0.0, 1e-9, 0.5, 1.0, 3.0, -1.0, -0.999999, -1.000001]])
    with mpmath.workdps(60):
        for order in (1, 3, 4):
            ours = np.asarray(phi(order, jnp.asarray(points)))
            for z, value in zip(points, ours, strict=True):
                exact = mpmath.hyp1f1(1, order + 1, mpmath.mpf(z)) / mpmath.factorial(order)
                assert value == pytest.approx(float(exact), rel=5e-15), (order, z)


@pytest.mark.parametrize("case", [c for c in ALL_INTEGRATORS if c.stabilised], ids=lambda case: case.name)
@pytest.mark.parametrize("product", [3.0, 50.0, 2_000.0, 30_000.0])
def test_stabilised_methods_damp_the_whole_spectrum(case, product: float) -> None:
    """On y' = -k y all rates up to rho shrink in one step of size product/rho, rounding included."""

    class Decay(AbstractField):
        rates: Float[Array, " size"]

        def __call__(self, y):
            return -self.rates * y

        def linearize(self, y):
            return -self.rates * y, lambda v: -self.rates * v

    rates = jnp.linspace(0.0, 1.0, 4001)
    y = jnp.ones_like(rates)
    step = case.integrator.step(Decay(rates), y, -rates, jnp.asarray(product), jnp.asarray(1.0), jnp.asarray(1e-8))
    amplification = np.abs(np.asarray(step.y))
    assert amplification[0] == pytest.approx(1.0, abs=1e-12)
    assert amplification.max() <= 1 + 1e-10
    # Away from zero the damping is strict.
    assert amplification[np.asarray(rates) * product > 5].max(initial=0.0) < 0.99


@pytest.mark.parametrize(("own", "known"), [(TSIT5, diffrax.Tsit5), (DOPRI8, diffrax.Dopri8)], ids=["tsit5", "dopri8"])
def test_the_coefficients_are_those_of_diffrax_to_the_last_digit(own, known) -> None:
    assert own.rows == tuple(tuple(row.tolist()) for row in known.tableau.a_lower)
    assert (*own.rows[-1], 0.0) == tuple(known.tableau.b_sol.tolist()) and own.error == tuple(
        known.tableau.b_error.tolist()
    )


class Linear(AbstractField):
    """The linear field of a symmetric matrix."""

    matrix: Float[Array, "size size"]

    def __call__(self, y):
        return self.matrix @ y

    def linearize(self, y):
        return self.matrix @ y, lambda v: self.matrix @ v


def test_an_exponential_step_leaves_alone_what_it_cannot_reach() -> None:
    """Two copies of one linear system share all eigenvalues; that which rests, rests to the last bit."""
    half = np.random.default_rng(0).standard_normal((5, 5))
    half = -half @ half.T
    field = Linear(jnp.asarray(np.kron(half, np.eye(2))))
    start = jnp.asarray(np.tile([1.0, 0.0], 5))
    step = Exponential().step(field, start, field(start), jnp.asarray(3.0), jnp.ones(()), jnp.ones(()))
    np.testing.assert_allclose(step.y[::2], expm(3.0 * half) @ np.ones(5), atol=1e-12)
    np.testing.assert_array_equal(step.y[1::2], np.zeros(5))
    assert int(step.evaluations) == 2 * 10 + 3


def test_an_implicit_step_counts_no_gradients() -> None:
    """Its cost is linear algebra, which the number of gradients does not show."""
    field = Linear(-jnp.eye(2))
    start = jnp.ones(2)
    step = kvaerno5().step(field, start, field(start), jnp.asarray(0.1), jnp.ones(()), jnp.asarray(1e-9))
    np.testing.assert_allclose(step.y, np.exp(-0.1), rtol=1e-8)
    assert int(step.evaluations) == 0


def test_the_coefficients_of_the_implicit_method_are_those_of_diffrax() -> None:
    known: Any = diffrax.Kvaerno5.tableau
    assert KVAERNO5.rows == tuple(tuple(row.tolist()) for row in known.a_lower)
    assert KVAERNO5.guesses == tuple(tuple(row.tolist()) for row in known.a_predictor)
    assert KVAERNO5.error == tuple(known.b_error.tolist())
    assert known.a_diagonal.tolist() == [0.0, *[KVAERNO5.diagonal] * 6]


def test_an_exponential_step_is_exact_for_a_chain_whose_far_end_is_many_links_away() -> None:
    """A linear field is solved in one step of any size: by SciPy's exponential of the matrix."""
    size, length = 12, 3.0
    matrix = np.eye(size, k=1) + np.eye(size, k=-1) - 2 * np.eye(size)
    matrix[-2:-1, -1] = matrix[-1, -2:-1] = 0.0  # the last entry is linked to none and stays zero to the last bit
    start = np.eye(size)[0]
    field = Linear(jnp.asarray(matrix))
    step = Exponential().step(field, jnp.asarray(start), field(start), jnp.asarray(length), jnp.ones(()), jnp.ones(()))
    np.testing.assert_allclose(step.y, expm(length * matrix) @ start, atol=1e-14)
    assert float(step.y[-1]) == 0.0
