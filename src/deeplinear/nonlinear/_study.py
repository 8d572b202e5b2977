"""Students of several lengths, taught by gated recurrent units: how far does each continue its teacher?

Plain values in, plain arrays out. Nothing but JAX and equinox is needed, so that the full size can be computed on a
machine that has no more than these.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, check_count, check_number, check_x64, near_name
from deeplinear.nonlinear._gru import GRU, every_output, last_output, normal_gru, sequence_loss, uniform_gru
from deeplinear.nonlinear._training import (
    fitted_gru,
    gaussian_sequences,
    gru_response,
    sequence_extrapolation,
    train_gru,
)

LOSSES = {"last": last_output, "all": every_output}
"""Which outputs are in the loss."""

STARTS = {"normal": normal_gru, "uniform": uniform_gru}
"""Laws of the students' starts."""

KINDS = ("float64", "float32")


@dataclasses.dataclass(frozen=True)
class GRUStudy:
    r"""A study of extrapolation, as plain values.

    The teachers are fitted to the impulse response $\sum_i a_i\sin(\omega_i(t-\tau_i))\,e^{-\delta_i(t-\tau_i)}$, each
    term for $t \ge \tau_i$ only. Runs of one seed share teacher, start and sequences and differ in the length alone.

    Attributes:
        teacher_states: Dimension of a teacher's state.
        states: Dimension of a student's state.
        lengths: Lengths $k$ of training sequences.
        horizon: $H$, where the outputs that count as extrapolation end.
        steps: Steps of Adam.
        lr: Their rate.
        batch: Fresh sequences in a step.
        scale: Of the students' start.
        start: `"normal"` or `"uniform"`.
        loss: `"last"` output of a sequence or `"all"` of them.
        teacher_scale: Standard deviation of a teacher's start.
        teacher_steps: Steps of its fit.
        teacher_lr: Their rate.
        amplitudes: $a_i$.
        frequencies: $\omega_i$.
        decays: $\delta_i$.
        delays: $\tau_i$.
        sequences: Sequences on which errors are measured.
        shown: How many of them outputs are averaged over for the picture.
        notes: Number of times the training loss is noted.
        seeds: Number of teachers.
        together: Whether all lengths are trained in one program, padded to the longest: for a device with many cores.
            The numbers are the same.
        dtype: `"float64"` or `"float32"`.
        seed: Of all randomness.
    """

    teacher_states: int = 4
    states: int = 32
    lengths: tuple[int, ...] = (3, 4, 6, 8, 12, 16, 24)
    horizon: int = 60
    steps: int = 2000
    lr: float = 3e-3
    batch: int = 100
    scale: float = 1e-2
    start: str = "normal"
    loss: str = "last"
    teacher_scale: float = 1e-6
    teacher_steps: int = 1000
    teacher_lr: float = 1e-2
    amplitudes: tuple[float, ...] = (1.0,)
    frequencies: tuple[float, ...] = (0.35,)
    decays: tuple[float, ...] = (0.02,)
    delays: tuple[float, ...] = (0.0,)
    sequences: int = 200
    shown: int = 5
    notes: int = 20
    seeds: int = 3
    together: bool = False
    dtype: str = "float64"
    seed: int = 0

    def __post_init__(self) -> None:
        where = "GRUStudy"
        for name in ("teacher_states", "states", "horizon", "steps", "batch", "teacher_steps", "sequences", "seeds"):
            check_count(where, name, getattr(self, name), at_least=1)
        check_count(where, "notes", self.notes, at_least=1, at_most=self.steps)
        check_count(where, "shown", self.shown, at_least=1, at_most=self.sequences)
        check_count(where, "seed", self.seed)
        for name in ("lr", "scale", "teacher_scale", "teacher_lr"):
            check_number(where, name, getattr(self, name), above=0)
        for name, value, options in (
            ("start", self.start, STARTS),
            ("loss", self.loss, LOSSES),
            ("dtype", self.dtype, KINDS),
        ):
            if value not in options:
                raise ValueError(f"{where}: {name} is '{value}'. {near_name(value, options)}")
        if not self.lengths or list(self.lengths) != sorted(set(self.lengths)):
            raise ValueError(f"{where}: lengths must go up and not be empty, but are {self.lengths}.")
        for length in self.lengths:
            check_count(where, "lengths", length, at_least=1, at_most=self.horizon - 1)
        terms = [len(values) for values in (self.amplitudes, self.frequencies, self.decays, self.delays)]
        if min(terms) != max(terms) or not terms[0]:
            raise ValueError(
                f"{where}: amplitudes, frequencies, decays and delays must be equally many and at least one, but are "
                f"{terms}."
            )
        for name in ("amplitudes", "frequencies", "decays", "delays"):
            for value in getattr(self, name):
                check_number(where, name, value)

    def target(self) -> Float[np.ndarray, " horizon"]:
        """The impulse response the teachers are fitted to, from the first output at time 0 on.

        Example:
            >>> round(float(GRUStudy(frequencies=(1.0,), decays=(0.0,)).target()[2]), 6)  # sin 2
            0.909297
        """
        times = np.arange(self.horizon)
        total = np.zeros(self.horizon)
        for size, frequency, decay, delay in zip(
            self.amplitudes, self.frequencies, self.decays, self.delays, strict=True
        ):
            since = np.maximum(times - delay, 0.0)  # the sine is 0 before the term begins
            total += size * np.sin(frequency * since) * np.exp(-decay * since)
        return total


