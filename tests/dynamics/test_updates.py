"""Discrete updates against PyTorch's published rules, written anew in NumPy, and against steps worked out by hand."""

import math
from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.dynamics import AbstractUpdate, Adagrad, Adam, GradientDescent, Milestones, Minibatch, Momentum, RMSProp
from deeplinear.models import (
    AbstractSumLoss,
    Completion,
    DeepLinear,
    Energy,
    EntryCompletion,
    Problem,
    Regression,
    SampleRegression,
    Sensing,
    SquaredDistance,
    WhiteInputs,
)
from zoo import ALL_LOSSES, ALL_UPDATES, INP, OUT

ROUNDING = 1e-12  # some tens of operations on numbers of order one
LONG_RUN = 1e-10  # two hundred steps of a contracting map
STANDARD_ERRORS = 6  # exceeded once in 5e8 draws
STEPS = 6
DRAWS = 4000

MODEL = DeepLinear((INP, 4, OUT))
KEY = jax.random.key(0)

Rule = Callable[..., Iterator[list[np.ndarray]]]


@eqx.filter_jit
def step(method: AbstractUpdate, problem: Problem, params, state, key):
    return method.step(problem, params, state, key)


def run(method: AbstractUpdate, problem: Problem, params, steps: int) -> list:
    """Parameters after each step."""
    state, history = method.init(params), []
    for key in jax.random.split(KEY, steps):
        params, state = step(method, problem, params, state, key)
        history.append(params)
    return history


@eqx.filter_jit
def draw(loss: AbstractSumLoss, product, keys, batch: int):
    """Gradients of many batches."""
    return jax.vmap(lambda key: loss.batch_gradient(product, key, batch))(keys)


def regression_like(seed: int, l2: float) -> tuple[Problem, tuple, Callable]:
    """Two layers with squared distance and a penalty; its gradient in plain NumPy."""
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(OUT, INP))
    params = tuple(jnp.asarray(rng.normal(size=shape)) for shape in MODEL.shapes)

    def gradient(w: list[np.ndarray]) -> list[np.ndarray]:
        residual = w[1] @ w[0] - target
        return [w[1].T @ residual + l2 * w[0], residual @ w[0].T + l2 * w[1]]

    return Problem(MODEL, SquaredDistance(target), l2), params, gradient


# ---- the algorithm boxes of PyTorch: torch.optim.SGD, Adam, RMSprop, Adagrad


def torch_sgd(w, gradient, steps, lr, momentum=0.0, dampening=0.0, nesterov=False):
    buffer = None
    for _ in range(steps):
        g = gradient(w)
        if momentum != 0:
            if buffer is None:
                buffer = g
            else:
                buffer = [momentum * b + (1 - dampening) * x for b, x in zip(buffer, g, strict=True)]
            g = [x + momentum * b for x, b in zip(g, buffer, strict=True)] if nesterov else buffer
        w = [p - lr * x for p, x in zip(w, g, strict=True)]
        yield w


def torch_adam(w, gradient, steps, lr, b1, b2, eps):
    m, v = [0 * p for p in w], [0 * p for p in w]
    for t in range(1, steps + 1):
        g = gradient(w)
        m = [b1 * a + (1 - b1) * x for a, x in zip(m, g, strict=True)]
        v = [b2 * a + (1 - b2) * x**2 for a, x in zip(v, g, strict=True)]
        corrected = [(a / (1 - b1**t), b / (1 - b2**t)) for a, b in zip(m, v, strict=True)]
        w = [p - lr * a / (np.sqrt(b) + eps) for p, (a, b) in zip(w, corrected, strict=True)]
        yield w


def torch_rmsprop(w, gradient, steps, lr, alpha, eps):
    v = [0 * p for p in w]
    for _ in range(steps):
        g = gradient(w)
        v = [alpha * a + (1 - alpha) * x**2 for a, x in zip(v, g, strict=True)]
        w = [p - lr * x / (np.sqrt(a) + eps) for p, x, a in zip(w, g, v, strict=True)]
        yield w


def torch_adagrad(w, gradient, steps, lr, eps):
    total = [0 * p for p in w]
    for _ in range(steps):
        g = gradient(w)
        total = [a + x**2 for a, x in zip(total, g, strict=True)]
        w = [p - lr * x / (np.sqrt(a) + eps) for p, x, a in zip(w, g, total, strict=True)]
        yield w


