r"""What a recurrent network does to a sequence: its impulse response, its outputs, and how far they extrapolate.

The response is $h_j = CA^jB$, $j = 0, 1, \dots$: the outputs $y_1, y_2, \dots$ of the input $1, 0, 0, \dots$. The
output $y_0 = 0$ before the first input is no part of it. A network trained on sequences of length $k$ has seen
$h_0, \dots, h_{k-1}$; what it does beyond is the *tail*.
"""

import math
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    as_array,
    check_count,
    check_finite,
    check_number,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    formula,
    is_concrete,
    near_name,
    scan,
    xp,
)
from deeplinear.models import System, checked_system

Path = Literal["general", "symmetric", "diagonal"]

PATHS: tuple[str, ...] = get_args(Path)

SYMMETRIC = 1e-12
"""Largest asymmetry of a transition matrix that counts as symmetric, relative to its largest entry (at least 1)."""

VANISHING = 1e-14
"""Tail of a teacher, relative to its whole response, below which it is no yardstick for tails."""


class Response(NamedTuple):
    """An impulse response as far as it can be written down.

    Attributes:
        values: The finite entries: (length,) for one input and one output, else (length, outputs, inputs).
        diverged_at: Index of the first entry that overflows, where there is one; `values` ends before it.
    """

    values: Float[Array, "length *shape"]
    diverged_at: int | None


class LogResponse(NamedTuple):
    """An impulse response by its logarithms, which do not overflow.

    Attributes:
        sizes: $\\ln|h_j|$, with $-\\infty$ for a zero.
        signs: 1, 0 or -1.
    """

    sizes: Float[Array, "length *shape"]
    signs: Float[Array, "length *shape"]


class Extrapolation(NamedTuple):
    r"""How a student does beyond the length it was trained on; sizes of matrices are Frobenius norms.

    A tail error says nothing without the training loss: a student that never moved from zero has a small one.

    Attributes:
        length: $k$, entries trained on.
        horizon: $H$; the tail is $k \le j < H$.
        training_loss: $\tfrac12\sum_{j<k}\|h_j - w_j\|^2$.
        error: $\max_{k\le j<H}\|h_j - w_j\|$; infinite if the student overflows.
        gap: $\max_{j<H}\|h_j - w_j\|$.
        reference: Error of the zero student, $\max_{k\le j<H}\|w_j\|$, or $\max_{j<H}\|w_j\|$ if that vanishes.
        degenerate: Whether the tail of the teacher vanishes.
    """

    length: int
    horizon: int
    training_loss: float
    error: float
    gap: float
    reference: float
    degenerate: bool

    @property
    def ratio(self) -> float:
        """Error over that of the zero student."""
        return self.error / self.reference

    def within(self, tolerance: float) -> bool:
        r"""Whether the responses differ by at most a tolerance up to the horizon: $\epsilon$-extrapolation."""
        check_number("Extrapolation.within", "tolerance", tolerance, at_least=0)
        return self.gap <= tolerance

    def extrapolates(self, *, converged: float = 1e-12) -> bool:
        """Whether the student is better than the zero student.

        Args:
            converged: Training loss above which a student of a teacher with no tail does not count: the zero student
                continues such a teacher without error.
        """
        check_number("Extrapolation.extrapolates", "converged", converged, at_least=0)
        return self.error < self.reference and (not self.degenerate or self.training_loss <= converged)


class RatioSummary(NamedTuple):
    """Ratios of several students, such that one that explodes does not speak for all.

    Attributes:
        capped: The ratios, those above the cap at the cap.
        median: Of the ratios as they are.
        mean: Of the capped ratios.
        deviation: Their standard deviation (mean square over all of them).
        failed: Share of the ratios that are at least 1: no better than the zero student.
    """

    capped: Float[Array, " students"]
    median: float
    mean: float
    deviation: float
    failed: float


