"""The closed form for observations that share no row and no column, against SciPy, mpmath and values by hand."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import quad

from checking import unchecked
from deeplinear.core import HypothesisError
from deeplinear.exact import disconnected, disconnected_hyperbolic
from deeplinear.models import AlphaM, Completion, DeepLinear, EntryCompletion, Problem, Regression
from systems import scipy_flow

DIGITS = 1e-12  # the reference examples are given to thirteen digits
ROUNDING = 1e-14  # of a handful of operations on numbers of order one
INTEGRATOR = 1e-10  # SciPy's DOP853 at rtol 1e-12 over long times
SHORT = 1e-12  # the same over a time of order one

A = jnp.array([[0.3, 0.1], [0.2, -0.4]])
B = jnp.array([[0.5, -0.2], [0.1, 0.3]])


def example() -> tuple[Problem, tuple]:
    return Problem(DeepLinear((2, 2, 2)), Completion(np.diag([1.0, -0.5]), np.eye(2))), (B, A)


def one_pair(target: float) -> Problem:
    """A single entry with hidden width 2."""
    return Problem(DeepLinear((1, 2, 1)), Completion([[target]], [[1]]))


def pair(a, b) -> tuple:
    return jnp.asarray(b, dtype=float)[:, None], jnp.asarray(a, dtype=float)[None, :]


def flow(problem: Problem, params: tuple, times, rows, columns, values):
    """SciPy's flow of a completion problem."""

    def energy(w):
        g = np.zeros_like(w)
        g[rows, columns] = w[rows, columns] - values
        return g

    return scipy_flow(problem, params, np.asarray(times), energy)


