"""Alignment from one observed column, against SciPy's flow and the reference example."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.exact import column_alignment
from deeplinear.models import Completion, DeepLinear, EntryCompletion, Problem, SquaredDistance
from systems import scipy_flow

DIGITS = 1e-12  # the reference example is given to thirteen digits
INTEGRATOR = 1e-9  # DOP853 at rtol 1e-12 over a time of 60; relative
FITTED = 1e-11  # largest residual that counts as zero loss
ROUNDING = 1e-13

A = jnp.array([[0.1, 0.05], [-0.02, 0.1]])
B = jnp.array([[0.2, 0.3], [0.1, -0.1]])


def example() -> Problem:
    return Problem(DeepLinear((2, 2, 2)), Completion([[1.0, np.nan], [0.5, np.nan]], [[1, 0], [1, 0]]))


def limit(problem: Problem, params, mask, target) -> tuple:
    """Layers that SciPy's flow ends with: followed until the column is fitted, which takes long where b ends short."""
    for time in (60.0, 200.0, 600.0, 2000.0):
        (params,) = scipy_flow(problem, params, np.array([time]), lambda w: mask * (w - target))
        if np.abs(mask * (params[1] @ params[0] - target)).max() < FITTED:
            return tuple(jnp.asarray(w) for w in params)
    raise AssertionError("the flow does not fit the column")


def draw(rng, rows: int, hidden: int, scale: float):
    """One observed column of three, one row of the product unobserved, Gaussian layers of the given scale."""
    out = rows + 1
    mask, target = np.zeros((out, 3)), np.zeros((out, 3))
    mask[1:, 1] = 1
    target[1:, 1] = rng.choice([-1, 1], rows) * rng.uniform(0.5, 2, rows)
    params = tuple(jnp.asarray(scale * rng.normal(size=s)) for s in ((hidden, 3), (out, hidden)))
    return Problem(DeepLinear((3, hidden, out)), Completion(target, mask)), params, mask, target


@pytest.mark.covers("completion:X3", "completion:F18")
def test_reference_example():
    problem = example()
    found = column_alignment(problem, (B, A))
    np.testing.assert_allclose(found.bounds, [0.0261818782871, 0.1047275131483], atol=DIGITS)
    assert found.direction is found.parallel_column is found.parallel_rows is found.perpendicular is None
    end = limit(problem, (B, A), np.array([[1, 0], [1, 0]]), np.array([[1, 0], [0.5, 0]]))
    np.testing.assert_allclose(found.misalignment(end), [0.0012541438186, 0.0314323033701], atol=10 * DIGITS)
    np.testing.assert_allclose(end[1] @ end[0], [[1, 0.18955023672], [0.5, 0.0694505941982]], atol=10 * DIGITS)
    known = column_alignment(problem, (B, A), end[0][:, 0])
    assert float(known.parallel_column) == pytest.approx(1.0657616177781, abs=DIGITS)
    np.testing.assert_allclose(known.parallel_rows, np.array([1, 0.5]) / 1.0657616177781, rtol=DIGITS)


@pytest.mark.covers("completion:C18", "completion:C19", "completion:E14", "completion:F18")
@pytest.mark.parametrize(("rows", "hidden", "problems"), [(2, 2, 10), (4, 3, 6)])
def test_bounds_and_parallel_parts_at_the_end_of_training(seed, rows, hidden, problems):
    """Starts from small to large."""
    rng = np.random.default_rng([seed, rows])
    vacuous = 0
    for scale in np.geomspace(1e-3, 2, problems):
        problem, params, mask, target = draw(rng, rows, hidden, scale)
        end = limit(problem, params, mask, target)
        found = column_alignment(problem, params, -3.0 * end[0][:, 1])
        measured = np.asarray(found.misalignment(end))
        assert np.all(measured <= np.asarray(found.bounds))
        assert np.all(measured <= np.asarray(found.proper_bounds)) and np.all(np.asarray(found.proper_bounds) < 1)
        vacuous += int(np.any(np.asarray(found.bounds) > 1))
        # By plain NumPy: parallel and orthogonal parts of the rows that SciPy reached.
        b, a = np.asarray(end[0])[:, 1], np.asarray(end[1])[1:]
        u = b / np.linalg.norm(b)
        np.testing.assert_allclose(found.direction, -u, atol=ROUNDING)
        np.testing.assert_allclose(found.parallel_column, np.linalg.norm(b), rtol=INTEGRATOR)
        np.testing.assert_allclose(found.parallel_rows, a @ u, rtol=INTEGRATOR)
        rest = np.sum((a - np.outer(a @ u, u)) ** 2)
        assert float(found.perpendicular) == pytest.approx(rest, rel=INTEGRATOR, abs=INTEGRATOR)
        np.testing.assert_array_equal(end[1][0], params[1][0])
    assert vacuous > 0, "some of the published bounds exceed one"


