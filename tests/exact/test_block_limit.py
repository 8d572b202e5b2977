"""Limits on block-diagonal observations against 50-digit roots, published tables and full matrix flows."""

import itertools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from deeplinear.exact import (
    BlockLimit,
    block_constant,
    block_crossover,
    block_equation_1,
    block_equation_2,
    block_limit,
    block_limit_from,
    block_small_scale,
)

ROOT = 1e-11  # what the limits are asked to hold against 50-digit roots; rounding in logarithms gives about 1e-13
ALGEBRA = 1e-12  # derived numbers: a few rounding errors
SIX_DIGITS = 5.1e-6  # half a unit of the sixth digit, relative to a leading digit of 1

DIGITS = 70  # of working precision: 50 are right where the constant loses ten


def number(x):
    return x if isinstance(x, mpmath.mpf) else mpmath.mpf(float(x))


def exact_limit(depth, alpha, m, n, s, value=1.0):
    """sigma_1, sigma_2 and the logarithm of their ratio from the printed equations, with many digits."""
    with mpmath.workdps(DIGITS):
        depth, alpha, m, value = (number(x) for x in (depth, alpha, m, value))
        d = n * s
        return exact_limit_from(depth, alpha * (m + d - 1) / m, alpha * (m - 1) / m, n, s, value)


def exact_limit_from(depth, first, second, n, s, value=1.0):
    """The same from the eigenvalues of a layer at the start, the first the larger."""
    with mpmath.workdps(DIGITS):
        depth, first, second, value = (number(x) for x in (depth, first, second, value))
        d, q = n * s, (depth - 2) / depth
        constant = second ** (2 - depth) - first ** (2 - depth)

        def residual(y):
            x = mpmath.exp(y)
            large = value * d / (1 + (n - 1) * mpmath.exp(-x))
            return mpmath.log(large**-q * mpmath.expm1(q * x)) - mpmath.log(constant)

        y = mpmath.findroot(
            residual, (-60, 9), solver="anderson", tol=mpmath.mpf(10) ** (20 - 2 * DIGITS), maxsteps=200
        )
        x = mpmath.exp(y)
        large = value * d / (1 + (n - 1) * mpmath.exp(-x))
        return large, large * mpmath.exp(-x), x


def limits(depth, alpha, m, *, blocks, size=1, value=1.0) -> BlockLimit:
    """`block_limit` on always 180 numbers, the last ones repeated: it is compiled once."""
    broadcast = np.broadcast_arrays(depth, alpha, m, value)
    flat = [np.resize(np.asarray(x, dtype=float), 180) for x in broadcast]
    limit = block_limit(*flat[:3], blocks=blocks, size=size, value=flat[3])
    return jax.tree.map(
        lambda x: jnp.asarray(np.asarray(x)[: broadcast[0].size].reshape(broadcast[0].shape), dtype=float), limit
    )


def relative(ours, exact) -> float:
    return float(abs(mpmath.mpf(float(ours)) / exact - 1))


# ------------------------------------------------------------------------------------------------ the singular values


@pytest.mark.covers("completion:F12")
def test_limits_against_many_digits() -> None:
    depths, alphas, ms = [3, 4, 5, 8, 12], [1e-6, 1e-3, 0.1, 0.7, 5.0], [1.01, 2.0, 10.0, 1e3, 1e6, 1e10]
    cases = np.array(list(itertools.product(depths, alphas, ms)))
    for (n, s), part in (((10, 1), cases[::2]), ((3, 2), cases[1::2])):
        limit = limits(*part.T, blocks=n, size=s)
        first, second = np.asarray(limit.sigma_1), np.asarray(limit.sigma_2)
        for i, case in enumerate(part):
            exact = exact_limit(*case, n, s)
            assert relative(first[i], exact[0]) < ROOT, case
            assert relative(second[i], exact[1]) < ROOT, case


