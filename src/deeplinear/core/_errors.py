"""Outcomes of a numerical run, exceptions, and checks of arguments with messages in plain words."""

import contextlib
import contextvars
import enum
import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

Result = TypeVar("Result")

SMALLEST, LARGEST = 1e-100, 1e100
"""Sizes of data between which squares and their quotients are numbers."""

LARGEST_SQUARED = 1e150
"""Size of data up to which sums of squares are numbers."""


class RESULTS(enum.IntEnum):
    """How a run ended. The text of each member is the message a person reads."""

    running = 0
    completed = 1
    stopped = 2
    steady = 3
    step_limit = 4
    wall_limit = 5
    interrupted = 6
    diverged = 7
    step_too_small = 8

    @property
    def message(self) -> str:
        """The outcome in one sentence, with the likely causes where it is a failure."""
        return _MESSAGES[self]

    @property
    def failed(self) -> bool:
        """Whether the run broke down, as opposed to reaching a limit it was given."""
        return self in (RESULTS.diverged, RESULTS.step_too_small)

    @property
    def finished(self) -> bool:
        """Whether the run reached what it was asked for: its end, a stopping rule or a rest point."""
        return self in (RESULTS.completed, RESULTS.stopped, RESULTS.steady)


_MESSAGES = {
    RESULTS.running: "The run has not ended yet.",
    RESULTS.completed: "The run reached its last requested time.",
    RESULTS.stopped: "A stopping rule fired.",
    RESULTS.steady: "The gradient vanishes to rounding: the state rests and does not move any more.",
    RESULTS.step_limit: "The limit on steps was reached; the state is kept and the run can be resumed.",
    RESULTS.wall_limit: "The limit on wall-clock time was reached; the state is kept and the run can be resumed.",
    RESULTS.interrupted: "The run was interrupted by the user; the state is kept and the run can be resumed.",
    RESULTS.diverged: (
        "The parameters became non-finite. Likely causes: a learning rate above 2 / (largest Hessian eigenvalue), an "
        "energy that is unbounded below, or an initialisation so large that products of layers overflow."
    ),
    RESULTS.step_too_small: (
        "Steps became so small that rounding or noise decides about them: the tolerance cannot be reached. Likely "
        "causes: a tolerance tighter than rounding allows, an energy whose gradient is discontinuous or noisy, or a "
        "solution that escapes in finite time. Raise rtol, give an atol for layers near zero, or change the integrator."
    ),
}


class NumericalError(RuntimeError):
    """A run broke down and the caller asked for an exception (`throw=True`)."""

    def __init__(self, result: RESULTS, detail: str = "") -> None:
        super().__init__(f"{result.message}{' ' + detail if detail else ''}")
        self.result = result
        self.detail = detail

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.result, self.detail)


class HypothesisError(ValueError):
    """A theorem or a closed form was asked for where one of its hypotheses does not hold."""

    def __init__(self, hypothesis: str, residual: float, tolerance: float, advice: str = "") -> None:
        super().__init__(
            f"The hypothesis '{hypothesis}' does not hold: measured residual {residual:.3e}, "
            f"tolerance {tolerance:.1e}.{' ' + advice if advice else ''}"
        )
        self.hypothesis = hypothesis
        self.residual = residual
        self.tolerance = tolerance
        self.advice = advice

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.hypothesis, self.residual, self.tolerance, self.advice)


_WITHIN = contextvars.ContextVar("within a run", default=False)


@contextlib.contextmanager
def within_run() -> Iterator[None]:
    """Let values pass unseen, as in a program: a state on the way may be one that a user would not ask about.

    Example:
        >>> with within_run():
        ...     is_concrete(1.0)
        False
    """
    token = _WITHIN.set(True)
    try:
        yield
    finally:
        _WITHIN.reset(token)


def is_within_run() -> bool:
    """Whether values pass unseen now; see `within_run`."""
    return _WITHIN.get()


def is_concrete(value: Any) -> bool:
    """Whether a value can be inspected now: it is no tracer of a transformation, nor a state within a run."""
    return not isinstance(value, Tracer) and not _WITHIN.get()


