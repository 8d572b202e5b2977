"""The certificate of lazy training, against the reference example, plain NumPy and SciPy's flow."""

import functools
import re

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.exact import lazy_certificate, toeplitz_example, toeplitz_ratio
from deeplinear.models import Completion, DeepLinear, EntryCompletion, Problem, observed_entries
from systems import scipy_flow

DIGITS = 1e-12  # the reference example is given to thirteen digits
ROUNDING = 1e-12
EXCESS = 1e-10  # relative; DOP853 at rtol 1e-12
FLOOR = 1e-22  # of the loss: squared errors of the integration


def jacobian(a, b, rows, columns) -> np.ndarray:
    """Derivatives of the entries a_i . b_j by all of A, then all of B, entry by entry."""
    result = []
    for i, j in zip(rows, columns, strict=True):
        by_a, by_b = np.zeros_like(a), np.zeros_like(b)
        by_a[i], by_b[:, j] = b[:, j], a[i]
        result.append(np.concatenate([by_a.ravel(), by_b.ravel()]))
    return np.array(result)


def balanced(rng, out: int, hidden: int, inp: int):
    """Balanced factors, A^T A = B B^T, with singular values between 0.7 and 1.5."""
    u, q, v = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in (out, hidden, inp))
    rank = min(out, hidden, inp)
    s = np.diag(rng.uniform(0.7, 1.5, rank))
    return u[:, :rank] @ s @ q[:, :rank].T, q[:, :rank] @ s @ v[:, :rank].T


def example() -> tuple[Problem, tuple]:
    layer = jnp.diag(jnp.array([1.0, 1.2]))
    loss = Completion([[1.0, 0.02], [np.nan, 1.44]], [[1, 1], [0, 1]])
    return Problem(DeepLinear((2, 2, 2)), loss), (layer, layer)


@pytest.mark.covers("completion:X4", "completion:F23", "completion:F24")
def test_reference_example():
    wide, one = (lazy_certificate(*example(), constant=constant) for constant in ("width", "one"))
    assert wide.applicable and one.applicable and wide.reason == one.reason == ""
    for found, expected in (
        (wide, (1.4142135623731, 1.6970562748477, 2e-4, 0.0012056327160, 0.25, 0.1018233764909, 1.0123807471630)),
        (
            one,
            (
                1.4142135623731,
                1.6970562748477,
                2e-4,
                0.0024112654321,
                0.3535533905933,
                0.1018233764909,
                0.8187752829533,
            ),
        ),
    ):
        numbers = (found.sigma_min, found.sigma_max, found.loss, found.threshold, found.radius, found.displacement)
        np.testing.assert_allclose([*numbers, found.raw_stable_rank], expected, atol=DIGITS)
        assert found.raw_sharper_stable_rank == pytest.approx(1.3722316223979, abs=DIGITS)
        assert found.rate == pytest.approx(1.0) and found.imbalance == 0
    assert wide.stable_rank == wide.raw_stable_rank and one.stable_rank == 1
    assert (wide.constant, one.constant) == (2, 1)
    np.testing.assert_allclose(wide.loss_envelope(np.array([0.0, 2.0])), 2e-4 * np.exp([0, -2.0]), rtol=1e-14)


@pytest.mark.covers("completion:C26", "completion:E10")
def test_the_jacobian_is_lipschitz_with_constant_one(seed):
    """|J(X) - J(Y)|_2 <= |X - Y|_F, where the published constant is sqrt(d); attained by a change of one row of A."""
    rng = np.random.default_rng(seed)
    ratios = []
    for _ in range(100):
        d = int(rng.integers(2, 5))
        rows, columns = np.nonzero(rng.random((d, d)) < rng.uniform(0.3, 1))
        if len(rows):
            (a, b), (x, y) = (rng.normal(size=(2, d, d)) for _ in range(2))
            gap = jacobian(a, b, rows, columns) - jacobian(x, y, rows, columns)
            ratios.append(np.linalg.norm(gap, 2) / np.sqrt(np.sum((a - x) ** 2 + (b - y) ** 2)))
    assert max(ratios) <= 1 + ROUNDING
    a, b = rng.normal(size=(2, 3, 3))
    rows, columns = np.nonzero(np.ones((3, 3)))
    x = a.copy()
    x[1] += rng.normal(size=3)
    gap = jacobian(a, b, rows, columns) - jacobian(x, b, rows, columns)
    assert np.linalg.norm(gap, 2) / np.linalg.norm(a - x) == pytest.approx(1, rel=ROUNDING)