@entry
def impulse_response(system: Any, length: int, *, path: Path = "general") -> Response:
    r"""First entries of $h_j = CA^jB$.

    Three paths lead to the same numbers: matrix times block, $O(nd^2)$, for any system; one eigen-decomposition and
    $\sum_i p_ia_i^j$, $O(d^3 + nd)$, for a symmetric transition matrix; the same without decomposition for a diagonal
    one. No power of $A$ is formed. Inside a transformation every path takes the steps, returns all entries, and the
    matrix is not checked.

    Args:
        system: $A$, $B$, $C$.
        length: $n$, entries asked for.
        path: `"general"`, `"symmetric"` or `"diagonal"`.

    Returns:
        The entries, and where they overflow if they do.

    Raises:
        HypothesisError: The transition matrix is not symmetric or not diagonal, and the path needs it.

    Example:
        >>> impulse_response(([[0.5, 0.0], [0.0, -1.0]], [[1.0], [1.0]], [[4.0, 1.0]]), 4).values
        array([ 5. ,  1. ,  2. , -0.5])
        >>> impulse_response(([[1e100]], [[1.0]], [[1.0]]), 9)
        Response(values=array([1.e+000, 1.e+100, 1.e+200, 1.e+300]), diverged_at=4)
    """
    where = "impulse_response"
    checked = checked_system(where, system)
    check_count(where, "length", length, at_least=1)
    if path not in PATHS:
        raise ValueError(f"{where}: path is '{path}'. {near_name(str(path), PATHS)}")
    if not all(map(is_concrete, checked)):
        return Response(_squeezed(_steps(checked, length)), None)
    transition, first, output = (np.asarray(matrix) for matrix in checked)
    with np.errstate(over="ignore", invalid="ignore"):
        if path == "general":
            entries = _by_steps(transition, first, output, length)
        else:
            entries = _by_modes(*_modes(where, transition, first, output, path), length)
    infinite = np.flatnonzero(~np.isfinite(entries).all(axis=(1, 2)))
    diverged_at = int(infinite[0]) if infinite.size else None
    return Response(xp.asarray(_squeezed(entries[:diverged_at]), dtype=float), diverged_at)


@entry(instead="call it outside of jit, vmap and grad, or use impulse_response, which can be traced")
def log_response(system: Any, length: int) -> LogResponse:
    r"""Logarithms and signs of $h_j = CA^jB$, for responses too long or too steep to be written down.

    The blocks $A^jB$ are kept near size 1 by powers of two, so that entries that fit are those of `impulse_response`.

    Args:
        system: $A$, $B$, $C$.
        length: Entries asked for.

    Example:
        >>> found = log_response(([[-1e100]], [[1.0]], [[1.0]]), 12)
        >>> round(float(found.sizes[11]) / math.log(10.0), 6), float(found.signs[11])
        (1100.0, -1.0)
    """
    where = "log_response"
    checked = checked_system(where, system)
    check_count(where, "length", length, at_least=1)
    (transition, slope), (block, shift), (output, last) = (_near_one(np.asarray(matrix)) for matrix in checked)
    sizes, signs = [], []
    with np.errstate(divide="ignore"):
        for _ in range(length):
            entry = output @ block
            sizes.append(np.log(np.abs(entry)) + (shift + last) * math.log(2))
            signs.append(np.sign(entry))
            block, exponent = _near_one(transition @ block)
            shift += slope + exponent
    return LogResponse(
        xp.asarray(_squeezed(np.array(sizes)), dtype=float), xp.asarray(_squeezed(np.array(signs)), dtype=float)
    )