def partial_permutation(seed: int, out: int, inp: int, hidden: int, entries: int):
    """Signed targets of size 1/2 to 2 on random places that share no row and no column, and a Gaussian start."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(out)[:entries], rng.permutation(inp)[:entries]
    values = rng.choice([-1.0, 1.0], entries) * rng.uniform(0.5, 2, entries)
    params = (jnp.asarray(rng.normal(size=(hidden, inp))), jnp.asarray(rng.normal(size=(out, hidden))))
    problem = Problem(DeepLinear((inp, hidden, out)), EntryCompletion(rows, columns, values, (out, inp)))
    return problem, params, rows, columns, values


def worst(given, expected) -> float:
    return max(float(np.max(np.abs(np.asarray(g) - np.asarray(e)))) for g, e in zip(given, expected, strict=True))


@pytest.mark.covers("completion:X1", "completion:F19", "completion:F20")
def test_reference_example():
    problem, params = example()
    solution = disconnected(problem, params)
    after_one = [[0.6032006436835, -0.1054996785017], [0.1192452668854, -0.2828338318895]]
    np.testing.assert_allclose(solution.product(1.0), after_one, atol=DIGITS)
    first, second = solution.limit()
    np.testing.assert_allclose(second @ first, [[1, -0.1842130999284], [0.1993144693894, -0.5]], atol=DIGITS)
    np.testing.assert_allclose(
        second, [[0.9297692614738, 0.2427413437948], [0.3511076745514, -0.6429197218887]], atol=DIGITS
    )
    stacked = solution.params(jnp.array([0.0, 1.0, 1e4]))
    assert [w.shape for w in stacked] == [(3, 2, 2), (3, 2, 2)]
    assert all(np.array_equal(w[0], start) for w, start in zip(stacked, params, strict=True)), "t = 0 is the start"
    assert worst([w[2] for w in stacked], solution.limit()) < ROUNDING, "t large is the limit"
    np.testing.assert_allclose(solution.product(jnp.array([[1.0]]))[0, 0], after_one, atol=DIGITS)


@pytest.mark.covers("completion:C35", "completion:F20")
def test_finite_times_of_partial_rectangular_patterns(seed):
    problem, params, *entries = partial_permutation(seed, 4, 5, 3, 3)
    solution = disconnected(problem, params)
    times = np.array([0.2, 0.7, 2.0])
    expected = flow(problem, params, times, *entries)
    got, params = (tuple(map(np.asarray, layers)) for layers in (solution.params(times), params))
    assert worst(got, [np.stack(w) for w in zip(*expected, strict=True)]) < 10 * SHORT
    rest = np.setdiff1d(np.arange(4), entries[0])
    np.testing.assert_array_equal(got[1][:, rest], np.broadcast_to(params[1][rest], (3, len(rest), 3)))


@pytest.mark.covers("completion:C21", "completion:F19")
@pytest.mark.parametrize(("out", "inp", "hidden", "entries"), [(2, 2, 2, 2), (3, 3, 3, 3), (4, 4, 4, 4), (2, 3, 1, 2)])
def test_limits_against_the_flow(seed, out, inp, hidden, entries):
    for draw in range(2):
        problem, params, rows, columns, values = partial_permutation(10 * seed + draw, out, inp, hidden, entries)
        limit = tuple(map(np.asarray, disconnected(problem, params).limit()))
        (expected,) = flow(problem, params, [60.0], rows, columns, values)
        assert worst(limit, expected) < INTEGRATOR
        np.testing.assert_allclose((limit[1] @ limit[0])[rows, columns], values, atol=10 * ROUNDING)
        if hidden > 1:  # the hyperbolic form has only the digits that its denominator leaves it
            a, b = np.asarray(params[1])[rows], np.asarray(params[0])[:, columns].T
            x, y = np.linalg.norm(a + b, axis=1), np.linalg.norm(a - b, axis=1)
            size = np.hypot(values, x * y / 2)
            lost = np.max(size / (size + values)) * np.max(np.abs(limit[1])) * np.max((size + y**2) / x**2)
            assert worst(disconnected_hyperbolic(problem, params), limit) < 10 * ROUNDING * (1 + lost)


@pytest.mark.covers("completion:C22")
@pytest.mark.parametrize("m", [1.0, 2.0, 10.0, np.inf])
def test_diagonal_observations_from_the_one_parameter_family(m):
    """Spectrum of the limit: w d (m+d-1)^2 / Z once and w d (m-1)^2 / Z otherwise, whatever alpha."""
    d, w = 4, 1.7
    problem = Problem(DeepLinear((d, d, d)), Completion(w * np.eye(d), np.eye(d)))
    first, second = disconnected(problem, AlphaM(1e-3, m)(problem.model, jax.random.key(0))).limit()
    large, small = (1.0, 1.0) if m == np.inf else ((m + d - 1) ** 2, (m - 1) ** 2)
    expected = w * d / (large + (d - 1) * small) * np.array([large] + [small] * (d - 1))
    np.testing.assert_allclose(np.linalg.svd(second @ first, compute_uv=False), expected, atol=ROUNDING * w * d)


@pytest.mark.covers("completion:F19")
@pytest.mark.parametrize("alpha", [1e-10, 1e-150, 1e-200, 1e-300])
def test_multiples_of_the_identity_however_small(alpha):
    target = np.array([4.0, 0.3, 9.0])
    problem = Problem(DeepLinear((3, 3, 3)), Completion(np.diag(target), np.eye(3)))
    first, second = disconnected(problem, (alpha * jnp.eye(3), alpha * jnp.eye(3))).limit()
    np.testing.assert_allclose(first, np.diag(np.sqrt(target)), rtol=ROUNDING)
    np.testing.assert_array_equal(first, second)


def reference(a, b, w, t):
    """$a(t)$ (t = None: in the limit) in numbers of unlimited range and 1500 digits, by the original formulas."""
    with mpmath.workdps(1500):
        a, b = ([mpmath.mpf(float(x)) for x in vector] for vector in (a, b))
        w = mpmath.mpf(w)
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        half = sum(x * x + y * y for x, y in zip(a, b, strict=True)) / 2
        root = mpmath.sqrt(w**2 - dot**2 + half**2)
        if t is None:
            factor = (dot + half) / (w + root)
        else:
            th = mpmath.tanh(root * t)
            factor = (root + (dot + half - w) * th) / (root + (half - dot + w) * th)
        angle = mpmath.log(factor) / 2
        return [float(x * mpmath.cosh(angle) - y * mpmath.sinh(angle)) for x, y in zip(a, b, strict=True)]


@pytest.mark.covers("completion:F19", "completion:F20")
@pytest.mark.parametrize("alpha", [1.0, 1e-5, 1e-150, 1e-170, 1e-290])
@pytest.mark.parametrize("target", [2.0, -2.0])
def test_general_starts_however_small(seed, alpha, target):
    rng = np.random.default_rng(seed)
    a, b = alpha * rng.normal(size=2), alpha * rng.normal(size=2)
    solution = disconnected(one_pair(target), pair(a, b))
    np.testing.assert_allclose(solution.limit()[1][0], reference(a, b, target, None), atol=10 * ROUNDING)
    escape = -np.log(alpha) / 2 + 0.1  # the pair leaves zero about then: the growth over it is 1/alpha
    for t in (0.5 * escape, escape, escape + 1):
        expected = np.array(reference(a, b, target, t))
        # The exponent 2 S t has a rounding error of its own size times 1e-16.
        np.testing.assert_allclose(
            solution.params(t)[1][0],
            expected,
            atol=0,
            rtol=3e-13 * (1 + np.linalg.norm(expected) / abs(expected).min()),
        )


@pytest.mark.covers("completion:F19", "completion:F20")
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_starts_that_end_in_the_saddle(sign):
    """a = -b with w > 0 (and a = b with w < 0): s = |a| obeys s' = -(s^2 + |w|) s."""
    w, a = 1.5, np.array([0.6, -0.8])
    solution = disconnected(one_pair(sign * w), pair(a, -sign * a))
    for t in (0.3, 2.0, 20.0, 200.0):
        length = np.sqrt(w / ((1 + w) * np.exp(2 * w * t) - 1))
        first, second = solution.params(t)
        np.testing.assert_allclose(second[0], length * a, rtol=1e-12)  # e^{-wt} with wt = 300
        np.testing.assert_array_equal(first[:, 0], -sign * second[0])
    np.testing.assert_array_equal(solution.params(1e6)[1], 0)
    with pytest.raises(HypothesisError, match=r"entry \(0, 0\) starts at a = .*saddle"):
        solution.limit()
    with pytest.raises(HypothesisError, match="finite hyperbolic angle"):
        disconnected_hyperbolic(one_pair(sign * w), pair(a, -sign * a))