@pytest.mark.covers("completion:F12", "completion:C17", "completion:E1")
def test_depth_two_and_the_ends_of_m() -> None:
    n, s, value = 4, 2, 1.5
    d, m = n * s, np.array([1.01, 2.0, 10.0, 1e10])
    two = limits(2, np.array([[1e-8], [3.0]]), m, blocks=n, size=s, value=value)
    z = (m + d - 1) ** 2 + (n - 1) * (m - 1) ** 2
    np.testing.assert_allclose(two.sigma_1, np.tile(value * d * (m + d - 1) ** 2 / z, (2, 1)), rtol=ALGEBRA)
    np.testing.assert_allclose(two.sigma_2, np.tile(value * d * (m - 1) ** 2 / z, (2, 1)), rtol=ALGEBRA)
    expected = 1 + (n - 1) * ((m - 1) / (m + d - 1)) ** 4
    np.testing.assert_allclose(two.stable_rank, np.tile(expected, (2, 1)), rtol=ALGEBRA)
    depths = np.array([2, 3, 7, 12.0])
    never = limits(depths, 0.1, np.inf, blocks=n, size=s, value=value)
    np.testing.assert_array_equal(never.log_ratio, 0)
    np.testing.assert_allclose(never.spectrum, [[s * value] * n + [0] * (d - n)] * 4, rtol=ALGEBRA)
    # Equal entries: rank one at every depth, also at depth 2, where observations in different blocks share no weight.
    one = limits(depths, 0.1, 1.0, blocks=n, size=s, value=value)
    np.testing.assert_array_equal(one.spectrum, [[value * d] + [0] * (d - 1)] * 4)
    np.testing.assert_array_equal([one.stable_rank, one.effective_rank], np.ones((2, 4)))


@pytest.mark.covers("completion:F12", "completion:F29")
def test_published_tables() -> None:
    rows = {  # (m, depth): sigma_1 and sigma_2 at alpha^L = 1e-1, 1e-2, 1e-4, 1e-6; w = 1, ten blocks of size 1
        (2, 2): "9.30769/0.0769231 9.30769/0.0769231 9.30769/0.0769231 9.30769/0.0769231",
        (2, 3): "9.89311/0.0118766 9.98725/0.00141678 9.99986/1.60598e-5 10/1.65107e-7",
        (2, 4): "9.94559/0.00604513 9.99437/6.25446e-4 9.99994/6.34448e-6 10/6.35359e-8",
        (10, 2): "3.31193/0.743119 3.31193/0.743119 3.31193/0.743119 3.31193/0.743119",
        (10, 3): "8.32992/0.185565 9.7209/0.031011 9.99596/4.48586e-4 9.99996/4.88301e-6",
        (10, 4): "9.20173/0.088697 9.90805/0.0102169 9.99902/1.08344e-4 9.99999/1.08989e-6",
        (10, 5): "9.4123/0.0652996 9.93727/0.0069697 9.99936/7.11142e-5 9.99999/7.12048e-7",
        (100, 2): "1.18703/0.979219 1.18703/0.979219 1.18703/0.979219 1.18703/0.979219",
        (100, 3): "1.75025/0.916639 3.28731/0.745854 9.40297/0.0663369 9.99023/0.00108515",
        (100, 4): "3.04711/0.772543 8.03305/0.21855 9.97277/0.00302592 9.99972/3.12308e-5",
        (100, 5): "4.93812/0.562432 9.22638/0.0859582 9.99147/9.47635e-4 9.99991/9.53369e-6",
    }
    scales = np.array([1e-1, 1e-2, 1e-4, 1e-6])
    for (m, depth), text in rows.items():
        expected = np.array([[float(x) for x in pair.split("/")] for pair in text.split()]).T
        limit = limits(depth, scales ** (1 / depth), float(m), blocks=10)
        np.testing.assert_allclose([limit.sigma_1, limit.sigma_2], expected, rtol=SIX_DIGITS, err_msg=f"{m}, {depth}")
    others = {  # (w, blocks, size): the same at m = 10, alpha^L = 1e-2 for depths 2 to 5
        (1.0, 5, 2): "5.27007/1.18248 9.87567/0.031083 9.95913/0.0102186 9.97212/0.00697001",
        (10.0, 10, 1): "33.1193/7.43119 99.6422/0.0397522 99.9039/0.0106817 99.9363/0.0070827",
        (0.1, 10, 1): "0.331193/0.0743119 0.832992/0.0185565 0.920173/0.0088697 0.94123/0.00652996",
        (1.0, 3, 1): "1.41176/0.794118 2.75112/0.124439 2.94415/0.0279262 2.97249/0.013756",
    }
    depths = np.arange(2, 6)
    for (value, n, s), text in others.items():
        expected = np.array([[float(x) for x in pair.split("/")] for pair in text.split()]).T
        limit = limits(depths, 0.01 ** (1 / depths), 10.0, blocks=n, size=s, value=value)
        np.testing.assert_allclose([limit.sigma_1, limit.sigma_2], expected, rtol=SIX_DIGITS)