# The defaults of torch.optim are written out here; a large eps shows on which side of the root it stands.
RULES: dict[str, tuple[AbstractUpdate, Rule, dict[str, float]]] = {
    "descent": (GradientDescent(0.03), torch_sgd, {"lr": 0.03}),
    "momentum": (Momentum(0.03), torch_sgd, {"lr": 0.03, "momentum": 0.9}),
    "damped": (Momentum(0.03, 0.8, 0.3), torch_sgd, {"lr": 0.03, "momentum": 0.8, "dampening": 0.3}),
    "nesterov": (
        Momentum(0.03, 0.8, nesterov=True),
        torch_sgd,
        {"lr": 0.03, "momentum": 0.8, "nesterov": True},
    ),
    "adam": (Adam(), torch_adam, {"lr": 1e-3, "b1": 0.9, "b2": 0.999, "eps": 1e-8}),
    "adam-eps": (Adam(0.1, 0.7, 0.8, 0.5), torch_adam, {"lr": 0.1, "b1": 0.7, "b2": 0.8, "eps": 0.5}),
    "rmsprop": (RMSProp(), torch_rmsprop, {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8}),
    "rmsprop-eps": (RMSProp(0.1, 0.7, 0.5), torch_rmsprop, {"lr": 0.1, "alpha": 0.7, "eps": 0.5}),
    "adagrad": (Adagrad(), torch_adagrad, {"lr": 1e-2, "eps": 1e-10}),
    "adagrad-eps": (Adagrad(0.1, 0.5), torch_adagrad, {"lr": 0.1, "eps": 0.5}),
}


@pytest.mark.covers("completion:F33")
@pytest.mark.parametrize("name", RULES)
def test_step_by_step_as_the_published_rule(name: str, seed: int) -> None:
    method, rule, numbers = RULES[name]
    problem, params, gradient = regression_like(seed, l2=0.1)
    expected = rule([np.asarray(p) for p in params], gradient, STEPS, **numbers)
    for ours, theirs in zip(run(method, problem, params, STEPS), expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=ROUNDING, atol=ROUNDING)


# On E(w) = (w - 4)^2 / 2 from w = 0 the first gradient is -4. Numbers are chosen so that roots come out even at first.
_ADAM_2 = 1.25 * (2.5 / 0.75) / (math.sqrt(12) + 1)  # m = -2.5, v = 0.75*4 + 0.25*9 = 5.25, v/(1 - 0.75^2) = 12
_ADAM_G = -3 + _ADAM_2
_ADAM_3 = -1.25 * ((-1.25 + 0.5 * _ADAM_G) / 0.875) / (math.sqrt((3.9375 + 0.25 * _ADAM_G**2) / 0.578125) + 1)
_RMS_2 = 3 / (math.sqrt(9.4464) + 0.8)  # v = 0.36*10.24 + 0.64*9
_RMS_G = -3 + _RMS_2
_RMS_3 = -_RMS_G / (math.sqrt(0.36 * 9.4464 + 0.64 * _RMS_G**2) + 0.8)
HAND = {
    "descent": (GradientDescent(0.5), (2.0, 3.0, 3.5)),
    "momentum": (Momentum(0.1), (0.4, 1.12, 2.056)),  # b = -4, -7.2, -9.36
    "damped": (Momentum(0.1, 0.9, 0.5), (0.4, 0.94, 1.579)),  # b = -4, -5.4, -6.39
    "nesterov": (Momentum(0.1, nesterov=True), (0.76, 1.6996, 2.690716)),  # b = -4, -6.84, -8.4564
    "adam": (Adam(1.25, 0.5, 0.75, 1.0), (1.0, 1 + _ADAM_2, 1 + _ADAM_2 + _ADAM_3)),
    "rmsprop": (RMSProp(1.0, 0.36, 0.8), (1.0, 1 + _RMS_2, 1 + _RMS_2 + _RMS_3)),  # 4 / (sqrt(0.64*16) + 0.8) = 1
    "adagrad": (Adagrad(1.25, 1.0), (1.0, 1.625, 1.625 + 1.25 * 2.375 / (math.sqrt(30.640625) + 1))),
}


