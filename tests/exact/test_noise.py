"""Expected loss under noise in inputs and weights, and the relative scale that bears it best."""

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq

from deeplinear.exact import input_noise_loss, noise_optimal_lambda, noisy_loss, weight_noise_loss
from deeplinear.models import Completion, DeepLinear, Problem, Regression, SquaredDistance

ROUNDING = 1e-12
"""A few thousand roundings."""

STANDARD_ERRORS = 4.0
"""A Monte Carlo mean misses by more with probability 6e-5."""

DRAWS = 20_000


def trained(rng: np.random.Generator, widths: tuple[int, int, int], lam: float) -> tuple[np.ndarray, ...]:
    """Strengths and the two layers of a λ-balanced network, by the formulas of the text."""
    inp, hidden, out = widths
    u, v = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in (out, inp))
    turn = np.linalg.qr(rng.normal(size=(hidden, hidden)))[0]
    s = rng.uniform(0.2, 2.0, size=min(widths))
    first, second = np.zeros((hidden, inp)), np.zeros((out, hidden))
    for k in range(hidden):
        value = s[k] if k < len(s) else 0.0
        root = math.sqrt(value**2 + lam**2 / 4)
        if k < inp:
            first[k, k] = math.sqrt(max(root - lam / 2, 0.0))
        if k < out:
            second[k, k] = math.sqrt(max(root + lam / 2, 0.0))
    return s, turn @ first @ v.T, u @ second @ turn.T


def z_score(values: np.ndarray, wanted: float) -> float:
    return (float(values.mean()) - wanted) / (float(values.std(ddof=1)) / math.sqrt(len(values)))