@pytest.mark.covers("completion:F12")
def test_only_the_scale_over_the_value_matters() -> None:
    depth, m = np.array([[2], [3], [5], [12]]), np.array([1.01, 10.0, 1e6])
    for c in (1e-3, 7.3):
        plain = limits(depth, 0.2, m, blocks=5, size=2, value=0.7)
        scaled = limits(depth, 0.2 * c ** (1 / depth), m, blocks=5, size=2, value=0.7 * c)
        np.testing.assert_allclose(scaled.sigma_1, c * np.asarray(plain.sigma_1), rtol=ALGEBRA)
        np.testing.assert_allclose(scaled.sigma_2, c * np.asarray(plain.sigma_2), rtol=ALGEBRA)


def test_far_beyond_the_tables() -> None:
    for depth, alpha, m in [(3, 1e-300, 2.0), (12, 1e-250, 1.5), (4, 1e-12, 1e25), (3, 1e-12, 1e12), (2.001, 0.1, 3.0)]:
        exact = exact_limit(depth, alpha, m, 4, 2)[2]
        assert relative(block_limit(depth, alpha, m, blocks=4, size=2).log_ratio, exact) < ROOT, (depth, alpha, m)
    limit = block_limit(12, 1e-250, 1.5, blocks=4)
    assert limit.sigma_2 == 0
    # The small-scale law, whose correction 9^{-10} of the logarithm's last part is far below this tolerance.
    np.testing.assert_allclose(limit.log_sigma_2, 12 * np.log(1e-250 / 3), rtol=1e-9)


@pytest.mark.covers("completion:F12")
def test_any_shared_start() -> None:
    for depth, small, large in [(3, 0.1, 0.4), (5, 0.3, 0.300001), (3, 1e-9, 1e-3), (4, 1.2, 1.5)]:
        exact = exact_limit_from(depth, large, small, 4, 2)
        limit = block_limit_from(depth, large, small, blocks=4, size=2)
        np.testing.assert_allclose([limit.sigma_1, limit.sigma_2], [float(x) for x in exact[:2]], rtol=ROOT)
        # The second eigenvalue the larger: solve the same two equations in the printed form.
        limit = block_limit_from(depth, small, large, blocks=4, size=2)
        assert limit.sigma_2 >= limit.sigma_1
        with mpmath.workdps(DIGITS):
            q = mpmath.mpf(depth - 2) / depth
            constant = mpmath.mpf(small) ** (2 - depth) - mpmath.mpf(large) ** (2 - depth)
            first = mpmath.findroot(
                lambda y, q=q, c=constant: (
                    mpmath.log(mpmath.exp(-q * y) - ((8 - mpmath.exp(y)) / 3) ** -q) - mpmath.log(c)
                ),
                mpmath.log(mpmath.mpf(float(limit.sigma_1)) * (1 - mpmath.mpf(10) ** -8)),
            )
            first = mpmath.exp(first)
        assert relative(limit.sigma_1, first) < ROOT
        assert relative(limit.sigma_2, (8 - first) / 3) < ROOT
        np.testing.assert_allclose(limit.spectrum[:4], [limit.sigma_2] * 3 + [limit.sigma_1])
    two = block_limit_from(2, 0.3, 0.7, blocks=3)
    np.testing.assert_allclose(two.sigma_2 / two.sigma_1, (0.7 / 0.3) ** 2, rtol=ALGEBRA)
    with pytest.raises(ValueError, match="block_limit_from: lambda2 must be greater than 0"):
        block_limit_from(3, 0.1, 0.0, blocks=3)


# ---------------------------------------------------------------------------------------------------- derived numbers


@pytest.mark.covers("completion:F13")
@pytest.mark.parametrize("start", [(0.2, 0.15), (0.15, 0.2), (0.3, 0.3), (0.9, 0.1)])
def test_matrix_and_what_is_derived_from_it(start: tuple[float, float]) -> None:
    n, s, value = 3, 2, 0.8
    limit = block_limit_from(3, *start, blocks=n, size=s, value=value)
    matrix = np.asarray(limit.matrix().dense())
    observed = np.kron(np.eye(n), np.ones((s, s))) == 1
    np.testing.assert_allclose(matrix[observed], value, rtol=ALGEBRA)
    np.testing.assert_allclose(matrix[~observed], limit.unobserved, rtol=ALGEBRA)
    values = np.linalg.svd(matrix, compute_uv=False)
    np.testing.assert_allclose(limit.spectrum, values, atol=ALGEBRA)
    shares = values[:n] / values.sum()
    np.testing.assert_allclose(limit.stable_rank, np.sum((values / values[0]) ** 2), rtol=ALGEBRA)
    np.testing.assert_allclose(limit.effective_rank, np.exp(-np.sum(shares * np.log(shares))), rtol=ALGEBRA)
    np.testing.assert_allclose(limit.nuclear_norm, value * n * s, rtol=ALGEBRA)
    error = np.sqrt(np.mean((matrix - value)[~observed] ** 2))
    np.testing.assert_allclose([limit.test_error, limit.unobserved], [error, value - limit.sigma_2 / s], atol=ALGEBRA)


