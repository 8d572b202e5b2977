r"""Training of recurrent networks on fresh Gaussian sequences, and how far what they learned extends.

Everything is for stacks: several teachers, and for each of them several students that differ in the length $k$ of the
sequences they are shown. The students of one teacher see the same sequences, each the first $k$ inputs of them.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Float, Int, Key, PyTree

from deeplinear.core import (
    RESULTS,
    Array,
    NumericalError,
    RandomKey,
    check_count,
    check_finite,
    check_number,
    check_shape,
    entry,
    is_concrete,
    no_gradient,
)
from deeplinear.nonlinear._gru import GRU, Number, normal_gru, sequence_loss

Tree = TypeVar("Tree")

MEAN_DECAY, SQUARE_DECAY, FLOOR = 0.9, 0.999, 1e-8
"""PyTorch's numbers for Adam: the two decay rates, and what is added to the root."""


class Moments(NamedTuple):
    """Running means of gradients and of their squares."""

    mean: Any
    square: Any


class GRUTraining(NamedTuple):
    """Trained students, and how the training went.

    Attributes:
        students: Stack of networks, (teachers, students).
        steps: Steps after which the loss was noted.
        losses: Mean training loss over the steps since the note before.
    """

    students: GRU
    steps: Int[np.ndarray, " notes"]
    losses: Float[np.ndarray, "teachers students notes"]


class SequenceExtrapolation(NamedTuple):
    r"""How students do beyond the length they were trained on, as means over sequences; vectors have Euclidean size.

    Attributes:
        error: Mean of $\max_{k\le t<H}|y_t - \hat y_t|$, counted from the first output at $t = 0$.
        trivial: The same for a student whose outputs are zero.
        seen: Mean of $\max_{t<k}|y_t - \hat y_t|$.
    """

    error: Float[Array, "*members"]
    trivial: Float[Array, "*members"]
    seen: Float[Array, "*members"]


# Adam as a pair of functions of trees. `dynamics.Adam` moves the layers of a `Problem`, and stands in a higher layer;
# the one of optax raises numbers to an integer power, which strict promotion of dtypes refuses.


@entry
def adam_start(params: PyTree) -> Moments:
    """Moments before the first step of Adam.

    Example:
        >>> adam_start(jnp.ones(2)).mean
        Array([0., 0.], dtype=float64)
    """
    return Moments(_zeros_like(params), _zeros_like(params))


@jax.jit
def _zeros_like(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.zeros_like, tree)


@entry
def adam_step(
    params: Tree, gradient: Tree, moments: Moments, done: Int[Array, ""], lr: Float[Array, ""]
) -> tuple[Tree, Moments]:
    r"""One step $\theta \leftarrow \theta - \eta\,\hat m/(\sqrt{\hat v}+\epsilon)$ of Adam, with PyTorch's numbers.

    Args:
        params: Tree of arrays.
        gradient: The same tree.
        moments: From `adam_start` or from the step before.
        done: Number of steps taken before this one.
        lr: $\eta$.

    Example:
        >>> params, done, lr = jnp.ones(1), jnp.asarray(0), jnp.asarray(0.5)
        >>> moved, _ = adam_step(params, 3 * params, adam_start(params), done, lr)
        >>> round(float(moved[0]), 6)
        0.5
    """
    exponent = (done + 1).astype(lr.dtype)
    mean = jax.tree.map(lambda m, g: MEAN_DECAY * m + (1 - MEAN_DECAY) * g, moments.mean, gradient)
    square = jax.tree.map(lambda v, g: SQUARE_DECAY * v + (1 - SQUARE_DECAY) * g**2, moments.square, gradient)
    mean_weight, square_weight = 1 - MEAN_DECAY**exponent, 1 - SQUARE_DECAY**exponent

    def move(value: Array, m: Array, v: Array) -> Array:
        return (value - lr * (m / mean_weight) / (jnp.sqrt(v / square_weight) + FLOOR)).astype(value.dtype)

    return jax.tree.map(move, params, mean, square), Moments(mean, square)


