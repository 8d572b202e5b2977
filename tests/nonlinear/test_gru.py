"""Gated recurrent units: the cell, its gradient through time, and training, against plain NumPy and optax."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from checking import unchecked
from deeplinear.core import NumericalError
from deeplinear.nonlinear import (
    GRU,
    GRU_STUDIES,
    GRUStudy,
    adam_start,
    adam_step,
    every_output,
    gaussian_sequences,
    gru_from_weights,
    gru_response,
    gru_teacher,
    last_output,
    normal_gru,
    run_gru_study,
    sequence_extrapolation,
    sequence_loss,
    train_gru,
    uniform_gru,
)

ROUNDING = 1e-12  # a few dozen updates of order-one numbers
GRADIENT = 1e-10  # relative to the largest entry, as specified
STATES, INPUTS, OUTPUTS, TIMES, BATCH = 3, 2, 2, 6, 4

DERIVED = jax.jit(jax.value_and_grad(sequence_loss))


def draw_weights(seed: int) -> dict[str, np.ndarray]:
    rng, wide = np.random.default_rng(seed), 3 * STATES
    shapes = {
        "weight_ih": (wide, INPUTS),
        "weight_hh": (wide, STATES),
        "bias_ih": (wide,),
        "bias_hh": (wide,),
        "readout": (OUTPUTS, STATES),
    }
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def plain_states(w: dict[str, np.ndarray], inputs: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    """PyTorch's equations, gate by gate, for one sequence; complex numbers pass through."""
    ir, iz, i_n = np.split(w["weight_ih"], 3)
    hr, hz, hn = np.split(w["weight_hh"], 3)
    bir, biz, bin_ = np.split(w["bias_ih"], 3)
    bhr, bhz, bhn = np.split(w["bias_hh"], 3)
    h, kept = np.zeros(STATES, w["readout"].dtype), []
    for x in inputs:
        r = 1 / (1 + np.exp(-(ir @ x + bir + hr @ h + bhr)))
        z = 1 / (1 + np.exp(-(iz @ x + biz + hz @ h + bhz)))
        inner = hn @ h + bhn
        n = np.tanh(i_n @ x + bin_ + r * inner)
        new = (1 - z) * n + z * h
        kept.append((x, h, r, z, inner, n, new))
        h = new
    return kept


def plain_outputs(w: dict[str, np.ndarray], inputs: np.ndarray) -> np.ndarray:
    return np.array([[w["readout"] @ step[-1] for step in plain_states(w, sequence)] for sequence in inputs])