@pytest.mark.covers("completion:F20")
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_starts_with_one_part_only_that_fit(sign):
    """a = b with w > 0 (and a = -b with w < 0): |a|^2 is logistic."""
    w, a = 1.5, np.array([0.03, -0.04])
    solution = disconnected(one_pair(sign * w), pair(a, sign * a))
    y = a @ a
    for t in (0.0, 1.0, 5.0):
        expected = np.sqrt(w / (y + (w - y) * np.exp(-2 * w * t))) * a
        np.testing.assert_allclose(solution.params(t)[1][0], expected, rtol=10 * ROUNDING)
    np.testing.assert_allclose(solution.limit()[1][0], np.sqrt(w / y) * a, rtol=ROUNDING)


@pytest.mark.covers("completion:F20")
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_zero_target_decays_algebraically_from_one_part(sign):
    """a = +-b and w = 0: |a|^2 obeys y' = -2 y^2."""
    a = np.array([0.6, -0.8])
    solution = disconnected(one_pair(0.0), pair(a, sign * a))
    for t in (0.5, 1e3, 1e12):
        np.testing.assert_allclose(solution.params(t)[1][0], a / np.sqrt(1 + 2 * t), rtol=10 * ROUNDING)
    np.testing.assert_array_equal(solution.limit()[1], 0)
    assert np.isinf(float(solution.integrated_residual()[0]))


@pytest.mark.covers("completion:F20")
def test_zero_target_in_general(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=2), rng.normal(size=2)
    solution = disconnected(one_pair(0.0), pair(a, b))
    first, second = solution.limit()
    assert abs(float((second @ first)[0, 0])) < ROUNDING
    assert np.linalg.norm(a + b) * np.linalg.norm(a - b) == pytest.approx(
        2 * float(jnp.sum(first**2 + second.T**2)) / 2
    )
    (expected,) = flow(one_pair(0.0), pair(a, b), [1.3], [0], [0], [0.0])
    assert worst(solution.params(1.3), expected) < 10 * SHORT


@pytest.mark.covers("completion:E5")
def test_sign_of_the_residual_in_the_exponent():
    """With r = target - model the pair turns by +int r; the printed minus sign does not lead to the limit."""
    problem, params = example()
    solution = disconnected(problem, params)
    integral = [
        quad(lambda t, i=i, w=w: w - float(solution.product(t)[i, i]), 0, 60, epsabs=1e-11, limit=200)[0]
        for i, w in enumerate((1.0, -0.5))
    ]
    np.testing.assert_allclose(-np.array(integral), solution.integrated_residual(), atol=1e-9)
    limit = np.asarray(solution.limit()[1])
    turned = {
        sign: np.cosh(integral)[:, None] * np.asarray(A) + sign * np.sinh(integral)[:, None] * np.asarray(B).T
        for sign in (1, -1)
    }
    np.testing.assert_allclose(turned[1], limit, atol=1e-9)
    assert np.abs(turned[-1] - limit).max() > 0.1


