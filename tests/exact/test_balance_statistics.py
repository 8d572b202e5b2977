"""Balance of random layers: moments, tables and spectrum against fractions, quadrature and sampling."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.exact import (
    balance_moments,
    balance_spread,
    expected_lambda,
    lambda_limits,
    lambda_range,
    lambda_sign_boundary,
    lambda_variance,
    layer_variances,
)
from deeplinear.models import Gaussian, Glorot, He, LeCun, MatchedGaussian, Orthogonal, Scaled

ROUNDING = 1e-12
STANDARD_ERRORS = 4.0
"""A Monte Carlo mean misses by more with probability 6e-5."""
GAINS = (Fraction(3, 2), Fraction(5, 4))
RULES = {"LeCun": LeCun(), "He": He(), "Glorot": Glorot(), "Scaled": Scaled([1.5, 1.25])}


def variances(name: str, widths: tuple[int, int, int]) -> tuple[Fraction, Fraction]:
    """The definitions, in exact fractions."""
    n0, n1, n2 = (Fraction(n) for n in widths)
    if name == "Glorot":
        return 2 / (n0 + n1), 2 / (n1 + n2)
    if name == "Scaled":
        return GAINS[0] ** 2 / n0, GAINS[1] ** 2 / n1
    size = 2 if name == "He" else 1
    return size / n0, size / n1


@pytest.mark.covers("exact:F24", "exact:S29", "exact:E11", "exact:E12")
@pytest.mark.parametrize("name", RULES)
def test_tables_1_and_2_are_exact(name: str) -> None:
    init = RULES[name]
    for widths in ((160, 80, 120), (40, 120, 250), (7, 3, 11), (5, 5, 5)):
        v1, v2 = variances(name, widths)
        n0, n1, n2 = widths
        np.testing.assert_allclose(layer_variances(init, widths), [float(v1), float(v2)], rtol=ROUNDING)
        moments = balance_moments(widths, layer_variances(init, widths))
        mean, base = n2 * v2 - n0 * v1, n2 * v2**2 + n0 * v1**2
        k, r = n1 / n0, n2 / n0
        assert abs(float(moments.mean) - float(mean)) < ROUNDING
        assert abs(float(expected_lambda(init, k, r)) - float(mean)) < ROUNDING
        assert abs(float(moments.off_diagonal) / float(base) - 1) < ROUNDING
        assert abs(float(moments.diagonal) / float(2 * base) - 1) < ROUNDING
        assert abs(float(lambda_variance(init, k, r)) / float(n0 * base) - 1) < ROUNDING
    printed, ours = float(lambda_variance(init, 0.5, 0.75, as_printed=True)), float(lambda_variance(init, 0.5, 0.75))
    if name == "Scaled":
        assert abs(printed - (0.75 * 1.25**2 / 0.25 + 1.5**2)) < ROUNDING
        assert abs(printed - ours) > 1.0
    else:
        assert printed == ours


def test_variances_of_gaussian_layers() -> None:
    assert list(map(float, layer_variances(Gaussian(0.5), (3, 4, 5)))) == [0.25, 0.25]
    matched = layer_variances(MatchedGaussian(0.01, "product"), (3, 4, 5))
    np.testing.assert_allclose(matched, [0.005, 0.005], rtol=ROUNDING)


@pytest.mark.covers("exact:F24", "exact:S28", "exact:E10")
def test_moments_against_monte_carlo(seed: int) -> None:
    """4000 draws of widths 30, 20, 25: entries of one matrix are nearly, but not exactly, independent."""
    rng = np.random.default_rng([seed, 11])
    draws, widths, v = 4000, (30, 20, 25), (0.04, 0.07)
    diagonal, off = np.empty(draws), np.empty(draws)
    mean = np.empty(draws)
    exact = balance_moments(widths, v)
    pick = ~np.eye(20, dtype=bool)
    for k in range(draws):
        first = math.sqrt(v[0]) * rng.normal(size=(20, 30))
        second = math.sqrt(v[1]) * rng.normal(size=(25, 20))
        c = second.T @ second - first @ first.T
        mean[k] = np.trace(c) / 20
        diagonal[k] = np.mean((np.diag(c) - float(exact.mean)) ** 2)
        off[k] = np.mean(c[pick] ** 2)
    for values, wanted in ((mean, exact.mean), (diagonal, exact.diagonal), (off, exact.off_diagonal)):
        error = float(values.std(ddof=1)) / math.sqrt(draws)
        assert abs(float(values.mean()) - float(wanted)) < STANDARD_ERRORS * error
        assert abs(float(values.mean()) / float(wanted) - 1) < 0.03
    printed = float(balance_moments(widths, v, as_printed=True).diagonal)
    assert abs(printed / diagonal.mean() - 2) < 0.06


@pytest.mark.covers("exact:F24", "exact:E13", "exact:E14", "exact:E16")
@pytest.mark.parametrize("name", RULES)
def test_table_3_has_the_limits_of_table_2(name: str) -> None:
    init, k, r, far = RULES[name], 0.7, 1.9, 1e9
    limits = lambda_limits(init, k, r)
    assert abs(float(limits.equal) - float(expected_lambda(init, k, k))) < ROUNDING
    for limit, at in (
        (limits.small_r, (k, r / far)),
        (limits.large_r, (k, r * far)),
        (limits.large_k, (k * far, r)),
        (limits.small_k, (k / far, r)),
    ):
        value = float(expected_lambda(init, *at))
        # λ/limit → 1 where it diverges; the leading terms are told for k and r as given, so that they scale.
        scale = far if abs(value) > 1e6 else 1.0
        assert abs(value / scale - float(limit)) < 1e-8 * max(1.0, abs(float(limit)))  # ten corrections of 1e-9
    if name == "Scaled":
        assert float(limits.matched) == 0.0
        assert abs(float(expected_lambda(init, k, k * (1.5 / 1.25) ** 2))) < ROUNDING
    else:
        assert math.isnan(float(limits.matched))
    boundary = float(lambda_sign_boundary(init, k))
    assert abs(boundary - {"Glorot": 1.0, "Scaled": k * 1.44}.get(name, k)) < ROUNDING
    assert float(expected_lambda(init, k, boundary * 1.01)) > 0 > float(expected_lambda(init, k, boundary / 1.01))
    low, high = lambda_range(init)
    values = np.asarray(expected_lambda(init, *np.meshgrid(np.geomspace(1e-5, 1e5, 41), np.geomspace(1e-5, 1e5, 41))))
    assert np.all((values > low) & (values < high))
    assert values.min() < low + 0.02 and values.max() > min(high - 0.02, 1e9)  # they are reached in the limit only


@pytest.mark.covers("exact:E13", "exact:E14")
def test_printed_tables() -> None:
    printed = lambda_limits(Glorot(), 0.7, 1.9, as_printed=True)
    assert [float(x) for x in printed[:4]] == [0.0, 2.0, 2.0, 0.0]
    assert abs(float(printed.small_k) + 2 / 1.7) < ROUNDING
    ours, same = (lambda_limits(LeCun(), 0.7, 1.9, as_printed=flag) for flag in (False, True))
    assert [float(x) for x in ours[:5]] == [float(x) for x in same[:5]]
    assert lambda_range(LeCun(), as_printed=True)[0] == 0.0
    assert float(lambda_sign_boundary(Glorot(), 0.3, as_printed=True)) == 0.3
    assert float(lambda_sign_boundary(Scaled([1.0, 2.0]), 0.3, as_printed=True)) == 0.25


@pytest.mark.covers("exact:E15")
def test_a_wider_hidden_layer_may_raise_lambda_of_glorot() -> None:
    slope = jax.vmap(jax.grad(lambda k, r: expected_lambda(Glorot(), k, r), argnums=0))
    k, r = (x.ravel() for x in np.meshgrid(np.geomspace(0.11, 9.3, 12), np.geomspace(0.13, 8.9, 12)))
    signs = np.sign(np.asarray(slope(k, r)))
    np.testing.assert_array_equal(signs, np.sign((r - 1) * (r - k**2)))
    assert set(signs) == {-1.0, 1.0}


@pytest.mark.covers("exact:F24", "exact:E17")
@pytest.mark.parametrize(("name", "widths"), [("LeCun", (40, 120, 250)), ("Scaled", (400, 200, 300))])
def test_spread_of_eigenvalues_against_a_sample(name: str, widths: tuple[int, int, int], seed: int) -> None:
    init = RULES[name]
    v = layer_variances(init, widths)
    spread, moments = balance_spread(widths, v), balance_moments(widths, v)
    rng = np.random.default_rng([seed, 12])
    first, second = (
        math.sqrt(float(variance)) * rng.normal(size=size)
        for variance, size in zip(v, ((widths[1], widths[0]), (widths[2], widths[1])), strict=True)
    )
    c = second.T @ second - first @ first.T
    values = np.linalg.eigvalsh(c)
    width = float(spread.upper - spread.lower)
    # Extreme eigenvalues scatter around the edges on the scale width · n^(-2/3), which is 4 per cent for 120.
    assert abs(values[0] - float(spread.lower)) < 0.12 * width
    assert abs(values[-1] - float(spread.upper)) < 0.12 * width
    assert (
        abs(float(spread.operator) - max(float(spread.upper - moments.mean), float(moments.mean - spread.lower))) == 0
    )
    residual = np.linalg.norm(c - float(moments.mean) * np.eye(widths[1]))
    assert abs(residual / float(spread.frobenius) - 1) < 0.1
    relative = residual / (abs(float(moments.mean)) * math.sqrt(widths[1]))
    assert abs(float(spread.relative_frobenius) / relative - 1) < 0.1
    if name == "LeCun":
        k, r = widths[1] / widths[0], widths[2] / widths[0]
        told = math.sqrt((r + k**2) / k) / abs(float(moments.mean))
        assert abs(float(spread.relative_frobenius) / told - math.sqrt(1 + 1 / widths[1])) < ROUNDING


@pytest.mark.covers("exact:E17")
def test_edges_against_the_density() -> None:
    """The edges by another way: where the quartic for the Cauchy transform stops having complex roots."""
    n0, n1, n2 = 40, 120, 250
    v1, v2 = 1 / 40, 1 / 120
    spread = balance_spread((n0, n1, n2), [v1, v2])
    a, b = n1 * v2, n1 * v1

    def complex_roots(x: float) -> bool:
        """1/z + n2 v2/(1 - az) - n0 v1/(1 + bz) = x, multiplied out."""
        left = np.poly1d([-a, 1.0]) * np.poly1d([b, 1.0])
        z = np.poly1d([1.0, 0.0])
        cubic = left + n2 * v2 * z * np.poly1d([b, 1.0]) - n0 * v1 * z * np.poly1d([-a, 1.0]) - x * z * left
        return bool(np.max(np.abs(cubic.roots.imag)) > 1e-6)

    for edge, inward in ((float(spread.lower), 1e-3), (float(spread.upper), -1e-3)):
        assert complex_roots(edge + inward) and not complex_roots(edge - inward)
    # Marchenko and Pastur, in closed form.
    single = balance_spread((5, 3, 4), [1.0, 0.0])
    assert abs(float(single.upper) + (math.sqrt(5) - math.sqrt(3)) ** 2) < ROUNDING
    assert abs(float(single.lower) + (math.sqrt(5) + math.sqrt(3)) ** 2) < ROUNDING
    assert float(balance_spread((4, 4, 4), [1.0, 1.0]).relative_operator) == math.inf


@pytest.mark.covers("exact:F35")
def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"widths must be \(input, hidden, output\), but is \(1, 2\)"):
        balance_moments((1, 2), [1.0, 1.0])
    with pytest.raises(ValueError, match=r"variances must not be negative, but holds -1"):
        balance_moments((1, 2, 3), [1.0, -1.0])
    with pytest.raises(ValueError, match=r"variances must have shape \(2\), but has shape \(3,\)"):
        balance_spread((1, 2, 3), [1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"k must be greater than 0, but holds 0"):
        expected_lambda(LeCun(), 0.0, 1.0)
    with pytest.raises(TypeError, match=r"init must be LeCun, He, Glorot or Scaled, but is a Orthogonal"):
        layer_variances(Orthogonal(), (2, 2, 2))
    with pytest.raises(ValueError, match=r"the gains of init must have shape \(2\), but has shape \(3,\)"):
        expected_lambda(Scaled([1.0, 2.0, 3.0]), 1.0, 1.0)


def test_variances_may_be_traced() -> None:
    widths, given = (4, 3, 5), jnp.array([0.3, 0.2])
    found = jax.jit(lambda variances: balance_spread(widths, variances))(given)
    for part, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(balance_spread(widths, given)), strict=True):
        np.testing.assert_allclose(part, wanted, rtol=1e-13)
    with pytest.raises(ValueError, match="variances must not be negative, but holds -1"):
        balance_spread(widths, [1.0, -1.0])