def plain_loss(w: dict[str, np.ndarray], inputs: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> complex:
    gaps = plain_outputs(w, inputs) - targets
    return np.sum(weights[:, None] * gaps**2) / len(inputs)


def backpropagated(
    w: dict[str, np.ndarray], inputs: np.ndarray, targets: np.ndarray, weights: np.ndarray
) -> dict[str, np.ndarray]:
    """The gradient written out by hand, backwards through time."""
    total = {name: np.zeros_like(array) for name, array in w.items()}
    for sequence, target in zip(inputs, targets, strict=True):
        later = np.zeros(STATES)
        for (x, h, r, z, inner, n, new), wanted, weight in reversed(
            list(zip(plain_states(w, sequence), target, weights, strict=True))
        ):
            gap = 2 * weight * (w["readout"] @ new - wanted) / len(inputs)
            total["readout"] += np.outer(gap, new)
            dh = later + w["readout"].T @ gap
            dn = dh * (1 - z) * (1 - n**2)
            dz = dh * (h - n) * z * (1 - z)
            dr = dn * inner * r * (1 - r)
            from_input, from_state = np.concatenate([dr, dz, dn]), np.concatenate([dr, dz, dn * r])
            total["weight_ih"] += np.outer(from_input, x)
            total["weight_hh"] += np.outer(from_state, h)
            total["bias_ih"] += from_input
            total["bias_hh"] += from_state
            later = dh * z + w["weight_hh"].T @ from_state
    return total


def named(gru: GRU) -> dict[str, np.ndarray]:
    return {name: np.asarray(getattr(gru, name)) for name in draw_weights(0)}


@pytest.fixture(scope="module")
def case(seed: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed + 1000)
    return draw_weights(seed), rng.normal(size=(BATCH, TIMES, INPUTS)), rng.normal(size=(BATCH, TIMES, OUTPUTS))


@pytest.mark.covers("rnn:F28")
def test_the_cell_has_the_equations_of_pytorch(case: tuple) -> None:
    weights, inputs, _ = case
    gru = gru_from_weights(**weights)
    np.testing.assert_allclose(gru.outputs(jnp.asarray(inputs)), plain_outputs(weights, inputs), atol=ROUNDING)
    # One sequence, and a batch of batches.
    np.testing.assert_allclose(gru.outputs(jnp.asarray(inputs[0])), plain_outputs(weights, inputs)[0], atol=ROUNDING)
    assert gru.outputs(jnp.asarray(inputs[None])).shape == (1, BATCH, TIMES, OUTPUTS)


@pytest.mark.covers("rnn:F28")
@pytest.mark.parametrize("kind", [last_output, every_output])
def test_gradient_through_time(case: tuple, kind: object) -> None:
    """Against a gradient written by hand and against complex steps, which have no cancellation."""
    weights, inputs, targets = case
    chosen = kind(4, TIMES)
    value, found = DERIVED(gru_from_weights(**weights), jnp.asarray(inputs), jnp.asarray(targets), chosen)
    assert float(value) == pytest.approx(plain_loss(weights, inputs, targets, np.asarray(chosen)), rel=1e-12)
    by_hand, ours = backpropagated(weights, inputs, targets, np.asarray(chosen)), named(found)
    largest = max(np.abs(array).max() for array in by_hand.values())
    step = 1e-30
    for name, array in by_hand.items():
        np.testing.assert_allclose(ours[name], array, rtol=0, atol=GRADIENT * largest)
        for index in list(np.ndindex(array.shape))[:: max(array.size // 5, 1)]:
            moved = {key: value.astype(complex) for key, value in weights.items()}
            moved[name][index] += 1j * step
            slope = plain_loss(moved, inputs, targets, np.asarray(chosen)).imag / step
            assert abs(ours[name][index] - slope) <= GRADIENT * largest


def test_what_comes_after_the_sequence_has_no_part(case: tuple) -> None:
    """A padded sequence with weights is the sequence itself: the same loss and gradient."""
    weights, inputs, targets = case
    gru, inputs, targets = gru_from_weights(**weights), jnp.asarray(inputs), jnp.asarray(targets)
    for kind in (last_output, every_output):
        padded = DERIVED(gru, inputs, targets, kind(3, TIMES))
        short = DERIVED(gru, inputs[:, :3], targets[:, :3], kind(3, 3))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=ROUNDING), padded, short)
    np.testing.assert_array_equal(last_output(2, 3), [0, 1, 0])
    np.testing.assert_array_equal(every_output(2, 3), [0.5, 0.5, 0])


def test_laws_of_the_starts(seed: int) -> None:
    """Standard deviation of a normal start within 5 standard errors; a uniform one within its bounds, and near them."""
    normal, uniform = normal_gru(jax.random.key(seed), 40, scale=0.3), uniform_gru(jax.random.key(seed), 40, scale=2.0)
    hidden = np.asarray(normal.weight_hh)
    assert abs(hidden.std() / 0.3 - 1) < 5 / np.sqrt(2 * hidden.size)
    bound = 2 / np.sqrt(40)
    for leaf in jax.tree.leaves(uniform):
        assert np.abs(leaf).max() <= bound
    assert np.abs(uniform.weight_hh).max() > 0.95 * bound


def test_adam_is_that_of_optax(seed: int) -> None:
    rng = np.random.default_rng(seed)
    params = {"a": jnp.asarray(rng.normal(size=3)), "b": jnp.asarray(rng.normal(size=(2, 2)))}
    rule, moments = optax.adam(0.1), adam_start(params)
    other, state = params, rule.init(params)

    @jax.jit
    def both(params, moments, done, other, state):
        gradient = jax.tree.map(lambda p: jnp.sin(3 * p), params)
        update, state = rule.update(jax.tree.map(lambda p: jnp.sin(3 * p), other), state)
        return *adam_step(params, gradient, moments, done, jnp.asarray(0.1)), optax.apply_updates(other, update), state

    for done in range(12):
        params, moments, other, state = both(params, moments, jnp.asarray(done), other, state)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), params, other)


LENGTHS, STEPS = (2, 5), 20