@pytest.mark.covers("completion:C20", "completion:F18")
def test_zero_second_layer_gives_rank_one_at_all_times(seed):
    rng = np.random.default_rng(seed)
    problem, params, mask, target = draw(rng, 2, 2, 0.5)
    params = (params[0], jnp.zeros((3, 2)))
    np.testing.assert_array_equal(column_alignment(problem, params).bounds, 0)
    for layers in scipy_flow(problem, params, np.array([0.5, 3.0, 20.0]), lambda w: mask * (w - target)):
        values = np.linalg.svd(layers[1] @ layers[0], compute_uv=False)
        assert values[1] < 1e-15 * max(values[0], 1)


def test_parallel_part_without_cancellation():
    """A long second layer: (u.b)^2 = w^2/c to leading order, where sqrt(c^2 + 4 w^2) - c has no digits left."""
    problem = Problem(DeepLinear((1, 1, 1)), EntryCompletion([0], [0], [1e-3], (1, 1)))
    found = column_alignment(problem, (jnp.zeros((1, 1)), jnp.full((1, 1), 1e4)), jnp.ones(1))
    assert float(found.parallel_column) == pytest.approx(1e-7, rel=ROUNDING)
    assert found.parallel_rows is not None and float(found.parallel_rows[0]) == pytest.approx(1e4, rel=ROUNDING)


@pytest.mark.covers("completion:F18", "completion:F39")
def test_refusals():
    model, layer, column = DeepLinear((2, 2, 2)), jnp.eye(2), np.array([[1, 0], [1, 0]])
    with pytest.raises(HypothesisError, match="one observed column"):
        column_alignment(Problem(model, Completion(np.ones((2, 2)), np.eye(2))), (layer, layer))
    with pytest.raises(HypothesisError, match=r"non-zero targets.*1 of the targets"):
        column_alignment(Problem(model, Completion([[1.0, 0], [0, 0]], column)), (layer, layer))
    with pytest.raises(HypothesisError, match="a start that moves"):
        column_alignment(example(), (jnp.array([[0.0, 1], [0, 1]]), jnp.zeros((2, 2))))
    with pytest.raises(HypothesisError, match="depth 2"):
        column_alignment(Problem(DeepLinear((2, 2)), Completion(np.ones((2, 2)), column)), (layer,))
    with pytest.raises(HypothesisError, match="completion loss"):
        column_alignment(Problem(model, SquaredDistance(np.eye(2))), (layer, layer))
    with pytest.raises(HypothesisError, match="l2"):
        column_alignment(Problem(model, Completion(np.ones((2, 2)), column), l2=1.0), (layer, layer))
    with pytest.raises(ValueError, match="direction must have shape"):
        column_alignment(example(), (B, A), jnp.ones(3))
    with pytest.raises(ValueError, match="direction must not be zero"):
        column_alignment(example(), (B, A), jnp.zeros(2))
    with pytest.raises(HypothesisError, match="not zero"):
        column_alignment(example(), (B, A)).misalignment((jnp.zeros((2, 2)), A))
    with pytest.raises(ValueError, match="two layers"):
        column_alignment(example(), (B, A)).misalignment((B, A, A))
    found = column_alignment(example(), (B, A))
    with pytest.raises(ValueError, match=r"misalignment: params\[0\] must be finite"):
        found.misalignment((B * jnp.nan, A))
    with pytest.raises(ValueError, match="two layers that chain, with at least 1 columns in the first and 2 rows"):
        found.misalignment((B, A[:1]))
    with pytest.raises(ValueError, match="targets of problem must lie between"):
        column_alignment(Problem(model, Completion([[1e-310, 0], [1, 0]], column)), (layer, layer))
    with pytest.raises(ValueError, match="params must have entries of at most"):
        column_alignment(example(), (1e200 * B, A))
    # b = (3, 0), both rows 0.01 (1, 1): along (0, 1) the rows would end with 2e-4 - 2e-4 + ... - 9 left over
    with pytest.raises(HypothesisError, match="direction is a limit direction") as caught:
        column_alignment(example(), (3 * layer, 0.01 * jnp.ones((2, 2))), jnp.array([0.0, 1.0]))
    assert caught.value.residual == pytest.approx((9 - 2e-4) / (9 + 4e-4), rel=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_targets_whose_squares_are_no_numbers(sign):
    """B_i = |A|^2 (sqrt(|b|^4 + 4 sum w^2) + |b|^2) / (2 w_i^2), by hand for |A|^2 = 4, |b| = 1."""
    model, layer, column = DeepLinear((2, 2, 2)), jnp.eye(2), np.array([[1, 0], [1, 0]])
    start = (layer, sign * jnp.ones((2, 2)))
    large = column_alignment(Problem(model, Completion([[sign * 1e200, 0], [sign, 0]], column)), start)
    np.testing.assert_allclose(large.bounds, [4e-200, 4e200], rtol=ROUNDING)
    np.testing.assert_allclose(large.proper_bounds, [4e-200, 1], rtol=ROUNDING)
    small = column_alignment(Problem(model, Completion([[sign * 1e-200, 0], [sign, 0]], column)), start)
    np.testing.assert_allclose(small.bounds, [np.inf, 2 * (np.sqrt(5) + 1)], rtol=ROUNDING)
    np.testing.assert_allclose(small.proper_bounds[0], 1)