def gaussian_sequences(
    key: RandomKey, batch: int, times: int, inputs: int = 1, dtype: DTypeLike | None = None
) -> Float[Array, "batch times inputs"]:
    """Sequences of independent standard normal numbers; shorter ones are the beginnings of longer ones.

    Args:
        key: Randomness.
        batch: How many.
        times: Their length.
        inputs: Dimension of an input.
        dtype: Kind of the numbers.

    Example:
        >>> key = jax.random.key(0)
        >>> np.array_equal(gaussian_sequences(key, 3, 9)[:, :4], gaussian_sequences(key, 3, 4))
        True
    """
    check_count("gaussian_sequences", "batch", batch, at_least=1)
    check_count("gaussian_sequences", "times", times, at_least=1)
    check_count("gaussian_sequences", "inputs", inputs, at_least=1)
    kind = jnp.result_type(float) if dtype is None else jnp.dtype(dtype)
    return _sequences(key, int(batch), int(times), int(inputs), kind)


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _sequences(
    key: RandomKey, batch: int, times: int, inputs: int, kind: np.dtype
) -> Float[Array, "batch times inputs"]:
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(times))
    drawn = jax.vmap(lambda k: jax.random.normal(k, (batch, inputs), kind))(keys)
    return jnp.swapaxes(drawn, 0, 1)


@entry
def gru_response(gru: GRU, times: int) -> Float[Array, " times"]:
    """Outputs for the input 1, 0, 0, ... of a network with one input and one output.

    Unlike that of a linear network it does not tell what other inputs do.

    Args:
        gru: The network.
        times: Outputs asked for.

    Example:
        >>> gru = gru_from_weights([[0.0], [0.0], [9.0]], jnp.zeros((3, 1)), [0.0] * 3, [0.0] * 3, [[1.0]])
        >>> gru_response(gru, 3).round(6).tolist()
        [0.5, 0.25, 0.125]
    """
    check_count("gru_response", "times", times, at_least=1)
    if gru.inputs != 1 or gru.readout.shape[0] != 1:
        raise ValueError(
            f"gru_response: gru must have one input and one output, but has {gru.inputs} and {gru.readout.shape[0]}; "
            "use its method outputs."
        )
    return _response(gru, int(times))


@functools.partial(jax.jit, static_argnames="times")
def _response(gru: GRU, times: int) -> Float[Array, " times"]:
    impulse = jnp.zeros((times, 1), gru.dtype).at[0, 0].set(1.0)
    return gru.outputs(impulse)[:, 0]


@entry
def gru_teacher(
    key: RandomKey,
    target: Float[Array, " times"],
    states: int,
    *,
    scale: Number = 1e-6,
    steps: int = 1000,
    lr: Number = 1e-2,
    dtype: DTypeLike | None = None,
) -> GRU:
    """A network made to have a given impulse response, by Adam on the mean squared error from a start near zero.

    Networks drawn at random forget at once or explode; this one does neither. Works under `jax.vmap` over keys. How
    well it fits is what `gru_response` tells.

    Args:
        key: Randomness of the start.
        target: The response.
        states: Dimension of the state.
        scale: Standard deviation of the start.
        steps: Steps of Adam.
        lr: Their rate.
        dtype: Kind of the numbers.

    Example:
        >>> target = jnp.array([0.5, 0.25, 0.125])
        >>> teacher = gru_teacher(jax.random.key(0), target, 1, steps=300)
        >>> np.allclose(gru_response(teacher, 3), target, rtol=0, atol=0.03)
        True
    """
    where = "gru_teacher"
    check_shape(where, "target", target, (None,))
    check_finite(where, "target", target)
    check_count(where, "steps", steps, at_least=1)
    check_number(where, "lr", lr, above=0)
    target, scale, lr = (
        no_gradient(
            "nonlinear.gru_teacher", name, value, instead="use gru_response and adam_step in a loop of your own"
        )
        for name, value in (("target", target), ("scale", scale), ("lr", lr))
    )
    start = normal_gru(key, states, scale=scale, dtype=dtype)
    rate = jnp.asarray(lr, start.dtype)
    return fitted_gru(start, target.astype(start.dtype), steps=jnp.asarray(steps), lr=rate)