@pytest.fixture(scope="module")
def stacks(seed: int) -> tuple[GRU, GRU, jax.Array]:
    """Two teachers with two equal starts each."""
    keys = jax.random.split(jax.random.key(seed), 4)
    teachers = jax.jit(jax.vmap(lambda k: normal_gru(k, 2, scale=1.0)))(keys[:2])
    starts = jax.jit(jax.vmap(lambda k: normal_gru(k, 3, scale=0.3)))(keys[2:])
    return teachers, jax.tree.map(lambda leaf: jnp.stack([leaf, leaf], axis=1), starts), keys[:2]


@pytest.mark.covers("rnn:F28", "rnn:F29")
def test_a_stack_is_trained_as_its_members_alone(stacks: tuple) -> None:
    """Padded and together, and in a plain loop with optax: the same networks."""
    teachers, students, keys = stacks
    weights = jnp.stack([last_output(length, LENGTHS[-1]) for length in LENGTHS])
    steps: list[int] = []
    both = train_gru(students, teachers, weights, keys, steps=STEPS, lr=1e-2, batch=6, every=8, progress=steps.append)
    assert steps == [8, 16, 20] == both.steps.tolist() and both.losses.shape == (2, 2, 3)

    student, teacher = (jax.tree.map(lambda leaf: leaf[0, 1], students), jax.tree.map(lambda leaf: leaf[0], teachers))
    rule = optax.adam(1e-2)
    state, losses = rule.init(student), []

    @jax.jit
    def advance(student, state, step):
        inputs = gaussian_sequences(jax.random.fold_in(keys[0], step), 6, 5)
        loss, gradient = DERIVED(student, inputs, teacher.outputs(inputs), last_output(5, 5))
        update, state = rule.update(gradient, state)
        return optax.apply_updates(student, update), state, loss

    for step in range(STEPS):
        student, state, loss = advance(student, state, step)
        losses.append(float(loss))
    for ours, single in zip(jax.tree.leaves(both.students), jax.tree.leaves(student), strict=True):
        np.testing.assert_allclose(ours[0, 1], single, rtol=0, atol=GRADIENT)
    assert both.losses[0, 1, 0] == pytest.approx(np.mean(losses[:8]), rel=1e-10)


@pytest.mark.covers("rnn:F28")
def test_errors_beyond_the_length(seed: int) -> None:
    rng = np.random.default_rng(seed)
    outputs, targets = rng.normal(size=(2, 5, 7, 1)), rng.normal(size=(2, 5, 7, 1))
    found = sequence_extrapolation(jnp.asarray(outputs), jnp.asarray(targets), 3)
    gaps = np.abs(outputs - targets)[..., 0]
    np.testing.assert_allclose(found.error, [np.mean([max(row[3:]) for row in member]) for member in gaps])
    np.testing.assert_allclose(found.seen, [np.mean([max(row[:3]) for row in member]) for member in gaps])
    sizes = np.abs(targets)[..., 0]
    np.testing.assert_allclose(found.trivial, [np.mean([max(row[3:]) for row in member]) for member in sizes])


def test_sequences_are_normal_and_nested(seed: int) -> None:
    key = jax.random.key(seed)
    long, short = (np.asarray(gaussian_sequences(key, 500, length)) for length in (6, 2))
    np.testing.assert_array_equal(long[:, :2], short)
    assert abs(np.mean(long)) < 5 / np.sqrt(3000) and abs(np.var(long) - 1) < 5 * np.sqrt(2 / 3000)
    products = long[:, 0, 0] * long[:, 1, 0]
    assert abs(products.mean()) < 5 * products.std() / np.sqrt(500)


SMALL = GRUStudy(
    teacher_states=2, states=3, lengths=(2, 4), horizon=8, steps=6, batch=5, teacher_steps=5, sequences=6, shown=2,
    notes=2, seeds=2,
)  # fmt: skip


@pytest.mark.covers("rnn:F29")
def test_a_study_is_the_same_together_and_apart() -> None:
    heard: list[float] = []
    apart = run_gru_study(SMALL, progress=lambda fraction, text: heard.append(fraction))
    together = run_gru_study(dataclasses.replace(SMALL, together=True))
    assert heard == sorted(heard) and heard[-1] == 1.0
    assert apart.keys() == together.keys()
    for name, value in apart.items():
        np.testing.assert_allclose(value, together[name], rtol=0, atol=1e-10, err_msg=name)
    assert apart["error"].shape == (2, 2) and apart["losses"].shape == (2, 2, 2)