@entry
def outputs(system: Any, inputs: Any) -> Float[Array, "times *outputs"]:
    r"""Outputs $y_1, \dots, y_T$ of the recurrence $s_{t+1} = As_t + Bx_t$, $y_t = Cs_t$, $s_0 = 0$.

    The first output is $y_1 = CBx_0$. Works under `jax.vmap`.

    Args:
        system: $A$, $B$, $C$.
        inputs: $x_0, \dots, x_{T-1}$: (times, inputs), or (times,) if the system has one input.

    Returns:
        (times, outputs), or (times,) if the inputs are a vector and the system has one output.

    Raises:
        OverflowError: The outputs grow beyond what a number can hold.

    Example:
        >>> outputs(([[0.5]], [[2.0]], [[3.0]]), [1.0, 0.0, 1.0])
        array([6. , 3. , 7.5])
    """
    where = "outputs"
    checked = checked_system(where, system)
    sequence = as_array(checked_layer(where, "inputs", inputs), float)
    size = checked.input.shape[1]
    vector = sequence.ndim == 1
    if vector and size != 1:
        raise ValueError(f"{where}: inputs must have shape (times, {size}), but has shape {sequence.shape}.")
    check_shape(where, "inputs", sequence, (None,) if vector else (None, size))
    check_finite(where, "inputs", sequence)
    found = _simulate(checked, sequence)
    if is_concrete(found):
        bad = np.flatnonzero(~np.isfinite(np.asarray(found)).reshape(len(found), -1).all(axis=1))
        if bad.size:
            raise OverflowError(
                f"{where}: outputs overflow from output {bad[0] + 1} on. The system has eigenvalues beyond 1; give "
                "fewer inputs."
            )
    return found


@entry(instead="call it outside of jit, vmap and grad, or compare the values of impulse_response")
def extrapolation(response: Any, target: Any, length: int, *, horizon: int) -> Extrapolation:
    r"""Errors of a student's response on the part it was trained on and on the tail.

    The yardstick is the zero student. Where the tail of the teacher vanishes, as that of a delay does, it would be
    zero; then the largest entry of the teacher takes its place, and only students with small training loss count.

    Args:
        response: $h_0, h_1, \dots$ of the student, up to the horizon, or a `Response`, which may end in overflow.
        target: $w_0, w_1, \dots$ of the teacher, up to the horizon.
        length: $k$, entries trained on.
        horizon: $H > k$, where the tail ends.

    Raises:
        HypothesisError: The teacher is zero up to the horizon.

    Example:
        >>> found = extrapolation([1.0, 0.5, 0.0, 0.0], [1.0, 0.5, 0.25, 0.125], 2, horizon=4)
        >>> found.training_loss, found.error, found.ratio, found.extrapolates()
        (0.0, 0.25, 1.0, False)
    """
    where = "extrapolation"
    check_x64(where)
    check_count(where, "length", length, at_least=1)
    check_count(where, "horizon", horizon, at_least=length + 1)
    diverged_at = response.diverged_at if isinstance(response, Response) else None
    values = response.values if isinstance(response, Response) else response
    student, teacher = checked_response(where, "response", values), checked_response(where, "target", target)
    if student.shape[1:] != teacher.shape[1:]:
        raise ValueError(
            f"{where}: response and target must have entries of the same shape, but have {student.shape[1:]} and "
            f"{teacher.shape[1:]}."
        )
    needed = horizon if diverged_at is None else min(horizon, diverged_at)
    for name, array, least in (("response", student, needed), ("target", teacher, horizon)):
        if len(array) < least:
            raise ValueError(f"{where}: {name} must reach the horizon, {least} entries, but has {len(array)}.")
    gaps = np.full(horizon, math.inf)
    with np.errstate(over="ignore"):
        gaps[:needed] = _sizes(student[:needed] - teacher[:needed])
        loss = 0.5 * float(np.sum(gaps[:length] ** 2))
    sizes = _sizes(teacher[:horizon])
    largest, tail = float(sizes.max()), float(sizes[length:].max())
    if largest == 0:
        raise HypothesisError("a teacher whose response is not zero", 0.0, 0.0, "There is nothing to extrapolate.")
    degenerate = tail <= VANISHING * largest
    return Extrapolation(
        length=int(length),
        horizon=int(horizon),
        training_loss=loss,
        error=float(gaps[length:].max()),
        gap=float(gaps.max()),
        reference=largest if degenerate else tail,
        degenerate=degenerate,
    )


