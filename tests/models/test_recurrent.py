"""The linear recurrent network as a model: responses, gradients of all forms, Hessians, refusals."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError, Params, flatten, unflatten
from deeplinear.models import (
    Completion,
    LinearRNN,
    Problem,
    Regression,
    SampleRegression,
    SquaredDistance,
)
from deeplinear.models._recurrent import FORMS

ROUNDING = 1e-12
"""Sums of a few dozen products of numbers of order one."""

LENGTH, STATES = 5, 3


def drawn(seed: int, form: Any, inputs: int = 1, outputs: int = 1) -> tuple[LinearRNN, Params]:
    rng = np.random.default_rng(seed)
    model = LinearRNN(STATES, LENGTH, inputs=inputs, outputs=outputs, form=form)
    params = [0.6 * rng.standard_normal(shape) for shape in model.shapes]
    if form == "symmetric":
        params[1] = (params[1] + params[1].T) / 2
    return model, tuple(jnp.asarray(p) for p in params)


def powers(model: LinearRNN, params: Params) -> list[np.ndarray]:
    """C A^j B by plain powers."""
    transition, first, output = (np.asarray(m) for m in model.system(params))
    return [output @ np.linalg.matrix_power(transition, j) @ first for j in range(LENGTH)]


@pytest.mark.covers("rnn:F1", "rnn:S1")
@pytest.mark.parametrize("form", FORMS)
def test_the_product_is_the_response_and_acts_on_the_window(form: str, seed: int) -> None:
    model, params = drawn(seed, form, 2, 2)
    product = np.asarray(model.forward(params)[0])
    np.testing.assert_allclose(product, np.concatenate(powers(model, params), axis=1), atol=ROUNDING)
    # The recurrence itself, on a random sequence; the window has the newest input first.
    transition, first, output = (np.asarray(m) for m in model.system(params))
    inputs = np.random.default_rng(seed).standard_normal((LENGTH, 2))
    state = np.zeros(STATES)
    for x in inputs:
        state = transition @ state + first @ x
    np.testing.assert_allclose(product @ inputs[::-1].ravel(), output @ state, atol=ROUNDING)


@pytest.mark.covers("rnn:F4", "rnn:S5")
@pytest.mark.parametrize(("form", "size"), [*itertools.product(FORMS, (1,)), ("general", 2), ("tied", 2)])
def test_gradients_by_complex_steps(form: str, size: int) -> None:
    """The derivative of the plain formula in every parameter, without differences that cancel."""
    model, params = drawn(0, form, size, size)
    target = np.random.default_rng(1).standard_normal(model.product_shape)
    gradient = Problem(model, SquaredDistance(target)).gradient(params)

    def loss(layers: list[np.ndarray]) -> complex:
        first, inner = layers[0], layers[1]
        output = first.T if form == "tied" else layers[2]
        if form == "symmetric":
            inner = (inner + inner.T) / 2
        if form == "upper":
            full = np.zeros((STATES, STATES), complex)
            full[np.triu_indices(STATES)] = inner[:, 0]
            inner = full + np.triu(full, 1).T
        if form in ("diagonal", "tied"):
            inner = np.diag(inner[:, 0])
        row = [output @ np.linalg.matrix_power(inner, j) @ first for j in range(LENGTH)]
        return 0.5 * np.sum((np.concatenate(row, axis=1) - target) ** 2)

    for position, layer in enumerate(params):
        for entry in np.ndindex(*layer.shape):
            moved = [np.asarray(p).astype(complex) for p in params]
            moved[position][entry] += 1e-30j
            assert gradient[position][entry] == pytest.approx(loss(moved).imag / 1e-30, abs=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_hessian_products(form: str) -> None:
    model, params = drawn(2, form)
    problem = Problem(model, SquaredDistance(np.ones(model.product_shape)))
    wanted = jax.jit(jax.hessian(lambda v: problem.value(unflatten(v, model.shapes))))(flatten(params))
    np.testing.assert_allclose(eqx.filter_jit(problem.hessian)(params), wanted, atol=ROUNDING)


@pytest.mark.covers("rnn:F3", "rnn:S2")
def test_losses_of_sequences(seed: int) -> None:
    """White inputs give the population loss exactly; windows of given inputs the empirical one, in three forms."""
    model, params = drawn(seed, "general")
    response = np.asarray(model.forward(params)[0])
    teacher = np.random.default_rng(seed + 1).standard_normal((1, LENGTH))
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=LENGTH)))
    mean = np.mean(((response - teacher) @ signs.T) ** 2)
    assert float(SquaredDistance(teacher).value(jnp.asarray(response))) == pytest.approx(mean / 2, abs=1e-11)
    windows = np.random.default_rng(seed).standard_normal((LENGTH, 40))
    wanted = np.mean((response @ windows - teacher @ windows) ** 2) / 2
    for loss in (Regression.from_data(windows, teacher @ windows), SampleRegression(windows, teacher @ windows)):
        assert float(Problem(model, loss).value(params)) == pytest.approx(wanted, abs=1e-11)
    mask = (np.arange(LENGTH) < 3)[None]
    shorter = np.sum((response - teacher)[0, :3] ** 2) / 2
    assert float(Problem(model, Completion(teacher, mask)).value(params)) == pytest.approx(shorter, abs=ROUNDING)


def test_systems_go_to_parameters_and_back() -> None:
    rng = np.random.default_rng(0)
    square, first = rng.standard_normal((3, 3)), rng.standard_normal((3, 1))
    even, diagonal = square + square.T, np.diag([0.3, -0.2, 0.9])
    for form, transition in (("general", square), ("symmetric", even), ("upper", even), ("tied", diagonal)):
        model = LinearRNN(3, 4, form=form)
        system = model.system(model.params((transition, first, first.T)))
        np.testing.assert_allclose(system.transition, transition)
        np.testing.assert_allclose(system.output, first.T)
    for form in ("symmetric", "upper"):
        with pytest.raises(HypothesisError, match="symmetric"):
            LinearRNN(3, 4, form=form).params((square, first, first.T))
    with pytest.raises(HypothesisError, match="diagonal"):
        LinearRNN(3, 4, form="diagonal").params((even, first, first.T))
    with pytest.raises(HypothesisError, match="transposes"):
        LinearRNN(3, 4, form="tied").params((diagonal, first, 2 * first.T))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"states": 0, "length": 3}, "states"),
        ({"states": 2, "length": 0}, "length"),
        ({"states": 2, "length": 3, "inputs": 2, "outputs": 1, "form": "tied"}, "outputs must equal inputs"),
    ],
)
def test_refusals(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        LinearRNN(**arguments)


def test_refused_parameters() -> None:
    model, params = drawn(0, "symmetric")
    with pytest.raises(ValueError, match="must have shapes"):
        model.check(params[:2], "here")
    with pytest.raises(HypothesisError, match="symmetric"):
        model.check((params[0], params[1].at[0, 1].add(1.0), params[2]), "here")
    with pytest.raises(ValueError, match="three matrices"):
        model.params((jnp.eye(3),))
    with pytest.raises(ValueError, match="3 states"):
        model.params((jnp.eye(2), jnp.ones((2, 1)), jnp.ones((1, 2))))