@jax.jit
def fitted_gru(start: GRU, target: Float[Array, " times"], steps: Int[Array, ""], lr: Float[Array, ""]) -> GRU:
    """The fit of `gru_teacher` from a given start, without a look at the arguments."""

    def error(gru: GRU) -> Array:
        return jnp.mean((gru_response(gru, target.shape[0]) - target) ** 2)

    def body(done: Array, carry: tuple[GRU, Moments]) -> tuple[GRU, Moments]:
        gru, moments = carry
        return adam_step(gru, jax.grad(error)(gru), moments, done, lr)

    return jax.lax.fori_loop(jnp.zeros_like(steps), steps, body, (start, adam_start(start)))[0]


@entry(instead="use sequence_loss and adam_step in a loop of your own")
def train_gru(
    students: GRU,
    teachers: GRU,
    weights: Float[Array, "students window"],
    keys: Key[Array, " teachers"],
    *,
    steps: int,
    lr: Number,
    batch: int = 100,
    every: int = 100,
    progress: Callable[[int], None] | None = None,
) -> GRUTraining:
    """Train students on what their teachers make of fresh Gaussian sequences, by Adam in one compiled loop.

    Args:
        students: Stack of networks, (teachers, students).
        teachers: Stack of networks, (teachers,).
        weights: Of the outputs in the loss, for each of the students of a teacher: `last_output` or `every_output`.
        keys: Randomness of the sequences, for each teacher.
        steps: Steps of Adam.
        lr: Their rate.
        batch: Sequences in a step.
        every: Steps between notes of the loss.
        progress: Called with the number of steps done at every note; may raise to stop.

    Raises:
        NumericalError: A loss is not finite; the message says whose and at which step.

    Example:
        >>> teacher = jax.vmap(lambda k: normal_gru(k, 2, scale=1.0))(jax.random.split(jax.random.key(0), 1))
        >>> twin = jax.tree.map(lambda leaf: leaf[:, None], teacher)
        >>> weights, keys = last_output(3, 3)[None], jax.random.split(jax.random.key(1), 1)
        >>> float(train_gru(twin, teacher, weights, keys, steps=5, lr=1e-2, batch=4).losses[0, 0, 0])
        0.0
    """
    where = "train_gru"
    check_count(where, "steps", steps, at_least=1)
    check_count(where, "batch", batch, at_least=1)
    check_count(where, "every", every, at_least=1)
    check_number(where, "lr", lr, above=0)
    check_shape(where, "weights", weights, (None, None))
    check_finite(where, "weights", weights)
    many, each = teachers.readout.shape[0], weights.shape[0]
    check_shape(where, "teachers' read-outs", teachers.readout, (many, None, teachers.states))
    outputs = teachers.readout.shape[1]
    check_shape(where, "students' read-outs", students.readout, (many, each, outputs, students.states))
    check_shape(where, "keys", keys, (many,))
    if students.inputs != teachers.inputs or students.dtype != teachers.dtype:
        raise ValueError(
            f"{where}: students and teachers must have inputs of one kind, but have {students.inputs} of "
            f"{students.dtype} and {teachers.inputs} of {teachers.dtype}."
        )
    for name, stack in (("students", students), ("teachers", teachers)):
        for leaf in jax.tree.leaves(stack):
            check_finite(where, name, leaf)

    rate, moments = jnp.asarray(lr, students.dtype), adam_start(students)
    noted, losses = [], []
    for first in range(0, steps, every):
        last = min(first + every, steps)
        bounds = (jnp.asarray(first), jnp.asarray(last))
        students, moments, total, broken = _advance(students, moments, teachers, weights, keys, rate, *bounds, batch)
        found = np.argwhere(np.asarray(broken) >= 0)
        if found.size:
            teacher, student = (int(index) for index in found[0])
            raise NumericalError(
                RESULTS.diverged,
                f"{where}: the loss of student {student} of teacher {teacher} is not finite at step "
                f"{int(broken[teacher, student])} ({len(found)} such in all); take a smaller lr.",
            )
        noted.append(last)
        losses.append(np.asarray(total) / (last - first))
        if progress is not None:
            progress(last)
    return GRUTraining(students, np.asarray(noted), np.stack(losses, axis=-1))