@pytest.mark.covers("completion:F14")
def test_law_of_small_starts() -> None:
    depths, quoted = np.array([3, 4, 6]), np.array([2.4e-3, 6.6e-7, 2.2e-13])
    law = block_small_scale(depths, 1e-3, 10.0, blocks=10)
    errors = []
    for depth, value in zip(depths, law, strict=True):
        errors.append(relative(value, exact_limit(depth, 1e-3, 10.0, 10, 1)[1]))
    np.testing.assert_allclose(errors, quoted, rtol=0.05)  # quoted to two digits
    np.testing.assert_allclose(block_small_scale(4, 2e-3, 10.0, blocks=10) / law[1], 2**4, rtol=ALGEBRA)
    for bad, match in (((2, 0.1, 2.0), "depth must be greater than 2"), ((3, 0.1, np.inf), "m must be finite")):
        with pytest.raises(ValueError, match=match):
            block_small_scale(*bad, blocks=3)


@pytest.mark.covers("completion:F14", "completion:E2")
def test_crossover() -> None:
    depth, alpha = np.array([[3], [4], [5]]), np.array([0.3, 0.1, 0.03])
    middle = block_crossover(depth, alpha, blocks=10)
    np.testing.assert_allclose(middle, (depth - 2) * 10 * alpha ** (2.0 - depth), rtol=ALGEBRA)
    assert np.all(limits(depth, alpha, np.maximum(1, 0.02 * middle), blocks=10).sigma_2 < 0.5)
    assert np.all(limits(depth, alpha, 50 * middle, blocks=10).sigma_2 > 0.5)
    np.testing.assert_allclose(
        block_crossover(4, 0.1, blocks=5, size=2, value=3.0), 2 * 10 * 100 * 6**0.5, rtol=ALGEBRA
    )
    # m = 1e10 is far above the crossover at one scale and far below it at another.
    limit = limits(5, np.array([1e-2, 1e-4]), 1e10, blocks=10)
    np.testing.assert_allclose(limit.sigma_2[0], 0.9995, atol=5e-5)
    assert limit.sigma_2[1] < 1e-3


@pytest.mark.covers("completion:C16", "completion:F14")
def test_small_starts_of_deep_networks_end_at_rank_one() -> None:
    excess = np.asarray(limits(3, 10.0 ** -np.arange(1, 5), 10.0, blocks=5, size=2).stable_rank_excess)
    np.testing.assert_allclose(excess[:2], [6.3e-7, 9.5e-13], rtol=0.01)  # quoted to two digits
    assert np.all(excess > 0) and np.all(excess[1:] < 1e-5 * excess[:-1])
    tiny = block_limit(3, 1e-4, 10.0, blocks=5, size=2)
    ratio = exact_limit(3, 1e-4, 10.0, 5, 2)[2]
    np.testing.assert_allclose(tiny.stable_rank_excess, float(4 * mpmath.exp(-2 * ratio)), rtol=ROOT)
    entropy = mpmath.log1p(4 * mpmath.exp(-ratio)) + 4 * mpmath.exp(-ratio) * ratio / (1 + 4 * mpmath.exp(-ratio))
    np.testing.assert_allclose(tiny.effective_rank_excess, float(mpmath.expm1(entropy)), rtol=ROOT)


@pytest.mark.covers("completion:E3")
def test_depth_does_not_always_strengthen_the_bias() -> None:
    depths = np.arange(2, 5)
    large = limits(depths, 0.1 ** (1 / depths), 2.0, blocks=10, value=0.1).sigma_2
    np.testing.assert_allclose(large, [0.00769, 0.00828, 0.00543], atol=5e-6)
    depths = np.arange(2, 6)[:, None, None, None]
    scales = 10.0 ** -np.arange(2, 7)[:, None, None]
    small = limits(
        depths, scales ** (1 / depths), np.array([2.0, 10.0, 100.0]), blocks=10, value=np.array([0.1, 1, 10])[:, None]
    )
    assert np.all(np.diff(np.asarray(small.sigma_2), axis=0) < 0)