@pytest.mark.covers("rnn:F29")
def test_a_study_in_32_bits() -> None:
    found = run_gru_study(dataclasses.replace(SMALL, lengths=(4,), dtype="float32", loss="all", start="uniform"))
    assert found["error"].dtype == np.float32 and np.isfinite(found["error"]).all()


def test_targets_of_the_studies() -> None:
    times = np.arange(120)
    late = np.where(times < 15, 0, np.sin(0.25 * (times - 15)) * np.exp(-0.015 * (times - 15)))
    wanted = late + 0.5 * np.sin(0.6 * times) * np.exp(-0.03 * times)
    np.testing.assert_allclose(GRU_STUDIES["paper"].target(), wanted, atol=1e-14)
    times = np.arange(60)
    np.testing.assert_allclose(GRU_STUDIES["small"].target(), np.sin(0.35 * times) * np.exp(-0.02 * times), atol=1e-14)


@pytest.mark.covers("rnn:F28")
def test_teachers_have_the_response_they_were_made_for(seed: int) -> None:
    """Half as many states and steps as a study has; the zero response misses by 1/6."""
    times = np.arange(20)
    target = jnp.asarray(np.sin(0.35 * times) * np.exp(-0.1 * times))
    teacher = gru_teacher(jax.random.key(seed), target, 4, steps=500)
    assert float(jnp.mean((gru_response(teacher, 20) - target) ** 2)) < 0.05 * float(jnp.mean(target**2))
    fresh = gru_teacher(jax.random.key(seed), target, 4, steps=1, lr=1e-12)
    assert float(jnp.max(jnp.abs(gru_response(fresh, 20)))) < 1e-9


def test_refusals(stacks: tuple) -> None:
    teachers, students, keys = stacks
    weights = jnp.stack([last_output(length, 5) for length in LENGTHS])
    with pytest.raises(NumericalError, match="student 0 of teacher 0 is not finite at step 1"):
        train_gru(students, teachers, weights, keys, steps=STEPS, lr=1e300, batch=6)
    for changes, words in (
        ({"lr": 0.0}, "lr must be greater than 0"),
        ({"steps": 0, "lr": 0.1}, "steps must be at least 1"),
        ({"batch": 0, "lr": 0.1}, "batch must be at least 1"),
        ({"lr": float("nan")}, "lr must be"),
    ):
        with pytest.raises(ValueError, match=words):
            train_gru(students, teachers, weights, keys, **{"steps": 1, **changes})
    with pytest.raises(ValueError, match="students' read-outs must have shape"):
        train_gru(students, teachers, weights[:1], keys, steps=1, lr=0.1)
    with pytest.raises(ValueError, match="less than the horizon 3, but is 3"):
        sequence_extrapolation(jnp.zeros((1, 3, 1)), jnp.zeros((1, 3, 1)), 3)
    with pytest.raises(ValueError, match="outputs must be finite"):
        sequence_extrapolation(jnp.full((1, 3, 1), jnp.nan), jnp.zeros((1, 3, 1)), 1)
    with pytest.raises(ValueError, match="window must be at least 4"):
        last_output(4, 3)
    with pytest.raises(ValueError, match="scale must be greater than 0"):
        normal_gru(jax.random.key(0), 2, scale=0.0)
    with pytest.raises(ValueError, match="bias_hh must have shape"):
        gru_from_weights(**{**draw_weights(0), "bias_hh": np.zeros(2)})
    with pytest.raises(ValueError, match="weight_hh must be finite"):
        gru_from_weights(**{**draw_weights(0), "weight_hh": np.full((3 * STATES, STATES), np.nan)})
    with pytest.raises(ValueError, match="inputs must have shape"):
        unchecked(GRU.outputs)(gru_from_weights(**draw_weights(0)), jnp.zeros((4, 1)))
    with pytest.raises(ValueError, match="one input and one output"):
        gru_response(gru_from_weights(**draw_weights(0)), 3)
    for changes, words in (
        ({"lengths": (4, 2)}, "lengths must go up"),
        ({"lengths": (2, 8)}, "lengths must be at most 7"),
        ({"decays": (0.1, 0.2)}, "equally many"),
        ({"loss": "lst"}, "Did you mean 'last'"),
        ({"dtype": "float16"}, "dtype is 'float16'"),
        ({"notes": 7}, "notes must be at most 6"),
    ):
        with pytest.raises(ValueError, match=words):
            dataclasses.replace(SMALL, **changes)