@entry(instead="call it outside of jit, vmap and grad, or use jax.numpy.minimum, median and mean")
def summarise_ratios(ratios: Any, *, cap: float = 1e3) -> RatioSummary:
    r"""Median, mean and spread of the tail errors of several students, each relative to the zero student.

    How badly a student explodes is of no interest, so mean and spread are those of $\min(E/E_0, \text{cap})$.

    Args:
        ratios: $E/E_0$, one for each student; infinite ones are welcome.
        cap: Finite bound on what one student contributes.

    Example:
        >>> found = summarise_ratios([0.1, 0.2, float("inf")], cap=10.0)
        >>> found.median, round(found.mean, 12), round(found.failed, 6)
        (0.2, 3.433333333333, 0.333333)
    """
    where = "summarise_ratios"
    check_x64(where)
    check_number(where, "cap", cap, above=0)
    values = np.asarray(checked_layer(where, "ratios", ratios), dtype=float)
    check_shape(where, "ratios", values, (None,))
    if not values.size:
        raise ValueError(f"{where}: ratios must hold at least one number, but is empty.")
    if not np.all(values >= 0):
        raise ValueError(f"{where}: ratios must be at least 0, but one is {values[~(values >= 0)][0]}.")
    capped = np.minimum(values, cap)
    ordered, half = np.sort(values), len(values) // 2
    median = ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2
    return RatioSummary(
        xp.asarray(capped, dtype=float),
        float(median),
        float(capped.mean()),
        float(capped.std()),
        float(np.mean(values >= 1)),
    )


@entry
def hankel_singular_values(response: Any, *, size: int | None = None) -> Float[Array, " values"]:
    r"""Singular values of the Hankel matrix $[h_{i+j}]_{i,j<s}$, in falling order.

    As many are positive as the smallest network with this response has states.

    Args:
        response: $h_0, h_1, \dots$; blocks of several outputs and inputs are laid out as blocks of the matrix.
        size: $s$; needs $2s - 1$ entries. Half of the entries, rounded up, if left out.

    Example:
        >>> hankel_singular_values([1.0, 0.5, 0.25]).round(12)
        array([1.25, 0.  ])
    """
    where = "hankel_singular_values"
    check_x64(where)
    matrix = _hankel(where, response, size)
    if not is_concrete(matrix):
        return xp.linalg.svd(matrix, compute_uv=False)
    return xp.asarray(np.linalg.svd(matrix, compute_uv=False), dtype=float)


@entry(instead="call it outside of jit, vmap and grad, or trace hankel_singular_values")
def hankel_order(response: Any, *, tolerance: float = 1e-8, size: int | None = None) -> int:
    r"""Number of states that a response needs: singular values of its Hankel matrix above a tolerance.

    Args:
        response: $h_0, h_1, \dots$.
        tolerance: Relative to the largest one. The default suits exact systems; along training use `1e-2`.
        size: Rows of the Hankel matrix, as in `hankel_singular_values`.

    Returns:
        The order; 0 for the zero response.

    Example:
        >>> hankel_order([2.0, 1.5, 1.25, 1.125, 1.0625])
        2
    """
    where = "hankel_order"
    check_x64(where)
    check_number(where, "tolerance", tolerance, at_least=0, at_most=1)
    values = np.linalg.svd(_hankel(where, response, size), compute_uv=False)
    return int(np.sum(values > tolerance * values[0])) if values[0] > 0 else 0


def checked_response(where: str, name: str, response: Any) -> Any:
    """Finite numbers of shape (length,) or (length, outputs, inputs), or a refusal."""
    if isinstance(response, Response):
        response = response.values
    if isinstance(response, System):
        raise TypeError(
            f"{where}: {name} must be numbers, but is a system; take those of impulse_response(system, length)."
        )
    given = checked_layer(where, name, response)
    array = np.asarray(given, dtype=float) if is_concrete(given) else given.astype(float)
    if array.ndim not in (1, 3) or 0 in array.shape:
        raise ValueError(
            f"{where}: {name} must have shape (length,) or (length, outputs, inputs) with no dimension zero, but has "
            f"shape {array.shape}."
        )
    check_finite(where, name, array)
    return array


def checked_numbers(where: str, name: str, response: Any, least: int) -> np.ndarray:
    """At least so many finite numbers in a vector, or a refusal."""
    array = checked_response(where, name, response)
    check_shape(where, name, array, (None,))
    if len(array) < least:
        raise ValueError(f"{where}: {name} must have at least {least} entries, but has {len(array)}.")
    return array