# --------------------------------------------------------------------------------------------------- the printed form


@pytest.mark.covers("completion:C15")
def test_printed_equations_are_monotone() -> None:
    n, s, value = 4, 2, 1.3
    for depth in (3, 4, 7):
        inside = np.arange(1, 4002) / 4002 * value * n * s
        first = np.asarray(block_equation_1(inside, depth, blocks=n, size=s, value=value))
        second = np.asarray(block_equation_2(inside / (n - 1), depth, blocks=n, size=s, value=value))
        assert np.all(np.diff(first) < 0) and np.all(np.diff(second) > 0)
        limit = block_limit(depth, 0.4, 3.0, blocks=n, size=s, value=value)
        constant = block_constant(depth, 0.4, 3.0, blocks=n, size=s)
        np.testing.assert_allclose(
            block_equation_1(limit.sigma_1, depth, blocks=n, size=s, value=value), constant, rtol=1e-9
        )
        np.testing.assert_allclose(
            block_equation_2(limit.sigma_2, depth, blocks=n, size=s, value=value), constant, rtol=ROOT
        )


def test_where_the_printed_form_loses_digits() -> None:
    with mpmath.workdps(DIGITS):
        alpha, m = mpmath.mpf(0.1), mpmath.mpf(1e10)
        exact = (alpha / m) ** -1 * (1 / (m + 9) - 1 / (m - 1))
    assert 1e-9 < relative(block_constant(3, 0.1, 1e10, blocks=10), exact) < 1e-4
    assert block_constant(5, 1e-150, 2.0, blocks=10) == -jnp.inf
    assert jnp.isfinite(block_limit(5, 1e-150, 2.0, blocks=10).log_ratio)
    # Beside a tiny second value the first equation sees only rounding; the second keeps it.
    limit = block_limit(3, 1e-6, 2.0, blocks=10)
    constant = block_constant(3, 1e-6, 2.0, blocks=10)
    np.testing.assert_allclose(block_equation_2(limit.sigma_2, 3, blocks=10), constant, rtol=ROOT)
    assert abs(block_equation_1(limit.sigma_1, 3, blocks=10) / constant - 1) > 1e-3


# -------------------------------------------------------------------------------------------- arrays and derivatives


def test_grids_and_transformations() -> None:
    alpha, m = np.geomspace(1e-6, 1, 200)[:, None], np.geomspace(1.01, 1e10, 200)
    limit = block_limit(4, alpha, m, blocks=10)
    rank = np.asarray(limit.effective_rank)
    assert rank.shape == (200, 200) and np.all((rank >= 1) & (rank <= 10 + 1e-12)) and np.all(np.diff(rank) >= -1e-12)
    one = jax.jit(lambda a, m: block_limit(4, a, m, blocks=10).effective_rank)(alpha[60, 0], m[100])
    np.testing.assert_allclose(rank[60, 100], one, rtol=ALGEBRA)
    rows = jax.vmap(lambda a: block_limit(4, a, 100.0, blocks=10).sigma_2)(jnp.asarray(alpha[:, 0]))
    np.testing.assert_allclose(rows, block_limit(4, alpha[:, 0], 100.0, blocks=10).sigma_2, rtol=ALGEBRA)


def second(depth, alpha, m, value):
    return block_limit(depth, alpha, m, blocks=3, size=2, value=value).sigma_2


first_derivatives = jax.jit(jax.grad(second, argnums=(0, 1, 2, 3)))
second_derivative = jax.jit(jax.jacfwd(jax.jacfwd(second, argnums=2), argnums=2))


@pytest.mark.parametrize("depth", [2.0, 3.0, 4.5])
def test_derivatives_are_those_of_the_implicit_function(depth: float) -> None:
    point = (depth, 0.3, 5.0, 1.2)

    gradient, curvature = first_derivatives(*point), second_derivative(*point)
    with mpmath.workdps(DIGITS):

        def oracle(*args):
            if args[0] == 2:
                ratio = ((args[2] - 1) / (args[2] + 5)) ** 2
                return args[3] * 6 * ratio / (1 + 2 * ratio)
            return exact_limit(args[0], args[1], args[2], 3, 2, args[3])[1]

        step = mpmath.mpf(10) ** -12

        def moved(i, h):
            return oracle(*(mpmath.mpf(x) + h * (i == j) for j, x in enumerate(point)))

        for i, ours in enumerate(gradient):
            # One-sided at depth 2, where smaller depths have no meaning: first order in the step.
            sides = (step, -step) if not (i == 0 and depth == 2) else (step, mpmath.mpf(0))
            expected = (moved(i, sides[0]) - moved(i, sides[1])) / (sides[0] - sides[1])
            np.testing.assert_allclose(float(ours), float(expected), rtol=1e-9, atol=1e-12)
        expected = (moved(2, step) - 2 * moved(2, mpmath.mpf(0)) + moved(2, -step)) / step**2
        np.testing.assert_allclose(float(curvature), float(expected), rtol=1e-9)