GRU_STUDIES = {
    "quick": GRUStudy(
        teacher_states=2,
        states=12,
        lengths=(2, 8),
        horizon=30,
        steps=400,
        lr=1e-2,
        batch=50,
        teacher_steps=400,
        together=True,
    ),
    "small": GRUStudy(),
    "paper": GRUStudy(
        teacher_states=10,
        states=100,
        lengths=(10, 20, 30, 40, 50, 60),
        horizon=120,
        steps=50_000,
        lr=2e-3,
        amplitudes=(1.0, 0.5),
        frequencies=(0.25, 0.6),
        decays=(0.015, 0.03),
        delays=(15.0, 0.0),
        seeds=10,
        together=True,
        dtype="float32",
    ),
}
"""Studies by size: seconds; a minute or two on two cores; the size of the paper, ten minutes on a large GPU."""


def run_gru_study(study: GRUStudy, *, progress: Callable[[float, str], None] | None = None) -> dict[str, np.ndarray]:
    """Make teachers, train students of all lengths, measure how far they continue their teachers.

    Args:
        study: What to do.
        progress: Called now and then with the fraction done and a few words; may raise to stop.

    Returns:
        By name: `length`; `error`, `trivial`, `seen` (see `SequenceExtrapolation`) and `loss`, the loss on the fresh
        sequences of the measurement, all (seeds, lengths); `step` and `losses`, the training loss as it went, (seeds,
        lengths, notes); `target`, the response the teachers were fitted to, `teacher_response` (seeds, horizon) and
        `teacher_misfit`, its mean squared error; `student_response` (seeds, lengths, horizon); `teacher_output` and
        `student_output`, averages over the sequences shown.

    Raises:
        NumericalError: A training loss is not finite.

    Example:
        >>> study = GRUStudy(2, 2, (3,), 4, 2, batch=4, teacher_steps=2, sequences=2, shown=1, notes=1, seeds=1)
        >>> run_gru_study(study)["error"].shape
        (1, 1)
    """
    if not isinstance(study, GRUStudy):
        raise TypeError(f"run_gru_study: study must be a GRUStudy, such as GRU_STUDIES['quick'], but is {study!r}.")
    if study.dtype == "float64":
        check_x64("run_gru_study with dtype float64")
    tell = progress if progress is not None else _silent
    # Some devices compute products of 32-bit numbers with fewer digits unless told otherwise.
    exact = jax.default_matmul_precision("highest") if study.dtype == "float32" else contextlib.nullcontext()
    with exact:
        return _run(study, tell)


def _silent(fraction: float, text: str) -> None:
    return None


