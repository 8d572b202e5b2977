"""The standard form of a least-squares task against plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.landscape import check_assumptions, diagonal_target, reduce_data, reduction_of
from deeplinear.models import (
    Completion,
    DeepLinear,
    Problem,
    Regression,
    SampleRegression,
    SquaredDistance,
    skip_network,
)

WIDTHS = (3, 2, 3, 2)
EXACT = 1e-10
"""Identities between numbers of order one to a hundred, through two decompositions."""


def data(seed: int, samples: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((3, samples)) * [[3.0], [1.0], [0.4]], rng.standard_normal((2, samples))


def layers_of(seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed + 7)
    return tuple(rng.standard_normal((WIDTHS[k + 1], WIDTHS[k])) for k in range(3))


def params_of(layers) -> tuple:
    return tuple(map(jnp.asarray, layers))


def raw_speed(layers, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Minus the gradient of half the sum of squares, layer by layer."""
    w1, w2, w3 = layers
    gap = (y - w3 @ w2 @ w1 @ x) @ x.T
    return w2.T @ w3.T @ gap, w3.T @ gap @ w1.T, gap @ (w2 @ w1).T


@pytest.mark.covers("network:C2", "network:F2")
def test_loss_and_solution_in_standard_form(seed: int) -> None:
    (x, y), layers = data(seed), layers_of(seed)
    reduction = reduce_data(x, y)
    assert reduction.notes == ()
    values, vectors = np.linalg.eigh(x @ x.T)
    whitened = y @ x.T @ (vectors / np.sqrt(values)) @ vectors.T
    np.testing.assert_allclose(reduction.sigma, np.linalg.svd(whitened, compute_uv=False), rtol=EXACT)
    best = np.linalg.lstsq(x.T, y.T, rcond=None)[0].T
    np.testing.assert_allclose(reduction.solution, best, atol=EXACT)
    np.testing.assert_allclose(reduction.outer.T @ best @ reduction.inner, reduction.target, atol=EXACT)
    raw = 0.5 * np.sum((y - np.linalg.multi_dot(layers[::-1]) @ x) ** 2)
    reduced = [np.asarray(w) for w in reduction.reduce(params_of(layers))]
    target = np.zeros((2, 3))
    np.fill_diagonal(target, np.asarray(reduction.sigma))
    np.testing.assert_array_equal(reduction.target, target)
    standard = 0.5 * np.sum((target - np.linalg.multi_dot(reduced[::-1])) ** 2)
    np.testing.assert_allclose(standard + float(reduction.constant), raw, rtol=EXACT)
    np.testing.assert_allclose(reduction.constant, 0.5 * np.sum((y - best @ x) ** 2), rtol=EXACT)
    np.testing.assert_allclose(reduction.problem(WIDTHS).value(params_of(reduced)), standard, rtol=EXACT)
    for back, layer in zip(reduction.lift(params_of(reduced)), layers, strict=True):
        np.testing.assert_allclose(back, layer, atol=EXACT)


@pytest.mark.covers("network:C3", "network:F3", "network:E16")
def test_raw_flow_is_another_one_unless_the_inputs_are_white(seed: int) -> None:
    (x, y), layers = data(seed), layers_of(seed)
    left, _, right = np.linalg.svd(x, full_matrices=False)
    for inputs, white in ((x, False), (2.0 * left @ right, False), (left @ right, True)):
        reduction = reduce_data(inputs, y)
        reduced = reduction.reduce(params_of(layers))
        wanted = [np.asarray(w) for w in reduction.reduce(params_of(raw_speed(layers, inputs, y)))]
        raw, plain = reduction.velocity(reduced, "raw"), reduction.velocity(reduced)
        scale = max(np.abs(w).max() for w in wanted)
        for ours, theirs in zip(raw, wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=EXACT * scale)
        for ours, theirs in zip(plain[1:], wanted[1:], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=EXACT * scale)
        gap = np.abs(np.asarray(plain[0]) - wanted[0]).max()
        assert gap < EXACT * scale if white else gap > 1e-3 * scale
        assert (float(reduction.white) < EXACT) is white
    # With c XXᵀ = I the first layer alone is faster, by the same factor everywhere.
    reduction = reduce_data(2.0 * left @ right, y)
    reduced = reduction.reduce(params_of(layers))
    fast, slow = reduction.velocity(reduced, "raw")[0], reduction.velocity(reduced)[0]
    np.testing.assert_allclose(fast, 4.0 * slow, atol=EXACT)
    with pytest.raises(ValueError, match="Did you mean 'raw'"):
        reduction.velocity(reduced, "rwa")