@pytest.mark.covers("completion:C27", "completion:F23", "completion:F24", "completion:E10")
@pytest.mark.parametrize("constant", ["width", "one"])
def test_bounds_along_the_flow_near_the_threshold(seed, constant):
    """Random balanced layers at 98 % of the threshold; with k = 1 they violate the published condition, no bound."""
    rng = np.random.default_rng([seed, constant == "one"])
    for _ in range(4):
        a, b = balanced(rng, 3, 3, 3)
        rows, columns = (index[:4] for index in np.divmod(rng.permutation(9), 3))
        params = (jnp.asarray(b), jnp.asarray(a))
        model = DeepLinear((3, 3, 3))

        def problem_at(gap, a=a, b=b, rows=rows, columns=columns, model=model):
            return Problem(model, EntryCompletion(rows, columns, (a @ b)[rows, columns] + gap, (3, 3)))

        threshold = lazy_certificate(problem_at(np.zeros(4)), params, constant=constant).threshold
        direction = rng.normal(size=4)
        gap = np.sqrt(2 * 0.98 * threshold) * direction / np.linalg.norm(direction)
        problem = problem_at(gap)
        found = lazy_certificate(problem, params, constant=constant)
        assert found.applicable and found.loss == pytest.approx(0.98 * threshold, rel=1e-9)
        assert lazy_certificate(problem, params).applicable == (constant == "width")
        singular = np.linalg.svd(jacobian(a, b, rows, columns), compute_uv=False)
        np.testing.assert_allclose([found.sigma_max, found.sigma_min], singular[[0, -1]], rtol=1e-8)
        assert found.displacement <= found.radius

        mask, target = np.zeros((3, 3)), np.zeros((3, 3))
        mask[rows, columns], target[rows, columns] = 1, (a @ b)[rows, columns] + gap
        times = np.linspace(0, 12 / found.sigma_min**2, 25)
        values = np.linalg.svd(a, compute_uv=False)
        for t, (end_b, end_a) in zip(
            times, scipy_flow(problem, params, times, functools.partial(masked, mask, target)), strict=True
        ):
            loss = 0.5 * np.sum((mask * (end_a @ end_b - target)) ** 2)
            assert loss <= float(found.loss_envelope(t)) * (1 + EXCESS) + FLOOR
            assert np.sqrt(np.sum((end_a - a) ** 2 + (end_b - b) ** 2)) <= found.displacement
            moved = np.linalg.svd(end_a, compute_uv=False)
            assert np.max(np.abs(moved - values)) <= found.radius / np.sqrt(2)
            np.testing.assert_allclose(moved, np.linalg.svd(end_b, compute_uv=False), atol=1e-9)
            rank = np.sum(moved**2) / moved[0] ** 2
            assert rank >= found.stable_rank and rank >= found.sharper_stable_rank


def masked(mask, target, w):
    return mask * (w - target)


@pytest.mark.covers("completion:C28", "completion:F25")
@pytest.mark.parametrize(
    ("size", "constant", "bound", "true"),
    [(4, "width", 2.778, 3.923), (8, "width", 6.338, 7.917), (4, "one", 1.960, 3.847), (8, "one", 4.255, 7.766)],
)
def test_toeplitz_example_at_its_largest_ratio(size, constant, bound, true):
    ratio = toeplitz_ratio(size, constant=constant) * (1 - 1e-9)
    problem, params = toeplitz_example(size, ratio, 1.7)
    found = lazy_certificate(problem, params, constant=constant)
    assert found.applicable
    np.testing.assert_allclose([found.sigma_min, found.sigma_max], np.sqrt(2 * 1.7), rtol=1e-13)
    powers = np.arange(1, size)
    assert found.loss == pytest.approx(1.7**2 / 2 * np.sum((size - powers) * ratio ** (2 * powers)), rel=1e-12)
    root = np.sqrt(size)
    formula = (4 * size - 1) / (4 * root + 1) if constant == "width" else (4 * root - 1) / 5
    assert found.raw_stable_rank == pytest.approx(formula**2, rel=1e-12)
    assert found.stable_rank == pytest.approx(bound, abs=5e-4)
    rows, columns, values = observed_entries(problem.loss)
    mask, target = np.zeros((size, size)), np.zeros((size, size))
    mask[rows, columns], target[rows, columns] = 1, values
    np.testing.assert_allclose(target, np.triu(1.7 * ratio ** np.subtract.outer(np.arange(size), np.arange(size)).T))
    ((_, a),) = scipy_flow(problem, params, np.array([12.0]), lambda w: mask * (w - target))
    s = np.linalg.svd(a, compute_uv=False)
    assert np.sum(s**2) / s[0] ** 2 == pytest.approx(true, abs=1.5e-3)


@pytest.mark.covers("completion:F25", "completion:C28")
def test_largest_ratio_of_the_toeplitz_example():
    for size, printed in ((10, 0.08784), (100, 0.08375), (1000, 0.08338)):
        assert size * toeplitz_ratio(size) == pytest.approx(printed, abs=5e-6)
    for size, constant, k in ((2, "width", 2), (7, "one", 1), (50, "width", 50)):
        with mpmath.workdps(30):
            c = mpmath.mpf(toeplitz_ratio(size, constant=constant))
            total = mpmath.fsum((size - n) * c ** (2 * n) for n in range(1, size))
            assert float(144 * k * total) == pytest.approx(1, abs=1e-14)
    assert np.sqrt(1000) * toeplitz_ratio(1000, constant="one") == pytest.approx(1 / 12, rel=1e-3)