@pytest.mark.covers("completion:F19")
def test_where_the_hyperbolic_form_fails():
    """Negative target and small start, where its denominator cancels: the stable form keeps its digits."""
    a, b = 1e-5 * np.array([1.0, 0.3]), 1e-5 * np.array([0.2, -0.4])
    expected = reference(a, b, -1.0, None)
    np.testing.assert_allclose(disconnected(one_pair(-1.0), pair(a, b)).limit()[1][0], expected, rtol=10 * ROUNDING)
    with pytest.raises(HypothesisError, match="take disconnected"):
        disconnected_hyperbolic(one_pair(-1.0), pair(a, b))
    with pytest.raises(HypothesisError, match="finite hyperbolic angle"):
        disconnected_hyperbolic(one_pair(1.0), pair(1e-160 * a, 1e-160 * b))


def test_compiled_and_mapped_over_starts(seed):
    problem, _ = example()
    starts = tuple(jax.random.normal(key, (3, 2, 2)) for key in jax.random.split(jax.random.key(seed)))
    mapped = jax.jit(jax.vmap(lambda params: disconnected(problem, params).limit()))(starts)
    for member in range(3):
        single = disconnected(problem, tuple(w[member] for w in starts)).limit()
        assert worst([w[member] for w in mapped], single) < 10 * ROUNDING


@pytest.mark.covers("completion:F19", "completion:F39")
@pytest.mark.parametrize("solve", [disconnected, disconnected_hyperbolic])
def test_hypotheses_are_refused_by_name(solve):
    loss = Completion(np.eye(2), np.eye(2))
    layer = jnp.eye(2)
    with pytest.raises(HypothesisError, match=r"'depth 2' does not hold: measured residual 1\.000e\+00"):
        solve(Problem(DeepLinear((2, 2, 2, 2)), loss), (layer,) * 3)
    with pytest.raises(HypothesisError, match=r"'completion loss'.*Regression"):
        solve(Problem(DeepLinear((2, 2, 2)), Regression(np.eye(2), np.eye(2))), (layer, layer))
    with pytest.raises(HypothesisError, match="l2 = 0"):
        solve(Problem(DeepLinear((2, 2, 2)), loss, l2=0.1), (layer, layer))
    with pytest.raises(HypothesisError, match="at most one observation in each row and column"):
        solve(Problem(DeepLinear((2, 2, 2)), Completion(np.eye(2), [[1, 1], [0, 0]])), (layer, layer))
    with pytest.raises(ValueError, match=r"params\[1\] must be finite"):
        solve(Problem(DeepLinear((2, 2, 2)), loss), (layer, jnp.full((2, 2), jnp.nan)))
    with pytest.raises(ValueError, match="params must have layer shapes"):
        solve(Problem(DeepLinear((2, 2, 2)), loss), (jnp.eye(3), layer))


@pytest.mark.covers("completion:F39")
def test_times_are_checked():
    solution = disconnected(*example())
    with pytest.raises(ValueError, match="times must be at least 0, but reach -1"):
        solution.params(-1.0)
    with pytest.raises(ValueError, match="times must be finite"):
        solution.params(np.inf)
    with pytest.raises(ValueError, match="overflow"):
        disconnected(one_pair(1.0), pair([1e200, 0], [0, 1e200]))
    # One pair of two: the other one has numbers.
    large = (np.array([[1e200, 0], [0, 0], [0, 1.0]]), np.array([[0, 1e200, 0], [0, 0, 1.0]]))
    with pytest.raises(ValueError, match="overflow"):
        unchecked(disconnected)(Problem(DeepLinear((2, 3, 2)), Completion(np.eye(2), np.eye(2))), large)


def test_layers_of_other_numbers_are_taken_in_64_bits():
    """Integers are not cut off, 32 bits do not stay, complex numbers are refused; sqrt(4), sqrt(9) by hand."""
    problem = Problem(DeepLinear((2, 2, 2)), Completion(np.diag([4.0, 9.0]), np.eye(2)))
    exact = disconnected(problem, (jnp.eye(2), jnp.eye(2))).params(0.3)
    for layer in (np.eye(2, dtype=int), jnp.eye(2, dtype=jnp.float32)):
        solution = unchecked(disconnected)(problem, (layer, layer))
        for found, wanted in zip(solution.params(0.3), exact, strict=True):
            assert found.dtype == jnp.float64
            np.testing.assert_array_equal(found, wanted)
        for limit in (solution.limit(), unchecked(disconnected_hyperbolic)(problem, (layer, layer))):
            np.testing.assert_allclose(limit[1], np.diag([2.0, 3.0]), atol=10 * ROUNDING)
    with pytest.raises(TypeError, match=r"disconnected: params\[1\] must hold real numbers, but holds complex128"):
        unchecked(disconnected)(problem, (jnp.eye(2), 1j * jnp.eye(2)))