@pytest.mark.covers("network:F2")
def test_problems_of_every_kind_have_their_standard_form(seed: int) -> None:
    """One map, three losses: the value of the problem is that of the reduced one plus the constant."""
    (x, y), layers = data(seed), layers_of(seed)
    model, params = DeepLinear(WIDTHS), params_of(layers)
    samples = x.shape[1]
    losses = (
        SquaredDistance(np.linalg.lstsq(x.T, y.T, rcond=None)[0].T),
        Regression.from_data(x, y),
        Regression.from_data(x, y, reduced=True),
        SampleRegression(x, y),
    )
    for loss in losses:
        problem = Problem(model, loss)
        reduction = reduction_of(problem)
        value = reduction.problem(WIDTHS).value(reduction.reduce(params))
        np.testing.assert_allclose(value + reduction.constant, problem.value(params), rtol=EXACT)
        np.testing.assert_allclose(reduction.solution, losses[0].target, atol=1e-8)
        speed = reduction.velocity(reduction.reduce(params), "raw")
        wanted = reduction.reduce(tuple(-g for g in problem.gradient(params)))
        for ours, theirs in zip(speed, wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-9 * float(jnp.abs(theirs).max() + 1))
        white = isinstance(loss, SquaredDistance)
        assert (float(reduction.white) < EXACT) is white
        if not white:
            wanted = np.asarray(reduce_data(x, y).sigma) / np.sqrt(samples)
            np.testing.assert_allclose(reduction.sigma, wanted, rtol=1e-9)


def test_one_layer_and_more_outputs_than_inputs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target, layer = rng.standard_normal((4, 2)), rng.standard_normal((4, 2))
    problem = Problem(DeepLinear((2, 4)), SquaredDistance(target))
    reduction = reduction_of(problem)
    (reduced,) = reduction.reduce((jnp.asarray(layer),))
    np.testing.assert_allclose(reduction.lift((reduced,))[0], layer, atol=EXACT)
    np.testing.assert_allclose(jnp.sum((reduction.target - reduced) ** 2), np.sum((target - layer) ** 2), rtol=EXACT)
    (speed,) = reduction.velocity((reduced,), "raw")
    np.testing.assert_allclose(reduction.lift((speed,))[0], target - layer, atol=EXACT)
    assert reduction.sigma.shape == (2,) and reduction.target.shape == (4, 2)


def test_velocity_is_transformed_as_any_function_is(seed: int) -> None:
    x, y = data(seed)
    reduction = reduce_data(x, y)
    params = reduction.reduce(params_of(layers_of(seed)))
    stack = tuple(jnp.stack([w, 2 * w]) for w in params)
    many = jax.jit(jax.vmap(lambda p: reduction.velocity(p, "raw")))(stack)
    for both, one in zip(many, reduction.velocity(params, "raw"), strict=True):
        np.testing.assert_allclose(both[0], one, rtol=EXACT, atol=EXACT)