@pytest.mark.covers("completion:F25")
def test_toeplitz_example_of_a_size_whose_other_triangle_overflows():
    problem, _ = toeplitz_example(400, 1e-4)
    values = observed_entries(problem.loss).values
    assert np.all(np.isfinite(values)) and values.max() == 1 and len(values) == 400 * 401 // 2
    with pytest.raises(ValueError, match="size must be at least 2"):
        toeplitz_example(1, 0.1)
    with pytest.raises(ValueError, match="ratio must be greater than 0"):
        toeplitz_example(3, 0.0)
    with pytest.raises(ValueError, match="size must be at least 2"):
        toeplitz_ratio(1)


@pytest.mark.covers("completion:F23")
def test_ill_conditioned_jacobians_keep_their_smallest_singular_value():
    """A = B = diag(1, 1e-9): the entry (2, 2) has gradients of size sqrt(2) 1e-9, lost in the Gram matrix."""
    layer = jnp.diag(jnp.array([1.0, 1e-9]))
    problem = Problem(DeepLinear((2, 2, 2)), Completion(np.diag([1.0, 1e-18]), np.eye(2)))
    found = lazy_certificate(problem, (layer, layer))
    assert found.sigma_min == pytest.approx(np.sqrt(2) * 1e-9, rel=ROUNDING)
    # Two entries of one row with nearly equal columns: no zero structure helps.
    a, b = np.array([[1.0, 0.0]]), np.array([[1.0, 1.0], [0.0, 1e-7]])
    problem = Problem(DeepLinear((2, 2, 1)), Completion([[1.0, 1.0]], [[1, 1]]))
    exact = np.linalg.svd(jacobian(a, b, [0, 0], [0, 1]), compute_uv=False)
    found = lazy_certificate(problem, (jnp.asarray(b), jnp.asarray(a)))
    np.testing.assert_allclose([found.sigma_max, found.sigma_min], exact, rtol=1e-9)


@pytest.mark.covers("completion:F23")
def test_rectangular_layers_of_any_hidden_width(seed):
    rng = np.random.default_rng(seed)
    a, b = balanced(rng, 2, 4, 3)
    mask = np.array([[1, 0, 1], [0, 1, 0]])
    problem = Problem(DeepLinear((3, 4, 2)), Completion(a @ b, mask))
    found = lazy_certificate(problem, (jnp.asarray(b), jnp.asarray(a)))
    assert found.applicable and found.constant == 3 and found.loss < 1e-28
    singular = np.linalg.svd(jacobian(a, b, *np.nonzero(mask)), compute_uv=False)
    np.testing.assert_allclose([found.sigma_max, found.sigma_min], singular[[0, -1]], rtol=1e-8)


@pytest.mark.covers("completion:F23")
def test_where_the_certificate_does_not_apply():
    problem, (layer, _) = example()
    far = Problem(problem.model, Completion(2 * np.ones((2, 2)), [[1, 1], [0, 1]]))
    for found, reason in (
        (lazy_certificate(far, (layer, layer)), "loss .* exceeds the threshold"),
        (lazy_certificate(problem, (1.01 * layer, layer)), "not balanced"),
        (lazy_certificate(problem, (0 * layer, 0 * layer)), "sigma_min is 0"),
        # More observations than parameters.
        (
            lazy_certificate(
                Problem(DeepLinear((3, 1, 3)), Completion(np.ones((3, 3)), np.ones((3, 3)))),
                (jnp.ones((1, 3)), jnp.ones((3, 1))),
            ),
            "sigma_min is 0",
        ),
    ):
        assert not found.applicable
        assert re.search(reason, found.reason)
        assert found.stable_rank is found.sharper_stable_rank is found.raw_stable_rank is None
        assert found.radius is found.displacement is found.rate is found.loss_envelope(1.0) is None
    assert lazy_certificate(problem, (1.01 * layer, layer), balance_tolerance=0.1).imbalance > 1e-3


@pytest.mark.covers("completion:F39")
def test_refusals():
    problem, (layer, _) = example()
    with pytest.raises(HypothesisError, match="depth 2"):
        lazy_certificate(Problem(DeepLinear((2, 2)), problem.loss), (layer,))
    with pytest.raises(HypothesisError, match="l2"):
        lazy_certificate(Problem(problem.model, problem.loss, l2=0.5), (layer, layer))
    with pytest.raises(ValueError, match="balance_tolerance must be greater than 0"):
        lazy_certificate(problem, (layer, layer), balance_tolerance=0.0)
    for factor in (1e100, 1e-100):
        with pytest.raises(ValueError, match="params must have a largest entry between"):
            lazy_certificate(problem, (factor * layer, factor * layer))
    certificate = lazy_certificate(*toeplitz_example(4, 0.01))
    for time, words in ((-1.0, "at least 0, but is -1"), (np.nan, "a number, but is nan")):
        with pytest.raises(ValueError, match=f"loss_envelope: times must be {words}"):
            certificate.loss_envelope(time)