def _run(study: GRUStudy, tell: Callable[[float, str], None]) -> dict[str, np.ndarray]:
    teacher_keys, start_keys, train_keys, test_keys = _keys(jax.random.key(study.seed), jnp.arange(study.seeds))
    target = study.target()
    kind = jnp.dtype(study.dtype)

    teachers, answers, starts = _prepared(
        teacher_keys,
        start_keys,
        jnp.asarray(target, kind),
        jnp.asarray([study.teacher_scale, study.teacher_lr, study.scale], kind),
        jnp.asarray(study.teacher_steps),
        (study.teacher_states, study.states),
        study.start,
    )
    response = np.asarray(answers)
    tell(0.02, f"{study.seeds} teachers")

    groups = [study.lengths] if study.together else [(length,) for length in study.lengths]
    work, done, parts = sum(max(group) for group in groups), 0, []
    every = -(-study.steps // study.notes)
    for group in groups:
        share, before = max(group) / work, done / work

        def note(step: int, share: float = share, before: float = before, group: tuple[int, ...] = group) -> None:
            words = f"length {group[0]}" if len(group) == 1 else f"lengths {group[0]} to {group[-1]}"
            tell(0.02 + 0.97 * (before + share * step / study.steps), f"{words}, step {step}")

        rows = np.stack([LOSSES[study.loss](length, max(group)) for length in group])
        weights = jnp.asarray(rows.astype(kind), dtype=kind)
        stack = _repeated(starts, len(group))
        trained = train_gru(
            stack,
            teachers,
            weights,
            train_keys,
            steps=study.steps,
            lr=study.lr,
            batch=study.batch,
            every=every,
            progress=note,
        )
        parts.append(
            _measured(study, group, teachers, trained.students, weights, test_keys) | {"losses": trained.losses}
        )
        parts[-1]["step"] = trained.steps
        done += max(group)

    shared = {"step", "teacher_output"}
    found = {
        name: parts[0][name] if name in shared else np.concatenate([part[name] for part in parts], axis=1)
        for name in parts[0]
    }
    tell(1.0, "done")
    return found | {
        "length": np.asarray(study.lengths),
        "target": target,
        "teacher_response": response,
        "teacher_misfit": np.mean((response - target) ** 2, axis=1),
    }


@jax.jit
def _keys(key: Array, seeds: Array) -> tuple[Array, Array, Array, Array]:
    """For each seed: keys of its teacher, of the start, and of the sequences to train and to measure with."""
    drawn = jax.vmap(lambda seed: jax.random.split(jax.random.fold_in(key, seed), 4))(seeds)
    return drawn[:, 0], drawn[:, 1], drawn[:, 2], drawn[:, 3]


@eqx.filter_jit
def _prepared(
    teacher_keys: Array,
    start_keys: Array,
    target: Array,
    numbers: Array,
    steps: Array,
    states: tuple[int, int],
    start: str,
) -> tuple[GRU, Array, GRU]:
    """Teachers, their responses, and starts of the students."""
    teacher_scale, lr, scale = numbers

    def make(key: Array) -> tuple[GRU, Array]:
        begin = normal_gru(key, states[0], scale=teacher_scale, dtype=target.dtype)
        teacher = fitted_gru(begin, target, steps=steps, lr=lr)
        return teacher, gru_response(teacher, target.shape[0])

    teachers, responses = jax.vmap(make)(teacher_keys)
    law = STARTS[start]
    return teachers, responses, jax.vmap(lambda key: law(key, states[1], scale=scale, dtype=target.dtype))(start_keys)


def _measured(
    study: GRUStudy, group: tuple[int, ...], teachers: GRU, students: GRU, weights: Array, keys: Array
) -> dict[str, np.ndarray]:
    wanted, given, responses, losses = _played(teachers, students, weights, keys, study.sequences, study.horizon)
    seen = np.asarray(given)
    errors = [
        sequence_extrapolation(jnp.asarray(seen[:, i], dtype=given.dtype), wanted, length)
        for i, length in enumerate(group)
    ]
    measured = {name: np.stack([getattr(e, name) for e in errors], axis=1) for name in ("error", "trivial", "seen")}
    return measured | {
        "loss": np.asarray(losses),
        "student_response": np.asarray(responses),
        "teacher_output": np.mean(np.asarray(wanted)[:, : study.shown, :, 0], axis=1),
        "student_output": np.mean(seen[:, :, : study.shown, :, 0], axis=2),
    }


@functools.partial(jax.jit, static_argnames="count")
def _repeated(stack: GRU, count: int) -> GRU:
    """Every member of a stack as many times, along a second axis."""
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], count, axis=1), stack)


@eqx.filter_jit
def _played(
    teachers: GRU, students: GRU, weights: Array, keys: Array, sequences: int, horizon: int
) -> tuple[Array, Array, Array, Array]:
    """Outputs of teachers and students for fresh sequences, responses of the students, and their losses."""
    window = weights.shape[1]

    def of_teacher(teacher: GRU, group: GRU, key: Array) -> tuple[Array, Array, Array, Array]:
        inputs = gaussian_sequences(key, sequences, horizon, dtype=teacher.dtype)
        wanted = teacher.outputs(inputs)

        def of_student(student: GRU, weight: Array) -> tuple[Array, Array, Array]:
            loss = sequence_loss(student, inputs[:, :window], wanted[:, :window], weight)
            return student.outputs(inputs), gru_response(student, horizon), loss

        return wanted, *jax.vmap(of_student)(group, weights)

    return jax.vmap(of_teacher)(teachers, students, keys)