@pytest.mark.covers("network:E15", "network:F2")
def test_full_row_ranks_do_not_make_the_task_positive() -> None:
    """X = [I 0] and Y = [0 I] share no sample."""
    zero, one = np.zeros((2, 2)), np.eye(2)
    reduction = reduce_data(np.hstack([one, zero]), np.hstack([zero, one]))
    np.testing.assert_array_equal(reduction.sigma, [0.0, 0.0])
    assert len(reduction.notes) == 1 and "2 of 2 singular values of the task vanish" in reduction.notes[0]
    assert float(reduction.constant) == 1.0
    tied = reduction_of(Problem(DeepLinear((3, 2)), SquaredDistance(np.eye(2, 3))))
    assert len(tied.notes) == 1 and "coincide" in tied.notes[0]
    weak = reduction_of(Problem(DeepLinear((3, 2)), SquaredDistance(np.diag([1.0, 1e-10, 0])[:2])))
    assert len(weak.notes) == 1 and "1 of 2" in weak.notes[0]


@pytest.mark.covers("network:F2")
def test_assumptions_are_told_one_by_one() -> None:
    assert check_assumptions((5.0, 4.0, 2.5), (3, 3, 3)).all
    pythagoras = check_assumptions((5.0, 4.0, 3.0), (3, 3, 3))
    assert pythagoras.partial_sums_distinct is False and pythagoras.distinct and not pythagoras.all
    assert not check_assumptions((2.0, 1.0), (3, 1, 2)).filling
    assert not check_assumptions((2.0, 0.0), (3, 2, 2)).positive
    assert not check_assumptions((2.0, 2.0), (3, 2, 2)).distinct
    many = check_assumptions(tuple(range(1, 23)), (22, 22, 22))
    assert many.partial_sums_distinct is None and many.all is None
    assert check_assumptions((*range(2, 23), 2), (22, 22, 22)).all is False  # tied, sums or no sums
    with pytest.raises(ValueError, match="sigma must have shape"):
        check_assumptions((1.0, 2.0), (3, 3, 3))


@pytest.mark.covers("network:F2")
def test_data_that_have_no_standard_form_are_refused(seed: int) -> None:
    x, y = data(seed)
    with pytest.raises(ValueError, match="outputs must have shape"):
        reduce_data(x, y[:, :-1])
    with pytest.raises(ValueError, match="at least as many samples as inputs"):
        reduce_data(x[:, :2], y[:, :2])
    with pytest.raises(ValueError, match="at most as many rows as inputs"):
        reduce_data(x[:1], y)
    with pytest.raises(ValueError, match="finite"):
        reduce_data(np.where(x > 0, x, np.nan), y)
    flat = np.vstack([x[:2], x[0] + x[1]])
    with pytest.raises(HypothesisError, match="inputs of full row rank"):
        reduce_data(flat, y)
    model = DeepLinear((3, 2, 2))
    few = SampleRegression(np.eye(3)[:, :2], y[:, :2])
    for loss in (Regression.from_data(flat, y), SampleRegression(flat, y), few):
        with pytest.raises(HypothesisError, match="inputs of full row rank") as refused:
            reduction_of(Problem(model, loss))
        assert refused.value.residual > refused.value.tolerance
    with pytest.raises(HypothesisError, match="square loss of the whole product"):
        reduction_of(Problem(model, Completion(np.eye(2, 3), np.eye(2, 3))))
    with pytest.raises(HypothesisError, match="no penalty"):
        reduction_of(Problem(model, SquaredDistance(np.eye(2, 3)), 0.1))
    np.testing.assert_array_equal(diagonal_target(jnp.array([2.0, 1.0]), 2, 3), [[2, 0, 0], [0, 1, 0]])


def test_each_refusal_names_its_own_reason() -> None:
    masked = Problem(skip_network((2, 3, 2), 0, 2).model, SquaredDistance(jnp.eye(2)))
    with pytest.raises(HypothesisError, match=r"whose weights are all learnt.*Masked model") as refused:
        reduction_of(masked)
    assert "entry" not in str(refused.value)
    with pytest.raises(HypothesisError, match=r"square loss of the whole product.*critical points of Completion"):
        reduction_of(Problem(DeepLinear((2, 2)), Completion(jnp.eye(2), jnp.eye(2))))