def check_number(
    where: str,
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    finite: bool = True,
) -> None:
    """Refuse a number outside its domain; values under a transformation pass unseen."""
    if not is_concrete(value):
        return
    array = np.asarray(value)
    if array.ndim != 0 or array.dtype.kind not in "iuf":
        raise TypeError(f"{where}: {name} must be a real number, but is {value!r}.")
    number = float(array)
    bounds = [
        (above is not None and not number > above, f"greater than {above:g}" if above is not None else ""),
        (at_least is not None and not number >= at_least, f"at least {at_least:g}" if at_least is not None else ""),
        (at_most is not None and not number <= at_most, f"at most {at_most:g}" if at_most is not None else ""),
        (finite and not math.isfinite(number), "finite"),
    ]
    for violated, wanted in bounds:
        if violated:
            raise ValueError(f"{where}: {name} must be {wanted}, but is {number:g}.")


def check_count(where: str, name: str, value: Any, *, at_least: int = 0, at_most: int | None = None) -> None:
    """Refuse anything that is not an integer within its bounds."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{where}: {name} must be an integer, but is {value!r}.")
    if value < at_least:
        raise ValueError(f"{where}: {name} must be at least {at_least}, but is {value}.")
    if at_most is not None and value > at_most:
        raise ValueError(f"{where}: {name} must be at most {at_most}, but is {value}.")


def check_finite(where: str, name: str, array: Any) -> None:
    """Refuse NaN and infinities, naming the first bad index; abstract values pass unseen."""
    if not is_concrete(array):
        return
    finite = np.isfinite(np.atleast_1d(array))
    if finite.all():
        return
    if np.ndim(array) == 0:
        raise ValueError(f"{where}: {name} must be finite, but is {np.asarray(array)}.")
    bad = np.argwhere(~finite)
    index = tuple(int(i) for i in bad[0])
    value = np.asarray(array)[index]
    raise ValueError(f"{where}: {name} must be finite, but entry {index} is {value} ({len(bad)} such in all).")


def check_size(where: str, name: str, array: Any, *, small: bool = False) -> None:
    """Refuse numbers so large or so small that their squares are none; zeros alone pass, and small ones if asked."""
    if not is_concrete(array):
        return
    size = float(np.abs(np.asarray(array, dtype=float)).max(initial=0.0))
    fits = size <= LARGEST_SQUARED if small else SMALLEST <= size <= LARGEST or size == 0
    if np.isfinite(size) and not fits:
        wanted = f"be at most {LARGEST_SQUARED:g}" if small else f"lie between {SMALLEST:g} and {LARGEST:g}"
        raise ValueError(f"{where}: the largest number of {name} must {wanted}, but is {size:.3g}; take other units.")


def check_result(where: str, result: Result) -> Result:
    """Return a result, or refuse one that is not a number because its arguments leave the range of numbers.

    Abstract values pass unseen.
    """
    for leaf in jax.tree.leaves(result):
        if is_concrete(leaf) and np.any(np.isnan(np.asarray(leaf))):
            raise ValueError(
                f"{where}: the arguments must be of such sizes that the result is a number, but it is not; take other "
                "units."
            )
    return result


def check_shape(where: str, name: str, array: Any, shape: Sequence[int | None]) -> None:
    """Refuse an array of another shape; `None` in `shape` is a free dimension."""
    actual = tuple(np.shape(array))
    fits = len(actual) == len(shape) and all(w is None or w == a for w, a in zip(shape, actual, strict=True))
    if not fits:
        wanted = "(" + ", ".join("any" if w is None else str(w) for w in shape) + ")"
        raise ValueError(f"{where}: {name} must have shape {wanted}, but has shape {actual}.")


def check_key(where: str, key: Any, name: str = "key") -> None:
    """Refuse anything that is not one key of JAX's random numbers."""
    typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    raw = isinstance(key, jax.Array | np.ndarray) and key.dtype == np.uint32 and np.ndim(key) == 1
    if not raw and not (typed and key.ndim == 0):
        found = f"an array of {key.dtype}, shape {key.shape}" if isinstance(key, jax.Array | np.ndarray) else repr(key)
        raise TypeError(f"{where}: {name} must be one random key, such as jax.random.key(0), but is {found}.")


def check_x64(where: str) -> None:
    """Refuse to run where JAX computes in 32 bits."""
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise RuntimeError(
            f"{where} needs 64-bit numbers, but JAX is set to 32 bits. "
            "Call jax.config.update('jax_enable_x64', True) at the start of the program."
        )