@eqx.filter_jit
def _advance(
    students: GRU,
    moments: Moments,
    teachers: GRU,
    weights: Array,
    keys: Array,
    lr: Array,
    first: Array,
    last: Array,
    batch: int,
) -> tuple[GRU, Moments, Array, Array]:
    """Steps `first` to `last`; also the sum of the losses, and the step at which one was first not finite, or -1."""

    def of_teacher(group: GRU, teacher: GRU, key: Array) -> tuple[Array, GRU]:
        inputs = gaussian_sequences(key, batch, weights.shape[1], teacher.inputs, teacher.dtype)
        targets = teacher.outputs(inputs)
        derived = jax.value_and_grad(sequence_loss)
        return jax.vmap(lambda student, weight: derived(student, inputs, targets, weight))(group, weights)

    def body(done: Array, carry: tuple[GRU, Moments, Array, Array]) -> tuple[GRU, Moments, Array, Array]:
        students, moments, total, broken = carry
        fresh = jax.vmap(jax.random.fold_in, (0, None))(keys, done)
        losses, gradient = jax.vmap(of_teacher)(students, teachers, fresh)
        students, moments = adam_step(students, gradient, moments, done, lr)
        broken = jnp.where(jnp.isfinite(losses) | (broken >= 0), broken, done)
        return students, moments, total + losses, broken

    shape = (keys.shape[0], weights.shape[0])
    start = (students, moments, jnp.zeros(shape, students.dtype), jnp.full(shape, -1, first.dtype))
    return jax.lax.fori_loop(first, last, body, start)


@entry
def sequence_extrapolation(
    outputs: Float[Array, "*members sequences times outputs"],
    targets: Float[Array, "*members sequences times outputs"],
    length: int,
) -> SequenceExtrapolation:
    r"""Errors of students within and beyond the length they were trained on, as means over sequences.

    Args:
        outputs: $y$ of the students, up to the horizon $H$ = `times`.
        targets: $\hat y$ of the teachers for the same inputs.
        length: $k < H$.

    Example:
        >>> targets = jnp.asarray([[[1.0], [2.0], [-3.0]], [[1.0], [2.0], [1.0]]])
        >>> [float(value) for value in sequence_extrapolation(targets + 0.5, targets, 1)]
        [0.5, 2.5, 0.5]
    """
    where = "sequence_extrapolation"
    check_shape(where, "targets", targets, outputs.shape)
    check_count(where, "length", length, at_least=1)
    if length >= outputs.shape[-2]:
        raise ValueError(
            f"{where}: length must be less than the horizon {outputs.shape[-2]}, but is {length}; run longer sequences."
        )
    for name, array in (("outputs", outputs), ("targets", targets)):
        if is_concrete(array):
            check_finite(where, name, array)

    return _errors(outputs, targets, jnp.asarray(length))


@jax.jit
def _errors(outputs: Array, targets: Array, length: Array) -> SequenceExtrapolation:
    beyond = jnp.arange(outputs.shape[-2]) >= length

    def largest(values: Array, counted: Array) -> Array:
        sizes = jnp.linalg.norm(values, axis=-1)
        return jnp.mean(jnp.max(sizes, axis=-1, initial=0.0, where=counted), axis=-1)

    gaps = outputs - targets
    return SequenceExtrapolation(largest(gaps, beyond), largest(targets, beyond), largest(gaps, ~beyond))
