"""Two layers between one input and one output: against SciPy, Taylor series in 40 digits, and values by hand."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.exact import (
    single_channel,
    single_channel_limit,
    single_channel_rate,
    single_node_equilibrium,
    single_node_exponents,
)

AGAINST_FLOW = 1e-10  # required; DOP853 at rtol 1e-13
REFERENCE = 5e-12  # values of 12 digits
TIMES = np.array([0.0, 0.5, 2.0, 10.0])


def flow(first: np.ndarray, second: np.ndarray, sigma: float, times: np.ndarray) -> np.ndarray:
    def field(_: float, y: np.ndarray) -> np.ndarray:
        a, b = np.split(y, 2)
        return (sigma - a @ b) * np.concatenate([b, a])

    start = np.concatenate([first, second])
    run = solve_ivp(field, (0, times[-1]), start, method="DOP853", rtol=1e-13, atol=1e-15, t_eval=times)
    return run.y.T


@pytest.mark.covers("network:F34", "network:C39")
def test_the_solution_is_the_flow(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(4):
        first, second, sigma = rng.normal(size=3), rng.normal(size=3), float(rng.uniform(0.3, 3))
        found = np.concatenate(single_channel(TIMES, first, second, sigma), axis=-1)
        np.testing.assert_allclose(found, flow(first, second, sigma, TIMES), atol=AGAINST_FLOW)
        np.testing.assert_array_equal(np.isfinite(np.concatenate(single_channel(1e6, first, second, sigma))), True)
        a, b = single_channel_limit(first, second, sigma)
        np.testing.assert_allclose(np.concatenate(single_channel(1e6, first, second, sigma)), [*a, *b], rtol=1e-14)
        assert abs(float(a @ b) - sigma) < 1e-13 * (1 + float(a @ a))
        law = np.outer(a, a) - np.outer(b, b) - np.outer(first, first) + np.outer(second, second)
        assert np.max(np.abs(law)) < 1e-13
        late = np.array([8.0, 9.0]) / float(single_channel_rate(first, second, sigma))
        rest = [sigma - float(np.dot(*single_channel(t, first, second, sigma))) for t in late]
        assert np.log(rest[0] / rest[1]) == pytest.approx(1.0, abs=5e-3)


@pytest.mark.covers("network:F34")
def test_sums_and_differences_of_zero(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = rng.normal(size=3)
    sigma = float(rng.uniform(0.3, 3))
    for second in (first, -first):
        early = TIMES[:3]  # an exact start on the way to the saddle does not stay there for SciPy
        found = np.concatenate(single_channel(early, first, second, sigma), axis=-1)
        np.testing.assert_allclose(found, flow(first, second, sigma, early), atol=AGAINST_FLOW)
    a, b = single_channel(np.array([1e6, np.inf]), first, -first, sigma)
    np.testing.assert_array_equal(np.concatenate([a, b]), 0)
    a, b = single_channel_limit(first, first, sigma)
    np.testing.assert_allclose(a, first * np.sqrt(sigma) / np.linalg.norm(first), rtol=1e-14)
    np.testing.assert_array_equal(a, b)
    zero = single_channel(TIMES, np.zeros(3), np.zeros(3), sigma)
    np.testing.assert_array_equal(np.concatenate(zero), 0)


def test_to_rounding() -> None:
    """Against Taylor series in 22 digits."""
    with mpmath.workdps(22):
        wanted = mpmath.odefun(
            lambda _, y: [(2 - y[0] * y[1]) * y[1], (2 - y[0] * y[1]) * y[0]], 0, [mpmath.mpf(0.5), mpmath.mpf(-0.25)]
        )(0.5)
    found = np.concatenate(single_channel(0.5, [0.5], [-0.25], 2.0))
    np.testing.assert_allclose(found, [float(x) for x in wanted], rtol=2e-15)


@pytest.mark.covers("network:N4")
def test_recorded_values() -> None:
    cases = [
        (([1.0], [-0.5], 1.0, 1.0), [0.952002436744, 0.395358874399]),
        (([1.0], [-0.5], 1.0, np.inf), [1.201249544501, 0.832466496722]),
        (([1.0, 0.0], [0.5, -2.0], 3.0, 0.25), [1.222884222395, -0.671866487073, 0.863392043850, -2.109835201254]),
        (([1.0], [-1.0], 2.0, 0.5), [0.307385669393, -0.307385669393]),
    ]
    for (first, second, sigma, t), wanted in cases:
        np.testing.assert_allclose(np.concatenate(single_channel(t, first, second, sigma)), wanted, rtol=REFERENCE)


@pytest.mark.covers("network:F35", "network:C39")
def test_the_equilibrium_of_one_unit_in_all_wedges(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sigma = float(rng.uniform(0.3, 3))
    angles = np.repeat(np.pi / 4 * np.array([-0.8, 0.3, 1.5, 2.5, 3.5, 4.6, 5.5, 6.5]), 3)
    w1, w2 = rng.uniform(0.3, 3, 24) * np.array([np.cos(angles), np.sin(angles)])
    found = np.stack(single_node_equilibrium(w1, w2, sigma))
    np.testing.assert_allclose(found[0] * found[1], sigma, rtol=1e-14)
    np.testing.assert_allclose(found[0] ** 2 - found[1] ** 2, w1**2 - w2**2, atol=1e-12)
    np.testing.assert_array_equal(np.sign(found), np.sign(w1 + w2)[None].repeat(2, 0))
    limits = jax.vmap(lambda a, b: single_channel_limit(a[None], b[None], sigma))(jnp.asarray(w1), jnp.asarray(w2))
    np.testing.assert_allclose(found, np.stack(limits)[..., 0], rtol=1e-12)
    exponents = np.asarray(single_node_exponents(*found, sigma))
    np.testing.assert_allclose(exponents[:, 0], -(sigma**2 + found[0] ** 4) / found[0] ** 2, rtol=1e-12)
    np.testing.assert_allclose(exponents[:, 0], -np.sqrt((w1**2 - w2**2) ** 2 + 4 * sigma**2), rtol=1e-12)
    np.testing.assert_allclose(exponents[:, 1], 0, atol=1e-12)
    for a, b, pair in zip(w1, w2, np.asarray(single_node_exponents(w1, w2, sigma)), strict=True):
        jacobian = [[-(b**2), sigma - 2 * a * b], [sigma - 2 * a * b, -(a**2)]]
        np.testing.assert_allclose(pair, np.linalg.eigvalsh(jacobian), atol=1e-12)
    np.testing.assert_array_equal(single_node_exponents(0.0, 0.0, sigma), [-sigma, sigma])
    np.testing.assert_array_equal(np.stack(single_node_equilibrium(0.7, -0.7, sigma)), 0)
    # A wedge far out: the smaller weight keeps its digits.
    a, b = single_node_equilibrium(1e-3, -1e8, 1.0)
    assert float(a) == pytest.approx(-1e-8, rel=1e-12) and float(b) == pytest.approx(-1e8, rel=1e-12)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="one axis of hidden units"):
        single_channel(1.0, [1.0], [1.0, 2.0], 1.0)
    with pytest.raises(ValueError, match="sigma must be greater than 0"):
        single_channel(1.0, [1.0], [1.0], -1.0)
    with pytest.raises(ValueError, match="times must be at least 0"):
        single_channel(-1.0, [1.0], [1.0], 1.0)