@pytest.mark.covers("completion:F33")
@pytest.mark.parametrize("name", HAND)
def test_three_steps_by_hand(name: str) -> None:
    method, expected = HAND[name]
    problem = Problem(DeepLinear((1, 1)), SquaredDistance([[4.0]]))
    history = run(method, problem, (jnp.zeros((1, 1)),), 3)
    np.testing.assert_allclose([float(p[0][0, 0]) for p in history], expected, rtol=ROUNDING)


@pytest.mark.covers("completion:F33")
def test_two_hundred_steps_of_descent(seed: int) -> None:
    problem, params, gradient = regression_like(seed, l2=0.0)
    *_, theirs = torch_sgd([np.asarray(p) for p in params], gradient, 200, lr=0.01)
    ours = run(GradientDescent(0.01), problem, params, 200)[-1]
    np.testing.assert_allclose(ours[1] @ ours[0], theirs[1] @ theirs[0], rtol=LONG_RUN, atol=LONG_RUN)


@pytest.mark.parametrize("name", ALL_UPDATES)
def test_numbers_change_without_tracing_anew(name: str, seed: int) -> None:
    method = ALL_UPDATES[name]
    problem, params = Problem(MODEL, completion_loss(seed)), ones()
    counted = eqx.filter_jit(eqx.debug.assert_max_traces(lambda m, pr, p, s, k: m.step(pr, p, s, k), max_traces=1))
    halved = jax.tree.map(lambda number: 0.5 * number if jnp.issubdtype(number.dtype, jnp.inexact) else number, method)
    first, _ = counted(method, problem, params, method.init(params), KEY)
    second, _ = counted(halved, problem, params, halved.init(params), KEY)
    assert not np.allclose(first[0], second[0], rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ALL_UPDATES)
def test_compilation_and_strict_dtypes_change_nothing(name: str, seed: int) -> None:
    method = ALL_UPDATES[name]
    problem, params = Problem(MODEL, completion_loss(seed), 0.1), ones()
    with jax.numpy_dtype_promotion("strict"):
        plain, state = method.step(problem, params, method.init(params), KEY)
        plain, _ = method.step(problem, plain, state, KEY)
    compiled, state = step(method, problem, params, method.init(params), KEY)
    compiled, _ = step(method, problem, compiled, state, KEY)
    for a, b in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(a, b, rtol=ROUNDING, atol=ROUNDING)


# ---- stochastic descent


def ones() -> tuple:
    return tuple(jnp.ones(shape) for shape in MODEL.shapes)


def completion_loss(seed: int) -> Completion:
    rng = np.random.default_rng(seed)
    return Completion(rng.normal(size=(OUT, INP)), [[1, 0, 1], [0, 1, 1]])


def sum_losses(seed: int) -> list[AbstractSumLoss]:
    rng = np.random.default_rng(seed)
    losses = [case(rng).loss for case in ALL_LOSSES]
    return [loss for loss in losses if isinstance(loss, AbstractSumLoss)]


def finite_sums(seed: int) -> list[AbstractSumLoss]:
    return [loss for loss in sum_losses(seed) if not isinstance(loss, WhiteInputs)]


def test_every_kind_of_sum_is_in_the_collection() -> None:
    kinds = {type(loss) for loss in sum_losses(0)}
    assert kinds == {Completion, EntryCompletion, Sensing, SampleRegression, WhiteInputs}


@pytest.mark.covers("completion:F33")
@pytest.mark.parametrize("batch", [1, 3])
def test_batches_are_unbiased(batch: int, seed: int) -> None:
    """The mean over many draws is the loss's own multiple of the gradient: batch / terms for sums, 1 for means."""
    product = jnp.asarray(np.random.default_rng(seed + 1).normal(size=(OUT, INP)))
    keys = jax.random.split(jax.random.key(seed), DRAWS)
    for loss in sum_losses(seed):
        share = 1.0 if isinstance(loss, SampleRegression | WhiteInputs) else batch / int(loss.terms)
        assert float(loss.share(batch)) == pytest.approx(share, rel=ROUNDING)
        drawn = np.asarray(draw(loss, product, keys, batch))
        error = np.abs(drawn.mean(0) - share * np.asarray(loss.gradient(product)))
        allowed = STANDARD_ERRORS * drawn.std(0) / math.sqrt(DRAWS) + ROUNDING
        assert np.all(error <= allowed), type(loss).__name__