def symmetric_transition(where: str, transition: np.ndarray) -> np.ndarray:
    """A transition matrix that is symmetric but for rounding, made so, or a refusal."""
    residual = float(np.abs(transition - transition.T).max())
    tolerance = SYMMETRIC * max(1.0, float(np.abs(transition).max()))
    if not residual <= tolerance:
        raise HypothesisError(f"{where}: a symmetric transition matrix", residual, tolerance)
    return transition / 2 + transition.T / 2


@formula(static_argnums=1)
def _steps(system: System, length: int) -> Float[Array, "length outputs inputs"]:
    def step(block: Float[Array, "states inputs"], _: None) -> tuple[Array, Array]:
        return system.transition @ block, system.output @ block

    return scan(step, system.input, None, length=length)[1]


def _by_steps(transition: np.ndarray, block: np.ndarray, output: np.ndarray, length: int) -> np.ndarray:
    entries = np.full((length, len(output), block.shape[1]), math.inf)
    for j in range(length):
        entries[j] = output @ block
        if not np.isfinite(entries[j]).all():
            break
        block = transition @ block
    return entries


def _modes(
    where: str, transition: np.ndarray, first: np.ndarray, output: np.ndarray, path: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues with the rows of the input map and columns of the output map that belong to them."""
    if path == "symmetric":
        values, vectors = np.linalg.eigh(symmetric_transition(where, transition))
        return values, vectors.T @ first, output @ vectors
    beside = float(np.abs(transition - np.diag(np.diag(transition))).max())
    tolerance = SYMMETRIC * max(1.0, float(np.abs(transition).max()))
    if not beside <= tolerance:
        raise HypothesisError(f"{where}: a diagonal transition matrix", beside, tolerance)
    return np.diag(transition), first, output


def _by_modes(values: np.ndarray, right: np.ndarray, left: np.ndarray, length: int) -> np.ndarray:
    active = (right != 0).any(axis=1) & (left != 0).any(axis=0)  # else 0 times an overflow
    values, right, left = values[active], right[active], left[:, active]
    factors = np.broadcast_to(values, (length, len(values))).copy()
    factors[0] = 1.0
    powers = np.cumprod(factors, axis=0)
    return (powers[:, None, :] * left) @ right


def _near_one(matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """A matrix over a power of two near its largest entry, and the exponent."""
    exponent = int(np.frexp(np.abs(matrix).max())[1])
    return np.ldexp(matrix, -exponent), exponent


def _squeezed(entries: Any) -> Any:
    return entries[:, 0, 0] if entries.shape[1:] == (1, 1) else entries


def _sizes(entries: np.ndarray) -> np.ndarray:
    return np.hypot.reduce(np.abs(entries).reshape(len(entries), -1), axis=1)  # squares might overflow


def _hankel(where: str, response: Any, size: int | None) -> Any:
    values = checked_response(where, "response", response)
    rows = (len(values) + 1) // 2 if size is None else size
    check_count(where, "size", rows, at_least=1, at_most=(len(values) + 1) // 2)
    index = np.add.outer(np.arange(rows), np.arange(rows))
    if values.ndim == 1:
        return values[index]
    blocks = values[index].transpose(0, 2, 1, 3)  # (row, output, column, input)
    return blocks.reshape(rows * values.shape[1], rows * values.shape[2])


@formula
def _simulate(system: System, inputs: Float[Array, "times *inputs"]) -> Float[Array, "times *outputs"]:
    """Outputs of sequences of vectors, or of numbers."""

    def step(state: Array, drive: Array) -> tuple[Array, Array]:
        state = system.transition @ state + drive
        return state, state

    vectors = inputs[:, None] if inputs.ndim == 1 else inputs
    states = scan(step, xp.zeros(len(system.transition)), vectors @ system.input.T)[1]
    found = states @ system.output.T
    return found[:, 0] if inputs.ndim == 1 and found.shape[1] == 1 else found