@pytest.mark.covers("exact:F22", "exact:S21", "exact:E20")
def test_input_noise_against_monte_carlo(seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    x = rng.normal(size=(3, 8))
    values, vectors = np.linalg.eigh(x @ x.T / 8)
    x = (vectors / np.sqrt(values)) @ vectors.T @ x
    y = rng.normal(size=(2, 8))
    target = y @ x.T / 8
    floor = 0.5 * (np.sum(y**2) / 8 - np.sum(target**2))
    std = 0.5
    noise = std * rng.normal(size=(DRAWS, 3, 8))
    losses = np.sum((target @ (x + noise) - y) ** 2, axis=(1, 2)) / 16
    strengths = np.linalg.svd(target, compute_uv=False)
    assert abs(z_score(losses, float(input_noise_loss(strengths, std, floor)))) < STANDARD_ERRORS
    assert z_score(losses, float(input_noise_loss(strengths, std, floor, as_printed=True))) < -40
    problem = Problem(DeepLinear((3, 2, 2)), Regression.from_data(x, y))
    params = (jnp.asarray(target), jnp.eye(2))
    assert abs(float(noisy_loss(problem, params, input_std=std) - input_noise_loss(strengths, std, floor))) < ROUNDING


@pytest.mark.covers("exact:F22", "exact:S21", "exact:E21")
@pytest.mark.parametrize(("widths", "lam"), [((4, 3, 5), 1.5), ((5, 3, 4), -2.0)])
def test_weight_noise_against_monte_carlo(widths: tuple[int, int, int], lam: float, seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    s, first, second = trained(rng, widths, lam)
    std, target = 0.3, second @ first
    noisy_first = first + std * rng.normal(size=(DRAWS, *first.shape))
    noisy_second = second + std * rng.normal(size=(DRAWS, *second.shape))
    losses = 0.5 * np.sum((noisy_second @ noisy_first - target) ** 2, axis=(1, 2)) + 0.7
    assert abs(z_score(losses, float(weight_noise_loss(s, lam, widths, std, 0.7)))) < STANDARD_ERRORS
    # The widths of input and output are near each other, and so are the two forms; the first is rejected all the same.
    assert abs(z_score(losses, float(weight_noise_loss(s, -lam, (5, 3, 5), std, 0.7)))) > STANDARD_ERRORS


SIGNS = {bits: np.array(list(itertools.product((-1.0, 1.0), repeat=bits))) for bits in (2, 10)}
"""All patterns of signs: noise of mean zero whose average is a finite sum."""


@pytest.mark.covers("exact:S21", "exact:E20", "exact:E21")
@pytest.mark.parametrize(("widths", "lam"), [((2, 2, 3), 1.3), ((2, 2, 3), -0.7), ((3, 2, 2), -2.0)])
def test_formulas_are_exact_averages(widths: tuple[int, int, int], lam: float, seed: int) -> None:
    """The expected loss depends on second moments only, so that averaging over all signs gives it exactly."""
    rng = np.random.default_rng([seed, 3])
    inp, hidden, out = widths
    s, first, second = trained(rng, widths, lam)
    std, target = 0.8, second @ first
    noise = std * SIGNS[hidden * (inp + out)]
    below = first + noise[:, : hidden * inp].reshape(-1, hidden, inp)
    above = second + noise[:, hidden * inp :].reshape(-1, out, hidden)
    average = np.mean(0.5 * np.sum((above @ below - target) ** 2, axis=(1, 2)))
    assert abs(float(weight_noise_loss(s, lam, widths, std)) / average - 1) < ROUNDING
    printed = float(weight_noise_loss(s, lam, widths, std, as_printed=True))
    swapped = inp * np.sum(first**2) + out * np.sum(second**2)
    wanted = 0.5 * std**2 * swapped + 0.5 * inp * hidden * out * std**4
    assert abs(printed / wanted - 1) < ROUNDING and abs(printed / average - 1) > 1e-2
    # Not converged, inputs that are not white, both kinds of noise: each column of x is noisy on its own.
    x, y = rng.normal(size=(inp, 4)), rng.normal(size=(out, 4))
    products = above @ below
    inputs = 0.4 * (SIGNS[2] if inp == 2 else np.array(list(itertools.product((-1.0, 1.0), repeat=inp))))
    residuals = np.einsum("boi,nci->bonc", products, x.T[:, None] + inputs[None]) - y[None, :, :, None]
    average = np.mean(np.sum(residuals**2, axis=1)) / 2
    problem = Problem(DeepLinear(widths), Regression.from_data(x, y))
    params = (jnp.asarray(first), jnp.asarray(second))
    assert abs(float(noisy_loss(problem, params, input_std=0.4, weight_std=std)) / average - 1) < ROUNDING


def test_loss_of_weight_noise_broadcasts_and_needs_no_room_for_unused_directions() -> None:
    losses = weight_noise_loss([1.0], [[0.0], [2.0]], (1, 2, 3), [0.1, 0.2, 0.3])
    assert losses.shape == (2, 3)
    # One mode of strength 1 and one unused hidden direction of strength √λ in the second layer.
    second, first = math.sqrt(2) + 1 + 2, math.sqrt(2) - 1
    assert abs(float(losses[1, 0]) - (0.005 * (1 * second + 3 * first) + 0.5 * 6 * 1e-4)) < ROUNDING


@pytest.mark.covers("exact:F22", "exact:S22")
@pytest.mark.parametrize("widths", [(3, 3, 6), (6, 3, 3), (9, 3, 4)])
def test_optimal_lambda_against_brent_and_a_grid(widths: tuple[int, int, int], seed: int) -> None:
    rng = np.random.default_rng([seed, 4])
    inp, hidden, out = widths
    rho = (out - inp) / (out + inp)
    for _ in range(4):
        s = rng.uniform(0.1, 2.0, size=hidden)
        lam = float(noise_optimal_lambda(s, widths))
        assert abs(np.sum(lam / np.sqrt(lam**2 + 4 * s**2)) - hidden * rho) < ROUNDING
        wanted = brentq(lambda x, s=s: np.sum(x / np.sqrt(x**2 + 4 * s**2)) - hidden * rho, -50, 50, xtol=1e-14)
        assert abs(lam - wanted) < 1e-11 * max(1.0, abs(wanted))  # the root finder's own tolerance
        grid = np.arange(-5000, 5001) * 5e-4
        inside = grid[(grid > -4.0) & (grid < 4.0)]
        best = inside[int(np.argmin(np.asarray(weight_noise_loss(s, inside, widths, 0.3))))]
        assert abs(best - lam) < 2.6e-4 or abs(lam) > 2.4  # half a step of the grid, where the grid reaches
        assert float(noise_optimal_lambda(s, widths, as_printed=True)) == -lam
    assert float(noise_optimal_lambda(np.ones(hidden), (hidden, hidden, hidden))) == 0.0


def reference(s: list[float], widths: tuple[int, int, int]) -> Any:
    """The root by halving, in more digits than the strengths are apart."""
    inp, hidden, out = widths
    with mpmath.workdps(700 if 1e-160 in s else 60):
        zeros = hidden - sum(x > 0 for x in s)
        wanted = mpmath.mpf(hidden * abs(out - inp)) / (out + inp) - zeros
        low, high = mpmath.mpf(-900), mpmath.mpf(900)
        for _ in range(1200 if 1e-160 in s else 230):
            middle = (low + high) / 2
            lam = mpmath.exp(middle)
            total = mpmath.fsum(lam / mpmath.sqrt(lam**2 + 4 * mpmath.mpf(x) ** 2) for x in s if x > 0)
            low, high = (middle, high) if total < wanted else (low, middle)
        return mpmath.exp(low) * (1 if out > inp else -1)


@pytest.mark.covers("exact:F22", "exact:S22")
@pytest.mark.parametrize(
    ("s", "widths"),
    [
        ([1.0, 1e-10, 3.0], (3, 3, 6)),  # the terms of both ends are at their plateaus
        ([1e-160, 1e150, 3.0], (6, 3, 3)),
        ([1.0, 0.0, 0.3], (30, 3, 3)),
        ([0.7], (1, 3, 30)),  # two unused hidden directions, fewer than 3 · 29/31
        ([1e-300, 2e-300], (2, 2, 3)),
    ],
)
def test_optimal_lambda_for_strengths_of_any_size(s: list[float], widths: tuple[int, int, int]) -> None:
    wanted = reference(s, widths)
    assert abs(float(noise_optimal_lambda(s, widths)) / float(wanted) - 1) < ROUNDING


@pytest.mark.covers("exact:F22")
@pytest.mark.parametrize(("s", "widths"), [([1.0, 0.4, 0.2], (5, 3, 7)), ([1.0, 0.0, 0.3], (30, 3, 3))])
def test_optimal_lambda_is_differentiable(s: list[float], widths: tuple[int, int, int]) -> None:
    best = functools.partial(noise_optimal_lambda, widths=widths)
    lam, gradient, curvature = jax.jit(lambda x: (best(x), jax.grad(best)(x), jax.hessian(best)(x)))(jnp.asarray(s))
    # λ is homogeneous of degree one.
    assert abs(float(gradient @ jnp.asarray(s)) - float(lam)) < ROUNDING * abs(float(lam))
    for k in (k for k, value in enumerate(s) if value > 0):
        up, down = ([v + (step if j == k else 0) for j, v in enumerate(s)] for step in (1e-5, -1e-5))
        quotient = (reference(up, widths) - reference(down, widths)) / 2e-5
        assert abs(float(gradient[k]) - float(quotient)) < 1e-7  # second-order difference
    np.testing.assert_allclose(curvature @ jnp.asarray(s), 0.0, atol=1e-10)


def test_optimal_lambda_at_the_kink() -> None:
    """One zero mode of three bears |ρ| up to 1/3; (4, 3, 3) has 1/7, (6, 3, 3) has exactly 1/3."""
    for widths in ((4, 3, 3), (6, 3, 3), (3, 3, 6)):
        lam = float(noise_optimal_lambda([1.0, 0.0, 0.3], widths))
        assert lam == 0.0 and math.copysign(1.0, lam) == 1.0
        losses = weight_noise_loss([1.0, 0.0, 0.3], [-1e-3, 0.0, 1e-3], widths, 0.2)
        assert float(losses[1]) < float(losses[0]) and float(losses[1]) < float(losses[2]) + 1e-18
    slope = jax.jit(jax.grad(lambda x: noise_optimal_lambda(x, (4, 3, 3))))(jnp.array([1.0, 0.0, 0.3]))
    assert not np.any(np.asarray(slope))
    assert float(noise_optimal_lambda([0.0, 0.0, 0.0], (3, 3, 9))) == 0.0


@pytest.mark.covers("exact:F35")
def test_refusals() -> None:
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.eye(2)))
    params = (jnp.eye(2), jnp.eye(2))
    with pytest.raises(ValueError, match=r"input_noise_loss: std must not be negative, but holds -0.1"):
        input_noise_loss([1.0], -0.1)
    with pytest.raises(ValueError, match=r"strengths must not be negative, but holds -1"):
        weight_noise_loss([1.0, -1.0], 0.0, (2, 2, 2), 0.1)
    with pytest.raises(ValueError, match=r"strengths must be finite"):
        noise_optimal_lambda([math.nan], (1, 1, 1))
    with pytest.raises(ValueError, match=r"at most 2 numbers for widths \(2, 3, 4\), but are 3"):
        noise_optimal_lambda([1.0, 1.0, 1.0], (2, 3, 4))
    with pytest.raises(ValueError, match=r"widths must be \(input, hidden, output\)"):
        noise_optimal_lambda([1.0], (2, 3))
    with pytest.raises(ValueError, match=r"the hidden width must be at least 1, but is 0"):
        noise_optimal_lambda([1.0], (2, 0, 2))
    with pytest.raises(ValueError, match=r"lam > 0 needs at least as many outputs as hidden units"):
        weight_noise_loss([1.0], [-1.0, 1.0], (2, 2, 1), 0.1)
    with pytest.raises(ValueError, match=r"lam < 0 needs at least as many inputs as hidden units"):
        weight_noise_loss([1.0], -1.0, (1, 2, 2), 0.1)
    with pytest.raises(ValueError, match=r"noisy_loss: weight_std must not be negative"):
        noisy_loss(problem, params, weight_std=-1.0)
    with pytest.raises(TypeError, match=r"must be Regression or SquaredDistance, but is Completion"):
        noisy_loss(Problem(DeepLinear((2, 2, 2)), Completion(np.eye(2), np.eye(2, dtype=bool))), params)
    with pytest.raises(TypeError, match=r"two feed-forward layers"):
        noisy_loss(Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2))), (jnp.eye(2),))
    with pytest.raises(ValueError, match=r"no penalty, but its l2 is 0.1"):
        noisy_loss(Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.eye(2)), l2=0.1), params)