@pytest.mark.covers("completion:F33")
@pytest.mark.parametrize("batch", [1, 3])
def test_every_drawn_entry_is_observed_and_drawn_once(batch: int, seed: int) -> None:
    rows, columns = np.array([0, 0, 1, 1]), np.array([0, 2, 1, 2])
    mask = np.zeros((OUT, INP))
    mask[rows, columns] = 1
    keys = jax.random.split(jax.random.key(seed), DRAWS)
    for loss in (Completion(jnp.zeros((OUT, INP)), mask), EntryCompletion(rows, columns, jnp.zeros(4), (OUT, INP))):
        # With residuals of one the gradient counts the draws of each entry.
        counts = np.asarray(draw(loss, jnp.ones((OUT, INP)), keys, batch))
        assert np.all(np.isin(counts, (0, 1)))
        assert np.all(counts.sum((1, 2)) == batch)
        assert np.array_equal(counts.max(0), mask)  # all draws miss one entry once in 1e499


def test_batch_of_all_terms_is_descent(seed: int) -> None:
    params = tuple(jnp.asarray(np.random.default_rng(seed).normal(size=shape)) for shape in MODEL.shapes)
    for loss in finite_sums(seed):
        problem = Problem(MODEL, loss, 0.3)
        whole = step(GradientDescent(0.1), problem, params, None, KEY)[0]
        batch = step(Minibatch(GradientDescent(0.1), int(loss.terms)), problem, params, None, KEY)[0]
        for a, b in zip(whole, batch, strict=True):
            np.testing.assert_allclose(a, b, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("batch", [1, 2])
def test_observed_entries_are_data(batch: int) -> None:
    """Masks with different numbers of entries share compiled code and are each drawn from correctly."""
    counted = eqx.filter_jit(
        eqx.debug.assert_max_traces(lambda loss, key: loss.batch_gradient(jnp.ones((2, 2)), key, batch), max_traces=1)
    )
    for mask in ([[1, 0], [0, 1]], [[0, 1], [1, 1]]):
        drawn = counted(Completion(jnp.zeros((2, 2)), mask), KEY)
        assert float(jnp.sum(drawn)) == batch
        assert float(jnp.sum(drawn * jnp.asarray(mask))) == batch
    if batch == 2:  # fewer entries than the batch, unseen under compilation: every one once
        assert counted(Completion(jnp.zeros((2, 2)), [[0, 0], [1, 0]]), KEY).tolist() == [[0, 0], [1, 0]]


def test_different_keys_draw_different_terms(seed: int) -> None:
    method, problem = Minibatch(GradientDescent(0.1)), Problem(MODEL, completion_loss(seed))
    moved = {
        np.asarray(step(method, problem, ones(), None, key)[0][1]).tobytes()
        for key in jax.random.split(jax.random.key(seed), 100)
    }
    assert len(moved) == 4  # one per observed entry; one of four is missed by 100 draws once in 1e12


def test_white_inputs_show_the_second_moments_of_their_batch(seed: int) -> None:
    """A batch sees residual times sample covariance; of many, about the residual; nothing where no input is drawn."""
    rng = np.random.default_rng(seed)
    target, product = rng.normal(size=(2, 1, 4))
    loss = WhiteInputs(target, [1, 1, 0, 1])
    one = np.asarray(loss.batch_gradient(jnp.asarray(product), jax.random.key(seed), 1))
    assert np.linalg.matrix_rank(one) == 1 and one[0, 2] == 0
    many = np.asarray(loss.batch_gradient(jnp.asarray(product), jax.random.key(seed), 200_000))
    wanted = (product - target) * [1, 1, 0, 1]
    assert np.abs(many - wanted).max() < 6 * np.linalg.norm(wanted) * math.sqrt(2 / 200_000)


def test_rates_fall_at_milestones() -> None:
    """The step after so many steps sees the milestones up to that number; batches go around it."""
    method = Milestones(Adam(1e-3), [5000, 10000, 15000, 30000], 0.1)
    for taken, power in ((0, 0), (4999, 0), (5000, 1), (9999, 1), (10000, 2), (29999, 3), (30000, 4)):
        assert float(method.rate(taken)) == pytest.approx(1e-3 * 0.1**power, rel=1e-14)
    problem = Problem(DeepLinear((1, 1)), SquaredDistance(jnp.ones((1, 1))))
    params, state, weight = (jnp.zeros((1, 1)),), None, 0.0
    falling = Milestones(GradientDescent(0.5), [2, 3], 0.5)
    state = falling.init(params)
    for rate in (0.5, 0.5, 0.25, 0.125):
        params, state = falling.step(problem, params, state, KEY)
        weight += rate * (1 - weight)
        assert float(params[0][0, 0]) == pytest.approx(weight, rel=1e-15)


# ---- refusals


def _cube(product):
    return jnp.sum(product**3)


@pytest.mark.parametrize(
    "loss",
    [SquaredDistance(jnp.eye(OUT, INP)), Regression(jnp.eye(INP), jnp.eye(OUT, INP)), Energy(_cube)],
    ids=lambda loss: type(loss).__name__,
)
def test_loss_without_terms_is_refused_by_name(loss) -> None:
    problem = Problem(MODEL, loss)
    with pytest.raises(TypeError, match=rf"Minibatch: .* but is {type(loss).__name__}"):
        Minibatch(GradientDescent(0.1)).check(problem)
    with pytest.raises(TypeError, match=type(loss).__name__):
        step(Minibatch(GradientDescent(0.1)), problem, ones(), None, KEY)


def test_batch_larger_than_the_loss_is_refused() -> None:
    for loss in finite_sums(0):
        terms = int(loss.terms)
        with pytest.raises(ValueError, match=rf"number of terms of the loss, {terms}, but is {terms + 1}"):
            Minibatch(GradientDescent(0.1), terms + 1).check(Problem(MODEL, loss))
        with pytest.raises(ValueError, match=rf"batch must be at most the number of terms, {terms}"):
            loss.batch_gradient(jnp.ones((OUT, INP)), KEY, terms + 1)
        with pytest.raises(ValueError, match="batch must be at least 1"):
            loss.batch_gradient(jnp.ones((OUT, INP)), KEY, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GradientDescent(0.0), "GradientDescent: lr must be greater than 0"),
        (lambda: Momentum(0.1, 1.0), "Momentum: momentum must be less than 1, but is 1"),
        (lambda: Momentum(0.1, dampening=2.0), "Momentum: dampening must be at most 1"),
        (lambda: Momentum(0.1, dampening=0.1, nesterov=True), "dampening must be 0 with nesterov=True"),
        (lambda: Adam(-1.0), "Adam: lr must be greater than 0"),
        (lambda: Adam(b1=1.0), "Adam: b1 must be less than 1"),
        (lambda: Adam(b2=-0.1), "Adam: b2 must be at least 0"),
        (lambda: Adam(eps=-1.0), "Adam: eps must be at least 0"),
        (lambda: RMSProp(decay=float("nan")), "RMSProp: decay must be at least 0, but is nan"),
        (lambda: Adagrad(float("inf")), "Adagrad: lr must be finite"),
        (lambda: Milestones(Adam(), [5, 3]), "Milestones: steps must be increasing whole numbers from 1 on"),
        (lambda: Milestones(Adam(), np.array([0.5])), "Milestones: steps must be increasing whole numbers"),
        (lambda: Milestones(Adam(), [5], 0.0), "Milestones: factor must be greater than 0"),
        (lambda: WhiteInputs(jnp.ones((1, 2)), [0, 0]), "WhiteInputs: active must hold only 0 and 1"),
        (lambda: WhiteInputs(jnp.ones((1, 2)), [1, 0, 1]), "WhiteInputs: active must have shape"),
        (lambda: Minibatch(GradientDescent(0.1), 0), "Minibatch: batch must be at least 1"),
        (lambda: SampleRegression(jnp.zeros((2, 0)), jnp.zeros((1, 0))), "at least one sample"),
        (lambda: SampleRegression(jnp.zeros((2, 3)), jnp.zeros((1, 2))), "outputs must have shape"),
    ],
)
def test_bad_arguments_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_what_is_no_update_is_refused() -> None:
    with pytest.raises(TypeError, match="Minibatch"):
        Minibatch("adam")
    with pytest.raises(TypeError, match="Milestones: method must have a learning rate lr, but is Minibatch"):
        Milestones(Minibatch(Adam()), [5])