def test_derivatives_at_the_ends() -> None:
    slope = jax.jit(jax.grad(lambda first: block_limit_from(3, first, 0.3, blocks=3).sigma_2))(0.3)
    # Near equality ln(sigma_1/sigma_2) = L lambda^{2-L} w^q ln(lambda_1/lambda_2), and sigma_2 falls by a third of it.
    np.testing.assert_allclose(slope, -3 / 0.3 / 0.3 / 3, rtol=ALGEBRA)
    for m, value in ((1.0, 0.0), (np.inf, 2.0)):
        np.testing.assert_array_equal(first_derivatives(3.0, 0.3, m, 1.0), (0, 0, 0, value))


@pytest.mark.covers("completion:F39")
def test_limits_refuse_what_has_no_meaning() -> None:
    good = {"depth": 3, "alpha": 0.1, "m": 2.0, "blocks": 3, "size": 1, "value": 1.0}
    for name, value, match in [
        ("alpha", 0.0, "alpha must be greater than 0, but is 0"),
        ("alpha", np.array([0.1, -1.0]), r"alpha must be greater than 0, but entry \(1,\) is -1"),
        ("alpha", np.inf, "alpha must be finite"),
        ("m", 0.99, "m must be at least 1, but is 0.99"),
        ("m", np.nan, "m must be a number, but is nan"),
        ("blocks", 1, "blocks must be at least 2"),
        ("size", 0, "size must be at least 1"),
        ("value", 0.0, "value must be greater than 0"),
        ("value", np.array([[1.0], [-2.0]]), r"value must be greater than 0, but entry \(1, 0\) is -2"),
        ("depth", 1, "depth must be at least 2, but is 1"),
        ("depth", np.array([2, 1.5]), "depth must be at least 2"),
        ("depth", 1e16, r"depth must be at most 1e\+15"),
        ("alpha", 5e-324, "alpha must be at least 1e-300"),
        ("value", 1e308, r"value must be at most 1e\+300"),
        ("value", 5e299, "value times blocks times size must be at most"),
        ("value", 1e-320, "value must be at least 1e-300"),
        ("blocks", 2**60, "blocks times size must be at most"),
    ]:
        with pytest.raises(ValueError, match=f"block_limit: {match}"):
            block_limit(**(good | {name: value}))
    with pytest.raises(ValueError, match=r"depth, alpha, m, value must have shapes that broadcast .* alpha \(3,\)"):
        block_limit(np.full(2, 3.0), np.ones(3), 2.0, blocks=2)
    for call, match in [
        (lambda: block_equation_1(5.0, 4, blocks=2), "sigma_1 must be at most value"),
        (lambda: block_equation_2(5.0, 4, blocks=2), "sigma_2 must be at most value"),
        (lambda: block_crossover(3, np.ones(2), blocks=2, value=np.ones(3)), "depth, alpha, value must have shapes"),
    ]:
        with pytest.raises(ValueError, match=match):
            call()


@pytest.mark.parametrize("value", [1e-300, 1e299])
def test_values_at_the_ends_of_their_range(value: float) -> None:
    """Depth 2 by hand: the ratio is ((m - 1)/(m + d - 1))^2 for every value."""
    limit = block_limit(2, 0.1, 2.0, blocks=3, value=value)
    np.testing.assert_allclose([limit.sigma_1, limit.sigma_2], value * 3 * np.array([16, 1]) / 18, rtol=ALGEBRA)


def test_the_logarithm_of_the_second_value_is_that_of_the_value() -> None:
    """Also where both are of one order, and where the first start is the smaller one."""
    for alpha, m, low, high in ((20.0, 1.2, 0.1, 1.0), (2.0, 1.5, 1.0, 10.0)):
        found = limits(3, alpha, m, blocks=3)
        assert low < float(found.log_ratio) < high
        np.testing.assert_allclose(np.exp(found.log_sigma_2), found.sigma_2, rtol=ALGEBRA)
